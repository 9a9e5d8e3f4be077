// place.c - where values lie: laid out once, for the largest shapes; the others
// use the same places.
#include "exec.h"

static uint64_t align(const struct exec_plan *p, uint64_t bytes)
{
	return (bytes + p->m->align - 1) / p->m->align * p->m->align;
}

static void needs(struct exec_value *x, uint32_t node)
{
	if (x->last == GENAI_NONE || x->last < node)
		x->last = node;
}

// Outputs that may be input 0's bytes keep it as long as they live.
static void keep_input(struct exec_plan *p, const struct exec_variant *v,
		       const struct exec_node *n)
{
	struct exec_value *in = &p->values[exec_root(v, n->in[0])];

	for (uint32_t k = 0; k < n->n_out; k++) {
		uint32_t last = GENAI_NONE;

		if (n->out[k] != GENAI_NONE)
			last = p->values[exec_root(v, n->out[k])].last;
		if (last != GENAI_NONE)
			needs(in, last);
	}
}

// Which nodes need the bytes of every root.
static void lifetimes(struct exec_plan *p, const struct exec_variant *v)
{
	const struct genai_graph *g = p->graph;

	for (uint32_t i = 0; i < g->n_values; i++)
		p->values[i].first = p->values[i].last = GENAI_NONE;
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct exec_node *n = &v->facts[i];

		for (uint32_t k = 0; k < n->n_in; k++)
			if (exec_reads(n, k))
				needs(&p->values[exec_root(v, n->in[k])], i);
		for (uint32_t k = 0; !n->silent && k < n->n_out; k++)
			if (n->out[k] != GENAI_NONE &&
			    v->tensors[n->out[k]].root == EXEC_OWN)
				p->values[n->out[k]].first =
					p->values[n->out[k]].last = i;
	}
	for (uint32_t o = 0; o < g->n_outputs; o++)
		needs(&p->values[exec_root(v, g->outputs[o])], g->n_nodes);
	// backwards, so that chains add up
	for (uint32_t i = g->n_nodes; i-- > 0;)
		if (v->facts[i].may_alias)
			keep_input(p, v, &v->facts[i]);
}

// Do two values live at the same time?  Outputs stay to the end.
static bool meet(const struct exec_value *a, const struct exec_value *b)
{
	uint32_t a_last = a->output == GENAI_NONE ? a->last : GENAI_NONE;
	uint32_t b_last = b->output == GENAI_NONE ? b->last : GENAI_NONE;

	return a->first <= b_last && b->first <= a_last;
}

// The lowest place that is taken by none of those that live at the same time.
static uint64_t first_fit(const struct exec_plan *p, const struct exec_value *x,
			  const uint32_t *placed, uint32_t n)
{
	uint64_t bytes = align(p, x->bytes), at = 0;
	bool again = true;

	while (again) {
		again = false;
		for (uint32_t i = 0; i < n; i++) {
			const struct exec_value *y = &p->values[placed[i]];
			uint64_t end = y->offset + align(p, y->bytes);

			if (meet(x, y) && at < end && y->offset < at + bytes) {
				at = end;
				again = true;
			}
		}
	}
	return at;
}

static int32_t place_arena(struct exec_plan *p, const struct exec_variant *v,
			   struct genai_error *err)
{
	const struct genai_graph *g = p->graph;
	uint32_t *placed = exec_zalloc(p->host, g->n_values * sizeof(*placed));
	uint32_t n = 0;

	if (!placed)
		return EXEC_FAIL(p, err, GENAI_E_NOMEM, "no memory for a plan");
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct exec_node *node = &v->facts[i];

		for (uint32_t k = 0; k < node->n_out; k++) {
			uint32_t value = node->out[k];
			struct exec_value *x;
			uint64_t bytes;

			if (value == GENAI_NONE)
				continue;
			x = &p->values[value];
			bytes = exec_bytes(&v->tensors[value]);
			if (!bytes || (v->where[value] != EXEC_ARENA &&
				       (v->where[value] != EXEC_OUTPUT ||
					bytes > p->m->late_bytes)))
				continue;
			x->bytes = bytes;
			x->offset = first_fit(p, x, placed, n);
			placed[n++] = value;
			if (p->arena_bytes < x->offset + align(p, bytes))
				p->arena_bytes = x->offset + align(p, bytes);
		}
	}
	p->host->free(p->host->ctx, placed);
	return 0;
}

static void place_constants(struct exec_plan *p, const struct exec_variant *v)
{
	for (uint32_t i = 0; p->m->constants && i < p->graph->n_values; i++) {
		struct exec_value *x = &p->values[i];

		if (v->where[i] != EXEC_KNOWN || x->last == GENAI_NONE)
			continue;
		x->known = true;
		x->bytes = exec_bytes(&v->tensors[i]);
		x->offset = p->const_bytes;
		p->const_bytes += (x->bytes + 31) & ~UINT64_C(15);
	}
	p->const_bytes = align(p, p->const_bytes);
}

int32_t exec_place(struct exec_plan *p, const struct exec_variant *v,
		   struct genai_error *err)
{
	int32_t rc;

	lifetimes(p, v);
	rc = place_arena(p, v, err);
	if (rc)
		return rc;
	place_constants(p, v);
	for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
		p->sync_offset[i] = p->sync_bytes;
		p->sync_bytes += (v->facts[i].sync_bytes + 15) & ~UINT64_C(15);
	}
	p->sync_offset[p->graph->n_nodes] = p->sync_bytes;
	p->workspace_bytes = v->workspace_bytes;
	p->workspace_at = p->arena_bytes;
	p->sync_at = p->workspace_at + align(p, p->workspace_bytes);
	p->const_at = p->sync_at + align(p, p->sync_bytes);
	return 0;
}

static int32_t check_value(const struct exec_variant *v, uint32_t value,
			   struct genai_error *err)
{
	const struct exec_value *x = &v->plan->values[value];
	const struct exec_tensor *t = &v->tensors[value];
	uint64_t bytes = exec_bytes(t);

	if (bytes <= x->bytes || (v->where[value] != EXEC_ARENA && !x->bytes))
		return 0;
	return EXEC_FAIL(v->plan, err, GENAI_E_LIMIT,
			 "value %s needs %llu bytes, planned were %llu",
			 t->name, (unsigned long long)bytes,
			 (unsigned long long)x->bytes);
}

static int32_t check_node(const struct exec_variant *v, uint32_t i,
			  struct genai_error *err)
{
	const struct exec_plan *p = v->plan;
	const struct exec_node *n = &v->facts[i];

	if (n->workspace_bytes > p->workspace_bytes ||
	    n->sync_bytes > p->sync_offset[i + 1] - p->sync_offset[i])
		return exec_node_fail(v, i, err, GENAI_E_LIMIT,
				      "more scratch than was planned");
	for (uint32_t k = 0; p->m->constants && k < n->n_in; k++) {
		uint32_t root;

		if (!exec_reads(n, k))
			continue;
		root = exec_root(v, n->in[k]);
		if (v->where[root] == EXEC_KNOWN && !p->values[root].known)
			return exec_node_fail(
				v, i, err, GENAI_E_LIMIT,
				"reads a value that is known for this shape "
				"and not for the largest");
	}
	return 0;
}

int32_t exec_place_check(const struct exec_variant *v, struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < v->plan->graph->n_values; i++)
		rc = check_value(v, i, err);
	for (uint32_t i = 0; !rc && i < v->plan->graph->n_nodes; i++)
		rc = check_node(v, i, err);
	return rc;
}
