// beside.cu - products of few rows with 4-bit matrices some rows of which the
// host's cores multiply meanwhile (multiply4.c), and asking and meeting them.
//
// Tensor cores round floats in a way of their own, which no other processor
// has, but their sums of integers are exact: so it does not matter who takes
// which rows.  Activations become integers, 32 columns with one power of two,
// the largest of them below 2^22: half floats lose nothing while they differ by
// less than 2^11.  An integer is three digits of 8 bits, which the tensor core
// multiplies with codes as they stand.  The sum of a block of 32 is exact;
// times the scales it is added to its lane's, fused: lane i of 32 takes the
// blocks i, i + 32, ... of a row, then a tree by halving distances.
//
// A warp takes 128 columns at a time (a stretch) of 16 rows, of one matrix or 8
// of each of two; a block's 8 warps take all of these rows, warp w the
// stretches w, w + 8, ...  Where the activations are one row, lane (g, t) loads
// block t of rows g and g + 8 whole, 16 bytes each: columns of the tensor core
// are digits of single blocks, and zeros keep the others out.  Of up to 8 rows,
// each is a column.
#include "modules/cuda_ep/kernels/mma.cuh"

#define WARPS 8u
#define DIGITS CEP_BESIDE_DIGITS // bytes of a stretch
#define POWERS 384u		 // where the powers of two of its 4 blocks lie
#define SUMS 400u		 // and what their integers add up to
#define LOW 0x0f0f0f0fu

template <class T> __device__ __forceinline__ float of_bits(uint16_t bits)
{
	T v;

	memcpy(&v, &bits, sizeof(v));
	return to_f(v);
}

__device__ __forceinline__ float as_float(u32 bits)
{
	float v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

// Digits of integers, in bytes: the even ones' to lo, the odd ones' to hi.
__device__ __forceinline__ void pack_digit(int *q, u32 *lo, u32 *hi)
{
	*lo = *hi = 0;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		*lo |= (u32)(q[2 * i] & 255) << 8 * i;
		*hi |= (u32)(q[2 * i + 1] & 255) << 8 * i;
	}
#pragma unroll
	for (int i = 0; i < 8; i++)
		q[i] = (q[i] - (int)(signed char)(q[i] & 255)) >> 8;
}

// Word w (8 columns) of a row of activations, zeros behind its end, if it is
// there: a quad of lanes does a block.  A stretch's digits at to: of each of
// three, the lowest first, the words' even columns, then their odd ones.
template <class T>
__device__ __forceinline__ void put_digits(const T *row, bool vec, u32 k, u32 w,
					   bool there, unsigned char *to)
{
	u32 top = 0, e, *at;
	bool finite;
	float x[8], f;
	int q[8], sum = 0;

#pragma unroll
	for (int i = 0; i < 8; i++)
		x[i] = 0;
	if (w * 8 < k && vec)
		load8(row + w * 8, x);
	else if (w * 8 < k)
#pragma unroll
		for (int i = 0; i < 8; i++)
			x[i] = to_f(row[w * 8 + i]);
#pragma unroll
	for (int i = 0; i < 8; i++) {
		u32 bits;

		memcpy(&bits, &x[i], sizeof(bits));
		bits &= 0x7fffffffu;
		top = bits > top ? bits : top;
	}
	e = __shfl_xor_sync(0xffffffffu, top, 1);
	top = e > top ? e : top;
	e = __shfl_xor_sync(0xffffffffu, top, 2);
	top = e > top ? e : top;
	e = top >> 23; // the largest is below 2^(e - 126)
	finite = e != 255;
	e = e > 23 ? e : 23;
	f = as_float((275 - e) << 23);
#pragma unroll
	for (int i = 0; i < 8; i++) {
		q[i] = finite ? __float2int_rn(x[i] * f) : 0;
		sum += q[i];
	}
	sum += __shfl_xor_sync(0xffffffffu, sum, 1);
	sum += __shfl_xor_sync(0xffffffffu, sum, 2);
	if (!there)
		return;
	to += w / 16 * DIGITS;
	at = (u32 *)to + w % 16;
#pragma unroll
	for (int d = 0; d < 3; d++)
		pack_digit(q, at + 32 * d, at + 32 * d + 16);
	if (w % 4)
		return;
	// what is not a number makes every sum none
	((float *)(to + POWERS))[w / 4 % 4] =
		as_float(finite ? (e - 21) << 23 : 0x7fffffffu);
	((int *)(to + SUMS))[w / 4 % 4] = sum;
}

__device__ __forceinline__ u32 stretches(u32 k)
{
	return (k + 127) / 128;
}

