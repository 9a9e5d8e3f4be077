// reader_pager.c - an asynchronous pager in one file: threads of its own read
// pages while kernels run.
//
// Pages are pinned on the device, read in place, or go through a ring of slots.
// A page on its way passes a staging buffer.  A unit of work on one of the
// reader streams asks that stream's thread for it and stays open; the thread
// reads, from the file by pread if the extent names one and from memory if not,
// and signals that it is there, or why it is not; a copy on the copy stream
// takes it to its slot.  Nobody waits: a step is enqueued before the first page
// was read.  On a device without units that are signalled the unit itself
// reads.  Three kinds of streams wait for each other in turn:
//
//	reader  waits for the copy that last left its staging buffer
//	copy    waits for the reader, and for the kernels that used the slot
//	kernels wait for the copy
//
// A step begins and ends with nothing in the ring, so that it can be recorded.
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <genai/pager.h>

#define ALIGN 256u
#define SLOTS 4u   // of the ring
#define READERS 2u // each with a staging buffer

struct module {
	const struct genai_host *host;
	uint64_t page_bytes; // 0: auto
};

enum placement { PINNED, STREAMED, IN_PLACE };

struct page {
	struct genai_pager *pager;
	uint64_t bytes, at; // at: in the host copy, if it has one
	uint32_t index, flags, n_extents;
	struct genai_extent *extents;
	enum placement placement;
	genai_addr addr;      // on the device; of its slot if it is streamed
	uint32_t turn;	      // STREAMED: the so many-th of the sweep
	uint32_t first, last; // its visits in the sweep
	uint32_t held;	      // visits held now
	struct genai_point ready;
	int32_t loaded; // in this step
};

// A stream, and the thread that reads for it: one page at a time, since each
// waits for the copy that empties the staging buffer.
struct reader {
	struct genai_pager *pager;
	struct genai_stream *stream;
	void *thread;
	pthread_mutex_t lock; // the rest
	pthread_cond_t asked;
	const struct page *page; // to be read, to
	char *dst;
	int32_t stop;
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
	int32_t is_sealed, in_step, recording;
	uint32_t *turns; // the streamed pages in the order of the sweep
	uint32_t n_turns, slots;
	// host copy of what is read in place or computed; pinned pages and the
	// ring; staging
	struct genai_mem copy, device, staging;
	struct reader readers[READERS];
	struct genai_stream *copies;
	int32_t has_signal; // the device
	struct genai_point
		left[READERS]; // when its staging buffer was last left
	struct genai_point kept[READERS]; // before a recording
	struct genai_point began;	  // of the step
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
	struct module *m = self;
	struct genai_pager_caps c = {.size = sizeof(c),
				     .flags = GENAI_PAGER_CAP_STABLE |
					      GENAI_PAGER_CAP_IN_PLACE |
					      GENAI_PAGER_CAP_ASYNC,
				     .page_bytes = m->page_bytes};

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
	struct genai_stream_caps device = {.size = sizeof(device)};
	int32_t rc;

	if (!p)
		return m->host->error_set(m->host->ctx, err, GENAI_E_NOMEM,
					  "no memory for a pager");
	memset(p, 0, sizeof(*p));
	p->m = m;
	p->stream = *stream;
	p->barrier = *barrier;
	p->stats.size = sizeof(p->stats);
	rc = stream->ops->caps(stream->self, &device, err);
	if (rc) {
		give(p, p);
		return rc;
	}
	p->has_signal = device.flags & GENAI_STREAM_CAP_SIGNAL ? 1 : 0;
	for (uint32_t i = 0; i < READERS; i++) {
		p->readers[i].pager = p;
		pthread_mutex_init(&p->readers[i].lock, NULL);
		pthread_cond_init(&p->readers[i].asked, NULL);
	}
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
	more->index = p->n_pages;
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

// Without a ring there has to be room for everything, or it is read in place.
static uint32_t ring_slots(uint64_t slot, uint64_t total, uint64_t budget)
{
	uint32_t n = slot && budget < total ? SLOTS : 0;

	while (n && n * slot > budget)
		n--;
	return n < 2 ? 0 : n; // a page and the next one are held at once
}

static uint64_t kept_bytes(const struct page *pg)
{
	uint64_t n = 0;

	if (pg->placement == IN_PLACE)
		return up(pg->bytes);
	for (uint32_t k = 0; k < pg->n_extents; k++)
		if (pg->placement == STREAMED && pg->extents[k].fill)
			n += up(pg->extents[k].bytes);
	return n;
}

// Pinned as long as the budget lasts, the ring's share set aside; the rest is
// streamed if there is a ring.  Gives the bytes of device memory.
static uint64_t choose(struct genai_pager *p, uint64_t budget)
{
	struct genai_pager_report *r = &p->report;
	uint64_t total = 0, slot = 0, ring;

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
	p->slots = ring_slots(slot, total, budget);
	ring = p->slots * slot;
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
		pg->at = r->host_bytes;
		r->host_bytes += kept_bytes(pg);
	}
	if (!r->n_streamed) {
		p->slots = 0;
		return r->pinned_bytes;
	}
	r->ring_bytes = ring;
	r->ring_slots = p->slots;
	r->slot_bytes = slot;
	return r->pinned_bytes + ring;
}

