// elementwise.cu - one loop for every elementwise operator, broadcast and
// strided copies included.  Floats are computed as float and rounded once,
// integers as int64.
#include "modules/cuda_ep/kernels/common.cuh"

__device__ __forceinline__ float load_f(u64 base, u32 dt, long long i)
{
	switch (dt) {
	case CEP_F32:
		return ((const float *)base)[i];
	case CEP_F16:
		return __half2float(((const __half *)base)[i]);
	case CEP_BF16:
		return __bfloat162float(((const bf16 *)base)[i]);
	case CEP_I32:
		return (float)((const int *)base)[i];
	case CEP_I64:
		return (float)((const long long *)base)[i];
	case CEP_U32:
		return (float)((const u32 *)base)[i];
	case CEP_I8:
		return (float)((const signed char *)base)[i];
	default:
		return (float)((const unsigned char *)base)[i];
	}
}

__device__ __forceinline__ long long load_i(u64 base, u32 dt, long long i)
{
	switch (dt) {
	case CEP_I32:
		return ((const int *)base)[i];
	case CEP_I64:
		return ((const long long *)base)[i];
	case CEP_U32:
		return ((const u32 *)base)[i];
	case CEP_I8:
		return ((const signed char *)base)[i];
	case CEP_U8:
	case CEP_BOOL:
		return ((const unsigned char *)base)[i];
	default: {
		float f = load_f(base, dt, i);

		return f != f ? 0 : (long long)f;
	}
	}
}

__device__ __forceinline__ void store_i(u64 base, u32 dt, long long i,
					long long v)
{
	switch (dt) {
	case CEP_I32:
	case CEP_U32:
		((int *)base)[i] = (int)v;
		break;
	case CEP_I64:
		((long long *)base)[i] = v;
		break;
	case CEP_BOOL:
		((unsigned char *)base)[i] = v != 0;
		break;
	case CEP_U8:
	case CEP_I8:
		((unsigned char *)base)[i] = (unsigned char)v;
		break;
	case CEP_F32:
		((float *)base)[i] = (float)v;
		break;
	case CEP_F16:
		((__half *)base)[i] = __float2half_rn((float)v);
		break;
	default:
		((bf16 *)base)[i] = __float2bfloat16_rn((float)v);
	}
}

__device__ __forceinline__ void store_f(u64 base, u32 dt, long long i, float v)
{
	switch (dt) {
	case CEP_F32:
		((float *)base)[i] = v;
		break;
	case CEP_F16:
		((__half *)base)[i] = __float2half_rn(v);
		break;
	case CEP_BF16:
		((bf16 *)base)[i] = __float2bfloat16_rn(v);
		break;
	case CEP_BOOL:
		((unsigned char *)base)[i] = v != 0.f;
		break;
	default:
		store_i(base, dt, i, v != v ? 0 : (long long)v);
	}
}

__device__ float unary_f(u32 op, float a, const float *f)
{
	switch (op) {
	case CEP_EW_NEG:
		return -a;
	case CEP_EW_ABS:
		return fabsf(a);
	case CEP_EW_SQRT:
		return sqrtf(a);
	case CEP_EW_RECIPROCAL:
		return 1.f / a;
	case CEP_EW_EXP:
		return expf(a);
	case CEP_EW_LOG:
		return logf(a);
	case CEP_EW_SIN:
		return sinf(a);
	case CEP_EW_COS:
		return cosf(a);
	case CEP_EW_TANH:
		return tanhf(a);
	case CEP_EW_SIGMOID:
		return f_sigmoid(a);
	case CEP_EW_RELU:
		return a < 0.f ? 0.f : a;
	case CEP_EW_ERF:
		return erff(a);
	case CEP_EW_SOFTPLUS:
		return fmaxf(a, 0.f) + log1pf(expf(-fabsf(a)));
	case CEP_EW_GELU:
		return 0.5f * a * (1.f + erff(a * 0.7071067811865476f));
	case CEP_EW_GELU_TANH:
		return f_gelu_tanh(a);
	case CEP_EW_QUICK_GELU:
		return a * f_sigmoid(f[0] * a);
	case CEP_EW_NOT:
		return a == 0.f;
	case CEP_EW_CLIP:
		a = a < f[0] ? f[0] : a;
		return a > f[1] ? f[1] : a;
	case CEP_EW_SIGN:
		return a > 0.f ? 1.f : a < 0.f ? -1.f : a;
	case CEP_EW_FLOOR:
		return floorf(a);
	default:
		return a;
	}
}

__device__ float binary_f(u32 op, float a, float b)
{
	switch (op) {
	case CEP_EW_ADD:
		return a + b;
	case CEP_EW_SUB:
		return a - b;
	case CEP_EW_MUL:
		return a * b;
	case CEP_EW_DIV:
		return a / b;
	case CEP_EW_POW:
		return b == 2.f ? a * a : b == 3.f ? a * a * a : powf(a, b);
	case CEP_EW_MIN:
		return a != a || a < b ? a : b;
	case CEP_EW_MAX:
		return a != a || a > b ? a : b;
	case CEP_EW_EQUAL:
		return a == b;
	case CEP_EW_LESS:
		return a < b;
	case CEP_EW_LESS_EQ:
		return a <= b;
	case CEP_EW_GREATER:
		return a > b;
	case CEP_EW_GREATER_EQ:
		return a >= b;
	case CEP_EW_FAST_GELU:
		return f_gelu_tanh(a + b);
	case CEP_EW_SILU_MUL:
		return a * f_sigmoid(a) * b;
	default:
		return a;
	}
}

