// delta.c - a gated delta network in place of attention: a short convolution
// over q, k and v, and a matrix per head that every token decays and corrects.
#include "core/modelgen/gen.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct delta {
	struct gen *g;
	uint32_t layer;
	uint64_t keys, values; // widths
};

// "/model/layers.N/linear_attn/WHAT", and its output.
static void name_of(const struct delta *d, const char *what, char *name,
		    char *out)
{
	snprintf(name, GEN_NAME, "/model/layers.%u/linear_attn/%s", d->layer,
		 what);
	snprintf(out, GEN_NAME, "/model/layers.%u/linear_attn/%s/output_0",
		 d->layer, what);
}

static void begin(const struct delta *d, const char *op, const char *domain,
		  const char *what, const char *in, char *out)
{
	char name[GEN_NAME];

	name_of(d, what, name, out);
	gen_node(d->g, op, domain, name);
	gen_in(d->g, in);
	gen_out(d->g, out);
}

static void turn(const struct delta *d, const char *what, const char *in,
		 char *out)
{
	static const int64_t perm[] = {0, 2, 1};

	begin(d, "Transpose", "", what, in, out);
	gen_attr_ints(d->g, "perm", perm, 3);
	gen_end(d->g);
}

static void reshape(const struct delta *d, const char *what, const char *in,
		    const int64_t *shape, uint32_t n, char *out)
{
	char c[GEN_NAME];

	gen_const(d->g, false, shape, n, c);
	begin(d, "Reshape", "", what, in, out);
	gen_in(d->g, c);
	gen_end(d->g);
}

// A stored vector; its name.
static void vector(const struct delta *d, uint32_t site, const char *what,
		   uint32_t rank, const uint64_t *dims, bool wide, char *out)
{
	struct gen_job *job = gen_job_add(d->g, GEN_VECTOR);

	snprintf(out, GEN_NAME, "model.layers.%u.linear_attn.%s", d->layer,
		 what);
	job->mat.site[0] = site;
	job->mat.n_sites = 1;
	job->mat.layer = d->layer;
	job->mat.rows[0] = 1;
	for (uint32_t i = 0; i < rank; i++)
		job->mat.rows[0] *= dims[i];
	job->mat.n_rows = job->mat.rows[0];
	job->wide = wide;
	job->at =
		gen_init(d->g, out, wide ? GENAI_DT_F32 : d->g->conf->io_dtype,
			 rank, dims);
}

static void project(const struct delta *d, uint32_t site, uint64_t rows,
		    const char *module, const char *in, char *out)
{
	struct gen_mat m;
	char name[64];

	snprintf(name, sizeof(name), "linear_attn.%s", module);
	gen_one(d->g, &m, site, d->layer, rows, d->g->conf->hidden);
	gen_project(d->g, &m, name, in, out);
}

static void state(const struct delta *d, const char *which, bool past,
		  char *out)
{
	snprintf(out, GEN_NAME, "%s.%u.%s", past ? "past" : "present", d->layer,
		 which);
}

// silu of the convolution of all channels; rows of tokens in and out.
static void convolve(const struct delta *d, const char *in, char *out)
{
	const uint64_t dims[3] = {2 * d->keys + d->values, 1,
				  d->g->conf->conv_taps};
	char a[GEN_NAME], b[GEN_NAME], w[GEN_NAME], s[GEN_NAME];

	turn(d, "qkv_proj/Transpose", in, a);
	vector(d, GENAI_SITE_CONV_TAPS, "conv1d.weight", 3, dims, false, w);
	begin(d, "CausalConvWithState", "com.microsoft", "CausalConvWithState",
	      a, b);
	gen_in(d->g, w);
	gen_in(d->g, "");
	state(d, "conv", true, s);
	gen_in(d->g, s);
	state(d, "conv", false, s);
	gen_out(d->g, s);
	gen_attr_int(d->g, "ndim", 1);
	gen_attr_string(d->g, "activation", "silu");
	gen_end(d->g);
	turn(d, "conv_out/Transpose", b, out);
}

static void split(const struct delta *d, const char *in,
		  char parts[3][GEN_NAME])
{
	const int64_t sizes[3] = {(int64_t)d->keys, (int64_t)d->keys,
				  (int64_t)d->values};
	char c[GEN_NAME];

	gen_const(d->g, false, sizes, 3, c);
	begin(d, "Split", "", "split_qkv/Split", in, parts[0]);
	gen_in(d->g, c);
	for (int i = 1; i < 3; i++) {
		snprintf(parts[i], GEN_NAME,
			 "/model/layers.%u/linear_attn/split_qkv/Split/"
			 "output_%d",
			 d->layer, i);
		gen_out(d->g, parts[i]);
	}
	gen_attr_int(d->g, "axis", -1);
	gen_end(d->g);
}

