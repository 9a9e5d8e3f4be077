// session_io.c - what a sequence puts on the device, and what comes back.
//
// The token leaves by its own door: after every step its id and logit are
// copied to one of four pinned slots, and read from there one or two steps
// later, so that reading never races with a step that runs ahead.
#include "core/model/session.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/error.h"

// ---- binding ----

static void view(struct genai_view *v, uint32_t dtype, genai_addr addr,
		 uint32_t rank, const int64_t *dims)
{
	int64_t stride = 1;

	memset(v, 0, sizeof(*v));
	v->size = sizeof(*v);
	v->dtype = dtype;
	v->addr = addr;
	v->rank = rank;
	for (uint32_t d = rank; d-- > 0;) {
		v->dims[d] = dims[d];
		v->strides[d] = stride;
		stride *= dims[d];
	}
}

static int32_t bind_step(struct genai_session *s, uint64_t n,
			 struct genai_error *err)
{
	struct genai_model *m = s->m;
	const struct genai_executor_ops *x = &m->rt->exec;
	int64_t rows = m->all_logits && !m->step.one_row ? (int64_t)n : 1;
	int64_t ids[2] = {1, (int64_t)n}, lg[3] = {1, rows, m->vocab};
	struct genai_view v;
	int32_t rc;

	view(&v, GENAI_DT_I64, s->ids.range.addr, 2, ids);
	rc = x->bind_input(s->plan, m->step.ids, &v, err);
	view(&v, m->step.logits_dtype, s->logits.range.addr, 3, lg);
	if (!rc)
		rc = x->bind_output(s->plan, m->step.logits, &v, err);
	s->rows = (uint64_t)rows;
	return rc;
}

int32_t session_bind(struct genai_session *s, struct genai_error *err)
{
	struct genai_model *m = s->m;
	const struct genai_executor_ops *x = &m->rt->exec;
	static const int64_t one[2] = {1, 1};
	const struct genai_states *states = &m->step.states;
	struct genai_view v;
	int32_t rc;

	view(&v, GENAI_DT_I32, s->past.range.addr, 1, one);
	rc = x->bind_input(s->plan, m->step.past, &v, err);
	if (!rc)
		rc = x->bind_output(s->plan, m->step.total, &v, err);
	if (!rc && m->step.next != GENAI_NONE) {
		// the next step's input
		view(&v, GENAI_DT_I64, s->ids.range.addr, 2, one);
		rc = x->bind_output(s->plan, m->step.next, &v, err);
		view(&v, m->step.logits_dtype, s->token.range.addr, 2, one);
		if (!rc)
			rc = x->bind_output(s->plan, m->step.best, &v, err);
	}
	for (uint32_t i = 0; !rc && i < states->n; i++) {
		uint64_t at = genai_states_at(states, i, m->context);

		genai_state_view(&states->v[i], s->states.range.addr + at,
				 m->context, &v);
		rc = x->bind_input(s->plan, states->v[i].in, &v, err);
		if (!rc)
			rc = x->bind_output(s->plan, states->v[i].out, &v, err);
	}
	return rc;
}

// ---- steps ----

int32_t session_set_past(struct genai_session *s, uint64_t length,
			 struct genai_error *err)
{
	struct door *d = session_door(s, s->computed);
	struct genai_point *at = &s->door_at[s->computed % SLOTS];
	int32_t rc;

	// nobody else writes it, and this waits below
	d->length = (int32_t)length;
	rc = session_ops(s)->copy(session_self(s), s->m->stream,
				  s->past.range.addr, (uintptr_t)&d->length,
				  sizeof(d->length), GENAI_COPY_H2D, err);
	if (!rc)
		rc = session_ops(s)->mark(session_self(s), s->m->stream, at,
					  err);
	if (!rc)
		rc = session_host_read(s, at, err);
	if (rc)
		return rc;
	s->length = length;
	s->rows = 0;
	return 0;
}

