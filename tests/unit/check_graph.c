// check_graph.c - graphs under construction: names, tensors, attributes, nodes.
#include "tests/unit/graph_kit.h"

// Sizes of types.
static const struct {
	uint32_t dtype;
	uint32_t rank;
	int64_t dims[4];
	int32_t rc;
	uint64_t bytes;
} sizes[] = {
	{GENAI_DT_F32, 0, {0}, 0, 4},
	{GENAI_DT_F32, 1, {0}, 0, 0},
	{GENAI_DT_F32, 2, {2, 3}, 0, 24},
	{GENAI_DT_U8, 1, {7}, 0, 7},
	{GENAI_DT_I8, 1, {7}, 0, 7},
	{GENAI_DT_BOOL, 1, {7}, 0, 7},
	{GENAI_DT_U16, 1, {7}, 0, 14},
	{GENAI_DT_I16, 1, {7}, 0, 14},
	{GENAI_DT_F16, 1, {7}, 0, 14},
	{GENAI_DT_BF16, 1, {7}, 0, 14},
	{GENAI_DT_I32, 1, {7}, 0, 28},
	{GENAI_DT_U32, 1, {7}, 0, 28},
	{GENAI_DT_I64, 1, {7}, 0, 56},
	{GENAI_DT_U64, 1, {7}, 0, 56},
	{GENAI_DT_F64, 1, {7}, 0, 56},
	{GENAI_DT_U4, 1, {7}, 0, 4},
	{GENAI_DT_I4, 2, {3, 3}, 0, 5},
	{GENAI_DT_I4, 0, {0}, 0, 1},
	{GENAI_DT_I4, 1, {0}, 0, 0},
	{GENAI_DT_STRING, 1, {1}, GENAI_E_UNSUPPORTED, 0},
	{GENAI_DT_NONE, 1, {1}, GENAI_E_UNSUPPORTED, 0},
	{GENAI_DT_F8E5M2, 2, {3, 3}, 0, 9},
	{GENAI_DT_F4E2M1, 1, {7}, 0, 4},
	{GENAI_DT_U2, 1, {9}, 0, 3},
	{GENAI_DT_I2, 2, {INT64_C(1) << 40, 129}, GENAI_E_FORMAT, 0},
	{14, 1, {1}, GENAI_E_UNSUPPORTED, 0},
	{9999, 1, {1}, GENAI_E_UNSUPPORTED, 0},
	{GENAI_DT_F32, 1, {-1}, GENAI_E_FORMAT, 0},
	{GENAI_DT_F32, 2, {0, -1}, GENAI_E_FORMAT, 0},
	{GENAI_DT_F32, 17, {1}, GENAI_E_FORMAT, 0},
	{GENAI_DT_I8, 1, {INT64_C(1) << 40}, 0, UINT64_C(1) << 40},
	{GENAI_DT_I8, 1, {(INT64_C(1) << 40) + 1}, GENAI_E_FORMAT, 0},
	{GENAI_DT_I8, 2, {INT64_C(1) << 40, 64}, 0, UINT64_C(1) << 46},
	{GENAI_DT_I8, 2, {INT64_C(1) << 40, 65}, GENAI_E_FORMAT, 0},
	{GENAI_DT_I4, 2, {INT64_C(1) << 40, 128}, 0, UINT64_C(1) << 46},
	{GENAI_DT_I4, 2, {INT64_C(1) << 40, 129}, GENAI_E_FORMAT, 0},
	{GENAI_DT_F64, 2, {INT64_C(1) << 40, 9}, GENAI_E_FORMAT, 0},
	// 2^64 elements: wraps to 0 if multiplied carelessly
	{GENAI_DT_I8,
	 4,
	 {INT64_C(1) << 32, 1, INT64_C(1) << 32, 1},
	 GENAI_E_FORMAT,
	 0},
	{GENAI_DT_I8, 3, {INT64_C(1) << 40, INT64_C(1) << 40, 0}, 0, 0},
	{GENAI_DT_I8, 1, {INT64_MAX}, GENAI_E_FORMAT, 0},
};

