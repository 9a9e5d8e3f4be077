/* fake_cuda.c - a driver library without a GPU, for tests.
 * Owns: memory, streams, events and captures with the driver's rules; kernels
 * run as host code (emu.cpp).  Work is queued and done later, when somebody
 * asks, in an order that a seed picks among the legal ones.  Every call can be
 * made to fail.  One lock around everything. */
#include <cuda.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/fake_impl.h"

const void *emu_find(const char *name);
unsigned int emu_bytes(const void *kernel);
void emu_launch(const void *kernel, const void *params,
		const unsigned int grid[3], unsigned int threads);

enum op_kind {
	OP_KERNEL,
	OP_COPY,
	OP_SET,
	OP_HOST,
	OP_RECORD,
	OP_WAIT,
	OP_GRAPH
};

struct op {
	enum op_kind kind;
	const void *kernel;
	unsigned char *params;
	unsigned int grid[3], threads;
	void *dst;
	const void *src;
	size_t bytes;
	unsigned char byte;
	CUhostFn fn;
	void *data;
	int state; /* of fn, outside of graphs: 0 waits, 1 runs, 2 is done */
	struct CUevent_st *event;
	uint64_t gen;
	struct CUgraphExec_st *exec;
	/* in a graph: the nodes before it */
	uint32_t *deps;
	uint32_t n_deps;
	struct op *next;
};

struct set { /* of graph nodes */
	uint32_t *v, n;
};

struct CUgraph_st {
	struct op **nodes;
	uint32_t n, cap;
};

struct CUgraphExec_st {
	struct CUgraph_st *graph;
};

struct CUevent_st {
	uint64_t recorded, reached;
	struct CUgraph_st *capture; /* recorded inside it */
	struct set at;
};

