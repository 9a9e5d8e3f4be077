// order.c - the happens-before check: the tables, streams and the host.
#include "core/order/order_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/grow.h"

// ---- small parts ----

int32_t order_grow(void **p, uint32_t *cap, uint32_t need, size_t one,
		   struct genai_error *err)
{
	return genai_grow(p, cap, need, one, "the order check", err);
}

int32_t order_line(struct genai_order *o, uint32_t *out_line,
		   struct genai_error *err)
{
	for (uint32_t i = 0; i < GENAI_ORDER_LINES; i++) {
		if (o->line_used[i])
			continue;
		o->line_used[i] = true;
		*out_line = i;
		return 0;
	}
	return genai_fail(err, GENAI_E_LIMIT,
			  "order check: more than %d streams and recorded "
			  "branches",
			  GENAI_ORDER_LINES);
}

struct order_stream *order_stream_of(struct genai_order *o,
				     const struct genai_stream *raw)
{
	struct order_stream *s = o->streams;

	while (s && s->raw != raw)
		s = s->next;
	return s;
}

static uint32_t hash(const char *s)
{
	uint32_t h = 2166136261u;

	while (*s)
		h = (h ^ (unsigned char)*s++) * 16777619u;
	return h;
}

static const char **name_slot(const char **names, uint32_t cap, const char *s)
{
	uint32_t i = hash(s);

	while (names[i & (cap - 1)] && strcmp(names[i & (cap - 1)], s))
		i++;
	return &names[i & (cap - 1)];
}

const char *order_intern(struct genai_order *o, const char *s)
{
	const char **slot, **more;
	uint32_t cap = o->cap_names ? 2 * o->cap_names : 256;

	if (2 * o->n_names >= o->cap_names) {
		more = calloc(cap, sizeof(*more));
		if (!more)
			return "?";
		for (uint32_t i = 0; i < o->cap_names; i++)
			if (o->names[i])
				*name_slot(more, cap, o->names[i]) =
					o->names[i];
		free(o->names);
		o->names = more;
		o->cap_names = cap;
	}
	slot = name_slot(o->names, o->cap_names, s);
	if (!*slot) {
		*slot = strdup(s);
		o->n_names++;
	}
	return *slot ? *slot : "?";
}

// ---- the check ----

// Long names are cut: what follows them in a message is what matters.
struct order_text order_unit_text(const char *what, uint32_t node)
{
	struct order_text t;
	size_t n = strlen(what);
	const char *cut = n > 72 ? "..." : "";

	for (n = n > 72 ? 72 : n; n && (what[n] & 0xc0) == 0x80;)
		n--; // not inside a character
	if (node == GENAI_NONE)
		snprintf(t.v, sizeof(t.v), "%.*s%s (no node)", (int)n, what,
			 cut);
	else
		snprintf(t.v, sizeof(t.v), "%.*s%s (node %u)", (int)n, what,
			 cut, node);
	return t;
}

static int32_t report(const struct genai_order *o,
		      const struct genai_touch *now,
		      const struct genai_touch *before,
		      const struct genai_access *a, struct genai_error *err)
{
	int32_t rc = genai_fail(
		err, GENAI_E_ORDER,
		"race: %s on stream '%.20s' %s %" PRIu64
		" bytes from %s, and %s on stream '%.20s' %s some of them; "
		"missing edge: unit %" PRIu64 " of '%.20s' does not wait for a "
		"point of '%.20s' after its unit %" PRIu64,
		order_unit_text(now->what, now->node).v, now->stream,
		now->write ? "writes" : "reads", a->bytes,
		order_place_text(o, a->addr).v,
		order_unit_text(before->what, before->node).v, before->stream,
		before->write ? "writes" : "reads", now->epoch, now->stream,
		before->stream, before->epoch);

	if (err)
		err->node = now->node;
	return rc;
}

int32_t order_unit(struct genai_order *o, uint32_t line, const char *stream,
		   struct genai_clock *clock, const char *what, uint32_t node,
		   const struct genai_access *acc, uint32_t n,
		   struct genai_error *err)
{
	struct genai_touch t = {line, node,   ++o->epoch[line],
				what, stream, false};
	struct genai_touch before;
	int32_t rc = 0;

