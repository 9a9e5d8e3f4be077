// linear_attention.c - LinearAttention: a matrix per head, S [dk, dv], that
// every token decays, corrects and adds to, and that its query then reads.
//
// Tokens come one after another, and the sums over dk are in the order of their
// elements, so where a step ends changes nothing; a state narrower than float
// is rounded after every token for the same reason.  The columns of S have
// nothing to do with each other: 16 of them are a unit of work.
#include "modules/cpu_ref/ops.h"

#include <math.h>

#define COLUMNS 16
#define MAX_DK 1024

enum { QUERY, KEY, VALUE, PAST, DECAY, BETA };

struct linear {
	int64_t B, T, dk, dv;
	int64_t q_heads, k_heads, heads; // heads: of values and of the state
	int64_t blocks;			 // of columns
	float scale;
	bool gated, delta;
	bool per_row;  // a decay for each row of S
	bool one_beta; // for all heads
};
EXEC_STATE(linear, cref_node)

static const struct exec_tensor *linear_in(const struct cref_node *n,
					   uint32_t i)
{
	return i < n->n_in ? n->in[i] : NULL;
}

// ---- planning ----

static int32_t linear_rule(struct cref_node *n, struct linear *l,
			   struct genai_error *err)
{
	const char *rule =
		exec_attr_string(n->node, "update_rule", "gated_delta");
	bool gated = !strncmp(rule, "gated", 5);

	l->gated = gated;
	l->delta = !strcmp(rule, "delta") || !strcmp(rule, "gated_delta");
	if (!l->delta && strcmp(rule, "gated") && strcmp(rule, "linear"))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "update_rule %.40s, carried: linear, "
				      "gated, delta, gated_delta",
				      rule);
	if (l->gated != !!linear_in(n, DECAY) ||
	    l->delta != !!linear_in(n, BETA))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "update_rule %s takes %s decay and %s "
				      "beta",
				      rule, l->gated ? "a" : "no",
				      l->delta ? "a" : "no");
	if (exec_attr_int(n->node, "state_window", 0))
		return cref_node_fail(
			n, err, GENAI_E_UNSUPPORTED,
			"attribute state_window is %lld, "
			"carried: 0",
			(long long)exec_attr_int(n->node, "state_window", 0));
	return GENAI_OK;
}

// Inputs are [B, T, some multiple of unit].
static int32_t linear_width(struct cref_node *n, const struct linear *l,
			    uint32_t i, int64_t unit, int64_t *out_count,
			    struct genai_error *err)
{
	const struct exec_tensor *t = n->in[i];

	if (t->rank != 3 || t->dims[0] != l->B || t->dims[1] != l->T ||
	    t->dims[2] < unit || t->dims[2] % unit)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "input %u '%.60s' of shape %s, must be "
				      "[%lld, %lld, a multiple of %lld]",
				      i, t->name ? t->name : "", EXEC_SHAPE(t),
				      (long long)l->B, (long long)l->T,
				      (long long)unit);
	*out_count = t->dims[2] / unit;
	return GENAI_OK;
}

static bool divides(int64_t a, int64_t b)
{
	return a > b ? a % b == 0 : b % a == 0;
}

static int32_t linear_heads(struct cref_node *n, struct linear *l,
			    struct genai_error *err)
{
	const struct exec_tensor *q = n->in[QUERY];
	int32_t rc = ops_need_rank(n, QUERY, 3, 3, err);

