// kernels.c - the embedded kernel images and the functions in them.
// Owns: loading, and running one kernel; a failure here is the first sign of a
// GPU or a driver that the images do not fit, and is told as such.
#include "modules/cuda_ep/cep.h"

// images.c
extern const unsigned char *const cep_images[];
extern const uint32_t cep_n_images;

// Images and kernels as kernel_names.h has them: a line that is not a kernel's
// is an image's.
static const struct {
	const char *kernel;
	bool smem;
} lines[] = {
#define CEP_IMAGE(name, smem) {NULL, smem},
#define CEP_KERNEL(name) {#name, false},
#include "modules/cuda_ep/kernel_names.h"
};

static int32_t find_kernel(struct cep *self, CUmodule image, bool smem,
			   const char *name, CUfunction *out,
			   struct genai_error *err)
{
	CUresult r = CU(self, cuModuleGetFunction)(out, image, name);

	if (r)
		return cep_cuda_fail(self, err, r, "kernel %s", name);
	if (!smem)
		return 0;
	r = CU(self, cuFuncSetAttribute)(
		*out, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
		self->max_smem - 20480);
	if (r)
		return cep_cuda_fail(self, err, r,
				     "kernel %s: %d bytes of shared memory",
				     name, self->max_smem - 20480);
	return 0;
}

static int32_t find_kernels(struct cep *self, struct genai_error *err)
{
	uint32_t images = 0, k = 0;
	bool smem = false;
	int32_t rc = 0;

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]) && !rc; i++) {
		if (lines[i].kernel) {
			rc = find_kernel(self, self->modules[images - 1], smem,
					 lines[i].kernel, &self->kernels[k++],
					 err);
			continue;
		}
		images++;
		smem = lines[i].smem;
	}
	return rc;
}

// CEP_ARCHS: what the images were compiled for, as in --with-cuda-arch.
static int32_t cannot_load(struct cep *self, CUresult r,
			   struct genai_error *err)
{
	if (r == CUDA_ERROR_NO_BINARY_FOR_GPU)
		return cep_fail(self, err, GENAI_E_NODEVICE,
				"this build has no kernels for compute "
				"capability %d.%d (%s): they are for %s",
				self->major, self->minor, self->device_name,
				CEP_ARCHS);
	if (self->driver_version / 1000 < CUDA_VERSION / 1000)
		return cep_fail(self, err, GENAI_E_NODEVICE,
				"the driver is too old for the kernels of this "
				"build: it is of CUDA %d.%d, they need %d.%d",
				self->driver_version / 1000,
				self->driver_version % 1000 / 10,
				CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
	return cep_cuda_fail(self, err, r, "cannot load kernels on %s",
			     self->device_name);
}

// One kernel that has to run: it clears the lock of refusals.
static int32_t probe(struct cep *self, struct genai_error *err)
{
	struct cep_poke params = {.dst = self->fault_lock, .bytes = 256};
	CUlaunchConfig c = {
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 256,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = self->service,
	};
	void *args[1] = {&params};
	CUresult r = CU(self, cuLaunchKernelEx)(
		&c, self->kernels[CEP_K_cep_poke_k], args, NULL);

	if (!r)
		r = CU(self, cuStreamSynchronize)(self->service);
	return r ? cep_cuda_fail(self, err, r, "%s cannot run kernels",
				 self->device_name)
		 : 0;
}

int32_t cep_kernels_open(struct cep *self, struct genai_error *err)
{
	int32_t rc;

	self->modules = self->host->alloc(
		self->host->ctx, sizeof(CUmodule) * cep_n_images, CEP_TAG);
	if (!self->modules)
		return cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
	memset(self->modules, 0, sizeof(CUmodule) * cep_n_images);
	for (uint32_t i = 0; i < cep_n_images; i++) {
		CUresult r = CU(self, cuModuleLoadData)(&self->modules[i],
							cep_images[i]);

		if (r)
			return cannot_load(self, r, err);
	}
	rc = find_kernels(self, err);
	return rc ? rc : probe(self, err);
}

void cep_kernels_close(struct cep *self)
{
	if (!self->modules)
		return;
	cep_enter(self);
	// none of them may still run: the probe, of which nobody was told
	(void)self->drv.cuStreamSynchronize(self->service);
	for (uint32_t i = 0; i < cep_n_images; i++)
		if (self->modules[i])
			(void)self->drv.cuModuleUnload(self->modules[i]);
	self->host->free(self->host->ctx, self->modules);
	self->modules = NULL;
}
