// ops_attention.c - Attention of ONNX: as its function body computes it, each
// intermediate rounded to the type that it has there.  What decoders for ONNX
// Runtime run is in attention_gqa.c and attention_mha.c; this is for graphs that
// hold the standard's own operator.
#include "modules/cpu_ref/ops.h"

#include <math.h>

struct att {
	int64_t B, Hq, Hkv, S, T, past, D, Dv;
	int64_t left, right; // windows, -1: all
	bool causal, flat;   // flat: rank 3, heads side by side
	int mode;	     // of the fourth output
	uint32_t precision;
	float scale, softcap;
};
EXEC_STATE(att, cref_node)

// Q, K, V: [B, H, rows, D], or [B, rows, H * D].
static int32_t split(struct cref_node *n, uint32_t i, int64_t heads,
		     int64_t out[4], struct genai_error *err)
{
	const struct exec_tensor *t = n->in[i];

	if (t->rank == 4) {
		memcpy(out, t->dims, 4 * sizeof(*out));
		return GENAI_OK;
	}
	if (heads < 1 || t->dims[2] % heads)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "input %u of shape %s with %lld heads", i,
				      EXEC_SHAPE(t), (long long)heads);
	out[0] = t->dims[0];
	out[1] = heads;
	out[2] = t->dims[1];
	out[3] = t->dims[2] / heads;
	return GENAI_OK;
}

static int32_t sizes(struct cref_node *n, struct att *a,
		     struct genai_error *err)
{
	const struct exec_tensor *pk = n->n_in > 4 ? n->in[4] : NULL;
	const struct exec_tensor *pv = n->n_in > 5 ? n->in[5] : NULL;
	int64_t q[4], k[4], v[4];
	int64_t hq = exec_attr_int(n->node, "q_num_heads", 0);
	int64_t hkv = exec_attr_int(n->node, "kv_num_heads", 0);
	int32_t rc;

	if (n->in[1]->rank != n->in[0]->rank ||
	    n->in[2]->rank != n->in[0]->rank)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "Q, K and V differ in rank");
	if ((rc = split(n, 0, hq, q, err)) || (rc = split(n, 1, hkv, k, err)) ||
	    (rc = split(n, 2, hkv, v, err)))
		return rc;
	if (q[0] != k[0] || q[0] != v[0] || k[1] != v[1] || k[2] != v[2] ||
	    q[3] != k[3] || k[1] < 1 || q[1] % k[1])
		return cref_node_fail(
			n, err, GENAI_E_INVAL, "Q %s, K %s and V %s do not fit",
			EXEC_SHAPE(n->in[0]), EXEC_SHAPE(n->in[1]),
			EXEC_SHAPE(n->in[2]));
	if (!pk != !pv)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "past_key and past_value come together");
	if (pk && (pk->rank != 4 || pv->rank != 4 || pk->dims[0] != q[0] ||
		   pv->dims[0] != q[0] || pk->dims[1] != k[1] ||
		   pv->dims[1] != k[1] || pk->dims[2] != pv->dims[2] ||
		   pk->dims[3] != k[3] || pv->dims[3] != v[3]))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "past_key %s and past_value %s do not "
				      "fit",
				      EXEC_SHAPE(pk), EXEC_SHAPE(pv));
	a->B = q[0];
	a->Hq = q[1];
	a->S = q[2];
	a->D = q[3];
	a->Hkv = k[1];
	a->past = pk ? pk->dims[2] : 0;
	a->T = a->past + k[2];
	a->Dv = v[3];
	a->flat = n->in[0]->rank == 3;
	return GENAI_OK;
}

static int32_t extras(struct cref_node *n, struct att *a,
		      struct genai_error *err)
{
	const int64_t want[4] = {a->B, a->Hq, a->S, a->T};
	const struct exec_tensor *m = n->n_in > 3 ? n->in[3] : NULL;
	const struct exec_tensor *len = n->n_in > 6 ? n->in[6] : NULL;
	uint32_t off = m ? 4 - m->rank : 0;
	bool fits = !m || (m->rank >= 1 && m->rank <= 4);

