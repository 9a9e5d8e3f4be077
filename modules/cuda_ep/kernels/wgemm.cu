// wgemm.cu - products of many rows with a 4-bit matrix on compute capability
// 9.0: prompts.
//
// The tensor core takes the weights from registers and the rows of A from
// shared memory: the result is computed transposed, 64 weight rows by BM rows
// of A for four warps.  A block has WG times four warps with MT such pieces
// each, and walks over K in steps of 64.  Copies of a step arrive two steps
// before its turn; four stages of BM x 128 bytes of A and WG MT 64 x 32 bytes
// of codes:
//
//	WG MT BM   tile of the result   a stage      registers for sums
//	2  2  128  128 x 256            24 KiB       128
//	2  1  128  128 x 128            20 KiB       64
//	2  1  64   64 x 128             12 KiB       32
//	1  1  64   64 x 64              10 KiB       32
//
// While the tensor core multiplies 16 columns, the next 16 are unpacked: a code
// into the mantissa of 1024 (of 128 for bfloat16), minus zero point, times
// scale, rounded once.  The products of gate and up take one piece of each and
// leave silu(gate) up.
//
// Sum order of an element: columns in ascending order, 16 at a time, by the
// tensor core into one float; the tile has no part in it.
#include "modules/cuda_ep/kernels/wgmma.cuh"

#define STAGES 4
#define AHEAD 2 // steps: a stage is written while none can still read it

// A matrix in parts, and which of the two of a pair.
__device__ __forceinline__ const cep_mm &mm_of(const cep_mv_tiled &q)
{
	return q.m;
}
__device__ __forceinline__ const cep_mm &mm_of(const cep_mv_dual_tiled &q)
{
	return q.m;
}
template <class P> struct is_dual {
	static constexpr bool yes = false;
};
template <> struct is_dual<cep_mv_dual_tiled> {
	static constexpr bool yes = true;
};

template <class T> struct pair_of;
template <> struct pair_of<__half> {
	typedef __half2 type;
	static __device__ __forceinline__ __half2 both(__half x)
	{
		return __half2half2(x);
	}
};
template <> struct pair_of<bf16> {
	typedef __nv_bfloat162 type;
	static __device__ __forceinline__ __nv_bfloat162 both(bf16 x)
	{
		return __bfloat162bfloat162(x);
	}
};

// Byte t of v as (low nibble, high nibble) minus the zero point in z, times s.
__device__ __forceinline__ u32 weights2(u32 v, u32 t, __half2 z, __half2 s)
{
	u32 b = wg_bytes(v, v, t * 0x1111);
	__half2 x = as_half2(lop_and_or(b, 0x00f0000fu, 0x64006400u));

	return pack2(__hmul2(__hfma2(x, as_half2(0x2c003c00u), z), s));
}
__device__ __forceinline__ u32 weights2(u32 v, u32 t, __nv_bfloat162 z,
					__nv_bfloat162 s)
{
	u32 b = wg_bytes(v, v >> 4, t * 0x0101 + 0x4400);
	__nv_bfloat162 x = as_bf162(lop_and_or(b, 0x000f000fu, 0x43004300u));

	x = __hmul2(__hadd2(x, z), s);
	return *(u32 *)&x;
}

// What is added to 1024 + q, 64 + q (half) or 128 + q: minus the zero point.
__device__ __forceinline__ __half2 minus_zero(u32 z, __half)
{
	return __floats2half2_rn(-1024.f - (float)z, -64.f - (float)z);
}
__device__ __forceinline__ __nv_bfloat162 minus_zero(u32 z, bf16)
{
	float f = -128.f - (float)z;

	return __floats2bfloat162_rn(f, f);
}

