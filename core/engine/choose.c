// choose.c - from a step's rows to tokens, their text, and the end of
// sequences.
#include "core/engine/engine.h"
#include "core/text/stops.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOP 20

// ---- the end ----

static void free_seq(struct eng_seq *s)
{
	free(s->ids);
	free(s->blocks);
	free(s->slots);
	free(s->text);
	genai_sampler_close(s->sampler);
	genai_detok_close(s->detok);
	s->ids = NULL;
	s->blocks = s->slots = NULL;
	s->text = NULL;
	s->sampler = NULL;
	s->detok = NULL;
}

// What was held back, and an unfinished character, are text after all.
static void last_text(struct eng_seq *s, const char **out, size_t *out_n)
{
	const char *rest = "";
	size_t n = 0;
	char *all;

	*out = s->text;
	*out_n = s->n_text;
	if (!s->detok || genai_detok_flush(s->detok, &rest, &n, NULL) || !n)
		return;
	all = realloc(s->text, s->n_text + n);
	if (!all)
		return;
	memcpy(all + s->n_text, rest, n);
	s->text = all;
	s->n_text += n;
	*out = all;
	*out_n = s->n_text;
}

void eng_end(struct genai_engine *e, struct eng_seq *s, uint32_t finish,
	     const char *stop, const struct genai_error *err)
{
	struct eng_request *rq = s->rq;
	struct genai_event ev = {.kind = GENAI_EVENT_DONE,
				 .request = rq->id,
				 .user = rq->user,
				 .choice = s->choice,
				 .finish = finish,
				 .id = -1,
				 .n_prompt = rq->n_ids,
				 .n_new = s->n - rq->n_ids,
				 .n_cached = s->found,
				 .stop = stop};

	eng_remove(e, s);
	s->ended = true;
	if (finish != GENAI_FINISH_STOP)
		last_text(s, &ev.text, &ev.text_bytes);
	if (err) {
		ev.error = err->text;
		ev.code = err->code;
	}
	ev.last = ++rq->ended == rq->n;
	if (ev.last) {
		pthread_mutex_lock(&e->lock);
		e->stats.finished++;
		pthread_mutex_unlock(&e->lock);
	}
	eng_event(e, &ev);
	free_seq(s);
}

// ---- logprobs ----

// Log-probabilities of e->wide: the token's, and the best ones.
static void logprobs(const struct genai_engine *e, const struct eng_seq *s,
		     int64_t id, struct genai_event *ev, struct genai_top *top)
{
	const float *x = e->wide;
	uint32_t vocab = e->m->vocab, n = 0;
	double max = -INFINITY, sum = 0, all;

	for (uint32_t i = 0; i < vocab; i++)
		max = x[i] > max ? x[i] : max;
	for (uint32_t i = 0; i < vocab; i++)
		sum += exp(x[i] - max);
	all = max + log(sum);
	ev->logprob = (float)(x[id] - all);
	for (uint32_t i = 0; s->rq->n_top && i < vocab; i++) {
		uint32_t k = n < s->rq->n_top ? n++ : n;

		for (; k && x[top[k - 1].id] < x[i]; k--)
			if (k < n)
				top[k] = top[k - 1];
		if (k < n)
			top[k] = (struct genai_top){
				.id = i, .logprob = (float)(x[i] - all)};
	}
	ev->n_top = n;
	ev->top = top;
}

// ---- text ----

static bool add_text(struct eng_seq *s, const char *text, size_t n)
{
	if (s->n_text + n + 1 > s->cap_text) {
		size_t cap = 2 * (s->n_text + n + 64);
		char *more = realloc(s->text, cap);

		if (!more)
			return false;
		s->text = more;
		s->cap_text = cap;
	}
	memcpy(s->text + s->n_text, text, n);
	s->n_text += n;
	s->text[s->n_text] = 0;
	return true;
}

static void took(struct eng_seq *s, size_t n)
{
	memmove(s->text, s->text + n, s->n_text - n + 1);
	s->n_text -= n;
}

// ---- events ----

static struct genai_event event(const struct eng_seq *s, uint32_t kind,
				int64_t id)
{
	return (struct genai_event){.kind = kind,
				    .request = s->rq->id,
				    .user = s->rq->user,
				    .choice = s->choice,
				    .id = id};
}

static void give_prompt(struct genai_engine *e, struct eng_seq *s, size_t i,
			struct genai_event *ev)
{
	const char *text = "";
	size_t n = 0;

	if (s->detok &&
	    !genai_detok_push(s->detok, s->ids[i], &text, &n, NULL)) {
		ev->text = text;
		ev->text_bytes = n;
	}
	eng_event(e, ev);
}

