// check_state.c - models with a state that every step replaces, the sum of what
// was read so far, or with a cache that it makes anew, of all that was read.
// Their tokens are computed here, too, in whole numbers, which float sums of
// this size are.
#include "tests/unit/onnx_writer.h"
#include "tests/unit/session_kit.h"

#define VOCAB 24
#define HIDDEN 8
#define MOST 64

// ---- the model ----

static float embed(int64_t id, int h)
{
	return (float)((id * 7 + h * 5 + id * h) % 11 - 5);
}

static float head(int h, int64_t v)
{
	return (float)((v * 3 + h * h + v * h) % 13 - 6);
}

// The most probable token after ids, by hand.
static int64_t expected(const int64_t *ids, size_t n)
{
	float sum[HIDDEN] = {0}, best = -1e30f;
	int64_t at = 0;

	for (size_t i = 0; i < n; i++)
		for (int h = 0; h < HIDDEN; h++)
			sum[h] += embed(ids[i], h);
	for (int64_t v = 0; v < VOCAB; v++) {
		float x = 0;

		for (int h = 0; h < HIDDEN; h++)
			x += sum[h] * head(h, v);
		if (x > best) {
			best = x;
			at = v;
		}
	}
	return at;
}

static void add_floats(struct ow *g, const char *name, int64_t rows,
		       int64_t cols, float (*at)(int64_t, int64_t))
{
	int64_t dims[] = {rows, cols};
	struct ow t = ow_tensor(name, GENAI_DT_F32, 2, dims);
	float v[VOCAB * HIDDEN];

	for (int64_t i = 0; i < rows * cols; i++)
		v[i] = at(i / cols, i % cols);
	ow_bytes(&t, 9, v, (size_t)(rows * cols) * sizeof(float));
	ow_add_init(g, t);
}

static float embed_at(int64_t id, int64_t h)
{
	return embed(id, (int)h);
}

static float head_at(int64_t h, int64_t v)
{
	return head((int)h, v);
}

static void add_int(struct ow *g, const char *name, int64_t v)
{
	struct ow t = ow_tensor1(name, GENAI_DT_I64, 1);

	ow_bytes(&t, 9, &v, sizeof(v));
	ow_add_init(g, t);
}

// What may be wrong with it.
enum fault {
	SOUND,
	NO_OUTPUT,
	NO_DIM,
	READ_LATE,
	OTHER_TYPE,
	TOO_LONG,
	OTHER_OUTPUT,
	OTHER_CONFIG,
	JOINED, // nothing
	SUMMED,
	OTHER_AXIS,
	PASSED_ON,
	ATTENDED // nothing
};

static void add_state(struct ow *g, enum fault fault)
{
	int64_t dims[] = {-1, HIDDEN};
	int type = fault == OTHER_TYPE ? GENAI_DT_I32 : GENAI_DT_F32;

	if (fault == NO_DIM)
		dims[1] = -1;
	if (fault == TOO_LONG)
		dims[1] = 1 << 20;
	ow_msg(g, 11, ow_value("past.3.conv", type, 2, dims));
	if (fault == OTHER_OUTPUT)
		dims[1]++;
	if (fault != NO_OUTPUT)
		ow_msg(g, 12, ow_value("present.3.conv", type, 2, dims));
}

static struct ow graph(enum fault fault)
{
	static const int64_t ids[] = {-1, -1}, out[] = {-1, -1, VOCAB};
	struct ow g = {NULL, 0, 0}, n;

	ow_str(&g, 2, "sums");
	ow_msg(&g, 11, ow_value("input_ids", GENAI_DT_I64, 2, ids));
	add_state(&g, fault);
	ow_msg(&g, 12, ow_value("logits", GENAI_DT_F32, 3, out));
	add_floats(&g, "embed", VOCAB, HIDDEN, embed_at);
	add_floats(&g, "head", HIDDEN, VOCAB, head_at);
	add_int(&g, "one", 1);
	n = ow_node("Gather", "embed,input_ids", "h");
	ow_add_node(&g, n);
	ow_add_op(&g, "CumSum", "h,one", "running");
	ow_add_op(&g, "ReduceSum", "h,one", "all_rows");
	ow_add_op(&g, "Squeeze", "all_rows,one", "all");
	if (fault == READ_LATE)
		ow_add_op(&g, "Add", "past.3.conv,all", "present.3.conv");
	ow_add_op(&g, "Unsqueeze", "past.3.conv,one", "before");
	ow_add_op(&g, "Add", "running,before", "state");
	if (fault != READ_LATE)
		ow_add_op(&g, "Add", "past.3.conv,all", "present.3.conv");
	ow_add_op(&g, "MatMul", "state,head", "logits");
	return g;
}

