// rig_pager.c - a pager that has everything on the device, and running a graph
// with it (see rig.h).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/rig.h"

struct genai_pager {
	uint32_t n, cap;
	uint64_t *addr;
};

static int32_t pg_caps(void *self, struct genai_pager_caps *c,
		       struct genai_error *err)
{
	(void)self;
	(void)err;
	c->size = sizeof(*c);
	c->flags = GENAI_PAGER_CAP_STABLE;
	return 0;
}

static int32_t pg_begin(struct genai_pager *p, struct genai_stream *s,
			int32_t recording, struct genai_error *err)
{
	(void)p;
	(void)s;
	(void)recording;
	(void)err;
	return 0;
}

static int32_t pg_acquire(struct genai_pager *p, uint32_t visit,
			  struct genai_stream *s, struct genai_place *place,
			  struct genai_point *ready, struct genai_error *err)
{
	(void)s;
	(void)err;
	place->kind = GENAI_PLACE_DEVICE;
	place->addr = p->addr[visit];
	*ready = (struct genai_point){NULL, 0};
	return 0;
}

static int32_t pg_release(struct genai_pager *p, uint32_t visit,
			  struct genai_point point, struct genai_error *err)
{
	(void)p;
	(void)visit;
	(void)point;
	(void)err;
	return 0;
}

static int32_t pg_end(struct genai_pager *p, struct genai_stream *s,
		      struct genai_point *tail, struct genai_error *err)
{
	(void)p;
	(void)s;
	(void)err;
	*tail = (struct genai_point){NULL, 0};
	return 0;
}

static int32_t pg_replay(struct genai_pager *p, struct genai_stream *s,
			 struct genai_error *err)
{
	(void)p;
	(void)s;
	(void)err;
	return 0;
}

static int32_t pg_resident(struct genai_pager *p, uint32_t visit,
			   uint32_t *out_kind, struct genai_error *err)
{
	(void)p;
	(void)visit;
	(void)err;
	*out_kind = GENAI_PLACE_DEVICE;
	return 0;
}

static int32_t pg_stats(struct genai_pager *p, struct genai_pager_stats *s,
			struct genai_error *err)
{
	struct genai_pager_stats st = {.size = sizeof(st)};

	(void)p;
	(void)err;
	genai_struct_give(s, &st);
	return 0;
}

static const struct genai_pager_ops pager_ops = {
	.size = sizeof(pager_ops),
	.version = 1,
	.caps = pg_caps,
	.step_begin = pg_begin,
	.acquire = pg_acquire,
	.release = pg_release,
	.step_end = pg_end,
	.stats = pg_stats,
	.replay_begin = pg_replay,
	.resident = pg_resident,
};

struct sweep {
	struct genai_sweep_page pages[4096];
	uint32_t n;
};

static void add_page(struct gpu_rig *r, struct op_graph *g,
		     struct genai_pager *p, struct sweep *s,
		     const struct genai_visit *v, uint32_t i, uint64_t begin,
		     uint64_t end)
{
	const struct genai_tensor *t = &g->tensors[v->tensor];
	const char *src = (const char *)g->files[t->file].data + t->offset;
	uint64_t row = t->bytes / v->rows;

	s->pages[s->n] =
		(struct genai_sweep_page){sizeof(s->pages[0]), i, begin, end};
	p->addr = realloc(p->addr, (s->n + 1) * sizeof(*p->addr));
	p->addr[s->n++] = v->rows == 1 ? gpu_upload(r, src, t->bytes)
				       : gpu_upload(r, src + begin * row,
						    (end - begin) * row);
}

// Pages in sweep order: the parts of a group one after another.
static void make_pages(struct gpu_rig *r, struct op_graph *g,
		       const struct genai_visit *v, uint32_t n, uint64_t cut,
		       struct genai_pager *p, struct sweep *s)
{
	for (uint32_t i = 0; i < n;) {
		uint32_t end = i + 1;
		uint64_t step = cut && (v[i].flags & GENAI_WEIGHT_ROWS)
					? cut
					: v[i].rows;

		while (end < n && v[end].group == v[i].group)
			end++;
		for (uint64_t row = 0; row < v[i].rows; row += step)
			for (uint32_t k = i; k < end; k++)
				add_page(r, g, p, s, &v[k], k, row,
					 row + step < v[k].rows ? row + step
								: v[k].rows);
		i = end;
	}
	p->n = s->n;
}

static int32_t no_memory(struct gpu_rig *r, struct genai_error *err)
{
	return r->host.error_set(r, err, GENAI_E_NOMEM,
				 "the test could not upload its data");
}

// Where value v is to be bound.
static genai_addr place(struct gpu_rig *r, struct op_graph *g, uint32_t v,
			const void *data)
{
	const struct genai_view *w = &g->views[v];

	if (g->over[v] != GENAI_NONE)
		return g->views[g->over[v]].addr;
	return gpu_upload(r, data, op_bytes(w->dtype, w->rank, w->dims));
}

