// rows.cu - operators that reduce rows: norms, softmax, sums, arg-max.
// The order of every sum depends on the row's length only.
#include "modules/cuda_ep/kernels/wgmma.cuh"

// A block a row.  The number of threads, and so the order of the sum, is the
// host's choice by the row's length.
template <class T> __device__ __forceinline__ void norm_row(const cep_norm &p)
{
	__shared__ float red[32];
	u64 row = blockIdx.x;
	const T *x = (const T *)p.x + row * p.dim;
	const T *s = p.skip ? (const T *)p.skip + row % p.skip_rows * p.dim
			    : (const T *)0;
	const T *bias = (const T *)p.bias, *g = (const T *)p.gamma;
	const T *beta = (const T *)p.beta;
	T *sum = (T *)p.sum;
	CEP_SMEM(raw);
	float *buf = (float *)raw, acc = 0, mean = 0;

	cep_begin();
	for (u32 i = threadIdx.x; i < p.dim; i += blockDim.x) {
		float v = to_f(x[i]);

		if (s)
			v += to_f(s[i]);
		if (bias)
			v += to_f(bias[i]);
		if (s || bias) {
			T t = from_f<T>(v);

			if (sum)
				sum[row * p.dim + i] = t;
			v = to_f(t);
		} else if (sum) {
			sum[row * p.dim + i] = x[i];
		}
		buf[i] = v;
		acc += p.layer ? v : v * v;
	}
	acc = block_sum(acc, red);
	if (p.layer) {
		mean = acc / (float)p.dim;
		acc = 0;
		for (u32 i = threadIdx.x; i < p.dim; i += blockDim.x) {
			float d = buf[i] - mean;

			acc += d * d;
		}
		acc = block_sum(acc, red);
	}
	acc = inverse_rms(acc, 1.f / (float)p.dim, p.eps);
	for (u32 i = threadIdx.x; i < p.dim; i += blockDim.x) {
		float v = (buf[i] - mean) * acc;

		if (g)
			v *= to_f(g[i]);
		if (beta)
			v += to_f(beta[i]);
		((T *)p.out)[row * p.dim + i] = from_f<T>(v);
	}
}

__device__ __forceinline__ void store8(float *p, const float *x)
{
	cep_pack a, b;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		a.f[i] = x[i];
		b.f[i] = x[4 + i];
	}
	((uint4 *)p)[0] = a.v;
	((uint4 *)p)[1] = b.v;
}
template <class T> __device__ __forceinline__ void store8(T *p, const float *x)
{
	__align__(16) T v[8];

#pragma unroll
	for (int i = 0; i < 8; i++)
		v[i] = from_f<T>(x[i]);
	*(uint4 *)p = *(const uint4 *)v;
}

// Eight elements of a row from column at on, as cep_image4 puts them.
template <class T>
__device__ __forceinline__ void store_image(T *out, u32 rows, u32 dim, u32 row,
					    u32 at, const float *x)
{
	u32 part = row / rows * (dim / 64) + at / 64, c = at % 64 / 32 * 4;
	unsigned char *to = (unsigned char *)out + (u64)part * rows * WG_ROW +
			    at % 32 / 8 * 4;
	cep_pack v;

	store8((T *)v.h, x);
	v.v = in_order(v.v);
#pragma unroll
	for (u32 i = 0; i < 4; i++)
		*(u32 *)(to + wg_place(row % rows, c + i)) = v.u[i];
}
__device__ __forceinline__ void store_image(float *, u32, u32, u32, u32,
					    const float *)
{
}

