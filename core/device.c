// device.c - the core's tables in front of a stream runtime and its barrier.
#include "core/device.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/error.h"
#include "core/order.h"

#define ALL_BYTES GENAI_RANGE_ALL_BYTES

// ---- tickets ----

static uint64_t mix(uint64_t h, uint64_t v)
{
	h ^= v;
	h *= UINT64_C(0xff51afd7ed558ccd);
	return h ^ h >> 33;
}

static uint64_t seal_of(const struct genai_device *d,
			const struct genai_ticket *t)
{
	uint64_t h = d->key;

	h = mix(h, t->device);
	h = mix(h, t->generation);
	h = mix(h, t->range.addr);
	return mix(h, t->range.bytes);
}

static bool covers(struct genai_range outer, struct genai_range inner)
{
	if (outer.bytes == ALL_BYTES)
		return true;
	return inner.addr >= outer.addr && inner.bytes <= outer.bytes &&
	       inner.addr - outer.addr <= outer.bytes - inner.bytes;
}

static int32_t ticket_check(void *ctx, const struct genai_ticket *t,
			    struct genai_range range, struct genai_error *err)
{
	struct genai_device *d = ctx;
	uint64_t now = atomic_load(&d->generation);

	if (!t)
		return genai_fail(err, GENAI_E_STATE,
				  "no ticket: a drain must come first");
	if (t->size != sizeof(*t) || t->device != d->number)
		return genai_fail(err, GENAI_E_STATE,
				  "the ticket is of device %u, not %u",
				  t->device, d->number);
	if (t->seal != seal_of(d, t))
		return genai_fail(err, GENAI_E_STATE,
				  "the ticket was not made by a drain");
	if (t->generation != now)
		return genai_fail(err, GENAI_E_STATE,
				  "the ticket is stale: %" PRIu64
				  " units were enqueued since the drain",
				  now - t->generation);
	if (!covers(t->range, range))
		return genai_fail(err, GENAI_E_STATE,
				  "the ticket covers %" PRIu64
				  " bytes at %#" PRIx64 ", not %" PRIu64
				  " at %#" PRIx64,
				  t->range.bytes, t->range.addr, range.bytes,
				  range.addr);
	return 0;
}

// ---- books ----

int32_t genai_device_forked(const struct genai_device *d,
			    struct genai_error *err)
{
	if (d->pid == getpid())
		return 0;
	return genai_fail(err, GENAI_E_FORKED,
			  "the runtime belongs to process %d, this is %d",
			  (int)d->pid, (int)getpid());
}

static uint32_t line_of(struct genai_device *d, const char *tag)
{
	uint32_t i = 0;

	while (i < d->n_lines && strcmp(d->lines[i].tag, tag))
		i++;
	if (i < d->n_lines)
		return i;
	if (d->n_lines == GENAI_MAX_TAGS)
		return GENAI_MAX_TAGS - 1;
	snprintf(d->lines[i].tag, sizeof(d->lines[i].tag), "%s", tag);
	d->n_lines++;
	return i;
}

static bool on_device(uint32_t kind)
{
	return kind == GENAI_MEM_DEVICE || kind == GENAI_MEM_MAPPED;
}

static int32_t book(struct genai_device *d, struct genai_range r, uint32_t kind,
		    const char *tag, struct genai_error *err)
{
	struct genai_ledger_line *l;

	if (d->n_allocs == d->cap_allocs) {
		uint32_t cap = d->cap_allocs ? 2 * d->cap_allocs : 64;
		void *p = realloc(d->allocs, cap * sizeof(*d->allocs));

		if (!p)
			return genai_fail(err, GENAI_E_NOMEM,
					  "no memory for the ledger");
		d->allocs = p;
		d->cap_allocs = cap;
	}
	d->allocs[d->n_allocs++] = (struct genai_allocation){
		r.addr, r.bytes, atomic_load(&d->generation), kind,
		line_of(d, tag)};
	if (!on_device(kind)) {
		d->pinned += r.bytes;
		return 0;
	}
	l = &d->lines[line_of(d, tag)];
	l->now += r.bytes;
	if (l->peak < l->now)
		l->peak = l->now;
	d->used += r.bytes;
	if (d->peak < d->used)
		d->peak = d->used;
	return 0;
}

