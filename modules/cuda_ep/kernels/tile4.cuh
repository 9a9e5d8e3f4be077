// tile4.cuh - tiles of a 4-bit matrix, for the kernels that sum blocks of 32
// columns in the tensor core: gemv4.cu, few4.cu.
//
// Tile: 16 rows of the matrix by 256 columns, 2,048 bytes of codes and up to
// 512 of scales and zero points.  ldmatrix hands a block of 32 columns out as
// the tensor core wants it: lane (g, t) gets word t of rows g and g + 8.  With
// DUAL a row group is 8 rows of either matrix.
#ifndef CEP_TILE4_CUH
#define CEP_TILE4_CUH

#include "modules/cuda_ep/kernels/tile.cuh"

#define TILE 256
#define SCALES 2048 // where they begin in a tile: 16 bytes a row
#define ZEROS 2304  // the same for zero points

__device__ __forceinline__ float silu(float x)
{
	return x * f_sigmoid(x);
}

template <class P> __device__ __forceinline__ u64 second_bias(const P &)
{
	return 0;
}
template <> __device__ __forceinline__ u64 second_bias(const cep_mv_dual &q)
{
	return q.bias2;
}
template <>
__device__ __forceinline__ u64 second_bias(const cep_mv_dual_tiled &q)
{
	return q.bias2;
}

// PLAIN: whole row groups, no eight rows of them in two pieces; blocks of 32
// whose scales and zero points can be copied asynchronously.
template <class T, int ZP, bool DUAL, int TILES, bool PLAIN, class P>
struct tile4 {
	static constexpr u32 ROWS = DUAL ? 8 : 16;
	static constexpr u32 STAGE = ZP == CEP_ZP_NONE ? 2304 : 2560;
	const P &q;
	const cep_mm &p;
	const cep_sum4 &o;
	u32 lane, warp, g, t, nb;

	__device__ __forceinline__ tile4(const P &params)
	    : q(params), p(params.m), o(params.o), lane(threadIdx.x & 31),
	      warp(threadIdx.x / 32), g(lane >> 2), t(lane & 3), nb(p.k / 32)
	{
	}

	// Where row i of 16 of row group rg lies: codes, scales, zero points.
	__device__ __forceinline__ void find_row(u32 rg, u32 i, u64 *w, u64 *s,
						 u64 *z) const
	{
		u32 r = rg * ROWS + i % ROWS, k = 0;

		r = r < p.n ? r : p.n - 1;
		if (TILES > 1) {
			k = r / q.tile_rows;
			r -= k * q.tile_rows;
		}
		if (DUAL && i >= 8)
			k += TILES;
		*w = q.b[k] + (u64)r * p.ldb;
		*s = q.s[k] + (u64)r * p.n_blocks * sizeof(T);
		if (ZP == CEP_ZP_PACKED)
			*z = q.z[k] + (u64)r * p.zp_row;
		else if (ZP == CEP_ZP_FLOAT)
			*z = q.z[k] + (u64)r * p.n_blocks * sizeof(T);
	}

	__device__ __forceinline__ u32 shift() const
	{
		return PLAIN ? 0 : o.shift;
	}
	__device__ __forceinline__ bool async(u32 what) const
	{
		return PLAIN || (o.async & what);
	}

	__device__ __forceinline__ u32 block_of(u32 c) const
	{
		u32 b = c >> shift();

		return b < p.n_blocks ? b : p.n_blocks - 1;
	}

	// Eight values a row and tile, fewer with larger blocks; behind the
	// row's end some that are there, as activations are zero there.
	__device__ __forceinline__ void fetch_values(unsigned char *to,
						     const u64 *rows, u32 kt,
						     bool async) const
	{
		bool pairs = shift() || !async;
		u32 r = pairs ? lane & 15 : lane >> 1;
		u32 e = pairs ? lane >> 4 : lane & 1;
		const T *from = (const T *)rows[r];

		if (!async) { // rows that no copy of 4 or 8 bytes fits
			for (u32 i = e * 4; i < e * 4 + 4; i++)
				((T *)(to + r * 16))[i] =
					from[block_of(kt * 8 + i)];
		} else if (shift() == 0) {
			u32 b = kt * 8 + e * 4;

			b = b < p.n_blocks ? b : p.n_blocks - 4;
			copy_small<8>(to + r * 16 + e * 8, from + b, true);
		} else if (shift() == 1) {
			if (e == 0)
				copy_small<8>(to + r * 16, from + kt * 4, true);
		} else if (e == 0) {
			copy_small<4>(to + r * 16,
				      from + (kt * 8 >> shift() & ~1u), true);
		}
	}

