// graph.c - the operator chain of a dense decoder: Llama, and what its kin do
// otherwise, short convolutions among it.
#include "core/modelgen/gen.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MASK "/model/attn_mask_reformat/attn_mask_subgraph/"
#define SEQLENS MASK "Sub/Cast/output_0"
#define TOTAL MASK "Gather/Cast/output_0"

// Names of what flows between the parts of a layer.
struct flow {
	char skip[GEN_NAME];   // residual stream before the last addition
	char branch[GEN_NAME]; // what is to be added to it
	char normed[GEN_NAME];
};

static void unary(struct gen *g, const char *op, const char *name,
		  const char *in, const char *in2, const char *out)
{
	gen_node(g, op, "", name);
	gen_in(g, in);
	if (in2)
		gen_in(g, in2);
	gen_out(g, out);
}

static void cast_i32(struct gen *g, const char *name, const char *in,
		     const char *out)
{
	unary(g, "Cast", name, in, NULL, out);
	gen_attr_int(g, "to", GENAI_DT_I32);
	gen_end(g);
}

static void mask_nodes(struct gen *g)
{
	int64_t one = 1;
	char c[GEN_NAME];

	gen_const(g, false, &one, 1, c);
	unary(g, "ReduceSum", MASK "ReduceSum", "attention_mask", c,
	      MASK "ReduceSum/output_0");
	gen_attr_int(g, "keepdims", 0);
	gen_end(g);
	unary(g, "Sub", MASK "Sub", MASK "ReduceSum/output_0", c,
	      MASK "Sub/output_0");
	gen_end(g);
	cast_i32(g, MASK "Sub/Cast", MASK "Sub/output_0", SEQLENS);
	unary(g, "Shape", MASK "Shape", "attention_mask", NULL,
	      MASK "Shape/output_0");
	gen_end(g);
	gen_const(g, true, &one, 1, c);
	unary(g, "Gather", MASK "Gather", MASK "Shape/output_0", c,
	      MASK "Gather/output_0");
	gen_attr_int(g, "axis", 0);
	gen_end(g);
	cast_i32(g, MASK "Gather/Cast", MASK "Gather/output_0", TOTAL);
}

static void rope_inits(struct gen *g)
{
	const struct genai_genconf *c = g->conf;
	struct gen_job *job = gen_job_add(g, GEN_ROPE);
	uint64_t dims[2] = {c->context, c->rotary / 2};

	job->at = gen_init(g, "cos_cache", c->io_dtype, 2, dims);
	job->rope_sin = gen_init(g, "sin_cache", c->io_dtype, 2, dims);
	if (!(c->theta_local > 0))
		return;
	job = gen_job_add(g, GEN_ROPE);
	job->rope_local = true;
	job->at = gen_init(g, "cos_cache_local", c->io_dtype, 2, dims);
	job->rope_sin = gen_init(g, "sin_cache_local", c->io_dtype, 2, dims);
}

static uint32_t layer_flags(const struct gen *g, uint32_t layer)
{
	return g->conf->layer_flags ? g->conf->layer_flags[layer] : 0;
}

// inout times a constant; path is that of the new node.
static void scale(struct gen *g, const char *path, float factor, char *inout)
{
	char c[GEN_NAME], out[GEN_NAME];

	if (factor == 0 || factor == 1)
		return;
	gen_const_float(g, factor, c);
	snprintf(out, sizeof(out), "%s/output_0", path);
	unary(g, "Mul", path, inout, c, out);
	gen_end(g);
	memcpy(inout, out, sizeof(out));
}

static void vector(struct gen *g, const char *name, uint32_t site,
		   uint32_t layer, uint64_t n)
{
	struct gen_job *job = gen_job_add(g, GEN_VECTOR);

	job->mat.site[0] = site;
	job->mat.n_sites = 1;
	job->mat.layer = layer;
	job->mat.n_rows = job->mat.rows[0] = n;
	job->at = gen_init(g, name, g->conf->io_dtype, 1, &n);
}

