// gqa.cuh - lengths, places and heads of GroupQueryAttention, for its kernels.
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
	block = ((const int *)
			 p.table)[(u64)r.b * p.table_row + r.pos / p.block];
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

// The row of the rotary tables for token row of the step at position pos; a
// position that has none is refused.
__device__ __forceinline__ u64 rotary_row(const cep_gqa &p, u64 row, u32 pos,
					  bool report)
{
	long long at = p.pos ? ((const long long *)p.pos)[row] : (long long)pos;

	if (!p.pos || !p.rot || (at >= 0 && at < (long long)p.cos_rows))
		return (u64)at;
	if (report)
		cep_refuse(p.blame, CEP_FAULT_ROTARY, at, p.cos_rows);
	return 0;
}

// Where the key or value of head kh goes, of token row at position pos.
template <class C>
__device__ __forceinline__ C *cache_slot(const cep_gqa &p, u64 row, u32 b,
					 u32 pos, u32 kh, bool value)
{
	if (p.table)
		return (C *)(value ? p.pres_v : p.pres_k) +
		       paged_place(p, b, kh, pos);
	if (p.windowed)
		return (C *)(value ? p.newv : p.newk) +
		       (row * p.kv_heads + kh) * p.row;
	return value ? (C *)p.pres_v + b * p.pres_vs[0] + kh * p.pres_vs[1] +
			       pos * p.pres_vs[2]
		     : (C *)p.pres_k + b * p.pres_ks[0] + kh * p.pres_ks[1] +
			       pos * p.pres_ks[2];
}

// Of a quantised cache: what channel d of head kh is a multiple of.
__device__ __forceinline__ float cache_scale(const cep_gqa &p, bool value,
					     u32 kh, u32 d)
{
	const float *s = (const float *)(value ? p.v_scale : p.k_scale);

	return s[p.kv_each >> value & 1 ? kh * p.size + d : 0];
}

// Which multiple x becomes: a NaN the lowest, of 4 bits 8 more than it is.
__device__ __forceinline__ u32 cache_code(const cep_gqa &p, float x, bool value,
					  u32 kh, u32 d)
{
	float s = cache_scale(p, value, kh, d), most = p.bits == 8 ? 127 : 7;
	float low = -most - 1;

	if (!(s > 0) || s == INFINITY)
		cep_refuse(p.blame, CEP_FAULT_SCALE,
			   p.kv_each >> value & 1 ? kh * p.size + d : 0, value);
	x = rintf(x / s);
	x = !(x > low) ? low : x > most ? most : x;
	return p.bits == 8 ? (u32)(int)x & 255 : (u32)((int)x + 8);
}

template <class T> struct __align__(2 * sizeof(T)) two
{
	T v[2];
};

