/* op_matmul.h - what the matrix operators share. */
#ifndef CEP_OP_MATMUL_H
#define CEP_OP_MATMUL_H

#include "modules/cuda_ep/op.h"

/* bfloat16 only where the GPU multiplies it. */
int32_t cep_need_bf16(const struct cep_node *n, struct genai_error *err);
/* Rows at addr, stride elements apart, can be loaded 16 bytes at a time. */
bool cep_is_vec(uint64_t addr, int64_t stride, uint32_t bytes);
/* Several rows: a grid of 64-column blocks; params is what the kernel takes. */
int32_t cep_run_gemm(struct cep_run *r, uint32_t dtype, const struct cep_mm *p,
		     const void *params, uint32_t batch, enum cep_kernel f32,
		     enum cep_kernel f16_16, enum cep_kernel f16_64,
		     enum cep_kernel bf16_16, enum cep_kernel bf16_64);

/* ---- op_prompt.c ---- */

/* Steps of at least so many rows are a prompt's. */
#define CEP_PROMPT_ROWS 65u
bool cep_prompt_takes(const struct cep *self, uint32_t dtype,
		      const struct cep_mm *p);
int32_t cep_run_prompt(struct cep_run *r, uint32_t dtype,
		       const struct cep_mv_tiled *q);
/* silu(a B0) (a B1) */
int32_t cep_run_prompt_pair(struct cep_run *r, uint32_t dtype,
			    const struct cep_mv_dual_tiled *q);

#endif
