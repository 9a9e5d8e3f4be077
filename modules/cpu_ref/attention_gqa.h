/* attention_gqa.h - GroupQueryAttention and PagedAttention: inputs, what
 * prepare tells run, and what the two share when they run. */
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

/* PagedAttention's own: its first five are as above.  What is not of the
 * operator's schema follows it: sink, norms of q and k, positions. */
enum {
	PAGED_FIRST = 5,
	PAGED_PAST,
	PAGED_TABLE,
	PAGED_COS,
	PAGED_SIN,
	PAGED_SINK,
	PAGED_Q_NORM,
	PAGED_K_NORM,
	PAGED_POSITIONS,
	N_PAGED_INPUTS
};

struct gqa {
	int64_t B, S, N, Nkv, H;
	int64_t rotary;			    /* channels rotated, 0: none */
	int64_t window;			    /* 0: none */
	int64_t copy_rows;		    /* of the window's copy, 0: none */
	uint64_t lens_at, attn_at, copy_at; /* in the workspace; q is first */
	float scale, softcap, epsilon;
	bool packed, interleaved, smooth, causal, sliding;
	bool paged;
	/* the cache: elements of a row; bits of a quantised one, or 0, and
	 * where the scales of the next head of keys, of values are */
	int64_t row;
	uint32_t bits;
	int64_t scale_head[2];
};
EXEC_STATE(gqa, cref_node)

/* Input i of GroupQueryAttention; of PagedAttention what is the same there. */
static inline const struct exec_tensor *gqa_in(const struct cref_node *n,
					       uint32_t i)
{
	static const uint8_t paged[N_INPUTS] = {
		QUERY,	     KEY,	 VALUE,	    PAST_K,    PAST_V,
		UINT8_MAX,   UINT8_MAX,	 PAGED_COS, PAGED_SIN, PAGED_POSITIONS,
		UINT8_MAX,   PAGED_SINK, UINT8_MAX, UINT8_MAX, PAGED_Q_NORM,
		PAGED_K_NORM};

	if (gqa(n)->paged)
		i = paged[i];
	return i < n->n_in && i < EXEC_MAX_IN ? n->in[i] : NULL;
}

struct gqa_call {
	struct gqa g;
	struct cref_node *n;
	struct genai_error *err;
	float *q;
	int64_t *past, *total, *base; /* per batch entry */
	int64_t *first;		      /* the same, and one more: its rows */
	int64_t rows;		      /* of the present */
	struct cref_kv to[2];	      /* where keys and values go */
	bool sliding;		      /* through the copy */
};

/* ---- attention_gqa.c ---- */

/* Attributes that both know, in g; shapes of query, key, value, of the rotary
 * tables and what is optional. */
int32_t gqa_attrs(struct cref_node *n, struct gqa *g, struct genai_error *err);
int32_t gqa_qkv(struct cref_node *n, struct gqa *g, struct genai_error *err);
int32_t gqa_rotary(struct cref_node *n, struct gqa *g, struct genai_error *err);
int32_t gqa_extras(struct cref_node *n, const struct gqa *g,
		   struct genai_error *err);
int32_t gqa_bad_shape(struct cref_node *n, uint32_t i, const char *want,
		      struct genai_error *err);
int32_t gqa_too_large(struct cref_node *n, struct genai_error *err);

/* ---- attention_gqa_run.c ---- */

/* Positions of b are those of cos_cache. */
int32_t gqa_check_positions(const struct gqa_call *c, int64_t b);
/* New keys and values into the cache, then attention. */
void gqa_compute(struct gqa_call *c, const struct cref_run *r);

#endif
