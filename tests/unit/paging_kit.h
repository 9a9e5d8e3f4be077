/* paging_kit.h - an executor and a pager that only write down what they are
 * told, for tests of grouping weights into pages. */
#ifndef GENAI_TESTS_PAGING_KIT_H
#define GENAI_TESTS_PAGING_KIT_H

#include "core/base/error.h"
#include "core/graph/build.h"
#include "core/model/paging.h"
#include "tests/unit/session_kit.h"

#define MAX 2048

static struct {
	struct {
		uint64_t bytes;
		uint32_t flags, n;
		struct genai_extent e[16];
	} pages[MAX];
	uint32_t n_pages;
	struct genai_sweep_visit sweep[MAX];
	uint32_t n_sweep;
	uint64_t budget;
	struct genai_sweep_page parts[MAX];
	uint32_t n_parts;
	uint64_t hold, ring;	/* bytes that the pager says it holds */
	uint32_t n_plans, best; /* best: the plan that is said to be */
	int32_t plan_rc;	/* of the last plan that is made */
	uint32_t lie;		/* every number of a plan's report */
	bool keeps;		/* the pages of a plan */
} seen;

static struct genai_visit visits[16];
static uint32_t n_visits;
static struct genai_runtime *rt;
static struct genai_paging paging;
static struct genai_graph *graph;
static struct genai_error err;
static char data[64 << 20] __attribute__((aligned(4096)));

static inline int32_t fake_open(void *self, const struct genai_stream_api *s,
				const struct genai_barrier_api *bar,
				struct genai_pager **out, struct genai_error *e)
{
	(void)self;
	(void)s;
	(void)bar;
	(void)e;
	*out = (struct genai_pager *)&seen;
	return 0;
}

static inline int32_t fake_close(struct genai_pager *p,
				 const struct genai_ticket *t,
				 struct genai_error *e)
{
	(void)p;
	(void)t;
	(void)e;
	return 0;
}

static inline int32_t fake_add(struct genai_pager *p, uint64_t bytes,
			       uint32_t flags, const struct genai_extent *e,
			       uint32_t n, struct genai_error *er)
{
	(void)p;
	(void)er;
	ck_assert_uint_le(n, 16);
	seen.pages[seen.n_pages].bytes = bytes;
	seen.pages[seen.n_pages].flags = flags;
	seen.pages[seen.n_pages].n = n;
	memcpy(seen.pages[seen.n_pages++].e, e, n * sizeof(*e));
	return 0;
}

static inline int32_t fake_seal(struct genai_pager *p,
				const struct genai_sweep_visit *sweep,
				uint32_t n, uint64_t budget,
				struct genai_pager_report *out,
				struct genai_error *e)
{
	(void)p;
	(void)e;
	memcpy(seen.sweep, sweep, n * sizeof(*sweep));
	seen.n_sweep = n;
	seen.budget = budget;
	out->pinned_bytes = seen.hold;
	out->ring_bytes = seen.ring;
	return 0;
}

/* Forgets the pages, and likes one grouping. */
static inline int32_t fake_plan(struct genai_pager *p,
				const struct genai_sweep_visit *sweep,
				uint32_t n, uint64_t budget,
				struct genai_pager_report *out,
				struct genai_error *e)
{
	(void)p;
	(void)sweep;
	(void)n;
	(void)budget;
	if (seen.plan_rc && seen.n_plans == seen.best)
		return genai_fail(e, seen.plan_rc, "no plan %u", seen.n_plans);
	if (seen.lie)
		memset(out, (int)seen.lie, sizeof(*out));
	else
		out->step_ns = out->serial_ns =
			seen.n_plans == seen.best ? 10 : 1000;
	if (!seen.lie)
		out->resident_ns = 1;
	out->n_pages = seen.n_pages;
	seen.n_plans++;
	if (!seen.keeps)
		seen.n_pages = 0;
	return 0;
}

static inline int32_t fake_visits(struct genai_plan *p,
				  const struct genai_visit **out, uint32_t *n,
				  struct genai_error *e)
{
	(void)p;
	(void)e;
	*out = visits;
	*n = n_visits;
	return 0;
}

static inline int32_t fake_set(struct genai_plan *p,
			       const struct genai_sweep_page *parts, uint32_t n,
			       struct genai_error *e)
{
	(void)p;
	(void)e;
	memcpy(seen.parts, parts, n * sizeof(*parts));
	seen.n_parts = n;
	return 0;
}

