// suite_stream.c - copies, order, points, poison of a stream runtime.
#include "tests/conform/conform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB UINT64_C(1024)

static struct cf_rt r;

// ---- streams and copies ----

static int32_t count(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)mem;
	(void)err;
	atomic_fetch_add((atomic_int *)ctx, 1);
	return 0;
}

static void destroy_busy(void)
{
	char name[300];
	struct genai_stream *s;
	struct cf_gate g;

	cf_open(&r, 0, NULL);
	// a name is any text
	memset(name, 'n', sizeof(name));
	for (size_t n = 0; n < sizeof(name); n += 42) {
		name[n] = 0;
		s = cf_stream(&r, name);
		name[n] = 'n';
		cf_destroy(&r, s);
	}
	s = cf_stream(&r, "s");
	cf_gate_close(&r, s, &g);
	CF_FAILS(GENAI_E_BUSY, r.st->destroy(r.d, s, &cf_err));
	cf_gate_check(&g, "destroy");
	cf_gate_open(&g);
	cf_destroy(&r, s);
	for (int i = 0; i < 40; i++) {
		struct genai_stream *three[3];

		for (int k = 0; k < 3; k++)
			three[k] = cf_stream(&r, "many");
		for (int k = 0; k < 3; k++)
			CF_OK(r.st->destroy(r.d, three[k], &cf_err));
	}
	cf_close(&r);
}

static void copies(void)
{
	static const uint64_t odd[] = {3, 15, 17, 255, 1000, 100001};
	const uint32_t n_odd = sizeof(odd) / sizeof(odd[0]);
	struct genai_mem up, a, b, down;
	struct genai_stream *s;
	const uint64_t room = 1024 * KIB + 64;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	up = cf_pinned(&r, room);
	down = cf_pinned(&r, room);
	a = cf_alloc(&r, room);
	b = cf_alloc(&r, room);
	// every offset to 16, too
	// and every power of two, with one byte less and more
	for (uint32_t i = 0; i < n_odd + 3 * 21; i++) {
		uint64_t k = i - n_odd, at = i % 3, to = (i + 5) % 17;
		uint64_t n = i < n_odd ? odd[i] : (1u << k / 3) + k % 3 - 1;
		unsigned char *d = down.host;

		if (!n)
			continue;
		cf_pattern(up.host, n + 17, i);
		memset(d, 0xee, n + 17);
		cf_copy(&r, s, a.range.addr + at, (uintptr_t)up.host + i % 17,
			n, GENAI_COPY_H2D);
		cf_copy(&r, s, b.range.addr + to, a.range.addr + at, n,
			GENAI_COPY_D2D);
		cf_copy(&r, s, (uintptr_t)d + 1, b.range.addr + to, n,
			GENAI_COPY_D2H);
		CF_OK(r.d->raw.copy(r.d->raw_self, s, a.range.addr,
				    b.range.addr, 0, GENAI_COPY_D2D, &cf_err));
		cf_finish(&r, s);
		ck_assert_msg(!memcmp(d + 1, (char *)up.host + i % 17, n),
			      "%lu bytes came back wrong", (unsigned long)n);
		ck_assert_msg(d[0] == 0xee && d[n + 1] == 0xee,
			      "a copy of %lu bytes touched its neighbours",
			      (unsigned long)n);
	}
	CF_FAILS(GENAI_E_INVAL,
		 r.st->copy(r.d, s, a.range.addr, b.range.addr, 1, 9, &cf_err));
	cf_free(&r, &up);
	cf_free(&r, &down);
	cf_free(&r, &a);
	cf_free(&r, &b);
	cf_destroy(&r, s);
	cf_close(&r);
}

// A random program of copies over several streams and cells, ordered by points
// where one needs another; the cells must be as if run one after another.
#define CELLS 12
#define STREAMS 4
struct program {
	struct genai_stream *s[STREAMS];
	struct genai_mem mem;
	unsigned char model[CELLS][64];
	struct genai_point written[CELLS], read[CELLS][STREAMS];
	uint64_t seed;
};

