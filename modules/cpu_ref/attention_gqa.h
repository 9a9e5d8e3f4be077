/* attention_gqa.h - GroupQueryAttention's inputs and what prepare tells run. */
#ifndef CREF_ATTENTION_GQA_H
#define CREF_ATTENTION_GQA_H

#include "modules/cpu_ref/attention.h"
#include "modules/cpu_ref/kernels.h"
#include "modules/cpu_ref/ops.h"

#define GQA_ROTARY 1024 /* most channels that are rotated */

enum {
	QUERY,
	KEY,
	VALUE,
	PAST_K,
	PAST_V,
	SEQLENS,
	TOTAL,
	COS,
	SIN,
	POSITIONS,
	BIAS,
	SINK,
	K_SCALE,
	V_SCALE,
	Q_NORM,
	K_NORM,
	N_INPUTS
};

struct gqa {
	int64_t B, S, N, Nkv, H;
	int64_t rotary;			    /* channels rotated, 0: none */
	int64_t window;			    /* 0: none */
	int64_t copy_rows;		    /* of the window's copy, 0: none */
	uint64_t lens_at, attn_at, copy_at; /* in the workspace; q is first */
	float scale, softcap, epsilon;
	bool packed, interleaved, smooth, causal, sliding;
};
EXEC_STATE(gqa, cref_node)

static inline const struct cref_tensor *gqa_in(const struct cref_node *n,
					       uint32_t i)
{
	return i < n->n_in ? n->in[i] : NULL;
}

#endif
