// session.c - one sequence: its cache, its steps, its tokens.
//
// The token leaves by its own door: after every step its id and logit are
// copied to one of four pinned slots, and read from there one or two steps
// later, so that reading never races with a step that runs ahead.
#include "core/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"

#define SLOTS 4

struct door { /* pinned host memory of one step */
	int64_t id;
	uint32_t best;	/* the logit's bits, in its own type */
	int32_t length; /* staging for genai.past */
};

struct genai_session {
	struct genai_model *m;
	struct genai_session *next;
	struct genai_plan *plan;
	struct genai_mem ids, past, token, logits, kv; /* device */
	struct genai_mem doors, stage, host_logits;    /* pinned host */
	struct genai_point door_at[SLOTS];
	struct genai_point stage_at[2];
	uint32_t stage_turn;
	uint64_t length;   /* positions of all steps enqueued */
	uint64_t computed; /* steps enqueued */
	uint64_t handed;   /* steps whose token was given out, or is void */
	uint64_t rows;	   /* rows of logits of the last step; 0: void */
	bool lost;	   /* its last step was skipped: another failed */
};

static const struct genai_stream_ops *sops(const struct genai_session *s)
{
	return s->m->rt->device.stream.ops;
}

static void *sself(const struct genai_session *s)
{
	return s->m->rt->device.stream.self;
}

static struct door *door(const struct genai_session *s, uint64_t step)
{
	return (struct door *)s->doors.host + step % SLOTS;
}

static int32_t host_read(struct genai_session *s, const struct genai_point *p,
			 struct genai_error *err)
{
	struct genai_barrier_api *b = &s->m->rt->device.barrier;

	return b->ops->host_read(b->self, p, 1, UINT64_MAX, err);
}

static uint64_t logit_bytes(const struct genai_model *m)
{
	return m->step.logits_dtype == GENAI_DT_F32 ? 4 : 2;
}

static uint64_t max_rows(const struct genai_model *m)
{
	return m->all_logits && !m->step.one_row ? m->chunk : 1;
}

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

static int32_t bind_fixed(struct genai_session *s, struct genai_error *err)
{
	struct genai_model *m = s->m;
	const struct genai_executor_ops *x = &m->rt->exec;
	static const int64_t one[2] = {1, 1};
	uint64_t at = s->kv.range.addr;
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
	for (uint32_t i = 0; !rc && i < m->step.n_layers; i++) {
		const struct genai_step_layer *l = &m->step.layers[i];
		uint64_t bytes = m->context * genai_model_kv_row(l);

		genai_model_kv_view(l, at, m->context, &v);
		rc = x->bind_input(s->plan, l->past_key, &v, err);
		if (!rc)
			rc = x->bind_output(s->plan, l->present_key, &v, err);
		genai_model_kv_view(l, at + bytes, m->context, &v);
		if (!rc)
			rc = x->bind_input(s->plan, l->past_value, &v, err);
		if (!rc)
			rc = x->bind_output(s->plan, l->present_value, &v, err);
		at += 2 * bytes;
	}
	return rc;
}

// ---- steps ----

static int32_t set_past(struct genai_session *s, uint64_t length,
			struct genai_error *err)
{
	struct door *d = door(s, s->computed);
	int32_t rc = 0;

	// the slot's staging word must not be in use by an earlier copy
	rc = host_read(s, &s->door_at[s->computed % SLOTS], err);
	if (rc)
		return rc;
	d->length = (int32_t)length;
	rc = sops(s)->copy(sself(s), s->m->stream, s->past.range.addr,
			   (uintptr_t)&d->length, sizeof(d->length),
			   GENAI_COPY_H2D, err);
	if (!rc)
		rc = sops(s)->mark(sself(s), s->m->stream,
				   &s->door_at[s->computed % SLOTS], err);
	if (!rc)
		rc = host_read(s, &s->door_at[s->computed % SLOTS], err);
	if (rc)
		return rc;
	s->length = length;
	s->rows = 0;
	return 0;
}

// Enqueue the step for the n ids in the device buffer.
static int32_t submit(struct genai_session *s, uint64_t n,
		      struct genai_error *err)
{
	struct genai_model *m = s->m;
	struct door *d = door(s, s->computed);
	uint64_t slot = s->computed % SLOTS;
	int32_t rc = bind_step(s, n, err);

	if (!rc)
		rc = host_read(s, &s->door_at[slot], err);
	if (!rc)
		rc = m->rt->exec.submit(s->plan, m->stream, NULL, 0, NULL, err);
	if (!rc && m->step.next != GENAI_NONE) {
		rc = sops(s)->copy(sself(s), m->stream, (uintptr_t)&d->id,
				   s->ids.range.addr, sizeof(d->id),
				   GENAI_COPY_D2H, err);
		if (!rc)
			rc = sops(s)->copy(sself(s), m->stream,
					   (uintptr_t)&d->best,
					   s->token.range.addr, logit_bytes(m),
					   GENAI_COPY_D2H, err);
	}
	if (!rc)
		rc = sops(s)->mark(sself(s), m->stream, &s->door_at[slot], err);
	if (rc)
		return rc;
	s->computed++;
	s->length += n;
	return 0;
}

