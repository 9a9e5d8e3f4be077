// plan.c - a node prepared: its operator, what is folded while planning, which
// weights may be cut; what the executors are.
#include "modules/cpu_ref/plan.h"

#include <string.h>

static struct cref_columns *columns_of(struct exec_variant *v, uint32_t node)
{
	return &((struct genai_plan *)v->plan)->columns[node];
}

// ---- weights ----

// What may be cut if the node runs by ranges of rows; 0: nothing.  The first
// that can be is a weight, a matrix if it is cut by columns; the others are
// weights too, or travel with the unit.
static uint32_t cut_inputs(const struct exec_variant *v,
			   const struct cref_node *n, const struct exec_node *x)
{
	const struct exec_facts *f = &n->op->facts;
	uint32_t rows = 0;

	for (uint32_t k = 0; k < n->n_in; k++) {
		if (!n->in[k] || !EXEC_HAS(f->rows | f->columns, k))
			continue;
		if (exec_is_weight(v, x->in[k]) &&
		    (n->in[k]->rank == 2 || !EXEC_HAS(f->columns, k)))
			rows |= 1u << k;
		else if (!rows || !n->in[k]->value)
			return 0;
	}
	return rows;
}

// A matrix [K, N] is cut along N: parts are packed, [K, columns].
static void pack_columns(void *ctx, void *dst, uint64_t bytes, const void *src,
			 uint64_t src_bytes)
{
	const struct cref_columns *c = ctx;
	uint64_t column = bytes / (c->K * c->size);
	uint64_t row = column * c->size;
	const char *from =
		c->data + (uint64_t)((const char *)src - c->data) / c->K;

	(void)src_bytes;
	for (uint64_t k = 0; k < c->K; k++)
		memcpy((char *)dst + k * row, from + k * c->N * c->size, row);
}

static void visit(struct exec_variant *v, uint32_t node, uint32_t input,
		  uint32_t index, struct genai_visit *x)
{
	const struct cref_node *n = cref_node_of(v, node);
	const struct exec_tensor *b = n->in[input];
	struct cref_columns *c = columns_of(v, node);

	(void)index;
	if (!(x->flags & GENAI_WEIGHT_ROWS))
		return;
	x->flags |= GENAI_WEIGHT_ANY_ROWS;
	if (!EXEC_HAS(n->op->facts.columns, input))
		return;
	*c = (struct cref_columns){b->value, (uint64_t)b->dims[0],
				   (uint64_t)b->dims[1],
				   exec_bits(b->dtype) / 8};
	x->flags |= GENAI_WEIGHT_FILL_PARTS;
	x->fill = pack_columns;
	x->fill_ctx = c;
}

// ---- folding ----

static bool foldable(const struct cref_node *n)
{
	uint64_t bytes = 0;

	for (uint32_t k = 0; k < n->n_in; k++)
		if (n->in[k] && !EXEC_HAS(n->op->facts.dims_only, k) &&
		    !n->in[k]->value && exec_count(n->in[k]))
			return false;
	for (uint32_t k = 0; k < n->n_out; k++)
		if (n->out[k])
			bytes += exec_bytes(n->out[k]);
	return bytes <= CREF_FOLD_BYTES;
}

static int32_t take_outputs(struct cref_variant *v, struct cref_node *n,
			    const struct exec_node *x)
{
	const struct genai_host *host = v->x.plan->host;

	for (uint32_t k = 0; k < n->n_out; k++) {
		void *m;

		if (!n->out[k])
			continue;
		m = exec_zalloc(host, exec_bytes(n->out[k]));
		if (!m)
			return GENAI_E_NOMEM;
		v->folded[x->out[k]] = m;
		n->out[k]->data = m;
		n->out[k]->value = m;
	}
	return 0;
}

// Compute a node now: its inputs are all known.
static int32_t fold(struct cref_variant *v, uint32_t i, struct genai_error *err)
{
	const struct genai_host *host = v->x.plan->host;
	struct exec_node *x = &v->x.facts[i];
	struct cref_node *n = cref_node_of(&v->x, i);
	struct cref_run run = {.err = err};
	void *ws = NULL, *saved[EXEC_MAX_IN];
	int32_t rc = 0;

	x->silent = x->folded = true;
	if (!v->folded)
		v->folded = exec_zalloc(host, v->x.plan->graph->n_values *
						      sizeof(*v->folded));
	if (n->workspace_bytes)
		ws = host->alloc(host->ctx, n->workspace_bytes, "plan");
	if (!v->folded || (n->workspace_bytes && !ws) ||
	    take_outputs(v, n, x)) {
		rc = exec_node_fail(&v->x, i, err, GENAI_E_NOMEM,
				    "no memory to fold it");
		goto out;
	}
	run.workspace = ws;
	if (cref_op_cuts(n->op) && n->out[0]->rank)
		run.row_end = (uint64_t)n->out[0]->dims[n->out[0]->rank - 1];
	for (uint32_t k = 0; k < n->n_in; k++)
		if (n->in[k]) {
			saved[k] = n->in[k]->data;
			n->in[k]->data = (void *)(uintptr_t)n->in[k]->value;
		}
	rc = n->op->run(n, &run);
	for (uint32_t k = 0; k < n->n_in; k++)
		if (n->in[k])
			n->in[k]->data = saved[k];
out:
	host->free(host->ctx, ws);
	return rc;
}

