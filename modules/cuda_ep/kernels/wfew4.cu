// wfew4.cu - few4.cu for many rows on compute capability 9.0: the same products
// with the same bits by the tensor core's instructions for four warps. Matrices
// without zero points.
//
// A unit is 128 rows of the matrix, 16 a warp, by R rows of the step; few.cuh
// says who does what, and in which order.  A block walks over K in slabs of 128
// columns, which are four blocks of 32.  A stage holds a slab, 25 KiB for R =
// 64:
//
//	twice R rows of 64 activations  128 bytes each, as wgmma.cuh says
//	128 rows of 128 codes           64 bytes each, pieces of 16 in an order
//	                                that spares the banks
//	128 rows of 4 scales            8 bytes each
//
// A word of eight codes is unpacked in the order of unpack8 (mma.cuh), so that
// activations must be in that order, too: whoever copied them turns them within
// their stage, a slab before they are needed.
//
// While the tensor core multiplies one block of 32, the sums of the one before
// are multiplied with its scales and added: d is there twice.  Nothing is on
// the way where the path divides, or the compiler would wait after each
// product.
#include "modules/cuda_ep/kernels/few.cuh"
#include "modules/cuda_ep/kernels/wgmma.cuh"

#define SLABS 2 // of a tile

template <class T, bool DUAL, int R, class P>
struct wfew4 : few<T, CEP_ZP_NONE, DUAL, R, 1, P> {
	typedef few<T, CEP_ZP_NONE, DUAL, R, 1, P> base;
	using base::acc;
	using base::all;
	using base::g;
	using base::group_of;
	using base::lane;
	using base::NT;
	using base::o;
	using base::p;
	using base::q;
	using base::row_of;
	using base::slice_tiles;
	using base::sum;
	using base::t;
	using base::warp;
	static constexpr u32 THREADS = 32 * FEW_WARPS, WIDE = FEW_WARPS * 16;
	static constexpr u32 HALF = R * WG_ROW; // activations of 64 columns
	static constexpr u32 CODES = 2 * HALF, SCALE = CODES + WIDE * 64;
	static constexpr u32 STAGE = SCALE + WIDE * 8;
	static constexpr u32 COPIES = R * 8 / THREADS; // of a half

	// Where a block is: the slab of a unit or slice.
	struct place {
		way w;
		u32 slab, end;
		u32 stage;
	};

	unsigned char *smem;
	u32 slabs, ahead; // of K; on the way
	// what this thread fetches next: its row of codes, of scales, of
	// activations
	const unsigned char *codes[2];
	const T *scales;
	const T *row[COPIES];
	u32 row_on;
	float d[2][NT][4];

	__device__ __forceinline__ wfew4(const P &params) : base(params)
	{
	}

	__device__ __forceinline__ unsigned char *stage_of(const place &x) const
	{
		return smem + x.stage * STAGE;
	}

	__device__ __forceinline__ bool begin(place &x) const
	{
		bool there = this->find(x.w);

		x.slab = x.w.kt * SLABS;
		x.end = x.w.end * SLABS;
		x.end = x.end < slabs ? x.end : slabs;
		return there;
	}

	// To the next slab; false: there is none.
	__device__ __forceinline__ bool advance(place &x) const
	{
		x.stage = x.stage == p.depth - 1 ? 0 : x.stage + 1;
		if (++x.slab < x.end)
			return true;
		x.w.at++;
		return begin(x);
	}

	// What this thread fetches of a unit: a piece of 32 columns of two
	// rows' codes, the scales of a row.
	__device__ __forceinline__ void find_all(const way &w)
	{
		u32 m0 = row_of(w), r;
		u64 at, s, z;

#pragma unroll
		for (u32 i = 0; i < 2; i++) {
			r = threadIdx.x / 4 + i * 64;
			this->find_row(group_of(w) + r / 16, r % 16, &at, &s,
				       &z);
			codes[i] = (const unsigned char *)at +
				   threadIdx.x % 4 * 16;
		}
		r = threadIdx.x / 2;
		this->find_row(group_of(w) + r / 16, r % 16, &at, &s, &z);
		scales = (const T *)s;
		row_on = 0;
#pragma unroll
		for (u32 i = 0; i < COPIES; i++) {
			u32 m = m0 + threadIdx.x / 8 + i * (THREADS / 8);
			bool on = m < p.m;

			row_on |= (u32)on << i;
			row[i] = (const T *)p.a + (u64)(on ? m : 0) * p.lda +
				 threadIdx.x % 8 * 8;
		}
	}

