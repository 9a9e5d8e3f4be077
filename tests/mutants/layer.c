// layer.c - a layer in front of cpu_ref with one fault: of layers, and of units
// that a thread of the host ends.
#include <pthread.h>
#include <stdlib.h>

#include <genai/barrier.h>

#include "tests/mutants/mutant.h"

char mutant[64];

struct layer {
	const struct genai_host *host;
	struct genai_stream_ops st; // below, as much as there is
	struct genai_barrier_ops ba;
	void *self, *barrier_self;
	struct genai_stream *side;
	uint64_t calls;
};

static int32_t fail(struct layer *l, struct genai_error *err, int32_t code,
		    const char *text)
{
	return l->host->error_set(l->host->ctx, err, code, "%s", text);
}

// ---- what is passed on ----

static int32_t caps(void *self, struct genai_stream_caps *out,
		    struct genai_error *err)
{
	struct layer *l = self;
	int32_t rc = l->st.caps(l->self, out, err);

	if (is("caps-own-kind"))
		strcpy(out->device_kind, "layer");
	if (is("caps-more"))
		out->flags |= GENAI_STREAM_CAP_NATIVE;
	if (is("caps-rates"))
		out->link_bytes_per_s = 1;
	if (is("caps-alignment"))
		out->alignment = 64;
	if (is("caps-memory"))
		out->granule *= 2;
	return rc;
}

static int32_t alloc(void *self, uint32_t kind, uint64_t bytes, const char *tag,
		     struct genai_mem *out, struct genai_error *err)
{
	struct layer *l = self;
	struct genai_error own = GENAI_ERROR_INIT;
	int32_t rc;

	if (is("error-needed") && !err) // who does not ask why is not told
		return 0;
	if (is("error-code")) {
		rc = l->st.alloc(l->self, kind, bytes, tag, out, err);
		return rc ? fail(l, err, GENAI_E_DEVICE, err ? err->text : "")
			  : 0;
	}
	if (!is("error-text") && !is("error-own"))
		return l->st.alloc(l->self, kind, bytes, tag, out, err);
	rc = l->st.alloc(l->self, kind, bytes, tag, out, &own);
	if (rc && is("error-text"))
		return fail(l, err, rc, "the layer below failed");
	return rc ? fail(l, err, rc, own.text) : 0;
}

static int32_t reset(void *self, const struct genai_ticket *ticket,
		     struct genai_error *err)
{
	struct layer *l = self;
	int32_t rc = l->st.reset(l->self, ticket, err);

	return is("reset-swallowed") ? 0 : rc;
}

static int32_t stats(void *self, struct genai_stream_stats *out,
		     struct genai_error *err)
{
	struct layer *l = self;
	struct genai_stream_stats own = {.size = sizeof(own)};
	int32_t rc;

	if (!is("stats-own"))
		return l->st.stats(l->self, out, err);
	rc = l->st.stats(l->self, &own, err);
	own.copies = l->calls; // of those that it saw
	own.h2d_bytes = 0;
	genai_struct_give(out, &own);
	return rc;
}

static int32_t copy(void *self, struct genai_stream *s, uint64_t dst,
		    uint64_t src, uint64_t bytes, uint32_t kind,
		    struct genai_error *err)
{
	struct layer *l = self;
	uint64_t half = bytes / 2;
	int32_t rc;

	if (is("copy-twice")) {
		rc = l->st.copy(l->self, s, dst, src, bytes, kind, err);
		if (rc)
			return rc;
	}
	if (is("copy-halves") && half) {
		rc = l->st.copy(l->self, s, dst, src, half, kind, err);
		if (rc)
			return rc;
		dst += half;
		src += half;
		bytes -= half;
	}
	if (is("copy-kind") && kind == GENAI_COPY_D2D)
		kind = GENAI_COPY_H2D;
	if (is("copy-swallows")) {
		l->st.copy(l->self, s, dst, src, bytes, kind, err);
		return 0;
	}
	return l->st.copy(l->self, s, dst, src, bytes, kind, err);
}

static int32_t mark(void *self, struct genai_stream *s, struct genai_point *out,
		    struct genai_error *err)
{
	static _Thread_local struct genai_point last;
	struct layer *l = self;
	int32_t rc = l->st.mark(l->self, s, out, err);

	// a cache of marks that nothing came after, it thinks
	if (!rc && is("mark-cached") && l->calls++ % 2 && last.stream == s)
		*out = last;
	last = *out;
	return rc;
}

