// suite_numbers.c - every operator that an executor lists, against its
// definition: the corpus, through plan, bind and submit, with the hostile
// pager.
#include "tests/conform/rig.h"

#include "tests/conform/corpus.h"
#include "tests/conform/corpus_text.h"
#include "tests/conform/one.h"

#include <stdio.h>
#include <string.h>

static struct rig g;

// ---- running a graph of the corpus ----

// An executor may list an operator and not carry every type and attribute of
// it: then the plan is refused as unsupported, and a node is named.
static bool may_refuse(const struct op_graph *og, int32_t rc,
		       const struct genai_error *err)
{
	bool named = false;

	for (uint32_t i = 0; i < og->g.n_nodes; i++)
		named |= strstr(err->text, og->nodes[i].op) != NULL;
	return rc == GENAI_E_UNSUPPORTED && named;
}

// What was tried, by the operator of the last node, and whether a plan was ever
// made for it: who lists an operator carries some of it.
static struct {
	const char *op;
	bool planned;
	char why[240]; // the first that was not
} tried[128];
static uint32_t n_tried;

static uint32_t find_tried(const struct op_graph *og)
{
	const char *op = og->nodes[og->g.n_nodes - 1].op;
	uint32_t i = 0;

	while (i < n_tried && strcmp(tried[i].op, op))
		i++;
	return i;
}

static void note_tried(const struct op_graph *og, const struct genai_error *err)
{
	uint32_t i = find_tried(og);

	if (i == 128)
		return;
	n_tried += i == n_tried;
	tried[i].op = og->nodes[og->g.n_nodes - 1].op;
	tried[i].planned |= !err;
	if (err && !tried[i].why[0])
		snprintf(tried[i].why, sizeof(tried[i].why), "%s", err->text);
}

static void bind_inputs(struct op_graph *og)
{
	for (uint32_t i = 0; i < og->g.n_inputs; i++) {
		uint32_t v = og->inputs[i];

		rig_in(&g, i, og->host[v], og->views[v].rank,
		       og->views[v].dims);
		og->views[v].addr = g.in[i].addr;
	}
}

static uint64_t bytes_of(const struct op_graph *og, uint32_t v)
{
	return op_bytes(og->views[v].dtype, og->views[v].rank,
			og->views[v].dims);
}

// Filled, so that what is not written is seen.
static int32_t bind_outputs(struct op_graph *og, struct genai_error *err)
{
	static char odd[4096];
	int32_t rc = 0;

	memset(odd, 0x7e, sizeof(odd));
	for (uint32_t o = 0; !rc && o < og->g.n_outputs; o++) {
		uint32_t v = og->outputs[o];
		struct genai_view *w = &g.out[o];
		uint64_t bytes = bytes_of(og, v);

		*w = og->views[v];
		if (og->over[v] != GENAI_NONE) {
			w->addr = og->views[og->over[v]].addr;
		} else {
			g.out_mem[o] = cf_alloc(&g.r, bytes + 64);
			w->addr = g.out_mem[o].range.addr;
			for (uint64_t at = 0; at < bytes; at += sizeof(odd))
				cf_put(&g.r, w->addr + at, odd,
				       bytes - at < sizeof(odd) ? bytes - at
								: sizeof(odd));
		}
		og->views[v].addr = w->addr;
		rc = g.r.rt->exec.bind_output(g.plan, o, w, err);
	}
	return rc;
}

static int32_t steps(struct op_graph *og, uint32_t n, struct genai_error *err)
{
	struct genai_point signal = {0};
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < n; i++)
		rc = g.r.rt->exec.submit(g.plan, g.s, NULL, 0, &signal, err);
	if (!rc)
		rc = g.r.ba->host_read(g.r.d, &signal, 1, UINT64_MAX, err);
	for (uint32_t o = 0; !rc && o < og->g.n_outputs; o++) {
		uint32_t v = og->outputs[o];

		if (og->host[v] && bytes_of(og, v))
			cf_get(&g.r, og->host[v], og->views[v].addr,
			       bytes_of(og, v));
	}
	return rc;
}

static int32_t run(struct check *c, struct op_graph *og, struct op_how *how,
		   struct genai_error *err)
{
	struct genai_view max[RIG_MAX_IO];
	struct genai_plan_options o;
	int32_t rc;

