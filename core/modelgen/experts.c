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

void gen_experts(struct gen *g, uint32_t layer, const char *in, char *out)
{
	const struct genai_genconf *c = g->conf;
	char logits[GEN_NAME], node[GEN_NAME];
	struct inits fc1, fc2;
	struct gen_mat up, down;
	bool bits, zeros;

	route(g, layer, in, logits);
	stacked(g, &up, layer, GENAI_SITE_EXP_GATE, GENAI_SITE_EXP_UP, c->ffn,
		c->hidden);
	stacked(g, &down, layer, GENAI_SITE_EXP_DOWN, 0, c->hidden, c->ffn);
	inits_of(g, &up, "gate_up_proj", &fc1);
	inits_of(g, &down, "down_proj", &fc2);
	bits = up.form.bits != 0;
	zeros = fc1.zeros[0] || fc2.zeros[0];
	snprintf(node, sizeof(node), "/model/layers.%u/moe/%s", layer,
		 bits ? "QMoE" : "MoE");
	snprintf(out, GEN_NAME, "%s/output_0", node);
	gen_node(g, bits ? "QMoE" : "MoE", "com.microsoft", node);
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
	gen_out(g, out);
	attributes(g, &up, &down);
	gen_end(g);
}
