// check_gguf_refuse.c - GGUF models made here: the tokenizer and the settings
// they are given, and those that are refused.
#include "tests/unit/gguf_arch.h"
#include "tests/unit/gguf_model.h"
#include "tests/unit/harness.h"

#include <jansson.h>

// --- tokenizer and settings

static json_t *load(const char *name)
{
	char path[128];
	json_t *j;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	j = json_load_file(path, 0, NULL);
	ck_assert_msg(j != NULL, "%s", name);
	return j;
}

// The part of a JSON text that lies under a path of keys is this.
static void part_is(json_t *root, const char *path, const char *want)
{
	char *got, key[32];
	json_t *j = root, *w;

	while (*path) {
		size_t n = strcspn(path, ".");

		snprintf(key, sizeof(key), "%.*s", (int)n, path);
		j = json_is_array(j) ? json_array_get(j, (size_t)atoi(key))
				     : json_object_get(j, key);
		path += n + (path[n] == '.');
	}
	w = json_loads(want, JSON_DECODE_ANY, NULL);
	ck_assert_ptr_nonnull(w);
	got = json_dumps(j, JSON_ENCODE_ANY | JSON_COMPACT);
	ck_assert_msg(json_equal(j, w), "%s is not %s", got, want);
	free(got);
	json_decref(w);
}

START_TEST(byte_pair_tokenizer)
{
	json_t *j;
	char path[128];
	uint8_t *text;
	size_t n;

	import_spec(&plain);
	j = load("tokenizer.json");
	part_is(j, "model.type", "\"BPE\"");
	part_is(j, "model.merges", "[[\"a\",\"b\"],[\"ab\",\"c\"]]");
	part_is(j, "model.vocab",
		"{\"<e>\":0,\"<s>\":1,\"a\":2,\"b\":3,\"c\":4,\"ab\":5,"
		"\"abc\":6,\"<u>\":7}");
	part_is(j, "added_tokens.0.content", "\"<e>\"");
	part_is(j, "added_tokens.0.special", "true");
	part_is(j, "added_tokens.2.content", "\"<u>\"");
	part_is(j, "added_tokens.2.special", "false");
	part_is(j, "normalizer.type", "\"NFC\"");
	part_is(j, "post_processor", "null");
	part_is(j, "pre_tokenizer.pretokenizers.0.pattern.Regex",
		"\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
		"\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"
		"\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"");
	json_decref(j);
	j = load("tokenizer_config.json");
	part_is(j, "bos_token", "\"<s>\"");
	part_is(j, "eos_token", "\"<e>\"");
	part_is(j, "chat_template", "\"{{ messages }}\\u00e9\"");
	json_decref(j);
	j = load("genai_config.json");
	part_is(j, "model.type", "\"llama\"");
	part_is(j, "model.vocab_size", "9");
	part_is(j, "model.context_length", "64");
	part_is(j, "model.bos_token_id", "1");
	part_is(j, "model.eos_token_id", "0");
	part_is(j, "model.pad_token_id", "0");
	part_is(j, "model.decoder.head_size", "128");
	part_is(j, "model.decoder.num_key_value_heads", "1");
	part_is(j, "search.max_length", "64");
	json_decref(j);
	snprintf(path, sizeof(path), "%s/chat_template.jinja", dir);
	text = read_all(path, &n);
	ck_assert_str_eq((char *)text, "{{ messages }}\xc3\xa9");
	free(text);
}
END_TEST

START_TEST(sentencepiece_tokenizer)
{
	struct spec s = plain;
	json_t *j;

	s.spm = true;
	import_spec(&s);
	j = load("tokenizer.json");
	// by score, then the longer left part
	part_is(j, "model.merges",
		"[[\"a\",\"b\"],[\"\\u2581\",\"a\"],[\"\\u2581a\",\"b\"],"
		"[\"\\u2581\",\"ab\"]]");
	part_is(j, "model.unk_token", "\"<unk>\"");
	part_is(j, "model.byte_fallback", "true");
	part_is(j, "normalizer.normalizers.0",
		"{\"type\":\"Prepend\",\"prepend\":\"\\u2581\"}");
	part_is(j, "pre_tokenizer", "null");
	part_is(j, "post_processor.single.0.SpecialToken.id", "\"<s>\"");
	part_is(j, "post_processor.special_tokens",
		"{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]}}");
	part_is(j, "decoder.decoders.3.type", "\"Strip\"");
	json_decref(j);
}
END_TEST

// --- refusals: code and words, and nothing is left behind

static void refused(struct gguf_build *g, int32_t code, const char *words)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc = import(g, NULL, &err);

	ck_assert_msg(rc == code && strstr(err.text, words),
		      "want %d '%s', got %d '%s'", code, words, rc, err.text);
	ck_assert(!exists(dir));
	ck_assert(!exists(partial));
}

