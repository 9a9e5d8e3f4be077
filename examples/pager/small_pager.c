// small_pager.c - a complete pager in one file, to read and to start from.
//
// All pages are copied once, at seal, into one block of pinned host memory (so
// nothing has to be registered, and filled extents are no special case).  Pages
// stay there and are read in place, or are pinned on the device, or go through
// a ring of slots: copied on the stream that acquires, in order with the
// kernels, which makes this a synchronous pager.
#include <string.h>

#include <genai/pager.h>

#define ALIGN 256u // of pages; their extents are aligned to 16
#define SLOTS 3u   // a page, the next one, and one to spare

struct module {
	const struct genai_host *host;
};

enum placement { PINNED, STREAMED, IN_PLACE };

struct page {
	uint64_t bytes, at; // at: in the host copy
	uint32_t flags, n_extents;
	struct genai_extent *extents;
	enum placement placement;
	genai_addr addr; // on the device; of its slot if it is streamed
	uint32_t slot;
	uint32_t first, last; // its visits in the sweep
	uint32_t held;	      // visits held now
};

struct genai_pager {
	struct module *m;
	struct genai_stream_api stream;
	struct genai_barrier_api barrier;
	struct page *pages;
	uint32_t n_pages;
	struct genai_sweep_visit *sweep;
	uint8_t *held; // per visit
	uint32_t n_visits, next;
	int32_t is_sealed, in_step;
	struct genai_mem copy, device; // host copy; pinned pages, then the ring
	uint32_t slot_page[SLOTS];     // whose visits are held, or GENAI_NONE
	struct genai_pager_report report;
	struct genai_pager_stats stats;
};

#define FAIL(p, err, code, ...)                                                \
	((p)->m->host->error_set((p)->m->host->ctx, (err), (code), __VA_ARGS__))

