// ring_place.c - pages of mutant_ring: described, placed, copied.
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/mutants/ring.h"

static uint64_t up(uint64_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

// ---- describing ----

int32_t ring_caps(void *self, struct genai_pager_caps *out,
		  struct genai_error *err)
{
	static const struct genai_pager_caps c = {
		.size = sizeof(c),
		.flags = GENAI_PAGER_CAP_STABLE | GENAI_PAGER_CAP_IN_PLACE |
			 GENAI_PAGER_CAP_ASYNC};

	(void)self;
	(void)err;
	genai_struct_give(out, &c);
	return 0;
}

void *ring_sleep(void *arg)
{
	for (;;)
		pause();
	return arg;
}

// What an open leaves behind.
static void leak(struct genai_pager *p)
{
	struct genai_mem mem = {.size = sizeof(mem)};
	static unsigned char some[64][4096] __attribute__((aligned(4096)));
	static uint32_t n_some;
	struct genai_stream *s;
	pthread_t t;

	if (is("open-descriptor"))
		(void)open("/dev/null", O_RDONLY);
	if (is("open-thread"))
		pthread_create(&t, NULL, ring_sleep, NULL);
	if (is("open-malloc"))
		mutant_leak(4000);
	if (is("open-stream"))
		p->stream.ops->create(p->stream.self, "left", &s, NULL);
	if (is("open-device"))
		p->stream.ops->alloc(p->stream.self, GENAI_MEM_DEVICE, 64,
				     "left", &mem, NULL);
	if (is("open-pinned"))
		p->stream.ops->alloc(p->stream.self, GENAI_MEM_HOST_PINNED, 64,
				     "left", &mem, NULL);
	if (is("open-registered") && n_some < 64)
		p->stream.ops->host_register(p->stream.self, some[n_some++],
					     4096, &mem, NULL);
	if (is("open-host"))
		ring_take(p, 64);
}

static uint32_t n_opened; // in the process

int32_t ring_open(void *self, const struct genai_stream_api *stream,
		  const struct genai_barrier_api *barrier,
		  struct genai_pager **out_pager, struct genai_error *err)
{
	struct module *m = self;
	struct genai_pager *p =
		m->host->alloc(m->host->ctx, sizeof(*p), "ring");
	int32_t rc;

	mutant_manners("open");
	if (!p)
		return m->host->error_set(m->host->ctx, err, GENAI_E_NOMEM,
					  "no memory for a pager");
	memset(p, 0, sizeof(*p));
	p->m = m;
	p->nth = ++n_opened;
	p->by = pthread_self();
	p->stream = *stream;
	p->barrier = *barrier;
	p->stats.size = sizeof(p->stats);
	rc = stream->ops->create(stream->self, "ring", &p->own, err);
	if (rc) {
		m->host->free(m->host->ctx, p);
		return rc;
	}
	leak(p);
	*out_pager = p;
	return 0;
}

static int32_t check_extents(struct genai_pager *p, uint64_t bytes,
			     const struct genai_extent *e, uint32_t n,
			     struct genai_error *err)
{
	uint64_t align = is("places-256") ? 256 : 16;

	for (uint32_t i = 0; i < n; i++) {
		if (is("place-24-bits") && e[i].place >> 24)
			return FAIL(p, err, GENAI_E_INVAL, "far off");
		if (is("file-31-bits") && e[i].file_offset > INT32_MAX)
			return FAIL(p, err, GENAI_E_INVAL, "far off");
		if (e[i].place % align || !e[i].src || !e[i].bytes ||
		    e[i].bytes > bytes || e[i].place > bytes - e[i].bytes ||
		    (!e[i].fill && e[i].src_bytes != e[i].bytes))
			return FAIL(p, err, GENAI_E_INVAL,
				    "page %u: extent %u is not sound",
				    p->n_pages, i);
		if (is("extents-sorted") && i && e[i].place < e[i - 1].place)
			return FAIL(p, err, GENAI_E_INVAL,
				    "page %u: extents out of order",
				    p->n_pages);
		for (uint32_t k = 0; k < i; k++)
			if (e[k].place < e[i].place + e[i].bytes &&
			    e[i].place < e[k].place + e[k].bytes)
				return FAIL(p, err, GENAI_E_INVAL,
					    "page %u: extents overlap",
					    p->n_pages);
	}
	return 0;
}

int32_t ring_add(struct genai_pager *p, uint64_t bytes, uint32_t flags,
		 const struct genai_extent *extents, uint32_t n,
		 struct genai_error *err)
{
	struct page *more;
	int32_t rc;

	if (p->is_sealed)
		return FAIL(p, err, GENAI_E_STATE, "add after seal");
	if (is("page-flag-31"))
		flags &= ~(1u << 31);
	if (flags & ~GENAI_PAGE_NO_STREAM)
		return FAIL(p, err, GENAI_E_UNSUPPORTED, "page flags %#x",
			    flags);
	if (!bytes || !n || (is("pages-100") && p->n_pages == 100) ||
	    (is("page-16mb") && bytes > 4 << 20))
		return FAIL(p, err, GENAI_E_INVAL, "page %u: cannot",
			    p->n_pages);
	rc = check_extents(p, bytes, extents, n, err);
	if (rc && is("add-refused-leaks"))
		ring_take(p, 64);
	if (rc && is("add-refused-malloc"))
		mutant_leak(64);
	if (rc)
		return rc;
	more = ring_host(p)->realloc(ring_host(p)->ctx, p->pages,
				     (p->n_pages + UINT64_C(1)) * sizeof(*more),
				     "ring");
	if (!more)
		return FAIL(p, err, GENAI_E_NOMEM, "no memory for a page");
	p->pages = more;
	more += p->n_pages;
	memset(more, 0, sizeof(*more));
	more->extents = ring_take(p, n * sizeof(*extents));
	if (!more->extents)
		return FAIL(p, err, GENAI_E_NOMEM, "no memory for a page");
	memcpy(more->extents, extents, n * sizeof(*extents));
	more->bytes = bytes;
	more->flags = flags;
	more->n_extents = is("extents-4") && n > 4     ? 4
			  : is("extents-16") && n > 16 ? 16
						       : n;
	p->n_pages++;
	return 0;
}

// ---- placing ----

static int32_t take_sweep(struct genai_pager *p,
			  const struct genai_sweep_visit *sweep, uint32_t n,
			  struct genai_error *err)
{
	uint32_t last = GENAI_NONE;

	for (uint32_t i = 0; i < p->n_pages; i++)
		p->pages[i].first = GENAI_NONE;
	for (uint32_t i = 0; i < n; i++) {
		struct page *pg;

		if (sweep[i].flags &&
		    !(is("visit-flag-31") && sweep[i].flags == 1u << 31))
			return FAIL(p, err, GENAI_E_UNSUPPORTED,
				    "visit %u: flags %#x", i, sweep[i].flags);
		if (sweep[i].page >= p->n_pages)
			return FAIL(p, err, GENAI_E_INVAL, "visit %u: no page",
				    i);
		pg = &p->pages[sweep[i].page];
		if (sweep[i].offset > pg->bytes ||
		    sweep[i].bytes > pg->bytes - sweep[i].offset ||
		    (is("visits-none") && !sweep[i].bytes) ||
		    (is("visits-256") && i > 256))
			return FAIL(p, err, GENAI_E_INVAL,
				    "visit %u is not inside a page", i);
		if (pg->flags & GENAI_PAGE_NO_STREAM &&
		    !is("no-stream-streams")) {
			if (is("visits-between"))
				last = sweep[i].page;
			continue;
		}
		if (pg->first != GENAI_NONE && last != sweep[i].page)
			return FAIL(p, err, GENAI_E_INVAL,
				    "the visits of page %u are not consecutive",
				    sweep[i].page);
		last = sweep[i].page;
		if (pg->first == GENAI_NONE)
			pg->first = i;
		pg->last = i;
	}
	ring_give(p, p->sweep);
	ring_give(p, p->held);
	ring_give(p, p->streamed);
	p->sweep = ring_take(p, n * sizeof(*sweep) + 1);
	p->held = ring_take(p, n + UINT64_C(1));
	p->streamed = ring_take(p, (n + UINT64_C(1)) * sizeof(*p->streamed));
	if (!p->sweep || !p->held || !p->streamed)
		return FAIL(p, err, GENAI_E_NOMEM, "no memory for the sweep");
	memcpy(p->sweep, sweep, n * sizeof(*sweep));
	p->n_visits = n;
	return 0;
}

static void number_streamed(struct genai_pager *p)
{
	p->n_streamed = 0;
	for (uint32_t i = 0; i < p->n_visits; i++) {
		struct page *pg = &p->pages[p->sweep[i].page];

		if (pg->placement != STREAMED || pg->first != i)
			continue;
		pg->index = p->n_streamed;
		p->streamed[p->n_streamed++] = p->sweep[i].page;
	}
	if (!is("order-of-pages"))
		return;
	p->n_streamed = 0;
	for (uint32_t i = 0; i < p->n_pages; i++) {
		struct page *pg = &p->pages[i];

		if (pg->placement != STREAMED || pg->first == GENAI_NONE)
			continue;
		pg->index = p->n_streamed;
		p->streamed[p->n_streamed++] = i;
	}
}

static uint64_t choose(struct genai_pager *p, uint64_t budget)
{
	struct genai_pager_report *r = &p->report;
	uint64_t total = 0, slot = 0, ring = 0, n = p->m->slots;

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
	if (budget < total && slot && n * slot <= budget)
		ring = n * slot;
	for (uint32_t i = 0; i < p->n_pages; i++) {
		struct page *pg = &p->pages[i];
		bool may = !(pg->flags & GENAI_PAGE_NO_STREAM) ||
			   is("no-stream-streams");

		if (up(pg->bytes) <=
		    budget - ring - r->pinned_bytes +
			    (is("budget-255") && budget < 1 << 30 ? 255 : 0)) {
			pg->placement = PINNED;
			pg->addr = r->pinned_bytes;
			r->pinned_bytes += up(pg->bytes);
		} else if (ring && may && pg->first != GENAI_NONE) {
			pg->placement = STREAMED;
			r->n_streamed++;
			r->streamed_bytes += pg->bytes;
		} else {
			pg->placement = IN_PLACE;
			r->in_place_bytes += pg->bytes;
		}
	}
	number_streamed(p);
	if (r->n_streamed) {
		r->ring_bytes = ring;
		r->ring_slots = (uint32_t)n;
		r->slot_bytes = slot;
	}
	if (is("report-host"))
		r->host_bytes = 0;
	if (is("report-slot-bytes"))
		r->slot_bytes += 256;
	if (is("report-slots") && r->ring_slots)
		r->ring_bytes -= r->slot_bytes;
	if (is("report-streamed") && r->n_streamed)
		r->n_streamed--;
	if (is("report-in-place"))
		r->in_place_bytes = 0;
	if (is("report-total"))
		r->total_bytes = total;
	if (is("report-streamed-bytes"))
		r->streamed_bytes /= 2;
	if (is("report-pages"))
		r->n_pages = p->n_visits;
	p->n_slots =
		r->ring_slots < p->n_streamed ? r->ring_slots : p->n_streamed;
	return r->pinned_bytes + r->ring_bytes;
}

static void peek(const void *at)
{
	(void)*(const volatile char *)at;
}

// Until the process ends.
static const char *read_file(const struct genai_extent *e, uint64_t at)
{
	char *to = malloc(e->src_bytes);

	if (!to || pread((int)e->file, to, e->src_bytes, (off_t)at) < 0)
		abort();
	return to;
}

// Bytes of an extent into the host copy.
static void copy_extent(const struct page *pg, uint32_t k, char *page,
			uint64_t packed)
{
	const struct genai_extent *e = &pg->extents[k];
	const char *src = e->src;
	uint64_t bytes = e->bytes;
	char *dst = page + e->place;

	if (e->file && is("file-read-31"))
		src = read_file(e, e->file_offset & INT32_MAX);
	else if (e->file && is("file-read-32"))
		src = read_file(e, e->file_offset & UINT32_MAX);
	else if (e->file && is("file-unbuffered"))
		src = read_file(e, e->file_offset & ~UINT64_C(511));
	for (uint32_t i = 0; is("source-cached") && i < k; i++)
		if (pg->extents[i].src == e->src &&
		    pg->extents[i].bytes < bytes)
			bytes = pg->extents[i].bytes;
	for (uint32_t i = 0; is("fill-cached") && i < k; i++)
		if (e->fill && pg->extents[i].fill == e->fill &&
		    pg->extents[i].ctx == e->ctx &&
		    pg->extents[i].bytes == bytes) {
			memcpy(dst, page + pg->extents[i].place, bytes);
			return;
		}

	if (is("gaps-closed"))
		dst = page + packed;
	if (is("from-zero"))
		dst -= pg->extents[0].place < e->place ? pg->extents[0].place
						       : 0;
	if (e->fill) {
		e->fill(is("fill-ctx") ? pg->extents[0].ctx : e->ctx, dst,
			is("fill-rounds") ? (bytes + 15) / 16 * 16 : bytes, src,
			is("fill-source") ? bytes : e->src_bytes);
		return;
	}
	if (is("reads-on"))
		peek(src + bytes);
	if (is("reads-on-64"))
		peek(src + (bytes - 1) / 64 * 64 + 63);
	if (is("reads-before"))
		peek(src - 1);
	if (is("writes-source"))
		*(volatile char *)(uintptr_t)src = *src;
	if (is("joins") && k + 1 < pg->n_extents && !pg->extents[k + 1].fill &&
	    pg->extents[k + 1].place > e->place &&
	    (const char *)pg->extents[k + 1].src - src ==
		    (int64_t)(pg->extents[k + 1].place - e->place))
		bytes = pg->extents[k + 1].place - e->place;
	memcpy(dst, src, bytes);
	if (is("copies-in-16") && bytes % 16)
		memset(dst + bytes / 16 * 16, 0, bytes % 16);
	if (is("first-extent") && k)
		memset(dst, 0, bytes);
}

static void make_copy(struct genai_pager *p)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < p->n_slots; i++) {
		memset(&p->slots[i], 0, sizeof(p->slots[i]));
		p->slots[i].addr = p->device.range.addr +
				   p->report.pinned_bytes +
				   i * p->report.slot_bytes;
		p->slots[i].page = GENAI_NONE;
	}
	for (uint32_t i = 0; i < p->n_pages; i++) {
		struct page *pg = &p->pages[i];
		char *dst = (char *)p->copy.host + at;
		uint64_t packed = 0;

		pg->at = at;
		at += up(pg->bytes);
		for (uint32_t k = 0; k < pg->n_extents; k++) {
			copy_extent(pg, k, dst, packed);
			packed += (pg->extents[k].bytes + 15) / 16 * 16;
		}
		if (pg->placement == PINNED)
			pg->addr += p->device.range.addr;
		else if (pg->placement == STREAMED)
			pg->addr = p->slots[pg->index % p->n_slots].addr;
		else
			pg->addr = p->copy.range.addr + pg->at;
	}
}