// The cache of two heads, its values behind an Identity.
static void add_cache(struct ow *g, enum fault fault)
{
	static const int64_t dims[] = {-1, 2, -1, HIDDEN / 2};
	static const char *const ends[] = {"key", "value"};
	char name[2][64];
	struct ow n;

	for (int i = 0; i < 2; i++) {
		snprintf(name[0], 64, "past_key_values.3.%s", ends[i]);
		snprintf(name[1], 64, "present.3.%s", ends[i]);
		ow_msg(g, 11, ow_value(name[0], GENAI_DT_F32, 4, dims));
		ow_msg(g, 12, ow_value(name[1], GENAI_DT_F32, 4, dims));
	}
	n = ow_node("Concat", "past_key_values.3.value,new", "values");
	ow_attr_int(&n, "axis", -2);
	ow_add_node(g, n);
	ow_add_op(g, "Identity", "values", "present.3.value");
	if (fault == SUMMED) {
		ow_add_op(g, "Add", "past_key_values.3.key,new",
			  "present.3.key");
		return;
	}
	if (fault == PASSED_ON)
		n = ow_node("Concat", "new,past_key_values.3.key",
			    "present.3.key");
	else
		n = ow_node("Concat", "past_key_values.3.key,new",
			    "present.3.key");
	ow_attr_int(&n, "axis", fault == OTHER_AXIS ? 1 : 2);
	ow_add_node(g, n);
}

static void add_sum(struct ow *g, const char *of, const char *out)
{
	char in[80];
	struct ow n;

	snprintf(in, sizeof(in), "%s,two", of);
	n = ow_node("ReduceSum", in, out);
	ow_attr_int(&n, "keepdims", 0);
	ow_add_node(g, n);
}

// What was before: twice the keys, less the values, which new ones follow.
static struct ow joined(enum fault fault)
{
	static const int64_t ids[] = {-1, -1}, out[] = {-1, -1, VOCAB};
	static const int64_t halves[] = {HIDDEN / 2, HIDDEN / 2};
	static const int64_t whole[] = {1, 1, HIDDEN};
	struct ow g = {NULL, 0, 0}, n, t;

	ow_str(&g, 2, "caches");
	ow_msg(&g, 11, ow_value("input_ids", GENAI_DT_I64, 2, ids));
	ow_msg(&g, 12, ow_value("logits", GENAI_DT_F32, 3, out));
	add_floats(&g, "embed", VOCAB, HIDDEN, embed_at);
	add_floats(&g, "head", HIDDEN, VOCAB, head_at);
	add_int(&g, "one", 1);
	add_int(&g, "two", 2);
	t = ow_tensor1("halves", GENAI_DT_I64, 2);
	ow_bytes(&t, 9, halves, sizeof(halves));
	ow_add_init(&g, t);
	t = ow_tensor1("whole", GENAI_DT_I64, 3);
	ow_bytes(&t, 9, whole, sizeof(whole));
	ow_add_init(&g, t);
	ow_add_op(&g, "Gather", "embed,input_ids", "h");
	ow_add_op(&g, "CumSum", "h,one", "running");
	n = ow_node("Split", "h,halves", "h0,h1");
	ow_attr_int(&n, "axis", -1);
	ow_add_node(&g, n);
	ow_add_op(&g, "Unsqueeze", "h0,one", "n0");
	ow_add_op(&g, "Unsqueeze", "h1,one", "n1");
	n = ow_node("Concat", "n0,n1", "new");
	ow_attr_int(&n, "axis", 1);
	ow_add_node(&g, n);
	add_cache(&g, fault);
	add_sum(&g, "past_key_values.3.key", "keys_sum");
	add_sum(&g, "values", "values_sum");
	add_sum(&g, "new", "new_sum");
	ow_add_op(&g, "Add", "keys_sum,keys_sum", "twice");
	ow_add_op(&g, "Add", "twice,new_sum", "more");
	ow_add_op(&g, "Sub", "more,values_sum", "before4");
	ow_add_op(&g, "Reshape", "before4,whole", "before");
	ow_add_op(&g, "Add", "running,before", "state");
	ow_add_op(&g, "MatMul", "state,head", "logits");
	return g;
}

// Attention of ONNX, which makes the caches: of queries that are 0 the mean of
// all rows so far, and times their number the sum.
static struct ow attended(void)
{
	static const int64_t any[] = {-1, -1}, out[] = {-1, -1, VOCAB};
	static const int64_t axes[] = {1, 2}, dims[] = {-1, 2, -1, HIDDEN / 2};
	static const char *const caches[] = {
		"past_key_values.3.key", "past_key_values.3.value",
		"present.3.key", "present.3.value"};
	struct ow g = {NULL, 0, 0}, n, t;

