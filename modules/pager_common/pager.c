// pager.c - the pager's table: describing pages, steps, acquire and release.
// The asynchronous pager differs in one thing: a released slot's next page is
// copied at once, on a stream of its own; the synchronous one copies a page
// when it is acquired, on the stream that asked.
#include "modules/pager_common/pager.h"

#include <string.h>

// ---- life ----

static int32_t caps(void *self, struct genai_pager_caps *out,
		    struct genai_error *err)
{
	struct pager_module *m = self;
	struct genai_pager_caps c = {
		.size = sizeof(c),
		.flags = GENAI_PAGER_CAP_STABLE | GENAI_PAGER_CAP_IN_PLACE |
			 GENAI_PAGER_CAP_EXPERT | GENAI_PAGER_CAP_HOST,
		.page_bytes = m->page_bytes};

	(void)err;
	if (m->async)
		c.flags |= GENAI_PAGER_CAP_ASYNC;
	genai_struct_give(out, &c);
	return 0;
}

static int32_t pager_open(void *self, const struct genai_stream_api *stream,
			  const struct genai_barrier_api *barrier,
			  struct genai_pager **out_pager,
			  struct genai_error *err)
{
	struct pager_module *m = self;
	struct genai_pager *p =
		m->host->alloc(m->host->ctx, sizeof(*p), "pager");
	int32_t rc;

	if (!p)
		return m->host->error_set(m->host->ctx, err, GENAI_E_NOMEM,
					  "no memory for a pager");
	memset(p, 0, sizeof(*p));
	p->m = m;
	p->stream = *stream;
	p->barrier = *barrier;
	p->stats.size = sizeof(p->stats);
	p->caps.size = sizeof(p->caps);
	rc = stream->ops->caps(stream->self, &p->caps, err);
	if (!rc && m->async)
		rc = stream->ops->create(stream->self, "pager", &p->copies,
					 err);
	if (rc)
		m->host->free(m->host->ctx, p);
	else
		*out_pager = p;
	return rc;
}

static void forget_pages(struct genai_pager *p)
{
	while (p->n_pages)
		p->m->host->free(p->m->host->ctx,
				 p->pages[--p->n_pages].extents);
	p->bytes = 0;
}

static void free_tables(struct genai_pager *p)
{
	const struct genai_host *host = p->m->host;

	forget_pages(p);
	host->free(host->ctx, p->pages);
	host->free(host->ctx, p->sweep);
	host->free(host->ctx, p->held);
	host->free(host->ctx, p->alias);
	host->free(host->ctx, p);
}

static int32_t pager_close(struct genai_pager *p,
			   const struct genai_ticket *ticket,
			   struct genai_error *err)
{
	int32_t rc;

	if (!p)
		return 0;
	rc = pager_unplace(p, ticket, err);
	if (!rc && p->copies)
		rc = p->stream.ops->destroy(p->stream.self, p->copies, err);
	if (!rc)
		free_tables(p);
	return rc;
}

// ---- description ----

static int32_t check_extents(struct genai_pager *p, uint64_t bytes,
			     const struct genai_extent *e, uint32_t n,
			     struct genai_error *err)
{
	uint64_t end = 0; // of the extents so far

	for (uint32_t i = 0; i < n; i++) {
		if (e[i].place % PAGER_ALIGN || e[i].bytes > bytes ||
		    e[i].place > bytes - e[i].bytes || !e[i].src ||
		    !e[i].bytes || (!e[i].fill && e[i].src_bytes != e[i].bytes))
			return PAGER_FAIL(p, err, GENAI_E_INVAL,
					  "page %u, extent %u: %llu bytes at "
					  "%llu of a page of %llu bytes",
					  p->n_pages, i,
					  (unsigned long long)e[i].bytes,
					  (unsigned long long)e[i].place,
					  (unsigned long long)bytes);
		// usually they come in order
		for (uint32_t k = 0; k < i && e[i].place < end; k++)
			if (e[k].place < e[i].place + e[i].bytes &&
			    e[i].place < e[k].place + e[k].bytes)
				return PAGER_FAIL(p, err, GENAI_E_INVAL,
						  "page %u: extents %u and %u "
						  "overlap",
						  p->n_pages, k, i);
		if (end < e[i].place + e[i].bytes)
			end = e[i].place + e[i].bytes;
	}
	return 0;
}