int32_t ring_copy_page(struct genai_pager *p, const struct page *pg,
		       genai_addr dst, struct genai_stream *s,
		       struct genai_error *err)
{
	uint64_t piece = p->m->piece ? p->m->piece : UINT64_MAX >> 9, n;
	uint64_t bytes = pg->bytes;
	int32_t rc = 0;

	if (is("piece-overflows") && !(piece = (piece + 255) / 256 * 256))
		return FAIL(p, err, GENAI_E_INVAL, "pieces of 0 bytes");
	if (is("piece-least") && piece == 256)
		bytes--;
	if ((is("page-pow2") && bytes > 512 && !(bytes & (bytes - 1))) ||
	    (is("page-65536") && bytes == 65536) ||
	    (is("page-4096") && bytes == 4096) ||
	    (is("page-odd") && bytes % 16 == 1) ||
	    (is("pager-9th") && p->nth == 9))
		bytes--;
	if (is("slot-shrinks") && pg->placement == STREAMED) {
		uint64_t n_now = bytes;

		if (p->last_bytes && bytes > 2 * p->last_bytes)
			bytes = 2 * p->last_bytes;
		p->last_bytes = n_now;
	}
	if (is("large-cut") && bytes > 2 << 20)
		bytes = 2 << 20;
	if (is("large-repeats") || is("large-forgets"))
		piece = 2 << 20;
	for (uint64_t at = 0; !rc && at < bytes; at += n) {
		const char *src = (const char *)p->copy.host + pg->at + at;

		n = bytes - at < piece ? bytes - at : piece;
		if (is("large-repeats") && at)
			src -= at;
		if (is("large-forgets") && at && n < piece)
			break;
		if (is("piece-odd") && at && n % 2)
			src--;
		if (is("copies-round") && n % 4096 && pg->placement == PINNED)
			n = (n + 4095) / 4096 * 4096;
		p->stats.copies++;
		p->stats.copy_bytes += n;
		rc = p->stream.ops->copy(p->stream.self, s, dst + at,
					 (uintptr_t)src, n, GENAI_COPY_H2D,
					 err);
	}
	return rc;
}

