// fake_queue.c - streams and events of the fake driver.  Work is queued and
// done later, when somebody asks, in an order that a seed picks among the legal
// ones; or, when it is to be late, no sooner than somebody needs it.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/cuda/fake_impl.h"

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

const void *emu_find(const char *name);
unsigned int emu_bytes(const void *kernel);
void emu_launch(const void *kernel, const void *params,
		const unsigned int grid[3], unsigned int threads,
		bool overlaps);

struct CUstream_st *fake_streams;

// A device has few work queues, which streams share in turn: what stands at the
// head of one, waiting, holds up what other streams have put behind it.
static uint32_t n_queues = 8, n_made;
static uint64_t n_turns;

static struct {
	const void *kernel;
	uint64_t n;
} launches[256];

uint64_t fake_launches(const char *name)
{
	const void *k = emu_find(name);
	uint64_t n = 0;

	for (int i = 0; i < 256; i++)
		if (launches[i].kernel == k)
			n += launches[i].n;
	return n;
}

void fake_queues_open(void)
{
	const char *v = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
	int n = v ? atoi(v) : 0;

	n_queues = n < 1 ? 8 : n > 32 ? 32 : (uint32_t)n;
}

// ---- units ----

struct op *fake_op(enum op_kind kind)
{
	struct op *o = calloc(1, sizeof(*o));

	o->kind = kind;
	return o;
}

void fake_op_free(struct op *o)
{
	free(o->params);
	free(o->deps);
	free(o->done);
	free(o->clock);
	free(o->before);
	free(o);
}

static struct clock *clock_copy(const struct clock *c)
{
	struct clock *n = malloc(sizeof(*n));

	*n = *c;
	return n;
}

// Give the unit its place: after everything of its stream and after what the
// host knows to be done.
static void place(struct CUstream_st *s, struct op *o)
{
	fake_join(&s->clock, &fake_host);
	if (o->kind == OP_KERNEL && !o->overlaps)
		s->chain = s->clock;
	else if (o->kind == OP_KERNEL)
		fake_join(&s->chain, &fake_host);
	if (o->kind == OP_KERNEL && o->overlaps)
		o->before = clock_copy(&s->chain);
	o->line = s->line;
	o->at = s->clock.at[s->line] = fake_tick(s->line, 1);
	o->clock = clock_copy(&s->clock);
	if (o->kind != OP_KERNEL && o->kind != OP_WAIT && o->kind != OP_RECORD)
		s->chain = s->clock;
}

CUresult fake_enqueue(struct CUstream_st *s, struct op *o)
{
	if (s->capture) {
		fake_node_add(s, o);
		return CUDA_SUCCESS;
	}
	place(s, o);
	o->turn = ++n_turns;
	if (s->tail)
		s->tail->next = o;
	else
		s->head = o;
	s->tail = o;
	return CUDA_SUCCESS;
}

// ---- execution ----

static void count_launch(const void *kernel)
{
	int i = 0;

	while (launches[i].kernel && launches[i].kernel != kernel)
		i++;
	launches[i].kernel = kernel;
	launches[i].n++;
}

static void run_kernel(const struct op *o)
{
	count_launch(o->kernel);
	if (!fake_kernels_on)
		return;
	fake_kernel_begin(o);
	emu_launch(o->kernel, o->params, o->grid, o->threads, o->overlaps);
	fake_kernel_end(o);
}

void fake_run_op(struct op *o)
{
	if (o->kind < OP_RECORD && (fake_dead() || fake_breaks()))
		return;
	switch (o->kind) {
	case OP_KERNEL:
		run_kernel(o);
		break;
	case OP_COPY:
		fake_copy_takes();
		fake_access(o, o->src, o->bytes, false);
		fake_access(o, o->dst, o->bytes, true);
		memmove(o->dst, o->src, o->bytes);
		break;
	case OP_SET:
		fake_access(o, o->dst, o->bytes, true);
		memset(o->dst, o->byte, o->bytes);
		break;
	case OP_HOST:
		fake_pause();
		o->fn(o->data);
		fake_resume();
		break;
	case OP_RECORD:
		if (o->gen > o->event->reached)
			o->event->reached = o->gen;
		o->event->ns = now_ns();
		break;
	case OP_WAIT:
	case OP_WORD:
	case OP_GRAPH: // run_first()
		break;
	}
}