	ow_str(&g, 2, "attended");
	ow_msg(&g, 11, ow_value("input_ids", GENAI_DT_I64, 2, any));
	ow_msg(&g, 11, ow_value("attention_mask", GENAI_DT_I64, 2, any));
	ow_msg(&g, 11, ow_value("position_ids", GENAI_DT_I64, 2, any));
	ow_msg(&g, 12, ow_value("logits", GENAI_DT_F32, 3, out));
	for (int i = 0; i < 4; i++)
		ow_msg(&g, i < 2 ? 11 : 12,
		       ow_value(caches[i], GENAI_DT_F32, 4, dims));
	add_floats(&g, "embed", VOCAB, HIDDEN, embed_at);
	add_floats(&g, "head", HIDDEN, VOCAB, head_at);
	add_int(&g, "one", 1);
	add_int(&g, "two", 2);
	t = ow_tensor1("axes", GENAI_DT_I64, 2);
	ow_bytes(&t, 9, axes, sizeof(axes));
	ow_add_init(&g, t);
	ow_add_op(&g, "Gather", "embed,input_ids", "h");
	ow_add_op(&g, "Sub", "h,h", "q");
	n = ow_node("Cast", "attention_mask", "seen");
	ow_attr_int(&n, "to", GENAI_DT_BOOL);
	ow_add_node(&g, n);
	ow_add_op(&g, "Unsqueeze", "seen,axes", "mask");
	n = ow_node("Attention",
		    "q,h,h,mask,past_key_values.3.key,past_key_values.3.value",
		    "mean,present.3.key,present.3.value");
	ow_attr_int(&n, "q_num_heads", 2);
	ow_attr_int(&n, "kv_num_heads", 2);
	ow_attr_int(&n, "is_causal", 1);
	ow_add_node(&g, n);
	ow_add_op(&g, "Add", "position_ids,one", "count64");
	n = ow_node("Cast", "count64", "count");
	ow_attr_int(&n, "to", GENAI_DT_F32);
	ow_add_node(&g, n);
	ow_add_op(&g, "Unsqueeze", "count,two", "counts");
	ow_add_op(&g, "Mul", "mean,counts", "sum");
	ow_add_op(&g, "Round", "sum", "state");
	ow_add_op(&g, "MatMul", "state,head", "logits");
	return g;
}

static struct ow model_of(enum fault fault)
{
	struct ow m = {NULL, 0, 0};

	if (fault != ATTENDED)
		return ow_model(fault < JOINED ? graph(fault) : joined(fault));
	ow_int(&m, 1, 10);
	ow_opset(&m, "", 23);
	ow_msg(&m, 7, attended());
	return m;
}

static void write_model(enum fault fault)
{
	static const char config[] =
		"{\"model\": {\"context_length\": 64, \"vocab_size\": 24, "
		"\"decoder\": {\"conv_cache_size\": %d, "
		"\"filename\": \"model.onnx\", \"inputs\": "
		"{\"past_conv_names\": \"past.%%d.conv\"}, \"outputs\": "
		"{\"present_conv_names\": \"present.%%d.conv\"}}}, "
		"\"search\": {\"chunk_size\": 5}}";
	struct ow m = model_of(fault);
	char text[sizeof(config) + 16];
	int n = snprintf(text, sizeof(text), config,
			 fault == OTHER_CONFIG ? HIDDEN + 1 : HIDDEN);

	bench_write("model.onnx", m.data, m.n);
	bench_write("genai_config.json", text, (size_t)n);
	ow_free(&m);
}

// ---- sequences ----

static struct {
	struct genai_runtime *rt;
	struct genai_model *m;
	struct genai_session *s;
	int64_t ids[MOST];
	size_t n;
} k;

static const char *const executors[] = {"eager", "captured"};

static enum fault kind; // of the models
static const enum fault kinds[] = {SOUND, JOINED, ATTENDED};
#define N_KINDS 3

static void open_with(const char *executor, const char *more)
{
	write_model(kind);
	memset(&k, 0, sizeof(k));
	k.rt = runtime(executor, "pager_async", "50%", more);
	k.m = model(k.rt, bench.dir, 0);
	k.s = session(k.m);
	ck_assert_uint_eq(k.m->step.states.n_joined, kind == SOUND ? 0 : 2);
}