static uint64_t up(uint64_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void *take(struct genai_pager *p, uint64_t bytes)
{
	void *m = p->m->host->alloc(p->m->host->ctx, bytes, "pager");

	if (m)
		memset(m, 0, bytes);
	return m;
}

static void give(struct genai_pager *p, void *m)
{
	p->m->host->free(p->m->host->ctx, m);
}

// ---- describing ----

static int32_t caps(void *self, struct genai_pager_caps *out,
		    struct genai_error *err)
{
	static const struct genai_pager_caps c = {
		.size = sizeof(c),
		.flags = GENAI_PAGER_CAP_STABLE | GENAI_PAGER_CAP_IN_PLACE};

	(void)self;
	(void)err;
	genai_struct_give(out, &c);
	return 0;
}

static int32_t pager_open(void *self, const struct genai_stream_api *stream,
			  const struct genai_barrier_api *barrier,
			  struct genai_pager **out_pager,
			  struct genai_error *err)
{
	struct module *m = self;
	struct genai_pager *p =
		m->host->alloc(m->host->ctx, sizeof(*p), "pager");

	if (!p)
		return m->host->error_set(m->host->ctx, err, GENAI_E_NOMEM,
					  "no memory for a pager");
	memset(p, 0, sizeof(*p));
	p->m = m;
	p->stream = *stream;
	p->barrier = *barrier;
	p->stats.size = sizeof(p->stats);
	*out_pager = p;
	return 0;
}

static int32_t check_extents(struct genai_pager *p, uint64_t bytes,
			     const struct genai_extent *e, uint32_t n,
			     struct genai_error *err)
{
	for (uint32_t i = 0; i < n; i++) {
		if (e[i].place % 16 || !e[i].src || !e[i].bytes ||
		    e[i].bytes > bytes || e[i].place > bytes - e[i].bytes ||
		    (!e[i].fill && e[i].src_bytes != e[i].bytes))
			return FAIL(p, err, GENAI_E_INVAL,
				    "page %u: extent %u is not sound",
				    p->n_pages, i);
		for (uint32_t k = 0; k < i; k++)
			if (e[k].place < e[i].place + e[i].bytes &&
			    e[i].place < e[k].place + e[k].bytes)
				return FAIL(p, err, GENAI_E_INVAL,
					    "page %u: extents %u and %u "
					    "overlap",
					    p->n_pages, k, i);
	}
	return 0;
}

static int32_t add(struct genai_pager *p, uint64_t bytes, uint32_t flags,
		   const struct genai_extent *extents, uint32_t n,
		   struct genai_error *err)
{
	const struct genai_host *h = p->m->host;
	struct page *more;
	int32_t rc;

	if (p->is_sealed)
		return FAIL(p, err, GENAI_E_STATE, "add after seal");
	if (flags & ~GENAI_PAGE_NO_STREAM)
		return FAIL(p, err, GENAI_E_UNSUPPORTED, "page flags %#x",
			    flags);
	if (!bytes || !n)
		return FAIL(p, err, GENAI_E_INVAL, "page %u is empty",
			    p->n_pages);
	rc = check_extents(p, bytes, extents, n, err);
	if (rc)
		return rc;
	more = h->realloc(h->ctx, p->pages,
			  (p->n_pages + UINT64_C(1)) * sizeof(*more), "pager");
	if (!more)
		return FAIL(p, err, GENAI_E_NOMEM, "no memory for a page");
	p->pages = more;
	more += p->n_pages;
	memset(more, 0, sizeof(*more));
	more->extents = take(p, n * sizeof(*extents));
	if (!more->extents)
		return FAIL(p, err, GENAI_E_NOMEM, "no memory for a page");
	memcpy(more->extents, extents, n * sizeof(*extents));
	more->bytes = bytes;
	more->flags = flags;
	more->n_extents = n;
	p->n_pages++;
	return 0;
}

// ---- placing ----

static int32_t take_sweep(struct genai_pager *p,
			  const struct genai_sweep_visit *sweep, uint32_t n,
			  struct genai_error *err)
{
	uint32_t last = GENAI_NONE; // the page whose visits go on

	for (uint32_t i = 0; i < p->n_pages; i++)
		p->pages[i].first = GENAI_NONE;
	for (uint32_t i = 0; i < n; i++) {
		struct page *pg;

		if (sweep[i].flags)
			return FAIL(p, err, GENAI_E_UNSUPPORTED,
				    "visit %u: flags %#x", i, sweep[i].flags);
		if (sweep[i].page >= p->n_pages)
			return FAIL(p, err, GENAI_E_INVAL, "visit %u: no page",
				    i);
		pg = &p->pages[sweep[i].page];
		if (sweep[i].offset > pg->bytes ||
		    sweep[i].bytes > pg->bytes - sweep[i].offset)
			return FAIL(p, err, GENAI_E_INVAL,
				    "visit %u is not inside a page", i);
		if (pg->flags & GENAI_PAGE_NO_STREAM)
			continue;
		if (pg->first != GENAI_NONE && last != sweep[i].page)
			return FAIL(p, err, GENAI_E_INVAL,
				    "the visits of page %u are not consecutive",
				    sweep[i].page);
		last = sweep[i].page;
		if (pg->first == GENAI_NONE)
			pg->first = i;
		pg->last = i;
	}
	give(p, p->sweep);
	give(p, p->held);
	p->sweep = take(p, n * sizeof(*sweep) + 1);
	p->held = take(p, n + UINT64_C(1));
	if (!p->sweep || !p->held)
		return FAIL(p, err, GENAI_E_NOMEM, "no memory for the sweep");
	memcpy(p->sweep, sweep, n * sizeof(*sweep));
	p->n_visits = n;
	return 0;
}

// Pinned as long as the budget lasts, the ring's share set aside; the rest is
// streamed if there is a ring.  Gives the bytes of device memory.
static uint64_t choose(struct genai_pager *p, uint64_t budget)
{
	struct genai_pager_report *r = &p->report;
	uint64_t total = 0, slot = 0, ring = 0;
	uint32_t turn = 0;

	memset(r, 0, sizeof(*r));
	r->size = sizeof(*r);
	r->n_pages = p->n_pages;
	for (uint32_t i = 0; i < p->n_pages; i++) {
		const struct page *pg = &p->pages[i];

		total += up(pg->bytes);
		r->total_bytes += pg->bytes;
		if (!(pg->flags & GENAI_PAGE_NO_STREAM) && slot < up(pg->bytes))
			slot = up(pg->bytes);
	}
	r->host_bytes = total;
	if (budget < total && slot && SLOTS * slot <= budget)
		ring = SLOTS * slot;
	for (uint32_t i = 0; i < p->n_pages; i++) {
		struct page *pg = &p->pages[i];

		if (up(pg->bytes) <= budget - ring - r->pinned_bytes) {
			pg->placement = PINNED;
			pg->addr = r->pinned_bytes;
			r->pinned_bytes += up(pg->bytes);
		} else if (ring && !(pg->flags & GENAI_PAGE_NO_STREAM)) {
			pg->placement = STREAMED;
			r->n_streamed++;
			r->streamed_bytes += pg->bytes;
		} else {
			pg->placement = IN_PLACE;
			r->in_place_bytes += pg->bytes;
		}
	}
	// slots by turns, in the order of the sweep: a page and the next one
	// are never in the same
	for (uint32_t i = 0; i < p->n_visits; i++) {
		struct page *pg = &p->pages[p->sweep[i].page];

		if (pg->placement == STREAMED && pg->first == i)
			pg->slot = turn++ % SLOTS;
	}
	if (r->n_streamed) {
		r->ring_bytes = ring;
		r->ring_slots = SLOTS;
		r->slot_bytes = slot;
	}
	return r->pinned_bytes + r->ring_bytes;
}

static void make_copy(struct genai_pager *p)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < p->n_pages; i++) {
		struct page *pg = &p->pages[i];
		char *dst = (char *)p->copy.host + at;

		pg->at = at;
		at += up(pg->bytes);
		for (uint32_t k = 0; k < pg->n_extents; k++) {
			const struct genai_extent *e = &pg->extents[k];

			if (e->fill)
				e->fill(e->ctx, dst + e->place, e->bytes,
					e->src, e->src_bytes);
			else
				memcpy(dst + e->place, e->src, e->bytes);
		}
		if (pg->placement == PINNED)
			pg->addr += p->device.range.addr;
		else if (pg->placement == STREAMED)
			pg->addr = p->device.range.addr +
				   p->report.pinned_bytes +
				   pg->slot * p->report.slot_bytes;
		else
			pg->addr = p->copy.range.addr + pg->at;
	}
}

