// moe.c - MoE and QMoE: rows go to the k experts that their router logits
// choose; experts have weights of their own.
//
// Experts are taken in the order of their numbers: the rows of one are
// gathered, go through its two or three products in fp32, and are added, times
// their weights, to sums that are rounded once.  So a row's result depends on
// its own logits only, not on the rows that come with it.
#include <math.h>

#include <genai/pager.h>

#include "modules/cpu_ref/kernels.h"
#include "modules/cpu_ref/ops.h"
#include "modules/exec_common/moe.h"

EXEC_STATE(exec_moe, cref_node)

static const struct exec_tensor *moe_in(const struct cref_node *n, uint32_t i)
{
	return i && i < n->n_in ? n->in[i] : NULL;
}

// ---- workspace ----

// Where the parts lie, in floats.
struct moe_space {
	uint64_t logits, ids, weights, rows, x, h, up, act, sum;
	uint64_t zeros, product, end;
};

static bool moe_part(struct moe_space *p, uint64_t *at, int64_t rows,
		     int64_t row)
{
	uint64_t v;

	*at = p->end;
	if (__builtin_mul_overflow((uint64_t)rows, (uint64_t)row, &v) ||
	    v > (uint64_t)1 << 44)
		return false;
	p->end += (v + 15) / 16 * 16;
	return p->end <= (uint64_t)1 << 44;
}

static bool moe_space(const struct exec_moe *s, struct moe_space *p)
{
	const int64_t K = s->D > s->I ? s->D : s->I;
	const int64_t N = s->fc[0].N > s->D ? s->fc[0].N : s->D;

	*p = (struct moe_space){0};
	// the rows that come out are put where those that went in were
	return moe_part(p, &p->logits, s->E, 1) &&
	       moe_part(p, &p->ids, s->M, s->k) &&
	       moe_part(p, &p->weights, s->M, s->k) &&
	       moe_part(p, &p->rows, s->M, 2) &&
	       moe_part(p, &p->x, s->M, s->D) &&
	       moe_part(p, &p->h, s->M, s->fc[0].N) &&
	       moe_part(p, &p->up, s->fc[2].w ? s->M : 0, s->I) &&
	       moe_part(p, &p->act, s->M, s->I) &&
	       moe_part(p, &p->sum, s->M, s->D) &&
	       moe_part(p, &p->zeros, N, 1) &&
	       moe_part(p, &p->product, s->fc[0].bits ? s->M : 0,
			(int64_t)cref_nb_stride((uint64_t)K));
}

static int32_t moe_finish(struct cref_node *n, struct exec_moe *s,
			  struct genai_error *err)
{
	const struct exec_tensor *x = n->in[0];
	struct moe_space p;

	if (!moe_space(s, &p))
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "input 0 of shape %s is too large",
				      EXEC_SHAPE(x));
	n->workspace_bytes = (p.end ? p.end : 1) * sizeof(float);
	*exec_moe(n) = *s;
	return ops_out(n, 0, x->dtype, x->rank, x->dims, err);
}

static int32_t moe_prepare(struct cref_node *n, bool quantised,
			   struct genai_error *err)
{
	struct exec_moe s;
	struct exec_text why;
	int32_t rc =
		exec_moe_check(n->node, n->in, n->n_in, quantised, &s, &why);

	return rc ? cref_node_fail(n, err, rc, "%s", why.s)
		  : moe_finish(n, &s, err);
}

int32_t cref_moe_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, exec_moe_attrs, 3, 8, 1, err);

	return rc ? rc : moe_prepare(n, false, err);
}

int32_t cref_qmoe_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, exec_qmoe_attrs, 3, EXEC_MAX_IN, 1, err);

	return rc ? rc : moe_prepare(n, true, err);
}

// ---- choosing ----

// The k largest, the first of equals.
static void moe_largest(const struct exec_moe *s, const float *x, uint32_t *ids)
{
	uint32_t n = 0;

	for (uint32_t e = 0; e < s->E; e++) {
		uint32_t at = n;

		while (at && x[e] > x[ids[at - 1]])
			at--;
		if (at >= s->k)
			continue;
		n += n < s->k;
		memmove(ids + at + 1, ids + at, (n - 1 - at) * sizeof(*ids));
		ids[at] = e;
	}
}

// Experts of row m and what their results count for.
static int32_t moe_choose(struct cref_node *n, const struct exec_moe *s,
			  int64_t m, float *x, uint32_t *ids, float *w,
			  struct genai_error *err)
{
	const struct exec_tensor *r = n->in[1], *own = moe_in(n, s->own);
	const uint64_t at = (uint64_t)(m * s->E);
	float all = 0, chosen = 0;
	bool sound = true;

