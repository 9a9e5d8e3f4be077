// book.c - random pages with known bytes, and steps over them.
#include "tests/conform/book.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LOG_BYTES (UINT64_C(1) << 27)

// ---- pages ----

void book_invert(void *ctx, void *dst, uint64_t bytes, const void *src,
		 uint64_t src_bytes)
{
	struct book_fill *f = ctx;
	const unsigned char *s = src;
	unsigned char *d = dst;

	f->calls++;
	f->others += f->bytes != bytes || f->src_bytes != src_bytes;
	for (uint64_t i = 0; i < bytes; i++)
		d[i] = (unsigned char)~s[i % src_bytes];
}

static void make_extent(struct book *b, struct book_page *pg, uint64_t *at)
{
	uint32_t k = pg->n_extents++;
	struct genai_extent *e = &pg->extents[k];
	uint64_t bytes = 1 + cf_below(&b->seed, 6000);

	if (cf_below(&b->seed, 3) == 0)
		bytes = (bytes + 255) / 256 * 256;
	*e = (struct genai_extent){
		.size = sizeof(*e),
		.src = b->source + *at,
		.src_bytes = bytes,
		.place = (pg->bytes + 255) / 256 * 256,
		.bytes = bytes,
	};
	if (cf_below(&b->seed, 6) == 0) {
		e->fill = book_invert;
		e->ctx = &pg->fills[k];
		e->src_bytes = (bytes + 1) / 2;
		pg->fills[k].bytes = bytes;
		pg->fills[k].src_bytes = e->src_bytes;
	}
	*at += e->src_bytes + (cf_below(&b->seed, 4) ? 0 : 100);
	pg->bytes = e->place + bytes;
}

void book_make_content(struct book_page *pg)
{
	struct book_fill dummy = {0};

	pg->content = calloc(1, pg->bytes);
	ck_assert_ptr_nonnull(pg->content);
	for (uint32_t i = 0; i < pg->n_extents; i++) {
		const struct genai_extent *e = &pg->extents[i];

		if (e->fill)
			book_invert(&dummy, pg->content + e->place, e->bytes,
				    e->src, e->src_bytes);
		else
			memcpy(pg->content + e->place, e->src, e->bytes);
	}
}

static void make_visit(struct book *b, uint32_t page, uint32_t turn,
		       const struct genai_extent *e)
{
	struct genai_sweep_visit *v = &b->sweep[b->n_visits];
	uint64_t skip = e->bytes > 1000 && cf_below(&b->seed, 4) == 0 ? 512 : 0;

	*v = (struct genai_sweep_visit){.size = sizeof(*v),
					.page = page,
					.offset = e->place + skip,
					.bytes = e->bytes - skip};
	b->visits[b->n_visits] = (struct book_visit){
		.want = b->pages[page].content + v->offset,
		.bytes = v->bytes,
		.number = b->n_visits,
		.page = page,
		.offset = v->offset,
	};
	b->turn[b->n_visits++] = turn;
}

// A sweep over all pages in order; pages that are not streamed may come again.
static void make_sweep(struct book *b)
{
	for (uint32_t i = 0; i < b->n_pages; i++) {
		const struct book_page *pg = &b->pages[i];

		for (uint32_t k = 0; k < pg->n_extents; k++)
			make_visit(b, i, i, &pg->extents[k]);
		if (i && cf_below(&b->seed, 5) == 0 &&
		    b->pages[i / 2].flags & GENAI_PAGE_NO_STREAM)
			make_visit(b, i / 2, i, &b->pages[i / 2].extents[0]);
	}
}

void book_make(struct book *b, uint64_t seed, uint32_t n_pages)
{
	uint64_t at = 0;

	memset(b, 0, sizeof(*b));
	b->seed = cf_seed(seed);
	b->n_pages = n_pages;
	b->source_bytes = (n_pages * UINT64_C(13000) + 8191) / 4096 * 4096;
	b->source = aligned_alloc(4096, b->source_bytes);
	ck_assert_ptr_nonnull(b->source);
	cf_pattern(b->source, b->source_bytes, seed);
	for (uint32_t i = 0; i < n_pages; i++) {
		struct book_page *pg = &b->pages[i];
		uint32_t n = 1 + cf_below(&b->seed, 2);

		pg->flags = cf_below(&b->seed, 8) ? 0 : GENAI_PAGE_NO_STREAM;
		while (n--)
			make_extent(b, pg, &at);
		b->total += (pg->bytes + 255) / 256 * 256;
		book_make_content(pg);
	}
	ck_assert_uint_le(at, b->source_bytes);
	make_sweep(b);
}

void book_add_all(struct book *b)
{
	for (uint32_t i = 0; i < b->n_pages; i++) {
		struct book_page *pg = &b->pages[i];
		static struct genai_extent lent[BOOK_MAX_EXTENTS];

		memcpy(lent, pg->extents, sizeof(lent));
		CF_OK(b->ops->add(b->p, pg->bytes, pg->flags, lent,
				  pg->n_extents, &cf_err));
		memset(lent, 0xff, sizeof(lent));
	}
}

