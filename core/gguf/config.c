// config.c - what a GGUF file says about its model, and whether all of it can
// be carried.
#include "core/gguf/import.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_LAYERS 1024u
#define LIMIT_WIDTH (1u << 20)
#define LIMIT_CONTEXT (1u << 21)
#define LIMIT_ROPE (1u << 28) // a gigabyte of cosines and sines
#define LIMIT_VOCAB (1u << 22)

static const struct genai_gguf_kv *arch_key(const struct imp *imp,
					    const char *name)
{
	char key[96];

	snprintf(key, sizeof(key), "%s.%s", imp->arch, name);
	return genai_gguf_find(imp->gguf, key);
}

// A number from 1 to limit; fallback 0: the key must be there.
static int32_t number(const struct imp *imp, const char *name, uint32_t limit,
		      uint32_t fallback, uint32_t *out, struct genai_error *err)
{
	const struct genai_gguf_kv *kv = arch_key(imp, name);
	uint64_t v = fallback;

	if (!kv && !fallback)
		return genai_fail(err, GENAI_E_FORMAT, "%s: no key %s.%s",
				  genai_gguf_path(imp->gguf), imp->arch, name);
	if (kv && kv->type == GENAI_GGUF_ARRAY)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: %s.%s differs between layers; that is "
				  "not carried",
				  genai_gguf_path(imp->gguf), imp->arch, name);
	if (kv && (!genai_gguf_uint(kv, &v) || !v || v > limit))
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: %s.%s is no number from 1 to %u",
				  genai_gguf_path(imp->gguf), imp->arch, name,
				  limit);
	*out = (uint32_t)v;
	return GENAI_OK;
}

static int32_t real(const struct imp *imp, const char *name, double fallback,
		    double *out, struct genai_error *err)
{
	const struct genai_gguf_kv *kv = arch_key(imp, name);

	*out = fallback;
	if (!kv && fallback > 0)
		return GENAI_OK;
	if (!kv)
		return genai_fail(err, GENAI_E_FORMAT, "%s: no key %s.%s",
				  genai_gguf_path(imp->gguf), imp->arch, name);
	if (!genai_gguf_float(kv, out) || !(*out > 0) || !isfinite(*out))
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: %s.%s is no positive number",
				  genai_gguf_path(imp->gguf), imp->arch, name);
	return GENAI_OK;
}

// Keys that change what the model computes, in ways that are not carried.
static int32_t refuse_keys(const struct imp *imp, struct genai_error *err)
{
	static const char *const keys[] = {
		"expert_count",
		"expert_used_count",
		"attention.scale",
		"attention.clamp_kqv",
		"attention.max_alibi_bias",
		"attention.layer_norm_epsilon",
		"attn_logit_softcapping",
		"final_logit_softcapping",
		"logit_scale",
		"embedding_scale",
		"residual_scale",
		"use_parallel_residual",
		"rope.scaling.attn_factor",
		"pooling_type",
	};
	uint64_t window = 0;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		const struct genai_gguf_kv *kv = arch_key(imp, keys[i]);
		uint64_t v = 1;
		double d = 1;

		if (!kv || (genai_gguf_uint(kv, &v) && !v) ||
		    (genai_gguf_float(kv, &d) && !(d != 0)))
			continue;
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: key %s.%s is not carried",
				  genai_gguf_path(imp->gguf), imp->arch,
				  keys[i]);
	}
	if (genai_gguf_uint(arch_key(imp, "attention.sliding_window"),
			    &window) &&
	    window && window < imp->conf.context)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: a sliding window of %llu is not carried",
				  genai_gguf_path(imp->gguf),
				  (unsigned long long)window);
	return GENAI_OK;
}

static int32_t rope(struct imp *imp, struct genai_error *err)
{
	struct genai_genconf *c = &imp->conf;
	struct genai_gguf_string type = {"none", 4};
	int32_t rc = number(imp, "rope.dimension_count", c->head_size,
			    c->head_size, &c->rotary, err);

	if (!rc)
		rc = real(imp, "rope.freq_base", 10000, &c->theta, err);
	if (rc)
		return rc;
	if ((uint64_t)c->context * c->rotary > LIMIT_ROPE)
		return genai_fail(
			err, GENAI_E_LIMIT,
			"%s: %s.context_length %u needs rotation "
			"tables of %llu values, over %u",
			genai_gguf_path(imp->gguf), imp->arch, c->context,
			(unsigned long long)c->context * c->rotary, LIMIT_ROPE);
	c->rope_scale = 1;
	genai_gguf_str(arch_key(imp, "rope.scaling.type"), &type);
	if (type.bytes == 6 && !memcmp(type.data, "linear", 6))
		return real(imp, "rope.scaling.factor", 0, &c->rope_scale, err);
	if (type.bytes && !(type.bytes == 4 && !memcmp(type.data, "none", 4)))
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: rope scaling '%.*s' is not carried",
				  genai_gguf_path(imp->gguf),
				  (int)(type.bytes < 40 ? type.bytes : 40),
				  type.data);
	if (imp->permuted && c->rotary != c->head_size)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: %u of %u channels rotated in a llama "
				  "file are not carried",
				  genai_gguf_path(imp->gguf), c->rotary,
				  c->head_size);
	return GENAI_OK;
}

