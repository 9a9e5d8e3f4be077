/* build.h - building a genai_graph: from a file, from another graph, by hand.
 * Owns: a mutable list of values, nodes and stored tensors; names are unique.
 * Does not know: ONNX files, execution.
 *
 * Errors are sticky: the first failure is kept, later calls do nothing and
 * return GENAI_NONE, finish() reports it.  So code that builds reads as a list.
 * Threads: one per builder.  A finished graph is immutable, any thread. */
#ifndef GENAI_CORE_GRAPH_BUILD_H
#define GENAI_CORE_GRAPH_BUILD_H

#include <genai/graph.h>

struct genai_builder;

/* NULL when out of memory; every function accepts a NULL builder (then does
 * nothing, and finish() reports GENAI_E_NOMEM). */
struct genai_builder *genai_builder_open(const char *name);
void genai_builder_close(struct genai_builder *b);

/* Append all of g (same indices when b is empty).  Files' data is borrowed: g's
 * files must outlive the result.  Everything else is copied; subgraphs of
 * attributes are borrowed. */
void genai_builder_copy(struct genai_builder *b, const struct genai_graph *g);

/* The value that an input of a graph is, or GENAI_NONE: an input of its own. */
typedef uint32_t (*genai_builder_link)(void *ctx, struct genai_builder *b,
				       const char *name);
/* Append g, whose inputs may be values that are there.  A name that is taken
 * becomes "STAGE/NAME".  GENAI_E_UNSUPPORTED: a subgraph that reads values
 * around it. */
void genai_builder_join(struct genai_builder *b, const struct genai_graph *g,
			const char *stage, genai_builder_link link, void *ctx);

/* A file mapping (borrowed).  Returns its index. */
uint32_t genai_builder_file(struct genai_builder *b, const char *path,
			    const void *data, uint64_t bytes);
/* A stored tensor in a file; checks that dtype and dims need exactly bytes and
 * that they lie inside the file. */
uint32_t genai_builder_tensor(struct genai_builder *b, uint32_t file,
			      uint64_t offset, uint64_t bytes, uint32_t dtype,
			      uint32_t rank, const int64_t *dims);
/* A value.  rank GENAI_NONE: shape unknown; dims/symbols may be NULL.  A second
 * value of the same name is an error naming it. */
uint32_t genai_builder_value(struct genai_builder *b, const char *name,
			     uint32_t dtype, uint32_t rank, const int64_t *dims,
			     const char *const *symbols);
/* A value of a stored tensor. */
uint32_t genai_builder_stored(struct genai_builder *b, const char *name,
			      uint32_t tensor);
/* A value of a small constant; data is copied, dense, and lies in a file named
 * "". */
uint32_t genai_builder_const(struct genai_builder *b, const char *name,
			     uint32_t dtype, uint32_t rank, const int64_t *dims,
			     const void *data);
/* Index of the value of that name, or GENAI_NONE (not an error). */
uint32_t genai_builder_find(const struct genai_builder *b, const char *name);

/* A node; inputs/outputs hold value indices, GENAI_NONE where omitted.  A value
 * written twice is an error. */
uint32_t genai_builder_node(struct genai_builder *b, const char *op,
			    const char *domain, int64_t opset, const char *name,
			    const uint32_t *inputs, uint32_t n_inputs,
			    const uint32_t *outputs, uint32_t n_outputs);
void genai_builder_attr_int(struct genai_builder *b, uint32_t node,
			    const char *name, int64_t v);
void genai_builder_attr_float(struct genai_builder *b, uint32_t node,
			      const char *name, double v);
void genai_builder_attr_string(struct genai_builder *b, uint32_t node,
			       const char *name, const char *v, size_t bytes);
void genai_builder_attr_ints(struct genai_builder *b, uint32_t node,
			     const char *name, const int64_t *v, size_t count);
void genai_builder_attr_floats(struct genai_builder *b, uint32_t node,
			       const char *name, const float *v, size_t count);
void genai_builder_attr_strings(struct genai_builder *b, uint32_t node,
				const char *name, const char *const *v,
				size_t count);
void genai_builder_attr_tensor(struct genai_builder *b, uint32_t node,
			       const char *name, uint32_t tensor);
/* Takes ownership of g: it is freed with the finished graph (or with b). */
void genai_builder_attr_graph(struct genai_builder *b, uint32_t node,
			      const char *name, struct genai_graph *g);

void genai_builder_input(struct genai_builder *b, uint32_t value);
void genai_builder_output(struct genai_builder *b, uint32_t value);

/* Editing. */
void genai_builder_remove_node(struct genai_builder *b, uint32_t node);
void genai_builder_remove_input(struct genai_builder *b, uint32_t value);
/* A value of the enclosing graph is one of this graph from now on. */
void genai_builder_own(struct genai_builder *b, uint32_t value);
void genai_builder_remove_output(struct genai_builder *b, uint32_t value);
/* Every node input that reads old reads new_value instead (graph outputs are
 * not changed). */
void genai_builder_replace(struct genai_builder *b, uint32_t old,
			   uint32_t new_value);
/* Output pos of a node is value from now on, which nothing else makes; who read
 * what it was reads that. */
void genai_builder_set_output(struct genai_builder *b, uint32_t node,
			      uint32_t pos, uint32_t value);
/* Replace one input of one node. */
void genai_builder_set_input(struct genai_builder *b, uint32_t node,
			     uint32_t pos, uint32_t value);
/* The same, where the node may have fewer: those between are omitted. */
void genai_builder_add_input(struct genai_builder *b, uint32_t node,
			     uint32_t pos, uint32_t value);
/* Drop, repeatedly, nodes none of whose outputs are read or graph outputs. */
void genai_builder_prune(struct genai_builder *b);

/* The state so far, for passes that look before they edit; valid until the next
 * change.  Removed nodes have op == NULL. */
uint32_t genai_builder_n_nodes(const struct genai_builder *b);
const struct genai_node *genai_builder_get_node(const struct genai_builder *b,
						uint32_t node);
const struct genai_value *genai_builder_get_value(const struct genai_builder *b,
						  uint32_t value);

/* Check (every read value is an input, stored, outer, or written by a node),
 * sort topologically (stable: keeps the given order where it is legal) in
 * linear time, and hand out an owned graph; closes b in any case.
 * Errors: the first sticky one; GENAI_E_FORMAT "cycle: a -> b -> a". */
int32_t genai_builder_finish(struct genai_builder *b,
			     struct genai_graph **out_graph,
			     struct genai_error *err);
void genai_graph_free(struct genai_graph *g);

/* Bytes that dtype needs for dims (4-bit types: two per byte, rounded up over
 * the whole tensor); GENAI_E_FORMAT on negative dims or overflow (limit 2^46
 * bytes), GENAI_E_UNSUPPORTED for an unknown dtype or STRING. */
int32_t genai_tensor_bytes(uint32_t dtype, uint32_t rank, const int64_t *dims,
			   uint64_t *out_bytes);
const char *genai_dtype_name(uint32_t dtype);

#endif
