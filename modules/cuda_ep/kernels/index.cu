// index.cu - operators that read by index: Gather, GatherBlockQuantized,
// RotaryEmbedding, GatherElements; that write by index: ScatterElements; and
// TopK, which finds indices.  A bad index is reported with its node and is 0.
#include "modules/cuda_ep/kernels/common.cuh"

// Row index k, made legal.
__device__ __forceinline__ u64 pick(const cep_blame &b, u64 idx, u64 k,
				    u32 is64, u64 rows, bool report)
{
	long long i = load_index(idx, k, is64), n = (long long)rows;

	if (i < -n || i >= n) {
		if (report)
			cep_refuse(b, CEP_FAULT_INDEX, i, n);
		return 0;
	}
	return (u64)(i < 0 ? i + n : i);
}

template <class U> __device__ __forceinline__ void gather(const cep_gather &p)
{
	u64 units = p.inner / sizeof(U), total = p.outer * p.n_idx * units;

	cep_begin();
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < total;
	     i += (u64)gridDim.x * blockDim.x) {
		u64 u = i % units, k = i / units % p.n_idx;
		u64 o = i / units / p.n_idx;
		u64 row = pick(p.blame, p.idx, k, p.idx64, p.axis, u == 0);
		const char *src = (const char *)p.data +
				  (long long)o * p.s_outer +
				  (long long)row * p.s_axis;

		((U *)p.out)[i] = ((const U *)src)[u];
	}
}

CEP_KERNEL(cep_gather_1, cep_gather, 256)
{
	gather<unsigned char>(p);
}
CEP_KERNEL(cep_gather_2, cep_gather, 256)
{
	gather<unsigned short>(p);
}
CEP_KERNEL(cep_gather_4, cep_gather, 256)
{
	gather<u32>(p);
}
CEP_KERNEL(cep_gather_8, cep_gather, 256)
{
	gather<u64>(p);
}
CEP_KERNEL(cep_gather_16, cep_gather, 256)
{
	gather<uint4>(p);
}

// ---- single elements ----

__device__ __forceinline__ void move(u64 to, u64 at, u64 from, u64 k, u32 size)
{
	if (size == 1)
		((unsigned char *)to)[at] = ((const unsigned char *)from)[k];
	else if (size == 2)
		((uint16_t *)to)[at] = ((const uint16_t *)from)[k];
	else if (size == 4)
		((u32 *)to)[at] = ((const u32 *)from)[k];
	else
		((u64 *)to)[at] = ((const u64 *)from)[k];
}

__device__ __forceinline__ bool is_float(u32 dt)
{
	return dt == CEP_F32 || dt == CEP_F16 || dt == CEP_BF16;
}

__device__ __forceinline__ float float_at(u64 x, u64 i, u32 dt)
{
	return dt == CEP_F32   ? ((const float *)x)[i]
	       : dt == CEP_F16 ? to_f(((const __half *)x)[i])
			       : to_f(((const bf16 *)x)[i]);
}

__device__ __forceinline__ long long int_at(u64 x, u64 i, u32 dt)
{
	switch (dt) { // not ?:, whose type would be unsigned
	case CEP_I64:
		return ((const long long *)x)[i];
	case CEP_I32:
		return ((const int *)x)[i];
	case CEP_U32:
		return ((const u32 *)x)[i];
	case CEP_I8:
		return ((const signed char *)x)[i];
	default:
		return ((const unsigned char *)x)[i];
	}
}

// An element as an integer of the same order: NaN last, both zeros one.
__device__ __forceinline__ long long rank_of(u64 x, u64 i, u32 dt)
{
	union {
		float f;
		int i;
	} v;

	if (!is_float(dt))
		return int_at(x, i, dt);
	v.f = float_at(x, i, dt);
	if (v.f != v.f)
		return 0x7fffffffffffffffll;
	if (v.f == 0)
		return 0;
	return v.i < 0 ? v.i ^ 0x7fffffff : v.i;
}

