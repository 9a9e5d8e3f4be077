// suite_record.c - recordings of a stream runtime.
#include "tests/conform/conform.h"

#include <pthread.h>
#include <string.h>

static struct cf_rt r;

static int32_t count(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)mem;
	(void)err;
	atomic_fetch_add((atomic_int *)ctx, 1);
	return 0;
}

static struct genai_recording *end(struct genai_stream *s)
{
	struct genai_recording *rec = NULL;

	CF_OK(r.st->capture_end(r.d, s, &rec, &cf_err));
	ck_assert_ptr_nonnull(rec);
	return rec;
}

static void drop(struct genai_recording *rec)
{
	struct genai_ticket t = cf_drain(&r);

	CF_OK(r.st->graph_destroy(r.d, rec, &t, &cf_err));
}

// Eight bytes a cell; every replay moves cells on by one: replayed k times the
// last cell holds what the source was k - 1 replays ago at the earliest.
struct chain {
	struct genai_stream *s, *side;
	struct genai_mem up, dev, down;
	atomic_int n;
};

static void chain_open(struct chain *c)
{
	cf_open(&r, 0, NULL);
	c->s = cf_stream(&r, "s");
	c->side = cf_stream(&r, "side");
	c->up = cf_pinned(&r, 64);
	c->down = cf_pinned(&r, 64);
	c->dev = cf_alloc(&r, 4096);
	atomic_store(&c->n, 0);
	memset(c->up.host, 0, 64);
	cf_put(&r, c->dev.range.addr, c->up.host, 64);
}

static void chain_close(struct chain *c)
{
	cf_free(&r, &c->up);
	cf_free(&r, &c->dev);
	cf_free(&r, &c->down);
	cf_destroy(&r, c->s);
	cf_destroy(&r, c->side);
	cf_close(&r);
}

static void chain_work(struct chain *c)
{
	genai_addr a = c->dev.range.addr;

	cf_copy(&r, c->s, a + 24, a + 16, 8, GENAI_COPY_D2D);
	cf_copy(&r, c->s, a + 16, a + 8, 8, GENAI_COPY_D2D);
	cf_copy(&r, c->s, a + 8, a, 8, GENAI_COPY_D2D);
	cf_copy(&r, c->s, a, (uintptr_t)c->up.host, 8, GENAI_COPY_H2D);
	cf_call(&r, c->s, "count", count, &c->n);
}

// Two streams: the side one fetches, joined both ways.
static void chain_work_joined(struct chain *c)
{
	genai_addr a = c->dev.range.addr;

	cf_copy(&r, c->s, a + 24, a + 16, 8, GENAI_COPY_D2D);
	cf_copy(&r, c->s, a + 16, a + 8, 8, GENAI_COPY_D2D);
	cf_copy(&r, c->s, a + 8, a, 8, GENAI_COPY_D2D);
	cf_wait(&r, c->side, cf_mark(&r, c->s));
	cf_copy(&r, c->side, a, (uintptr_t)c->up.host, 8, GENAI_COPY_H2D);
	cf_call(&r, c->side, "count", count, &c->n);
	cf_wait(&r, c->s, cf_mark(&r, c->side));
	cf_copy(&r, c->s, a + 32, a, 8, GENAI_COPY_D2D);
}

static void chain_check(struct chain *c, uint64_t newest)
{
	uint64_t got[4];

	cf_get(&r, got, c->dev.range.addr, sizeof(got));
	for (uint64_t i = 0; i < 4; i++)
		ck_assert_msg(got[i] == (newest > i ? newest - i : 0),
			      "after %lu times cell %lu holds %lu",
			      (unsigned long)newest, (unsigned long)i,
			      (unsigned long)got[i]);
	ck_assert_uint_eq((uint64_t)c->n, newest);
}

static void replay_chain(struct chain *c, void (*work)(struct chain *c))
{
	struct genai_recording *rec;
	uint64_t *source = c->up.host, k = 0;

	CF_OK(r.st->capture_begin(r.d, c->s, &cf_err));
	work(c);
	rec = end(c->s);
	cf_drain(&r);
	chain_check(c, 0); // nothing ran while recording
	for (int i = 0; i < 3; i++) {
		*source = ++k;
		CF_OK(r.st->launch_graph(r.d, rec, c->s, &cf_err));
		cf_finish(&r, c->s);
		chain_check(c, k);
		*source = ++k; // eager work between replays
		work(c);
		cf_finish(&r, c->s);
		chain_check(c, k);
	}
	for (int i = 0; i < 5; i++) // in a row, none waited for
		CF_OK(r.st->launch_graph(r.d, rec, c->s, &cf_err));
	cf_finish(&r, c->s);
	ck_assert_int_eq(c->n, 11);
	drop(rec);
}