void eng_echo(struct genai_engine *e, struct eng_seq *s)
{
	if (s->echoed || !(s->rq->flags & GENAI_REQUEST_ECHO))
		return;
	s->echoed = true;
	for (size_t i = 0; i < s->rq->n_ids; i++) {
		struct genai_event ev = event(s, GENAI_EVENT_PROMPT, s->ids[i]);

		// the others come with their logprobs
		if (i && s->rq->flags & GENAI_REQUEST_LOGPROBS)
			break;
		give_prompt(e, s, i, &ev);
		s->scored = i + 1;
	}
}

// The row of position at tells the token behind it.
static void score(struct genai_engine *e, struct eng_seq *s, size_t at)
{
	struct genai_top top[MAX_TOP];
	struct genai_event ev;

	if (at + 1 != s->scored || at + 1 >= s->rq->n_ids)
		return;
	ev = event(s, GENAI_EVENT_PROMPT, s->ids[at + 1]);
	logprobs(e, s, ev.id, &ev, top);
	give_prompt(e, s, at + 1, &ev);
	s->scored++;
}

// ---- a token ----

static bool is_stop_id(const struct genai_engine *e, const struct eng_seq *s,
		       int64_t id)
{
	const struct eng_request *rq = s->rq;

	for (uint32_t i = 0;
	     !(rq->flags & GENAI_REQUEST_IGNORE_EOS) && i < e->m->config.n_eos;
	     i++)
		if (e->m->config.eos[i] == id)
			return true;
	for (size_t i = 0; i < rq->n_stop_ids; i++)
		if (rq->stop_ids[i] == id)
			return true;
	return false;
}

static bool is_early(const struct eng_seq *s)
{
	return s->n - s->rq->n_ids < (size_t)s->rq->min_tokens;
}

bool eng_is_best(const struct eng_seq *s)
{
	const struct eng_request *rq = s->rq;

	return genai_sampler_is_greedy(s->sampler) && !rq->n_bias &&
	       !rq->allow && !is_early(s) &&
	       !(rq->flags & GENAI_REQUEST_LOGPROBS);
}

bool eng_is_likely(const struct eng_seq *s)
{
	return !s->wary && genai_sampler_is_greedy(s->sampler);
}

static void adjust(struct genai_engine *e, const struct eng_seq *s)
{
	const struct eng_request *rq = s->rq;

	for (size_t i = 0; i < rq->n_bias; i++)
		e->wide[rq->bias[i].id] += rq->bias[i].bias;
	if (!is_early(s))
		return;
	for (uint32_t i = 0;
	     !(rq->flags & GENAI_REQUEST_IGNORE_EOS) && i < e->m->config.n_eos;
	     i++)
		if (e->m->config.eos[i] >= 0 &&
		    e->m->config.eos[i] < e->m->vocab)
			e->wide[e->m->config.eos[i]] = -INFINITY;
	for (size_t i = 0; i < rq->n_stop_ids; i++)
		e->wide[rq->stop_ids[i]] = -INFINITY;
}

static int32_t keep_allowed(struct genai_engine *e, const struct eng_seq *s,
			    struct genai_error *err)
{
	const struct eng_request *rq = s->rq;
	int32_t rc = rq->allow(rq->allow_ctx, s->choice, s->ids + rq->n_ids,
			       s->n - rq->n_ids, e->bits, err);

	for (uint32_t i = 0; !rc && i < e->m->vocab; i++)
		if (!(e->bits[i / 32] >> (i % 32) & 1))
			e->wide[i] = -INFINITY;
	return rc;
}

static int32_t pick(struct genai_engine *e, struct eng_seq *s, uint32_t row,
		    struct genai_event *ev, struct genai_top *top,
		    struct genai_error *err)
{
	bool wants = s->rq->flags & GENAI_REQUEST_LOGPROBS;
	float *raw = NULL, best;
	int32_t rc;

	if (e->blocks && eng_is_best(s)) {
		ev->id = eng_step_best(e, row, &best);
		if (isnan(best) || best == -INFINITY)
			return genai_fail(err, GENAI_E_DEVICE,
					  "the model produced %s at position "
					  "%zu",
					  isnan(best) ? "NaN" : "only -inf",
					  s->n);
		return genai_sampler_accept(s->sampler, &ev->id, 1, err);
	}
	if (wants) {
		raw = malloc(e->m->vocab * sizeof(*raw));
		if (!raw)
			return genai_fail(err, GENAI_E_NOMEM, "no memory");
		memcpy(raw, e->wide, e->m->vocab * sizeof(*raw));
	}
	adjust(e, s);
	rc = s->rq->allow ? keep_allowed(e, s, err) : 0;
	if (!rc)
		rc = genai_sampler_pick(s->sampler, e->wide, &ev->id, err);
	if (!rc && wants) {
		memcpy(e->wide, raw, e->m->vocab * sizeof(*raw));
		logprobs(e, s, ev->id, ev, top);
	}
	free(raw);
	return rc;
}

