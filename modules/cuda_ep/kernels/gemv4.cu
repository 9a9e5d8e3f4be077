// gemv4.cu - products of 1 to 64 rows with a 4-bit matrix: decoding.
//
// Tile: 16 rows of the matrix by 256 columns, 2,048 bytes of codes and up to
// 512 of scales and zero points; a warp keeps DEPTH of them on the way in
// shared memory.  ldmatrix hands a block of 32 columns out as the tensor core
// wants it: lane (g, t) gets word t of rows g and g + 8.  A column of the
// tensor core is a row of the step, so a step of 8 rows costs as many products
// as one of a single row, and every row is summed in the same way.
//
// Order of sums, of K alone: products of a block of 32 columns in the tensor
// core; times its scale, block by block, over the tiles of a class (class_tiles
// in a row); classes, slice_classes at most, to a slice; slices to the result.
// Neither grid, parts of the matrix nor the number of rows are in it.
//
// One row: a warp takes units (row group, class), the block adds them up.
// Several rows: a warp takes a row group and a slice, the last block of a row
// group's slices adds them up.  With DUAL a row group is 8 rows of either
// matrix, and the result is silu(a B0) (a B1), both rounded before.
#include "modules/cuda_ep/kernels/tile.cuh"

#define TILE 256
#define DEPTH 3	    // tiles on the way, as in op_nbits.c
#define FEW_WARPS 8 // of a block of several rows, as in op_nbits.c
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

// A tile in registers: block b of rows g and g + 8 in h[8 b..], scales (and
// zero points) of blocks 2 i and 2 i + 1 in s[i] and s[4 + i].
struct tile_regs {
	u32 h[64], s[8], z[8];
};

// A warp's way through its tiles.
struct cursor {
	u32 rg, c, kt, end;
};

