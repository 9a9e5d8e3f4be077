// gemv4.cu - products of one row with a 4-bit matrix: decoding.
//
// A warp keeps DEPTH tiles (tile4.cuh) on the way in shared memory.  All
// columns of the tensor core are the one row.
//
// Order of sums, of K alone: products of a block of 32 columns in the tensor
// core; times its scale, block by block, over the tiles of a class (class_tiles
// in a row); classes, slice_classes at most, to a slice; slices to the result.
// Neither grid nor parts of the matrix are in it; few4.cu sums many rows alike.
//
// A warp takes units (row group, class), the block adds them up.  With DUAL the
// result is silu(a B0) (a B1), both rounded before.
#include "modules/cuda_ep/kernels/tile4.cuh"

#define DEPTH 3 // tiles on the way, as in op_gemv4.c

// Half a tile in registers, four blocks: block b of rows g and g + 8 in
// h[8 b..], scales (and zero points) of blocks 2 i and 2 i + 1 in s[i] and
// s[2 + i].
struct half_tile {
	u32 h[32], s[4], z[4];
};

// A warp's way through its tiles.
struct cursor {
	u32 rg, c, kt, end;
};

template <class T, int ZP, bool DUAL, int TILES, bool PLAIN, class P>
struct gemv4 : tile4<T, ZP, DUAL, TILES, PLAIN, P> {
	typedef tile4<T, ZP, DUAL, TILES, PLAIN, P> tile;
	using tile::g;
	using tile::lane;
	using tile::o;
	using tile::p;
	using tile::ROWS;
	using tile::STAGE;
	using tile::t;
	using tile::warp;
	u32 warps, rg0, n_rg, stride_rg, stride_c;
	unsigned char *ring;
	u64 *wrow, *srow, *zrow; // where the block's rows lie
	const unsigned char *xs; // activations in shared memory, in order
	float acc[2], by_k;	 // 1 / k

	__device__ __forceinline__ gemv4(const P &params) : tile(params)
	{
	}

	// Addresses of the rows of the block's row groups.
	__device__ __forceinline__ void find_rows() const
	{
		for (u32 i = threadIdx.x; i < n_rg * 16; i += blockDim.x)
			this->find_row(rg0 + i / 16, i % 16, wrow + i, srow + i,
				       zrow + i);
	}

	// Half i of a tile.
	__device__ __forceinline__ void unpack(const unsigned char *st, u32 kt,
					       u32 i, half_tile &x) const
	{
		this->unpack_part(st, 2 * i, x.h);
		this->unpack_part(st, 2 * i + 1, x.h + 16);
		this->template read_scales<2>(st, kt, 2 * i, x.s, x.z);
	}

	__device__ __forceinline__ void multiply(const half_tile &x, u32 kt,
						 u32 i)
	{
		const unsigned char *v = xs + (kt * 8 + i * 4) * 64 + t * 16;

#pragma unroll
		for (u32 b = 0; b < 4; b++) {
			float z0 = 0, z1 = 0, d[4];

			if (ZP != CEP_ZP_NONE) {
				z0 = this->template zero<2>(x.z, kt, i * 4 + b,
							    0);
				z1 = this->template zero<2>(x.z, kt, i * 4 + b,
							    1);
			}
			this->product(x.h + b * 8, *(const uint4 *)(v + b * 64),
				      z0, z1, d);
			acc[0] = fmaf(d[0], tile::nth(x.s, b), acc[0]);
			acc[1] = fmaf(d[2], tile::nth(x.s + 2, b), acc[1]);
		}
	}

	__device__ __forceinline__ void fetch(unsigned char *st,
					      const cursor &c) const
	{
		u32 at = c.rg * 16;

		if (PLAIN)
			this->fetch_plain(st, rg0 + c.rg, c.kt);
		else
			tile::fetch(st, wrow + at, srow + at, zrow + at, c.kt);
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

	// The stage that was read gets the tile after those on the way.
	__device__ __forceinline__ void refill(unsigned char *st,
					       cursor &in) const
	{
		__syncwarp(); // all lanes have read it
		if (more(in)) {
			fetch(st, in);
			advance(in);
		}
		tile_commit();
	}

	// The warp's tiles; done(cursor) when a class ended.
	template <class W, class F>
	__device__ __forceinline__ void walk(cursor c, W wait_for_input, F done)
	{
		unsigned char *st = ring, *end = ring + DEPTH * STAGE;
		half_tile x, y;
		cursor in = c;

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
			unpack(st, c.kt, 0, x);
			unpack(st, c.kt, 1, y);
		}
		wait_for_input();
		if (!more(c))
			return;
		refill(st, in);
		multiply(x, c.kt, 0);
		multiply(y, c.kt, 1);
		next(c, done);
#pragma unroll 1
		while (more(c)) {
			st = st + STAGE == end ? ring : st + STAGE;
			tile_wait<DEPTH - 1>();
			__syncwarp();
			unpack(st, c.kt, 0, x);
			multiply(x, c.kt, 0);
			unpack(st, c.kt, 1, x);
			refill(st, in);
			multiply(x, c.kt, 1);
			next(c, done);
		}
	}

