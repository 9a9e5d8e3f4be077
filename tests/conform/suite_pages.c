// suite_pages.c - a pager over pages of every shape: many, large, with gaps,
// out of order, read in part, from sources that end where memory ends.
#include "tests/conform/book.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct book b;

static void open_wide(const char *const *sets, uint64_t seed, uint32_t n_pages,
		      uint32_t n_large, uint64_t percent)
{
	book_make_wide(&b, seed, n_pages, n_large);
	book_open(&b, sets);
	CF_OK(book_seal(&b, b.total * percent / 100, &cf_err));
}

static void close_wide(void)
{
	book_close(&b);
	book_free(&b);
}

static void steps(int n, const char *when)
{
	for (int i = 0; i < n; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, when);
}

static void try_wide(const char *const *sets, uint64_t seed, uint32_t n_pages,
		     uint32_t n_large, uint64_t percent)
{
	char when[120];

	snprintf(when, sizeof(when),
		 "%u pages, %u of them large, budget %lu %%, %s", n_pages,
		 n_large, (unsigned long)percent,
		 sets && sets[0] ? sets[0] : "");
	open_wide(sets, seed, n_pages, n_large, percent);
	steps(3, when);
	close_wide();
}

static void shapes(void)
{
	static const uint32_t parts[] = {0, 10, 25, 40, 60, 80, 100};
	uint32_t n = cf_n_schedules(), seeds = cf.o.torture ? 28 : 7;

	for (uint64_t seed = 0; seed < seeds; seed++)
		try_wide(cf_schedule((uint32_t)seed % n), 300 + seed,
			 seed % 2 ? 100 + 8 * ((uint32_t)seed % 7)
				  : 1 + 5 * (uint32_t)seed,
			 0, parts[seed % 7]);
}

// In n pieces, from the same bytes.
static void split(struct book_page *pg, uint32_t n)
{
	const struct genai_extent whole = pg->extents[0];
	const uint64_t piece = whole.bytes / n / 16 * 16;

	for (uint32_t k = 0; k < n; k++) {
		struct genai_extent *e = &pg->extents[k];

		*e = whole;
		e->place = k * piece;
		e->src = (const char *)whole.src + k * piece;
		e->bytes = k + 1 < n ? piece : whole.bytes - k * piece;
		e->src_bytes = e->bytes;
	}
	pg->n_extents = n;
}

// More pages than a byte numbers, and more extents than a few.
static void many(void)
{
	for (uint32_t part = 0; part <= 100; part += 50) {
		book_make_even(&b, 350 + part, BOOK_MAX_PAGES, 1);
		split(&b.pages[7], BOOK_MAX_EXTENTS);
		split(&b.pages[BOOK_MAX_PAGES - 1], BOOK_MAX_EXTENTS / 3);
		book_open(&b, NULL);
		CF_OK(book_seal(&b, b.total * part / 100, &cf_err));
		steps(2, "of hundreds of pages");
		close_wide();
	}
}

static void large(void)
{
	static const uint32_t parts[] = {0, 30, 50, 70, 100};
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < 5; i++)
		try_wide(cf_schedule(i % n), 400 + i, 20, 5, parts[i]);
}

// The extents of a page were changed: so is what the device shall see.
static void remake(struct book_page *pg)
{
	free(pg->content);
	book_make_content(pg);
	for (uint32_t v = 0; v < b.n_visits; v++)
		if (&b.pages[b.sweep[v].page] == pg)
			b.visits[v].want = pg->content + b.sweep[v].offset;
}

#define SIZES 17

