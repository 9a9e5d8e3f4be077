// finish.c - checking, sorting and handing out a graph.
#include "core/graph/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A finished graph and what it stands on.  g is first: a genai_graph that we
// handed out is one of these.
struct owned {
	struct genai_graph g;
	struct genai_arena arena;
	struct genai_list subs;
	struct genai_file *files;
	struct genai_tensor *tensors;
	struct genai_value *values;
	struct genai_node *nodes;
	uint32_t *inputs;
	uint32_t *outputs;
};

// The sort: depth first from each node in the given order, so that a legal
// order comes out unchanged.
struct sort {
	struct genai_reads reads;
	uint8_t *state;	  // 0 new, 1 on the stack, 2 done
	uint32_t *cursor; // per node, the next read to follow
	uint32_t *stack;
	uint32_t *order;
	uint32_t depth;
	uint32_t n;
};

// Values that node i takes from this graph by name, for its subgraphs; counted
// into *n and, where list is not NULL, written there.
static int captures(struct genai_builder *b, uint32_t node, uint32_t *list,
		    uint64_t *n)
{
	const struct genai_node *p = &node_at(b, node)->pub;
	uint32_t i, j;

	for (i = 0; i < p->n_attrs; i++) {
		const struct genai_graph *g = genai_node_attr(p, i)->graph;

		for (j = 0; g && j < g->n_values; j++) {
			const struct genai_value *v = genai_graph_value(g, j);
			uint32_t at;

			if (!(v->flags & GENAI_VALUE_OUTER))
				continue;
			at = genai_builder_find(b, v->name);
			if (at == GENAI_NONE) {
				genai_builder_fail(
					b, GENAI_E_FORMAT,
					"node \"%s\" (%s): a subgraph reads "
					"\"%s\", which does not exist",
					p->name, p->op, v->name);
				return 0;
			}
			if (list)
				list[*n] = at;
			++*n;
		}
	}
	return 1;
}

static int reads_fill(struct genai_builder *b, struct genai_reads *r,
		      uint64_t *n)
{
	uint32_t i, j;

	*n = 0;
	for (i = 0; i < b->nodes.n; i++) {
		struct genai_bnode *node = node_at(b, i);

		r->begin[i] = (uint32_t)*n;
		for (j = 0; node->pub.op && j < node->pub.n_inputs; j++) {
			if (node->inputs[j] == GENAI_NONE)
				continue;
			if (r->list)
				r->list[*n] = node->inputs[j];
			++*n;
		}
		if (node->pub.op && !captures(b, i, r->list, n))
			return 0;
		if (*n >= GENAI_NONE) {
			genai_builder_fail(b, GENAI_E_LIMIT,
					   "too many node inputs");
			return 0;
		}
	}
	r->begin[i] = (uint32_t)*n;
	return 1;
}

int genai_reads_init(struct genai_builder *b, struct genai_reads *out_r)
{
	uint64_t n;

	memset(out_r, 0, sizeof(*out_r));
	out_r->begin = calloc((size_t)b->nodes.n + 1, sizeof(*out_r->begin));
	if (!out_r->begin) {
		genai_builder_nomem(b);
		return 0;
	}
	if (!reads_fill(b, out_r, &n))
		return 0;
	out_r->list = calloc((size_t)n + 1, sizeof(*out_r->list));
	if (!out_r->list) {
		genai_builder_nomem(b);
		return 0;
	}
	return reads_fill(b, out_r, &n);
}

void genai_reads_free(struct genai_reads *r)
{
	free(r->begin);
	free(r->list);
	memset(r, 0, sizeof(*r));
}

// Every value that is read must come from somewhere.
static int check_defined(struct genai_builder *b, const struct genai_reads *r)
{
	uint32_t i, j;

	for (i = 0; i < b->nodes.n; i++) {
		for (j = r->begin[i]; j < r->begin[i + 1]; j++) {
			const struct genai_value *v = value_at(b, r->list[j]);

			if (value_is_defined(v))
				continue;
			genai_builder_fail(b, GENAI_E_FORMAT,
					   "node \"%s\" (%s): its input \"%s\" "
					   "is written by no node and is no "
					   "graph input or initialiser",
					   node_at(b, i)->pub.name,
					   node_at(b, i)->pub.op, v->name);
			b->err.node = i;
			return 0;
		}
	}
	for (i = 0; i < b->outputs.n; i++) {
		const struct genai_value *v =
			value_at(b, *index_at(&b->outputs, i));

		if (value_is_defined(v))
			continue;
		genai_builder_fail(b, GENAI_E_FORMAT,
				   "graph output \"%s\" does not exist",
				   v->name);
		return 0;
	}
	return 1;
}

static const char *node_label(const struct genai_builder *b, uint32_t node)
{
	const struct genai_bnode *n = node_at(b, node);
	uint32_t i;

	for (i = 0; i < n->pub.n_outputs; i++)
		if (n->outputs[i] != GENAI_NONE)
			return value_at(b, n->outputs[i])->name;
	return n->pub.name;
}

// The top of the stack reads what `first`, further down, writes.  Written in
// the direction of the data: first -> top -> ... -> first.
static void fail_cycle(struct genai_builder *b, const struct sort *s,
		       uint32_t first)
{
	char text[400];
	size_t at;
	uint32_t d = s->depth;

	at = (size_t)snprintf(text, sizeof(text), "%s", node_label(b, first));
	while (d && at < sizeof(text) && s->stack[d - 1] != first) {
		at += (size_t)snprintf(text + at, sizeof(text) - at, " -> %s",
				       node_label(b, s->stack[--d]));
	}
	if (at >= sizeof(text)) {
		for (at = sizeof(text) - 1; (text[at - 1] & 0xc0) == 0x80;)
			at--;
		text[at - 1] = 0; // what snprintf cut may be half a character
	}
	genai_builder_fail(b, GENAI_E_FORMAT, "cycle: %s%s -> %s", text,
			   d && s->stack[d - 1] != first ? " ..." : "",
			   node_label(b, first));
	b->err.node = first;
}

