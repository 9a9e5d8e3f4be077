// pool.c - threads that share out the parts of one loop.
// A loop is cut into some chunks a thread; each thread has a range of them,
// works through its own and then helps with the others', so a thread that the
// machine holds up costs one chunk and not its whole share.  A range is one
// word: the loop's number, the next chunk, the end.  Taking a chunk is a
// compare-and-swap of that word; when it succeeds, the loop that the number
// names is not finished, so what was read about it is still right.
//
// Workers wait for the next loop's number: they spin for some tens of
// microseconds, then sleep.  One loop runs at a time; a second caller, or a
// loop inside a loop, runs inline.
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "modules/cpu_ref/cpu_ref.h"

#define SPIN_NS 50000
#define LINE 64
#define CHUNKS 8u	  // a thread
#define MAX_THREADS 4096u // chunks fit 16 bits

struct worker {
	_Alignas(LINE) _Atomic uint64_t range; // number:32 next:16 end:16
	uint32_t index;
	struct cref_pool *pool;
	void *thread;
};

struct cref_pool {
	_Alignas(LINE) _Atomic uint32_t number; // of the loop
	_Atomic uint32_t sleepers;
	_Alignas(LINE) _Atomic uint32_t left; // chunks not done
	_Atomic uint32_t caller_asleep;
	_Alignas(LINE) atomic_flag busy;
	// the loop; read by late workers while the next one is set up
	_Atomic(cref_part_fn) fn;
	_Atomic(void *) ctx;
	_Atomic uint64_t count, step; // step: of a chunk
	_Atomic uint32_t parts;
	_Atomic bool stop;
	uint32_t n; // threads with the caller
	void (*join)(void *host, void *thread);
	void *host;
	struct worker *workers; // [n]; 0 is the caller
};

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void futex_wake(_Atomic uint32_t *word, uint32_t count)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

// Wait until *word is (equal) or is not (!equal) the value; returns *word.  The
// other side changes *word first and reads *asleep second.
static uint32_t await(_Atomic uint32_t *word, _Atomic uint32_t *asleep,
		      uint32_t value, bool equal)
{
	uint64_t until = 0;
	uint32_t v;

	for (uint32_t i = 1;; i++) {
		v = atomic_load_explicit(word, memory_order_acquire);
		if ((v == value) == equal)
			return v;
		relax();
		if (i % 64)
			continue;
		if (!until)
			until = now_ns() + SPIN_NS;
		else if (now_ns() >= until)
			break;
	}
	atomic_fetch_add(asleep, 1);
	while (((v = atomic_load(word)) == value) != equal)
		syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, v, NULL, NULL, 0);
	atomic_fetch_sub(asleep, 1);
	return v;
}

// Take chunks of a range while they are the loop's.  False: the loop is over.
static bool drain_range(struct cref_pool *p, struct worker *w, uint32_t number)
{
	uint64_t r = atomic_load_explicit(&w->range, memory_order_acquire);

	for (;;) {
		const uint64_t next = r >> 16 & 0xffff, end = r & 0xffff;
		uint64_t step, count, at;
		cref_part_fn fn;
		void *ctx;

		if (r >> 32 != number)
			return false;
		if (next >= end)
			return true;
		fn = atomic_load_explicit(&p->fn, memory_order_relaxed);
		ctx = atomic_load_explicit(&p->ctx, memory_order_relaxed);
		step = atomic_load_explicit(&p->step, memory_order_relaxed);
		count = atomic_load_explicit(&p->count, memory_order_relaxed);
		if (!atomic_compare_exchange_weak_explicit(
			    &w->range, &r, r + 0x10000, memory_order_acq_rel,
			    memory_order_acquire))
			continue;
		at = next * step;
		fn(ctx, at, count - at < step ? count : at + step);
		if (atomic_fetch_sub(&p->left, 1) == 1 &&
		    atomic_load(&p->caller_asleep))
			futex_wake(&p->left, 1);
		r = atomic_load_explicit(&w->range, memory_order_acquire);
	}
}