// Pages of every power of two from 16 bytes to a MiB, and of one byte less and
// more.
static void page_sizes(void)
{
	static const uint32_t parts[] = {0, 60, 100};

	for (uint32_t k = 0; k < 3; k++) {
		book_make_even(&b, 580 + k, 3 * SIZES, 1);
		free(b.source);
		b.source_bytes = UINT64_C(2) << 20;
		b.source = malloc(b.source_bytes);
		ck_assert_ptr_nonnull(b.source);
		cf_pattern(b.source, b.source_bytes, b.seed);
		b.total = 0;
		for (uint32_t i = 0; i < b.n_pages; i++) {
			struct book_page *pg = &b.pages[i];
			struct genai_extent *e = &pg->extents[0];

			pg->bytes = (UINT64_C(16) << i / 3) + i % 3 - 1;
			e->src = b.source + i * UINT64_C(4099);
			e->bytes = e->src_bytes = pg->bytes;
			b.sweep[i].bytes = b.visits[i].bytes = pg->bytes;
			b.total += (pg->bytes + 255) / 256 * 256;
			remake(pg);
		}
		book_open(&b, NULL);
		CF_OK(book_seal(&b, b.total * parts[k] / 100, &cf_err));
		steps(3, "pages of powers of two");
		book_close(&b);
		book_free(&b);
	}
}

// Bytes that several extents have, some of them more of it than others.
static void shared_sources(void)
{
	static const uint32_t parts[] = {0, 40, 100};
	uint32_t shared = 0;

	for (uint32_t i = 0; i < 3; i++) {
		book_make(&b, 560 + i, 30);
		for (uint32_t k = 0; k < b.n_pages; k++) {
			struct book_page *pg = &b.pages[k];

			for (uint32_t e = 1; e < pg->n_extents; e++) {
				struct genai_extent *x = &pg->extents[e];

				if (!x->fill) {
					x->src = b.source;
					shared++;
				}
			}
			if (!pg->extents[0].fill)
				pg->extents[0].src = b.source;
			remake(pg);
		}
		book_open(&b, NULL);
		CF_OK(book_seal(&b, b.total * parts[i] / 100, &cf_err));
		steps(3, "bytes that several extents have");
		book_close(&b);
		book_free(&b);
	}
	ck_assert_uint_gt(shared, 0);
}

// Fills with one ctx, of as many bytes, made of others.
static void fills_alike(void)
{
	book_make_even(&b, 570, 20, 1);
	for (uint32_t i = 0; i < b.n_pages; i++) {
		struct book_page *pg = &b.pages[i];
		struct genai_extent *e = pg->extents;

		e[0].fill = book_invert;
		e[0].ctx = &pg->fills[0];
		e[0].src_bytes = e[0].bytes / 2;
		e[1] = e[0];
		e[1].src = (const char *)e[0].src + e[0].bytes / 2;
		e[1].place = e[0].bytes;
		pg->fills[0].bytes = e[0].bytes;
		pg->fills[0].src_bytes = e[0].src_bytes;
		pg->n_extents = 2;
		pg->bytes = b.sweep[i].bytes = b.visits[i].bytes =
			2 * e[0].bytes;
		b.total += 1024;
		remake(pg);
	}
	book_open(&b, NULL);
	CF_OK(book_seal(&b, b.total / 2, &cf_err));
	steps(3, "fills with one ctx");
	book_close(&b);
	book_free(&b);
}

static void shared(void)
{
	shared_sources();
	fills_alike();
}

#define FAR (UINT64_C(17) << 20)

// The last extent of a page lies where 24 bits do not reach.
static void far_extents(void)
{
	struct book_page *pg = &b.pages[0];
	struct genai_extent *last;

	book_make(&b, 97, 6);
	last = &pg->extents[0];
	for (uint32_t k = 1; k < pg->n_extents; k++)
		if (pg->extents[k].place > last->place)
			last = &pg->extents[k];
	for (uint32_t v = 0; v < b.n_visits; v++)
		if (b.sweep[v].page == 0 && b.sweep[v].offset >= last->place)
			b.sweep[v].offset = b.visits[v].offset += FAR;
	last->place += FAR;
	pg->bytes += FAR;
	b.total += FAR;
	remake(pg);
	book_open(&b, NULL);
	CF_OK(book_seal(&b, b.total, &cf_err));
	CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "an extent far inside its page");
	book_close(&b);
	book_free(&b);
}

