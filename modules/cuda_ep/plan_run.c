/* plan_run.c - a step: enqueued node by node, or recorded once and replayed. */
#include <stdio.h>
#include "modules/cuda_ep/plan.h"

#define S(p) ((p)->stream->ops)
#define SELF(p) ((p)->stream->self)

struct step {
	struct genai_plan *p;
	struct cep_variant *v;
	struct genai_stream *stream;
	CUstream native;
	bool overlap; /* the unit before is a kernel of ours */
	struct genai_error *err;
};

static struct cep_run run_of(const struct step *s, uint32_t node)
{
	uint64_t base = s->p->mem.range.addr;

	return (struct cep_run){
		.self = s->p->self,
		.stream = s->native,
		.workspace = base + s->p->workspace_at,
		.sync = base + s->p->sync_at +
			(node < s->p->graph->n_nodes ? s->p->sync_offset[node]
						     : 0),
		.overlap = s->overlap,
		.plan = s->p->id,
		.err = s->err,
	};
}

static void add_access(struct genai_access *a, uint32_t *n, uint64_t addr,
		       uint64_t bytes, uint32_t flags)
{
	if (bytes)
		a[(*n)++] = (struct genai_access){addr, bytes, flags, 0};
}

/* What a run in parts reads of input i. */
static void add_parts(struct genai_access *a, uint32_t *count,
		      const struct cep_node *n, const struct cep_run *r,
		      uint32_t i)
{
	uint64_t all = (uint64_t)n->in[i]->dims[0];
	uint64_t row = cep_span(n->in[i]) / (all ? all : 1);

	for (uint32_t k = 0; k < r->n_parts; k++) {
		uint64_t rows = all - (uint64_t)k * r->part_rows;

		if (rows > r->part_rows)
			rows = r->part_rows;
		add_access(a, count, r->parts[k * CEP_MAX_IN + i], rows * row,
			   GENAI_READ);
	}
}

/* Tell the stream runtime what the kernels just enqueued touch. */
static int32_t declare(struct step *s, const struct cep_node *n,
		       const struct cep_run *r)
{
	struct genai_access a[CEP_MAX_IN + CEP_MAX_OUT + 2 + 6 * CEP_TILES];
	struct genai_work w = {
		.size = sizeof(w),
		.node = n->index,
		.name = n->node->op,
	};
	uint64_t rows = r->row_end - r->row_begin;
	uint32_t count = 0;

	for (uint32_t i = 0; i < n->n_in; i++) {
		uint64_t bytes;

		if (!n->in[i] || !cep_reads(n, i))
			continue;
		if (r->n_parts && EXEC_HAS(n->op->facts.rows, i)) {
			add_parts(a, &count, n, r, i);
			continue;
		}
		bytes = cep_span(n->in[i]);
		if (rows && EXEC_HAS(n->op->facts.rows, i) && n->in[i]->dims[0])
			bytes = bytes / (uint64_t)n->in[i]->dims[0] * rows;
		add_access(a, &count, n->in[i]->addr, bytes, GENAI_READ);
	}
	for (uint32_t i = 0; i < n->n_out; i++)
		if (n->out[i] && n->out[i]->root == CEP_OWN)
			add_access(a, &count, n->out[i]->addr,
				   cep_span(n->out[i]), GENAI_WRITE);
	if (n->workspace_bytes)
		add_access(a, &count, r->workspace, n->workspace_bytes,
			   GENAI_READ | GENAI_WRITE);
	if (n->sync_bytes)
		add_access(a, &count, r->sync, n->sync_bytes,
			   GENAI_READ | GENAI_WRITE);
	return S(s->p)->launch(SELF(s->p), s->stream, &w, a, count, s->err);
}

