// moe.cu - mixtures of experts: which experts a row takes, their products, the
// sum of what they give.
//
// A pair is a row and one of the k experts that it chose.  The pairs of an
// expert are put together, and as many of them as a block takes are an item:
// so a step of one row reads the weights of its k experts and no others, and
// one of many rows reads those of an expert once for 8 or 32 of its rows.  All
// of it is decided on the device; a grid is as large as the most items there
// can be.
//
// A pair's result depends on its own row alone: columns of the tensor core, and
// sums of a lane, know nothing of each other.
#include "modules/cuda_ep/kernels/moe.cuh"

// One block: a warp a row, then a thread an expert, whose pairs it finds.
CEP_KERNEL(cep_moe_choose, cep_moe_route, 1024)
{
	__shared__ u32 n_of[CEP_EXPERTS];
	const u32 *ids = (const u32 *)p.ids;
	u32 e = threadIdx.x, n = p.rows * p.k, count = 0, at = 0, item = 0;

	cep_begin();
	for (u32 m = threadIdx.x / 32; m < p.rows; m += blockDim.x / 32)
		choose(p, m, (u32 *)p.ids + (u64)m * p.k,
		       (float *)p.weights + (u64)m * p.k, true);
	if (p.rows == 1) { // those of a single row are an item each
		for (u32 i = e; e < 32 && i < p.k; i += 32) {
			((uint4 *)p.items)[i] = make_uint4(ids[i], i, 1, 0);
			((u32 *)p.pairs)[i] = i;
			count_use(p, ids[i]);
		}
		if (e == 0)
			*(u32 *)p.n_items = p.k;
		return;
	}
	__syncthreads();
	for (u32 i = 0; e < p.experts && i < n; i++)
		count += ids[i] == e;
	if (e < p.experts)
		n_of[e] = count;
	if (count)
		count_use(p, e);
	__syncthreads();
	if (e >= p.experts)
		return;
	for (u32 i = 0; i < e; i++) {
		at += n_of[i];
		item += (n_of[i] + p.group - 1) / p.group;
	}
	for (u32 i = 0; i < count; i += p.group)
		((uint4 *)p.items)[item++] = make_uint4(
			e, at + i, count - i < p.group ? count - i : p.group,
			0);
	if (e == p.experts - 1)
		*(u32 *)p.n_items = item;
	for (u32 i = 0; count && i < n; i++)
		if (ids[i] == e)
			((u32 *)p.pairs)[at++] = i;
}

// ---- 4 bits, blocks of 32 and more ----
//
// A block takes 16 rows of an expert's matrix (8 of either, where two are
// multiplied and one gates the other) for an item of up to 8 NT pairs.  Its
// four warps take a quarter of K each, in tiles of 256 columns, 2,048 bytes of
// codes and 256 of scales, of which DEPTH are on the way.  A column of the
// tensor core is a pair.
//
// Order of sums, of K alone: products of a block of 32 columns in the tensor
// core; times its scale, block by block, over a quarter; the quarters.
#define TILE 256
#define DEPTH 3 // as in op_moe.c
#define WARPS 4 // the same
#define SCALES 2048
#define ZEROS 2304

