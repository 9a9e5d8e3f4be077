// check_onnx_functions.c - calls of model-local functions become nodes; what is
// wrong with a function is said with its name.
#include "tests/unit/onnx_writer.h"

static const struct ow none = {NULL, 0, 0};

// A FunctionProto of domain "f", opset 18.
static struct ow function(const char *name, const char *in, const char *out)
{
	struct ow f = none, o = none;

	ow_str(&f, 1, name);
	ow_list(&f, 4, in);
	ow_list(&f, 5, out);
	ow_str(&f, 10, "f");
	ow_int(&o, 2, 18);
	ow_msg(&f, 9, o);
	o = none;
	ow_str(&o, 1, "f");
	ow_int(&o, 2, 1);
	ow_msg(&f, 9, o);
	return f;
}

static void body(struct ow *f, struct ow node)
{
	ow_msg(f, 7, node);
}

static struct ow call(const char *op, const char *in, const char *out)
{
	struct ow n = ow_node(op, in, out);

	ow_str(&n, 7, "f");
	ow_str(&n, 3, "the call");
	return n;
}

static void refer(struct ow *node, const char *name, const char *to)
{
	struct ow a = ow_attr(name, OW_INT);

	ow_str(&a, 21, to);
	ow_msg(node, 5, a);
}

// x -> what is called -> y, in a model with the functions a and b.
static struct ow model(struct ow node, struct ow a, struct ow b)
{
	struct ow g = none, m;

	ow_add_input(&g, "x");
	ow_add_input(&g, "w");
	ow_add_node(&g, node);
	ow_add_output(&g, "y");
	m = ow_model(g);
	ow_opset(&m, "f", 1);
	if (a.n)
		ow_msg(&m, 25, a);
	if (b.n)
		ow_msg(&m, 25, b);
	return m;
}

// double(a) = a + a; twice(a) = double(double(a))
static struct ow twice(const char *calls)
{
	struct ow f = function("twice", "a", "b");

	body(&f, call(calls, "a", "t"));
	body(&f, call(calls, "t", "b"));
	return f;
}

static struct ow doubled(void)
{
	struct ow f = function("double", "a", "b");

	body(&f, ow_node("Add", "a,a", "t"));
	body(&f, ow_node("Relu", "t", "b"));
	return f;
}

START_TEST(inlined)
{
	const struct genai_graph *g = load_ok(
		model(call("twice", "x", "y"), twice("double"), doubled()));
	const char *ops[] = {"Add", "Relu", "Add", "Relu"};
	const uint32_t *in = NULL;

	ck_assert_uint_eq(g->n_nodes, 4);
	for (uint32_t i = 0; i < 4; i++) {
		const struct genai_node *n = genai_graph_node(g, i);

		ck_assert_str_eq(n->op, ops[i]);
		ck_assert_int_eq(n->opset, 18);
		// one after the other, from x to y
		ck_assert_uint_eq(n->inputs[0], in ? *in : g->inputs[0]);
		in = n->outputs;
	}
	ck_assert_uint_eq(*in, g->outputs[0]);
	ck_assert_int_eq(bench.n_warnings, 0);
}
END_TEST

// A call names the overload, too; a function hides an operator of its name.
START_TEST(which_one)
{
	struct ow f = function("Relu", "a", "b"),
		  o = function("Relu", "a", "b"), n = call("Relu", "x", "y");

	body(&f, ow_node("Abs", "a", "b"));
	body(&o, ow_node("Neg", "a", "b"));
	ow_str(&o, 13, "second");
	if (_i)
		ow_str(&n, 8, "second");
	ck_assert_str_eq(genai_graph_node(load_ok(model(n, f, o)), 0)->op,
			 _i ? "Neg" : "Abs");
}
END_TEST

// The call's attribute, the default, or the operator's own.
START_TEST(attributes)
{
	struct ow f = function("at", "a", "b"),
		  n = ow_node("Softmax", "a", "b"), c = call("at", "x", "y"), a;
	const struct genai_node *is;

	refer(&n, "axis", "along");
	body(&f, n);
	if (_i == 1) {
		a = ow_attr("along", OW_INT);
		ow_int(&a, 3, 7);
		ow_msg(&f, 11, a);
	} else {
		ow_str(&f, 6, "along");
	}
	if (_i == 0)
		ow_attr_int(&c, "along", 3);
	is = genai_graph_node(load_ok(model(c, f, none)), 0);
	ck_assert_uint_eq(is->n_attrs, _i < 2);
	if (_i == 2)
		return;
	ck_assert_str_eq(genai_node_attr(is, 0)->name, "axis");
	ck_assert_int_eq(genai_node_attr(is, 0)->i, _i ? 7 : 3);
}
END_TEST

