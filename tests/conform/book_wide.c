// book_wide.c - pages of every shape that the contract allows: many and large,
// with gaps, extents out of order, visits of a part, of several extents, of no
// bytes, sources that lie at the end of what can be read.
#include "tests/conform/book.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define OS_PAGE UINT64_C(4096)
#define MIB (UINT64_C(1) << 20)

static uint64_t up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

// ---- sources ----

// Readable memory for bytes bytes behind what was given before, in a mapping
// that cannot be read elsewhere; the data ends where it ends (or begins where
// it begins, if from_start).
static unsigned char *take(struct book *b, uint64_t *at, uint64_t bytes,
			   bool from_start)
{
	uint64_t room = up(bytes, OS_PAGE);
	unsigned char *begin = b->source + *at + OS_PAGE;

	*at += OS_PAGE + room;
	ck_assert_uint_le(*at + OS_PAGE, b->source_bytes);
	ck_assert(!mprotect(begin, room, PROT_READ | PROT_WRITE));
	cf_pattern(begin, room, cf_random(&b->seed));
	return from_start ? begin : begin + room - bytes;
}

static void make_sources(struct book *b, uint64_t bytes)
{
	b->source_bytes = up(bytes, OS_PAGE);
	b->source = mmap(NULL, b->source_bytes, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert(b->source != MAP_FAILED);
	b->is_mapped = true;
}

// ---- pages ----

static uint64_t small_bytes(struct book *b)
{
	uint64_t bytes = 1 + cf_below(&b->seed, 6000);

	switch (cf_below(&b->seed, 4)) {
	case 0:
		return up(bytes, 16);
	case 1:
		return up(bytes, OS_PAGE);
	default:
		return bytes;
	}
}

static void make_extent(struct book *b, struct book_page *pg, uint64_t bytes,
			uint64_t *at)
{
	uint32_t k = pg->n_extents++;
	struct genai_extent *e = &pg->extents[k];
	uint64_t place = up(pg->bytes, 16), fills = bytes;

	if (cf_below(&b->seed, 2))
		place += 16 * (uint64_t)cf_below(&b->seed, 40);
	*e = (struct genai_extent){
		.size = sizeof(*e), .place = place, .bytes = bytes};
	if (bytes < 8192 && cf_below(&b->seed, 6) == 0) {
		e->fill = book_invert;
		e->ctx = &pg->fills[k];
		fills = cf_below(&b->seed, 2) ? 2 * bytes : (bytes + 1) / 2;
	}
	e->src_bytes = fills;
	pg->fills[k].bytes = bytes;
	pg->fills[k].src_bytes = fills;
	e->src = take(b, at, fills, cf_below(&b->seed, 3) == 0);
	pg->bytes = place + bytes;
}

// The next extent lies as far behind the last one in the host's memory as in
// the page, but what is between cannot be read.
static void make_apart(struct book *b, struct book_page *pg, uint64_t *at)
{
	struct genai_extent *a, *e;
	uint64_t bytes = up(small_bytes(b), 16);

	make_extent(b, pg, bytes, at);
	a = &pg->extents[pg->n_extents - 1];
	if (a->fill)
		return;
	make_extent(b, pg, small_bytes(b), at);
	e = &pg->extents[pg->n_extents - 1];
	if (e->fill)
		return;
	// where a ends, and where e begins
	a->src = (const unsigned char *)up((uintptr_t)a->src + bytes, OS_PAGE) -
		 bytes;
	e->src = (const unsigned char *)((uintptr_t)e->src / OS_PAGE * OS_PAGE);
	e->place = a->place + (uint64_t)((const unsigned char *)e->src -
					 (const unsigned char *)a->src);
	pg->bytes = e->place + e->bytes;
}

// Three that lie in the host's memory as in the page, and one between them that
// does not.
static void make_together(struct book *b, struct book_page *pg, uint64_t *at)
{
	uint64_t place = up(pg->bytes, 16), begin = place;
	const unsigned char *src = take(b, at, 2 * OS_PAGE, true);

	for (uint32_t i = 0; i < 4; i++) {
		struct genai_extent *e = &pg->extents[pg->n_extents++];
		uint64_t bytes = 1 + cf_below(&b->seed, 1800);

		*e = (struct genai_extent){.size = sizeof(*e),
					   .src_bytes = bytes,
					   .place = place,
					   .bytes = bytes};
		e->src = i == 2 ? take(b, at, bytes, false)
				: src + (place - begin);
		pg->bytes = place + bytes;
		place = up(pg->bytes, 16) + 16 * (uint64_t)(i % 2);
	}
}

static void shuffle(struct book *b, struct book_page *pg)
{
	for (uint32_t i = pg->n_extents; i-- > 1;) {
		uint32_t k = cf_below(&b->seed, i + 1);
		struct genai_extent e = pg->extents[i];

		pg->extents[i] = pg->extents[k];
		pg->extents[k] = e;
	}
	for (uint32_t i = 0; i < pg->n_extents; i++) {
		const struct genai_extent *e = &pg->extents[i];

		if (e->fill)
			pg->extents[i].ctx = &pg->fills[i];
		pg->fills[i].bytes = e->bytes;
		pg->fills[i].src_bytes = e->src_bytes;
	}
}

static void make_page(struct book *b, uint32_t i, uint32_t n_large,
		      uint64_t *at)
{
	struct book_page *pg = &b->pages[i];
	uint32_t n = cf_below(&b->seed, 8) ? 1 + cf_below(&b->seed, 4) : 10;

	pg->flags =
		cf_below(&b->seed, 6) || i < n_large ? 0 : GENAI_PAGE_NO_STREAM;
	if (cf_below(&b->seed, 2)) // the page does not begin with an extent
		pg->bytes = 16 + 16 * (uint64_t)cf_below(&b->seed, 64);
	if (i < n_large && i % 2)
		for (uint32_t k = 0; k < 3; k++)
			make_extent(b, pg, 700000 + cf_below(&b->seed, 100000),
				    at);
	else if (i < n_large)
		make_extent(b, pg, (2 + i) * MIB + cf_below(&b->seed, 100000),
			    at);
	if (cf_below(&b->seed, 8) == 0)
		make_together(b, pg, at);
	while (pg->n_extents + 1 < n)
		if (cf_below(&b->seed, 8))
			make_extent(b, pg, small_bytes(b), at);
		else
			make_apart(b, pg, at);
	if (!pg->n_extents)
		make_extent(b, pg, small_bytes(b), at);
	if (cf_below(&b->seed, 3) == 0) // nor does it end with one
		pg->bytes += 1 + cf_below(&b->seed, 1000);
	shuffle(b, pg);
	book_make_content(pg);
	b->total += up(pg->bytes, 256);
}

// ---- the sweep ----

static void add_visit(struct book *b, uint32_t page, uint32_t turn,
		      uint64_t offset, uint64_t sees, uint64_t bytes)
{
	struct genai_sweep_visit *v = &b->sweep[b->n_visits];

	ck_assert_uint_lt(b->n_visits, BOOK_MAX_VISITS);
	*v = (struct genai_sweep_visit){.size = sizeof(*v),
					.page = page,
					.offset = offset,
					.bytes = bytes};
	if (b->has_units) {
		v->units = cf_below(&b->seed, 4);
		v->work_bytes = cf_below(&b->seed, 100000);
	}
	b->visits[b->n_visits] =
		(struct book_visit){.want = b->pages[page].content + offset,
				    .bytes = sees,
				    .number = b->n_visits,
				    .page = page,
				    .offset = offset};
	b->turn[b->n_visits++] = turn;
}

static const struct genai_extent *extent_at(const struct book_page *pg,
					    uint64_t place)
{
	for (uint32_t i = 0; i < pg->n_extents; i++)
		if (pg->extents[i].place == place)
			return &pg->extents[i];
	return NULL;
}

// All of it, a part, twice, a few of its bytes, or with the one behind it.
static void visit_extent(struct book *b, uint32_t page, uint32_t turn,
			 const struct genai_extent *e)
{
	const struct genai_extent *next =
		extent_at(&b->pages[page], e->place + e->bytes);
	uint64_t skip = cf_below(&b->seed, (uint32_t)e->bytes);

	switch (cf_below(&b->seed, 8)) {
	case 0:
		add_visit(b, page, turn, e->place + skip, e->bytes - skip,
			  e->bytes - skip);
		break;
	case 1:
		add_visit(b, page, turn, e->place, 1 + skip, 1 + skip);
		add_visit(b, page, turn, e->place, e->bytes, e->bytes);
		break;
	case 2:
		add_visit(b, page, turn, e->place, e->bytes, 0);
		break;
	case 3:
		if (next) {
			add_visit(b, page, turn, e->place + skip,
				  e->bytes - skip + next->bytes,
				  e->bytes - skip + next->bytes);
			break;
		}
		// fall through
	default:
		add_visit(b, page, turn, e->place, e->bytes, e->bytes);
	}
}

// Some page that may be visited at any time.
static void visit_again(struct book *b, uint32_t turn)
{
	uint32_t page = cf_below(&b->seed, b->n_pages);
	const struct book_page *pg = &b->pages[page];

	if (pg->flags & GENAI_PAGE_NO_STREAM && cf_below(&b->seed, 2))
		visit_extent(b, page, turn,
			     &pg->extents[cf_below(&b->seed, pg->n_extents)]);
}

static void make_sweep(struct book *b)
{
	uint32_t order[BOOK_MAX_PAGES];

	for (uint32_t i = 0; i < b->n_pages; i++) {
		uint32_t k = cf_below(&b->seed, i + 1);

		order[i] = order[k];
		order[k] = i;
	}
	for (uint32_t i = 0; i < b->n_pages; i++) {
		const struct book_page *pg = &b->pages[order[i]];
		uint32_t first = cf_below(&b->seed, pg->n_extents);

		if (i && cf_below(&b->seed, 40) == 0)
			continue; // a page that no step reads
		for (uint32_t k = 0; k < pg->n_extents; k++) {
			if (k != first && cf_below(&b->seed, 8) == 0)
				continue;
			visit_extent(b, order[i], i, &pg->extents[k]);
			visit_again(b, i);
		}
	}
}

void book_make_wide(struct book *b, uint64_t seed, uint32_t n_pages,
		    uint32_t n_large)
{
	uint64_t at = 0;

	ck_assert_uint_le(n_pages, BOOK_MAX_PAGES);
	memset(b, 0, sizeof(*b));
	b->seed = cf_seed(seed);
	b->n_pages = n_pages;
	b->has_units = cf_below(&b->seed, 2);
	// address space costs nothing
	make_sources(b, n_pages * UINT64_C(12) * 24576 + n_large * 12 * MIB);
	for (uint32_t i = 0; i < n_pages; i++)
		make_page(b, i, n_large, &at);
	// nobody may write there
	for (uint64_t i = 0; i < b->n_pages; i++)
		for (uint32_t k = 0; k < b->pages[i].n_extents; k++) {
			const struct genai_extent *e = &b->pages[i].extents[k];
			uintptr_t begin = (uintptr_t)e->src / OS_PAGE * OS_PAGE;
			uintptr_t end = (uintptr_t)e->src + e->src_bytes;

			ck_assert(!mprotect((void *)begin,
					    up(end - begin, OS_PAGE),
					    PROT_READ));
		}
	make_sweep(b);
}

#define EVEN_BYTES UINT64_C(1008)

void book_make_even(struct book *b, uint64_t seed, uint32_t n_pages,
		    uint32_t times)
{
	memset(b, 0, sizeof(*b));
	b->seed = cf_seed(seed);
	b->n_pages = n_pages;
	b->source_bytes = up(n_pages * EVEN_BYTES, OS_PAGE);
	b->source = aligned_alloc(OS_PAGE, b->source_bytes);
	ck_assert_ptr_nonnull(b->source);
	cf_pattern(b->source, b->source_bytes, b->seed);
	for (uint32_t i = 0; i < n_pages; i++) {
		struct book_page *pg = &b->pages[i];

		pg->bytes = EVEN_BYTES;
		pg->n_extents = 1;
		pg->extents[0] =
			(struct genai_extent){.size = sizeof(pg->extents[0]),
					      .src = b->source + i * EVEN_BYTES,
					      .src_bytes = EVEN_BYTES,
					      .bytes = EVEN_BYTES};
		book_make_content(pg);
		b->total += up(EVEN_BYTES, 256);
		for (uint32_t k = 0; k < times; k++)
			add_visit(b, i, i, 0, EVEN_BYTES, EVEN_BYTES);
	}
}
