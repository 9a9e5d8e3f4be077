// moe1.cu - a mixture of experts for one row: decoding.
//
// Two kernels.  The first chooses, every block for itself, and multiplies by
// the matrices that gate each other; the second multiplies by the last one and
// adds up what the experts give.  Units (8 outputs of an expert, quarter of K)
// are spread over all SMs; a warp keeps two tiles of 16 rows by 256 columns on
// the way.  Activations lie in shared memory.
//
// In the first, rows of a tile are 8 of either matrix.  In the second they are
// the same 8 of two experts: even columns of the tensor core are the
// activations of one, odd columns those of the other.
//
// Order of sums, of K alone, as in moe.cu: products of a block of 32 columns in
// the tensor core; times its scale, block by block, over a quarter; the
// quarters; the experts.
#include "modules/cuda_ep/kernels/moe.cuh"

#define TILE 256
#define SCALES 2048
#define ZEROS 2304

// ---- choosing ----

// What choose() does, by all warps of a block: 32 experts each are put in
// order, then the best of each among all.  keys has room for 2 experts.
__device__ __forceinline__ void choose_all(const cep_moe_route &p, u32 *keys,
					   u32 *ids, float *w, bool tell)
{
	u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;
	u32 groups = (p.experts + 31) / 32, kept = p.k < 32 ? p.k : 32;
	u32 *es = keys + groups * kept, n = groups * kept;
	float first, sum = 0;

	for (u32 i = warp; i < groups; i += blockDim.x / 32) {
		u32 e = i * 32 + lane, key = 0, rank = 0;

		if (e < p.experts) {
			float x = load_as(p.logits, p.dt, e);

			key = key_of(x);
			if (tell && !(x < INFINITY))
				cep_refuse(p.blame, CEP_FAULT_ROUTER, 0, 1);
		}
#pragma unroll
		for (u32 j = 0; j < 32; j++) {
			u32 o = __shfl_sync(0xffffffffu, key, j);

			rank += o > key || (o == key && j < lane);
		}
		if (rank < kept) {
			keys[i * kept + rank] = key;
			es[i * kept + rank] = e;
		}
	}
	__syncthreads();
	for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
		u32 key = keys[i], rank = 0;

#pragma unroll 8
		for (u32 j = 0; j < n; j++)
			rank += keys[j] > key || (keys[j] == key && j < i);
		if (rank < p.k) {
			ids[rank] = es[i];
			w[rank] = of_key(key);
		}
	}
	__syncthreads();
	if (warp)
		return;
	first = w[0];
	__syncwarp();
	if (tell && lane == 0 && first == -INFINITY)
		cep_refuse(p.blame, CEP_FAULT_ROUTER, 0, 0);
	for (u32 i = lane; i < p.k; i += 32)
		w[i] = p.own ? load_as(p.own, p.own_dt, ids[i])
			     : expf(w[i] - first);
	__syncwarp();
	if (p.normalize) {
#pragma unroll 4
		for (u32 i = 0; i < p.k; i++)
			sum += w[i];
	} else if (p.own) {
		sum = 1;
	} else {
		for (u32 e = lane; e < p.experts; e += 32)
			sum += expf(of_key(key_of(load_as(p.logits, p.dt, e))) -
				    first);
		sum = warp_sum(sum);
	}
	__syncwarp();
	for (u32 i = lane; i < p.k; i += 32)
		w[i] /= sum;
}

// ---- products ----

// A warp's way through its tiles: row group, class, tile.
struct moe1_at {
	u32 rg, c, kt, end;
};