static int32_t sizes(struct imp *imp, struct genai_error *err)
{
	struct genai_genconf *c = &imp->conf;
	uint32_t value = 0;
	double eps = 0;
	int32_t rc =
		number(imp, "block_count", LIMIT_LAYERS, 0, &c->layers, err);

	if (!rc)
		rc = number(imp, "context_length", LIMIT_CONTEXT, 0,
			    &c->context, err);
	if (!rc)
		rc = number(imp, "embedding_length", LIMIT_WIDTH, 0, &c->hidden,
			    err);
	if (!rc)
		rc = number(imp, "feed_forward_length", LIMIT_WIDTH, 0, &c->ffn,
			    err);
	if (!rc)
		rc = number(imp, "attention.head_count", 4096, 0, &c->heads,
			    err);
	if (!rc)
		rc = number(imp, "attention.head_count_kv", c->heads, c->heads,
			    &c->kv_heads, err);
	if (!rc)
		rc = number(imp, "attention.key_length", 1024,
			    c->hidden / c->heads ? c->hidden / c->heads : 1,
			    &c->head_size, err);
	if (!rc)
		rc = number(imp, "attention.value_length", 1024, c->head_size,
			    &value, err);
	if (!rc)
		rc = real(imp, "attention.layer_norm_rms_epsilon", 0, &eps,
			  err);
	if (rc)
		return rc;
	c->epsilon = (float)eps;
	if (value != c->head_size || c->head_size % 2 || c->heads % c->kv_heads)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: %u heads of %u with %u key/value heads "
				  "of %u are not carried",
				  genai_gguf_path(imp->gguf), c->heads,
				  c->head_size, c->kv_heads, value);
	return GENAI_OK;
}

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
};
#define N_SITES (sizeof(layer_names) / sizeof(layer_names[0]))

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
		return genai_gguf_tensor_find(imp->gguf, "output_norm.weight");
	snprintf(name, sizeof(name), "blk.%u.%s", layer, layer_names[site]);
	return genai_gguf_tensor_find(imp->gguf, name);
}

struct imp_record *imp_record(struct imp *imp,
			      const struct genai_gguf_tensor *t)
{
	return &imp->records[t - genai_gguf_tensor_at(imp->gguf, 0)];
}

// The tensor of a place must be there with these dimensions; rows 0: a vector.
static int32_t require(struct imp *imp, uint32_t site, uint32_t layer,
		       uint64_t cols, uint64_t rows, struct genai_error *err)
{
	const struct genai_gguf_tensor *t = imp_tensor(imp, site, layer);
	const char *path = genai_gguf_path(imp->gguf);

	if (!t)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: no tensor blk.%u.%s", path, layer,
				  site < N_SITES && layer_names[site]
					  ? layer_names[site]
					  : "(embedding)");
	if (t->dims[0] != cols || t->dims[1] != (rows ? rows : 1) ||
	    t->dims[2] != 1 || t->dims[3] != 1)
		return genai_fail(
			err, GENAI_E_FORMAT,
			"%s: tensor %s: dimensions %llu x %llu, expected "
			"%llu x %llu",
			path, t->name, (unsigned long long)t->dims[0],
			(unsigned long long)t->dims[1],
			(unsigned long long)cols,
			(unsigned long long)(rows ? rows : 1));
	if (!rows && genai_gguf_type(t->type)->unpack)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: tensor %s: a vector of type %s", path,
				  t->name, genai_gguf_type(t->type)->name);
	imp_record(imp, t)->used = true;
	return GENAI_OK;
}

