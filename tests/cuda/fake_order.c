// fake_order.c - is every access of a kernel or a copy ordered?
//
// Streams, branches of graphs and the host are lines.  A unit of work stands on
// a line at a number; its clock tells, per line, the units that are done before
// it begins: in-order queues, events waited for, edges of a graph, and what the
// host had been told was done when it enqueued.  Nothing else orders: not the
// order in which the units really ran, not the order of recording.
//
// Every byte of the driver's memory remembers its last write and the reads
// since.  Two uses of a byte, one a write, of which the later does not have the
// earlier in its clock, are a race: told on stderr, counted, and the device is
// dead from then on (CUDA_ERROR_ASSERT, whose text is the race).  Memory given
// back counts as written by the host and may not be used again.
//
// What kernels touch is told by the compiler's instrumentation for threads
// (-fsanitize=thread), whose functions are at the end of this file.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/fake_impl.h"

#define READERS 32 // streams and branches that may read at once
#define EMU_STACKS_BYTES ((size_t)64 << 20) // as in emu.cpp

unsigned int emu_bytes(const void *kernel);
const char *emu_begin(void);

struct span {
	size_t from;
	struct use write, reads[READERS];
	uint32_t n_reads;
	struct span *next;
};

struct clock fake_host;
static struct {
	uint32_t at[FAKE_LINES];
	bool taken[FAKE_LINES];
	uint32_t next;
} lines;
static const struct op *running; // the kernel
static size_t params_bytes;
static const char *stacks; // of its threads
static struct block *touched, *last_hit, *other_hit;
static uint64_t races;
static char race[512];

uint64_t fake_races(void)
{
	return races;
}

const char *fake_race(void)
{
	return race;
}

// ---- clocks ----

uint32_t fake_line(void)
{
	// line 0 is the host's; a line just left is taken last
	for (uint32_t i = 0; i < FAKE_LINES; i++) {
		uint32_t l = (lines.next + i) % (FAKE_LINES - 1) + 1;

		if (lines.taken[l])
			continue;
		lines.taken[l] = true;
		lines.next = l;
		return l;
	}
	abort();
}

void fake_line_free(uint32_t line)
{
	lines.taken[line] = false;
}

uint32_t fake_tick(uint32_t line, uint32_t n)
{
	return lines.at[line] += n;
}

void fake_join(struct clock *to, const struct clock *from)
{
	for (uint32_t i = 0; i < FAKE_LINES; i++)
		if (from->at[i] > to->at[i])
			to->at[i] = from->at[i];
}

bool fake_covers(const struct clock *c, const struct clock *other)
{
	for (uint32_t i = 0; i < FAKE_LINES; i++)
		if (other->at[i] > c->at[i])
			return false;
	return true;
}

// ---- reports ----

static void report(void)
{
	if (!races++)
		fprintf(stderr, "fake driver: %s\n", race);
	fake_die(CUDA_ERROR_ASSERT);
}

static const char *kind_of(const struct block *b)
{
	static const char *const kinds[] = {"device memory", "pinned memory",
					    "registered memory",
					    "reserved addresses", "memory"};

	return kinds[b->kind];
}

static void clash(const struct use *now, bool writes, const struct use *then,
		  bool wrote, const struct block *b, size_t from, size_t bytes)
{
	if (!races)
		snprintf(race, sizeof(race),
			 "race: %s (line %u, unit %u) %s %zu bytes at %zu of "
			 "%zu of %s that %s (line %u, unit %u) %s, and nothing "
			 "orders them",
			 now->what, now->line, now->at,
			 writes ? "writes" : "reads", bytes, from, b->bytes,
			 kind_of(b), then->what, then->line, then->at,
			 wrote ? "wrote" : "reads");
	report();
}

void fake_order_need(const struct clock *done, const char *what)
{
	if (fake_covers(&fake_host, done) || fake_dead())
		return;
	if (!races)
		snprintf(race, sizeof(race),
			 "race: %s while work of it may be under way", what);
	report();
}

// ---- what every byte remembers ----

static struct span *span_new(size_t from, struct span *next)
{
	struct span *s = calloc(1, sizeof(*s));

	s->from = from;
	s->next = next;
	return s;
}

// The span that begins at from, at or behind s.
static struct span *span_at(struct span *s, size_t from)
{
	struct span *n;

	while (s->next && s->next->from <= from)
		s = s->next;
	if (s->from == from)
		return s;
	n = span_new(from, s->next);
	n->write = s->write;
	memcpy(n->reads, s->reads, sizeof(n->reads));
	n->n_reads = s->n_reads;
	s->next = n;
	return n;
}

static bool is_same(const struct span *a, const struct span *b)
{
	return !memcmp(&a->write, &b->write, sizeof(a->write)) &&
	       a->n_reads == b->n_reads &&
	       !memcmp(a->reads, b->reads, a->n_reads * sizeof(a->reads[0]));
}

