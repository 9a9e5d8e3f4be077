/* engine.h - an engine, for the files that it is made of, each on those below:
 * engine.c    its life, its thread, statistics
 * request.c   what a request says, checked and copied; submit and cancel
 * schedule.c  which rows the next step computes
 * choose.c    from logits to tokens and text; when a sequence ends
 * step.c      a packed step on the device
 * fit.c       what an engine would take
 * alone.c     the same for a model whose sequences go one by one
 * events.c    what happened, on its way to whoever asks
 * blocks.c    the pool of blocks
 * swap.c      what preempted sequences computed, in host memory */
#ifndef GENAI_CORE_ENGINE_ENGINE_H
#define GENAI_CORE_ENGINE_ENGINE_H

#include <genai/engine.h>

#include <pthread.h>
#include <stdbool.h>

#include "core/base/error.h"
#include "core/engine/blocks.h"
#include "core/model/session.h"

#define ENG_TRIES 4 /* of a step that the device fails */
#define ENG_GUESSES 8
#define ENG_WARY 8 /* tokens, after one that was not what the device chose */

struct eng_request {
	struct eng_request *next; /* in incoming, or in live */
	struct genai_engine *e;
	uint64_t id, order;
	uint32_t flags, n, n_top, ended;
	int64_t max_tokens, min_tokens;
	int64_t *ids; /* the prompt */
	size_t n_ids;
	struct genai_sampling sampling;
	int64_t *stop_ids;
	size_t n_stop_ids;
	char **stops;
	size_t n_stops;
	struct genai_bias *bias;
	size_t n_bias;
	int32_t priority;
	uint64_t deadline_ns; /* of the monotonic clock; 0: none */
	uint64_t root;	      /* of its salt */
	void *user;
	int32_t (*allow)(void *ctx, uint32_t choice, const int64_t *ids,
			 size_t n, uint32_t *bits, struct genai_error *err);
	void *allow_ctx;
	bool begun;	      /* the thread has its sequences */
	bool cancelled;	      /* under the lock */
	struct eng_seq *seqs; /* n of them */
};

/* What a sequence has of a step. */
struct eng_part {
	uint32_t add; /* new positions, the last n_guess of them guessed */
	uint32_t n_guess, at; /* at: the first of its rows */
	uint32_t row, n_rows; /* the first of its rows of logits, how many */
	bool handed; /* its one row is of the token that the device chose in the
			step before */
};

/* A choice of a request. */
struct eng_seq {
	struct eng_request *rq;
	struct eng_seq *next; /* waiting or running, in order */
	uint32_t choice;
	int64_t *ids; /* the prompt and what came */
	size_t n, cap;
	size_t computed; /* of them, in the cache */
	size_t found;	 /* of the prompt, when it was first begun */
	uint32_t *blocks;
	uint32_t n_blocks, n_kept; /* kept: their serials are known */
	uint64_t serial;	   /* of the last one kept */
	uint32_t *slots; /* of host memory, for its blocks while it waits */
	uint32_t n_slots;
	size_t kept;	   /* positions in them */
	uint32_t restored; /* 1 + the step behind which what came back is there;
			      0: it is */
	struct genai_sampler *sampler;
	struct genai_detok *detok;
	char *text; /* not given out yet */
	size_t n_text, cap_text;
	bool begun, echoed, ended;
	size_t scored; /* ECHO with LOGPROBS: tokens of the prompt given */
	struct eng_part part[2]; /* of the two steps, see genai_engine.turn */
	int64_t guess[ENG_GUESSES];
	uint32_t wary; /* tokens that nobody counts on before they are known */
};

/* Device and pinned memory of packed steps (step.c). */
struct eng_step {
	struct genai_mem cache, in, logits; /* device */
	struct genai_mem best; /* tokens, and behind max_seqs of them, their
				  logits */
	uint64_t ids_at, rows_at, begins_at, positions_at, past_at, first_at,
		table_at; /* in in and stage */
	struct eng_side {
		struct genai_mem stage, out, host_logits; /* pinned */
		uint32_t rows, logit_rows;
		uint64_t padded; /* rows, as submitted */
		struct genai_point done;
		bool flying; /* submitted, and not waited for */
	} side[2];
};

