// wfew4.cu - few4.cu on compute capability 9.0: the same products with the same
// bits by the tensor core's instructions for four warps.  Matrices without zero
// points.
//
// A unit is 128 rows of the matrix (pairs of matrices: 192), 16 a warp, by R
// rows of the step; few.cuh says who does what, and in which order.  Four warps
// fetch and the others multiply, tile by tile of 256 columns.  A stage holds a
// tile, 50 or 59 KiB for R = 64:
//
//	four times R rows of 64 activations  128 bytes each, as wgmma.cuh says
//	rows of 256 codes                    128 bytes each, pieces of 16 in an
//	                                     order that spares the banks
//	rows of 8 scales                     16 bytes each
//
// A word of eight codes is unpacked in the order of unpack8 (mma.cuh), so that
// activations must be in that order, too: cep_image4 has put them there, stage
// by stage, and one copy fetches a stage's.
//
// While the tensor core multiplies a block of 32, the sums of the one before
// are multiplied with its scales and added: d is there twice.  Three warps a
// scheduler with 64 rows have no registers for that, and need it less.
#include "modules/cuda_ep/kernels/few.cuh"
#include "modules/cuda_ep/kernels/ring.cuh"

#define FETCH 128u     // threads that fetch
#define STAGES_MOST 8u // as in op_gemv4.c, where ...
#define SMEM 210944u   // ... a block has so much

template <class T, bool DUAL, int R, class P>
struct wfew4 : few<T, CEP_ZP_NONE, DUAL, R, DUAL ? 12 : 8, 1, P> {
	static constexpr u32 WARPS = DUAL ? 12 : 8;
	typedef few<T, CEP_ZP_NONE, DUAL, R, (int)WARPS, 1, P> base;
	using base::acc;
	using base::all;
	using base::find;
	using base::g;
	using base::group_of;
	using base::lane;
	using base::n_cut;
	using base::n_whole;
	using base::NT;
	using base::o;
	using base::p;
	using base::q;
	using base::row_of;
	using base::ROWS;
	using base::slice_tiles;
	using base::sum;
	using base::warp;
	static constexpr u32 MULTIPLY = 32 * WARPS; // threads that do
	static constexpr u32 WIDE = WARPS * 16;	    // rows of codes
	static constexpr u32 PART = R * WG_ROW;	    // activations of 64 columns
	static constexpr u32 CODES = 4 * PART, SCALE = CODES + WIDE * 128;
	static constexpr u32 STAGE = SCALE + WIDE * 16;
	static constexpr u32 FIT = SMEM / STAGE;
	static constexpr u32 STAGES = FIT < STAGES_MOST ? FIT : STAGES_MOST;
	static constexpr bool TWICE = WARPS == 8 || R <= 32; // d

	unsigned char *smem;
	u64 *full, *empty; // a stage's barriers
	float d[TWICE + 1][NT][4];

	__device__ __forceinline__ wfew4(const P &params) : base(params)
	{
	}

	// ---- fetching ----

	// Where what this thread fetches of a unit lies: a piece of 32 columns
	// of every 16th row of codes, of two rows of scales at most.
	struct source {
		const unsigned char *codes;
		const T *scales[2];
		bool plain; // the unit's rows lie one behind the other
	};

	__device__ __forceinline__ void look_up(const way &w, source &x) const
	{
		u32 i = threadIdx.x - MULTIPLY, r = group_of(w) * ROWS;
		u32 end = r + WARPS * ROWS;
		u64 at, s, z;

		x.plain = end <= p.n &&
			  r / q.tile_rows == (end - 1) / q.tile_rows;
		this->find_row(group_of(w), i / 8, &at, &s, &z);
		x.codes = (const unsigned char *)at + i % 8 * 16;
#pragma unroll
		for (u32 k = 0; k < 2; k++) {
			r = i + k * FETCH < WIDE ? i + k * FETCH : 0;
			this->find_row(group_of(w) + r / 16, r % 16, &at, &s,
				       &z);
			x.scales[k] = (const T *)s;
		}
	}

