// fake_cuda.c - a driver library without a GPU, for tests: the calls that every
// other file counts on, the machine that it poses as, and failures.
// One lock around everything.  fake_queue.c runs work, kernels as host code
// (emu.cpp); fake_order.c checks that every access is ordered.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/cuda/fake_impl.h"

#define COUNTED 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int inside;
uint64_t fake_alive_count, fake_total = 1u << 30, fake_used, fake_most;
int fake_contexts;
int fake_cc[2] = {9, 0}, fake_driver = 13000, fake_kernels_on = 1;
static int n_devices = 1;

static struct {
	uint64_t calls, fail_at, on_at, name_at, break_at;
	int fail_code, on_code, name_code, break_code, dead;
	char name[64];
	const char *failed;
	uint64_t seed, copy_ns;
	uint64_t drop[FAKE_EDGES], edges[FAKE_EDGES];
	bool redundant;
} f;

static struct {
	const char *name;
	uint64_t n;
} counts[COUNTED];

// ---- controls ----

void fake_reset(void)
{
	memset(&f, 0, sizeof(f));
	memset(counts, 0, sizeof(counts));
	n_devices = 1;
	fake_cc[0] = 9;
	fake_cc[1] = 0;
	fake_driver = 13000;
	fake_kernels_on = 1;
	fake_total = 1u << 30;
	fake_most = fake_used;
	fake_any_image(0);
}

void fake_fail(uint64_t n, int code)
{
	f.fail_at = n ? f.calls + n : 0;
	f.fail_code = code;
	f.failed = NULL;
}

void fake_fail_on(uint64_t n, int code)
{
	f.on_at = n ? f.calls + n : 0;
	f.on_code = code;
	f.failed = NULL;
	if (!n)
		f.dead = 0;
}

void fake_fail_in(const char *name, uint64_t n, int code)
{
	snprintf(f.name, sizeof(f.name), "%s", name ? name : "");
	f.name_at = n;
	f.name_code = code;
	f.failed = NULL;
}

const char *fake_failed(void)
{
	return f.failed;
}

void fake_break(uint64_t n, int code)
{
	f.break_at = n;
	f.break_code = code;
}

void fake_drop(int edge, uint64_t n)
{
	memset(f.drop, 0, sizeof(f.drop));
	memset(f.edges, 0, sizeof(f.edges));
	f.drop[edge] = n;
	f.redundant = false;
}

uint64_t fake_edges(int edge)
{
	return f.edges[edge];
}

int fake_was_redundant(void)
{
	return f.redundant;
}

uint64_t fake_peak(void)
{
	return fake_most;
}

uint64_t fake_calls(void)
{
	return f.calls;
}

// cuda.h adds to some names.
static bool is_called(const char *name, const char *plain)
{
	size_t n = strlen(plain);

	return n && !strncmp(name, plain, n) &&
	       (!name[n] || !strcmp(name + n, "_v2") ||
		!strcmp(name + n, "WithFlags"));
}

uint64_t fake_count(const char *name)
{
	for (int i = 0; i < COUNTED && counts[i].name; i++)
		if (is_called(counts[i].name, name))
			return counts[i].n;
	return 0;
}

int fake_inside(void)
{
	return inside;
}

void fake_seed(uint64_t s)
{
	f.seed = s;
}

void fake_run_kernels(int on)
{
	fake_kernels_on = on;
}

uint64_t fake_alive(void)
{
	return fake_alive_count;
}

void fake_total_bytes(uint64_t bytes)
{
	fake_total = bytes;
}

void fake_copy_ns(uint64_t ns)
{
	f.copy_ns = ns;
}

void fake_devices(int count, int major, int minor)
{
	n_devices = count;
	fake_cc[0] = major;
	fake_cc[1] = minor;
}

void fake_version(int version)
{
	fake_driver = version;
}

// ---- what the other files ask ----

uint32_t fake_dice(uint32_t n)
{
	if (!f.seed || fake_is_late())
		return 0;
	f.seed = f.seed * 6364136223846793005u + 1442695040888963407u;
	f.seed += !f.seed || f.seed == FAKE_LATE;
	return (uint32_t)(f.seed >> 33) % n;
}

bool fake_is_seeded(void)
{
	return f.seed != 0;
}

bool fake_is_late(void)
{
	return f.seed == FAKE_LATE;
}

bool fake_drops(enum fake_edge edge, bool is_new)
{
	if (++f.edges[edge] != f.drop[edge])
		return false;
	f.redundant = !is_new;
	return true;
}

void fake_drop_matters(void)
{
	f.redundant = false;
}

void fake_die(int code)
{
	if (!f.dead)
		f.dead = code;
}

CUresult fake_dead(void)
{
	return (CUresult)f.dead;
}

bool fake_breaks(void)
{
	if (!f.break_at || --f.break_at)
		return false;
	fake_die(f.break_code);
	return true;
}

