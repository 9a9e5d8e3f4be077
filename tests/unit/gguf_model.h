/* gguf_model.h - a small model of random blocks as a GGUF file, and its
 * import. */
#ifndef GENAI_TESTS_GGUF_MODEL_H
#define GENAI_TESTS_GGUF_MODEL_H

#include "core/gguf/blocks.h"
#include "core/gguf/gguf.h"
#include "tests/unit/gguf_build.h"
#include "tests/unit/model_read.h"

#define HIDDEN 256u
#define FFN 512u
#define HEADS 2u
#define HEAD 128u
#define KV 128u
#define VOCAB 9u

static char file[64], dir[64], partial[96];

static inline void setup(void)
{
	long pid = (long)getpid();

	snprintf(file, sizeof(file), "check_import.%ld.gguf", pid);
	snprintf(dir, sizeof(dir), "check_import.%ld.dir", pid);
	snprintf(partial, sizeof(partial), "%s.partial-%ld", dir, pid);
}

static inline void teardown(void)
{
	unlink(file);
	remove_tree(dir);
}

struct spec {
	const char *arch;
	uint32_t type, type_v, type_head; /* head 99: tied */
	bool bias, qk_norm;
	const char *skip;     /* this tensor is left out */
	const char *skip_key; /* this key is left out */
	void (*edit)(uint8_t *block, uint32_t type);
	bool spm;
	bool for_onnxruntime;
};

static const struct spec plain = {
	.arch = "llama", .type = 8, .type_v = 8, .type_head = 8};

static uint32_t rng_state;

static inline uint32_t rng(void)
{
	rng_state = rng_state * 1664525 + 1013904223;
	return rng_state >> 8;
}

/* Places of the half floats of a block. */
static inline void halves(uint32_t type, int at[2])
{
	static const int place[15][2] = {
		[2] = {0, -1}, [3] = {0, 2},	[6] = {0, -1},	  [7] = {0, 2},
		[8] = {0, -1}, [10] = {80, 82}, [11] = {108, -1}, [12] = {0, 2},
		[13] = {0, 2}, [14] = {208, -1}};

	at[0] = place[type][0];
	at[1] = place[type][1];
}

static inline void random_blocks(uint32_t type, uint64_t values,
				 struct bytes *out,
				 void (*edit)(uint8_t *, uint32_t))
{
	const struct genai_gguf_type *t = genai_gguf_type(type);

	for (uint64_t i = 0; i < values / t->values; i++) {
		uint8_t b[256];
		int at[2];

		for (uint32_t j = 0; j < t->bytes; j++)
			b[j] = (uint8_t)rng();
		if (t->unpack) {
			halves(type, at);
			for (int j = 0; j < 2; j++)
				if (at[j] >= 0) /* 2^-4 to 2^-3, any sign */
					b[at[j] + 1] =
						(b[at[j] + 1] & 0x83) | 0x2c;
			if (edit && i % 3 == 0)
				edit(b, type);
		} else if (t->bytes == 4) {
			b[3] = (b[3] & 0x80) | 0x3d;
		} else {
			b[1] = (b[1] & 0x83) | 0x3c;
		}
		put(out, b, t->bytes);
	}
}

static inline void matrix(struct gguf_build *g, const struct spec *s,
			  const char *name, uint64_t cols, uint64_t rows,
			  uint32_t type)
{
	struct bytes b = {0};

	if (s->skip && !strcmp(s->skip, name))
		return;
	random_blocks(type, cols * (rows ? rows : 1), &b, s->edit);
	tensor(g, name, cols, rows, type, b.data, b.n);
	free(b.data);
}