static int32_t pager_add(struct genai_pager *p, uint64_t bytes, uint32_t flags,
			 const struct genai_extent *extents, uint32_t n,
			 struct genai_error *err)
{
	const struct genai_host *host = p->m->host;
	struct pager_page *pg;
	int32_t rc;

	if (p->sealed)
		return PAGER_FAIL(p, err, GENAI_E_STATE, "add after seal");
	if (flags & ~GENAI_PAGE_NO_STREAM)
		return PAGER_FAIL(p, err, GENAI_E_UNSUPPORTED,
				  "unknown page flags %#x", flags);
	if (!bytes || !n)
		return PAGER_FAIL(p, err, GENAI_E_INVAL, "page %u is empty",
				  p->n_pages);
	if (bytes > PAGER_MOST - p->bytes)
		return PAGER_FAIL(p, err, GENAI_E_LIMIT,
				  "page %u: %llu bytes, with those before more "
				  "than can be counted",
				  p->n_pages, (unsigned long long)bytes);
	rc = check_extents(p, bytes, extents, n, err);
	if (rc)
		return rc;
	if (p->n_pages == p->cap_pages) {
		uint32_t cap = p->cap_pages ? 2 * p->cap_pages : 64;
		void *more = host->realloc(host->ctx, p->pages,
					   cap * sizeof(*p->pages), "pager");

		if (!more)
			return PAGER_FAIL(p, err, GENAI_E_NOMEM,
					  "no memory for %u pages", cap);
		p->pages = more;
		p->cap_pages = cap;
	}
	pg = &p->pages[p->n_pages];
	memset(pg, 0, sizeof(*pg));
	pg->extents = host->alloc(host->ctx, n * sizeof(*extents), "pager");
	if (!pg->extents)
		return PAGER_FAIL(p, err, GENAI_E_NOMEM,
				  "no memory for %u extents", n);
	// by their place: what lies between two neighbours is nobody's
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = i;

		for (; k && pg->extents[k - 1].place > extents[i].place; k--)
			pg->extents[k] = pg->extents[k - 1];
		pg->extents[k] = extents[i];
	}
	pg->bytes = bytes;
	pg->flags = flags;
	pg->n_extents = n;
	p->bytes += bytes;
	p->n_pages++;
	return 0;
}

static int32_t check_sweep(struct genai_pager *p,
			   const struct genai_sweep_visit *sweep, uint32_t n,
			   struct genai_error *err)
{
	uint32_t open = GENAI_NONE; // the page that may be visited again

	for (uint32_t i = 0; i < p->n_pages; i++) {
		p->pages[i].visits = 0;
		p->pages[i].sparse = true;
		p->pages[i].host_bytes = 0;
		p->pages[i].expert = 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct pager_page *pg;

		if (sweep[i].flags == GENAI_VISIT_EXPERT) {
			int32_t rc = pager_check_experts(p, sweep, i, err);

			if (rc)
				return rc;
			continue;
		}
		if (sweep[i].flags & ~GENAI_VISIT_HOST)
			return PAGER_FAIL(p, err, GENAI_E_UNSUPPORTED,
					  "visit %u: flags %#x are not served",
					  i, sweep[i].flags);
		if (sweep[i].page >= p->n_pages)
			return PAGER_FAIL(p, err, GENAI_E_INVAL,
					  "visit %u: no page %u", i,
					  sweep[i].page);
		pg = &p->pages[sweep[i].page];
		if (pg->expert)
			return PAGER_FAIL(p, err, GENAI_E_INVAL,
					  "visit %u: page %u is an expert's", i,
					  sweep[i].page);
		if (sweep[i].offset > pg->bytes ||
		    sweep[i].bytes > pg->bytes - sweep[i].offset)
			return PAGER_FAIL(p, err, GENAI_E_INVAL,
					  "visit %u leaves page %u", i,
					  sweep[i].page);
		if (pg->visits && open != sweep[i].page &&
		    !(pg->flags & GENAI_PAGE_NO_STREAM))
			return PAGER_FAIL(p, err, GENAI_E_INVAL,
					  "the visits of page %u are not "
					  "consecutive",
					  sweep[i].page);
		if (!(pg->flags & GENAI_PAGE_NO_STREAM))
			open = sweep[i].page;
		if (!pg->visits)
			pg->first = i;
		if (sweep[i].bytes)
			pg->sparse = false;
		if (sweep[i].flags & GENAI_VISIT_HOST)
			pg->host_bytes += sweep[i].bytes;
		pg->last = i;
		pg->visits++;
	}
	return 0;
}

