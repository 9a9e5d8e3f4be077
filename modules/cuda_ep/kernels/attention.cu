// attention.cu - what GroupQueryAttention and PagedAttention do around the
// kernels for tensor cores: prepare (q/k norm, rope, append), for caches that
// are not in place copy, for windowed ones move; and attend, where those
// kernels do not: float32, bfloat16 before 8.0.  A step of one token in half
// precision mostly needs none of it (split.cu).
//
// Lengths are read on the device.  A row that is attended here depends on its
// own total length and, through the number of splits, on whether the step has
// more than 16 rows, on nothing else; rows of PagedAttention, whose pieces are
// always split, not on that either.
//
// Many sequences in a step (PagedAttention): the first kernel also checks what
// it is given, and says which rows are whose.
#include "modules/cuda_ep/kernels/gqa.cuh"

#define PER 8 // channels of a head that a lane has, at most

// A query to scratch: scaled, or as flash.cu takes it.
template <class T>
__device__ __forceinline__ void put_query(const cep_gqa &p, u64 at, float v, T)
{
	if (p.flash)
		((T *)p.qbuf)[at] = from_f<T>(v);
	else
		((float *)p.qbuf)[at] = v * p.scale;
}

// ---- many sequences: who has which rows ----

// Rows [lo, hi) of a packed sequence, safe whatever was given.
struct span {
	u32 lo, hi;
};

__device__ __forceinline__ span rows_of(const cep_gqa &p, u32 b, u32 from,
					u32 to)
{
	const int *first = (const int *)p.first;
	int lo = first[b], hi = first[b + 1];

	lo = lo > (int)from ? lo : (int)from;
	hi = hi < (int)to ? hi : (int)to;
	return {(u32)lo, hi > lo ? (u32)hi : (u32)lo};
}

__device__ __forceinline__ u32 tiles_of(const cep_gqa &p, span s)
{
	return ((s.hi - s.lo) * (p.heads / p.kv_heads) + 15) / 16;
}

__device__ __forceinline__ u32 warp_total(u32 v)
{
#pragma unroll
	for (int o = 16; o; o >>= 1)
		v += __shfl_xor_sync(0xffffffffu, v, o);
	return v;
}

// Tiles of a piece that the sequences before b have.
__device__ __forceinline__ u32 tiles_before(const cep_gqa &p, u32 b, u32 piece)
{
	u32 n = 0, end = (piece + 1) * CEP_PIECE;

	end = end < p.seq ? end : p.seq;
	for (u32 i = threadIdx.x & 31; i < b; i += 32)
		n += tiles_of(p, rows_of(p, i, piece * CEP_PIECE, end));
	return warp_total(n);
}

// Is all in order of sequence b, whose rows are s?  Its length, or 0.
__device__ __forceinline__ u32 check(const cep_gqa &p, u32 b, span s, u32 lane)
{
	const int *first = (const int *)p.first;
	const int *table = (const int *)p.table + (u64)b * p.table_row;
	long long past = ((const int *)p.seqlens)[b],
		  total = past + s.hi - s.lo;
	long long limit = (long long)p.table_row * p.block;
	u32 bad = 0;

	if (p.rot && !p.pos && p.cos_rows < limit)
		limit = p.cos_rows;
	if (first[b + 1] < first[b] || first[b] < 0 ||
	    first[b + 1] > (int)p.seq || (b == 0 && first[0])) {
		if (lane == 0)
			cep_refuse(p.blame, CEP_FAULT_LENGTH, first[b + 1],
				   p.seq);
		return 0;
	}
	if (s.hi == s.lo)
		return 0;
	if (past < 0 || total > limit) {
		if (lane == 0)
			cep_refuse(p.blame, CEP_FAULT_LENGTH, total, limit);
		return 0;
	}
	for (u32 i = lane; (long long)i * p.block < total; i += 32)
		if (table[i] < 0 || table[i] >= (int)p.n_blocks) {
			cep_refuse(p.blame, CEP_FAULT_BLOCK, table[i],
				   p.n_blocks);
			bad = 1;
		}
	return warp_total(bad) ? 0 : (u32)total;
}