// Enqueue the step for the n ids in the device buffer.  Its slot is free: a
// token is read at most two steps later, or never.
int32_t session_submit(struct genai_session *s, uint64_t n,
		       struct genai_error *err)
{
	struct genai_model *m = s->m;
	struct door *d = session_door(s, s->computed);
	uint64_t slot = s->computed % SLOTS;
	int32_t rc = bind_step(s, n, err);

	if (!rc)
		rc = genai_runtime_submit(m->rt, s->plan, m->stream, err);
	if (!rc && m->step.next != GENAI_NONE) {
		rc = session_ops(s)->copy(session_self(s), m->stream,
					  (uintptr_t)&d->id, s->ids.range.addr,
					  sizeof(d->id), GENAI_COPY_D2H, err);
		if (!rc)
			rc = session_ops(s)->copy(
				session_self(s), m->stream, (uintptr_t)&d->best,
				s->token.range.addr, session_logit_bytes(m),
				GENAI_COPY_D2H, err);
	}
	if (!rc)
		rc = session_ops(s)->mark(session_self(s), m->stream,
					  &s->door_at[slot], err);
	if (rc)
		return rc;
	s->computed++;
	s->length += n;
	return 0;
}

// Positions that are certain: those whose token was read.
uint64_t session_certain(const struct genai_session *s)
{
	return s->length - (s->computed - s->handed);
}

struct genai_point *session_last_door(struct genai_session *s)
{
	return &s->door_at[(s->computed - 1) % SLOTS];
}

static int32_t restart(struct genai_session *s, uint64_t length,
		       struct genai_error *err)
{
	int32_t rc;

	memset(s->door_at, 0, sizeof(s->door_at));
	memset(s->stage_at, 0, sizeof(s->stage_at));
	s->handed = s->computed;
	s->length = length;
	rc = session_go_back(s, length, err);
	s->broken = s->broken && rc;
	s->lost = s->lost && rc;
	return rc;
}

// Did its last step fail, or was it skipped?  The error goes with the device's
// poison.
static bool is_lost(struct genai_session *o)
{
	return o->handed != o->computed &&
	       session_ops(o)->poll(session_self(o), *session_last_door(o),
				    NULL);
}

// A pager's reset loads again, which makes tickets stale.
static int32_t reset_pagers(struct genai_runtime *rt, struct genai_error *err)
{
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	int32_t rc = 0;

	for (struct genai_model *m = rt->models; !rc && m; m = m->next) {
		struct genai_pager_api *p = &m->paging.api;

		if (!p->pager || !m->sessions)
			continue;
		rc = genai_device_drain(&rt->device, &ticket, err);
		if (!rc)
			rc = p->ops->reset(p->pager, &ticket, err);
	}
	return rc;
}

// Everything quiet, poison cleared, the rings forgotten.  The poison is the
// device's: sessions of any model, but for s, whose steps failed too, or were
// skipped, lose them.
static int32_t recover_device(struct genai_runtime *rt,
			      const struct genai_session *s,
			      struct genai_error *err)
{
	struct genai_stream_api *a = &rt->device.stream;
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	int32_t rc = genai_device_drain(&rt->device, &ticket, err);
	struct genai_session *o;

	for (struct genai_model *m = rt->models; !rc && m; m = m->next)
		for (o = m->sessions; o; o = o->next)
			o->lost = o != s && (o->lost || is_lost(o));
	if (!rc)
		rc = a->ops->reset(a->self, &ticket, err);
	if (!rc)
		rc = reset_pagers(rt, err);
	for (struct genai_model *m = rt->models; m; m = m->next)
		for (o = m->sessions; !rc && o; o = o->next)
			if (o->lost)
				rc = restart(o, session_certain(o), err);
	rt->unclear = rc != 0;
	return rc;
}

void session_recover(struct genai_session *s, uint64_t length)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc = recover_device(s->m->rt, s, &err);

	if (!rc)
		rc = restart(s, length, &err);
	if (!rc)
		return;
	s->broken = true;
	s->length = s->rows = 0;
	// the error is what led here; the caller reports that
	genai_log_line(&s->m->rt->log, GENAI_LOG_INFO,
		       "the device could not be reset: %s", err.text);
}