static int32_t run_node(struct step *s, struct cep_node *n, uint64_t row_begin,
			uint64_t row_end, uint32_t n_parts)
{
	struct cep_run r = run_of(s, n->index);
	int32_t rc;

	if (cep_is_silent(n))
		return 0;
	r.row_begin = row_begin;
	r.row_end = row_end;
	r.n_parts = n_parts;
	r.parts = s->p->parts;
	r.part_rows = s->p->part_rows[n->index];
	rc = n->op->run(n, &r);
	s->overlap = r.overlap;
	return rc ? rc : declare(s, n, &r);
}

static int32_t acquire(struct step *s, const struct cep_step *step)
{
	struct genai_plan *p = s->p;
	const struct cep_use *u = &p->uses[step->visit];
	struct cep_tensor *t = s->v->nodes[u->node].in[u->input];
	struct genai_place place = {.size = sizeof(place)};
	struct genai_point ready = {NULL, 0};
	int32_t rc = p->pager->ops->acquire(p->pager->pager, step->page,
					    s->stream, &place, &ready, s->err);

	if (rc)
		return rc;
	if (place.kind == GENAI_PLACE_HOST)
		return cep_fail(p->self, s->err, GENAI_E_UNSUPPORTED,
				"rows computed on the host are not carried by "
				"cuda_ep");
	if (!p->resident)
		s->overlap = false; /* a copy may have come between */
	t->addr = place.addr + t->offset;
	return ready.stream ? S(p)->wait(SELF(p), s->stream, ready, s->err) : 0;
}

static int32_t release(struct step *s, const struct cep_step *step,
		       struct genai_point *mark)
{
	struct genai_plan *p = s->p;
	int32_t rc = 0;

	if (!mark->stream)
		rc = S(p)->mark(SELF(p), s->stream, mark, s->err);
	return rc ? rc
		  : p->pager->ops->release(p->pager->pager, step->page, *mark,
					   s->err);
}

/* Everything of the node is on the device and stays: hold all its pages, run
 * once, let them go.  The results are those of running part by part. */
static int32_t run_at_once(struct step *s, struct cep_node *n, uint32_t first,
			   uint32_t end)
{
	struct genai_plan *p = s->p;
	uint32_t part_rows = p->part_rows[n->index], n_parts = 0;
	struct genai_point mark = {NULL, 0};
	int32_t rc = 0;

	for (uint32_t i = first; i < end && !rc; i++) {
		const struct cep_step *x = &p->steps[i];
		uint32_t input = p->uses[x->visit].input;

		if (x->kind != CEP_ACQUIRE)
			continue;
		rc = acquire(s, x);
		if (!EXEC_HAS(n->op->facts.rows, input))
			continue;
		n_parts = (uint32_t)(x->row_begin / part_rows) + 1;
		p->parts[(n_parts - 1) * CEP_MAX_IN + input] =
			n->in[input]->addr;
	}
	if (!rc)
		rc = run_node(s, n, 0, 0, n_parts);
	for (uint32_t i = first; i < end && !rc; i++)
		if (p->steps[i].kind == CEP_RELEASE)
			rc = release(s, &p->steps[i], &mark);
	return rc;
}

static int32_t run_nodes(struct step *s)
{
	struct genai_plan *p = s->p;
	int32_t rc = 0;

	for (uint32_t k = 0; k < p->graph->n_nodes && !rc; k++) {
		struct cep_node *n = &s->v->nodes[k];
		struct genai_point mark = {NULL, 0};
		uint32_t i = p->step_begin[k], end = p->step_begin[k + 1];

		if (i == end)
			rc = run_node(s, n, 0, 0, 0);
		else if (p->resident && p->part_rows[k] && n->op->parts) {
			rc = run_at_once(s, n, i, end);
			continue;
		}
		for (; i < end && !rc; i++) {
			const struct cep_step *step = &p->steps[i];

			if (step->kind == CEP_ACQUIRE) {
				rc = acquire(s, step);
			} else if (step->kind == CEP_RELEASE) {
				rc = release(s, step, &mark);
			} else {
				mark.stream = NULL;
				rc = run_node(s, n, step->row_begin,
					      step->row_end, 0);
			}
		}
	}
	return rc;
}

