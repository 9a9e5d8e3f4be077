// stream.c - queues and what is put into them: copies, declarations of kernels.
// The table of the interface.
#include <stdio.h>

#include "modules/cuda_ep/cep.h"
#include "modules/cuda_ep/timeline.h"

// To ask the host's threads and to meet them, beside copies: what a node with
// such rows took longer on an H200 than its rows.
#define HOST_LATENCY_NS 40000

static int32_t cep_caps(void *ctx, struct genai_stream_caps *out,
			struct genai_error *err)
{
	struct cep *self = ctx;
	struct genai_stream_caps c = {
		.size = sizeof(c),
		.flags = GENAI_STREAM_CAP_RECORD | GENAI_STREAM_CAP_NATIVE |
			 GENAI_STREAM_CAP_IN_PLACE | GENAI_STREAM_CAP_RESERVE |
			 GENAI_STREAM_CAP_SIGNAL,
		.device_kind = "cuda",
		.total_bytes = self->total_bytes,
		.alignment = 256,
		.granule = self->granule,
	};
	size_t free_bytes = 0, total = 0;
	uint64_t left;
	CUresult r;

	cep_enter(self);
	r = CU(self, cuMemGetInfo)(&free_bytes, &total);
	if (r)
		return cep_cuda_fail(self, err, r,
				     "cannot ask for free memory");
	left = cep_charged(self, NULL);
	left = self->limit > left ? self->limit - left : 0;
	memcpy(c.device_name, self->device_name, sizeof(c.device_name));
	c.free_bytes = free_bytes < left ? free_bytes : left;
	if (self->drv.cuEventElapsedTime)
		c.flags |= GENAI_STREAM_CAP_STAMPS;
	if (self->team) {
		c.link_bytes_per_s = self->link_rate;
		c.host_bytes_per_s = self->host_rate;
		c.host_latency_ns = HOST_LATENCY_NS;
		c.host_link_bytes_per_s = self->busy_link_rate;
	}
	genai_struct_give(out, &c);
	return 0;
}

static int32_t cep_create(void *ctx, const char *name,
			  struct genai_stream **out_stream,
			  struct genai_error *err)
{
	struct cep *self = ctx;
	struct genai_stream *s;
	uint32_t id = 0;
	CUresult r;

	s = self->host->alloc(self->host->ctx, sizeof(*s), "stream");
	if (!s)
		return cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
	memset(s, 0, sizeof(*s));
	s->self = self;
	snprintf(s->name, sizeof(s->name), "%s", name ? name : "");
	cep_enter(self);
	r = CU(self, cuStreamCreate)(&s->h, CU_STREAM_NON_BLOCKING);
	if (r) {
		self->host->free(self->host->ctx, s);
		return cep_cuda_fail(self, err, r, "cannot make stream %s",
				     name ? name : "");
	}
	pthread_mutex_lock(&self->lock);
	while (id < CEP_STREAMS && self->streams[id])
		id++;
	if (id < CEP_STREAMS) {
		s->id = id;
		// an id used before: forget what is known about its points
		for (uint32_t i = 0; i < CEP_STREAMS; i++)
			if (self->streams[i])
				self->streams[i]->line.clock[id] = 0;
		self->streams[id] = s;
	}
	pthread_mutex_unlock(&self->lock);
	if (id == CEP_STREAMS) {
		(void)self->drv.cuStreamDestroy(s->h);
		self->host->free(self->host->ctx, s);
		return cep_fail(self, err, GENAI_E_LIMIT,
				"more than %u streams", CEP_STREAMS);
	}
	*out_stream = s;
	return 0;
}

static void line_close(struct cep *self, struct cep_line *l)
{
	for (uint32_t i = 0; i < CEP_EVENTS; i++)
		if (l->events[i].h)
			(void)self->drv.cuEventDestroy(l->events[i].h);
}

static int32_t cep_destroy(void *ctx, struct genai_stream *s,
			   struct genai_error *err)
{
	struct cep *self = ctx;
	int32_t rc;

