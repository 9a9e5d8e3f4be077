// paging.c - the weights of a plan and a pager: budget, size of pages, seal.
#include "core/model/pages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

#define MAX_PAGE (UINT64_C(16) << 20)
#define MIN_PAGE (UINT64_C(4) << 10) // where the pager cannot tell
#define LEAST_PAGE UINT64_C(256)
#define MOST_PAGE (UINT64_C(1) << 62) // sums of it do not overflow
#define MAX_PAGES 65536

int32_t genai_paging_open(struct genai_runtime *rt, struct genai_paging *p,
			  struct genai_error *err)
{
	struct genai_pager *pager = NULL;
	void *self = genai_module_self(rt->pager.module);
	int32_t rc;

	memset(p, 0, sizeof(*p));
	p->rt = rt;
	rc = rt->pager_ops.open(self, &rt->device.stream, &rt->device.barrier,
				&pager, err);
	if (!rc && !pager)
		rc = genai_fail(err, GENAI_E_MODULE,
				"module %s: open gave no pager",
				genai_module_name(rt->pager.module));
	if (!rc)
		p->api = (struct genai_pager_api){&rt->pager_ops, pager, self};
	return rc;
}

// ---- budget and page size ----

static int32_t read_budget(struct genai_paging *p, uint64_t room,
			   struct genai_error *err)
{
	struct genai_runtime *rt = p->rt;
	const char *v =
		genai_config_get(rt->config, "runtime", "weight_budget");
	struct genai_error why = GENAI_ERROR_INIT;
	double percent = -1;

	p->budget = room;
	if (!strcmp(v, "auto"))
		return 0;
	if (genai_parse_bytes(v, &p->budget, &percent, &why))
		return genai_config_fail(rt->config, "runtime", "weight_budget",
					 err, "%s", why.text);
	if (percent >= 100)
		// all of it, with what pages add
		p->budget = room < UINT64_MAX ? room : UINT64_MAX - 1;
	else if (percent >= 0)
		p->budget =
			(uint64_t)((double)p->weights_bytes * percent / 100);
	if (p->budget > room)
		return genai_config_fail(
			rt->config, "runtime", "weight_budget", err,
			"is %" PRIu64 " bytes, but device_limit leaves %" PRIu64
			" for weights",
			p->budget, room);
	return 0;
}

static uint64_t page_target(const struct genai_paging *p)
{
	const struct genai_runtime *rt = p->rt;
	uint64_t least = p->weights_bytes / MAX_PAGES + 1;
	uint64_t bytes = rt->pager_caps.page_bytes;

	if (least < LEAST_PAGE)
		least = LEAST_PAGE;
	if (bytes)
		return bytes < least	   ? least
		       : bytes > MOST_PAGE ? MOST_PAGE
					   : bytes;
	// small budgets need small pages: a ring of four takes a quarter of the
	// budget.  Without room for a ring nothing is streamed, and small pages
	// would only be small launches
	if (!rt->pager_ops.plan && p->budget / 16 < MAX_PAGE &&
	    p->budget / 16 >= MIN_PAGE)
		return p->budget / 16;
	return MAX_PAGE;
}

// ---- groupings ----

#define MAX_GROUPINGS 128

struct groupings {
	struct genai_grouping v[MAX_GROUPINGS];
	uint32_t n;
};

// Pages of so many bytes, in every way that makes a difference.
static void add_bytes(const struct genai_paging *p, const struct genai_pages *b,
		      uint64_t bytes, struct groupings *g)
{
	double all = (double)p->weights_bytes;
	double out = all - (double)p->budget + 8 * (double)bytes;
	double parts[] = {0, 1, 1.25 * out / all};

	if (bytes < LEAST_PAGE || p->weights_bytes / bytes > MAX_PAGES)
		return;
	for (int i = 0; i < 12 && g->n < MAX_GROUPINGS; i++) {
		struct genai_grouping *x = &g->v[g->n];

		*x = (struct genai_grouping){bytes, i & 1, i & 2, parts[i / 4]};
		g->n += (!x->parts || (b->has_parts && x->parts <= 1)) &&
			(!x->apart || b->has_tied);
	}
}

// Pages as asked for; small budgets need smaller ones, and so do those that
// almost suffice.  Where nothing has to be cut, larger ones are no worse than
// pages of a whole matrix.
static void find_groupings(const struct genai_paging *p,
			   const struct genai_pages *b, uint64_t target,
			   struct groupings *g)
{
	static const uint32_t parts[] = {2, 3, 4, 6, 8, 12, 16, 24, 32};

	g->n = 0;
	add_bytes(p, b, target, g);
	for (uint32_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (p->budget / parts[i] < target)
			add_bytes(p, b, p->budget / parts[i], g);
	for (uint32_t i = 2; i <= 8; i *= 2)
		add_bytes(p, b, target / i, g);
	for (uint32_t i = 2; i <= 64 && b->has_parts && !b->has_rows; i *= 2)
		if (target <= p->budget / 2 / i)
			add_bytes(p, b, target * i, g);
}

static int32_t plan(struct genai_paging *p, struct genai_pages *b,
		    const struct genai_grouping *how,
		    struct genai_pager_report *out, struct genai_error *err)
{
	int32_t rc = genai_pages_build(b, how, err);