static void replay(void)
{
	struct chain c;

	chain_open(&c);
	replay_chain(&c, chain_work);
	chain_close(&c);
}

static void replay_joined(void)
{
	struct chain c;

	chain_open(&c);
	replay_chain(&c, chain_work_joined);
	chain_close(&c);
}

// A recorded unit behind a closed gate: launch_graph does not wait either.
static void replay_no_blocking(void)
{
	struct genai_recording *rec;
	struct cf_gate g;
	struct chain c;

	chain_open(&c);
	CF_OK(r.st->capture_begin(r.d, c.s, &cf_err));
	chain_work_joined(&c);
	rec = end(c.s);
	cf_gate_close(&r, c.s, &g);
	for (int i = 0; i < 3; i++)
		CF_OK(r.st->launch_graph(r.d, rec, c.s, &cf_err));
	cf_mark(&r, c.s);
	cf_gate_check(&g, "launch_graph");
	ck_assert_int_eq(c.n, 0);
	cf_gate_open(&g);
	cf_finish(&r, c.s);
	ck_assert_int_eq(c.n, 3);
	drop(rec);
	chain_close(&c);
}

// Launched on another stream than it was recorded on: in that one's order, and
// the home stream is free.
static void replay_elsewhere(void)
{
	struct genai_recording *rec;
	struct cf_gate g;
	struct chain c;
	int32_t rc;

	chain_open(&c);
	CF_OK(r.st->capture_begin(r.d, c.s, &cf_err));
	chain_work(&c);
	rec = end(c.s);
	cf_gate_close(&r, c.side, &g);
	CF_CLEAR();
	rc = r.st->launch_graph(r.d, rec, c.side, &cf_err);
	if (rc == GENAI_E_INVAL) {
		cf_gate_open(&g);
		drop(rec);
		chain_close(&c);
		cf_skip("launches recordings on their own stream only");
	}
	CF_OK(rc);
	cf_finish(&r, c.s); // nothing there
	cf_gate_check(&g, "launch_graph");
	ck_assert_msg(c.n == 0, "the replay did not wait for its stream");
	cf_gate_open(&g);
	cf_finish(&r, c.side);
	ck_assert_int_eq(c.n, 1);
	drop(rec);
	chain_close(&c);
}

static void usable(struct chain *c)
{
	int before = c->n;

	cf_call(&r, c->s, "count", count, &c->n);
	cf_call(&r, c->side, "count", count, &c->n);
	cf_drain(&r);
	ck_assert_msg(c->n == before + 2,
		      "the streams are not usable after a failed recording");
	CF_OK(r.st->capture_begin(r.d, c->s, &cf_err));
	cf_call(&r, c->s, "count", count, &c->n);
	drop(end(c->s));
	ck_assert_int_eq(c->n, before + 2);
}

static void spoilt(void)
{
	struct genai_recording *rec = (void *)&r;
	struct chain c;

	chain_open(&c);
	CF_FAILS(GENAI_E_STATE, r.st->capture_end(r.d, c.s, &rec, &cf_err));
	CF_FAILS(GENAI_E_STATE, r.st->capture_abort(r.d, c.s, &cf_err));
	CF_OK(r.st->capture_begin(r.d, c.s, &cf_err));
	CF_FAILS(GENAI_E_STATE, r.st->capture_begin(r.d, c.s, &cf_err));
	chain_work(&c);
	CF_OK(r.st->capture_abort(r.d, c.s, &cf_err));
	usable(&c);
	// a call that fails spoils it
	CF_OK(r.st->capture_begin(r.d, c.s, &cf_err));
	CF_FAILS(0, r.st->copy(r.d, c.s, c.dev.range.addr, (uintptr_t)&c, 8,
			       GENAI_COPY_H2D, &cf_err));
	CF_FAILS(0, r.st->capture_end(r.d, c.s, &rec, &cf_err));
	usable(&c);
	// a stream that was joined and not joined back
	CF_OK(r.st->capture_begin(r.d, c.s, &cf_err));
	cf_wait(&r, c.side, cf_mark(&r, c.s));
	cf_call(&r, c.side, "count", count, &c.n);
	CF_FAILS(GENAI_E_STATE, r.st->capture_end(r.d, c.s, &rec, &cf_err));
	ck_assert_msg(rec == (void *)&r, "an output was written on failure");
	usable(&c);
	chain_close(&c);
}

