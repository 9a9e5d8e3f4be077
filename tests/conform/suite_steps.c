// suite_steps.c - an executor's steps: order, waiting, shapes, recordings, and
// the same numbers whatever the pager and the schedule do.
#include "tests/conform/rig.h"

#include <stdio.h>
#include <string.h>

static struct rig g;
static struct rig_graph made;
static struct genai_graph *graph;
static const int64_t text[] = {5, 63, 0, 17, 17, 40, 2, 33, 9, 61, 12, 50};
#define N_TEXT 12

static void need_lm(void)
{
	rig_need_lm(&g);
}

static void lm_open(const char *const *sets, uint64_t cut)
{
	struct genai_view max;

	rig_open(&g, sets);
	need_lm();
	graph = rig_lm(&made);
	rig_lm_view(&max);
	rig_plan(&g, graph, &max, cut);
}

static void lm_close(void)
{
	rig_close(&g);
	rig_graph_free(&made, graph);
	graph = NULL;
}

// The text one id at a time; logits of each.
static void one_by_one(float out[N_TEXT][LM_VOCAB])
{
	for (int i = 0; i < N_TEXT; i++)
		rig_lm_run(&g, &text[i], 1, out[i]);
}

static float first[N_TEXT][LM_VOCAB], other[N_TEXT][LM_VOCAB];
// rows[n][at]: of the last of n ids from at on, computed together.
static float rows[LM_STEP + 1][N_TEXT][LM_VOCAB];

static void reference(void)
{
	lm_open(NULL, 0);
	one_by_one(first);
	lm_close();
}

// A plan for each number of rows.
static void reference_rows(void)
{
	for (int n = 1; n <= LM_STEP; n++) {
		lm_open(NULL, 0);
		for (int at = 0; at + n <= N_TEXT; at++)
			rig_lm_run(&g, &text[at], n, rows[n][at]);
		lm_close();
	}
}

static void same(const char *what)
{
	for (int i = 0; i < N_TEXT; i++)
		ck_assert_msg(!memcmp(first[i], other[i], sizeof(first[i])),
			      "%s: step %d gave other numbers", what, i);
}

// ---- the same numbers ----

static void schedules(void)
{
	uint32_t n = cf_n_schedules();

	reference();
	for (uint32_t i = 0; i < n; i++) {
		const char *const *sets = cf_schedule(i);

		for (uint64_t cut = 0; cut <= 48; cut += 24) {
			lm_open(sets, cut);
			one_by_one(other);
			same(sets[0] ? sets[0] : "tiles");
			lm_close();
		}
	}
}

// Rows of a step do not see each other, in the order of sums either.
static void chunks(void)
{
	reference_rows();
	for (int n = 2; n <= LM_STEP; n++)
		for (int at = 0; at + n <= N_TEXT; at++)
			ck_assert_msg(!memcmp(rows[n][at], rows[1][at + n - 1],
					      sizeof(rows[n][at])),
				      "%d rows at once give other numbers", n);
}

static uint32_t budget(const char *const *schedule, const char *pager,
		       const char *part)
{
	char a[80], b[80], c[80];
	const char *sets[] = {a, b, c, NULL, NULL};
	struct genai_view max;
	uint32_t streamed;

	snprintf(a, sizeof(a), "runtime.weight_budget=%s", part);
	snprintf(b, sizeof(b), "runtime.pager=%s", pager);
	snprintf(c, sizeof(c), "module.%s.page_bytes=4KiB", pager);
	sets[3] = schedule[0];
	rig_open(&g, sets);
	need_lm();
	graph = rig_lm(&made);
	rig_lm_view(&max);
	rig_plan_paged(&g, graph, &max);
	streamed = g.paging.report.n_streamed;
	one_by_one(other);
	snprintf(c, sizeof(c), "%s, budget %s", pager, part);
	same(c);
	one_by_one(other);
	same(c);
	lm_close();
	return streamed;
}

static void budgets(void)
{
	static const char *const parts[] = {"auto", "100%", "75%", "50%",
					    "25%",  "10%",  "0"};
	static const char *const pagers[] = {"pager_sync", "pager_async"};
	uint32_t n = cf_n_schedules(), streamed = 0;

	reference();
	for (uint32_t p = 0; p < 2; p++)
		for (uint32_t i = 0; i < 7; i++)
			for (uint32_t s = 0; s < n; s += 2)
				streamed += budget(cf_schedule(s), pagers[p],
						   parts[i]);
	ck_assert_msg(streamed > 0, "nothing was streamed under any budget");
}

