// few4.cu - products of several rows with a 4-bit matrix, each with the bits
// that gemv4.cu gives it alone: steps of many sequences, and their prompts.
//
// The tiles (tile4.cuh) of a unit and the activations beside them are in shared
// memory, and p.depth such stages on the way.  A warp unpacks GROUPS tiles once
// and multiplies them with R / GROUPS rows, 8 columns of the tensor core each.
// Tiles of the next unit, or slice, are fetched before this one is done.
// few.cuh: who does what, and in which order.
#include "modules/cuda_ep/kernels/few.cuh"

#define FEW_WARPS 8 // as in op_gemv4.c

// Two tiles a warp where there are so many rows that shared memory would be
// read too often.
template <class T, int ZP, bool DUAL, int R, class P>
struct few4 : few<T, ZP, DUAL, R, FEW_WARPS, (R > 32 ? 2 : 1), P> {
	static constexpr int GROUPS = R > 32 ? 2 : 1;
	typedef few<T, ZP, DUAL, R, FEW_WARPS, GROUPS, P> base;
	typedef typename base::tile tile;
	using base::acc;
	using base::all;
	using base::find;
	using base::first;
	using base::first_row;
	using base::g;
	using base::group_of;
	using base::lane;
	using base::NT;
	using base::o;
	using base::p;
	using base::row_of;
	using base::ROWS;
	using base::slice_tiles;
	using base::STAGE;
	using base::sum;
	using base::t;
	using base::warp;
	static constexpr u32 WEIGHTS = FEW_WARPS * STAGE;
	static constexpr u32 SIZE = WEIGHTS + R * TILE * 2; // of a stage
	unsigned char *ring;
	u64 *rows; // where the warp's 16 rows lie

	__device__ __forceinline__ few4(const P &params) : base(params)
	{
	}

	// To the next tile; false: there is none.
	__device__ __forceinline__ bool advance(way &w) const
	{
		if (++w.kt < w.end)
			return true;
		w.at++;
		return find(w);
	}

	// Does the unit have its row group i?
	__device__ __forceinline__ bool has(const way &w, u32 i) const
	{
		return (group_of(w) + i) * ROWS < p.n;
	}

	// Addresses of the rows of the matrix that this warp fetches next.
	__device__ __forceinline__ void find_rows(const way &w) const
	{
		u32 i = lane & 15;

		__syncwarp();
		if (lane < 16)
			this->find_row(group_of(w) + warp, i, rows + i,
				       rows + 16 + i, rows + 32 + i);
		__syncwarp();
	}

	// The warp's tile of the matrix.
	__device__ __forceinline__ void fetch(unsigned char *st,
					      const way &w) const
	{
		if (has(w, warp))
			tile::fetch(st + warp * STAGE, rows, rows + 16,
				    rows + 32, w.kt);
	}

	// The block's tile of activations, 512 bytes a row; odd rows with
	// their 64-byte halves swapped, for the banks' sake.
	__device__ __forceinline__ void fetch_rows(unsigned char *st,
						   const way &w) const
	{
		u32 m0 = row_of(w), at = threadIdx.x % 32;
		u32 k = w.kt * TILE + at * 8;
		unsigned char *to = st + WEIGHTS;

#pragma unroll
		for (u32 i = 0; i < R / FEW_WARPS; i++) {
			u32 m = threadIdx.x / 32 + i * FEW_WARPS;
			bool on = m0 + m < p.m && k < p.k;

			tile_copy(to + m * 512 + ((at ^ (m & 1) << 2) << 4),
				  (const T *)p.a +
					  (on ? (u64)(m0 + m) * p.lda + k : 0),
				  on);
		}
	}

	// Scales and zero points of a tile.
	struct factors {
		u32 s[8], z[8];
	};

	// The warp's tiles by its rows.
	__device__ __forceinline__ void multiply(const unsigned char *stage,
						 u32 kt)
	{
		const unsigned char *st = stage + first() * STAGE;
		const unsigned char *x =
			stage + WEIGHTS + (first_row() + g) * 512 + t * 16;
		u32 odd = (g & 1) << 6;
		factors f[GROUPS];

#pragma unroll
		for (u32 i = 0; i < GROUPS; i++)
			this->template read_scales<4>(st + i * STAGE, kt, 0,
						      f[i].s, f[i].z);
#pragma unroll
		for (u32 j = 0; j < 4; j++) {
			u32 h[GROUPS][16];

#pragma unroll
			for (u32 i = 0; i < GROUPS; i++)
				this->unpack_part(st + i * STAGE, j, h[i]);
#pragma unroll
			for (u32 k = 0; k < 2; k++)
#pragma unroll
				for (u32 n = 0; n < NT; n++) {
					u32 b = 2 * j + k;
					uint4 v = in_order(*(
						const uint4 *)(x + n * 4096 +
							       (b * 64 ^ odd)));

#pragma unroll
					for (u32 i = 0; i < GROUPS; i++)
						block(h[i] + k * 8, v, f[i], kt,
						      b, acc[i * NT + n]);
				}
		}
	}

