// choose.c - the plan: which pages are pinned, streamed, read in place.
// Decode reads every weight once a token in one fixed order.  Any least
// recently used policy then misses always; the best possible keeps as many
// bytes as the budget holds and streams the rest, spread evenly over the sweep
// so that the link never idles.  How large a ring that takes, and whether some
// pages are better read where they lie, depends on the device: plans are made
// and the one whose step takes least, by cost.c, is kept.
#include "modules/pager_common/pager.h"

#include <math.h>
#include <string.h>

static bool may_stream(const struct pager_page *pg)
{
	return !(pg->flags & GENAI_PAGE_NO_STREAM) && pg->visits;
}

// ---- one plan ----

// slots of slot_bytes; of what is not pinned, the share in_place of the bytes
// is read in place, or the share host left to the host's cores, page by page or
// by nodes; one page less is pinned than could be.
struct shape {
	uint32_t slots;
	uint64_t slot_bytes;
	double in_place, host;
	bool whole_nodes; // left to the host: all of a node or nothing
	bool one_less;
};

static void place(struct pager_choice *c, struct pager_page *pg,
		  enum pager_placement to)
{
	if (pg->placement == PAGER_PINNED)
		c->pinned -= pager_up(pg->bytes);
	pg->placement = to;
	if (to == PAGER_PINNED)
		c->pinned += pager_up(pg->bytes);
}

enum sort { CANNOT_STREAM, CAN_STREAM, EXPERT, SPARSE };

static enum sort sort_of(const struct pager_page *pg, uint64_t slot_bytes)
{
	if (may_stream(pg) && pager_up(pg->bytes) <= slot_bytes)
		return CAN_STREAM;
	if (pg->expert)
		return EXPERT;
	return pg->sparse ? SPARSE : CANNOT_STREAM;
}

// Pin what fits of those that lie as from, the largest first.
static void pin_largest(struct genai_pager *p, const struct pager_plan *plan,
			struct pager_choice *c, uint64_t room, enum sort sort,
			enum pager_placement from)
{
	for (uint32_t k = 0; k < p->n_pages; k++) {
		struct pager_page *pg = plan->by_size[k];

		if (pg->placement == from &&
		    sort_of(pg, c->slot_bytes) == sort &&
		    pager_up(pg->bytes) <= room - c->pinned)
			place(c, pg, PAGER_PINNED);
	}
}

// Leave pages out, by a credit in bytes that grows with the time of the
// resident step, and pin the others while there is room.  The credit is what
// the link has brought ahead by then: it ends where the ring is full.  The
// first page is left out at once, so that the link has something to do from the
// start.  Returns the bytes that were left out for lack of room.
static uint64_t leave_out(struct genai_pager *p, const struct pager_plan *plan,
			  struct pager_choice *c, uint64_t room, double rate)
{
	double credit = 0, full = (double)(c->slots * c->slot_bytes);
	uint64_t lacking = 0;
	bool begun = false;

	for (uint32_t k = 0; k < plan->n_events; k++) {
		const struct pager_event *e = &plan->events[k];
		struct pager_page *pg = &p->pages[e->page];
		uint64_t bytes = pager_up(pg->bytes);
		bool can = sort_of(pg, c->slot_bytes) == CAN_STREAM;

		if (begun)
			credit = pager_min(
				credit + rate * pager_event_ns(plan, e), full);
		if (!can || !e->first)
			continue;
		if (!begun)
			credit = (double)bytes / 2;
		begun = true;
		if (credit < (double)bytes / 2 && bytes <= room - c->pinned) {
			place(c, pg, PAGER_PINNED);
			continue;
		}
		if (credit < (double)bytes / 2)
			lacking += bytes;
		else
			credit -= (double)bytes;
		place(c, pg, PAGER_STREAMED);
	}
	return lacking;
}

// Pin as many of the pages that can be streamed as there is room for, so that
// the others come up evenly.
static void spread(struct genai_pager *p, const struct pager_plan *plan,
		   struct pager_choice *c, uint64_t room)
{
	uint64_t can = 0, left = room - c->pinned, pinned = c->pinned, lacking;
	double rate, out;

