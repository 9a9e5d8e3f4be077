// queue.c - streams, points, recordings, and the scheduler of the simulated
// device.
// Work is queued and runs only when somebody waits for it (a barrier, or a poll
// that is not reached yet): the order is then the scheduler's choice among the
// legal ones, and the same seed gives the same run.
#include "cpu_ref.h"

#include <stdio.h>
#include <string.h>

#define IN_RECORDING (UINT64_C(1) << 63) // of a point's value

static struct cref_queued *slot(struct genai_stream *s, uint64_t i)
{
	return &s->ops[i & (s->cap - 1)];
}

static uint64_t done(const struct genai_stream *s)
{
	return atomic_load_explicit(&s->done, memory_order_acquire);
}

// ---- enqueuing ----

static int32_t grow_stream(struct genai_stream *s, struct genai_error *err)
{
	struct cref_device *dev = s->dev;
	uint64_t cap = s->cap ? 2 * s->cap : 64;
	struct cref_queued *ops = dev->host->alloc(
		dev->host->ctx, cap * sizeof(*ops), "queue");

	if (!ops)
		return CREF_FAIL(dev, err, GENAI_E_NOMEM,
				 "no memory for %llu queued operations",
				 (unsigned long long)cap);
	for (uint64_t i = done(s); i < s->tail; i++)
		ops[i & (cap - 1)] = *slot(s, i);
	dev->host->free(dev->host->ctx, s->ops);
	s->ops = ops;
	s->cap = cap;
	return 0;
}

static int32_t grow_recording(struct genai_recording *rec,
			      struct genai_error *err)
{
	struct cref_device *dev = rec->dev;
	uint64_t cap = rec->cap ? 2 * rec->cap : 256;
	void *p = dev->host->realloc(dev->host->ctx, rec->ops,
				     cap * sizeof(*rec->ops), "recording");

	if (!p)
		return CREF_FAIL(dev, err, GENAI_E_NOMEM,
				 "no memory for %llu recorded operations",
				 (unsigned long long)cap);
	rec->ops = p;
	rec->cap = cap;
	return 0;
}

// Room for one more operation of a stream, in its queue or its recording.
static int32_t next_op(struct genai_stream *s, struct cref_queued **out_op,
		       struct genai_error *err)
{
	struct genai_recording *rec = s->rec;
	int32_t rc = 0;

	if (rec) {
		if (rec->n_ops == rec->cap)
			rc = grow_recording(rec, err);
		if (rc) {
			rec->spoilt = rc;
			return rc;
		}
		*out_op = &rec->ops[rec->n_ops];
	} else {
		if (s->tail - done(s) == s->cap)
			rc = grow_stream(s, err);
		if (rc)
			return rc;
		*out_op = slot(s, s->tail);
	}
	(*out_op)->on = s;
	(*out_op)->n_mem = 0;
	(*out_op)->node = GENAI_NONE;
	(*out_op)->name = "";
	return 0;
}

static void commit_op(struct genai_stream *s, struct cref_queued *op)
{
	if (s->rec) {
		s->rec->n_ops++;
		s->rec->count[s->id]++;
	} else {
		op->seq = s->dev->seq++;
		s->tail++;
	}
}

// Remember that a recording names the region.
static int32_t note_region(struct genai_recording *rec, genai_addr addr,
			   struct genai_error *err)
{
	struct cref_device *dev = rec->dev;
	uint32_t lo = 0, hi = rec->n_regions;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (rec->regions[mid] < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < rec->n_regions && rec->regions[lo] == addr)
		return 0;
	if (rec->n_regions == rec->cap_regions) {
		uint32_t cap = rec->cap_regions ? 2 * rec->cap_regions : 64;
		void *p = dev->host->realloc(dev->host->ctx, rec->regions,
					     cap * sizeof(*rec->regions),
					     "recording");
		if (!p)
			return CREF_FAIL(dev, err, GENAI_E_NOMEM,
					 "no memory for a recording");
		rec->regions = p;
		rec->cap_regions = cap;
	}
	memmove(&rec->regions[lo + 1], &rec->regions[lo],
		(rec->n_regions - lo) * sizeof(*rec->regions));
	rec->regions[lo] = addr;
	rec->n_regions++;
	return 0;
}