	if (rc)
		return rc;
	l->q_heads = exec_attr_int(n->node, "q_num_heads", 0);
	l->heads = exec_attr_int(n->node, "kv_num_heads", 0);
	if (l->q_heads < 1 || l->heads < 1 || l->q_heads > 65536 ||
	    l->heads > 65536 || !divides(l->q_heads, l->heads))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "q_num_heads %lld, kv_num_heads %lld: "
				      "must be positive and divide",
				      (long long)l->q_heads,
				      (long long)l->heads);
	l->B = q->dims[0];
	l->T = q->dims[1];
	rc = linear_width(n, l, QUERY, l->q_heads, &l->dk, err);
	if (!rc && l->dk > MAX_DK)
		rc = cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				    "heads of %lld, carried: %d",
				    (long long)l->dk, MAX_DK);
	if (!rc)
		rc = linear_width(n, l, KEY, l->dk, &l->k_heads, err);
	if (!rc)
		rc = linear_width(n, l, VALUE, l->heads, &l->dv, err);
	if (!rc && (l->k_heads > l->heads || l->heads % l->k_heads))
		rc = cref_node_fail(n, err, GENAI_E_INVAL,
				    "key of shape %s has %lld heads of %lld, "
				    "which do not divide kv_num_heads %lld",
				    EXEC_SHAPE(n->in[KEY]),
				    (long long)l->k_heads, (long long)l->dk,
				    (long long)l->heads);
	return rc;
}

static int32_t linear_gates(struct cref_node *n, struct linear *l,
			    struct genai_error *err)
{
	const struct exec_tensor *d = linear_in(n, DECAY);
	const struct exec_tensor *b = linear_in(n, BETA);
	int64_t each = 1;
	int32_t rc = 0;

	if (d)
		rc = linear_width(n, l, DECAY, l->heads, &each, err);
	if (!rc && each != 1 && each != l->dk)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "decay of shape %s is neither one nor "
				      "%lld for each of %lld heads",
				      EXEC_SHAPE(d), (long long)l->dk,
				      (long long)l->heads);
	l->per_row = each != 1;
	each = 1;
	if (!rc && b)
		rc = linear_width(n, l, BETA, 1, &each, err);
	if (!rc && each != 1 && each != l->heads)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "beta of shape %s is neither one nor "
				      "%lld a token",
				      EXEC_SHAPE(b), (long long)l->heads);
	l->one_beta = each == 1;
	return rc;
}

static int32_t linear_past(struct cref_node *n, const struct linear *l,
			   struct genai_error *err)
{
	const struct exec_tensor *p = linear_in(n, PAST);
	struct exec_tensor want = {.rank = 4,
				   .dims = {l->B, l->heads, l->dk, l->dv}};

	if (!p ||
	    (p->rank == 4 && !memcmp(p->dims, want.dims, 4 * sizeof(*p->dims))))
		return GENAI_OK;
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "past_state of shape %s, must be %s",
			      EXEC_SHAPE(p), EXEC_SHAPE(&want));
}

static int32_t linear_types(struct cref_node *n, struct genai_error *err)
{
	static const uint8_t like_query[] = {KEY, VALUE, DECAY, BETA};
	int32_t rc = ops_need_dtype(n, QUERY, OPS_F32S, err);

	for (size_t i = 0; !rc && i < sizeof(like_query); i++)
		rc = ops_need_same_dtype(n, QUERY, like_query[i], err);
	return rc ? rc : ops_need_dtype(n, PAST, OPS_F32S, err);
}