	cref_widen(x, (const char *)r->data + at * (exec_bits(r->dtype) / 8),
		   r->dtype, (uint64_t)s->E);
	for (int64_t e = 0; e < s->E; e++)
		sound &= x[e] < INFINITY;
	moe_largest(s, x, ids);
	if (!sound || x[ids[0]] == -INFINITY)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "input 1 '%.60s', the router's logits, "
				      "has %s in row %lld",
				      r->name ? r->name : "",
				      sound ? "no finite value"
					    : "NaN or infinity",
				      (long long)m);
	for (int64_t i = 0; i < s->k; i++)
		w[i] = own ? cref_load(own->data, own->dtype, at + ids[i])
			   : cref_expf(x[ids[i]] - x[ids[0]]);
	for (int64_t i = 0; i < s->k; i++)
		chosen += w[i];
	for (int64_t e = 0; !own && !s->normalize && e < s->E; e++)
		all += cref_expf(x[e] - x[ids[0]]);
	if (s->normalize)
		all = chosen;
	else if (own)
		all = 1;
	for (int64_t i = 0; i < s->k; i++)
		w[i] /= all;
	return GENAI_OK;
}

// ---- the products ----

struct moe_dense {
	const struct cref_kern *k;
	const float *a;
	const char *w;
	float *y;
	uint64_t M, N, K, size;
	uint32_t dtype;
};

// Rows of W, CREF_AT_TILE at a time, turned: the sums of a MatMul.
static void dense_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct moe_dense *d = ctx;
	float b[CREF_AT_TILE * CREF_MM_CHUNK] __attribute__((aligned(64)));
	float c[CREF_AT_TILE * CREF_AT_TILE] __attribute__((aligned(64)));

	for (uint64_t u = begin; u < end; u++) {
		const uint64_t n0 = u * CREF_AT_TILE;
		const uint64_t left = d->N - n0;
		const uint64_t N = left < CREF_AT_TILE ? left : CREF_AT_TILE;

		for (uint64_t m0 = 0; m0 < d->M; m0 += CREF_AT_TILE) {
			uint64_t M = d->M - m0;

			M = M < CREF_AT_TILE ? M : CREF_AT_TILE;
			for (uint64_t k = 0; k < d->K; k += CREF_MM_CHUNK) {
				uint64_t v = d->K - k;

				v = v < CREF_MM_CHUNK ? v : CREF_MM_CHUNK;
				d->k->at_keys(b,
					      d->w + (n0 * d->K + k) * d->size,
					      d->dtype, (int64_t)d->K, N, v);
				for (uint64_t j = 0; j < N; j += CREF_MM_COLS)
					d->k->mm_tile(d->a + m0 * d->K + k,
						      d->K, b + j * v, v, c + j,
						      CREF_AT_TILE, M, k > 0);
			}
			for (uint64_t m = 0; m < M; m++)
				memcpy(d->y + (m0 + m) * d->N + n0,
				       c + m * CREF_AT_TILE, N * sizeof(*c));
		}
	}
}

struct moe_run {
	struct cref_node *n;
	const struct exec_moe *s;
	struct cref_pool *pool;
	float *zeros, *product;
};

// NULL: in neither of the ranges.
static const void *moe_apart(const struct exec_tensor *t, int64_t e)
{
	const uint64_t bytes = exec_bytes(t) / (uint64_t)t->dims[0];
	const struct genai_range *r[] = {&t->experts->device,
					 &t->experts->host};
	const genai_addr addr = ((const genai_addr *)t->data)[e];

	for (uint32_t i = 0; i < 2; i++)
		if (addr >= r[i]->addr && bytes <= r[i]->bytes &&
		    addr - r[i]->addr <= r[i]->bytes - bytes)
			return (const char *)t->lies[i] + (addr - r[i]->addr);
	return NULL;
}

static const void *moe_of(const struct cref_node *n, uint32_t input, int64_t e)
{
	const struct exec_tensor *t = moe_in(n, input);

	if (t && t->experts)
		return moe_apart(t, e);
	return t ? (const char *)t->data + exec_bytes(t) /
						   (uint64_t)t->dims[0] *
						   (uint64_t)e
		 : NULL;
}

// Zero points that lie along N, as floats.
static const void *moe_zeros(const struct moe_run *r,
			     const struct exec_moe_fc *f, int64_t e,
			     uint32_t dtype)
{
	const unsigned char *z = moe_of(r->n, f->zero, e);
	const unsigned per = 8 / f->bits;

	for (uint64_t i = 0; i < (uint64_t)f->N; i++)
		cref_store(r->zeros, dtype, i,
			   (float)(z[i / per] >> i % per * f->bits &
				   ((1u << f->bits) - 1)));
	return r->zeros;
}

