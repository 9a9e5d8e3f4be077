// edit.c - changing a graph under construction.
#include "core/graph/builder.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t shifted(uint32_t index, uint32_t base)
{
	return index == GENAI_NONE ? GENAI_NONE : index + base;
}

static void copy_attr(struct genai_builder *b, uint32_t node,
		      const struct genai_attr *from, uint32_t tensor_base)
{
	struct genai_attr *a;

	switch (from->kind) {
	case GENAI_ATTR_STRING:
		genai_builder_attr_string(b, node, from->name, from->s,
					  (size_t)from->count);
		return;
	case GENAI_ATTR_INTS:
		genai_builder_attr_ints(b, node, from->name, from->ints,
					(size_t)from->count);
		return;
	case GENAI_ATTR_FLOATS:
		genai_builder_attr_floats(b, node, from->name, from->floats,
					  (size_t)from->count);
		return;
	case GENAI_ATTR_STRINGS:
		genai_builder_attr_strings(b, node, from->name, from->strings,
					   (size_t)from->count);
		return;
	case GENAI_ATTR_TENSOR:
		genai_builder_attr_tensor(b, node, from->name,
					  shifted(from->tensor, tensor_base));
		return;
	default: // a number, or a graph that stays with its owner
		a = genai_builder_attr(b, node, from->name, from->kind);
		if (!a)
			return;
		a->i = from->i;
		a->f = from->f;
		a->graph = from->graph;
	}
}

// map: the value for each of from's, or NULL, where they are value_base apart.
static void copy_node(struct genai_builder *b, const struct genai_node *from,
		      const uint32_t *map, uint32_t value_base,
		      uint32_t tensor_base)
{
	uint64_t n = (uint64_t)from->n_inputs + from->n_outputs, i;
	uint32_t *index = malloc(n ? (size_t)n * sizeof(*index) : 1);
	uint32_t node;

	if (!index) {
		genai_builder_nomem(b);
		return;
	}
	for (i = 0; i < n; i++) {
		uint32_t v = i < from->n_inputs
				     ? from->inputs[i]
				     : from->outputs[i - from->n_inputs];

		index[i] = map && v != GENAI_NONE ? map[v]
						  : shifted(v, value_base);
	}
	node = genai_builder_node(b, from->op, from->domain, from->opset,
				  from->name, index, from->n_inputs,
				  index + from->n_inputs, from->n_outputs);
	for (i = 0; i < from->n_attrs && node != GENAI_NONE; i++)
		copy_attr(b, node, genai_node_attr(from, (uint32_t)i),
			  tensor_base);
	free(index);
}

static void copy_stored(struct genai_builder *b, const struct genai_graph *g)
{
	uint32_t files = b->files.n, i;

	for (i = 0; i < g->n_files && !b->err.code; i++) {
		const struct genai_file *f = genai_graph_file(g, i);

		genai_builder_file(b, f->path, f->data, f->bytes);
	}
	for (i = 0; i < g->n_tensors && !b->err.code; i++) {
		const struct genai_tensor *t = genai_graph_tensor(g, i);

		genai_builder_tensor(b, t->file + files, t->offset, t->bytes,
				     t->dtype, t->rank, t->dims);
	}
}

void genai_builder_copy(struct genai_builder *b, const struct genai_graph *g)
{
	uint32_t tensors, values, i;

	if (builder_dead(b))
		return;
	tensors = b->tensors.n;
	values = b->values.n;
	copy_stored(b, g);
	for (i = 0; i < g->n_values && !b->err.code; i++) {
		const struct genai_value *v = genai_graph_value(g, i);
		uint32_t at = genai_builder_value(b, v->name, v->dtype, v->rank,
						  v->dims, v->symbols);

		if (at == GENAI_NONE)
			return;
		value_at(b, at)->tensor = shifted(v->tensor, tensors);
		value_at(b, at)->flags = v->flags & GENAI_VALUE_OUTER;
	}
	for (i = 0; i < g->n_inputs && !b->err.code; i++)
		genai_builder_input(b, g->inputs[i] + values);
	for (i = 0; i < g->n_nodes && !b->err.code; i++)
		copy_node(b, genai_graph_node(g, i), NULL, values, tensors);
	for (i = 0; i < g->n_outputs && !b->err.code; i++)
		genai_builder_output(b, g->outputs[i] + values);
}

// A subgraph that reads values around it finds them by names, which may change.
static bool reads_around(const struct genai_node *n)
{
	for (uint32_t i = 0; i < n->n_attrs; i++) {
		const struct genai_graph *g = genai_node_attr(n, i)->graph;

		for (uint32_t k = 0; g && k < g->n_values; k++)
			if (genai_graph_value(g, k)->flags & GENAI_VALUE_OUTER)
				return true;
	}
	return false;
}

