// place.c - the memory of a plan: where pages are copied from and where they
// lie on the device.
#include "modules/pager_common/pager.h"

#include <string.h>

// ---- sources ----

static bool comes_before(const void *a, const void *b)
{
	const struct genai_extent *x = a, *y = b;

	return (uintptr_t)x->src < (uintptr_t)y->src;
}

// The extent that holds all of a visit, or NULL.  Visits mostly come in the
// order of the extents: it looks from the last one that was found.
static const struct genai_extent *extent_of(struct pager_page *pg,
					    const struct genai_sweep_visit *v)
{
	for (uint32_t i = 0; i < pg->n_extents; i++) {
		const struct genai_extent *e = &pg->extents[pg->found];

		// its first byte lies there, too, if it reads but a few
		if (v->offset >= e->place && v->offset - e->place < e->bytes &&
		    v->bytes <= e->bytes - (v->offset - e->place))
			return e;
		if (++pg->found == pg->n_extents)
			pg->found = 0;
	}
	return NULL;
}

// Can what lies between two extents be read because they can?
#define OS_PAGE UINT64_C(4096)

static bool is_joined(const struct genai_extent *a,
		      const struct genai_extent *b)
{
	uintptr_t end = (uintptr_t)a->src + a->bytes;

	return (uintptr_t)b->src <=
	       (end + OS_PAGE - 1) / OS_PAGE * OS_PAGE + OS_PAGE - 1;
}

// Extents from i on that lie together in the host's memory as in the page: one
// copy.  Returns the index after them.
static uint32_t one_copy(const struct pager_page *pg, uint32_t i,
			 uint64_t *out_bytes)
{
	const struct genai_extent *e = &pg->extents[i];
	uint32_t k = i + 1;

	while (k < pg->n_extents &&
	       (const char *)pg->extents[k].src - (const char *)e->src ==
		       (int64_t)(pg->extents[k].place - e->place) &&
	       is_joined(&pg->extents[k - 1], &pg->extents[k]))
		k++;
	*out_bytes =
		pg->extents[k - 1].place - e->place + pg->extents[k - 1].bytes;
	return k;
}

// A copy costs a few microseconds whatever its size: pages in many pieces are
// packed once, unless the pieces are large.
#define PIECE_BYTES (UINT64_C(2) << 20)

static bool in_pieces(const struct pager_page *pg)
{
	uint64_t copies = 0, bytes;

	for (uint32_t i = 0; i < pg->n_extents; copies++)
		i = one_copy(pg, i, &bytes);
	return copies > 1 + pg->bytes / PIECE_BYTES;
}

static uint32_t pages_of(const struct genai_pager *p,
			 const struct genai_sweep_visit *v)
{
	return p->pages[v->page].expert ? v->reserved : 1;
}

// Pages need host memory of their own if an extent is filled, if they stream in
// pieces, or if they are read in place by visits that span extents.
static void find_copies(struct genai_pager *p)
{
	for (uint32_t i = 0; i < p->n_pages; i++) {
		struct pager_page *pg = &p->pages[i];

		pg->own = pg->placement == PAGER_STREAMED && in_pieces(pg);
		for (uint32_t k = 0; k < pg->n_extents; k++)
			pg->own |= pg->extents[k].fill != NULL;
	}
	for (uint32_t i = 0; i < p->n_sweep; i++) {
		const struct genai_sweep_visit *v = &p->sweep[i];
		struct pager_page *pg = &p->pages[v->page];

		for (uint32_t e = 0; e < pages_of(p, v); e++)
			if ((pg->expert || pager_stays_there(pg)) &&
			    !pg[e].own && !extent_of(&pg[e], v))
				pg[e].own = true;
	}
}

