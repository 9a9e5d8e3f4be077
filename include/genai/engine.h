/* genai/engine.h - many requests at once on one model.
 * Owns: a model, its cache in blocks, a queue, the thread that computes.  Does
 * not know: sockets, chat templates.
 *
 * A step computes rows of many sequences, so that each weight is read once for
 * all of them.  A sequence gets the same tokens alone or among others, whatever
 * arrives, leaves, is cancelled or recomputed beside it.
 *
 * Threads: from open to close the runtime belongs to the engine, whose one
 * thread uses the device.  submit, cancel, the statistics and what only reads
 * may be called from any thread, at once; events are taken by one thread at a
 * time.  open and close: by one thread, when no other call is going on. */
#ifndef GENAI_ENGINE_H
#define GENAI_ENGINE_H

#include <genai/genai.h>
#include <genai/text.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct genai_engine;

/* ---- life ---- */

struct genai_engine_options {
	uint32_t size;
	uint32_t flags;		  /* 0 */
	uint32_t max_sequences;	  /* that share a step: 1...128; 0: 16 */
	uint32_t block_positions; /* of a block of the cache: 1...4096; 0: 32 */
	uint32_t max_blocks;	  /* 0: what device_limit has room for */
	uint32_t max_requests;	  /* not finished at a time; 0: 4096 */
	uint32_t speculation;	  /* tokens that are guessed from the text so
				     far and computed along, at most; 0: as
				     [runtime] speculation says; 1...8.
				     The answer is the one without it. */
	uint32_t reserved;	  /* 0 */
	/* The folder of the tokenizer.  NULL: the model's, if it has one. */
	const char *tokenizer;
};

/* Open a model folder (or a .onnx file in one) for many requests: plan it,
 * place its weights, take the cache, start the thread.  Where sequences cannot
 * share a step (a state that every step replaces, an executor without
 * PagedAttention) they are computed one by one; that is logged, and
 * get_info says why.  options may be NULL.  Blocks: as genai_model_open.
 * Errors: those of genai_model_open; GENAI_E_INVAL for options. */
int32_t genai_engine_open(struct genai_runtime *rt, const char *path,
			  const struct genai_engine_options *options,
			  struct genai_engine **out_engine,
			  struct genai_error *err);
/* Stop after the step that is going on, and give everything back.  Requests
 * that are not finished end without an event.  NULL is allowed. */
void genai_engine_close(struct genai_engine *engine);

/* What an engine with these options would take, and a step of a token of each
 * of max_sequences, none of them guessed; before any weights are read.
 * cache_bytes is all of the pool, which has cache_positions: less than
 * max_sequences contexts where memory has no room for them.  least_bytes is
 * what all but weights takes. Where sequences cannot share a step it is that of
 * a session, sequences is 1, and the reason is logged.  options may be NULL.
 * Errors: those of genai_engine_open. */
int32_t genai_engine_fit(struct genai_runtime *rt, const char *path,
			 const struct genai_engine_options *options,
			 struct genai_fit *out_fit, struct genai_error *err);

struct genai_engine_info {
	uint32_t size;
	uint32_t packed;	  /* 1: sequences share steps; 0: one by one */
	uint32_t max_sequences;	  /* 1 if not packed */
	uint32_t block_positions; /* 0 if not packed */
	uint32_t blocks;	  /* of the pool; 0 if not packed */
	uint32_t reserved;
	uint64_t context; /* positions of the longest sequence */
	const char *why;  /* not packed: the reason; else ""; the engine's */
};
int32_t genai_engine_get_info(const struct genai_engine *engine,
			      struct genai_engine_info *out_info);
/* As genai_model_get_info and genai_model_get_stats.  During a step the latter
 * are those of a tenth of a second ago, or of the step before; nothing waits.
 */
int32_t genai_engine_get_model_info(const struct genai_engine *engine,
				    struct genai_model_info *out_info);
