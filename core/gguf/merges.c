// merges.c - the vocabulary of a GGUF file, and the merges that the scores of
// a SentencePiece vocabulary stand for.
#include "core/gguf/import.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_MAX 256u

static uint32_t u32_at(const uint8_t *p, uint64_t i)
{
	p += 4 * i;
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
	       (uint32_t)p[3] << 24;
}

static int compare(const char *a, uint64_t n, const char *b, uint64_t m)
{
	int d = memcmp(a, b, n < m ? n : m);

	return d ? d : (n > m) - (n < m);
}

int64_t imp_vocab_find(const struct imp_vocab *v, const char *text,
		       uint64_t bytes)
{
	uint64_t lo = 0, hi = v->n;

	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;
		const struct imp_token *t = &v->sorted[mid];
		int d = compare(text, bytes, t->text.data, t->text.bytes);

		if (!d)
			return t->id;
		if (d < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return -1;
}

uint32_t imp_vocab_type(const struct imp_vocab *v, uint64_t id)
{
	return v->types ? u32_at(v->types, id) : 1;
}

// left + right, both tokens, make a token: the better its score, the earlier
// they are merged; then the longer the left part, then the right.
struct merge {
	float score;
	uint32_t token, left, right;		 // ids
	uint16_t left_chars, right_chars, split; // split: bytes of left
};

static int earlier(const void *a, const void *b)
{
	const struct merge *x = a, *y = b;

	if (x->score != y->score)
		return x->score < y->score ? 1 : -1;
	if (x->left_chars != y->left_chars)
		return y->left_chars - x->left_chars;
	if (x->right_chars != y->right_chars)
		return y->right_chars - x->right_chars;
	if (x->token != y->token)
		return x->token < y->token ? -1 : 1;
	if (x->left != y->left)
		return x->left < y->left ? -1 : 1;
	return (x->right > y->right) - (x->right < y->right);
}

struct list {
	struct merge *m;
	uint64_t n, cap;
};

static bool grow(struct list *l)
{
	uint64_t cap = l->cap ? l->cap * 2 : 65536;
	void *p;

	if (l->n < l->cap)
		return true;
	p = realloc(l->m, cap * sizeof(*l->m));
	if (!p)
		return false;
	l->m = p;
	l->cap = cap;
	return true;
}

static bool starts_char(char c)
{
	return ((uint8_t)c & 0xc0) != 0x80;
}

// Every way to make one token of two.
static bool splits(const struct imp_vocab *v, uint32_t id, float score,
		   struct list *l)
{
	struct genai_gguf_string s = v->tokens[id];
	uint16_t chars = 0, left_chars = 0;

	for (uint64_t i = 0; i < s.bytes; i++)
		chars += starts_char(s.data[i]);
	for (uint64_t i = 1; i < s.bytes; i++) {
		int64_t left, right;

		left_chars += starts_char(s.data[i - 1]);
		if (!starts_char(s.data[i]))
			continue;
		left = imp_vocab_find(v, s.data, i);
		right = left < 0 ? -1
				 : imp_vocab_find(v, s.data + i, s.bytes - i);
		if (right < 0)
			continue;
		if (!grow(l))
			return false;
		l->m[l->n++] = (struct merge){
			score,		id,
			(uint32_t)left, (uint32_t)right,
			left_chars,	(uint16_t)(chars - left_chars),
			(uint16_t)i,
		};
	}
	return true;
}

static int32_t collect(const struct imp_vocab *v, struct list *l,
		       const char *path, struct genai_error *err)
{
	for (uint64_t i = 0; i < v->n; i++) {
		uint32_t bits = u32_at(v->scores, i);
		float score;

		memcpy(&score, &bits, sizeof(score));
		if (isnan(score))
			return genai_fail(err, GENAI_E_FORMAT,
					  "%s: the score of token %llu is no "
					  "number",
					  path, (unsigned long long)i);
		if (v->tokens[i].bytes > PIECE_MAX)
			return genai_fail(
				err, GENAI_E_UNSUPPORTED,
				"%s: token %llu has %llu bytes, over "
				"%u",
				path, (unsigned long long)i,
				(unsigned long long)v->tokens[i].bytes,
				PIECE_MAX);
		if (!splits(v, (uint32_t)i, score, l))
			return genai_fail(err, GENAI_E_NOMEM,
					  "%s: no memory for merges", path);
	}
	return GENAI_OK;
}

int32_t imp_merges_from_scores(const struct imp_vocab *v, FILE *f,
			       const char *path, struct genai_error *err)
{
	struct list l = {0};
	int32_t rc = collect(v, &l, path, err);

	if (!rc && l.n)
		qsort(l.m, l.n, sizeof(*l.m), earlier);
	for (uint64_t i = 0; i < l.n && !rc; i++) {
		const struct merge *m = &l.m[i];
		struct genai_gguf_string s = v->tokens[m->token];

		fputs(i ? ",[" : "[", f);
		if (!imp_put_json(f, s.data, m->split) ||
		    fputc(',', f) == EOF ||
		    !imp_put_json(f, s.data + m->split, s.bytes - m->split) ||
		    fputc(']', f) == EOF)
			rc = genai_fail(err, GENAI_E_IO,
					"%s: cannot write the merges", path);
	}
	free(l.m);
	return rc;
}
