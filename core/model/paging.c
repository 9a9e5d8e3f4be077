// paging.c - grouping the weights that a plan visits into pages.
#include "core/model/paging.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/graph/build.h"

#define PLACE_ALIGN UINT64_C(256)
#define MAX_PAGE (UINT64_C(8) << 20)
#define MIN_PAGE (UINT64_C(4) << 10)   /* a unit of work is not worth less */
#define LEAST_PAGE (UINT64_C(1) << 10) /* even if asked for */
#define TILE_ROWS 8u /* tiles are cut at multiples of this many rows */

static uint64_t up(uint64_t n)
{
	return (n + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
}

int32_t genai_paging_open(struct genai_runtime *rt, struct genai_paging *p,
			  struct genai_error *err)
{
	struct genai_pager *pager = NULL;
	void *self = genai_module_self(rt->pager.module);
	int32_t rc;

	memset(p, 0, sizeof(*p));
	p->rt = rt;
	rc = rt->pager_ops.open(self, &rt->device.stream, &rt->device.barrier,
				&pager, err);
	if (!rc && !pager)
		rc = genai_fail(err, GENAI_E_MODULE,
				"module %s: open gave no pager",
				genai_module_name(rt->pager.module));
	if (!rc)
		p->api = (struct genai_pager_api){&rt->pager_ops, pager, self};
	return rc;
}

// ---- budget and page size ----

static int32_t read_budget(struct genai_paging *p, uint64_t room,
			   struct genai_error *err)
{
	struct genai_runtime *rt = p->rt;
	const char *v =
		genai_config_get(rt->config, "runtime", "weight_budget");
	struct genai_error why = GENAI_ERROR_INIT;
	double percent = -1;

	p->budget = room;
	if (!strcmp(v, "auto"))
		return 0;
	if (genai_parse_bytes(v, &p->budget, &percent, &why))
		return genai_config_fail(rt->config, "runtime", "weight_budget",
					 err, "%s", why.text);
	if (percent >= 100)
		// all of it, with what pages add
		p->budget = room < UINT64_MAX ? room : UINT64_MAX - 1;
	else if (percent >= 0)
		p->budget =
			(uint64_t)((double)p->weights_bytes * percent / 100);
	if (p->budget > room)
		return genai_config_fail(
			rt->config, "runtime", "weight_budget", err,
			"is %" PRIu64 " bytes, but device_limit leaves %" PRIu64
			" for weights",
			p->budget, room);
	return 0;
}

static int32_t page_target(struct genai_paging *p, uint64_t *out,
			   struct genai_error *err)
{
	struct genai_runtime *rt = p->rt;
	char section[80] = "module ";
	const char *v;
	struct genai_error why = GENAI_ERROR_INIT;
	double percent;

	strncat(section, genai_module_name(rt->pager.module), 64);
	v = genai_config_get(rt->config, section, "page_bytes");
	*out = MAX_PAGE;
	if (v && strcmp(v, "auto")) {
		if (genai_parse_bytes(v, out, &percent, &why) || percent >= 0)
			return genai_config_fail(
				rt->config, section, "page_bytes", err, "%s",
				percent >= 0 ? "not a percentage" : why.text);
		if (*out < LEAST_PAGE)
			*out = LEAST_PAGE;
	} else if (p->budget / 16 < MAX_PAGE && p->budget / 16 >= MIN_PAGE) {
		// small budgets need small pages: a ring of four takes a
		// quarter of the budget.  Without room for a ring nothing is
		// streamed, and small pages would only be small launches
		*out = p->budget / 16;
	}
	return 0;
}

// ---- pages ----

struct build {
	struct genai_paging *p;
	struct genai_plan *plan;
	const struct genai_graph *graph;
	const struct genai_visit *visits;
	uint32_t n_visits;
	uint64_t target;
	bool apart; /* every visit a page of its own: all stays in place */
	/* per tensor: how often visited, whether gathered or held over tiles,
	 * its page if it has one of its own */
	uint32_t *uses;
	uint8_t *gathered;
	uint32_t *own_page;
	struct genai_sweep_visit *sweep;
	uint32_t n_sweep, cap_sweep;
	/* the page being filled */
	struct genai_extent *extents;
	uint32_t n_extents, cap_extents;
	uint64_t page_bytes;
	uint32_t n_pages; /* added so far */
};

static int32_t grow(void **p, uint32_t *cap, uint32_t need, size_t one,
		    struct genai_error *err)
{
	uint32_t n = *cap ? *cap : 64;
	void *more;

	if (need <= *cap)
		return 0;
	while (n < need)
		n *= 2;
	more = realloc(*p, n * one);
	if (!more)
		return genai_fail(err, GENAI_E_NOMEM,
				  "no memory for the page plan");
	*p = more;
	*cap = n;
	return 0;
}

static int32_t close_page(struct build *b, uint32_t flags,
			  struct genai_error *err)
{
	int32_t rc;

	if (!b->n_extents)
		return 0;
	rc = b->p->api.ops->add(b->p->api.pager, b->page_bytes, flags,
				b->extents, b->n_extents, err);
	b->n_extents = 0;
	b->page_bytes = 0;
	b->n_pages++;
	return rc;
}

static void copy_aligned(void *ctx, void *dst, uint64_t bytes, const void *src,
			 uint64_t src_bytes)
{
	(void)ctx;
	(void)src_bytes;
	memcpy(dst, src, bytes);
}

static uint64_t element_bytes(uint32_t dtype)
{
	int64_t one = 1;
	uint64_t n = 1;

	genai_tensor_bytes(dtype, 1, &one, &n);
	return n;
}

// One entry of the sweep.
static int32_t add_visit(struct build *b, uint32_t visit, uint64_t row_begin,
			 uint64_t row_end, uint32_t page, uint64_t offset,
			 struct genai_error *err)
{
	const struct genai_visit *v = &b->visits[visit];
	uint32_t cap = b->cap_sweep;
	int32_t rc = grow((void **)&b->sweep, &cap, b->n_sweep + 1,
			  sizeof(*b->sweep), err);

	if (!rc)
		rc = grow((void **)&b->p->pages, &b->cap_sweep, b->n_sweep + 1,
			  sizeof(*b->p->pages), err);
	if (rc)
		return rc;
	b->sweep[b->n_sweep] = (struct genai_sweep_visit){
		.size = sizeof(b->sweep[0]),
		.page = page,
		.offset = offset,
		// a gather reads a few rows, nobody knows which
		.bytes = v->flags & GENAI_WEIGHT_GATHER
				 ? 0
				 : v->device_bytes / v->rows *
					   (row_end - row_begin)};
	b->p->pages[b->n_sweep] = (struct genai_visit_page){
		sizeof(b->p->pages[0]), visit, row_begin, row_end};
	b->n_sweep++;
	return 0;
}

// One part of a visit into the page being filled, and into the sweep.
static int32_t put(struct build *b, uint32_t visit, uint64_t row_begin,
		   uint64_t row_end, struct genai_error *err)
{
	const struct genai_visit *v = &b->visits[visit];
	const struct genai_tensor *t = genai_graph_tensor(b->graph, v->tensor);
	const struct genai_file *f = genai_graph_file(b->graph, t->file);
	uint64_t rows = row_end - row_begin, row = t->bytes / v->rows;
	const char *src = (const char *)f->data + t->offset + row_begin * row;
	struct genai_extent *e;
	int32_t rc = grow((void **)&b->extents, &b->cap_extents,
			  b->n_extents + 1, sizeof(*b->extents), err);

	if (rc)
		return rc;
	e = &b->extents[b->n_extents++];
	*e = (struct genai_extent){
		.size = sizeof(*e),
		.src = src,
		.src_bytes = rows * row,
		.place = up(b->page_bytes),
		.bytes = rows * (v->device_bytes / v->rows),
		.fill = v->fill,
		.ctx = v->fill_ctx,
	};
	// bytes that no kernel could load where they lie are copied once
	if (!e->fill && (uintptr_t)src % element_bytes(t->dtype))
		e->fill = copy_aligned;
	b->page_bytes = e->place + e->bytes;
	return add_visit(b, visit, row_begin, row_end, b->n_pages, e->place,
			 err);
}

static bool wants_own_page(const struct build *b, const struct genai_visit *v)
{
	return b->apart || b->gathered[v->tensor] || b->uses[v->tensor] > 1;
}

static int32_t put_own(struct build *b, uint32_t visit, uint32_t flags,
		       struct genai_error *err)
{
	const struct genai_visit *v = &b->visits[visit];
	int32_t rc;

	if (b->own_page[v->tensor] != GENAI_NONE)
		return add_visit(b, visit, 0, v->rows, b->own_page[v->tensor],
				 0, err);
	rc = close_page(b, 0, err);
	if (rc)
		return rc;
	b->own_page[v->tensor] = b->n_pages;
	rc = put(b, visit, 0, v->rows, err);
	return rc ? rc : close_page(b, flags, err);
}

// Visits from..to share a group: they are cut at the same rows.
static int32_t put_tiles(struct build *b, uint32_t from, uint32_t to,
			 uint64_t bytes, struct genai_error *err)
{
	uint64_t rows = b->visits[from].rows;
	uint64_t tiles = (bytes + b->target - 1) / b->target;
	uint64_t per = (rows + tiles - 1) / tiles;
	int32_t rc = close_page(b, 0, err);

	per = (per + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
	for (uint64_t r = 0; !rc && r < rows; r += per) {
		uint64_t end = r + per < rows ? r + per : rows;

		for (uint32_t i = from; !rc && i < to; i++)
			rc = put(b, i, r, end, err);
		if (!rc)
			rc = close_page(b, 0, err);
	}
	return rc;
}

static int32_t put_group(struct build *b, uint32_t from, uint32_t to,
			 struct genai_error *err)
{
	const struct genai_visit *v = &b->visits[from];
	uint64_t bytes = 0;
	bool own = false;
	int32_t rc = 0;

	for (uint32_t i = from; i < to; i++) {
		bytes += up(b->visits[i].device_bytes);
		own |= wants_own_page(b, &b->visits[i]);
	}
	if (own || (bytes > b->target && !(v->flags & GENAI_WEIGHT_ROWS))) {
		// cannot be cut: pinned as a whole or read in place
		for (uint32_t i = from; !rc && i < to; i++)
			rc = put_own(b, i, GENAI_PAGE_NO_STREAM, err);
		return rc;
	}
	if (bytes > b->target)
		return put_tiles(b, from, to, bytes, err);
	if (up(b->page_bytes) + bytes > b->target)
		rc = close_page(b, 0, err);
	for (uint32_t i = from; !rc && i < to; i++)
		rc = put(b, i, 0, b->visits[i].rows, err);
	return rc;
}

static int32_t check_visits(struct build *b, struct genai_error *err)
{
	const char *name = genai_module_name(b->p->rt->executor.module);

	for (uint32_t i = 0; i < b->n_visits; i++) {
		const struct genai_visit *v = &b->visits[i];

		if (v->tensor >= b->graph->n_tensors || !v->rows ||
		    v->first_node > v->last_node ||
		    v->last_node >= b->graph->n_nodes || !v->device_bytes ||
		    v->device_bytes % v->rows ||
		    genai_graph_tensor(b->graph, v->tensor)->bytes % v->rows)
			return genai_fail(err, GENAI_E_MODULE,
					  "module %s: visit %u is not sound",
					  name, i);
		if (i && v->first_node < b->visits[i - 1].first_node)
			return genai_fail(err, GENAI_E_MODULE,
					  "module %s: visit %u is out of order",
					  name, i);
		b->uses[v->tensor]++;
		b->gathered[v->tensor] |= !!(v->flags & GENAI_WEIGHT_GATHER);
	}
	return 0;
}

static uint64_t total_bytes(const struct build *b)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < b->n_visits; i++)
		if (b->own_page[b->visits[i].tensor]) {
			total += b->visits[i].device_bytes;
			b->own_page[b->visits[i].tensor] = 0;
		}
	memset(b->own_page, 0xff, b->graph->n_tensors * sizeof(uint32_t));
	return total;
}