/* Outputs that are not written where they are bound: moved now. */
static int32_t move_outputs(struct step *s)
{
	struct genai_plan *p = s->p;
	struct cep_run r = run_of(s, p->graph->n_nodes);
	struct genai_work w = {
		.size = sizeof(w), .node = GENAI_NONE, .name = "output"};
	int32_t rc = 0;

	for (uint32_t o = 0; o < p->graph->n_outputs && !rc; o++) {
		uint32_t value = p->graph->outputs[o];
		const struct cep_tensor *t = &s->v->tensors[value];
		const struct genai_view *b = &p->outputs[o];
		struct genai_access a[2];
		uint32_t n = 0;

		if (p->values[value].storage == CEP_ST_OUTPUT && !p->late[o] &&
		    t->root == CEP_OWN)
			continue;
		rc = cep_run_copy(&r, cep_dtype_bytes(t->dtype), t->rank,
				  t->dims, b->addr, b->strides, t->addr,
				  t->strides);
		add_access(a, &n, t->addr, cep_span(t), GENAI_READ);
		add_access(a, &n, b->addr, cep_bytes(t), GENAI_WRITE);
		if (!rc)
			rc = S(p)->launch(SELF(p), s->stream, &w, a, n, s->err);
	}
	return rc;
}

/* Constants of the variant, and the sync words of the plan once. */
static int32_t poke(struct step *s)
{
	struct genai_plan *p = s->p;
	struct cep *self = p->self;
	uint64_t base = p->mem.range.addr;
	uint64_t at = base + p->const_at + s->v->region * p->const_bytes;
	struct cep_run r = run_of(s, p->graph->n_nodes);
	struct cep_poke k = {.dst = at};
	struct genai_access a = {at, p->const_bytes, GENAI_WRITE, 0};
	struct genai_work w = {
		.size = sizeof(w), .node = GENAI_NONE, .name = "constants"};
	CUresult e;
	int32_t rc = 0;

	if (!p->synced && p->sync_bytes) {
		e = CU(self, cuMemsetD8Async)(base + p->sync_at, 0,
					      p->sync_bytes, s->native);
		if (e)
			return cep_cuda_fail(self, s->err, e, "memset");
	}
	p->synced = true;
	for (uint32_t i = 0; i < p->graph->n_values && !rc; i++) {
		const struct cep_value *x = &p->values[i];
		const struct cep_tensor *t = &s->v->tensors[i];
		uint64_t bytes = cep_bytes(t);

		if (x->storage != CEP_ST_CONST || !bytes)
			continue;
		if (x->offset + bytes > (k.dst - at) + CEP_POKE_BYTES) {
			rc = cep_run_kernel(&r, CEP_K_cep_poke_k,
					    (struct cep_dim3){1, 1, 1}, 256, 0,
					    &k);
			k.dst = at + x->offset;
			k.bytes = 0;
		}
		memcpy(k.data + (x->offset - (k.dst - at)), t->value, bytes);
		k.bytes = (uint32_t)(x->offset + bytes - (k.dst - at));
	}
	if (!rc && k.bytes)
		rc = cep_run_kernel(&r, CEP_K_cep_poke_k,
				    (struct cep_dim3){1, 1, 1}, 256, 0, &k);
	if (!rc && p->const_bytes)
		rc = S(p)->launch(SELF(p), s->stream, &w, &a, 1, s->err);
	/* kernels may load constants before they wait for the one before */
	s->overlap = false;
	s->v->poked = !rc;
	return rc;
}

static uint64_t pager_copies(const struct genai_plan *p)
{
	struct genai_pager_stats st = {.size = sizeof(st)};

	if (!p->n_visits || !p->pager->ops->stats ||
	    p->pager->ops->stats(p->pager->pager, &st, NULL))
		return UINT64_MAX;
	return st.copies;
}

