/* control.h - what control.c and control_loop.c share: If, Loop and Scan of a
 * graph that is run once. */
#ifndef GENAI_CORE_MODEL_CONTROL_H
#define GENAI_CORE_MODEL_CONTROL_H

#include "core/model/single.h"

struct control {
	struct genai_runtime *rt;
	uint32_t runs; /* of subgraphs */
};

/* The values of one graph that are known so far, and of those around it. */
struct scope {
	struct control *c;
	const struct scope *up;
	const struct genai_graph *g;
	struct genai_host_tensor *v; /* by value */
	unsigned char *state;
	uint32_t depth;
};

int32_t control_fail(const struct genai_node *n, struct genai_error *err,
		     int32_t code, const char *why);
/* An attribute, a subgraph; NULL: none of that name. */
const struct genai_attr *control_attr(const struct genai_node *n,
				      const char *name);
const struct genai_graph *control_body(const struct genai_node *n,
				       const char *name);
/* A value of s or of what is around it; its data stays theirs. */
int32_t control_get(const struct scope *s, uint32_t value,
		    struct genai_host_tensor *out, struct genai_error *err);
/* The value (GENAI_NONE: nobody) takes t's data. */
void control_put(struct scope *s, uint32_t value, struct genai_host_tensor *t);
/* The number that is input i, int64 or bool; *io stays where it is omitted. */
int32_t control_number(const struct scope *s, const struct genai_node *n,
		       uint32_t i, const char *what, int64_t *io,
		       struct genai_error *err);
/* Data of its own. */
int32_t control_copy(const struct genai_host_tensor *t,
		     struct genai_host_tensor *out, struct genai_error *err);
/* Run a subgraph: inputs stay the caller's, outputs are malloc'ed; what there
 * is of them after an error, too. */
int32_t control_run_body(const struct scope *up, const struct genai_graph *g,
			 const struct genai_host_tensor *in,
			 struct genai_host_tensor *out,
			 struct genai_error *err);
void control_drop(struct genai_host_tensor *t, uint32_t n);

int32_t control_loop(struct scope *s, const struct genai_node *n,
		     struct genai_error *err);
int32_t control_scan(struct scope *s, const struct genai_node *n,
		     struct genai_error *err);

#endif
