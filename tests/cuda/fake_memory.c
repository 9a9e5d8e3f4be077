/* fake_memory.c - memory of the fake driver: device memory is host memory, new
 * memory is full of 0xa5, reserved ranges fault until they are mapped. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "tests/cuda/fake_impl.h"

#define GRANULE ((size_t)2 << 20)

struct block {
	char *p;
	size_t bytes;
	int kind; /* 0 device 1 pinned 2 registered 3 reserved 4 physical */
	struct block *next;
};

static struct block *blocks;

static void *block_add(void *p, size_t bytes, int kind)
{
	struct block *b = malloc(sizeof(*b));

	*b = (struct block){p, bytes, kind, blocks};
	blocks = b;
	fake_alive_count++;
	if (kind == 0 || kind == 4)
		fake_used += bytes;
	return p;
}

static struct block *block_take(const void *p, int kind)
{
	for (struct block **b = &blocks; *b; b = &(*b)->next) {
		struct block *x = *b;

		if (x->p != p || x->kind != kind)
			continue;
		*b = x->next;
		fake_alive_count--;
		if (kind == 0 || kind == 4)
			fake_used -= x->bytes;
		return x;
	}
	return NULL;
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
	struct block *b;

	ENTER();
	b = block_take((void *)(uintptr_t)p, 0);
	if (!b)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	free(b->p);
	free(b);
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
	struct block *b;

	ENTER();
	b = block_take(p, 1);
	if (!b)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	free(b->p);
	free(b);
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
	struct block *b;

	ENTER();
	b = block_take(p, 2);
	free(b);
	return fake_leave(b ? r : CUDA_ERROR_INVALID_VALUE);
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
	struct block *b;

	ENTER();
	b = block_take((void *)(uintptr_t)p, 3);
	if (!b)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	munmap(b->p, bytes);
	free(b);
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
	struct block *b;

	ENTER();
	b = block_take((void *)(uintptr_t)h, 4);
	if (!b)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	free(b->p);
	free(b);
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
	ENTER();
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
