// suite_paging.c - does every unit of work see the right bytes?  Random pages,
// visits, budgets and orders of release, under every schedule of the device,
// eagerly and replayed.
#include "tests/conform/book.h"

#include <stdio.h>

static struct book b;

static uint64_t pick_budget(void)
{
	static const uint32_t parts[] = {0, 5, 20, 30, 40, 50, 60, 75, 95};

	return b.total * parts[cf_below(&b.seed, 9)] / 100;
}

static void random_steps(const char *const *sets, uint64_t seed, uint32_t pages,
			 uint64_t budget)
{
	char when[120];

	book_make(&b, seed, pages);
	book_open(&b, sets);
	if (budget == UINT64_MAX)
		budget = pick_budget();
	CF_OK(book_seal(&b, budget, &cf_err));
	snprintf(when, sizeof(when), "seed %lu, budget %lu of %lu, %s",
		 (unsigned long)seed, (unsigned long)budget,
		 (unsigned long)b.total, sets && sets[0] ? sets[0] : "");
	for (int i = 0; i < 4; i++) {
		CF_OK(book_step(&b, 0, &cf_err));
		if (cf_below(&b.seed, 3) == 0)
			book_check(&b, when);
	}
	book_check(&b, when);
	book_close(&b);
	book_free(&b);
}

static void right_bytes(void)
{
	uint32_t n = cf_n_schedules(), seeds = cf.o.torture ? 200 : 12;

	for (uint32_t i = 0; i < n; i++)
		for (uint64_t seed = 1; seed <= seeds; seed++)
			random_steps(cf_schedule(i), 1000 * i + seed,
				     (uint32_t)(3 + seed * 7 % 36), UINT64_MAX);
}

// Few pages, many budgets: where a ring just fits and just does not.
static void tight(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t pages = 1; pages <= 9; pages++)
		for (uint32_t part = 5; part <= 95; part += 15)
			random_steps(cf_schedule((pages + part) % n), pages,
				     pages,
				     pages * UINT64_C(9000) * part / 100);
}

// A page has to wait for the last of its releases, whatever their order.
static void hold(void)
{
	struct genai_place place[BOOK_MAX_VISITS];
	struct genai_point ready, tail;
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++) {
		book_open_sealed(&b, 400 + i, 30, cf_schedule(i));
		for (int step = 0; step < 3; step++) {
			CF_OK(b.ops->step_begin(b.p, b.s, 0, &cf_err));
			for (uint32_t v = 0; v < b.n_visits;) {
				uint32_t to = v;

				// all visits of a page, released backwards
				do {
					CF_OK(b.ops->acquire(b.p, to, b.s,
							     &place[to], &ready,
							     &cf_err));
					cf_wait(&b.r, b.s, ready);
					to++;
				} while (to < b.n_visits &&
					 b.sweep[to].page == b.sweep[v].page);
				for (uint32_t k = to; k-- > v;) {
					b.visits[k].addr = place[k].addr;
					book_use(&b, k, &place[k]);
					CF_OK(b.ops->release(b.p, k,
							     cf_mark(&b.r, b.s),
							     &cf_err));
				}
				v = to;
			}
			CF_OK(b.ops->step_end(b.p, b.s, &tail, &cf_err));
		}
		book_check(&b, "released backwards");
		book_close(&b);
		book_free(&b);
	}
}

// As many visits at once as the pager lets: what it has given stays, and one
// that it refuses is there once others were released.
static void greedy(void)
{
	struct genai_place place[BOOK_MAX_VISITS];
	struct genai_point ready, tail;
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++) {
		book_open_sealed(&b, 430 + i, 30, cf_schedule(i));
		for (int step = 0; step < 3; step++) {
			uint32_t from = 0, to = 0;

			CF_OK(b.ops->step_begin(b.p, b.s, 0, &cf_err));
			while (to < b.n_visits) {
				int32_t rc;

				CF_CLEAR();
				rc = b.ops->acquire(b.p, to, b.s, &place[to],
						    &ready, &cf_err);
				if (!rc) {
					cf_wait(&b.r, b.s, ready);
					b.visits[to].addr = place[to].addr;
					to++;
				}
				if (!rc && to < b.n_visits)
					continue;
				if (rc && (rc != GENAI_E_STATE || from == to))
					ck_abort_msg("visit %u, with %u held: "
						     "%s",
						     to, to - from,
						     cf_err.text);
				for (uint32_t k = from; k < to; k++)
					book_use(&b, k, &place[k]);
				for (; from < to; from++)
					CF_OK(b.ops->release(b.p, from,
							     cf_mark(&b.r, b.s),
							     &cf_err));
			}
			CF_OK(b.ops->step_end(b.p, b.s, &tail, &cf_err));
		}
		book_check(&b, "held as long as may be");
		book_close(&b);
		book_free(&b);
	}
}

