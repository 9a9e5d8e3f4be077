// engine.c - an engine's life, its thread, its statistics.
#include "core/engine/engine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/recover.h"

#define DEFAULT_SEQS 16
#define DEFAULT_BLOCK 32
#define DEFAULT_REQUESTS 4096
#define LIKENESS 2
#define KEPT_NS UINT64_C(100000000) // how old statistics get in a busy engine

uint64_t eng_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

// ---- requests that come and go ----

static void end_all(struct genai_engine *e, struct eng_request *rq,
		    uint32_t finish, const struct genai_error *err)
{
	for (uint32_t i = 0; i < rq->n; i++)
		if (!rq->seqs[i].ended)
			eng_end(e, &rq->seqs[i], finish, NULL, err);
}

// No memory for its sequences: nothing of it ran.
static void refuse(struct genai_engine *e, struct eng_request *rq,
		   const struct genai_error *err)
{
	struct genai_event ev = {.kind = GENAI_EVENT_DONE,
				 .request = rq->id,
				 .user = rq->user,
				 .finish = GENAI_FINISH_ERROR,
				 .id = -1,
				 .error = err->text,
				 .code = err->code};

	for (uint32_t i = 0; rq->seqs && i < rq->n; i++)
		eng_remove(e, &rq->seqs[i]);
	for (uint32_t i = 0; i < rq->n; i++) {
		ev.choice = i;
		ev.last = i + 1 == rq->n;
		eng_event(e, &ev);
	}
	rq->ended = rq->n;
}

static void take_incoming(struct genai_engine *e)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct eng_request *rq;

	for (;;) {
		pthread_mutex_lock(&e->lock);
		rq = e->incoming;
		if (rq) {
			e->incoming = rq->next;
			if (!e->incoming)
				e->incoming_end = &e->incoming;
			rq->next = e->live;
			e->live = rq;
		}
		pthread_mutex_unlock(&e->lock);
		if (!rq)
			return;
		if (eng_begin(e, rq, &err))
			refuse(e, rq, &err);
		rq->begun = true;
	}
}

// Cancelled, too late: ended here.  Those of which all has ended go.
static void sweep(struct genai_engine *e)
{
	struct eng_request **at = &e->live, *rq, *gone = NULL;
	uint64_t now = eng_now_ns();

	for (rq = e->live; rq; rq = rq->next) {
		bool cancelled;

		pthread_mutex_lock(&e->lock);
		cancelled = rq->cancelled;
		pthread_mutex_unlock(&e->lock);
		if (cancelled)
			end_all(e, rq, GENAI_FINISH_CANCELLED, NULL);
		else if (rq->deadline_ns && rq->deadline_ns <= now)
			end_all(e, rq, GENAI_FINISH_DEADLINE, NULL);
	}
	pthread_mutex_lock(&e->lock);
	while ((rq = *at)) {
		if (rq->ended < rq->n) {
			at = &rq->next;
			continue;
		}
		*at = rq->next;
		rq->next = gone;
		gone = rq;
		e->n_live--;
	}
	e->check = false;
	pthread_mutex_unlock(&e->lock);
	while ((rq = gone)) {
		gone = rq->next;
		eng_request_free(rq);
	}
}

static void note(struct genai_engine *e)
{
	struct genai_engine_stats *st = &e->stats;
	uint32_t waiting = 0;

	for (struct eng_seq *s = e->waiting; s; s = s->next)
		waiting++;
	pthread_mutex_lock(&e->lock);
	st->waiting = waiting;
	st->running = e->n_running;
	if (e->blocks) {
		st->blocks_used = st->blocks - eng_blocks_free(e->blocks);
		st->blocks_cached = eng_blocks_cached(e->blocks);
	}
	pthread_mutex_unlock(&e->lock);
}

// ---- steps ----

// What was computed stays: a step writes behind it only.
static int32_t recover(struct genai_engine *e, struct genai_error *err)
{
	int32_t rc = 0;

	if (e->blocks) {
		rc = genai_recover(e->rt, NULL, err);
	} else {
		rc = session_mend(e->session, err);
		e->alone = NULL;
		for (struct eng_seq *s = e->running; s; s = s->next)
			s->computed = 0;
	}
	return rc;
}

// The device goes on failing, or is lost.
static void give_up(struct genai_engine *e, const struct genai_error *why,
		    bool lost)
{
	struct eng_request *rq;

	genai_log_line(&e->rt->log, GENAI_LOG_ERROR, "%s: %s", e->m->folder,
		       why->text);
	// whoever hears of an end can rely on it
	pthread_mutex_lock(&e->lock);
	e->stats.healthy = !lost;
	pthread_mutex_unlock(&e->lock);
	eng_start_over(e);
	for (rq = e->live; rq; rq = rq->next)
		end_all(e, rq, GENAI_FINISH_ERROR, why);
}

