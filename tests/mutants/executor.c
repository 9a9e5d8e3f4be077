// executor.c - the executors of mutant_device: cpu_ref's, with one fault.
#include <stdbool.h>

#include "tests/mutants/device.h"
#include "tests/mutants/wrap.h"

// ---- what the executor sees ----

static struct genai_stream_ops seen_stream;
static struct genai_pager_ops seen_pager;
static uint32_t n_plans;
static struct genai_pager_ops true_pager; // the core's: of every runtime
static struct genai_stream_ops true_stream;
static struct genai_barrier_ops true_barrier;
// of the latest plans
static struct {
	struct genai_plan *plan;
	struct genai_stream_api stream, seen_stream;
	struct genai_barrier_api barrier;
	struct genai_pager_api seen_pager;
} apis[16];
static bool many;   // rows in this step
static bool over16; // of them
static int64_t n_rows;
static void *true_self; // of the latest plan's stream runtime
static struct genai_point early;
static struct { // replay_begin, held back
	struct genai_pager *pager;
	struct genai_stream *stream;
} late;

static int32_t x_wait(void *self, struct genai_stream *s, struct genai_point p,
		      struct genai_error *err)
{
	if (is("no-ready"))
		return 0;
	return true_stream.wait(self, s, p, err);
}

static int32_t x_acquire(struct genai_pager *p, uint32_t visit,
			 struct genai_stream *s, struct genai_place *out_place,
			 struct genai_point *out_ready, struct genai_error *err)
{
	static genai_addr last;
	int32_t rc = true_pager.acquire(p, visit, s, out_place, out_ready, err);
	genai_addr addr = out_place->addr;

	if (!rc && is("point-early"))
		rc = true_stream.mark(true_self, s, &early, err);
	if (!rc && is("stale-page") && visit == 5 && last)
		out_place->addr = last;
	last = addr;
	if (!rc && (is("wrong-row") || (is("rows-differ") && many)))
		out_place->addr += 16;
	return rc;
}

static int32_t x_release(struct genai_pager *p, uint32_t visit,
			 struct genai_point point, struct genai_error *err)
{
	if (is("release-early"))
		point = (struct genai_point){NULL, 0};
	if (is("point-early"))
		point = early;
	if (is("release-missing") && visit == 3)
		return 0;
	if (is("release-twice"))
		true_pager.release(p, visit, point, err);
	return true_pager.release(p, visit, point, err);
}

static int32_t x_replay(struct genai_pager *p, struct genai_stream *s,
			struct genai_error *err)
{
	if (is("replay-unsaid"))
		return 0;
	if (is("record-unsaid") || is("launch-unsaid")) {
		late.pager = p;
		late.stream = s;
		return 0;
	}
	return true_pager.replay_begin(p, s, err);
}

// What came of replay_begin before the other one of the two calls.
static int32_t x_said(bool now, struct genai_error *err)
{
	struct genai_pager *p = late.pager;

	late.pager = NULL;
	return p && now ? true_pager.replay_begin(p, late.stream, err) : 0;
}

static int32_t x_capture_begin(void *self, struct genai_stream *s,
			       struct genai_error *err)
{
	int32_t rc = x_said(is("launch-unsaid"), err);

	return rc ? rc : true_stream.capture_begin(self, s, err);
}

static int32_t x_launch_graph(void *self, struct genai_recording *recording,
			      struct genai_stream *s, struct genai_error *err)
{
	int32_t rc = x_said(is("record-unsaid"), err);

	return rc ? rc : true_stream.launch_graph(self, recording, s, err);
}

// ---- executors ----

static const struct genai_executor_ops *inner[2];
static struct genai_point last_signal;
static struct genai_plan *last_plan;
static uint32_t binds, submits;
static int64_t first_dim;
static genai_addr behind_out;
static struct genai_view out_view;
// pointers that were given for one call only
static const struct genai_view *kept_max, *kept_in;
static struct genai_view first_max, first_in;
static const struct genai_sweep_page *kept_pages;
static uint32_t n_kept_pages;

static int32_t create(const struct genai_executor_ops *real_ops, void *self,
		      const struct genai_graph *graph,
		      const struct genai_plan_options *options,
		      struct genai_plan **out_plan, struct genai_error *err)
{
	struct genai_plan_options o = *options;
	struct genai_mem mem = {.size = sizeof(mem)};
	static struct genai_graph dense;
	uint32_t at;
	int32_t rc = mutant_refuse(graph, err);

