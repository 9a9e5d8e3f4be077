// queue.c - streams, what is enqueued on them, points; and the table.
#include "modules/cpu_ref/cpu_ref.h"
#include "modules/cpu_ref/simd.h"

#include <stdio.h>
#include <string.h>

struct cref_queued *cref_op_slot(const struct genai_stream *s, uint64_t i)
{
	return &s->ops[i & (s->cap - 1)];
}

// ---- enqueuing ----

static int32_t grow_stream(struct genai_stream *s, struct genai_error *err)
{
	struct cref_device *dev = s->dev;
	uint64_t cap = s->cap ? 2 * s->cap : 64;
	struct cref_queued *ops =
		dev->host->alloc(dev->host->ctx, cap * sizeof(*ops), "queue");

	if (!ops)
		return CREF_FAIL(dev, err, GENAI_E_NOMEM,
				 "no memory for %llu queued operations",
				 (unsigned long long)cap);
	for (uint64_t i = cref_done(s); i < s->tail; i++)
		ops[i & (cap - 1)] = *cref_op_slot(s, i);
	dev->host->free(dev->host->ctx, s->ops);
	s->ops = ops;
	s->cap = cap;
	return 0;
}

// Room for one more operation of a stream, in its queue or its recording.
int32_t cref_op_next(struct genai_stream *s, struct cref_queued **out_op,
		     struct genai_error *err)
{
	struct genai_recording *rec = s->rec;
	int32_t rc = 0;

	if (rec) {
		if (rec->n_ops == rec->cap)
			rc = cref_record_room(rec, err);
		if (rc) {
			rec->spoilt = rc;
			return rc;
		}
		*out_op = &rec->ops[rec->n_ops];
	} else {
		if (s->tail - cref_done(s) == s->cap)
			rc = grow_stream(s, err);
		if (rc)
			return rc;
		*out_op = cref_op_slot(s, s->tail);
	}
	(*out_op)->on = s;
	(*out_op)->n_mem = 0;
	(*out_op)->node = GENAI_NONE;
	(*out_op)->name = "";
	(*out_op)->may_stay = false;
	(*out_op)->mem_bytes = (*out_op)->link_bytes = 0;
	return 0;
}

void cref_op_commit(struct genai_stream *s, struct cref_queued *op)
{
	if (s->rec) {
		s->rec->n_ops++;
		s->rec->count[s->id]++;
	} else {
		op->seq = s->dev->seq++;
		if (s->dev->clock.on)
			cref_clock_enqueued(s, op);
		s->tail++;
		if (s->dev->schedule == CREF_THREADS)
			cref_thread_wake(s->dev);
	}
}

// Host pointer of device bytes, or an error that names who wanted them.
static int32_t translate(struct genai_stream *s, genai_addr addr,
			 uint64_t bytes, const char *what, uint32_t index,
			 struct cref_region **out_r, void **out_p,
			 struct genai_error *err)
{
	struct cref_region *r = cref_region_find(s->dev, addr, bytes);

	if (!r)
		return CREF_FAIL(s->dev, err, GENAI_E_INVAL,
				 "%s: access %u to %llu bytes at %#llx: not "
				 "mapped on the device",
				 what, index, (unsigned long long)bytes,
				 (unsigned long long)addr);
	*out_p = cref_host(addr);
	*out_r = r;
	return s->rec ? cref_record_region(s->rec, r->addr, err) : 0;
}

static int32_t resolve(struct genai_stream *s, struct cref_queued *op,
		       const struct genai_work *work,
		       const struct genai_access *acc, uint32_t n,
		       struct genai_error *err)
{
	struct cref_region *r = NULL;
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < n; i++) {
		op->mem[i] = NULL;
		if (acc[i].flags & ~(GENAI_READ | GENAI_WRITE | GENAI_SPARSE))
			return CREF_FAIL(s->dev, err, GENAI_E_UNSUPPORTED,
					 "%s: access %u: flags %#x are not "
					 "known",
					 work->name, i, acc[i].flags);
		if (!acc[i].bytes)
			continue;
		rc = translate(s, acc[i].addr, acc[i].bytes, work->name, i, &r,
			       &op->mem[i], err);
		if (!rc && s->dev->clock.on)
			cref_clock_access(op, &acc[i], r);
	}
	return rc;
}

