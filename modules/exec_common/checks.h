/* checks.h - what prepare functions ask first: a node's attributes, dims, and
 * the words of their errors.
 * Does not know: executors, what operators compute. */
#ifndef EXEC_COMMON_CHECKS_H
#define EXEC_COMMON_CHECKS_H

#include <genai/graph.h>

#include "tensor.h"

struct exec_text {
	char s[160];
};
#define EXEC_WHY(why, ...) snprintf((why)->s, sizeof((why)->s), __VA_ARGS__)

/* An attribute, or NULL; its value, or what is given where it is absent or of
 * another kind. */
const struct genai_attr *exec_attr(const struct genai_node *n,
				   const char *name);
int64_t exec_attr_int(const struct genai_node *n, const char *name, int64_t d);
double exec_attr_float(const struct genai_node *n, const char *name, double d);
const char *exec_attr_string(const struct genai_node *n, const char *name,
			     const char *d);
/* Is every attribute in the NULL-terminated list (NULL: none is known), of its
 * kind, and a value that operators define?  If not: why. */
int32_t exec_attr_check(const struct genai_node *n, const char *const *known,
			struct exec_text *out_why);

/* The node's name; for a nameless one, that of what it writes. */
const char *exec_label(const struct genai_node *n,
		       struct exec_tensor *const *out, uint32_t n_out);
const char *exec_dtype_name(uint32_t dtype);
struct exec_text exec_shape_text(uint32_t rank, const int64_t *dims);
#define EXEC_SHAPE(t) (exec_shape_text((t)->rank, (t)->dims).s) /* "[2,3]" */

/* No more than GENAI_MAX_RANK dims, none below 0, whose product is far from
 * overflow, also where one is 0: strides are products of the others. */
bool exec_dims_legal(uint32_t rank, const int64_t *dims);
/* Dense, of this type and shape. */
static inline void exec_set_dense(struct exec_tensor *t, uint32_t dtype,
				  uint32_t rank, const int64_t *dims)
{
	t->dtype = dtype;
	t->rank = rank;
	for (uint32_t i = 0; i < rank; i++)
		t->dims[i] = dims[i];
	exec_dense(rank, dims, t->strides);
}

#endif
