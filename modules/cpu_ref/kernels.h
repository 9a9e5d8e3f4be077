/* kernels.h - the products that operators build upon; matmul*.c hold the code.
 * Does not know: nodes, executors. */
#ifndef CREF_KERNELS_H
#define CREF_KERNELS_H

#include "modules/cpu_ref/kern.h"
#include "modules/cpu_ref/op.h"

/* y[m][n] = sum over k of a[m][k] * w[n][k] + bias[n], for all rows of w.
 * Rounded once to y's dtype.  bias may be NULL.  ws: cref_nbits_ws() bytes,
 * 64-byte aligned.  Threads: one call uses the pool at a time. */
struct cref_nbits_job {
	struct cref_nbits w;
	const void *a; /* rows dense, lda elements apart */
	uint32_t a_dtype, bias_dtype, y_dtype;
	uint64_t M, lda, ldy;
	const void *bias; /* of w's row 0 */
	void *y;	  /* column of w's row 0 */
	void *ws;
};
uint64_t cref_nbits_ws(uint64_t M, uint64_t K); /* 0 on overflow */
void cref_nbits_mul(const struct cref_nbits_job *j, struct cref_pool *pool);

/* c[m][n] = sum over k of a[m][k] * b[k][n].  fp32 in a, any alignment of b;
 * dense rows.  Rounded once to c's dtype. */
struct cref_mm_job {
	const float *a;
	const void *b;
	void *c;
	uint32_t b_dtype, c_dtype;
	uint64_t M, N, K, lda, ldb, ldc;
};
void cref_mm_mul(const struct cref_mm_job *j, struct cref_pool *pool);

#endif
