// moe.cuh - what kernels of experts share: which ones a row takes, what becomes
// of a product, zero points.
#ifndef CEP_MOE_CUH
#define CEP_MOE_CUH

#include "modules/cuda_ep/kernels/tile.cuh"

// ---- choosing ----

__device__ __forceinline__ float load_as(u64 x, u32 dt, u64 i)
{
	return dt == CEP_F32   ? ((const float *)x)[i]
	       : dt == CEP_F16 ? __half2float(((const __half *)x)[i])
			       : __bfloat162float(((const bf16 *)x)[i]);
}

__device__ __forceinline__ u32 bits_of(float x)
{
	u32 u;

	memcpy(&u, &x, 4);
	return u;
}

// Logits as numbers in their order, that of infinity and of what is no number
// the lowest; 0 is none.
__device__ __forceinline__ u32 key_of(float x)
{
	u32 u = bits_of(x != x ? -INFINITY : x + 0.f); // one zero

	return u >> 31 ? ~u : u | 0x80000000u;
}

__device__ __forceinline__ float of_key(u32 k)
{
	float x;

	k = k >> 31 ? k & 0x7fffffffu : ~k;
	memcpy(&x, &k, 4);
	return x;
}

// The largest of a warp.
__device__ __forceinline__ u32 warp_most(u32 v)
{
#if !defined(CEP_EMU) && __CUDA_ARCH__ >= 800
	return __reduce_max_sync(0xffffffffu, v);
#else
	for (int o = 16; o; o >>= 1) {
		u32 w = __shfl_xor_sync(0xffffffffu, v, o);

		v = v < w ? w : v;
	}
	return v;
#endif
}

// Experts of a row and what they count for, by a warp: lane i has logits i, i +
// 32, ..., HELD of them.  The larger first, of equals the one in front.
template <int HELD>
__device__ __forceinline__ void choose_of(const cep_moe_route &p, u32 m,
					  u32 *ids, float *w, bool tell)
{
	u32 lane = threadIdx.x & 31, key[HELD];
	u64 row = (u64)m * p.experts;
	float bad = 0, all = 0, chosen = 0, first = 0;

#pragma unroll
	for (u32 j = 0; j < HELD; j++) {
		u32 e = lane + 32 * j;
		float x = e < p.experts ? load_as(p.logits, p.dt, row + e)
					: -INFINITY;

		bad = x < INFINITY ? bad : 1.f;
		key[j] = e < p.experts ? key_of(x) : 0;
	}
	first = of_key(warp_most([&] {
		u32 most = key[0];

#pragma unroll
		for (u32 j = 1; j < HELD; j++)
			most = most < key[j] ? key[j] : most;
		return most;
	}()));
	if (!p.normalize && !p.own) {
#pragma unroll
		for (u32 j = 0; j < HELD; j++)
			if (key[j])
				all += expf(of_key(key[j]) - first);
		all = warp_sum(all);
	}
	for (u32 i = 0; i < p.k; i++) {
		u32 most = 0, at = 0, e;
		float v;

#pragma unroll
		for (u32 j = 0; j < HELD; j++)
			if (key[j] > most) {
				most = key[j];
				at = j;
			}
		e = warp_most(most);
		v = expf(of_key(e) - first);
		// the lowest of those that have it
		e = ~warp_most(most == e ? ~(lane + 32 * at) : 0);
		if (p.own)
			v = load_as(p.own, p.own_dt, row + e);
#pragma unroll
		for (u32 j = 0; j < HELD; j++)
			key[j] = lane + 32 * j == e ? 0 : key[j];
		chosen += v;
		if (lane == (i & 31)) {
			ids[i] = e;
			w[i] = v;
		}
	}
	if (p.normalize)
		all = chosen;
	else if (p.own)
		all = 1;
	for (u32 i = lane; i < p.k; i += 32)
		w[i] /= all;
	bad = warp_max(bad);
	if (tell && lane == 0 && (bad > 0 || first == -INFINITY))
		cep_refuse(p.blame, CEP_FAULT_ROUTER, m, bad > 0);
}

