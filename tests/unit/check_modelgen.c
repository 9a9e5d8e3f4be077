// check_modelgen.c - the protobuf writer byte by byte, folders with random
// weights looked into, and how a folder appears or does not.
#include "core/modelgen/modelgen.h"
#include "core/modelgen/wire.h"
#include "tests/unit/harness.h"
#include "tests/unit/model_read.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char dir[64], other[64], partial[96];

static void setup(void)
{
	long pid = (long)getpid();

	snprintf(dir, sizeof(dir), "check_modelgen.%ld.dir", pid);
	snprintf(other, sizeof(other), "check_modelgen.%ld.other", pid);
	snprintf(partial, sizeof(partial), "%s.partial-%ld", dir, pid);
}

static void teardown(void)
{
	remove_tree(dir);
	remove_tree(other);
}

START_TEST(wire_bytes)
{
	static const uint8_t want[] = {
		0x08, 0x96, 0x01,				// 1: 150
		0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, // 2: -1
		0xff, 0xff, 0x01, 0x1d, 0x00, 0x00, 0x80, 0x3f, // 3: 1.0f
		0xa2, 0x01, 0x02, 'h',	'i',			// 20: "hi"
		0x2a, 0x06, 0x32, 0x04, 0x08, 0x07, 0x32, 0x00, // 5: {6: ...}
	};
	struct genai_wire w = {0}, big = {0};
	size_t a, b;

	genai_wire_int(&w, 1, 150);
	genai_wire_int(&w, 2, -1);
	genai_wire_float(&w, 3, 1);
	genai_wire_string(&w, 20, "hi");
	a = genai_wire_begin(&w, 5);
	b = genai_wire_begin(&w, 6);
	genai_wire_int(&w, 1, 7);
	genai_wire_end(&w, genai_wire_begin(&w, 6));
	genai_wire_end(&w, b);
	genai_wire_end(&w, a);
	ck_assert_uint_eq(w.bytes, sizeof(want));
	ck_assert_mem_eq(w.data, want, sizeof(want));
	// a body of 300 bytes needs a length of two
	a = genai_wire_begin(&big, 1);
	for (int i = 0; i < 150; i++)
		genai_wire_int(&big, 1, 1);
	genai_wire_end(&big, a);
	ck_assert_uint_eq(big.bytes, 303);
	ck_assert_uint_eq(big.data[1], 0xac);
	ck_assert_uint_eq(big.data[2], 0x02);
	ck_assert_uint_eq(big.data[302], 1);
	genai_wire_free(&w);
	genai_wire_free(&big);
	ck_assert_ptr_null(w.data);
}
END_TEST

static void synth(const char *arch, const char *to,
		  const struct genai_synth_options *o)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc = genai_synth(arch, to, o, &err);

	ck_assert_msg(rc == GENAI_OK, "%s", err.text);
}

static bool same_file(const char *name)
{
	char path[128];
	uint8_t *a, *b;
	size_t n, m;
	bool same;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	a = read_all(path, &n);
	snprintf(path, sizeof(path), "%s/%s", other, name);
	b = read_all(path, &m);
	same = n == m && !memcmp(a, b, n);
	free(a);
	free(b);
	return same;
}

START_TEST(same_seed_same_bytes)
{
	struct genai_synth_options o = {.seed = 7};

	synth("tiny-llama", dir, &o);
	synth("TINY-LLAMA", other, &o);
	ck_assert(same_file("model.onnx"));
	ck_assert(same_file("model.onnx.data"));
	ck_assert(same_file("tokenizer.json"));
	o.seed = 8;
	o.overwrite = true;
	synth("tiny-llama", other, &o);
	ck_assert(same_file("model.onnx"));
	ck_assert(!same_file("model.onnx.data"));
}
END_TEST