static void failed(struct genai_engine *e, const struct genai_error *why)
{
	struct genai_error err = GENAI_ERROR_INIT;

	// what ran ahead is void, too
	e->step.side[0].flying = e->step.side[1].flying = false;
	eng_void_swapped(e);
	eng_count(e, &e->stats.device_errors, 1);
	if (recover(e, &err))
		give_up(e, why, true);
	else if (++e->tries >= ENG_TRIES) {
		// a reset does not help it
		give_up(e, why, why->code == GENAI_E_DEVICE);
		e->tries = 0;
	}
}

// The step whose turn it is, and before its tokens are read, if it can be, the
// next one submitted.
static int32_t run_step(struct genai_engine *e, struct genai_error *err)
{
	int32_t rc = 0;

	e->waited_ns = 0;
	if (!e->blocks)
		return eng_alone_run(e, err);
	if (!e->step.side[e->turn].flying)
		rc = eng_step_submit(e, err);
	if (!rc && eng_schedule_ahead(e)) {
		rc = eng_step_submit(e, err);
		eng_count(e, &e->stats.ahead, !rc);
	}
	e->waited_ns = eng_now_ns();
	if (!rc)
		rc = eng_step_wait(e, err);
	e->waited_ns = eng_now_ns() - e->waited_ns;
	return rc;
}

// With the device's lock: what whoever asks during a step is told.
static int32_t keep_stats(struct genai_engine *e, struct genai_error *err)
{
	struct genai_stats st = {.size = sizeof(st)};
	int32_t rc = genai_model_get_stats(e->m, &st, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&e->lock);
	e->kept = st;
	pthread_mutex_unlock(&e->lock);
	e->kept_ns = eng_now_ns();
	return 0;
}

static bool step(struct genai_engine *e)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc;

	pthread_mutex_lock(&e->device);
	if (!e->step.side[e->turn].flying && !eng_schedule(e)) {
		pthread_mutex_unlock(&e->device);
		return false;
	}
	rc = run_step(e, &err);
	if (!rc) {
		e->tries = 0;
		eng_computed(e);
		eng_choose(e);
		if (e->blocks)
			e->turn = !e->turn;
	} else {
		failed(e, &err);
	}
	if (eng_now_ns() - e->kept_ns >= KEPT_NS)
		keep_stats(e, NULL);
	pthread_mutex_unlock(&e->device);
	return true;
}

// The earliest deadline, 0: none.
static uint64_t deadline(const struct genai_engine *e)
{
	uint64_t first = 0;

	for (const struct eng_request *rq = e->live; rq; rq = rq->next)
		if (rq->deadline_ns && (!first || rq->deadline_ns < first))
			first = rq->deadline_ns;
	return first;
}

// Nothing to do until something comes.
static void idle(struct genai_engine *e)
{
	uint64_t until = deadline(e);
	struct timespec t = {(time_t)(until / 1000000000),
			     (long)(until % 1000000000)};

	pthread_mutex_lock(&e->lock);
	if (!e->closing && !e->incoming && !e->check) {
		if (until)
			pthread_cond_timedwait(&e->work, &e->lock, &t);
		else
			pthread_cond_wait(&e->work, &e->lock);
	}
	pthread_mutex_unlock(&e->lock);
}

static bool is_closing(struct genai_engine *e)
{
	bool closing;

	pthread_mutex_lock(&e->lock);
	closing = e->closing;
	pthread_mutex_unlock(&e->lock);
	return closing;
}

static void *run(void *arg)
{
	struct genai_engine *e = arg;

	e->since_ns = eng_now_ns();
	while (!is_closing(e)) {
		bool busy;

		take_incoming(e);
		sweep(e);
		busy = step(e);
		sweep(e);
		note(e);
		if (busy)
			continue;
		idle(e);
		e->since_ns = eng_now_ns();
	}
	return NULL;
}

// ---- life ----

int32_t eng_check_options(const struct genai_engine_options *o,
			  struct genai_error *err)
{
	if (!GENAI_HAS(o, max_requests) ||
	    !genai_options_known(o, sizeof(*o)) || o->flags)
		return genai_fail(err, GENAI_E_INVAL,
				  "engine options: size %u, flags %#x", o->size,
				  o->flags);
	if (o->max_sequences > GENAI_MAX_SEQS)
		return genai_fail(err, GENAI_E_INVAL,
				  "engine options: max_sequences is %u: at "
				  "most %d",
				  o->max_sequences, GENAI_MAX_SEQS);
	if (o->block_positions > 4096)
		return genai_fail(err, GENAI_E_INVAL,
				  "engine options: block_positions is %u: at "
				  "most 4096",
				  o->block_positions);
	if (GENAI_HAS(o, speculation) && o->speculation > ENG_GUESSES)
		return genai_fail(err, GENAI_E_INVAL,
				  "engine options: speculation is %u: at most "
				  "%d",
				  o->speculation, ENG_GUESSES);
	if (GENAI_HAS(o, reserved) && o->reserved)
		return genai_fail(err, GENAI_E_INVAL,
				  "engine options: reserved is %u: 0",
				  o->reserved);
	return 0;
}

