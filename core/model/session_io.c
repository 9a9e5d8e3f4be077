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
#include "core/base/half.h"

#define TURN_AT 128 // in the block of the past: which tables a step has

// ---- binding ----

// The rows that go through the head: the last of n, or all.
static int32_t bind_rows(struct genai_session *s, uint64_t n, int64_t rows,
			 struct genai_error *err)
{
	struct genai_model *m = s->m;
	uint64_t first = n - (uint64_t)rows;
	struct genai_view v;

	if (m->step.rows == GENAI_NONE)
		return 0;
	genai_view_dense(&v, GENAI_DT_I64,
			 s->numbers.range.addr + first * sizeof(int64_t), 1,
			 &rows);
	return m->rt->exec.bind_input(s->plan, m->step.rows, &v, err);
}

// Where the positions of n begin, and which tables they are of.
static int32_t bind_turn(struct genai_session *s, uint64_t n,
			 struct genai_error *err)
{
	struct genai_model *m = s->m;
	const int64_t one = 1, rows = (int64_t)n;
	struct genai_view v;
	int32_t rc;

	if (m->step.turn == GENAI_NONE)
		return 0;
	genai_view_dense(&v, GENAI_DT_I64, s->numbers.range.addr, 1, &rows);
	rc = m->rt->exec.bind_input(s->plan, m->step.index, &v, err);
	genai_view_dense(&v, GENAI_DT_I64, s->past.range.addr + TURN_AT, 1,
			 &one);
	return rc ? rc : m->rt->exec.bind_input(s->plan, m->step.turn, &v, err);
}

static int32_t bind_step(struct genai_session *s, uint64_t n,
			 struct genai_error *err)
{
	struct genai_model *m = s->m;
	const struct genai_executor_ops *x = &m->rt->exec;
	int64_t rows = genai_model_rows(m) > 1 ? (int64_t)n : 1;
	int64_t ids[2] = {1, (int64_t)n}, lg[3] = {1, rows, m->vocab};
	struct genai_view v;
	int32_t rc;

	genai_view_dense(&v, GENAI_DT_I64, s->ids.range.addr, 2, ids);
	rc = x->bind_input(s->plan, m->step.ids, &v, err);
	if (!rc)
		rc = bind_rows(s, n, rows, err);
	if (!rc)
		rc = bind_turn(s, n, err);
	genai_view_dense(&v, m->step.logits_dtype, s->logits.range.addr, 3, lg);
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

	genai_view_dense(&v, GENAI_DT_I32, s->past.range.addr, 1, one);
	rc = x->bind_input(s->plan, m->step.past, &v, err);
	if (!rc)
		rc = x->bind_output(s->plan, m->step.total, &v, err);
	if (!rc && m->step.next != GENAI_NONE) {
		// the next step's input
		genai_view_dense(&v, GENAI_DT_I64, s->ids.range.addr, 2, one);
		rc = x->bind_output(s->plan, m->step.next, &v, err);
		genai_view_dense(&v, m->step.logits_dtype, s->token.range.addr,
				 2, one);
		if (!rc)
			rc = x->bind_output(s->plan, m->step.best, &v, err);
	}
	for (uint32_t i = 0; !rc && i < states->n; i++) {
		uint64_t at = genai_states_at(states, i, 0, m->context);

		if (states->v[i].kind == GENAI_STATE_JOINED)
			continue; // other places in every step
		genai_state_view(&states->v[i], s->states.range.addr + at,
				 m->context, &v);
		rc = x->bind_input(s->plan, states->v[i].in, &v, err);
		if (!rc)
			rc = x->bind_output(s->plan, states->v[i].out, &v, err);
	}
	return rc;
}

int32_t session_bind_joined(struct genai_session *s, uint64_t n,
			    struct genai_error *err)
{
	const struct genai_states *states = &s->m->step.states;
	const struct genai_executor_ops *x = &s->m->rt->exec;
	uint64_t context = s->m->context;
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < states->n; i++) {
		const struct genai_state *v = &states->v[i];
		genai_addr from, to;
		struct genai_view view;

		if (v->kind != GENAI_STATE_JOINED)
			continue;
		from = s->states.range.addr +
		       genai_states_at(states, i, s->place, context);
		to = s->states.range.addr +
		     genai_states_at(states, i, !s->place, context);
		genai_state_view(v, from, s->length, &view);
		rc = x->bind_input(s->plan, v->in, &view, err);
		genai_state_view(v, to, s->length + n, &view);
		if (!rc)
			rc = x->bind_output(s->plan, v->out, &view, err);
	}
	return rc;
}

