/* plan.c - making and ending plans, binding; the executor tables. */
#include <stdio.h>
#include "modules/cuda_ep/plan.h"

void cep_plan_node_text(const struct genai_plan *plan, uint32_t node, char *buf,
			size_t cap)
{
	const struct genai_node *n;

	if (node >= plan->graph->n_nodes) {
		snprintf(buf, cap, "node %u", node);
		return;
	}
	n = genai_graph_node(plan->graph, node);
	snprintf(buf, cap, "node %.120s (%.40s)", n->name, n->op);
}

static int32_t caps_of(struct genai_exec_caps *out, uint32_t flags)
{
	struct genai_exec_caps c = {
		.size = sizeof(c),
		.flags = flags,
		.device_kind = "cuda",
		.op_stride = sizeof(struct genai_exec_op),
	};

	c.ops = cep_op_list(&c.n_ops);
	genai_struct_give(out, &c);
	return 0;
}

static int32_t eager_caps(void *self, struct genai_exec_caps *out,
			  struct genai_error *err)
{
	(void)self;
	(void)err;
	return caps_of(out, 0);
}

static int32_t captured_caps(void *self, struct genai_exec_caps *out,
			     struct genai_error *err)
{
	(void)self;
	(void)err;
	return caps_of(out, GENAI_EXEC_CAP_RECORDS);
}

static int32_t check_inputs(struct genai_plan *p,
			    const struct genai_plan_options *o,
			    struct genai_error *err)
{
	const struct genai_graph *g = p->graph;

	if (o->n_max_inputs != g->n_inputs)
		return cep_fail(p->self, err, GENAI_E_INVAL,
				"%u largest shapes for %u inputs",
				o->n_max_inputs, g->n_inputs);
	for (uint32_t i = 0; i < g->n_inputs; i++) {
		const struct genai_view *v = &o->max_inputs[i];

		if (v->rank > GENAI_MAX_RANK)
			return cep_fail(p->self, err, GENAI_E_INVAL,
					"input %u of rank %u", i, v->rank);
		for (uint32_t d = 0; d < v->rank; d++)
			if (v->dims[d] < 0)
				return cep_fail(p->self, err, GENAI_E_INVAL,
						"input %u: dimension %lld", i,
						(long long)v->dims[d]);
		p->max_inputs[i] = *v;
	}
	return 0;
}

/* Callers may leave the strides of the largest shapes empty. */
static void dense_if_empty(struct genai_view *v)
{
	int64_t stride = 1;

	for (uint32_t d = 0; d < v->rank; d++)
		if (v->strides[d])
			return;
	for (uint32_t d = v->rank; d-- > 0;) {
		v->strides[d] = stride;
		stride *= v->dims[d] ? v->dims[d] : 1;
	}
}

static int32_t take_memory(struct genai_plan *p, struct genai_error *err)
{
	uint64_t bytes = p->const_at + p->const_bytes * CEP_VARIANTS;
	int32_t rc;

	if (!bytes)
		bytes = 256;
	rc = p->stream->ops->alloc(p->stream->self, GENAI_MEM_DEVICE, bytes,
				   GENAI_TAG_ACTIVATIONS, &p->mem, err);
	if (!rc)
		p->stats.device_bytes = bytes;
	return rc;
}

static int32_t enlist(struct genai_plan *p, struct genai_error *err)
{
	struct cep *self = p->self;
	uint32_t id = 0;

	pthread_mutex_lock(&self->lock);
	while (id < CEP_PLANS && self->plans[id])
		id++;
	if (id < CEP_PLANS) {
		self->plans[id] = p;
		p->id = id;
	}
	pthread_mutex_unlock(&self->lock);
	return id < CEP_PLANS ? 0
			      : cep_fail(self, err, GENAI_E_LIMIT,
					 "more than %u plans", CEP_PLANS);
}

static void plan_free(struct genai_plan *p)
{
	struct cep *self = p->self;
	const struct genai_host *h = self->host;

	pthread_mutex_lock(&self->lock);
	if (self->plans[p->id] == p)
		self->plans[p->id] = NULL;
	pthread_mutex_unlock(&self->lock);
	for (uint32_t i = 0; i < CEP_VARIANTS; i++)
		cep_variant_free(p, p->variants[i]);
	h->free(h->ctx, p->max_inputs);
	h->free(h->ctx, p->inputs);
	h->free(h->ctx, p->outputs);
	h->free(h->ctx, p->late);
	h->free(h->ctx, p->fusions);
	h->free(h->ctx, p->part_rows);
	h->free(h->ctx, p->values);
	h->free(h->ctx, p->sync_offset);
	h->free(h->ctx, p->visits);
	h->free(h->ctx, p->uses);
	h->free(h->ctx, p->steps);
	h->free(h->ctx, p->step_begin);
	h->free(h->ctx, p);
}

static int32_t plan_new(struct cep *self, const struct genai_graph *g,
			const struct genai_plan_options *o, bool captured,
			struct genai_plan **out_p, struct genai_error *err)
{
	struct genai_plan *p = cep_zalloc(self, sizeof(*p));