static void program_step(struct program *p)
{
	uint32_t from = cf_below(&p->seed, CELLS);
	uint32_t to = (from + 1 + cf_below(&p->seed, CELLS - 1)) % CELLS;
	uint32_t on = cf_below(&p->seed, STREAMS);
	struct genai_stream *s = p->s[on];

	cf_wait(&r, s, p->written[from]);
	cf_wait(&r, s, p->written[to]);
	for (uint32_t i = 0; i < STREAMS; i++)
		cf_wait(&r, s, p->read[to][i]);
	cf_copy(&r, s, p->mem.range.addr + 64 * to,
		p->mem.range.addr + 64 * from, 64, GENAI_COPY_D2D);
	memcpy(p->model[to], p->model[from], 64);
	p->written[to] = cf_mark(&r, s);
	p->read[from][on] = p->written[to];
}

static void run_program(const char *const *sets, uint64_t seed)
{
	unsigned char got[CELLS][64];
	struct program p = {.seed = cf_seed(seed)};

	cf_open(&r, 0, sets);
	p.mem = cf_alloc(&r, sizeof(p.model));
	cf_pattern(p.model, sizeof(p.model), seed);
	cf_put(&r, p.mem.range.addr, p.model, sizeof(p.model));
	for (uint32_t i = 0; i < STREAMS; i++)
		p.s[i] = cf_stream(&r, "s");
	for (int i = 0; i < 150; i++)
		program_step(&p);
	cf_drain(&r);
	cf_get(&r, got, p.mem.range.addr, sizeof(got));
	ck_assert_msg(
		!memcmp(got, p.model, sizeof(got)),
		"seed %lu, %s: streams ordered by points gave other bytes "
		"than one stream",
		(unsigned long)seed, sets && sets[0] ? sets[0] : "");
	for (uint32_t i = 0; i < STREAMS; i++)
		cf_destroy(&r, p.s[i]);
	cf_free(&r, &p.mem);
	cf_close(&r);
}

static void wait_order(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++)
		for (uint64_t seed = 1; seed <= 4; seed++)
			run_program(cf_schedule(i), 100 * i + seed);
}

struct log {
	atomic_int n;
	int at[8];
};
struct entry {
	struct log *log;
	int number;
};

static int32_t note(void *ctx, void *const *mem, struct genai_error *err)
{
	struct entry *e = ctx;

	(void)mem;
	(void)err;
	e->log->at[atomic_fetch_add(&e->log->n, 1) & 7] = e->number;
	return 0;
}

// Units of one stream run in order; those of another wait for its gate.
static void order(void)
{
	struct log log = {0};
	struct entry e[8];
	struct genai_stream *s, *other;
	struct genai_point p;
	struct cf_gate g;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	other = cf_stream(&r, "other");
	for (int i = 0; i < 8; i++)
		e[i] = (struct entry){&log, i};
	for (int i = 0; i < 4; i++)
		cf_call(&r, s, "early", note, &e[i]);
	cf_finish(&r, s);
	ck_assert_int_eq(log.n, 4);
	cf_gate_close(&r, other, &g);
	cf_call(&r, other, "first", note, &e[4]);
	p = cf_mark(&r, other);
	cf_wait(&r, s, p);
	for (int i = 5; i < 8; i++)
		cf_call(&r, s, "late", note, &e[i]);
	ck_assert_int_eq(log.n, 4);
	cf_gate_check(&g, "wait, launch_host or mark");
	cf_gate_open(&g);
	cf_finish(&r, s);
	ck_assert_int_eq(log.n, 8);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(log.at[i], i);
	cf_destroy(&r, other);
	cf_destroy(&r, s);
	cf_close(&r);
}

// ---- points ----