// Every head of a key or a query to length 1.
static void unit_length(const struct delta *d, char which, char *inout)
{
	const struct genai_genconf *c = d->g->conf;
	const int64_t heads[4] = {0, 0, c->delta_k_heads, c->delta_size};
	const int64_t flat[3] = {0, 0, (int64_t)d->keys};
	char what[48], a[GEN_NAME], b[GEN_NAME];

	snprintf(what, sizeof(what), "%c_l2norm/flat/Reshape", which);
	reshape(d, what, inout, heads, 4, a);
	snprintf(what, sizeof(what), "%c_l2norm/LpNormalization", which);
	begin(d, "LpNormalization", "", what, a, b);
	gen_attr_int(d->g, "axis", -1);
	gen_attr_int(d->g, "p", 2);
	gen_end(d->g);
	snprintf(what, sizeof(what), "%c_l2norm/unflat/Reshape", which);
	reshape(d, what, b, flat, 3, inout);
}

static void gates(const struct delta *d, const char *in, char *decay,
		  char *beta)
{
	const uint64_t heads = d->g->conf->delta_v_heads;
	char a[GEN_NAME], b[GEN_NAME], bias[GEN_NAME], scale[GEN_NAME];

	project(d, GENAI_SITE_DELTA_B, heads, "b_proj", in, b);
	project(d, GENAI_SITE_DELTA_A, heads, "a_proj", in, a);
	vector(d, GENAI_SITE_DELTA_BIAS, "dt_bias", 1, &heads, true, bias);
	vector(d, GENAI_SITE_DELTA_DECAY, "neg_exp_A", 1, &heads, true, scale);
	begin(d, "LinearAttentionGate", "com.microsoft", "LinearAttentionGate",
	      a, decay);
	gen_in(d->g, bias);
	gen_in(d->g, scale);
	gen_in(d->g, b);
	snprintf(beta, GEN_NAME,
		 "/model/layers.%u/linear_attn/LinearAttentionGate/output_1",
		 d->layer);
	gen_out(d->g, beta);
	gen_end(d->g);
}

static void recurrence(const struct delta *d, char qkv[3][GEN_NAME],
		       const char *decay, const char *beta, char *out)
{
	char s[GEN_NAME];

	begin(d, "LinearAttention", "com.microsoft", "LinearAttention", qkv[0],
	      out);
	gen_in(d->g, qkv[1]);
	gen_in(d->g, qkv[2]);
	state(d, "recurrent", true, s);
	gen_in(d->g, s);
	gen_in(d->g, decay);
	gen_in(d->g, beta);
	state(d, "recurrent", false, s);
	gen_out(d->g, s);
	gen_attr_int(d->g, "q_num_heads", d->g->conf->delta_k_heads);
	gen_attr_int(d->g, "kv_num_heads", d->g->conf->delta_v_heads);
	gen_attr_string(d->g, "update_rule", "gated_delta");
	gen_attr_float(d->g, "scale", 1 / sqrtf((float)d->g->conf->delta_size));
	gen_end(d->g);
}

void gen_delta(struct gen *g, uint32_t layer, const char *in, char *out)
{
	const struct genai_genconf *c = g->conf;
	const uint64_t size = c->delta_size;
	const struct delta d = {g, layer, c->delta_k_heads * size,
				c->delta_v_heads * size};
	char qkv[3][GEN_NAME], all[GEN_NAME], z[GEN_NAME], w[GEN_NAME];
	char decay[GEN_NAME], beta[GEN_NAME], o[GEN_NAME];
	struct gen_mat m;

	project(&d, GENAI_SITE_DELTA_QKV, 2 * d.keys + d.values, "qkv_proj", in,
		o);
	project(&d, GENAI_SITE_DELTA_Z, d.values, "z_proj", in, z);
	gates(&d, in, decay, beta);
	convolve(&d, o, all);
	split(&d, all, qkv);
	unit_length(&d, 'q', qkv[0]);
	unit_length(&d, 'k', qkv[1]);
	recurrence(&d, qkv, decay, beta, all);
	vector(&d, GENAI_SITE_DELTA_NORM, "norm.weight", 1, &size, false, w);
	begin(&d, "GatedRMSNorm", "com.microsoft", "GatedRMSNorm", all, o);
	gen_in(g, w);
	gen_in(g, z);
	gen_attr_float(g, "epsilon", c->epsilon);
	gen_end(g);
	gen_one(g, &m, GENAI_SITE_DELTA_OUT, layer, c->hidden, d.values);
	gen_project(g, &m, "linear_attn.out_proj", o, out);
}