	if (rc)
		return rc;
	if (is("options-exact") && o.size != sizeof(o))
		return mutant_fail(err, GENAI_E_INVAL, "another size");
	if (is("tables-exact") && o.stream->ops->size != sizeof(seen_stream))
		return mutant_fail(err, GENAI_E_ABI, "another table");
	if (is("graph-dense")) {
		dense = *graph;
		dense.node_stride = sizeof(struct genai_node);
		graph = &dense;
	}
	graph = mutant_graph(graph);
	if (is("flags-ignored"))
		o.flags = 0;
	if (is("repeated-one") && o.n_repeated)
		o.n_repeated = 1;
	if (is("repeated-unchecked") && o.repeated[0].dims[1] != 1)
		o.n_repeated = 0;
	kept_max = o.max_inputs;
	first_max = *o.max_inputs;

	true_pager = *o.pager->ops;
	true_stream = *o.stream->ops;
	true_barrier = *o.barrier->ops;
	seen_stream = *o.stream->ops;
	seen_stream.wait = x_wait;
	seen_stream.capture_begin = x_capture_begin;
	seen_stream.launch_graph = x_launch_graph;
	true_self = o.stream->self;
	late.pager = NULL;
	seen_pager = *o.pager->ops;
	seen_pager.acquire = x_acquire;
	seen_pager.release = x_release;
	seen_pager.replay_begin = x_replay;
	at = is("one-plan") ? 0 : n_plans++ % 16;
	apis[at].stream =
		(struct genai_stream_api){&true_stream, o.stream->self};
	apis[at].seen_stream =
		(struct genai_stream_api){&seen_stream, o.stream->self};
	apis[at].barrier =
		(struct genai_barrier_api){&true_barrier, o.barrier->self};
	apis[at].seen_pager = *o.pager;
	apis[at].seen_pager.ops = &seen_pager;
	o.stream = &apis[at].seen_stream;
	o.pager = &apis[at].seen_pager;
	binds = submits = 0;
	first_dim = 0;
	if (is("plan-leaks"))
		apis[at].stream.ops->alloc(apis[at].stream.self,
					   GENAI_MEM_DEVICE, 64, "mutant", &mem,
					   NULL);
	if (is("plan-nothing"))
		return 0;
	rc = real_ops->plan_create(self, graph, &o, out_plan, err);
	for (uint32_t i = 0; !rc && i < 16; i++)
		if (apis[i].plan == *out_plan)
			apis[i].plan = NULL; // of one that is gone
	if (!rc)
		apis[at].plan = *out_plan;
	if (rc == GENAI_E_UNSUPPORTED && is("unnamed"))
		return mutant_fail(err, rc, "the graph is not supported");
	if (rc == GENAI_E_LIMIT && is("limit-unsaid"))
		return mutant_fail(err, GENAI_E_DEVICE, "it did not work");
	if (rc == GENAI_E_NOMEM && is("nomem-unsaid"))
		return mutant_fail(err, GENAI_E_DEVICE, "it did not work");
	if (rc && is("attributes"))
		return 0;
	if (rc && is("exec-err-needed"))
		err->code = rc;
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
		if (is("visits-wild"))
			copy[i].tensor = 1u << 30;
		if (is("visits-no-gather"))
			copy[i].flags &= ~GENAI_WEIGHT_GATHER;
		if (is("visits-order") && i)
			copy[i].first_node = copy[*n - i].first_node;
	}
	if (is("visits-swapped")) {
		copy[0] = (*out)[*n - 1];
		copy[*n - 1] = (*out)[0];
	}
	if (is("visits-less"))
		--*n;
	*out = copy;
	return 0;
}

static int32_t set_pages(const struct genai_executor_ops *real_ops,
			 struct genai_plan *p,
			 const struct genai_sweep_page *pages, uint32_t n,
			 struct genai_error *err)
{
	int32_t rc = real_ops->plan_set_pages(p, pages, n, err);

	kept_pages = pages;
	n_kept_pages = n;

	return rc && is("pages-unchecked") ? 0 : rc;
}

// the first bindings of a plan
static struct {
	struct genai_plan *plan;
	struct genai_view view;
} firsts[16];

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
	for (uint32_t k = v.rank, stride = 1; is("strides") && k-- > 0;) {
		v.strides[k] = stride;
		stride *= (uint32_t)v.dims[k];
	}
	many = v.rank == 2 && v.dims[1] > 1;
	over16 = v.rank == 3 ? v.dims[1] > 16 : over16;
	n_rows = v.rank == 3 ? v.dims[1] : n_rows;
	if (is("input-2-stale") && i >= 2 && i < 16) {
		if (firsts[i].plan == p && firsts[i].view.rank == v.rank &&
		    !memcmp(firsts[i].view.dims, v.dims, sizeof(v.dims)))
			v.addr = firsts[i].view.addr;
		firsts[i].plan = p;
		firsts[i].view = v;
	}
	rc = real_ops->bind_input(p, i, &v, err);
	kept_in = view;
	first_in = *view;
	return rc && is("bind-unchecked") ? 0 : rc;
}

