// beside.cu - products of few rows with 4-bit matrices some rows of which the
// host's cores multiply meanwhile (multiply4.c), and asking and meeting them.
//
// Tensor cores round in a way of their own, which no other processor has: where
// rows may be left to the host, all are summed by fused multiply-adds of float,
// so that it does not matter who takes which.  A warp takes 2 rows or 4, of one
// matrix or half of them of each of two: lane i words (8 codes) i, i + 32, ...
// of them.  A word
// is a chain from its first code on; its sum times the block's scale is added
// to the lane's, fused; then a butterfly over the lanes.  Up to 8 rows of
// activations share what was unpacked, and each has the sums that it would have
// alone.
#include "modules/cuda_ep/kernels/common.cuh"

struct words4 {
	const u32 *codes;
	const unsigned char *scales, *zeros;
};

// Code e of a word, as a float, without a conversion: from where it stands in
// the word it goes into the mantissa of a float that begins at base(e), whose
// last place there is worth 1.  What is subtracted is exact.
__device__ __forceinline__ float base(int e)
{
	return (float)(1 << (23 - 4 * (e < 5 ? e : e - 3)));
}

__device__ __forceinline__ float code_at(u32 word, int e)
{
	int at = 4 * (e < 5 ? e : e - 3);
	u32 bits = e < 5 ? word : word >> 12, v;
	float f;

#ifdef CEP_EMU
	v = (bits & 15u << at) | (u32)(150 - at) << 23;
#else // in one instruction
	asm("lop3.b32 %0, %1, %2, %3, 0xea;"
	    : "=r"(v)
	    : "r"(bits), "r"(15u << at), "r"((u32)(150 - at) << 23));
#endif
	memcpy(&f, &v, sizeof(f));
	return f;
}

template <class T> __device__ __forceinline__ float of_bits(uint16_t bits)
{
	T v;

	memcpy(&v, &bits, sizeof(v));
	return to_f(v);
}

// STREAMS rows of matrices are read at once by a warp, of AHEAD words each.
// PLAIN: blocks of 32, without zero points, and activations may be read 16
// bytes at a time.
template <class T, int M, bool DUAL, u32 STREAMS, u32 AHEAD, bool PLAIN>
struct beside {
	static constexpr u32 ROWS = DUAL ? STREAMS / 2 : STREAMS;
	const cep_mv_dual_tiled &q;
	const cep_mm &p;
	words4 r[STREAMS];
	float acc[STREAMS][M];
	u32 m0, row0;

	__device__ __forceinline__ beside(const cep_mv_dual_tiled &params)
	    : q(params), p(params.m)
	{
	}

	// Beyond the last row: the last one again, whose result is dropped.
	__device__ __forceinline__ void find(u32 s)
	{
		u32 row = row0 + (DUAL ? s / 2 : s), tile, at;
		u64 zp = p.zp_kind == CEP_ZP_PACKED ? p.zp_row : p.n_blocks * 2;

		row = row < p.n ? row : p.n - 1;
		tile = row / q.tile_rows;
		at = row - tile * q.tile_rows;
		tile += DUAL && s & 1 ? CEP_TILES : 0;
		r[s].codes = (const u32 *)(q.b[tile] + (u64)at * p.ldb);
		r[s].scales = (const unsigned char *)q.s[tile] +
			      (u64)at * p.n_blocks * 2;
		if (!PLAIN && p.zp_kind)
			r[s].zeros = (const unsigned char *)q.z[tile] + at * zp;
	}

	__device__ __forceinline__ float zero(const words4 &w, u32 b) const
	{
		if (p.zp_kind == CEP_ZP_NONE)
			return 8.f;
		if (p.zp_kind == CEP_ZP_PACKED)
			return (float)(w.zeros[b / 2] >> (b & 1) * 4 & 15);
		return to_f(((const T *)w.zeros)[b]);
	}

	__device__ __forceinline__ void load(u32 m, u32 w, float *x) const
	{
		const T *a = (const T *)p.a + (u64)m * p.lda + w * 8;

		if (PLAIN || p.vec_a)
			load8(a, x);
		else
#pragma unroll
			for (int e = 0; e < 8; e++)
				x[e] = to_f(a[e]);
	}