static void refused_spec(const struct spec *s, int32_t code, const char *words)
{
	struct gguf_build g = {0};

	build(&g, s);
	refused(&g, code, words);
}

START_TEST(refuses_models)
{
	struct spec s = plain;
	struct gguf_build g = {0};
	static const float one[8] = {1};

	s.arch = "mamba";
	refused_spec(&s, GENAI_E_UNSUPPORTED, "architecture 'mamba'");
	s = plain;
	s.skip = "blk.0.ffn_up.weight";
	refused_spec(&s, GENAI_E_FORMAT, "no tensor blk.0.ffn_up.weight");
	s.skip = "token_embd.weight";
	refused_spec(&s, GENAI_E_FORMAT, "token_embd.weight");
	s.skip = "output_norm.weight";
	refused_spec(&s, GENAI_E_FORMAT, "no tensor");
	s = plain;
	s.skip_key = "block_count";
	refused_spec(&s, GENAI_E_FORMAT, "no key llama.block_count");
	s.skip_key = "attention.head_count_kv"; // then 2: k has too few rows
	refused_spec(&s, GENAI_E_FORMAT, "blk.0.attn_k.weight: dimensions");
	build(&g, &plain);
	tensor(&g, "blk.0.ffn_gate_exps.weight", 8, 0, 0, one, sizeof(one));
	refused(&g, GENAI_E_UNSUPPORTED, "blk.0.ffn_gate_exps.weight is not");
}
END_TEST

START_TEST(refuses_settings)
{
	struct gguf_build g = {0};

	build(&g, &plain);
	kv_u32(&g, "llama.expert_count", 8);
	refused(&g, GENAI_E_UNSUPPORTED, "llama.expert_count");
	// what is not known may change what the model computes
	build(&g, &plain);
	kv_f32(&g, "llama.attention.temperature_scale", 0.1f);
	refused(&g, GENAI_E_UNSUPPORTED,
		"key llama.attention.temperature_scale is not carried");
	build(&g, &plain);
	kv_bool(&g, "llama.attention.causal", 0);
	refused(&g, GENAI_E_UNSUPPORTED, "key llama.attention.causal");
	build(&g, &plain);
	kv_str(&g, "llama.tensor_data_layout", "Meta AI original pth");
	refused(&g, GENAI_E_UNSUPPORTED, "key llama.tensor_data_layout");
	build(&g, &plain);
	kv_u32(&g, "llama.attention.sliding_window", 16);
	refused(&g, GENAI_E_UNSUPPORTED, "sliding window of 16");
	build(&g, &plain);
	kv_str(&g, "llama.rope.scaling.type", "yarn");
	refused(&g, GENAI_E_UNSUPPORTED, "'yarn'");
	build(&g, &plain);
	kv_u32(&g, "llama.rope.dimension_count", 64);
	refused(&g, GENAI_E_UNSUPPORTED, "64 of 128 channels");
	build(&g, &plain);
	kv_u32(&g, "llama.attention.value_length", 64);
	refused(&g, GENAI_E_UNSUPPORTED, "value heads of 64");
	build(&g, &plain);
	kv_str(&g, "llama.rope.freq_base", "1e4");
	refused(&g, GENAI_E_FORMAT, "llama.rope.freq_base");
	{
		struct spec s = plain;

		s.skip_key = "context_length";
		build(&g, &s);
		kv_u32(&g, "llama.context_length", 1u << 31);
		refused(&g, GENAI_E_FORMAT, "llama.context_length is no");
		build(&g, &s);
		kv_u32(&g, "llama.context_length", 1u << 21);
		kv_u32(&g, "llama.attention.key_length", 256);
		kv_u32(&g, "llama.attention.value_length", 256);
		refused(&g, GENAI_E_LIMIT, "536870912 values");
		s.skip_key = "attention.head_count";
		build(&g, &s);
		kv_array(&g, "llama.attention.head_count", 4, 1);
		put_u32(&g.kvs, 2);
		refused(&g, GENAI_E_UNSUPPORTED, "differs between layers");
	}
}
END_TEST