START_TEST(tensor_bytes)
{
	uint64_t bytes = 77;
	int32_t rc = genai_tensor_bytes(sizes[_i].dtype, sizes[_i].rank,
					sizes[_i].dims, &bytes);

	ck_assert_int_eq(rc, sizes[_i].rc);
	ck_assert_uint_eq(bytes, rc ? 77 : sizes[_i].bytes);
}
END_TEST

START_TEST(dtype_names)
{
	ck_assert_str_eq(genai_dtype_name(GENAI_DT_F32), "FLOAT");
	ck_assert_str_eq(genai_dtype_name(GENAI_DT_BF16), "BFLOAT16");
	ck_assert_str_eq(genai_dtype_name(GENAI_DT_I4), "INT4");
	ck_assert_str_eq(genai_dtype_name(26), "INT2");
	ck_assert_str_eq(genai_dtype_name(27), "?");
	ck_assert_str_eq(genai_dtype_name(GENAI_NONE), "?");
}
END_TEST

START_TEST(null_builder)
{
	struct genai_graph *g = NULL;

	ck_assert_uint_eq(genai_builder_value(NULL, "x", 1, 0, NULL, NULL),
			  GENAI_NONE);
	ck_assert_uint_eq(
		genai_builder_node(NULL, "A", "", 1, "", NULL, 0, NULL, 0),
		GENAI_NONE);
	ck_assert_uint_eq(genai_builder_file(NULL, "", NULL, 0), GENAI_NONE);
	ck_assert_uint_eq(genai_builder_tensor(NULL, 0, 0, 0, 1, 0, NULL),
			  GENAI_NONE);
	ck_assert_uint_eq(genai_builder_stored(NULL, "x", 0), GENAI_NONE);
	ck_assert_uint_eq(genai_builder_const(NULL, "x", 1, 0, NULL, NULL),
			  GENAI_NONE);
	ck_assert_uint_eq(genai_builder_find(NULL, "x"), GENAI_NONE);
	ck_assert_uint_eq(genai_builder_n_nodes(NULL), 0);
	ck_assert_ptr_null(genai_builder_get_node(NULL, 0));
	ck_assert_ptr_null(genai_builder_get_value(NULL, 0));
	genai_builder_attr_int(NULL, 0, "a", 1);
	genai_builder_attr_float(NULL, 0, "a", 1);
	genai_builder_attr_string(NULL, 0, "a", "", 0);
	genai_builder_attr_ints(NULL, 0, "a", NULL, 0);
	genai_builder_attr_floats(NULL, 0, "a", NULL, 0);
	genai_builder_attr_strings(NULL, 0, "a", NULL, 0);
	genai_builder_attr_tensor(NULL, 0, "a", 0);
	genai_builder_attr_graph(NULL, 0, "a", NULL);
	genai_builder_input(NULL, 0);
	genai_builder_output(NULL, 0);
	genai_builder_remove_node(NULL, 0);
	genai_builder_remove_input(NULL, 0);
	genai_builder_remove_output(NULL, 0);
	genai_builder_replace(NULL, 0, 0);
	genai_builder_set_input(NULL, 0, 0, 0);
	genai_builder_prune(NULL);
	genai_builder_copy(NULL, NULL);
	genai_builder_close(NULL);
	genai_graph_free(NULL);
	ck_assert_int_eq(genai_builder_finish(NULL, &g, &err), GENAI_E_NOMEM);
	ck_assert_int_eq(genai_builder_finish(NULL, &g, NULL), GENAI_E_NOMEM);
	ck_assert_ptr_null(g);
}
END_TEST

START_TEST(empty_graph)
{
	struct genai_graph *g = finish();

	ck_assert_str_eq(g->name, "g");
	ck_assert_uint_eq(g->size, sizeof(*g));
	ck_assert_uint_eq(g->n_nodes, 0);
	ck_assert_uint_eq(g->n_values, 0);
	genai_graph_free(g);
}
END_TEST

