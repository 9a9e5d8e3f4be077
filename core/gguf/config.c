// config.c - what the keys of a GGUF file say about its model, and whether all
// of it can be carried.
#include "core/gguf/import.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_LAYERS 1024u
#define LIMIT_WIDTH (1u << 20)
#define LIMIT_EXPERTS 4096u
#define LIMIT_CONTEXT (1u << 21)
#define LIMIT_ROPE (1u << 28) // a gigabyte of cosines and sines

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

// ---- architectures ----

#define EXPERT_KEYS                                                            \
	" expert_count expert_used_count expert_feed_forward_length "          \
	"expert_gating_func "

static const struct imp_arch archs[] = {
	{.name = "llama", .type = "llama", .permuted = true},
	{.name = "qwen2", .type = "qwen2"},
	{.name = "qwen3", .type = "qwen3"},
	{.name = "gemma", .type = "gemma", .embed_scale = true, .gelu = true},
	{.name = "gemma2",
	 .type = "gemma2",
	 .embed_scale = true,
	 .gelu = true,
	 .norm_out = true,
	 .window = 4096,
	 .local_of = 2,
	 .large_layers = 46,
	 .keys = " attn_logit_softcapping final_logit_softcapping "},
	{.name = "gemma3",
	 .type = "gemma3_text",
	 .embed_scale = true,
	 .gelu = true,
	 .norm_out = true,
	 .local_of = 6,
	 .large_layers = 62,
	 .theta_local = 10000},
	{.name = "phi3", .type = "phi3", .fused = true, .local_of = 1},
	{.name = "olmo2",
	 .type = "olmo",
	 .norm_out = true,
	 .no_norm_in = true,
	 .qk_norm_wide = true},
	{.name = "granite",
	 .type = "granite",
	 .permuted = true,
	 .scales = true,
	 .keys = " embedding_scale residual_scale logit_scale "
		 "attention.scale "},
	{.name = "smollm3",
	 .type = "smollm3",
	 .permuted = true,
	 .no_rope_of = 4},
	{.name = "lfm2",
	 .type = "lfm2",
	 .conv = true,
	 .norm = "token_embd_norm.weight",
	 .keys = " shortconv.l_cache "},
	{.name = "lfm2moe",
	 .type = "lfm2_moe",
	 .conv = true,
	 .norm = "token_embd_norm.weight",
	 .experts = true,
	 .sigmoid = true,
	 .keys = EXPERT_KEYS "shortconv.l_cache leading_dense_block_count "},
	{.name = "qwen3moe",
	 .type = "qwen3",
	 .experts = true,
	 .keys = EXPERT_KEYS},
	{.name = "gpt-oss",
	 .type = "gptoss",
	 .experts = true,
	 .oss = true,
	 .local_of = 2,
	 .keys = EXPERT_KEYS},
};
#define N_ARCHS (sizeof(archs) / sizeof(archs[0]))

static int32_t architecture(struct imp *imp, struct genai_error *err)
{
	struct genai_gguf_string s = {"", 0};
	char list[200] = "";

	genai_gguf_str(genai_gguf_find(imp->gguf, "general.architecture"), &s);
	for (size_t i = 0; i < N_ARCHS; i++) {
		const struct imp_arch *a = &archs[i];
		size_t n = strlen(list);

		if (s.bytes == strlen(a->name) &&
		    !memcmp(s.data, a->name, s.bytes)) {
			snprintf(imp->arch, sizeof(imp->arch), "%s", a->name);
			imp->a = a;
			imp->conf.type = a->type;
			imp->permuted = a->permuted;
			imp->fused = a->fused;
			return GENAI_OK;
		}
		snprintf(list + n, sizeof(list) - n, "%s%s", i ? ", " : "",
			 a->name);
	}
	return genai_fail(err, GENAI_E_UNSUPPORTED,
			  "%s: architecture '%.*s' is not carried; carried are "
			  "%s",
			  genai_gguf_path(imp->gguf),
			  (int)(s.bytes < 40 ? s.bytes : 40), s.data, list);
}