/* Host memory for blocks that were given up (swap.c). */
struct eng_swap {
	uint64_t limit; /* bytes; 0: none */
	bool begun;	/* memory was taken, or there is none */
	bool always;	/* whatever is faster: for tests */
	struct genai_mem mem;
	uint32_t n, n_free, *free; /* slots */
	struct eng_move *moves;	   /* for the next step, in order */
	uint32_t n_moves, cap_moves;
	uint64_t block_ns; /* a block's way out and back */
};

struct eng_event {
	struct eng_event *next;
	struct genai_event ev;
};

struct genai_engine {
	struct genai_runtime *rt;
	struct genai_model *m;
	struct genai_session *session; /* one by one; else NULL */
	struct genai_tokenizer *tok;
	uint32_t max_seqs, max_requests;
	uint32_t speculation, likeness; /* a guess's last tokens, at least */
	char why[512];

	/* the thread's own */
	struct eng_blocks *blocks;
	struct eng_step step;
	struct eng_swap swap;
	struct eng_seq *waiting, *running; /* in order */
	struct eng_seq *alone;		   /* whose positions the session has */
	uint32_t n_running;
	/* Steps take turns: turn's is the one whose tokens are read next, the
	 * other one may be planned and submitted before that. */
	uint32_t turn, planned;
	float *wide;	/* a row of logits */
	uint32_t *bits; /* of ids that may come next */
	uint32_t tries;
	bool simulated;		      /* the device has a clock of its own */
	double position_ns;	      /* of a prompt, by the device's clock */
	uint64_t begun_ns;	      /* of the step under way, by that clock */
	uint64_t since_ns, waited_ns; /* statistics: the end of the last step,
					 or of idleness; for turn's step */

	pthread_mutex_t device; /* held while the runtime is used */
	pthread_mutex_t lock;	/* what follows; may be taken with device */
	pthread_cond_t work;	/* for the thread */
	struct eng_request *incoming, *live; /* live: all not ended */
	struct eng_request **incoming_end;
	uint32_t n_live;
	uint64_t last_id;
	struct eng_salts salts;
	bool closing, check; /* check: something was cancelled */
	struct genai_engine_stats stats;
	struct genai_stats kept; /* the model's, as of kept_ns */
	uint64_t kept_ns;

	pthread_mutex_t events_lock;
	pthread_cond_t events_there;
	struct eng_event *first_event, **events_end, *given;
	int fd;

	pthread_t thread;
	bool has_thread;
};

/* Of the step that is planned; of the one whose tokens come next. */
static inline struct eng_side *eng_plan(struct genai_engine *e)
{
	return &e->step.side[e->planned];
}

static inline struct eng_part *eng_part(const struct genai_engine *e,
					struct eng_seq *s)
{
	return &s->part[e->planned];
}

static inline struct eng_part *eng_now(const struct genai_engine *e,
				       struct eng_seq *s)
{
	return &s->part[e->turn];
}

static inline bool eng_is_ahead(const struct genai_engine *e)
{
	return e->planned != e->turn;
}

/* Positions of a sequence that the planned step finds in the cache. */
static inline size_t eng_past(const struct genai_engine *e, struct eng_seq *s)
{
	return s->computed + (eng_is_ahead(e) ? eng_now(e, s)->add : 0);
}

static inline uint32_t eng_block(const struct genai_engine *e)
{
	return e->m->packing.block;
}

uint64_t eng_now_ns(void);

/* ---- engine.c ---- */

int32_t eng_check_options(const struct genai_engine_options *o,
			  struct genai_error *err);
/* Options for the steps of packed models. */
struct genai_packing eng_packing(const struct genai_engine_options *o);

/* Statistics: n more of what. */
static inline void eng_count(struct genai_engine *e, uint64_t *what, uint64_t n)
{
	pthread_mutex_lock(&e->lock);
	*what += n;
	pthread_mutex_unlock(&e->lock);
}

/* ---- request.c ---- */
void eng_request_free(struct eng_request *rq);

/* ---- schedule.c ---- */

