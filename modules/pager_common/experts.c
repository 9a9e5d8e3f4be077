// experts.c - experts of mixtures: which of them are pinned, by use.
//
// Every expert of a layer is a page.  Those that are pinned lie in slots, the
// others are read where they are in the host's memory; kernels find either by a
// table on the device, and count which they used.  Between two steps, on the
// stream of the steps, the counts come to the host, and a few of the experts
// that were used most move into slots of those that were used least.  What is
// known of use is a step old: nobody waits for it.
//
// Nothing is changed before what was enqueued last time is done, so there is
// one copy of the table on the host, and the counts that came last are those of
// the steps since the time before.
#include "modules/pager_common/pager.h"

#include <string.h>

// What is known of a page.
struct pager_expert {
	uint32_t page, bank, at; // at: its number among the bank's
	uint32_t seen;		 // of its count
	bool was_pinned;	 // in the steps whose counts come next
	bool busy;		 // moved in this turn
	double score;		 // uses, the older the less
	uint64_t uses;
};

// Pages of the same node.
struct pager_bank {
	uint32_t page, n;
	uint32_t visit, n_visits;
	uint64_t table, uses; // indices: of the first visit's table, of counts
};

struct pager_experts {
	struct pager_bank *banks;
	uint32_t n_banks;
	struct pager_expert *v;
	void **by_use; // for statistics: nothing is allocated after seal
	uint32_t n;    // pages; as many counts
	uint64_t n_table;
	genai_addr table, uses;	 // where they lie
	struct genai_mem own;	 // of those that do not fit into the budget
	struct genai_mem host;	 // the table and the counts on the host
	struct genai_point done; // of what was enqueued last; stream NULL: all
	bool asked;		 // counts come with it
	struct pager_swap last[PAGER_MOST_SWAPS];
	uint32_t n_last;
	bool again; // they may not have come about
};

// How much what was used counts less from step to step: about the last 256
// count.
#define PAGER_FADES (1 - 1.0 / 256)
// Bytes are worth moving if they were used so much more often.
#define PAGER_WORTH 2.0
// Of what steps read from the host's memory, moving takes a part of so much.
#define PAGER_SHARE 8

static uint64_t *table_of(const struct pager_experts *x)
{
	return x->host.host;
}

static uint32_t *counts_of(const struct pager_experts *x)
{
	return (uint32_t *)(table_of(x) + x->n_table);
}

// ---- description ----

static bool is_expert(const struct genai_sweep_visit *v)
{
	return v->flags & GENAI_VISIT_EXPERT;
}

bool pager_same_bank(const struct genai_sweep_visit *a,
		     const struct genai_sweep_visit *b)
{
	return is_expert(a) && is_expert(b) && a->page == b->page &&
	       a->reserved == b->reserved;
}

static int32_t not_pages(struct genai_pager *p, uint32_t visit,
			 const struct genai_sweep_visit *v,
			 struct genai_error *err)
{
	return PAGER_FAIL(p, err, GENAI_E_INVAL,
			  "visit %u: pages %u on are not those of %u experts",
			  visit, v->page, v->reserved);
}

int32_t pager_check_experts(struct genai_pager *p,
			    const struct genai_sweep_visit *sweep,
			    uint32_t visit, struct genai_error *err)
{
	const struct genai_sweep_visit *v = &sweep[visit];
	const bool more = visit && pager_same_bank(v, v - 1);

	if (!v->reserved || v->page >= p->n_pages ||
	    v->reserved > p->n_pages - v->page || !v->bytes)
		return not_pages(p, visit, v, err);
	for (uint32_t e = 0; e < v->reserved; e++) {
		struct pager_page *pg = &p->pages[v->page + e];

		if (!(pg->flags & GENAI_PAGE_NO_STREAM) ||
		    pg->bytes != p->pages[v->page].bytes ||
		    v->offset > pg->bytes || v->bytes > pg->bytes - v->offset ||
		    (!more && pg->visits))
			return not_pages(p, visit, v, err);
		if (!more)
			pg->first = visit;
		pg->last = visit;
		pg->expert = e + 1;
		pg->visits++;
	}
	return 0;
}

uint64_t pager_table_bytes(const struct genai_sweep_visit *sweep, uint32_t n)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (!is_expert(&sweep[i]))
			continue;
		bytes += sweep[i].reserved * sizeof(uint64_t);
		if (!i || !pager_same_bank(&sweep[i], &sweep[i - 1]))
			bytes += sweep[i].reserved * sizeof(uint32_t);
	}
	return pager_up(bytes);
}