	__device__ __forceinline__ void use(u32 w, const u32 *code,
					    const uint16_t *scale)
	{
		float v[STREAMS][8];

#pragma unroll
		for (u32 s = 0; s < STREAMS; s++) {
			float z =
				PLAIN ? 0.f : zero(r[s], w >> (2 + q.o.shift));

#pragma unroll
			for (int e = 0; e < 8; e++) {
				v[s][e] = code_at(code[s], e) -
					  (base(e) + (PLAIN ? 8.f : 0.f));
				if (!PLAIN)
					v[s][e] -= z;
			}
		}
#pragma unroll
		for (u32 m = 0; m < M; m++) {
			float x[8];

			if (M > 1 && m0 + m >= p.m)
				continue;
			load(m0 + m, w, x);
#pragma unroll
			for (u32 s = 0; s < STREAMS; s++) {
				float d = v[s][0] * x[0];

#pragma unroll
				for (int e = 1; e < 8; e++)
					d = fmaf(v[s][e], x[e], d);
				acc[s][m] = fmaf(d, of_bits<T>(scale[s]),
						 acc[s][m]);
			}
		}
	}

	// Of word w + 32 i.
	__device__ __forceinline__ u32 block(u32 w, u32 i) const
	{
		return PLAIN ? (w >> 2) + 8 * i
			     : (w + 32 * i) >> (2 + q.o.shift);
	}

	// N words of each row, 32 further each time: all are asked for before
	// the first is used.
	template <u32 N> __device__ __forceinline__ void words(u32 w)
	{
		u32 code[N][STREAMS];
		uint16_t scale[N][STREAMS];

#pragma unroll
		for (u32 i = 0; i < N; i++)
#pragma unroll
			for (u32 s = 0; s < STREAMS; s++) {
				u32 at = w + 32 * i;

				code[i][s] = r[s].codes[at];
				scale[i][s] = ((const uint16_t *)r[s]
						       .scales)[block(w, i)];
			}
		if (N > 1) // the compiler would read each right before its use
			__syncwarp();
#pragma unroll
		for (u32 i = 0; i < N; i++)
			use(w + 32 * i, code[i], scale[i]);
	}

	__device__ __forceinline__ void run();
};

// The result of row, of what the matrices gave: bias, silu, a tensor added.
template <class T>
__device__ __forceinline__ void leave(const cep_mm &p, u64 add, u64 bias2,
				      bool dual, u32 m, u32 row, float v,
				      float u)
{
	u64 at = (u64)m * p.ldc + row;
	T r;

	if (p.bias)
		v += to_f(((const T *)p.bias)[row]);
	if (dual) {
		if (bias2)
			u += to_f(((const T *)bias2)[row]);
		v = to_f(from_f<T>(v));
		v = v * f_sigmoid(v) * to_f(from_f<T>(u));
	}
	r = from_f<T>(v);
	if (!dual && add)
		r = from_f<T>(to_f(((const T *)add)[at]) + to_f(r));
	((T *)p.out)[at] = r;
}

template <class T, int M, bool DUAL, u32 STREAMS, u32 AHEAD, bool PLAIN>
__device__ __forceinline__ void beside<T, M, DUAL, STREAMS, AHEAD, PLAIN>::run()
{
	u32 lane = threadIdx.x & 31, w = lane;

	m0 = blockIdx.y * M;
	row0 = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * ROWS;
	if (row0 >= p.n)
		return;
#pragma unroll
	for (u32 s = 0; s < STREAMS; s++) {
		find(s);
		for (int m = 0; m < M; m++)
			acc[s][m] = 0;
	}
	for (; w - lane + 32 * AHEAD <= p.k / 8; w += 32 * AHEAD)
		words<AHEAD>(w);
	for (; w < p.k / 8; w += 32)
		words<1>(w);
#pragma unroll
	for (u32 s = 0; s < STREAMS; s++)
#pragma unroll
		for (int m = 0; m < M; m++)
			acc[s][m] = warp_sum(acc[s][m]);
	if (lane)
		return;
#pragma unroll
	for (u32 i = 0; i < ROWS; i++)
#pragma unroll
		for (u32 m = 0; m < M; m++)
			if (row0 + i < p.n && m0 + m < p.m)
				leave<T>(p, q.o.add, q.bias2, DUAL, m0 + m,
					 p.n0 + row0 + i,
					 acc[DUAL ? 2 * i : i][m],
					 DUAL ? acc[2 * i + 1][m] : 0.f);
}