START_TEST(one_node)
{
	const int64_t dims[2] = {2, -1};
	const char *const symbols[2] = {NULL, "seq"};
	uint32_t x =
		genai_builder_value(b, "x", GENAI_DT_I64, 2, dims, symbols);
	uint32_t y = val("y");
	const struct genai_value *v;
	const struct genai_node *n;
	struct genai_graph *g;

	genai_builder_input(b, x);
	op("Relu", x, GENAI_NONE, y);
	genai_builder_output(b, y);
	g = finish();
	ck_assert_uint_eq(g->n_inputs, 1);
	ck_assert_uint_eq(g->inputs[0], x);
	ck_assert_uint_eq(g->n_outputs, 1);
	ck_assert_uint_eq(g->outputs[0], y);
	v = genai_graph_value(g, x);
	ck_assert_str_eq(v->name, "x");
	ck_assert_uint_eq(v->dtype, GENAI_DT_I64);
	ck_assert_uint_eq(v->rank, 2);
	ck_assert_int_eq(v->dims[0], 2);
	ck_assert_int_eq(v->dims[1], -1);
	ck_assert_ptr_null(v->symbols[0]);
	ck_assert_str_eq(v->symbols[1], "seq");
	ck_assert_uint_eq(v->flags, GENAI_VALUE_INPUT);
	ck_assert_uint_eq(v->producer, GENAI_NONE);
	ck_assert_uint_eq(v->tensor, GENAI_NONE);
	v = genai_graph_value(g, y);
	ck_assert_uint_eq(v->rank, GENAI_NONE);
	ck_assert_uint_eq(v->producer, 0);
	ck_assert_uint_eq(v->flags, GENAI_VALUE_OUTPUT);
	n = genai_graph_node(g, 0);
	ck_assert_str_eq(n->op, "Relu");
	ck_assert_str_eq(n->domain, "");
	ck_assert_str_eq(n->name, "Relu");
	ck_assert_int_eq(n->opset, 21);
	ck_assert_uint_eq(n->n_inputs, 1);
	ck_assert_uint_eq(n->inputs[0], x);
	ck_assert_uint_eq(n->outputs[0], y);
	genai_graph_free(g);
}
END_TEST

START_TEST(dims_default_to_unknown)
{
	uint32_t x = genai_builder_value(b, "x", 1, 2, NULL, NULL);
	const struct genai_value *v = genai_builder_get_value(b, x);

	ck_assert_int_eq(v->dims[0], -1);
	ck_assert_int_eq(v->dims[1], -1);
	ck_assert_int_eq(v->dims[2], 0);
}
END_TEST

START_TEST(zero_dimension_is_kept)
{
	const int64_t dims[2] = {0, 16};
	uint32_t x = genai_builder_value(b, "x", 1, 2, dims, NULL);
	struct genai_graph *g;

	genai_builder_input(b, x);
	g = finish();
	ck_assert_int_eq(genai_graph_value(g, x)->dims[0], 0);
	genai_graph_free(g);
}
END_TEST

START_TEST(duplicate_value)
{
	val("w");
	val("w");
	refused(GENAI_E_FORMAT, "\"w\" is defined twice");
}
END_TEST

START_TEST(value_without_name)
{
	val("");
	refused(GENAI_E_INVAL, "without a name");
}
END_TEST

START_TEST(rank_limit)
{
	ck_assert_uint_eq(genai_builder_value(b, "a", 1, 16, NULL, NULL), 0);
	ck_assert_uint_eq(genai_builder_value(b, "b", 1, 17, NULL, NULL),
			  GENAI_NONE);
	refused(GENAI_E_LIMIT, "rank 17");
}
END_TEST

START_TEST(dim_below_minus_one)
{
	const int64_t dims[1] = {-2};

	genai_builder_value(b, "a", 1, 1, dims, NULL);
	refused(GENAI_E_FORMAT, "negative dimension");
}
END_TEST

