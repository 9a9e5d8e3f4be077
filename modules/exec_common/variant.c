// variant.c - the shapes for what is bound: every value's shape, what is known
// while planning, which nodes run; a few are kept.
#include "exec.h"

#include <stdio.h>
#include <string.h>

#define KEPT 8u // before the first is given up

// ---- for modules ----

// A node without a name goes by that of what it writes.
static const char *name_of(const struct genai_graph *g,
			   const struct genai_node *n)
{
	for (uint32_t i = 0; !n->name[0] && i < n->n_outputs; i++)
		if (n->outputs[i] != GENAI_NONE)
			return genai_graph_value(g, n->outputs[i])->name;
	return n->name;
}

int32_t exec_node_fail(const struct exec_variant *v, uint32_t node,
		       struct genai_error *err, int32_t code, const char *text)
{
	const struct genai_graph *g = v->plan->graph;
	const struct genai_node *n = genai_graph_node(g, node);

	EXEC_FAIL(v->plan, err, code, "node %s (%s): %s", name_of(g, n), n->op,
		  text);
	if (err)
		err->node = node;
	return code;
}

int32_t exec_not_carried(const struct exec_variant *v, uint32_t node,
			 struct genai_error *err)
{
	const struct genai_graph *g = v->plan->graph;
	const struct genai_node *n = genai_graph_node(g, node);

	return EXEC_FAIL(v->plan, err, GENAI_E_UNSUPPORTED,
			 "node %s: operator %s of domain '%s' (opset %lld) is "
			 "not carried",
			 name_of(g, n), n->op,
			 n->domain[0] ? n->domain : "ai.onnx",
			 (long long)n->opset);
}

void exec_link(struct exec_variant *v, uint32_t node, struct exec_tensor **in,
	       struct exec_tensor **out)
{
	const struct exec_node *n = &v->facts[node];

	for (uint32_t k = 0; k < n->n_in; k++)
		in[k] = n->in[k] == GENAI_NONE ? NULL : &v->tensors[n->in[k]];
	for (uint32_t k = 0; k < n->n_out; k++)
		out[k] =
			n->out[k] == GENAI_NONE ? NULL : &v->tensors[n->out[k]];
}

bool exec_is_weight(const struct exec_variant *v, uint32_t value)
{
	return value != GENAI_NONE &&
	       v->where[exec_root(v, value)] == EXEC_WEIGHT;
}

bool exec_reads(const struct exec_node *n, uint32_t i)
{
	uint32_t not = n->facts.host | n->facts.dims_only;

	return !n->silent && n->in[i] != GENAI_NONE && !EXEC_HAS(not, i);
}

// ---- building ----

static void set_sources(struct exec_variant *v)
{
	const struct genai_graph *g = v->plan->graph;

	for (uint32_t i = 0; i < g->n_values; i++) {
		const struct genai_value *x = genai_graph_value(g, i);
		struct exec_tensor *t = &v->tensors[i];
		const struct genai_tensor *s;

		t->name = x->name ? x->name : "";
		t->root = EXEC_OWN;
		if (x->tensor == GENAI_NONE)
			continue;
		s = genai_graph_tensor(g, x->tensor);
		t->dtype = s->dtype;
		t->rank = s->rank;
		memcpy(t->dims, s->dims, sizeof(t->dims));
		exec_dense(t->rank, t->dims, t->strides);
		t->value = (const char *)genai_graph_file(g, s->file)->data +
			   s->offset;
		v->where[i] = s->bytes <= v->plan->m->known_bytes ? EXEC_KNOWN
								  : EXEC_WEIGHT;
	}
	for (uint32_t i = 0; i < g->n_inputs; i++) {
		struct exec_tensor *t = &v->tensors[g->inputs[i]];

		t->dtype = v->in[i].dtype;
		t->rank = v->in[i].rank;
		memcpy(t->dims, v->in[i].dims, sizeof(t->dims));
		memcpy(t->strides, v->in[i].strides, sizeof(t->strides));
		v->where[g->inputs[i]] = EXEC_INPUT;
	}
}

