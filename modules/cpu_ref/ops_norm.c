// ops_norm.c - normalisation of rows: RMS and layer, alone, after adding a
// residual, or with a gate.  Rows are the unit of parallel work; sums of a
// row's pieces of OPS_CHUNK elements (16 lanes, fixed tree) add up in double.
#include "modules/cpu_ref/ops.h"

#include <math.h>

struct norm {
	const struct exec_tensor *x, *skip, *gamma, *beta, *bias, *gate;
	struct exec_tensor *y, *mean, *inv, *sum;
	uint64_t len, skip_rows;
	float eps;
	bool rms;
	bool silu; // of the gate, not its sigmoid alone
};

// Elements [i, i + n) of row k of t as floats: in place, or in buf.
static const float *row_piece(const struct exec_tensor *t, uint64_t k,
			      uint64_t len, uint64_t i, uint32_t n, float *buf)
{
	uint64_t at = k * len + i;

	if (t->dtype == GENAI_DT_F32 && (uintptr_t)t->data % 4 == 0)
		return (const float *)t->data + at;
	ops_load(OPS_F32, buf, t->dtype, t->data, (int64_t)at, 1, n);
	return buf;
}

// The row to normalise: x + skip + bias where these are given.
static const float *norm_piece(const struct norm *q, uint64_t k, uint64_t i,
			       uint32_t n, float *buf)
{
	float b[OPS_CHUNK];
	const float *x = row_piece(q->x, k, q->len, i, n, buf), *v;

	if (q->skip) {
		v = row_piece(q->skip, k % q->skip_rows, q->len, i, n, b);
		for (uint32_t j = 0; j < n; j++)
			buf[j] = x[j] + v[j];
		x = buf;
	}
	if (q->bias) {
		v = row_piece(q->bias, 0, q->len, i, n, b);
		for (uint32_t j = 0; j < n; j++)
			buf[j] = x[j] + v[j];
		x = buf;
	}
	return x;
}

static uint32_t piece(uint64_t len, uint64_t i)
{
	return len - i < OPS_CHUNK ? (uint32_t)(len - i) : OPS_CHUNK;
}

static void put(struct exec_tensor *t, uint64_t at, float v)
{
	if (t)
		ops_store(OPS_F32, &v, t->dtype, t->data, (int64_t)at, 1, 1);
}

// Mean (0 for RMS) and 1 / sqrt(variance + epsilon) of row k; writes the sum
// with the residual on the way.
static void row_stats(const struct norm *q, uint64_t k, float *out_mean,
		      float *out_inv)
{
	float buf[OPS_CHUNK];
	double sum = 0, squares = 0, len = (double)q->len;
	float mean = 0;

	for (uint64_t i = 0; i < q->len; i += OPS_CHUNK) {
		uint32_t n = piece(q->len, i);
		const float *v = norm_piece(q, k, i, n, buf);

		if (q->sum)
			ops_store(OPS_F32, v, q->sum->dtype, q->sum->data,
				  (int64_t)(k * q->len + i), 1, n);
		if (q->rms)
			squares += (double)cref_vec_dot(v, v, n);
		else
			sum += (double)cref_vec_sum(v, n);
	}
	if (!q->rms) {
		mean = (float)(sum / len);
		for (uint64_t i = 0; i < q->len; i += OPS_CHUNK) {
			uint32_t n = piece(q->len, i);
			const float *v = norm_piece(q, k, i, n, buf);

			for (uint32_t j = 0; j < n; j++)
				buf[j] = v[j] - mean;
			squares += (double)cref_vec_dot(buf, buf, n);
		}
	}
	*out_mean = mean;
	*out_inv = (float)(1.0 / sqrt(squares / len + (double)q->eps));
}

static void gate_piece(const struct norm *q, uint64_t k, uint64_t i, uint32_t n,
		       float *out)
{
	float b[OPS_CHUNK], s[OPS_CHUNK];
	const float *z = row_piece(q->gate, k, q->len, i, n, b);

	cref_vec_sigmoid(s, z, n);
	for (uint32_t j = 0; j < n; j++)
		out[j] *= q->silu ? z[j] * s[j] : s[j];
}

static void norm_row(const struct norm *q, uint64_t k)
{
	float buf[OPS_CHUNK], b[OPS_CHUNK], o[OPS_CHUNK], mean, inv;
	bool direct = q->y && q->y->dtype == GENAI_DT_F32 &&
		      (uintptr_t)q->y->data % 4 == 0;

	row_stats(q, k, &mean, &inv);
	put(q->mean, k, mean);
	put(q->inv, k, inv);
	for (uint64_t i = 0; q->y && i < q->len; i += OPS_CHUNK) {
		uint32_t n = piece(q->len, i);
		const float *v = norm_piece(q, k, i, n, buf), *g;
		float *out = o;

		if (direct)
			out = (float *)q->y->data + k * q->len + i;
		g = row_piece(q->gamma, 0, q->len, i, n, b);
		if (q->rms)
			for (uint32_t j = 0; j < n; j++)
				out[j] = (v[j] * inv) * g[j];
		else
			for (uint32_t j = 0; j < n; j++)
				out[j] = ((v[j] - mean) * inv) * g[j];
		if (q->beta) {
			g = row_piece(q->beta, 0, q->len, i, n, b);
			for (uint32_t j = 0; j < n; j++)
				out[j] += g[j];
		}
		if (q->gate)
			gate_piece(q, k, i, n, out);
		if (!direct)
			ops_store(OPS_F32, out, q->y->dtype, q->y->data,
				  (int64_t)(k * q->len + i), 1, n);
	}
}

