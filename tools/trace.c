// trace.c - times of what runs, from marks in the streams themselves.
#include "tools/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/runtime.h"

#define MOST 1000000u // events that are kept
#define DEEP 16	      // what the host does inside of something

static struct {
	struct trace t; // first
	struct genai_device *device;
	struct genai_runtime *rt;
	struct genai_stream_ops stream; // those that were there
	struct genai_barrier_ops barrier;
	int32_t (*submit)(struct genai_plan *plan, struct genai_stream *stream,
			  const struct genai_point *wait, uint32_t n_wait,
			  struct genai_point *out_signal,
			  struct genai_error *err);
	int32_t (*acquire)(struct genai_pager *pager, uint32_t visit,
			   struct genai_stream *stream,
			   struct genai_place *out_place,
			   struct genai_point *out_ready,
			   struct genai_error *err);
	struct trace_what *whats;
	struct trace_what *drained; // the last drain
	struct trace_what *inside[DEEP];
	uint32_t deep;
	uint64_t start, hits,
		streamed; // of the last step that was not replayed
	struct trace_count now;
	bool replay, bracket;
	FILE *json, *svg;
	size_t cap_events, cap_counts;
	pthread_mutex_t lock; // events, whats, streams: marks run on any thread
} * on;

static uint64_t now(void)
{
	return (uint64_t)(cli_now() * 1e9) - on->start;
}

static void add_event(const struct trace_what *w, uint64_t begin, uint64_t end)
{
	pthread_mutex_lock(&on->lock);
	if (on->t.n_events == on->cap_events) {
		size_t cap = on->cap_events ? 2 * on->cap_events : 4096;
		struct trace_event *more =
			cap <= 2 * MOST
				? realloc(on->t.events, cap * sizeof(*more))
				: NULL;

		if (more) {
			on->t.events = more;
			on->cap_events = cap;
		}
	}
	if (on->t.n_events < on->cap_events && on->t.n_events < MOST)
		on->t.events[on->t.n_events++] =
			(struct trace_event){begin, end, w};
	else
		on->t.dropped++;
	pthread_mutex_unlock(&on->lock);
}

static struct trace_what *new_what(struct trace_stream *s, enum trace_kind kind,
				   const char *name)
{
	struct trace_what *w;

	if (on->t.n_events >= MOST) { // no marks either: they cost
		on->t.dropped++;
		return NULL;
	}
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->stream = s;
	w->kind = kind;
	w->node = GENAI_NONE;
	snprintf(w->name, sizeof(w->name), "%s", name ? name : "unit");
	pthread_mutex_lock(&on->lock);
	w->next = on->whats;
	on->whats = w;
	pthread_mutex_unlock(&on->lock);
	return w;
}

// ---- marks ----

static int32_t at_begin(void *ctx, void *const *mem, struct genai_error *err)
{
	struct trace_what *w = ctx;

	(void)mem;
	(void)err;
	w->begun = w->stream->last = now();
	return 0;
}

// A stream does one thing at a time: what has no mark before it, being enqueued
// by its executor, or the wait that took the stream into a recording, began
// when the one before ended.
static int32_t at_end(void *ctx, void *const *mem, struct genai_error *err)
{
	struct trace_what *w = ctx;
	uint64_t begin = w->begun, end = now();

	(void)mem;
	(void)err;
	if (w->kind != TRACE_STEP && begin < w->stream->last)
		begin = w->stream->last;
	add_event(w, begin, end);
	w->stream->last = end;
	return 0;
}

static int32_t mark(void *self, struct genai_stream *s, struct trace_what *w,
		    int32_t (*fn)(void *ctx, void *const *mem,
				  struct genai_error *err),
		    struct genai_error *err)
{
	struct genai_work work = {.size = sizeof(work),
				  .node = GENAI_NONE,
				  .name = "trace",
				  .fn = fn,
				  .ctx = w};

	return w ? on->stream.launch_host(self, s, &work, NULL, 0, err) : 0;
}

static struct trace_stream *stream_of(const struct genai_stream *raw)
{
	struct trace_stream *s;

	pthread_mutex_lock(&on->lock);
	s = on->t.streams;
	while (s && s->raw != raw)
		s = s->next;
	pthread_mutex_unlock(&on->lock);
	return s;
}