static void points(void)
{
	struct genai_point p[5], zero = {0};
	struct genai_stream *s;
	atomic_int n = 0;
	int32_t rc;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	ck_assert_int_eq(r.st->poll(r.d, zero, &cf_err), 0);
	p[0] = cf_mark(&r, s);
	ck_assert_int_eq(r.st->poll(r.d, p[0], &cf_err), 0);
	for (int i = 1; i < 5; i++) {
		cf_call(&r, s, "count", count, &n);
		p[i] = cf_mark(&r, s);
		ck_assert_msg(p[i].value > p[i - 1].value,
			      "points do not grow along the stream");
	}
	for (int i = 1; i < 5; i++) {
		uint32_t tries = 0;

		while ((rc = r.st->poll(r.d, p[i], &cf_err)) == GENAI_PENDING)
			ck_assert_msg(++tries < 100000000,
				      "a point was never reached by polling");
		CF_OK(rc);
		ck_assert_msg(n >= i, "point %d is reached after %d units", i,
			      (int)n);
		ck_assert_int_eq(r.st->poll(r.d, p[i], &cf_err), 0);
		ck_assert_int_eq(r.st->poll(r.d, p[0], &cf_err), 0);
	}
	cf_destroy(&r, s);
	cf_close(&r);
}

// Nothing but a barrier may wait for the device.
static void no_blocking(void)
{
	struct genai_mem a, b, c;
	struct genai_stream *s, *t;
	struct genai_point p;
	struct cf_gate g;
	atomic_int n = 0;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	a = cf_alloc(&r, 4096);
	b = cf_pinned(&r, 4096);
	cf_gate_close(&r, s, &g);
	cf_copy(&r, s, a.range.addr, (uintptr_t)b.host, 4096, GENAI_COPY_H2D);
	cf_copy(&r, s, (uintptr_t)b.host, a.range.addr, 4096, GENAI_COPY_D2H);
	cf_call(&r, s, "count", count, &n);
	p = cf_mark(&r, s);
	t = cf_stream(&r, "t");
	cf_wait(&r, t, p);
	cf_call(&r, t, "count", count, &n);
	c = cf_alloc(&r, 4096);
	CF_OK(r.st->caps(r.d, &r.caps, &cf_err));
	cf_gate_check(&g, "a call that is no barrier");
	ck_assert_int_eq(n, 0);
	cf_gate_open(&g);
	cf_finish(&r, t);
	ck_assert_int_eq(n, 2);
	cf_free(&r, &a);
	cf_free(&r, &b);
	cf_free(&r, &c);
	cf_destroy(&r, s);
	cf_destroy(&r, t);
	cf_close(&r);
}

// ---- failure ----

static int32_t break_down(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)ctx;
	(void)mem;
	return genai_fail(err, GENAI_E_FORMAT, "broken on purpose");
}

static void read_fails(struct genai_point p, const char *what)
{
	CF_CLEAR();
	if (r.ba->host_read(r.d, &p, 1, UINT64_MAX, &cf_err) != GENAI_E_FORMAT)
		ck_abort_msg("%s: not the first error: %s %s", what,
			     genai_status_name(cf_err.code), cf_err.text);
	ck_assert_msg(strstr(cf_err.text, "broken on purpose") != NULL,
		      "%s: the text of the first error is lost: %s", what,
		      cf_err.text);
	CF_CLEAR();
	ck_assert_msg(r.st->poll(r.d, p, &cf_err) == GENAI_E_FORMAT,
		      "%s: poll does not tell the error", what);
}

