// visits.c - the weights that a plan visits, what it does between them, and the
// pages that it was given.
#include "plan.h"

#include <string.h>

static void *zalloc(struct cref_device *dev, uint64_t bytes)
{
	void *m = dev->host->alloc(dev->host->ctx, bytes ? bytes : 1, "plan");

	if (m)
		memset(m, 0, bytes);
	return m;
}

// Inputs that are read by index, a few rows a step.
static bool gathers(const struct genai_node *n, uint32_t input)
{
	if (!strcmp(n->op, "Gather") || !strcmp(n->op, "GatherBlockQuantized"))
		return input != 1;
	if (!strcmp(n->op, "GroupQueryAttention"))
		return input == 7 || input == 8;
	if (!strcmp(n->op, "RotaryEmbedding"))
		return input == 2 || input == 3;
	return false;
}

static struct genai_visit *find_visit(struct genai_plan *p, uint32_t node,
				      uint32_t tensor)
{
	for (uint32_t i = p->n_visits; i-- > 0;) {
		if (p->visits[i].first_node != node)
			break;
		if (p->visits[i].tensor == tensor)
			return &p->visits[i];
	}
	return NULL;
}

// May the node run by ranges of rows?
static bool cuttable(const struct cref_shape *s, uint32_t node)
{
	const struct genai_node *gn = genai_graph_node(s->plan->graph, node);

	if (s->nodes[node].op->flags & CREF_OP_COLUMNS)
		return s->where[gn->inputs[1]] == CREF_WEIGHT &&
		       s->nodes[node].in[1]->rank == 2;
	if (!(s->nodes[node].op->flags & CREF_OP_TILED) ||
	    s->where[gn->inputs[1]] != CREF_WEIGHT)
		return false;
	for (uint32_t k = 2; k < gn->n_inputs && k <= 3; k++)
		if (gn->inputs[k] != GENAI_NONE &&
		    s->where[gn->inputs[k]] != CREF_WEIGHT &&
		    s->where[gn->inputs[k]] != CREF_VALUE)
			return false;
	return true;
}

static bool is_cut(const struct cref_shape *s, uint32_t node, uint32_t input)
{
	return input >= 1 && input <= 3 && cuttable(s, node);
}

// A matrix [K, N] is cut along N: parts are packed, [K, columns].
static void pack_columns(void *ctx, void *dst, uint64_t bytes, const void *src,
			 uint64_t src_bytes)
{
	const struct cref_columns *c = ctx;
	uint64_t column = bytes / (c->K * c->size);
	uint64_t row = column * c->size;
	const char *from =
		c->data + (uint64_t)((const char *)src - c->data) / c->K;

	(void)src_bytes;
	for (uint64_t k = 0; k < c->K; k++)
		memcpy((char *)dst + k * row, from + k * c->N * c->size, row);
}

static void cut_columns(struct genai_plan *p, const struct cref_tensor *b,
			uint32_t i)
{
	struct cref_columns *c = &p->columns[i];

	*c = (struct cref_columns){b->value, (uint64_t)b->dims[0],
				   (uint64_t)b->dims[1],
				   cref_dtype_bits(b->dtype) / 8};
	p->visits[i].flags |= GENAI_WEIGHT_FILL_PARTS;
	p->visits[i].fill = pack_columns;
	p->visits[i].fill_ctx = c;
}