// ---- order ----

static void no_blocking(void)
{
	struct genai_point signal;
	struct cf_gate gate;
	float out[LM_VOCAB];

	reference();
	lm_open(NULL, 0);
	for (int i = 0; i < 4; i++) // whatever it does when warm
		rig_lm_run(&g, &text[0], 1, out);
	g.barriers = 0;
	cf_gate_close(&g.r, g.s, &gate);
	for (int i = 0; i < 3; i++)
		CF_OK(g.r.rt->exec.submit(g.plan, g.s, NULL, 0, &signal,
					  &cf_err));
	ck_assert_msg(!g.barriers, "submit called a barrier");
	cf_gate_check(&gate, "submit");
	cf_gate_open(&gate);
	rig_read(&g, out, sizeof(out));
	ck_assert_mem_eq(out, first[0], sizeof(out));
	lm_close();
}

// The first steps do not wait either.
static void no_blocking_cold(void)
{
	struct genai_point signal;
	struct cf_gate gate;
	float out[LM_VOCAB];

	reference();
	lm_open(NULL, 0);
	rig_in(&g, 0, &text[0], 2, (int64_t[]){1, 1});
	rig_outs(&g);
	g.barriers = 0;
	cf_gate_close(&g.r, g.s, &gate);
	for (int i = 0; i < 4; i++)
		CF_OK(g.r.rt->exec.submit(g.plan, g.s, NULL, 0, &signal,
					  &cf_err));
	ck_assert_msg(!g.barriers, "submit called a barrier");
	cf_gate_check(&gate, "submit");
	cf_gate_open(&gate);
	rig_read(&g, out, sizeof(out));
	ck_assert_mem_eq(out, first[0], sizeof(out));
	lm_close();
}

// The input comes late, on another stream; the output goes away early.
static void wait_and_signal(const char *const *sets)
{
	struct genai_stream *feed, *fetch;
	struct genai_mem in, out, junk;
	struct genai_point ready, signal, fetched = {0};
	struct cf_gate gate;
	float *logits;

	lm_open(sets, 0);
	feed = cf_stream(&g.r, "feed");
	fetch = cf_stream(&g.r, "fetch");
	in = cf_pinned(&g.r, sizeof(text));
	out = cf_pinned(&g.r, sizeof(other));
	junk = cf_pinned(&g.r, sizeof(other[0]));
	memcpy(in.host, text, sizeof(text));
	memset(junk.host, 0x55, sizeof(other[0]));
	rig_lm_run(&g, &text[11], 1, other[0]);
	cf_gate_close(&g.r, feed, &gate);
	ready = cf_mark(&g.r, g.s);
	for (uint64_t i = 0; i < N_TEXT; i++) {
		// most of them reached long ago
		struct genai_point wait[10] = {{NULL, 0}};

		cf_wait(&g.r, feed, i ? signal : ready);
		cf_copy(&g.r, feed, g.in[0].addr,
			(uintptr_t)in.host + i * sizeof(text[0]),
			sizeof(text[0]), GENAI_COPY_H2D);
		wait[7] = cf_mark(&g.r, feed);
		wait[9] = fetched;
		CF_OK(g.r.rt->exec.submit(g.plan, g.s, wait, 10, &signal,
					  &cf_err));
		cf_wait(&g.r, fetch, signal);
		cf_copy(&g.r, fetch, (uintptr_t)out.host + i * sizeof(other[0]),
			g.out[0].addr, sizeof(other[0]), GENAI_COPY_D2H);
		cf_copy(&g.r, fetch, g.out[0].addr, (uintptr_t)junk.host,
			sizeof(other[0]), GENAI_COPY_H2D);
		fetched = cf_mark(&g.r, fetch);
	}
	cf_gate_check(&gate, "submit");
	cf_gate_open(&gate);
	CF_OK(g.r.ba->host_read(g.r.d, &fetched, 1, UINT64_MAX, &cf_err));
	logits = out.host;
	memcpy(other, logits, sizeof(other));
	same("fed from another stream");
	cf_free(&g.r, &in);
	cf_free(&g.r, &out);
	cf_free(&g.r, &junk);
	cf_destroy(&g.r, feed);
	cf_destroy(&g.r, fetch);
	lm_close();
}