	// Eight scales of a row, fewer with larger blocks; behind the row's end
	// some that are there, as activations are zero there.
	__device__ __forceinline__ void
	fetch_scales(unsigned char *to, const T *from, u32 kt) const
	{
		u32 b = kt * 8, most = p.n_blocks - 4;

		if (o.shift == 0) {
			copy_small<8>(to, from + (b < most ? b : most), true);
			b += 4;
			copy_small<8>(to + 8, from + (b < most ? b : most),
				      true);
		} else if (o.shift == 1) {
			copy_small<8>(to, from + kt * 4, true);
		} else {
			copy_small<4>(to, from + (b >> o.shift & ~1u), true);
		}
	}

	// Tile kt of the matrix.
	__device__ __forceinline__ void fetch(u32 stage, const way &w,
					      const source &x, u32 kt) const
	{
		u32 i = threadIdx.x - MULTIPLY, c = i % 8, r = i / 8;
		unsigned char *st = smem + stage * STAGE;
		unsigned char *to = st + CODES + r * 128 + ((c ^ (r & 7)) << 4);
		u32 k = kt * 128, last = p.k / 2 - 16 - c * 16;
		u64 at, s, z;

		k = k < last ? k : last;
		if (x.plain) {
#pragma unroll
			for (u32 j = 0; j < WARPS; j++)
				tile_copy(to + j * 2048,
					  x.codes + k + j * (ROWS * p.ldb),
					  true);
		} else {
#pragma unroll 1
			for (u32 j = 0; j < WARPS; j++) {
				this->find_row(group_of(w) + j, r, &at, &s, &z);
				tile_copy(to + j * 2048,
					  (const unsigned char *)at + c * 16 +
						  k,
					  true);
			}
		}
		fetch_scales(st + SCALE + i * 16, x.scales[0], kt);
		if (i + FETCH < WIDE)
			fetch_scales(st + SCALE + (i + FETCH) * 16, x.scales[1],
				     kt);
		ring_arrive_behind(full + stage);
	}

	// Its activations, by one thread.
	__device__ __forceinline__ void fetch_rows(u32 stage, const way &w,
						   u32 kt) const
	{
		const unsigned char *image = (const unsigned char *)p.a;
		u64 at = (u64)(w.unit % this->row_tiles) * o.tiles + kt;

		if (threadIdx.x == MULTIPLY)
			ring_copy(smem + stage * STAGE, image + at * CODES,
				  CODES, full + stage);
	}

	__device__ __forceinline__ void fetch_all()
	{
		u32 stage = 0, turn = 0, early = 0;
		source x;
		way w;

		w.at = 0;
		if (!find(w)) {
			cep_wait(); // nobody is done before who went ahead
			return;
		}
		look_up(w, x);
		// none of the first unit's codes is written by who went ahead
		for (; early < STAGES && w.kt + early < w.end; early++)
			fetch(early, w, x, w.kt + early);
		cep_wait();
		do {
			if (w.at)
				look_up(w, x);
#pragma unroll 1
			for (u32 kt = w.kt; kt < w.end; kt++) {
				if (turn)
					ring_wait(empty + stage,
						  (turn - 1) & 1);
				fetch_rows(stage, w, kt);
				if (early)
					early--;
				else
					fetch(stage, w, x, kt);
				if (++stage == STAGES) {
					stage = 0;
					turn++;
				}
			}
			w.at++;
		} while (find(w));
	}

	// ---- multiplying ----

	// Words of rows g and g + 8 of blocks b and b + 1.
	__device__ __forceinline__ void words(const unsigned char *st, int b,
					      u32 *w) const
	{
		u32 r = lane & 15, c = (b + (lane >> 4)) ^ (r & 7);

		load_rows(st + CODES + (warp * 16 + r) * 128 + (c << 4), w);
	}

	// A block's codes as the tensor core takes them, 16 columns at a time.
	__device__ __forceinline__ static void unpack(const u32 *w, u32 *f)
	{
		u32 a[4], b[4];

		unpack8(w[0], a, T());
		unpack8(w[1], b, T());
#pragma unroll
		for (u32 i = 0; i < 2; i++) {
			f[i * 4] = a[2 * i];
			f[i * 4 + 1] = b[2 * i];
			f[i * 4 + 2] = a[2 * i + 1];
			f[i * 4 + 3] = b[2 * i + 1];
		}
	}