START_TEST(first_failure_sticks)
{
	val("w");
	val("w");
	val("");
	ck_assert_uint_eq(val("z"), GENAI_NONE);
	ck_assert_uint_eq(genai_builder_find(b, "z"), GENAI_NONE);
	refused(GENAI_E_FORMAT, "\"w\"");
}
END_TEST

START_TEST(find_by_name)
{
	char name[16];
	uint32_t i;

	for (i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "v%u", i);
		ck_assert_uint_eq(val(name), i);
	}
	for (i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "v%u", i);
		ck_assert_uint_eq(genai_builder_find(b, name), i);
	}
	ck_assert_uint_eq(genai_builder_find(b, "v5000"), GENAI_NONE);
	ck_assert_uint_eq(genai_builder_find(b, ""), GENAI_NONE);
	ck_assert_uint_eq(genai_builder_find(b, NULL), GENAI_NONE);
}
END_TEST

START_TEST(stored_tensor)
{
	static const float data[4] = {1, 2, 3, 4};
	const int64_t dims[1] = {3};
	uint32_t f = genai_builder_file(b, "w.bin", data, sizeof(data));
	uint32_t t = genai_builder_tensor(b, f, 4, 12, GENAI_DT_F32, 1, dims);
	uint32_t w = genai_builder_stored(b, "w", t);
	struct genai_graph *g = finish();
	const struct genai_tensor *p = genai_graph_tensor(g, t);

	ck_assert_str_eq(genai_graph_file(g, p->file)->path, "w.bin");
	ck_assert_ptr_eq(genai_graph_file(g, p->file)->data, data);
	ck_assert_uint_eq(genai_graph_file(g, p->file)->bytes, 16);
	ck_assert_uint_eq(p->offset, 4);
	ck_assert_uint_eq(p->bytes, 12);
	ck_assert_int_eq(p->dims[0], 3);
	ck_assert_uint_eq(genai_graph_value(g, w)->tensor, t);
	ck_assert_uint_eq(genai_graph_value(g, w)->dtype, GENAI_DT_F32);
	ck_assert_int_eq(genai_graph_value(g, w)->dims[0], 3);
	genai_graph_free(g);
}
END_TEST

static const struct {
	uint32_t file;
	uint64_t offset, bytes;
	int64_t dim;
	int32_t rc;
	const char *text;
} bad_tensors[] = {
	{1, 0, 12, 3, GENAI_E_INVAL, "no file 1"},
	{0, 0, 8, 3, GENAI_E_FORMAT, "needs 12 bytes, has 8"},
	{0, 0, 16, 3, GENAI_E_FORMAT, "needs 12 bytes, has 16"},
	{0, 5, 12, 3, GENAI_E_FORMAT, "12 bytes at 5"},
	{0, 0, 20, 5, GENAI_E_FORMAT, "20 bytes at 0"},
	{0, UINT64_MAX - 7, 16, 4, GENAI_E_FORMAT, "16 bytes at 1844674407"},
	{0, 0, 0, -1, GENAI_E_FORMAT, "no size"},
};

START_TEST(tensor_outside_file)
{
	static const float data[4];

	genai_builder_file(b, "w.bin", data, sizeof(data));
	genai_builder_tensor(b, bad_tensors[_i].file, bad_tensors[_i].offset,
			     bad_tensors[_i].bytes, GENAI_DT_F32, 1,
			     &bad_tensors[_i].dim);
	refused(bad_tensors[_i].rc, bad_tensors[_i].text);
}
END_TEST

START_TEST(stored_without_tensor)
{
	genai_builder_stored(b, "w", 0);
	refused(GENAI_E_INVAL, "no tensor 0");
}
END_TEST