/* Take up the sequences of a request. */
int32_t eng_begin(struct genai_engine *e, struct eng_request *rq,
		  struct genai_error *err);
/* Choose the rows of turn's step: parts of the running ones.  False: there are
 * none. */
bool eng_schedule(struct genai_engine *e);
/* The same for the step behind turn's, which is under way.  False: there is
 * none yet, because it needs tokens that the host chooses, or blocks that
 * somebody would have to give up, or there are no rows. */
bool eng_schedule_ahead(struct genai_engine *e);
/* After the step: the positions are there, full blocks can be found. */
void eng_computed(struct genai_engine *e);
/* Out of all lists; blocks given back. */
void eng_remove(struct genai_engine *e, struct eng_seq *s);
/* A step failed: what was on its way to host memory or back is void. */
void eng_void_swapped(struct genai_engine *e);
/* The blocks of all running ones are void, and so is what is cached. */
void eng_start_over(struct genai_engine *e);

/* ---- choose.c ---- */

/* Does the device's choice do for its next token, without logits? */
bool eng_is_best(const struct eng_seq *s);
/* Is the device's choice likely to be its next token? */
bool eng_is_likely(const struct eng_seq *s);
/* Does its next token end it, whichever it is? */
bool eng_ends_next(const struct genai_engine *e, const struct eng_seq *s);
/* A step was computed: tokens, text, ends of all sequences in it. */
void eng_choose(struct genai_engine *e);
/* End a sequence; code and text of err with GENAI_FINISH_ERROR. */
void eng_end(struct genai_engine *e, struct eng_seq *s, uint32_t finish,
	     const char *stop, const struct genai_error *err);
/* ECHO without LOGPROBS: the prompt's tokens, once. */
void eng_echo(struct genai_engine *e, struct eng_seq *s);

/* ---- step.c ---- */

int32_t eng_step_open(struct genai_engine *e, struct genai_error *err);
/* Device memory of it beside the cache; bytes that a step copies, and how
 * often.
 */
uint64_t eng_step_bytes(const struct genai_model *m, uint64_t *out_copied,
			uint32_t *out_copies);
void eng_step_close(struct genai_engine *e, const struct genai_ticket *ticket,
		    int32_t *rc, struct genai_error *err);
/* Submit the planned step. */
int32_t eng_step_submit(struct genai_engine *e, struct genai_error *err);
/* Wait for turn's step.  What follows is of it. */
int32_t eng_step_wait(struct genai_engine *e, struct genai_error *err);
/* The most probable token of a row and its logit. */
int64_t eng_step_best(const struct genai_engine *e, uint32_t row,
		      float *out_logit);
/* A row of logits in e->wide. */
void eng_step_logits(struct genai_engine *e, uint32_t row);

/* ---- swap.c ---- */

/* Errors: GENAI_E_CONFIG. */
int32_t eng_swap_open(struct genai_engine *e, struct genai_error *err);
/* What is not the device's. */
void eng_swap_close(struct genai_engine *e);
/* Time of the device's own clock, if it has one. */
uint64_t eng_device_ns(const struct genai_engine *e);
/* Before it gives up its blocks: keep what they hold, if there is room and it
 * is faster than to compute it again. */
void eng_swap_out(struct genai_engine *e, struct eng_seq *s);
/* Behind the blocks that it has, take others for what was kept. */
void eng_swap_in(struct genai_engine *e, struct eng_seq *s);
/* What was kept is not needed, or void. */
void eng_swap_drop(struct genai_engine *e, struct eng_seq *s);
/* The copies of what was decided, before the step that relies on them. */
int32_t eng_swap_submit(struct genai_engine *e, struct genai_error *err);

/* ---- alone.c ---- */

int32_t eng_alone_run(struct genai_engine *e, struct genai_error *err);

/* ---- events.c ---- */

int32_t eng_events_open(struct genai_engine *e, struct genai_error *err);
void eng_events_close(struct genai_engine *e);
/* Text, top and error are copied.  Out of memory: the event is lost, but for
 * its end, which comes without text. */
void eng_event(struct genai_engine *e, const struct genai_event *ev);

#endif
