/* gguf_arch.h - a small float model of each architecture as a GGUF file, for
 * comparison with what another reader of such files computes from it. */
#ifndef GENAI_TESTS_GGUF_ARCH_H
#define GENAI_TESTS_GGUF_ARCH_H

#include <math.h>
#include <stdbool.h>

#include "core/base/half.h"
#include "tests/unit/gguf_build.h"

struct arch_spec {
	const char *name;
	uint32_t layers, kv_heads, head_size;
	uint32_t window;
	bool untied, fused, no_norm_in, norm_out;
	uint32_t qk_norm; /* 1: each head, 2: all of them */
	const char *factors[4];
	float values[4];
	/* a mixture of experts: what their matrices hold; as F32 or as it is */
	enum arch_experts { NO_EXPERTS, MXFP4_EXPERTS, MIXED_EXPERTS } experts;
	bool as_floats;
	const char *arch; /* where name is that of a variant */
	/* layers that are convolutions of three taps, a bit each */
	uint32_t conv;
	/* type of the matrices, F16 or BF16, or F32 with such values */
	uint32_t narrow;
	/* experts chosen by sigmoids and a bias, behind a layer without */
	bool sigmoid;
};

static const struct arch_spec arch_specs[] = {
	{"llama", 2, 2, 8, 0, true, false, false, false, 0, {0}, {0}},
	{"gemma", 2, 1, 16, 0, false, false, false, false, 0, {0}, {0}},
	{"gemma2",
	 3,
	 2,
	 16,
	 4,
	 false,
	 false,
	 false,
	 true,
	 0,
	 {"attn_logit_softcapping", "final_logit_softcapping"},
	 {20, 10}},
	{"gemma3",
	 7,
	 1,
	 16,
	 4,
	 false,
	 false,
	 false,
	 true,
	 1,
	 {"rope.scaling.factor"},
	 {8}},
	{"phi3", 2, 4, 8, 0, false, true, false, false, 0, {0}, {0}},
	{"olmo2", 2, 2, 8, 0, true, false, true, true, 2, {0}, {0}},
	{"granite",
	 2,
	 2,
	 8,
	 0,
	 false,
	 false,
	 false,
	 false,
	 0,
	 {"embedding_scale", "residual_scale", "logit_scale",
	  "attention.scale"},
	 {6, 0.3f, 4, 0.1f}},
	{"smollm3", 5, 2, 8, 0, false, false, false, false, 0, {0}, {0}},
	{.name = "lfm2",
	 .layers = 4,
	 .kv_heads = 2,
	 .head_size = 8,
	 .qk_norm = 1,
	 .conv = 11},
	{.name = "lfm2moe",
	 .layers = 4,
	 .kv_heads = 2,
	 .head_size = 8,
	 .qk_norm = 1,
	 .conv = 11,
	 .experts = MXFP4_EXPERTS,
	 .as_floats = true,
	 .sigmoid = true},
	{"qwen3moe",
	 2,
	 2,
	 16,
	 0,
	 true,
	 false,
	 false,
	 false,
	 1,
	 {0},
	 {0},
	 MXFP4_EXPERTS,
	 true,
	 NULL},
	{"qwen3moe-mxfp4",
	 2,
	 2,
	 16,
	 0,
	 true,
	 false,
	 false,
	 false,
	 1,
	 {0},
	 {0},
	 MXFP4_EXPERTS,
	 false,
	 "qwen3moe"},
	{"qwen3moe-mixed",
	 2,
	 2,
	 16,
	 0,
	 true,
	 false,
	 false,
	 false,
	 1,
	 {0},
	 {0},
	 MIXED_EXPERTS,
	 false,
	 "qwen3moe"},
	{"qwen3moe-floats",
	 2,
	 2,
	 16,
	 0,
	 true,
	 false,
	 false,
	 false,
	 1,
	 {0},
	 {0},
	 MIXED_EXPERTS,
	 true,
	 "qwen3moe"},
	{"gpt-oss",
	 3,
	 2,
	 16,
	 4,
	 true,
	 false,
	 false,
	 false,
	 0,
	 {"rope.scaling.factor"},
	 {4},
	 MXFP4_EXPERTS,
	 true,
	 NULL},
	{"gpt-oss-mxfp4",
	 3,
	 2,
	 16,
	 4,
	 true,
	 false,
	 false,
	 false,
	 0,
	 {"rope.scaling.factor"},
	 {4},
	 MXFP4_EXPERTS,
	 false,
	 "gpt-oss"},
	{.name = "llama-f16",
	 .arch = "llama",
	 .layers = 2,
	 .kv_heads = 2,
	 .head_size = 8,
	 .untied = true,
	 .narrow = 1},
	{.name = "llama-f16-floats",
	 .arch = "llama",
	 .layers = 2,
	 .kv_heads = 2,
	 .head_size = 8,
	 .untied = true,
	 .narrow = 1,
	 .as_floats = true},
	{.name = "llama-bf16",
	 .arch = "llama",
	 .layers = 2,
	 .kv_heads = 2,
	 .head_size = 8,
	 .untied = true,
	 .narrow = 30},
	{.name = "llama-bf16-floats",
	 .arch = "llama",
	 .layers = 2,
	 .kv_heads = 2,
	 .head_size = 8,
	 .untied = true,
	 .narrow = 30,
	 .as_floats = true},
	{.name = "gemma-f16",
	 .arch = "gemma",
	 .layers = 2,
	 .kv_heads = 1,
	 .head_size = 16,
	 .narrow = 1},
	{.name = "gemma-f16-floats",
	 .arch = "gemma",
	 .layers = 2,
	 .kv_heads = 1,
	 .head_size = 16,
	 .narrow = 1,
	 .as_floats = true},
	{.name = "gemma-bf16",
	 .arch = "gemma",
	 .layers = 2,
	 .kv_heads = 1,
	 .head_size = 16,
	 .narrow = 30},
	{.name = "gemma-bf16-floats",
	 .arch = "gemma",
	 .layers = 2,
	 .kv_heads = 1,
	 .head_size = 16,
	 .narrow = 30,
	 .as_floats = true},
};
#define N_ARCH_SPECS (sizeof(arch_specs) / sizeof(arch_specs[0]))