// An element's place is the number of those that come before it.
CEP_KERNEL(cep_topk, cep_best, 256)
{
	cep_begin();
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < p.count;
	     i += (u64)gridDim.x * blockDim.x) {
		u64 line = i / p.dim, outer = line / p.inner;
		u64 at = line % p.inner, first = outer * p.inner * p.dim + at;
		u32 e = (u32)(i % p.dim), place = 0;
		long long v = rank_of(p.x, first + e * p.inner, p.dt);

		for (u32 j = 0; j < p.dim && place < p.k; j++) {
			long long w = rank_of(p.x, first + j * p.inner, p.dt);

			place += w == v ? j < e : p.smallest ? w < v : w > v;
		}
		if (place >= p.k)
			continue;
		at += (outer * p.k + place) * p.inner;
		if (p.values)
			move(p.values, at, p.x, first + e * p.inner, p.size);
		if (p.at)
			((long long *)p.at)[at] = e;
	}
}

CEP_KERNEL(cep_gather_elements, cep_elements, 256)
{
	u64 dim = (u64)p.dims[p.axis];

	cep_begin();
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < p.count;
	     i += (u64)gridDim.x * blockDim.x) {
		u64 r = i, from = 0, stride = 1;

		for (u32 d = p.rank; d-- > 0;) {
			u64 c = r % (u64)p.idims[d];

			r /= (u64)p.idims[d];
			if (d == p.axis)
				c = pick(p.blame, p.idx, i, p.idx64, dim, true);
			from += c * stride;
			stride *= (u64)p.dims[d];
		}
		move(p.out, i, p.x, from, p.size);
	}
}

// What is there and what comes to it: a sum, product, or the further of both.
template <class V> __device__ __forceinline__ V meet(u32 how, V a, V b)
{
	return how == CEP_ADD	? a + b
	       : how == CEP_MUL ? a * b
	       : how == CEP_MAX ? (a > b || a != a ? a : b)
				: (a < b || a != a ? a : b);
}

__device__ __forceinline__ void write(const cep_elements &p, u64 at, u64 from)
{
	if (p.how == CEP_SET) {
		move(p.out, at, p.updates, from, p.size);
	} else if (is_float(p.dt)) {
		float v = meet(p.how, float_at(p.out, at, p.dt),
			       float_at(p.updates, from, p.dt));

		if (p.dt == CEP_F32)
			((float *)p.out)[at] = v;
		else if (p.dt == CEP_F16)
			((__half *)p.out)[at] = from_f<__half>(v);
		else
			((bf16 *)p.out)[at] = from_f<bf16>(v);
	} else { // what it has too much is cut off
		long long v = meet(p.how, int_at(p.out, at, p.dt),
				   int_at(p.updates, from, p.dt));

		move(p.out, at, (u64)&v, 0, p.size);
	}
}

// A warp a line of the data: copied, then written to in the order of the
// indices, so that of several for one element the last is always the last.
CEP_KERNEL(cep_scatter_elements, cep_elements, 256)
{
	u32 lane = threadIdx.x & 31;
	u64 dim = (u64)p.dims[p.axis];

	cep_begin();
	for (u64 i = blockIdx.x * (u64)(blockDim.x / 32) + threadIdx.x / 32;
	     i < p.count; i += (u64)gridDim.x * (blockDim.x / 32)) {
		u64 r = i, at = 0, stride = 1, inner = 1;
		u64 idx = 0, istride = 1, iinner = 1;
		bool in = true;

		for (u32 d = p.rank; d-- > 0;) {
			u64 n = (u64)p.dims[d], c = r % n;

			if (d == p.axis) {
				inner = stride;
				iinner = istride;
			} else {
				r /= n;
				at += c * stride;
				idx += c * istride;
				in = in && c < (u64)p.idims[d];
			}
			stride *= n;
			istride *= (u64)p.idims[d];
		}
		for (u64 e = lane; e < dim; e += 32)
			move(p.out, at + e * inner, p.x, at + e * inner,
			     p.size);
		__syncwarp();
		for (u64 e = 0; in && !lane && e < (u64)p.idims[p.axis]; e++) {
			u64 from = idx + e * iinner;
			u64 k = pick(p.blame, p.idx, from, p.idx64, dim, true);

			write(p, at + k * inner, from);
		}
	}
}

