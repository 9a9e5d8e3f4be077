/* emu.h - runs the CUDA kernels of cuda_ep on the host, for tests.
 * A block's threads are fibers of one thread; they change places at
 * __syncthreads, at warp exchanges and at their end.  What a kernel does
 * between those points is ordinary C++, so its arithmetic is the device's up to
 * the rounding of the maths library and the order inside a tensor core. */
#ifndef CEP_TESTS_EMU_H
#define CEP_TESTS_EMU_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <sched.h>
#include <time.h>

struct emu_dim {
	unsigned int x, y, z;
};
typedef void (*emu_fn)(const void *params);

extern "C" {
void emu_register(const char *name, emu_fn fn, unsigned int bytes);
void emu_sync_block(void);
/* From here on the kernel in front is done. */
void emu_grid_wait(void);
/* Deposit bytes for the warp, wait for all live lanes, return the warp's
 * deposits: 64 bytes a lane. */
const unsigned char *emu_exchange(const void *mine, unsigned int bytes);
unsigned char *emu_smem(void);
/* What other threads wait for may have come; let them go on until it has. */
void emu_news(void);
void emu_others(void);
}
extern emu_dim emu_thread, emu_block, emu_block_dim, emu_grid_dim;

#undef __global__
#undef __device__
#undef __shared__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __align__
#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __align__(n) __attribute__((aligned(n)))
#define threadIdx emu_thread
#define blockIdx emu_block
#define blockDim emu_block_dim
#define gridDim emu_grid_dim

#define CEP_KERNEL(name, ptype, ...)                                           \
	static void name(const ptype &p);                                      \
	static void name##_emu(const void *p)                                  \
	{                                                                      \
		name(*(const ptype *)p);                                       \
	}                                                                      \
	__attribute__((constructor)) static void name##_reg()                  \
	{                                                                      \
		emu_register(#name, name##_emu, sizeof(ptype));                \
	}                                                                      \
	static void name(const ptype &p)
#define CEP_SMEM(name) unsigned char *name = emu_smem()

static inline void __syncthreads()
{
	emu_sync_block();
}
static inline void __syncwarp()
{
	emu_exchange(nullptr, 0);
}
static inline void __threadfence()
{
}
/* While a kernel waits for the host: its threads go on. */
static inline void __nanosleep(unsigned int)
{
	sched_yield();
}
static inline uint64_t emu_clock_ns()
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static inline void __threadfence_system()
{
}

static inline int __float2int_rn(float x)
{
	return (int)nearbyintf(x);
}
template <class T> static inline T __shfl_xor_sync(unsigned int, T v, int mask)
{
	unsigned int lane = emu_thread.x & 31;
	const unsigned char *all = emu_exchange(&v, sizeof(v));
	T r;

	memcpy(&r, all + ((lane ^ (unsigned int)mask) & 31) * 64, sizeof(r));
	return r;
}

template <class T>
static inline T __shfl_sync(unsigned int, T v, unsigned int from)
{
	const unsigned char *all = emu_exchange(&v, sizeof(v));
	T r;

	memcpy(&r, all + (from & 31) * 64, sizeof(r));
	return r;
}

/* Several kernels at once may do this. */
__attribute__((noinline, no_sanitize("thread"))) static inline unsigned int
atomicCAS(unsigned int *p, unsigned int old, unsigned int v)
{
	unsigned int was = *p;

	if (was == old)
		*p = v;
	return was;
}
static inline unsigned int atomicInc(unsigned int *p, unsigned int limit)
{
	unsigned int was = *p;

	*p = was >= limit ? 0 : was + 1;
	return was;
}

static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c)
{
	return __floats2half2_rn(
		fmaf(__half2float(a.x), __half2float(b.x), __half2float(c.x)),
		fmaf(__half2float(a.y), __half2float(b.y), __half2float(c.y)));
}

static inline float emu_to_f(__half h)
{
	return __half2float(h);
}
static inline float emu_to_f(__nv_bfloat16 h)
{
	return __bfloat162float(h);
}