// A page that is used so often in a row, all of it at once.
#define TIMES 256
static void hold_one(void)
{
	struct genai_place place[TIMES];
	struct genai_point ready, tail;

	book_make_even(&b, 440, 4, TIMES);
	book_open(&b, NULL);
	CF_OK(book_seal(&b, b.total * 3 / 4, &cf_err));
	for (int step = 0; step < 3; step++) {
		CF_OK(b.ops->step_begin(b.p, b.s, 0, &cf_err));
		for (uint32_t v = 0; v < b.n_visits; v++) {
			struct genai_place *at = &place[v % TIMES];

			CF_OK(b.ops->acquire(b.p, v, b.s, at, &ready, &cf_err));
			cf_wait(&b.r, b.s, ready);
			b.visits[v].addr = at->addr;
			if (v % TIMES < TIMES - 1)
				continue;
			for (uint32_t k = 0; k < TIMES; k += 51)
				book_use(&b, v - k, &place[TIMES - 1 - k]);
			for (uint32_t k = 0; k < TIMES; k++)
				CF_OK(b.ops->release(b.p, v - k,
						     cf_mark(&b.r, b.s),
						     &cf_err));
		}
		CF_OK(b.ops->step_end(b.p, b.s, &tail, &cf_err));
	}
	book_check(&b, "256 visits of a page held at once");
	book_close(&b);
	book_free(&b);
}

// ---- recordings ----

static struct genai_recording *record(void)
{
	struct genai_recording *rec = NULL;

	CF_OK(b.ops->replay_begin(b.p, b.s, &cf_err));
	CF_OK(b.r.st->capture_begin(b.r.d, b.s, &cf_err));
	CF_OK(book_step(&b, 1, &cf_err));
	CF_OK(b.r.st->capture_end(b.r.d, b.s, &rec, &cf_err));
	return rec;
}

static void replay(struct genai_recording *rec)
{
	CF_OK(b.ops->replay_begin(b.p, b.s, &cf_err));
	CF_OK(b.r.st->launch_graph(b.r.d, rec, b.s, &cf_err));
	book_replayed(&b);
}

static void drop(struct genai_recording *rec)
{
	struct genai_ticket t = cf_drain(&b.r);

	CF_OK(b.r.st->graph_destroy(b.r.d, rec, &t, &cf_err));
}

// Recorded after steps, replayed several times, with eager steps in between,
// recorded again: all see the same bytes.
static void recorded(const char *const *sets, uint64_t seed)
{
	struct genai_recording *rec, *again;
	char when[100];

	book_make(&b, seed, (uint32_t)(8 + seed % 30));
	book_open(&b, sets);
	CF_OK(book_seal(&b, pick_budget(), &cf_err));
	snprintf(when, sizeof(when), "seed %lu, %s", (unsigned long)seed,
		 sets && sets[0] ? sets[0] : "");
	for (uint32_t i = 1 + cf_below(&b.seed, 2); i; i--)
		CF_OK(book_step(&b, 0, &cf_err));
	rec = record();
	book_check(&b, when);
	for (int i = 0; i < 3; i++)
		replay(rec);
	book_check(&b, when);
	for (int i = 0; i < 3; i++) {
		CF_OK(book_step(&b, 0, &cf_err));
		replay(rec);
		if (cf_below(&b.seed, 2))
			replay(rec);
	}
	CF_OK(book_step(&b, 0, &cf_err));
	again = record();
	replay(again);
	replay(rec);
	replay(again);
	CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, when);
	drop(rec);
	drop(again);
	book_close(&b);
	book_free(&b);
}

static void replays(void)
{
	uint32_t n = cf_n_schedules(), seeds = cf.o.torture ? 100 : 8;

	for (uint32_t i = 0; i < n; i++)
		for (uint64_t seed = 1; seed <= seeds; seed++)
			recorded(cf_schedule(i), 5000 + 100 * i + 3 * seed);
}

// The caller orders each step after the one before.
static void move_to(struct genai_stream *s)
{
	if (s != b.s)
		cf_wait(&b.r, s, cf_mark(&b.r, b.s));
	b.s = s;
}

