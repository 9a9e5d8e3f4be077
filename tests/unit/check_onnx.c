// check_onnx.c - from a model file to a graph: nodes, values, constants,
// subgraphs, versions.  With "--load FILE..." it loads the given models.
#include "tests/unit/onnx_writer.h"

#include <pthread.h>

// x -> Relu -> y, the body of most tests.
static struct ow relu_graph(void)
{
	struct ow g = {NULL, 0, 0};

	ow_str(&g, 2, "g");
	ow_add_input(&g, "x");
	ow_add_op(&g, "Relu", "x", "y");
	ow_add_output(&g, "y");
	return g;
}

static struct ow scalar(const char *name, float v)
{
	struct ow t = ow_tensor(name, GENAI_DT_F32, 0, NULL);

	ow_bytes(&t, 9, &v, 4);
	return t;
}

START_TEST(smallest_model)
{
	const struct genai_graph *g = graph_ok(relu_graph());
	const struct genai_node *n;

	ck_assert_str_eq(g->name, "g");
	ck_assert_uint_eq(g->n_nodes, 1);
	ck_assert_uint_eq(g->n_values, 2);
	ck_assert_uint_eq(g->n_tensors, 0);
	ck_assert_uint_eq(g->n_inputs, 1);
	ck_assert_uint_eq(g->n_outputs, 1);
	n = genai_graph_node(g, 0);
	ck_assert_str_eq(n->op, "Relu");
	ck_assert_str_eq(n->domain, "");
	ck_assert_int_eq(n->opset, 21);
	ck_assert_str_eq(genai_graph_value(g, g->inputs[0])->name, "x");
	ck_assert_str_eq(genai_graph_value(g, g->outputs[0])->name, "y");
	ck_assert_int_eq(genai_onnx_check(bench.model, &bench.err), 0);
	ck_assert_int_eq(bench.n_warnings, 0);
}
END_TEST

START_TEST(without_options)
{
	struct ow m = ow_model(relu_graph());

	ow_opset(&m, "x", 1);
	ow_str(&m, 20, ""); // training: warned about, here to nobody
	bench_write("model.onnx", m.data, m.n);
	ow_free(&m);
	ck_assert_int_eq(genai_onnx_load(bench.path, NULL, &bench.model, NULL),
			 0);
}
END_TEST

START_TEST(no_error_record)
{
	bench_write("model.onnx", "x", 1);
	ck_assert_int_eq(genai_onnx_load(bench.path, NULL, &bench.model, NULL),
			 GENAI_E_FORMAT);
	ck_assert_ptr_null(bench.model);
}
END_TEST

START_TEST(missing_file)
{
	expect_error(bench_load_path(bench.path), GENAI_E_NOTFOUND,
		     "No such file");
}
END_TEST

START_TEST(folder_as_file)
{
	mkdir(bench.path, 0700);
	expect_error(bench_load_path(bench.path), GENAI_E_IO, "is a directory");
}
END_TEST

START_TEST(fifo_as_file)
{
	mkfifo(bench.path, 0600);
	expect_error(bench_load_path(bench.path), GENAI_E_IO,
		     "not a regular file");
}
END_TEST

START_TEST(empty_file)
{
	expect_error(bench_load_bytes("", 0), GENAI_E_FORMAT, "is empty");
}
END_TEST

START_TEST(lfs_pointer)
{
	static const char text[] =
		"version https://git-lfs.github.com/spec/v1\n"
		"oid sha256:4665\nsize 12345\n";

	expect_error(bench_load_bytes(text, sizeof(text) - 1), GENAI_E_FORMAT,
		     "Git LFS pointer, not the model; run git lfs pull");
}
END_TEST

START_TEST(text_file)
{
	static const char html[] = "\n <!DOCTYPE html><html></html>";
	static const char text[] = "{\"error\": \"not found\"}\n";

	expect_error(bench_load_bytes(html, sizeof(html) - 1), GENAI_E_FORMAT,
		     "this is text (HTML), not an ONNX model");
	expect_error(bench_load_bytes(text, sizeof(text) - 1), GENAI_E_FORMAT,
		     "this is text, not an ONNX model");
}
END_TEST