// A value of g under its own name, or, if that is taken, one with the stage's.
static uint32_t join_value(struct genai_builder *b, const struct genai_value *v,
			   const char *stage, uint32_t tensors)
{
	size_t n = strlen(v->name) + strlen(stage) + 2;
	char *name = malloc(n);
	uint32_t at;

	if (!name) {
		genai_builder_nomem(b);
		return GENAI_NONE;
	}
	snprintf(name, n, "%s/%s", stage, v->name);
	at = genai_builder_value(
		b,
		genai_builder_find(b, v->name) == GENAI_NONE ? v->name : name,
		v->dtype, v->rank, v->dims, v->symbols);
	free(name);
	if (at != GENAI_NONE)
		value_at(b, at)->tensor = shifted(v->tensor, tensors);
	return at;
}

void genai_builder_join(struct genai_builder *b, const struct genai_graph *g,
			const char *stage, genai_builder_link link, void *ctx)
{
	uint32_t tensors, *map, i;

	if (builder_dead(b))
		return;
	tensors = b->tensors.n;
	map = malloc(((size_t)g->n_values + 1) * sizeof(*map));
	if (!map) {
		genai_builder_nomem(b);
		return;
	}
	copy_stored(b, g);
	for (i = 0; i < g->n_values && !b->err.code; i++) {
		const struct genai_value *v = genai_graph_value(g, i);
		bool input = v->flags & GENAI_VALUE_INPUT;

		map[i] = input ? link(ctx, b, v->name) : GENAI_NONE;
		if (map[i] != GENAI_NONE)
			continue;
		map[i] = join_value(b, v, stage, tensors);
		if (input && map[i] != GENAI_NONE)
			genai_builder_input(b, map[i]);
	}
	for (i = 0; i < g->n_nodes && !b->err.code; i++) {
		const struct genai_node *n = genai_graph_node(g, i);

		if (reads_around(n))
			genai_builder_fail(b, GENAI_E_UNSUPPORTED,
					   "stage %s: node %s (%s): a subgraph "
					   "reads values around it",
					   stage, n->name, n->op);
		else
			copy_node(b, n, map, 0, tensors);
	}
	for (i = 0; i < g->n_outputs && !b->err.code; i++)
		genai_builder_output(b, map[g->outputs[i]]);
	free(map);
}

void genai_builder_remove_node(struct genai_builder *b, uint32_t node)
{
	struct genai_bnode *n = genai_builder_live(b, node);
	uint32_t i;

	if (!n)
		return;
	for (i = 0; i < n->pub.n_outputs; i++)
		if (n->outputs[i] != GENAI_NONE)
			value_at(b, n->outputs[i])->producer = GENAI_NONE;
	n->pub.op = NULL;
}

void genai_builder_own(struct genai_builder *b, uint32_t value)
{
	if (!builder_dead(b) && value < b->values.n)
		value_at(b, value)->flags &= ~GENAI_VALUE_OUTER;
}

static void remove_end(struct genai_builder *b, struct genai_list *l,
		       uint32_t value, uint32_t flag)
{
	uint32_t i;

	for (i = 0; i < l->n && *index_at(l, i) != value; i++)
		;
	if (i == l->n)
		return;
	memmove(index_at(l, i), index_at(l, i) + 1,
		(l->n - i - 1) * sizeof(uint32_t));
	l->n--;
	value_at(b, value)->flags &= ~flag;
}

void genai_builder_remove_input(struct genai_builder *b, uint32_t value)
{
	if (!builder_dead(b))
		remove_end(b, &b->inputs, value, GENAI_VALUE_INPUT);
}

void genai_builder_remove_output(struct genai_builder *b, uint32_t value)
{
	if (!builder_dead(b))
		remove_end(b, &b->outputs, value, GENAI_VALUE_OUTPUT);
}

// Captures of subgraphs go by name, so they keep reading old.
void genai_builder_replace(struct genai_builder *b, uint32_t old,
			   uint32_t new_value)
{
	uint32_t i, j;

	if (builder_dead(b))
		return;
	if (old >= b->values.n || new_value >= b->values.n) {
		genai_builder_fail(b, GENAI_E_INVAL, "no value %u",
				   old >= b->values.n ? old : new_value);
		return;
	}
	for (i = 0; i < b->nodes.n; i++) {
		struct genai_bnode *n = node_at(b, i);

		for (j = 0; n->pub.op && j < n->pub.n_inputs; j++)
			if (n->inputs[j] == old)
				n->inputs[j] = new_value;
	}
}

