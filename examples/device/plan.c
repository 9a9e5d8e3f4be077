// plan.c - a graph into shapes, a place for every value, visits; and the pages
// that the core made of them.
#include "small.h"

#include <string.h>

static void *take(struct device *d, uint64_t bytes)
{
	void *m = d->host->alloc(d->host->ctx, bytes ? bytes : 1, "plan");

	if (m)
		memset(m, 0, bytes);
	return m;
}

void plan_free(struct genai_plan *p)
{
	const struct genai_host *h = p->dev->host;

	h->free(h->ctx, p->max_in);
	h->free(h->ctx, p->in);
	h->free(h->ctx, p->out);
	h->free(h->ctx, p->values);
	h->free(h->ctx, p->offset);
	h->free(h->ctx, p->output_of);
	h->free(h->ctx, p->visits);
	h->free(h->ctx, p->visit_input);
	h->free(h->ctx, p->pages);
	h->free(h->ctx, p->place);
	h->free(h->ctx, p);
}

// ---- shapes ----

int32_t plan_unit(struct genai_plan *p, uint32_t node, struct unit *u,
		  struct genai_error *err)
{
	const struct genai_node *n = genai_graph_node(p->graph, node);

	memset(u, 0, sizeof(*u));
	u->dev = p->dev;
	u->node = n;
	u->kernel = kernel_find(n);
	if (!u->kernel || n->n_inputs > MAX_IN || n->n_outputs != 1)
		return FAIL(p->dev, err, GENAI_E_UNSUPPORTED,
			    "node %s: operator %s of domain '%s' is not served",
			    n->name, n->op, n->domain);
	u->n_in = n->n_inputs;
	for (uint32_t i = 0; i < u->n_in; i++) {
		if (n->inputs[i] == GENAI_NONE)
			continue;
		u->in[i] = p->values[n->inputs[i]];
		u->has[i] = i + 1;
	}
	return u->kernel->shape(u, err);
}

int32_t plan_shapes(struct genai_plan *p, const struct genai_view *inputs,
		    struct genai_error *err)
{
	const struct genai_graph *g = p->graph;
	struct unit u;
	int32_t rc = 0;

	for (uint32_t i = 0; i < g->n_inputs; i++) {
		struct tensor *t = &p->values[g->inputs[i]];

		t->dtype = inputs[i].dtype;
		t->rank = inputs[i].rank;
		memcpy(t->dims, inputs[i].dims, sizeof(t->dims));
	}
	for (uint32_t i = 0; !rc && i < g->n_nodes; i++) {
		rc = plan_unit(p, i, &u, err);
		if (!rc)
			p->values[u.node->outputs[0]] = u.out;
	}
	return rc;
}

// ---- creation ----

static int32_t take_tables(struct genai_plan *p,
			   const struct genai_plan_options *o,
			   struct genai_error *err)
{
	const struct genai_graph *g = p->graph;
	uint64_t most = 0;

	for (uint32_t i = 0; i < g->n_nodes; i++)
		most += genai_graph_node(g, i)->n_inputs;
	p->max_in = take(p->dev, g->n_inputs * sizeof(*p->max_in));
	p->in = take(p->dev, g->n_inputs * sizeof(*p->in));
	p->out = take(p->dev, g->n_outputs * sizeof(*p->out));
	p->values = take(p->dev, g->n_values * sizeof(*p->values));
	p->offset = take(p->dev, g->n_values * sizeof(*p->offset));
	p->output_of = take(p->dev, g->n_values * sizeof(*p->output_of));
	p->visits = take(p->dev, most * sizeof(*p->visits));
	p->visit_input = take(p->dev, most * sizeof(*p->visit_input));
	if (!p->max_in || !p->in || !p->out || !p->values || !p->offset ||
	    !p->output_of || !p->visits || !p->visit_input)
		return FAIL(p->dev, err, GENAI_E_NOMEM, "no memory for a plan");
	memcpy(p->max_in, o->max_inputs, g->n_inputs * sizeof(*p->max_in));
	for (uint32_t i = 0; i < g->n_values; i++) {
		const struct genai_value *v = genai_graph_value(g, i);
		const struct genai_tensor *t;

		p->output_of[i] = GENAI_NONE;
		if (v->tensor == GENAI_NONE)
			continue;
		t = genai_graph_tensor(g, v->tensor);
		p->values[i].dtype = t->dtype;
		p->values[i].rank = t->rank;
		memcpy(p->values[i].dims, t->dims, sizeof(t->dims));
	}
	for (uint32_t i = 0; i < g->n_outputs; i++) {
		p->output_of[g->outputs[i]] = i;
		if (genai_graph_value(g, g->outputs[i])->producer == GENAI_NONE)
			return FAIL(p->dev, err, GENAI_E_UNSUPPORTED,
				    "output %u is not made by a node", i);
	}
	return 0;
}

// Every value its own bytes: simple, and large.
static uint64_t lay_out(struct genai_plan *p)
{
	uint64_t at = 0;

	for (uint32_t i = 0; i < p->graph->n_values; i++) {
		if (genai_graph_value(p->graph, i)->producer == GENAI_NONE)
			continue;
		p->offset[i] = at;
		at += (tensor_bytes(&p->values[i]) + 63) / 64 * 64;
	}
	return at;
}