START_TEST(no_graph)
{
	struct ow m = {NULL, 0, 0};

	ow_int(&m, 1, 10);
	ow_opset(&m, "", 21);
	load_fails(m, GENAI_E_FORMAT, "has no graph");
}
END_TEST

START_TEST(empty_graph)
{
	struct ow g = {NULL, 0, 0};
	const struct genai_graph *got = graph_ok(g);

	ck_assert_str_eq(got->name, "");
	ck_assert_uint_eq(got->n_nodes, 0);
}
END_TEST

START_TEST(no_ir_version)
{
	struct ow m = {NULL, 0, 0};

	ow_opset(&m, "", 21);
	ow_msg(&m, 7, relu_graph());
	load_fails(m, GENAI_E_FORMAT, "no ir_version");
}
END_TEST

START_TEST(newer_ir_version)
{
	struct ow m = {NULL, 0, 0};

	ow_int(&m, 1, 99);
	ow_opset(&m, "", 21);
	ow_msg(&m, 7, relu_graph());
	load_ok(m);
	ck_assert_int_eq(bench.n_warnings, 1);
	ck_assert_ptr_nonnull(strstr(bench.warnings, "IR version 99"));
}
END_TEST

// Versions of operators.
START_TEST(no_opset)
{
	struct ow m = {NULL, 0, 0};

	ow_int(&m, 1, 10);
	ow_msg(&m, 7, relu_graph());
	load_fails(m, GENAI_E_FORMAT, "has no opset_import");
}
END_TEST

static struct ow with_opsets(const char *d1, int64_t v1, const char *d2,
			     int64_t v2)
{
	struct ow m = {NULL, 0, 0};

	ow_int(&m, 1, 10);
	ow_opset(&m, d1, v1);
	if (v2)
		ow_opset(&m, d2, v2);
	ow_msg(&m, 7, relu_graph());
	return m;
}

START_TEST(opset_newer_than_known)
{
	load_fails(with_opsets("", 99, NULL, 0), GENAI_E_UNSUPPORTED,
		   "opset 99 of domain \"\" is newer than 28");
}
END_TEST

START_TEST(opset_newest_known)
{
	const struct genai_graph *g = load_ok(with_opsets("", 28, NULL, 0));

	ck_assert_int_eq(genai_graph_node(g, 0)->opset, 28);
}
END_TEST

START_TEST(opset_microsoft_newer)
{
	load_fails(with_opsets("", 21, "com.microsoft", 2), GENAI_E_UNSUPPORTED,
		   "opset 2 of domain \"com.microsoft\"");
}
END_TEST

START_TEST(opset_zero)
{
	load_fails(with_opsets("", 0, NULL, 0), GENAI_E_FORMAT, "version 0");
}
END_TEST

START_TEST(opset_negative)
{
	load_fails(with_opsets("", -5, NULL, 0), GENAI_E_FORMAT, "version -5");
}
END_TEST

START_TEST(opset_ai_onnx_spelled_out)
{
	const struct genai_graph *g =
		load_ok(with_opsets("ai.onnx", 17, NULL, 0));

	ck_assert_int_eq(genai_graph_node(g, 0)->opset, 17);
	ck_assert_str_eq(genai_graph_node(g, 0)->domain, "");
}
END_TEST

START_TEST(opset_no_domain_field)
{
	const struct genai_graph *g = load_ok(with_opsets(NULL, 13, NULL, 0));

	ck_assert_int_eq(genai_graph_node(g, 0)->opset, 13);
}
END_TEST

START_TEST(opset_twice_differs)
{
	load_fails(with_opsets("", 20, "ai.onnx", 21), GENAI_E_FORMAT,
		   "twice: versions 20 and 21");
}
END_TEST

START_TEST(opset_twice_same)
{
	load_ok(with_opsets("", 21, "ai.onnx", 21));
}
END_TEST

START_TEST(domain_not_imported)
{
	struct ow g = {NULL, 0, 0}, n = ow_node("QuickGelu", "x", "y");

	ow_str(&n, 7, "com.microsoft");
	ow_add_input(&g, "x");
	ow_add_node(&g, n);
	graph_fails(g, GENAI_E_FORMAT,
		    "(QuickGelu): its domain \"com.microsoft\" is not in");
}
END_TEST