// RMS norm of the stream after adding the branch (if there is one).
static void norm(struct gen *g, struct flow *f, uint32_t layer,
		 const char *what, uint32_t site)
{
	char name[GEN_NAME], weight[GEN_NAME], sum[GEN_NAME], normed[GEN_NAME];
	bool first = !f->branch[0], last = site == GENAI_SITE_NORM_FINAL;

	snprintf(weight, sizeof(weight), "model.layers.%u.%s.weight", layer,
		 what);
	snprintf(normed, sizeof(normed), "/model/layers.%u/%s/output_0", layer,
		 what);
	snprintf(sum, sizeof(sum), "/model/layers.%u/%s/output_3", layer, what);
	snprintf(name, sizeof(name), "/model/layers.%u/%s/%s", layer, what,
		 first ? "LayerNorm" : "SkipLayerNorm");
	vector(g, weight, site, last ? 0 : layer, g->conf->hidden);
	gen_node(g,
		 first ? "SimplifiedLayerNormalization"
		       : "SkipSimplifiedLayerNormalization",
		 first ? "" : "com.microsoft", name);
	gen_in(g, f->skip);
	if (!first)
		gen_in(g, f->branch);
	gen_in(g, weight);
	gen_out(g, normed);
	if (!first && !last) {
		gen_out(g, "");
		gen_out(g, "");
		gen_out(g, sum);
		memcpy(f->skip, sum, sizeof(sum));
	}
	gen_attr_float(g, "epsilon", g->conf->epsilon);
	if (first) {
		gen_attr_int(g, "axis", -1);
		gen_attr_int(g, "stash_type", 1);
	}
	gen_end(g);
	memcpy(f->normed, normed, sizeof(normed));
}

// RMS norm of what a branch gave, or of q or k over all heads.
static void branch_norm(struct gen *g, uint32_t layer, const char *what,
			uint32_t site, uint64_t n, char *inout)
{
	char name[GEN_NAME], weight[GEN_NAME], out[GEN_NAME];

	snprintf(weight, sizeof(weight), "model.layers.%u.%s.weight", layer,
		 what);
	snprintf(name, sizeof(name), "/model/layers.%u/%s/LayerNorm", layer,
		 what);
	snprintf(out, sizeof(out), "/model/layers.%u/%s/output_0", layer, what);
	vector(g, weight, site, layer, n);
	unary(g, "SimplifiedLayerNormalization", name, inout, weight, out);
	gen_attr_float(g, "epsilon", g->conf->epsilon);
	gen_attr_int(g, "axis", -1);
	gen_attr_int(g, "stash_type", 1);
	gen_end(g);
	memcpy(inout, out, sizeof(out));
}

// What a branch gave, made ready to be added to the stream.
static void end_branch(struct gen *g, struct flow *f, uint32_t layer,
		       const char *what, uint32_t site)
{
	char path[GEN_NAME];

	if (g->conf->norm_out)
		branch_norm(g, layer, what, site, g->conf->hidden, f->branch);
	snprintf(path, sizeof(path), "/model/layers.%u/%s/Scale", layer, what);
	scale(g, path, g->conf->branch_scale, f->branch);
}

// The stream itself, with what is to be added to it.
static void stream(struct gen *g, struct flow *f, uint32_t layer,
		   const char *what)
{
	char name[GEN_NAME], sum[GEN_NAME];

	if (f->branch[0]) {
		snprintf(name, sizeof(name), "/model/layers.%u/%s/Add", layer,
			 what);
		snprintf(sum, sizeof(sum), "%s/output_0", name);
		unary(g, "Add", name, f->skip, f->branch, sum);
		gen_end(g);
		memcpy(f->skip, sum, sizeof(sum));
	}
	memcpy(f->normed, f->skip, sizeof(f->normed));
}

// One matrix of a layer, or q, k and v stacked.  Name of the product in out.
void gen_project(struct gen *g, struct gen_mat *m, const char *module,
		 const char *in, char *out)
{
	char weight[GEN_NAME], path[GEN_NAME];

	snprintf(weight, sizeof(weight), "model.layers.%u.%s", m->layer,
		 module);
	snprintf(path, sizeof(path), "/model/layers.%u/%s", m->layer, module);
	for (char *p = path; *p; p++)
		if (*p == '.' && (p[1] < '0' || p[1] > '9'))
			*p = '/';
	snprintf(out, GEN_NAME, "%s/MatMul/output_0", path);
	m->weight = weight;
	m->path = path;
	gen_matmul(g, m, in, out);
}

