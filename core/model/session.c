// session.c - one sequence: its life, its tokens.
#include "core/model/session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/model/fit.h"
#include "core/model/model_stats.h"

// ---- tokens ----

static int32_t check_ids(struct genai_session *s, const int64_t *ids,
			 size_t count, struct genai_error *err)
{
	struct genai_model *m = s->m;

	int32_t rc = session_mend(s, err);

	if (rc)
		return rc;
	if (!count)
		return genai_fail(err, GENAI_E_INVAL,
				  "there are no tokens to append");
	for (size_t i = 0; i < count; i++)
		if (ids[i] < 0 || ids[i] >= m->vocab)
			return genai_fail(err, GENAI_E_INVAL,
					  "token %zu is %" PRId64
					  ": ids are 0 to %u",
					  i, ids[i], m->vocab - 1);
	if (count > m->context - s->length)
		return genai_fail(
			err, GENAI_E_LIMIT,
			"%" PRIu64 " positions are more than the context of "
			"%" PRIu64 " (%" PRIu64 " before, %zu appended)",
			s->length + count, m->context, s->length, count);
	return 0;
}

int32_t genai_session_append(struct genai_session *s, const int64_t *ids,
			     size_t count, struct genai_error *err)
{
	uint64_t before, done = 0;
	int32_t rc = check_ids(s, ids, count, err);

	if (rc)
		return rc;
	// a step that ran ahead is a part of what came before, if it went well
	if (s->handed != s->computed)
		rc = session_host_read(s, session_last_door(s), err);
	if (rc) {
		session_recover(s, session_certain(s));
		return rc;
	}
	before = s->length;
	rc = session_turn(s, before + count, err);
	if (!rc)
		rc = session_keep(s, ids, count, err);
	while (!rc && done < count) {
		uint64_t n =
			count - done < s->m->chunk ? count - done : s->m->chunk;

		rc = session_append_chunk(s, ids + done, n, err);
		done += n;
	}
	if (!rc)
		rc = session_host_read(s, session_last_door(s), err);
	if (!rc)
		rc = genai_onnx_check(s->m->onnx, err);
	if (rc) {
		session_recover(s, before);
		return rc;
	}
	s->handed = s->computed - 1;
	return 0;
}

uint64_t genai_session_length(const struct genai_session *s)
{
	return s->length;
}

int32_t genai_session_rewind(struct genai_session *s, uint64_t length,
			     struct genai_error *err)
{
	int32_t rc = session_mend(s, err);
	uint64_t sure;

	if (rc)
		return rc;
	if (length > s->length)
		return genai_fail(err, GENAI_E_INVAL,
				  "cannot rewind to %" PRIu64
				  " positions: there are %" PRIu64,
				  length, s->length);
	sure = session_certain(s) < length ? session_certain(s) : length;
	s->handed = s->computed;
	rc = session_go_back(s, length, err);
	if (rc)
		session_recover(s, sure);
	return rc;
}

// One step more, for the token that was handed out last.
static int32_t step_once(struct genai_session *s, struct genai_error *err)
{
	uint64_t before = s->computed;
	int32_t rc = session_turn(s, s->length + 1, err);

	if (rc)
		return rc;
	if (s->computed == before)
		return session_submit(s, 1, err);
	// what was computed again has left another token on the device
	rc = session_append_chunk(s, s->known + s->length, 1, err);
	s->handed = s->computed - 1;
	return rc;
}

int32_t genai_session_next(struct genai_session *s, int32_t ahead,
			   int64_t *out_id, struct genai_error *err)
{
	struct genai_model *m = s->m;
	int32_t rc = session_mend(s, err);

	if (rc)
		return rc;
	if (m->all_logits)
		return genai_fail(err, GENAI_E_STATE,
				  "the model was opened for all logits");
	if (!s->rows)
		return genai_fail(err, GENAI_E_STATE,
				  "there is nothing to continue: append tokens "
				  "first");
	if (s->handed == s->computed) {
		if (s->length >= m->context)
			return genai_fail(err, GENAI_E_LIMIT,
					  "the context of %" PRIu64
					  " positions is full",
					  m->context);
		rc = step_once(s, err);
	}
	// what is replaced or joined is not taken back by its length
	if (!rc && ahead && !m->step.states.replaced_bytes &&
	    !m->step.states.n_joined && !session_turns(s, s->length + 1) &&
	    s->computed - s->handed == 1 &&
	    s->length < m->context)
		rc = session_submit(s, 1, err);
	if (!rc)
		rc = session_read_token(s, out_id, err);
	if (rc) {
		session_recover(s, session_certain(s));
		return rc;
	}
	s->handed++;
	session_note(s, *out_id);
	return 0;
}

// ---- logits ----

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
		out[i] = session_widen(m->step.logits_dtype,
				       s->host_logits.host, i);
	*out_rows = rows;
	return 0;
}

// ---- life ----

static int32_t alloc(struct genai_session *s, uint32_t kind, uint64_t bytes,
		     const char *tag, struct genai_mem *out,
		     struct genai_error *err)
{
	return session_ops(s)->alloc(session_self(s), kind, bytes, tag, out,
				     err);
}

static int32_t states_alloc(struct genai_session *s, struct genai_error *err)
{
	struct genai_model *m = s->m;
	struct genai_error why = GENAI_ERROR_INIT;
	uint64_t bytes = genai_states_bytes(&m->step.states, m->context);
	int32_t rc;

	if (!bytes)
		return 0;
	rc = alloc(s, GENAI_MEM_DEVICE, bytes, GENAI_TAG_KV, &s->states, &why);
	if (rc == GENAI_E_LIMIT)
		return genai_fail(err, rc,
				  "the key/value cache for %" PRIu64
				  " positions needs %" PRIu64 " bytes (%" PRIu64
				  " each): %s",
				  m->context, bytes, m->step.states.row_bytes,
				  why.text);
	if (rc && err)
		*err = why;
	return rc;
}