START_TEST(opset_is_per_domain)
{
	struct ow g = {NULL, 0, 0}, n = ow_node("QuickGelu", "x", "y"), m;
	const struct genai_graph *got;

	ow_str(&n, 7, "com.microsoft");
	ow_add_input(&g, "x");
	ow_add_node(&g, n);
	ow_add_op(&g, "Relu", "y", "z");
	m = ow_model(g);
	ow_opset(&m, "com.microsoft", 1);
	got = load_ok(m);
	ck_assert_str_eq(genai_graph_node(got, 0)->domain, "com.microsoft");
	ck_assert_int_eq(genai_graph_node(got, 0)->opset, 1);
	ck_assert_int_eq(genai_graph_node(got, 1)->opset, 21);
}
END_TEST

START_TEST(node_domain_ai_onnx)
{
	struct ow g = {NULL, 0, 0}, n = ow_node("Relu", "x", "y");

	ow_str(&n, 7, "ai.onnx");
	ow_add_input(&g, "x");
	ow_add_node(&g, n);
	ck_assert_str_eq(genai_graph_node(graph_ok(g), 0)->domain, "");
}
END_TEST

START_TEST(training_is_ignored)
{
	struct ow m = ow_model(relu_graph());

	ow_str(&m, 20, "\xff\xff");
	load_ok(m);
	ck_assert_int_eq(bench.n_warnings, 1);
	ck_assert_ptr_nonnull(strstr(bench.warnings, "training_info"));
}
END_TEST

// Values.
START_TEST(declared_shapes)
{
	static const int64_t dims[3] = {1, -1, 0};
	struct ow g = {NULL, 0, 0}, v = {NULL, 0, 0}, type = {NULL, 0, 0},
		  tensor = {NULL, 0, 0}, shape = {NULL, 0, 0},
		  dim = {NULL, 0, 0};
	const struct genai_value *got;
	const struct genai_graph *graph;

	ow_str(&dim, 2, "batch");
	ow_msg(&shape, 1, dim);
	ow_int(&tensor, 1, GENAI_DT_I64);
	ow_msg(&tensor, 2, shape);
	ow_msg(&type, 1, tensor);
	ow_str(&v, 1, "x");
	ow_msg(&v, 2, type);
	ow_msg(&g, 11, v);
	ow_add_op(&g, "Relu", "x", "a");
	ow_add_op(&g, "Relu", "a", "y");
	ow_msg(&g, 13, ow_value("a", GENAI_DT_F16, 3, dims));
	ow_msg(&g, 13, ow_value("stale", GENAI_DT_F16, 3, dims));
	ow_msg(&g, 12, ow_value("y", GENAI_DT_BF16, 0, NULL));
	graph = graph_ok(g);
	got = value_of(graph, "x");
	ck_assert_uint_eq(got->dtype, GENAI_DT_I64);
	ck_assert_uint_eq(got->rank, 1);
	ck_assert_int_eq(got->dims[0], -1);
	ck_assert_str_eq(got->symbols[0], "batch");
	got = value_of(graph, "a");
	ck_assert_uint_eq(got->dtype, GENAI_DT_F16);
	ck_assert_uint_eq(got->rank, 3);
	ck_assert_int_eq(got->dims[0], 1);
	ck_assert_int_eq(got->dims[1], -1);
	ck_assert_int_eq(got->dims[2], 0);
	got = value_of(graph, "y");
	ck_assert_uint_eq(got->dtype, GENAI_DT_BF16);
	ck_assert_uint_eq(got->rank, 0);
	ck_assert_uint_eq(graph->n_values, 3);
}
END_TEST

START_TEST(declared_negative_dim_is_unknown)
{
	struct ow g = {NULL, 0, 0}, v = {NULL, 0, 0}, type = {NULL, 0, 0},
		  tensor = {NULL, 0, 0}, shape = {NULL, 0, 0},
		  dim = {NULL, 0, 0};

	ow_int(&dim, 1, -7);
	ow_msg(&shape, 1, dim);
	ow_msg(&tensor, 2, shape);
	ow_msg(&type, 1, tensor);
	ow_str(&v, 1, "x");
	ow_msg(&v, 2, type);
	ow_msg(&g, 11, v);
	ck_assert_int_eq(value_of(graph_ok(g), "x")->dims[0], -1);
}
END_TEST