// Positions that are certain: those whose token was read.
static uint64_t certain(const struct genai_session *s)
{
	return s->length - (s->computed - s->handed);
}

static struct genai_point *last_door(struct genai_session *s)
{
	return &s->door_at[(s->computed - 1) % SLOTS];
}

static int32_t restart(struct genai_session *s, uint64_t length,
		       struct genai_error *err)
{
	memset(s->door_at, 0, sizeof(s->door_at));
	memset(s->stage_at, 0, sizeof(s->stage_at));
	s->handed = s->computed;
	s->lost = false;
	return set_past(s, length, err);
}

// After a failure: everything quiet, poison cleared, the ring forgotten, the
// sequence back at length.  Steps that other sessions had enqueued behind the
// failed one were skipped: those sessions lose them too.
static void recover(struct genai_session *s, uint64_t length)
{
	struct genai_model *m = s->m;
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc = genai_device_drain(&m->rt->device, &ticket, &err);

	for (struct genai_session *o = m->sessions; !rc && o; o = o->next)
		o->lost = o != s && o->handed != o->computed &&
			  sops(s)->poll(sself(s), *last_door(o), NULL);
	if (!rc)
		rc = sops(s)->reset(sself(s), &ticket, &err);
	if (!rc)
		rc = m->paging.api.ops->reset(m->paging.api.pager, &ticket,
					      &err);
	for (struct genai_session *o = m->sessions; !rc && o; o = o->next)
		if (o->lost)
			rc = restart(o, certain(o), &err);
	if (!rc)
		rc = restart(s, length, &err);
	if (rc) {
		s->length = s->rows = 0;
		genai_log_line(&m->rt->log, GENAI_LOG_ERROR,
			       "the device could not be reset: %s", err.text);
	}
}

static int32_t check_ids(struct genai_session *s, const int64_t *ids,
			 size_t count, struct genai_error *err)
{
	struct genai_model *m = s->m;

	int32_t rc = genai_device_forked(&m->rt->device, err);

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

static int32_t append_chunk(struct genai_session *s, const int64_t *ids,
			    uint64_t n, struct genai_error *err)
{
	uint32_t turn = s->stage_turn++ % 2;
	int64_t *stage = (int64_t *)s->stage.host + turn * s->m->chunk;
	int32_t rc = host_read(s, &s->stage_at[turn], err);

	if (rc)
		return rc;
	memcpy(stage, ids, n * sizeof(*ids));
	rc = sops(s)->copy(sself(s), s->m->stream, s->ids.range.addr,
			   (uintptr_t)stage, n * sizeof(*ids), GENAI_COPY_H2D,
			   err);
	if (!rc)
		rc = sops(s)->mark(sself(s), s->m->stream, &s->stage_at[turn],
				   err);
	if (!rc)
		rc = submit(s, n, err);
	return rc;
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
		rc = host_read(s, last_door(s), err);
	if (rc) {
		recover(s, certain(s));
		return rc;
	}
	before = s->length;
	while (!rc && done < count) {
		uint64_t n =
			count - done < s->m->chunk ? count - done : s->m->chunk;

		rc = append_chunk(s, ids + done, n, err);
		done += n;
	}
	if (!rc)
		rc = host_read(s, last_door(s), err);
	if (!rc)
		rc = genai_onnx_check(s->m->onnx, err);
	if (rc) {
		recover(s, before);
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
	uint64_t sure;
	int32_t rc;

	if (length > s->length)
		return genai_fail(err, GENAI_E_INVAL,
				  "cannot rewind to %" PRIu64
				  " positions: there are %" PRIu64,
				  length, s->length);
	sure = certain(s) < length ? certain(s) : length;
	s->handed = s->computed;
	rc = set_past(s, length, err);
	if (rc)
		recover(s, sure);
	return rc;
}

// ---- logits ----

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
	uint64_t row = (uint64_t)m->vocab * logit_bytes(m);
	uint64_t rows = s->rows < cap_rows ? s->rows : cap_rows;
	struct genai_point p;
	int32_t rc;

	if (!s->rows)
		return genai_fail(err, GENAI_E_STATE,
				  "there are no logits: nothing was appended "
				  "since the session was opened or rewound");
	rc = sops(s)->copy(sself(s), m->stream, (uintptr_t)s->host_logits.host,
			   s->logits.range.addr + (s->rows - rows) * row,
			   rows * row, GENAI_COPY_D2H, err);
	if (!rc)
		rc = sops(s)->mark(sself(s), m->stream, &p, err);
	if (!rc)
		rc = host_read(s, &p, err);
	if (!rc)
		rc = genai_onnx_check(m->onnx, err);
	if (rc) {
		recover(s, certain(s));
		return rc;
	}
	for (uint64_t i = 0; i < rows * m->vocab; i++)
		out[i] = widen(m->step.logits_dtype, s->host_logits.host, i);
	*out_rows = rows;
	return 0;
}

// ---- greedy ----

static int32_t read_token(struct genai_session *s, int64_t *out_id,
			  struct genai_error *err)
{
	const struct door *d = door(s, s->handed);
	int32_t rc = host_read(s, &s->door_at[s->handed % SLOTS], err);
	float best;

	if (!rc)
		rc = genai_onnx_check(s->m->onnx, err);
	if (rc)
		return rc;
	best = widen(s->m->step.logits_dtype, &d->best, 0);
	if (isnan(best))
		return genai_fail(err, GENAI_E_DEVICE,
				  "the model produced NaN at position %" PRIu64,
				  certain(s));
	if (isinf(best) && best < 0)
		return genai_fail(err, GENAI_E_DEVICE,
				  "every logit is -inf at position %" PRIu64,
				  certain(s));
	*out_id = d->id;
	return 0;
}

int32_t genai_session_next(struct genai_session *s, int32_t ahead,
			   int64_t *out_id, struct genai_error *err)
{
	struct genai_model *m = s->m;
	int32_t rc = genai_device_forked(&m->rt->device, err);

	if (rc)
		return rc;
	if (m->step.next == GENAI_NONE)
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
		rc = submit(s, 1, err);
	}
	if (!rc && ahead && s->computed - s->handed == 1 &&
	    s->length < m->context)
		rc = submit(s, 1, err);
	if (!rc)
		rc = read_token(s, out_id, err);
	if (rc) {
		recover(s, certain(s));
		return rc;
	}
	s->handed++;
	return 0;
}

