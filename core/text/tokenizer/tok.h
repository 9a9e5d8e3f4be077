/* tok.h - what the files of the tokenizer share: buffers, characters, JSON
 * scanning, the vocabulary, and the five stages of the pipeline.
 * Private to core/text; everybody else includes <genai/text.h>. */
#ifndef GENAI_CORE_TEXT_TOK_H
#define GENAI_CORE_TEXT_TOK_H

#include <stdbool.h>
#include <jansson.h>

#include "core/base/error.h"

#include <genai/text.h>

/* Limits on what a file may hold. */
#define TOK_MAX_FILE (256u << 20)  /* tokenizer.json, after decompression */
#define TOK_MAX_DEPTH 64	   /* nesting of the JSON */
#define TOK_MAX_ID (1u << 22)	   /* ids are below this */
#define TOK_MAX_TOKEN 4096u	   /* bytes of one token */
#define TOK_MAX_TEXT (1u << 30)	   /* bytes of one text to encode */
#define TOK_MAX_DECODED (1u << 28) /* bytes of one text that was decoded */
#define TOK_MAX_STEPS 128u	   /* of a normalizer, a decoder ... */

/* ---- buffers (tok_char.c) ---- */

/* Bytes, or an array of structs, that grows.  A failed growth sets `failed`
 * and drops the data, and `full` if it was beyond `max`; whoever finishes with
 * the buffer checks it once. */
struct tok_buf {
	char *p;
	size_t n, cap; /* bytes */
	size_t max;    /* 0: none */
	bool failed, full;
};

void tok_buf_add(struct tok_buf *b, const void *data, size_t bytes);
void tok_buf_char(struct tok_buf *b, uint32_t cp);
/* Room for bytes more, not yet counted in n; NULL (and failed) without
 * memory. */
char *tok_buf_room(struct tok_buf *b, size_t bytes);
void tok_buf_free(struct tok_buf *b);
static inline void tok_buf_str(struct tok_buf *b, const struct tok_buf *from)
{
	tok_buf_add(b, from->p, from->n);
	b->failed |= from->failed;
}

/* ---- characters (tok_char.c) ---- */

/* One step over text that may be wrong: the length of a valid character; 0 if
 * all n bytes are the start of one; -k if k bytes can belong to none. */
int tok_utf8_step(const char *p, size_t n, uint32_t *cp);
/* Position of the first byte that is not UTF-8, or n. */
size_t tok_utf8_check(const char *p, size_t n);
/* The character at p in valid text; advances *len bytes. */
uint32_t tok_utf8_get(const char *p, size_t n, unsigned *len);
/* Start of the last character of valid text. */
size_t tok_utf8_back(const char *p, size_t n);

bool tok_is_space(uint32_t cp);	 /* White_Space */
bool tok_is_number(uint32_t cp); /* N* */
bool tok_is_punct(uint32_t cp);	 /* ASCII punctuation, P* */
bool tok_is_word(uint32_t cp);	 /* \w of UTS 18 */
bool tok_is_mark(uint32_t cp);	 /* M* */

/* GPT-2's alphabet: each byte as a printable character. */
uint32_t tok_byte_char(uint8_t byte);
/* The byte of such a character, or -1. */
int tok_char_byte(uint32_t cp);
/* Append the alphabet's spelling of bytes. */
void tok_bytes_spell(struct tok_buf *out, const char *p, size_t n);
/* Value of the spelling <0xHH>, or -1. */
int tok_byte_token(const char *p, size_t n);

/* ---- reading tokenizer.json (tok_json.c) ---- */

/* A cursor over the file.  The two big members (vocab, merges) are walked with
 * it directly; the small ones become jansson values. */
struct tok_json {
	const char *name; /* of the file, for messages */
	const char *base, *p, *end;
	struct genai_error *err;
};

/* All return 0 or fill err with file, line and column. */
int32_t tok_json_fail(const struct tok_json *j, const char *what);
int tok_json_peek(struct tok_json *j); /* next byte after blanks, or -1 */
int32_t tok_json_expect(struct tok_json *j, int c);
int32_t tok_json_string(struct tok_json *j, struct tok_buf *out);
int32_t tok_json_uint(struct tok_json *j, uint32_t below, uint32_t *out);
int32_t tok_json_double(struct tok_json *j, double *out);
int32_t tok_json_skip(struct tok_json *j);
/* 1 before each element of an array or object, 0 past the closing bracket. */
int32_t tok_json_next(struct tok_json *j, int close, bool *first);
/* The value at the cursor as a jansson value (caller owns). */
int32_t tok_json_value(struct tok_json *j, json_t **out);
/* The key of an object's member, as a C string into key, and the colon. */
int32_t tok_json_key(struct tok_json *j, struct tok_buf *key);

