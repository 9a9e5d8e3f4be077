// common.cuh - what all kernels share: entry macro, element conversion, warp
// sums, refusals.  Compiled by nvcc, and by a host compiler as the tests'
// twins.
#ifndef CEP_COMMON_CUH
#define CEP_COMMON_CUH

#ifndef CEP_EMU /* host twins: the build includes what stands for CUDA */
#include <cuda_fp16.h>
#include <cuda_bf16.h>
// ...: threads of a block; blocks that an SM is to hold.
#define CEP_KERNEL(name, ptype, ...)                                           \
	extern "C" __global__ void __launch_bounds__(__VA_ARGS__)              \
		name(const __grid_constant__ ptype p)
#define CEP_SMEM(name) extern __shared__ __align__(128) unsigned char name[]
#endif
#include "modules/cuda_ep/kernels/params.h"

typedef uint32_t u32;
typedef uint64_t u64;
typedef __nv_bfloat16 bf16;

// First and last statement before anything that an earlier kernel wrote is
// touched: lets the next kernel of the stream start its prologue, then waits
// for the previous one.  Both do nothing in an ordinary launch.
__device__ __forceinline__ void cep_trigger()
{
#if !defined(CEP_EMU) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ void cep_wait()
{
#if defined(CEP_EMU)
	emu_grid_wait();
#elif __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void cep_begin()
{
	cep_trigger();
	cep_wait();
}

__device__ __forceinline__ float to_f(float x)
{
	return x;
}
__device__ __forceinline__ float to_f(__half x)
{
	return __half2float(x);
}
__device__ __forceinline__ float to_f(bf16 x)
{
	return __bfloat162float(x);
}
template <class T> __device__ __forceinline__ T from_f(float x);
template <> __device__ __forceinline__ float from_f<float>(float x)
{
	return x;
}
template <> __device__ __forceinline__ __half from_f<__half>(float x)
{
	return __float2half_rn(x);
}
template <> __device__ __forceinline__ bf16 from_f<bf16>(float x)
{
	return __float2bfloat16_rn(x);
}

union cep_pack {
	uint4 v;
	u32 u[4];
	__half h[8];
	bf16 b[8];
	float f[4];
};

// Eight elements from an address that is a multiple of 16.
__device__ __forceinline__ void load8(const float *p, float *x)
{
	cep_pack a, b;

	a.v = ((const uint4 *)p)[0];
	b.v = ((const uint4 *)p)[1];
#pragma unroll
	for (int i = 0; i < 4; i++) {
		x[i] = a.f[i];
		x[4 + i] = b.f[i];
	}
}
__device__ __forceinline__ void load8(const __half *p, float *x)
{
	cep_pack a;

	a.v = *(const uint4 *)p;
#pragma unroll
	for (int i = 0; i < 8; i++)
		x[i] = __half2float(a.h[i]);
}
__device__ __forceinline__ void load8(const bf16 *p, float *x)
{
	cep_pack a;

	a.v = *(const uint4 *)p;
#pragma unroll
	for (int i = 0; i < 8; i++)
		x[i] = __bfloat162float(a.b[i]);
}

// What another block of the same kernel wrote.
__device__ __forceinline__ float load_fresh(const float *p)
{
#ifdef CEP_EMU
	return *p;
#else
	return __ldcg(p);
#endif
}

__device__ __forceinline__ void load_fresh2(const float *p, float *x)
{
#ifdef CEP_EMU
	x[0] = p[0];
	x[1] = p[1];
#else
	float2 v = __ldcg((const float2 *)p);

	x[0] = v.x;
	x[1] = v.y;
#endif
}

__device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
	for (int o = 16; o; o >>= 1)
		v += __shfl_xor_sync(0xffffffffu, v, o);
	return v;
}
__device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
	for (int o = 16; o; o >>= 1)
		v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
	return v;
}

// Sum over a block of at most 1024 threads in a fixed order; red holds 32.
__device__ __forceinline__ float block_sum(float v, float *red)
{
	int n = (int)(blockDim.x + 31) / 32;
	float s = 0;

	v = warp_sum(v);
	__syncthreads();
	if ((threadIdx.x & 31) == 0)
		red[threadIdx.x >> 5] = v;
	__syncthreads();
	for (int i = 0; i < n; i++)
		s += red[i];
	return s;
}
__device__ __forceinline__ float block_max(float v, float *red)
{
	int n = (int)(blockDim.x + 31) / 32;
	float s;

	v = warp_max(v);
	__syncthreads();
	if ((threadIdx.x & 31) == 0)
		red[threadIdx.x >> 5] = v;
	__syncthreads();
	s = red[0];
	for (int i = 1; i < n; i++)
		s = fmaxf(s, red[i]);
	return s;
}

// One by the root of a mean square, by_dim is 1 / their number.  Every norm
// takes this one, fused or not: they must agree in the last bit.
__device__ __forceinline__ float inverse_rms(float squares, float by_dim,
					     float eps)
{
#ifdef CEP_EMU
	return 1.f / sqrtf(fmaf(squares, by_dim, eps));
#else
	return rsqrtf(fmaf(squares, by_dim, eps));
#endif
}

// Record the first refusal of the device; later ones are dropped.
static __device__ __noinline__ void cep_refuse(const cep_blame &b, u32 kind,
					       long long value, long long limit)
{
	volatile cep_fault *f = (volatile cep_fault *)b.record;

	if (atomicCAS((unsigned int *)b.lock, 0u, 1u))
		return;
	f->kind = kind;
	f->plan = b.plan;
	f->node = b.node;
	f->value = value;
	f->limit = limit;
	__threadfence_system();
	f->set = 1;
}

__device__ __forceinline__ long long load_index(u64 base, u64 i, u32 is64)
{
	return is64 ? ((const long long *)base)[i] : ((const int *)base)[i];
}

// Activation functions shared by several kernels.
__device__ __forceinline__ float f_sigmoid(float x)
{
	return 1.f / (1.f + expf(-x));
}
__device__ __forceinline__ float f_gelu_tanh(float x)
{
	return 0.5f * x *
	       (1.f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

#endif
