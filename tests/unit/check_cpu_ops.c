// check_cpu_ops.c - cpu_ref's general operators: cases with exact results, each
// also with unaligned inputs, threads and in place; failures and their words;
// the same bits at every vector width and number of threads.
#include "tests/unit/ops_text.h"

#include "tests/conform/cases_math.h"
#include "tests/conform/cases_more.h"
#include "tests/conform/cases_move.h"
#include "tests/conform/cases_state.h"
#include "tests/unit/ops_cases_refuse.h"

static struct cref_pool *pools[5];

static void setup(void)
{
	for (uint32_t i = 1; i <= 4; i++)
		pools[i] = kpool(i);
}

static void teardown(void)
{
	for (uint32_t i = 1; i <= 4; i++)
		cref_pool_destroy(pools[i]);
	cref_simd_force(-1);
}

// ---- the tables ----

static void compare(const struct ops_case *c, struct text_run *r, uint32_t i,
		    enum text_mode mode)
{
	const struct text_tensor *w = &r->want[i];
	const struct exec_tensor *t = r->k.n.out[i];

	ck_assert_msg(t->dtype == w->dtype && t->rank == w->rank,
		      "%s(%s): output %u of dtype %u rank %u", c->op, c->in, i,
		      t->dtype, t->rank);
	for (uint32_t d = 0; d < w->rank; d++)
		ck_assert_msg(t->dims[d] == w->dims[d],
			      "%s(%s): output %u dim %u is %lld", c->op, c->in,
			      i, d, (long long)t->dims[d]);
	for (uint64_t k = 0; k < w->count; k++)
		ck_assert_msg(text_same(w, t->data, k, 0),
			      "%s(%s): output %u [%llu] is %.9g, not %.9g, "
			      "mode %d",
			      c->op, c->in, i, (unsigned long long)k,
			      text_number(w, t->data, k),
			      text_number(w, w->data, k), mode);
}

