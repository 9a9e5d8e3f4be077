// conv.cu - CausalConvWithState: a depthwise convolution that looks back only,
// over what the steps before left as well.
//
// A thread computes one position of one channel: the taps in their order, in
// double, where products of floats are exact.  It looks up each sample in the
// state or in the step's input, so a position's sum does not know where a step
// began.  The state is written by a thread a channel, upwards: past and present
// may be the same bytes.  A step of one position does both at once; a longer
// one writes the state with a kernel of its own, when all of its sums are done.
#include "modules/cuda_ep/kernels/common.cuh"

// Sample t of a channel; those before 0 are the state's.
template <class T>
__device__ __forceinline__ float sample(const cep_conv &p, u64 b, u64 c,
					long long t)
{
	if (t >= 0)
		return to_f(
			((const T *)p.x)[b * p.x_b + c * p.x_c + t * p.x_t]);
	if (!p.past)
		return 0.f;
	t += p.history;
	return to_f(((const T *)p.past)[b * p.s_b + c * p.s_c + t * p.s_t]);
}

template <class T>
__device__ __forceinline__ void sum(const cep_conv &p, u64 b, u64 c,
				    long long t)
{
	const T *w = (const T *)p.w + c * p.taps;
	double v = p.bias ? (double)to_f(((const T *)p.bias)[c]) : 0;
	float r;

	for (u32 j = 0; j < p.taps; j++)
		v += (double)to_f(w[j]) *
		     (double)sample<T>(p, b, c,
				       t - p.history +
					       (long long)j * p.dilation);
	r = (float)v;
	if (p.silu)
		r *= f_sigmoid(r);
	((T *)p.out)[b * p.x_b + c * p.x_c + t * p.x_t] = from_f<T>(r);
}

// The last samples of a channel.
template <class T>
__device__ __forceinline__ void keep(const cep_conv &p, u64 b, u64 c)
{
	T *s = (T *)p.present + b * p.s_b + c * p.s_c;

	for (u32 i = 0; i < p.history; i++)
		s[i * p.s_t] = from_f<T>(sample<T>(
			p, b, c, (long long)p.length - p.history + i));
}

template <class T> __device__ __forceinline__ void conv_rows(const cep_conv &p)
{
	u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
	u64 t, c, b;

	cep_begin();
	if (p.x_t == 1) { // in the order in which the elements lie
		t = i % p.length;
		c = i / p.length % p.channels;
	} else {
		c = i % p.channels;
		t = i / p.channels % p.length;
	}
	b = i / p.length / p.channels;
	if (b < p.batch)
		sum<T>(p, b, c, (long long)t);
}

template <class T>
__device__ __forceinline__ void conv_keep(const cep_conv &p, bool one)
{
	u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
	u64 b = i / p.channels, c = i % p.channels;

	cep_begin();
	if (b >= p.batch)
		return;
	if (one && p.out)
		sum<T>(p, b, c, 0);
	if (p.present)
		keep<T>(p, b, c);
}

#define CEP_CONV(type, suffix)                                                 \
	CEP_KERNEL(cep_conv_rows_##suffix, cep_conv, 256)                      \
	{                                                                      \
		conv_rows<type>(p);                                            \
	}                                                                      \
	CEP_KERNEL(cep_conv_keep_##suffix, cep_conv, 64)                       \
	{                                                                      \
		conv_keep<type>(p, false);                                     \
	}                                                                      \
	CEP_KERNEL(cep_conv_one_##suffix, cep_conv, 64)                        \
	{                                                                      \
		conv_keep<type>(p, true);                                      \
	}
CEP_CONV(float, f32)
CEP_CONV(__half, f16)
CEP_CONV(bf16, bf16)
