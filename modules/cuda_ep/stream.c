// stream.c - queues and what is put into them: copies, declarations of kernels,
// host functions.  The table of the interface.
#include <stdio.h>

#include "modules/cuda_ep/cep.h"
#include "modules/cuda_ep/timeline.h"

static int32_t cep_caps(void *ctx, struct genai_stream_caps *out,
			struct genai_error *err)
{
	struct cep *self = ctx;
	struct genai_stream_caps c = {
		.size = sizeof(c),
		.flags = GENAI_STREAM_CAP_RECORD | GENAI_STREAM_CAP_NATIVE |
			 GENAI_STREAM_CAP_IN_PLACE | GENAI_STREAM_CAP_RESERVE,
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

// One more unit; the caller holds the lock.
static void count(struct cep *self, struct genai_stream *s, bool owes_event)
{
	struct cep_line *l = cep_line_of(s);

	l->enqueued++;
	if (owes_event)
		l->owes_event = true;
	(void)self;
}

static struct genai_stream_stats *stats_of(struct cep *self,
					   struct genai_stream *s)
{
	return s->recording ? &self->recording->per_replay : &self->stats;
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
	st = stats_of(self, s);
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
	count(self, s, kind == GENAI_COPY_D2H);
out:
	if (rc && s->recording)
		self->spoilt = true;
	pthread_mutex_unlock(&self->lock);
	return rc;
}

static int32_t touch_all(struct cep *self, const struct genai_access *a,
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
	rc = touch_all(self, accesses, n_accesses, err);
	if (!rc) {
		stats_of(self, s)->launches++;
		count(self, s, false);
	}
	pthread_mutex_unlock(&self->lock);
	return rc;
}

// ---- host functions ----

// A unit failed: recorded ones take the device with them, for nobody knows
// which replay it was; the others their stream.
static void call_failed(struct cep_call *c, int32_t code,
			struct genai_error *err)
{
	struct cep *self = c->self;
	struct cep_failure *f = &self->failed[c->stream];
	char text[sizeof(err->text)];

	err->node = c->work.node;
	memcpy(text, err->text, sizeof(text));
	if (c->work.name && !strstr(text, c->work.name))
		snprintf(err->text, sizeof(err->text), "%s: %.400s",
			 c->work.name, text);
	if (c->recording) {
		cep_poison_set(self, code, err);
		return;
	}
	pthread_mutex_lock(&self->call_lock);
	if (!f->code) {
		f->err = *err;
		f->value = c->value;
		f->code = code;
	}
	pthread_mutex_unlock(&self->call_lock);
}

static void CUDA_CB run_call(void *data)
{
	struct cep_call *c = data;
	struct cep *self = c->self;
	struct genai_error err = GENAI_ERROR_INIT;
	bool skip;
	int32_t rc;

	pthread_mutex_lock(&self->call_lock);
	skip = self->poison ||
	       cep_failure_before(self, c->stream, c->value, c->clock);
	pthread_mutex_unlock(&self->call_lock);
	if (!skip && !((volatile struct cep_fault *)self->fault)->set) {
		rc = c->work.fn(c->work.ctx, c->mem, &err);
		if (rc < 0)
			call_failed(c, rc, &err);
	}
	pthread_mutex_lock(&self->call_lock);
	c->done = true;
	pthread_mutex_unlock(&self->call_lock);
}

void cep_calls_free(struct cep *self, bool all)
{
	struct cep_call **at = &self->calls, *c;

	pthread_mutex_lock(&self->call_lock);
	while ((c = *at)) {
		if (!c->done && !all) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		self->host->free(self->host->ctx, c);
	}
	pthread_mutex_unlock(&self->call_lock);
}

static int32_t call_new(struct cep *self, const struct genai_work *work,
			const struct genai_access *a, uint32_t n,
			struct cep_call **out_c, struct genai_error *err)
{
	struct cep_call *c = self->host->alloc(
		self->host->ctx, sizeof(*c) + n * sizeof(void *), "host unit");

	if (!c)
		return cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
	memset(c, 0, sizeof(*c) + n * sizeof(void *));
	c->self = self;
	c->work = *work;
	c->n_mem = n;
	for (uint32_t i = 0; i < n; i++) {
		struct cep_block *b;

		if (!a[i].bytes)
			continue;
		b = cep_block_find(self, a[i].addr, a[i].bytes);
		if (!b || !b->host) {
			self->host->free(self->host->ctx, c);
			return cep_fail(self, err, GENAI_E_INVAL,
					"%s: the host cannot reach 0x%llx",
					work->name ? work->name : "unit",
					(unsigned long long)a[i].addr);
		}
		c->mem[i] = b->host + (a[i].addr - b->addr);
	}
	*out_c = c;
	return 0;
}

// It may have run by now.
static void keep_call(struct cep *self, struct cep_call *c)
{
	pthread_mutex_lock(&self->call_lock);
	c->next = self->calls;
	self->calls = c;
	pthread_mutex_unlock(&self->call_lock);
}

static int32_t cep_launch_host(void *ctx, struct genai_stream *s,
			       const struct genai_work *work,
			       const struct genai_access *accesses,
			       uint32_t n_accesses, struct genai_error *err)
{
	struct cep *self = ctx;
	struct cep_call *c = NULL;
	CUresult r;
	int32_t rc;

	if (!work->fn)
		return cep_fail(self, err, GENAI_E_INVAL,
				"host unit without a function");
	cep_enter(self);
	cep_calls_free(self, false);
	pthread_mutex_lock(&self->lock);
	rc = touch_all(self, accesses, n_accesses, err);
	if (!rc)
		rc = call_new(self, work, accesses, n_accesses, &c, err);
	if (!rc) {
		c->stream = s->id;
		c->value = s->line.enqueued + 1;
		memcpy(c->clock, s->line.clock, sizeof(c->clock));
		if (s->recording) {
			c->recording = self->recording;
			c->next = self->recording->calls;
			self->recording->calls = c;
		}
		r = CU(self, cuLaunchHostFunc)(s->h, run_call, c);
		if (r) {
			rc = cep_cuda_fail(
				self, err, r, "stream %s: cannot enqueue %s",
				s->name, work->name ? work->name : "unit");
			if (!c->recording)
				self->host->free(self->host->ctx, c);
		} else {
			if (!c->recording)
				keep_call(self, c);
			stats_of(self, s)->launches++;
			count(self, s, true);
		}
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
};
