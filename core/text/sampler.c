// sampler.c - the next token, by the rules of docs/SAMPLING.md.
#include <genai/text.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/text/sampler.h"
#include "core/text/sampler_math.h"

#define MAX_VOCAB (1u << 22)
#define FIRST_HISTORY 256
#define MIN_TEMPERATURE 1e-6f

struct candidate {
	float logit;
	uint32_t id;
	uint64_t weight;
};

struct genai_sampler {
	struct genai_sampling p;
	uint32_t vocab;
	uint32_t *eos;
	size_t n_eos;
	uint32_t *history;
	size_t n, cap;
	uint32_t *count;    // per id, in the history
	uint32_t *distinct; // ids whose count is not 0
	size_t n_distinct;
	struct candidate *cand; // vocab of them
};

static int bad(struct genai_error *err, const char *name, double v,
	       const char *range)
{
	return genai_fail(err, GENAI_E_INVAL, "%s is %g, not %s", name, v,
			  range);
}

int32_t genai_sampling_check(const struct genai_sampling *s, uint32_t vocab,
			     struct genai_error *err)
{
	if (!GENAI_HAS(s, seed) || !genai_options_known(s, sizeof(*s)))
		return genai_fail(err, GENAI_E_INVAL, "sampling: size %u",
				  s->size);
	// written so that a NaN fails
	if (!vocab || vocab > MAX_VOCAB)
		return bad(err, "vocab", vocab, "1...4194304");
	if (!(s->temperature >= 0 && s->temperature <= 100))
		return bad(err, "temperature", s->temperature, "0...100");
	if (s->top_k < 0)
		return bad(err, "top_k", (double)s->top_k, "0 or more");
	if (!(s->top_p >= 0 && s->top_p <= 1))
		return bad(err, "top_p", s->top_p, "0...1");
	if (!(s->min_p >= 0 && s->min_p <= 1))
		return bad(err, "min_p", s->min_p, "0...1");
	if (!(s->repetition_penalty > 0 && isfinite(s->repetition_penalty)))
		return bad(err, "repetition_penalty", s->repetition_penalty,
			   "above 0 and finite");
	if (!(s->presence_penalty >= -2 && s->presence_penalty <= 2))
		return bad(err, "presence_penalty", s->presence_penalty,
			   "-2...2");
	if (!(s->frequency_penalty >= -2 && s->frequency_penalty <= 2))
		return bad(err, "frequency_penalty", s->frequency_penalty,
			   "-2...2");
	if (s->no_repeat_ngram < 0)
		return bad(err, "no_repeat_ngram", (double)s->no_repeat_ngram,
			   "0 or more");
	if (s->min_length < 0)
		return bad(err, "min_length", (double)s->min_length,
			   "0 or more");
	return 0;
}

int32_t genai_sampler_open(const struct genai_sampling *p, uint32_t vocab,
			   const int64_t *eos, size_t n_eos,
			   struct genai_sampler **out_s,
			   struct genai_error *err)
{
	struct genai_sampler *s;
	size_t i;
	int rc;

	*out_s = NULL;
	if (!eos)
		n_eos = 0;
	rc = genai_sampling_check(p, vocab, err);
	if (rc)
		return rc;
	for (i = 0; i < n_eos; i++)
		if (eos[i] < 0 || eos[i] >= vocab)
			return genai_fail(err, GENAI_E_INVAL,
					  "eos id %lld is not 0...%u",
					  (long long)eos[i], vocab - 1);
	s = calloc(1, sizeof(*s));
	if (!s)
		goto err_nomem;
	s->p = *p;
	s->vocab = vocab;
	s->cap = FIRST_HISTORY;
	s->history = malloc(s->cap * sizeof(*s->history));
	s->count = calloc(vocab, sizeof(*s->count));
	s->distinct = malloc(vocab * sizeof(*s->distinct));
	s->cand = malloc(vocab * sizeof(*s->cand));
	s->eos = malloc((n_eos + 1) * sizeof(*s->eos));
	if (!s->history || !s->count || !s->distinct || !s->cand || !s->eos)
		goto err_nomem;
	for (i = 0; i < n_eos; i++)
		s->eos[i] = (uint32_t)eos[i];
	s->n_eos = n_eos;
	*out_s = s;
	return GENAI_OK;

err_nomem:
	genai_sampler_close(s);
	return genai_fail(err, GENAI_E_NOMEM,
			  "no memory for a sampler over %u tokens", vocab);
}