void genai_builder_set_input(struct genai_builder *b, uint32_t node,
			     uint32_t pos, uint32_t value)
{
	struct genai_bnode *n = genai_builder_live(b, node);

	if (!n)
		return;
	if (pos >= n->pub.n_inputs ||
	    (value != GENAI_NONE && value >= b->values.n)) {
		genai_builder_fail(b, GENAI_E_INVAL,
				   "node %u (%s): no input %u or value %u",
				   node, n->pub.op, pos, value);
		return;
	}
	n->inputs[pos] = value;
}

void genai_builder_add_input(struct genai_builder *b, uint32_t node,
			     uint32_t pos, uint32_t value)
{
	struct genai_bnode *n = genai_builder_live(b, node);
	uint32_t *in;

	if (!n || pos < n->pub.n_inputs) {
		genai_builder_set_input(b, node, pos, value);
		return;
	}
	in = genai_builder_alloc(b, pos + UINT64_C(1), sizeof(*in));
	if (!in)
		return;
	for (uint32_t i = 0; i < pos; i++)
		in[i] = i < n->pub.n_inputs ? n->inputs[i] : GENAI_NONE;
	n->inputs = in;
	n->pub.inputs = in;
	n->pub.n_inputs = pos + 1;
	genai_builder_set_input(b, node, pos, value);
}

void genai_builder_set_output(struct genai_builder *b, uint32_t node,
			      uint32_t pos, uint32_t value)
{
	struct genai_bnode *n = genai_builder_live(b, node);
	uint32_t old;

	if (!n)
		return;
	if (pos >= n->pub.n_outputs || n->outputs[pos] == GENAI_NONE ||
	    value >= b->values.n || value_is_defined(value_at(b, value))) {
		genai_builder_fail(b, GENAI_E_INVAL,
				   "node %u (%s): no output %u, or value %u is "
				   "another's",
				   node, n->pub.op, pos, value);
		return;
	}
	old = n->outputs[pos];
	value_at(b, old)->producer = GENAI_NONE;
	n->outputs[pos] = value;
	value_at(b, value)->producer = node;
	genai_builder_replace(b, old, value);
}

// Readers of each value, and for each node the outputs that have a reader.
struct use {
	struct genai_reads reads;
	uint32_t *readers;
	uint32_t *wanted;
	uint32_t *dead; // nodes to remove
	uint32_t n_dead;
};

static void count_use(struct genai_builder *b, struct use *u)
{
	uint32_t i, j;

	for (i = 0; i < u->reads.begin[b->nodes.n]; i++)
		u->readers[u->reads.list[i]]++;
	for (i = 0; i < b->outputs.n; i++)
		u->readers[*index_at(&b->outputs, i)]++;
	for (i = 0; i < b->nodes.n; i++) {
		struct genai_bnode *n = node_at(b, i);

		if (!n->pub.op)
			continue;
		for (j = 0; j < n->pub.n_outputs; j++)
			u->wanted[i] += n->outputs[j] != GENAI_NONE &&
					u->readers[n->outputs[j]];
		if (!u->wanted[i])
			u->dead[u->n_dead++] = i;
	}
}

static void drop_dead(struct genai_builder *b, struct use *u)
{
	while (u->n_dead) {
		uint32_t node = u->dead[--u->n_dead], i;

		for (i = u->reads.begin[node]; i < u->reads.begin[node + 1];
		     i++) {
			uint32_t v = u->reads.list[i];
			uint32_t p = value_at(b, v)->producer;

			if (--u->readers[v] || p == GENAI_NONE)
				continue;
			if (!--u->wanted[p])
				u->dead[u->n_dead++] = p;
		}
		genai_builder_remove_node(b, node);
	}
}

void genai_builder_prune(struct genai_builder *b)
{
	struct use u;

	if (builder_dead(b))
		return;
	memset(&u, 0, sizeof(u));
	u.readers = calloc((size_t)b->values.n + 1, sizeof(*u.readers));
	u.wanted = calloc((size_t)b->nodes.n + 1, sizeof(*u.wanted));
	u.dead = calloc((size_t)b->nodes.n + 1, sizeof(*u.dead));
	if (!u.readers || !u.wanted || !u.dead) {
		genai_builder_nomem(b);
	} else if (genai_reads_init(b, &u.reads)) {
		count_use(b, &u);
		drop_dead(b, &u);
	}
	genai_reads_free(&u.reads);
	free(u.readers);
	free(u.wanted);
	free(u.dead);
}