	clock->of[line] = t.epoch;
	for (uint32_t i = 0; !rc && i < n; i++) {
		if (!acc[i].bytes)
			continue;
		t.write = acc[i].flags & GENAI_WRITE;
		rc = genai_order_touch(&o->map, acc[i].addr, acc[i].bytes, &t,
				       clock, &before);
		if (rc == GENAI_E_ORDER)
			return report(o, &t, &before, &acc[i], err);
	}
	return rc ? genai_fail(err, rc, "no memory for the order check") : 0;
}

static int32_t enqueue(struct genai_order *o, struct genai_stream *raw,
		       const char *what, uint32_t node,
		       const struct genai_access *acc, uint32_t n,
		       struct genai_error *err)
{
	struct order_stream *s;
	int32_t rc = 0;

	pthread_mutex_lock(&o->lock);
	s = order_stream_of(o, raw);
	what = order_intern(o, what);
	if (s && s->rec) {
		rc = order_record_unit(o, s, what, node, acc, n, err);
	} else if (s) {
		genai_clock_join(&s->clock, &o->host);
		rc = order_unit(o, s->line, s->name, &s->clock, what, node, acc,
				n, err);
	}
	pthread_mutex_unlock(&o->lock);
	return rc;
}

// ---- streams ----

static int32_t o_create(void *self, const char *name, struct genai_stream **out,
			struct genai_error *err)
{
	struct genai_order *o = self;
	struct order_stream *s = calloc(1, sizeof(*s));
	int32_t rc;

	if (!s)
		return genai_fail(err, GENAI_E_NOMEM,
				  "no memory for the order check");
	rc = o->raw.create(o->raw_self, name, &s->raw, err);
	if (rc || !s->raw) {
		free(s);
		return rc;
	}
	pthread_mutex_lock(&o->lock);
	rc = order_line(o, &s->line, err);
	if (!rc) {
		s->name = order_intern(o, name ? name : "");
		s->next = o->streams;
		o->streams = s;
	}
	pthread_mutex_unlock(&o->lock);
	if (rc) {
		o->raw.destroy(o->raw_self, s->raw, NULL);
		free(s);
		return rc;
	}
	*out = s->raw;
	return 0;
}

// An idle stream's work is done: its line may be given to another.
static void drop_stream(struct genai_order *o, struct genai_stream *raw)
{
	struct order_stream **p = &o->streams, *s;

	while (*p && (*p)->raw != raw)
		p = &(*p)->next;
	s = *p;
	if (!s)
		return;
	*p = s->next;
	genai_clock_join(&o->host, &s->clock);
	o->line_used[s->line] = false;
	free(s->marks);
	free(s);
}

static int32_t o_destroy(void *self, struct genai_stream *raw,
			 struct genai_error *err)
{
	struct genai_order *o = self;
	int32_t rc = o->raw.destroy(o->raw_self, raw, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&o->lock);
	drop_stream(o, raw);
	pthread_mutex_unlock(&o->lock);
	return 0;
}

static bool known(const struct genai_order *o, const struct order_mark *m)
{
	for (uint32_t i = 0; i < GENAI_ORDER_LINES; i++)
		if (m->clock.of[i] > o->host.of[i])
			return false;
	return true;
}

// Points that the host knows to be reached say nothing any more.
static void prune(struct genai_order *o, struct order_stream *s)
{
	uint32_t k = 0;

	while (k < s->n_marks && known(o, &s->marks[k]))
		k++;
	if (!k)
		return;
	s->n_marks -= k;
	if (s->n_marks)
		memmove(s->marks, s->marks + k, s->n_marks * sizeof(*s->marks));
}

static int32_t add_mark(struct genai_order *o, struct order_stream *s,
			struct genai_point p, struct genai_error *err)
{
	int32_t rc = 0;

	if (s->n_marks == s->cap_marks)
		prune(o, s);
	if (!s->n_marks || s->marks[s->n_marks - 1].value != p.value)
		rc = order_grow((void **)&s->marks, &s->cap_marks, ++s->n_marks,
				sizeof(*s->marks), err);
	if (rc) {
		s->n_marks--;
		return rc;
	}
	s->marks[s->n_marks - 1].value = p.value;
	s->marks[s->n_marks - 1].clock = s->clock;
	return 0;
}