struct genai_packing eng_packing(const struct genai_engine_options *o)
{
	return (struct genai_packing){
		.seqs = o->max_sequences ? o->max_sequences : DEFAULT_SEQS,
		.block =
			o->block_positions ? o->block_positions : DEFAULT_BLOCK,
		.blocks = o->max_blocks};
}

// One by one, because of why.
static int32_t open_alone(struct genai_engine *e, const char *path,
			  const struct genai_error *why,
			  struct genai_error *err)
{
	int32_t rc = genai_model_open(e->rt, path, NULL, &e->m, err);

	if (!rc)
		rc = genai_session_open(e->m, &e->session, err);
	if (rc)
		return rc;
	e->max_seqs = 1;
	e->speculation = 0;
	snprintf(e->why, sizeof(e->why), "%s", why->text);
	genai_log_line(&e->rt->log, GENAI_LOG_WARN,
		       "%s: requests are computed one by one: %s", e->m->folder,
		       e->why);
	return 0;
}

// Where a sweep over the weights is bound by the link, rows cost nothing.
static void choose_speculation(struct genai_engine *e)
{
	const struct genai_pager_report *r = &e->m->paging.report;
	const char *say =
		genai_config_get(e->rt->config, "runtime", "speculation");

	if (e->speculation)
		return; // options say it
	if (!strcmp(say, "auto"))
		e->speculation = r->streamed_bytes ? ENG_GUESSES : 0;
	else if (strcmp(say, "off") != 0)
		e->speculation = (uint32_t)strtoul(say, NULL, 10);
}

static int32_t open_packed(struct genai_engine *e, const char *path,
			   const struct genai_engine_options *o,
			   struct genai_error *err)
{
	struct genai_packing k = eng_packing(o);
	int32_t rc = genai_model_open_packed(e->rt, path, &k, &e->m, err);

	if (rc)
		return rc;
	k = e->m->packing;
	e->max_seqs = k.seqs;
	choose_speculation(e);
	rc = eng_swap_open(e, err);
	if (!rc)
		rc = eng_step_open(e, err);
	if (rc)
		return rc;
	e->blocks = eng_blocks_open(k.blocks, k.block);
	e->stats.blocks = k.blocks;
	return e->blocks ? 0 : genai_fail(err, GENAI_E_NOMEM, "no memory");
}

static int32_t open_model(struct genai_engine *e, const char *path,
			  const struct genai_engine_options *o,
			  struct genai_error *err)
{
	struct genai_error why = GENAI_ERROR_INIT, no = GENAI_ERROR_INIT;
	const char *given = GENAI_HAS(o, tokenizer) ? o->tokenizer : NULL;
	int32_t rc = open_packed(e, path, o, &why);

	if (rc == GENAI_E_UNSUPPORTED)
		rc = open_alone(e, path, &why, err);
	else if (rc && err)
		*err = why;
	if (rc)
		return rc;
	rc = genai_tokenizer_open(given ? given : e->m->folder, &e->tok, &no);
	if (rc == GENAI_E_NOTFOUND && !given)
		rc = 0;
	else if (rc && err)
		*err = no;
	e->wide = calloc(e->m->vocab, sizeof(*e->wide));
	e->bits = calloc(e->m->vocab / 32 + 1, sizeof(*e->bits));
	if (!rc && (!e->wide || !e->bits))
		rc = genai_fail(err, GENAI_E_NOMEM, "no memory");
	return rc;
}

static int32_t start(struct genai_engine *e, struct genai_error *err)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&e->thread, NULL, run, e);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	e->has_thread = !rc;
	return rc ? genai_fail(err, GENAI_E_NOMEM, "an engine's thread: %s",
			       strerror(rc))
		  : 0;
}

static void make_locks(struct genai_engine *e)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&e->device, NULL);
	pthread_mutex_init(&e->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&e->work, &attr);
	pthread_condattr_destroy(&attr);
}

int32_t genai_engine_open(struct genai_runtime *rt, const char *path,
			  const struct genai_engine_options *options,
			  struct genai_engine **out_e, struct genai_error *err)
{
	struct genai_engine_options none = {.size = sizeof(none)};
	const struct genai_engine_options *o = options ? options : &none;
	struct genai_engine *e;
	int32_t rc;