static int32_t plan(struct genai_pager *p,
		    const struct genai_sweep_visit *sweep, uint32_t n,
		    uint64_t budget, struct genai_pager_report *out,
		    struct genai_error *err)
{
	struct pager_choice c;
	int32_t rc =
		p->sealed ? PAGER_FAIL(p, err, GENAI_E_STATE, "plan after seal")
			  : check_sweep(p, sweep, n, err);

	if (!rc)
		rc = pager_plan(p, sweep, n, budget, &c, err);
	if (rc)
		return rc;
	genai_struct_give(out, &p->report);
	forget_pages(p);
	return 0;
}

static int32_t seal(struct genai_pager *p,
		    const struct genai_sweep_visit *sweep, uint32_t n,
		    uint64_t budget, struct genai_pager_report *out,
		    struct genai_error *err)
{
	const struct genai_host *host = p->m->host;
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	int32_t rc;

	if (p->sealed)
		return PAGER_FAIL(p, err, GENAI_E_STATE, "sealed twice");
	rc = check_sweep(p, sweep, n, err);
	if (rc)
		return rc;
	host->free(host->ctx, p->sweep);
	host->free(host->ctx, p->held);
	host->free(host->ctx, p->alias);
	p->sweep = host->alloc(host->ctx, n * sizeof(*sweep) + 1, "pager");
	p->held = host->alloc(host->ctx, n + UINT64_C(1), "pager");
	p->alias = host->alloc(host->ctx, (n + UINT64_C(1)) * sizeof(*p->alias),
			       "pager");
	if (!p->sweep || !p->held || !p->alias)
		return PAGER_FAIL(p, err, GENAI_E_NOMEM,
				  "no memory for %u visits", n);
	if (n)
		memcpy(p->sweep, sweep, n * sizeof(*sweep));
	memset(p->held, 0, n);
	p->n_sweep = n;
	rc = pager_place(p, budget, err);
	if (rc) {
		if (!p->barrier.ops->drain(p->barrier.self, all, UINT64_MAX,
					   &ticket, NULL))
			pager_unplace(p, &ticket, NULL);
		return rc;
	}
	p->sealed = true;
	genai_struct_give(out, &p->report);
	return 0;
}

// ---- steps ----

// Load the page of a slot: after whoever used the slot last.
static int32_t load(struct genai_pager *p, struct pager_slot *slot,
		    uint32_t page, struct genai_stream *stream,
		    struct genai_error *err)
{
	int32_t rc =
		p->stream.ops->wait(p->stream.self, stream, slot->free_at, err);

	if (!rc)
		rc = pager_load(p, &p->pages[page], slot->addr, stream, err);
	if (!rc)
		rc = p->stream.ops->mark(p->stream.self, stream, &slot->ready,
					 err);
	if (rc)
		return rc;
	slot->page = page;
	p->tail = slot->ready;
	return 0;
}

// The ring's first pages, before the first sweep and after an error.
static int32_t prime(struct genai_pager *p, struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && p->m->async && i < p->n_slots; i++) {
		p->slots[i].free_at = (struct genai_point){NULL, 0};
		p->slots[i].held = 0;
		rc = load(p, &p->slots[i], p->streamed[i], p->copies, err);
	}
	if (!rc)
		p->primed = true;
	return rc;
}