	__device__ __forceinline__ void issue(float (*to)[4], const u32 *f,
					      wg_tiles rows, int b) const
	{
		wg_ready();
		wgmma<R, T, 0>(to, f, rows, b / 2 * PART, b % 2 * 2);
		wgmma<R, T, 1>(to, f + 4, rows, b / 2 * PART, b % 2 * 2 + 1);
		wg_commit();
	}

	// Block b's sums times the scales of rows g and g + 8.
	__device__ __forceinline__ void take(float (*from)[4], const u32 *s,
					     int b)
	{
		float s0 = base::tile::nth(s, b);
		float s1 = base::tile::nth(s + 4, b);

		wg_take<R>(from);
#pragma unroll
		for (int n = 0; n < NT; n++) {
			acc[n][0] = fmaf(from[n][0], s0, acc[n][0]);
			acc[n][1] = fmaf(from[n][1], s0, acc[n][1]);
			acc[n][2] = fmaf(from[n][2], s1, acc[n][2]);
			acc[n][3] = fmaf(from[n][3], s1, acc[n][3]);
		}
	}

	__device__ __forceinline__ void multiply(const unsigned char *st,
						 wg_tiles rows, u32 kt)
	{
		const unsigned char *s8 = st + SCALE + (warp * 16 + g) * 16;
		u32 s[8], f[2][8], w[2][4];

		this->template read_values<4>(s8, kt, 0, true, s);
		this->template read_values<4>(s8 + 128, kt, 0, true, s + 4);
		words(st, 0, w[0]);
		unpack(w[0], f[0]);
#pragma unroll
		for (int b = 0; b < 8; b++) {
			const u32 *next = w[(b + 1) / 2 & 1] + (b + 1) % 2 * 2;

			issue(d[TWICE ? b & 1 : 0], f[b & 1], rows, b);
			if (b % 2 == 0 && b < 6)
				words(st, b + 2, w[b / 2 + 1 & 1]);
			if (!TWICE && b < 7)
				unpack(next, f[(b + 1) & 1]);
			if (!TWICE) {
				wg_wait<0>();
				take(d[0], s, b);
			} else if (b) {
				wg_wait<1>();
				take(d[(b - 1) & 1], s, b - 1);
			}
			if (TWICE && b < 7)
				unpack(next, f[(b + 1) & 1]);
		}
		if (TWICE) {
			wg_wait<0>();
			take(d[TWICE], s, 7);
		}
	}

	// All parts of units that are cut are written: whoever is last adds a
	// unit's.  A block has four of them at most.
	__device__ __forceinline__ void meet(u32 *last) const
	{
		way w;

		ring_meet(MULTIPLY);
		w.at = n_whole + threadIdx.x;
		if (threadIdx.x < 4 && find(w))
			last[threadIdx.x] = this->is_last(w);
		ring_meet(MULTIPLY);
		w.at = n_whole;
#pragma unroll 1
		for (; find(w); w.at++)
			if (last[w.at - n_whole])
				this->add_slices(w, MULTIPLY);
	}

	__device__ __forceinline__ void multiply_all(u32 *last)
	{
		wg_tiles first = wg_tiles_at(smem);
		u32 stage = 0, parity = 0, class_end, slice_end;
		way w;

		cep_wait();
		for (w.at = 0; find(w); w.at++) {
			this->clear(acc);
			this->clear(sum);
			this->clear(all);
			class_end = w.kt + o.class_tiles;
			slice_end = w.kt + slice_tiles;
			for (u32 kt = w.kt; kt < w.end; kt++) {
				ring_wait(full + stage, parity);
				multiply(smem + stage * STAGE,
					 wg_further(first, stage * STAGE), kt);
				__syncwarp();
				if (lane == 0)
					ring_arrive(empty + stage);
				if (++stage == STAGES) {
					stage = 0;
					parity ^= 1;
				}
				if (kt + 1 == class_end || kt + 1 == w.end) {
					this->add(sum, acc);
					class_end += o.class_tiles;
				}
				if (kt + 1 == slice_end || kt + 1 == w.end) {
					this->add(all, sum);
					slice_end += slice_tiles;
				}
			}
			this->leave(w);
		}
		if (n_cut)
			meet(last);
	}

