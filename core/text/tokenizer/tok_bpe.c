// tok_bpe.c - byte-pair encoding: the pair of lowest rank is merged first.
// A heap of candidate merges over a linked list of symbols, so that a word of n
// characters costs O(n log n).
#include "core/text/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>

#define NO_ID UINT32_MAX
#define QUICK 0x180 // characters whose id is tabulated; has the byte alphabet

struct merge {
	uint32_t a, b; // a == NO_ID: empty slot
	uint32_t rank, id;
};

struct tok_bpe {
	struct merge *merge;
	uint32_t mask, used;
	uint64_t seed;
	int64_t quick[QUICK];
	int64_t bytes[256];
	int64_t unk; // -1: none; -2: named but not in the vocabulary
	bool fuse_unk, byte_fallback, ignore_merges;
	char *prefix, *suffix; // NULL if empty
	size_t prefix_n, suffix_n;
};

struct symbol {
	uint32_t id;
	uint32_t prev, next; // NO_ID at the ends
	bool gone;
};

struct candidate {
	uint32_t rank, at; // of the left symbol; equal ranks: leftmost first
	uint32_t id;
};

void tok_bpe_free(struct tok_bpe *b)
{
	if (!b)
		return;
	free(b->merge);
	free(b->prefix);
	free(b->suffix);
	free(b);
}

static struct merge *slot(const struct tok_bpe *b, uint32_t x, uint32_t y)
{
	uint64_t h = ((uint64_t)x << 32 | y) ^ b->seed;
	uint32_t at;

	h = (h ^ h >> 29) * 0xd6e8feb86659fd93u;
	h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
	at = (uint32_t)(h >> 32) & b->mask;
	while (b->merge[at].a != NO_ID &&
	       (b->merge[at].a != x || b->merge[at].b != y))
		at = (at + 1) & b->mask;
	return b->merge + at;
}

static const struct merge *find(const struct tok_bpe *b, uint32_t x, uint32_t y)
{
	const struct merge *m = b->merge ? slot(b, x, y) : NULL;

	return m && m->a != NO_ID ? m : NULL;
}

static int grow(struct tok_bpe *b)
{
	struct merge *old = b->merge, *m;
	size_t cap = old ? 2 * ((size_t)b->mask + 1) : 1024, i;

	m = malloc(cap * sizeof(*m));
	if (!m)
		return -1;
	memset(m, 0xff, cap * sizeof(*m));
	b->merge = m;
	i = old ? (size_t)b->mask + 1 : 0;
	b->mask = (uint32_t)(cap - 1);
	while (i--)
		if (old[i].a != NO_ID)
			*slot(b, old[i].a, old[i].b) = old[i];
	free(old);
	return 0;
}

// The last of equal pairs wins, as in the reference.
static int put(struct tok_bpe *b, uint32_t x, uint32_t y, uint32_t rank,
	       uint32_t id)
{
	struct merge *m;

	if ((!b->merge || 3 * (uint64_t)b->used > 2 * (uint64_t)b->mask) &&
	    grow(b))
		return -1;
	m = slot(b, x, y);
	b->used += m->a == NO_ID;
	*m = (struct merge){x, y, rank, id};
	return 0;
}

// The two halves of a merge, one after the other in text.
static int32_t read_pair(struct tok_json *j, struct tok_buf *text, size_t *cut)
{
	const char *space;
	int32_t rc;

	text->n = 0;
	if (tok_json_peek(j) == '"') {
		rc = tok_json_string(j, text);
		if (rc)
			return rc;
		space = text->n ? memchr(text->p, ' ', text->n) : NULL;
		if (!space || memchr(space + 1, ' ',
				     text->n - (size_t)(space + 1 - text->p)))
			return tok_json_fail(j, "merge is not of two parts");
		*cut = (size_t)(space - text->p);
		memmove(text->p + *cut, space + 1, text->n - *cut - 1);
		text->n--;
		return 0;
	}
	rc = tok_json_expect(j, '[');
	if (!rc)
		rc = tok_json_string(j, text);
	*cut = text->n;
	if (!rc)
		rc = tok_json_expect(j, ',');
	if (!rc)
		rc = tok_json_string(j, text);
	return rc ? rc : tok_json_expect(j, ']');
}

static int32_t read_merge(struct tok_bpe *b, const struct tok_vocab *v,
			  struct tok_json *j, struct tok_buf *text,
			  uint32_t rank)
{
	int64_t x, y, id;
	size_t cut = 0;
	int32_t rc = read_pair(j, text, &cut);

	if (rc)
		return rc;
	x = tok_vocab_find(v, text->p, cut);
	y = tok_vocab_find(v, text->p + cut, text->n - cut);
	if (x < 0 || y < 0)
		return tok_json_fail(j, "part of merge is not in vocab");
	// The right half loses its continuing_subword_prefix.
	if (text->n - cut < b->prefix_n)
		return tok_json_fail(j, "merge without subword prefix");
	memmove(text->p + cut, text->p + cut + b->prefix_n,
		text->n - cut - b->prefix_n);
	id = tok_vocab_find(v, text->p, text->n - b->prefix_n);
	if (id < 0)
		return tok_json_fail(j, "result of merge is not in vocab");
	if (put(b, (uint32_t)x, (uint32_t)y, rank, (uint32_t)id))
		return tok_nomem(j->err);
	return 0;
}

