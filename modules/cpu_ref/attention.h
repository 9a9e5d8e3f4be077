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
 * of CREF_AT_TILE (base may be NULL: 0). */
struct cref_kv {
	const void *data;
	uint32_t dtype;
	int64_t batch, head, row;
};

struct cref_attn {
	uint64_t B, S, N, Nkv, H, Hv;
	const float *q; /* [B][S][N][H] */
	struct cref_kv k, v;
	const int64_t *base;
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
