// linear.cu - LinearAttention: a matrix per head, S [dk, dv], that every token
// decays, corrects and adds to, and that its query then reads.
//
// A warp has COLUMNS columns of a head's matrix in registers, a lane the rows
// lane + 32 r of them: columns have nothing to do with each other, and only
// sums over dk leave a lane.  Tokens come one after another, in a prompt as in
// decoding, and a state narrower than float is rounded after each, so where a
// step ends changes nothing.
//
// Order of a sum over dk: r ascending in a lane, lanes by halving distances.
#include "modules/cuda_ep/kernels/common.cuh"

#define COLUMNS 8

__device__ __forceinline__ float round_as(float x, u32 dt)
{
	return dt == CEP_F16	? to_f(from_f<__half>(x))
	       : dt == CEP_BF16 ? to_f(from_f<bf16>(x))
				: x;
}

__device__ __forceinline__ u64 state_at(const cep_linear &p, u64 head, u32 i,
					u32 j)
{
	return (head * p.dk + i) * p.dv + j;
}

__device__ __forceinline__ float load_state(u64 s, u32 dt, u64 i)
{
	return dt == CEP_F32   ? ((const float *)s)[i]
	       : dt == CEP_F16 ? to_f(((const __half *)s)[i])
			       : to_f(((const bf16 *)s)[i]);
}

__device__ __forceinline__ void store_state(u64 s, u32 dt, u64 i, float v)
{
	if (dt == CEP_F32)
		((float *)s)[i] = v;
	else if (dt == CEP_F16)
		((__half *)s)[i] = from_f<__half>(v);
	else
		((bf16 *)s)[i] = from_f<bf16>(v);
}

// What a token brings, for one head.
template <int R> struct token {
	float k[R], e[R], v[COLUMNS], beta;
};