void book_start(struct book *b, const char *const *sets)
{
	cf_open(&b->r, CF_WITH_PAGER, sets);
	book_tap_open(b);
	b->ops = &b->r.rt->pager_ops;
	b->s = book_tap.steps = cf_stream(&b->r, "steps");
	b->log_used = 0;
	b->n_seen = 0;
	if (b->r.caps.flags & GENAI_STREAM_CAP_NATIVE) {
		b->log = cf_alloc(&b->r, LOG_BYTES);
		b->log_host = cf_pinned(&b->r, LOG_BYTES);
	}
	b->stable = b->r.rt->pager_caps.flags & GENAI_PAGER_CAP_STABLE;
}

void book_open(struct book *b, const char *const *sets)
{
	book_start(b, sets);
	CF_OK(b->ops->open(genai_module_self(b->r.rt->pager.module), &b->stream,
			   &b->barrier, &b->p, &cf_err));
	book_add_all(b);
}

int32_t book_seal(struct book *b, uint64_t budget, struct genai_error *err)
{
	static _Thread_local struct genai_sweep_visit lent[BOOK_MAX_VISITS];
	int32_t rc;

	b->report.size = sizeof(b->report);
	for (uint32_t i = 0; i < b->n_visits; i++)
		b->visits[i].addr = 0;
	memcpy(lent, b->sweep, sizeof(lent));
	rc = b->ops->seal(b->p, lent, b->n_visits, budget, &b->report, err);
	memset(lent, 0xff, sizeof(lent));
	return rc;
}

void book_open_sealed(struct book *b, uint64_t seed, uint32_t n_pages,
		      const char *const *sets)
{
	static const uint32_t parts[] = {50, 40, 30, 60, 20};

	for (uint32_t i = 0; i < 5; i++) {
		book_make(b, seed, n_pages);
		book_open(b, sets);
		CF_OK(book_seal(b, b->total * parts[i] / 100, &cf_err));
		if (b->report.n_streamed || i == 4)
			return;
		book_close(b);
		book_free(b);
	}
}

// ---- steps ----

static const char *place_name(uint32_t kind)
{
	return kind == GENAI_PLACE_DEVICE     ? "on the device"
	       : kind == GENAI_PLACE_IN_PLACE ? "in place"
					      : "on the host";
}

static int32_t compare(const struct book_visit *v, const unsigned char *got,
		       struct genai_error *err)
{
	if (!memcmp(got, v->want, v->bytes))
		return 0;
	for (uint64_t i = 0; i < v->bytes; i++)
		if (got[i] != v->want[i])
			return genai_fail(
				err, GENAI_E_FORMAT,
				"visit %u of page %u, %s: byte %lu of the page "
				"is %u, not %u",
				v->number, v->page, place_name(v->place),
				(unsigned long)(v->offset + i), got[i],
				v->want[i]);
	return 0;
}

static int32_t check_unit(void *ctx, void *const *mem, struct genai_error *err)
{
	return compare(ctx, mem[0], err);
}

void book_use(struct book *b, uint32_t visit, const struct genai_place *place)
{
	struct book_visit *v = &b->visits[visit];
	struct genai_work w = {sizeof(w), visit, "check", check_unit, v};
	struct genai_access a = {place->addr, v->bytes, GENAI_READ, 0};

	if (!b->log.range.bytes) {
		CF_OK(b->r.st->launch(b->r.d, b->s, &w, &a, 1, &cf_err));
	} else {
		ck_assert_uint_le(b->log_used + v->bytes, LOG_BYTES);
		ck_assert_uint_lt(b->n_seen, BOOK_MAX_SEEN);
		b->seen[b->n_seen].visit = visit;
		b->seen[b->n_seen].waits = b->recording;
		b->seen[b->n_seen++].at = b->log_used;
		cf_copy(&b->r, b->s, b->log.range.addr + b->log_used,
			place->addr, v->bytes, GENAI_COPY_D2D);
		b->log_used += v->bytes;
	}
}

// Acquired in order; the checks and releases come when they like.
struct window {
	struct book *b;
	uint32_t next, held[16], n_held;
	struct genai_place place[BOOK_MAX_VISITS];
};