static void declared_rank(int rank, int64_t dim, int32_t rc, const char *text)
{
	struct ow g = {NULL, 0, 0};
	int64_t dims[17];
	int i;

	for (i = 0; i < rank; i++)
		dims[i] = dim;
	ow_msg(&g, 11, ow_value("x", GENAI_DT_F32, rank, dims));
	if (rc)
		graph_fails(g, rc, text);
	else
		ck_assert_uint_eq(value_of(graph_ok(g), "x")->rank,
				  (uint32_t)rank);
}

START_TEST(declared_limits)
{
	declared_rank(16, 1, 0, NULL);
	declared_rank(17, 1, GENAI_E_LIMIT, "rank 17, at most 16");
	declared_rank(1, INT64_C(1) << 40, 0, NULL);
	declared_rank(1, (INT64_C(1) << 40) + 1, GENAI_E_LIMIT, "too large");
}
END_TEST

START_TEST(value_without_type)
{
	struct ow g = {NULL, 0, 0}, v = {NULL, 0, 0};
	const struct genai_value *got;

	ow_str(&v, 1, "x");
	ow_msg(&g, 11, v);
	got = value_of(graph_ok(g), "x");
	ck_assert_uint_eq(got->dtype, GENAI_DT_NONE);
	ck_assert_uint_eq(got->rank, GENAI_NONE);
}
END_TEST

START_TEST(input_without_name)
{
	struct ow g = {NULL, 0, 0};

	ow_add_input(&g, "");
	graph_fails(g, GENAI_E_FORMAT, "graph input 0 has no name");
}
END_TEST

START_TEST(input_listed_twice)
{
	struct ow g = {NULL, 0, 0};

	ow_add_input(&g, "x");
	ow_add_input(&g, "x");
	graph_fails(g, GENAI_E_FORMAT, "\"x\"");
}
END_TEST

START_TEST(zero_dim_output)
{
	static const int64_t dims[2] = {0, 16};
	struct ow g = {NULL, 0, 0};

	ow_add_input(&g, "x");
	ow_add_op(&g, "Relu", "x", "y");
	ow_msg(&g, 12, ow_value("y", GENAI_DT_F32, 2, dims));
	ck_assert_int_eq(value_of(graph_ok(g), "y")->dims[0], 0);
}
END_TEST

// Nodes.
START_TEST(omitted_optional_inputs)
{
	struct ow g = {NULL, 0, 0};
	const struct genai_graph *got;
	const struct genai_node *n;

	ow_add_input(&g, "x");
	ow_add_init(&g, scalar("max", 6));
	ow_add_op(&g, "Clip", "x,,max", "y");
	ow_add_op(&g, "Squeeze", "x,", "z");
	ow_add_op(&g, "Dropout", "x", ",mask");
	got = graph_ok(g);
	n = genai_graph_node(got, 0);
	ck_assert_uint_eq(n->n_inputs, 3);
	ck_assert_uint_eq(n->inputs[1], GENAI_NONE);
	ck_assert_str_eq(genai_graph_value(got, n->inputs[2])->name, "max");
	n = genai_graph_node(got, 1);
	ck_assert_uint_eq(n->n_inputs, 2);
	ck_assert_uint_eq(n->inputs[1], GENAI_NONE);
	n = genai_graph_node(got, 2);
	ck_assert_uint_eq(n->n_outputs, 2);
	ck_assert_uint_eq(n->outputs[0], GENAI_NONE);
	ck_assert_str_eq(genai_graph_value(got, n->outputs[1])->name, "mask");
}
END_TEST

START_TEST(node_without_op)
{
	struct ow g = {NULL, 0, 0};

	ow_add_input(&g, "x");
	ow_add_op(&g, "", "x", "y");
	graph_fails(g, GENAI_E_FORMAT, "has no operator");
}
END_TEST

START_TEST(undefined_node_input)
{
	struct ow g = {NULL, 0, 0}, n = ow_node("Add", "x,ghost", "y");

	ow_str(&n, 3, "/model/add");
	ow_add_input(&g, "x");
	ow_add_node(&g, n);
	graph_fails(g, GENAI_E_FORMAT,
		    "node \"/model/add\" (Add): its input \"ghost\" does not");
}
END_TEST