// Mean and deviation of a matrix times the square root of its width; both
// extremes of the codes are there, the unpaired lowest code is not.
static void looks_random(struct model *m, uint32_t bits)
{
	struct init codes, scales;
	char name[96];
	double sum = 0, squares = 0, n;
	uint64_t cols;
	bool seen[256] = {false};

	snprintf(name, sizeof(name),
		 "model.layers.1.mlp.down_proj.MatMul.weight_Q%u", bits);
	codes = model_init(m, name);
	scales = model_init(
		m, "model.layers.1.mlp.down_proj.MatMul.weight_scales");
	ck_assert(codes.found && scales.found);
	cols = codes.n * 8 / bits / scales.dims[0];
	ck_assert_uint_eq(cols, 128);
	for (uint64_t r = 0; r < scales.dims[0]; r++)
		for (uint64_t c = 0; c < cols; c++) {
			double v = block_value(&codes, &scales, NULL, bits,
					       cols, r, c);

			sum += v;
			squares += v * v;
		}
	for (uint64_t i = 0; i < codes.n; i++) {
		seen[bits == 4 ? codes.data[i] & 15 : codes.data[i]] = true;
		if (bits == 4)
			seen[codes.data[i] >> 4] = true;
	}
	n = (double)(scales.dims[0] * cols);
	ck_assert(!seen[0] && seen[1] && seen[bits == 4 ? 15 : 255]);
	ck_assert_double_lt(fabs(sum / n), 0.004);
	ck_assert_double_eq_tol(sqrt(squares / n * (double)cols), 1, 0.05);
}

START_TEST(random_weights_have_unit_gain)
{
	struct genai_synth_options o = {.overwrite = true};
	struct model m;

	for (o.bits = 4; o.bits <= 8; o.bits += 4)
		for (o.block = 16; o.block <= 64; o.block *= 2) {
			synth("tiny-llama", dir, &o);
			model_open(&m, dir);
			looks_random(&m, o.bits);
			model_close(&m);
		}
}
END_TEST

START_TEST(cuda_flavour)
{
	struct genai_synth_options o = {.layers = 3};
	struct init t;
	struct model m;

	synth("tiny-qwen3", dir, &o);
	model_open(&m, dir);
	ck_assert_int_eq(model_nodes(&m, "GroupQueryAttention"), 3);
	ck_assert_int_eq(model_nodes(&m, "Split"), 3);
	// q and k are normed inside the attention
	ck_assert_int_eq(model_nodes(&m, "SimplifiedLayerNormalization"), 1);
	ck_assert_int_eq(model_nodes(&m, "SkipSimplifiedLayerNormalization"),
			 6);
	ck_assert_int_eq(model_nodes(&m, "MatMulNBits"), 3 * 5 + 1);
	ck_assert_int_eq(model_nodes(&m, "GatherBlockQuantized"), 1);
	ck_assert_int_eq(model_nodes(&m, "Reshape"), 1); // tied embedding
	ck_assert_int_eq(model_nodes(&m, "Cast"), 2);
	t = model_init(&m, "model.layers.0.attn.q_norm.layernorm.weight");
	ck_assert_uint_eq(t.dtype, GENAI_DT_F16);
	ck_assert_uint_eq(t.dims[0], 32);
	for (uint64_t i = 0; i < t.n; i++)
		ck_assert_float_eq_tol(init_float(&t, i), 1, 0.101f);
	t = model_init(&m, "lm_head.MatMul.weight_Q4");
	ck_assert_uint_eq(t.dims[0], 512);
	ck_assert_uint_eq(t.dims[1], 2);
	ck_assert_uint_eq(t.dims[2], 16);
	model_close(&m);
}
END_TEST

START_TEST(cpu_flavour)
{
	struct genai_synth_options o = {.io_dtype = GENAI_DT_F32};
	struct init t;
	struct model m;
	char path[128];
	json_t *j, *d;

	synth("tiny-qwen3", dir, &o);
	model_open(&m, dir);
	ck_assert_int_eq(model_nodes(&m, "SimplifiedLayerNormalization"), 5);
	ck_assert_int_eq(model_nodes(&m, "Reshape"), 9);
	t = model_init(&m, "cos_cache");
	ck_assert_uint_eq(t.dtype, GENAI_DT_F32);
	ck_assert_uint_eq(t.dims[0], 512);
	ck_assert_float_eq_tol(init_float(&t, 16), cosf(1), 1e-7f);
	model_close(&m);
	snprintf(path, sizeof(path), "%s/genai_config.json", dir);
	j = json_load_file(path, 0, NULL);
	d = json_object_get(json_object_get(j, "model"), "decoder");
	ck_assert_int_eq(json_integer_value(json_object_get(d, "head_size")),
			 32);
	ck_assert_int_eq(json_integer_value(json_object_get(
				 json_object_get(j, "model"), "eos_token_id")),
			 511);
	json_decref(j);
}
END_TEST