static int32_t o_mark(void *self, struct genai_stream *raw,
		      struct genai_point *out, struct genai_error *err)
{
	struct genai_order *o = self;
	struct order_stream *s;
	int32_t rc = o->raw.mark(o->raw_self, raw, out, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&o->lock);
	s = order_stream_of(o, raw);
	if (s && s->rec)
		rc = order_record_mark(s, *out, err);
	else if (s)
		rc = add_mark(o, s, *out, err);
	pthread_mutex_unlock(&o->lock);
	return rc;
}

// What a point is after; NULL if nothing that the host does not know.
static const struct genai_clock *clock_at(struct genai_order *o,
					  struct genai_point p)
{
	struct order_stream *s = order_stream_of(o, p.stream);
	uint32_t i = s ? s->n_marks : 0;

	while (i && s->marks[i - 1].value > p.value)
		i--;
	return i ? &s->marks[i - 1].clock : NULL;
}

static int32_t note_wait(struct genai_order *o, struct order_stream *s,
			 struct genai_point p, struct genai_error *err)
{
	const struct genai_clock *at;
	bool inside;
	int32_t rc = order_record_wait(o, s, p, &inside, err);

	// a recording's wait for a point outside it is no part of a replay
	if (rc || inside || s->rec)
		return rc;
	at = clock_at(o, p);
	if (at)
		genai_clock_join(&s->clock, at);
	return 0;
}

static int32_t o_wait(void *self, struct genai_stream *raw,
		      struct genai_point p, struct genai_error *err)
{
	struct genai_order *o = self;
	struct order_stream *s;
	int32_t rc = o->raw.wait(o->raw_self, raw, p, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&o->lock);
	s = order_stream_of(o, raw);
	if (s && p.stream && p.stream != raw)
		rc = note_wait(o, s, p, err);
	pthread_mutex_unlock(&o->lock);
	return rc;
}

static void host_waited(struct genai_order *o, struct genai_point p)
{
	const struct genai_clock *at;

	pthread_mutex_lock(&o->lock);
	at = p.stream ? clock_at(o, p) : NULL;
	if (at)
		genai_clock_join(&o->host, at);
	pthread_mutex_unlock(&o->lock);
}

static int32_t o_poll(void *self, struct genai_point p, struct genai_error *err)
{
	struct genai_order *o = self;
	int32_t rc = o->raw.poll(o->raw_self, p, err);

	if (!rc)
		host_waited(o, p);
	return rc;
}

// ---- work ----

static int32_t o_copy(void *self, struct genai_stream *s, uint64_t dst,
		      uint64_t src, uint64_t bytes, uint32_t kind,
		      struct genai_error *err)
{
	struct genai_order *o = self;
	const char *what = kind == GENAI_COPY_H2D   ? "copy to the device"
			   : kind == GENAI_COPY_D2H ? "copy from the device"
						    : "copy on the device";
	struct genai_access acc[2] = {
		{kind == GENAI_COPY_H2D ? order_device_addr(o, src) : src,
		 bytes, GENAI_READ, 0},
		{kind == GENAI_COPY_D2H ? order_device_addr(o, dst) : dst,
		 bytes, GENAI_WRITE, 0}};
	int32_t rc = enqueue(o, s, what, GENAI_NONE, acc, 2, err);

	return rc ? rc
		  : o->raw.copy(o->raw_self, s, dst, src, bytes, kind, err);
}

// A unit, whoever runs it.
#define UNIT(launch)                                                           \
	static int32_t o_##launch(void *self, struct genai_stream *s,          \
				  const struct genai_work *work,               \
				  const struct genai_access *acc, uint32_t n,  \
				  struct genai_error *err)                     \
	{                                                                      \
		struct genai_order *o = self;                                  \
		int32_t rc = enqueue(o, s, work->name ? work->name : "a unit", \
				     work->node, acc, n, err);                 \
                                                                               \
		return rc ? rc                                                 \
			  : o->raw.launch(o->raw_self, s, work, acc, n, err);  \
	}
