/* rig.c - see rig.h. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tests/gpu/rig.h"

/* ---- host table ---- */

static pthread_mutex_t host_lock = PTHREAD_MUTEX_INITIALIZER;

static void count(struct rig *r, long n)
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
	struct rig *r = ctx;

	if (strcmp(key, "driver"))
		return GENAI_E_NOTFOUND;
	snprintf(buf, cap, "%s", r->driver);
	return 0;
}

static int32_t h_u64(void *ctx, const char *key, uint64_t *v)
{
	(void)ctx;
	(void)key;
	(void)v;
	return GENAI_E_NOTFOUND;
}

static int32_t h_bool(void *ctx, const char *key, int32_t *v)
{
	struct rig *r = ctx;

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

struct rig *rig_open(const char *module, const char *driver,
		     struct genai_error *err)
{
	struct genai_init_params params = {sizeof(params), 0, UINT64_MAX};
	struct rig *r = calloc(1, sizeof(*r));
	void *so = dlopen(module, RTLD_NOW | RTLD_LOCAL);
	genai_module_query_fn query = NULL;
	void *sym = so ? dlsym(so, GENAI_MODULE_QUERY_SYMBOL) : NULL;

	memcpy(&query, &sym, sizeof(query));
	if (!query) {
		h_error(NULL, err, GENAI_E_MODULE, "%s: %s", module, dlerror());
		free(r);
		return NULL;
	}
	r->overlap = 1;
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

void rig_close(struct rig *r)
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

/* ---- elements ---- */

static uint32_t dt_bits(uint32_t dt)
{
	switch (dt) {
	case GENAI_DT_U4:
	case GENAI_DT_I4:
		return 4;
	case GENAI_DT_U8:
	case GENAI_DT_I8:
	case GENAI_DT_BOOL:
		return 8;
	case GENAI_DT_F16:
	case GENAI_DT_BF16:
		return 16;
	case GENAI_DT_I64:
		return 64;
	default:
		return 32;
	}
}

uint64_t rig_bytes(uint32_t dtype, uint32_t rank, const int64_t *dims)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < rank; d++)
		n *= (uint64_t)dims[d];
	return (n * dt_bits(dtype) + 7) / 8;
}

static float half_to_float(uint16_t h)
{
	int e = h >> 10 & 31;
	float f = e == 31 ? (h & 1023 ? NAN : INFINITY)
		  : e	  ? ldexpf((float)((h & 1023) | 1024), e - 25)
			  : ldexpf((float)(h & 1023), -24);

	return h & 0x8000 ? -f : f;
}

static uint16_t float_to_half(float f)
{
	uint16_t sign = signbit(f) ? 0x8000 : 0;
	float a = fabsf(f);
	int e;

	if (a != a)
		return 0x7e00;
	if (a >= 65520.f)
		return sign | 0x7c00;
	if (a < 6.103515625e-05f)
		return sign | (uint16_t)lrintf(ldexpf(a, 24));
	frexpf(a, &e);
	/* 11 bits; a carry into the exponent comes out right by itself */
	return sign | (uint16_t)((uint32_t)lrintf(ldexpf(a, 11 - e)) - 1024 +
				 ((uint32_t)(e + 14) << 10));
}

float rig_load(uint32_t dtype, const void *p, uint64_t i)
{
	uint32_t u;
	float f;

	switch (dtype) {
	case GENAI_DT_F16:
		return half_to_float(((const uint16_t *)p)[i]);
	case GENAI_DT_BF16:
		u = (uint32_t)((const uint16_t *)p)[i] << 16;
		memcpy(&f, &u, 4);
		return f;
	case GENAI_DT_I64:
		return (float)((const int64_t *)p)[i];
	case GENAI_DT_I32:
		return (float)((const int32_t *)p)[i];
	case GENAI_DT_U8:
	case GENAI_DT_BOOL:
		return ((const uint8_t *)p)[i];
	default:
		return ((const float *)p)[i];
	}
}

