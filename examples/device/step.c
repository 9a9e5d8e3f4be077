// step.c - one step: for every node acquire its pages, wait for them, launch,
// release; and the rest of the executor's table.
#include "small.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

// A unit's context has to live until the unit is done: steps are kept, and used
// again when their last unit has said so.  (Not by poll: on this device it
// would do work, and submit must not wait for any.)
struct step {
	struct step *next;
	atomic_int is_done;
	uint32_t n, cap;
	struct unit units[];
};

static struct step *take_step(struct genai_plan *p)
{
	const struct genai_host *h = p->dev->host;
	uint32_t cap = p->graph->n_nodes + p->n_pages;
	struct step *s;

	for (s = p->steps; s; s = s->next)
		if (s->cap >= cap && atomic_load(&s->is_done))
			break;
	if (!s) {
		s = h->alloc(h->ctx, sizeof(*s) + cap * sizeof(s->units[0]),
			     "plan");
		if (!s)
			return NULL;
		s->next = p->steps;
		p->steps = s;
		s->cap = cap;
	}
	s->n = 0;
	atomic_store(&s->is_done, 0);
	return s;
}

static int32_t say_done(void *ctx, void *const *mem, struct genai_error *err)
{
	struct step *s = ctx;

	(void)mem;
	(void)err;
	atomic_store(&s->is_done, 1);
	return 0;
}

static int32_t run_unit(void *ctx, void *const *mem, struct genai_error *err)
{
	const struct unit *u = ctx;

	return u->kernel->run(u, mem, err);
}

// Where a value lies that is no weight.
static genai_addr address_of(const struct genai_plan *p, uint32_t v)
{
	for (uint32_t i = 0; i < p->graph->n_inputs; i++)
		if (p->graph->inputs[i] == v)
			return p->in[i].addr;
	if (p->output_of[v] != GENAI_NONE)
		return p->out[p->output_of[v]].addr;
	return p->arena.range.addr + p->offset[v];
}

// Pages from..to are those of the rows that this unit computes, besides base..
// which the node holds.
struct span {
	uint32_t base, base_end, from, to;
};

static void weight_access(const struct genai_plan *p, uint32_t input,
			  const struct span *s, struct genai_access *a)
{
	for (uint32_t i = s->base; i < s->to; i++) {
		const struct genai_visit_page *pg = &p->pages[i];
		const struct genai_visit *v = &p->visits[pg->visit];

		if ((i >= s->base_end && i < s->from) ||
		    p->visit_input[pg->visit] != input)
			continue;
		a->addr = p->place[i];
		a->bytes = v->device_bytes / v->rows *
			   (pg->row_end - pg->row_begin);
	}
}

static int32_t launch(struct genai_plan *p, struct step *st, uint32_t node,
		      const struct span *s, struct genai_stream *stream,
		      struct genai_error *err)
{
	struct unit *u = &st->units[st->n++];
	struct genai_work w = {sizeof(w), node, NULL, run_unit, u};
	struct genai_access a[MAX_IN + 1];
	int32_t rc = plan_unit(p, node, u, err);

	if (rc)
		return rc;
	w.name = u->node->name;
	if (s->from < s->to) {
		u->row_begin = p->pages[s->from].row_begin;
		u->row_end = p->pages[s->from].row_end;
	}
	for (uint32_t i = 0; i < u->n_in; i++) {
		uint32_t v = u->node->inputs[i];

		memset(&a[i], 0, sizeof(a[i]));
		if (v == GENAI_NONE)
			continue;
		a[i].flags = GENAI_READ;
		if (genai_graph_value(p->graph, v)->tensor != GENAI_NONE) {
			weight_access(p, i, s, &a[i]);
		} else {
			a[i].addr = address_of(p, v);
			a[i].bytes = tensor_bytes(&u->in[i]);
		}
	}
	a[u->n_in] =
		(struct genai_access){address_of(p, u->node->outputs[0]),
				      tensor_bytes(&u->out), GENAI_WRITE, 0};
	return p->stream.ops->launch(p->stream.self, stream, &w, a, u->n_in + 1,
				     err);
}

static int32_t acquire(struct genai_plan *p, uint32_t from, uint32_t to,
		       struct genai_stream *stream, struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = from; !rc && i < to; i++) {
		struct genai_place place = {.size = sizeof(place)};
		struct genai_point ready = {NULL, 0};

		rc = p->pager.ops->acquire(p->pager.pager, i, stream, &place,
					   &ready, err);
		if (!rc)
			rc = p->stream.ops->wait(p->stream.self, stream, ready,
						 err);
		if (!rc && place.kind == GENAI_PLACE_HOST)
			rc = FAIL(p->dev, err, GENAI_E_UNSUPPORTED,
				  "weights on the host are not served");
		p->place[i] = place.addr;
	}
	return rc;
}