template <class T, int NT, bool ZP> struct moe4 {
	static constexpr u32 STAGE = ZP ? 2816 : 2304;
	const cep_moe &p;
	u32 lane, warp, g, t, nb, rg, expert, count;
	const unsigned char *w[4]; // rows lane / 8 + 4 i
	const T *s;		   // of the row whose scales the lane brings
	const T *x[NT];		   // of pair 8 n + g; 0: none
	float acc[NT][4];

	__device__ __forceinline__ moe4(const cep_moe &params) : p(params)
	{
		lane = threadIdx.x & 31;
		warp = threadIdx.x / 32;
		g = lane / 4;
		t = lane % 4;
		nb = p.k / 32;
		rg = blockIdx.x;
	}

	// The matrix of row r of the tile, and where it is in it.
	__device__ __forceinline__ u32 row_of(u32 r) const
	{
		u32 o = p.dual ? rg * 8 + (r & 7) : rg * 16 + r;

		o = o < p.n ? o : p.n - 1;
		return o * p.row_mul + (p.dual && r > 7 ? p.row_add : 0);
	}
	__device__ __forceinline__ const cep_moe_mat &mat_of(u32 r) const
	{
		return p.m[p.dual && r > 7];
	}
	__device__ __forceinline__ void find(const uint4 &item)
	{
		u32 r = p.async ? lane >> 1 : lane & 15;

		expert = item.x;
		count = item.z;
#pragma unroll
		for (u32 i = 0; i < 4; i++) {
			u32 k = lane / 8 + 4 * i;

			w[i] = part_of(mat_of(k).w,
				       mat_of(k).apart & CEP_APART_W, expert,
				       (u64)mat_of(k).rows * (p.k / 2)) +
			       (u64)row_of(k) * (p.k / 2);
		}
		s = (const T *)part_of(mat_of(r).scales,
				       mat_of(r).apart & CEP_APART_SCALES,
				       expert,
				       (u64)mat_of(r).rows * p.m[0].n_blocks *
					       sizeof(T)) +
		    (u64)row_of(r) * p.m[0].n_blocks;
	}

	// Asked for behind the first tiles, which do not depend on it.
	__device__ __forceinline__ void find_inputs(const uint4 &item)
	{
#pragma unroll
		for (u32 n = 0; n < NT; n++) {
			u32 c = n * 8 + g;

			x[n] = 0;
			if (c < count)
				x[n] = (const T *)p.x +
				       (u64)(((const u32 *)
						      p.pairs)[item.y + c] /
					     p.slots) *
					       p.k;
#pragma unroll
			for (int i = 0; i < 4; i++)
				acc[n][i] = 0;
		}
	}

	__device__ __forceinline__ u32 block_of(u32 c) const
	{
		u32 b = c >> p.shift;

		return b < p.m[0].n_blocks ? b : p.m[0].n_blocks - 1;
	}

	__device__ __forceinline__ void fetch(unsigned char *st, u32 kt) const
	{
		u32 at = lane & 7, kb = kt * 8 + at;
		u32 r = lane & 15, e = lane / 16 * 4;

#pragma unroll
		for (u32 i = 0; i < 4; i++) {
			u32 k = lane / 8 + 4 * i;

			tile_copy(st + k * 128 + ((at ^ (k & 7)) << 4),
				  w[i] + (u64)kb * 16, kb < nb);
		}
		if (p.async) { // two scales at a time
			u32 b = kt * 8 + (lane & 1) * 4;

			for (u32 i = 0; i < 4; i += 2)
				copy_small<4>(st + SCALES + lane * 8 + i * 2,
					      s + b + i,
					      b + i < p.m[0].n_blocks);
		} else {
			for (u32 i = e; i < e + 4; i++)
				((T *)(st + SCALES + r * 16))[i] =
					s[block_of(kt * 8 + i)];
		}
		for (u32 i = e; ZP && i < e + 4; i++)
			((float *)(st + ZEROS + r * 32))[i] =
				zero_of<T>(mat_of(r), expert, row_of(r),
					   block_of(kt * 8 + i)) -
				8.f;
	}

	// Eight values of a pair's row, in the order of unpack8.
	__device__ __forceinline__ uint4 input(u32 n, u32 b) const
	{
		const T *at = x[n] + b * 32 + t * 8;
		cep_pack v;

		v.v = make_uint4(0, 0, 0, 0);
		if (!x[n])
			return v.v;
		if (p.vec)
			v.v = *(const uint4 *)at;
		else
			for (int i = 0; i < 8; i++)
				((T *)&v)[i] = at[i];
		return in_order(v.v);
	}

	__device__ __forceinline__ void block(const unsigned char *st, u32 b,
					      const u32 *h, u32 n,
					      const uint4 &v, float s0,
					      float s1)
	{
		float d[4] = {0, 0, 0, 0};

		mma16(d, h[0], h[4], h[1], h[5], v.x, v.y, T());
		mma16(d, h[2], h[6], h[3], h[7], v.z, v.w, T());
		if (ZP) {
			const float *z = (const float *)(st + ZEROS + g * 32);
			float e[4] = {0, 0, 0, 0};
			u32 l = ones(T());

			mma16(e, l, l, l, l, v.x, v.y, T());
			mma16(e, l, l, l, l, v.z, v.w, T());
			d[0] = fmaf(-z[b], e[0], d[0]);
			d[1] = fmaf(-z[b], e[1], d[1]);
			d[2] = fmaf(-z[64 + b], e[0], d[2]);
			d[3] = fmaf(-z[64 + b], e[1], d[3]);
		}
		acc[n][0] = fmaf(d[0], s0, acc[n][0]);
		acc[n][1] = fmaf(d[1], s0, acc[n][1]);
		acc[n][2] = fmaf(d[2], s1, acc[n][2]);
		acc[n][3] = fmaf(d[3], s1, acc[n][3]);
	}

	__device__ __forceinline__ static float scale(u32 two, u32 b)
	{
		return b & 1 ? high(two, T()) : low(two, T());
	}

	__device__ __forceinline__ void multiply(const unsigned char *st,
						 u32 kt, const uint4 *v)
	{
		const unsigned char *at = st + (lane & 15) * 128;
		u32 sw = (lane >> 4) ^ (lane & 7), c[4];
		cep_pack s0, s1; // the eight scales of rows g and g + 8

		s0.v = *(const uint4 *)(st + SCALES + g * 16);
		s1.v = *(const uint4 *)(st + SCALES + g * 16 + 128);
#pragma unroll
		for (u32 b = 0; b < 8; b++) {
			u32 h[8];

			// one group's inputs are 0 behind the end
			if (NT > 1 && kt * 8 + b >= nb)
				continue;
			if (!(b & 1))
				load_rows(at + ((sw ^ b) << 4), c);
			unpack8(c[b & 1 ? 2 : 0], h, T());
			unpack8(c[b & 1 ? 3 : 1], h + 4, T());
#pragma unroll
			for (u32 n = 0; n < NT; n++)
				if (!n || n * 8 < count)
					block(st, b, h, n,
					      NT == 1 ? v[b]
						      : input(n, kt * 8 + b),
					      scale(s0.u[b / 2], b),
					      scale(s1.u[b / 2], b));
		}
	}

	// The warp's quarter of K.
	__device__ __forceinline__ void walk(unsigned char *ring,
					     const uint4 &item)
	{
		u32 tiles = (p.k + TILE - 1) / TILE;
		u32 quarter = (tiles + WARPS - 1) / WARPS, st = 0;
		u32 kt = warp * quarter, last = kt + quarter;

		last = last < tiles ? last : tiles;
		for (u32 i = 0; i < DEPTH; i++) {
			if (kt + i < last)
				fetch(ring + i * STAGE, kt + i);
			tile_commit();
		}
		find_inputs(item);
		for (; kt < last; kt++) {
			uint4 v[8];

#pragma unroll
			for (u32 b = 0; NT == 1 && b < 8; b++)
				v[b] = kt * 8 + b < nb ? input(0, kt * 8 + b)
						       : make_uint4(0, 0, 0, 0);
			tile_wait<DEPTH - 1>();
			__syncwarp();
			multiply(ring + st * STAGE, kt, v);
			__syncwarp(); // all lanes have read the stage
			if (kt + DEPTH < last)
				fetch(ring + st * STAGE, kt + DEPTH);
			tile_commit();
			st = st + 1 == DEPTH ? 0 : st + 1;
		}
	}

	__device__ __forceinline__ void finish(float *part, u32 first) const
	{
		const u32 outs = p.dual ? 8 : 16;

		__syncthreads(); // nobody reads the ring
#pragma unroll
		for (u32 n = 0; n < NT; n++)
#pragma unroll
			for (u32 i = 0; i < 4; i++)
				part[(warp * 8 * NT + n * 8 + 2 * t + (i & 1)) *
					     16 +
				     g + i / 2 * 8] = acc[n][i];
		__syncthreads();
		for (u32 i = threadIdx.x; i < count * outs; i += 32 * WARPS) {
			u32 o = rg * outs + i % outs;
			const float *at = part + i / outs * 16 + i % outs;
			float v = 0, u = 0;

			for (u32 k = 0; k < WARPS; k++) {
				v += at[k * 8 * NT * 16];
				u += p.dual ? at[k * 8 * NT * 16 + 8] : 0.f;
			}
			if (o < p.n)
				emit<T>(p,
					((const u32 *)
						 p.pairs)[first + i / outs],
					o, v + bias_of<T>(p, 0, expert, o),
					u + bias_of<T>(p, p.dual, expert, o));
		}
		__syncthreads(); // the next item's tiles come here
	}

	__device__ __forceinline__ void run(unsigned char *smem)
	{
		const uint4 *items = (const uint4 *)p.items;
		u32 i = blockIdx.y, n;
		uint4 item;

		cep_begin();
		// both under way at once: it may be none, but is there to read
		n = *(const u32 *)p.n_items;
		item = items[i];
		while (i < n) {
			find(item);
			walk(smem + warp * DEPTH * STAGE, item);
			finish((float *)smem, item.y);
			i += gridDim.y;
			if (i < n)
				item = items[i];
		}
	}
};