	__device__ __forceinline__ void run(unsigned char *raw, u64 *bars,
					    u32 *last)
	{
		cep_trigger();
		smem = raw + (0 - (u64)raw & 1023);
		full = bars;
		empty = bars + STAGES;
		this->share_out();
		if (threadIdx.x == 0)
			for (u32 i = 0; i < STAGES; i++) {
				ring_init(full + i, FETCH + 1);
				ring_init(empty + i, WARPS);
			}
		__syncthreads();
		// as many as the block was given, not one more
		if (threadIdx.x >= MULTIPLY) {
			ring_fewer_registers<56>();
			fetch_all();
		} else {
			ring_more_registers<WARPS == 8 ? 224 : 152>();
			multiply_all(last);
		}
	}
};

#define CEP_WFEW4(name, type, dual, rows, ptype)                               \
	CEP_KERNEL(name, ptype, 32 * (dual ? 12 : 8) + FETCH, 1)               \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		WG_ONLY(__shared__ u64 bars[2 * STAGES_MOST];                  \
			__shared__ u32 last[4];                                \
			wfew4<type, dual, rows, ptype> f(p);                   \
			f.run(raw, bars, last););                              \
	}
#define CEP_WFEW4_ROWS(suffix, type, rows)                                     \
	CEP_WFEW4(cep_wfew4_##rows##_##suffix, type, false, rows,              \
		  cep_mv_tiled)                                                \
	CEP_WFEW4(cep_wfew4d_##rows##_##suffix, type, true, rows,              \
		  cep_mv_dual_tiled)
#define CEP_WFEW4_FORMS(suffix, type)                                          \
	CEP_WFEW4_ROWS(suffix, type, 8)                                        \
	CEP_WFEW4_ROWS(suffix, type, 16)                                       \
	CEP_WFEW4_ROWS(suffix, type, 32)                                       \
	CEP_WFEW4_ROWS(suffix, type, 64)
CEP_WFEW4_FORMS(f16, __half)
CEP_WFEW4_FORMS(bf16, bf16)

// Rows of activations as they lie in stages, tile after tile: of R rows of the
// step each.  Behind their ends there are zeros.  Block (x, y): tile x, rows 16
// y to 16 y + 15; a thread has 32 columns of one.
CEP_KERNEL(cep_image4, cep_image4_params, 128)
{
	u32 c = threadIdx.x % 8, r = blockIdx.y * 16 + threadIdx.x / 8;
	u32 k = blockIdx.x * 256 + c * 32, part = p.rows * WG_ROW;
	unsigned char *to =
		(unsigned char *)p.out +
		(u64)(r / p.rows * gridDim.x + blockIdx.x) * 4 * part +
		c / 2 * part;
	uint4 v[4];

	cep_begin();
	if (p.rows < 16 && r >= p.rows * ((p.m + p.rows - 1) / p.rows))
		return;
#pragma unroll
	for (u32 i = 0; i < 4; i++) {
		v[i] = make_uint4(0, 0, 0, 0);
		if (r < p.m && k + i * 8 < p.k)
			v[i] = in_order(*(const uint4 *)((const __half *)p.a +
							 (u64)r * p.lda + k +
							 i * 8));
	}
	r %= p.rows;
	c = c % 2 * 4;
	*(uint4 *)(to + wg_place(r, c)) =
		make_uint4(v[0].x, v[1].x, v[2].x, v[3].x);
	*(uint4 *)(to + wg_place(r, c + 1)) =
		make_uint4(v[0].y, v[1].y, v[2].y, v[3].y);
	*(uint4 *)(to + wg_place(r, c + 2)) =
		make_uint4(v[0].z, v[1].z, v[2].z, v[3].z);
	*(uint4 *)(to + wg_place(r, c + 3)) =
		make_uint4(v[0].w, v[1].w, v[2].w, v[3].w);
}
