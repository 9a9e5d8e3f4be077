// kept.c - the order that a recording keeps, as the driver's graph has it: for
// the order check, which compares it with what the waits asked for.
//
// A unit is known by its last node, which the capturing stream names when the
// unit is enqueued.  Kernels before it, waits for words and the like are nodes
// of their own.  Not every unit has one: what is only declared, an output that
// is moved nowhere, say, comes after what its stream came after, and whatever
// comes after all of that comes after it.
#include <stdlib.h>

#include "modules/cuda_ep/cep.h"

static int32_t grow(struct cep *self, void **p, uint32_t *cap, uint32_t need,
		    size_t one, struct genai_error *err)
{
	uint32_t to = *cap ? 2 * *cap : 256;
	void *q;

	if (need <= *cap)
		return 0;
	if (to < need)
		to = need;
	q = self->host->realloc(self->host->ctx, *p, to * one, "recording");
	if (!q)
		return cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
	*p = q;
	*cap = to;
	return 0;
}

// ---- while it is recorded ----

// What the next node of the stream comes after, behind the other fronts.
static int32_t add_front(struct genai_stream *s, uint32_t *out_first,
			 uint32_t *out_n, struct genai_error *err)
{
	struct cep *self = s->self;
	struct cep_kept *k = &self->recording->kept;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	const CUgraphNode *deps = NULL;
	const CUgraphEdgeData *data = NULL;
	cuuint64_t id = 0;
	CUgraph graph = NULL;
	size_t n = 0;
	CUresult r = CU(self, cuStreamGetCaptureInfo)(s->h, &status, &id,
						      &graph, &deps, &data, &n);
	int32_t rc;

	if (r || status != CU_STREAM_CAPTURE_STATUS_ACTIVE || n > UINT16_MAX)
		return cep_cuda_fail(self, err,
				     r ? r : CUDA_ERROR_INVALID_VALUE,
				     "stream %s: what it comes after is not "
				     "known",
				     s->name);
	rc = grow(self, (void **)&k->fronts, &k->cap_fronts,
		  k->n_fronts + (uint32_t)n, sizeof(*k->fronts), err);
	if (rc)
		return rc;
	if (n)
		memcpy(k->fronts + k->n_fronts, deps, n * sizeof(*deps));
	*out_first = k->n_fronts;
	*out_n = (uint32_t)n;
	k->n_fronts += (uint32_t)n;
	return 0;
}

static bool is_taken(const struct cep_kept *k, CUgraphNode node)
{
	for (uint32_t i = k->n_units; i; i--)
		if (k->units[i - 1].node == node)
			return true;
	return false;
}

static bool is_known(const struct cep *self)
{
	return self->drv.cuStreamGetCaptureInfo && self->drv.cuGraphGetNodes &&
	       self->drv.cuGraphGetEdges;
}

int32_t cep_kept_unit(struct genai_stream *s, struct genai_error *err)
{
	struct cep *self = s->self;
	struct cep_kept *k = &self->recording->kept;
	struct cep_recorded u = {0};
	int32_t rc;

	if (!is_known(self))
		return 0;
	rc = grow(self, (void **)&k->units, &k->cap_units, k->n_units + 1,
		  sizeof(*k->units), err);
	if (!rc)
		rc = add_front(s, &u.front, &u.n_front, err);
	if (rc)
		return rc;
	if (u.n_front == 1 && !is_taken(k, k->fronts[u.front])) {
		u.node = k->fronts[u.front];
		k->n_fronts = u.front;
		u.n_front = 0;
	}
	k->units[k->n_units++] = u;
	return 0;
}

int32_t cep_kept_end(struct genai_stream *origin, struct genai_error *err)
{
	struct cep_kept *k = &origin->self->recording->kept;

	if (!is_known(origin->self))
		return 0;
	return add_front(origin, &k->end, &k->n_end, err);
}