// Weights that are not cut come first: they are held over the tiles.
static void find_visits(struct genai_plan *p, uint32_t node, int32_t by_rows)
{
	const struct genai_node *n = genai_graph_node(p->graph, node);
	const struct kernel *k = kernel_find(n);

	for (uint32_t i = 0; i < n->n_inputs; i++) {
		struct genai_visit *v = &p->visits[p->n_visits];
		uint32_t tensor, cut = k->by_rows >> i & 1;

		if (n->inputs[i] == GENAI_NONE || (int32_t)cut != by_rows)
			continue;
		tensor = genai_graph_value(p->graph, n->inputs[i])->tensor;
		if (tensor == GENAI_NONE)
			continue;
		*v = (struct genai_visit){.size = sizeof(*v),
					  .tensor = tensor,
					  .first_node = node,
					  .last_node = node,
					  .group = p->n_visits,
					  .rows = 1};
		v->device_bytes = genai_graph_tensor(p->graph, tensor)->bytes;
		if (k->gathers >> i & 1)
			v->flags = GENAI_WEIGHT_GATHER;
		if (cut) {
			const struct tensor *t = &p->values[n->outputs[0]];

			v->flags = GENAI_WEIGHT_ROWS;
			v->rows = (uint64_t)t->dims[t->rank - 1];
			v->group = UINT32_MAX - 1 - node;
		}
		p->visit_input[p->n_visits++] = i;
	}
}

static int32_t check_options(struct device *d, const struct genai_graph *g,
			     const struct genai_plan_options *o,
			     struct genai_error *err)
{
	if (o->flags)
		return FAIL(d, err, GENAI_E_UNSUPPORTED, "plan flags %#x",
			    o->flags);
	if (o->n_max_inputs != g->n_inputs)
		return FAIL(d, err, GENAI_E_INVAL,
			    "%u largest shapes for %u inputs", o->n_max_inputs,
			    g->n_inputs);
	for (uint32_t i = 0; i < g->n_inputs; i++) {
		const struct genai_value *v =
			genai_graph_value(g, g->inputs[i]);

		if (v->dtype && v->dtype != o->max_inputs[i].dtype)
			return FAIL(d, err, GENAI_E_INVAL,
				    "input %s is of another type than its "
				    "largest shape",
				    v->name);
	}
	return 0;
}

int32_t plan_create(void *self, const struct genai_graph *graph,
		    const struct genai_plan_options *o,
		    struct genai_plan **out_plan, struct genai_error *err)
{
	struct device *d = self;
	struct genai_plan *p;
	uint64_t bytes;
	int32_t rc = check_options(d, graph, o, err);

	if (rc)
		return rc;
	p = take(d, sizeof(*p));
	if (!p)
		return FAIL(d, err, GENAI_E_NOMEM, "no memory for a plan");
	p->dev = d;
	p->graph = graph;
	p->stream = *o->stream;
	p->pager = *o->pager;
	p->stats.size = sizeof(p->stats);
	rc = take_tables(p, o, err);
	if (!rc)
		rc = plan_shapes(p, p->max_in, err);
	if (rc)
		goto err_plan;
	for (uint32_t i = 0; i < graph->n_nodes; i++) {
		find_visits(p, i, 0);
		find_visits(p, i, 1);
	}
	bytes = lay_out(p);
	p->stats.device_bytes = bytes;
	if (bytes)
		rc = p->stream.ops->alloc(p->stream.self, GENAI_MEM_DEVICE,
					  bytes, GENAI_TAG_ACTIVATIONS,
					  &p->arena, err);
	if (rc)
		goto err_plan;
	*out_plan = p;
	return 0;
err_plan:
	plan_free(p);
	return rc;
}

// ---- visits and pages ----

int32_t plan_visits(struct genai_plan *p, const struct genai_visit **out_visits,
		    uint32_t *out_count, struct genai_error *err)
{
	(void)err;
	*out_visits = p->visits;
	*out_count = p->n_visits;
	return 0;
}

// Rows of each visit in order, without a gap; nodes in order.
static int32_t check_pages(struct genai_plan *p,
			   const struct genai_visit_page *pages, uint32_t n,
			   uint64_t *rows, struct genai_error *err)
{
	uint32_t node = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct genai_visit *v;

		if (pages[i].visit >= p->n_visits)
			return FAIL(p->dev, err, GENAI_E_INVAL,
				    "page %u: no visit %u", i, pages[i].visit);
		v = &p->visits[pages[i].visit];
		if (v->first_node < node ||
		    pages[i].row_begin != rows[pages[i].visit] ||
		    pages[i].row_end <= pages[i].row_begin ||
		    pages[i].row_end > v->rows)
			return FAIL(p->dev, err, GENAI_E_INVAL,
				    "page %u is out of order", i);
		rows[pages[i].visit] = pages[i].row_end;
		node = v->first_node;
	}
	for (uint32_t i = 0; i < p->n_visits; i++)
		if (rows[i] != p->visits[i].rows)
			return FAIL(p->dev, err, GENAI_E_INVAL,
				    "the pages lack rows of visit %u", i);
	return 0;
}

int32_t plan_set_pages(struct genai_plan *p,
		       const struct genai_visit_page *pages, uint32_t n,
		       struct genai_error *err)
{
	const struct genai_host *h = p->dev->host;
	uint64_t *rows = take(p->dev, p->n_visits * sizeof(*rows));
	struct genai_visit_page *copy = take(p->dev, n * sizeof(*copy));
	genai_addr *place = take(p->dev, n * sizeof(*place));
	int32_t rc = 0;

	if (!rows || !copy || !place)
		rc = FAIL(p->dev, err, GENAI_E_NOMEM, "no memory for pages");
	if (!rc)
		rc = check_pages(p, pages, n, rows, err);
	h->free(h->ctx, rows);
	if (rc) {
		h->free(h->ctx, copy);
		h->free(h->ctx, place);
		return rc;
	}
	h->free(h->ctx, p->pages);
	h->free(h->ctx, p->place);
	memcpy(copy, pages, n * sizeof(*copy));
	p->pages = copy;
	p->place = place;
	p->n_pages = n;
	p->is_paged = 1;
	return 0;
}
