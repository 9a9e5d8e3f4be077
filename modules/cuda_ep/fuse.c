// fuse.c - patterns of nodes that run as one.
// Owns: which nodes are absorbed and by whom.  Decided from the graph alone, so
// a fusion does not depend on shapes, budgets or executors.
//
//     s = Sigmoid(g); t = Mul(g, s); y = Mul(t, u)      ->  y = silu(g) u
// and, when g and u are quantised products of the same a with matrices of the
// same form,                                            ->  one node
//     y = Add(quantised product, stored vector)         ->  product with bias
//     y, s = norm(x + skip); product(y)                 ->  product with norm
// the last on top of the others, when nothing else reads y, and nothing reads s
// before the product.
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
	uint32_t *count; // readers of every value; outputs count as one
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

// t = Mul(g, Sigmoid(g)) with nothing else reading t or the sigmoid.
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

// Input i of a product, GENAI_NONE where there is none.
static uint32_t input(const struct genai_node *n, uint32_t i)
{
	return i < n->n_inputs ? n->inputs[i] : GENAI_NONE;
}

// gate and up are products that can run together.
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

// Add(product, vector of its columns), the product read by nobody else.
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

// A root mean square norm of rows, alone or with a skip.
static bool is_norm(const struct genai_graph *g, uint32_t node)
{
	const struct genai_node *n;
	uint32_t gamma;
	bool skip;

	if (node == GENAI_NONE)
		return false;
	n = genai_graph_node(g, node);
	skip = !strcmp(n->op, "SkipSimplifiedLayerNormalization");
	gamma = input(n, skip ? 2 : 1);
	if ((!skip && strcmp(n->op, "SimplifiedLayerNormalization") &&
	     strcmp(n->op, "RMSNormalization")) ||
	    gamma == GENAI_NONE || input(n, skip ? 3 : 2) != GENAI_NONE ||
	    genai_graph_value(g, gamma)->tensor == GENAI_NONE ||
	    attr_int(n, "axis") != -1)
		return false;
	for (uint32_t i = 1; i < n->n_outputs; i++)
		if (n->outputs[i] != GENAI_NONE && (!skip || i != 3))
			return false;
	return true;
}

// Does a node between the two read the value?
static bool read_between(const struct genai_graph *g, uint32_t value,
			 uint32_t from, uint32_t to)
{
	for (uint32_t k = from + 1; k < to && value != GENAI_NONE; k++) {
		const struct genai_node *n = genai_graph_node(g, k);

		for (uint32_t i = 0; i < n->n_inputs; i++)
			if (n->inputs[i] == value)
				return true;
	}
	return false;
}

// The norm in front of a product; other fusions may have it done by a later
// node, which is given.
static void try_norm(struct genai_plan *p, const struct graph_uses *u,
		     uint32_t node)
{
	const struct genai_graph *g = u->g;
	struct cep_fusion *f = &p->fusions[node];
	const struct genai_node *n = genai_graph_node(g, node), *m;
	uint32_t a, norm, reads = f->kind == CEP_FUSE_GATE_UP ? 2 : 1;

	if (f->kind == CEP_FUSE_GATE_UP || f->kind == CEP_FUSE_BIAS)
		n = genai_graph_node(g, producer(g, f->gate));
	else if (f->kind != CEP_FUSE_NONE)
		return;
	if (strcmp(n->op, "MatMulNBits") || !n->n_inputs ||
	    n->inputs[0] == GENAI_NONE || input(n, 4) != GENAI_NONE)
		return;
	a = n->inputs[0];
	norm = producer(g, a);
	if (u->count[a] != reads || !is_norm(g, norm))
		return;
	m = genai_graph_node(g, norm);
	if (m->outputs[0] != a ||
	    read_between(g, m->n_outputs > 3 ? m->outputs[3] : GENAI_NONE, norm,
			 node))
		return;
	f->norm = norm + 1;
	p->fusions[norm].kind = CEP_FUSE_ABSORBED;
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
	for (uint32_t k = 0; k < g->n_nodes; k++)
		try_norm(p, &u, k);
	p->self->host->free(p->self->host->ctx, u.count);
	return 0;
}

static void apply_norm(const struct genai_plan *p, struct cep_node *n,
		       uint32_t norm)
{
	const struct genai_node *m = genai_graph_node(p->x.graph, norm);
	bool skip = !strncmp(m->op, "Skip", 4);

	while (n->n_in <= CEP_IN_GAMMA)
		n->in_value[n->n_in++] = GENAI_NONE;
	n->in_value[0] = m->inputs[0];
	n->in_value[CEP_IN_SKIP] = skip ? m->inputs[1] : GENAI_NONE;
	n->in_value[CEP_IN_GAMMA] = m->inputs[skip ? 2 : 1];
	n->n_out = 2;
	n->out_value[1] = m->n_outputs > 3 ? m->outputs[3] : GENAI_NONE;
	n->norm = m;
}

void cep_fuse_apply(const struct genai_plan *p, struct cep_node *n)
{
	static const uint8_t from[4] = {1, 2, 3, 5};
	const struct cep_fusion *f = &p->fusions[n->index];
	const struct genai_node *x, *y;

	n->absorbed = f->kind == CEP_FUSE_ABSORBED;
	if (n->absorbed)
		n->n_out = 1; // a norm's sum is of the node that does it
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
		n->node = x; // its attributes and name
		n->n_in = 9;
		n->in_value[0] = x->inputs[0];
		for (uint32_t i = 0; i < 4; i++) {
			n->in_value[1 + i] = input(x, from[i]);
			n->in_value[5 + i] = input(y, from[i]);
		}
	}
	if (f->norm)
		apply_norm(p, n, f->norm - 1);
}