START_TEST(constants)
{
	const int64_t ints[3] = {1, -2, 3};
	const int64_t dims[1] = {3};
	float big[5000];
	const int64_t big_dims[1] = {5000};
	const int64_t none[1] = {0};
	const struct genai_tensor *t;
	const struct genai_file *f;
	struct genai_graph *g;
	uint32_t i, a, c, d, e;

	for (i = 0; i < 5000; i++)
		big[i] = (float)i;
	a = genai_builder_const(b, "a", GENAI_DT_I64, 1, dims, ints);
	c = genai_builder_const(b, "c", GENAI_DT_F32, 1, big_dims, big);
	d = genai_builder_const(b, "d", GENAI_DT_F32, 0, NULL, &big[9]);
	e = genai_builder_const(b, "e", GENAI_DT_F32, 1, none, NULL);
	g = finish();
	t = genai_graph_tensor(g, genai_graph_value(g, a)->tensor);
	f = genai_graph_file(g, t->file);
	ck_assert_str_eq(f->path, "");
	ck_assert_mem_eq((const char *)f->data + t->offset, ints, 24);
	t = genai_graph_tensor(g, genai_graph_value(g, c)->tensor);
	f = genai_graph_file(g, t->file);
	ck_assert_mem_eq((const char *)f->data + t->offset, big, sizeof(big));
	t = genai_graph_tensor(g, genai_graph_value(g, d)->tensor);
	f = genai_graph_file(g, t->file);
	ck_assert_mem_eq((const char *)f->data + t->offset, &big[9], 4);
	ck_assert_uint_eq(t->rank, 0);
	t = genai_graph_tensor(g, genai_graph_value(g, e)->tensor);
	ck_assert_uint_eq(t->bytes, 0);
	genai_graph_free(g);
}
END_TEST

START_TEST(many_constants_share_files)
{
	struct genai_graph *g;
	char name[16];
	uint32_t i;

	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "c%u", i);
		genai_builder_const(b, name, GENAI_DT_U32, 0, NULL, &i);
	}
	g = finish();
	ck_assert_uint_le(g->n_files, 6);
	for (i = 0; i < 1000; i++) {
		const struct genai_tensor *t = genai_graph_tensor(g, i);
		const char *p = genai_graph_file(g, t->file)->data;
		uint32_t got;

		ck_assert_uint_eq(t->offset % 64, 0);
		memcpy(&got, p + t->offset, 4);
		ck_assert_uint_eq(got, i);
	}
	genai_graph_free(g);
}
END_TEST

START_TEST(constant_string)
{
	genai_builder_const(b, "c", GENAI_DT_STRING, 0, NULL, "");
	refused(GENAI_E_UNSUPPORTED, "STRING");
}
END_TEST

START_TEST(attributes)
{
	const int64_t ints[2] = {-1, INT64_MAX};
	const float floats[2] = {0.5f, -2};
	const char *const strings[2] = {"one", ""};
	const int64_t k = 7;
	uint32_t x = in("x"), y = val("y"), n = op("A", x, GENAI_NONE, y);
	const struct genai_node *node;
	struct genai_graph *g;

	genai_builder_const(b, "c", GENAI_DT_I64, 0, NULL, &k);
	genai_builder_attr_int(b, n, "i", -5);
	genai_builder_attr_float(b, n, "f", 1.25);
	genai_builder_attr_string(b, n, "s", "a\0b", 3);
	genai_builder_attr_ints(b, n, "is", ints, 2);
	genai_builder_attr_floats(b, n, "fs", floats, 2);
	genai_builder_attr_strings(b, n, "ss", strings, 2);
	genai_builder_attr_tensor(b, n, "t", 0);
	genai_builder_attr_ints(b, n, "none", NULL, 0);
	g = finish();
	node = genai_graph_node(g, 0);
	ck_assert_uint_eq(node->n_attrs, 8);
	ck_assert_uint_eq(genai_node_attr(node, 0)->kind, GENAI_ATTR_INT);
	ck_assert_int_eq(genai_node_attr(node, 0)->i, -5);
	ck_assert_uint_eq(genai_node_attr(node, 1)->kind, GENAI_ATTR_FLOAT);
	ck_assert(genai_node_attr(node, 1)->f == 1.25);
	ck_assert_uint_eq(genai_node_attr(node, 2)->kind, GENAI_ATTR_STRING);
	ck_assert_uint_eq(genai_node_attr(node, 2)->count, 3);
	ck_assert_mem_eq(genai_node_attr(node, 2)->s, "a\0b", 4);
	ck_assert_uint_eq(genai_node_attr(node, 3)->kind, GENAI_ATTR_INTS);
	ck_assert_uint_eq(genai_node_attr(node, 3)->count, 2);
	ck_assert_int_eq(genai_node_attr(node, 3)->ints[1], INT64_MAX);
	ck_assert_uint_eq(genai_node_attr(node, 4)->kind, GENAI_ATTR_FLOATS);
	ck_assert(genai_node_attr(node, 4)->floats[1] == -2);
	ck_assert_uint_eq(genai_node_attr(node, 5)->kind, GENAI_ATTR_STRINGS);
	ck_assert_str_eq(genai_node_attr(node, 5)->strings[0], "one");
	ck_assert_str_eq(genai_node_attr(node, 5)->strings[1], "");
	ck_assert_uint_eq(genai_node_attr(node, 6)->kind, GENAI_ATTR_TENSOR);
	ck_assert_uint_eq(genai_node_attr(node, 6)->tensor, 0);
	ck_assert_str_eq(genai_node_attr(node, 7)->name, "none");
	ck_assert_uint_eq(genai_node_attr(node, 7)->count, 0);
	genai_graph_free(g);
}
END_TEST