	if (!s)
		return 0;
	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	rc = s->recording ? GENAI_PENDING : cep_stream_idle(s, err);
	if (!rc) {
		pthread_mutex_lock(&self->call_lock);
		self->failed[s->id].code = 0;
		pthread_mutex_unlock(&self->call_lock);
		self->streams[s->id] = NULL;
		for (uint32_t i = 0; i < CEP_STREAMS; i++) {
			struct genai_stream *o = self->streams[i];

			for (uint32_t k = 0; o && k < CEP_EVENTS; k++)
				o->line.events[k].clock[s->id] = 0;
		}
	}
	pthread_mutex_unlock(&self->lock);
	if (rc == GENAI_PENDING)
		return cep_fail(self, err, GENAI_E_BUSY,
				"stream %s is not idle", s->name);
	if (rc)
		return rc;
	line_close(self, &s->line);
	line_close(self, &s->inner);
	(void)self->drv.cuStreamDestroy(s->h);
	self->host->free(self->host->ctx, s);
	return 0;
}

int32_t cep_count(struct genai_stream *s, bool owes_event,
		  struct genai_error *err)
{
	struct cep_line *l = cep_line_of(s);

	l->enqueued++;
	if (owes_event)
		l->owes_event = true;
	return s->recording ? cep_kept_unit(s, err) : 0;
}

struct genai_stream_stats *cep_stats_of(struct genai_stream *s)
{
	return s->recording ? &s->self->recording->per_replay : &s->self->stats;
}

// The host end of a copy: pinned or registered, or the copy would not be
// ordered at all.
static int32_t check_host(struct cep *self, uint64_t p, uint64_t bytes,
			  struct genai_error *err)
{
	struct cep_block *b = cep_block_find(self, p, bytes);

	if (b && b->host && (uint64_t)(uintptr_t)b->host == b->addr)
		return 0;
	b = cep_block_find_host(self, (const void *)(uintptr_t)p, bytes);
	if (b)
		return 0;
	return cep_fail(self, err, GENAI_E_INVAL,
			"copy: %llu bytes at host address 0x%llx are neither "
			"pinned nor registered",
			(unsigned long long)bytes, (unsigned long long)p);
}

static int32_t copy_checks(struct cep *self, uint64_t dst, uint64_t src,
			   uint64_t bytes, uint32_t kind,
			   struct genai_error *err)
{
	int32_t rc = 0;

	if (kind < GENAI_COPY_H2D || kind > GENAI_COPY_D2D)
		return cep_fail(self, err, GENAI_E_INVAL, "copy of kind %u",
				kind);
	if (kind == GENAI_COPY_H2D)
		rc = check_host(self, src, bytes, err);
	else
		rc = cep_block_touch(self, src, bytes, err);
	if (!rc && kind == GENAI_COPY_D2H)
		rc = check_host(self, dst, bytes, err);
	else if (!rc)
		rc = cep_block_touch(self, dst, bytes, err);
	if (!rc && kind == GENAI_COPY_H2D) {
		struct cep_block *b = cep_block_find_host(
			self, (const void *)(uintptr_t)src, bytes);

		rc = cep_block_touch(
			self,
			b->addr + (uint64_t)((char *)(uintptr_t)src - b->host),
			bytes, err);
	}
	return rc;
}

static int32_t cep_copy(void *ctx, struct genai_stream *s, uint64_t dst,
			uint64_t src, uint64_t bytes, uint32_t kind,
			struct genai_error *err)
{
	struct cep *self = ctx;
	struct genai_stream_stats *st;
	CUresult r = CUDA_SUCCESS;
	int32_t rc;

	if (!bytes)
		return 0;
	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	rc = copy_checks(self, dst, src, bytes, kind, err);
	if (rc || self->poison)
		goto out;
	st = cep_stats_of(s);
	if (kind == GENAI_COPY_H2D) {
		r = CU(self, cuMemcpyHtoDAsync)(
			dst, (const void *)(uintptr_t)src, bytes, s->h);
		st->h2d_bytes += bytes;
	} else if (kind == GENAI_COPY_D2H) {
		r = CU(self, cuMemcpyDtoHAsync)((void *)(uintptr_t)dst, src,
						bytes, s->h);
		st->d2h_bytes += bytes;
	} else {
		r = CU(self, cuMemcpyDtoDAsync)(dst, src, bytes, s->h);
		st->d2d_bytes += bytes;
	}
	if (r) {
		rc = cep_cuda_fail(self, err, r,
				   "stream %s: cannot copy %llu bytes", s->name,
				   (unsigned long long)bytes);
		goto out;
	}
	st->copies++;
	rc = cep_count(s, kind == GENAI_COPY_D2H, err);
out:
	if (rc && s->recording)
		self->spoilt = true;
	pthread_mutex_unlock(&self->lock);
	return rc;
}

