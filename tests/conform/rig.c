// rig.c - plans over small graphs, and the hostile pager.
#include "tests/conform/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN UINT64_C(256)

static struct rig *rigged; // whose barrier is tapped

// ---- the hostile pager ----

static struct rig *rig_of(struct genai_pager *p)
{
	return (struct rig *)(void *)p;
}

static void broke(struct rig *g, const char *rule)
{
	if (!g->broken)
		g->broken = rule;
}

static int32_t hostile_caps(void *self, struct genai_pager_caps *out,
			    struct genai_error *err)
{
	struct genai_pager_caps c = {.size = sizeof(c),
				     .flags = GENAI_PAGER_CAP_STABLE};

	(void)self;
	(void)err;
	genai_struct_give(out, &c);
	return 0;
}

static int32_t hostile_begin(struct genai_pager *p, struct genai_stream *s,
			     int32_t recording, struct genai_error *err)
{
	struct rig *g = rig_of(p);

	(void)s;
	(void)recording;
	(void)err;
	if (g->in_step)
		broke(g, "step_begin inside a step");
	g->in_step = true;
	g->next = 0;
	g->steps++;
	return 0;
}

// The bytes come only now, and only work after ready sees them.
static int32_t hostile_acquire(struct genai_pager *p, uint32_t visit,
			       struct genai_stream *s,
			       struct genai_place *out_place,
			       struct genai_point *out_ready,
			       struct genai_error *err)
{
	struct rig *g = rig_of(p);
	const struct genai_stream_ops *st = g->r.st;
	struct rig_part *part = &g->parts[visit];
	struct genai_point now;
	int32_t rc;

	if (!g->in_step || visit != g->next || visit >= g->n_parts) {
		broke(g, "a visit was acquired out of order");
		return genai_fail(err, GENAI_E_STATE, "visit %u, %u is next",
				  visit, g->next);
	}
	if (g->refuse_visit && !--g->refuse_visit)
		return genai_fail(err, GENAI_E_LIMIT,
				  "visit %u refused on purpose", visit);
	g->next++;
	part->held = true;
	rc = st->mark(g->r.d, s, &now, err);
	if (!rc)
		rc = st->wait(g->r.d, g->loads, now, err);
	if (!rc)
		rc = st->copy(g->r.d, g->loads, g->slots.range.addr + part->at,
			      (uintptr_t)g->good.host + part->at, part->bytes,
			      GENAI_COPY_H2D, err);
	if (!rc)
		rc = st->mark(g->r.d, g->loads, out_ready, err);
	*out_place =
		(struct genai_place){sizeof(*out_place), GENAI_PLACE_DEVICE,
				     g->slots.range.addr + part->at};
	return rc;
}

static int32_t hostile_release(struct genai_pager *p, uint32_t visit,
			       struct genai_point point,
			       struct genai_error *err)
{
	struct rig *g = rig_of(p);
	const struct genai_stream_ops *st = g->r.st;
	struct rig_part *part = &g->parts[visit];
	int32_t rc;

	if (visit >= g->n_parts || !part->held) {
		broke(g, "a visit was released that is not held");
		return genai_fail(err, GENAI_E_STATE, "visit %u is not held",
				  visit);
	}
	part->held = false;
	rc = st->wait(g->r.d, g->loads, point, err);
	return rc ? rc
		  : st->copy(g->r.d, g->loads, g->slots.range.addr + part->at,
			     (uintptr_t)g->bad.host + part->at, part->bytes,
			     GENAI_COPY_H2D, err);
}

static int32_t hostile_end(struct genai_pager *p, struct genai_stream *s,
			   struct genai_point *out_tail,
			   struct genai_error *err)
{
	struct rig *g = rig_of(p);

	(void)s;
	if (!g->in_step || g->next != g->n_parts)
		broke(g, "a step ended before every visit was acquired");
	for (uint32_t i = 0; i < g->n_parts; i++)
		if (g->parts[i].held)
			broke(g, "a step ended with a visit held");
	g->in_step = false;
	return g->r.st->mark(g->r.d, g->loads, out_tail, err);
}