void rig_store(uint32_t dtype, void *p, uint64_t i, float v)
{
	uint32_t u;

	switch (dtype) {
	case GENAI_DT_F16:
		((uint16_t *)p)[i] = float_to_half(v);
		break;
	case GENAI_DT_BF16:
		memcpy(&u, &v, 4);
		u += 0x7fff + (u >> 16 & 1);
		((uint16_t *)p)[i] = (uint16_t)(u >> 16);
		break;
	case GENAI_DT_I64:
		((int64_t *)p)[i] = (int64_t)v;
		break;
	case GENAI_DT_I32:
		((int32_t *)p)[i] = (int32_t)v;
		break;
	case GENAI_DT_U8:
	case GENAI_DT_BOOL:
		((uint8_t *)p)[i] = (uint8_t)v;
		break;
	default:
		((float *)p)[i] = v;
	}
}

/* ---- graphs ---- */

void rig_graph_init(struct rig_graph *g)
{
	memset(g, 0, sizeof(*g));
	g->g = (struct genai_graph){
		.size = sizeof(g->g),
		.file_stride = sizeof(struct genai_file),
		.tensor_stride = sizeof(struct genai_tensor),
		.value_stride = sizeof(struct genai_value),
		.node_stride = sizeof(struct genai_node),
		.name = "test",
		.files = g->files,
		.tensors = g->tensors,
		.values = g->values,
		.nodes = g->nodes,
		.inputs = g->inputs,
		.outputs = g->outputs,
	};
}

uint32_t rig_value(struct rig_graph *g)
{
	static const char *const names[RIG_VALUES] = {
		"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9"};
	uint32_t v = g->g.n_values++;

	g->values[v] = (struct genai_value){
		.size = sizeof(struct genai_value),
		.name = names[v] ? names[v] : "v",
		.tensor = GENAI_NONE,
		.producer = GENAI_NONE,
	};
	return v;
}

static void set_view(struct rig_graph *g, uint32_t v, uint32_t dtype,
		     uint32_t rank, const int64_t *dims, void *data)
{
	struct genai_view *w = &g->views[v];
	int64_t stride = 1;

	w->size = sizeof(*w);
	w->dtype = dtype;
	w->rank = rank;
	for (uint32_t d = rank; d-- > 0;) {
		w->dims[d] = dims[d];
		w->strides[d] = stride;
		stride *= dims[d] ? dims[d] : 1;
	}
	g->host[v] = data;
}

uint32_t rig_input(struct rig_graph *g, uint32_t dtype, uint32_t rank,
		   const int64_t *dims, void *data)
{
	uint32_t v = rig_value(g);

	set_view(g, v, dtype, rank, dims, data);
	g->values[v].flags = GENAI_VALUE_INPUT;
	g->inputs[g->g.n_inputs++] = v;
	return v;
}

uint32_t rig_output(struct rig_graph *g, uint32_t dtype, uint32_t rank,
		    const int64_t *dims, void *data)
{
	uint32_t v = rig_value(g);

	set_view(g, v, dtype, rank, dims, data);
	g->values[v].flags = GENAI_VALUE_OUTPUT;
	g->outputs[g->g.n_outputs++] = v;
	return v;
}

uint32_t rig_const(struct rig_graph *g, uint32_t dtype, uint32_t rank,
		   const int64_t *dims, const void *data)
{
	uint32_t v = rig_value(g), t = g->g.n_tensors++;

	g->files[g->g.n_files] = (struct genai_file){
		sizeof(struct genai_file), 0, "", data,
		rig_bytes(dtype, rank, dims)};
	g->tensors[t] = (struct genai_tensor){
		.size = sizeof(struct genai_tensor),
		.dtype = dtype,
		.rank = rank,
		.file = g->g.n_files++,
		.bytes = rig_bytes(dtype, rank, dims),
	};
	memcpy(g->tensors[t].dims, dims, rank * sizeof(*dims));
	g->values[v].tensor = t;
	return v;
}

struct genai_node *rig_node(struct rig_graph *g, const char *domain,
			    const char *op, const uint32_t *ins)
{
	uint32_t k = g->g.n_nodes++;
	struct genai_node *n = &g->nodes[k];

	*n = (struct genai_node){
		.size = sizeof(*n),
		.name = "node",
		.op = op,
		.domain = domain,
		.opset = *domain ? 1 : 21,
		.inputs = g->ins[k],
		.outputs = g->outs[k],
		.attrs = g->attrs[k],
		.attr_stride = sizeof(struct genai_attr),
	};
	while (ins[n->n_inputs] != RIG_END) {
		g->ins[k][n->n_inputs] = ins[n->n_inputs];
		n->n_inputs++;
	}
	return n;
}