#define ARCH_HIDDEN 32u
#define ARCH_HEADS 4u
#define ARCH_FFN 48u
#define ARCH_VOCAB 264u
#define ARCH_TAPS 3u
#define ARCH_EXPERTS 6u
#define ARCH_EXPERT_FFN 64u

static uint64_t arch_state;

/* Between -1 and 1, the same on every machine. */
static inline float arch_random(void)
{
	arch_state = arch_state * 6364136223846793005u + 1442695040888963407u;
	return (float)(int32_t)(arch_state >> 40) / 8388608.0f - 1;
}

static const struct arch_spec *arch_now;

/* A value of a matrix, as it is in the narrower type. */
static inline void arch_put_narrow(struct bytes *b, float v)
{
	bool half = arch_now->narrow == 1;
	uint16_t bits = half ? genai_half_from_float(v)
			     : (uint16_t)(genai_float_bits(v) >> 16);

	if (arch_now->as_floats)
		put_f32(b, half ? genai_float_from_half(bits)
				: genai_float_from_bf16(bits));
	else
		put(b, &bits, sizeof(bits));
}

static inline void arch_tensor(struct gguf_build *g, const char *name,
			       uint64_t cols, uint64_t rows, float size)
{
	bool narrow = rows && arch_now->narrow;
	struct bytes b = {0};

	for (uint64_t i = 0; i < cols * (rows ? rows : 1); i++) {
		float v =
			rows ? arch_random() * size : 1 + 0.3f * arch_random();

		if (narrow)
			arch_put_narrow(&b, v);
		else
			put_f32(&b, v);
	}
	tensor(g, name, cols, rows,
	       narrow && !arch_now->as_floats ? arch_now->narrow : 0, b.data,
	       b.n);
	free(b.data);
}

