/* op.h - an operator as the plan sees it.
 * Owns: the two functions of an operator, tensors while planning and running.
 * Does not know: pagers, recordings, how memory was found.
 *
 * Adding an operator is a row in op_rows.h and two functions:
 *   prepare  once per set of shapes: check attributes, inputs and dtypes, set
 *            the outputs, ask for scratch;
 *   run      enqueue kernels with cep_run_kernel(); addresses are set.  No
 *            allocation, no host wait, nothing read back.
 * What prepare finds out for run is a struct of the operator's, which
 * EXEC_STATE puts into the node. */
#ifndef CEP_OP_H
#define CEP_OP_H

#include <stddef.h>

#include "modules/cuda_ep/cep.h"
#include "modules/exec_common/known.h"

struct cep_op;

/* Inputs of a product with a norm in front of it. */
enum { CEP_IN_SKIP = 12, CEP_IN_GAMMA };

struct cep_node {
	const struct genai_graph *graph;
	const struct genai_node *node;
	const struct cep_op *op;
	struct cep *self;
	uint32_t index, n_in, n_out;
	struct exec_tensor *in[EXEC_MAX_IN]; /* NULL: omitted */
	struct exec_tensor *out[EXEC_MAX_OUT];
	uint32_t in_value[EXEC_MAX_IN], out_value[EXEC_MAX_OUT];
	/* prepare asks, for the largest use the operator can make of memory
	 * with these dims or smaller ones */
	uint64_t workspace_bytes; /* shared by all nodes, contents undefined */
	uint64_t sync_bytes;	  /* the node's own, zero, left zero */
	bool folded;		  /* value known: nothing to run */
	bool absorbed;		  /* a later node does its work */
	/* many sequences share the step: the order of a sum may not depend on
	 * the number of rows, however many */
	bool exact;
	/* a product that takes in[0], or in[0] + in[CEP_IN_SKIP], by way of
	 * this norm; out[1] is that sum */
	const struct genai_node *norm;
	/* prepare fills, run reads: EXEC_STATE */
	_Alignas(max_align_t) unsigned char state[EXEC_STATE_BYTES];
};

/* One run of a node, or of a part of its rows. */
struct cep_run {
	struct cep *self;
	CUstream stream;
	uint64_t workspace, sync;
	uint64_t row_begin, row_end; /* tiled operators; else 0 and 0 */
	/* all parts of the rows at once: where part k of input i lies is
	 * parts[k * EXEC_MAX_IN + i]; every part but the last has part_rows */
	const uint64_t *parts;
	uint32_t n_parts, part_rows;
	bool overlap; /* the unit before is a kernel of ours */
	/* nodes before this one were done when a kernel of the step began; a
	 * kernel of this run waited for all that went before it */
	uint32_t settled;
	bool alone;
	/* rows that the host's cores multiply: op_beside.h */
	enum exec_beside beside;
	struct cep_side *side;
	bool idle; /* nothing was enqueued */
	const struct genai_graph *graph;
	uint32_t plan;
	struct genai_error *err;
};

struct cep_op {
	const char *domain;
	const char *op;
	int64_t since;
	int32_t (*prepare)(struct cep_node *n, struct genai_error *err);
	int32_t (*run)(struct cep_node *n, struct cep_run *r);
	/* compute a small integer node on the host, all of whose inputs but
	 * those of facts.dims_only are known; false if it cannot */
	bool (*fold)(const struct cep_node *n, void *out);
	uint32_t code; /* which of the operators that share the functions */
	bool parts;    /* run understands all parts of rows at once */
	/* outputs are input 0's bytes for some shapes and not for others */
	bool may_alias;
	struct exec_facts facts;
};

const struct cep_op *cep_op_find(const struct genai_node *node);

/* Input i, where there is one. */
static inline const struct exec_tensor *cep_in(const struct cep_node *n,
					       uint32_t i)
{
	return i < n->n_in ? n->in[i] : NULL;
}
/* Where it lies; 0: there is none. */
static inline uint64_t cep_in_addr(const struct cep_node *n, uint32_t i)
{
	const struct exec_tensor *t = cep_in(n, i);

	return t ? t->addr : 0;
}
static inline uint64_t cep_out_addr(const struct cep_node *n, uint32_t i)
{
	return i < n->n_out && n->out[i] ? n->out[i]->addr : 0;
}

/* ---- fold.c ---- */

/* Compute a small integer node on the host; true if done, with the value in
 * out (cap bytes). */
bool cep_fold(const struct cep_node *n, void *out, uint64_t cap);
/* Element i of a known integer tensor, and of out, which becomes t's value. */
int64_t cep_fold_get(const struct exec_tensor *t, uint64_t i);
void cep_fold_put(const struct exec_tensor *t, void *out, uint64_t i,
		  int64_t v);
bool cep_fold_binary(const struct cep_node *n, void *out);
bool cep_fold_gather(const struct cep_node *n, void *out);
bool cep_fold_concat(const struct cep_node *n, void *out);
bool cep_fold_copy(const struct cep_node *n, void *out);
bool cep_fold_shape(const struct cep_node *n, void *out); /* op_shape.c */
bool cep_fold_slice(const struct cep_node *n, void *out); /* op_shape.c */