void fake_copy_takes(void)
{
	struct timespec ts = {(time_t)(f.copy_ns / 1000000000),
			      (long)(f.copy_ns % 1000000000)};

	if (f.copy_ns)
		nanosleep(&ts, NULL);
}

// ---- entries ----

static bool gives_back(const char *name)
{
	return strstr(name, "Free") || strstr(name, "Destroy") ||
	       strstr(name, "Release") || strstr(name, "Unregister") ||
	       strstr(name, "Unmap") || strstr(name, "Unload");
}

// Whether something is done: that needs no memory.
static bool asks(const char *name)
{
	return strstr(name, "Query") || strstr(name, "Synchronize");
}

static void count(const char *name)
{
	int i = 0;

	while (i < COUNTED - 1 && counts[i].name && counts[i].name != name)
		i++;
	counts[i].name = name;
	counts[i].n++;
}

CUresult fake_enter(const char *name)
{
	bool back = gives_back(name);
	int code = 0;

	pthread_mutex_lock(&lock);
	inside++;
	f.calls++;
	count(name);
	if (f.calls == f.fail_at && back)
		f.fail_at++;
	else if (f.calls == f.fail_at)
		code = f.fail_code;
	if (f.on_at && f.calls >= f.on_at) {
		if (f.on_code != CUDA_ERROR_OUT_OF_MEMORY)
			fake_die(f.on_code);
		if (f.dead || !(back || asks(name)))
			code = f.on_code;
	}
	if (f.name_at && is_called(name, f.name) &&
	    (f.name_at == FAKE_ALWAYS || --f.name_at == 0))
		code = f.name_code;
	if (code && !f.failed)
		f.failed = name;
	return (CUresult)(code ? code : f.dead);
}

void fake_pause(void)
{
	inside--;
	pthread_mutex_unlock(&lock);
}

void fake_resume(void)
{
	pthread_mutex_lock(&lock);
	inside++;
}

void fake_breathe(void)
{
	fake_pause();
	sched_yield();
	fake_resume();
}

CUresult fake_leave(CUresult r)
{
	fake_pause();
	return r;
}

// ---- device ----

CUresult cuInit(unsigned int flags)
{
	const char *s = getenv("FAKE_CUDA_SEED"), *cc = getenv("FAKE_CUDA_CC");

	(void)flags;
	ENTER();
	fake_queues_open();
	if (s && !f.seed)
		f.seed = strtoull(s, NULL, 10);
	if (cc) {
		fake_any_image(1);
		sscanf(cc, "%d.%d", &fake_cc[0], &fake_cc[1]);
	}
	return fake_leave(n_devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
}

CUresult cuDriverGetVersion(int *v)
{
	ENTER();
	*v = fake_driver;
	return fake_leave(r);
}

CUresult cuGetErrorName(CUresult e, const char **s)
{
	static char text[32];

	snprintf(text, sizeof(text), "CUDA_ERROR_%d", (int)e);
	*s = text;
	return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult e, const char **s)
{
	*s = e == CUDA_ERROR_ASSERT && fake_races() ? fake_race()
						    : "from the fake driver";
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *n)
{
	ENTER();
	*n = n_devices;
	return fake_leave(r);
}

CUresult cuDeviceGet(CUdevice *d, int i)
{
	ENTER();
	*d = i;
	return fake_leave(i < n_devices ? r : CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuDeviceGetName(char *name, int len, CUdevice d)
{
	(void)d;
	ENTER();
	snprintf(name, (size_t)len, "fake");
	return fake_leave(r);
}

CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice d)
{
	ENTER();
	snprintf(id, (size_t)bytes, "0000:%02x:00.0", (unsigned)d);
	return fake_leave(r);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d)
{
	(void)d;
	ENTER();
	*c = (CUcontext)&lock;
	fake_alive_count++;
	if (!fake_contexts++)
		fake_use(FAKE_CONTEXT_BYTES);
	return fake_leave(r);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d)
{
	(void)d;
	ENTER_BACK();
	fake_alive_count--;
	if (!--fake_contexts)
		fake_used -= FAKE_CONTEXT_BYTES;
	return fake_leave(r);
}

CUresult cuCtxSetCurrent(CUcontext c)
{
	(void)c;
	fake_resume();
	count(__func__);
	return fake_leave(CUDA_SUCCESS);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	ENTER();
	*free_bytes = fake_total - fake_used;
	*total = fake_total;
	return fake_leave(r);
}

// ---- the management library, which needs no context ----

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3]);

int nvmlInit_v2(void)
{
	return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out)
{
	*out = &fake_total;
	return strncmp(bus, "0000:", 5) ? 6 : 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long out[3])
{
	(void)device;
	pthread_mutex_lock(&lock);
	out[0] = fake_total;
	out[1] = fake_total - fake_used;
	out[2] = fake_used;
	pthread_mutex_unlock(&lock);
	return 0;
}