void rig_node_out(struct rig_graph *g, const uint32_t *outs)
{
	uint32_t k = g->g.n_nodes - 1;
	struct genai_node *n = &g->nodes[k];

	while (outs[n->n_outputs] != RIG_END) {
		uint32_t v = outs[n->n_outputs];

		g->outs[k][n->n_outputs++] = v;
		if (v != GENAI_NONE)
			g->values[v].producer = k;
	}
}

static struct genai_attr *attr(struct rig_graph *g, const char *name,
			       uint32_t kind)
{
	struct genai_node *n = &g->nodes[g->g.n_nodes - 1];
	struct genai_attr *a = &g->attrs[g->g.n_nodes - 1][n->n_attrs++];

	*a = (struct genai_attr){.size = sizeof(*a),
				 .kind = kind,
				 .name = name,
				 .tensor = GENAI_NONE};
	return a;
}

void rig_attr_int(struct rig_graph *g, const char *name, int64_t v)
{
	attr(g, name, GENAI_ATTR_INT)->i = v;
}

void rig_attr_float(struct rig_graph *g, const char *name, double v)
{
	attr(g, name, GENAI_ATTR_FLOAT)->f = v;
}

void rig_attr_string(struct rig_graph *g, const char *name, const char *v)
{
	attr(g, name, GENAI_ATTR_STRING)->s = v;
}

void rig_attr_ints(struct rig_graph *g, const char *name, const int64_t *v,
		   uint32_t n)
{
	struct genai_attr *a = attr(g, name, GENAI_ATTR_INTS);

	a->ints = v;
	a->count = n;
}

/* ---- memory ---- */

static void copy_wait(struct rig *r, uint64_t dst, uint64_t src, uint64_t bytes,
		      uint32_t kind)
{
	struct genai_point p = {NULL, 0};
	struct genai_error err = GENAI_ERROR_INIT;

	if (r->stream_ops.copy(r->self, r->compute, dst, src, bytes, kind,
			       &err) ||
	    r->stream_ops.mark(r->self, r->compute, &p, &err) ||
	    r->barrier_ops.host_read(r->self, &p, 1, UINT64_MAX, &err))
		fprintf(stderr, "copy: %s\n", err.text);
}

uint64_t rig_upload(struct rig *r, const void *data, uint64_t bytes)
{
	struct genai_mem pin = {0}, dev = {0};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_ticket t = {.seal = 77};
	uint64_t room = bytes ? bytes : 1;

	if (r->stream_ops.alloc(r->self, GENAI_MEM_HOST_PINNED, room, "test",
				&pin, &err) ||
	    r->stream_ops.alloc(r->self, GENAI_MEM_DEVICE, room, "test", &dev,
				&err)) {
		fprintf(stderr, "upload: %s\n", err.text);
		return 0;
	}
	memset(pin.host, 0, room);
	if (data)
		memcpy(pin.host, data, bytes);
	copy_wait(r, dev.range.addr, (uint64_t)(uintptr_t)pin.host, room,
		  GENAI_COPY_H2D);
	r->stream_ops.free(r->self, pin.range.addr, &t, NULL);
	return dev.range.addr;
}

void rig_download(struct rig *r, void *data, uint64_t addr, uint64_t bytes)
{
	struct genai_mem pin = {0};
	struct genai_ticket t = {.seal = 77};

	if (!bytes)
		return;
	r->stream_ops.alloc(r->self, GENAI_MEM_HOST_PINNED, bytes, "test", &pin,
			    NULL);
	copy_wait(r, (uint64_t)(uintptr_t)pin.host, addr, bytes,
		  GENAI_COPY_D2H);
	memcpy(data, pin.host, bytes);
	r->stream_ops.free(r->self, pin.range.addr, &t, NULL);
}

