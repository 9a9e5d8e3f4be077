// control.c - If, Loop and Scan of a graph that is run once.
//
// The nodes between two of them are a graph of their own, which the executor
// runs (single.c); what is chosen and counted is seen to here, on the host.  So
// any executor has these operators, and none must know them.
#include "core/model/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/graph/build.h"

#define MAX_DEPTH 16
#define MAX_RUNS 16384u // of subgraphs, all together

#define HAVE 1u
#define OWN 2u

static bool is_control(const struct genai_node *n)
{
	return !*n->domain && (!strcmp(n->op, "If") || !strcmp(n->op, "Loop") ||
			       !strcmp(n->op, "Scan"));
}

int32_t control_fail(const struct genai_node *n, struct genai_error *err,
		     int32_t code, const char *why)
{
	return genai_fail(err, code, "node %s (%s): %s", n->name, n->op, why);
}

const struct genai_graph *control_body(const struct genai_node *n,
				       const char *name)
{
	for (uint32_t i = 0; i < n->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(n, i);

		if (a->kind == GENAI_ATTR_GRAPH && !strcmp(a->name, name))
			return a->graph;
	}
	return NULL;
}

const struct genai_attr *control_attr(const struct genai_node *n,
				      const char *name)
{
	for (uint32_t i = 0; i < n->n_attrs; i++)
		if (!strcmp(genai_node_attr(n, i)->name, name))
			return genai_node_attr(n, i);
	return NULL;
}

// ---- scopes ----

static int32_t scope_open(struct scope *s, struct control *c,
			  const struct scope *up, const struct genai_graph *g,
			  struct genai_error *err)
{
	memset(s, 0, sizeof(*s));
	s->c = c;
	s->up = up;
	s->g = g;
	s->depth = up ? up->depth + 1 : 0;
	if (s->depth > MAX_DEPTH)
		return genai_fail(err, GENAI_E_LIMIT,
				  "subgraphs are nested more than %d deep",
				  MAX_DEPTH);
	if (up && ++c->runs > MAX_RUNS)
		return genai_fail(err, GENAI_E_LIMIT,
				  "more than %u runs of subgraphs", MAX_RUNS);
	s->v = calloc(g->n_values + 1, sizeof(*s->v));
	s->state = calloc(g->n_values + 1, 1);
	if (s->v && s->state)
		return 0;
	free(s->v);
	free(s->state);
	s->v = NULL;
	s->state = NULL;
	return genai_fail(err, GENAI_E_NOMEM, "no memory");
}

static void scope_close(struct scope *s)
{
	for (uint32_t i = 0; s->v && i < s->g->n_values; i++)
		if (s->state[i] & OWN)
			free(s->v[i].data);
	free(s->v);
	free(s->state);
}

static void lend(struct scope *s, uint32_t value,
		 const struct genai_host_tensor *t)
{
	s->v[value] = *t;
	s->state[value] = HAVE;
}

// The value takes t's data, whether it can be used or not.
void control_put(struct scope *s, uint32_t value, struct genai_host_tensor *t)
{
	if (value == GENAI_NONE) {
		free(t->data);
	} else {
		s->v[value] = *t;
		s->state[value] = HAVE | OWN;
	}
	t->data = NULL;
}

static uint32_t value_named(const struct genai_graph *g, const char *name)
{
	for (uint32_t i = 0; i < g->n_values; i++)
		if (!strcmp(genai_graph_value(g, i)->name, name))
			return i;
	return GENAI_NONE;
}

int32_t control_get(const struct scope *s, uint32_t value,
		    struct genai_host_tensor *out, struct genai_error *err)
{
	const char *name = genai_graph_value(s->g, value)->name;

	for (; s; s = s->up, value = s ? value_named(s->g, name) : value) {
		const struct genai_value *v;
		const struct genai_tensor *t;

		if (value == GENAI_NONE)
			continue;
		if (s->state[value] & HAVE) {
			*out = s->v[value];
			return 0;
		}
		v = genai_graph_value(s->g, value);
		if (v->tensor == GENAI_NONE)
			continue;
		t = genai_graph_tensor(s->g, v->tensor);
		memset(out, 0, sizeof(*out));
		out->dtype = t->dtype;
		out->rank = t->rank;
		memcpy(out->dims, t->dims, sizeof(out->dims));
		out->bytes = t->bytes;
		// read only, by whoever gets it
		out->data = (char *)(uintptr_t)genai_graph_file(s->g, t->file)
				    ->data +
			    t->offset;
		return 0;
	}
	return genai_fail(err, GENAI_E_FORMAT, "value %s is not known", name);
}

int32_t control_copy(const struct genai_host_tensor *t,
		     struct genai_host_tensor *out, struct genai_error *err)
{
	*out = *t;
	out->data = malloc(t->bytes + 1);
	if (!out->data)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	if (t->bytes)
		memcpy(out->data, t->data, t->bytes);
	return 0;
}

static int32_t run_scope(struct scope *s, struct genai_error *err);