struct CUstream_st {
	struct op *head, *tail;
	struct CUgraph_st *capture;
	struct CUstream_st *origin;
	struct set at; /* what the next node comes after */
	struct CUstream_st *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *streams;
static int contexts;
uint64_t fake_alive_count, fake_total = 1u << 30, fake_used;
static uint64_t calls, fail_at, seed, name_at;
static int fail_code, name_code, kernels_on = 1, n_devices = 1, cc[2] = {9, 0};
static char fail_name[64];
static bool spoilt; /* the open capture */
static struct CUstream_st *capturing;
static struct {
	const void *kernel;
	uint64_t n;
} launches[256];

void fake_fail(uint64_t n, int code)
{
	fail_at = n ? calls + n : 0;
	fail_code = code;
}

void fake_fail_in(const char *name, uint64_t n, int code)
{
	snprintf(fail_name, sizeof(fail_name), "%s", name ? name : "");
	name_at = n;
	name_code = code;
}

uint64_t fake_calls(void)
{
	return calls;
}

void fake_seed(uint64_t s)
{
	seed = s;
}

void fake_run_kernels(int on)
{
	kernels_on = on;
}

uint64_t fake_alive(void)
{
	return fake_alive_count;
}

void fake_total_bytes(uint64_t bytes)
{
	fake_total = bytes;
}

void fake_devices(int count, int major, int minor)
{
	n_devices = count;
	cc[0] = major;
	cc[1] = minor;
}

uint64_t fake_launches(const char *name)
{
	const void *k = emu_find(name);
	uint64_t n = 0;

	for (int i = 0; i < 256; i++)
		if (launches[i].kernel == k)
			n += launches[i].n;
	return n;
}

static uint32_t dice(uint32_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % n;
}

/* A driver that refuses to take something back cannot be helped by anybody. */
static bool gives_back(const char *name)
{
	return strstr(name, "Free") || strstr(name, "Destroy") ||
	       strstr(name, "Release") || strstr(name, "Unregister") ||
	       strstr(name, "Unmap") || strstr(name, "Unload");
}

/* Every entry: take the lock, count, fail if it is this call's turn. */
CUresult fake_enter(const char *name)
{
	pthread_mutex_lock(&lock);
	calls++;
	if (calls == fail_at && gives_back(name))
		fail_at++;
	else if (calls == fail_at)
		return (CUresult)fail_code;
	if (name_at && !strcmp(name, fail_name) && --name_at == 0)
		return (CUresult)name_code;
	return CUDA_SUCCESS;
}

CUresult fake_leave(CUresult r)
{
	pthread_mutex_unlock(&lock);
	return r;
}

/* Calls that may not happen while a capture is open. */
CUresult fake_not_capturing(void)
{
	if (!capturing)
		return CUDA_SUCCESS;
	spoilt = true;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* ---- execution ---- */

static void run_op(struct op *o);

static void run_graph(struct CUgraph_st *g)
{
	bool *done = calloc(g->n ? g->n : 1, 1);

	for (uint32_t left = g->n; left; left--) {
		uint32_t ready = 0, pick = 0;

		for (uint32_t i = 0; i < g->n; i++) {
			bool ok = !done[i];

			for (uint32_t d = 0; ok && d < g->nodes[i]->n_deps; d++)
				ok = done[g->nodes[i]->deps[d]];
			if (ok && (!ready++ || (seed && dice(ready) == 0)))
				pick = i;
		}
		done[pick] = true;
		run_op(g->nodes[pick]);
	}
	free(done);
}

static void count_launch(const void *kernel)
{
	int i = 0;

	while (launches[i].kernel && launches[i].kernel != kernel)
		i++;
	launches[i].kernel = kernel;
	launches[i].n++;
}

static void run_op(struct op *o)
{
	switch (o->kind) {
	case OP_KERNEL:
		count_launch(o->kernel);
		if (kernels_on)
			emu_launch(o->kernel, o->params, o->grid, o->threads);
		break;
	case OP_COPY:
		memmove(o->dst, o->src, o->bytes);
		break;
	case OP_SET:
		memset(o->dst, o->byte, o->bytes);
		break;
	case OP_HOST:
		pthread_mutex_unlock(&lock);
		o->fn(o->data);
		pthread_mutex_lock(&lock);
		break;
	case OP_RECORD:
		if (o->gen > o->event->reached)
			o->event->reached = o->gen;
		break;
	case OP_WAIT:
		break;
	case OP_GRAPH:
		run_graph(o->exec->graph);
		break;
	}
}

static void op_free(struct op *o)
{
	free(o->params);
	free(o->deps);
	free(o);
}

static bool can_run(const struct CUstream_st *s)
{
	if (!s->head || (s->head->kind == OP_HOST && s->head->state == 1))
		return false;
	return s->head->kind != OP_WAIT ||
	       s->head->event->reached >= s->head->gen;
}

/* Host functions have a thread of their own, so that one may hold up a stream
 * while callers go on. */
static void *host_thread(void *data)
{
	struct op *o = data;

	o->fn(o->data);
	pthread_mutex_lock(&lock);
	o->state = 2;
	pthread_mutex_unlock(&lock);
	return NULL;
}

static void host_start(struct op *o)
{
	pthread_t t;

	o->state = 1;
	if (pthread_create(&t, NULL, host_thread, o))
		abort();
	pthread_detach(t);
}

/* Let others in while something is under way. */
static void breathe(void)
{
	pthread_mutex_unlock(&lock);
	sched_yield();
	pthread_mutex_lock(&lock);
}

/* Run one queued unit of some stream; false when there is none. */
static bool progress(void)
{
	struct CUstream_st *pick = NULL;
	uint32_t n = 0;
	struct op *o;

	for (struct CUstream_st *s = streams; s; s = s->next)
		if (can_run(s) && (!n++ || (seed && dice(n) == 0)))
			pick = s;
	if (!pick)
		return false;
	o = pick->head;
	if (o->kind == OP_HOST && o->state == 0) {
		host_start(o);
		return true;
	}
	pick->head = o->next;
	if (!pick->head)
		pick->tail = NULL;
	if (o->kind != OP_HOST)
		run_op(o);
	op_free(o);
	return true;
}

/* Somebody asked: do a little, or everything when no seed wants it late. */
static void advance(void)
{
	uint32_t n = seed ? dice(4) : UINT32_MAX;

	while (n-- && progress())
		;
}

static uint32_t set_add(struct set *s, uint32_t v)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->v[i] == v)
			return 0;
	s->v = realloc(s->v, (s->n + 1) * sizeof(*s->v));
	s->v[s->n++] = v;
	return 1;
}

