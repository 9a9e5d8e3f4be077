// tracer.c - a layer in one file: what is asked of a device, and when.
//
// It stands in front of a stream runtime, [runtime] stream = tracer > cpu_ref,
// and looks at a few calls: the others are not in its tables and go to the
// device as if it were not there.  Each call that it has does three things:
//
//	the very same call of the table below, which host->below gave
//	a counter, and a line if the key lines says so
//	the result, as it came
//
// Streams and points are those of the device.  A layer that hands out its own
// would have to have every slot that takes one.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <genai/barrier.h>

#define STREAMS 64 // whose names are known

struct name {
	const struct genai_stream *stream;
	char text[24];
};

struct tracer {
	const struct genai_host *host;
	const struct genai_stream_ops *stream; // below
	const struct genai_barrier_ops *barrier;
	void *stream_self, *barrier_self;
	int32_t lines;
	uint64_t began;
	pthread_mutex_t lock; // names
	struct name names[STREAMS];
};

// ---- what it says ----

static void count(struct tracer *t, const char *what, uint64_t n)
{
	t->host->counter_add(t->host->ctx, what, (int64_t)n);
}

// Give a stream the name; NULL takes it away.
static void name(struct tracer *t, const struct genai_stream *s,
		 const char *text)
{
	uint32_t i = 0;

	pthread_mutex_lock(&t->lock);
	while (i < STREAMS && t->names[i].stream != (text ? NULL : s))
		i++;
	if (i < STREAMS) {
		t->names[i].stream = text ? s : NULL;
		snprintf(t->names[i].text, sizeof(t->names[i].text), "%s",
			 text ? text : "");
	}
	pthread_mutex_unlock(&t->lock);
}

static void line(struct tracer *t, const struct genai_stream *s,
		 const char *what, uint64_t n, int32_t rc)
{
	char on[24] = "?";
	uint64_t us;

	if (!t->lines)
		return;
	us = (t->host->clock_ns(t->host->ctx) - t->began) / 1000;
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < STREAMS; i++)
		if (t->names[i].stream == s)
			memcpy(on, t->names[i].text, sizeof(on));
	pthread_mutex_unlock(&t->lock);
	t->host->log(t->host->ctx, GENAI_LOG_INFO, "%llu us %s: %s %llu%s",
		     (unsigned long long)us, s ? on : "host", what,
		     (unsigned long long)n, rc < 0 ? " failed" : "");
}

// ---- the calls it looks at ----

static int32_t create(void *self, const char *text,
		      struct genai_stream **out_stream, struct genai_error *err)
{
	struct tracer *t = self;
	int32_t rc = t->stream->create(t->stream_self, text, out_stream, err);

	if (!rc)
		name(t, *out_stream, text ? text : "");
	return rc;
}

static int32_t destroy(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	struct tracer *t = self;
	int32_t rc = t->stream->destroy(t->stream_self, s, err);

	if (!rc && s)
		name(t, s, NULL);
	return rc;
}

static int32_t copy(void *self, struct genai_stream *s, uint64_t dst,
		    uint64_t src, uint64_t bytes, uint32_t kind,
		    struct genai_error *err)
{
	static const char *const kinds[] = {"copy", "copy up", "copy down",
					    "copy across"};
	struct tracer *t = self;
	int32_t rc =
		t->stream->copy(t->stream_self, s, dst, src, bytes, kind, err);

	count(t, "copies", 1);
	count(t, "copy_bytes", bytes);
	line(t, s, kinds[kind <= GENAI_COPY_D2D ? kind : 0], bytes, rc);
	return rc;
}

static int32_t launch(void *self, struct genai_stream *s,
		      const struct genai_work *work,
		      const struct genai_access *accesses, uint32_t n,
		      struct genai_error *err)
{
	struct tracer *t = self;
	int32_t rc =
		t->stream->launch(t->stream_self, s, work, accesses, n, err);

	count(t, "launches", 1);
	line(t, s, work->name, work->node, rc);
	return rc;
}

static int32_t wait_for(void *self, struct genai_stream *s,
			struct genai_point p, struct genai_error *err)
{
	struct tracer *t = self;
	int32_t rc = t->stream->wait(t->stream_self, s, p, err);

	count(t, "waits", 1);
	line(t, s, "wait for point", p.value, rc);
	return rc;
}

static int32_t launch_graph(void *self, struct genai_recording *r,
			    struct genai_stream *s, struct genai_error *err)
{
	struct tracer *t = self;
	int32_t rc = t->stream->launch_graph(t->stream_self, r, s, err);

	count(t, "replays", 1);
	line(t, s, "replay", 1, rc);
	return rc;
}

static int32_t host_read(void *self, const struct genai_point *points,
			 uint32_t n, uint64_t deadline_ns,
			 struct genai_error *err)
{
	struct tracer *t = self;
	uint64_t from = t->host->clock_ns(t->host->ctx);
	int32_t rc = t->barrier->host_read(t->barrier_self, points, n,
					   deadline_ns, err);

	count(t, "host_wait_ns", t->host->clock_ns(t->host->ctx) - from);
	line(t, NULL, "has waited for points", n, rc);
	return rc;
}

// ---- the tables: what is not in them is the device's ----
//
// launch_graph is here although not every device records: caps, which are the
// device's, say so, and nobody calls it there.

static const struct genai_stream_ops stream_table = {
	.size = sizeof(stream_table),
	.version = 1,
	.create = create,
	.destroy = destroy,
	.copy = copy,
	.launch = launch,
	.wait = wait_for,
	.launch_graph = launch_graph,
};

static const struct genai_barrier_ops barrier_table = {
	.size = sizeof(barrier_table),
	.version = 1,
	.host_read = host_read,
};

static int32_t init(const struct genai_host *host,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	struct tracer *t = host->alloc(host->ctx, sizeof(*t), "tracer");
	const void *stream, *barrier;
	int32_t rc;

	(void)params;
	if (!t)
		return host->error_set(host->ctx, err, GENAI_E_NOMEM,
				       "no memory for the tracer");
	memset(t, 0, sizeof(*t));
	t->host = host;
	rc = host->below(host->ctx, GENAI_IFACE_STREAM, &stream,
			 &t->stream_self, err);
	if (!rc)
		rc = host->below(host->ctx, GENAI_IFACE_BARRIER, &barrier,
				 &t->barrier_self, err);
	if (rc) {
		host->free(host->ctx, t);
		return rc;
	}
	t->stream = stream;
	t->barrier = barrier;
	host->config_get_bool(host->ctx, "lines", &t->lines);
	t->began = host->clock_ns(host->ctx);
	pthread_mutex_init(&t->lock, NULL);
	*out_self = t;
	return 0;
}

static void fini(void *self)
{
	struct tracer *t = self;

	pthread_mutex_destroy(&t->lock);
	t->host->free(t->host->ctx, t);
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_STREAM_LAYER, "tracer", 1, 0, &stream_table},
	{GENAI_IFACE_BARRIER_LAYER, "tracer", 1, 0, &barrier_table},
};

static const struct genai_config_key keys[] = {
	{"lines", "off", GENAI_KEY_BOOL, 0, NULL,
	 "a line of the log for every call, beside the counters"},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = sizeof(ifaces) / sizeof(ifaces[0]),
	.name = "tracer",
	.version = "1.0",
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
	.keys = keys,
	.n_keys = 1,
};

GENAI_MODULE_QUERY(block)
