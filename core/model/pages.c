// pages.c - grouping the weights that a plan visits into pages.
#include "core/model/pages.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/grow.h"
#include "core/base/mapping.h"
#include "core/graph/build.h"

#define TILED 2u     // of cut: it is, wherever it lies
#define TILE_ROWS 8u // tiles are cut at multiples of this many rows

// Where parts begin in a page: at lines of a cache, unless pages are so small
// that this would waste too much of them.
#define LARGE_PAGE (UINT64_C(1) << 20)
#define LARGE_ALIGN UINT64_C(256)
#define SMALL_ALIGN UINT64_C(16)

static uint64_t up(const struct genai_pages *b, uint64_t n)
{
	return (n + b->align - 1) / b->align * b->align;
}

static int32_t grow(void **p, uint32_t *cap, uint32_t need, size_t one,
		    struct genai_error *err)
{
	return genai_grow(p, cap, need, one, "the page plan", err);
}

static int32_t close_page(struct genai_pages *b, uint32_t flags,
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

// What a step does up to a visit: a unit for every tile, one for other nodes.
static void set_work(struct genai_pages *b, struct genai_sweep_visit *s,
		     uint32_t visit, uint64_t row_begin)
{
	const struct genai_visit *v = &b->visits[visit], *last = NULL;
	const struct genai_sweep_page *before = NULL;

	if (b->n_sweep) {
		before = &b->p->pages[b->n_sweep - 1];
		last = &b->visits[before->visit];
	}
	if (!last || last->first_node != v->first_node) {
		s->units = v->units_before + (v->units_before < UINT32_MAX);
		if (__builtin_add_overflow(v->bytes_before, v->work_bytes,
					   &s->work_bytes))
			s->work_bytes = UINT64_MAX;
	} else if (v->flags & GENAI_WEIGHT_ROWS &&
		   last->flags & GENAI_WEIGHT_ROWS &&
		   before->row_begin != row_begin) {
		s->units = 1;
		s->work_bytes = v->work_bytes;
	}
}

static bool is_bank(const struct genai_pages *b, uint32_t visit);

static uint32_t sweep_flags(const struct genai_pages *b, uint32_t visit)
{
	const uint32_t caps = b->p->rt->pager_caps.flags;

	if (is_bank(b, visit))
		return GENAI_VISIT_EXPERT;
	return b->visits[visit].flags & GENAI_WEIGHT_HOST &&
			       caps & GENAI_PAGER_CAP_HOST
		       ? GENAI_VISIT_HOST
		       : 0;
}

// What a step reads of a visit, or of each expert that it uses; a gather reads
// a few rows, nobody knows which.
static uint64_t sweep_bytes(const struct genai_pages *b, uint32_t visit,
			    uint64_t rows)
{
	const struct genai_visit *v = &b->visits[visit];

	if (is_bank(b, visit))
		return v->device_bytes / v->rows;
	return v->flags & GENAI_WEIGHT_GATHER
		       ? 0
		       : v->device_bytes / v->rows * rows;
}

// One entry of the sweep.
static int32_t add_visit(struct genai_pages *b, uint32_t visit,
			 uint64_t row_begin, uint64_t row_end, uint32_t page,
			 uint64_t offset, struct genai_error *err)
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
		.bytes = sweep_bytes(b, visit, row_end - row_begin),
		.flags = sweep_flags(b, visit),
		.reserved = is_bank(b, visit) ? (uint32_t)v->rows : 0,
	};
	set_work(b, &b->sweep[b->n_sweep], visit, row_begin);
	b->p->pages[b->n_sweep] = (struct genai_sweep_page){
		sizeof(b->p->pages[0]), visit, row_begin, row_end};
	b->n_sweep++;
	return 0;
}

// One part of a visit into the page being filled.
static int32_t put_extent(struct genai_pages *b, uint32_t visit,
			  uint64_t row_begin, uint64_t row_end,
			  struct genai_error *err)
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
		.place = up(b, b->page_bytes),
		.bytes = rows * (v->device_bytes / v->rows),
	};
	if (!(v->flags & GENAI_WEIGHT_FILL_PARTS) || rows < v->rows) {
		e->fill = v->fill;
		e->ctx = v->fill_ctx;
	}
	// bytes that no kernel could load where they lie are copied once
	if (!e->fill && (uintptr_t)src % element_bytes(t->dtype))
		e->fill = copy_aligned;
	e->file = (uint32_t)genai_mapping_find(src, e->src_bytes,
					       &e->file_offset);
	b->page_bytes = e->place + e->bytes;
	return 0;
}

