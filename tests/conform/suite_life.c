// suite_life.c - a module in use for long: thousands of steps and hundreds of
// lives take no more of anything than the first ones.
#include "tests/conform/book.h"
#include "tests/conform/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Beyond this it grows: the C library has some movement, and what a driver
// keeps for itself nobody knows.
#define HEAP_SLACK (UINT64_C(64) << 10)

struct census {
	struct cf_census process;
	struct genai_host_live module;
};

static struct census begin(const struct cf_rt *rt)
{
	return (struct census){cf_count(),
			       genai_host_live(genai_module_host(rt->tested))};
}

static void flat(const struct cf_rt *rt, const struct census *before,
		 const char *what)
{
	struct census now = begin(rt);

	ck_assert_msg(before->process.fds == now.process.fds,
		      "%s: %u descriptors were open, %u are", what,
		      before->process.fds, now.process.fds);
	ck_assert_msg(before->process.threads == now.process.threads,
		      "%s: there were %u threads, there are %u", what,
		      before->process.threads, now.process.threads);
	ck_assert_msg(now.process.heap <= before->process.heap + HEAP_SLACK ||
			      rt->caps.flags & GENAI_STREAM_CAP_NATIVE,
		      "%s took %lu bytes of the heap", what,
		      (unsigned long)(now.process.heap - before->process.heap));
	// tables may have grown to what is needed
	ck_assert_msg(
		now.module.allocations <= before->module.allocations + 2 &&
			now.module.bytes <= before->module.bytes + HEAP_SLACK,
		"%s took %u allocations, %lu bytes of the host's", what,
		now.module.allocations - before->module.allocations,
		(unsigned long)(now.module.bytes - before->module.bytes));
}

// A schedule that is hard on missing waits, where the device has one.
static const char *const *hard(void)
{
	uint32_t n = cf_n_schedules();

	return cf_schedule(n > 2 ? 2 : 1);
}

// ---- pagers ----

static struct book b;

#define FEW_STEPS 200
#define MANY_STEPS 5000

// Calls of the device in one step.
static uint32_t calls_of_a_step(void)
{
	uint32_t calls = book_tap.calls;

	CF_OK(book_step(&b, 0, &cf_err));
	return book_tap.calls - calls;
}

static void pager_life(void)
{
	struct genai_pager_stats st = {.size = sizeof(st)};
	// beyond what 16 bits count
	uint32_t steps = cf.o.torture ? 70000 : 12000, first = 0;
	struct census before;

	book_make_even(&b, 31, 10, 1);
	book_open(&b, hard());
	CF_OK(book_seal(&b, b.total / 2, &cf_err));
	for (uint32_t i = 0; i < steps; i++) {
		uint32_t calls = calls_of_a_step();

		if (i % 5 == 0) {
			book_check(&b, "one of thousands of steps");
			book_forget(&b);
		}

		if (i == FEW_STEPS) {
			before = begin(&b.r);
			first = calls;
		}
		ck_assert_msg(i <= FEW_STEPS || calls == first,
			      "step %u asks the device %u times, step %u "
			      "asked %u times",
			      i, calls, FEW_STEPS, first);
	}
	book_check(&b, "the last of thousands of steps");
	flat(&b.r, &before, "thousands of steps");
	CF_OK(b.ops->stats(b.p, &st, &cf_err));
	ck_assert_uint_eq(st.steps, steps);
	ck_assert_uint_eq(st.acquires, steps * (uint64_t)b.n_visits);
	book_close(&b);
	book_free(&b);
}