static void points(void)
{
	uint32_t n = cf_n_schedules();

	reference();
	for (uint32_t i = 0; i < n; i++)
		wait_and_signal(cf_schedule(i));
}

// ---- bindings ----

static void rebind_shape(void)
{
	static const int sizes[] = {1, 3, 2, 4, 1, 1, 4, 1, 2, 3, 1};
	float got[LM_VOCAB];
	int at = 0;

	reference_rows();
	lm_open(NULL, 24);
	for (int round = 0; round < 4; round++)
		for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]);
		     i++) {
			at = at + sizes[i] <= N_TEXT ? at : 0;
			rig_lm_run(&g, &text[at], sizes[i], got);
			ck_assert_int_eq(g.out[0].dims[1], sizes[i]);
			ck_assert_msg(
				!memcmp(got, rows[sizes[i]][at], sizeof(got)),
				"%d rows after other shapes: other "
				"numbers",
				sizes[i]);
			at += sizes[i];
		}
	lm_close();
}

// Every step of a shape that is repeated was replayed, or is told of.
static void check_fallbacks(void)
{
	struct genai_exec_stats st = {.size = sizeof(st)};
	uint64_t told = 0;

	CF_OK(g.r.rt->exec.stats(g.plan, &st, &cf_err));
	if (!(g.r.rt->exec_caps.flags & GENAI_EXEC_CAP_RECORDS) ||
	    st.n_fallbacks > 8)
		return;
	for (uint32_t i = 0; i < st.n_fallbacks; i++) {
		ck_assert_msg(st.fallbacks[i].reason[0],
			      "fallback %u has no reason", i);
		told += st.fallbacks[i].count;
	}
	ck_assert_msg(st.captures + st.replays + told >= st.steps,
		      "of %lu equal steps %lu were recorded, %lu replayed, "
		      "and %lu are told to have run eagerly",
		      (unsigned long)st.steps, (unsigned long)st.captures,
		      (unsigned long)st.replays, (unsigned long)told);
}

// Buffers move among n places, without a barrier.
static void moving(uint32_t n)
{
	struct genai_mem places;
	struct genai_view in, out;
	float got[LM_VOCAB];

	lm_open(NULL, 0);
	places = cf_alloc(&g.r, n * UINT64_C(4096));
	rig_in(&g, 0, &text[0], 2, (int64_t[]){1, 1});
	rig_outs(&g);
	in = g.in[0];
	out = g.out[0];
	for (uint32_t i = 0; i < 6 * n; i++) {
		uint32_t at = i % (2 * n) / 2, id = i % N_TEXT;

		in.addr = places.range.addr + at * UINT64_C(4096);
		out.addr = in.addr + 2048;
		cf_put(&g.r, in.addr, &text[id], sizeof(text[id]));
		CF_OK(g.r.rt->exec.bind_input(g.plan, 0, &in, &cf_err));
		CF_OK(g.r.rt->exec.bind_output(g.plan, 0, &out, &cf_err));
		rig_submit(&g);
		cf_finish(&g.r, g.s);
		cf_get(&g.r, got, out.addr, sizeof(got));
		ck_assert_msg(!memcmp(got, first[id], sizeof(got)),
			      "step %u after buffers moved: other numbers", i);
	}
	check_fallbacks();
	ck_assert_msg(!g.barriers, "submit called a barrier");
	rig_unplan(&g); // lets go of recordings that name the buffers
	cf_free(&g.r, &places);
	lm_close();
}

static void rebind_address(void)
{
	reference();
	moving(2);
	moving(20);
}

#define SUMS 12 // and as many inputs
#define WIDE 64