/* The whole step; everything it enqueues is the same when it is recorded. */
static int32_t run_step(struct step *s, int32_t recording,
			struct genai_point *out_tail)
{
	struct genai_plan *p = s->p;
	bool paged = p->n_visits > 0;
	uint64_t before = recording ? 0 : pager_copies(p);
	int32_t rc = 0;

	*out_tail = (struct genai_point){NULL, 0};
	if (!s->v->poked)
		rc = poke(s);
	if (!rc && paged)
		rc = p->pager->ops->step_begin(p->pager->pager, s->stream,
					       recording, s->err);
	if (!rc)
		rc = run_nodes(s);
	if (!rc)
		rc = move_outputs(s);
	if (!rc && paged)
		rc = p->pager->ops->step_end(p->pager->pager, s->stream,
					     out_tail, s->err);
	if (!rc && !recording)
		p->resident = !paged || before == pager_copies(p);
	return rc;
}

/* A step that broke off half way leaves work behind that nobody can use. */
static int32_t give_up(struct genai_plan *p, int32_t rc,
		       struct genai_error *err)
{
	struct genai_error plain = GENAI_ERROR_INIT;

	if (!err) {
		cep_fail(p->self, &plain, rc, "a step broke off");
		err = &plain;
	}
	cep_poison_set(p->self, rc, err);
	return rc;
}

// An eager step leaves copies for the next step of whoever has the pager: every
// plan of it must be ordered after them before it replays.
static void share_tail(struct genai_plan *p, struct genai_point tail)
{
	pthread_mutex_lock(&p->self->lock);
	for (uint32_t i = 0; i < CEP_PLANS; i++) {
		struct genai_plan *q = p->self->plans[i];

		if (q && q->pager && p->pager &&
		    q->pager->pager == p->pager->pager)
			q->tail = tail;
	}
	pthread_mutex_unlock(&p->self->lock);
}

static int32_t run_eager(struct step *s)
{
	struct genai_point tail;
	int32_t rc = run_step(s, 0, &tail);

	if (rc)
		return give_up(s->p, rc, s->err);
	if (tail.stream)
		share_tail(s->p, tail);
	s->v->eager_runs++;
	return 0;
}

static void fallback(struct genai_plan *p, const char *reason)
{
	struct genai_exec_stats *st = &p->stats;

	for (uint32_t i = 0; i < 8; i++) {
		if (i == st->n_fallbacks)
			snprintf(st->fallbacks[i].reason,
				 sizeof(st->fallbacks[i].reason), "%s", reason);
		else if (strcmp(st->fallbacks[i].reason, reason))
			continue;
		st->fallbacks[i].count++;
		st->n_fallbacks += i == st->n_fallbacks;
		return;
	}
}

static const char *cannot_record(const struct genai_plan *p)
{
	struct genai_pager_caps pc = {.size = sizeof(pc)};

	if (!S(p)->capture_begin || !S(p)->capture_end || !S(p)->launch_graph)
		return "the stream runtime does not record";
	if (p->n_visits && (p->pager->ops->caps(p->pager->self, &pc, NULL) ||
			    !(pc.flags & GENAI_PAGER_CAP_STABLE)))
		return "the pager's addresses are not stable";
	if (p->n_recordings == CEP_RECORDINGS)
		return "too many recordings";
	return NULL;
}

