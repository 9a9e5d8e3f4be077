// exec.c - a planned graph into enqueued units of work: eagerly, or recorded
// once and replayed.
#include "plan.h"

#include <stdio.h>
#include <string.h>

// ---- units ----

static int32_t run_unit(void *ctx, void *const *mem, struct genai_error *err)
{
	struct cref_unit *u = ctx;
	struct cref_run run = {.pool = u->shape->plan->dev->pool,
			       .row_begin = u->row_begin,
			       .row_end = u->row_end,
			       .err = err};
	uint32_t n = u->n_mem;

	if (u->has_workspace)
		run.workspace = mem[--n];
	for (uint32_t i = 0; i < n; i++)
		u->target[i]->data = mem[i];
	return u->n->op->run(u->n, &run);
}

// How many units a node takes: one, or one per range of rows.
static uint32_t node_units(const struct genai_plan *p, uint32_t node)
{
	uint64_t begin = UINT64_MAX;
	uint32_t n = 0;

	for (uint32_t i = p->node_pages[node]; i < p->node_pages[node + 1];
	     i++) {
		const struct genai_visit_page *pg = &p->pages[i];

		if (p->visits[pg->visit].flags & GENAI_WEIGHT_ROWS &&
		    pg->row_begin != begin) {
			begin = pg->row_begin;
			n++;
		}
	}
	return n ? n : 1;
}

static int32_t make_units(struct cref_shape *s, struct genai_error *err)
{
	struct genai_plan *p = s->plan;
	uint32_t n = 0;

	if (s->units)
		return 0;
	for (uint32_t i = 0; i < p->graph->n_nodes; i++)
		if (s->runs[i])
			n += node_units(p, i);
	s->units = p->dev->host->alloc(p->dev->host->ctx,
				       (n + UINT64_C(1)) * sizeof(*s->units),
				       "plan");
	if (!s->units)
		return CREF_FAIL(p->dev, err, GENAI_E_NOMEM,
				 "no memory for %u units of work", n);
	memset(s->units, 0, n * sizeof(*s->units));
	s->n_units = n;
	return 0;
}

// What a unit being launched touches.
struct launch {
	struct genai_plan *p;
	struct cref_shape *s;
	struct cref_unit u;
	uint32_t node;
	uint32_t n;
	struct genai_access acc[CREF_MAX_ACCESS];
};

static int32_t touch(struct launch *l, struct cref_tensor *t, genai_addr addr,
		     uint64_t bytes, uint32_t flags, struct genai_error *err)
{
	for (uint32_t i = 0; i < l->n; i++) {
		if (l->u.target[i] != t)
			continue;
		l->acc[i].flags |= flags;
		return 0;
	}
	if (l->n == CREF_MAX_ACCESS)
		return CREF_FAIL(l->p->dev, err, GENAI_E_LIMIT,
				 "node %s: more than %u operands",
				 l->u.n->node->name, CREF_MAX_ACCESS);
	l->u.target[l->n] = t;
	l->acc[l->n++] = (struct genai_access){addr, bytes, flags, 0};
	return 0;
}

// Address of a weight input: the page of its visit that holds this unit's rows.
static int32_t touch_weight(struct launch *l, uint32_t v,
			    struct genai_error *err)
{
	struct genai_plan *p = l->p;
	uint32_t tensor = genai_graph_value(p->graph, p->root[v])->tensor;

	for (uint32_t i = p->node_pages[l->node];
	     i < p->node_pages[l->node + 1]; i++) {
		const struct genai_visit_page *pg = &p->pages[i];
		const struct genai_visit *visit = &p->visits[pg->visit];

		if (visit->tensor != tensor)
			continue;
		if (visit->flags & GENAI_WEIGHT_ROWS &&
		    pg->row_begin != l->u.row_begin)
			continue;
		return touch(l, &l->s->tensors[v], p->place[i],
			     visit->device_bytes / visit->rows *
				     (pg->row_end - pg->row_begin),
			     visit->flags & GENAI_WEIGHT_GATHER
				     ? GENAI_READ | GENAI_SPARSE
				     : GENAI_READ,
			     err);
	}
	return CREF_FAIL(p->dev, err, GENAI_E_STATE,
			 "node %s: weight %s has no page", l->u.n->node->name,
			 l->s->tensors[v].name);
}

