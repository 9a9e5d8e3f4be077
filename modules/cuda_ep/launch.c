// launch.c - a node, or some of its rows, enqueued; what comes before and after
// the nodes of a step.
#include "modules/cuda_ep/plan.h"

#define S(p) ((p)->stream->ops)
#define SELF(p) ((p)->stream->self)

static struct cep_run run_of(const struct exec_step *s, uint32_t node)
{
	const struct exec_plan *p = s->plan;
	uint64_t base = p->mem.range.addr;

	return (struct cep_run){
		.self = cep_plan(s->plan)->self,
		.stream = s->native,
		.workspace = base + p->workspace_at,
		.sync = base + p->sync_at + p->sync_offset[node],
		.overlap = s->overlap,
		.settled = cep_plan(s->plan)->settled,
		.side = cep_plan(s->plan)->side,
		.graph = p->graph,
		.plan = p->id,
		.err = s->err,
	};
}

static void add_access(struct genai_access *a, uint32_t *n, uint64_t addr,
		       uint64_t bytes, uint32_t flags)
{
	if (bytes)
		a[(*n)++] = (struct genai_access){addr, bytes, flags, 0};
}

// What a run in parts reads of input i.
static void add_parts(struct genai_access *a, uint32_t *count,
		      const struct cep_node *n, const struct cep_run *r,
		      uint32_t i)
{
	uint64_t all = (uint64_t)n->in[i]->dims[0];
	uint64_t row = exec_span(n->in[i]) / (all ? all : 1);

	for (uint32_t k = 0; k < r->n_parts; k++) {
		uint64_t rows = all - (uint64_t)k * r->part_rows;

		if (rows > r->part_rows)
			rows = r->part_rows;
		add_access(a, count, r->parts[k * EXEC_MAX_IN + i], rows * row,
			   GENAI_READ);
	}
}

// Experts that lie apart: their table, where they may be, the counts.
static void add_experts(struct genai_access *a, uint32_t *n,
			const struct genai_experts *x, bool counts)
{
	const uint32_t some = GENAI_READ | GENAI_SPARSE;

	add_access(a, n, x->table, x->n * sizeof(genai_addr), GENAI_READ);
	add_access(a, n, x->device.addr, x->device.bytes, some);
	add_access(a, n, x->host.addr, x->host.bytes, some);
	if (counts)
		add_access(a, n, x->uses, x->n * sizeof(uint32_t),
			   GENAI_READ | GENAI_WRITE);
}

// Tell the stream runtime what the kernels just enqueued touch.
static int32_t declare(struct exec_step *s, const struct cep_node *n,
		       const struct cep_run *r)
{
	const struct exec_node *x = &s->variant->facts[n->index];
	struct genai_access
		a[3 * EXEC_MAX_IN + EXEC_MAX_OUT + 3 + 6 * CEP_TILES];
	struct genai_work w = {
		.size = sizeof(w),
		.node = n->index,
		.name = n->node->op,
	};
	uint64_t rows = r->row_end - r->row_begin;
	uint32_t count = 0;
	bool counts = true;

	for (uint32_t i = 0; i < n->n_in; i++) {
		uint64_t bytes;

		if (!exec_reads(x, i))
			continue;
		// no matrix is read where the host is asked or met
		if ((r->beside == EXEC_ASK || r->beside == EXEC_MEET) &&
		    EXEC_HAS(x->cut, i))
			continue;
		if (n->in[i]->experts) {
			add_experts(a, &count, n->in[i]->experts, counts);
			counts = false;
			continue;
		}
		if (r->n_parts && EXEC_HAS(x->cut, i)) {
			add_parts(a, &count, n, r, i);
			continue;
		}
		bytes = exec_span(n->in[i]);
		if (rows && EXEC_HAS(x->cut, i) && n->in[i]->dims[0])
			bytes = bytes / (uint64_t)n->in[i]->dims[0] * rows;
		add_access(a, &count, n->in[i]->addr, bytes, GENAI_READ);
	}
	for (uint32_t i = 0; i < n->n_out; i++)
		if (n->out[i] && n->out[i]->root == EXEC_OWN)
			add_access(a, &count, n->out[i]->addr,
				   exec_span(n->out[i]), GENAI_WRITE);
	if (n->workspace_bytes)
		add_access(a, &count, r->workspace, n->workspace_bytes,
			   GENAI_READ | GENAI_WRITE);
	if (n->sync_bytes)
		add_access(a, &count, r->sync, n->sync_bytes,
			   GENAI_READ | GENAI_WRITE);
	return S(s->plan)->launch(SELF(s->plan), s->stream, &w, a, count,
				  s->err);
}