static struct trace_what *begin(void *self, struct genai_stream *raw,
				enum trace_kind kind, const char *name,
				int32_t *rc, struct genai_error *err)
{
	struct trace_stream *s = stream_of(raw);
	struct trace_what *w = s ? new_what(s, kind, name) : NULL;

	*rc = mark(self, raw, w, at_begin, err);
	return w;
}

// ---- the tables ----

static int32_t t_create(void *self, const char *name, struct genai_stream **out,
			struct genai_error *err)
{
	int32_t rc = on->stream.create(self, name, out, err);
	struct trace_stream *s = rc || !*out ? NULL : calloc(1, sizeof(*s));

	if (!s)
		return rc;
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->raw = *out;
	pthread_mutex_lock(&on->lock);
	s->number = on->t.streams ? on->t.streams->number + 1 : 1;
	s->next = on->t.streams;
	on->t.streams = s;
	pthread_mutex_unlock(&on->lock);
	return rc;
}

// Its memory may become another stream's.
static int32_t t_destroy(void *self, struct genai_stream *raw,
			 struct genai_error *err)
{
	struct trace_stream *s = stream_of(raw);
	int32_t rc = on->stream.destroy(self, raw, err);

	if (!rc && s)
		s->raw = NULL;
	return rc;
}

static int32_t t_wait(void *self, struct genai_stream *s, struct genai_point p,
		      struct genai_error *err)
{
	struct trace_stream *of = p.stream == s ? NULL : stream_of(p.stream);
	struct trace_what *w;
	int32_t rc;

	if (!of) // its own point: nothing is waited for
		return on->stream.wait(self, s, p, err);
	w = begin(self, s, TRACE_WAIT, of->name, &rc, err);
	if (!rc)
		rc = on->stream.wait(self, s, p, err);
	return rc ? rc : mark(self, s, w, at_end, err);
}

static int32_t t_copy(void *self, struct genai_stream *s, uint64_t dst,
		      uint64_t src, uint64_t bytes, uint32_t kind,
		      struct genai_error *err)
{
	static const char *const names[] = {"copy", "to device", "from device",
					    "on device"};
	int32_t rc;
	struct trace_what *w = begin(self, s, TRACE_COPY,
				     names[kind <= 3 ? kind : 0], &rc, err);

	if (w) {
		w->bytes = bytes;
		w->copy_kind = kind;
	}
	if (!rc)
		rc = on->stream.copy(self, s, dst, src, bytes, kind, err);
	return rc ? rc : mark(self, s, w, at_end, err);
}

static int32_t t_launch(void *self, struct genai_stream *raw,
			const struct genai_work *work,
			const struct genai_access *acc, uint32_t n,
			struct genai_error *err)
{
	struct trace_stream *s = stream_of(raw);
	struct trace_what *w = s ? new_what(s, TRACE_KERNEL, work->name) : NULL;
	int32_t rc = 0;

	if (w)
		w->node = work->node;
	if (on->bracket)
		rc = mark(self, raw, w, at_begin, err);
	if (!rc)
		rc = on->stream.launch(self, raw, work, acc, n, err);
	return rc ? rc : mark(self, raw, w, at_end, err);
}

static int32_t t_launch_host(void *self, struct genai_stream *s,
			     const struct genai_work *work,
			     const struct genai_access *acc, uint32_t n,
			     struct genai_error *err)
{
	int32_t rc;
	struct trace_what *w = begin(self, s, TRACE_READ, work->name, &rc, err);

	if (!rc)
		rc = on->stream.launch_host(self, s, work, acc, n, err);
	return rc ? rc : mark(self, s, w, at_end, err);
}

static int32_t t_launch_graph(void *self, struct genai_recording *r,
			      struct genai_stream *s, struct genai_error *err)
{
	on->replay = true;
	return on->stream.launch_graph(self, r, s, err);
}

static int32_t t_host_read(void *self, const struct genai_point *points,
			   uint32_t n, uint64_t deadline_ns,
			   struct genai_error *err)
{
	struct trace_what *w = new_what(NULL, TRACE_BARRIER, "host_read");
	uint64_t from = now();
	int32_t rc = on->barrier.host_read(self, points, n, deadline_ns, err);

	if (w)
		add_event(w, from, now());
	return rc;
}

static int32_t t_drain(void *self, struct genai_range range,
		       uint64_t deadline_ns, struct genai_ticket *out,
		       struct genai_error *err)
{
	struct trace_what *w = new_what(NULL, TRACE_BARRIER, "drain");
	uint64_t from = now();
	int32_t rc = on->barrier.drain(self, range, deadline_ns, out, err);

