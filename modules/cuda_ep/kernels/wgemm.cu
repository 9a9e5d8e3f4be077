// wgemm.cu - products of many rows with a 4-bit matrix on compute capability
// 9.0: prompts.
//
// The tensor core takes the weights from registers and the rows of A from
// shared memory: the result is computed transposed, 64 weight rows by BM rows
// of A for four warps.  A block has WG times four warps with MT such pieces
// each, and walks over K in steps of 64.  A stage holds a step: BM x 128 bytes
// of A, and for each of WG MT 64 weight rows 32 bytes of codes and 16 of scales
// and zero points, as pairs ready to use:
//
//	WG MT BM   tile of the result   a stage   stages   registers for sums
//	2  2  128  128 x 256            28 KiB    4        128
//	2  1  128  128 x 128            22 KiB    4        64
//	2  1  64   64 x 128             14 KiB    6        32
//	1  1  64   64 x 64              11 KiB    8        32
//
// All stages but two are on their way while one is multiplied: the last of a
// step's products may still read its stage when the next step begins, so a
// stage is written no sooner than two steps after its turn.  While the tensor
// core multiplies some columns, the next are unpacked: a code into the mantissa
// of 1024 (of 128 for bfloat16), minus zero point, times scale, rounded once.
// The products of gate and up take one piece of each and leave silu(gate) up.
//
// Sum order of an element: columns in ascending order, 16 at a time, by the
// tensor core into one float; the tile has no part in it.
#include "modules/cuda_ep/kernels/wgmma.cuh"

#define RECORD 16 // bytes of a row's scales and zero points in a step

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

