// schedule.c - which rows the next step computes.
//
// Sequences have an order: higher priority first, then the earlier one.  First
// everyone that runs gets the row of its newest token, in order; what is left
// of the step goes to prompts, in order; then the first that wait are taken up.
// Whoever lacks blocks takes them from the last that runs, which gives up all
// of its own and waits again at its old place: so the first in order always
// gets on, and after it the next.
//
// A step may be planned while the one before is under way.  What that one
// computes counts as there; whoever gets a token from it goes on with the one
// that the device chose, if that is likely to be the one.  Nobody gives up
// blocks then: what is under way writes to them.
#include "core/engine/engine.h"

#include <stdlib.h>
#include <string.h>

// ---- order ----

static bool goes_before(const struct eng_seq *a, const struct eng_seq *b)
{
	const struct eng_request *x = a->rq, *y = b->rq;

	if (x->priority != y->priority)
		return x->priority > y->priority;
	if (x->order != y->order)
		return x->order < y->order;
	return a->choice < b->choice;
}

static void insert(struct eng_seq **list, struct eng_seq *s)
{
	while (*list && goes_before(*list, s))
		list = &(*list)->next;
	s->next = *list;
	*list = s;
}

static bool take_out(struct eng_seq **list, const struct eng_seq *s)
{
	for (; *list; list = &(*list)->next)
		if (*list == s) {
			*list = s->next;
			return true;
		}
	return false;
}

// ---- blocks ----

// The last ones are given up first: nothing is found behind a hole.
static void drop_blocks(struct genai_engine *e, struct eng_seq *s)
{
	while (s->n_blocks)
		eng_blocks_drop(e->blocks, s->blocks[--s->n_blocks]);
	s->n_kept = 0;
	s->computed = 0;
}

static void unplan(struct genai_engine *e, struct eng_seq *s)
{
	struct eng_part *p = eng_part(e, s);

	eng_plan(e)->rows -= p->add;
	eng_plan(e)->logit_rows -= p->n_rows;
	*p = (struct eng_part){0};
}

static void preempt(struct genai_engine *e, struct eng_seq *s)
{
	unplan(e, s);
	take_out(&e->running, s);
	e->n_running--;
	eng_swap_out(e, s);
	drop_blocks(e, s);
	insert(&e->waiting, s);
	eng_count(e, &e->stats.preemptions, 1);
}

static struct eng_seq *last_running(const struct genai_engine *e)
{
	struct eng_seq *s = e->running;

	while (s->next)
		s = s->next;
	return s;
}

// Blocks for so many positions; false: it gave up itself, or somebody would
// have to and must not.
static bool grow(struct genai_engine *e, struct eng_seq *s, size_t positions)
{
	while (e->blocks && (size_t)s->n_blocks * eng_block(e) < positions) {
		uint32_t b = eng_blocks_take(e->blocks);
		struct eng_seq *last;

		if (b != UINT32_MAX) {
			s->blocks[s->n_blocks++] = b;
			continue;
		}
		if (eng_is_ahead(e))
			return false;
		last = last_running(e);
		preempt(e, last);
		if (last == s)
			return false;
	}
	return true;
}

// ---- rows ----

static bool is_scored(const struct eng_seq *s)
{
	uint32_t both = GENAI_REQUEST_ECHO | GENAI_REQUEST_LOGPROBS;

	return (s->rq->flags & both) == both && s->scored < s->rq->n_ids;
}

// Does it get a token from the step under way?
static bool gets_token(const struct genai_engine *e, struct eng_seq *s)
{
	const struct eng_part *p = eng_now(e, s);

	return p->n_rows && s->computed + p->add == s->n;
}

// Positions behind those, whose tokens the planned step can have.
static size_t left_of(const struct genai_engine *e, struct eng_seq *s)
{
	if (eng_is_ahead(e) && gets_token(e, s))
		return !eng_ends_next(e, s);
	return s->n - eng_past(e, s);
}