static void norm_part(void *ctx, uint64_t begin, uint64_t end)
{
	for (uint64_t k = begin; k < end; k++)
		norm_row(ctx, k);
}

static const struct exec_tensor *input(const struct cref_node *n, uint32_t i)
{
	return i < n->n_in ? n->in[i] : NULL;
}

static struct exec_tensor *output(const struct cref_node *n, uint32_t i)
{
	return i < n->n_out ? n->out[i] : NULL;
}

static int32_t norm_run(struct norm *q, const struct cref_run *r)
{
	uint64_t total = exec_count(q->x);

	if (total)
		ops_rows(r->pool, norm_part, q, total / q->len, q->len);
	return GENAI_OK;
}

static int32_t check_stash(struct cref_node *n, struct genai_error *err)
{
	int64_t v = exec_attr_int(n->node, "stash_type", GENAI_DT_F32);

	if (v != GENAI_DT_F32)
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "stash_type is %lld, carried: 1 "
				      "(float32)",
				      (long long)v);
	return GENAI_OK;
}

// A scale or bias of the normalised dims [axis, rank) of x; leading ones are
// allowed.
static int32_t check_weight(struct cref_node *n, uint32_t i, uint32_t axis,
			    struct genai_error *err)
{
	const struct exec_tensor *x = n->in[0], *w = input(n, i);
	uint32_t rank = x->rank - axis, extra;
	bool fits = true;

	if (!w)
		return GENAI_OK;
	extra = w->rank > rank ? w->rank - rank : 0;
	for (uint32_t d = 0; d < extra; d++)
		fits = fits && w->dims[d] == 1;
	fits = fits && w->rank >= rank;
	for (uint32_t d = 0; fits && d < rank; d++)
		fits = w->dims[extra + d] == x->dims[axis + d];
	if (!fits)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "input %u of shape %s does not fit the "
				      "axes from %u of shape %s",
				      i, EXEC_SHAPE(w), axis, EXEC_SHAPE(x));
	return ops_need_dtype(n, i, OPS_F32S, err);
}

// Dims of a statistic: one number for each row.
static int32_t stat_out(struct cref_node *n, uint32_t i, uint32_t axis,
			struct genai_error *err)
{
	const struct exec_tensor *x = n->in[0];
	int64_t dims[GENAI_MAX_RANK];

	for (uint32_t d = 0; d < x->rank; d++)
		dims[d] = d < axis ? x->dims[d] : 1;
	return ops_out(n, i, GENAI_DT_F32, x->rank, dims, err);
}

// ---- without a residual ----

struct norm_state {
	uint32_t axis;
};
EXEC_STATE(norm_state, cref_node)

int32_t ops_norm_prepare(struct cref_node *n, struct genai_error *err)
{
	bool rms = n->op->code == OPS_RMS;
	int32_t rc =
		ops_check(n, exec_norm_attrs, 2, rms ? 2 : 3, rms ? 2 : 3, err);
	const struct exec_tensor *x;
	uint32_t axis = 0;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_F32S, err);
	if (!rc)
		rc = ops_axis(n, exec_attr_int(n->node, "axis", -1),
			      n->in[0]->rank, &axis, err);
	if (!rc)
		rc = check_stash(n, err);
	if (!rc)
		rc = check_weight(n, 1, axis, err);
	if (!rc)
		rc = check_weight(n, 2, axis, err);
	if (rc)
		return rc;
	norm_state(n)->axis = axis;
	x = n->in[0];
	// RMS: the scale may be wider than x, and is then the output's type.
	rc = ops_out(n, 0, rms ? n->in[1]->dtype : x->dtype, x->rank, x->dims,
		     err);
	for (uint32_t i = 1; !rc && i < n->n_out; i++)
		rc = stat_out(n, i, axis, err);
	return rc;
}

int32_t ops_norm_run(struct cref_node *n, const struct cref_run *r)
{
	uint32_t axis = norm_state(n)->axis;
	bool rms = n->op->code == OPS_RMS;
	struct norm q = {
		.x = n->in[0],
		.gamma = n->in[1],
		.beta = input(n, 2),
		.y = n->out[0],
		.mean = rms ? NULL : output(n, 1),
		.inv = rms ? output(n, 1) : output(n, 2),
		.len = ops_span(n->in[0], axis, n->in[0]->rank),
		.eps = (float)exec_attr_float(n->node, "epsilon", 1e-5),
		.rms = rms,
	};

	return norm_run(&q, r);
}