void gen_one(struct gen *g, struct gen_mat *m, uint32_t site, uint32_t layer,
	     uint64_t rows, uint64_t cols)
{
	memset(m, 0, sizeof(*m));
	m->site[0] = site;
	m->n_sites = 1;
	m->layer = layer;
	m->rows[0] = m->n_rows = rows;
	m->cols = cols;
	g->source->form(g->source->self, site, layer, &m->form);
}

static void add_bias(struct gen *g, const struct gen_mat *m, const char *module,
		     char *inout)
{
	char name[GEN_NAME], bias[GEN_NAME], out[GEN_NAME];
	struct gen_job *job = gen_job_add(g, GEN_VECTOR);

	job->mat = *m;
	for (uint32_t i = 0; i < m->n_sites; i++)
		job->mat.site[i] =
			m->site[i] - GENAI_SITE_Q + GENAI_SITE_BIAS_Q;
	snprintf(bias, sizeof(bias), "model.layers.%u.attn.%s.Add.bias",
		 m->layer, module);
	snprintf(name, sizeof(name), "/model/layers.%u/attn/%s/Add", m->layer,
		 module);
	snprintf(out, sizeof(out), "/model/layers.%u/attn/%s/Add/output_0",
		 m->layer, module);
	job->at = gen_init(g, bias, g->conf->io_dtype, 1, &m->n_rows);
	unary(g, "Add", name, inout, bias, out);
	gen_end(g);
	memcpy(inout, out, sizeof(out));
}

void gen_add_bias(struct gen *g, uint32_t layer, uint32_t site, uint64_t n,
		  const char *module, char *inout)
{
	char name[GEN_NAME], bias[GEN_NAME], out[GEN_NAME];

	snprintf(bias, sizeof(bias), "model.layers.%u.%s.Add.bias", layer,
		 module);
	snprintf(name, sizeof(name), "/model/layers.%u/%s/Add", layer, module);
	for (char *p = name; *p; p++)
		if (*p == '.' && (p[1] < '0' || p[1] > '9'))
			*p = '/';
	snprintf(out, sizeof(out), "%s/output_0", name);
	vector(g, bias, site, layer, n);
	unary(g, "Add", name, inout, bias, out);
	gen_end(g);
	memcpy(inout, out, sizeof(out));
}

static bool same_form(const struct genai_form *a, const struct genai_form *b)
{
	return a->bits == b->bits && a->block == b->block &&
	       a->offset == b->offset && a->dtype == b->dtype;
}

// q, k and v; true if they came out as one, in qkv[0].
static bool project_qkv(struct gen *g, uint32_t layer, const char *in,
			char qkv[3][GEN_NAME])
{
	static const char *const module[] = {"q_proj", "k_proj", "v_proj"};
	const struct genai_genconf *c = g->conf;
	uint64_t kv = (uint64_t)c->kv_heads * c->head_size;
	uint64_t rows[3] = {(uint64_t)c->heads * c->head_size * (c->gated + 1u),
			    kv, kv};
	struct gen_mat m[3], all;
	char name[32];

	for (uint32_t i = 0; i < 3; i++)
		gen_one(g, &m[i], GENAI_SITE_Q + i, layer, rows[i], c->hidden);
	if (!g->options->split_qkv && same_form(&m[0].form, &m[1].form) &&
	    same_form(&m[0].form, &m[2].form)) {
		all = m[0];
		all.n_sites = 3;
		for (uint32_t i = 1; i < 3; i++) {
			all.site[i] = m[i].site[0];
			all.rows[i] = rows[i];
			all.n_rows += rows[i];
		}
		gen_project(g, &all, "attn.qkv_proj", in, qkv[0]);
		if (c->qkv_bias)
			add_bias(g, &all, "qkv_proj", qkv[0]);
		return true;
	}
	for (uint32_t i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "attn.%s", module[i]);
		gen_project(g, &m[i], name, in, qkv[i]);
		if (c->qkv_bias)
			add_bias(g, &m[i], module[i], qkv[i]);
	}
	return false;
}

