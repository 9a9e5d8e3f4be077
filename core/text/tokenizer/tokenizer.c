// tokenizer.c - the tokenizer as its callers see it: opening, and encoding.
// Added tokens are found first, in the text as given and then in what the
// normalizer made of the rest; only text between them goes down the pipeline.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/text/tokenizer/tok.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

int32_t tok_work_init(struct tok_work *w, struct genai_error *err)
{
	*w = (struct tok_work){.err = err};
	w->md = pcre2_match_data_create(1, NULL);
	return w->md ? 0 : tok_nomem(err);
}

void tok_work_free(struct tok_work *w)
{
	int i;

	for (i = 0; i < 2; i++) {
		tok_buf_free(w->norm + i);
		tok_buf_free(w->text + i);
		tok_buf_free(w->pieces + i);
	}
	tok_buf_free(&w->events);
	tok_buf_free(&w->nodes);
	tok_buf_free(&w->heap);
	tok_buf_free(&w->tmp);
	tok_buf_free(&w->ids);
	pcre2_match_data_free(w->md);
}

int32_t tok_open(const char *path, struct genai_tokenizer **out_tok,
		 struct genai_error *err)
{
	struct genai_tokenizer *t = NULL;
	struct tok_buf file = {0};
	struct tok_load l = {NULL, err};
	char *name;
	int32_t rc = tok_file_read(path, &name, &file, err);

	if (rc)
		return rc;
	l.name = name;
	t = calloc(1, sizeof(*t));
	if (!t) {
		rc = tok_nomem(err);
		goto done;
	}
	tok_vocab_init(&t->vocab);
	rc = tok_load(t, &l, &file);
	if (rc)
		genai_tokenizer_close(t);
	else
		*out_tok = t;
done:
	tok_buf_free(&file);
	free(name);
	return rc;
}

void genai_tokenizer_close(struct genai_tokenizer *t)
{
	if (!t)
		return;
	tok_vocab_free(&t->vocab);
	tok_set_free(&t->plain);
	tok_set_free(&t->normalized);
	tok_norms_free(&t->norms);
	tok_pres_free(&t->pres);
	tok_model_free(t->model);
	tok_post_free(&t->post);
	tok_decs_free(&t->decs);
	free(t);
}

uint32_t genai_tokenizer_size(const struct genai_tokenizer *t)
{
	return t->vocab.size;
}

int64_t genai_tokenizer_id(const struct genai_tokenizer *t, const char *text)
{
	const struct tok_vocab *v = &t->vocab;
	size_t n = strlen(text);
	int64_t i = tok_names_find(v, &v->added, text, n);

	return i < 0 ? tok_vocab_find(v, text, n)
		     : tok_added(v, (uint32_t)i)->id;
}

int32_t genai_tokenizer_is_special(const struct genai_tokenizer *t, int64_t id)
{
	const struct tok_added *a = tok_added_of(&t->vocab, id);

	return a && a->flags & TOK_SPECIAL;
}

// ---- encoding ----

struct encode {
	const struct genai_tokenizer *t;
	struct tok_work *w;
	uint32_t flags;
};

// A stretch between added tokens.
typedef int32_t text_fn(struct encode *e, const char *p, size_t n,
			bool at_start);

static bool word_before(const char *p, size_t n)
{
	size_t at = tok_utf8_back(p, n);
	unsigned len;

	return n && tok_is_word(tok_utf8_get(p + at, n - at, &len));
}

static bool word_after(const char *p, size_t n)
{
	unsigned len;

	return n && tok_is_word(tok_utf8_get(p, n, &len));
}

// Whether the token found at [from, to) counts.
static bool accept(const struct encode *e, unsigned flags, const char *p,
		   size_t n, size_t from, size_t to)
{
	if (flags & TOK_SPECIAL && e->flags & GENAI_TOK_SPECIALS_AS_TEXT)
		return false;
	return !(flags & TOK_SINGLE) ||
	       (!word_before(p, from) && !word_after(p + to, n - to));
}

// The leftmost token at or after at; the longest of those that begin there.
static int64_t find_added(const struct tok_set *set, const char *p, size_t n,
			  size_t at, size_t *from, size_t *to)
{
	int64_t i = -1, hit;
	size_t k;

	for (; set->n && at < n && i < 0; at++) {
		struct tok_walk walk = tok_walk_begin(set);

		for (k = at; k < n && tok_walk_step(&walk, (uint8_t)p[k]);) {
			hit = tok_walk_hit(&walk);
			k++;
			if (hit < 0)
				continue;
			i = hit;
			*from = at;
			*to = k;
		}
	}
	return i;
}