static void poison(void)
{
	struct genai_stream *s, *waits, *free_one, *past;
	struct genai_point before, after;
	struct genai_ticket t;
	atomic_int n = 0;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	waits = cf_stream(&r, "waits");
	free_one = cf_stream(&r, "free");
	cf_call(&r, s, "fine", count, &n);
	before = cf_mark(&r, s);
	cf_call(&r, s, "node_that_fails", break_down, NULL);
	cf_call(&r, s, "skipped", count, &n);
	after = cf_mark(&r, s);
	cf_wait(&r, waits, after);
	cf_call(&r, waits, "skipped too", count, &n);
	cf_call(&r, free_one, "fine", count, &n);
	read_fails(after, "the stream");
	read_fails(cf_mark(&r, waits), "a stream that waits");
	cf_finish(&r, free_one);
	ck_assert_int_eq(r.st->poll(r.d, before, &cf_err), 0);
	ck_assert_msg(n == 2, "%d units ran, 2 were not behind the failure",
		      (int)n);
	// what was reached before is no reason to fail
	past = cf_stream(&r, "past");
	cf_wait(&r, past, before);
	cf_call(&r, past, "fine", count, &n);
	cf_finish(&r, past);
	ck_assert_int_eq(n, 3);
	CF_FAILS(GENAI_E_STATE, r.st->reset(r.d, NULL, &cf_err));
	t = cf_drain(&r); // succeeds: skipped work touches nothing
	CF_OK(r.st->reset(r.d, &t, &cf_err));
	cf_call(&r, s, "again", count, &n);
	cf_call(&r, waits, "again", count, &n);
	cf_finish(&r, s);
	cf_finish(&r, waits);
	ck_assert_int_eq(n, 5);
	t = cf_drain(&r);
	cf_call(&r, s, "late", count, &n);
	CF_FAILS(GENAI_E_STATE, r.st->reset(r.d, &t, &cf_err));
	cf_destroy(&r, s);
	cf_destroy(&r, waits);
	cf_destroy(&r, free_one);
	cf_destroy(&r, past);
	cf_close(&r);
}

static void stats(void)
{
	struct genai_stream_stats a = {.size = sizeof(a)}, b = a;
	struct genai_mem m, h;
	struct genai_stream *s;
	struct genai_ticket t;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	m = cf_alloc(&r, 8192);
	h = cf_pinned(&r, 8192);
	cf_copy(&r, s, m.range.addr, (uintptr_t)h.host, 77, GENAI_COPY_H2D);
	cf_finish(&r, s);
	CF_OK(r.st->stats(r.d, &a, &cf_err));
	// what is refused is not counted
	CF_FAILS(GENAI_E_INVAL,
		 r.d->raw.copy(r.d->raw_self, s, m.range.addr, (uintptr_t)&b, 8,
			       GENAI_COPY_H2D, &cf_err));
	CF_FAILS(GENAI_E_INVAL, r.d->raw.copy(r.d->raw_self, s, m.range.addr,
					      m.range.addr, 8, 9, &cf_err));
	cf_copy(&r, s, m.range.addr, (uintptr_t)h.host, 1000, GENAI_COPY_H2D);
	cf_copy(&r, s, m.range.addr + 4096, m.range.addr, 100, GENAI_COPY_D2D);
	cf_copy(&r, s, (uintptr_t)h.host, m.range.addr, 10, GENAI_COPY_D2H);
	cf_finish(&r, s);
	CF_OK(r.st->stats(r.d, &b, &cf_err));
	ck_assert_uint_eq(b.copies - a.copies, 3);
	ck_assert_uint_eq(b.h2d_bytes - a.h2d_bytes, 1000);
	ck_assert_uint_eq(b.d2d_bytes - a.d2d_bytes, 100);
	ck_assert_uint_eq(b.d2h_bytes - a.d2h_bytes, 10);
	// and what was stays
	t = cf_drain(&r);
	CF_OK(r.st->reset(r.d, &t, &cf_err));
	cf_copy(&r, s, m.range.addr, (uintptr_t)h.host, 5, GENAI_COPY_H2D);
	cf_finish(&r, s);
	a = b;
	CF_OK(r.st->stats(r.d, &b, &cf_err));
	ck_assert_msg(b.copies == a.copies + 1 &&
			      b.h2d_bytes == a.h2d_bytes + 5,
		      "after a reset %lu copies of %lu bytes are counted, "
		      "%lu of %lu were before",
		      (unsigned long)b.copies, (unsigned long)b.h2d_bytes,
		      (unsigned long)a.copies, (unsigned long)a.h2d_bytes);
	cf_free(&r, &m);
	cf_free(&r, &h);
	cf_destroy(&r, s);
	cf_close(&r);
}

// ---- units of work that are functions ----

