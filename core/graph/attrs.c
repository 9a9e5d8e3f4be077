// attrs.c - attributes of a node under construction.
#include "core/graph/builder.h"

#include <string.h>

// Names are compared one by one; no operator has a tenth of this.
#define MAX_ATTRS 256u

struct genai_bnode *genai_builder_live(struct genai_builder *b, uint32_t node)
{
	if (builder_dead(b))
		return NULL;
	if (node >= b->nodes.n || !node_at(b, node)->pub.op) {
		genai_builder_fail(b, GENAI_E_INVAL, "no node %u", node);
		return NULL;
	}
	return node_at(b, node);
}

struct genai_attr *genai_builder_attr(struct genai_builder *b, uint32_t node,
				      const char *name, uint32_t kind)
{
	struct genai_bnode *n = genai_builder_live(b, node);
	struct genai_attr *a;
	uint32_t i, count;

	if (!n)
		return NULL;
	count = n->pub.n_attrs;
	for (i = 0; i < count; i++)
		if (name && !strcmp(n->attrs[i].name, name))
			break;
	if (!name || !*name || i < count || count >= MAX_ATTRS) {
		genai_builder_fail(b, GENAI_E_FORMAT,
				   "node %u (%s): attribute \"%s\" %s", node,
				   n->pub.op, name ? name : "",
				   !name || !*name ? "has no name"
				   : i < count	   ? "appears twice"
						   : "is one too many");
		return NULL;
	}
	if (!(count & (count - 1))) { // full: 0, 1, 2, 4, ...
		a = genai_builder_alloc(b, count ? count * 2 : 1, sizeof(*a));
		if (!a)
			return NULL;
		if (count)
			memcpy(a, n->attrs, count * sizeof(*a));
		n->attrs = a;
		n->pub.attrs = a;
	}
	a = &n->attrs[count];
	memset(a, 0, sizeof(*a));
	a->size = sizeof(*a);
	a->kind = kind;
	a->tensor = GENAI_NONE;
	a->name = genai_builder_str(b, name);
	n->pub.n_attrs++;
	return b->err.code ? NULL : a;
}

static void *copy(struct genai_builder *b, const void *from, uint64_t count,
		  size_t size)
{
	void *to = genai_builder_alloc(b, count, size);

	if (to && count)
		memcpy(to, from, count * size);
	return to;
}

void genai_builder_attr_int(struct genai_builder *b, uint32_t node,
			    const char *name, int64_t v)
{
	struct genai_attr *a =
		genai_builder_attr(b, node, name, GENAI_ATTR_INT);

	if (a)
		a->i = v;
}

void genai_builder_attr_float(struct genai_builder *b, uint32_t node,
			      const char *name, double v)
{
	struct genai_attr *a =
		genai_builder_attr(b, node, name, GENAI_ATTR_FLOAT);

	if (a)
		a->f = v;
}

void genai_builder_attr_string(struct genai_builder *b, uint32_t node,
			       const char *name, const char *v, size_t bytes)
{
	struct genai_attr *a =
		genai_builder_attr(b, node, name, GENAI_ATTR_STRING);
	char *s;

	if (!a)
		return;
	s = genai_builder_alloc(b, (uint64_t)bytes + 1, 1);
	if (!s)
		return;
	if (bytes)
		memcpy(s, v, bytes);
	s[bytes] = 0;
	a->s = s;
	a->count = bytes;
}

void genai_builder_attr_ints(struct genai_builder *b, uint32_t node,
			     const char *name, const int64_t *v, size_t count)
{
	struct genai_attr *a =
		genai_builder_attr(b, node, name, GENAI_ATTR_INTS);

	if (!a)
		return;
	a->ints = copy(b, v, count, sizeof(*v));
	a->count = count;
}

void genai_builder_attr_floats(struct genai_builder *b, uint32_t node,
			       const char *name, const float *v, size_t count)
{
	struct genai_attr *a =
		genai_builder_attr(b, node, name, GENAI_ATTR_FLOATS);

	if (!a)
		return;
	a->floats = copy(b, v, count, sizeof(*v));
	a->count = count;
}

void genai_builder_attr_strings(struct genai_builder *b, uint32_t node,
				const char *name, const char *const *v,
				size_t count)
{
	struct genai_attr *a =
		genai_builder_attr(b, node, name, GENAI_ATTR_STRINGS);
	const char **s;
	size_t i;

	if (!a)
		return;
	s = genai_builder_alloc(b, count, sizeof(*s));
	for (i = 0; s && i < count; i++)
		s[i] = genai_builder_str(b, v[i]);
	a->strings = s;
	a->count = count;
}

void genai_builder_attr_tensor(struct genai_builder *b, uint32_t node,
			       const char *name, uint32_t tensor)
{
	struct genai_attr *a;

	if (builder_dead(b))
		return;
	if (tensor >= b->tensors.n) {
		genai_builder_fail(b, GENAI_E_INVAL,
				   "node %u: attribute \"%s\": no tensor %u",
				   node, name ? name : "", tensor);
		return;
	}
	a = genai_builder_attr(b, node, name, GENAI_ATTR_TENSOR);
	if (a)
		a->tensor = tensor;
}

void genai_builder_attr_graph(struct genai_builder *b, uint32_t node,
			      const char *name, struct genai_graph *g)
{
	struct genai_graph **slot;
	struct genai_attr *a;

	if (builder_dead(b) || !g) {
		genai_graph_free(g);
		if (b)
			genai_builder_fail(b, GENAI_E_INVAL,
					   "node %u: attribute \"%s\": no "
					   "graph",
					   node, name ? name : "");
		return;
	}
	slot = genai_builder_push(b, &b->subs, 1, sizeof(struct genai_graph *));
	if (!slot) {
		genai_graph_free(g);
		return;
	}
	*slot = g;
	a = genai_builder_attr(b, node, name, GENAI_ATTR_GRAPH);
	if (a)
		a->graph = g;
}