#define CEP_MOE4(type, suffix)                                                 \
	CEP_KERNEL(cep_moe4_8_##suffix##_0, cep_moe, 32 * WARPS, 4)            \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		moe4<type, 1, false>(p).run(raw);                              \
	}                                                                      \
	CEP_KERNEL(cep_moe4_8_##suffix##_1, cep_moe, 32 * WARPS, 4)            \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		moe4<type, 1, true>(p).run(raw);                               \
	}                                                                      \
	CEP_KERNEL(cep_moe4_32_##suffix##_0, cep_moe, 32 * WARPS, 4)           \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		moe4<type, 4, false>(p).run(raw);                              \
	}                                                                      \
	CEP_KERNEL(cep_moe4_32_##suffix##_1, cep_moe, 32 * WARPS, 4)           \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		moe4<type, 4, true>(p).run(raw);                               \
	}
CEP_MOE4(__half, f16)
CEP_MOE4(bf16, bf16)

// ---- any other matrix ----
//
// A warp an output: eight columns a lane at a time, 256 columns further each
// time; the lanes' sums by halving distances.

// Columns k to k + 7 of a row: codes less their zero point, and their scale; or
// floats.
template <class T>
__device__ __forceinline__ float weights8(const cep_moe &p,
					  const cep_moe_mat &m, u32 expert,
					  u32 row, u32 k, float *o)
{
	u64 bytes = m.bits ? p.k * m.bits / 8 : p.k * sizeof(T), c = 0;
	const unsigned char *w = part_of(m.w, m.apart & CEP_APART_W, expert,
					 m.rows * bytes) +
				 row * bytes;
	float zero;
	u32 block;

	if (!m.bits) {
		const T *f = (const T *)w + k;

		if (p.k % 8 == 0) {
			load8(f, o);
			return 1.f;
		}
		for (u32 i = 0; i < 8; i++)
			o[i] = k + i < p.k ? to_f(f[i]) : 0.f;
		return 1.f;
	}
	w += k / 8 * m.bits;
	bytes -= k / 8 * m.bits;
	if (p.k % 8 == 0 && m.bits == 4)
		c = *(const u32 *)w;
	else if (p.k % 8 == 0 && m.bits == 8)
		c = *(const u64 *)w;
	else
		for (u32 i = 0; i < m.bits && i < bytes; i++)
			c |= (u64)w[i] << (8 * i);
	block = k / m.block;
	zero = zero_of<T>(m, expert, row, block);
	for (u32 i = 0; i < 8; i++)
		o[i] = (float)(u32)(c >> i * m.bits & ((1u << m.bits) - 1)) -
		       zero;
	return to_f(((const T *)part_of(
		m.scales, m.apart & CEP_APART_SCALES, expert,
		(u64)m.rows * m.n_blocks *
			sizeof(T)))[(u64)row * m.n_blocks + block]);
}