	// Eight nibbles a row and tile; not async: one for each 32 columns.
	__device__ __forceinline__ void fetch_nibbles(unsigned char *to,
						      const u64 *rows, u32 kt,
						      bool async) const
	{
		const unsigned char *from =
			(const unsigned char *)rows[lane & 15];
		u32 v = 0;

		if (lane >= 16)
			return;
		if (async) {
			copy_small<4>(to + lane * 16,
				      from + ((kt * 8 >> shift()) / 2 & ~3u),
				      true);
			return;
		}
		for (u32 i = 0; i < 8; i++) {
			u32 b = block_of(kt * 8 + i);

			v |= (u32)(from[b / 2] >> (b & 1) * 4 & 15) << 4 * i;
		}
		*(u32 *)(to + lane * 16) = v;
	}

	// Tile kt of a row group, whose rows lie at w, s and z.
	__device__ __forceinline__ void fetch(unsigned char *st, const u64 *w,
					      const u64 *s, const u64 *z,
					      u32 kt) const
	{
		u32 at = lane & 7, kb = kt * 8 + at;

		kb = kb < nb ? kb : nb - 1;
#pragma unroll
		for (u32 i = 0; i < 4; i++) {
			u32 r = lane / 8 + 4 * i;

			tile_copy(st + r * 128 + ((at ^ (r & 7)) << 4),
				  (const void *)(w[r] + kb * 16), true);
		}
		fetch_values(st + SCALES, s, kt, async(CEP_ASYNC_SCALES));
		if (ZP == CEP_ZP_FLOAT)
			fetch_values(st + ZEROS, z, kt, async(CEP_ASYNC_ZEROS));
		else if (ZP == CEP_ZP_PACKED)
			fetch_nibbles(st + ZEROS, z, kt,
				      async(CEP_ASYNC_ZEROS));
	}

	// Where the halves of a row group lie, eight rows each: in which piece,
	// from which row of it on.
	struct halves {
		u32 piece[2], row[2];

		// Of one of 16 rows, by constant indices: else they lie in
		// local memory.
		__device__ __forceinline__ u64 find(const u64 *at, u32 i,
						    u32 bytes) const
		{
			u32 k = i < 8 ? piece[0] : piece[1];
			u32 r = (i < 8 ? row[0] : row[1]) + (i & 7);

			return at[k] + (u64)r * bytes;
		}
	};

	__device__ __forceinline__ halves find_halves(u32 rg) const
	{
		u32 r = rg * ROWS, k = 0;
		halves h;

		if (TILES > 1) {
			// or one less
			k = (u32)((u64)r * o.inverse >> 32);
			r -= k * q.tile_rows;
			if (r >= q.tile_rows) {
				r -= q.tile_rows;
				k++;
			}
		}
		h.piece[0] = k;
		h.row[0] = r;
		h.piece[1] = DUAL ? k + TILES : k;
		h.row[1] = DUAL ? r : r + 8;
		if (TILES > 1 && !DUAL && h.row[1] >= q.tile_rows) {
			h.row[1] -= q.tile_rows;
			h.piece[1]++;
		}
		return h;
	}

	// Tile kt of a row group, its rows found without a table.
	__device__ __forceinline__ void fetch_plain(unsigned char *st, u32 rg,
						    u32 kt) const
	{
		u32 at = lane & 7, r = lane / 8, kb = kt * 8 + at, b;
		unsigned char *to = st + r * 128;
		halves h = find_halves(rg);
		u64 w;

		kb = kb < nb ? kb : nb - 1;
#pragma unroll
		for (u32 i = 0; i < 2; i++) {
			w = q.b[h.piece[i]] + (u64)(h.row[i] + r) * p.ldb +
			    kb * 16;
			tile_copy(to + i * 1024 + ((at ^ r) << 4),
				  (const void *)w, true);
			tile_copy(to + i * 1024 + 512 + ((at ^ r ^ 4) << 4),
				  (const void *)(w + 4 * p.ldb), true);
		}
		// two lanes a row of scales, a lane a row of nibbles
		b = kt * 8 + (lane & 1) * 4;
		b = b < nb ? b : nb - 4;
		copy_small<8>(st + SCALES + lane * 8,
			      (const T *)h.find(q.s, lane / 2, nb * 2) + b,
			      true);
		if (ZP == CEP_ZP_FLOAT)
			copy_small<8>(st + ZEROS + lane * 8,
				      (const T *)h.find(q.z, lane / 2, nb * 2) +
					      b,
				      true);
		else if (ZP == CEP_ZP_PACKED && lane < 16)
			copy_small<4>(
				st + ZEROS + lane * 16,
				(const void *)(h.find(q.z, lane, p.zp_row) +
					       kt * 4),
				true);
	}

	// N of a row's pairs of values, from pair i on: two or all four.
	template <u32 N>
	__device__ __forceinline__ void read_values(const unsigned char *row,
						    u32 kt, u32 i, bool async,
						    u32 *s) const
	{
		if (!async || shift() == 0) {
			uint2 v = *(const uint2 *)(row + i * 4);

			s[0] = v.x;
			s[1] = v.y;
			if (N < 4)
				return;
			v = *(const uint2 *)(row + 8);
			s[2] = v.x;
			s[3] = v.y;
			return;
		}
		for (u32 k = 0; k < N; k++) {
			u32 b = (kt * 8 + 2 * (i + k)) >> shift();
			u32 v = ((const uint16_t *)
					 row)[b & (shift() == 1 ? 3 : 1)];

			s[k] = v | v << 16;
		}
	}

