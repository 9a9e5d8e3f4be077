// check_layers.c - [runtime] stream = LAYER > MODULE, and the example
// reader_pager on units that are signalled: reads that fail, that take their
// time, and a thread that dies.
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/runtime.h"
#include "tests/unit/harness.h"

#define PAGES 12
#define PAGE UINT64_C(4096)

static struct genai_error err;

// ---- what the modules' pread becomes ----

enum { READ, FAIL, STAND, DIE };
static atomic_int reading = READ, inside, most_inside, memory = -1;

// Programs come before libraries: this is the one that modules find.
ssize_t pread64(int fd, void *to, size_t bytes, off64_t at);
__attribute__((visibility("default"))) ssize_t pread64(int fd, void *to,
						       size_t bytes, off64_t at)
{
	struct timespec ms = {0, 1000000};
	int now;

	if (fd != atomic_load(&memory))
		return pread(fd, to, bytes, at);
	now = atomic_fetch_add(&inside, 1) + 1;
	if (now > atomic_load(&most_inside))
		atomic_store(&most_inside, now);
	nanosleep(&ms, NULL);
	while (atomic_load(&reading) == STAND)
		nanosleep(&ms, NULL);
	atomic_fetch_sub(&inside, 1);
	if (atomic_load(&reading) == DIE)
		pthread_exit(NULL);
	if (atomic_load(&reading) == FAIL) {
		errno = EIO;
		return -1;
	}
	memset(to, (int)(at / (off64_t)PAGE) + 1, bytes);
	return (ssize_t)bytes;
}

// ---- a runtime ----

static const char *const common[] = {
	"module.reader_pager.path=" GENAI_TESTFIXTURES "/reader_pager.so",
	"module.tracer.path=" GENAI_TESTFIXTURES "/tracer.so",
	"module.cpu_ref.path=" GENAI_TESTMODULES "/cpu_ref.so",
	"module.pager_sync.path=" GENAI_TESTMODULES "/pager_sync.so",
	"runtime.pager=reader_pager",
};
#define N_COMMON (sizeof(common) / sizeof(common[0]))

static uint32_t logged;

static void count_lines(void *ctx, int32_t level, const char *text)
{
	(void)ctx;
	(void)text;
	logged += level <= GENAI_LOG_WARN;
}

static int32_t open_with(const char *a, const char *b,
			 struct genai_runtime **out)
{
	const char *sets[N_COMMON + 2];
	struct genai_runtime_options o = {.size = sizeof(o),
					  .sets = sets,
					  .n_sets = N_COMMON,
					  .log = count_lines};

	memcpy(sets, common, sizeof(common));
	if (a)
		sets[o.n_sets++] = a;
	if (b)
		sets[o.n_sets++] = b;
	logged = 0;
	err = (struct genai_error)GENAI_ERROR_INIT;
	*out = NULL;
	return genai_open(&o, out, &err);
}