// ---- a node ----

static void alias(struct exec_variant *v, const struct exec_node *x,
		  const struct cref_node *n)
{
	n->out[0]->root = exec_root(v, x->in[0]);
	n->out[0]->value = n->in[0]->value;
	n->out[0]->data = n->in[0]->data;
}

static int32_t prepare(struct exec_variant *v, uint32_t i,
		       struct genai_error *err)
{
	const struct exec_plan *p = v->plan;
	struct exec_node *x = &v->facts[i];
	struct cref_node *n = cref_node_of(v, i);
	bool is_output = false;
	int32_t rc = 0;

	n->node = genai_graph_node(p->graph, i);
	n->graph = p->graph;
	n->op = cref_op_find(n->node);
	if (!n->op)
		return exec_not_carried(v, i, err);
	n->n_in = x->n_in;
	n->n_out = x->n_out;
	exec_link(v, i, n->in, n->out);
	for (uint32_t k = 0; k < n->n_in; k++) {
		if (!n->in[k])
			continue;
		if (!n->in[k]->dtype)
			return cref_node_fail(
				n, err, GENAI_E_UNSUPPORTED,
				"the type of input %s is not known",
				n->in[k]->name);
		// small stored values travel with the unit
		if (v->where[x->in[k]] == EXEC_KNOWN)
			n->in[k]->data = (void *)(uintptr_t)n->in[k]->value;
	}
	rc = n->op->prepare(n, err);
	if (rc)
		return rc;
	for (uint32_t k = 0; k < x->n_out; k++)
		is_output |= x->out[k] != GENAI_NONE &&
			     p->values[x->out[k]].output != GENAI_NONE;
	if (n->op->alias && !is_output) {
		x->silent = true;
		alias(v, x, n);
		return 0;
	}
	if (!is_output && foldable(n))
		return fold(cref_variant(v), i, err);
	x->workspace_bytes = n->workspace_bytes;
	x->facts = n->op->facts;
	x->cut = cut_inputs(v, n, x);
	if (x->cut)
		x->n_rows = (uint64_t)n->out[0]->dims[n->out[0]->rank - 1];
	return 0;
}

static void variant_close(struct exec_variant *v)
{
	struct cref_variant *c = cref_variant(v);
	const struct genai_host *host = v->plan->host;

	for (uint32_t i = 0; c->folded && i < v->plan->graph->n_values; i++)
		host->free(host->ctx, c->folded[i]);
	host->free(host->ctx, c->folded);
}

static int32_t open_plan(struct exec_plan *p, struct genai_error *err)
{
	struct genai_plan *plan = (struct genai_plan *)p;

	plan->columns = exec_zalloc(p->host,
				    p->graph->n_nodes * sizeof(*plan->columns));
	return plan->columns ? 0
			     : EXEC_FAIL(p, err, GENAI_E_NOMEM,
					 "no memory for a plan");
}

static void close_plan(struct exec_plan *p)
{
	p->host->free(p->host->ctx, ((struct genai_plan *)p)->columns);
}

static const struct genai_exec_op carried[] = {
#define OPS_ROW(domain, op, since, ...) {domain, op, since},
#include "modules/cpu_ref/ops_rows.h"
#undef OPS_ROW
};

const struct exec_module cref_executors = {
	.caps = {.flags = GENAI_EXEC_CAP_ROWS_EXACT,
		 .device_kind = "sim",
		 .n_ops = sizeof(carried) / sizeof(carried[0]),
		 .ops = carried},
	.plan_bytes = sizeof(struct genai_plan),
	.variant_bytes = sizeof(struct cref_variant),
	.node_bytes = sizeof(struct cref_node),
	.launch_bytes = sizeof(struct cref_unit),
	.align = 64,
	.known_bytes = CREF_BY_VALUE_BYTES,
	.open = open_plan,
	.close = close_plan,
	.prepare = prepare,
	.variant_close = variant_close,
	.visit = visit,
	.launch = cref_launch,
};
