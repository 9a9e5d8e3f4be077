/* layer.h - a module in front of a stream runtime: [runtime] stream = A > B.
 * Owns: which slots of a stack are the layer's and which those below.  Does not
 * know: what a layer is for. */
#ifndef GENAI_CORE_LAYER_H
#define GENAI_CORE_LAYER_H

#include <genai/barrier.h>

#include "core/module/module.h"

/* The two tables of a device with their selfs. */
struct genai_stack {
	struct genai_stream_ops stream;
	struct genai_barrier_ops barrier;
	void *stream_self, *barrier_self;
};

/* What the module finds below, until it is closed: for one that is started by
 * itself. */
int32_t genai_layer_offer(struct genai_module *m,
			  const struct genai_stack *below,
			  struct genai_error *err);
/* Start the module, named by its stream layer's name ("": the only one), on top
 * of the stack, which becomes the stack with it.  What it needs lives until the
 * module is closed. */
int32_t genai_layer_start(struct genai_module *m, const char *name,
			  const struct genai_init_params *params,
			  struct genai_stack *stack, struct genai_error *err);

#endif