static int32_t release(struct genai_plan *p, uint32_t from, uint32_t to,
		       struct genai_stream *stream, struct genai_error *err)
{
	struct genai_point point;
	int32_t rc = p->stream.ops->mark(p->stream.self, stream, &point, err);

	for (uint32_t i = from; !rc && i < to; i++)
		rc = p->pager.ops->release(p->pager.pager, i, point, err);
	return rc;
}

static int32_t is_cut(const struct genai_plan *p, uint32_t page)
{
	return !!(p->visits[p->pages[page].visit].flags & GENAI_WEIGHT_ROWS);
}

static int32_t do_node(struct genai_plan *p, struct step *st, uint32_t node,
		       uint32_t *page, struct genai_stream *stream,
		       struct genai_error *err)
{
	struct span s = {*page, *page, 0, 0};
	uint32_t end = *page;
	int32_t rc;

	while (end < p->n_pages &&
	       p->visits[p->pages[end].visit].first_node == node)
		end++;
	while (s.base_end < end && !is_cut(p, s.base_end))
		s.base_end++;
	s.from = s.to = s.base_end;
	rc = acquire(p, s.base, s.base_end, stream, err);
	do { // tile by tile, or once
		while (s.to < end &&
		       p->pages[s.to].row_begin == p->pages[s.from].row_begin)
			s.to++;
		if (!rc)
			rc = acquire(p, s.from, s.to, stream, err);
		if (!rc)
			rc = launch(p, st, node, &s, stream, err);
		if (!rc)
			rc = release(p, s.from, s.to, stream, err);
		s.from = s.to;
	} while (!rc && s.to < end);
	if (!rc)
		rc = release(p, s.base, s.base_end, stream, err);
	*page = end;
	return rc;
}

static int32_t check_bound(struct genai_plan *p, struct genai_error *err)
{
	for (uint32_t i = 0; i < p->graph->n_inputs; i++)
		if (!p->in[i].size)
			return FAIL(p->dev, err, GENAI_E_STATE,
				    "input %u is not bound", i);
	for (uint32_t i = 0; i < p->graph->n_outputs; i++)
		if (!p->out[i].size)
			return FAIL(p->dev, err, GENAI_E_STATE,
				    "output %u is not bound", i);
	if (!p->is_paged && p->n_visits)
		return FAIL(p->dev, err, GENAI_E_STATE,
			    "the plan was not told its pages");
	return 0;
}

int32_t plan_submit(struct genai_plan *p, struct genai_stream *stream,
		    const struct genai_point *wait, uint32_t n_wait,
		    struct genai_point *out_signal, struct genai_error *err)
{
	struct genai_work last = {sizeof(last), GENAI_NONE, "end of step",
				  say_done, NULL};
	struct genai_point tail;
	struct step *st = NULL;
	uint32_t page = 0;
	int32_t rc = check_bound(p, err);

	if (!rc)
		rc = plan_shapes(p, p->in, err);
	if (!rc && !(st = take_step(p)))
		rc = FAIL(p->dev, err, GENAI_E_NOMEM, "no memory for a step");
	for (uint32_t i = 0; !rc && i < n_wait; i++)
		rc = p->stream.ops->wait(p->stream.self, stream, wait[i], err);
	if (!rc)
		rc = p->pager.ops->step_begin(p->pager.pager, stream, 0, err);
	for (uint32_t i = 0; !rc && i < p->graph->n_nodes; i++)
		rc = do_node(p, st, i, &page, stream, err);
	if (!rc)
		rc = p->pager.ops->step_end(p->pager.pager, stream, &tail, err);
	last.ctx = st;
	if (!rc)
		rc = p->stream.ops->launch_host(p->stream.self, stream, &last,
						NULL, 0, err);
	if (!rc)
		rc = p->stream.ops->mark(p->stream.self, stream, out_signal,
					 err);
	p->stats.steps += !rc;
	return rc;
}

// ---- the rest of the table ----

static int32_t caps(void *self, struct genai_exec_caps *out,
		    struct genai_error *err)
{
	static const struct genai_exec_op ops[] = {
		{"", "Add", 7},
		{"", "Gather", 1},
		{"", "SimplifiedLayerNormalization", 1},
		{"com.microsoft", "MatMulNBits", 1},
	};

	static const struct genai_exec_caps c = {
		.size = sizeof(c),
		.flags = GENAI_EXEC_CAP_ROWS_EXACT,
		.device_kind = "small",
		.n_ops = sizeof(ops) / sizeof(ops[0]),
		.op_stride = sizeof(ops[0]),
		.ops = ops,
	};

