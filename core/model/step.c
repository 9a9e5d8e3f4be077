// step.c - rewriting a model's graph into the graph of a step.
#include "core/model/step_rewrite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- logits ----

// Walk back from the logits over elementwise nodes to the head's product.
static void find_head(struct step_rewrite *r, uint32_t logits,
		      uint32_t *out_node, uint32_t *out_input)
{
	static const char *const through[] = {"Cast", "Mul",  "Div",
					      "Add",  "Tanh", "Identity"};
	uint32_t v = logits;

	*out_node = GENAI_NONE;
	for (int depth = 0; depth < 16; depth++) {
		const struct genai_value *val =
			genai_builder_get_value(r->b, v);
		const struct genai_node *n;
		uint32_t next = GENAI_NONE, k = 0;

		if (!val || val->producer == GENAI_NONE)
			return;
		n = genai_builder_get_node(r->b, val->producer);
		if (!strcmp(n->op, "MatMul") || !strcmp(n->op, "MatMulNBits")) {
			// one without its input is for the executor to refuse
			if (!n->n_inputs ||
			    !genai_builder_get_value(r->b, n->inputs[0]))
				return;
			*out_node = val->producer;
			*out_input = n->inputs[0];
			return;
		}
		while (k < 6 && strcmp(through[k], n->op))
			k++;
		if (k == 6)
			return;
		for (uint32_t i = 0; i < n->n_inputs; i++) {
			const struct genai_value *in =
				genai_builder_get_value(r->b, n->inputs[i]);

			if (in && in->tensor == GENAI_NONE) {
				if (next != GENAI_NONE)
					return; // two computed inputs
				next = n->inputs[i];
			}
		}
		if (next == GENAI_NONE)
			return;
		v = next;
	}
}

// An input of a number for each row.
static uint32_t rows_input(struct step_rewrite *r, const char *name)
{
	static const int64_t any = -1;
	uint32_t v =
		genai_builder_value(r->b, name, GENAI_DT_I64, 1, &any, NULL);

	genai_builder_input(r->b, v);
	return v;
}

// The rows of v, [1, S, ...], that are asked for.
static uint32_t at_rows(struct step_rewrite *r, uint32_t v)
{
	uint32_t dtype = step_dtype(r, v);
	uint32_t rows =
		step_node(r, "Gather", "genai.at_rows", dtype, v, r->rows);

	step_attr(r, rows, "axis", 1);
	return rows;
}

// Columns of the head's product, -1 where they are not stored.
static int64_t head_columns(struct step_rewrite *r, uint32_t head)
{
	const struct genai_node *n = genai_builder_get_node(r->b, head);
	const struct genai_value *w =
		genai_builder_get_value(r->b, step_in(n, 1));

	if (!strcmp(n->op, "MatMulNBits"))
		return step_attr_int(n, "N", -1);
	return w && w->tensor != GENAI_NONE && w->rank == 2 ? w->dims[1] : -1;
}

// The value that holds the logits afterwards.
static uint32_t cut_logits(struct step_rewrite *r, uint32_t logits, bool cut)
{
	uint32_t head, input = GENAI_NONE;

	find_head(r, logits, &head, &input);
	if (head != GENAI_NONE && r->vocab <= 0)
		r->vocab = head_columns(r, head);
	if (!cut)
		return logits;
	r->rows = rows_input(r, "genai.rows");
	if (head == GENAI_NONE)
		return at_rows(r, logits);
	genai_builder_set_input(r->b, head, 0, at_rows(r, input));
	return logits;
}

static uint32_t make_next(struct step_rewrite *r, uint32_t logits)
{
	uint32_t next = step_node(r, "ArgMax", "genai.next", GENAI_DT_I64,
				  logits, GENAI_NONE);

	step_attr(r, next, "axis", -1);
	step_attr(r, next, "keepdims", 0);
	return next;
}

static uint32_t make_best(struct step_rewrite *r, uint32_t logits,
			  uint32_t next)
{
	uint32_t dtype = step_dtype(r, logits);
	uint32_t flat = step_node(r, "Reshape", "genai.flat", dtype, logits,
				  step_const(r, "genai.minus_one", 1, -1));
	uint32_t at = next;

	if (r->packed)
		at = step_node(r, "Add", "genai.best_at", GENAI_DT_I64, next,
			       rows_input(r, "genai.begins"));
	return step_node(r, "Gather", "genai.best", dtype, flat, at);
}

// ---- tied embedding ----

