// blocks.c - the pool of blocks: uses, order, content.
#include "core/engine/blocks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define ROOT (UINT64_C(1) << 63) // of serials that stand for a salt

struct block {
	uint32_t uses;
	uint32_t older, newer;	 // among the unused; older is taken first
	uint32_t same;		 // the next one with its hash
	uint64_t serial, before; // 0: its content is not known
};

struct eng_blocks {
	uint32_t n, size, n_free, n_cached;
	uint32_t oldest, newest;
	uint32_t mask;	 // of hashes
	uint32_t *first; // by hash
	uint64_t serial; // the last one given
	int64_t *ids;	 // of each block
	struct block *v;
};

static void put_newest(struct eng_blocks *p, uint32_t b)
{
	p->v[b].older = p->newest;
	p->v[b].newer = NONE;
	if (p->newest != NONE)
		p->v[p->newest].newer = b;
	else
		p->oldest = b;
	p->newest = b;
}

static void put_oldest(struct eng_blocks *p, uint32_t b)
{
	p->v[b].newer = p->oldest;
	p->v[b].older = NONE;
	if (p->oldest != NONE)
		p->v[p->oldest].older = b;
	else
		p->newest = b;
	p->oldest = b;
}

static void unlink_free(struct eng_blocks *p, uint32_t b)
{
	struct block *x = &p->v[b];

	if (x->older != NONE)
		p->v[x->older].newer = x->newer;
	else
		p->oldest = x->newer;
	if (x->newer != NONE)
		p->v[x->newer].older = x->older;
	else
		p->newest = x->older;
}

struct eng_blocks *eng_blocks_open(uint32_t n, uint32_t size)
{
	struct eng_blocks *p = calloc(1, sizeof(*p));
	uint32_t hashes = 1;

	if (!p)
		return NULL;
	while (hashes < n && hashes < UINT32_C(1) << 30)
		hashes *= 2;
	p->n = n;
	p->size = size;
	p->mask = hashes - 1;
	p->oldest = p->newest = NONE;
	p->first = malloc(hashes * sizeof(*p->first));
	p->ids = calloc((size_t)n * size, sizeof(*p->ids));
	p->v = calloc(n, sizeof(*p->v));
	if (!p->first || !p->ids || !p->v) {
		eng_blocks_close(p);
		return NULL;
	}
	memset(p->first, 0xff, hashes * sizeof(*p->first));
	for (uint32_t b = 0; b < n; b++)
		put_newest(p, b);
	p->n_free = n;
	return p;
}

void eng_blocks_close(struct eng_blocks *p)
{
	if (!p)
		return;
	free(p->first);
	free(p->ids);
	free(p->v);
	free(p);
}

uint32_t eng_blocks_free(const struct eng_blocks *p)
{
	return p->n_free;
}

uint32_t eng_blocks_cached(const struct eng_blocks *p)
{
	return p->n_cached;
}

// ---- content ----

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
	return h ^ h >> 29;
}

static uint32_t hash(const struct eng_blocks *p, uint64_t before,
		     const int64_t *ids)
{
	uint64_t h = mix(UINT64_C(0x243f6a8885a308d3), before);

	for (uint32_t i = 0; i < p->size; i++)
		h = mix(h, (uint64_t)ids[i]);
	return (uint32_t)(h >> 32) & p->mask;
}

static const int64_t *ids_of(const struct eng_blocks *p, uint32_t b)
{
	return p->ids + (size_t)b * p->size;
}

static uint32_t look_up(const struct eng_blocks *p, uint64_t before,
			const int64_t *ids)
{
	uint32_t b = p->first[hash(p, before, ids)];

	while (b != NONE &&
	       (p->v[b].before != before ||
		memcmp(ids_of(p, b), ids, p->size * sizeof(*ids)) != 0))
		b = p->v[b].same;
	return b;
}

static void forget(struct eng_blocks *p, uint32_t b)
{
	uint32_t *at = &p->first[hash(p, p->v[b].before, ids_of(p, b))];

	while (*at != b)
		at = &p->v[*at].same;
	*at = p->v[b].same;
	p->v[b].serial = 0;
}

uint64_t eng_salts_root(struct eng_salts *t, const char *salt)
{
	uint32_t at = 0;
	char *own;

	if (!salt || !*salt)
		return ROOT;
	for (uint32_t i = 0; i < ENG_SALTS; i++) {
		if (t->v[i] && !strcmp(t->v[i], salt)) {
			t->used[i] = ++t->n_uses;
			return t->root[i];
		}
		if (t->used[i] < t->used[at])
			at = i;
	}
	own = strdup(salt);
	if (own) {
		free(t->v[at]);
		t->v[at] = own;
		t->used[at] = ++t->n_uses;
		t->root[at] = ROOT | ++t->n_roots;
		return t->root[at];
	}
	return ROOT | ++t->n_roots; // nobody else's
}

void eng_salts_close(struct eng_salts *t)
{
	for (uint32_t i = 0; i < ENG_SALTS; i++)
		free(t->v[i]);
}

uint32_t eng_blocks_find(struct eng_blocks *p, uint64_t root,
			 const int64_t *ids, uint32_t n, uint32_t *out_blocks,
			 uint64_t *out_serial)
{
	uint32_t found = 0;

	*out_serial = root;
	for (; found < n; found++) {
		uint32_t b =
			look_up(p, *out_serial, ids + (size_t)found * p->size);

		if (b == NONE)
			break;
		if (!p->v[b].uses++) {
			unlink_free(p, b);
			p->n_free--;
			p->n_cached--;
		}
		out_blocks[found] = b;
		*out_serial = p->v[b].serial;
	}
	return found;
}

uint64_t eng_blocks_keep(struct eng_blocks *p, uint32_t block, uint64_t before,
			 const int64_t *ids)
{
	struct block *x = &p->v[block];
	uint32_t other = look_up(p, before, ids), h;

	if (other != NONE)
		return p->v[other].serial;
	h = hash(p, before, ids);
	memcpy(p->ids + (size_t)block * p->size, ids, p->size * sizeof(*ids));
	x->before = before;
	x->serial = ++p->serial;
	x->same = p->first[h];
	p->first[h] = block;
	return x->serial;
}

void eng_blocks_forget(struct eng_blocks *p)
{
	for (uint32_t b = 0; b < p->n; b++)
		if (p->v[b].serial)
			forget(p, b);
	p->n_cached = 0;
}

// ---- uses ----

uint32_t eng_blocks_take(struct eng_blocks *p)
{
	uint32_t b = p->oldest;

	if (b == NONE)
		return NONE;
	unlink_free(p, b);
	p->n_free--;
	if (p->v[b].serial) {
		p->n_cached--;
		forget(p, b);
	}
	p->v[b].uses = 1;
	return b;
}

void eng_blocks_drop(struct eng_blocks *p, uint32_t block)
{
	struct block *x = &p->v[block];

	if (--x->uses)
		return;
	p->n_free++;
	p->n_cached += x->serial != 0;
	if (x->serial)
		put_newest(p, block);
	else
		put_oldest(p, block);
}
