// flash.cu - attention of steps of many rows, on tensor cores (flash.cuh).
//
// 16 rows a warp, 4 or 8 warps.  Two tiles of KT keys and values are in shared
// memory, one in use and one on its way: 2 x 2 x KT x (HD + 8) x 2 bytes; the 8
// keep the eight rows of a fragment in different banks.
#include "modules/cuda_ep/kernels/flash.cuh"

template <class T, int HD, int KT> struct flash : flash_rows<T, HD, KT> {
	typedef flash_rows<T, HD, KT> rows;
	using rows::from;
	using rows::lane;
	using rows::o;
	using rows::p;
	using rows::to;
	using rows::warp;
	static constexpr int LD = HD + 8, KS = HD / 16;
	// large heads: queries wait in shared memory
	static constexpr bool Q_STAYS = HD <= 128;
	T *ks, *vs, *qs; // [2][KT][LD] twice; [16 a warp][LD]
	u32 q[Q_STAYS ? KS : 1][4];

	__device__ __forceinline__ flash(const cep_gqa &params) : rows(params)
	{
	}

	__device__ __forceinline__ void fetch(u32 j0, u32 buf) const
	{
		constexpr u32 C = HD / 8; // pieces of a row

		for (u32 i = threadIdx.x; i < KT * C; i += blockDim.x) {
			u32 r = i / C, c = i % C * 8, j = j0 + r;
			bool on = j >= from && j < to && c < p.size;
			u32 at = on ? j : to - 1, d = on ? c : 0;

			tile_copy(ks + (buf * KT + r) * LD + c,
				  this->key(at, false) + d, on);
			tile_copy(vs + (buf * KT + r) * LD + c,
				  this->key(at, true) + d, on);
		}
		tile_commit();
	}

	__device__ __forceinline__ void find_queries()
	{
#pragma unroll
		for (int k = 0; k < KS; k++) {
			u32 x[4];

			this->query16(k, x);
			if (Q_STAYS) {
#pragma unroll
				for (int i = 0; i < 4; i++)
					q[Q_STAYS ? k : 0][i] = x[i];
				continue;
			}
			T *row = qs + (warp * 16 + this->g) * LD + k * 16 +
				 2 * this->t;

			*(u32 *)row = x[0];
			*(u32 *)(row + 8 * LD) = x[1];
			*(u32 *)(row + 8) = x[2];
			*(u32 *)(row + 8 * LD + 8) = x[3];
		}
		__syncwarp();
	}

	// Queries times keys of the tile.
	__device__ __forceinline__ void scores(const T *k, float (*s)[4])
	{
		const T *row = k + (lane / 16 * 8 + lane % 8) * LD +
			       (lane / 8 & 1) * 8;

#pragma unroll
		for (int n = 0; n < KT / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[n][e] = 0.f;
#pragma unroll
		for (int i = 0; i < KS; i++) {
			u32 a[4], f[4];

			if (Q_STAYS) {
#pragma unroll
				for (int e = 0; e < 4; e++)
					a[e] = q[Q_STAYS ? i : 0][e];
			} else {
				load_rows(qs + (warp * 16 + lane % 16) * LD +
						  i * 16 + lane / 16 * 8,
					  a);
			}
#pragma unroll
			for (int n = 0; n < KT / 16; n++) {
				load_rows(row + n * 16 * LD + i * 16, f);
				mma16(s[2 * n], a[0], a[1], a[2], a[3], f[0],
				      f[1], T());
				mma16(s[2 * n + 1], a[0], a[1], a[2], a[3],
				      f[2], f[3], T());
			}
		}
	}

	__device__ __forceinline__ void add_values(const T *v, float (*s)[4])
	{
		const T *row = v + ((lane / 8 & 1) * 8 + lane % 8) * LD +
			       lane / 16 * 8;

#pragma unroll
		for (int n = 0; n < KT / 16; n++) {
			u32 a[4], f[4];

			rows::weights16(s + 2 * n, a);
#pragma unroll
			for (int d = 0; d < HD / 16; d++) {
				load_columns(row + n * 16 * LD + d * 16, f);
				mma16(o[2 * d], a[0], a[1], a[2], a[3], f[0],
				      f[1], T());
				mma16(o[2 * d + 1], a[0], a[1], a[2], a[3],
				      f[2], f[3], T());
			}
		}
	}

	__device__ __forceinline__ void run(unsigned char *raw)
	{
		u32 low, high, buf = 0;

		ks = (T *)raw;
		vs = ks + 2 * KT * LD;
		qs = vs + 2 * KT * LD;
		if (!this->find())
			return;
		u32 j0 = from / KT * KT;
		fetch(j0, 0);
		this->find_rows();
		this->span(this->r0, 16, &low, &high);
		find_queries();
		for (; j0 < to; j0 += KT, buf ^= 1) {
			float s[KT / 8][4];

			tile_wait<0>();
			__syncthreads();
			if (j0 + KT < to)
				fetch(j0 + KT, buf ^ 1);
			if (j0 >= high || j0 + KT <= low)
				continue;
			scores(ks + buf * KT * LD, s);
			this->refine(j0, s);
			this->weigh(s);
			add_values(vs + buf * KT * LD, s);
		}
		this->store();
	}
};

// Head sizes up to HD, KT keys a tile.
#define CEP_FLASH(type, suffix, hd, kt)                                        \
	CEP_KERNEL(cep_flash_##hd##_##suffix, cep_gqa, 256)                    \
	{                                                                      \
		CEP_SMEM(raw);                                                 \
		flash<type, hd, kt> f(p);                                      \
		f.run(raw);                                                    \
	}
CEP_FLASH(__half, f16, 64, 64)
CEP_FLASH(__half, f16, 96, 64)
CEP_FLASH(__half, f16, 128, 64)
CEP_FLASH(__half, f16, 256, 32)
CEP_FLASH(bf16, bf16, 64, 64)
CEP_FLASH(bf16, bf16, 96, 64)
CEP_FLASH(bf16, bf16, 128, 64)
CEP_FLASH(bf16, bf16, 256, 32)