static void close_all(void)
{
	genai_session_close(k.s);
	genai_model_close(k.m);
	genai_close(k.rt);
	ck_assert_msg(!logged.n, "%s", logged.lines[0]);
}

// What next gave last is forgotten, if nobody asked for more.
static void say(const int64_t *ids, size_t n)
{
	k.n = genai_session_length(k.s);
	append(k.s, ids, n);
	memcpy(k.ids + k.n, ids, n * sizeof(*ids));
	k.n += n;
}

static void take(int n, int32_t ahead)
{
	while (n--) {
		k.ids[k.n] = next(k.s, ahead);
		ck_assert_int_eq(k.ids[k.n], expected(k.ids, k.n));
		k.n++;
		// the last one is not computed yet: nothing runs ahead
		ck_assert_uint_eq(genai_session_length(k.s), k.n - 1);
	}
}

static void back_to(size_t n)
{
	rewind_to(k.s, n);
	ck_assert_uint_eq(genai_session_length(k.s), n);
	k.n = n;
}

static const int64_t first[] = {3, 17, 5, 9, 20, 1, 1, 12};
static const int64_t second[] = {8, 2, 23};

START_TEST(tokens)
{
	kind = kinds[_i / 4];
	open_with(executors[_i % 2], _i & 2 ? "runtime.check=order" : NULL);
	say(first, 8); // in chunks of five
	take(7, 1);
	say(second, 3);
	take(7, 0);
	close_all();
}
END_TEST

// To where tokens were appended, before that, between, to what was generated,
// and to the beginning; then on with others.
START_TEST(rewinds)
{
	static const size_t where[] = {8, 6, 0, 1, 11, 13, 15, 20};
	size_t n = sizeof(where) / sizeof(where[0]);

	kind = kinds[_i / 4];
	open_with(executors[_i % 2], _i & 2 ? "runtime.check=order" : NULL);
	for (size_t i = 0; i < n * n; i++) {
		back_to(0);
		say(first, 8);
		take(4, 1);
		say(second, 3);
		take(7, 1);
		back_to(where[i % n] < k.n - 1 ? where[i % n] : k.n - 1);
		if (where[i / n] < k.n)
			back_to(where[i / n]);
		say(second + i % 3, 3 - i % 3);
		take(3, 1);
	}
	close_all();
}
END_TEST

START_TEST(rewound_has_no_logits)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int64_t id;

	open_with("eager", NULL);
	say(first, 8);
	back_to(5);
	fails(genai_session_next(k.s, 0, &id, &err), GENAI_E_STATE, &err,
	      "append tokens first");
	close_all();
}
END_TEST

// Whichever unit fails, what came before it is there again.
START_TEST(failures)
{
	struct genai_error err = GENAI_ERROR_INIT;
	bool failed = true;

	kind = kinds[_i / 2];
	for (int64_t n = 0; failed; n++) {
		size_t sure;
		int64_t id;
		int32_t rc;

		open_with(executors[_i % 2], NULL);
		say(first, 8);
		take(3, 1);
		sure = k.n - 1;
		break_launch(k.rt, n);
		rc = genai_session_append(k.s, second, 3, &err);
		for (int i = 0; !rc && i < 3; i++)
			rc = genai_session_next(k.s, 1, &id, &err);
		failed = rc != 0;
		if (failed)
			ck_assert_int_eq(rc, GENAI_E_DEVICE);
		k.n = genai_session_length(k.s);
		ck_assert_uint_ge(k.n, sure);
		fault.countdown = -1;
		back_to(sure);
		say(second, 3);
		take(5, 1);
		close_all();
		ck_assert_int_lt(n, 200);
	}
}
END_TEST

// Another sequence's failure takes no state away.
START_TEST(neighbours)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_session *other;

	kind = kinds[_i / 2];
	for (int64_t n = 0; n < 6; n++) {
		open_with(executors[_i % 2], NULL);
		other = session(k.m);
		append(other, first, 4);
		say(first, 8);
		take(3, 1);
		break_launch(k.rt, n);
		fails(genai_session_append(other, second, 3, &err),
		      GENAI_E_DEVICE, &err, "broken on purpose");
		fault.countdown = -1;
		take(4, 1);
		append(other, first + 4, 4);
		ck_assert_int_eq(next(other, 0), expected(first, 8));
		genai_session_close(other);
		close_all();
	}
}
END_TEST