START_TEST(untied_with_biases)
{
	struct genai_synth_options o = {.context = 32};
	struct init t;
	struct model m;

	synth("tiny-qwen2", dir, &o);
	model_open(&m, dir);
	ck_assert_int_eq(model_nodes(&m, "Add"), 2);
	ck_assert_int_eq(model_nodes(&m, "Reshape"), 0);
	t = model_init(&m, "model.embed_tokens.weight_Q4");
	ck_assert(t.found);
	ck_assert_uint_eq(t.dims[1], 32);
	t = model_init(&m, "model.layers.1.attn.qkv_proj.Add.bias");
	ck_assert_uint_eq(t.dims[0], 128);
	t = model_init(&m, "sin_cache");
	ck_assert_uint_eq(t.dims[0], 32);
	model_close(&m);
}
END_TEST

START_TEST(experts)
{
	struct genai_synth_options o = {.seed = 2};
	struct init t;
	struct model m;

	synth("tiny-gpt-oss", dir, &o);
	model_open(&m, dir);
	ck_assert_int_eq(model_nodes(&m, "QMoE"), 2);
	ck_assert_int_eq(model_nodes(&m, "MatMulNBits"), 2 * 3 + 1);
	ck_assert_int_eq(model_nodes(&m, "Add"), 2 * 3);
	t = model_init(&m, "model.layers.1.moe.experts.gate_up_proj.qweight");
	ck_assert_uint_eq(t.dims[0], 4);
	ck_assert_uint_eq(t.dims[1], 128);
	ck_assert_uint_eq(t.dims[2], 32);
	t = model_init(&m, "model.layers.0.moe.experts.down_proj.scales");
	ck_assert_uint_eq(t.dims[2], 2);
	t = model_init(&m, "model.layers.0.moe.experts.gate_up_proj.bias");
	ck_assert_uint_eq(t.dims[1], 128);
	t = model_init(&m, "model.layers.0.attn.sinks");
	ck_assert_uint_eq(t.dims[0], 4);
	model_close(&m);
	o.overwrite = true;
	synth("tiny-qwen3-moe", dir, &o);
	model_open(&m, dir);
	ck_assert_int_eq(model_nodes(&m, "QMoE"), 2);
	ck_assert_int_eq(model_nodes(&m, "Add"), 0);
	t = model_init(&m, "model.layers.1.moe.router.MatMul.weight_Q4");
	ck_assert_uint_eq(t.dims[0], 8);
	model_close(&m);
}
END_TEST

// Layers of two kinds, each with its states.
START_TEST(states)
{
	struct genai_synth_options o = {.seed = 2};
	struct init t;
	struct model m;

	synth("tiny-lfm2", dir, &o);
	model_open(&m, dir);
	ck_assert_int_eq(model_nodes(&m, "CausalConvWithState"), 2);
	ck_assert_int_eq(model_nodes(&m, "GroupQueryAttention"), 2);
	t = model_init(&m, "model.layers.2.conv.conv.weight");
	ck_assert_uint_eq(t.dims[0], 64);
	ck_assert_uint_eq(t.dims[2], 3);
	model_close(&m);
	o.overwrite = true;
	synth("tiny-qwen3.5", dir, &o);
	model_open(&m, dir);
	ck_assert_int_eq(model_nodes(&m, "LinearAttention"), 3);
	ck_assert_int_eq(model_nodes(&m, "CausalConvWithState"), 3);
	ck_assert_int_eq(model_nodes(&m, "GroupQueryAttention"), 1);
	ck_assert_int_eq(model_nodes(&m, "MRotaryEmbedding"), 2);
	t = model_init(&m, "model.layers.0.linear_attn.conv1d.weight");
	ck_assert_uint_eq(t.dims[0], 128);
	t = model_init(&m, "model.layers.3.attn.qkv_proj.MatMul.weight_Q4");
	ck_assert_uint_eq(t.dims[0], 2 * 64 + 2 * 32);
	t = model_init(&m, "model.layers.1.linear_attn.neg_exp_A");
	ck_assert_int_eq(t.dtype, GENAI_DT_F32);
	model_close(&m);
}
END_TEST

