/* arena.h - memory that is freed all at once, and a cap on it.
 * Owns: the strings and small arrays of one graph.
 * Does not know: graphs.  Threads: one per arena. */
#ifndef GENAI_CORE_GRAPH_ARENA_H
#define GENAI_CORE_GRAPH_ARENA_H

#include <stddef.h>
#include <stdint.h>

/* How much an import may still allocate.  Shared by everything that one file
 * makes us allocate, so that a small file cannot ask for much memory. */
struct genai_budget {
	uint64_t left;
	int exceeded; /* set once a request did not fit */
};

/* Take bytes; 0 if they do not fit.  A NULL budget has no limit. */
int genai_budget_take(struct genai_budget *budget, uint64_t bytes);
void genai_budget_give(struct genai_budget *budget, uint64_t bytes);

struct genai_arena_chunk;

struct genai_arena {
	struct genai_arena_chunk *head;
	struct genai_budget *budget; /* borrowed, may be NULL */
};

/* bytes of uninitialised memory, never NULL for 0 bytes; align is a power of
 * two up to 64.  NULL when out of memory or budget. */
void *genai_arena_alloc(struct genai_arena *a, uint64_t bytes, size_t align);
void genai_arena_free(struct genai_arena *a);

#endif
