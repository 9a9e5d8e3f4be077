// suite_executor.c - an executor's table call by call.
#include "tests/conform/rig.h"

#include <string.h>

static struct rig g;
static struct rig_graph made;
static struct genai_graph *graph;

static void end(void)
{
	rig_close(&g);
	rig_graph_free(&made, graph);
	graph = NULL;
}

// ---- what is refused ----

static int32_t try_plan(const struct genai_plan_options *o)
{
	return rig_try_plan(&g, o, graph, &cf_err);
}

static void caps(void)
{
	struct genai_exec_caps a = {.size = sizeof(a)}, b = a;
	void *self;

	rig_open(&g, NULL);
	self = genai_module_self(g.r.rt->executor.module);
	CF_OK(g.r.rt->exec.caps(self, &a, &cf_err));
	CF_OK(g.r.rt->exec.caps(self, &b, NULL));
	ck_assert_uint_eq(a.flags, b.flags);
	ck_assert_uint_eq(a.n_ops, b.n_ops);
	ck_assert_ptr_nonnull(memchr(a.device_kind, 0, sizeof(a.device_kind)));
	ck_assert_uint_ge(a.op_stride, offsetof(struct genai_exec_op, since) +
					       sizeof(a.ops->since));
	for (uint32_t i = 0; i < a.n_ops; i++) {
		const struct genai_exec_op *o =
			(const void *)((const char *)a.ops +
				       (size_t)i * a.op_stride);

		ck_assert_msg(o->op && *o->op && o->domain && o->since >= 1,
			      "operator %u of the list is not sound", i);
	}
	rig_close(&g);
}

static void unknown_op(void)
{
	struct genai_plan_options o;
	struct genai_view max = rig_view(GENAI_DT_F32, 1, (int64_t[]){4});
	uint32_t in, mid, out;

	rig_open(&g, NULL);
	rig_graph_begin(&made);
	in = rig_input(&made, "x", GENAI_DT_F32, 1, (int64_t[]){4});
	mid = rig_value(&made, "mid");
	rig_node(&made, "Add", "", "fine", (uint32_t[]){in, in}, 2, mid);
	out = rig_value(&made, "y");
	rig_node(&made, "Frobnicate", "org.example", "the_odd_node", &mid, 1,
		 out);
	graph = rig_graph_end(&made, out);
	o = rig_options(&g, graph, &max);
	CF_FAILS(GENAI_E_UNSUPPORTED, try_plan(&o));
	ck_assert_msg(strstr(cf_err.text, "Frobnicate") &&
			      strstr(cf_err.text, "the_odd_node") &&
			      strstr(cf_err.text, "org.example"),
		      "does not name operator, node and domain: %s",
		      cf_err.text);
	ck_assert_ptr_null(g.plan);
	end();
}

static void lm_open(void)
{
	rig_open(&g, NULL);
	rig_need_lm(&g);
	graph = rig_lm(&made);
}

static void create_refuses(void)
{
	struct genai_plan_options o;
	struct genai_view max[2];
	struct genai_view wrong =
		rig_view(GENAI_DT_F32, 2, (int64_t[]){1, LM_STEP});

	lm_open();
	rig_lm_view(max);
	o = rig_options(&g, graph, max);
	o.n_max_inputs = 0;
	CF_FAILS(GENAI_E_INVAL, try_plan(&o));
	o = rig_options(&g, graph, max);
	for (uint32_t bit = 0; bit < 32; bit++) {
		o.flags = 1u << bit;
		CF_FAILS(GENAI_E_UNSUPPORTED, try_plan(&o));
	}
	o = rig_options(&g, graph, max);
	g.repeated[0].dims[1] = LM_STEP + 1;
	CF_FAILS(0, try_plan(&o));
	g.repeated[0].dims[1] = -1;
	CF_FAILS(0, try_plan(&o));
	o = rig_options(&g, graph, max);
	g.repeated[0].rank = 1;
	CF_FAILS(0, try_plan(&o));
	o = rig_options(&g, graph, &wrong);
	CF_FAILS(0, try_plan(&o));
	ck_assert_ptr_null(g.plan);
	rig_plan(&g, graph, max, 0);
	end();
}