static int32_t copy_page(struct genai_pager *p, const struct page *pg,
			 struct genai_stream *s, struct genai_error *err)
{
	p->stats.copies++;
	p->stats.copy_bytes += pg->bytes;
	return p->stream.ops->copy(p->stream.self, s, pg->addr,
				   (uintptr_t)p->copy.host + pg->at, pg->bytes,
				   GENAI_COPY_H2D, err);
}

static int32_t load_pinned(struct genai_pager *p, struct genai_error *err)
{
	const struct genai_stream_ops *st = p->stream.ops;
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	struct genai_ticket ticket;
	struct genai_stream *s = NULL;
	struct genai_point point = {NULL, 0};
	int32_t rc = 0, rc2;

	if (!p->report.pinned_bytes)
		return 0;
	rc = st->create(p->stream.self, "load", &s, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; !rc && i < p->n_pages; i++)
		if (p->pages[i].placement == PINNED)
			rc = copy_page(p, &p->pages[i], s, err);
	if (!rc)
		rc = st->mark(p->stream.self, s, &point, err);
	if (!rc)
		rc = p->barrier.ops->host_read(p->barrier.self, &point, 1,
					       UINT64_MAX, err);
	// whatever went wrong: a stream goes when it is idle
	if (rc)
		p->barrier.ops->drain(p->barrier.self, all, UINT64_MAX, &ticket,
				      NULL);
	rc2 = st->destroy(p->stream.self, s, rc ? NULL : err);
	return rc ? rc : rc2;
}

static int32_t give_mem(struct genai_pager *p, struct genai_mem *m,
			const struct genai_ticket *ticket,
			struct genai_error *err)
{
	int32_t rc = 0;

	if (m->range.bytes)
		rc = p->stream.ops->free(p->stream.self, m->range.addr, ticket,
					 err);
	if (!rc)
		memset(m, 0, sizeof(*m));
	return rc;
}

