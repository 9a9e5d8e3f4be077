// fake_capture.c - captures and graphs of the fake driver.  A replay runs the
// nodes in an order that the graph's edges allow and a seed picks.
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/fake_impl.h"

unsigned int emu_bytes(const void *kernel);

static bool spoilt, relaxed; // the open capture
static struct CUstream_st *capturing;
static struct CUgraphExec_st *execs;

// Whether a call is allowed that a recording forbids, but for a relaxed one.
CUresult fake_not_capturing(void)
{
	if (!capturing || relaxed)
		return CUDA_SUCCESS;
	spoilt = true;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void fake_spoil(void)
{
	spoilt = true;
}

struct CUgraph_st *fake_capture(void)
{
	return capturing ? capturing->capture : NULL;
}

bool fake_has_graphs(void)
{
	return execs != NULL;
}

void fake_join_capture(struct CUstream_st *s)
{
	s->capture = capturing->capture;
	s->origin = capturing;
}

uint32_t fake_set_add(struct set *s, uint32_t v)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->v[i] == v)
			return 0;
	s->v = realloc(s->v, (s->n + 1) * sizeof(*s->v));
	s->v[s->n++] = v;
	return 1;
}

static uint32_t branch_of(struct CUgraph_st *g, struct CUstream_st *s)
{
	uint32_t b = 0;

	while (b < g->n_branches && g->branches[b] != s)
		b++;
	if (b == FAKE_BRANCHES)
		abort();
	g->branches[b] = s;
	if (b == g->n_branches)
		g->n_branches++;
	return b;
}

void fake_node_add(struct CUstream_st *s, struct op *o)
{
	struct CUgraph_st *g = s->capture;

	if (g->n == g->cap) {
		g->cap = g->cap ? g->cap * 2 : 64;
		g->nodes = realloc(g->nodes, g->cap * sizeof(*g->nodes));
	}
	o->branch = branch_of(g, s);
	o->nth = ++g->lengths[o->branch];
	o->deps = s->at.v;
	o->n_deps = s->at.n;
	s->at = (struct set){NULL, 0};
	fake_set_add(&s->at, g->n);
	g->nodes[g->n++] = o;
}

// Everything that the nodes of a set come after, themselves included.
static bool *ancestors(const struct CUgraph_st *g, const struct set *of)
{
	bool *seen = calloc(g->n + 1, 1);

	for (uint32_t k = 0; k < of->n; k++)
		seen[of->v[k]] = true;
	for (uint32_t k = g->n; k-- > 0;)
		for (uint32_t d = 0; seen[k] && d < g->nodes[k]->n_deps; d++)
			seen[g->nodes[k]->deps[d]] = true;
	return seen;
}

static bool is_within(const struct CUgraph_st *g, const struct set *nodes,
		      const struct set *of)
{
	bool *seen = ancestors(g, of), all = true;

	for (uint32_t i = 0; i < nodes->n; i++)
		all = all && seen[nodes->v[i]];
	free(seen);
	return all;
}

bool fake_orders_more(const struct CUstream_st *s, const struct CUevent_st *e)
{
	return e->capture == fake_capture() &&
	       (!s->capture || !is_within(e->capture, &e->at, &s->at));
}

// ---- replays ----

// A kernel that may begin before the one in front of it ends: what that one
// comes after, and whatever else it waits for.
static void early(struct CUgraph_st *g, struct op *o, const struct op *launch)
{
	const struct op *front = g->nodes[o->deps[0]];

	if (front->kind != OP_KERNEL)
		return;
	*o->before = *launch->clock;
	fake_join(o->before, front->before);
	for (uint32_t d = 1; d < o->n_deps; d++)
		fake_join(o->before, g->nodes[o->deps[d]]->clock);
}