// Every key of the architecture is one that is read, or one that changes
// nothing: what is not known might.
static int32_t check_keys(const struct imp *imp, struct genai_error *err)
{
	static const char common[] =
		" block_count context_length embedding_length "
		"feed_forward_length vocab_size attention.head_count "
		"attention.head_count_kv attention.key_length "
		"attention.value_length attention.layer_norm_rms_epsilon "
		"attention.sliding_window rope.dimension_count rope.freq_base "
		"rope.scaling.type rope.scaling.factor rope.scale_linear "
		"rope.scaling.original_context_length rope.scaling.finetuned ";
	size_t n = strlen(imp->arch);
	const struct genai_gguf_kv *kv;

	for (uint64_t i = 0; (kv = genai_gguf_key_at(imp->gguf, i)); i++) {
		char word[128];
		uint64_t v = 1;
		double d = 1;

		if (kv->key.bytes <= n || memcmp(kv->key.data, imp->arch, n) ||
		    kv->key.data[n] != '.')
			continue;
		snprintf(word, sizeof(word), " %.*s ",
			 (int)(kv->key.bytes - n - 1), kv->key.data + n + 1);
		if (strstr(common, word) ||
		    (imp->a->keys && strstr(imp->a->keys, word)))
			continue;
		// nothing of something is what there is without the key, but
		// for attention that does not look back only
		if (!strcmp(word, " attention.causal ")
			    ? genai_gguf_uint(kv, &v) && v
			    : (genai_gguf_uint(kv, &v) && !v) ||
				      (genai_gguf_float(kv, &d) && !(d != 0)))
			continue;
		return genai_fail(
			err, GENAI_E_UNSUPPORTED, "%s: key %.*s is not carried",
			genai_gguf_path(imp->gguf),
			(int)(kv->key.bytes < 90 ? kv->key.bytes : 90),
			kv->key.data);
	}
	return GENAI_OK;
}

// Which layers see a window only, and which do not rotate.
static int32_t layers(struct imp *imp, struct genai_error *err)
{
	const struct imp_arch *a = imp->a;
	struct genai_genconf *c = &imp->conf;
	uint64_t window = a->window;
	bool is_said = genai_gguf_uint(
		arch_key(imp, "attention.sliding_window"), &window);

	// where no layer is local the key must say nothing
	if (is_said && window && window < c->context && !a->local_of)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: a sliding window of %llu is not carried",
				  genai_gguf_path(imp->gguf),
				  (unsigned long long)window);
	if (a->local_of > 1 && !window)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: no key %s.attention.sliding_window",
				  genai_gguf_path(imp->gguf), imp->arch);
	if (!imp->layer_flags)
		imp->layer_flags = calloc(c->layers, 1);
	if (!imp->layer_flags)
		return genai_fail(err, GENAI_E_NOMEM, "%s: no memory",
				  genai_gguf_path(imp->gguf));
	if (a->local_of && window && window < c->context)
		c->window = (uint32_t)window;
	for (uint32_t i = 0; i < c->layers; i++) {
		if (a->local_of == 1 ||
		    (a->local_of && i % a->local_of < a->local_of - 1))
			imp->layer_flags[i] |= GENAI_LAYER_LOCAL;
		if (a->no_rope_of && (i + 1) % a->no_rope_of == 0)
			imp->layer_flags[i] |= GENAI_LAYER_NO_ROPE;
	}
	c->layer_flags = imp->layer_flags;
	c->theta_local = a->theta_local;
	return GENAI_OK;
}

static int32_t factor(const struct imp *imp, const char *name, float *out,
		      struct genai_error *err)
{
	double v;
	int32_t rc = real(imp, name, 1, &v, err);

	if (!rc && arch_key(imp, name))
		*out = (float)v;
	return rc;
}

static int32_t variant(struct imp *imp, struct genai_error *err)
{
	const struct imp_arch *a = imp->a;
	struct genai_genconf *c = &imp->conf;
	int32_t rc = layers(imp, err);

	if (a->oss) {
		c->router_bias = c->expert_bias = c->o_bias = c->sinks = true;
		c->gate_alpha = 1.702f;
		c->gate_beta = 1;
		c->gate_limit = 7;
	}

	c->gelu = a->gelu;
	c->norm_out = a->norm_out;
	c->no_norm_in = a->no_norm_in;
	c->qk_norm_wide = a->qk_norm_wide;
	if (a->embed_scale)
		c->embed_scale = sqrtf((float)c->hidden);
	if (a->large_layers && c->layers == a->large_layers)
		c->attention_scale = 1 / sqrtf((float)(c->hidden / c->heads));
	if (!rc)
		rc = factor(imp, "attn_logit_softcapping", &c->attention_cap,
			    err);
	if (!rc)
		rc = factor(imp, "final_logit_softcapping", &c->logit_cap, err);
	if (!rc && a->scales) {
		rc = factor(imp, "embedding_scale", &c->embed_scale, err);
		if (!rc)
			rc = factor(imp, "residual_scale", &c->branch_scale,
				    err);
		if (!rc)
			rc = factor(imp, "attention.scale", &c->attention_scale,
				    err);
		if (!rc)
			rc = factor(imp, "logit_scale", &c->logit_scale, err);
		if (c->logit_scale > 0)
			c->logit_scale = 1 / c->logit_scale;
	}
	return rc;
}