static void moe_bits(const struct moe_run *r, const struct exec_moe_fc *f,
		     int64_t e, const float *a, uint64_t M, float *y)
{
	const uint64_t K = (uint64_t)f->K, blocks = f->blocks;
	const bool turned = f->z_kind == EXEC_MOE_Z_TURNED;
	const struct exec_tensor *sc = r->n->in[f->scale];
	const struct exec_tensor *bias = moe_in(r->n, f->bias);
	struct cref_nbits_job j = {0};

	j.w.K = K;
	j.w.N = j.ldy = (uint64_t)f->N;
	j.w.bits = f->bits;
	j.w.block = f->block;
	j.w.b = moe_of(r->n, f->w, e);
	j.w.b_row = K * f->bits / 8;
	j.w.s = moe_of(r->n, f->scale, e);
	j.w.s_dtype = sc->dtype;
	j.w.s_row = j.w.z_row = blocks * (exec_bits(sc->dtype) / 8);
	j.w.z = turned ? moe_zeros(r, f, e, sc->dtype)
		       : moe_of(r->n, f->zero, e);
	if (f->z_kind != EXEC_MOE_Z_NONE)
		j.w.z_kind = CREF_Z_FLOAT;
	if (f->z_kind == EXEC_MOE_Z_PACKED) {
		j.w.z_kind = CREF_Z_PACKED;
		j.w.z_row = f->z_row;
	}
	j.a = a;
	j.M = M;
	j.lda = K;
	j.a_dtype = j.y_dtype = GENAI_DT_F32;
	j.bias = moe_of(r->n, f->bias, e);
	j.bias_dtype = bias ? bias->dtype : 0;
	j.y = y;
	j.ws = r->product;
	cref_nbits_mul(&j, r->pool);
}

static void moe_floats(const struct moe_run *r, const struct exec_moe_fc *f,
		       int64_t e, const float *a, uint64_t M, float *y)
{
	const struct exec_tensor *w = r->n->in[f->w];
	const struct exec_tensor *bias = moe_in(r->n, f->bias);
	const uint64_t N = (uint64_t)f->N;
	const void *b = moe_of(r->n, f->bias, e);
	struct moe_dense d = {
		cref_kern(), a, moe_of(r->n, f->w, e), y,
		M,	     N, (uint64_t)f->K,	       exec_bits(w->dtype) / 8,
		w->dtype};

	cref_pool_run(r->pool, dense_part, &d, (N - 1) / CREF_AT_TILE + 1, 1);
	for (uint64_t m = 0; b && m < M; m++)
		for (uint64_t i = 0; i < N; i++)
			y[m * N + i] += cref_load(b, bias->dtype, i);
}

static void moe_product(const struct moe_run *r, const struct exec_moe_fc *f,
			int64_t e, const float *a, uint64_t M, float *y)
{
	if (f->bits)
		moe_bits(r, f, e, a, M, y);
	else
		moe_floats(r, f, e, a, M, y);
}

// ---- the activation ----

static float clamp(float v, float limit)
{
	return v > limit ? limit : v < -limit ? -limit : v;
}

// n values of the gate.
static void moe_gate(const struct exec_moe *s, const float *g, float *out,
		     uint64_t n)
{
	const bool late = s->late_limit;
	float t[OPS_CHUNK];

	t[0] = 0;
	for (uint64_t i = 0; i < n; i++) {
		float x = g[i];

		if (s->act == EXEC_MOE_SWIGLU && !late && x > s->limit)
			x = s->limit;
		out[i] = x;
		if (s->act == EXEC_MOE_SWIGLU)
			t[i] = s->alpha * x;
		else if (s->act == EXEC_MOE_GELU || s->act == EXEC_MOE_GEGLU)
			t[i] = 1.5957691216057308f *
			       (x + 0.044715f * (x * x * x));
		else
			t[i] = x;
	}
	if (s->act == EXEC_MOE_IDENTITY)
		return;
	if (s->act == EXEC_MOE_RELU || s->act == EXEC_MOE_RELU2) {
		for (uint64_t i = 0; i < n; i++) {
			out[i] = out[i] < 0 ? 0 : out[i];
			out[i] *= s->act == EXEC_MOE_RELU2 ? out[i] : 1;
		}
		return;
	}
	cref_vec_sigmoid(t, t, n);
	for (uint64_t i = 0; i < n; i++) {
		out[i] *= t[i];
		if (s->act == EXEC_MOE_SWIGLU && late && out[i] > s->limit)
			out[i] = s->limit;
	}
}

