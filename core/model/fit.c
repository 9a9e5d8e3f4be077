// fit.c - when memory does not suffice: which context would fit.
//
// Only tried once something has failed.  A context decides the caches and,
// through the longest chunk, the plan; so plans are made and dropped again.
#include "core/model/fit.h"

#include <inttypes.h>

#include "core/base/error.h"
#include "core/model/session.h"

uint64_t genai_fit_session_bytes(const struct genai_model *m)
{
	uint64_t rows = genai_model_rows(m), row = session_logit_bytes(m);

	return genai_states_bytes(&m->step.states, m->context) +
	       2 * m->chunk * sizeof(int64_t) + SESSION_WORD_BYTES +
	       rows * (2 * sizeof(int64_t) + row) + rows * m->vocab * row;
}

static uint64_t room(struct genai_model *m)
{
	struct genai_device *d = &m->rt->device;
	struct genai_stream_caps caps = {.size = sizeof(caps)};

	if (d->stream.ops->caps(d->stream.self, &caps, NULL))
		return 0;
	if (d->limit == UINT64_MAX)
		return caps.free_bytes;
	return d->limit > d->used ? d->limit - d->used : 0;
}

static bool fits(struct genai_model *m)
{
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	struct genai_plan *plan = NULL;
	bool ok;

	if (genai_model_plan(m, &plan, NULL))
		return false;
	ok = genai_fit_session_bytes(m) <= room(m);
	if (genai_device_drain(&m->rt->device, &ticket, NULL) ||
	    m->rt->exec.plan_destroy(plan, &ticket, NULL))
		return false;
	return ok;
}

// The largest context with which a session could be opened; 0: none.
static uint64_t largest(struct genai_model *m)
{
	const uint64_t context = m->context, chunk = m->chunk;
	uint64_t low = 0, high = context;

	while (high - low > 1) {
		m->context = low + (high - low) / 2;
		m->chunk = chunk < m->context ? chunk : m->context;
		if (fits(m))
			low = m->context;
		else
			high = m->context;
	}
	m->context = context;
	m->chunk = chunk;
	return low;
}

void genai_fit_advise(struct genai_model *m, struct genai_error *err)
{
	const struct genai_error why = *err;
	uint64_t most = largest(m);

	if (most)
		genai_fail(err, why.code,
			   "%s; set [runtime] context to %" PRIu64
			   " or less instead of %" PRIu64
			   ", or raise device_limit",
			   why.text, most, m->context);
	else
		genai_fail(err, why.code,
			   "%s; no context would fit: raise device_limit",
			   why.text);
}
