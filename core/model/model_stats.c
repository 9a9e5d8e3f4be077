// model_stats.c - what a model's sessions cost so far.
#include "core/model/model_stats.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/model/session.h"

void genai_model_add_stats(struct genai_exec_stats *sum,
			   const struct genai_exec_stats *x)
{
	sum->captures += x->captures;
	sum->replays += x->replays;
	sum->steps += x->steps;
	for (uint32_t i = 0; i < x->n_fallbacks && i < 8; i++) {
		const size_t room = sizeof(sum->fallbacks[0].reason);
		uint32_t k = 0;

		while (k < sum->n_fallbacks &&
		       strncmp(sum->fallbacks[k].reason, x->fallbacks[i].reason,
			       room - 1))
			k++;
		if (k == 8)
			continue;
		if (k == sum->n_fallbacks) {
			sum->fallbacks[k] = x->fallbacks[i];
			sum->fallbacks[k].reason[room - 1] = 0;
			sum->n_fallbacks++;
		} else {
			sum->fallbacks[k].count += x->fallbacks[i].count;
		}
	}
}

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
	struct genai_pager_stats ps = {.size = sizeof(ps)};
	struct genai_exec_stats sum = m->closed;
	struct genai_stats st = {.size = sizeof(st)};
	int32_t rc;

	if (!GENAI_HAS(out, n_fallbacks))
		return genai_fail(err, GENAI_E_INVAL,
				  "stats of %u bytes: set the size first",
				  out->size);
	rc = genai_device_forked(d, err);
	if (!rc)
		rc = d->stream.ops->stats(d->stream.self, &ss, err);
	if (!rc && m->paging.api.pager && r->expert_bytes)
		rc = m->rt->pager_ops.stats(m->paging.api.pager, &ps, err);
	if (rc)
		return rc;
	for (struct genai_session *s = m->sessions; s; s = s->next) {
		struct genai_exec_stats x = {.size = sizeof(x)};

		rc = m->rt->exec.stats(s->plan, &x, err);
		if (rc)
			return rc;
		genai_model_add_stats(&sum, &x);
	}
	if (m->packing.seqs) { // its steps are nobody's session
		struct genai_exec_stats x = {.size = sizeof(x)};

		rc = m->rt->exec.stats(m->plan, &x, err);
		if (rc)
			return rc;
		genai_model_add_stats(&sum, &x);
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
	st.device_used_bytes = ss.device_used_bytes;
	st.weights_bytes = m->paging.weights_bytes;
	st.pinned_bytes = r->pinned_bytes;
	st.ring_bytes = r->ring_bytes;
	st.in_place_bytes = r->in_place_bytes;
	st.streamed_bytes_per_token = r->streamed_bytes;
	st.beside_bytes_per_token = r->beside_bytes;
	st.expert_bytes = r->expert_bytes;
	st.expert_pinned_bytes = r->expert_pinned_bytes;
	st.expert_hits = ps.expert_hits;
	st.expert_misses = ps.expert_misses;
	st.expert_miss_bytes = ps.expert_miss_bytes;
	st.expert_least_bytes = ps.expert_least_bytes;
	st.expert_exchanges = ps.expert_exchanges;
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
	genai_struct_give(out, &st);
	return 0;
}