static int32_t enqueue(struct cref_device *dev, struct genai_stream *s,
		       const struct genai_work *work,
		       const struct genai_access *acc, uint32_t n,
		       bool may_stay, struct genai_error *err)
{
	struct cref_queued *op;
	int32_t rc;

	if (n > CREF_MAX_ACCESS)
		return CREF_FAIL(dev, err, GENAI_E_LIMIT,
				 "%s: %u accesses, at most %u", work->name, n,
				 CREF_MAX_ACCESS);
	pthread_mutex_lock(&dev->lock);
	rc = cref_op_next(s, &op, err);
	if (!rc)
		rc = resolve(s, op, work, acc, n, err);
	if (!rc) {
		op->kind = CREF_UNIT;
		op->name = work->name;
		op->node = work->node;
		op->fn = work->fn;
		op->ctx = work->ctx;
		op->may_stay = may_stay;
		op->n_mem = n;
		cref_op_commit(s, op);
		dev->stats.launches++;
	} else if (s->rec) {
		s->rec->spoilt = rc;
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

static int32_t launch(void *self, struct genai_stream *s,
		      const struct genai_work *work,
		      const struct genai_access *acc, uint32_t n,
		      struct genai_error *err)
{
	return enqueue(self, s, work, acc, n, false, err);
}

static int32_t launch_open(void *self, struct genai_stream *s,
			   const struct genai_work *work,
			   const struct genai_access *acc, uint32_t n,
			   struct genai_error *err)
{
	return enqueue(self, s, work, acc, n, true, err);
}

// One end of a copy: host memory has to be pinned or registered.
static int32_t copy_end(struct genai_stream *s, uint64_t at, uint64_t bytes,
			bool on_host, uint32_t index, void **out_p,
			struct genai_error *err)
{
	struct cref_region *r;

	if (on_host && !cref_host_known(s->dev, at, bytes))
		return CREF_FAIL(s->dev, err, GENAI_E_INVAL,
				 "copy of %llu bytes: host memory at %#llx is "
				 "neither pinned nor registered",
				 (unsigned long long)bytes,
				 (unsigned long long)at);
	return translate(s, on_host ? at ^ CREF_ADDR_BIT : at, bytes, "copy",
			 index, &r, out_p, err);
}

static int32_t copy(void *self, struct genai_stream *s, uint64_t dst,
		    uint64_t src, uint64_t bytes, uint32_t kind,
		    struct genai_error *err)
{
	struct cref_device *dev = self;
	struct cref_queued *op;
	int32_t rc;

	if (kind < GENAI_COPY_H2D || kind > GENAI_COPY_D2D)
		return CREF_FAIL(dev, err, GENAI_E_INVAL,
				 "unknown kind of copy %u", kind);
	if (!bytes)
		return 0;
	pthread_mutex_lock(&dev->lock);
	rc = cref_op_next(s, &op, err);
	if (!rc)
		rc = copy_end(s, src, bytes, kind == GENAI_COPY_H2D, 1,
			      &op->mem[1], err);
	if (!rc)
		rc = copy_end(s, dst, bytes, kind == GENAI_COPY_D2H, 0,
			      &op->mem[0], err);
	if (!rc) {
		op->kind = CREF_COPY;
		op->name = "copy";
		op->bytes = bytes;
		op->copy_kind = kind;
		op->n_mem = 2;
		cref_op_commit(s, op);
	} else if (s->rec) {
		s->rec->spoilt = rc;
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

void cref_count_copy(struct cref_device *dev, uint32_t kind, uint64_t bytes)
{
	if (kind == GENAI_COPY_H2D)
		dev->stats.h2d_bytes += bytes;
	else if (kind == GENAI_COPY_D2H)
		dev->stats.d2h_bytes += bytes;
	else
		dev->stats.d2d_bytes += bytes;
}

// ---- points ----

static int32_t mark(void *self, struct genai_stream *s,
		    struct genai_point *out_point, struct genai_error *err)
{
	struct cref_device *dev = self;

	(void)err;
	pthread_mutex_lock(&dev->lock);
	out_point->stream = s;
	out_point->value =
		s->rec ? CREF_RECORDED(s->rec->serial, s->rec->count[s->id])
		       : s->tail;
	pthread_mutex_unlock(&dev->lock);
	return 0;
}

static int32_t wait_locked(struct genai_stream *s, struct genai_point p,
			   struct genai_error *err)
{
	struct cref_queued *op;
	int32_t rc;

	if (p.value & CREF_IN_RECORDING)
		return cref_record_wait(s, p, err);
	if (p.stream == s)
		return 0;
	if (s->known[p.stream->id] >= p.value)
		return 0;
	if (s->rec) {
		if (cref_done(p.stream) >= p.value)
			return 0;
		return CREF_FAIL(s->dev, err, GENAI_E_STATE,
				 "a recording of '%s' would wait for work of "
				 "'%s' outside it",
				 s->name, p.stream->name);
	}
	rc = cref_op_next(s, &op, err);
	if (rc)
		return rc;
	op->kind = CREF_WAIT;
	op->point = p;
	cref_op_commit(s, op);
	// what the other stream knew by then is known too, conservatively what
	// it knew at the time of the wait only if nothing came after the point
	if (p.stream->tail == p.value)
		for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
			if (s->known[i] < p.stream->known[i])
				s->known[i] = p.stream->known[i];
	s->known[p.stream->id] = p.value;
	return 0;
}

static int32_t stream_wait(void *self, struct genai_stream *s,
			   struct genai_point p, struct genai_error *err)
{
	struct cref_device *dev = self;
	int32_t rc;

	if (!p.stream)
		return 0;
	pthread_mutex_lock(&dev->lock);
	rc = wait_locked(s, p, err);
	if (rc && s->rec)
		s->rec->spoilt = rc;
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

static int32_t poll_point(void *self, struct genai_point point,
			  struct genai_error *err)
{
	struct cref_device *dev = self;
	int32_t rc;

	// streams' threads hold the lock for moments; without them another
	// thread may be inside a barrier, and makes the progress
	if (dev->schedule == CREF_THREADS)
		pthread_mutex_lock(&dev->lock);
	else if (pthread_mutex_trylock(&dev->lock))
		return GENAI_PENDING;
	rc = cref_point_state(&point, err);
	if (rc == GENAI_PENDING && dev->schedule != CREF_THREADS &&
	    cref_run_one(dev))
		rc = cref_point_state(&point, err);
	if (!rc && dev->clock.on)
		cref_clock_waited(dev, &point);
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

// ---- streams ----

static void free_stream(struct genai_stream *s)
{
	const struct genai_host *host = s->dev->host;

	host->free(host->ctx, s->ops);
	host->free(host->ctx, s->ends);
	host->free(host->ctx, s);
}

static struct genai_stream *new_stream(struct cref_device *dev,
				       const char *name)
{
	struct genai_stream *s =
		dev->host->alloc(dev->host->ctx, sizeof(*s), "stream");

	if (!s)
		return NULL;
	memset(s, 0, sizeof(*s));
	s->dev = dev;
	snprintf(s->name, sizeof(s->name), "%s", name ? name : "");
	if (!dev->clock.on)
		return s;
	s->ends = dev->host->alloc(dev->host->ctx, CREF_ENDS * sizeof(*s->ends),
				   "clock");
	if (s->ends)
		return s;
	free_stream(s);
	return NULL;
}

static int32_t add_stream(struct genai_stream *s, struct genai_error *err)
{
	struct cref_device *dev = s->dev;
	uint32_t id = 0;

	while (id < CREF_MAX_STREAMS && dev->streams[id])
		id++;
	if (id == CREF_MAX_STREAMS)
		return CREF_FAIL(dev, err, GENAI_E_LIMIT,
				 "more than %u streams", CREF_MAX_STREAMS);
	s->id = id;
	dev->streams[id] = s;
	// a reused number: nobody knows anything of the new stream
	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (dev->streams[i])
			dev->streams[i]->known[id] = 0;
	return 0;
}

static void remove_stream(struct genai_stream *s)
{
	struct cref_device *dev = s->dev;

	pthread_mutex_lock(&dev->lock);
	dev->streams[s->id] = NULL;
	pthread_mutex_unlock(&dev->lock);
	free_stream(s);
}

static int32_t create(void *self, const char *name,
		      struct genai_stream **out_stream, struct genai_error *err)
{
	struct cref_device *dev = self;
	struct genai_stream *s = new_stream(dev, name);
	int32_t rc;

	if (!s)
		return CREF_FAIL(dev, err, GENAI_E_NOMEM,
				 "no memory for a stream");
	pthread_mutex_lock(&dev->lock);
	rc = add_stream(s, err);
	pthread_mutex_unlock(&dev->lock);
	if (rc) {
		free_stream(s);
		return rc;
	}
	if (dev->schedule == CREF_THREADS)
		rc = cref_thread_start(s, err);
	if (rc)
		remove_stream(s);
	else
		*out_stream = s;
	return rc;
}

static int32_t destroy(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	struct cref_device *dev = self;
	int32_t rc = 0;

	pthread_mutex_lock(&dev->lock);
	if (cref_done(s) != s->tail || s->rec)
		rc = CREF_FAIL(dev, err, GENAI_E_BUSY,
			       "stream '%s' has queued work", s->name);
	else if (s->recordings)
		rc = CREF_FAIL(dev, err, GENAI_E_BUSY,
			       "stream '%s' is part of %u live recordings",
			       s->name, s->recordings);
	pthread_mutex_unlock(&dev->lock);
	if (rc)
		return rc;
	cref_thread_stop(s);
	remove_stream(s);
	return 0;
}

static int32_t reset(void *self, const struct genai_ticket *ticket,
		     struct genai_error *err)
{
	struct cref_device *dev = self;
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	int32_t rc = dev->host->ticket_check(dev->host->ctx, ticket, all, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&dev->lock);
	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (dev->streams[i])
			dev->streams[i]->poisoned = false;
	pthread_mutex_unlock(&dev->lock);
	return 0;
}

static int32_t caps(void *self, struct genai_stream_caps *out,
		    struct genai_error *err)
{
	struct cref_device *dev = self;
	struct genai_stream_caps c = {
		.size = sizeof(c),
		.flags = GENAI_STREAM_CAP_RECORD | GENAI_STREAM_CAP_IN_PLACE |
			 GENAI_STREAM_CAP_RESERVE | GENAI_STREAM_CAP_SIGNAL |
			 GENAI_STREAM_CAP_STAMPS,
		.device_kind = "sim",
		.total_bytes = UINT64_MAX,
		.free_bytes = UINT64_MAX,
		.alignment = 4096,
		.granule = UINT64_C(64) << 10,
	};

	(void)err;
	if (!dev->clock.link_bytes_per_s && !dev->clock.in_place_bytes_per_s)
		c.flags |= GENAI_STREAM_CAP_SHARED;
	if (dev->clock.on)
		c.flags |= GENAI_STREAM_CAP_RATES;
	snprintf(c.device_name, sizeof(c.device_name), "%s, %u thread%s, %s",
		 dev->clock.on ? "simulated device" : "CPU",
		 cref_pool_threads(dev->pool),
		 cref_pool_threads(dev->pool) == 1 ? "" : "s",
		 cref_simd_name());
	c.link_bytes_per_s = dev->clock.link_bytes_per_s;
	c.memory_bytes_per_s = dev->clock.memory_bytes_per_s;
	c.copy_latency_ns = dev->clock.copy_latency_ns;
	c.launch_ns = dev->clock.launch_ns;
	c.in_place_bytes_per_s = dev->clock.in_place_bytes_per_s;
	genai_struct_give(out, &c);
	return 0;
}

static int32_t stats(void *self, struct genai_stream_stats *out,
		     struct genai_error *err)
{
	struct cref_device *dev = self;

	(void)err;
	pthread_mutex_lock(&dev->lock);
	dev->stats.simulated_ns = dev->clock.makespan;
	dev->stats.device_used_bytes = dev->used_bytes;
	genai_struct_give(out, &dev->stats);
	pthread_mutex_unlock(&dev->lock);
	return 0;
}

const struct genai_stream_ops cref_stream_ops = {
	.size = sizeof(struct genai_stream_ops),
	.version = 1,
	.caps = caps,
	.alloc = cref_mem_alloc,
	.free = cref_mem_free,
	.reserve = cref_mem_reserve,
	.unreserve = cref_mem_unreserve,
	.map = cref_mem_map,
	.unmap = cref_mem_unmap,
	.host_register = cref_mem_register,
	.host_unregister = cref_mem_unregister,
	.create = create,
	.destroy = destroy,
	.mark = mark,
	.wait = stream_wait,
	.poll = poll_point,
	.copy = copy,
	.launch = launch,
	.launch_host = launch,
	.capture_begin = cref_capture_begin,
	.capture_end = cref_capture_end,
	.capture_abort = cref_capture_abort,
	.launch_graph = cref_launch_graph,
	.graph_destroy = cref_graph_destroy,
	.reset = reset,
	.stats = stats,
	.graph_edges = cref_graph_edges,
	.launch_open = launch_open,
	.signal = cref_signal,
	.stamp = cref_stamp,
	.elapsed = cref_elapsed,
};
