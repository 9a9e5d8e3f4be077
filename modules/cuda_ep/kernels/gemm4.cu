// gemm4.cu - products of several rows with a 4-bit matrix: prompts.
//
// K is summed in slices of SLICE columns: inside a slice 16 columns at a time
// by the tensor core, then slice by slice.  So the result does not depend on
// the number of rows.
#include "modules/cuda_ep/kernels/tile.cuh"

#define LD 72	   // elements of a row of a tile of 64, padded
#define SLICE 1024 // columns

__device__ __forceinline__ u32 mul2(u32 a, float s, __half)
{
	return pack2(__hmul2(as_half2(a), __float2half2_rn(s)));
}
__device__ __forceinline__ u32 mul2(u32 a, float s, bf16)
{
	__nv_bfloat162 v = __hmul2(as_bf162(a), __float2bfloat162_rn(s));

	return *(u32 *)&v;
}
__device__ __forceinline__ u32 sub2(u32 a, float s, __half)
{
	return pack2(__hsub2(as_half2(a), __float2half2_rn(s)));
}
__device__ __forceinline__ u32 sub2(u32 a, float s, bf16)
{
	__nv_bfloat162 v = __hsub2(as_bf162(a), __float2bfloat162_rn(s));

	return *(u32 *)&v;
}

// What a thread holds of the next tile's weights: 32 columns of one row.
template <class T> struct piece {
	uint4 w;
	T s;
	unsigned char z;
};

template <class T, bool ZP> struct gemm4 {
	static constexpr int BM = 64, MF = 2, NF = 4;
	static constexpr u32 TPR = 128 / BM; // threads that copy a row of A
	const cep_mv_tiled &q;
	const cep_mm &p;
	T (*as)[BM][LD];
	T (*ws)[64][LD];
	u32 n0, m0, g, t, wm, wn;
	const unsigned char *w, *z;
	const T *s;
	float acc[MF][NF][4], sum[MF][NF][4];

	__device__ __forceinline__ gemm4(const cep_mv_tiled &params)
	    : q(params), p(params.m)
	{
	}

	// The row of the matrix that this thread stages.
	__device__ __forceinline__ void find()
	{
		u32 n = n0 + threadIdx.x / 2, at;

		n = n < p.n ? n : p.n - 1;
		at = q.n_tiles > 1 ? n / q.tile_rows : 0;
		n -= at * q.tile_rows;
		w = (const unsigned char *)q.b[at] + (u64)n * p.ldb;
		s = (const T *)q.s[at] + (u64)n * p.n_blocks;
		z = (const unsigned char *)q.z[at] + (u64)n * p.zp_row;
	}

	__device__ __forceinline__ void fetch(piece<T> &x, u32 k0) const
	{
		u32 k = k0 + threadIdx.x % 2 * 32, b = k / p.block;

		x.w = *(const uint4 *)(w + k / 2);
		x.s = s[b];
		if (ZP)
			x.z = z[b / 2] >> (b & 1) * 4 & 15;
	}

	// (q - zero point) scale, rounded once, in the order of the columns.
	__device__ __forceinline__ void put(const piece<T> &x, u32 buf) const
	{
		T *row = &ws[buf][threadIdx.x / 2][threadIdx.x % 2 * 32];
		const u32 *v = (const u32 *)&x.w;
		float sc = to_f(x.s);

#pragma unroll
		for (int j = 0; j < 4; j++) {
			u32 o[4];
			uint4 r;

			unpack8(v[j], o, T());
#pragma unroll
			for (int i = 0; i < 4; i++) {
				if (ZP)
					o[i] = sub2(o[i], (float)x.z - 8.f,
						    T());
				o[i] = mul2(o[i], sc, T());
			}
			r.x = pick16(o[0], o[1], false);
			r.y = pick16(o[2], o[3], false);
			r.z = pick16(o[0], o[1], true);
			r.w = pick16(o[2], o[3], true);
			*(uint4 *)(row + j * 8) = r;
		}
	}

	__device__ __forceinline__ void copy_a(u32 k0, u32 buf) const
	{
		u32 r = threadIdx.x / TPR, m = m0 + r;
		const T *a = (const T *)p.a + (u64)(m < p.m ? m : 0) * p.lda;

#pragma unroll
		for (u32 i = threadIdx.x % TPR * 8; i < 64; i += TPR * 8)
			tile_copy(&as[buf][r][i], a + k0 + i, m < p.m);
		tile_commit();
	}

	__device__ __forceinline__ void clear(float (*v)[NF][4])
	{
#pragma unroll
		for (int i = 0; i < MF; i++)
#pragma unroll
			for (int j = 0; j < NF; j++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					v[i][j][e] = 0.f;
	}

	__device__ __forceinline__ void add_slice()
	{
#pragma unroll
		for (int i = 0; i < MF; i++)
#pragma unroll
			for (int j = 0; j < NF; j++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					sum[i][j][e] += acc[i][j][e];
		clear(acc);
	}

	// All columns into sum.
	__device__ __forceinline__ void columns()
	{
		piece<T> x;
		u32 buf = 0;

		fetch(x, 0);
		put(x, 0);
		copy_a(0, 0);
		for (u32 k = 0; k < p.k; k += 64, buf ^= 1) {
			bool more = k + 64 < p.k;

			tile_wait<0>();
			__syncthreads();
			if (more) {
				copy_a(k + 64, buf ^ 1);
				fetch(x, k + 64);
			}
			mma_tile<MF, NF>(acc, as[buf], ws[buf], wm, wn, g, t);
			if (more)
				put(x, buf ^ 1);
			if ((k + 64) % SLICE == 0 || !more)
				add_slice();
		}
	}

	__device__ __forceinline__ void store(u32 m, u32 n, float v) const
	{
		if (p.bias)
			v += to_f(((const T *)p.bias)[p.n0 + n]);
		((T *)p.out)[(u64)m * p.ldc + p.n0 + n] = from_f<T>(v);
	}

	__device__ __forceinline__ void leave() const
	{
#pragma unroll
		for (int i = 0; i < MF; i++)
#pragma unroll
			for (int j = 0; j < NF; j++)
#pragma unroll
				for (int e = 0; e < 4; e++) {
					u32 m = m0 + wm + i * 16 + g +
						e / 2 * 8;
					u32 n = n0 + wn + j * 8 + 2 * t +
						(e & 1);

					if (m < p.m && n < p.n)
						store(m, n, sum[i][j][e]);
				}
	}

	__device__ __forceinline__ void run()
	{
		u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;

		g = lane >> 2;
		t = lane & 3;
		wm = (warp & 1) * 32;
		wn = (warp >> 1) * 32;
		n0 = blockIdx.x * 64;
		m0 = blockIdx.y * BM;
		find();
		clear(acc);
		clear(sum);
		cep_begin();
		columns();
		leave();
	}
};

#define CEP_GEMM4(type, suffix, zp)                                            \
	CEP_KERNEL(cep_gemm4_##suffix##_##zp, cep_mv_tiled, 128)               \
	{                                                                      \
		__shared__ __align__(16) type as[2][64][LD];                   \
		__shared__ __align__(16) type ws[2][64][LD];                   \
		gemm4<type, zp> g(p);                                          \
		g.as = as;                                                     \
		g.ws = ws;                                                     \
		g.run();                                                       \
	}
CEP_GEMM4(__half, f16, 0)
CEP_GEMM4(__half, f16, 1)
CEP_GEMM4(bf16, bf16, 0)
CEP_GEMM4(bf16, bf16, 1)