static void split_qkv(struct gen *g, uint32_t layer, char qkv[3][GEN_NAME])
{
	const struct genai_genconf *c = g->conf;
	int64_t kv = (int64_t)c->kv_heads * c->head_size;
	int64_t sizes[3] = {(int64_t)c->heads * c->head_size * (c->gated + 1),
			    kv, kv};
	char name[GEN_NAME], cname[GEN_NAME], in[GEN_NAME];

	gen_const(g, false, sizes, 3, cname);
	snprintf(name, sizeof(name), "/model/layers.%u/attn/qkv_proj/Split",
		 layer);
	memcpy(in, qkv[0], sizeof(in));
	gen_node(g, "Split", "", name);
	gen_in(g, in);
	gen_in(g, cname);
	for (int i = 0; i < 3; i++) {
		snprintf(qkv[i], GEN_NAME,
			 "/model/layers.%u/attn/qkv_proj/Split/output_%d",
			 layer, i);
		gen_out(g, qkv[i]);
	}
	gen_attr_int(g, "axis", -1);
	gen_end(g);
}

static void head_reshape(struct gen *g, const char *path, int step,
			 int64_t last, const char *in, char *out)
{
	int64_t shape[3] = {0, -1, last};
	char name[GEN_NAME], c[GEN_NAME];

	gen_const(g, false, shape, 3, c);
	snprintf(name, sizeof(name), "%s/Reshape_%d", path, step);
	snprintf(out, GEN_NAME, "%s/Reshape_%d/output_0", path, step);
	unary(g, "Reshape", name, in, c, out);
	gen_end(g);
}

// RMS norm of each head of q (which 0) or k (1), as nodes.
static void head_norm(struct gen *g, uint32_t layer, int which,
		      const char *weight, char *inout)
{
	const struct genai_genconf *c = g->conf;
	uint32_t heads = which ? c->kv_heads : c->heads;
	char path[64], a[GEN_NAME], b[GEN_NAME], name[GEN_NAME];

	snprintf(path, sizeof(path), "/model/layers.%u/attn/%c_norm", layer,
		 which ? 'k' : 'q');
	head_reshape(g, path, 1, c->head_size, inout, a);
	snprintf(name, sizeof(name), "%s/SimplifiedLayerNormalization", path);
	snprintf(b, sizeof(b), "%s/SimplifiedLayerNormalization/output_0",
		 path);
	unary(g, "SimplifiedLayerNormalization", name, a, weight, b);
	gen_attr_float(g, "epsilon", c->epsilon);
	gen_attr_int(g, "axis", -1);
	gen_attr_int(g, "stash_type", 1);
	gen_end(g);
	head_reshape(g, path, 2, (int64_t)heads * c->head_size, b, inout);
}

// Each head of q has its gate behind it.
static void split_gate(struct gen *g, uint32_t layer, char *q, char *gate)
{
	const struct genai_genconf *c = g->conf;
	const int64_t heads[4] = {0, 0, c->heads, 2 * (int64_t)c->head_size};
	const int64_t halves[2] = {c->head_size, c->head_size};
	const int64_t flat[3] = {0, 0, (int64_t)c->heads * c->head_size};
	char name[GEN_NAME], k[GEN_NAME], a[GEN_NAME], b[2][GEN_NAME];

	gen_const(g, false, heads, 4, k);
	snprintf(name, sizeof(name), "/model/layers.%u/attn/q_gate/Reshape",
		 layer);
	snprintf(a, sizeof(a), "/model/layers.%u/attn/q_gate/Reshape/output_0",
		 layer);
	unary(g, "Reshape", name, q, k, a);
	gen_end(g);
	gen_const(g, false, halves, 2, k);
	snprintf(name, sizeof(name), "/model/layers.%u/attn/q_gate/Split",
		 layer);
	for (int i = 0; i < 2; i++)
		snprintf(b[i], GEN_NAME,
			 "/model/layers.%u/attn/q_gate/Split/output_%d", layer,
			 i);
	unary(g, "Split", name, a, k, b[0]);
	gen_out(g, b[1]);
	gen_attr_int(g, "axis", -1);
	gen_end(g);
	gen_const(g, false, flat, 3, k);
	for (int i = 0; i < 2; i++) {
		char *to = i ? gate : q;

		snprintf(name, sizeof(name), "/model/layers.%u/attn/%s/Reshape",
			 layer, i ? "gate" : "q_proj");
		snprintf(to, GEN_NAME,
			 "/model/layers.%u/attn/%s/Reshape/output_0", layer,
			 i ? "gate" : "q_proj");
		unary(g, "Reshape", name, b[i], k, to);
		gen_end(g);
	}
}