// ---- with a residual ----

// skip has x's shape, or lacks or has 1 for the batch.
static int32_t check_skip(struct cref_node *n, struct genai_error *err)
{
	const struct exec_tensor *x = n->in[0], *s = n->in[1];
	uint32_t pad = x->rank - s->rank;
	bool fits = s->rank <= x->rank && s->rank + 1 >= x->rank && s->rank > 1;

	for (uint32_t d = 0; fits && d < s->rank; d++)
		fits = s->dims[d] == x->dims[pad + d] ||
		       (d == 0 && !pad && x->rank == 3 && s->dims[d] == 1);
	if (!fits)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "skip of shape %s does not fit input of "
				      "shape %s",
				      EXEC_SHAPE(s), EXEC_SHAPE(x));
	return GENAI_OK;
}

int32_t ops_skip_norm_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"epsilon", NULL};
	bool rms = n->op->code == OPS_RMS;
	int32_t rc = ops_check(n, attrs, 3, rms ? 4 : 5, 4, err);
	const struct exec_tensor *x;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_F32S, err);
	if (!rc)
		rc = ops_need_rank(n, 0, 2, 3, err);
	if (!rc)
		rc = check_skip(n, err);
	for (uint32_t i = 1; !rc && i < n->n_in; i++) {
		rc = ops_need_same_dtype(n, 0, i, err);
		if (!rc && i > 1)
			rc = check_weight(n, i, n->in[0]->rank - 1, err);
	}
	if (rc)
		return rc;
	x = n->in[0];
	rc = ops_out(n, 0, x->dtype, x->rank, x->dims, err);
	if (!rc)
		rc = stat_out(n, 1, x->rank - 1, err);
	if (!rc)
		rc = stat_out(n, 2, x->rank - 1, err);
	return rc ? rc : ops_out(n, 3, x->dtype, x->rank, x->dims, err);
}

int32_t ops_skip_norm_run(struct cref_node *n, const struct cref_run *r)
{
	bool rms = n->op->code == OPS_RMS;
	uint64_t len = ops_span(n->in[0], n->in[0]->rank - 1, n->in[0]->rank);
	struct norm q = {
		.x = n->in[0],
		.skip = n->in[1],
		.gamma = n->in[2],
		.beta = rms ? NULL : input(n, 3),
		.bias = rms ? input(n, 3) : input(n, 4),
		.y = n->out[0],
		.mean = rms ? NULL : output(n, 1),
		.inv = output(n, 2),
		.sum = output(n, 3),
		.len = len,
		.skip_rows = len ? exec_count(n->in[1]) / len : 0,
		.eps = (float)exec_attr_float(n->node, "epsilon", 1e-12),
		.rms = rms,
	};

	return norm_run(&q, r);
}

// ---- with a gate ----

enum { X, SCALE, GATE };

int32_t ops_gated_norm_prepare(struct cref_node *n, struct genai_error *err)
{
	const char *act = exec_attr_string(n->node, "activation", "silu");
	int32_t rc = ops_check(n, exec_gated_norm_attrs, 3, 3, 1, err);
	const struct exec_tensor *x, *w;

	if (!rc)
		rc = ops_need_dtype(n, X, OPS_F32S, err);
	for (uint32_t i = SCALE; !rc && i <= GATE; i++)
		rc = ops_need_same_dtype(n, X, i, err);
	if (!rc)
		rc = ops_need_rank(n, X, 1, GENAI_MAX_RANK, err);
	if (rc)
		return rc;
	x = n->in[X];
	w = n->in[SCALE];
	if (strcmp(act, "silu") && strcmp(act, "swish") &&
	    strcmp(act, "sigmoid"))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "activation %.40s, carried: silu, swish, "
				      "sigmoid",
				      act);
	if (w->rank != 1 || w->dims[0] < 1 || x->dims[x->rank - 1] % w->dims[0])
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "scale of shape %s does not divide the "
				      "rows of X of shape %s",
				      EXEC_SHAPE(w), EXEC_SHAPE(x));
	if (n->in[GATE]->rank != x->rank ||
	    memcmp(n->in[GATE]->dims, x->dims, x->rank * sizeof(*x->dims)))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "gate of shape %s, must be %s as X",
				      EXEC_SHAPE(n->in[GATE]), EXEC_SHAPE(x));
	return ops_out(n, 0, x->dtype, x->rank, x->dims, err);
}

int32_t ops_gated_norm_run(struct cref_node *n, const struct cref_run *r)
{
	struct norm q = {
		.x = n->in[X],
		.gamma = n->in[SCALE],
		.gate = n->in[GATE],
		.y = n->out[0],
		.len = (uint64_t)n->in[SCALE]->dims[0],
		.eps = (float)exec_attr_float(n->node, "epsilon", 1e-5),
		.rms = true,
		.silu = strcmp(exec_attr_string(n->node, "activation", "silu"),
			       "sigmoid"),
	};

	return norm_run(&q, r);
}