static int by_address(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t) * (const CUgraphNode *)a;
	uintptr_t y = (uintptr_t) * (const CUgraphNode *)b;

	return x < y ? -1 : x > y;
}

static CUresult get_graph(struct cep *self, struct cep_kept *k, CUgraph graph)
{
	const struct genai_host *h = self->host;
	CUgraphEdgeData *data;
	CUresult r = CU(self, cuGraphGetNodes)(graph, NULL, &k->n_nodes);

	if (!r)
		r = CU(self, cuGraphGetEdges)(graph, NULL, NULL, NULL,
					      &k->n_edges);
	if (r)
		return r;
	k->nodes = h->alloc(h->ctx, (k->n_nodes + 1) * sizeof(*k->nodes),
			    "recording");
	k->from = h->alloc(h->ctx, (k->n_edges + 1) * sizeof(*k->from),
			   "recording");
	k->to = h->alloc(h->ctx, (k->n_edges + 1) * sizeof(*k->to),
			 "recording");
	data = h->alloc(h->ctx, (k->n_edges + 1) * sizeof(*data), "recording");
	if (!k->nodes || !k->from || !k->to || !data)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (!r && k->n_nodes)
		r = CU(self, cuGraphGetNodes)(graph, k->nodes, &k->n_nodes);
	if (!r && k->n_edges)
		r = CU(self, cuGraphGetEdges)(graph, k->from, k->to, data,
					      &k->n_edges);
	h->free(h->ctx, data);
	return r;
}

int32_t cep_kept_graph(struct genai_recording *rec, CUgraph graph,
		       struct genai_error *err)
{
	struct cep *self = rec->self;
	struct cep_kept *k = &rec->kept;
	CUresult r;

	if (!is_known(self))
		return 0;
	r = get_graph(self, k, graph);
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		return cep_fail(self, err, GENAI_E_NOMEM,
				"no memory for the edges of a recording");
	if (r)
		return cep_cuda_fail(self, err, r,
				     "the edges of a recording are not known");
	qsort(k->nodes, k->n_nodes, sizeof(*k->nodes), by_address);
	return 0;
}

void cep_kept_free(struct genai_recording *rec)
{
	const struct genai_host *h = rec->self->host;
	struct cep_kept *k = &rec->kept;

	h->free(h->ctx, k->units);
	h->free(h->ctx, k->fronts);
	h->free(h->ctx, k->nodes);
	h->free(h->ctx, k->from);
	h->free(h->ctx, k->to);
}

// ---- when it is asked for ----

struct edges {
	const struct cep_kept *k;
	uint64_t *number;  // of each node
	uint32_t *missing; // per node: of a front, how much is not before it
	struct genai_edge *out;
	uint64_t cap, n;
};

static void add(struct edges *e, uint64_t before, uint64_t after)
{
	if (e->n < e->cap)
		e->out[e->n] = (struct genai_edge){before, after};
	e->n++;
}

static size_t index_of(const struct cep_kept *k, CUgraphNode node)
{
	const CUgraphNode *at =
		bsearch(&node, k->nodes, k->n_nodes, sizeof(node), by_address);

	return at ? (size_t)(at - k->nodes) : k->n_nodes;
}

static uint64_t number_of(const struct edges *e, CUgraphNode node)
{
	return e->number[index_of(e->k, node)];
}

static void number_nodes(struct edges *e)
{
	const struct cep_kept *k = e->k;
	uint64_t next = k->n_units;

	memset(e->number, 0, (k->n_nodes + 1) * sizeof(*e->number));
	for (uint32_t i = 0; i < k->n_units; i++)
		if (k->units[i].node)
			e->number[index_of(k, k->units[i].node)] = i + 1;
	for (size_t i = 0; i <= k->n_nodes; i++)
		if (!e->number[i])
			e->number[i] = ++next;
}