UNIT(launch)
UNIT(launch_host)
UNIT(launch_open)
#undef UNIT

static int32_t o_signal(void *self, const void *ctx,
			const struct genai_error *why, struct genai_error *err)
{
	struct genai_order *o = self;

	return o->raw.signal(o->raw_self, ctx, why, err);
}

static int32_t o_stamp(void *self, struct genai_stream *s, uint64_t *out_stamp,
		       struct genai_error *err)
{
	struct genai_order *o = self;

	return o->raw.stamp(o->raw_self, s, out_stamp, err);
}

static int32_t o_elapsed(void *self, uint64_t from, uint64_t to,
			 int64_t *out_ns, struct genai_error *err)
{
	struct genai_order *o = self;

	return o->raw.elapsed(o->raw_self, from, to, out_ns, err);
}

static int32_t o_capture_begin(void *self, struct genai_stream *raw,
			       struct genai_error *err)
{
	struct genai_order *o = self;
	struct order_stream *s;
	int32_t rc = o->raw.capture_begin(o->raw_self, raw, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&o->lock);
	s = order_stream_of(o, raw);
	if (s)
		rc = order_record_begin(o, s, err);
	pthread_mutex_unlock(&o->lock);
	if (rc)
		o->raw.capture_abort(o->raw_self, raw, NULL);
	return rc;
}

static void end_recording(struct genai_order *o, struct genai_stream *raw,
			  struct genai_recording *rec)
{
	struct order_stream *s;

	pthread_mutex_lock(&o->lock);
	s = order_stream_of(o, raw);
	if (s)
		order_record_end(o, s, rec);
	pthread_mutex_unlock(&o->lock);
}

static int32_t o_capture_end(void *self, struct genai_stream *raw,
			     struct genai_recording **out,
			     struct genai_error *err)
{
	struct genai_order *o = self;
	struct genai_recording *rec = NULL;
	int32_t rc = o->raw.capture_end(o->raw_self, raw, &rec, err);

	end_recording(o, raw, rc ? NULL : rec);
	if (!rc)
		*out = rec;
	return rc;
}

static int32_t o_capture_abort(void *self, struct genai_stream *raw,
			       struct genai_error *err)
{
	struct genai_order *o = self;

	end_recording(o, raw, NULL);
	return o->raw.capture_abort(o->raw_self, raw, err);
}

static int32_t o_launch_graph(void *self, struct genai_recording *rec,
			      struct genai_stream *raw, struct genai_error *err)
{
	struct genai_order *o = self;
	struct order_stream *s;
	int32_t rc = 0;

	pthread_mutex_lock(&o->lock);
	s = order_stream_of(o, raw);
	if (s && !s->rec)
		rc = order_replay(o, rec, s, err);
	pthread_mutex_unlock(&o->lock);
	return rc ? rc : o->raw.launch_graph(o->raw_self, rec, raw, err);
}

static int32_t o_graph_destroy(void *self, struct genai_recording *raw,
			       const struct genai_ticket *t,
			       struct genai_error *err)
{
	struct genai_order *o = self;
	struct order_recording *rec;
	int32_t rc = o->raw.graph_destroy(o->raw_self, raw, t, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&o->lock);
	rec = o->recordings;
	while (rec && rec->raw != raw)
		rec = rec->next;
	if (rec)
		order_record_free(o, rec);
	pthread_mutex_unlock(&o->lock);
	return 0;
}

// ---- passed on ----

static int32_t o_caps(void *self, struct genai_stream_caps *out,
		      struct genai_error *err)
{
	struct genai_order *o = self;

	return o->raw.caps(o->raw_self, out, err);
}

static int32_t o_reset(void *self, const struct genai_ticket *t,
		       struct genai_error *err)
{
	struct genai_order *o = self;

	return o->raw.reset(o->raw_self, t, err);
}

static int32_t o_native(void *self, struct genai_stream *s, void **out,
			struct genai_error *err)
{
	struct genai_order *o = self;

	return o->raw.native(o->raw_self, s, out, err);
}