static int32_t sum(void *ctx, void *const *mem, struct genai_error *err)
{
	const unsigned char *a = mem[0];
	unsigned char *b = mem[1];

	(void)ctx;
	if (mem[2])
		return genai_fail(err, GENAI_E_FORMAT,
				  "an access of 0 bytes has an address");
	for (int i = 0; i < 100; i++)
		b[i] = (unsigned char)(a[i] + 1);
	return 0;
}

static void units(void)
{
	struct genai_work w = {sizeof(w), 3, "sum", sum, NULL};
	struct genai_access acc[3];
	unsigned char in[100], out[100];
	struct genai_mem m, p;
	struct genai_stream *s;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	m = cf_alloc(&r, 4096);
	cf_pattern(in, 100, 3);
	cf_put(&r, m.range.addr + 8, in, 100);
	acc[0] = (struct genai_access){m.range.addr + 8, 100, GENAI_READ, 0};
	acc[1] =
		(struct genai_access){m.range.addr + 2048, 100, GENAI_WRITE, 0};
	acc[2] = (struct genai_access){m.range.addr, 0, GENAI_READ, 0};
	CF_OK(r.st->launch(r.d, s, &w, acc, 3, &cf_err));
	memset(acc, 0xff, sizeof(acc)); // they were copied
	memset(&w, 0xff, sizeof(w));
	cf_finish(&r, s);
	cf_get(&r, out, m.range.addr + 2048, 100);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(out[i], (unsigned char)(in[i] + 1));
	// pinned memory is read and written as the device's own is
	p = cf_pinned(&r, 4096);
	memcpy((char *)p.host + 33, in, 100);
	w = (struct genai_work){sizeof(w), 3, "sum", sum, NULL};
	acc[0] = (struct genai_access){p.range.addr + 33, 100, GENAI_READ, 0};
	acc[1] =
		(struct genai_access){p.range.addr + 2048, 100, GENAI_WRITE, 0};
	acc[2] = (struct genai_access){p.range.addr, 0, GENAI_READ, 0};
	CF_OK(r.st->launch(r.d, s, &w, acc, 3, &cf_err));
	cf_finish(&r, s);
	memcpy(out, (char *)p.host + 2048, 100);
	for (int i = 0; i < 100; i++)
		ck_assert_msg(out[i] == (unsigned char)(in[i] + 1),
			      "byte %d of pinned memory is %u after a unit, "
			      "not %u",
			      i, out[i], (unsigned char)(in[i] + 1));
	cf_free(&r, &p);
	cf_free(&r, &m);
	cf_destroy(&r, s);
	cf_close(&r);
}

#define MANY 24

// Access i has a byte i: the last one gets them in order.
static int32_t line_up(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)ctx;
	(void)err;
	for (int i = 0; i < MANY; i++)
		memcpy((unsigned char *)mem[MANY] + i, mem[i], 1);
	return 0;
}

// A fused operator reads more than three things.
static void units_wide(void)
{
	struct genai_work w = {sizeof(w), 3, "wide", line_up, NULL};
	struct genai_access acc[MANY + 1];
	unsigned char in[MANY], out[MANY];
	struct genai_mem m;
	struct genai_stream *s;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	m = cf_alloc(&r, 4096);
	cf_pattern(in, MANY, 5);
	cf_put(&r, m.range.addr, in, MANY);
	for (uint32_t i = 0; i < MANY; i++)
		acc[i] = (struct genai_access){m.range.addr + i, 1, GENAI_READ,
					       0};
	acc[MANY] = (struct genai_access){m.range.addr + 2048, MANY,
					  GENAI_WRITE, 0};
	CF_OK(r.st->launch(r.d, s, &w, acc, MANY + 1, &cf_err));
	cf_finish(&r, s);
	cf_get(&r, out, m.range.addr + 2048, MANY);
	for (int i = 0; i < MANY; i++)
		ck_assert_msg(out[i] == in[i],
			      "access %d of a unit with %d is byte %d, not %d",
			      i, MANY + 1, out[i], in[i]);
	cf_free(&r, &m);
	cf_destroy(&r, s);
	cf_close(&r);
}

