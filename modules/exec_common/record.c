// record.c - a step that is repeated, recorded once and replayed.
#include "exec.h"

#include <stdio.h>
#include <string.h>

#define S(p) ((p)->stream->ops)
#define SELF(p) ((p)->stream->self)

// Why a step ran eagerly though recording was wanted.
enum reason { POSSIBLE, NO_RECORD, NOT_STABLE, TOO_MANY, FAILED };

static void fall_back(struct exec_plan *p, enum reason why)
{
	static const char *const text[] = {
		[NO_RECORD] = "the stream runtime does not record",
		[NOT_STABLE] = "the pager moves weights",
		[TOO_MANY] = "too many sets of addresses",
		[FAILED] = "the recording failed",
	};
	struct genai_exec_stats *st = &p->stats;
	uint32_t i = 0;

	while (i < st->n_fallbacks &&
	       strcmp(st->fallbacks[i].reason, text[why]))
		i++;
	if (i == st->n_fallbacks) {
		snprintf(st->fallbacks[i].reason,
			 sizeof(st->fallbacks[i].reason), "%s", text[why]);
		st->n_fallbacks++;
	}
	st->fallbacks[i].count++;
}

static int32_t broke_off(struct exec_step *s, int32_t rc)
{
	if (s->plan->m->broke_off)
		s->plan->m->broke_off(s->plan, rc, s->err);
	return rc;
}

// Order the stream after copies that the pager made for this step.
static int32_t replay_begin(struct exec_step *s)
{
	struct exec_plan *p = s->plan;

	return p->n_visits ? p->pager->ops->replay_begin(p->pager->pager,
							 s->stream, s->err)
			   : 0;
}

int32_t exec_run_eager(struct exec_step *s)
{
	struct genai_point tail;
	int32_t rc = exec_run(s, false, &tail);

	if (rc)
		return broke_off(s, rc);
	s->variant->steps++;
	return 0;
}

// ---- recordings ----

static enum reason can_record(const struct exec_plan *p)
{
	struct genai_stream_caps sc = {.size = sizeof(sc)};
	struct genai_pager_caps pc = {.size = sizeof(pc)};

	if (S(p)->caps(SELF(p), &sc, NULL) ||
	    !(sc.flags & GENAI_STREAM_CAP_RECORD))
		return NO_RECORD;
	if (p->n_visits && (p->pager->ops->caps(p->pager->self, &pc, NULL) ||
			    !(pc.flags & GENAI_PAGER_CAP_STABLE)))
		return NOT_STABLE;
	return p->n_recorded == EXEC_RECORDINGS ? TOO_MANY : POSSIBLE;
}

static bool names_bound(const struct exec_plan *p, const genai_addr *bound)
{
	for (uint32_t i = 0; i < p->graph->n_inputs; i++)
		if (*bound++ != p->inputs[i].addr)
			return false;
	for (uint32_t i = 0; i < p->graph->n_outputs; i++)
		if (*bound++ != p->outputs[i].addr)
			return false;
	return true;
}

// The recording of these shapes, on this stream, for the very addresses that
// are bound; NULL if there is none.
static struct exec_recording *find_recording(struct exec_step *s)
{
	struct exec_plan *p = s->plan;

	for (uint32_t i = 0; i < p->n_recorded; i++) {
		struct exec_recording *r = &p->recorded[i];

		if (r->variant != s->variant || r->stream != s->stream ||
		    (r->generation != p->generation &&
		     !names_bound(p, r->bound)))
			continue;
		r->generation = p->generation;
		return r;
	}
	return NULL;
}

static int32_t keep(struct exec_step *s, genai_addr *bound,
		    struct genai_recording *recording)
{
	struct exec_plan *p = s->plan;
	struct exec_recording *r = &p->recorded[p->n_recorded++];

	*r = (struct exec_recording){recording, s->variant, s->stream, bound,
				     p->generation};
	for (uint32_t i = 0; i < p->graph->n_inputs; i++)
		*bound++ = p->inputs[i].addr;
	for (uint32_t i = 0; i < p->graph->n_outputs; i++)
		*bound++ = p->outputs[i].addr;
	s->variant->n_recorded++;
	p->stats.captures++;
	return 0;
}

// *out_begun: a failure is one of the step itself.
static int32_t record(struct exec_step *s, genai_addr *bound, bool *out_begun)
{
	struct exec_plan *p = s->plan;
	struct genai_recording *recording = NULL;
	struct genai_point tail;
	int32_t rc = replay_begin(s); // R2

	*out_begun = false;
	if (!rc)
		rc = S(p)->capture_begin(SELF(p), s->stream, s->err);
	if (rc)
		return rc;
	*out_begun = true;
	rc = exec_run(s, true, &tail);
	if (!rc && tail.stream)
		rc = S(p)->wait(SELF(p), s->stream, tail, s->err);
	if (rc) {
		(void)S(p)->capture_abort(SELF(p), s->stream, NULL);
		return broke_off(s, rc);
	}
	rc = S(p)->capture_end(SELF(p), s->stream, &recording, s->err);
	*out_begun = rc == GENAI_E_STATE; // our mistake, or the pager's
	return rc ? rc : keep(s, bound, recording);
}

// *out_r NULL: the step has to run eagerly, and was counted.
static int32_t try_to_record(struct exec_step *s, struct exec_recording **out_r)
{
	struct exec_plan *p = s->plan;
	uint64_t n = (uint64_t)p->graph->n_inputs + p->graph->n_outputs;
	enum reason why = can_record(p);
	genai_addr *bound;
	bool begun;
	int32_t rc;

	*out_r = NULL;
	if (why == POSSIBLE) {
		bound = exec_zalloc(p->host, n * sizeof(*bound));
		if (!bound)
			return EXEC_FAIL(p, s->err, GENAI_E_NOMEM,
					 "no memory for a recording");
		rc = record(s, bound, &begun);
		if (!rc) {
			*out_r = &p->recorded[p->n_recorded - 1];
			return 0;
		}
		p->host->free(p->host->ctx, bound);
		if (begun || (p->m->check && p->m->check(p, NULL)))
			return rc;
		why = FAILED;
	}
	fall_back(p, why);
	return 0;
}

int32_t exec_run_captured(struct exec_step *s)
{
	struct exec_plan *p = s->plan;
	struct exec_recording *r;
	int32_t rc = 0;

	if (!s->variant->steps || !s->variant->repeats)
		return exec_run_eager(s);
	r = find_recording(s);
	if (!r)
		rc = try_to_record(s, &r);
	if (rc)
		return rc;
	if (!r)
		return exec_run_eager(s);
	rc = replay_begin(s); // R2
	if (!rc)
		rc = S(p)->launch_graph(SELF(p), r->recording, s->stream,
					s->err);
	p->stats.replays += !rc;
	return rc;
}
