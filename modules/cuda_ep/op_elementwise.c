// op_elementwise.c - operators that work element by element, with broadcast.
#include <math.h>

#include "modules/cuda_ep/op.h"

struct ew_state {
	enum cep_ew_op op;
	uint32_t n_in;
	bool ints;
	float f[2]; // what some operations have besides
};
EXEC_STATE(ew_state, cep_node)

static int32_t finish(struct cep_node *n, enum cep_ew_op op, uint32_t n_in,
		      bool ints)
{
	struct ew_state *s = ew_state(n);

	s->op = op;
	s->n_in = n_in;
	s->ints = ints;
	return 0;
}

static int32_t need_number(const struct cep_node *n, uint32_t i,
			   struct genai_error *err)
{
	uint32_t dt = n->in[i]->dtype;

	if (cep_is_float(dt) || cep_is_int(dt))
		return 0;
	return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
			     "input %u (%s) has dtype %u", i, n->in[i]->name,
			     dt);
}

// Multidirectional broadcast of inputs [0, n_in) into output 0.
static int32_t broadcast(struct cep_node *n, uint32_t n_in, uint32_t dtype,
			 struct genai_error *err)
{
	int64_t dims[GENAI_MAX_RANK];
	uint32_t rank = 0;

	for (uint32_t i = 0; i < n_in; i++)
		if (n->in[i]->rank > rank)
			rank = n->in[i]->rank;
	for (uint32_t d = 0; d < rank; d++)
		dims[d] = 1;
	for (uint32_t i = 0; i < n_in; i++) {
		const struct exec_tensor *t = n->in[i];

		for (uint32_t d = 0; d < t->rank; d++) {
			int64_t *o = &dims[rank - t->rank + d];

			if (t->dims[d] == 1)
				continue;
			if (*o != 1 && *o != t->dims[d])
				return cep_node_fail(
					n, err, GENAI_E_FORMAT,
					"input %u: a dimension of %lld does "
					"not broadcast with %lld",
					i, (long long)t->dims[d],
					(long long)*o);
			*o = t->dims[d];
		}
	}
	return cep_out(n, 0, dtype, rank, dims, err);
}

int32_t cep_prepare_unary(struct cep_node *n, struct genai_error *err)
{
	enum cep_ew_op op = n->op->code;
	int32_t rc = cep_check(n, NULL, 1, 1, 1, err);
	bool ints;

	if (rc)
		return rc;
	rc = need_number(n, 0, err);
	if (rc)
		return rc;
	ints = cep_is_int(n->in[0]->dtype);
	if (ints && op != CEP_EW_ABS && op != CEP_EW_NEG && op != CEP_EW_RELU &&
	    op != CEP_EW_SIGN)
		return cep_need_float(n, 0, err);
	rc = broadcast(n, 1, n->in[0]->dtype, err);
	return rc ? rc : finish(n, op, 1, ints);
}

int32_t cep_prepare_binary(struct cep_node *n, struct genai_error *err)
{
	enum cep_ew_op op = n->op->code;
	int32_t rc = cep_check(n, NULL, 2, 2, 1, err);
	bool ints;

	if (rc)
		return rc;
	rc = need_number(n, 0, err);
	if (!rc)
		rc = need_number(n, 1, err);
	if (!rc && op != CEP_EW_POW)
		rc = cep_need_same(n, 1, 0, err);
	if (rc)
		return rc;
	ints = cep_is_int(n->in[0]->dtype);
	if (ints && op == CEP_EW_POW)
		return cep_need_float(n, 0, err);
	rc = broadcast(n, 2, n->in[0]->dtype, err);
	return rc ? rc : finish(n, op, 2, ints);
}

int32_t cep_prepare_compare(struct cep_node *n, struct genai_error *err)
{
	enum cep_ew_op op = n->op->code;
	int32_t rc = cep_check(n, NULL, 2, 2, 1, err);

	if (rc)
		return rc;
	rc = need_number(n, 0, err);
	if (!rc)
		rc = cep_need_same(n, 1, 0, err);
	if (!rc)
		rc = broadcast(n, 2, GENAI_DT_BOOL, err);
	return rc ? rc : finish(n, op, 2, cep_is_int(n->in[0]->dtype));
}

