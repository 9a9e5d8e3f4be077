// executor.c - a node prepared, a node launched; the loop is exec_common's.
#include "small.h"

#include <string.h>

struct genai_plan {
	struct exec_plan x;
};

static int32_t prepare(struct exec_variant *v, uint32_t i,
		       struct genai_error *err)
{
	struct unit *u = (struct unit *)v->nodes + i;
	struct exec_node *x = &v->facts[i];
	int32_t rc;

	u->dev = (struct device *)v->plan->shared;
	u->node = genai_graph_node(v->plan->graph, i);
	u->kernel = kernel_find(u->node);
	if (!u->kernel || x->n_out != 1 || x->out[0] == GENAI_NONE)
		return exec_not_carried(v, i, err);
	u->n_in = x->n_in;
	exec_link(v, i, u->in, &u->out);
	for (uint32_t k = 0; k < x->n_in; k++)
		if (u->in[k] && !exec_is_dense(u->in[k]))
			return exec_node_fail(v, i, err, GENAI_E_UNSUPPORTED,
					      "an input has gaps");
	rc = u->kernel->shape(u, err);
	if (rc)
		return rc;
	x->facts = u->kernel->facts;
	for (uint32_t k = 0; k < x->n_in; k++)
		if (EXEC_HAS(x->facts.rows, k) && exec_is_weight(v, x->in[k]))
			x->cut |= IN(k);
	if (x->facts.rows) // all of them, where nothing is cut
		x->n_rows = (uint64_t)u->out->dims[u->out->rank - 1];
	return 0;
}

static int32_t run_part(void *ctx, void *const *mem, struct genai_error *err)
{
	const struct part *p = ctx;

	return p->unit->kernel->run(p, mem, err);
}

static int32_t launch(struct exec_step *s, uint32_t node,
		      const struct exec_part *part)
{
	const struct unit *u = (struct unit *)s->variant->nodes + node;
	const struct exec_node *x = &s->variant->facts[node];
	const struct genai_stream_api *api = s->plan->stream;
	struct genai_work w = {sizeof(w), node, u->node->name, run_part,
			       s->context};
	// the same in every step: the step before may still be at it
	struct part *p = s->context;
	struct genai_access a[EXEC_MAX_IN + 1] = {0};

	p->unit = u;
	p->row_begin = part->row_begin;
	p->row_end = part->row_end ? part->row_end : x->n_rows;
	for (uint32_t i = 0; i < u->n_in; i++) {
		uint64_t rows = part->row_end - part->row_begin;

		if (!u->in[i])
			continue;
		a[i].addr = u->in[i]->addr;
		a[i].bytes = exec_bytes(u->in[i]);
		a[i].flags = GENAI_READ;
		if (rows && EXEC_HAS(x->cut, i))
			a[i].bytes = a[i].bytes / x->n_rows * rows;
	}
	a[u->n_in] = (struct genai_access){u->out->addr, exec_bytes(u->out),
					   GENAI_WRITE, 0};
	return api->ops->launch(api->self, s->stream, &w, a, u->n_in + 1,
				s->err);
}

static const struct genai_exec_op ops[] = {
	{"", "Add", 7},
	{"", "Gather", 1},
	{"", "SimplifiedLayerNormalization", 1},
	{"com.microsoft", "MatMulNBits", 1},
};

const struct exec_module executor = {
	.caps = {.flags = GENAI_EXEC_CAP_ROWS_EXACT,
		 .device_kind = "small",
		 .n_ops = sizeof(ops) / sizeof(ops[0]),
		 .ops = ops},
	.plan_bytes = sizeof(struct genai_plan),
	.variant_bytes = sizeof(struct exec_variant),
	.node_bytes = sizeof(struct unit),
	.launch_bytes = sizeof(struct part),
	.align = 64,
	.prepare = prepare,
	.launch = launch,
};
