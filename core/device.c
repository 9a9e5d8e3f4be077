// device.c - a device's life, its tickets, its ledger of memory.
#include "core/device_impl.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/layer.h"
#include "core/order/order.h"

// ---- tickets ----

static uint64_t mix(uint64_t h, uint64_t v)
{
	h ^= v;
	h *= UINT64_C(0xff51afd7ed558ccd);
	return h ^ h >> 33;
}

uint64_t device_seal(const struct genai_device *d, const struct genai_ticket *t)
{
	uint64_t h = d->key;

	h = mix(h, t->device);
	h = mix(h, t->generation);
	h = mix(h, t->range.addr);
	return mix(h, t->range.bytes);
}

static bool covers(struct genai_range outer, struct genai_range inner)
{
	if (outer.bytes == GENAI_RANGE_ALL_BYTES)
		return true;
	return inner.addr >= outer.addr && inner.bytes <= outer.bytes &&
	       inner.addr - outer.addr <= outer.bytes - inner.bytes;
}

int32_t device_ticket_check(void *ctx, const struct genai_ticket *t,
			    struct genai_range range, struct genai_error *err)
{
	struct genai_device *d = ctx;
	uint64_t now = atomic_load(&d->begun);

	if (!t)
		return genai_fail(err, GENAI_E_STATE,
				  "no ticket: a drain must come first");
	if (t->size != sizeof(*t) || t->device != d->number)
		return genai_fail(err, GENAI_E_STATE,
				  "the ticket is of device %u, not %u",
				  t->device, d->number);
	if (t->seal != device_seal(d, t))
		return genai_fail(err, GENAI_E_STATE,
				  "the ticket was not made by a drain");
	if (t->generation != now)
		return genai_fail(err, GENAI_E_STATE,
				  "the ticket is stale: %" PRIu64
				  " units were enqueued since the drain",
				  now - t->generation);
	if (!covers(t->range, range))
		return genai_fail(
			err, GENAI_E_STATE,
			"the ticket covers %" PRIu64 " bytes at %#" PRIx64
			", not %" PRIu64 " at %#" PRIx64,
			t->range.bytes, t->range.addr, range.bytes, range.addr);
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

int32_t device_book(struct genai_device *d, struct genai_range r, uint32_t kind,
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
		r.addr, r.bytes, atomic_load(&d->begun), kind, line_of(d, tag)};
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

struct genai_allocation *device_booked(struct genai_device *d, genai_addr addr)
{
	for (uint32_t i = 0; i < d->n_allocs; i++)
		if (d->allocs[i].addr == addr)
			return &d->allocs[i];
	return NULL;
}

void device_unbook(struct genai_device *d, struct genai_allocation *a)
{
	if (on_device(a->kind)) {
		d->lines[a->tag].now -= a->bytes;
		d->used -= a->bytes;
	} else {
		d->pinned -= a->bytes;
	}
	*a = d->allocs[--d->n_allocs];
}

// The bytes that the host has.  Where a device shares them, an allocation may
// succeed beyond that, and the kernel kills the process when it is written.
static uint64_t host_bytes(const struct genai_device *d)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	if (!(d->caps.flags & GENAI_STREAM_CAP_SHARED) || pages < 1 || page < 1)
		return UINT64_MAX;
	return (uint64_t)pages * (uint64_t)page;
}

int32_t device_over_limit(struct genai_device *d, uint64_t bytes,
			  const char *tag, struct genai_error *err)
{
	uint64_t host = host_bytes(d);

	if (bytes > host || d->used > host - bytes)
		return genai_fail(err, GENAI_E_LIMIT,
				  "%" PRIu64 " bytes of %s do not fit: %" PRIu64
				  " of the host's %" PRIu64 " are in use",
				  bytes, tag, d->used, host);
	if (bytes <= d->limit && d->used <= d->limit - bytes)
		return 0;
	return genai_fail(err, GENAI_E_LIMIT,
			  "%" PRIu64 " bytes of %s do not fit: %" PRIu64
			  " of device_limit %" PRIu64 " are in use",
			  bytes, tag, d->used, d->limit);
}

// May the memory go?  Without a ticket only if nothing was enqueued since it
// was made.
int32_t device_may_go(struct genai_device *d, const struct genai_allocation *a,
		      const struct genai_ticket *ticket,
		      struct genai_error *err)
{
	if (!ticket && a->begun == atomic_load(&d->begun))
		return 0;
	return device_ticket_check(
		d, ticket, (struct genai_range){a->addr, a->bytes}, err);
}