static void close_gate(struct gen *g, uint32_t layer, const char *gate,
		       char *inout)
{
	char name[GEN_NAME], a[GEN_NAME], b[GEN_NAME];

	snprintf(name, sizeof(name), "/model/layers.%u/attn/gate/Sigmoid",
		 layer);
	snprintf(a, sizeof(a), "/model/layers.%u/attn/gate/Sigmoid/output_0",
		 layer);
	unary(g, "Sigmoid", name, gate, NULL, a);
	gen_end(g);
	snprintf(name, sizeof(name), "/model/layers.%u/attn/gate/Mul", layer);
	snprintf(b, sizeof(b), "/model/layers.%u/attn/gate/Mul/output_0",
		 layer);
	unary(g, "Mul", name, inout, a, b);
	gen_end(g);
	memcpy(inout, b, sizeof(b));
}

// q (which 0) or k (1), by three positions.
static void mrotate(struct gen *g, uint32_t layer, int which, char *inout)
{
	const struct genai_genconf *c = g->conf;
	const int64_t pairs[3] = {c->mrope[0], c->mrope[1], c->mrope[2]};
	char name[GEN_NAME], out[GEN_NAME];

	snprintf(name, sizeof(name),
		 "/model/layers.%u/attn/%c_rotary/MRotaryEmbedding", layer,
		 which ? 'k' : 'q');
	snprintf(out, sizeof(out),
		 "/model/layers.%u/attn/%c_rotary/MRotaryEmbedding/output_0",
		 layer, which ? 'k' : 'q');
	gen_node(g, "MRotaryEmbedding", "com.microsoft", name);
	gen_in(g, inout);
	gen_in(g, "position_ids");
	gen_in(g, "cos_cache");
	gen_in(g, "sin_cache");
	gen_out(g, out);
	gen_attr_int(g, "interleaved", 0);
	gen_attr_int(g, "rotary_embedding_dim", c->rotary);
	gen_attr_int(g, "num_heads", which ? c->kv_heads : c->heads);
	gen_attr_ints(g, "mrope_section", pairs, 3);
	gen_attr_int(g, "mrope_layout", 1);
	gen_end(g);
	memcpy(inout, out, sizeof(out));
}

static void gqa(struct gen *g, uint32_t layer, const char *q, const char *k,
		const char *v, char norms[2][GEN_NAME], char *out)
{
	const struct genai_genconf *c = g->conf;
	uint32_t flags = layer_flags(g, layer);
	bool local = flags & GENAI_LAYER_LOCAL, rope;
	const char *which = local && c->theta_local > 0 ? "_local" : "";
	float factor = c->attention_scale > 0 ? c->attention_scale
					      : (float)(1 / sqrt(c->head_size));
	char name[GEN_NAME], sinks[GEN_NAME];

	rope = !(flags & GENAI_LAYER_NO_ROPE) && !c->mrope[0];
	snprintf(sinks, sizeof(sinks), "model.layers.%u.attn.sinks", layer);
	if (c->sinks)
		vector(g, sinks, GENAI_SITE_SINKS, layer, c->heads);
	snprintf(name, sizeof(name),
		 "/model/layers.%u/attn/GroupQueryAttention", layer);
	snprintf(out, GEN_NAME,
		 "/model/layers.%u/attn/GroupQueryAttention/output_0", layer);
	gen_node(g, "GroupQueryAttention", "com.microsoft", name);
	gen_in(g, q);
	gen_in(g, k);
	gen_in(g, v);
	snprintf(name, sizeof(name), "past_key_values.%u.key", layer);
	gen_in(g, name);
	snprintf(name, sizeof(name), "past_key_values.%u.value", layer);
	gen_in(g, name);
	gen_in(g, SEQLENS);
	gen_in(g, TOTAL);
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%s_cache%s", i ? "sin" : "cos",
			 which);
		gen_in(g, rope ? name : "");
	}
	for (int i = 0; i < (norms || c->sinks ? 2 : 3); i++)
		gen_in(g, "");
	if (norms || c->sinks)
		gen_in(g, c->sinks ? sinks : "");
	for (int i = 0; norms && i < 2; i++)
		gen_in(g, "");
	for (int i = 0; norms && i < 2; i++)
		gen_in(g, norms[i]);
	gen_out(g, out);
	snprintf(name, sizeof(name), "present.%u.key", layer);
	gen_out(g, name);
	snprintf(name, sizeof(name), "present.%u.value", layer);
	gen_out(g, name);
	gen_attr_int(g, "num_heads", c->heads);
	gen_attr_int(g, "kv_num_heads", c->kv_heads);
	gen_attr_float(g, "scale", factor);
	gen_attr_int(g, "local_window_size",
		     local && c->window ? (int64_t)c->window : -1);
	gen_attr_float(g, "softcap", c->attention_cap);
	gen_attr_int(g, "do_rotary", rope);
	gen_attr_int(g, "rotary_interleaved", c->rope_interleaved);
	if (norms)
		gen_attr_float(g, "qk_norm_epsilon", c->epsilon);
	gen_end(g);
}