template <class T, class P, int WG, int MT, int BM, int STAGES> struct wgemm {
	static constexpr bool DUAL = is_dual<P>::yes;
	static constexpr u32 ROWS = WG * MT * 64; // of weights, both matrices
	static constexpr u32 BN = DUAL ? ROWS / 2 : ROWS;
	static constexpr u32 THREADS = WG * 128;
	static constexpr u32 CODES = BM * WG_ROW, RECORDS = CODES + ROWS * 32;
	static constexpr u32 STAGE = RECORDS + ROWS * RECORD;
	static constexpr u32 AHEAD = STAGES - 2;
	static constexpr int KG = 2; // pieces of 16 columns at a time
	static constexpr u32 CA = BM * 8 / THREADS, CW = ROWS * 2 / THREADS;
	static constexpr u32 LDO = BN + 8; // of the result on its way out
	typedef typename pair_of<T>::type T2;
	const P &q;
	const cep_mm &p;
	unsigned char *smem;
	u32 n0, m0, lane, g, t, first, steps, shift;
	const unsigned char *w[CW], *a[CA]; // what this thread copies
	u32 a_on;
	const T *s; // scales and zero points of the row it brings
	const unsigned char *z;
	T sc[2]; // of a step: two halves of 32 columns
	u32 zp[2];
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
		u32 part, n = find(threadIdx.x % ROWS, &part);

		s = (const T *)q.s[part] + (u64)n * p.n_blocks;
		z = (const unsigned char *)q.z[part] + (u64)n * p.zp_row;
		for (shift = 4; 1u << shift < p.block; shift++)
			;
		a_on = 0;
#pragma unroll
		for (u32 i = 0; i < CA; i++) {
			u32 m = m0 + threadIdx.x / 8 + i * (THREADS / 8);
			bool on = m < p.m;

			a_on |= (u32)on << i;
			a[i] = (const unsigned char *)((const T *)p.a +
						       (u64)(on ? m : 0) *
							       p.lda +
						       threadIdx.x % 8 * 8);
		}
	}

	__device__ __forceinline__ void copy_w(u32 k, unsigned char *stage)
	{
		if (k < steps)
#pragma unroll
			for (u32 i = 0; i < CW; i++)
				tile_copy(stage + CODES +
						  (threadIdx.x + i * THREADS) *
							  16,
					  w[i] + k * 32, true);
	}

	__device__ __forceinline__ void copy_a(u32 k, unsigned char *stage)
	{
		u32 at = wg_place(threadIdx.x / 8, threadIdx.x % 8);

		if (k < steps)
#pragma unroll
			for (u32 i = 0; i < CA; i++)
				tile_copy(stage + at +
						  i * (THREADS / 8) * WG_ROW,
					  a[i] + k * 128, a_on >> i & 1);
		tile_commit();
	}

	// Scales and zero points of a step, for put_scales.
	__device__ __forceinline__ void fetch_scales(u32 k)
	{
		if (k >= steps || threadIdx.x >= ROWS)
			return;
#pragma unroll
		for (int x = 0; x < 2; x++) {
			u32 b = (k * 64 + x * 32) >> shift;

			sc[x] = s[b];
			zp[x] = p.zp_kind ? z[b / 2] >> (b & 1) * 4 & 15 : 8;
		}
	}

	__device__ __forceinline__ void put_scales(unsigned char *stage) const
	{
		T2 v[4];

		if (threadIdx.x >= ROWS)
			return;
		v[0] = pair_of<T>::both(sc[0]);
		v[1] = pair_of<T>::both(sc[1]);
		v[2] = minus_zero(zp[0], T());
		v[3] = minus_zero(zp[1], T());
		*(uint4 *)(stage + RECORDS + threadIdx.x * RECORD) =
			make_uint4(*(u32 *)&v[0], *(u32 *)&v[1], *(u32 *)&v[2],
				   *(u32 *)&v[3]);
	}

	// Fragments of columns 16 kk of the pieces.
	__device__ __forceinline__ void unpack(const unsigned char *stage,
					       int kk, const u32 (*rec)[2][4],
					       u32 (*f)[4]) const
	{
#pragma unroll
		for (int i = 0; i < MT; i++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				u32 r = first + i * WG * 64 + g + h * 8;
				uint2 v = *(const uint2 *)(stage + CODES +
							   r * 32 + kk * 8);
				T2 sc = *(const T2 *)&rec[i][h][kk / 2];
				T2 nz = *(const T2 *)&rec[i][h][2 + kk / 2];

				f[i][h] = weights2(v.x, t, nz, sc);
				f[i][h + 2] = weights2(v.y, t, nz, sc);
			}
	}

	__device__ __forceinline__ void records(const unsigned char *stage,
						u32 (*rec)[2][4]) const
	{
#pragma unroll
		for (int i = 0; i < MT; i++)
#pragma unroll
			for (int h = 0; h < 2; h++) {
				u32 r = first + i * WG * 64 + g + h * 8;
				uint4 v = *(const uint4 *)(stage + RECORDS +
							   r * RECORD);

				rec[i][h][0] = v.x;
				rec[i][h][1] = v.y;
				rec[i][h][2] = v.z;
				rec[i][h][3] = v.w;
			}
	}

	__device__ __forceinline__ unsigned char *after(unsigned char *stage)
	{
		return stage == smem + (STAGES - 1) * STAGE ? smem
							    : stage + STAGE;
	}

	__device__ __forceinline__ void columns()
	{
		unsigned char *at = smem, *next = after(smem);
		unsigned char *far = smem + AHEAD * STAGE;
		u32 f[2][KG][MT][4], rec[MT][2][4];

		for (u32 k = 0; k < steps; k++) {
			tile_wait<AHEAD - 1>();
			wg_publish();
			__syncthreads();
			records(at, rec);
#pragma unroll
			for (int x = 0; x < 4 / KG; x++) {
#pragma unroll
				for (int i = 0; i < KG; i++)
					unpack(at, x * KG + i, rec,
					       f[x & 1][i]);
				wg_ready();
#pragma unroll
				for (int i = 0; i < KG; i++)
#pragma unroll
					for (int j = 0; j < MT; j++)
						wgmma<BM, T>(acc[j],
							     f[x & 1][i][j], at,
							     x * KG + i);
				wg_commit();
				if (x == 0) {
					copy_w(k + AHEAD, far);
					copy_a(k + AHEAD, far);
				} else if (x == 1) {
					put_scales(next);
					fetch_scales(k + 2);
				}
				wg_wait<1>();
			}
			at = next;
			next = after(next);
			far = after(far);
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
			copy_w(k, smem + k * STAGE);
		fetch_scales(0);
		put_scales(smem);
		fetch_scales(1);
#pragma unroll
		for (int i = 0; i < MT; i++)
#pragma unroll
			for (int j = 0; j < BM / 8; j++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					acc[i][j][e] = 0.f;
		cep_wait();
		for (u32 k = 0; k < AHEAD; k++)
			copy_a(k, smem + k * STAGE);
		columns();
		store();
	}
};

#define CEP_WGEMM(name, type, ptype, wg, mt, bm, stages)                       \
	CEP_KERNEL(name, ptype, wg * 128)                                      \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		WG_ONLY(wgemm<type, ptype, wg, mt, bm, stages> x(p);           \
			x.run(raw));                                           \
	}
#define CEP_WGEMMS(type, suffix)                                               \
	CEP_WGEMM(cep_wgemm_256_128_##suffix, type, cep_mv_tiled, 2, 2, 128,   \
		  4)                                                           \
	CEP_WGEMM(cep_wgemm_128_128_##suffix, type, cep_mv_tiled, 2, 1, 128,   \
		  4)                                                           \
	CEP_WGEMM(cep_wgemm_128_64_##suffix, type, cep_mv_tiled, 2, 1, 64, 6)  \
	CEP_WGEMM(cep_wgemm_64_64_##suffix, type, cep_mv_tiled, 1, 1, 64, 8)   \
	CEP_WGEMM(cep_wgemmd_128_128_##suffix, type, cep_mv_dual_tiled, 2, 2,  \
		  128, 4)                                                      \
	CEP_WGEMM(cep_wgemmd_128_64_##suffix, type, cep_mv_dual_tiled, 2, 2,   \
		  64, 4)
CEP_WGEMMS(__half, f16)
CEP_WGEMMS(bf16, bf16)
