// experts.c - a mixture of experts in place of the MLP: a router, and MoE or
// QMoE.  Gates and ups are one matrix whose rows alternate, as ONNX Runtime's
// CPU kernels read them.
#include "core/modelgen/gen.h"

#include <stdio.h>
#include <string.h>

// Of all experts; gates and ups together where up is not 0.
static void stacked(struct gen *g, struct gen_mat *m, uint32_t layer,
		    uint32_t site, uint32_t up, uint64_t rows, uint64_t cols)
{
	memset(m, 0, sizeof(*m));
	m->site[0] = site;
	m->site[1] = up;
	m->n_sites = up ? 2 : 1;
	m->by_turns = up != 0;
	m->layer = layer;
	m->rows[0] = m->rows[1] = rows * g->conf->experts;
	m->n_rows = m->rows[0] * m->n_sites;
	m->cols = cols;
	g->source->form(g->source->self, site, layer, &m->form);
}

static void weight_of(struct gen *g, const struct gen_mat *m, const char *name,
		      const char *what, char *out)
{
	(void)g;
	snprintf(out, GEN_NAME, "model.layers.%u.moe.experts.%s.%s", m->layer,
		 name, what);
}

struct inits {
	char w[GEN_NAME], scales[GEN_NAME], zeros[GEN_NAME], bias[GEN_NAME];
};

static void bias_of(struct gen *g, const struct gen_mat *m, const char *name,
		    struct inits *in)
{
	const uint64_t experts = g->conf->experts;
	const uint64_t dims[2] = {experts, m->n_rows / experts};
	struct gen_job *job;

	in->bias[0] = 0;
	if (!g->conf->expert_bias)
		return;
	job = gen_job_add(g, GEN_VECTOR);
	job->mat = *m;
	for (uint32_t i = 0; i < m->n_sites; i++)
		job->mat.site[i] =
			m->site[i] - GENAI_SITE_EXP_GATE + GENAI_SITE_BIAS_GATE;
	weight_of(g, m, name, "bias", in->bias);
	job->at = gen_init(g, in->bias, g->conf->io_dtype, 2, dims);
}

static void inits_of(struct gen *g, const struct gen_mat *m, const char *name,
		     struct inits *in)
{
	const uint64_t experts = g->conf->experts, n = m->n_rows / experts;
	const uint32_t block = m->form.bits ? m->form.block : 1;
	const uint64_t w[3] = {experts, n,
			       m->form.bits ? m->cols * m->form.bits / 8
					    : m->cols};
	const uint64_t s[3] = {experts, n, m->cols / block};
	struct gen_job *job =
		gen_job_add(g, m->form.bits ? GEN_BLOCKS : GEN_ROWS);

	job->mat = *m;
	in->scales[0] = in->zeros[0] = 0;
	weight_of(g, m, name, m->form.bits ? "qweight" : "weight", in->w);
	job->at = gen_init(
		g, in->w, m->form.bits ? GENAI_DT_U8 : g->conf->io_dtype, 3, w);
	if (m->form.bits) {
		weight_of(g, m, name, "scales", in->scales);
		job->scales = gen_init(g, in->scales, g->conf->io_dtype, 3, s);
	}
	if (m->form.offset == GENAI_OFFSET_ZERO) {
		weight_of(g, m, name, "zero_points", in->zeros);
		job->zeros = gen_init(g, in->zeros, g->conf->io_dtype, 3, s);
	}
	bias_of(g, m, name, in);
}

static void attributes(struct gen *g, const struct gen_mat *up,
		       const struct gen_mat *down)
{
	const struct genai_genconf *c = g->conf;

	gen_attr_string(g, "activation_type", "swiglu");
	gen_attr_float(g, "activation_alpha",
		       c->gate_alpha > 0 ? c->gate_alpha : 1);
	gen_attr_float(g, "activation_beta", c->gate_beta);
	gen_attr_int(g, "k", c->experts_used);
	gen_attr_int(g, "normalize_routing_weights", 1);
	gen_attr_int(g, "swiglu_fusion", 1);
	if (c->gate_limit > 0)
		gen_attr_float(g, "swiglu_limit", c->gate_limit);
	if (!up->form.bits)
		return;
	gen_attr_int(g, "expert_weight_bits", up->form.bits);
	if (down->form.bits != up->form.bits)
		gen_attr_int(g, "fc2_expert_weight_bits", down->form.bits);
	gen_attr_int(g, "block_size", up->form.block);
	gen_attr_int(g, "weights_prepacked", 0);
}