bool fake_word_is_there(const struct op *o)
{
	uint32_t now =
		__atomic_load_n((const uint32_t *)o->src, __ATOMIC_ACQUIRE);

	return fake_dead() || (int32_t)(now - o->value) >= 0;
}

static bool is_ready(const struct op *o)
{
	switch (o->kind) {
	case OP_WORD:
		return fake_word_is_there(o);
	case OP_GRAPH:
		return fake_graph_is_ready(o);
	case OP_HOST:
		return o->state != 1;
	case OP_WAIT:
		return o->event->reached >= o->gen;
	default:
		return true;
	}
}

// The stream whose wait is in front of s in their work queue.
static struct CUstream_st *in_front(const struct CUstream_st *s)
{
	for (struct CUstream_st *o = fake_streams; o; o = o->next)
		if (o != s && o->queue == s->queue && o->head &&
		    (o->head->kind == OP_WORD || o->head->kind == OP_WAIT) &&
		    o->head->turn < s->head->turn && !is_ready(o->head))
			return o;
	return NULL;
}

static bool can_run(const struct CUstream_st *s)
{
	return s->head && is_ready(s->head) && (fake_dead() || !in_front(s));
}

// Host functions have a thread of their own, so that one may hold up a stream
// while callers go on.
static void *host_thread(void *data)
{
	struct op *o = data;

	o->fn(o->data);
	fake_resume();
	o->state = 2;
	fake_pause();
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

// Run the first unit of a stream that can run.
static void run_first(struct CUstream_st *s)
{
	struct op *o = s->head;

	if (o->kind == OP_HOST && o->state == 0 && !fake_dead()) {
		host_start(o);
		return;
	}
	if (o->kind == OP_GRAPH && !fake_run_graph(o))
		return;
	s->head = o->next;
	if (!s->head)
		s->tail = NULL;
	if (o->kind != OP_HOST)
		fake_run_op(o);
	fake_op_free(o);
}

bool fake_progress(void)
{
	struct CUstream_st *pick = NULL;
	uint32_t n = 0;

	for (struct CUstream_st *s = fake_streams; s; s = s->next)
		if (can_run(s) && (!n++ || fake_dice(n) == 0))
			pick = s;
	if (pick)
		run_first(pick);
	return pick != NULL;
}

static struct CUstream_st *recorder(const struct CUevent_st *e)
{
	for (struct CUstream_st *s = fake_streams; s; s = s->next)
		for (struct op *o = s->head; o; o = o->next)
			if (o->kind == OP_RECORD && o->event == e)
				return s;
	return NULL;
}

// One unit that brings s on, if need be of a stream that it waits for; false:
// it stands until a thread of the host does something.
static bool bring_on(struct CUstream_st *s)
{
	while (s && s->head && !can_run(s)) {
		struct CUstream_st *front = in_front(s);

		if (!front && s->head->kind != OP_WAIT)
			break;
		s = front ? front : recorder(s->head->event);
	}
	if (s && can_run(s)) {
		run_first(s);
		return true;
	}
	fake_breathe();
	return false;
}

void fake_finish(struct CUstream_st *s)
{
	while (s->head) {
		if (fake_is_late())
			(void)bring_on(s);
		else if (!fake_progress())
			fake_breathe();
	}
}

// Somebody asked: do a little, or everything when no seed wants it late.
static void advance(void)
{
	uint32_t n = fake_is_seeded() ? fake_dice(4) : UINT32_MAX;

	while (n-- && fake_progress())
		;
}

// ---- copies ----

static bool reads_host(const struct op *o, const char *p, size_t bytes)
{
	const char *from = o->src;

	for (uint32_t i = 0; o->kind == OP_GRAPH && i < o->exec->graph->n; i++)
		if (reads_host(o->exec->graph->nodes[i], p, bytes))
			return true;
	return o->kind == OP_COPY && from < p + bytes && p < from + o->bytes;
}

// Until the copy is done the host finds nothing there that is right; unless a
// copy that is still queued needs what is there.
static void spoil_target(const struct op *o)
{
	for (struct CUstream_st *s = fake_streams; s; s = s->next)
		for (const struct op *q = s->head; q; q = q->next)
			if (reads_host(q, o->dst, o->bytes))
				return;
	memset(o->dst, 0xa5, o->bytes);
}

static CUresult copy(void *dst, const void *src, size_t bytes, CUstream s,
		     const char *what)
{
	struct op *o = fake_op(OP_COPY);

	o->dst = dst;
	o->src = src;
	o->bytes = bytes;
	o->what = what;
	return fake_enqueue(s, o);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n,
			      CUstream s)
{
	ENTER();
	return fake_leave(
		copy((void *)(uintptr_t)dst, src, n, s, "copy to the device"));
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
	ENTER();
	r = copy(dst, (void *)(uintptr_t)src, n, s, "copy to the host");
	if (!s->capture)
		spoil_target(s->tail);
	return fake_leave(r);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n,
			      CUstream s)
{
	ENTER();
	return fake_leave(copy((void *)(uintptr_t)dst, (void *)(uintptr_t)src,
			       n, s, "copy on the device"));
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char v, size_t n, CUstream s)
{
	struct op *o;

	ENTER();
	o = fake_op(OP_SET);
	o->dst = (void *)(uintptr_t)dst;
	o->byte = v;
	o->bytes = n;
	o->what = "fill";
	return fake_leave(fake_enqueue(s, o));
}

// ---- streams ----

CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	(void)flags;
	ENTER();
	*out = calloc(1, sizeof(**out));
	(*out)->line = fake_line();
	(*out)->queue = n_made++ % n_queues;
	(*out)->next = fake_streams;
	fake_streams = *out;
	fake_alive_count++;
	return fake_leave(r);
}