// What the step before left undone is done first.
static int32_t hostile_replay(struct genai_pager *p, struct genai_stream *s,
			      struct genai_error *err)
{
	struct rig *g = rig_of(p);
	struct genai_point tail;
	int32_t rc = g->r.st->mark(g->r.d, g->loads, &tail, err);

	g->begun++;
	if (g->in_step)
		broke(g, "replay_begin inside a step");
	return rc ? rc : g->r.st->wait(g->r.d, s, tail, err);
}

static int32_t hostile_resident(struct genai_pager *p, uint32_t visit,
				uint32_t *out_kind, struct genai_error *err)
{
	(void)p;
	(void)visit;
	(void)err;
	*out_kind = 0; // here one moment and gone the next
	return 0;
}

static int32_t hostile_reset(struct genai_pager *p,
			     const struct genai_ticket *ticket,
			     struct genai_error *err)
{
	(void)ticket;
	(void)err;
	for (uint32_t i = 0; i < RIG_MAX_PARTS; i++)
		rig_of(p)->parts[i].held = false;
	rig_of(p)->in_step = false;
	return 0;
}

static int32_t hostile_stats(struct genai_pager *p,
			     struct genai_pager_stats *out,
			     struct genai_error *err)
{
	struct genai_pager_stats st = {.size = sizeof(st),
				       .steps = rig_of(p)->steps};

	(void)err;
	genai_struct_give(out, &st);
	return 0;
}

static int32_t tap_host_read(void *self, const struct genai_point *points,
			     uint32_t n, uint64_t deadline,
			     struct genai_error *err)
{
	rigged->barriers++;
	return rigged->r.ba->host_read(self, points, n, deadline, err);
}

static int32_t tap_drain(void *self, struct genai_range range,
			 uint64_t deadline, struct genai_ticket *out,
			 struct genai_error *err)
{
	rigged->barriers++;
	return rigged->r.ba->drain(self, range, deadline, out, err);
}

static void hostile_open(struct rig *g)
{
	g->pager_ops = (struct genai_pager_ops){
		.size = sizeof(g->pager_ops),
		.version = 1,
		.caps = hostile_caps,
		.step_begin = hostile_begin,
		.acquire = hostile_acquire,
		.release = hostile_release,
		.step_end = hostile_end,
		.reset = hostile_reset,
		.stats = hostile_stats,
		.replay_begin = hostile_replay,
		.resident = hostile_resident,
	};
	g->pager = (struct genai_pager_api){&g->pager_ops,
					    (struct genai_pager *)(void *)g, g};
}

// ---- pages of the hostile pager ----

static void add_part(struct rig *g, uint32_t visit, uint64_t begin,
		     uint64_t end, uint64_t bytes)
{
	uint32_t i = g->n_parts++;
	uint64_t at = i ? g->parts[i - 1].at + g->parts[i - 1].bytes : 0;

	ck_assert_uint_lt(i, RIG_MAX_PARTS);
	g->pages[i] = (struct genai_sweep_page){sizeof(g->pages[i]), visit,
						begin, end};
	g->parts[i] = (struct rig_part){bytes, (at + ALIGN - 1) / ALIGN * ALIGN,
					false};
}

// Visits of a group are cut together: tile by tile, each with all of its parts.
static void cut(struct rig *g, const struct genai_visit *v, uint32_t n,
		uint64_t rows)
{
	for (uint32_t i = 0; i < n;) {
		uint32_t to = i + 1;
		uint64_t per = v[i].flags & GENAI_WEIGHT_ROWS && rows
				       ? rows
				       : v[i].rows;

		while (to < n && v[to].group == v[i].group &&
		       v[to].rows == v[i].rows)
			to++;
		for (uint64_t r = 0; r < v[i].rows; r += per)
			for (uint32_t k = i; k < to; k++) {
				uint64_t end = r + per < v[k].rows ? r + per
								   : v[k].rows;

				add_part(g, k, r, end,
					 v[k].device_bytes / v[k].rows *
						 (end - r));
			}
		i = to;
	}
}