	*out = (struct genai_pager_report){.size = sizeof(*out)};
	if (!rc)
		rc = p->api.ops->plan(p->api.pager, b->sweep, b->n_sweep,
				      p->budget, out, err);
	if (!rc && out->n_pages != b->n_pages)
		rc = genai_fail(err, GENAI_E_MODULE,
				"module %s planned for %u pages, not for the "
				"%u that were added",
				genai_module_name(p->rt->pager.module),
				out->n_pages, b->n_pages);
	// no grouping could be told from another
	if (!rc && b->n_pages && (!out->step_ns || !out->resident_ns) &&
	    !(p->rt->device.caps.flags & GENAI_STREAM_CAP_RATES &&
	      !p->rt->device.caps.memory_bytes_per_s))
		rc = genai_fail(err, GENAI_E_MODULE,
				"module %s planned a step of 0 ns: a pager "
				"that cannot tell has no plan",
				genai_module_name(p->rt->pager.module));
	return rc;
}

// Of several ways to group the weights the one with the shortest step, if the
// pager can tell; of those that are equal, about so by rates that are guessed,
// the first.
static int32_t choose(struct genai_paging *p, struct genai_pages *b,
		      uint64_t target, struct genai_grouping *out,
		      struct genai_error *err)
{
	struct genai_pager_report r;
	struct groupings all;
	double ns, best = 0, resident = 0, differs = 0.99;
	uint32_t at = 0;
	int32_t rc;

	*out = (struct genai_grouping){.bytes = target};
	if (!p->rt->pager_ops.plan || b->in_place ||
	    p->budget >= p->weights_bytes)
		return 0;
	find_groupings(p, b, target, &all);
	if (p->rt->device.caps.flags & GENAI_STREAM_CAP_RATES)
		differs = 1;
	for (uint32_t n = 0; n < all.n; n++) {
		rc = plan(p, b, &all.v[n], &r, err);
		if (rc)
			return rc;
		ns = (double)r.step_ns + 0.01 * (double)r.serial_ns;
		if (!n)
			resident = (double)r.resident_ns;
		if (n && ns >= best * differs)
			continue;
		best = ns;
		at = n;
		// nothing is faster than everything on the device
		if ((double)r.step_ns <= 1.002 * resident)
			break;
	}
	*out = all.v[at];
	return 0;
}

static int32_t check_held(const struct genai_paging *p, struct genai_error *err)
{
	uint64_t held;

	if (__builtin_add_overflow(p->report.pinned_bytes, p->report.ring_bytes,
				   &held))
		held = UINT64_MAX;
	return held > p->budget
		       ? genai_fail(err, GENAI_E_MODULE,
				    "module %s holds %" PRIu64
				    " bytes, the budget is %" PRIu64,
				    genai_module_name(p->rt->pager.module),
				    held, p->budget)
		       : 0;
}

int32_t genai_paging_seal(struct genai_paging *p, struct genai_plan *plan,
			  const struct genai_graph *graph, uint64_t room,
			  struct genai_error *err)
{
	struct genai_pages b;
	struct genai_grouping how;
	uint64_t target = 0;
	int32_t rc = genai_pages_open(&b, p, plan, graph, err);

	if (!rc)
		rc = read_budget(p, room, err);
	if (rc)
		goto out;
	target = page_target(p);
	b.in_place = p->budget == UINT64_MAX &&
		     p->rt->device.caps.flags & GENAI_STREAM_CAP_SHARED;
	b.banks = !b.in_place && p->budget < p->weights_bytes &&
		  p->rt->pager_caps.flags & GENAI_PAGER_CAP_EXPERT &&
		  p->rt->pager_ops.experts;
	rc = choose(p, &b, target, &how, err);
	if (!rc)
		rc = genai_pages_build(&b, &how, err);
	p->n_pages = b.n_sweep;
	p->page_bytes = how.bytes;
	p->report.size = sizeof(p->report);
	if (!rc && p->dry)
		rc = p->api.ops->plan(p->api.pager, b.sweep, b.n_sweep,
				      p->budget, &p->report, err);
	else if (!rc)
		rc = p->api.ops->seal(p->api.pager, b.sweep, b.n_sweep,
				      p->budget, &p->report, err);
	if (!rc)
		rc = check_held(p, err);
	if (!rc && !p->dry)
		rc = genai_paging_share(p, plan, err);
out:
	genai_pages_close(&b);
	return rc;
}

int32_t genai_paging_share(struct genai_paging *p, struct genai_plan *plan,
			   struct genai_error *err)
{
	return p->rt->exec.plan_set_pages(plan, p->pages, p->n_pages, err);
}

int32_t genai_paging_close(struct genai_paging *p, struct genai_error *err)
{
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	int32_t rc = 0;

	if (p->api.pager) {
		rc = genai_device_drain(&p->rt->device, &ticket, err);
		if (!rc)
			rc = p->api.ops->close(p->api.pager, &ticket, err);
	}
	free(p->pages);
	p->pages = NULL;
	p->api.pager = NULL;
	return rc;
}