static int32_t take(struct window *w, struct genai_error *err)
{
	struct book *b = w->b;
	struct book_visit *v = &b->visits[w->next];
	struct genai_place place = {.size = sizeof(place)};
	struct genai_point ready = {0};
	int32_t rc = b->ops->acquire(b->p, w->next, b->s, &place, &ready, err);

	if (rc)
		return rc;
	ck_assert_msg(place.kind >= GENAI_PLACE_DEVICE &&
			      place.kind <= GENAI_PLACE_IN_PLACE,
		      "visit %u: place of kind %u, and no visit is "
		      "VISIT_HOST",
		      w->next, place.kind);
	ck_assert_msg(place.kind != GENAI_PLACE_IN_PLACE ||
			      b->r.rt->pager_caps.flags &
				      GENAI_PAGER_CAP_IN_PLACE,
		      "visit %u lies in place, though the pager does not say "
		      "IN_PLACE",
		      w->next);
	ck_assert_msg(!b->stable || !v->addr || v->addr == place.addr,
		      "visit %u moved, though the pager says STABLE", w->next);
	v->addr = place.addr;
	v->place = place.kind;
	w->place[w->next] = place;
	cf_wait(&b->r, b->s, ready);
	w->held[w->n_held++] = w->next++;
	return 0;
}

static int32_t give(struct window *w, struct genai_error *err)
{
	struct book *b = w->b;
	uint32_t k = cf_below(&b->seed, w->n_held), v = w->held[k];
	int32_t rc;

	book_use(b, v, &w->place[v]);
	rc = b->ops->release(b->p, v, cf_mark(&b->r, b->s), err);
	w->held[k] = w->held[--w->n_held];
	return rc;
}

// A page and the next one at once are what every pager has to allow.
static bool may_take(const struct window *w)
{
	const struct book *b = w->b;

	if (w->next == b->n_visits || w->n_held == 16)
		return false;
	for (uint32_t i = 0; i < w->n_held; i++)
		if (b->turn[w->held[i]] + 1 < b->turn[w->next])
			return false;
	return true;
}

int32_t book_step(struct book *b, int32_t recording, struct genai_error *err)
{
	struct window w = {.b = b};
	struct genai_point tail = {0};
	int32_t rc = b->ops->step_begin(b->p, b->s, recording, err);

	b->recording = recording;
	b->before = b->n_seen;
	while (!rc && (w.next < b->n_visits || w.n_held)) {
		if (may_take(&w) && (!w.n_held || cf_below(&b->seed, 2)))
			rc = take(&w, err);
		else
			rc = give(&w, err);
	}
	if (!rc)
		rc = b->ops->step_end(b->p, b->s, &tail, err);
	if (rc)
		return rc;
	if (recording)
		cf_wait(&b->r, b->s, tail);
	return 0;
}

static void check_seen(struct book *b, const char *when)
{
	const unsigned char *log = b->log_host.host;

	cf_copy(&b->r, b->s, (uintptr_t)log, b->log.range.addr, b->log_used,
		GENAI_COPY_D2H);
	cf_finish(&b->r, b->s);
	for (uint32_t i = 0; i < b->n_seen; i++) {
		if (b->seen[i].waits)
			continue;
		CF_CLEAR();
		if (compare(&b->visits[b->seen[i].visit], log + b->seen[i].at,
			    &cf_err))
			ck_abort_msg("%s: %s", when, cf_err.text);
	}
}

void book_replayed(struct book *b)
{
	for (uint32_t i = 0; i < b->n_seen; i++)
		b->seen[i].waits = false;
}

void book_aborted(struct book *b)
{
	b->n_seen = b->before;
}

// A fill makes all of its extent from all of its source, once.
static void check_fills(const struct book *b, const char *when)
{
	for (uint32_t i = 0; i < b->n_pages; i++)
		for (uint32_t k = 0; k < b->pages[i].n_extents; k++)
			ck_assert_msg(!b->pages[i].fills[k].others,
				      "%s: page %u, extent %u: fill was called "
				      "for other bytes than the extent's",
				      when, i, k);
}

void book_forget(struct book *b)
{
	b->n_seen = 0;
	b->log_used = 0;
}

void book_check(struct book *b, const char *when)
{
	struct genai_point p = cf_mark(&b->r, b->s);

	CF_CLEAR();
	if (b->r.ba->host_read(b->r.d, &p, 1, UINT64_MAX, &cf_err))
		ck_abort_msg("%s: %s", when, cf_err.text);
	if (b->log.range.bytes)
		check_seen(b, when);
	check_fills(b, when);
}

// ---- end ----

void book_stop(struct book *b)
{
	if (b->log.range.bytes) {
		cf_free(&b->r, &b->log);
		cf_free(&b->r, &b->log_host);
	}
	cf_destroy(&b->r, b->s);
}

void book_close(struct book *b)
{
	struct genai_ticket t = cf_drain(&b->r);

	CF_OK(b->ops->close(b->p, &t, &cf_err));
	b->p = NULL;
	book_stop(b);
	cf_close(&b->r);
}

void book_free(struct book *b)
{
	for (uint32_t i = 0; i < b->n_pages; i++)
		free(b->pages[i].content);
	if (b->is_mapped)
		munmap(b->source, b->source_bytes);
	else
		free(b->source);
	memset(b, 0, sizeof(*b));
}
