// ledger.c - what this process holds on each device.
// Owns: the bytes of all runtimes together, which device_limit bounds, and what
// the driver takes for itself (its context, the code of the kernels).
// The driver's own API cannot tell free memory before there is a context; the
// management library can.  Without it the context counts as nothing.
#include <dlfcn.h>
#include <string.h>

#include "modules/cuda_ep/cep.h"

#define DEVICES 64

struct cep_ledger {
	uint32_t users;
	uint64_t bytes; // given out, and the driver's own
	uint64_t own;	// the driver's own, as measured at the start
	uint64_t free_before;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cep_ledger ledgers[DEVICES];

// ---- the management library ----

struct nvml_memory {
	unsigned long long total, free, used;
};

// The library for real devices is brought up once and kept: each time it is,
// it leaves open files behind.
static struct nvml {
	bool asked, up;
	int (*find)(const char *bus, void **out_handle);
	int (*memory)(void *handle, struct nvml_memory *out);
} system_nvml;

static void nvml_open(struct nvml *n, void *lib)
{
	int (*init)(void) = NULL;
	const struct {
		const char *name;
		void *to;
	} syms[] = {
		{"nvmlInit_v2", &init},
		{"nvmlDeviceGetHandleByPciBusId_v2", &n->find},
		{"nvmlDeviceGetMemoryInfo", &n->memory},
	};

	n->asked = true;
	for (size_t i = 0; i < sizeof(syms) / sizeof(syms[0]); i++) {
		void *p = lib ? dlsym(lib, syms[i].name) : NULL;

		if (!p)
			return;
		memcpy(syms[i].to, &p, sizeof(p));
	}
	n->up = !init();
}

// Free bytes of the device by the management library; 0 if it cannot tell.
// Another driver library than the system's answers for itself.
static uint64_t free_now(struct cep *self)
{
	struct nvml own = {0}, *n = self->own_driver ? &own : &system_nvml;
	struct nvml_memory m = {0, 0, 0};
	void *handle;
	char bus[32];

	if (self->own_driver)
		nvml_open(n, self->drv.handle);
	else if (!n->asked)
		nvml_open(n, dlopen("libnvidia-ml.so.1",
				    RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
	if (!n->up ||
	    self->drv.cuDeviceGetPCIBusId(bus, sizeof(bus), self->dev) ||
	    n->find(bus, &handle) || n->memory(handle, &m))
		return 0;
	return m.free;
}

// ---- life ----

void cep_ledger_open(struct cep *self)
{
	struct cep_ledger *l;

	// until settled: a second runtime waits for the first one's figures
	pthread_mutex_lock(&lock);
	l = &ledgers[self->device < DEVICES ? self->device : DEVICES - 1];
	if (!l->users++) {
		memset(l, 0, sizeof(*l));
		l->users = 1;
		l->free_before = free_now(self);
	}
	self->ledger = l;
}

void cep_ledger_settle(struct cep *self)
{
	struct cep_ledger *l = self->ledger;
	uint64_t left = l->users == 1 && l->free_before ? free_now(self) : 0;

	if (left && left < l->free_before)
		l->own = l->free_before - left;
	if (l->users == 1)
		l->bytes = l->own;
	pthread_mutex_unlock(&lock);
}

void cep_ledger_close(struct cep *self)
{
	if (!self->ledger)
		return;
	pthread_mutex_lock(&lock);
	self->ledger->users--;
	pthread_mutex_unlock(&lock);
	self->ledger = NULL;
}

// ---- use ----

int32_t cep_charge(struct cep *self, uint64_t bytes, const char *tag,
		   struct genai_error *err)
{
	struct cep_ledger *l = self->ledger;
	uint64_t used;
	bool fits;

	pthread_mutex_lock(&lock);
	used = l->bytes;
	fits = bytes <= self->limit && used <= self->limit - bytes;
	if (fits)
		l->bytes += bytes;
	pthread_mutex_unlock(&lock);
	if (fits)
		return 0;
	return cep_fail(self, err, GENAI_E_LIMIT,
			"%s: %llu bytes do not fit: device_limit is %llu, this "
			"process uses %llu (%llu of it the driver's own)",
			tag ? tag : "memory", (unsigned long long)bytes,
			(unsigned long long)self->limit,
			(unsigned long long)used, (unsigned long long)l->own);
}

void cep_uncharge(struct cep *self, uint64_t bytes)
{
	pthread_mutex_lock(&lock);
	self->ledger->bytes -= bytes;
	pthread_mutex_unlock(&lock);
}

uint64_t cep_charged(struct cep *self, uint64_t *out_own)
{
	uint64_t used;

	pthread_mutex_lock(&lock);
	used = self->ledger->bytes;
	if (out_own)
		*out_own = self->ledger->own;
	pthread_mutex_unlock(&lock);
	return used;
}
