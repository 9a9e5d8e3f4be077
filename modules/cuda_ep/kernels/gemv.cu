// gemv.cu - products of one row with a matrix: the decode path.
//
// The order in which a row is summed depends on K, the dtype and the block
// size: on neither the number of rows, nor how they are cut into pages and
// blocks.
#include "modules/cuda_ep/kernels/mma.cuh"

#define XBLOCK 80 // bytes of 32 activations in shared memory, padded

// A tile: 16 rows by 256 columns, spread over a warp.  Lane (g, t) holds of
// rows g and g + 8 the 32-column blocks t and t + 4, and the scales and zero
// points of blocks 2t and 2t + 1.
template <class T> struct tile {
	uint4 w[4];
	__align__(8) T s[4];
	T zf[4];
	unsigned char zb[4];
};

// Where a lane's two rows lie.
template <class T> struct rows_at {
	const unsigned char *w0, *w1, *z0, *z1;
	const T *s0, *s1;
};

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

// 4-bit weights, half or bfloat16 activations, blocks of 32 and more.
// A tensor core column n holds the activations of block n only, so the eight
// columns keep eight block sums apart; they are scaled in fp32.  Tiles are
// dealt to n_class classes by their column number; a warp sums one class of one
// row group, the block adds the classes in order.  A row group is 16 rows, or
// with DUAL 8 rows of either matrix.
template <class T, int ZP, bool DUAL, int TILES, class P> struct gemv4 {
	static constexpr u32 ROWS = DUAL ? 8 : 16;
	const P &q;
	const cep_mm &p;
	u32 lane, g, t, nb, kt_n, n_class, rg0, n_units, n_warps;
	unsigned char *xs;
	float *xsum, *slot;

	__device__ __forceinline__ gemv4(const P &params)
	    : q(params), p(params.m)
	{
	}

	__device__ __forceinline__ void find(u32 rg, rows_at<T> &a) const
	{
		u32 r0 = rg * ROWS + g, r1 = DUAL ? r0 : r0 + 8;
		u32 t0 = 0, t1 = 0, m1 = DUAL ? TILES : 0;

		r0 = r0 < p.n ? r0 : p.n - 1;
		r1 = r1 < p.n ? r1 : p.n - 1;
		if (TILES > 1) {
			t0 = r0 / q.tile_rows;
			t1 = r1 / q.tile_rows;
			r0 -= t0 * q.tile_rows;
			r1 -= t1 * q.tile_rows;
		}
		t1 += m1;
		a.w0 = (const unsigned char *)q.b[t0] + (u64)r0 * p.ldb +
		       t * 16;
		a.w1 = (const unsigned char *)q.b[t1] + (u64)r1 * p.ldb +
		       t * 16;
		a.s0 = (const T *)q.s[t0] + (u64)r0 * p.n_blocks;
		a.s1 = (const T *)q.s[t1] + (u64)r1 * p.n_blocks;
		if (ZP == CEP_ZP_PACKED) {
			a.z0 = (const unsigned char *)q.z[t0] +
			       (u64)r0 * p.zp_row;
			a.z1 = (const unsigned char *)q.z[t1] +
			       (u64)r1 * p.zp_row;
		} else if (ZP == CEP_ZP_FLOAT) {
			a.z0 = (const unsigned char *)((const T *)q.z[t0] +
						       (u64)r0 * p.n_blocks);
			a.z1 = (const unsigned char *)((const T *)q.z[t1] +
						       (u64)r1 * p.n_blocks);
		}
	}

	// Block (of scales) of 32-column block c.
	__device__ __forceinline__ u32 block_of(u32 c) const
	{
		u32 b = c / (p.block / 32);

		return b < p.n_blocks ? b : p.n_blocks - 1;
	}

	__device__ __forceinline__ void load(tile<T> &x, const rows_at<T> &a,
					     u32 kt) const
	{
		const uint4 none = {0, 0, 0, 0};
		u32 kb = kt * 8 + t, off = kt * 128;
		u32 c0 = block_of(kt * 8 + 2 * t);
		u32 c1 = block_of(kt * 8 + 2 * t + 1);

		x.w[0] = kb < nb ? load_weights(a.w0 + off) : none;
		x.w[1] = kb + 4 < nb ? load_weights(a.w0 + off + 64) : none;
		x.w[2] = kb < nb ? load_weights(a.w1 + off) : none;
		x.w[3] = kb + 4 < nb ? load_weights(a.w1 + off + 64) : none;
		if (p.block == 32 && !(p.n_blocks & 1)) {
			// the two of a row lie together, on 4 bytes; behind
			// the end c0 is the last block, an odd one
			u32 u = *(const u32 *)(a.s0 + (c0 & ~1u));
			u32 v = *(const u32 *)(a.s1 + (c0 & ~1u));

			((u32 *)x.s)[0] = u;
			((u32 *)x.s)[1] = v;
		} else {
			x.s[0] = a.s0[c0];
			x.s[1] = a.s0[c1];
			x.s[2] = a.s1[c0];
			x.s[3] = a.s1[c1];
		}
		if (ZP == CEP_ZP_PACKED) {
			x.zb[0] = a.z0[c0 / 2];
			x.zb[1] = a.z0[c1 / 2];
			x.zb[2] = a.z1[c0 / 2];
			x.zb[3] = a.z1[c1 / 2];
		} else if (ZP == CEP_ZP_FLOAT) {
			x.zf[0] = ((const T *)a.z0)[c0];
			x.zf[1] = ((const T *)a.z0)[c1];
			x.zf[2] = ((const T *)a.z1)[c0];
			x.zf[3] = ((const T *)a.z1)[c1];
		}
	}

	// Zero point i of the tile minus 8; c is its 32-column block.
	__device__ __forceinline__ float zero(const tile<T> &x, int i,
					      u32 c) const
	{
		if (ZP == CEP_ZP_FLOAT)
			return to_f(x.zf[i]) - 8.f;
		return (float)(x.zb[i] >> (block_of(c) & 1) * 4 & 15) - 8.f;
	}

	__device__ __forceinline__ void use(const tile<T> &x, u32 kt,
					    float *acc) const
	{
		const bool on = (g & 3) == t;
		const uint4 *xp =
			(const uint4 *)(xs +
					(on ? kt * 8 + g : kt_n * 8) * XBLOCK);
		float d0[4] = {0, 0, 0, 0}, d1[4] = {0, 0, 0, 0}, d[4];
		const u32 *w0 = (const u32 *)&x.w[0];
		const u32 *w1 = (const u32 *)&x.w[1];
		const u32 *w2 = (const u32 *)&x.w[2];
		const u32 *w3 = (const u32 *)&x.w[3];

#pragma unroll
		for (int j = 0; j < 4; j++) {
			uint4 v = xp[j];
			u32 a[4], b[4];

			unpack8(w0[j], a, T());
			unpack8(w2[j], b, T());
			mma16(d0, a[0], b[0], a[1], b[1], v.x, v.y, T());
			mma16(d0, a[2], b[2], a[3], b[3], v.z, v.w, T());
			unpack8(w1[j], a, T());
			unpack8(w3[j], b, T());
			mma16(d1, a[0], b[0], a[1], b[1], v.x, v.y, T());
			mma16(d1, a[2], b[2], a[3], b[3], v.z, v.w, T());
		}
#pragma unroll
		for (int i = 0; i < 4; i++)
			d[i] = t < 2 ? d0[i] : d1[i];
		if (ZP != CEP_ZP_NONE) {
			u32 c = kt * 8 + 2 * t;

			d[0] -= zero(x, 0, c) * xsum[c];
			d[1] -= zero(x, 1, c + 1) * xsum[c + 1];
			d[2] -= zero(x, 2, c) * xsum[c];
			d[3] -= zero(x, 3, c + 1) * xsum[c + 1];
		}
		acc[0] += d[0] * to_f(x.s[0]) + d[1] * to_f(x.s[1]);
		acc[1] += d[2] * to_f(x.s[2]) + d[3] * to_f(x.s[3]);
	}

	// Activations to shared memory in the order of unpack8.
	__device__ __forceinline__ void stage() const
	{
		for (u32 i = threadIdx.x; i < kt_n * 32; i += blockDim.x) {
			cep_pack v;
			uint4 o;

			v.v = make_uint4(0, 0, 0, 0);
			if (i * 8 < p.k) {
				if (p.vec_a)
					v.v = ((const uint4 *)p.a)[i];
				else
					for (int e = 0; e < 8; e++)
						((T *)&v)[e] =
							((const T *)p
								 .a)[i * 8 + e];
			}
			o.x = pick16(v.u[0], v.u[2], false);
			o.y = pick16(v.u[0], v.u[2], true);
			o.z = pick16(v.u[1], v.u[3], false);
			o.w = pick16(v.u[1], v.u[3], true);
			*(uint4 *)(xs + i / 4 * XBLOCK + i % 4 * 16) = o;
			if (ZP != CEP_ZP_NONE) {
				float s = 0;

				for (int e = 0; e < 8; e++)
					s += to_f(((const T *)&v)[e]);
				s += __shfl_xor_sync(0xffffffffu, s, 1);
				s += __shfl_xor_sync(0xffffffffu, s, 2);
				if (i % 4 == 0)
					xsum[i / 4] = s;
			}
		}
		if (threadIdx.x < XBLOCK / 16)
			((uint4 *)(xs + kt_n * 8 * XBLOCK))[threadIdx.x] =
				make_uint4(0, 0, 0, 0);
	}

	// Unit u of the block: a row group and its class.
	__device__ __forceinline__ u32 kt_of(u32 u) const
	{
		return (u + rg0 + u / n_class) % n_class;
	}

	// Next tile; true if it is of another unit.
	__device__ __forceinline__ bool step(u32 *u, u32 *kt) const
	{
		*kt += n_class;
		if (*kt < kt_n)
			return false;
		*u += n_warps;
		*kt = *u < n_units ? kt_of(*u) : 0;
		return true;
	}

	__device__ __forceinline__ float finish(const float *s) const
	{
		float v = s[0];

		for (u32 c = 1; c < n_class; c++)
			v += s[c * 16];
		return v;
	}

	__device__ __forceinline__ void store(u32 n_rg) const
	{
		u64 bias2 = second_bias(q);

		for (u32 i = threadIdx.x; i < n_rg * ROWS; i += blockDim.x) {
			u32 row = rg0 * ROWS + i;
			const float *s =
				slot + i / ROWS * n_class * 16 + i % ROWS;
			float v = finish(s);

			if (row >= p.n)
				continue;
			if (p.bias)
				v += to_f(((const T *)p.bias)[p.n0 + row]);
			if (DUAL) {
				float w = finish(s + 8);

				if (bias2)
					w += to_f(
						((const T *)bias2)[p.n0 + row]);
				v = silu(v) * w;
			}
			((T *)p.out)[p.n0 + row] = from_f<T>(v);
		}
	}

	// A unit is complete: its sums go to its slot.
	__device__ __forceinline__ void put(u32 u, u32 kt, float *acc) const
	{
		for (int i = 0; i < 2; i++) {
			acc[i] += __shfl_xor_sync(0xffffffffu, acc[i], 1);
			acc[i] += __shfl_xor_sync(0xffffffffu, acc[i], 2);
		}
		if (t == 0) {
			u32 i = (u / n_class * n_class + kt % n_class) * 16;

			slot[i + g] = acc[0];
			slot[i + g + 8] = acc[1];
		}
		acc[0] = acc[1] = 0;
	}

	__device__ __forceinline__ void run(unsigned char *smem)
	{
		u32 warp = threadIdx.x / 32, u, kt, lu, lk;
		float acc[2] = {0, 0};
		rows_at<T> at;
		tile<T> a, b, c;

		lane = threadIdx.x & 31;
		g = lane >> 2;
		t = lane & 3;
		n_warps = blockDim.x / 32;
		nb = p.k / 32;
		kt_n = (nb + 7) / 8;
		n_class = kt_n < 8 ? kt_n : 8;
		rg0 = blockIdx.x * p.groups;
		u32 n_rg = (p.n + ROWS - 1) / ROWS - rg0;
		n_rg = n_rg < p.groups ? n_rg : p.groups;
		n_units = n_rg * n_class;
		xs = smem;
		xsum = (float *)(smem + (kt_n * 8 + 1) * XBLOCK);
		slot = xsum + (ZP != CEP_ZP_NONE ? kt_n * 8 : 0);
		cep_trigger();
		u = lu = warp;
		kt = lk = u < n_units ? kt_of(u) : 0;
		if (lu < n_units) {
			find(rg0 + lu / n_class, at);
			load(a, at, lk);
			if (step(&lu, &lk) && lu < n_units)
				find(rg0 + lu / n_class, at);
		}
		if (lu < n_units) {
			load(b, at, lk);
			if (step(&lu, &lk) && lu < n_units)
				find(rg0 + lu / n_class, at);
		}
		if (lu < n_units) {
			load(c, at, lk);
			if (step(&lu, &lk) && lu < n_units)
				find(rg0 + lu / n_class, at);
		}
		cep_wait();
		stage();
		__syncthreads();
		// one after the other, each in registers of its own: moving a
		// tile would wait for it
		auto turn = [&](tile<T> &x) {
			u32 cu = u, ck = kt;

			if (u >= n_units)
				return false;
			use(x, kt, acc);
			if (lu < n_units) {
				load(x, at, lk);
				if (step(&lu, &lk) && lu < n_units)
					find(rg0 + lu / n_class, at);
			}
			if (step(&u, &kt))
				put(cu, ck, acc);
			return true;
		};
		while (turn(a) && turn(b) && turn(c))
			;
		__syncthreads();
		store(n_rg);
	}
};

