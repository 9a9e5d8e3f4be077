// gated.cu - what stands around a linear attention and a shared expert: norms
// of heads, with a gate or without, and a sum with a gate for each row.
//
// Norms: a warp a row; a lane sums every 32nd element in order, lanes by
// halving distances: rows of heads are short.
#include "modules/cuda_ep/kernels/common.cuh"

// x / |x|, along an axis with stride inner; 0 where |x| is.
template <class T> __device__ __forceinline__ void lp_norm(const cep_gated &p)
{
	u64 row = blockIdx.x * (u64)(blockDim.x / 32) + threadIdx.x / 32;
	u64 at = row / p.inner * p.inner * p.dim + row % p.inner;
	float sum = 0;

	cep_begin();
	if (row >= p.rows)
		return;
	for (u32 i = threadIdx.x & 31; i < p.dim; i += 32) {
		float v = to_f(((const T *)p.x)[at + i * p.inner]);

		sum = p.one ? sum + fabsf(v) : fmaf(v, v, sum);
	}
	sum = warp_sum(sum);
	sum = p.one ? sum : sqrtf(sum);
	for (u32 i = threadIdx.x & 31; i < p.dim; i += 32) {
		float v = to_f(((const T *)p.x)[at + i * p.inner]);

		((T *)p.out)[at + i * p.inner] =
			from_f<T>(sum == 0 ? 0.f : v / sum);
	}
}

// norm(x) gamma silu(gate), or sigmoid(gate) if one.
template <class T>
__device__ __forceinline__ void gated_norm(const cep_gated &p)
{
	u64 row = blockIdx.x * (u64)(blockDim.x / 32) + threadIdx.x / 32;
	const T *x = (const T *)p.x + row * p.dim;
	float sum = 0;

	cep_begin();
	if (row >= p.rows)
		return;
	for (u32 i = threadIdx.x & 31; i < p.dim; i += 32) {
		float v = to_f(x[i]);

		sum = fmaf(v, v, sum);
	}
	sum = inverse_rms(warp_sum(sum), 1.f / (float)p.dim, p.eps);
	for (u32 i = threadIdx.x & 31; i < p.dim; i += 32) {
		float z = to_f(((const T *)p.gate)[row * p.dim + i]);
		float v = to_f(x[i]) * sum * to_f(((const T *)p.y)[i]);

		v *= p.one ? f_sigmoid(z) : z * f_sigmoid(z);
		((T *)p.out)[row * p.dim + i] = from_f<T>(v);
	}
}

// x + y gate; the product is rounded before it is added, as one of its own
// would be.
template <class T> __device__ __forceinline__ void gated_add(const cep_gated &p)
{
	u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;

	cep_begin();
	if (i >= p.rows * p.dim)
		return;
	((T *)p.out)[i] = from_f<T>(
		to_f(((const T *)p.x)[i]) +
		to_f(from_f<T>(to_f(((const T *)p.y)[i]) *
			       to_f(((const T *)p.gate)[i / p.dim]))));
}

#define CEP_GATED(type, suffix)                                                \
	CEP_KERNEL(cep_lp_norm_##suffix, cep_gated, 128)                       \
	{                                                                      \
		lp_norm<type>(p);                                              \
	}                                                                      \
	CEP_KERNEL(cep_gated_norm_##suffix, cep_gated, 128)                    \
	{                                                                      \
		gated_norm<type>(p);                                           \
	}                                                                      \
	CEP_KERNEL(cep_gated_add_##suffix, cep_gated, 256)                     \
	{                                                                      \
		gated_add<type>(p);                                            \
	}
CEP_GATED(float, f32)
CEP_GATED(__half, f16)
CEP_GATED(bf16, bf16)