// A whole row, by all threads of a block.
template <class T>
__device__ __forceinline__ void put_row(const T *row, bool vec, u32 k,
					unsigned char *to)
{
	u32 n = stretches(k) * 16, lane = threadIdx.x & 31;

	for (u32 w = threadIdx.x; w - lane < n; w += blockDim.x)
		put_digits(row, vec, k, w, w < n, to);
}

// Rows of a matrix or two, and what both kernels do with sums of blocks.
template <class T, bool DUAL, bool PLAIN> struct rows4 {
	static constexpr u32 ROWS = DUAL ? 8 : 16;
	const cep_mv_dual_tiled &q;
	const cep_mm &p;
	u32 lane, warp, g, t, nb, n_rg;
	const unsigned char *codes[2], *scales[2], *zeros[2]; // g, g + 8

	__device__ __forceinline__ rows4(const cep_mv_dual_tiled &params)
	    : q(params), p(params.m), lane(threadIdx.x & 31),
	      warp(threadIdx.x / 32), g(lane >> 2), t(lane & 3), nb(p.k / 32),
	      n_rg((p.n + ROWS - 1) / ROWS)
	{
	}

	// Beyond the last row: the last one again, whose result is dropped.
	__device__ __forceinline__ void find(u32 rg)
	{
		u64 zp = p.zp_kind == CEP_ZP_PACKED ? p.zp_row : p.n_blocks * 2;

#pragma unroll
		for (u32 i = 0; i < 2; i++) {
			u32 row = rg * ROWS + g + (DUAL ? 0 : 8 * i), tile, at;

			row = row < p.n ? row : p.n - 1;
			tile = row / q.tile_rows;
			at = row - tile * q.tile_rows;
			tile += DUAL && i ? CEP_TILES : 0;
			codes[i] = (const unsigned char *)q.b[tile] +
				   (u64)at * p.ldb;
			scales[i] = (const unsigned char *)q.s[tile] +
				    (u64)at * p.n_blocks * 2;
			if (!PLAIN && p.zp_kind)
				zeros[i] = (const unsigned char *)q.z[tile] +
					   at * zp;
		}
	}

	// Of 32 columns from block b on: which scale; one that is there, as
	// the integers behind the end are zero.
	__device__ __forceinline__ u32 nth(u32 b) const
	{
		b = b < nb ? b : nb - 1;
		return PLAIN ? b : b >> q.o.shift;
	}

	__device__ __forceinline__ uint16_t scale(u32 i, u32 b) const
	{
		return ((const uint16_t *)scales[i])[nth(b)];
	}

	// A zero point as it stands.
	__device__ __forceinline__ uint16_t zero(u32 i, u32 b) const
	{
		if (PLAIN || p.zp_kind == CEP_ZP_NONE)
			return 8;
		b = nth(b);
		if (p.zp_kind == CEP_ZP_PACKED)
			return zeros[i][b / 2] >> (b & 1) * 4 & 15;
		return ((const uint16_t *)zeros[i])[b];
	}

	// Add a block: what its digits gave, its integers' sum, its power.
	__device__ __forceinline__ float add(float acc, int low, int middle,
					     int high, int sum, float power,
					     uint16_t scale,
					     uint16_t zero) const
	{
		int v = (int)((u32)low + ((u32)middle << 8) +
			      ((u32)high << 16));
		float d;

		if (PLAIN || p.zp_kind != CEP_ZP_FLOAT)
			d = (float)(v - (int)zero * sum);
		else
			d = fmaf(-of_bits<T>(zero), (float)sum, (float)v);
		return fmaf(d, of_bits<T>(scale) * power, acc);
	}
};

// The tree over lanes: at holds lane 4 w + j where its j is, w * stride.
__device__ __forceinline__ float over_warps(const float *at, u32 stride)
{
	float s[WARPS];

#pragma unroll
	for (u32 w = 0; w < WARPS; w++)
		s[w] = at[w * stride];
#pragma unroll
	for (u32 o = WARPS / 2; o; o /= 2)
#pragma unroll
		for (u32 w = 0; w < o; w++)
			s[w] += s[w + o];
	return s[0];
}

// The result of row, of what the matrices gave: bias, silu, a tensor added.
template <class T>
__device__ __forceinline__ void leave(const cep_mm &p, u64 add, u64 bias2,
				      bool dual, u32 m, u32 row, float v,
				      float u)
{
	u64 at = (u64)m * p.ldc + row;
	T r;

	if (p.bias)
		v += to_f(((const T *)p.bias)[row]);
	if (dual) {
		if (bias2)
			u += to_f(((const T *)bias2)[row]);
		v = to_f(from_f<T>(v));
		v = v * f_sigmoid(v) * to_f(from_f<T>(u));
	}
	r = from_f<T>(v);
	if (!dual && add)
		r = from_f<T>(to_f(((const T *)add)[at]) + to_f(r));
	((T *)p.out)[at] = r;
}

