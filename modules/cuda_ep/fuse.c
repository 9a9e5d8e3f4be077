/* fuse.c - patterns of nodes that run as one.
 * Owns: which nodes are absorbed and by whom.  Decided from the graph alone, so
 * a fusion does not depend on shapes, budgets or executors.
 *
 *     s = Sigmoid(g); t = Mul(g, s); y = Mul(t, u)      ->  y = silu(g) u
 * and, when g and u are quantised products of the same a with matrices of the
 * same form,                                            ->  one node
 *     y = Add(quantised product, stored vector)         ->  product with bias
 */
#include "modules/cuda_ep/plan.h"

const struct cep_op cep_op_silu_mul = {
	.op = "SiluMul",
	.prepare = cep_prepare_silu_mul,
	.run = cep_run_ew,
};

const struct cep_op cep_op_gate_up = {
	.op = "GateUp",
	.prepare = cep_prepare_gate_up,
	.run = cep_run_gate_up,
	.parts = true,
	.facts.rows = IN(1) | IN(2) | IN(3) | IN(5) | IN(6) | IN(7),
};

struct graph_uses {
	const struct genai_graph *g;
	uint32_t *count; /* readers of every value; outputs count as one */
};

static bool is_op(const struct genai_graph *g, uint32_t node,
		  const char *domain, const char *op, uint32_t n_in)
{
	const struct genai_node *n;

	if (node == GENAI_NONE)
		return false;
	n = genai_graph_node(g, node);
	return !strcmp(n->op, op) && !strcmp(n->domain, domain) &&
	       n->n_outputs == 1 && (!n_in || n->n_inputs == n_in);
}

static uint32_t producer(const struct genai_graph *g, uint32_t value)
{
	return value == GENAI_NONE ? GENAI_NONE
				   : genai_graph_value(g, value)->producer;
}

static int64_t attr_int(const struct genai_node *n, const char *name)
{
	for (uint32_t i = 0; i < n->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(n, i);

		if (!strcmp(a->name, name))
			return a->i;
	}
	return -1;
}

/* t = Mul(g, Sigmoid(g)) with nothing else reading t or the sigmoid. */
static bool is_silu(const struct graph_uses *u, uint32_t value,
		    struct cep_fusion *f)
{
	const struct genai_graph *g = u->g;
	uint32_t mul = producer(g, value);
	const struct genai_node *m;

	if (!is_op(g, mul, "", "Mul", 2) || u->count[value] != 1)
		return false;
	m = genai_graph_node(g, mul);
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t sig = producer(g, m->inputs[i]);

		if (!is_op(g, sig, "", "Sigmoid", 1) ||
		    u->count[m->inputs[i]] != 1 ||
		    genai_graph_node(g, sig)->inputs[0] != m->inputs[1 - i])
			continue;
		f->sigmoid = sig;
		f->mul = mul;
		f->gate = m->inputs[1 - i];
		return true;
	}
	return false;
}

/* Input i of a product, GENAI_NONE where there is none. */
static uint32_t input(const struct genai_node *n, uint32_t i)
{
	return i < n->n_inputs ? n->inputs[i] : GENAI_NONE;
}

/* gate and up are products that can run together. */
static bool is_pair(const struct graph_uses *u, const struct cep_fusion *f)
{
	static const char *const same[] = {"K", "N", "bits", "block_size"};
	const struct genai_graph *g = u->g;
	uint32_t a = producer(g, f->gate), b = producer(g, f->up);
	const struct genai_node *x, *y;

	if (!is_op(g, a, "com.microsoft", "MatMulNBits", 0) ||
	    !is_op(g, b, "com.microsoft", "MatMulNBits", 0) ||
	    u->count[f->gate] != 2 || u->count[f->up] != 1)
		return false;
	x = genai_graph_node(g, a);
	y = genai_graph_node(g, b);
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		if (attr_int(x, same[i]) != attr_int(y, same[i]))
			return false;
	if (x->inputs[0] != y->inputs[0] || input(x, 4) != GENAI_NONE ||
	    input(y, 4) != GENAI_NONE || x->n_inputs < 3 || y->n_inputs < 3 ||
	    (input(x, 3) == GENAI_NONE) != (input(y, 3) == GENAI_NONE))
		return false;
	for (uint32_t i = 1; i < 6; i++) {
		uint32_t v = input(x, i), w = input(y, i);

		if (i == 4 || (v == GENAI_NONE && w == GENAI_NONE))
			continue;
		if (i < 4 && (genai_graph_value(g, v)->tensor == GENAI_NONE ||
			      genai_graph_value(g, w)->tensor == GENAI_NONE))
			return false;
		if (i == 3 &&
		    genai_graph_tensor(g, genai_graph_value(g, v)->tensor)
				    ->dtype !=
			    genai_graph_tensor(g,
					       genai_graph_value(g, w)->tensor)
				    ->dtype)
			return false;
	}
	return true;
}