static int32_t require_layer(struct imp *imp, uint32_t layer,
			     struct genai_error *err)
{
	const struct genai_genconf *c = &imp->conf;
	uint64_t q = (uint64_t)c->heads * c->head_size;
	uint64_t kv = (uint64_t)c->kv_heads * c->head_size;
	const struct {
		uint32_t site;
		uint64_t cols, rows;
		bool wanted;
	} list[] = {
		{GENAI_SITE_NORM_IN, c->hidden, 0, true},
		{GENAI_SITE_Q, c->hidden, q, true},
		{GENAI_SITE_K, c->hidden, kv, true},
		{GENAI_SITE_V, c->hidden, kv, true},
		{GENAI_SITE_BIAS_Q, q, 0, c->qkv_bias},
		{GENAI_SITE_BIAS_K, kv, 0, c->qkv_bias},
		{GENAI_SITE_BIAS_V, kv, 0, c->qkv_bias},
		{GENAI_SITE_NORM_Q, c->head_size, 0, c->qk_norm},
		{GENAI_SITE_NORM_K, c->head_size, 0, c->qk_norm},
		{GENAI_SITE_O, q, c->hidden, true},
		{GENAI_SITE_NORM_POST, c->hidden, 0, true},
		{GENAI_SITE_GATE, c->hidden, c->ffn, true},
		{GENAI_SITE_UP, c->hidden, c->ffn, true},
		{GENAI_SITE_DOWN, c->ffn, c->hidden, true},
	};
	int32_t rc = GENAI_OK;

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]) && !rc; i++)
		if (list[i].wanted)
			rc = require(imp, list[i].site, layer, list[i].cols,
				     list[i].rows, err);
	return rc;
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

static int32_t tensors(struct imp *imp, struct genai_error *err)
{
	struct genai_genconf *c = &imp->conf;
	const struct genai_gguf_tensor *t =
		imp_tensor(imp, GENAI_SITE_EMBED, 0);
	int32_t rc;

	if (!t || t->dims[1] > LIMIT_VOCAB)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: no tensor token_embd.weight of at most "
				  "%u rows",
				  genai_gguf_path(imp->gguf), LIMIT_VOCAB);
	c->vocab = (uint32_t)t->dims[1];
	c->tied = !genai_gguf_tensor_find(imp->gguf, "output.weight");
	c->qkv_bias = imp_tensor(imp, GENAI_SITE_BIAS_Q, 0) != NULL;
	c->qk_norm = imp_tensor(imp, GENAI_SITE_NORM_Q, 0) != NULL;
	rc = require(imp, GENAI_SITE_EMBED, 0, c->hidden, c->vocab, err);
	if (!rc)
		rc = require(imp, GENAI_SITE_HEAD, 0, c->hidden, c->vocab, err);
	if (!rc)
		rc = require(imp, GENAI_SITE_NORM_FINAL, 0, c->hidden, 0, err);
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

static int32_t architecture(struct imp *imp, struct genai_error *err)
{
	static const char *const carried[] = {"llama", "qwen2", "qwen3"};
	struct genai_gguf_string s = {"", 0};

	genai_gguf_str(genai_gguf_find(imp->gguf, "general.architecture"), &s);
	for (size_t i = 0; i < sizeof(carried) / sizeof(carried[0]); i++)
		if (s.bytes == strlen(carried[i]) &&
		    !memcmp(s.data, carried[i], s.bytes)) {
			snprintf(imp->arch, sizeof(imp->arch), "%s",
				 carried[i]);
			imp->conf.type = imp->arch;
			imp->permuted = i == 0;
			return GENAI_OK;
		}
	return genai_fail(err, GENAI_E_UNSUPPORTED,
			  "%s: architecture '%.*s'; llama, qwen2 and qwen3 are "
			  "carried",
			  genai_gguf_path(imp->gguf),
			  (int)(s.bytes < 40 ? s.bytes : 40), s.data);
}

static void special_ids(struct imp *imp)
{
	static const char *const ends[] = {"eos_token_id", "eot_token_id",
					   "eom_token_id"};
	struct genai_genconf *c = &imp->conf;
	char key[64];
	uint64_t v;

	c->bos = c->pad = -1;
	if (genai_gguf_uint(
		    genai_gguf_find(imp->gguf, "tokenizer.ggml.bos_token_id"),
		    &v) &&
	    v < c->vocab)
		c->bos = (int64_t)v;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		bool is_new = true;

		snprintf(key, sizeof(key), "tokenizer.ggml.%s", ends[i]);
		if (!genai_gguf_uint(genai_gguf_find(imp->gguf, key), &v) ||
		    v >= c->vocab)
			continue;
		for (uint32_t j = 0; j < c->n_eos; j++)
			is_new &= c->eos[j] != (int64_t)v;
		if (is_new)
			c->eos[c->n_eos++] = (int64_t)v;
	}
	if (genai_gguf_uint(genai_gguf_find(imp->gguf,
					    "tokenizer.ggml.padding_token_id"),
			    &v) &&
	    v < c->vocab)
		c->pad = (int64_t)v;
	else if (c->n_eos)
		c->pad = c->eos[0];
}

int32_t imp_configure(struct imp *imp, struct genai_error *err)
{
	int32_t rc = architecture(imp, err);

	if (!rc)
		rc = sizes(imp, err);
	if (!rc)
		rc = refuse_keys(imp, err);
	if (!rc)
		rc = rope(imp, err);
	if (!rc)
		rc = tensors(imp, err);
	if (!rc)
		special_ids(imp);
	imp->conf.io_dtype = GENAI_DT_F32;
	imp->conf.accuracy_level = 1;
	return rc;
}
