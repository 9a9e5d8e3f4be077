// mma.cuh - tensor core products and 4-bit unpacking for half and bfloat16.
#ifndef CEP_MMA_CUH
#define CEP_MMA_CUH

#include "modules/cuda_ep/kernels/common.cuh"

// d += a b for a 16 x 16 and b 16 x 8, the PTX m16n8k16 fragments.
__device__ __forceinline__ void mma16(float *d, u32 a0, u32 a1, u32 a2, u32 a3,
				      u32 b0, u32 b1, __half)
{
#ifdef CEP_EMU
	emu_mma<__half>(d, a0, a1, a2, a3, b0, b1);
#elif __CUDA_ARCH__ < 800 // half the depth at a time, the same fragments
	asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
	    "{%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
	    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	    : "r"(a0), "r"(a1), "r"(b0));
	asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
	    "{%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
	    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	    : "r"(a2), "r"(a3), "r"(b1));
#else
	asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
	    "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
	    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}
__device__ __forceinline__ void mma16(float *d, u32 a0, u32 a1, u32 a2, u32 a3,
				      u32 b0, u32 b1, bf16)
{
#ifdef CEP_EMU
	emu_mma<bf16>(d, a0, a1, a2, a3, b0, b1);
#elif __CUDA_ARCH__ >= 800
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
	    "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
	    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
	    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
	__trap(); // cep_need_bf16 refuses such a node
#endif
}

// d += a b for codes a, 16 x 32 bytes without a sign, and digits b, 32 x 8 with
// one, the PTX m16n8k32 fragments: exact.
__device__ __forceinline__ void mma32(int *d, const u32 *a, u32 b0, u32 b1)
{
#ifdef CEP_EMU
	emu_mma32(d, a, b0, b1);
#elif __CUDA_ARCH__ < 800 // a quarter at a time, the same fragments
#pragma unroll
	for (int i = 0; i < 4; i++)
		asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 "
		    "{%0,%1},{%2},{%3},{%0,%1};"
		    : "+r"(d[i % 2 * 2]), "+r"(d[i % 2 * 2 + 1])
		    : "r"(a[i]), "r"(i < 2 ? b0 : b1));
#else
	asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
	    "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
	    : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// acc += a b over the 64 columns of two tiles in shared memory: MF times 16
// rows of a from wm on, NF times 8 of b from wn on; g = lane / 4, t = lane % 4.
template <int MF, int NF, class T, int LD>
__device__ __forceinline__ void mma_tile(float (*acc)[NF][4], const T (*a)[LD],
					 const T (*b)[LD], u32 wm, u32 wn,
					 u32 g, u32 t)
{
#pragma unroll
	for (int kk = 0; kk < 64; kk += 16) {
		u32 fa[MF][4], fb[NF][2];

#pragma unroll
		for (int i = 0; i < MF; i++) {
			const T *x = &a[wm + i * 16 + g][kk + 2 * t];

			fa[i][0] = *(const u32 *)x;
			fa[i][1] = *(const u32 *)(x + 8 * LD);
			fa[i][2] = *(const u32 *)(x + 8);
			fa[i][3] = *(const u32 *)(x + 8 * LD + 8);
		}
#pragma unroll
		for (int j = 0; j < NF; j++) {
			const T *x = &b[wn + j * 8 + g][kk + 2 * t];

			fb[j][0] = *(const u32 *)x;
			fb[j][1] = *(const u32 *)(x + 8);
		}
#pragma unroll
		for (int i = 0; i < MF; i++)
#pragma unroll
			for (int j = 0; j < NF; j++)
				mma16(acc[i][j], fa[i][0], fa[i][1], fa[i][2],
				      fa[i][3], fb[j][0], fb[j][1], T());
	}
}

// (a & b) | c, in one instruction: the compiler makes two of it.
__device__ __forceinline__ u32 and_or(u32 a, u32 b, u32 c)
{
#ifdef CEP_EMU
	return (a & b) | c;
#else
	u32 r;

	asm("lop3.b32 %0,%1,%2,%3,0xea;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
	return r;
#endif
}

__device__ __forceinline__ u32 pack2(__half2 v)
{
	return *(u32 *)&v;
}
__device__ __forceinline__ __half2 as_half2(u32 v)
{
	return *(__half2 *)&v;
}
__device__ __forceinline__ __nv_bfloat162 as_bf162(u32 v)
{
	return *(__nv_bfloat162 *)&v;
}

// Eight nibbles to the exact values q - 8, in pairs (0,4) (1,5) (2,6) (3,7):
// nibbles are put into the mantissa of 1024 (of 128 for bfloat16).
__device__ __forceinline__ void unpack8(u32 v, u32 *o, __half)
{
	const __half2 lo = as_half2(0x64086408u), k = as_half2(0x2c002c00u);
	const __half2 hi = as_half2(0xd480d480u);
	u32 w = v >> 8, t;

	t = and_or(v, 0x000f000fu, 0x64006400u);
	o[0] = pack2(__hsub2(as_half2(t), lo));
	t = and_or(v, 0x00f000f0u, 0x64006400u);
	o[1] = pack2(__hfma2(as_half2(t), k, hi));
	t = and_or(w, 0x000f000fu, 0x64006400u);
	o[2] = pack2(__hsub2(as_half2(t), lo));
	t = and_or(w, 0x00f000f0u, 0x64006400u);
	o[3] = pack2(__hfma2(as_half2(t), k, hi));
}
__device__ __forceinline__ void unpack8(u32 v, u32 *o, bf16)
{
	const __nv_bfloat162 eight = as_bf162(0x43084308u);

#pragma unroll
	for (int i = 0; i < 4; i++) {
		u32 t = and_or(v >> (4 * i), 0x000f000fu, 0x43004300u);
		__nv_bfloat162 d = __hsub2(as_bf162(t), eight);

		o[i] = *(u32 *)&d;
	}
}

// The high or the low halves of a and b, in one instruction: the compiler makes
// several of it.
__device__ __forceinline__ u32 pick16(u32 a, u32 b, bool high)
{
#ifdef CEP_EMU
	return high ? (a >> 16) | (b & 0xffff0000u) : (a & 0xffffu) | (b << 16);
#else
	return __byte_perm(a, b, high ? 0x7632 : 0x5410);
#endif
}

#endif