// Pagers come and go on one device.
static void pager_lives(void)
{
	struct genai_host_live live;
	struct census before;

	book_make(&b, 32, 12);
	book_start(&b, NULL);
	for (int i = 0; i < 40; i++) {
		struct genai_ticket t;
		uint32_t holds = book_tap.holds;

		if (i == 10) {
			before = begin(&b.r);
		}
		CF_OK(b.ops->open(genai_module_self(b.r.rt->pager.module),
				  &b.stream, &b.barrier, &b.p, &cf_err));
		book_add_all(&b);
		CF_OK(book_seal(&b, b.total * (uint32_t)(i % 11) / 10,
				&cf_err));
		for (int k = i % 3; k; k--)
			CF_OK(book_step(&b, 0, &cf_err));
		book_check(&b, "one of many pagers");
		book_forget(&b);
		t = cf_drain(&b.r);
		CF_OK(b.ops->close(b.p, &t, &cf_err));
		b.p = NULL;
		ck_assert_msg(book_tap.holds == holds && !book_tap.device_bytes,
			      "close left %u things of the device, %lu bytes "
			      "of its memory",
			      book_tap.holds - holds,
			      (unsigned long)book_tap.device_bytes);
	}
	live = genai_host_live(genai_module_host(b.r.tested));
	ck_assert_msg(live.allocations == before.module.allocations &&
			      live.bytes == before.module.bytes,
		      "30 pagers left %u allocations",
		      live.allocations - before.module.allocations);
	flat(&b.r, &before, "pagers that came and went");
	book_stop(&b);
	cf_close(&b.r);
	book_free(&b);
}

// ---- devices ----

static struct cf_rt r;

static int32_t count(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)mem;
	(void)err;
	atomic_fetch_add((atomic_int *)ctx, 1);
	return 0;
}

static uint64_t device_used(void)
{
	struct genai_stream_stats st = {.size = sizeof(st)};

	CF_OK(r.st->stats(r.d, &st, &cf_err));
	return st.device_used_bytes;
}

// Everything that a device makes, made and given back.
static void device_round(uint32_t i)
{
	static unsigned char file[8192] __attribute__((aligned(4096)));
	struct genai_mem reg = {.size = sizeof(reg)}, dev, pinned;
	struct genai_stream *s = cf_stream(&r, "round"), *t;
	struct genai_recording *rec = NULL;
	struct genai_ticket ticket;
	atomic_int n = 0;

	t = cf_stream(&r, "other");
	dev = cf_alloc(&r, 1000 + i % 7 * 5000);
	pinned = cf_pinned(&r, 1000);
	// a device may register nothing at all
	CF_CLEAR();
	if (r.st->host_register(r.d, file, sizeof(file), &reg, &cf_err))
		reg.range.bytes = 0;
	memset(pinned.host, (int)i, 1000);
	if (r.caps.flags & GENAI_STREAM_CAP_RECORD)
		CF_OK(r.st->capture_begin(r.d, s, &cf_err));
	cf_copy(&r, s, dev.range.addr, (uintptr_t)pinned.host, 1000,
		GENAI_COPY_H2D);
	cf_wait(&r, t, cf_mark(&r, s));
	cf_call(&r, t, "count", count, &n);
	cf_wait(&r, s, cf_mark(&r, t));
	if (r.caps.flags & GENAI_STREAM_CAP_RECORD) {
		if (i % 5 == 4) {
			CF_OK(r.st->capture_abort(r.d, s, &cf_err));
			cf_call(&r, s, "count", count, &n);
		} else {
			CF_OK(r.st->capture_end(r.d, s, &rec, &cf_err));
			CF_OK(r.st->launch_graph(r.d, rec, s, &cf_err));
		}
	}
	cf_finish(&r, s);
	ck_assert_int_eq(n, 1);
	ticket = cf_drain(&r);
	if (rec)
		CF_OK(r.st->graph_destroy(r.d, rec, &ticket, &cf_err));
	if (reg.range.bytes)
		CF_OK(r.st->host_unregister(r.d, reg.range.addr, &ticket,
					    &cf_err));
	CF_OK(r.st->free(r.d, dev.range.addr, &ticket, &cf_err));
	CF_OK(r.st->free(r.d, pinned.range.addr, &ticket, &cf_err));
	CF_OK(r.st->destroy(r.d, s, &cf_err));
	CF_OK(r.st->destroy(r.d, t, &cf_err));
}

#define ROUNDS 600