static int32_t touch_value(struct launch *l, uint32_t v, uint32_t flags,
			   struct genai_error *err)
{
	struct genai_plan *p = l->p;
	struct cref_tensor *t = &l->s->tensors[v];
	uint32_t root = p->root[v];
	const struct genai_view *b;

	switch (l->s->where[v]) {
	case CREF_VALUE:
		return 0;
	case CREF_WEIGHT:
		return touch_weight(l, v, err);
	case CREF_ARENA:
		return touch(l, t, p->arena.range.addr + p->offset[root],
			     cref_tensor_bytes(t), flags, err);
	default:
		b = p->output_of[root] != GENAI_NONE
			    ? &p->bound_out[p->output_of[root]]
			    : &p->bound_in[p->input_of[root]];
		if (!b->size)
			return CREF_FAIL(p->dev, err, GENAI_E_STATE,
					 "output %s is not bound", t->name);
		return touch(l, t, b->addr, cref_view_bytes(b), flags, err);
	}
}

static int32_t launch_unit(struct genai_plan *p, struct cref_shape *s,
			   uint32_t node, struct cref_unit *u,
			   uint64_t row_begin, uint64_t row_end,
			   struct genai_stream *stream, struct genai_error *err)
{
	const struct genai_node *gn = genai_graph_node(p->graph, node);
	struct launch l = {.p = p, .s = s, .node = node};
	struct genai_work work = {sizeof(work), node, gn->name, run_unit, u};
	int32_t rc = 0;

	l.u.shape = s;
	l.u.n = &s->nodes[node];
	l.u.row_begin = row_begin;
	l.u.row_end = row_end;
	for (uint32_t k = 0; !rc && k < gn->n_inputs; k++)
		if (gn->inputs[k] != GENAI_NONE)
			rc = touch_value(&l, gn->inputs[k], GENAI_READ, err);
	for (uint32_t k = 0; !rc && k < gn->n_outputs; k++)
		if (gn->outputs[k] != GENAI_NONE)
			rc = touch_value(&l, gn->outputs[k], GENAI_WRITE, err);
	l.u.has_workspace = l.u.n->workspace_bytes != 0;
	if (!rc && l.u.has_workspace)
		rc = touch(&l, NULL, p->arena.range.addr + p->arena_bytes,
			   l.u.n->workspace_bytes,
			   GENAI_READ | GENAI_WRITE | GENAI_SPARSE, err);
	if (rc)
		return rc;
	l.u.n_mem = l.n;
	// the same in every step: a step that still runs may be reading it
	if (memcmp(u, &l.u, sizeof(*u)))
		*u = l.u;
	return p->stream->ops->launch(p->stream->self, stream, &work, l.acc,
				      l.n, err);
}

// ---- a step ----

struct step {
	struct genai_plan *p;
	struct cref_shape *s;
	struct genai_stream *stream;
	uint32_t unit;
	struct genai_point early; /* a mutant's */
};

static int32_t acquire(struct step *st, uint32_t i, struct genai_error *err)
{
	struct genai_plan *p = st->p;
	struct genai_place place = {.size = sizeof(place)};
	struct genai_point ready = {0};
	int32_t rc = p->pager->ops->acquire(p->pager->pager, i, st->stream,
					    &place, &ready, err);

	if (!rc && !MUTANT(1))
		rc = p->stream->ops->wait(p->stream->self, st->stream, ready,
					  err);
	if (!rc && MUTANT(3))
		rc = p->stream->ops->mark(p->stream->self, st->stream,
					  &st->early, err);
	if (!rc && place.kind == GENAI_PLACE_HOST)
		rc = CREF_FAIL(p->dev, err, GENAI_E_UNSUPPORTED,
			       "visit %u was placed on the host", i);
	if (!rc)
		p->place[i] = place.addr;
	return rc;
}

static int32_t release(struct step *st, uint32_t i, struct genai_error *err)
{
	struct genai_plan *p = st->p;
	struct genai_point point = st->early;
	int32_t rc = 0;

	if (!MUTANT(3))
		rc = p->stream->ops->mark(p->stream->self, st->stream, &point,
					  err);
	if (!rc)
		rc = p->pager->ops->release(p->pager->pager, i, point, err);
	return rc;
}

static bool by_rows(const struct genai_plan *p, uint32_t i)
{
	return p->visits[p->pages[i].visit].flags & GENAI_WEIGHT_ROWS;
}

