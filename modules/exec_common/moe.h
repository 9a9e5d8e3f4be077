/* moe.h - MoE and QMoE as executors are given them: attributes, inputs, sizes.
 * Does not know: executors, how experts are computed. */
#ifndef EXEC_COMMON_MOE_H
#define EXEC_COMMON_MOE_H

#include "checks.h"

enum exec_moe_act {
	EXEC_MOE_RELU,
	EXEC_MOE_RELU2,
	EXEC_MOE_GELU,
	EXEC_MOE_SILU,
	EXEC_MOE_SWIGLU,
	EXEC_MOE_GEGLU,
	EXEC_MOE_IDENTITY,
};

/* Zero points: none (2^(bits-1)), codes along the blocks of a row, floats, or
 * codes along the rows, one a row. */
enum exec_moe_zero {
	EXEC_MOE_Z_NONE,
	EXEC_MOE_Z_PACKED,
	EXEC_MOE_Z_FLOAT,
	EXEC_MOE_Z_TURNED,
};

/* One of the products, for every expert: N outputs of K inputs. */
struct exec_moe_fc {
	uint32_t w, scale, zero, bias; /* inputs of the node; 0: none */
	uint32_t bits;		       /* 0: floats */
	uint32_t block, blocks;	       /* weights of a scale, scales of a row */
	uint32_t z_kind, z_row;	       /* bytes of a row of them, if codes */
	int64_t N, K;
};

/* M rows of D go to k of E experts, which have I values in the middle. */
struct exec_moe {
	int64_t M, D, E, I, k;
	uint32_t act;
	uint32_t fusion; /* 1: gate and up by turns, 2: gates first, 0: apart */
	bool normalize, late_limit;
	float alpha, beta, limit;
	uint32_t own; /* the input with weights of experts, or 0 */
	struct exec_moe_fc fc[3];
};

/* Is what the node says consistent, and known?  If not: why.  Inputs 0 to 2 are
 * there.  All inputs but codes are floats of 32 or 16 bits; whether those
 * differ in type is not asked. */
int32_t exec_moe_check(const struct genai_node *n,
		       struct exec_tensor *const in[], uint32_t n_in,
		       bool quantised, struct exec_moe *out,
		       struct exec_text *out_why);

#endif