static int32_t o_stats(void *self, struct genai_stream_stats *out,
		       struct genai_error *err)
{
	struct genai_order *o = self;

	return o->raw.stats(o->raw_self, out, err);
}

static int32_t o_graph_edges(void *self, struct genai_recording *rec,
			     struct genai_edge *out, uint64_t cap,
			     uint64_t *out_n, struct genai_error *err)
{
	struct genai_order *o = self;

	return o->raw.graph_edges(o->raw_self, rec, out, cap, out_n, err);
}

// ---- barrier ----

static int32_t o_host_read(void *self, const struct genai_point *points,
			   uint32_t n, uint64_t deadline_ns,
			   struct genai_error *err)
{
	struct genai_order *o = self;
	int32_t rc = o->raw_barrier.host_read(o->barrier_self, points, n,
					      deadline_ns, err);

	for (uint32_t i = 0; !rc && i < n; i++)
		host_waited(o, points[i]);
	return rc;
}

static int32_t o_drain(void *self, struct genai_range range,
		       uint64_t deadline_ns, struct genai_ticket *out,
		       struct genai_error *err)
{
	struct genai_order *o = self;
	struct genai_touch none;
	int32_t rc = o->raw_barrier.drain(o->barrier_self, range, deadline_ns,
					  out, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&o->lock);
	if (range.bytes == GENAI_RANGE_ALL_BYTES) {
		memcpy(o->host.of, o->epoch, sizeof(o->epoch));
		genai_order_clear(&o->map);
	} else {
		rc = genai_order_forget(&o->map, range.addr, range.bytes, NULL,
					&none);
	}
	pthread_mutex_unlock(&o->lock);
	return rc ? genai_fail(err, rc, "no memory for the order check") : 0;
}

// ---- life ----

#define PUT(slot, fn)                                                          \
	do {                                                                   \
		if (ops->slot)                                                 \
			ops->slot = fn;                                        \
	} while (0)

static void put_table(struct genai_stream_ops *ops)
{
	order_put_memory(ops);
	PUT(caps, o_caps);
	PUT(create, o_create);
	PUT(destroy, o_destroy);
	PUT(mark, o_mark);
	PUT(wait, o_wait);
	PUT(poll, o_poll);
	PUT(copy, o_copy);
	PUT(launch, o_launch);
	PUT(launch_host, o_launch_host);
	PUT(capture_begin, o_capture_begin);
	PUT(capture_end, o_capture_end);
	PUT(capture_abort, o_capture_abort);
	PUT(launch_graph, o_launch_graph);
	PUT(graph_destroy, o_graph_destroy);
	PUT(reset, o_reset);
	PUT(native, o_native);
	PUT(stats, o_stats);
	PUT(graph_edges, o_graph_edges);
	PUT(launch_open, o_launch_open);
	PUT(signal, o_signal);
	PUT(stamp, o_stamp);
	PUT(elapsed, o_elapsed);
}

int32_t genai_order_open(struct genai_stream_ops *stream, void **stream_self,
			 struct genai_barrier_ops *barrier, void **barrier_self,
			 struct genai_order **out_order,
			 struct genai_error *err)
{
	struct genai_order *o = calloc(1, sizeof(*o));

	if (!o)
		return genai_fail(err, GENAI_E_NOMEM,
				  "no memory for the order check");
	pthread_mutex_init(&o->lock, NULL);
	o->raw = *stream;
	o->raw_barrier = *barrier;
	o->raw_self = *stream_self;
	o->barrier_self = *barrier_self;
	put_table(stream);
	barrier->host_read = o_host_read;
	barrier->drain = o_drain;
	*stream_self = *barrier_self = o;
	*out_order = o;
	return 0;
}

void genai_order_close(struct genai_order *o)
{
	if (!o)
		return;
	while (o->recordings)
		order_record_free(o, o->recordings);
	while (o->streams)
		drop_stream(o, o->streams->raw);
	genai_order_clear(&o->map);
	for (uint32_t i = 0; i < o->cap_names; i++)
		free((char *)o->names[i]);
	free(o->names);
	free(o->blocks);
	pthread_mutex_destroy(&o->lock);
	free(o);
}