void rig_free(struct rig *r, uint64_t addr)
{
	struct genai_ticket t = {.seal = 77};

	r->stream_ops.free(r->self, addr, &t, NULL);
}

/* ---- a pager that has everything on the device ---- */

struct genai_pager {
	uint32_t n, cap;
	uint64_t *addr;
};

static int32_t pg_caps(void *self, struct genai_pager_caps *c,
		       struct genai_error *err)
{
	(void)self;
	(void)err;
	c->size = sizeof(*c);
	c->flags = GENAI_PAGER_CAP_STABLE;
	return 0;
}

static int32_t pg_begin(struct genai_pager *p, struct genai_stream *s,
			int32_t recording, struct genai_error *err)
{
	(void)p;
	(void)s;
	(void)recording;
	(void)err;
	return 0;
}

static int32_t pg_acquire(struct genai_pager *p, uint32_t visit,
			  struct genai_stream *s, struct genai_place *place,
			  struct genai_point *ready, struct genai_error *err)
{
	(void)s;
	(void)err;
	place->kind = GENAI_PLACE_DEVICE;
	place->addr = p->addr[visit];
	*ready = (struct genai_point){NULL, 0};
	return 0;
}

static int32_t pg_release(struct genai_pager *p, uint32_t visit,
			  struct genai_point point, struct genai_error *err)
{
	(void)p;
	(void)visit;
	(void)point;
	(void)err;
	return 0;
}

static int32_t pg_end(struct genai_pager *p, struct genai_stream *s,
		      struct genai_point *tail, struct genai_error *err)
{
	(void)p;
	(void)s;
	(void)err;
	*tail = (struct genai_point){NULL, 0};
	return 0;
}

static int32_t pg_stats(struct genai_pager *p, struct genai_pager_stats *s,
			struct genai_error *err)
{
	(void)p;
	(void)err;
	memset(s, 0, sizeof(*s));
	return 0;
}

static const struct genai_pager_ops pager_ops = {
	.size = sizeof(pager_ops),
	.version = 1,
	.caps = pg_caps,
	.step_begin = pg_begin,
	.acquire = pg_acquire,
	.release = pg_release,
	.step_end = pg_end,
	.stats = pg_stats,
};

struct sweep {
	struct genai_visit_page pages[4096];
	uint32_t n;
};

static void add_page(struct rig *r, struct rig_graph *g, struct genai_pager *p,
		     struct sweep *s, const struct genai_visit *v, uint32_t i,
		     uint64_t begin, uint64_t end)
{
	const struct genai_tensor *t = &g->tensors[v->tensor];
	const char *src = (const char *)g->files[t->file].data + t->offset;
	uint64_t row = t->bytes / v->rows;

	s->pages[s->n] = (struct genai_visit_page){sizeof(s->pages[0]), i,
						   begin, end};
	p->addr = realloc(p->addr, (s->n + 1) * sizeof(*p->addr));
	p->addr[s->n++] = v->rows == 1
				  ? rig_upload(r, src, t->bytes)
				  : rig_upload(r, src + begin * row,
					       (end - begin) * row);
}

/* Pages in sweep order: the parts of a group one after another. */
static void make_pages(struct rig *r, struct rig_graph *g,
		       const struct genai_visit *v, uint32_t n, uint64_t cut,
		       struct genai_pager *p, struct sweep *s)
{
	for (uint32_t i = 0; i < n;) {
		uint32_t end = i + 1;
		uint64_t step = cut && (v[i].flags & GENAI_WEIGHT_ROWS)
					? cut
					: v[i].rows;

		while (end < n && v[end].group == v[i].group)
			end++;
		for (uint64_t row = 0; row < v[i].rows; row += step)
			for (uint32_t k = i; k < end; k++)
				add_page(r, g, p, s, &v[k], k, row,
					 row + step < v[k].rows ? row + step
								: v[k].rows);
		i = end;
	}
	p->n = s->n;
}