int32_t cref_linear_prepare(struct cref_node *n, struct genai_error *err)
{
	const struct exec_tensor *past;
	int32_t rc = ops_check(n, exec_linear_attrs, 3, 6, 2, err);
	struct linear l = {0};
	uint64_t room;

	if (!rc)
		rc = linear_types(n, err);
	if (!rc)
		rc = linear_rule(n, &l, err);
	if (!rc)
		rc = linear_heads(n, &l, err);
	if (!rc)
		rc = linear_gates(n, &l, err);
	if (!rc)
		rc = linear_past(n, &l, err);
	if (rc)
		return rc;
	l.scale = (float)exec_attr_float(n->node, "scale", 0);
	if (!(l.scale > 0 || l.scale < 0))
		l.scale = 1.0f / sqrtf((float)l.dk);
	l.blocks = (l.dv + COLUMNS - 1) / COLUMNS;
	room = (uint64_t)(l.dk * COLUMNS) * sizeof(float);
	if (__builtin_mul_overflow(room, (uint64_t)(l.heads * l.blocks),
				   &room) ||
	    __builtin_mul_overflow(room, (uint64_t)l.B, &n->workspace_bytes) ||
	    n->workspace_bytes > (uint64_t)1 << 46)
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "value of shape %s is too large",
				      EXEC_SHAPE(n->in[VALUE]));
	*linear(n) = l;
	past = linear_in(n, PAST);
	rc = ops_out(
		n, 0, n->in[QUERY]->dtype, 3,
		(int64_t[]){l.B, l.T,
			    (l.q_heads > l.heads ? l.q_heads : l.heads) * l.dv},
		err);
	return rc ? rc
		  : ops_out(n, 1, past ? past->dtype : n->in[QUERY]->dtype, 4,
			    (int64_t[]){l.B, l.heads, l.dk, l.dv}, err);
}

// ---- running ----

struct linear_call {
	struct linear l;
	const struct cref_node *n;
	float *states; // of the units, [dk][COLUMNS]
};

// A unit: some columns of one head of one sequence.
struct unit {
	int64_t b, h, first;
	uint64_t columns;
	float *s;
};

static char *element(const struct exec_tensor *t, int64_t i)
{
	return (char *)t->data + i * (t->dtype == GENAI_DT_F32 ? 4 : 2);
}

// The unit's part of the state, to or from floats.
static void move_state(const struct linear *l, const struct unit *u,
		       const struct exec_tensor *t, bool store)
{
	for (int64_t i = 0; i < l->dk; i++) {
		char *at = element(t, ((u->b * l->heads + u->h) * l->dk + i) *
						      l->dv +
					      u->first);

		if (store)
			cref_narrow(at, t->dtype, u->s + i * COLUMNS,
				    u->columns);
		else
			cref_widen(u->s + i * COLUMNS, at, t->dtype,
				   u->columns);
	}
}

// What S, decayed, has for the key.
static void decay_and_read(const struct linear *l, float *s, const float *e,
			   const float *k, float *out)
{
	float r[COLUMNS] = {0};

	for (int64_t i = 0; i < l->dk; i++, s += COLUMNS) {
		float d = e[l->per_row ? i : 0];

		for (int j = 0; l->gated && j < COLUMNS; j++)
			s[j] *= d;
		for (int j = 0; j < COLUMNS; j++)
			r[j] += k[i] * s[j];
	}
	memcpy(out, r, sizeof(r));
}

static void add_outer(const struct linear *l, float *s, const float *k,
		      const float *v)
{
	for (int64_t i = 0; i < l->dk; i++, s += COLUMNS)
		for (int j = 0; j < COLUMNS; j++)
			s[j] += k[i] * v[j];
}

static void read_out(const struct linear *l, const float *s, const float *q,
		     float *out)
{
	float r[COLUMNS] = {0};

	for (int64_t i = 0; i < l->dk; i++, s += COLUMNS)
		for (int j = 0; j < COLUMNS; j++)
			r[j] += q[i] * s[j];
	for (int j = 0; j < COLUMNS; j++)
		out[j] = r[j] * l->scale;
}

static void round_state(const struct linear *l, float *s, uint32_t dtype)
{
	uint16_t h[COLUMNS];

	for (int64_t i = 0; i < l->dk; i++, s += COLUMNS) {
		cref_narrow(h, dtype, s, COLUMNS);
		cref_widen(s, h, dtype, COLUMNS);
	}
}

