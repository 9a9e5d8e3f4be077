// check_gguf_import.c - GGUF models made here, imported, and looked into: each
// type's values, the order of rows, the graph of each architecture.
#include "tests/unit/gguf_model.h"
#include "tests/unit/harness.h"

#include <jansson.h>
#include <math.h>

// --- values

static uint64_t unpermuted(uint64_t row)
{
	uint64_t in = row % HEAD;

	return row - in + 2 * (in % (HEAD / 2)) + in / (HEAD / 2);
}

static void same(float got, float want, float tolerance)
{
	if (!(fabsf(got - want) <= tolerance))
		ck_abort_msg("%.9g is not %.9g", (double)got, (double)want);
}

// Rows of a GGUF tensor against rows [first, ...) of the folder's matrix.
static void compare(struct model *m, const char *tensor_name,
		    const char *weight, uint64_t first, bool permuted)
{
	struct genai_gguf *g = NULL;
	const struct genai_gguf_tensor *t;
	const struct genai_gguf_type *type;
	struct init codes, scales, zero, terms;
	char name[128];
	float want[FFN];

	ck_assert_int_eq(genai_gguf_open(file, &g, NULL), GENAI_OK);
	t = genai_gguf_tensor_find(g, tensor_name);
	ck_assert_ptr_nonnull(t);
	type = genai_gguf_type(t->type);
	snprintf(name, sizeof(name), "%s%s", weight,
		 !type->unpack	   ? ""
		 : type->bits == 4 ? "_Q4"
				   : "_Q8");
	codes = model_init(m, name);
	ck_assert_msg(codes.found, "no %s", name);
	snprintf(name, sizeof(name), "%s_scales", weight);
	scales = model_init(m, name);
	snprintf(name, sizeof(name), "%s_zero_points", weight);
	zero = model_init(m, name);
	snprintf(name, sizeof(name), "%s_offsets", weight);
	terms = model_init(m, name);
	if (terms.found) {
		ck_assert(!zero.found);
		zero = (struct init){.found = true, .dtype = 2};
	}
	for (uint64_t r = 0; r < t->dims[1]; r++) {
		uint64_t from = permuted ? unpermuted(r) : r, row = first + r;

		genai_gguf_values(type,
				  t->data + from * t->dims[0] / type->values *
						    type->bytes,
				  t->dims[0] / type->values, want);
		for (uint64_t c = 0; c < t->dims[0]; c++) {
			uint64_t block = type->unpack ? c / type->sub : 0;
			float got, largest = 0;

			if (!type->unpack) {
				same(init_float(&codes,
						c * codes.dims[1] + row),
				     want[c], 0);
				continue;
			}
			got = block_value(&codes, &scales, &zero, type->bits,
					  t->dims[0], row, c);
			if (terms.found) // products take [blocks, rows]
				got += init_float(&terms,
						  block * terms.dims[1] + row);
			for (uint32_t i = 0; i < type->sub; i++)
				largest = fmaxf(
					largest,
					fabsf(want[block * type->sub + i]));
			same(got, want[c],
			     zero.found && zero.dtype == 1 ? 2.4e-7f * largest
							   : 0);
		}
	}
	genai_gguf_close(g);
}

static void compare_all(struct model *m, bool permuted)
{
	static const char qkv[] = "model.layers.0.attn.qkv_proj.MatMul.weight";

	compare(m, "blk.0.attn_q.weight", qkv, 0, permuted);
	compare(m, "blk.0.attn_k.weight", qkv, HEADS * HEAD, permuted);
	compare(m, "blk.0.attn_v.weight", qkv, HEADS * HEAD + KV, false);
	compare(m, "blk.0.attn_output.weight",
		"model.layers.0.attn.o_proj.MatMul.weight", 0, false);
	compare(m, "blk.0.ffn_gate.weight",
		"model.layers.0.mlp.gate_proj.MatMul.weight", 0, false);
	compare(m, "blk.0.ffn_up.weight",
		"model.layers.0.mlp.up_proj.MatMul.weight", 0, false);
	compare(m, "blk.0.ffn_down.weight",
		"model.layers.0.mlp.down_proj.MatMul.weight", 0, false);
}