static void fill_copy(struct pager_page *pg)
{
	for (uint32_t i = 0; i < pg->n_extents; i++) {
		const struct genai_extent *e = &pg->extents[i];
		char *dst = (char *)pg->copy.host + e->place;

		if (e->fill)
			e->fill(e->ctx, dst, e->bytes, e->src, e->src_bytes);
		else
			memcpy(dst, e->src, e->bytes);
	}
}

static bool wants_copy(const struct pager_page *pg, bool all)
{
	return (pg->placement != PAGER_PINNED || pg->expert) &&
	       !pg->copy.host && (all || pg->own);
}

// Copies of the pages that need one, or of all, in one block: one for each page
// would take long, and much more memory.
static int32_t make_copies(struct genai_pager *p, bool all,
			   struct genai_mem *block, struct genai_error *err)
{
	uint64_t bytes = 0, at = 0;
	int32_t rc;

	for (uint32_t i = 0; i < p->n_pages; i++)
		if (wants_copy(&p->pages[i], all))
			bytes += pager_up(p->pages[i].bytes);
	if (!bytes)
		return 0;
	rc = p->stream.ops->alloc(p->stream.self, GENAI_MEM_HOST_PINNED, bytes,
				  GENAI_TAG_STAGING, block, err);
	for (uint32_t i = 0; !rc && i < p->n_pages; i++) {
		struct pager_page *pg = &p->pages[i];

		if (!wants_copy(pg, all))
			continue;
		pg->copy.host = (char *)block->host + at;
		pg->copy.range.addr = block->range.addr + at;
		fill_copy(pg);
		at += pager_up(pg->bytes);
		p->report.host_bytes += pg->bytes;
	}
	return rc;
}

// Register the host memory that the other pages' extents lie in, neighbouring
// extents as one block: a file's mapping becomes one registration.
#define JOIN_GAP (UINT64_C(1) << 16)

static int32_t register_block(struct genai_pager *p, const char *begin,
			      const char *end, struct genai_error *err)
{
	uintptr_t b = (uintptr_t)begin / OS_PAGE * OS_PAGE;
	uintptr_t e = ((uintptr_t)end + OS_PAGE - 1) / OS_PAGE * OS_PAGE;
	struct genai_mem *more = p->m->host->realloc(
		p->m->host->ctx, p->registered,
		(p->n_registered + UINT64_C(1)) * sizeof(*more), "pager");
	int32_t rc;

	if (!more)
		return PAGER_FAIL(p, err, GENAI_E_NOMEM, "no memory");
	p->registered = more;
	rc = p->stream.ops->host_register(p->stream.self, (void *)b, e - b,
					  &more[p->n_registered], err);
	if (!rc)
		p->n_registered++;
	return rc;
}

static uint32_t count_extents(const struct genai_pager *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->n_pages; i++)
		if (!p->pages[i].own)
			n += p->pages[i].n_extents;
	return n;
}

static int32_t register_sources(struct genai_pager *p, struct genai_error *err)
{
	uint32_t n = count_extents(p), at = 0;
	void **v = pager_zalloc(p, (n + UINT64_C(1)) * sizeof(*v));
	const char *begin = NULL, *end = NULL;
	int32_t rc = 0;

	if (!v)
		return PAGER_FAIL(p, err, GENAI_E_NOMEM, "no memory");
	for (uint32_t i = 0; i < p->n_pages; i++)
		for (uint32_t k = 0;
		     !p->pages[i].own && k < p->pages[i].n_extents; k++)
			v[at++] = &p->pages[i].extents[k];
	pager_sort(v, n, comes_before);
	for (uint32_t i = 0; !rc && i < n; i++) {
		const struct genai_extent *e = v[i];
		const char *src = e->src;

		if (begin && (uint64_t)(src - end) > JOIN_GAP && src > end) {
			rc = register_block(p, begin, end, err);
			begin = NULL;
		}
		if (!begin)
			begin = end = src;
		if (src + e->bytes > end)
			end = src + e->bytes;
	}
	if (!rc && begin)
		rc = register_block(p, begin, end, err);
	p->m->host->free(p->m->host->ctx, v);
	return rc;
}

