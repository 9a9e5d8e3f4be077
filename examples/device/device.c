// device.c - memory under addresses that the host cannot use by accident,
// streams, one queue, and the two calls that wait.
#include "small.h"

#include <stdio.h>
#include <string.h>

static void *host_of(genai_addr addr)
{
	return (void *)(uintptr_t)(addr ^ ADDR_BIT);
}

// ---- memory; the lock is held ----

// The memory itself rather than a registered range that happens to cover it.
static struct region *find(struct device *d, genai_addr addr, uint64_t bytes)
{
	struct region *registered = NULL;

	for (uint32_t i = 0; i < d->n_regions; i++) {
		struct region *r = &d->regions[i];

		if (addr < r->addr || bytes > r->bytes ||
		    addr - r->addr > r->bytes - bytes)
			continue;
		if (r->kind)
			return r;
		registered = r;
	}
	return registered;
}

static int32_t add(struct device *d, genai_addr addr, uint64_t bytes,
		   uint32_t kind, struct genai_error *err)
{
	struct region *more;

	for (uint32_t i = 0; !kind && i < d->n_regions; i++)
		if (!d->regions[i].kind && d->regions[i].addr < addr + bytes &&
		    addr < d->regions[i].addr + d->regions[i].bytes)
			return FAIL(d, err, GENAI_E_INVAL,
				    "the memory is registered already");
	more = d->host->realloc(d->host->ctx, d->regions,
				(d->n_regions + UINT64_C(1)) * sizeof(*more),
				"device");
	if (!more)
		return FAIL(d, err, GENAI_E_NOMEM, "no memory for the table");
	d->regions = more;
	d->regions[d->n_regions++] = (struct region){addr, bytes, kind, 0};
	return 0;
}

static int32_t alloc_locked(struct device *d, uint32_t kind, uint64_t bytes,
			    struct genai_mem *out, struct genai_error *err)
{
	int32_t on_device = kind == GENAI_MEM_DEVICE;
	void *p;
	int32_t rc;

	if (on_device && (bytes > d->limit || d->used > d->limit - bytes))
		return FAIL(d, err, GENAI_E_LIMIT,
			    "%llu bytes do not fit, %llu of %llu are used",
			    (unsigned long long)bytes,
			    (unsigned long long)d->used,
			    (unsigned long long)d->limit);
	p = d->host->alloc(d->host->ctx, bytes, "memory");
	if (!p)
		return FAIL(d, err, GENAI_E_NOMEM, "no memory: %llu bytes",
			    (unsigned long long)bytes);
	rc = add(d, (uintptr_t)p ^ ADDR_BIT, bytes, kind, err);
	if (rc) {
		d->host->free(d->host->ctx, p);
		return rc;
	}
	if (on_device)
		d->used += bytes;
	*out = (struct genai_mem){sizeof(*out),
				  kind,
				  {(uintptr_t)p ^ ADDR_BIT, bytes},
				  on_device ? NULL : p};
	return 0;
}

static int32_t mem_alloc(void *self, uint32_t kind, uint64_t bytes,
			 const char *tag, struct genai_mem *out,
			 struct genai_error *err)
{
	struct device *d = self;
	int32_t rc;

	(void)tag;
	if ((kind != GENAI_MEM_DEVICE && kind != GENAI_MEM_HOST_PINNED) ||
	    !bytes)
		return FAIL(d, err, GENAI_E_INVAL, "%llu bytes of kind %u",
			    (unsigned long long)bytes, kind);
	pthread_mutex_lock(&d->lock);
	rc = alloc_locked(d, kind, bytes, out, err);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static int32_t give_back(struct device *d, genai_addr addr,
			 const struct genai_ticket *ticket, int32_t registered,
			 struct genai_error *err)
{
	struct region *r = NULL;
	int32_t rc;

	for (uint32_t i = 0; !r && i < d->n_regions; i++)
		if (d->regions[i].addr == addr &&
		    registered == (d->regions[i].kind == 0))
			r = &d->regions[i];
	if (!r)
		return FAIL(d, err, GENAI_E_INVAL,
			    "%#llx is not the start of such memory",
			    (unsigned long long)addr);
	if (ticket || r->used) {
		rc = d->host->ticket_check(
			d->host->ctx, ticket,
			(struct genai_range){r->addr, r->bytes}, err);
		if (rc)
			return rc;
	}
	if (r->kind == GENAI_MEM_DEVICE)
		d->used -= r->bytes;
	if (r->kind)
		d->host->free(d->host->ctx, host_of(addr));
	*r = d->regions[--d->n_regions];
	return 0;
}

static int32_t mem_free(void *self, genai_addr addr,
			const struct genai_ticket *ticket,
			struct genai_error *err)
{
	struct device *d = self;
	int32_t rc;

