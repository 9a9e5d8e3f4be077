// plan.c - planning a graph: its largest shapes, the arena of activations.
#include "plan.h"

#include <string.h>

#define ALIGN 64

static void *zalloc(struct cref_device *dev, uint64_t bytes)
{
	void *m = dev->host->alloc(dev->host->ctx, bytes ? bytes : 1, "plan");

	if (m)
		memset(m, 0, bytes);
	return m;
}

// ---- arena ----

// First fit over what is live at the same time.  The largest shape decides;
// smaller ones use the same places.
struct live {
	uint64_t begin, end;
	uint32_t last; // node that reads it last
};

static int32_t last_use(struct genai_plan *p, struct cref_shape *s,
			uint32_t **out_last, struct genai_error *err)
{
	const struct genai_graph *g = p->graph;
	uint32_t *last = zalloc(p->dev, g->n_values * sizeof(*last));

	if (!last)
		return CREF_FAIL(p->dev, err, GENAI_E_NOMEM,
				 "no memory for a plan");
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct genai_node *n = genai_graph_node(g, i);

		for (uint32_t k = 0; s->runs[i] && k < n->n_inputs; k++)
			if (n->inputs[k] != GENAI_NONE)
				last[p->root[n->inputs[k]]] = i;
		for (uint32_t k = 0; s->runs[i] && k < n->n_outputs; k++)
			if (n->outputs[k] != GENAI_NONE)
				last[n->outputs[k]] = i;
	}
	*out_last = last;
	return 0;
}

static uint64_t first_fit(const struct live *live, uint32_t n, uint64_t bytes)
{
	uint64_t at = 0;
	uint32_t i = 0;

	// live is sorted by begin
	while (i < n) {
		if (live[i].begin >= at + bytes)
			break;
		if (live[i].end > at)
			at = live[i].end;
		i++;
	}
	return at;
}

static void insert(struct live *live, uint32_t *n, struct live l)
{
	uint32_t i = (*n)++;

	while (i && live[i - 1].begin > l.begin) {
		live[i] = live[i - 1];
		i--;
	}
	live[i] = l;
}

static int32_t layout(struct genai_plan *p, struct cref_shape *s,
		      struct genai_error *err)
{
	const struct genai_graph *g = p->graph;
	struct live *live = zalloc(p->dev, g->n_values * sizeof(*live));
	uint32_t *last = NULL, n_live = 0;
	int32_t rc = last_use(p, s, &last, err);

	if (!live && !rc)
		rc = CREF_FAIL(p->dev, err, GENAI_E_NOMEM,
			       "no memory for a plan");
	for (uint32_t i = 0; !rc && i < g->n_nodes; i++) {
		const struct genai_node *n = genai_graph_node(g, i);
		uint32_t kept = 0;

		for (uint32_t k = 0; s->runs[i] && k < n->n_outputs; k++) {
			uint32_t v = n->outputs[k];
			uint64_t bytes;

			if (v == GENAI_NONE || s->where[v] != CREF_ARENA)
				continue;
			bytes = (cref_tensor_bytes(&s->tensors[v]) + ALIGN -
				 1) /
				ALIGN * ALIGN;
			p->max_bytes[v] = bytes;
			p->offset[v] = first_fit(live, n_live, bytes);
			insert(live, &n_live,
			       (struct live){p->offset[v], p->offset[v] + bytes,
					     last[v]});
			if (p->arena_bytes < p->offset[v] + bytes)
				p->arena_bytes = p->offset[v] + bytes;
		}
		for (uint32_t k = 0; k < n_live; k++)
			if (live[k].last > i)
				live[kept++] = live[k];
		n_live = kept;
	}
	p->workspace_bytes = (s->workspace_bytes + ALIGN - 1) / ALIGN * ALIGN;
	p->dev->host->free(p->dev->host->ctx, live);
	p->dev->host->free(p->dev->host->ctx, last);
	return rc;
}

// ---- create, destroy ----

void cref_plan_free(struct genai_plan *p)
{
	const struct genai_host *host;
	struct genai_plan **at;

	if (!p)
		return;
	host = p->dev->host;
	pthread_mutex_lock(&p->dev->lock);
	for (at = &p->dev->plans; *at && *at != p; at = &(*at)->next)
		;
	if (*at)
		*at = p->next;
	pthread_mutex_unlock(&p->dev->lock);
	for (uint32_t i = 0; i < p->n_shapes; i++)
		cref_shape_free(p->shapes[i]);
	host->free(host->ctx, p->max_inputs);
	host->free(host->ctx, p->bound_in);
	host->free(host->ctx, p->bound_out);
	host->free(host->ctx, p->root);
	host->free(host->ctx, p->output_of);
	host->free(host->ctx, p->input_of);
	host->free(host->ctx, p->offset);
	host->free(host->ctx, p->max_bytes);
	host->free(host->ctx, p->visits);
	host->free(host->ctx, p->columns);
	host->free(host->ctx, p->pages);
	host->free(host->ctx, p->node_pages);
	host->free(host->ctx, p->place);
	host->free(host->ctx, p);
}

