// cost.c - what a step takes under a plan, by the rates of the device.
#include "modules/pager_common/pager.h"

#include <string.h>

static double ns_per_byte(uint64_t rate)
{
	return rate ? 1e9 / (double)rate : 0;
}

// Without the device's rates: those of a GPU, but never such that a copy or a
// unit of work is long beside all of the weights.  link: its rate, if known.
static void guess(struct pager_rates *r, uint64_t total, uint64_t link)
{
	double all;

	r->link = ns_per_byte(link ? link : UINT64_C(25000000000));
	r->memory = r->link / 40;
	r->in_place = r->link * 2;
	all = (double)total * r->link;
	r->latency = all / 2000 < 2600 ? all / 2000 : 2600;
	r->launch = all / 5000 < 2500 ? all / 5000 : 2500;
}

void pager_rates(const struct genai_pager *p, struct pager_rates *r)
{
	const struct genai_stream_caps *c = &p->caps;
	uint64_t total = 0;

	r->host = ns_per_byte(c->host_bytes_per_s);
	r->host_latency = (double)c->host_latency_ns;
	r->busy_link = ns_per_byte(c->host_link_bytes_per_s);
	if (c->flags & GENAI_STREAM_CAP_RATES) {
		r->link = ns_per_byte(c->link_bytes_per_s);
		r->memory = ns_per_byte(c->memory_bytes_per_s);
		r->in_place = ns_per_byte(c->in_place_bytes_per_s
						  ? c->in_place_bytes_per_s
						  : c->link_bytes_per_s);
		r->in_place = pager_max(r->in_place, r->memory);
		r->latency = (double)c->copy_latency_ns;
		r->launch = (double)c->launch_ns;
		r->busy_link = pager_max(r->busy_link, r->link);
		return;
	}
	for (uint32_t i = 0; i < p->n_pages; i++)
		total += p->pages[i].bytes;
	guess(r, total, c->host_bytes_per_s ? c->link_bytes_per_s : 0);
	r->busy_link = pager_max(r->busy_link, r->link);
}

// Visits of one page in a row are one event.  Returns how many there are; with
// out NULL it only counts.
uint32_t pager_events(const struct genai_pager *p,
		      const struct genai_sweep_visit *sweep, uint32_t n,
		      const struct pager_rates *r, struct pager_event *out)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct genai_sweep_visit *v = &sweep[i];
		bool same = i && sweep[i - 1].page == v->page;
		double launch = v->units ? r->launch : 0;
		double work = (double)v->work_bytes * r->memory;
		double before =
			v->units ? (double)(v->units - 1) * r->launch : 0;

		k += !same;
		if (!out)
			continue;
		if (!same)
			out[k - 1] = (struct pager_event){
				.page = v->page,
				.first = i == p->pages[v->page].first,
				.begins = v->units != 0,
				.before = work + before};
		else
			out[k - 1].inside += work + before;
		out[k - 1].inside += launch;
		out[k - 1].last = i == p->pages[v->page].last;
		out[k - 1].bytes += v->bytes;
	}
	return k;
}

// Pages in slots that one unit of work holds at once.  Where nothing is known,
// two: a boundary.
uint32_t pager_held(const struct genai_pager *p,
		    const struct genai_sweep_visit *sweep, uint32_t n)
{
	uint32_t most = 1, held = 0, last = GENAI_NONE;
	bool known = false;

	for (uint32_t i = 0; i < n; i++) {
		known |= sweep[i].units != 0;
		if (sweep[i].units) {
			held = 0;
			last = GENAI_NONE;
		}
		if (p->pages[sweep[i].page].flags & GENAI_PAGE_NO_STREAM)
			continue;
		held += sweep[i].page != last;
		last = sweep[i].page;
		if (held > most)
			most = held;
	}
	return known ? most : 2;
}

// What the host's cores do: they are asked when a node begins, and have to be
// done before the next one may.
struct host_time {
	double asked, done;
};

static double next_node(struct host_time *h, const struct pager_event *e,
			double t)
{
	if (!e->begins)
		return t;
	t = pager_max(t, h->done);
	h->asked = t + e->before;
	return t;
}

static void multiply(struct host_time *h, const struct pager_rates *r,
		     const struct pager_event *e)
{
	h->done = pager_max(h->done, h->asked + r->host_latency) +
		  (double)e->bytes * r->host;
}

static double link_of(const struct pager_plan *plan,
		      const struct pager_choice *c)
{
	return c->host ? plan->rates.busy_link : plan->rates.link;
}

// Kernels and copies one after the other; the host's cores beside both.
static double serial_ns(const struct genai_pager *p,
			const struct pager_plan *plan,
			const struct pager_choice *c)
{
	const struct pager_rates *r = &plan->rates;
	struct host_time host = {0, 0};
	double t = 0;

	for (uint32_t i = 0; i < plan->n_events; i++) {
		const struct pager_event *e = &plan->events[i];
		const struct pager_page *pg = &p->pages[e->page];

		t = next_node(&host, e, t) + e->before + e->inside;
		if (pg->placement == PAGER_HOST)
			multiply(&host, r, e);
		else
			t += (double)e->bytes * (pg->placement == PAGER_IN_PLACE
							 ? r->in_place
							 : r->memory);
		if (pg->placement == PAGER_STREAMED && e->first)
			t += r->latency + (double)pg->bytes * link_of(plan, c);
	}
	return pager_max(t, host.done) + plan->after;
}

// A step that begins with a full ring and ends when the ring is full again, as
// a recorded one does.
static double overlapped_ns(const struct genai_pager *p,
			    const struct pager_plan *plan,
			    const struct pager_choice *c)
{
	const struct pager_rates *r = &plan->rates;
	struct host_time host = {0, 0};
	double t = 0, link = 0, rate = link_of(plan, c);

	memset(plan->ready, 0, c->slots * sizeof(*plan->ready));
	for (uint32_t i = 0; i < plan->n_events; i++) {
		const struct pager_event *e = &plan->events[i];
		const struct pager_page *pg = &p->pages[e->page];
		bool in_place = pg->placement == PAGER_IN_PLACE;
		uint32_t next;

		t = next_node(&host, e, t) + e->before;
		if (pg->placement == PAGER_STREAMED && e->first)
			t = pager_max(t, plan->ready[pg->slot]);
		if (in_place)
			link = pager_max(link, t) +
			       (double)e->bytes * r->in_place;
		t += e->inside;
		if (pg->placement == PAGER_HOST)
			multiply(&host, r, e);
		else
			t += (double)e->bytes *
			     (in_place ? r->in_place : r->memory);
		if (pg->placement != PAGER_STREAMED || !e->last)
			continue;
		next = pg->stream_index + c->slots;
		if (next >= c->n_streamed)
			next = pg->slot;
		link = pager_max(link, t) + r->latency +
		       (double)p->pages[plan->streamed[next]].bytes * rate;
		plan->ready[pg->slot] = link;
	}
	return pager_max(pager_max(t, host.done) + plan->after, link);
}

void pager_step_ns(const struct genai_pager *p, const struct pager_plan *plan,
		   struct pager_choice *c)
{
	c->serial_ns = serial_ns(p, plan, c);
	c->step_ns = p->m->async ? overlapped_ns(p, plan, c) : c->serial_ns;
}