CUresult cuStreamDestroy_v2(CUstream s)
{
	ENTER_BACK();
	fake_finish(s);
	for (struct CUstream_st **p = &fake_streams; *p; p = &(*p)->next)
		if (*p == s) {
			*p = s->next;
			break;
		}
	fake_line_free(s->line);
	free(s->at.v);
	free(s);
	fake_alive_count--;
	return fake_leave(r);
}

// The host is told that it is done: from now on it knows.
static CUresult known(const struct clock *c)
{
	if (!fake_dead())
		fake_join(&fake_host, c);
	return fake_dead();
}

static bool has_work(const struct CUstream_st *s)
{
	const struct op *o = s->head;

	while (o && o->kind >= OP_RECORD && o->kind != OP_GRAPH)
		o = o->next;
	return o != NULL;
}

CUresult cuStreamQuery(CUstream s)
{
	ENTER();
	if (s->capture) {
		fake_spoil();
		return fake_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	if (has_work(s) && fake_drops(FAKE_ANSWER, true))
		return fake_leave(CUDA_SUCCESS);
	while (fake_is_late() && s->head && bring_on(s))
		;
	if (!fake_is_late())
		advance();
	r = s->head && !fake_dead() ? CUDA_ERROR_NOT_READY : known(&s->clock);
	return fake_leave(r);
}

CUresult cuStreamSynchronize(CUstream s)
{
	ENTER();
	if (s->capture) {
		fake_spoil();
		return fake_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	fake_finish(s);
	return fake_leave(known(&s->clock));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **args,
			  void **extra)
{
	bool overlaps;
	struct op *o;

	(void)extra;
	ENTER();
	r = fake_check_launch(c, f, &overlaps);
	if (r)
		return fake_leave(r);
	o = fake_op(OP_KERNEL);
	o->kernel = f;
	o->overlaps = overlaps;
	o->what = *(const char *const *)(const void *)f; // emu.cpp: its name
	o->params = malloc(emu_bytes(f));
	memcpy(o->params, args[0], emu_bytes(f));
	o->grid[0] = c->gridDimX;
	o->grid[1] = c->gridDimY;
	o->grid[2] = c->gridDimZ;
	o->threads = c->blockDimX;
	return fake_leave(fake_enqueue(c->hStream, o));
}

CUresult cuLaunchHostFunc(CUstream s, CUhostFn fn, void *data)
{
	struct op *o;

	ENTER();
	o = fake_op(OP_HOST);
	o->fn = fn;
	o->data = data;
	return fake_leave(fake_enqueue(s, o));
}

CUresult cuStreamWaitValue32_v2(CUstream s, CUdeviceptr addr, cuuint32_t value,
				unsigned int flags)
{
	struct block *b;
	struct op *o;

	ENTER();
	b = fake_block_of((const void *)(uintptr_t)addr);
	if (addr % 4 || flags != CU_STREAM_WAIT_VALUE_GEQ || !b || b->dead)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	o = fake_op(OP_WORD);
	o->src = (const void *)(uintptr_t)addr;
	o->value = value;
	return fake_leave(fake_enqueue(s, o));
}

// ---- events ----

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	ENTER();
	*out = calloc(1, sizeof(**out));
	(*out)->timed = !(flags & CU_EVENT_DISABLE_TIMING);
	fake_alive_count++;
	return fake_leave(r);
}

CUresult cuEventDestroy_v2(CUevent e)
{
	ENTER_BACK();
	while (e->reached < e->recorded)
		if (!fake_progress())
			fake_breathe();
	free(e->at.v);
	free(e);
	fake_alive_count--;
	return fake_leave(r);
}

CUresult cuEventRecord(CUevent e, CUstream s)
{
	struct op *o;

	ENTER();
	e->lacks_record = fake_drops(FAKE_RECORD, false);
	if (e->lacks_record)
		return fake_leave(r);
	if (s->capture) {
		free(e->at.v);
		e->at = (struct set){NULL, 0};
		for (uint32_t i = 0; i < s->at.n; i++)
			fake_set_add(&e->at, s->at.v[i]);
		e->capture = s->capture;
		return fake_leave(r);
	}
	e->capture = NULL;
	o = fake_op(OP_RECORD);
	o->event = e;
	o->gen = ++e->recorded;
	fake_enqueue(s, o);
	e->clock = s->clock;
	return fake_leave(r);
}

CUresult cuEventQuery(CUevent e)
{
	ENTER();
	if (e->lacks_record)
		fake_drop_matters();
	if (e->capture) {
		fake_spoil();
		return fake_leave(CUDA_ERROR_CAPTURED_EVENT);
	}
	if (e->reached < e->recorded && fake_drops(FAKE_ANSWER, true))
		return fake_leave(CUDA_SUCCESS);
	while (fake_is_late() && e->reached < e->recorded &&
	       bring_on(recorder(e)))
		;
	if (!fake_is_late())
		advance();
	if (e->reached < e->recorded)
		return fake_leave(CUDA_ERROR_NOT_READY);
	return fake_leave(known(&e->clock));
}

CUresult cuEventElapsedTime(float *out, CUevent from, CUevent to)
{
	ENTER();
	if (!from->timed || !to->timed || !from->recorded || !to->recorded)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	if (from->reached < from->recorded || to->reached < to->recorded)
		return fake_leave(CUDA_ERROR_NOT_READY);
	*out = (float)((double)(int64_t)(to->ns - from->ns) * 1e-6);
	return fake_leave(r);
}

CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned int flags)
{
	struct op *o;
	bool is_new;

	(void)flags;
	ENTER();
	if (e->lacks_record)
		fake_drop_matters();
	is_new = e->capture ? fake_orders_more(s, e)
			    : !fake_covers(&s->clock, &e->clock);
	if (fake_drops(FAKE_WAIT, is_new))
		return fake_leave(r);
	if (e->capture) {
		if (e->capture != fake_capture())
			return fake_leave(
				CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
		if (!s->capture)
			fake_join_capture(s);
		for (uint32_t i = 0; i < e->at.n; i++)
			fake_set_add(&s->at, e->at.v[i]);
		return fake_leave(r);
	}
	if (s->capture) {
		fake_spoil();
		return fake_leave(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	}
	o = fake_op(OP_WAIT);
	o->event = e;
	o->gen = e->recorded;
	fake_join(&s->clock, &e->clock);
	fake_join(&s->chain, &e->clock);
	return fake_leave(fake_enqueue(s, o));
}
