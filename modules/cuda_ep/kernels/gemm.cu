// gemm.cu - products of several rows with a matrix.  An element of the result
// is summed over K in one fixed order, whatever the number of rows.
#include "modules/cuda_ep/kernels/mma.cuh"

enum { W_BITS, W_NK, W_KN };

__device__ __forceinline__ const cep_mm &mm_of(const cep_mm &p)
{
	return p;
}
__device__ __forceinline__ const cep_mm &mm_of(const cep_mv_tiled &q)
{
	return q.m;
}

// Weight (n, k) of a quantised matrix as float.
template <class T> struct bits_row {
	const unsigned char *w, *z;
	const T *s, *zf;

	__device__ __forceinline__ bits_row(const cep_mv_tiled &q, u32 n)
	{
		const cep_mm &p = q.m;
		u32 t = q.n_tiles > 1 ? n / q.tile_rows : 0;

		n -= t * q.tile_rows;
		w = (const unsigned char *)q.b[t] + (u64)n * p.ldb;
		z = (const unsigned char *)q.z[t] + (u64)n * p.zp_row;
		s = (const T *)q.s[t] + (u64)n * p.n_blocks;
		zf = (const T *)q.z[t] + (u64)n * p.n_blocks;
	}
	// a matrix that is not quantised has no such row
	__device__ __forceinline__ bits_row(const cep_mm &, u32)
	{
	}

	__device__ __forceinline__ float zero(const cep_mm &p, u32 blk) const
	{
		u32 mask = (1u << p.bits) - 1;

		if (p.zp_kind == CEP_ZP_FLOAT)
			return to_f(zf[blk]);
		if (p.zp_kind == CEP_ZP_PACKED)
			return (float)((z[blk * p.bits / 8] >>
					blk * p.bits % 8) &
				       mask);
		return (float)(1u << (p.bits - 1));
	}

	// Eight weights from column k, a multiple of 8.
	__device__ __forceinline__ void get(const cep_mm &p, u32 k,
					    float *o) const
	{
		u32 blk = k / p.block, mask = (1u << p.bits) - 1;
		const unsigned char *b = w + (u64)k * p.bits / 8;
		float sc, zp;
		u64 q = 0;

		if (k >= p.k) {
			for (int i = 0; i < 8; i++)
				o[i] = 0.f;
			return;
		}
		sc = to_f(s[blk]);
		zp = zero(p, blk);
		if (p.bits == 4)
			q = *(const u32 *)b;
		else
			for (u32 i = 0; i < p.bits; i++)
				q |= (u64)b[i] << (8 * i);
		for (u32 i = 0; i < 8; i++)
			o[i] = k + i < p.k ? ((float)(u32)(q & mask) - zp) * sc
					   : 0.f,
			q >>= p.bits;
	}
};

template <class T>
__device__ __forceinline__ void get8(const T *row, u32 k, u32 n, bool vec, T *o)
{
	if (vec && k + 8 <= n) {
#pragma unroll
		for (u32 i = 0; i < sizeof(T) / 2; i++)
			((uint4 *)o)[i] = ((const uint4 *)(row + k))[i];
		return;
	}
	for (u32 i = 0; i < 8; i++)
		o[i] = k + i < n ? row[k + i] : from_f<T>(0.f);
}

#define LD 72 // elements of a row of a tile of 64, padded against conflicts