// And into the sweep.
static int32_t put(struct genai_pages *b, uint32_t visit, uint64_t row_begin,
		   uint64_t row_end, struct genai_error *err)
{
	int32_t rc = put_extent(b, visit, row_begin, row_end, err);

	return rc ? rc
		  : add_visit(b, visit, row_begin, row_end, b->n_pages,
			      b->extents[b->n_extents - 1].place, err);
}

// A tensor that several visits read is stored once.
static bool wants_own_page(const struct genai_pages *b,
			   const struct genai_visit *v)
{
	return b->in_place || v->flags & GENAI_WEIGHT_GATHER ||
	       b->held[v->tensor] || b->reads[v->tensor] > 1 ||
	       (!b->how.apart && b->gathered[v->tensor]);
}

static int32_t put_own(struct genai_pages *b, uint32_t visit,
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
	return rc ? rc : close_page(b, GENAI_PAGE_NO_STREAM, err);
}

// ---- experts ----

// Experts of a mixture have a page each, so that those that are used often can
// be on the device: where not all fit, and the pager knows how.  A tensor that
// somebody else reads stays whole.
static bool is_bank(const struct genai_pages *b, uint32_t visit)
{
	const struct genai_visit *v = &b->visits[visit];

	return b->banks && v->flags & GENAI_WEIGHT_EXPERT && v->rows > 1 &&
	       b->gathered[v->tensor] == 1 && !b->reads[v->tensor];
}

static uint32_t bank_end(const struct genai_pages *b, uint32_t from)
{
	uint32_t to = from;

	while (to < b->n_visits && is_bank(b, to) &&
	       b->visits[to].first_node == b->visits[from].first_node &&
	       b->visits[to].rows == b->visits[from].rows)
		to++;
	return to;
}

// All matrices of an expert are one page.
static int32_t put_bank(struct genai_pages *b, uint32_t from, uint32_t to,
			struct genai_error *err)
{
	const uint64_t experts = b->visits[from].rows;
	int32_t rc = close_page(b, 0, err);
	uint32_t first = b->n_pages;

	for (uint64_t e = 0; !rc && e < experts; e++) {
		for (uint32_t i = from; !rc && i < to; i++) {
			rc = put_extent(b, i, e, e + 1, err);
			if (!rc && !e)
				rc = add_visit(
					b, i, 0, experts, first,
					b->extents[b->n_extents - 1].place,
					err);
		}
		if (!rc)
			rc = close_page(b, GENAI_PAGE_NO_STREAM, err);
	}
	return rc;
}

// ---- tiles ----

// Bytes in a page of so many rows of the visits from..to, which share a group.
static uint64_t tile_bytes(const struct genai_pages *b, uint32_t from,
			   uint32_t to, uint64_t rows)
{
	uint64_t n = 0;

	for (uint32_t i = from; i < to; i++)
		n += up(b,
			b->visits[i].device_bytes / b->visits[i].rows * rows);
	return n;
}

// Rows are cut at multiples of eight; where that would be a large part of a
// page, at fewer that still begin at 16 bytes, in the file and on the device.
static uint64_t tile_rows(const struct genai_pages *b, uint32_t from,
			  uint32_t to)
{
	uint64_t n = TILE_ROWS;

	if (tile_bytes(b, from, to, n) <= b->how.bytes / 16)
		return n;
	for (uint64_t k = n / 2; k; k /= 2) {
		for (uint32_t i = from; i < to; i++) {
			const struct genai_visit *v = &b->visits[i];
			uint64_t bytes =
				genai_graph_tensor(b->graph, v->tensor)->bytes;

			if (!(v->flags & GENAI_WEIGHT_ANY_ROWS) ||
			    v->device_bytes / v->rows * k % SMALL_ALIGN ||
			    (!v->fill && bytes / v->rows * k % SMALL_ALIGN))
				return n;
		}
		n = k;
	}
	return n;
}

static int32_t put_rows(struct genai_pages *b, uint32_t from, uint32_t to,
			uint64_t begin, uint64_t end, struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = from; !rc && i < to; i++)
		rc = put(b, i, begin, end, err);
	return rc;
}