// An embedding of blocks has all its values exactly.
static void compare_embedding(struct model *m, const char *weight)
{
	struct genai_gguf *g = NULL;
	const struct genai_gguf_tensor *t;
	const struct genai_gguf_type *type;
	struct init codes, scales, terms;
	struct init zero = {.found = true, .dtype = 2};
	char name[128];
	float want[HIDDEN];

	ck_assert_int_eq(genai_gguf_open(file, &g, NULL), GENAI_OK);
	t = genai_gguf_tensor_find(g, "token_embd.weight");
	type = genai_gguf_type(t->type);
	snprintf(name, sizeof(name), "%s_Q%u", weight, type->bits);
	codes = model_init(m, name);
	snprintf(name, sizeof(name), "%s_scales", weight);
	scales = model_init(m, name);
	terms = model_init(m, "model.embed_tokens.weight_offsets");
	ck_assert(codes.found && scales.found);
	ck_assert_int_eq(terms.found, type->affine);
	for (uint64_t r = 0; r < VOCAB; r++) {
		uint64_t blocks = HIDDEN / type->values;

		genai_gguf_values(type, t->data + r * blocks * type->bytes,
				  blocks, want);
		for (uint64_t c = 0; c < HIDDEN; c++) {
			float got = block_value(&codes, &scales,
						type->affine ? &zero : NULL,
						type->bits, HIDDEN, r, c);

			if (terms.found)
				got += init_float(&terms,
						  r * terms.dims[1] +
							  c / type->sub);
			same(got, want[c], 0);
		}
	}
	genai_gguf_close(g);
}

// form and exactness of a tensor, from import.json
static void reported(const char *name, const char *form, bool exact)
{
	char path[128];
	json_t *root, *t;
	size_t i;
	bool found = false;

	snprintf(path, sizeof(path), "%s/import.json", dir);
	root = json_load_file(path, 0, NULL);
	json_array_foreach(json_object_get(root, "tensors"), i, t)
	{
		if (strcmp(json_string_value(json_object_get(t, "name")), name))
			continue;
		found = true;
		ck_assert_str_eq(json_string_value(json_object_get(t, "form")),
				 form);
		ck_assert_int_eq(json_is_true(json_object_get(t, "exact")),
				 exact);
		ck_assert_double_le(
			json_number_value(json_object_get(t, "max_error")),
			exact ? 0 : 2.4e-7);
	}
	ck_assert(found);
	json_decref(root);
}

static const struct {
	uint32_t type;
	const char *form;
	bool exact;
} forms[] = {
	{0, "float32", true},
	{1, "float16", true},
	{30, "bfloat16", true},
	{2, "4-bit codes, block 32", true},
	{3, "4-bit codes, block 32, float zero points", false},
	{6, "8-bit codes, block 32", true},
	{7, "8-bit codes, block 32, offsets as a second term", true},
	{8, "8-bit codes, block 32", true},
	{10, "4-bit codes, block 16, float zero points", false},
	{11, "4-bit codes, block 16", true},
	{12, "4-bit codes, block 32, float zero points", false},
	{13, "8-bit codes, block 32, offsets as a second term", true},
	{14, "8-bit codes, block 16", true},
};

START_TEST(each_type_keeps_its_values)
{
	struct spec s = plain;
	struct model m;

	s.type = s.type_v = forms[_i].type;
	s.type_head = _i % 2 ? 99 : s.type;
	import_spec(&s);
	model_open(&m, dir);
	compare_all(&m, true);
	compare(&m, s.type_head == 99 ? "token_embd.weight" : "output.weight",
		"lm_head.MatMul.weight", 0, false);
	if (genai_gguf_type(s.type)->unpack)
		compare_embedding(&m, s.type_head == 99
					      ? "lm_head.MatMul.weight"
					      : "model.embed_tokens.weight");
	reported("blk.0.ffn_up.weight", forms[_i].form, forms[_i].exact);
	reported("blk.0.attn_norm.weight", "float32", true);
	model_close(&m);
}
END_TEST