	c->refused = !op_listed(og, &g.r.rt->exec_caps);
	if (c->refused)
		return genai_fail(err, GENAI_E_UNSUPPORTED, "not listed");
	ck_assert_uint_le(og->g.n_inputs, RIG_MAX_IO);
	for (uint32_t i = 0; i < og->g.n_inputs; i++)
		max[i] = og->views[og->inputs[i]];
	o = rig_options(&g, &og->g, max);
	rc = rig_try_plan(&g, &o, &og->g, err);
	c->refused = rc && may_refuse(og, rc, err);
	note_tried(og, rc ? err : NULL);
	if (rc)
		return rc;
	rig_adopt(&g, &og->g, max, how->cut_rows);
	bind_inputs(og);
	rc = bind_outputs(og, err);
	if (!rc)
		rc = steps(og, how->steps ? how->steps : 1, err);
	ck_assert_msg(!rc, "a plan that was made does not run: %s", err->text);
	rig_unplan(&g);
	return rc;
}

// ---- the tests ----

// Only planned, and only where nothing of the operator was yet.
static int32_t plan(struct check *c, struct op_graph *og, struct op_how *how,
		    struct genai_error *err)
{
	struct genai_view max[RIG_MAX_IO];
	struct genai_plan_options o;
	uint32_t i = find_tried(og);

	(void)how;
	c->refused = true;
	if (i == n_tried || tried[i].planned || og->g.n_inputs > RIG_MAX_IO)
		return genai_fail(err, GENAI_E_UNSUPPORTED, "not asked");
	for (uint32_t k = 0; k < og->g.n_inputs; k++)
		max[k] = og->views[og->inputs[k]];
	o = rig_options(&g, &og->g, max);
	if (!rig_try_plan(&g, &o, &og->g, err)) {
		tried[i].planned = true;
		rig_unplan(&g);
	}
	return genai_fail(err, GENAI_E_UNSUPPORTED, "not asked");
}

// An operator all of whose cases here were refused may be carried in a form
// that other cases have: sums of integers alone, say.
static void look_elsewhere(void)
{
	static void (*const all[])(struct check * c) = {
		corpus_elementwise, corpus_norms,  corpus_rows,
		corpus_index,	    corpus_matmul, corpus_attention,
		corpus_exact,	    corpus_chunks,
	};
	struct check c = {.run = plan};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		all[i](&c);
}

static void corpus(void (*cases)(struct check *c))
{
	struct check c = {.run = run, .brief = cf.o.brief};
	bool refused = false;

	rig_open(&g, NULL);
	c.rows_exact = g.r.rt->exec_caps.flags & GENAI_EXEC_CAP_ROWS_EXACT;
	rnd_seed(1);
	cases(&c);
	for (uint32_t i = 0; i < n_tried; i++)
		refused |= !tried[i].planned;
	// one case in eight is too few to tell; prompts are of two types only
	refused &= !c.brief && cases != corpus_prompt;
	if (refused)
		look_elsewhere();
	rig_close(&g);
	for (uint32_t i = 0; refused && i < n_tried; i++)
		ck_assert_msg(tried[i].planned,
			      "%s is listed, and every case of it refused; the "
			      "first: %s",
			      tried[i].op, tried[i].why);
	ck_assert_msg(!c.failed, "%u of %u results are wrong; first: %s",
		      c.failed, c.failed + c.passed, c.first);
	if (!c.passed)
		cf_skip("carries none of these operators");
}

// ---- what cannot be found ----

// Refused, or an error of the step; the next plan works.
static int32_t cannot(struct check *c, struct op_graph *og, struct op_how *how,
		      struct genai_error *err)
{
	struct genai_view max[RIG_MAX_IO];
	struct genai_plan_options o;
	struct genai_ticket t;
	int32_t rc;

	(void)how;
	for (uint32_t i = 0; i < og->g.n_inputs; i++)
		max[i] = og->views[og->inputs[i]];
	o = rig_options(&g, &og->g, max);
	rc = rig_try_plan(&g, &o, &og->g, err);
	if (rc)
		return rc;
	rig_adopt(&g, &og->g, max, 0);
	bind_inputs(og);
	rc = bind_outputs(og, err);
	if (!rc)
		rc = steps(og, 1, err);
	t = cf_drain(&g.r);
	CF_OK(g.r.st->reset(g.r.d, &t, &cf_err));
	rig_unplan(&g);
	return rc;
}

static const struct lookup {
	const char *domain, *op;
	int64_t rows, second; // of the table, and of the one beside it
} lookups[] = {
	{"", "Gather", 0, 0},
	{"", "GatherElements", 0, 0},
	{"", "ScatterElements", 0, 0},
	{"com.microsoft", "GatherBlockQuantized", 0, 0},
	{"com.microsoft", "RotaryEmbedding", 0, 0},
	{"com.microsoft", "RotaryEmbedding", 4, 1},
};

