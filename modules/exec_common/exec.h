/* exec.h - what executors share: everything but the kernels.
 * plan.c     a graph into a plan; binding; statistics
 * variant.c  the shapes for what is bound, kept and given up
 * place.c    where values lie
 * visits.c   the weights of a step, what it does between them
 * sweep.c    the pages that they were put in
 * submit.c   a step is asked for
 * step.c     its loop: acquire, launch, release
 * record.c   a step recorded once and replayed
 * Does not know: operators, what a launch is.  One source, compiled into each
 * executor's module, which supplies struct exec_module.
 *
 * A module's self begins with struct exec_shared, its struct genai_plan with
 * struct exec_plan, its variant with struct exec_variant. */
#ifndef EXEC_COMMON_EXEC_H
#define EXEC_COMMON_EXEC_H

#include <pthread.h>
#include <stdbool.h>
#include <genai/executor.h>

#include "facts.h"
#include "tensor.h"

#define EXEC_MAX_PARTS 64 /* that one launch may take */
#define EXEC_VARIANTS 16  /* kept at a time */
#define EXEC_RECORDINGS                                                        \
	8u /* kept until the plan goes: dropping one would have                \
	      to wait */

struct exec_plan;
struct exec_step;

/* Of a module: what its self begins with. */
struct exec_shared {
	const struct exec_module *m;
	const struct genai_host *host;
	pthread_mutex_t lock; /* of the list */
	struct exec_plan *plans;
};

/* Where a value's bytes are. */
enum exec_where {
	EXEC_NOWHERE, /* another's (root), or never on the device */
	EXEC_INPUT,
	EXEC_OUTPUT,
	EXEC_WEIGHT, /* where the pager says */
	EXEC_KNOWN,  /* known while planning, and small */
	EXEC_ARENA,
};

/* What the loop knows of a node: inputs are bits.  n_in to out are set before
 * prepare and may be changed by it; the rest is 0.
 * Folding: where all that a node reads is known (its inputs' tensors have a
 * value), prepare may compute it: value of the output is memory of the
 * module's, kept as long as the variant (in its node, or until variant_close);
 * folded and silent are set.  Not for an output of the graph: nobody would
 * write it. Aliases: an output whose root is that of another value, with an
 * offset, has its bytes, and a node that only does that is silent. */
struct exec_node {
	uint32_t n_in, n_out;
	const uint32_t *in, *out; /* values, GENAI_NONE where omitted */
	struct exec_facts facts;  /* of its operator */
	uint32_t cut;		  /* inputs cut at the same rows */
	uint64_t n_rows;	  /* how many they have; needed where cut is */
	bool silent;		  /* nothing to launch */
	bool folded;		  /* output 0 has its value */
	bool may_alias; /* outputs are input 0's bytes for some shapes */
	bool parts;	/* launch takes several parts at once */
	uint64_t workspace_bytes; /* shared by all nodes, contents undefined */
	uint64_t sync_bytes;	  /* the node's own, between steps, too */
};

/* The shapes for one set of bindings. */
struct exec_variant {
	struct exec_plan *plan;
	struct genai_view *in, *out; /* as bound; size 0: not */
	struct exec_tensor *tensors; /* per value */
	uint8_t *where;		     /* per value: enum exec_where */
	struct exec_node *facts;     /* per node */
	void *nodes;		     /* the module's, node_bytes each */
	char *contexts;		     /* of its launches, in order */
	uint32_t slot, n_folded, n_recorded;
	uint64_t workspace_bytes;
	uint64_t used;	   /* clock of the last step */
	uint64_t resolved; /* generation of the bindings of its addresses */
	uint64_t steps;
	bool repeats;		 /* worth a recording */
	struct genai_point last; /* of its last step */
};

/* A value in every variant: room for it with the largest shapes. */
struct exec_value {
	uint32_t input, output; /* graph input or output, or GENAI_NONE */
	uint32_t first, last;	/* nodes that need the bytes, or GENAI_NONE */
	uint64_t offset, bytes; /* in the arena, or among the constants */
	bool known;
	bool late; /* an output that is moved to its place by end() */
};

struct exec_recording {
	struct genai_recording *recording;
	struct exec_variant *variant;
	struct genai_stream *stream;
	genai_addr *bound;   /* what it names: inputs, outputs */
	uint64_t generation; /* when that was last what is bound */
};