// As below, from a thread that has nothing to do with the recording.
static void *take_elsewhere(void *arg)
{
	struct genai_mem m = {.size = sizeof(m)};

	*(int32_t *)arg = r.d->raw.alloc(r.d->raw_self, GENAI_MEM_DEVICE, 64,
					 "x", &m, NULL);
	return NULL;
}

// What may not happen while a recording is open on any stream.
static void forbidden(void)
{
	int32_t elsewhere = 0;
	pthread_t thread;
	struct genai_mem m = {.size = 1};
	struct genai_recording *rec;
	char page[64];
	struct chain c;
	bool registers;

	chain_open(&c);
	registers = cf_registers(&r);
	CF_OK(r.st->capture_begin(r.d, c.s, &cf_err));
	chain_work(&c);
	CF_FAILS(GENAI_E_STATE, r.d->raw.alloc(r.d->raw_self, GENAI_MEM_DEVICE,
					       64, "x", &m, &cf_err));
	ck_assert(!pthread_create(&thread, NULL, take_elsewhere, &elsewhere));
	pthread_join(thread, NULL);
	ck_assert_msg(elsewhere == GENAI_E_STATE,
		      "alloc of another thread gave %s, expected "
		      "GENAI_E_STATE",
		      genai_status_name(elsewhere));
	CF_FAILS(GENAI_E_STATE,
		 r.d->raw.free(r.d->raw_self, c.dev.range.addr, NULL, &cf_err));
	CF_FAILS(registers ? GENAI_E_STATE : 0,
		 r.d->raw.host_register(r.d->raw_self, page, 64, &m, &cf_err));
	CF_OK(r.st->capture_abort(r.d, c.s, &cf_err));
	ck_assert_msg(m.size == 1, "an output was written on failure");
	CF_OK(r.st->capture_begin(r.d, c.s, &cf_err));
	chain_work(&c);
	rec = end(c.s);
	drop(rec);
	chain_close(&c);
}

static void forbidden_ranges(void)
{
	struct genai_range range = {0}, more = {0};
	struct genai_ticket t;
	struct chain c;

	chain_open(&c);
	CF_OK(r.st->reserve(r.d, 2 * r.caps.granule, &range, &cf_err));
	CF_OK(r.st->capture_begin(r.d, c.s, &cf_err));
	CF_FAILS(GENAI_E_STATE,
		 r.d->raw.map(r.d->raw_self,
			      (struct genai_range){range.addr, r.caps.granule},
			      "kv", &cf_err));
	CF_FAILS(GENAI_E_STATE, r.d->raw.reserve(r.d->raw_self, r.caps.granule,
						 &more, &cf_err));
	CF_OK(r.st->capture_abort(r.d, c.s, &cf_err));
	t = cf_drain(&r);
	CF_OK(r.st->unreserve(r.d, range, &t, &cf_err));
	chain_close(&c);
}

// Memory that a live recording names, and the recording itself, go only with a
// ticket, and in this order.
static void busy(void)
{
	struct genai_recording *rec;
	struct genai_ticket t;
	struct chain c;

	chain_open(&c);
	CF_OK(r.st->capture_begin(r.d, c.s, &cf_err));
	chain_work(&c);
	rec = end(c.s);
	t = cf_drain(&r);
	CF_FAILS(GENAI_E_BUSY, r.st->free(r.d, c.dev.range.addr, &t, &cf_err));
	CF_OK(r.st->launch_graph(r.d, rec, c.s, &cf_err));
	CF_FAILS(GENAI_E_STATE, r.st->graph_destroy(r.d, rec, &t, &cf_err));
	CF_FAILS(GENAI_E_STATE,
		 r.d->raw.graph_destroy(r.d->raw_self, rec, &t, &cf_err));
	CF_FAILS(GENAI_E_STATE,
		 r.d->raw.graph_destroy(r.d->raw_self, rec, NULL, &cf_err));
	t = cf_drain(&r);
	CF_FAILS(GENAI_E_BUSY, r.st->free(r.d, c.dev.range.addr, &t, &cf_err));
	CF_OK(r.st->graph_destroy(r.d, rec, &t, &cf_err));
	chain_close(&c);
}