static inline void arch_layer(struct gguf_build *g, uint32_t layer,
			      const char *what, uint64_t cols, uint64_t rows)
{
	char name[64];

	snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, what);
	arch_tensor(g, name, cols, rows, 3 / sqrtf((float)cols));
}

static inline void arch_attention(struct gguf_build *g,
				  const struct arch_spec *s, uint32_t i)
{
	uint64_t q = (uint64_t)ARCH_HEADS * s->head_size;
	uint64_t kv = (uint64_t)s->kv_heads * s->head_size;

	if (s->fused) {
		arch_layer(g, i, "attn_qkv", ARCH_HIDDEN, q + 2 * kv);
	} else {
		arch_layer(g, i, "attn_q", ARCH_HIDDEN, q);
		arch_layer(g, i, "attn_k", ARCH_HIDDEN, kv);
		arch_layer(g, i, "attn_v", ARCH_HIDDEN, kv);
	}
}

static inline void arch_conv(struct gguf_build *g, uint32_t i)
{
	arch_layer(g, i, "shortconv.in_proj", ARCH_HIDDEN, 3 * ARCH_HIDDEN);
	arch_layer(g, i, "shortconv.conv", ARCH_TAPS, ARCH_HIDDEN);
	arch_layer(g, i, "shortconv.out_proj", ARCH_HIDDEN, ARCH_HIDDEN);
}

/* 32 values of a block of a type, in it and as floats. */
static inline void arch_block(struct bytes *raw, struct bytes *floats,
			      uint32_t type)
{
	static const float fp4[16] = {0,    .5f,  1,  1.5f,  2,	 3,  4,	 6,
				      -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};
	uint8_t code[32];
	float scale = 0.125f;
	const uint16_t half = 0x3000, min = 0xbc00; /* 0.125 and -1 */

	for (int i = 0; i < 32; i++)
		code[i] = (uint8_t)((arch_random() + 1) * 127);
	if (type == 39) /* MXFP4 */
		put(raw, "\x7b", 1), scale = 0.0625f;
	else
		put(raw, &half, 2);
	if (type == 3) /* Q4_1 */
		put(raw, &min, 2);
	for (int i = 0; i < 32; i++) {
		uint8_t low = code[i] & 15, high = code[(i + 16) % 32] & 15;
		uint8_t both = (uint8_t)(low | high << 4);
		int8_t eight = (int8_t)(code[i] % 63 - 31);

		put_f32(floats, type == 39  ? scale * fp4[low]
				: type == 3 ? scale * low - 1
					    : scale / 2 * eight);
		if (type == 8) /* Q8_0, whose scale is half of that */
			put(raw, &eight, 1);
		else if (i < 16)
			put(raw, &both, 1);
	}
	if (type == 8)
		raw->data[raw->n - 33] = 0x2c;
}

static inline void arch_expert(struct gguf_build *g, const struct arch_spec *s,
			       uint32_t layer, const char *what, uint32_t type,
			       uint64_t cols, uint64_t rows)
{
	struct bytes raw = {0}, floats = {0};
	char name[64];

	if (s->experts == MXFP4_EXPERTS)
		type = 39;
	snprintf(name, sizeof(name), "blk.%u.ffn_%s_exps.weight", layer, what);
	for (uint64_t i = 0; i < cols * rows * ARCH_EXPERTS; i += 32)
		arch_block(&raw, &floats, type);
	tensor3(g, name, cols, rows, ARCH_EXPERTS, s->as_floats ? 0 : type,
		s->as_floats ? floats.data : raw.data,
		s->as_floats ? floats.n : raw.n);
	free(raw.data);
	free(floats.data);
}

static inline void arch_bias(struct gguf_build *g, uint32_t layer,
			     const char *what, uint64_t cols, uint64_t rows)
{
	struct bytes b = {0};
	char name[64];

	snprintf(name, sizeof(name), "blk.%u.%s", layer, what);
	for (uint64_t i = 0; i < cols * (rows ? rows : 1); i++)
		put_f32(&b, arch_random());
	tensor(g, name, cols, rows, 0, b.data, b.n);
	free(b.data);
}

