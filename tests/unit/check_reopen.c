// check_reopen.c - a runtime opened, used and closed a thousand times in one
// process: threads, descriptors, mappings and memory are what they were.
// Built a second time for cuda_ep under the fake driver (-DFAKE_CUDA).
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/harness.h"
#include "tests/unit/sim_run.h"

#define ROUNDS 1000
#define WARM_UP 60

// ---- memory ----

// Counted here, to the byte: what mallinfo() calls in use includes the caches
// of the C library, which fill for hundreds of rounds.
static _Atomic long live;

#if defined(__GLIBC__) && !(GENAI_BUILD_SAN)
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static void *counted(void *p)
{
	if (p)
		live += (long)malloc_usable_size(p);
	return p;
}

void *malloc(size_t n)
{
	return counted(__libc_malloc(n));
}

void *calloc(size_t n, size_t size)
{
	return counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t n)
{
	long old = p ? (long)malloc_usable_size(p) : 0;
	void *q = __libc_realloc(p, n);

	if (q || (p && !n))
		live -= old;
	return counted(q);
}

void *aligned_alloc(size_t align, size_t n)
{
	return counted(__libc_memalign(align, n));
}

int posix_memalign(void **out, size_t align, size_t n)
{
	void *p = counted(__libc_memalign(align, n));

	if (p)
		*out = p;
	return p ? 0 : ENOMEM;
}

void free(void *p)
{
	if (p)
		live -= (long)malloc_usable_size(p);
	__libc_free(p);
}
#endif

// ---- what a process has ----

struct census {
	long threads, fds, maps;
	long heap, rss; // bytes
};