template <class T, class P, int WG, int MT, int BM> struct wgemm {
	static constexpr bool DUAL = is_dual<P>::yes;
	static constexpr u32 ROWS = WG * MT * 64; // of weights, both matrices
	static constexpr u32 BN = DUAL ? ROWS / 2 : ROWS;
	static constexpr u32 THREADS = WG * 128;
	static constexpr u32 STAGE = BM * WG_ROW + ROWS * 32;
	static constexpr u32 CA = BM * 8 / THREADS, CW = ROWS * 2 / THREADS;
	static constexpr u32 LDO = BN + 8; // of the result on its way out
	typedef typename pair_of<T>::type T2;
	const P &q;
	const cep_mm &p;
	unsigned char *smem;
	u32 n0, m0, lane, g, t, wg, first, steps;
	const unsigned char *w[CW]; // what this thread copies
	const T *a;
	u32 a_on;
	const T *s[MT][2]; // scales and zero points of this thread's rows
	const unsigned char *z[MT][2];
	T sc[MT][2][2]; // of a step: two halves of 32 columns
	unsigned char zp[MT][2][2];
	float acc[MT][BM / 8][4];

	__device__ __forceinline__ wgemm(const P &params)
	    : q(params), p(mm_of(params))
	{
	}

	// Row r of the block: its part of the matrix, and the row in the part.
	__device__ __forceinline__ u32 find(u32 r, u32 *part) const
	{
		u32 n = n0 + (DUAL ? r % BN : r), at;

		n = n < p.n ? n : p.n - 1;
		at = q.n_tiles > 1 ? n / q.tile_rows : 0;
		*part = at + (DUAL && r >= BN ? second() : 0);
		return n - at * q.tile_rows;
	}
	__device__ __forceinline__ static u32 second()
	{
		return CEP_TILES;
	}

	__device__ __forceinline__ void find_all()
	{
#pragma unroll
		for (u32 i = 0; i < CW; i++) {
			u32 part, r = threadIdx.x / 2 + i * (THREADS / 2);
			u32 n = find(r, &part);

			w[i] = (const unsigned char *)q.b[part] +
			       (u64)n * p.ldb + threadIdx.x % 2 * 16;
		}
#pragma unroll
		for (int i = 0; i < MT; i++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				u32 part, n = find(first + i * WG * 64 + g +
							   h * 8,
						   &part);

				s[i][h] = (const T *)q.s[part] +
					  (u64)n * p.n_blocks;
				z[i][h] = (const unsigned char *)q.z[part] +
					  (u64)n * p.zp_row;
			}
		a = (const T *)p.a + (u64)(m0 + threadIdx.x / 8) * p.lda +
		    threadIdx.x % 8 * 8;
		a_on = 0;
#pragma unroll
		for (u32 i = 0; i < CA; i++)
			a_on |= (u32)(m0 + threadIdx.x / 8 + i * (THREADS / 8) <
				      p.m)
				<< i;
	}

	__device__ __forceinline__ unsigned char *stage(u32 k) const
	{
		return smem + k % STAGES * STAGE;
	}

	__device__ __forceinline__ void copy_w(u32 k) const
	{
		unsigned char *to = stage(k) + BM * WG_ROW + threadIdx.x * 16;

		if (k < steps)
#pragma unroll
			for (u32 i = 0; i < CW; i++)
				tile_copy(to + i * THREADS * 16, w[i] + k * 32,
					  true);
	}

	__device__ __forceinline__ void copy_a(u32 k) const
	{
		u32 r = threadIdx.x / 8, c = threadIdx.x % 8;

		if (k < steps)
#pragma unroll
			for (u32 i = 0; i < CA; i++) {
				bool on = a_on >> i & 1;

				tile_copy(
					stage(k) +
						wg_place(r + i * (THREADS / 8),
							 c),
					on ? a +
							(u64)i * (THREADS / 8) *
								p.lda +
							k * 64
					   : (const T *)p.a,
					on);
			}
		tile_commit();
	}

	__device__ __forceinline__ void fetch_scales(u32 k)
	{
		if (k >= steps)
			return;
#pragma unroll
		for (int x = 0; x < 2; x++) {
			u32 b = (k * 64 + x * 32) / p.block;

#pragma unroll
			for (int i = 0; i < MT; i++)
#pragma unroll
				for (int h = 0; h < 2; h++) {
					sc[i][h][x] = s[i][h][b];
					zp[i][h][x] = p.zp_kind ? z[i][h][b / 2]
								: 0x88;
					zp[i][h][x] =
						zp[i][h][x] >> (b & 1) * 4 & 15;
				}
		}
	}

	// Fragment of columns 16 kk of the pieces.
	__device__ __forceinline__ void unpack(const unsigned char *codes,
					       int kk, T2 (*zs)[2], T2 (*ss)[2],
					       u32 (*f)[4]) const
	{
#pragma unroll
		for (int i = 0; i < MT; i++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				u32 r = first + i * WG * 64 + g + h * 8;
				uint2 v = *(const uint2 *)(codes + r * 32 +
							   kk * 8);

				f[i][h] = weights2(v.x, t, zs[i][h], ss[i][h]);
				f[i][h + 2] =
					weights2(v.y, t, zs[i][h], ss[i][h]);
			}
	}

	__device__ __forceinline__ void columns()
	{
		u32 f[2][MT][4];

		for (u32 k = 0; k < steps; k++) {
			const unsigned char *tile = stage(k);
			T2 zs[2][MT][2], ss[2][MT][2];

			tile_wait<AHEAD - 1>();
			wg_publish();
			__syncthreads();
			copy_w(k + AHEAD);
			copy_a(k + AHEAD);
#pragma unroll
			for (int x = 0; x < 2; x++)
#pragma unroll
				for (int i = 0; i < MT; i++)
#pragma unroll
					for (int h = 0; h < 2; h++) {
						zs[x][i][h] = minus_zero(
							zp[i][h][x], T());
						ss[x][i][h] = pair_of<T>::both(
							sc[i][h][x]);
					}
			fetch_scales(k + 1);
#pragma unroll
			for (int kk = 0; kk < 4; kk++) {
				unpack(tile + BM * WG_ROW, kk, zs[kk / 2],
				       ss[kk / 2], f[kk & 1]);
				wg_ready();
#pragma unroll
				for (int i = 0; i < MT; i++)
					wgmma<BM, T>(acc[i], f[kk & 1][i], tile,
						     kk);
				wg_commit();
				wg_wait<1>();
			}
		}
		wg_wait<0>();
	}

	__device__ __forceinline__ float bias(u64 vector, u32 n) const
	{
		return vector && n < p.n ? to_f(((const T *)vector)[p.n0 + n])
					 : 0.f;
	}

	// Sums, rounded, to rows of the tile in shared memory.
	__device__ __forceinline__ void turn(T *out) const
	{
#pragma unroll
		for (int i = 0; i < (DUAL ? 1 : MT); i++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				u32 n = first + i * WG * 64 + g + h * 8;
				float b0 = bias(p.bias, n0 + n), b1 = 0;

				if (DUAL)
					b1 = bias(second_bias(q), n0 + n);
#pragma unroll
				for (int j = 0; j < BM / 8; j++)
#pragma unroll
					for (int e = 0; e < 2; e++) {
						u32 m = j * 8 + 2 * t + e;
						T v = from_f<T>(
							acc[i][j][2 * h + e] +
							b0);

						if (DUAL)
							v = gated(
								v,
								from_f<T>(
									acc[MT -
									    1]
									   [j]
									   [2 * h +
									    e] +
									b1));
						out[m * LDO + n] = v;
					}
			}
	}

	__device__ __forceinline__ static u64 second_bias(const cep_mv_tiled &)
	{
		return 0;
	}
	__device__ __forceinline__ static u64
	second_bias(const cep_mv_dual_tiled &d)
	{
		return d.bias2;
	}

	// silu(gate) up of rounded operands.
	__device__ __forceinline__ static T gated(T gate, T up)
	{
		float x = to_f(gate);

		return from_f<T>(x * f_sigmoid(x) * to_f(up));
	}

	__device__ __forceinline__ void store()
	{
		T *tile = (T *)smem;
		T *c = (T *)p.out + p.n0 + n0;
		u32 cols = p.n - n0 < BN ? p.n - n0 : BN;
		bool wide = !((u64)c & 15) && !(p.ldc % 8) && !(cols % 8);

		__syncthreads(); // stages are not read any more
		turn(tile);
		__syncthreads();
		for (u32 i = threadIdx.x; i < BM * (BN / 8); i += THREADS) {
			u32 m = i / (BN / 8), n = i % (BN / 8) * 8;
			T *to = c + (u64)(m0 + m) * p.ldc + n;

			if (m0 + m >= p.m || n >= cols)
				continue;
			if (wide) {
				*(uint4 *)to =
					*(const uint4 *)&tile[m * LDO + n];
				continue;
			}
			for (u32 e = 0; e < 8 && n + e < cols; e++)
				to[e] = tile[m * LDO + n + e];
		}
	}

	__device__ __forceinline__ void run(unsigned char *raw)
	{
		smem = raw + (0 - (u64)raw & 1023);
		lane = threadIdx.x & 31;
		g = lane >> 2;
		t = lane & 3;
		// rows of the block's first piece that this warp has
		first = threadIdx.x / 32 * 16;
		m0 = blockIdx.x * BM;
		n0 = blockIdx.y * BN;
		steps = p.k / 64;
		find_all();
		cep_trigger();
		for (u32 k = 0; k < AHEAD; k++)
			copy_w(k);
		fetch_scales(0);
#pragma unroll
		for (int i = 0; i < MT; i++)
#pragma unroll
			for (int j = 0; j < BM / 8; j++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					acc[i][j][e] = 0.f;
		cep_wait();
		for (u32 k = 0; k < AHEAD; k++)
			copy_a(k);
		columns();
		store();
	}
};

#define CEP_WGEMM(name, type, ptype, wg, mt, bm)                               \
	CEP_KERNEL(name, ptype, wg * 128)                                      \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		WG_ONLY(wgemm<type, ptype, wg, mt, bm> x(p); x.run(raw));      \
	}
#define CEP_WGEMMS(type, suffix)                                               \
	CEP_WGEMM(cep_wgemm_256_128_##suffix, type, cep_mv_tiled, 2, 2, 128)   \
	CEP_WGEMM(cep_wgemm_128_128_##suffix, type, cep_mv_tiled, 2, 1, 128)   \
	CEP_WGEMM(cep_wgemm_128_64_##suffix, type, cep_mv_tiled, 2, 1, 64)     \
	CEP_WGEMM(cep_wgemm_64_64_##suffix, type, cep_mv_tiled, 1, 1, 64)      \
	CEP_WGEMM(cep_wgemmd_128_128_##suffix, type, cep_mv_dual_tiled, 2, 2,  \
		  128)                                                         \
	CEP_WGEMM(cep_wgemmd_128_64_##suffix, type, cep_mv_dual_tiled, 2, 2, 64)
CEP_WGEMMS(__half, f16)
CEP_WGEMMS(bf16, bf16)