static void device_lives(void)
{
	struct census before;
	uint64_t used = 0;

	cf_open(&r, 0, NULL);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		if (i == 100) {
			before = begin(&r);
			used = device_used();
		}
		device_round(i);
	}
	flat(&r, &before, "streams, memory and recordings that came and went");
	ck_assert_msg(device_used() <= used + (1 << 20),
		      "%lu bytes of the device are lost",
		      (unsigned long)(device_used() - used));
	cf_close(&r);
}

// One stream and one recording in use for long.
static void device_life(void)
{
	struct genai_recording *rec = NULL;
	struct genai_stream *s, *t;
	struct genai_point first, last;
	struct census before;
	struct genai_mem m, up, down;
	uint64_t *sent, *got;
	atomic_int n = 0;
	int want = 0;

	cf_open(&r, 0, hard());
	s = cf_stream(&r, "s");
	t = cf_stream(&r, "t");
	m = cf_alloc(&r, 4096);
	up = cf_pinned(&r, 512);
	down = cf_pinned(&r, 512);
	sent = up.host;
	got = down.host;
	if (r.caps.flags & GENAI_STREAM_CAP_RECORD) {
		CF_OK(r.st->capture_begin(r.d, s, &cf_err));
		cf_call(&r, s, "count", count, &n);
		CF_OK(r.st->capture_end(r.d, s, &rec, &cf_err));
	}
	first = cf_mark(&r, s);
	for (uint32_t i = 0; i < MANY_STEPS; i++) {
		if (i == FEW_STEPS)
			before = begin(&r);
		sent[i % 16] = i;
		cf_copy(&r, s, m.range.addr, (uintptr_t)&sent[i % 16], 8,
			GENAI_COPY_H2D);
		cf_wait(&r, t, cf_mark(&r, s));
		cf_copy(&r, t, (uintptr_t)&got[i % 16], m.range.addr, 8,
			GENAI_COPY_D2H);
		cf_call(&r, t, "count", count, &n);
		cf_wait(&r, s, cf_mark(&r, t));
		want++;
		if (rec && i % 4 == 0) {
			CF_OK(r.st->launch_graph(r.d, rec, s, &cf_err));
			want++;
		}
		last = cf_mark(&r, s);
		if (i % 16 != 15)
			continue;
		CF_OK(r.ba->host_read(r.d, &last, 1, UINT64_MAX, &cf_err));
		ck_assert_int_eq(n, want);
		for (uint32_t k = 0; k < 16 && i >= 16; k++)
			ck_assert_msg(
				got[k] == sent[k], "%lu came instead of %lu",
				(unsigned long)got[k], (unsigned long)sent[k]);
		ck_assert_int_eq(r.st->poll(r.d, first, &cf_err), 0);
		ck_assert_int_eq(r.st->poll(r.d, last, &cf_err), 0);
	}
	cf_drain(&r);
	ck_assert_int_eq(n, want);
	flat(&r, &before, "thousands of units, points and replays");
	if (rec) {
		struct genai_ticket ticket = cf_drain(&r);

		CF_OK(r.st->graph_destroy(r.d, rec, &ticket, &cf_err));
	}
	cf_free(&r, &m);
	cf_free(&r, &up);
	cf_free(&r, &down);
	cf_destroy(&r, s);
	cf_destroy(&r, t);
	cf_close(&r);
}

static void barrier_life(void)
{
	struct genai_range some = {4096, 4096};
	struct genai_ticket ticket;
	struct genai_stream *s;
	struct census before;
	atomic_int n = 0;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	for (int i = 0; i < MANY_STEPS; i++) {
		struct genai_point p;

		if (i == FEW_STEPS)
			before = begin(&r);
		cf_call(&r, s, "count", count, &n);
		p = cf_mark(&r, s);
		if (i % 3)
			CF_OK(r.ba->host_read(r.d, &p, 1, UINT64_MAX, &cf_err));
		else
			cf_drain(&r);
		ck_assert_int_eq(n, i + 1);
		ticket.size = sizeof(ticket);
		CF_OK(r.ba->drain(r.d, some, UINT64_MAX, &ticket, &cf_err));
	}
	flat(&r, &before, "thousands of waits");
	cf_destroy(&r, s);
	cf_close(&r);
}

