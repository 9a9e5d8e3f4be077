// step_rope.c - rotary tables that depend on the length, as long ropes have
// them: an If on total > limit, whose branches store two tables each.  Both
// tables become one, and whoever runs the steps says with which rows it begins.
#include "core/model/step_rewrite.h"

#include <stdlib.h>
#include <string.h>

struct rope_tables { // of a branch
	const struct genai_tensor *t[2];
	const char *data[2];
};

static const struct genai_attr *attr_of(const struct genai_node *n,
					const char *name)
{
	for (uint32_t i = 0; i < n->n_attrs; i++)
		if (!strcmp(genai_node_attr(n, i)->name, name))
			return genai_node_attr(n, i);
	return NULL;
}

static bool is_float(uint32_t dtype)
{
	return dtype == GENAI_DT_F32 || dtype == GENAI_DT_F16 ||
	       dtype == GENAI_DT_BF16;
}

// A branch of two stored matrices of one shape, and nothing else.
static bool branch_of(const struct genai_node *n, const char *name,
		      struct rope_tables *out)
{
	const struct genai_attr *a = attr_of(n, name);
	const struct genai_graph *g = a ? a->graph : NULL;

	if (!a || a->kind != GENAI_ATTR_GRAPH || g->n_outputs != 2 ||
	    g->n_nodes)
		return false;
	for (uint32_t i = 0; i < 2; i++) {
		const struct genai_value *v =
			genai_graph_value(g, g->outputs[i]);
		const struct genai_tensor *t;

		if (v->tensor == GENAI_NONE)
			return false;
		t = genai_graph_tensor(g, v->tensor);
		if (t->rank != 2 || !is_float(t->dtype) || t->dims[0] < 1)
			return false;
		out->t[i] = t;
		out->data[i] =
			(const char *)genai_graph_file(g, t->file)->data +
			t->offset;
	}
	return out->t[0]->dtype == out->t[1]->dtype &&
	       !memcmp(out->t[0]->dims, out->t[1]->dims, 2 * sizeof(int64_t));
}

// total > limit, and nothing else.
static bool limit_of(struct step_rewrite *r, uint32_t cond, int64_t *out)
{
	const struct genai_value *v = genai_builder_get_value(r->b, cond);
	const struct genai_node *n;

	if (!v || v->producer == GENAI_NONE)
		return false;
	n = genai_builder_get_node(r->b, v->producer);
	return !strcmp(n->op, "Greater") && n->n_inputs == 2 &&
	       step_in(n, 0) == r->total64 && r->total64 != GENAI_NONE &&
	       step_const_int(r, step_in(n, 1), out);
}

// Only attention reads them, and counts its positions itself.
static bool read_by_attention(struct step_rewrite *r, const uint32_t *outs)
{
	for (uint32_t i = 0; i < genai_builder_n_nodes(r->b); i++) {
		const struct genai_node *n = genai_builder_get_node(r->b, i);

		for (uint32_t k = 0; n->op && k < n->n_inputs; k++) {
			if (n->inputs[k] != outs[0] && n->inputs[k] != outs[1])
				continue;
			if (strcmp(n->op, "GroupQueryAttention") ||
			    n->inputs[k] != outs[k == 8] || k < 7 || k > 8 ||
			    step_in(n, 9) != GENAI_NONE)
				return false;
		}
	}
	return true;
}

// Both tables, the shorter range's first, as one.
static uint32_t join(struct step_rewrite *r, const char *name, uint32_t i,
		     const struct rope_tables *of_short,
		     const struct rope_tables *of_long)
{
	const struct genai_tensor *a = of_short->t[i], *b = of_long->t[i];
	const int64_t dims[2] = {a->dims[0] + b->dims[0], a->dims[1]};
	char *all = malloc(a->bytes + b->bytes);
	uint32_t v = GENAI_NONE;

	if (!all) {
		r->nomem = true;
		return v;
	}
	memcpy(all, of_short->data[i], a->bytes);
	memcpy(all + a->bytes, of_long->data[i], b->bytes);
	v = genai_builder_const(r->b, name, a->dtype, 2, dims, all);
	free(all);
	return v;
}

static uint32_t positions(struct step_rewrite *r)
{
	static const int64_t any = -1, one = 1;
	uint32_t axes = step_const(r, "genai.axis0", 1, 0);
	uint32_t index = genai_builder_value(r->b, "genai.index", GENAI_DT_I64,
					     1, &any, NULL);
	uint32_t turn = genai_builder_value(r->b, "genai.turn", GENAI_DT_I64, 1,
					    &one, NULL);
	uint32_t first = step_node(r, "Sub", "genai.first", GENAI_DT_I64,
				   r->total64, r->seq64);
	uint32_t at;

	genai_builder_input(r->b, index);
	genai_builder_input(r->b, turn);
	first = step_node(r, "Add", "genai.first_row", GENAI_DT_I64, first,
			  turn);
	at = step_node(r, "Add", "genai.rope_rows", GENAI_DT_I64, index, first);
	return step_node(r, "Unsqueeze", "genai.rope_ids", GENAI_DT_I64, at,
			 axes);
}

// The attentions that read the outputs read the joined tables by position.
static void turn_by(struct step_rewrite *r, const uint32_t *outs,
		    const uint32_t *tables, uint32_t pos)
{
	for (uint32_t i = 0; i < genai_builder_n_nodes(r->b); i++) {
		const struct genai_node *n = genai_builder_get_node(r->b, i);

		if (n->op && !strcmp(n->op, "GroupQueryAttention") &&
		    step_in(n, 7) == outs[0])
			genai_builder_add_input(r->b, i, 9, pos);
	}
	genai_builder_replace(r->b, outs[0], tables[0]);
	genai_builder_replace(r->b, outs[1], tables[1]);
}

int32_t step_ropes(struct step_rewrite *r)
{
	uint32_t count = genai_builder_n_nodes(r->b);

	for (uint32_t i = 0; i < count; i++) {
		const struct genai_node *n = genai_builder_get_node(r->b, i);
		struct rope_tables of_long, of_short;
		uint32_t outs[2], tables[2];
		int64_t limit;

		if (!n->op || strcmp(n->op, "If") || n->n_outputs != 2 ||
		    !branch_of(n, "then_branch", &of_long) ||
		    !branch_of(n, "else_branch", &of_short) ||
		    of_long.t[0]->dtype != of_short.t[0]->dtype ||
		    of_long.t[0]->dims[1] != of_short.t[0]->dims[1] ||
		    !limit_of(r, step_in(n, 0), &limit))
			continue;
		outs[0] = n->outputs[0];
		outs[1] = n->outputs[1];
		if (!read_by_attention(r, outs))
			continue; // for the executor to refuse
		if (r->turn_limit || limit < 1 ||
		    limit > of_short.t[0]->dims[0])
			return genai_fail(
				r->err, GENAI_E_UNSUPPORTED,
				"node %s (If): rotary tables of %lld rows up "
				"to a length of %lld",
				n->name, (long long)of_short.t[0]->dims[0],
				(long long)limit);
		tables[0] = join(r, "genai.cos", 0, &of_short, &of_long);
		tables[1] = join(r, "genai.sin", 1, &of_short, &of_long);
		r->turn_limit = limit;
		r->turn_row = of_short.t[0]->dims[0];
		r->turn_rows = of_long.t[0]->dims[0];
		turn_by(r, outs, tables, positions(r));
	}
	return r->nomem ? genai_fail(r->err, GENAI_E_NOMEM, "no memory") : 0;
}