// The places of the nodes for one launch: each comes after its own nodes, and
// all of them after what the launch comes after.
static void place_nodes(const struct op *launch)
{
	struct CUgraphExec_st *e = launch->exec;
	struct CUgraph_st *g = e->graph;

	for (uint32_t i = 0; i < g->n; i++) {
		struct op *o = g->nodes[i];

		if (!o->clock)
			o->clock = malloc(sizeof(*o->clock));
		if (!o->before)
			o->before = malloc(sizeof(*o->before));
		*o->clock = *launch->clock;
		for (uint32_t d = 0; d < o->n_deps; d++)
			fake_join(o->clock, g->nodes[o->deps[d]]->clock);
		*o->before = *o->clock;
		if (o->overlaps && o->n_deps)
			early(g, o, launch);
		o->line = e->lines[o->branch];
		o->at = o->clock->at[o->line] =
			launch->deps[o->branch] + o->nth;
	}
}

static bool is_ready(const struct CUgraph_st *g, const bool *done, uint32_t i)
{
	const struct op *o = g->nodes[i];
	bool ok = !done[i] && (o->kind != OP_WORD || fake_word_is_there(o));

	for (uint32_t d = 0; ok && d < o->n_deps; d++)
		ok = done[o->deps[d]];
	return ok;
}

bool fake_graph_is_ready(const struct op *launch)
{
	const struct CUgraph_st *g = launch->exec->graph;

	if (launch->held)
		return false;
	if (!launch->done)
		return !launch->exec->busy;
	for (uint32_t i = 0; i < g->n; i++)
		if (is_ready(g, launch->done, i))
			return true;
	return !launch->left;
}

bool fake_run_graph(struct op *launch)
{
	struct CUgraph_st *g = launch->exec->graph;

	if (!launch->done) {
		launch->exec->busy = launch;
		launch->done = calloc(g->n ? g->n : 1, 1);
		launch->left = g->n;
		place_nodes(launch);
	}
	// a host function lets other threads in
	launch->held = true;
	while (launch->left) {
		uint32_t ready = 0, pick = 0;

		for (uint32_t i = 0; i < g->n; i++)
			if (is_ready(g, launch->done, i) &&
			    (!ready++ || fake_dice(ready) == 0))
				pick = i;
		if (!ready)
			break;
		launch->done[pick] = true;
		launch->left--;
		fake_run_op(g->nodes[pick]);
	}
	launch->held = false;
	if (launch->left)
		return false;
	launch->exec->busy = NULL;
	return true;
}

CUresult cuGraphLaunch(CUgraphExec e, CUstream s)
{
	struct op *o;

	ENTER();
	if (s->capture)
		return fake_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	o = fake_op(OP_GRAPH);
	o->exec = e;
	// launches of one graph follow each other
	fake_join(&s->clock, &e->done);
	r = fake_enqueue(s, o);
	o->deps = calloc(e->graph->n_branches + 1, sizeof(*o->deps));
	for (uint32_t b = 0; b < e->graph->n_branches; b++) {
		uint32_t n = e->graph->lengths[b], line = e->lines[b];

		s->clock.at[line] = fake_tick(line, n);
		o->deps[b] = s->clock.at[line] - n;
	}
	s->chain = e->done = s->clock;
	return fake_leave(r);
}

// ---- captures ----

CUresult cuStreamBeginCapture_v2(CUstream s, CUstreamCaptureMode mode)
{
	ENTER();
	if (s->capture)
		return fake_leave(CUDA_ERROR_ILLEGAL_STATE);
	s->capture = calloc(1, sizeof(*s->capture));
	s->origin = s;
	capturing = s;
	relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
	spoilt = false;
	fake_alive_count++;
	return fake_leave(r);
}

static void graph_free(struct CUgraph_st *g)
{
	for (uint32_t i = 0; i < g->n; i++)
		fake_op_free(g->nodes[i]);
	free(g->nodes);
	free(g);
	fake_alive_count--;
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *out)
{
	CUresult end = CUDA_SUCCESS;
	struct CUgraph_st *g;
	ENTER_BACK();

	g = s->capture;
	*out = NULL;
	if (!g)
		return fake_leave(CUDA_ERROR_ILLEGAL_STATE);
	for (struct CUstream_st *o = fake_streams; o; o = o->next) {
		if (o->capture != g)
			continue;
		if (o != s && !is_within(g, &o->at, &s->at))
			end = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
		o->capture = NULL;
		if (o == s)
			continue;
		free(o->at.v);
		o->at = (struct set){NULL, 0};
	}
	free(s->at.v);
	s->at = (struct set){NULL, 0};
	capturing = NULL;
	if (spoilt)
		end = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (r)
		end = r;
	if (end)
		graph_free(g);
	else
		*out = g;
	return fake_leave(end);
}