// The device refused to register (a locked-memory limit, a file system): make
// a pinned copy once, and say so.
static int32_t copy_sources(struct genai_pager *p, struct genai_error *err)
{
	uint64_t before = p->report.host_bytes;
	int32_t rc = make_copies(p, true, &p->blocks[1], err);

	if (!rc)
		p->m->host->log(
			p->m->host->ctx, GENAI_LOG_INFO,
			"registering the weights was refused; %llu "
			"bytes were copied to pinned memory",
			(unsigned long long)(p->report.host_bytes - before));
	return rc;
}

// ---- memory ----

// Blocks were registered in the order of their addresses.
static genai_addr alias_of(const struct genai_pager *p, const void *src)
{
	uint32_t from = 0, to = p->n_registered;

	while (to - from > 1) {
		uint32_t mid = from + (to - from) / 2;

		if ((const char *)src < (const char *)p->registered[mid].host)
			to = mid;
		else
			from = mid;
	}
	if (from < to) {
		const struct genai_mem *m = &p->registered[from];
		uint64_t at =
			(uint64_t)((const char *)src - (const char *)m->host);

		if ((const char *)src >= (const char *)m->host &&
		    at < m->range.bytes)
			return m->range.addr + at;
	}
	return 0;
}

genai_addr pager_home(const struct genai_pager *p,
		      const struct genai_sweep_visit *v, uint32_t page)
{
	struct pager_page *pg = &p->pages[page];
	const struct genai_extent *e;

	if (pg->copy.host)
		return pg->copy.range.addr + v->offset;
	e = extent_of(pg, v);
	return alias_of(p, e->src) + v->offset - e->place;
}

static void add_slot(struct genai_range *r, const struct pager_page *pg)
{
	if (!r->bytes)
		r->addr = pg->addr;
	r->bytes = pg->addr + pg->bytes - r->addr;
}

// Large pages first: small ones do not keep to the lines of the cache.
static void assign_pinned(struct genai_pager *p, bool large, uint64_t *at)
{
	for (uint32_t i = 0; i < p->n_pages; i++) {
		struct pager_page *pg = &p->pages[i];

		if (pg->placement != PAGER_PINNED ||
		    (pg->bytes >= PAGER_LARGE) != large)
			continue;
		pg->addr = p->pinned.range.addr + *at;
		if (pg->expert)
			add_slot(&p->slots_of_experts, pg);
		*at += pager_up(pg->bytes);
	}
}

static void assign(struct genai_pager *p, const struct pager_choice *c)
{
	uint64_t at = 0;

	assign_pinned(p, true, &at);
	assign_pinned(p, false, &at);
	for (uint32_t i = 0; i < p->n_pages; i++)
		if (p->pages[i].placement == PAGER_STREAMED)
			p->streamed[p->pages[i].stream_index] = i;
	for (uint32_t i = 0; i < p->n_sweep; i++) {
		const struct genai_sweep_visit *v = &p->sweep[i];

		if (pager_stays_there(&p->pages[v->page]))
			p->alias[i] = pager_home(p, v, v->page);
	}
	for (uint32_t i = 0; i < c->slots; i++) {
		p->slots[i].addr = p->ring.range.addr + i * c->slot_bytes;
		p->slots[i].page = GENAI_NONE;
	}
}

static int32_t take_memory(struct genai_pager *p, const struct pager_choice *c,
			   struct genai_error *err)
{
	int32_t rc = 0;

