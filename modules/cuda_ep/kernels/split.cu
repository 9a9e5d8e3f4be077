// split.cu - attention of steps of a few rows, 1 to 64 tokens, on tensor cores:
// keys are split over blocks, each of which reads its part of the cache once
// for all heads of a group.
//
// A tile of 16 rows as in flash.cuh is the same for the whole block.  Keys lie
// in pieces of 16: piece j belongs to warp j % 4 of split j / 4 % 8, which
// takes its pieces in ascending order; a warp has two of them in shared memory
// (4 warps x 2 x 2 x 16 x (HD + 8) x 2 bytes).  Then the four warps' sums are
// put together, then those of the splits, both in order.  Splits meet in the
// shared memory of a cluster; before 9.0 in global memory, where the block that
// comes last adds them up.
//
// cep_paged_*: the same for rows of many sequences over a cache in blocks; a
// tile is of one sequence, and what it is was written by the kernel in front.
//
// So the sum order of a row depends on its own keys alone: what a row does not
// see, and splits that it does not reach, count as exact zeros.  A row gives
// the same bits in a step of any size.
//
// A step of one token (p.fused) turns and norms its heads here, with the code
// of the kernel that goes before larger steps, and one block of a key head
// appends the new key and value.  What no kernel of this step writes is fetched
// before the kernel in front ends: old keys and values, and with p.early, which
// says that the lengths are there, that is all but the step's own heads.
// The code is kept short: cold instructions cost more than what they do.
#include "modules/cuda_ep/kernels/flash.cuh"

#define WARPS 4
#define KEYS 16 // a piece
#define ROWS 16 // a tile
#define SPLITS CEP_SPLITS

#if !defined(CEP_EMU) && __CUDA_ARCH__ >= 900
#define CLUSTER 1
#else
#define CLUSTER 0
#endif

__device__ __forceinline__ void cluster_arrive(bool writes)
{
#if CLUSTER
	if (writes)
		asm volatile("barrier.cluster.arrive.release.aligned;" ::
				     : "memory");
	else
		asm volatile("barrier.cluster.arrive.relaxed.aligned;");
#endif
}