// Output k is input k + input k + 1, of every pair of neighbours in a ring.
static void sums(int64_t n_rows)
{
	const int64_t dims[] = {n_rows, WIDE};
	struct genai_view max[SUMS];
	uint32_t in[SUMS], out[SUMS];

	rig_graph_begin(&made);
	for (uint32_t i = 0; i < SUMS; i++) {
		char name[8] = {'x', (char)('0' + i)};

		in[i] = rig_input(&made, name, GENAI_DT_F32, 2, dims);
		max[i] = rig_view(GENAI_DT_F32, 2, dims);
	}
	for (uint32_t i = 0; i < SUMS; i++) {
		char name[8] = {'y', (char)('0' + i)};

		out[i] = rig_float_value(&made, name);
		rig_node(&made, "Add", "", name,
			 (uint32_t[]){in[i], in[(i + 1) % SUMS]}, 2, out[i]);
		if (i + 1 < SUMS)
			genai_builder_output(made.b, out[i]);
	}
	graph = rig_graph_end(&made, out[SUMS - 1]);
	rig_plan(&g, graph, max, 0);
}

// In step s of 24, by bits that differ from each other.
// The first steps each by itself, the last all of them to and fro.
static bool moved(uint32_t s, uint32_t i)
{
	if (s >= 24)
		return s & 1;
	return (s * UINT32_C(2654435761) >> (i + 12)) & 1;
}

// Every input and every output moves, each by itself: not only the first.
static void rebind_each(void)
{
	const int64_t dims[] = {1, WIDE};
	const uint64_t room = 4096 + 16; // no more is an address a multiple of
	struct genai_mem places;
	genai_addr from;
	float x[2 * SUMS][WIDE], got[WIDE];
	struct genai_view v = rig_view(GENAI_DT_F32, 2, dims);

	rig_open(&g, NULL);
	rig_need_op(&g, "", "Add");
	sums(1);
	places = cf_alloc(&g.r, 4 * SUMS * room);
	from = places.range.addr + 16;
	for (int i = 0; i < 2 * SUMS; i++) {
		for (int k = 0; k < WIDE; k++)
			x[i][k] = (float)((i + 1) * 1000 + k);
		cf_put(&g.r, from + (uint64_t)i * room, x[i], sizeof(x[i]));
	}
	// step s: input i is at place i or SUMS + i
	for (uint32_t s = 0; s < 32; s++) {
		for (uint32_t i = 0; i < SUMS; i++) {
			const uint32_t at = i + (moved(s, i) ? SUMS : 0);

			v.addr = from + at * room;
			CF_OK(g.r.rt->exec.bind_input(g.plan, i, &v, &cf_err));
			v.addr += 2 * SUMS * room;
			CF_OK(g.r.rt->exec.bind_output(g.plan, i, &v, &cf_err));
		}
		rig_submit(&g);
		cf_finish(&g.r, g.s);
		for (uint32_t i = 0; i < SUMS; i++) {
			const uint32_t n = (i + 1) % SUMS;
			const uint32_t at = i + (moved(s, i) ? SUMS : 0);
			const uint32_t next = n + (moved(s, n) ? SUMS : 0);

			cf_get(&g.r, got, from + (2 * SUMS + at) * room,
			       sizeof(got));
			for (int k = 0; k < WIDE; k++)
				ck_assert_msg(got[k] == x[at][k] + x[next][k],
					      "step %u, output %u after it "
					      "moved: value %d is %g, not %g",
					      s, i, k, (double)got[k],
					      (double)(x[at][k] + x[next][k]));
		}
	}
	rig_unplan(&g);
	cf_free(&g.r, &places);
	lm_close();
}

// More shapes than a module keeps, each several times.
#define SHAPES 40
static void many_shapes(void)
{
	const uint64_t room = SHAPES * WIDE * sizeof(float);
	static float x[SUMS][SHAPES * WIDE], y[SUMS][SHAPES * WIDE];
	struct genai_mem places;

	rig_open(&g, NULL);
	rig_need_op(&g, "", "Add");
	sums(SHAPES);
	places = cf_alloc(&g.r, 2 * SUMS * room);
	for (int i = 0; i < SUMS; i++) {
		for (int k = 0; k < SHAPES * WIDE; k++)
			x[i][k] = (float)((i + 1) * 10000 + k);
	}
	cf_put(&g.r, places.range.addr, x, sizeof(x));
	for (uint32_t s = 0; s < 2 * SHAPES; s++) {
		const int64_t n = s * 7 % SHAPES + 1, dims[] = {n, WIDE};
		struct genai_view v = rig_view(GENAI_DT_F32, 2, dims);

		for (uint32_t i = 0; i < SUMS; i++) {
			v.addr = places.range.addr + i * room;
			CF_OK(g.r.rt->exec.bind_input(g.plan, i, &v, &cf_err));
			v.addr += SUMS * room;
			CF_OK(g.r.rt->exec.bind_output(g.plan, i, &v, &cf_err));
		}
		rig_submit(&g);
		cf_finish(&g.r, g.s);
		cf_get(&g.r, y, places.range.addr + SUMS * room, sizeof(y));
		for (uint32_t i = 0; i < SUMS; i++) {
			const float *a = x[i], *b = x[(i + 1) % SUMS];

			// a million of ck_assert would write a million times
			for (int k = 0; k < n * WIDE; k++)
				if (y[i][k] != a[k] + b[k])
					ck_abort_msg("step %u, of %d rows, the "
						     "%u. shape: output %u has "
						     "%g, should have %g",
						     s, (int)n, s % SHAPES + 1,
						     i, (double)y[i][k],
						     (double)(a[k] + b[k]));
		}
	}
	cf_free(&g.r, &places);
	lm_close();
}

