// ring.c - a pager of another make: all pages are copied once into pinned
// memory, streamed ones go through a ring on a stream of its own.  It conforms
// until it is told to be wrong.
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <genai/pager.h>

#include "tests/mutants/mutant.h"

#define ALIGN UINT64_C(256)
#define MAX_SLOTS 64u

char mutant[64];

struct module {
	const struct genai_host *host;
	uint64_t slots, piece; // bytes of one copy at most; 0: any
};

enum placement { PINNED, STREAMED, IN_PLACE };

struct page {
	uint64_t bytes, at; // at: in the host copy
	uint32_t flags, n_extents;
	struct genai_extent *extents;
	enum placement placement;
	genai_addr addr;
	uint32_t index; // among the streamed, in the order of the sweep
	uint32_t first, last;
};

struct slot {
	genai_addr addr;
	uint32_t page, held;
	struct genai_point ready, free_at;
};

struct genai_pager {
	struct module *m;
	struct genai_stream_api stream;
	struct genai_barrier_api barrier;
	struct genai_stream *own;
	struct page *pages;
	uint32_t n_pages;
	struct genai_sweep_visit *sweep;
	uint8_t *held;
	uint32_t n_visits, next;
	bool is_sealed, in_step, primed, recording;
	struct genai_mem copy, device;
	struct slot slots[MAX_SLOTS], saved[MAX_SLOTS];
	uint32_t n_slots, n_streamed, *streamed;
	uint32_t resets;
	struct genai_point tail, saved_tail;
	struct genai_pager_report report;
	struct genai_pager_stats stats;
};

#define FAIL(p, err, code, ...)                                                \
	(host(p)->error_set(host(p)->ctx, (err), (code), __VA_ARGS__))

static const struct genai_host *latest;
static bool shared_in_step;

static const struct genai_host *host(const struct genai_pager *p)
{
	return is("static-host") ? latest : p->m->host;
}