#define OK(call)                                                               \
	do {                                                                   \
		int32_t rc_ = (call);                                          \
		ck_assert_msg(!rc_, "%s: %d: %s", #call, rc_, err.text);       \
	} while (0)

// ---- layers ----

static void refuse(const char *set, int32_t code, const char *text)
{
	struct genai_runtime *rt;
	int32_t rc = open_with(set, NULL, &rt);

	ck_assert_msg(rc == code && strstr(err.text, text), "%s: %d: %s", set,
		      rc, err.text);
}

START_TEST(stacks)
{
	static const char *const good[] = {
		"runtime.stream=tracer > cpu_ref",
		"runtime.stream=tracer>cpu_ref",
		"runtime.stream=tracer:tracer\t> cpu_ref:cpu_ref"};
	struct genai_runtime *rt;

	for (int i = 0; i < 3; i++) {
		OK(open_with(good[i], NULL, &rt));
		ck_assert_str_eq(rt->stream.label, strchr(good[i], '=') + 1);
		ck_assert_str_eq(rt->device.caps.device_kind, "sim");
		genai_close(rt);
		ck_assert_uint_eq(logged, 0);
	}
	refuse("runtime.stream=tracer", GENAI_E_CONFIG,
	       "module tracer has no genai.stream; it has genai.stream.layer");
	refuse("runtime.stream=cpu_ref > tracer", GENAI_E_CONFIG,
	       "module tracer has no genai.stream; it has");
	refuse("runtime.stream=cpu_ref > cpu_ref", GENAI_E_CONFIG,
	       "module cpu_ref has no genai.stream.layer");
	refuse("runtime.stream=tracer > tracer > cpu_ref", GENAI_E_CONFIG,
	       "has tracer twice");
	refuse("runtime.stream=tracer > ", GENAI_E_CONFIG,
	       "expected MODULE or MODULE:NAME");
	refuse("runtime.stream= > cpu_ref", GENAI_E_CONFIG,
	       "expected MODULE or MODULE:NAME");
	refuse("runtime.stream=tracer >> cpu_ref", GENAI_E_CONFIG,
	       "expected MODULE or MODULE:NAME");
	refuse("runtime.stream=tracer:no > cpu_ref", GENAI_E_CONFIG,
	       "no genai.stream.layer named no");
	refuse("runtime.stream=a123456789012345678901234567890 > "
	       "b123456789012345678901234567890 > cpu_ref",
	       GENAI_E_CONFIG, "is longer than 63 characters");
	refuse("runtime.barrier=tracer", GENAI_E_CONFIG,
	       "the barrier has to be of the module that drives the device");
}
END_TEST

static uint64_t counted;

static void find(void *ctx, const char *name, int64_t value)
{
	if (!strcmp(name, ctx))
		counted = (uint64_t)value;
}

// What the layer leaves out is the device's; what it has, it sees.
START_TEST(passes)
{
	struct genai_mem m = {.size = sizeof(m)};
	struct genai_stream_stats st = {.size = sizeof(st)};
	struct genai_stream *s;
	struct genai_ticket t = {.size = sizeof(t)};
	struct genai_runtime *rt;
	struct genai_device *d;

	OK(open_with("runtime.stream=tracer > cpu_ref", "runtime.check=order",
		     &rt));
	d = &rt->device;
	ck_assert_uint_eq(rt->n_layers, 1);
	OK(d->stream.ops->alloc(d, GENAI_MEM_DEVICE, 4096, "x", &m, &err));
	OK(d->stream.ops->create(d, "s", &s, &err));
	OK(d->stream.ops->copy(d, s, m.range.addr, m.range.addr + 64, 64,
			       GENAI_COPY_D2D, &err));
	OK(genai_device_drain(d, &t, &err));
	OK(d->stream.ops->stats(d, &st, &err));
	ck_assert_uint_eq(st.d2d_bytes, 64);
	OK(genai_get_counters(rt, find, "tracer.copy_bytes", &err));
	ck_assert_uint_eq(counted, 64);
	OK(d->stream.ops->destroy(d, s, &err));
	OK(d->stream.ops->free(d, m.range.addr, &t, &err));
	genai_close(rt);
	ck_assert_uint_eq(logged, 0);
}
END_TEST

// ---- the reader ----

struct pager {
	struct genai_runtime *rt;
	struct genai_device *d;
	struct genai_pager *p;
	struct genai_stream *s;
	struct genai_mem down;
	char src[PAGES][PAGE];
	int fd;
};

static void pager_open(struct pager *b, const char *schedule)
{
	struct genai_sweep_visit sweep[PAGES] = {0};
	struct genai_pager_report r = {.size = sizeof(r)};

	atomic_store(&reading, READ);
	OK(open_with(schedule, NULL, &b->rt));
	b->d = &b->rt->device;
	b->fd = memfd_create("pages", MFD_CLOEXEC);
	atomic_store(&memory, b->fd);
	OK(b->rt->pager_ops.open(genai_module_self(b->rt->pager.module),
				 &b->d->stream, &b->d->barrier, &b->p, &err));
	for (uint32_t i = 0; i < PAGES; i++) {
		struct genai_extent e = {.size = sizeof(e),
					 .file = (uint32_t)b->fd,
					 .src = b->src[i],
					 .src_bytes = PAGE,
					 .bytes = PAGE,
					 .file_offset = i * PAGE};

		memset(b->src[i], (int)i + 1, PAGE);
		OK(b->rt->pager_ops.add(b->p, PAGE, 0, &e, 1, &err));
		sweep[i] = (struct genai_sweep_visit){
			.size = sizeof(sweep[0]), .page = i, .bytes = PAGE};
	}
	OK(b->rt->pager_ops.seal(b->p, sweep, PAGES, 4 * PAGE, &r, &err));
	ck_assert_uint_eq(r.n_streamed, PAGES);
	OK(b->d->stream.ops->create(b->d, "compute", &b->s, &err));
	b->down.size = sizeof(b->down);
	OK(b->d->stream.ops->alloc(b->d, GENAI_MEM_HOST_PINNED, PAGES * PAGE,
				   "x", &b->down, &err));
}

// A step whose kernels copy what they find; the point after it.
static struct genai_point step(struct pager *b)
{
	const struct genai_stream_ops *st = b->d->stream.ops;
	const struct genai_pager_ops *p = &b->rt->pager_ops;
	struct genai_point tail, done = {0};

	OK(p->step_begin(b->p, b->s, 0, &err));
	for (uint32_t i = 0; i < PAGES; i++) {
		struct genai_place at = {.size = sizeof(at)};
		struct genai_point ready;

		OK(p->acquire(b->p, i, b->s, &at, &ready, &err));
		OK(st->wait(b->d, b->s, ready, &err));
		OK(st->copy(b->d, b->s, (uintptr_t)b->down.host + i * PAGE,
			    at.addr, PAGE, GENAI_COPY_D2H, &err));
		OK(st->mark(b->d, b->s, &done, &err));
		OK(p->release(b->p, i, done, &err));
	}
	OK(p->step_end(b->p, b->s, &tail, &err));
	return done;
}

static uint64_t in_ms(uint64_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec +
	       ms * 1000000u;
}

static void right(struct pager *b)
{
	struct genai_point done = step(b);

	OK(b->d->barrier.ops->host_read(b->d, &done, 1, in_ms(20000), &err));
	ck_assert_int_eq(memcmp(b->down.host, b->src, PAGES * PAGE), 0);
}

static void pager_close(struct pager *b)
{
	struct genai_ticket t = {.size = sizeof(t)};

	OK(genai_device_drain(b->d, &t, &err));
	OK(b->rt->pager_ops.close(b->p, &t, &err));
	OK(b->d->stream.ops->destroy(b->d, b->s, &err));
	OK(b->d->stream.ops->free(b->d, b->down.range.addr, &t, &err));
	genai_close(b->rt);
	close(b->fd);
	ck_assert_uint_eq(logged, 0);
}

static const char *const schedules[] = {
	"module.cpu_ref.schedule=inorder", "module.cpu_ref.schedule=late",
	"module.cpu_ref.schedule=early", "module.cpu_ref.schedule=random:7",
	"module.cpu_ref.schedule=threads"};

START_TEST(reads)
{
	struct pager *b = calloc(1, sizeof(*b));

	ck_assert_ptr_nonnull(b);
	atomic_store(&most_inside, 0);
	pager_open(b, schedules[_i]);
	for (int i = 0; i < 3; i++)
		right(b);
	// two pages are on their way at once
	ck_assert_int_eq(atomic_load(&most_inside), 2);
	pager_close(b);
	free(b);
}
END_TEST

// The step fails with what the read said; then all is well again.
START_TEST(read_fails)
{
	struct pager *b = calloc(1, sizeof(*b));
	struct genai_ticket t = {.size = sizeof(t)};
	struct genai_point done;
	int32_t rc;

	ck_assert_ptr_nonnull(b);
	pager_open(b, schedules[_i]);
	right(b);
	atomic_store(&reading, FAIL);
	done = step(b);
	rc = b->d->barrier.ops->host_read(b->d, &done, 1, in_ms(20000), &err);
	ck_assert_msg(rc == GENAI_E_IO && strstr(err.text, "errno 5") &&
			      !strcmp(err.module, "reader_pager"),
		      "%d: %s", rc, err.text);
	OK(genai_device_drain(b->d, &t, &err));
	atomic_store(&reading, READ);
	OK(b->d->stream.ops->reset(b->d, &t, &err));
	OK(b->rt->pager_ops.reset(b->p, &t, &err));
	right(b);
	pager_close(b);
	free(b);
}
END_TEST

// A step is enqueued though no page is there; nobody closes what is read into.
START_TEST(close_in_flight)
{
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	struct pager *b = calloc(1, sizeof(*b));
	struct genai_ticket t = {.size = sizeof(t)};
	int32_t rc;

	ck_assert_ptr_nonnull(b);
	pager_open(b, schedules[_i]);
	OK(genai_device_drain(b->d, &t, &err));
	atomic_store(&reading, STAND);
	(void)step(b);
	rc = b->d->barrier.ops->drain(b->d, all, in_ms(50),
				      &(struct genai_ticket){.size = sizeof(t)},
				      &err);
	ck_assert_int_eq(rc, GENAI_E_DEADLINE);
	// the ticket of before is no good any more
	ck_assert_int_eq(b->rt->pager_ops.close(b->p, &t, &err), GENAI_E_STATE);
	ck_assert_int_eq(b->rt->pager_ops.close(b->p, NULL, &err),
			 GENAI_E_STATE);
	atomic_store(&reading, READ);
	pager_close(b);
	free(b);
}
END_TEST

// Nobody is left to signal: that is an error in time, not a hang.
START_TEST(thread_dies)
{
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	struct pager *b = calloc(1, sizeof(*b));
	struct genai_ticket t = {.size = sizeof(t)};
	struct genai_point done;

	ck_assert_ptr_nonnull(b);
	pager_open(b, schedules[_i]);
	atomic_store(&reading, DIE);
	done = step(b);
	ck_assert_int_eq(
		b->d->barrier.ops->host_read(b->d, &done, 1, in_ms(100), &err),
		GENAI_E_DEADLINE);
	ck_assert_int_eq(
		b->d->barrier.ops->drain(b->d, all, in_ms(100), &t, &err),
		GENAI_E_DEADLINE);
	_exit(0); // with all that it holds: nothing of it can be given back
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("layers");
	TCase *t = tcase_create("layers");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, stacks);
	tcase_add_test(t, passes);
	tcase_add_loop_test(t, reads, 0, 5);
	tcase_add_loop_test(t, read_fails, 0, 5);
	tcase_add_loop_test(t, close_in_flight, 0, 5);
	tcase_add_loop_test(t, thread_dies, 0, 5);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