static bool plan(struct genai_engine *e, struct eng_seq *s)
{
	struct eng_side *x = eng_plan(e);
	struct eng_part *p = eng_part(e, s);
	size_t left = left_of(e, s), room = e->m->chunk - x->rows;
	uint32_t logits = e->max_seqs - x->logit_rows;

	if (p->add || !left || !room || !logits)
		return true;
	if (left > room)
		left = room;
	if (is_scored(s) && left > logits)
		left = logits;
	if (!grow(e, s, eng_past(e, s) + left))
		return false;
	p->handed = eng_is_ahead(e) && gets_token(e, s);
	p->add = (uint32_t)left;
	if (is_scored(s))
		p->n_rows = p->add;
	else
		p->n_rows = eng_past(e, s) + left >= s->n;
	x->rows += p->add;
	x->logit_rows += p->n_rows;
	return true;
}

// In order; whoever is preempted meanwhile is behind.
static bool plan_running(struct genai_engine *e, bool prompts)
{
	struct eng_seq *s = e->running;

	while (s) {
		struct eng_seq *next;

		if (prompts == (left_of(e, s) > 1) && !plan(e, s))
			return false;
		next = s->next;
		s = next;
	}
	return true;
}

// ---- guesses ----

// What followed the last tokens when they were there before: the latest place.
static size_t followed(const struct eng_seq *s, size_t length)
{
	const int64_t *end = s->ids + s->n - length;

	for (size_t at = s->n - length; length < s->n && at-- > 0;)
		if (!memcmp(s->ids + at, end, length * sizeof(*end)))
			return at + length;
	return s->n;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

// Rows that nobody else wants, in blocks that it has, are for tokens that may
// come next: each is right if the one before it is what was chosen.  So few
// that the steps are those that are recorded.
static void guess(struct genai_engine *e, struct eng_seq *s)
{
	struct eng_side *x = eng_plan(e);
	struct eng_part *p = eng_part(e, s);
	size_t from, most = e->speculation;

	if (p->add != 1 || s->computed + 1 != s->n || is_scored(s) ||
	    x->rows >= e->max_seqs)
		return;
	most = least(most, e->max_seqs - x->logit_rows);
	most = least(most, e->max_seqs - x->rows);
	most = least(most, e->m->context - s->n);
	most = least(most, (size_t)s->n_blocks * eng_block(e) - s->n);
	from = followed(s, e->likeness + 1);
	if (from == s->n)
		from = followed(s, e->likeness);
	for (; p->n_guess < most && from < s->n; from++)
		s->guess[p->n_guess++] = s->ids[from];
	p->add += p->n_guess;
	p->n_rows += p->n_guess;
	x->rows += p->n_guess;
	x->logit_rows += p->n_guess;
}

// ---- taking up ----

// A choice waits until the first one's prompt can be found.
static bool waits_for_first(const struct genai_engine *e,
			    const struct eng_seq *s)
{
	const struct eng_seq *first = &s->rq->seqs[0];

	return e->blocks && s != first && !first->ended &&
	       !(s->rq->flags & GENAI_REQUEST_NO_CACHE) &&
	       first->computed < s->rq->n_ids && !is_scored(first);
}

static uint32_t blocks_for(const struct genai_engine *e, size_t positions)
{
	return (uint32_t)((positions + eng_block(e) - 1) / eng_block(e));
}

// What is known of its beginning; the last token is always computed.
static void find_blocks(struct genai_engine *e, struct eng_seq *s)
{
	uint32_t n = (uint32_t)((s->n - 1) / eng_block(e));

	s->serial = s->rq->root;
	if (s->rq->flags & GENAI_REQUEST_NO_CACHE || is_scored(s))
		n = 0;
	s->n_blocks = s->n_kept = eng_blocks_find(
		e->blocks, s->rq->root, s->ids, n, s->blocks, &s->serial);
	s->computed = (size_t)s->n_blocks * eng_block(e);
}

static bool take_up(struct genai_engine *e, struct eng_seq *s)
{
	uint32_t need;

	if (e->blocks) {
		find_blocks(e, s);
		// room for what it has, and for the next token
		need = blocks_for(e, s->n < e->m->context ? s->n + 1 : s->n);
		if (e->running &&
		    need - s->n_blocks > eng_blocks_free(e->blocks)) {
			drop_blocks(e, s);
			return false;
		}
		eng_swap_in(e, s);
	} else {
		e->alone = NULL; // the session is another's
		s->computed = 0;
	}
	memset(s->part, 0, sizeof(s->part));
	take_out(&e->waiting, s);
	insert(&e->running, s);
	e->n_running++;
	if (!s->begun) {
		s->found = s->computed;
		eng_count(e, &e->stats.cached_tokens, s->computed);
		eng_count(e, &e->stats.prompt_tokens, s->rq->n_ids);
	}
	s->begun = true;
	eng_echo(e, s);
	return true;
}

static void begin_plan(struct genai_engine *e, uint32_t side)
{
	e->planned = side;
	eng_plan(e)->rows = eng_plan(e)->logit_rows = 0;
	for (struct eng_seq *s = e->running; s; s = s->next)
		*eng_part(e, s) = (struct eng_part){0};
}

static void plan_waiting(struct genai_engine *e)
{
	const struct eng_side *x = eng_plan(e);
	struct eng_seq *s, *next;

	for (s = e->waiting;
	     s && e->n_running < e->max_seqs && x->rows < e->m->chunk &&
	     x->logit_rows < e->max_seqs;
	     s = next) {
		next = s->next;
		if (!waits_for_first(e, s) && (!take_up(e, s) || !plan(e, s)))
			return;
	}
}

bool eng_schedule(struct genai_engine *e)
{
	begin_plan(e, e->turn);
	if (plan_running(e, false))
		plan_running(e, true);
	plan_waiting(e);
	for (struct eng_seq *s = e->running; s && e->speculation; s = s->next)
		guess(e, s);
	return eng_plan(e)->rows != 0;
}

bool eng_schedule_ahead(struct genai_engine *e)
{
	struct eng_seq *s;

	// guesses begin with the last token, and are worth more
	if (!e->blocks || e->speculation)
		return false;
	for (s = e->running; s; s = s->next)
		if (is_scored(s) || (gets_token(e, s) && !eng_is_likely(s)))
			return false;
	begin_plan(e, !e->turn);
	if (!plan_running(e, false) || !plan_running(e, true))
		return false;
	plan_waiting(e);
	return eng_plan(e)->rows != 0;
}

static void keep_blocks(struct genai_engine *e, struct eng_seq *s)
{
	size_t size = eng_block(e);

	for (; (s->n_kept + 1) * size <= s->computed; s->n_kept++)
		s->serial =
			eng_blocks_keep(e->blocks, s->blocks[s->n_kept],
					s->serial, s->ids + s->n_kept * size);
}

// What a position of a prompt takes, the latest ones above all.
static void note_position(struct genai_engine *e, uint64_t now, uint64_t rows,
			  bool more)
{
	uint64_t took = now - e->since_ns, at;
	double each;

	if (e->simulated) {
		at = eng_device_ns(e);
		took = at - e->begun_ns;
		e->begun_ns = at;
	}
	each = (double)took / (double)rows;
	if (more)
		e->position_ns = e->position_ns > 0
					 ? e->position_ns * .75 + each * .25
					 : each;
}

// With the lock: statistics of a step of x.
static void note_step(struct genai_engine *e, const struct eng_side *x,
		      bool more)
{
	uint64_t now = eng_now_ns(), rows = e->blocks ? x->padded : x->rows;
	struct genai_engine_steps *kind = e->stats.kinds;

	if (e->blocks)
		note_position(e, now, rows, more);

	for (uint64_t n = 1; n < rows && !more; n *= 2)
		kind++;
	if (more)
		kind = &e->stats.kinds[GENAI_STEP_KINDS - 1];
	kind->steps++;
	kind->rows += rows;
	kind->ns += now - e->since_ns;
	kind->waited_ns += e->waited_ns;
	e->since_ns = now;
	e->stats.steps++;
	e->stats.rows += x->rows;
	e->stats.padded_rows += rows - x->rows;
}

void eng_computed(struct genai_engine *e)
{
	const struct eng_side *x = &e->step.side[e->turn];
	bool more = false;

	for (struct eng_seq *s = e->running; s; s = s->next) {
		const struct eng_part *p = eng_now(e, s);

		more |= p->add > p->n_guess + 1;
		s->computed += p->add - p->n_guess;
		if (s->restored == e->turn + 1)
			s->restored = 0;
		if (e->blocks && p->add)
			keep_blocks(e, s);
	}
	pthread_mutex_lock(&e->lock);
	note_step(e, x, more);
	pthread_mutex_unlock(&e->lock);
}

void eng_remove(struct genai_engine *e, struct eng_seq *s)
{
	if (take_out(&e->running, s))
		e->n_running--;
	else
		take_out(&e->waiting, s);
	eng_swap_drop(e, s);
	if (e->blocks)
		drop_blocks(e, s);
	if (e->alone == s)
		e->alone = NULL;
}

void eng_void_swapped(struct genai_engine *e)
{
	struct eng_seq *s, *next;

	e->swap.n_moves = 0;
	for (s = e->waiting; s; s = s->next)
		eng_swap_drop(e, s);
	for (s = e->running; s; s = next) {
		next = s->next;
		if (!s->restored)
			continue;
		s->restored = 0;
		take_out(&e->running, s);
		e->n_running--;
		drop_blocks(e, s);
		insert(&e->waiting, s);
	}
}

void eng_start_over(struct genai_engine *e)
{
	struct eng_seq *s;

	eng_void_swapped(e);
	while ((s = e->running)) {
		take_out(&e->running, s);
		e->n_running--;
		if (e->blocks)
			drop_blocks(e, s);
		s->computed = 0;
		insert(&e->waiting, s);
	}
	e->alone = NULL;
	if (e->blocks)
		eng_blocks_forget(e->blocks);
}

// ---- sequences of a request ----

static int32_t open_seq(struct genai_engine *e, struct eng_request *rq,
			uint32_t choice, struct genai_error *err)
{
	struct eng_seq *s = &rq->seqs[choice];
	struct genai_sampling sampling = rq->sampling;
	int32_t rc;

	s->rq = rq;
	s->choice = choice;
	s->cap = rq->n_ids + 64;
	s->ids = malloc(s->cap * sizeof(*s->ids));
	if (e->blocks)
		s->blocks = calloc(e->m->packing.per_seq, sizeof(*s->blocks));
	if (!s->ids || (e->blocks && !s->blocks))
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	memcpy(s->ids, rq->ids, rq->n_ids * sizeof(*s->ids));
	s->n = rq->n_ids;
	sampling.seed += choice;
	rc = genai_sampler_open(
		&sampling, e->m->vocab, e->m->config.eos,
		rq->flags & GENAI_REQUEST_IGNORE_EOS ? 0 : e->m->config.n_eos,
		&s->sampler, err);
	if (!rc)
		rc = genai_sampler_accept(s->sampler, rq->ids, rq->n_ids, err);
	if (!rc && e->tok)
		rc = genai_detok_open(e->tok,
				      rq->flags & GENAI_REQUEST_KEEP_SPECIAL
					      ? GENAI_TOK_KEEP_SPECIAL
					      : 0,
				      &s->detok, err);
	return rc;
}

int32_t eng_begin(struct genai_engine *e, struct eng_request *rq,
		  struct genai_error *err)
{
	int32_t rc = 0;

	rq->seqs = calloc(rq->n, sizeof(*rq->seqs));
	if (!rq->seqs)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	for (uint32_t i = 0; !rc && i < rq->n; i++)
		rc = open_seq(e, rq, i, err);
	for (uint32_t i = 0; !rc && i < rq->n; i++)
		insert(&e->waiting, &rq->seqs[i]);
	return rc;
}