	if (!p)
		goto err_nomem;
	p->self = self;
	p->graph = g;
	p->stream = o->stream;
	p->barrier = o->barrier;
	p->pager = o->pager;
	p->captured = captured;
	p->generation = 1;
	p->stats.size = sizeof(p->stats);
	p->max_inputs = cep_zalloc(self, g->n_inputs * sizeof(*p->inputs));
	p->inputs = cep_zalloc(self, g->n_inputs * sizeof(*p->inputs));
	p->outputs = cep_zalloc(self, g->n_outputs * sizeof(*p->outputs));
	p->late = cep_zalloc(self, g->n_outputs * sizeof(*p->late));
	p->values = cep_zalloc(self, g->n_values * sizeof(*p->values));
	p->sync_offset = cep_zalloc(self, g->n_nodes * sizeof(*p->sync_offset));
	p->step_begin = cep_zalloc(self, ((uint64_t)g->n_nodes + 1) *
						 sizeof(*p->step_begin));
	p->part_rows = cep_zalloc(self, g->n_nodes * sizeof(*p->part_rows));
	if (p->max_inputs && p->inputs && p->outputs && p->late && p->values &&
	    p->sync_offset && p->step_begin && p->part_rows) {
		*out_p = p;
		return 0;
	}
	plan_free(p);
err_nomem:
	return cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
}

static int32_t plan_create(struct cep *self, const struct genai_graph *g,
			   const struct genai_plan_options *o, bool captured,
			   struct genai_plan **out_plan,
			   struct genai_error *err)
{
	struct cep_variant *v = NULL;
	struct genai_plan *p = NULL;
	int32_t rc;

	if (o && o->flags)
		return cep_fail(self, err, GENAI_E_UNSUPPORTED,
				"plan flags 0x%x are not known", o->flags);
	if (!o || !o->stream || !o->barrier)
		return cep_fail(self, err, GENAI_E_INVAL,
				"plan options are incomplete");
	if (!o->stream->ops->native)
		return cep_fail(self, err, GENAI_E_UNSUPPORTED,
				"the stream runtime has no native streams");
	rc = plan_new(self, g, o, captured, &p, err);
	if (rc)
		return rc;
	rc = check_inputs(p, o, err);
	if (!rc)
		rc = cep_fuse(p, err);
	if (rc)
		goto err_free;
	for (uint32_t i = 0; i < g->n_inputs; i++)
		dense_if_empty(&p->max_inputs[i]);
	rc = cep_variant_new(p, p->max_inputs, &v, err);
	if (!rc)
		rc = cep_layout(p, v, err);
	if (!rc)
		rc = cep_visits(p, v, err);
	for (uint32_t i = 0; !rc && i < g->n_nodes; i++)
		p->stats.host_nodes += v->nodes[i].folded;
	cep_variant_free(p, v);
	if (!rc)
		rc = enlist(p, err);
	if (!rc)
		rc = take_memory(p, err);
	if (rc)
		goto err_free;
	*out_plan = p;
	return 0;

err_free:
	plan_free(p);
	return rc;
}

static int32_t eager_create(void *self, const struct genai_graph *graph,
			    const struct genai_plan_options *options,
			    struct genai_plan **out_plan,
			    struct genai_error *err)
{
	return plan_create(self, graph, options, false, out_plan, err);
}

static int32_t captured_create(void *self, const struct genai_graph *graph,
			       const struct genai_plan_options *options,
			       struct genai_plan **out_plan,
			       struct genai_error *err)
{
	return plan_create(self, graph, options, true, out_plan, err);
}

static int32_t plan_visits(struct genai_plan *p,
			   const struct genai_visit **out_visits,
			   uint32_t *out_count, struct genai_error *err)
{
	(void)err;
	*out_visits = p->visits;
	*out_count = p->n_visits;
	return 0;
}

static int32_t plan_destroy(struct genai_plan *p,
			    const struct genai_ticket *ticket,
			    struct genai_error *err)
{
	int32_t rc = 0;

	if (!p)
		return 0;
	while (p->n_recordings && !rc) {
		rc = p->stream->ops->graph_destroy(
			p->stream->self, p->recordings[p->n_recordings - 1],
			ticket, err);
		if (!rc)
			p->n_recordings--;
	}
	if (!rc && p->mem.range.bytes)
		rc = p->stream->ops->free(p->stream->self, p->mem.range.addr,
					  ticket, err);
	if (rc)
		return rc;
	plan_free(p);
	return 0;
}

static int32_t check_view(const struct genai_plan *p,
			  const struct genai_view *v, const char *what,
			  uint32_t i, struct genai_error *err)
{
	if (!v || v->rank > GENAI_MAX_RANK)
		return cep_fail(p->self, err, GENAI_E_INVAL,
				"%s %u: no view, or its rank is too large",
				what, i);
	for (uint32_t d = 0; d < v->rank; d++)
		if (v->dims[d] < 0 || v->dims[d] > INT64_MAX / 65536 ||
		    v->strides[d] < 0)
			return cep_fail(p->self, err, GENAI_E_INVAL,
					"%s %u: dimension %u is %lld, stride "
					"%lld",
					what, i, d, (long long)v->dims[d],
					(long long)v->strides[d]);
	return 0;
}