	if (w)
		add_event(w, from, now());
	on->drained = w;
	return rc;
}

// What a ticket is used for is why there was a drain.
static void used(const struct genai_ticket *ticket, const char *what)
{
	struct trace_what *w = ticket ? on->drained : NULL;
	size_t n;

	if (!w || strstr(w->reason, what))
		return;
	n = strlen(w->reason);
	snprintf(w->reason + n, sizeof(w->reason) - n, "%s%s", n ? ", " : "",
		 what);
}

// Called with the device's books locked.
static const char *tag_of(genai_addr addr)
{
	const struct genai_device *d = on->device;

	for (uint32_t i = 0; i < d->n_allocs; i++)
		if (d->allocs[i].addr == addr)
			return d->lines[d->allocs[i].tag].tag;
	return "memory";
}

static int32_t t_free(void *self, genai_addr addr,
		      const struct genai_ticket *ticket,
		      struct genai_error *err)
{
	used(ticket, tag_of(addr));
	return on->stream.free(self, addr, ticket, err);
}

static int32_t t_unmap(void *self, struct genai_range range,
		       const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	used(ticket, tag_of(range.addr));
	return on->stream.unmap(self, range, ticket, err);
}

static int32_t t_unregister(void *self, genai_addr addr,
			    const struct genai_ticket *ticket,
			    struct genai_error *err)
{
	used(ticket, "registered memory");
	return on->stream.host_unregister(self, addr, ticket, err);
}

static int32_t t_graph_destroy(void *self, struct genai_recording *r,
			       const struct genai_ticket *ticket,
			       struct genai_error *err)
{
	used(ticket, "recordings");
	return on->stream.graph_destroy(self, r, ticket, err);
}

static int32_t t_reset(void *self, const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	used(ticket, "reset after an error");
	return on->stream.reset(self, ticket, err);
}

static int32_t t_acquire(struct genai_pager *pager, uint32_t visit,
			 struct genai_stream *stream,
			 struct genai_place *out_place,
			 struct genai_point *out_ready, struct genai_error *err)
{
	uint32_t kind = 0;

	if (!on->rt->pager_ops.resident(pager, visit, &kind, NULL) && kind)
		on->now.hits++;
	else
		on->now.streamed++;
	return on->acquire(pager, visit, stream, out_place, out_ready, err);
}

static void count_step(void)
{
	if (!on->now.hits && !on->now.streamed) { // as when it was recorded
		on->now.hits = on->hits;
		on->now.streamed = on->streamed;
	}
	on->hits = on->now.hits;
	on->streamed = on->now.streamed;
	if (on->t.n_counts == on->cap_counts) {
		size_t cap = on->cap_counts ? 2 * on->cap_counts : 256;
		struct trace_count *more =
			realloc(on->t.counts, cap * sizeof(*more));

		if (!more)
			return;
		on->t.counts = more;
		on->cap_counts = cap;
	}
	on->t.counts[on->t.n_counts++] = on->now;
}

static int32_t t_submit(struct genai_plan *plan, struct genai_stream *stream,
			const struct genai_point *wait, uint32_t n_wait,
			struct genai_point *out_signal, struct genai_error *err)
{
	void *self = on->device->raw_self;
	struct trace_what *w;
	int32_t rc;

	on->now = (struct trace_count){.at = now()};
	on->replay = false;
	trace_enter("submit");
	w = begin(self, stream, TRACE_STEP, "step", &rc, err);
	if (!rc)
		rc = on->submit(plan, stream, wait, n_wait, out_signal, err);
	if (w)
		w->replayed = on->replay;
	if (!rc)
		rc = mark(self, stream, w, at_end, err);
	trace_leave();
	count_step();
	return rc;
}

// ---- beginning and end ----

static void forget(void)
{
	for (struct trace_what *w = on->whats, *next; w; w = next) {
		next = w->next;
		free(w);
	}
	for (struct trace_stream *s = on->t.streams, *next; s; s = next) {
		next = s->next;
		free(s);
	}
	if (on->json)
		fclose(on->json);
	if (on->svg)
		fclose(on->svg);
	pthread_mutex_destroy(&on->lock);
	free(on->t.events);
	free(on->t.counts);
	free(on);
	on = NULL;
}

