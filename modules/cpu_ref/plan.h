/* plan.h - the executors' nodes and units of work; the loop is exec_common's.
 * Shared by plan.c (planning) and exec.c (launching). */
#ifndef CREF_PLAN_H
#define CREF_PLAN_H

#include "modules/cpu_ref/cpu_ref.h"
#include "modules/exec_common/exec.h"

#define CREF_BY_VALUE_BYTES                                                    \
	256 /* stored tensors up to this size travel with                      \
	       the unit, like kernel arguments */
#define CREF_FOLD_BYTES (1u << 20) /* largest value computed while planning */

/* A unit of work: a node, or some rows of one. */
struct cref_unit {
	struct cref_pool *pool;
	struct cref_node *n;
	uint64_t row_begin, row_end;
	uint32_t n_mem;
	bool has_workspace;		/* the last of mem */
	void **target[CREF_MAX_ACCESS]; /* where a tensor's bytes are put */
};

/* A stored matrix [K, N] that may be cut by columns. */
struct cref_columns {
	const char *data;
	uint64_t K, N, size; /* size: of an element */
};

struct cref_variant {
	struct exec_variant x;
	void **folded; /* per value: memory to free, or NULL */
};

struct genai_plan {
	struct exec_plan x;
	struct cref_columns *columns; /* per node */
};

static inline struct cref_variant *cref_variant(struct exec_variant *v)
{
	return (struct cref_variant *)v;
}

static inline struct cref_node *cref_node_of(const struct exec_variant *v,
					     uint32_t i)
{
	return (struct cref_node *)v->nodes + i;
}

/* exec.c */
int32_t cref_launch(struct exec_step *s, uint32_t node,
		    const struct exec_part *part);

#endif
