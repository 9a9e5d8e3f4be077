// shape.c - what depends on the inputs' dims: every value's shape, what is
// folded while planning, which nodes run.
#include "plan.h"

#include <string.h>

static void *zalloc(struct genai_plan *p, uint64_t bytes)
{
	void *m = p->dev->host->alloc(p->dev->host->ctx, bytes ? bytes : 1,
				      "plan");

	if (m)
		memset(m, 0, bytes);
	return m;
}

void cref_shape_free(struct cref_shape *s)
{
	const struct genai_host *host;

	if (!s)
		return;
	host = s->plan->dev->host;
	for (uint32_t v = 0; s->folded && v < s->plan->graph->n_values; v++)
		host->free(host->ctx, s->folded[v]);
	host->free(host->ctx, s->inputs);
	host->free(host->ctx, s->outputs);
	host->free(host->ctx, s->tensors);
	host->free(host->ctx, s->nodes);
	host->free(host->ctx, s->where);
	host->free(host->ctx, s->runs);
	host->free(host->ctx, s->folded);
	host->free(host->ctx, s->units);
	host->free(host->ctx, s);
}

// A view's dims become the tensor's; what is bound outside lies outside.
static void from_view(struct cref_tensor *t, const struct genai_view *v)
{
	t->dtype = v->dtype;
	t->rank = v->rank;
	memcpy(t->dims, v->dims, sizeof(t->dims));
	memcpy(t->strides, v->strides, sizeof(t->strides));
}

static void init_values(struct cref_shape *s)
{
	const struct genai_graph *g = s->plan->graph;

	for (uint32_t i = 0; i < g->n_values; i++) {
		const struct genai_value *v = genai_graph_value(g, i);
		struct cref_tensor *t = &s->tensors[i];
		const struct genai_tensor *st;

		t->name = v->name;
		if (v->tensor == GENAI_NONE)
			continue;
		st = genai_graph_tensor(g, v->tensor);
		cref_set_dense(t, st->dtype, st->rank, st->dims);
		t->value = (const char *)genai_graph_file(g, st->file)->data +
			   st->offset;
		if (st->bytes <= CREF_BY_VALUE_BYTES) {
			s->where[i] = CREF_VALUE;
			t->data = (void *)(uintptr_t)t->value;
		} else {
			s->where[i] = CREF_WEIGHT;
		}
	}
	for (uint32_t i = 0; i < g->n_inputs; i++) {
		from_view(&s->tensors[g->inputs[i]], &s->inputs[i]);
		s->where[g->inputs[i]] = CREF_BOUND;
	}
}

// A node without a name goes by that of what it writes.
static const char *name_of(const struct genai_graph *g,
			   const struct genai_node *n)
{
	for (uint32_t i = 0; !n->name[0] && i < n->n_outputs; i++)
		if (n->outputs[i] != GENAI_NONE)
			return genai_graph_value(g, n->outputs[i])->name;
	return n->name;
}

static int32_t init_node(struct cref_shape *s, uint32_t i,
			 struct genai_error *err)
{
	const struct genai_node *gn = genai_graph_node(s->plan->graph, i);
	struct cref_device *dev = s->plan->dev;
	struct cref_node *n = &s->nodes[i];

	n->node = gn;
	n->graph = s->plan->graph;
	n->op = cref_op_find(gn);
	if (!n->op)
		return CREF_FAIL(dev, err, GENAI_E_UNSUPPORTED,
				 "node %s: operator %s of domain '%s' (opset "
				 "%lld) is not carried",
				 name_of(n->graph, gn), gn->op,
				 gn->domain[0] ? gn->domain : "ai.onnx",
				 (long long)gn->opset);
	if (gn->n_inputs > CREF_MAX_IN || gn->n_outputs > CREF_MAX_OUT)
		return CREF_FAIL(dev, err, GENAI_E_UNSUPPORTED,
				 "node %s (%s): %u inputs and %u outputs, at "
				 "most %u and %u",
				 name_of(n->graph, gn), gn->op, gn->n_inputs,
				 gn->n_outputs, CREF_MAX_IN, CREF_MAX_OUT);
	n->n_in = gn->n_inputs;
	n->n_out = gn->n_outputs;
	for (uint32_t k = 0; k < n->n_in; k++)
		if (gn->inputs[k] != GENAI_NONE)
			n->in[k] = &s->tensors[gn->inputs[k]];
	for (uint32_t k = 0; k < n->n_out; k++)
		if (gn->outputs[k] != GENAI_NONE)
			n->out[k] = &s->tensors[gn->outputs[k]];
	return 0;
}

