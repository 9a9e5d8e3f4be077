// ops_conv_state.c - CausalConvWithState: a depthwise convolution that looks
// back only, over what the steps before left as well.
//
// Every channel is a line by itself: the samples of its state, then the new
// ones.  The last of the line are the state afterwards, so past and present may
// be the same bytes, and the sum of a position does not know where a step
// began.
#include "modules/cpu_ref/ops.h"

enum { X, WEIGHT, BIAS, PAST };

struct conv_state {
	struct exec_conv a;
	int64_t batch, channels, length, taps, history;
};
EXEC_STATE(conv_state, cref_node)

static const struct exec_tensor *conv_in(const struct cref_node *n, uint32_t i)
{
	return i < n->n_in ? n->in[i] : NULL;
}

static int32_t conv_sizes(struct cref_node *n, struct conv_state *s,
			  struct genai_error *err)
{
	const struct exec_tensor *x = n->in[X], *w = n->in[WEIGHT];
	const struct exec_tensor *b = conv_in(n, BIAS);
	int32_t rc =
		ops_need_rank(n, X, 3, s->a.last ? GENAI_MAX_RANK - 1 : 3, err);

	if (rc)
		return rc;
	s->batch = x->dims[0];
	s->length = x->dims[s->a.last ? 1 : 2];
	s->channels = s->a.last ? (int64_t)ops_span(x, 2, x->rank) : x->dims[1];
	if (w->rank != 3 || w->dims[0] != s->channels || w->dims[1] != 1 ||
	    w->dims[2] < 1)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "weight of shape %s, must be [%lld, 1, "
				      "taps] for an input of shape %s",
				      EXEC_SHAPE(w), (long long)s->channels,
				      EXEC_SHAPE(x));
	s->taps = w->dims[2];
	if (s->taps > EXEC_MAX_TAPS / s->a.dilation)
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "%lld taps, %lld apart: more than %d "
				      "positions",
				      (long long)s->taps,
				      (long long)s->a.dilation, EXEC_MAX_TAPS);
	s->history = (s->taps - 1) * s->a.dilation;
	if (b && (b->rank != 1 || b->dims[0] != s->channels))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "bias of shape %s, must be [%lld]",
				      EXEC_SHAPE(b), (long long)s->channels);
	return GENAI_OK;
}

// The state is like the input, with other samples.
static int32_t conv_past(struct cref_node *n, const struct conv_state *s,
			 int64_t *out_dims, struct genai_error *err)
{
	const struct exec_tensor *x = n->in[X], *p = conv_in(n, PAST);
	struct exec_tensor want = *x;

	want.dims[s->a.last ? 1 : 2] = s->history;
	memcpy(out_dims, want.dims, sizeof(want.dims));
	if (!p || (p->rank == want.rank &&
		   !memcmp(p->dims, want.dims, want.rank * sizeof(*p->dims))))
		return GENAI_OK;
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "past_state of shape %s, must be %s",
			      EXEC_SHAPE(p), EXEC_SHAPE(&want));
}

int32_t ops_conv_state_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, exec_conv_state_attrs, 2, 4, 2, err);
	struct conv_state s = {0};
	int64_t dims[GENAI_MAX_RANK];
	uint64_t line, lines;
	struct exec_text why;

	if (!rc)
		rc = ops_need_dtype(n, X, OPS_F32S, err);
	for (uint32_t i = WEIGHT; !rc && i <= PAST; i++)
		if (conv_in(n, i))
			rc = ops_need_same_dtype(n, X, i, err);
	if (!rc && (rc = exec_conv_state(n->node, &s.a, &why)))
		return cref_node_fail(n, err, rc, "%s", why.s);
	if (!rc)
		rc = conv_sizes(n, &s, err);
	if (!rc)
		rc = conv_past(n, &s, dims, err);
	if (rc)
		return rc;
	// a line of each channel, and as much for its sums
	line = (uint64_t)s.history + 2 * (uint64_t)s.length;
	lines = (uint64_t)s.batch * (uint64_t)s.channels;
	if (__builtin_mul_overflow(line, lines * 4, &n->workspace_bytes) ||
	    n->workspace_bytes > (uint64_t)1 << 46)
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "input of shape %s is too large",
				      EXEC_SHAPE(n->in[X]));
	*conv_state(n) = s;
	rc = ops_out(n, 0, n->in[X]->dtype, n->in[X]->rank, n->in[X]->dims,
		     err);
	return rc ? rc
		  : ops_out(n, 1, n->in[X]->dtype, n->in[X]->rank, dims, err);
}