// The device registers nothing: all is copied, and only what is there.
static void sources(void)
{
	static const uint32_t parts[] = {0, 40, 100};

	for (uint32_t i = 0; i < 6; i++) {
		book_make_wide(&b, 500 + i, 40, i % 2);
		book_open(&b, NULL);
		book_tap.refuse_register = i >= 3;
		CF_OK(book_seal(&b, b.total * parts[i % 3] / 100, &cf_err));
		steps(3, "sources at the end of memory");
		close_wide();
	}
}

static void planned(void)
{
	struct genai_pager_report r = {.size = sizeof(r)};

	book_make_wide(&b, 600, 90, 2);
	book_open(&b, NULL);
	if (!b.ops->plan) {
		close_wide();
		cf_skip("does not plan");
	}
	for (uint64_t percent = 0; percent <= 100; percent += 25) {
		CF_OK(b.ops->plan(b.p, b.sweep, b.n_visits,
				  b.total * percent / 100, &r, &cf_err));
		book_add_all(&b);
	}
	CF_OK(b.ops->plan(b.p, b.sweep, b.n_visits, b.total / 3, &r, &cf_err));
	book_add_all(&b);
	CF_OK(book_seal(&b, b.total / 3, &cf_err));
	ck_assert_uint_eq(r.n_pages, b.report.n_pages);
	ck_assert_uint_eq(r.pinned_bytes, b.report.pinned_bytes);
	ck_assert_uint_eq(r.ring_bytes, b.report.ring_bytes);
	ck_assert_uint_eq(r.streamed_bytes, b.report.streamed_bytes);
	ck_assert_uint_eq(r.in_place_bytes, b.report.in_place_bytes);
	steps(2, "sealed after plans");
	close_wide();
}

static void replayed(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < 4; i++) {
		struct genai_recording *rec = NULL;
		struct genai_ticket t;

		open_wide(cf_schedule(i % n), 700 + i, i % 2 ? 120 : 12,
			  i % 2 ? 0 : 3, 40);
		steps(1, "before it is recorded");
		CF_OK(b.ops->replay_begin(b.p, b.s, &cf_err));
		CF_OK(b.r.st->capture_begin(b.r.d, b.s, &cf_err));
		CF_OK(book_step(&b, 1, &cf_err));
		CF_OK(b.r.st->capture_end(b.r.d, b.s, &rec, &cf_err));
		for (int k = 0; k < 2; k++) {
			CF_OK(b.ops->replay_begin(b.p, b.s, &cf_err));
			CF_OK(b.r.st->launch_graph(b.r.d, rec, b.s, &cf_err));
		}
		book_replayed(&b);
		steps(1, "replayed");
		t = cf_drain(&b.r);
		CF_OK(b.r.st->graph_destroy(b.r.d, rec, &t, &cf_err));
		close_wide();
	}
}

#define P GENAI_IFACE_PAGER
static const struct cf_test tests[] = {
	{"pager/shapes", "GM-93", P, 0, shapes},
	{"pager/shapes-many", "GM-93", P, 0, many},
	{"pager/large-pages", "GM-93", P, 0, large},
	{"pager/page-sizes", "GM-93", P, 0, page_sizes},
	{"pager/shared-sources", "GM-93", P, 0, shared},
	{"pager/far-extents", "GM-93", P, 0, far_extents},
	{"pager/sources", "GM-94", P, 0, sources},
	{"pager/plan-shapes", "GM-92", P, 0, planned},
	{"pager/replay-shapes", "GM-86 GM-93", P, CF_RECORD | CF_STABLE,
	 replayed},
};
const struct cf_suite cf_suite_pages = {tests,
					sizeof(tests) / sizeof(tests[0])};
