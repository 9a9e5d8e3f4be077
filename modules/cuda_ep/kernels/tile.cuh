// tile.cuh - tiles in shared memory: copies that run behind, and the loads that
// turn rows into fragments of the tensor core.
#ifndef CEP_TILE_CUH
#define CEP_TILE_CUH

#include "modules/cuda_ep/kernels/mma.cuh"

// 16 bytes, or zeros.  Groups of copies are closed with tile_commit() and
// arrive in order; before 8.0 a copy is done when it is asked for.
__device__ __forceinline__ void tile_copy(void *dst, const void *src, bool on)
{
#if !defined(CEP_EMU) && __CUDA_ARCH__ >= 800
	u32 d = (u32)__cvta_generic_to_shared(dst);

	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(d),
		     "l"(src), "r"(on ? 16 : 0)
		     : "memory");
#else
	*(uint4 *)dst = on ? *(const uint4 *)src : make_uint4(0, 0, 0, 0);
#endif
}

__device__ __forceinline__ void tile_commit()
{
#if !defined(CEP_EMU) && __CUDA_ARCH__ >= 800
	asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// All groups but the last n have arrived: this thread's copies.
template <int N> __device__ __forceinline__ void tile_wait()
{
#if !defined(CEP_EMU) && __CUDA_ARCH__ >= 800
	asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// Four matrices of 8 x 8: lane 8 i + r gives row r of matrix i and gets
// columns 2 t, 2 t + 1 of row g of each (t = lane % 4, g = lane / 4).
__device__ __forceinline__ void load_rows(const void *row, u32 *o)
{
#ifdef CEP_EMU
	emu_ldmatrix(row, o, false);
#else
	u32 a = (u32)__cvta_generic_to_shared(row);

	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
		     "{%0,%1,%2,%3},[%4];"
		     : "=r"(o[0]), "=r"(o[1]), "=r"(o[2]), "=r"(o[3])
		     : "r"(a)
		     : "memory");
#endif
}

// The same of the transposed matrices: rows 2 t, 2 t + 1 of column g.
__device__ __forceinline__ void load_columns(const void *row, u32 *o)
{
#ifdef CEP_EMU
	emu_ldmatrix(row, o, true);
#else
	u32 a = (u32)__cvta_generic_to_shared(row);

	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
		     "{%0,%1,%2,%3},[%4];"
		     : "=r"(o[0]), "=r"(o[1]), "=r"(o[2]), "=r"(o[3])
		     : "r"(a)
		     : "memory");
#endif
}

// 2^x, within two units of the last place.
__device__ __forceinline__ float power2(float x)
{
#ifdef CEP_EMU
	return exp2f(x);
#else
	float r;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
	return r;
#endif
}

// Two floats rounded to a pair.
__device__ __forceinline__ u32 round2(float a, float b, __half)
{
	return pack2(__floats2half2_rn(a, b));
}
__device__ __forceinline__ u32 round2(float a, float b, bf16)
{
	__nv_bfloat162 v = __floats2bfloat162_rn(a, b);

	return *(u32 *)&v;
}

__device__ __forceinline__ float low(u32 v, __half)
{
	return __half2float(as_half2(v).x);
}
__device__ __forceinline__ float high(u32 v, __half)
{
	return __half2float(as_half2(v).y);
}
__device__ __forceinline__ float low(u32 v, bf16)
{
	return __bfloat162float(as_bf162(v).x);
}
__device__ __forceinline__ float high(u32 v, bf16)
{
	return __bfloat162float(as_bf162(v).y);
}
// Sums of pairs, rounded once.
__device__ __forceinline__ u32 add2(u32 a, u32 b, __half)
{
	return pack2(__hadd2(as_half2(a), as_half2(b)));
}
__device__ __forceinline__ u32 add2(u32 a, u32 b, bf16)
{
	__nv_bfloat162 v = __hadd2(as_bf162(a), as_bf162(b));

	return *(u32 *)&v;
}
__device__ __forceinline__ u32 ones(__half)
{
	return 0x3c003c00u;
}
__device__ __forceinline__ u32 ones(bf16)
{
	return 0x3f803f80u;
}

// 4 or 8 bytes, or zeros, like tile_copy().
template <int N>
__device__ __forceinline__ void copy_small(void *dst, const void *src, bool on)
{
#if !defined(CEP_EMU) && __CUDA_ARCH__ >= 800
	u32 d = (u32)__cvta_generic_to_shared(dst);

	asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(d),
		     "l"(src), "n"(N), "r"(on ? N : 0)
		     : "memory");
#else
	for (int i = 0; i < N / 4; i++)
		((u32 *)dst)[i] = on ? ((const u32 *)src)[i] : 0;
#endif
}

// Eight activations in the order of unpack8.
__device__ __forceinline__ uint4 in_order(const uint4 &v)
{
	return make_uint4(pick16(v.x, v.z, false), pick16(v.x, v.z, true),
			  pick16(v.y, v.w, false), pick16(v.y, v.w, true));
}

#endif
