// tensors.c - which tensor of a GGUF file has which place in the model; each is
// there, of the shape that the keys say, and none is left over.
#include "core/gguf/import.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_VOCAB (1u << 22)

static const char *const layer_names[] = {
	[GENAI_SITE_Q] = "attn_q.weight",
	[GENAI_SITE_K] = "attn_k.weight",
	[GENAI_SITE_V] = "attn_v.weight",
	[GENAI_SITE_O] = "attn_output.weight",
	[GENAI_SITE_GATE] = "ffn_gate.weight",
	[GENAI_SITE_UP] = "ffn_up.weight",
	[GENAI_SITE_DOWN] = "ffn_down.weight",
	[GENAI_SITE_NORM_IN] = "attn_norm.weight",
	[GENAI_SITE_NORM_POST] = "ffn_norm.weight",
	[GENAI_SITE_NORM_Q] = "attn_q_norm.weight",
	[GENAI_SITE_NORM_K] = "attn_k_norm.weight",
	[GENAI_SITE_NORM_FINAL] = NULL,
	[GENAI_SITE_BIAS_Q] = "attn_q.bias",
	[GENAI_SITE_BIAS_K] = "attn_k.bias",
	[GENAI_SITE_BIAS_V] = "attn_v.bias",
	[GENAI_SITE_NORM_ATTN] = "post_attention_norm.weight",
	[GENAI_SITE_NORM_MLP] = "post_ffw_norm.weight",
	[GENAI_SITE_CONV_IN] = "shortconv.in_proj.weight",
	[GENAI_SITE_CONV_OUT] = "shortconv.out_proj.weight",
	[GENAI_SITE_CONV_TAPS] = "shortconv.conv.weight",
	[GENAI_SITE_ROUTER] = "ffn_gate_inp.weight",
	[GENAI_SITE_EXP_GATE] = "ffn_gate_exps.weight",
	[GENAI_SITE_EXP_UP] = "ffn_up_exps.weight",
	[GENAI_SITE_EXP_DOWN] = "ffn_down_exps.weight",
	[GENAI_SITE_BIAS_ROUTER] = "ffn_gate_inp.bias",
	[GENAI_SITE_BIAS_GATE] = "ffn_gate_exps.bias",
	[GENAI_SITE_BIAS_UP] = "ffn_up_exps.bias",
	[GENAI_SITE_BIAS_DOWN] = "ffn_down_exps.bias",
	[GENAI_SITE_BIAS_O] = "attn_output.bias",
	[GENAI_SITE_SINKS] = "attn_sinks.weight",
	[GENAI_SITE_BIAS_CHOICE] = "exp_probs_b.bias",
};
#define N_SITES (sizeof(layer_names) / sizeof(layer_names[0]))

static const char *layer_name(const struct imp *imp, uint32_t site)
{
	if (imp->fused && site >= GENAI_SITE_Q && site <= GENAI_SITE_V)
		return "attn_qkv.weight";
	if (imp->fused && site == GENAI_SITE_GATE)
		return "ffn_up.weight";
	if (imp->a->oss && site == GENAI_SITE_NORM_POST)
		return "post_attention_norm.weight";
	return layer_names[site];
}

uint64_t imp_first_row(const struct imp *imp, uint32_t site)
{
	const struct genai_genconf *c = &imp->conf;
	uint64_t q = (uint64_t)c->heads * c->head_size;

	if (!imp->fused)
		return 0;
	return site == GENAI_SITE_K   ? q
	       : site == GENAI_SITE_V ? q + (uint64_t)c->kv_heads * c->head_size
	       : site == GENAI_SITE_UP ? c->ffn
				       : 0;
}

uint64_t imp_rows(const struct imp *imp, const struct genai_gguf_tensor *t,
		  uint32_t site)
{
	const struct genai_genconf *c = &imp->conf;

	if (imp->fused && site == GENAI_SITE_Q)
		return (uint64_t)c->heads * c->head_size;
	if (imp->fused && (site == GENAI_SITE_K || site == GENAI_SITE_V))
		return (uint64_t)c->kv_heads * c->head_size;
	if (imp->fused && (site == GENAI_SITE_GATE || site == GENAI_SITE_UP))
		return c->ffn;
	return t->dims[1] * t->dims[2];
}

const struct genai_gguf_tensor *imp_tensor(const struct imp *imp, uint32_t site,
					   uint32_t layer)
{
	char name[64];

	if (site == GENAI_SITE_EMBED ||
	    (site == GENAI_SITE_HEAD && imp->conf.tied))
		return genai_gguf_tensor_find(imp->gguf, "token_embd.weight");
	if (site == GENAI_SITE_HEAD)
		return genai_gguf_tensor_find(imp->gguf, "output.weight");
	if (site == GENAI_SITE_NORM_FINAL)
		return genai_gguf_tensor_find(
			imp->gguf,
			imp->a->norm ? imp->a->norm : "output_norm.weight");
	snprintf(name, sizeof(name), "blk.%u.%s", layer, layer_name(imp, site));
	return genai_gguf_tensor_find(imp->gguf, name);
}