// The rows of one range: acquire its parts, launch, release.
static int32_t step_rows(struct step *st, uint32_t node, uint32_t from,
			 uint32_t *to, struct genai_error *err)
{
	struct genai_plan *p = st->p;
	uint32_t end = p->node_pages[node + 1], i = from;
	const struct genai_visit_page *first = &p->pages[from];
	int32_t rc = 0;

	for (; !rc && i < end && by_rows(p, i) &&
	       p->pages[i].row_begin == first->row_begin;
	     i++)
		rc = acquire(st, i, err);
	*to = i;
	if (!rc)
		rc = launch_unit(p, st->s, node, &st->s->units[st->unit++],
				 first->row_begin, first->row_end, st->stream,
				 err);
	for (i = from; !rc && i < *to; i++)
		rc = release(st, i, err);
	return rc;
}

static int32_t step_node(struct step *st, uint32_t node,
			 struct genai_error *err)
{
	struct genai_plan *p = st->p;
	uint32_t begin = p->node_pages[node], end = p->node_pages[node + 1];
	uint32_t base = begin;
	int32_t rc = 0;

	while (!rc && base < end && !by_rows(p, base))
		rc = acquire(st, base++, err);
	if (!rc && base == end) {
		struct cref_node *n = &st->s->nodes[node];
		uint64_t rows = 0;

		if (n->op->flags & CREF_OP_ROWS && n->out[0]->rank)
			rows = (uint64_t)n->out[0]->dims[n->out[0]->rank - 1];
		rc = launch_unit(p, st->s, node, &st->s->units[st->unit++], 0,
				 rows, st->stream, err);
	}
	for (uint32_t i = base; !rc && i < end;)
		rc = step_rows(st, node, i, &i, err);
	for (uint32_t i = begin; !rc && i < base; i++)
		rc = release(st, i, err);
	return rc;
}

static int32_t step(struct genai_plan *p, struct cref_shape *s,
		    struct genai_stream *stream, bool recording,
		    struct genai_point *out_tail, struct genai_error *err)
{
	struct step st = {.p = p, .s = s, .stream = stream};
	int32_t rc = make_units(s, err);

	if (!rc)
		rc = p->pager->ops->step_begin(p->pager->pager, stream,
					       recording, err);
	for (uint32_t i = 0; !rc && i < p->graph->n_nodes; i++)
		if (s->runs[i])
			rc = step_node(&st, i, err);
	if (!rc)
		rc = p->pager->ops->step_end(p->pager->pager, stream, out_tail,
					     err);
	return rc;
}

// An eager step leaves copies for the next step of whoever has the pager: every
// plan of it must be ordered after them before it replays.
static int32_t step_eager(struct genai_plan *p, struct cref_shape *s,
			  struct genai_stream *stream, struct genai_error *err)
{
	struct genai_point tail = {0};
	int32_t rc = step(p, s, stream, false, &tail, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&p->dev->lock);
	for (struct genai_plan *q = p->dev->plans; q; q = q->next)
		if (q->pager && q->pager->pager == p->pager->pager)
			q->tail = tail;
	pthread_mutex_unlock(&p->dev->lock);
	return 0;
}

static int32_t wait_all(struct genai_plan *p, struct genai_stream *stream,
			const struct genai_point *wait, uint32_t n,
			struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < n; i++)
		rc = p->stream->ops->wait(p->stream->self, stream, wait[i],
					  err);
	return rc;
}

static int32_t finish(struct genai_plan *p, struct cref_shape *s,
		      struct genai_stream *stream,
		      struct genai_point *out_signal, struct genai_error *err)
{
	int32_t rc =
		p->stream->ops->mark(p->stream->self, stream, &s->last, err);

	if (rc)
		return rc;
	s->submits++;
	p->stats.steps++;
	if (out_signal)
		*out_signal = s->last;
	return 0;
}

// The shapes of this step, everything bound: nothing is enqueued before.
static int32_t step_shape(struct genai_plan *p, struct cref_shape **out_s,
			  struct genai_error *err)
{
	int32_t rc = cref_plan_shape(p, out_s, err);

	for (uint32_t i = 0; !rc && i < p->graph->n_outputs; i++) {
		uint32_t v = p->graph->outputs[i];

		if ((*out_s)->where[v] == CREF_BOUND && !p->bound_out[i].size)
			rc = CREF_FAIL(p->dev, err, GENAI_E_STATE,
				       "output %s is not bound",
				       genai_graph_value(p->graph, v)->name);
	}
	return rc;
}