	(void)self;
	(void)err;
	genai_struct_give(out, &c);
	return 0;
}

static int32_t bind(struct genai_plan *p, const struct genai_value *v,
		    const struct genai_view *view, struct genai_view *slot,
		    struct genai_error *err)
{
	int64_t stride = 1;

	if (v->dtype && v->dtype != view->dtype)
		return FAIL(p->dev, err, GENAI_E_INVAL, "%s is of another type",
			    v->name);
	if (view->rank > GENAI_MAX_RANK ||
	    (v->rank != GENAI_NONE && v->rank != view->rank))
		return FAIL(p->dev, err, GENAI_E_INVAL, "%s is of another rank",
			    v->name);
	for (uint32_t d = view->rank; d-- > 0;) {
		if (view->dims[d] < 0 ||
		    (view->dims[d] > 1 && view->strides[d] != stride))
			return FAIL(p->dev, err, GENAI_E_INVAL,
				    "%s: dimension %u is not dense", v->name,
				    d);
		stride *= view->dims[d];
	}
	*slot = *view;
	slot->size = sizeof(*slot);
	return 0;
}

static int32_t bind_input(struct genai_plan *p, uint32_t i,
			  const struct genai_view *view,
			  struct genai_error *err)
{
	const struct genai_value *v;

	if (i >= p->graph->n_inputs)
		return FAIL(p->dev, err, GENAI_E_INVAL, "no input %u", i);
	v = genai_graph_value(p->graph, p->graph->inputs[i]);
	for (uint32_t d = 0; d < view->rank && d < GENAI_MAX_RANK; d++)
		if (view->dims[d] > p->max_in[i].dims[d])
			return FAIL(p->dev, err, GENAI_E_LIMIT,
				    "%s: dimension %u is %lld, planned for "
				    "%lld",
				    v->name, d, (long long)view->dims[d],
				    (long long)p->max_in[i].dims[d]);
	return bind(p, v, view, &p->in[i], err);
}

static int32_t bind_output(struct genai_plan *p, uint32_t i,
			   const struct genai_view *view,
			   struct genai_error *err)
{
	if (i >= p->graph->n_outputs)
		return FAIL(p->dev, err, GENAI_E_INVAL, "no output %u", i);
	return bind(p, genai_graph_value(p->graph, p->graph->outputs[i]), view,
		    &p->out[i], err);
}

static int32_t output_shape(struct genai_plan *p, uint32_t i,
			    struct genai_view *out, struct genai_error *err)
{
	const struct tensor *t;
	int64_t stride = 1;
	int32_t rc;

	if (i >= p->graph->n_outputs)
		return FAIL(p->dev, err, GENAI_E_INVAL, "no output %u", i);
	for (uint32_t k = 0; k < p->graph->n_inputs; k++)
		if (!p->in[k].size)
			return FAIL(p->dev, err, GENAI_E_STATE,
				    "input %u is not bound", k);
	rc = plan_shapes(p, p->in, err);
	if (rc)
		return rc;
	t = &p->values[p->graph->outputs[i]];
	memset(out, 0, sizeof(*out));
	out->size = sizeof(*out);
	out->dtype = t->dtype;
	out->rank = t->rank;
	for (uint32_t d = t->rank; d-- > 0;) {
		out->dims[d] = t->dims[d];
		out->strides[d] = stride;
		stride *= t->dims[d];
	}
	return 0;
}

static int32_t plan_destroy(struct genai_plan *p,
			    const struct genai_ticket *ticket,
			    struct genai_error *err)
{
	const struct genai_host *h = p->dev->host;
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	int32_t rc = h->ticket_check(h->ctx, ticket, all, err);

	if (!rc && p->arena.range.bytes)
		rc = p->stream.ops->free(p->stream.self, p->arena.range.addr,
					 ticket, err);
	if (rc)
		return rc;
	while (p->steps) {
		struct step *s = p->steps;

		p->steps = s->next;
		h->free(h->ctx, s);
	}
	plan_free(p);
	return 0;
}

static int32_t stats(struct genai_plan *p, struct genai_exec_stats *out,
		     struct genai_error *err)
{
	(void)err;
	genai_struct_give(out, &p->stats);
	return 0;
}

const struct genai_executor_ops executor_table = {
	.size = sizeof(executor_table),
	.version = 1,
	.caps = caps,
	.plan_create = plan_create,
	.plan_visits = plan_visits,
	.plan_set_pages = plan_set_pages,
	.plan_destroy = plan_destroy,
	.bind_input = bind_input,
	.bind_output = bind_output,
	.output_shape = output_shape,
	.submit = plan_submit,
	.stats = stats,
};