template <class T, bool ZP, bool LAST> struct moe1 {
	static constexpr u32 STAGE = ZP ? 2816 : 2304;
	const cep_moe1 &q;
	const cep_moe &p;
	u32 lane, warp, warps, g, t, nb, first, n_rg;
	u32 per; // row groups of an expert; of the same outputs
	unsigned char *ring;
	const unsigned char *xs;
	u32 x_row;
	float *slot, *bias; // bias: of a row group's 16 rows
	u32 *ids;
	float *weights;
	u64 *lies; // of the experts chosen, where they lie apart
	// what the lane brings: codes of rows lane / 8 of either half and four
	// further on, scales
	const unsigned char *w[2];
	u32 further;
	const T *s;
	float acc[2];

	__device__ __forceinline__ moe1(const cep_moe1 &params)
	    : q(params), p(params.m)
	{
		u32 heads = (p.n + 7) / 8;

		lane = threadIdx.x & 31;
		warp = threadIdx.x / 32;
		warps = blockDim.x / 32;
		g = lane / 4;
		t = lane % 4;
		nb = p.k / 32;
		per = LAST ? (q.r.k + 1) / 2 : heads;
		first = blockIdx.x * q.groups;
		n_rg = (LAST ? heads : q.r.k * heads) - first;
		n_rg = n_rg < q.groups ? n_rg : q.groups;
		n_rg *= LAST ? per : 1;
		x_row = q.tiles * 512 + 64;
	}

	// Rows of a row group: outputs from o on, of the experts chosen a and
	// b.
	struct rows {
		u32 o, a, b;
	};
	__device__ __forceinline__ rows rows_of(u32 rg) const
	{
		u32 i = LAST ? rg : first + rg, j = i / per;
		rows r;

		i -= j * per;
		if (LAST) {
			r.o = (first + j) * 8;
			r.a = i * 2;
			// nobody reads that of the last one twice
			r.b = r.a + 1 < q.r.k ? r.a + 1 : r.a;
		} else {
			r.o = i * 8;
			r.a = r.b = j;
		}
		return r;
	}

	__device__ __forceinline__ u32 output(const rows &at, u32 r) const
	{
		u32 o = at.o + (r & 7);

		return o < p.n ? o : p.n - 1;
	}
	__device__ __forceinline__ const cep_moe_mat &mat_of(u32 r) const
	{
		return p.m[LAST ? 0 : r / 8];
	}
	// Row r of 16 in its expert's matrix, and among those of all experts.
	__device__ __forceinline__ u32 row_of(const rows &at, u32 r) const
	{
		return output(at, r) * p.row_mul +
		       (LAST ? 0 : r / 8 * p.row_add);
	}
	__device__ __forceinline__ bool apart() const
	{
		return p.m[0].apart | p.m[1].apart;
	}

	// Codes (0) and scales (1) of the expert of row r.
	__device__ __forceinline__ const unsigned char *
	part(const rows &at, u32 r, u32 which, u64 bytes) const
	{
		u32 j = r < 8 ? at.a : at.b, h = LAST ? 0 : r / 8;
		const cep_moe_mat &m = p.m[h];

		return apart() ? (const unsigned char *)
					 lies[(h * 2 + which) * q.r.k + j]
			       : part_of(which ? m.scales : m.w, 0, ids[j],
					 bytes);
	}

	// Looked up once: all row groups of an expert lie in the same place.
	__device__ __forceinline__ void look_up()
	{
		for (u32 i = threadIdx.x; i < (LAST ? 2 : 4) * q.r.k;
		     i += blockDim.x) {
			u32 at = i / q.r.k, e = ids[i - at * q.r.k];
			const cep_moe_mat &m = p.m[at / 2];
			u64 bytes = (u64)m.rows *
				    (at & 1 ? p.m[0].n_blocks * sizeof(T)
					    : p.k / 2);

			lies[i] = (u64)part_of(
				at & 1 ? m.scales : m.w,
				m.apart &
					(at & 1 ? CEP_APART_SCALES
						: CEP_APART_W),
				e, bytes);
		}
		__syncthreads();
	}

	__device__ __forceinline__ void find(u32 rg)
	{
		u32 r = p.async ? lane >> 1 : lane & 15;
		const rows at = rows_of(rg);

#pragma unroll
		for (u32 h = 0; h < 2; h++) {
			u32 row = h * 8 + lane / 8;

			w[h] = part(at, row, 0,
				    (u64)mat_of(row).rows * (p.k / 2)) +
			       (u64)row_of(at, row) * (p.k / 2) +
			       (lane & 7) * 16;
		}
		further = (output(at, lane / 8 + 4) - output(at, lane / 8)) *
			  p.row_mul * (p.k / 2);
		s = (const T *)part(at, r, 1,
				    (u64)mat_of(r).rows * p.m[0].n_blocks *
					    sizeof(T)) +
		    (u64)row_of(at, r) * p.m[0].n_blocks +
		    (p.async ? (lane & 1) * 4 : 0);
	}

	__device__ __forceinline__ u32 block_of(u32 c) const
	{
		u32 b = c >> p.shift;

		return b < p.m[0].n_blocks ? b : p.m[0].n_blocks - 1;
	}

	__device__ __forceinline__ void zeros(unsigned char *st, u32 rg,
					      u32 kt) const
	{
		u32 r = lane & 15, e = lane / 16 * 4;
		const rows at = rows_of(rg);
		u32 expert = ids[r < 8 ? at.a : at.b];

		for (u32 i = e; i < e + 4; i++)
			((float *)(st + ZEROS + r * 32))[i] =
				zero_of<T>(mat_of(r), expert, row_of(at, r),
					   block_of(kt * 8 + i)) -
				8.f;
	}

	__device__ __forceinline__ void fetch(unsigned char *st,
					      const moe1_at &c) const
	{
		u32 at = lane & 7, r = lane / 8, kt = c.kt;
		unsigned char *to = st + r * 128;
		bool on = kt * 8 + at < nb;

#pragma unroll
		for (u32 h = 0; h < 2; h++) {
			const unsigned char *from = w[h] + kt * 128;

			tile_copy(to + h * 1024 + ((at ^ r) << 4), from, on);
			tile_copy(to + h * 1024 + 512 + ((at ^ r ^ 4) << 4),
				  from + further, on);
		}
		if (p.async) { // two scales at a time
			u32 b = kt * 8 + (lane & 1) * 4;

#pragma unroll
			for (u32 i = 0; i < 4; i += 2)
				copy_small<4>(st + SCALES + lane * 8 + i * 2,
					      s + kt * 8 + i,
					      b + i < p.m[0].n_blocks);
		} else {
			u32 e = lane / 16 * 4;

			for (u32 i = e; i < e + 4; i++)
				((T *)(st + SCALES + (lane & 15) * 16))[i] =
					s[block_of(kt * 8 + i)];
		}
		if (ZP)
			zeros(st, c.rg, kt);
	}

	__device__ __forceinline__ void set(moe1_at &c) const
	{
		c.kt = c.c * q.quarter;
		c.end = c.kt + q.quarter;
		c.end = c.end < q.tiles ? c.end : q.tiles;
	}
	__device__ __forceinline__ moe1_at begin() const
	{
		moe1_at c;

		c.rg = warp / q.n_class;
		c.c = warp % q.n_class;
		set(c);
		return c;
	}
	// To the next tile; true if a class ended.
	__device__ __forceinline__ bool advance(moe1_at &c) const
	{
		if (++c.kt < c.end)
			return false;
		c.rg += warps / q.n_class;
		c.c += warps % q.n_class;
		if (c.c >= q.n_class) {
			c.c -= q.n_class;
			c.rg++;
		}
		set(c);
		return true;
	}

	__device__ __forceinline__ void ask(unsigned char *st, moe1_at &in)
	{
		if (in.rg < n_rg) {
			fetch(st, in);
			if (advance(in) && in.rg < n_rg)
				find(in.rg);
		}
		tile_commit();
	}

	__device__ __forceinline__ static float scale(u32 two, u32 b)
	{
		return b & 1 ? high(two, T()) : low(two, T());
	}

	// x: activations of the lane's column, from the tile's first on.
	__device__ __forceinline__ void multiply(const unsigned char *st,
						 const unsigned char *x)
	{
		const unsigned char *row = st + (lane & 15) * 128;
		u32 sw = (lane >> 4) ^ (lane & 7), c[4];
		cep_pack s0, s1; // the eight scales of rows g and g + 8

		s0.v = *(const uint4 *)(st + SCALES + g * 16);
		s1.v = *(const uint4 *)(st + SCALES + g * 16 + 128);
#pragma unroll
		for (u32 b = 0; b < 8; b++) {
			uint4 v = *(const uint4 *)(x + b * 64);
			float d[4] = {0, 0, 0, 0};
			u32 h[8];

			if (!(b & 1))
				load_rows(row + ((sw ^ b) << 4), c);
			unpack8(c[b & 1 ? 2 : 0], h, T());
			unpack8(c[b & 1 ? 3 : 1], h + 4, T());
			mma16(d, h[0], h[4], h[1], h[5], v.x, v.y, T());
			mma16(d, h[2], h[6], h[3], h[7], v.z, v.w, T());
			if (ZP) {
				const float *z =
					(const float *)(st + ZEROS + g * 32);
				float e[4] = {0, 0, 0, 0};
				u32 l = ones(T());

				mma16(e, l, l, l, l, v.x, v.y, T());
				mma16(e, l, l, l, l, v.z, v.w, T());
				d[0] = fmaf(-z[b], e[0], d[0]);
				d[3] = fmaf(-z[64 + b], e[1], d[3]);
			}
			acc[0] = fmaf(d[0], scale(s0.u[b / 2], b), acc[0]);
			acc[1] = fmaf(d[3], scale(s1.u[b / 2], b), acc[1]);
		}
	}

	// The lane's column of a row group: odd ones are of the second expert.
	__device__ __forceinline__ const unsigned char *column(u32 rg) const
	{
		const rows at = rows_of(rg);

		return xs + t * 16 + (LAST ? (g & 1 ? at.b : at.a) * x_row : 0);
	}

	__device__ __forceinline__ void walk(moe1_at c, moe1_at in)
	{
		unsigned char *st = ring;
		const unsigned char *x = column(c.rg);

		acc[0] = acc[1] = 0;
		while (c.rg < n_rg) {
			float *to = slot + (c.rg * q.n_class + c.c) * 16;

			tile_wait<1>();
			__syncwarp();
			multiply(st, x + c.kt * 512);
			__syncwarp(); // all lanes have read the stage
			ask(st, in);
			if (advance(c)) {
				if (t == 0) {
					to[g] = acc[0];
					to[g + 8] = acc[1];
				}
				acc[0] = acc[1] = 0;
				x = column(c.rg);
			}
			st = st == ring ? ring + STAGE : ring;
		}
	}

	// A row of activations to shared memory, in order, zeros behind the
	// end.
	__device__ __forceinline__ void stage(unsigned char *to, const T *from,
					      u32 i) const
	{
		cep_pack v;

		v.v = make_uint4(0, 0, 0, 0);
		if (i * 8 < p.k && p.vec)
			v.v = ((const uint4 *)from)[i];
		else if (i * 8 < p.k)
			for (int e = 0; e < 8; e++)
				((T *)&v)[e] = from[i * 8 + e];
		*(uint4 *)(to + i * 16) = in_order(v.v);
	}

	__device__ __forceinline__ void stage_all(unsigned char *x) const
	{
		u32 n = q.tiles * 32;

#pragma unroll 2
		for (u32 i = threadIdx.x; i < (LAST ? q.r.k : 1) * n;
		     i += blockDim.x) {
			u32 j = LAST ? i / n : 0;

			stage(x + j * x_row, (const T *)p.x + j * p.k,
			      i - j * n);
		}
		for (u32 i = threadIdx.x; i < n_rg * 16; i += blockDim.x) {
			const rows at = rows_of(i / 16);
			u32 r = i % 16;

			bias[i] = bias_of<T>(p, LAST ? 0 : r / 8,
					     ids[r < 8 ? at.a : at.b],
					     output(at, r));
		}
	}

	// Classes to the sum.
	__device__ __forceinline__ float sum_of(u32 i) const
	{
		const float *at = slot + i / 16 * q.n_class * 16 + i % 16;
		float v = 0;

#pragma unroll
		for (u32 c = 0; c < 4; c++)
			v += c < q.n_class ? at[c * 16] : 0.f;
		return v + bias[i];
	}

	__device__ __forceinline__ void finish_first() const
	{
		for (u32 i = threadIdx.x; i < n_rg * 8; i += blockDim.x) {
			const rows at = rows_of(i / 8);
			u32 o = at.o + i % 8, r = i / 8 * 16 + i % 8;

			if (o < p.n)
				emit<T>(p, at.a, o, sum_of(r), sum_of(r + 8));
		}
	}

	__device__ __forceinline__ void finish_last()
	{
		for (u32 i = threadIdx.x; i < n_rg * 16; i += blockDim.x)
			bias[i] = sum_of(i);
		__syncthreads();
		for (u32 i = threadIdx.x; i < n_rg / per * 8; i += blockDim.x) {
			const float *y = bias + i / 8 * per * 16 + i % 8;
			u32 o = first * 8 + i;
			float v = 0;

#pragma unroll 4
			for (u32 j = 0; j < q.r.k; j++)
				v = fmaf(weights[j], y[j * 8], v);
			if (o < p.n)
				((T *)q.sum)[o] = from_f<T>(v);
		}
	}

	// The experts chosen and what they count for.
	__device__ __forceinline__ void
	copy(u32 *to, float *to_w, const u32 *from, const float *from_w) const
	{
		for (u32 i = threadIdx.x; i < q.r.k; i += blockDim.x) {
			to[i] = from[i];
			to_w[i] = from_w[i];
		}
	}

	__device__ __forceinline__ void run(unsigned char *smem)
	{
		unsigned char *x = smem + warps * 2 * STAGE;
		moe1_at in = begin(), c = in;

		ring = smem + warp * 2 * STAGE;
		xs = x;
		slot = (float *)(x + (LAST ? q.r.k : 1) * x_row);
		bias = slot + n_rg * q.n_class * 16;
		weights = bias + n_rg * 16;
		ids = (u32 *)(weights + q.r.k);
		lies = (u64 *)(ids + q.r.k);
		cep_begin();
		if (LAST)
			copy(ids, weights, (const u32 *)q.r.ids,
			     (const float *)q.r.weights);
		else
			choose_all(q.r, (u32 *)smem, ids, weights,
				   blockIdx.x == 0);
		__syncthreads();
		if (apart())
			look_up();
		if (in.rg < n_rg)
			find(in.rg);
		ask(ring, in);
		ask(ring + STAGE, in);
		if (!LAST && blockIdx.x == 0) {
			copy((u32 *)q.r.ids, (float *)q.r.weights, ids,
			     weights);
			for (u32 i = threadIdx.x; i < q.r.k; i += blockDim.x)
				count_use(q.r, ids[i]);
		}
		stage_all(x);
		__syncthreads();
		walk(c, in);
		__syncthreads();
		if (LAST)
			finish_last();
		else
			finish_first();
	}
};

#define CEP_MOE1(name, type, zp, last)                                         \
	CEP_KERNEL(name, cep_moe1, 768)                                        \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		moe1<type, zp, last>(p).run(raw);                              \
	}
CEP_MOE1(cep_moe1_f16_0, __half, false, false)
CEP_MOE1(cep_moe1_f16_1, __half, true, false)
CEP_MOE1(cep_moe1_last_f16_0, __half, false, true)
CEP_MOE1(cep_moe1_last_f16_1, __half, true, true)
CEP_MOE1(cep_moe1_bf16_0, bf16, false, false)
CEP_MOE1(cep_moe1_bf16_1, bf16, true, false)
CEP_MOE1(cep_moe1_last_bf16_0, bf16, false, true)
CEP_MOE1(cep_moe1_last_bf16_1, bf16, true, true)