// Run a graph on inputs that stay the caller's; outputs are its own.
static int32_t run_graph(struct control *c, const struct scope *up,
			 const struct genai_graph *g,
			 const struct genai_host_tensor *in,
			 struct genai_host_tensor *out, struct genai_error *err)
{
	struct scope s;
	int32_t rc = scope_open(&s, c, up, g, err);

	memset(out, 0, g->n_outputs * sizeof(*out));
	if (rc)
		return rc;
	for (uint32_t i = 0; i < g->n_inputs; i++)
		lend(&s, g->inputs[i], &in[i]);
	rc = run_scope(&s, err);
	for (uint32_t i = 0; !rc && i < g->n_outputs; i++) {
		struct genai_host_tensor t;

		rc = control_get(&s, g->outputs[i], &t, err);
		if (!rc)
			rc = control_copy(&t, &out[i], err);
	}
	scope_close(&s);
	return rc;
}

int32_t control_run_body(const struct scope *up, const struct genai_graph *g,
			 const struct genai_host_tensor *in,
			 struct genai_host_tensor *out, struct genai_error *err)
{
	return run_graph(up->c, up, g, in, out, err);
}

void control_drop(struct genai_host_tensor *t, uint32_t n)
{
	for (uint32_t i = 0; t && i < n; i++) {
		free(t[i].data);
		t[i].data = NULL;
	}
}

// ---- the nodes between ----

// A value that a subgraph of a subgraph reads is one of both.
static bool captured_by(const struct genai_node *n, const char *name)
{
	for (uint32_t k = 0; k < n->n_attrs; k++) {
		const struct genai_attr *a = genai_node_attr(n, k);

		for (uint32_t i = 0;
		     a->kind == GENAI_ATTR_GRAPH && i < a->graph->n_values;
		     i++) {
			const struct genai_value *v =
				genai_graph_value(a->graph, i);

			if (v->flags & GENAI_VALUE_OUTER &&
			    !strcmp(v->name, name))
				return true;
		}
	}
	return false;
}

// Is it read by what comes after node last, or the graph's?
static bool wanted(const struct genai_graph *g, uint32_t value, uint32_t last)
{
	const struct genai_value *v = genai_graph_value(g, value);

	if (v->flags & GENAI_VALUE_OUTPUT)
		return true;
	for (uint32_t i = last + 1; i < g->n_nodes; i++) {
		const struct genai_node *n = genai_graph_node(g, i);

		for (uint32_t k = 0; k < n->n_inputs; k++)
			if (n->inputs[k] == value)
				return true;
		if (captured_by(n, v->name))
			return true;
	}
	return false;
}

static const char out_prefix[] = "genai.out.";

// An output that is a copy: what a shape is made of stays known while planning.
static void give(struct genai_builder *b, const struct genai_graph *g,
		 uint32_t value)
{
	const struct genai_value *v = genai_graph_value(g, value);
	char name[4200];
	uint32_t copy;

	snprintf(name, sizeof(name), "%s%s", out_prefix, v->name);
	copy = genai_builder_value(b, name, v->dtype, v->rank, v->dims,
				   v->symbols);
	genai_builder_node(b, "Identity", "", 13, name, &value, 1, &copy, 1);
	genai_builder_output(b, copy);
}

// Nodes [first, last] of g, their inputs and those outputs that are wanted.
static int32_t cut_out(const struct genai_graph *g, uint32_t first,
		       uint32_t last, struct genai_graph **out,
		       struct genai_error *err)
{
	struct genai_builder *b = genai_builder_open("part");
	unsigned char *in = calloc(g->n_values + 1, 1);

	genai_builder_copy(b, g);
	for (uint32_t i = 0; i < g->n_outputs; i++)
		genai_builder_remove_output(b, g->outputs[i]);
	for (uint32_t i = 0; i < g->n_inputs; i++)
		genai_builder_remove_input(b, g->inputs[i]);
	for (uint32_t i = 0; i < g->n_nodes; i++)
		if (i < first || i > last)
			genai_builder_remove_node(b, i);
	for (uint32_t i = first; in && i <= last; i++) {
		const struct genai_node *n = genai_graph_node(g, i);

		for (uint32_t k = 0; k < n->n_inputs; k++) {
			uint32_t v = n->inputs[k], p;

			if (v == GENAI_NONE || in[v] ||
			    genai_graph_value(g, v)->tensor != GENAI_NONE)
				continue;
			p = genai_graph_value(g, v)->producer;
			in[v] = 1;
			if (p != GENAI_NONE && p >= first && p <= last)
				continue;
			genai_builder_own(b, v);
			genai_builder_input(b, v);
		}
		for (uint32_t k = 0; k < n->n_outputs; k++)
			if (n->outputs[k] != GENAI_NONE &&
			    wanted(g, n->outputs[k], last))
				give(b, g, n->outputs[k]);
	}
	if (!in) {
		genai_builder_close(b);
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	}
	free(in);
	genai_builder_prune(b);
	return genai_builder_finish(b, out, err);
}

static int32_t run_part(struct scope *s, uint32_t first, uint32_t last,
			struct genai_error *err)
{
	struct genai_host_tensor *in = NULL, *out = NULL;
	struct genai_graph *g = NULL;
	int32_t rc = cut_out(s->g, first, last, &g, err);

