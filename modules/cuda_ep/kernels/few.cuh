// few.cuh - how products of several rows with a 4-bit matrix are shared out,
// for few4.cu and wfew4.cu.
//
// A unit is WARPS row groups of the matrix by R rows of the step.  Blocks stay:
// block i takes units i, i + gridDim.x, ...  Those that are left over when they
// do not come out even (all, where there are few) are cut into their slices;
// the block that comes last adds a unit's slices.  The last slice of a unit may
// be shorter than the others: all of these are shared out after them, and to
// and fro, so that blocks with two slices have short ones.
//
// The order of sums is that of gemv4.cu, whoever does which slice: blocks of 32
// columns to a class (acc), classes to a slice (sum), slices to the result
// (all).
#ifndef CEP_FEW_CUH
#define CEP_FEW_CUH

#include "modules/cuda_ep/kernels/tile4.cuh"

// A block's way through its units; those that are cut begin at whole.
struct way {
	u32 at;	     // of the block's units and slices
	u32 unit;    // this one
	u32 kt, end; // its tiles
	bool cut;
	u32 slice; // a unit that is cut: which one
};

// WARPS: of a unit.  GROUPS: row groups of a warp, which has R / GROUPS rows of
// the step.
template <class T, int ZP, bool DUAL, int R, int WARPS, int GROUPS, class P>
struct few : tile4<T, ZP, DUAL, CEP_TILES, false, P> {
	typedef tile4<T, ZP, DUAL, CEP_TILES, false, P> tile;
	using tile::g;
	using tile::o;
	using tile::p;
	using tile::ROWS;
	using tile::t;
	using tile::warp;
	static constexpr int NT = R / GROUPS / 8; // column groups
	static constexpr u32 OUT = WARPS * 16;	  // sums of a unit and row
	u32 row_tiles, whole;  // units: so many a row of them; not cut
	u32 n_whole, n_slices; // of this block; of a unit
	u32 n_cut;	       // slices of all units that are cut
	u32 slice_tiles;
	float acc[GROUPS * NT][4], sum[GROUPS * NT][4], all[GROUPS * NT][4];

	__device__ __forceinline__ few(const P &params) : tile(params)
	{
	}

	__device__ __forceinline__ void share_out()
	{
		u32 units = (p.n + WARPS * ROWS - 1) / (WARPS * ROWS);

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
		u32 i, round, long_ones;

		w.cut = w.at >= n_whole;
		w.kt = 0;
		w.end = o.tiles;
		w.slice = 0;
		w.unit = blockIdx.x + w.at * gridDim.x;
		if (!w.cut)
			return true;
		round = w.at - n_whole;
		i = round * gridDim.x +
		    (round & 1 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
		if (i >= n_cut)
			return false;
		long_ones = n_cut / n_slices * (n_slices - 1);
		if (i < long_ones) {
			w.unit = whole + i / (n_slices - 1);
			w.slice = i % (n_slices - 1);
		} else {
			w.unit = whole + i - long_ones;
			w.slice = n_slices - 1;
		}
		w.kt = w.slice * slice_tiles;
		if (w.kt + slice_tiles < w.end)
			w.end = w.kt + slice_tiles;
		return true;
	}

	// The unit's first row group, its first row of the step.
	__device__ __forceinline__ u32 group_of(const way &w) const
	{
		return w.unit / row_tiles * WARPS;
	}
	__device__ __forceinline__ u32 row_of(const way &w) const
	{
		return w.unit % row_tiles * R;
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
			this->emit(row_of(w) + m, row, v, u,
				   this->added(row_of(w) + m, row));
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

	// All of this block's parts of a unit are written: is it the last that
	// has one?  By one thread, which has met the others.
	__device__ __forceinline__ bool is_last(const way &w) const
	{
		bool yes;

		__threadfence();
		yes = atomicInc((u32 *)p.counters + w.unit - whole,
				n_slices - 1) == n_slices - 1;
		__threadfence();
		return yes;
	}

	// Add the slices of a unit, by so many threads.
	__device__ __forceinline__ void add_slices(const way &w,
						   u32 threads) const
	{
		const float *parts = part_of(w);

		for (u32 i = threadIdx.x * 4; i < R * WARPS * ROWS;
		     i += threads * 4) {
			u32 m = i / (WARPS * ROWS);
			u32 r = i % (WARPS * ROWS);
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
};

#endif