// Host pointer of device bytes, or an error that names who wanted them.
static int32_t translate(struct genai_stream *s, genai_addr addr,
			 uint64_t bytes, const char *what, uint32_t index,
			 void **out_p, struct genai_error *err)
{
	struct cref_region *r;
	int32_t rc;

	if (!bytes) {
		*out_p = NULL;
		return 0;
	}
	r = cref_region_find(s->dev, addr, bytes);
	if (!r)
		return CREF_FAIL(s->dev, err, GENAI_E_INVAL,
				 "%s: access %u to %llu bytes at %#llx: not "
				 "mapped on the device",
				 what, index, (unsigned long long)bytes,
				 (unsigned long long)addr);
	if (s->rec) {
		rc = note_region(s->rec, r->addr, err);
		if (rc)
			return rc;
	}
	*out_p = cref_host(addr);
	return 0;
}

static int32_t launch(void *self, struct genai_stream *s,
		      const struct genai_work *work,
		      const struct genai_access *acc, uint32_t n,
		      struct genai_error *err)
{
	struct cref_device *dev = self;
	struct cref_queued *op;
	int32_t rc;

	if (n > CREF_MAX_ACCESS)
		return CREF_FAIL(dev, err, GENAI_E_LIMIT,
				 "%s: %u accesses, at most %u", work->name, n,
				 CREF_MAX_ACCESS);
	pthread_mutex_lock(&dev->lock);
	rc = next_op(s, &op, err);
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = translate(s, acc[i].addr, acc[i].bytes, work->name, i,
			       &op->mem[i], err);
	if (!rc) {
		op->kind = CREF_UNIT;
		op->name = work->name;
		op->node = work->node;
		op->fn = work->fn;
		op->ctx = work->ctx;
		op->n_mem = n;
		commit_op(s, op);
		dev->stats.launches++;
	} else if (s->rec) {
		s->rec->spoilt = rc;
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

static int32_t copy(void *self, struct genai_stream *s, uint64_t dst,
		    uint64_t src, uint64_t bytes, uint32_t kind,
		    struct genai_error *err)
{
	struct cref_device *dev = self;
	struct cref_queued *op;
	uint64_t host_end = kind == GENAI_COPY_H2D ? src : dst;
	int32_t rc = 0;

	if (kind < GENAI_COPY_H2D || kind > GENAI_COPY_D2D)
		return CREF_FAIL(dev, err, GENAI_E_INVAL,
				 "unknown kind of copy %u", kind);
	if (!bytes)
		return 0;
	pthread_mutex_lock(&dev->lock);
	if (kind != GENAI_COPY_D2D && !cref_host_known(dev, host_end, bytes))
		rc = CREF_FAIL(dev, err, GENAI_E_INVAL,
			       "copy of %llu bytes: host memory at %#llx is "
			       "neither pinned nor registered",
			       (unsigned long long)bytes,
			       (unsigned long long)host_end);
	if (!rc)
		rc = next_op(s, &op, err);
	if (!rc && kind == GENAI_COPY_H2D)
		op->mem[1] = (void *)(uintptr_t)src;
	else if (!rc)
		rc = translate(s, src, bytes, "copy", 1, &op->mem[1], err);
	if (!rc && kind == GENAI_COPY_D2H)
		op->mem[0] = (void *)(uintptr_t)dst;
	else if (!rc)
		rc = translate(s, dst, bytes, "copy", 0, &op->mem[0], err);
	if (!rc) {
		op->kind = CREF_COPY;
		op->name = "copy";
		op->bytes = bytes;
		op->copy_kind = kind;
		commit_op(s, op);
		if (s->rec)
			s->rec->copy_bytes[kind] += bytes;
	} else if (s->rec) {
		s->rec->spoilt = rc;
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

// ---- points ----

static int32_t mark(void *self, struct genai_stream *s,
		    struct genai_point *out_point, struct genai_error *err)
{
	struct cref_device *dev = self;

	(void)err;
	pthread_mutex_lock(&dev->lock);
	out_point->stream = s;
	out_point->value = s->rec ? IN_RECORDING | s->rec->count[s->id]
				  : s->tail;
	pthread_mutex_unlock(&dev->lock);
	return 0;
}

static int32_t wait_recorded(struct genai_stream *s, struct genai_point p,
			     struct genai_error *err)
{
	struct genai_recording *rec = p.stream->rec;
	struct genai_stream *from = p.stream;
	uint64_t upto = p.value & ~IN_RECORDING;
	struct cref_queued *op;
	int32_t rc;

	if (!rec)
		return CREF_FAIL(s->dev, err, GENAI_E_STATE,
				 "a point of stream '%s' made while recording "
				 "is used outside the recording",
				 from->name);
	if (s->rec && s->rec != rec)
		return CREF_FAIL(s->dev, err, GENAI_E_STATE,
				 "stream '%s' is part of another recording",
				 s->name);
	if (!s->rec) {
		s->rec = rec;
		rec->joined[s->id] = true;
		// even a join that waits for nothing orders after the start
	} else if (rec->known[s->id][from->id] >= upto) {
		return 0;
	}
	rc = next_op(s, &op, err);
	if (rc)
		return rc;
	op->kind = CREF_WAIT;
	op->point = p;
	commit_op(s, op);
	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (rec->known[s->id][i] < rec->known[from->id][i])
			rec->known[s->id][i] = rec->known[from->id][i];
	if (rec->known[s->id][from->id] < upto)
		rec->known[s->id][from->id] = upto;
	return 0;
}

static int32_t wait_locked(struct genai_stream *s, struct genai_point p,
			   struct genai_error *err)
{
	struct cref_queued *op;
	int32_t rc;

	if (p.stream == s && !(p.value & IN_RECORDING))
		return 0;
	if (p.value & IN_RECORDING)
		return p.stream == s ? 0 : wait_recorded(s, p, err);
	if (s->known[p.stream->id] >= p.value)
		return 0;
	if (s->rec) {
		if (done(p.stream) >= p.value)
			return 0;
		return CREF_FAIL(s->dev, err, GENAI_E_STATE,
				 "a recording of '%s' would wait for work of "
				 "'%s' outside it",
				 s->name, p.stream->name);
	}
	rc = next_op(s, &op, err);
	if (rc)
		return rc;
	op->kind = CREF_WAIT;
	op->point = p;
	commit_op(s, op);
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

int32_t cref_point_state(const struct genai_point *point,
			 struct genai_error *err)
{
	const struct genai_stream *s = point->stream;

	if (!s)
		return 0;
	if (point->value & IN_RECORDING)
		return CREF_FAIL(s->dev, err, GENAI_E_STATE,
				 "a point made while recording has no time");
	if (done(s) < point->value)
		return GENAI_PENDING;
	if (!s->poisoned || point->value <= s->poison_at)
		return 0;
	if (err)
		*err = s->error;
	return s->error.code;
}

static int32_t poll_point(void *self, struct genai_point point,
			  struct genai_error *err)
{
	struct cref_device *dev = self;
	int32_t rc;

	// another thread inside a barrier makes the progress
	if (pthread_mutex_trylock(&dev->lock))
		return point.stream && done(point.stream) < point.value
			       ? GENAI_PENDING
			       : 0;
	rc = cref_point_state(&point, err);
	if (rc == GENAI_PENDING && cref_run_one(dev))
		rc = cref_point_state(&point, err);
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

// ---- running ----

static void poison(struct genai_stream *s, uint64_t at,
		   const struct genai_error *e)
{
	if (s->poisoned)
		return;
	s->poisoned = true;
	s->poison_at = at;
	s->error = *e;
}

static int32_t run_unit(struct cref_device *dev, const struct cref_queued *op,
			struct genai_error *err)
{
	int32_t rc;

	if (op->kind == CREF_COPY) {
		memcpy(op->mem[0], op->mem[1], op->bytes);
		return 0;
	}
	rc = op->fn(op->ctx, op->mem, err);
	if (rc && !err->code)
		CREF_FAIL(dev, err, rc, "%s: failed with code %d", op->name,
			  rc);
	if (rc)
		err->node = op->node;
	return rc;
}

// All of a recording that has only one stream.
static int32_t run_graph(struct cref_device *dev, struct genai_recording *rec,
			 struct genai_error *err)
{
	int32_t rc = 0;

	for (uint64_t i = 0; !rc && i < rec->n_ops; i++)
		if (rec->ops[i].kind != CREF_WAIT)
			rc = run_unit(dev, &rec->ops[i], err);
	return rc;
}

static void count_copy(struct cref_device *dev, uint32_t kind, uint64_t bytes)
{
	if (kind == GENAI_COPY_H2D)
		dev->stats.h2d_bytes += bytes;
	else if (kind == GENAI_COPY_D2H)
		dev->stats.d2h_bytes += bytes;
	else
		dev->stats.d2d_bytes += bytes;
}

static void run_head(struct cref_device *dev, struct genai_stream *s)
{
	uint64_t at = done(s);
	struct cref_queued *op = slot(s, at);
	struct genai_error e = GENAI_ERROR_INIT;
	int32_t rc = 0;

	if (op->kind == CREF_WAIT) {
		rc = cref_point_state(&op->point, &e);
	} else if (!s->poisoned) {
		if (op->kind == CREF_GRAPH) {
			rc = run_graph(dev, op->graph, &e);
		} else {
			rc = run_unit(dev, op, &e);
			if (op->kind == CREF_COPY) {
				dev->stats.copies++;
				count_copy(dev, op->copy_kind, op->bytes);
			}
		}
	}
	if (op->graph && op->kind == CREF_GRAPH)
		op->graph->queued--;
	if (rc)
		poison(s, at, &e);
	atomic_store_explicit(&s->done, at + 1, memory_order_release);
}

static bool ready(struct genai_stream *s)
{
	const struct cref_queued *op;

	if (done(s) == s->tail)
		return false;
	op = slot(s, done(s));
	return op->kind != CREF_WAIT || !op->point.stream ||
	       done(op->point.stream) >= op->point.value;
}

static uint64_t next_random(struct cref_device *dev)
{
	uint64_t x = dev->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return dev->random = x;
}

// How much the schedule wants this stream's head to run: larger first.
static uint64_t preference(struct cref_device *dev, struct genai_stream *s)
{
	const struct cref_queued *op = slot(s, done(s));
	bool is_copy = op->kind == CREF_COPY;

	switch (dev->schedule) {
	case CREF_LATE:
		return (is_copy ? 0 : UINT64_C(1) << 62) +
		       (UINT64_C(1) << 60) - op->seq;
	case CREF_EARLY:
		return (is_copy ? UINT64_C(1) << 62 : 0) +
		       (UINT64_C(1) << 60) - op->seq;
	case CREF_RANDOM:
		return next_random(dev);
	default:
		return UINT64_MAX - op->seq;
	}
}

bool cref_run_one(struct cref_device *dev)
{
	struct genai_stream *best = NULL;
	uint64_t best_pref = 0;

	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++) {
		struct genai_stream *s = dev->streams[i];
		uint64_t pref;

		if (!s || !ready(s))
			continue;
		pref = preference(dev, s);
		if (!best || pref > best_pref) {
			best = s;
			best_pref = pref;
		}
	}
	if (!best)
		return false;
	run_head(dev, best);
	return true;
}

// ---- streams ----

static int32_t create(void *self, const char *name,
		      struct genai_stream **out_stream, struct genai_error *err)
{
	struct cref_device *dev = self;
	struct genai_stream *s;
	uint32_t id = 0;

	pthread_mutex_lock(&dev->lock);
	while (id < CREF_MAX_STREAMS && dev->streams[id])
		id++;
	if (id == CREF_MAX_STREAMS) {
		pthread_mutex_unlock(&dev->lock);
		return CREF_FAIL(dev, err, GENAI_E_LIMIT,
				 "more than %u streams", CREF_MAX_STREAMS);
	}
	s = dev->host->alloc(dev->host->ctx, sizeof(*s), "stream");
	if (s) {
		memset(s, 0, sizeof(*s));
		s->dev = dev;
		s->id = id;
		snprintf(s->name, sizeof(s->name), "%s", name ? name : "");
		dev->streams[id] = s;
		// a reused number: nobody knows anything of the new stream
		for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
			if (dev->streams[i])
				dev->streams[i]->known[id] = 0;
		*out_stream = s;
	}
	pthread_mutex_unlock(&dev->lock);
	return s ? 0
		 : CREF_FAIL(dev, err, GENAI_E_NOMEM, "no memory for a stream");
}

static int32_t destroy(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	struct cref_device *dev = self;

	pthread_mutex_lock(&dev->lock);
	if (done(s) != s->tail || s->rec) {
		pthread_mutex_unlock(&dev->lock);
		return CREF_FAIL(dev, err, GENAI_E_BUSY,
				 "stream '%s' has queued work", s->name);
	}
	dev->streams[s->id] = NULL;
	pthread_mutex_unlock(&dev->lock);
	dev->host->free(dev->host->ctx, s->ops);
	dev->host->free(dev->host->ctx, s);
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

// ---- recordings ----

static void free_recording(struct genai_recording *rec)
{
	const struct genai_host *host = rec->dev->host;

	host->free(host->ctx, rec->ops);
	host->free(host->ctx, rec->regions);
	host->free(host->ctx, rec);
}

static void leave_recording(struct genai_recording *rec)
{
	struct cref_device *dev = rec->dev;

	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (dev->streams[i] && dev->streams[i]->rec == rec)
			dev->streams[i]->rec = NULL;
	dev->n_recording--;
}

static int32_t capture_begin(void *self, struct genai_stream *s,
			     struct genai_error *err)
{
	struct cref_device *dev = self;
	struct genai_recording *rec;
	int32_t rc = 0;

	pthread_mutex_lock(&dev->lock);
	if (s->rec)
		rc = CREF_FAIL(dev, err, GENAI_E_STATE,
			       "stream '%s' is being recorded already",
			       s->name);
	else if (s->poisoned)
		rc = CREF_FAIL(dev, err, GENAI_E_STATE,
			       "stream '%s' is poisoned: %s", s->name,
			       s->error.text);
	if (!rc) {
		rec = dev->host->alloc(dev->host->ctx, sizeof(*rec),
				       "recording");
		if (!rec)
			rc = CREF_FAIL(dev, err, GENAI_E_NOMEM,
				       "no memory for a recording");
	}
	if (!rc) {
		memset(rec, 0, sizeof(*rec));
		rec->dev = dev;
		rec->origin = s;
		rec->joined[s->id] = true;
		s->rec = rec;
		dev->n_recording++;
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

static int32_t not_joined(struct genai_recording *rec, struct genai_error *err)
{
	uint32_t o = rec->origin->id;

	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (i != o && rec->joined[i] &&
		    rec->known[o][i] < rec->count[i])
			return CREF_FAIL(rec->dev, err, GENAI_E_STATE,
					 "stream '%s' was not joined back into "
					 "the recording of '%s'",
					 rec->dev->streams[i]->name,
					 rec->origin->name);
	return 0;
}

static int32_t capture_end(void *self, struct genai_stream *s,
			   struct genai_recording **out_recording,
			   struct genai_error *err)
{
	struct cref_device *dev = self;
	struct genai_recording *rec;
	int32_t rc = 0;

	pthread_mutex_lock(&dev->lock);
	rec = s->rec;
	if (!rec || rec->origin != s) {
		pthread_mutex_unlock(&dev->lock);
		return CREF_FAIL(dev, err, GENAI_E_STATE,
				 "no recording was begun on stream '%s'",
				 s->name);
	}
	rc = rec->spoilt;
	if (rc)
		CREF_FAIL(dev, err, rc,
			  "the recording of '%s' was spoilt by an earlier "
			  "error",
			  s->name);
	else
		rc = not_joined(rec, err);
	leave_recording(rec);
	if (rc) {
		free_recording(rec);
	} else {
		for (uint32_t i = 0; i < rec->n_regions; i++)
			cref_region_find(dev, rec->regions[i], 1)->recordings++;
		*out_recording = rec;
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

static int32_t capture_abort(void *self, struct genai_stream *s,
			     struct genai_error *err)
{
	struct cref_device *dev = self;
	struct genai_recording *rec;

	pthread_mutex_lock(&dev->lock);
	rec = s->rec;
	if (rec) {
		leave_recording(rec);
		free_recording(rec);
	}
	pthread_mutex_unlock(&dev->lock);
	return rec ? 0
		   : CREF_FAIL(dev, err, GENAI_E_STATE,
			       "stream '%s' is not being recorded", s->name);
}

// Enqueue the recorded operations on their streams, points made absolute.
static int32_t expand(struct genai_recording *rec, struct genai_stream *origin,
		      struct genai_error *err)
{
	uint64_t base[CREF_MAX_STREAMS] = {0};
	struct cref_device *dev = rec->dev;
	struct cref_queued *op;
	int32_t rc = 0;

	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (rec->joined[i] && dev->streams[i])
			base[i] = dev->streams[i]->tail;
	for (uint64_t i = 0; !rc && i < rec->n_ops; i++) {
		const struct cref_queued *r = &rec->ops[i];

		rc = next_op(r->on, &op, err);
		if (rc)
			break;
		*op = *r;
		if (r->kind == CREF_WAIT)
			op->point.value = base[r->point.stream->id] +
					  (r->point.value & ~IN_RECORDING);
		commit_op(r->on, op);
	}
	for (uint32_t i = 0; !rc && i < CREF_MAX_STREAMS; i++)
		if (rec->joined[i] && dev->streams[i])
			origin->known[i] = dev->streams[i]->tail;
	return rc;
}

static bool one_stream(const struct genai_recording *rec)
{
	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (rec->joined[i] && i != rec->origin->id)
			return false;
	return true;
}

static int32_t launch_graph(void *self, struct genai_recording *rec,
			    struct genai_stream *s, struct genai_error *err)
{
	struct cref_device *dev = self;
	struct cref_queued *op;
	int32_t rc = 0;

	pthread_mutex_lock(&dev->lock);
	if (s->rec)
		rc = CREF_FAIL(dev, err, GENAI_E_STATE,
			       "a recording cannot be launched into one");
	else if (rec->origin != s)
		rc = CREF_FAIL(dev, err, GENAI_E_INVAL,
			       "a recording is launched on the stream it was "
			       "made on");
	else if (!one_stream(rec))
		rc = expand(rec, s, err);
	else
		rc = next_op(s, &op, err);
	if (!rc && one_stream(rec)) {
		op->kind = CREF_GRAPH;
		op->graph = rec;
		op->name = "graph";
		rec->queued++;
		commit_op(s, op);
		// an expanded one counts its copies as they run
		for (uint32_t k = 1; k <= GENAI_COPY_D2D; k++)
			count_copy(dev, k, rec->copy_bytes[k]);
	}
	if (!rc)
		dev->stats.graph_launches++;
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

static int32_t graph_destroy(void *self, struct genai_recording *rec,
			     const struct genai_ticket *ticket,
			     struct genai_error *err)
{
	struct cref_device *dev = self;
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	int32_t rc = dev->host->ticket_check(dev->host->ctx, ticket, all, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&dev->lock);
	if (rec->queued)
		rc = CREF_FAIL(dev, err, GENAI_E_BUSY,
			       "the recording is still queued");
	for (uint32_t i = 0; !rc && i < rec->n_regions; i++)
		cref_region_find(dev, rec->regions[i], 1)->recordings--;
	pthread_mutex_unlock(&dev->lock);
	if (!rc)
		free_recording(rec);
	return rc;
}

static int32_t caps(void *self, struct genai_stream_caps *out,
		    struct genai_error *err)
{
	struct cref_device *dev = self;

	(void)err;
	memset(out, 0, sizeof(*out));
	out->size = sizeof(*out);
	out->flags = GENAI_STREAM_CAP_RECORD | GENAI_STREAM_CAP_IN_PLACE |
		     GENAI_STREAM_CAP_RESERVE | GENAI_STREAM_CAP_SHARED;
	snprintf(out->device_kind, sizeof(out->device_kind), "sim");
	snprintf(out->device_name, sizeof(out->device_name),
		 "simulated device, %u threads",
		 cref_pool_threads(dev->pool));
	out->total_bytes = UINT64_MAX;
	out->free_bytes = UINT64_MAX;
	out->alignment = 4096;
	out->granule = UINT64_C(64) << 10;
	return 0;
}

static int32_t stats(void *self, struct genai_stream_stats *out,
		     struct genai_error *err)
{
	struct cref_device *dev = self;

	(void)err;
	pthread_mutex_lock(&dev->lock);
	*out = dev->stats;
	out->size = sizeof(*out);
	out->device_used_bytes = dev->used_bytes;
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
	.capture_begin = capture_begin,
	.capture_end = capture_end,
	.capture_abort = capture_abort,
	.launch_graph = launch_graph,
	.graph_destroy = graph_destroy,
	.reset = reset,
	.stats = stats,
};
