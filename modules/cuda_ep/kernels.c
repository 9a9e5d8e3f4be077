/* kernels.c - the embedded kernel images and the functions in them.
 * Owns: loading; a failure here is the first sign of a GPU that the images do
 * not fit, and is told as such. */
#include "modules/cuda_ep/cep.h"

/* images.c */
extern const unsigned char *const cep_images[];
extern const uint32_t cep_n_images;

static const struct {
	enum cep_image image;
	const char *name;
} kernels[] = {
#define CEP_KERNEL_NAME(image, name) {CEP_I_##image, #name},
#include "modules/cuda_ep/kernel_names.h"
#undef CEP_KERNEL_NAME
};

static int32_t find_kernel(struct cep *self, uint32_t k,
			   struct genai_error *err)
{
	CUfunction f = NULL;
	CUresult r = self->drv.cuModuleGetFunction(
		&f, self->modules[kernels[k].image], kernels[k].name);

	if (r)
		return cep_cuda_fail(self, err, r, "kernel %s",
				     kernels[k].name);
	self->kernels[k] = f;
	/* only these take more dynamic shared memory than any kernel may */
	if (kernels[k].image != CEP_I_gemv && kernels[k].image != CEP_I_rows)
		return 0;
	r = self->drv.cuFuncSetAttribute(
		f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
		self->max_smem - 20480);
	if (r)
		return cep_cuda_fail(self, err, r,
				     "kernel %s: %d bytes of shared memory",
				     kernels[k].name, self->max_smem - 20480);
	return 0;
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
		CUresult r = self->drv.cuModuleLoadData(&self->modules[i],
							cep_images[i]);

		if (r == CUDA_ERROR_NO_BINARY_FOR_GPU)
			return cep_fail(self, err, GENAI_E_NODEVICE,
					"this build has no kernels for compute "
					"capability %d.%d (%s)",
					self->major, self->minor,
					self->device_name);
		if (r)
			return cep_cuda_fail(self, err, r,
					     "cannot load kernels on %s "
					     "(driver %d)",
					     self->device_name,
					     self->driver_version);
	}
	for (uint32_t k = 0; k < CEP_N_KERNELS; k++) {
		rc = find_kernel(self, k, err);
		if (rc)
			return rc;
	}
	return 0;
}

void cep_kernels_close(struct cep *self)
{
	if (!self->modules)
		return;
	cep_enter(self);
	for (uint32_t i = 0; i < cep_n_images; i++)
		if (self->modules[i])
			(void)self->drv.cuModuleUnload(self->modules[i]);
	self->host->free(self->host->ctx, self->modules);
	self->modules = NULL;
}