	if (rc)
		return rc;
	in = calloc(g->n_inputs + 1, sizeof(*in));
	out = calloc(g->n_outputs + 1, sizeof(*out));
	if (!in || !out)
		rc = genai_fail(err, GENAI_E_NOMEM, "no memory");
	for (uint32_t i = 0; !rc && i < g->n_inputs; i++) {
		const char *name = genai_graph_value(g, g->inputs[i])->name;

		rc = control_get(s, value_named(s->g, name), &in[i], err);
	}
	if (!rc && g->n_outputs)
		rc = genai_single_flat(s->c->rt, g, in, out, err);
	for (uint32_t i = 0; !rc && i < g->n_outputs; i++) {
		const char *name = genai_graph_value(g, g->outputs[i])->name;

		name += sizeof(out_prefix) - 1;
		control_put(s, value_named(s->g, name), &out[i]);
	}
	genai_graph_free(g);
	free(in);
	free(out);
	return rc;
}

// ---- numbers that decide ----

static int32_t one_number(const struct genai_node *n,
			  const struct genai_host_tensor *t, const char *what,
			  int64_t *out, struct genai_error *err)
{
	int64_t elements = 1;

	for (uint32_t d = 0; d < t->rank; d++)
		elements *= t->dims[d];
	if (elements == 1 && t->dtype == GENAI_DT_BOOL)
		*out = *(const unsigned char *)t->data != 0;
	else if (elements == 1 && t->dtype == GENAI_DT_I64)
		memcpy(out, t->data, 8);
	else
		return genai_fail(err, GENAI_E_INVAL,
				  "node %s (%s): %s is not one number, int64 "
				  "or bool",
				  n->name, n->op, what);
	return 0;
}

int32_t control_number(const struct scope *s, const struct genai_node *n,
		       uint32_t i, const char *what, int64_t *io,
		       struct genai_error *err)
{
	struct genai_host_tensor t;
	int32_t rc;

	if (i >= n->n_inputs || n->inputs[i] == GENAI_NONE)
		return 0;
	rc = control_get(s, n->inputs[i], &t, err);
	return rc ? rc : one_number(n, &t, what, io, err);
}

// ---- If ----

static int32_t run_if(struct scope *s, const struct genai_node *n,
		      struct genai_error *err)
{
	struct genai_host_tensor *out;
	const struct genai_graph *g;
	int64_t cond = -1;
	int32_t rc = control_number(s, n, 0, "the condition", &cond, err);

	if (rc)
		return rc;
	g = control_body(n, cond ? "then_branch" : "else_branch");
	if (cond < 0 || !g || g->n_inputs || g->n_outputs < n->n_outputs)
		return control_fail(n, err, GENAI_E_FORMAT,
				    "its condition or branches are missing, or "
				    "do not fit its outputs");
	out = calloc(g->n_outputs + 1, sizeof(*out));
	if (!out)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	rc = control_run_body(s, g, NULL, out, err);
	for (uint32_t i = 0; !rc && i < n->n_outputs; i++)
		control_put(s, n->outputs[i], &out[i]);
	control_drop(out, g->n_outputs);
	free(out);
	return rc;
}

// ---- a graph ----

static int32_t run_control(struct scope *s, const struct genai_node *n,
			   struct genai_error *err)
{
	int32_t rc;

	if (!strcmp(n->op, "If"))
		rc = run_if(s, n, err);
	else if (!strcmp(n->op, "Loop"))
		rc = control_loop(s, n, err);
	else
		rc = control_scan(s, n, err);
	if (rc && err && strncmp(err->text, "node ", 5))
		genai_error_prefix(err, "node %s (%s)", n->name, n->op);
	return rc;
}

static int32_t run_scope(struct scope *s, struct genai_error *err)
{
	const struct genai_graph *g = s->g;
	int32_t rc = 0;

	for (uint32_t i = 0, last; !rc && i < g->n_nodes; i = last + 1) {
		last = i;
		if (is_control(genai_graph_node(g, i))) {
			rc = run_control(s, genai_graph_node(g, i), err);
			continue;
		}
		while (last + 1 < g->n_nodes &&
		       !is_control(genai_graph_node(g, last + 1)))
			last++;
		rc = run_part(s, i, last, err);
	}
	return rc;
}

static bool has_control(const struct genai_graph *g)
{
	for (uint32_t i = 0; i < g->n_nodes; i++)
		if (is_control(genai_graph_node(g, i)))
			return true;
	return false;
}

int32_t genai_single_run(struct genai_runtime *rt, const struct genai_graph *g,
			 const struct genai_host_tensor *inputs,
			 struct genai_host_tensor *outputs,
			 struct genai_error *err)
{
	struct control c = {.rt = rt};
	int32_t rc;

	if (!has_control(g))
		return genai_single_flat(rt, g, inputs, outputs, err);
	memset(outputs, 0, g->n_outputs * sizeof(*outputs));
	rc = genai_single_check(g, inputs, err);
	if (!rc)
		rc = run_graph(&c, NULL, g, inputs, outputs, err);
	if (rc)
		control_drop(outputs, g->n_outputs);
	return rc;
}
