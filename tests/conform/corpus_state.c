/* corpus_state.c - operators whose state goes from one step into the next, fed
 * in steps of several lengths with past and present in the same bytes: against
 * the definition in double, and the same bits however the rows are cut. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tests/conform/corpus.h"

enum { ROWS = 40, MOST = 24 * ROWS };

/* A sequence through an operator: a step of n rows from row t on reads and
 * writes state, and its result goes to y. */
struct sequence {
	void (*build)(struct op_graph *g, const void *of, int64_t t, int64_t n,
		      void *state, void *y);
	const void *of;
	uint32_t dtype;
	uint64_t width, state_bytes; /* of a row of results */
};

static int32_t feed(struct check *c, const struct sequence *q, int64_t most,
		    void *y, void *state, struct genai_error *err)
{
	uint64_t size = op_bytes(q->dtype, 0, NULL);
	static struct op_graph g;
	int32_t rc = 0;

	memset(state, 0, q->state_bytes);
	for (int64_t t = 0, n; t < ROWS && !rc; t += n) {
		struct op_how how = {0};

		n = ROWS - t < most ? ROWS - t : most;
		op_graph_init(&g);
		q->build(&g, q->of, t, n, state,
			 (char *)y + (uint64_t)t * q->width * size);
		rc = c->run(c, &g, &how, err);
	}
	return rc;
}

/* name, in all lengths; want and tol are of all rows. */
static void cut(struct check *c, const struct sequence *q, const char *name,
		const double *want, const double *tol)
{
	static const int64_t most[] = {40, 33, 17, 16, 7, 5, 3, 2, 1};
	uint64_t bytes = ROWS * q->width * op_bytes(q->dtype, 0, NULL);
	struct genai_error err = GENAI_ERROR_INIT;
	void *first = calloc(ROWS * q->width, 4);
	void *got = calloc(ROWS * q->width, 4);
	void *last = malloc(q->state_bytes), *state = malloc(q->state_bytes);
	int32_t rc = feed(c, q, ROWS, first, last, &err);
	bool refused = c->refused;

	for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
		if (!check_begin(c, "%s dtype %u, %lld rows a step", name,
				 q->dtype, (long long)most[i]))
			continue;
		c->refused = refused;
		if (!rc)
			rc = feed(c, q, most[i], got, state, &err);
		if (rc) {
			check_result(c, false, "%s", err.text);
			continue;
		}
		check_close(c, q->dtype, got, want, tol, ROWS * q->width);
		if (!c->rows_exact)
			continue;
		check_same(c, first, got, bytes);
		check_same(c, last, state, q->state_bytes);
	}
	free(first);
	free(got);
	free(last);
	free(state);
}

/* ---- CausalConvWithState ---- */

struct conv {
	uint32_t dtype;
	int64_t channels, taps, dilation;
	bool last, silu;
	void *x, *w, *bias; /* x: channels last */
};

static int64_t conv_history(const struct conv *v)
{
	return (v->taps - 1) * v->dilation;
}

/* n rows of x from row t on, in the layout asked for. */
static void conv_rows(const struct conv *v, int64_t t, int64_t n, void *out)
{
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; k < v->channels; k++)
			op_store(
				v->dtype, out,
				(uint64_t)(v->last ? i * v->channels + k
						   : k * n + i),
				op_load(v->dtype, v->x,
					(uint64_t)((t + i) * v->channels + k)));
}

