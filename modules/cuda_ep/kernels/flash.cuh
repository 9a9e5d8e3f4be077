// flash.cuh - what the kernels for attention of many rows share.
//
// A row is one query head of one token.  The heads that share a KV head lie
// behind each other, so that a tile of rows reads keys once for all of them.
// The block walks over tiles of KT keys at multiples of KT; queries and sums
// stay in registers, as fragments of m16n8k16, 16 rows a warp.
//
// Sum order of a row: keys in ascending order, 16 at a time by the tensor core;
// maximum and denominator tile by tile.  Keys outside of the row's own range
// count as exact zeros, so neither the block's tile of rows, nor the number of
// warps, nor the row's place in the step can change a bit.  Queries and weights
// are rounded to T, sums are float.
#ifndef CEP_FLASH_CUH
#define CEP_FLASH_CUH

#include "modules/cuda_ep/kernels/gqa.cuh"
#include "modules/cuda_ep/kernels/tile.cuh"

#define LOG2E 1.4426950408889634f

template <class T, int HD, int KT> struct flash_rows {
	const cep_gqa &p;
	u32 b, kh, per, lane, warp, g, t;
	u32 total, past, old, from, to; // keys that the block needs
	u32 first, r0;			// rows: of the block, of this warp
	u32 seq, at;			// tokens; the position of the first one
	u64 tok;			// its place in the step
	u32 lo[2], hi[2];		// keys of this thread's two rows
	u32 lo_max, hi_min;		// keys that all rows of the warp see
	float o[HD / 8][4], m[2], l[2];

	__device__ __forceinline__ flash_rows(const cep_gqa &params) : p(params)
	{
	}

	// The token that row r is of: r / per, rows being fewer than 2^28.
	__device__ __forceinline__ u32 token(u32 r) const
	{
		return per == 1 ? r : (u32)((u64)r * p.per_inverse >> 32);
	}

	// Position j of the cache, or of the new rows of a windowed one.
	__device__ __forceinline__ const T *key(u32 j, bool value) const
	{
		if (p.windowed) {
			if (j >= past) {
				u64 at = (((u64)b * p.seq + j - past) *
						  p.kv_heads +
					  kh) *
					 p.size;

				return (const T *)(value ? p.newv : p.newk) +
				       at;
			}
			j -= old;
		}
		return value ? (const T *)p.pres_v + b * p.pres_vs[0] +
				       kh * p.pres_vs[1] + j * p.pres_vs[2]
			     : (const T *)p.pres_k + b * p.pres_ks[0] +
				       kh * p.pres_ks[1] + j * p.pres_ks[2];
	}

	// Two channels of row r as the tensor core takes them.
	__device__ __forceinline__ u32 query(u32 r, u32 d) const
	{
		const T *x = (const T *)p.qbuf +
			     ((tok + token(r)) * p.heads + kh * per +
			      (r - token(r) * per)) *
				     p.size +
			     d;

		return r < seq * per && d < p.size ? *(const u32 *)x : 0;
	}

	// Keys that one of rows r .. r + n - 1 sees, from lo on and before hi.
	__device__ __forceinline__ void span(u32 r, u32 n, u32 *low,
					     u32 *high) const
	{
		u32 rows = seq * per, end = r + n < rows ? r + n : rows;

		*low = 0xffffffffu;
		*high = 0;
		if (r >= rows)
			return;
		*high = at + token(end - 1) + 1;
		*low = begin(at + token(r) + 1);
	}

	// The first key of a row that ends before end.
	__device__ __forceinline__ u32 begin(u32 end) const
	{
		return p.window > 0 && end > (u32)p.window ? end - (u32)p.window
							   : 0;
	}

	__device__ __forceinline__ void find_rows()
	{
		u32 rows = seq * per;

#pragma unroll
		for (int i = 0; i < 2; i++) {
			u32 r = r0 + g + 8 * i;

			m[i] = -INFINITY;
			l[i] = 0.f;
			hi[i] = r < rows ? at + token(r) + 1 : 0;
			lo[i] = begin(hi[i]);
		}
		// rows that are none see nothing
		hi_min = r0 + 16 <= rows ? at + token(r0) + 1 : 0;
		lo_max = begin(at + token(r0 + 15) + 1);
#pragma unroll
		for (int d = 0; d < HD / 8; d++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				o[d][e] = 0.f;
	}

	// Who this thread is, and which keys the block needs; false: none.
	__device__ __forceinline__ bool find()
	{
		u32 rows = blockDim.x / 2;

		lane = threadIdx.x & 31;
		warp = threadIdx.x / 32;
		g = lane >> 2;
		t = lane & 3;
		per = p.per;
		kh = blockIdx.y;
		b = blockIdx.z;
		// the longest rows first
		first = (gridDim.x - 1 - blockIdx.x) * rows;
		r0 = first + warp * 16;
		cep_begin();
		total = total_len(p, b, false);
		if (!total)
			return false;
		seq = p.seq;
		tok = (u64)b * seq;
		past = at = total - seq;
		old = p.windowed ? past - window_rows(p, past) : 0;
		span(first, rows, &from, &to);
		return true;
	}

	// Fragment i of the queries.
	__device__ __forceinline__ void query16(int i, u32 *x) const
	{
		u32 d = i * 16 + 2 * t;

		x[0] = query(r0 + g, d);
		x[1] = query(r0 + g + 8, d);
		x[2] = query(r0 + g, d + 8);
		x[3] = query(r0 + g + 8, d + 8);
	}

	// A score with softcap and bias.
	__device__ __forceinline__ float bent(u32 r, u32 j, u32 end,
					      float v) const
	{
		v *= p.scale;
		if (p.softcap > 0.f)
			v = p.softcap * tanhf(v / p.softcap);
		if (p.bias && j < end)
			v += to_f(((const T *)p.bias)[b * p.bias_s[0] +
						      (kh * per +
						       (r - token(r) * per)) *
							      p.bias_s[1] +
						      token(r) * p.bias_s[2] +
						      j * p.bias_s[3]]);
		return v * LOG2E;
	}

	// Scores in units of log2; what is outside of a row's range goes.
	__device__ __forceinline__ void refine(u32 j0, float (*s)[4]) const
	{
		const float c = p.scale * LOG2E;
		bool plain = !(p.softcap > 0.f) && !p.bias;
		bool all = j0 >= lo_max && j0 + KT <= hi_min;

		if (plain) {
#pragma unroll
			for (int n = 0; n < KT / 8; n++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					s[n][e] *= c;
		} else {
#pragma unroll
			for (int n = 0; n < KT / 8; n++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					s[n][e] = bent(r0 + g + e / 2 * 8,
						       j0 + n * 8 + 2 * t +
							       (e & 1),
						       hi[e / 2], s[n][e]);
		}
		if (all)
			return;
#pragma unroll
		for (int n = 0; n < KT / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				u32 j = j0 + n * 8 + 2 * t + (e & 1);

				if (j < lo[e / 2] || j >= hi[e / 2])
					s[n][e] = -INFINITY;
			}
	}

	// Scores to weights; what was summed before is scaled to the new
	// maximum.
	__device__ __forceinline__ void weigh(float (*s)[4])
	{
#pragma unroll
		for (int i = 0; i < 2; i++) {
			float mx = m[i], base, r;

#pragma unroll
			for (int n = 0; n < KT / 8; n++)
				mx = fmaxf(mx,
					   fmaxf(s[n][2 * i], s[n][2 * i + 1]));
			mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 1));
			mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 2));
			base = mx == -INFINITY ? 0.f : mx;
			r = power2(m[i] - base);
			m[i] = mx;
			l[i] *= r;
#pragma unroll
			for (int n = 0; n < KT / 8; n++)
#pragma unroll
				for (int e = 2 * i; e < 2 * i + 2; e++) {
					s[n][e] = power2(s[n][e] - base);
					l[i] += s[n][e];
				}
#pragma unroll
			for (int d = 0; d < HD / 8; d++) {
				o[d][2 * i] *= r;
				o[d][2 * i + 1] *= r;
			}
		}
	}

	// Weights of 16 keys as a fragment.
	__device__ __forceinline__ static void weights16(float (*s)[4], u32 *a)
	{
		a[0] = round2(s[0][0], s[0][1], T());
		a[1] = round2(s[0][2], s[0][3], T());
		a[2] = round2(s[1][0], s[1][1], T());
		a[3] = round2(s[1][2], s[1][3], T());
	}

	// Over the denominator, with the sink and the extra zero logit in it.
	__device__ __forceinline__ void store()
	{
#pragma unroll
		for (int i = 0; i < 2; i++) {
			u32 r = r0 + g + 8 * i,
			    head = kh * per + (r - token(r) * per);
			u64 row = tok + token(r);
			float mx = m[i], sum, f, sink = 0;

			l[i] += __shfl_xor_sync(0xffffffffu, l[i], 1);
			l[i] += __shfl_xor_sync(0xffffffffu, l[i], 2);
			if (r >= seq * per)
				continue;
			if (p.sink)
				sink = to_f(((const T *)p.sink)[head]) * LOG2E;
			if (p.smooth)
				mx = fmaxf(mx, 0.f);
			if (p.sink)
				mx = fmaxf(mx, sink);
			f = power2(m[i] - mx);
			sum = l[i] * f;
			if (p.smooth)
				sum += power2(-mx);
			if (p.sink)
				sum += power2(sink - mx);
			f /= sum;
			T *out = (T *)p.out + (row * p.heads + head) * p.size;
#pragma unroll
			for (int d = 0; d < HD / 8; d++)
				if (d * 8 < (int)p.size)
					*(u32 *)(out + d * 8 + 2 * t) = round2(
						o[d][2 * i] * f,
						o[d][2 * i + 1] * f, T());
		}
	}
};

#endif
