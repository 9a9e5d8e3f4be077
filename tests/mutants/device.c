// device.c - cpu_ref, opened from its file, behind tables with one fault.
#include <dlfcn.h>
#include <stdio.h>

#include <genai/executor.h>
#include "tests/mutants/mutant.h"

static const struct genai_host *host;
static struct genai_host lent; // the host that the real module gets
static const struct genai_module_block *real;
static const struct genai_stream_ops *stream;
static const struct genai_barrier_ops *barrier;
static int recording;

static int32_t fail(struct genai_error *err, int32_t code, const char *text)
{
	return host->error_set(host->ctx, err, code, "%s", text);
}

// ---- stream ----

static int32_t s_caps(void *self, struct genai_stream_caps *out,
		      struct genai_error *err)
{
	static int calls;
	int32_t rc = stream->caps(self, out, err);

	if (is("caps-change") && calls++ % 2)
		out->flags ^= GENAI_STREAM_CAP_RECORD;
	return rc;
}

static int32_t s_alloc(void *self, uint32_t kind, uint64_t bytes,
		       const char *tag, struct genai_mem *out,
		       struct genai_error *err)
{
	struct genai_mem mem = *out;
	int32_t rc;

	if (is("alloc-recording") && recording)
		return 0;
	rc = stream->alloc(self, kind, bytes, tag, &mem, err);
	if (rc && is("writes-on-failure"))
		out->size = 0;
	if (rc && is("error-without-text") && err)
		err->text[0] = 0;
	if (rc)
		return rc;
	if (is("alloc-unaligned") && bytes > 100) {
		mem.range.addr += 64;
		mem.range.bytes -= 64;
	}
	*out = mem;
	return 0;
}

static int32_t s_free(void *self, genai_addr addr,
		      const struct genai_ticket *ticket,
		      struct genai_error *err)
{
	int32_t rc = stream->free(self, addr, ticket, err);

	if (rc == GENAI_E_BUSY && is("free-busy"))
		return 0;
	return rc;
}

static int32_t s_unreserve(void *self, struct genai_range range,
			   const struct genai_ticket *ticket,
			   struct genai_error *err)
{
	int32_t rc = stream->unreserve(self, range, ticket, err);

	return rc && is("unreserve-mapped") ? 0 : rc;
}

static int32_t s_destroy(void *self, struct genai_stream *s,
			 struct genai_error *err)
{
	int32_t rc = stream->destroy(self, s, err);

	return rc && is("destroy-busy") ? 0 : rc;
}

static int32_t s_mark(void *self, struct genai_stream *s,
		      struct genai_point *out, struct genai_error *err)
{
	int32_t rc = stream->mark(self, s, out, err);

	if (!rc && is("mark-early") && out->value && !recording)
		out->value--;
	return rc;
}

static int32_t s_wait(void *self, struct genai_stream *s, struct genai_point p,
		      struct genai_error *err)
{
	static int calls;
	int32_t rc;

	if (is("wait-ignored") && !recording)
		return 0;
	if (is("wait-sometimes") && ++calls % 3 == 0 && !recording)
		return 0;
	if (is("wait-early") && p.value && !recording)
		p.value--;
	rc = stream->wait(self, s, p, err);
	return rc && is("inside-outside") ? 0 : rc;
}

static int32_t s_poll(void *self, struct genai_point p, struct genai_error *err)
{
	int32_t rc;

	if (is("poll-lies"))
		return 0;
	if (is("poll-never"))
		return GENAI_PENDING;
	rc = stream->poll(self, p, err);
	return rc < 0 && is("poll-no-error") ? 0 : rc;
}

static int32_t s_copy(void *self, struct genai_stream *s, uint64_t dst,
		      uint64_t src, uint64_t bytes, uint32_t kind,
		      struct genai_error *err)
{
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	int32_t rc;

	if (is("copy-short") && bytes > 1)
		bytes--;
	if (is("copy-long") && kind == GENAI_COPY_D2H && bytes < 5000)
		bytes++;
	rc = stream->copy(self, s, dst, src, bytes, kind, err);
	if (is("copy-blocks"))
		barrier->drain(self, all, UINT64_MAX, NULL, NULL);
	return rc && is("pageable") ? 0 : rc;
}

