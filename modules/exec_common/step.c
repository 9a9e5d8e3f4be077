// step.c - one step: for every node acquire its pages, launch, release.
#include "exec.h"

#include <string.h>

#define S(p) ((p)->stream->ops)
#define SELF(p) ((p)->stream->self)

static int32_t mark(struct exec_step *s)
{
	return S(s->plan)->mark(SELF(s->plan), s->stream, &s->mark, s->err);
}

static int32_t launch(struct exec_step *s, uint32_t node,
		      const struct exec_part *part)
{
	const struct exec_module *m = s->plan->m;
	int32_t rc;

	s->context = s->variant->contexts + s->launched++ * m->launch_bytes;
	rc = m->launch(s, node, part);
	s->copied = false;
	s->mark.stream = NULL;
	return rc;
}

static int32_t acquire(struct exec_step *s, uint32_t node, uint32_t page)
{
	struct exec_plan *p = s->plan;
	const struct exec_node *n = &s->variant->facts[node];
	struct genai_place place = {.size = sizeof(place)};
	struct genai_point ready = {NULL, 0};
	int32_t rc = p->pager->ops->acquire(p->pager->pager, page, s->stream,
					    &place, &ready, s->err);

	if (!rc && ready.stream)
		rc = S(p)->wait(SELF(p), s->stream, ready, s->err);
	if (!rc && place.kind == GENAI_PLACE_HOST && !p->takes_host)
		rc = EXEC_FAIL(p, s->err, GENAI_E_UNSUPPORTED,
			       "page %u was placed on the host", page);
	if (!rc && place.kind == GENAI_PLACE_TABLE && !p->experts[page].size)
		rc = EXEC_FAIL(p, s->err, GENAI_E_UNSUPPORTED,
			       "page %u was placed in a table", page);
	s->copied |= !p->stays[page];
	for (uint32_t in = p->inputs_of[p->pages[page].visit]; in;
	     in &= in - 1) {
		struct exec_tensor *t =
			&s->variant->tensors[n->in[__builtin_ctz(in)]];

		t->addr = place.addr + t->offset;
		t->experts = place.kind == GENAI_PLACE_TABLE ? &p->experts[page]
							     : NULL;
	}
	return rc;
}

static int32_t release(struct exec_step *s, uint32_t page)
{
	struct exec_plan *p = s->plan;
	int32_t rc = s->mark.stream ? 0 : mark(s);

	return rc ? rc
		  : p->pager->ops->release(p->pager->pager, page, s->mark,
					   s->err);
}

// All of it is on the device and stays: hold all parts, launch once.  The
// results are those of part by part.
static int32_t at_once(struct exec_step *s, uint32_t node, uint32_t from,
		       uint32_t end)
{
	struct exec_plan *p = s->plan;
	const struct exec_node *n = &s->variant->facts[node];
	struct exec_part part = {.part_rows = p->part_rows[node],
				 .parts = p->parts};
	int32_t rc = 0;

	for (uint32_t i = from; !rc && i < end; i++) {
		const struct genai_sweep_page *g = &p->pages[i];
		uint32_t k = (uint32_t)(g->row_begin / part.part_rows);

		rc = acquire(s, node, i);
		for (uint32_t in = p->inputs_of[g->visit]; in; in &= in - 1) {
			uint32_t x = (uint32_t)__builtin_ctz(in);

			p->parts[k * EXEC_MAX_IN + x] =
				s->variant->tensors[n->in[x]].addr;
		}
		part.n_parts = k + 1;
	}
	if (!rc)
		rc = launch(s, node, &part);
	for (uint32_t i = from; !rc && i < end; i++)
		rc = release(s, i);
	return rc;
}

// The pages of one range of rows, which begin at page from: where they end.
// *out_left: all of them were left to the host's cores.
static uint32_t part_end(const struct exec_plan *p, uint32_t from, uint32_t end,
			 bool *out_left)
{
	uint32_t to = from;

	*out_left = true;
	for (; to < end && p->pages[to].row_begin == p->pages[from].row_begin;
	     to++)
		*out_left &= p->stays[to] == GENAI_PLACE_HOST;
	return to;
}