static int32_t read_merges(struct tok_bpe *b, const struct tok_vocab *v,
			   struct tok_json *j)
{
	struct tok_buf text = {0};
	bool first = true;
	uint32_t rank = 0;
	int32_t rc = tok_json_expect(j, '[');

	// 256 MiB hold fewer merges than there are ranks.
	while (!rc && (rc = tok_json_next(j, ']', &first)) > 0)
		rc = read_merge(b, v, j, &text, rank++);
	tok_buf_free(&text);
	return rc;
}

static int32_t optional_str(const struct tok_load *l, json_t *j,
			    const char *key, char **out, size_t *n)
{
	int32_t rc;

	if (tok_is_null(j, key))
		return 0;
	rc = tok_str(l, j, key, out, n);
	if (!rc && !*n) {
		free(*out);
		*out = NULL;
	}
	return rc;
}

static int32_t options(struct tok_bpe *b, const struct tok_load *l, json_t *j,
		       const struct tok_vocab *v)
{
	json_t *unk = json_object_get(j, "unk_token");
	int32_t rc;

	if (json_number_value(json_object_get(j, "dropout")) != 0)
		return tok_unsupported(l, "BPE option", "dropout");
	b->fuse_unk = tok_bool(j, "fuse_unk", false);
	b->byte_fallback = tok_bool(j, "byte_fallback", false);
	b->ignore_merges = tok_bool(j, "ignore_merges", false);
	b->unk = -1;
	if (json_is_string(unk)) {
		b->unk = tok_vocab_find(v, json_string_value(unk),
					json_string_length(unk));
		b->unk = b->unk < 0 ? -2 : b->unk;
	}
	rc = optional_str(l, j, "continuing_subword_prefix", &b->prefix,
			  &b->prefix_n);
	if (!rc)
		rc = optional_str(l, j, "end_of_word_suffix", &b->suffix,
				  &b->suffix_n);
	return rc;
}

int32_t tok_bpe_parse(const struct tok_load *l, struct tok_spans *s,
		      struct tok_vocab *v, struct tok_bpe **out)
{
	struct tok_bpe *b = calloc(1, sizeof(*b));
	uint32_t cp;
	int32_t rc;

	if (!b)
		return tok_nomem(l->err);
	*out = b; // the caller frees it, whatever happens
	b->seed = v->seed;
	rc = options(b, l, s->rest, v);
	if (rc)
		return rc;
	if (!s->merges.p)
		return tok_bad(l, "model: no merges");
	rc = read_merges(b, v, &s->merges);
	if (rc)
		return rc;
	for (cp = 0; cp < QUICK; cp++) {
		char c[2] = {(char)cp, 0};

		if (cp >= 0x80) {
			c[0] = (char)(0xc0 | cp >> 6);
			c[1] = (char)(0x80 | (cp & 0x3f));
		}
		b->quick[cp] = tok_vocab_find(v, c, cp < 0x80 ? 1 : 2);
	}
	tok_byte_ids(v, b->bytes);
	return 0;
}

// ---- encoding ----

static void add_symbol(struct tok_work *w, int64_t id)
{
	uint32_t n = (uint32_t)(w->nodes.n / sizeof(struct symbol));
	struct symbol s = {(uint32_t)id, n ? n - 1 : NO_ID, n + 1, false};

	tok_buf_add(&w->nodes, &s, sizeof(s));
}

// A word's character as the vocabulary spells it, at its beginning and end.
static void dress(const struct tok_bpe *b, struct tok_work *w, bool first,
		  bool last, const char **p, size_t *n)
{
	if ((first || !b->prefix) && (!last || !b->suffix))
		return;
	w->tmp.n = 0;
	if (!first && b->prefix)
		tok_buf_add(&w->tmp, b->prefix, b->prefix_n);
	tok_buf_add(&w->tmp, *p, *n);
	if (last && b->suffix)
		tok_buf_add(&w->tmp, b->suffix, b->suffix_n);
	*p = w->tmp.p;
	*n = w->tmp.failed ? 0 : w->tmp.n;
}

// Byte tokens for a character that the vocabulary lacks; false if any lacks.
static bool fall_back(const struct tok_bpe *b, struct tok_work *w,
		      const char *p, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (b->bytes[(uint8_t)p[i]] < 0)
			return false;
	for (i = 0; i < n; i++)
		add_symbol(w, b->bytes[(uint8_t)p[i]]);
	return true;
}