static CUresult enqueue(struct CUstream_st *s, struct op *o)
{
	struct CUgraph_st *g = s->capture;

	if (!g) {
		if (s->tail)
			s->tail->next = o;
		else
			s->head = o;
		s->tail = o;
		return CUDA_SUCCESS;
	}
	if (g->n == g->cap) {
		g->cap = g->cap ? g->cap * 2 : 64;
		g->nodes = realloc(g->nodes, g->cap * sizeof(*g->nodes));
	}
	o->deps = s->at.v;
	o->n_deps = s->at.n;
	s->at = (struct set){NULL, 0};
	set_add(&s->at, g->n);
	g->nodes[g->n++] = o;
	return CUDA_SUCCESS;
}

static struct op *op_new(enum op_kind kind)
{
	struct op *o = calloc(1, sizeof(*o));

	o->kind = kind;
	return o;
}

/* ---- device ---- */

CUresult cuInit(unsigned int flags)
{
	const char *s = getenv("FAKE_CUDA_SEED");

	(void)flags;
	ENTER();
	if (s && !seed)
		seed = strtoull(s, NULL, 10);
	return fake_leave(n_devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
}

CUresult cuDriverGetVersion(int *v)
{
	ENTER();
	*v = 13000;
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
	(void)e;
	*s = "from the fake driver";
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

CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d)
{
	(void)d;
	ENTER();
	*v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR	 ? cc[0]
	     : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? cc[1]
	     : a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT	 ? 4
	     : a == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
		     ? 227 << 10
		     : 1;
	return fake_leave(r);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice d)
{
	(void)d;
	ENTER();
	*bytes = fake_total;
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
	if (!contexts++)
		fake_used += FAKE_CONTEXT_BYTES;
	return fake_leave(r);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d)
{
	(void)d;
	ENTER();
	fake_alive_count--;
	if (!--contexts)
		fake_used -= FAKE_CONTEXT_BYTES;
	return fake_leave(r);
}

CUresult cuCtxSetCurrent(CUcontext c)
{
	(void)c;
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	ENTER();
	*free_bytes = fake_total - fake_used;
	*total = fake_total;
	return fake_leave(r);
}

/* ---- the management library, which needs no context ---- */

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

/* ---- streams ---- */

static CUresult copy(void *dst, const void *src, size_t bytes, CUstream s)
{
	struct op *o = op_new(OP_COPY);

	o->dst = dst;
	o->src = src;
	o->bytes = bytes;
	return enqueue(s, o);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n,
			      CUstream s)
{
	ENTER();
	return fake_leave(copy((void *)(uintptr_t)dst, src, n, s));
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
	ENTER();
	return fake_leave(copy(dst, (void *)(uintptr_t)src, n, s));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n,
			      CUstream s)
{
	ENTER();
	return fake_leave(
		copy((void *)(uintptr_t)dst, (void *)(uintptr_t)src, n, s));
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char v, size_t n, CUstream s)
{
	struct op *o;

	ENTER();
	o = op_new(OP_SET);
	o->dst = (void *)(uintptr_t)dst;
	o->byte = v;
	o->bytes = n;
	return fake_leave(enqueue(s, o));
}

CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	(void)flags;
	ENTER();
	*out = calloc(1, sizeof(**out));
	(*out)->next = streams;
	streams = *out;
	fake_alive_count++;
	return fake_leave(r);
}