	// Piece c of the codes of row r, 16 bytes.
	__device__ __forceinline__ static u32 codes_at(u32 r, u32 c)
	{
		return CODES + r * 64 + ((c ^ (r >> 1 & 3)) << 4);
	}

	// Behind K there are no activations, so that any codes will do.
	__device__ __forceinline__ void fetch(const place &x) const
	{
		unsigned char *st = stage_of(x);
		u32 r = threadIdx.x / 4, c = threadIdx.x % 4, k = x.slab * 64;
		u32 half = threadIdx.x % 2, b = x.slab * 4 + half * 2;

		if (k + c * 16 >= p.k / 2)
			k -= 32;
#pragma unroll
		for (u32 i = 0; i < 2; i++)
			tile_copy(st + codes_at(r + i * 64, c), codes[i] + k,
				  true);
		b = b >> o.shift & ~1u;
		b = b < p.n_blocks ? b : p.n_blocks - 2;
		copy_small<4>(st + SCALE + threadIdx.x * 4, scales + b, true);
	}

	__device__ __forceinline__ void fetch_rows(const place &x) const
	{
		unsigned char *to = stage_of(x) +
				    wg_place(threadIdx.x / 8, threadIdx.x % 8);

#pragma unroll
		for (u32 h = 0; h < 2; h++)
#pragma unroll
			for (u32 i = 0; i < COPIES; i++) {
				bool on = row_on >> i & 1 &&
					  x.slab * 128 + h * 64 < p.k;

				tile_copy(to + h * HALF +
						  i * (THREADS / 8) * WG_ROW,
					  row[i] + (on ? x.slab * 128 + h * 64
						       : 0),
					  on);
			}
	}

	// What this warp copied, eight activations a piece, in the order of
	// unpack8: word t of four pieces of the block is piece t's.
	__device__ __forceinline__ void turn(unsigned char *st) const
	{
		u32 r = threadIdx.x / 8, c = threadIdx.x % 8;
		uint4 v[2 * COPIES];

		__syncwarp();
#pragma unroll
		for (u32 i = 0; i < 2 * COPIES; i++)
			v[i] = *(const uint4 *)(st + wg_place(r, c) + part(i));
		__syncwarp();
#pragma unroll
		for (u32 i = 0; i < 2 * COPIES; i++) {
			unsigned char *to = st + part(i) + c % 4 * 4;
			uint4 x = in_order(v[i]);
			u32 first = c & 4;

			*(u32 *)(to + wg_place(r, first)) = x.x;
			*(u32 *)(to + wg_place(r, first + 1)) = x.y;
			*(u32 *)(to + wg_place(r, first + 2)) = x.z;
			*(u32 *)(to + wg_place(r, first + 3)) = x.w;
		}
	}
	__device__ __forceinline__ static u32 part(u32 i)
	{
		return i / COPIES * HALF + i % COPIES * (THREADS / 8) * WG_ROW;
	}

