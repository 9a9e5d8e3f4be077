/* plan.h - a planned graph: what is the same for every shape, and the shapes.
 * Shared by plan.c (building) and exec.c (submitting). */
#ifndef CREF_PLAN_H
#define CREF_PLAN_H

#include "cpu_ref.h"

#define CREF_BY_VALUE_BYTES 256	   /* stored tensors up to this size travel with
				      the unit, like kernel arguments */
#define CREF_FOLD_BYTES (1u << 20) /* largest value computed while planning */
#define CREF_MAX_SHAPES 16
#define CREF_MAX_RECORDED 8 /* kept at once: dropping one would have to wait */

/* Deliberate faults, of builds for tests/unit/check_rules.c only. */
#ifndef CREF_MUTANT
#define CREF_MUTANT 0
#endif
#define MUTANT(n) (CREF_MUTANT == (n))

enum cref_where { CREF_NOWHERE, CREF_VALUE, CREF_ARENA, CREF_BOUND, CREF_WEIGHT };

/* A unit of work: a node, or some rows of one. */
struct cref_unit {
	struct cref_shape *shape;
	struct cref_node *n;
	uint64_t row_begin, row_end;
	uint32_t n_mem;
	bool has_workspace; /* the last of mem */
	struct cref_tensor *target[CREF_MAX_ACCESS];
};

/* A stored matrix [K, N] that may be cut by columns. */
struct cref_columns {
	const char *data;
	uint64_t K, N, size; /* size: of an element */
};

/* Everything that depends on the inputs' dims. */
struct cref_shape {
	struct genai_plan *plan;
	struct genai_view *inputs; /* dims and strides it was made for */
	struct genai_view *outputs; /* as bound then; size 0: not */
	struct cref_tensor *tensors; /* per value */
	struct cref_node *nodes;
	uint8_t *where;	  /* per value: enum cref_where */
	bool *runs;	  /* per node */
	void **folded;	  /* per value: memory to free, or NULL */
	struct cref_unit *units;
	uint32_t n_units;
	uint64_t workspace_bytes;
	uint32_t n_folded;
	uint64_t used;	     /* age for reuse */
	uint64_t submits;
	struct genai_point last; /* of the last submit */
};

struct genai_plan {
	struct cref_device *dev;
	struct genai_plan *next; /* of the device */
	const struct genai_graph *graph;
	const struct genai_stream_api *stream;
	const struct genai_barrier_api *barrier;
	const struct genai_pager_api *pager;
	bool captured;

	struct genai_view *max_inputs;
	struct genai_view *bound_in, *bound_out; /* size 0: not bound */
	uint32_t *root;	     /* per value: whose bytes it shares */
	uint32_t *output_of; /* per value: graph output index or NONE */
	uint32_t *input_of;
	uint64_t *offset, *max_bytes; /* per value, in the arena */
	uint64_t arena_bytes, workspace_bytes;
	struct genai_mem arena;

	struct genai_visit *visits;
	struct cref_columns *columns; /* per visit */
	uint32_t n_visits;
	struct genai_visit_page *pages;
	uint32_t n_pages;
	uint32_t *node_pages; /* first page of each node; n_nodes + 1 */
	genai_addr *place;    /* per page, while a node runs */

	struct cref_shape *shapes[CREF_MAX_SHAPES];
	uint32_t n_shapes;
	uint64_t clock;

	/* captured */
	struct {
		struct genai_recording *recording;
		struct cref_shape *shape;
		uint64_t key; /* of the addresses and the stream */
	} recorded[CREF_MAX_RECORDED];
	uint32_t n_recorded;
	struct genai_point tail; /* of the last eager step's copies, of any
				    plan that shares the pager */
	struct genai_exec_stats stats;
};

/* shape.c */
int32_t cref_shape_create(struct genai_plan *p, const struct genai_view *inputs,
			  struct cref_shape **out_shape,
			  struct genai_error *err);
void cref_shape_free(struct cref_shape *s);

/* plan.c */
int32_t cref_plan_create(void *self, const struct genai_graph *graph,
			 const struct genai_plan_options *options,
			 struct genai_plan **out_plan, struct genai_error *err);
void cref_plan_free(struct genai_plan *plan);
/* The shapes for the inputs bound now, from the cache or built. */
int32_t cref_plan_shape(struct genai_plan *plan, struct cref_shape **out_shape,
			struct genai_error *err);

/* visits.c */
int32_t cref_find_visits(struct genai_plan *plan, struct cref_shape *s,
			 struct genai_error *err);
int32_t cref_plan_visits(struct genai_plan *plan,
			 const struct genai_visit **out_visits,
			 uint32_t *out_count, struct genai_error *err);
int32_t cref_plan_set_pages(struct genai_plan *plan,
			    const struct genai_visit_page *pages,
			    uint32_t n_pages, struct genai_error *err);

static inline uint64_t cref_view_bytes(const struct genai_view *v)
{
	uint64_t last = 1;

	for (uint32_t d = 0; d < v->rank; d++) {
		if (v->dims[d] == 0)
			return 0;
		last += (uint64_t)(v->dims[d] - 1) * (uint64_t)v->strides[d];
	}
	return (last * cref_dtype_bits(v->dtype) + 7) / 8;
}

static inline uint64_t cref_tensor_bytes(const struct cref_tensor *t)
{
	return (cref_elements(t) * cref_dtype_bits(t->dtype) + 7) / 8;
}

#endif
