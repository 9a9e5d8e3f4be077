// op_rowwise.c - norms, reductions, softmax, arg-max.
#include "modules/cuda_ep/op.h"

#define ARGMAX_BLOCKS 64 // of a row, at most

struct norm_state {
	int64_t dim; // of a row
	bool skip;   // the skip form
	float eps;
};
EXEC_STATE(norm_state, cep_node)

float cep_norm_eps(const struct genai_node *norm)
{
	for (uint32_t i = 0; i < norm->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(norm, i);

		if (!strcmp(a->name, "epsilon") && a->kind == GENAI_ATTR_FLOAT)
			return (float)a->f;
	}
	return strncmp(norm->op, "Skip", 4) ? 1e-5f : 1e-12f;
}

int32_t cep_prepare_norm(struct cep_node *n, struct genai_error *err)
{
	const struct exec_tensor *t = n->in[0];
	uint32_t axis;
	int64_t dim = 1;
	int32_t rc = cep_check(n, exec_norm_attrs, 1, 3, 1, err);

	if (!rc)
		rc = cep_need_float(n, 0, err);
	for (uint32_t i = 0; !rc && i < n->n_in; i++)
		rc = cep_need_dense(n, i, err);
	for (uint32_t i = 1; !rc && i < n->n_in; i++)
		rc = cep_need_same(n, i, 0, err);
	if (!rc)
		rc = cep_axis(n, exec_attr_int(n->node, "axis", -1), t->rank,
			      &axis, err);
	if (rc)
		return rc;
	for (uint32_t d = axis; d < t->rank; d++)
		dim *= t->dims[d];
	for (uint32_t i = 1; i < n->n_in; i++)
		if (n->in[i] && exec_count(n->in[i]) != (uint64_t)dim)
			return cep_node_fail(
				n, err, GENAI_E_FORMAT,
				"input %u has %llu elements for "
				"rows of %lld",
				i, (unsigned long long)exec_count(n->in[i]),
				(long long)dim);
	if (dim < 1 || dim * 4 > n->self->max_smem - 20480)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "rows of %lld elements", (long long)dim);
	*norm_state(n) = (struct norm_state){
		.dim = dim,
		.eps = cep_norm_eps(n->node),
	};
	return cep_out(n, 0, t->dtype, t->rank, t->dims, err);
}

int32_t cep_prepare_skipnorm(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"epsilon", NULL};
	const struct exec_tensor *t = n->in[0], *skip = n->in[1];
	bool layer = n->op->code == CEP_NORM_LAYER;
	int64_t dim;
	int32_t rc = cep_check(n, attrs, 3, layer ? 5 : 4, 4, err);

	if (!rc)
		rc = cep_need_float(n, 0, err);
	for (uint32_t i = 0; !rc && i < n->n_in; i++)
		rc = cep_need_dense(n, i, err);
	for (uint32_t i = 1; !rc && i < n->n_in; i++)
		rc = cep_need_same(n, i, 0, err);
	if (rc)
		return rc;
	dim = t->rank ? t->dims[t->rank - 1] : 0;
	for (uint32_t i = 2; i < n->n_in; i++)
		if (n->in[i] && exec_count(n->in[i]) != (uint64_t)dim)
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "input %u does not have %lld "
					     "elements",
					     i, (long long)dim);
	if (dim < 1 || dim * 4 > n->self->max_smem - 20480 ||
	    (exec_count(t) &&
	     (!exec_count(skip) || exec_count(t) % exec_count(skip) ||
	      exec_count(skip) % (uint64_t)dim)))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "skip of %llu elements, rows of %lld",
				     (unsigned long long)exec_count(skip),
				     (long long)dim);
	*norm_state(n) = (struct norm_state){
		.dim = dim,
		.skip = true,
		.eps = cep_norm_eps(n->node),
	};
	for (uint32_t i = 1; i < n->n_out && i < 3; i++)
		if (n->out[i])
			return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
					     "output %u is asked for", i);
	rc = cep_out(n, 0, t->dtype, t->rank, t->dims, err);
	return rc ? rc : cep_out(n, 3, t->dtype, t->rank, t->dims, err);
}