static int32_t step_begin(struct genai_pager *p, struct genai_stream *stream,
			  int32_t recording, struct genai_error *err)
{
	if (!p->sealed || p->in_step)
		return PAGER_FAIL(p, err, GENAI_E_STATE,
				  p->sealed ? "step_begin inside a step"
					    : "step_begin before seal");
	if (!p->primed) {
		int32_t rc =
			recording
				? PAGER_FAIL(p, err, GENAI_E_STATE,
					     "a recording before replay_begin")
				: prime(p, err);

		if (rc)
			return rc;
	}
	if (!recording) {
		int32_t rc = pager_experts_turn(p, stream, err);

		if (rc)
			return rc;
	}
	if (recording && p->n_slots) {
		memcpy(p->saved, p->slots, p->n_slots * sizeof(*p->saved));
		p->saved_tail = p->tail;
	}
	p->recording = recording;
	p->in_step = true;
	p->next_visit = 0;
	p->stats.steps++;
	return 0;
}

static int32_t acquire_streamed(struct genai_pager *p, struct pager_page *pg,
				uint32_t visit, struct genai_stream *stream,
				struct genai_error *err)
{
	struct pager_slot *slot = &p->slots[pg->slot];
	uint32_t page = p->sweep[visit].page;

	if (visit == pg->first && slot->held)
		return PAGER_FAIL(p, err, GENAI_E_STATE,
				  "visit %u: slot %u still holds page %u",
				  visit, pg->slot, slot->page);
	if (!p->m->async && visit == pg->first)
		return load(p, slot, page, stream, err);
	if (slot->page != page)
		return PAGER_FAIL(p, err, GENAI_E_STATE,
				  "visit %u: slot %u holds page %u, not %u",
				  visit, pg->slot, slot->page, page);
	return 0;
}

// Where a page lies for good; 0: nowhere.
static uint32_t kind_of(const struct pager_page *pg)
{
	static const uint32_t kinds[] = {
		[PAGER_PINNED] = GENAI_PLACE_DEVICE,
		[PAGER_IN_PLACE] = GENAI_PLACE_IN_PLACE,
		[PAGER_HOST] = GENAI_PLACE_HOST,
		[PAGER_STREAMED] = 0,
	};

	return pg->expert ? GENAI_PLACE_TABLE : kinds[pg->placement];
}

static int32_t acquire(struct genai_pager *p, uint32_t visit,
		       struct genai_stream *stream,
		       struct genai_place *out_place,
		       struct genai_point *out_ready, struct genai_error *err)
{
	const struct genai_sweep_visit *v;
	struct pager_page *pg;

	if (!p->in_step || visit != p->next_visit || visit >= p->n_sweep)
		return PAGER_FAIL(p, err, GENAI_E_STATE,
				  "visit %u acquired, %u is next", visit,
				  p->next_visit);
	v = &p->sweep[visit];
	pg = &p->pages[v->page];
	out_place->size = sizeof(*out_place);
	out_place->kind = kind_of(pg);
	if (!out_place->kind)
		out_place->kind = GENAI_PLACE_DEVICE;
	if (pg->expert) {
		out_place->addr = pager_experts_table(p, visit);
		*out_ready = (struct genai_point){NULL, 0};
	} else if (pg->placement == PAGER_STREAMED) {
		struct pager_slot *slot = &p->slots[pg->slot];
		int32_t rc = acquire_streamed(p, pg, visit, stream, err);

		if (rc)
			return rc;
		slot->held++;
		out_place->addr = slot->addr + v->offset;
		*out_ready = slot->ready;
	} else {
		out_place->addr = pg->placement == PAGER_PINNED
					  ? pg->addr + v->offset
					  : p->alias[visit];
		*out_ready = (struct genai_point){NULL, 0};
	}
	p->held[visit] = 1;
	p->next_visit++;
	p->stats.acquires++;
	return 0;
}

static int32_t release(struct genai_pager *p, uint32_t visit,
		       struct genai_point point, struct genai_error *err)
{
	struct pager_page *pg;
	struct pager_slot *slot;
	uint32_t next;