	for (uint32_t d = 0; m && fits && d < m->rank; d++)
		fits = m->dims[d] == 1 || m->dims[d] == want[off + d] ||
		       (d + 1 == m->rank && m->dims[d] < a->T);
	if (!fits)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "attn_mask of shape %s does not fit "
				      "[%lld,%lld,%lld,%lld]",
				      EXEC_SHAPE(m), (long long)a->B,
				      (long long)a->Hq, (long long)a->S,
				      (long long)a->T);
	if (len && (n->in[4] || len->rank != 1 || len->dims[0] != a->B))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "nonpad_kv_seqlen of shape %s: one a "
				      "batch, and without past_key",
				      EXEC_SHAPE(len));
	if (a->left < -1 || a->right < -1 || a->mode < 0 || a->mode > 3 ||
	    (a->precision &&
	     (a->precision > 31 || !(OPS_FLOATS & OPS_BIT(a->precision)))))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "window, qk_matmul_output_mode or "
				      "softmax_precision out of range");
	return GENAI_OK;
}

int32_t ops_attention_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"is_causal",
					    "kv_num_heads",
					    "left_window_size",
					    "q_num_heads",
					    "qk_matmul_output_mode",
					    "right_window_size",
					    "scale",
					    "softcap",
					    "softmax_precision",
					    NULL};
	struct att *a = att(n);
	int64_t dims[4];
	uint64_t bytes;
	int32_t rc = ops_check(n, attrs, 3, 7, 4, err);

	for (uint32_t i = 0; !rc && i < 6; i++)
		rc = ops_need_dtype(
			n, i, i == 3 ? OPS_F32S | OPS_BOOL : OPS_F32S, err);
	if (!rc)
		rc = ops_need_dtype(n, 6, OPS_INDEX, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 1, err);
	for (uint32_t i = 0; !rc && i < 3; i++)
		rc = ops_need_rank(n, i, 3, 4, err);
	if (!rc)
		rc = sizes(n, a, err);
	if (rc)
		return rc;
	a->left = exec_attr_int(n->node, "left_window_size", -1);
	a->right = exec_attr_int(n->node, "right_window_size", -1);
	a->causal = exec_attr_int(n->node, "is_causal", 0);
	a->mode = (int)exec_attr_int(n->node, "qk_matmul_output_mode", 0);
	a->precision = (uint32_t)exec_attr_int(n->node, "softmax_precision", 0);
	a->softcap = (float)exec_attr_float(n->node, "softcap", 0);
	a->scale = (float)sqrt(
		exec_attr_float(n->node, "scale", 1 / sqrt((double)a->D)));
	rc = extras(n, a, err);
	if (rc)
		return rc;
	if (__builtin_mul_overflow((uint64_t)a->B * (uint64_t)a->Hq,
				   (uint64_t)a->S * (uint64_t)a->T * 4,
				   &bytes) ||
	    bytes > (uint64_t)1 << 40)
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "too many scores for this operator");
	n->workspace_bytes = bytes ? bytes : 64;
	dims[0] = a->B;
	dims[1] = a->flat ? a->S : a->Hq;
	dims[2] = a->flat ? a->Hq * a->Dv : a->S;
	dims[3] = a->Dv;
	rc = ops_out(n, 0, n->in[0]->dtype, a->flat ? 3 : 4, dims, err);
	dims[1] = a->Hkv;
	dims[2] = a->T;
	dims[3] = a->D;
	if (!rc && n->n_out > 1)
		rc = ops_out(n, 1, n->in[1]->dtype, 4, dims, err);
	dims[3] = a->Dv;
	if (!rc && n->n_out > 2)
		rc = ops_out(n, 2, n->in[2]->dtype, 4, dims, err);
	dims[1] = a->Hq;
	dims[2] = a->S;
	dims[3] = a->T;
	if (!rc && n->n_out > 3)
		rc = ops_out(n, 3, n->in[0]->dtype, 4, dims, err);
	return rc;
}

