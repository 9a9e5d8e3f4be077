/* genai/genai.h - the application interface: from a configuration and a model
 * folder to tokens.
 * Owns: runtimes, models, sessions.  Does not know: modules' insides, text
 * (<genai/text.h>).
 *
 * Objects form a tree: runtime > model > session; close children first (a close
 * with children open logs and leaks rather than crash).  A runtime and all
 * below it belong to one thread at a time; different runtimes are independent.
 * After fork a child gets GENAI_E_FORKED from everything but close and what
 * only reads (get_info, length). A failed call leaves its object usable, unless
 * said. */
#ifndef GENAI_GENAI_H
#define GENAI_GENAI_H

#include <genai/types.h>
#include <genai/version.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct genai_runtime;
struct genai_model;
struct genai_session;

/* ---- runtime ---- */

struct genai_runtime_options {
	uint32_t size;
	uint32_t flags;		 /* 0 */
	const char *config_path; /* NULL: the search of docs/CONFIGURATION */
	const char *const *sets; /* "section.key=value", win over the file */
	uint32_t n_sets;
	uint32_t reserved;
	/* Warnings and information, one line each; NULL: warnings and errors
	 * go to stderr. */
	void (*log)(void *ctx, int32_t level, const char *text);
	void *log_ctx;
};

/* Read the configuration, load and check the modules it names, bring the device
 * up.  Errors: GENAI_E_CONFIG (file:line), _MODULE, _ABI, _NODEVICE, ... */
int32_t genai_open(const struct genai_runtime_options *options,
		   struct genai_runtime **out_rt, struct genai_error *err);
void genai_close(struct genai_runtime *rt); /* NULL is allowed */

/* ---- model ---- */

#define GENAI_MODEL_ALL_LOGITS 1u /* logits of every position, not the last */
/* Place no weights: nothing of them is read, and what the model would take can
 * be asked (genai_model_get_fit) in the time that its graph takes to read.
 * Sessions are refused. */
#define GENAI_MODEL_FIT 2u

struct genai_model_options {
	uint32_t size;
	uint32_t flags; /* GENAI_MODEL_* */
	/* Called now and then while loading; total 0 if unknown.  A non-zero
	 * return stops with GENAI_E_INTERRUPTED.  May be NULL. */
	int32_t (*progress)(void *ctx, const char *what, uint64_t done,
			    uint64_t total);
	void *progress_ctx;
};

struct genai_model_info {
	uint32_t size;
	uint32_t vocab_size;	/* width of the logits */
	uint64_t model_context; /* what the model allows */
	uint64_t context;	/* positions that memory is set aside for */
	uint64_t weights_bytes;
	uint64_t kv_bytes_per_position;
	uint32_t n_eos;
	uint32_t all_logits; /* rows of logits per chunk: 1 or as given */
	const int64_t *eos;  /* owned by the model */
	int64_t bos;	     /* -1: none */
	int64_t pad;	     /* -1: none */
	const char *type;    /* genai_config.json's model.type */
	/* Defaults of genai_config.json's search. */
	int32_t do_sample;
	float temperature, top_p, repetition_penalty;
	int64_t top_k, max_length, min_length, no_repeat_ngram;
	/* Positions that are computed at once.  An append of more is cut there;
	 * cut at multiples of it by the caller, between whose appends there is
	 * time to hear an interrupt, it is the same work with the same bits. */
	uint64_t chunk;
	uint32_t any_cut; /* 1: the same bits wherever it is cut */
	uint32_t reserved;
};

/* Open a model folder (or a .onnx file in one), plan it, place its weights.
 * Errors: GENAI_E_NOTFOUND, _IO, _FORMAT, _UNSUPPORTED, _LIMIT, ... */
int32_t genai_model_open(struct genai_runtime *rt, const char *path,
			 const struct genai_model_options *options,
			 struct genai_model **out_model,
			 struct genai_error *err);
void genai_model_close(struct genai_model *model);
int32_t genai_model_get_info(const struct genai_model *model,
			     struct genai_model_info *out_info);

/* What a model takes on the device, and a step of one position; bytes and ns.
 * Of many sequences (genai_engine_fit): all of them, and a step of a position
 * of each. */