// Inputs and outputs may be left out; an input may be an output.
START_TEST(omitted)
{
	struct ow f = function("pair", "a,b", "sum,b,other");
	const struct genai_graph *g;

	body(&f, ow_node("Clip", "a,,b", "sum"));
	body(&f, ow_node("Neg", "a", "other"));
	g = load_ok(model(call("pair", _i ? "x" : "x,w", _i ? "y" : ",y"), f,
			  none));
	ck_assert_uint_eq(g->n_nodes, 3 - (uint32_t)_i);
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct genai_node *n = genai_graph_node(g, i);

		if (!strcmp(n->op, "Clip"))
			ck_assert_uint_eq(n->inputs[2],
					  _i ? GENAI_NONE : g->inputs[1]);
		if (!strcmp(n->op, "Identity"))
			ck_assert_uint_eq(n->outputs[0], g->outputs[0]);
	}
}
END_TEST

// A graph in a function sees the function's names, not the model's; one in the
// model may call.
START_TEST(graphs)
{
	struct ow f = function("choose", "c", "r"), t = none, e = none,
		  n = ow_node("If", "c", "r"), g = none;
	const struct genai_graph *is;
	const struct genai_node *branch;

	body(&f, ow_node("Neg", "c", "x"));
	ow_add_node(&t, call("double", "x", "t"));
	ow_add_output(&t, "t");
	ow_add_op(&e, "Abs", "c", "t");
	ow_add_output(&e, "t");
	ow_attr_graph(&n, "then_branch", t);
	ow_attr_graph(&n, "else_branch", e);
	body(&f, n);
	is = load_ok(model(call("choose", "x", "y"), f, doubled()));
	ck_assert_uint_eq(is->n_nodes, 2);
	branch = genai_graph_node(is, 1);
	ck_assert_str_eq(branch->op, "If");
	ck_assert_uint_eq(genai_node_attr(branch, 0)->graph->n_nodes, 2);
	ck_assert_uint_eq(genai_node_attr(branch, 1)->graph->n_nodes, 1);
	// the function's x is not the model's
	is = genai_node_attr(branch, 0)->graph;
	for (uint32_t i = 0; i < is->n_values; i++)
		ck_assert_str_ne(genai_graph_value(is, i)->name, "x");
	ow_add_node(&g, call("double", "x", "t"));
	ow_add_output(&g, "t");
	n = ow_node("If", "x", "y");
	ow_attr_graph(&n, "then_branch", g);
	is = load_ok(model(n, doubled(), none));
	ck_assert_uint_eq(
		genai_node_attr(genai_graph_node(is, 0), 0)->graph->n_nodes, 2);
}
END_TEST

// Two calls do not share names, stored tensors included.
START_TEST(constants)
{
	struct ow f = function("plus", "a", "b"), t, n = none, a;
	float v = 3;
	const struct genai_graph *g;

	t = ow_tensor(NULL, GENAI_DT_F32, 0, NULL);
	ow_bytes(&t, 9, &v, 4);
	n = ow_node("Constant", NULL, "k");
	a = ow_attr("value", OW_TENSOR);
	ow_msg(&a, 5, t);
	ow_msg(&n, 5, a);
	body(&f, n);
	body(&f, ow_node("Add", "a,k", "b"));
	g = load_ok(model(call("twice", "x", "y"), twice("plus"), f));
	ck_assert_uint_eq(g->n_nodes, 2);
	ck_assert_uint_eq(g->n_tensors, 2);
	for (uint32_t i = 0; i < 2; i++) {
		uint32_t k = genai_graph_node(g, i)->inputs[1];
		const struct genai_value *is = genai_graph_value(g, k);

		ck_assert_int_eq(memcmp(bytes_of(g, is->name, 4), &v, 4), 0);
	}
}
END_TEST