	if (!rt)
		return genai_fail(err, GENAI_E_INVAL, "there is no runtime");
	rc = eng_check_options(o, err);
	if (rc)
		return rc;
	e = calloc(1, sizeof(*e));
	if (!e)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	e->rt = rt;
	e->incoming_end = &e->incoming;
	e->likeness = LIKENESS;
	e->speculation = GENAI_HAS(o, speculation) ? o->speculation : 0;
	e->max_requests = o->max_requests ? o->max_requests : DEFAULT_REQUESTS;
	e->stats.size = sizeof(e->stats);
	e->stats.healthy = 1;
	make_locks(e);
	rc = eng_events_open(e, err);
	if (!rc)
		rc = open_model(e, path, o, err);
	if (!rc)
		rc = keep_stats(e, err);
	if (!rc)
		rc = start(e, err);
	if (rc)
		genai_engine_close(e);
	else
		*out_e = e;
	return rc;
}

static void close_model(struct genai_engine *e)
{
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc;

	if (!e->m)
		return;
	if (e->m->packing.seqs) {
		rc = genai_device_drain(&e->rt->device, &ticket, &err);
		// its recordings name our memory
		if (!rc && e->m->plan)
			rc = e->rt->exec.plan_destroy(e->m->plan, &ticket,
						      &err);
		e->m->plan = NULL;
		eng_step_close(e, &ticket, &rc, &err);
		if (rc)
			genai_log_line(&e->rt->log, GENAI_LOG_ERROR,
				       "closing an engine: %s", err.text);
	}
	genai_session_close(e->session);
	genai_model_close(e->m);
}

static void free_list(struct eng_request *rq)
{
	while (rq) {
		struct eng_request *next = rq->next;

		eng_request_free(rq);
		rq = next;
	}
}

void genai_engine_close(struct genai_engine *e)
{
	if (!e)
		return;
	if (e->has_thread && !genai_device_forked(&e->rt->device, NULL)) {
		pthread_mutex_lock(&e->lock);
		e->closing = true;
		pthread_cond_signal(&e->work);
		pthread_mutex_unlock(&e->lock);
		pthread_join(e->thread, NULL);
	}
	close_model(e);
	free_list(e->incoming);
	free_list(e->live);
	eng_blocks_close(e->blocks);
	eng_salts_close(&e->salts);
	genai_tokenizer_close(e->tok);
	eng_events_close(e);
	pthread_cond_destroy(&e->work);
	pthread_mutex_destroy(&e->lock);
	pthread_mutex_destroy(&e->device);
	eng_swap_close(e);
	free(e->wide);
	free(e->bits);
	free(e);
}

// ---- what is asked ----

int32_t genai_engine_get_info(const struct genai_engine *e,
			      struct genai_engine_info *out)
{
	struct genai_engine_info i = {.size = sizeof(i),
				      .packed = e->blocks != NULL,
				      .max_sequences = e->max_seqs,
				      .block_positions = e->m->packing.block,
				      .blocks = e->m->packing.blocks,
				      .context = e->m->context,
				      .why = e->why};

	genai_struct_give(out, &i);
	return 0;
}

int32_t genai_engine_get_model_info(const struct genai_engine *e,
				    struct genai_model_info *out)
{
	return genai_model_get_info(e->m, out);
}

int32_t genai_engine_get_model_stats(struct genai_engine *e,
				     struct genai_stats *out,
				     struct genai_error *err)
{
	int32_t rc = genai_device_forked(&e->rt->device, err);

	if (!GENAI_HAS(out, n_fallbacks))
		return genai_fail(err, GENAI_E_INVAL,
				  "stats of %u bytes: set the size first",
				  out->size);
	// during a step, what was kept
	if (!rc && !pthread_mutex_trylock(&e->device)) {
		rc = keep_stats(e, err);
		pthread_mutex_unlock(&e->device);
	}
	if (rc)
		return rc;
	pthread_mutex_lock(&e->lock);
	genai_struct_give(out, &e->kept);
	pthread_mutex_unlock(&e->lock);
	return 0;
}

int32_t genai_engine_get_tokenizer(const struct genai_engine *e,
				   const struct genai_tokenizer **out_tok)
{
	*out_tok = e->tok;
	return 0;
}

int32_t genai_engine_get_stats(struct genai_engine *e,
			       struct genai_engine_stats *out)
{
	struct genai_engine_stats st;

	pthread_mutex_lock(&e->lock);
	st = e->stats;
	pthread_mutex_unlock(&e->lock);
	genai_struct_give(out, &st);
	return 0;
}
