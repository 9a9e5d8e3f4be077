// check_onnx_nodes.c - from a model file to a graph: constants, attributes,
// subgraphs, fixtures.
#include "tests/unit/onnx_writer.h"

#include <pthread.h>

// Constant nodes.
static struct ow constant(struct ow attr)
{
	struct ow g = {NULL, 0, 0}, n = ow_node("Constant", NULL, "c");

	ow_msg(&n, 5, attr);
	ow_add_node(&g, n);
	ow_add_op(&g, "Identity", "c", "y");
	ow_add_output(&g, "y");
	return g;
}

START_TEST(constant_tensor)
{
	struct ow a = ow_attr("value", OW_TENSOR);
	const struct genai_graph *g;
	float f;

	ow_msg(&a, 5, ow_scalar(NULL, 2.5f));
	g = graph_ok(constant(a));
	ck_assert_uint_eq(g->n_nodes, 1);
	memcpy(&f, bytes_of(g, "c", 4), 4);
	ck_assert(f == 2.5f);
	ck_assert_uint_eq(value_of(g, "c")->rank, 0);
}
END_TEST

START_TEST(constant_numbers)
{
	struct ow a = ow_attr("value_int", OW_INT);
	const struct genai_graph *g;
	int64_t i[2];
	float f[2];

	ow_int(&a, 3, -7);
	g = graph_ok(constant(a));
	memcpy(i, bytes_of(g, "c", 8), 8);
	ck_assert_int_eq(i[0], -7);
	ck_assert_uint_eq(value_of(g, "c")->rank, 0);
	ck_assert_uint_eq(value_of(g, "c")->dtype, GENAI_DT_I64);

	a = ow_attr("value_ints", 7);
	ow_int(&a, 8, 3);
	ow_int(&a, 8, -4);
	g = graph_ok(constant(a));
	memcpy(i, bytes_of(g, "c", 16), 16);
	ck_assert_int_eq(i[0], 3);
	ck_assert_int_eq(i[1], -4);
	ck_assert_int_eq(value_of(g, "c")->dims[0], 2);

	a = ow_attr("value_float", OW_FLOAT);
	ow_f32(&a, 2, 0.5f);
	g = graph_ok(constant(a));
	memcpy(f, bytes_of(g, "c", 4), 4);
	ck_assert(f[0] == 0.5f);

	a = ow_attr("value_floats", 6);
	ow_f32(&a, 7, 1.5f);
	ow_f32(&a, 7, -2.0f);
	g = graph_ok(constant(a));
	memcpy(f, bytes_of(g, "c", 8), 8);
	ck_assert(f[0] == 1.5f && f[1] == -2.0f);

	g = graph_ok(constant(ow_attr("value_ints", 7)));
	ck_assert_int_eq(value_of(g, "c")->dims[0], 0);
}
END_TEST

START_TEST(constant_packed_ints)
{
	struct ow a = ow_attr("value_ints", 7);
	int64_t i[2];

	ow_bytes(&a, 8, "\x05\xac\x02", 3);
	memcpy(i, bytes_of(graph_ok(constant(a)), "c", 16), 16);
	ck_assert_int_eq(i[0], 5);
	ck_assert_int_eq(i[1], 300);
}
END_TEST

START_TEST(constant_of_unknown_kind)
{
	graph_fails(constant(ow_attr("valeu", OW_INT)), GENAI_E_FORMAT,
		    "needs one value");
}
END_TEST

START_TEST(constant_without_tensor)
{
	graph_fails(constant(ow_attr("value", OW_TENSOR)), GENAI_E_FORMAT,
		    "needs one value");
}
END_TEST

START_TEST(constant_with_two_values)
{
	struct ow g = {NULL, 0, 0}, n = ow_node("Constant", NULL, "c");

	ow_attr_int(&n, "value_int", 1);
	ow_attr_int(&n, "value_float", 1);
	ow_add_node(&g, n);
	graph_fails(g, GENAI_E_FORMAT, "needs one value");
}
END_TEST