static uint64_t up(uint64_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void *take(struct genai_pager *p, uint64_t bytes)
{
	void *m = host(p)->alloc(host(p)->ctx, bytes, "ring");

	if (m)
		memset(m, 0, bytes);
	return m;
}

static void give(struct genai_pager *p, void *m)
{
	host(p)->free(host(p)->ctx, m);
}

// ---- describing ----

static int32_t caps(void *self, struct genai_pager_caps *out,
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

static void *sleep_for_ever(void *arg)
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
		pthread_create(&t, NULL, sleep_for_ever, NULL);
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
		take(p, 64);
}

static int32_t ring_open(void *self, const struct genai_stream_api *stream,
			 const struct genai_barrier_api *barrier,
			 struct genai_pager **out_pager,
			 struct genai_error *err)
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

static int32_t add(struct genai_pager *p, uint64_t bytes, uint32_t flags,
		   const struct genai_extent *extents, uint32_t n,
		   struct genai_error *err)
{
	struct page *more;
	int32_t rc;

	if (p->is_sealed)
		return FAIL(p, err, GENAI_E_STATE, "add after seal");
	if (flags & ~GENAI_PAGE_NO_STREAM)
		return FAIL(p, err, GENAI_E_UNSUPPORTED, "page flags %#x",
			    flags);
	if (!bytes || !n || (is("pages-100") && p->n_pages == 100) ||
	    (is("page-16mb") && bytes > 4 << 20))
		return FAIL(p, err, GENAI_E_INVAL, "page %u: cannot",
			    p->n_pages);
	rc = check_extents(p, bytes, extents, n, err);
	if (rc)
		return rc;
	more = host(p)->realloc(host(p)->ctx, p->pages,
				(p->n_pages + UINT64_C(1)) * sizeof(*more),
				"ring");
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
	more->n_extents = is("extents-4") && n > 4 ? 4 : n;
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

		if (sweep[i].flags)
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
	give(p, p->sweep);
	give(p, p->held);
	give(p, p->streamed);
	p->sweep = take(p, n * sizeof(*sweep) + 1);
	p->held = take(p, n + UINT64_C(1));
	p->streamed = take(p, (n + UINT64_C(1)) * sizeof(*p->streamed));
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

		if (up(pg->bytes) <= budget - ring - r->pinned_bytes) {
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
	p->n_slots =
		r->ring_slots < p->n_streamed ? r->ring_slots : p->n_streamed;
	return r->pinned_bytes + r->ring_bytes;
}

static void peek(const void *at)
{
	(void)*(const volatile char *)at;
}

// Bytes of an extent into the host copy.
static void copy_extent(const struct page *pg, uint32_t k, char *page,
			uint64_t packed)
{
	const struct genai_extent *e = &pg->extents[k];
	const char *src = e->src;
	uint64_t bytes = e->bytes;
	char *dst = page + e->place;

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

static int32_t copy_page(struct genai_pager *p, const struct page *pg,
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
		rc = copy_page(p, &p->pages[i], p->pages[i].addr, p->own, err);
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

static int32_t unplace(struct genai_pager *p, const struct genai_ticket *ticket,
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

static int32_t seal(struct genai_pager *p,
		    const struct genai_sweep_visit *sweep, uint32_t n,
		    uint64_t budget, struct genai_pager_report *out,
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
	if (rc) {
		if (!p->barrier.ops->drain(p->barrier.self, all, UINT64_MAX,
					   &ticket, NULL)) {
			if (is("seal-keeps-copy"))
				memset(&p->copy, 0, sizeof(p->copy));
			unplace(p, &ticket, NULL);
		}
		if (is("seal-forgets"))
			p->n_pages = 0;
		return rc;
	}
	p->is_sealed = true;
	genai_struct_give(out, &p->report);
	return 0;
}

// ---- steps ----

static int32_t load(struct genai_pager *p, struct slot *slot, uint32_t page,
		    struct genai_error *err)
{
	struct genai_point stale = slot->ready;
	int32_t rc;

	rc = p->stream.ops->wait(p->stream.self, p->own, slot->free_at, err);
	if (is("step-wait-lost"))
		rc = 0;
	if (!rc)
		rc = copy_page(p, &p->pages[page], slot->addr, p->own, err);
	if (is("step-copy-lost"))
		rc = 0;
	if (!rc)
		rc = p->stream.ops->mark(p->stream.self, p->own, &slot->ready,
					 err);
	if (is("step-mark-lost"))
		rc = 0;
	if (rc)
		return rc;
	slot->page = page;
	p->tail = slot->ready;
	if ((is("stale-256") && p->stats.steps % 256 == 255) ||
	    (is("stale-1000") && p->stats.steps > 1000) ||
	    (is("stale-2048") && p->stats.steps > 2048))
		slot->ready = stale;
	return 0;
}

static int32_t prime(struct genai_pager *p, struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < p->n_slots; i++) {
		p->slots[i].free_at = (struct genai_point){NULL, 0};
		if (!is("reset-slots-held"))
			p->slots[i].held = 0;
		rc = load(p, &p->slots[i], p->streamed[i], err);
	}
	p->primed = !rc;
	return rc;
}

// What every step leaves behind, or does more of every time.
static void wear(struct genai_pager *p)
{
	uint64_t more = p->stats.steps / 64;
	struct genai_point point;
	pthread_t t;

	if (is("step-descriptor") && p->stats.steps % 50 == 0)
		(void)open("/dev/null", O_RDONLY);
	if (is("step-thread") && p->stats.steps % 500 == 0)
		pthread_create(&t, NULL, sleep_for_ever, NULL);
	if (is("step-malloc"))
		mutant_leak(100);
	for (uint64_t i = 0; is("marks-grow") && i < more; i++)
		p->stream.ops->mark(p->stream.self, p->own, &point, NULL);
	for (uint64_t i = 0; is("waits-grow") && i < more; i++)
		p->stream.ops->wait(p->stream.self, p->own, p->tail, NULL);
	if (is("polls") && p->tail.stream)
		for (int i = 0; i < 1000; i++)
			p->stream.ops->poll(p->stream.self, p->tail, NULL);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// A little patience before going on all the same.
static void linger(struct genai_pager *p, struct genai_point point)
{
	uint64_t until = now() + 2000000;
	struct timespec ms = {0, 2000000};

	while (is("spins") && now() < until &&
	       p->stream.ops->poll(p->stream.self, point, NULL) > 0)
		;
	if (is("sleeps") && p->stream.ops->poll(p->stream.self, point, NULL))
		nanosleep(&ms, NULL);
}

static int32_t step_begin(struct genai_pager *p, struct genai_stream *stream,
			  int32_t recording, struct genai_error *err)
{
	bool inside = is("static-step") ? shared_in_step : p->in_step;

	(void)stream;
	if (!p->is_sealed || inside)
		return FAIL(p, err, GENAI_E_STATE,
			    "step_begin before seal or inside a step");
	mutant_manners("step");
	if (p->n_slots && !p->primed) {
		int32_t rc = recording ? FAIL(p, err, GENAI_E_STATE,
					      "nothing loaded")
				       : prime(p, err);

		if (rc)
			return rc;
	}
	if (recording) {
		memcpy(p->saved, p->slots, sizeof(p->saved));
		p->saved_tail = p->tail;
		p->recording = true;
	} else if (!is("record-sticks")) {
		p->recording = false;
	}
	p->in_step = shared_in_step = true;
	p->next = 0;
	p->stats.steps++;
	wear(p);
	return 0;
}

static genai_addr address(struct genai_pager *p, uint32_t visit)
{
	const struct genai_sweep_visit *v = &p->sweep[visit];
	uint64_t offset = v->offset;
	uint32_t page = v->page;

	if (is("visit-byte"))
		v = &p->sweep[(uint8_t)visit];
	if (is("page-mask"))
		page &= 63;
	if (is("offset-16-bits"))
		offset &= 0xffff;
	if (is("offset-ignored") || (is("offset-of-none") && !v->bytes))
		offset = 0;
	if (is("visit-byte"))
		return p->pages[v->page].addr + v->offset;
	return p->pages[page].addr + offset;
}

static int32_t acquire(struct genai_pager *p, uint32_t visit,
		       struct genai_stream *stream,
		       struct genai_place *out_place,
		       struct genai_point *out_ready, struct genai_error *err)
{
	struct genai_point ready = {NULL, 0};
	uint32_t page;
	struct page *pg;

	(void)stream;
	if (!p->in_step || visit != p->next || visit >= p->n_visits)
		return FAIL(p, err, GENAI_E_STATE,
			    "visit %u acquired, %u is next", visit, p->next);
	page = p->sweep[visit].page;
	pg = &p->pages[page];
	if (pg->placement == STREAMED) {
		uint32_t k = pg->index % p->n_slots;
		struct slot *slot;

		if (is("slots-even") && p->n_slots % 2)
			k = pg->index & (p->n_slots - 1);
		if (is("slots-32"))
			k &= 31;
		slot = &p->slots[k];
		if (slot->page != page || (visit == pg->first && slot->held))
			return FAIL(p, err, GENAI_E_STATE,
				    "visit %u: its slot holds page %u", visit,
				    slot->page);
		slot->held++;
		ready = slot->ready;
		linger(p, ready);
	}
	out_place->size = sizeof(*out_place);
	out_place->kind = pg->placement == IN_PLACE ? GENAI_PLACE_IN_PLACE
						    : GENAI_PLACE_DEVICE;
	out_place->addr = address(p, visit);
	*out_ready = ready;
	p->held[visit] = 1;
	p->next++;
	p->stats.acquires++;
	return 0;
}

static int32_t release(struct genai_pager *p, uint32_t visit,
		       struct genai_point point, struct genai_error *err)
{
	struct page *pg;
	struct slot *slot;
	uint32_t next;

	if (!p->in_step || visit >= p->n_visits || !p->held[visit])
		return FAIL(p, err, GENAI_E_STATE, "visit %u is not held",
			    visit);
	pg = &p->pages[p->sweep[visit].page];
	p->held[visit] = 0;
	if (pg->placement != STREAMED)
		return 0;
	slot = &p->slots[pg->index % p->n_slots];
	slot->held--;
	slot->free_at = point;
	if (slot->held || p->next <= pg->last)
		return 0;
	next = pg->index + p->n_slots;
	if (next >= p->n_streamed)
		next = pg->index % p->n_slots;
	if (is("slots-2") && p->n_slots == 2)
		next = pg->index;
	return p->streamed[next] == slot->page && p->n_slots != 2
		       ? 0
		       : load(p, slot, p->streamed[next], err);
}

static int32_t step_end(struct genai_pager *p, struct genai_stream *stream,
			struct genai_point *out_tail, struct genai_error *err)
{
	(void)stream;
	if (!p->in_step || p->next != p->n_visits)
		return FAIL(p, err, GENAI_E_STATE,
			    "step ended after %u of %u visits", p->next,
			    p->n_visits);
	for (uint32_t i = 0; i < p->n_visits; i++)
		if (p->held[i])
			return FAIL(p, err, GENAI_E_STATE,
				    "step ended while visit %u is held", i);
	*out_tail = p->tail;
	if (p->recording) {
		memcpy(p->slots, p->saved, sizeof(p->saved));
		p->tail = p->saved_tail;
	}
	p->in_step = shared_in_step = false;
	return 0;
}

static int32_t check_ticket(struct genai_pager *p,
			    const struct genai_ticket *ticket,
			    struct genai_error *err)
{
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};

	return host(p)->ticket_check(host(p)->ctx, ticket, all, err);
}

static int32_t reset(struct genai_pager *p, const struct genai_ticket *ticket,
		     struct genai_error *err)
{
	int32_t rc = check_ticket(p, ticket, err);

	if (rc)
		return rc;
	if (is("reset-once") && p->resets++)
		return 0;
	if (!is("reset-in-step"))
		p->in_step = shared_in_step = false;
	if (p->held)
		memset(p->held, 0, p->n_visits);
	if (!is("record-sticks"))
		p->recording = false;
	p->primed = false;
	p->tail = (struct genai_point){NULL, 0};
	return 0;
}

static int32_t replay_begin(struct genai_pager *p, struct genai_stream *stream,
			    struct genai_error *err)
{
	int32_t rc = 0;

	if (!p->is_sealed || p->in_step)
		return FAIL(p, err, GENAI_E_STATE,
			    "replay_begin before seal or inside a step");
	if (p->n_slots && !p->primed && !is("replay-unprimed"))
		rc = prime(p, err);
	if (!rc && !is("replay-unordered"))
		rc = p->stream.ops->wait(p->stream.self, stream, p->tail, err);
	return is("replay-error-lost") ? 0 : rc;
}

static int32_t resident(struct genai_pager *p, uint32_t visit,
			uint32_t *out_kind, struct genai_error *err)
{
	static const uint32_t kinds[] = {
		[PINNED] = GENAI_PLACE_DEVICE,
		[IN_PLACE] = GENAI_PLACE_IN_PLACE,
		[STREAMED] = 0,
	};

	if (!p->is_sealed)
		return FAIL(p, err, GENAI_E_STATE, "resident before seal");
	if (visit >= p->n_visits)
		return FAIL(p, err, GENAI_E_INVAL, "no visit %u", visit);
	*out_kind = kinds[p->pages[p->sweep[visit].page].placement];
	return 0;
}

static int32_t stats(struct genai_pager *p, struct genai_pager_stats *out,
		     struct genai_error *err)
{
	struct genai_pager_stats st = p->stats;

	(void)err;
	if (is("stats-12-bits"))
		st.acquires = st.acquires & 0xfff;
	genai_struct_give(out, &st);
	return 0;
}

static int32_t ring_close(struct genai_pager *p,
			  const struct genai_ticket *ticket,
			  struct genai_error *err)
{
	int32_t rc = check_ticket(p, ticket, err);

	mutant_manners("close");
	if (!rc && !is("close-keeps"))
		rc = unplace(p, ticket, err);
	if (!rc && !is("close-stream"))
		rc = p->stream.ops->destroy(p->stream.self, p->own, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < p->n_pages; i++)
		give(p, p->pages[i].extents);
	give(p, p->pages);
	give(p, p->sweep);
	give(p, p->held);
	give(p, p->streamed);
	give(p, p);
	return 0;
}

// ---- the handshake ----

static const struct genai_pager_ops table = {
	.size = sizeof(table),
	.version = 1,
	.caps = caps,
	.open = ring_open,
	.close = ring_close,
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

static struct module *only;

static int32_t init(const struct genai_host *h,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	struct module *m = h->alloc(h->ctx, sizeof(*m), "module");
	uint64_t least, most;

	(void)params;
	if (!m)
		return h->error_set(h->ctx, err, GENAI_E_NOMEM,
				    "no memory for the module");
	m->host = latest = h;
	m->slots = m->piece = 0;
	h->config_get_str(h->ctx, "mutant", mutant, sizeof(mutant));
	mutant_manners("init");
	h->config_get_u64(h->ctx, "slots", &m->slots);
	h->config_get_u64(h->ctx, "piece", &m->piece);
	least = is("slots-0") ? 0 : 2;
	most = is("slots-any") ? UINT64_MAX : MAX_SLOTS;
	if (m->slots < least || m->slots > most) {
		h->free(h->ctx, m);
		return h->error_set(h->ctx, err, GENAI_E_CONFIG,
				    "slots: 2 to %u", MAX_SLOTS);
	}
	if (m->piece && m->piece < 256) {
		h->free(h->ctx, m);
		return h->error_set(h->ctx, err, GENAI_E_CONFIG,
				    "piece: 256 at least, or 0");
	}
	only = only ? only : m;
	*out_self = m;
	return 0;
}

static void fini(void *self)
{
	struct module *m = self;

	mutant_manners("fini");
	if (is("fini-stops-all"))
		latest = NULL;
	m->host->free(m->host->ctx, m);
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_PAGER, "mutant_ring", 1, 0, &table},
};

static const struct genai_config_key keys[] = {
	{"slots", "3", GENAI_KEY_U64, 0, NULL, "slots of the ring: 2 to 64"},
	{"piece", "0", GENAI_KEY_U64, 0, NULL,
	 "bytes of one copy at most, 256 or more; 0: any"},
	{"mutant", "none", GENAI_KEY_STR, 0, NULL, "what is wrong"},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = 1,
	.name = "mutant_ring",
	.version = "0",
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
	.keys = keys,
	.n_keys = sizeof(keys) / sizeof(keys[0]),
};

GENAI_MODULE_QUERY(block)