struct exec_plan {
	const struct exec_module *m;
	struct exec_shared *shared;
	struct exec_plan *next;
	uint32_t id; /* among those of the module */
	const struct genai_host *host;
	const struct genai_graph *graph;
	const struct genai_stream_api *stream;
	const struct genai_barrier_api *barrier;
	const struct genai_pager_api *pager;
	bool captured;
	struct genai_view *max_inputs, *repeated;
	uint32_t n_repeated;
	struct genai_view *inputs, *outputs; /* size 0: not bound */
	uint64_t generation;		     /* of bindings */

	struct exec_value *values;
	struct genai_mem mem; /* arena, workspace, sync, constants */
	uint64_t arena_bytes, workspace_at, workspace_bytes, sync_at;
	uint64_t sync_bytes, const_at, const_bytes; /* of one variant */
	uint64_t *sync_offset;			    /* per node */

	struct exec_variant *variants[EXEC_VARIANTS];
	struct exec_variant *current; /* of current_generation */
	uint64_t current_generation, clock;

	struct genai_visit *visits;
	uint32_t *inputs_of; /* per visit: inputs of its node, a bit each */
	uint32_t n_visits;
	struct genai_sweep_page *pages;
	uint32_t n_pages;
	uint32_t *node_pages; /* first page of each node; n_nodes + 1 */
	uint32_t *part_rows;  /* per node: rows of parts that may run at once */
	genai_addr parts[EXEC_MAX_PARTS * EXEC_MAX_IN];
	bool has_pages, submitted;
	uint8_t *stays; /* per page: GENAI_PLACE_* for good, or 0 */
	struct genai_experts
		*experts; /* per page: size 0 if there is no table */
	bool takes_host; /* a visit is WEIGHT_HOST: the module knows exec_beside
			  */

	struct exec_recording recorded[EXEC_RECORDINGS];
	uint32_t n_recorded;
	struct genai_exec_stats stats;
};

/* Of a node some of whose parts are left to the host's cores: launched before
 * all parts, with each that is left to them, and after all. */
enum exec_beside { EXEC_NOT_BESIDE, EXEC_ASK, EXEC_LEFT, EXEC_MEET };

/* The rows that a launch computes. */
struct exec_part {
	uint64_t row_begin, row_end; /* 0 and 0: all; the inputs that are cut
					lie at row row_begin */
	/* All rows, in several parts of part_rows (the last may have fewer):
	 * where part k of input i lies is parts[k * EXEC_MAX_IN + i]. */
	uint32_t n_parts, part_rows;
	const genai_addr *parts;
	enum exec_beside beside; /* ASK and MEET: of all rows */
};

/* A step being enqueued. */
struct exec_step {
	struct exec_plan *plan;
	struct exec_variant *variant;
	struct genai_stream *stream;
	uint32_t launched;
	bool copied; /* a copy may lie between this launch and the last */
	struct genai_point mark; /* after the last launch; stream NULL: none */
	struct genai_error *err;
	/* Of this launch: launch_bytes, kept until it is done.  The same for
	 * every step of these shapes, which may be enqueued before the one
	 * before is done: what differs from step to step (addresses of what is
	 * bound) goes along with the launch, not in here. */
	void *context;
	/* the module's */
	void *native;
	bool overlap;
};

/* What a module supplies.  What may be NULL is marked. */
struct exec_module {
	struct genai_exec_caps caps; /* flags but RECORDS, device_kind, ops */
	uint64_t plan_bytes, variant_bytes, node_bytes;
	uint64_t launch_bytes; /* of a launch: exec_step.context */
	uint32_t align;	       /* of values in device memory */
	/* Stored tensors of up to so many bytes are EXEC_KNOWN, no weights:
	 * nobody pages or cuts them (a node may then have cut inputs beside
	 * whole ones), and kernels get them from tensor.value. */
	uint32_t known_bytes;
	uint32_t late_bytes; /* outputs up to here may be moved by end() */
	/* Known values have room on the device, at their tensors' addr; begin()
	 * copies them there, once for each variant. */
	bool constants;
	/* A plan begins: graph, options and self are there.  May be NULL. */
	int32_t (*open)(struct exec_plan *p, struct genai_error *err);
	/* What open and the functions below took.  May be NULL. */
	void (*close)(struct exec_plan *p);
	/* Node i of a variant: check it, set its outputs' dtype, dims and
	 * strides, or their value, and its facts.  Inputs are there. */
	int32_t (*prepare)(struct exec_variant *v, uint32_t i,
			   struct genai_error *err);
	void (*variant_close)(struct exec_variant *v); /* may be NULL */
	/* A weight that a step visits: other flags, another layout.  May be
	 * NULL. */
	void (*visit)(struct exec_variant *v, uint32_t node, uint32_t input,
		      uint32_t index, struct genai_visit *x);
	/* Is the device fit for a step?  May be NULL. */
	int32_t (*check)(struct exec_plan *p, struct genai_error *err);
	/* Around the launches of a step, recorded or not.  May be NULL. */
	int32_t (*begin)(struct exec_step *s);
	int32_t (*end)(struct exec_step *s);
	/* Enqueue node i; its tensors have their addresses. */
	int32_t (*launch)(struct exec_step *s, uint32_t i,
			  const struct exec_part *part);
	/* A step broke off half way.  May be NULL. */
	void (*broke_off)(struct exec_plan *p, int32_t rc,
			  struct genai_error *err);
};