static int32_t rope(struct imp *imp, struct genai_error *err)
{
	struct genai_genconf *c = &imp->conf;
	struct genai_gguf_string type = {"", 0};
	bool factor = arch_key(imp, "rope.scaling.factor");
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
	// a factor without a type is linear
	if ((!type.bytes && (factor || arch_key(imp, "rope.scale_linear"))) ||
	    (type.bytes == 6 && !memcmp(type.data, "linear", 6)))
		return real(imp,
			    factor ? "rope.scaling.factor"
				   : "rope.scale_linear",
			    0, &c->rope_scale, err);
	if (imp->a->oss && type.bytes == 4 && !memcmp(type.data, "yarn", 4)) {
		rc = real(imp, "rope.scaling.factor", 0, &c->yarn_factor, err);
		return rc ? rc
			  : number(imp, "rope.scaling.original_context_length",
				   LIMIT_CONTEXT, 0, &c->yarn_context, err);
	}
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

// Heads of keys and values: a number, or one for each layer, of which those of
// a convolution are 0 and the others alike.
static int32_t kv_heads(struct imp *imp, struct genai_error *err)
{
	struct genai_genconf *c = &imp->conf;
	const struct genai_gguf_kv *kv =
		arch_key(imp, "attention.head_count_kv");
	struct genai_gguf_kv one;
	int32_t rc;

	if (!imp->a->conv || !kv || kv->type != GENAI_GGUF_ARRAY)
		return number(imp, "attention.head_count_kv", c->heads,
			      c->heads, &c->kv_heads, err);
	if (kv->count != c->layers ||
	    (kv->elem != GENAI_GGUF_U32 && kv->elem != GENAI_GGUF_I32))
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: %s.attention.head_count_kv is no list "
				  "of %u numbers",
				  genai_gguf_path(imp->gguf), imp->arch,
				  c->layers);
	imp->layer_flags = calloc(c->layers, 1);
	if (!imp->layer_flags)
		return genai_fail(err, GENAI_E_NOMEM, "%s: no memory",
				  genai_gguf_path(imp->gguf));
	for (uint32_t i = 0; i < c->layers; i++) {
		uint64_t v = 0;

		one = *kv;
		one.type = kv->elem;
		one.data = kv->data + i * UINT64_C(4);
		one.bytes = 4;
		if (!genai_gguf_uint(&one, &v) || v > c->heads ||
		    (v && c->kv_heads && v != c->kv_heads))
			return genai_fail(
				err, GENAI_E_UNSUPPORTED,
				"%s: %s.attention.head_count_kv of layer %u is "
				"neither 0 nor that of the others",
				genai_gguf_path(imp->gguf), imp->arch, i);
		if (v)
			c->kv_heads = (uint32_t)v;
		else
			imp->layer_flags[i] |= GENAI_LAYER_CONV;
	}
	if (!c->kv_heads)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: a model without attention is not "
				  "carried",
				  genai_gguf_path(imp->gguf));
	rc = number(imp, "shortconv.l_cache", 64, 0, &c->conv_taps, err);
	if (!rc && c->conv_taps < 2)
		rc = genai_fail(err, GENAI_E_UNSUPPORTED,
				"%s: %s.shortconv.l_cache is 1: a convolution "
				"without a state is not carried",
				genai_gguf_path(imp->gguf), imp->arch);
	return rc;
}

// Layers in front that have an MLP: none, where the key is not there.
static int32_t dense_layers(struct imp *imp, struct genai_error *err)
{
	struct genai_genconf *c = &imp->conf;
	const struct genai_gguf_kv *kv =
		arch_key(imp, "leading_dense_block_count");
	uint64_t v = 0;

	if (kv && (!genai_gguf_uint(kv, &v) || v >= c->layers))
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: %s.leading_dense_block_count is no "
				  "number below %u, that of layers",
				  genai_gguf_path(imp->gguf), imp->arch,
				  c->layers);
	c->dense_layers = (uint32_t)v;
	return v ? number(imp, "feed_forward_length", LIMIT_WIDTH, 0,
			  &c->dense_ffn, err)
		 : GENAI_OK;
}