// ---- executors ----

static struct rig g;
static struct rig_graph made;
static struct genai_graph *graph;
static const int64_t ids[] = {5, 63, 0, 17, 40, 2, 33, 9};
static float want[8][LM_VOCAB];

static void plan_lm(void)
{
	struct genai_view max;

	graph = rig_lm(&made);
	rig_lm_view(&max);
	rig_plan(&g, graph, &max, 24);
}

static void unplan_lm(void)
{
	rig_unplan(&g);
	rig_graph_free(&made, graph);
}

// A device that is interpreted takes its time.
static bool is_time_left(clock_t from, int steps)
{
	return steps < 300 || clock() - from < CLOCKS_PER_SEC / 2;
}

static void exec_life(void)
{
	struct genai_exec_stats st = {.size = sizeof(st)};
	struct census before;
	clock_t from = clock();
	int steps;
	float got[LM_VOCAB];

	rig_open(&g, NULL);
	rig_need_lm(&g);
	plan_lm();
	for (int i = 0; i < 8; i++)
		rig_lm_run(&g, &ids[i], 1, want[i]);
	for (steps = 0; steps < MANY_STEPS / 2 && is_time_left(from, steps);
	     steps++) {
		int i = steps;

		if (i == FEW_STEPS)
			before = begin(&g.r);
		if (i % 50 >= 8) {
			rig_submit(&g);
			if (i % 7 == 0)
				cf_finish(&g.r, g.s);
			continue;
		}
		cf_finish(&g.r, g.s); // its input is written now
		rig_lm_run(&g, &ids[i % 50], 1, got);
		ck_assert_msg(!memcmp(got, want[i % 50], sizeof(got)),
			      "step %d of thousands: other numbers", i);
	}
	cf_drain(&g.r);
	flat(&g.r, &before, "thousands of steps");
	CF_OK(g.r.rt->exec.stats(g.plan, &st, &cf_err));
	ck_assert_uint_eq(st.steps, (uint64_t)steps + 8);
	unplan_lm();
	rig_close(&g);
}

// ---- what is refused ----

static int32_t nothing(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)ctx;
	(void)mem;
	(void)err;
	return 0;
}

static void refuse_device(struct genai_stream *s, const struct genai_mem *m)
{
	const struct genai_stream_ops *st = &r.d->raw;
	void *self = r.d->raw_self;
	struct genai_work w = {sizeof(w), GENAI_NONE, "refused", nothing, NULL};
	struct genai_access a = {m->range.addr, 16, 1u << 30, 0};
	struct genai_mem none = {.size = sizeof(none)};
	int64_t here = 0;

	CF_FAILS(0, st->alloc(self, GENAI_MEM_DEVICE, 0, "x", &none, &cf_err));
	CF_FAILS(0, st->free(self, m->range.addr + 1, NULL, &cf_err));
	CF_FAILS(0, st->host_register(self, NULL, 0, &none, &cf_err));
	CF_FAILS(0, st->copy(self, s, m->range.addr, m->range.addr, 8, 9,
			     &cf_err));
	CF_FAILS(0, st->copy(self, s, m->range.addr, (uintptr_t)&here, 8,
			     GENAI_COPY_H2D, &cf_err));
	CF_FAILS(0, st->launch_host(self, s, &w, &a, 1, &cf_err));
}

#define FEW_REFUSALS 100
#define MANY_REFUSALS 3000

static void device_refusals(void)
{
	struct genai_stream *s;
	struct census before;
	struct genai_mem m;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	m = cf_pinned(&r, 64);
	for (int i = 0; i < MANY_REFUSALS; i++) {
		if (i == FEW_REFUSALS)
			before = begin(&r);
		refuse_device(s, &m);
	}
	flat(&r, &before, "thousands of calls that were refused");
	cf_free(&r, &m);
	cf_destroy(&r, s);
	cf_close(&r);
}