static int32_t submit_eager(struct genai_plan *p, struct genai_stream *stream,
			    const struct genai_point *wait, uint32_t n_wait,
			    struct genai_point *out_signal,
			    struct genai_error *err)
{
	struct cref_shape *s;
	int32_t rc = step_shape(p, &s, err);

	if (!rc)
		rc = wait_all(p, stream, wait, n_wait, err);
	if (!rc)
		rc = step_eager(p, s, stream, err);
	if (!rc)
		rc = finish(p, s, stream, out_signal, err);
	return rc;
}

// ---- captured ----

static void fall_back(struct genai_plan *p, const char *reason)
{
	struct genai_exec_stats *st = &p->stats;
	uint32_t i = 0;

	while (i < st->n_fallbacks && strcmp(st->fallbacks[i].reason, reason))
		i++;
	if (i == 8)
		i = 7;
	if (i == st->n_fallbacks) {
		snprintf(st->fallbacks[i].reason,
			 sizeof(st->fallbacks[i].reason), "%s", reason);
		st->fallbacks[i].count = 0;
		st->n_fallbacks++;
	}
	st->fallbacks[i].count++;
}

// A recording is good for the very addresses it was made with, on its stream.
static uint64_t bindings_key(const struct genai_plan *p,
			     const struct genai_stream *stream)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ (uintptr_t)stream;

	for (uint32_t i = 0; i < p->graph->n_inputs; i++)
		h = (h ^ p->bound_in[i].addr) * UINT64_C(0x100000001b3);
	for (uint32_t i = 0; i < p->graph->n_outputs; i++)
		h = (h ^ p->bound_out[i].addr) * UINT64_C(0x100000001b3);
	return h;
}

// Steps of one token are repeated and worth recording; prompts are not.
static bool is_decode(const struct genai_plan *p, const struct cref_shape *s)
{
	for (uint32_t i = 0; i < p->graph->n_inputs; i++) {
		const struct genai_view *a = &s->inputs[i];
		const struct genai_view *m = &p->max_inputs[i];
		int64_t elements = 1;

		if (!memcmp(a->dims, m->dims, a->rank * sizeof(a->dims[0])))
			continue;
		for (uint32_t d = 0; d < a->rank; d++)
			elements *= a->dims[d];
		if (elements != 1)
			return false;
	}
	return true;
}

static const char *cannot_record(struct genai_plan *p, struct genai_error *err)
{
	struct genai_stream_caps sc = {.size = sizeof(sc)};
	struct genai_pager_caps pc = {.size = sizeof(pc)};

	if (p->stream->ops->caps(p->stream->self, &sc, err) ||
	    !(sc.flags & GENAI_STREAM_CAP_RECORD))
		return "stream runtime does not record";
	if (p->pager->ops->caps(p->pager->self, &pc, err) ||
	    !(pc.flags & GENAI_PAGER_CAP_STABLE))
		return "pager moves weights";
	return NULL;
}

// The recording of these shapes and addresses; n_recorded if there is none.
static uint32_t find_recording(const struct genai_plan *p,
			       const struct cref_shape *s, uint64_t key)
{
	uint32_t i = 0;

	while (i < p->n_recorded &&
	       (p->recorded[i].shape != s || p->recorded[i].key != key))
		i++;
	return i;
}

static int32_t record(struct genai_plan *p, struct cref_shape *s,
		      struct genai_stream *stream, struct genai_error *err)
{
	struct genai_point tail = {0};
	struct genai_recording *rec;
	int32_t rc = 0;

	if (!MUTANT(2)) // R2
		rc = p->stream->ops->wait(p->stream->self, stream, p->tail,
					  err);
	if (!rc)
		rc = p->stream->ops->capture_begin(p->stream->self, stream,
						   err);
	if (rc)
		return rc;
	rc = step(p, s, stream, true, &tail, err);
	if (!rc)
		rc = p->stream->ops->wait(p->stream->self, stream, tail, err);
	if (rc) {
		p->stream->ops->capture_abort(p->stream->self, stream, NULL);
		return rc;
	}
	rc = p->stream->ops->capture_end(p->stream->self, stream, &rec, err);
	if (rc)
		return rc;
	p->recorded[p->n_recorded].recording = rec;
	p->recorded[p->n_recorded].shape = s;
	p->recorded[p->n_recorded++].key = bindings_key(p, stream);
	p->stats.captures++;
	return 0;
}