// Before anything is loaded: a path that cannot be written is told at once.
static int32_t open_file(struct cli *c, const char *path, FILE **out)
{
	if (path)
		*out = fopen(path, "we");
	return !path || *out
		       ? 0
		       : genai_fail(&c->err, GENAI_E_IO, "%s: cannot write: %s",
				    path, strerror(errno));
}

int32_t trace_start(struct cli *c, struct genai_runtime *rt)
{
	struct genai_device *d = &rt->device;
	int32_t rc;

	if (!c->trace && !c->timeline)
		return 0;
	if (!strcmp(d->caps.device_kind, "sim") &&
	    d->caps.flags & GENAI_STREAM_CAP_RATES)
		return genai_fail(&c->err, GENAI_E_CONFIG,
				  "--trace, --timeline: clock = simulated "
				  "counts time without its passing; take "
				  "clock = real");
	on = calloc(1, sizeof(*on));
	if (!on)
		return genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
	pthread_mutex_init(&on->lock, NULL);
	rc = open_file(c, c->trace, &on->json);
	if (!rc)
		rc = open_file(c, c->timeline, &on->svg);
	if (rc) {
		forget();
		return rc;
	}
	on->start = (uint64_t)(cli_now() * 1e9);
	on->device = d;
	on->rt = rt;
	on->bracket = !(d->caps.flags & GENAI_STREAM_CAP_NATIVE);
	snprintf(on->t.label, sizeof(on->t.label), "%s, %s on %s",
		 rt->executor.label, rt->pager.label, d->caps.device_name);
	on->stream = d->raw;
	on->barrier = d->raw_barrier;
	on->submit = rt->exec.submit;
	on->acquire = rt->pager_ops.acquire;
	d->raw.create = t_create;
	d->raw.destroy = t_destroy;
	d->raw.wait = t_wait;
	d->raw.copy = t_copy;
	d->raw.launch = t_launch;
	d->raw.launch_host = t_launch_host;
	if (d->raw.launch_graph)
		d->raw.launch_graph = t_launch_graph;
	if (d->raw.graph_destroy)
		d->raw.graph_destroy = t_graph_destroy;
	d->raw.free = t_free;
	if (d->raw.unmap)
		d->raw.unmap = t_unmap;
	d->raw.host_unregister = t_unregister;
	d->raw.reset = t_reset;
	d->raw_barrier.host_read = t_host_read;
	d->raw_barrier.drain = t_drain;
	rt->exec.submit = t_submit;
	rt->pager_ops.acquire = t_acquire;
	return 0;
}

void trace_enter(const char *name)
{
	struct trace_what *w;

	if (!on)
		return;
	w = on->deep < DEEP ? new_what(NULL, TRACE_HOST, name) : NULL;
	if (w)
		w->begun = now();
	if (on->deep < DEEP)
		on->inside[on->deep] = w;
	on->deep++;
}

void trace_leave(void)
{
	struct trace_what *w;

	if (!on || !on->deep)
		return;
	on->deep--;
	w = on->deep < DEEP ? on->inside[on->deep] : NULL;
	if (w)
		add_event(w, w->begun, now());
}

// Take all of a file's errors.
static int32_t put(struct cli *c, const char *path, FILE **f)
{
	bool failed = ferror(*f);

	failed |= fclose(*f) != 0;
	*f = NULL;
	return failed ? genai_fail(&c->err, GENAI_E_IO, "%s: cannot write: %s",
				   path, strerror(errno))
		      : 0;
}

int32_t trace_finish(struct cli *c)
{
	int32_t rc = 0;

	if (!on)
		return 0;
	if (on->t.dropped)
		fprintf(stderr,
			"genai: warning: the trace has its first %u events; "
			"%" PRIu64 " more are left out\n",
			MOST, on->t.dropped);
	if (on->json) {
		trace_json(&on->t, on->json);
		rc = put(c, c->trace, &on->json);
	}
	if (on->svg) {
		bool any = trace_svg(&on->t, on->svg);
		int32_t rc2 = put(c, c->timeline, &on->svg);

		rc = rc ? rc : rc2;
		if (!rc && !any)
			rc = genai_fail(&c->err, GENAI_E_STATE,
					"%s: nothing was computed, so there "
					"is no step to draw",
					c->timeline);
	}
	forget();
	return rc;
}