static void rebind(struct genai_plan *p, struct genai_view *slot,
		   const struct genai_view *v)
{
	if (slot->size && slot->addr == v->addr && slot->dtype == v->dtype &&
	    slot->rank == v->rank &&
	    !memcmp(slot->dims, v->dims, v->rank * sizeof(v->dims[0])) &&
	    !memcmp(slot->strides, v->strides, v->rank * sizeof(v->dims[0])))
		return;
	memset(slot, 0, sizeof(*slot));
	slot->size = sizeof(*slot);
	slot->dtype = v->dtype;
	slot->rank = v->rank;
	slot->addr = v->addr;
	memcpy(slot->dims, v->dims, v->rank * sizeof(v->dims[0]));
	memcpy(slot->strides, v->strides, v->rank * sizeof(v->dims[0]));
	p->generation++;
}

static int32_t bind_input(struct genai_plan *p, uint32_t input,
			  const struct genai_view *view,
			  struct genai_error *err)
{
	const struct genai_view *max;
	int32_t rc;

	if (input >= p->graph->n_inputs)
		return cep_fail(p->self, err, GENAI_E_INVAL, "input %u of %u",
				input, p->graph->n_inputs);
	rc = check_view(p, view, "input", input, err);
	if (rc)
		return rc;
	max = &p->max_inputs[input];
	if (view->dtype != max->dtype || view->rank != max->rank)
		return cep_fail(p->self, err, GENAI_E_INVAL,
				"input %u: dtype %u, rank %u, planned dtype "
				"%u, rank %u",
				input, view->dtype, view->rank, max->dtype,
				max->rank);
	for (uint32_t d = 0; d < view->rank; d++)
		if (view->dims[d] > max->dims[d])
			return cep_fail(
				p->self, err, GENAI_E_LIMIT,
				"input %u: dimension %u is %lld, planned "
				"for at most %lld",
				input, d, (long long)view->dims[d],
				(long long)max->dims[d]);
	rebind(p, &p->inputs[input], view);
	return 0;
}

static int32_t bind_output(struct genai_plan *p, uint32_t output,
			   const struct genai_view *view,
			   struct genai_error *err)
{
	int32_t rc;

	if (output >= p->graph->n_outputs)
		return cep_fail(p->self, err, GENAI_E_INVAL, "output %u of %u",
				output, p->graph->n_outputs);
	rc = check_view(p, view, "output", output, err);
	if (rc)
		return rc;
	rebind(p, &p->outputs[output], view);
	return 0;
}

static int32_t output_shape(struct genai_plan *p, uint32_t output,
			    struct genai_view *out_view,
			    struct genai_error *err)
{
	struct genai_view view = {.size = sizeof(view)};
	struct cep_variant *v = NULL;
	const struct cep_tensor *t;
	int32_t rc;

	if (output >= p->graph->n_outputs)
		return cep_fail(p->self, err, GENAI_E_INVAL, "output %u of %u",
				output, p->graph->n_outputs);
	for (uint32_t i = 0; i < p->graph->n_inputs; i++)
		if (!p->inputs[i].size)
			return cep_fail(p->self, err, GENAI_E_STATE,
					"input %u is not bound", i);
	rc = cep_variant_new(p, p->inputs, &v, err);
	if (rc)
		return rc;
	t = &v->tensors[p->graph->outputs[output]];
	view.dtype = t->dtype;
	view.rank = t->rank;
	memcpy(view.dims, t->dims, t->rank * sizeof(t->dims[0]));
	memcpy(view.strides, t->strides, t->rank * sizeof(t->dims[0]));
	cep_variant_free(p, v);
	*out_view = view;
	return 0;
}

static int32_t plan_stats(struct genai_plan *p,
			  struct genai_exec_stats *out_stats,
			  struct genai_error *err)
{
	(void)err;
	genai_struct_give(out_stats, &p->stats);
	return 0;
}

const struct genai_executor_ops cep_eager_ops = {
	.size = sizeof(struct genai_executor_ops),
	.version = 1,
	.caps = eager_caps,
	.plan_create = eager_create,
	.plan_visits = plan_visits,
	.plan_set_pages = cep_plan_set_pages,
	.plan_destroy = plan_destroy,
	.bind_input = bind_input,
	.bind_output = bind_output,
	.output_shape = output_shape,
	.submit = cep_plan_submit,
	.stats = plan_stats,
};

const struct genai_executor_ops cep_captured_ops = {
	.size = sizeof(struct genai_executor_ops),
	.version = 1,
	.caps = captured_caps,
	.plan_create = captured_create,
	.plan_visits = plan_visits,
	.plan_set_pages = cep_plan_set_pages,
	.plan_destroy = plan_destroy,
	.bind_input = bind_input,
	.bind_output = bind_output,
	.output_shape = output_shape,
	.submit = cep_plan_submit,
	.stats = plan_stats,
};