// What is bound has the shape that the graph makes; a state is as long as what
// it is bound to, which may be more than a step writes.
static int32_t check_output(struct exec_variant *v, uint32_t value, bool state,
			    struct genai_error *err)
{
	struct exec_plan *p = v->plan;
	const struct genai_view *b = &v->out[p->values[value].output];
	struct exec_tensor *t = &v->tensors[value];
	bool same = b->rank == t->rank && b->dtype == t->dtype;

	if (!b->size)
		return 0;
	for (uint32_t d = 0; same && d < t->rank; d++)
		same = b->dims[d] == t->dims[d] || (state && d == 2);
	if (!same)
		return EXEC_FAIL(
			p, err, GENAI_E_INVAL,
			"output %s is bound with type %u, rank %u, last "
			"dimension %lld: the graph makes type %u, rank %u, "
			"last dimension %lld",
			t->name, b->dtype, b->rank,
			(long long)(b->rank ? b->dims[b->rank - 1] : 0),
			t->dtype, t->rank,
			(long long)(t->rank ? t->dims[t->rank - 1] : 0));
	if (state) {
		memcpy(t->dims, b->dims, sizeof(t->dims));
		memcpy(t->strides, b->strides, sizeof(t->strides));
		return 0;
	}
	for (uint32_t d = 0; d < t->rank; d++)
		if (b->dims[d] > 1 && b->strides[d] != t->strides[d] &&
		    t->root == EXEC_OWN)
			return EXEC_FAIL(p, err, GENAI_E_UNSUPPORTED,
					 "output %s is bound with gaps",
					 t->name);
	return 0;
}

// Where the outputs of a prepared node are.
static int32_t settle(struct exec_variant *v, uint32_t i,
		      struct genai_error *err)
{
	const struct exec_node *n = &v->facts[i];
	int32_t rc = 0;

	for (uint32_t k = 0; !rc && k < n->n_out; k++) {
		uint32_t x = n->out[k];
		bool out;

		if (x == GENAI_NONE)
			continue;
		out = v->plan->values[x].output != GENAI_NONE;
		if (n->folded)
			v->where[x] = EXEC_KNOWN;
		else if (!n->silent && v->tensors[x].root == EXEC_OWN)
			v->where[x] = out ? EXEC_OUTPUT : EXEC_ARENA;
		if (out)
			rc = check_output(v, x, EXEC_HAS(n->facts.state_out, k),
					  err);
	}
	v->n_folded += n->folded;
	if (v->workspace_bytes < n->workspace_bytes)
		v->workspace_bytes = n->workspace_bytes;
	return rc;
}

static int32_t add_node(struct exec_variant *v, uint32_t i,
			struct genai_error *err)
{
	const struct genai_node *n = genai_graph_node(v->plan->graph, i);
	struct exec_node *x = &v->facts[i];
	char text[100];
	int32_t rc;

	if (n->n_inputs > EXEC_MAX_IN || n->n_outputs > EXEC_MAX_OUT) {
		snprintf(text, sizeof(text),
			 "%u inputs and %u outputs, at most %u and %u are "
			 "carried",
			 n->n_inputs, n->n_outputs, EXEC_MAX_IN, EXEC_MAX_OUT);
		return exec_node_fail(v, i, err, GENAI_E_UNSUPPORTED, text);
	}
	x->n_in = n->n_inputs;
	x->n_out = n->n_outputs;
	x->in = n->inputs;
	x->out = n->outputs;
	rc = v->plan->m->prepare(v, i, err);
	if (rc && err)
		err->node = i;
	return rc ? rc : settle(v, i, err);
}

static bool is_repeated(const struct exec_plan *p, const struct genai_view *in)
{
	uint32_t n = p->graph->n_inputs;

	for (uint32_t k = 0; k < p->n_repeated; k++) {
		const struct genai_view *r = p->repeated + (size_t)k * n;
		uint32_t i = 0;

		while (i < n && in[i].rank == r[i].rank &&
		       !memcmp(in[i].dims, r[i].dims,
			       r[i].rank * sizeof(r[i].dims[0])))
			i++;
		if (i == n)
			return true;
	}
	return false;
}