void genai_sampler_close(struct genai_sampler *s)
{
	if (!s)
		return;
	free(s->history);
	free(s->count);
	free(s->distinct);
	free(s->cand);
	free(s->eos);
	free(s);
}

static int picks_best(const struct genai_sampling *p)
{
	return !p->do_sample || p->top_k == 1 ||
	       p->temperature < MIN_TEMPERATURE;
}

static int penalizes(const struct genai_sampling *p)
{
	return p->repetition_penalty != 1 || p->presence_penalty != 0 ||
	       p->frequency_penalty != 0;
}

int32_t genai_sampler_is_greedy(const struct genai_sampler *s)
{
	return picks_best(&s->p) && !penalizes(&s->p) &&
	       !s->p.no_repeat_ngram && !(s->p.min_length && s->n_eos);
}

static int reserve(struct genai_sampler *s, size_t more,
		   struct genai_error *err)
{
	size_t need, cap = s->cap, bytes;
	uint32_t *h;

	if (__builtin_add_overflow(s->n, more, &need))
		need = SIZE_MAX;
	if (need <= cap)
		return 0;
	while (cap < need && cap <= SIZE_MAX / 2)
		cap *= 2;
	if (cap < need || __builtin_mul_overflow(cap, sizeof(*h), &bytes) ||
	    !(h = realloc(s->history, bytes)))
		return genai_fail(err, GENAI_E_NOMEM,
				  "no memory for a history of %zu tokens",
				  need);
	s->history = h;
	s->cap = cap;
	return 0;
}

static void record(struct genai_sampler *s, uint32_t id)
{
	s->history[s->n++] = id;
	if (!s->count[id]++)
		s->distinct[s->n_distinct++] = id;
}

int32_t genai_sampler_accept(struct genai_sampler *s, const int64_t *ids,
			     size_t count, struct genai_error *err)
{
	size_t i;
	int rc;

	for (i = 0; i < count; i++)
		if (ids[i] < 0 || ids[i] >= s->vocab)
			return genai_fail(err, GENAI_E_INVAL,
					  "token %zu: id %lld is not 0...%u", i,
					  (long long)ids[i], s->vocab - 1);
	rc = reserve(s, count, err);
	if (rc)
		return rc;
	for (i = 0; i < count; i++)
		record(s, (uint32_t)ids[i]);
	return GENAI_OK;
}

void genai_sampler_reset(struct genai_sampler *s)
{
	genai_sampler_rewind(s, 0);
}

void genai_sampler_rewind(struct genai_sampler *s, size_t count)
{
	size_t i, k = 0;

	if (count >= s->n)
		return;
	while (s->n > count)
		s->count[s->history[--s->n]]--;
	for (i = 0; i < s->n_distinct; i++)
		if (s->count[s->distinct[i]])
			s->distinct[k++] = s->distinct[i];
	s->n_distinct = k;
}

static void penalize(const struct genai_sampler *s, float *logits)
{
	const struct genai_sampling *p = &s->p;
	size_t i;

	for (i = 0; i < s->n_distinct; i++) {
		uint32_t id = s->distinct[i];
		float l = logits[id];

		if (p->repetition_penalty != 1)
			l = l < 0 ? l * p->repetition_penalty
				  : l / p->repetition_penalty;
		l -= p->presence_penalty;
		l -= p->frequency_penalty * (float)s->count[id];
		logits[id] = l;
	}
}