int32_t cep_prepare_logic(struct cep_node *n, struct genai_error *err)
{
	int32_t rc = cep_check(n, NULL, 2, 2, 1, err);

	for (uint32_t i = 0; !rc && i < 2; i++)
		if (n->in[i]->dtype != GENAI_DT_BOOL)
			rc = cep_node_fail(n, err, GENAI_E_FORMAT,
					   "input %u is not boolean", i);
	if (!rc)
		rc = broadcast(n, 2, GENAI_DT_BOOL, err);
	return rc ? rc : finish(n, n->op->code, 2, true);
}

int32_t cep_prepare_not(struct cep_node *n, struct genai_error *err)
{
	int32_t rc = cep_check(n, NULL, 1, 1, 1, err);

	if (!rc && n->in[0]->dtype != GENAI_DT_BOOL)
		rc = cep_node_fail(n, err, GENAI_E_FORMAT,
				   "input 0 is not boolean");
	if (!rc)
		rc = broadcast(n, 1, GENAI_DT_BOOL, err);
	return rc ? rc : finish(n, CEP_EW_NOT, 1, true);
}

int32_t cep_prepare_cast(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"to", "saturate", NULL};
	int32_t rc = cep_check(n, attrs, 1, 1, 1, err);
	uint32_t to = (uint32_t)exec_attr_int(n->node, "to", 0);

	if (!rc)
		rc = need_number(n, 0, err);
	if (!rc && !cep_is_float(to) && !cep_is_int(to))
		rc = cep_node_fail(n, err, GENAI_E_UNSUPPORTED, "to dtype %u",
				   to);
	if (!rc)
		rc = broadcast(n, 1, to, err);
	if (rc)
		return rc;
	if (to == n->in[0]->dtype && exec_is_dense(n->in[0]))
		cep_alias(n, 0, 0, 0);
	return finish(n, CEP_EW_COPY, 1,
		      cep_is_int(to) && cep_is_int(n->in[0]->dtype));
}

static float float_of(const struct exec_tensor *t)
{
	uint16_t h;
	float f = 0;

	if (t->dtype == GENAI_DT_F32) {
		memcpy(&f, t->value, 4);
	} else if (t->dtype == GENAI_DT_BF16) {
		uint32_t u;

		memcpy(&h, t->value, 2);
		u = (uint32_t)h << 16;
		memcpy(&f, &u, 4);
	} else {
		int e;

		memcpy(&h, t->value, 2);
		e = h >> 10 & 31;
		f = e == 31 ? (h & 1023 ? NAN : INFINITY)
		    : e	    ? ldexpf((float)((h & 1023) | 1024), e - 25)
			    : ldexpf((float)(h & 1023), -24);
		f = h & 0x8000 ? -f : f;
	}
	return f;
}

int32_t cep_prepare_clip(struct cep_node *n, struct genai_error *err)
{
	float *f = ew_state(n)->f;
	int32_t rc = cep_check(n, NULL, 1, 3, 1, err);

	if (!rc)
		rc = cep_need_float(n, 0, err);
	if (rc)
		return rc;
	f[0] = -INFINITY;
	f[1] = INFINITY;
	for (uint32_t i = 1; i < n->n_in; i++) {
		if (!n->in[i])
			continue;
		rc = cep_need_same(n, i, 0, err);
		if (!rc && (!n->in[i]->value || exec_count(n->in[i]) != 1))
			rc = cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
					   "input %u is not a constant", i);
		if (rc)
			return rc;
		f[i - 1] = float_of(n->in[i]);
	}
	rc = broadcast(n, 1, n->in[0]->dtype, err);
	return rc ? rc : finish(n, CEP_EW_CLIP, 1, false);
}

int32_t cep_prepare_gelu(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"approximate", NULL};
	const char *how;
	int32_t rc = cep_check(n, attrs, 1, 1, 1, err);

	if (!rc)
		rc = cep_need_float(n, 0, err);
	if (!rc)
		rc = broadcast(n, 1, n->in[0]->dtype, err);
	if (rc)
		return rc;
	how = exec_attr_string(n->node, "approximate", "none");
	if (strcmp(how, "none") && strcmp(how, "tanh"))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "approximate = %s", how);
	return finish(n, *how == 't' ? CEP_EW_GELU_TANH : CEP_EW_GELU, 1,
		      false);
}

int32_t cep_prepare_quickgelu(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"alpha", NULL};
	int32_t rc = cep_check(n, attrs, 1, 1, 1, err);

	if (!rc)
		rc = cep_need_float(n, 0, err);
	if (!rc)
		rc = broadcast(n, 1, n->in[0]->dtype, err);
	ew_state(n)->f[0] = exec_attr_float(n->node, "alpha", 1.702f);
	return rc ? rc : finish(n, CEP_EW_QUICK_GELU, 1, false);
}

