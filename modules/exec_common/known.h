/* known.h - attributes of operators that several executors carry: their names,
 * and the values that no executor does.
 * Does not know: executors, what operators compute. */
#ifndef EXEC_COMMON_KNOWN_H
#define EXEC_COMMON_KNOWN_H

#include "checks.h"

/* For exec_attr_check. */
extern const char *const exec_gqa_attrs[];
extern const char *const exec_moe_attrs[];
extern const char *const exec_qmoe_attrs[];
extern const char *const exec_conv_state_attrs[];
extern const char *const exec_linear_attrs[]; /* LinearAttention */

#define EXEC_MAX_TAPS 4096 /* of CausalConvWithState, times dilation */
/* CausalConvWithState: are activation (none, silu or swish) and dilation such
 * as are carried, and has what only one implementation has the value that it is
 * elsewhere?  If not: why. */
int32_t exec_conv_state_check(const struct genai_node *n,
			      struct exec_text *out_why);

#endif
