// names.c - a table from names to indices: open addressing, SipHash-1-3.
#include "core/graph/names.h"

#include <genai/types.h>

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static uint64_t rotl(uint64_t x, int n)
{
	return (x << n) | (x >> (64 - n));
}

static void sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = rotl(v[1], 13) ^ v[0];
	v[0] = rotl(v[0], 32);
	v[2] += v[3];
	v[3] = rotl(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = rotl(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = rotl(v[1], 17) ^ v[2];
	v[2] = rotl(v[2], 32);
}

static uint64_t name_hash(const struct genai_names *t, const char *name)
{
	uint64_t v[4] = {t->key[0] ^ 0x736f6d6570736575u,
			 t->key[1] ^ 0x646f72616e646f6du,
			 t->key[0] ^ 0x6c7967656e657261u,
			 t->key[1] ^ 0x7465646279746573u};
	size_t n = strlen(name), at = 0;
	uint64_t word;

	for (; n - at >= 8; at += 8) {
		memcpy(&word, name + at, 8);
		v[3] ^= word;
		sip_round(v);
		v[0] ^= word;
	}
	word = 0;
	memcpy(&word, name + at, n - at);
	word |= (uint64_t)n << 56;
	v[3] ^= word;
	sip_round(v);
	v[0] ^= word;
	v[2] ^= 0xff;
	sip_round(v);
	sip_round(v);
	sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void genai_names_init(struct genai_names *t, struct genai_budget *budget)
{
	struct timespec now;

	memset(t, 0, sizeof(*t));
	t->budget = budget;
	if (getrandom(t->key, sizeof(t->key), GRND_NONBLOCK) ==
	    (ssize_t)sizeof(t->key))
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	t->key[0] = (uint64_t)now.tv_nsec;
	t->key[1] = (uint64_t)(uintptr_t)t;
}

void genai_names_free(struct genai_names *t)
{
	genai_budget_give(t->budget, (uint64_t)t->cap * sizeof(*t->slots));
	free(t->slots);
	t->slots = NULL;
	t->count = 0;
	t->cap = 0;
}

// The slot that holds name, or the free one where it belongs.
static struct genai_name_slot *probe(const struct genai_names *t,
				     const char *name, uint64_t hash)
{
	uint32_t i = (uint32_t)hash & (t->cap - 1);

	while (t->slots[i].name && (t->slots[i].hash != hash ||
				    strcmp(t->slots[i].name, name) != 0))
		i = (i + 1) & (t->cap - 1);
	return &t->slots[i];
}

uint32_t genai_names_find(const struct genai_names *t, const char *name)
{
	const struct genai_name_slot *s;

	if (!t->cap || !name)
		return GENAI_NONE;
	s = probe(t, name, name_hash(t, name));
	return s->name ? s->value : GENAI_NONE;
}

static int grow(struct genai_names *t)
{
	struct genai_name_slot *old = t->slots;
	uint32_t cap = t->cap, i;

	if (cap > UINT32_MAX / 4)
		return 0;
	t->cap = cap ? cap * 2 : 16;
	if (!genai_budget_take(t->budget, (uint64_t)t->cap * sizeof(*old))) {
		t->cap = cap;
		return 0;
	}
	t->slots = calloc(t->cap, sizeof(*old));
	if (!t->slots) {
		genai_budget_give(t->budget, (uint64_t)t->cap * sizeof(*old));
		t->slots = old;
		t->cap = cap;
		return 0;
	}
	for (i = 0; i < cap; i++)
		if (old[i].name)
			*probe(t, old[i].name, old[i].hash) = old[i];
	genai_budget_give(t->budget, (uint64_t)cap * sizeof(*old));
	free(old);
	return 1;
}

int genai_names_add(struct genai_names *t, const char *name, uint32_t value)
{
	struct genai_name_slot *s;
	uint64_t hash = name_hash(t, name);

	if (t->count >= t->cap / 2 && !grow(t))
		return 0;
	s = probe(t, name, hash);
	s->name = name;
	s->hash = hash;
	s->value = value;
	t->count++;
	return 1;
}