	for (uint32_t i = 0; i < p->n_pages; i++)
		if (sort_of(&p->pages[i], c->slot_bytes) == CAN_STREAM)
			can += pager_up(p->pages[i].bytes);
	if (can <= left)
		return; // all of them will be pinned
	out = (double)(can - left);
	rate = plan->resident_ns > 0 ? out / plan->resident_ns : 0;
	for (int i = 0; i < 4; i++) {
		c->pinned = pinned;
		for (uint32_t k = 0; k < p->n_pages; k++)
			if (sort_of(&p->pages[k], c->slot_bytes) == CAN_STREAM)
				p->pages[k].placement = PAGER_IN_PLACE;
		lacking = leave_out(p, plan, c, room, rate);
		if (lacking <= c->slot_bytes)
			return;
		// credit was lost while the ring was full
		rate *= out / (out - (double)lacking + 1);
	}
}

// Pages of which a step reads next to nothing else may be left to the host.
static bool may_leave(const struct pager_page *pg)
{
	return pg->host_bytes >= pg->bytes - pg->bytes / 8;
}

// Of the pages that lie as from, an even share of the bytes goes to another
// place instead.
static void take_out(struct genai_pager *p, const struct pager_plan *plan,
		     double share, enum pager_placement from,
		     enum pager_placement to)
{
	double credit = 0;

	for (uint32_t k = 0; k < plan->n_events; k++) {
		const struct pager_event *e = &plan->events[k];
		struct pager_page *pg = &p->pages[e->page];
		double bytes = (double)pager_up(pg->bytes);

		if (pg->placement != from || !e->first)
			continue;
		credit += bytes * share;
		if (credit < bytes / 2 || (to == PAGER_HOST && !may_leave(pg)))
			continue;
		credit -= bytes;
		pg->placement = to;
	}
}

// The same by nodes, for the host: the fewer are asked, the less is lost.
static void leave_nodes(struct genai_pager *p, const struct pager_plan *plan,
			double share, enum pager_placement from)
{
	double credit = 0;

	for (uint32_t k = 0, end; k < plan->n_events; k = end) {
		double bytes = 0;

		for (end = k; end < plan->n_events &&
			      (end == k || !plan->events[end].begins);
		     end++) {
			const struct pager_event *e = &plan->events[end];
			const struct pager_page *pg = &p->pages[e->page];

			if (pg->placement == from && e->first && may_leave(pg))
				bytes += (double)pager_up(pg->bytes);
		}
		credit += bytes * share;
		if (bytes <= 0 || credit < bytes / 2)
			continue;
		credit -= bytes;
		for (uint32_t i = k; i < end; i++) {
			const struct pager_event *e = &plan->events[i];
			struct pager_page *pg = &p->pages[e->page];

			if (pg->placement == from && e->first && may_leave(pg))
				pg->placement = PAGER_HOST;
		}
	}
}

static void leave_to_host(struct genai_pager *p, const struct pager_plan *plan,
			  const struct shape *s, enum pager_placement from)
{
	if (s->whole_nodes)
		leave_nodes(p, plan, s->host, from);
	else
		take_out(p, plan, s->host, from, PAGER_HOST);
}

static bool any_left(const struct genai_pager *p)
{
	for (uint32_t i = 0; i < p->n_pages; i++)
		if (p->pages[i].placement == PAGER_HOST)
			return true;
	return false;
}

static void number(struct genai_pager *p, const struct pager_plan *plan,
		   struct pager_choice *c)
{
	c->n_streamed = 0;
	for (uint32_t k = 0; k < plan->n_events; k++) {
		struct pager_page *pg = &p->pages[plan->events[k].page];

		if (pg->placement != PAGER_STREAMED || !plan->events[k].first)
			continue;
		pg->stream_index = c->n_streamed;
		pg->slot = c->n_streamed % c->slots;
		plan->streamed[c->n_streamed++] = plan->events[k].page;
	}
}

// A slot that a sweep's last page and the next one's first share, and no other,
// would be loaded between two neighbours, with nothing to hide it.
static bool uneven(const struct pager_choice *c)
{
	return c->n_streamed % c->slots == 1;
}

static void smallest_in_place(struct genai_pager *p,
			      const struct pager_plan *plan,
			      struct pager_choice *c)
{
	uint32_t best = plan->streamed[0];

	for (uint32_t i = 1; i < c->n_streamed; i++)
		if (p->pages[plan->streamed[i]].bytes < p->pages[best].bytes)
			best = plan->streamed[i];
	p->pages[best].placement = PAGER_IN_PLACE;
	number(p, plan, c);
}

