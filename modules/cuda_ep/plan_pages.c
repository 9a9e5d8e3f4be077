/* plan_pages.c - the sweep as the core cut it, turned into the order of
 * acquiring, running and releasing. */
#include "modules/cuda_ep/plan.h"

struct cursor {
	struct genai_plan *p;
	const struct genai_visit_page *pages;
	uint32_t n_pages, at, n_steps;
};

static const struct genai_visit_page *page_at(const struct cursor *c,
					      uint32_t i)
{
	return &c->pages[i];
}

static void emit(struct cursor *c, enum cep_step_kind kind, uint32_t page)
{
	struct cep_step *s = &c->p->steps[c->n_steps++];
	const struct genai_visit_page *g = page_at(c, page);

	s->kind = kind;
	s->page = page;
	s->visit = g->visit;
	s->row_begin = g->row_begin;
	s->row_end = g->row_end;
}

static bool is_rows(const struct genai_plan *p, uint32_t visit)
{
	return p->visits[visit].flags & GENAI_WEIGHT_ROWS;
}

/* Visits of the node that are cut by rows. */
static uint32_t count_rows(const struct genai_plan *p, uint32_t node)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->n_visits; i++)
		n += p->uses[i].node == node && is_rows(p, i);
	return n;
}

/* The part [row_begin, row_end) is complete when as many pages with these rows
 * were acquired as there are visits cut by rows; then run it and let it go. */
static void finish_part(struct cursor *c, uint32_t first, uint32_t last,
			uint32_t n_rows)
{
	const struct genai_visit_page *g = page_at(c, last);
	uint32_t same = 0;

	for (uint32_t i = first; i <= last; i++) {
		const struct genai_visit_page *o = page_at(c, i);

		same += is_rows(c->p, o->visit) && o->row_begin == g->row_begin;
	}
	if (same < n_rows)
		return;
	emit(c, CEP_RUN, last);
	for (uint32_t i = first; i <= last; i++) {
		const struct genai_visit_page *o = page_at(c, i);

		if (is_rows(c->p, o->visit) && o->row_begin == g->row_begin)
			emit(c, CEP_RELEASE, i);
	}
}

/* Steps of the pages [first, end) of one node. */
static void node_steps(struct cursor *c, uint32_t node, uint32_t first,
		       uint32_t end)
{
	uint32_t n_rows = count_rows(c->p, node);

	for (uint32_t i = first; i < end; i++) {
		emit(c, CEP_ACQUIRE, i);
		if (is_rows(c->p, page_at(c, i)->visit))
			finish_part(c, first, i, n_rows);
	}
	if (!n_rows && end > first) {
		emit(c, CEP_RUN, first);
		c->p->steps[c->n_steps - 1].row_begin = 0;
		c->p->steps[c->n_steps - 1].row_end = 0;
	}
	for (uint32_t i = first; i < end; i++)
		if (!is_rows(c->p, page_at(c, i)->visit))
			emit(c, CEP_RELEASE, i);
}

/* Rows of a node's parts when all but the last have the same number, there are
 * several, and the operator can take them at once; else 0. */
static uint32_t even_parts(const struct genai_plan *p, uint32_t node)
{
	uint64_t rows = 0, n = 0, total = 0;

	for (uint32_t i = p->step_begin[node]; i < p->step_begin[node + 1];
	     i++) {
		const struct cep_step *s = &p->steps[i];

		if (s->kind != CEP_RUN)
			continue;
		if (n && s->row_begin != n * rows)
			return 0;
		if (!n)
			rows = s->row_end;
		else if (s->row_end - s->row_begin > rows)
			return 0;
		total = s->row_end;
		n++;
	}
	return n > 1 && n <= CEP_TILES && total <= UINT32_MAX ? (uint32_t)rows
							      : 0;
}

/* Every row of every visit exactly once and in order, visits of a node
 * together, parts of a group cut at the same rows. */
static int32_t check_pages(struct genai_plan *p,
			   const struct genai_visit_page *pages,
			   uint32_t n_pages, struct genai_error *err)
{
	uint64_t *next =
		cep_zalloc(p->self, (uint64_t)p->n_visits * sizeof(*next));
	uint32_t node = 0, bad = n_pages;

	if (!next)
		return cep_fail(p->self, err, GENAI_E_NOMEM, "out of memory");
	for (uint32_t i = 0; i < n_pages && bad == n_pages; i++) {
		const struct genai_visit_page *g = &pages[i];

		if (g->visit >= p->n_visits || g->row_begin != next[g->visit] ||
		    g->row_end <= g->row_begin ||
		    g->row_end > p->visits[g->visit].rows ||
		    p->uses[g->visit].node < node) {
			bad = i;
			break;
		}
		next[g->visit] = g->row_end;
		node = p->uses[g->visit].node;
	}
	for (uint32_t i = 0; i < p->n_visits && bad == n_pages; i++)
		if (next[i] != p->visits[i].rows)
			bad = GENAI_NONE;
	p->self->host->free(p->self->host->ctx, next);
	if (bad == n_pages)
		return 0;
	return cep_fail(p->self, err, GENAI_E_INVAL,
			bad == GENAI_NONE
				? "the sweep leaves out rows of a visit"
				: "page %u of the sweep is out of order",
			bad);
}

int32_t cep_plan_set_pages(struct genai_plan *p,
			   const struct genai_visit_page *pages,
			   uint32_t n_pages, struct genai_error *err)
{
	struct cursor c = {p, pages, n_pages, 0, 0};
	struct cep *self = p->self;
	uint32_t runs = 0, parts = 0;
	int32_t rc;

	if (p->submitted)
		return cep_fail(self, err, GENAI_E_STATE,
				"set_pages after the first submit");
	rc = check_pages(p, pages, n_pages, err);
	if (rc)
		return rc;
	self->host->free(self->host->ctx, p->steps);
	p->steps = cep_zalloc(self,
			      ((uint64_t)n_pages * 3 + 1) * sizeof(*p->steps));
	if (!p->steps)
		return cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
	for (uint32_t k = 0; k < p->graph->n_nodes; k++) {
		uint32_t first = c.at;

		p->step_begin[k] = c.n_steps;
		while (c.at < n_pages && p->uses[pages[c.at].visit].node == k) {
			parts += is_rows(p, pages[c.at].visit);
			c.at++;
		}
		node_steps(&c, k, first, c.at);
	}
	p->step_begin[p->graph->n_nodes] = c.n_steps;
	/* parts cut at different rows would never be complete */
	for (uint32_t i = 0; i < c.n_steps; i++)
		if (p->steps[i].kind == CEP_RELEASE &&
		    is_rows(p, p->steps[i].visit))
			runs++;
	if (runs != parts)
		return cep_fail(
			self, err, GENAI_E_INVAL,
			"visits of one group are cut at different rows");
	for (uint32_t k = 0; k < p->graph->n_nodes; k++)
		p->part_rows[k] = even_parts(p, k);
	p->has_pages = true;
	return 0;
}
