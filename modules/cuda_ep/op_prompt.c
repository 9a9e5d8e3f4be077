// op_prompt.c - 4-bit products of many rows on compute capability 9.0.
// Owns: the table of tiles of kernels/wgemm.cu and the choice among them.  All
// of them give the same bits; the one is taken that keeps the device busy.
#include "modules/cuda_ep/op_matmul.h"

// A block's rows of weights and of A, its threads and shared memory, and what a
// slab of 64 columns costs an SM that has one such block, and one of several
// blocks: measured on an H200, in cycles.
static const struct tile {
	uint32_t weights, rows, threads, smem, alone, shared;
	enum cep_kernel f16, bf16, pair_f16, pair_bf16;
} tiles[] = {
	{128, 128, 256, 4 * 22528 + 1024, 900, 800, CEP_K_cep_wgemm_128_f16,
	 CEP_K_cep_wgemm_128_bf16, CEP_K_cep_wgemmd_128_f16,
	 CEP_K_cep_wgemmd_128_bf16},
	{64, 64, 128, 8 * 11264 + 1024, 480, 300, CEP_K_cep_wgemm_64_f16,
	 CEP_K_cep_wgemm_64_bf16, CEP_K_cep_wgemmd_64_f16,
	 CEP_K_cep_wgemmd_64_bf16},
};

// n: rows of both matrices where there are two.
static const struct tile *find_tile(const struct cep *self, uint64_t n,
				    uint64_t m)
{
	uint64_t sms = (uint64_t)self->n_sms, best = UINT64_MAX;
	const struct tile *found = NULL;

	for (size_t i = 0; i < sizeof(tiles) / sizeof(tiles[0]); i++) {
		const struct tile *t = &tiles[i];
		uint64_t blocks = (n + t->weights - 1) / t->weights *
				  ((m + t->rows - 1) / t->rows);
		uint64_t each = (blocks + sms - 1) / sms;
		uint64_t cost = each * t->shared;

		if (cost < t->alone)
			cost = t->alone;
		if (cost < best) {
			best = cost;
			found = t;
		}
	}
	return found;
}

// A grid with the rows of A first: blocks that run together share weights.
static struct cep_dim3 grid_of(const struct tile *t, uint64_t n, uint64_t m)
{
	return (struct cep_dim3){(uint32_t)((m + t->rows - 1) / t->rows),
				 (uint32_t)((n + t->weights - 1) / t->weights),
				 1};
}

bool cep_has_wgmma(const struct cep *self)
{
	return CEP_HAVE_90A && self->major == 9 && !self->minor;
}

bool cep_prompt_takes(const struct cep *self, uint32_t dtype,
		      const struct cep_mm *p)
{
	return cep_has_wgmma(self) && p->m >= CEP_PROMPT_ROWS &&
	       dtype != GENAI_DT_F32 && p->bits == 4 && p->block >= 32 &&
	       p->k % 64 == 0 && p->zp_kind != CEP_ZP_FLOAT && p->vec_a;
}

int32_t cep_run_prompt(struct cep_run *r, uint32_t dtype,
		       const struct cep_mv_tiled *q)
{
	const struct tile *t = find_tile(r->self, q->m.n, q->m.m);

	return cep_run_kernel(r, dtype == GENAI_DT_F16 ? t->f16 : t->bf16,
			      grid_of(t, q->m.n, q->m.m), t->threads, t->smem,
			      q);
}

int32_t cep_run_prompt_pair(struct cep_run *r, uint32_t dtype,
			    const struct cep_mv_dual_tiled *q)
{
	uint64_t n = 2 * (uint64_t)q->m.n;
	const struct tile *t = find_tile(r->self, n, q->m.m);

	return cep_run_kernel(
		r, dtype == GENAI_DT_F16 ? t->pair_f16 : t->pair_bf16,
		grid_of(t, n, q->m.m), t->threads, t->smem, q);
}