CUresult cuStreamDestroy_v2(CUstream s)
{
	ENTER();
	while (s->head)
		if (!progress())
			breathe();
	for (struct CUstream_st **p = &streams; *p; p = &(*p)->next)
		if (*p == s) {
			*p = s->next;
			break;
		}
	free(s->at.v);
	free(s);
	fake_alive_count--;
	return fake_leave(r);
}

CUresult cuStreamQuery(CUstream s)
{
	ENTER();
	if (s->capture) {
		spoilt = true;
		return fake_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	advance();
	return fake_leave(s->head ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

CUresult cuStreamSynchronize(CUstream s)
{
	ENTER();
	if (s->capture) {
		spoilt = true;
		return fake_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	while (s->head)
		if (!progress())
			breathe();
	return fake_leave(r);
}

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	(void)flags;
	ENTER();
	*out = calloc(1, sizeof(**out));
	fake_alive_count++;
	return fake_leave(r);
}

CUresult cuEventDestroy_v2(CUevent e)
{
	ENTER();
	while (e->reached < e->recorded)
		if (!progress())
			breathe();
	free(e->at.v);
	free(e);
	fake_alive_count--;
	return fake_leave(r);
}

CUresult cuEventRecord(CUevent e, CUstream s)
{
	struct op *o;

	ENTER();
	if (s->capture) {
		free(e->at.v);
		e->at = (struct set){NULL, 0};
		for (uint32_t i = 0; i < s->at.n; i++)
			set_add(&e->at, s->at.v[i]);
		e->capture = s->capture;
		return fake_leave(r);
	}
	e->capture = NULL;
	o = op_new(OP_RECORD);
	o->event = e;
	o->gen = ++e->recorded;
	return fake_leave(enqueue(s, o));
}

CUresult cuEventQuery(CUevent e)
{
	ENTER();
	if (e->capture) {
		spoilt = true;
		return fake_leave(CUDA_ERROR_CAPTURED_EVENT);
	}
	advance();
	return fake_leave(e->reached >= e->recorded ? CUDA_SUCCESS
						    : CUDA_ERROR_NOT_READY);
}

CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned int flags)
{
	struct op *o;

	(void)flags;
	ENTER();
	if (e->capture) {
		if (!capturing || e->capture != capturing->capture)
			return fake_leave(
				CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
		if (!s->capture) { /* the stream joins */
			s->capture = e->capture;
			s->origin = capturing;
		}
		for (uint32_t i = 0; i < e->at.n; i++)
			set_add(&s->at, e->at.v[i]);
		return fake_leave(r);
	}
	if (s->capture) {
		spoilt = true;
		return fake_leave(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	}
	o = op_new(OP_WAIT);
	o->event = e;
	o->gen = e->recorded;
	return fake_leave(enqueue(s, o));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **args,
			  void **extra)
{
	struct op *o;

	(void)extra;
	ENTER();
	if (!c->gridDimX || !c->gridDimY || !c->gridDimZ || !c->blockDimX ||
	    c->blockDimX > 1024 || c->gridDimY > 65535 || c->gridDimZ > 65535 ||
	    c->sharedMemBytes > 227u << 10)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	o = op_new(OP_KERNEL);
	o->kernel = f;
	o->params = malloc(emu_bytes(f));
	memcpy(o->params, args[0], emu_bytes(f));
	o->grid[0] = c->gridDimX;
	o->grid[1] = c->gridDimY;
	o->grid[2] = c->gridDimZ;
	o->threads = c->blockDimX;
	return fake_leave(enqueue(c->hStream, o));
}

CUresult cuLaunchHostFunc(CUstream s, CUhostFn fn, void *data)
{
	struct op *o;

	ENTER();
	o = op_new(OP_HOST);
	o->fn = fn;
	o->data = data;
	return fake_leave(enqueue(s, o));
}

/* ---- captures ---- */

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
	(void)mode;
	ENTER();
	if (s->capture)
		return fake_leave(CUDA_ERROR_ILLEGAL_STATE);
	s->capture = calloc(1, sizeof(*s->capture));
	s->origin = s;
	capturing = s;
	spoilt = false;
	fake_alive_count++;
	return fake_leave(r);
}

static void graph_free(struct CUgraph_st *g)
{
	for (uint32_t i = 0; i < g->n; i++)
		op_free(g->nodes[i]);
	free(g->nodes);
	free(g);
	fake_alive_count--;
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
	struct CUgraph_st *g = s->capture;
	CUresult end = CUDA_SUCCESS, r = fake_enter(__func__);

	*out = NULL;
	if (!g)
		return fake_leave(CUDA_ERROR_ILLEGAL_STATE);
	for (struct CUstream_st *o = streams; o; o = o->next) {
		if (o->capture != g)
			continue;
		/* joined back: every last node is an ancestor of the origin's
		 */
		for (uint32_t i = 0; o != s && i < o->at.n; i++) {
			bool *seen = calloc(g->n + 1, 1);

			for (uint32_t k = 0; k < s->at.n; k++)
				seen[s->at.v[k]] = true;
			for (uint32_t k = g->n; k-- > 0;)
				for (uint32_t d = 0;
				     seen[k] && d < g->nodes[k]->n_deps; d++)
					seen[g->nodes[k]->deps[d]] = true;
			if (!seen[o->at.v[i]])
				end = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
			free(seen);
		}
		o->capture = NULL;
		free(o->at.v);
		o->at = (struct set){NULL, 0};
	}
	capturing = NULL;
	if (spoilt)
		end = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (r)
		end = r;
	if (end)
		graph_free(g);
	else
		*out = g;
	return fake_leave(end);
}

CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *st)
{
	ENTER();
	*st = s->capture ? (spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
				   : CU_STREAM_CAPTURE_STATUS_ACTIVE)
			 : CU_STREAM_CAPTURE_STATUS_NONE;
	return fake_leave(r);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g,
				     unsigned long long flags)
{
	struct CUgraph_st *c;

	(void)flags;
	ENTER();
	c = calloc(1, sizeof(*c));
	c->nodes = calloc(g->n + 1, sizeof(*c->nodes));
	for (c->n = 0; c->n < g->n; c->n++) {
		const struct op *from = g->nodes[c->n];
		struct op *o = malloc(sizeof(*o));

		*o = *from;
		o->deps = malloc((o->n_deps + 1) * sizeof(*o->deps));
		if (o->n_deps)
			memcpy(o->deps, from->deps,
			       o->n_deps * sizeof(*o->deps));
		if (from->params) {
			uint32_t bytes = emu_bytes(from->kernel);

			o->params = malloc(bytes);
			memcpy(o->params, from->params, bytes);
		}
		c->nodes[c->n] = o;
	}
	*out = calloc(1, sizeof(**out));
	(*out)->graph = c;
	fake_alive_count += 2;
	return fake_leave(r);
}

CUresult cuGraphUpload(CUgraphExec e, CUstream s)
{
	(void)e;
	(void)s;
	ENTER();
	return fake_leave(r);
}

CUresult cuGraphLaunch(CUgraphExec e, CUstream s)
{
	struct op *o;

	ENTER();
	o = op_new(OP_GRAPH);
	o->exec = e;
	return fake_leave(enqueue(s, o));
}

CUresult cuGraphExecDestroy(CUgraphExec e)
{
	ENTER();
	while (progress())
		;
	graph_free(e->graph);
	free(e);
	fake_alive_count--;
	return fake_leave(r);
}

CUresult cuGraphDestroy(CUgraph g)
{
	ENTER();
	graph_free(g);
	return fake_leave(r);
}

/* ---- kernels ---- */

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	(void)image;
	ENTER();
	*out = malloc(1);
	fake_alive_count++;
	return fake_leave(r);
}

CUresult cuModuleUnload(CUmodule m)
{
	ENTER();
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

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v)
{
	(void)f;
	(void)a;
	(void)v;
	ENTER();
	return fake_leave(r);
}