int32_t cep_launch(struct exec_step *s, uint32_t node,
		   const struct exec_part *part)
{
	struct cep_node *n = cep_node_of(s->variant, node);
	struct cep_run r;
	int32_t rc;

	if (s->copied) // a kernel may not begin before it
		s->overlap = false;
	r = run_of(s, node);
	r.row_begin = part->row_begin;
	r.row_end = part->row_end;
	r.n_parts = part->n_parts;
	r.parts = part->parts;
	r.part_rows = part->part_rows;
	r.beside = part->beside;
	rc = n->op->run(n, &r);
	s->overlap = r.overlap;
	if (r.alone)
		cep_plan(s->plan)->settled = node;
	return rc || r.idle ? rc : declare(s, n, &r);
}

bool cep_settled(const struct cep_node *n, const struct cep_run *r, uint32_t i)
{
	uint32_t from;

	if (i >= n->n_in || !n->in[i])
		return true;
	from = genai_graph_value(r->graph, n->in_value[i])->producer;
	return from == GENAI_NONE ? r->settled > 0 : from < r->settled;
}

// ---- before the nodes ----

// Constants of the variant, in as few kernels as they fit.
static int32_t poke_all(struct exec_step *s, uint64_t at)
{
	const struct exec_plan *p = s->plan;
	struct cep_run r = run_of(s, p->graph->n_nodes);
	const struct cep_dim3 one = {1, 1, 1};
	struct cep_poke k = {.dst = at};
	int32_t rc = 0;

	for (uint32_t i = 0; i < p->graph->n_values && !rc; i++) {
		const struct exec_value *x = &p->values[i];
		const struct exec_tensor *t = &s->variant->tensors[i];
		uint64_t bytes = exec_bytes(t);

		if (!x->known || s->variant->where[i] != EXEC_KNOWN || !bytes)
			continue;
		if (x->offset + bytes > (k.dst - at) + CEP_POKE_BYTES) {
			rc = cep_run_kernel(&r, CEP_K_cep_poke_k, one, 256, 0,
					    &k);
			k.dst = at + x->offset;
			k.bytes = 0;
		}
		memcpy(k.data + (x->offset - (k.dst - at)), t->value, bytes);
		k.bytes = (uint32_t)(x->offset + bytes - (k.dst - at));
	}
	return rc || !k.bytes
		       ? rc
		       : cep_run_kernel(&r, CEP_K_cep_poke_k, one, 256, 0, &k);
}

// Constants of the variant, and the sync words of the plan once.
static int32_t poke(struct exec_step *s)
{
	struct genai_plan *plan = cep_plan(s->plan);
	const struct exec_plan *p = s->plan;
	uint64_t base = p->mem.range.addr;
	uint64_t at = base + p->const_at + s->variant->slot * p->const_bytes;
	struct genai_access a = {at, p->const_bytes, GENAI_WRITE, 0};
	struct genai_work w = {
		.size = sizeof(w), .node = GENAI_NONE, .name = "constants"};
	int32_t rc;
	CUresult e;

	if (!plan->synced && p->sync_bytes) {
		e = CU(plan->self, cuMemsetD8Async)(base + p->sync_at, 0,
						    p->sync_bytes, s->native);
		if (e)
			return cep_cuda_fail(plan->self, s->err, e, "memset");
	}
	plan->synced = true;
	rc = poke_all(s, at);
	if (!rc && p->const_bytes)
		rc = S(p)->launch(SELF(p), s->stream, &w, &a, 1, s->err);
	((struct cep_variant *)s->variant)->poked = !rc;
	return rc;
}

int32_t cep_begin(struct exec_step *s)
{
	const struct exec_plan *p = s->plan;
	int32_t rc = S(p)->native(SELF(p), s->stream, &s->native, s->err);

	if (rc)
		return rc;
	cep_enter(cep_plan(s->plan)->self);
	cep_plan(s->plan)->settled = 0;
	return ((struct cep_variant *)s->variant)->poked ? 0 : poke(s);
}

// ---- after them ----

// Outputs that are not written where they are bound: moved now.
int32_t cep_end(struct exec_step *s)
{
	const struct exec_plan *p = s->plan;
	struct cep_run r = run_of(s, p->graph->n_nodes);
	struct genai_work w = {
		.size = sizeof(w), .node = GENAI_NONE, .name = "output"};
	int32_t rc = 0;

	for (uint32_t o = 0; o < p->graph->n_outputs && !rc; o++) {
		uint32_t value = p->graph->outputs[o];
		const struct exec_tensor *t = &s->variant->tensors[value];
		const struct genai_view *b = &p->outputs[o];
		struct genai_access a[2];
		uint32_t n = 0;

		if (s->variant->where[value] == EXEC_OUTPUT &&
		    p->values[value].output == o && !p->values[value].late)
			continue;
		rc = cep_run_copy(&r, cep_dtype_bytes(t->dtype), t->rank,
				  t->dims, b->addr, b->strides, t->addr,
				  t->strides);
		add_access(a, &n, t->addr, exec_span(t), GENAI_READ);
		add_access(a, &n, b->addr, exec_bytes(t), GENAI_WRITE);
		if (!rc)
			rc = S(p)->launch(SELF(p), s->stream, &w, a, n, s->err);
	}
	return rc;
}