START_TEST(to_the_end)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int64_t id;

	kind = kinds[_i / 2];
	open_with(executors[_i % 2], NULL);
	say(first, 8);
	take(MOST - 8, 1);
	k.n = MOST - 1;
	ck_assert_int_eq(genai_session_next(k.s, 1, &id, &err), 0);
	fails(genai_session_next(k.s, 1, &id, &err), GENAI_E_LIMIT, &err,
	      "is full");
	back_to(40);
	say(second, 3);
	take(5, 1);
	close_all();
}
END_TEST

static const struct {
	enum fault fault;
	int32_t code;
	const char *text;
} bad[] = {
	{NO_OUTPUT, GENAI_E_FORMAT, "graph output present.3.conv is missing"},
	{NO_DIM, GENAI_E_FORMAT,
	 "past.3.conv: the graph does not say how long"},
	{READ_LATE, GENAI_E_UNSUPPORTED,
	 "reads past.3.conv after present.3.conv was written"},
	{OTHER_TYPE, GENAI_E_UNSUPPORTED, "a state of type INT32"},
	{TOO_LONG, GENAI_E_LIMIT, "past.3.conv: dimension 1 is 1048576"},
	{OTHER_OUTPUT, GENAI_E_FORMAT,
	 "present.3.conv is of another type or shape than past.3.conv"},
	{OTHER_CONFIG, GENAI_E_FORMAT,
	 "past.3.conv holds 8 positions, model.decoder.conv_cache_size is 9"},
	{SUMMED, GENAI_E_UNSUPPORTED,
	 "node present.3.key (Add) makes the key/value cache present.3.key"},
	{OTHER_AXIS, GENAI_E_UNSUPPORTED, "(Concat) makes the key/value cache"},
	{PASSED_ON, GENAI_E_UNSUPPORTED, "(Concat) makes the key/value cache"},
};

START_TEST(refused)
{
	struct genai_model_options o = {.size = sizeof(o)};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_model *m;

	write_model(bad[_i].fault);
	k.rt = runtime("eager", "pager_sync", "auto", NULL);
	fails(genai_model_open(k.rt, bench.dir, &o, &m, &err), bad[_i].code,
	      &err, bad[_i].text);
	genai_close(k.rt);
}
END_TEST

// ---- exports ----

static const char *const folders[] = {
	MODEL("lfm2-cpu-int4"), MODEL("lfm2moe-cpu-int4"),
	MODEL("qwen35-cpu-int4"), MODEL("llama-cpu-fp32-kvint4")};
#define N_FOLDERS (int)(sizeof(folders) / sizeof(folders[0]))
static const int64_t talk[] = {5,   77, 110, 42, 9, 201,
			       118, 64, 200, 33, 7, 250};

// What follows after the first n of talk, in a session of its own.
static void straight(struct genai_model *m, size_t n, int64_t *out, int count)
{
	struct genai_session *s = session(m);

	append(s, talk, n);
	for (int i = 0; i < count; i++)
		out[i] = next(s, 1);
	genai_session_close(s);
}

// Turns of a conversation, some taken back: whatever a session went through,
// it goes on as one that was given the same tokens at once.
START_TEST(exports)
{
	static const char *const budgets[] = {"auto", "30%"};
	static const size_t to[] = {0, 1, 4, 5, 6, 9, 11};
	int64_t want[6];

	k.rt = runtime(executors[_i % 2], "pager_async", budgets[_i / 2 % 2],
		       "runtime.check=order");
	k.m = model(k.rt, folders[_i / 4], 0);
	k.s = session(k.m);
	straight(k.m, 12, want, 6);
	for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++) {
		rewind_to(k.s, 0);
		append(k.s, talk, 5);
		next(k.s, 1);
		rewind_to(k.s, 5); // what ran ahead of it
		append(k.s, talk + 5, 4);
		next(k.s, 0);
		next(k.s, 0);
		rewind_to(k.s, 9);
		append(k.s, talk + 9, 3);
		rewind_to(k.s, to[i]);
		append(k.s, talk + to[i], 12 - to[i]);
		for (int t = 0; t < 6; t++)
			ck_assert_int_eq(next(k.s, t % 2), want[t]);
	}
	close_all();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("state");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, bench_setup, bench_teardown);
	tcase_add_loop_test(t, tokens, 0, 4 * N_KINDS);
	tcase_add_loop_test(t, rewinds, 0, 4 * N_KINDS);
	tcase_add_test(t, rewound_has_no_logits);
	tcase_add_loop_test(t, failures, 0, 2 * N_KINDS);
	tcase_add_loop_test(t, neighbours, 0, 2 * N_KINDS);
	tcase_add_loop_test(t, to_the_end, 0, 2 * N_KINDS);
	tcase_add_loop_test(t, refused, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_loop_test(t, exports, 0, 4 * N_FOLDERS);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