int32_t cep_run_norm_of(const struct cep_node *n, struct cep_run *r,
			uint32_t dtype, const struct cep_norm *p)
{
	uint32_t whole = p->image_rows ? p->image_rows : 1;
	uint32_t rows = ((uint32_t)p->rows + whole - 1) / whole * whole;

	// by the length alone, so that alignment does not change sums
	if (p->dim % 8 == 0 && p->dim <= 8192) {
		if (((p->x | p->skip | p->bias | p->gamma | p->beta | p->out |
		      p->sum) &
		     15))
			return cep_node_fail(n, r->err, GENAI_E_INVAL,
					     "an input is not aligned to 16");
		return cep_run_kernel(r,
				      cep_by_dtype(dtype, CEP_K_cep_norm8_f32,
						   CEP_K_cep_norm8_f16,
						   CEP_K_cep_norm8_bf16),
				      (struct cep_dim3){rows, 1, 1},
				      (p->dim / 8 + 31) / 32 * 32, 0, p);
	}
	return cep_run_kernel(
		r,
		cep_by_dtype(dtype, CEP_K_cep_norm_f32, CEP_K_cep_norm_f16,
			     CEP_K_cep_norm_bf16),
		(struct cep_dim3){(uint32_t)p->rows, 1, 1}, 256, p->dim * 4, p);
}

int32_t cep_run_norm(struct cep_node *n, struct cep_run *r)
{
	const struct exec_tensor *t = n->in[0];
	const struct norm_state *s = norm_state(n);
	bool layer = n->op->code == CEP_NORM_LAYER;
	struct cep_norm p = {
		.x = t->addr,
		.out = n->out[0]->addr,
		.dim = (uint32_t)s->dim,
		.layer = layer,
		.eps = s->eps,
	};

	p.rows = exec_count(t) / p.dim;
	if (s->skip) {
		p.skip = cep_in_addr(n, 1);
		p.skip_rows = exec_count(n->in[1]) / p.dim;
		p.gamma = cep_in_addr(n, 2);
		p.beta = layer ? cep_in_addr(n, 3) : 0;
		p.bias = cep_in_addr(n, layer ? 4 : 3);
		p.sum = cep_out_addr(n, 3);
	} else {
		p.gamma = cep_in_addr(n, 1);
		p.beta = cep_in_addr(n, 2);
	}
	return cep_run_norm_of(n, r, t->dtype, &p);
}

struct row_state {
	int64_t inner; // stride of the axis
	int64_t len, rows;
	int64_t blocks; // arg-max: of a row
};
EXEC_STATE(row_state, cep_node)

static void row_shape(struct cep_node *n, uint32_t from, uint32_t to)
{
	const struct exec_tensor *t = n->in[0];
	int64_t inner = 1, len = 1;

	for (uint32_t d = to; d < t->rank; d++)
		inner *= t->dims[d];
	for (uint32_t d = from; d < to; d++)
		len *= t->dims[d];
	*row_state(n) = (struct row_state){
		.inner = inner,
		.len = len,
		.rows = len ? (int64_t)exec_count(t) / len : 0,
	};
}

static struct cep_row row_params(const struct cep_node *n,
				 const struct cep_run *r)
{
	const struct row_state *s = row_state(n);

	return (struct cep_row){
		.x = n->in[0]->addr,
		.out = n->out[0]->addr,
		.rows = (uint64_t)s->rows,
		.dim = (uint64_t)s->len,
		.inner = s->inner,
		.in_dt = n->in[0]->dtype,
		.out_dt = n->out[0]->dtype,
		.op = n->op->code,
		.blame = cep_blame_of(n, r),
	};
}

int32_t cep_prepare_softmax(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", NULL};
	uint32_t axis;
	int32_t rc = cep_check(n, attrs, 1, 1, 1, err);

	if (!rc)
		rc = cep_need_float(n, 0, err);
	if (!rc)
		rc = cep_need_dense(n, 0, err);
	if (!rc)
		rc = cep_axis(n, exec_attr_int(n->node, "axis", -1),
			      n->in[0]->rank, &axis, err);
	if (rc)
		return rc;
	row_shape(n, axis, axis + 1);
	return cep_out(n, 0, n->in[0]->dtype, n->in[0]->rank, n->in[0]->dims,
		       err);
}

int32_t cep_run_softmax(struct cep_node *n, struct cep_run *r)
{
	struct cep_row p = row_params(n, r);

	return cep_run_kernel(r, CEP_K_cep_softmax,
			      (struct cep_dim3){(uint32_t)p.rows, 1, 1}, 256, 0,
			      &p);
}