START_TEST(constant_without_output)
{
	struct ow g = {NULL, 0, 0}, n = ow_node("Constant", NULL, NULL);

	ow_attr_int(&n, "value_int", 1);
	ow_add_node(&g, n);
	graph_fails(g, GENAI_E_FORMAT, "needs one value");
}
END_TEST

START_TEST(constant_sparse_used)
{
	graph_fails(constant(ow_attr("sparse_value", 11)), GENAI_E_UNSUPPORTED,
		    "\"c\" is read, but sparse tensors are not supported");
}
END_TEST

START_TEST(constant_string_used)
{
	struct ow a = ow_attr("value_string", OW_STRING);

	ow_str(&a, 4, "text");
	graph_fails(constant(a), GENAI_E_UNSUPPORTED,
		    "\"c\" is read, but STRING tensors are not supported");
}
END_TEST

// A name that two constants share, whatever their kinds.
START_TEST(constants_of_one_name)
{
	static const char *const kinds[4] = {"value_int", "value_string",
					     "sparse_value", "value_ints"};
	struct ow g = {NULL, 0, 0};
	int k[2] = {_i / 4, _i % 4}, i;

	for (i = 0; i < 2; i++) {
		struct ow n = ow_node("Constant", NULL, "c");

		ow_msg(&n, 5, ow_attr(kinds[k[i]], OW_INT));
		ow_add_node(&g, n);
	}
	graph_fails(g, GENAI_E_FORMAT, "\"c\" is defined twice");
}
END_TEST

START_TEST(constant_of_other_domain_is_a_node)
{
	struct ow g = {NULL, 0, 0}, n = ow_node("Constant", NULL, "c"), m;

	ow_str(&n, 7, "my.ops");
	ow_add_node(&g, n);
	m = ow_model(g);
	ow_opset(&m, "my.ops", 1);
	ck_assert_uint_eq(load_ok(m)->n_nodes, 1);
}
END_TEST

// Attributes.
static struct ow with_attr(struct ow attr)
{
	struct ow g = {NULL, 0, 0}, n = ow_node("Op", "x", "y");

	ow_msg(&n, 5, attr);
	ow_add_input(&g, "x");
	ow_add_node(&g, n);
	return g;
}

static const struct genai_attr *attr_ok(struct ow attr)
{
	const struct genai_graph *g = graph_ok(with_attr(attr));

	ck_assert_uint_eq(genai_graph_node(g, 0)->n_attrs, 1);
	return genai_node_attr(genai_graph_node(g, 0), 0);
}