// The rows of one range; *to is the next one's.  What is left to the host's
// cores is held until they are met.
static int32_t one_part(struct exec_step *s, uint32_t node, uint32_t from,
			uint32_t end, uint32_t *to)
{
	const struct genai_sweep_page *g = s->plan->pages;
	struct exec_part part = {.row_begin = g[from].row_begin,
				 .row_end = g[from].row_end};
	int32_t rc = 0;
	bool left;

	*to = part_end(s->plan, from, end, &left);
	part.beside = left ? EXEC_LEFT : EXEC_NOT_BESIDE;
	for (uint32_t i = from; !rc && i < *to; i++)
		rc = acquire(s, node, i);
	if (!rc)
		rc = launch(s, node, &part);
	for (uint32_t i = from; !rc && !left && i < *to; i++)
		rc = release(s, i);
	return rc;
}

// Part by part.  The host's cores are asked first, and met last: meanwhile the
// others are multiplied as they come.
static int32_t by_parts(struct exec_step *s, uint32_t node, uint32_t from,
			uint32_t end)
{
	const struct exec_plan *p = s->plan;
	struct exec_part part = {.beside = EXEC_ASK};
	bool any = false, left;
	int32_t rc = 0;

	for (uint32_t i = from; i < end && !any;)
		i = part_end(p, i, end, &any);
	if (any)
		rc = launch(s, node, &part);
	for (uint32_t i = from; !rc && i < end;)
		rc = one_part(s, node, i, end, &i);
	part.beside = EXEC_MEET;
	if (!rc && any)
		rc = launch(s, node, &part);
	for (uint32_t i = from, to; !rc && any && i < end; i = to) {
		to = part_end(p, i, end, &left);
		for (; !rc && left && i < to; i++)
			rc = release(s, i);
	}
	return rc;
}

static int32_t run_node(struct exec_step *s, uint32_t node)
{
	static const struct exec_part all = {0};
	const struct exec_plan *p = s->plan;
	uint32_t begin = p->node_pages[node], end = p->node_pages[node + 1];
	uint32_t base = begin;
	int32_t rc = 0;

	for (; !rc && base < end && !exec_by_rows(p, &p->pages[base]); base++)
		rc = acquire(s, node, base);
	if (rc)
		return rc;
	if (base == end)
		rc = launch(s, node, &all);
	else if (p->part_rows[node] && s->variant->facts[node].parts)
		rc = at_once(s, node, base, end);
	else
		rc = by_parts(s, node, base, end);
	for (uint32_t i = begin; !rc && i < base; i++)
		rc = release(s, i);
	return rc;
}

// A launch's context has to live until it is done: a variant has one for each,
// used again by every step; a part has a page of its own.
static int32_t take_contexts(struct exec_step *s)
{
	const struct exec_plan *p = s->plan;
	// with both ends of what goes on beside it
	uint64_t n = 3 * (uint64_t)p->graph->n_nodes +
		     p->node_pages[p->graph->n_nodes];

	if (s->variant->contexts)
		return 0;
	s->variant->contexts = exec_zalloc(p->host, n * p->m->launch_bytes);
	return s->variant->contexts ? 0
				    : EXEC_FAIL(p, s->err, GENAI_E_NOMEM,
						"no memory for %llu launches",
						(unsigned long long)n);
}

int32_t exec_run(struct exec_step *s, bool recording,
		 struct genai_point *out_tail)
{
	struct exec_plan *p = s->plan;
	const struct exec_module *m = p->m;
	bool paged = p->n_visits > 0;
	int32_t rc = take_contexts(s);

	*out_tail = (struct genai_point){NULL, 0};
	if (!rc && m->begin)
		rc = m->begin(s);
	s->copied = true; // whatever the stream did before
	if (!rc && paged)
		rc = p->pager->ops->step_begin(p->pager->pager, s->stream,
					       recording, s->err);
	for (uint32_t i = 0; !rc && i < p->graph->n_nodes; i++)
		if (!s->variant->facts[i].silent)
			rc = run_node(s, i);
	if (!rc && m->end)
		rc = m->end(s);
	if (!rc && paged)
		rc = p->pager->ops->step_end(p->pager->pager, s->stream,
					     out_tail, s->err);
	return rc;
}