static bool swaps(const struct genai_node *n)
{
	for (uint32_t i = 0; i < n->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(n, i);

		if (!strcmp(a->name, "perm") && a->kind == GENAI_ATTR_INTS)
			return a->count == 2 && a->ints[0] == 1 &&
			       a->ints[1] == 0;
	}
	return true; // the default reverses
}

// Rows of a transposed matrix are columns of the matrix: gather those, instead
// of transposing all of a tied head in every step.
static void gather_columns(struct step_rewrite *r, uint32_t gather,
			   uint32_t stored)
{
	static const int64_t perm[] = {1, 2, 0};
	const struct genai_node *n = genai_builder_get_node(r->b, gather);
	uint32_t ids = step_in(n, 1), out = step_out(n);
	uint32_t dtype = step_dtype(r, out);
	uint32_t cols =
		step_node(r, "Gather", "genai.columns", dtype, stored, ids);
	uint32_t rows;
	const struct genai_value *v;

	step_attr(r, cols, "axis", 1);
	rows = step_node(r, "Transpose", "genai.turned", dtype, cols,
			 GENAI_NONE);
	v = genai_builder_get_value(r->b, rows);
	if (v)
		genai_builder_attr_ints(r->b, v->producer, "perm", perm, 3);
	genai_builder_replace(r->b, out, rows);
}

static void untie(struct step_rewrite *r)
{
	uint32_t n = genai_builder_n_nodes(r->b);

	for (uint32_t i = 0; i < n; i++) {
		const struct genai_node *g = genai_builder_get_node(r->b, i);
		const struct genai_value *w;
		const struct genai_node *t;
		uint32_t stored;

		if (!g->op || strcmp(g->op, "Gather") ||
		    step_attr_int(g, "axis", 0) || step_in(g, 1) != r->ids)
			continue;
		w = genai_builder_get_value(r->b, step_in(g, 0));
		if (!w || w->producer == GENAI_NONE)
			continue;
		t = genai_builder_get_node(r->b, w->producer);
		if (!t->op || strcmp(t->op, "Transpose") || !swaps(t))
			continue;
		stored = step_in(t, 0);
		w = genai_builder_get_value(r->b, stored);
		if (!w || w->tensor == GENAI_NONE || w->rank != 2)
			continue;
		gather_columns(r, i, stored);
		return; // one embedding
	}
}

// ---- inputs and outputs ----

static uint32_t find_in(const struct genai_graph *g, const uint32_t *list,
			uint32_t n, const char *name)
{
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(genai_graph_value(g, list[i])->name, name))
			return i;
	return GENAI_NONE;
}

static int32_t check_inputs(struct step_rewrite *r, struct genai_step *s)
{
	const struct genai_graph *g = s->graph;

	for (uint32_t i = 0; i < g->n_inputs; i++) {
		if (i != s->ids && i != s->past && i != s->rows &&
		    i != s->begins && i != s->index && i != s->turn &&
		    i != s->first && i != s->table && i != s->positions &&
		    !genai_states_has(&s->states, i))
			return genai_fail(
				r->err, GENAI_E_UNSUPPORTED,
				"graph input %s: its meaning is not known",
				genai_graph_value(g, g->inputs[i])->name);
	}
	return 0;
}

// A context longer than the rope tables has no rotation.
static int64_t rope_rows(const struct genai_graph *g)
{
	int64_t rows = -1;

	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct genai_node *n = genai_graph_node(g, i);
		const struct genai_value *v;
		uint32_t at;

		if (!strcmp(n->op, "GroupQueryAttention"))
			at = 7;
		else if (!strcmp(n->op, "PagedAttention"))
			at = 8;
		else if (!strcmp(n->op, "RotaryEmbedding"))
			at = 2;
		else
			continue;
		if (at >= n->n_inputs || n->inputs[at] == GENAI_NONE)
			continue;
		v = genai_graph_value(g, n->inputs[at]);
		if (v->tensor == GENAI_NONE)
			continue;
		if (rows < 0 ||
		    genai_graph_tensor(g, v->tensor)->dims[0] < rows)
			rows = genai_graph_tensor(g, v->tensor)->dims[0];
	}
	return rows;
}

// Exporters say how experts lie for CUDA only; for all others as they are.
static void experts_as_they_are(struct step_rewrite *r)
{
	for (uint32_t i = 0; i < genai_builder_n_nodes(r->b); i++) {
		const struct genai_node *n = genai_builder_get_node(r->b, i);
		bool said = false;

		if (!n->op || strcmp(n->op, "QMoE"))
			continue;
		for (uint32_t k = 0; k < n->n_attrs; k++)
			said |= !strcmp(genai_node_attr(n, k)->name,
					"weights_prepacked");
		if (!said)
			genai_builder_attr_int(r->b, i, "weights_prepacked", 0);
	}
}