int32_t cep_prepare_fastgelu(struct cep_node *n, struct genai_error *err)
{
	int32_t rc = cep_check(n, NULL, 1, 2, 1, err);
	uint32_t n_in = n->n_in > 1 && n->in[1] ? 2 : 1;

	if (!rc)
		rc = cep_need_float(n, 0, err);
	if (!rc)
		rc = cep_need_same(n, 1, 0, err);
	if (!rc)
		rc = broadcast(n, n_in, n->in[0]->dtype, err);
	return rc ? rc
		  : finish(n, n_in == 2 ? CEP_EW_FAST_GELU : CEP_EW_GELU_TANH,
			   n_in, false);
}

int32_t cep_prepare_silu_mul(struct cep_node *n, struct genai_error *err)
{
	int32_t rc = cep_need_float(n, 0, err);

	if (!rc)
		rc = cep_need_same(n, 1, 0, err);
	if (!rc)
		rc = broadcast(n, 2, n->in[0]->dtype, err);
	return rc ? rc : finish(n, CEP_EW_SILU_MUL, 2, false);
}

int32_t cep_prepare_where(struct cep_node *n, struct genai_error *err)
{
	int32_t rc = cep_check(n, NULL, 3, 3, 1, err);

	if (!rc && n->in[0]->dtype != GENAI_DT_BOOL)
		rc = cep_node_fail(n, err, GENAI_E_FORMAT,
				   "input 0 is not boolean");
	if (!rc)
		rc = need_number(n, 1, err);
	if (!rc)
		rc = cep_need_same(n, 2, 1, err);
	if (!rc)
		rc = broadcast(n, 3, n->in[1]->dtype, err);
	return rc ? rc
		  : finish(n, CEP_EW_WHERE, 3, cep_is_int(n->in[1]->dtype));
}

// Strides of the operands over the output's dims, neighbours merged.
static int32_t layout(const struct cep_node *n, struct cep_ew *p,
		      struct genai_error *err)
{
	const struct exec_tensor *o = n->out[0];
	uint32_t rank = 0;

	p->dense = 1;
	for (uint32_t d = 0; d < o->rank; d++) {
		int64_t is[3] = {0, 0, 0};
		bool merge = rank > 0;

		if (o->dims[d] == 1)
			continue;
		for (uint32_t i = 0; i < p->n_in; i++) {
			const struct exec_tensor *t = n->in[i];
			uint32_t lead = o->rank - t->rank;

			if (d >= lead && t->dims[d - lead] != 1)
				is[i] = t->strides[d - lead];
			if (is[i] != o->strides[d])
				p->dense = 0;
			if (merge && p->is[i][rank - 1] != is[i] * o->dims[d])
				merge = false;
		}
		if (merge && p->os[rank - 1] != o->strides[d] * o->dims[d])
			merge = false;
		if (!merge && rank == CEP_DIMS)
			return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
					     "more than %d dimensions",
					     CEP_DIMS);
		if (!merge)
			p->dims[rank++] = 1;
		p->dims[rank - 1] *= o->dims[d];
		p->os[rank - 1] = o->strides[d];
		for (uint32_t i = 0; i < p->n_in; i++)
			p->is[i][rank - 1] = is[i];
	}
	p->rank = rank;
	return 0;
}

int32_t cep_run_ew(struct cep_node *n, struct cep_run *r)
{
	const struct ew_state *s = ew_state(n);
	struct cep_ew p = {
		.count = exec_count(n->out[0]),
		.out = n->out[0]->addr,
		.op = s->op,
		.n_in = s->n_in,
		.out_dt = n->out[0]->dtype,
		.f = {s->f[0], s->f[1]},
		.blame = cep_blame_of(n, r),
	};
	int32_t rc;

	if (!p.count)
		return 0;
	for (uint32_t i = 0; i < p.n_in; i++) {
		p.in[i] = n->in[i]->addr;
		p.in_dt[i] = n->in[i]->dtype;
	}
	rc = layout(n, &p, r->err);
	if (rc)
		return rc;
	return cep_run_kernel(
		r, s->ints ? CEP_K_cep_ew_i : CEP_K_cep_ew_f,
		(struct cep_dim3){cep_blocks(r->self, p.count), 1, 1}, 256, 0,
		&p);
}
