/* attention.h - softmax attention over cached keys and values.
 * Owns: the description of one call.  Does not know: nodes.
 *
 * A query row's result depends only on the row, its position and the keys it
 * sees; not on how many rows come at once, how units of work are cut, threads,
 * or the vector level. */
#ifndef CREF_ATTENTION_H
#define CREF_ATTENTION_H

#include "modules/cpu_ref/kern.h"
#include "modules/cpu_ref/op.h"

/* Rows of one head: element (b, h, row, d) at data + b * batch + h * head +
 * row * row + d, strides in elements.  Row 0 holds position base[b], a multiple
 * of CREF_AT_TILE (base may be NULL: 0).
 * In blocks, where block is not 0: row r of b is row r % block of block
 * table[b * table_row + r / block], and batch counts for nothing.
 * Quantised, where bits is not 0 (attention_quant.c): an element is a byte. */
struct cref_kv {
	const void *data;
	uint32_t dtype;
	int64_t batch, head, row;
	const int32_t *table;
	int64_t table_row, block;
	uint32_t bits;	    /* 8, 4 */
	const void *scales; /* F32; of head h from h * scale_head on */
	int64_t scale_head; /* 0: one scale */
};

static inline int64_t cref_kv_size(uint32_t dtype)
{
	return dtype == GENAI_DT_F32				 ? 4
	       : dtype == GENAI_DT_F16 || dtype == GENAI_DT_BF16 ? 2
								 : 1;
}

static inline char *cref_kv_at(const struct cref_kv *kv, int64_t b, int64_t h,
			       int64_t row)
{
	const int64_t size = cref_kv_size(kv->dtype);
	int64_t at = b * kv->batch + row * kv->row;

	if (kv->block)
		at = (kv->table[b * kv->table_row + row / kv->block] *
			      kv->block +
		      row % kv->block) *
		     kv->row;
	return (char *)(uintptr_t)kv->data + (at + h * kv->head) * size;
}

/* A row of n elements: rounded into the cache; of a quantised one, as floats.
 */
void cref_kv_put(const struct cref_kv *kv, int64_t b, int64_t h, int64_t row,
		 const float *x, uint64_t n);
void cref_kv_get(const struct cref_kv *kv, int64_t b, int64_t h, int64_t row,
		 float *x, uint64_t n);

struct cref_attn {
	uint64_t B, S, N, Nkv, H, Hv;
	const float *q; /* [B][S][N][H] */
	struct cref_kv k, v;
	const int64_t *base;
	/* [B + 1]: rows first[b] to first[b + 1] are b's, [S][N][H]; NULL: S
	 * each.  Then without bias, and H is Hv. */
	const int64_t *first;
	const int64_t *past;  /* [B]: position of the first query row */
	const int64_t *total; /* [B]: keys; causal rows at or beyond give 0 */
	bool causal;
	int64_t window; /* keys a row sees with itself; 0: all */
	float scale, softcap;
	const void *bias; /* NULL: none.  Keys are dense. */
	uint32_t bias_dtype;
	int64_t bias_batch, bias_head, bias_row;
	const void *sink; /* [N], NULL: none */
	uint32_t sink_dtype;
	bool smooth; /* a sink of 0 */
	void *out;   /* [B][S][N][Hv] */
	uint32_t out_dtype;
	void *ws;
};

/* Workspace of calls with up to these sizes; 0: too large. */
uint64_t cref_attn_ws(uint64_t B, uint64_t S, uint64_t N, uint64_t Nkv,
		      uint64_t H, uint64_t Hv);
void cref_attn_run(const struct cref_attn *a, struct cref_pool *pool);

#endif