// Edges of the graph; those that nothing comes before come after the start.
static void list_graph(struct edges *e)
{
	const struct cep_kept *k = e->k;

	memset(e->missing, 0, (k->n_nodes + 1) * sizeof(*e->missing));
	for (size_t i = 0; i < k->n_edges; i++) {
		add(e, number_of(e, k->from[i]), number_of(e, k->to[i]));
		e->missing[index_of(k, k->to[i])]++;
	}
	for (size_t i = 0; i < k->n_nodes; i++)
		if (!e->missing[i])
			add(e, GENAI_EDGE_START, e->number[i]);
}

static bool is_in(const CUgraphNode *list, uint32_t n, CUgraphNode node)
{
	uint32_t i = 0;

	while (i < n && list[i] != node)
		i++;
	return i < n;
}

static bool is_within(const CUgraphNode *a, uint32_t n, const CUgraphNode *b,
		      uint32_t n_b)
{
	bool all = true;

	for (uint32_t i = 0; all && i < n; i++)
		all = is_in(b, n_b, a[i]);
	return all;
}

static void list_front(struct edges *e, uint32_t first, uint32_t n,
		       uint64_t after)
{
	for (uint32_t i = 0; i < n; i++)
		add(e, number_of(e, e->k->fronts[first + i]), after);
	if (!n)
		add(e, GENAI_EDGE_START, after);
}

// A unit without a node: after its front, before whatever has all of that
// before it.
static void list_empty(struct edges *e, uint32_t unit)
{
	const struct cep_kept *k = e->k;
	const struct cep_recorded *u = &k->units[unit];
	const CUgraphNode *front = k->fronts + u->front;

	list_front(e, u->front, u->n_front, unit + UINT64_C(1));
	for (size_t i = 0; i < k->n_nodes; i++)
		e->missing[i] = u->n_front;
	for (size_t i = 0; i < k->n_edges; i++)
		if (is_in(front, u->n_front, k->from[i]))
			e->missing[index_of(k, k->to[i])]--;
	for (size_t i = 0; i < k->n_nodes; i++)
		if (!e->missing[i])
			add(e, unit + UINT64_C(1), e->number[i]);
	for (uint32_t i = unit + 1; i < k->n_units; i++)
		if (!k->units[i].node &&
		    is_within(front, u->n_front, k->fronts + k->units[i].front,
			      k->units[i].n_front))
			add(e, unit + UINT64_C(1), i + UINT64_C(1));
	if (is_within(front, u->n_front, k->fronts + k->end, k->n_end))
		add(e, unit + UINT64_C(1), GENAI_EDGE_END);
}

int32_t cep_graph_edges(void *ctx, struct genai_recording *rec,
			struct genai_edge *out_edges, uint64_t cap,
			uint64_t *out_n, struct genai_error *err)
{
	struct cep *self = ctx;
	const struct genai_host *h = self->host;
	const struct cep_kept *k = &rec->kept;
	struct edges e = {.k = k, .out = out_edges, .cap = cap};

	if (!is_known(self))
		return cep_fail(self, err, GENAI_E_NOSYS,
				"the driver does not tell what a recording "
				"keeps");
	e.number = h->alloc(h->ctx, (k->n_nodes + 1) * sizeof(*e.number),
			    "recording");
	e.missing = h->alloc(h->ctx, (k->n_nodes + 1) * sizeof(*e.missing),
			     "recording");
	if (e.number && e.missing) {
		number_nodes(&e);
		list_graph(&e);
		list_front(&e, k->end, k->n_end, GENAI_EDGE_END);
		for (uint32_t i = 0; i < k->n_units; i++)
			if (!k->units[i].node)
				list_empty(&e, i);
		*out_n = e.n;
	}
	h->free(h->ctx, e.number);
	h->free(h->ctx, e.missing);
	if (e.number && e.missing)
		return 0;
	return cep_fail(self, err, GENAI_E_NOMEM,
			"no memory for the edges of a recording");
}
