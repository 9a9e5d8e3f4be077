// run.c - the scheduler, and running what it chose.
// Work is queued and runs only when somebody waits for it (a barrier, or a poll
// that is not reached yet): the order is then the scheduler's choice among the
// legal ones, and the same seed gives the same run.  With schedule = threads
// the streams' own threads run it, and only run_head is used.
#include "modules/cpu_ref/cpu_ref.h"

#include <string.h>

int32_t cref_point_state(const struct genai_point *point,
			 struct genai_error *err)
{
	const struct genai_stream *s = point->stream;

	if (!s)
		return 0;
	if (point->value & CREF_IN_RECORDING)
		return CREF_FAIL(s->dev, err, GENAI_E_STATE,
				 "a point made while recording has no time");
	if (cref_done(s) < point->value)
		return GENAI_PENDING;
	if (!s->poisoned || point->value <= s->poison_at)
		return 0;
	if (err)
		*err = s->error;
	return s->error.code;
}

// ---- one operation ----

static void poison(struct genai_stream *s, uint64_t at,
		   const struct genai_error *e)
{
	if (s->poisoned)
		return;
	s->poisoned = true;
	s->poison_at = at;
	s->error = *e;
}

// GENAI_PENDING: begun, and ended by a signal.
static int32_t run_open(struct genai_stream *s, const struct cref_queued *op,
			struct genai_error *err)
{
	struct cref_open *o = &s->open;
	struct cref_device *dev = s->dev;
	int32_t rc;

	*o = (struct cref_open){.state = CREF_BEGINS, .ctx = op->ctx};
	if (dev->schedule == CREF_THREADS)
		pthread_mutex_unlock(&dev->lock);
	rc = op->fn(op->ctx, op->mem, err);
	if (dev->schedule == CREF_THREADS)
		pthread_mutex_lock(&dev->lock);
	if (rc != GENAI_PENDING)
		o->state = CREF_NOT_OPEN;
	else if (o->state == CREF_BEGINS)
		o->state = CREF_OPEN;
	return rc;
}

static int32_t run_work(struct genai_stream *s, const struct cref_queued *op,
			struct genai_error *err)
{
	struct cref_device *dev = s->dev;
	int32_t rc = 0;

	if (op->may_stay)
		return run_open(s, op, err);
	if (dev->schedule == CREF_THREADS)
		pthread_mutex_unlock(&dev->lock);
	if (op->kind == CREF_UNIT)
		rc = op->fn(op->ctx, op->mem, err);
	else
		memcpy(op->mem[0], op->mem[1], op->bytes);
	if (dev->schedule == CREF_THREADS)
		pthread_mutex_lock(&dev->lock);
	return rc;
}

// The error of a unit, in the form that all have.
static int32_t unit_error(struct cref_device *dev, const struct cref_queued *op,
			  int32_t rc, struct genai_error *err)
{
	if (!err->code)
		CREF_FAIL(dev, err, rc, "%s: failed with code %d", op->name,
			  rc);
	err->node = op->node;
	return rc;
}

static int32_t run_unit(struct genai_stream *s, const struct cref_queued *op,
			struct genai_error *err)
{
	struct cref_device *dev = s->dev;
	int32_t rc = 0;

	if (dev->fault.kind)
		rc = cref_fault_run(dev, op, err);
	if (dev->trace)
		cref_trace_op(dev, op->on, op);
	if (!rc)
		rc = run_work(s, op, err);
	if (!rc && op->kind == CREF_COPY) {
		dev->stats.copies++;
		cref_count_copy(dev, op->copy_kind, op->bytes);
	}
	if (!rc || (rc == GENAI_PENDING && op->may_stay))
		return rc;
	return unit_error(dev, op, rc, err);
}

// All of a recording that has only one stream, or the rest of it.
static int32_t run_graph(struct genai_stream *s, struct genai_recording *rec,
			 struct genai_error *err)
{
	uint64_t i = s->graph_at;
	int32_t rc = 0;

	for (; !rc && i < rec->n_ops; i++)
		if (rec->ops[i].kind != CREF_WAIT)
			rc = run_unit(s, &rec->ops[i], err);
	s->graph_at = rc == GENAI_PENDING ? i : 0;
	return rc;
}

