// visits.c - the weights that a step visits, and what it does between them.
#include "exec.h"

#include <string.h>

static bool is_cut(const struct exec_node *n, uint32_t input)
{
	return n->n_rows && EXEC_HAS(n->cut, input);
}

// A node that reads a tensor twice visits it once.
static struct genai_visit *find_visit(struct exec_plan *p, uint32_t node,
				      uint32_t tensor)
{
	for (uint32_t i = p->n_visits; i-- > 0;) {
		if (p->visits[i].first_node != node)
			break;
		if (p->visits[i].tensor == tensor)
			return &p->visits[i];
	}
	return NULL;
}

static void visit_input(struct exec_plan *p, struct exec_variant *v,
			uint32_t node, uint32_t input)
{
	const struct exec_node *n = &v->facts[node];
	struct genai_visit *x;
	uint32_t tensor, i;

	tensor =
		genai_graph_value(p->graph, exec_root(v, n->in[input]))->tensor;
	x = find_visit(p, node, tensor);
	if (!x) {
		x = &p->visits[p->n_visits];
		*x = (struct genai_visit){
			.size = sizeof(*x),
			.tensor = tensor,
			.first_node = node,
			.last_node = node,
			.group = p->n_visits++,
			.rows = 1,
			.device_bytes =
				genai_graph_tensor(p->graph, tensor)->bytes,
		};
	}
	i = (uint32_t)(x - p->visits);
	p->inputs_of[i] |= 1u << input;
	if (EXEC_HAS(n->facts.gathered, input))
		x->flags |= GENAI_WEIGHT_GATHER;
	if (EXEC_HAS(n->facts.experts, input) &&
	    v->tensors[n->in[input]].root == EXEC_OWN) {
		x->flags |= GENAI_WEIGHT_EXPERT;
		x->rows = (uint64_t)v->tensors[n->in[input]].dims[0];
	}
	if (is_cut(n, input)) {
		x->flags |= GENAI_WEIGHT_ROWS;
		x->rows = n->n_rows;
		x->group = UINT32_MAX - 1 - node; // one per node
	}
	if (p->m->visit)
		p->m->visit(v, node, input, i, x);
	p->takes_host |= !!(x->flags & GENAI_WEIGHT_HOST);
}

// ---- work ----

// Bytes of a value that a launch moves beside stored tensors.
static uint64_t moved(const struct exec_variant *v, uint32_t value)
{
	uint8_t where;

	if (value == GENAI_NONE)
		return 0;
	where = v->where[exec_root(v, value)];
	return where == EXEC_ARENA || where == EXEC_INPUT ||
			       where == EXEC_OUTPUT
		       ? exec_bytes(&v->tensors[value])
		       : 0;
}

// Units of work and their bytes, told to the visits that come after them.
static void find_work(struct exec_plan *p, const struct exec_variant *v)
{
	uint64_t before = 0;
	uint32_t units = 0, at = 0;

	for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
		const struct exec_node *n = &v->facts[i];
		uint64_t bytes = 0;

		for (uint32_t k = 0; k < n->n_in; k++)
			if (exec_reads(n, k))
				bytes += moved(v, n->in[k]);
		for (uint32_t k = 0; !n->silent && k < n->n_out; k++)
			bytes += moved(v, n->out[k]);
		if (at == p->n_visits || p->visits[at].first_node != i) {
			units += !n->silent;
			before += bytes;
			continue;
		}
		p->visits[at].units_before = units;
		p->visits[at].bytes_before = before;
		for (before = units = 0;
		     at < p->n_visits && p->visits[at].first_node == i; at++)
			p->visits[at].work_bytes = bytes;
	}
	if (p->n_visits)
		p->visits[p->n_visits - 1].units_after = units;
}

int32_t exec_find_visits(struct exec_plan *p, struct exec_variant *v,
			 struct genai_error *err)
{
	struct exec_variant *often = NULL;
	uint64_t most = 0;
	int32_t rc = 0;

	for (uint32_t i = 0; i < p->graph->n_nodes; i++)
		most += v->facts[i].n_in;
	p->visits = exec_zalloc(p->host, most * sizeof(*p->visits));
	p->inputs_of = exec_zalloc(p->host, most * sizeof(*p->inputs_of));
	if (!p->visits || !p->inputs_of)
		return EXEC_FAIL(p, err, GENAI_E_NOMEM, "no memory for a plan");
	for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
		const struct exec_node *n = &v->facts[i];

		// what is not cut comes first: it is held over all parts
		for (int cut = 0; cut < 2; cut++)
			for (uint32_t k = 0; k < n->n_in; k++)
				if (exec_reads(n, k) && is_cut(n, k) == cut &&
				    exec_is_weight(v, n->in[k]))
					visit_input(p, v, i, k);
	}
	if (p->n_repeated)
		rc = exec_variant_new(p, p->repeated, p->outputs, &often, err);
	if (!rc)
		find_work(p, often ? often : v);
	exec_variant_free(often);
	return rc;
}

int32_t exec_plan_visits(struct genai_plan *plan,
			 const struct genai_visit **out_visits,
			 uint32_t *out_count, struct genai_error *err)
{
	const struct exec_plan *p = (struct exec_plan *)plan;

	(void)err;
	*out_visits = p->visits;
	*out_count = p->n_visits;
	return 0;
}