static int32_t bind_all(struct gpu_rig *r, struct op_graph *g,
			const struct genai_executor_ops *x,
			struct genai_plan *plan, struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = 0; i < g->g.n_inputs && !rc; i++) {
		uint32_t v = g->inputs[i];

		g->views[v].addr = place(r, g, v, g->host[v]);
		rc = g->views[v].addr
			     ? x->bind_input(plan, i, &g->views[v], err)
			     : no_memory(r, err);
	}
	for (uint32_t o = 0; o < g->g.n_outputs && !rc; o++) {
		uint32_t v = g->outputs[o];

		g->views[v].addr = place(r, g, v, NULL);
		rc = g->views[v].addr
			     ? x->bind_output(plan, o, &g->views[v], err)
			     : no_memory(r, err);
	}
	return rc;
}

static void fetch_all(struct gpu_rig *r, struct op_graph *g)
{
	for (uint32_t o = 0; o < g->g.n_outputs; o++) {
		uint32_t v = g->outputs[o];

		if (g->host[v])
			gpu_download(r, g->host[v], g->views[v].addr,
				     op_bytes(g->views[v].dtype,
					      g->views[v].rank,
					      g->views[v].dims));
	}
}

static void unbind_all(struct gpu_rig *r, struct op_graph *g)
{
	for (uint32_t v = 0; v < g->g.n_values; v++)
		if (g->views[v].addr && g->over[v] == GENAI_NONE) {
			gpu_free(r, g->views[v].addr);
			g->views[v].addr = 0;
		}
}

static int32_t reset_after(struct gpu_rig *r)
{
	struct genai_ticket t = {.seal = 77};

	r->barrier_ops.drain(r->self,
			     (struct genai_range){0, GENAI_RANGE_ALL_BYTES},
			     UINT64_MAX, NULL, NULL);
	return r->stream_ops.reset(r->self, &t, NULL);
}

int32_t gpu_run(struct check *c, struct op_graph *g, struct op_how *how,
		struct genai_error *err)
{
	struct gpu_rig *r = c->ctx;
	const struct genai_executor_ops *x =
		how->captured ? &r->captured : &r->eager;
	static struct sweep sweep;
	struct genai_pager pager = {0, 0, NULL};
	struct genai_pager_api papi = {&pager_ops, &pager, NULL};
	struct genai_exec_caps caps = {.size = sizeof(caps)};
	struct genai_view max[OP_VALUES];
	struct genai_plan_options opts = {
		.size = sizeof(opts),
		.stream = &r->stream,
		.barrier = &r->barrier,
		.pager = &papi,
		.max_inputs = max,
		.n_max_inputs = g->g.n_inputs,
		.n_repeated = 1,
		.repeated = max,
	};
	struct genai_ticket ticket = {.seal = 77};
	const struct genai_visit *visits = NULL;
	struct genai_plan *plan = NULL;
	struct genai_point done = {NULL, 0};
	uint32_t n = 0;
	int32_t rc;

	for (uint32_t i = 0; i < g->g.n_inputs; i++)
		max[i] = g->views[g->inputs[i]];
	rc = x->caps(r->self, &caps, err);
	if (!rc)
		rc = x->plan_create(r->self, &g->g, &opts, &plan, err);
	// what others carry, and what the GPU has no instructions for
	c->refused = rc && (!op_listed(g, &caps) ||
			    strstr(err->text, "a quantised cache is not") ||
			    strstr(err->text, "bfloat16 needs compute"));
	if (rc)
		return rc;
	sweep.n = 0;
	rc = x->plan_visits(plan, &visits, &n, err);
	if (!rc) {
		make_pages(r, g, visits, n, how->cut_rows, &pager, &sweep);
		rc = x->plan_set_pages(plan, sweep.pages, sweep.n, err);
	}
	for (uint32_t i = 0; i < pager.n && !rc; i++)
		if (!pager.addr[i])
			rc = no_memory(r, err);
	if (!rc)
		rc = bind_all(r, g, x, plan, err);
	for (uint32_t i = 0; i < (how->steps ? how->steps : 1) && !rc; i++)
		rc = x->submit(plan, r->compute, NULL, 0, &done, err);
	if (!rc)
		rc = r->barrier_ops.host_read(r->self, &done, 1, UINT64_MAX,
					      err);
	if (rc)
		reset_after(r);
	how->stats.size = sizeof(how->stats);
	x->stats(plan, &how->stats, NULL);
	if (!rc)
		fetch_all(r, g);
	r->barrier_ops.drain(r->self,
			     (struct genai_range){0, GENAI_RANGE_ALL_BYTES},
			     UINT64_MAX, NULL, NULL);
	if (x->plan_destroy(plan, &ticket, NULL))
		fprintf(stderr, "plan_destroy failed\n");
	unbind_all(r, g);
	for (uint32_t i = 0; i < pager.n; i++)
		if (pager.addr[i])
			gpu_free(r, pager.addr[i]);
	free(pager.addr);
	return rc;
}