static struct genai_allocation *booked(struct genai_device *d, genai_addr addr)
{
	for (uint32_t i = 0; i < d->n_allocs; i++)
		if (d->allocs[i].addr == addr)
			return &d->allocs[i];
	return NULL;
}

static void unbook(struct genai_device *d, struct genai_allocation *a)
{
	if (on_device(a->kind)) {
		d->lines[a->tag].now -= a->bytes;
		d->used -= a->bytes;
	} else {
		d->pinned -= a->bytes;
	}
	*a = d->allocs[--d->n_allocs];
}

static int32_t over_limit(struct genai_device *d, uint64_t bytes,
			  const char *tag, struct genai_error *err)
{
	if (bytes <= d->limit && d->used <= d->limit - bytes)
		return 0;
	return genai_fail(err, GENAI_E_LIMIT,
			  "%" PRIu64 " bytes of %s do not fit: %" PRIu64
			  " of device_limit %" PRIu64 " are in use",
			  bytes, tag, d->used, d->limit);
}

// May the memory go?  Without a ticket only if nothing was enqueued since it
// was made.
static int32_t may_go(struct genai_device *d, const struct genai_allocation *a,
		      const struct genai_ticket *ticket,
		      struct genai_error *err)
{
	if (!ticket && a->generation == atomic_load(&d->generation))
		return 0;
	return ticket_check(d, ticket, (struct genai_range){a->addr, a->bytes},
			    err);
}

// ---- memory ----

static int32_t dev_alloc(void *self, uint32_t kind, uint64_t bytes,
			 const char *tag, struct genai_mem *out,
			 struct genai_error *err)
{
	struct genai_device *d = self;
	struct genai_mem mem = {.size = sizeof(mem)};
	int32_t rc = genai_device_forked(d, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&d->lock);
	if (kind == GENAI_MEM_DEVICE)
		rc = over_limit(d, bytes, tag, err);
	if (!rc)
		rc = d->raw.alloc(d->raw_self, kind, bytes, tag, &mem, err);
	if (!rc) {
		if (mem.range.bytes < bytes)
			rc = genai_fail(err, GENAI_E_MODULE,
					"alloc of %" PRIu64
					" bytes gave %" PRIu64,
					bytes, mem.range.bytes);
		else
			rc = book(d, mem.range, kind, tag, err);
		if (rc)
			d->raw.free(d->raw_self, mem.range.addr, NULL, NULL);
	}
	pthread_mutex_unlock(&d->lock);
	if (!rc)
		*out = mem;
	return rc;
}