/* m16n8k16: fragments as the PTX manual lays them out. */
template <class T>
static inline void emu_mma(float *d, uint32_t a0, uint32_t a1, uint32_t a2,
			   uint32_t a3, uint32_t b0, uint32_t b1)
{
	const uint32_t mine[6] = {a0, a1, a2, a3, b0, b1};
	unsigned int lane = emu_thread.x & 31, g = lane / 4, t = lane % 4;
	const unsigned char *all = emu_exchange(mine, sizeof(mine));

	for (int i = 0; i < 4; i++) {
		unsigned int row = g + (i / 2) * 8, col = 2 * t + (i & 1);
		float s = d[i];

		for (unsigned int k = 0; k < 16; k++) {
			unsigned int al = row % 8 * 4 + k % 8 / 2;
			unsigned int bl = col * 4 + k % 8 / 2;
			T a, b;

			memcpy(&a,
			       all + al * 64 + ((row / 8) + (k / 8) * 2) * 4 +
				       (k & 1) * 2,
			       2);
			memcpy(&b,
			       all + bl * 64 + (4 + k / 8) * 4 + (k & 1) * 2,
			       2);
			s += emu_to_f(a) * emu_to_f(b);
		}
		d[i] = s;
	}
}

/* m16n8k32 of bytes, those of a without a sign. */
static inline void emu_mma32(int *d, const uint32_t *a, uint32_t b0, uint32_t b1)
{
	const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
	unsigned int lane = emu_thread.x & 31, g = lane / 4, t = lane % 4;
	const unsigned char *all = emu_exchange(mine, sizeof(mine));

	for (unsigned int i = 0; i < 4; i++)
		for (unsigned int k = 0; k < 32; k++) {
			const unsigned char *x = all + (g * 4 + k % 16 / 4) * 64;
			const unsigned char *y =
				all + ((2 * t + i % 2) * 4 + k % 16 / 4) * 64;

			d[i] += (int)x[(i / 2 + k / 16 * 2) * 4 + k % 4] *
				(int)(signed char)y[(4 + k / 16) * 4 + k % 4];
		}
}

/* m64nNk16 of wgmma, 16 rows a warp: a in registers as for m16n8k16; element
 * (n, k) of b is where at(n, k) says. */
template <class T, class F>
static inline void emu_wgmma(float (*d)[4], const uint32_t *mine,
			     unsigned int n, F at)
{
	unsigned int lane = emu_thread.x & 31, g = lane / 4, t = lane % 4;
	const unsigned char *all = emu_exchange(mine, 16);
	float a[2][16];

	for (unsigned int i = 0; i < 2; i++)
		for (unsigned int k = 0; k < 16; k++) {
			T v;

			memcpy(&v,
			       all + (g * 4 + k % 8 / 2) * 64 +
				       (i + k / 8 * 2) * 4 + (k & 1) * 2,
			       2);
			a[i][k] = emu_to_f(v);
		}
	for (unsigned int c = 0; c < n / 4; c++) {
		unsigned int col = c / 2 * 8 + 2 * t + (c & 1);
		float *o = d[c / 2] + (c & 1);
		float b[16];

		for (unsigned int k = 0; k < 16; k++) {
			T v;

			memcpy(&v, at(col, k), 2);
			b[k] = emu_to_f(v);
		}
		for (unsigned int i = 0; i < 2; i++)
			for (unsigned int k = 0; k < 16; k++)
				o[2 * i] += a[i][k] * b[k];
	}
}

/* Four matrices of 8 rows of 16 bytes, an address a lane; 32-bit pieces of
 * them, or of their transposes. */
static inline void emu_ldmatrix(const void *row, uint32_t *o, bool transposed)
{
	unsigned int lane = emu_thread.x & 31, g = lane / 4, t = lane % 4;
	const unsigned char *all = emu_exchange(&row, sizeof(row));

	for (unsigned int i = 0; i < 4; i++)
		for (unsigned int e = 0; e < 2; e++) {
			unsigned int r = transposed ? 2 * t + e : g;
			unsigned int c = transposed ? g : 2 * t + e;
			const unsigned char *p;

			memcpy(&p, all + (8 * i + r) * 64, sizeof(p));
			memcpy((unsigned char *)(o + i) + e * 2, p + c * 2, 2);
		}
}

#endif
