// barrier.c - the two calls that wait: here they also make the device run.
#include "modules/cpu_ref/cpu_ref.h"

static bool late(struct cref_device *dev, uint64_t deadline_ns)
{
	return deadline_ns != UINT64_MAX &&
	       dev->host->clock_ns(dev->host->ctx) >= deadline_ns;
}

// Something happened, nothing ever will, or it is too late.
enum step { MOVED, STUCK, LATE };

static enum step make_progress(struct cref_device *dev, uint64_t deadline_ns)
{
	if (late(dev, deadline_ns))
		return LATE;
	if (dev->schedule == CREF_THREADS)
		return cref_thread_wait(dev, deadline_ns) ? MOVED : LATE;
	if (cref_run_one(dev))
		return MOVED;
	if (!cref_any_open(dev))
		return STUCK;
	return cref_thread_wait(dev, deadline_ns) ? MOVED : LATE;
}

static int32_t wait_point(struct cref_device *dev, const struct genai_point *p,
			  uint64_t deadline_ns, struct genai_error *err)
{
	int32_t rc;

	while ((rc = cref_point_state(p, err)) == GENAI_PENDING) {
		enum step step = p->value > p->stream->tail
					 ? STUCK
					 : make_progress(dev, deadline_ns);

		if (step == LATE)
			return CREF_FAIL(dev, err, GENAI_E_DEADLINE,
					 "host_read: deadline passed");
		if (step == STUCK)
			return CREF_FAIL(dev, err, GENAI_E_STATE,
					 "host_read: the point will never be "
					 "reached");
	}
	if (!rc && dev->clock.on)
		cref_clock_waited(dev, p);
	return rc;
}

static int32_t host_read(void *self, const struct genai_point *points,
			 uint32_t n, uint64_t deadline_ns,
			 struct genai_error *err)
{
	struct cref_device *dev = self;
	int32_t rc = 0;

	pthread_mutex_lock(&dev->lock);
	if (dev->n_recording)
		rc = CREF_FAIL(dev, err, GENAI_E_STATE,
			       "host_read while a recording is open");
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = wait_point(dev, &points[i], deadline_ns, err);
	if (!rc)
		cref_run_on(dev);
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

static bool busy(const struct cref_device *dev)
{
	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (dev->streams[i] &&
		    cref_done(dev->streams[i]) != dev->streams[i]->tail)
			return true;
	return false;
}

static int32_t drain(void *self, struct genai_range range, uint64_t deadline_ns,
		     struct genai_ticket *out_ticket, struct genai_error *err)
{
	struct cref_device *dev = self;
	enum step step = MOVED;
	int32_t rc = 0;

	(void)range; // all work may touch it
	(void)out_ticket;
	pthread_mutex_lock(&dev->lock);
	if (dev->n_recording)
		rc = CREF_FAIL(dev, err, GENAI_E_STATE,
			       "drain while a recording is open");
	while (!rc && step == MOVED && busy(dev))
		step = make_progress(dev, deadline_ns);
	if (step == LATE)
		rc = CREF_FAIL(dev, err, GENAI_E_DEADLINE,
			       "drain: deadline passed");
	else if (step == STUCK)
		rc = CREF_FAIL(dev, err, GENAI_E_STATE,
			       "drain: queued work waits for ever");
	if (!rc && dev->clock.on)
		cref_clock_waited(dev, NULL);
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

const struct genai_barrier_ops cref_barrier_ops = {
	.size = sizeof(struct genai_barrier_ops),
	.version = 1,
	.host_read = host_read,
	.drain = drain,
};
