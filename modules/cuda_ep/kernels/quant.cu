// quant.cu - DequantizeLinear: (x - zero) scale, an element a thread.
#include "modules/cuda_ep/kernels/common.cuh"

__device__ __forceinline__ long long code_at(u64 x, u32 dt, u64 i)
{
	int v;

	switch (dt) {
	case CEP_U8:
		return ((const unsigned char *)x)[i];
	case CEP_I8:
		return ((const signed char *)x)[i];
	case CEP_I32:
		return ((const int *)x)[i];
	default: // the first of two is in the low half
		v = ((const unsigned char *)x)[i / 2] >> (i & 1) * 4 & 15;
		return dt == CEP_I4 && v > 7 ? v - 16 : v;
	}
}

__device__ __forceinline__ float scale_at(u64 s, u32 dt, u64 i)
{
	return dt == CEP_F32   ? ((const float *)s)[i]
	       : dt == CEP_F16 ? to_f(((const __half *)s)[i])
			       : to_f(((const bf16 *)s)[i]);
}

CEP_KERNEL(cep_dequant, cep_quant, 256)
{
	u64 step = (u64)gridDim.x * blockDim.x;

	cep_begin();
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < p.count;
	     i += step) {
		u64 a = i / p.inner % p.dim, at = p.each ? a : 0;
		float v;

		if (p.block)
			at = (i / p.inner / p.dim * p.blocks + a / p.block) *
				     p.inner +
			     i % p.inner;
		v = (float)(code_at(p.x, p.dt, i) -
			    (p.zero ? code_at(p.zero, p.dt, at) : 0)) *
		    scale_at(p.scale, p.scale_dt, at);
		if (p.out_dt == CEP_F32)
			((float *)p.out)[i] = v;
		else if (p.out_dt == CEP_F16)
			((__half *)p.out)[i] = from_f<__half>(v);
		else
			((bf16 *)p.out)[i] = from_f<bf16>(v);
	}
}
