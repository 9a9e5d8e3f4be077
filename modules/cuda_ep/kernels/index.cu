// index.cu - operators that read by index: Gather, GatherBlockQuantized,
// RotaryEmbedding.  A bad index is reported with its node and reads row 0.
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