static int32_t s_launch(void *self, struct genai_stream *s,
			const struct genai_work *work,
			const struct genai_access *acc, uint32_t n,
			struct genai_error *err)
{
	struct genai_access copy[64];
	int32_t rc;

	if (n <= 64)
		memcpy(copy, acc, n * sizeof(*acc));
	if (is("units-swapped") && n == 3) {
		copy[0] = acc[1];
		copy[1] = acc[0];
	}
	rc = stream->launch(self, s, work, n <= 64 ? copy : acc, n, err);
	return rc && is("unmapped") ? 0 : rc;
}

static int32_t no_failure(void *ctx, void *const *mem, struct genai_error *err)
{
	const struct genai_work *w = ctx;

	w->fn(w->ctx, mem, err);
	return 0;
}

static int32_t s_launch_host(void *self, struct genai_stream *s,
			     const struct genai_work *work,
			     const struct genai_access *acc, uint32_t n,
			     struct genai_error *err)
{
	static struct genai_work kept[256];
	static uint32_t at;
	struct genai_work w = *work;
	int32_t rc;

	if (is("recording-runs") && recording)
		w.fn(w.ctx, NULL, NULL);
	if (is("poison-ignored")) {
		kept[at % 256] = w;
		w.ctx = &kept[at++ % 256];
		w.fn = no_failure;
	}
	rc = stream->launch_host(self, s, &w, acc, n, err);
	if (is("host-blocks")) {
		struct genai_point p;

		stream->mark(self, s, &p, NULL);
		barrier->host_read(self, &p, 1, UINT64_MAX, NULL);
	}
	return rc;
}

static int32_t s_begin(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	int32_t rc = stream->capture_begin(self, s, err);

	recording += !rc;
	return rc && is("nested") ? 0 : rc;
}

static int32_t s_end(void *self, struct genai_stream *s,
		     struct genai_recording **out, struct genai_error *err)
{
	int32_t rc = stream->capture_end(self, s, out, err);

	recording = 0;
	if (rc && is("spoilt-sticks"))
		stream->capture_begin(self, s, NULL);
	return rc;
}

static int32_t s_abort(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	recording = 0;
	return stream->capture_abort(self, s, err);
}

static int32_t s_graph(void *self, struct genai_recording *rec,
		       struct genai_stream *s, struct genai_error *err)
{
	static int calls;
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	int32_t rc;

	calls++;
	if (is("replay-none") || (is("replay-once") && calls > 1))
		return 0;
	if (is("replay-twice"))
		stream->launch_graph(self, rec, s, err);
	rc = stream->launch_graph(self, rec, s, err);
	if (is("replay-blocks"))
		barrier->drain(self, all, UINT64_MAX, NULL, NULL);
	return rc;
}

static int32_t s_reset(void *self, const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	if (is("reset-nothing"))
		return host->ticket_check(
			host->ctx, ticket,
			(struct genai_range){0, GENAI_RANGE_ALL_BYTES}, err);
	return stream->reset(self, ticket, err);
}

static int32_t s_stats(void *self, struct genai_stream_stats *out,
		       struct genai_error *err)
{
	int32_t rc = stream->stats(self, out, err);

	if (is("stats-h2d"))
		out->h2d_bytes = out->d2h_bytes;
	if (is("stats-replays"))
		out->graph_launches /= 2;
	return rc;
}

static struct genai_stream_ops s_table = {
	.size = sizeof(struct genai_stream_ops), .version = 1};

// ---- barrier ----

static int32_t b_read(void *self, const struct genai_point *points, uint32_t n,
		      uint64_t deadline, struct genai_error *err)
{
	int32_t rc;

	if (is("read-none"))
		return 0;
	if (is("read-first") && n > 1)
		n = 1;
	if (is("read-no-deadline"))
		deadline = UINT64_MAX;
	rc = barrier->host_read(self, points, n, deadline, err);
	if (rc == GENAI_E_DEADLINE && is("read-gives-up"))
		return 0;
	if (rc == GENAI_E_STATE && is("read-recording"))
		return 0;
	if (rc && is("read-no-node") && err) {
		err->node = GENAI_NONE;
		snprintf(err->text, sizeof(err->text), "it failed");
	}
	return rc;
}