// A head that turns as a whole, in halves, or not at all: a lane has neighbours
// d, d + 1 and what they turn with, d + half.
template <class T> struct pairs {
	const cep_gqa &p;
	u32 lane, row, half;
	float x[2][2][2]; // [64 e][half][neighbour]

	__device__ __forceinline__ pairs(const cep_gqa &params) : p(params)
	{
	}

	__device__ __forceinline__ void load(u32 h)
	{
		u64 tok = row;
		const T *src =
			h < p.heads
				? (const T *)p.q + tok * p.q_tok + h * p.size
			: h < p.heads + p.kv_heads
				? (const T *)p.k + tok * p.k_tok +
					  (h - p.heads) * p.size
				: (const T *)p.v + tok * p.v_tok +
					  (h - p.heads - p.kv_heads) * p.size;

#pragma unroll
		for (int e = 0; e < 2; e++)
#pragma unroll
			for (int i = 0; i < 2; i++)
				get(src + i * half, e, x[e][i]);
	}

	// Channels 64 e + 2 lane and the next of a half; 0 past its end.
	__device__ __forceinline__ void get(const T *v, int e, float *o) const
	{
		u32 d = 64 * e + 2 * lane;

		o[0] = o[1] = 0.f;
		if (d >= half)
			return;
		two<T> r = *(const two<T> *)(v + d);
		o[0] = to_f(r.v[0]);
		o[1] = to_f(r.v[1]);
	}

	// The weights of a norm, of the channels that this lane has.
	__device__ __forceinline__ void weights(const T *w,
						float (*g)[2][2]) const
	{
#pragma unroll
		for (int e = 0; e < 2; e++)
#pragma unroll
			for (int i = 0; i < 2; i++)
				get(w + i * half, e, g[e][i]);
	}

	__device__ __forceinline__ void norm(const float (*g)[2][2])
	{
		float ss = 0;

#pragma unroll
		for (int e = 0; e < 2; e++)
#pragma unroll
			for (int i = 0; i < 2; i++)
#pragma unroll
				for (int k = 0; k < 2; k++)
					ss += x[e][i][k] * x[e][i][k];
		ss = inverse_rms(warp_sum(ss), 1.f / (float)p.size, p.eps);
#pragma unroll
		for (int e = 0; e < 2; e++)
#pragma unroll
			for (int i = 0; i < 2; i++) {
				x[e][i][0] *= ss * g[e][i][0];
				x[e][i][1] *= ss * g[e][i][1];
			}
	}

	// Cosines and sines of position at.
	__device__ __forceinline__ void angles(u64 at, float (*c)[2],
					       float (*n)[2]) const
	{
#pragma unroll
		for (int e = 0; e < 2; e++) {
			get((const T *)p.cosc + at * half, e, c[e]);
			get((const T *)p.sinc + at * half, e, n[e]);
		}
	}

	__device__ __forceinline__ void turn(const float (*c)[2],
					     const float (*n)[2])
	{
#pragma unroll
		for (int e = 0; e < 2; e++)
#pragma unroll
			for (int k = 0; k < 2; k++) {
				float a = x[e][0][k], b = x[e][1][k];

				x[e][0][k] = a * c[e][k] - b * n[e][k];
				x[e][1][k] = b * c[e][k] + a * n[e][k];
			}
	}

	template <class U>
	__device__ __forceinline__ void put(U *dst, float scale) const
	{
#pragma unroll
		for (int e = 0; e < 2; e++)
#pragma unroll
			for (int i = 0; i < 2; i++) {
				u32 d = 64 * e + 2 * lane;
				two<U> r;

				if (d >= half)
					continue;
				r.v[0] = from_f<U>(x[e][i][0] * scale);
				r.v[1] = from_f<U>(x[e][i][1] * scale);
				*(two<U> *)(dst + i * half + d) = r;
			}
	}

	// The result of heads h to end, which nobody waits for.
	__device__ __forceinline__ void clear(u32 h, u32 end)
	{
#pragma unroll
		for (int e = 0; e < 2; e++)
#pragma unroll
			for (int i = 0; i < 2; i++)
				x[e][i][0] = x[e][i][1] = 0.f;
		for (; h < end && h < p.heads; h++)
			put((T *)p.out + ((u64)row * p.heads + h) * p.size,
			    1.f);
	}

	// Where head h of the keys and values goes.
	__device__ __forceinline__ T *place(u32 b, u32 pos, u32 h) const
	{
		bool value = h >= p.heads + p.kv_heads;
		u32 kh = h - p.heads - (value ? p.kv_heads : 0);

		return cache_slot<T>(p, row, b, pos, kh, value);
	}

	// It goes there, quantised.
	__device__ __forceinline__ void put_codes(u32 b, u32 pos, u32 h) const
	{
		bool value = h >= p.heads + p.kv_heads;
		u32 kh = h - p.heads - (value ? p.kv_heads : 0);
		unsigned char *dst =
			cache_slot<unsigned char>(p, row, b, pos, kh, value);

#pragma unroll
		for (int e = 0; e < 2; e++)
#pragma unroll
			for (int i = 0; i < 2; i++) {
				u32 d = 64 * e + 2 * lane, at = i * half + d;
				u32 c, n;

				if (d >= half)
					continue;
				c = cache_code(p, x[e][i][0], value, kh, at);
				n = cache_code(p, x[e][i][1], value, kh,
					       at + 1);
				if (p.bits == 8)
					*(uint16_t *)(dst + at) =
						(uint16_t)(c | n << 8);
				else
					dst[at / 2] =
						(unsigned char)(c | n << 4);
			}
	}
};

#endif
