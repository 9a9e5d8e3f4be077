/* facts.h - what a plan has to know of an operator, whatever its arithmetic.
 * Owns: the facts that a row of an executor's table of operators states.
 * Does not know: operators, plans, devices. */
#ifndef EXEC_FACTS_H
#define EXEC_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#define EXEC_MAX_IN 20 /* of a node */
#define EXEC_MAX_OUT 8

/* Masks of inputs and outputs, by their numbers. */
#define IN(i) (1u << (i))
#define OUT(i) (1u << (i))
#define EXEC_HAS(mask, i) ((mask) >> (i)&1u)
/* Inputs of MoE and QMoE that have a part for each expert. */
#define EXEC_MOE_WEIGHTS (IN(8) - IN(2))
#define EXEC_QMOE_WEIGHTS (IN(14) - IN(2))

struct exec_facts {
	/* inputs whose value has to be known while planning */
	uint32_t host;
	/* inputs of which only the dims are read */
	uint32_t dims_only;
	/* inputs read by index: a few rows a step */
	uint32_t gathered;
	/* of those: one of the first dimension for each expert of a mixture, of
	 * which the operator finds them in a table: exec_tensor.experts */
	uint32_t experts;
	/* inputs whose rows are output columns: they may be cut together, and
	 * the operator run part by part */
	uint32_t rows;
	/* a matrix [K, N], as input, that may be cut by columns so */
	uint32_t columns;
	/* a state that the step carries on: inputs, outputs.  A state output is
	 * as long, in dimension 2, as what is bound to it, and may have gaps */
	uint32_t state_in, state_out;
};

/* Room in a node for what prepare finds out and run needs.  EXEC_STATE(s, node)
 * in an operator's file declares struct s to be that, and s(n) to be the one of
 * node n; the size of state is checked here. */
#define EXEC_STATE_BYTES 384
#define EXEC_STATE(name, node_type)                                            \
	_Static_assert(sizeof(struct name) <= EXEC_STATE_BYTES,                \
		       "struct " #name " is larger than a node's state");      \
	static inline struct name *name(const struct node_type *n)             \
	{                                                                      \
		return (struct name *)(uintptr_t)n->state;                     \
	}

#endif