static void other_stream(void)
{
	struct genai_stream *s, *home;
	float got[LM_VOCAB];

	reference();
	lm_open(NULL, 0);
	s = cf_stream(&g.r, "other");
	home = g.s;
	for (int i = 0; i < 24; i++) {
		g.s = i / 5 % 2 ? s : home;
		rig_lm_run(&g, &text[i % N_TEXT], 1, got);
		ck_assert_msg(!memcmp(got, first[i % N_TEXT], sizeof(got)),
			      "step %d on another stream: other numbers", i);
	}
	g.s = home;
	rig_unplan(&g);
	cf_destroy(&g.r, s);
	lm_close();
}

// A sum that is written over what it was made from: each submit counts once,
// the one that records and those that replay too.
static void state(void)
{
	const int64_t dims[] = {1, 64};
	uint32_t n = cf_n_schedules();
	float by[64], x[64];
	struct genai_view max = rig_view(GENAI_DT_F32, 2, dims);

	for (uint32_t s = 0; s < n; s++) {
		uint32_t in, w, out;

		rig_open(&g, cf_schedule(s));
		rig_need_op(&g, "", "Add");
		for (int i = 0; i < 64; i++)
			x[i] = by[i] = (float)(i + 1);
		rig_graph_begin(&made);
		in = rig_input(&made, "x", GENAI_DT_F32, 2, dims);
		w = rig_weight(&made, "by", GENAI_DT_F32, 2, dims, by);
		out = rig_float_value(&made, "y");
		rig_node(&made, "Add", "", "advance", (uint32_t[]){in, w}, 2,
			 out);
		graph = rig_graph_end(&made, out);
		rig_plan(&g, graph, &max, 0);
		rig_in(&g, 0, x, 2, dims);
		g.out[0] = g.in[0];
		rig_rebind(&g, false);
		for (int k = 1; k <= 12; k++) {
			rig_submit(&g);
			if (k % 4)
				continue;
			rig_read(&g, x, sizeof(x));
			for (int i = 0; i < 64; i++)
				ck_assert_msg(x[i] == by[i] * (float)(k + 1),
					      "%d submits counted %g times", k,
					      (double)(x[i] / by[i]) - 1);
		}
		lm_close();
	}
}

// ---- recordings ----

static void records(void)
{
	struct genai_exec_stats st = {.size = sizeof(st)};
	uint32_t steps;

	reference();
	lm_open(NULL, 0);
	one_by_one(other);
	same("recorded");
	steps = g.steps;
	one_by_one(other);
	same("replayed");
	CF_OK(g.r.rt->exec.stats(g.plan, &st, &cf_err));
	ck_assert_uint_eq(st.steps, 2 * N_TEXT);
	ck_assert_uint_le(st.n_fallbacks, 8);
	for (uint32_t i = 0; i < st.n_fallbacks; i++)
		ck_assert_msg(memchr(st.fallbacks[i].reason, 0,
				     sizeof(st.fallbacks[i].reason)) != NULL,
			      "reason %u of a fallback is not a string", i);
	ck_assert_msg(st.captures >= 1 && st.replays >= N_TEXT,
		      "%lu captures and %lu replays in %d equal steps",
		      (unsigned long)st.captures, (unsigned long)st.replays,
		      2 * N_TEXT);
	ck_assert_msg(g.begun == st.captures + st.replays,
		      "%u calls of replay_begin for %lu captures and %lu "
		      "replays",
		      g.begun, (unsigned long)st.captures,
		      (unsigned long)st.replays);
	ck_assert_msg(g.steps == steps,
		      "a replay calls the pager: %u times in %d steps",
		      g.steps - steps, N_TEXT);
	lm_close();
}