START_TEST(attribute_twice)
{
	uint32_t n = op("A", in("x"), GENAI_NONE, val("y"));

	genai_builder_attr_int(b, n, "axis", 1);
	genai_builder_attr_float(b, n, "axis", 1);
	refused(GENAI_E_FORMAT, "attribute \"axis\" appears twice");
}
END_TEST

START_TEST(attribute_without_name)
{
	genai_builder_attr_int(b, op("A", in("x"), GENAI_NONE, val("y")), "",
			       1);
	refused(GENAI_E_FORMAT, "has no name");
}
END_TEST

START_TEST(attribute_limit)
{
	uint32_t n = op("A", in("x"), GENAI_NONE, val("y")), i;
	char name[16];

	for (i = 0; i < 256; i++) {
		snprintf(name, sizeof(name), "a%u", i);
		genai_builder_attr_int(b, n, name, i);
	}
	ck_assert_int_eq(genai_node_attr(genai_builder_get_node(b, n), 255)->i,
			 255);
	genai_builder_attr_int(b, n, "more", 1);
	refused(GENAI_E_FORMAT, "one too many");
}
END_TEST

START_TEST(attribute_of_no_node)
{
	genai_builder_attr_int(b, 3, "a", 1);
	refused(GENAI_E_INVAL, "no node 3");
}
END_TEST

START_TEST(attribute_of_no_tensor)
{
	genai_builder_attr_tensor(b, op("A", in("x"), GENAI_NONE, val("y")),
				  "t", 0);
	refused(GENAI_E_INVAL, "no tensor 0");
}
END_TEST

START_TEST(node_without_op)
{
	op("", in("x"), GENAI_NONE, val("y"));
	refused(GENAI_E_INVAL, "no operator");
}
END_TEST

START_TEST(node_of_no_value)
{
	op("A", 7, GENAI_NONE, val("y"));
	refused(GENAI_E_INVAL, "no value 7");
}
END_TEST

START_TEST(written_twice)
{
	uint32_t x = in("x"), y = val("y");

	op("A", x, GENAI_NONE, y);
	op("B", x, GENAI_NONE, y);
	refused(GENAI_E_FORMAT, "\"y\" is written by node 1 (B), but another");
}
END_TEST

START_TEST(input_is_written)
{
	uint32_t x = in("x");

	op("A", x, GENAI_NONE, x);
	refused(GENAI_E_FORMAT, "it is an input");
}
END_TEST

START_TEST(initialiser_is_written)
{
	float f = 1;
	uint32_t w = genai_builder_const(b, "w", GENAI_DT_F32, 0, NULL, &f);

	op("A", in("x"), GENAI_NONE, w);
	refused(GENAI_E_FORMAT, "it is an initialiser");
}
END_TEST