// ---- graphs ----

// What the next node of the stream comes after; nodes are known by their place.
CUresult cuStreamGetCaptureInfo_v3(CUstream s, CUstreamCaptureStatus *status,
				   cuuint64_t *id, CUgraph *graph,
				   const CUgraphNode **deps,
				   const CUgraphEdgeData **data, size_t *n)
{
	static CUgraphNode *front;

	ENTER();
	*status = s->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE
			     : CU_STREAM_CAPTURE_STATUS_NONE;
	*id = 1;
	*graph = s->capture;
	*data = NULL;
	*n = s->capture ? s->at.n : 0;
	front = realloc(front, (*n + 1) * sizeof(*front));
	for (uint32_t i = 0; i < *n; i++)
		front[i] = (CUgraphNode)(void *)s->capture->nodes[s->at.v[i]];
	*deps = front;
	return fake_leave(r);
}

CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n)
{
	ENTER();
	for (uint32_t i = 0; nodes && i < *n && i < g->n; i++)
		nodes[i] = (CUgraphNode)(void *)g->nodes[g->n - 1 - i];
	*n = g->n;
	return fake_leave(r);
}

CUresult cuGraphGetEdges_v2(CUgraph g, CUgraphNode *from, CUgraphNode *to,
			    CUgraphEdgeData *data, size_t *n)
{
	size_t k = 0;

	ENTER();
	for (uint32_t i = 0; i < g->n; i++)
		for (uint32_t d = 0; d < g->nodes[i]->n_deps; d++, k++) {
			const struct op *front = g->nodes[g->nodes[i]->deps[d]];

			if (!from || k >= *n)
				continue;
			from[k] = (CUgraphNode)(void *)front;
			to[k] = (CUgraphNode)(void *)g->nodes[i];
			memset(&data[k], 0, sizeof(data[k]));
		}
	*n = k;
	return fake_leave(r);
}

static struct op *node_copy(const struct op *from)
{
	struct op *o = malloc(sizeof(*o));

	*o = *from;
	o->deps = malloc((o->n_deps + 1) * sizeof(*o->deps));
	if (o->n_deps)
		memcpy(o->deps, from->deps, o->n_deps * sizeof(*o->deps));
	if (from->params) {
		uint32_t bytes = emu_bytes(from->kernel);

		o->params = malloc(bytes);
		memcpy(o->params, from->params, bytes);
	}
	return o;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g,
				     unsigned long long flags)
{
	struct CUgraphExec_st *e;
	struct CUgraph_st *c;

	(void)flags;
	ENTER();
	c = calloc(1, sizeof(*c));
	*c = *g;
	c->nodes = calloc(g->n + 1, sizeof(*c->nodes));
	for (uint32_t i = 0; i < g->n; i++)
		c->nodes[i] = node_copy(g->nodes[i]);
	e = calloc(1, sizeof(*e));
	e->graph = c;
	for (uint32_t b = 0; b < c->n_branches; b++)
		e->lines[b] = fake_line();
	e->next = execs;
	execs = e;
	*out = e;
	fake_alive_count += 2;
	return fake_leave(r);
}

CUresult cuGraphUpload(CUgraphExec e, CUstream s)
{
	(void)e;
	(void)s;
	ENTER();
	return fake_leave(r);
}

CUresult cuGraphExecDestroy(CUgraphExec e)
{
	ENTER_BACK();
	fake_order_need(&e->done, "a graph destroyed");
	while (fake_progress())
		;
	for (uint32_t b = 0; b < e->graph->n_branches; b++)
		fake_line_free(e->lines[b]);
	for (struct CUgraphExec_st **p = &execs; *p; p = &(*p)->next)
		if (*p == e) {
			*p = e->next;
			break;
		}
	graph_free(e->graph);
	free(e);
	fake_alive_count--;
	return fake_leave(r);
}

CUresult cuGraphDestroy(CUgraph g)
{
	ENTER_BACK();
	graph_free(g);
	return fake_leave(r);
}
