// op_gate_up.c - the two products of a SwiGLU, silu(a B0) (a B1), of one shape:
// inputs are a; b, scales, zero points and bias, twice.
#include "modules/cuda_ep/op_nbits.h"

enum { GATE = 1, UP = 5 };

// Many rows leave silu(gate) up at once.
static bool is_prompt(const struct cep_node *n, const struct cep_nbits *s)
{
	const struct cep_mm p = {
		.m = (uint32_t)s->m,
		.k = (uint32_t)s->k,
		.bits = (uint32_t)s->bits,
		.block = (uint32_t)s->block,
		.zp_kind = (uint32_t)s->zp,
		.vec_a = 1, // else the general kernel refuses it too
	};

	return !n->exact && cep_prompt_takes(n->self, n->in[0]->dtype, &p);
}

int32_t cep_prepare_gate_up(struct cep_node *n, struct genai_error *err)
{
	struct cep_nbits *s = cep_nbits(n);
	struct exec_tensor *in[EXEC_MAX_IN];
	uint32_t n_in = n->n_in, n_out = n->n_out;
	int64_t rows;
	int32_t rc;

	// as the gate's product: its bias is input 5 there
	memcpy(in, n->in, sizeof(in));
	n->in[4] = NULL;
	n->in[5] = in[GATE + 3];
	n->n_in = 6;
	n->n_out = 1;
	rc = cep_nbits_prepare(n, 8, err);
	memcpy(n->in, in, sizeof(in));
	n->n_in = n_in;
	n->n_out = n_out;
	if (rc)
		return rc;
	// both products before they are put together, then the parts; those
	// that are put together at once need no room
	rows = s->m;
	if (is_prompt(n, s))
		rows = CEP_PROMPT_ROWS - 1;
	if (n->exact && (s->fast || s->beside))
		rows = 0;
	s->pair = (rows * s->n * cep_dtype_bytes(n->in[0]->dtype) + 255) / 256 *
		  256;
	s->part = 2 * s->pair;
	n->workspace_bytes += (uint64_t)s->part;
	return cep_nbits_rooms(n, err);
}

// silu(gate) up over the rows of this run, from scratch to the output.
static int32_t put_together(struct cep_node *n, struct cep_run *r,
			    const struct cep_mm *p, uint64_t up)
{
	uint32_t size = cep_dtype_bytes(n->in[0]->dtype);
	uint64_t skip = (uint64_t)p->n0 * size;
	struct cep_ew e = {
		.count = (uint64_t)p->m * p->n,
		.out = n->out[0]->addr + skip,
		.in = {r->workspace + skip, up + skip},
		.op = CEP_EW_SILU_MUL,
		.n_in = 2,
		.rank = 2,
		.out_dt = n->in[0]->dtype,
		.in_dt = {n->in[0]->dtype, n->in[0]->dtype},
		.dims = {p->m, p->n},
		.os = {p->ldc, 1},
		.is = {{p->ldc, 1}, {p->ldc, 1}},
	};

	e.dense = p->n == p->ldc;
	return cep_run_kernel(
		r, CEP_K_cep_ew_f,
		(struct cep_dim3){cep_blocks(r->self, e.count), 1, 1}, 256, 0,
		&e);
}

int32_t cep_run_gate_up(struct cep_node *n, struct cep_run *r)
{
	const struct cep_nbits *s = cep_nbits(n);
	struct cep_mm p = cep_nbits_params(n, r, GATE, GATE + 3), u;
	uint32_t dtype = n->in[0]->dtype;
	struct cep_mv_dual_tiled q;
	int32_t rc;

	if (cep_nbits_exact(n, r, &p, UP, &rc))
		return rc;
	if (!n->exact && cep_prompt_takes(r->self, dtype, &p)) {
		rc = cep_set_pair(n, r, &p, UP, &q);
		return rc ? rc : cep_run_prompt_pair(r, dtype, &q);
	}
	p.out = r->workspace;
	rc = cep_nbits_general(n, r, &p, GATE);
	u = cep_nbits_params(n, r, UP, UP + 3);
	u.a = p.a;
	u.vec_a = p.vec_a;
	u.out = r->workspace + (uint64_t)s->pair;
	if (!rc)
		rc = cep_nbits_general(n, r, &u, UP);
	return rc ? rc : put_together(n, r, &p, u.out);
}