static inline void tokens(struct gguf_build *g, const struct spec *s)
{
	static const char *const bpe[VOCAB] = {"<e>", "<s>", "a",   "b",  "c",
					       "ab",  "abc", "<u>", "pad"};
	static const char *const spm[VOCAB] = {"<unk>", "<s>",	    "</s>",
					       "a",	"b",	    "\u2581",
					       "ab",	"\u2581ab", "\u2581a"};
	static const int types_bpe[VOCAB] = {3, 3, 1, 1, 1, 1, 1, 4, 5};
	static const int types_spm[VOCAB] = {2, 3, 3, 1, 1, 1, 1, 1, 1};
	static const float scores[VOCAB] = {0, 0, 0, -5, -6, -7, -2, -3, -2};

	kv_str(g, "tokenizer.ggml.model", s->spm ? "llama" : "gpt2");
	kv_str(g, "tokenizer.ggml.pre", s->spm ? "default" : "qwen2");
	kv_array(g, "tokenizer.ggml.tokens", 8, VOCAB);
	for (uint32_t i = 0; i < VOCAB; i++)
		put_str(&g->kvs, (s->spm ? spm : bpe)[i]);
	kv_array(g, "tokenizer.ggml.token_type", 5, VOCAB);
	for (uint32_t i = 0; i < VOCAB; i++)
		put_u32(&g->kvs, (uint32_t)(s->spm ? types_spm : types_bpe)[i]);
	if (s->spm) {
		kv_array(g, "tokenizer.ggml.scores", 6, VOCAB);
		for (uint32_t i = 0; i < VOCAB; i++)
			put_f32(&g->kvs, scores[i]);
	} else {
		kv_array(g, "tokenizer.ggml.merges", 8, 2);
		put_str(&g->kvs, "a b");
		put_str(&g->kvs, "ab c");
	}
	kv_u32(g, "tokenizer.ggml.bos_token_id", 1);
	kv_u32(g, "tokenizer.ggml.eos_token_id", s->spm ? 2 : 0);
	kv_str(g, "tokenizer.chat_template", "{{ messages }}\xc3\xa9");
}

static inline void arch_u32(struct gguf_build *g, const struct spec *s,
			    const char *name, uint32_t v)
{
	char key[96];

	snprintf(key, sizeof(key), "%s.%s", s->arch, name);
	if (!s->skip_key || strcmp(s->skip_key, name))
		kv_u32(g, key, v);
}

static inline void build(struct gguf_build *g, const struct spec *s)
{
	char key[96];

	rng_state = 12345;
	kv_str(g, "general.architecture", s->arch);
	arch_u32(g, s, "block_count", 1);
	arch_u32(g, s, "context_length", 64);
	arch_u32(g, s, "embedding_length", HIDDEN);
	arch_u32(g, s, "feed_forward_length", FFN);
	arch_u32(g, s, "attention.head_count", HEADS);
	arch_u32(g, s, "attention.head_count_kv", 1);
	snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon",
		 s->arch);
	kv_f32(g, key, 1e-5f);
	tokens(g, s);
	matrix(g, s, "token_embd.weight", HIDDEN, VOCAB, s->type);
	if (s->type_head != 99)
		matrix(g, s, "output.weight", HIDDEN, VOCAB, s->type_head);
	matrix(g, s, "output_norm.weight", HIDDEN, 0, 0);
	matrix(g, s, "blk.0.attn_norm.weight", HIDDEN, 0, 0);
	matrix(g, s, "blk.0.attn_q.weight", HIDDEN, HEADS * HEAD, s->type);
	matrix(g, s, "blk.0.attn_k.weight", HIDDEN, KV, s->type);
	matrix(g, s, "blk.0.attn_v.weight", HIDDEN, KV, s->type_v);
	if (s->bias) {
		matrix(g, s, "blk.0.attn_q.bias", HEADS * HEAD, 0, 0);
		matrix(g, s, "blk.0.attn_k.bias", KV, 0, 0);
		matrix(g, s, "blk.0.attn_v.bias", KV, 0, 0);
	}
	if (s->qk_norm) {
		matrix(g, s, "blk.0.attn_q_norm.weight", HEAD, 0, 0);
		matrix(g, s, "blk.0.attn_k_norm.weight", HEAD, 0, 0);
	}
	matrix(g, s, "blk.0.attn_output.weight", HEADS * HEAD, HIDDEN, s->type);
	matrix(g, s, "blk.0.ffn_norm.weight", HIDDEN, 0, 0);
	matrix(g, s, "blk.0.ffn_gate.weight", HIDDEN, FFN, s->type);
	matrix(g, s, "blk.0.ffn_up.weight", HIDDEN, FFN, s->type);
	matrix(g, s, "blk.0.ffn_down.weight", FFN, HIDDEN, s->type);
}

static inline int32_t import(struct gguf_build *g,
			     const struct genai_import_options *o,
			     struct genai_error *err)
{
	struct bytes b = {0};

	gguf_join(g, &b);
	write_file(file, b.data, b.n);
	free(b.data);
	gguf_free(g);
	return genai_gguf_import(file, dir, o, err);
}

static inline void import_spec(const struct spec *s)
{
	struct genai_import_options o = {
		.overwrite = true,
		.for_onnxruntime = s->for_onnxruntime,
	};
	struct genai_error err = GENAI_ERROR_INIT;
	struct gguf_build g = {0};
	int32_t rc;

	build(&g, s);
	rc = import(&g, &o, &err);
	ck_assert_msg(rc == GENAI_OK, "%s", err.text);
	ck_assert(!exists(partial));
}

#endif