// The same for rows of a multiple of 8 elements, up to 8 a thread, aligned:
// everything is loaded at once and stays in registers.  gemv4.cu does the same
// sums for its one row.
template <class T> __device__ __forceinline__ void norm_fast(const cep_norm &p)
{
	__shared__ float red[32];
	u64 row = blockIdx.x, at = threadIdx.x * 8;
	bool on = at < p.dim && row < p.rows;
	float v[8], g[8], t[8], acc = 0, mean = 0;

	cep_trigger();
	for (int i = 0; i < 8; i++) {
		g[i] = 1.f;
		v[i] = 0.f;
	}
	if (on && p.gamma)
		load8((const T *)p.gamma + at, g);
	cep_wait();
	if (on) {
		load8((const T *)p.x + row * p.dim + at, v);
		if (p.skip) {
			load8((const T *)p.skip + row % p.skip_rows * p.dim +
				      at,
			      t);
			for (int i = 0; i < 8; i++)
				v[i] += t[i];
		}
		if (p.bias) {
			load8((const T *)p.bias + at, t);
			for (int i = 0; i < 8; i++)
				v[i] += t[i];
		}
		if (p.skip || p.bias)
			for (int i = 0; i < 8; i++)
				v[i] = to_f(from_f<T>(v[i]));
		if (p.sum)
			store8((T *)p.sum + row * p.dim + at, v);
		for (int i = 0; i < 8; i++)
			acc = fmaf(p.layer ? 1.f : v[i], v[i], acc);
	}
	acc = block_sum(acc, red);
	if (p.layer) {
		mean = acc / (float)p.dim;
		acc = 0;
		for (int i = 0; i < 8 && on; i++)
			acc += (v[i] - mean) * (v[i] - mean);
		acc = block_sum(acc, red);
	}
	acc = inverse_rms(acc, 1.f / (float)p.dim, p.eps);
	if (at < p.dim && row >= p.rows) // an image is of whole rows
		store_image((T *)p.out, p.image_rows, p.dim, (u32)row, at, v);
	if (!on)
		return;
	for (int i = 0; i < 8; i++)
		t[i] = 0.f;
	if (p.beta)
		load8((const T *)p.beta + at, t);
	for (int i = 0; i < 8; i++)
		v[i] = (v[i] - mean) * acc * g[i] + t[i];
	if (p.image_rows)
		store_image((T *)p.out, p.image_rows, p.dim, (u32)row, at, v);
	else
		store8((T *)p.out + row * p.dim + at, v);
}

CEP_KERNEL(cep_norm8_f32, cep_norm, 1024)
{
	norm_fast<float>(p);
}
CEP_KERNEL(cep_norm8_f16, cep_norm, 1024)
{
	norm_fast<__half>(p);
}
CEP_KERNEL(cep_norm8_bf16, cep_norm, 1024)
{
	norm_fast<bf16>(p);
}
CEP_KERNEL(cep_norm_f32, cep_norm, 256)
{
	norm_row<float>(p);
}
CEP_KERNEL(cep_norm_f16, cep_norm, 256)
{
	norm_row<__half>(p);
}
CEP_KERNEL(cep_norm_bf16, cep_norm, 256)
{
	norm_row<bf16>(p);
}

__device__ __forceinline__ float row_load(u64 x, u32 dt, u64 i)
{
	return dt == CEP_F32   ? ((const float *)x)[i]
	       : dt == CEP_F16 ? __half2float(((const __half *)x)[i])
			       : __bfloat162float(((const bf16 *)x)[i]);
}
__device__ __forceinline__ void row_store(u64 x, u32 dt, u64 i, float v)
{
	if (dt == CEP_F32)
		((float *)x)[i] = v;
	else if (dt == CEP_F16)
		((__half *)x)[i] = __float2half_rn(v);
	else
		((bf16 *)x)[i] = __float2bfloat16_rn(v);
}

// Row r of a reduction over an axis with stride inner: r = o * inner + i.
__device__ __forceinline__ u64 row_base(const cep_row &p, u64 r)
{
	u64 in = (u64)p.inner;

	return r / in * in * p.dim + r % in;
}

CEP_KERNEL(cep_reduce, cep_row, 256)
{
	__shared__ float red[32];
	u64 row = blockIdx.x, base = row_base(p, row);
	bool is_max = p.op == CEP_ROW_MAX, is_min = p.op == CEP_ROW_MIN;
	float acc = is_max ? -INFINITY : is_min ? INFINITY : 0.f;

	cep_begin();
	for (u64 i = threadIdx.x; i < p.dim; i += blockDim.x) {
		float v = row_load(p.x, p.in_dt, base + i * (u64)p.inner);

		if (is_max)
			acc = fmaxf(acc, v);
		else if (is_min)
			acc = fminf(acc, v);
		else
			acc += v;
	}
	if (is_max)
		acc = block_max(acc, red);
	else if (is_min)
		acc = -block_max(-acc, red);
	else
		acc = block_sum(acc, red);
	if (threadIdx.x == 0)
		row_store(p.out, p.out_dt, row,
			  p.op == CEP_ROW_MEAN ? acc / (float)p.dim : acc);
}

// Integer sums, one thread a row: only masks and lengths come here.
CEP_KERNEL(cep_reduce_i, cep_row, 256)
{
	u64 row = blockIdx.x * (u64)blockDim.x + threadIdx.x;
	u64 base = row < p.rows ? row_base(p, row) : 0;
	long long acc = 0;

	cep_begin();
	if (row >= p.rows)
		return;
	for (u64 i = 0; i < p.dim; i++) {
		u64 at = base + i * (u64)p.inner;
		long long v = p.in_dt == CEP_I64 ? ((const long long *)p.x)[at]
						 : ((const int *)p.x)[at];

		acc = !i || p.op <= CEP_ROW_MEAN ? acc + v
		      : p.op == CEP_ROW_MAX	 ? (v > acc ? v : acc)
						 : (v < acc ? v : acc);
	}
	if (p.out_dt == CEP_I64)
		((long long *)p.out)[row] = acc;
	else
		((int *)p.out)[row] = (int)acc;
}