// Each kind, with its type and without (IR version 1).
START_TEST(attribute_kinds)
{
	int typed = _i;
	const struct genai_attr *got;
	struct ow a, sub = {NULL, 0, 0};

	a = ow_attr("a", typed ? OW_FLOAT : 0);
	ow_f32(&a, 2, 0.25f);
	got = attr_ok(a);
	ck_assert_uint_eq(got->kind, GENAI_ATTR_FLOAT);
	ck_assert(got->f == 0.25);
	a = ow_attr("a", typed ? OW_INT : 0);
	ow_int(&a, 3, INT64_MIN);
	got = attr_ok(a);
	ck_assert_uint_eq(got->kind, GENAI_ATTR_INT);
	ck_assert_int_eq(got->i, INT64_MIN);
	a = ow_attr("a", typed ? OW_STRING : 0);
	ow_bytes(&a, 4, "a\0\xff", 3);
	got = attr_ok(a);
	ck_assert_uint_eq(got->kind, GENAI_ATTR_STRING);
	ck_assert_uint_eq(got->count, 3);
	ck_assert_mem_eq(got->s, "a\0\xff\0", 4);
	a = ow_attr("a", typed ? OW_TENSOR : 0);
	ow_msg(&a, 5, ow_scalar(NULL, 9));
	got = attr_ok(a);
	ck_assert_uint_eq(got->kind, GENAI_ATTR_TENSOR);
	ck_assert_uint_eq(got->tensor, 0);
	a = ow_attr("a", typed ? OW_GRAPH : 0);
	ow_str(&sub, 2, "sub");
	ow_msg(&a, 6, sub);
	got = attr_ok(a);
	ck_assert_uint_eq(got->kind, GENAI_ATTR_GRAPH);
	ck_assert_str_eq(got->graph->name, "sub");
	a = ow_attr("a", typed ? 6 : 0);
	ow_bytes(&a, 7, "\0\0\x80\x3f\0\0\0\xc0", 8);
	got = attr_ok(a);
	ck_assert_uint_eq(got->kind, GENAI_ATTR_FLOATS);
	ck_assert_uint_eq(got->count, 2);
	ck_assert(got->floats[0] == 1 && got->floats[1] == -2);
	a = ow_attr("a", typed ? 7 : 0);
	ow_int(&a, 8, 1);
	ow_int(&a, 8, -1);
	got = attr_ok(a);
	ck_assert_uint_eq(got->kind, GENAI_ATTR_INTS);
	ck_assert_uint_eq(got->count, 2);
	ck_assert_int_eq(got->ints[1], -1);
	a = ow_attr("a", typed ? 8 : 0);
	ow_str(&a, 9, "one");
	ow_str(&a, 9, "");
	got = attr_ok(a);
	ck_assert_uint_eq(got->kind, GENAI_ATTR_STRINGS);
	ck_assert_str_eq(got->strings[0], "one");
	ck_assert_str_eq(got->strings[1], "");
}
END_TEST

static const struct {
	int type;
	int32_t rc;
	const char *text;
} bad_attrs[] = {
	{OW_TENSOR, GENAI_E_FORMAT, "has no tensor"},
	{OW_GRAPH, GENAI_E_FORMAT, "has no graph"},
	{0, GENAI_E_UNSUPPORTED, "of type 0"},
	{9, GENAI_E_UNSUPPORTED, "attribute \"a\" of type 9"},
	{10, GENAI_E_UNSUPPORTED, "of type 10"},
	{11, GENAI_E_UNSUPPORTED, "of type 11"},
	{13, GENAI_E_UNSUPPORTED, "of type 13"},
	{99, GENAI_E_UNSUPPORTED, "of type 99"},
	{-1, GENAI_E_UNSUPPORTED, "of type -1"},
};

START_TEST(attribute_refused)
{
	graph_fails(with_attr(ow_attr("a", bad_attrs[_i].type)),
		    bad_attrs[_i].rc, bad_attrs[_i].text);
}
END_TEST

START_TEST(attribute_without_name)
{
	struct ow a = {NULL, 0, 0};

	ow_int(&a, 3, 1);
	graph_fails(with_attr(a), GENAI_E_FORMAT, "has no name");
}
END_TEST

START_TEST(attribute_twice)
{
	struct ow g = {NULL, 0, 0}, n = ow_node("Op", "x", "y");

	ow_attr_int(&n, "axis", 1);
	ow_attr_int(&n, "axis", 2);
	ow_add_input(&g, "x");
	ow_add_node(&g, n);
	graph_fails(g, GENAI_E_FORMAT, "\"axis\" appears twice");
}
END_TEST

START_TEST(attribute_reference)
{
	struct ow a = ow_attr("a", OW_INT);

	ow_str(&a, 21, "alpha");
	graph_fails(with_attr(a), GENAI_E_FORMAT, "refers to a function's");
}
END_TEST

START_TEST(attribute_string_with_nul)
{
	struct ow a = ow_attr("a", 8);

	ow_bytes(&a, 9, "a\0b", 3);
	graph_fails(with_attr(a), GENAI_E_FORMAT, "holds a NUL");
}
END_TEST