// Norms behind branches, a window; channels that do not turn.
START_TEST(local_and_partial)
{
	struct genai_synth_options o = {.seed = 2, .overwrite = true};
	struct init t;
	struct model m;

	synth("tiny-gemma3", dir, &o);
	model_open(&m, dir);
	ck_assert_int_eq(model_nodes(&m, "GroupQueryAttention"), 7);
	t = model_init(&m, "model.layers.6.mlp_out.weight");
	ck_assert_uint_eq(t.dims[0], 64);
	model_close(&m);
	synth("tiny-phi3", dir, &o);
	model_open(&m, dir);
	t = model_init(&m, "cos_cache");
	ck_assert_uint_eq(t.dims[1], 12);
	model_close(&m);
	synth("tiny-glm", dir, &o);
	model_open(&m, dir);
	t = model_init(&m, "cos_cache");
	ck_assert_uint_eq(t.dims[1], 8);
	t = model_init(&m, "model.layers.1.attn.qkv_proj.Add.bias");
	ck_assert_uint_eq(t.dims[0], 4 * 32 + 2 * 2 * 32);
	model_close(&m);
}
END_TEST

// A first layer without experts; those of the others are chosen by sigmoids.
START_TEST(dense_and_sigmoid)
{
	struct genai_synth_options o = {.seed = 2};
	struct init t;
	struct model m;

	synth("tiny-lfm2-moe", dir, &o);
	model_open(&m, dir);
	ck_assert_int_eq(model_nodes(&m, "QMoE"), 3);
	ck_assert_int_eq(model_nodes(&m, "TopK"), 3);
	ck_assert_int_eq(model_nodes(&m, "ScatterElements"), 3);
	ck_assert_int_eq(model_nodes(&m, "CausalConvWithState"), 2);
	t = model_init(&m, "model.layers.0.mlp.down_proj.MatMul.weight_Q4");
	ck_assert_uint_eq(t.dims[1], 4); // blocks of 128
	t = model_init(&m, "model.layers.3.moe.expert_bias");
	ck_assert_int_eq(t.dtype, GENAI_DT_F32);
	ck_assert_uint_eq(t.dims[0], 8);
	model_close(&m);
}
END_TEST

START_TEST(list_of_architectures)
{
	struct genai_synth_info info;
	uint64_t bytes = 0;
	uint32_t n = 0;

	for (; genai_synth_list(n, &info); n++) {
		ck_assert_uint_eq(info.hidden % 32, 0);
		ck_assert_uint_eq(info.heads % info.kv_heads, 0);
		if (!strcmp(info.name, "Qwen3-0.6B"))
			bytes = info.weight_bytes;
	}
	ck_assert_uint_eq(n, 37);
	// 28 * (1024 * 2 * (2048 + 1024) + 3 * 1024 * 3072) + 1024 * 151936
	ck_assert_uint_eq(bytes, 595984384ull * 9 / 16);
}
END_TEST

// --- the folder

static void refused(const char *arch, const struct genai_synth_options *o,
		    const char *to, int32_t code, const char *words)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc = genai_synth(arch, to, o, &err);

	ck_assert_msg(rc == code && strstr(err.text, words),
		      "want %d '%s', got %d '%s'", code, words, rc, err.text);
	ck_assert(!exists(partial));
}

// What a killed program left goes with the next try; what one is still making
// does not.
START_TEST(left_over)
{
	struct genai_synth_options o = {.layers = 1};
	struct genai_error err = GENAI_ERROR_INIT;
	char dead[128], alive[128], file[160];
	int fd;

	snprintf(dead, sizeof(dead), "%s.partial-1", dir);
	snprintf(alive, sizeof(alive), "%s.partial-2", dir);
	snprintf(file, sizeof(file), "%s/model.onnx", dead);
	ck_assert(!mkdir(dead, 0777) && !mkdir(alive, 0777));
	fd = open(file, O_CREAT | O_WRONLY, 0666);
	ck_assert(fd >= 0 && !close(fd));
	fd = open(alive, O_RDONLY);
	ck_assert(fd >= 0 && !flock(fd, LOCK_EX));
	ck_assert_msg(!genai_synth("tiny-llama", dir, &o, &err), "%s",
		      err.text);
	ck_assert(!exists(dead));
	ck_assert(exists(alive));
	ck_assert(!close(fd) && !rmdir(alive));
}
END_TEST

