// fake_image.c - images of kernels: which one of a fat binary a device of this
// capability takes, functions, and what a launch may ask for.
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/fake_impl.h"

#define FAT_MAGIC 0xba55ed50u
#define FAT_PTX 1
#define FAT_CODE 2

// As in the fat binaries that nvcc writes.
struct fat_head {
	uint32_t magic;
	uint16_t version, head_bytes;
	uint64_t bytes;
};

struct fat_entry {
	uint16_t kind, version;
	uint32_t head_bytes;
	uint64_t bytes;
	uint32_t packed_bytes, options;
	uint16_t minor, major;
	uint32_t arch;
};

const void *emu_find(const char *name);

static int image;
static bool any_image;
static uint64_t overlaps;

static struct {
	const void *kernel;
	uint32_t smem;
} limits[256];

void fake_any_image(int on)
{
	any_image = on;
}

uint64_t fake_overlaps(void)
{
	return overlaps;
}

int fake_image(void)
{
	return image;
}

// Shared memory that a block may ask for at most.
static uint32_t most_smem(void)
{
	int cc = fake_cc[0] * 10 + fake_cc[1];

	switch (cc) {
	case 75:
		return 64u << 10;
	case 80:
	case 87:
		return 163u << 10;
	case 86:
	case 89:
	case 120:
	case 121:
		return 99u << 10;
	default:
		return cc < 75 ? 48u << 10 : 227u << 10;
	}
}

CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d)
{
	(void)d;
	ENTER();
	*v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR	 ? fake_cc[0]
	     : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? fake_cc[1]
	     : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT	 ? 4
	     : a == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
		     ? (int)most_smem()
		     : 1;
	return fake_leave(r);
}

// Code of the same major capability and no newer minor one runs as it is; PTX
// is compiled for what is as new or newer, by a driver that knows it.
static CUresult pick(const unsigned char *p)
{
	int cc = fake_cc[0] * 10 + fake_cc[1], code = 0, ptx = 0;
	const struct fat_head *h = (const void *)p;
	uint64_t at = h->head_bytes;

	if (h->magic != FAT_MAGIC)
		return CUDA_ERROR_INVALID_IMAGE;
	while (at < h->head_bytes + h->bytes) {
		const struct fat_entry *e = (const void *)(p + at);
		int arch = (int)e->arch;

		if (e->kind == FAT_CODE && arch / 10 == fake_cc[0] &&
		    arch <= cc && arch > code)
			code = arch;
		if (e->kind == FAT_PTX && arch <= cc && arch > ptx)
			ptx = arch;
		at += e->head_bytes + e->bytes;
	}
	image = code ? code : -ptx;
	if (any_image)
		return CUDA_SUCCESS;
	if (!image)
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	if (fake_driver / 1000 >= CUDA_VERSION / 1000)
		return CUDA_SUCCESS;
	return code ? CUDA_ERROR_INVALID_IMAGE
		    : CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

CUresult cuModuleLoadData(CUmodule *out, const void *data)
{
	ENTER();
	r = pick(data);
	if (r)
		return fake_leave(r);
	*out = malloc(1);
	fake_alive_count++;
	return fake_leave(r);
}

CUresult cuModuleUnload(CUmodule m)
{
	ENTER_BACK();
	// streams of another runtime do not run these kernels
	for (struct CUstream_st *s = fake_streams; s && fake_contexts == 1;
	     s = s->next)
		fake_order_need(&s->clock, "kernels unloaded");
	free(m);
	fake_alive_count--;
	return fake_leave(r);
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name)
{
	const void *k;

	(void)m;
	ENTER();
	k = emu_find(name);
	*out = (CUfunction)(uintptr_t)k;
	return fake_leave(k ? r : CUDA_ERROR_NOT_FOUND);
}

static uint32_t *limit_of(const void *kernel)
{
	int i = 0;

	while (limits[i].kernel && limits[i].kernel != kernel)
		i++;
	if (!limits[i].kernel) {
		limits[i].kernel = kernel;
		limits[i].smem = 48u << 10;
	}
	return &limits[i].smem;
}

CUresult cuFuncSetAttribute(CUfunction k, CUfunction_attribute a, int v)
{
	ENTER();
	if (a != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || v < 0 ||
	    (uint32_t)v > most_smem())
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*limit_of(k) = (uint32_t)v;
	return fake_leave(r);
}

CUresult fake_check_launch(const CUlaunchConfig *c, const void *kernel,
			   bool *out_overlaps)
{
	if (!c->gridDimX || !c->gridDimY || !c->gridDimZ || !c->blockDimX ||
	    c->blockDimX > 1024 || c->gridDimY > 65535 || c->gridDimZ > 65535 ||
	    c->sharedMemBytes > *limit_of(kernel) ||
	    c->sharedMemBytes > most_smem())
		return CUDA_ERROR_INVALID_VALUE;
	*out_overlaps = false;
	for (unsigned i = 0; i < c->numAttrs; i++) {
		const CUlaunchAttribute *a = &c->attrs[i];

		if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
			// blocks of a cluster run alone here: kernels meet in
			// global memory then
			if (fake_cc[0] < 9)
				return CUDA_ERROR_NOT_SUPPORTED;
			if (!a->value.clusterDim.x ||
			    a->value.clusterDim.x > 8 ||
			    c->gridDimX % a->value.clusterDim.x ||
			    a->value.clusterDim.y != 1 ||
			    a->value.clusterDim.z != 1)
				return CUDA_ERROR_INVALID_VALUE;
			continue;
		}
		if (a->id !=
		    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
			return CUDA_ERROR_INVALID_VALUE;
		if (a->value.programmaticStreamSerializationAllowed) {
			if (fake_cc[0] < 9)
				return CUDA_ERROR_NOT_SUPPORTED;
			*out_overlaps = true;
			overlaps++;
		}
	}
	return CUDA_SUCCESS;
}