static void try_mul(struct genai_plan *p, const struct graph_uses *u,
		    uint32_t node)
{
	const struct genai_node *n = genai_graph_node(u->g, node);
	struct cep_fusion f = {.sigmoid = GENAI_NONE};

	for (uint32_t i = 0; i < 2; i++) {
		if (n->inputs[0] == n->inputs[1] ||
		    !is_silu(u, n->inputs[i], &f))
			continue;
		f.up = n->inputs[1 - i];
		f.kind = is_pair(u, &f) ? CEP_FUSE_GATE_UP : CEP_FUSE_SILU_MUL;
		p->fusions[node] = f;
		p->fusions[f.sigmoid].kind = CEP_FUSE_ABSORBED;
		p->fusions[f.mul].kind = CEP_FUSE_ABSORBED;
		if (f.kind == CEP_FUSE_GATE_UP) {
			p->fusions[producer(u->g, f.gate)].kind =
				CEP_FUSE_ABSORBED;
			p->fusions[producer(u->g, f.up)].kind =
				CEP_FUSE_ABSORBED;
		}
		return;
	}
}

/* Add(product, vector of its columns), the product read by nobody else. */
static void try_add(struct genai_plan *p, const struct graph_uses *u,
		    uint32_t node)
{
	const struct genai_graph *g = u->g;
	const struct genai_node *n = genai_graph_node(g, node), *x;

	for (uint32_t i = 0; i < 2; i++) {
		uint32_t mm = producer(g, n->inputs[i]), t;
		const struct genai_tensor *bias, *scales;

		if (!is_op(g, mm, "com.microsoft", "MatMulNBits", 0) ||
		    u->count[n->inputs[i]] != 1 ||
		    n->inputs[1 - i] == GENAI_NONE)
			continue;
		x = genai_graph_node(g, mm);
		t = genai_graph_value(g, n->inputs[1 - i])->tensor;
		if (t == GENAI_NONE || input(x, 5) != GENAI_NONE ||
		    x->n_inputs < 3 || x->inputs[2] == GENAI_NONE ||
		    genai_graph_value(g, x->inputs[2])->tensor == GENAI_NONE)
			continue;
		bias = genai_graph_tensor(g, t);
		scales = genai_graph_tensor(
			g, genai_graph_value(g, x->inputs[2])->tensor);
		if (bias->rank != 1 || bias->dims[0] != attr_int(x, "N") ||
		    bias->dtype != scales->dtype)
			continue;
		p->fusions[node] = (struct cep_fusion){
			.kind = CEP_FUSE_BIAS,
			.gate = n->inputs[i],
			.up = n->inputs[1 - i],
		};
		p->fusions[mm].kind = CEP_FUSE_ABSORBED;
		return;
	}
}

int32_t cep_fuse(struct genai_plan *p, struct genai_error *err)
{
	const struct genai_graph *g = p->x.graph;
	struct graph_uses u = {g, NULL};

	p->fusions =
		cep_zalloc(p->self, (uint64_t)g->n_nodes * sizeof(*p->fusions));
	u.count = cep_zalloc(p->self, (uint64_t)g->n_values * sizeof(*u.count));
	if (!p->fusions || !u.count) {
		p->self->host->free(p->self->host->ctx, u.count);
		return cep_fail(p->self, err, GENAI_E_NOMEM, "out of memory");
	}
	for (uint32_t k = 0; k < g->n_nodes; k++) {
		const struct genai_node *n = genai_graph_node(g, k);

		for (uint32_t i = 0; i < n->n_inputs; i++)
			if (n->inputs[i] != GENAI_NONE)
				u.count[n->inputs[i]]++;
	}
	for (uint32_t o = 0; o < g->n_outputs; o++)
		u.count[g->outputs[o]]++;
	for (uint32_t k = 0; k < g->n_nodes; k++)
		if (is_op(g, k, "", "Mul", 2))
			try_mul(p, &u, k);
		else if (is_op(g, k, "", "Add", 2))
			try_add(p, &u, k);
	p->self->host->free(p->self->host->ctx, u.count);
	return 0;
}

void cep_fuse_apply(const struct genai_plan *p, struct cep_node *n)
{
	static const uint8_t from[4] = {1, 2, 3, 5};
	const struct cep_fusion *f = &p->fusions[n->index];
	const struct genai_node *x, *y;

	n->absorbed = f->kind == CEP_FUSE_ABSORBED;
	if (f->kind == CEP_FUSE_SILU_MUL) {
		n->op = &cep_op_silu_mul;
		n->in_value[0] = f->gate;
		n->in_value[1] = f->up;
	} else if (f->kind == CEP_FUSE_BIAS) {
		x = genai_graph_node(p->x.graph, producer(p->x.graph, f->gate));
		n->op = cep_op_find(x);
		n->node = x;
		n->n_in = 6;
		for (uint32_t i = 0; i < 5; i++)
			n->in_value[i] = input(x, i);
		n->in_value[5] = f->up;
	} else if (f->kind == CEP_FUSE_GATE_UP) {
		x = genai_graph_node(p->x.graph, producer(p->x.graph, f->gate));
		y = genai_graph_node(p->x.graph, producer(p->x.graph, f->up));
		n->op = &cep_op_gate_up;
		n->node = x; /* its attributes and name */
		n->n_in = 9;
		n->in_value[0] = x->inputs[0];
		for (uint32_t i = 0; i < 4; i++) {
			n->in_value[1 + i] = input(x, from[i]);
			n->in_value[5 + i] = input(y, from[i]);
		}
	}
}
