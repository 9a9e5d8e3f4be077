// session_state.c - taking a sequence back.
//
// Of a cache the length is enough.  A state that is replaced was written over:
// there is a copy of what it was when tokens were last appended, and at the
// beginning it was zero.  From the later of the two that is not too late, what
// is missing is computed again.
//
// Rotary tables that change with the length change what a cache holds: all of
// it is computed again, with the new ones.
//
// A cache that is joined lies without gaps: the rows that stay are moved
// together.  After a failure nobody knows which steps wrote where: all of it is
// computed again, too.
#include "core/model/session.h"

#include <string.h>

static uint64_t replaced_bytes(const struct genai_session *s)
{
	return s->m->step.states.replaced_bytes;
}

static genai_addr replaced(const struct genai_session *s)
{
	return s->states.range.addr +
	       genai_states_replaced_at(&s->m->step.states, s->m->context);
}

static genai_addr copy_of_replaced(const struct genai_session *s)
{
	return s->states.range.addr +
	       genai_states_copy_at(&s->m->step.states, s->m->context);
}

static int32_t finish(struct genai_session *s, struct genai_error *err)
{
	struct genai_point p;
	int32_t rc =
		session_ops(s)->mark(session_self(s), s->m->stream, &p, err);

	return rc ? rc : session_host_read(s, &p, err);
}

// Zeros, by way of the logits' pinned memory.
static int32_t clear(struct genai_session *s, struct genai_error *err)
{
	uint64_t all = replaced_bytes(s), room = s->host_logits.range.bytes;
	int32_t rc = 0;

	memset(s->host_logits.host, 0, room < all ? room : all);
	for (uint64_t at = 0; !rc && at < all; at += room)
		rc = session_ops(s)->copy(
			session_self(s), s->m->stream, replaced(s) + at,
			(uintptr_t)s->host_logits.host,
			all - at < room ? all - at : room, GENAI_COPY_H2D, err);
	return rc;
}

int32_t session_keep(struct genai_session *s, const int64_t *ids, size_t count,
		     struct genai_error *err)
{
	int32_t rc;

	if (s->known)
		memcpy(s->known + s->length, ids, count * sizeof(*ids));
	if (!replaced_bytes(s))
		return 0;
	s->kept = SESSION_NOT_KEPT;
	rc = session_ops(s)->copy(session_self(s), s->m->stream,
				  copy_of_replaced(s), replaced(s),
				  replaced_bytes(s), GENAI_COPY_D2D, err);
	// only what is known to be there can be gone back to
	if (!rc)
		rc = finish(s, err);
	if (!rc)
		s->kept = s->length;
	return rc;
}

void session_note(struct genai_session *s, int64_t id)
{
	uint64_t at = session_certain(s);

	if (s->known && at < s->m->context)
		s->known[at] = id;
}

static int32_t compute_again(struct genai_session *s, uint64_t length,
			     struct genai_error *err)
{
	int32_t rc = 0;

	while (!rc && s->length < length) {
		uint64_t n = length - s->length;

		if (n > s->m->chunk)
			n = s->m->chunk;
		rc = session_append_chunk(s, s->known + s->length, n, err);
	}
	if (!rc)
		rc = session_host_read(s, session_last_door(s), err);
	s->handed = s->computed;
	s->rows = 0;
	return rc;
}

// All of it, with the tables of a sequence of so many positions.
static int32_t from_the_beginning(struct genai_session *s, uint64_t tables,
				  uint64_t length, struct genai_error *err)
{
	int32_t rc;

	s->stale = true;
	rc = session_set_turn(s, tables, err);
	if (!rc && replaced_bytes(s))
		rc = clear(s, err);
	if (!rc)
		rc = session_set_past(s, 0, err);
	if (!rc && length)
		rc = compute_again(s, length, err);
	s->stale = rc != 0;
	return rc;
}

// Rows [0, length) of every head, to the other place.
static int32_t move_rows(struct genai_session *s, uint32_t i, uint64_t length,
			 struct genai_error *err)
{
	const struct genai_states *states = &s->m->step.states;
	const struct genai_state *v = &states->v[i];
	uint64_t heads = (uint64_t)v->dims[1], row = v->bytes / heads;
	genai_addr from = s->states.range.addr +
			  genai_states_at(states, i, s->place, s->m->context);
	genai_addr to = s->states.range.addr +
			genai_states_at(states, i, !s->place, s->m->context);
	int32_t rc = 0;

	for (uint64_t h = 0; !rc && h < heads; h++)
		rc = session_ops(s)->copy(session_self(s), s->m->stream,
					  to + h * length * row,
					  from + h * s->length * row,
					  length * row, GENAI_COPY_D2D, err);
	return rc;
}

static int32_t join_less(struct genai_session *s, uint64_t length,
			 struct genai_error *err)
{
	const struct genai_states *states = &s->m->step.states;
	int32_t rc = 0;

	if (!length || length == s->length)
		return 0;
	for (uint32_t i = 0; !rc && i < states->n; i++)
		if (states->v[i].kind == GENAI_STATE_JOINED)
			rc = move_rows(s, i, length, err);
	if (!rc)
		s->place = !s->place;
	return rc;
}

int32_t session_go_back(struct genai_session *s, uint64_t length,
			struct genai_error *err)
{
	uint64_t from = !replaced_bytes(s)  ? length
			: s->kept <= length ? s->kept
					    : 0;
	int32_t rc = 0;

	if (s->stale)
		return from_the_beginning(s, length, length, err);
	if (replaced_bytes(s) && from)
		rc = session_ops(s)->copy(session_self(s), s->m->stream,
					  replaced(s), copy_of_replaced(s),
					  replaced_bytes(s), GENAI_COPY_D2D,
					  err);
	else if (replaced_bytes(s))
		rc = clear(s, err);
	if (!rc && s->m->step.states.n_joined)
		rc = join_less(s, from, err);
	if (!rc)
		rc = session_set_past(s, from, err);
	if (!rc && from < length)
		rc = compute_again(s, length, err);
	return rc;
}

bool session_turns(const struct genai_session *s, uint64_t length)
{
	const struct genai_step *step = &s->m->step;

	return step->turn != GENAI_NONE &&
	       s->turned != (length > (uint64_t)step->turn_limit);
}

int32_t session_turn(struct genai_session *s, uint64_t length,
		     struct genai_error *err)
{
	if (!session_turns(s, length))
		return 0;
	if (!s->length || !s->m->step.turns_again)
		return session_set_turn(s, length, err);
	return from_the_beginning(s, length, s->length, err);
}