static void check_visits(const struct genai_visit *v, uint32_t n)
{
	bool seen[RIG_MAX_TENSORS] = {0};
	uint32_t gathers = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct genai_tensor *t;

		ck_assert_uint_lt(v[i].tensor, graph->n_tensors);
		t = genai_graph_tensor(graph, v[i].tensor);
		ck_assert_uint_le(v[i].first_node, v[i].last_node);
		ck_assert_uint_lt(v[i].last_node, graph->n_nodes);
		ck_assert_msg(!i || v[i].first_node >= v[i - 1].first_node,
			      "visit %u comes before its predecessor", i);
		ck_assert_msg(v[i].rows && v[i].device_bytes % v[i].rows == 0 &&
				      t->bytes % v[i].rows == 0,
			      "visit %u: %lu rows of %lu bytes", i,
			      (unsigned long)v[i].rows,
			      (unsigned long)v[i].device_bytes);
		ck_assert_msg(v[i].fill || v[i].device_bytes == t->bytes,
			      "visit %u: other bytes without fill", i);
		ck_assert_msg(v[i].flags & GENAI_WEIGHT_ROWS || v[i].rows == 1,
			      "visit %u: rows without ROWS", i);
		gathers += !!(v[i].flags & GENAI_WEIGHT_GATHER);
		seen[v[i].tensor] = true;
	}
	ck_assert_msg(gathers == 1, "%u visits gather, the embedding does",
		      gathers);
	for (uint32_t i = 0; i < graph->n_tensors; i++)
		ck_assert_msg(seen[i] || genai_graph_tensor(graph, i)->bytes <
						 4096,
			      "tensor %u is never visited", i);
}

static void visits(void)
{
	const struct genai_visit *v = NULL;
	struct genai_view max;
	uint32_t n = 0;

	lm_open();
	rig_lm_view(&max);
	rig_plan(&g, graph, &max, 0);
	CF_OK(g.r.rt->exec.plan_visits(g.plan, &v, &n, &cf_err));
	check_visits(v, n);
	end();
}

static void pages_fail(uint32_t n)
{
	CF_FAILS(0, g.r.rt->exec.plan_set_pages(g.plan, g.pages, n, &cf_err));
}

static void set_pages_refuses(void)
{
	static struct genai_sweep_page good[RIG_MAX_PARTS];
	const int64_t ids[] = {1, 2};
	float want[LM_VOCAB], got[LM_VOCAB];
	struct genai_view max;
	uint32_t n, i;

	lm_open();
	rig_lm_view(&max);
	rig_plan(&g, graph, &max, 64);
	rig_lm_run(&g, ids, 2, want);
	n = g.n_parts;
	memcpy(good, g.pages, sizeof(good));
	pages_fail(n - 1); // a visit less
	g.pages[n - 1].visit = 10000;
	pages_fail(n);
	memcpy(g.pages, good, sizeof(good));
	for (i = 0; !g.pages[i].row_begin; i++)
		;
	g.pages[i].row_begin -= 1; // a row twice
	pages_fail(n);
	memcpy(g.pages, good, sizeof(good));
	g.pages[i].row_end = g.pages[i].row_begin;
	pages_fail(n);
	memcpy(g.pages, good, sizeof(good));
	g.pages[i].row_end = UINT64_MAX;
	pages_fail(n);
	memcpy(g.pages, good, sizeof(good));
	g.pages[0] = good[n - 1]; // out of order
	g.pages[n - 1] = good[0];
	pages_fail(n);
	memcpy(g.pages, good, sizeof(good));
	rig_lm_run(&g, ids, 2, got); // the first list still holds
	ck_assert_mem_eq(want, got, sizeof(want));
	end();
}