// Steps and replays on two streams in turn: replay_begin orders the one that it
// is given.
static void two_streams(const char *const *sets, uint64_t seed)
{
	struct genai_recording *rec[2];
	struct genai_stream *s[2];

	book_make(&b, seed, (uint32_t)(8 + seed % 30));
	book_open(&b, sets);
	CF_OK(book_seal(&b, pick_budget(), &cf_err));
	s[0] = b.s;
	s[1] = cf_stream(&b.r, "other");
	for (int k = 0; k < 2; k++) {
		move_to(s[k]);
		CF_OK(book_step(&b, 0, &cf_err));
		rec[k] = record();
	}
	for (int i = 0; i < 12; i++) {
		move_to(s[i % 2]);
		if (cf_below(&b.seed, 2)) {
			CF_OK(book_step(&b, 0, &cf_err));
			move_to(s[!(i % 2)]);
		}
		replay(rec[b.s == s[1]]);
	}
	book_check(&b, "on two streams in turn");
	move_to(s[0]);
	drop(rec[0]);
	drop(rec[1]);
	cf_destroy(&b.r, s[1]);
	book_close(&b);
	book_free(&b);
}

static void replay_streams(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++)
		for (uint64_t seed = 1; seed <= 3; seed++)
			two_streams(cf_schedule(i), 9000 + 100 * i + 7 * seed);
}

// A recording that comes to nothing leaves the pager as it was.
static void recording_aborted(void)
{
	struct genai_recording *rec;

	book_open_sealed(&b, 77, 24, NULL);
	CF_OK(book_step(&b, 0, &cf_err));
	CF_OK(b.ops->replay_begin(b.p, b.s, &cf_err));
	CF_OK(b.r.st->capture_begin(b.r.d, b.s, &cf_err));
	CF_OK(book_step(&b, 1, &cf_err));
	CF_OK(b.r.st->capture_abort(b.r.d, b.s, &cf_err));
	book_aborted(&b);
	for (int i = 0; i < 2; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "after a recording that was dropped");
	rec = record();
	replay(rec);
	book_check(&b, "recorded again");
	drop(rec);
	book_close(&b);
	book_free(&b);
}

// ---- after an error ----

static int32_t break_down(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)ctx;
	(void)mem;
	return genai_fail(err, GENAI_E_FORMAT, "broken on purpose");
}

// A step that breaks down somewhere, and is recovered from.
static void break_a_step(void)
{
	struct genai_place place;
	struct genai_point ready, p;
	struct genai_ticket t;
	uint32_t stop = cf_below(&b.seed, b.n_visits);

	CF_OK(b.ops->step_begin(b.p, b.s, 0, &cf_err));
	for (uint32_t v = 0; v < stop; v++) {
		CF_OK(b.ops->acquire(b.p, v, b.s, &place, &ready, &cf_err));
		cf_wait(&b.r, b.s, ready);
		if (v == stop / 2)
			cf_call(&b.r, b.s, "fails", break_down, NULL);
		CF_OK(b.ops->release(b.p, v, cf_mark(&b.r, b.s), &cf_err));
	}
	p = cf_mark(&b.r, b.s);
	CF_CLEAR();
	b.r.ba->host_read(b.r.d, &p, 1, UINT64_MAX, &cf_err);
	t = cf_drain(&b.r);
	CF_OK(b.r.st->reset(b.r.d, &t, &cf_err));
	CF_OK(b.ops->reset(b.p, &t, &cf_err));
}

static void recover(const char *const *sets, uint64_t seed)
{
	book_open_sealed(&b, seed, 26, sets);
	for (uint32_t i = cf_below(&b.seed, 3); i; i--)
		CF_OK(book_step(&b, 0, &cf_err));
	break_a_step();
	for (int i = 0; i < 3; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "after an error and reset");
	book_close(&b);
	book_free(&b);
}

static void reset(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++)
		for (uint64_t seed = 1; seed <= 3; seed++)
			recover(cf_schedule(i), 9000 + 10 * i + seed);
}