static int32_t b_drain(void *self, struct genai_range range, uint64_t deadline,
		       struct genai_ticket *out, struct genai_error *err)
{
	int32_t rc;

	if (is("drain-none") ||
	    (is("drain-range") && range.bytes != GENAI_RANGE_ALL_BYTES))
		return 0;
	if (is("drain-weak"))
		deadline = 0;
	if (is("drain-no-deadline"))
		deadline = UINT64_MAX;
	rc = barrier->drain(self, range, deadline, out, err);
	if (rc == GENAI_E_DEADLINE && is("drain-weak"))
		return 0;
	if (rc == GENAI_E_STATE && is("drain-recording"))
		return 0;
	return rc;
}

static struct genai_barrier_ops b_table = {
	.size = sizeof(struct genai_barrier_ops), .version = 1};

// ---- what the executor sees ----

static struct genai_stream_ops seen_stream;
static struct genai_pager_ops seen_pager;
static struct genai_stream_api seen_api;
static struct genai_pager_api seen_pager_api;
static const struct genai_stream_api *true_stream;
static const struct genai_barrier_api *true_barrier;
static const struct genai_pager_api *true_pager;

static int32_t x_wait(void *self, struct genai_stream *s, struct genai_point p,
		      struct genai_error *err)
{
	if (is("no-ready"))
		return 0;
	return true_stream->ops->wait(self, s, p, err);
}

static int32_t x_acquire(struct genai_pager *p, uint32_t visit,
			 struct genai_stream *s, struct genai_place *out_place,
			 struct genai_point *out_ready, struct genai_error *err)
{
	static genai_addr last;
	int32_t rc = true_pager->ops->acquire(p, visit, s, out_place, out_ready,
					      err);
	genai_addr addr = out_place->addr;

	if (!rc && is("stale-page") && visit == 5 && last)
		out_place->addr = last;
	last = addr;
	if (!rc && is("wrong-row"))
		out_place->addr += 16;
	return rc;
}

static int32_t x_release(struct genai_pager *p, uint32_t visit,
			 struct genai_point point, struct genai_error *err)
{
	if (is("release-early"))
		point = (struct genai_point){NULL, 0};
	if (is("release-missing") && visit == 3)
		return 0;
	if (is("release-twice"))
		true_pager->ops->release(p, visit, point, err);
	return true_pager->ops->release(p, visit, point, err);
}

// ---- executors ----

static const struct genai_executor_ops *inner[2];
static struct genai_point last_signal;
static uint32_t binds, submits;
static int64_t first_dim;

static int32_t create(const struct genai_executor_ops *real_ops, void *self,
		      const struct genai_graph *graph,
		      const struct genai_plan_options *options,
		      struct genai_plan **out_plan, struct genai_error *err)
{
	struct genai_plan_options o = *options;
	struct genai_mem mem = {.size = sizeof(mem)};
	int32_t rc;

	true_stream = o.stream;
	true_barrier = o.barrier;
	true_pager = o.pager;
	seen_stream = *o.stream->ops;
	seen_stream.wait = x_wait;
	seen_api = (struct genai_stream_api){&seen_stream, o.stream->self};
	seen_pager = *o.pager->ops;
	seen_pager.acquire = x_acquire;
	seen_pager.release = x_release;
	seen_pager_api = *o.pager;
	seen_pager_api.ops = &seen_pager;
	o.stream = &seen_api;
	o.pager = &seen_pager_api;
	binds = submits = 0;
	first_dim = 0;
	if (is("plan-leaks"))
		true_stream->ops->alloc(true_stream->self, GENAI_MEM_DEVICE, 64,
					"mutant", &mem, NULL);
	rc = real_ops->plan_create(self, graph, &o, out_plan, err);
	if (rc == GENAI_E_UNSUPPORTED && is("unnamed"))
		return fail(err, rc, "the graph is not supported");
	return rc;
}