static int32_t wait_for(void *self, struct genai_stream *s,
			struct genai_point p, struct genai_error *err)
{
	struct layer *l = self;

	// it believes that one wait for a stream is enough
	if (is("wait-once")) {
		static _Thread_local struct genai_stream *a, *b;

		if (a == s && b == p.stream)
			return 0;
		a = s;
		b = p.stream;
	}
	if (is("wait-hosts"))
		return l->ba.host_read(l->barrier_self, &p, 1, UINT64_MAX, err);
	return l->st.wait(l->self, s, p, err);
}

static int32_t launch_host(void *self, struct genai_stream *s,
			   const struct genai_work *work,
			   const struct genai_access *accesses, uint32_t n,
			   struct genai_error *err)
{
	struct genai_work w = *work;
	struct layer *l = self;

	if (is("unit-node"))
		w.node = GENAI_NONE;
	if (is("unit-accesses"))
		n = n > 1 ? 1 : n;
	return l->st.launch_host(l->self, s, &w, accesses, n, err);
}

static int32_t host_read(void *self, const struct genai_point *points,
			 uint32_t n, uint64_t deadline_ns,
			 struct genai_error *err)
{
	struct layer *l = self;

	if (is("read-for-ever"))
		deadline_ns = UINT64_MAX;
	if (is("read-some"))
		n = n > 8 ? 8 : n;
	return l->ba.host_read(l->barrier_self, points, n, deadline_ns, err);
}

// ---- units that are signalled ----

// A unit of this layer: what was asked for, and what it makes of it.
struct call {
	struct call *next;
	struct layer *l;
	struct genai_work work;
	int told; // before it began
};

static struct call *calls;
static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER;

static struct call *call_of(const void *ctx)
{
	struct call *c = calls;

	while (c && c->work.ctx != ctx)
		c = c->next;
	return c;
}

static int32_t run(void *ctx, void *const *mem, struct genai_error *err)
{
	struct call *c = ctx;
	int32_t rc = c->work.fn(c->work.ctx, mem, err);

	if (is("signal-not-waited") && rc == GENAI_PENDING)
		return 0;
	if (is("signal-error-lost") && rc < 0)
		return 0;
	if (is("signal-own-pending") && !rc)
		return GENAI_PENDING;
	return rc;
}

static int32_t aside(struct layer *l, const struct genai_work *w,
		     const struct genai_access *a, uint32_t n,
		     struct genai_error *err)
{
	int32_t rc = 0;

	if (!l->side)
		rc = l->st.create(l->self, "side", &l->side, err);
	return rc ? rc : l->st.launch_open(l->self, l->side, w, a, n, err);
}

static int32_t launch_open(void *self, struct genai_stream *s,
			   const struct genai_work *work,
			   const struct genai_access *a, uint32_t n,
			   struct genai_error *err)
{
	struct layer *l = self;
	struct call *c;
	struct genai_work w = *work;
	struct genai_access twisted[8];

	if (is("signal-any-flags") && n && n < 8) {
		memcpy(twisted, a, n * sizeof(*a));
		twisted[0].flags &= GENAI_READ | GENAI_WRITE;
		a = twisted;
	}
	if (is("signal-first-mem"))
		n = 0;
	if (is("signal-no-node"))
		w.node = GENAI_NONE;
	if (is("signal-unordered")) // on a stream of its own
		return aside(l, &w, a, n, err);
	pthread_mutex_lock(&calls_lock);
	c = call_of(work->ctx);
	if (!c) {
		c = calloc(1, sizeof(*c));
		c->next = calls;
		calls = c;
	}
	c->l = l;
	c->work = *work;
	pthread_mutex_unlock(&calls_lock);
	w.fn = run;
	w.ctx = c;
	return l->st.launch_open(l->self, s, &w, a, n, err);
}

static int32_t one_signal(void *self, const void *ctx,
			  const struct genai_error *why,
			  struct genai_error *err)
{
	struct layer *l = self;
	struct genai_error other = GENAI_ERROR_INIT;
	struct call *c;
	int32_t rc;