struct imp_record *imp_record(struct imp *imp,
			      const struct genai_gguf_tensor *t)
{
	return &imp->records[t - genai_gguf_tensor_at(imp->gguf, 0)];
}

struct shape_text {
	char s[72];
};

static struct shape_text shape(uint64_t cols, uint64_t rows, uint64_t depth)
{
	struct shape_text x;
	int n = snprintf(x.s, sizeof(x.s), "%llu x %llu",
			 (unsigned long long)cols, (unsigned long long)rows);

	if (depth > 1)
		snprintf(x.s + n, sizeof(x.s) - (size_t)n, " x %llu",
			 (unsigned long long)depth);
	return x;
}

// The tensor of a place must be there with these dimensions; rows 0: a vector;
// depth 0: a matrix.
static int32_t require(struct imp *imp, uint32_t site, uint32_t layer,
		       uint64_t cols, uint64_t rows, uint64_t depth,
		       struct genai_error *err)
{
	const struct genai_gguf_tensor *t = imp_tensor(imp, site, layer);
	const char *path = genai_gguf_path(imp->gguf);
	bool vector =
		!rows || site == GENAI_SITE_CONV_TAPS ||
		(site >= GENAI_SITE_BIAS_ROUTER && site <= GENAI_SITE_SINKS);

	rows = rows ? rows : 1;
	depth = depth ? depth : 1;
	if (!t)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: no tensor blk.%u.%s", path, layer,
				  site < N_SITES && layer_names[site]
					  ? layer_name(imp, site)
					  : "(embedding)");
	if (t->dims[0] != cols || t->dims[1] != rows || t->dims[2] != depth ||
	    t->dims[3] != 1)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: tensor %s: dimensions %s, expected %s",
				  path, t->name,
				  shape(t->dims[0], t->dims[1], t->dims[2]).s,
				  shape(cols, rows, depth).s);
	if (vector && genai_gguf_type(t->type)->unpack)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: tensor %s: a vector of type %s", path,
				  t->name, genai_gguf_type(t->type)->name);
	imp_record(imp, t)->used = true;
	return GENAI_OK;
}

// An expert's matrices are floats, or none of them is.
static int32_t same_kind(const struct imp *imp, uint32_t layer,
			 struct genai_error *err)
{
	const struct genai_gguf_tensor *first =
		imp_tensor(imp, GENAI_SITE_EXP_GATE, layer);

	for (uint32_t i = GENAI_SITE_EXP_UP; i <= GENAI_SITE_EXP_DOWN; i++) {
		const struct genai_gguf_tensor *t = imp_tensor(imp, i, layer);

		if (!genai_gguf_type(t->type)->unpack !=
		    !genai_gguf_type(first->type)->unpack)
			return genai_fail(
				err, GENAI_E_UNSUPPORTED,
				"%s: tensors %s and %s: experts of types %s "
				"and %s together are not carried",
				genai_gguf_path(imp->gguf), first->name,
				t->name, genai_gguf_type(first->type)->name,
				genai_gguf_type(t->type)->name);
	}
	return GENAI_OK;
}

static int32_t require_layer(struct imp *imp, uint32_t layer,
			     struct genai_error *err)
{
	const struct genai_genconf *c = &imp->conf;
	uint64_t q = (uint64_t)c->heads * c->head_size;
	uint64_t kv = (uint64_t)c->kv_heads * c->head_size;
	uint64_t e = layer < c->dense_layers ? 0 : c->experts;
	uint64_t ffn = layer < c->dense_layers ? c->dense_ffn : c->ffn;
	bool conv = imp->layer_flags[layer] & GENAI_LAYER_CONV;
	bool qk = c->qk_norm && !conv, wide = c->qk_norm_wide && !conv;
	bool bias = c->qkv_bias && !conv;
	const struct {
		uint32_t site;
		uint64_t cols, rows;
		bool wanted;
		uint64_t depth;
	} list[] = {
		{GENAI_SITE_NORM_IN, c->hidden, 0, !c->no_norm_in},
		{GENAI_SITE_Q, c->hidden, imp->fused ? q + 2 * kv : q, !conv},
		{GENAI_SITE_K, c->hidden, kv, !imp->fused && !conv},
		{GENAI_SITE_V, c->hidden, kv, !imp->fused && !conv},
		{GENAI_SITE_BIAS_Q, q, 0, bias},
		{GENAI_SITE_BIAS_K, kv, 0, bias},
		{GENAI_SITE_BIAS_V, kv, 0, bias},
		{GENAI_SITE_NORM_Q, c->head_size, 0, qk},
		{GENAI_SITE_NORM_K, c->head_size, 0, qk},
		{GENAI_SITE_NORM_Q, q, 0, wide},
		{GENAI_SITE_NORM_K, kv, 0, wide},
		{GENAI_SITE_O, q, c->hidden, !conv},
		{GENAI_SITE_CONV_IN, c->hidden, 3ull * c->hidden, conv},
		{GENAI_SITE_CONV_TAPS, c->conv_taps, c->hidden, conv},
		{GENAI_SITE_CONV_OUT, c->hidden, c->hidden, conv},
		{GENAI_SITE_NORM_ATTN, c->hidden, 0, c->norm_out},
		{GENAI_SITE_NORM_POST, c->hidden, 0, !c->no_norm_in},
		{GENAI_SITE_NORM_MLP, c->hidden, 0, c->norm_out},
		{GENAI_SITE_GATE, c->hidden, ffn, !imp->fused && !e},
		{GENAI_SITE_UP, c->hidden, imp->fused ? 2 * ffn : ffn, !e},
		{GENAI_SITE_DOWN, ffn, c->hidden, !e},
		{GENAI_SITE_BIAS_O, c->hidden, 0, c->o_bias},
		{GENAI_SITE_SINKS, c->heads, 0, c->sinks},
		{GENAI_SITE_ROUTER, c->hidden, e, e > 0},
		{GENAI_SITE_BIAS_ROUTER, e, 0, c->router_bias},
		{GENAI_SITE_BIAS_CHOICE, e, 0, e && c->sigmoid},
		{GENAI_SITE_EXP_GATE, c->hidden, c->ffn, e > 0, e},
		{GENAI_SITE_EXP_UP, c->hidden, c->ffn, e > 0, e},
		{GENAI_SITE_EXP_DOWN, c->ffn, c->hidden, e > 0, e},
		{GENAI_SITE_BIAS_GATE, c->ffn, e, c->expert_bias},
		{GENAI_SITE_BIAS_UP, c->ffn, e, c->expert_bias},
		{GENAI_SITE_BIAS_DOWN, c->hidden, e, c->expert_bias},
	};
	int32_t rc = GENAI_OK;

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]) && !rc; i++)
		if (list[i].wanted)
			rc = require(imp, list[i].site, layer, list[i].cols,
				     list[i].rows, list[i].depth, err);
	return rc || !e ? rc : same_kind(imp, layer, err);
}