static int32_t visits(const struct genai_executor_ops *real_ops,
		      struct genai_plan *p, const struct genai_visit **out,
		      uint32_t *n, struct genai_error *err)
{
	static struct genai_visit copy[256];
	int32_t rc = real_ops->plan_visits(p, out, n, err);

	if (rc || *n > 256)
		return rc;
	memcpy(copy, *out, *n * sizeof(copy[0]));
	for (uint32_t i = 0; i < *n; i++) {
		if (is("visits-no-gather"))
			copy[i].flags &= ~GENAI_WEIGHT_GATHER;
		if (is("visits-order") && i)
			copy[i].first_node = copy[*n - i].first_node;
	}
	if (is("visits-less"))
		--*n;
	*out = copy;
	return 0;
}

static int32_t set_pages(const struct genai_executor_ops *real_ops,
			 struct genai_plan *p,
			 const struct genai_visit_page *pages, uint32_t n,
			 struct genai_error *err)
{
	int32_t rc = real_ops->plan_set_pages(p, pages, n, err);

	return rc && is("pages-unchecked") ? 0 : rc;
}

static int32_t bind_in(const struct genai_executor_ops *real_ops,
		       struct genai_plan *p, uint32_t i,
		       const struct genai_view *view, struct genai_error *err)
{
	struct genai_view v = *view;
	int32_t rc;

	if (is("stale-shape") && v.rank == 2 && v.dtype == GENAI_DT_I64) {
		if (first_dim)
			v.dims[1] = first_dim;
		first_dim = v.dims[1];
	}
	rc = real_ops->bind_input(p, i, &v, err);
	return rc && is("bind-unchecked") ? 0 : rc;
}

static int32_t bind_out(const struct genai_executor_ops *real_ops,
			struct genai_plan *p, uint32_t i,
			const struct genai_view *view, struct genai_error *err)
{
	if (is("stale-address") && binds++ > 8)
		return 0;
	return real_ops->bind_output(p, i, view, err);
}

static int32_t submit(const struct genai_executor_ops *real_ops,
		      struct genai_plan *p, struct genai_stream *s,
		      const struct genai_point *wait, uint32_t n_wait,
		      struct genai_point *out_signal, struct genai_error *err)
{
	struct genai_point before;
	int32_t rc;

	true_stream->ops->mark(true_stream->self, s, &before, NULL);
	if (is("skips-a-step") && ++submits == 7) {
		*out_signal = last_signal;
		return 0;
	}
	if (is("wait-list"))
		n_wait = 0;
	rc = real_ops->submit(p, s, wait, n_wait, out_signal, err);
	if (rc == GENAI_E_STATE && is("unbound")) {
		*out_signal = before;
		return 0;
	}
	if (rc)
		return rc;
	last_signal = *out_signal;
	if (is("submit-blocks"))
		barrier->host_read(true_barrier->self, NULL, 0, 0, NULL);
	if (is("submit-reads"))
		true_barrier->ops->host_read(true_barrier->self, out_signal, 1,
					     UINT64_MAX, NULL);
	if (is("signal-early"))
		*out_signal = before;
	if (is("no-signal"))
		*out_signal = (struct genai_point){NULL, 0};
	return 0;
}

static int32_t destroy(const struct genai_executor_ops *real_ops,
		       struct genai_plan *p, const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	int32_t rc = real_ops->plan_destroy(p, ticket, err);

	return rc && is("destroy-anytime") ? 0 : rc;
}

static int32_t exec_stats(const struct genai_executor_ops *real_ops,
			  struct genai_plan *p, struct genai_exec_stats *out,
			  struct genai_error *err)
{
	int32_t rc = real_ops->stats(p, out, err);

	if (is("stats-replays-none"))
		out->replays = 0;
	return rc;
}