static uint32_t group_end(const struct build *b, uint32_t from)
{
	uint32_t to = from + 1;

	while (to < b->n_visits &&
	       b->visits[to].group == b->visits[from].group &&
	       b->visits[to].rows == b->visits[from].rows)
		to++;
	return to;
}

// What a node holds while a weight goes by in tiles may not take a slot: the
// ring would come round to it.
static void find_held(struct build *b)
{
	for (uint32_t i = 0, to; i < b->n_visits; i = to) {
		uint32_t node = b->visits[i].first_node;
		uint64_t bytes = 0;

		to = group_end(b, i);
		for (uint32_t k = i; k < to; k++)
			bytes += up(b->visits[k].device_bytes);
		if (bytes <= b->target ||
		    !(b->visits[i].flags & GENAI_WEIGHT_ROWS))
			continue;
		for (uint32_t k = 0; k < b->n_visits; k++)
			if ((k < i || k >= to) &&
			    b->visits[k].first_node <= node &&
			    b->visits[k].last_node >= node)
				b->gathered[b->visits[k].tensor] = 1;
	}
}

static int32_t build_pages(struct build *b, struct genai_error *err)
{
	int32_t rc = 0;

	find_held(b);
	for (uint32_t i = 0; !rc && i < b->n_visits;) {
		uint32_t to = group_end(b, i);

		rc = put_group(b, i, to, err);
		i = to;
	}
	return rc ? rc : close_page(b, 0, err);
}