__device__ __forceinline__ int nibble(const unsigned char *p, u32 k, u32 bits)
{
	if (bits == 8)
		return p[k];
	return (p[k >> 1] >> ((k & 1) * 4)) & 15;
}

template <class T> __device__ __forceinline__ void gbq(const cep_gbq &p)
{
	u64 total = p.n_idx * p.dim;

	cep_begin();
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < total;
	     i += (u64)gridDim.x * blockDim.x) {
		u64 k = i / p.dim;
		u32 d = (u32)(i % p.dim), blk = d / p.block;
		u64 row = pick(p.blame, p.idx, k, p.idx64, p.rows, d == 0);
		const unsigned char *src =
			(const unsigned char *)p.data + row * p.row_bytes;
		int q = nibble(src, d, p.bits), zp = (int)p.zp_default;
		float s = to_f(((const T *)p.scales)[row * p.n_blocks + blk]);

		if (p.zp) {
			zp = nibble((const unsigned char *)p.zp +
					    row * p.zp_row_bytes,
				    blk, p.bits);
			if (p.is_signed && zp >> (p.bits - 1))
				zp -= 1 << p.bits;
		}
		if (p.is_signed && q >> (p.bits - 1))
			q -= 1 << p.bits;
		((T *)p.out)[i] = from_f<T>((float)(q - zp) * s);
	}
}

CEP_KERNEL(cep_gbq_f32, cep_gbq, 256)
{
	gbq<float>(p);
}
CEP_KERNEL(cep_gbq_f16, cep_gbq, 256)
{
	gbq<__half>(p);
}
CEP_KERNEL(cep_gbq_bf16, cep_gbq, 256)
{
	gbq<bf16>(p);
}

template <class T> __device__ __forceinline__ void rope(const cep_rope &p)
{
	u64 total = (u64)p.batch * p.heads * p.seq * p.size;
	u32 half = p.rot / 2;

	cep_begin();
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < total;
	     i += (u64)gridDim.x * blockDim.x) {
		u32 d = (u32)(i % p.size), h = (u32)(i / p.size % p.heads);
		u64 r = i / p.size / p.heads;
		u32 s = (u32)(r % p.seq), b = (u32)(r / p.seq);
		const T *x = (const T *)p.x + b * p.xs[0] + h * p.xs[1] +
			     s * p.xs[2];
		float v = to_f(x[d]);

		if (d < p.rot) {
			long long pos =
				p.pos_n == 1 ? ((const long long *)p.pos)[0] + s
					     : ((const long long *)p.pos)[r];
			u32 k = p.interleaved ? d / 2 : d % half;
			bool low = p.interleaved ? !(d & 1) : d < half;
			u32 mate = p.interleaved ? d ^ 1
				   : low	 ? d + half
						 : d - half;
			float c, n;

			if (pos < 0 || pos >= (long long)p.rows) {
				if (!d && !h)
					cep_refuse(p.blame, CEP_FAULT_ROTARY,
						   pos, p.rows);
				pos = 0;
			}
			c = to_f(((const T *)p.cosc)[pos * half + k]);
			n = to_f(((const T *)p.sinc)[pos * half + k]);
			v = low ? v * c - to_f(x[mate]) * n
				: v * c + to_f(x[mate]) * n;
		}
		((T *)p.out)[b * p.os[0] + h * p.os[1] + s * p.os[2] + d] =
			from_f<T>(v * p.scale);
	}
}

CEP_KERNEL(cep_rope_f32, cep_rope, 256)
{
	rope<float>(p);
}
CEP_KERNEL(cep_rope_f16, cep_rope, 256)
{
	rope<__half>(p);
}
CEP_KERNEL(cep_rope_bf16, cep_rope, 256)
{
	rope<bf16>(p);
}
