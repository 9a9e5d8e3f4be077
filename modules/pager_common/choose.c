// choose.c - the plan: which pages are pinned, streamed, read in place.
// Decode reads every weight once a token in one fixed order.  Any least
// recently used policy then misses always; the best possible keeps as many
// bytes as the budget holds and streams the rest, spread evenly over the sweep
// so that the link never idles.
#include "pager.h"

#include <string.h>

static bool may_stream(const struct pager_page *pg)
{
	return !(pg->flags & GENAI_PAGE_NO_STREAM) && pg->visits;
}

// Most pages of the ring that the sweep needs at once: nodes hold the pages of
// their visits, at most two here (a boundary), plus one to load ahead.
#define MIN_SLOTS 3u
#define AUTO_SLOTS 6u

static void pin(struct pager_choice *c, struct pager_page *pg)
{
	pg->placement = PAGER_PINNED;
	c->pinned += pager_up(pg->bytes);
}

enum sort { CANNOT_STREAM, SPARSE, STREAMABLE };

static enum sort sort_of(const struct pager_page *pg)
{
	if (may_stream(pg))
		return STREAMABLE;
	return pg->sparse ? SPARSE : CANNOT_STREAM;
}

// Pin what fits of a sort of pages, the largest first.
static void pin_largest(struct genai_pager *p, struct pager_choice *c,
			uint64_t room, enum sort sort)
{
	for (;;) {
		struct pager_page *best = NULL;

		for (uint32_t i = 0; i < p->n_pages; i++) {
			struct pager_page *pg = &p->pages[i];

			if (pg->placement == PAGER_IN_PLACE &&
			    sort_of(pg) == sort &&
			    pager_up(pg->bytes) <= room - c->pinned &&
			    (!best || best->bytes < pg->bytes))
				best = pg;
		}
		if (!best)
			return;
		pin(c, best);
	}
}

// Pin an even share of the streamable pages, Bresenham-like: what streams comes
// up evenly in the time of a sweep, for which the bytes it reads stand.
static void spread(struct genai_pager *p, struct pager_choice *c, uint64_t room)
{
	uint64_t total = 0, sweep = 0, left = room - c->pinned;
	double credit = 0, share;

	for (uint32_t i = 0; i < p->n_pages; i++) {
		if (!p->pages[i].sparse)
			sweep += pager_up(p->pages[i].bytes);
		if (may_stream(&p->pages[i]))
			total += pager_up(p->pages[i].bytes);
	}
	share = (double)(total - left) / (double)sweep;
	for (uint32_t i = 0; i < p->n_pages; i++) {
		struct pager_page *pg = &p->pages[i];

		if (!pg->sparse)
			credit += (double)pager_up(pg->bytes) * share;
		if (!may_stream(pg))
			continue;
		if (credit < (double)pager_up(pg->bytes) * 0.5 &&
		    pager_up(pg->bytes) <= room - c->pinned) {
			pin(c, pg);
		} else {
			credit -= (double)pager_up(pg->bytes);
			pg->placement = PAGER_STREAMED;
			c->n_streamed++;
		}
	}
}

static void in_place_all(struct genai_pager *p)
{
	for (uint32_t i = 0; i < p->n_pages; i++)
		p->pages[i].placement = PAGER_IN_PLACE;
}

static uint64_t streamable_bytes(const struct genai_pager *p)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < p->n_pages; i++)
		if (may_stream(&p->pages[i]))
			n += pager_up(p->pages[i].bytes);
	return n;
}

static uint64_t largest_streamable(const struct genai_pager *p)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < p->n_pages; i++)
		if (may_stream(&p->pages[i]) && n < pager_up(p->pages[i].bytes))
			n = pager_up(p->pages[i].bytes);
	return n;
}

// Rounding leaves room for a page or two.
static void top_up(struct genai_pager *p, struct pager_choice *c, uint64_t room)
{
	for (;;) {
		struct pager_page *best = NULL;

		for (uint32_t i = 0; i < p->n_pages; i++) {
			struct pager_page *pg = &p->pages[i];

			if (pg->placement == PAGER_STREAMED &&
			    pager_up(pg->bytes) <= room - c->pinned &&
			    (!best || best->bytes < pg->bytes))
				best = pg;
		}
		if (!best)
			return;
		pin(c, best);
		c->n_streamed--;
	}
}

// A ring of the given number of slots; false if it would be no good.
static bool try_ring(struct genai_pager *p, struct pager_choice *c,
		     uint64_t budget, uint32_t slots)
{
	struct pager_choice was = *c;

	c->slots = slots;
	spread(p, c, budget - slots * c->slot_bytes);
	top_up(p, c, budget - slots * c->slot_bytes);
	// A slot that a sweep's last page and the next one's first share, and
	// no other, would be loaded between two neighbours, with nothing to
	// hide it.  With no more pages than slots all would be resident.
	if (c->n_streamed > slots && c->n_streamed % slots != 1)
		return true;
	for (uint32_t i = 0; i < p->n_pages; i++)
		if (may_stream(&p->pages[i]))
			p->pages[i].placement = PAGER_IN_PLACE;
	*c = was;
	return false;
}

// A ring near the wanted number of slots: one less, one more, two less, ...
static bool find_ring(struct genai_pager *p, struct pager_choice *c,
		      uint64_t budget)
{
	uint64_t left = budget - c->pinned;
	uint32_t slots = AUTO_SLOTS;

	if (p->m->ring_slots)
		return p->m->ring_slots * c->slot_bytes <= left &&
		       try_ring(p, c, budget, (uint32_t)p->m->ring_slots);
	while (slots > MIN_SLOTS && slots * c->slot_bytes > budget / 4)
		slots--;
	for (uint32_t i = 0; i < 2 * AUTO_SLOTS; i++) {
		uint32_t n = i % 2 ? slots - (i + 1) / 2 : slots + i / 2;

		if (n >= MIN_SLOTS && n < 2 * slots &&
		    n * c->slot_bytes <= left && try_ring(p, c, budget, n))
			return true;
	}
	return false;
}

static void choose_streamed(struct genai_pager *p, struct pager_choice *c,
			    uint64_t budget)
{
	uint64_t left = budget - c->pinned, all = streamable_bytes(p);

	c->slot_bytes = largest_streamable(p);
	// one page too much is better read where it lies than through a ring
	if (all > left && all - left > c->slot_bytes && find_ring(p, c, budget))
		return;
	pin_largest(p, c, budget, STREAMABLE);
}

void pager_choose(struct genai_pager *p, uint64_t budget,
		  struct pager_choice *c)
{
	uint64_t total = 0;

	memset(c, 0, sizeof(*c));
	in_place_all(p);
	for (uint32_t i = 0; i < p->n_pages; i++)
		total += pager_up(p->pages[i].bytes);
	if (budget == UINT64_MAX && p->caps.flags & GENAI_STREAM_CAP_SHARED)
		return;
	if (budget > total)
		budget = total;
	// Pages that cannot stream come first when a step reads all of them: in
	// place they cost the link at its worse rate, every step.  Those that
	// are read sparsely cost next to nothing there and come last.
	pin_largest(p, c, budget, CANNOT_STREAM);
	choose_streamed(p, c, budget);
	pin_largest(p, c, budget - c->slots * c->slot_bytes, SPARSE);
}