static int visit(struct genai_builder *b, struct sort *s, uint32_t root)
{
	s->stack[s->depth++] = root;
	s->state[root] = 1;
	while (s->depth) {
		uint32_t node = s->stack[s->depth - 1], next = GENAI_NONE;

		while (next == GENAI_NONE &&
		       s->cursor[node] < s->reads.begin[node + 1]) {
			uint32_t v = s->reads.list[s->cursor[node]++];
			uint32_t p = value_at(b, v)->producer;

			if (p != GENAI_NONE && s->state[p] != 2)
				next = p;
		}
		if (next == GENAI_NONE) {
			s->state[node] = 2;
			s->order[s->n++] = node;
			s->depth--;
		} else if (s->state[next] == 1) {
			fail_cycle(b, s, next);
			return 0;
		} else {
			s->state[next] = 1;
			s->stack[s->depth++] = next;
		}
	}
	return 1;
}

static int sort_nodes(struct genai_builder *b, struct sort *s)
{
	size_t n = (size_t)b->nodes.n + 1;
	uint32_t i;

	if (!genai_reads_init(b, &s->reads) || !check_defined(b, &s->reads))
		return 0;
	s->state = calloc(n, sizeof(*s->state));
	s->cursor = calloc(n, sizeof(*s->cursor));
	s->stack = calloc(n, sizeof(*s->stack));
	s->order = calloc(n, sizeof(*s->order));
	if (!s->state || !s->cursor || !s->stack || !s->order) {
		genai_builder_nomem(b);
		return 0;
	}
	memcpy(s->cursor, s->reads.begin, n * sizeof(*s->cursor));
	for (i = 0; i < b->nodes.n; i++)
		if (node_at(b, i)->pub.op && !s->state[i] && !visit(b, s, i))
			return 0;
	return 1;
}

static void sort_free(struct sort *s)
{
	genai_reads_free(&s->reads);
	free(s->state);
	free(s->cursor);
	free(s->stack);
	free(s->order);
}

// Move what b holds into a graph; b is empty afterwards.
static struct genai_graph *hand_out(struct genai_builder *b,
				    const struct sort *s)
{
	struct owned *o = calloc(1, sizeof(*o));
	struct genai_graph *g;
	uint32_t i, j;

	if (!o)
		return NULL;
	o->nodes = calloc((size_t)s->n + 1, sizeof(*o->nodes));
	if (!o->nodes) {
		free(o);
		return NULL;
	}
	for (i = 0; i < s->n; i++) {
		o->nodes[i] = node_at(b, s->order[i])->pub;
		for (j = 0; j < o->nodes[i].n_outputs; j++)
			if (o->nodes[i].outputs[j] != GENAI_NONE)
				value_at(b, o->nodes[i].outputs[j])->producer =
					i;
	}
	o->files = b->files.data;
	o->tensors = b->tensors.data;
	o->values = b->values.data;
	o->inputs = b->inputs.data;
	o->outputs = b->outputs.data;
	o->subs = b->subs;
	o->arena = b->arena;
	o->arena.budget = NULL;
	g = &o->g;
	g->size = sizeof(*g);
	g->name = b->name;
	g->n_files = b->files.n;
	g->n_tensors = b->tensors.n;
	g->n_values = b->values.n;
	g->n_nodes = s->n;
	g->n_inputs = b->inputs.n;
	g->n_outputs = b->outputs.n;
	g->file_stride = sizeof(*o->files);
	g->tensor_stride = sizeof(*o->tensors);
	g->value_stride = sizeof(*o->values);
	g->node_stride = sizeof(*o->nodes);
	g->files = o->files;
	g->tensors = o->tensors;
	g->values = o->values;
	g->nodes = o->nodes;
	g->inputs = o->inputs;
	g->outputs = o->outputs;
	genai_names_free(&b->names);
	free(b->nodes.data);
	free(b);
	return g;
}

int32_t genai_builder_finish(struct genai_builder *b,
			     struct genai_graph **out_graph,
			     struct genai_error *err)
{
	struct genai_graph *g = NULL;
	struct sort s;
	int32_t rc;

	if (!b)
		return genai_fail(err, GENAI_E_NOMEM, "out of memory");
	memset(&s, 0, sizeof(s));
	if (!b->err.code && sort_nodes(b, &s)) {
		g = hand_out(b, &s);
		if (!g)
			genai_builder_nomem(b);
	}
	sort_free(&s);
	if (g) {
		*out_graph = g;
		return GENAI_OK;
	}
	rc = b->err.code;
	if (err)
		*err = b->err;
	genai_builder_close(b);
	return rc;
}

void genai_graph_free(struct genai_graph *g)
{
	struct owned *o = (struct owned *)(void *)g;
	uint32_t i;

	if (!g)
		return;
	for (i = 0; i < o->subs.n; i++)
		genai_graph_free(((struct genai_graph **)o->subs.data)[i]);
	free(o->subs.data);
	free(o->files);
	free(o->tensors);
	free(o->values);
	free(o->nodes);
	free(o->inputs);
	free(o->outputs);
	genai_arena_free(&o->arena);
	free(o);
}
