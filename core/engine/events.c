// events.c - what happened, from the engine's thread to whoever asks.
#include "core/engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

int32_t eng_events_open(struct genai_engine *e, struct genai_error *err)
{
	pthread_condattr_t attr;

	e->events_end = &e->first_event;
	pthread_mutex_init(&e->events_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&e->events_there, &attr);
	pthread_condattr_destroy(&attr);
	e->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return e->fd < 0 ? genai_fail(err, GENAI_E_IO,
				      "an engine's descriptor: %s",
				      strerror(errno))
			 : 0;
}

void eng_events_close(struct genai_engine *e)
{
	while (e->first_event) {
		struct eng_event *x = e->first_event;

		e->first_event = x->next;
		free(x);
	}
	free(e->given);
	if (e->fd >= 0)
		close(e->fd);
	pthread_cond_destroy(&e->events_there);
	pthread_mutex_destroy(&e->events_lock);
}

static char *put(char **at, const void *p, size_t n)
{
	char *to = *at;

	memcpy(to, p, n);
	*at += n;
	return to;
}

// One piece of memory: the event, its alternatives, its texts.
static struct eng_event *copy(const struct genai_event *ev)
{
	size_t top = ev->n_top * sizeof(*ev->top);
	size_t error = ev->error ? strlen(ev->error) + 1 : 0;
	size_t stop = ev->stop ? strlen(ev->stop) + 1 : 0;
	struct eng_event *x =
		malloc(sizeof(*x) + top + ev->text_bytes + 1 + error + stop);
	char *at = (char *)(x + 1);

	if (!x)
		return NULL;
	x->next = NULL;
	x->ev = *ev;
	x->ev.size = sizeof(x->ev);
	if (top)
		x->ev.top = (void *)put(&at, ev->top, top);
	x->ev.text = at;
	if (ev->text_bytes)
		put(&at, ev->text, ev->text_bytes);
	*at++ = 0;
	if (error)
		x->ev.error = put(&at, ev->error, error);
	if (stop)
		x->ev.stop = put(&at, ev->stop, stop);
	return x;
}

void eng_event(struct genai_engine *e, const struct genai_event *ev)
{
	struct eng_event *x = copy(ev);
	struct genai_event bare = *ev;
	uint64_t one = 1;
	bool first;

	if (!x && ev->kind == GENAI_EVENT_DONE) {
		bare.text_bytes = bare.n_top = 0;
		bare.error = bare.stop = NULL;
		x = copy(&bare);
	}
	if (!x)
		return;
	pthread_mutex_lock(&e->events_lock);
	first = !e->first_event;
	*e->events_end = x;
	e->events_end = &x->next;
	// a full counter is readable, too
	if (first && write(e->fd, &one, sizeof(one)) < 0)
		errno = 0;
	pthread_cond_signal(&e->events_there);
	pthread_mutex_unlock(&e->events_lock);
}

static bool wait_for(struct genai_engine *e, int32_t timeout_ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	if (timeout_ms > 0) {
		until.tv_sec += timeout_ms / 1000;
		until.tv_nsec += timeout_ms % 1000 * 1000000L;
		if (until.tv_nsec >= 1000000000L) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000L;
		}
	}
	while (!e->first_event) {
		if (timeout_ms < 0)
			pthread_cond_wait(&e->events_there, &e->events_lock);
		else if (!timeout_ms ||
			 pthread_cond_timedwait(&e->events_there,
						&e->events_lock,
						&until) == ETIMEDOUT)
			return e->first_event != NULL;
	}
	return true;
}

int32_t genai_engine_next(struct genai_engine *e, int32_t timeout_ms,
			  struct genai_event *out, struct genai_error *err)
{
	int32_t rc = genai_device_forked(&e->rt->device, err);
	uint64_t count;

	if (rc)
		return rc;
	pthread_mutex_lock(&e->events_lock);
	if (!wait_for(e, timeout_ms)) {
		pthread_mutex_unlock(&e->events_lock);
		return GENAI_PENDING;
	}
	free(e->given);
	e->given = e->first_event;
	e->first_event = e->given->next;
	if (!e->first_event) {
		e->events_end = &e->first_event;
		// it need not have been readable
		if (read(e->fd, &count, sizeof(count)) < 0)
			errno = 0;
	}
	pthread_mutex_unlock(&e->events_lock);
	genai_struct_give(out, &e->given->ev);
	return 0;
}

int32_t genai_engine_fd(const struct genai_engine *e)
{
	return e->fd;
}