static int32_t replay(struct genai_plan *p, struct cref_shape *s,
		      struct genai_recording *rec, struct genai_stream *stream,
		      struct genai_point *out_signal, struct genai_error *err)
{
	int32_t rc = 0;

	if (!MUTANT(4)) // R2
		rc = p->stream->ops->wait(p->stream->self, stream, p->tail,
					  err);
	if (!rc)
		rc = p->stream->ops->launch_graph(p->stream->self, rec, stream,
						  err);
	if (rc)
		return rc;
	p->stats.replays++;
	return finish(p, s, stream, out_signal, err);
}

static int32_t submit_captured(struct genai_plan *p,
			       struct genai_stream *stream,
			       const struct genai_point *wait, uint32_t n_wait,
			       struct genai_point *out_signal,
			       struct genai_error *err)
{
	struct cref_shape *s;
	const char *why;
	int32_t rc = step_shape(p, &s, err);

	if (!rc)
		rc = wait_all(p, stream, wait, n_wait, err);
	if (rc)
		return rc;
	if (is_decode(p, s) && s->submits) {
		uint32_t i = find_recording(p, s, bindings_key(p, stream));

		why = cannot_record(p, err);
		if (!why && i == CREF_MAX_RECORDED)
			why = "too many sets of addresses";
		if (!why && i == p->n_recorded)
			rc = record(p, s, stream, err);
		if (rc)
			return rc;
		if (!why)
			return replay(p, s, p->recorded[i].recording, stream,
				      out_signal, err);
		fall_back(p, why);
	}
	rc = step_eager(p, s, stream, err);
	if (!rc)
		rc = finish(p, s, stream, out_signal, err);
	return rc;
}

static int32_t submit(struct genai_plan *p, struct genai_stream *stream,
		      const struct genai_point *wait, uint32_t n_wait,
		      struct genai_point *out_signal, struct genai_error *err)
{
	if (!p->pages && p->n_visits)
		return CREF_FAIL(p->dev, err, GENAI_E_STATE,
				 "the plan was not told where its weights are");
	return p->captured
		       ? submit_captured(p, stream, wait, n_wait, out_signal,
					 err)
		       : submit_eager(p, stream, wait, n_wait, out_signal, err);
}

// ---- the rest of the table ----

static int32_t bind(struct genai_plan *p, const struct genai_value *v,
		    const struct genai_view *view, struct genai_view *slot,
		    struct genai_error *err)
{
	if (v->dtype && v->dtype != view->dtype)
		return CREF_FAIL(p->dev, err, GENAI_E_INVAL,
				 "%s has type %u and is bound to type %u",
				 v->name, v->dtype, view->dtype);
	if (view->rank > GENAI_MAX_RANK ||
	    (v->rank != GENAI_NONE && v->rank != view->rank))
		return CREF_FAIL(p->dev, err, GENAI_E_INVAL,
				 "%s has rank %u and is bound to rank %u",
				 v->name, v->rank, view->rank);
	for (uint32_t d = 0; d < view->rank; d++)
		if (view->dims[d] < 0 || view->strides[d] < 0)
			return CREF_FAIL(p->dev, err, GENAI_E_INVAL,
					 "%s: dimension %u is negative",
					 v->name, d);
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
		return CREF_FAIL(p->dev, err, GENAI_E_INVAL,
				 "no graph input %u", i);
	v = genai_graph_value(p->graph, p->graph->inputs[i]);
	for (uint32_t d = 0; d < view->rank && d < GENAI_MAX_RANK; d++)
		if (view->dims[d] > p->max_inputs[i].dims[d])
			return CREF_FAIL(p->dev, err, GENAI_E_LIMIT,
					 "%s: dimension %u is %lld, planned "
					 "for at most %lld",
					 v->name, d, (long long)view->dims[d],
					 (long long)p->max_inputs[i].dims[d]);
	return bind(p, v, view, &p->bound_in[i], err);
}

static int32_t bind_output(struct genai_plan *p, uint32_t i,
			   const struct genai_view *view,
			   struct genai_error *err)
{
	if (i >= p->graph->n_outputs)
		return CREF_FAIL(p->dev, err, GENAI_E_INVAL,
				 "no graph output %u", i);
	return bind(p, genai_graph_value(p->graph, p->graph->outputs[i]), view,
		    &p->bound_out[i], err);
}