__device__ __forceinline__ void cluster_wait()
{
#if CLUSTER
	asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Two floats to where to lies in the shared memory of block rank of the
// cluster; to memory that all blocks see where there are none.
__device__ __forceinline__ void cluster_put(float *to, u32 rank, float v,
					    float w)
{
#if CLUSTER
	u32 a = (u32)__cvta_generic_to_shared(to), b;

	asm("mapa.shared::cluster.u32 %0,%1,%2;" : "=r"(b) : "r"(a), "r"(rank));
	asm volatile("st.shared::cluster.v2.f32 [%0],{%1,%2};" ::"r"(b), "f"(v),
		     "f"(w)
		     : "memory");
#else
	*(float2 *)to = make_float2(v, w);
#endif
}

template <class T, int HD, bool PAGED> struct split : flash_rows<T, HD, KEYS> {
	typedef flash_rows<T, HD, KEYS> rows;
	using rows::b;
	using rows::from;
	using rows::g;
	using rows::kh;
	using rows::l;
	using rows::lane;
	using rows::m;
	using rows::o;
	using rows::p;
	using rows::past;
	using rows::per;
	using rows::r0;
	using rows::seq;
	using rows::t;
	using rows::to;
	using rows::tok;
	using rows::warp;
	static constexpr int LD = HD + 8, TILE = KEYS * LD, SUM = HD + 4;
	static constexpr int CH = HD / 32; // channels of a lane, sums
	static constexpr u32 STEP = WARPS * SPLITS;
	T *mine;	  // of the warp: keys and values; the same again
	T *heads, *fresh; // fused: queries; the new key and value
	float *met;	  // sums of other splits, a cluster only
	u32 n, j0, end;	  // rows; this warp's first piece, the last one's end
	u32 start, count; // the first split that a row sees, and how many
	float cs[2][2], sn[2][2]; // fused: angles
	u64 part0; // paged: where the parts' first row lies among all
	u32 q[HD / 16][4];

	__device__ __forceinline__ split(const cep_gqa &params) : rows(params)
	{
	}

	// A split that some row sees, counted from the first; else >= count.
	__device__ __forceinline__ u32 order(u32 k) const
	{
		return (k - start) % SPLITS;
	}

	// Piece j of keys and values; a lane has the same 16 bytes of rows
	// lane / C, lane / C + 32 / C, ...
	__device__ __forceinline__ void fetch(u32 j, u32 buf) const
	{
		constexpr u32 C = HD / 8; // 16 bytes each
		constexpr u32 ROW = C < 32 ? 32 / C : 1;
		u32 r = lane / C, c = lane % C * 8, at = j * KEYS + r;
		u32 stop = !PAGED && p.fused ? past : to;
		T *k = mine + buf * 2 * TILE + r * LD + c;
		bool in = c < p.size;

		if (!in)
			c = 0;
		if (PAGED) {
			// a lane finds a key's place for all
			u32 own = j * KEYS + lane % KEYS;
			u64 where = paged_place(
				p, b, kh, own >= from && own < to ? own : from);

#pragma unroll
			for (u32 i = 0; i < KEYS / ROW; i++, at += ROW) {
				u64 w = __shfl_sync(0xffffffffu, where,
						    r + i * ROW);

				copy(k + i * ROW * LD,
				     (const T *)p.pres_k + w + c,
				     (const T *)p.pres_v + w + c,
				     in && at >= from && at < stop);
			}
			return;
		}
		if (p.windowed) {
#pragma unroll 1
			for (u32 i = 0; i < KEYS / ROW; i++, at += ROW) {
				bool on = in && at >= from && at < stop;
				u32 row = on ? at : from;

				copy(k + i * ROW * LD,
				     this->key(row, false) + c,
				     this->key(row, true) + c, on);
			}
			return;
		}
		const T *x = cached(p.pres_k, p.pres_ks, at) + c;
		const T *y = cached(p.pres_v, p.pres_vs, at) + c;
		u64 dx = ROW * p.pres_ks[2], dy = ROW * p.pres_vs[2];
#pragma unroll
		for (u32 i = 0; i < KEYS / ROW; i++) {
			copy(k + i * ROW * LD, x, y,
			     in && at >= from && at < stop);
			at += ROW;
			x += dx;
			y += dy;
		}
	}

	__device__ __forceinline__ const T *cached(u64 cache, const int64_t *st,
						   u32 at) const
	{
		return (const T *)cache + b * st[0] + kh * st[1] + at * st[2];
	}

	// What is not on may lie anywhere: it is not read.
	__device__ __forceinline__ void copy(T *k, const T *x, const T *y,
					     bool on) const
	{
		tile_copy(k, x, on);
		tile_copy(k + TILE, y, on);
	}

	// Whose rows these are, and at which positions; false: nobody's, or
	// refused.
	__device__ __forceinline__ bool whose(bool report)
	{
		b = p.batch == 1 ? 0 : blockIdx.z / p.row_tiles;
		r0 = (blockIdx.z - b * p.row_tiles) * ROWS;
		seq = p.seq;
		tok = (u64)b * seq;
		part0 = 0;
		this->total = total_len(p, b, report);
		if (!this->total)
			return false;
		past = this->at = this->total - seq;
		this->old = p.windowed ? past - window_rows(p, past) : 0;
		return true;
	}

	__device__ __forceinline__ bool whose_paged()
	{
		const cep_tile *x = (const cep_tile *)p.tiles +
				    p.piece * p.n_tiles + blockIdx.z;

		b = x->seq;
		r0 = x->r0;
		seq = x->n;
		tok = x->tok;
		part0 = (u64)p.piece * CEP_PIECE * p.heads;
		past = this->at = x->at;
		this->old = 0;
		return seq != 0;
	}

	// Lengths, and what follows from them: false if no row of the tile sees
	// a key of this split.
	__device__ __forceinline__ bool reach()
	{
		bool report = p.fused && kh == 0 && blockIdx.x == 0 &&
			      threadIdx.x == 0;
		u32 all;

		if (PAGED ? !whose_paged() : !whose(report))
			return false;
		all = seq * per;
		n = r0 + ROWS < all ? ROWS : all - r0;
		this->span(r0, ROWS, &from, &to);
		start = from / (WARPS * KEYS) % SPLITS;
		count = (to - 1) / (WARPS * KEYS) - from / (WARPS * KEYS) + 1;
		count = count < SPLITS ? count : SPLITS;
		if (order(blockIdx.x) >= count)
			return false;
		end = (to + KEYS - 1) / KEYS;
		j0 = blockIdx.x * WARPS + warp;
		if (j0 < from / KEYS)
			j0 += (from / KEYS - j0 + STEP - 1) / STEP * STEP;
#pragma unroll 1
		for (u32 i = 0; i < 2; i++) {
			if (j0 + i * STEP < end)
				fetch(j0 + i * STEP, i);
			tile_commit();
		}
		if (!PAGED && p.fused && p.rot) {
			pairs<T> x(p);

			x.lane = lane;
			x.half = p.size / 2;
			x.angles(rotary_row(p, b, past, report), cs, sn);
		}
		return true;
	}

	// The step's own token: queries to shared memory, and where a warp has
	// its piece, the new key and value there and into the cache.
	__device__ __forceinline__ void turn_heads()
	{
		bool own = past / (WARPS * KEYS) % SPLITS == blockIdx.x;
		u32 units = n + own;
		float gq[2][2][2], gk[2][2][2];
		pairs<T> x(p), next(p), v(p);

		x.lane = next.lane = v.lane = lane;
		x.half = next.half = v.half = p.size / 2;
		x.row = next.row = v.row = b;
		if (p.q_norm)
			x.weights((const T *)p.q_norm, gq);
		if (p.k_norm)
			x.weights((const T *)p.k_norm, gk);
		for (u32 i = threadIdx.x; i < (ROWS + 2) * LD / 8;
		     i += blockDim.x)
			((uint4 *)heads)[i] = make_uint4(0, 0, 0, 0);
		cep_wait();
		if (own)
			v.load(p.heads + p.kv_heads + kh);
		next.load(head_of(warp));
		__syncthreads();
		for (u32 u = warp; u < units; u += WARPS) {
#pragma unroll
			for (int i = 0; i < 8; i++)
				(&x.x[0][0][0])[i] = (&next.x[0][0][0])[i];
			next.load(head_of(u + WARPS));
			if (u < n && p.q_norm)
				x.norm(gq);
			else if (u == n && p.k_norm)
				x.norm(gk);
			if (p.rot)
				x.turn(cs, sn);
			if (u < n) {
				x.put(heads + u * LD, 1.f);
				continue;
			}
			x.put(fresh, 1.f);
			v.put(fresh + LD, 1.f);
			if (r0)
				continue;
			x.put(x.place(b, past, p.heads + kh), 1.f);
			v.put(v.place(b, past, p.heads + p.kv_heads + kh), 1.f);
		}
		__syncthreads();
#pragma unroll
		for (int i = 0; i < HD / 16; i++)
			load_rows(heads + lane % 16 * LD + lane / 16 * 8 +
					  i * 16,
				  q[i]);
	}

	// The head of unit u: those of the tile, then the key's.
	__device__ __forceinline__ u32 head_of(u32 u) const
	{
		return u < n ? kh * per + r0 + u : p.heads + kh;
	}

	// The new key and value to where they were not fetched from.
	__device__ __forceinline__ void patch(u32 j, u32 buf) const
	{
		constexpr u32 C = HD / 8;
		T *k = mine + buf * 2 * TILE + (past - j * KEYS) * LD;

#pragma unroll
		for (u32 i = lane; i < 2 * C; i += 32)
			*(uint4 *)(k + i / C * TILE + i % C * 8) = *(
				const uint4 *)(fresh + i / C * LD + i % C * 8);
		__syncwarp();
	}

	__device__ __forceinline__ void piece(u32 j, const T *k)
	{
		const T *row = k + (lane / 16 * 8 + lane % 8) * LD +
			       (lane / 8 & 1) * 8;
		const T *v = k + TILE + ((lane / 8 & 1) * 8 + lane % 8) * LD +
			     lane / 16 * 8;
		// even and odd steps of 16 channels apart: the chain is half as
		// long
		float s[2][4], x[4][4];
		u32 f[4], a[4];

#pragma unroll
		for (int i = 0; i < 4; i++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				x[i][e] = 0.f;
#pragma unroll
		for (int i = 0; i < HD / 16; i++) {
			float(*y)[4] = x + (i & 1) * 2;

			load_rows(row + i * 16, f);
			mma16(y[0], q[i][0], q[i][1], q[i][2], q[i][3], f[0],
			      f[1], T());
			mma16(y[1], q[i][0], q[i][1], q[i][2], q[i][3], f[2],
			      f[3], T());
		}
#pragma unroll
		for (int e = 0; e < 4; e++) {
			s[0][e] = x[0][e] + x[2][e];
			s[1][e] = x[1][e] + x[3][e];
		}
		this->refine(j * KEYS, s);
		this->weigh(s);
		rows::weights16(s, a);
#pragma unroll
		for (int d = 0; d < HD / 16; d++) {
			load_columns(v + d * 16, f);
			mma16(o[2 * d], a[0], a[1], a[2], a[3], f[0], f[1],
			      T());
			mma16(o[2 * d + 1], a[0], a[1], a[2], a[3], f[2], f[3],
			      T());
		}
	}

	// This warp's pieces; the first two are on their way.
	__device__ __forceinline__ void pieces()
	{
		u32 buf = 0;

		for (u32 j = j0; j < end; j += STEP, buf ^= 1) {
			tile_wait<1>();
			__syncwarp();
			if (!PAGED && p.fused && j == past / KEYS)
				patch(j, buf);
			piece(j, mine + buf * 2 * TILE);
			__syncwarp();
			if (j + 2 * STEP < end)
				fetch(j + 2 * STEP, buf);
			tile_commit();
		}
	}

	// Sums of the warp to shared memory: of row r [HD], maximum,
	// denominator.
	__device__ __forceinline__ void leave(float *sums)
	{
		float *x = sums + warp * ROWS * SUM;

#pragma unroll
		for (int i = 0; i < 2; i++) {
			float *row = x + (g + 8 * i) * SUM;

			l[i] += __shfl_xor_sync(0xffffffffu, l[i], 1);
			l[i] += __shfl_xor_sync(0xffffffffu, l[i], 2);
			if (g + 8 * i >= n)
				continue;
#pragma unroll
			for (int d = 0; d < HD / 8; d++) {
				*(float2 *)(row + d * 8 + 2 * t) = make_float2(
					o[d][2 * i], o[d][2 * i + 1]);
			}
			if (t == 0) {
				row[HD] = m[i];
				row[HD + 1] = l[i];
			}
		}
	}

	// What a part of maximum x counts for in one of maximum mx.
	__device__ __forceinline__ static float share(float x, float mx)
	{
		return x == -INFINITY ? 0.f : power2(x - mx);
	}

	// What to multiply sums of maximum mx and denominator sum with: the
	// sink and the extra zero logit are in it.
	__device__ __forceinline__ float finish(u32 head, float mx,
						float sum) const
	{
		float top = mx, f, sink = 0;

		if (p.sink)
			sink = to_f(((const T *)p.sink)[head]) * LOG2E;
		if (p.smooth)
			top = fmaxf(top, 0.f);
		if (p.sink)
			top = fmaxf(top, sink);
		f = power2(mx - top);
		sum *= f;
		if (p.smooth)
			sum += power2(-top);
		if (p.sink)
			sum += power2(sink - top);
		return f / sum;
	}

	// Where row r of the tile lies among all heads of all tokens.
	__device__ __forceinline__ u64 place(u32 r) const
	{
		u32 i = this->token(r0 + r);

		return (tok + i) * p.heads + kh * per + r0 + r - i * per;
	}

	// This lane's channels of row r: sums of COUNT parts in order, part(k)
	// is where part k's values, maximum and denominator lie, or NULL; a
	// whole goes to the result, else to whole(values, maximum,
	// denominator).
	template <u32 COUNT, class P, class W>
	__device__ __forceinline__ void add_up(P part, W whole) const
	{
		float x[COUNT][CH], y[COUNT], z[COUNT], v[CH];
		float mx = -INFINITY, sum = 0;

#pragma unroll
		for (u32 k = 0; k < COUNT; k++) {
			const float *a = part(k);

#pragma unroll
			for (u32 e = 0; e < CH; e += 2) {
				float2 w = a ? fresh2(a + lane * CH + e)
					     : make_float2(0.f, 0.f);

				x[k][e] = w.x;
				x[k][e + 1] = w.y;
			}
			float2 w = a ? fresh2(a + HD)
				     : make_float2(-INFINITY, 0.f);

			y[k] = w.x;
			z[k] = w.y;
			mx = fmaxf(mx, w.x);
		}
#pragma unroll
		for (u32 e = 0; e < CH; e++)
			v[e] = 0.f;
#pragma unroll
		for (u32 k = 0; k < COUNT; k++) {
			float f = share(y[k], mx);

			sum += z[k] * f;
#pragma unroll
			for (u32 e = 0; e < CH; e++)
				v[e] += x[k][e] * f;
		}
		whole(v, mx, sum);
	}

	// Another block may have written it.
	__device__ __forceinline__ static float2 fresh2(const float *x)
	{
#if CLUSTER || defined(CEP_EMU)
		return *(const float2 *)x;
#else
		return __ldcg((const float2 *)x);
#endif
	}

	__device__ __forceinline__ void put_row(u32 r, const float *v, float mx,
						float sum) const
	{
		u64 at = place(r);
		u32 head = kh * per + r0 + r - this->token(r0 + r) * per;
		float f = finish(head, mx, sum);
		T *out = (T *)p.out + at * p.size + lane * CH;

#pragma unroll
		for (u32 e = 0; e < CH; e += 2)
			if (lane * CH + e < p.size)
				*(u32 *)(out + e) =
					round2(v[e] * f, v[e + 1] * f, T());
	}

	// r / count for rows of a tile: a byte of 256 / count, rounded up, for
	// counts from 2 on.
	__device__ __forceinline__ u32 nth(u32 r) const
	{
		return r * (u32)(0x20252b34405680ull >> 8 * (count - 2) &
				 255) >>
		       8;
	}

	// The block of the cluster that puts row r together, and where split
	// k's sums of it lie there.
	__device__ __forceinline__ u32 keeper(u32 r) const
	{
		return (start + r - nth(r) * count) % SPLITS;
	}
	__device__ __forceinline__ float *met_at(u32 r, u32 k) const
	{
		return met + (nth(r) * count + order(k)) * SUM;
	}
	__device__ __forceinline__ float *part_at(u32 r, u32 k) const
	{
		return (float *)p.part +
		       ((place(r) - part0) * SPLITS + k) * SUM;
	}

	// A row of this split to where the splits meet.
	__device__ __forceinline__ void give(u32 r, const float *v, float mx,
					     float sum) const
	{
		float *part = CLUSTER ? met_at(r, blockIdx.x)
				      : part_at(r, blockIdx.x);
		u32 to = keeper(r);

#pragma unroll
		for (u32 e = 0; e < CH; e += 2)
			cluster_put(part + lane * CH + e, to, v[e], v[e + 1]);
		if (lane == 0)
			cluster_put(part + HD, to, mx, sum);
	}

	// The four warps' sums in order: to the result, or to where the splits
	// meet.
	__device__ __forceinline__ void together(const float *sums) const
	{
		for (u32 r = warp; r < n; r += WARPS)
			add_up<WARPS>(
				[&](u32 w) {
					return sums + (w * ROWS + r) * SUM;
				},
				[&](const float *v, float mx, float sum) {
					if (count == 1)
						put_row(r, v, mx, sum);
					else
						give(r, v, mx, sum);
				});
	}

	// The splits' sums of rows r, r + step, ...
	__device__ __forceinline__ void gather(u32 r, u32 step) const
	{
		for (; r < n; r += step)
			add_up<SPLITS>(
				[&](u32 k) -> const float * {
					if (order(k) >= count)
						return nullptr;
					return CLUSTER ? met_at(r, k)
						       : part_at(r, k);
				},
				[&](const float *v, float mx, float sum) {
					put_row(r, v, mx, sum);
				});
	}

	// Whether this block is the last of its rows' splits.
	__device__ __forceinline__ bool is_last(u32 *last) const
	{
		__threadfence();
		__syncthreads();
		if (threadIdx.x == 0)
			*last = atomicInc((u32 *)p.counters +
						  blockIdx.z * p.kv_heads + kh,
					  count - 1) == count - 1;
		__syncthreads();
		if (*last)
			__threadfence();
		return *last;
	}

	// Who this thread is.
	__device__ __forceinline__ void find(unsigned char *raw)
	{
		lane = threadIdx.x & 31;
		warp = threadIdx.x / 32;
		g = lane >> 2;
		t = lane & 3;
		per = p.per;
		kh = blockIdx.y;
		mine = (T *)raw + warp * 4 * TILE;
		heads = (T *)raw + WARPS * 4 * TILE;
		fresh = heads + ROWS * LD;
		met = (float *)(fresh + 2 * LD);
	}

	__device__ __forceinline__ void run(unsigned char *raw, u32 *last)
	{
		cep_trigger();
		cluster_arrive(false); // this block has begun
		find(raw);
		if (!p.early)
			cep_wait();
		if (!reach()) {
			cep_wait(); // nobody is done before who went ahead
			return;
		}
		if (!PAGED && p.fused) {
			turn_heads();
		} else {
#pragma unroll
			for (int i = 0; i < HD / 16; i++)
				this->query16(i, q[i]);
		}
		this->find_rows();
		pieces();
		__syncthreads();
		leave((float *)raw);
		__syncthreads();
		if (count > 1)
			cluster_wait(); // all blocks have begun
		together((const float *)raw);
		if (count == 1)
			return;
		if (CLUSTER) {
			cluster_arrive(true);
			cluster_wait();
			gather(order(blockIdx.x) + warp * count, WARPS * count);
		} else if (is_last(last)) {
			gather(warp, WARPS);
		}
	}
};

// Head sizes up to HD.
#define CEP_SPLIT(type, suffix, hd)                                            \
	CEP_KERNEL(cep_split_##hd##_##suffix, cep_gqa, WARPS * 32)             \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		__shared__ u32 last;                                           \
		split<type, hd, false> s(p);                                   \
		s.run(raw, &last);                                             \
	}                                                                      \
	CEP_KERNEL(cep_paged_##hd##_##suffix, cep_gqa, WARPS * 32)             \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		__shared__ u32 last;                                           \
		split<type, hd, true> s(p);                                    \
		s.run(raw, &last);                                             \
	}
CEP_SPLIT(__half, f16, 64)
CEP_SPLIT(__half, f16, 128)
CEP_SPLIT(__half, f16, 256)
CEP_SPLIT(bf16, bf16, 64)
CEP_SPLIT(bf16, bf16, 128)
CEP_SPLIT(bf16, bf16, 256)