static void count(const struct genai_pager *p, struct pager_experts *x)
{
	for (uint32_t i = 0; i < p->n_sweep; i++) {
		const struct genai_sweep_visit *v = &p->sweep[i];

		if (!is_expert(v))
			continue;
		x->n_table += v->reserved;
		if (i && pager_same_bank(v, v - 1))
			continue;
		x->n_banks++;
		x->n += v->reserved;
	}
}

static void describe(const struct genai_pager *p, struct pager_experts *x)
{
	struct pager_bank *b = x->banks - 1;
	uint64_t table = 0;
	uint32_t at = 0;

	for (uint32_t i = 0; i < p->n_sweep; i++) {
		const struct genai_sweep_visit *v = &p->sweep[i];

		if (!is_expert(v))
			continue;
		if (!i || !pager_same_bank(v, v - 1)) {
			*++b = (struct pager_bank){v->page, v->reserved, i,
						   0,	    table,	 at};
			for (uint32_t e = 0; e < b->n; e++)
				x->v[at++] = (struct pager_expert){
					.page = b->page + e,
					.bank = (uint32_t)(b - x->banks),
					.at = e};
		}
		b->n_visits++;
		table += v->reserved;
	}
}

// ---- memory ----

// Every entry of the table for what is pinned now.
static void set_entries(const struct genai_pager *p, struct pager_experts *x,
			uint32_t i)
{
	const struct pager_expert *e = &x->v[i];
	const struct pager_bank *b = &x->banks[e->bank];
	const struct pager_page *pg = &p->pages[e->page];

	for (uint32_t k = 0; k < b->n_visits; k++) {
		const uint64_t at = b->table + (uint64_t)k * b->n + e->at;
		const struct genai_sweep_visit *v = &p->sweep[b->visit + k];

		table_of(x)[at] = pg->placement == PAGER_PINNED
					  ? pg->addr + v->offset
					  : pager_home(p, v, e->page);
	}
}

static int32_t take(struct genai_pager *p, struct pager_experts *x,
		    uint64_t table_at, struct genai_error *err)
{
	const uint64_t bytes = pager_table_bytes(p->sweep, p->n_sweep);
	int32_t rc;

	x->banks = pager_zalloc(p, x->n_banks * sizeof(*x->banks));
	x->v = pager_zalloc(p, x->n * sizeof(*x->v));
	x->by_use = pager_zalloc(p, x->n * sizeof(*x->by_use));
	if (!x->banks || !x->v || !x->by_use)
		return PAGER_FAIL(p, err, GENAI_E_NOMEM,
				  "no memory for %u experts", x->n);
	describe(p, x);
	rc = p->stream.ops->alloc(p->stream.self, GENAI_MEM_HOST_PINNED, bytes,
				  GENAI_TAG_STAGING, &x->host, err);
	// a budget without room for the table has none for experts: it is
	// never changed, and kernels may as well read it there
	if (!rc && table_at == PAGER_NOWHERE)
		rc = p->stream.ops->alloc(p->stream.self, GENAI_MEM_HOST_PINNED,
					  bytes, GENAI_TAG_STAGING, &x->own,
					  err);
	if (rc)
		return rc;
	p->report.host_bytes += table_at == PAGER_NOWHERE ? 2 * bytes : bytes;
	memset(x->host.host, 0, bytes);
	x->table = x->own.host ? x->own.range.addr
			       : p->pinned.range.addr + table_at;
	x->uses = x->table + x->n_table * sizeof(uint64_t);
	for (uint32_t i = 0; i < x->n; i++) {
		set_entries(p, x, i);
		x->v[i].was_pinned =
			p->pages[x->v[i].page].placement == PAGER_PINNED;
	}
	if (x->own.host)
		memcpy(x->own.host, x->host.host, bytes);
	return 0;
}

int32_t pager_experts_open(struct genai_pager *p, uint64_t table_at,
			   struct genai_error *err)
{
	struct pager_experts *x;

	if (!pager_table_bytes(p->sweep, p->n_sweep))
		return 0;
	x = pager_zalloc(p, sizeof(*x));
	if (!x)
		return PAGER_FAIL(p, err, GENAI_E_NOMEM, "no memory");
	p->experts = x;
	count(p, x);
	return take(p, x, table_at, err);
}

// The whole table and the counts, with the pinned set.
int32_t pager_experts_load(struct genai_pager *p, struct genai_stream *s,
			   struct genai_error *err)
{
	const struct pager_experts *x = p->experts;

	if (!x || x->own.host)
		return 0;
	return p->stream.ops->copy(
		p->stream.self, s, x->table, (uintptr_t)x->host.host,
		x->n_table * sizeof(uint64_t) + x->n * sizeof(uint32_t),
		GENAI_COPY_H2D, err);
}