template <class T, int P>
__device__ __forceinline__ void sums(const cep_moe &p, const cep_moe_mat &m,
				     u32 expert, u32 row, const T *const *x,
				     u32 count, float *acc)
{
	u32 lane = threadIdx.x & 31;

	for (u32 c = 0; c < P; c++)
		acc[c] = 0;
#pragma unroll(P == 1 ? 4 : 1)
	for (u32 k = lane * 8; k < p.k; k += 256) {
		float w[8], a[8];
		float s = weights8<T>(p, m, expert, row, k, w);

#pragma unroll
		for (u32 c = 0; c < P; c++) {
			float v = 0;

			if (c >= count)
				continue;
			if (p.vec)
				load8(x[c] + k, a);
			else
				for (u32 i = 0; i < 8; i++)
					a[i] = k + i < p.k ? to_f(x[c][k + i])
							   : 0.f;
			for (u32 i = 0; i < 8; i++)
				v = fmaf(w[i], a[i], v);
			acc[c] = fmaf(v, s, acc[c]);
		}
	}
}

template <class T, int P>
__device__ __forceinline__ void item_any(const cep_moe &p, const uint4 &item,
					 u32 o)
{
	const u32 *pairs = (const u32 *)p.pairs + item.y;
	u32 lane = threadIdx.x & 31;
	float acc[P], v = 0, u = 0;
	const T *x[P];

#pragma unroll
	for (u32 c = 0; c < P; c++)
		x[c] = (const T *)p.x +
		       (u64)(pairs[c < item.z ? c : 0] / p.slots) * p.k;
	for (u32 h = 0; h < 1 + p.dual; h++) {
		sums<T, P>(p, p.m[h], item.x, o * p.row_mul + h * p.row_add, x,
			   item.z, acc);
#pragma unroll
		for (u32 c = 0; c < P; c++) {
			float sum = c < item.z ? warp_sum(acc[c]) : 0.f;

			if (lane != c)
				continue;
			if (h)
				u = sum;
			else
				v = sum;
		}
	}
	if (lane < item.z)
		emit<T>(p, pairs[lane], o, v + bias_of<T>(p, 0, item.x, o),
			u + bias_of<T>(p, p.dual, item.x, o));
}