static void run_case(const struct ops_case *c, enum text_mode mode)
{
	struct text_run r;

	memset(&r, 0, sizeof(r));
	r.n_in = text_tensors(c->in, r.in, EXEC_MAX_IN);
	if (c->out[0] == '!') // an attention gives its cache, too
		r.n_out = strstr(c->op, "GroupQuery") ? 3 : 1;
	else
		r.n_out = text_tensors(c->out, r.want, EXEC_MAX_OUT);
	text_execute(&r, c, mode, mode == TEXT_THREADS ? pools[3] : NULL);
	if (c->out[0] == '!') {
		const char *words = strchr(c->out, ' ') + 1;

		ck_assert_msg(r.rc == atoi(c->out + 1), "%s(%s): %d: %s", c->op,
			      c->in, r.rc, r.k.err.text);
		ck_assert_int_eq(r.k.err.code, r.rc);
		ck_assert_msg(strstr(r.k.err.text, words) != NULL,
			      "%s(%s): '%s' lacks '%s'", c->op, c->in,
			      r.k.err.text, words);
	} else {
		ck_assert_msg(!r.rc, "%s(%s): %d: %s", c->op, c->in, r.rc,
			      r.k.err.text);
		for (uint32_t i = 0; i < r.n_out; i++)
			if (r.want[i].present)
				compare(c, &r, i, mode);
	}
	text_release(&r);
}

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
#define TABLE(name)                                                            \
	START_TEST(table_##name)                                               \
	{                                                                      \
		for (int mode = TEXT_PLAIN; mode <= TEXT_THREADS; mode++)      \
			run_case(&name##_cases[_i], (enum text_mode)mode);     \
	}                                                                      \
	END_TEST
TABLE(arithmetic)
TABLE(function)
TABLE(activation)
TABLE(logic)
TABLE(cast)
TABLE(shape)
TABLE(move)
TABLE(more)
TABLE(index)
TABLE(reduce)
TABLE(norm)
TABLE(product)
TABLE(state)
TABLE(cache)
TABLE(refuse)

// ---- the same bits however the work is done ----

// Operators on large inputs, big enough to be shared out among threads.
static const struct ops_case big_cases[] = {
	{"Add", "f32[40,1000]; f32[1000]", "", "f32", 0},
	{"Mul", "f16[40,1000]; f16[40,1]", "", "f16", 0},
	{"Sigmoid", "f32[70,1001]", "", "f32", 0},
	{"Tanh", "bf16[70,1001]", "", "bf16", 0},
	{"Exp", "f32[70,1001]", "", "f32", 0},
	{"Gelu", "f32[70,1001]", "approximate=tanh", "f32", 0},
	{"ms:QuickGelu", "f16[70,1001]", "", "f16", 0},
	{"Softmax", "f32[40,1537]", "", "f32", 0},
	{"Softmax", "f16[3,1537,40]", "axis=1", "f16", 0},
	{"LogSoftmax", "f32[40,1537]", "", "f32", 0},
	{"ReduceSum", "f32[40,1537]; i64[1] 1", "", "f32", 0},
	{"ReduceMean", "f32[1537,40]; i64[1] 0", "", "f32", 0},
	{"ReduceL2", "f16[40,1537]; i64[1] -1", "", "f16", 0},
	{"SimplifiedLayerNormalization", "f32[40,1537]; f32[1537]", "", "f32",
	 0},
	{"ms:SkipSimplifiedLayerNormalization",
	 "f16[2,40,777]; f16[2,40,777]; f16[777]", "", "f16; -; -; f16", 0},
	{"LayerNormalization", "f32[40,1537]; f32[1537]; f32[1537]", "", "f32",
	 0},
	{"Transpose", "f32[300,301]", "", "f32", 0},
	{"Gemm", "f32[70,90]; f32[90,600]; f32[600]", "", "f32", 0},
};

static void fill_tensors(const char *s, struct text_tensor *t, uint32_t *n,
			 uint64_t *seed)
{
	char text[512], *save = NULL;

	*n = 0;
	snprintf(text, sizeof(text), "%s", s);
	for (char *w = strtok_r(text, ";", &save); w;
	     w = strtok_r(NULL, ";", &save)) {
		struct text_tensor *x = &t[(*n)++];
		char empty[80], *p = strchr(w, '[');

		w += strspn(w, " ");
		if (!p) { // an output: its dtype alone
			memset(x, 0, sizeof(*x));
			x->present = *w != '-';
			continue;
		}
		if (strchr(p, ']')[1]) {
			text_tensor(w, x);
			continue;
		}
		// parse an empty one for the dtype, then give it the dims
		snprintf(empty, sizeof(empty), "%.*s[0]", (int)(p - w), w);
		text_tensor(empty, x);
		free(x->data);
		x->rank = 0;
		x->count = 1;
		for (p++; *p; p += *p == ',' || *p == ']') {
			x->dims[x->rank] = strtoll(p, &p, 10);
			x->count *= (uint64_t)x->dims[x->rank++];
		}
		x->bytes = x->count * ksize(x->dtype);
		x->data = kfloats(seed, x->dtype, x->count, 4);
	}
}

static void run_big(const struct ops_case *c, struct text_run *r,
		    struct cref_pool *pool)
{
	uint64_t seed = 7;

	memset(r, 0, sizeof(*r));
	fill_tensors(c->in, r->in, &r->n_in, &seed);
	fill_tensors(c->out, r->want, &r->n_out, &seed);
	text_execute(r, c, TEXT_PLAIN, pool);
	ck_assert_msg(!r->rc, "%s: %s", c->op, r->k.err.text);
}

START_TEST(test_same_bits)
{
	const struct ops_case *c = &big_cases[_i];
	struct text_run a, b;

	cref_simd_force(CREF_LEVEL_GENERIC);
	run_big(c, &a, NULL);
	for (int level = 0; level <= CREF_LEVEL_AVX512; level++) {
		cref_simd_force(level);
		for (uint32_t t = 1; t <= 4; t++) {
			run_big(c, &b, pools[t]);
			for (uint32_t i = 0; i < a.n_out; i++)
				if (a.results[i])
					ck_assert_msg(
						!memcmp(a.results[i],
							b.results[i],
							text_out_bytes(
								a.k.n.out[i])),
						"%s: level %d, %u threads",
						c->op, level, t);
			text_release(&b);
		}
	}
	text_release(&a);
}
END_TEST

// A row gives the same bits alone and among others.
START_TEST(test_rows_alone)
{
	static const struct ops_case all = {"SimplifiedLayerNormalization",
					    "f32[5,1537]; f32[1537]", "", "f32",
					    0},
				     one = {"SimplifiedLayerNormalization",
					    "f32[1,1537]; f32[1537]", "", "f32",
					    0};
	struct text_run a, b;

	run_big(&all, &a, NULL);
	for (uint64_t row = 0; row < 5; row++) {
		uint64_t bytes = 1537 * 4;

		run_big(&one, &b, NULL);
		memcpy(b.copies[0], (char *)a.copies[0] + row * bytes, bytes);
		memcpy(b.copies[1], a.copies[1], bytes);
		ck_assert_int_eq(knode_run(&b.k, b.k.n.op->run, NULL, 0, 0), 0);
		ck_assert_mem_eq(b.results[0],
				 (char *)a.results[0] + row * bytes, bytes);
		text_release(&b);
	}
	text_release(&a);
}
END_TEST

// ---- the table itself ----

static const struct cref_op *find(const char *domain, const char *op,
				  int64_t opset)
{
	struct genai_node n = {.op = op, .domain = domain, .opset = opset};

	return cref_op_find(&n);
}

START_TEST(test_find)
{
	ck_assert_ptr_nonnull(find("", "Add", 21));
	ck_assert_ptr_null(find("", "Add", 6));
	ck_assert_ptr_null(find("com.microsoft", "Add", 1));
	ck_assert_ptr_null(find("", "NoSuchOp", 21));
	ck_assert_ptr_nonnull(find("", "SimplifiedLayerNormalization", 14));
	ck_assert_ptr_nonnull(find("com.microsoft", "RotaryEmbedding", 1));
	ck_assert_ptr_null(find("", "RotaryEmbedding", 22));
	ck_assert(find("", "RotaryEmbedding", 23) !=
		  find("com.microsoft", "RotaryEmbedding", 1));
	ck_assert(find("", "Reshape", 21)->alias);
}
END_TEST

// No row twice, each findable at its own opset.
START_TEST(test_table)
{
	static const struct cref_op t[] = {
#define OPS_ROW(domain, op, since, prepare, run, ...)                          \
	{domain, op, since, prepare, run, __VA_ARGS__},
#include "modules/cpu_ref/ops_rows.h"
#undef OPS_ROW
	};
	uint32_t n = sizeof(t) / sizeof(t[0]);

	ck_assert_uint_gt(n, 120);
	for (uint32_t i = 0; i < n; i++) {
		const struct cref_op *op = find(t[i].domain, t[i].op,
						t[i].since);

		ck_assert_ptr_nonnull(op);
		ck_assert(op->prepare && op->prepare == t[i].prepare);
		ck_assert(op->run && op->run == t[i].run);
		ck_assert(op->since == t[i].since && op->code == t[i].code);
	}
}
END_TEST

// Every code of 8 and 4 bits, through Cast to float and back, is itself; NaN is
// one of several.
START_TEST(test_code_roundtrip)
{
	static const uint32_t dtypes[] = {
		GENAI_DT_F8E4M3FN,   GENAI_DT_F8E4M3FNUZ, GENAI_DT_F8E5M2,
		GENAI_DT_F8E5M2FNUZ, GENAI_DT_F8E8M0,	  GENAI_DT_F4E2M1};
	uint32_t dtype = dtypes[_i], n = dtype == GENAI_DT_F4E2M1 ? 16 : 256;
	unsigned char x[256], y[256] = {0};
	float f[256];

	for (uint32_t i = 0; i < n; i++)
		x[i] = (unsigned char)i;
	if (n == 16) // two to a byte
		for (uint32_t i = 0; i < 8; i++)
			x[i] = (unsigned char)(2 * i | (2 * i + 1) << 4);
	ops_load(OPS_F32, f, dtype, x, 0, 1, n);
	ops_store(OPS_F32, f, dtype, y, 0, 1, n);
	for (uint32_t i = 0; i < n; i++)
		if (n == 16)
			ck_assert_uint_eq(x[i / 2], y[i / 2]);
		else if (dtype == GENAI_DT_F8E8M0 && !i)
			; // ONNX rounds the smallest one up
		else if (f[i] == f[i])
			ck_assert_uint_eq(x[i], y[i]);
		else
			ck_assert_msg(dtype == GENAI_DT_F8E5M2 || x[i] == y[i],
				      "%u: %u", i, y[i]);
}
END_TEST

// Every half value, through Cast to float and back, is itself.
START_TEST(test_half_roundtrip)
{
	static const uint32_t dtypes[] = {GENAI_DT_F16, GENAI_DT_BF16};
	uint16_t *x = malloc(65536 * 2), *y = malloc(65536 * 2);
	float *f = malloc(65536 * 4);
	const int64_t dims[] = {65536, -1};
	struct knode k;

	for (int i = 0; i < 65536; i++)
		x[i] = (uint16_t)i;
	for (int back = 0; back < 2; back++) {
		uint32_t from = back ? GENAI_DT_F32 : dtypes[_i];
		uint32_t to = back ? dtypes[_i] : GENAI_DT_F32;
		const struct cref_op *op = find("", "Cast", 21);

		knode_init(&k, "Cast", 1, 1);
		knode_int(&k, "to", to);
		knode_in(&k, 0, from, back ? (void *)f : x, dims);
		ck_assert_int_eq(knode_prepare(&k, op->prepare), 0);
		k.n.out[0]->data = back ? (void *)y : f;
		ck_assert_int_eq(knode_run(&k, op->run, NULL, 0, 0), 0);
		knode_free(&k);
	}
	for (int i = 0; i < 65536; i++) {
		float v = cref_load(x, dtypes[_i], (uint64_t)i);

		ck_assert(v == f[i] || (v != v && f[i] != f[i]));
		if (v == v)
			ck_assert_uint_eq(x[i], y[i]);
		else
			ck_assert(cref_load(y, dtypes[_i], (uint64_t)i) !=
				  cref_load(y, dtypes[_i], (uint64_t)i));
	}
	free(x);
	free(y);
	free(f);
}
END_TEST

// A null error record is legal everywhere.
START_TEST(test_no_error_record)
{
	float x[6] = {0};
	int64_t dims[] = {2, 3, -1}, bad[] = {4, -1};
	struct knode k;
	const struct cref_op *op = find("", "Add", 21);

	knode_init(&k, "Add", 2, 1);
	knode_in(&k, 0, GENAI_DT_F32, x, dims);
	knode_in(&k, 1, GENAI_DT_F32, x, bad);
	ck_assert_int_eq(op->prepare(&k.n, NULL), GENAI_E_INVAL);
	ck_assert_int_eq(op->prepare(&k.n, &k.err), GENAI_E_INVAL);
	ck_assert_str_eq(k.err.text, "node /test/node (Add): shapes [2,3] and "
				     "[4] do not broadcast");
	ck_assert_str_eq(k.err.module, "cpu_ref");
	// a view that is not dense
	knode_in(&k, 1, GENAI_DT_F32, x, dims);
	k.t[1].strides[0] = 4;
	ck_assert_int_eq(op->prepare(&k.n, &k.err), GENAI_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(k.err.text, "not dense"));
}
END_TEST

// The value of ConstantOfShape is a stored tensor of the node's graph.
START_TEST(test_constant_value)
{
	static const unsigned char bytes[] = {0,    0xfe, 0xff, 0xff, 0xff,
					      0xff, 0xff, 0xff, 0xff};
	const struct genai_file file = {.size = sizeof(file),
					.path = "",
					.data = bytes,
					.bytes = sizeof(bytes)};
	struct genai_tensor stored = {.size = sizeof(stored),
				      .dtype = GENAI_DT_I64,
				      .rank = 1,
				      .offset = 1,
				      .bytes = 8,
				      .dims = {1}};
	struct genai_graph g = {.size = sizeof(g),
				.n_files = 1,
				.n_tensors = 1,
				.file_stride = sizeof(file),
				.tensor_stride = sizeof(stored),
				.files = &file,
				.tensors = &stored};
	const struct cref_op *op = find("", "ConstantOfShape", 21);
	int64_t shape[] = {3}, y[3];
	struct knode k;
	struct genai_attr *a;

	knode_init(&k, "ConstantOfShape", 1, 1);
	a = knode_attr(&k, "value", GENAI_ATTR_TENSOR);
	k.n.graph = &g;
	knode_in(&k, 0, GENAI_DT_I64, shape, DIMS(1));
	k.t[0].value = shape;
	ck_assert_int_eq(knode_prepare(&k, op->prepare), 0);
	ck_assert_uint_eq(k.n.out[0]->dtype, GENAI_DT_I64);
	k.n.out[0]->data = y;
	ck_assert_int_eq(knode_run(&k, op->run, NULL, 0, 0), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(y[i], -2);
	a->tensor = 1;
	ck_assert_int_eq(knode_prepare(&k, op->prepare), GENAI_E_UNSUPPORTED);
	a->tensor = 0;
	stored.bytes = 16;
	ck_assert_int_eq(knode_prepare(&k, op->prepare), GENAI_E_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(k.err.text, "16 bytes must be one"));
	knode_free(&k);
}
END_TEST

#define ADD(name) tcase_add_loop_test(t, table_##name, 0, COUNT(name##_cases))

int main(void)
{
	Suite *s = suite_create("cpu_ops");
	TCase *t = tcase_create("ops");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	ADD(arithmetic);
	ADD(function);
	ADD(activation);
	ADD(logic);
	ADD(cast);
	ADD(shape);
	ADD(move);
	ADD(more);
	ADD(index);
	ADD(reduce);
	ADD(norm);
	ADD(product);
	ADD(state);
	ADD(cache);
	ADD(refuse);
	tcase_add_loop_test(t, test_same_bits, 0, COUNT(big_cases));
	tcase_add_test(t, test_rows_alone);
	tcase_add_test(t, test_find);
	tcase_add_test(t, test_table);
	tcase_add_loop_test(t, test_half_roundtrip, 0, 2);
	tcase_add_loop_test(t, test_code_roundtrip, 0, 6);
	tcase_add_test(t, test_no_error_record);
	tcase_add_test(t, test_constant_value);
	suite_add_tcase(s, t);
	return genai_check_main(s);
}
