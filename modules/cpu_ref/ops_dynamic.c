// ops_dynamic.c - quantisation at run time: DynamicQuantizeLinear,
// MatMulInteger; normalisation of channels: InstanceNormalization,
// GroupNormalization; SwiGLU.
#include "modules/cpu_ref/ops.h"

#include <math.h>

// ---- DynamicQuantizeLinear ----

int32_t ops_dynamic_quant_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, NULL, 1, 1, 3, err);

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BIT(GENAI_DT_F32), err);
	if (!rc)
		rc = ops_out(n, 0, GENAI_DT_U8, n->in[0]->rank, n->in[0]->dims,
			     err);
	if (!rc && n->n_out > 1)
		rc = ops_out(n, 1, GENAI_DT_F32, 0, NULL, err);
	if (!rc && n->n_out > 2)
		rc = ops_out(n, 2, GENAI_DT_U8, 0, NULL, err);
	return rc;
}

int32_t ops_dynamic_quant_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[0];
	uint64_t count = exec_count(x);
	float low = 0, high = 0, v, scale, zero;

	(void)r;
	for (uint64_t i = 0; i < count; i++) {
		ops_load(OPS_F32, &v, x->dtype, x->data, (int64_t)i, 1, 1);
		low = v < low ? v : low;
		high = v > high ? v : high;
	}
	scale = (high > low ? high - low : 1) / 255;
	zero = -low / scale;
	zero = rintf(zero < 0 ? 0 : zero > 255 ? 255 : zero);
	for (uint64_t i = 0; n->out[0] && i < count; i++) {
		ops_load(OPS_F32, &v, x->dtype, x->data, (int64_t)i, 1, 1);
		v = rintf(v / scale) + zero;
		v = v > 0 ? v < 255 ? v : 255 : 0; // NaN: 0
		((unsigned char *)n->out[0]->data)[i] = (unsigned char)v;
	}
	if (n->n_out > 1 && n->out[1])
		memcpy(n->out[1]->data, &scale, 4);
	if (n->n_out > 2 && n->out[2])
		*(unsigned char *)n->out[2]->data = (unsigned char)zero;
	return GENAI_OK;
}

// ---- MatMulInteger ----

// Zero points: one, or one for each of count rows or columns.
static int32_t need_zero(struct cref_node *n, uint32_t i, int64_t count,
			 struct genai_error *err)
{
	const struct exec_tensor *z = i < n->n_in ? n->in[i] : NULL;

	if (!z || exec_count(z) == 1)
		return GENAI_OK;
	return ops_need_shape(n, i, 1, &count, false, err);
}

int32_t ops_matmul_integer_prepare(struct cref_node *n, struct genai_error *err)
{
	const uint32_t mask = OPS_BIT(GENAI_DT_I8) | OPS_BIT(GENAI_DT_U8);
	const struct exec_tensor *a, *b;
	int64_t dims[GENAI_MAX_RANK];
	int32_t rc = ops_check(n, NULL, 2, 4, 1, err);

	for (uint32_t i = 0; !rc && i < 4; i++)
		rc = ops_need_dtype(n, i, mask, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 2, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 1, 3, err);
	if (!rc)
		rc = ops_need_rank(n, 0, 2, GENAI_MAX_RANK, err);
	if (rc)
		return rc;
	a = n->in[0];
	b = n->in[1];
	memcpy(dims, a->dims, sizeof(dims));
	if ((b->rank != 2 && b->rank != a->rank) ||
	    b->dims[b->rank - 2] != a->dims[a->rank - 1] ||
	    (b->rank > 2 &&
	     memcmp(b->dims, a->dims, (b->rank - 2) * sizeof(*dims))))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "shapes %s and %s do not fit",
				      EXEC_SHAPE(a), EXEC_SHAPE(b));
	dims[a->rank - 1] = b->dims[b->rank - 1];
	if ((rc = need_zero(n, 2, a->dims[a->rank - 2], err)) ||
	    (rc = need_zero(n, 3, b->dims[b->rank - 1], err)))
		return rc;
	return ops_out(n, 0, GENAI_DT_I32, a->rank, dims, err);
}

