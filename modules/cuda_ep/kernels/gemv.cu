// gemv.cu - products of one row with a matrix that gemv4.cu does not take.
//
// The order in which a row is summed depends on K, the dtype and the block
// size: on neither the number of rows, nor how they are cut into pages and
// blocks.
#include "modules/cuda_ep/kernels/common.cuh"

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
template <class T, class W>
__device__ __forceinline__ void gemv_kn(const cep_mm &p)
{
	__shared__ float red[8][64];
	__shared__ u32 last;
	u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;
	u32 n = blockIdx.x * 64 + lane * 2, k0 = blockIdx.y * 256;
	u32 k1 = k0 + 256 < p.k ? k0 + 256 : p.k;
	const T *x = (const T *)p.a + blockIdx.z * p.a_batch;
	const W *w = (const W *)p.b + blockIdx.z * p.b_batch;
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
		gemv_kn<type, type>(p);                                              \
	}
CEP_GEMV(float, f32)
CEP_GEMV(__half, f16)
CEP_GEMV(bf16, bf16)
CEP_KERNEL(cep_gemv_kn_f32_f16, cep_mm, 256)
{
	gemv_kn<float, __half>(p);
}
CEP_KERNEL(cep_gemv_kn_f32_bf16, cep_mm, 256)
{
	gemv_kn<float, bf16>(p);
}
