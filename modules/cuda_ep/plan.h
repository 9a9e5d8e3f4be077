/* plan.h - the executors' nodes and plans; the loop is exec_common's.
 * plan.c   a node prepared; what is told to the loop
 * launch.c a node enqueued; constants, outputs that are moved
 * fuse.c   patterns of nodes that run as one */
#ifndef CEP_PLAN_H
#define CEP_PLAN_H

#include "modules/cuda_ep/op.h"

#define CEP_FOLD_BYTES 128u   /* of a folded value */
#define CEP_CONST_BYTES 256u  /* stored tensors up to here are copied in */
#define CEP_LATE_BYTES 65536u /* outputs up to here can be written late */

enum cep_fuse_kind {
	CEP_FUSE_NONE,
	CEP_FUSE_ABSORBED,
	CEP_FUSE_SILU_MUL,
	CEP_FUSE_GATE_UP,
	CEP_FUSE_BIAS, /* gate: the product, up: the vector */
};

struct cep_fusion {
	enum cep_fuse_kind kind;
	uint32_t sigmoid, mul; /* nodes */
	uint32_t gate, up;     /* values */
	/* node + 1 of a norm whose result only this product takes; or 0 */
	uint32_t norm;
};

/* A node of a variant, with room for its value, if it is folded. */
struct cep_planned {
	struct cep_node n;
	unsigned char fold[CEP_FOLD_BYTES];
};

struct cep_variant {
	struct exec_variant x;
	bool poked; /* its constants are on the device */
};

struct genai_plan {
	struct exec_plan x;
	struct cep *self;
	struct cep_fusion *fusions; /* per node */
	bool synced;		    /* sync words are zero */
	uint32_t settled;	    /* of the step: as in cep_run */
	bool exact;		    /* of its nodes */
	struct cep_side *side;	    /* with threads of the host */
};

static inline struct genai_plan *cep_plan(struct exec_plan *p)
{
	return (struct genai_plan *)p;
}

static inline struct cep_node *cep_node_of(struct exec_variant *v, uint32_t i)
{
	return &((struct cep_planned *)v->nodes)[i].n;
}

/* ---- fuse.c ---- */

/* Find the fusions of the plan's graph. */
int32_t cep_fuse(struct genai_plan *p, struct genai_error *err);
/* Turn a node into what it is fused to, if it is. */
void cep_fuse_apply(const struct genai_plan *p, struct cep_node *n);

/* ---- launch.c ---- */

int32_t cep_begin(struct exec_step *s);
int32_t cep_end(struct exec_step *s);
int32_t cep_launch(struct exec_step *s, uint32_t node,
		   const struct exec_part *part);

static inline void *cep_zalloc(struct cep *self, uint64_t bytes)
{
	return exec_zalloc(self->host, bytes);
}

#endif