/* Whole file into memory, decompressed if it is gzip (tok_file.c).  path may be
 * a folder; *out_name is the file used.  Both are malloc'ed. */
int32_t tok_file_read(const char *path, char **out_name, struct tok_buf *out,
		      struct genai_error *err);

/* ---- vocabulary (tok_vocab.c) ---- */

/* Texts by index, and indices by text (a hash above index + 1 in each slot). */
struct tok_entry {
	uint32_t off; /* in tok_vocab.text */
	uint16_t len;
	bool has; /* the index has a text */
};
struct tok_names {
	struct tok_entry *e;
	uint32_t n, cap;
	uint64_t *slot;
	uint32_t mask, used;
};

#define TOK_SPECIAL 1u
#define TOK_SINGLE 2u /* single_word */
#define TOK_LSTRIP 4u
#define TOK_RSTRIP 8u
#define TOK_NORMALIZED 16u /* looked for in normalized text */
#define TOK_HIDDEN 32u	   /* decoding leaves it out with the special ones */

/* An added token: found in the text before it goes down the pipeline. */
struct tok_added {
	uint32_t id, show_off; /* what it decodes to, in tok_vocab.text */
	uint16_t show_len, flags;
};

struct tok_vocab {
	struct tok_buf text;
	uint64_t seed;		/* so that a file cannot aim at collisions */
	struct tok_names model; /* by id */
	struct tok_names added; /* in the order of the file */
	struct tok_buf info;	/* struct tok_added, parallel to added */
	uint32_t *by_id;	/* 1 + index in added, or 0 */
	uint32_t size;		/* one more than the largest id */
};

void tok_vocab_init(struct tok_vocab *v);
void tok_vocab_free(struct tok_vocab *v);
/* Give index i of names the text at off of v->text, to its end.
 * GENAI_E_FORMAT: the index has a text already. */
int32_t tok_names_set(struct tok_vocab *v, struct tok_names *m, uint32_t i,
		      size_t off);
/* Make index i be found by its text.  GENAI_E_FORMAT: another is. */
int32_t tok_names_put(struct tok_vocab *v, struct tok_names *m, uint32_t i);
int64_t tok_names_find(const struct tok_vocab *v, const struct tok_names *m,
		       const char *p, size_t n);
static inline int64_t tok_vocab_find(const struct tok_vocab *v, const char *p,
				     size_t n)
{
	return tok_names_find(v, &v->model, p, n);
}
static inline struct tok_added *tok_added(const struct tok_vocab *v, uint32_t i)
{
	return (struct tok_added *)(void *)v->info.p + i;
}
/* The added token that has the id, or NULL. */
static inline struct tok_added *tok_added_of(const struct tok_vocab *v,
					     int64_t id)
{
	if (id < 0 || id >= (int64_t)v->size || !v->by_id || !v->by_id[id])
		return NULL;
	return tok_added(v, v->by_id[id] - 1);
}

/* ---- sets of strings, for longest and common prefixes (tok_set.c) ---- */

struct tok_pat {
	uint64_t key; /* first 8 bytes, big-endian: most comparisons end here */
	uint32_t off, len, id, order;
};
struct tok_set {
	const struct tok_buf *text; /* borrowed */
	struct tok_pat *pat;
	uint32_t n, cap;
	uint32_t first[257]; /* by first byte */
	bool failed;
};
struct tok_walk { /* the patterns that begin with the bytes stepped over */
	const struct tok_set *set;
	uint32_t lo, hi, depth;
};

/* Empty strings are left out. */
void tok_set_add(struct tok_set *s, size_t off, size_t len, uint32_t id,
		 uint32_t order);
/* Sort; of equal strings the one with the lowest order stays. */
int32_t tok_set_seal(struct tok_set *s, const struct tok_buf *text);
void tok_set_free(struct tok_set *s);
static inline struct tok_walk tok_walk_begin(const struct tok_set *s)
{
	return (struct tok_walk){s, 0, s->n, 0};
}
bool tok_walk_step(struct tok_walk *w, uint8_t byte);
/* The id of the pattern that is exactly what was stepped over, or -1. */
static inline int64_t tok_walk_hit(const struct tok_walk *w)
{
	const struct tok_pat *p = w->set->pat + w->lo;

	return w->depth && p->len == w->depth ? (int64_t)p->id : -1;
}

/* ---- patterns (tok_regex.c, tok_onig.c) ---- */