// ---- life ----

static int32_t alloc(struct genai_session *s, uint32_t kind, uint64_t bytes,
		     const char *tag, struct genai_mem *out,
		     struct genai_error *err)
{
	return sops(s)->alloc(sself(s), kind, bytes, tag, out, err);
}

static int32_t kv_alloc(struct genai_session *s, struct genai_error *err)
{
	struct genai_model *m = s->m;
	struct genai_error why = GENAI_ERROR_INIT;
	uint64_t bytes = m->context * m->kv_row_bytes;
	int32_t rc;

	if (!bytes)
		return 0;
	rc = alloc(s, GENAI_MEM_DEVICE, bytes, GENAI_TAG_KV, &s->kv, &why);
	if (rc == GENAI_E_LIMIT)
		return genai_fail(err, rc,
				  "the key/value cache for %" PRIu64
				  " positions needs %" PRIu64 " bytes (%" PRIu64
				  " each): %s; set [runtime] context lower or "
				  "device_limit higher",
				  m->context, bytes, m->kv_row_bytes, why.text);
	if (rc && err)
		*err = why;
	return rc;
}

static int32_t take_memory(struct genai_session *s, struct genai_error *err)
{
	struct genai_model *m = s->m;
	uint64_t logits = max_rows(m) * m->vocab * logit_bytes(m);
	int32_t rc = kv_alloc(s, err);

	if (!rc)
		rc = alloc(s, GENAI_MEM_DEVICE, m->chunk * sizeof(int64_t),
			   GENAI_TAG_ACTIVATIONS, &s->ids, err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_DEVICE, 256, GENAI_TAG_ACTIVATIONS,
			   &s->past, err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_DEVICE, 256, GENAI_TAG_ACTIVATIONS,
			   &s->token, err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_DEVICE, logits, GENAI_TAG_ACTIVATIONS,
			   &s->logits, err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_HOST_PINNED,
			   SLOTS * sizeof(struct door), GENAI_TAG_STAGING,
			   &s->doors, err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_HOST_PINNED,
			   2 * m->chunk * sizeof(int64_t), GENAI_TAG_STAGING,
			   &s->stage, err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_HOST_PINNED, logits, GENAI_TAG_STAGING,
			   &s->host_logits, err);
	return rc;
}

int32_t genai_session_open(struct genai_model *m, struct genai_session **out_s,
			   struct genai_error *err)
{
	int32_t rc = genai_device_forked(&m->rt->device, err);
	struct genai_session *s;

	if (rc)
		return rc;
	s = calloc(1, sizeof(*s));
	if (!s)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	s->m = m;
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
		rc = bind_fixed(s, err);
	if (!rc)
		rc = set_past(s, 0, err);
	if (rc)
		genai_session_close(s);
	else
		*out_s = s;
	return rc;
}

