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

static int32_t run_work(const struct cref_queued *op, struct genai_error *err)
{
	if (op->kind == CREF_UNIT)
		return op->fn(op->ctx, op->mem, err);
	memcpy(op->mem[0], op->mem[1], op->bytes);
	return 0;
}

static int32_t run_unit(struct cref_device *dev, const struct cref_queued *op,
			struct genai_error *err)
{
	int32_t rc = 0;

	if (dev->fault.kind)
		rc = cref_fault_run(dev, op, err);
	if (dev->trace)
		cref_trace_op(dev, op->on, op);
	if (!rc && dev->schedule == CREF_THREADS) {
		pthread_mutex_unlock(&dev->lock);
		rc = run_work(op, err);
		pthread_mutex_lock(&dev->lock);
	} else if (!rc) {
		rc = run_work(op, err);
	}
	if (!rc && op->kind == CREF_COPY) {
		dev->stats.copies++;
		cref_count_copy(dev, op->copy_kind, op->bytes);
	}
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
	return op->kind == CREF_GRAPH ? run_graph(dev, op->graph, err)
				      : run_unit(dev, op, err);
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
	rc = run_op(s, op, &e);
	if (op->kind == CREF_GRAPH)
		op->graph->queued--;
	if (rc)
		poison(s, at, &e);
	atomic_store_explicit(&s->done, at + 1, memory_order_release);
}

// ---- choice ----

bool cref_ready(const struct genai_stream *s)
{
	const struct cref_queued *op;

	if (cref_done(s) == s->tail)
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