static int32_t bind_all(struct rig *r, struct rig_graph *g,
			const struct genai_executor_ops *x,
			struct genai_plan *plan, struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = 0; i < g->g.n_inputs && !rc; i++) {
		uint32_t v = g->inputs[i];

		g->views[v].addr = g->device[v];
		if (!g->device[v])
			g->views[v].addr = rig_upload(
				r, g->host[v],
				rig_bytes(g->views[v].dtype, g->views[v].rank,
					  g->views[v].dims));
		rc = x->bind_input(plan, i, &g->views[v], err);
	}
	for (uint32_t o = 0; o < g->g.n_outputs && !rc; o++) {
		uint32_t v = g->outputs[o];

		g->views[v].addr = g->device[v];
		if (!g->device[v])
			g->views[v].addr = rig_upload(
				r, NULL,
				rig_bytes(g->views[v].dtype, g->views[v].rank,
					  g->views[v].dims));
		rc = x->bind_output(plan, o, &g->views[v], err);
	}
	return rc;
}

static void fetch_all(struct rig *r, struct rig_graph *g)
{
	for (uint32_t o = 0; o < g->g.n_outputs; o++) {
		uint32_t v = g->outputs[o];

		if (g->host[v])
			rig_download(r, g->host[v], g->views[v].addr,
				     rig_bytes(g->views[v].dtype,
					       g->views[v].rank,
					       g->views[v].dims));
	}
	for (uint32_t v = 0; v < g->g.n_values; v++)
		if (g->views[v].addr && !g->device[v]) {
			rig_free(r, g->views[v].addr);
			g->views[v].addr = 0;
		}
}

static int32_t reset_after(struct rig *r)
{
	struct genai_ticket t = {.seal = 77};

	r->barrier_ops.drain(r->self,
			     (struct genai_range){0, GENAI_RANGE_ALL_BYTES},
			     UINT64_MAX, NULL, NULL);
	return r->stream_ops.reset(r->self, &t, NULL);
}

int32_t rig_run(struct rig *r, struct rig_graph *g, struct rig_how *how,
		struct genai_error *err)
{
	const struct genai_executor_ops *x = how->captured ? &r->captured
							   : &r->eager;
	static struct sweep sweep;
	struct genai_pager pager = {0, 0, NULL};
	struct genai_pager_api papi = {&pager_ops, &pager};
	struct genai_view max[RIG_VALUES];
	struct genai_plan_options opts = {
		.size = sizeof(opts),
		.stream = &r->stream,
		.barrier = &r->barrier,
		.pager = &papi,
		.max_inputs = max,
		.n_max_inputs = g->g.n_inputs,
	};
	struct genai_ticket ticket = {.seal = 77};
	const struct genai_visit *visits = NULL;
	struct genai_plan *plan = NULL;
	struct genai_point done = {NULL, 0};
	uint32_t n = 0;
	int32_t rc;

	for (uint32_t i = 0; i < g->g.n_inputs; i++)
		max[i] = g->views[g->inputs[i]];
	rc = x->plan_create(r->self, &g->g, &opts, &plan, err);
	if (rc)
		return rc;
	sweep.n = 0;
	rc = x->plan_visits(plan, &visits, &n, err);
	if (!rc) {
		make_pages(r, g, visits, n, how->cut_rows, &pager, &sweep);
		rc = x->plan_set_pages(plan, sweep.pages, sweep.n, err);
	}
	if (!rc)
		rc = bind_all(r, g, x, plan, err);
	for (uint32_t i = 0; i < (how->steps ? how->steps : 1) && !rc; i++)
		rc = x->submit(plan, r->compute, NULL, 0, &done, err);
	if (!rc)
		rc = r->barrier_ops.host_read(r->self, &done, 1, UINT64_MAX,
					      err);
	if (rc)
		reset_after(r);
	how->stats.size = sizeof(how->stats);
	x->stats(plan, &how->stats, NULL);
	fetch_all(r, g);
	r->barrier_ops.drain(r->self,
			     (struct genai_range){0, GENAI_RANGE_ALL_BYTES},
			     UINT64_MAX, NULL, NULL);
	if (x->plan_destroy(plan, &ticket, NULL))
		fprintf(stderr, "plan_destroy failed\n");
	for (uint32_t i = 0; i < pager.n; i++)
		rig_free(r, pager.addr[i]);
	free(pager.addr);
	return rc;
}
