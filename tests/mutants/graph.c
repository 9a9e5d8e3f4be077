// graph.c - operators that are computed wrongly: the graph that the executor
// behind sees lacks an attribute (no-attr-NAME) or an input (no-input-N), has
// one twice (same-input-N) or another operator (op-FROM-TO).  Or one that is
// listed is never carried (refuses-NAME).
#include <stdlib.h>
#include <string.h>

#include "tests/mutants/device.h"

#define MOST_NODES 64
#define MOST_ATTRS 16
#define MOST_INPUTS 20

// Of one plan at a time.
static struct genai_graph graph;
static struct genai_node nodes[MOST_NODES];
static struct genai_attr attrs[MOST_NODES][MOST_ATTRS];
static uint32_t inputs[MOST_NODES][MOST_INPUTS];

static const char *after(const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(mutant, prefix, n) ? NULL : mutant + n;
}

static void drop_attr(struct genai_node *n, struct genai_attr *room,
		      const char *name)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < n->n_attrs && count < MOST_ATTRS; i++) {
		const struct genai_attr *a = genai_node_attr(n, i);

		if (strcmp(a->name, name))
			room[count++] = *a;
	}
	n->attrs = room;
	n->attr_stride = sizeof(*room);
	n->n_attrs = count;
}

static void drop_input(struct genai_node *n, uint32_t *room, uint32_t k)
{
	if (k >= n->n_inputs || n->n_inputs > MOST_INPUTS)
		return;
	memcpy(room, n->inputs, n->n_inputs * sizeof(*room));
	room[k] = GENAI_NONE;
	n->inputs = room;
}

// Input k is what the one before it is.
static void same_input(struct genai_node *n, uint32_t *room, uint32_t k)
{
	if (!k || k >= n->n_inputs || n->n_inputs > MOST_INPUTS)
		return;
	memcpy(room, n->inputs, n->n_inputs * sizeof(*room));
	room[k] = room[k - 1];
	n->inputs = room;
}

static void other_op(struct genai_node *n, const char *from)
{
	const char *to = strchr(from, '-');

	if (to && strlen(n->op) == (size_t)(to - from) &&
	    !strncmp(n->op, from, (size_t)(to - from)))
		n->op = to + 1;
}

int32_t mutant_refuse(const struct genai_graph *g, struct genai_error *err)
{
	const char *op = after("refuses-");
	const char *sum = is("legal-sums") ? "ReduceSum" : NULL;

	for (uint32_t i = 0; (op || sum) && i < g->n_nodes; i++) {
		const struct genai_node *n = genai_graph_node(g, i);

		if (op && !strcmp(n->op, op))
			return mutant_fail(err, GENAI_E_UNSUPPORTED, op);
		if (sum && !strcmp(n->op, sum) &&
		    genai_graph_value(g, n->inputs[0])->dtype != GENAI_DT_I64)
			return mutant_fail(err, GENAI_E_UNSUPPORTED, sum);
	}
	return 0;
}

const struct genai_graph *mutant_graph(const struct genai_graph *g)
{
	const char *attr = after("no-attr-"), *input = after("no-input-");
	const char *op = after("op-"), *same = after("same-input-");

	if ((!attr && !input && !op && !same) || g->n_nodes > MOST_NODES)
		return g;
	graph = *g;
	graph.nodes = nodes;
	graph.node_stride = sizeof(nodes[0]);
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		nodes[i] = *genai_graph_node(g, i);
		if (attr)
			drop_attr(&nodes[i], attrs[i], attr);
		if (input)
			drop_input(&nodes[i], inputs[i], (uint32_t)atoi(input));
		if (same)
			same_input(&nodes[i], inputs[i], (uint32_t)atoi(same));
		if (op)
			other_op(&nodes[i], op);
	}
	return &graph;
}
