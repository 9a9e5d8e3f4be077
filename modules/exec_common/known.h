/* known.h - attributes of operators that several executors carry: the values
 * that no executor does.  Their names are in attrs.h.
 * Does not know: executors, what operators compute. */
#ifndef EXEC_COMMON_KNOWN_H
#define EXEC_COMMON_KNOWN_H

#include "attrs.h"
#include "checks.h"

/* A row of GroupQueryAttention's cache: row elements of it for a head.  bits of
 * a quantised one, 8 (int8) or 4 (uint8, two in each), or 0; each: keys, values
 * have a scale for each channel of each head, not one for all. */
struct exec_cache {
	int64_t row;
	uint32_t bits;
	bool each[2];
};
/* The node with inputs in, heads of keys and values of this size: does what it
 * says of its cache, and the scales (inputs 12 and 13), fit, and is it carried?
 * If not: why. */
int32_t exec_gqa_cache(const struct genai_node *n,
		       struct exec_tensor *const *in, uint32_t n_in,
		       int64_t heads, int64_t size, struct exec_cache *out,
		       struct exec_text *out_why);

/* ConstantOfShape: the type and the bits of an element; 0.0f where the node
 * does not say.  If it holds no one number: why. */
int32_t exec_fill_value(const struct genai_graph *g, const struct genai_node *n,
			uint32_t *out_dtype, uint64_t *out_bits,
			struct exec_text *out_why);

/* ScatterElements, ScatterND: what a new value does with the one that is there.
 * If attribute reduction names something else: why. */
enum exec_write {
	EXEC_WRITE_SET,
	EXEC_WRITE_ADD,
	EXEC_WRITE_MUL,
	EXEC_WRITE_MAX,
	EXEC_WRITE_MIN
};
int32_t exec_reduction(const struct genai_node *n, enum exec_write *out,
		       struct exec_text *out_why);

#define EXEC_MAX_TAPS 4096 /* of CausalConvWithState, times dilation */
/* CausalConvWithState: are activation (none, silu or swish) and dilation such
 * as are carried, and has what only one implementation has the value that it is
 * elsewhere?  If not: why. */
struct exec_conv {
	int64_t dilation;
	bool last; /* channels last */
	bool silu;
};
int32_t exec_conv_state(const struct genai_node *n, struct exec_conv *out,
			struct exec_text *out_why);

#endif
