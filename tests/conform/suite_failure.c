// suite_failure.c - every call that a pager makes refused in turn; steps and
// recordings that break off with visits held; and all is well afterwards.
#include "tests/conform/book.h"
#include "tests/conform/rig.h"

#include <stdio.h>
#include <string.h>

static struct book b;

static void open_book(uint64_t seed)
{
	book_open_sealed(&b, seed, 24, NULL);
	CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "the first step");
	book_forget(&b);
}

static void close_book(void)
{
	book_close(&b);
	book_free(&b);
}

static void steps(int n, const char *when)
{
	for (int i = 0; i < n; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, when);
	book_forget(&b);
}

static void mend(void)
{
	struct genai_ticket t = cf_drain(&b.r);

	CF_OK(b.r.st->reset(b.r.d, &t, &cf_err));
	CF_OK(b.ops->reset(b.p, &t, &cf_err));
}

// The n-th copy, point, wait or barrier of seal.
static void try_seal(uint32_t n, bool *reached)
{
	uint32_t holds = book_tap.holds;
	uint64_t bytes = book_tap.device_bytes;
	int32_t rc;

	book_tap.fail_call = n;
	memset(&b.report, 0, sizeof(b.report));
	CF_CLEAR();
	rc = book_seal(&b, b.total / 2, &cf_err);
	*reached = !book_tap.fail_call;
	book_tap.fail_call = 0;
	ck_assert_msg(rc || !*reached,
		      "call %u of seal was refused, and nobody noticed", n);
	if (!rc)
		return;
	ck_assert_msg(rc == GENAI_E_LIMIT && cf_err.text[0],
		      "call %u of seal was refused: %s: %s", n,
		      genai_status_name(rc), cf_err.text);
	ck_assert_msg(!b.report.pinned_bytes && !b.report.ring_bytes,
		      "an output was written on failure");
	ck_assert_msg(book_tap.holds == holds && book_tap.device_bytes == bytes,
		      "call %u of seal was refused: it holds %u things more "
		      "than before",
		      n, book_tap.holds - holds);
}

static void seal_calls(void)
{
	bool reached = true;

	book_make(&b, 101, 18);
	book_open(&b, NULL);
	for (uint32_t n = 1; reached; n++)
		try_seal(n, &reached);
	for (int i = 0; i < 3; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "after refusals in seal");
	close_book();
}

// The n-th copy, point or wait that the pager makes in a step, or in the reset
// that follows.
static void step_calls(void)
{
	bool reached = true;
	char when[80];

	open_book(102);
	for (uint32_t n = 1; reached && n < 400; n++) {
		int32_t rc;

		book_tap.fail_call = n;
		CF_CLEAR();
		rc = book_step(&b, 0, &cf_err);
		reached = !book_tap.fail_call;
		book_tap.fail_call = 0;
		ck_assert_msg(rc || !reached,
			      "call %u of a step was refused, and nobody "
			      "noticed",
			      n);
		ck_assert_msg(!rc || (rc == GENAI_E_LIMIT && cf_err.text[0]),
			      "call %u of a step was refused: %s: %s", n,
			      genai_status_name(rc), cf_err.text);
		if (rc)
			mend();
		snprintf(when, sizeof(when), "after call %u was refused", n);
		steps(n % 3 ? 1 : 2, when);
	}
	close_book();
}

static void reset_calls(void)
{
	bool reached = true;

	open_book(103);
	for (uint32_t n = 1; reached && n < 100; n++) {
		struct genai_ticket t = cf_drain(&b.r);
		int32_t rc;

		book_tap.fail_call = n;
		CF_CLEAR();
		rc = b.ops->reset(b.p, &t, &cf_err);
		if (!rc)
			rc = b.ops->replay_begin(b.p, b.s, &cf_err);
		reached = !book_tap.fail_call;
		book_tap.fail_call = 0;
		ck_assert_msg(rc || !reached,
			      "call %u of reset and replay_begin was "
			      "refused, and nobody noticed",
			      n);
		mend();
		steps(2, "after a refusal in reset");
	}
	close_book();
}

// ---- broken off ----

static int32_t break_down(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)ctx;
	(void)mem;
	return genai_fail(err, GENAI_E_FORMAT, "broken on purpose");
}

// A page and the next one at most.
static bool may_hold(uint32_t first, uint32_t next)
{
	return b.turn[next] <= b.turn[first] + 1;
}

// As many visits as stop says, the last of them held as long as may be.
static void begin_step(int32_t recording, uint32_t stop)
{
	struct genai_place place;
	struct genai_point ready;
	uint32_t held = 0;

	CF_OK(b.ops->step_begin(b.p, b.s, recording, &cf_err));
	for (uint32_t v = 0; v < stop; v++) {
		while (!may_hold(held, v)) {
			CF_OK(b.ops->release(b.p, held, cf_mark(&b.r, b.s),
					     &cf_err));
			held++;
		}
		CF_OK(b.ops->acquire(b.p, v, b.s, &place, &ready, &cf_err));
		cf_wait(&b.r, b.s, ready);
	}
}

// With visits held, several times one after another, with and without work
// that failed.
static void broken(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t s = 0; s < n; s++) {
		book_open_sealed(&b, 110 + s, 24, cf_schedule(s));
		for (uint32_t k = 0; k < 9; k++) {
			begin_step(0, 1 + cf_below(&b.seed, b.n_visits));
			if (k % 3 == 0)
				cf_call(&b.r, b.s, "fails", break_down, NULL);
			mend();
			if (k % 4 != 2) // or broken twice in a row
				steps(1 + (int)k % 2, "after a broken step");
		}
		close_book();
	}
}

