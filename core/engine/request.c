// request.c - what a request says: checked, copied, queued.
#include "core/engine/engine.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/sampler.h"

#define MAX_CHOICES 128
#define MAX_TOP 20
#define MAX_STOPS 64

// ---- checking ----

static int32_t bad(struct genai_error *err, const char *field, double v,
		   const char *range)
{
	return genai_fail(err, GENAI_E_INVAL, "request: %s is %.9g: %s", field,
			  v, range);
}

static int32_t check_numbers(const struct genai_request *r,
			     struct genai_error *err)
{
	const uint32_t known =
		GENAI_REQUEST_ECHO | GENAI_REQUEST_IGNORE_EOS |
		GENAI_REQUEST_KEEP_SPECIAL | GENAI_REQUEST_LOGPROBS |
		GENAI_REQUEST_NO_SPECIAL | GENAI_REQUEST_NO_CACHE;

	if (!GENAI_HAS(r, user) || !genai_options_known(r, sizeof(*r)) ||
	    r->flags & ~known)
		return genai_fail(err, GENAI_E_INVAL,
				  "request: size %u, flags %#x", r->size,
				  r->flags);
	if (r->n < 1 || r->n > MAX_CHOICES)
		return bad(err, "n", r->n, "1 to 128");
	if (r->n_top > MAX_TOP)
		return bad(err, "n_top", r->n_top, "0 to 20");
	if (r->n_top && !(r->flags & GENAI_REQUEST_LOGPROBS))
		return bad(err, "n_top", r->n_top,
			   "0 without GENAI_REQUEST_LOGPROBS");
	if (r->max_tokens < -1)
		return bad(err, "max_tokens", (double)r->max_tokens,
			   "-1 or more");
	if (r->min_tokens < 0 ||
	    (r->max_tokens >= 0 && r->min_tokens > r->max_tokens))
		return bad(err, "min_tokens", (double)r->min_tokens,
			   "0 to max_tokens");
	if (r->n_stops > MAX_STOPS)
		return bad(err, "n_stops", (double)r->n_stops, "0 to 64");
	if (r->n_stop_ids > MAX_STOPS)
		return bad(err, "n_stop_ids", (double)r->n_stop_ids, "0 to 64");
	return 0;
}

static int32_t check_id(const struct genai_engine *e, const char *what,
			size_t i, int64_t id, struct genai_error *err)
{
	if (id >= 0 && id < e->m->vocab)
		return 0;
	return genai_fail(err, GENAI_E_INVAL,
			  "request: %s[%zu] is %" PRId64 ": ids are 0 to %u",
			  what, i, id, e->m->vocab - 1);
}

static int32_t check_lists(const struct genai_engine *e,
			   const struct genai_request *r,
			   struct genai_error *err)
{
	int32_t rc = 0;

	for (size_t i = 0; !rc && i < r->n_stop_ids; i++)
		rc = check_id(e, "stop_ids", i, r->stop_ids[i], err);
	for (size_t i = 0; !rc && i < r->n_stops; i++)
		if (!r->stops[i] || !*r->stops[i])
			rc = genai_fail(err, GENAI_E_INVAL,
					"request: stops[%zu] is empty", i);
	if (!rc && r->n_stops && !e->tok)
		rc = genai_fail(err, GENAI_E_INVAL,
				"request: stops need a tokenizer, and the "
				"model has none");
	if (!rc && r->n_bias > e->m->vocab)
		rc = bad(err, "n_bias", (double)r->n_bias,
			 "at most one for each id");
	for (size_t i = 0; !rc && i < r->n_bias; i++) {
		float b = r->bias[i].bias;

		rc = check_id(e, "bias", i, r->bias[i].id, err);
		if (!rc && !(b >= -100 && b <= 100) && b != -INFINITY)
			rc = bad(err, "bias", b, "-100 to 100, or -inf");
	}
	return rc;
}

// ---- copying ----

static void *copy(const void *from, size_t n, size_t size, int32_t *rc)
{
	void *to = n ? calloc(n, size) : NULL;

	if (n && !to)
		*rc = GENAI_E_NOMEM;
	else if (n)
		memcpy(to, from, n * size);
	return to;
}

void eng_request_free(struct eng_request *rq)
{
	if (!rq)
		return;
	for (size_t i = 0; rq->stops && i < rq->n_stops; i++)
		free(rq->stops[i]);
	for (uint32_t i = 0; rq->seqs && i < rq->n; i++) {
		free(rq->seqs[i].ids);
		free(rq->seqs[i].blocks);
		free(rq->seqs[i].slots);
		free(rq->seqs[i].text);
		genai_sampler_close(rq->seqs[i].sampler);
		genai_detok_close(rq->seqs[i].detok);
	}
	free(rq->seqs);
	free(rq->ids);
	free(rq->stop_ids);
	free(rq->stops);
	free(rq->bias);
	free(rq);
}

static int32_t prompt(const struct genai_engine *e,
		      const struct genai_request *r, struct eng_request *rq,
		      struct genai_error *err)
{
	uint32_t flags =
		r->flags & GENAI_REQUEST_NO_SPECIAL ? GENAI_TOK_NO_SPECIAL : 0;
	int32_t rc = 0;