int32_t genai_paging_seal(struct genai_paging *p, struct genai_plan *plan,
			  const struct genai_graph *graph, uint64_t room,
			  struct genai_error *err)
{
	struct build b = {.p = p, .plan = plan, .graph = graph};
	int32_t rc = p->rt->exec.plan_visits(plan, &b.visits, &b.n_visits, err);

	if (rc)
		return rc;
	b.uses = calloc(graph->n_tensors + 1, sizeof(*b.uses));
	b.gathered = calloc(graph->n_tensors + 1, 1);
	b.own_page =
		malloc((graph->n_tensors + UINT64_C(1)) * sizeof(*b.own_page));
	if (!b.uses || !b.gathered || !b.own_page) {
		rc = genai_fail(err, GENAI_E_NOMEM,
				"no memory for the page plan");
		goto out;
	}
	memset(b.own_page, 0xff, graph->n_tensors * sizeof(*b.own_page));
	rc = check_visits(&b, err);
	if (rc)
		goto out;
	p->weights_bytes = total_bytes(&b);
	rc = read_budget(p, room, err);
	if (!rc)
		rc = page_target(p, &b.target, err);
	if (rc)
		goto out;
	b.apart = p->budget == UINT64_MAX &&
		  p->rt->device.caps.flags & GENAI_STREAM_CAP_SHARED;
	rc = build_pages(&b, err);
	p->n_pages = b.n_sweep;
	p->report.size = sizeof(p->report);
	if (!rc)
		rc = p->api.ops->seal(p->api.pager, b.sweep, b.n_sweep,
				      p->budget, &p->report, err);
	if (!rc && p->report.pinned_bytes + p->report.ring_bytes > p->budget)
		rc = genai_fail(err, GENAI_E_MODULE,
				"module %s holds %" PRIu64
				" bytes, the budget is %" PRIu64,
				genai_module_name(p->rt->pager.module),
				p->report.pinned_bytes + p->report.ring_bytes,
				p->budget);
	if (!rc)
		rc = genai_paging_share(p, plan, err);
out:
	free(b.uses);
	free(b.gathered);
	free(b.own_page);
	free(b.sweep);
	free(b.extents);
	return rc;
}

int32_t genai_paging_share(struct genai_paging *p, struct genai_plan *plan,
			   struct genai_error *err)
{
	return p->rt->exec.plan_set_pages(plan, p->pages, p->n_pages, err);
}

int32_t genai_paging_close(struct genai_paging *p, struct genai_error *err)
{
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	int32_t rc = 0;

	if (p->api.pager) {
		rc = genai_device_drain(&p->rt->device, &ticket, err);
		if (!rc)
			rc = p->api.ops->close(p->api.pager, &ticket, err);
	}
	free(p->pages);
	p->pages = NULL;
	p->api.pager = NULL;
	return rc;
}