// Both executors are wrapped alike; a table function knows only its plan.
#define WRAP(k)                                                                \
	static int32_t create_##k(void *self, const struct genai_graph *g,     \
				  const struct genai_plan_options *o,          \
				  struct genai_plan **out,                     \
				  struct genai_error *err)                     \
	{                                                                      \
		return create(inner[k], self, g, o, out, err);                 \
	}                                                                      \
	static int32_t visits_##k(struct genai_plan *p,                        \
				  const struct genai_visit **out, uint32_t *n, \
				  struct genai_error *err)                     \
	{                                                                      \
		return visits(inner[k], p, out, n, err);                       \
	}                                                                      \
	static int32_t pages_##k(struct genai_plan *p,                         \
				 const struct genai_visit_page *v, uint32_t n, \
				 struct genai_error *err)                      \
	{                                                                      \
		return set_pages(inner[k], p, v, n, err);                      \
	}                                                                      \
	static int32_t bind_in_##k(struct genai_plan *p, uint32_t i,           \
				   const struct genai_view *v,                 \
				   struct genai_error *err)                    \
	{                                                                      \
		return bind_in(inner[k], p, i, v, err);                        \
	}                                                                      \
	static int32_t bind_out_##k(struct genai_plan *p, uint32_t i,          \
				    const struct genai_view *v,                \
				    struct genai_error *err)                   \
	{                                                                      \
		return bind_out(inner[k], p, i, v, err);                       \
	}                                                                      \
	static int32_t submit_##k(                                             \
		struct genai_plan *p, struct genai_stream *s,                  \
		const struct genai_point *wait, uint32_t n,                    \
		struct genai_point *out, struct genai_error *err)              \
	{                                                                      \
		return submit(inner[k], p, s, wait, n, out, err);              \
	}                                                                      \
	static int32_t destroy_##k(struct genai_plan *p,                       \
				   const struct genai_ticket *t,               \
				   struct genai_error *err)                    \
	{                                                                      \
		return destroy(inner[k], p, t, err);                           \
	}                                                                      \
	static int32_t stats_##k(struct genai_plan *p,                         \
				 struct genai_exec_stats *out,                 \
				 struct genai_error *err)                      \
	{                                                                      \
		return exec_stats(inner[k], p, out, err);                      \
	}

WRAP(0)
WRAP(1)

static struct genai_executor_ops e_table[2] = {
	{.size = sizeof(struct genai_executor_ops), .version = 1},
	{.size = sizeof(struct genai_executor_ops), .version = 1},
};