// A point has a meaning inside or outside of a recording, not both.
static void inside_points(void)
{
	struct genai_recording *rec;
	struct genai_point eager, inside;
	struct chain c;

	chain_open(&c);
	cf_call(&r, c.side, "count", count, &c.n);
	eager = cf_mark(&r, c.side);
	cf_wait(&r, c.s, eager);
	CF_OK(r.st->capture_begin(r.d, c.s, &cf_err));
	cf_wait(&r, c.s, eager); // ordered after it already: records nothing
	cf_call(&r, c.s, "count", count, &c.n);
	inside = cf_mark(&r, c.s);
	rec = end(c.s);
	CF_FAILS(GENAI_E_STATE, r.st->wait(r.d, c.side, inside, &cf_err));
	CF_FAILS(GENAI_E_STATE, r.st->wait(r.d, c.s, inside, &cf_err));
	CF_OK(r.st->capture_begin(r.d, c.s, &cf_err));
	cf_call(&r, c.s, "count", count, &c.n);
	CF_FAILS(GENAI_E_STATE, r.st->wait(r.d, c.side, inside, &cf_err));
	CF_OK(r.st->capture_abort(r.d, c.s, &cf_err));
	CF_OK(r.st->launch_graph(r.d, rec, c.s, &cf_err));
	cf_finish(&r, c.s);
	ck_assert_int_eq(c.n, 2);
	usable(&c);
	drop(rec);
	chain_close(&c);
}

static int32_t break_down(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)mem;
	if (!atomic_load((atomic_int *)ctx))
		return 0;
	return genai_fail(err, GENAI_E_FORMAT, "broken on purpose");
}

static void replay_fails(void)
{
	struct genai_recording *rec;
	struct genai_ticket t;
	struct genai_point p;
	atomic_int bad = 1;
	struct chain c;

	chain_open(&c);
	CF_OK(r.st->capture_begin(r.d, c.s, &cf_err));
	cf_call(&r, c.s, "may fail", break_down, &bad);
	cf_call(&r, c.s, "count", count, &c.n);
	rec = end(c.s);
	CF_OK(r.st->launch_graph(r.d, rec, c.s, &cf_err));
	p = cf_mark(&r, c.s);
	CF_FAILS(GENAI_E_FORMAT,
		 r.ba->host_read(r.d, &p, 1, UINT64_MAX, &cf_err));
	ck_assert_int_eq(c.n, 0);
	t = cf_drain(&r);
	CF_OK(r.st->reset(r.d, &t, &cf_err));
	bad = 0;
	CF_OK(r.st->launch_graph(r.d, rec, c.s, &cf_err));
	cf_finish(&r, c.s);
	ck_assert_int_eq(c.n, 1);
	drop(rec);
	chain_close(&c);
}

static void replay_stats(void)
{
	struct genai_stream_stats a = {.size = sizeof(a)}, b = a;
	struct genai_recording *rec;
	struct chain c;

	chain_open(&c);
	CF_OK(r.st->capture_begin(r.d, c.s, &cf_err));
	chain_work(&c);
	rec = end(c.s);
	CF_OK(r.st->stats(r.d, &a, &cf_err));
	for (int i = 0; i < 4; i++)
		CF_OK(r.st->launch_graph(r.d, rec, c.s, &cf_err));
	cf_finish(&r, c.s);
	CF_OK(r.st->stats(r.d, &b, &cf_err));
	ck_assert_uint_eq(b.graph_launches - a.graph_launches, 4);
	ck_assert_uint_eq(b.h2d_bytes - a.h2d_bytes, 4 * 8);
	ck_assert_uint_eq(b.d2d_bytes - a.d2d_bytes, 4 * 24);
	drop(rec);
	chain_close(&c);
}

#define S GENAI_IFACE_STREAM
static const struct cf_test tests[] = {
	{"stream/replay", "GM-40", S, CF_RECORD, replay},
	{"stream/replay-joined", "GM-41", S, CF_RECORD, replay_joined},
	{"stream/replay-elsewhere", "GM-40", S, CF_RECORD, replay_elsewhere},
	{"stream/replay-no-blocking", "GM-42", S, CF_RECORD,
	 replay_no_blocking},
	{"stream/recording-spoilt", "GM-43", S, CF_RECORD, spoilt},
	{"stream/recording-forbids", "GM-44", S, CF_RECORD, forbidden},
	{"stream/recording-forbids-ranges", "GM-44", S, CF_RECORD | CF_RESERVE,
	 forbidden_ranges},
	{"stream/recording-busy", "GM-45", S, CF_RECORD, busy},
	{"stream/recording-points", "GM-46", S, CF_RECORD, inside_points},
	{"stream/replay-fails", "GM-47", S, CF_RECORD, replay_fails},
	{"stream/replay-stats", "GM-48", S, CF_RECORD, replay_stats},
};
const struct cf_suite cf_suite_record = {tests,
					 sizeof(tests) / sizeof(tests[0])};