// One row: h is fc1's, up fc3's if there is one.
static void moe_row(const struct exec_moe *s, const float *h, const float *up,
		    float *out)
{
	const uint64_t step = s->fusion == 1 ? 2 : 1;
	float g[OPS_CHUNK];

	if (s->fusion)
		up = h + (s->fusion == 1 ? 1 : s->I);
	for (uint64_t i = 0; i < (uint64_t)s->I; i += OPS_CHUNK) {
		uint64_t n = (uint64_t)s->I - i;

		n = n < OPS_CHUNK ? n : OPS_CHUNK;
		for (uint64_t j = 0; j < n; j++)
			g[j] = h[(i + j) * step];
		moe_gate(s, g, out + i, n);
		for (uint64_t j = 0; up && j < n; j++) {
			float l = up[(i + j) * step];

			if (s->act == EXEC_MOE_SWIGLU)
				l = clamp(l, s->limit) + s->beta;
			out[i + j] *= l;
		}
	}
}

struct moe_rows {
	const struct exec_moe *s;
	const float *h, *up;
	float *act;
};

static void moe_row_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct moe_rows *r = ctx;
	const uint64_t I = (uint64_t)r->s->I, N = (uint64_t)r->s->fc[0].N;

	for (uint64_t m = begin; m < end; m++)
		moe_row(r->s, r->h + m * N, r->up ? r->up + m * I : NULL,
			r->act + m * I);
}

// ---- the operator ----

// The rows that chose expert e, and what it counts for in them.
static uint64_t moe_rows(const struct exec_moe *s, const uint32_t *ids,
			 const float *weights, int64_t e, uint32_t *rows,
			 float *w)
{
	uint64_t n = 0;

	for (int64_t i = 0; i < s->M * s->k; i++) {
		if (ids[i] != (uint32_t)e)
			continue;
		rows[n] = (uint32_t)(i / s->k);
		w[n++] = weights[i];
	}
	return n;
}

// Count the use of an expert, all of whose parts are where the table says.
static int32_t moe_use(const struct cref_node *n, int64_t e,
		       struct genai_error *err)
{
	for (uint32_t i = 2; i < n->n_in; i++) {
		const struct exec_tensor *t = n->in[i];

		if (!t || !t->experts)
			continue;
		if (t->lies[2])
			((uint32_t *)t->lies[2])[e]++;
		if (!moe_apart(t, e))
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "input %u: expert %lld lies "
					      "nowhere",
					      i, (long long)e);
	}
	return 0;
}

static void moe_add(float *sum, float w, const float *y, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		sum[i] += w * y[i];
}

int32_t cref_moe_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_moe s = *exec_moe(n);
	const struct exec_tensor *x = n->in[0];
	const uint64_t D = (uint64_t)s.D, M = (uint64_t)s.M;
	const uint64_t size = exec_bits(x->dtype) / 8;
	float *ws = r->workspace;
	struct moe_space p;
	struct moe_run run = {n, &s, r->pool, NULL, NULL};
	uint32_t *ids, *rows;
	float *sum;
	int32_t rc = 0;

	moe_space(&s, &p);
	ids = (uint32_t *)(ws + p.ids);
	rows = (uint32_t *)(ws + p.rows);
	run.zeros = ws + p.zeros;
	run.product = ws + p.product;
	sum = ws + p.sum;
	for (int64_t m = 0; m < s.M; m++) {
		rc = moe_choose(n, &s, m, ws + p.logits, ids + m * s.k,
				ws + p.weights + m * s.k, r->err);

		if (rc)
			return rc;
	}
	for (uint64_t i = 0; i < M * D; i++)
		sum[i] = 0;
	for (int64_t e = 0; e < s.E; e++) {
		float *w = ws + p.rows + M, *y = ws + p.x;
		struct moe_rows act = {
			&s, ws + p.h, s.fc[2].w ? ws + p.up : NULL, ws + p.act};
		const uint64_t count =
			moe_rows(&s, ids, ws + p.weights, e, rows, w);

		if (!count)
			continue;
		rc = moe_use(n, e, r->err);
		if (rc)
			return rc;
		for (uint64_t i = 0; i < count; i++)
			cref_widen(y + i * D,
				   (const char *)x->data + rows[i] * D * size,
				   x->dtype, D);
		moe_product(&run, &s.fc[0], e, y, count, ws + p.h);
		if (s.fc[2].w)
			moe_product(&run, &s.fc[2], e, y, count, ws + p.up);
		cref_pool_run(r->pool, moe_row_part, &act, count, 1);
		moe_product(&run, &s.fc[1], e, ws + p.act, count, y);
		for (uint64_t i = 0; i < count; i++)
			moe_add(sum + rows[i] * D, w[i], y + i * D, D);
	}
	cref_narrow(n->out[0]->data, x->dtype, sum, M * D);
	return GENAI_OK;
}
