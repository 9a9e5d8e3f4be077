/* builder.h - the inside of a genai_builder, and what only importers need.
 * Private to core/graph and the importers of model files. */
#ifndef GENAI_CORE_GRAPH_BUILDER_H
#define GENAI_CORE_GRAPH_BUILDER_H

#include "core/base/error.h"
#include "core/graph/arena.h"
#include "core/graph/build.h"
#include "core/graph/names.h"

/* A growing array. */
struct genai_list {
	void *data;
	uint32_t n;
	uint32_t cap;
};

/* A node while it may still change: pub.inputs and pub.attrs point at these. */
struct genai_bnode {
	struct genai_node pub; /* op NULL: removed */
	uint32_t *inputs;
	uint32_t *outputs;
	struct genai_attr *attrs;
};

struct genai_builder {
	struct genai_error err; /* the sticky failure, code 0 if none */
	struct genai_budget *budget;
	struct genai_arena arena;
	struct genai_names names; /* of values */
	const char *name;
	struct genai_list files, tensors, values, nodes;
	struct genai_list inputs, outputs; /* uint32_t */
	struct genai_list subs;		   /* struct genai_graph *, owned */
	uint32_t const_file;		   /* file that takes small constants */
	char *const_data;
	uint64_t const_cap;
};

/* As genai_builder_open, with a cap on memory (borrowed; its left bytes count
 * down).  Exceeding it is GENAI_E_LIMIT. */
struct genai_builder *genai_builder_open_capped(const char *name,
						struct genai_budget *budget);

/* A value of a subgraph that stands for the enclosing graph's value of that
 * name (GENAI_VALUE_OUTER). */
uint32_t genai_builder_outer(struct genai_builder *b, const char *name,
			     uint32_t dtype, uint32_t rank, const int64_t *dims,
			     const char *const *symbols);

/* A zeroed block of memory for a stored tensor, in a file named "".  NULL: out
 * of memory or over the cap (sticky). */
void *genai_builder_block(struct genai_builder *b, uint64_t bytes,
			  uint32_t *out_file, uint64_t *out_offset);

/* Keep the first failure; returns GENAI_NONE. */
#define genai_builder_fail(b, status, ...)                                     \
	genai_builder_fail_at((b), (status), __FILE__, __LINE__, __VA_ARGS__)
uint32_t genai_builder_fail_at(struct genai_builder *b, int32_t code,
			       const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* Out of memory, or over the cap. */
uint32_t genai_builder_nomem(struct genai_builder *b);
/* Room for n more elements; a pointer to the first of them, or NULL
 * (failed). */
void *genai_builder_push(struct genai_builder *b, struct genai_list *l,
			 uint32_t n, size_t size);
void *genai_builder_alloc(struct genai_builder *b, uint64_t count, size_t size);
const char *genai_builder_str(struct genai_builder *b, const char *s);
/* The node, or NULL with a failure for a bad or removed index. */
struct genai_bnode *genai_builder_live(struct genai_builder *b, uint32_t node);
/* A new zeroed attribute of a node, its name checked; NULL: failed. */
struct genai_attr *genai_builder_attr(struct genai_builder *b, uint32_t node,
				      const char *name, uint32_t kind);

/* What each node reads, captures of subgraphs included: list[begin[i]] up to
 * list[begin[i + 1]] are value indices. */
struct genai_reads {
	uint32_t *begin;
	uint32_t *list;
};
/* 0 and a failure of b if a capture does not exist or memory is short. */
int genai_reads_init(struct genai_builder *b, struct genai_reads *out_r);
void genai_reads_free(struct genai_reads *r);

static inline struct genai_file *file_at(const struct genai_builder *b,
					 uint32_t i)
{
	return (struct genai_file *)b->files.data + i;
}

static inline struct genai_tensor *tensor_at(const struct genai_builder *b,
					     uint32_t i)
{
	return (struct genai_tensor *)b->tensors.data + i;
}

static inline struct genai_value *value_at(const struct genai_builder *b,
					   uint32_t i)
{
	return (struct genai_value *)b->values.data + i;
}

static inline struct genai_bnode *node_at(const struct genai_builder *b,
					  uint32_t i)
{
	return (struct genai_bnode *)b->nodes.data + i;
}

static inline uint32_t *index_at(const struct genai_list *l, uint32_t i)
{
	return (uint32_t *)l->data + i;
}

static inline int builder_dead(const struct genai_builder *b)
{
	return !b || b->err.code;
}

/* True if something defines the value. */
static inline int value_is_defined(const struct genai_value *v)
{
	return v->producer != GENAI_NONE || v->tensor != GENAI_NONE ||
	       v->flags & (GENAI_VALUE_INPUT | GENAI_VALUE_OUTER);
}

#endif