void session_leave(struct genai_session *s)
{
	if (!genai_device_forked(&s->m->rt->device, NULL) &&
	    (s->broken || is_lost(s)))
		session_recover(s, 0);
}

int32_t session_mend(struct genai_session *s, struct genai_error *err)
{
	struct genai_runtime *rt = s->m->rt;
	int32_t rc = genai_device_forked(&rt->device, err);

	if (rc || (!s->broken && !rt->unclear))
		return rc;
	if (s->broken)
		session_recover(s, 0);
	else
		recover_device(rt, NULL, NULL);
	return s->broken || rt->unclear
		       ? genai_fail(err, GENAI_E_DEVICE,
				    "the device could not be reset after an "
				    "error")
		       : 0;
}

// ---- results ----

static float half_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31,
		 f = h & 0x3ff;
	uint32_t bits;
	float v;

	if (e == 31) {
		bits = sign | 0x7f800000 | f << 13;
	} else if (e) {
		bits = sign | (e + 112) << 23 | f << 13;
	} else {
		v = (float)f * 0x1p-24f;
		return sign ? -v : v;
	}
	memcpy(&v, &bits, 4);
	return v;
}

static float widen(uint32_t dtype, const void *p, uint64_t i)
{
	uint32_t bits;
	float v;

	if (dtype == GENAI_DT_F32)
		return ((const float *)p)[i];
	if (dtype == GENAI_DT_F16)
		return half_to_float(((const uint16_t *)p)[i]);
	bits = (uint32_t)((const uint16_t *)p)[i] << 16;
	memcpy(&v, &bits, 4);
	return v;
}

int32_t genai_session_logits(struct genai_session *s, float *out,
			     size_t cap_rows, size_t *out_rows,
			     struct genai_error *err)
{
	struct genai_model *m = s->m;
	uint64_t row = (uint64_t)m->vocab * session_logit_bytes(m);
	uint64_t rows = s->rows < cap_rows ? s->rows : cap_rows;
	struct genai_point p;
	int32_t rc = session_mend(s, err);

	if (rc)
		return rc;
	if (!s->rows)
		return genai_fail(err, GENAI_E_STATE,
				  "there are no logits: nothing was appended "
				  "since the session was opened or rewound");
	rc = session_ops(s)->copy(session_self(s), m->stream,
				  (uintptr_t)s->host_logits.host,
				  s->logits.range.addr + (s->rows - rows) * row,
				  rows * row, GENAI_COPY_D2H, err);
	if (!rc)
		rc = session_ops(s)->mark(session_self(s), m->stream, &p, err);
	if (!rc)
		rc = session_host_read(s, &p, err);
	if (!rc)
		rc = genai_onnx_check(m->onnx, err);
	if (rc) {
		session_recover(s, session_certain(s));
		return rc;
	}
	for (uint64_t i = 0; i < rows * m->vocab; i++)
		out[i] = widen(m->step.logits_dtype, s->host_logits.host, i);
	*out_rows = rows;
	return 0;
}

int32_t session_read_token(struct genai_session *s, int64_t *out_id,
			   struct genai_error *err)
{
	const struct door *d = session_door(s, s->handed);
	int32_t rc = session_host_read(s, &s->door_at[s->handed % SLOTS], err);
	float best;

	if (!rc)
		rc = genai_onnx_check(s->m->onnx, err);
	if (rc)
		return rc;
	best = widen(s->m->step.logits_dtype, &d->best, 0);
	if (isnan(best))
		return genai_fail(err, GENAI_E_DEVICE,
				  "the model produced NaN at position %" PRIu64,
				  session_certain(s));
	if (isinf(best) && best < 0)
		return genai_fail(err, GENAI_E_DEVICE,
				  "every logit is -inf at position %" PRIu64,
				  session_certain(s));
	*out_id = d->id;
	return 0;
}