static void place_all(struct genai_pager *p, const struct pager_plan *plan,
		      uint64_t room, const struct shape *s,
		      struct pager_choice *c)
{
	memset(c, 0, sizeof(*c));
	c->slots = s->slots;
	c->slot_bytes = s->slot_bytes;
	for (uint32_t i = 0; i < p->n_pages; i++)
		p->pages[i].placement = PAGER_IN_PLACE;
	// Pages that cannot stream come first when a step reads all of them.
	// Those that are read sparsely cost next to nothing in place.
	pin_largest(p, plan, c, room, CANNOT_STREAM, PAGER_IN_PLACE);
	if (s->slots) {
		spread(p, plan, c, room);
		pin_largest(p, plan, c, room, CAN_STREAM, PAGER_STREAMED);
		leave_to_host(p, plan, s, PAGER_STREAMED);
		take_out(p, plan, s->in_place, PAGER_STREAMED, PAGER_IN_PLACE);
	}
	pin_largest(p, plan, c, room, CAN_STREAM, PAGER_IN_PLACE);
	pin_largest(p, plan, c, room, EXPERT, PAGER_IN_PLACE);
	pin_largest(p, plan, c, room, SPARSE, PAGER_IN_PLACE);
	if (s->slots)
		number(p, plan, c);
	else
		leave_to_host(p, plan, s, PAGER_IN_PLACE);
	c->host = s->host > 0 && any_left(p);
}

// False if a plan of that shape would be no good.
static bool try_shape(struct genai_pager *p, const struct pager_plan *plan,
		      uint64_t budget, const struct shape *s,
		      struct pager_choice *c)
{
	uint64_t room = budget - s->slots * s->slot_bytes;

	if (s->one_less) {
		if (room < s->slot_bytes)
			return false;
		room -= s->slot_bytes;
	}
	place_all(p, plan, room, s, c);
	if (!s->slots)
		return true;
	if (uneven(c) && c->n_streamed > s->slots)
		smallest_in_place(p, plan, c);
	// with no more pages than slots all would be resident
	return c->n_streamed > s->slots && !uneven(c);
}

// ---- the best of many ----

#define USUAL_SLOTS 6

struct search {
	struct genai_pager *p;
	const struct pager_plan *plan;
	uint64_t budget;
	struct shape best;
	double best_ns, best_score;
};

// Of two that take about as long, the one with less to hide, and a ring of a
// few slots: clocks are less exact than arithmetic, and guesses more so.
static double score(const struct search *s, const struct shape *shape,
		    double step_ns, double serial_ns)
{
	bool known = s->p->caps.flags & GENAI_STREAM_CAP_RATES;
	double off = (double)shape->slots - USUAL_SLOTS;
	double ns = step_ns + 0.01 * serial_ns;

	// what is measured may not hold: it has to be worth it
	if (shape->host > 0)
		ns *= 1.03;
	if (shape->slots)
		ns *= 1 + (known ? 0.0005 : 0.004) * pager_max(off, -off);
	return ns;
}

// What no plan of that shape can beat.
static double least_score(const struct search *s, const struct shape *shape)
{
	const struct pager_rates *r = &s->plan->rates;
	double room = (double)(s->budget - shape->slots * shape->slot_bytes);
	double out = pager_max((double)s->plan->read_bytes - room, 0);
	double host = out * shape->host;
	double there = shape->slots ? out * shape->in_place : out - host;
	double ns = s->plan->resident_ns + there * (r->in_place - r->memory);
	double link = out - there - host;

	ns -= host * r->memory; // what the cores multiply no kernel reads
	host *= r->host;
	if (shape->slots)
		link = link * (host > 0 ? r->busy_link : r->link) +
		       link / (double)shape->slot_bytes * r->latency;
	return score(
		s, shape,
		pager_max(host,
			  s->p->m->async
				  ? pager_max(ns, link + there * r->in_place)
				  : ns + link),
		pager_max(host, ns + link));
}

// Returns what a step takes; infinite where that is not the best, or cannot be.
static double consider(struct search *s, const struct shape *shape)
{
	struct pager_choice c;
	double is;

	if ((shape->slots && shape->slot_bytes > s->budget / shape->slots) ||
	    least_score(s, shape) >= s->best_score ||
	    !try_shape(s->p, s->plan, s->budget, shape, &c))
		return INFINITY;
	pager_step_ns(s->p, s->plan, &c);
	is = score(s, shape, c.step_ns, c.serial_ns);
	if (is < s->best_score) {
		s->best = *shape;
		s->best_ns = c.step_ns;
		s->best_score = is;
	}
	return c.step_ns;
}