static void look_up(struct check *c, const struct lookup *l)
{
	static int64_t at[] = {0, 3};
	static float x[64];
	const int64_t rope[] = {1, 2, 32};
	char out[512];

	one_begin();
	if (!strcmp(l->op, "RotaryEmbedding")) {
		one_in(op_input(&one.g, GENAI_DT_F32, 3, rope, x));
		one_in(op_input(&one.g, GENAI_DT_I64, 2, (int64_t[]){1, 2},
				at));
		one_in(op_input(&one.g, GENAI_DT_F32, 2,
				(int64_t[]){l->rows, 8}, x));
		one_in(op_input(&one.g, GENAI_DT_F32, 2,
				(int64_t[]){l->second, 8}, x));
		one_node(l->domain, l->op);
		op_attr_int(&one.g, "num_heads", 2);
		one_run(c, GENAI_DT_F32, 3, rope, out);
		return;
	}
	if (*l->domain)
		one_in(op_input(&one.g, GENAI_DT_U8, 2, (int64_t[]){0, 16}, x));
	else
		one_in(op_input(&one.g, GENAI_DT_F32, 1, (int64_t[]){0}, x));
	one_in(op_input(&one.g, GENAI_DT_I64, 1, (int64_t[]){2}, at));
	if (*l->domain)
		one_in(op_input(&one.g, GENAI_DT_F32, 2, (int64_t[]){0, 1}, x));
	else if (l->op[0] == 'S')
		one_in(op_input(&one.g, GENAI_DT_F32, 1, (int64_t[]){2}, x));
	one_node(l->domain, l->op);
	if (*l->domain)
		op_attr_int(&one.g, "block_size", 32);
	one_run(c, GENAI_DT_F32, *l->domain ? 2 : 1,
		(int64_t[]){l->op[0] == 'S' ? 0 : 2, 32}, out);
}

// A table without rows, or with fewer than the one beside it: no index is
// right, and none leads out of it.
static void no_such_row(void)
{
	struct check c = {.run = cannot};
	uint32_t asked = 0;

	rig_open(&g, NULL);
	for (size_t i = 0; i < sizeof(lookups) / sizeof(lookups[0]); i++) {
		if (!rig_has_op(&g, lookups[i].domain, lookups[i].op))
			continue;
		asked++;
		look_up(&c, &lookups[i]);
		ck_assert_msg(one.rc && strstr(one.err.text, lookups[i].op),
			      "%s in a table of %lld rows: %s", lookups[i].op,
			      (long long)lookups[i].rows,
			      one.rc ? one.err.text : "is accepted");
	}
	rig_close(&g);
	if (!asked)
		cf_skip("carries none of these operators");
}

#define CORPUS(name)                                                           \
	static void name##_cases(void)                                         \
	{                                                                      \
		corpus(corpus_##name);                                         \
	}
CORPUS(elementwise)
CORPUS(norms)
CORPUS(rows)
CORPUS(index)
CORPUS(moe)
CORPUS(matmul)
CORPUS(prompt)
CORPUS(attention)
CORPUS(exact)
CORPUS(chunks)
CORPUS(state)
CORPUS(paged)

#define E GENAI_IFACE_EXECUTOR
static const struct cf_test tests[] = {
	{"executor/numbers-elementwise", "GM-101", E, 0, elementwise_cases},
	{"executor/numbers-norms", "GM-101", E, 0, norms_cases},
	{"executor/numbers-rows", "GM-101", E, 0, rows_cases},
	{"executor/numbers-index", "GM-101", E, 0, index_cases},
	{"executor/numbers-moe", "GM-101 GM-113", E, 0, moe_cases},
	{"executor/numbers-products", "GM-101 GM-102", E, 0, matmul_cases},
	{"executor/numbers-prompt", "GM-101 GM-102", E, 0, prompt_cases},
	{"executor/numbers-attention", "GM-101", E, 0, attention_cases},
	{"executor/numbers-exact", "GM-101", E, 0, exact_cases},
	{"executor/numbers-chunks", "GM-101 GM-113", E, 0, chunks_cases},
	{"executor/numbers-state", "GM-101 GM-113", E, 0, state_cases},
	{"executor/no-such-row", "GM-121", E, 0, no_such_row},
	{"executor/numbers-paged", "GM-101 GM-143", E, 0, paged_cases},
};
const struct cf_suite cf_suite_numbers = {tests,
					  sizeof(tests) / sizeof(tests[0])};