// The router's logits, a row for each position.
static void route(struct gen *g, uint32_t layer, const char *in, char *out)
{
	const struct genai_genconf *c = g->conf;
	const int64_t shape[2] = {-1, (int64_t)c->experts};
	char name[GEN_NAME], a[GEN_NAME];
	struct gen_mat m;

	gen_one(g, &m, GENAI_SITE_ROUTER, layer, c->experts, c->hidden);
	gen_project(g, &m, "moe.router", in, a);
	if (c->router_bias)
		gen_add_bias(g, layer, GENAI_SITE_BIAS_ROUTER, c->experts,
			     "moe.router", a);
	gen_const(g, false, shape, 2, name);
	snprintf(out, GEN_NAME, "/model/layers.%u/moe/router/Reshape/output_0",
		 layer);
	{
		char node[GEN_NAME];

		snprintf(node, sizeof(node),
			 "/model/layers.%u/moe/router/Reshape", layer);
		gen_node(g, "Reshape", "", node);
	}
	gen_in(g, a);
	gen_in(g, name);
	gen_out(g, out);
	gen_end(g);
}

// A node of the router, whose path ends in what; in2 and in3 may be NULL.
static void begin(struct gen *g, uint32_t layer, const char *op,
		  const char *what, const char *in, const char *in2,
		  const char *in3, char *out)
{
	char node[GEN_NAME];

	snprintf(node, sizeof(node), "/model/layers.%u/moe/router/%s", layer,
		 what);
	snprintf(out, GEN_NAME, "/model/layers.%u/moe/router/%s/output_0",
		 layer, what);
	gen_node(g, op, "", node);
	gen_in(g, in);
	if (in2)
		gen_in(g, in2);
	if (in3)
		gen_in(g, in3);
	gen_out(g, out);
}

static void node(struct gen *g, uint32_t layer, const char *op,
		 const char *what, const char *in, const char *in2, char *out)
{
	begin(g, layer, op, what, in, in2, NULL, out);
	gen_end(g);
}

static void cast(struct gen *g, uint32_t layer, const char *what, uint32_t to,
		 char *inout)
{
	char in[GEN_NAME];

	if (g->conf->io_dtype == GENAI_DT_F32)
		return;
	memcpy(in, inout, sizeof(in));
	begin(g, layer, "Cast", what, in, NULL, NULL, inout);
	gen_attr_int(g, "to", to);
	gen_end(g);
}

// 1 / (1 + exp(-logits)): ONNX Runtime's Sigmoid is not as exact near 0.
static void sigmoids(struct gen *g, uint32_t layer, const char *logits,
		     char *out)
{
	char a[GEN_NAME], b[GEN_NAME], one[GEN_NAME];

	gen_const_wide(g, 1, one);
	node(g, layer, "Neg", "sigmoid/Neg", logits, NULL, a);
	node(g, layer, "Exp", "sigmoid/Exp", a, NULL, b);
	node(g, layer, "Add", "sigmoid/Add", b, one, a);
	node(g, layer, "Reciprocal", "sigmoid/Reciprocal", a, NULL, out);
}

// Numbers of the experts whose scores and biases are largest.
static void choose(struct gen *g, uint32_t layer, const char *scores, char *out)
{
	const uint64_t n = g->conf->experts;
	const int64_t k = g->conf->experts_used;
	char bias[GEN_NAME], sum[GEN_NAME], count[GEN_NAME], top[GEN_NAME];
	struct gen_job *job = gen_job_add(g, GEN_VECTOR);

	snprintf(bias, sizeof(bias), "model.layers.%u.moe.expert_bias", layer);
	job->mat.site[0] = GENAI_SITE_BIAS_CHOICE;
	job->mat.n_sites = 1;
	job->mat.layer = layer;
	job->mat.n_rows = job->mat.rows[0] = n;
	job->wide = true;
	job->at = gen_init(g, bias, GENAI_DT_F32, 1, &n);
	node(g, layer, "Add", "Add", scores, bias, sum);
	gen_const(g, false, &k, 1, count);
	begin(g, layer, "TopK", "TopK", sum, count, NULL, top);
	snprintf(out, GEN_NAME, "/model/layers.%u/moe/router/TopK/output_1",
		 layer);
	gen_out(g, out);
	gen_attr_int(g, "axis", -1);
	gen_attr_int(g, "largest", 1);
	gen_end(g);
}