// 64 columns of k of weight rows n0 .. n0 + 63 into w[n][k]; 128 threads.
template <class T, int WK>
__device__ __forceinline__ void stage_w(const cep_mm &p, const bits_row<T> &row,
					const T *b, u32 n0, u32 k0, T (*w)[LD])
{
	if (WK == W_KN) {
		u32 k = k0 + threadIdx.x / 2, n = threadIdx.x % 2 * 32;

		for (u32 i = 0; i < 32; i += 8) {
			__align__(16) T v[8];

			if (k < p.k)
				get8(b + (u64)k * p.ldb, n0 + n + i, p.n,
				     p.vec_b, v);
			for (u32 e = 0; e < 8; e++)
				w[n + i + e][k - k0] =
					k < p.k ? v[e] : from_f<T>(0.f);
		}
		return;
	}
	u32 r = threadIdx.x / 2, n = n0 + r, k = threadIdx.x % 2 * 32;
	n = n < p.n ? n : p.n - 1;
	if (WK == W_BITS) {
		for (u32 i = 0; i < 32; i += 8) {
			float f[8];
			__align__(16) T v[8];

			row.get(p, k0 + k + i, f);
			for (u32 e = 0; e < 8; e++)
				v[e] = from_f<T>(f[e]);
			*(uint4 *)&w[r][k + i] = *(const uint4 *)v;
		}
	} else {
		for (u32 i = 0; i < 32; i += 8) {
			__align__(16) T v[8];

			get8(b + (u64)n * p.ldb, k0 + k + i, p.k, p.vec_b, v);
			*(uint4 *)&w[r][k + i] = *(const uint4 *)v;
		}
	}
}

// A block: BM rows of A by 64 columns of the result; tensor cores.
template <class T, int WK, int BM, class P>
__device__ __forceinline__ void gemm(const P &q)
{
	const cep_mm &p = mm_of(q);
	__shared__ __align__(16) T as[BM][LD];
	__shared__ __align__(16) T ws[64][LD];
	constexpr int MF = BM == 64 ? 2 : 1, NF = BM == 64 ? 4 : 2;
	constexpr u32 TPR = 128 / BM; // threads that load a row of A
	u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;
	u32 g = lane >> 2, t = lane & 3;
	u32 wm = BM == 64 ? (warp & 1) * 32 : 0;
	u32 wn = BM == 64 ? (warp >> 1) * 32 : warp * 16;
	u32 n0 = blockIdx.x * 64, m0 = blockIdx.y * BM;
	const T *a = (const T *)p.a + blockIdx.z * p.a_batch;
	const T *b = (const T *)p.b + blockIdx.z * p.b_batch;
	T *c = (T *)p.out + blockIdx.z * p.c_batch;
	float acc[MF][NF][4] = {};
	u32 own = n0 + threadIdx.x / 2;
	bits_row<T> row(q, own < p.n ? own : p.n - 1);

	cep_begin();
	for (u32 k0 = 0; k0 < p.k; k0 += 64) {
		u32 r = threadIdx.x / TPR, m = m0 + r;

		for (u32 i = threadIdx.x % TPR * 8; i < 64; i += TPR * 8) {
			__align__(16) T v[8];

			if (m < p.m)
				get8(a + (u64)m * p.lda, k0 + i, p.k, p.vec_a,
				     v);
			else
				for (int e = 0; e < 8; e++)
					v[e] = from_f<T>(0.f);
			*(uint4 *)&as[r][i] = *(const uint4 *)v;
		}
		stage_w<T, WK>(p, row, b, n0, k0, ws);
		__syncthreads();
		mma_tile<MF, NF>(acc, as, ws, wm, wn, g, t);
		__syncthreads();
	}
#pragma unroll
	for (int i = 0; i < MF; i++)
#pragma unroll
		for (int j = 0; j < NF; j++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				u32 m = m0 + wm + i * 16 + g + (e / 2) * 8;
				u32 n = n0 + wn + j * 8 + 2 * t + (e & 1);
				float v = acc[i][j][e];

				if (m >= p.m || n >= p.n)
					continue;
				if (p.bias)
					v += to_f(
						((const T *)p.bias)[p.n0 + n]);
				c[(u64)m * p.ldc + p.n0 + n] = from_f<T>(v);
			}
}

