// few4.cu - products of several rows with a 4-bit matrix, each with the bits
// that gemv4.cu gives it alone: steps of many sequences, and their prompts.
//
// A unit is FEW_WARPS row groups of the matrix by R rows of the step.  Their
// tiles (tile4.cuh) and the activations beside them are in shared memory, and
// p.depth such stages on the way.  A warp unpacks GROUPS tiles once and
// multiplies them with R / GROUPS rows, 8 columns of the tensor core each: two
// tiles where there are so many rows that shared memory would be read too
// often.
//
// Blocks stay: block i takes units i, i + gridDim.x, ...  Those that are left
// over when they do not come out even (all, where there are few) are cut into
// their slices; the block that comes last adds a unit's slices.  Tiles of the
// next unit, or slice, are fetched before this one is done.
//
// The order of sums is that of gemv4.cu, whoever does which slice: blocks of 32
// columns to a class (acc), classes to a slice (sum), slices to the result
// (all).
#include "modules/cuda_ep/kernels/tile4.cuh"

#define FEW_WARPS 8 // as in op_nbits.c

// A block's way through its units; those that are cut begin at whole.
struct way {
	u32 at;	     // of the block's units and slices
	u32 unit;    // this one
	u32 kt, end; // its tiles
	bool cut;
	u32 slice; // a unit that is cut: which one
};

template <class T, int ZP, bool DUAL, int R, class P>
struct few4 : tile4<T, ZP, DUAL, CEP_TILES, false, P> {
	typedef tile4<T, ZP, DUAL, CEP_TILES, false, P> tile;
	using tile::g;
	using tile::lane;
	using tile::o;
	using tile::p;
	using tile::ROWS;
	using tile::STAGE;
	using tile::t;
	using tile::warp;
	static constexpr int GROUPS = R > 32 ? 2 : 1; // of a warp
	static constexpr int NT = R / GROUPS / 8;     // column groups
	static constexpr u32 WEIGHTS = FEW_WARPS * STAGE;
	static constexpr u32 SIZE = WEIGHTS + R * TILE * 2; // of a stage
	static constexpr u32 OUT = FEW_WARPS * 16; // sums of a unit and row
	unsigned char *ring;
	u64 *rows;	       // where the warp's 16 rows lie
	u32 row_tiles, whole;  // units: so many a row of them; not cut
	u32 n_whole, n_slices; // of this block; of a unit
	u32 n_cut;	       // slices of all units that are cut
	u32 slice_tiles;
	float acc[GROUPS * NT][4], sum[GROUPS * NT][4], all[GROUPS * NT][4];

	__device__ __forceinline__ few4(const P &params) : tile(params)
	{
	}

	__device__ __forceinline__ void share_out()
	{
		u32 units = (p.n + FEW_WARPS * ROWS - 1) / (FEW_WARPS * ROWS);

		row_tiles = (p.m + R - 1) / R;
		units *= row_tiles;
		slice_tiles = o.slice_classes * o.class_tiles;
		n_slices = (o.tiles + slice_tiles - 1) / slice_tiles;
		n_whole = n_slices > 1 ? units / gridDim.x
				       : (units + gridDim.x - 1) / gridDim.x;
		whole = n_whole * gridDim.x;
		n_cut = whole < units ? (units - whole) * n_slices : 0;
		if (n_slices == 1 &&
		    blockIdx.x + (n_whole - 1) * gridDim.x >= units)
			n_whole--;
	}

	// Where w.at is; false: behind the end.
	__device__ __forceinline__ bool find(way &w) const
	{
		u32 i;

		w.cut = w.at >= n_whole;
		w.kt = 0;
		w.end = o.tiles;
		w.slice = 0;
		w.unit = blockIdx.x + w.at * gridDim.x;
		if (!w.cut)
			return true;
		i = blockIdx.x + (w.at - n_whole) * gridDim.x;
		if (i >= n_cut)
			return false;
		w.unit = whole + i / n_slices;
		w.slice = i % n_slices;
		w.kt = w.slice * slice_tiles;
		if (w.kt + slice_tiles < w.end)
			w.end = w.kt + slice_tiles;
		return true;
	}

	// To the next tile; false: there is none.
	__device__ __forceinline__ bool advance(way &w) const
	{
		if (++w.kt < w.end)
			return true;
		w.at++;
		return find(w);
	}

	// The unit's first row group, its first row of the step.
	__device__ __forceinline__ u32 group_of(const way &w) const
	{
		return w.unit / row_tiles * FEW_WARPS;
	}
	__device__ __forceinline__ u32 row_of(const way &w) const
	{
		return w.unit % row_tiles * R;
	}

	// Does the unit have its row group i?
	__device__ __forceinline__ bool has(const way &w, u32 i) const
	{
		return (group_of(w) + i) * ROWS < p.n;
	}

