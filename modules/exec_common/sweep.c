// sweep.c - the pages that a step's weights were put in: every row once, in the
// order of the visits.
#include "exec.h"

#include <string.h>

// Every row of every visit once and in order, nodes in order; of a node first
// what is not cut, then part by part the same rows of all that is.
static uint32_t first_bad(const struct exec_plan *p,
			  const struct genai_sweep_page *pages, uint32_t n,
			  uint64_t *next)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct genai_sweep_page *g = &pages[i], *b = g - 1;
		const struct genai_visit *v;
		bool same, cut;

		if (g->visit >= p->n_visits)
			return i;
		v = &p->visits[g->visit];
		cut = exec_by_rows(p, g);
		same = i && p->visits[b->visit].first_node == v->first_node;
		if (g->row_begin != next[g->visit] ||
		    g->row_end <= g->row_begin || g->row_end > v->rows ||
		    (i && p->visits[b->visit].first_node > v->first_node) ||
		    (same && !cut && exec_by_rows(p, b)))
			return i;
		// a part begins where the one before ended
		if (same && cut && exec_by_rows(p, b) &&
		    (g->row_begin == b->row_begin ? g->row_end != b->row_end
						  : g->row_begin != b->row_end))
			return i;
		next[g->visit] = g->row_end;
	}
	return n;
}

// The parts of a node have all that it cuts.
static bool parts_whole(const struct exec_plan *p, uint32_t node,
			const struct genai_sweep_page *pages, uint32_t n)
{
	uint32_t cut = 0, here = 0;

	for (uint32_t i = 0; n && i < p->n_visits; i++)
		cut += p->visits[i].first_node == node &&
		       p->visits[i].flags & GENAI_WEIGHT_ROWS;
	for (uint32_t i = 0; i < n; i++) {
		here += exec_by_rows(p, &pages[i]);
		if (!here ||
		    (i + 1 < n && pages[i + 1].row_begin == pages[i].row_begin))
			continue;
		if (here != cut)
			return false;
		here = 0;
	}
	return true;
}

// Rows of a node's parts when there are several and all but the last have the
// same number; else 0.
static uint32_t even_parts(const struct exec_plan *p,
			   const struct genai_sweep_page *pages, uint32_t n)
{
	uint64_t rows = 0, parts = 0, total = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct genai_sweep_page *g = &pages[i];

		if (!exec_by_rows(p, g) || (parts && g->row_end == total))
			continue;
		if (!parts)
			rows = g->row_end;
		if (g->row_begin != parts * rows ||
		    g->row_end - g->row_begin > rows)
			return 0;
		total = g->row_end;
		parts++;
	}
	return parts > 1 && parts <= EXEC_MAX_PARTS && total <= UINT32_MAX
		       ? (uint32_t)rows
		       : 0;
}

// Pages of the node, which begin at from.
static uint32_t count_pages(const struct exec_plan *p, uint32_t node,
			    const struct genai_sweep_page *pages, uint32_t from,
			    uint32_t n)
{
	uint32_t i = from;

	while (i < n && p->visits[pages[i].visit].first_node == node)
		i++;
	return i - from;
}

static int32_t check_pages(const struct exec_plan *p,
			   const struct genai_sweep_page *pages, uint32_t n,
			   struct genai_error *err)
{
	uint64_t *next = exec_zalloc(p->host, p->n_visits * sizeof(*next));
	uint32_t bad, lacks = p->n_visits, at = 0;

	if (!next)
		return EXEC_FAIL(p, err, GENAI_E_NOMEM,
				 "no memory for %u pages", n);
	bad = first_bad(p, pages, n, next);
	for (uint32_t i = p->n_visits; i-- > 0;)
		if (next[i] != p->visits[i].rows)
			lacks = i;
	p->host->free(p->host->ctx, next);
	if (bad < n)
		return EXEC_FAIL(p, err, GENAI_E_INVAL,
				 "page %u of the sweep (visit %u, rows %llu to "
				 "%llu) is out of order",
				 bad, pages[bad].visit,
				 (unsigned long long)pages[bad].row_begin,
				 (unsigned long long)pages[bad].row_end);
	if (lacks < p->n_visits)
		return EXEC_FAIL(p, err, GENAI_E_INVAL,
				 "the sweep leaves out rows of visit %u",
				 lacks);
	for (uint32_t i = 0, k; i < p->graph->n_nodes; i++, at += k) {
		k = count_pages(p, i, pages, at, n);
		if (!parts_whole(p, i, pages + at, k))
			return EXEC_FAIL(
				p, err, GENAI_E_INVAL,
				"node %u: what is cut at the same rows "
				"does not come together",
				i);
	}
	return 0;
}

int32_t exec_plan_set_pages(struct genai_plan *plan,
			    const struct genai_sweep_page *pages,
			    uint32_t n_pages, struct genai_error *err)
{
	struct exec_plan *p = (struct exec_plan *)plan;
	struct genai_sweep_page *copy;
	struct genai_experts *experts;
	uint8_t *stays;
	uint32_t at = 0;
	int32_t rc;

	if (p->submitted)
		return EXEC_FAIL(p, err, GENAI_E_STATE,
				 "set_pages after the first submit");
	rc = check_pages(p, pages, n_pages, err);
	if (rc)
		return rc;
	copy = exec_zalloc(p->host, n_pages * sizeof(*copy));
	stays = exec_zalloc(p->host, n_pages);
	experts = exec_zalloc(p->host, n_pages * sizeof(*experts));
	if (!copy || !stays || !experts) {
		p->host->free(p->host->ctx, copy);
		p->host->free(p->host->ctx, stays);
		p->host->free(p->host->ctx, experts);
		return EXEC_FAIL(p, err, GENAI_E_NOMEM,
				 "no memory for %u pages", n_pages);
	}
	if (n_pages)
		memcpy(copy, pages, n_pages * sizeof(*copy));
	p->host->free(p->host->ctx, p->pages);
	p->host->free(p->host->ctx, p->stays);
	p->host->free(p->host->ctx, p->experts);
	p->pages = copy;
	p->stays = stays;
	p->experts = experts;
	p->n_pages = n_pages;
	for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
		uint32_t n = count_pages(p, i, copy, at, n_pages);

		p->part_rows[i] = even_parts(p, copy + at, n);
		p->node_pages[i + 1] = at += n;
	}
	p->has_pages = true;
	return 0;
}
