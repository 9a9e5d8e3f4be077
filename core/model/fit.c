// fit.c - what a model takes; and, when memory does not suffice, which context
// would fit.
//
// The latter is only tried once something has failed.  A context decides the
// caches and, through the longest chunk, the plan; so plans are made and
// dropped again.
#include "core/model/fit.h"

#include <inttypes.h>

#include "core/base/error.h"
#include "core/model/session.h"

uint64_t genai_fit_session_bytes(const struct genai_model *m)
{
	uint64_t rows = genai_model_rows(m), row = session_logit_bytes(m);

	return genai_states_bytes(&m->step.states, m->context) +
	       (2 * m->chunk + 2) * sizeof(int64_t) + 2 * SESSION_WORD_BYTES +
	       rows * m->vocab * row;
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

// ---- what it takes ----

// Pagers plan up to the last weight.  Behind it tokens are chosen, and their
// logits found: each reads the rows of logits once more.
static uint64_t choosing_ns(const struct genai_model *m)
{
	const struct genai_stream_caps *c = &m->rt->device.caps;
	uint64_t rows = m->packing.full ? m->packing.seqs : 1;

	if (!c->memory_bytes_per_s)
		return 0;
	rows *= (m->step.next != GENAI_NONE) + (m->step.best != GENAI_NONE);
	return (uint64_t)((double)(rows * m->vocab * session_logit_bytes(m)) *
			  1e9 / (double)c->memory_bytes_per_s);
}

int32_t genai_fit_of(struct genai_model *m, uint64_t session_bytes,
		     struct genai_fit *out, struct genai_error *err)
{
	struct genai_device *d = &m->rt->device;
	const struct genai_packing *k = &m->packing;
	const struct genai_paging *p = &m->paging;
	const struct genai_pager_report *r = &p->report;
	const bool rates = d->caps.flags & GENAI_STREAM_CAP_RATES && r->step_ns;
	const uint64_t choosing = choosing_ns(m),
		       positions = k->seqs ? (uint64_t)k->blocks * k->block
					   : m->context;
	struct genai_fit f = {
		.size = sizeof(f),
		.ring_slots = r->ring_slots,
		.limit_bytes = d->limit == UINT64_MAX ? 0 : d->limit,
		.budget_bytes = p->budget >= UINT64_MAX - 1 ? 0 : p->budget,
		.context = m->context,
		.weights_bytes = p->weights_bytes,
		.pinned_bytes = r->pinned_bytes,
		.ring_bytes = r->ring_bytes,
		.in_place_bytes = r->in_place_bytes,
		.streamed_bytes = r->streamed_bytes,
		.cache_bytes = genai_states_bytes(&m->step.states, positions),
		.plan_bytes = m->plan_bytes,
		.session_bytes = session_bytes,
		.driver_bytes = genai_model_driver_bytes(d),
		.host_bytes = r->host_bytes,
		.step_ns = rates ? r->step_ns + choosing : 0,
		.serial_ns = rates ? r->serial_ns + choosing : 0,
		.resident_ns = rates ? r->resident_ns + choosing : 0,
		.read_bytes = p->read_bytes,
		.read_in_place_bytes = r->read_in_place_bytes,
		.beside_bytes = r->beside_bytes,
		.page_bytes = r->ring_slots ? r->slot_bytes : p->page_bytes,
		.async = !!(m->rt->pager_caps.flags & GENAI_PAGER_CAP_ASYNC),
		.sequences = k->seqs ? k->seqs : 1,
		.chunk = (uint32_t)m->chunk,
		.cache_positions = positions,
		// a token leaves by two copies, which the next step is behind
		.copies = 2,
		.copy_bytes = 2 * sizeof(int64_t),
	};
	int32_t rc = genai_device_forked(d, err);

	if (rc)
		return rc;
	f.least_bytes =
		f.cache_bytes + f.plan_bytes + f.session_bytes + f.driver_bytes;
	f.device_bytes = f.least_bytes + f.pinned_bytes + f.ring_bytes;
	*out = f;
	return 0;
}

int32_t genai_fit_give(struct genai_fit *out, const struct genai_fit *f,
		       struct genai_error *err)
{
	if (!GENAI_HAS(out, size))
		return genai_fail(err, GENAI_E_INVAL,
				  "a fit of %u bytes: set the size first",
				  out->size);
	genai_struct_give(out, f);
	return 0;
}

int32_t genai_model_get_fit(struct genai_model *m, struct genai_fit *out,
			    struct genai_error *err)
{
	uint64_t states = genai_states_bytes(&m->step.states, m->context);
	struct genai_fit f;
	int32_t rc =
		genai_fit_of(m, genai_fit_session_bytes(m) - states, &f, err);

	return rc ? rc : genai_fit_give(out, &f, err);
}
