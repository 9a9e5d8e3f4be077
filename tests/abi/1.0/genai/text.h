/* genai/text.h - text for models: tokenizers, chat templates, the choice of the
 * next token.
 * Owns: text to ids and back, conversations to prompts, logits to an id.  Does
 * not know: runtimes, models, devices; it is used with or without them.
 *
 * Text is UTF-8, with its length in bytes.  What a call gives back as malloc'ed
 * is the caller's, and goes by genai_free(); it is written only on success.
 * Every function that can fail returns 0 or a negative GENAI_E_* and fills err,
 * which may be NULL.  GENAI_E_NOMEM can come from all of them.  Close functions
 * take NULL.  Nothing here blocks, but for reading the files that are opened.
 */
#ifndef GENAI_TEXT_H
#define GENAI_TEXT_H

#include <genai/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* Free what a function of this header gave as malloc'ed; NULL is allowed. */
void genai_free(void *p);

/* ---- tokenizers: the pipeline of a tokenizer.json ---- */

struct genai_tokenizer;

/* encode: do not let the post-processor add special tokens */
#define GENAI_TOK_NO_SPECIAL 1u
/* encode: special tokens spelled in the text stay ordinary text */
#define GENAI_TOK_SPECIALS_AS_TEXT 2u
/* decode: keep special tokens in the text */
#define GENAI_TOK_KEEP_SPECIAL 4u

/* Load path: a model folder, a folder that holds tokenizer.json or
 * tokenizer.json.gz, or such a file.  Threads: what is opened never changes;
 * all functions on it are safe on any thread, at once. Errors:
 * GENAI_E_NOTFOUND, _IO, _FORMAT, _LIMIT, _UNSUPPORTED (a piece of the pipeline
 * that is not carried, by name). */
int32_t genai_tokenizer_open(const char *path, struct genai_tokenizer **out_tok,
			     struct genai_error *err);
void genai_tokenizer_close(struct genai_tokenizer *tok);

/* One more than the largest id that has a token.  A model may have more. */
uint32_t genai_tokenizer_size(const struct genai_tokenizer *tok);

/* Id of an exact token (added or vocabulary), or -1. */
int64_t genai_tokenizer_id(const struct genai_tokenizer *tok, const char *text);

/* 1 if id is a special added token, else 0, whatever the id. */
int32_t genai_tokenizer_is_special(const struct genai_tokenizer *tok,
				   int64_t id);

/* Encode bytes of text.  flags: GENAI_TOK_NO_SPECIAL, _SPECIALS_AS_TEXT.
 * *out_ids is malloc'ed (NULL when the count is 0).
 * Errors: GENAI_E_INVAL for what is not UTF-8, with the position of the byte;
 * GENAI_E_LIMIT above 1 GiB. */
int32_t genai_tokenizer_encode(const struct genai_tokenizer *tok,
			       const char *text, size_t bytes, uint32_t flags,
			       int64_t **out_ids, size_t *out_count,
			       struct genai_error *err);

/* Decode a whole sequence.  flags: GENAI_TOK_KEEP_SPECIAL.  An id without a
 * token gives no text.  *out_text is malloc'ed and ends with a zero byte that
 * is not counted.  Errors: GENAI_E_LIMIT above 256 MiB of text. */
int32_t genai_tokenizer_decode(const struct genai_tokenizer *tok,
			       const int64_t *ids, size_t count, uint32_t flags,
			       char **out_text, size_t *out_bytes,
			       struct genai_error *err);

/* Decoding as ids come: push gives the text that the id completes (often ""),
 * in whole characters; flush what is left (an incomplete character becomes
 * U+FFFD).  All that was given, in order, is the decode of all ids.  *out_text
 * is owned by d and valid until its next call.  A push costs the same however
 * many ids came before.  d borrows tok, which has to live longer.  Threads: one
 * at a time for each d. */
struct genai_detok;
int32_t genai_detok_open(const struct genai_tokenizer *tok, uint32_t flags,
			 struct genai_detok **out_d, struct genai_error *err);
int32_t genai_detok_push(struct genai_detok *d, int64_t id,
			 const char **out_text, size_t *out_bytes,
			 struct genai_error *err);
int32_t genai_detok_flush(struct genai_detok *d, const char **out_text,
			  size_t *out_bytes, struct genai_error *err);
void genai_detok_close(struct genai_detok *d);

/* ---- chat templates: the Jinja that model folders carry ---- */

struct genai_template;

/* Find and parse the template of a model folder.  With has_tools != 0, the one
 * named "tool_use", if there is one: additional_chat_templates/tool_use.jinja,
 * or in the list {name, template} that chat_template of chat_template.json or
 * tokenizer_config.json may be.  Else the default: chat_template.jinja, or
 * chat_template of these files, a string or "default" in the list.  The
 * folder's bos_token and eos_token become its variables where the caller gives
 * none. Threads: as tokenizers. Errors: GENAI_E_NOTFOUND, naming the folder, if
 * there is none; _IO, _FORMAT with file and line. */
int32_t genai_template_open(const char *folder, int32_t has_tools,
			    struct genai_template **out_t,
			    struct genai_error *err);
