// driver.c - the driver library, the device and its context.
// Owns: dlopen of libcuda, the text of driver errors.
// Nothing here runs before init: a machine without a driver loads the module
// and is told in one sentence what is missing.
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "modules/cuda_ep/cep.h"

#define STR_(x) #x
#define STR(x) STR_(x)

static void too_old(struct cep *self, const char *file, const char *lacks,
		    struct genai_error *err)
{
	__typeof__(&cuDriverGetVersion) version;
	void *p = dlsym(self->drv.handle, "cuDriverGetVersion");
	int v = 0;

	memcpy(&version, &p, sizeof(p));
	if (p && !version(&v))
		cep_fail(self, err, GENAI_E_NODEVICE,
			 "%s: the driver is too old: it is of CUDA %d.%d and "
			 "has no %s",
			 file, v / 1000, v % 1000 / 10, lacks);
	else
		cep_fail(self, err, GENAI_E_NODEVICE,
			 "%s: the driver is too old: it has no %s", file,
			 lacks);
}

int32_t cep_driver_open(struct cep *self, const char *path,
			struct genai_error *err)
{
	static const struct {
		const char *name;
		size_t offset;
		bool is_late;
	} syms[] = {
#define CEP_SYM(name) {STR(name), offsetof(struct cep_driver, name), false},
#define CEP_SYM_LATE(name) {STR(name), offsetof(struct cep_driver, name), true},
#include "modules/cuda_ep/cuda_syms.h"
#undef CEP_SYM
	};
	const char *file = *path ? path : "libcuda.so.1";
	const char *why;

	// a bare name would be looked for in places that others can write to
	if (*path && *path != '/')
		return cep_fail(self, err, GENAI_E_CONFIG,
				"driver = %s: an absolute path is needed",
				path);
	// the driver stays: it leaves things behind that run at exit
	self->drv.handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!self->drv.handle) {
		why = dlerror();
		return cep_fail(self, err, GENAI_E_NODEVICE,
				"%s: the NVIDIA driver is not installed: %s",
				file, why ? why : "no reason given");
	}
	for (size_t i = 0; i < sizeof(syms) / sizeof(syms[0]); i++) {
		void *p = dlsym(self->drv.handle, syms[i].name);

		if (!p && !syms[i].is_late) {
			too_old(self, file, syms[i].name, err);
			cep_driver_close(self);
			return GENAI_E_NODEVICE;
		}
		memcpy((char *)&self->drv + syms[i].offset, &p, sizeof(p));
	}
	return 0;
}

void cep_driver_close(struct cep *self)
{
	if (self->drv.handle)
		dlclose(self->drv.handle);
	memset(&self->drv, 0, sizeof(self->drv));
}

bool cep_is_fatal(CUresult r)
{
	return r == CUDA_ERROR_ILLEGAL_ADDRESS ||
	       r == CUDA_ERROR_ECC_UNCORRECTABLE ||
	       r == CUDA_ERROR_HARDWARE_STACK_ERROR ||
	       r == CUDA_ERROR_ILLEGAL_INSTRUCTION ||
	       r == CUDA_ERROR_MISALIGNED_ADDRESS ||
	       r == CUDA_ERROR_INVALID_ADDRESS_SPACE ||
	       r == CUDA_ERROR_INVALID_PC || r == CUDA_ERROR_LAUNCH_FAILED ||
	       r == CUDA_ERROR_LAUNCH_TIMEOUT || r == CUDA_ERROR_ASSERT ||
	       r == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
	       r == CUDA_ERROR_DEINITIALIZED || // the process ends
	       r == CUDA_ERROR_UNKNOWN;
}

static int32_t code_of(CUresult r)
{
	switch (r) {
	case CUDA_ERROR_OUT_OF_MEMORY:
		return GENAI_E_LIMIT;
	case CUDA_ERROR_NO_DEVICE:
	case CUDA_ERROR_INVALID_DEVICE:
	case CUDA_ERROR_NO_BINARY_FOR_GPU:
	case CUDA_ERROR_INVALID_PTX:
	case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
	case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
	case CUDA_ERROR_STUB_LIBRARY:
		return GENAI_E_NODEVICE;
	default:
		return GENAI_E_DEVICE;
	}
}

int32_t cep_cuda_fail(struct cep *self, struct genai_error *err, CUresult r,
		      const char *fmt, ...)
{
	const char *name = NULL, *text = NULL, *called;
	char what[256];
	int32_t code = code_of(r);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	called = atomic_load_explicit(&self->called, memory_order_relaxed);
	self->drv.cuGetErrorName(r, &name);
	self->drv.cuGetErrorString(r, &text);
	cep_fail(self, err, code, "%s: %s: %s (%s)", what, called,
		 name ? name : "error", text ? text : "no text");
	if (cep_is_fatal(r)) {
		struct genai_error cause = GENAI_ERROR_INIT;

		cep_fail(self, &cause, code,
			 "the device failed for good, the process must be "
			 "restarted: %s: %s: %s",
			 what, called, name ? name : "error");
		cep_poison_set(self, code, &cause);
	}
	return code;
}

static int32_t get_attributes(struct cep *self, struct genai_error *err)
{
	int read_only = 0;
	const struct {
		CUdevice_attribute a;
		int *to;
	} list[] = {
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &self->major},
		{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &self->minor},
		{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &self->n_sms},
		{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
		 &self->max_smem},
		{CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
		 &read_only},
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		CUresult r = CU(self, cuDeviceGetAttribute)(
			list[i].to, list[i].a, self->dev);

		if (r)
			return cep_cuda_fail(self, err, r,
					     "cannot ask about device %u",
					     self->device);
	}
	self->register_ro = read_only;
	if (self->n_sms < 1)
		self->n_sms = 1;
	// kernels that begin before the one in front ends
	if (self->major < 9)
		self->pdl = false;
	return 0;
}

