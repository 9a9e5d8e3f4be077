// plan.c - what plans are made of, and what the chosen one is reported as.
#include "modules/pager_common/pager.h"

#include <string.h>

void *pager_zalloc(struct genai_pager *p, uint64_t bytes)
{
	void *m =
		p->m->host->alloc(p->m->host->ctx, bytes ? bytes : 1, "pager");

	if (m)
		memset(m, 0, bytes);
	return m;
}

// ---- sorting ----

static void sift(void **v, uint32_t root, uint32_t n, pager_before *before)
{
	for (uint32_t child; (child = 2 * root + 1) < n; root = child) {
		void *t;

		if (child + 1 < n && before(v[child], v[child + 1]))
			child++;
		if (!before(v[root], v[child]))
			return;
		t = v[root];
		v[root] = v[child];
		v[child] = t;
	}
}

// Heap sort: no memory, no callback across the C library.
void pager_sort(void **v, uint32_t n, pager_before *before)
{
	for (uint32_t i = n / 2; i-- > 0;)
		sift(v, i, n, before);
	for (uint32_t i = n; i-- > 1;) {
		void *t = v[0];

		v[0] = v[i];
		v[i] = t;
		sift(v, 0, i, before);
	}
}

static bool larger(const void *a, const void *b)
{
	const struct pager_page *x = a, *y = b;

	// of experts the first of each layer, then the second
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes;
	return x->expert != y->expert ? x->expert < y->expert : x < y;
}

// ---- plans ----

static void free_plan(struct genai_pager *p, struct pager_plan *plan)
{
	const struct genai_host *host = p->m->host;

	host->free(host->ctx, plan->events);
	host->free(host->ctx, plan->by_size);
	host->free(host->ctx, plan->streamed);
	host->free(host->ctx, plan->ready);
}

static int32_t make_plan(struct genai_pager *p,
			 const struct genai_sweep_visit *sweep, uint32_t n,
			 struct pager_plan *plan, struct genai_error *err)
{
	uint64_t slots = PAGER_MAX_SLOTS;

	memset(plan, 0, sizeof(*plan));
	pager_rates(p, &plan->rates);
	plan->held = pager_held(p, sweep, n);
	plan->table_bytes = pager_table_bytes(sweep, n);
	if (slots < p->m->ring_slots)
		slots = p->m->ring_slots;
	if (slots < plan->held)
		slots = plan->held;
	plan->n_events = pager_events(p, sweep, n, &plan->rates, NULL);
	plan->events = pager_zalloc(p, plan->n_events * sizeof(*plan->events));
	plan->by_size = pager_zalloc(p, p->n_pages * sizeof(*plan->by_size));
	plan->streamed = pager_zalloc(p, p->n_pages * sizeof(*plan->streamed));
	plan->ready = pager_zalloc(p, slots * sizeof(*plan->ready));
	if (!plan->events || !plan->by_size || !plan->streamed ||
	    !plan->ready) {
		free_plan(p, plan);
		return PAGER_FAIL(p, err, GENAI_E_NOMEM,
				  "no memory to plan for %u pages", p->n_pages);
	}
	pager_events(p, sweep, n, &plan->rates, plan->events);
	plan->after = n ? sweep[n - 1].units_after * plan->rates.launch : 0;
	plan->resident_ns = plan->after;
	for (uint32_t i = 0; i < plan->n_events; i++)
		plan->resident_ns += pager_event_ns(plan, &plan->events[i]);
	for (uint32_t i = 0; i < p->n_pages; i++) {
		plan->by_size[i] = &p->pages[i];
		if (!p->pages[i].sparse)
			plan->read_bytes += p->pages[i].bytes;
	}
	pager_sort(plan->by_size, p->n_pages, larger);
	return 0;
}

static uint64_t whole_ns(double ns)
{
	return ns + 0.5 < 0x1p64 ? (uint64_t)(ns + 0.5) : UINT64_MAX;
}

static void fill_report(struct genai_pager *p, const struct pager_choice *c)
{
	struct genai_pager_report *r = &p->report;

	memset(r, 0, sizeof(*r));
	r->size = sizeof(*r);
	r->n_pages = p->n_pages;
	r->pinned_bytes = c->pinned + c->tables;
	r->ring_bytes = c->slots * c->slot_bytes;
	r->ring_slots = c->slots;
	r->slot_bytes = c->slots ? c->slot_bytes : 0;
	r->n_streamed = c->n_streamed;
	r->step_ns = whole_ns(c->step_ns);
	r->serial_ns = whole_ns(c->serial_ns);
	for (uint32_t i = 0; i < p->n_pages; i++) {
		const struct pager_page *pg = &p->pages[i];

		r->total_bytes += pg->bytes;
		if (pg->expert)
			r->expert_bytes += pg->bytes;
		if (pg->expert && pg->placement == PAGER_PINNED)
			r->expert_pinned_bytes += pg->bytes;
		if (pg->placement == PAGER_IN_PLACE)
			r->in_place_bytes += pg->bytes;
		if (pg->placement == PAGER_IN_PLACE && !pg->sparse)
			r->read_in_place_bytes += pg->bytes;
		if (pg->placement == PAGER_STREAMED)
			r->streamed_bytes += pg->bytes;
		if (pg->placement == PAGER_HOST)
			r->beside_bytes += pg->bytes;
	}
}

int32_t pager_plan(struct genai_pager *p, const struct genai_sweep_visit *sweep,
		   uint32_t n, uint64_t budget, struct pager_choice *c,
		   struct genai_error *err)
{
	struct pager_plan plan;
	int32_t rc = make_plan(p, sweep, n, &plan, err);

	if (rc)
		return rc;
	pager_choose(p, &plan, budget, c);
	fill_report(p, c);
	p->report.resident_ns = whole_ns(plan.resident_ns);
	free_plan(p, &plan);
	return 0;
}