struct genai_fit {
	uint32_t size;
	uint32_t ring_slots;
	uint64_t limit_bytes;  /* device_limit; 0: none */
	uint64_t budget_bytes; /* what weights may hold of it; 0: no limit */
	uint64_t context;      /* positions that cache_bytes are for */
	uint64_t weights_bytes;
	/* Weights, by where they lie: on the device, on their way through a
	 * ring, read in host memory.  streamed: copied by every step. */
	uint64_t pinned_bytes, ring_bytes, in_place_bytes, streamed_bytes;
	uint64_t cache_bytes;	/* of one sequence: caches, states */
	uint64_t plan_bytes;	/* of one sequence: activations, workspace */
	uint64_t session_bytes; /* of one sequence: ids, logits */
	uint64_t driver_bytes;	/* what the driver took for itself, so far */
	uint64_t device_bytes;	/* with one sequence, all together */
	/* The smallest device_limit with which a model opens for this context:
	 * its weights are streamed, or read where they lie. */
	uint64_t least_bytes;
	uint64_t host_bytes; /* pinned or copied for weights */
	/* A step: with copies beside the kernels, with copies between them, and
	 * with everything on the device.  0: the device does not say its rates
	 * (then genai bench measures). */
	uint64_t step_ns, serial_ns, resident_ns;
	uint64_t read_bytes;	      /* weights that a step reads */
	uint64_t read_in_place_bytes; /* of them, in host memory */
	uint64_t page_bytes;	      /* that weights are moved in, about */
	uint32_t async;		      /* copies run beside the kernels */
	uint32_t sequences;	      /* that share a step; 1 of a model */
	uint64_t cache_positions;     /* of all sequences together */
	/* What a step copies besides: what it is about, and the tokens. */
	uint64_t copy_bytes;
	uint32_t copies;
	uint32_t chunk;	       /* positions of a prompt in a step, at most */
	uint64_t beside_bytes; /* weights that the host's cores multiply */
};
/* Of an open model, whether its weights were placed or not.
 * Errors: GENAI_E_INVAL, _FORKED. */
int32_t genai_model_get_fit(struct genai_model *model,
			    struct genai_fit *out_fit, struct genai_error *err);

/* ---- session ---- */

/* One sequence with its own key/value cache. */
int32_t genai_session_open(struct genai_model *model,
			   struct genai_session **out_s,
			   struct genai_error *err);
void genai_session_close(struct genai_session *s);

/* Append tokens and compute them, in chunks.  Ids are checked against the
 * vocabulary first; nothing is appended on failure.
 * Errors: GENAI_E_INVAL an id out of range, with its position; GENAI_E_LIMIT
 * more than the context, with both numbers; GENAI_E_DEVICE. */
int32_t genai_session_append(struct genai_session *s, const int64_t *ids,
			     size_t count, struct genai_error *err);
/* Positions computed so far. */
uint64_t genai_session_length(const struct genai_session *s);
/* Forget all but the first length positions.  What the model keeps beside its
 * cache (a state that every step replaces) is computed again, from where tokens
 * were last appended or from the beginning. */
int32_t genai_session_rewind(struct genai_session *s, uint64_t length,
			     struct genai_error *err);
/* Copy the logits of the last append (or next) to out, widened to float: rows
 * of vocab_size; *out_rows rows, at most cap_rows (the last ones).  Blocks on
 * the device. */
int32_t genai_session_logits(struct genai_session *s, float *out,
			     size_t cap_rows, size_t *out_rows,
			     struct genai_error *err);
/* The most probable token after the last position, chosen on the device; the
 * step that computes it is enqueued if need be, and, with ahead != 0, so is the
 * one after it (the caller promises to want it; a rewind undoes it; not where a
 * state is replaced, which cannot be taken back).  The token
 * is appended: length grows by one when the next step is enqueued.
 * Errors: GENAI_E_LIMIT at the end of the context; GENAI_E_DEVICE if the logits
 * hold NaN. */
int32_t genai_session_next(struct genai_session *s, int32_t ahead,
			   int64_t *out_id, struct genai_error *err);

/* ---- embeddings ---- */

/* A graph from tokens to one row for each (input_ids, attention_mask,
 * token_type_ids, position_ids, of which it may lack the last three), whose
 * rows become one vector.  One text at a time: its vector does not depend on
 * others.
 */