// The word as symbols, one a character where the vocabulary has it.
static int32_t spell(const struct tok_bpe *b, const struct tok_vocab *v,
		     struct tok_work *w, const char *p, size_t n)
{
	bool pending = false; // an unknown token, not yet written: it may grow
	unsigned len;
	size_t i;

	for (i = 0; i < n; i += len) {
		uint32_t cp = tok_utf8_get(p + i, n - i, &len);
		const char *c = p + i;
		size_t c_n = len;
		int64_t id;

		dress(b, w, !i, i + len == n, &c, &c_n);
		id = c == p + i && cp < QUICK ? b->quick[cp]
					      : tok_vocab_find(v, c, c_n);
		if (id >= 0) {
			if (pending)
				add_symbol(w, b->unk);
			pending = false;
			add_symbol(w, id);
			continue;
		}
		// The bytes overtake a pending unknown, as in the reference.
		if (b->byte_fallback && fall_back(b, w, c, c_n))
			continue;
		if (b->unk == -2)
			return genai_fail(w->err, GENAI_E_FORMAT,
					  "unk_token is not in the vocabulary");
		if (b->unk < 0)
			continue;
		if (pending && !b->fuse_unk)
			add_symbol(w, b->unk);
		pending = true;
	}
	if (pending)
		add_symbol(w, b->unk);
	return 0;
}

static bool before(const struct candidate *x, const struct candidate *y)
{
	return x->rank != y->rank ? x->rank < y->rank : x->at < y->at;
}

static void push(struct tok_buf *heap, const struct candidate *c)
{
	size_t i = heap->n / sizeof(*c), up;
	struct candidate *h;

	tok_buf_add(heap, c, sizeof(*c));
	if (heap->failed)
		return;
	h = (struct candidate *)(void *)heap->p;
	for (; i; i = up) {
		up = (i - 1) / 2;
		if (!before(c, h + up))
			break;
		h[i] = h[up];
	}
	h[i] = *c;
}

static struct candidate pop(struct tok_buf *heap)
{
	struct candidate *h = (struct candidate *)(void *)heap->p;
	struct candidate top = h[0], last;
	size_t n, i = 0, down;

	heap->n -= sizeof(*h);
	n = heap->n / sizeof(*h);
	if (!n)
		return top;
	last = h[n];
	while ((down = 2 * i + 1) < n) {
		if (down + 1 < n && before(h + down + 1, h + down))
			down++;
		if (!before(h + down, &last))
			break;
		h[i] = h[down];
		i = down;
	}
	h[i] = last;
	return top;
}

static void consider(const struct tok_bpe *b, const struct symbol *s,
		     uint32_t at, struct tok_buf *heap)
{
	const struct merge *m;

	if (at == NO_ID || s[at].next == NO_ID)
		return;
	m = find(b, s[at].id, s[s[at].next].id);
	if (m)
		push(heap, &(struct candidate){m->rank, at, m->id});
}

static int32_t merge_all(const struct tok_bpe *b, struct tok_work *w)
{
	struct symbol *s = (struct symbol *)(void *)w->nodes.p, *right;
	uint32_t n = (uint32_t)(w->nodes.n / sizeof(*s)), i;
	const struct merge *m;
	struct candidate c;

	w->heap.n = 0;
	if (!n)
		return 0;
	s[n - 1].next = NO_ID;
	for (i = 0; i < n; i++)
		consider(b, s, i, &w->heap);
	while (w->heap.n && !w->heap.failed) {
		c = pop(&w->heap);
		if (s[c.at].gone || s[c.at].next == NO_ID)
			continue;
		right = s + s[c.at].next;
		// The pair may have changed since; only the result counts.
		m = find(b, s[c.at].id, right->id);
		if (!m || m->id != c.id)
			continue;
		right->gone = true;
		s[c.at].id = c.id;
		s[c.at].next = right->next;
		if (right->next != NO_ID)
			s[right->next].prev = c.at;
		consider(b, s, s[c.at].prev, &w->heap);
		consider(b, s, c.at, &w->heap);
	}
	if (w->heap.failed)
		return tok_nomem(w->err);
	for (i = 0; i != NO_ID; i = s[i].next)
		tok_work_id(w, s[i].id);
	return 0;
}

int32_t tok_bpe_word(const struct tok_bpe *b, const struct tok_vocab *v,
		     struct tok_work *w, const char *p, size_t n)
{
	int64_t id = b->ignore_merges ? tok_vocab_find(v, p, n) : -1;
	int32_t rc;

	if (id >= 0) {
		tok_work_id(w, id);
		return 0;
	}
	w->nodes.n = 0;
	rc = spell(b, v, w, p, n);
	if (rc)
		return rc;
	if (w->nodes.failed || w->tmp.failed)
		return tok_nomem(w->err);
	return merge_all(b, w);
}
