// tok_set.c - a sorted set of strings that can be walked byte by byte, to find
// every member that is a prefix of a text.
#include "core/text/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>

void tok_set_add(struct tok_set *s, size_t off, size_t len, uint32_t id,
		 uint32_t order)
{
	uint32_t cap = s->cap ? 2 * s->cap : 64;
	struct tok_pat *p;

	if (!len || s->failed)
		return;
	if (s->n == s->cap) {
		p = realloc(s->pat, cap * sizeof(*p));
		if (!p) {
			s->failed = true;
			return;
		}
		s->pat = p;
		s->cap = cap;
	}
	s->pat[s->n++] =
		(struct tok_pat){0, (uint32_t)off, (uint32_t)len, id, order};
}

static int by_text(const void *a, const void *b, void *base)
{
	const struct tok_pat *x = a, *y = b;
	const char *text = ((const struct tok_buf *)base)->p;
	uint32_t n = x->len < y->len ? x->len : y->len;
	int c;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	c = memcmp(text + x->off, text + y->off, n);
	if (c)
		return c;
	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

static bool same(const struct tok_set *s, const struct tok_pat *a,
		 const struct tok_pat *b)
{
	return a->len == b->len &&
	       !memcmp(s->text->p + a->off, s->text->p + b->off, a->len);
}

int32_t tok_set_seal(struct tok_set *s, const struct tok_buf *text)
{
	uint32_t i, n = 0, b;

	if (s->failed)
		return GENAI_E_NOMEM;
	s->text = text;
	for (i = 0; i < s->n; i++) {
		struct tok_pat *p = s->pat + i;

		for (b = 0; b < 8; b++)
			p->key =
				p->key << 8 |
				(b < p->len ? (uint8_t)text->p[p->off + b] : 0);
	}
	if (s->n)
		qsort_r(s->pat, s->n, sizeof(*s->pat), by_text, (void *)text);
	for (i = 0; i < s->n; i++)
		if (!n || !same(s, s->pat + n - 1, s->pat + i))
			s->pat[n++] = s->pat[i];
	s->n = n;
	for (i = 0, b = 0; b < 257; b++) {
		while (i < n && s->pat[i].key >> 56 < b)
			i++;
		s->first[b] = i;
	}
	return 0;
}

void tok_set_free(struct tok_set *s)
{
	free(s->pat);
	*s = (struct tok_set){0};
}

// First pattern of [lo, hi) whose byte at depth is at least b; the patterns
// share their first depth bytes, and those of just that length come first.
static uint32_t lower(const struct tok_walk *w, uint32_t lo, uint32_t hi,
		      unsigned b)
{
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const struct tok_pat *p = w->set->pat + mid;

		if (p->len <= w->depth ||
		    (uint8_t)w->set->text->p[p->off + w->depth] < b)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

bool tok_walk_step(struct tok_walk *w, uint8_t b)
{
	const struct tok_set *s = w->set;

	if (!w->depth) {
		w->lo = s->first[b];
		w->hi = s->first[b + 1];
	} else {
		w->lo = lower(w, w->lo, w->hi, b);
		w->hi = lower(w, w->lo, w->hi, b + 1u);
	}
	w->depth++;
	return w->lo < w->hi;
}