// Who comes through the ring when.
static int32_t take_turns(struct genai_pager *p, struct genai_error *err)
{
	give(p, p->turns);
	p->n_turns = 0;
	p->turns = take(p, (p->n_pages + UINT64_C(1)) * sizeof(*p->turns));
	if (!p->turns)
		return FAIL(p, err, GENAI_E_NOMEM, "no memory for the ring");
	for (uint32_t i = 0; i < p->n_visits; i++) {
		struct page *pg = &p->pages[p->sweep[i].page];

		if (pg->placement != STREAMED || pg->first != i)
			continue;
		pg->turn = p->n_turns;
		p->turns[p->n_turns++] = pg->index;
	}
	for (uint32_t i = 0; i < p->n_pages; i++) {
		struct page *pg = &p->pages[i];

		pg->pager = p;
		if (pg->placement == PINNED)
			pg->addr += p->device.range.addr;
		else if (pg->placement == STREAMED)
			pg->addr = p->device.range.addr +
				   p->report.pinned_bytes +
				   pg->turn % p->slots * p->report.slot_bytes;
		else
			pg->addr = p->copy.range.addr + pg->at;
	}
	return 0;
}

// ---- reading ----

static int32_t read_extent(const struct genai_pager *p,
			   const struct genai_extent *e, char *dst,
			   struct genai_error *err)
{
	uint64_t at = 0;

	while (e->file && at < e->bytes) {
		ssize_t n = pread((int)e->file, dst + at, e->bytes - at,
				  (off_t)(e->file_offset + at));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return FAIL(p, err, GENAI_E_IO,
				    "cannot read %llu bytes from byte %llu of "
				    "a file (errno %d)",
				    (unsigned long long)(e->bytes - at),
				    (unsigned long long)(e->file_offset + at),
				    n ? errno : 0);
		at += (uint64_t)n;
	}
	if (!e->file)
		memcpy(dst, e->src, e->bytes);
	return 0;
}

// What fill makes is kept behind one another, from at on.
static int32_t read_page(const struct page *pg, char *dst, int32_t fill,
			 struct genai_error *err)
{
	const struct genai_pager *p = pg->pager;
	char *kept = (char *)p->copy.host + pg->at;
	int32_t rc = 0;

	for (uint32_t k = 0; !rc && k < pg->n_extents; k++) {
		const struct genai_extent *e = &pg->extents[k];

		if (!e->fill) {
			rc = read_extent(p, e, dst + e->place, err);
		} else if (fill) {
			e->fill(e->ctx, dst + e->place, e->bytes, e->src,
				e->src_bytes);
		} else {
			memcpy(dst + e->place, kept, e->bytes);
			kept += up(e->bytes);
		}
	}
	return rc;
}

static int32_t read_unit(void *ctx, void *const *mem, struct genai_error *err)
{
	return read_page(ctx, mem[0], 0, err);
}

// The unit stays open: the page's thread signals.
static int32_t ask_unit(void *ctx, void *const *mem, struct genai_error *err)
{
	const struct page *pg = ctx;
	struct reader *r = &pg->pager->readers[pg->turn % READERS];

	(void)err;
	pthread_mutex_lock(&r->lock);
	r->page = pg;
	r->dst = mem[0];
	pthread_cond_signal(&r->asked);
	pthread_mutex_unlock(&r->lock);
	return GENAI_PENDING;
}

// Every page that was asked for is signalled, read or not: whoever forgets one
// stops the stream for ever.
static void read_for_stream(void *arg)
{
	struct reader *r = arg;
	const struct genai_stream_api *st = &r->pager->stream;

	for (;;) {
		struct genai_error why = GENAI_ERROR_INIT;
		const struct page *pg;
		int32_t rc;

		pthread_mutex_lock(&r->lock);
		while (!r->page && !r->stop)
			pthread_cond_wait(&r->asked, &r->lock);
		pg = r->page;
		r->page = NULL;
		pthread_mutex_unlock(&r->lock);
		if (!pg)
			return;
		rc = read_page(pg, r->dst, 0, &why);
		st->ops->signal(st->self, pg, rc ? &why : NULL, NULL);
	}
}

