// op_elements.c - TopK, and operators that read or write single elements by
// index: GatherElements, ScatterElements.
#include "modules/cuda_ep/op.h"

#define LONGEST (1 << 20) // what TopK takes: every element is compared

struct elements_state {
	uint32_t axis;
	enum exec_write how;
	int64_t k;
};
EXEC_STATE(elements_state, cep_node)

_Static_assert(CEP_SET == (int)EXEC_WRITE_SET &&
		       CEP_ADD == (int)EXEC_WRITE_ADD &&
		       CEP_MUL == (int)EXEC_WRITE_MUL &&
		       CEP_MAX == (int)EXEC_WRITE_MAX &&
		       CEP_MIN == (int)EXEC_WRITE_MIN,
	       "what kernels/index.cu goes by");

// Elements before the axis, times those behind it; and those behind it.
static uint64_t lines_of(const struct exec_tensor *t, uint32_t axis,
			 uint64_t *out_inner)
{
	uint64_t lines = 1;

	*out_inner = 1;
	for (uint32_t d = 0; d < t->rank; d++) {
		if (d != axis)
			lines *= (uint64_t)t->dims[d];
		if (d > axis)
			*out_inner *= (uint64_t)t->dims[d];
	}
	return lines;
}

static int32_t need_number(const struct cep_node *n, struct genai_error *err)
{
	const uint32_t dtype = n->in[0]->dtype;

	if (cep_is_float(dtype) ||
	    (cep_is_int(dtype) && dtype != GENAI_DT_BOOL))
		return 0;
	return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
			     "input 0 (%s) is of type %s: not carried",
			     n->in[0]->name, exec_dtype_name(dtype));
}

int32_t cep_prepare_topk(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", "largest", "sorted", NULL};
	const struct exec_tensor *x = n->in[0];
	int64_t dims[GENAI_MAX_RANK], k = 0;
	uint32_t axis = 0, count = 0;
	int32_t rc = cep_check(n, attrs, 2, 2, 2, err);

	if (!rc)
		rc = need_number(n, err);
	if (!rc)
		rc = cep_need_dense(n, 0, err);
	if (!rc)
		rc = cep_axis(n, exec_attr_int(n->node, "axis", -1), x->rank,
			      &axis, err);
	if (!rc)
		rc = cep_ints(n, 1, &k, 1, &count, err);
	if (rc)
		return rc;
	if (!count || k < 0 || k > x->dims[axis])
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "k is %lld, axis %u of shape %s",
				     (long long)k, axis, EXEC_SHAPE(x));
	if (x->dims[axis] > LONGEST)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "the best of %lld: at most %d are carried",
				     (long long)x->dims[axis], LONGEST);
	memcpy(dims, x->dims, sizeof(dims));
	dims[axis] = k;
	*elements_state(n) = (struct elements_state){.axis = axis, .k = k};
	rc = cep_out(n, 0, x->dtype, x->rank, dims, err);
	return rc ? rc : cep_out(n, 1, GENAI_DT_I64, x->rank, dims, err);
}

int32_t cep_run_topk(struct cep_node *n, struct cep_run *r)
{
	const struct exec_tensor *x = n->in[0];
	const struct elements_state *s = elements_state(n);
	struct cep_best p = {
		.x = x->addr,
		.values = cep_out_addr(n, 0),
		.at = cep_out_addr(n, 1),
		.dim = (uint32_t)x->dims[s->axis],
		.k = (uint32_t)s->k,
		.dt = x->dtype,
		.size = cep_dtype_bytes(x->dtype),
		.smallest = !exec_attr_int(n->node, "largest", 1),
	};

	p.count = lines_of(x, s->axis, &p.inner) * p.dim;
	if (!p.k || !p.count)
		return 0;
	return cep_run_kernel(
		r, CEP_K_cep_topk,
		(struct cep_dim3){cep_blocks(r->self, p.count), 1, 1}, 256, 0,
		&p);
}