struct genai_embedder;

#define GENAI_POOL_MEAN 1u /* of all rows */
#define GENAI_POOL_CLS 2u  /* the first row */
#define GENAI_POOL_LAST 3u /* the last row */

struct genai_embedder_options {
	uint32_t size;
	uint32_t pooling;    /* GENAI_POOL_*; 0: as the folder says */
	int32_t normalize;   /* 1: to length 1, -1: not, 0: as it says */
	uint32_t reserved;   /* 0 */
	uint64_t max_tokens; /* of a text, at most; 0: as it says */
};

struct genai_embedder_info {
	uint32_t size;
	uint32_t dimensions;
	uint64_t max_tokens;
	uint32_t pooling;   /* 0: the graph itself gives one row */
	uint32_t normalize; /* 1: vectors have length 1 */
	uint64_t weights_bytes;
	const char
		*prompt; /* text that the folder wants in front of each; "" */
};

/* Open a folder (or a .onnx file in one): modules.json and what it names, as
 * sentence-transformers writes them, beside the graph or in the folder above.
 * options may be NULL.  Errors: as genai_model_open; GENAI_E_FORMAT where
 * neither the folder nor options say a pooling or a length. */
int32_t genai_embedder_open(struct genai_runtime *rt, const char *path,
			    const struct genai_embedder_options *options,
			    struct genai_embedder **out_e,
			    struct genai_error *err);
void genai_embedder_close(struct genai_embedder *e); /* NULL is allowed */
int32_t genai_embedder_get_info(const struct genai_embedder *e,
				struct genai_embedder_info *out_info);
/* The vector of a text's tokens: special ones are among them (a tokenizer adds
 * them).  Writes dimensions numbers to out.  Blocks on the device.
 * Errors: GENAI_E_INVAL no tokens, or an id out of range, with its position;
 * GENAI_E_LIMIT more than max_tokens; GENAI_E_DEVICE, also for a vector that is
 * not finite. */
int32_t genai_embedder_run(struct genai_embedder *e, const int64_t *ids,
			   size_t count, float *out, struct genai_error *err);

/* ---- statistics ---- */

struct genai_stats {
	uint32_t size;
	uint32_t n_fallbacks;
	char executor[64], stream[64], barrier[64], pager[64];
	uint64_t host_peak_bytes;    /* resident set, from the system */
	uint64_t host_pinned_bytes;  /* registered and pinned */
	uint64_t device_limit_bytes; /* 0: none */
	uint64_t weight_budget_bytes;
	uint64_t device_peak_bytes; /* by the ledger */
	uint64_t weights_bytes, pinned_bytes, ring_bytes, in_place_bytes;
	uint64_t streamed_bytes_per_token;
	uint64_t h2d_bytes;
	uint64_t captures, replays;
	uint64_t simulated_ns;
	struct {
		char reason[48];
		uint64_t count;
	} fallbacks[8];
	double load_s;
	uint64_t device_used_bytes; /* now, by the driver's own account: how
				       much less is free than before this
				       process; 0: not known */
	uint64_t beside_bytes_per_token; /* left to the host's cores */
	/* Experts that are pinned one by one, 0 where they are not: bytes, and
	 * of those pinned; uses of pinned ones and of others, the bytes of the
	 * latter, and those that the best fixed choice would have missed;
	 * experts that took another's place.  The last step or two are not
	 * counted yet. */
	uint64_t expert_bytes, expert_pinned_bytes;
	uint64_t expert_hits, expert_misses;
	uint64_t expert_miss_bytes, expert_least_bytes;
	uint64_t expert_exchanges;
};
int32_t genai_model_get_stats(struct genai_model *model,
			      struct genai_stats *out_stats,
			      struct genai_error *err);
/* What the modules of a runtime counted since they came up (counter_add of
 * <genai/module.h>): fn is called once for each counter, with "MODULE.NAME",
 * which is gone when it returns.  fn calls nothing of the library.
 * Threads: any, also during a step.  Errors: GENAI_E_INVAL no fn. */
int32_t genai_get_counters(struct genai_runtime *rt,
			   void (*fn)(void *ctx, const char *name,
				      int64_t value),
			   void *ctx, struct genai_error *err);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif
