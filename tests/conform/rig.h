/* rig.h - an executor under test: a graph, its plan, its buffers, and a hostile
 * pager that overwrites every weight as soon as it may, so that an executor
 * which does not wait for ready, or releases too early, computes nonsense. */
#ifndef GENAI_CONFORM_RIG_H
#define GENAI_CONFORM_RIG_H

#include "tests/conform/conform.h"
#include "core/graph/build.h"
#include "core/model/paging.h"

#define RIG_MAX_IO 20
#define RIG_MAX_PARTS 512
#define RIG_MAX_TENSORS 64

/* One entry of the sweep in the hostile pager. */
struct rig_part {
	uint64_t bytes;
	uint64_t at; /* in slots, good and bad */
	bool held;
};

struct rig {
	struct cf_rt r;
	struct genai_graph *g;
	struct genai_plan *plan;
	struct genai_stream *s;
	struct genai_barrier_ops tapped;
	struct genai_barrier_api barrier;
	uint32_t barriers; /* calls by the executor */
	struct genai_view max_in[RIG_MAX_IO], repeated[RIG_MAX_IO];
	struct genai_view in[RIG_MAX_IO], out[RIG_MAX_IO];
	struct genai_mem in_mem[RIG_MAX_IO], out_mem[RIG_MAX_IO];
	genai_addr guard; /* behind output 0; 0: none */

	/* the hostile pager */
	struct genai_pager_ops pager_ops;
	struct genai_pager_api pager;
	struct genai_sweep_page pages[RIG_MAX_PARTS];
	struct rig_part parts[RIG_MAX_PARTS];
	uint32_t n_parts, next, steps;
	uint32_t refuse_visit; /* the n-th from now on; 0: none */
	uint32_t begun; /* calls of replay_begin */
	bool in_step;
	const char *broken; /* the first rule that the executor broke */
	struct genai_stream *loads;
	struct genai_mem slots, good, bad;

	/* or a real one */
	struct genai_paging paging;
	bool paged;
};

/* What a graph is made of, kept until rig_free. */
struct rig_graph {
	struct genai_builder *b;
	void *blocks[RIG_MAX_TENSORS];
	uint32_t n_blocks;
};

/* ---- graphs ---- */

void rig_graph_begin(struct rig_graph *g);
/* A graph input or a value; unknown dims are -1. */
uint32_t rig_input(struct rig_graph *g, const char *name, uint32_t dtype,
		   uint32_t rank, const int64_t *dims);
uint32_t rig_value(struct rig_graph *g, const char *name);
uint32_t rig_float_value(struct rig_graph *g, const char *name);
/* A stored tensor; data is copied. */
uint32_t rig_weight(struct rig_graph *g, const char *name, uint32_t dtype,
		    uint32_t rank, const int64_t *dims, const void *data);
/* Returns its first output. */
uint32_t rig_node(struct rig_graph *g, const char *op, const char *domain,
		  const char *name, const uint32_t *in, uint32_t n_in,
		  uint32_t out);
struct genai_graph *rig_graph_end(struct rig_graph *g, uint32_t output);
void rig_graph_free(struct rig_graph *g, struct genai_graph *graph);

/* A language model in small: ids -> Gather -> layers of MatMulNBits, norm and
 * residual -> MatMulNBits.  ids is [1, S]. */
#define LM_WIDTH 128
#define LM_VOCAB 64
#define LM_LAYERS 5
#define LM_STEP 4 /* most ids at once */
struct genai_graph *rig_lm(struct rig_graph *g);

/* ---- plans ---- */

bool rig_has_op(struct rig *g, const char *domain, const char *op);
/* Skips the test if the executor does not list the operator. */
void rig_need_op(struct rig *g, const char *domain, const char *op);
void rig_need_lm(struct rig *g); /* those of the model below */
void rig_open(struct rig *g, const char *const *sets);
struct genai_plan_options rig_options(struct rig *g, struct genai_graph *graph,
				      const struct genai_view *max_in);
int32_t rig_try_plan(struct rig *g, const struct genai_plan_options *o,
		     struct genai_graph *graph, struct genai_error *err);
/* The rest of rig_plan for a plan that was made by rig_try_plan. */
void rig_adopt(struct rig *g, struct genai_graph *graph,
	       const struct genai_view *max_in, uint64_t rows);
/* Plan with the hostile pager (parts of ROWS weights of at most rows rows; 0:
 * whole), give it memory, set pages. */
void rig_plan(struct rig *g, struct genai_graph *graph,
	      const struct genai_view *max_in, uint64_t rows);
/* Plan with the pager of the configuration. */
void rig_plan_paged(struct rig *g, struct genai_graph *graph,
		    const struct genai_view *max_in);
/* With the pager that another plan of the same graph uses: a second session. */
void rig_plan_shared(struct rig *g, struct rig *first,
		     struct genai_graph *graph,
		     const struct genai_view *max_in);
struct genai_view rig_view(uint32_t dtype, uint32_t rank, const int64_t *dims);
void rig_in(struct rig *g, uint32_t input, const void *data, uint32_t rank,
	    const int64_t *dims);
/* Bind the outputs to buffers of the size that output_shape tells. */
void rig_outs(struct rig *g);
void rig_rebind(struct rig *g, bool input); /* number 0, as it is in g */
void rig_submit(struct rig *g);
/* submit, wait, read output 0 */
void rig_run(struct rig *g, void *out, uint64_t bytes);
void rig_read(struct rig *g, void *out, uint64_t bytes);
void rig_check(struct rig *g); /* of the hostile pager */
void rig_close(struct rig *g);
/* As rig_close, but the runtime stays open. */
void rig_unplan(struct rig *g);

/* lm: run n ids, logits of the last one to out (LM_VOCAB floats). */
void rig_lm_run(struct rig *g, const int64_t *ids, int64_t n, float *out);
void rig_lm_view(struct genai_view *max_in);

#endif