	pthread_mutex_lock(&d->lock);
	rc = give_back(d, addr, ticket, 0, err);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static int32_t host_register(void *self, const void *ptr, uint64_t bytes,
			     struct genai_mem *out, struct genai_error *err)
{
	struct device *d = self;
	genai_addr addr = (uintptr_t)ptr ^ ADDR_BIT;
	int32_t rc;

	if (!ptr || !bytes)
		return FAIL(d, err, GENAI_E_INVAL, "nothing to register");
	pthread_mutex_lock(&d->lock);
	rc = add(d, addr, bytes, 0, err);
	pthread_mutex_unlock(&d->lock);
	if (!rc)
		*out = (struct genai_mem){sizeof(*out),
					  GENAI_MEM_HOST_PINNED,
					  {addr, bytes},
					  (void *)(uintptr_t)ptr};
	return rc;
}

static int32_t host_unregister(void *self, genai_addr addr,
			       const struct genai_ticket *ticket,
			       struct genai_error *err)
{
	struct device *d = self;
	int32_t rc;

	pthread_mutex_lock(&d->lock);
	rc = give_back(d, addr, ticket, 1, err);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

// Where the host finds an access; marks its region as used.
static int32_t translate(struct device *d, genai_addr addr, uint64_t bytes,
			 const char *who, void **out, struct genai_error *err)
{
	struct region *r = bytes ? find(d, addr, bytes) : NULL;

	if (bytes && !r)
		return FAIL(d, err, GENAI_E_INVAL,
			    "%s: %llu bytes at %#llx are not mapped", who,
			    (unsigned long long)bytes,
			    (unsigned long long)addr);
	if (r)
		r->used = 1;
	*out = bytes ? host_of(addr) : NULL;
	return 0;
}

// ---- the queue; the lock is held ----

static int32_t next_op(struct device *d, struct genai_stream *s,
		       struct op **out, struct genai_error *err)
{
	if (d->tail - d->head == d->cap) {
		uint64_t cap = d->cap ? 2 * d->cap : 256;
		struct op *more = d->host->alloc(d->host->ctx,
						 cap * sizeof(*more), "queue");

		if (!more)
			return FAIL(d, err, GENAI_E_NOMEM,
				    "no memory for the queue");
		for (uint64_t i = d->head; i < d->tail; i++)
			more[i % cap] = d->queue[i % d->cap];
		d->host->free(d->host->ctx, d->queue);
		d->queue = more;
		d->cap = cap;
	}
	*out = &d->queue[d->tail % d->cap];
	memset(*out, 0, sizeof(**out));
	(*out)->stream = s;
	return 0;
}

static void commit(struct device *d, struct op *op)
{
	d->tail++;
	op->stream->tail++;
}

static int32_t state(struct genai_point p, struct genai_error *err)
{
	if (!p.stream)
		return 0;
	if (p.stream->done < p.value)
		return GENAI_PENDING;
	if (!p.stream->bad_from || p.value < p.stream->bad_from)
		return 0;
	if (err)
		*err = p.stream->error;
	return p.stream->error.code;
}

static int32_t run_one(struct device *d)
{
	struct op *op = &d->queue[d->head % d->cap];
	struct genai_stream *s = op->stream;
	struct genai_error e = GENAI_ERROR_INIT;
	int32_t rc = 0;

	if (d->head == d->tail)
		return 0;
	if (s->bad_from)
		;
	else if (op->point.stream)
		rc = state(op->point, &e);
	else if (op->work.fn)
		rc = op->work.fn(op->work.ctx, op->mem, &e);
	else
		memmove(op->mem[0], op->mem[1], op->bytes);
	if (rc) {
		if (!op->point.stream)
			e.node = op->work.node;
		e.code = rc;
		s->error = e;
		s->bad_from = s->done + 1;
	}
	s->done++;
	d->head++;
	return 1;
}

// ---- the stream table ----

static int32_t caps(void *self, struct genai_stream_caps *out,
		    struct genai_error *err)
{
	struct device *d = self;
	struct genai_stream_caps c = {
		.size = sizeof(c),
		.flags = GENAI_STREAM_CAP_IN_PLACE,
		.device_kind = "small",
		.device_name = "small device",
		.total_bytes = UINT64_MAX,
		.free_bytes = UINT64_MAX,
		.alignment = 64,
		.granule = 4096,
	};