// float, B perhaps narrower: 64 x 64 by 256 threads, four by four a thread, 16 of
// k at a time.
template <int WK, class W, class P>
__device__ __forceinline__ void gemm_f32(const P &q)
{
	const cep_mm &p = mm_of(q);
	__shared__ float as[16][68], ws[16][68];
	u32 tx = threadIdx.x % 16, ty = threadIdx.x / 16;
	u32 n0 = blockIdx.x * 64, m0 = blockIdx.y * 64;
	const float *a = (const float *)p.a + blockIdx.z * p.a_batch;
	const W *b = (const W *)p.b + blockIdx.z * p.b_batch;
	float *c = (float *)p.out + blockIdx.z * p.c_batch;
	float acc[4][4] = {};
	u32 own = n0 + threadIdx.x % 128 / 2;
	bits_row<float> row(q, own < p.n ? own : p.n - 1);

	cep_begin();
	for (u32 k0 = 0; k0 < p.k; k0 += 16) {
		for (u32 i = threadIdx.x; i < 64 * 16; i += 256) {
			u32 m = m0 + i / 16, k = k0 + i % 16;

			as[i % 16][i / 16] = m < p.m && k < p.k
						     ? a[(u64)m * p.lda + k]
						     : 0.f;
		}
		if (WK == W_BITS) {
			if (threadIdx.x < 128) {
				u32 r = threadIdx.x / 2;
				u32 k = threadIdx.x % 2 * 8;
				float f[8];

				row.get(p, k0 + k, f);
				for (int e = 0; e < 8; e++)
					ws[k + e][r] = f[e];
			}
		} else {
			for (u32 i = threadIdx.x; i < 64 * 16; i += 256) {
				u32 r = WK == W_NK ? i / 16 : i % 64;
				u32 kk = WK == W_NK ? i % 16 : i / 64;
				u32 n = n0 + r, k = k0 + kk;
				float v = 0;

				if (n < p.n && k < p.k)
					v = to_f(b[WK == W_NK
							   ? (u64)n * p.ldb + k
							   : (u64)k * p.ldb +
								     n]);
				ws[kk][r] = v;
			}
		}
		__syncthreads();
#pragma unroll
		for (int k = 0; k < 16; k++) {
			float x[4], y[4];

			for (int i = 0; i < 4; i++) {
				x[i] = as[k][ty * 4 + i];
				y[i] = ws[k][tx * 4 + i];
			}
			for (int i = 0; i < 4; i++)
				for (int j = 0; j < 4; j++)
					acc[i][j] += x[i] * y[j];
		}
		__syncthreads();
	}
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++) {
			u32 m = m0 + ty * 4 + i, n = n0 + tx * 4 + j;
			float v = acc[i][j];

			if (m >= p.m || n >= p.n)
				continue;
			if (p.bias)
				v += ((const float *)p.bias)[p.n0 + n];
			c[(u64)m * p.ldc + p.n0 + n] = v;
		}
}

#define CEP_GEMM(kind, name, ptype)                                            \
	CEP_KERNEL(cep_gemm_##name##_f32, ptype, 256)                          \
	{                                                                      \
		gemm_f32<kind, float>(p);                                             \
	}                                                                      \
	CEP_KERNEL(cep_gemm16_##name##_f16, ptype, 128)                        \
	{                                                                      \
		gemm<__half, kind, 16>(p);                                     \
	}                                                                      \
	CEP_KERNEL(cep_gemm64_##name##_f16, ptype, 128)                        \
	{                                                                      \
		gemm<__half, kind, 64>(p);                                     \
	}                                                                      \
	CEP_KERNEL(cep_gemm16_##name##_bf16, ptype, 128)                       \
	{                                                                      \
		gemm<bf16, kind, 16>(p);                                       \
	}                                                                      \
	CEP_KERNEL(cep_gemm64_##name##_bf16, ptype, 128)                       \
	{                                                                      \
		gemm<bf16, kind, 64>(p);                                       \
	}
CEP_GEMM(W_BITS, q, cep_mv_tiled)
CEP_GEMM(W_NK, nk, cep_mm)
CEP_GEMM(W_KN, kn, cep_mm)
CEP_KERNEL(cep_gemm_kn_f32_f16, cep_mm, 256)
{
	gemm_f32<W_KN, __half>(p);
}
CEP_KERNEL(cep_gemm_kn_f32_bf16, cep_mm, 256)
{
	gemm_f32<W_KN, bf16>(p);
}