	// Columns 64 j to 64 j + 63 of a tile: two blocks of eight words each.
	__device__ __forceinline__ void unpack_part(const unsigned char *st,
						    u32 j, u32 *h) const
	{
		const unsigned char *at = st + (lane & 15) * 128;
		u32 sw = (lane >> 4) ^ (lane & 7), w[4];

		load_rows(at + ((sw ^ (2 * j)) << 4), w);
#pragma unroll
		for (int i = 0; i < 4; i++)
			unpack8(w[i], h + i * 4, T());
	}

	// Scales and zero points of rows g and g + 8: N pairs of a row's
	// blocks, from pair i on.
	template <u32 N>
	__device__ __forceinline__ void read_scales(const unsigned char *st,
						    u32 kt, u32 i, u32 *s,
						    u32 *z) const
	{
		const unsigned char *row = st + SCALES + g * 16;
		bool a = async(CEP_ASYNC_SCALES);

		read_values<N>(row, kt, i, a, s);
		read_values<N>(row + 128, kt, i, a, s + N);
		row = st + ZEROS + g * 16;
		if (ZP == CEP_ZP_FLOAT) {
			a = async(CEP_ASYNC_ZEROS);
			read_values<N>(row, kt, i, a, z);
			read_values<N>(row + 128, kt, i, a, z + N);
		} else if (ZP == CEP_ZP_PACKED) {
			z[0] = *(const u32 *)row;
			z[1] = *(const u32 *)(row + 128);
		}
	}

	// Zero point of block b less 8, of N pairs that were read; row 0 is g,
	// 1 is g + 8.
	template <u32 N>
	__device__ __forceinline__ float zero(const u32 *z, u32 kt, u32 b,
					      u32 row) const
	{
		u32 i = kt * 8 + b;

		if (ZP == CEP_ZP_FLOAT) {
			u32 v = z[row * N + b / 2 % N];

			return (b & 1 ? high(v, T()) : low(v, T())) - 8.f;
		}
		if (async(CEP_ASYNC_ZEROS))
			i >>= shift();
		return (float)(int)((z[row] >> (i & 7) * 4 & 15) - 8);
	}

	// Value b of some in pairs.
	__device__ __forceinline__ static float nth(const u32 *s, u32 b)
	{
		return b & 1 ? high(s[b / 2], T()) : low(s[b / 2], T());
	}

	// The products of a block, h its eight words, v its activations: sums
	// of rows g and g + 8 with the tensor core's columns 2 t and 2 t + 1,
	// zero points z0 and z1 taken off.
	__device__ __forceinline__ void product(const u32 *h, const uint4 &v,
						float z0, float z1,
						float *d) const
	{
		d[0] = d[1] = d[2] = d[3] = 0;
		mma16(d, h[0], h[4], h[1], h[5], v.x, v.y, T());
		mma16(d, h[2], h[6], h[3], h[7], v.z, v.w, T());
		if (ZP != CEP_ZP_NONE) {
			float e[4] = {0, 0, 0, 0};
			u32 l = ones(T());

			mma16(e, l, l, l, l, v.x, v.y, T());
			mma16(e, l, l, l, l, v.z, v.w, T());
			d[0] = fmaf(-z0, e[0], d[0]);
			d[1] = fmaf(-z0, e[1], d[1]);
			d[2] = fmaf(-z1, e[0], d[2]);
			d[3] = fmaf(-z1, e[1], d[3]);
		}
	}

	// What is added to row row of the matrix, of step row m.
	__device__ __forceinline__ float added(u32 m, u32 row) const
	{
		if (DUAL || !o.add || row >= p.n)
			return 0.f;
		return to_f(((const T *)o.add)[(u64)m * p.ldc + p.n0 + row]);
	}

	// Its result; add is what added() gave.
	__device__ __forceinline__ void emit(u32 m, u32 row, float v, float u,
					     float add) const
	{
		u64 bias2 = second_bias(q);
		T r;

		if (row >= p.n)
			return;
		if (p.bias)
			v += to_f(((const T *)p.bias)[p.n0 + row]);
		if (DUAL) {
			if (bias2)
				u += to_f(((const T *)bias2)[p.n0 + row]);
			v = silu(to_f(from_f<T>(v))) * to_f(from_f<T>(u));
		}
		r = from_f<T>(v);
		if (!DUAL && o.add)
			r = from_f<T>(add + to_f(r));
		((T *)p.out)[(u64)m * p.ldc + p.n0 + row] = r;
	}
};

#endif
