// ring.cuh - stages in shared memory between warps that fetch and warps that
// multiply, compute capability 9.0 and no other.
//
// A barrier counts who arrives; when all have, its turn is over and the next
// begins.  Turns have the parities 0, 1, 0, ...
#ifndef CEP_RING_CUH
#define CEP_RING_CUH

#include "modules/cuda_ep/kernels/wgmma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(CEP_EMU)
__device__ __forceinline__ u32 ring_at(const void *p)
{
	return (u32)__cvta_generic_to_shared(p);
}

// By one thread; the block meets before anybody uses the barrier.
__device__ __forceinline__ void ring_init(u64 *bar, u32 count)
{
	asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(ring_at(bar)),
		     "r"(count)
		     : "memory");
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void ring_arrive(u64 *bar)
{
	asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(ring_at(bar))
		     : "memory");
}

// As soon as this thread's copies have, without waiting for them.
__device__ __forceinline__ void ring_arrive_behind(u64 *bar)
{
	asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(
			     ring_at(bar))
		     : "memory");
}

// Arrives, and the turn is not over before so many bytes from src are at dst,
// which the tensor core can read then.
__device__ __forceinline__ void ring_copy(void *dst, const void *src, u32 bytes,
					  u64 *bar)
{
	asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], "
		     "%1;" ::"r"(ring_at(bar)),
		     "r"(bytes)
		     : "memory");
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_"
		     "tx::bytes [%0], [%1], %2, [%3];" ::"r"(ring_at(dst)),
		     "l"(src), "r"(bytes), "r"(ring_at(bar))
		     : "memory");
}

// Until the turn of that parity is over.
__device__ __forceinline__ void ring_wait(u64 *bar, u32 parity)
{
	asm volatile("{\n"
		     ".reg .pred p;\n"
		     "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
		     "@p bra done;\n"
		     "bra again;\n"
		     "done:\n"
		     "}" ::"r"(ring_at(bar)),
		     "r"(parity)
		     : "memory");
}

// Registers of each thread of four warps from here on.
template <int N> __device__ __forceinline__ void ring_more_registers()
{
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ __forceinline__ void ring_fewer_registers()
{
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// So many threads of the block meet, the same each time.
__device__ __forceinline__ void ring_meet(u32 threads)
{
	asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}
#else // the same by the host; other devices never run it
__device__ __forceinline__ void ring_init(u64 *bar, u32 count)
{
	*bar = (u64)count << 32 | count << 8; // who is awaited, turns
}
__device__ __forceinline__ void ring_arrive(u64 *bar)
{
#ifdef CEP_EMU
	*bar -= 1u << 8;
	if ((*bar >> 8 & 0xffffff) == 0)
		*bar = (*bar & UINT64_C(0xffffffff00000000)) | *bar >> 32 << 8 |
		       ((*bar + 1) & 255);
	emu_news();
#endif
}
__device__ __forceinline__ void ring_arrive_behind(u64 *bar)
{
	ring_arrive(bar);
}
__device__ __forceinline__ void ring_copy(void *dst, const void *src, u32 bytes,
					  u64 *bar)
{
#ifdef CEP_EMU
	memcpy(dst, src, bytes);
	ring_arrive(bar);
#endif
}
__device__ __forceinline__ void ring_wait(u64 *bar, u32 parity)
{
#ifdef CEP_EMU
	while ((*bar & 1) == parity)
		emu_others();
#endif
}
template <int N> __device__ __forceinline__ void ring_more_registers()
{
}
template <int N> __device__ __forceinline__ void ring_fewer_registers()
{
}
__device__ __forceinline__ void ring_meet(u32 threads)
{
#ifdef CEP_EMU
	static u64 bar;
	u32 parity;

	if (bar >> 32 != threads)
		ring_init(&bar, threads);
	parity = (u32)bar & 1;
	ring_arrive(&bar);
	ring_wait(&bar, parity);
#endif
}
#endif

#endif