// Rows that the page being filled has room for.
static uint64_t rows_left(const struct genai_pages *b, uint32_t from,
			  uint32_t to, uint64_t most, uint64_t step)
{
	uint64_t used = up(b, b->page_bytes),
		 one = tile_bytes(b, from, to, step);
	uint64_t room = b->how.bytes > used ? b->how.bytes - used : 0, n;

	// a page that is almost full is full
	if (b->n_extents && room < b->how.bytes / 32)
		return 0;
	// to the nearest multiple of step
	room += one / 2;
	if (tile_bytes(b, from, to, most) <= room)
		return most;
	n = room / one * step;
	return n || b->n_extents ? n : step;
}

// Cut where pages are full.
static int32_t put_filling(struct genai_pages *b, uint32_t from, uint32_t to,
			   struct genai_error *err)
{
	uint64_t rows = b->visits[from].rows, step = tile_rows(b, from, to);
	int32_t rc = 0;

	for (uint64_t r = 0; !rc && r < rows;) {
		uint64_t n = rows_left(b, from, to, rows - r, step);

		if (n > rows - r)
			n = rows - r;
		rc = n ? put_rows(b, from, to, r, r + n, err)
		       : close_page(b, 0, err);
		r += n;
	}
	return rc;
}

// Cut evenly.
static int32_t put_tiles(struct genai_pages *b, uint32_t from, uint32_t to,
			 uint64_t bytes, struct genai_error *err)
{
	uint64_t rows = b->visits[from].rows;
	uint64_t step = tile_rows(b, from, to), most, tiles, per;
	uint64_t half = tile_bytes(b, from, to, step) / 2;
	int32_t rc = 0;

	if (__builtin_mul_overflow(rows, b->how.bytes + half, &most))
		most = (b->how.bytes + half) / (bytes / rows);
	else
		most /= bytes;
	most = most / step * step;
	if (!most)
		most = step;
	tiles = (rows + most - 1) / most;
	per = (rows + tiles - 1) / tiles;
	per = (per + step - 1) / step * step;
	for (uint64_t r = 0; !rc && r < rows; r += per) {
		uint64_t end = r + per < rows ? r + per : rows;

		if (up(b, b->page_bytes) + tile_bytes(b, from, to, end - r) >
		    b->how.bytes + half)
			rc = close_page(b, 0, err);
		if (!rc)
			rc = put_rows(b, from, to, r, end, err);
	}
	return rc;
}

// ---- groups ----

static bool same_group(const struct genai_pages *b, uint32_t i, uint32_t k)
{
	return b->visits[i].group == b->visits[k].group &&
	       b->visits[i].rows == b->visits[k].rows &&
	       b->visits[i].first_node == b->visits[k].first_node;
}

static uint32_t group_end(const struct genai_pages *b, uint32_t from)
{
	uint32_t to = from + 1;

	while (to < b->n_visits && same_group(b, from, to))
		to++;
	return to;
}

// Whole visits of one node share a page: a unit of work holds one at a time.
static uint32_t whole_end(const struct genai_pages *b, uint32_t from)
{
	uint32_t to = from + 1;

	while (to < b->n_visits &&
	       b->visits[to].first_node == b->visits[from].first_node &&
	       !b->cut[to] && !wants_own_page(b, &b->visits[to]))
		to++;
	return to;
}

static int32_t put_whole(struct genai_pages *b, uint32_t from, uint32_t to,
			 struct genai_error *err)
{
	uint64_t bytes = 0, used = up(b, b->page_bytes);
	int32_t rc = 0;

	for (uint32_t i = from; i < to; i++)
		bytes += up(b, b->visits[i].device_bytes);
	// small pages are slow to copy: rather one that is too large than two
	// that are half full
	if (used + bytes > b->how.bytes &&
	    (!b->how.fill || used >= b->how.bytes - b->how.bytes / 4))
		rc = close_page(b, 0, err);
	for (uint32_t i = from; !rc && i < to; i++)
		rc = put(b, i, 0, b->visits[i].rows, err);
	return rc;
}

// A matrix that others read too has pages of its own.  Small parts of one, such
// as zero points that many share, go along with every matrix.
static bool is_shared(const struct genai_pages *b, uint32_t from, uint32_t to)
{
	uint64_t bytes = 0, shared = 0;

	for (uint32_t i = from; i < to; i++) {
		const struct genai_visit *v = &b->visits[i];

		bytes += v->device_bytes;
		if (b->in_place || b->held[v->tensor])
			return true;
		if (wants_own_page(b, v))
			shared += v->device_bytes;
	}
	return shared > bytes / 2;
}

