/* op.h - how cpu_ref's executors see an operator.
 * Owns: the shape of an operator's two functions.  Does not know: streams,
 * pagers, schedules.
 *
 * Adding an operator is a row in ops_rows.h and its functions:
 *   prepare  once per set of input shapes: check attributes, inputs and dtypes,
 *            set the outputs' dtype and dims, ask for workspace;
 *   run      compute; called with every data pointer set.  No allocation, no
 *            lock; threads only through cref_pool_run().
 * Results must not depend on the number of threads, the vector width, how the
 * rows are cut into units of work, or whether M rows come at once or one by
 * one. */
#ifndef CREF_OP_H
#define CREF_OP_H

#include <stdbool.h>
#include <stddef.h>

#include "modules/exec_common/facts.h"
#include "modules/exec_common/known.h"
#include "modules/exec_common/tensor.h"

struct cref_pool;

/* Run fn(ctx, begin, end) over disjoint parts of [0, count), each part a
 * multiple of grain long (the last may be shorter); returns when all are done.
 * The calling thread takes part.  A NULL pool, or one thread, runs inline.
 * Threads wait by spinning briefly, then sleep. */
typedef void (*cref_part_fn)(void *ctx, uint64_t begin, uint64_t end);
void cref_pool_run(struct cref_pool *pool, cref_part_fn fn, void *ctx,
		   uint64_t count, uint64_t grain);
uint32_t cref_pool_threads(const struct cref_pool *pool); /* >= 1 */

/* A node being planned or run. */
struct cref_node {
	const struct genai_node *node;
	const struct genai_graph *graph; /* of tensor attributes; may be NULL */
	const struct cref_op *op;
	uint32_t n_in, n_out;
	struct exec_tensor *in[EXEC_MAX_IN]; /* NULL: omitted */
	struct exec_tensor *out[EXEC_MAX_OUT];
	uint64_t workspace_bytes; /* prepare sets; 64-byte aligned at run */
	/* prepare fills, run reads: EXEC_STATE */
	_Alignas(max_align_t) unsigned char state[EXEC_STATE_BYTES];
};

/* One unit of work. */
struct cref_run {
	struct cref_pool *pool;
	void *workspace;
	/* For operators with inputs that can be cut: the output rows (N) of
	 * this unit, in [0, N); the data pointers of the inputs that are cut
	 * point at row row_begin, except where they are their values.  Whole: 0
	 * and N. */
	uint64_t row_begin, row_end;
	struct genai_error *err; /* filled on failure (host side values) */
};

struct cref_op {
	const char *domain;
	const char *op;
	int64_t since; /* lowest opset of the domain this row serves */
	int32_t (*prepare)(struct cref_node *n, struct genai_error *err);
	int32_t (*run)(struct cref_node *n, const struct cref_run *r);
	uint32_t code; /* which of the operations that share the functions */
	/* The output shares the first input's bytes (Reshape, Identity, ...):
	 * run is not called unless it is a graph output, when run copies. */
	bool alias;
	struct exec_facts facts;
};

/* May be run by ranges of its output's columns. */
static inline bool cref_op_cuts(const struct cref_op *op)
{
	return op->facts.rows || op->facts.columns;
}

/* The row that serves a node, or NULL. */
const struct cref_op *cref_op_find(const struct genai_node *node);

/* Fill err like the core does: "node NAME (OP): text". */
int32_t cref_node_fail(const struct cref_node *n, struct genai_error *err,
		       int32_t code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* exec_attr_check, whose reason becomes the node's error. */
int32_t cref_attr_check(const struct cref_node *n, const char *const *known,
			struct genai_error *err);

#endif