static void conv_build(struct op_graph *g, const void *of, int64_t t, int64_t n,
		       void *state, void *y)
{
	const struct conv *v = of;
	static char x[MOST * 4];
	const int64_t h = conv_history(v), ch = v->channels;
	const int64_t dims[] = {1, v->last ? n : ch, v->last ? ch : n};
	const int64_t kept[] = {1, v->last ? h : ch, v->last ? ch : h};
	uint32_t in[5], outs[3];

	conv_rows(v, t, n, x);
	in[0] = op_input(g, v->dtype, 3, dims, x);
	in[1] = op_const(g, v->dtype, 3, (int64_t[]){ch, 1, v->taps}, v->w);
	in[2] = v->bias ? op_const(g, v->dtype, 1, (int64_t[]){ch}, v->bias)
			: GENAI_NONE;
	in[3] = op_input(g, v->dtype, 3, kept, state);
	in[4] = OP_END;
	op_node(g, "com.microsoft", "CausalConvWithState", in);
	if (v->last)
		op_attr_int(g, "channels_last", 1);
	if (v->dilation > 1)
		op_attr_int(g, "dilation", v->dilation);
	op_attr_string(g, "activation", v->silu ? "silu" : "none");
	/* rows of results: channels last, by way of a transposition */
	outs[0] = v->last ? op_output(g, v->dtype, 3, dims, y) : op_value(g);
	outs[1] = op_output(g, v->dtype, 3, kept, state);
	outs[2] = OP_END;
	op_node_out(g, outs);
	op_over(g, outs[1], in[3]);
	if (v->last)
		return;
	op_node(g, "", "Transpose", (uint32_t[]){outs[0], OP_END});
	op_attr_ints(g, "perm", (int64_t[]){0, 2, 1}, 3);
	op_node_out(g, (uint32_t[]){op_output(g, v->dtype, 3,
					      (int64_t[]){1, n, ch}, y),
				    OP_END});
}

static void conv_want(const struct conv *v, double *want, double *tol)
{
	const int64_t h = conv_history(v);

	for (int64_t i = 0; i < ROWS * v->channels; i++) {
		int64_t t = i / v->channels, k = i % v->channels;
		double sum = 0, mag = 0;

		if (v->bias)
			sum = op_load(v->dtype, v->bias, (uint64_t)k);
		mag = fabs(sum);
		for (int64_t j = 0; j < v->taps; j++) {
			int64_t at = t - h + j * v->dilation;
			double p;

			if (at < 0)
				continue;
			p = (double)op_load(v->dtype, v->w,
					    (uint64_t)(k * v->taps + j)) *
			    op_load(v->dtype, v->x,
				    (uint64_t)(at * v->channels + k));
			sum += p;
			mag += fabs(p);
		}
		want[i] = v->silu ? sum / (1 + exp(-sum)) : sum;
		/* the slope of silu is at most 1.1 */
		tol[i] = mag * (double)(v->taps + 8) * 0x1p-23 +
			 fabs(want[i]) * 1.01 * unit_of(v->dtype) + 1e-30;
		if (v->dtype == GENAI_DT_F16)
			tol[i] += 0x1p-24;
	}
}

static void conv_case(struct check *c, uint32_t dtype, int64_t taps,
		      int64_t dilation, bool last, bool silu, bool bias)
{
	static double want[MOST], tol[MOST];
	struct conv v = {dtype, 6, taps, dilation, last, silu};
	struct sequence q = {
		.build = conv_build,
		.of = &v,
		.dtype = dtype,
		.width = (uint64_t)v.channels,
		.state_bytes = (uint64_t)(conv_history(&v) * v.channels) *
			       op_bytes(dtype, 0, NULL),
	};

	v.x = rnd_tensor(dtype, ROWS * q.width, -2, 2);
	v.w = rnd_tensor(dtype, q.width * (uint64_t)taps, -1, 1);
	if (bias)
		v.bias = rnd_tensor(dtype, q.width, -1, 1);
	conv_want(&v, want, tol);
	cut(c, &q,
	    last   ? "conv, channels last"
	    : silu ? "conv with silu"
		   : "conv",
	    want, tol);
	free(v.x);
	free(v.w);
	free(v.bias);
}

void corpus_state(struct check *c)
{
	static const uint32_t floats[] = {GENAI_DT_F32, GENAI_DT_F16,
					  GENAI_DT_BF16};

	for (int d = 0; d < 3; d++) {
		conv_case(c, floats[d], 3, 1, false, false, false);
		conv_case(c, floats[d], 4, 1, false, true, true);
		conv_case(c, floats[d], 3, 4, false, false, true);
		conv_case(c, floats[d], 4, 1, true, true, true);
	}
}