	// This warp's row groups of the unit, and its rows of the step, begin
	// at
	__device__ __forceinline__ u32 first() const
	{
		return warp / GROUPS * GROUPS;
	}
	__device__ __forceinline__ u32 first_row() const
	{
		return warp % GROUPS * NT * 8;
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
			this->read_scales(st + i * STAGE, kt, f[i].s, f[i].z);
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
			z0 = this->zero(f.z, kt, b, 0);
			z1 = this->zero(f.z, kt, b, 1);
		}
		this->product(h, v, z0, z1, d);
		to[0] = fmaf(d[0], s0, to[0]);
		to[1] = fmaf(d[1], s0, to[1]);
		to[2] = fmaf(d[2], s1, to[2]);
		to[3] = fmaf(d[3], s1, to[3]);
	}

	__device__ __forceinline__ static void clear(float (*x)[4])
	{
#pragma unroll
		for (int n = 0; n < GROUPS * NT; n++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				x[n][i] = 0;
	}

	// to += from, which begins anew.
	__device__ __forceinline__ static void add(float (*to)[4],
						   float (*from)[4])
	{
#pragma unroll
		for (int n = 0; n < GROUPS * NT; n++)
#pragma unroll
			for (int i = 0; i < 4; i++) {
				to[n][i] += from[n][i];
				from[n][i] = 0;
			}
	}

	// Row r of the matrix, of the unit's; its sums for step row m.
	__device__ __forceinline__ void give(const way &w, u32 m, u32 r,
					     float v, float u) const
	{
		u32 row = group_of(w) * ROWS + r;

		if (row < p.n && row_of(w) + m < p.m)
			this->emit(row_of(w) + m, row, v, u);
	}

	__device__ __forceinline__ float *part_of(const way &w) const
	{
		return (float *)p.part +
		       (u64)(w.unit - whole) * n_slices * R * OUT;
	}

	// The warp's sums to the result, or to the parts of a unit that is cut.
	__device__ __forceinline__ void leave(const way &w) const
	{
		float *out = part_of(w) + (u64)w.slice * R * OUT + g;

#pragma unroll
		for (u32 k = 0; k < GROUPS * NT * 2; k++) {
			u32 n = k / 2, e = k % 2, i = first() + n / NT;
			u32 m = first_row() + n % NT * 8 + 2 * t + e;
			u32 r = i * ROWS + g;
			float v = all[n][e], u = all[n][e + 2];

			if (w.cut) {
				out[m * OUT + i * 16] = v;
				out[m * OUT + i * 16 + 8] = u;
			} else {
				give(w, m, r, v, u);
				if (!DUAL)
					give(w, m, r + 8, u, 0.f);
			}
		}
	}

	// Four sums of as many rows, slice by slice; all loads go out at once.
	__device__ __forceinline__ void slices(const float *s, float *v) const
	{
		float x[4][4];

#pragma unroll
		for (u32 k = 0; k < 4; k++) {
			x[k][0] = x[k][1] = x[k][2] = x[k][3] = 0;
			if (k >= n_slices)
				continue;
			load_fresh2(s + (u64)k * R * OUT, x[k]);
			load_fresh2(s + (u64)k * R * OUT + 2, x[k] + 2);
		}
#pragma unroll
		for (u32 e = 0; e < 4; e++) {
			v[e] = 0;
#pragma unroll
			for (u32 k = 0; k < 4; k++)
				v[e] += x[k][e];
		}
	}

	// The block that comes last adds the slices.
	__device__ __forceinline__ void gather(const way &w, u32 *last) const
	{
		const float *parts = part_of(w);

		__threadfence();
		__syncthreads();
		if (threadIdx.x == 0)
			*last = atomicInc((u32 *)p.counters + w.unit - whole,
					  n_slices - 1) == n_slices - 1;
		__syncthreads();
		if (!*last)
			return;
		__threadfence();
		for (u32 i = threadIdx.x * 4; i < R * FEW_WARPS * ROWS;
		     i += blockDim.x * 4) {
			u32 m = i / (FEW_WARPS * ROWS);
			u32 r = i % (FEW_WARPS * ROWS);
			const float *s =
				parts + m * OUT + r / ROWS * 16 + r % ROWS;
			float v[4], u[4] = {0, 0, 0, 0};

			if (row_of(w) + m >= p.m)
				continue;
			slices(s, v);
			if (DUAL)
				slices(s + 8, u);
#pragma unroll
			for (u32 e = 0; e < 4; e++)
				give(w, m, r + e, v[e], u[e]);
		}
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

	__device__ __forceinline__ void run(unsigned char *smem, u32 *last)
	{
		u32 st = 0, ends, slice_ends;
		bool more, fetches;
		way w, in;

		cep_trigger();
		ring = smem;
		rows = (u64 *)(smem + p.depth * SIZE) + warp * 48;
		share_out();
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
		clear(acc);
		clear(sum);
		clear(all);
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
				add(sum, acc);
				ends += o.class_tiles;
			}
			if (now.kt + 1 == slice_ends || now.kt + 1 == now.end) {
				add(all, sum);
				slice_ends += slice_tiles;
			}
			if (now.kt + 1 < now.end)
				continue;
			leave(now);
			clear(all);
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