int32_t pager_experts_close(struct genai_pager *p,
			    const struct genai_ticket *ticket,
			    struct genai_error *err)
{
	const struct genai_host *host = p->m->host;
	struct pager_experts *x = p->experts;
	int32_t rc;

	if (!x)
		return 0;
	rc = pager_give(p, &x->own, ticket, err);
	if (!rc)
		rc = pager_give(p, &x->host, ticket, err);
	if (rc)
		return rc;
	host->free(host->ctx, x->banks);
	host->free(host->ctx, x->v);
	host->free(host->ctx, x->by_use);
	host->free(host->ctx, x);
	p->experts = NULL;
	return 0;
}

static void add_range(struct genai_range *r, genai_addr addr, uint64_t bytes)
{
	const genai_addr end = r->bytes ? r->addr + r->bytes : addr + bytes;
	const genai_addr begin = r->bytes ? r->addr : addr;

	r->addr = begin < addr ? begin : addr;
	r->bytes = (end > addr + bytes ? end : addr + bytes) - r->addr;
}

int32_t pager_experts_of(struct genai_pager *p, uint32_t visit,
			 struct genai_experts *out, struct genai_error *err)
{
	const struct pager_experts *x = p->experts;
	struct genai_experts got = {.size = sizeof(got)};
	const struct genai_sweep_visit *v;
	const struct pager_bank *b;

	if (!p->sealed)
		return PAGER_FAIL(p, err, GENAI_E_STATE, "experts before seal");
	if (visit >= p->n_sweep || !is_expert(&p->sweep[visit]))
		return PAGER_FAIL(p, err, GENAI_E_INVAL,
				  "visit %u is none of experts", visit);
	v = &p->sweep[visit];
	for (b = x->banks; b->visit + b->n_visits <= visit;)
		b++;
	got.n = b->n;
	got.table =
		x->table + (b->table + (uint64_t)(visit - b->visit) * b->n) *
				   sizeof(uint64_t);
	got.uses = x->uses + b->uses * sizeof(uint32_t);
	got.device = p->slots_of_experts;
	for (uint32_t e = 0; e < b->n; e++)
		add_range(&got.host, pager_home(p, v, b->page + e), v->bytes);
	genai_struct_give(out, &got);
	return 0;
}

genai_addr pager_experts_table(const struct genai_pager *p, uint32_t visit)
{
	const struct pager_experts *x = p->experts;
	const struct pager_bank *b = x->banks;
	uint32_t to = x->n_banks, from = 0;

	while (to - from > 1) {
		const uint32_t mid = from + (to - from) / 2;

		if (b[mid].visit <= visit)
			from = mid;
		else
			to = mid;
	}
	b += from;
	return x->table + (b->table + (uint64_t)(visit - b->visit) * b->n) *
				  sizeof(uint64_t);
}

// ---- use ----

// Take in the counts of the steps that went by.  Returns how many uses missed.
static uint64_t take_counts(struct genai_pager *p, struct pager_experts *x)
{
	uint64_t missed = 0;

	for (uint32_t i = 0; i < x->n; i++) {
		struct pager_expert *e = &x->v[i];
		const struct pager_page *pg = &p->pages[e->page];
		const uint32_t now = counts_of(x)[i], n = now - e->seen;

		e->seen = now;
		e->score = e->score * PAGER_FADES + n;
		e->uses += n;
		if (e->was_pinned) {
			p->stats.expert_hits += n;
		} else {
			p->stats.expert_misses += n;
			p->stats.expert_miss_bytes += n * pg->bytes;
			missed += n;
		}
		e->was_pinned = pg->placement == PAGER_PINNED;
	}
	return missed;
}

static uint32_t most_swaps(const struct genai_pager *p, uint64_t missed)
{
	uint64_t n = p->m->exchange == PAGER_AUTO ? missed / PAGER_SHARE
						  : p->m->exchange;

	if (p->m->exchange == PAGER_AUTO && missed && !n)
		n = 1;
	return n < PAGER_MOST_SWAPS ? (uint32_t)n : PAGER_MOST_SWAPS;
}

// The most used that is not pinned, or the least used that is and has a slot of
// the size; GENAI_NONE: none.
static uint32_t find(const struct genai_pager *p, const struct pager_experts *x,
		     bool pinned, uint64_t bytes)
{
	uint32_t best = GENAI_NONE;

	for (uint32_t i = 0; i < x->n; i++) {
		const struct pager_expert *e = &x->v[i];
		const struct pager_page *pg = &p->pages[e->page];

		if (e->busy || (pg->placement == PAGER_PINNED) != pinned ||
		    (bytes && pager_up(pg->bytes) != pager_up(bytes)))
			continue;
		if (best == GENAI_NONE ||
		    (pinned ? e->score < x->v[best].score
			    : e->score > x->v[best].score))
			best = i;
	}
	return best;
}