// Each repeated shape has a recording of its own.
static void records_shapes(void)
{
	struct genai_exec_stats st = {.size = sizeof(st)};
	struct genai_plan_options o;
	struct genai_view max, often[2];
	float got[LM_VOCAB];

	reference_rows();
	rig_open(&g, NULL);
	need_lm();
	graph = rig_lm(&made);
	rig_lm_view(&max);
	o = rig_options(&g, graph, &max);
	often[0] = g.repeated[0];
	often[1] = rig_view(GENAI_DT_I64, 2, (int64_t[]){1, 3});
	o.repeated = often;
	o.n_repeated = 2;
	CF_OK(rig_try_plan(&g, &o, graph, &cf_err));
	rig_adopt(&g, graph, &max, 40);
	for (int i = 0; i < 24; i++) {
		int many = i / 4 % 2 ? 3 : 1, at = i % (N_TEXT - 3);

		rig_lm_run(&g, &text[at], many, got);
		ck_assert_msg(!memcmp(got, rows[many][at], sizeof(got)),
			      "step %d of %d rows: other numbers", i, many);
	}
	CF_OK(g.r.rt->exec.stats(g.plan, &st, &cf_err));
	ck_assert_msg(st.captures >= 2 && st.replays >= 16,
		      "%lu captures and %lu replays in steps of two shapes",
		      (unsigned long)st.captures, (unsigned long)st.replays);
	lm_close();
}

// Prompts between recorded steps.
static void records_between(void)
{
	float got[LM_VOCAB];
	uint32_t n = cf_n_schedules();

	reference_rows();
	for (uint32_t s = 0; s < n; s++) {
		lm_open(cf_schedule(s), 40);
		for (int i = 0; i < 30; i++) {
			int many = i % 7 == 6 ? LM_STEP : 1;
			int at = i % (N_TEXT - LM_STEP);

			rig_lm_run(&g, &text[at], many, got);
			ck_assert_msg(!memcmp(got, rows[many][at], sizeof(got)),
				      "step %d of %d rows: other numbers", i,
				      many);
		}
		lm_close();
	}
}

// ---- failure ----

static void bad_index(void)
{
	const int64_t bad[] = {LM_VOCAB + 5};
	struct genai_ticket t;
	struct genai_point p;

	reference();
	lm_open(NULL, 0);
	rig_lm_run(&g, &text[3], 1, other[3]);
	rig_in(&g, 0, bad, 2, (int64_t[]){1, 1});
	rig_submit(&g);
	p = cf_mark(&g.r, g.s);
	CF_FAILS(0, g.r.ba->host_read(g.r.d, &p, 1, UINT64_MAX, &cf_err));
	ck_assert_msg(strstr(cf_err.text, "embed") ||
			      cf_err.node < graph->n_nodes,
		      "the error does not name the node: %s", cf_err.text);
	t = cf_drain(&g.r);
	CF_OK(g.r.st->reset(g.r.d, &t, &cf_err));
	one_by_one(other);
	same("after an error and reset");
	lm_close();
}

// Steps of both at once: a stream that waits for one's signal reads its logits.
static void read_both(struct rig *one, struct rig *two, int at)
{
	struct rig *const both[] = {one, two};
	const int ids[] = {at, N_TEXT - 1 - at};
	struct genai_stream *fetch = cf_stream(&one->r, "fetch");
	struct genai_mem out = cf_pinned(&one->r, sizeof(first[0]));
	struct genai_point signals[2], done;

	for (int i = 0; i < 2; i++) {
		rig_in(both[i], 0, &text[ids[i]], 2, (int64_t[]){1, 1});
		rig_outs(both[i]);
	}
	for (int i = 0; i < 2; i++)
		CF_OK(one->r.rt->exec.submit(both[i]->plan, one->s, NULL, 0,
					     &signals[i], &cf_err));
	for (int i = 2; i-- > 0;) {
		cf_wait(&one->r, fetch, signals[i]);
		cf_copy(&one->r, fetch, (uintptr_t)out.host,
			both[i]->out[0].addr, sizeof(first[0]), GENAI_COPY_D2H);
		done = cf_mark(&one->r, fetch);
		CF_OK(one->r.ba->host_read(one->r.d, &done, 1, UINT64_MAX,
					   &cf_err));
		ck_assert_msg(
			!memcmp(out.host, first[ids[i]], sizeof(first[0])),
			"plan %d of two, behind its signal: other "
			"numbers",
			i);
	}
	cf_finish(&one->r, one->s);
	cf_free(&one->r, &out);
	cf_destroy(&one->r, fetch);
}

