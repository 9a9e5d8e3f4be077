// plan.c - a graph and its largest shapes into a plan; what is bound; the end.
#include "exec.h"

#include <stdio.h>
#include <string.h>

static struct exec_plan *of(struct genai_plan *plan)
{
	return (struct exec_plan *)plan;
}

void *exec_zalloc(const struct genai_host *host, uint64_t bytes)
{
	void *m = host->alloc(host->ctx, bytes ? bytes : 1, "plan");

	if (m)
		memset(m, 0, bytes);
	return m;
}

// ---- the module's plans ----

void exec_shared_open(struct exec_shared *x, const struct exec_module *m,
		      const struct genai_host *host)
{
	x->m = m;
	x->host = host;
	x->plans = NULL;
	pthread_mutex_init(&x->lock, NULL);
}

void exec_shared_close(struct exec_shared *x)
{
	pthread_mutex_destroy(&x->lock);
}

static void enlist(struct exec_plan *p)
{
	struct exec_plan **at = &p->shared->plans;

	pthread_mutex_lock(&p->shared->lock);
	for (; *at && (*at)->id == p->id; at = &(*at)->next)
		p->id++;
	p->next = *at;
	*at = p;
	pthread_mutex_unlock(&p->shared->lock);
}

static void delist(struct exec_plan *p)
{
	struct exec_plan **at = &p->shared->plans;

	pthread_mutex_lock(&p->shared->lock);
	while (*at && *at != p)
		at = &(*at)->next;
	if (*at)
		*at = p->next;
	pthread_mutex_unlock(&p->shared->lock);
}

// ---- creation ----

static int32_t check_options(struct exec_plan *p,
			     const struct genai_plan_options *o,
			     struct genai_error *err)
{
	const struct genai_graph *g = p->graph;

	if (o->flags)
		return EXEC_FAIL(p, err, GENAI_E_UNSUPPORTED,
				 "plan flags %#x are not known", o->flags);
	if (!o->stream || !o->barrier)
		return EXEC_FAIL(p, err, GENAI_E_INVAL,
				 "plan options are incomplete");
	if (o->n_max_inputs != g->n_inputs)
		return EXEC_FAIL(p, err, GENAI_E_INVAL,
				 "%u largest shapes for %u graph inputs",
				 o->n_max_inputs, g->n_inputs);
	for (uint32_t i = 0; i < g->n_inputs; i++) {
		const struct genai_view *v = &o->max_inputs[i];
		const struct genai_value *x =
			genai_graph_value(g, g->inputs[i]);

		if (v->rank > GENAI_MAX_RANK ||
		    (x->dtype && x->dtype != v->dtype))
			return EXEC_FAIL(p, err, GENAI_E_INVAL,
					 "graph input %s has type %u, its "
					 "largest shape type %u and rank %u",
					 x->name, x->dtype, v->dtype, v->rank);
		for (uint32_t d = 0; d < v->rank; d++)
			if (v->dims[d] < 0)
				return EXEC_FAIL(p, err, GENAI_E_INVAL,
						 "graph input %s: dimension "
						 "%u is at most %lld",
						 x->name, d,
						 (long long)v->dims[d]);
	}
	return 0;
}

// Every repeated shape is within the largest.
static int32_t check_repeated(struct exec_plan *p,
			      const struct genai_plan_options *o,
			      struct genai_error *err)
{
	uint32_t n = p->graph->n_inputs;

	for (uint64_t i = 0; i < (uint64_t)o->n_repeated * n; i++) {
		const struct genai_view *most = &o->max_inputs[i % n];
		const struct genai_view *v = &o->repeated[i];
		bool fits = v->rank == most->rank && v->dtype == most->dtype;

		for (uint32_t d = 0; fits && d < v->rank; d++)
			fits = v->dims[d] >= 0 && v->dims[d] <= most->dims[d];
		if (!fits)
			return EXEC_FAIL(p, err, GENAI_E_INVAL,
					 "graph input %u: a repeated shape is "
					 "not within the largest",
					 (uint32_t)(i % n));
	}
	return 0;
}

// Strides may be left out.
static void take_view(struct genai_view *v, const struct genai_view *from)
{
	bool strides = false;

	*v = *from;
	for (uint32_t d = 0; d < v->rank; d++)
		strides |= v->strides[d] != 0;
	if (!strides)
		exec_dense(v->rank, v->dims, v->strides);
}