// Indices that fit data in every axis but one.
static int32_t check(struct cep_node *n, struct genai_error *err)
{
	const struct exec_tensor *x = n->in[0], *idx = n->in[1];
	struct elements_state *s = elements_state(n);
	bool fits = x->rank == idx->rank && (exec_count(x) || !exec_count(idx));
	int32_t rc = cep_need_index(n, 1, err);

	for (uint32_t i = 0; !rc && i < n->n_in; i++)
		rc = cep_need_dense(n, i, err);
	if (!rc)
		rc = cep_axis(n, exec_attr_int(n->node, "axis", 0), x->rank,
			      &s->axis, err);
	if (rc)
		return rc;
	if (!cep_dtype_bytes(x->dtype) || x->rank > CEP_DIMS)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "data of type %s, rank %u",
				     exec_dtype_name(x->dtype), x->rank);
	for (uint32_t d = 0; fits && d < x->rank; d++)
		fits = d == s->axis || idx->dims[d] <= x->dims[d];
	if (!fits)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "indices of shape %s do not fit data of "
				     "shape %s",
				     EXEC_SHAPE(idx), EXEC_SHAPE(x));
	return 0;
}

static struct cep_elements params(const struct cep_node *n,
				  const struct cep_run *r)
{
	const struct exec_tensor *x = n->in[0], *idx = n->in[1];
	const struct elements_state *s = elements_state(n);
	struct cep_elements p = {
		.x = x->addr,
		.idx = idx->addr,
		.updates = cep_in_addr(n, 2),
		.out = n->out[0]->addr,
		.rank = x->rank,
		.axis = s->axis,
		.dt = x->dtype,
		.size = cep_dtype_bytes(x->dtype),
		.how = s->how,
		.idx64 = idx->dtype == GENAI_DT_I64,
		.blame = cep_blame_of(n, r),
	};

	for (uint32_t d = 0; d < x->rank; d++) {
		p.dims[d] = x->dims[d];
		p.idims[d] = idx->dims[d];
	}
	return p;
}

int32_t cep_prepare_gather_elements(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", NULL};
	int32_t rc = cep_check(n, attrs, 2, 2, 1, err);

	if (!rc)
		rc = check(n, err);
	return rc ? rc
		  : cep_out(n, 0, n->in[0]->dtype, n->in[1]->rank,
			    n->in[1]->dims, err);
}

int32_t cep_run_gather_elements(struct cep_node *n, struct cep_run *r)
{
	struct cep_elements p = params(n, r);

	p.count = exec_count(n->in[1]);
	if (!p.count)
		return 0;
	return cep_run_kernel(
		r, CEP_K_cep_gather_elements,
		(struct cep_dim3){cep_blocks(r->self, p.count), 1, 1}, 256, 0,
		&p);
}

int32_t cep_prepare_scatter_elements(struct cep_node *n,
				     struct genai_error *err)
{
	struct elements_state *s = elements_state(n);
	struct exec_text why;
	int32_t rc = cep_check(n, exec_scatter_attrs, 3, 3, 1, err);

	if (!rc)
		rc = check(n, err);
	if (!rc)
		rc = cep_need_same(n, 2, 0, err);
	if (!rc)
		rc = cep_need_shape(n, 2, n->in[1]->rank, n->in[1]->dims, false,
				    err);
	if (rc)
		return rc;
	if ((rc = exec_reduction(n->node, &s->how, &why)))
		return cep_node_fail(n, err, rc, "%s", why.s);
	if (s->how && (rc = need_number(n, err)))
		return rc;
	return cep_out(n, 0, n->in[0]->dtype, n->in[0]->rank, n->in[0]->dims,
		       err);
}

int32_t cep_run_scatter_elements(struct cep_node *n, struct cep_run *r)
{
	const struct exec_tensor *x = n->in[0];
	struct cep_elements p = params(n, r);
	uint64_t inner;

	p.count = lines_of(x, p.axis, &inner);
	if (!exec_count(x))
		return 0;
	return cep_run_kernel(
		r, CEP_K_cep_scatter_elements,
		(struct cep_dim3){cep_blocks(r->self, p.count * 32), 1, 1}, 256,
		0, &p);
}