	pthread_mutex_lock(&calls_lock);
	c = call_of(ctx);
	pthread_mutex_unlock(&calls_lock);
	if (is("signal-all"))
		for (struct call *d = calls; d; d = d->next)
			l->st.signal(l->self, d, NULL, NULL);
	if (is("signal-lost") && l->calls++ % 3 == 2)
		return 0;
	if (is("signal-fine"))
		why = NULL;
	if (is("signal-text") && why) {
		other.code = why->code;
		why = &other;
	}
	if (is("signal-device") && why) {
		other = *why;
		other.code = GENAI_E_DEVICE;
		why = &other;
	}
	if (is("signal-borrowed") && why) {
		static struct genai_error kept;

		kept = *why;
		kept.text[0] = 0;
		why = &kept;
	}
	rc = l->st.signal(l->self, c ? c : ctx, why, err);
	if (rc && is("signal-any-state"))
		return 0;
	if (rc && is("signal-early") && c)
		c->told = 1;
	return rc && c && c->told ? 0 : rc;
}

// Where the signal gets in the stream's way.
static int32_t poll_point(void *self, struct genai_point p,
			  struct genai_error *err)
{
	struct layer *l = self;
	int32_t rc = l->st.poll(l->self, p, err);

	// "it has been long enough"
	if (rc == GENAI_PENDING && is("signal-poll-gives-up") &&
	    l->calls++ > 30)
		return 0;
	return rc;
}

static int32_t drain(void *self, struct genai_range range, uint64_t deadline_ns,
		     struct genai_ticket *out, struct genai_error *err)
{
	struct layer *l = self;
	int32_t rc = l->ba.drain(l->barrier_self, range, deadline_ns, out, err);

	// what is open is not on the device, it thinks
	if (rc == GENAI_E_DEADLINE && is("signal-drain-open"))
		return 0;
	return rc;
}

static int32_t destroy(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	struct layer *l = self;
	int32_t rc = l->st.destroy(l->self, s, err);

	return rc == GENAI_E_BUSY && is("signal-destroys") ? 0 : rc;
}

// A recording is asked once, it thinks: the second replay finds it answered.
static int32_t launch_graph(void *self, struct genai_recording *r,
			    struct genai_stream *s, struct genai_error *err)
{
	struct layer *l = self;

	if (is("signal-replay-once") && l->calls++)
		return 0;
	return l->st.launch_graph(l->self, r, s, err);
}

// ---- the handshake ----

static int32_t init(const struct genai_host *host,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	struct layer *l = host->alloc(host->ctx, sizeof(*l), "layer");
	const struct genai_stream_ops *st = NULL;
	const struct genai_barrier_ops *ba = NULL;
	const void *ops = NULL;
	int32_t rc;

	(void)params;
	if (!l)
		return host->error_set(host->ctx, err, GENAI_E_NOMEM,
				       "no memory");
	memset(l, 0, sizeof(*l));
	l->host = host;
	host->config_get_str(host->ctx, "mutant", mutant, sizeof(mutant));
	rc = host->below(host->ctx, GENAI_IFACE_STREAM, &ops, &l->self, err);
	st = ops;
	if (!rc)
		rc = host->below(host->ctx, GENAI_IFACE_BARRIER, &ops,
				 &l->barrier_self, err);
	ba = ops;
	if (rc) {
		host->free(host->ctx, l);
		return rc;
	}
	l->st = *st;
	l->ba = *ba;
	*out_self = l;
	return 0;
}

static void fini(void *self)
{
	struct layer *l = self;

	while (calls) {
		struct call *c = calls->next;

		free(calls);
		calls = c;
	}
	if (l->side)
		l->st.destroy(l->self, l->side, NULL);
	l->host->free(l->host->ctx, l);
}

static const struct genai_stream_ops stream_table = {
	.size = sizeof(stream_table),
	.version = 1,
	.caps = caps,
	.alloc = alloc,
	.reset = reset,
	.stats = stats,
	.copy = copy,
	.mark = mark,
	.wait = wait_for,
	.poll = poll_point,
	.launch_host = launch_host,
	.launch_graph = launch_graph,
	.destroy = destroy,
	.launch_open = launch_open,
	.signal = one_signal,
};
static const struct genai_barrier_ops barrier_table = {
	.size = sizeof(barrier_table),
	.version = 1,
	.host_read = host_read,
	.drain = drain,
};

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_STREAM_LAYER, "mutant_layer", 1, 0, &stream_table},
	{GENAI_IFACE_BARRIER_LAYER, "mutant_layer", 1, 0, &barrier_table},
};

static const struct genai_config_key keys[] = {
	{"mutant", "none", GENAI_KEY_STR, 0, NULL, "what is wrong"},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = sizeof(ifaces) / sizeof(ifaces[0]),
	.name = "mutant_layer",
	.version = "0",
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
	.keys = keys,
	.n_keys = sizeof(keys) / sizeof(keys[0]),
};

GENAI_MODULE_QUERY(block)