// What is worth it, the most first.
static void choose_swaps(struct genai_pager *p, struct pager_experts *x,
			 uint32_t most)
{
	x->n_last = 0;
	for (uint32_t i = 0; i < 2 * most && x->n_last < most; i++) {
		const uint32_t in = find(p, x, false, 0);
		uint32_t out;

		if (in == GENAI_NONE || x->v[in].score < PAGER_WORTH)
			break;
		x->v[in].busy = true;
		out = find(p, x, true, p->pages[x->v[in].page].bytes);
		x->last[x->n_last] = (struct pager_swap){in, out};
		// of another size there may be
		if (out == GENAI_NONE ||
		    x->v[in].score < x->v[out].score + PAGER_WORTH)
			continue;
		x->v[out].busy = true;
		x->n_last++;
	}
	for (uint32_t i = 0; i < x->n; i++)
		x->v[i].busy = false;
}

static void swap(struct genai_pager *p, struct pager_experts *x,
		 const struct pager_swap *s)
{
	struct pager_page *in = &p->pages[x->v[s->in].page];
	struct pager_page *out = &p->pages[x->v[s->out].page];

	in->addr = out->addr;
	in->placement = PAGER_PINNED;
	out->placement = PAGER_IN_PLACE;
	set_entries(p, x, s->in);
	set_entries(p, x, s->out);
	p->stats.expert_exchanges++;
}

// Enqueue what was chosen, the table, and the way back of the counts.
static int32_t enqueue(struct genai_pager *p, struct pager_experts *x,
		       struct genai_stream *stream, struct genai_error *err)
{
	const uint64_t counts = x->n * sizeof(uint32_t);
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < x->n_last; i++) {
		const struct pager_page *in =
			&p->pages[x->v[x->last[i].in].page];

		rc = pager_load(p, in, in->addr, stream, err);
	}
	if (!rc && x->n_last)
		rc = p->stream.ops->copy(p->stream.self, stream, x->table,
					 (uintptr_t)x->host.host,
					 x->n_table * sizeof(uint64_t),
					 GENAI_COPY_H2D, err);
	if (!rc)
		rc = p->stream.ops->copy(p->stream.self, stream,
					 (uintptr_t)counts_of(x), x->uses,
					 counts, GENAI_COPY_D2H, err);
	if (!rc)
		rc = p->stream.ops->mark(p->stream.self, stream, &x->done, err);
	x->asked = !rc;
	return rc;
}

// What is between two steps.
int32_t pager_experts_turn(struct genai_pager *p, struct genai_stream *stream,
			   struct genai_error *err)
{
	struct pager_experts *x = p->experts;
	uint64_t missed = 0;

	if (!x || x->own.host)
		return 0;
	// not there yet, or never: whoever waits for the step is told
	if (x->done.stream &&
	    p->stream.ops->poll(p->stream.self, x->done, NULL))
		return 0;
	if (x->asked)
		missed = take_counts(p, x);
	if (!x->again) {
		choose_swaps(p, x, most_swaps(p, missed));
		for (uint32_t i = 0; i < x->n_last; i++)
			swap(p, x, &x->last[i]);
	}
	x->again = false;
	return enqueue(p, x, stream, err);
}

void pager_experts_reset(struct genai_pager *p)
{
	struct pager_experts *x = p->experts;

	if (!x)
		return;
	x->again = x->n_last > 0;
	x->asked = false;
	x->done = (struct genai_point){NULL, 0};
}

// ---- statistics ----

static bool used_more(const void *a, const void *b)
{
	const struct pager_expert *x = a, *y = b;

	return x->uses != y->uses ? x->uses > y->uses : x < y;
}

// Bytes that would have been missed had those that were used most been pinned,
// as many as are.
void pager_experts_stats(struct genai_pager *p)
{
	const struct pager_experts *x = p->experts;
	uint64_t room = 0, missed = 0;
	void **v = x ? x->by_use : NULL;

	if (!x)
		return;
	for (uint32_t i = 0; i < x->n; i++) {
		const struct pager_page *pg = &p->pages[x->v[i].page];

		v[i] = &x->v[i];
		if (pg->placement == PAGER_PINNED)
			room += pager_up(pg->bytes);
	}
	pager_sort(v, x->n, used_more);
	for (uint32_t i = 0; i < x->n; i++) {
		const struct pager_expert *e = v[i];
		const uint64_t bytes = p->pages[e->page].bytes;

		if (pager_up(bytes) <= room)
			room -= pager_up(bytes);
		else
			missed += e->uses * bytes;
	}
	p->stats.expert_least_bytes = missed;
}