static void give(struct genai_session *s, struct genai_mem *mem,
		 const struct genai_ticket *ticket, int32_t *rc,
		 struct genai_error *err)
{
	int32_t r = 0;

	if (mem->range.bytes)
		r = sops(s)->free(sself(s), mem->range.addr, ticket,
				  *rc ? NULL : err);
	if (!*rc)
		*rc = r;
}

static void add_stats(struct genai_exec_stats *sum,
		      const struct genai_exec_stats *x)
{
	sum->captures += x->captures;
	sum->replays += x->replays;
	sum->steps += x->steps;
	for (uint32_t i = 0; i < x->n_fallbacks && i < 8; i++) {
		uint32_t k = 0;

		while (k < sum->n_fallbacks &&
		       strcmp(sum->fallbacks[k].reason, x->fallbacks[i].reason))
			k++;
		if (k == 8)
			continue;
		if (k == sum->n_fallbacks) {
			sum->fallbacks[k] = x->fallbacks[i];
			sum->n_fallbacks++;
		} else {
			sum->fallbacks[k].count += x->fallbacks[i].count;
		}
	}
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
	rc = genai_device_drain(&m->rt->device, &ticket, &err);
	if (!rc && s->plan) {
		if (!m->rt->exec.stats(s->plan, &st, NULL))
			add_stats(&m->closed, &st);
		rc = m->rt->exec.plan_destroy(s->plan, &ticket, &err);
		if (s->plan == m->plan)
			m->plan = NULL;
	}
	give(s, &s->kv, &ticket, &rc, &err);
	give(s, &s->ids, &ticket, &rc, &err);
	give(s, &s->past, &ticket, &rc, &err);
	give(s, &s->token, &ticket, &rc, &err);
	give(s, &s->logits, &ticket, &rc, &err);
	give(s, &s->doors, &ticket, &rc, &err);
	give(s, &s->stage, &ticket, &rc, &err);
	give(s, &s->host_logits, &ticket, &rc, &err);
	if (rc)
		genai_log_line(&m->rt->log, GENAI_LOG_ERROR,
			       "closing a session: %s", err.text);
	for (p = &m->sessions; *p && *p != s; p = &(*p)->next)
		;
	if (*p)
		*p = s->next;
	m->n_sessions--;
	free(s);
}

// ---- statistics ----

static uint64_t host_peak(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	uint64_t kib = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %" SCNu64, &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib * 1024;
}

int32_t genai_model_get_stats(struct genai_model *m, struct genai_stats *out,
			      struct genai_error *err)
{
	struct genai_device *d = &m->rt->device;
	const struct genai_pager_report *r = &m->paging.report;
	struct genai_stream_stats ss = {.size = sizeof(ss)};
	struct genai_exec_stats sum = m->closed;
	struct genai_stats st = {.size = sizeof(st)};
	int32_t rc = d->stream.ops->stats(d->stream.self, &ss, err);

	if (rc)
		return rc;
	for (struct genai_session *s = m->sessions; s; s = s->next) {
		struct genai_exec_stats x = {.size = sizeof(x)};

		rc = m->rt->exec.stats(s->plan, &x, err);
		if (rc)
			return rc;
		add_stats(&sum, &x);
	}
	memcpy(st.executor, m->rt->executor.label, sizeof(st.executor));
	memcpy(st.stream, m->rt->stream.label, sizeof(st.stream));
	memcpy(st.barrier, m->rt->barrier.label, sizeof(st.barrier));
	memcpy(st.pager, m->rt->pager.label, sizeof(st.pager));
	st.host_peak_bytes = host_peak();
	st.host_pinned_bytes = d->pinned;
	st.device_limit_bytes = d->limit == UINT64_MAX ? 0 : d->limit;
	st.weight_budget_bytes = m->paging.budget >= UINT64_MAX - 1
					 ? r->total_bytes
					 : m->paging.budget;
	st.device_peak_bytes = d->peak;
	st.weights_bytes = m->paging.weights_bytes;
	st.pinned_bytes = r->pinned_bytes;
	st.ring_bytes = r->ring_bytes;
	st.in_place_bytes = r->in_place_bytes;
	st.streamed_bytes_per_token = r->streamed_bytes;
	st.h2d_bytes = ss.h2d_bytes;
	st.captures = sum.captures;
	st.replays = sum.replays;
	st.simulated_ns = ss.simulated_ns;
	st.n_fallbacks = sum.n_fallbacks;
	for (uint32_t i = 0; i < sum.n_fallbacks; i++) {
		memcpy(st.fallbacks[i].reason, sum.fallbacks[i].reason,
		       sizeof(st.fallbacks[i].reason));
		st.fallbacks[i].count = sum.fallbacks[i].count;
	}
	st.load_s = m->load_s;
	*out = st;
	return 0;
}