size_t tok_special_at(const struct genai_tokenizer *t, const char *p, size_t n)
{
	const struct tok_set *sets[] = {&t->plain, &t->normalized};
	size_t longest = 0;

	for (int i = 0; i < 2; i++) {
		struct tok_walk walk = tok_walk_begin(sets[i]);

		for (size_t k = 0; sets[i]->n && k < n &&
				   tok_walk_step(&walk, (uint8_t)p[k]);) {
			int64_t hit = tok_walk_hit(&walk);

			k++;
			if (hit >= 0 && k > longest &&
			    tok_added(&t->vocab, (uint32_t)hit)->flags &
				    TOK_SPECIAL)
				longest = k;
		}
	}
	return longest;
}

static size_t strip_left(const char *p, size_t from, size_t least)
{
	unsigned len;

	while (from > least) {
		size_t prev = tok_utf8_back(p, from);

		if (!tok_is_space(tok_utf8_get(p + prev, from - prev, &len)))
			break;
		from = prev;
	}
	return from;
}

static size_t strip_right(const char *p, size_t n, size_t to)
{
	unsigned len;

	while (to < n && tok_is_space(tok_utf8_get(p + to, n - to, &len)))
		to += len;
	return to;
}

// Emit the added tokens of set that the text holds; the rest goes to fn.
static int32_t split_added(struct encode *e, const struct tok_set *set,
			   const char *p, size_t n, bool at_start, text_fn *fn)
{
	size_t done = 0, at = 0, from = 0, to = 0, prev;
	const struct tok_added *a;
	int64_t i;
	int32_t rc = 0;

	while (!rc && (i = find_added(set, p, n, at, &from, &to)) >= 0) {
		a = tok_added(&e->t->vocab, (uint32_t)i);

		at = to; // also if a rstrip goes further, as in the reference
		if (!accept(e, a->flags, p, n, from, to))
			continue;
		prev = done;
		if (a->flags & TOK_LSTRIP)
			from = from > prev ? strip_left(p, from, prev) : prev;
		if (a->flags & TOK_RSTRIP)
			to = strip_right(p, n, to);
		if (prev < from)
			rc = fn(e, p + prev, from - prev, at_start && !prev);
		tok_work_id(e->w, a->id);
		done = to;
	}
	if (!rc && done < n)
		rc = fn(e, p + done, n - done, at_start && !done);
	return rc;
}

static int32_t encode_words(struct encode *e, const char *p, size_t n,
			    bool at_start)
{
	const struct genai_tokenizer *t = e->t;
	const struct tok_piece *piece;
	struct tok_buf *pieces;
	const char *text;
	int32_t rc;
	size_t i;

	rc = tok_pretokenize(&t->pres, e->w, p, n, at_start, &text, &pieces);
	if (rc)
		return rc;
	piece = (const void *)pieces->p;
	for (i = 0; !rc && i < pieces->n / sizeof(*piece); i++)
		rc = tok_model_word(t->model, &t->vocab, e->w,
				    text + piece[i].off, piece[i].len);
	return rc;
}

static int32_t encode_text(struct encode *e, const char *p, size_t n,
			   bool at_start)
{
	int32_t rc = tok_normalize(&e->t->norms, e->w, p, n, &at_start);

	// Words only read w->norm[0]: it stays while the words are made.
	return rc ? rc
		  : split_added(e, &e->t->normalized, e->w->norm[0].p,
				e->w->norm[0].n, at_start, encode_words);
}

int32_t genai_tokenizer_encode(const struct genai_tokenizer *tok,
			       const char *text, size_t bytes, uint32_t flags,
			       int64_t **out_ids, size_t *out_count,
			       struct genai_error *err)
{
	struct tok_work w;
	struct encode e = {tok, &w, flags};
	size_t bad = tok_utf8_check(text, bytes);
	int32_t rc;

	if (bad < bytes)
		return genai_fail(err, GENAI_E_INVAL,
				  "text is not UTF-8 at byte %zu of %zu", bad,
				  bytes);
	if (bytes > TOK_MAX_TEXT)
		return genai_fail(err, GENAI_E_LIMIT,
				  "text of %zu bytes is longer than %u", bytes,
				  TOK_MAX_TEXT);
	rc = tok_work_init(&w, err);
	if (rc)
		return rc;
	if (!(flags & GENAI_TOK_NO_SPECIAL))
		tok_buf_str(&w.ids, &tok->post.before);
	rc = split_added(&e, &tok->plain, text, bytes, true, encode_text);
	if (!(flags & GENAI_TOK_NO_SPECIAL))
		tok_buf_str(&w.ids, &tok->post.after);
	if (!rc && w.ids.failed)
		rc = tok_nomem(err);
	if (!rc) {
		*out_count = w.ids.n / sizeof(int64_t);
		*out_ids = NULL;
		if (*out_count) {
			*out_ids = (int64_t *)(void *)w.ids.p;
			w.ids = (struct tok_buf){0};
		}
	}
	tok_work_free(&w);
	return rc;
}