struct tok_regex;
/* A literal string or a regular expression. */
struct tok_pattern {
	char *str; /* literal, if re is NULL */
	size_t n;
	struct tok_regex *re;
};
/* Where a scan over one text stands; md belongs to the scanner's caller. */
struct tok_scan {
	const struct tok_pattern *pat;
	const char *text;
	size_t n, at, last_end;
	bool has_last;
};
struct tok_load;

int32_t tok_pattern_parse(const struct tok_load *l, json_t *j,
			  struct tok_pattern *out);
void tok_pattern_free(struct tok_pattern *p);
/* The next match, as Oniguruma's scan would find it: 1, 0 or an error. */
int32_t tok_scan_next(struct tok_scan *s, void *md, size_t *from, size_t *to,
		      struct genai_error *err);
/* Rewrite a regex of Oniguruma's Ruby syntax for PCRE2. */
int32_t tok_onig_translate(const struct tok_load *l, const char *re, size_t n,
			   struct tok_buf *out);
/* The regex (PCRE2's syntax), compiled. */
int32_t tok_regex_compile(const struct tok_load *l, const char *re, size_t n,
			  struct tok_regex **out);
void tok_regex_free(struct tok_regex *re);
/* One search; 1, 0 or an error. */
int32_t tok_regex_find(const struct tok_regex *re, void *md, const char *text,
		       size_t n, size_t at, size_t *from, size_t *to,
		       struct genai_error *err);

/* ---- loading ---- */

struct tok_load {
	const char *name; /* of the file */
	struct genai_error *err;
};
int32_t tok_nomem(struct genai_error *err);
/* "<file>: <stage> type X is not supported" */
int32_t tok_unsupported(const struct tok_load *l, const char *stage,
			const char *what);
int32_t tok_bad(const struct tok_load *l, const char *what);
const char *tok_type(json_t *j); /* its "type", or "" */
bool tok_bool(json_t *j, const char *key, bool absent);
bool tok_is_null(json_t *j, const char *key); /* or absent */
/* The string at key into a malloc'ed copy; error if absent or not a string. */
int32_t tok_str(const struct tok_load *l, json_t *j, const char *key,
		char **out, size_t *out_n);
/* Exactly one character at key. */
int32_t tok_one_char(const struct tok_load *l, json_t *j, const char *key,
		     uint32_t *out);
/* Call fn for j, or for each member if j is a Sequence (its array is
 * `list`). */
int32_t tok_sequence(const struct tok_load *l, json_t *j, const char *list,
		     int32_t (*fn)(const struct tok_load *l, json_t *j,
				   void *user),
		     void *user);

/* ---- what one call to encode needs, besides the tokenizer ---- */

struct tok_piece {
	size_t off, len;
	bool at_start; /* the original text begins here */
};
struct tok_work {
	struct tok_buf norm[2];	    /* text, before and after a normalizer */
	struct tok_buf text[2];	    /* likewise for pre-tokenizers */
	struct tok_buf pieces[2];   /* struct tok_piece */
	struct tok_buf events;	    /* matches of one piece */
	struct tok_buf nodes, heap; /* the model's */
	struct tok_buf tmp;
	struct tok_buf ids; /* int64_t */
	void *md;	    /* pcre2_match_data */
	struct genai_error *err;
};
/* genai_tokenizer_open, for the very folder or file. */
int32_t tok_open(const char *path, struct genai_tokenizer **out_tok,
		 struct genai_error *err);
/* Bytes of the longest special token that p begins with, or 0. */
size_t tok_special_at(const struct genai_tokenizer *t, const char *p, size_t n);

int32_t tok_work_init(struct tok_work *w, struct genai_error *err);
void tok_work_free(struct tok_work *w);
static inline void tok_work_id(struct tok_work *w, int64_t id)
{
	tok_buf_add(&w->ids, &id, sizeof(id));
}

/* ---- normalizers (tok_norm.c, tok_precompiled.c) ---- */

struct tok_norm;
struct tok_norms {
	struct tok_norm *v;
	size_t n;
};
int32_t tok_norms_parse(const struct tok_load *l, json_t *j,
			struct tok_norms *out);
void tok_norms_free(struct tok_norms *n);
/* The result is w->norm[0].  *at_start is cleared if the text's first character
 * went away. */
int32_t tok_normalize(const struct tok_norms *n, struct tok_work *w,
		      const char *p, size_t len, bool *at_start);

enum tok_form { TOK_NFC, TOK_NFD, TOK_NFKC, TOK_NFKD };
int32_t tok_unicode_form(enum tok_form form, const char *p, size_t n,
			 struct tok_buf *out, struct genai_error *err);

