// wgmma.cuh - products of four warps at once, compute capability 9.0 and no
// other: d (64 rows, N columns) += a (64 x 16, in registers) b (16 x N, in
// shared memory).
//
// The tile of b: N rows of 64 elements of k (across: rows of k, 64 of N each),
// 128 bytes each; the piece of 16 bytes number c of row n lies at place c ^ (n
// % 8), so that neither the copies into it nor the tensor core meet in a bank.
// It begins at a multiple of 1,024 bytes.  a and d are the fragments of
// m16n8k16, a warp has 16 rows.
#ifndef CEP_WGMMA_CUH
#define CEP_WGMMA_CUH

#include "modules/cuda_ep/kernels/tile.cuh"

#define WG_ROW 128 // bytes of a row of b's tile

template <int N> struct wg_size {
};

// Piece c of row n of a tile.
__device__ __forceinline__ u32 wg_place(u32 n, u32 c)
{
	return n * WG_ROW + ((c ^ (n & 7)) << 4);
}

// Four bytes of the eight of a and b, by the digits of which.
__device__ __forceinline__ u32 wg_bytes(u32 a, u32 b, u32 which)
{
#ifdef CEP_EMU
	u64 all = (u64)b << 32 | a;
	u32 r = 0;

	for (int i = 0; i < 4; i++)
		r |= (u32)(all >> (which >> 4 * i & 7) * 8 & 255) << 8 * i;
	return r;
#else
	return __byte_perm(a, b, which);
#endif
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(CEP_EMU)
#define WG_ONLY(...) __VA_ARGS__
#define WG_D1(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define WG_D4(j) WG_D1(j), WG_D1(j + 1), WG_D1(j + 2), WG_D1(j + 3)
// Operands of N columns: the sums, and behind them a, b and b's orientation.
#define WG_D8 WG_D1(0)
#define WG_D16 WG_D1(0), WG_D1(1)
#define WG_D32 WG_D4(0)
#define WG_D64 WG_D4(0), WG_D4(4)
#define WG_D128 WG_D64, WG_D4(8), WG_D4(12)
#define WG_N8 "%0,%1,%2,%3"
#define WG_N16 WG_N8 ",%4,%5,%6,%7"
#define WG_N32 WG_N16 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define WG_N64                                                                 \
	"%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,"                               \
	"%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"                     \
	"%24,%25,%26,%27,%28,%29,%30,%31"
#define WG_N128                                                                \
	WG_N64 ","                                                             \
	       "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,"              \
	       "%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,"              \
	       "%56,%57,%58,%59,%60,%61,%62,%63"
#define WG_AB8 "{%4,%5,%6,%7},%8,%10,1,1,%9;"
#define WG_AB16 "{%8,%9,%10,%11},%12,%14,1,1,%13;"
#define WG_AB32 "{%16,%17,%18,%19},%20,%22,1,1,%21;"
#define WG_AB64 "{%32,%33,%34,%35},%36,%38,1,1,%37;"
#define WG_AB128 "{%64,%65,%66,%67},%68,%70,1,1,%69;"

// ACROSS: the rows of b's tile are k, its columns are N.  ADD 0: d = a b.
#define WG_ISSUE(n, name, type)                                                \
	template <int ACROSS, int ADD = 1>                                     \
	__device__ __forceinline__ void wg_issue(float(*d)[4], const u32 *a,   \
						 u64 b, wg_size<n>, type)      \
	{                                                                      \
		asm volatile("wgmma.mma_async.sync.aligned.m64n" #n            \
			     "k16.f32." name "." name " {" WG_N##n             \
			     "}," WG_AB##n                                     \
			     : WG_D##n                                         \
			     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),     \
			       "l"(b), "n"(ACROSS), "n"(ADD));                 \
	}
WG_ISSUE(8, "f16", __half)
WG_ISSUE(16, "f16", __half)
WG_ISSUE(32, "f16", __half)
WG_ISSUE(64, "f16", __half)
WG_ISSUE(128, "f16", __half)
WG_ISSUE(8, "bf16", bf16)
WG_ISSUE(16, "bf16", bf16)
WG_ISSUE(32, "bf16", bf16)
WG_ISSUE(64, "bf16", bf16)
WG_ISSUE(128, "bf16", bf16)