struct job {
	const struct cref_node *n;
	const struct att *a;
	float *scores;
};

static float get(const struct exec_tensor *t, int64_t at)
{
	float v;

	ops_load(OPS_F32, &v, t->dtype, t->data, at, 1, 1);
	return v;
}

// Element d of row j of head h, in a cache and what follows it.
static float of_rows(const struct job *q, uint32_t in, uint32_t past, int64_t b,
		     int64_t h, int64_t heads, int64_t j, int64_t d,
		     int64_t size)
{
	const struct att *a = q->a;
	int64_t rows = in ? a->T - a->past : a->S;

	if (past && j < a->past)
		return get(q->n->in[past],
			   ((b * heads + h) * a->past + j) * size + d);
	j -= past ? a->past : 0;
	return get(q->n->in[in],
		   a->flat ? ((b * rows + j) * heads + h) * size + d
			   : ((b * heads + h) * rows + j) * size + d);
}

// What is added to the score of key j: -infinity where it is not seen.
static float bias(const struct job *q, int64_t b, int64_t h, int64_t i,
		  int64_t j)
{
	const struct att *a = q->a;
	const struct exec_tensor *m = q->n->n_in > 3 ? q->n->in[3] : NULL;
	const struct exec_tensor *len = q->n->n_in > 6 ? q->n->in[6] : NULL;
	int64_t offset = a->past, at[4] = {b, h, i, j}, p = 0, valid;
	float v = 0;

	if (len) {
		valid = ops_get_int(len, len->data, (uint64_t)b);
		offset = valid - a->S;
		if (j >= valid)
			return -INFINITY;
	}
	if ((a->causal && j > i + offset) ||
	    (a->left >= 0 && j < i + offset - a->left) ||
	    (a->right >= 0 && j > i + offset + a->right))
		return -INFINITY;
	if (!m)
		return 0;
	for (uint32_t d = 0; d < m->rank; d++) {
		int64_t x = at[4 - m->rank + d];

		if (m->dims[d] == 1 && !(d + 1 == m->rank && a->T != 1))
			x = 0;
		// a short mask is one of keys that are not there
		if (d + 1 == m->rank && x >= m->dims[d])
			return -INFINITY;
		p = p * m->dims[d] + x;
	}
	v = get(m, p);
	return m->dtype == GENAI_DT_BOOL ? (v != 0 ? 0 : -INFINITY) : v;
}

static void softmax(float *s, int64_t n, uint32_t dtype)
{
	float max = -INFINITY, sum;

	for (int64_t j = 0; j < n; j++)
		max = s[j] > max ? s[j] : max;
	max = max == -INFINITY ? 0 : max;
	for (int64_t j = 0; j < n; j++) {
		s[j] = ops_rounded(dtype, s[j] - max);
		cref_vec_exp(&s[j], &s[j], 1);
		s[j] = ops_rounded(dtype, s[j]);
	}
	sum = ops_narrow_sum(dtype, s, n);
	for (int64_t j = 0; j < n; j++)
		s[j] = ops_rounded(dtype, s[j] / (sum == 0 ? 1 : sum));
}

static void put_score(const struct job *q, uint64_t row, int64_t j, float v)
{
	struct exec_tensor *t = q->n->n_out > 3 ? q->n->out[3] : NULL;

	if (t)
		ops_store(OPS_F32, &v, t->dtype, t->data,
			  (int64_t)row * q->a->T + j, 1, 1);
}