START_TEST(refuses_options)
{
	struct genai_synth_options o = {0};

	refused("GPT-5", &o, dir, GENAI_E_NOTFOUND, "no architecture 'GPT-5'");
	o.bits = 3;
	refused("tiny-llama", &o, dir, GENAI_E_INVAL, "3 bits");
	o.bits = 4;
	o.block = 128;
	refused("tiny-llama", &o, dir, GENAI_E_INVAL, "do not divide");
	o.block = 24;
	refused("tiny-llama", &o, dir, GENAI_E_INVAL, "blocks of 24");
	o.block = 0;
	o.layers = 5000;
	refused("tiny-llama", &o, dir, GENAI_E_INVAL, "5000 layers");
	o.layers = 0;
	refused("tiny-llama", &o, "/no/such/place", GENAI_E_IO,
		"/no/such/place");
	refused("tiny-llama", &o, "", GENAI_E_INVAL, "folder name");
	ck_assert(!exists(dir));
}
END_TEST

START_TEST(replaces_only_what_it_may)
{
	struct genai_synth_options o = {.seed = 1};
	char path[128];

	mkdir(dir, 0777);
	synth("tiny-llama", dir, &o); // an empty folder may be there
	refused("tiny-llama", &o, dir, GENAI_E_INVAL, "exists");
	o.overwrite = true;
	o.seed = 2;
	synth("tiny-llama", dir, &o);
	synth("tiny-llama", other, &o);
	ck_assert(same_file("model.onnx.data"));
	snprintf(path, sizeof(path), "%s/thesis.tex", dir);
	fclose(fopen(path, "w"));
	o.seed = 3;
	refused("tiny-llama", &o, dir, GENAI_E_INVAL, "thesis.tex");
	ck_assert(same_file("model.onnx.data"));
	ck_assert(exists(path));
	refused("tiny-llama", &o, path, GENAI_E_INVAL, "thesis.tex");
}
END_TEST

static int stop_late(void *ctx, uint64_t done, uint64_t total)
{
	*(uint64_t *)ctx = done;
	return done > total / 2;
}

static int watch(void *ctx, uint64_t done, uint64_t total)
{
	uint64_t *last = ctx;

	if (done < *last || done > total)
		ck_abort_msg("progress %llu of %llu", (unsigned long long)done,
			     (unsigned long long)total);
	*last = done;
	return 0;
}

START_TEST(progress_and_stop)
{
	uint64_t done = 0;
	struct genai_synth_options o = {.progress = stop_late,
					.progress_ctx = &done};

	refused("tiny-llama", &o, dir, GENAI_E_INTERRUPTED, "stopped");
	ck_assert(!exists(dir));
	ck_assert_uint_gt(done, 38784);
	done = 0;
	o.progress = watch;
	synth("tiny-llama", dir, &o);
	ck_assert_uint_gt(done, 70000);
}
END_TEST

START_TEST(disk_full_leaves_nothing)
{
	struct rlimit limit;
	struct genai_synth_options o = {0};

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = 60000;
	setrlimit(RLIMIT_FSIZE, &limit);
	refused("tiny-llama", &o, dir, GENAI_E_IO, "bytes");
	ck_assert(!exists(dir));
	limit.rlim_cur = 5000; // not even the tokenizer
	setrlimit(RLIMIT_FSIZE, &limit);
	refused("tiny-llama", &o, dir, GENAI_E_IO, "tokenizer.json");
	ck_assert(!exists(dir));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("modelgen");
	TCase *c = tcase_create("modelgen");

	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, wire_bytes);
	tcase_add_test(c, same_seed_same_bytes);
	tcase_add_test(c, random_weights_have_unit_gain);
	tcase_add_test(c, cuda_flavour);
	tcase_add_test(c, cpu_flavour);
	tcase_add_test(c, untied_with_biases);
	tcase_add_test(c, experts);
	tcase_add_test(c, states);
	tcase_add_test(c, local_and_partial);
	tcase_add_test(c, dense_and_sigmoid);
	tcase_add_test(c, list_of_architectures);
	tcase_add_test(c, left_over);
	tcase_add_test(c, refuses_options);
	tcase_add_test(c, replaces_only_what_it_may);
	tcase_add_test(c, progress_and_stop);
	tcase_add_test(c, disk_full_leaves_nothing);
	suite_add_tcase(s, c);
	return genai_check_main(s);
}
