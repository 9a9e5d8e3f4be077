// submit.c - a step is asked for: what it needs is there, its shapes are found.
#include "exec.h"

#define S(p) ((p)->stream->ops)
#define SELF(p) ((p)->stream->self)

static int32_t ask_experts(struct exec_plan *p, uint32_t page,
			   struct genai_error *err)
{
	const struct genai_visit *v = &p->visits[p->pages[page].visit];
	struct genai_experts x = {.size = sizeof(x)};
	int32_t rc = p->pager->ops->experts(p->pager->pager, page, &x, err);

	if (rc)
		return rc;
	if (!(v->flags & GENAI_WEIGHT_EXPERT) || x.n != v->rows)
		return EXEC_FAIL(p, err, GENAI_E_UNSUPPORTED,
				 "page %u is a table of %u experts", page, x.n);
	p->experts[page] = x;
	return 0;
}

// Which pages stay where they are from step to step; the parts of a node that
// all do may run at once, be it what it may with the others.
static int32_t ask_resident(struct exec_plan *p, struct genai_error *err)
{
	uint32_t i = 0, kind;
	int32_t rc;

	for (uint32_t node = 0; node < p->graph->n_nodes; node++)
		for (; i < p->node_pages[node + 1]; i++) {
			rc = p->pager->ops->resident(p->pager->pager, i, &kind,
						     err);
			if (rc)
				return rc;
			p->stays[i] = (uint8_t)kind;
			if (kind == GENAI_PLACE_TABLE)
				rc = ask_experts(p, i, err);
			if (rc)
				return rc;
			if ((!kind || kind == GENAI_PLACE_HOST) &&
			    exec_by_rows(p, &p->pages[i]))
				p->part_rows[node] = 0;
		}
	return 0;
}

static int32_t check_ready(struct exec_plan *p, struct genai_error *err)
{
	const struct genai_graph *g = p->graph;

	// a stored tensor is written by nobody
	for (uint32_t o = 0; o < g->n_outputs; o++)
		if (!p->outputs[o].size &&
		    genai_graph_value(g, g->outputs[o])->tensor == GENAI_NONE)
			return EXEC_FAIL(
				p, err, GENAI_E_STATE,
				"graph output %s is not bound",
				genai_graph_value(g, g->outputs[o])->name);
	if (p->n_visits && (!p->has_pages || !p->pager))
		return EXEC_FAIL(p, err, GENAI_E_STATE,
				 "the plan was not told where its weights are");
	return p->m->check ? p->m->check(p, err) : 0;
}

int32_t exec_submit(struct genai_plan *plan, struct genai_stream *stream,
		    const struct genai_point *wait, uint32_t n_wait,
		    struct genai_point *out_signal, struct genai_error *err)
{
	struct exec_plan *p = (struct exec_plan *)plan;
	struct exec_step s = {.plan = p, .stream = stream, .err = err};
	struct exec_variant *v;
	int32_t rc = exec_variant_get(p, &v, err);

	if (!rc)
		rc = check_ready(p, err);
	if (!rc)
		rc = exec_variant_resolve(v, err);
	if (!rc && !p->submitted)
		rc = ask_resident(p, err);
	for (uint32_t i = 0; !rc && i < n_wait; i++)
		rc = S(p)->wait(SELF(p), stream, wait[i], err);
	if (rc)
		return rc;
	s.variant = v;
	p->submitted = true;
	rc = p->captured ? exec_run_captured(&s) : exec_run_eager(&s);
	// what launches keep in the variant must outlive them
	if (!rc && (out_signal || p->m->launch_bytes))
		rc = S(p)->mark(SELF(p), stream, &v->last, err);
	if (rc)
		return rc;
	p->stats.steps++;
	if (out_signal)
		*out_signal = v->last;
	return 0;
}