// A state behind an Identity is what the node in front of it makes.
static void unwrap_states(struct step_rewrite *r)
{
	const struct genai_graph *g = r->g;

	for (uint32_t i = 0; i < g->n_outputs; i++) {
		const struct genai_value *v =
			genai_builder_get_value(r->b, g->outputs[i]);
		const struct genai_node *n, *from;
		uint32_t node, in, pos = 0;

		if (!v || v->producer == GENAI_NONE ||
		    !genai_states_names(r->c, v->name))
			continue;
		node = v->producer;
		n = genai_builder_get_node(r->b, node);
		if (strcmp(n->op, "Identity"))
			continue;
		in = step_in(n, 0);
		v = genai_builder_get_value(r->b, in);
		if (!v || v->producer == GENAI_NONE ||
		    v->flags & GENAI_VALUE_OUTPUT)
			continue;
		from = genai_builder_get_node(r->b, v->producer);
		while (from->outputs[pos] != in)
			pos++;
		genai_builder_remove_node(r->b, node);
		genai_builder_set_output(r->b, v->producer, pos, g->outputs[i]);
	}
}

// Outputs beyond logits and states are not computed for their own sake.
static void drop_outputs(struct step_rewrite *r, uint32_t logits)
{
	const struct genai_graph *g = r->g;

	for (uint32_t i = 0; i < g->n_outputs; i++) {
		const char *name = genai_graph_value(g, g->outputs[i])->name;

		if (g->outputs[i] != logits && !genai_states_names(r->c, name))
			genai_builder_remove_output(r->b, g->outputs[i]);
	}
}

static int32_t rewrite(struct step_rewrite *r, bool choose, bool narrow,
		       uint32_t *out_logits, bool *out_one_row)
{
	const struct genai_graph *g = r->g;
	uint32_t ids = find_in(g, g->inputs, g->n_inputs, r->c->input_ids);
	uint32_t out = find_in(g, g->outputs, g->n_outputs, r->c->logits);
	uint32_t mask, pos, logits, cut, next;
	const struct genai_value *lv;
	int32_t rc = 0;

	if (ids == GENAI_NONE)
		return genai_fail(r->err, GENAI_E_UNSUPPORTED,
				  "the graph has no input %s", r->c->input_ids);
	if (out == GENAI_NONE)
		return genai_fail(
			r->err, GENAI_E_UNSUPPORTED,
			"the graph has no output %s%s", r->c->logits,
			find_in(g, g->outputs, g->n_outputs,
				"last_hidden_state") == GENAI_NONE
				? ""
				: ", but last_hidden_state: genai embed makes "
				  "vectors with such a model");
	r->ids = g->inputs[ids];
	logits = g->outputs[out];
	lv = genai_graph_value(g, logits);
	*out_one_row = lv->rank == 3 && lv->dims[1] == 1;
	r->vocab = lv->rank == 3 ? lv->dims[2] : -1;
	r->joined = genai_states_joined(g, r->c);
	if (r->packed)
		rc = step_pack(r);
	else
		step_lengths(r);
	mask = find_in(g, g->inputs, g->n_inputs, r->c->attention_mask);
	if (mask != GENAI_NONE) {
		if (!r->packed)
			rc = step_replace_mask(r, g->inputs[mask], 0);
		genai_builder_remove_input(r->b, g->inputs[mask]);
	}
	pos = find_in(g, g->inputs, g->n_inputs, r->c->position_ids);
	if (!rc && pos != GENAI_NONE)
		rc = r->packed ? step_packed_positions(r, g->inputs[pos])
			       : step_positions(r, g->inputs[pos]);
	if (!rc && !r->packed)
		rc = step_ropes(r);
	if (rc)
		return rc;
	untie(r);
	if (r->c->not_cuda)
		experts_as_they_are(r);
	if (narrow)
		step_narrow(r);
	unwrap_states(r);
	drop_outputs(r, logits);
	cut = cut_logits(r, logits, !*out_one_row);
	if (cut != logits) {
		genai_builder_remove_output(r->b, logits);
		genai_builder_output(r->b, cut);
	}
	logits = cut;
	if (choose) {
		next = make_next(r, logits);
		genai_builder_output(r->b, next);
		genai_builder_output(r->b, make_best(r, logits, next));
	}
	if (!r->packed)
		genai_builder_output(r->b, r->total);
	genai_builder_prune(r->b);
	*out_logits = logits;
	if (!r->packed)
		return 0;
	if (*out_one_row)
		return genai_fail(r->err, GENAI_E_UNSUPPORTED,
				  "sequences cannot share a step: the graph "
				  "keeps the last row only");
	return step_check_packed(r, pos == GENAI_NONE ? GENAI_NONE
						      : g->inputs[pos]);
}