static int32_t bind_out(const struct genai_executor_ops *real_ops,
			struct genai_plan *p, uint32_t i,
			const struct genai_view *view, struct genai_error *err)
{
	uint64_t n = 4;

	for (uint32_t d = 0; d < view->rank; d++)
		n *= (uint64_t)view->dims[d];
	behind_out = view->addr + n;
	if (is("stale-address") && binds++ > 8)
		return 0;
	out_view = *view;
	if (is("output-1-stale") && i && i < 16) {
		struct genai_view v = *view;

		if (firsts[i].plan == p &&
		    !memcmp(firsts[i].view.dims, v.dims, sizeof(v.dims)))
			v.addr = firsts[i].view.addr;
		firsts[i].plan = p;
		firsts[i].view = v;
		return real_ops->bind_output(p, i, &v, err);
	}
	return real_ops->bind_output(p, i, view, err);
}

// The last value of the last output is that of the one before.
static void spoil(const struct genai_stream_api *st, struct genai_stream *s)
{
	const uint64_t size = out_view.dtype == GENAI_DT_F16 ||
					      out_view.dtype == GENAI_DT_BF16
				      ? 2
				      : 4;
	uint64_t n = 1;

	for (uint32_t d = 0; d < out_view.rank; d++)
		n *= (uint64_t)out_view.dims[d];
	if (n > 1)
		st->ops->copy(st->self, s, out_view.addr + (n - 1) * size,
			      out_view.addr + (n - 2) * size, size,
			      GENAI_COPY_D2D, NULL);
}

// Such numbers as a kernel may forget.
static bool forgets(void)
{
	const int64_t last =
		out_view.rank ? out_view.dims[out_view.rank - 1] : 0;

	return (is("rows-17") && n_rows == 17) ||
	       (is("rows-of-eight") && n_rows > 8 && n_rows % 8 == 0) ||
	       (is("odd-columns") && last > 32 && last % 2) ||
	       (is("columns-over-1024") && last > 1024 && last % 8) ||
	       (is("halves-odd") && out_view.dtype == GENAI_DT_F16 && last % 2);
}

// Did the submit that just returned record?
static bool captured(const struct genai_executor_ops *real_ops,
		     struct genai_plan *p)
{
	static uint64_t before;
	struct genai_exec_stats st = {.size = sizeof(st)};
	bool more;

	real_ops->stats(p, &st, NULL);
	more = st.captures > before;
	before = st.captures;
	return more;
}

static int32_t submit(const struct genai_executor_ops *real_ops,
		      struct genai_plan *p, struct genai_stream *s,
		      const struct genai_point *wait, uint32_t n_wait,
		      struct genai_point *out_signal, struct genai_error *err)
{
	const struct genai_stream_api *st;
	const struct genai_barrier_api *ba;
	struct genai_point before, unwanted;
	uint32_t at = 0;
	int32_t rc = 0;

	if (!out_signal)
		out_signal = &unwanted;
	while (at < 15 && apis[at].plan != p)
		at++;
	st = &apis[at].stream;
	ba = &apis[at].barrier;
	if ((is("options-borrowed") &&
	     memcmp(kept_max, &first_max, sizeof(first_max))) ||
	    (is("view-borrowed") &&
	     memcmp(kept_in, &first_in, sizeof(first_in))))
		return mutant_fail(err, GENAI_E_INVAL, "it was mine");
	if (is("pages-borrowed"))
		rc = real_ops->plan_set_pages(p, kept_pages, n_kept_pages, err);
	if (rc)
		return rc;
	st->ops->mark(st->self, s, &before, NULL);
	if (is("skips-a-step") && ++submits == 7) {
		*out_signal = last_signal;
		return 0;
	}
	if (is("wait-list"))
		n_wait = 0;
	if (is("wait-first") && n_wait > 1)
		n_wait = 1;
	if (is("wait-last") && n_wait > 1) {
		wait += n_wait - 1;
		n_wait = 1;
	}
	rc = real_ops->submit(p, s, wait, n_wait, out_signal, err);
	if ((rc == GENAI_E_STATE && is("unbound")) ||
	    (rc == GENAI_E_NOMEM && is("nomem-swallowed"))) {
		*out_signal = before;
		return 0;
	}
	if (rc)
		return rc;
	if (is("signal-of-another") && last_plan && last_plan != p)
		*out_signal = last_signal;
	last_plan = p;
	last_signal = *out_signal;
	if (forgets()) {
		spoil(st, s);
		st->ops->mark(st->self, s, out_signal, NULL);
	}
	if (is("counts-twice") || (is("capture-runs") && captured(real_ops, p)))
		real_ops->submit(p, s, NULL, 0, out_signal, err);
	if (is("rows-over-16") && over16)
		st->ops->copy(st->self, s, behind_out - 4, behind_out - 8, 4,
			      GENAI_COPY_D2D, NULL);
	if (is("writes-beyond"))
		st->ops->copy(st->self, s, behind_out, behind_out - 4, 4,
			      GENAI_COPY_D2D, NULL);
	if (is("submit-blocks"))
		ba->ops->host_read(ba->self, NULL, 0, 0, NULL);
	if (is("submit-reads"))
		ba->ops->host_read(ba->self, out_signal, 1, UINT64_MAX, NULL);
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