// A warp a sequence: its length, and the tiles that attention takes it in.  One
// more warp clears those that are left over.
__device__ __forceinline__ void sequence(const cep_gqa &p, u32 b, u32 lane)
{
	cep_tile *tiles = (cep_tile *)p.tiles;
	span all = {0, 0};
	u32 len = 0, pieces = (p.seq + CEP_PIECE - 1) / CEP_PIECE;

	if (!p.table || b > p.seqs)
		return;
	if (b < p.seqs) {
		all = rows_of(p, b, 0, p.seq);
		len = check(p, b, all, lane);
		if (lane == 0)
			((u32 *)p.lens)[b] = len;
	}
	for (u32 k = 0; k < pieces; k++) {
		u32 at = k * CEP_PIECE, n = p.n_tiles, before;
		span s = {at, at};

		if (b < p.seqs) {
			s = rows_of(p, b, at,
				    at + CEP_PIECE < p.seq ? at + CEP_PIECE
							   : p.seq);
			n = tiles_of(p, s);
		}
		if (!n)
			continue;
		before = tiles_before(p, b, k);
		n = b < p.seqs ? before + n : n;
		for (u32 i = before + lane; i < n && i < p.n_tiles; i += 32)
			tiles[k * p.n_tiles + i] = {b,
						    s.lo,
						    len ? s.hi - s.lo : 0,
						    len - (all.hi - all.lo) +
							    s.lo - all.lo,
						    (i - before) * 16,
						    {0, 0, 0}};
	}
}

// A warp a head of a token: q to scratch, k and v into the cache.  What
// does not depend on the length is loaded before it is known.
template <class T> __device__ __forceinline__ void prepare(const cep_gqa &p)
{
	CEP_SMEM(raw);
	u32 lane = threadIdx.x & 31, w = threadIdx.x >> 5;
	u32 all = p.heads + 2 * p.kv_heads, half = p.rot / 2;
	u32 unit = blockIdx.x * (blockDim.x / 32) + w; // 2^16 tokens at most
	u32 h = unit % all, row = unit / all;
	u64 tok = row;
	bool live = row < p.batch * p.seq;
	bool is_q = h < p.heads, is_k = !is_q && h < p.heads + p.kv_heads;
	u32 kh = is_q ? 0 : is_k ? h - p.heads : h - p.heads - p.kv_heads;
	float *x = (float *)raw + w * p.size;
	const T *src = is_q   ? (const T *)p.q + tok * p.q_tok + h * p.size
		       : is_k ? (const T *)p.k + tok * p.k_tok + kh * p.size
			      : (const T *)p.v + tok * p.v_tok + kh * p.size;
	const T *nw = (const T *)(is_q ? p.q_norm : is_k ? p.k_norm : 0);
	float y[PER], g[PER], c[PER], n[PER], ss = 0;

	cep_begin();
	if (!live) {
		sequence(p, unit - p.batch * p.seq * all, lane);
		return;
	}
#pragma unroll
	for (int e = 0; e < PER; e++) {
		u32 d = lane + 32 * e;

		y[e] = d < p.size ? to_f(src[d]) : 0.f;
		g[e] = nw && d < p.size ? to_f(nw[d]) : 1.f;
	}
	gqa_row at = row_of(p, row, h == 0 && row % p.seq == 0 && lane == 0);
	u32 b = at.b, pos = at.pos;
	if (at.padding && is_q)
		for (u32 d = lane; d < p.size; d += 32)
			((T *)p.out)[(tok * p.heads + h) * p.size + d] =
				from_f<T>(0.f);
	if (!at.live)
		return;
	u64 rp = rotary_row(p, tok, pos, h == 0 && lane == 0);
	bool turns = (is_q || is_k) && p.rot;
#pragma unroll
	for (int e = 0; e < PER; e++) {
		u32 d = lane + 32 * e;
		u32 k = p.interleaved ? d / 2 : d < half ? d : d - half;
		bool in = turns && d < p.rot;

		c[e] = in ? to_f(((const T *)p.cosc)[rp * half + k]) : 1.f;
		n[e] = in ? to_f(((const T *)p.sinc)[rp * half + k]) : 0.f;
	}
	if (nw) {
#pragma unroll
		for (int e = 0; e < PER; e++)
			ss += y[e] * y[e];
		ss = inverse_rms(warp_sum(ss), 1.f / (float)p.size, p.eps);
#pragma unroll
		for (int e = 0; e < PER; e++)
			y[e] *= ss * g[e];
	}
	if (turns) {
#pragma unroll
		for (int e = 0; e < PER; e++)
			if (lane + 32 * e < p.size)
				x[lane + 32 * e] = y[e];
		__syncwarp();
	}
	T *dst = is_q ? (T *)0 : cache_slot<T>(p, tok, b, pos, kh, !is_k);
	unsigned char *codes =
		is_q ? 0 : cache_slot<unsigned char>(p, tok, b, pos, kh, !is_k);
#pragma unroll
	for (int e = 0; e < PER; e++) {
		u32 d = lane + 32 * e, code = 0;
		float v = y[e];

		if (turns && d < p.rot) {
			bool low = p.interleaved ? !(d & 1) : d < half;
			u32 mate = p.interleaved ? d ^ 1
				   : low	 ? d + half
						 : d - half;

			v = low ? v * c[e] - x[mate] * n[e]
				: v * c[e] + x[mate] * n[e];
		}
		if (!is_q && p.bits) {
			if (d < p.size)
				code = cache_code(p, v, !is_k, kh, d);
			if (p.bits == 4) // with the next channel's
				code |= __shfl_xor_sync(0xffffffffu, code, 1)
					<< 4;
		}
		if (d >= p.size)
			continue;
		if (is_q)
			put_query(p, (tok * p.heads + h) * p.size + d, v, T());
		else if (!p.bits)
			dst[d] = from_f<T>(v);
		else if (p.bits == 8)
			codes[d] = (unsigned char)code;
		else if (!(d & 1))
			codes[d / 2] = (unsigned char)code;
	}
}

