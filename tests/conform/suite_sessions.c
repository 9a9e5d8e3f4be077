// suite_sessions.c - several plans of one model in turn, on one pager: each has
// its own buffers, and its own recordings.
#include "tests/conform/rig.h"

#include <stdio.h>
#include <string.h>

#define SESSIONS 3

static struct rig g[SESSIONS];
static struct rig_graph made;
static struct genai_graph *graph;
static const int64_t text[] = {5, 63, 0, 17, 17, 40, 2, 33, 9, 61, 12, 50};
#define N_TEXT 12
static float want[LM_STEP + 1][N_TEXT][LM_VOCAB];

static void reference(void)
{
	struct genai_view max;

	rig_open(&g[0], NULL);
	rig_need_lm(&g[0]);
	graph = rig_lm(&made);
	rig_lm_view(&max);
	for (int n = 1; n <= LM_STEP; n++) {
		rig_plan(&g[0], graph, &max, 0);
		for (int at = 0; at + n <= N_TEXT; at++)
			rig_lm_run(&g[0], &text[at], n, want[n][at]);
		rig_unplan(&g[0]);
	}
	rig_close(&g[0]);
	rig_graph_free(&made, graph);
}

static void open_sessions(const char *const *sets)
{
	struct genai_view max;

	rig_open(&g[0], sets);
	rig_need_lm(&g[0]);
	graph = rig_lm(&made);
	rig_lm_view(&max);
	rig_plan_paged(&g[0], graph, &max);
	for (int i = 1; i < SESSIONS; i++)
		rig_plan_shared(&g[i], &g[0], graph, &max);
}

static void close_sessions(void)
{
	for (int i = 1; i < SESSIONS; i++)
		rig_unplan(&g[i]);
	rig_close(&g[0]);
	rig_graph_free(&made, graph);
}

static void step(int session, int at, int n, const char *what)
{
	float got[LM_VOCAB];

	at %= N_TEXT - LM_STEP + 1;
	rig_lm_run(&g[session], &text[at], n, got);
	ck_assert_msg(!memcmp(got, want[n][at], sizeof(got)),
		      "%s: %d ids from %d on in session %d: other numbers",
		      what, n, at, session);
}

// Nothing is bound anew: another session was bound last.
static void step_as_bound(int session, int at)
{
	float got[LM_VOCAB];

	cf_put(&g[session].r, g[session].in[0].addr, &text[at],
	       sizeof(text[0]));
	rig_submit(&g[session]);
	rig_read(&g[session], got, sizeof(got));
	ck_assert_msg(!memcmp(got, want[1][at], sizeof(got)),
		      "as bound before: id %d in session %d: other numbers",
		      at, session);
}

static void in_turn(const char *pager, const char *part,
		    const char *const *schedule)
{
	char a[80], b[80], c[80];
	const char *sets[] = {a, b, c, schedule[0], NULL};
	uint64_t seed = cf_seed(4);

	snprintf(a, sizeof(a), "runtime.weight_budget=%s", part);
	snprintf(b, sizeof(b), "runtime.pager=%s", pager);
	snprintf(c, sizeof(c), "module.%s.page_bytes=4KiB", pager);
	open_sessions(sets);
	for (int i = 0; i < 12; i++) // recorded, one after another
		step(i / 4, i, 1, "alone");
	for (int i = 0; i < 18; i++)
		step(i % SESSIONS, i, 1, "in turn");
	for (int i = 0; i < 24; i++)
		step((int)cf_below(&seed, SESSIONS), i,
		     cf_below(&seed, 4) ? 1 : 1 + (int)cf_below(&seed, LM_STEP),
		     "as it comes");
	for (int i = 0; i < SESSIONS; i++)
		step(i, i, 1, "bound once more");
	for (int i = 0; i < 12; i++)
		step_as_bound(i % SESSIONS, i % N_TEXT);
	close_sessions();
}

static void sessions(void)
{
	static const char *const parts[] = {"100%", "50%", "20%", "0"};
	uint32_t n = cf_n_schedules();

	reference();
	for (uint32_t i = 0; i < n; i++)
		in_turn(i % 2 ? "pager_async" : "pager_sync", parts[i % 4],
			cf_schedule(i));
}

// One goes while the others stay.
static void one_goes(void)
{
	const char *const sets[] = {"runtime.weight_budget=50%", NULL};
	struct genai_view max;

	reference();
	open_sessions(sets);
	rig_lm_view(&max);
	for (int round = 0; round < 6; round++) {
		int gone = 1 + round % (SESSIONS - 1);

		for (int i = 0; i < 9; i++)
			step(i % SESSIONS, i, 1, "all");
		rig_unplan(&g[gone]);
		for (int i = 0; i < 9; i++)
			if (i % SESSIONS != gone)
				step(i % SESSIONS, i, 1, "one has gone");
		rig_plan_shared(&g[gone], &g[0], graph, &max);
	}
	close_sessions();
}

static const struct cf_test tests[] = {
	{"executor/sessions", "GM-141", GENAI_IFACE_EXECUTOR, 0, sessions},
	{"executor/session-goes", "GM-141", GENAI_IFACE_EXECUTOR, 0, one_goes},
};
const struct cf_suite cf_suite_sessions = {tests,
					   sizeof(tests) / sizeof(tests[0])};