// What the experts' sum is multiplied by, a number for each position of in:
// weights are divided by their sum and a little more.
static void remainder_of(struct gen *g, uint32_t layer, const char *weights,
			 const char *in, char *out)
{
	const int64_t last = -1, first = 0, one = 1;
	char c[GEN_NAME], d[GEN_NAME], sum[GEN_NAME], a[GEN_NAME];
	char factor[GEN_NAME];

	gen_const(g, false, &last, 1, c);
	begin(g, layer, "ReduceSum", "scale/ReduceSum", weights, c, NULL, sum);
	gen_attr_int(g, "keepdims", 1);
	gen_end(g);
	gen_const_wide(g, 1e-6f, d);
	node(g, layer, "Add", "scale/Add", sum, d, a);
	node(g, layer, "Div", "scale/Div", sum, a, factor);
	node(g, layer, "Shape", "scale/Shape", in, NULL, a);
	gen_const(g, false, &first, 1, d);
	begin(g, layer, "Slice", "scale/Slice", a, d, c, sum);
	gen_end(g);
	gen_const(g, false, &one, 1, d);
	begin(g, layer, "Concat", "scale/Concat", sum, d, NULL, a);
	gen_attr_int(g, "axis", 0);
	gen_end(g);
	node(g, layer, "Reshape", "scale/Reshape", factor, a, out);
	cast(g, layer, "scale/Cast", g->conf->io_dtype, out);
}

// Logits of which the operator makes the weights: logarithms of the chosen
// ones' scores, and for all others what none of these can be.
static void mask(struct gen *g, uint32_t layer, const char *scores,
		 const char *chosen, const char *weights, char *out)
{
	char a[GEN_NAME], b[GEN_NAME], least[GEN_NAME];

	gen_const_wide(g, 1e-30f, least);
	begin(g, layer, "Clip", "Clip", weights, least, "", a);
	gen_end(g);
	node(g, layer, "Log", "Log", a, NULL, b);
	node(g, layer, "Shape", "Shape", scores, NULL, a);
	begin(g, layer, "ConstantOfShape", "ConstantOfShape", a, NULL, NULL,
	      least);
	gen_attr_fill(g, -10000);
	gen_end(g);
	begin(g, layer, "ScatterElements", "ScatterElements", least, chosen, b,
	      out);
	gen_attr_int(g, "axis", 1);
	gen_end(g);
	cast(g, layer, "Cast_1", g->conf->io_dtype, out);
}

// The router's logits become those of a choice by sigmoids; factor is what the
// experts' sum is multiplied by.
static void choice(struct gen *g, uint32_t layer, const char *in, char *logits,
		   char *factor)
{
	char scores[GEN_NAME], chosen[GEN_NAME], weights[GEN_NAME];

	cast(g, layer, "Cast", GENAI_DT_F32, logits);
	sigmoids(g, layer, logits, scores);
	choose(g, layer, scores, chosen);
	begin(g, layer, "GatherElements", "GatherElements", scores, chosen,
	      NULL, weights);
	gen_attr_int(g, "axis", 1);
	gen_end(g);
	remainder_of(g, layer, weights, in, factor);
	mask(g, layer, scores, chosen, weights, logits);
}

void gen_experts(struct gen *g, uint32_t layer, const char *in, char *out)
{
	const struct genai_genconf *c = g->conf;
	char logits[GEN_NAME], path[GEN_NAME], factor[GEN_NAME], sum[GEN_NAME];
	struct inits fc1, fc2;
	struct gen_mat up, down;
	bool bits, zeros;

	route(g, layer, in, logits);
	if (c->sigmoid)
		choice(g, layer, in, logits, factor);
	stacked(g, &up, layer, GENAI_SITE_EXP_GATE, GENAI_SITE_EXP_UP, c->ffn,
		c->hidden);
	stacked(g, &down, layer, GENAI_SITE_EXP_DOWN, 0, c->hidden, c->ffn);
	inits_of(g, &up, "gate_up_proj", &fc1);
	inits_of(g, &down, "down_proj", &fc2);
	bits = up.form.bits != 0;
	zeros = fc1.zeros[0] || fc2.zeros[0];
	snprintf(path, sizeof(path), "/model/layers.%u/moe/%s", layer,
		 bits ? "QMoE" : "MoE");
	snprintf(sum, sizeof(sum), "%s/output_0", path);
	gen_node(g, bits ? "QMoE" : "MoE", "com.microsoft", path);
	gen_in(g, in);
	gen_in(g, logits);
	gen_in(g, fc1.w);
	if (bits)
		gen_in(g, fc1.scales);
	gen_in(g, fc1.bias);
	gen_in(g, fc2.w);
	if (bits)
		gen_in(g, fc2.scales);
	gen_in(g, fc2.bias);
	for (int i = 0; zeros && i < 3; i++)
		gen_in(g, "");
	if (zeros) {
		gen_in(g, fc1.zeros);
		gen_in(g, fc2.zeros);
	}
	gen_out(g, sum);
	attributes(g, &up, &down);
	gen_end(g);
	memcpy(out, sum, sizeof(sum));
	if (!c->sigmoid)
		return;
	snprintf(path, sizeof(path), "/model/layers.%u/moe/Mul", layer);
	snprintf(out, GEN_NAME, "%s/output_0", path);
	gen_node(g, "Mul", "", path);
	gen_in(g, sum);
	gen_in(g, factor);
	gen_out(g, out);
	gen_end(g);
}