int32_t genai_engine_get_model_stats(struct genai_engine *engine,
				     struct genai_stats *out_stats,
				     struct genai_error *err);
/* The model's tokenizer, which is the engine's; NULL if its folder has none
 * (then requests are ids, and events have no text). */
int32_t genai_engine_get_tokenizer(const struct genai_engine *engine,
				   const struct genai_tokenizer **out_tok);

/* ---- requests ---- */

#define GENAI_REQUEST_ECHO 1u	      /* events of the prompt's tokens first */
#define GENAI_REQUEST_IGNORE_EOS 2u   /* go on behind the end of text */
#define GENAI_REQUEST_KEEP_SPECIAL 4u /* special tokens are text, too */
#define GENAI_REQUEST_LOGPROBS 8u     /* logprob and top of every token */
#define GENAI_REQUEST_NO_SPECIAL 16u  /* text: no special tokens are added */
#define GENAI_REQUEST_NO_CACHE 32u    /* compute all of the prompt */

struct genai_bias {
	int64_t id;
	float bias; /* added to the logit: -100...100, or -INFINITY */
	uint32_t reserved;
};

/* Begin with GENAI_REQUEST_INIT.  All of it is copied. */
struct genai_request {
	uint32_t size;
	uint32_t flags; /* GENAI_REQUEST_* */
	/* The prompt: ids, or text for the tokenizer. */
	const int64_t *ids;
	size_t n_ids;
	const char *text; /* where ids is NULL */
	size_t text_bytes;
	/* NULL: the most probable token.  The seed of choice c is seed + c. */
	const struct genai_sampling *sampling;
	uint32_t n;	    /* choices, 1...128 */
	uint32_t n_top;	    /* LOGPROBS: alternatives of each token, 0...20 */
	int64_t max_tokens; /* new ones; -1: what the context has room for */
	int64_t min_tokens; /* no end of text, no stop id before so many */
	const int64_t *stop_ids;  /* each ends the text, as end of text does */
	size_t n_stop_ids;	  /* 0...64 */
	const char *const *stops; /* texts: the answer ends before the first */
	size_t n_stops;		  /* 0...64 */
	const struct genai_bias *bias; /* before everything of sampling */
	size_t n_bias;		       /* 0...vocabulary */
	int32_t priority;	       /* higher ones first */
	uint32_t deadline_ms;	       /* from submit; 0: none */
	/* What was computed for one salt is found by requests with the same
	 * only.  NULL: "". */
	const char *salt;
	void *user; /* comes back with events */
	/* Which ids may come next: a bit each in out_bits, that of id 0 the
	 * lowest of the first word.  Called by the engine's thread before every
	 * token of a choice, with the new ones so far, until the request's last
	 * event; not 0: the choice ends with that error.  NULL: all. */
	int32_t (*allow)(void *allow_ctx, uint32_t choice, const int64_t *ids,
			 size_t n, uint32_t *out_bits, struct genai_error *err);
	void *allow_ctx;
};
#define GENAI_REQUEST_INIT                                                     \
	{                                                                      \
		(uint32_t)sizeof(struct genai_request), 0, 0, 0, 0, 0, 0, 1,   \
			0, 256, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0          \
	}

/* Queue a request; *out_id is its number, never 0 and never given again.
 * Blocks: no (text is tokenized here).
 * Errors: GENAI_E_INVAL, naming the field, its value and its range;
 * GENAI_E_LIMIT: a prompt that leaves no room in the context, with both
 * numbers; GENAI_E_BUSY: max_requests are not finished; GENAI_E_DEVICE: the
 * device was lost. */
int32_t genai_engine_submit(struct genai_engine *engine,
			    const struct genai_request *request,
			    uint64_t *out_id, struct genai_error *err);
/* End a request within one step; its choices end with GENAI_FINISH_CANCELLED.
 * One that is finished, or never was, is left alone. */
int32_t genai_engine_cancel(struct genai_engine *engine, uint64_t id,
			    struct genai_error *err);

/* ---- events ---- */