	template <class F>
	__device__ __forceinline__ void next(cursor &c, F done)
	{
		cursor was = c;

		if (advance(c))
			done(was);
	}

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
	// thread i had elements 8 i to 8 i + 7.  In pairs as they lie: all
	// blocks do this.
	__device__ __forceinline__ void stage_norm(unsigned char *to,
						   const unsigned char *gamma,
						   float *red) const
	{
		static constexpr u32 LOADS = 2; // of a warp at once
		u32 n = p.k / 8, n_red = (n + 31) / 32;
		float r = 0;

#pragma unroll 1
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
				float s;

				if (o.skip)
					a[j] = add8(a[j], b[j]);
				s = warp_sum(squares(a[j]));
				if (w < n_red && lane == 0)
					red[w] = s;
				if (i >= n)
					continue;
				((uint4 *)to)[i] = a[j];
				if (o.sum && blockIdx.x == 0)
					((uint4 *)o.sum)[i] = a[j];
			}
		}
		__syncthreads();
#pragma unroll 4
		for (u32 w = 0; w < n_red; w++)
			r += red[w];
		r = inverse_rms(r, by_k, o.eps);
#pragma unroll 1
		for (u32 i = threadIdx.x; i < o.tiles * 32; i += blockDim.x) {
			uint4 v = make_uint4(0, 0, 0, 0);

			if (i < n)
				v = scaled(((const uint4 *)to)[i],
					   ((const uint4 *)gamma)[i], r);
			((uint4 *)to)[i] = v;
		}
	}

	__device__ __forceinline__ static uint4 add8(const uint4 &a,
						     const uint4 &b)
	{
		return make_uint4(add2(a.x, b.x, T()), add2(a.y, b.y, T()),
				  add2(a.z, b.z, T()), add2(a.w, b.w, T()));
	}

	__device__ __forceinline__ static float squares(const uint4 &a)
	{
		float v[8], s = 0;

		load8((const T *)&a, v);
#pragma unroll
		for (u32 i = 0; i < 8; i++)
			s = fmaf(v[i], v[i], s);
		return s;
	}

	// a r gamma, in order.
	__device__ __forceinline__ static uint4
	scaled(const uint4 &a, const uint4 &gamma, float r)
	{
		float v[8], s[8];

		load8((const T *)&a, v);
		load8((const T *)&gamma, s);
#pragma unroll
		for (u32 i = 0; i < 8; i++)
			v[i] = v[i] * r * s[i];
		return make_uint4(
			round2(v[0], v[4], T()), round2(v[1], v[5], T()),
			round2(v[2], v[6], T()), round2(v[3], v[7], T()));
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

	__device__ __forceinline__ void run(unsigned char *smem)
	{
		__shared__ float red[32];
		unsigned char *x, *gamma;
		float *slot, first = 0; // what is added to the thread's row
		u32 row = blockIdx.x * p.groups * ROWS + threadIdx.x;
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
		by_k = 1.f / (float)p.k;
		stride_rg = warps / o.n_class;
		stride_c = warps % o.n_class;
		c.rg = warp / o.n_class;
		c.c = warp % o.n_class;
		set(c);
		acc[0] = acc[1] = 0;
		walk(
			c,
			[&] {
				if (o.gamma)
					stage_gamma(gamma);
				cep_wait();
				if (threadIdx.x < n_rg * ROWS)
					first = this->added(0, row);
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
					to[g] = acc[0];
					to[g + 8] = acc[1];
				}
				acc[0] = acc[1] = 0;
			});
		__syncthreads();
#pragma unroll 1
		for (u32 i = threadIdx.x; i < n_rg * ROWS; i += blockDim.x) {
			const float *s =
				slot + i / ROWS * o.n_class * 16 + i % ROWS;

			if (i != threadIdx.x)
				first = this->added(0, rg0 * ROWS + i);
			this->emit(0, rg0 * ROWS + i, finish(s),
				   DUAL ? finish(s + 8) : 0.f, first);
		}
	}

	__device__ __forceinline__ void begin(unsigned char *smem, u32 groups)
	{
		cep_trigger();
		warps = blockDim.x / 32;
		ring = smem + warp * DEPTH * STAGE;
		wrow = (u64 *)(smem + warps * DEPTH * STAGE);
		srow = wrow + groups * 16;
		zrow = srow + groups * 16;
		if (PLAIN)
			return;
		find_rows();
		__syncthreads();
	}
};

#define CEP_GEMV4(name, type, zp, dual, tiles, plain, ptype)                   \
	CEP_KERNEL(name, ptype, 512)                                           \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		gemv4<type, zp, dual, tiles, plain, ptype> g(p);               \
		g.run(raw);                                                    \
	}
#define CEP_GEMV4_FORMS(suffix, type, zp)                                      \
	CEP_GEMV4(cep_gemv4_##suffix##_##zp, type, zp, false, 1, true, cep_mv) \
	CEP_GEMV4(cep_gemv4p_##suffix##_##zp, type, zp, false, CEP_TILES,      \
		  true, cep_mv_tiled)                                          \
	CEP_GEMV4(cep_gemv4t_##suffix##_##zp, type, zp, false, CEP_TILES,      \
		  false, cep_mv_tiled)                                         \
	CEP_GEMV4(cep_gemv4d_##suffix##_##zp, type, zp, true, 1, true,         \
		  cep_mv_dual)                                                 \
	CEP_GEMV4(cep_gemv4dp_##suffix##_##zp, type, zp, true, CEP_TILES,      \
		  true, cep_mv_dual_tiled)                                     \
	CEP_GEMV4(cep_gemv4dt_##suffix##_##zp, type, zp, true, CEP_TILES,      \
		  false, cep_mv_dual_tiled)
CEP_GEMV4_FORMS(f16, __half, 0)
CEP_GEMV4_FORMS(f16, __half, 1)
CEP_GEMV4_FORMS(f16, __half, 2)
CEP_GEMV4_FORMS(bf16, bf16, 0)
CEP_GEMV4_FORMS(bf16, bf16, 1)
CEP_GEMV4_FORMS(bf16, bf16, 2)