static int32_t unplace(struct genai_pager *p, const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	int32_t rc = give_mem(p, &p->device, ticket, err);

	return rc ? rc : give_mem(p, &p->copy, ticket, err);
}

static int32_t seal(struct genai_pager *p,
		    const struct genai_sweep_visit *sweep, uint32_t n,
		    uint64_t budget, struct genai_pager_report *out,
		    struct genai_error *err)
{
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	struct genai_ticket ticket;
	uint64_t bytes;
	int32_t rc;

	if (p->is_sealed)
		return FAIL(p, err, GENAI_E_STATE, "sealed twice");
	rc = take_sweep(p, sweep, n, err);
	if (rc)
		return rc;
	bytes = choose(p, budget);
	if (p->report.host_bytes)
		rc = p->stream.ops->alloc(p->stream.self, GENAI_MEM_HOST_PINNED,
					  p->report.host_bytes,
					  GENAI_TAG_STAGING, &p->copy, err);
	if (!rc && bytes)
		rc = p->stream.ops->alloc(p->stream.self, GENAI_MEM_DEVICE,
					  bytes, GENAI_TAG_WEIGHTS, &p->device,
					  err);
	if (!rc) {
		make_copy(p);
		rc = load_pinned(p, err);
	}
	if (rc) {
		// as before seal
		if (!p->barrier.ops->drain(p->barrier.self, all, UINT64_MAX,
					   &ticket, NULL))
			unplace(p, &ticket, NULL);
		return rc;
	}
	for (uint32_t i = 0; i < SLOTS; i++)
		p->slot_page[i] = GENAI_NONE;
	p->is_sealed = 1;
	genai_struct_give(out, &p->report);
	return 0;
}

// ---- steps ----

static int32_t step_begin(struct genai_pager *p, struct genai_stream *stream,
			  int32_t recording, struct genai_error *err)
{
	(void)stream;
	(void)recording; // nothing is kept from one step to the next
	if (!p->is_sealed || p->in_step)
		return FAIL(p, err, GENAI_E_STATE,
			    "step_begin before seal or inside a step");
	p->in_step = 1;
	p->next = 0;
	p->stats.steps++;
	return 0;
}

static int32_t acquire(struct genai_pager *p, uint32_t visit,
		       struct genai_stream *stream,
		       struct genai_place *out_place,
		       struct genai_point *out_ready, struct genai_error *err)
{
	uint32_t page;
	struct page *pg;
	int32_t rc;

	if (!p->in_step || visit != p->next || visit >= p->n_visits)
		return FAIL(p, err, GENAI_E_STATE,
			    "visit %u acquired, %u is next", visit, p->next);
	page = p->sweep[visit].page;
	pg = &p->pages[page];
	if (pg->placement == STREAMED && visit == pg->first) {
		if (p->slot_page[pg->slot] != GENAI_NONE)
			return FAIL(p, err, GENAI_E_STATE,
				    "visit %u: its slot still holds page %u",
				    visit, p->slot_page[pg->slot]);
		// the kernels of the slot's last page are before this copy on
		// the same stream: nothing to wait for
		rc = copy_page(p, pg, stream, err);
		if (rc)
			return rc;
		p->slot_page[pg->slot] = page;
	}
	out_place->size = sizeof(*out_place);
	out_place->kind = pg->placement == IN_PLACE ? GENAI_PLACE_IN_PLACE
						    : GENAI_PLACE_DEVICE;
	out_place->addr = pg->addr + p->sweep[visit].offset;
	*out_ready = (struct genai_point){NULL, 0}; // in order already
	pg->held++;
	p->held[visit] = 1;
	p->next++;
	p->stats.acquires++;
	return 0;
}

static int32_t release(struct genai_pager *p, uint32_t visit,
		       struct genai_point point, struct genai_error *err)
{
	struct page *pg;

	(void)point; // on the stream that the next copy goes to
	if (!p->in_step || visit >= p->n_visits || !p->held[visit])
		return FAIL(p, err, GENAI_E_STATE, "visit %u is not held",
			    visit);
	pg = &p->pages[p->sweep[visit].page];
	p->held[visit] = 0;
	if (!--pg->held && pg->placement == STREAMED && p->next > pg->last)
		p->slot_page[pg->slot] = GENAI_NONE;
	return 0;
}

