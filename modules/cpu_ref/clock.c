// clock.c - clock = simulated: time is counted, not waited for.
// Every operation gets its time when it is enqueued, from the rates alone, so
// the figures do not depend on the schedule or the machine.  Streams run side
// by side; copies to the device share one engine, copies from it another.
// A unit that reads host memory where it lies takes the link's time away from
// later copies.  The clock stops where 64 bits end.
#include "modules/cpu_ref/cpu_ref.h"

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