// Suppress every token that would complete an n-gram already there.
static void ban_ngrams(const struct genai_sampler *s, float *logits)
{
	size_t n = (size_t)s->p.no_repeat_ngram, i, head;
	const uint32_t *h = s->history, *tail;

	if (n > s->n)
		return;
	head = n - 1;
	tail = h + s->n - head;
	for (i = 0; i + n <= s->n; i++)
		if (!head || !memcmp(h + i, tail, head * sizeof(*h)))
			logits[h[i + head]] = -INFINITY;
}

// The largest logit, lowest id first; a NaN is an error.
static int best(const struct genai_sampler *s, const float *logits,
		uint32_t *out_id, struct genai_error *err)
{
	float max = -INFINITY;
	uint32_t i, at = 0;
	int nan = 0;

	for (i = 0; i < s->vocab; i++) {
		nan |= logits[i] != logits[i];
		if (logits[i] > max) {
			max = logits[i];
			at = i;
		}
	}
	for (i = 0; nan && i < s->vocab; i++)
		if (logits[i] != logits[i])
			return genai_fail(err, GENAI_E_DEVICE,
					  "the model produced a NaN for token "
					  "%u at position %zu",
					  i, s->n);
	*out_id = at;
	return 0;
}

static int ranks_before(const struct candidate *x, const struct candidate *y)
{
	return x->logit > y->logit || (x->logit == y->logit && x->id < y->id);
}

static int ranks_after(const struct candidate *x, const struct candidate *y)
{
	return ranks_before(y, x);
}

static int id_after(const struct candidate *x, const struct candidate *y)
{
	return x->id > y->id;
}

typedef int before_fn(const struct candidate *, const struct candidate *);

static inline void sink(struct candidate *c, size_t n, size_t i,
			before_fn *before)
{
	struct candidate v = c[i];
	size_t k;

	for (; (k = 2 * i + 1) < n; i = k) {
		if (k + 1 < n && before(&c[k + 1], &c[k]))
			k++;
		if (!before(&c[k], &v))
			break;
		c[i] = c[k];
	}
	c[i] = v;
}

static inline void heapify(struct candidate *c, size_t n, before_fn *before)
{
	size_t i;

	for (i = n / 2; i-- > 0;)
		sink(c, n, i, before);
}

// Move the first of the heap behind its new end.
static inline void pop(struct candidate *c, size_t *io_n, before_fn *before)
{
	struct candidate v = c[0];

	c[0] = c[--*io_n];
	sink(c, *io_n, 0, before);
	c[*io_n] = v;
}

// Candidates whose weight can be above 0, by id.
static size_t gather(const struct genai_sampler *s, const float *logits,
		     double max)
{
	double least = max + 1.01 * GENAI_WEIGHT_MIN_X * s->p.temperature;
	size_t n = 0;
	uint32_t i;

	for (i = 0; i < s->vocab; i++) {
		s->cand[n].logit = logits[i];
		s->cand[n].id = i;
		n += logits[i] >= least;
	}
	return n;
}

static void weigh(const struct genai_sampler *s, struct candidate *c, size_t n,
		  double max)
{
	double t = s->p.temperature;
	size_t i;

	// +inf - +inf is no number, but the largest has weight one
	for (i = 0; i < n; i++)
		c[i].weight = genai_sampler_weight(
			c[i].logit == max ? 0 : (c[i].logit - max) / t);
}

static uint64_t sum(const struct candidate *c, size_t n)
{
	uint64_t total = 0;

	while (n)
		total += c[--n].weight;
	return total;
}

// The k candidates of highest rank: a heap whose first is the lowest, so that
// most logits cost one comparison.  Equals come by id: the first ones stay.
static size_t select_top(const struct genai_sampler *s, const float *logits,
			 size_t k)
{
	struct candidate *c = s->cand;
	uint32_t i;

	for (i = 0; i < k; i++) {
		c[i].logit = logits[i];
		c[i].id = i;
	}
	heapify(c, k, ranks_after);
	for (; i < s->vocab; i++) {
		if (logits[i] <= c[0].logit)
			continue;
		c[0].logit = logits[i];
		c[0].id = i;
		sink(c, k, 0, ranks_after);
	}
	return k;
}

