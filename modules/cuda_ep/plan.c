// plan.c - a node prepared: its operator, what is folded while planning, what
// the loop is told of it; what the executors are.
#include <stdio.h>

#include "modules/cuda_ep/op_beside.h"
#include "modules/cuda_ep/plan.h"

void cep_node_text(struct cep *self, uint32_t plan, uint32_t node, char *buf,
		   size_t cap)
{
	const struct exec_plan *p;
	const struct genai_node *n;

	snprintf(buf, cap, "node %u", node);
	pthread_mutex_lock(&self->exec.lock);
	for (p = self->exec.plans; p && p->id != plan; p = p->next)
		;
	if (p && node < p->graph->n_nodes) {
		n = genai_graph_node(p->graph, node);
		snprintf(buf, cap, "node %.120s (%.40s)", n->name, n->op);
	}
	pthread_mutex_unlock(&self->exec.lock);
}

// ---- a node ----

// Folded, absorbed, or only names: nothing to enqueue.
static bool is_silent(const struct cep_node *n)
{
	if (n->folded || n->absorbed)
		return true;
	for (uint32_t i = 0; i < n->n_out; i++)
		if (n->out[i] && n->out[i]->root == EXEC_OWN)
			return false;
	return true;
}

// Rows, if all inputs that are cut together are weights and have the same first
// dimension; else 0.
static uint64_t cut_rows(const struct exec_variant *v, const struct cep_node *n)
{
	int64_t rows = 0;

	for (uint32_t i = 0; i < n->n_in; i++) {
		if (!n->in[i] || !EXEC_HAS(n->op->facts.rows, i))
			continue;
		if (!exec_is_weight(v, n->in_value[i]) ||
		    n->in[i]->root != EXEC_OWN || n->in[i]->rank < 2 ||
		    (rows && n->in[i]->dims[0] != rows))
			return 0;
		rows = n->in[i]->dims[0];
	}
	return (uint64_t)rows;
}

static void fold(struct exec_variant *v, struct cep_node *n)
{
	unsigned char *room = ((struct cep_planned *)v->nodes)[n->index].fold;

	if (cep_fold(n, room, CEP_FOLD_BYTES)) {
		n->folded = true;
		n->out[0]->value = room;
		n->out[0]->root = EXEC_OWN;
		n->out[0]->offset = 0;
		return;
	}
	for (uint32_t k = 0; k < n->n_out; k++) {
		struct exec_tensor *t = n->out[k];
		const struct exec_tensor *r;

		if (!t || t->root == EXEC_OWN)
			continue;
		r = &v->tensors[t->root];
		if (r->value && exec_is_dense(t))
			t->value = (const char *)r->value + t->offset;
	}
}

static int32_t prepare(struct exec_variant *v, uint32_t i,
		       struct genai_error *err)
{
	struct genai_plan *p = cep_plan(v->plan);
	struct exec_node *x = &v->facts[i];
	struct cep_node *n = cep_node_of(v, i);
	int32_t rc;

	n->graph = p->x.graph;
	n->node = genai_graph_node(p->x.graph, i);
	n->self = p->self;
	n->index = i;
	n->exact = p->exact;
	n->op = cep_op_find(n->node);
	if (!n->op)
		return exec_not_carried(v, i, err);
	n->n_in = x->n_in;
	n->n_out = x->n_out;
	if (x->n_in)
		memcpy(n->in_value, x->in, x->n_in * sizeof(*x->in));
	if (x->n_out)
		memcpy(n->out_value, x->out, x->n_out * sizeof(*x->out));
	cep_fuse_apply(p, n);
	x->n_in = n->n_in;
	x->n_out = n->n_out;
	x->in = n->in_value;
	x->out = n->out_value;
	exec_link(v, i, n->in, n->out);
	rc = n->op->prepare(n, err);
	if (rc)
		return rc;
	fold(v, n);
	x->facts = n->op->facts;
	x->cut = x->facts.rows;
	x->n_rows = cut_rows(v, n);
	x->silent = is_silent(n);
	x->folded = n->folded;
	x->may_alias = n->op->may_alias;
	x->parts = n->op->parts;
	x->workspace_bytes = n->workspace_bytes;
	x->sync_bytes = n->sync_bytes;
	return 0;
}