static int32_t reader_start(struct genai_pager *p, struct reader *r,
			    struct genai_error *err)
{
	const struct genai_host *h = p->m->host;
	int32_t rc = p->stream.ops->create(p->stream.self, "pager reads",
					   &r->stream, err);

	if (rc || !p->has_signal)
		return rc;
	r->stop = 0;
	rc = h->thread_create(h->ctx, "reader", read_for_stream, r,
			      &r->thread);
	return rc ? FAIL(p, err, rc, "no thread to read pages") : 0;
}

// Nothing is asked of it any more: its stream is idle.
static int32_t reader_stop(struct genai_pager *p, struct reader *r,
			   struct genai_error *err)
{
	int32_t rc = 0;

	if (r->thread) {
		pthread_mutex_lock(&r->lock);
		r->stop = 1;
		pthread_cond_signal(&r->asked);
		pthread_mutex_unlock(&r->lock);
		p->m->host->thread_join(p->m->host->ctx, r->thread);
		r->thread = NULL;
	}
	if (r->stream)
		rc = p->stream.ops->destroy(p->stream.self, r->stream, err);
	if (!rc)
		r->stream = NULL;
	return rc;
}

// What is read in place, and what streamed pages have computed.
static int32_t keep(struct genai_pager *p, struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < p->n_pages; i++) {
		const struct page *pg = &p->pages[i];
		char *kept = (char *)p->copy.host + pg->at;

		if (pg->placement == IN_PLACE)
			rc = read_page(pg, kept, 1, err);
		for (uint32_t k = 0;
		     pg->placement == STREAMED && k < pg->n_extents; k++) {
			const struct genai_extent *e = &pg->extents[k];

			if (!e->fill)
				continue;
			e->fill(e->ctx, kept, e->bytes, e->src, e->src_bytes);
			kept += up(e->bytes);
		}
	}
	return rc;
}

// Pinned pages pass one buffer that goes again.
static int32_t load_pinned(struct genai_pager *p, struct genai_error *err)
{
	const struct genai_stream_ops *st = p->stream.ops;
	void *self = p->stream.self;
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	struct genai_mem buffer = {.size = sizeof(buffer)};
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	struct genai_point done;
	uint64_t most = 0;
	int32_t rc = 0, rc2 = 0;

	for (uint32_t i = 0; i < p->n_pages; i++)
		if (p->pages[i].placement == PINNED && most < p->pages[i].bytes)
			most = p->pages[i].bytes;
	if (!most)
		return 0;
	rc = st->alloc(self, GENAI_MEM_HOST_PINNED, most, GENAI_TAG_STAGING,
		       &buffer, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; !rc && i < p->n_pages; i++) {
		const struct page *pg = &p->pages[i];

		if (pg->placement != PINNED)
			continue;
		rc = read_page(pg, buffer.host, 1, err);
		if (!rc)
			rc = st->copy(self, p->copies, pg->addr,
				      (uintptr_t)buffer.host, pg->bytes,
				      GENAI_COPY_H2D, err);
		if (!rc)
			rc = st->mark(self, p->copies, &done, err);
		if (!rc)
			rc = p->barrier.ops->host_read(p->barrier.self, &done,
						       1, UINT64_MAX, err);
		p->stats.copies++;
		p->stats.copy_bytes += pg->bytes;
	}
	rc2 = p->barrier.ops->drain(p->barrier.self, all, UINT64_MAX, &ticket,
				    rc ? NULL : err);
	if (!rc2)
		rc2 = st->free(self, buffer.range.addr, &ticket,
			       rc ? NULL : err);
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
	const struct genai_stream_ops *st = p->stream.ops;
	int32_t rc = give_mem(p, &p->device, ticket, err);

	if (!rc)
		rc = give_mem(p, &p->copy, ticket, err);
	if (!rc)
		rc = give_mem(p, &p->staging, ticket, err);
	for (uint32_t i = 0; !rc && i < READERS; i++)
		rc = reader_stop(p, &p->readers[i], err);
	if (!rc && p->copies)
		rc = st->destroy(p->stream.self, p->copies, err);
	if (!rc)
		p->copies = NULL;
	return rc;
}