#define CEP_GEMV4(type, suffix, zp, form, dual, tiles, ptype)                  \
	CEP_KERNEL(cep_gemv4##form##_##suffix##_##zp, ptype, 256)              \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		gemv4<type, zp, dual, tiles, ptype> g(p);                      \
		g.run(raw);                                                    \
	}
#define CEP_GEMV4_FORMS(type, suffix, zp)                                      \
	CEP_GEMV4(type, suffix, zp, , false, 1, cep_mv)                        \
	CEP_GEMV4(type, suffix, zp, t, false, CEP_TILES, cep_mv_tiled)         \
	CEP_GEMV4(type, suffix, zp, d, true, 1, cep_mv_dual)                   \
	CEP_GEMV4(type, suffix, zp, dt, true, CEP_TILES, cep_mv_dual_tiled)
CEP_GEMV4_FORMS(__half, f16, 0)
CEP_GEMV4_FORMS(__half, f16, 1)
CEP_GEMV4_FORMS(__half, f16, 2)
CEP_GEMV4_FORMS(bf16, bf16, 0)
CEP_GEMV4_FORMS(bf16, bf16, 1)
CEP_GEMV4_FORMS(bf16, bf16, 2)

// Any quantised matrix: a warp a row, eight columns a lane at a time.
template <class T> __device__ __forceinline__ void gemv_q(const cep_mm &p)
{
	u32 lane = threadIdx.x & 31;
	u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
	u32 def = 1u << (p.bits - 1), mask = (1u << p.bits) - 1;
	const T *x = (const T *)p.a;
	float acc = 0;

	cep_begin();
	if (row >= p.n)
		return;
	const unsigned char *w = (const unsigned char *)p.b + (u64)row * p.ldb;
	for (u32 k = lane * 8; k < p.k; k += 256) {
		u32 blk = k / p.block;
		float s = to_f(
			((const T *)p.scales)[(u64)row * p.n_blocks + blk]);
		float zp = (float)def, part = 0;
		u64 q = 0;

		for (u32 i = 0; i < p.bits; i++)
			q |= (u64)w[(u64)k * p.bits / 8 + i] << (8 * i);
		if (p.zp_kind == CEP_ZP_FLOAT)
			zp = to_f(
				((const T *)p.zp)[(u64)row * p.n_blocks + blk]);
		else if (p.zp_kind == CEP_ZP_PACKED)
			zp = (float)((((const unsigned char *)
					       p.zp)[(u64)row * p.zp_row +
						     blk * p.bits / 8] >>
				      blk * p.bits % 8) &
				     mask);
		for (u32 i = 0; i < 8 && k + i < p.k; i++)
			part += ((float)(u32)((q >> (i * p.bits)) & mask) -
				 zp) *
				to_f(x[k + i]);
		acc += part * s;
	}
	acc = warp_sum(acc);
	if (lane)
		return;
	if (p.bias)
		acc += to_f(((const T *)p.bias)[p.n0 + row]);
	((T *)p.out)[p.n0 + row] = from_f<T>(acc);
}