static bool foldable(const struct cref_node *n)
{
	// these read their input's dims, never its bytes
	bool dims_only = !strcmp(n->node->op, "Shape") ||
			 !strcmp(n->node->op, "Size") ||
			 !strcmp(n->node->op, "EyeLike");
	uint64_t bytes = 0;

	for (uint32_t k = 0; !dims_only && k < n->n_in; k++)
		if (n->in[k] && !n->in[k]->value && cref_elements(n->in[k]))
			return false;
	for (uint32_t k = 0; k < n->n_out; k++)
		if (n->out[k])
			bytes += cref_tensor_bytes(n->out[k]);
	return bytes <= CREF_FOLD_BYTES;
}

// Compute a node now: its inputs are all known.
static int32_t fold(struct cref_shape *s, uint32_t i, struct genai_error *err)
{
	struct genai_plan *p = s->plan;
	const struct genai_host *host = p->dev->host;
	const struct genai_node *gn = genai_graph_node(p->graph, i);
	struct cref_node *n = &s->nodes[i];
	struct cref_run run = {.err = err};
	void *ws = NULL, *saved[CREF_MAX_IN];
	int32_t rc;

	if (n->workspace_bytes) {
		ws = host->alloc(host->ctx, n->workspace_bytes, "plan");
		if (!ws)
			return CREF_FAIL(p->dev, err, GENAI_E_NOMEM,
					 "no memory to fold node %s", gn->name);
	}
	run.workspace = ws;
	if (n->op->flags & CREF_OP_ROWS && n->out[0]->rank)
		run.row_end =
			(uint64_t)n->out[0]->dims[n->out[0]->rank - 1];
	for (uint32_t k = 0; k < n->n_in; k++)
		if (n->in[k]) {
			saved[k] = n->in[k]->data;
			n->in[k]->data = (void *)(uintptr_t)n->in[k]->value;
		}
	rc = 0;
	for (uint32_t k = 0; !rc && k < n->n_out; k++) {
		uint32_t v = gn->outputs[k];

		if (v == GENAI_NONE)
			continue;
		s->folded[v] = zalloc(p, cref_tensor_bytes(n->out[k]));
		n->out[k]->data = s->folded[v];
		n->out[k]->value = s->folded[v];
		s->where[v] = CREF_VALUE;
		if (!s->folded[v])
			rc = CREF_FAIL(p->dev, err, GENAI_E_NOMEM,
				       "no memory to fold node %s", gn->name);
	}
	if (!rc)
		rc = n->op->run(n, &run);
	for (uint32_t k = 0; k < n->n_in; k++)
		if (n->in[k])
			n->in[k]->data = saved[k];
	host->free(host->ctx, ws);
	s->n_folded++;
	return rc;
}

// A graph output that is bound lies where it is bound, in the shape it has
// there: a shared key/value cache is longer than what a step writes.
static int32_t place_output(struct cref_shape *s, uint32_t v, bool cache,
			    struct genai_error *err)
{
	struct genai_plan *p = s->plan;
	struct cref_tensor *t = &s->tensors[v];
	const struct genai_view *b = &p->bound_out[p->output_of[v]];
	bool same;

	s->where[v] = CREF_BOUND;
	if (!b->size)
		return 0;
	same = b->rank == t->rank && b->dtype == t->dtype;
	for (uint32_t d = 0; same && d < t->rank; d++)
		same = b->dims[d] == t->dims[d] ||
		       (cache && d == 2 && b->dims[d] >= 0);
	if (!same)
		return CREF_FAIL(p->dev, err, GENAI_E_INVAL,
				 "output %s is bound to a view of another "
				 "type or shape than the graph makes",
				 t->name);
	if (!cache && memcmp(b->strides, t->strides,
			     t->rank * sizeof(t->strides[0])))
		return CREF_FAIL(p->dev, err, GENAI_E_UNSUPPORTED,
				 "output %s is bound to a view with strides",
				 t->name);
	from_view(t, b);
	return 0;
}

