/* fake_cuda.c - a driver library without a GPU, for tests.
 * Owns: memory, streams, events and captures with the driver's rules; kernels
 * run as host code (emu.cpp).  Work is queued and done later, when somebody
 * asks, in an order that a seed picks among the legal ones.  Every call can be
 * made to fail.  One lock around everything. */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "tests/cuda/fake_cuda.h"

const void *emu_find(const char *name);
unsigned int emu_bytes(const void *kernel);
void emu_launch(const void *kernel, const void *params,
		const unsigned int grid[3], unsigned int threads);

#define GRANULE ((size_t)2 << 20)

enum op_kind { OP_KERNEL, OP_COPY, OP_SET, OP_HOST, OP_RECORD, OP_WAIT, OP_GRAPH };

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

struct block {
	char *p;
	size_t bytes;
	int kind; /* 0 device 1 pinned 2 registered 3 reserved 4 physical */
	struct block *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *streams;
static struct block *blocks;
static uint64_t alive, calls, fail_at, seed, total_bytes = 1u << 30;
static uint64_t used_bytes, name_at;
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
	return alive;
}

void fake_total_bytes(uint64_t bytes)
{
	total_bytes = bytes;
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
static CUresult enter(const char *name)
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

static CUresult leave(CUresult r)
{
	pthread_mutex_unlock(&lock);
	return r;
}

#define ENTER()                                                                \
	CUresult r = enter(__func__);                                          \
	if (r)                                                                 \
	return leave(r)

/* Calls that may not happen while a capture is open. */
static CUresult not_capturing(void)
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
	return s->head && (s->head->kind != OP_WAIT ||
			   s->head->event->reached >= s->head->gen);
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
	pick->head = o->next;
	if (!pick->head)
		pick->tail = NULL;
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
	return leave(n_devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
}

CUresult cuDriverGetVersion(int *v)
{
	ENTER();
	*v = 13000;
	return leave(r);
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
	return leave(r);
}

CUresult cuDeviceGet(CUdevice *d, int i)
{
	ENTER();
	*d = i;
	return leave(i < n_devices ? r : CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuDeviceGetName(char *name, int len, CUdevice d)
{
	(void)d;
	ENTER();
	snprintf(name, (size_t)len, "fake");
	return leave(r);
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
	return leave(r);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice d)
{
	(void)d;
	ENTER();
	*bytes = total_bytes;
	return leave(r);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d)
{
	(void)d;
	ENTER();
	*c = (CUcontext)&lock;
	alive++;
	return leave(r);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d)
{
	(void)d;
	ENTER();
	alive--;
	return leave(r);
}

CUresult cuCtxSetCurrent(CUcontext c)
{
	(void)c;
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	ENTER();
	*free_bytes = total_bytes - used_bytes;
	*total = total_bytes;
	return leave(r);
}

/* ---- memory ---- */

static void *block_add(void *p, size_t bytes, int kind)
{
	struct block *b = malloc(sizeof(*b));

	*b = (struct block){p, bytes, kind, blocks};
	blocks = b;
	alive++;
	if (kind == 0 || kind == 4)
		used_bytes += bytes;
	return p;
}

static struct block *block_take(const void *p, int kind)
{
	for (struct block **b = &blocks; *b; b = &(*b)->next) {
		struct block *x = *b;

		if (x->p != p || x->kind != kind)
			continue;
		*b = x->next;
		alive--;
		if (kind == 0 || kind == 4)
			used_bytes -= x->bytes;
		return x;
	}
	return NULL;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	void *p;

	ENTER();
	r = not_capturing();
	if (r || bytes > total_bytes - used_bytes)
		return leave(r ? r : CUDA_ERROR_OUT_OF_MEMORY);
	p = aligned_alloc(256, (bytes + 255) / 256 * 256);
	memset(p, 0xa5, bytes);
	*out = (CUdeviceptr)(uintptr_t)block_add(p, bytes, 0);
	return leave(r);
}

CUresult cuMemFree_v2(CUdeviceptr p)
{
	struct block *b;

	ENTER();
	b = block_take((void *)(uintptr_t)p, 0);
	if (!b)
		return leave(CUDA_ERROR_INVALID_VALUE);
	free(b->p);
	free(b);
	return leave(r);
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	void *p;

	(void)flags;
	ENTER();
	r = not_capturing();
	if (r)
		return leave(r);
	p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	*out = block_add(p, bytes, 1);
	return leave(r);
}

CUresult cuMemFreeHost(void *p)
{
	struct block *b;

	ENTER();
	b = block_take(p, 1);
	if (!b)
		return leave(CUDA_ERROR_INVALID_VALUE);
	free(b->p);
	free(b);
	return leave(r);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p,
				      unsigned int flags)
{
	(void)flags;
	ENTER();
	*out = (CUdeviceptr)(uintptr_t)p;
	return leave(r);
}

CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
	(void)flags;
	ENTER();
	r = not_capturing();
	if (!r)
		block_add(p, bytes, 2);
	return leave(r);
}

CUresult cuMemHostUnregister(void *p)
{
	struct block *b;

	ENTER();
	b = block_take(p, 2);
	free(b);
	return leave(b ? r : CUDA_ERROR_INVALID_VALUE);
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
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	*out = (CUdeviceptr)(uintptr_t)block_add(p, bytes, 3);
	return leave(r);
}

CUresult cuMemAddressFree(CUdeviceptr p, size_t bytes)
{
	struct block *b;

	ENTER();
	b = block_take((void *)(uintptr_t)p, 3);
	if (!b)
		return leave(CUDA_ERROR_INVALID_VALUE);
	munmap(b->p, bytes);
	free(b);
	return leave(r);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t bytes,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	(void)prop;
	(void)flags;
	ENTER();
	if (bytes > total_bytes - used_bytes)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	*h = (CUmemGenericAllocationHandle)(uintptr_t)block_add(malloc(1),
								bytes, 4);
	return leave(r);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle h)
{
	struct block *b;

	ENTER();
	b = block_take((void *)(uintptr_t)h, 4);
	if (!b)
		return leave(CUDA_ERROR_INVALID_VALUE);
	free(b->p);
	free(b);
	return leave(r);
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
	return leave(r);
}

CUresult cuMemUnmap(CUdeviceptr p, size_t bytes)
{
	ENTER();
	mprotect((void *)(uintptr_t)p, bytes, PROT_NONE);
	madvise((void *)(uintptr_t)p, bytes, MADV_DONTNEED);
	return leave(r);
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t bytes,
			const CUmemAccessDesc *desc, size_t n)
{
	(void)desc;
	(void)n;
	ENTER();
	mprotect((void *)(uintptr_t)p, bytes, PROT_READ | PROT_WRITE);
	memset((void *)(uintptr_t)p, 0xa5, bytes);
	return leave(r);
}

CUresult cuMemGetAllocationGranularity(size_t *out,
				       const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags opt)
{
	(void)prop;
	(void)opt;
	ENTER();
	*out = GRANULE;
	return leave(r);
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
	return leave(copy((void *)(uintptr_t)dst, src, n, s));
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
	ENTER();
	return leave(copy(dst, (void *)(uintptr_t)src, n, s));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n,
			      CUstream s)
{
	ENTER();
	return leave(copy((void *)(uintptr_t)dst, (void *)(uintptr_t)src, n, s));
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char v, size_t n, CUstream s)
{
	struct op *o;

	ENTER();
	o = op_new(OP_SET);
	o->dst = (void *)(uintptr_t)dst;
	o->byte = v;
	o->bytes = n;
	return leave(enqueue(s, o));
}

CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	(void)flags;
	ENTER();
	*out = calloc(1, sizeof(**out));
	(*out)->next = streams;
	streams = *out;
	alive++;
	return leave(r);
}

CUresult cuStreamDestroy_v2(CUstream s)
{
	ENTER();
	while (s->head && progress())
		;
	for (struct CUstream_st **p = &streams; *p; p = &(*p)->next)
		if (*p == s) {
			*p = s->next;
			break;
		}
	free(s->at.v);
	free(s);
	alive--;
	return leave(r);
}

CUresult cuStreamQuery(CUstream s)
{
	ENTER();
	if (s->capture) {
		spoilt = true;
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	advance();
	return leave(s->head ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

CUresult cuStreamSynchronize(CUstream s)
{
	ENTER();
	if (s->capture) {
		spoilt = true;
		return leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	while (s->head && progress())
		;
	return leave(r);
}

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	(void)flags;
	ENTER();
	*out = calloc(1, sizeof(**out));
	alive++;
	return leave(r);
}

CUresult cuEventDestroy_v2(CUevent e)
{
	ENTER();
	while (e->reached < e->recorded && progress())
		;
	free(e->at.v);
	free(e);
	alive--;
	return leave(r);
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
		return leave(r);
	}
	e->capture = NULL;
	o = op_new(OP_RECORD);
	o->event = e;
	o->gen = ++e->recorded;
	return leave(enqueue(s, o));
}

CUresult cuEventQuery(CUevent e)
{
	ENTER();
	if (e->capture) {
		spoilt = true;
		return leave(CUDA_ERROR_CAPTURED_EVENT);
	}
	advance();
	return leave(e->reached >= e->recorded ? CUDA_SUCCESS
					       : CUDA_ERROR_NOT_READY);
}

CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned int flags)
{
	struct op *o;

	(void)flags;
	ENTER();
	if (e->capture) {
		if (!capturing || e->capture != capturing->capture)
			return leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
		if (!s->capture) { /* the stream joins */
			s->capture = e->capture;
			s->origin = capturing;
		}
		for (uint32_t i = 0; i < e->at.n; i++)
			set_add(&s->at, e->at.v[i]);
		return leave(r);
	}
	if (s->capture) {
		spoilt = true;
		return leave(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	}
	o = op_new(OP_WAIT);
	o->event = e;
	o->gen = e->recorded;
	return leave(enqueue(s, o));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **args,
			  void **extra)
{
	struct op *o;

	(void)extra;
	ENTER();
	if (!c->gridDimX || !c->gridDimY || !c->gridDimZ || !c->blockDimX ||
	    c->blockDimX > 1024 || c->gridDimY > 65535 ||
	    c->gridDimZ > 65535 || c->sharedMemBytes > 227u << 10)
		return leave(CUDA_ERROR_INVALID_VALUE);
	o = op_new(OP_KERNEL);
	o->kernel = f;
	o->params = malloc(emu_bytes(f));
	memcpy(o->params, args[0], emu_bytes(f));
	o->grid[0] = c->gridDimX;
	o->grid[1] = c->gridDimY;
	o->grid[2] = c->gridDimZ;
	o->threads = c->blockDimX;
	return leave(enqueue(c->hStream, o));
}

CUresult cuLaunchHostFunc(CUstream s, CUhostFn fn, void *data)
{
	struct op *o;

	ENTER();
	o = op_new(OP_HOST);
	o->fn = fn;
	o->data = data;
	return leave(enqueue(s, o));
}

/* ---- captures ---- */

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
	(void)mode;
	ENTER();
	if (s->capture)
		return leave(CUDA_ERROR_ILLEGAL_STATE);
	s->capture = calloc(1, sizeof(*s->capture));
	s->origin = s;
	capturing = s;
	spoilt = false;
	alive++;
	return leave(r);
}

static void graph_free(struct CUgraph_st *g)
{
	for (uint32_t i = 0; i < g->n; i++)
		op_free(g->nodes[i]);
	free(g->nodes);
	free(g);
	alive--;
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
	struct CUgraph_st *g = s->capture;
	CUresult end = CUDA_SUCCESS, r = enter(__func__);

	*out = NULL;
	if (!g)
		return leave(CUDA_ERROR_ILLEGAL_STATE);
	for (struct CUstream_st *o = streams; o; o = o->next) {
		if (o->capture != g)
			continue;
		/* joined back: every last node is an ancestor of the origin's */
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
	return leave(end);
}

CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *st)
{
	ENTER();
	*st = s->capture ? (spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
				   : CU_STREAM_CAPTURE_STATUS_ACTIVE)
			 : CU_STREAM_CAPTURE_STATUS_NONE;
	return leave(r);
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
	alive += 2;
	return leave(r);
}

CUresult cuGraphUpload(CUgraphExec e, CUstream s)
{
	(void)e;
	(void)s;
	ENTER();
	return leave(r);
}

CUresult cuGraphLaunch(CUgraphExec e, CUstream s)
{
	struct op *o;

	ENTER();
	o = op_new(OP_GRAPH);
	o->exec = e;
	return leave(enqueue(s, o));
}

CUresult cuGraphExecDestroy(CUgraphExec e)
{
	ENTER();
	while (progress())
		;
	graph_free(e->graph);
	free(e);
	alive--;
	return leave(r);
}

CUresult cuGraphDestroy(CUgraph g)
{
	ENTER();
	graph_free(g);
	return leave(r);
}

/* ---- kernels ---- */

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
	(void)image;
	ENTER();
	*out = malloc(1);
	alive++;
	return leave(r);
}

CUresult cuModuleUnload(CUmodule m)
{
	ENTER();
	free(m);
	alive--;
	return leave(r);
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name)
{
	const void *k;

	(void)m;
	ENTER();
	k = emu_find(name);
	*out = (CUfunction)(uintptr_t)k;
	return leave(k ? r : CUDA_ERROR_NOT_FOUND);
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v)
{
	(void)f;
	(void)a;
	(void)v;
	ENTER();
	return leave(r);
}
