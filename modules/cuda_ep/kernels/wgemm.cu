// wgemm.cu - products of many rows with a 4-bit matrix on compute capability
// 9.0: prompts.
//
// The tensor core takes the weights from registers and the rows of A from
// shared memory: the result is computed transposed, 64 weight rows by BM rows
// of A for four warps.  A block has WG times four warps and walks over K in
// slabs of 64.  A stage holds a slab: BM x 128 bytes of A, and for each of WG
// 64 weight rows 32 bytes of codes and 16 of scales and zero points, as pairs
// ready to use:
//
//	WG BM   tile of the result   a stage   stages   blocks an SM
//	2  128  128 x 128            22 KiB    4        2
//	1  64   64 x 64              11 KiB    8        2
//
// All stages but two are on their way while one is multiplied: the last of a
// slab's products may still read its stage when the next slab begins, so a
// stage is written no sooner than two slabs after its turn.  While the tensor
// core multiplies some columns, the next are unpacked: a code into the mantissa
// of 1024 (of 128 for bfloat16), minus zero point, times scale, rounded once.
// The products of gate and up: half of a block's rows are gate's, half up's,
// and silu(gate) up leaves it.
//
// Sum order of an element: columns in ascending order, 16 at a time, by the
// tensor core into one float; the tile has no part in it.
#include "modules/cuda_ep/kernels/wgmma.cuh"

#define RECORD 16 // bytes of a row's scales and zero points in a slab

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
};
template <> struct pair_of<bf16> {
	typedef __nv_bfloat162 type;
};

// Byte t of v as (low nibble, high nibble) minus the zero point in z, times s.
__device__ __forceinline__ u32 weights2(u32 v, u32 t, __half2 z, __half2 s)
{
	u32 b = wg_bytes(v, v, t * 0x1111);
	__half2 x = as_half2(and_or(b, 0x00f0000fu, 0x64006400u));

	return pack2(__hmul2(__hfma2(x, as_half2(0x2c003c00u), z), s));
}
__device__ __forceinline__ u32 weights2(u32 v, u32 t, __nv_bfloat162 z,
					__nv_bfloat162 s)
{
	u32 b = wg_bytes(v, v >> 4, t * 0x0101 + 0x4400);
	__nv_bfloat162 x = as_bf162(and_or(b, 0x000f000fu, 0x43004300u));

	x = __hmul2(__hadd2(x, z), s);
	return *(u32 *)&x;
}

// What is added to 1024 + q and 64 + q (half), or to 128 + q twice: minus the
// zero point, as bits.
__device__ __forceinline__ u32 minus_zero(u32 z, __half)
{
	return 0xd400e400u | z | z << 20;
}
__device__ __forceinline__ u32 minus_zero(u32 z, bf16)
{
	return 0xc300c300u | z | z << 16;
}