static int32_t place_outputs(struct cref_shape *s, uint32_t i,
			     struct genai_error *err)
{
	struct genai_plan *p = s->plan;
	const struct genai_node *gn = genai_graph_node(p->graph, i);
	int32_t rc = 0;

	for (uint32_t k = 0; !rc && k < gn->n_outputs; k++) {
		uint32_t v = gn->outputs[k];

		if (v == GENAI_NONE)
			continue;
		if (p->output_of[v] != GENAI_NONE)
			rc = place_output(
				s, v,
				k && !strcmp(gn->op, "GroupQueryAttention"),
				err);
		else
			s->where[v] = CREF_ARENA;
	}
	return rc;
}

static int32_t shape_node(struct cref_shape *s, uint32_t i,
			  struct genai_error *err)
{
	struct genai_plan *p = s->plan;
	const struct genai_node *gn = genai_graph_node(p->graph, i);
	struct cref_node *n = &s->nodes[i];
	bool is_output = false;
	int32_t rc = init_node(s, i, err);

	for (uint32_t k = 0; !rc && k < n->n_in; k++)
		if (n->in[k] && !n->in[k]->dtype)
			rc = cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
					    "the type of input %s is not known",
					    n->in[k]->name);
	if (!rc)
		rc = n->op->prepare(n, err);
	if (rc) {
		if (err)
			err->node = i;
		return rc;
	}
	for (uint32_t k = 0; k < gn->n_outputs; k++)
		is_output |= gn->outputs[k] != GENAI_NONE &&
			     p->output_of[gn->outputs[k]] != GENAI_NONE;
	if (n->op->flags & CREF_OP_ALIAS && !is_output) {
		uint32_t from = gn->inputs[0], to = gn->outputs[0];

		p->root[to] = p->root[from];
		s->where[to] = s->where[from];
		s->tensors[to].value = s->tensors[from].value;
		s->tensors[to].data = s->tensors[from].data;
		return 0;
	}
	if (!is_output && foldable(n))
		return fold(s, i, err);
	s->runs[i] = true;
	if (s->workspace_bytes < n->workspace_bytes)
		s->workspace_bytes = n->workspace_bytes;
	return place_outputs(s, i, err);
}

int32_t cref_shape_create(struct genai_plan *p, const struct genai_view *inputs,
			  struct cref_shape **out_shape,
			  struct genai_error *err)
{
	const struct genai_graph *g = p->graph;
	struct cref_shape *s = zalloc(p, sizeof(*s));
	int32_t rc = 0;

	if (!s)
		return CREF_FAIL(p->dev, err, GENAI_E_NOMEM,
				 "no memory for a plan");
	s->plan = p;
	s->inputs = zalloc(p, g->n_inputs * sizeof(*s->inputs));
	s->outputs = zalloc(p, g->n_outputs * sizeof(*s->outputs));
	s->tensors = zalloc(p, g->n_values * sizeof(*s->tensors));
	s->nodes = zalloc(p, g->n_nodes * sizeof(*s->nodes));
	s->where = zalloc(p, g->n_values);
	s->runs = zalloc(p, g->n_nodes * sizeof(*s->runs));
	s->folded = zalloc(p, g->n_values * sizeof(*s->folded));
	if (!s->inputs || !s->outputs || !s->tensors || !s->nodes || !s->where || !s->runs ||
	    !s->folded) {
		cref_shape_free(s);
		return CREF_FAIL(p->dev, err, GENAI_E_NOMEM,
				 "no memory for a plan of %u nodes",
				 g->n_nodes);
	}
	memcpy(s->inputs, inputs, g->n_inputs * sizeof(*inputs));
	memcpy(s->outputs, p->bound_out, g->n_outputs * sizeof(*s->outputs));
	init_values(s);
	for (uint32_t i = 0; !rc && i < g->n_nodes; i++)
		rc = shape_node(s, i, err);
	if (rc)
		cref_shape_free(s);
	else
		*out_shape = s;
	return rc;
}