static int32_t take_all(struct genai_pager *p, uint64_t device,
			struct genai_error *err)
{
	const struct genai_stream_ops *st = p->stream.ops;
	uint64_t staging = p->slots ? READERS * p->report.slot_bytes : 0;
	void *self = p->stream.self;
	int32_t rc = st->create(self, "pager copies", &p->copies, err);

	for (uint32_t i = 0; !rc && p->slots && i < READERS; i++)
		rc = reader_start(p, &p->readers[i], err);
	if (!rc && p->report.host_bytes)
		rc = st->alloc(self, GENAI_MEM_HOST_PINNED,
			       p->report.host_bytes, GENAI_TAG_STAGING,
			       &p->copy, err);
	if (!rc && staging)
		rc = st->alloc(self, GENAI_MEM_HOST_PINNED, staging,
			       GENAI_TAG_STAGING, &p->staging, err);
	if (!rc && device)
		rc = st->alloc(self, GENAI_MEM_DEVICE, device,
			       GENAI_TAG_WEIGHTS, &p->device, err);
	return rc;
}

static int32_t seal(struct genai_pager *p,
		    const struct genai_sweep_visit *sweep, uint32_t n,
		    uint64_t budget, struct genai_pager_report *out,
		    struct genai_error *err)
{
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	int32_t rc;

	if (p->is_sealed)
		return FAIL(p, err, GENAI_E_STATE, "sealed twice");
	rc = take_sweep(p, sweep, n, err);
	if (rc)
		return rc;
	rc = take_all(p, choose(p, budget), err);
	if (!rc)
		rc = take_turns(p, err);
	if (!rc)
		rc = keep(p, err);
	if (!rc)
		rc = load_pinned(p, err);
	if (rc) {
		// as before seal
		if (!p->barrier.ops->drain(p->barrier.self, all, UINT64_MAX,
					   &ticket, NULL))
			unplace(p, &ticket, NULL);
		return rc;
	}
	p->report.host_bytes += p->staging.range.bytes;
	p->is_sealed = 1;
	genai_struct_give(out, &p->report);
	return 0;
}

// ---- steps ----

// Send the page on its way: into a staging buffer, and from there to its slot.
static int32_t load(struct genai_pager *p, struct page *pg,
		    struct genai_error *err)
{
	const struct genai_stream_ops *st = p->stream.ops;
	void *self = p->stream.self;
	uint32_t turn = pg->turn % READERS;
	uint64_t at = turn * p->report.slot_bytes;
	struct genai_stream *reader = p->readers[turn].stream;
	struct genai_access a = {p->staging.range.addr + at, pg->bytes,
				 GENAI_WRITE, 0};
	struct genai_work w = {sizeof(w), GENAI_NONE, "read a page",
			       p->has_signal ? ask_unit : read_unit, pg};
	struct genai_point read;
	int32_t rc = st->wait(self, reader, p->began, err);

	if (!rc)
		rc = st->wait(self, reader, p->left[turn], err);
	if (!rc)
		rc = (p->has_signal ? st->launch_open : st->launch_host)(
			self, reader, &w, &a, 1, err);
	if (!rc)
		rc = st->mark(self, reader, &read, err);
	if (!rc)
		rc = st->wait(self, p->copies, read, err);
	if (!rc)
		rc = st->copy(self, p->copies, pg->addr,
			      (uintptr_t)p->staging.host + at, pg->bytes,
			      GENAI_COPY_H2D, err);
	if (!rc)
		rc = st->mark(self, p->copies, &pg->ready, err);
	if (rc)
		return rc;
	p->left[turn] = pg->ready;
	p->stats.copies++;
	p->stats.copy_bytes += pg->bytes;
	pg->loaded = 1;
	return 0;
}

// Everything before the step comes before its reads and copies.  What a
// recording knows of time ends with it.
static int32_t step_begin(struct genai_pager *p, struct genai_stream *stream,
			  int32_t recording, struct genai_error *err)
{
	const struct genai_stream_ops *st = p->stream.ops;
	int32_t rc = 0;

	if (!p->is_sealed || p->in_step)
		return FAIL(p, err, GENAI_E_STATE,
			    "step_begin before seal or inside a step");
	p->in_step = 1;
	p->recording = recording;
	p->next = 0;
	p->stats.steps++;
	memcpy(p->kept, p->left, sizeof(p->kept));
	if (recording)
		memset(p->left, 0, sizeof(p->left));
	for (uint32_t i = 0; i < p->n_pages; i++)
		p->pages[i].loaded = 0;
	if (!p->slots)
		return 0;
	rc = st->mark(p->stream.self, stream, &p->began, err);
	if (!rc)
		rc = st->wait(p->stream.self, p->copies, p->began, err);
	for (uint32_t i = 0; !rc && i < p->slots && i < p->n_turns; i++)
		rc = load(p, &p->pages[p->turns[i]], err);
	return rc;
}