struct conv_call {
	struct conv_state s;
	const struct cref_node *n;
	float *lines;
};

// The length samples that tensor t has of a line.
static void conv_move(const struct conv_state *s, const struct exec_tensor *t,
		      int64_t length, int64_t line, float *v, bool store)
{
	int64_t b = line / s->channels, c = line % s->channels;
	int64_t stride = s->a.last ? s->channels : 1;
	int64_t first = s->a.last ? b * length * stride + c : line * length;

	for (int64_t i = 0; i < length; i += OPS_CHUNK) {
		int64_t left = length - i, at = first + i * stride;
		uint32_t n = left < OPS_CHUNK ? (uint32_t)left : OPS_CHUNK;

		if (store)
			ops_store(OPS_F32, v + i, t->dtype, t->data, at, stride,
				  n);
		else
			ops_load(OPS_F32, v + i, t->dtype, t->data, at, stride,
				 n);
	}
}

// Taps in their order, each over all positions: a position's sum has always
// the same order.  In double, where products of floats are exact: what is near
// zero here may be made long again by the norm that follows.
static void conv_sums(const struct conv_call *c, int64_t line, const float *x,
		      float *y)
{
	const struct conv_state *s = &c->s;
	const struct exec_tensor *w = c->n->in[WEIGHT],
				 *b = conv_in(c->n, BIAS);
	uint64_t ch = (uint64_t)(line % s->channels);
	double first = b ? cref_load(b->data, b->dtype, ch) : 0;

	for (int64_t t = 0; t < s->length; t += OPS_CHUNK) {
		int64_t left = s->length - t;
		int64_t n = left < OPS_CHUNK ? left : OPS_CHUNK;
		double sum[OPS_CHUNK];

		for (int64_t i = 0; i < n; i++)
			sum[i] = first;
		for (int64_t j = 0; j < s->taps; j++) {
			const float *v = x + t + j * s->a.dilation;
			double f =
				cref_load(w->data, w->dtype,
					  ch * (uint64_t)s->taps + (uint64_t)j);

			for (int64_t i = 0; i < n; i++)
				sum[i] += f * (double)v[i];
		}
		for (int64_t i = 0; i < n; i++)
			y[t + i] = (float)sum[i];
	}
	for (int64_t t = 0; s->a.silu && t < s->length; t += OPS_CHUNK) {
		int64_t left = s->length - t;
		uint32_t n = left < OPS_CHUNK ? (uint32_t)left : OPS_CHUNK;
		float g[OPS_CHUNK];

		cref_vec_sigmoid(g, y + t, n);
		for (uint32_t i = 0; i < n; i++)
			y[t + i] *= g[i];
	}
}

static void conv_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct conv_call *c = ctx;
	const struct conv_state *s = &c->s;
	const struct exec_tensor *past = conv_in(c->n, PAST);
	int64_t room = s->history + 2 * s->length;

	for (int64_t k = (int64_t)begin; k < (int64_t)end; k++) {
		float *x = c->lines + k * room, *y = x + s->history + s->length;

		memset(x, 0, (size_t)s->history * sizeof(*x));
		if (past)
			conv_move(s, past, s->history, k, x, false);
		conv_move(s, c->n->in[X], s->length, k, x + s->history, false);
		conv_sums(c, k, x, y);
		if (c->n->out[0])
			conv_move(s, c->n->out[0], s->length, k, y, true);
		if (c->n->n_out > 1 && c->n->out[1])
			conv_move(s, c->n->out[1], s->history, k, x + s->length,
				  true);
	}
}

int32_t ops_conv_state_run(struct cref_node *n, const struct cref_run *r)
{
	struct conv_call c = {*conv_state(n), n, r->workspace};
	uint64_t lines = (uint64_t)(c.s.batch * c.s.channels);

	ops_rows(r->pool, conv_part, &c, lines,
		 (uint64_t)((c.s.taps + 2) * c.s.length + c.s.history) + 1);
	return GENAI_OK;
}
