// ops_activation.c - activations: functions of one input with parameters.
#include "modules/cpu_ref/ops.h"

#include <math.h>

// The kernels find their parameters in param[0] and param[1].

static int32_t param_run(struct cref_node *n, const struct cref_run *r,
			 const struct ops_kernels *k, const char *const *names,
			 double p0, double p1)
{
	enum ops_class c = ops_class_of(n->in[0]->dtype);
	struct ops_ew e;

	if (names[0]) {
		p0 = exec_attr_float(n->node, names[0], p0);
		if (names[1])
			p1 = exec_attr_float(n->node, names[1], p1);
	}
	ops_ew_init(&e, n, 1, ops_kernel(k, c));
	if (c == OPS_F32) {
		e.param[0].f = (float)p0;
		e.param[1].f = (float)p1;
	} else {
		e.param[0].d = p0;
		e.param[1].d = p1;
	}
	ops_ew_run(&e, r->pool);
	return GENAI_OK;
}

// fexpr in x, p, q (float), dexpr in x, p, q (double).
#define PARAM_KERNEL(name, T, F, expr)                                         \
	static void name(struct ops_ew *e, const void *const *in, void *out,   \
			 uint32_t count)                                       \
	{                                                                      \
		const T *a_ = in[0], p = e->param[0].F, q = e->param[1].F;     \
		T *o_ = out;                                                   \
                                                                               \
		(void)p;                                                       \
		(void)q;                                                       \
		for (uint32_t i = 0; i < count; i++) {                         \
			T x = a_[i];                                           \
                                                                               \
			o_[i] = expr;                                          \
		}                                                              \
	}

#define PARAM_ROW(op, d0, d1, ...)                                             \
	static const struct ops_kernels op##_kernels = {op##_f32, op##_f64,    \
							NULL, NULL};           \
	static const char *const op##_attrs[] = {__VA_ARGS__};                 \
	int32_t ops_##op##_prepare(struct cref_node *n,                        \
				   struct genai_error *err)                    \
	{                                                                      \
		return ops_same_prepare(n, op##_attrs, 1, 1, OPS_FLOATS, err); \
	}                                                                      \
	int32_t ops_##op##_run(struct cref_node *n, const struct cref_run *r)  \
	{                                                                      \
		return param_run(n, r, &op##_kernels, op##_attrs, d0, d1);     \
	}

#define PARAM(op, fexpr, dexpr, d0, d1, ...)                                   \
	PARAM_KERNEL(op##_f32, float, f, fexpr)                                \
	PARAM_KERNEL(op##_f64, double, d, dexpr)                               \
	PARAM_ROW(op, d0, d1, __VA_ARGS__)

static double hard(double v)
{
	return v < 0 ? 0 : v > 1 ? 1 : v;
}

static float hardf(float v)
{
	return v < 0 ? 0 : v > 1 ? 1 : v;
}

PARAM(elu, x < 0 ? p * expm1f(x) : x, x < 0 ? p * expm1(x) : x, 1.0, 0, "alpha",
      NULL)
PARAM(celu, x < 0 ? p * expm1f(x / p) : x, x < 0 ? p * expm1(x / p) : x, 1.0, 0,
      "alpha", NULL)
PARAM(leaky_relu, x < 0 ? p * x : x, x < 0 ? p * x : x, 0.01, 0, "alpha", NULL)
PARAM(thresholded_relu, x > p ? x : 0, x > p ? x : 0, 1.0, 0, "alpha", NULL)
PARAM(selu, q *(x > 0 ? x : p * expm1f(x)), q *(x > 0 ? x : p * expm1(x)),
      1.67326319217681884765625, 1.05070102214813232421875, "alpha", "gamma",
      NULL)
PARAM(hard_sigmoid, hardf(p *x + q), hard(p *x + q), 0.2, 0.5, "alpha", "beta",
      NULL)
PARAM(hard_swish, x *hardf(x / 6 + 0.5f), x *hard(x / 6 + 0.5), 0, 0, NULL)

// x * sigmoid(p * x)
static void gate_f32(struct ops_ew *e, const void *const *in, void *out,
		     uint32_t count)
{
	const float *x = in[0];
	float s[OPS_CHUNK], *o = out;

	s[0] = 0;
	for (uint32_t i = 0; i < count; i++)
		s[i] = x[i] * e->param[0].f;
	cref_vec_sigmoid(s, s, count);
	for (uint32_t i = 0; i < count; i++) {
		o[i] = x[i] * s[i];
	}
}

PARAM_KERNEL(gate_f64, double, d, x / (1 + exp(-p * x)))

#define swish_f32 gate_f32
#define swish_f64 gate_f64
PARAM_ROW(swish, 1.0, 0, "alpha", NULL)
#define quick_gelu_f32 gate_f32
#define quick_gelu_f64 gate_f64
PARAM_ROW(quick_gelu, 1.702, 0, "alpha", NULL)

// ---- Gelu ----

// 0.5 x (1 + tanh(u)) is x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
static void gelu_tanh_f32(struct ops_ew *e, const void *const *in, void *out,
			  uint32_t count)
{
	const float *x = in[0];
	float s[OPS_CHUNK], *o = out;

	(void)e;
	s[0] = 0;
	for (uint32_t i = 0; i < count; i++)
		s[i] = 1.5957691216057308f *
		       (x[i] + 0.044715f * (x[i] * x[i] * x[i]));
	cref_vec_sigmoid(s, s, count);
	for (uint32_t i = 0; i < count; i++) {
		o[i] = x[i] * s[i];
	}
}

OPS_KERNEL1(gelu_tanh_f64, double, double,
	    x / (1 + exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))))
OPS_KERNEL1(gelu_erf_f32, float, float,
	    0.5f * x * erfcf(-x * 0.70710678118654752f))
OPS_KERNEL1(gelu_erf_f64, double, double,
	    0.5 * x * erfc(-x * 0.70710678118654752))
static const struct ops_kernels gelu_tanh = {gelu_tanh_f32, gelu_tanh_f64, NULL,
					     NULL};
static const struct ops_kernels gelu_erf = {gelu_erf_f32, gelu_erf_f64, NULL,
					    NULL};

int32_t ops_gelu_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"approximate", NULL};
	const char *mode;
	int32_t rc = ops_same_prepare(n, attrs, 1, 1, OPS_FLOATS, err);

	if (rc)
		return rc;
	mode = exec_attr_string(n->node, "approximate", "none");
	if (strcmp(mode, "none") && strcmp(mode, "tanh"))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "approximate is '%.40s', carried: none, "
				      "tanh",
				      mode);
	return GENAI_OK;
}

