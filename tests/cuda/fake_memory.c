// fake_memory.c - memory of the fake driver: device memory is host memory, new
// memory is full of 0xa5, reserved ranges fault until they are mapped.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cuda/fake_impl.h"

#define GRANULE ((size_t)2 << 20)

// Addresses given back stay out of use until nothing can name them.
struct block *fake_blocks;

struct block *fake_block_of(const void *p)
{
	const char *c = p;

	for (struct block *b = fake_blocks; b; b = b->next)
		if (b->kind != 4 && c >= b->p && c < b->p + b->bytes)
			return b;
	return NULL;
}

static void block_end(struct block *b)
{
	fake_order_forget(b);
	if (b->kind < 2 || b->kind == 4)
		free(b->p);
	if (b->kind == 3)
		munmap(b->p, b->bytes);
	free(b);
}

// Dead blocks whose bytes nothing in a queue or graph can use; and those that
// [p, p + bytes) comes in the place of.
static void sweep(const char *p, size_t bytes)
{
	bool quiet = !fake_has_graphs();

	for (struct CUstream_st *s = fake_streams; s; s = s->next)
		quiet = quiet && !s->head;
	for (struct block **b = &fake_blocks; *b;) {
		struct block *x = *b;

		if (!x->dead ||
		    (!quiet && (p >= x->p + x->bytes || x->p >= p + bytes))) {
			b = &x->next;
			continue;
		}
		*b = x->next;
		block_end(x);
	}
}

static void *block_add(void *p, size_t bytes, int kind)
{
	struct block *b = calloc(1, sizeof(*b));

	if (kind != 4)
		sweep(p, bytes);
	b->p = p;
	b->bytes = bytes;
	b->kind = kind;
	b->next = fake_blocks;
	fake_blocks = b;
	fake_alive_count++;
	if (kind == 0 || kind == 4)
		fake_use(bytes);
	return p;
}

// False: there is no such block.
static bool block_take(const void *p, int kind)
{
	struct block *b = fake_blocks;

	while (b && (b->p != p || b->kind != kind || b->dead))
		b = b->next;
	if (!b)
		return false;
	fake_order_gone(b, 0, b->bytes);
	b->dead = true;
	fake_alive_count--;
	if (kind == 0 || kind == 4)
		fake_used -= b->bytes;
	sweep(p, 0);
	return true;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	void *p;

	ENTER();
	r = fake_not_capturing();
	if (r || bytes > fake_total - fake_used)
		return fake_leave(r ? r : CUDA_ERROR_OUT_OF_MEMORY);
	p = aligned_alloc(256, (bytes + 255) / 256 * 256);
	memset(p, 0xa5, bytes);
	*out = (CUdeviceptr)(uintptr_t)block_add(p, bytes, 0);
	return fake_leave(r);
}

CUresult cuMemFree_v2(CUdeviceptr p)
{
	ENTER_BACK();
	if (!block_take((void *)(uintptr_t)p, 0))
		r = CUDA_ERROR_INVALID_VALUE;
	return fake_leave(r);
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	void *p;

	(void)flags;
	ENTER();
	r = fake_not_capturing();
	if (r)
		return fake_leave(r);
	p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	*out = block_add(p, bytes, 1);
	return fake_leave(r);
}

CUresult cuMemFreeHost(void *p)
{
	ENTER_BACK();
	if (!block_take(p, 1))
		r = CUDA_ERROR_INVALID_VALUE;
	return fake_leave(r);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p,
				      unsigned int flags)
{
	(void)flags;
	ENTER();
	*out = (CUdeviceptr)(uintptr_t)p;
	return fake_leave(r);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
	(void)flags;
	ENTER();
	r = fake_not_capturing();
	if (!r)
		block_add(p, bytes, 2);
	return fake_leave(r);
}

CUresult cuMemHostUnregister(void *p)
{
	ENTER_BACK();
	if (!block_take(p, 2))
		r = CUDA_ERROR_INVALID_VALUE;
	return fake_leave(r);
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t align,
			     CUdeviceptr addr, unsigned long long flags)
{
	void *p;

	(void)align;
	(void)addr;
	(void)flags;
	ENTER();
	p = mmap(NULL, bytes, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*out = (CUdeviceptr)(uintptr_t)block_add(p, bytes, 3);
	return fake_leave(r);
}

CUresult cuMemAddressFree(CUdeviceptr p, size_t bytes)
{
	(void)bytes;
	ENTER_BACK();
	if (!block_take((void *)(uintptr_t)p, 3))
		r = CUDA_ERROR_INVALID_VALUE;
	return fake_leave(r);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t bytes,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	(void)prop;
	(void)flags;
	ENTER();
	if (bytes > fake_total - fake_used)
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*h = (CUmemGenericAllocationHandle)(uintptr_t)block_add(malloc(1),
								bytes, 4);
	return fake_leave(r);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle h)
{
	ENTER_BACK();
	if (!block_take((void *)(uintptr_t)h, 4))
		r = CUDA_ERROR_INVALID_VALUE;
	return fake_leave(r);
}

CUresult cuMemMap(CUdeviceptr p, size_t bytes, size_t offset,
		  CUmemGenericAllocationHandle h, unsigned long long flags)
{
	(void)p;
	(void)bytes;
	(void)offset;
	(void)h;
	(void)flags;
	ENTER();
	return fake_leave(r);
}

CUresult cuMemUnmap(CUdeviceptr p, size_t bytes)
{
	struct block *b;
	ENTER_BACK();

	b = fake_block_of((void *)(uintptr_t)p);
	if (b)
		fake_order_gone(b, (size_t)((char *)(uintptr_t)p - b->p),
				bytes);
	mprotect((void *)(uintptr_t)p, bytes, PROT_NONE);
	madvise((void *)(uintptr_t)p, bytes, MADV_DONTNEED);
	return fake_leave(r);
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes,
			const CUmemAccessDesc *desc, size_t n)
{
	(void)desc;
	(void)n;
	ENTER();
	mprotect((void *)(uintptr_t)p, bytes, PROT_READ | PROT_WRITE);
	memset((void *)(uintptr_t)p, 0xa5, bytes);
	return fake_leave(r);
}

CUresult cuMemGetAllocationGranularity(size_t *out,
				       const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags opt)
{
	(void)prop;
	(void)opt;
	ENTER();
	*out = GRANULE;
	return fake_leave(r);
}