static void fill_part(struct rig *g, const struct genai_visit *v, uint32_t i)
{
	const struct genai_tensor *t = genai_graph_tensor(g->g, v->tensor);
	const struct genai_file *f = genai_graph_file(g->g, t->file);
	const struct genai_sweep_page *pg = &g->pages[i];
	uint64_t row = t->bytes / v->rows;
	uint64_t src_bytes = row * (pg->row_end - pg->row_begin);
	const char *src =
		(const char *)f->data + t->offset + row * pg->row_begin;
	char *dst = (char *)g->good.host + g->parts[i].at;

	if (v->fill)
		v->fill(v->fill_ctx, dst, g->parts[i].bytes, src, src_bytes);
	else
		memcpy(dst, src, src_bytes);
}

static void hostile_pages(struct rig *g, uint64_t rows)
{
	static struct genai_sweep_page lent[RIG_MAX_PARTS];
	const struct genai_visit *v = NULL;
	uint32_t n = 0;
	uint64_t total;

	CF_OK(g->r.rt->exec.plan_visits(g->plan, &v, &n, &cf_err));
	cut(g, v, n, rows);
	if (g->n_parts) {
		const struct rig_part *last = &g->parts[g->n_parts - 1];

		total = last->at + last->bytes;
		g->slots = cf_alloc(&g->r, total);
		g->good = cf_pinned(&g->r, total);
		g->bad = cf_pinned(&g->r, total);
		memset(g->bad.host, 0x7e, total); // 8e37 as a float
	}
	for (uint32_t i = 0; i < g->n_parts; i++)
		fill_part(g, &v[g->pages[i].visit], i);
	memcpy(lent, g->pages, sizeof(lent));
	CF_OK(g->r.rt->exec.plan_set_pages(g->plan, lent, g->n_parts, &cf_err));
	memset(lent, 0xff, sizeof(lent));
}

// ---- plans ----

void rig_open(struct rig *g, const char *const *sets)
{
	memset(g, 0, sizeof(*g));
	cf_open(&g->r, CF_WITH_EXECUTOR | CF_WITH_PAGER, sets);
	g->s = cf_stream(&g->r, "compute");
	g->loads = cf_stream(&g->r, "loads");
	g->tapped = *g->r.ba;
	g->tapped.host_read = tap_host_read;
	g->tapped.drain = tap_drain;
	g->barrier = (struct genai_barrier_api){&g->tapped, g->r.d};
	rigged = g;
	hostile_open(g);
}

bool rig_has_op(struct rig *g, const char *domain, const char *op)
{
	const struct genai_exec_caps *c = &g->r.rt->exec_caps;

	for (uint32_t i = 0; i < c->n_ops; i++) {
		const struct genai_exec_op *o =
			(const void *)((const char *)c->ops +
				       (size_t)i * c->op_stride);

		if (!strcmp(o->op, op) && !strcmp(o->domain, domain))
			return true;
	}
	return false;
}

void rig_need_op(struct rig *g, const char *domain, const char *op)
{
	if (rig_has_op(g, domain, op))
		return;
	rig_close(g);
	cf_skip("does not list %s", op);
}

void rig_need_lm(struct rig *g)
{
	rig_need_op(g, "com.microsoft", "MatMulNBits");
	rig_need_op(g, "", "SimplifiedLayerNormalization");
	rig_need_op(g, "", "Gather");
	rig_need_op(g, "", "Add");
}

int32_t rig_try_plan(struct rig *g, const struct genai_plan_options *o,
		     struct genai_graph *graph, struct genai_error *err)
{
	static _Thread_local struct genai_view lent[RIG_MAX_IO];
	static _Thread_local struct genai_view more[4 * RIG_MAX_IO];
	size_t n = (size_t)o->n_repeated * graph->n_inputs;
	static union {
		struct genai_plan_options o;
		char bytes[1024];
	} options;
	int32_t rc;

	memcpy(lent, o->max_inputs, o->n_max_inputs * sizeof(*lent));
	memcpy(options.bytes, o, o->size);
	options.o.max_inputs = lent;
	if (n)
		memcpy(more, o->repeated, n * sizeof(*more));
	options.o.repeated = more;
	rc = g->r.rt->exec.plan_create(
		genai_module_self(g->r.rt->executor.module), graph, &options.o,
		&g->plan, err);
	// given for the call only
	memset(lent, 0xff, sizeof(lent));
	memset(more, 0xff, sizeof(more));
	memset(&options, 0xff, sizeof(options));
	return rc;
}