	p->slots = pager_zalloc(p, c->slots * sizeof(*p->slots));
	p->saved = pager_zalloc(p, c->slots * sizeof(*p->saved));
	p->streamed = pager_zalloc(p, c->n_streamed * sizeof(*p->streamed));
	if (!p->slots || !p->saved || !p->streamed)
		return PAGER_FAIL(p, err, GENAI_E_NOMEM, "no memory");
	p->n_slots = c->slots;
	p->n_streamed = c->n_streamed;
	if (c->pinned + c->tables)
		rc = p->stream.ops->alloc(p->stream.self, GENAI_MEM_DEVICE,
					  c->pinned + c->tables,
					  GENAI_TAG_WEIGHTS, &p->pinned, err);
	if (!rc && c->slots)
		rc = p->stream.ops->alloc(p->stream.self, GENAI_MEM_DEVICE,
					  c->slots * c->slot_bytes,
					  GENAI_TAG_RING, &p->ring, err);
	return rc;
}

// Sources: own copies where needed, then registration, else copies of all.
static int32_t make_sources(struct genai_pager *p, struct genai_error *err)
{
	struct genai_error why = GENAI_ERROR_INIT;
	int32_t rc;

	find_copies(p);
	rc = make_copies(p, false, &p->blocks[0], err);
	if (rc || !register_sources(p, &why))
		return rc;
	p->m->host->log(p->m->host->ctx, GENAI_LOG_INFO, "%s", why.text);
	return copy_sources(p, err);
}

int32_t pager_give(struct genai_pager *p, struct genai_mem *m,
		   const struct genai_ticket *ticket, struct genai_error *err)
{
	int32_t rc = 0;

	if (m->range.bytes)
		rc = p->stream.ops->free(p->stream.self, m->range.addr, ticket,
					 err);
	if (!rc)
		memset(m, 0, sizeof(*m));
	return rc;
}

// All of the page: the device may have refused some blocks and not others.
static bool is_registered(const struct genai_pager *p,
			  const struct pager_page *pg)
{
	for (uint32_t i = 0; i < pg->n_extents; i++)
		if (!alias_of(p, pg->extents[i].src))
			return false;
	return true;
}

// Pinned pages that are filled, or whose sources could not be registered, go
// through a bounce buffer, one page at a time: it may be filled again when the
// copy is done.
static bool is_bounced(const struct genai_pager *p, const struct pager_page *pg)
{
	return pg->placement == PAGER_PINNED && !pg->copy.host &&
	       (pg->own || !is_registered(p, pg));
}

static int32_t take_bounce(struct genai_pager *p, struct genai_error *err)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < p->n_pages; i++)
		if (p->pages[i].bytes > most && is_bounced(p, &p->pages[i]))
			most = p->pages[i].bytes;
	return most ? p->stream.ops->alloc(p->stream.self,
					   GENAI_MEM_HOST_PINNED, most,
					   GENAI_TAG_STAGING, &p->bounce, err)
		    : 0;
}

static int32_t wait_for_all(struct genai_pager *p, struct genai_stream *s,
			    struct genai_error *err)
{
	struct genai_point pt;
	int32_t rc = p->stream.ops->mark(p->stream.self, s, &pt, err);

	return rc ? rc
		  : p->barrier.ops->host_read(p->barrier.self, &pt, 1,
					      UINT64_MAX, err);
}

static int32_t load_bounced(struct genai_pager *p, struct pager_page *pg,
			    struct genai_stream *s, struct genai_error *err)
{
	int32_t rc;

	pg->copy.host = p->bounce.host;
	fill_copy(pg);
	rc = pager_load(p, pg, pg->addr, s, err);
	pg->copy.host = NULL;
	return rc ? rc : wait_for_all(p, s, err);
}

