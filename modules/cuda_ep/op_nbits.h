/* op_nbits.h - what MatMulNBits, the pair of a SwiGLU and the kernels for both
 * share. */
#ifndef CEP_OP_NBITS_H
#define CEP_OP_NBITS_H

#include "modules/cuda_ep/op_matmul.h"

/* Steps up to here give a row the same bits. */
#define CEP_EXACT_ROWS 64

struct cep_nbits {
	int64_t m, n, k;
	int64_t bits, block, blocks; /* blocks of a row */
	int64_t zp, zp_row;	     /* CEP_ZP_*; bytes of a row of them */
	bool fast;		     /* 1 to CEP_EXACT_ROWS rows: op_gemv4.c */
	bool gemm4;		     /* more rows go to gemm4 */
	bool beside;		     /* 1 to CEP_EXACT_ROWS rows go to beside */
	int64_t part;		     /* parts of a sum, in the workspace */
	int64_t image;		     /* activations for wfew4, behind them */
	int64_t stage;		     /* rows left to the host, there, too */
	int64_t pair;		     /* bytes of one of two products */
	int64_t normed;		     /* where a norm's result lies */
	int64_t digits;		     /* activations as integers, for beside */
};
EXEC_STATE(cep_nbits, cep_node)

/* ---- op_nbits.c ---- */

/* Inputs 0 to 5 are those of MatMulNBits; rows are what a row group yields. */
int32_t cep_nbits_prepare(struct cep_node *n, uint32_t rows,
			  struct genai_error *err);
/* The last to do: room for a norm's result, which is output 1, for activations
 * as integers and for rows that are left to the host. */
int32_t cep_nbits_rooms(struct cep_node *n, struct genai_error *err);
/* The rows of this run of a matrix whose inputs begin at first. */
struct cep_mm cep_nbits_params(const struct cep_node *n,
			       const struct cep_run *r, uint32_t first,
			       uint32_t bias);
/* The norm in front; then, if these are rows that get the same bits however
 * many they are, or rows for the host, all of it: true.  The inputs of the
 * second of two matrices begin at second; 0: there is one. */
bool cep_nbits_exact(struct cep_node *n, struct cep_run *r, struct cep_mm *p,
		     uint32_t second, int32_t *out_rc);
/* By the kernels for all else. */
int32_t cep_nbits_general(struct cep_node *n, struct cep_run *r,
			  const struct cep_mm *p, uint32_t first);

/* ---- op_gemv4.c ---- */

/* How K is summed: classes of tiles, slices of classes.  Depends on K. */
struct cep_sum4 cep_sum4_of(const struct cep_node *n);
/* Does a row fit into shared memory? */
bool cep_gemv4_fits(const struct cep_node *n);
/* Ask for what several rows need; rows are what a row group yields. */
void cep_gemv4_memory(struct cep_node *n, int64_t rows);
/* Where the parts of one matrix, or of two, lie: weights, scales, zero points;
 * second as above. */
int32_t cep_set_parts(const struct cep_node *n, const struct cep_run *r,
		      const struct cep_mm *p, uint32_t first,
		      struct cep_mv_tiled *q);
int32_t cep_set_pair(const struct cep_node *n, const struct cep_run *r,
		     const struct cep_mm *p, uint32_t second,
		     struct cep_mv_dual_tiled *q);
/* So many rows at once are taken in the order of wfew4.cu from out, if whoever
 * makes them puts them there; 0: they are taken as they are. */
uint32_t cep_rows_in_order(const struct cep_node *n, const struct cep_run *r,
			   const struct cep_mm *p, uint32_t second,
			   uint64_t *out);
int32_t cep_run_gemv4(struct cep_node *n, struct cep_run *r, struct cep_mm *p,
		      const struct cep_sum4 *sum, uint32_t second);

#endif
