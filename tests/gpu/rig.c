// rig.c - bringing the module up, and memory (see rig.h).
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/gpu/rig.h"

// ---- host table ----

static pthread_mutex_t host_lock = PTHREAD_MUTEX_INITIALIZER;

static void count(struct gpu_rig *r, long n)
{
	pthread_mutex_lock(&host_lock);
	r->live += n;
	pthread_mutex_unlock(&host_lock);
}

static void *h_alloc(void *ctx, uint64_t bytes, const char *tag)
{
	void *p = aligned_alloc(64, (bytes + 64) / 64 * 64);

	(void)tag;
	if (p)
		count(ctx, 1);
	return p;
}

static void h_free(void *ctx, void *p)
{
	if (p)
		count(ctx, -1);
	free(p);
}

static void *h_realloc(void *ctx, void *p, uint64_t bytes, const char *tag)
{
	void *q = realloc(p, bytes);

	(void)tag;
	if (q && !p)
		count(ctx, 1);
	return q;
}

static void h_log(void *ctx, int32_t level, const char *fmt, ...)
{
	va_list ap;

	(void)ctx;
	va_start(ap, fmt);
	fprintf(stderr, "log %d: ", level);
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
}

static int32_t h_error(void *ctx, struct genai_error *err, int32_t code,
		       const char *fmt, ...)
{
	va_list ap;

	(void)ctx;
	if (err) {
		va_start(ap, fmt);
		vsnprintf(err->text, sizeof(err->text), fmt, ap);
		va_end(ap);
		err->code = code;
	}
	return code;
}

static int32_t h_str(void *ctx, const char *key, char *buf, uint64_t cap)
{
	struct gpu_rig *r = ctx;

	if (strcmp(key, "driver"))
		return GENAI_E_NOTFOUND;
	snprintf(buf, cap, "%s", r->driver);
	return 0;
}

uint32_t gpu_host_threads;

// Rates that are given are not measured.
static int32_t h_u64(void *ctx, const char *key, uint64_t *v)
{
	(void)ctx;
	if (!gpu_host_threads)
		return GENAI_E_NOTFOUND;
	if (strcmp(key, "host_threads") && !strstr(key, "_bytes_per_s"))
		return GENAI_E_NOTFOUND;
	*v = gpu_host_threads;
	return 0;
}

struct started {
	pthread_t id;
	void (*fn)(void *arg);
	void *arg;
};

static void *h_run(void *arg)
{
	struct started *s = arg;

	s->fn(s->arg);
	return NULL;
}

static int32_t h_thread(void *ctx, const char *name, void (*fn)(void *arg),
			void *arg, void **out_thread)
{
	struct started *s = malloc(sizeof(*s));

	(void)ctx;
	(void)name;
	*s = (struct started){.fn = fn, .arg = arg};
	if (pthread_create(&s->id, NULL, h_run, s)) {
		free(s);
		return GENAI_E_LIMIT;
	}
	*out_thread = s;
	return 0;
}

static void h_join(void *ctx, void *thread)
{
	struct started *s = thread;

	(void)ctx;
	pthread_join(s->id, NULL);
	free(s);
}

static int32_t h_bool(void *ctx, const char *key, int32_t *v)
{
	struct gpu_rig *r = ctx;

	if (strcmp(key, "overlap"))
		return GENAI_E_NOTFOUND;
	*v = r->overlap;
	return 0;
}