static void visit_input(struct genai_plan *p, struct cref_shape *s,
			uint32_t node, uint32_t input)
{
	const struct genai_graph *g = p->graph;
	const struct genai_node *gn = genai_graph_node(g, node);
	struct cref_node *n = &s->nodes[node];
	uint32_t v = gn->inputs[input];
	uint32_t tensor;
	struct genai_visit *visit;

	if (v == GENAI_NONE || s->where[v] != CREF_WEIGHT)
		return;
	tensor = genai_graph_value(g, p->root[v])->tensor;
	visit = find_visit(p, node, tensor);
	if (!visit) {
		visit = &p->visits[p->n_visits];
		*visit = (struct genai_visit){
			.size = sizeof(*visit),
			.tensor = tensor,
			.first_node = node,
			.last_node = node,
			.group = p->n_visits,
			.rows = 1,
			.device_bytes = genai_graph_tensor(g, tensor)->bytes,
		};
		p->n_visits++;
	}
	if (gathers(gn, input))
		visit->flags |= GENAI_WEIGHT_GATHER;
	if (is_cut(s, node, input)) {
		visit->flags |= GENAI_WEIGHT_ROWS | GENAI_WEIGHT_ANY_ROWS;
		visit->rows = (uint64_t)n->out[0]->dims[n->out[0]->rank - 1];
		visit->group = UINT32_MAX - 1 - node; // one per node
		if (n->op->flags & CREF_OP_COLUMNS)
			cut_columns(p, n->in[input],
				    (uint32_t)(visit - p->visits));
	}
}

// The shapes of a step of one position: the largest integer input has the ids.
// NULL if the graph has no such step; that is no error.
static struct cref_shape *one_position(struct genai_plan *p)
{
	struct genai_view *in =
		zalloc(p->dev, p->graph->n_inputs * sizeof(*in));
	struct genai_view *ids = NULL;
	struct cref_shape *s = NULL;
	int64_t most = 0;

	for (uint32_t i = 0; in && i < p->graph->n_inputs; i++) {
		int64_t n = 1;

		in[i] = p->max_inputs[i];
		for (uint32_t d = 0; d < in[i].rank; d++)
			n *= in[i].dims[d];
		if ((in[i].dtype != GENAI_DT_I64 &&
		     in[i].dtype != GENAI_DT_I32) ||
		    n <= most)
			continue;
		most = n;
		ids = &in[i];
	}
	for (uint32_t d = 0; ids && d < ids->rank; d++)
		ids->dims[d] = ids->strides[d] = 1;
	if (ids && cref_shape_create(p, in, &s, NULL))
		s = NULL;
	p->dev->host->free(p->dev->host->ctx, in);
	return s;
}

static uint64_t value_bytes(const struct cref_shape *s, uint32_t v)
{
	if (v == GENAI_NONE ||
	    (s->where[v] != CREF_ARENA && s->where[v] != CREF_BOUND))
		return 0;
	return cref_tensor_bytes(&s->tensors[v]);
}

// Units of work and their bytes, told to the visits that come after them.
static void find_work(struct genai_plan *p, const struct cref_shape *s)
{
	uint64_t before = 0;
	uint32_t units = 0, at = 0;

	for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
		const struct genai_node *n = genai_graph_node(p->graph, i);
		uint64_t bytes = 0;

		for (uint32_t k = 0; s->runs[i] && k < n->n_inputs; k++)
			bytes += value_bytes(s, n->inputs[k]);
		for (uint32_t k = 0; s->runs[i] && k < n->n_outputs; k++)
			bytes += value_bytes(s, n->outputs[k]);
		if (at == p->n_visits || p->visits[at].first_node != i) {
			units += s->runs[i];
			before += bytes;
			continue;
		}
		p->visits[at].units_before = units;
		p->visits[at].bytes_before = before;
		for (before = units = 0;
		     at < p->n_visits && p->visits[at].first_node == i; at++)
			p->visits[at].work_bytes = bytes;
	}
	if (p->n_visits)
		p->visits[p->n_visits - 1].units_after = units;
}

int32_t cref_find_visits(struct genai_plan *p, struct cref_shape *s,
			 struct genai_error *err)
{
	const struct genai_graph *g = p->graph;
	struct cref_shape *one;
	uint64_t most = 0;