	(void)err;
	if (d->limit != UINT64_MAX) {
		c.total_bytes = d->limit;
		c.free_bytes = d->limit - d->used;
	}
	genai_struct_give(out, &c);
	return 0;
}

static int32_t create(void *self, const char *name, struct genai_stream **out,
		      struct genai_error *err)
{
	struct device *d = self;
	struct genai_stream *s =
		d->host->alloc(d->host->ctx, sizeof(*s), "stream");

	if (!s)
		return FAIL(d, err, GENAI_E_NOMEM, "no memory for stream %s",
			    name);
	memset(s, 0, sizeof(*s));
	pthread_mutex_lock(&d->lock);
	s->next = d->streams;
	d->streams = s;
	pthread_mutex_unlock(&d->lock);
	*out = s;
	return 0;
}

static int32_t destroy(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	struct device *d = self;
	struct genai_stream **at = &d->streams;
	int32_t busy;

	pthread_mutex_lock(&d->lock);
	busy = s->done < s->tail;
	while (!busy && *at != s)
		at = &(*at)->next;
	if (!busy)
		*at = s->next;
	pthread_mutex_unlock(&d->lock);
	if (busy)
		return FAIL(d, err, GENAI_E_BUSY, "the stream has queued work");
	d->host->free(d->host->ctx, s);
	return 0;
}

static int32_t mark(void *self, struct genai_stream *s, struct genai_point *out,
		    struct genai_error *err)
{
	struct device *d = self;

	(void)err;
	pthread_mutex_lock(&d->lock);
	*out = (struct genai_point){s, s->tail};
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static int32_t wait(void *self, struct genai_stream *s, struct genai_point p,
		    struct genai_error *err)
{
	struct device *d = self;
	struct op *op;
	int32_t rc = 0;