template <class T, int R> struct linear {
	const cep_linear &p;
	u32 lane, h, first;
	u64 b;
	float s[R][COLUMNS];

	__device__ __forceinline__ linear(const cep_linear &params) : p(params)
	{
	}

	__device__ __forceinline__ void move_state(bool store)
	{
#pragma unroll
		for (u32 r = 0; r < R; r++)
#pragma unroll
			for (u32 j = 0; j < COLUMNS; j++) {
				u32 i = r * 32 + lane, col = first + j;
				bool on = i < p.dk && col < p.dv;
				u64 at = state_at(p, b * p.heads + h, i, col);

				if (!store)
					s[r][j] =
						on && p.past
							? load_state(p.past,
								     p.state_dt,
								     at)
							: 0.f;
				else if (on)
					store_state(p.present, p.state_dt, at,
						    s[r][j]);
			}
	}

	__device__ __forceinline__ void vector(u64 base, u64 row,
					       float *o) const
	{
#pragma unroll
		for (u32 r = 0; r < R; r++) {
			u32 i = r * 32 + lane;

			o[r] = i < p.dk
				       ? to_f(((const T *)base)[row * p.dk + i])
				       : 0.f;
		}
	}

	__device__ __forceinline__ void load(u32 t, token<R> &x) const
	{
		u64 m = b * p.length + t, mine = m * p.heads + h;

		if (t >= p.length)
			return;
		vector(p.k, m * p.k_heads + h / (p.heads / p.k_heads), x.k);
#pragma unroll
		for (u32 j = 0; j < COLUMNS; j++)
			x.v[j] = first + j < p.dv
					 ? to_f(((const T *)p.v)[mine * p.dv +
								 first + j])
					 : 0.f;
		if (p.per_row) {
			vector(p.decay, mine, x.e);
		} else if (p.decay) {
			x.e[0] = to_f(((const T *)p.decay)[mine]);
		}
		if (p.beta)
			x.beta = to_f(
				((const T *)p.beta)[p.one_beta ? m : mine]);
	}

	// v . S, for each column, in every lane.
	__device__ __forceinline__ void read(const float *v, float *o) const
	{
#pragma unroll
		for (u32 j = 0; j < COLUMNS; j++) {
			o[j] = 0;
#pragma unroll
			for (u32 r = 0; r < R; r++)
				o[j] = fmaf(v[r], s[r][j], o[j]);
		}
#pragma unroll
		for (u32 j = 0; j < COLUMNS; j++)
			o[j] = warp_sum(o[j]);
	}

	// What of a token goes into S.
	__device__ __forceinline__ void update(const token<R> &x)
	{
		float v[COLUMNS], o[COLUMNS];

		if (p.decay) {
			float all = p.per_row ? 0.f : expf(x.e[0]);

#pragma unroll
			for (u32 r = 0; r < R; r++) {
				float d = p.per_row ? expf(x.e[r]) : all;

#pragma unroll
				for (u32 j = 0; j < COLUMNS; j++)
					s[r][j] *= d;
			}
		}
		if (p.beta)
			read(x.k, o);
#pragma unroll
		for (u32 j = 0; j < COLUMNS; j++)
			v[j] = p.beta ? x.beta * (x.v[j] - o[j]) : x.v[j];
#pragma unroll
		for (u32 r = 0; r < R; r++)
#pragma unroll
			for (u32 j = 0; j < COLUMNS; j++)
				s[r][j] = fmaf(x.k[r], v[j], s[r][j]);
	}

	// The queries of this head, and what they read.
	__device__ __forceinline__ void answer(u32 t) const
	{
		u64 m = b * p.length + t;
		u32 each = p.q_heads > p.heads ? p.q_heads / p.heads : 1;
		u32 out_heads = p.heads * each;

		for (u32 g = 0; g < each; g++) {
			u32 o = h * each + g;
			u32 from = each > 1 ? o : h / (p.heads / p.q_heads);
			float q[R], y[COLUMNS], mine = 0;

			vector(p.q, m * p.q_heads + from, q);
			read(q, y);
#pragma unroll
			for (u32 j = 0; j < COLUMNS; j++)
				mine = lane == j ? y[j] : mine;
			if (lane < COLUMNS && first + lane < p.dv)
				((T *)p.out)[(m * out_heads + o) * p.dv +
					     first + lane] =
					from_f<T>(mine * p.scale);
		}
	}

	__device__ __forceinline__ void run()
	{
		u32 blocks = (p.dv + COLUMNS - 1) / COLUMNS;
		u64 unit =
			blockIdx.x * (u64)(blockDim.x / 32) + threadIdx.x / 32;
		token<R> x, next = {};

		lane = threadIdx.x & 31;
		first = (u32)(unit % blocks) * COLUMNS;
		h = (u32)(unit / blocks % p.heads);
		b = unit / blocks / p.heads;
		cep_begin();
		if (b >= p.batch)
			return;
		move_state(false);
		load(0, next);
		for (u32 t = 0; t < p.length; t++) {
			x = next;
			load(t + 1, next);
			update(x);
			if (p.out)
				answer(t);
			if (p.state_dt == CEP_F32)
				continue;
#pragma unroll
			for (u32 r = 0; r < R; r++)
#pragma unroll
				for (u32 j = 0; j < COLUMNS; j++)
					s[r][j] = round_as(s[r][j], p.state_dt);
		}
		if (p.present)
			move_state(true);
	}
};

#define CEP_LINEAR(type, suffix)                                               \
	CEP_KERNEL(cep_linear_128_##suffix, cep_linear, 128)                   \
	{                                                                      \
		linear<type, 4>(p).run();                                      \
	}                                                                      \
	CEP_KERNEL(cep_linear_256_##suffix, cep_linear, 128)                   \
	{                                                                      \
		linear<type, 8>(p).run();                                      \
	}
CEP_LINEAR(float, f32)
CEP_LINEAR(__half, f16)
CEP_LINEAR(bf16, bf16)

// ---- the gates that it is given ----

template <class T>
__device__ __forceinline__ void linear_gate(const cep_linear_gate &p)
{
	u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;

	cep_begin();
	if (i >= p.count)
		return;
	if (p.decay) {
		float x = to_f(((const T *)p.a)[i]) +
			  ((const float *)p.bias)[i % p.heads];

		x = fmaxf(x, 0.f) + log1pf(expf(-fabsf(x)));
		((T *)p.decay)[i] =
			from_f<T>(x * ((const float *)p.scale)[i % p.heads]);
	}
	if (p.beta)
		((T *)p.beta)[i] =
			from_f<T>(f_sigmoid(to_f(((const T *)p.b)[i])));
}

CEP_KERNEL(cep_linear_gate_f32, cep_linear_gate, 256)
{
	linear_gate<float>(p);
}
CEP_KERNEL(cep_linear_gate_f16, cep_linear_gate, 256)
{
	linear_gate<__half>(p);
}
CEP_KERNEL(cep_linear_gate_bf16, cep_linear_gate, 256)
{
	linear_gate<bf16>(p);
}
