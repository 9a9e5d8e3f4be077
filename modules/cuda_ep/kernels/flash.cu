// flash.cu - attention of steps of many rows, on tensor cores.
//
// A row is one query head of one token.  The heads that share a KV head lie
// behind each other, so that a block's tile of 16 rows a warp reads keys once
// for all of them.  The block walks over tiles of KT keys at multiples of KT:
// two of them, keys and values, are in shared memory, one in use and one on
// its way (2 x 2 x KT x (size + 8) x 2 bytes; the 8 keep the eight rows of a
// fragment in different banks).  Queries and sums stay in registers.
//
// Sum order of a row: keys in ascending order, 16 at a time by the tensor core;
// maximum and denominator tile by tile.  Keys outside of the row's own range
// count as exact zeros, so neither the tile, nor the number of warps, nor the
// row's place in the step can change a bit.  Queries and weights are rounded to
// T, sums are float.
#include "modules/cuda_ep/kernels/gqa.cuh"
#include "modules/cuda_ep/kernels/tile.cuh"

#define LOG2E 1.4426950408889634f

template <class T, int HD, int KT> struct flash {
	static constexpr int LD = HD + 8, KS = HD / 16;
	// large heads: queries wait in shared memory
	static constexpr bool Q_STAYS = HD <= 128;
	const cep_gqa &p;
	T *ks, *vs, *qs; // [2][KT][LD] twice; [16 a warp][LD]
	u32 b, kh, per, lane, warp, g, t;
	u32 total, past, old, from, to; // keys that the block needs
	u32 lo[2], hi[2];		// of this thread's two rows
	u32 warp_lo, warp_hi, lo_max, hi_min;
	u32 q[Q_STAYS ? KS : 1][4];
	float o[HD / 8][4], m[2], l[2];

	__device__ __forceinline__ flash(const cep_gqa &params) : p(params)
	{
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

	__device__ __forceinline__ void fetch(u32 j0, u32 buf) const
	{
		constexpr u32 C = HD / 8; // pieces of a row

		for (u32 i = threadIdx.x; i < KT * C; i += blockDim.x) {
			u32 r = i / C, c = i % C * 8, j = j0 + r;
			bool on = j >= from && j < to && c < p.size;
			u32 at = on ? j : to - 1, d = on ? c : 0;

			tile_copy(ks + (buf * KT + r) * LD + c,
				  key(at, false) + d, on);
			tile_copy(vs + (buf * KT + r) * LD + c,
				  key(at, true) + d, on);
		}
		tile_commit();
	}

	// Two channels of row r as the tensor core takes them.
	__device__ __forceinline__ u32 query(u32 r, u32 d) const
	{
		u64 tok = (u64)b * p.seq + r / per;
		const T *x = (const T *)p.qbuf +
			     (tok * p.heads + kh * per + r % per) * p.size + d;

		return r < p.seq * per && d < p.size ? *(const u32 *)x : 0;
	}

	__device__ __forceinline__ void find_rows(u32 r0)
	{
		lo_max = warp_hi = 0;
		warp_lo = hi_min = 0xffffffffu;
#pragma unroll
		for (int i = 0; i < 2; i++) {
			u32 r = r0 + g + 8 * i;

			m[i] = -INFINITY;
			l[i] = 0.f;
			lo[i] = hi[i] = 0;
			if (r >= p.seq * per)
				continue;
			hi[i] = past + r / per + 1;
			if (p.window > 0 && hi[i] > (u32)p.window)
				lo[i] = hi[i] - (u32)p.window;
		}
		// the warp's rows ascend
		u32 rows = p.seq * per, end = r0 + 16 < rows ? r0 + 16 : rows;
		if (r0 < rows) {
			hi_min = past + r0 / per + 1;
			warp_hi = past + (end - 1) / per + 1;
			warp_lo = p.window > 0 && hi_min > (u32)p.window
					  ? hi_min - (u32)p.window
					  : 0;
			lo_max = p.window > 0 && warp_hi > (u32)p.window
					 ? warp_hi - (u32)p.window
					 : 0;
			if (end < r0 + 16) // rows that are none: masked always
				hi_min = 0;
		}
	}

	__device__ __forceinline__ void find_queries(u32 r0)
	{
#pragma unroll
		for (int k = 0; k < KS; k++) {
			u32 d = k * 16 + 2 * t, x[4];

			x[0] = query(r0 + g, d);
			x[1] = query(r0 + g + 8, d);
			x[2] = query(r0 + g, d + 8);
			x[3] = query(r0 + g + 8, d + 8);
			if (Q_STAYS) {
#pragma unroll
				for (int i = 0; i < 4; i++)
					q[Q_STAYS ? k : 0][i] = x[i];
				continue;
			}
			T *row = qs + (warp * 16 + g) * LD + d;

			*(u32 *)row = x[0];
			*(u32 *)(row + 8 * LD) = x[1];
			*(u32 *)(row + 8) = x[2];
			*(u32 *)(row + 8 * LD + 8) = x[3];
		}
		__syncwarp();
	}

	// Queries times keys of the tile.
	__device__ __forceinline__ void scores(const T *k, float (*s)[4])
	{
		const T *row = k + (lane / 16 * 8 + lane % 8) * LD +
			       (lane / 8 & 1) * 8;

#pragma unroll
		for (int n = 0; n < KT / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[n][e] = 0.f;
#pragma unroll
		for (int i = 0; i < KS; i++) {
			u32 a[4], f[4];

			if (Q_STAYS) {
#pragma unroll
				for (int e = 0; e < 4; e++)
					a[e] = q[Q_STAYS ? i : 0][e];
			} else {
				load_rows(qs + (warp * 16 + lane % 16) * LD +
						  i * 16 + lane / 16 * 8,
					  a);
			}
#pragma unroll
			for (int n = 0; n < KT / 16; n++) {
				load_rows(row + n * 16 * LD + i * 16, f);
				mma16(s[2 * n], a[0], a[1], a[2], a[3], f[0],
				      f[1], T());
				mma16(s[2 * n + 1], a[0], a[1], a[2], a[3],
				      f[2], f[3], T());
			}
		}
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
						      (kh * per + r % per) *
							      p.bias_s[1] +
						      r / per * p.bias_s[2] +
						      j * p.bias_s[3]]);
		return v * LOG2E;
	}

	// Scores in units of log2; what is outside of a row's range goes.
	__device__ __forceinline__ void refine(u32 r0, u32 j0, float (*s)[4])
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

	__device__ __forceinline__ void add_values(const T *v, float (*s)[4])
	{
		const T *row = v + ((lane / 8 & 1) * 8 + lane % 8) * LD +
			       lane / 16 * 8;

#pragma unroll
		for (int n = 0; n < KT / 16; n++) {
			u32 a[4], f[4];

			a[0] = round2(s[2 * n][0], s[2 * n][1], T());
			a[1] = round2(s[2 * n][2], s[2 * n][3], T());
			a[2] = round2(s[2 * n + 1][0], s[2 * n + 1][1], T());
			a[3] = round2(s[2 * n + 1][2], s[2 * n + 1][3], T());
#pragma unroll
			for (int d = 0; d < HD / 16; d++) {
				load_columns(row + n * 16 * LD + d * 16, f);
				mma16(o[2 * d], a[0], a[1], a[2], a[3], f[0],
				      f[1], T());
				mma16(o[2 * d + 1], a[0], a[1], a[2], a[3],
				      f[2], f[3], T());
			}
		}
	}

	// Over the denominator, with the sink and the extra zero logit in it.
	__device__ __forceinline__ void store(u32 r0)
	{
#pragma unroll
		for (int i = 0; i < 2; i++) {
			u32 r = r0 + g + 8 * i, head = kh * per + r % per;
			u64 tok = (u64)b * p.seq + r / per;
			float mx = m[i], sum, f, sink = 0;

			l[i] += __shfl_xor_sync(0xffffffffu, l[i], 1);
			l[i] += __shfl_xor_sync(0xffffffffu, l[i], 2);
			if (r >= p.seq * per)
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
			T *out = (T *)p.out + (tok * p.heads + head) * p.size;
#pragma unroll
			for (int d = 0; d < HD / 8; d++)
				if (d * 8 < (int)p.size)
					*(u32 *)(out + d * 8 + 2 * t) = round2(
						o[d][2 * i] * f,
						o[d][2 * i + 1] * f, T());
		}
	}

	__device__ __forceinline__ void run(unsigned char *raw)
	{
		u32 rows = blockDim.x / 2, first, last, r0, j0, buf = 0;

		lane = threadIdx.x & 31;
		warp = threadIdx.x / 32;
		g = lane >> 2;
		t = lane & 3;
		per = p.heads / p.kv_heads;
		kh = blockIdx.y;
		b = blockIdx.z;
		ks = (T *)raw;
		vs = ks + 2 * KT * LD;
		qs = vs + 2 * KT * LD;
		// the longest rows first
		first = (gridDim.x - 1 - blockIdx.x) * rows;
		last = first + rows < p.seq * per ? first + rows : p.seq * per;
		r0 = first + warp * 16;
		cep_begin();
		total = total_len(p, b, false);
		if (!total)
			return;
		past = total - p.seq;
		old = p.windowed ? past - window_rows(p, past) : 0;
		to = past + (last - 1) / per + 1;
		from = past + first / per + 1;
		from = p.window > 0 && from > (u32)p.window
			       ? from - (u32)p.window
			       : 0;
		j0 = from / KT * KT;
		fetch(j0, 0);
		find_rows(r0);
		find_queries(r0);
#pragma unroll
		for (int d = 0; d < HD / 8; d++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				o[d][e] = 0.f;
		for (; j0 < to; j0 += KT, buf ^= 1) {
			float s[KT / 8][4];

			tile_wait<0>();
			__syncthreads();
			if (j0 + KT < to)
				fetch(j0 + KT, buf ^ 1);
			if (j0 >= warp_hi || j0 + KT <= warp_lo)
				continue;
			scores(ks + buf * KT * LD, s);
			refine(r0, j0, s);
			weigh(s);
			add_values(vs + buf * KT * LD, s);
		}
		store(r0);
	}
};

// Head sizes up to HD, KT keys a tile.
#define CEP_FLASH(type, suffix, hd, kt)                                        \
	CEP_KERNEL(cep_flash_##hd##_##suffix, cep_gqa, 256)                    \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		flash<type, hd, kt> f(p);                                      \
		f.run(raw);                                                    \
	}
CEP_FLASH(__half, f16, 64, 64)
CEP_FLASH(__half, f16, 96, 64)
CEP_FLASH(__half, f16, 128, 64)
CEP_FLASH(__half, f16, 256, 32)
CEP_FLASH(bf16, bf16, 64, 64)
CEP_FLASH(bf16, bf16, 96, 64)
CEP_FLASH(bf16, bf16, 128, 64)
CEP_FLASH(bf16, bf16, 256, 32)