// What of the token at row goes into S.
static void update(const struct linear_call *c, const struct unit *u,
		   int64_t row)
{
	const struct linear *l = &c->l;
	const struct exec_tensor *kt = c->n->in[KEY], *vt = c->n->in[VALUE];
	const struct exec_tensor *dt = linear_in(c->n, DECAY);
	const struct exec_tensor *bt = linear_in(c->n, BETA);
	const int64_t each = l->per_row ? l->dk : 1;
	float k[MAX_DK], e[MAX_DK], v[COLUMNS] = {0}, r[COLUMNS], beta;

	cref_widen(k,
		   element(kt,
			   (row * l->k_heads + u->h / (l->heads / l->k_heads)) *
				   l->dk),
		   kt->dtype, (uint64_t)l->dk);
	cref_widen(v, element(vt, (row * l->heads + u->h) * l->dv + u->first),
		   vt->dtype, u->columns);
	e[0] = 1;
	if (l->gated) {
		cref_widen(e, element(dt, (row * l->heads + u->h) * each),
			   dt->dtype, (uint64_t)each);
		cref_vec_exp(e, e, (uint64_t)each);
	}
	if (l->gated || l->delta)
		decay_and_read(l, u->s, e, k, r);
	if (l->delta) {
		beta = cref_load(
			bt->data, bt->dtype,
			(uint64_t)(l->one_beta ? row : row * l->heads + u->h));
		for (int j = 0; j < COLUMNS; j++)
			v[j] = beta * (v[j] - r[j]);
	}
	add_outer(l, u->s, k, v);
}

static void answer(const struct linear_call *c, const struct unit *u,
		   int64_t row)
{
	const struct linear *l = &c->l;
	const struct exec_tensor *qt = c->n->in[QUERY], *o = c->n->out[0];
	const bool more = l->heads > l->q_heads;
	const int64_t group = more ? 1 : l->q_heads / l->heads;
	const int64_t out_heads = more ? l->heads : l->q_heads;
	float q[MAX_DK], y[COLUMNS];

	for (int64_t g = 0; o && g < group; g++) {
		const int64_t h = u->h * group + g;
		const int64_t from = more ? h / (l->heads / l->q_heads) : h;

		cref_widen(q, element(qt, (row * l->q_heads + from) * l->dk),
			   qt->dtype, (uint64_t)l->dk);
		read_out(l, u->s, q, y);
		cref_narrow(
			element(o, (row * out_heads + h) * l->dv + u->first),
			o->dtype, y, u->columns);
	}
}

static void linear_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct linear_call *c = ctx;
	const struct linear *l = &c->l;
	const struct exec_tensor *past = linear_in(c->n, PAST);
	const struct exec_tensor *to = c->n->n_out > 1 ? c->n->out[1] : NULL;
	const uint32_t dtype = past ? past->dtype : c->n->in[QUERY]->dtype;

	for (int64_t k = (int64_t)begin; k < (int64_t)end; k++) {
		const int64_t block = k % l->blocks, head = k / l->blocks;
		const int64_t left = l->dv - block * COLUMNS;
		struct unit u = {head / l->heads, head % l->heads,
				 block * COLUMNS,
				 (uint64_t)(left < COLUMNS ? left : COLUMNS),
				 c->states + k * l->dk * COLUMNS};

		memset(u.s, 0, (size_t)(l->dk * COLUMNS) * sizeof(float));
		if (past)
			move_state(l, &u, past, false);
		for (int64_t t = 0; t < l->T; t++) {
			update(c, &u, u.b * l->T + t);
			answer(c, &u, u.b * l->T + t);
			// without a state before it, nothing was cut here
			if (past && dtype != GENAI_DT_F32)
				round_state(l, u.s, dtype);
		}
		if (to)
			move_state(l, &u, to, true);
	}
}

int32_t cref_linear_run(struct cref_node *n, const struct cref_run *r)
{
	struct linear_call c = {*linear(n), n, r->workspace};
	uint64_t units = (uint64_t)(c.l.B * c.l.heads * c.l.blocks);

	ops_rows(r->pool, linear_part, &c, units,
		 (uint64_t)(c.l.T * c.l.dk * COLUMNS) + 1);
	return GENAI_OK;
}