	if (!p->in_step || visit >= p->n_sweep || !p->held[visit])
		return PAGER_FAIL(p, err, GENAI_E_STATE,
				  "visit %u released, but not held", visit);
	p->held[visit] = 0;
	pg = &p->pages[p->sweep[visit].page];
	if (pg->placement != PAGER_STREAMED)
		return 0;
	slot = &p->slots[pg->slot];
	slot->held--;
	slot->free_at = point;
	// the last release frees the slot, whichever visit it is of
	if (slot->held || p->next_visit <= pg->last || !p->m->async)
		return 0;
	// the slot's next page; after its last one, its first of the next sweep
	next = pg->stream_index + p->n_slots;
	if (next >= p->n_streamed)
		next = pg->slot;
	if (p->streamed[next] == slot->page)
		return 0;
	return load(p, slot, p->streamed[next], p->copies, err);
}

static int32_t step_end(struct genai_pager *p, struct genai_stream *stream,
			struct genai_point *out_tail, struct genai_error *err)
{
	(void)stream;
	if (!p->in_step || p->next_visit != p->n_sweep)
		return PAGER_FAIL(p, err, GENAI_E_STATE,
				  "step ended after %u of %u visits",
				  p->next_visit, p->n_sweep);
	for (uint32_t i = 0; i < p->n_sweep; i++)
		if (p->held[i])
			return PAGER_FAIL(p, err, GENAI_E_STATE,
					  "step ended with visit %u held", i);
	*out_tail = p->m->async ? p->tail : (struct genai_point){NULL, 0};
	if (p->recording && p->n_slots) { // R3
		memcpy(p->slots, p->saved, p->n_slots * sizeof(*p->saved));
		p->tail = p->saved_tail;
	}
	p->in_step = false;
	return 0;
}

static int32_t reset(struct genai_pager *p, const struct genai_ticket *ticket,
		     struct genai_error *err)
{
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	int32_t rc =
		p->m->host->ticket_check(p->m->host->ctx, ticket, all, err);

	if (rc)
		return rc;
	p->in_step = false;
	p->primed = false;
	memset(p->held, 0, p->n_sweep);
	for (uint32_t i = 0; i < p->n_slots; i++) {
		p->slots[i].page = GENAI_NONE;
		p->slots[i].held = 0;
		p->slots[i].ready = p->slots[i].free_at =
			(struct genai_point){NULL, 0};
	}
	p->tail = (struct genai_point){NULL, 0};
	pager_experts_reset(p);
	return 0;
}

// A recorded step finds the ring as the step before left it: its copies are on
// a stream that only the pager knows.
static int32_t replay_begin(struct genai_pager *p, struct genai_stream *stream,
			    struct genai_error *err)
{
	int32_t rc = 0;

	if (!p->sealed || p->in_step)
		return PAGER_FAIL(p, err, GENAI_E_STATE,
				  p->sealed ? "replay_begin inside a step"
					    : "replay_begin before seal");
	if (!p->primed)
		rc = prime(p, err);
	if (!rc) // R2
		rc = p->stream.ops->wait(p->stream.self, stream, p->tail, err);
	return rc ? rc : pager_experts_turn(p, stream, err);
}

static int32_t resident(struct genai_pager *p, uint32_t visit,
			uint32_t *out_kind, struct genai_error *err)
{
	if (!p->sealed)
		return PAGER_FAIL(p, err, GENAI_E_STATE,
				  "resident before seal");
	if (visit >= p->n_sweep)
		return PAGER_FAIL(p, err, GENAI_E_INVAL,
				  "visit %u of %u is asked about", visit,
				  p->n_sweep);
	*out_kind = kind_of(&p->pages[p->sweep[visit].page]);
	return 0;
}

static int32_t stats(struct genai_pager *p, struct genai_pager_stats *out,
		     struct genai_error *err)
{
	(void)err;
	pager_experts_stats(p);
	genai_struct_give(out, &p->stats);
	return 0;
}

const struct genai_pager_ops pager_table = {
	.size = sizeof(struct genai_pager_ops),
	.version = 1,
	.caps = caps,
	.open = pager_open,
	.close = pager_close,
	.add = pager_add,
	.seal = seal,
	.step_begin = step_begin,
	.acquire = acquire,
	.release = release,
	.step_end = step_end,
	.reset = reset,
	.stats = stats,
	.replay_begin = replay_begin,
	.resident = resident,
	.plan = plan,
	.experts = pager_experts_of,
};