static void bind_refuses(void)
{
	const int64_t ids[] = {3, 4, 5};
	float want[LM_VOCAB], got[LM_VOCAB];
	struct genai_view max, v, shape = {.size = sizeof(v), .rank = 77};
	float all[LM_STEP * LM_VOCAB];
	struct genai_mem other;

	lm_open();
	rig_lm_view(&max);
	rig_plan(&g, graph, &max, 0);
	rig_lm_run(&g, ids, 3, want);
	// what is refused lies elsewhere
	other = cf_alloc(&g.r, 65536);
	cf_put(&g.r, other.range.addr, (int64_t[LM_STEP]){0}, LM_STEP * 8);
	v = g.in[0];
	CF_FAILS(GENAI_E_INVAL,
		 g.r.rt->exec.bind_input(g.plan, 1, &v, &cf_err));
	CF_FAILS(GENAI_E_INVAL,
		 g.r.rt->exec.bind_output(g.plan, 1, &g.out[0], &cf_err));
	v.addr = other.range.addr;
	v.dtype = GENAI_DT_F32;
	CF_FAILS(0, g.r.rt->exec.bind_input(g.plan, 0, &v, &cf_err));
	v = g.out[0];
	v.addr = other.range.addr;
	v.dims[1] = -1;
	CF_FAILS(0, g.r.rt->exec.bind_output(g.plan, 0, &v, &cf_err));
	v = g.in[0];
	v.addr = other.range.addr;
	v.rank = 3;
	CF_FAILS(0, g.r.rt->exec.bind_input(g.plan, 0, &v, &cf_err));
	v = g.in[0];
	v.addr = other.range.addr;
	v.dims[1] = LM_STEP + 1;
	CF_FAILS(GENAI_E_LIMIT,
		 g.r.rt->exec.bind_input(g.plan, 0, &v, &cf_err));
	v.dims[1] = -1;
	CF_FAILS(0, g.r.rt->exec.bind_input(g.plan, 0, &v, &cf_err));
	for (uint32_t i = 1; i < 40; i += 7)
		CF_FAILS(0, g.r.rt->exec.output_shape(g.plan, i, &shape,
						      &cf_err));
	ck_assert_msg(shape.rank == 77, "an output was written on failure");
	memset(all, 0, sizeof(all));
	cf_put(&g.r, g.out[0].addr, all, 3 * sizeof(got));
	rig_submit(&g);
	rig_read(&g, all, 3 * sizeof(got));
	ck_assert_msg(!memcmp(all + 2 * LM_VOCAB, want, sizeof(want)),
		      "after bindings that were refused: other numbers");
	cf_free(&g.r, &other);
	rig_lm_run(&g, ids, 3, got);
	ck_assert_mem_eq(want, got, sizeof(want));
	end();
}

// Nothing is enqueued by a submit that is refused.
static void unbound(void)
{
	const int64_t ids[] = {3};
	float got[LM_VOCAB], want[LM_VOCAB];
	struct genai_point signal = {NULL, 77};
	struct genai_view max;

	lm_open();
	rig_lm_view(&max);
	rig_plan(&g, graph, &max, 0);
	CF_FAILS(GENAI_E_STATE,
		 g.r.rt->exec.submit(g.plan, g.s, NULL, 0, &signal, &cf_err));
	rig_in(&g, 0, ids, 2, (int64_t[]){1, 1});
	CF_FAILS(GENAI_E_STATE,
		 g.r.rt->exec.submit(g.plan, g.s, NULL, 0, &signal, &cf_err));
	ck_assert_msg(!signal.stream && signal.value == 77,
		      "an output was written on failure");
	ck_assert_msg(!g.steps, "a step was begun though an output is unbound");
	rig_lm_run(&g, ids, 1, got);
	rig_lm_run(&g, ids, 1, want);
	ck_assert_mem_eq(got, want, sizeof(got));
	end();
}

static void destroy_ticket(void)
{
	const int64_t ids[] = {9};
	float out[LM_VOCAB];
	struct genai_ticket t;
	struct genai_view max;

	lm_open();
	rig_lm_view(&max);
	rig_plan(&g, graph, &max, 0);
	rig_lm_run(&g, ids, 1, out);
	CF_FAILS(GENAI_E_STATE,
		 g.r.rt->exec.plan_destroy(g.plan, NULL, &cf_err));
	t = cf_drain(&g.r);
	rig_lm_run(&g, ids, 1, out);
	CF_FAILS(GENAI_E_STATE, g.r.rt->exec.plan_destroy(g.plan, &t, &cf_err));
	rig_lm_run(&g, ids, 1, out);
	end();
}