int32_t cep_prepare_argmax(struct cep_node *n, struct genai_error *err)
{
	struct row_state *s = row_state(n);
	const struct exec_tensor *t = n->in[0];
	int64_t dims[GENAI_MAX_RANK];
	uint32_t axis, rank = 0;
	int32_t rc = cep_check(n, exec_arg_attrs, 1, 1, 1, err);

	if (!rc)
		rc = cep_need_float(n, 0, err);
	if (!rc)
		rc = cep_need_dense(n, 0, err);
	if (!rc)
		rc = cep_axis(n, exec_attr_int(n->node, "axis", 0), t->rank,
			      &axis, err);
	if (!rc && (exec_attr_int(n->node, "select_last_index", 0) ||
		    t->dims[axis] < 1))
		rc = cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				   "select_last_index, or nothing to choose "
				   "from");
	if (rc)
		return rc;
	for (uint32_t d = 0; d < t->rank; d++) {
		if (d != axis)
			dims[rank++] = t->dims[d];
		else if (exec_attr_int(n->node, "keepdims", 1))
			dims[rank++] = 1;
	}
	row_shape(n, axis, axis + 1);
	s->blocks = (s->len + 2047) / 2048;
	if (s->blocks > ARGMAX_BLOCKS)
		s->blocks = ARGMAX_BLOCKS;
	if (s->rows > 65535)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED, "%lld rows",
				     (long long)s->rows);
	n->workspace_bytes = (uint64_t)(s->rows * ARGMAX_BLOCKS) * 12;
	n->sync_bytes = (uint64_t)s->rows * 4;
	return cep_out(n, 0, GENAI_DT_I64, rank, dims, err);
}

int32_t cep_run_argmax(struct cep_node *n, struct cep_run *r)
{
	struct cep_row p = row_params(n, r);

	p.out3 = r->workspace; // 8-byte indices, then 4-byte values
	p.out2 = r->workspace + p.rows * ARGMAX_BLOCKS * 8;
	p.counters = r->sync;
	return cep_run_kernel(r, CEP_K_cep_argmax,
			      (struct cep_dim3){(uint32_t)row_state(n)->blocks,
						(uint32_t)p.rows, 1},
			      256, 0, &p);
}

// Axes must be neighbours: exporters reduce the last one or all.
int32_t cep_prepare_reduce(struct cep_node *n, struct genai_error *err)
{
	const struct genai_attr *a = exec_attr(n->node, "axes");
	const struct exec_tensor *t = n->in[0];
	int64_t dims[GENAI_MAX_RANK], axes[GENAI_MAX_RANK];
	uint32_t count = 0, mask = 0, rank = 0, from = 0, to, at;
	int32_t rc = cep_check(n, exec_reduce_attrs, 1, 2, 1, err);

	if (!rc && !cep_is_float(t->dtype))
		rc = cep_need_index(n, 0, err);
	if (!rc)
		rc = cep_need_dense(n, 0, err);
	if (!rc && n->n_in > 1 && n->in[1]) {
		rc = cep_ints(n, 1, axes, GENAI_MAX_RANK, &count, err);
	} else if (!rc && a && a->count <= GENAI_MAX_RANK) {
		count = (uint32_t)a->count;
		memcpy(axes, a->ints, count * sizeof(axes[0]));
	}
	for (uint32_t i = 0; !rc && i < count; i++) {
		rc = cep_axis(n, axes[i], t->rank, &at, err);
		if (!rc)
			mask |= 1u << at;
	}
	if (rc)
		return rc;
	if (!count && !exec_attr_int(n->node, "noop_with_empty_axes", 0))
		mask = (1u << t->rank) - 1;
	while (from < t->rank && !(mask >> from & 1))
		from++;
	for (to = from; to < t->rank && mask >> to & 1;)
		to++;
	if (to < t->rank && mask >> to)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "axes that are not neighbours");
	for (uint32_t d = 0; d < t->rank; d++) {
		if (!(mask >> d & 1))
			dims[rank++] = t->dims[d];
		else if (exec_attr_int(n->node, "keepdims", 1))
			dims[rank++] = 1;
	}
	row_shape(n, from, to);
	if (!row_state(n)->len)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "nothing to reduce");
	if (n->op->code == CEP_ROW_MEAN && !cep_is_float(t->dtype))
		return cep_need_float(n, 0, err);
	return cep_out(n, 0, t->dtype, rank, dims, err);
}

int32_t cep_run_reduce(struct cep_node *n, struct cep_run *r)
{
	struct cep_row p = row_params(n, r);

	if (!cep_is_float(n->in[0]->dtype))
		return cep_run_kernel(
			r, CEP_K_cep_reduce_i,
			(struct cep_dim3){(uint32_t)((p.rows + 255) / 256), 1,
					  1},
			256, 0, &p);
	return cep_run_kernel(r, CEP_K_cep_reduce,
			      (struct cep_dim3){(uint32_t)p.rows, 1, 1}, 256, 0,
			      &p);
}
