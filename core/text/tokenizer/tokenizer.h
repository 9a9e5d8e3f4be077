/* tokenizer.h - text to ids and back, from a tokenizer.json.
 * Owns: the pipeline of that file (added tokens, normalizer, pre-tokenizer,
 * model, post-processor, decoder).  Does not know: models, templates. */
#ifndef GENAI_CORE_TEXT_TOKENIZER_H
#define GENAI_CORE_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <genai/types.h>

struct genai_tokenizer;
struct genai_detok;

/* encode: do not let the post-processor add special tokens */
#define GENAI_TOK_NO_SPECIAL 1u
/* encode: special tokens spelled in the text stay ordinary text */
#define GENAI_TOK_SPECIALS_AS_TEXT 2u
/* decode: keep special tokens in the text */
#define GENAI_TOK_KEEP_SPECIAL 4u

/* Load path: a folder that holds tokenizer.json or tokenizer.json.gz, or such
 * a file.  Immutable afterwards; all functions on it are safe on any thread.
 * Errors: GENAI_E_NOTFOUND, _IO, _FORMAT, _UNSUPPORTED (a pipeline piece that
 * is not carried, by name), _NOMEM. */
int32_t genai_tokenizer_open(const char *path, struct genai_tokenizer **out_tok,
			     struct genai_error *err);
void genai_tokenizer_close(struct genai_tokenizer *tok);

/* One more than the largest id that has a token. */
uint32_t genai_tokenizer_size(const struct genai_tokenizer *tok);

/* Id of an exact token (added or vocabulary), or -1. */
int64_t genai_tokenizer_id(const struct genai_tokenizer *tok, const char *text);

/* True if id is a special added token. */
bool genai_tokenizer_is_special(const struct genai_tokenizer *tok, int64_t id);

/* Encode bytes of UTF-8.  Invalid UTF-8 is GENAI_E_INVAL with the byte
 * position.  *out_ids is malloc'ed (caller frees; NULL when the count is 0). */
int32_t genai_tokenizer_encode(const struct genai_tokenizer *tok,
			       const char *text, size_t bytes, uint32_t flags,
			       int64_t **out_ids, size_t *out_count,
			       struct genai_error *err);

/* Decode whole sequences as the tokenizers library does.  An id without a
 * token gives no text.  *out_text is malloc'ed and NUL-terminated (caller
 * frees). */
int32_t genai_tokenizer_decode(const struct genai_tokenizer *tok,
			       const int64_t *ids, size_t count, uint32_t flags,
			       char **out_text, size_t *out_bytes,
			       struct genai_error *err);

/* Streaming decode: push gives the text that the id completes (often ""), in
 * whole UTF-8 characters; flush gives what is left (an incomplete tail becomes
 * U+FFFD).  The concatenation equals the decode of all ids.  *out_text is owned
 * by d and valid until its next call.  Cost per push must not grow with the
 * number of ids pushed.  d borrows tok.  Threads: one per d. */
int32_t genai_detok_open(const struct genai_tokenizer *tok, uint32_t flags,
			 struct genai_detok **out_d, struct genai_error *err);
int32_t genai_detok_push(struct genai_detok *d, int64_t id,
			 const char **out_text, size_t *out_bytes,
			 struct genai_error *err);
int32_t genai_detok_flush(struct genai_detok *d, const char **out_text,
			  size_t *out_bytes, struct genai_error *err);
void genai_detok_close(struct genai_detok *d);

#endif