static int32_t load_pinned(struct genai_pager *p, struct genai_error *err)
{
	struct genai_point point = {NULL, 0};
	uint32_t last = 0, n = 0;
	int32_t rc = 0;

	if (!p->report.pinned_bytes)
		return 0;
	for (uint32_t i = 0; i < p->n_pages; i++)
		if (p->pages[i].placement == PINNED)
			last = i;
	for (uint32_t i = 0; !rc && i < p->n_pages; i++) {
		if (p->pages[i].placement != PINNED)
			continue;
		n++;
		rc = ring_copy_page(p, &p->pages[i], p->pages[i].addr, p->own,
				    err);
		if (is("seal-copy-lost") ||
		    (is("seal-copy-lost-last") && i == last) ||
		    (is("seal-copy-lost-3rd") && n == 3))
			rc = 0;
	}
	if (!rc)
		rc = p->stream.ops->mark(p->stream.self, p->own, &point, err);
	if (is("seal-mark-lost"))
		rc = 0;
	if (!rc)
		rc = p->barrier.ops->host_read(p->barrier.self, &point, 1,
					       UINT64_MAX, err);
	return is("seal-wait-lost") ? 0 : rc;
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

int32_t ring_unplace(struct genai_pager *p, const struct genai_ticket *ticket,
		     struct genai_error *err)
{
	int32_t rc = give_mem(p, &p->device, ticket, err);

	return rc ? rc : give_mem(p, &p->copy, ticket, err);
}

static int32_t take_memory(struct genai_pager *p, uint64_t bytes,
			   struct genai_error *err)
{
	int32_t rc = 0;

	if (is("seal-twice-the-budget") && bytes) {
		struct genai_mem m = {.size = sizeof(m)};

		if (!p->stream.ops->alloc(p->stream.self, GENAI_MEM_DEVICE,
					  bytes, "trial", &m, NULL))
			rc = p->stream.ops->alloc(
				p->stream.self, GENAI_MEM_DEVICE, bytes,
				GENAI_TAG_WEIGHTS, &p->device, err);
		if (m.range.bytes)
			p->stream.ops->free(p->stream.self, m.range.addr, NULL,
					    NULL);
		bytes = p->device.range.bytes ? 0 : bytes;
	}
	if (!rc && p->report.host_bytes)
		rc = p->stream.ops->alloc(p->stream.self, GENAI_MEM_HOST_PINNED,
					  p->report.host_bytes,
					  GENAI_TAG_STAGING, &p->copy, err);
	if (!rc && bytes)
		rc = p->stream.ops->alloc(p->stream.self, GENAI_MEM_DEVICE,
					  bytes, GENAI_TAG_WEIGHTS, &p->device,
					  err);
	return rc;
}

int32_t ring_seal(struct genai_pager *p, const struct genai_sweep_visit *sweep,
		  uint32_t n, uint64_t budget, struct genai_pager_report *out,
		  struct genai_error *err)
{
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	uint64_t bytes;
	int32_t rc;

	mutant_manners("seal");
	if (p->is_sealed)
		return FAIL(p, err, GENAI_E_STATE, "sealed twice");
	rc = take_sweep(p, sweep, n, err);
	if (rc)
		return rc;
	bytes = choose(p, budget);
	rc = take_memory(p, bytes, err);
	if (!rc) {
		make_copy(p);
		rc = load_pinned(p, err);
	}
	if (rc && is("seal-stays"))
		return rc;
	if (rc && is("seal-reports"))
		genai_struct_give(out, &p->report);
	if (rc && is("seal-refused-descriptor"))
		(void)open("/dev/null", O_RDONLY);
	if (rc) {
		if (!p->barrier.ops->drain(p->barrier.self, all, UINT64_MAX,
					   &ticket, NULL)) {
			if (is("seal-keeps-copy"))
				memset(&p->copy, 0, sizeof(p->copy));
			ring_unplace(p, &ticket, NULL);
		}
		if (is("seal-forgets"))
			p->n_pages = 0;
		return rc;
	}
	p->is_sealed = true;
	genai_struct_give(out, &p->report);
	return 0;
}