static struct genai_recording *record(void)
{
	struct genai_recording *rec = NULL;

	CF_OK(b.ops->replay_begin(b.p, b.s, &cf_err));
	CF_OK(b.r.st->capture_begin(b.r.d, b.s, &cf_err));
	CF_OK(book_step(&b, 1, &cf_err));
	CF_OK(b.r.st->capture_end(b.r.d, b.s, &rec, &cf_err));
	return rec;
}

static void drop(struct genai_recording *rec)
{
	struct genai_ticket t = cf_drain(&b.r);

	CF_OK(b.r.st->graph_destroy(b.r.d, rec, &t, &cf_err));
}

// A recording is left in the middle of a step.
static void recording_broken(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t k = 0; k < 2 * n; k++) {
		struct genai_recording *before = NULL, *after;

		book_open_sealed(&b, 120 + k, 24, cf_schedule(k / 2));
		steps(1, "the first step");
		if (k % 2) {
			before = record();
			CF_OK(b.ops->replay_begin(b.p, b.s, &cf_err));
			CF_OK(b.r.st->launch_graph(b.r.d, before, b.s,
						   &cf_err));
			book_replayed(&b);
			steps(1, "replayed once");
		}
		CF_OK(b.ops->replay_begin(b.p, b.s, &cf_err));
		CF_OK(b.r.st->capture_begin(b.r.d, b.s, &cf_err));
		begin_step(1, b.n_visits * (1 + k % 4) / 5);
		CF_OK(b.r.st->capture_abort(b.r.d, b.s, &cf_err));
		mend();
		if (before) {
			CF_OK(b.ops->replay_begin(b.p, b.s, &cf_err));
			CF_OK(b.r.st->launch_graph(b.r.d, before, b.s,
						   &cf_err));
			cf_drain(&b.r);
		}
		steps(2, "after a recording that broke off");
		after = record();
		for (int i = 0; i < 2; i++) {
			CF_OK(b.ops->replay_begin(b.p, b.s, &cf_err));
			CF_OK(b.r.st->launch_graph(b.r.d, after, b.s, &cf_err));
		}
		book_replayed(&b);
		steps(2, "recorded again");
		drop(after);
		if (before)
			drop(before);
		close_book();
	}
}

// ---- executors ----

static struct rig g;
static struct rig_graph made;

// The pager refuses the n-th visit of a step.
static void exec_refused(void)
{
	const int64_t ids[] = {9, 44};
	struct genai_graph *graph;
	struct genai_view max;
	struct genai_point signal;
	float want[2][LM_VOCAB], got[LM_VOCAB];
	bool reached = true;

	rig_open(&g, NULL);
	rig_need_lm(&g);
	graph = rig_lm(&made);
	rig_lm_view(&max);
	rig_plan(&g, graph, &max, 48);
	for (int i = 0; i < 2; i++)
		rig_lm_run(&g, &ids[i], 1, want[i]);
	rig_unplan(&g);
	// a device that is interpreted takes its time
	for (uint32_t n = 1; reached;
	     n += g.r.caps.flags & GENAI_STREAM_CAP_NATIVE ? 9 : 3) {
		struct genai_ticket t;
		int32_t rc = 0;

		rig_plan(&g, graph, &max, 48);
		rig_in(&g, 0, &ids[0], 2, (int64_t[]){1, 1});
		rig_outs(&g);
		// the first steps, one of which may be recorded
		g.refuse_visit = n;
		CF_CLEAR();
		for (int i = 0; !rc && i < 4; i++)
			rc = g.r.rt->exec.submit(g.plan, g.s, NULL, 0, &signal,
						 &cf_err);
		reached = !g.refuse_visit;
		g.refuse_visit = 0;
		ck_assert_msg(rc || !reached,
			      "visit %u was refused, and nobody noticed", n);
		ck_assert_msg(!rc || (rc == GENAI_E_LIMIT && cf_err.text[0]),
			      "visit %u was refused: %s: %s", n,
			      genai_status_name(rc), cf_err.text);
		t = cf_drain(&g.r);
		if (rc) {
			CF_OK(g.r.st->reset(g.r.d, &t, &cf_err));
			CF_OK(g.pager_ops.reset(g.pager.pager, &t, &cf_err));
		}
		for (int i = 0; i < 6; i++) {
			rig_lm_run(&g, &ids[i % 2], 1, got);
			ck_assert_msg(!memcmp(got, want[i % 2], sizeof(got)),
				      "step %d after a refused visit: other "
				      "numbers",
				      i);
		}
		rig_unplan(&g);
	}
	rig_close(&g);
	rig_graph_free(&made, graph);
}

#define P GENAI_IFACE_PAGER
static const struct cf_test tests[] = {
	{"pager/seal-calls", "GM-95", P, 0, seal_calls},
	{"pager/step-calls", "GM-95", P, 0, step_calls},
	{"pager/reset-calls", "GM-95", P, 0, reset_calls},
	{"pager/broken", "GM-96", P, 0, broken},
	{"pager/recording-broken", "GM-97", P, CF_RECORD | CF_STABLE,
	 recording_broken},
	{"executor/visit-refused", "GM-140", GENAI_IFACE_EXECUTOR, 0,
	 exec_refused},
};
const struct cf_suite cf_suite_failure = {tests,
					  sizeof(tests) / sizeof(tests[0])};
