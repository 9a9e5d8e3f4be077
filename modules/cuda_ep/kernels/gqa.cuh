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

// Where position j of sequence s lies in the cache of head kh: the element.
__device__ __forceinline__ u64 paged_place(const cep_gqa &p, u32 s, u32 kh,
					   u32 j)
{
	int block = ((const int *)p.table)[(u64)s * p.table_row + j / p.block];

	return (u64)block * p.pres_ks[0] + kh * p.pres_ks[1] +
	       j % p.block * p.pres_ks[2];
}

// Where a row of the step belongs; a whole warp asks.
struct gqa_row {
	u32 b, pos;
	bool live;    // else it was refused, or nobody's
	bool padding; // nobody's
};

__device__ __forceinline__ gqa_row packed_row(const cep_gqa &p, u32 row)
{
	const int *first = (const int *)p.first;
	gqa_row r = {0, 0, false, false};
	long long pos, limit = (long long)p.table_row * p.block;
	int block;

	for (u32 i = threadIdx.x & 31; i < p.seqs; i += 32)
		r.b += first[i + 1] <= (int)row;
#pragma unroll
	for (int o = 16; o; o >>= 1)
		r.b += __shfl_xor_sync(0xffffffffu, r.b, o);
	r.padding = r.b >= p.seqs;
	if (r.padding)
		return r;
	if (p.rot && !p.pos && p.cos_rows < limit)
		limit = p.cos_rows;
	pos = (long long)((const int *)p.seqlens)[r.b] + (int)row - first[r.b];
	if (pos < 0 || pos >= limit)
		return r;
	r.pos = (u32)pos;
	block = ((const int *)p.table)[(u64)r.b * p.table_row + r.pos / p.block];
	r.live = block >= 0 && block < (int)p.n_blocks;
	return r;
}

__device__ __forceinline__ gqa_row row_of(const cep_gqa &p, u32 row,
					  bool report)
{
	gqa_row r = {row / p.seq, 0, false, false};
	u32 t;

	if (p.table)
		return packed_row(p, row);
	t = total_len(p, r.b, report);
	r.live = t != 0;
	r.pos = t - p.seq + row % p.seq;
	return r;
}

// Rows that a windowed cache of p.rows holds at total length t.
__device__ __forceinline__ u32 window_rows(const cep_gqa &p, u32 t)
{
	u32 c = p.rows, g = c - (u32)p.window + 1;

	return t <= c ? t : t - g * ((t - c + g - 1) / g);
}

#endif