#define GENAI_EVENT_PROMPT 1u /* ECHO: a token of the prompt */
#define GENAI_EVENT_TOKEN 2u
#define GENAI_EVENT_DONE 3u /* the last one of a choice */

#define GENAI_FINISH_EOS 1u	  /* end of text, or a stop id */
#define GENAI_FINISH_STOP 2u	  /* a stop text */
#define GENAI_FINISH_LENGTH 3u	  /* max_tokens, or the context is full */
#define GENAI_FINISH_CANCELLED 4u /* by cancel */
#define GENAI_FINISH_DEADLINE 5u  /* its deadline came */
#define GENAI_FINISH_ERROR 6u	  /* code and error say why */

struct genai_top {
	int64_t id;
	float logprob;
	uint32_t reserved;
};

/* What happened.  Pointers are valid until the next event is taken.
 *
 * text is what a token completes: whole characters, held back while a stop text
 * may have begun, the rest with DONE.  All texts of a choice in order are its
 * answer (behind its prompt, with ECHO).  logprob is that of the model, before
 * bias and sampling; 0 without LOGPROBS and for the first token of a prompt. */
struct genai_event {
	uint32_t size;
	uint32_t kind; /* GENAI_EVENT_* */
	uint64_t request;
	void *user;
	uint32_t choice;
	uint32_t finish; /* DONE: GENAI_FINISH_* */
	int64_t id;	 /* -1 with DONE */
	const char *text;
	size_t text_bytes;
	float logprob;
	uint32_t n_top;
	const struct genai_top *top; /* best first; may lack the token itself */
	/* DONE */
	uint64_t n_prompt, n_new; /* tokens */
	uint64_t n_cached; /* of the prompt, found when it was first begun */
	const char *stop;  /* the stop text that was met; else NULL */
	const char *error; /* one line; else NULL */
	int32_t code;	   /* GENAI_E_*; else 0 */
	uint32_t last;	   /* 1: all choices of the request have ended */
};

/* The next event: 0, or GENAI_PENDING if there is none within timeout_ms (0: do
 * not wait; -1: for ever).  Order: of one choice as it happened. */
int32_t genai_engine_next(struct genai_engine *engine, int32_t timeout_ms,
			  struct genai_event *out_event,
			  struct genai_error *err);
/* A file descriptor that is readable while there are events; for poll only. */
int32_t genai_engine_fd(const struct genai_engine *engine);

/* ---- statistics ---- */

/* Steps of one kind. */
struct genai_engine_steps {
	uint64_t steps, rows; /* padded ones, too */
	uint64_t ns; /* from the end of the step before, or since there was
			something to do, to its end */
	uint64_t waited_ns; /* of that, the engine's thread for the device */
};
#define GENAI_STEP_KINDS 9

struct genai_engine_stats {
	uint32_t size;
	uint32_t healthy;	   /* 0: the device was lost */
	uint32_t waiting, running; /* sequences */
	uint32_t blocks, blocks_used,
		blocks_cached; /* cached: not in use, but
				  their content is known */
	uint32_t reserved;
	uint64_t device_errors; /* steps that failed and were done again */
	uint64_t submitted, finished; /* requests */
	uint64_t steps, rows, padded_rows;
	uint64_t prompt_tokens, cached_tokens, new_tokens;
	uint64_t preemptions; /* sequences that gave up their blocks */
	uint64_t guessed, guessed_right; /* tokens, by speculation */
	uint64_t ahead; /* steps submitted before the tokens of the one before
			   were read */
	/* [k]: those of newest tokens and guesses alone, 2^k rows or up to it;
	 * the last: those in which there was more of somebody, mostly of a
	 * prompt. */
	struct genai_engine_steps kinds[GENAI_STEP_KINDS];
	uint64_t swapped; /* of preemptions, those after which what was computed
			     was kept in host memory */
};
int32_t genai_engine_get_stats(struct genai_engine *engine,
			       struct genai_engine_stats *out_stats);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif
