// threads.c - schedule = threads: a real thread per stream, that takes the
// stream's operations in order and waits for other streams on a condition.
#include "modules/cpu_ref/cpu_ref.h"

#include <string.h>
#include <time.h>

static void work(void *arg)
{
	struct genai_stream *s = arg;
	struct cref_device *dev = s->dev;

	pthread_mutex_lock(&dev->lock);
	while (!s->stop) {
		if (cref_ready(s)) {
			cref_run_head(dev, s);
			cref_thread_wake(dev);
		} else {
			pthread_cond_wait(&dev->moved, &dev->lock);
		}
	}
	pthread_mutex_unlock(&dev->lock);
}

int32_t cref_thread_start(struct genai_stream *s, struct genai_error *err)
{
	const struct genai_host *h = s->dev->host;
	int32_t rc = h->thread_create(h->ctx, s->name[0] ? s->name : "stream",
				      work, s, &s->thread);

	if (!rc)
		return 0;
	return CREF_FAIL(s->dev, err, rc, "no thread for stream '%s'", s->name);
}

void cref_thread_stop(struct genai_stream *s)
{
	const struct genai_host *h = s->dev->host;

	if (!s->thread)
		return;
	pthread_mutex_lock(&s->dev->lock);
	s->stop = true;
	cref_thread_wake(s->dev);
	pthread_mutex_unlock(&s->dev->lock);
	h->thread_join(h->ctx, s->thread);
	s->thread = NULL;
}

void cref_thread_wake(struct cref_device *dev)
{
	pthread_cond_broadcast(&dev->moved);
}

bool cref_thread_wait(struct cref_device *dev, uint64_t deadline_ns)
{
	// the host's clock is the condition's: both are monotonic
	struct timespec t = {(time_t)(deadline_ns / 1000000000u),
			     (long)(deadline_ns % 1000000000u)};

	if (deadline_ns == UINT64_MAX) {
		pthread_cond_wait(&dev->moved, &dev->lock);
		return true;
	}
	return !pthread_cond_timedwait(&dev->moved, &dev->lock, &t);
}