// Whoever calls need not want to know why.
static void err_null(void)
{
	const int64_t ids[] = {9};
	struct genai_plan_options o;
	struct genai_view max, v;
	float out[LM_VOCAB];

	lm_open();
	rig_lm_view(&max);
	o = rig_options(&g, graph, &max);
	o.flags = 1u << 31;
	ck_assert(rig_try_plan(&g, &o, graph, NULL));
	rig_plan(&g, graph, &max, 0);
	ck_assert(g.r.rt->exec.submit(g.plan, g.s, NULL, 0, NULL, NULL));
	rig_lm_run(&g, ids, 1, out);
	v = g.in[0];
	v.dims[1] = LM_STEP + 1;
	ck_assert(g.r.rt->exec.bind_input(g.plan, 0, &v, NULL));
	ck_assert(g.r.rt->exec.output_shape(g.plan, 7, &v, NULL));
	ck_assert(g.r.rt->exec.plan_destroy(g.plan, NULL, NULL));
	rig_lm_run(&g, ids, 1, out);
	end();
}

// ---- memory that fails ----

static int32_t life(uint32_t n, bool *reached, struct genai_error *err)
{
	const int64_t ids[] = {1, 2, 3};
	struct genai_plan_options o;
	struct genai_view max;
	struct genai_host_env *env;
	float out[LM_VOCAB];
	int32_t rc;

	lm_open();
	rig_lm_view(&max);
	o = rig_options(&g, graph, &max);
	env = genai_module_host(g.r.rt->executor.module);
	genai_host_fail_alloc(env, n, 1);
	rc = rig_try_plan(&g, &o, graph, err);
	*reached = cf_end_failing(env, n, true);
	ck_assert_msg(!rc || !g.plan, "a plan was given on failure");
	if (!rc) {
		rig_adopt(&g, graph, &max, 0);
		rig_lm_run(&g, ids, 3, out);
	}
	end(); // fails if anything is left
	return rc;
}

static void alloc_fails(void)
{
	uint32_t most = cf.o.torture ? 100000 : 80;
	bool reached = true;

	for (uint32_t n = 1; n <= most && reached; n++) {
		struct genai_error err = GENAI_ERROR_INIT;
		int32_t rc = life(n, &reached, &err);

		// the probe may be the one that failed
		ck_assert_msg(!reached || !rc || rc == GENAI_E_NOMEM,
			      "allocation %u fails: %s: %s", n,
			      genai_status_name(rc), err.text);
		ck_assert_msg(!rc || err.text[0],
			      "allocation %u fails without a text", n);
	}
}

static void device_full(void)
{
	struct genai_plan_options o;
	struct genai_view max;

	lm_open();
	rig_lm_view(&max);
	o = rig_options(&g, graph, &max);
	genai_device_set_limit(g.r.d, 16);
	CF_FAILS(GENAI_E_LIMIT, try_plan(&o));
	ck_assert_ptr_null(g.plan);
	genai_device_set_limit(g.r.d, UINT64_MAX);
	rig_plan(&g, graph, &max, 0);
	end();
}

#define E GENAI_IFACE_EXECUTOR
static const struct cf_test tests[] = {
	{"executor/caps", "GM-100", E, 0, caps},
	{"executor/unknown-op", "GM-103", E, 0, unknown_op},
	{"executor/create-refuses", "GM-104", E, 0, create_refuses},
	{"executor/visits", "GM-105", E, 0, visits},
	{"executor/set-pages-refuses", "GM-106", E, 0, set_pages_refuses},
	{"executor/bind-refuses", "GM-107", E, 0, bind_refuses},
	{"executor/unbound", "GM-8 GM-108", E, 0, unbound},
	{"executor/destroy-ticket", "GM-109", E, 0, destroy_ticket},
	{"executor/err-null", "GM-5", E, 0, err_null},
	{"executor/alloc-fails", "GM-7", E, 0, alloc_fails},
	{"executor/device-full", "GM-110", E, 0, device_full},
};
const struct cf_suite cf_suite_executor = {tests,
					   sizeof(tests) / sizeof(tests[0])};