static int32_t step_end(struct genai_pager *p, struct genai_stream *stream,
			struct genai_point *out_tail, struct genai_error *err)
{
	(void)stream;
	if (!p->in_step || p->next != p->n_visits)
		return FAIL(p, err, GENAI_E_STATE,
			    "step ended after %u of %u visits", p->next,
			    p->n_visits);
	for (uint32_t i = 0; i < p->n_pages; i++)
		if (p->pages[i].held)
			return FAIL(p, err, GENAI_E_STATE,
				    "step ended while page %u is held", i);
	p->in_step = 0;
	*out_tail = (struct genai_point){NULL, 0};
	return 0;
}

static int32_t check_ticket(struct genai_pager *p,
			    const struct genai_ticket *ticket,
			    struct genai_error *err)
{
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};

	return p->m->host->ticket_check(p->m->host->ctx, ticket, all, err);
}

static int32_t reset(struct genai_pager *p, const struct genai_ticket *ticket,
		     struct genai_error *err)
{
	int32_t rc = check_ticket(p, ticket, err);

	if (rc)
		return rc;
	p->in_step = 0;
	for (uint32_t i = 0; i < p->n_pages; i++)
		p->pages[i].held = 0;
	for (uint32_t i = 0; i < SLOTS; i++)
		p->slot_page[i] = GENAI_NONE;
	if (p->held)
		memset(p->held, 0, p->n_visits);
	return 0;
}

static int32_t replay_begin(struct genai_pager *p, struct genai_stream *stream,
			    struct genai_error *err)
{
	(void)stream; // the copies of the step before are on it
	if (!p->is_sealed || p->in_step)
		return FAIL(p, err, GENAI_E_STATE,
			    "replay_begin before seal or inside a step");
	return 0;
}

static int32_t resident(struct genai_pager *p, uint32_t visit,
			uint32_t *out_kind, struct genai_error *err)
{
	enum placement at;

	if (!p->is_sealed)
		return FAIL(p, err, GENAI_E_STATE, "resident before seal");
	if (visit >= p->n_visits)
		return FAIL(p, err, GENAI_E_INVAL, "no visit %u", visit);
	at = p->pages[p->sweep[visit].page].placement;
	*out_kind = at == PINNED     ? GENAI_PLACE_DEVICE
		    : at == IN_PLACE ? GENAI_PLACE_IN_PLACE
				     : 0;
	return 0;
}

static int32_t stats(struct genai_pager *p, struct genai_pager_stats *out,
		     struct genai_error *err)
{
	(void)err;
	genai_struct_give(out, &p->stats);
	return 0;
}

static int32_t pager_close(struct genai_pager *p,
			   const struct genai_ticket *ticket,
			   struct genai_error *err)
{
	int32_t rc = check_ticket(p, ticket, err);

	if (!rc)
		rc = unplace(p, ticket, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < p->n_pages; i++)
		give(p, p->pages[i].extents);
	give(p, p->pages);
	give(p, p->sweep);
	give(p, p->held);
	give(p, p);
	return 0;
}

// ---- the handshake ----

static const struct genai_pager_ops table = {
	.size = sizeof(table),
	.version = 1,
	.caps = caps,
	.open = pager_open,
	.close = pager_close,
	.add = add,
	.seal = seal,
	.step_begin = step_begin,
	.acquire = acquire,
	.release = release,
	.step_end = step_end,
	.reset = reset,
	.stats = stats,
	.replay_begin = replay_begin,
	.resident = resident,
};

static int32_t init(const struct genai_host *host,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	struct module *m = host->alloc(host->ctx, sizeof(*m), "module");

	(void)params;
	if (!m)
		return host->error_set(host->ctx, err, GENAI_E_NOMEM,
				       "no memory for the module");
	m->host = host;
	*out_self = m;
	return 0;
}

static void fini(void *self)
{
	struct module *m = self;

	m->host->free(m->host->ctx, m);
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_PAGER, "small_pager", 1, 0, &table},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = 1,
	.name = "small_pager",
	.version = "1.0",
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
};

GENAI_MODULE_QUERY(block)