static int32_t plan_tables(struct genai_plan *p, struct genai_error *err)
{
	const struct genai_graph *g = p->graph;
	struct cref_device *d = p->dev;

	p->max_inputs = zalloc(d, g->n_inputs * sizeof(*p->max_inputs));
	p->bound_in = zalloc(d, g->n_inputs * sizeof(*p->bound_in));
	p->bound_out = zalloc(d, g->n_outputs * sizeof(*p->bound_out));
	p->root = zalloc(d, g->n_values * sizeof(*p->root));
	p->output_of = zalloc(d, g->n_values * sizeof(*p->output_of));
	p->input_of = zalloc(d, g->n_values * sizeof(*p->input_of));
	p->offset = zalloc(d, g->n_values * sizeof(*p->offset));
	p->max_bytes = zalloc(d, g->n_values * sizeof(*p->max_bytes));
	if (!p->max_inputs || !p->bound_in || !p->bound_out || !p->root ||
	    !p->output_of || !p->input_of || !p->offset || !p->max_bytes)
		return CREF_FAIL(d, err, GENAI_E_NOMEM,
				 "no memory for a plan of %u values",
				 g->n_values);
	for (uint32_t v = 0; v < g->n_values; v++) {
		p->root[v] = v;
		p->output_of[v] = p->input_of[v] = GENAI_NONE;
	}
	for (uint32_t i = 0; i < g->n_inputs; i++)
		p->input_of[g->inputs[i]] = i;
	for (uint32_t i = 0; i < g->n_outputs; i++)
		p->output_of[g->outputs[i]] = i;
	return 0;
}

static int32_t check_options(struct cref_device *dev,
			     const struct genai_graph *g,
			     const struct genai_plan_options *o,
			     struct genai_error *err)
{
	if (o->flags)
		return CREF_FAIL(dev, err, GENAI_E_UNSUPPORTED,
				 "unknown plan flags %#x", o->flags);
	if (o->n_max_inputs != g->n_inputs)
		return CREF_FAIL(dev, err, GENAI_E_INVAL,
				 "%u largest shapes for %u graph inputs",
				 o->n_max_inputs, g->n_inputs);
	for (uint32_t i = 0; i < g->n_inputs; i++) {
		const struct genai_value *v =
			genai_graph_value(g, g->inputs[i]);

		if (v->dtype && v->dtype != o->max_inputs[i].dtype)
			return CREF_FAIL(dev, err, GENAI_E_INVAL,
					 "graph input %s has type %u, its "
					 "largest shape %u",
					 v->name, v->dtype,
					 o->max_inputs[i].dtype);
	}
	return 0;
}

int32_t cref_plan_create(void *self, const struct genai_graph *graph,
			 const struct genai_plan_options *o,
			 struct genai_plan **out_plan, struct genai_error *err)
{
	struct cref_device *dev = self;
	struct genai_plan *p;
	int32_t rc = check_options(dev, graph, o, err);

	if (rc)
		return rc;
	p = zalloc(dev, sizeof(*p));
	if (!p)
		return CREF_FAIL(dev, err, GENAI_E_NOMEM,
				 "no memory for a plan");
	p->dev = dev;
	p->graph = graph;
	p->stream = o->stream;
	p->barrier = o->barrier;
	p->pager = o->pager;
	p->stats.size = sizeof(p->stats);
	rc = plan_tables(p, err);
	if (!rc) {
		memcpy(p->max_inputs, o->max_inputs,
		       graph->n_inputs * sizeof(*p->max_inputs));
		rc = cref_shape_create(p, p->max_inputs, &p->shapes[0], err);
	}
	if (rc)
		goto err_plan;
	p->n_shapes = 1;
	rc = layout(p, p->shapes[0], err);
	if (!rc)
		rc = cref_find_visits(p, p->shapes[0], err);
	if (!rc && p->arena_bytes + p->workspace_bytes)
		rc = p->stream->ops->alloc(p->stream->self, GENAI_MEM_DEVICE,
					   p->arena_bytes + p->workspace_bytes,
					   GENAI_TAG_ACTIVATIONS, &p->arena,
					   err);
	if (rc)
		goto err_plan;
	p->stats.device_bytes = p->arena_bytes + p->workspace_bytes;
	p->stats.host_nodes = p->shapes[0]->n_folded;
	pthread_mutex_lock(&dev->lock);
	p->next = dev->plans;
	dev->plans = p;
	pthread_mutex_unlock(&dev->lock);
	*out_plan = p;
	return 0;
err_plan:
	cref_plan_free(p);
	return rc;
}