// A warp does p.each heads of a token one after another and turns them with
// what it loaded once.
template <class T>
__device__ __forceinline__ void prepare_pairs(const cep_gqa &p)
{
	pairs<T> x(p);
	u32 all = p.heads + 2 * p.kv_heads;
	u32 groups = (all + p.each - 1) / p.each;
	u32 unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
	u32 h = unit % groups * p.each;
	u32 end = h + p.each < all ? h + p.each : all;
	float c[2][2], n[2][2], g[2][2][2];
	gqa_row at;
	bool first;

	x.lane = threadIdx.x & 31;
	x.half = p.size / 2;
	x.row = unit / groups;
	first = h == 0 && x.lane == 0;
	cep_begin();
	if (x.row >= p.batch * p.seq) {
		sequence(p, unit - p.batch * p.seq * groups, x.lane);
		return;
	}
	x.load(h); // under way while the length is read
	at = row_of(p, x.row, first && x.row % p.seq == 0);
	if (at.padding)
		x.clear(h, end);
	if (!at.live)
		return;
	if (p.rot)
		x.angles(rotary_row(p, x.row, at.pos, first), c, n);
	for (;;) {
		bool is_q = h < p.heads;
		bool is_k = !is_q && h < p.heads + p.kv_heads;
		const T *w = (const T *)(is_q ? p.q_norm : is_k ? p.k_norm : 0);
		u64 q = ((u64)x.row * p.heads + h) * p.size;

		if (w) {
			x.weights(w, g);
			x.norm(g);
		}
		if (p.rot && (is_q || is_k))
			x.turn(c, n);
		if (!is_q && p.bits)
			x.put_codes(at.b, at.pos, h);
		else if (!is_q)
			x.put(x.place(at.b, at.pos, h), 1.f);
		else if (p.flash)
			x.put((T *)p.qbuf + q, 1.f);
		else
			x.put((float *)p.qbuf + q, p.scale);
		if (++h == end)
			return;
		x.load(h);
	}
}