template <class T, class P, int WG, int BM, int STAGES> struct wgemm {
	static constexpr bool DUAL = is_dual<P>::yes;
	static constexpr u32 ROWS = WG * 64; // of weights, both matrices
	static constexpr u32 BN = DUAL ? ROWS / 2 : ROWS;
	static constexpr u32 THREADS = WG * 128;
	static constexpr u32 CODES = BM * WG_ROW, RECORDS = CODES + ROWS * 32;
	static constexpr u32 STAGE = RECORDS + ROWS * RECORD;
	static constexpr u32 AHEAD = STAGES - 2;
	static constexpr int KG = 2; // pieces of 16 columns at a time
	static constexpr u32 CA = BM * 8 / THREADS, CW = ROWS * 2 / THREADS;
	static constexpr u32 LDO = ROWS + 8; // of the result on its way out
	typedef typename pair_of<T>::type T2;
	const P &q;
	const cep_mm &p;
	unsigned char *smem;
	u32 n0, m0, lane, g, t, first, slabs, shift;
	const unsigned char *w[CW], *a[CA]; // what this thread copies
	u32 a_on;
	const T *s; // scales and zero points of the row it brings
	const unsigned char *z;
	bool wide_s, wide_z; // of 256 columns at once
	// of 256 columns, a pair and two nibbles a slab; and of the next
	u32 sc[4], zp, next_sc[4], next_zp;
	float acc[BM / 8][4];

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
		wide_s = p.block == 32 && !(p.n_blocks % 8) && !((u64)s & 15);
		wide_z = p.block == 32 && !(p.n_blocks % 8) && !((u64)z & 3);
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
		if (k < slabs)
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

		if (k < slabs)
#pragma unroll
			for (u32 i = 0; i < CA; i++)
				tile_copy(stage + at +
						  i * (THREADS / 8) * WG_ROW,
					  a[i] + k * 128, a_on >> i & 1);
		tile_commit();
	}

	// Scales and zero points of 256 columns, for put_scales.
	__device__ __forceinline__ void fetch_scales(u32 k)
	{
		if (k >= p.k || threadIdx.x >= ROWS)
			return;
		if (wide_s) {
			uint4 v = *(const uint4 *)(s + k / 32);

			next_sc[0] = v.x;
			next_sc[1] = v.y;
			next_sc[2] = v.z;
			next_sc[3] = v.w;
		} else {
#pragma unroll
			for (int i = 0; i < 4; i++)
				next_sc[i] = pair16(s[block(k + i * 64)],
						    s[block(k + i * 64 + 32)]);
		}
		next_zp = 0x88888888u;
		if (!p.zp_kind)
			return;
		if (wide_z) {
			next_zp = *(const u32 *)(z + k / 64);
			return;
		}
		next_zp = 0;
		for (u32 i = 0; i < 8; i++) {
			u32 b = block(k + i * 32);

			next_zp |= (z[b / 2] >> (b & 1) * 4 & 15u) << 4 * i;
		}
	}
	// The block of column k; past the end, the last one.
	__device__ __forceinline__ u32 block(u32 k) const
	{
		return (k < p.k ? k : p.k - 1) >> shift;
	}
	__device__ __forceinline__ static u32 pair16(T a, T b)
	{
		return (u32) * (const unsigned short *)&a |
		       (u32) * (const unsigned short *)&b << 16;
	}

	// Of slab k, in order from 0 on.
	__device__ __forceinline__ void put_scales(u32 k, unsigned char *stage)
	{
		if (k >= slabs || threadIdx.x >= ROWS)
			return;
		if (k % 4 == 0) {
#pragma unroll
			for (int i = 0; i < 4; i++)
				sc[i] = next_sc[i];
			zp = next_zp;
			fetch_scales((k + 4) * 64);
		}
		*(uint4 *)(stage + RECORDS + threadIdx.x * RECORD) = make_uint4(
			wg_bytes(sc[0], 0, 0x1010), wg_bytes(sc[0], 0, 0x3232),
			minus_zero(zp & 15, T()),
			minus_zero(zp >> 4 & 15, T()));
#pragma unroll
		for (int i = 0; i < 3; i++)
			sc[i] = sc[i + 1];
		zp >>= 8;
	}

	// Fragment of columns 16 kk.
	__device__ __forceinline__ void unpack(const unsigned char *stage,
					       int kk, const u32 (*rec)[4],
					       u32 *f) const
	{
#pragma unroll
		for (int h = 0; h < 2; h++) {
			u32 r = first + g + h * 8;
			uint2 v = *(const uint2 *)(stage + CODES + r * 32 +
						   kk * 8);
			T2 sc = *(const T2 *)&rec[h][kk / 2];
			T2 nz = *(const T2 *)&rec[h][2 + kk / 2];

			f[h] = weights2(v.x, t, nz, sc);
			f[h + 2] = weights2(v.y, t, nz, sc);
		}
	}

	__device__ __forceinline__ void records(const unsigned char *stage,
						u32 (*rec)[4]) const
	{
#pragma unroll
		for (int h = 0; h < 2; h++) {
			uint4 v =
				*(const uint4 *)(stage + RECORDS +
						 (first + g + h * 8) * RECORD);

			rec[h][0] = v.x;
			rec[h][1] = v.y;
			rec[h][2] = v.z;
			rec[h][3] = v.w;
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
		u32 f[2][KG][4], rec[2][4];

		for (u32 k = 0; k < slabs; k++) {
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
					wgmma<BM, T>(acc, f[x & 1][i], at,
						     x * KG + i);
				wg_commit();
				if (x == 0) {
					copy_w(k + AHEAD, far);
					copy_a(k + AHEAD, far);
				} else if (x == 1) {
					put_scales(k + 1, next);
				}
				wg_wait<1>();
			}
			at = next;
			next = after(next);
			far = after(far);
		}
		wg_wait<0>();
	}

	// Of row r of the block.
	__device__ __forceinline__ float bias(u32 r) const
	{
		u64 v = DUAL && r >= BN ? second_bias(q) : p.bias;
		u32 n = n0 + r % BN;

		return v && n < p.n ? to_f(((const T *)v)[p.n0 + n]) : 0.f;
	}

	// Sums, rounded, to rows of the tile in shared memory.
	__device__ __forceinline__ void turn(T *out) const
	{
#pragma unroll
		for (int h = 0; h < 2; h++) {
			u32 r = first + g + h * 8;
			float b = bias(r);

#pragma unroll
			for (int j = 0; j < BM / 8; j++)
#pragma unroll
				for (int e = 0; e < 2; e++)
					out[(j * 8 + 2 * t + e) * LDO + r] =
						from_f<T>(acc[j][2 * h + e] +
							  b);
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
			const T *from = tile + m * LDO + n;
			T *to = c + (u64)(m0 + m) * p.ldc + n;
			__align__(16) T v[8];

			if (m0 + m >= p.m || n >= cols)
				continue;
			*(uint4 *)v = *(const uint4 *)from;
			if (DUAL)
#pragma unroll
				for (u32 e = 0; e < 8; e++)
					v[e] = gated(v[e], from[BN + e]);
			if (wide) {
				*(uint4 *)to = *(const uint4 *)v;
				continue;
			}
#pragma unroll
			for (u32 e = 0; e < 8; e++)
				if (n + e < cols)
					to[e] = v[e];
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
		slabs = p.k / 64;
		find_all();
		cep_trigger();
		for (u32 k = 0; k < AHEAD; k++)
			copy_w(k, smem + k * STAGE);
		fetch_scales(0);
		put_scales(0, smem);
#pragma unroll
		for (int j = 0; j < BM / 8; j++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				acc[j][e] = 0.f;
		cep_wait();
		for (u32 k = 0; k < AHEAD; k++)
			copy_a(k, smem + k * STAGE);
		columns();
		store();
	}
};

#define CEP_WGEMM(name, type, ptype, wg, bm, stages)                           \
	CEP_KERNEL(name, ptype, wg * 128, 2)                                   \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		WG_ONLY(wgemm<type, ptype, wg, bm, stages> x(p); x.run(raw));  \
	}
#define CEP_WGEMMS(type, suffix)                                               \
	CEP_WGEMM(cep_wgemm_128_##suffix, type, cep_mv_tiled, 2, 128, 4)       \
	CEP_WGEMM(cep_wgemm_64_##suffix, type, cep_mv_tiled, 1, 64, 8)         \
	CEP_WGEMM(cep_wgemmd_128_##suffix, type, cep_mv_dual_tiled, 2, 128, 4) \
	CEP_WGEMM(cep_wgemmd_64_##suffix, type, cep_mv_dual_tiled, 1, 64, 8)
CEP_WGEMMS(__half, f16)
CEP_WGEMMS(bf16, bf16)
