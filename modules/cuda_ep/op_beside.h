/* op_beside.h - products some rows of which the host's cores multiply.
 * Owns: a plan's jobs.  Does not know: who decides which rows. */
#ifndef CEP_OP_BESIDE_H
#define CEP_OP_BESIDE_H

#include "modules/cuda_ep/beside.h"
#include "modules/cuda_ep/op.h"

struct cep_side;

/* One product, or the two of a SwiGLU, with 4-bit matrices whose inputs begin
 * at first and second. */
struct cep_product4 {
	struct cep_mm m;
	struct cep_sum4 o;
	uint64_t bias2;
	uint64_t digits; /* cep_beside_bytes of room; 0 if that is 0 */
	uint32_t first, second;
	bool dual;
};

/* Of a plan with so many nodes; the team is there. */
int32_t cep_side_open(struct cep *self, uint32_t n_nodes,
		      struct cep_side **out_side, struct genai_error *err);
/* Nothing of the plan is queued any more. */
void cep_side_close(struct cep_side *side);

/* Bytes of a row of activations as integers. */
uint64_t cep_digit_bytes(uint64_t k);
/* Room that cep_run_beside needs for m rows of them, so many at a time. */
#define CEP_DIGIT_ROWS 64u
uint64_t cep_beside_bytes(const struct cep *self, uint64_t m, uint64_t k);
/* Run what r says, all or some rows, of up to as many rows of activations as
 * give a row the same bits; q holds where the matrices lie. */
int32_t cep_run_beside(const struct cep_node *n, struct cep_run *r,
		       const struct cep_product4 *x,
		       struct cep_mv_dual_tiled *q);
/* For more rows of activations: learn where the parts lie.  True if there is
 * nothing else to do. */
bool cep_beside_learn(const struct cep_node *n, struct cep_run *r,
		      const struct cep_product4 *x, int32_t *out_rc);
/* Rows that are left to the host, of more rows of activations than read them in
 * one pass: they are copied to the node's workspace at stage, so many bytes at
 * a time, and multiplied there by run. */
#define CEP_STAGE_BYTES (UINT64_C(8) << 20)
#define CEP_STAGE_ROWS 8u
int32_t cep_run_staged(struct cep_node *n, struct cep_run *r,
		       const struct cep_product4 *x, uint64_t stage,
		       int32_t (*run)(struct cep_node *n, struct cep_run *r));
/* Is this run the first of the node in a step, which does the norm in front? */
bool cep_beside_norms(const struct cep_node *n, struct cep_run *r);

#endif
