/* names.h - a table from names to indices.
 * Owns: the slots, not the names (borrowed).  The hash is keyed, so a file
 * cannot choose names that collide.  Threads: one per table. */
#ifndef GENAI_CORE_GRAPH_NAMES_H
#define GENAI_CORE_GRAPH_NAMES_H

#include "core/graph/arena.h"

struct genai_name_slot {
	const char *name; /* NULL: free */
	uint64_t hash;
	uint32_t value;
	uint32_t reserved;
};

struct genai_names {
	struct genai_name_slot *slots;
	uint32_t count;
	uint32_t cap; /* a power of two, or 0 */
	uint64_t key[2];
	struct genai_budget *budget; /* borrowed, may be NULL */
};

void genai_names_init(struct genai_names *t, struct genai_budget *budget);
void genai_names_free(struct genai_names *t);
/* The value of name, or GENAI_NONE. */
uint32_t genai_names_find(const struct genai_names *t, const char *name);
/* Add a name that is not there yet; 0 when out of memory or budget. */
int genai_names_add(struct genai_names *t, const char *name, uint32_t value);

#endif