	// Words of rows g and g + 8: of block b, of the next.
	__device__ __forceinline__ void words(const unsigned char *st, u32 b,
					      u32 *w) const
	{
		load_rows(
			st + codes_at(warp * 16 + (lane & 15), b + (lane >> 4)),
			w);
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

	// Block b of a slab, to(its sums); w its words.
	__device__ __forceinline__ void issue(float (*to)[4], const u32 *w,
					      u32 *f, const unsigned char *st,
					      int b)
	{
		const unsigned char *half = st + b / 2 * HALF;

		unpack(w, f);
		wg_ready();
		wgmma<R, T, 0>(to, f, half, b % 2 * 2);
		wgmma<R, T>(to, f + 4, half, b % 2 * 2 + 1);
		wg_commit();
	}

	// Block b's sums times the scales of rows g and g + 8, which are there
	// in pairs.
	__device__ __forceinline__ void take(float (*from)[4], const u32 *low8,
					     const u32 *high8, u32 slab, int b)
	{
		bool up = o.shift ? (slab * 4 + b) >> o.shift & 1 : b % 2;
		u32 l = low8[b / 2], h = high8[b / 2];
		float s0 = up ? high(l, T()) : low(l, T());
		float s1 = up ? high(h, T()) : low(h, T());

		wg_take<R>(from);
#pragma unroll
		for (int n = 0; n < NT; n++) {
			acc[n][0] = fmaf(from[n][0], s0, acc[n][0]);
			acc[n][1] = fmaf(from[n][1], s0, acc[n][1]);
			acc[n][2] = fmaf(from[n][2], s1, acc[n][2]);
			acc[n][3] = fmaf(from[n][3], s1, acc[n][3]);
		}
	}

	// The slabs that are on the way but for two have until their turn.
	__device__ __forceinline__ void wait() const
	{
		if (p.depth >= 8)
			tile_wait<5>();
		else if (p.depth >= 5)
			tile_wait<2>();
		else
			tile_wait<0>();
	}

	// A slab; the next one's activations are turned meanwhile.
	__device__ __forceinline__ void multiply(const place &x,
						 unsigned char *next)
	{
		const unsigned char *st = stage_of(x);
		const u32 *s = (const u32 *)(st + SCALE) + (warp * 16 + g) * 2;
		u32 w[8], f[2][8];
		u32 l[2] = {s[0], s[1]}, h[2] = {s[16], s[17]};

		words(st, 0, w);
		words(st, 2, w + 4);
		issue(d[0], w, f[0], st, 0);
		issue(d[1], w + 2, f[1], st, 1);
		wg_wait<1>();
		take(d[0], l, h, x.slab, 0);
		issue(d[0], w + 4, f[0], st, 2);
		wg_wait<1>();
		take(d[1], l, h, x.slab, 1);
		issue(d[1], w + 6, f[1], st, 3);
		turn(next);
		wg_wait<1>();
		take(d[0], l, h, x.slab, 2);
		wg_wait<0>();
		take(d[1], l, h, x.slab, 3);
	}

	__device__ __forceinline__ void run(unsigned char *raw, u32 *last)
	{
		u32 class_end, slice_end, reach;
		bool more, fetches;
		place x, in;

		cep_trigger();
		smem = raw + (0 - (u64)raw & 1023);
		slabs = (p.k + 127) / 128;
		reach = p.depth - 1;
		this->share_out();
		x.w.at = 0;
		x.stage = 0;
		more = begin(x);
		in = x;
		if (!more) {
			cep_wait(); // nobody is done before who went ahead
			return;
		}
		// none of the first unit's codes is written by who went ahead
		find_all(in.w);
		for (u32 i = 0; i < reach && in.w.at == 0; i++) {
			fetch(in);
			advance(in);
		}
		cep_wait();
		in = x;
		fetches = true;
		for (u32 i = 0; i < reach; i++)
			fetches = bring(in, fetches, x.w.at == in.w.at);
		wait();
		turn(stage_of(x));
		this->clear(acc);
		this->clear(sum);
		this->clear(all);
		class_end = x.slab + o.class_tiles * SLABS;
		slice_end = x.slab + slice_tiles * SLABS;
		while (more) {
			place now = x;

			more = advance(x);
			wait();
			wg_publish();
			__syncthreads(); // here, and a stage is free
			fetches = bring(in, fetches, false);
			multiply(now, stage_of(x));
			if (now.slab + 1 == class_end ||
			    now.slab + 1 == now.end) {
				this->add(sum, acc);
				class_end += o.class_tiles * SLABS;
			}
			if (now.slab + 1 == slice_end ||
			    now.slab + 1 == now.end) {
				this->add(all, sum);
				slice_end += slice_tiles * SLABS;
			}
			if (now.slab + 1 < now.end)
				continue;
			this->leave(now.w);
			this->clear(all);
			if (now.w.cut)
				this->gather(now.w, last);
			class_end = x.slab + o.class_tiles * SLABS;
			slice_end = x.slab + slice_tiles * SLABS;
		}
	}

	// The next slab, if there is one; its codes may be on the way.
	__device__ __forceinline__ bool bring(place &in, bool fetches,
					      bool only_rows)
	{
		u32 was = in.w.at;

		if (fetches) {
			if (!only_rows)
				fetch(in);
			fetch_rows(in);
			fetches = advance(in);
			if (fetches && in.w.at != was)
				find_all(in.w);
		}
		tile_commit();
		return fetches;
	}
};

#define CEP_WFEW4(name, type, dual, ptype)                                     \
	CEP_KERNEL(name, ptype, 32 * FEW_WARPS, 1)                             \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		WG_ONLY(__shared__ u32 last;                                   \
			wfew4<type, dual, 64, ptype> f(p);                     \
			f.run(raw, &last););                                   \
	}
CEP_WFEW4(cep_wfew4_f16, __half, false, cep_mv_tiled)
CEP_WFEW4(cep_wfew4d_f16, __half, true, cep_mv_dual_tiled)
CEP_WFEW4(cep_wfew4_bf16, bf16, false, cep_mv_tiled)
CEP_WFEW4(cep_wfew4d_bf16, bf16, true, cep_mv_dual_tiled)