START_TEST(undefined_graph_output)
{
	struct ow g = relu_graph();

	ow_add_output(&g, "present.0.key");
	graph_fails(g, GENAI_E_FORMAT,
		    "graph output \"present.0.key\" does not exist");
}
END_TEST

START_TEST(output_without_name)
{
	struct ow g = relu_graph();

	ow_add_output(&g, "");
	graph_fails(g, GENAI_E_FORMAT, "graph output \"\" does not exist");
}
END_TEST

START_TEST(output_listed_twice)
{
	struct ow g = relu_graph();

	ow_add_output(&g, "y");
	graph_fails(g, GENAI_E_FORMAT, "\"y\" is listed twice");
}
END_TEST

START_TEST(input_and_initialiser_as_output)
{
	struct ow g = {NULL, 0, 0};
	const struct genai_graph *got;

	ow_add_input(&g, "x");
	ow_add_init(&g, scalar("w", 1));
	ow_add_output(&g, "x");
	ow_add_output(&g, "w");
	got = graph_ok(g);
	ck_assert_uint_eq(got->n_outputs, 2);
	ck_assert_uint_eq(value_of(got, "w")->flags, GENAI_VALUE_OUTPUT);
}
END_TEST

START_TEST(identity_is_kept)
{
	struct ow g = {NULL, 0, 0};

	ow_add_init(&g, scalar("w", 1));
	ow_add_op(&g, "Identity", "w", "y");
	ow_add_output(&g, "y");
	ck_assert_str_eq(genai_graph_node(graph_ok(g), 0)->op, "Identity");
}
END_TEST

START_TEST(unsorted_nodes)
{
	struct ow g = {NULL, 0, 0};
	const struct genai_graph *got;

	ow_add_op(&g, "Neg", "b", "c");
	ow_add_op(&g, "Abs", "a", "b");
	ow_add_op(&g, "Relu", "x", "a");
	ow_add_input(&g, "x");
	ow_add_output(&g, "c");
	got = graph_ok(g);
	ck_assert_str_eq(genai_graph_node(got, 0)->op, "Relu");
	ck_assert_str_eq(genai_graph_node(got, 1)->op, "Abs");
	ck_assert_str_eq(genai_graph_node(got, 2)->op, "Neg");
}
END_TEST

START_TEST(cycle)
{
	struct ow g = {NULL, 0, 0};

	ow_add_op(&g, "Relu", "b", "a");
	ow_add_op(&g, "Relu", "a", "b");
	graph_fails(g, GENAI_E_FORMAT, "cycle: a -> b -> a");
}
END_TEST

// Names defined twice: never "last wins".
START_TEST(two_initialisers)
{
	struct ow g = {NULL, 0, 0};

	ow_raw(&g, "\x2a\x03\x42\x01\x77\x2a\x03\x42\x01\x77", 10);
	graph_fails(g, GENAI_E_FORMAT, "\"w\"");
}
END_TEST

START_TEST(two_good_initialisers)
{
	struct ow g = {NULL, 0, 0};

	ow_add_init(&g, scalar("w", 1));
	ow_add_init(&g, scalar("w", 1));
	graph_fails(g, GENAI_E_FORMAT, "the name \"w\" is defined twice");
}
END_TEST

START_TEST(output_equals_input)
{
	struct ow g = {NULL, 0, 0};

	ow_add_input(&g, "x");
	ow_add_op(&g, "Relu", "x", "x");
	graph_fails(g, GENAI_E_FORMAT, "\"x\" is defined twice");
}
END_TEST

START_TEST(two_writers)
{
	struct ow g = relu_graph();

	ow_add_op(&g, "Abs", "x", "y");
	graph_fails(g, GENAI_E_FORMAT, "\"y\" is defined twice");
}
END_TEST

START_TEST(constant_equals_initialiser)
{
	struct ow g = {NULL, 0, 0}, n = ow_node("Constant", NULL, "w");

	ow_attr_int(&n, "value_int", 1);
	ow_add_init(&g, scalar("w", 1));
	ow_add_node(&g, n);
	graph_fails(g, GENAI_E_FORMAT, "\"w\" is defined twice");
}
END_TEST

START_TEST(initialiser_without_name)
{
	struct ow g = {NULL, 0, 0};

	ow_add_init(&g, scalar(NULL, 1));
	graph_fails(g, GENAI_E_FORMAT, "initialiser 0 has no name");
}
END_TEST