// ---- shapes ----

static bool same_view(const struct genai_view *a, const struct genai_view *b)
{
	return a->size == b->size && a->rank == b->rank &&
	       a->dtype == b->dtype &&
	       !memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) &&
	       !memcmp(a->strides, b->strides, a->rank * sizeof(a->strides[0]));
}

static bool same_bindings(const struct genai_plan *p,
			  const struct cref_shape *s)
{
	for (uint32_t i = 0; i < p->graph->n_inputs; i++)
		if (!same_view(&s->inputs[i], &p->bound_in[i]))
			return false;
	for (uint32_t i = 0; i < p->graph->n_outputs; i++)
		if (!same_view(&s->outputs[i], &p->bound_out[i]))
			return false;
	return true;
}

static bool is_recorded(const struct genai_plan *p, const struct cref_shape *s)
{
	for (uint32_t i = 0; i < p->n_recorded; i++)
		if (p->recorded[i].shape == s)
			return true;
	return false;
}

// A place in the cache: a free one, else the oldest whose work is done.
static int32_t cache_slot(struct genai_plan *p, uint32_t *out_i,
			  struct genai_error *err)
{
	uint32_t best = GENAI_NONE;

	if (p->n_shapes < 4) {
		*out_i = p->n_shapes;
		return 0;
	}
	for (uint32_t i = 1; i < p->n_shapes; i++) {
		struct cref_shape *s = p->shapes[i];

		if (is_recorded(p, s) ||
		    p->stream->ops->poll(p->stream->self, s->last, NULL) ==
			    GENAI_PENDING)
			continue;
		if (best == GENAI_NONE || s->used < p->shapes[best]->used)
			best = i;
	}
	if (best == GENAI_NONE && p->n_shapes < CREF_MAX_SHAPES)
		best = p->n_shapes;
	if (best == GENAI_NONE)
		return CREF_FAIL(p->dev, err, GENAI_E_BUSY,
				 "steps of %u different shapes are queued",
				 p->n_shapes);
	*out_i = best;
	return 0;
}

static int32_t check_fits(struct genai_plan *p, struct cref_shape *s,
			  struct genai_error *err)
{
	if (s->workspace_bytes > p->workspace_bytes)
		return CREF_FAIL(p->dev, err, GENAI_E_INVAL,
				 "this step needs %llu bytes of workspace, "
				 "planned were %llu",
				 (unsigned long long)s->workspace_bytes,
				 (unsigned long long)p->workspace_bytes);
	for (uint32_t v = 0; v < p->graph->n_values; v++)
		if (s->where[v] == CREF_ARENA && p->root[v] == v &&
		    cref_tensor_bytes(&s->tensors[v]) > p->max_bytes[v])
			return CREF_FAIL(p->dev, err, GENAI_E_INVAL,
					 "value %s needs %llu bytes, planned "
					 "were %llu",
					 s->tensors[v].name,
					 (unsigned long long)cref_tensor_bytes(
						 &s->tensors[v]),
					 (unsigned long long)p->max_bytes[v]);
	return 0;
}

int32_t cref_plan_shape(struct genai_plan *p, struct cref_shape **out_shape,
			struct genai_error *err)
{
	struct cref_shape *s;
	uint32_t at = 0;
	int32_t rc;

	for (uint32_t i = 0; i < p->graph->n_inputs; i++)
		if (!p->bound_in[i].size)
			return CREF_FAIL(
				p->dev, err, GENAI_E_STATE,
				"graph input %s is not bound",
				genai_graph_value(p->graph, p->graph->inputs[i])
					->name);
	for (uint32_t i = 0; i < p->n_shapes; i++) {
		// the first is the largest, made before anything was bound
		if (i && same_bindings(p, p->shapes[i])) {
			p->shapes[i]->used = ++p->clock;
			*out_shape = p->shapes[i];
			return 0;
		}
	}
	rc = cache_slot(p, &at, err);
	if (rc)
		return rc;
	rc = cref_shape_create(p, p->bound_in, &s, err);
	if (rc)
		return rc;
	rc = check_fits(p, s, err);
	if (rc) {
		cref_shape_free(s);
		return rc;
	}
	if (at == p->n_shapes)
		p->n_shapes++;
	else
		cref_shape_free(p->shapes[at]);
	p->shapes[at] = s;
	s->used = ++p->clock;
	*out_shape = s;
	return 0;
}