static long entries(const char *path)
{
	DIR *d = opendir(path);
	long n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

// A joined thread may be listed for a moment: the kernel wakes who joins before
// it takes the thread away.
static long threads(void)
{
	long n = entries("/proc/self/task"), again = 0;

	for (int i = 0; i < 50 && n != again; i++) {
		again = n;
		usleep(1000);
		n = entries("/proc/self/task");
	}
	return n;
}

// Read with as little of the C library as can be.
static long read_file(const char *path, char *buf, size_t cap)
{
	int fd = open(path, O_RDONLY);
	ssize_t n;
	size_t at = 0;

	ck_assert_int_ge(fd, 0);
	while ((n = read(fd, buf + at, cap - 1 - at)) > 0)
		at += (size_t)n;
	close(fd);
	buf[at] = 0;
	return (long)at;
}

static struct census count(void)
{
	static char text[1 << 20];
	struct census c = {.threads = threads(),
			   .fds = entries("/proc/self/fd"),
			   .heap = live};
	long n = read_file("/proc/self/maps", text, sizeof(text)), pages = 0;

	for (long i = 0; i < n; i++)
		c.maps += text[i] == '\n';
	read_file("/proc/self/statm", text, sizeof(text));
	sscanf(text, "%*d %ld", &pages);
	c.rss = pages * sysconf(_SC_PAGESIZE);
	return c;
}

// What has grown in the given number of rounds; empty: nothing.  A sanitizer
// has memory of its own, which grows.
static void grown(const struct census *a, const struct census *b, char *buf,
		  size_t cap)
{
	const bool plain = !(GENAI_BUILD & 0xff);
	int n = 0;

	buf[0] = 0;
#define SAY(what, slack)                                                       \
	if (b->what > a->what + (slack))                                       \
	n += snprintf(buf + n, cap - (size_t)n, #what " %ld, were %ld; ",      \
		      b->what, a->what)
	SAY(threads, 0);
	SAY(fds, 0);
	if (plain) {
		SAY(maps, 2); // an arena more of the C library
		SAY(heap, 0);
		SAY(rss, 1 << 20); // fragments
	}
#undef SAY
}

// ---- a round ----

struct config {
	const char *executor, *pager, *more;
};

#ifdef FAKE_CUDA
static const struct config configs[] = {
	{"cuda_ep:eager", "pager_sync", NULL},
	{"cuda_ep:captured", "pager_sync", NULL},
	{"cuda_ep:eager", "pager_async", NULL},
	{"cuda_ep:captured", "pager_async", NULL},
};
#else
static const struct config configs[] = {
	{"cpu_ref:eager", "pager_sync", "module.cpu_ref.threads=2"},
	{"cpu_ref:captured", "pager_sync", "module.cpu_ref.threads=1"},
	{"cpu_ref:eager", "pager_async", "module.cpu_ref.schedule=threads"},
	{"cpu_ref:captured", "pager_async", "module.cpu_ref.threads=2"},
	{"cpu_ref:captured", "pager_async", "runtime.check=order"},
};
#endif
#define CONFIGS (sizeof(configs) / sizeof(configs[0]))

// The fake driver only counts kernels here: as host code they take seconds, and
// leave nothing behind.
static void setup(void)
{
#ifdef FAKE_CUDA
	void *lib = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
	void *sym = lib ? dlsym(lib, "fake_run_kernels") : NULL;
	void (*run_kernels)(int on);

	ck_assert_msg(sym != NULL, "%s", dlerror());
	memcpy(&run_kernels, &sym, sizeof(sym));
	run_kernels(0);
#endif
}

static void set_up(struct sim_run *r, const struct config *c)
{
	int n = (int)strcspn(c->executor, ":");

	memset(r, 0, sizeof(*r));
	r->err = (struct genai_error)GENAI_ERROR_INIT;
	sim_set(r, "runtime.module_path=%s", GENAI_TESTMODULES);
	sim_set(r, "runtime.executor=%s", c->executor);
	sim_set(r, "runtime.stream=%.*s", n, c->executor);
	sim_set(r, "runtime.barrier=%.*s", n, c->executor);
	sim_set(r, "runtime.pager=%s", c->pager);
	sim_set(r, "runtime.context=32");
	sim_set(r, "runtime.weight_budget=20%%");
	sim_set(r, "module.%s.page_bytes=4KiB", c->pager);
#ifdef FAKE_CUDA
	sim_set(r, "module.cuda_ep.driver=%s", FAKE_CUDA);
#endif
	if (c->more)
		sim_set(r, "%s", c->more);
}

static void once(uint32_t i)
{
	static const int64_t prompt[] = {1, 5, 9};
	static struct sim_run r;
	int64_t ids[3];
	int32_t rc;

	set_up(&r, &configs[i % CONFIGS]);
	rc = sim_open(&r, "qwen3-cpu-int4");
	if (!rc)
		rc = genai_session_append(r.session, prompt, 3, &r.err);
	// the third step replays what the second recorded
	if (!rc)
		rc = sim_next(&r, ids, 3, 1);
	ck_assert_msg(!rc, "%s", r.err.text);
	ck_assert_uint_gt(sim_stats(&r).ring_bytes, 0);
	sim_close(&r);
	ck_assert_str_eq(r.log, "");
}

START_TEST(a_thousand_times)
{
	struct census before, after;
	char text[512];

	for (uint32_t i = 0; i < WARM_UP; i++)
		once(i);
	before = count();
	for (uint32_t i = 0; i < ROUNDS; i++)
		once(i);
	after = count();
	grown(&before, &after, text, sizeof(text));
	ck_assert_msg(!text[0], "after %d rounds: %s", ROUNDS, text);
}
END_TEST

// ---- does the census see it? ----

static void *for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void leak(int what)
{
	pthread_t t;

	switch (what) {
	case 0:
		ck_assert_int_ge(dup(0), 0);
		break;
	case 1:
		ck_assert_int_eq(pthread_create(&t, NULL, for_ever, NULL), 0);
		break;
	case 2:
		ck_assert_ptr_ne(mmap(NULL, 4096, PROT_READ,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0),
				 MAP_FAILED);
		break;
	default: {
		// kept out of the optimiser's reach
		char *volatile p = malloc(100);

		memset(p, 1, 100);
	}
	}
}

static const char *const seen[] = {"fds", "threads", "maps", "heap"};

// A leak in each of 60 rounds; of the first two kinds one is enough.
START_TEST(leaks_are_seen)
{
	struct census before, after;
	char text[512];

	for (uint32_t i = 0; i < WARM_UP; i++)
		once(i);
	before = count();
	for (uint32_t i = 0; i < 60; i++) {
		once(i);
		if (_i > 1 || !i)
			leak(_i);
	}
	after = count();
	grown(&before, &after, text, sizeof(text));
	ck_assert_msg(strstr(text, seen[_i]) != NULL, "'%s' lacks %s", text,
		      seen[_i]);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("reopen");
	TCase *t = tcase_create("all");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_set_timeout(t, 300);
	tcase_add_test(t, a_thousand_times);
	tcase_add_loop_test(t, leaks_are_seen, 0, GENAI_BUILD & 0xff ? 2 : 4);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
