/* genai/executor.h - interface of an executor: a graph into enqueued work.
 * Owns: operators, activations, workspaces, recordings of its own work.
 * Does not know: files, tokens, which weights are where.
 * ABI: interface "genai.executor", version 1.
 *
 * Life of a plan: plan_create, plan_visits, plan_set_pages, bind every input
 * and output, then bind (only what changed) and submit per step, plan_destroy.
 * Threads: owner, one at a time per plan; caps: any.
 *
 * The order in which a kernel sums depends on the operator, the dtypes, the
 * reduced length and, unless ROWS_EXACT is claimed, the number of rows of this
 * step; never on a tile, a placement, a budget or a stream: "same tokens" is
 * then true by construction. */
#ifndef GENAI_EXECUTOR_H
#define GENAI_EXECUTOR_H

#include <genai/graph.h>
#include <genai/pager.h>

#ifdef __cplusplus
extern "C" {
#endif

struct genai_plan;

/* Records steps; needs a stream runtime with RECORD and a pager with STABLE. */
#define GENAI_EXEC_CAP_RECORDS 1u
/* A row gives the same bits whether it comes alone or among others. */
#define GENAI_EXEC_CAP_ROWS_EXACT 2u

/* An operator that an executor knows. */
struct genai_exec_op {
	const char *domain;
	const char *op;
	int64_t since; /* lowest opset */
};

struct genai_exec_caps {
	uint32_t size;
	uint32_t flags;
	char device_kind[16]; /* of the stream runtime it needs */
	uint32_t n_ops;
	uint32_t op_stride;
	const struct genai_exec_op *ops; /* static data of the module */
};

struct genai_plan_options {
	uint32_t size;
	uint32_t flags; /* 0 */
	const struct genai_stream_api *stream;
	const struct genai_barrier_api *barrier;
	const struct genai_pager_api *pager; /* used from the first submit on */
	/* Largest shape of every graph input, by input index.  All memory for
	 * it is taken in plan_create, with tags. */
	const struct genai_view *max_inputs;
	uint32_t n_max_inputs;
	/* Shapes of steps that will be submitted again and again, and are worth
	 * a recording: n_repeated times n_max_inputs views, as above.  What
	 * visits say about a step's work is about the first of them; about the
	 * largest where there is none.  Steps of all other shapes come once. */
	uint32_t n_repeated;
	const struct genai_view *repeated;
};

#define GENAI_WEIGHT_GATHER 1u /* read sparsely, by index: never streamed */
#define GENAI_WEIGHT_ROWS                                                      \
	2u /* may be cut along its first dimension, where                      \
	      there are many rows at multiples of 8 */
#define GENAI_WEIGHT_FILL_PARTS                                                \
	4u			 /* ROWS: fill is only for parts; whole it is  \
				    used as stored */
#define GENAI_WEIGHT_ANY_ROWS 8u /* ROWS: parts may begin at any row */
#define GENAI_WEIGHT_HOST                                                      \
	16u /* ROWS: the host's cores multiply rows of it that are left to     \
	       them: GENAI_VISIT_HOST */
#define GENAI_WEIGHT_EXPERT                                                    \
	32u /* GATHER: of rows experts, device_bytes / rows each, which may    \
	       lie apart: GENAI_PLACE_TABLE */

/* A part of a stored tensor that a node reads. */
struct genai_visit {
	uint32_t size;
	uint32_t tensor;     /* index into the graph's tensors */
	uint32_t first_node; /* the visit begins before this node */
	uint32_t last_node;  /* and ends after this one */
	uint32_t flags;	     /* GENAI_WEIGHT_* */
	uint32_t group;	     /* visits with the same group are cut at the same
				rows (a matrix, its scales, its zero points);
				unique where there is nothing to share */
	uint64_t rows;	     /* rows of the first dimension; EXPERT: experts;
				1 of others */
	/* Another layout: the bytes the device wants and how to make them;
	 * fill NULL and device_bytes == tensor's bytes if as stored.  For ROWS
	 * every row takes device_bytes / rows; so does every expert. */
	uint64_t device_bytes;
	void (*fill)(void *ctx, void *dst, uint64_t bytes, const void *src,
		     uint64_t src_bytes);
	void *fill_ctx;
	/* For plans of what moves when: units of work of a step between the
	 * visit before and this one (units_after: from the last one to the
	 * step's end), the bytes of device memory that those before use beside
	 * stored tensors, and those that each unit of this node uses.
	 * 0: not known. */
	uint32_t units_before, units_after;
	uint64_t bytes_before, work_bytes;
};

/* Where the core put (a part of) a visit.  In sweep order: the index into this
 * array is the visit number for acquire and release. */
struct genai_sweep_page {
	uint32_t size;
	uint32_t visit;	    /* index into plan_visits' list */
	uint64_t row_begin; /* rows of this part */
	uint64_t row_end;
};

struct genai_exec_stats {
	uint32_t size;
	uint32_t n_fallbacks;
	uint64_t steps;
	uint64_t captures, replays;
	uint64_t host_nodes;   /* nodes folded while planning */
	uint64_t device_bytes; /* activations and workspace */
	/* steps that ran eagerly though recording was wanted, by reason */
	struct {
		char reason[48];
		uint64_t count;
	} fallbacks[8];
};

struct genai_executor_ops {
	uint32_t size;
	uint16_t version; /* 1 */
	uint16_t reserved;

	int32_t (*caps)(void *self, struct genai_exec_caps *out_caps,
			struct genai_error *err);
	/* Plan a graph (borrowed until plan_destroy).  options and what it
	 * points to: the apis are borrowed until plan_destroy, the rest for the
	 * call.  Blocks: host (may compile).
	 * Errors: GENAI_E_UNSUPPORTED naming the first node (op, name, domain)
	 * that is not carried; GENAI_E_LIMIT with the bytes needed. */
	int32_t (*plan_create)(void *self, const struct genai_graph *graph,
			       const struct genai_plan_options *options,
			       struct genai_plan **out_plan,
			       struct genai_error *err);
	/* The stored tensors that the device reads, in the order of use.  The
	 * list is owned by the plan. */
	int32_t (*plan_visits)(struct genai_plan *plan,
			       const struct genai_visit **out_visits,
			       uint32_t *out_count, struct genai_error *err);
	/* The sweep: every row of every visit exactly once, in order, grouped
	 * by node.  Copied. */
	int32_t (*plan_set_pages)(struct genai_plan *plan,
				  const struct genai_sweep_page *pages,
				  uint32_t n_pages, struct genai_error *err);
	/* Give everything back.  ticket: a drain of everything. */
	int32_t (*plan_destroy)(struct genai_plan *plan,
				const struct genai_ticket *ticket,
				struct genai_error *err);
	/* Say where a graph input or output lies.  No copy; the bytes must stay
	 * until the point of the last submit that used them.  Dims may change
	 * between submits within the largest shape; a changed address of a
	 * recorded step makes it record again, counted.  An output may lie on
	 * the bytes of an input that no node reads after the one that makes it:
	 * lengths and caches advance so. */
	int32_t (*bind_input)(struct genai_plan *plan, uint32_t input,
			      const struct genai_view *view,
			      struct genai_error *err);
	int32_t (*bind_output)(struct genai_plan *plan, uint32_t output,
			       const struct genai_view *view,
			       struct genai_error *err);
	/* Shape of an output for the inputs bound now (addr 0).  For callers
	 * that must size a buffer before they bind it. */
	int32_t (*output_shape)(struct genai_plan *plan, uint32_t output,
				struct genai_view *out_view,
				struct genai_error *err);
	/* Enqueue one step on stream after the points of wait; returns before
	 * the device is done.  Immediate errors only for what can be told
	 * without the device; then nothing was enqueued or the stream is
	 * poisoned. */
	int32_t (*submit)(struct genai_plan *plan, struct genai_stream *stream,
			  const struct genai_point *wait, uint32_t n_wait,
			  struct genai_point *out_signal,
			  struct genai_error *err);
	int32_t (*stats)(struct genai_plan *plan,
			 struct genai_exec_stats *out_stats,
			 struct genai_error *err);
};

#ifdef __cplusplus
}
#endif
#endif