#define FILL(k)                                                                \
	(e_table[k].plan_create = create_##k,                                  \
	 e_table[k].plan_visits = visits_##k,                                  \
	 e_table[k].plan_set_pages = pages_##k,                                \
	 e_table[k].plan_destroy = destroy_##k,                                \
	 e_table[k].bind_input = bind_in_##k,                                  \
	 e_table[k].bind_output = bind_out_##k,                                \
	 e_table[k].submit = submit_##k, e_table[k].stats = stats_##k)

// ---- the handshake ----

// The real module's own keys have their defaults; schedule is handed on.
static int32_t lend_str(void *ctx, const char *key, char *buf, uint64_t cap)
{
	const char *value = NULL;

	if (!strcmp(key, "schedule") || !strcmp(key, "threads"))
		return host->config_get_str(ctx, key, buf, cap);
	for (uint32_t i = 0; i < real->n_keys; i++)
		if (!strcmp(real->keys[i].name, key))
			value = real->keys[i].default_value;
	if (!value)
		return GENAI_E_NOTFOUND;
	snprintf(buf, cap, "%s", value);
	return 0;
}

static int32_t lend_u64(void *ctx, const char *key, uint64_t *out)
{
	char text[64];
	unsigned long long v = 0;
	int32_t rc = lend_str(ctx, key, text, sizeof(text));

	if (!rc && strcmp(text, "auto") && sscanf(text, "%llu", &v) != 1)
		rc = GENAI_E_CONFIG;
	if (!rc)
		*out = v;
	return rc;
}

static int32_t lend_bool(void *ctx, const char *key, int32_t *out)
{
	char text[64];
	int32_t rc = lend_str(ctx, key, text, sizeof(text));

	if (!rc)
		*out = !strcmp(text, "on") || !strcmp(text, "true") ||
		       !strcmp(text, "yes") || !strcmp(text, "1");
	return rc;
}

static int32_t any_ticket(void *ctx, const struct genai_ticket *ticket,
			  struct genai_range range, struct genai_error *err)
{
	if (is("any-ticket") ||
	    (is("any-range") && ticket && range.bytes != GENAI_RANGE_ALL_BYTES))
		range.bytes = 0;
	if (is("any-range") && ticket)
		range = ticket->range;
	return is("any-ticket") ? 0
				: host->ticket_check(ctx, ticket, range, err);
}

static void fill_tables(void)
{
	for (uint32_t i = 0; i < real->n_ifaces; i++) {
		const struct genai_iface *f = &real->ifaces[i];

		if (!strcmp(f->type, GENAI_IFACE_STREAM))
			stream = f->ops;
		else if (!strcmp(f->type, GENAI_IFACE_BARRIER))
			barrier = f->ops;
		else
			inner[!strcmp(f->name, "captured")] = f->ops;
	}
	s_table = *stream;
	s_table.caps = s_caps;
	s_table.alloc = s_alloc;
	s_table.free = s_free;
	s_table.unreserve = s_unreserve;
	s_table.destroy = s_destroy;
	s_table.mark = s_mark;
	s_table.wait = s_wait;
	s_table.poll = s_poll;
	s_table.copy = s_copy;
	s_table.launch = s_launch;
	s_table.launch_host = s_launch_host;
	s_table.capture_begin = s_begin;
	s_table.capture_end = s_end;
	s_table.capture_abort = s_abort;
	s_table.launch_graph = s_graph;
	s_table.reset = s_reset;
	s_table.stats = s_stats;
	b_table.host_read = b_read;
	b_table.drain = b_drain;
	e_table[0] = *inner[0];
	e_table[1] = *inner[1];
	FILL(0);
	FILL(1);
}

static int32_t init(const struct genai_host *h,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	genai_module_query_fn query;
	char path[4096];
	void *lib, *sym;

	host = h;
	h->config_get_str(h->ctx, "mutant", mutant, sizeof(mutant));
	h->config_get_str(h->ctx, "real", path, sizeof(path));
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	sym = lib ? dlsym(lib, GENAI_MODULE_QUERY_SYMBOL) : NULL;
	if (!sym)
		return fail(err, GENAI_E_CONFIG, "real: no such module");
	memcpy(&query, &sym, sizeof(query));
	real = query(h->core_abi, &(int32_t){0});
	fill_tables();
	recording = 0;
	lent = *h;
	lent.config_get_str = lend_str;
	lent.config_get_u64 = lend_u64;
	lent.config_get_bool = lend_bool;
	lent.ticket_check = any_ticket;
	return real->init(&lent, params, out_self, err);
}

static void fini(void *self)
{
	if (!is("fini-nothing"))
		real->fini(self);
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_STREAM, "mutant_device", 1, 0, &s_table},
	{GENAI_IFACE_BARRIER, "mutant_device", 1, 0, &b_table},
	{GENAI_IFACE_EXECUTOR, "eager", 1, 0, &e_table[0]},
	{GENAI_IFACE_EXECUTOR, "captured", 1, 0, &e_table[1]},
};

static const struct genai_config_key keys[] = {
	{"schedule", "inorder", GENAI_KEY_STR, 0, NULL, "as cpu_ref"},
	{"threads", "1", GENAI_KEY_U64, 0, NULL, "as cpu_ref"},
	{"real", "", GENAI_KEY_STR, 0, NULL, "cpu_ref's file"},
	{"mutant", "none", GENAI_KEY_STR, 0, NULL, "what is wrong"},
};

static const struct genai_module_block block = {
	.magic = GENAI_MODULE_MAGIC,
	.size = sizeof(block),
	.abi_major = GENAI_ABI_MAJOR,
	.abi_minor = GENAI_ABI_MINOR,
	.build = GENAI_BUILD,
	.n_ifaces = sizeof(ifaces) / sizeof(ifaces[0]),
	.name = "mutant_device",
	.version = "0",
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
	.keys = keys,
	.n_keys = sizeof(keys) / sizeof(keys[0]),
	.iface_stride = sizeof(ifaces[0]),
	.key_stride = sizeof(keys[0]),
};

GENAI_MODULE_EXPORT const struct genai_module_block *
genai_module_query(uint32_t core_abi, int32_t *out_reason);

const struct genai_module_block *genai_module_query(uint32_t core_abi,
						    int32_t *out_reason)
{
	if (core_abi >> 16 == GENAI_ABI_MAJOR)
		return &block;
	*out_reason = GENAI_E_ABI;
	return NULL;
}