int32_t cep_touch_all(struct cep *self, const struct genai_access *a,
		      uint32_t n, struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < n; i++)
		rc = a[i].flags & ~(GENAI_READ | GENAI_WRITE | GENAI_SPARSE)
			     ? cep_fail(self, err, GENAI_E_UNSUPPORTED,
					"access %u: flags %#x are not known", i,
					a[i].flags)
			     : cep_block_touch(self, a[i].addr, a[i].bytes,
					       err);
	return rc;
}

static int32_t cep_launch(void *ctx, struct genai_stream *s,
			  const struct genai_work *work,
			  const struct genai_access *accesses,
			  uint32_t n_accesses, struct genai_error *err)
{
	struct cep *self = ctx;
	int32_t rc;

	if (work->fn)
		return cep_fail(self, err, GENAI_E_INVAL,
				"%s: kernels are enqueued on native()",
				work->name ? work->name : "unit");
	pthread_mutex_lock(&self->lock);
	rc = cep_touch_all(self, accesses, n_accesses, err);
	if (!rc) {
		cep_stats_of(s)->launches++;
		rc = cep_count(s, false, err);
	}
	if (rc && s->recording)
		self->spoilt = true;
	pthread_mutex_unlock(&self->lock);
	return rc;
}

// ---- rest ----

static int32_t cep_reset(void *ctx, const struct genai_ticket *ticket,
			 struct genai_error *err)
{
	struct cep *self = ctx;
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	int32_t rc = GENAI_E_STATE;
	CUresult r;

	if (ticket)
		rc = self->host->ticket_check(self->host->ctx, ticket, all,
					      err);
	else
		cep_fail(self, err, rc, "reset needs a ticket of everything");
	if (rc)
		return rc;
	cep_enter(self);
	r = CU(self, cuMemsetD8Async)(self->fault_lock, 0, 256, self->service);
	if (!r)
		r = CU(self, cuStreamSynchronize)(self->service);
	if (r)
		return cep_cuda_fail(self, err, r, "cannot reset the device");
	pthread_mutex_lock(&self->call_lock);
	memset(self->fault, 0, sizeof(*self->fault));
	memset(self->failed, 0, sizeof(self->failed));
	self->poison = 0;
	pthread_mutex_unlock(&self->call_lock);
	return 0;
}

static int32_t cep_native(void *ctx, struct genai_stream *s, void **out_handle,
			  struct genai_error *err)
{
	(void)ctx;
	(void)err;
	*out_handle = s->h;
	return 0;
}

static int32_t cep_stats(void *ctx, struct genai_stream_stats *out,
			 struct genai_error *err)
{
	struct cep *self = ctx;
	struct genai_stream_stats st;
	size_t free_bytes = 0, total = 0;
	CUresult r;

	cep_enter(self);
	r = CU(self, cuMemGetInfo)(&free_bytes, &total);
	if (r)
		return cep_cuda_fail(self, err, r,
				     "cannot ask for free memory");
	pthread_mutex_lock(&self->lock);
	st = self->stats;
	pthread_mutex_unlock(&self->lock);
	st.size = sizeof(st);
	st.device_used_bytes = self->free_before > free_bytes
				       ? self->free_before - free_bytes
				       : 0;
	genai_struct_give(out, &st);
	return 0;
}

const struct genai_stream_ops cep_stream_ops = {
	.size = sizeof(struct genai_stream_ops),
	.version = 1,
	.caps = cep_caps,
	.alloc = cep_alloc,
	.free = cep_free,
	.reserve = cep_reserve,
	.unreserve = cep_unreserve,
	.map = cep_map,
	.unmap = cep_unmap,
	.host_register = cep_host_register,
	.host_unregister = cep_host_unregister,
	.create = cep_create,
	.destroy = cep_destroy,
	.mark = cep_mark,
	.wait = cep_wait,
	.poll = cep_poll,
	.copy = cep_copy,
	.launch = cep_launch,
	.launch_host = cep_launch_host,
	.capture_begin = cep_capture_begin,
	.capture_end = cep_capture_end,
	.capture_abort = cep_capture_abort,
	.launch_graph = cep_launch_graph,
	.graph_destroy = cep_graph_destroy,
	.reset = cep_reset,
	.native = cep_native,
	.stats = cep_stats,
	.graph_edges = cep_graph_edges,
	.launch_open = cep_launch_open,
	.signal = cep_signal,
	.stamp = cep_stamp,
	.elapsed = cep_elapsed,
};