	for (uint32_t i = 0; i < g->n_nodes; i++)
		most += genai_graph_node(g, i)->n_inputs;
	p->visits = zalloc(p->dev, most * sizeof(*p->visits));
	p->columns = zalloc(p->dev, most * sizeof(*p->columns));
	p->node_pages =
		zalloc(p->dev, (g->n_nodes + UINT64_C(1)) * sizeof(uint32_t));
	if (!p->visits || !p->columns || !p->node_pages)
		return CREF_FAIL(p->dev, err, GENAI_E_NOMEM,
				 "no memory for a plan");
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		uint32_t n = s->runs[i] ? genai_graph_node(g, i)->n_inputs : 0;

		// what is not cut comes first: it is held over all tiles
		for (uint32_t k = 0; k < n; k++)
			if (!is_cut(s, i, k))
				visit_input(p, s, i, k);
		for (uint32_t k = 0; k < n; k++)
			if (is_cut(s, i, k))
				visit_input(p, s, i, k);
	}
	one = one_position(p);
	find_work(p, one ? one : s);
	cref_shape_free(one);
	return 0;
}

// ---- pages ----

int32_t cref_plan_visits(struct genai_plan *plan,
			 const struct genai_visit **out_visits,
			 uint32_t *out_count, struct genai_error *err)
{
	(void)err;
	*out_visits = plan->visits;
	*out_count = plan->n_visits;
	return 0;
}

static int32_t check_page(struct genai_plan *p,
			  const struct genai_visit_page *pg, uint32_t i,
			  uint32_t *node, struct genai_error *err)
{
	const struct genai_visit *v;

	if (pg->visit >= p->n_visits)
		return CREF_FAIL(p->dev, err, GENAI_E_INVAL,
				 "page entry %u: no visit %u", i, pg->visit);
	v = &p->visits[pg->visit];
	if (pg->row_begin >= pg->row_end || pg->row_end > v->rows ||
	    (!(v->flags & GENAI_WEIGHT_ROWS) &&
	     (pg->row_begin || pg->row_end != v->rows)))
		return CREF_FAIL(p->dev, err, GENAI_E_INVAL,
				 "page entry %u: rows %llu to %llu of %llu", i,
				 (unsigned long long)pg->row_begin,
				 (unsigned long long)pg->row_end,
				 (unsigned long long)v->rows);
	if (v->first_node < *node)
		return CREF_FAIL(p->dev, err, GENAI_E_INVAL,
				 "page entry %u is not in the order of use", i);
	*node = v->first_node;
	return 0;
}

int32_t cref_plan_set_pages(struct genai_plan *p,
			    const struct genai_visit_page *pages,
			    uint32_t n_pages, struct genai_error *err)
{
	const struct genai_host *host = p->dev->host;
	struct genai_visit_page *copy;
	genai_addr *place;
	uint64_t rows = 0, want = 0;
	uint32_t node = 0, at = 0;
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < n_pages; i++) {
		rc = check_page(p, &pages[i], i, &node, err);
		rows += pages[i].row_end - pages[i].row_begin;
	}
	for (uint32_t i = 0; i < p->n_visits; i++)
		want += p->visits[i].rows;
	if (!rc && rows != want)
		rc = CREF_FAIL(p->dev, err, GENAI_E_INVAL,
			       "the pages hold %llu rows, the visits %llu",
			       (unsigned long long)rows,
			       (unsigned long long)want);
	if (rc)
		return rc;
	copy = zalloc(p->dev, n_pages * sizeof(*copy));
	place = zalloc(p->dev, n_pages * sizeof(*place));
	if (!copy || !place) {
		host->free(host->ctx, copy);
		host->free(host->ctx, place);
		return CREF_FAIL(p->dev, err, GENAI_E_NOMEM,
				 "no memory for %u pages", n_pages);
	}
	if (n_pages)
		memcpy(copy, pages, n_pages * sizeof(*copy));
	host->free(host->ctx, p->pages);
	host->free(host->ctx, p->place);
	p->pages = copy;
	p->place = place;
	p->n_pages = n_pages;
	for (uint32_t i = 0; i <= p->graph->n_nodes; i++) {
		while (at < n_pages && p->visits[copy[at].visit].first_node < i)
			at++;
		p->node_pages[i] = at;
	}
	return 0;
}