// ---- one row of activations ----

template <class T, bool DUAL, bool PLAIN>
struct one_row : rows4<T, DUAL, PLAIN> {
	typedef rows4<T, DUAL, PLAIN> base;
	static constexpr u32 N = 2; // stretches that are asked for together
	using base::g;
	using base::lane;
	using base::n_rg;
	using base::nb;
	using base::p;
	using base::q;
	using base::ROWS;
	using base::t;
	using base::warp;

	struct some {
		uint4 code[N][2];
		uint16_t scale[N][2], zero[N][2];
	};
	struct cursor {
		u32 rg, i;
	};
	const unsigned char *xs;
	float (*slots)[WARPS][64]; // [2], in turn
	u32 n_stretches, steps;	   // of all; of a warp and a row group
	float acc[2];

	__device__ __forceinline__ one_row(const cep_mv_dual_tiled &params)
	    : base(params)
	{
	}

	// To what comes next, its rows found.
	__device__ __forceinline__ void advance(cursor &c)
	{
		if (++c.i < steps)
			return;
		c.i = 0;
		c.rg += gridDim.x;
	}

	__device__ __forceinline__ void ask(cursor &c, some &v)
	{
		if (c.rg >= n_rg)
			return;
		if (c.i == 0)
			this->find(c.rg);
#pragma unroll
		for (u32 n = 0; n < N; n++) {
			u32 h = warp + WARPS * (c.i * N + n), b = 4 * h + t;

			if (h >= n_stretches)
				continue;
#pragma unroll
			for (u32 i = 0; i < 2; i++) {
				u32 at = b < nb ? b : nb - 1;

				v.code[n][i] =
					((const uint4 *)this->codes[i])[at];
				v.scale[n][i] = this->scale(i, b);
				v.zero[n][i] = this->zero(i, b);
			}
		}
		advance(c);
	}

	__device__ __forceinline__ static uint4 part(const unsigned char *x,
						     bool mine)
	{
		return mine ? *(const uint4 *)x : make_uint4(0, 0, 0, 0);
	}

	__device__ __forceinline__ void use_one(const uint4 *code,
						const uint16_t *scale,
						const uint16_t *zero, u32 h)
	{
		const unsigned char *x = xs + h * DIGITS;
		const unsigned char *low = x + (g & 1) * 128 + 16 * t;
		const unsigned char *high = x + 256 + 16 * t;
		// column g: block g / 2, its digit 0 or 1; or 2, of even ones
		bool mine = g >> 1 == t, even = g == 2 * t;
		uint4 b[4] = {part(low, mine), part(low + 64, mine),
			      part(high, even), part(high + 64, even)};
		int c[4] = {0, 0, 0, 0}, d[4] = {0, 0, 0, 0}, sum;
		float power;

#pragma unroll
		for (int i = 0; i < 4; i++) {
			u32 w = ((const u32 *)&code[0])[i];
			u32 u = ((const u32 *)&code[1])[i];
			u32 a[4] = {w & LOW, u & LOW, w >> 4 & LOW,
				    u >> 4 & LOW};

			mma32(c, a, ((const u32 *)&b[0])[i],
			      ((const u32 *)&b[1])[i]);
			mma32(d, a, ((const u32 *)&b[2])[i],
			      ((const u32 *)&b[3])[i]);
		}
		power = ((const float *)(x + POWERS))[t];
		sum = ((const int *)(x + SUMS))[t];
		acc[0] = this->add(acc[0], c[0], c[1], d[0], sum, power,
				   scale[0], zero[0]);
		acc[1] = this->add(acc[1], c[2], c[3], d[2], sum, power,
				   scale[1], zero[1]);
	}

	__device__ __forceinline__ void use(cursor &c, const some &v)
	{
#pragma unroll
		for (u32 n = 0; n < N; n++) {
			u32 h = warp + WARPS * (c.i * N + n);

			if (h < n_stretches)
				use_one(v.code[n], v.scale[n], v.zero[n], h);
		}
		if (c.i + 1 == steps)
			finish(c.rg);
		advance(c);
	}