START_TEST(attribute_string_tensor)
{
	struct ow a = ow_attr("a", OW_TENSOR);
	struct ow t = ow_tensor1(NULL, GENAI_DT_STRING, 1);

	ow_str(&t, 6, "text");
	ow_msg(&a, 5, t);
	graph_fails(with_attr(a), GENAI_E_UNSUPPORTED,
		    "STRING is not supported");
}
END_TEST

// Subgraphs.
static struct ow if_node(struct ow then_graph)
{
	struct ow n = ow_node("If", "c", "y");

	ow_attr_graph(&n, "then_branch", then_graph);
	return n;
}

START_TEST(branch_reads_outer_initialiser)
{
	struct ow g = {NULL, 0, 0}, sub = {NULL, 0, 0};
	const struct genai_graph *got, *branch;
	const struct genai_value *k;

	ow_add_op(&sub, "Identity", "k", "out");
	ow_add_output(&sub, "out");
	ow_add_input(&g, "c");
	ow_add_init(&g, ow_scalar("k", 3));
	ow_add_node(&g, if_node(sub));
	ow_add_output(&g, "y");
	got = graph_ok(g);
	branch = genai_node_attr(genai_graph_node(got, 0), 0)->graph;
	k = value_of(branch, "k");
	ck_assert_uint_eq(k->flags, GENAI_VALUE_OUTER);
	ck_assert_uint_eq(k->tensor, GENAI_NONE);
	ck_assert_uint_eq(k->dtype, GENAI_DT_F32);
	ck_assert_uint_eq(k->rank, 0);
	ck_assert_uint_eq(branch->n_inputs, 0);
	ck_assert_str_eq(genai_graph_node(branch, 0)->op, "Identity");
	ck_assert_int_eq(genai_graph_node(branch, 0)->opset, 21);
}
END_TEST

START_TEST(branch_returns_outer_value)
{
	struct ow g = {NULL, 0, 0}, sub = {NULL, 0, 0};
	const struct genai_graph *branch;

	ow_add_output(&sub, "k");
	ow_add_input(&g, "c");
	ow_add_init(&g, ow_scalar("k", 3));
	ow_add_node(&g, if_node(sub));
	branch = genai_node_attr(genai_graph_node(graph_ok(g), 0), 0)->graph;
	ck_assert_uint_eq(branch->n_nodes, 0);
	ck_assert_uint_eq(branch->n_outputs, 1);
	ck_assert_uint_eq(value_of(branch, "k")->flags,
			  GENAI_VALUE_OUTER | GENAI_VALUE_OUTPUT);
}
END_TEST

START_TEST(branch_with_constants)
{
	struct ow g = {NULL, 0, 0}, sub = {NULL, 0, 0},
		  n = ow_node("Constant", NULL, "cos");
	struct ow a = ow_attr("value", OW_TENSOR);
	const struct genai_graph *branch;
	float f;

	ow_msg(&a, 5, ow_scalar(NULL, 7));
	ow_msg(&n, 5, a);
	ow_add_node(&sub, n);
	ow_add_output(&sub, "cos");
	ow_add_input(&g, "c");
	ow_add_node(&g, if_node(sub));
	branch = genai_node_attr(genai_graph_node(graph_ok(g), 0), 0)->graph;
	ck_assert_uint_eq(branch->n_nodes, 0);
	memcpy(&f, bytes_of(branch, "cos", 4), 4);
	ck_assert(f == 7);
}
END_TEST

START_TEST(capture_through_two_levels)
{
	struct ow g = {NULL, 0, 0}, mid = {NULL, 0, 0}, in = {NULL, 0, 0};
	const struct genai_graph *got;
	struct ow n;

	ow_add_op(&in, "Neg", "late", "z");
	ow_add_output(&in, "z");
	n = if_node(in);
	ow_add_node(&mid, n);
	ow_add_output(&mid, "y");
	ow_add_input(&g, "c");
	ow_add_node(&g, if_node(mid));
	ow_add_op(&g, "Abs", "c", "late"); // written after the If that reads it
	ow_add_output(&g, "y");
	got = graph_ok(g);
	ck_assert_str_eq(genai_graph_node(got, 0)->op, "Abs");
	ck_assert_str_eq(genai_graph_node(got, 1)->op, "If");
	got = genai_node_attr(genai_graph_node(got, 1), 0)->graph;
	ck_assert_uint_eq(value_of(got, "late")->flags, GENAI_VALUE_OUTER);
	ck_assert_uint_eq(value_of(got, "c")->flags, GENAI_VALUE_OUTER);
	got = genai_node_attr(genai_graph_node(got, 0), 0)->graph;
	ck_assert_uint_eq(value_of(got, "late")->flags, GENAI_VALUE_OUTER);
}
END_TEST