static int32_t load_pinned(struct genai_pager *p, struct genai_error *err)
{
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	struct genai_stream *s;
	int32_t rc, rc2;

	if (!p->report.pinned_bytes)
		return 0;
	rc = p->stream.ops->create(p->stream.self, "load", &s, err);
	if (rc)
		return rc;
	rc = take_bounce(p, err);
	if (!rc)
		rc = pager_experts_load(p, s, err);
	for (uint32_t i = 0; !rc && i < p->n_pages; i++) {
		struct pager_page *pg = &p->pages[i];

		if (is_bounced(p, pg))
			rc = load_bounced(p, pg, s, err);
		else if (pg->placement == PAGER_PINNED)
			rc = pager_load(p, pg, pg->addr, s, err);
	}
	if (!rc)
		rc = wait_for_all(p, s, err);
	// a stream, and a buffer, go when their work is done
	if (rc || p->bounce.range.bytes) {
		rc2 = p->barrier.ops->drain(p->barrier.self, all, UINT64_MAX,
					    &ticket, rc ? NULL : err);
		if (!rc2)
			rc2 = pager_give(p, &p->bounce, &ticket,
					 rc ? NULL : err);
		rc = rc ? rc : rc2;
	}
	rc2 = p->stream.ops->destroy(p->stream.self, s, rc ? NULL : err);
	return rc ? rc : rc2;
}

int32_t pager_place(struct genai_pager *p, uint64_t budget,
		    struct genai_error *err)
{
	struct pager_choice c;
	int32_t rc;

	rc = pager_plan(p, p->sweep, p->n_sweep, budget, &c, err);
	if (!rc)
		rc = make_sources(p, err);
	if (!rc)
		rc = take_memory(p, &c, err);
	if (rc)
		return rc;
	assign(p, &c);
	rc = pager_experts_open(p, c.tables ? c.pinned : PAGER_NOWHERE, err);
	return rc ? rc : load_pinned(p, err);
}

int32_t pager_load(struct genai_pager *p, const struct pager_page *page,
		   genai_addr dst, struct genai_stream *stream,
		   struct genai_error *err)
{
	int32_t rc = 0;

	if (page->copy.host) {
		rc = p->stream.ops->copy(p->stream.self, stream, dst,
					 (uintptr_t)page->copy.host,
					 page->bytes, GENAI_COPY_H2D, err);
		p->stats.copies++;
		p->stats.copy_bytes += page->bytes;
		return rc;
	}
	for (uint32_t i = 0; !rc && i < page->n_extents;) {
		const struct genai_extent *e = &page->extents[i];
		uint64_t bytes;

		i = one_copy(page, i, &bytes);
		rc = p->stream.ops->copy(p->stream.self, stream, dst + e->place,
					 (uintptr_t)e->src, bytes,
					 GENAI_COPY_H2D, err);
		p->stats.copies++;
		p->stats.copy_bytes += bytes;
	}
	return rc;
}

int32_t pager_unplace(struct genai_pager *p, const struct genai_ticket *ticket,
		      struct genai_error *err)
{
	const struct genai_host *host = p->m->host;
	int32_t rc = pager_experts_close(p, ticket, err);

	if (!rc)
		rc = pager_give(p, &p->pinned, ticket, err);
	if (!rc)
		rc = pager_give(p, &p->ring, ticket, err);
	if (!rc)
		rc = pager_give(p, &p->bounce, ticket, err);
	for (uint32_t i = 0; !rc && i < 2; i++)
		rc = pager_give(p, &p->blocks[i], ticket, err);
	for (uint32_t i = 0; !rc && i < p->n_pages; i++)
		memset(&p->pages[i].copy, 0, sizeof(p->pages[i].copy));
	while (!rc && p->n_registered) {
		rc = p->stream.ops->host_unregister(
			p->stream.self,
			p->registered[p->n_registered - 1].range.addr, ticket,
			err);
		if (!rc)
			p->n_registered--;
	}
	if (rc)
		return rc;
	host->free(host->ctx, p->registered);
	host->free(host->ctx, p->slots);
	host->free(host->ctx, p->saved);
	host->free(host->ctx, p->streamed);
	p->registered = NULL;
	p->slots = p->saved = NULL;
	p->streamed = NULL;
	p->slots_of_experts = (struct genai_range){0, 0};
	return 0;
}