int32_t exec_variant_new(struct exec_plan *p, const struct genai_view *in,
			 const struct genai_view *out,
			 struct exec_variant **out_v, struct genai_error *err)
{
	const struct genai_graph *g = p->graph;
	const struct genai_host *h = p->host;
	struct exec_variant *v = exec_zalloc(h, p->m->variant_bytes);
	int32_t rc = 0;

	if (!v)
		return EXEC_FAIL(p, err, GENAI_E_NOMEM, "no memory for a plan");
	v->plan = p;
	v->in = exec_zalloc(h, g->n_inputs * sizeof(*v->in));
	v->out = exec_zalloc(h, g->n_outputs * sizeof(*v->out));
	v->tensors = exec_zalloc(h, g->n_values * sizeof(*v->tensors));
	v->where = exec_zalloc(h, g->n_values);
	v->facts = exec_zalloc(h, g->n_nodes * sizeof(*v->facts));
	v->nodes = exec_zalloc(h, g->n_nodes * p->m->node_bytes);
	if (!v->in || !v->out || !v->tensors || !v->where || !v->facts ||
	    !v->nodes) {
		rc = EXEC_FAIL(p, err, GENAI_E_NOMEM,
			       "no memory for a plan of %u nodes", g->n_nodes);
		goto err_variant;
	}
	memcpy(v->in, in, g->n_inputs * sizeof(*in));
	memcpy(v->out, out, g->n_outputs * sizeof(*out));
	v->repeats = is_repeated(p, in);
	set_sources(v);
	for (uint32_t i = 0; !rc && i < g->n_nodes; i++)
		rc = add_node(v, i, err);
	for (uint32_t i = 0; !rc && i < g->n_outputs; i++)
		if (genai_graph_value(g, g->outputs[i])->producer == GENAI_NONE)
			rc = check_output(v, g->outputs[i], false, err);
	if (rc)
		goto err_variant;
	*out_v = v;
	return 0;
err_variant:
	exec_variant_free(v);
	return rc;
}

void exec_variant_free(struct exec_variant *v)
{
	const struct genai_host *h;

	if (!v)
		return;
	h = v->plan->host;
	if (v->plan->m->variant_close)
		v->plan->m->variant_close(v);
	h->free(h->ctx, v->in);
	h->free(h->ctx, v->out);
	h->free(h->ctx, v->tensors);
	h->free(h->ctx, v->where);
	h->free(h->ctx, v->facts);
	h->free(h->ctx, v->nodes);
	h->free(h->ctx, v->contexts);
	h->free(h->ctx, v);
}

// ---- keeping ----

static bool same_shape(const struct genai_view *a, const struct genai_view *b)
{
	return a->size == b->size && a->dtype == b->dtype &&
	       a->rank == b->rank &&
	       !memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) &&
	       !memcmp(a->strides, b->strides, a->rank * sizeof(a->dims[0]));
}

static bool is_for(const struct exec_variant *v, const struct exec_plan *p)
{
	for (uint32_t i = 0; i < p->graph->n_inputs; i++)
		if (!same_shape(&v->in[i], &p->inputs[i]))
			return false;
	for (uint32_t i = 0; i < p->graph->n_outputs; i++)
		if (!same_shape(&v->out[i], &p->outputs[i]))
			return false;
	return true;
}

// A place for one more: a free one while few are kept; then that of the one not
// used for longest that no recording and no launch names any more.
static int32_t find_slot(struct exec_plan *p, uint32_t *out_slot,
			 struct genai_error *err)
{
	uint32_t best = GENAI_NONE, empty = GENAI_NONE, kept = 0;

	for (uint32_t i = 0; i < EXEC_VARIANTS; i++) {
		kept += p->variants[i] != NULL;
		if (!p->variants[i] && empty == GENAI_NONE)
			empty = i;
	}
	for (uint32_t i = 0; kept >= KEPT && i < EXEC_VARIANTS; i++) {
		const struct exec_variant *v = p->variants[i];

		if (!v || v->n_recorded ||
		    (best != GENAI_NONE && v->used > p->variants[best]->used) ||
		    (p->m->launch_bytes &&
		     p->stream->ops->poll(p->stream->self, v->last, NULL) ==
			     GENAI_PENDING))
			continue;
		best = i;
	}
	if (best == GENAI_NONE)
		best = empty;
	if (best == GENAI_NONE)
		return EXEC_FAIL(p, err, GENAI_E_BUSY,
				 "steps of %u different shapes are queued",
				 kept);
	*out_slot = best;
	return 0;
}

