/* single.h - running one graph once: inputs in host memory to outputs in host
 * memory.  For `genai run` and tests; a session does this for models.
 *
 * Small integer inputs and single numbers become constants of the graph: shapes
 * and axes must be known while planning.  If, Loop and Scan are seen to on the
 * host (control.c), whatever the executor has. */
#ifndef GENAI_CORE_MODEL_SINGLE_H
#define GENAI_CORE_MODEL_SINGLE_H

#include "core/runtime.h"

struct genai_host_tensor {
	uint32_t dtype, rank;
	int64_t dims[GENAI_MAX_RANK];
	void *data; /* dense; outputs: malloc'ed, caller frees */
	uint64_t bytes;
};

/* inputs by the graph's input order; outputs (n_outputs entries) by its output
 * order.  Errors: those of planning and running. */
int32_t genai_single_run(struct genai_runtime *rt, const struct genai_graph *g,
			 const struct genai_host_tensor *inputs,
			 struct genai_host_tensor *outputs,
			 struct genai_error *err);

/* The same for a graph that has none of these. */
int32_t genai_single_flat(struct genai_runtime *rt, const struct genai_graph *g,
			  const struct genai_host_tensor *inputs,
			  struct genai_host_tensor *outputs,
			  struct genai_error *err);
/* Do the inputs fit what the graph says of them? */
int32_t genai_single_check(const struct genai_graph *g,
			   const struct genai_host_tensor *inputs,
			   struct genai_error *err);

#endif