static int32_t acquire(struct genai_pager *p, uint32_t visit,
		       struct genai_stream *stream,
		       struct genai_place *out_place,
		       struct genai_point *out_ready, struct genai_error *err)
{
	struct page *pg;

	(void)stream;
	if (!p->in_step || visit != p->next || visit >= p->n_visits)
		return FAIL(p, err, GENAI_E_STATE,
			    "visit %u acquired, %u is next", visit, p->next);
	pg = &p->pages[p->sweep[visit].page];
	if (pg->placement == STREAMED && !pg->loaded)
		return FAIL(p, err, GENAI_E_STATE,
			    "visit %u: its slot is still held", visit);
	out_place->size = sizeof(*out_place);
	out_place->kind = pg->placement == IN_PLACE ? GENAI_PLACE_IN_PLACE
						    : GENAI_PLACE_DEVICE;
	out_place->addr = pg->addr + p->sweep[visit].offset;
	*out_ready = pg->placement == STREAMED ? pg->ready
					       : (struct genai_point){NULL, 0};
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
	int32_t rc;

	if (!p->in_step || visit >= p->n_visits || !p->held[visit])
		return FAIL(p, err, GENAI_E_STATE, "visit %u is not held",
			    visit);
	pg = &p->pages[p->sweep[visit].page];
	p->held[visit] = 0;
	pg->held--;
	if (pg->placement != STREAMED)
		return 0;
	// whatever is copied from here on may be copied over it
	rc = p->stream.ops->wait(p->stream.self, p->copies, point, err);
	if (rc || pg->held || p->next <= pg->last ||
	    pg->turn + p->slots >= p->n_turns)
		return rc;
	return load(p, &p->pages[p->turns[pg->turn + p->slots]], err);
}

// Every reader's last unit has a copy after it: the last copy is the tail.
static int32_t step_end(struct genai_pager *p, struct genai_stream *stream,
			struct genai_point *out_tail, struct genai_error *err)
{
	struct genai_point tail = {NULL, 0};
	int32_t rc = 0;

	(void)stream;
	if (!p->in_step || p->next != p->n_visits)
		return FAIL(p, err, GENAI_E_STATE,
			    "step ended after %u of %u visits", p->next,
			    p->n_visits);
	for (uint32_t i = 0; i < p->n_pages; i++)
		if (p->pages[i].held)
			return FAIL(p, err, GENAI_E_STATE,
				    "step ended while page %u is held", i);
	if (p->slots)
		rc = p->stream.ops->mark(p->stream.self, p->copies, &tail, err);
	if (rc)
		return rc;
	if (p->recording)
		memcpy(p->left, p->kept, sizeof(p->left));
	p->in_step = 0;
	*out_tail = tail;
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
	memset(p->left, 0, sizeof(p->left));
	if (p->held)
		memset(p->held, 0, p->n_visits);
	return 0;
}

// A step finds nothing of the one before but its last copies.
static int32_t replay_begin(struct genai_pager *p, struct genai_stream *stream,
			    struct genai_error *err)
{
	struct genai_point tail = {NULL, 0};
	int32_t rc = 0;

	if (!p->is_sealed || p->in_step)
		return FAIL(p, err, GENAI_E_STATE,
			    "replay_begin before seal or inside a step");
	if (p->slots)
		rc = p->stream.ops->mark(p->stream.self, p->copies, &tail, err);
	return rc ? rc : p->stream.ops->wait(p->stream.self, stream, tail, err);
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
	give(p, p->turns);
	for (uint32_t i = 0; i < READERS; i++) {
		pthread_cond_destroy(&p->readers[i].asked);
		pthread_mutex_destroy(&p->readers[i].lock);
	}
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
	m->page_bytes = 0;
	host->config_get_u64(host->ctx, "page_bytes", &m->page_bytes);
	*out_self = m;
	return 0;
}

static void fini(void *self)
{
	struct module *m = self;

	m->host->free(m->host->ctx, m);
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_PAGER, "reader_pager", 1, 0, &table},
};

// The core asks for it: caps.
static const struct genai_config_key keys[] = {
	{"page_bytes", "auto", GENAI_KEY_BYTES, 0, NULL,
	 "size of a page; auto: by the budget"},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = 1,
	.name = "reader_pager",
	.version = "1.0",
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
	.keys = keys,
	.n_keys = 1,
};

GENAI_MODULE_QUERY(block)