	// The sums of a row group.
	__device__ __forceinline__ void finish(u32 rg)
	{
		float(*s)[64] = slots[rg / gridDim.x & 1], v, u;
		u32 row = rg * ROWS + g;

		s[warp][lane] = acc[0];
		s[warp][32 + lane] = acc[1];
		acc[0] = acc[1] = 0;
		__syncthreads();
		if (warp)
			return;
		v = over_warps(&s[0][lane], 64);
		u = over_warps(&s[0][32 + lane], 64);
#pragma unroll
		for (u32 o = 2; o; o /= 2) {
			v += __shfl_xor_sync(0xffffffffu, v, o);
			u += __shfl_xor_sync(0xffffffffu, u, o);
		}
		if (t)
			return;
		if (row < p.n)
			leave<T>(p, q.o.add, q.bias2, DUAL, 0, p.n0 + row, v,
				 u);
		if (!DUAL && row + 8 < p.n)
			leave<T>(p, q.o.add, 0, false, 0, p.n0 + row + 8, u,
				 0.f);
	}

	// The first codes are asked for before the kernel in front ends.
	__device__ __forceinline__ void run(unsigned char *smem)
	{
		cursor in = {blockIdx.x, 0}, at = in;
		some a, b;

		slots = (float(*)[WARPS][64])smem;
		smem += 2 * sizeof(*slots);
		n_stretches = stretches(p.k);
		steps = (n_stretches + WARPS * N - 1) / (WARPS * N);
		acc[0] = acc[1] = 0;
		cep_trigger();
		ask(in, a);
		ask(in, b);
		cep_wait();
		xs = p.part ? (const unsigned char *)p.part : smem;
		if (!p.part)
			put_row((const T *)p.a, p.vec_a, p.k, smem);
		__syncthreads();
		while (at.rg < n_rg) {
			use(at, a);
			ask(in, a);
			if (at.rg >= n_rg)
				break;
			use(at, b);
			ask(in, b);
		}
	}
};

// ---- up to eight rows of activations ----

template <class T, bool DUAL, bool PLAIN>
struct eight_rows : rows4<T, DUAL, PLAIN> {
	typedef rows4<T, DUAL, PLAIN> base;
	using base::g;
	using base::lane;
	using base::nb;
	using base::p;
	using base::q;
	using base::ROWS;
	using base::t;
	using base::warp;
	float acc[4][4]; // of a block of a stretch: as the tensor core has them

	__device__ __forceinline__ eight_rows(const cep_mv_dual_tiled &params)
	    : base(params)
	{
	}

	__device__ __forceinline__ const unsigned char *digits(u32 m,
							       u32 h) const
	{
		m = m < p.m ? m : p.m - 1;
		return (const unsigned char *)p.part +
		       ((u64)m * stretches(p.k) + h) * DIGITS;
	}

	// Block j of stretch h.
	__device__ __forceinline__ void use(u32 h, u32 j)
	{
		u32 m0 = blockIdx.y * 8, b = 4 * h + j,
		    at = b < nb ? b : nb - 1;
		const u32 *x = (const u32 *)digits(m0 + g, h) + 4 * j + t;
		u32 w = ((const u32 *)this->codes[0])[4 * at + t];
		u32 u = ((const u32 *)this->codes[1])[4 * at + t];
		u32 a[4] = {w & LOW, u & LOW, w >> 4 & LOW, u >> 4 & LOW};
		int c[3][4];

#pragma unroll
		for (int d = 0; d < 3; d++) {
			c[d][0] = c[d][1] = c[d][2] = c[d][3] = 0;
			mma32(c[d], a, x[32 * d], x[32 * d + 16]);
		}
#pragma unroll
		for (u32 e = 0; e < 4; e++) {
			const unsigned char *y =
				digits(m0 + 2 * t + (e & 1), h);

			acc[j][e] = this->add(
				acc[j][e], c[0][e], c[1][e], c[2][e],
				((const int *)(y + SUMS))[j],
				((const float *)(y + POWERS))[j],
				this->scale(e / 2, b), this->zero(e / 2, b));
		}
	}