static inline void arch_oss(struct gguf_build *g, const struct arch_spec *s,
			    uint32_t i)
{
	uint64_t kv = (uint64_t)s->kv_heads * s->head_size;

	arch_bias(g, i, "attn_q.bias", (uint64_t)ARCH_HEADS * s->head_size, 0);
	arch_bias(g, i, "attn_k.bias", kv, 0);
	arch_bias(g, i, "attn_v.bias", kv, 0);
	arch_bias(g, i, "attn_output.bias", ARCH_HIDDEN, 0);
	arch_bias(g, i, "attn_sinks.weight", ARCH_HEADS, 0);
	arch_bias(g, i, "ffn_gate_inp.bias", ARCH_EXPERTS, 0);
	arch_bias(g, i, "ffn_gate_exps.bias", ARCH_EXPERT_FFN, ARCH_EXPERTS);
	arch_bias(g, i, "ffn_up_exps.bias", ARCH_EXPERT_FFN, ARCH_EXPERTS);
	arch_bias(g, i, "ffn_down_exps.bias", ARCH_HIDDEN, ARCH_EXPERTS);
}

static inline bool arch_has_experts(const struct arch_spec *s, uint32_t layer)
{
	return s->experts && !(s->sigmoid && !layer);
}

static inline void arch_mlp(struct gguf_build *g, const struct arch_spec *s,
			    uint32_t i)
{
	if (!arch_has_experts(s, i)) {
		if (!s->fused)
			arch_layer(g, i, "ffn_gate", ARCH_HIDDEN, ARCH_FFN);
		arch_layer(g, i, "ffn_up", ARCH_HIDDEN,
			   s->fused ? 2 * ARCH_FFN : ARCH_FFN);
		return;
	}
	arch_layer(g, i, "ffn_gate_inp", ARCH_HIDDEN, ARCH_EXPERTS);
	if (s->sigmoid)
		arch_bias(g, i, "exp_probs_b.bias", ARCH_EXPERTS, 0);
	arch_expert(g, s, i, "gate", 3, ARCH_HIDDEN, ARCH_EXPERT_FFN);
	arch_expert(g, s, i, "up", 39, ARCH_HIDDEN, ARCH_EXPERT_FFN);
	arch_expert(g, s, i, "down", 8, ARCH_EXPERT_FFN, ARCH_HIDDEN);
}

static inline bool arch_is_oss(const struct arch_spec *s)
{
	return !strncmp(s->name, "gpt-oss", 7);
}

static inline void arch_layers(struct gguf_build *g, const struct arch_spec *s)
{
	uint64_t q = (uint64_t)ARCH_HEADS * s->head_size;
	uint64_t kv = (uint64_t)s->kv_heads * s->head_size;

	for (uint32_t i = 0; i < s->layers; i++) {
		if (!s->no_norm_in) {
			arch_layer(g, i, "attn_norm", ARCH_HIDDEN, 0);
			arch_layer(g, i,
				   arch_is_oss(s) ? "post_attention_norm"
						  : "ffn_norm",
				   ARCH_HIDDEN, 0);
		}
		bool conv = s->conv >> i & 1;

		if (conv)
			arch_conv(g, i);
		else
			arch_attention(g, s, i);
		arch_mlp(g, s, i);
		if (!conv)
			arch_layer(g, i, "attn_output", q, ARCH_HIDDEN);
		if (!arch_has_experts(s, i))
			arch_layer(g, i, "ffn_down", ARCH_FFN, ARCH_HIDDEN);
		if (arch_is_oss(s))
			arch_oss(g, s, i);
		if (s->norm_out) {
			arch_layer(g, i, "post_attention_norm", ARCH_HIDDEN, 0);
			arch_layer(g, i, "post_ffw_norm", ARCH_HIDDEN, 0);
		}
		if (s->qk_norm && !conv) {
			arch_layer(g, i, "attn_q_norm",
				   s->qk_norm == 2 ? q : s->head_size, 0);
			arch_layer(g, i, "attn_k_norm",
				   s->qk_norm == 2 ? kv : s->head_size, 0);
		}
	}
}