static int32_t put_group(struct genai_pages *b, uint32_t from, uint32_t *to,
			 struct genai_error *err)
{
	const struct genai_visit *v = &b->visits[from];
	uint64_t bytes;
	int32_t rc = 0;

	if (is_bank(b, from)) {
		*to = bank_end(b, from);
		return put_bank(b, from, *to, err);
	}
	if (!b->cut[from]) {
		*to = from + 1;
		if (wants_own_page(b, v))
			return put_own(b, from, err);
		*to = whole_end(b, from);
		return put_whole(b, from, *to, err);
	}
	*to = group_end(b, from);
	if (is_shared(b, from, *to)) {
		for (uint32_t i = from; !rc && i < *to; i++)
			rc = put_own(b, i, err);
		return rc;
	}
	bytes = tile_bytes(b, from, *to, v->rows);
	if (b->how.fill)
		return put_filling(b, from, *to, err);
	if (bytes > b->how.bytes)
		return put_tiles(b, from, *to, bytes, err);
	if (up(b, b->page_bytes) + bytes > b->how.bytes)
		rc = close_page(b, 0, err);
	return rc ? rc : put_rows(b, from, *to, 0, v->rows, err);
}

// How many of the weights that go by in tiles belong to nodes before this one.
static uint32_t tiled_before(const struct genai_pages *b, uint32_t n,
			     uint32_t node)
{
	uint32_t from = 0;

	while (from < n) {
		uint32_t mid = from + (n - from) / 2;

		if (b->tiled[mid] < node)
			from = mid + 1;
		else
			n = mid;
	}
	return from;
}

// What a node holds while a weight goes by in tiles may not take a slot: the
// ring would come round to it.
static void find_held(struct genai_pages *b)
{
	uint32_t n = 0;

	memset(b->held, 0, b->graph->n_tensors);
	for (uint32_t i = 0, to; i < b->n_visits; i = to) {
		to = group_end(b, i);
		if (!b->cut[i] ||
		    (!b->how.fill &&
		     tile_bytes(b, i, to, b->visits[i].rows) <= b->how.bytes))
			continue;
		b->tiled[n++] = b->visits[i].first_node;
		memset(b->cut + i, TILED, to - i);
	}
	for (uint32_t i = 0; i < b->n_visits; i++) {
		const struct genai_visit *v = &b->visits[i];
		uint32_t more = tiled_before(b, n, v->last_node + 1) -
				tiled_before(b, n, v->first_node);

		if (more > (b->cut[i] == TILED))
			b->held[v->tensor] = 1;
	}
}

// Those that need not be cut: an even share of them.
static void find_cut(struct genai_pages *b)
{
	double credit = 0;

	for (uint32_t i = 0; i < b->n_visits; i++) {
		const struct genai_visit *v = &b->visits[i];

		b->cut[i] = !!(v->flags & GENAI_WEIGHT_ROWS);
		if (i && same_group(b, i - 1, i)) {
			b->cut[i] = b->cut[i - 1];
			continue;
		}
		if (!(v->flags & GENAI_WEIGHT_FILL_PARTS))
			continue;
		credit += b->how.parts;
		b->cut[i] = credit >= 1;
		credit -= b->cut[i];
	}
}

int32_t genai_pages_build(struct genai_pages *b,
			  const struct genai_grouping *how,
			  struct genai_error *err)
{
	int32_t rc = 0;

	b->how = *how;
	b->align = how->bytes < LARGE_PAGE ? SMALL_ALIGN : LARGE_ALIGN;
	b->n_sweep = b->n_pages = b->n_extents = 0;
	b->page_bytes = 0;
	memset(b->own_page, 0xff, b->graph->n_tensors * sizeof(*b->own_page));
	find_cut(b);
	find_held(b);
	for (uint32_t i = 0; !rc && i < b->n_visits;)
		rc = put_group(b, i, &i, err);
	if (!rc && b->n_sweep)
		b->sweep[b->n_sweep - 1].units_after =
			b->visits[b->n_visits - 1].units_after;
	return rc ? rc : close_page(b, 0, err);
}

// ---- life ----

#define MAX_BYTES (UINT64_C(1) << 48)
#define KNOWN_FLAGS                                                            \
	(GENAI_WEIGHT_GATHER | GENAI_WEIGHT_ROWS | GENAI_WEIGHT_FILL_PARTS |   \
	 GENAI_WEIGHT_ANY_ROWS | GENAI_WEIGHT_HOST | GENAI_WEIGHT_EXPERT)