static void rename_key(struct gguf_build *g, const char *key)
{
	uint8_t *p = memmem(g->kvs.data, g->kvs.n, key, strlen(key));

	ck_assert_ptr_nonnull(p);
	*p = '_';
}

// The plain model with one key of its tokenizer renamed, so that another one
// can stand in for it.
static void without(struct gguf_build *g, const char *key)
{
	build(g, &plain);
	rename_key(g, key);
}

// A file of LFM2 whose key is another one: a list of n numbers, or a number.
static void lfm2_with(struct gguf_build *g, const char *key,
		      const uint32_t *list, uint32_t n, uint32_t number)
{
	const struct arch_spec *s = arch_specs;

	while (strcmp(s->name, "lfm2"))
		s++;
	memset(g, 0, sizeof(*g));
	arch_build(g, s);
	rename_key(g, key);
	if (n)
		kv_array(g, key, 4, n);
	for (uint32_t i = 0; i < n; i++)
		put_u32(&g->kvs, list[i]);
	if (number)
		kv_u32(g, key, number);
}

START_TEST(convolutions)
{
	static const char heads[] = "lfm2.attention.head_count_kv";
	static const char taps[] = "lfm2.shortconv.l_cache";
	static const uint32_t short_list[] = {0, 0, 2}, none[4] = {0};
	static const uint32_t mixed[] = {0, 1, 2, 0}, less[] = {0, 2, 2, 0};
	struct gguf_build g;

	lfm2_with(&g, heads, short_list, 3, 0);
	refused(&g, GENAI_E_FORMAT, "is no list of 4 numbers");
	lfm2_with(&g, heads, mixed, 4, 0);
	refused(&g, GENAI_E_UNSUPPORTED,
		"head_count_kv of layer 2 is neither 0 nor that of the others");
	lfm2_with(&g, heads, none, 4, 0);
	refused(&g, GENAI_E_UNSUPPORTED, "a model without attention");
	lfm2_with(&g, heads, less, 4, 0);
	refused(&g, GENAI_E_FORMAT, "no tensor blk.1.attn_q.weight");
	lfm2_with(&g, taps, NULL, 0, 0);
	refused(&g, GENAI_E_FORMAT, "no key lfm2.shortconv.l_cache");
	lfm2_with(&g, taps, NULL, 0, 1);
	refused(&g, GENAI_E_UNSUPPORTED, "a convolution without a state");
	lfm2_with(&g, taps, NULL, 0, 4);
	refused(&g, GENAI_E_FORMAT,
		"blk.0.shortconv.conv.weight: dimensions 3 x 32, expected 4 x "
		"32");
}
END_TEST

// What says nothing is carried.
START_TEST(keys_that_change_nothing)
{
	struct genai_import_options o = {.overwrite = true};
	struct genai_error err = GENAI_ERROR_INIT;
	struct gguf_build g = {0};

	build(&g, &plain);
	kv_u32(&g, "llama.expert_count", 0);
	kv_bool(&g, "llama.attention.causal", 1);
	kv_bool(&g, "llama.use_parallel_residual", 0);
	kv_u32(&g, "llama.vocab_size", VOCAB);
	ck_assert_msg(!import(&g, &o, &err), "%s", err.text);
}
END_TEST

// The end of a turn is in the template only.
START_TEST(an_end_that_the_template_names)
{
	struct genai_import_options o = {.overwrite = true};
	struct genai_error err = GENAI_ERROR_INIT;
	struct gguf_build g = {0};
	json_t *j;

	without(&g, "tokenizer.ggml.tokens");
	kv_array(&g, "tokenizer.ggml.tokens", 8, VOCAB);
	for (uint32_t i = 0; i < VOCAB; i++)
		put_str(&g.kvs, (const char *const[]){
					"<e>", "<s>", "a", "b", "c", "ab",
					"abc", "<|im_end|>", "<|end|>"}[i]);
	rename_key(&g, "tokenizer.chat_template");
	kv_str(&g, "tokenizer.chat_template", "{{ messages }}<|im_end|>");
	ck_assert_msg(!import(&g, &o, &err), "%s", err.text);
	j = load("genai_config.json");
	part_is(j, "model.eos_token_id", "[0,7]");
	json_decref(j);
}
END_TEST