// ---- life ----

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
	    (c->flags & GENAI_STREAM_CAP_NATIVE && !d->raw.native) ||
	    (c->flags & GENAI_STREAM_CAP_SIGNAL &&
	     (!d->raw.launch_open || !d->raw.signal)) ||
	    (c->flags & GENAI_STREAM_CAP_STAMPS &&
	     (!d->raw.stamp || !d->raw.elapsed)))
		return genai_fail(err, GENAI_E_MODULE,
				  "module %s claims a capability (%#x) whose "
				  "functions it lacks",
				  module, c->flags);
	return 0;
}

// What this process uses before it allocates: the driver, other runtimes.
static int32_t book_driver(struct genai_device *d, struct genai_error *err)
{
	struct genai_stream_stats st = {.size = sizeof(st)};
	int32_t rc = d->raw.stats(d->raw_self, &st, err);
	struct genai_ledger_line *l;

	if (rc || !st.device_used_bytes ||
	    st.device_used_bytes > d->caps.total_bytes)
		return rc;
	l = &d->lines[line_of(d, "driver")];
	l->now = l->peak = d->used = d->peak = st.device_used_bytes;
	return 0;
}

int32_t genai_device_open(struct genai_device *d, struct genai_module *stream,
			  const char *stream_name, struct genai_module *barrier,
			  const char *barrier_name, uint32_t number,
			  const struct genai_log *log, struct genai_error *err)
{
	int32_t rc;

	// a barrier of another module waits for a device of its own
	if (stream != barrier)
		return genai_fail(err, GENAI_E_CONFIG,
				  "stream = %s and barrier = %s: the barrier "
				  "has to be of the module that drives the "
				  "device",
				  genai_module_name(stream),
				  genai_module_name(barrier));
	memset(d, 0, sizeof(*d));
	pthread_mutex_init(&d->lock, NULL);
	d->pid = getpid();
	d->number = number;
	d->limit = UINT64_MAX;
	d->log = log;
	if (getrandom(&d->key, sizeof(d->key), 0) != sizeof(d->key))
		d->key = (uintptr_t)d ^ (uint64_t)d->pid << 32;
	d->stream = (struct genai_stream_api){&genai_device_stream_table, d};
	d->barrier = (struct genai_barrier_api){&genai_device_barrier_table, d};
	d->raw_self = genai_module_self(stream);
	d->barrier_self = genai_module_self(barrier);
	rc = genai_module_get_iface(stream, GENAI_IFACE_STREAM, stream_name,
				    &d->raw, sizeof(d->raw), err);
	if (!rc)
		rc = genai_module_get_iface(barrier, GENAI_IFACE_BARRIER,
					    barrier_name, &d->raw_barrier,
					    sizeof(d->raw_barrier), err);
	d->caps.size = sizeof(d->caps);
	if (!rc)
		rc = d->raw.caps(d->raw_self, &d->caps, err);
	if (!rc)
		rc = check_caps(d, genai_module_name(stream), err);
	if (!rc)
		rc = book_driver(d, err);
	if (rc) {
		pthread_mutex_destroy(&d->lock);
		return rc;
	}
	return 0;
}

int32_t genai_device_add_layer(struct genai_device *d, struct genai_module *m,
			       const char *name,
			       const struct genai_init_params *params,
			       struct genai_error *err)
{
	struct genai_stack s = {d->raw, d->raw_barrier, d->raw_self,
				d->barrier_self};
	int32_t rc = genai_layer_start(m, name, params, &s, err);

	if (rc)
		return rc;
	d->raw = s.stream;
	d->raw_barrier = s.barrier;
	d->raw_self = s.stream_self;
	d->barrier_self = s.barrier_self;
	d->caps.size = sizeof(d->caps);
	rc = d->raw.caps(d->raw_self, &d->caps, err);
	return rc ? rc : check_caps(d, genai_module_name(m), err);
}

void genai_device_serve(struct genai_device *d, struct genai_module *m)
{
	genai_host_set_ticket_check(genai_module_host(m), device_ticket_check,
				    d);
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
	return d->barrier.ops->drain(
		d, (struct genai_range){0, GENAI_RANGE_ALL_BYTES}, UINT64_MAX,
		out, err);
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