static inline void begin(const char *budget, const char *more)
{
	rt = runtime("eager", "pager_sync", budget, more);
	rt->pager_ops.open = fake_open;
	rt->pager_ops.close = fake_close;
	rt->pager_ops.add = fake_add;
	rt->pager_ops.seal = fake_seal;
	rt->pager_ops.plan = NULL;
	rt->exec.plan_visits = fake_visits;
	rt->exec.plan_set_pages = fake_set;
	memset(&seen, 0, sizeof(seen));
	memset(&err, 0, sizeof(err));
	err.size = sizeof(err);
	n_visits = 0;
	ck_assert_int_eq(genai_paging_open(rt, &paging, &err), 0);
}

/* Six tensors of bytes, one after another from offset 256 on, and six nodes. */
static inline void tensors_of(const void *file, uint64_t file_bytes,
			      uint64_t bytes, uint64_t gap)
{
	struct genai_builder *b = genai_builder_open("weights");
	uint32_t f = genai_builder_file(b, "w", file, file_bytes);
	int64_t dims = (int64_t)bytes / 4;
	uint32_t in = genai_builder_value(b, "x", GENAI_DT_F32, 1, &dims, NULL);

	genai_builder_input(b, in);
	for (uint32_t i = 0; i < 6; i++) {
		uint32_t t =
			genai_builder_tensor(b, f, 256 + i * (bytes + gap),
					     bytes, GENAI_DT_F32, 1, &dims);
		char name[16];
		uint32_t args[2] = {in, 0};

		snprintf(name, sizeof(name), "w%u", i);
		args[1] = genai_builder_stored(b, name, t);
		snprintf(name, sizeof(name), "y%u", i);
		in = genai_builder_value(b, name, GENAI_DT_F32, 1, &dims, NULL);
		genai_builder_node(b, "Add", "", 21, name, args, 2, &in, 1);
	}
	genai_builder_output(b, in);
	ck_assert_int_eq(genai_builder_finish(b, &graph, &err), 0);
}

static inline void tensors(uint64_t bytes, uint64_t gap)
{
	tensors_of(data, sizeof(data), bytes, gap);
}

static inline struct genai_visit *visit(uint32_t tensor, uint32_t node,
					uint32_t rows)
{
	uint64_t bytes = genai_graph_tensor(graph, tensor)->bytes;

	visits[n_visits] = (struct genai_visit){
		.size = sizeof(visits[0]),
		.tensor = tensor,
		.first_node = node,
		.last_node = node,
		.flags = rows > 1 ? GENAI_WEIGHT_ROWS : 0,
		.group = n_visits,
		.rows = rows,
		.device_bytes = bytes,
	};
	return &visits[n_visits++];
}

static inline int32_t seal(uint64_t room)
{
	return genai_paging_seal(&paging, NULL, graph, room, &err);
}

static inline void sealed(uint64_t room)
{
	int32_t rc = seal(room);

	ck_assert_msg(!rc, "%s", err.text);
	ck_assert_uint_eq(seen.n_parts, seen.n_sweep);
}

static inline void end(void)
{
	ck_assert_int_eq(genai_paging_close(&paging, &err), 0);
	genai_graph_free(graph);
	genai_close(rt);
}

/* The whole sweep: every row of every visit once, in order. */
static inline void whole_sweep(void)
{
	uint32_t at = 0;
	uint64_t row[16] = {0};

	for (uint32_t i = 0; i < seen.n_parts; i++) {
		const struct genai_sweep_page *p = &seen.parts[i];

		ck_assert_uint_eq(p->row_begin, row[p->visit]);
		ck_assert_uint_lt(p->row_begin, p->row_end);
		row[p->visit] = p->row_end;
		ck_assert_uint_ge(visits[p->visit].first_node, at);
		at = visits[p->visit].first_node;
		ck_assert_uint_lt(seen.sweep[i].page, seen.n_pages);
		ck_assert_uint_le(seen.sweep[i].offset + seen.sweep[i].bytes,
				  seen.pages[seen.sweep[i].page].bytes);
	}
	for (uint32_t i = 0; i < n_visits; i++)
		ck_assert_uint_eq(row[i], visits[i].rows);
}

static inline void fill(void *ctx, void *dst, uint64_t bytes, const void *src,
			uint64_t src_bytes)
{
	(void)ctx;
	(void)dst;
	(void)bytes;
	(void)src;
	(void)src_bytes;
}

#endif