static int64_t zero_of(const struct cref_node *n, uint32_t i, int64_t at)
{
	const struct exec_tensor *z = i < n->n_in ? n->in[i] : NULL;

	return z ? ops_get_int(z, z->data,
			       exec_count(z) == 1 ? 0 : (uint64_t)at)
		 : 0;
}

static void product_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct cref_node *n = ctx;
	const struct exec_tensor *a = n->in[0], *b = n->in[1];
	const int64_t K = a->dims[a->rank - 1], N = b->dims[b->rank - 1];
	const int64_t M = a->dims[a->rank - 2];

	for (uint64_t row = begin; row < end; row++) {
		int64_t batch = b->rank > 2 ? (int64_t)row / M : 0;
		int64_t za = zero_of(n, 2, (int64_t)row % M);

		for (int64_t j = 0; j < N; j++) {
			int64_t zb = zero_of(n, 3, j), sum = 0;
			int32_t v;

			for (int64_t k = 0; k < K; k++)
				sum += (ops_get_int(a, a->data,
						    row * (uint64_t)K +
							    (uint64_t)k) -
					za) *
				       (ops_get_int(
						b, b->data,
						(uint64_t)((batch * K + k) * N +
							   j)) -
					zb);
			v = (int32_t)(uint32_t)(uint64_t)sum;
			memcpy((char *)n->out[0]->data +
				       (row * (uint64_t)N + (uint64_t)j) * 4,
			       &v, 4);
		}
	}
}

int32_t ops_matmul_integer_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *a = n->in[0], *b = n->in[1];
	uint64_t rows = ops_span(a, 0, a->rank - 1);

	if (rows && exec_count(n->out[0]))
		ops_rows(r->pool, product_part, n, rows, exec_count(b) + 1);
	return GENAI_OK;
}

// ---- InstanceNormalization, GroupNormalization ----

struct channel_state {
	int64_t groups;
};
EXEC_STATE(channel_state, cref_node)

int32_t ops_group_norm_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"epsilon", "num_groups",
					    "stash_type", NULL};
	bool instance = n->op->code == OPS_INSTANCE;
	const struct exec_tensor *x;
	int64_t groups;
	int32_t rc = ops_check(
		n, instance ? (const char *const[]){"epsilon", NULL} : attrs, 3,
		3, 1, err);

	for (uint32_t i = 0; !rc && i < 3; i++)
		rc = ops_need_dtype(n, i, OPS_F32S, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 1, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 2, err);
	if (!rc)
		rc = ops_need_rank(n, 0, 2, GENAI_MAX_RANK, err);
	if (rc)
		return rc;
	x = n->in[0];
	groups =
		instance ? x->dims[1] : exec_attr_int(n->node, "num_groups", 0);
	if ((groups < 1 && x->dims[1]) || (groups && x->dims[1] % groups) ||
	    exec_attr_int(n->node, "stash_type", 1) != 1)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "%lld groups of data of shape %s, or a "
				      "stash_type that is not float",
				      (long long)groups, EXEC_SHAPE(x));
	channel_state(n)->groups = groups;
	if ((rc = ops_need_shape(n, 1, 1, &x->dims[1], false, err)) ||
	    (rc = ops_need_shape(n, 2, 1, &x->dims[1], false, err)))
		return rc;
	return ops_out(n, 0, x->dtype, x->rank, x->dims, err);
}