/* The same from a text; name is what errors call it. */
int32_t genai_template_parse(const char *name, const char *text, size_t bytes,
			     struct genai_template **out_t,
			     struct genai_error *err);
void genai_template_close(struct genai_template *t);

/* The last message goes on: the prompt ends with its content. */
#define GENAI_CHAT_CONTINUE 1u
/* Do not begin the answer: without it the variable add_generation_prompt is
 * true, unless the caller's variables have one. */
#define GENAI_CHAT_NO_ANSWER 2u
/* now and utc_offset_s are given; without it they are this machine's. */
#define GENAI_CHAT_NOW 4u

struct genai_chat_options {
	uint32_t size;
	uint32_t flags;	      /* GENAI_CHAT_* */
	int64_t now;	      /* of strftime_now: seconds since 1970, UTC */
	int32_t utc_offset_s; /* of local time */
	uint32_t reserved;    /* 0 */
};

/* Render a conversation as transformers' apply_chat_template does.  vars is the
 * text of a JSON object of bytes bytes with the template's variables: messages,
 * an array of objects in OpenAI's form, is needed; tools, documents and any
 * other may be there.  options may be NULL.  *out_text is malloc'ed and ends
 * with a zero byte that is not counted. Errors: GENAI_E_INVAL for vars, naming
 * the message, and for what the template refuses (raise_exception), in its
 * words; GENAI_E_FORMAT for what Python would raise, with the line;
 * GENAI_E_LIMIT: work, nesting and output have bounds, whatever the template
 * says. */
int32_t genai_template_chat(const struct genai_template *t, const char *vars,
			    size_t bytes,
			    const struct genai_chat_options *options,
			    char **out_text, size_t *out_bytes,
			    struct genai_error *err);

/* The same, as ids: what the template says are special tokens are such; what
 * spells one inside a message (its content, and the texts of its parts) stays
 * text, so that nobody who writes a message can end it.  *out_ids is
 * malloc'ed. */
int32_t genai_template_encode(const struct genai_template *t,
			      const struct genai_tokenizer *tok,
			      const char *vars, size_t bytes,
			      const struct genai_chat_options *options,
			      int64_t **out_ids, size_t *out_count,
			      struct genai_error *err);

/* ---- sampling: the next token from a row of logits, on the host ----
 *
 * Order of the filters, generator and ties: docs/SAMPLING.md. */

/* Ranges are checked by genai_sampler_open; the comment gives the value that
 * changes nothing, which GENAI_SAMPLING_INIT has. */
struct genai_sampling {
	uint32_t size;
	int32_t do_sample;	  /* 0: the most probable one */
	float temperature;	  /* 1; 0 = greedy; 0...100 */
	float top_p;		  /* 1 = off; 0: the best one */
	float min_p;		  /* 0 = off; 0...1 */
	float repetition_penalty; /* 1; > 0 */
	float presence_penalty;	  /* 0; -2...2 */
	float frequency_penalty;  /* 0; -2...2 */
	int64_t top_k;		  /* 0 = off */
	int64_t no_repeat_ngram;  /* 0 = off */
	int64_t min_length;	  /* 0; no end of text below this length */
	uint64_t seed;
};
#define GENAI_SAMPLING_INIT                                                    \
	{                                                                      \
		(uint32_t)sizeof(struct genai_sampling), 0, 1.0f, 1.0f, 0.0f,  \
			1.0f, 0.0f, 0.0f, 0, 0, 0, 0                           \
	}

struct genai_sampler;

/* vocab is the width of the logits; eos (may be NULL) are the ids that
 * min_length keeps back.  Threads: one at a time for each sampler.
 * Errors: GENAI_E_INVAL naming the field, its value and its range. */
int32_t genai_sampler_open(const struct genai_sampling *sampling,
			   uint32_t vocab, const int64_t *eos, size_t n_eos,
			   struct genai_sampler **out_s,
			   struct genai_error *err);
void genai_sampler_close(struct genai_sampler *s);

/* 1 if the choice is the most probable token without any penalty: then a device
 * may make it (genai_session_next). */
int32_t genai_sampler_is_greedy(const struct genai_sampler *s);

/* Tell the tokens of the sequence so far (the prompt, then each token that was
 * chosen elsewhere); pick records its own choice by itself.
 * Errors: GENAI_E_INVAL for an id outside the vocabulary, with its position. */
int32_t genai_sampler_accept(struct genai_sampler *s, const int64_t *ids,
			     size_t count, struct genai_error *err);
/* Forget everything but the parameters; the position is 0 again. */
void genai_sampler_reset(struct genai_sampler *s);
/* Forget all but the first count tokens. */
void genai_sampler_rewind(struct genai_sampler *s, size_t count);

/* Choose from logits[vocab], which are changed in place.  What is drawn depends
 * on the seed and the position only.  Ties go to the lowest id.
 * Errors: GENAI_E_DEVICE if a logit is NaN, naming the first one's id, or if
 * all are -inf. */
int32_t genai_sampler_pick(struct genai_sampler *s, float *logits,
			   int64_t *out_id, struct genai_error *err);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif
#endif