START_TEST(recursion)
{
	struct ow f = function("turn", "a", "b"), deep;
	char name[32], next[32];

	if (_i == 0) { // itself
		body(&f, call("turn", "a", "b"));
		load_fails(model(call("turn", "x", "y"), f, none),
			   GENAI_E_FORMAT,
			   "function \"turn\" of domain \"f\": calls itself");
		return;
	}
	if (_i == 1) { // by way of another
		body(&f, call("twice", "a", "b"));
		load_fails(model(call("turn", "x", "y"), f, twice("turn")),
			   GENAI_E_FORMAT, "calls itself by way of \"twice\"");
		return;
	}
	// one that nobody calls is nobody's concern
	body(&f, call("turn", "a", "b"));
	load_ok(model(ow_node("Relu", "x", "y"), f, none));
	// deep, and wide: 2^40 nodes
	deep = model(call("f0", "x", "y"), none, none);
	for (int i = 0; i < (_i == 2 ? 100 : 40); i++) {
		snprintf(name, sizeof(name), "f%d", i);
		snprintf(next, sizeof(next), "f%d", i + 1);
		f = function(name, "a", "b");
		body(&f, call(next, "a", "t"));
		body(&f, call(next, _i == 2 ? "a" : "t", "b"));
		ow_msg(&deep, 25, f);
	}
	load_fails(deep, GENAI_E_LIMIT,
		   _i == 2 ? "calls nested deeper than 64" : "its functions");
}
END_TEST

static const struct {
	int32_t code;
	const char *says;
} wrong[] = {
	{GENAI_E_FORMAT, "node \"n\" (Add): its input \"x\" does not exist"},
	{GENAI_E_FORMAT, "its output \"b\" does not exist"},
	{GENAI_E_FORMAT, "the name \"t\" is defined twice"},
	{GENAI_E_FORMAT, "the name \"a\" is defined twice"},
	{GENAI_E_FORMAT, "refers to \"along\", which the function does not"},
	{GENAI_E_FORMAT,
	 "attribute \"axis\" is of type 2, \"along\" of type 3"},
	{GENAI_E_FORMAT, "has no attribute \"other\""},
	{GENAI_E_FORMAT,
	 "has 1 inputs and 1 outputs, node \"the call\" 2 and 1"},
	{GENAI_E_FORMAT, "\"a\" is there twice"},
	{GENAI_E_FORMAT, "\"strange\" is not in the function's opset_import"},
	{GENAI_E_UNSUPPORTED, "opset 99 of domain \"\" is newer"},
	{GENAI_E_FORMAT, "function 0 has no name"},
	{GENAI_E_FORMAT, "is there twice"},
	{GENAI_E_FORMAT, "output 0 has no name"},
};

START_TEST(refused)
{
	struct ow f = function(_i == 11 ? "" : "bad", _i == 8 ? "a,a" : "a",
			       _i == 13 ? "" : "b"),
		  n, c = call("bad", _i == 7 ? "x,w" : "x", "y"), b = none, a;

	n = ow_node("Add", _i == 0 ? "a,x" : "a,a", "t");
	ow_str(&n, 3, "n");
	if (_i == 4 || _i == 5)
		refer(&n, "axis", "along");
	if (_i == 9)
		ow_str(&n, 7, "strange");
	body(&f, n);
	if (_i == 5) {
		ow_str(&f, 6, "along");
		a = ow_attr("along", OW_STRING);
		ow_str(&a, 4, "text");
		ow_msg(&c, 5, a);
	}
	if (_i == 6)
		ow_attr_int(&c, "other", 1);
	if (_i != 1)
		body(&f, ow_node("Neg", "t", "b"));
	if (_i == 2)
		body(&f, ow_node("Neg", "a", "t"));
	if (_i == 3)
		body(&f, ow_node("Neg", "t", "a"));
	if (_i == 10) {
		a = none;
		ow_int(&a, 2, 99);
		ow_msg(&f, 9, a);
	}
	if (_i == 12)
		ow_bytes(&b, 1, "bad", 3), ow_str(&b, 10, "f");
	load_fails(model(c, f, b), wrong[_i].code, wrong[_i].says);
	if (_i != 11)
		ck_assert_ptr_nonnull(
			strstr(bench.err.text, "function \"bad\""));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("onnx functions");
	TCase *t = tcase_create("all");

	tcase_add_checked_fixture(t, bench_setup, bench_teardown);
	tcase_add_test(t, inlined);
	tcase_add_loop_test(t, which_one, 0, 2);
	tcase_add_loop_test(t, attributes, 0, 3);
	tcase_add_loop_test(t, omitted, 0, 2);
	tcase_add_test(t, graphs);
	tcase_add_test(t, constants);
	tcase_add_loop_test(t, recursion, 0, 4);
	tcase_add_loop_test(t, refused, 0, sizeof(wrong) / sizeof(wrong[0]));
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