START_TEST(written_then_input)
{
	uint32_t y = val("y");

	op("A", in("x"), GENAI_NONE, y);
	genai_builder_input(b, y);
	refused(GENAI_E_FORMAT, "\"y\" is defined elsewhere");
}
END_TEST

START_TEST(input_twice)
{
	genai_builder_input(b, in("x"));
	refused(GENAI_E_FORMAT, "input \"x\" is listed twice");
}
END_TEST

START_TEST(output_twice)
{
	uint32_t x = in("x");

	genai_builder_output(b, x);
	genai_builder_output(b, x);
	refused(GENAI_E_FORMAT, "output \"x\" is listed twice");
}
END_TEST

START_TEST(output_of_no_value)
{
	genai_builder_output(b, 0);
	refused(GENAI_E_INVAL, "no value 0");
}
END_TEST

START_TEST(undefined_input)
{
	op("A", val("ghost"), GENAI_NONE, val("y"));
	refused(GENAI_E_FORMAT, "its input \"ghost\" is written by no node");
}
END_TEST

START_TEST(undefined_output)
{
	genai_builder_output(b, val("present.0.key"));
	refused(GENAI_E_FORMAT,
		"graph output \"present.0.key\" does not exist");
}
END_TEST

START_TEST(passthrough)
{
	struct genai_graph *g;

	genai_builder_output(b, in("x"));
	g = finish();
	ck_assert_uint_eq(genai_graph_value(g, 0)->flags,
			  GENAI_VALUE_INPUT | GENAI_VALUE_OUTPUT);
	genai_graph_free(g);
}
END_TEST

START_TEST(omitted_input_keeps_position)
{
	uint32_t x = in("x"), y = val("y");
	uint32_t inputs[3] = {x, GENAI_NONE, x};
	uint32_t outputs[2] = {GENAI_NONE, y};
	struct genai_graph *g;

	genai_builder_node(b, "Clip", "", 21, "", inputs, 3, outputs, 2);
	g = finish();
	ck_assert_uint_eq(genai_graph_node(g, 0)->n_inputs, 3);
	ck_assert_uint_eq(genai_graph_node(g, 0)->inputs[1], GENAI_NONE);
	ck_assert_uint_eq(genai_graph_node(g, 0)->inputs[2], x);
	ck_assert_uint_eq(genai_graph_node(g, 0)->outputs[0], GENAI_NONE);
	ck_assert_uint_eq(genai_graph_node(g, 0)->outputs[1], y);
	genai_graph_free(g);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("graph");
	TCase *t = tcase_create("graph");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, tensor_bytes, 0,
			    sizeof(sizes) / sizeof(sizes[0]));
	tcase_add_loop_test(t, tensor_outside_file, 0,
			    sizeof(bad_tensors) / sizeof(bad_tensors[0]));
#define T(name) tcase_add_test(t, name)
	T(dtype_names);
	T(null_builder);
	T(empty_graph);
	T(one_node);
	T(dims_default_to_unknown);
	T(zero_dimension_is_kept);
	T(duplicate_value);
	T(value_without_name);
	T(rank_limit);
	T(dim_below_minus_one);
	T(first_failure_sticks);
	T(find_by_name);
	T(stored_tensor);
	T(stored_without_tensor);
	T(constants);
	T(many_constants_share_files);
	T(constant_string);
	T(attributes);
	T(attribute_twice);
	T(attribute_without_name);
	T(attribute_limit);
	T(attribute_of_no_node);
	T(attribute_of_no_tensor);
	T(node_without_op);
	T(node_of_no_value);
	T(written_twice);
	T(input_is_written);
	T(initialiser_is_written);
	T(written_then_input);
	T(input_twice);
	T(output_twice);
	T(output_of_no_value);
	T(undefined_input);
	T(undefined_output);
	T(passthrough);
	T(omitted_input_keeps_position);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