START_TEST(loop_body_has_inputs)
{
	struct ow g = {NULL, 0, 0}, body = {NULL, 0, 0},
		  n = ow_node("Loop", ",c,x", "y");
	const struct genai_graph *got;

	ow_add_input(&body, "i");
	ow_add_input(&body, "cond");
	ow_add_input(&body, "state");
	ow_add_op(&body, "Relu", "state", "next");
	ow_add_output(&body, "cond");
	ow_add_output(&body, "next");
	ow_attr_graph(&n, "body", body);
	ow_add_input(&g, "c");
	ow_add_input(&g, "x");
	ow_add_node(&g, n);
	got = graph_ok(g);
	ck_assert_uint_eq(genai_graph_node(got, 0)->inputs[0], GENAI_NONE);
	got = genai_node_attr(genai_graph_node(got, 0), 0)->graph;
	ck_assert_uint_eq(got->n_inputs, 3);
	ck_assert_uint_eq(got->n_outputs, 2);
}
END_TEST

START_TEST(inner_name_hides_nothing_outside)
{
	struct ow g = {NULL, 0, 0}, one = {NULL, 0, 0}, two = {NULL, 0, 0}, n;

	ow_add_op(&one, "Neg", "c", "t");
	ow_add_output(&one, "t");
	ow_add_op(&two, "Abs", "c", "t");
	ow_add_output(&two, "t");
	n = if_node(one);
	ow_attr_graph(&n, "else_branch", two);
	ow_add_input(&g, "c");
	ow_add_node(&g, n);
	ow_add_op(&g, "Relu", "t", "z"); // t is the branches' own
	graph_fails(g, GENAI_E_FORMAT, "its input \"t\" does not exist");
}
END_TEST

START_TEST(branch_reads_nothing)
{
	struct ow g = {NULL, 0, 0}, sub = {NULL, 0, 0};

	ow_add_op(&sub, "Identity", "ghost", "out");
	ow_add_input(&g, "c");
	ow_add_node(&g, if_node(sub));
	graph_fails(g, GENAI_E_FORMAT,
		    "subgraph \"then_branch\": node \"\" (Identity): its input "
		    "\"ghost\"");
}
END_TEST

START_TEST(branch_reads_its_own_if)
{
	struct ow g = {NULL, 0, 0}, sub = {NULL, 0, 0};

	ow_add_op(&sub, "Identity", "y", "out");
	ow_add_input(&g, "c");
	ow_add_node(&g, if_node(sub));
	graph_fails(g, GENAI_E_FORMAT, "cycle: y -> y");
}
END_TEST

START_TEST(branch_reads_outer_string)
{
	struct ow g = {NULL, 0, 0}, sub = {NULL, 0, 0},
		  t = ow_tensor1("note", GENAI_DT_STRING, 1);

	ow_str(&t, 6, "a");
	ow_add_op(&sub, "Identity", "note", "out");
	ow_add_input(&g, "c");
	ow_add_init(&g, t);
	ow_add_node(&g, if_node(sub));
	graph_fails(g, GENAI_E_UNSUPPORTED, "\"note\" is read, but STRING");
}
END_TEST

// A chain of If in If, levels graphs in all; the innermost has a typed value,
// the deepest message that a graph can have.
static struct ow nested(int levels)
{
	static const int64_t dims[1] = {1};
	struct ow g = {NULL, 0, 0};
	int i;