static int32_t add_variant(struct exec_plan *p, struct exec_variant **out_v,
			   struct genai_error *err)
{
	struct exec_variant *v;
	uint32_t slot = 0;
	int32_t rc = find_slot(p, &slot, err);

	if (!rc)
		rc = exec_variant_new(p, p->inputs, p->outputs, &v, err);
	if (rc)
		return rc;
	rc = exec_place_check(v, err);
	if (rc) {
		exec_variant_free(v);
		return rc;
	}
	if (p->variants[slot] == p->current)
		p->current = NULL;
	exec_variant_free(p->variants[slot]);
	p->variants[slot] = v;
	v->slot = slot;
	*out_v = v;
	return 0;
}

int32_t exec_variant_get(struct exec_plan *p, struct exec_variant **out_v,
			 struct genai_error *err)
{
	struct exec_variant *v = p->current;
	const struct genai_graph *g = p->graph;
	int32_t rc;

	if (v && p->current_generation == p->generation) {
		*out_v = v;
		return 0;
	}
	for (uint32_t i = 0; i < g->n_inputs; i++)
		if (!p->inputs[i].size)
			return EXEC_FAIL(
				p, err, GENAI_E_STATE,
				"graph input %s is not bound",
				genai_graph_value(g, g->inputs[i])->name);
	v = NULL;
	for (uint32_t i = 0; !v && i < EXEC_VARIANTS; i++)
		if (p->variants[i] && is_for(p->variants[i], p))
			v = p->variants[i];
	rc = v ? 0 : add_variant(p, &v, err);
	if (rc)
		return rc;
	p->current = v;
	p->current_generation = p->generation;
	v->used = ++p->clock;
	*out_v = v;
	return 0;
}

// ---- addresses ----

static genai_addr end_of(const struct genai_view *b)
{
	return b->addr + exec_span_of(b->dtype, b->rank, b->dims, b->strides);
}

// An output that lies over an input which later nodes still read is written to
// the arena, and moved at the end.
static int32_t set_late(struct exec_plan *p, struct genai_error *err)
{
	const struct genai_graph *g = p->graph;

	for (uint32_t o = 0; o < g->n_outputs; o++) {
		struct exec_value *x = &p->values[g->outputs[o]];
		const struct genai_view *out = &p->outputs[o];

		x->late = false;
		for (uint32_t i = 0; i < g->n_inputs; i++) {
			const struct genai_view *in = &p->inputs[i];
			uint32_t last = p->values[g->inputs[i]].last;

			x->late |= x->first != GENAI_NONE &&
				   last != GENAI_NONE && last > x->first &&
				   in->addr < end_of(out) &&
				   out->addr < end_of(in);
		}
		if (x->late && !x->bytes)
			return EXEC_FAIL(
				p, err, GENAI_E_INVAL,
				"output %s lies over an input that is read "
				"after it is written",
				genai_graph_value(g, g->outputs[o])->name);
	}
	return 0;
}

static genai_addr address(const struct exec_variant *v, uint32_t value)
{
	const struct exec_plan *p = v->plan;
	const struct exec_value *x = &p->values[value];
	genai_addr mem = p->mem.range.addr;

	switch (v->where[value]) {
	case EXEC_INPUT:
		return p->inputs[x->input].addr;
	case EXEC_OUTPUT:
		return x->late ? mem + x->offset : p->outputs[x->output].addr;
	case EXEC_KNOWN:
		return mem + p->const_at + v->slot * p->const_bytes + x->offset;
	case EXEC_ARENA:
		return mem + x->offset;
	default:
		return 0;
	}
}

int32_t exec_variant_resolve(struct exec_variant *v, struct genai_error *err)
{
	struct exec_plan *p = v->plan;
	int32_t rc;

	if (v->resolved == p->generation)
		return 0;
	rc = set_late(p, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < p->graph->n_values; i++) {
		struct exec_tensor *t = &v->tensors[i];

		t->addr = address(v, exec_root(v, i)) + t->offset;
	}
	v->resolved = p->generation;
	return 0;
}
