/* genai/graph.h - the graph that an executor reads.
 * Owns: plain, immutable data: values, nodes, attributes, stored tensors.
 * Does not know: files' formats, execution.
 * The core owns a graph and everything reachable from it; an executor borrows
 * it from plan_create until plan_destroy.  Arrays have a stride, so a longer
 * struct of a newer core stays readable: use genai_graph_node() and its kin,
 * never []. */
#ifndef GENAI_GRAPH_H
#define GENAI_GRAPH_H

#include <genai/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct genai_graph;

/* A file, or a block of memory, that stored tensors lie in.  data is a
 * read-only mapping of the whole file (or the block), valid as long as the
 * graph; bytes is its length. */
struct genai_file {
	uint32_t size;
	uint32_t flags; /* 0 */
	const char *path; /* for messages; "" for a block of memory */
	const void *data;
	uint64_t bytes;
};

/* A stored tensor (initialiser, or the value of a Constant node).  Its bytes
 * are files[file].data + offset, little endian, dense, row-major; bytes is
 * exactly what dtype and dims need (checked at import). */
struct genai_tensor {
	uint32_t size;
	uint32_t dtype;
	uint32_t rank;
	uint32_t file;
	uint64_t offset;
	uint64_t bytes;
	int64_t dims[GENAI_MAX_RANK];
};

/* A value: the edge between nodes.  Unknown dims are -1 and may carry a
 * symbol; rank is GENAI_NONE when the shape is not known at all. */
struct genai_value {
	uint32_t size;
	uint32_t dtype; /* GENAI_DT_NONE if not declared */
	const char *name;
	uint32_t rank;
	uint32_t tensor;   /* index of the stored tensor, or GENAI_NONE */
	uint32_t producer; /* node that writes it, or GENAI_NONE */
	uint32_t flags;	   /* GENAI_VALUE_* */
	int64_t dims[GENAI_MAX_RANK];
	const char *symbols[GENAI_MAX_RANK]; /* NULL where none */
};
#define GENAI_VALUE_INPUT 1u
#define GENAI_VALUE_OUTPUT 2u
#define GENAI_VALUE_OUTER 4u /* of a subgraph: the enclosing graph's value of
				the same name */

#define GENAI_ATTR_INT 1u
#define GENAI_ATTR_FLOAT 2u
#define GENAI_ATTR_STRING 3u
#define GENAI_ATTR_TENSOR 4u
#define GENAI_ATTR_GRAPH 5u
#define GENAI_ATTR_INTS 6u
#define GENAI_ATTR_FLOATS 7u
#define GENAI_ATTR_STRINGS 8u

struct genai_attr {
	uint32_t size;
	uint32_t kind; /* GENAI_ATTR_* */
	const char *name;
	int64_t i;
	double f;
	const char *s;	     /* NUL-terminated copy */
	uint64_t count;	     /* of ints, floats, strings; bytes of s */
	const int64_t *ints;
	const float *floats;
	const char *const *strings;
	uint32_t tensor; /* index into the graph's tensors, or GENAI_NONE */
	uint32_t reserved;
	const struct genai_graph *graph;
};

/* A node.  inputs and outputs are value indices; GENAI_NONE is an omitted
 * optional one (its position counts). */
struct genai_node {
	uint32_t size;
	uint32_t n_inputs;
	uint32_t n_outputs;
	uint32_t n_attrs;
	const char *name;
	const char *op;
	const char *domain; /* "" for ai.onnx */
	int64_t opset;	    /* version of the domain that the model imports */
	const uint32_t *inputs;
	const uint32_t *outputs;
	const struct genai_attr *attrs;
	uint32_t attr_stride;
	uint32_t reserved;
};

/* Nodes are in an order in which every input is written before it is read. */
struct genai_graph {
	uint32_t size;
	uint32_t n_files;
	uint32_t n_tensors;
	uint32_t n_values;
	uint32_t n_nodes;
	uint32_t n_inputs;  /* without stored tensors */
	uint32_t n_outputs;
	uint32_t file_stride;
	uint32_t tensor_stride;
	uint32_t value_stride;
	uint32_t node_stride;
	uint32_t reserved;
	const char *name;
	const struct genai_file *files;
	const struct genai_tensor *tensors;
	const struct genai_value *values;
	const struct genai_node *nodes;
	const uint32_t *inputs;	 /* value indices */
	const uint32_t *outputs; /* value indices */
};

#define GENAI_AT_(base, stride, i, type)                                       \
	((const struct type *)(const void *)((const char *)(base) +            \
					     (size_t)(stride) * (i)))

static inline const struct genai_file *
genai_graph_file(const struct genai_graph *g, uint32_t i)
{
	return GENAI_AT_(g->files, g->file_stride, i, genai_file);
}

static inline const struct genai_tensor *
genai_graph_tensor(const struct genai_graph *g, uint32_t i)
{
	return GENAI_AT_(g->tensors, g->tensor_stride, i, genai_tensor);
}

static inline const struct genai_value *
genai_graph_value(const struct genai_graph *g, uint32_t i)
{
	return GENAI_AT_(g->values, g->value_stride, i, genai_value);
}

static inline const struct genai_node *
genai_graph_node(const struct genai_graph *g, uint32_t i)
{
	return GENAI_AT_(g->nodes, g->node_stride, i, genai_node);
}

static inline const struct genai_attr *
genai_node_attr(const struct genai_node *n, uint32_t i)
{
	return GENAI_AT_(n->attrs, n->attr_stride, i, genai_attr);
}

#ifdef __cplusplus
}
#endif
#endif
