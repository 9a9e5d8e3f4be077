// split.cu - attention of steps of a few rows, 1 to 64 tokens, on tensor cores:
// keys are split over blocks, each of which reads its part of the cache once
// for all heads of a group.
//
// A tile of 16 rows as in flash.cuh is the same for the whole block.  Keys lie
// in pieces of 16: piece j belongs to warp j % 4 of split j / 4 % 32, which
// takes its pieces in ascending order; a warp has two of them in shared memory,
// one in use and one on its way (4 warps x 2 x 2 x 16 x (HD + 8) x 2 bytes).
// Then the four warps' sums are put together, then those of the splits, by the
// block that comes last; both in order.
//
// cep_paged_*: the same for rows of many sequences over a cache in blocks; a tile
// is of one sequence, and what it is was written by the kernel in front.
//
// So the sum order of a row depends on its own keys alone: what a row does not
// see, and splits that it does not reach, count as exact zeros.  A row gives
// the same bits in a step of any size.
#include "modules/cuda_ep/kernels/flash.cuh"

#define WARPS 4
#define KEYS 16 // a piece

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
	using rows::per;
	using rows::r0;
	using rows::seq;
	using rows::t;
	using rows::to;
	using rows::tok;
	using rows::warp;
	static constexpr int LD = HD + 8, TILE = KEYS * LD;
	T *mine;   // keys and values; the same again
	u64 part0; // where the parts' first row lies among all
	u32 q[HD / 16][4];

	__device__ __forceinline__ split(const cep_gqa &params) : rows(params)
	{
	}

	__device__ __forceinline__ void fetch(u32 j, u32 buf) const
	{
		constexpr u32 C = HD / 8; // pieces of a row
		T *k = mine + buf * 2 * TILE;
		u64 where = 0;

		// a lane finds a key's place for all
		if (PAGED) {
			u32 at = j * KEYS + lane % KEYS;

			at = at >= from && at < to ? at : to - 1;
			where = paged_place(p, b, kh, at);
		}
#pragma unroll
		for (u32 i = lane; i < KEYS * C; i += 32) {
			u32 r = i / C, c = i % C * 8, at = j * KEYS + r;
			bool on = at >= from && at < to && c < p.size;
			u32 key = on ? at : to - 1, d = on ? c : 0;
			const T *x, *y;

			if (PAGED) {
				u64 w = __shfl_sync(0xffffffffu, where, r);

				x = (const T *)p.pres_k + w;
				y = (const T *)p.pres_v + w;
			} else {
				x = this->key(key, false);
				y = this->key(key, true);
			}
			tile_copy(k + r * LD + c, x + d, on);
			tile_copy(k + TILE + r * LD + c, y + d, on);
		}
		tile_commit();
	}

	__device__ __forceinline__ void piece(u32 j, const T *k)
	{
		const T *row = k + (lane / 16 * 8 + lane % 8) * LD +
			       (lane / 8 & 1) * 8;
		const T *v = k + TILE + ((lane / 8 & 1) * 8 + lane % 8) * LD +
			     lane / 16 * 8;
		float s[2][4] = {{0.f, 0.f, 0.f, 0.f}, {0.f, 0.f, 0.f, 0.f}};
		u32 f[4], a[4];

#pragma unroll
		for (int i = 0; i < HD / 16; i++) {
			load_rows(row + i * 16, f);
			mma16(s[0], q[i][0], q[i][1], q[i][2], q[i][3], f[0],
			      f[1], T());
			mma16(s[1], q[i][0], q[i][1], q[i][2], q[i][3], f[2],
			      f[3], T());
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

	// This warp's pieces.
	__device__ __forceinline__ void pieces()
	{
		constexpr u32 STEP = WARPS * CEP_GQA_SPLITS;
		u32 j = blockIdx.x * WARPS + warp, low = from / KEYS, buf = 0;
		u32 end = (to + KEYS - 1) / KEYS;

		if (j < low)
			j += (low - j + STEP - 1) / STEP * STEP;
		if (j < end)
			fetch(j, 0);
		for (; j < end; j += STEP, buf ^= 1) {
			if (j + STEP < end) {
				fetch(j + STEP, buf ^ 1);
				tile_wait<1>();
			} else {
				tile_wait<0>();
			}
			__syncwarp();
			piece(j, mine + buf * 2 * TILE);
			__syncwarp();
		}
	}

	// Sums of the warp to shared memory: of row r [HD], maximum,
	// denominator.
	__device__ __forceinline__ void leave(float *sums)
	{
		float *x = sums + warp * 16 * (HD + 2);

#pragma unroll
		for (int i = 0; i < 2; i++) {
			float *row = x + (g + 8 * i) * (HD + 2);

			l[i] += __shfl_xor_sync(0xffffffffu, l[i], 1);
			l[i] += __shfl_xor_sync(0xffffffffu, l[i], 2);
#pragma unroll
			for (int d = 0; d < HD / 8; d++) {
				row[d * 8 + 2 * t] = o[d][2 * i];
				row[d * 8 + 2 * t + 1] = o[d][2 * i + 1];
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

	// Over the denominator, with the sink and the extra zero logit in it.
	__device__ __forceinline__ float finish(u32 head, float v, float mx,
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
		return v * (f / sum);
	}

	// Where row r of the tile lies among all heads of all tokens.
	__device__ __forceinline__ u64 place(u32 r) const
	{
		return (tok + (r0 + r) / per) * p.heads + kh * per +
		       (r0 + r) % per;
	}

	// The four warps' sums in order; to the result, or to the parts.
	__device__ __forceinline__ void together(const float *sums, u32 n,
						 bool parts) const
	{
		for (u32 i = threadIdx.x; i < n * p.size; i += blockDim.x) {
			u32 r = i / p.size, d = i % p.size;
			const float *x = sums + r * (HD + 2);
			float mx = -INFINITY, v = 0, sum = 0;
			u64 at = place(r);

#pragma unroll
			for (u32 w = 0; w < WARPS; w++)
				mx = fmaxf(mx, x[w * 16 * (HD + 2) + HD]);
#pragma unroll
			for (u32 w = 0; w < WARPS; w++) {
				const float *y = x + w * 16 * (HD + 2);
				float f = share(y[HD], mx);

				v += y[d] * f;
				sum += y[HD + 1] * f;
			}
			if (!parts) {
				((T *)p.out)[at * p.size + d] =
					from_f<T>(finish((u32)(at % p.heads), v,
							 mx, sum));
				continue;
			}
			float *part = (float *)p.part +
				      ((at - part0) * CEP_GQA_SPLITS +
				       blockIdx.x) *
					      (p.size + 2);

			part[d] = v;
			if (d == 0) {
				part[p.size] = mx;
				part[p.size + 1] = sum;
			}
		}
	}

	// The block that comes last puts the splits together: first and on,
	// count of them.
	__device__ __forceinline__ void gather(float *weight, u32 n, u32 first,
					       u32 count) const
	{
		const float *all = (const float *)p.part;
		float *whole = weight + 16 * CEP_GQA_SPLITS;

		for (u32 r = warp; r < n; r += WARPS) {
			const float *x = all +
					 ((place(r) - part0) * CEP_GQA_SPLITS +
					  lane) *
						 (p.size + 2) +
					 p.size;
			bool on = (lane - first) % CEP_GQA_SPLITS < count;
			float mx = on ? load_fresh(x) : -INFINITY, top, f;
			float sum = on ? load_fresh(x + 1) : 0.f;

			top = warp_max(mx);
			f = share(mx, top);
			sum = warp_sum(sum * f);
			weight[r * CEP_GQA_SPLITS + lane] = f;
			whole[2 * r] = top;
			whole[2 * r + 1] = sum;
		}
		__syncthreads();
		// two channels a thread, all parts of them under way at once
		for (u32 i = 2 * threadIdx.x; i < n * p.size;
		     i += 2 * blockDim.x) {
			u32 r = i / p.size, d = i % p.size;
			u64 at = place(r);
			const float *x =
				all +
				(at - part0) * CEP_GQA_SPLITS * (p.size + 2) + d;
			float y[CEP_GQA_SPLITS][2], v[2] = {0, 0};

#pragma unroll
			for (u32 k = 0; k < CEP_GQA_SPLITS; k++)
				if ((k - first) % CEP_GQA_SPLITS < count)
					load_fresh2(x + k * (p.size + 2), y[k]);
#pragma unroll
			for (u32 k = 0; k < CEP_GQA_SPLITS; k++)
				if ((k - first) % CEP_GQA_SPLITS < count) {
					float f =
						weight[r * CEP_GQA_SPLITS + k];

					v[0] += y[k][0] * f;
					v[1] += y[k][1] * f;
				}
#pragma unroll
			for (u32 e = 0; e < 2; e++)
				((T *)p.out)[at * p.size + d + e] = from_f<T>(
					finish((u32)(at % p.heads), v[e],
					       whole[2 * r], whole[2 * r + 1]));
		}
	}

	// Whose rows these are and at which positions; false: nobody's.
	__device__ __forceinline__ bool find()
	{
		u32 tiles = gridDim.z / p.batch;

		b = blockIdx.z / tiles;
		r0 = blockIdx.z % tiles * 16;
		part0 = 0;
		seq = p.seq;
		tok = (u64)b * seq;
		cep_begin();
		this->total = total_len(p, b, false);
		if (!this->total)
			return false;
		this->past = this->at = this->total - seq;
		this->old = p.windowed ? this->past - window_rows(p, this->past)
				       : 0;
		return true;
	}

	__device__ __forceinline__ bool find_paged()
	{
		const cep_tile *x = (const cep_tile *)p.tiles +
				    p.piece * p.n_tiles + blockIdx.z;

		cep_begin();
		b = x->seq;
		r0 = x->r0;
		seq = x->n;
		tok = x->tok;
		this->at = this->past = x->at;
		this->old = 0;
		part0 = (u64)p.piece * CEP_PIECE * p.heads;
		return seq != 0;
	}

	__device__ __forceinline__ void run(unsigned char *raw, u32 *last)
	{
		u32 all, n, first, count;

		lane = threadIdx.x & 31;
		warp = threadIdx.x / 32;
		g = lane >> 2;
		t = lane & 3;
		per = p.heads / p.kv_heads;
		kh = blockIdx.y;
		mine = (T *)raw + warp * 4 * TILE;
		if (PAGED ? !find_paged() : !find())
			return;
		all = seq * per;
		n = r0 + 16 < all ? 16 : all - r0;
		this->span(r0, 16, &from, &to);
		first = from / (WARPS * KEYS);
		count = (to - 1) / (WARPS * KEYS) - first + 1;
		count = count < CEP_GQA_SPLITS ? count : CEP_GQA_SPLITS;
		if ((blockIdx.x - first) % CEP_GQA_SPLITS >= count)
			return;
		this->find_rows();
#pragma unroll
		for (int i = 0; i < HD / 16; i++)
			this->query16(i, q[i]);
		pieces();
		__syncthreads();
		leave((float *)raw);
		__syncthreads();
		together((const float *)raw, n, count > 1);
		if (count == 1)
			return;
		__threadfence();
		__syncthreads();
		if (threadIdx.x == 0)
			*last = atomicInc((u32 *)p.counters +
						  blockIdx.z * p.kv_heads + kh,
					  count - 1) == count - 1;
		__syncthreads();
		if (!*last)
			return;
		__threadfence();
		gather((float *)raw, n, first, count);
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