CEP_KERNEL(cep_softmax, cep_row, 256)
{
	__shared__ float red[32];
	u64 base = row_base(p, blockIdx.x);
	float mx = -INFINITY, sum = 0;

	cep_begin();
	for (u64 i = threadIdx.x; i < p.dim; i += blockDim.x)
		mx = fmaxf(mx, row_load(p.x, p.in_dt, base + i * (u64)p.inner));
	mx = block_max(mx, red);
	for (u64 i = threadIdx.x; i < p.dim; i += blockDim.x)
		sum += expf(row_load(p.x, p.in_dt, base + i * (u64)p.inner) -
			    mx);
	sum = block_sum(sum, red);
	for (u64 i = threadIdx.x; i < p.dim; i += blockDim.x) {
		u64 at = base + i * (u64)p.inner;
		float v = row_load(p.x, p.in_dt, at) - mx;

		row_store(p.out, p.out_dt, at,
			  p.op == CEP_ROW_SOFTMAX ? expf(v) / sum
						  : v - logf(sum));
	}
}

// A largest element: ties to the lowest index, none is the worst.
struct best {
	float v;
	long long at;

	__device__ __forceinline__ void take(float w, long long k)
	{
		if (k >= 0 && (at < 0 || w > v || (w == v && k < at))) {
			v = w;
			at = k;
		}
	}

	__device__ __forceinline__ void over_warp()
	{
#pragma unroll
		for (int o = 16; o; o >>= 1) {
			float w = __shfl_xor_sync(0xffffffffu, v, o);
			long long k = __shfl_xor_sync(0xffffffffu, at, o);

			take(w, k);
		}
	}
};

__device__ __forceinline__ void argmax_take(const cep_row &p, best &b, float w,
					    u64 i)
{
	if (w != w)
		cep_refuse(p.blame, CEP_FAULT_NAN, (long long)i,
			   (long long)p.dim);
	else
		b.take(w, (long long)i);
}

// This thread's elements, eight at a time where they lie so.
template <class T>
__device__ __forceinline__ void argmax_eights(const cep_row &p, best &b,
					      u64 base)
{
	const T *x = (const T *)p.x + base;
	u64 stride = (u64)gridDim.x * blockDim.x;

#pragma unroll 2
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i * 8 < p.dim;
	     i += stride) {
		float w[8];

		load8(x + i * 8, w);
#pragma unroll
		for (u32 e = 0; e < 8; e++)
			argmax_take(p, b, w[e], i * 8 + e);
	}
}

// Largest element of a row, ties to the lowest index; NaN is refused.  Blocks
// of a row take every gridDim.x-th stretch; the last one to come chooses.
CEP_KERNEL(cep_argmax, cep_row, 256)
{
	__shared__ best all[8];
	__shared__ u32 last;
	u64 row = blockIdx.y, base = row_base(p, row);
	u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
	bool eights = p.inner == 1 && p.dim % 8 == 0 && p.x % 16 == 0;
	best b = {-INFINITY, -1};

	cep_begin();
	if (eights && p.in_dt == CEP_F16)
		argmax_eights<__half>(p, b, base);
	else if (eights && p.in_dt == CEP_BF16)
		argmax_eights<bf16>(p, b, base);
	else
		for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
		     i < p.dim; i += (u64)gridDim.x * blockDim.x)
			argmax_take(
				p, b,
				row_load(p.x, p.in_dt, base + i * (u64)p.inner),
				i);
	b.over_warp();
	if (lane == 0)
		all[warp] = b;
	__syncthreads();
	if (warp)
		return;
	b.at = -1;
	if (lane < blockDim.x / 32)
		b = all[lane];
	b.over_warp();
	if (gridDim.x > 1) {
		volatile float *pv = (volatile float *)p.out2 + row * gridDim.x;
		volatile long long *pi =
			(volatile long long *)p.out3 + row * gridDim.x;

		if (lane == 0) {
			pv[blockIdx.x] = b.v;
			pi[blockIdx.x] = b.at;
			__threadfence();
			last = atomicInc((u32 *)p.counters + row,
					 gridDim.x - 1) == gridDim.x - 1;
			__threadfence();
		}
		__syncwarp();
		if (!last)
			return;
		b.at = -1;
		for (u32 i = lane; i < gridDim.x; i += 32)
			b.take(pv[i], pi[i]);
		b.over_warp();
	}
	if (lane)
		return;
	if (p.out_dt == CEP_I64)
		((long long *)p.out)[row] = b.at < 0 ? 0 : b.at;
	else
		((int *)p.out)[row] = b.at < 0 ? 0 : (int)b.at;
}
