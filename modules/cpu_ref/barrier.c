// barrier.c - the two calls that wait: here they also make the device run.
#include "cpu_ref.h"

static bool late(struct cref_device *dev, uint64_t deadline_ns)
{
	return deadline_ns != UINT64_MAX &&
	       dev->host->clock_ns(dev->host->ctx) >= deadline_ns;
}

static int32_t host_read_locked(struct cref_device *dev,
				const struct genai_point *points, uint32_t n,
				uint64_t deadline_ns, struct genai_error *err)
{
	for (uint32_t i = 0; i < n; i++) {
		int32_t rc = cref_point_state(&points[i], err);

		while (rc == GENAI_PENDING) {
			if (late(dev, deadline_ns))
				return CREF_FAIL(dev, err, GENAI_E_DEADLINE,
						 "host_read: deadline passed");
			if (!cref_run_one(dev))
				return CREF_FAIL(dev, err, GENAI_E_STATE,
						 "host_read: the point will "
						 "never be reached");
			rc = cref_point_state(&points[i], err);
		}
		if (rc)
			return rc;
	}
	return 0;
}

static int32_t host_read(void *self, const struct genai_point *points,
			 uint32_t n, uint64_t deadline_ns,
			 struct genai_error *err)
{
	struct cref_device *dev = self;
	int32_t rc;

	pthread_mutex_lock(&dev->lock);
	if (dev->n_recording)
		rc = CREF_FAIL(dev, err, GENAI_E_STATE,
			       "host_read while a recording is open");
	else
		rc = host_read_locked(dev, points, n, deadline_ns, err);
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

static int32_t drain(void *self, struct genai_range range, uint64_t deadline_ns,
		     struct genai_ticket *out_ticket, struct genai_error *err)
{
	struct cref_device *dev = self;
	int32_t rc = 0;

	(void)range; // all work may touch it
	(void)out_ticket;
	pthread_mutex_lock(&dev->lock);
	if (dev->n_recording)
		rc = CREF_FAIL(dev, err, GENAI_E_STATE,
			       "drain while a recording is open");
	while (!rc && cref_run_one(dev))
		if (late(dev, deadline_ns))
			rc = CREF_FAIL(dev, err, GENAI_E_DEADLINE,
				       "drain: deadline passed");
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

const struct genai_barrier_ops cref_barrier_ops = {
	.size = sizeof(struct genai_barrier_ops),
	.version = 1,
	.host_read = host_read,
	.drain = drain,
};