static void unmapped(void)
{
	atomic_int n = 0;
	struct genai_work w = {sizeof(w), 0, "stray_node", count, &n};
	struct genai_access acc = {0, 16, GENAI_READ, 0};
	char host[16];
	struct genai_mem m;
	struct genai_stream *s;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	m = cf_alloc(&r, 4096);
	acc.addr = m.range.addr + m.range.bytes - 8;
	CF_FAILS(0, r.st->launch(r.d, s, &w, &acc, 1, &cf_err));
	ck_assert_msg(strstr(cf_err.text, "stray_node") != NULL,
		      "the error does not name the unit: %s", cf_err.text);
	acc.addr = (uintptr_t)host; // a host pointer
	CF_FAILS(0, r.st->launch(r.d, s, &w, &acc, 1, &cf_err));
	acc.addr = UINT64_MAX - 8;
	CF_FAILS(0, r.st->launch(r.d, s, &w, &acc, 1, &cf_err));
	acc.addr = m.range.addr;
	acc.bytes = UINT64_MAX;
	CF_FAILS(0, r.st->launch(r.d, s, &w, &acc, 1, &cf_err));
	CF_FAILS(0, r.st->copy(r.d, s, m.range.addr + 1, m.range.addr,
			       m.range.bytes, GENAI_COPY_D2D, &cf_err));
	cf_free(&r, &m);
	acc = (struct genai_access){acc.addr, 16, GENAI_READ, 0};
	CF_FAILS(0, r.st->launch(r.d, s, &w, &acc, 1, &cf_err));
	cf_finish(&r, s);
	ck_assert_int_eq(n, 0);
	cf_destroy(&r, s);
	cf_close(&r);
}

static void native(void)
{
	struct genai_stream *s, *t;
	void *a = NULL, *b = NULL, *c = NULL;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	t = cf_stream(&r, "t");
	CF_OK(r.st->native(r.d, s, &a, &cf_err));
	CF_OK(r.st->native(r.d, s, &b, &cf_err));
	CF_OK(r.st->native(r.d, t, &c, &cf_err));
	ck_assert_ptr_nonnull(a);
	ck_assert_msg(a == b && a != c,
		      "a stream's handle changes, or is another's");
	cf_destroy(&r, s);
	cf_destroy(&r, t);
	cf_close(&r);
}

#define S GENAI_IFACE_STREAM
// ---- units on the host ----

static int32_t add_one(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)err;
	// the third lies behind the first
	if (!mem[0] || mem[1] || mem[2] != (char *)mem[0] + 16)
		return GENAI_E_INVAL;
	++*(uint64_t *)mem[0];
	atomic_fetch_add((atomic_int *)ctx, 1);
	return 0;
}