static bool is_before(const struct use *u, const struct clock *c)
{
	return !u->what || u->at <= c->at[u->line];
}

static bool is_self(const struct use *a, const struct use *b)
{
	return a->line == b->line && a->at == b->at;
}

static void add_read(struct span *s, const struct use *u, const struct clock *c)
{
	uint32_t n = 0;

	// who was before us is found through us
	for (uint32_t i = 0; i < s->n_reads; i++)
		if (!is_before(&s->reads[i], c))
			s->reads[n++] = s->reads[i];
	if (n == READERS)
		abort();
	s->reads[n++] = *u;
	s->n_reads = n;
}

// One use of [from, to) in the block; returns a span to go on from.
static struct span *use_range(struct block *b, struct span *s, size_t from,
			      size_t to, const struct use *u,
			      const struct clock *c, bool writes)
{
	struct span *first = span_at(s, from), *end = NULL;

	if (to < b->bytes)
		end = span_at(first, to);
	for (s = first; s != end; s = s->next) {
		size_t stop = s->next ? s->next->from : b->bytes;

		if (!is_before(&s->write, c) && !is_self(&s->write, u))
			clash(u, writes, &s->write, true, b, s->from,
			      stop - s->from);
		for (uint32_t i = 0; writes && i < s->n_reads; i++)
			if (!is_before(&s->reads[i], c) &&
			    !is_self(&s->reads[i], u))
				clash(u, true, &s->reads[i], false, b, s->from,
				      stop - s->from);
		if (writes) {
			s->write = *u;
			s->n_reads = 0;
		} else {
			add_read(s, u, c);
		}
	}
	for (s = first; s->next != end && s->next;) {
		struct span *n = s->next;

		if (!is_same(s, n)) {
			s = n;
			continue;
		}
		s->next = n->next;
		free(n);
	}
	return first;
}

static void use_dead(const struct block *b, const struct use *u)
{
	if (!races)
		snprintf(race, sizeof(race),
			 "race: %s (line %u, unit %u) uses %zu bytes of %s "
			 "that were given back",
			 u->what, u->line, u->at, b->bytes, kind_of(b));
	report();
}

// A copy of ordinary memory is made by the driver in pieces, whose order to
// other work nobody promises.
static void use_unknown(const struct use *u)
{
	if (!races)
		snprintf(race, sizeof(race),
			 "race: %s (line %u, unit %u) of host memory that is "
			 "neither pinned nor registered",
			 u->what, u->line, u->at);
	report();
}

void fake_access(const struct op *o, const void *p, size_t bytes, bool writes)
{
	struct use u = {o->what, o->line, o->at};
	struct block *b = fake_block_of(p);
	size_t from;

	if (!bytes)
		return;
	if (!b) {
		use_unknown(&u);
		return;
	}
	from = (size_t)((const char *)p - b->p);
	if (b->dead)
		use_dead(b, &u);
	if (bytes > b->bytes - from)
		bytes = b->bytes - from;
	if (!b->spans)
		b->spans = span_new(0, NULL);
	use_range(b, b->spans, from, from + bytes, &u, o->clock, writes);
}

void fake_order_gone(struct block *b, size_t from, size_t bytes)
{
	struct use u = {"the host, which gives it back,", 0, 0};

	if (b->spans && !fake_dead())
		use_range(b, b->spans, from, from + bytes, &u, &fake_host,
			  true);
}

void fake_order_forget(struct block *b)
{
	while (b->spans) {
		struct span *n = b->spans->next;

		free(b->spans);
		b->spans = n;
	}
	for (int i = 0; i < 4; i++)
		free(b->bits[i]);
	last_hit = other_hit = NULL;
}

// ---- kernels ----

// One bit a byte; later a walk over the runs of ones.
static void mark(struct block *b, size_t from, size_t bytes, int set)
{
	uint64_t *w = b->bits[set];
	size_t to;

	if (!w)
		w = b->bits[set] = calloc(b->bytes / 64 + 2, sizeof(*w));
	if (!b->is_touched) {
		b->is_touched = true;
		b->touched = touched;
		touched = b;
		for (int i = 0; i < 4; i++) {
			b->low[i] = b->bytes;
			b->high[i] = 0;
		}
	}
	to = from + bytes < b->bytes ? from + bytes : b->bytes;
	if (from < b->low[set])
		b->low[set] = from;
	if (to > b->high[set])
		b->high[set] = to;
	while (from < to) {
		size_t n = to - from, bit = from % 64;

		if (n > 64 - bit)
			n = 64 - bit;
		w[from / 64] |= (~UINT64_C(0) >> (64 - n)) << bit;
		from += n;
	}
}