template <class T, int ZP, bool DUAL, int TILES, int M, class P> struct gemv4 {
	static constexpr u32 ROWS = DUAL ? 8 : 16;
	static constexpr u32 STAGE = ZP == CEP_ZP_NONE ? 2304 : 2560;
	static constexpr int NT = (M + 7) / 8; // column groups
	const P &q;
	const cep_mm &p;
	const cep_sum4 &o;
	u32 lane, warp, warps, g, t, nb, rg0, n_rg, stride_rg, stride_c;
	unsigned char *ring;
	u64 *wrow, *srow, *zrow; // where the block's rows lie
	const unsigned char *xs; // activations in shared memory: of the one
				 // row, in order; or of the tile at hand
	float acc[NT][4], sum[NT][4];

	__device__ __forceinline__ gemv4(const P &params)
	    : q(params), p(params.m), o(params.o)
	{
	}

	// Addresses of the rows of the block's row groups.
	__device__ __forceinline__ void find_rows() const
	{
		for (u32 i = threadIdx.x; i < n_rg * 16; i += blockDim.x) {
			u32 r = (rg0 + i / 16) * ROWS + i % ROWS, k = 0;

			r = r < p.n ? r : p.n - 1;
			if (TILES > 1) {
				k = r / q.tile_rows;
				r -= k * q.tile_rows;
			}
			if (DUAL && (i & 8))
				k += TILES;
			wrow[i] = q.b[k] + (u64)r * p.ldb;
			srow[i] = q.s[k] + (u64)r * p.n_blocks * sizeof(T);
			if (ZP == CEP_ZP_PACKED)
				zrow[i] = q.z[k] + (u64)r * p.zp_row;
			else if (ZP == CEP_ZP_FLOAT)
				zrow[i] = q.z[k] +
					  (u64)r * p.n_blocks * sizeof(T);
		}
	}

	__device__ __forceinline__ u32 block_of(u32 c) const
	{
		u32 b = c >> o.shift;

		return b < p.n_blocks ? b : p.n_blocks - 1;
	}

	// Eight values a row and tile, fewer with larger blocks.
	__device__ __forceinline__ void fetch_values(unsigned char *to,
						     const u64 *rows, u32 kt,
						     bool async) const
	{
		u32 r = o.shift || !async ? lane & 15 : lane >> 1;
		u32 e = o.shift || !async ? lane >> 4 : lane & 1;
		const T *from = (const T *)rows[r];

		if (!async) { // rows that no copy of 4 or 8 bytes fits
			for (u32 i = e * 4; i < e * 4 + 4; i++)
				((T *)(to + r * 16))[i] =
					from[block_of(kt * 8 + i)];
		} else if (o.shift == 0) {
			u32 b = kt * 8 + e * 4;

			copy_small<8>(to + r * 16 + e * 8, from + b,
				      b < p.n_blocks);
		} else if (o.shift == 1) {
			if (e == 0)
				copy_small<8>(to + r * 16, from + kt * 4, true);
		} else if (e == 0) {
			copy_small<4>(to + r * 16,
				      from + (kt * 8 >> o.shift & ~1u), true);
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
				      from + ((kt * 8 >> o.shift) / 2 & ~3u),
				      true);
			return;
		}
		for (u32 i = 0; i < 8; i++) {
			u32 b = block_of(kt * 8 + i);

			v |= (u32)(from[b / 2] >> (b & 1) * 4 & 15) << 4 * i;
		}
		*(u32 *)(to + lane * 16) = v;
	}

	__device__ __forceinline__ void fetch(unsigned char *st,
					      const cursor &c) const
	{
		const u64 *w = wrow + c.rg * 16;
		u32 at = lane & 7, kb = c.kt * 8 + at;

#pragma unroll
		for (u32 i = 0; i < 4; i++) {
			u32 r = lane / 8 + 4 * i;

			tile_copy(st + r * 128 + ((at ^ (r & 7)) << 4),
				  (const void *)(w[r] + kb * 16), kb < nb);
		}
		fetch_values(st + SCALES, srow + c.rg * 16, c.kt,
			     o.async & CEP_ASYNC_SCALES);
		if (ZP == CEP_ZP_FLOAT)
			fetch_values(st + ZEROS, zrow + c.rg * 16, c.kt,
				     o.async & CEP_ASYNC_ZEROS);
		else if (ZP == CEP_ZP_PACKED)
			fetch_nibbles(st + ZEROS, zrow + c.rg * 16, c.kt,
				      o.async & CEP_ASYNC_ZEROS);
	}

	// A row's eight values, in pairs.
	__device__ __forceinline__ void
	read_values(const unsigned char *row, u32 kt, bool async, u32 *s) const
	{
		if (!async || o.shift == 0) {
			uint4 v = *(const uint4 *)row;

			s[0] = v.x;
			s[1] = v.y;
			s[2] = v.z;
			s[3] = v.w;
			return;
		}
		for (u32 i = 0; i < 4; i++) {
			u32 b = (kt * 8 + 2 * i) >> o.shift;
			u32 v = ((const uint16_t *)
					 row)[b & (o.shift == 1 ? 3 : 1)];

			s[i] = v | v << 16;
		}
	}

	__device__ __forceinline__ void unpack(const unsigned char *st, u32 kt,
					       tile_regs &x) const
	{
		const unsigned char *at = st + (lane & 15) * 128;
		u32 sw = (lane >> 4) ^ (lane & 7);

#pragma unroll
		for (u32 j = 0; j < 4; j++) {
			u32 w[4];

			load_rows(at + ((sw ^ (2 * j)) << 4), w);
#pragma unroll
			for (int i = 0; i < 4; i++)
				unpack8(w[i], x.h + j * 16 + i * 4, T());
		}
		read_values(st + SCALES + g * 16, kt,
			    o.async & CEP_ASYNC_SCALES, x.s);
		read_values(st + SCALES + (g + 8) * 16, kt,
			    o.async & CEP_ASYNC_SCALES, x.s + 4);
		if (ZP == CEP_ZP_FLOAT) {
			read_values(st + ZEROS + g * 16, kt,
				    o.async & CEP_ASYNC_ZEROS, x.z);
			read_values(st + ZEROS + (g + 8) * 16, kt,
				    o.async & CEP_ASYNC_ZEROS, x.z + 4);
		} else if (ZP == CEP_ZP_PACKED) {
			x.z[0] = *(const u32 *)(st + ZEROS + g * 16);
			x.z[1] = *(const u32 *)(st + ZEROS + (g + 8) * 16);
		}
	}

	// Zero point of block b less 8; row 0 is g, 1 is g + 8.
	__device__ __forceinline__ float zero(const tile_regs &x, u32 kt, u32 b,
					      u32 row) const
	{
		u32 i = kt * 8 + b;

		if (ZP == CEP_ZP_FLOAT) {
			u32 v = x.z[row * 4 + b / 2];

			return (b & 1 ? high(v, T()) : low(v, T())) - 8.f;
		}
		if (o.async & CEP_ASYNC_ZEROS)
			i >>= o.shift;
		return (float)(int)((x.z[row] >> (i & 7) * 4 & 15) - 8);
	}

	// Block b of tile kt of the activations of column group n.
	__device__ __forceinline__ uint4 activations(u32 kt, u32 b, u32 n) const
	{
		u32 m = n * 8 + g, at = (b * 4 + t) ^ (m & 1) << 2;

		if (M == 1)
			return *(const uint4 *)(xs + (kt * 8 + b) * 64 +
						t * 16);
		return in_order(*(const uint4 *)(xs + m * 512 + at * 16));
	}

	__device__ __forceinline__ void multiply(const tile_regs &x, u32 kt)
	{
#pragma unroll
		for (u32 b = 0; b < 8; b++) {
			const u32 *h = x.h + b * 8;
			float s0 = b & 1 ? high(x.s[b / 2], T())
					 : low(x.s[b / 2], T());
			float s1 = b & 1 ? high(x.s[4 + b / 2], T())
					 : low(x.s[4 + b / 2], T());
#pragma unroll
			for (u32 n = 0; n < NT; n++) {
				float d[4] = {0, 0, 0, 0};
				uint4 v;

				if (n && n * 8 >= p.m)
					continue;
				v = activations(kt, b, n);
				mma16(d, h[0], h[4], h[1], h[5], v.x, v.y, T());
				mma16(d, h[2], h[6], h[3], h[7], v.z, v.w, T());
				if (ZP != CEP_ZP_NONE) {
					float e[4] = {0, 0, 0, 0};
					float z0 = zero(x, kt, b, 0);
					float z1 = zero(x, kt, b, 1);
					u32 l = ones(T());

					mma16(e, l, l, l, l, v.x, v.y, T());
					mma16(e, l, l, l, l, v.z, v.w, T());
					d[0] = fmaf(-z0, e[0], d[0]);
					d[1] = fmaf(-z0, e[1], d[1]);
					d[2] = fmaf(-z1, e[0], d[2]);
					d[3] = fmaf(-z1, e[1], d[3]);
				}
				acc[n][0] = fmaf(d[0], s0, acc[n][0]);
				acc[n][2] = fmaf(d[2], s1, acc[n][2]);
				if (M > 1) {
					acc[n][1] = fmaf(d[1], s0, acc[n][1]);
					acc[n][3] = fmaf(d[3], s1, acc[n][3]);
				}
			}
		}
	}

	__device__ __forceinline__ void set(cursor &c) const
	{
		c.kt = c.c * o.class_tiles;
		c.end = c.kt + o.class_tiles;
		c.end = c.end < o.tiles ? c.end : o.tiles;
	}

	// To the next tile; true if a class ended.
	__device__ __forceinline__ bool advance(cursor &c) const
	{
		if (++c.kt < c.end)
			return false;
		c.rg += stride_rg;
		c.c += stride_c;
		if (c.c >= o.n_class) {
			c.c -= o.n_class;
			c.rg++;
		}
		set(c);
		return true;
	}

	__device__ __forceinline__ bool more(const cursor &c) const
	{
		return c.rg < n_rg;
	}

	__device__ __forceinline__ void emit(u32 m, u32 row, float v,
					     float u) const
	{
		u64 at = (u64)m * p.ldc + p.n0 + row;
		u64 bias2 = second_bias(q);
		T r;

		if (p.bias)
			v += to_f(((const T *)p.bias)[p.n0 + row]);
		if (DUAL) {
			if (bias2)
				u += to_f(((const T *)bias2)[p.n0 + row]);
			v = silu(to_f(from_f<T>(v))) * to_f(from_f<T>(u));
		}
		r = from_f<T>(v);
		if (!DUAL && o.add)
			r = from_f<T>(to_f(((const T *)o.add)[at]) + to_f(r));
		((T *)p.out)[at] = r;
	}

	// The warp's tiles; done(cursor) when a class ended.
	template <class W, class F>
	__device__ __forceinline__ void walk(cursor c, W wait_for_input, F done)
	{
		unsigned char *st = ring, *end = ring + DEPTH * STAGE;
		cursor in = c;
		tile_regs x;

#pragma unroll 1
		for (u32 i = 0; i < DEPTH; i++) {
			if (more(in)) {
				fetch(ring + i * STAGE, in);
				advance(in);
			}
			tile_commit();
		}
		// the first tile is unpacked before the kernel in front ends
		if (more(c)) {
			tile_wait<DEPTH - 1>();
			__syncwarp();
			unpack(st, c.kt, x);
		}
		wait_for_input();
		while (more(c)) {
			cursor was = c;

			__syncwarp(); // all lanes have read the stage
			if (more(in)) {
				fetch(st, in);
				advance(in);
			}
			tile_commit();
			multiply(x, c.kt);
			if (advance(c))
				done(was);
			st = st + STAGE == end ? ring : st + STAGE;
			if (!more(c))
				break;
			tile_wait<DEPTH - 1>();
			__syncwarp();
			unpack(st, c.kt, x);
		}
	}

	// ---- one row ----

	// Activations to shared memory, in order, zeros behind the end.
	__device__ __forceinline__ void stage(unsigned char *to) const
	{
		for (u32 i0 = threadIdx.x; i0 < o.tiles * 32;
		     i0 += blockDim.x * 4) {
			cep_pack v[4];

#pragma unroll
			for (u32 j = 0; j < 4; j++) {
				u32 i = i0 + j * blockDim.x;

				v[j].v = make_uint4(0, 0, 0, 0);
				if (i * 8 >= p.k)
					continue;
				if (p.vec_a)
					v[j].v = ((const uint4 *)p.a)[i];
				else
					for (int e = 0; e < 8; e++)
						((T *)&v[j])[e] =
							((const T *)p
								 .a)[i * 8 + e];
			}
#pragma unroll
			for (u32 j = 0; j < 4; j++) {
				u32 i = i0 + j * blockDim.x;

				if (i < o.tiles * 32)
					*(uint4 *)(to + i * 16) =
						in_order(v[j].v);
			}
		}
	}

	__device__ __forceinline__ void stage_gamma(unsigned char *to) const
	{
		for (u32 i = threadIdx.x; i < p.k / 8; i += blockDim.x)
			((uint4 *)to)[i] = ((const uint4 *)o.gamma)[i];
	}

	// The norm of a + skip, with the sums of norm_fast in rows.cu: as if
	// thread i had elements 8 i to 8 i + 7.
	__device__ __forceinline__ void stage_norm(unsigned char *to,
						   const unsigned char *gamma,
						   float *red) const
	{
		static constexpr u32 LOADS = 2; // of a warp at once
		u32 n = p.k / 8, n_red = (n + 31) / 32;
		float r = 0;

		for (u32 w0 = warp; w0 < n_red; w0 += warps * LOADS) {
			uint4 a[LOADS], b[LOADS];

#pragma unroll
			for (u32 j = 0; j < LOADS; j++) {
				u32 i = (w0 + j * warps) * 32 + lane;

				a[j] = b[j] = make_uint4(0, 0, 0, 0);
				if (i >= n)
					continue;
				a[j] = ((const uint4 *)p.a)[i];
				if (o.skip)
					b[j] = ((const uint4 *)o.skip)[i];
			}
#pragma unroll
			for (u32 j = 0; j < LOADS; j++) {
				u32 w = w0 + j * warps, i = w * 32 + lane;

				if (w < n_red)
					red_of(to, red, w, i < n, i, a[j],
					       b[j]);
			}
		}
		__syncthreads();
#pragma unroll 8
		for (u32 w = 0; w < n_red; w++)
			r += red[w];
		r = 1.f / sqrtf(r / (float)p.k + o.eps);
		for (u32 w = warp; w * 32 < o.tiles * 32; w += warps) {
			u32 i = w * 32 + lane;
			float v[8], s[8];
			__align__(16) T e[8];

			if (i >= n) {
				((uint4 *)to)[i] = make_uint4(0, 0, 0, 0);
				continue;
			}
			load8((const T *)to + i * 8, v);
			load8((const T *)gamma + i * 8, s);
			for (int k = 0; k < 8; k++)
				e[k] = from_f<T>(v[k] * r * s[k]);
			((uint4 *)to)[i] = in_order(*(const uint4 *)e);
		}
	}

	// Eight elements of a + skip, and the warp's sum of their squares.
	__device__ __forceinline__ void red_of(unsigned char *to, float *red,
					       u32 w, bool on, u32 i,
					       const uint4 &a,
					       const uint4 &b) const
	{
		float v[8], s[8], acc = 0;
		__align__(16) T e[8];

		load8((const T *)&a, v);
		load8((const T *)&b, s);
#pragma unroll
		for (int k = 0; k < 8; k++) {
			e[k] = from_f<T>(o.skip ? v[k] + s[k] : v[k]);
			v[k] = to_f(e[k]);
			acc = fmaf(v[k], v[k], acc);
		}
		if (on) {
			((uint4 *)to)[i] = *(const uint4 *)e;
			if (o.sum && blockIdx.x == 0)
				((uint4 *)o.sum)[i] = *(const uint4 *)e;
		}
		acc = warp_sum(acc);
		if (lane == 0)
			red[w] = acc;
	}

	// Classes to slices to the sum; what is not there counts as 0.
	__device__ __forceinline__ float finish(const float *s) const
	{
		float v = 0;

#pragma unroll
		for (u32 k = 0; k < 4; k++) {
			float x[4], e = 0;

#pragma unroll
			for (u32 i = 0; i < 4; i++) {
				u32 c = k * o.slice_classes + i;

				x[i] = i < o.slice_classes && c < o.n_class
					       ? s[c * 16]
					       : 0.f;
			}
#pragma unroll
			for (u32 i = 0; i < 4; i++)
				e += x[i];
			v += e;
		}
		return v;
	}

	__device__ __forceinline__ void run_one(unsigned char *smem)
	{
		__shared__ float red[32];
		unsigned char *x, *gamma;
		float *slot;
		cursor c;

		rg0 = blockIdx.x * p.groups;
		n_rg = (p.n + ROWS - 1) / ROWS - rg0;
		n_rg = n_rg < p.groups ? n_rg : p.groups;
		begin(smem, p.groups);
		x = (unsigned char *)(zrow +
				      (ZP == CEP_ZP_NONE ? 0 : p.groups * 16));
		xs = x;
		slot = (float *)(x + o.tiles * 512);
		gamma = (unsigned char *)(slot + p.groups * o.n_class * 16);
		stride_rg = warps / o.n_class;
		stride_c = warps % o.n_class;
		c.rg = warp / o.n_class;
		c.c = warp % o.n_class;
		set(c);
		acc[0][0] = acc[0][2] = 0;
		walk(
			c,
			[&] {
				if (o.gamma)
					stage_gamma(gamma);
				cep_wait();
				if (o.gamma)
					stage_norm(x, gamma, red);
				else
					stage(x);
				__syncthreads();
			},
			[&](const cursor &d) {
				float *to =
					slot + (d.rg * o.n_class + d.c) * 16;

				if (t == 0) {
					to[g] = acc[0][0];
					to[g + 8] = acc[0][2];
				}
				acc[0][0] = acc[0][2] = 0;
			});
		__syncthreads();
		for (u32 i = threadIdx.x; i < n_rg * ROWS; i += blockDim.x) {
			const float *s =
				slot + i / ROWS * o.n_class * 16 + i % ROWS;

			if (rg0 * ROWS + i < p.n)
				emit(0, rg0 * ROWS + i, finish(s),
				     DUAL ? finish(s + 8) : 0.f);
		}
	}

	// ---- several rows ----

	__device__ __forceinline__ void clear(float (*x)[4]) const
	{
#pragma unroll
		for (int n = 0; n < NT; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				x[n][i] = 0;
	}

	// The warp's slice of its row group: to the result if there is no
	// other, else to the parts.
	__device__ __forceinline__ void leave() const
	{
		u32 rows = (p.n + ROWS - 1) / ROWS * 16;
		float *out = (float *)p.part + (u64)blockIdx.y * p.m * rows +
			     (rg0 + warp) * 16;

		if (warp >= n_rg)
			return;
#pragma unroll
		for (int n = 0; n < NT; n++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				u32 m = n * 8 + 2 * t + e;
				u32 row = (rg0 + warp) * ROWS + g;
				float v = sum[n][e], w = sum[n][e + 2];

				if (m >= p.m)
					continue;
				if (gridDim.y > 1) {
					out[(u64)m * rows + g] = v;
					out[(u64)m * rows + g + 8] = w;
					continue;
				}
				if (row < p.n)
					emit(m, row, v, w);
				if (!DUAL && row + 8 < p.n)
					emit(m, row + 8, w, 0.f);
			}
	}

	__device__ __forceinline__ float slices(u32 m, u32 at) const
	{
		u32 rows = (p.n + ROWS - 1) / ROWS * 16;
		const float *s = (const float *)p.part + (u64)m * rows + at;
		float v = 0;

		for (u32 k = 0; k < gridDim.y; k++)
			v += load_fresh(s + (u64)k * p.m * rows);
		return v;
	}

	// The block that comes last adds the slices.
	__device__ __forceinline__ void gather() const
	{
		__shared__ u32 last;

		__threadfence();
		__syncthreads();
		if (threadIdx.x == 0)
			last = atomicInc((u32 *)p.counters + blockIdx.x,
					 gridDim.y - 1) == gridDim.y - 1;
		__syncthreads();
		if (!last)
			return;
		__threadfence();
		for (u32 i = threadIdx.x; i < p.m * FEW_WARPS * ROWS;
		     i += blockDim.x) {
			u32 m = i / (FEW_WARPS * ROWS);
			u32 r = i % (FEW_WARPS * ROWS);
			u32 at = (rg0 + r / ROWS) * 16 + r % ROWS;

			if (rg0 * ROWS + r < p.n)
				emit(m, rg0 * ROWS + r, slices(m, at),
				     DUAL ? slices(m, at + 8) : 0.f);
		}
	}

	// A tile of all rows' activations, 512 bytes a row; odd rows with
	// their 64-byte halves swapped, for the banks' sake.
	__device__ __forceinline__ void fetch_rows(unsigned char *to,
						   u32 kt) const
	{
		for (u32 i = threadIdx.x; i < p.m * 32; i += blockDim.x) {
			u32 m = i / 32, at = i % 32, k = kt * TILE + at * 8;

			tile_copy(to + m * 512 + ((at ^ (m & 1) << 2) << 4),
				  (const T *)p.a + (u64)m * p.lda + k, k < p.k);
		}
	}

	__device__ __forceinline__ void run_few(unsigned char *smem)
	{
		static constexpr u32 XS = NT * 8 * 512;
		unsigned char *x0;
		u32 first, last, st = 0, class_end;
		tile_regs x;
		cursor c;

		rg0 = blockIdx.x * FEW_WARPS;
		n_rg = (p.n + ROWS - 1) / ROWS - rg0;
		n_rg = n_rg < FEW_WARPS ? n_rg : FEW_WARPS;
		begin(smem, FEW_WARPS);
		x0 = (unsigned char *)(zrow + (ZP == CEP_ZP_NONE
						       ? 0
						       : FEW_WARPS * 16));
		first = blockIdx.y * o.slice_classes * o.class_tiles;
		last = first + o.slice_classes * o.class_tiles;
		last = last < o.tiles ? last : o.tiles;
		class_end = first + o.class_tiles;
		clear(acc);
		clear(sum);
		c.rg = warp;
		for (u32 i = 0; i < DEPTH - 1; i++) {
			c.kt = first + i;
			if (c.kt < last && more(c))
				fetch(ring + i * STAGE, c);
		}
		cep_wait();
		for (u32 i = 0; i < DEPTH - 1; i++) {
			if (first + i < last)
				fetch_rows(x0 + i * XS, first + i);
			tile_commit();
		}
		for (u32 kt = first; kt < last; kt++) {
			u32 free = st ? st - 1 : DEPTH - 1;

			tile_wait<DEPTH - 2>();
			__syncthreads(); // here, and stage free is read
			c.kt = kt + DEPTH - 1;
			if (c.kt < last) {
				if (more(c))
					fetch(ring + free * STAGE, c);
				fetch_rows(x0 + free * XS, c.kt);
			}
			tile_commit();
			xs = x0 + st * XS;
			if (more(c)) {
				unpack(ring + st * STAGE, kt, x);
				multiply(x, kt);
			}
			st = st + 1 == DEPTH ? 0 : st + 1;
			if (kt + 1 < class_end && kt + 1 < last)
				continue;
			class_end += o.class_tiles;
#pragma unroll
			for (int n = 0; n < NT; n++)
#pragma unroll
				for (int i = 0; i < 4; i++)
					sum[n][i] += acc[n][i];
			clear(acc);
		}
		leave();
		if (gridDim.y > 1)
			gather();
	}

	__device__ __forceinline__ void begin(unsigned char *smem, u32 groups)
	{
		cep_trigger();
		lane = threadIdx.x & 31;
		warp = threadIdx.x / 32;
		warps = blockDim.x / 32;
		g = lane >> 2;
		t = lane & 3;
		nb = p.k / 32;
		ring = smem + warp * DEPTH * STAGE;
		wrow = (u64 *)(smem + warps * DEPTH * STAGE);
		srow = wrow + groups * 16;
		zrow = srow + groups * 16;
		find_rows();
		__syncthreads();
	}
};