// launch_host finds pinned memory, in order with copies, recorded too.
static void host_units(void)
{
	struct genai_recording *rec = NULL;
	struct genai_mem up, down, dev;
	struct genai_stream *s;
	struct genai_ticket t;
	struct genai_access acc[3];
	struct genai_work w = {sizeof(w), GENAI_NONE, "add", add_one, NULL};
	bool records;
	atomic_int n = 0;

	cf_open(&r, 0, NULL);
	records = r.caps.flags & GENAI_STREAM_CAP_RECORD;
	s = cf_stream(&r, "s");
	up = cf_pinned(&r, 64);
	down = cf_pinned(&r, 64);
	dev = cf_alloc(&r, 64);
	memset(up.host, 0, 64);
	w.ctx = &n;
	acc[0] = (struct genai_access){up.range.addr + 8, 8,
				       GENAI_READ | GENAI_WRITE, 0};
	acc[1] = (struct genai_access){dev.range.addr, 0, GENAI_READ, 0};
	acc[2] = (struct genai_access){up.range.addr + 24, 8, GENAI_READ, 0};
	if (records)
		CF_OK(r.st->capture_begin(r.d, s, &cf_err));
	CF_OK(r.st->launch_host(r.d, s, &w, acc, 3, &cf_err));
	cf_copy(&r, s, dev.range.addr, (uintptr_t)up.host + 8, 8,
		GENAI_COPY_H2D);
	CF_OK(r.st->launch_host(r.d, s, &w, acc, 3, &cf_err));
	cf_copy(&r, s, (uintptr_t)down.host, dev.range.addr, 8, GENAI_COPY_D2H);
	memset(acc, 0xee, sizeof(acc)); // what was given was copied
	if (records)
		CF_OK(r.st->capture_end(r.d, s, &rec, &cf_err));
	for (uint64_t i = 0; i < (records ? 3 : 1); i++) {
		if (records)
			CF_OK(r.st->launch_graph(r.d, rec, s, &cf_err));
		cf_finish(&r, s);
		ck_assert_msg(*(uint64_t *)down.host == 2 * i + 1 &&
				      ((uint64_t *)up.host)[1] == 2 * i + 2 &&
				      n == 2 * (int)i + 2,
			      "host units that add one, a copy after the %llu. "
			      "of them: it has %llu",
			      (unsigned long long)(2 * i + 1),
			      *(unsigned long long *)down.host);
	}
	t = cf_drain(&r);
	if (records)
		CF_OK(r.st->graph_destroy(r.d, rec, &t, &cf_err));
	if (r.caps.flags & GENAI_STREAM_CAP_NATIVE) {
		acc[0] =
			(struct genai_access){dev.range.addr, 8, GENAI_READ, 0};
		CF_FAILS(GENAI_E_INVAL,
			 r.st->launch_host(r.d, s, &w, acc, 1, &cf_err));
	}
	cf_free(&r, &up);
	cf_free(&r, &down);
	cf_free(&r, &dev);
	cf_destroy(&r, s);
	cf_close(&r);
}

// What tomorrow's executors may say is not taken for something else today.
static void access_flags(void)
{
	atomic_int n = 0;
	struct genai_work w = {sizeof(w), GENAI_NONE, "odd", count, &n};
	struct genai_stream *s;
	struct genai_access a;
	struct genai_mem m;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	m = cf_pinned(&r, 256);
	a = (struct genai_access){m.range.addr, 64, 0, 0};
	for (uint32_t bit = 3; bit < 32; bit++) {
		struct genai_work unit = w;

		if (r.caps.flags & GENAI_STREAM_CAP_NATIVE)
			unit.fn = NULL;
		a.flags = GENAI_READ | 1u << bit;
		CF_FAILS(GENAI_E_UNSUPPORTED,
			 r.d->raw.launch(r.d->raw_self, s, &unit, &a, 1,
					 &cf_err));
		CF_FAILS(GENAI_E_UNSUPPORTED,
			 r.d->raw.launch_host(r.d->raw_self, s, &w, &a, 1,
					      &cf_err));
		CF_FAILS(GENAI_E_UNSUPPORTED,
			 r.st->launch_host(r.d, s, &w, &a, 1, &cf_err));
	}
	a.flags = GENAI_READ | GENAI_SPARSE;
	CF_OK(r.st->launch_host(r.d, s, &w, &a, 1, &cf_err));
	cf_finish(&r, s);
	ck_assert_int_eq(n, 1);
	cf_free(&r, &m);
	cf_destroy(&r, s);
	cf_close(&r);
}

// ---- stamps ----

static uint64_t stamp(struct genai_stream *s)
{
	uint64_t n = 0;

	CF_OK(r.st->stamp(r.d, s, &n, &cf_err));
	return n;
}

static int64_t elapsed(uint64_t from, uint64_t to)
{
	int64_t ns = INT64_MIN;

	CF_OK(r.st->elapsed(r.d, from, to, &ns, &cf_err));
	return ns;
}