__device__ long long int_op(const cep_ew &p, long long a, long long b)
{
	switch (p.op) {
	case CEP_EW_NEG:
		return (long long)(0ull - (u64)a);
	case CEP_EW_ABS:
		return a < 0 ? (long long)(0ull - (u64)a) : a;
	case CEP_EW_RELU:
		return a < 0 ? 0 : a;
	case CEP_EW_NOT:
		return a == 0;
	case CEP_EW_SIGN:
		return (a > 0) - (a < 0);
	case CEP_EW_ADD:
		return (long long)((u64)a + (u64)b);
	case CEP_EW_SUB:
		return (long long)((u64)a - (u64)b);
	case CEP_EW_MUL:
		return (long long)((u64)a * (u64)b);
	case CEP_EW_DIV:
		if (!b) {
			cep_refuse(p.blame, CEP_FAULT_DIV0, a, 0);
			return 0;
		}
		return b == -1 ? (long long)(0ull - (u64)a) : a / b;
	case CEP_EW_MIN:
		return a < b ? a : b;
	case CEP_EW_MAX:
		return a > b ? a : b;
	case CEP_EW_EQUAL:
		return a == b;
	case CEP_EW_LESS:
		return a < b;
	case CEP_EW_LESS_EQ:
		return a <= b;
	case CEP_EW_GREATER:
		return a > b;
	case CEP_EW_GREATER_EQ:
		return a >= b;
	case CEP_EW_AND:
		return a && b;
	case CEP_EW_OR:
		return a || b;
	default:
		return a;
	}
}

// Offsets of element i in the output and the inputs.
__device__ __forceinline__ void locate(const cep_ew &p, u64 i, long long *o,
				       long long *x)
{
	*o = 0;
	x[0] = x[1] = x[2] = 0;
	for (int d = (int)p.rank - 1; d >= 0; d--) {
		u64 q = i / (u64)p.dims[d];
		long long r = (long long)(i - q * (u64)p.dims[d]);

		*o += r * p.os[d];
		x[0] += r * p.is[0][d];
		x[1] += r * p.is[1][d];
		x[2] += r * p.is[2][d];
		i = q;
	}
}

#define CEP_EW_LOOP(body)                                                      \
	cep_begin();                                                           \
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < p.count;  \
	     i += (u64)gridDim.x * blockDim.x) {                               \
		long long o = (long long)i, x[3] = {o, o, o};                  \
		if (!p.dense)                                                  \
			locate(p, i, &o, x);                                   \
		body                                                           \
	}

CEP_KERNEL(cep_ew_f, cep_ew, 256){CEP_EW_LOOP({
	float a = load_f(p.in[0], p.in_dt[0], x[0]);
	float v;

	if (p.n_in == 1)
		v = unary_f(p.op, a, p.f);
	else if (p.n_in == 2)
		v = binary_f(p.op, a, load_f(p.in[1], p.in_dt[1], x[1]));
	else
		v = a != 0.f ? load_f(p.in[1], p.in_dt[1], x[1])
			     : load_f(p.in[2], p.in_dt[2], x[2]);
	store_f(p.out, p.out_dt, o, v);
})}

CEP_KERNEL(cep_ew_i, cep_ew, 256)
{
	CEP_EW_LOOP({
		long long a = load_i(p.in[0], p.in_dt[0], x[0]);
		long long v;

		if (p.n_in == 3)
			v = a ? load_i(p.in[1], p.in_dt[1], x[1])
			      : load_i(p.in[2], p.in_dt[2], x[2]);
		else
			v = int_op(p, a,
				   p.n_in == 2
					   ? load_i(p.in[1], p.in_dt[1], x[1])
					   : 0);
		store_i(p.out, p.out_dt, o, v);
	})
}

template <class U>
__device__ __forceinline__ void copy_body(const cep_ew &p){
	CEP_EW_LOOP({ ((U *)p.out)[o] = ((const U *)p.in[0])[x[0]]; })}

CEP_KERNEL(cep_copy_1, cep_ew, 256)
{
	copy_body<unsigned char>(p);
}
CEP_KERNEL(cep_copy_2, cep_ew, 256)
{
	copy_body<unsigned short>(p);
}
CEP_KERNEL(cep_copy_4, cep_ew, 256)
{
	copy_body<u32>(p);
}
CEP_KERNEL(cep_copy_8, cep_ew, 256)
{
	copy_body<u64>(p);
}
CEP_KERNEL(cep_copy_16, cep_ew, 256)
{
	copy_body<uint4>(p);
}

// Constants of a plan: written in stream order without a staging buffer.
CEP_KERNEL(cep_poke_k, cep_poke, 256)
{
	cep_begin();
	for (u32 i = threadIdx.x; i < p.bytes; i += blockDim.x)
		((unsigned char *)p.dst)[i] = p.data[i];
}

CEP_KERNEL(cep_fill_k, cep_fill, 256)
{
	cep_begin();
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < p.count;
	     i += (u64)gridDim.x * blockDim.x)
		if (p.size == 1)
			((unsigned char *)p.out)[i] = (unsigned char)p.bits;
		else if (p.size == 2)
			((uint16_t *)p.out)[i] = (uint16_t)p.bits;
		else if (p.size == 4)
			((u32 *)p.out)[i] = (u32)p.bits;
		else
			((u64 *)p.out)[i] = p.bits;
}