static int32_t take_tables(struct exec_plan *p,
			   const struct genai_plan_options *o,
			   struct genai_error *err)
{
	const struct genai_graph *g = p->graph;
	const struct genai_host *h = p->host;
	uint64_t nodes = g->n_nodes + UINT64_C(1);
	uint64_t repeated = (uint64_t)o->n_repeated * g->n_inputs;

	p->max_inputs = exec_zalloc(h, g->n_inputs * sizeof(*p->max_inputs));
	p->repeated = exec_zalloc(h, repeated * sizeof(*p->repeated));
	p->inputs = exec_zalloc(h, g->n_inputs * sizeof(*p->inputs));
	p->outputs = exec_zalloc(h, g->n_outputs * sizeof(*p->outputs));
	p->values = exec_zalloc(h, g->n_values * sizeof(*p->values));
	p->sync_offset = exec_zalloc(h, nodes * sizeof(*p->sync_offset));
	p->node_pages = exec_zalloc(h, nodes * sizeof(*p->node_pages));
	p->part_rows = exec_zalloc(h, nodes * sizeof(*p->part_rows));
	if (!p->max_inputs || !p->repeated || !p->inputs || !p->outputs ||
	    !p->values || !p->sync_offset || !p->node_pages || !p->part_rows)
		return EXEC_FAIL(p, err, GENAI_E_NOMEM,
				 "no memory for a plan of %u values",
				 g->n_values);
	for (uint32_t v = 0; v < g->n_values; v++)
		p->values[v].input = p->values[v].output = GENAI_NONE;
	for (uint32_t i = 0; i < g->n_outputs; i++)
		p->values[g->outputs[i]].output = i;
	for (uint32_t i = 0; i < g->n_inputs; i++) {
		p->values[g->inputs[i]].input = i;
		take_view(&p->max_inputs[i], &o->max_inputs[i]);
	}
	for (uint64_t i = 0; i < repeated; i++)
		take_view(&p->repeated[i], &o->repeated[i]);
	p->n_repeated = o->n_repeated;
	return 0;
}

static int32_t take_memory(struct exec_plan *p, struct genai_error *err)
{
	uint64_t bytes = p->const_at + p->const_bytes * EXEC_VARIANTS;

	p->stats.device_bytes = bytes;
	return bytes ? p->stream->ops->alloc(p->stream->self, GENAI_MEM_DEVICE,
					     bytes, GENAI_TAG_ACTIVATIONS,
					     &p->mem, err)
		     : 0;
}

// What depends on the largest shapes.
static int32_t lay_out(struct exec_plan *p, struct genai_error *err)
{
	struct exec_variant *v = NULL;
	int32_t rc = exec_variant_new(p, p->max_inputs, p->outputs, &v, err);

	if (rc)
		return rc;
	p->stats.host_nodes = v->n_folded;
	rc = exec_place(p, v, err);
	if (!rc)
		rc = exec_find_visits(p, v, err);
	exec_variant_free(v);
	return rc ? rc : take_memory(p, err);
}

static void plan_free(struct exec_plan *p)
{
	const struct genai_host *h = p->host;

	for (uint32_t i = 0; i < EXEC_VARIANTS; i++)
		exec_variant_free(p->variants[i]);
	for (uint32_t i = 0; i < EXEC_RECORDINGS; i++)
		h->free(h->ctx, p->recorded[i].bound);
	if (p->m->close)
		p->m->close(p);
	h->free(h->ctx, p->max_inputs);
	h->free(h->ctx, p->repeated);
	h->free(h->ctx, p->inputs);
	h->free(h->ctx, p->outputs);
	h->free(h->ctx, p->values);
	h->free(h->ctx, p->sync_offset);
	h->free(h->ctx, p->visits);
	h->free(h->ctx, p->inputs_of);
	h->free(h->ctx, p->pages);
	h->free(h->ctx, p->stays);
	h->free(h->ctx, p->experts);
	h->free(h->ctx, p->node_pages);
	h->free(h->ctx, p->part_rows);
	h->free(h->ctx, p);
}