static uint64_t h_clock(void *ctx)
{
	struct timespec ts;

	(void)ctx;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void h_counter(void *ctx, const char *name, int64_t n)
{
	(void)ctx;
	(void)name;
	(void)n;
}

static int32_t h_ticket(void *ctx, const struct genai_ticket *t,
			struct genai_range range, struct genai_error *err)
{
	(void)range;
	if (t->seal == 77)
		return 0;
	return h_error(ctx, err, GENAI_E_STATE, "a ticket that is not good");
}

static int copy_ops(const struct genai_module_block *b, const char *type,
		    const char *name, void *ops, size_t bytes)
{
	for (uint32_t i = 0; i < b->n_ifaces; i++)
		if (!strcmp(b->ifaces[i].type, type) &&
		    (!name || !strcmp(b->ifaces[i].name, name))) {
			memcpy(ops, b->ifaces[i].ops, bytes);
			return 0;
		}
	return -1;
}

struct gpu_rig *gpu_open(const char *module, const char *driver, int overlap,
			 uint64_t limit, struct genai_error *err)
{
	struct genai_init_params params = {sizeof(params), 0, limit};
	struct gpu_rig *r = calloc(1, sizeof(*r));
	void *so = dlopen(module, RTLD_NOW | RTLD_LOCAL);
	genai_module_query_fn query = NULL;
	void *sym = so ? dlsym(so, GENAI_MODULE_QUERY_SYMBOL) : NULL;

	memcpy(&query, &sym, sizeof(query));
	if (!query) {
		h_error(NULL, err, GENAI_E_MODULE, "%s: %s", module, dlerror());
		free(r);
		return NULL;
	}
	r->overlap = overlap;
	r->host = (struct genai_host){
		.size = sizeof(r->host),
		.core_abi = GENAI_ABI,
		.ctx = r,
		.alloc = h_alloc,
		.realloc = h_realloc,
		.free = h_free,
		.log = h_log,
		.error_set = h_error,
		.config_get_str = h_str,
		.config_get_u64 = h_u64,
		.config_get_bool = h_bool,
		.clock_ns = h_clock,
		.thread_create = h_thread,
		.thread_join = h_join,
		.counter_add = h_counter,
		.ticket_check = h_ticket,
	};
	snprintf(r->driver, sizeof(r->driver), "%s", driver ? driver : "");
	r->block = query(GENAI_ABI, NULL);
	if (!r->block || r->block->init(&r->host, &params, &r->self, err))
		goto err_free;
	copy_ops(r->block, GENAI_IFACE_STREAM, NULL, &r->stream_ops,
		 sizeof(r->stream_ops));
	copy_ops(r->block, GENAI_IFACE_BARRIER, NULL, &r->barrier_ops,
		 sizeof(r->barrier_ops));
	copy_ops(r->block, GENAI_IFACE_EXECUTOR, "eager", &r->eager,
		 sizeof(r->eager));
	copy_ops(r->block, GENAI_IFACE_EXECUTOR, "captured", &r->captured,
		 sizeof(r->captured));
	r->stream.ops = &r->stream_ops;
	r->stream.self = r->self;
	r->barrier.ops = &r->barrier_ops;
	r->barrier.self = r->self;
	if (r->stream_ops.create(r->self, "compute", &r->compute, err)) {
		r->block->fini(r->self);
		goto err_free;
	}
	return r;

err_free:
	free(r);
	return NULL;
}

void gpu_close(struct gpu_rig *r)
{
	if (!r)
		return;
	r->barrier_ops.drain(r->self,
			     (struct genai_range){0, GENAI_RANGE_ALL_BYTES},
			     UINT64_MAX, NULL, NULL);
	r->stream_ops.destroy(r->self, r->compute, NULL);
	r->block->fini(r->self);
	if (r->live)
		fprintf(stderr, "%ld host allocations leaked\n", r->live);
	free(r);
}

// ---- memory ----

static int32_t copy_wait(struct gpu_rig *r, uint64_t dst, uint64_t src,
			 uint64_t bytes, uint32_t kind)
{
	struct genai_point p = {NULL, 0};
	int32_t rc = r->stream_ops.copy(r->self, r->compute, dst, src, bytes,
					kind, NULL);

	if (!rc)
		rc = r->stream_ops.mark(r->self, r->compute, &p, NULL);
	return rc ? rc
		  : r->barrier_ops.host_read(r->self, &p, 1, UINT64_MAX, NULL);
}

static void settle(struct gpu_rig *r)
{
	r->barrier_ops.drain(r->self,
			     (struct genai_range){0, GENAI_RANGE_ALL_BYTES},
			     UINT64_MAX, NULL, NULL);
}

uint64_t gpu_upload(struct gpu_rig *r, const void *data, uint64_t bytes)
{
	const struct genai_stream_ops *o = &r->stream_ops;
	struct genai_mem pin = {0}, dev = {0};
	struct genai_ticket t = {.seal = 77};
	uint64_t room = bytes ? bytes : 1;
	int32_t rc;

	if (o->alloc(r->self, GENAI_MEM_HOST_PINNED, room, "test", &pin, NULL))
		return 0;
	if (o->alloc(r->self, GENAI_MEM_DEVICE, room, "test", &dev, NULL)) {
		o->free(r->self, pin.range.addr, NULL, NULL);
		return 0;
	}
	memset(pin.host, 0, room);
	if (data)
		memcpy(pin.host, data, bytes);
	rc = copy_wait(r, dev.range.addr, (uint64_t)(uintptr_t)pin.host, room,
		       GENAI_COPY_H2D);
	settle(r);
	o->free(r->self, pin.range.addr, &t, NULL);
	if (!rc)
		return dev.range.addr;
	o->free(r->self, dev.range.addr, &t, NULL);
	return 0;
}

void gpu_download(struct gpu_rig *r, void *data, uint64_t addr, uint64_t bytes)
{
	struct genai_mem pin = {0};
	struct genai_ticket t = {.seal = 77};

	if (!bytes || r->stream_ops.alloc(r->self, GENAI_MEM_HOST_PINNED, bytes,
					  "test", &pin, NULL))
		return;
	if (!copy_wait(r, (uint64_t)(uintptr_t)pin.host, addr, bytes,
		       GENAI_COPY_D2H))
		memcpy(data, pin.host, bytes);
	settle(r);
	r->stream_ops.free(r->self, pin.range.addr, &t, NULL);
}

void gpu_free(struct gpu_rig *r, uint64_t addr)
{
	struct genai_ticket t = {.seal = 77};

	r->stream_ops.free(r->self, addr, &t, NULL);
}
