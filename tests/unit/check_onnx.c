// check_onnx.c - from a model file to a graph: files, versions, values, names.
// With "--load FILE..." it loads the given models.
#include "tests/unit/onnx_writer.h"

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
	ow_add_init(&g, ow_scalar("max", 6));
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
	ow_add_init(&g, ow_scalar("w", 1));
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

	ow_add_init(&g, ow_scalar("w", 1));
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

	ow_add_init(&g, ow_scalar("w", 1));
	ow_add_init(&g, ow_scalar("w", 1));
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
	ow_add_init(&g, ow_scalar("w", 1));
	ow_add_node(&g, n);
	graph_fails(g, GENAI_E_FORMAT, "\"w\" is defined twice");
}
END_TEST

START_TEST(initialiser_without_name)
{
	struct ow g = {NULL, 0, 0};

	ow_add_init(&g, ow_scalar(NULL, 1));
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
	ow_add_init(&g, ow_scalar("w", 1));
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