static void sort_by_id(struct candidate *c, size_t n)
{
	heapify(c, n, id_after);
	while (n > 1)
		pop(c, &n, id_after);
}

// Drop candidates of lowest rank that have less weight together than rest:
// those below the lowest that has at least the mean share of rest.
static size_t prune(struct candidate *c, size_t n, uint64_t rest)
{
	uint64_t least = rest / n;
	float lowest = INFINITY;
	size_t i, k = 0;

	for (i = 0; i < n; i++)
		if (c[i].weight >= least && c[i].logit < lowest)
			lowest = c[i].logit;
	for (i = 0; i < n; i++) {
		c[k] = c[i];
		k += c[i].logit >= lowest;
	}
	return k;
}

// The fewest candidates of highest rank that have the share top_p of all
// weights: the last of the array, *out_n of them.
static struct candidate *keep_share(const struct genai_sampler *s, size_t n,
				    size_t *out_n)
{
	struct candidate *c = s->cand;
	uint64_t cum = 0, limit, total = sum(c, n);
	size_t heap;

	// a share of nothing is that of the best one
	limit = (uint64_t)((double)s->p.top_p * (double)total);
	limit += !limit;
	heap = n = prune(c, n, total - limit);
	heapify(c, n, ranks_before);
	do {
		pop(c, &heap, ranks_before);
		cum += c[heap].weight;
	} while (heap && cum < limit);
	*out_n = n - heap;
	return c + heap;
}

// The upper half of the product.
static uint64_t high(uint64_t x, uint64_t y)
{
	__extension__ typedef unsigned __int128 wide;

	return (uint64_t)(((wide)x * y) >> 64);
}

static uint32_t draw(const struct genai_sampler *s, const float *logits,
		     double max)
{
	int top_k = s->p.top_k && (uint64_t)s->p.top_k < s->vocab;
	int top_p = s->p.top_p < 1;
	struct candidate *c = s->cand;
	uint64_t least, target, total;
	size_t n, i, k;

	n = top_k ? select_top(s, logits, (size_t)s->p.top_k)
		  : gather(s, logits, max);
	weigh(s, c, n, max);
	if (top_p)
		c = keep_share(s, n, &n);
	if (top_k || top_p)
		sort_by_id(c, n);
	least = (uint64_t)((double)s->p.min_p * (double)GENAI_WEIGHT_ONE);
	for (i = k = 0; i < n; i++)
		if (c[i].weight >= least)
			c[k++] = c[i];
	total = sum(c, k);
	target = high(genai_sampler_random(s->p.seed, s->n), total);
	for (i = 0; i + 1 < k && c[i].weight <= target; i++)
		target -= c[i].weight;
	return c[i].id;
}

// What the sequence so far does to the logits; 1 if anything.
static int adjust(const struct genai_sampler *s, float *logits)
{
	int changed = s->n < (uint64_t)s->p.min_length && s->n_eos;
	size_t i;

	for (i = 0; changed && i < s->n_eos; i++)
		logits[s->eos[i]] = -INFINITY;
	if (penalizes(&s->p) && s->n) {
		penalize(s, logits);
		changed = 1;
	}
	if (s->p.no_repeat_ngram) {
		ban_ngrams(s, logits);
		changed = 1;
	}
	return changed;
}

int32_t genai_sampler_pick(struct genai_sampler *s, float *logits,
			   int64_t *out_id, struct genai_error *err)
{
	uint32_t id = 0;
	int rc = reserve(s, 1, err);

	if (!rc)
		rc = best(s, logits, &id, err);
	if (rc)
		return rc;
	if (adjust(s, logits))
		rc = best(s, logits, &id, err);
	if (rc)
		return rc;
	if (logits[id] == -INFINITY)
		return genai_fail(err, GENAI_E_DEVICE,
				  "no token is left at position %zu: all "
				  "logits are -inf",
				  s->n);
	if (!picks_best(&s->p))
		id = draw(s, logits, logits[id]);
	record(s, id);
	*out_id = id;
	return GENAI_OK;
}