	ow_add_op(&g, "Relu", "c", "y");
	ow_msg(&g, 12, ow_value("y", GENAI_DT_F32, 1, dims));
	for (i = 1; i < levels; i++) {
		struct ow outer = {NULL, 0, 0};

		ow_add_node(&outer, if_node(g));
		ow_add_output(&outer, "y");
		g = outer;
	}
	ow_add_input(&g, "c");
	return g;
}

START_TEST(nested_25)
{
	struct ow m = ow_model(nested(25));
	double start = genai_cpu_seconds();

	load_ok(m);
	ck_assert_cost(genai_cpu_seconds() - start, 0.1);
}
END_TEST

START_TEST(nested_at_limit)
{
	const struct genai_graph *g = graph_ok(nested(32));
	int depth = 1;

	while (genai_graph_node(g, 0)->n_attrs) {
		g = genai_node_attr(genai_graph_node(g, 0), 0)->graph;
		depth++;
	}
	ck_assert_int_eq(depth, 32);
}
END_TEST

START_TEST(nested_above_limit)
{
	graph_fails(nested(33), GENAI_E_LIMIT, "nested deeper than 32 graphs");
}
END_TEST

START_TEST(nested_3000)
{
	struct ow m = ow_model(nested(3000));
	double start = genai_cpu_seconds();

	load_fails(m, GENAI_E_LIMIT, "deeper than 32 graphs");
	ck_assert_cost(genai_cpu_seconds() - start, 0.1);
}
END_TEST

static void *load_in_thread(void *arg)
{
	int32_t *rc = arg;

	*rc = bench_load_path(bench.path);
	return NULL;
}

// The deepest legal and a deeper model on a 256 KiB stack (which the sanitizer
// needs more of).
START_TEST(nested_on_small_stack)
{
	struct ow m = ow_model(nested(_i ? 32 : 100));
	size_t stack = 256 * 1024;
	pthread_attr_t attr;
	pthread_t thread;
	int32_t rc = 1;

#ifdef __SANITIZE_ADDRESS__
	stack = 1024 * 1024;
#endif
	bench_write("model.onnx", m.data, m.n);
	ow_free(&m);
	pthread_attr_init(&attr);
	ck_assert_int_eq(pthread_attr_setstacksize(&attr, stack), 0);
	ck_assert_int_eq(pthread_create(&thread, &attr, load_in_thread, &rc),
			 0);
	pthread_join(thread, NULL);
	pthread_attr_destroy(&attr);
	ck_assert_int_eq(rc, _i ? 0 : GENAI_E_LIMIT);
}
END_TEST

// Models of other writers, with what the onnx package finds in them.
static const struct {
	const char *name;
	off_t data_bytes;
	uint32_t nodes, tensors, inputs, outputs;
} fixtures[] = {
#include "tests/data/onnx/counts.inc"
};

// Copy a model to the test's folder, and make its data file: a hole.
static void place_fixture(const char *name, off_t data_bytes)
{
	static uint8_t data[1 << 17];
	char path[512];
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "%s/onnx/%s", GENAI_TESTDATA, name);
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s", path);
	n = fread(data, 1, sizeof(data), f);
	fclose(f);
	ck_assert_uint_gt(n, 0);
	ck_assert_uint_lt(n, sizeof(data));
	bench_write("model.onnx", data, n);
	bench_write("model.onnx.data", "", 0);
	ck_assert_int_eq(truncate(bench_file("model.onnx.data"), data_bytes),
			 0);
}

START_TEST(fixture_loads)
{
	const struct genai_graph *g;
	int32_t rc;

	place_fixture(fixtures[_i].name, fixtures[_i].data_bytes);
	rc = bench_load_path(bench.path);
	ck_assert_msg(rc == 0, "%s", bench.err.text);
	g = genai_onnx_graph(bench.model);
	ck_assert_uint_eq(g->n_nodes, fixtures[_i].nodes);
	ck_assert_uint_eq(g->n_tensors, fixtures[_i].tensors);
	ck_assert_uint_eq(g->n_inputs, fixtures[_i].inputs);
	ck_assert_uint_eq(g->n_outputs, fixtures[_i].outputs);
	ck_assert_msg(bench.n_warnings == 0, "%s", bench.warnings);
}
END_TEST

