// tok_vocab.c - tokens by id and ids by text.
// Does not know: what the tokens are used for.
#include "core/text/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void tok_vocab_init(struct tok_vocab *v)
{
	*v = (struct tok_vocab){0};
	// Only the layout of the tables depends on it; zero would do as well.
	if (getrandom(&v->seed, sizeof(v->seed), GRND_NONBLOCK) < 0)
		v->seed = (uint64_t)(uintptr_t)v;
}

void tok_vocab_free(struct tok_vocab *v)
{
	tok_buf_free(&v->text);
	tok_buf_free(&v->info);
	free(v->model.e);
	free(v->model.slot);
	free(v->added.e);
	free(v->added.slot);
	free(v->by_id);
	*v = (struct tok_vocab){0};
}

static uint32_t hash(uint64_t seed, const char *p, size_t n)
{
	uint64_t h = seed ^ (n * 0x9e3779b97f4a7c15u), w;

	for (; n; p += 8, n -= 8) {
		w = 0;
		memcpy(&w, p, n < 8 ? n : 8);
		h = (h ^ w) * 0xd6e8feb86659fd93u;
		h ^= h >> 32;
		if (n <= 8)
			break;
	}
	h *= 0xd6e8feb86659fd93u;
	return (uint32_t)(h >> 32);
}

int32_t tok_names_set(struct tok_vocab *v, struct tok_names *m, uint32_t i,
		      size_t off)
{
	struct tok_entry *e;
	uint32_t cap = m->cap ? m->cap : 64;

	if (i >= m->cap) {
		while (cap <= i)
			cap *= 2; // indices are below TOK_MAX_ID
		e = realloc(m->e, cap * sizeof(*e));
		if (!e)
			return GENAI_E_NOMEM;
		memset(e + m->cap, 0, (cap - m->cap) * sizeof(*e));
		m->e = e;
		m->cap = cap;
	}
	e = m->e + i;
	if (e->has)
		return GENAI_E_FORMAT;
	*e = (struct tok_entry){(uint32_t)off, (uint16_t)(v->text.n - off),
				true};
	if (i >= m->n)
		m->n = i + 1;
	return 0;
}

static int grow(struct tok_names *m)
{
	size_t cap = m->slot ? 2 * ((size_t)m->mask + 1) : 1024, i, at;
	uint64_t *slot = calloc(cap, sizeof(*slot));

	if (!slot)
		return -1;
	for (i = 0; m->slot && i <= m->mask; i++) {
		if (!m->slot[i])
			continue;
		at = (m->slot[i] >> 32) & (cap - 1);
		while (slot[at])
			at = (at + 1) & (cap - 1);
		slot[at] = m->slot[i];
	}
	free(m->slot);
	m->slot = slot;
	m->mask = (uint32_t)(cap - 1);
	return 0;
}

// The slot of the text, or the empty one where it belongs.
static uint64_t *find(const struct tok_vocab *v, const struct tok_names *m,
		      const char *p, size_t n, uint32_t h)
{
	uint32_t at = h & m->mask;

	for (;; at = (at + 1) & m->mask) {
		uint64_t s = m->slot[at];
		const struct tok_entry *e;

		if (!s)
			return m->slot + at;
		if ((uint32_t)(s >> 32) != h)
			continue;
		e = m->e + (uint32_t)s - 1;
		if (e->len == n && !memcmp(v->text.p + e->off, p, n))
			return m->slot + at;
	}
}

int32_t tok_names_put(struct tok_vocab *v, struct tok_names *m, uint32_t i)
{
	const struct tok_entry *e = m->e + i;
	const char *p = v->text.p + e->off;
	uint32_t h = hash(v->seed, p, e->len);
	uint64_t *slot;

	if ((!m->slot || 2 * m->used > m->mask) && grow(m))
		return GENAI_E_NOMEM;
	slot = find(v, m, p, e->len, h);
	if (*slot)
		return GENAI_E_FORMAT;
	*slot = (uint64_t)h << 32 | (i + 1);
	m->used++;
	return 0;
}

int64_t tok_names_find(const struct tok_vocab *v, const struct tok_names *m,
		       const char *p, size_t n)
{
	if (!m->slot || n > TOK_MAX_TOKEN)
		return -1;
	return (int64_t)(uint32_t)*find(v, m, p, n, hash(v->seed, p, n)) - 1;
}

void tok_byte_ids(const struct tok_vocab *v, int64_t *ids)
{
	static const char digits[] = "0123456789ABCDEF";
	char text[] = "<0x00>";
	int b;

	for (b = 0; b < 256; b++) {
		text[3] = digits[b >> 4];
		text[4] = digits[b & 15];
		ids[b] = tok_vocab_find(v, text, 6);
	}
}