static void no_scale(uint8_t *b, uint32_t type)
{
	int at[2];

	halves(type, at);
	b[at[0]] = b[at[0] + 1] = 0;
}

// scale * 8 and an offset that takes nearly all of it away: what is left is
// small against the rounding of a zero point near 8.
static void cancelling(uint8_t *b, uint32_t type)
{
	b[0] = 0x41;
	b[1] = 0x15;
	b[2] = 0x40; // one unit less than -8 * scale
	b[3] = 0xa1;
	for (uint32_t i = 4; i < genai_gguf_type(type)->bytes; i++)
		b[i] = 0x88;
}

START_TEST(blocks_without_scale)
{
	static const uint32_t types[] = {3, 7, 12, 13, 10};
	struct spec s = plain;
	struct model m;

	s.type = s.type_v = types[_i];
	s.type_head = 99;
	s.edit = no_scale;
	import_spec(&s);
	model_open(&m, dir);
	compare_all(&m, true);
	compare_embedding(&m, "lm_head.MatMul.weight");
	model_close(&m);
}
END_TEST

START_TEST(coarse_zero_points_become_terms)
{
	struct spec s = plain;
	struct model m;

	s.type = s.type_v = 3;
	s.edit = cancelling;
	import_spec(&s);
	model_open(&m, dir);
	compare_all(&m, true);
	reported("blk.0.ffn_up.weight",
		 "4-bit codes, block 32, offsets as a second term", true);
	model_close(&m);
}
END_TEST

// Of every type of 4 bits with offsets: exact, codes with zero points of zero.
START_TEST(fast_form_of_onnxruntime)
{
	static const uint32_t types[] = {3, 10, 12};
	static const char level[] = "accuracy_level\x18\x04";
	struct spec s = plain;
	struct model m;

	s.type = s.type_v = types[_i];
	s.for_onnxruntime = true;
	import_spec(&s);
	model_open(&m, dir);
	compare_all(&m, true);
	reported("blk.0.ffn_up.weight",
		 types[_i] == 10
			 ? "4-bit codes, block 16, offsets as a second term"
			 : "4-bit codes, block 32, offsets as a second term",
		 true);
	ck_assert_ptr_nonnull(
		memmem(m.graph.p, m.graph.n, level, sizeof(level) - 1));
	model_close(&m);
}
END_TEST

static void vector_is(struct model *m, const char *name, const char *from,
		      uint64_t first, bool permuted)
{
	struct genai_gguf *g = NULL;
	const struct genai_gguf_tensor *t;
	struct init v = model_init(m, name);
	float want[HIDDEN];

	ck_assert(v.found);
	ck_assert_int_eq(genai_gguf_open(file, &g, NULL), GENAI_OK);
	t = genai_gguf_tensor_find(g, from);
	genai_gguf_values(genai_gguf_type(0), t->data, t->dims[0], want);
	for (uint64_t i = 0; i < t->dims[0]; i++)
		ck_assert(init_float(&v, first + i) ==
			  want[permuted ? unpermuted(i) : i]);
	genai_gguf_close(g);
}