// Initialisers as inputs, or not.
static struct ow ir_model(int ir, int listed)
{
	struct ow g = {NULL, 0, 0}, m = {NULL, 0, 0};

	ow_add_input(&g, "x");
	if (listed)
		ow_add_input(&g, "w");
	ow_add_init(&g, scalar("w", 1));
	ow_add_op(&g, "Add", "x,w", "y");
	ow_add_output(&g, "y");
	ow_int(&m, 1, ir);
	ow_opset(&m, "", 21);
	ow_msg(&m, 7, g);
	return m;
}

START_TEST(initialiser_is_no_input)
{
	static const struct {
		int ir, listed, warnings;
	} cases[4] = {{3, 1, 0}, {3, 0, 1}, {8, 0, 0}, {8, 1, 0}};
	const struct genai_graph *g =
		load_ok(ir_model(cases[_i].ir, cases[_i].listed));

	ck_assert_uint_eq(g->n_inputs, 1);
	ck_assert_uint_eq(value_of(g, "w")->tensor, 0);
	ck_assert_uint_eq(value_of(g, "w")->flags, 0);
	ck_assert_int_eq(bench.n_warnings, cases[_i].warnings);
}
END_TEST

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

	ow_msg(&a, 5, scalar(NULL, 2.5f));
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
	ow_msg(&a, 5, scalar(NULL, 9));
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
	ow_add_init(&g, scalar("k", 3));
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
	ow_add_init(&g, scalar("k", 3));
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

	ow_msg(&a, 5, scalar(NULL, 7));
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
	Suite *s = suite_create("onnx");
	TCase *t = tcase_create("model");

	tcase_add_checked_fixture(t, bench_setup, bench_teardown);
	tcase_set_timeout(t, 30);
#define T(name) tcase_add_test(t, name)
#define LOOP(name, n) tcase_add_loop_test(t, name, 0, (int)(n))
	T(smallest_model);
	T(without_options);
	T(no_error_record);
	T(missing_file);
	T(folder_as_file);
	T(fifo_as_file);
	T(empty_file);
	T(lfs_pointer);
	T(text_file);
	T(no_graph);
	T(empty_graph);
	T(no_ir_version);
	T(newer_ir_version);
	T(no_opset);
	T(opset_newer_than_known);
	T(opset_newest_known);
	T(opset_microsoft_newer);
	T(opset_zero);
	T(opset_negative);
	T(opset_ai_onnx_spelled_out);
	T(opset_no_domain_field);
	T(opset_twice_differs);
	T(opset_twice_same);
	T(domain_not_imported);
	T(opset_is_per_domain);
	T(node_domain_ai_onnx);
	T(training_is_ignored);
	T(declared_shapes);
	T(declared_negative_dim_is_unknown);
	T(declared_limits);
	T(value_without_type);
	T(input_without_name);
	T(input_listed_twice);
	T(zero_dim_output);
	T(omitted_optional_inputs);
	T(node_without_op);
	T(undefined_node_input);
	T(undefined_graph_output);
	T(output_without_name);
	T(output_listed_twice);
	T(input_and_initialiser_as_output);
	T(identity_is_kept);
	T(unsorted_nodes);
	T(cycle);
	T(two_initialisers);
	T(two_good_initialisers);
	T(output_equals_input);
	T(two_writers);
	T(constant_equals_initialiser);
	T(initialiser_without_name);
	LOOP(initialiser_is_no_input, 4);
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

// Load the given models, print what they hold.
static int load_all(int argc, char **argv)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_onnx *model;
	int passed = 0, failed = 0, i;

	for (i = 0; i < argc; i++) {
		const struct genai_graph *g;

		if (genai_onnx_load(argv[i], NULL, &model, &err)) {
			printf("FAIL %s\n", err.text);
			failed++;
			continue;
		}
		g = genai_onnx_graph(model);
		printf("ok %s: %u nodes, %u tensors, %u inputs, %u outputs\n",
		       argv[i], g->n_nodes, g->n_tensors, g->n_inputs,
		       g->n_outputs);
		genai_onnx_close(model);
		passed++;
	}
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--load"))
		return load_all(argc - 2, argv + 2);
	return genai_check_main(suite());
}