static void bind(struct rig *g, bool input, uint32_t i,
		 const struct genai_view *v)
{
	static _Thread_local struct genai_view lent;

	lent = *v;
	CF_OK((input ? g->r.rt->exec.bind_input
		     : g->r.rt->exec.bind_output)(g->plan, i, &lent, &cf_err));
	memset(&lent, 0xff, sizeof(lent));
}

// Of token ids one at a time is repeated, of anything else all of it.
static void find_repeated(struct rig *g, const struct genai_graph *graph,
			  const struct genai_view *max_in)
{
	const int64_t one[] = {1, 1};

	memcpy(g->repeated, max_in, graph->n_inputs * sizeof(*max_in));
	if (max_in[0].dtype == GENAI_DT_I64 && max_in[0].rank == 2 &&
	    graph->n_nodes > 1)
		g->repeated[0] = rig_view(GENAI_DT_I64, 2, one);
}

struct genai_plan_options rig_options(struct rig *g, struct genai_graph *graph,
				      const struct genai_view *max_in)
{
	find_repeated(g, graph, max_in);
	return (struct genai_plan_options){
		.size = sizeof(struct genai_plan_options),
		.stream = &g->r.d->stream,
		.barrier = &g->barrier,
		.pager = g->paged ? &g->paging.api : &g->pager,
		.max_inputs = max_in,
		.n_max_inputs = graph->n_inputs,
		.n_repeated = 1,
		.repeated = g->repeated};
}

static void take_buffers(struct rig *g, struct genai_graph *graph,
			 const struct genai_view *max_in)
{
	g->g = graph;
	memcpy(g->max_in, max_in, graph->n_inputs * sizeof(*max_in));
	for (uint32_t i = 0; i < graph->n_inputs; i++) {
		uint64_t bytes = 0;

		ck_assert_int_eq(genai_tensor_bytes(max_in[i].dtype,
						    max_in[i].rank,
						    max_in[i].dims, &bytes),
				 0);
		g->in_mem[i] = cf_alloc(&g->r, bytes + 64);
	}
}

void rig_adopt(struct rig *g, struct genai_graph *graph,
	       const struct genai_view *max_in, uint64_t rows)
{
	take_buffers(g, graph, max_in);
	hostile_pages(g, rows);
}

void rig_plan(struct rig *g, struct genai_graph *graph,
	      const struct genai_view *max_in, uint64_t rows)
{
	struct genai_plan_options o = rig_options(g, graph, max_in);

	CF_OK(rig_try_plan(g, &o, graph, &cf_err));
	rig_adopt(g, graph, max_in, rows);
}

void rig_plan_paged(struct rig *g, struct genai_graph *graph,
		    const struct genai_view *max_in)
{
	struct genai_plan_options o;

	CF_OK(genai_paging_open(g->r.rt, &g->paging, &cf_err));
	g->paged = true;
	o = rig_options(g, graph, max_in);
	CF_OK(rig_try_plan(g, &o, graph, &cf_err));
	take_buffers(g, graph, max_in);
	CF_OK(genai_paging_seal(&g->paging, g->plan, graph, UINT64_MAX,
				&cf_err));
}

void rig_plan_shared(struct rig *g, struct rig *first,
		     struct genai_graph *graph, const struct genai_view *max_in)
{
	struct genai_plan_options o;

	memset(g, 0, sizeof(*g));
	g->r = first->r;
	g->s = first->s;
	g->tapped = first->tapped;
	g->barrier = first->barrier;
	o = rig_options(g, graph, max_in);
	o.pager = &first->paging.api;
	CF_OK(rig_try_plan(g, &o, graph, &cf_err));
	take_buffers(g, graph, max_in);
	CF_OK(genai_paging_share(&first->paging, g->plan, &cf_err));
}

struct genai_view rig_view(uint32_t dtype, uint32_t rank, const int64_t *dims)
{
	struct genai_view v = {.size = sizeof(v), .dtype = dtype, .rank = rank};
	int64_t stride = 1;