__device__ __forceinline__ void choose(const cep_moe_route &p, u32 m, u32 *ids,
				       float *w, bool tell)
{
	if (p.experts <= 128)
		choose_of<4>(p, m, ids, w, tell);
	else
		choose_of<CEP_EXPERTS / 32>(p, m, ids, w, tell);
}

// ---- what products share ----

__device__ __forceinline__ float gated(const cep_moe &p, float x)
{
	float t = x;

	if (p.act == CEP_MOE_IDENTITY)
		return x;
	if (p.act == CEP_MOE_RELU || p.act == CEP_MOE_RELU2) {
		x = x < 0 ? 0.f : x;
		return p.act == CEP_MOE_RELU ? x : x * x;
	}
	if (p.act == CEP_MOE_GELU)
		t = 1.5957691216057308f * (x + 0.044715f * (x * x * x));
	if (p.act == CEP_MOE_SWIGLU) {
		if (!p.late && x > p.limit)
			x = p.limit;
		t = p.alpha * x;
	}
	x *= f_sigmoid(t);
	return p.act == CEP_MOE_SWIGLU && p.late && x > p.limit ? p.limit : x;
}

// What an expert has of a matrix: all experts lie together, bytes each, or
// apart, and at is a table.
__device__ __forceinline__ const unsigned char *part_of(u64 at, u32 apart,
							u32 expert, u64 bytes)
{
	return (const unsigned char *)(apart ? ((const u64 *)at)[expert]
					     : at + expert * bytes);
}

// A step used the expert: one thread says so.
__device__ __forceinline__ void count_use(const cep_moe_route &p, u32 expert)
{
	if (p.uses)
		((u32 *)p.uses)[expert]++;
}

// The bias of output o of an expert; half 1: of what is gated.
template <class T>
__device__ __forceinline__ float bias_of(const cep_moe &p, u32 half, u32 expert,
					 u32 o)
{
	const cep_moe_mat &m = p.m[half];

	return m.bias ? to_f(((const T *)part_of(
				m.bias, m.apart & CEP_APART_BIAS, expert,
				(u64)m.rows * sizeof(T)))[o * p.row_mul +
							  half * p.row_add])
		      : 0.f;
}

// Output o of a pair: v is the product with the first matrix, u with the other,
// their biases added.
template <class T>
__device__ __forceinline__ void emit(const cep_moe &p, u32 pair, u32 o, float v,
				     float u)
{
	if (p.last) {
		((float *)p.out)[(u64)pair * p.n + o] = v;
		return;
	}
	v = gated(p, v);
	if (p.dual) {
		if (p.act == CEP_MOE_SWIGLU)
			u = (u > p.limit    ? p.limit
			     : u < -p.limit ? -p.limit
					    : u) +
			    p.beta;
		v *= u;
	}
	((T *)p.out)[(u64)pair * p.n + o] = from_f<T>(v);
}

// Zero point of a block of an expert's row.
template <class T>
__device__ __forceinline__ float zero_of(const cep_moe_mat &m, u32 expert,
					 u32 row, u32 block)
{
	u32 apart = m.apart & CEP_APART_ZP, i = block;
	const unsigned char *z;

	if (m.zp_kind == CEP_ZP_NONE)
		return (float)(1u << (m.bits - 1));
	if (m.zp_kind == CEP_ZP_FLOAT)
		return to_f(((const T *)part_of(
			m.zp, apart, expert,
			(u64)m.rows * m.n_blocks *
				sizeof(T)))[(u64)row * m.n_blocks + block]);
	if (m.zp_kind == CEP_ZP_TURNED) {
		z = part_of(m.zp, apart, expert, m.zp_row);
		i = row;
	} else {
		z = part_of(m.zp, apart, expert, (u64)m.rows * m.zp_row) +
		    (u64)row * m.zp_row;
	}
	return (float)(z[(u64)i * m.bits / 8] >> i * m.bits % 8 &
		       ((1u << m.bits) - 1));
}

#endif