#define CEP_PREPARE(type, suffix)                                              \
	CEP_KERNEL(cep_gqa_prep_##suffix, cep_gqa, 128)                        \
	{                                                                      \
		prepare<type>(p);                                              \
	}                                                                      \
	CEP_KERNEL(cep_gqa_pairs_##suffix, cep_gqa, 128)                       \
	{                                                                      \
		prepare_pairs<type>(p);                                        \
	}
CEP_PREPARE(float, f32)
CEP_PREPARE(__half, f16)
CEP_PREPARE(bf16, bf16)

// past -> present where they are different buffers: rows [0, P).
template <class T> __device__ __forceinline__ void past_copy(const cep_gqa &p)
{
	u64 total = (u64)p.batch * p.kv_heads * p.past_rows * p.row;

	cep_begin();
	for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < total;
	     i += (u64)gridDim.x * blockDim.x) {
		u32 d = (u32)(i % p.row);
		u64 r = i / p.row;
		u32 h = (u32)(r % p.kv_heads);
		r /= p.kv_heads;
		u32 row = (u32)(r % p.past_rows), b = (u32)(r / p.past_rows);
		u32 t = total_len(p, b, false);
		u32 n = t ? t - p.seq : 0;

		if (p.windowed && t)
			n = window_rows(p, n);
		if (row >= n)
			continue;
		((T *)p.pres_k)[b * p.pres_ks[0] + h * p.pres_ks[1] +
				row * p.pres_ks[2] + d] =
			((const T *)
				 p.past_k)[b * p.past_ks[0] + h * p.past_ks[1] +
					   row * p.past_ks[2] + d];
		((T *)p.pres_v)[b * p.pres_vs[0] + h * p.pres_vs[1] +
				row * p.pres_vs[2] + d] =
			((const T *)
				 p.past_v)[b * p.past_vs[0] + h * p.past_vs[1] +
					   row * p.past_vs[2] + d];
	}
}

CEP_KERNEL(cep_gqa_past_f32, cep_gqa, 256)
{
	past_copy<float>(p);
}
CEP_KERNEL(cep_gqa_past_f16, cep_gqa, 256)
{
	past_copy<__half>(p);
}
CEP_KERNEL(cep_gqa_past_bf16, cep_gqa, 256)
{
	past_copy<bf16>(p);
}
CEP_KERNEL(cep_gqa_past_q, cep_gqa, 256)
{
	past_copy<unsigned char>(p);
}

// Windowed caches, after attending: rows slide down, new ones follow.  A thread
// owns a channel and moves its rows in ascending order, so that moving within
// the buffer is safe.
template <class T> __device__ __forceinline__ void slide(const cep_gqa &p)
{
	u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x;
	u32 d = (u32)(i % p.row);
	u64 r = i / p.row;
	u32 h = (u32)(r % p.kv_heads), b = (u32)(r / p.kv_heads);

	cep_begin();
	if (b >= p.batch)
		return;
	u32 t = total_len(p, b, false);
	if (!t)
		return;
	u32 past = t - p.seq, had = window_rows(p, past);
	u32 has = window_rows(p, t), first = t - has, old = past - had;
	T *k = (T *)p.pres_k + b * p.pres_ks[0] + h * p.pres_ks[1] + d;
	T *v = (T *)p.pres_v + b * p.pres_vs[0] + h * p.pres_vs[1] + d;

	for (u32 row = 0; row < has; row++) {
		u32 pos = first + row;

		if (pos < past) {
			if (pos - old == row)
				continue;
			k[row * p.pres_ks[2]] = k[(pos - old) * p.pres_ks[2]];
			v[row * p.pres_vs[2]] = v[(pos - old) * p.pres_vs[2]];
		} else {
			u64 at = (((u64)b * p.seq + pos - past) * p.kv_heads +
				  h) * p.row +
				 d;

			k[row * p.pres_ks[2]] = ((const T *)p.newk)[at];
			v[row * p.pres_vs[2]] = ((const T *)p.newv)[at];
		}
	}
}

CEP_KERNEL(cep_gqa_slide_f32, cep_gqa, 128)
{
	slide<float>(p);
}
CEP_KERNEL(cep_gqa_slide_f16, cep_gqa, 128)
{
	slide<__half>(p);
}
CEP_KERNEL(cep_gqa_slide_bf16, cep_gqa, 128)
{
	slide<bf16>(p);
}
CEP_KERNEL(cep_gqa_slide_q, cep_gqa, 128)
{
	slide<unsigned char>(p);
}

#define MAX_SPLITS CEP_GQA_SPLITS // a lane each when they are put together
#define UN 4			  // keys that a thread group has in flight

// One block: a row, up to HG heads of one KV head, every splits-th chunk of
// keys.  A group of c lanes holds one key, eight channels a lane.
template <class T, int HG> struct attend {
	const cep_gqa &p;
	u32 row, b, s, kh, h0, nh, c, lane, group, n_groups, t, len, first;
	u32 past, old;
	float m[HG], l[HG], acc[HG][8], q[HG][8];

	__device__ __forceinline__ attend(const cep_gqa &params) : p(params)
	{
	}

	template <class C>
	__device__ __forceinline__ const C *key(u32 j, bool value) const
	{
		if (p.table)
			return (const C *)(value ? p.pres_v : p.pres_k) +
			       paged_place(p, b, kh, j);
		if (p.windowed) {
			if (j >= past) {
				u64 at = (((u64)b * p.seq + j - past) *
						  p.kv_heads +
					  kh) *
					 p.row;

				return (const C *)(value ? p.newv : p.newk) +
				       at;
			}
			j -= old;
		}
		return value ? (const C *)p.pres_v + b * p.pres_vs[0] +
				       kh * p.pres_vs[1] + j * p.pres_vs[2]
			     : (const C *)p.pres_k + b * p.pres_ks[0] +
				       kh * p.pres_ks[1] + j * p.pres_ks[2];
	}

	// The lane's channels of a key or value.
	template <int BITS>
	__device__ __forceinline__ void channels(u32 j, bool value,
						 float *x) const
	{
		if (BITS == 0) {
			load8(key<T>(j, value) + lane * 8, x);
			return;
		}
		const u32 *at = (const u32 *)(key<unsigned char>(j, value) +
					      lane * BITS);
		u32 w = at[0], next = BITS == 8 ? at[1] : 0;

#pragma unroll
		for (int e = 0; e < 8; e++)
			x[e] = BITS == 4
				       ? (float)((int)(w >> 4 * e & 15) - 8)
				       : (float)(signed char)((e < 4 ? w
								     : next) >>
							      e % 4 * 8);
	}

	template <int BITS>
	__device__ __forceinline__ void fetch(u32 base, float (*kv)[8],
					      float (*vv)[8]) const
	{
#pragma unroll
		for (int u = 0; u < UN; u++) {
			u32 j = base + u * n_groups + group;

#pragma unroll
			for (int e = 0; e < 8; e++)
				kv[u][e] = vv[u][e] = 0.f;
			if (j < len && lane * 8 < p.size) {
				channels<BITS>(j, false, kv[u]);
				channels<BITS>(j, true, vv[u]);
			}
		}
	}

	__device__ __forceinline__ float score(float d, u32 j, int h) const
	{
		if (p.softcap > 0.f)
			d = p.softcap * tanhf(d / p.softcap);
		if (p.bias)
			d += to_f(((const T *)p.bias)[b * p.bias_s[0] +
						      (h0 + h) * p.bias_s[1] +
						      s * p.bias_s[2] +
						      j * p.bias_s[3]]);
		return d;
	}

	// Keys base + group, base + group + n_groups, ... (UN of them).
	__device__ __forceinline__ void chunk(u32 base)
	{
		float kv[UN][8], vv[UN][8];

		if (!p.bits)
			fetch<0>(base, kv, vv);
		else if (p.bits == 8)
			fetch<8>(base, kv, vv);
		else
			fetch<4>(base, kv, vv);
		float d[HG][UN];

#pragma unroll
		for (int h = 0; h < HG; h++)
#pragma unroll
			for (int u = 0; u < UN; u++) {
				d[h][u] = 0;
#pragma unroll
				for (int e = 0; e < 8; e++)
					d[h][u] += q[h][e] * kv[u][e];
			}
		// all sums level by level together: they hide each other's wait
		for (u32 z = c / 2; z; z >>= 1)
#pragma unroll
			for (int h = 0; h < HG; h++)
#pragma unroll
				for (int u = 0; u < UN; u++)
					d[h][u] += __shfl_xor_sync(
						0xffffffffu, d[h][u], (int)z);
#pragma unroll
		for (int h = 0; h < HG; h++) {
			float sc[UN], mx = m[h], r;

#pragma unroll
			for (int u = 0; u < UN; u++) {
				u32 j = base + u * n_groups + group;

				sc[u] = -INFINITY;
				if (j < len && h < (int)nh)
					sc[u] = score(d[h][u], j, h);
				mx = fmaxf(mx, sc[u]);
			}
			if (mx == -INFINITY)
				continue;
			r = expf(m[h] - mx);
			m[h] = mx;
			l[h] *= r;
#pragma unroll
			for (int e = 0; e < 8; e++)
				acc[h][e] *= r;
			for (int u = 0; u < UN; u++) {
				float w = expf(sc[u] - mx);

				l[h] += w;
#pragma unroll
				for (int e = 0; e < 8; e++)
					acc[h][e] += w * vv[u][e];
			}
		}
	}
};

__device__ __forceinline__ void merge(float *m, float *l, float *acc, float m2,
				      float l2, const float *acc2, int n)
{
	float mx = fmaxf(*m, m2), a, b;

	if (mx == -INFINITY)
		return;
	a = expf(*m - mx);
	b = expf(m2 - mx);
	*m = mx;
	*l = *l * a + l2 * b;
	for (int e = 0; e < n; e++)
		acc[e] = acc[e] * a + acc2[e] * b;
}

// What each part of a sum counts for, a lane a part, and the whole's maximum
// and denominator.
__device__ __forceinline__ void weigh(float m, float l, float *weight,
				      float *whole)
{
	float mx = warp_max(m), w = m == -INFINITY ? 0.f : expf(m - mx);

	l = warp_sum(l * w);
	weight[threadIdx.x & 31] = w;
	if ((threadIdx.x & 31) == 0) {
		whole[0] = mx;
		whole[1] = l;
	}
}

// Denominator with the sink and the extra zero logit.
__device__ __forceinline__ float finish(float v, float m, float l, bool smooth,
					bool has_sink, float sink)
{
	float mx = m, s;

	if (smooth)
		mx = fmaxf(mx, 0.f);
	if (has_sink)
		mx = fmaxf(mx, sink);
	s = l * expf(m - mx);
	if (smooth)
		s += expf(-mx);
	if (has_sink)
		s += expf(sink - mx);
	return v * expf(m - mx) / s;
}

template <class T, int HG> __device__ void attention(const cep_gqa &p)
{
	CEP_SMEM(raw);
	__shared__ u32 last;
	attend<T, HG> a(p);
	u32 split = blockIdx.x, warp = threadIdx.x >> 5;
	u32 n_warps = blockDim.x / 32, per = p.heads / p.kv_heads;
	u32 parts = (per + HG - 1) / HG, size = p.size, chunks, active;
	float *sm = (float *)raw, *sml = sm + n_warps * HG * size;
	float *weight = sml + n_warps * HG * 2;
	float *whole = weight + HG * MAX_SPLITS;

	a.row = p.piece * CEP_PIECE + blockIdx.z;
	a.b = a.row / p.seq;
	a.s = a.row % p.seq;
	a.kh = blockIdx.y / parts;
	a.h0 = a.kh * per + blockIdx.y % parts * HG;
	a.nh = per - blockIdx.y % parts * HG;
	a.nh = a.nh < HG ? a.nh : HG;
	for (a.c = 1; a.c * 8 < size; a.c *= 2)
		;
	a.lane = threadIdx.x % a.c;
	a.group = threadIdx.x / a.c;
	a.n_groups = blockDim.x / a.c;
	cep_begin();
	// queries do not depend on the length: under way while it is read
#pragma unroll
	for (int h = 0; h < HG; h++) {
		const float *q = (const float *)p.qbuf +
				 ((u64)a.row * p.heads + a.h0 + h) * size +
				 a.lane * 8;
		bool in = h < (int)a.nh && a.lane * 8 < size;

		a.m[h] = -INFINITY;
		a.l[h] = 0.f;
#pragma unroll
		for (int e = 0; e < 8; e++) {
			a.acc[h][e] = 0.f;
			a.q[h][e] = in ? q[e] : 0.f;
			if (in && p.bits)
				a.q[h][e] *= cache_scale(p, false, a.kh,
							 a.lane * 8 + e);
		}
	}
	if (p.table) {
		gqa_row r = packed_row(p, a.row);

		if (!r.live || !((const u32 *)p.lens)[r.b])
			return;
		a.b = r.b;
		a.past = a.old = 0;
		a.len = r.pos + 1;
	} else {
		a.t = total_len(p, a.b, false);
		if (!a.t)
			return;
		a.past = a.t - p.seq;
		a.old = p.windowed ? a.past - window_rows(p, a.past) : 0;
		a.len = a.past + a.s + 1;
	}
	a.first = 0;
	if (p.window > 0 && a.len > (u32)p.window)
		a.first = a.len - (u32)p.window;
	chunks = (a.len - a.first + a.n_groups * UN - 1) / (a.n_groups * UN);
	active = chunks < p.splits ? chunks : p.splits;
	if (split >= active)
		return;
	for (u32 i = split; i < chunks; i += p.splits)
		a.chunk(a.first + i * a.n_groups * UN);
	// groups of a warp, then warps
	for (int h = 0; h < HG; h++) {
		for (u32 z = a.c; z < 32; z <<= 1) {
			float m2 = __shfl_xor_sync(0xffffffffu, a.m[h], (int)z);
			float l2 = __shfl_xor_sync(0xffffffffu, a.l[h], (int)z);
			float o[8];

			for (int e = 0; e < 8; e++)
				o[e] = __shfl_xor_sync(0xffffffffu, a.acc[h][e],
						       (int)z);
			// the lower group first, so that both agree
			if (threadIdx.x & z) {
				float m1 = a.m[h], l1 = a.l[h], x[8];

				for (int e = 0; e < 8; e++) {
					x[e] = a.acc[h][e];
					a.acc[h][e] = o[e];
				}
				a.m[h] = m2;
				a.l[h] = l2;
				merge(&a.m[h], &a.l[h], a.acc[h], m1, l1, x, 8);
			} else {
				merge(&a.m[h], &a.l[h], a.acc[h], m2, l2, o, 8);
			}
		}
		if ((threadIdx.x & 31) < a.c && a.lane * 8 < size) {
			for (int e = 0; e < 8; e++) {
				u32 d = a.lane * 8 + e;

				if (p.bits)
					a.acc[h][e] *=
						cache_scale(p, true, a.kh, d);
				sm[(warp * HG + h) * size + d] = a.acc[h][e];
			}
			if (a.lane == 0) {
				sml[(warp * HG + h) * 2] = a.m[h];
				sml[(warp * HG + h) * 2 + 1] = a.l[h];
			}
		}
	}
	__syncthreads();
	for (u32 h = warp; h < a.nh; h += n_warps) {
		u32 k = threadIdx.x & 31;
		const float *q = sml + (k * HG + h) * 2;

		weigh(k < n_warps ? q[0] : -INFINITY, k < n_warps ? q[1] : 0.f,
		      weight + h * MAX_SPLITS, whole + h * 2);
	}
	__syncthreads();
	float *part = (float *)p.part;
	for (u32 i = threadIdx.x; i < a.nh * size; i += blockDim.x) {
		u32 h = i / size, d = i % size, head = a.h0 + h;
		float m = whole[h * 2], l = whole[h * 2 + 1], v = 0;

		for (u32 w = 0; w < n_warps; w++)
			v += sm[(w * HG + h) * size + d] *
			     weight[h * MAX_SPLITS + w];
		if (active == 1) {
			float sink =
				p.sink ? to_f(((const T *)p.sink)[head]) : 0.f;

			((T *)p.out)[((u64)a.row * p.heads + head) * size + d] =
				from_f<T>(finish(v, m, l, p.smooth, p.sink != 0,
						 sink));
		} else {
			u64 at =
				(((u64)blockIdx.z * p.heads + head) * p.splits +
				 split) *
				(size + 2);

			part[at + d] = v;
			if (d == 0) {
				part[at + size] = m;
				part[at + size + 1] = l;
			}
		}
	}
	if (active == 1)
		return;
	// the block that comes last puts the parts together, in split order
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) {
		u32 *n = (u32 *)p.counters + (u64)blockIdx.z * gridDim.y +
			 blockIdx.y;

		last = atomicInc(n, active - 1) == active - 1;
	}
	__syncthreads();
	if (!last)
		return;
	__threadfence();
	for (u32 h = warp; h < a.nh; h += n_warps) {
		u64 head = (u64)blockIdx.z * p.heads + a.h0 + h;
		u32 k = threadIdx.x & 31;
		const float *q =
			part + (head * p.splits + k) * (size + 2) + size;

		weigh(k < active ? load_fresh(q) : -INFINITY,
		      k < active ? load_fresh(q + 1) : 0.f,
		      weight + h * MAX_SPLITS, whole + h * 2);
	}
	__syncthreads();
	// two channels a thread, all parts of them under way at once
	for (u32 i = 2 * threadIdx.x; i < a.nh * size; i += 2 * blockDim.x) {
		u32 h = i / size, d = i % size, head = a.h0 + h;
		const float *q = part +
				 ((u64)blockIdx.z * p.heads + head) * p.splits *
					 (size + 2) +
				 d;
		float sink = p.sink ? to_f(((const T *)p.sink)[head]) : 0.f;
		float x[MAX_SPLITS][2], v[2] = {0, 0};

#pragma unroll
		for (u32 k = 0; k < MAX_SPLITS; k++)
			if (k < active)
				load_fresh2(q + k * (size + 2), x[k]);
#pragma unroll
		for (u32 k = 0; k < MAX_SPLITS; k++)
			if (k < active) {
				float w = weight[h * MAX_SPLITS + k];

				v[0] += x[k][0] * w;
				v[1] += x[k][1] * w;
			}
		for (u32 e = 0; e < 2; e++)
			((T *)p.out)[((u64)a.row * p.heads + head) * size + d +
				     e] =
				from_f<T>(finish(v[e], whole[h * 2],
						 whole[h * 2 + 1], p.smooth,
						 p.sink != 0, sink));
	}
}

#define CEP_ATTENTION(type, suffix)                                            \
	CEP_KERNEL(cep_gqa_1_##suffix, cep_gqa, 128)                           \
	{                                                                      \
		attention<type, 1>(p);                                         \
	}                                                                      \
	CEP_KERNEL(cep_gqa_2_##suffix, cep_gqa, 128)                           \
	{                                                                      \
		attention<type, 2>(p);                                         \
	}                                                                      \
	CEP_KERNEL(cep_gqa_4_##suffix, cep_gqa, 128)                           \
	{                                                                      \
		attention<type, 4>(p);                                         \
	}
CEP_ATTENTION(float, f32)
CEP_ATTENTION(__half, f16)
CEP_ATTENTION(bf16, bf16)