static void one_row(const struct job *q, uint64_t row)
{
	const struct att *a = q->a;
	const uint32_t t1 = q->n->in[0]->dtype;
	const uint32_t soft = a->precision ? a->precision : t1;
	const int64_t i = (int64_t)row % a->S, h = (int64_t)row / a->S % a->Hq;
	const int64_t b = (int64_t)row / a->S / a->Hq;
	const int64_t g = h / (a->Hq / a->Hkv);
	const float scale = ops_rounded(t1, a->scale);
	float *s = q->scores + row * (uint64_t)a->T;
	bool seen = false;

	for (int64_t j = 0; j < a->T; j++) {
		float m = bias(q, b, h, i, j), v;
		double sum = 0;

		for (int64_t d = 0; d < a->D; d++)
			sum += (double)ops_rounded(t1,
						   of_rows(q, 0, 0, b, h, a->Hq,
							   i, d, a->D) *
							   scale) *
			       (double)ops_rounded(t1,
						   of_rows(q, 1, 4, b, g,
							   a->Hkv, j, d, a->D) *
							   scale);
		v = ops_rounded(t1, (float)sum);
		if (!a->mode || (a->mode == 1 && a->softcap <= 0))
			put_score(q, row, j, v);
		if (a->softcap > 0) {
			float cap = ops_rounded(t1, a->softcap);

			v = ops_rounded(t1, tanhf(ops_rounded(t1, v / cap)));
			v = ops_rounded(t1, v * cap);
			if (a->mode == 1)
				put_score(q, row, j, v);
		}
		v = ops_rounded(t1, v + m);
		if (a->mode == 2)
			put_score(q, row, j, v);
		seen |= m > -INFINITY || m != m;
		s[j] = ops_rounded(soft, v);
	}
	softmax(s, a->T, soft);
	for (int64_t j = 0; j < a->T; j++) {
		s[j] = seen ? ops_rounded(t1, s[j]) : 0;
		if (a->mode == 3)
			put_score(q, row, j, s[j]);
	}
	for (int64_t d = 0; d < a->Dv; d++) {
		int64_t at = a->flat ? ((b * a->S + i) * a->Hq + h) * a->Dv + d
				     : (int64_t)row * a->Dv + d;
		double sum = 0;
		float v;

		for (int64_t j = 0; j < a->T; j++)
			sum += (double)s[j] * (double)of_rows(q, 2, 5, b, g,
							      a->Hkv, j, d,
							      a->Dv);
		v = (float)sum;
		ops_store(OPS_F32, &v, q->n->out[0]->dtype, q->n->out[0]->data,
			  at, 1, 1);
	}
}

static void part(void *ctx, uint64_t begin, uint64_t end)
{
	for (uint64_t row = begin; row < end; row++)
		one_row(ctx, row);
}

// A cache with the new rows behind it.
static void present(const struct job *q, uint32_t out, uint32_t in,
		    uint32_t past, int64_t size)
{
	struct exec_tensor *t = q->n->n_out > out ? q->n->out[out] : NULL;
	const struct att *a = q->a;
	int64_t at = 0;

	for (int64_t b = 0; t && b < a->B; b++)
		for (int64_t h = 0; h < a->Hkv; h++)
			for (int64_t j = 0; j < a->T; j++)
				for (int64_t d = 0; d < size; d++, at++) {
					float v = of_rows(q, in, past, b, h,
							  a->Hkv, j, d, size);

					ops_store(OPS_F32, &v, t->dtype,
						  t->data, at, 1, 1);
				}
}

int32_t ops_attention_run(struct cref_node *n, const struct cref_run *r)
{
	struct job q = {n, att(n), r->workspace};
	const struct att *a = q.a;
	uint64_t rows = (uint64_t)(a->B * a->Hq * a->S);

	present(&q, 1, 1, 4, a->D);
	present(&q, 2, 2, 5, a->Dv);
	if (rows)
		ops_rows(r->pool, part, &q, rows,
			 (uint64_t)(a->T * (a->D + a->Dv) + 1));
	return GENAI_OK;
}
