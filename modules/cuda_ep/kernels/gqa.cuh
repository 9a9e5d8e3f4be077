// gqa.cuh - lengths and places of GroupQueryAttention, for its kernels.
#ifndef CEP_GQA_CUH
#define CEP_GQA_CUH

#include "modules/cuda_ep/kernels/common.cuh"

// Total length of batch entry b; 0 after a refusal.
__device__ __forceinline__ u32 total_len(const cep_gqa &p, u32 b, bool report)
{
	long long t = (long long)((const int *)p.seqlens)[b] + 1;
	long long limit = p.windowed ? 0x7fffffff : p.rows;

	if (p.rot && !p.pos && p.cos_rows < limit)
		limit = p.cos_rows;
	if (t < p.seq || t > limit) {
		if (report)
			cep_refuse(p.blame, CEP_FAULT_LENGTH, t, limit);
		return 0;
	}
	return (u32)t;
}

// Rows that a windowed cache of p.rows holds at total length t.
__device__ __forceinline__ u32 window_rows(const cep_gqa &p, u32 t)
{
	u32 c = p.rows, g = c - (u32)p.window + 1;

	return t <= c ? t : t - g * ((t - c + g - 1) / g);
}

#endif