// Divisors of the rotation rates (Llama 3.1 and later).
static int32_t rope_factors(struct imp *imp, struct genai_error *err)
{
	const struct genai_gguf_tensor *t =
		genai_gguf_tensor_find(imp->gguf, "rope_freqs.weight");
	uint32_t half = imp->conf.rotary / 2;

	if (!t)
		return GENAI_OK;
	if (t->type != 0 || t->rank != 1 || t->dims[0] != half)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: tensor %s: not %u values of F32",
				  genai_gguf_path(imp->gguf), t->name, half);
	imp->rope_factors = malloc(half * sizeof(float));
	if (!imp->rope_factors)
		return genai_fail(err, GENAI_E_NOMEM, "%s: no memory",
				  genai_gguf_path(imp->gguf));
	genai_gguf_values(genai_gguf_type(0), t->data, half, imp->rope_factors);
	for (uint32_t i = 0; i < half; i++)
		if (!(imp->rope_factors[i] > 0) ||
		    !isfinite(imp->rope_factors[i]))
			return genai_fail(err, GENAI_E_FORMAT,
					  "%s: tensor %s: value %u is not "
					  "positive",
					  genai_gguf_path(imp->gguf), t->name,
					  i);
	imp->conf.rope_factors = imp->rope_factors;
	imp_record(imp, t)->used = true;
	return GENAI_OK;
}

int32_t imp_tensors(struct imp *imp, struct genai_error *err)
{
	struct genai_genconf *c = &imp->conf;
	const struct genai_gguf_tensor *t =
		imp_tensor(imp, GENAI_SITE_EMBED, 0);
	uint32_t first = 0; // layer with attention
	int32_t rc;

	if (!t || t->dims[1] > LIMIT_VOCAB)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: no tensor token_embd.weight of at most "
				  "%u rows",
				  genai_gguf_path(imp->gguf), LIMIT_VOCAB);
	c->vocab = (uint32_t)t->dims[1];
	c->tied = !genai_gguf_tensor_find(imp->gguf, "output.weight");
	while (imp->layer_flags[first] & GENAI_LAYER_CONV)
		first++;
	c->qkv_bias = imp_tensor(imp, GENAI_SITE_BIAS_Q, first) != NULL;
	c->qk_norm = !c->qk_norm_wide &&
		     imp_tensor(imp, GENAI_SITE_NORM_Q, first) != NULL;
	rc = require(imp, GENAI_SITE_EMBED, 0, c->hidden, c->vocab, 0, err);
	if (!rc)
		rc = require(imp, GENAI_SITE_HEAD, 0, c->hidden, c->vocab, 0,
			     err);
	if (!rc)
		rc = require(imp, GENAI_SITE_NORM_FINAL, 0, c->hidden, 0, 0,
			     err);
	for (uint32_t i = 0; i < c->layers && !rc; i++)
		rc = require_layer(imp, i, err);
	if (!rc)
		rc = rope_factors(imp, err);
	for (uint64_t i = 0; i < genai_gguf_n_tensors(imp->gguf) && !rc; i++)
		if (!imp->records[i].used)
			rc = genai_fail(
				err, GENAI_E_UNSUPPORTED,
				"%s: tensor %s is not carried",
				genai_gguf_path(imp->gguf),
				genai_gguf_tensor_at(imp->gguf, i)->name);
	return rc;
}