static int32_t pick_device(struct cep *self, struct genai_error *err)
{
	int count = 0;
	CUresult r = CU(self, cuInit)(0);
	int32_t rc;

	if (r)
		return cep_cuda_fail(
			self, err,
			r == CUDA_ERROR_UNKNOWN ? CUDA_ERROR_NO_DEVICE : r,
			"cannot start the CUDA driver");
	(void)self->drv.cuDriverGetVersion(&self->driver_version);
	r = CU(self, cuDeviceGetCount)(&count);
	if (r)
		return cep_cuda_fail(self, err, r, "cannot count the GPUs");
	if (count < 1)
		return cep_fail(self, err, GENAI_E_NODEVICE,
				"the CUDA driver sees no GPU");
	if (self->device >= (uint32_t)count)
		return cep_fail(self, err, GENAI_E_NODEVICE,
				"device %u does not exist: the machine has %d",
				self->device, count);
	r = CU(self, cuDeviceGet)(&self->dev, (int)self->device);
	if (r)
		return cep_cuda_fail(self, err, r, "cannot open device %u",
				     self->device);
	(void)self->drv.cuDeviceGetName(self->device_name,
					sizeof(self->device_name), self->dev);
	rc = get_attributes(self, err);
	if (rc)
		return rc;
	if (self->major * 10 + self->minor < 75)
		return cep_fail(self, err, GENAI_E_NODEVICE,
				"%s has compute capability %d.%d: at least 7.5 "
				"is needed",
				self->device_name, self->major, self->minor);
	return 0;
}

static int32_t open_faults(struct cep *self, struct genai_error *err)
{
	CUdeviceptr p = 0;
	void *h = NULL;
	CUresult r;

	r = CU(self, cuMemHostAlloc)(
		&h, 4096, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
	if (r)
		return cep_cuda_fail(self, err, r,
				     "cannot take 4096 bytes of pinned memory");
	memset(h, 0, 4096);
	_Static_assert(sizeof(struct cep_fault) <= 1024 &&
			       CEP_SLOTS * sizeof(uint32_t) <= 4096 - 1024,
		       "faults and words have room in a page");
	self->fault = h;
	r = CU(self, cuMemHostGetDevicePointer)(&p, h, 0);
	if (r)
		return cep_cuda_fail(self, err, r, "cannot map pinned memory");
	self->fault_addr = p;
	self->words = (void *)((char *)h + 1024);
	self->words_addr = p + 1024;
	r = CU(self, cuMemAlloc)(&p, 256);
	if (r)
		return cep_cuda_fail(self, err, r,
				     "cannot take 256 bytes of device memory");
	self->fault_lock = p;
	return 0;
}

static int32_t bring_up(struct cep *self, struct genai_error *err)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
			     .id = (int)self->device},
	};
	size_t granule = 0;
	int32_t rc;
	CUresult r;

	r = CU(self, cuDevicePrimaryCtxRetain)(&self->ctx, self->dev);
	if (r)
		return cep_cuda_fail(self, err, r,
				     "cannot make a context on %s",
				     self->device_name);
	self->retained = true;
	cep_enter(self);
	r = CU(self, cuMemGetAllocationGranularity)(
		&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
	self->granule = r || !granule ? UINT64_C(2) << 20 : granule;
	r = CU(self, cuStreamCreate)(&self->service, CU_STREAM_NON_BLOCKING);
	if (r)
		return cep_cuda_fail(self, err, r, "cannot make a stream");
	rc = open_faults(self, err);
	return rc ? rc : cep_kernels_open(self, err);
}

// The driver's streams share work queues, 8 unless the environment says more
// when the driver starts, and a stream that stands at a word (calls.c) holds up
// whatever others have put behind it into the same one.  The environment is the
// program's: it gets it back as it was.
#define QUEUES "CUDA_DEVICE_MAX_CONNECTIONS"
#define MOST_QUEUES "32"

static int32_t start(struct cep *self, struct genai_error *err)
{
	bool ours = !getenv(QUEUES) && !setenv(QUEUES, MOST_QUEUES, 0);
	int32_t rc = pick_device(self, err);

	if (!rc) {
		cep_ledger_open(self);
		rc = bring_up(self, err);
		cep_ledger_settle(self);
	}
	if (ours)
		unsetenv(QUEUES);
	return rc;
}

int32_t cep_device_open(struct cep *self, struct genai_error *err)
{
	size_t free_bytes = 0, total = 0;
	int32_t rc = start(self, err);
	CUresult r;

	if (rc)
		return rc;
	r = CU(self, cuMemGetInfo)(&free_bytes, &total);
	if (r)
		return cep_cuda_fail(self, err, r,
				     "cannot ask for free memory");
	self->total_bytes = total;
	self->free_before = free_bytes + cep_charged(self, NULL);
	return 0;
}

void cep_device_close(struct cep *self)
{
	if (!self->retained)
		return;
	cep_enter(self);
	// first what may still be queued, then what it writes
	if (self->service) {
		(void)self->drv.cuStreamSynchronize(self->service);
		(void)self->drv.cuStreamDestroy(self->service);
	}
	if (self->fault_lock)
		(void)self->drv.cuMemFree(self->fault_lock);
	if (self->fault)
		(void)self->drv.cuMemFreeHost(self->fault);
	(void)self->drv.cuCtxSetCurrent(NULL);
	(void)self->drv.cuDevicePrimaryCtxRelease(self->dev);
	self->retained = false;
}