// A byte less of weights is seen.
START_TEST(fixture_with_short_data)
{
	if (!fixtures[_i].data_bytes)
		return;
	place_fixture(fixtures[_i].name, fixtures[_i].data_bytes - 1);
	ck_assert_int_eq(bench_load_path(bench.path), GENAI_E_FORMAT);
	ck_assert_ptr_nonnull(strstr(bench.err.text, "model.onnx.data: wants"));
}
END_TEST

// Every element type, as typed fields and as raw bytes of the same values.
START_TEST(typed_equals_raw)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} types[] = {{"FLOAT", 20},  {"UINT8", 5},    {"INT8", 5},
		     {"UINT16", 10}, {"INT16", 10},   {"INT32", 20},
		     {"INT64", 40},  {"FLOAT16", 10}, {"DOUBLE", 40},
		     {"UINT32", 20}, {"UINT64", 40},  {"BFLOAT16", 10},
		     {"UINT4", 3},   {"INT4", 3},     {"BOOL", 5}};
	const struct genai_graph *g;
	const uint8_t *typed, *raw;
	char name[32];
	size_t i;

	place_fixture("reference.onnx", 0);
	ck_assert_int_eq(bench_load_path(bench.path), 0);
	g = genai_onnx_graph(bench.model);
	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		snprintf(name, sizeof(name), "typed_%s", types[i].name);
		typed = bytes_of(g, name, types[i].bytes);
		snprintf(name, sizeof(name), "raw_%s", types[i].name);
		raw = bytes_of(g, name, types[i].bytes);
		ck_assert_mem_eq(typed, raw, types[i].bytes);
	}
	ck_assert_str_eq(value_of(g, "x")->symbols[0], "n");
	ck_assert_uint_eq(value_of(g, "s")->dtype, GENAI_DT_NONE);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("onnx_nodes");
	TCase *t = tcase_create("model");

	tcase_add_checked_fixture(t, bench_setup, bench_teardown);
	tcase_set_timeout(t, 30);
#define T(name) tcase_add_test(t, name)
#define LOOP(name, n) tcase_add_loop_test(t, name, 0, (int)(n))
	T(constant_tensor);
	T(constant_numbers);
	T(constant_packed_ints);
	T(constant_of_unknown_kind);
	T(constant_without_tensor);
	T(constant_with_two_values);
	T(constant_without_output);
	T(constant_sparse_used);
	T(constant_string_used);
	LOOP(constants_of_one_name, 16);
	T(constant_of_other_domain_is_a_node);
	LOOP(attribute_kinds, 2);
	LOOP(attribute_refused, sizeof(bad_attrs) / sizeof(bad_attrs[0]));
	T(attribute_without_name);
	T(attribute_twice);
	T(attribute_reference);
	T(attribute_string_with_nul);
	T(attribute_string_tensor);
	T(branch_reads_outer_initialiser);
	T(branch_returns_outer_value);
	T(branch_with_constants);
	T(capture_through_two_levels);
	T(loop_body_has_inputs);
	T(inner_name_hides_nothing_outside);
	T(branch_reads_nothing);
	T(branch_reads_its_own_if);
	T(branch_reads_outer_string);
	T(nested_25);
	T(nested_at_limit);
	T(nested_above_limit);
	T(nested_3000);
	LOOP(nested_on_small_stack, 2);
	LOOP(fixture_loads, sizeof(fixtures) / sizeof(fixtures[0]));
	LOOP(fixture_with_short_data, sizeof(fixtures) / sizeof(fixtures[0]));
	T(typed_equals_raw);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