	if (r->ids) {
		rq->n_ids = r->n_ids;
		for (size_t i = 0; !rc && i < r->n_ids; i++)
			rc = check_id(e, "ids", i, r->ids[i], err);
		if (rc)
			return rc;
		rq->ids = copy(r->ids, r->n_ids, sizeof(*r->ids), &rc);
	} else if (!e->tok) {
		return genai_fail(err, GENAI_E_INVAL,
				  "request: text needs a tokenizer, and the "
				  "model has none: give ids");
	} else {
		rc = genai_tokenizer_encode(e->tok, r->text ? r->text : "",
					    r->text ? r->text_bytes : 0, flags,
					    &rq->ids, &rq->n_ids, err);
		for (size_t i = 0; !rc && i < rq->n_ids; i++)
			rc = check_id(e, "text, as ids", i, rq->ids[i], err);
		if (rc)
			return rc;
	}
	if (rc)
		return genai_fail(err, rc, "no memory");
	if (!rq->n_ids)
		return genai_fail(err, GENAI_E_INVAL,
				  "request: the prompt has no tokens");
	if (rq->n_ids > e->m->context)
		return genai_fail(err, GENAI_E_LIMIT,
				  "request: the prompt has %zu tokens, the "
				  "context %" PRIu64,
				  rq->n_ids, e->m->context);
	return 0;
}

static int32_t rest(const struct genai_engine *e, const struct genai_request *r,
		    struct eng_request *rq, struct genai_error *err)
{
	struct genai_sampling none = GENAI_SAMPLING_INIT;
	int32_t rc = 0;

	if (r->sampling && !genai_options_known(r->sampling, sizeof(none)))
		return genai_fail(err, GENAI_E_INVAL,
				  "request: sampling of size %u",
				  r->sampling->size);
	rq->sampling = none;
	if (r->sampling)
		genai_struct_give(&rq->sampling, r->sampling);
	rq->sampling.size = sizeof(none);
	rq->stop_ids =
		copy(r->stop_ids, r->n_stop_ids, sizeof(*r->stop_ids), &rc);
	rq->n_stop_ids = r->n_stop_ids;
	rq->bias = copy(r->bias, r->n_bias, sizeof(*r->bias), &rc);
	rq->n_bias = r->n_bias;
	rq->stops = calloc(r->n_stops + 1, sizeof(*rq->stops));
	for (size_t i = 0; rq->stops && i < r->n_stops; i++) {
		rq->stops[i] = strdup(r->stops[i]);
		rq->n_stops += rq->stops[i] != NULL;
	}
	if (rc || rq->n_stops < r->n_stops)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	// its ranges, before anybody waits for it
	return genai_sampling_check(&rq->sampling, e->m->vocab, err);
}

static int32_t make(struct genai_engine *e, const struct genai_request *r,
		    struct eng_request **out, struct genai_error *err)
{
	struct eng_request *rq = calloc(1, sizeof(*rq));
	int32_t rc;

	if (!rq)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	rq->e = e;
	rq->flags = r->flags;
	rq->n = r->n;
	rq->n_top = r->n_top;
	rq->max_tokens = r->max_tokens;
	rq->min_tokens = r->min_tokens;
	rq->priority = r->priority;
	rq->user = r->user;
	if (GENAI_HAS(r, allow_ctx)) {
		rq->allow = r->allow;
		rq->allow_ctx = r->allow_ctx;
	}
	pthread_mutex_lock(&e->lock);
	rq->root = eng_salts_root(&e->salts, r->salt);
	pthread_mutex_unlock(&e->lock);
	if (r->deadline_ms)
		rq->deadline_ns =
			eng_now_ns() + UINT64_C(1000000) * r->deadline_ms;
	rc = prompt(e, r, rq, err);
	if (!rc)
		rc = rest(e, r, rq, err);
	if (rc)
		eng_request_free(rq);
	else
		*out = rq;
	return rc;
}

// ---- queueing ----

static int32_t queue(struct genai_engine *e, struct eng_request *rq,
		     uint64_t *out_id, struct genai_error *err)
{
	int32_t rc = 0;

	pthread_mutex_lock(&e->lock);
	if (!e->stats.healthy)
		rc = genai_fail(err, GENAI_E_DEVICE,
				"the device was lost: open the engine anew");
	else if (e->n_live >= e->max_requests)
		rc = genai_fail(err, GENAI_E_BUSY,
				"%u requests are not finished, which is the "
				"most",
				e->n_live);
	if (!rc) {
		rq->id = rq->order = ++e->last_id;
		*out_id = rq->id;
		*e->incoming_end = rq;
		e->incoming_end = &rq->next;
		e->n_live++;
		e->stats.submitted++;
		pthread_cond_signal(&e->work);
	}
	pthread_mutex_unlock(&e->lock);
	return rc;
}

int32_t genai_engine_submit(struct genai_engine *e,
			    const struct genai_request *r, uint64_t *out_id,
			    struct genai_error *err)
{
	struct eng_request *rq = NULL;
	int32_t rc = genai_device_forked(&e->rt->device, err);

	if (!rc)
		rc = check_numbers(r, err);
	if (!rc)
		rc = check_lists(e, r, err);
	if (!rc)
		rc = make(e, r, &rq, err);
	if (rc)
		return rc;
	rc = queue(e, rq, out_id, err);
	if (rc)
		eng_request_free(rq);
	return rc;
}

int32_t genai_engine_cancel(struct genai_engine *e, uint64_t id,
			    struct genai_error *err)
{
	int32_t rc = genai_device_forked(&e->rt->device, err);
	struct eng_request *lists[2], *rq;

	if (rc)
		return rc;
	pthread_mutex_lock(&e->lock);
	lists[0] = e->incoming;
	lists[1] = e->live;
	for (int i = 0; i < 2; i++)
		for (rq = lists[i]; rq; rq = rq->next)
			if (rq->id == id)
				rq->cancelled = e->check = true;
	pthread_cond_signal(&e->work);
	pthread_mutex_unlock(&e->lock);
	return 0;
}