// onnxruntime-genai computes a sequence again from its beginning at these
// lengths, whatever the graph says; where the graph changes its tables below
// them, keys that were turned by others stay.
static int64_t known_limit(const char *type)
{
	if (!strcmp(type, "phi3small"))
		return 8192;
	return strcmp(type, "phi3") && strcmp(type, "phimoe") ? 0 : 4096;
}

static int32_t describe(struct step_rewrite *r, struct genai_step *s,
			const char *logits_name)
{
	const struct genai_graph *g = s->graph;
	const struct genai_value *lv;
	int32_t rc;

	s->ids = find_in(g, g->inputs, g->n_inputs, r->c->input_ids);
	s->past = find_in(g, g->inputs, g->n_inputs, "genai.past");
	s->rows = find_in(g, g->inputs, g->n_inputs, "genai.rows");
	s->first = find_in(g, g->inputs, g->n_inputs, "genai.first");
	s->table = find_in(g, g->inputs, g->n_inputs, "genai.table");
	s->positions = find_in(g, g->inputs, g->n_inputs, r->c->position_ids);
	if (s->positions == GENAI_NONE)
		s->positions =
			find_in(g, g->inputs, g->n_inputs, "genai.positions");
	s->begins = find_in(g, g->inputs, g->n_inputs, "genai.begins");
	s->index = find_in(g, g->inputs, g->n_inputs, "genai.index");
	s->turn = find_in(g, g->inputs, g->n_inputs, "genai.turn");
	s->logits = find_in(g, g->outputs, g->n_outputs, logits_name);
	s->total = find_in(g, g->outputs, g->n_outputs, "genai.total");
	s->next = find_in(g, g->outputs, g->n_outputs, "genai.next");
	s->best = find_in(g, g->outputs, g->n_outputs, "genai.best");
	if (s->ids == GENAI_NONE || s->logits == GENAI_NONE)
		return genai_fail(r->err, GENAI_E_UNSUPPORTED,
				  "the graph's logits do not depend on %s",
				  r->c->input_ids);
	lv = genai_graph_value(g, g->outputs[s->logits]);
	s->logits_dtype = lv->dtype;
	s->vocab = lv->rank == 3 && lv->dims[2] > 0 ? lv->dims[2] : r->vocab;
	rc = genai_states_find(g, r->c, &s->states, r->err);
	if (!rc)
		rc = check_inputs(r, s);
	s->rope_rows = s->turn == GENAI_NONE ? rope_rows(g) : r->turn_rows;
	s->turn_limit = r->turn_limit;
	s->turn_row = r->turn_row;
	s->turns_again = s->turn != GENAI_NONE &&
			 r->turn_limit >= known_limit(r->c->type);
	return rc;
}

int32_t genai_step_build(const struct genai_graph *source,
			 const struct genai_model_config *config,
			 enum genai_step_rows rows, bool narrow,
			 struct genai_step *out_step, struct genai_error *err)
{
	struct step_rewrite r = {.g = source,
				 .c = config,
				 .err = err,
				 .rows = GENAI_NONE,
				 .packed = rows == GENAI_STEP_PACKED};
	struct genai_step s = {0};
	char logits_name[256] = "";
	uint32_t logits = GENAI_NONE;
	int32_t rc;

	r.b = genai_builder_open("step");
	genai_builder_copy(r.b, source);
	rc = rewrite(&r, rows != GENAI_STEP_ALL, narrow, &logits, &s.one_row);
	if (rc) {
		genai_builder_close(r.b);
		return rc;
	}
	if (genai_builder_get_value(r.b, logits))
		snprintf(logits_name, sizeof(logits_name), "%s",
			 genai_builder_get_value(r.b, logits)->name);
	rc = genai_builder_finish(r.b, &s.graph, err);
	if (!rc)
		rc = describe(&r, &s, logits_name);
	if (rc)
		genai_step_free(&s);
	else
		*out_step = s;
	return rc;
}

void genai_step_free(struct genai_step *s)
{
	genai_graph_free(s->graph);
	genai_states_free(&s->states);
	memset(s, 0, sizeof(*s));
}