	for (uint32_t i = rank; i-- > 0;) {
		v.dims[i] = dims[i];
		v.strides[i] = stride;
		stride *= dims[i];
	}
	return v;
}

void rig_rebind(struct rig *g, bool input)
{
	bind(g, input, 0, input ? &g->in[0] : &g->out[0]);
}

void rig_in(struct rig *g, uint32_t i, const void *data, uint32_t rank,
	    const int64_t *dims)
{
	uint64_t bytes = 0;

	g->in[i] = rig_view(g->max_in[i].dtype, rank, dims);
	g->in[i].addr = g->in_mem[i].range.addr;
	ck_assert_int_eq(genai_tensor_bytes(g->in[i].dtype, rank, dims, &bytes),
			 0);
	if (data)
		cf_put(&g->r, g->in[i].addr, data, bytes);
	bind(g, true, i, &g->in[i]);
}

static void give(struct rig *g, struct genai_mem *m)
{
	if (m->range.bytes)
		cf_free(&g->r, m);
}

static const char guard_bytes[32] = "what lies behind is another's...";

// Bytes behind output 0 that no step may touch.
static void guard(struct rig *g, genai_addr at)
{
	g->guard = at;
	cf_put(&g->r, at, guard_bytes, sizeof(guard_bytes));
}

void rig_outs(struct rig *g)
{
	for (uint32_t i = 0; i < g->g->n_outputs; i++) {
		struct genai_view *v = &g->out[i];
		uint64_t bytes = 0;

		CF_OK(g->r.rt->exec.output_shape(g->plan, i, v, &cf_err));
		ck_assert_int_eq(
			genai_tensor_bytes(v->dtype, v->rank, v->dims, &bytes),
			0);
		if (bytes + 64 > g->out_mem[i].range.bytes) {
			// large at once: a recording may name the old one
			ck_assert_uint_eq(g->out_mem[i].range.bytes, 0);
			g->out_mem[i] = cf_alloc(&g->r, bytes + 65536);
		}
		v->addr = g->out_mem[i].range.addr;
		bind(g, false, i, v);
		if (!i)
			guard(g, v->addr + bytes);
	}
}

void rig_submit(struct rig *g)
{
	struct genai_point signal = {0};

	CF_OK(g->r.rt->exec.submit(g->plan, g->s, NULL, 0, &signal, &cf_err));
	ck_assert_msg(signal.stream != NULL, "submit gave no signal");
}

void rig_read(struct rig *g, void *out, uint64_t bytes)
{
	char behind[sizeof(guard_bytes)];

	cf_finish(&g->r, g->s);
	cf_get(&g->r, out, g->out[0].addr, bytes);
	if (!g->guard)
		return;
	cf_get(&g->r, behind, g->guard, sizeof(behind));
	ck_assert_msg(!memcmp(behind, guard_bytes, sizeof(behind)),
		      "a step writes beyond its output");
}

void rig_run(struct rig *g, void *out, uint64_t bytes)
{
	rig_outs(g);
	rig_submit(g);
	rig_read(g, out, bytes);
}

void rig_check(struct rig *g)
{
	ck_assert_msg(!g->broken, "the executor broke a rule of pagers: %s",
		      g->broken ? g->broken : "");
}

void rig_unplan(struct rig *g)
{
	struct genai_ticket t = cf_drain(&g->r);

	rig_check(g);
	if (g->plan)
		CF_OK(g->r.rt->exec.plan_destroy(g->plan, &t, &cf_err));
	g->plan = NULL;
	for (uint32_t i = 0; i < RIG_MAX_IO; i++) {
		give(g, &g->in_mem[i]);
		give(g, &g->out_mem[i]);
	}
	give(g, &g->slots);
	give(g, &g->good);
	give(g, &g->bad);
	g->n_parts = 0;
	g->guard = 0;
	if (g->paged)
		CF_OK(genai_paging_close(&g->paging, &cf_err));
	g->paged = false;
}

void rig_close(struct rig *g)
{
	rig_unplan(g);
	cf_destroy(&g->r, g->s);
	cf_destroy(&g->r, g->loads);
	cf_close(&g->r);
}
