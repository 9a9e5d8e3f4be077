// exec.c - a node, or some of its rows, into a unit of work.
#include "modules/cpu_ref/plan.h"

#include <string.h>

static int32_t run_unit(void *ctx, void *const *mem, struct genai_error *err)
{
	struct cref_unit *u = ctx;
	struct cref_run run = {.pool = u->pool,
			       .row_begin = u->row_begin,
			       .row_end = u->row_end,
			       .err = err};
	uint32_t n = u->n_mem;

	if (u->has_workspace)
		run.workspace = mem[--n];
	for (uint32_t i = 0; i < n; i++)
		*u->target[i] = mem[i];
	return u->n->op->run(u->n, &run);
}

// What a unit being launched touches.
struct touched {
	struct cref_unit u;
	uint32_t n;
	bool counts; // of experts, are among them
	struct genai_access acc[CREF_MAX_ACCESS];
};

static int32_t touch(struct touched *l, void **to, genai_addr addr,
		     uint64_t bytes, uint32_t flags, struct genai_error *err)
{
	for (uint32_t i = 0; i < l->n; i++) {
		if (l->u.target[i] != to)
			continue;
		l->acc[i].flags |= flags;
		return 0;
	}
	if (l->n == CREF_MAX_ACCESS)
		return cref_node_fail(l->u.n, err, GENAI_E_LIMIT,
				      "more than %u operands", CREF_MAX_ACCESS);
	l->u.target[l->n] = to;
	l->acc[l->n++] = (struct genai_access){addr, bytes, flags, 0};
	return 0;
}

// Experts that lie apart: their table, where they may be, the counts once.
static int32_t touch_experts(struct touched *l, struct exec_tensor *t,
			     struct genai_error *err)
{
	const struct genai_experts *x = t->experts;
	const uint32_t some = GENAI_READ | GENAI_SPARSE;
	int32_t rc = touch(l, &t->data, x->table, x->n * sizeof(genai_addr),
			   GENAI_READ, err);

	if (!rc && x->device.bytes)
		rc = touch(l, &t->lies[0], x->device.addr, x->device.bytes,
			   some, err);
	if (!rc && x->host.bytes)
		rc = touch(l, &t->lies[1], x->host.addr, x->host.bytes, some,
			   err);
	if (!rc && !l->counts)
		rc = touch(l, &t->lies[2], x->uses, x->n * sizeof(uint32_t),
			   GENAI_READ | GENAI_WRITE, err);
	l->counts = true;
	return rc;
}

static int32_t touch_input(struct touched *l, const struct exec_variant *v,
			   const struct exec_node *x, uint32_t k,
			   const struct exec_part *part,
			   struct genai_error *err)
{
	struct exec_tensor *t = l->u.n->in[k];
	uint64_t bytes = exec_span(t);
	uint32_t flags = GENAI_READ;
	uint8_t where = v->where[exec_root(v, x->in[k])];

	if (where == EXEC_KNOWN)
		return 0;
	t->lies[2] = NULL;
	if (t->experts)
		return touch_experts(l, t, err);
	if (where == EXEC_WEIGHT && EXEC_HAS(x->facts.gathered, k))
		flags |= GENAI_SPARSE;
	if (part->row_end && EXEC_HAS(x->cut, k))
		bytes = bytes / x->n_rows * (part->row_end - part->row_begin);
	return touch(l, &t->data, t->addr, bytes, flags, err);
}

int32_t cref_launch(struct exec_step *s, uint32_t node,
		    const struct exec_part *part)
{
	const struct exec_variant *v = s->variant;
	const struct exec_plan *p = s->plan;
	const struct exec_node *x = &v->facts[node];
	const struct cref_device *dev = (struct cref_device *)p->shared;
	struct touched l = {0};
	struct cref_node *n = cref_node_of(v, node);
	struct genai_work work = {sizeof(work), node, n->node->name, run_unit};
	int32_t rc = 0;

	l.u.pool = dev->pool;
	l.u.n = n;
	l.u.row_begin = part->row_begin;
	l.u.row_end = part->row_end;
	if (!part->row_end && cref_op_cuts(n->op) && n->out[0]->rank)
		l.u.row_end = (uint64_t)n->out[0]->dims[n->out[0]->rank - 1];
	for (uint32_t k = 0; !rc && k < n->n_in; k++)
		if (exec_reads(x, k))
			rc = touch_input(&l, v, x, k, part, s->err);
	for (uint32_t k = 0; !rc && k < n->n_out; k++) {
		struct exec_tensor *t = n->out[k];

		if (t)
			rc = touch(&l, &t->data, t->addr, exec_span(t),
				   GENAI_WRITE, s->err);
	}
	l.u.has_workspace = n->workspace_bytes != 0;
	if (!rc && l.u.has_workspace)
		rc = touch(&l, NULL, p->mem.range.addr + p->workspace_at,
			   n->workspace_bytes,
			   GENAI_READ | GENAI_WRITE | GENAI_SPARSE, s->err);
	if (rc)
		return rc;
	l.u.n_mem = l.n;
	work.ctx = s->context;
	// the same in every step: a step that still runs may be reading it
	if (memcmp(work.ctx, &l.u, sizeof(l.u)))
		memcpy(work.ctx, &l.u, sizeof(l.u));
	return p->stream->ops->launch(p->stream->self, s->stream, &work, l.acc,
				      l.n, s->err);
}