// The device may fail when all of the step was enqueued, and the pager hear of
// it between two steps: what the ring was to hold never came.
static void reset_late(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < 2 * n; i++) {
		struct genai_place place;
		struct genai_point ready, tail;
		struct genai_ticket t;

		book_open_sealed(&b, 720 + i, 26, cf_schedule(i / 2));
		if (i % 2)
			CF_OK(book_step(&b, 0, &cf_err));
		CF_OK(b.ops->step_begin(b.p, b.s, 0, &cf_err));
		for (uint32_t v = 0; v < b.n_visits; v++) {
			CF_OK(b.ops->acquire(b.p, v, b.s, &place, &ready,
					     &cf_err));
			cf_wait(&b.r, b.s, ready);
			if (v == b.n_visits / 2)
				cf_call(&b.r, b.s, "fails", break_down, NULL);
			CF_OK(b.ops->release(b.p, v, cf_mark(&b.r, b.s),
					     &cf_err));
		}
		CF_OK(b.ops->step_end(b.p, b.s, &tail, &cf_err));
		t = cf_drain(&b.r);
		CF_OK(b.r.st->reset(b.r.d, &t, &cf_err));
		CF_OK(b.ops->reset(b.p, &t, &cf_err));
		for (int k = 0; k < 3; k++)
			CF_OK(book_step(&b, 0, &cf_err));
		book_check(&b, "after an error that came to light late");
		book_close(&b);
		book_free(&b);
	}
}

// What comes after a reset may be a step that was recorded before.
static void reset_replay(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++)
		for (uint64_t seed = 1; seed <= 4; seed++) {
			struct genai_recording *rec;

			book_open_sealed(&b, 700 + 10 * i + seed, 26,
					 cf_schedule(i));
			CF_OK(book_step(&b, 0, &cf_err));
			rec = record();
			replay(rec);
			break_a_step();
			replay(rec);
			CF_OK(book_step(&b, 0, &cf_err));
			replay(rec);
			book_check(&b, "replayed right after a reset");
			drop(rec);
			book_close(&b);
			book_free(&b);
		}
}

// Recorded before any step was run.
static void record_first(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++) {
		struct genai_recording *rec;

		book_open_sealed(&b, 800 + i, 26, cf_schedule(i));
		rec = record();
		replay(rec);
		CF_OK(book_step(&b, 0, &cf_err));
		replay(rec);
		book_check(&b, "recorded before any step");
		drop(rec);
		book_close(&b);
		book_free(&b);
	}
}

// Two pagers of one device do not disturb each other.
static void two_pagers(void)
{
	static struct book c;
	struct genai_ticket t;

	book_make(&c, 32, 20);
	book_open_sealed(&b, 31, 24, NULL);
	c.r = b.r;
	c.s = b.s;
	c.ops = b.ops;
	c.stream = b.stream;
	c.barrier = b.barrier;
	c.log = b.log;
	c.log_host = b.log_host;
	CF_OK(c.ops->open(genai_module_self(c.r.tested), &c.stream, &c.barrier,
			  &c.p, &cf_err));
	book_add_all(&c);
	CF_OK(book_seal(&c, c.total / 2, &cf_err));
	for (int i = 0; i < 4; i++) {
		CF_OK(book_step(&b, 0, &cf_err));
		c.log_used = b.log_used;
		CF_OK(book_step(&c, 0, &cf_err));
		b.log_used = c.log_used;
	}
	book_check(&b, "two pagers");
	book_check(&c, "two pagers");
	t = cf_drain(&b.r);
	CF_OK(c.ops->close(c.p, &t, &cf_err));
	CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "the other one closed");
	book_close(&b);
	book_free(&b);
	book_free(&c);
}

#define P GENAI_IFACE_PAGER
#define REC (CF_RECORD | CF_STABLE)
static const struct cf_test tests[] = {
	{"pager/right-bytes", "GM-84", P, 0, right_bytes},
	{"pager/tight-ring", "GM-84", P, 0, tight},
	{"pager/hold", "GM-85", P, 0, hold},
	{"pager/hold-many", "GM-85", P, 0, greedy},
	{"pager/hold-one", "GM-85", P, 0, hold_one},
	{"pager/replays", "GM-86", P, REC, replays},
	{"pager/replay-streams", "GM-86", P, REC, replay_streams},
	{"pager/recording-aborted", "GM-87", P, REC, recording_aborted},
	{"pager/reset", "GM-88", P, 0, reset},
	{"pager/reset-late", "GM-88", P, 0, reset_late},
	{"pager/reset-replay", "GM-88", P, REC, reset_replay},
	{"pager/record-first", "GM-98", P, REC, record_first},
	{"pager/two-pagers", "GM-89", P, 0, two_pagers},
};
const struct cf_suite cf_suite_paging = {tests,
					 sizeof(tests) / sizeof(tests[0])};
