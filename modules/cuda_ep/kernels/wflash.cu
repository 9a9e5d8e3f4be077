// wflash.cu - attention of steps of many rows on compute capability 9.0
// (flash.cuh).
//
// 64 rows four warps, 4 or 8 warps.  Scores and sums are products of wgmma:
// queries and weights come from registers, keys and values from shared memory,
// where both lie as the cache has them, in panels of 64 channels.  Two tiles of
// 128 keys and values, one in use and one on its way: 2 x 2 x 128 x HD x 2
// bytes.
#include "modules/cuda_ep/kernels/flash.cuh"
#include "modules/cuda_ep/kernels/wgmma.cuh"

template <class T, int HD, int KT> struct wflash : flash_rows<T, HD, KT> {
	typedef flash_rows<T, HD, KT> rows;
	using rows::from;
	using rows::o;
	using rows::p;
	using rows::to;
	static constexpr u32 PANEL = KT * WG_ROW, TILE = HD / 64 * PANEL;
	unsigned char *smem; // keys, values; the same again
	u32 q[HD / 16][4];

	__device__ __forceinline__ wflash(const cep_gqa &params) : rows(params)
	{
	}

	__device__ __forceinline__ void fetch(u32 j0, u32 buf) const
	{
		constexpr u32 C = HD / 8; // pieces of a row
		u32 c = threadIdx.x % C, stride = blockDim.x / C;
		bool has = c * 8 < p.size;
		u32 d = has ? c * 8 : 0;
		unsigned char *k = smem + buf * 2 * TILE + c / 8 * PANEL;

#pragma unroll 4
		for (u32 r = threadIdx.x / C; r < KT; r += stride) {
			u32 j = j0 + r, place = wg_place(r, c % 8);
			bool on = has && j >= from && j < to;
			u32 at = on ? j : to - 1;

			tile_copy(k + place, this->key(at, false) + d, on);
			tile_copy(k + TILE + place, this->key(at, true) + d,
				  on);
		}
		tile_commit();
	}

	__device__ __forceinline__ void scores(const unsigned char *k,
					       float (*s)[4]) const
	{
#pragma unroll
		for (int n = 0; n < KT / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[n][e] = 0.f;
		wg_ready();
#pragma unroll
		for (int i = 0; i < HD / 16; i++)
			wgmma<KT, T>(s, q[i], k + i / 4 * PANEL, i % 4);
		wg_commit();
		wg_wait<0>();
	}

	__device__ __forceinline__ void add_values(const unsigned char *v,
						   float (*s)[4])
	{
		u32 a[KT / 16][4];

#pragma unroll
		for (int n = 0; n < KT / 16; n++)
			rows::weights16(s + 2 * n, a[n]);
		wg_ready();
#pragma unroll
		for (int n = 0; n < KT / 16; n++)
			wgmma_across<HD, T>(o, a[n], v, PANEL, n);
		wg_commit();
		wg_wait<0>();
	}

	__device__ __forceinline__ void run(unsigned char *raw)
	{
		u32 low, high, buf = 0;

		smem = raw + (0 - (u64)raw & 1023);
		if (!this->find())
			return;
		u32 j0 = from / KT * KT;
		fetch(j0, 0);
		this->find_rows();
		// the four warps of a product go together
		this->span(this->r0 - this->warp % 4 * 16, 64, &low, &high);
#pragma unroll
		for (int i = 0; i < HD / 16; i++)
			this->query16(i, q[i]);
		for (; j0 < to; j0 += KT, buf ^= 1) {
			const unsigned char *k = smem + buf * 2 * TILE;
			float s[KT / 8][4];

			tile_wait<0>();
			wg_publish();
			__syncthreads();
			if (j0 + KT < to)
				fetch(j0 + KT, buf ^ 1);
			if (j0 >= high || j0 + KT <= low)
				continue;
			scores(k, s);
			this->refine(j0, s);
			this->weigh(s);
			add_values(k + TILE, s);
		}
		this->store();
	}
};

// Head sizes up to HD.
#define CEP_WFLASH(type, suffix, hd)                                           \
	CEP_KERNEL(cep_wflash_##hd##_##suffix, cep_gqa, 256)                   \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		WG_ONLY(wflash<type, hd, 128> f(p); f.run(raw));               \
	}
CEP_WFLASH(__half, f16, 64)
CEP_WFLASH(__half, f16, 128)
CEP_WFLASH(bf16, bf16, 64)
CEP_WFLASH(bf16, bf16, 128)