static void attention(struct gen *g, struct flow *f, uint32_t layer)
{
	const struct genai_genconf *c = g->conf;
	char qkv[3][GEN_NAME] = {"", "", ""}, norms[2][GEN_NAME];
	char out[GEN_NAME], gate[GEN_NAME];
	bool packed = project_qkv(g, layer, f->normed, qkv);
	bool fused = c->qk_norm && c->cuda && !c->mrope[0];
	struct gen_mat m;

	for (uint32_t i = 0; c->qk_norm && i < 2; i++) {
		snprintf(norms[i], GEN_NAME,
			 "model.layers.%u.attn.%c_norm.layernorm.weight", layer,
			 i ? 'k' : 'q');
		vector(g, norms[i], GENAI_SITE_NORM_Q + i, layer, c->head_size);
	}
	if ((c->qk_norm || c->qk_norm_wide || c->gated) && packed)
		split_qkv(g, layer, qkv);
	if (c->gated)
		split_gate(g, layer, qkv[0], gate);
	for (uint32_t i = 0; c->qk_norm_wide && i < 2; i++)
		branch_norm(g, layer, i ? "attn.k_norm" : "attn.q_norm",
			    GENAI_SITE_NORM_Q + i,
			    (uint64_t)(i ? c->kv_heads : c->heads) *
				    c->head_size,
			    qkv[i]);
	for (int i = 0; c->qk_norm && !fused && i < 2; i++)
		head_norm(g, layer, i, norms[i], qkv[i]);
	for (int i = 0; c->mrope[0] && i < 2; i++)
		mrotate(g, layer, i, qkv[i]);
	gqa(g, layer, qkv[0], qkv[1], qkv[2], fused ? norms : NULL, out);
	if (c->gated)
		close_gate(g, layer, gate, out);
	gen_one(g, &m, GENAI_SITE_O, layer, c->hidden,
		(uint64_t)c->heads * c->head_size);
	gen_project(g, &m, "attn.o_proj", out, f->branch);
	if (c->o_bias)
		gen_add_bias(g, layer, GENAI_SITE_BIAS_O, c->hidden,
			     "attn.o_proj", f->branch);
	end_branch(g, f, layer, "attn_out", GENAI_SITE_NORM_ATTN);
}

static void turn(struct gen *g, const char *name, const char *in, char *out)
{
	static const int64_t perm[] = {0, 2, 1};

	snprintf(out, GEN_NAME, "%s/output_0", name);
	unary(g, "Transpose", name, in, NULL, out);
	gen_attr_ints(g, "perm", perm, 3);
	gen_end(g);
}

// Thirds b, c and x of a row, channels first.
static void split_conv(struct gen *g, uint32_t layer, const char *in,
		       char parts[3][GEN_NAME])
{
	int64_t sizes[3] = {g->conf->hidden, g->conf->hidden, g->conf->hidden};
	char name[GEN_NAME], c[GEN_NAME];

	gen_const(g, false, sizes, 3, c);
	snprintf(name, sizeof(name), "/model/layers.%u/conv/Split", layer);
	gen_node(g, "Split", "", name);
	gen_in(g, in);
	gen_in(g, c);
	for (int i = 0; i < 3; i++) {
		snprintf(parts[i], GEN_NAME,
			 "/model/layers.%u/conv/Split/output_%d", layer, i);
		gen_out(g, parts[i]);
	}
	gen_attr_int(g, "axis", 1);
	gen_end(g);
}

