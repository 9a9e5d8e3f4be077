// device_table.c - the tables that modules get: checked, counted, passed on.
#include "core/device_impl.h"

#include <inttypes.h>
#include <pthread.h>

#include "core/base/error.h"

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
		rc = device_over_limit(d, bytes, tag, err);
	if (!rc)
		rc = d->raw.alloc(d->raw_self, kind, bytes, tag, &mem, err);
	if (!rc) {
		if (mem.range.bytes < bytes)
			rc = genai_fail(err, GENAI_E_MODULE,
					"alloc of %" PRIu64
					" bytes gave %" PRIu64,
					bytes, mem.range.bytes);
		else
			rc = device_book(d, mem.range, kind, tag, err);
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
	a = device_booked(d, addr);
	if (!a || a->kind == GENAI_MEM_MAPPED ||
	    (a->kind == GENAI_MEM_REGISTERED) != registered)
		rc = genai_fail(err, GENAI_E_INVAL,
				"%#" PRIx64 " is not the start of %s", addr,
				registered ? "registered memory"
					   : "an allocation");
	if (!rc)
		rc = device_may_go(d, a, ticket, err);
	if (!rc)
		rc = registered ? d->raw.host_unregister(d->raw_self, addr,
							 ticket, err)
				: d->raw.free(d->raw_self, addr, ticket, err);
	if (!rc)
		device_unbook(d, a);
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
		rc = device_book(d, mem.range, GENAI_MEM_REGISTERED,
				 "registered", err);
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
		rc = device_ticket_check(d, ticket, range, err);
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
	rc = device_over_limit(d, range.bytes, tag, err);
	if (!rc)
		rc = d->raw.map(d->raw_self, range, tag, err);
	if (!rc) {
		rc = device_book(d, range, GENAI_MEM_MAPPED, tag, err);
		if (rc)
			d->raw.unmap(d->raw_self, range, NULL, NULL);
	}
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
	a = device_booked(d, range.addr);
	if (!a || a->kind != GENAI_MEM_MAPPED || a->bytes != range.bytes)
		rc = genai_fail(err, GENAI_E_INVAL,
				"%" PRIu64 " bytes at %#" PRIx64
				" were not mapped as one range",
				range.bytes, range.addr);
	if (!rc)
		rc = device_may_go(d, a, ticket, err);
	if (!rc)
		rc = d->raw.unmap(d->raw_self, range, ticket, err);
	if (!rc)
		device_unbook(d, a);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

// ---- streams ----

static int32_t dev_caps(void *self, struct genai_stream_caps *out,
			struct genai_error *err)
{
	struct genai_device *d = self;

	if (!GENAI_HAS(out, flags))
		return genai_fail(err, GENAI_E_INVAL,
				  "stream caps of %u bytes: set the size first",
				  out->size);
	genai_struct_give(out, &d->caps);
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

static int32_t dev_copy(void *self, struct genai_stream *s, uint64_t dst,
			uint64_t src, uint64_t bytes, uint32_t kind,
			struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = genai_device_forked(d, err);

	if (rc || !bytes)
		return rc;
	genai_device_enqueue_begin(d);
	rc = d->raw.copy(d->raw_self, s, dst, src, bytes, kind, err);
	genai_device_enqueue_end(d);
	return rc;
}

static int32_t check_accesses(const struct genai_work *work,
			      const struct genai_access *acc, uint32_t n,
			      struct genai_error *err)
{
	for (uint32_t i = 0; i < n; i++)
		if (acc[i].flags & ~(GENAI_READ | GENAI_WRITE | GENAI_SPARSE))
			return genai_fail(err, GENAI_E_UNSUPPORTED,
					  "%s: access %u: flags %#x are not "
					  "known",
					  work->name, i, acc[i].flags);
	return 0;
}

static int32_t dev_launch(void *self, struct genai_stream *s,
			  const struct genai_work *work,
			  const struct genai_access *acc, uint32_t n,
			  struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = check_accesses(work, acc, n, err);

	if (rc)
		return rc;
	genai_device_enqueue_begin(d);
	rc = d->raw.launch(d->raw_self, s, work, acc, n, err);
	genai_device_enqueue_end(d);
	return rc;
}

static int32_t dev_launch_host(void *self, struct genai_stream *s,
			       const struct genai_work *work,
			       const struct genai_access *acc, uint32_t n,
			       struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = check_accesses(work, acc, n, err);

	if (rc)
		return rc;
	genai_device_enqueue_begin(d);
	rc = d->raw.launch_host(d->raw_self, s, work, acc, n, err);
	genai_device_enqueue_end(d);
	return rc;
}

static int32_t no_signal(struct genai_error *err)
{
	return genai_fail(err, GENAI_E_NOSYS,
			  "the stream runtime has no units that are signalled");
}

static int32_t dev_launch_open(void *self, struct genai_stream *s,
			       const struct genai_work *work,
			       const struct genai_access *acc, uint32_t n,
			       struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = d->raw.launch_open ? check_accesses(work, acc, n, err)
					: no_signal(err);

	if (rc)
		return rc;
	genai_device_enqueue_begin(d);
	rc = d->raw.launch_open(d->raw_self, s, work, acc, n, err);
	genai_device_enqueue_end(d);
	return rc;
}

static int32_t dev_signal(void *self, const void *ctx,
			  const struct genai_error *why,
			  struct genai_error *err)
{
	struct genai_device *d = self;

	if (!d->raw.signal)
		return no_signal(err);
	if (why && (why->code >= 0 || why->code < GENAI_E_ORDER))
		return genai_fail(err, GENAI_E_INVAL,
				  "signal: %d is no code of an error",
				  why->code);
	return d->raw.signal(d->raw_self, ctx, why, err);
}

static int32_t no_stamps(struct genai_error *err)
{
	return genai_fail(err, GENAI_E_NOSYS,
			  "the stream runtime makes no stamps");
}

static int32_t dev_stamp(void *self, struct genai_stream *s,
			 uint64_t *out_stamp, struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc =
		d->raw.stamp ? genai_device_forked(d, err) : no_stamps(err);

	if (rc)
		return rc;
	genai_device_enqueue_begin(d);
	rc = d->raw.stamp(d->raw_self, s, out_stamp, err);
	genai_device_enqueue_end(d);
	return rc;
}

static int32_t dev_elapsed(void *self, uint64_t from, uint64_t to,
			   int64_t *out_ns, struct genai_error *err)
{
	struct genai_device *d = self;

	return d->raw.elapsed
		       ? d->raw.elapsed(d->raw_self, from, to, out_ns, err)
		       : no_stamps(err);
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
	return d->raw.capture_begin ? d->raw.capture_begin(d->raw_self, s, err)
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

	return d->raw.capture_abort ? d->raw.capture_abort(d->raw_self, s, err)
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
	genai_device_enqueue_begin(d);
	rc = d->raw.launch_graph(d->raw_self, r, s, err);
	genai_device_enqueue_end(d);
	return rc;
}

static int32_t dev_graph_destroy(void *self, struct genai_recording *r,
				 const struct genai_ticket *ticket,
				 struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = device_ticket_check(
		d, ticket, (struct genai_range){0, GENAI_RANGE_ALL_BYTES}, err);

	if (rc || !r)
		return rc;
	return d->raw.graph_destroy
		       ? d->raw.graph_destroy(d->raw_self, r, ticket, err)
		       : no_record(err);
}

static int32_t dev_graph_edges(void *self, struct genai_recording *r,
			       struct genai_edge *out_edges, uint64_t cap,
			       uint64_t *out_n, struct genai_error *err)
{
	struct genai_device *d = self;

	if (!d->raw.graph_edges)
		return genai_fail(err, GENAI_E_NOSYS,
				  "the stream runtime does not tell what a "
				  "recording keeps");
	return d->raw.graph_edges(d->raw_self, r, out_edges, cap, out_n, err);
}

static int32_t dev_reset(void *self, const struct genai_ticket *ticket,
			 struct genai_error *err)
{
	struct genai_device *d = self;
	int32_t rc = device_ticket_check(
		d, ticket, (struct genai_range){0, GENAI_RANGE_ALL_BYTES}, err);

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

const struct genai_stream_ops genai_device_stream_table = {
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
	.graph_edges = dev_graph_edges,
	.launch_open = dev_launch_open,
	.signal = dev_signal,
	.stamp = dev_stamp,
	.elapsed = dev_elapsed,
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
	// those that had ended before the drain: any other that is inside its
	// call now, or begins from here on, makes the ticket stale
	struct genai_ticket t = {.size = sizeof(t),
				 .device = d->number,
				 .generation = atomic_load(&d->ended),
				 .range = range};
	int32_t rc = genai_device_forked(d, err);

	if (!rc)
		rc = d->raw_barrier.drain(d->barrier_self, range, deadline_ns,
					  NULL, err);
	if (rc)
		return rc;
	t.seal = device_seal(d, &t);
	*out = t;
	return 0;
}

const struct genai_barrier_ops genai_device_barrier_table = {
	.size = sizeof(struct genai_barrier_ops),
	.version = 1,
	.host_read = dev_host_read,
	.drain = dev_drain,
};