static inline void arch_tokens(struct gguf_build *g)
{
	static const char *const first[] = {"<unk>", "<s>", "</s>"};
	char text[16];

	kv_str(g, "tokenizer.ggml.model", "llama");
	kv_array(g, "tokenizer.ggml.tokens", 8, ARCH_VOCAB);
	for (uint32_t i = 0; i < ARCH_VOCAB; i++) {
		if (i < 3)
			snprintf(text, sizeof(text), "%s", first[i]);
		else if (i < 259)
			snprintf(text, sizeof(text), "<0x%02X>", i - 3);
		else
			snprintf(text, sizeof(text), "t%u", i);
		put_str(&g->kvs, text);
	}
	kv_array(g, "tokenizer.ggml.scores", 6, ARCH_VOCAB);
	for (uint32_t i = 0; i < ARCH_VOCAB; i++)
		put_f32(&g->kvs, 0);
	kv_array(g, "tokenizer.ggml.token_type", 5, ARCH_VOCAB);
	for (uint32_t i = 0; i < ARCH_VOCAB; i++)
		put_u32(&g->kvs, i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1);
	kv_u32(g, "tokenizer.ggml.bos_token_id", 1);
	kv_u32(g, "tokenizer.ggml.eos_token_id", 2);
}

static inline void arch_build(struct gguf_build *g, const struct arch_spec *s)
{
	const struct {
		const char *name;
		uint32_t value;
	} keys[] = {
		{"block_count", s->layers},
		{"context_length", 64},
		{"embedding_length", ARCH_HIDDEN},
		{"feed_forward_length", ARCH_FFN},
		{"attention.head_count", ARCH_HEADS},
		{"attention.head_count_kv", s->conv ? 0 : s->kv_heads},
		{"shortconv.l_cache", s->conv ? ARCH_TAPS : 0},
		{"attention.key_length", s->head_size},
		{"attention.value_length", s->head_size},
		{"rope.dimension_count", s->head_size},
		{"attention.sliding_window", s->window},
		{"expert_count", s->experts ? ARCH_EXPERTS : 0},
		{"expert_used_count", s->experts ? 2 : 0},
		{"expert_feed_forward_length",
		 s->experts ? ARCH_EXPERT_FFN : 0},
		{"leading_dense_block_count", s->sigmoid},
		{"expert_gating_func", s->sigmoid ? 2 : 0},
		{"rope.scaling.original_context_length",
		 arch_is_oss(s) ? 16 : 0},
	};
	const char *arch = s->arch ? s->arch : s->name;
	char key[96];

	arch_state = 42;
	arch_now = s;
	kv_str(g, "general.architecture", arch);
	if (arch_is_oss(s))
		kv_str(g, "gpt-oss.rope.scaling.type", "yarn");
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		snprintf(key, sizeof(key), "%s.%s", arch, keys[i].name);
		if (keys[i].value)
			kv_u32(g, key, keys[i].value);
	}
	if (s->conv) {
		snprintf(key, sizeof(key), "%s.attention.head_count_kv", arch);
		kv_array(g, key, 4, s->layers);
		for (uint32_t i = 0; i < s->layers; i++)
			put_u32(&g->kvs, s->conv >> i & 1 ? 0 : s->kv_heads);
	}
	snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", arch);
	kv_f32(g, key, 1e-5f);
	snprintf(key, sizeof(key), "%s.rope.freq_base", arch);
	kv_f32(g, key, 5000);
	for (size_t i = 0; i < 4 && s->factors[i]; i++) {
		snprintf(key, sizeof(key), "%s.%s", arch, s->factors[i]);
		kv_f32(g, key, s->values[i]);
	}
	arch_tokens(g);
	arch_tensor(g, "token_embd.weight", ARCH_HIDDEN, ARCH_VOCAB, 1);
	if (s->untied)
		arch_tensor(g, "output.weight", ARCH_HIDDEN, ARCH_VOCAB, 1);
	arch_tensor(g,
		    s->conv ? "token_embd_norm.weight" : "output_norm.weight",
		    ARCH_HIDDEN, 0, 0);
	arch_layers(g, s);
}

#endif