#define CEP_GEMV4(name, type, zp, dual, tiles, rows, threads, ptype)           \
	CEP_KERNEL(name, ptype, threads)                                       \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		gemv4<type, zp, dual, tiles, rows, ptype> g(p);                \
		if (rows == 1)                                                 \
			g.run_one(raw);                                        \
		else                                                           \
			g.run_few(raw);                                        \
	}
#define CEP_GEMV4_FEW(suffix, type, zp, rows)                                  \
	CEP_GEMV4(cep_few4t_##rows##_##suffix##_##zp, type, zp, false,         \
		  CEP_TILES, rows, 32 * FEW_WARPS, cep_mv_tiled)               \
	CEP_GEMV4(cep_few4dt_##rows##_##suffix##_##zp, type, zp, true,         \
		  CEP_TILES, rows, 32 * FEW_WARPS, cep_mv_dual_tiled)
#define CEP_GEMV4_FORMS(suffix, type, zp)                                      \
	CEP_GEMV4(cep_gemv4_##suffix##_##zp, type, zp, false, 1, 1, 512,       \
		  cep_mv)                                                      \
	CEP_GEMV4(cep_gemv4t_##suffix##_##zp, type, zp, false, CEP_TILES, 1,   \
		  512, cep_mv_tiled)                                           \
	CEP_GEMV4(cep_gemv4d_##suffix##_##zp, type, zp, true, 1, 1, 512,       \
		  cep_mv_dual)                                                 \
	CEP_GEMV4(cep_gemv4dt_##suffix##_##zp, type, zp, true, CEP_TILES, 1,   \
		  512, cep_mv_dual_tiled)                                      \
	CEP_GEMV4_FEW(suffix, type, zp, 8)                                     \
	CEP_GEMV4_FEW(suffix, type, zp, 16)                                    \
	CEP_GEMV4_FEW(suffix, type, zp, 64)
CEP_GEMV4_FORMS(f16, __half, 0)
CEP_GEMV4_FORMS(f16, __half, 1)
CEP_GEMV4_FORMS(f16, __half, 2)
CEP_GEMV4_FORMS(bf16, bf16, 0)
CEP_GEMV4_FORMS(bf16, bf16, 1)
CEP_GEMV4_FORMS(bf16, bf16, 2)