// What was written to shared memory can be read by the tensor core: by each
// writer, before the block meets.
__device__ __forceinline__ void wg_publish()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Registers are as written: before products that take them.
__device__ __forceinline__ void wg_ready()
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wg_commit()
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// All groups of products but the last n are done.
template <int N> __device__ __forceinline__ void wg_wait()
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Sums are read no sooner than here: behind the wait for them.
template <int N> __device__ __forceinline__ void wg_take(float (*d)[4])
{
#pragma unroll
	for (int i = 0; i < N / 8; i++)
		asm volatile(""
			     : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]),
			       "+f"(d[i][3])
			     :
			     : "memory");
}

// A tile in shared memory for the tensor core: swizzled rows of 128 bytes,
// eight of them every 1,024 bytes; apart: bytes from a tile of 64 columns to
// the next.
__device__ __forceinline__ u64 wg_tile(const unsigned char *tile, u32 apart)
{
	u64 at = (u32)__cvta_generic_to_shared(tile);

	return (at >> 4 & 0x3fff) | (u64)(apart >> 4) << 16 | (u64)64 << 32 |
	       (u64)1 << 62;
}

// Where tiles lie, made once.
typedef u64 wg_tiles;
__device__ __forceinline__ wg_tiles wg_tiles_at(const unsigned char *first)
{
	return wg_tile(first, 16);
}
__device__ __forceinline__ wg_tiles wg_further(wg_tiles at, u32 bytes)
{
	return at + (bytes >> 4);
}

// b: columns 16 kk .. of the rows of the tile that many bytes behind the first,
// N rows.  Runs behind, until wg_wait.  ADD 0: d = a b.
template <int N, class T, int ADD>
__device__ __forceinline__ void wgmma(float (*d)[4], const u32 *a, wg_tiles at,
				      u32 behind, int kk)
{
	wg_issue<0, ADD>(d, a, at + (behind >> 4) + 2 * kk, wg_size<N>(), T());
}

// The same of a tile alone.
template <int N, class T, int ADD = 1>
__device__ __forceinline__ void wgmma(float (*d)[4], const u32 *a,
				      const unsigned char *tile, int kk)
{
	wg_issue<0, ADD>(d, a, wg_tile(tile + 32 * kk, 16), wg_size<N>(), T());
}

// b: rows 16 kk .. of the tiles as they stand, 64 columns each.
template <int N, class T>
__device__ __forceinline__ void wgmma_across(float (*d)[4], const u32 *a,
					     const unsigned char *tile,
					     u32 apart, int kk)
{
	wg_issue<1>(d, a, wg_tile(tile + 16 * kk * WG_ROW, apart), wg_size<N>(),
		    T());
}
#else // the same by the host; other devices never run it
#ifdef CEP_EMU
#define WG_ONLY(...) __VA_ARGS__
#else
#define WG_ONLY(...)
#endif
__device__ __forceinline__ void wg_publish()
{
}
__device__ __forceinline__ void wg_ready()
{
}
__device__ __forceinline__ void wg_commit()
{
}
template <int N> __device__ __forceinline__ void wg_wait()
{
}
template <int N> __device__ __forceinline__ void wg_take(float (*)[4])
{
}
typedef const unsigned char *wg_tiles;
__device__ __forceinline__ wg_tiles wg_tiles_at(const unsigned char *first)
{
	return first;
}
__device__ __forceinline__ wg_tiles wg_further(wg_tiles at, u32 bytes)
{
	return at + bytes;
}
template <int N, class T, int ADD = 1>
__device__ __forceinline__ void wgmma(float (*d)[4], const u32 *a,
				      const unsigned char *tile, int kk)
{
#ifdef CEP_EMU
	for (int i = 0; i < N / 8 && !ADD; i++)
		d[i][0] = d[i][1] = d[i][2] = d[i][3] = 0;
	emu_wgmma<T>(d, a, N, [=](u32 n, u32 k) {
		return tile + wg_place(n, kk * 2 + k / 8) + k % 8 * 2;
	});
#endif
}
template <int N, class T, int ADD>
__device__ __forceinline__ void wgmma(float (*d)[4], const u32 *a, wg_tiles at,
				      u32 behind, int kk)
{
	wgmma<N, T, ADD>(d, a, at + behind, kk);
}
template <int N, class T>
__device__ __forceinline__ void wgmma_across(float (*d)[4], const u32 *a,
					     const unsigned char *tile,
					     u32 apart, int kk)
{
#ifdef CEP_EMU
	emu_wgmma<T>(d, a, N, [=](u32 n, u32 k) {
		return tile + n / 64 * apart +
		       wg_place(16 * kk + k, n % 64 / 8) + n % 8 * 2;
	});
#endif
}
#endif

#endif