// The own range first, then the others'.
static void help(struct cref_pool *p, uint32_t own, uint32_t number)
{
	const uint32_t parts =
		atomic_load_explicit(&p->parts, memory_order_relaxed);

	for (uint32_t i = 0; i < parts; i++)
		if (!drain_range(p, &p->workers[(own + i) % parts], number))
			return;
}

static void work(void *arg)
{
	struct worker *w = arg;
	struct cref_pool *p = w->pool;
	uint32_t number = 0;

	for (;;) {
		number = await(&p->number, &p->sleepers, number, false);
		if (atomic_load(&p->stop))
			return;
		help(p, w->index, number);
	}
}

// Publish what was set up as the next loop.
static uint32_t next_loop(struct cref_pool *p, uint32_t wake)
{
	const uint32_t number = atomic_fetch_add(&p->number, 1) + 1;

	if (wake && atomic_load(&p->sleepers))
		futex_wake(&p->number, wake);
	return number;
}

static void share_out(struct cref_pool *p, uint64_t chunks)
{
	const uint64_t number =
		atomic_load_explicit(&p->number, memory_order_relaxed) + 1u;
	const uint64_t parts = chunks < p->n ? chunks : p->n;

	atomic_store_explicit(&p->parts, (uint32_t)parts, memory_order_relaxed);
	atomic_store_explicit(&p->left, (uint32_t)chunks, memory_order_relaxed);
	for (uint64_t i = 0; i < parts; i++)
		atomic_store_explicit(&p->workers[i].range,
				      (number & 0xffffffff) << 32 |
					      chunks * i / parts << 16 |
					      chunks * (i + 1) / parts,
				      memory_order_release);
}

void cref_pool_run(struct cref_pool *p, cref_part_fn fn, void *ctx,
		   uint64_t count, uint64_t grain)
{
	uint64_t grains, each, step;

	if (!count)
		return;
	grain = grain ? grain : 1;
	grains = (count - 1) / grain + 1;
	if (!p || p->n == 1 || grains == 1 ||
	    atomic_flag_test_and_set_explicit(&p->busy, memory_order_acquire)) {
		fn(ctx, 0, count);
		return;
	}
	each = (grains - 1) / (p->n * CHUNKS) + 1;
	step = each * grain;
	atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
	atomic_store_explicit(&p->ctx, ctx, memory_order_relaxed);
	atomic_store_explicit(&p->count, count, memory_order_relaxed);
	atomic_store_explicit(&p->step, step, memory_order_relaxed);
	share_out(p, (grains - 1) / each + 1);
	help(p, 0, next_loop(p, p->n - 1));
	await(&p->left, &p->caller_asleep, 0, true);
	atomic_flag_clear_explicit(&p->busy, memory_order_release);
}

uint32_t cref_pool_threads(const struct cref_pool *p)
{
	return p ? p->n : 1;
}

void cref_pool_destroy(struct cref_pool *p)
{
	if (!p)
		return;
	atomic_store(&p->stop, true);
	next_loop(p, p->n);
	for (uint32_t i = 1; i < p->n; i++)
		p->join(p->host, p->workers[i].thread);
	free(p->workers);
	free(p);
}

struct cref_pool *cref_pool_create(
	uint32_t threads,
	int32_t (*create)(void *host, const char *name, void (*fn)(void *),
			  void *arg, void **out_thread),
	void (*join)(void *host, void *thread), void *host)
{
	struct cref_pool *p = aligned_alloc(LINE, sizeof(*p));

	if (!p)
		return NULL;
	memset(p, 0, sizeof(*p));
	atomic_flag_clear(&p->busy);
	threads = threads < MAX_THREADS ? threads : MAX_THREADS;
	threads = threads ? threads : 1;
	p->n = 1;
	p->join = join;
	p->host = host;
	p->workers = aligned_alloc(LINE, threads * sizeof(*p->workers));
	if (!p->workers)
		goto fail;
	memset(p->workers, 0, threads * sizeof(*p->workers));
	for (uint32_t i = 1; i < threads; i++) {
		struct worker *w = &p->workers[i];

		w->index = i;
		w->pool = p;
		if (create(host, "cref_pool", work, w, &w->thread))
			goto fail;
		p->n = i + 1;
	}
	return p;
fail:
	cref_pool_destroy(p);
	return NULL;
}
