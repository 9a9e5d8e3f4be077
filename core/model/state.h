/* state.h - what a step hands on to the next one in device memory.
 * Owns: which inputs and outputs of a step graph are states, their shapes,
 * where each lies in the memory of a sequence.  Does not know: sessions,
 * copies.
 *
 * GROWS: a cache.  A step writes the rows of its positions and leaves those
 * before; what lies beyond a sequence's length counts for nothing, so the
 * length alone takes it back.  JOINED: a cache that a step makes anew, the old
 * rows and then its own, without gaps: it lies in two places by turns, and is
 * taken back by moving the rows that stay.  REPLACED: of one size; every step
 * reads what the last one left and writes over it.  There is no way back but a
 * copy that was made before. */
#ifndef GENAI_CORE_MODEL_STATE_H
#define GENAI_CORE_MODEL_STATE_H

#include <stdbool.h>

#include <genai/graph.h>

#include "core/model/genai_config.h"

enum genai_state_kind {
	GENAI_STATE_GROWS,
	GENAI_STATE_JOINED,
	GENAI_STATE_REPLACED
};

struct genai_state {
	uint32_t in, out; /* graph input and output indices */
	int64_t number;	  /* of its layer */
	enum genai_state_kind kind;
	uint32_t dtype, rank;
	uint32_t axis; /* the dimension that positions are counted in */
	int64_t dims[GENAI_MAX_RANK]; /* of one sequence; a cache: a position */
	uint64_t bytes;		      /* a cache: of a position; else of all */
};

struct genai_states {
	struct genai_state *v; /* owned */
	uint32_t n;
	uint64_t row_bytes;	 /* of a position, of all caches */
	uint64_t replaced_bytes; /* of all that are replaced */
	uint32_t n_joined;
};

/* Find them by the names of config in a step graph.
 * Errors: GENAI_E_UNSUPPORTED, _FORMAT, _LIMIT, naming the input. */
int32_t genai_states_find(const struct genai_graph *g,
			  const struct genai_model_config *config,
			  struct genai_states *out, struct genai_error *err);
void genai_states_free(struct genai_states *s);
/* Of a graph as it is stored: keys [1, heads, past, size] that a node makes
 * longer by joining them with new ones, a value; GENAI_NONE where there are
 * none. */
uint32_t genai_states_joined(const struct genai_graph *g,
			     const struct genai_model_config *config);
/* Is the name that of a state's output? */
bool genai_states_names(const struct genai_model_config *config,
			const char *name);
/* Is graph input i a state? */
bool genai_states_has(const struct genai_states *s, uint32_t input);

/* Bytes of a sequence with room for so many positions: what grows, what is
 * replaced, and as much again for a copy of the latter. */
uint64_t genai_states_bytes(const struct genai_states *s, uint64_t positions);
/* Where state i lies in them, and where else one that is joined (place 1);
 * where what is replaced begins, and its copy. */
uint64_t genai_states_at(const struct genai_states *s, uint32_t i,
			 uint32_t place, uint64_t positions);
uint64_t genai_states_replaced_at(const struct genai_states *s,
				  uint64_t positions);
uint64_t genai_states_copy_at(const struct genai_states *s, uint64_t positions);
/* A view at addr of a tensor without gaps. */
void genai_view_dense(struct genai_view *v, uint32_t dtype, genai_addr addr,
		      uint32_t rank, const int64_t *dims);
/* View of a state at addr, with room for so many positions.  Those come first
 * in memory, whichever dimension they are; not of one that is joined. */
void genai_state_view(const struct genai_state *s, genai_addr addr,
		      uint64_t positions, struct genai_view *out);
/* The same in blocks of so many positions: [blocks, block, heads, size]. */
void genai_state_blocks(const struct genai_state *s, genai_addr addr,
			uint64_t blocks, uint64_t block,
			struct genai_view *out);

#endif