static void pager_refusals(void)
{
	struct genai_extent e = {.size = sizeof(e), .src = "x", .src_bytes = 1,
				 .place = 8, .bytes = 1};
	struct genai_sweep_visit unknown;
	struct genai_pager_report report = {.size = sizeof(report)};
	struct genai_point ready = {NULL, 0};
	struct genai_place place;
	struct census before;
	bool sealed = false;

	book_make(&b, 33, 12);
	book_open(&b, NULL);
	unknown = b.sweep[0];
	unknown.flags = 1u << 30;
	for (int i = 0; i < MANY_REFUSALS; i++) {
		if (i == FEW_REFUSALS)
			before = begin(&b.r);
		CF_FAILS(0, b.ops->add(b.p, 64, 0, &e, 1, &cf_err));
		CF_FAILS(0, b.ops->seal(b.p, &unknown, 1, b.total, &report,
					&cf_err));
		// the device has nothing left; who serves it otherwise may
		if (i % 50 || sealed)
			continue;
		book_tap.fail_take = 1 + (uint32_t)i / 50 % 2;
		CF_CLEAR();
		sealed = !book_seal(&b, b.total / 2, &cf_err);
		book_tap.fail_take = 0;
	}
	if (!sealed) {
		flat(&b.r, &before, "thousands of calls that were refused");
		CF_OK(book_seal(&b, b.total / 2, &cf_err));
	}
	for (int i = 0; i < MANY_REFUSALS; i++) {
		if (i == FEW_REFUSALS)
			before = begin(&b.r);
		CF_FAILS(0, b.ops->acquire(b.p, 1, b.s, &place, &ready,
					   &cf_err));
		CF_FAILS(0, b.ops->release(b.p, 1, ready, &cf_err));
	}
	flat(&b.r, &before, "thousands of visits that were refused");
	CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "after refusals");
	book_close(&b);
	book_free(&b);
}

static void exec_lives(void)
{
	struct census before;
	uint64_t used = 0;
	float got[LM_VOCAB];

	rig_open(&g, NULL);
	rig_need_lm(&g);
	r = g.r; // for device_used
	for (int i = 0; i < 40; i++) {
		if (i == 10) {
			before = begin(&g.r);
			used = device_used();
		}
		plan_lm();
		for (int k = 0; k < i % 5; k++)
			rig_lm_run(&g, &ids[0], 1, got);
		if (i == 4)
			memcpy(want[0], got, sizeof(got));
		ck_assert_msg(i < 5 || i % 5 == 0 ||
				      !memcmp(want[0], got, sizeof(got)),
			      "plan %d gives other numbers", i);
		unplan_lm();
	}
	flat(&g.r, &before, "plans that came and went");
	ck_assert_msg(device_used() <= used + (1 << 20),
		      "%lu bytes of the device are lost",
		      (unsigned long)(device_used() - used));
	rig_close(&g);
}

#define S GENAI_IFACE_STREAM
#define B GENAI_IFACE_BARRIER
#define P GENAI_IFACE_PAGER
#define E GENAI_IFACE_EXECUTOR
static const struct cf_test tests[] = {
	{"stream/life", "GM-17", S, 0, device_life},
	{"stream/lives", "GM-17", S, 0, device_lives},
	{"stream/refused-life", "GM-17", S, 0, device_refusals},
	{"barrier/life", "GM-17", B, 0, barrier_life},
	{"pager/life", "GM-17", P, 0, pager_life},
	{"pager/lives", "GM-17", P, 0, pager_lives},
	{"pager/refused-life", "GM-17", P, 0, pager_refusals},
	{"executor/life", "GM-17", E, 0, exec_life},
	{"executor/lives", "GM-17", E, 0, exec_lives},
};
const struct cf_suite cf_suite_life = {tests, sizeof(tests) / sizeof(tests[0])};