// That of GPT-OSS.
START_TEST(o200k_tokenizer)
{
	struct genai_import_options o = {.overwrite = true};
	struct genai_error err = GENAI_ERROR_INIT;
	struct gguf_build g = {0};
	json_t *j;

	without(&g, "tokenizer.ggml.pre");
	kv_str(&g, "tokenizer.ggml.pre", "gpt-4o");
	ck_assert_msg(!import(&g, &o, &err), "%s", err.text);
	j = load("tokenizer.json");
	part_is(j, "model.ignore_merges", "true");
	part_is(j, "normalizer", "null");
	part_is(j, "pre_tokenizer.pretokenizers.0.pattern.Regex",
		"\"[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}"
		"\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+"
		"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
		"[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+[\\\\p{Ll}"
		"\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
		"\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|"
		"\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"");
	json_decref(j);
}
END_TEST

static void letters(struct gguf_build *g, const char *odd)
{
	without(g, "tokenizer.ggml.tokens");
	kv_array(g, "tokenizer.ggml.tokens", 8, 9);
	for (int i = 0; i < 9; i++) {
		char t[2] = {(char)('a' + i), 0};

		put_str(&g->kvs, i == 7 ? odd : t);
	}
}

START_TEST(refuses_tokenizers)
{
	struct gguf_build g = {0};

	without(&g, "tokenizer.ggml.model");
	kv_str(&g, "tokenizer.ggml.model", "bert");
	refused(&g, GENAI_E_UNSUPPORTED, "tokenizer model 'bert'");
	without(&g, "tokenizer.ggml.pre");
	kv_str(&g, "tokenizer.ggml.pre", "chameleon");
	refused(&g, GENAI_E_UNSUPPORTED, "'chameleon'");
	without(&g, "tokenizer.ggml.tokens");
	refused(&g, GENAI_E_FORMAT, "tokenizer.ggml.tokens");
	without(&g, "tokenizer.ggml.tokens");
	kv_array(&g, "tokenizer.ggml.tokens", 0, 9); // bytes, not strings
	put_u64(&g.kvs, 0);
	put_le(&g.kvs, 0, 1);
	refused(&g, GENAI_E_FORMAT, "tokenizer.ggml.tokens");
	letters(&g, "a");
	refused(&g, GENAI_E_UNSUPPORTED, "tokens 0 and 7 have the same text");
	letters(&g, "\xff");
	refused(&g, GENAI_E_FORMAT, "token 7 is not UTF-8");
	letters(&g, "z");
	refused(&g, GENAI_E_FORMAT, "merge 0 'a b' makes no token");
	without(&g, "tokenizer.ggml.token_type");
	kv_array(&g, "tokenizer.ggml.token_type", 0, 9); // a byte each
	put_u64(&g.kvs, 0);
	put_le(&g.kvs, 0, 1);
	refused(&g, GENAI_E_FORMAT, "tokenizer.ggml.token_type");
	without(&g, "tokenizer.ggml.merges");
	kv_array(&g, "tokenizer.ggml.merges", 8, 1);
	put_str(&g.kvs, "ab");
	refused(&g, GENAI_E_FORMAT, "merge 0 'ab' is no pair");
	without(&g, "tokenizer.chat_template");
	kv_str(&g, "tokenizer.chat_template", "\xc3");
	refused(&g, GENAI_E_FORMAT, "chat template 'default' is not UTF-8");
}
END_TEST

START_TEST(truncated_models_leave_nothing)
{
	struct gguf_build g = {0};
	struct bytes b = {0};

	build(&g, &plain);
	gguf_join(&g, &b);
	for (size_t n = 0; n < b.n; n += n < 100 ? 1 : n < 2200 ? 13 : 99991) {
		struct genai_error err = GENAI_ERROR_INIT;

		write_file(file, b.data, n);
		ck_assert_int_eq(genai_gguf_import(file, dir, NULL, &err),
				 GENAI_E_FORMAT);
		ck_assert(!exists(dir));
	}
	gguf_free(&g);
	free(b.data);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gguf_refuse");
	TCase *c = tcase_create("gguf_refuse");

	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, byte_pair_tokenizer);
	tcase_add_test(c, o200k_tokenizer);
	tcase_add_test(c, sentencepiece_tokenizer);
	tcase_add_test(c, refuses_models);
	tcase_add_test(c, refuses_settings);
	tcase_add_test(c, convolutions);
	tcase_add_test(c, keys_that_change_nothing);
	tcase_add_test(c, an_end_that_the_template_names);
	tcase_add_test(c, refuses_tokenizers);
	tcase_add_test(c, truncated_models_leave_nothing);
	suite_add_tcase(s, c);
	return genai_check_main(s);
}