// In the order of the stream, and not before it is there.
static void stamps(void)
{
	struct genai_stream_stats before = {.size = sizeof(before)}, after;
	uint64_t first, last, other, far, n;
	struct genai_stream *s, *t;
	struct genai_mem up, dev;
	struct cf_gate g;
	int64_t ns = 7;
	bool free_of_charge;

	cf_open(&r, 0, NULL);
	free_of_charge = r.caps.flags & GENAI_STREAM_CAP_RATES &&
			 !r.caps.link_bytes_per_s;
	s = cf_stream(&r, "s");
	t = cf_stream(&r, "t");
	up = cf_pinned(&r, 4096 * KIB);
	dev = cf_alloc(&r, 4096 * KIB);
	memset(up.host, 1, up.range.bytes);
	CF_OK(r.st->stats(r.d, &before, &cf_err));
	first = stamp(s);
	cf_gate_close(&r, s, &g);
	cf_copy(&r, s, dev.range.addr, (uintptr_t)up.host, up.range.bytes,
		GENAI_COPY_H2D);
	last = stamp(s);
	other = stamp(t);
	ck_assert_int_eq(r.st->elapsed(r.d, first, last, &ns, &cf_err),
			 GENAI_PENDING);
	ck_assert_int_eq(ns, 7);
	cf_gate_check(&g, "stamp");
	cf_gate_open(&g);
	cf_finish(&r, s);
	cf_finish(&r, t);
	ck_assert_int_ge(elapsed(first, last), !free_of_charge);
	ck_assert_int_eq(elapsed(last, first), -elapsed(first, last));
	ck_assert_int_eq(elapsed(first, first), 0);
	(void)elapsed(first, other);
	CF_FAILS(GENAI_E_NOTFOUND, r.st->elapsed(r.d, 0, last, &ns, &cf_err));
	CF_FAILS(GENAI_E_NOTFOUND,
		 r.st->elapsed(r.d, first, UINT64_MAX, &ns, &cf_err));
	// as many are kept
	ck_assert_uint_gt(last, first);
	n = stamp(s);
	for (uint32_t i = 1; i < 16384; i++)
		far = stamp(s);
	ck_assert_uint_eq(far, n + 16383);
	cf_finish(&r, s);
	ck_assert_int_ge(elapsed(n, far), 0);
	// no unit, no copy
	after = before;
	CF_OK(r.st->stats(r.d, &after, &cf_err));
	ck_assert_uint_eq(after.copies - before.copies, 1);
	ck_assert_uint_le(after.launches - before.launches, 1); // the gate
	if (r.caps.flags & GENAI_STREAM_CAP_RECORD) {
		CF_OK(r.st->capture_begin(r.d, s, &cf_err));
		CF_FAILS(GENAI_E_STATE, r.st->stamp(r.d, s, &n, &cf_err));
		CF_OK(r.st->capture_abort(r.d, s, &cf_err));
	}
	cf_free(&r, &dev);
	cf_free(&r, &up);
	cf_destroy(&r, t);
	cf_destroy(&r, s);
	cf_close(&r);
}

static const struct cf_test tests[] = {
	{"stream/destroy-busy", "GM-27", S, 0, destroy_busy},
	{"stream/copies", "GM-28", S, 0, copies},
	{"stream/order", "GM-29", S, 0, order},
	{"stream/wait-order", "GM-30", S, 0, wait_order},
	{"stream/points", "GM-31", S, 0, points},
	{"stream/no-blocking", "GM-32", S, 0, no_blocking},
	{"stream/poison", "GM-33", S, 0, poison},
	{"stream/stats", "GM-34", S, 0, stats},
	{"stream/access-flags", "GM-39", S, 0, access_flags},
	{"stream/stamps", "GM-163", S, CF_STAMPS, stamps},
	{"stream/units", "GM-35", S, CF_UNITS, units},
	{"stream/units-wide", "GM-35", S, CF_UNITS, units_wide},
	{"stream/unmapped", "GM-36", S, CF_UNITS, unmapped},
	{"stream/native", "GM-37", S, CF_NATIVE, native},
	{"stream/host-units", "GM-38", S, 0, host_units},
};
const struct cf_suite cf_suite_stream = {tests,
					 sizeof(tests) / sizeof(tests[0])};