START_TEST(qwen_graphs)
{
	struct spec s = plain;
	struct model m;

	s.arch = "qwen3";
	s.bias = s.qk_norm = true;
	s.type_v = 14; // another form: q, k and v stay apart
	import_spec(&s);
	model_open(&m, dir);
	compare(&m, "blk.0.attn_q.weight",
		"model.layers.0.attn.q_proj.MatMul.weight", 0, false);
	compare(&m, "blk.0.attn_v.weight",
		"model.layers.0.attn.v_proj.MatMul.weight", 0, false);
	vector_is(&m, "model.layers.0.attn.k_proj.Add.bias",
		  "blk.0.attn_k.bias", 0, false);
	vector_is(&m, "model.layers.0.attn.q_norm.layernorm.weight",
		  "blk.0.attn_q_norm.weight", 0, false);
	vector_is(&m, "model.layers.0.post_attention_layernorm.weight",
		  "blk.0.ffn_norm.weight", 0, false);
	vector_is(&m, "model.layers.1.final_norm_layernorm.weight",
		  "output_norm.weight", 0, false);
	ck_assert_int_eq(model_nodes(&m, "Split"), 0);
	ck_assert_int_eq(model_nodes(&m, "SimplifiedLayerNormalization"), 3);
	ck_assert_int_eq(model_nodes(&m, "GroupQueryAttention"), 1);
	ck_assert_int_eq(model_nodes(&m, "MatMulNBits"), 8);
	model_close(&m);
	// as it was before its norms: rows in order, biases
	s.arch = "qwen2";
	s.qk_norm = false;
	import_spec(&s);
	model_open(&m, dir);
	compare(&m, "blk.0.attn_q.weight",
		"model.layers.0.attn.q_proj.MatMul.weight", 0, false);
	vector_is(&m, "model.layers.0.attn.k_proj.Add.bias",
		  "blk.0.attn_k.bias", 0, false);
	ck_assert_int_eq(model_nodes(&m, "GroupQueryAttention"), 1);
	model_close(&m);
	s.arch = "llama";
	s.type_v = 8;
	import_spec(&s);
	model_open(&m, dir);
	vector_is(&m, "model.layers.0.attn.qkv_proj.Add.bias",
		  "blk.0.attn_k.bias", HEADS * HEAD, true);
	ck_assert_int_eq(model_nodes(&m, "MatMulNBits"), 6);
	model_close(&m);
}
END_TEST

START_TEST(rotation)
{
	struct genai_import_options o = {.overwrite = true};
	struct gguf_build g = {0};
	struct bytes f = {0};
	struct init cosv, sinv;
	struct model m;

	build(&g, &plain);
	kv_f32(&g, "llama.rope.freq_base", 100);
	kv_str(&g, "llama.rope.scaling.type", "linear");
	kv_f32(&g, "llama.rope.scaling.factor", 2);
	for (int i = 0; i < 64; i++)
		put_f32(&f, i == 32 ? 5 : 1);
	tensor(&g, "rope_freqs.weight", 64, 0, 0, f.data, f.n);
	free(f.data);
	ck_assert_int_eq(import(&g, &o, NULL), GENAI_OK);
	model_open(&m, dir);
	cosv = model_init(&m, "cos_cache");
	sinv = model_init(&m, "sin_cache");
	ck_assert_uint_eq(cosv.dims[0], 64);
	ck_assert_uint_eq(cosv.dims[1], 64);
	ck_assert(init_float(&cosv, 0) == 1 && init_float(&sinv, 0) == 0);
	// rates: 1 / 2 and 100^(-1/2) / 5 / 2
	ck_assert_float_eq_tol(init_float(&cosv, 3 * 64), cosf(1.5f), 1e-6f);
	ck_assert_float_eq_tol(init_float(&sinv, 63 * 64 + 32), sinf(0.63f),
			       1e-6f);
	model_close(&m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("gguf_import");
	TCase *c = tcase_create("gguf_import");

	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_loop_test(c, each_type_keeps_its_values, 0,
			    sizeof(forms) / sizeof(forms[0]));
	tcase_add_loop_test(c, blocks_without_scale, 0, 5);
	tcase_add_test(c, coarse_zero_points_become_terms);
	tcase_add_loop_test(c, fast_form_of_onnxruntime, 0, 3);
	tcase_add_test(c, qwen_graphs);
	tcase_add_test(c, rotation);
	suite_add_tcase(s, c);
	return genai_check_main(s);
}