static int32_t experts(struct imp *imp, struct genai_error *err)
{
	struct genai_genconf *c = &imp->conf;
	const uint64_t want = imp->a->sigmoid ? 2 : 1;
	uint64_t gating = want;
	int32_t rc = number(imp, "expert_feed_forward_length", LIMIT_WIDTH, 0,
			    &c->ffn, err);

	if (!rc)
		rc = number(imp, "expert_count", LIMIT_EXPERTS, 0, &c->experts,
			    err);
	if (!rc)
		rc = number(imp, "expert_used_count", c->experts, 0,
			    &c->experts_used, err);
	if (!rc && arch_key(imp, "expert_gating_func") &&
	    (!genai_gguf_uint(arch_key(imp, "expert_gating_func"), &gating) ||
	     gating != want))
		rc = genai_fail(err, GENAI_E_UNSUPPORTED,
				"%s: %s.expert_gating_func is not %llu (%s), "
				"which alone is carried",
				genai_gguf_path(imp->gguf), imp->arch,
				(unsigned long long)want,
				want == 2 ? "sigmoid" : "softmax");
	c->sigmoid = imp->a->sigmoid;
	return rc || !c->sigmoid ? rc : dense_layers(imp, err);
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
	if (!rc && imp->a->experts)
		rc = experts(imp, err);
	else if (!rc)
		rc = number(imp, "feed_forward_length", LIMIT_WIDTH, 0, &c->ffn,
			    err);
	if (!rc)
		rc = number(imp, "attention.head_count", 4096, 0, &c->heads,
			    err);
	if (!rc)
		rc = kv_heads(imp, err);
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

static void add_end(struct genai_genconf *c, uint64_t id)
{
	for (uint32_t i = 0; i < c->n_eos; i++)
		if (c->eos[i] == (int64_t)id)
			return;
	if (id < c->vocab && c->n_eos < sizeof(c->eos) / sizeof(c->eos[0]))
		c->eos[c->n_eos++] = (int64_t)id;
}

// Files may leave out the token that ends a turn: a well-known one that the
// chat template writes is one.
static int32_t turn_ends(struct imp *imp, struct genai_error *err)
{
	static const char *const known[] = {"<|im_end|>",      "<|eot_id|>",
					    "<|end|>",	       "<end_of_turn>",
					    "<|end_of_turn|>", "<|endofturn|>",
					    "<|return|>",      "<|eom_id|>"};
	const struct genai_gguf_kv *kv =
		genai_gguf_find(imp->gguf, "tokenizer.ggml.tokens");
	struct genai_gguf_string t = {"", 0}, *tokens;

	genai_gguf_str(genai_gguf_find(imp->gguf, "tokenizer.chat_template"),
		       &t);
	if (!t.bytes || !kv || kv->type != GENAI_GGUF_ARRAY ||
	    kv->elem != GENAI_GGUF_STRING)
		return GENAI_OK;
	tokens = genai_gguf_strings(kv);
	if (!tokens)
		return genai_fail(err, GENAI_E_NOMEM, "%s: no memory",
				  genai_gguf_path(imp->gguf));
	for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
		size_t n = strlen(known[k]);

		if (!memmem(t.data, t.bytes, known[k], n))
			continue;
		for (uint64_t i = 0; i < kv->count; i++)
			if (tokens[i].bytes == n &&
			    !memcmp(tokens[i].data, known[k], n))
				add_end(&imp->conf, i);
	}
	free(tokens);
	return GENAI_OK;
}

static int32_t special_ids(struct imp *imp, struct genai_error *err)
{
	static const char *const ends[] = {"eos_token_id", "eot_token_id",
					   "eom_token_id"};
	struct genai_genconf *c = &imp->conf;
	char key[64];
	uint64_t v;
	int32_t rc;

	c->bos = c->pad = -1;
	if (genai_gguf_uint(
		    genai_gguf_find(imp->gguf, "tokenizer.ggml.bos_token_id"),
		    &v) &&
	    v < c->vocab)
		c->bos = (int64_t)v;
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		snprintf(key, sizeof(key), "tokenizer.ggml.%s", ends[i]);
		if (genai_gguf_uint(genai_gguf_find(imp->gguf, key), &v))
			add_end(c, v);
	}
	rc = turn_ends(imp, err);
	if (genai_gguf_uint(genai_gguf_find(imp->gguf,
					    "tokenizer.ggml.padding_token_id"),
			    &v) &&
	    v < c->vocab)
		c->pad = (int64_t)v;
	else if (c->n_eos)
		c->pad = c->eos[0];
	return rc;
}

int32_t imp_configure(struct imp *imp, struct genai_error *err)
{
	int32_t rc = architecture(imp, err);

	if (!rc)
		rc = sizes(imp, err);
	if (!rc)
		rc = check_keys(imp, err);
	if (!rc)
		rc = variant(imp, err);
	if (!rc)
		rc = rope(imp, err);
	if (!rc)
		rc = imp_tensors(imp, err);
	if (!rc)
		rc = special_ids(imp, err);
	imp->conf.io_dtype = GENAI_DT_F32;
	imp->conf.accuracy_level = 1;
	return rc;
}