	if (!p.stream || p.stream == s)
		return 0;
	// the queue is in order already; what has to come over is an error
	pthread_mutex_lock(&d->lock);
	rc = next_op(d, s, &op, err);
	if (!rc) {
		op->point = p;
		commit(d, op);
	}
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static int32_t poll(void *self, struct genai_point p, struct genai_error *err)
{
	struct device *d = self;
	int32_t rc;

	pthread_mutex_lock(&d->lock);
	rc = state(p, err);
	if (rc == GENAI_PENDING && run_one(d))
		rc = state(p, err);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static int32_t known(struct device *d, uint64_t p, uint64_t bytes)
{
	const struct region *r = find(d, p ^ ADDR_BIT, bytes);

	return r && r->kind != GENAI_MEM_DEVICE;
}

static int32_t copy_locked(struct device *d, struct genai_stream *s,
			   uint64_t dst, uint64_t src, uint64_t bytes,
			   uint32_t kind, struct genai_error *err)
{
	uint64_t on_host = kind == GENAI_COPY_H2D ? src : dst;
	struct op *op;
	int32_t rc;

	if (kind != GENAI_COPY_D2D && !known(d, on_host, bytes))
		return FAIL(d, err, GENAI_E_INVAL,
			    "%llu bytes at %#llx of the host are neither "
			    "pinned nor registered",
			    (unsigned long long)bytes,
			    (unsigned long long)on_host);
	rc = next_op(d, s, &op, err);
	if (kind == GENAI_COPY_H2D)
		src ^= ADDR_BIT;
	if (kind == GENAI_COPY_D2H)
		dst ^= ADDR_BIT;
	if (!rc)
		rc = translate(d, dst, bytes, "copy", &op->mem[0], err);
	if (!rc)
		rc = translate(d, src, bytes, "copy", &op->mem[1], err);
	if (rc)
		return rc;
	op->bytes = bytes;
	commit(d, op);
	d->stats.copies++;
	*(kind == GENAI_COPY_H2D   ? &d->stats.h2d_bytes
	  : kind == GENAI_COPY_D2H ? &d->stats.d2h_bytes
				   : &d->stats.d2d_bytes) += bytes;
	return 0;
}

static int32_t copy(void *self, struct genai_stream *s, uint64_t dst,
		    uint64_t src, uint64_t bytes, uint32_t kind,
		    struct genai_error *err)
{
	struct device *d = self;
	int32_t rc;

	if (kind < GENAI_COPY_H2D || kind > GENAI_COPY_D2D)
		return FAIL(d, err, GENAI_E_INVAL, "copy of kind %u", kind);
	if (!bytes)
		return 0;
	pthread_mutex_lock(&d->lock);
	rc = copy_locked(d, s, dst, src, bytes, kind, err);
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static int32_t launch(void *self, struct genai_stream *s,
		      const struct genai_work *work,
		      const struct genai_access *acc, uint32_t n,
		      struct genai_error *err)
{
	struct device *d = self;
	struct op *op;
	int32_t rc;

	if (n > MAX_MEM)
		return FAIL(d, err, GENAI_E_LIMIT,
			    "%s: %u accesses, at most %u", work->name, n,
			    MAX_MEM);
	pthread_mutex_lock(&d->lock);
	rc = next_op(d, s, &op, err);
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = acc[i].flags & ~(GENAI_READ | GENAI_WRITE | GENAI_SPARSE)
			     ? FAIL(d, err, GENAI_E_UNSUPPORTED,
				    "%s: access %u: flags %#x", work->name, i,
				    acc[i].flags)
			     : translate(d, acc[i].addr, acc[i].bytes,
					 work->name, &op->mem[i], err);
	if (!rc) {
		op->work = *work;
		commit(d, op);
		d->stats.launches++;
	}
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static int32_t reset(void *self, const struct genai_ticket *ticket,
		     struct genai_error *err)
{
	struct device *d = self;
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	int32_t rc = d->host->ticket_check(d->host->ctx, ticket, all, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&d->lock);
	for (struct genai_stream *s = d->streams; s; s = s->next)
		s->bad_from = 0;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static int32_t stats(void *self, struct genai_stream_stats *out,
		     struct genai_error *err)
{
	struct device *d = self;

	(void)err;
	pthread_mutex_lock(&d->lock);
	d->stats.device_used_bytes = d->used;
	genai_struct_give(out, &d->stats);
	pthread_mutex_unlock(&d->lock);
	return 0;
}

const struct genai_stream_ops stream_table = {
	.size = sizeof(stream_table),
	.version = 1,
	.caps = caps,
	.alloc = mem_alloc,
	.free = mem_free,
	.host_register = host_register,
	.host_unregister = host_unregister,
	.create = create,
	.destroy = destroy,
	.mark = mark,
	.wait = wait,
	.poll = poll,
	.copy = copy,
	.launch = launch,
	.launch_host = launch,
	.reset = reset,
	.stats = stats,
};

// ---- the barrier ----

static int32_t late(struct device *d, uint64_t deadline)
{
	return deadline != UINT64_MAX &&
	       d->host->clock_ns(d->host->ctx) >= deadline;
}

static int32_t host_read(void *self, const struct genai_point *points,
			 uint32_t n, uint64_t deadline, struct genai_error *err)
{
	struct device *d = self;
	int32_t rc = 0;

	pthread_mutex_lock(&d->lock);
	for (uint32_t i = 0; !rc && i < n; i++)
		while ((rc = state(points[i], err)) == GENAI_PENDING) {
			if (late(d, deadline))
				rc = FAIL(d, err, GENAI_E_DEADLINE,
					  "host_read: the deadline passed");
			if (rc < 0)
				break;
			run_one(d);
		}
	pthread_mutex_unlock(&d->lock);
	return rc;
}

static int32_t drain(void *self, struct genai_range range, uint64_t deadline,
		     struct genai_ticket *out_ticket, struct genai_error *err)
{
	struct device *d = self;
	int32_t rc = 0;

	(void)range;	  // any work may touch it
	(void)out_ticket; // the core makes it
	pthread_mutex_lock(&d->lock);
	while (!rc && d->head < d->tail) {
		if (late(d, deadline))
			rc = FAIL(d, err, GENAI_E_DEADLINE,
				  "drain: the deadline passed");
		else
			run_one(d);
	}
	pthread_mutex_unlock(&d->lock);
	return rc;
}

const struct genai_barrier_ops barrier_table = {
	.size = sizeof(barrier_table),
	.version = 1,
	.host_read = host_read,
	.drain = drain,
};