struct tok_charsmap;
int32_t tok_charsmap_parse(const struct tok_load *l, json_t *j,
			   struct tok_charsmap **out);
void tok_charsmap_free(struct tok_charsmap *c);
void tok_charsmap_apply(const struct tok_charsmap *c, const char *p, size_t n,
			struct tok_buf *out);

/* ---- pre-tokenizers (tok_pre.c) ---- */

struct tok_pre;
struct tok_pres {
	struct tok_pre *v;
	size_t n;
};
int32_t tok_pres_parse(const struct tok_load *l, json_t *j,
		       struct tok_pres *out);
void tok_pres_free(struct tok_pres *p);
/* Cut text into words: *out_text and the pieces of *out_pieces (both in w). */
int32_t tok_pretokenize(const struct tok_pres *p, struct tok_work *w,
			const char *text, size_t n, bool at_start,
			const char **out_text, struct tok_buf **out_pieces);

/* How a Split treats what it found. */
enum tok_behavior {
	TOK_REMOVED,
	TOK_ISOLATED,
	TOK_MERGED_PREV,
	TOK_MERGED_NEXT,
	TOK_CONTIGUOUS
};
struct tok_event { /* a stretch of a piece: matched, or between matches */
	size_t from, to;
	bool match;
};
/* Turn w->events of the piece into pieces of out. */
void tok_split(struct tok_work *w, const struct tok_piece *piece,
	       enum tok_behavior how, bool invert, struct tok_buf *out);
/* The script of a character: a number, 0 where it has none; the pieces of the
 * UnicodeScripts pre-tokenizer, whose text begins at text. */
unsigned tok_script(uint32_t cp);
void tok_scripts_split(const char *text, const struct tok_piece *piece,
		       struct tok_buf *out);

/* ---- models (tok_model.c, tok_bpe.c, tok_unigram.c, tok_word.c) ---- */

struct tok_model;
struct tok_spans { /* the big members of "model", unread; p == NULL: absent */
	struct tok_json vocab, merges;
	json_t *rest;
};
int32_t tok_model_parse(const struct tok_load *l, struct tok_spans *s,
			struct tok_vocab *v, struct tok_model **out);
void tok_model_free(struct tok_model *m);
int32_t tok_model_word(const struct tok_model *m, const struct tok_vocab *v,
		       struct tok_work *w, const char *p, size_t n);

struct tok_bpe;
int32_t tok_bpe_parse(const struct tok_load *l, struct tok_spans *s,
		      struct tok_vocab *v, struct tok_bpe **out);
void tok_bpe_free(struct tok_bpe *b);
int32_t tok_bpe_word(const struct tok_bpe *b, const struct tok_vocab *v,
		     struct tok_work *w, const char *p, size_t n);

struct tok_unigram;
int32_t tok_unigram_parse(const struct tok_load *l, struct tok_spans *s,
			  struct tok_vocab *v, struct tok_unigram **out);
void tok_unigram_free(struct tok_unigram *u);
int32_t tok_unigram_word(const struct tok_unigram *u, const struct tok_vocab *v,
			 struct tok_work *w, const char *p, size_t n);

/* ids[256] of the tokens <0x00>...<0xFF>, -1 where there is none. */
void tok_byte_ids(const struct tok_vocab *v, int64_t *ids);

/* ---- post-processors (tok_post.c) ---- */

struct tok_post {
	struct tok_buf before, after; /* int64_t ids around the text */
};
int32_t tok_post_parse(const struct tok_load *l, json_t *j,
		       struct tok_post *out);
void tok_post_free(struct tok_post *p);

/* ---- decoders (tok_decode.c) ---- */

struct tok_dec;
struct tok_decs {
	struct tok_dec *v;
	size_t n;
};
int32_t tok_decs_parse(const struct tok_load *l, json_t *j,
		       struct tok_decs *out);
void tok_decs_free(struct tok_decs *d);

/* ---- the whole ---- */

struct genai_tokenizer {
	struct tok_vocab vocab;
	/* Indices of added tokens: found in the text as given, and after
	 * normalizing (both normalized). */
	struct tok_set plain, normalized;
	struct tok_norms norms;
	struct tok_pres pres;
	struct tok_model *model;
	struct tok_post post;
	struct tok_decs decs;
};

/* Fill an empty tokenizer from the text of a file (tok_load.c). */
int32_t tok_load(struct genai_tokenizer *t, const struct tok_load *l,
		 const struct tok_buf *file);

#endif