#define EXEC_FAIL(p, err, code, ...)                                           \
	((p)->host->error_set((p)->host->ctx, (err), (code), __VA_ARGS__))

/* ---- for modules ---- */

void exec_shared_open(struct exec_shared *shared, const struct exec_module *m,
		      const struct genai_host *host);
void exec_shared_close(struct exec_shared *shared);

/* The executors: every step enqueued node by node; those whose shapes come
 * again recorded once and replayed. */
extern const struct genai_executor_ops exec_eager_ops, exec_captured_ops;

/* Zeroed host memory, counted. */
void *exec_zalloc(const struct genai_host *host, uint64_t bytes);
/* Why a node is refused: names it (or what it writes, if it has no name). */
int32_t exec_node_fail(const struct exec_variant *v, uint32_t node,
		       struct genai_error *err, int32_t code, const char *text);
/* "OP of domain D, opset N, is not carried". */
int32_t exec_not_carried(const struct exec_variant *v, uint32_t node,
			 struct genai_error *err);
/* Point in and out at the tensors of the node's values; NULL where omitted. */
void exec_link(struct exec_variant *v, uint32_t node, struct exec_tensor **in,
	       struct exec_tensor **out);
/* Is (the root of) the value a weight? */
bool exec_is_weight(const struct exec_variant *v, uint32_t value);
/* Does a launch of the node read input i from the device? */
bool exec_reads(const struct exec_node *n, uint32_t i);
/* Does the page have rows of a visit, which is cut? */
static inline bool exec_by_rows(const struct exec_plan *p,
				const struct genai_sweep_page *page)
{
	return p->visits[page->visit].flags & GENAI_WEIGHT_ROWS;
}
static inline uint32_t exec_root(const struct exec_variant *v, uint32_t value)
{
	uint32_t root = v->tensors[value].root;

	return root == EXEC_OWN ? value : root;
}

/* ---- between the files ---- */

/* variant.c */
int32_t exec_variant_new(struct exec_plan *p, const struct genai_view *in,
			 const struct genai_view *out,
			 struct exec_variant **out_v, struct genai_error *err);
void exec_variant_free(struct exec_variant *v);
/* The variant for what is bound, kept or new. */
int32_t exec_variant_get(struct exec_plan *p, struct exec_variant **out_v,
			 struct genai_error *err);
/* Set every tensor's address to what is bound now. */
int32_t exec_variant_resolve(struct exec_variant *v, struct genai_error *err);

/* place.c */
int32_t exec_place(struct exec_plan *p, const struct exec_variant *v,
		   struct genai_error *err);
/* The variant fits the places. */
int32_t exec_place_check(const struct exec_variant *v, struct genai_error *err);

/* visits.c */
int32_t exec_find_visits(struct exec_plan *p, struct exec_variant *v,
			 struct genai_error *err);
int32_t exec_plan_visits(struct genai_plan *plan,
			 const struct genai_visit **out_visits,
			 uint32_t *out_count, struct genai_error *err);

/* sweep.c */
int32_t exec_plan_set_pages(struct genai_plan *plan,
			    const struct genai_sweep_page *pages,
			    uint32_t n_pages, struct genai_error *err);

/* submit.c */
int32_t exec_submit(struct genai_plan *plan, struct genai_stream *stream,
		    const struct genai_point *wait, uint32_t n_wait,
		    struct genai_point *out_signal, struct genai_error *err);

/* step.c */
int32_t exec_run(struct exec_step *s, bool recording,
		 struct genai_point *out_tail);

/* record.c */
int32_t exec_run_eager(struct exec_step *s);
int32_t exec_run_captured(struct exec_step *s);

#endif