// Rows of B contiguous ([N, K]): a warp a row.
template <class T> __device__ __forceinline__ void gemv_nk(const cep_mm &p)
{
	u32 lane = threadIdx.x & 31;
	u32 row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
	const T *x = (const T *)p.a + blockIdx.z * p.a_batch;
	const T *w = (const T *)p.b + blockIdx.z * p.b_batch + (u64)row * p.ldb;
	float acc = 0;

	cep_begin();
	if (row >= p.n)
		return;
	for (u32 k = lane * 8; k < p.k; k += 256) {
		float a[8], b[8];

		if (p.vec_a && p.vec_b) {
			load8(x + k, a);
			load8(w + k, b);
		} else {
			for (u32 i = 0; i < 8; i++) {
				a[i] = k + i < p.k ? to_f(x[k + i]) : 0.f;
				b[i] = k + i < p.k ? to_f(w[k + i]) : 0.f;
			}
		}
		for (int i = 0; i < 8; i++)
			acc += a[i] * b[i];
	}
	acc = warp_sum(acc);
	if (lane == 0)
		((T *)p.out)[blockIdx.z * p.c_batch + row] = from_f<T>(acc);
}

// Columns of B contiguous ([K, N]): a block takes 64 columns and 256 of K; the
// last block of a column strip adds the parts in order.
template <class T> __device__ __forceinline__ void gemv_kn(const cep_mm &p)
{
	__shared__ float red[8][64];
	__shared__ u32 last;
	u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;
	u32 n = blockIdx.x * 64 + lane * 2, k0 = blockIdx.y * 256;
	u32 k1 = k0 + 256 < p.k ? k0 + 256 : p.k;
	const T *x = (const T *)p.a + blockIdx.z * p.a_batch;
	const T *w = (const T *)p.b + blockIdx.z * p.b_batch;
	float a0 = 0, a1 = 0;

	cep_begin();
	for (u32 k = k0 + warp; k < k1; k += 8) {
		float v = to_f(x[k]);

		if (n < p.n)
			a0 += v * to_f(w[(u64)k * p.ldb + n]);
		if (n + 1 < p.n)
			a1 += v * to_f(w[(u64)k * p.ldb + n + 1]);
	}
	red[warp][lane * 2] = a0;
	red[warp][lane * 2 + 1] = a1;
	__syncthreads();
	if (threadIdx.x < 64) {
		u32 c = blockIdx.x * 64 + threadIdx.x;
		float v = red[0][threadIdx.x];

		for (int i = 1; i < 8; i++)
			v += red[i][threadIdx.x];
		if (c < p.n && gridDim.y == 1)
			((T *)p.out)[blockIdx.z * p.c_batch + c] = from_f<T>(v);
		else if (c < p.n)
			((float *)p.part)[((u64)blockIdx.z * gridDim.y +
					   blockIdx.y) *
						  p.n +
					  c] = v;
	}
	if (gridDim.y == 1)
		return;
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
		last = atomicInc((u32 *)p.counters + blockIdx.z * gridDim.x +
					 blockIdx.x,
				 gridDim.y - 1) == gridDim.y - 1;
	__syncthreads();
	if (!last)
		return;
	__threadfence();
	if (threadIdx.x < 64) {
		u32 c = blockIdx.x * 64 + threadIdx.x;
		volatile const float *q = (const float *)p.part +
					  (u64)blockIdx.z * gridDim.y * p.n + c;
		float v;

		if (c >= p.n)
			return;
		v = q[0];
		for (u32 i = 1; i < gridDim.y; i++)
			v += q[(u64)i * p.n];
		((T *)p.out)[blockIdx.z * p.c_batch + c] = from_f<T>(v);
	}
}

#define CEP_GEMV(type, suffix)                                                 \
	CEP_KERNEL(cep_gemv_q_##suffix, cep_mm, 256)                           \
	{                                                                      \
		gemv_q<type>(p);                                               \
	}                                                                      \
	CEP_KERNEL(cep_gemv_nk_##suffix, cep_mm, 256)                          \
	{                                                                      \
		gemv_nk<type>(p);                                              \
	}                                                                      \
	CEP_KERNEL(cep_gemv_kn_##suffix, cep_mm, 256)                          \
	{                                                                      \
		gemv_kn<type>(p);                                              \
	}
CEP_GEMV(float, f32)
CEP_GEMV(__half, f16)
CEP_GEMV(bf16, bf16)