static int32_t take_memory(struct genai_session *s, struct genai_error *err)
{
	struct genai_model *m = s->m;
	uint64_t rows = genai_model_rows(m), row = session_logit_bytes(m);
	uint64_t logits = rows * m->vocab * row;
	int32_t rc = states_alloc(s, err);

	if (!rc && (m->step.states.replaced_bytes || m->step.states.n_joined ||
		    m->step.turns_again)) {
		s->known = calloc(m->context, sizeof(*s->known));
		if (!s->known)
			rc = genai_fail(err, GENAI_E_NOMEM, "no memory");
	}
	if (!rc)
		rc = alloc(s, GENAI_MEM_DEVICE, m->chunk * sizeof(int64_t),
			   GENAI_TAG_ACTIVATIONS, &s->ids, err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_DEVICE, SESSION_WORD_BYTES,
			   GENAI_TAG_ACTIVATIONS, &s->past, err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_DEVICE,
			   (m->chunk + 2) * sizeof(int64_t),
			   GENAI_TAG_ACTIVATIONS, &s->numbers, err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_DEVICE, SESSION_WORD_BYTES,
			   GENAI_TAG_ACTIVATIONS, &s->token, err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_DEVICE, logits, GENAI_TAG_ACTIVATIONS,
			   &s->logits, err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_HOST_PINNED,
			   SLOTS * sizeof(struct door), GENAI_TAG_STAGING,
			   &s->doors, err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_HOST_PINNED,
			   (2 * m->chunk + 2) * sizeof(int64_t),
			   GENAI_TAG_STAGING, &s->stage, err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_HOST_PINNED, logits, GENAI_TAG_STAGING,
			   &s->host_logits, err);
	return rc;
}

// The first length; what is in the way may be another session's failure.
static int32_t begin(struct genai_session *s, struct genai_error *err)
{
	int32_t rc = session_go_back(s, 0, err);

	if (rc)
		session_recover(s, 0);
	if (!rc || s->broken)
		return rc;
	err->code = 0;
	err->text[0] = 0;
	return 0;
}

int32_t genai_session_open(struct genai_model *m, struct genai_session **out_s,
			   struct genai_error *err)
{
	int32_t rc = genai_device_forked(&m->rt->device, err);
	struct genai_error own = GENAI_ERROR_INIT;
	struct genai_session *s;

	if (rc)
		return rc;
	if (m->paging.dry)
		return genai_fail(err, GENAI_E_STATE,
				  "the model was opened to be asked what it "
				  "takes: its weights are nowhere");
	if (!err)
		err = &own;
	s = calloc(1, sizeof(*s));
	if (!s)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	s->m = m;
	s->kept = SESSION_NOT_KEPT;
	session_enter(s);
	s->next = m->sessions;
	m->sessions = s;
	m->n_sessions++;
	if (!m->plan_taken) {
		s->plan = m->plan;
		m->plan_taken = true;
	} else {
		rc = genai_model_plan(m, &s->plan, err);
		if (!rc)
			rc = genai_paging_share(&m->paging, s->plan, err);
	}
	if (!rc)
		rc = take_memory(s, err);
	if (!rc)
		rc = session_bind(s, err);
	if (!rc)
		rc = begin(s, err);
	if (!rc) {
		*out_s = s;
		return 0;
	}
	genai_session_close(s);
	if (rc == GENAI_E_LIMIT)
		genai_fit_advise(m, err);
	return rc;
}

static void give(struct genai_session *s, struct genai_mem *mem,
		 const struct genai_ticket *ticket, int32_t *rc,
		 struct genai_error *err)
{
	int32_t r = 0;

	if (mem->range.bytes)
		r = session_ops(s)->free(session_self(s), mem->range.addr,
					 ticket, *rc ? NULL : err);
	if (!*rc)
		*rc = r;
}

void genai_session_close(struct genai_session *s)
{
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_exec_stats st = {.size = sizeof(st)};
	struct genai_session **p;
	struct genai_model *m;
	int32_t rc;

	if (!s)
		return;
	m = s->m;
	session_leave(s);
	rc = genai_device_drain(&m->rt->device, &ticket, &err);
	if (!rc && s->plan) {
		if (!m->rt->exec.stats(s->plan, &st, NULL))
			genai_model_add_stats(&m->closed, &st);
		rc = m->rt->exec.plan_destroy(s->plan, &ticket, &err);
		if (s->plan == m->plan)
			m->plan = NULL;
	}
	give(s, &s->states, &ticket, &rc, &err);
	give(s, &s->ids, &ticket, &rc, &err);
	give(s, &s->past, &ticket, &rc, &err);
	give(s, &s->numbers, &ticket, &rc, &err);
	give(s, &s->token, &ticket, &rc, &err);
	give(s, &s->logits, &ticket, &rc, &err);
	give(s, &s->doors, &ticket, &rc, &err);
	give(s, &s->stage, &ticket, &rc, &err);
	give(s, &s->host_logits, &ticket, &rc, &err);
	if (rc)
		genai_log_line(&m->rt->log, GENAI_LOG_ERROR,
			       "closing a session: %s", err.text);
	genai_runtime_leave(m->rt, &s->user);
	for (p = &m->sessions; *p && *p != s; p = &(*p)->next)
		;
	if (*p)
		*p = s->next;
	m->n_sessions--;
	free(s->known);
	free(s);
}