static int32_t output_shape(struct genai_plan *p, uint32_t i,
			    struct genai_view *out, struct genai_error *err)
{
	struct cref_tensor *t;
	struct cref_shape *s;
	int32_t rc;

	if (i >= p->graph->n_outputs)
		return CREF_FAIL(p->dev, err, GENAI_E_INVAL,
				 "no graph output %u", i);
	rc = cref_plan_shape(p, &s, NULL);
	if (rc) { // it may be bound for the shape of another step
		struct genai_view bound = p->bound_out[i];

		p->bound_out[i].size = 0;
		rc = cref_plan_shape(p, &s, err);
		p->bound_out[i] = bound;
	}
	if (rc)
		return rc;
	t = &s->tensors[p->graph->outputs[i]];
	memset(out, 0, sizeof(*out));
	out->size = sizeof(*out);
	out->dtype = t->dtype;
	out->rank = t->rank;
	memcpy(out->dims, t->dims, sizeof(t->dims));
	memcpy(out->strides, t->strides, sizeof(t->strides));
	return 0;
}

static int32_t plan_destroy(struct genai_plan *p,
			    const struct genai_ticket *ticket,
			    struct genai_error *err)
{
	int32_t rc = 0;

	while (!rc && p->n_recorded) {
		rc = p->stream->ops->graph_destroy(
			p->stream->self,
			p->recorded[p->n_recorded - 1].recording, ticket, err);
		p->n_recorded -= !rc;
	}
	if (rc)
		return rc;
	if (p->arena.range.bytes)
		rc = p->stream->ops->free(p->stream->self, p->arena.range.addr,
					  ticket, err);
	if (!rc)
		cref_plan_free(p);
	return rc;
}

static int32_t get_stats(struct genai_plan *p, struct genai_exec_stats *out,
			 struct genai_error *err)
{
	(void)err;
	genai_struct_give(out, &p->stats);
	return 0;
}

static int32_t fill_caps(struct genai_exec_caps *out, uint32_t flags)
{
	static struct genai_exec_op ops[512];
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct genai_exec_caps c = {.size = sizeof(c),
				    .flags = flags,
				    .device_kind = "sim",
				    .op_stride = sizeof(ops[0]),
				    .ops = ops};
	uint32_t n;
	const struct cref_op *t = cref_op_table(&n);

	pthread_mutex_lock(&lock);
	if (n > 512)
		n = 512;
	for (uint32_t i = 0; i < n; i++)
		ops[i] = (struct genai_exec_op){t[i].domain, t[i].op,
						t[i].since};
	pthread_mutex_unlock(&lock);
	c.n_ops = n;
	genai_struct_give(out, &c);
	return 0;
}

static int32_t caps_eager(void *self, struct genai_exec_caps *out,
			  struct genai_error *err)
{
	(void)self;
	(void)err;
	return fill_caps(out, GENAI_EXEC_CAP_ROWS_EXACT);
}

static int32_t caps_captured(void *self, struct genai_exec_caps *out,
			     struct genai_error *err)
{
	(void)self;
	(void)err;
	return fill_caps(out,
			 GENAI_EXEC_CAP_RECORDS | GENAI_EXEC_CAP_ROWS_EXACT);
}

static int32_t create_captured(void *self, const struct genai_graph *graph,
			       const struct genai_plan_options *options,
			       struct genai_plan **out_plan,
			       struct genai_error *err)
{
	int32_t rc = cref_plan_create(self, graph, options, out_plan, err);

	if (!rc)
		(*out_plan)->captured = true;
	return rc;
}

#define CREF_EXECUTOR(caps_fn, create_fn)                                      \
	{                                                                      \
		.size = sizeof(struct genai_executor_ops), .version = 1,       \
		.caps = caps_fn, .plan_create = create_fn,                     \
		.plan_visits = cref_plan_visits,                               \
		.plan_set_pages = cref_plan_set_pages,                         \
		.plan_destroy = plan_destroy, .bind_input = bind_input,        \
		.bind_output = bind_output, .output_shape = output_shape,      \
		.submit = submit, .stats = get_stats                           \
	}

const struct genai_executor_ops cref_eager_ops =
	CREF_EXECUTOR(caps_eager, cref_plan_create);
const struct genai_executor_ops cref_captured_ops =
	CREF_EXECUTOR(caps_captured, create_captured);