static bool append(struct eng_seq *s, int64_t id)
{
	if (s->n == s->cap) {
		int64_t *more = realloc(s->ids, 2 * s->cap * sizeof(*more));

		if (!more)
			return false;
		s->ids = more;
		s->cap *= 2;
	}
	s->ids[s->n++] = id;
	return true;
}

// Its text, as far as no stop text may have begun in it.
static const char *add_token(struct genai_engine *e, struct eng_seq *s,
			     struct genai_event *ev, bool *out_lost)
{
	const char *text = "", *stop;
	size_t n = 0, at = 0, held;

	*out_lost = !append(s, ev->id);
	if (s->detok && !*out_lost)
		*out_lost =
			genai_detok_push(s->detok, ev->id, &text, &n, NULL) ||
			(n && !add_text(s, text, n));
	if (*out_lost || !s->text)
		return NULL;
	stop = genai_stop_find((const char *const *)s->rq->stops,
			       s->rq->n_stops, s->text, s->n_text, &at, &held);
	ev->text = s->text;
	ev->text_bytes = stop ? at : s->n_text - held;
	eng_event(e, ev);
	took(s, ev->text_bytes);
	return stop;
}

// Does it end with n tokens?
static bool is_full(const struct genai_engine *e, const struct eng_seq *s,
		    size_t n)
{
	const struct eng_request *rq = s->rq;

	return n >= e->m->context ||
	       (rq->max_tokens >= 0 &&
		n - rq->n_ids >= (uint64_t)rq->max_tokens);
}

bool eng_ends_next(const struct genai_engine *e, const struct eng_seq *s)
{
	return is_full(e, s, s->n + 1);
}

static void next_token(struct genai_engine *e, struct eng_seq *s, uint32_t row)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_event ev = event(s, GENAI_EVENT_TOKEN, -1);
	struct genai_top top[MAX_TOP];
	const char *stop;
	bool lost;

	if (is_full(e, s, s->n)) { // only the prompt was wanted
		eng_end(e, s, GENAI_FINISH_LENGTH, NULL, NULL);
		return;
	}
	if (pick(e, s, row, &ev, top, &err)) {
		eng_end(e, s, GENAI_FINISH_ERROR, NULL, &err);
		return;
	}
	eng_count(e, &e->stats.new_tokens, 1);
	if (is_stop_id(e, s, ev.id)) {
		lost = !append(s, ev.id);
		eng_event(e, &ev);
		eng_end(e, s, GENAI_FINISH_EOS, NULL, NULL);
		return;
	}
	stop = add_token(e, s, &ev, &lost);
	if (lost) {
		genai_fail(&err, GENAI_E_NOMEM, "no memory");
		eng_end(e, s, GENAI_FINISH_ERROR, NULL, &err);
		return;
	}
	if (!s->text)
		eng_event(e, &ev);
	if (stop)
		eng_end(e, s, GENAI_FINISH_STOP, stop, NULL);
	else if (is_full(e, s, s->n))
		eng_end(e, s, GENAI_FINISH_LENGTH, NULL, NULL);
}

// As long as what was chosen is what was guessed, the next row is right, too.
static void check_guesses(struct genai_engine *e, struct eng_seq *s,
			  uint32_t row)
{
	uint32_t n = eng_now(e, s)->n_guess, i = 0;

	while (i < n && !s->ended && s->ids[s->n - 1] == s->guess[i]) {
		s->computed++;
		if (!eng_is_best(s))
			eng_step_logits(e, row + i);
		next_token(e, s, row + i);
		i++;
	}
	eng_count(e, &e->stats.guessed, n);
	eng_count(e, &e->stats.guessed_right, i);
}

// The step that runs ahead goes on with what the device chose.  Where that is
// not what was chosen, its row is nobody's, and is written over.
static void check_ahead(struct genai_engine *e, struct eng_seq *s, uint32_t row)
{
	struct eng_part *ahead = &s->part[!e->turn];
	float best;

	s->wary -= s->wary > 0;
	if (!e->step.side[!e->turn].flying || !ahead->handed ||
	    s->ids[s->n - 1] == eng_step_best(e, row, &best))
		return;
	*ahead = (struct eng_part){0};
	s->wary = ENG_WARY;
}

void eng_choose(struct genai_engine *e)
{
	struct eng_seq *s, *next;

	for (s = e->running; s; s = next) {
		const struct eng_part *p = eng_now(e, s);
		uint32_t rows = p->n_rows - p->n_guess;
		size_t first = s->computed - rows;

		next = s->next;
		for (uint32_t i = 0; i < rows; i++) {
			if (e->blocks && !eng_is_best(s))
				eng_step_logits(e, p->row + i);
			score(e, s, first + i);
		}
		if (!rows || s->computed != s->n)
			continue;
		next_token(e, s, p->row + rows - 1);
		if (!s->ended && e->blocks)
			check_ahead(e, s, p->row + rows - 1);
		if (p->n_guess)
			check_guesses(e, s, p->row + rows);
	}
}