static void copy_fill(void *ctx, void *dst, uint64_t bytes, const void *src,
		      uint64_t src_bytes)
{
	(void)ctx;
	memcpy(dst, src, bytes < src_bytes ? bytes : src_bytes);
}

// Kernels load 16 bytes at a time: what lies badly in the file is copied
// once.
static void visit(struct exec_variant *v, uint32_t node, uint32_t input,
		  uint32_t index, struct genai_visit *x)
{
	const struct genai_graph *g = v->plan->graph;
	const struct genai_tensor *t = genai_graph_tensor(g, x->tensor);
	const struct genai_file *f = genai_graph_file(g, t->file);

	(void)input;
	(void)index;
	if (x->flags & GENAI_WEIGHT_ROWS &&
	    cep_nbits_beside(cep_node_of(v, node)))
		x->flags |= GENAI_WEIGHT_HOST;
	if (((uintptr_t)f->data + t->offset) % 16)
		x->fill = copy_fill;
}

// ---- a plan ----

static int32_t open_plan(struct exec_plan *p, struct genai_error *err)
{
	struct genai_plan *plan = cep_plan(p);
	int32_t rc;

	plan->self = (struct cep *)p->shared;
	if (!p->stream->ops->native)
		return EXEC_FAIL(p, err, GENAI_E_UNSUPPORTED,
				 "the stream runtime has no native streams");
	for (uint32_t i = 0; i < p->graph->n_nodes; i++)
		if (!strcmp(genai_graph_node(p->graph, i)->op,
			    "PagedAttention"))
			plan->exact = true;
	rc = cep_fuse(plan, err);
	if (!rc && plan->self->team)
		rc = cep_side_open(plan->self, p->graph->n_nodes, &plan->side,
				   err);
	return rc;
}

static void close_plan(struct exec_plan *p)
{
	cep_side_close(cep_plan(p)->side);
	p->host->free(p->host->ctx, cep_plan(p)->fusions);
}

static int32_t check(struct exec_plan *p, struct genai_error *err)
{
	struct cep *self = cep_plan(p)->self;
	int32_t rc;

	pthread_mutex_lock(&self->lock);
	rc = cep_poison_check(self, err);
	pthread_mutex_unlock(&self->lock);
	return rc;
}

// What a step that broke off left behind nobody can use.
static void broke_off(struct exec_plan *p, int32_t rc, struct genai_error *err)
{
	struct genai_error plain = GENAI_ERROR_INIT;

	if (!err) {
		EXEC_FAIL(p, &plain, rc, "a step broke off");
		err = &plain;
	}
	cep_poison_set(cep_plan(p)->self, rc, err);
}

static const struct genai_exec_op carried[] = {
#define CEP_OP_ROW(domain, op, since, ...) {domain, op, since},
#include "modules/cuda_ep/op_rows.h"
#undef CEP_OP_ROW
};

const struct exec_module cep_executors = {
	.caps = {.device_kind = "cuda",
		 .n_ops = sizeof(carried) / sizeof(carried[0]),
		 .ops = carried},
	.plan_bytes = sizeof(struct genai_plan),
	.variant_bytes = sizeof(struct cep_variant),
	.node_bytes = sizeof(struct cep_planned),
	.align = 256,
	.known_bytes = CEP_CONST_BYTES,
	.late_bytes = CEP_LATE_BYTES,
	.constants = true,
	.open = open_plan,
	.close = close_plan,
	.prepare = prepare,
	.visit = visit,
	.check = check,
	.begin = cep_begin,
	.end = cep_end,
	.launch = cep_launch,
	.broke_off = broke_off,
};