static void group_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct cref_node *n = ctx;
	const struct exec_tensor *x = n->in[0];
	const int64_t plane = (int64_t)ops_span(x, 2, x->rank);
	const int64_t groups = channel_state(n)->groups;
	const int64_t each = x->dims[1] / groups, len = each * plane;
	const float eps = (float)exec_attr_float(n->node, "epsilon", 1e-5);
	float v, g, b;

	for (uint64_t k = begin; k < end; k++) {
		const int64_t first = (int64_t)k * len;
		double sum = 0, square = 0;
		float mean, scale;

		for (int64_t i = 0; i < len; i++) {
			ops_load(OPS_F32, &v, x->dtype, x->data, first + i, 1,
				 1);
			sum += (double)v;
		}
		mean = (float)(sum / (double)len);
		for (int64_t i = 0; i < len; i++) {
			ops_load(OPS_F32, &v, x->dtype, x->data, first + i, 1,
				 1);
			square += (double)(v - mean) * (double)(v - mean);
		}
		scale = 1 / sqrtf((float)(square / (double)len) + eps);
		for (int64_t i = 0; i < len; i++) {
			int64_t c = (int64_t)k % groups * each + i / plane;

			ops_load(OPS_F32, &v, x->dtype, x->data, first + i, 1,
				 1);
			ops_load(OPS_F32, &g, x->dtype, n->in[1]->data, c, 1,
				 1);
			ops_load(OPS_F32, &b, x->dtype, n->in[2]->data, c, 1,
				 1);
			v = (v - mean) * scale * g + b;
			ops_store(OPS_F32, &v, x->dtype, n->out[0]->data,
				  first + i, 1, 1);
		}
	}
}

int32_t ops_group_norm_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[0];
	uint64_t total = exec_count(x), rows;

	if (!total)
		return GENAI_OK;
	rows = (uint64_t)x->dims[0] * (uint64_t)channel_state(n)->groups;
	ops_rows(r->pool, group_part, n, rows, total / rows);
	return GENAI_OK;
}

// ---- SwiGLU ----

// The sigmoid and its product are rounded, as Swish rounds them.
static void swiglu_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct cref_node *n = ctx;
	const uint32_t dtype = n->in[0]->dtype;
	const float alpha = (float)exec_attr_float(n->node, "alpha", 1);
	float a[OPS_CHUNK], b[OPS_CHUNK], s[OPS_CHUNK];
	unsigned char narrow[OPS_CHUNK * 4];

	for (uint64_t at = begin; at < end; at += OPS_CHUNK) {
		uint32_t c =
			end - at < OPS_CHUNK ? (uint32_t)(end - at) : OPS_CHUNK;

		ops_load(OPS_F32, a, dtype, n->in[0]->data, (int64_t)at, 1, c);
		ops_load(OPS_F32, b, dtype, n->in[1]->data, (int64_t)at, 1, c);
		for (uint32_t i = 0; i < c; i++)
			s[i] = -alpha * a[i];
		cref_vec_exp(s, s, c);
		for (uint32_t i = 0; i < c; i++)
			s[i] = 1 / (1 + s[i]);
		ops_store(OPS_F32, s, dtype, narrow, 0, 1, c);
		ops_load(OPS_F32, s, dtype, narrow, 0, 1, c);
		for (uint32_t i = 0; i < c; i++)
			s[i] *= a[i];
		ops_store(OPS_F32, s, dtype, narrow, 0, 1, c);
		ops_load(OPS_F32, s, dtype, narrow, 0, 1, c);
		for (uint32_t i = 0; i < c; i++)
			s[i] *= b[i];
		ops_store(OPS_F32, s, dtype, n->out[0]->data, (int64_t)at, 1,
			  c);
	}
}

int32_t ops_swiglu_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"alpha", NULL};
	int32_t rc = ops_check(n, attrs, 2, 2, 1, err);

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_F32S, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 1, err);
	if (!rc)
		rc = ops_need_shape(n, 1, n->in[0]->rank, n->in[0]->dims, false,
				    err);
	return rc ? rc
		  : ops_out(n, 0, n->in[0]->dtype, n->in[0]->rank,
			    n->in[0]->dims, err);
}

int32_t ops_swiglu_run(struct cref_node *n, const struct cref_run *r)
{
	uint64_t total = exec_count(n->in[0]);

	if (total)
		cref_pool_run(r->pool, swiglu_part, n, total, OPS_GRAIN);
	return GENAI_OK;
}