static int32_t run_op(struct genai_stream *s, const struct cref_queued *op,
		      struct genai_error *err)
{
	struct cref_device *dev = s->dev;

	if (op->kind == CREF_WAIT) {
		if (dev->trace)
			cref_trace_op(dev, s, op);
		return cref_point_state(&op->point, err);
	}
	if (s->poisoned)
		return 0;
	if (op->kind == CREF_STAMP) {
		cref_stamp_run(dev, op);
		return 0;
	}
	return op->kind == CREF_GRAPH ? run_graph(s, op->graph, err)
				      : run_unit(s, op, err);
}

// What was open has got its signal; a recording goes on.
static int32_t end_open(struct genai_stream *s, const struct cref_queued *op,
			struct genai_error *err)
{
	const struct cref_queued *unit =
		op->kind == CREF_GRAPH ? &op->graph->ops[s->graph_at - 1] : op;

	s->open.state = CREF_NOT_OPEN;
	if (!s->open.error.code)
		return op->kind == CREF_GRAPH ? run_graph(s, op->graph, err)
					      : 0;
	*err = s->open.error;
	s->graph_at = 0;
	return unit_error(s->dev, unit, err->code, err);
}

void cref_run_head(struct cref_device *dev, struct genai_stream *s)
{
	uint64_t at = cref_done(s);
	struct cref_queued *op = cref_op_slot(s, at), copy;
	struct genai_error e = GENAI_ERROR_INIT;
	int32_t rc;

	if (dev->schedule == CREF_THREADS) {
		// the queue may move while the lock is not held
		copy = *op;
		op = &copy;
	}
	rc = s->open.state == CREF_SIGNALLED ? end_open(s, op, &e)
					     : run_op(s, op, &e);
	if (rc == GENAI_PENDING)
		return;
	if (op->kind == CREF_GRAPH)
		op->graph->queued--;
	if (rc)
		poison(s, at, &e);
	atomic_store_explicit(&s->done, at + 1, memory_order_release);
}

int32_t cref_signal(void *self, const void *ctx, const struct genai_error *why,
		    struct genai_error *err)
{
	struct cref_device *dev = self;
	struct cref_open *o = NULL;

	pthread_mutex_lock(&dev->lock);
	for (uint32_t i = 0; !o && i < CREF_MAX_STREAMS; i++) {
		struct genai_stream *s = dev->streams[i];

		if (s && s->open.ctx == ctx && (s->open.state == CREF_OPEN ||
						s->open.state == CREF_BEGINS))
			o = &s->open;
	}
	if (o) {
		o->error = why ? *why
			       : (struct genai_error)GENAI_ERROR_INIT;
		o->state = CREF_SIGNALLED;
		cref_thread_wake(dev);
	}
	pthread_mutex_unlock(&dev->lock);
	return o ? 0
		 : CREF_FAIL(dev, err, GENAI_E_STATE,
			     "signal: no unit of this ctx is open");
}

bool cref_any_open(const struct cref_device *dev)
{
	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (dev->streams[i] && dev->streams[i]->open.state == CREF_OPEN)
			return true;
	return false;
}

// ---- choice ----

bool cref_ready(const struct genai_stream *s)
{
	const struct cref_queued *op;

	if (cref_done(s) == s->tail || s->open.state == CREF_OPEN)
		return false;
	op = cref_op_slot(s, cref_done(s));
	return op->kind != CREF_WAIT || !op->point.stream ||
	       cref_done(op->point.stream) >= op->point.value;
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
	const struct cref_queued *op = cref_op_slot(s, cref_done(s));
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

		if (!s || !cref_ready(s))
			continue;
		pref = preference(dev, s);
		if (!best || pref > best_pref) {
			best = s;
			best_pref = pref;
		}
	}
	if (!best)
		return false;
	cref_run_head(dev, best);
	return true;
}

void cref_run_on(struct cref_device *dev)
{
	uint64_t n = 0;

	if (dev->schedule == CREF_EARLY)
		n = UINT64_MAX;
	else if (dev->schedule == CREF_RANDOM && next_random(dev) & 1)
		n = next_random(dev) % 256;
	while (n-- && cref_run_one(dev))
		;
}