// ---- steps ----

// What steps name rows by, and the rows that tables begin with, once: nothing
// was appended yet, and the stage has room for two chunks and two numbers more.
static int32_t number(struct genai_session *s, struct genai_error *err)
{
	int64_t *stage = s->stage.host;
	uint64_t chunk = s->m->chunk;

	if (s->numbered)
		return 0;
	for (uint64_t i = 0; i < chunk; i++)
		stage[i] = (int64_t)i;
	stage[chunk] = 0;
	stage[chunk + 1] = s->m->step.turn_row;
	return session_ops(s)->copy(session_self(s), s->m->stream,
				    s->numbers.range.addr, (uintptr_t)stage,
				    (chunk + 2) * sizeof(*stage),
				    GENAI_COPY_H2D, err);
}

int32_t session_set_turn(struct genai_session *s, uint64_t length,
			 struct genai_error *err)
{
	struct genai_model *m = s->m;

	if (m->step.turn == GENAI_NONE)
		return 0;
	s->turned = length > (uint64_t)m->step.turn_limit;
	return session_ops(s)->copy(
		session_self(s), m->stream, s->past.range.addr + TURN_AT,
		s->numbers.range.addr + (m->chunk + s->turned) * sizeof(int64_t),
		sizeof(int64_t), GENAI_COPY_D2D, err);
}

int32_t session_set_past(struct genai_session *s, uint64_t length,
			 struct genai_error *err)
{
	struct door *d = session_door(s, s->computed);
	struct genai_point *at = &s->door_at[s->computed % SLOTS];
	int32_t rc = number(s, err);

	if (rc)
		return rc;
	// nobody else writes it, and this waits below
	d->length = (int32_t)length;
	rc = session_ops(s)->copy(session_self(s), s->m->stream,
				  s->past.range.addr, (uintptr_t)&d->length,
				  sizeof(d->length), GENAI_COPY_H2D, err);
	// as it was: what is in the cache was computed so
	if (!rc)
		rc = session_set_turn(s, s->turned ? UINT64_MAX : 0, err);
	if (!rc)
		rc = session_ops(s)->mark(session_self(s), s->m->stream, at,
					  err);
	if (!rc)
		rc = session_host_read(s, at, err);
	if (rc)
		return rc;
	s->numbered = true;
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
		rc = session_bind_joined(s, n, err);
	if (!rc)
		rc = genai_runtime_submit(m->rt, s->plan, m->stream, err);
	if (!rc && !m->all_logits) {
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
	s->place = !s->place;
	s->length += n;
	return 0;
}

int32_t session_append_chunk(struct genai_session *s, const int64_t *ids,
			     uint64_t n, struct genai_error *err)
{
	uint32_t turn = s->stage_turn++ % 2;
	int64_t *stage = (int64_t *)s->stage.host + turn * s->m->chunk;
	int32_t rc = session_host_read(s, &s->stage_at[turn], err);

	if (rc)
		return rc;
	memcpy(stage, ids, n * sizeof(*ids));
	rc = session_ops(s)->copy(session_self(s), s->m->stream,
				  s->ids.range.addr, (uintptr_t)stage,
				  n * sizeof(*ids), GENAI_COPY_H2D, err);
	if (!rc)
		rc = session_ops(s)->mark(session_self(s), s->m->stream,
					  &s->stage_at[turn], err);
	if (!rc)
		rc = session_submit(s, n, err);
	return rc;
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

// ---- results ----

float session_widen(uint32_t dtype, const void *p, uint64_t i)
{
	if (dtype == GENAI_DT_F32)
		return ((const float *)p)[i];
	if (dtype == GENAI_DT_F16)
		return genai_float_from_half(((const uint16_t *)p)[i]);
	return genai_float_from_bf16(((const uint16_t *)p)[i]);
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
	best = session_widen(s->m->step.logits_dtype, &d->best, 0);
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