static int32_t give_back(struct genai_device *d, genai_addr addr,
			 const struct genai_ticket *ticket, bool registered,
			 struct genai_error *err)
{
	struct genai_allocation *a;
	int32_t rc = genai_device_forked(d, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&d->lock);
	a = booked(d, addr);
	if (!a || a->kind == GENAI_MEM_MAPPED ||
	    (a->kind == GENAI_MEM_REGISTERED) != registered)
		rc = genai_fail(err, GENAI_E_INVAL,
				"%#" PRIx64 " is not the start of %s", addr,
				registered ? "registered memory"
					   : "an allocation");
	if (!rc)
		rc = may_go(d, a, ticket, err);
	if (!rc)
		rc = registered ? d->raw.host_unregister(d->raw_self, addr,
							 ticket, err)
				: d->raw.free(d->raw_self, addr, ticket, err);
	if (!rc)
		unbook(d, a);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static int32_t dev_free(void *self, genai_addr addr,
			const struct genai_ticket *ticket,
			struct genai_error *err)
{
	return give_back(self, addr, ticket, false, err);
}

static int32_t dev_register(void *self, const void *ptr, uint64_t bytes,
			    struct genai_mem *out, struct genai_error *err)
{
	struct genai_device *d = self;
	struct genai_mem mem = {.size = sizeof(mem)};
	int32_t rc = genai_device_forked(d, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&d->lock);
	rc = d->raw.host_register(d->raw_self, ptr, bytes, &mem, err);
	if (!rc) {
		rc = book(d, mem.range, GENAI_MEM_REGISTERED, "registered",
			  err);
		if (rc)
			d->raw.host_unregister(d->raw_self, mem.range.addr,
					       NULL, NULL);
	}
	pthread_mutex_unlock(&d->lock);
	if (!rc)
		*out = mem;
	return rc;
}

static int32_t dev_unregister(void *self, genai_addr addr,
			      const struct genai_ticket *ticket,
			      struct genai_error *err)
{
	return give_back(self, addr, ticket, true, err);
}

static int32_t no_reserve(struct genai_error *err)
{
	return genai_fail(err, GENAI_E_NOSYS,
			  "the stream runtime has no address ranges");
}

static int32_t dev_reserve(void *self, uint64_t bytes, struct genai_range *out,
			   struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = genai_device_forked(d, err);

	if (rc)
		return rc;
	if (!d->raw.reserve)
		return no_reserve(err);
	return d->raw.reserve(d->raw_self, bytes, out, err);
}

static int32_t dev_unreserve(void *self, struct genai_range range,
			     const struct genai_ticket *ticket,
			     struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = genai_device_forked(d, err);

	if (!rc && !d->raw.unreserve)
		rc = no_reserve(err);
	if (!rc)
		rc = ticket_check(d, ticket, range, err);
	if (!rc)
		rc = d->raw.unreserve(d->raw_self, range, ticket, err);
	return rc;
}

static int32_t dev_map(void *self, struct genai_range range, const char *tag,
		       struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = genai_device_forked(d, err);

	if (rc)
		return rc;
	if (!d->raw.map)
		return no_reserve(err);
	pthread_mutex_lock(&d->lock);
	rc = over_limit(d, range.bytes, tag, err);
	if (!rc)
		rc = d->raw.map(d->raw_self, range, tag, err);
	if (!rc)
		rc = book(d, range, GENAI_MEM_MAPPED, tag, err);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static int32_t dev_unmap(void *self, struct genai_range range,
			 const struct genai_ticket *ticket,
			 struct genai_error *err)
{
	struct genai_device *d = self;
	struct genai_allocation *a;
	int32_t rc = genai_device_forked(d, err);

	if (rc)
		return rc;
	if (!d->raw.unmap)
		return no_reserve(err);
	pthread_mutex_lock(&d->lock);
	a = booked(d, range.addr);
	if (!a || a->kind != GENAI_MEM_MAPPED || a->bytes != range.bytes)
		rc = genai_fail(err, GENAI_E_INVAL,
				"%" PRIu64 " bytes at %#" PRIx64
				" were not mapped as one range",
				range.bytes, range.addr);
	if (!rc)
		rc = may_go(d, a, ticket, err);
	if (!rc)
		rc = d->raw.unmap(d->raw_self, range, ticket, err);
	if (!rc)
		unbook(d, a);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

// ---- streams ----

static int32_t dev_caps(void *self, struct genai_stream_caps *out,
			struct genai_error *err)
{
	struct genai_device *d = self;

	(void)err;
	*out = d->caps;
	return 0;
}

static int32_t dev_create(void *self, const char *name,
			  struct genai_stream **out, struct genai_error *err)
{
	struct genai_device *d = self;
	struct genai_stream *s = NULL;
	int32_t rc = genai_device_forked(d, err);

	if (!rc)
		rc = d->raw.create(d->raw_self, name, &s, err);
	if (!rc && !s)
		rc = genai_fail(err, GENAI_E_MODULE,
				"create of stream %s gave nothing", name);
	if (!rc)
		*out = s;
	return rc;
}

static int32_t dev_destroy(void *self, struct genai_stream *s,
			   struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = genai_device_forked(d, err);

	if (rc || !s)
		return rc;
	return d->raw.destroy(d->raw_self, s, err);
}

static int32_t dev_mark(void *self, struct genai_stream *s,
			struct genai_point *out, struct genai_error *err)
{
	struct genai_device *d = self;

	return d->raw.mark(d->raw_self, s, out, err);
}

static int32_t dev_wait(void *self, struct genai_stream *s,
			struct genai_point p, struct genai_error *err)
{
	struct genai_device *d = self;

	if (!p.stream)
		return 0;
	return d->raw.wait(d->raw_self, s, p, err);
}

static int32_t dev_poll(void *self, struct genai_point p,
			struct genai_error *err)
{
	struct genai_device *d = self;

	if (!p.stream)
		return 0;
	return d->raw.poll(d->raw_self, p, err);
}

static void enqueued(struct genai_device *d)
{
	atomic_fetch_add_explicit(&d->generation, 1, memory_order_relaxed);
}

static int32_t dev_copy(void *self, struct genai_stream *s, uint64_t dst,
			uint64_t src, uint64_t bytes, uint32_t kind,
			struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = genai_device_forked(d, err);

	if (rc || !bytes)
		return rc;
	enqueued(d);
	return d->raw.copy(d->raw_self, s, dst, src, bytes, kind, err);
}

static int32_t dev_launch(void *self, struct genai_stream *s,
			  const struct genai_work *work,
			  const struct genai_access *acc, uint32_t n,
			  struct genai_error *err)
{
	struct genai_device *d = self;

	enqueued(d);
	return d->raw.launch(d->raw_self, s, work, acc, n, err);
}

static int32_t dev_launch_host(void *self, struct genai_stream *s,
			       const struct genai_work *work,
			       const struct genai_access *acc, uint32_t n,
			       struct genai_error *err)
{
	struct genai_device *d = self;

	enqueued(d);
	return d->raw.launch_host(d->raw_self, s, work, acc, n, err);
}

static int32_t no_record(struct genai_error *err)
{
	return genai_fail(err, GENAI_E_NOSYS,
			  "the stream runtime does not record");
}

static int32_t dev_capture_begin(void *self, struct genai_stream *s,
				 struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = genai_device_forked(d, err);

	if (rc)
		return rc;
	return d->raw.capture_begin
		       ? d->raw.capture_begin(d->raw_self, s, err)
		       : no_record(err);
}

static int32_t dev_capture_end(void *self, struct genai_stream *s,
			       struct genai_recording **out,
			       struct genai_error *err)
{
	struct genai_device *d = self;

	return d->raw.capture_end ? d->raw.capture_end(d->raw_self, s, out, err)
				  : no_record(err);
}

static int32_t dev_capture_abort(void *self, struct genai_stream *s,
				 struct genai_error *err)
{
	struct genai_device *d = self;

	return d->raw.capture_abort
		       ? d->raw.capture_abort(d->raw_self, s, err)
		       : no_record(err);
}

static int32_t dev_launch_graph(void *self, struct genai_recording *r,
				struct genai_stream *s, struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = genai_device_forked(d, err);

	if (rc)
		return rc;
	if (!d->raw.launch_graph)
		return no_record(err);
	enqueued(d);
	return d->raw.launch_graph(d->raw_self, r, s, err);
}

static int32_t dev_graph_destroy(void *self, struct genai_recording *r,
				 const struct genai_ticket *ticket,
				 struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = ticket_check(d, ticket, (struct genai_range){0, ALL_BYTES},
				  err);

	if (rc || !r)
		return rc;
	return d->raw.graph_destroy
		       ? d->raw.graph_destroy(d->raw_self, r, ticket, err)
		       : no_record(err);
}

static int32_t dev_reset(void *self, const struct genai_ticket *ticket,
			 struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = ticket_check(d, ticket, (struct genai_range){0, ALL_BYTES},
				  err);

	return rc ? rc : d->raw.reset(d->raw_self, ticket, err);
}

static int32_t dev_native(void *self, struct genai_stream *s, void **out,
			  struct genai_error *err)
{
	struct genai_device *d = self;

	if (!d->raw.native)
		return genai_fail(err, GENAI_E_NOSYS,
				  "the stream runtime has no native handle");
	return d->raw.native(d->raw_self, s, out, err);
}

static int32_t dev_stats(void *self, struct genai_stream_stats *out,
			 struct genai_error *err)
{
	struct genai_device *d = self;

	return d->raw.stats(d->raw_self, out, err);
}

static const struct genai_stream_ops stream_table = {
	.size = sizeof(struct genai_stream_ops),
	.version = 1,
	.caps = dev_caps,
	.alloc = dev_alloc,
	.free = dev_free,
	.reserve = dev_reserve,
	.unreserve = dev_unreserve,
	.map = dev_map,
	.unmap = dev_unmap,
	.host_register = dev_register,
	.host_unregister = dev_unregister,
	.create = dev_create,
	.destroy = dev_destroy,
	.mark = dev_mark,
	.wait = dev_wait,
	.poll = dev_poll,
	.copy = dev_copy,
	.launch = dev_launch,
	.launch_host = dev_launch_host,
	.capture_begin = dev_capture_begin,
	.capture_end = dev_capture_end,
	.capture_abort = dev_capture_abort,
	.launch_graph = dev_launch_graph,
	.graph_destroy = dev_graph_destroy,
	.reset = dev_reset,
	.native = dev_native,
	.stats = dev_stats,
};

// ---- barrier ----

static int32_t dev_host_read(void *self, const struct genai_point *points,
			     uint32_t n, uint64_t deadline_ns,
			     struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = genai_device_forked(d, err);

	if (rc)
		return rc;
	return d->raw_barrier.host_read(d->barrier_self, points, n, deadline_ns,
					err);
}

static int32_t dev_drain(void *self, struct genai_range range,
			 uint64_t deadline_ns, struct genai_ticket *out,
			 struct genai_error *err)
{
	struct genai_device *d = self;
	// read before the drain: what comes in between makes the ticket stale
	uint64_t generation = atomic_load(&d->generation);
	struct genai_ticket t = {.size = sizeof(t),
				 .device = d->number,
				 .generation = generation,
				 .range = range};
	int32_t rc = genai_device_forked(d, err);

	if (!rc)
		rc = d->raw_barrier.drain(d->barrier_self, range, deadline_ns,
					  NULL, err);
	if (rc)
		return rc;
	t.seal = seal_of(d, &t);
	*out = t;
	return 0;
}

static const struct genai_barrier_ops barrier_table = {
	.size = sizeof(struct genai_barrier_ops),
	.version = 1,
	.host_read = dev_host_read,
	.drain = dev_drain,
};

// ---- life ----

#define SLOT(type, name) {offsetof(struct type, name), #name}
struct slot {
	uint32_t offset;
	const char *name;
};

static int32_t get_table(struct genai_module *m, const char *type,
			 const char *name, void *ops, uint32_t bytes,
			 const struct slot *slots, uint32_t n,
			 struct genai_error *err)
{
	uint32_t offsets[32];
	const char *names[32];

	for (uint32_t i = 0; i < n; i++) {
		offsets[i] = slots[i].offset;
		names[i] = slots[i].name;
	}
	return genai_module_get_iface(m, type, name, ops, bytes, offsets, names,
				      n, NULL, err);
}

static int32_t check_caps(struct genai_device *d, const char *module,
			  struct genai_error *err)
{
	const struct genai_stream_caps *c = &d->caps;

	if (!memchr(c->device_kind, 0, sizeof(c->device_kind)) ||
	    !memchr(c->device_name, 0, sizeof(c->device_name)) ||
	    !c->device_kind[0])
		return genai_fail(err, GENAI_E_MODULE,
				  "module %s: device kind or name is not a "
				  "string",
				  module);
	if (!c->alignment || c->alignment & (c->alignment - 1) ||
	    (c->flags & GENAI_STREAM_CAP_RESERVE &&
	     (!c->granule || c->granule & (c->granule - 1))))
		return genai_fail(err, GENAI_E_MODULE,
				  "module %s: alignment %" PRIu64
				  " or granule %" PRIu64
				  " is not a power of two",
				  module, c->alignment, c->granule);
	if ((c->flags & GENAI_STREAM_CAP_RECORD &&
	     (!d->raw.capture_begin || !d->raw.capture_end ||
	      !d->raw.capture_abort || !d->raw.launch_graph ||
	      !d->raw.graph_destroy)) ||
	    (c->flags & GENAI_STREAM_CAP_RESERVE &&
	     (!d->raw.reserve || !d->raw.unreserve || !d->raw.map ||
	      !d->raw.unmap)) ||
	    (c->flags & GENAI_STREAM_CAP_NATIVE && !d->raw.native))
		return genai_fail(err, GENAI_E_MODULE,
				  "module %s claims a capability (%#x) whose "
				  "functions it lacks",
				  module, c->flags);
	return 0;
}

int32_t genai_device_open(struct genai_device *d, struct genai_module *stream,
			  const char *stream_name, struct genai_module *barrier,
			  const char *barrier_name, uint32_t number,
			  const struct genai_log *log, struct genai_error *err)
{
	static const struct slot stream_slots[] = {
		SLOT(genai_stream_ops, caps),
		SLOT(genai_stream_ops, alloc),
		SLOT(genai_stream_ops, free),
		SLOT(genai_stream_ops, host_register),
		SLOT(genai_stream_ops, host_unregister),
		SLOT(genai_stream_ops, create),
		SLOT(genai_stream_ops, destroy),
		SLOT(genai_stream_ops, mark),
		SLOT(genai_stream_ops, wait),
		SLOT(genai_stream_ops, poll),
		SLOT(genai_stream_ops, copy),
		SLOT(genai_stream_ops, launch),
		SLOT(genai_stream_ops, launch_host),
		SLOT(genai_stream_ops, reset),
		SLOT(genai_stream_ops, stats),
	};
	static const struct slot barrier_slots[] = {
		SLOT(genai_barrier_ops, host_read),
		SLOT(genai_barrier_ops, drain),
	};
	int32_t rc;

	memset(d, 0, sizeof(*d));
	pthread_mutex_init(&d->lock, NULL);
	d->pid = getpid();
	d->number = number;
	d->limit = UINT64_MAX;
	d->log = log;
	if (getrandom(&d->key, sizeof(d->key), 0) != sizeof(d->key))
		d->key = (uintptr_t)d ^ (uint64_t)d->pid << 32;
	d->stream = (struct genai_stream_api){&stream_table, d};
	d->barrier = (struct genai_barrier_api){&barrier_table, d};
	d->raw_self = genai_module_self(stream);
	d->barrier_self = genai_module_self(barrier);
	rc = get_table(stream, GENAI_IFACE_STREAM, stream_name, &d->raw,
		       sizeof(d->raw), stream_slots,
		       sizeof(stream_slots) / sizeof(stream_slots[0]), err);
	if (!rc)
		rc = get_table(barrier, GENAI_IFACE_BARRIER, barrier_name,
			       &d->raw_barrier, sizeof(d->raw_barrier),
			       barrier_slots, 2, err);
	d->caps.size = sizeof(d->caps);
	if (!rc)
		rc = d->raw.caps(d->raw_self, &d->caps, err);
	if (!rc)
		rc = check_caps(d, genai_module_name(stream), err);
	if (rc) {
		pthread_mutex_destroy(&d->lock);
		return rc;
	}
	return 0;
}

void genai_device_serve(struct genai_device *d, struct genai_module *m)
{
	genai_host_set_ticket_check(genai_module_host(m), ticket_check, d);
}

int32_t genai_device_check_order(struct genai_device *d,
				 struct genai_error *err)
{
	return genai_order_open(&d->raw, &d->raw_self, &d->raw_barrier,
				&d->barrier_self, &d->order, err);
}

void genai_device_set_limit(struct genai_device *d, uint64_t limit)
{
	d->limit = limit;
}

int32_t genai_device_drain(struct genai_device *d, struct genai_ticket *out,
			   struct genai_error *err)
{
	return dev_drain(d, (struct genai_range){0, ALL_BYTES}, UINT64_MAX, out,
			 err);
}

void genai_device_close(struct genai_device *d)
{
	for (uint32_t i = 0; i < d->n_allocs; i++)
		genai_log_line(d->log, GENAI_LOG_ERROR,
			       "%" PRIu64 " bytes of %s were not given back",
			       d->allocs[i].bytes,
			       d->lines[d->allocs[i].tag].tag);
	genai_order_close(d->order);
	free(d->allocs);
	pthread_mutex_destroy(&d->lock);
}
