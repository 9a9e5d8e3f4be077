// clock.c - clock = simulated: time is counted, not waited for.
// Every operation gets its time when it is enqueued, from the rates alone, so
// the figures do not depend on the schedule or the machine.  Streams run side
// by side; copies to the device share one engine, copies from it another.
// A unit that reads host memory where it lies takes the link's time away from
// later copies.  The clock stops where 64 bits end.
// Stamps are of this clock or, without it, of the host's.
#include "modules/cpu_ref/cpu_ref.h"

#include <string.h>

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t after(uint64_t t, uint64_t ns)
{
	return ns < UINT64_MAX - t ? t + ns : UINT64_MAX;
}

static uint64_t ns_of(uint64_t bytes, uint64_t per_s)
{
	double ns = per_s ? (double)bytes * 1e9 / (double)per_s + 0.5 : 0;

	return ns < 0x1p64 ? (uint64_t)ns : UINT64_MAX;
}

// When a point is reached.  One so old that its time was forgotten is long
// past.
static uint64_t end_of(const struct genai_point *p)
{
	const struct genai_stream *s = p->stream;

	if (!s || !s->ends || !p->value || p->value > s->tail ||
	    s->tail - p->value >= CREF_ENDS)
		return 0;
	return s->ends[(p->value - 1) % CREF_ENDS];
}

static uint64_t copy_end(struct cref_clock *c, uint64_t start,
			 const struct cref_queued *op,
			 const struct cref_fault *fault)
{
	bool slow = ++c->copies == fault->at && fault->kind == CREF_FAULT_SLOW;
	uint64_t *engine, ns;

	if (op->copy_kind == GENAI_COPY_D2D)
		return after(after(start, c->copy_latency_ns),
			     ns_of(2 * op->bytes, c->memory_bytes_per_s));
	engine = &c->link_free[op->copy_kind == GENAI_COPY_D2H];
	ns = after(c->copy_latency_ns, ns_of(op->bytes, c->link_bytes_per_s));
	if (slow && __builtin_mul_overflow(ns, 100, &ns))
		ns = UINT64_MAX;
	return *engine = after(later(start, *engine), ns);
}

static uint64_t unit_end(struct cref_clock *c, uint64_t start,
			 const struct cref_queued *op)
{
	uint64_t link = ns_of(op->link_bytes, c->in_place_bytes_per_s);

	if (link)
		c->link_free[0] = after(later(start, c->link_free[0]), link);
	return after(after(after(start, c->launch_ns), link),
		     ns_of(op->mem_bytes, c->memory_bytes_per_s));
}

static uint64_t op_end(struct cref_device *dev, uint64_t start,
		       const struct cref_queued *op)
{
	switch (op->kind) {
	case CREF_WAIT:
		return later(start, end_of(&op->point));
	case CREF_COPY:
		return copy_end(&dev->clock, start, op, &dev->fault);
	case CREF_UNIT:
		return unit_end(&dev->clock, start, op);
	case CREF_STAMP:
		return start;
	default: // a recording of one stream
		for (uint64_t i = 0; i < op->graph->n_ops; i++)
			if (op->graph->ops[i].kind != CREF_WAIT)
				start = op_end(dev, start, &op->graph->ops[i]);
		return start;
	}
}

void cref_clock_enqueued(struct genai_stream *s, const struct cref_queued *op)
{
	struct cref_clock *c = &s->dev->clock;

	s->time = op_end(s->dev, later(s->time, c->host), op);
	s->ends[s->tail % CREF_ENDS] = s->time;
	if (op->kind == CREF_STAMP)
		s->dev->stamps[op->bytes % CREF_STAMPS].ns = s->time;
	c->makespan = later(c->makespan, s->time);
}

void cref_clock_waited(struct cref_device *dev, const struct genai_point *p)
{
	dev->clock.host =
		later(dev->clock.host, p ? end_of(p) : dev->clock.makespan);
}

void cref_clock_access(struct cref_queued *op, const struct genai_access *acc,
		       const struct cref_region *r)
{
	if (acc->flags & GENAI_SPARSE)
		return;
	if (r->kind == CREF_ALLOC || r->kind == CREF_MAPPED)
		op->mem_bytes += acc->bytes;
	else
		op->link_bytes += acc->bytes;
}

// ---- stamps ----

int32_t cref_stamp(void *self, struct genai_stream *s, uint64_t *out_stamp,
		   struct genai_error *err)
{
	struct cref_device *dev = self;
	const struct genai_host *host = dev->host;
	uint64_t bytes = CREF_STAMPS * sizeof(*dev->stamps), n;
	struct cref_queued *op;
	int32_t rc = 0;

	pthread_mutex_lock(&dev->lock);
	if (!dev->stamps)
		dev->stamps = host->alloc(host->ctx, bytes, "stamps");
	if (!dev->stamps)
		rc = CREF_FAIL(dev, err, GENAI_E_NOMEM, "no memory for stamps");
	else if (!dev->n_stamps)
		memset(dev->stamps, 0, bytes);
	if (!rc && s->rec)
		rc = CREF_FAIL(dev, err, GENAI_E_STATE,
			       "stream '%s' is recorded: it has no time",
			       s->name);
	if (!rc)
		rc = cref_op_next(s, &op, err);
	if (!rc) {
		n = ++dev->n_stamps;
		dev->stamps[n % CREF_STAMPS] = (struct cref_stamp){.number = n};
		op->kind = CREF_STAMP;
		op->bytes = *out_stamp = n;
		cref_op_commit(s, op);
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

void cref_stamp_run(struct cref_device *dev, const struct cref_queued *op)
{
	struct cref_stamp *t = &dev->stamps[op->bytes % CREF_STAMPS];

	if (t->number != op->bytes)
		return;
	t->there = true;
	if (!dev->clock.on)
		t->ns = dev->host->clock_ns(dev->host->ctx);
}

int32_t cref_elapsed(void *self, uint64_t from, uint64_t to, int64_t *out_ns,
		     struct genai_error *err)
{
	struct cref_device *dev = self;
	const uint64_t of[2] = {from, to};
	uint64_t ns[2] = {0, 0};
	int32_t rc = 0;

	pthread_mutex_lock(&dev->lock);
	for (int i = 0; !rc && i < 2; i++) {
		const struct cref_stamp *t =
			dev->stamps ? &dev->stamps[of[i] % CREF_STAMPS] : NULL;

		if (!of[i] || !t || t->number != of[i])
			rc = CREF_FAIL(dev, err, GENAI_E_NOTFOUND,
				       "stamp %llu is not kept",
				       (unsigned long long)of[i]);
		else if (!t->there)
			rc = GENAI_PENDING;
		else
			ns[i] = t->ns;
	}
	pthread_mutex_unlock(&dev->lock);
	if (!rc)
		*out_ns = (int64_t)(ns[1] - ns[0]);
	return rc;
}