template <class T, int P>
__device__ __forceinline__ void moe_any(const cep_moe &p)
{
	u32 o = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, n;

	cep_begin();
	if (o >= p.n)
		return;
	n = *(const u32 *)p.n_items;
	for (u32 i = blockIdx.y; i < n; i += gridDim.y)
		item_any<T, P>(p, ((const uint4 *)p.items)[i], o);
}

#define CEP_MOE(type, suffix)                                                  \
	CEP_KERNEL(cep_moe_1_##suffix, cep_moe, 256)                           \
	{                                                                      \
		moe_any<type, 1>(p);                                           \
	}                                                                      \
	CEP_KERNEL(cep_moe_8_##suffix, cep_moe, 256)                           \
	{                                                                      \
		moe_any<type, 8>(p);                                           \
	}
CEP_MOE(float, f32)
CEP_MOE(__half, f16)
CEP_MOE(bf16, bf16)

// ---- the sum ----

// What a row's experts give, times what they count for, in the order of their
// logits.
template <class T> __device__ __forceinline__ void add_up(const cep_moe_sum &p)
{
	u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
	u64 m = i / p.dim, d = i % p.dim;
	float v = 0;

	cep_begin();
	if (m >= p.rows)
		return;
	for (u32 j = 0; j < p.k; j++)
		v = fmaf(((const float *)p.weights)[m * p.k + j],
			 ((const float *)p.y)[(m * p.k + j) * p.dim + d], v);
	((T *)p.out)[i] = from_f<T>(v);
}

CEP_KERNEL(cep_moe_sum_f32, cep_moe_sum, 256)
{
	add_up<float>(p);
}
CEP_KERNEL(cep_moe_sum_f16, cep_moe_sum, 256)
{
	add_up<__half>(p);
}
CEP_KERNEL(cep_moe_sum_bf16, cep_moe_sum, 256)
{
	add_up<bf16>(p);
}