// ---- the host's part ----

// One block: the bell after all activations.
template <class T> __device__ __forceinline__ void ask(const cep_ask &p)
{
	cep_begin();
	for (u32 i = threadIdx.x; i < (p.k + 255) / 256 * 256;
	     i += blockDim.x) {
		u32 k = i / 256 * 256 + i % 32 * 8 + i % 256 / 32;

		if (k < p.k)
			((float *)p.to)[i] = to_f(((const T *)p.x)[k]);
	}
	__threadfence_system();
	__syncthreads();
	if (threadIdx.x == 0) {
		u32 turn = *(u32 *)p.turn + 1;

		*(u32 *)p.turn = turn;
		__threadfence_system();
		*(volatile u64 *)p.bell = (u64)p.job << 32 | turn;
	}
}

__device__ __forceinline__ u64 now_ns()
{
#ifdef CEP_EMU
	return emu_clock_ns();
#else
	u64 t;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
	return t;
#endif
}

template <class T> __device__ __forceinline__ void meet(const cep_meet &p)
{
	u32 at = blockIdx.x * blockDim.x + threadIdx.x;

	cep_begin();
	if (threadIdx.x == 0) {
		u64 want = (u64)p.job << 32 | *(const u32 *)p.turn;
		u64 begin = now_ns();

		// a step that has failed waits for nobody
		while (*(volatile u64 *)p.answered != want &&
		       !*(volatile u32 *)p.blame.lock) {
			if (now_ns() - begin > p.patience_ns) {
				cep_refuse(p.blame, CEP_FAULT_HOST,
					   (long long)p.patience_ns, 0);
				break;
			}
			__nanosleep(100);
		}
		__threadfence_system();
	}
	__syncthreads();
	for (u32 i = 0; i < p.n_parts; i++) {
		u32 n = p.rows[i][1];

		for (; at < n; at += gridDim.x * blockDim.x) {
			u32 row = p.rows[i][0] + at;
			volatile const float *s =
				(volatile const float *)p.sums;

			leave<T>(p.m, p.add, p.bias2, p.dual, 0, row, s[row],
				 p.dual ? s[p.m.n + row] : 0.f);
		}
		at -= n;
	}
}

#define CEP_BESIDE(suffix, type)                                               \
	CEP_KERNEL(cep_ask_##suffix, cep_ask, 1024)                            \
	{                                                                      \
		ask<type>(p);                                                  \
	}                                                                      \
	CEP_KERNEL(cep_meet_##suffix, cep_meet, 256)                           \
	{                                                                      \
		meet<type>(p);                                                 \
	}                                                                      \
	CEP_BESIDE_FORM(cep_beside_1_##suffix, type, 1, false, 2, 8)           \
	CEP_BESIDE_FORM(cep_beside_many_##suffix, type, 1, false, 4, 4)        \
	CEP_BESIDE_FORM(cep_beside_8_##suffix, type, 8, false, 4, 1)           \
	CEP_BESIDE_FORM(cep_besided_1_##suffix, type, 1, true, 2, 8)           \
	CEP_BESIDE_FORM(cep_besided_many_##suffix, type, 1, true, 4, 4)        \
	CEP_BESIDE_FORM(cep_besided_8_##suffix, type, 8, true, 4, 1)
#define CEP_BESIDE_FORM(name, type, rows, dual, streams, ahead)                \
	CEP_KERNEL(name, cep_mv_dual_tiled, 256)                               \
	{                                                                      \
		cep_begin();                                                   \
		if (p.m.vec_a && !p.m.zp_kind && !p.o.shift)                   \
			beside<type, rows, dual, streams, ahead, true>(p)      \
				.run();                                        \
		else                                                           \
			beside<type, rows, dual, streams, 1, false>(p).run();  \
	}
CEP_BESIDE(f16, __half)
CEP_BESIDE(bf16, bf16)