static void conv_node(struct gen *g, uint32_t layer, const char *in, char *out)
{
	const struct genai_genconf *c = g->conf;
	uint64_t dims[3] = {c->hidden, 1, c->conv_taps};
	struct gen_job *job = gen_job_add(g, GEN_VECTOR);
	char name[GEN_NAME], weight[GEN_NAME];

	snprintf(weight, sizeof(weight), "model.layers.%u.conv.conv.weight",
		 layer);
	job->mat.site[0] = GENAI_SITE_CONV_TAPS;
	job->mat.n_sites = 1;
	job->mat.layer = layer;
	job->mat.n_rows = job->mat.rows[0] = dims[0] * dims[2];
	job->at = gen_init(g, weight, c->io_dtype, 3, dims);
	snprintf(name, sizeof(name),
		 "/model/layers.%u/conv/CausalConvWithState", layer);
	snprintf(out, GEN_NAME,
		 "/model/layers.%u/conv/CausalConvWithState/output_0", layer);
	gen_node(g, "CausalConvWithState", "com.microsoft", name);
	gen_in(g, in);
	gen_in(g, weight);
	gen_in(g, "");
	snprintf(name, sizeof(name), "past.%u.conv", layer);
	gen_in(g, name);
	gen_out(g, out);
	snprintf(name, sizeof(name), "present.%u.conv", layer);
	gen_out(g, name);
	gen_attr_int(g, "ndim", 1);
	gen_attr_string(g, "activation", "none");
	gen_end(g);
}

// c times the convolution of b times x, between two products.
static void short_conv(struct gen *g, struct flow *f, uint32_t layer)
{
	const struct genai_genconf *c = g->conf;
	char name[GEN_NAME], a[GEN_NAME], b[GEN_NAME], parts[3][GEN_NAME];
	struct gen_mat m;

	gen_one(g, &m, GENAI_SITE_CONV_IN, layer, 3 * (uint64_t)c->hidden,
		c->hidden);
	gen_project(g, &m, "conv.in_proj", f->normed, a);
	snprintf(name, sizeof(name), "/model/layers.%u/conv/Transpose_1",
		 layer);
	turn(g, name, a, b);
	split_conv(g, layer, b, parts);
	snprintf(name, sizeof(name), "/model/layers.%u/conv/Mul_1", layer);
	snprintf(a, sizeof(a), "/model/layers.%u/conv/Mul_1/output_0", layer);
	unary(g, "Mul", name, parts[0], parts[2], a);
	gen_end(g);
	conv_node(g, layer, a, b);
	snprintf(name, sizeof(name), "/model/layers.%u/conv/Mul_2", layer);
	snprintf(a, sizeof(a), "/model/layers.%u/conv/Mul_2/output_0", layer);
	unary(g, "Mul", name, parts[1], b, a);
	gen_end(g);
	snprintf(name, sizeof(name), "/model/layers.%u/conv/Transpose_2",
		 layer);
	turn(g, name, a, b);
	gen_one(g, &m, GENAI_SITE_CONV_OUT, layer, c->hidden, c->hidden);
	gen_project(g, &m, "conv.out_proj", b, f->branch);
	end_branch(g, f, layer, "conv_out", GENAI_SITE_NORM_ATTN);
}

// silu(gate), as its parts, or gelu(gate).
static void activation(struct gen *g, uint32_t layer, const char *gate,
		       char *out)
{
	char name[GEN_NAME], a[GEN_NAME];

	if (g->conf->gelu) {
		snprintf(name, sizeof(name), "/model/layers.%u/mlp/act_fn/Gelu",
			 layer);
		snprintf(out, GEN_NAME, "%s/output_0", name);
		unary(g, "Gelu", name, gate, NULL, out);
		gen_attr_string(g, "approximate", "tanh");
		gen_end(g);
		return;
	}
	snprintf(name, sizeof(name), "/model/layers.%u/mlp/act_fn/Sigmoid",
		 layer);
	snprintf(a, sizeof(a), "/model/layers.%u/mlp/act_fn/Sigmoid/output_0",
		 layer);
	unary(g, "Sigmoid", name, gate, NULL, a);
	gen_end(g);
	snprintf(name, sizeof(name), "/model/layers.%u/mlp/act_fn/Mul", layer);
	snprintf(out, GEN_NAME, "/model/layers.%u/mlp/act_fn/Mul/output_0",
		 layer);
	unary(g, "Mul", name, gate, a, out);
	gen_end(g);
}