static uint64_t mix(uint64_t h, const void *p, uint64_t bytes)
{
	const unsigned char *b = p;

	for (uint64_t i = 0; i < bytes; i++)
		h = (h ^ b[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* Everything about the bindings that kernels were told (FNV-1a). */
static uint64_t signature(const struct genai_plan *p)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	h = mix(h, p->inputs, p->graph->n_inputs * sizeof(*p->inputs));
	return mix(h, p->outputs, p->graph->n_outputs * sizeof(*p->outputs));
}

static int32_t record(struct step *s)
{
	struct genai_plan *p = s->p;
	struct genai_recording *rec = NULL;
	struct genai_point tail;
	int32_t rc;

	rc = S(p)->wait(SELF(p), s->stream, p->tail, s->err);
	if (rc)
		return rc;
	rc = S(p)->capture_begin(SELF(p), s->stream, s->err);
	if (rc)
		return rc;
	rc = run_step(s, 1, &tail);
	if (!rc && tail.stream)
		rc = S(p)->wait(SELF(p), s->stream, tail, s->err);
	if (rc) {
		(void)S(p)->capture_abort(SELF(p), s->stream, NULL);
		return give_up(p, rc, s->err);
	}
	rc = S(p)->capture_end(SELF(p), s->stream, &rec, s->err);
	if (rc)
		return rc;
	p->recordings[p->n_recordings++] = rec;
	s->v->recording = rec;
	s->v->signature = signature(p);
	s->v->generation = p->generation;
	p->stats.captures++;
	return 0;
}

static int32_t run_captured(struct step *s)
{
	struct genai_plan *p = s->p;
	const char *why;
	int32_t rc;

	if (!s->v->is_step || !s->v->eager_runs)
		return run_eager(s);
	if (s->v->recording && s->v->generation != p->generation) {
		if (s->v->signature != signature(p))
			s->v->recording = NULL; /* the list keeps it */
		s->v->generation = p->generation;
	}
	if (!s->v->recording) {
		why = cannot_record(p);
		if (!why) {
			rc = record(s);
			if (rc && p->self->poison)
				return rc;
			if (rc)
				why = "the recording failed";
		}
		if (why) {
			fallback(p, why);
			return run_eager(s);
		}
	}
	rc = S(p)->wait(SELF(p), s->stream, p->tail, s->err);
	if (!rc)
		rc = S(p)->launch_graph(SELF(p), s->v->recording, s->stream,
					s->err);
	if (!rc)
		p->stats.replays++;
	return rc;
}

static int32_t ready(struct genai_plan *p, struct genai_error *err)
{
	const struct genai_graph *g = p->graph;
	int32_t rc;

	for (uint32_t i = 0; i < g->n_inputs; i++)
		if (!p->inputs[i].size)
			return cep_fail(
				p->self, err, GENAI_E_STATE,
				"input %s is not bound",
				genai_graph_value(g, g->inputs[i])->name);
	for (uint32_t o = 0; o < g->n_outputs; o++)
		if (!p->outputs[o].size)
			return cep_fail(
				p->self, err, GENAI_E_STATE,
				"output %s is not bound",
				genai_graph_value(g, g->outputs[o])->name);
	if (p->n_visits && (!p->has_pages || !p->pager))
		return cep_fail(p->self, err, GENAI_E_STATE,
				"submit before set_pages");
	pthread_mutex_lock(&p->self->lock);
	rc = cep_poison_check(p->self, err);
	pthread_mutex_unlock(&p->self->lock);
	return rc;
}

int32_t cep_plan_submit(struct genai_plan *p, struct genai_stream *stream,
			const struct genai_point *wait, uint32_t n_wait,
			struct genai_point *out_signal, struct genai_error *err)
{
	struct step s = {.p = p, .stream = stream, .err = err};
	void *native = NULL;
	int32_t rc = ready(p, err);

	if (!rc)
		rc = cep_variant_get(p, &s.v, err);
	if (!rc)
		rc = cep_variant_resolve(p, s.v, err);
	if (!rc)
		rc = S(p)->native(SELF(p), stream, &native, err);
	for (uint32_t i = 0; i < n_wait && !rc; i++)
		rc = S(p)->wait(SELF(p), stream, wait[i], err);
	if (rc)
		return rc;
	cep_enter(p->self);
	s.native = native;
	s.v->used = ++p->clock;
	p->submitted = true;
	rc = p->captured ? run_captured(&s) : run_eager(&s);
	if (rc)
		return rc;
	p->stats.steps++;
	return out_signal ? S(p)->mark(SELF(p), stream, out_signal, err) : 0;
}
