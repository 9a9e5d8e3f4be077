// arena.c - memory that is freed all at once, and a cap on it.
#include "core/graph/arena.h"

#include <stdlib.h>

#define CHUNK_MIN 1024u
#define CHUNK_MAX 65536u
#define CHUNK_ALIGN 64u
#define BYTES_MAX ((uint64_t)1 << 46) // of a tensor; no request is larger

struct genai_arena_chunk {
	struct genai_arena_chunk *next;
	size_t used; // including this header
	size_t bytes;
};

int genai_budget_take(struct genai_budget *budget, uint64_t bytes)
{
	if (!budget)
		return 1;
	if (bytes > budget->left) {
		budget->exceeded = 1;
		return 0;
	}
	budget->left -= bytes;
	return 1;
}

void genai_budget_give(struct genai_budget *budget, uint64_t bytes)
{
	if (budget)
		budget->left += bytes;
}

// Chunks double, so that a small subgraph costs little and a large graph few
// calls.
static struct genai_arena_chunk *chunk_new(struct genai_arena *a,
					   uint64_t bytes)
{
	uint64_t size = a->head ? (uint64_t)a->head->bytes * 2 : CHUNK_MIN;
	struct genai_arena_chunk *c;

	if (size > CHUNK_MAX)
		size = CHUNK_MAX;
	if (bytes > BYTES_MAX)
		return NULL;
	if (size < bytes + 2 * CHUNK_ALIGN)
		size = bytes + 2 * CHUNK_ALIGN;
	size = (size + CHUNK_ALIGN - 1) & ~(uint64_t)(CHUNK_ALIGN - 1);
	if (!genai_budget_take(a->budget, size))
		return NULL;
	c = aligned_alloc(CHUNK_ALIGN, (size_t)size);
	if (!c)
		return NULL;
	c->bytes = (size_t)size;
	c->used = sizeof(*c);
	c->next = a->head;
	a->head = c;
	return c;
}

void *genai_arena_alloc(struct genai_arena *a, uint64_t bytes, size_t align)
{
	struct genai_arena_chunk *c = a->head;
	size_t at = c ? (c->used + align - 1) & ~(align - 1) : 0;

	if (!c || at > c->bytes || bytes > c->bytes - at) {
		c = chunk_new(a, bytes);
		if (!c)
			return NULL;
		at = (c->used + align - 1) & ~(align - 1);
	}
	c->used = at + (size_t)bytes;
	return (char *)c + at;
}

void genai_arena_free(struct genai_arena *a)
{
	while (a->head) {
		struct genai_arena_chunk *next = a->head->next;

		free(a->head);
		a->head = next;
	}
}