static bool is_sound(const struct genai_graph *g, const struct genai_visit *v)
{
	const bool rows = v->flags & GENAI_WEIGHT_ROWS;
	const bool parts = v->flags & GENAI_WEIGHT_FILL_PARTS;
	const bool experts = v->flags & GENAI_WEIGHT_EXPERT;
	uint64_t bytes;

	if (v->tensor >= g->n_tensors || v->first_node > v->last_node ||
	    v->last_node >= g->n_nodes || !v->rows ||
	    (!rows && !experts && v->rows > 1) ||
	    (experts && (rows || v->rows > UINT32_MAX ||
			 !(v->flags & GENAI_WEIGHT_GATHER))) ||
	    (parts && (!rows || !v->fill)) ||
	    (v->flags & GENAI_WEIGHT_HOST && !rows))
		return false;
	bytes = genai_graph_tensor(g, v->tensor)->bytes;
	if ((!v->fill || parts) && v->device_bytes != bytes)
		return false;
	return v->device_bytes && v->device_bytes <= MAX_BYTES &&
	       v->device_bytes % v->rows == 0 && bytes % v->rows == 0;
}

static int32_t check_visits(struct genai_pages *b, struct genai_error *err)
{
	const char *name = genai_module_name(b->p->rt->executor.module);

	for (uint32_t i = 0; i < b->n_visits; i++) {
		const struct genai_visit *v = &b->visits[i];

		if (v->flags & ~KNOWN_FLAGS)
			return genai_fail(err, GENAI_E_UNSUPPORTED,
					  "module %s: visit %u: flags %#x are "
					  "not known",
					  name, i, v->flags & ~KNOWN_FLAGS);
		if (!is_sound(b->graph, v))
			return genai_fail(err, GENAI_E_MODULE,
					  "module %s: visit %u is not sound",
					  name, i);
		if (i && v->first_node < b->visits[i - 1].first_node)
			return genai_fail(err, GENAI_E_MODULE,
					  "module %s: visit %u is out of order",
					  name, i);
		if (!b->reads[v->tensor] && !b->gathered[v->tensor])
			b->p->weights_bytes += v->device_bytes;
		if (v->flags & GENAI_WEIGHT_GATHER)
			b->gathered[v->tensor] += b->gathered[v->tensor] < 2;
		else
			b->reads[v->tensor]++;
		if (!(v->flags & GENAI_WEIGHT_GATHER))
			b->p->read_bytes += v->device_bytes;
		b->has_tied |= b->gathered[v->tensor] && b->reads[v->tensor];
		b->has_parts |= !!(v->flags & GENAI_WEIGHT_FILL_PARTS);
		b->has_rows |= v->flags & GENAI_WEIGHT_ROWS &&
			       !(v->flags & GENAI_WEIGHT_FILL_PARTS);
	}
	return 0;
}

int32_t genai_pages_open(struct genai_pages *b, struct genai_paging *paging,
			 struct genai_plan *plan,
			 const struct genai_graph *graph,
			 struct genai_error *err)
{
	size_t n = graph->n_tensors + (size_t)1;
	int32_t rc;

	memset(b, 0, sizeof(*b));
	b->p = paging;
	b->graph = graph;
	rc = paging->rt->exec.plan_visits(plan, &b->visits, &b->n_visits, err);
	if (rc)
		return rc;
	b->cut = calloc(b->n_visits + (size_t)1, 1);
	b->reads = calloc(n, sizeof(*b->reads));
	b->gathered = calloc(n, 1);
	b->held = calloc(n, 1);
	b->own_page = calloc(n, sizeof(*b->own_page));
	b->tiled = calloc(b->n_visits + (size_t)1, sizeof(*b->tiled));
	if (!b->tiled || !b->cut || !b->reads || !b->gathered || !b->held ||
	    !b->own_page)
		return genai_fail(err, GENAI_E_NOMEM,
				  "no memory for the page plan");
	paging->weights_bytes = paging->read_bytes = 0;
	return check_visits(b, err);
}

void genai_pages_close(struct genai_pages *b)
{
	free(b->cut);
	free(b->reads);
	free(b->gathered);
	free(b->held);
	free(b->own_page);
	free(b->tiled);
	free(b->sweep);
	free(b->extents);
}