static void mlp(struct gen *g, struct flow *f, uint32_t layer)
{
	const struct genai_genconf *c = g->conf;
	uint64_t ffn = c->dense_layers ? c->dense_ffn : c->ffn;
	char gate[GEN_NAME], up[GEN_NAME], name[GEN_NAME], a[GEN_NAME];
	char b[GEN_NAME];
	struct gen_mat m;

	if (gen_has_experts(c, layer)) {
		gen_experts(g, layer, f->normed, f->branch);
		end_branch(g, f, layer, "mlp_out", GENAI_SITE_NORM_MLP);
		return;
	}
	gen_one(g, &m, GENAI_SITE_GATE, layer, ffn, c->hidden);
	gen_project(g, &m, "mlp.gate_proj", f->normed, gate);
	gen_one(g, &m, GENAI_SITE_UP, layer, ffn, c->hidden);
	gen_project(g, &m, "mlp.up_proj", f->normed, up);
	activation(g, layer, gate, b);
	snprintf(name, sizeof(name), "/model/layers.%u/mlp/Mul", layer);
	snprintf(a, sizeof(a), "/model/layers.%u/mlp/Mul/output_0", layer);
	unary(g, "Mul", name, b, up, a);
	gen_end(g);
	gen_one(g, &m, GENAI_SITE_DOWN, layer, c->hidden, ffn);
	gen_project(g, &m, "mlp.down_proj", a, f->branch);
	end_branch(g, f, layer, "mlp_out", GENAI_SITE_NORM_MLP);
}

static void head(struct gen *g, const char *in)
{
	const struct genai_genconf *c = g->conf;
	bool scaled = c->logit_scale != 0 && c->logit_scale != 1;
	char cap[GEN_NAME], last[GEN_NAME] = "/lm_head/MatMul/output_0";
	struct gen_mat m;

	gen_one(g, &m, GENAI_SITE_HEAD, 0, c->vocab, c->hidden);
	m.weight = "lm_head";
	m.path = "/lm_head";
	if (!scaled && !(c->logit_cap > 0)) {
		gen_matmul(g, &m, in, "logits");
		return;
	}
	gen_matmul(g, &m, in, last);
	gen_const_float(g, scaled ? c->logit_scale : 1 / c->logit_cap, cap);
	unary(g, "Mul", "/lm_head/Scale", last, cap,
	      c->logit_cap > 0 ? "/lm_head/Scale/output_0" : "logits");
	gen_end(g);
	if (!(c->logit_cap > 0))
		return;
	unary(g, "Tanh", "/lm_head/Tanh", "/lm_head/Scale/output_0", NULL,
	      "/lm_head/Tanh/output_0");
	gen_end(g);
	gen_const_float(g, c->logit_cap, cap);
	unary(g, "Mul", "/lm_head/Cap", "/lm_head/Tanh/output_0", cap,
	      "logits");
	gen_end(g);
}

void gen_graph(struct gen *g)
{
	const struct genai_genconf *c = g->conf;
	struct flow f;
	struct gen_mat m;

	memset(&f, 0, sizeof(f));
	rope_inits(g);
	mask_nodes(g);
	gen_one(g, &m, c->tied ? GENAI_SITE_HEAD : GENAI_SITE_EMBED, 0,
		c->vocab, c->hidden);
	gen_embed(g, &m, f.skip);
	scale(g, "/model/embed_tokens/Mul", c->embed_scale, f.skip);
	for (uint32_t i = 0; i < c->layers && !g->failed; i++) {
		if (c->no_norm_in)
			stream(g, &f, i, "attn_in");
		else
			norm(g, &f, i, "input_layernorm", GENAI_SITE_NORM_IN);
		if (gen_layer_is(c, i, GENAI_LAYER_CONV))
			short_conv(g, &f, i);
		else if (gen_layer_is(c, i, GENAI_LAYER_DELTA))
			gen_delta(g, i, f.normed, f.branch);
		else
			attention(g, &f, i);
		if (c->no_norm_in)
			stream(g, &f, i, "mlp_in");
		else
			norm(g, &f, i, "post_attention_layernorm",
			     GENAI_SITE_NORM_POST);
		mlp(g, &f, i);
	}
	norm(g, &f, c->layers, "final_norm_layernorm", GENAI_SITE_NORM_FINAL);
	head(g, f.normed);
}