static void own_stats(struct rig *one, uint64_t steps)
{
	struct genai_exec_stats st = {.size = sizeof(st)};

	CF_OK(one->r.rt->exec.stats(one->plan, &st, &cf_err));
	ck_assert_msg(st.steps == steps,
		      "a plan of two counts %lu steps, it had %lu",
		      (unsigned long)st.steps, (unsigned long)steps);
}

static void two_plans_of(const char *const *sets)
{
	static struct rig h;
	static struct rig_graph made_too;
	struct genai_graph *graph_too;
	struct genai_view max;

	lm_open(sets, 0);
	graph_too = rig_lm(&made_too);
	h = g;
	h.plan = NULL;
	memset(h.in_mem, 0, sizeof(h.in_mem));
	memset(h.out_mem, 0, sizeof(h.out_mem));
	h.n_parts = 0;
	h.pager.ops = &h.pager_ops;
	h.pager.pager = (struct genai_pager *)(void *)&h;
	rig_lm_view(&max);
	rig_plan(&h, graph_too, &max, 32);
	for (int i = 0; i < N_TEXT; i++) {
		float a[LM_VOCAB], b[LM_VOCAB];

		rig_lm_run(&g, &text[i], 1, a);
		rig_lm_run(&h, &text[N_TEXT - 1 - i], 1, b);
		ck_assert_mem_eq(a, first[i], sizeof(a));
		ck_assert_mem_eq(b, first[N_TEXT - 1 - i], sizeof(b));
	}
	for (int i = 0; i < 3; i++)
		read_both(&g, &h, i);
	rig_lm_run(&h, &text[0], 1, other[0]);
	own_stats(&g, N_TEXT + 3);
	own_stats(&h, N_TEXT + 4);
	rig_unplan(&h);
	rig_graph_free(&made_too, graph_too);
	rig_lm_run(&g, &text[0], 1, other[0]);
	ck_assert_mem_eq(other[0], first[0], sizeof(first[0]));
	lm_close();
}

static void two_plans(void)
{
	uint32_t n = cf_n_schedules();

	reference();
	for (uint32_t i = 0; i < n; i++)
		two_plans_of(cf_schedule(i));
}

#define E GENAI_IFACE_EXECUTOR
static const struct cf_test tests[] = {
	{"executor/schedules", "GM-111 GM-112", E, 0, schedules},
	{"executor/chunks", "GM-113", E, CF_ROWS_EXACT, chunks},
	{"executor/budgets", "GM-114", E, 0, budgets},
	{"executor/no-blocking", "GM-115", E, 0, no_blocking},
	{"executor/no-blocking-cold", "GM-115", E, 0, no_blocking_cold},
	{"executor/points", "GM-116", E, 0, points},
	{"executor/rebind-shape", "GM-117 GM-126", E, 0, rebind_shape},
	{"executor/rebind-address", "GM-118", E, 0, rebind_address},
	{"executor/many-shapes", "GM-117", E, 0, many_shapes},
	{"executor/rebind-each", "GM-118", E, 0, rebind_each},
	{"executor/other-stream", "GM-124", E, 0, other_stream},
	{"executor/state", "GM-128", E, 0, state},
	{"executor/records", "GM-119", E, CF_RECORDS, records},
	{"executor/records-shapes", "GM-119", E, CF_RECORDS, records_shapes},
	{"executor/records-between", "GM-120", E, CF_RECORDS, records_between},
	{"executor/bad-index", "GM-121", E, 0, bad_index},
	{"executor/two-plans", "GM-122", E, 0, two_plans},
};
const struct cf_suite cf_suite_steps = {tests,
					sizeof(tests) / sizeof(tests[0])};