int32_t ops_gelu_run(struct cref_node *n, const struct cref_run *r)
{
	const char *mode = exec_attr_string(n->node, "approximate", "none");

	return ops_same_run(n, r, mode[0] == 't' ? &gelu_tanh : &gelu_erf);
}

// FastGelu: gelu_tanh(x + bias), the bias of the last dim's length.
static void fast_gelu_f32(struct ops_ew *e, const void *const *in, void *out,
			  uint32_t count)
{
	const float *x = in[0], *b = e->n_in > 1 ? in[1] : NULL;
	float s[OPS_CHUNK];
	const void *sum = s;

	for (uint32_t i = 0; b && i < count; i++)
		s[i] = x[i] + b[i];
	gelu_tanh_f32(e, b ? &sum : in, out, count);
}

static void fast_gelu_f64(struct ops_ew *e, const void *const *in, void *out,
			  uint32_t count)
{
	const double *x = in[0], *b = e->n_in > 1 ? in[1] : NULL;
	double s[OPS_CHUNK];
	const void *sum = s;

	for (uint32_t i = 0; b && i < count; i++)
		s[i] = x[i] + b[i];
	gelu_tanh_f64(e, b ? &sum : in, out, count);
}

static const struct ops_kernels fast_gelu_kernels = {fast_gelu_f32,
						     fast_gelu_f64, NULL, NULL};

int32_t ops_fast_gelu_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, NULL, 1, 2, 1, err);
	const struct exec_tensor *x, *b;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_FLOATS, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 1, err);
	if (rc)
		return rc;
	x = n->in[0];
	b = n->n_in > 1 ? n->in[1] : NULL;
	if (b &&
	    (b->rank != 1 || !x->rank || b->dims[0] != x->dims[x->rank - 1]))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "bias of shape %s does not fit x of "
				      "shape %s",
				      EXEC_SHAPE(b), EXEC_SHAPE(x));
	return ops_out(n, 0, x->dtype, x->rank, x->dims, err);
}

int32_t ops_fast_gelu_run(struct cref_node *n, const struct cref_run *r)
{
	struct ops_ew e;
	bool bias = n->n_in > 1 && n->in[1];

	ops_ew_init(
		&e, n, bias ? 2 : 1,
		ops_kernel(&fast_gelu_kernels, ops_class_of(n->in[0]->dtype)));
	ops_ew_run(&e, r->pool);
	return GENAI_OK;
}

// PRelu: the slope broadcasts to x, not the other way round.
OPS_KERNEL2(prelu_f32, float, float, x < 0 ? x * y : x)
OPS_KERNEL2(prelu_f64, double, double, x < 0 ? x * y : x)
OPS_KERNEL2(prelu_i64, int64_t, int64_t,
	    x < 0 ? (int64_t)((uint64_t)x * (uint64_t)y) : x)
OPS_KERNEL2(prelu_u64, uint64_t, uint64_t, ((void)y, x))
static const struct ops_kernels prelu_kernels = {prelu_f32, prelu_f64,
						 prelu_i64, prelu_u64};

int32_t ops_prelu_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_same_prepare(n, NULL, 2, 2, OPS_NUMS, err);
	const struct exec_tensor *x;

	if (rc)
		return rc;
	x = n->in[0];
	if (n->out[0] && (n->out[0]->rank != x->rank ||
			  exec_count(n->out[0]) != exec_count(x)))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "slope of shape %s does not broadcast to "
				      "x of shape %s",
				      EXEC_SHAPE(n->in[1]), EXEC_SHAPE(x));
	return GENAI_OK;
}

int32_t ops_prelu_run(struct cref_node *n, const struct cref_run *r)
{
	return ops_same_run(n, r, &prelu_kernels);
}
