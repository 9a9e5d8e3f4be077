// nodes.c - from the nodes of an unpacked graph to those of a genai_graph.
#include "core/onnx/import.h"

#include <stdlib.h>
#include <string.h>

typedef Genai__Onnx__Node node_pb;
typedef Genai__Onnx__Attribute attribute_pb;

// AttributeProto.AttributeType.
enum {
	UNDEFINED,
	FLOAT,
	INT,
	STRING,
	TENSOR,
	GRAPH,
	FLOATS,
	INTS,
	STRINGS,
};

// Models of the first IR versions name no type.
static int type_of(const attribute_pb *a)
{
	if (a->type)
		return a->type;
	if (a->has_f)
		return FLOAT;
	if (a->has_i)
		return INT;
	if (a->has_s)
		return STRING;
	if (a->t)
		return TENSOR;
	if (a->g)
		return GRAPH;
	return a->n_floats    ? FLOATS
	       : a->n_ints    ? INTS
	       : a->n_strings ? STRINGS
			      : UNDEFINED;
}

static void add_strings(struct scope *s, uint32_t node, const attribute_pb *a)
{
	const char **list =
		genai_builder_alloc(s->b, a->n_strings, sizeof(*list));
	size_t i;

	for (i = 0; list && i < a->n_strings; i++) {
		const ProtobufCBinaryData *from = &a->strings[i];
		char *text =
			genai_builder_alloc(s->b, (uint64_t)from->len + 1, 1);

		if (!text)
			return;
		if (from->len)
			memcpy(text, from->data, from->len);
		text[from->len] = 0;
		if (strlen(text) != from->len) {
			genai_builder_fail(s->b, GENAI_E_FORMAT,
					   "node %u: attribute \"%s\": a "
					   "string holds a NUL byte",
					   node, a->name);
			return;
		}
		list[i] = text;
	}
	if (list)
		genai_builder_attr_strings(s->b, node, a->name, list,
					   a->n_strings);
}

static void add_tensor(struct scope *s, uint32_t node, const attribute_pb *a)
{
	uint32_t tensor;
	int odd;

	if (!a->t) {
		genai_builder_fail(s->b, GENAI_E_FORMAT,
				   "node %u: attribute \"%s\" has no tensor",
				   node, a->name);
		return;
	}
	tensor = genai_import_tensor(s, a->t, "attribute tensor", &odd);
	if (odd)
		genai_builder_fail(
			s->b, GENAI_E_UNSUPPORTED,
			"node %u: attribute \"%s\": %s is not supported", node,
			a->name, genai_dtype_name((uint32_t)a->t->data_type));
	else
		genai_builder_attr_tensor(s->b, node, a->name, tensor);
}

static void add_graph(struct scope *s, uint32_t node, const attribute_pb *a)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_graph *g;
	int32_t rc;

	if (!a->g) {
		genai_builder_fail(s->b, GENAI_E_FORMAT,
				   "node %u: attribute \"%s\" has no graph",
				   node, a->name);
		return;
	}
	rc = genai_import_graph(s->im, s, a->g, &g, &err);
	if (rc)
		genai_builder_fail(s->b, rc, "subgraph \"%s\": %s", a->name,
				   err.text);
	else
		genai_builder_attr_graph(s->b, node, a->name, g);
}

static void add_attribute(struct scope *s, uint32_t node, const attribute_pb *a)
{
	const char *name = a->name ? a->name : "";

	if (a->ref_attr_name && *a->ref_attr_name) {
		genai_builder_fail(s->b, GENAI_E_FORMAT,
				   "node %u: attribute \"%s\" refers to a "
				   "function's \"%s\"",
				   node, name, a->ref_attr_name);
		return;
	}
	switch (type_of(a)) {
	case FLOAT:
		genai_builder_attr_float(s->b, node, name, (double)a->f);
		return;
	case INT:
		genai_builder_attr_int(s->b, node, name, a->i);
		return;
	case STRING:
		genai_builder_attr_string(s->b, node, name,
					  (const char *)a->s.data, a->s.len);
		return;
	case TENSOR:
		add_tensor(s, node, a);
		return;
	case GRAPH:
		add_graph(s, node, a);
		return;
	case FLOATS:
		genai_builder_attr_floats(s->b, node, name, a->floats,
					  a->n_floats);
		return;
	case INTS:
		genai_builder_attr_ints(s->b, node, name, a->ints, a->n_ints);
		return;
	case STRINGS:
		add_strings(s, node, a);
		return;
	default:
		genai_builder_fail(s->b, GENAI_E_UNSUPPORTED,
				   "node %u (%s): attribute \"%s\" of type %d "
				   "is not supported",
				   node, genai_builder_get_node(s->b, node)->op,
				   name, a->type);
	}
}

// The version of a domain that the model imports; 0 if it does not.
static int64_t version_of(const struct genai_import *im, const char *domain)
{
	uint32_t i = genai_names_find(&im->domains, domain);

	return i == GENAI_NONE ? 0 : im->versions[i];
}

static uint32_t resolve_input(struct scope *s, const node_pb *n,
			      const char *name)
{
	uint32_t v = genai_scope_resolve(s, name);

	if (v == GENAI_NONE)
		genai_builder_fail(s->b, GENAI_E_FORMAT,
				   "node \"%s\" (%s): its input \"%s\" does "
				   "not exist",
				   n->name ? n->name : "",
				   n->op_type ? n->op_type : "", name);
	return v;
}

// Value indices of the node's inputs and then its outputs.
static void fill_indices(struct scope *s, const node_pb *n, uint32_t *index)
{
	size_t i;

	for (i = 0; i < n->n_input && !s->b->err.code; i++)
		index[i] = *n->input[i] ? resolve_input(s, n, n->input[i])
					: GENAI_NONE;
	for (i = 0; i < n->n_output; i++)
		index[n->n_input + i] = genai_builder_find(s->b, n->output[i]);
}

void genai_import_node(struct scope *s, const node_pb *n)
{
	const char *op = n->op_type ? n->op_type : "";
	const char *domain = n->domain ? n->domain : "";
	int64_t version;
	uint32_t *index, node = GENAI_NONE;
	size_t i;

	if (!strcmp(domain, "ai.onnx"))
		domain = "";
	version = n->has_opset ? n->opset : version_of(s->im, domain);
	if (!*op || !version) {
		genai_builder_fail(s->b, GENAI_E_FORMAT,
				   "node \"%s\" (%s): %s%s%s",
				   n->name ? n->name : "", op,
				   *op ? "its domain \"" : "has no operator",
				   *op ? domain : "",
				   *op ? "\" is not in opset_import" : "");
		return;
	}
	index = malloc((n->n_input + n->n_output + 1) * sizeof(*index));
	if (!index) {
		genai_builder_nomem(s->b);
		return;
	}
	fill_indices(s, n, index);
	if (!s->b->err.code)
		node = genai_builder_node(s->b, op, domain, version, n->name,
					  index, (uint32_t)n->n_input,
					  index + n->n_input,
					  (uint32_t)n->n_output);
	free(index);
	for (i = 0; i < n->n_attribute && node != GENAI_NONE && !s->b->err.code;
	     i++)
		add_attribute(s, node, n->attribute[i]);
}