// The host's cores take as long as the link; some less, where other work keeps
// a step from them, or more, where the link has to wait.
static double consider_host(struct search *s, struct shape shape, double best)
{
	static const double of_even[] = {0.6, 0.75, 0.85, 0.92, 1, 1.1};
	const struct pager_rates *r = &s->plan->rates;
	double even = r->host > 0 ? r->busy_link / (r->busy_link + r->host) : 0;

	for (uint32_t i = 0; even > 0 && i < 6; i++) {
		shape.host = even * of_even[i];
		for (int whole = 0; shape.host < 1 && whole < 2; whole++) {
			shape.whole_nodes = whole;
			best = pager_min(best, consider(s, &shape));
		}
	}
	return best;
}

static double consider_slots(struct search *s, uint64_t slot_bytes,
			     uint32_t slots)
{
	struct shape shape = {.slots = slots, .slot_bytes = slot_bytes};
	double best = consider(s, &shape), ns;

	if (s->plan->n_events > PAGER_MANY ||
	    best <= s->plan->resident_ns * 1.001)
		return best;
	shape.one_less = true;
	best = pager_min(best, consider(s, &shape));
	shape.one_less = false;
	best = consider_host(s, shape, best);
	for (shape.in_place = 0.25; shape.in_place < 1;
	     shape.in_place += 0.25) {
		ns = consider(s, &shape);
		if (ns > best)
			break;
		best = ns;
	}
	return best;
}

// As many slots as were asked for, and are held at once; or more until that
// does not help any more.
static void consider_size(struct search *s, uint64_t slot_bytes)
{
	uint32_t n = s->plan->held;
	int worse = 0;

	if (s->p->m->ring_slots) {
		if (n < s->p->m->ring_slots)
			n = (uint32_t)s->p->m->ring_slots;
		consider_slots(s, slot_bytes, n);
		return;
	}
	for (n++; n <= PAGER_MAX_SLOTS && slot_bytes <= s->budget / n;
	     n += 1 + n / 4) {
		double ns = consider_slots(s, slot_bytes, n);

		worse = ns > s->best_ns * 1.02 ? worse + 1 : 0;
		if (worse == 4)
			return;
	}
}

// Slots of the largest page; then smaller ones, for which larger pages are
// pinned or stay where they are.
static void search(struct search *s)
{
	uint64_t last = UINT64_MAX;
	uint32_t sizes = 0;

	for (uint32_t k = 0; k < s->p->n_pages && sizes < 4; k++) {
		const struct pager_page *pg = s->plan->by_size[k];
		uint64_t bytes = pager_up(pg->bytes);

		if (!may_stream(pg) || bytes > last / 3 * 2)
			continue;
		last = bytes;
		sizes++;
		consider_size(s, bytes);
	}
}

// The plan with the shortest step.
void pager_choose(struct genai_pager *p, const struct pager_plan *plan,
		  uint64_t budget, struct pager_choice *c)
{
	static const struct shape none, all_host = {.host = 1};
	struct search s = {.p = p, .plan = plan, .budget = budget};
	uint64_t total = 0, tables = plan->table_bytes;

	memset(c, 0, sizeof(*c));
	for (uint32_t i = 0; i < p->n_pages; i++) {
		p->pages[i].placement = PAGER_IN_PLACE;
		total += pager_up(p->pages[i].bytes);
	}
	if (budget == UINT64_MAX && p->caps.flags & GENAI_STREAM_CAP_SHARED)
		return;
	tables = tables < budget ? tables : 0;
	s.budget = budget -= tables;
	if (budget > total)
		s.budget = budget = total;
	s.best_score = INFINITY;
	// slots that somebody asked for are used if they can be
	if (!p->m->ring_slots || budget == total)
		consider(&s, &none);
	if (plan->rates.host > 0 && !p->m->ring_slots)
		consider(&s, &all_host);
	if (budget < total)
		search(&s);
	try_shape(p, plan, budget, &s.best, c);
	c->tables = tables;
	pager_step_ns(p, plan, c);
}
