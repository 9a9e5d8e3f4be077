/* kern.h - the table of vector kernels, one for each level.
 * Owns: the borders between operator code (once) and vector code (compiled for
 * every level from the same source).  Does not know: nodes, errors.
 *
 * Every kernel's result is defined lane by lane in terms of a 16-lane vector,
 * so all levels give the same bits.  Pointers to weights may have any
 * alignment. */
#ifndef CREF_KERN_H
#define CREF_KERN_H

#include "modules/cpu_ref/simd.h"

/* ---- weights of few bits ---- */

#define CREF_NB_TILE 32u   /* rows of W */
#define CREF_NB_PANEL 64u  /* k's of a panel, a multiple of 32 */
#define CREF_NB_BLOCKS 32u /* blocks whose scales are at hand */
#define CREF_NB_MAX_M 96u  /* rows of A per call of gemm */

/* N rows of K weights.  Row n: blocks at b + n * b_row, scales at s + n *
 * s_row, zero points at z + n * z_row (bytes). */
struct cref_nbits {
	uint64_t K, N;
	uint32_t bits;	  /* 2, 4 or 8 */
	uint32_t block;	  /* power of two, 16 or more */
	uint32_t s_dtype; /* of scales, and of float zero points */
	uint32_t z_kind;  /* CREF_Z_* */
	const unsigned char *b;
	const void *s, *z;
	uint64_t b_row, s_row, z_row;
};
#define CREF_Z_NONE 0u	 /* 2^(bits-1) */
#define CREF_Z_PACKED 1u /* integers of bits, low first */
#define CREF_Z_FLOAT 2u

/* Floats of a row of A: the row, padded with 0, and the sums of its
 * runs, negative. */
static inline uint64_t cref_nb_stride(uint64_t K)
{
	return (K + 31) / 32 * 34;
}

struct cref_nb_out {	   /* where a tile of the product goes */
	char *y;	   /* row 0, column n0 */
	uint64_t row;	   /* bytes from row to row */
	const float *bias; /* [CREF_NB_TILE] or NULL */
	uint32_t dtype;
};

struct cref_nb_scratch { /* per thread, 64-byte aligned */
	float panel[CREF_NB_PANEL][CREF_NB_TILE];
	float acc[CREF_NB_MAX_M][CREF_NB_TILE];
};

/* ---- dense ---- */

#define CREF_MM_CHUNK 64u   /* k's of one partial sum */
#define CREF_MM_COLS 32u    /* columns of a packed tile */
#define CREF_MM_SMALL 6u    /* rows that stream B instead of packing it */
#define CREF_MM_STREAM 512u /* columns of a call of stream */

/* ---- attention ---- */

#define CREF_AT_TILE 64u /* keys */
#define CREF_AT_ROWS 64u /* most rows of a fold */

/* What one row sees of a tile. */
struct cref_at_row {
	uint32_t lo, hi; /* keys [lo, hi), hi <= CREF_AT_TILE */
	float scale;
	float softcap;	  /* 0: none */
	const void *bias; /* of the tile's first key, or NULL; read below hi */
	uint32_t bias_dtype;
};

struct cref_kern {
	const char *name;
	void (*widen)(float *dst, const void *src, uint32_t dtype, uint64_t n);
	void (*narrow)(void *dst, uint32_t dtype, const float *src, uint64_t n);
	void (*exp)(float *dst, const float *src, uint64_t n);
	void (*tanh)(float *dst, const float *src, uint64_t n);
	void (*sigmoid)(float *dst, const float *src, uint64_t n);
	/* u, v = u cos - v sin, v cos + u sin; each operation rounded */
	void (*rotate)(float *u, float *v, const float *cos, const float *sin,
		       uint64_t n);
	float (*dot)(const float *x, const float *y, uint64_t n);
	float (*sum)(const float *x, uint64_t n);

	/* A row of A as the kernels below read it: cref_nb_stride(K) floats. */
	void (*nb_fill)(float *dst, const void *src, uint32_t dtype,
			const struct cref_nbits *w);
	/* y[n - n0] for rows [n0, n1), one row of A. */
	void (*nb_gemv)(const struct cref_nbits *w, const float *a, uint64_t n0,
			uint64_t n1, float *y);
	/* Rows [n0, n1) of at most CREF_NB_TILE, M <= CREF_NB_MAX_M rows of
	 * A, with bias, rounded to the result's dtype. */
	void (*nb_gemm)(const struct cref_nbits *w, const float *a, uint64_t M,
			uint64_t n0, uint64_t n1, const struct cref_nb_out *out,
			struct cref_nb_scratch *t);

	/* Columns [c0, c0 + n) of k rows of B, widened to dst[k][n rounded up
	 * to CREF_MM_COLS]: tiles of CREF_MM_COLS columns one after another. */
	void (*mm_pack)(float *dst, const void *b, uint32_t dtype, uint64_t ldb,
			uint64_t c0, uint64_t n, uint64_t k);
	/* c[m][0..31] (+)= sum over k <= CREF_MM_CHUNK of a[m][k] *
	 * b[k][0..31], the sum made on its own first. */
	void (*mm_tile)(const float *a, uint64_t lda, const float *b,
			uint64_t k, float *c, uint64_t ldc, uint64_t M,
			bool add);
	/* c[m][0..n) for n <= CREF_MM_STREAM columns of B from c0 on and M <=
	 * CREF_MM_SMALL rows: the same sums, reading B once in row order. */
	void (*mm_stream)(const float *a, uint64_t lda, uint64_t M,
			  const void *b, uint32_t dtype, uint64_t ldb,
			  uint64_t c0, uint64_t n, uint64_t K, float *c,
			  uint64_t ldc);

	/* K rows [0, n), n <= CREF_AT_TILE, of d elements, row_stride
	 * elements apart, turned for mm_tile: tiles of CREF_MM_COLS keys, each
	 * [d][CREF_MM_COLS]; keys from n on are 0. */
	void (*at_keys)(float *dst, const void *src, uint32_t dtype,
			int64_t row_stride, uint64_t n, uint64_t d);
	/* q.k of a tile in, e^(score - m) out; m: largest score, -infinity when
	 * the row sees none; l: sum. */
	void (*at_softmax)(float *s, const struct cref_at_row *r, float *m,
			   float *l);
	/* Fold a tile's sums into those of n rows, n <= CREF_AT_ROWS; acc and
	 * tacc are [n][wide], wide a multiple of 16. */
	void (*at_fold)(uint64_t n, float *acc, float *m, float *l,
			const float *tacc, const float *tm, const float *tl,
			uint64_t wide);
};

/* The table in force. */
const struct cref_kern *cref_kern(void);

#endif