static size_t run_end(const uint64_t *w, size_t i, size_t to, uint64_t what)
{
	while (i < to) {
		uint64_t x = (w[i / 64] ^ what) >> i % 64;

		if (x) {
			i += (size_t)__builtin_ctzll(x);
			return i < to ? i : to;
		}
		i = (i / 64 + 1) * 64;
	}
	return to;
}

static void use_bits(struct block *b, int set, const struct use *u,
		     const struct clock *c)
{
	uint64_t *w = b->bits[set];
	struct span *s;
	size_t at, end, to = b->high[set];

	if (!to)
		return;
	if (!b->spans)
		b->spans = span_new(0, NULL);
	s = b->spans;
	for (at = b->low[set]; at < to; at = end) {
		at = run_end(w, at, to, 0);
		end = run_end(w, at, to, ~UINT64_C(0));
		if (at < end)
			s = use_range(b, s, at, end, u, c, set & 1);
	}
	at = b->low[set] / 64;
	memset(w + at, 0, (to / 64 + 1 - at) * sizeof(*w));
}

void fake_kernel_begin(const struct op *o)
{
	running = o;
	params_bytes = emu_bytes(o->kernel);
	stacks = emu_begin();
	touched = NULL;
}

void fake_kernel_end(const struct op *o)
{
	struct use u = {o->what, o->line, o->at};

	running = NULL;
	for (struct block *b = touched; b; b = b->touched) {
		b->is_touched = false;
		if (b->dead)
			use_dead(b, &u);
		for (int set = 0; set < 4; set++)
			use_bits(b, set, &u, set < 2 ? o->before : o->clock);
	}
}

// ---- what the instrumentation calls ----

extern bool emu_is_early;		  // before the kernel's wait
extern const char __ehdr_start[], _end[]; // this library, shared memory

// What belongs to nobody else, which most accesses are to.
static bool is_own(const char *p)
{
	return (size_t)(p - stacks) < EMU_STACKS_BYTES ||
	       (p >= __ehdr_start && p < _end) ||
	       (size_t)(p - (const char *)running->params) < params_bytes;
}

static void fake_touch(const char *p, size_t bytes, bool writes)
{
	struct block *b = last_hit;

	if (!running || is_own(p))
		return;
	if (!b || (size_t)(p - b->p) >= b->bytes) {
		last_hit = other_hit;
		other_hit = b;
		b = last_hit;
		if (!b || (size_t)(p - b->p) >= b->bytes)
			b = last_hit = fake_block_of(p);
	}
	if (b)
		mark(b, (size_t)(p - b->p), bytes,
		     (emu_is_early ? 0 : 2) + writes);
}

#define HOOK(ret, name, ...)                                                   \
	__attribute__((visibility("hidden"))) ret name(__VA_ARGS__);           \
	ret name(__VA_ARGS__)
#define HOOKS(n)                                                               \
	HOOK(void, __tsan_read##n, void *p)                                    \
	{                                                                      \
		fake_touch(p, n, false);                                       \
	}                                                                      \
	HOOK(void, __tsan_write##n, void *p)                                   \
	{                                                                      \
		fake_touch(p, n, true);                                        \
	}                                                                      \
	HOOK(void, __tsan_unaligned_read##n, void *p)                          \
	{                                                                      \
		fake_touch(p, n, false);                                       \
	}                                                                      \
	HOOK(void, __tsan_unaligned_write##n, void *p)                         \
	{                                                                      \
		fake_touch(p, n, true);                                        \
	}                                                                      \
	HOOK(void, __tsan_volatile_read##n, void *p)                           \
	{                                                                      \
		fake_touch(p, n, false);                                       \
	}                                                                      \
	HOOK(void, __tsan_volatile_write##n, void *p)                          \
	{                                                                      \
		fake_touch(p, n, true);                                        \
	}
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

HOOK(void, __tsan_read_range, void *p, unsigned long n)
{
	fake_touch(p, n, false);
}
HOOK(void, __tsan_write_range, void *p, unsigned long n)
{
	fake_touch(p, n, true);
}
HOOK(void *, __tsan_memcpy, void *to, const void *from, unsigned long n)
{
	fake_touch(from, n, false);
	fake_touch(to, n, true);
	return memcpy(to, from, n);
}
HOOK(void *, __tsan_memset, void *to, int v, unsigned long n)
{
	fake_touch(to, n, true);
	return memset(to, v, n);
}
// guards of static variables, which are not the driver's memory
HOOK(unsigned char, __tsan_atomic8_load, const volatile unsigned char *p, int o)
{
	(void)o;
	return *p;
}
HOOK(void, __tsan_vptr_update, void **p, void *v)
{
	(void)p;
	(void)v;
}
HOOK(void, __tsan_init, void)
{
}
HOOK(void, __tsan_func_entry, void *pc)
{
	(void)pc;
}
HOOK(void, __tsan_func_exit, void *pc)
{
	(void)pc;
}
