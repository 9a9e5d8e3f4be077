// gemv.cu - products of one row with a matrix: the decode path.
//
// The order in which a row is summed depends on K, the dtype and the block
// size: on neither the number of rows, nor how they are cut into pages and
// blocks.
#include "modules/cuda_ep/kernels/mma.cuh"

#define XBLOCK 80 // bytes of 32 activations in shared memory, padded

// A tile: 16 rows by 256 columns, spread over a warp.  Lane (g, t) holds of
// rows g and g + 8 the 32-column blocks t and t + 4.
template <class T> struct tile {
	uint4 w[4]; // row g: t, t + 4; row g + 8: t, t + 4
	T s[4];	    // scales of blocks 2t, 2t + 1 of row g, then of row g + 8
};

// 4-bit weights, half or bfloat16 activations, blocks of 32 and more.
// A tensor core column n holds the activations of block n only, so the eight
// columns keep eight block sums apart; they are scaled in fp32.  Tiles are
// dealt to n_class classes by their column number; a warp sums one class of one
// 16-row group, the block adds the classes in order.
template <class T, int ZP> struct gemv4 {
	const cep_mm &p;
	u32 lane, g, t, nb, kt_n, n_class, rg0, n_units, n_warps;
	unsigned char *xs;
	float *xsum, *slot;

	__device__ __forceinline__ gemv4(const cep_mm &params) : p(params)
	{
	}

	__device__ __forceinline__ u32 clamp(u32 row) const
	{
		return row < p.n ? row : p.n - 1;
	}

	__device__ __forceinline__ void load(tile<T> &x, u32 rg, u32 kt) const
	{
		u32 r0 = clamp(rg * 16 + g), r1 = clamp(rg * 16 + g + 8);
		u32 kb = kt * 8 + t;
		const unsigned char *b0 = (const unsigned char *)p.b +
					  (u64)r0 * p.ldb + kb * 16;
		const unsigned char *b1 = (const unsigned char *)p.b +
					  (u64)r1 * p.ldb + kb * 16;
		const uint4 none = {0, 0, 0, 0};
		u32 per = p.block / 32, c = kt * 8 + 2 * t;
		u32 s0 = c / per, s1 = (c + 1) / per, z = p.n_blocks - 1;
		const T *s = (const T *)p.scales;

		s0 = s0 < z ? s0 : z;
		s1 = s1 < z ? s1 : z;
		x.w[0] = kb < nb ? load_weights(b0) : none;
		x.w[1] = kb + 4 < nb ? load_weights(b0 + 64) : none;
		x.w[2] = kb < nb ? load_weights(b1) : none;
		x.w[3] = kb + 4 < nb ? load_weights(b1 + 64) : none;
		x.s[0] = s[(u64)r0 * p.n_blocks + s0];
		x.s[1] = s[(u64)r0 * p.n_blocks + s1];
		x.s[2] = s[(u64)r1 * p.n_blocks + s0];
		x.s[3] = s[(u64)r1 * p.n_blocks + s1];
	}

	// zero point minus 8 of block c (of 32 columns) of a row
	__device__ __forceinline__ float zero(u32 row, u32 c) const
	{
		u32 b = c / (p.block / 32);

		b = b < p.n_blocks ? b : p.n_blocks - 1;
		if (ZP == CEP_ZP_FLOAT)
			return to_f(((const T *)p.zp)[(u64)row * p.n_blocks +
						      b]) -
			       8.f;
		return (float)((((const unsigned char *)
					 p.zp)[(u64)row * p.zp_row + b / 2] >>
				(b & 1) * 4) &
			       15) -
		       8.f;
	}

	__device__ __forceinline__ void use(const tile<T> &x, u32 rg, u32 kt,
					    float *acc) const
	{
		const bool on = (g & 3) == t;
		const uint4 *xp = (const uint4 *)(xs + (on ? kt * 8 + g
							   : kt_n * 8) *
							       XBLOCK);
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
			u32 c = kt * 8 + 2 * t, r0 = clamp(rg * 16 + g);
			u32 r1 = clamp(rg * 16 + g + 8);

			d[0] -= zero(r0, c) * xsum[c];
			d[1] -= zero(r0, c + 1) * xsum[c + 1];
			d[2] -= zero(r1, c) * xsum[c];
			d[3] -= zero(r1, c + 1) * xsum[c + 1];
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
							((const T *)
								 p.a)[i * 8 + e];
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

	__device__ __forceinline__ void step(u32 *u, u32 *kt) const
	{
		*kt += n_class;
		if (*kt >= kt_n) {
			*u += n_warps;
			*kt = *u < n_units ? kt_of(*u) : 0;
		}
	}

	__device__ __forceinline__ void run(unsigned char *smem)
	{
		u32 warp = threadIdx.x / 32, u, kt, lu, lk;
		float acc[2] = {0, 0};
		tile<T> a, b;

		lane = threadIdx.x & 31;
		g = lane >> 2;
		t = lane & 3;
		n_warps = blockDim.x / 32;
		nb = p.k / 32;
		kt_n = (nb + 7) / 8;
		n_class = kt_n < 8 ? kt_n : 8;
		rg0 = blockIdx.x * p.groups;
		u32 n_rg = (p.n + 15) / 16 - rg0;
		n_rg = n_rg < p.groups ? n_rg : p.groups;
		n_units = n_rg * n_class;
		xs = smem;
		xsum = (float *)(smem + (kt_n * 8 + 1) * XBLOCK);
		slot = xsum + (ZP != CEP_ZP_NONE ? kt_n * 8 : 0);
		cep_trigger();
		u = lu = warp;
		kt = lk = u < n_units ? kt_of(u) : 0;
		if (lu < n_units) {
			load(a, rg0 + lu / n_class, lk);
			step(&lu, &lk);
		}
		if (lu < n_units) {
			load(b, rg0 + lu / n_class, lk);
			step(&lu, &lk);
		}
		cep_wait();
		stage();
		__syncthreads();
		while (u < n_units) {
			u32 cu = u, ck = kt;

			use(a, rg0 + u / n_class, kt, acc);
			a = b;
			if (lu < n_units) {
				load(b, rg0 + lu / n_class, lk);
				step(&lu, &lk);
			}
			step(&u, &kt);
			if (u != cu) { // the unit is done
				for (int i = 0; i < 2; i++) {
					acc[i] += __shfl_xor_sync(
						0xffffffffu, acc[i], 1);
					acc[i] += __shfl_xor_sync(
						0xffffffffu, acc[i], 2);
				}
				if (t == 0) {
					u32 at = (cu / n_class * n_class +
						  ck % n_class) * 16;

					slot[at + g] = acc[0];
					slot[at + g + 8] = acc[1];
				}
				acc[0] = acc[1] = 0;
			}
		}
		__syncthreads();
		for (u32 i = threadIdx.x; i < n_rg * 16; i += blockDim.x) {
			u32 row = (rg0 + i / 16) * 16 + i % 16;
			const float *s = slot + i / 16 * n_class * 16 + i % 16;
			float v = s[0];

			for (u32 c = 1; c < n_class; c++)
				v += s[c * 16];
			if (row >= p.n)
				continue;
			if (p.bias)
				v += to_f(((const T *)p.bias)[p.n0 + row]);
			((T *)p.out)[p.n0 + row] = from_f<T>(v);
		}
	}
};

#define CEP_GEMV4(type, suffix, zp)                                            \
	CEP_KERNEL(cep_gemv4_##suffix##_##zp, cep_mm, 256)                     \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		gemv4<type, zp> g(p);                                          \
		g.run(raw);                                                    \
	}
CEP_GEMV4(__half, f16, 0)
CEP_GEMV4(__half, f16, 1)
CEP_GEMV4(__half, f16, 2)
CEP_GEMV4(bf16, bf16, 0)
CEP_GEMV4(bf16, bf16, 1)
CEP_GEMV4(bf16, bf16, 2)

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
		float s = to_f(((const T *)p.scales)[(u64)row * p.n_blocks + blk]);
		float zp = (float)def, part = 0;
		u64 q = 0;

		for (u32 i = 0; i < p.bits; i++)
			q |= (u64)w[(u64)k * p.bits / 8 + i] << (8 * i);
		if (p.zp_kind == CEP_ZP_FLOAT)
			zp = to_f(((const T *)p.zp)[(u64)row * p.n_blocks + blk]);
		else if (p.zp_kind == CEP_ZP_PACKED)
			zp = (float)((((const unsigned char *)
					       p.zp)[(u64)row * p.zp_row +
						     blk * p.bits / 8] >>
				      blk * p.bits % 8) &
				     mask);
		for (u32 i = 0; i < 8 && k + i < p.k; i++)
			part += ((float)(u32)((q >> (i * p.bits)) & mask) - zp) *
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
	const T *w = (const T *)p.b + blockIdx.z * p.b_batch +
		     (u64)row * p.ldb;
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
					   blockIdx.y) * p.n + c] = v;
	}
	if (gridDim.y == 1)
		return;
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0)
		last = atomicInc((u32 *)p.counters +
					 blockIdx.z * gridDim.x + blockIdx.x,
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