static int32_t create(struct exec_shared *shared, bool captured,
		      const struct genai_graph *graph,
		      const struct genai_plan_options *o,
		      struct genai_plan **out_plan, struct genai_error *err)
{
	const struct exec_module *m = shared->m;
	struct exec_plan *p = exec_zalloc(shared->host, m->plan_bytes);
	int32_t rc;

	if (!p)
		return shared->host->error_set(shared->host->ctx, err,
					       GENAI_E_NOMEM,
					       "no memory for a plan");
	p->m = m;
	p->shared = shared;
	p->host = shared->host;
	p->graph = graph;
	p->captured = captured;
	p->generation = 1;
	p->stats.size = sizeof(p->stats);
	p->stream = o->stream;
	p->barrier = o->barrier;
	p->pager = o->pager;
	rc = check_options(p, o, err);
	if (!rc)
		rc = check_repeated(p, o, err);
	if (!rc)
		rc = take_tables(p, o, err);
	if (!rc && m->open)
		rc = m->open(p, err);
	if (!rc)
		rc = lay_out(p, err);
	if (rc) {
		plan_free(p);
		return rc;
	}
	enlist(p);
	*out_plan = (struct genai_plan *)p;
	return 0;
}

static int32_t destroy(struct genai_plan *plan,
		       const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	const struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	struct exec_plan *p = of(plan);
	int32_t rc = p->host->ticket_check(p->host->ctx, ticket, all, err);

	for (; !rc && p->n_recorded; p->n_recorded -= !rc)
		rc = p->stream->ops->graph_destroy(
			p->stream->self,
			p->recorded[p->n_recorded - 1].recording, ticket, err);
	if (!rc && p->mem.range.bytes)
		rc = p->stream->ops->free(p->stream->self, p->mem.range.addr,
					  ticket, err);
	if (rc)
		return rc;
	delist(p);
	plan_free(p);
	return 0;
}

// ---- binding ----

static int32_t check_view(const struct exec_plan *p, uint32_t value,
			  const struct genai_view *b, struct genai_error *err)
{
	const struct genai_value *v = genai_graph_value(p->graph, value);

	if (v->dtype && v->dtype != b->dtype)
		return EXEC_FAIL(p, err, GENAI_E_INVAL,
				 "%s has type %u and is bound to type %u",
				 v->name, v->dtype, b->dtype);
	if (b->rank > GENAI_MAX_RANK ||
	    (v->rank != GENAI_NONE && v->rank != b->rank))
		return EXEC_FAIL(p, err, GENAI_E_INVAL,
				 "%s has rank %u and is bound to rank %u",
				 v->name, v->rank, b->rank);
	for (uint32_t d = 0; d < b->rank; d++)
		if (b->dims[d] < 0 || b->dims[d] > INT64_MAX / 65536 ||
		    b->strides[d] < 0)
			return EXEC_FAIL(p, err, GENAI_E_INVAL,
					 "%s: dimension %u is %lld, its stride "
					 "%lld",
					 v->name, d, (long long)b->dims[d],
					 (long long)b->strides[d]);
	return 0;
}

static void bind(struct exec_plan *p, struct genai_view *slot,
		 const struct genai_view *v)
{
	struct genai_view b = {.size = sizeof(b),
			       .dtype = v->dtype,
			       .rank = v->rank,
			       .addr = v->addr};

	memcpy(b.dims, v->dims, v->rank * sizeof(b.dims[0]));
	memcpy(b.strides, v->strides, v->rank * sizeof(b.strides[0]));
	if (!memcmp(slot, &b, sizeof(b)))
		return;
	*slot = b;
	p->generation++;
}

static int32_t bind_input(struct genai_plan *plan, uint32_t i,
			  const struct genai_view *view,
			  struct genai_error *err)
{
	struct exec_plan *p = of(plan);
	const struct genai_view *most;
	int32_t rc;

	if (i >= p->graph->n_inputs)
		return EXEC_FAIL(p, err, GENAI_E_INVAL, "no graph input %u", i);
	rc = check_view(p, p->graph->inputs[i], view, err);
	if (rc)
		return rc;
	most = &p->max_inputs[i];
	if (view->dtype != most->dtype || view->rank != most->rank)
		return EXEC_FAIL(p, err, GENAI_E_INVAL,
				 "graph input %u: type %u, rank %u; planned "
				 "for type %u, rank %u",
				 i, view->dtype, view->rank, most->dtype,
				 most->rank);
	for (uint32_t d = 0; d < view->rank; d++)
		if (view->dims[d] > most->dims[d])
			return EXEC_FAIL(
				p, err, GENAI_E_LIMIT,
				"%s: dimension %u is %lld, planned for at "
				"most %lld",
				genai_graph_value(p->graph, p->graph->inputs[i])
					->name,
				d, (long long)view->dims[d],
				(long long)most->dims[d]);
	bind(p, &p->inputs[i], view);
	return 0;
}