	// Block b of a tile.
	__device__ __forceinline__ void block(const u32 *h, const uint4 &v,
					      const factors &f, u32 kt, u32 b,
					      float *to) const
	{
		float s0 = tile::nth(f.s, b), s1 = tile::nth(f.s + 4, b);
		float z0 = 0, z1 = 0, d[4];

		if (ZP != CEP_ZP_NONE) {
			z0 = this->template zero<4>(f.z, kt, b, 0);
			z1 = this->template zero<4>(f.z, kt, b, 1);
		}
		this->product(h, v, z0, z1, d);
		to[0] = fmaf(d[0], s0, to[0]);
		to[1] = fmaf(d[1], s0, to[1]);
		to[2] = fmaf(d[2], s1, to[2]);
		to[3] = fmaf(d[3], s1, to[3]);
	}

	// All stages but the one that is needed now may still be on the way.
	__device__ __forceinline__ void wait() const
	{
		if (p.depth == 2)
			tile_wait<0>();
		else if (p.depth == 3)
			tile_wait<1>();
		else
			tile_wait<2>();
	}

	// The block that comes last adds the slices.
	__device__ __forceinline__ void gather(const way &w, u32 *last) const
	{
		__syncthreads();
		if (threadIdx.x == 0)
			*last = this->is_last(w);
		__syncthreads();
		if (*last)
			this->add_slices(w, blockDim.x);
	}

	__device__ __forceinline__ void run(unsigned char *smem, u32 *last)
	{
		u32 st = 0, ends, slice_ends;
		bool more, fetches;
		way w, in;

		cep_trigger();
		ring = smem;
		rows = (u64 *)(smem + p.depth * SIZE) + warp * 48;
		this->share_out();
		w.at = 0;
		more = find(w);
		in = w;
		if (!more) {
			cep_wait(); // nobody is done before who went ahead
			return;
		}
		find_rows(in);
		fetches = true;
		for (u32 i = 0; i + 1 < p.depth && fetches; i++) {
			u32 was = in.at;

			fetch(ring + i * SIZE, in);
			fetches = advance(in);
			if (fetches && in.at != was)
				find_rows(in);
		}
		cep_wait();
		in = w;
		fetches = true;
		for (u32 i = 0; i + 1 < p.depth; i++) {
			if (fetches) {
				fetch_rows(ring + i * SIZE, in);
				fetches = advance(in);
			}
			tile_commit();
		}
		this->clear(acc);
		this->clear(sum);
		this->clear(all);
		ends = w.kt + o.class_tiles;
		slice_ends = w.kt + slice_tiles;
		while (more) {
			way now = w;
			u32 free = st ? st - 1 : p.depth - 1;

			wait();
			__syncthreads(); // here, and stage free is read
			if (fetches) {
				u32 was = in.at;

				fetch(ring + free * SIZE, in);
				fetch_rows(ring + free * SIZE, in);
				fetches = advance(in);
				if (fetches && in.at != was)
					find_rows(in);
			}
			tile_commit();
			if (has(now, first()))
				multiply(ring + st * SIZE, now.kt);
			st = st + 1 == p.depth ? 0 : st + 1;
			more = advance(w);
			if (now.kt + 1 == ends || now.kt + 1 == now.end) {
				this->add(sum, acc);
				ends += o.class_tiles;
			}
			if (now.kt + 1 == slice_ends || now.kt + 1 == now.end) {
				this->add(all, sum);
				slice_ends += slice_tiles;
			}
			if (now.kt + 1 < now.end)
				continue;
			this->leave(now);
			this->clear(all);
			if (now.cut)
				gather(now, last);
			ends = w.kt + o.class_tiles;
			slice_ends = w.kt + slice_tiles;
		}
	}
};

// Registers for two blocks an SM, where sums leave room for that.
#define CEP_FEW4(name, type, zp, dual, rows, ptype)                            \
	CEP_KERNEL(name, ptype, 32 * FEW_WARPS, rows <= 32 ? 2 : 1)            \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		__shared__ u32 last;                                           \
		few4<type, zp, dual, rows, ptype> f(p);                        \
		f.run(raw, &last);                                             \
	}
#define CEP_FEW4_ROWS(suffix, type, zp, rows)                                  \
	CEP_FEW4(cep_few4_##rows##_##suffix##_##zp, type, zp, false, rows,     \
		 cep_mv_tiled)                                                 \
	CEP_FEW4(cep_few4d_##rows##_##suffix##_##zp, type, zp, true, rows,     \
		 cep_mv_dual_tiled)
#define CEP_FEW4_FORMS(suffix, type, zp)                                       \
	CEP_FEW4_ROWS(suffix, type, zp, 8)                                     \
	CEP_FEW4_ROWS(suffix, type, zp, 16)                                    \
	CEP_FEW4_ROWS(suffix, type, zp, 32)                                    \
	CEP_FEW4_ROWS(suffix, type, zp, 64)
CEP_FEW4_FORMS(f16, __half, 0)
CEP_FEW4_FORMS(f16, __half, 1)
CEP_FEW4_FORMS(f16, __half, 2)
CEP_FEW4_FORMS(bf16, bf16, 0)
CEP_FEW4_FORMS(bf16, bf16, 1)
CEP_FEW4_FORMS(bf16, bf16, 2)