/* ---- op_util.c ---- */

int32_t cep_node_fail(const struct cep_node *n, struct genai_error *err,
		      int32_t code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Attributes are all in the NULL-terminated list, inputs min_in.. are there,
 * the counts fit. */
int32_t cep_check(const struct cep_node *n, const char *const *attrs,
		  uint32_t min_in, uint32_t max_in, uint32_t max_out,
		  struct genai_error *err);
/* Set output i, dense. */
int32_t cep_out(struct cep_node *n, uint32_t i, uint32_t dtype, uint32_t rank,
		const int64_t *dims, struct genai_error *err);
/* Output i is input k's bytes, at a distance. */
void cep_alias(struct cep_node *n, uint32_t i, uint32_t k, uint64_t offset);
int32_t cep_need_dense(const struct cep_node *n, uint32_t i,
		       struct genai_error *err);
int32_t cep_need_float(const struct cep_node *n, uint32_t i,
		       struct genai_error *err);
int32_t cep_need_index(const struct cep_node *n, uint32_t i,
		       struct genai_error *err);
int32_t cep_need_same(const struct cep_node *n, uint32_t i, uint32_t k,
		      struct genai_error *err);
/* Input i has this shape or, where flat says so, all its elements in a row; an
 * omitted input passes. */
int32_t cep_need_shape(const struct cep_node *n, uint32_t i, uint32_t rank,
		       const int64_t *dims, bool flat, struct genai_error *err);
/* Input i, known on the host, as integers. */
int32_t cep_ints(const struct cep_node *n, uint32_t i, int64_t *out,
		 uint32_t cap, uint32_t *out_n, struct genai_error *err);
int32_t cep_axis(const struct cep_node *n, int64_t axis, uint32_t rank,
		 uint32_t *out_axis, struct genai_error *err);

/* 0: less than a byte, or not known */
static inline uint32_t cep_dtype_bytes(uint32_t dtype)
{
	return exec_bits(dtype) / 8;
}
bool cep_is_float(uint32_t dtype);
bool cep_is_int(uint32_t dtype);

/* ---- op_run.c ---- */

struct cep_dim3 {
	uint32_t x, y, z;
};
int32_t cep_run_kernel(struct cep_run *r, enum cep_kernel k,
		       struct cep_dim3 grid, uint32_t threads, uint32_t smem,
		       const void *params);
/* The same in clusters of blocks along x, where the device has them. */
int32_t cep_run_cluster(struct cep_run *r, enum cep_kernel k,
			struct cep_dim3 grid, uint32_t threads, uint32_t smem,
			uint32_t cluster, const void *params);
/* Input i, where there is one, was written by a kernel that is done before the
 * kernel in front of this run's first begins: it may be read before cep_wait()
 * of kernels/common.cuh. */
bool cep_settled(const struct cep_node *n, const struct cep_run *r, uint32_t i);
struct cep_blame cep_blame_of(const struct cep_node *n,
			      const struct cep_run *r);
/* Blocks of 256 for count threads, bounded. */
uint32_t cep_blocks(const struct cep *self, uint64_t count);
/* op_prompt.c: products of four warps, and kernels for them in this build. */
bool cep_has_wgmma(const struct cep *self);
/* Pick by float dtype. */
enum cep_kernel cep_by_dtype(uint32_t dtype, enum cep_kernel f32,
			     enum cep_kernel f16, enum cep_kernel bf16);
/* Strided copy of elements; dims and strides of the views.  elem_bytes 0: half
 * bytes, dense. */
int32_t cep_run_copy(struct cep_run *r, uint32_t elem_bytes, uint32_t rank,
		     const int64_t *dims, uint64_t dst, const int64_t *ds,
		     uint64_t src, const int64_t *ss);

/* ---- fuse.c: operators that exist only as fusions ---- */

extern const struct cep_op cep_op_silu_mul; /* gate, up */
extern const struct cep_op cep_op_gate_up;  /* a; b, scales, zp, bias; twice */
int32_t cep_prepare_silu_mul(struct cep_node *n, struct genai_error *err);
int32_t cep_prepare_gate_up(struct cep_node *n, struct genai_error *err);
int32_t cep_run_gate_up(struct cep_node *n, struct cep_run *r);
/* May rows of this product be left to the host? */
bool cep_nbits_beside(const struct cep_node *n);

/* ---- op_rowwise.c ---- */

/* A norm's epsilon, by its operator. */
float cep_norm_eps(const struct genai_node *norm);
/* Run the norm that p describes, for a node. */
int32_t cep_run_norm_of(const struct cep_node *n, struct cep_run *r,
			uint32_t dtype, const struct cep_norm *p);

#define CEP_OP_ROW(domain, op, since, prepare, run, ...)                       \
	int32_t prepare(struct cep_node *n, struct genai_error *err);          \
	int32_t run(struct cep_node *n, struct cep_run *r);
#include "modules/cuda_ep/op_rows.h"
#undef CEP_OP_ROW

#endif