	if (!rc && last_plan == p)
		last_plan = NULL;

	return rc && is("destroy-anytime") ? 0 : rc;
}

static int32_t stats(const struct genai_executor_ops *real_ops,
		     struct genai_plan *p, struct genai_exec_stats *out,
		     struct genai_error *err)
{
	int32_t rc = real_ops->stats(
		is("stats-of-another") && last_plan ? last_plan : p, out, err);

	if (is("stats-steps"))
		out->steps = 1;
	if (is("stats-replays-none"))
		out->replays = 0;
	if (is("stats-wild")) {
		out->n_fallbacks = 1;
		memset(out->fallbacks[0].reason, 'x', 48);
	}
	if (is("stats-too-many"))
		out->n_fallbacks = 9;
	return rc;
}

static int32_t caps(const struct genai_executor_ops *real_ops, void *self,
		    struct genai_exec_caps *out, struct genai_error *err)
{
	static uint32_t calls;
	struct genai_exec_caps all = {.size = sizeof(all)};
	int32_t rc =
		real_ops->caps(self, is("exec-caps-overrun") ? &all : out, err);

	if (is("exec-caps-overrun"))
		*out = all;
	if (is("ops-come-and-go"))
		out->n_ops -= calls++ % 2;
	if (is("exec-kind"))
		memset(out->device_kind, 'x', sizeof(out->device_kind));
	if (is("exec-other"))
		out->device_kind[0] = 'S';
	return rc;
}

// Both executors are wrapped alike; a table function knows only its plan.
#define BEHIND(k) inner[k]
#define WRAP_CAPS(k)                                                           \
	static int32_t caps_##k(void *self, struct genai_exec_caps *out,       \
				struct genai_error *err)                       \
	{                                                                      \
		return caps(BEHIND(k), self, out, err);                        \
	}
#define WRAP(k)                                                                \
	WRAP_CAPS(k)                                                           \
	WRAP_CREATE(k)                                                         \
	WRAP_VISITS(k)                                                         \
	WRAP_PAGES(k)                                                          \
	WRAP_BIND_IN(k)                                                        \
	WRAP_BIND_OUT(k)                                                       \
	WRAP_SUBMIT(k)                                                         \
	WRAP_DESTROY(k)                                                        \
	WRAP_STATS(k)

WRAP(0)
WRAP(1)

struct genai_executor_ops mutant_executors[2] = {
	{.size = sizeof(struct genai_executor_ops), .version = 1},
	{.size = sizeof(struct genai_executor_ops), .version = 1},
};

#define FILL(k)                                                                \
	(mutant_executors[k].caps = caps_##k,                                  \
	 mutant_executors[k].plan_create = create_##k,                         \
	 mutant_executors[k].plan_visits = visits_##k,                         \
	 mutant_executors[k].plan_set_pages = pages_##k,                       \
	 mutant_executors[k].plan_destroy = destroy_##k,                       \
	 mutant_executors[k].bind_input = bind_in_##k,                         \
	 mutant_executors[k].bind_output = bind_out_##k,                       \
	 mutant_executors[k].submit = submit_##k,                              \
	 mutant_executors[k].stats = stats_##k)

void mutant_wrap_executors(const struct genai_executor_ops *eager,
			   const struct genai_executor_ops *captured)
{
	inner[0] = eager;
	inner[1] = captured;
	mutant_executors[0] = *eager;
	mutant_executors[1] = *captured;
	FILL(0);
	FILL(1);
}
