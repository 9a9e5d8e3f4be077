/* op_prompt.c - 4-bit products of many rows on compute capability 9.0.
 * Owns: the table of tiles of kernels/wgemm.cu and the choice among them.  All
 * of them give the same bits; the one is taken that keeps the device busy. */
#include "modules/cuda_ep/op_matmul.h"

/* A block's tile of the result, its threads, its stages and the bytes of one,
 * and what a step of 64 columns costs an SM, in cycles: 64 weight rows x 64
 * rows of A are 128 at the tensor core's rate, the rest was measured. */
struct tile {
	uint32_t weights, rows, threads, stages, bytes, cost;
	enum cep_kernel f16, bf16;
};

static const struct tile plain[] = {
	{256, 128, 256, 4, 28672, 1250, CEP_K_cep_wgemm_256_128_f16,
	 CEP_K_cep_wgemm_256_128_bf16},
	{128, 128, 256, 4, 22528, 700, CEP_K_cep_wgemm_128_128_f16,
	 CEP_K_cep_wgemm_128_128_bf16},
	{128, 64, 256, 6, 14336, 420, CEP_K_cep_wgemm_128_64_f16,
	 CEP_K_cep_wgemm_128_64_bf16},
	{64, 64, 128, 8, 11264, 300, CEP_K_cep_wgemm_64_64_f16,
	 CEP_K_cep_wgemm_64_64_bf16},
};

/* Weights: as many rows of gate, and of up. */
static const struct tile pairs[] = {
	{128, 128, 256, 4, 28672, 1250, CEP_K_cep_wgemmd_128_128_f16,
	 CEP_K_cep_wgemmd_128_128_bf16},
	{128, 64, 256, 4, 20480, 700, CEP_K_cep_wgemmd_128_64_f16,
	 CEP_K_cep_wgemmd_128_64_bf16},
};

static uint64_t blocks_of(const struct tile *t, const struct cep_mm *p)
{
	return (uint64_t)((p->n + t->weights - 1) / t->weights) *
	       ((p->m + t->rows - 1) / t->rows);
}

static int32_t run_tiles(struct cep_run *r, const struct tile *tiles,
			 uint32_t n_tiles, uint32_t dtype,
			 const struct cep_mm *p, const void *params)
{
	uint64_t sms = (uint64_t)r->self->n_sms, best = UINT64_MAX;
	const struct tile *t = NULL;

	for (uint32_t i = 0; i < n_tiles; i++) {
		uint64_t rounds = (blocks_of(&tiles[i], p) + sms - 1) / sms;

		if (rounds * tiles[i].cost < best) {
			best = rounds * tiles[i].cost;
			t = &tiles[i];
		}
	}
	/* the rows of A first: blocks that run together share weights */
	return cep_run_kernel(
		r, dtype == GENAI_DT_F16 ? t->f16 : t->bf16,
		(struct cep_dim3){(p->m + t->rows - 1) / t->rows,
				  (p->n + t->weights - 1) / t->weights, 1},
		t->threads, t->bytes * t->stages + 1024, params);
}

bool cep_prompt_takes(const struct cep *self, uint32_t dtype,
		      const struct cep_mm *p)
{
	return CEP_HAVE_90A && self->major == 9 && !self->minor &&
	       p->m >= CEP_PROMPT_ROWS && dtype != GENAI_DT_F32 &&
	       p->bits == 4 && p->block >= 32 && p->k % 64 == 0 &&
	       p->zp_kind != CEP_ZP_FLOAT && p->vec_a;
}

int32_t cep_run_prompt(struct cep_run *r, uint32_t dtype,
		       const struct cep_mv_tiled *q)
{
	return run_tiles(r, plain, sizeof(plain) / sizeof(plain[0]), dtype,
			 &q->m, q);
}

int32_t cep_run_prompt_pair(struct cep_run *r, uint32_t dtype,
			    const struct cep_mv_dual_tiled *q)
{
	return run_tiles(r, pairs, sizeof(pairs) / sizeof(pairs[0]), dtype,
			 &q->m, q);
}