	__device__ __forceinline__ void run(unsigned char *smem)
	{
		float(*slots)[4][128] = (float(*)[4][128])smem;
		u32 h, row, m, i;
		float s[2][4];

		cep_begin();
		this->find(blockIdx.x);
#pragma unroll
		for (u32 j = 0; j < 4; j++)
#pragma unroll
			for (u32 e = 0; e < 4; e++)
				acc[j][e] = 0;
#pragma unroll 1
		for (h = warp; h < stretches(p.k); h += WARPS)
#pragma unroll
			for (u32 j = 0; j < 4; j++)
				use(h, j);
#pragma unroll
		for (u32 j = 0; j < 4; j++)
#pragma unroll
			for (u32 e = 0; e < 4; e++)
				slots[warp][j][(g + e / 2 * 8) * 8 + 2 * t +
					       (e & 1)] = acc[j][e];
		__syncthreads();
		i = threadIdx.x;
		if (i >= ROWS * 8)
			return;
		for (u32 k = 0; k < (DUAL ? 2 : 1); k++)
			for (u32 j = 0; j < 4; j++)
				s[k][j] = over_warps(&slots[0][j][i + 64 * k],
						     4 * 128);
		row = blockIdx.x * ROWS + i / 8;
		m = blockIdx.y * 8 + i % 8;
		if (row < p.n && m < p.m)
			leave<T>(p, q.o.add, q.bias2, DUAL, m, p.n0 + row,
				 (s[0][0] + s[0][2]) + (s[0][1] + s[0][3]),
				 DUAL ? (s[1][0] + s[1][2]) +
						 (s[1][1] + s[1][3])
				      : 0.f);
	}
};

// ---- the host's part ----

// One block: the bell after all activations.
template <class T> __device__ __forceinline__ void ask(const cep_ask &p)
{
	cep_begin();
	put_row((const T *)p.x, p.vec, p.k, (unsigned char *)p.to);
	__threadfence_system();
	__syncthreads();
	if (threadIdx.x == 0) {
		u32 turn = *(u32 *)p.turn + 1;

		*(u32 *)p.turn = turn;
		__threadfence_system();
		*(volatile u64 *)p.bell = (u64)p.job << 32 | turn;
	}
}

__device__ __forceinline__ u64 now_ns()
{
#ifdef CEP_EMU
	return emu_clock_ns();
#else
	u64 t;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
	return t;
#endif
}

template <class T> __device__ __forceinline__ void meet(const cep_meet &p)
{
	u32 at = blockIdx.x * blockDim.x + threadIdx.x;

	cep_begin();
	if (threadIdx.x == 0) {
		u64 want = (u64)p.job << 32 | *(const u32 *)p.turn;
		u64 begin = now_ns();

		// a step that has failed waits for nobody
		while (*(volatile u64 *)p.answered != want &&
		       !*(volatile u32 *)p.blame.lock) {
			if (now_ns() - begin > p.patience_ns) {
				cep_refuse(p.blame, CEP_FAULT_HOST,
					   (long long)p.patience_ns, 0);
				break;
			}
			__nanosleep(100);
		}
		__threadfence_system();
	}
	__syncthreads();
	for (u32 i = 0; i < p.n_parts; i++) {
		u32 n = p.rows[i][1];

		for (; at < n; at += gridDim.x * blockDim.x) {
			u32 row = p.rows[i][0] + at;
			volatile const float *s =
				(volatile const float *)p.sums;

			leave<T>(p.m, p.add, p.bias2, p.dual, 0, row, s[row],
				 p.dual ? s[p.m.n + row] : 0.f);
		}
		at -= n;
	}
}

#define CEP_BESIDE_FORM(name, type, rows, dual)                                \
	CEP_KERNEL(name, cep_mv_dual_tiled, 256, 2)                            \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		if (!p.m.zp_kind && !p.o.shift)                                \
			rows<type, dual, true>(p).run(raw);                    \
		else                                                           \
			rows<type, dual, false>(p).run(raw);                   \
	}
#define CEP_BESIDE(suffix, type)                                               \
	CEP_KERNEL(cep_ask_##suffix, cep_ask, 1024)                            \
	{                                                                      \
		ask<type>(p);                                                  \
	}                                                                      \
	CEP_KERNEL(cep_meet_##suffix, cep_meet, 256)                           \
	{                                                                      \
		meet<type>(p);                                                 \
	}                                                                      \
	CEP_KERNEL(cep_digits_##suffix, cep_mm, 256)                           \
	{                                                                      \
		cep_begin();                                                   \
		put_row((const type *)p.a + (u64)blockIdx.x * p.lda, p.vec_a,  \
			p.k,                                                   \
			(unsigned char *)p.part +                              \
				(u64)blockIdx.x * stretches(p.k) * DIGITS);    \
	}                                                                      \
	CEP_BESIDE_FORM(cep_beside_1_##suffix, type, one_row, false)           \
	CEP_BESIDE_FORM(cep_besided_1_##suffix, type, one_row, true)           \
	CEP_BESIDE_FORM(cep_beside_8_##suffix, type, eight_rows, false)        \
	CEP_BESIDE_FORM(cep_besided_8_##suffix, type, eight_rows, true)
CEP_BESIDE(f16, __half)
CEP_BESIDE(bf16, bf16)