static int32_t bind_output(struct genai_plan *plan, uint32_t i,
			   const struct genai_view *view,
			   struct genai_error *err)
{
	struct exec_plan *p = of(plan);
	int32_t rc;

	if (i >= p->graph->n_outputs)
		return EXEC_FAIL(p, err, GENAI_E_INVAL, "no graph output %u",
				 i);
	rc = check_view(p, p->graph->outputs[i], view, err);
	if (!rc)
		bind(p, &p->outputs[i], view);
	return rc;
}

// ---- asking ----

static int32_t output_shape(struct genai_plan *plan, uint32_t i,
			    struct genai_view *out, struct genai_error *err)
{
	struct exec_plan *p = of(plan);
	struct genai_view view = {.size = sizeof(view)}, bound;
	const struct exec_tensor *t;
	struct exec_variant *v;
	int32_t rc;

	if (i >= p->graph->n_outputs)
		return EXEC_FAIL(p, err, GENAI_E_INVAL, "no graph output %u",
				 i);
	rc = exec_variant_get(p, &v, NULL);
	if (rc) { // it may be bound for the shape of another step
		bound = p->outputs[i];
		p->outputs[i].size = 0;
		p->generation++;
		rc = exec_variant_get(p, &v, err);
		p->outputs[i] = bound;
		p->generation++;
	}
	if (rc)
		return rc;
	t = &v->tensors[p->graph->outputs[i]];
	view.dtype = t->dtype;
	view.rank = t->rank;
	memcpy(view.dims, t->dims, sizeof(view.dims));
	memcpy(view.strides, t->strides, sizeof(view.strides));
	*out = view;
	return 0;
}

static int32_t stats(struct genai_plan *plan, struct genai_exec_stats *out,
		     struct genai_error *err)
{
	(void)err;
	genai_struct_give(out, &of(plan)->stats);
	return 0;
}

// ---- the tables ----

static int32_t give_caps(const struct exec_shared *shared, uint32_t flags,
			 struct genai_exec_caps *out)
{
	struct genai_exec_caps c = shared->m->caps;

	c.size = sizeof(c);
	c.flags |= flags;
	c.op_stride = sizeof(struct genai_exec_op);
	genai_struct_give(out, &c);
	return 0;
}

static int32_t eager_caps(void *self, struct genai_exec_caps *out,
			  struct genai_error *err)
{
	(void)err;
	return give_caps(self, 0, out);
}

static int32_t captured_caps(void *self, struct genai_exec_caps *out,
			     struct genai_error *err)
{
	(void)err;
	return give_caps(self, GENAI_EXEC_CAP_RECORDS, out);
}

static int32_t create_eager(void *self, const struct genai_graph *graph,
			    const struct genai_plan_options *options,
			    struct genai_plan **out_plan,
			    struct genai_error *err)
{
	return create(self, false, graph, options, out_plan, err);
}

static int32_t create_captured(void *self, const struct genai_graph *graph,
			       const struct genai_plan_options *options,
			       struct genai_plan **out_plan,
			       struct genai_error *err)
{
	return create(self, true, graph, options, out_plan, err);
}

#define SLOTS                                                                  \
	.size = sizeof(struct genai_executor_ops), .version = 1,               \
	.plan_visits = exec_plan_visits,                                       \
	.plan_set_pages = exec_plan_set_pages, .plan_destroy = destroy,        \
	.bind_input = bind_input, .bind_output = bind_output,                  \
	.output_shape = output_shape, .submit = exec_submit, .stats = stats

const struct genai_executor_ops exec_eager_ops = {SLOTS, .caps = eager_caps,
						  .plan_create = create_eager};
const struct genai_executor_ops exec_captured_ops = {
	SLOTS, .caps = captured_caps, .plan_create = create_captured};
