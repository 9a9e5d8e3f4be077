// check_graph_edit.c - graphs under construction: order, cycles, captures,
// changes, copies, memory.
#include "tests/unit/graph_kit.h"

START_TEST(sorted_order_is_kept)
{
	uint32_t x = in("x"), v = x, i;
	struct genai_graph *g;
	char name[16];

	// two chains, interleaved: legal, so unchanged
	for (i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		v = val(name);
		op(name, i < 2 ? x : v - 2, GENAI_NONE, v);
	}
	g = finish();
	for (i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		ck_assert_str_eq(node_op(g, i), name);
	}
	genai_graph_free(g);
}
END_TEST

START_TEST(unsorted_is_sorted)
{
	uint32_t x = in("x"), a = val("a"), c = val("c"), y = val("y");
	struct genai_graph *g;

	op("Third", a, c, y);
	op("First", x, GENAI_NONE, a);
	op("Second", a, GENAI_NONE, c);
	g = finish();
	ck_assert_str_eq(node_op(g, 0), "First");
	ck_assert_str_eq(node_op(g, 1), "Second");
	ck_assert_str_eq(node_op(g, 2), "Third");
	ck_assert_uint_eq(genai_graph_value(g, a)->producer, 0);
	ck_assert_uint_eq(genai_graph_value(g, c)->producer, 1);
	ck_assert_uint_eq(genai_graph_value(g, y)->producer, 2);
	genai_graph_free(g);
}
END_TEST

// A chain in reverse order: deep for a recursive sort, and quadratic for a
// naive one.
START_TEST(long_reverse_chain)
{
	enum { N = 200000 };
	uint32_t x = in("x"), i, first = GENAI_NONE;
	struct genai_graph *g;
	char name[16];

	for (i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "v%u", i);
		val(name);
		if (i == 0)
			first = x + 1;
	}
	for (i = N; i-- > 0;)
		op("R", i ? first + i - 1 : x, GENAI_NONE, first + i);
	g = finish();
	for (i = 0; i < N; i++)
		ck_assert_uint_eq(genai_graph_node(g, i)->outputs[0],
				  first + i);
	genai_graph_free(g);
}
END_TEST

START_TEST(cycle_of_two)
{
	uint32_t a = val("a"), c = val("b");

	op("Relu", c, GENAI_NONE, a);
	op("Relu", a, GENAI_NONE, c);
	refused(GENAI_E_FORMAT, "cycle: a -> b -> a");
}
END_TEST

START_TEST(cycle_of_one)
{
	uint32_t a = val("a");

	op("Relu", a, GENAI_NONE, a);
	refused(GENAI_E_FORMAT, "cycle: a -> a");
}
END_TEST

START_TEST(cycle_of_three)
{
	uint32_t a = val("a"), c = val("b"), d = val("c"), x = in("x");

	op("Relu", x, GENAI_NONE, val("ok"));
	op("Relu", d, GENAI_NONE, a);
	op("Relu", a, GENAI_NONE, c);
	op("Relu", c, GENAI_NONE, d);
	refused(GENAI_E_FORMAT, "cycle: a -> b -> c -> a");
}
END_TEST

START_TEST(cycle_with_long_names)
{
	char name[4097];
	uint32_t v[64], i;

	for (i = 0; i < 64; i++) {
		memset(name, 'a', 100 + i);
		name[100 + i] = 0;
		v[i] = val(name);
	}
	for (i = 0; i < 64; i++)
		op("R", v[i], GENAI_NONE, v[(i + 1) % 64]);
	refused(GENAI_E_FORMAT, "cycle: aaaa");
	memset(name, 'b', 4096);
	name[4096] = 0;
	setup();
	v[0] = val(name);
	op("R", v[0], GENAI_NONE, v[0]);
	refused(GENAI_E_FORMAT, "cycle: bbbb");
}
END_TEST

// A graph that reads the enclosing graph's `name`.
static struct genai_graph *branch(const char *name)
{
	struct genai_builder *sub = genai_builder_open("then");
	struct genai_graph *g = NULL;
	uint32_t k = genai_builder_outer(sub, name, 1, GENAI_NONE, NULL, NULL);

	genai_builder_output(sub, k);
	ck_assert_int_eq(genai_builder_finish(sub, &g, &err), 0);
	return g;
}

START_TEST(capture_orders_nodes)
{
	uint32_t x = in("x"), k = val("k"), y = val("y"), n;
	const struct genai_attr *a;
	struct genai_graph *g;

	n = op("If", x, GENAI_NONE, y);
	genai_builder_attr_graph(b, n, "then_branch", branch("k"));
	op("Relu", x, GENAI_NONE, k);
	genai_builder_output(b, y);
	g = finish();
	ck_assert_str_eq(node_op(g, 0), "Relu");
	ck_assert_str_eq(node_op(g, 1), "If");
	a = genai_node_attr(genai_graph_node(g, 1), 0);
	ck_assert_uint_eq(a->kind, GENAI_ATTR_GRAPH);
	ck_assert_uint_eq(genai_graph_value(a->graph, 0)->flags,
			  GENAI_VALUE_OUTER | GENAI_VALUE_OUTPUT);
	genai_graph_free(g);
}
END_TEST

START_TEST(capture_of_nothing)
{
	uint32_t n = op("If", in("x"), GENAI_NONE, val("y"));

	genai_builder_attr_graph(b, n, "then_branch", branch("ghost"));
	refused(GENAI_E_FORMAT, "a subgraph reads \"ghost\"");
}
END_TEST

START_TEST(capture_cycle)
{
	uint32_t y = val("y"), n = op("If", in("x"), GENAI_NONE, y);

	genai_builder_attr_graph(b, n, "then_branch", branch("y"));
	refused(GENAI_E_FORMAT, "cycle: y -> y");
}
END_TEST

START_TEST(graph_attr_on_dead_builder)
{
	val("w");
	val("w");
	genai_builder_attr_graph(b, 0, "g", branch("k")); // must be freed
	genai_builder_attr_graph(NULL, 0, "g", branch("k"));
	refused(GENAI_E_FORMAT, "\"w\"");
}
END_TEST

START_TEST(graph_attr_null)
{
	uint32_t n = op("If", in("x"), GENAI_NONE, val("y"));

	genai_builder_attr_graph(b, n, "then_branch", NULL);
	refused(GENAI_E_INVAL, "no graph");
}
END_TEST

START_TEST(close_with_subgraph)
{
	uint32_t n = op("If", in("x"), GENAI_NONE, val("y"));

	genai_builder_attr_graph(b, n, "then_branch", branch("x"));
}
END_TEST

START_TEST(removed_node_is_gone)
{
	uint32_t x = in("x"), a = val("a"), y = val("y"), n;
	struct genai_graph *g;

	n = op("A", x, GENAI_NONE, a);
	op("B", x, GENAI_NONE, y);
	genai_builder_remove_node(b, n);
	ck_assert_ptr_null(genai_builder_get_node(b, n)->op);
	op("C", x, GENAI_NONE, a); // the value is free to be written again
	g = finish();
	ck_assert_uint_eq(g->n_nodes, 2);
	ck_assert_str_eq(node_op(g, 0), "B");
	ck_assert_str_eq(node_op(g, 1), "C");
	genai_graph_free(g);
}
END_TEST

START_TEST(remove_twice)
{
	uint32_t n = op("A", in("x"), GENAI_NONE, val("y"));

	genai_builder_remove_node(b, n);
	genai_builder_remove_node(b, n);
	refused(GENAI_E_INVAL, "no node 0");
}
END_TEST

START_TEST(removed_but_read)
{
	uint32_t a = val("a"), n = op("A", in("x"), GENAI_NONE, a);

	op("B", a, GENAI_NONE, val("y"));
	genai_builder_remove_node(b, n);
	refused(GENAI_E_FORMAT, "its input \"a\"");
}
END_TEST

START_TEST(remove_ends)
{
	uint32_t x = in("x"), y = in("y"), z = in("z");
	struct genai_graph *g;

	genai_builder_output(b, x);
	genai_builder_output(b, y);
	genai_builder_remove_output(b, x);
	genai_builder_remove_input(b, y);
	genai_builder_remove_input(b, 99); // not there: nothing happens
	op("A", x, z, y);
	g = finish();
	ck_assert_uint_eq(g->n_inputs, 2);
	ck_assert_uint_eq(g->inputs[0], x);
	ck_assert_uint_eq(g->inputs[1], z);
	ck_assert_uint_eq(g->n_outputs, 1);
	ck_assert_uint_eq(g->outputs[0], y);
	ck_assert_uint_eq(genai_graph_value(g, x)->flags, GENAI_VALUE_INPUT);
	genai_graph_free(g);
}
END_TEST

START_TEST(replace_value)
{
	uint32_t x = in("x"), z = in("z"), a = val("a"), c = val("c");
	struct genai_graph *g;

	op("A", x, x, a);
	op("B", z, x, c);
	genai_builder_output(b, x);
	genai_builder_replace(b, x, z);
	g = finish();
	ck_assert_uint_eq(genai_graph_node(g, 0)->inputs[0], z);
	ck_assert_uint_eq(genai_graph_node(g, 0)->inputs[1], z);
	ck_assert_uint_eq(genai_graph_node(g, 1)->inputs[1], z);
	ck_assert_uint_eq(g->outputs[0], x);
	genai_graph_free(g);
}
END_TEST

START_TEST(replace_nothing)
{
	genai_builder_replace(b, in("x"), 5);
	refused(GENAI_E_INVAL, "no value 5");
}
END_TEST

START_TEST(set_one_input)
{
	uint32_t x = in("x"), z = in("z"), n = op("A", x, x, val("a"));
	struct genai_graph *g;

	genai_builder_set_input(b, n, 1, z);
	genai_builder_set_input(b, n, 0, GENAI_NONE);
	g = finish();
	ck_assert_uint_eq(genai_graph_node(g, 0)->inputs[0], GENAI_NONE);
	ck_assert_uint_eq(genai_graph_node(g, 0)->inputs[1], z);
	genai_graph_free(g);
}
END_TEST

START_TEST(set_input_out_of_range)
{
	uint32_t x = in("x"), n = op("A", x, x, val("a"));

	genai_builder_set_input(b, n, 2, x);
	refused(GENAI_E_INVAL, "no input 2");
}
END_TEST

START_TEST(prune_chain)
{
	uint32_t x = in("x"), a = val("a"), c = val("c"), y = val("y");
	struct genai_graph *g;

	op("Dead1", x, GENAI_NONE, a);
	op("Live", x, GENAI_NONE, y);
	op("Dead2", a, a, c);
	genai_builder_output(b, y);
	genai_builder_prune(b);
	g = finish();
	ck_assert_uint_eq(g->n_nodes, 1);
	ck_assert_str_eq(node_op(g, 0), "Live");
	genai_graph_free(g);
}
END_TEST

START_TEST(prune_keeps_partly_used)
{
	uint32_t x = in("x"), a = val("a"), c = val("c"), d = val("d");
	uint32_t outputs[2] = {a, c};
	struct genai_graph *g;

	genai_builder_node(b, "Split", "", 21, "", &x, 1, outputs, 2);
	op("Dead", a, GENAI_NONE, d);
	genai_builder_output(b, c);
	genai_builder_prune(b);
	g = finish();
	ck_assert_uint_eq(g->n_nodes, 1);
	ck_assert_str_eq(node_op(g, 0), "Split");
	genai_graph_free(g);
}
END_TEST

START_TEST(prune_counts_captures)
{
	uint32_t x = in("x"), k = val("k"), y = val("y"), n;
	struct genai_graph *g;

	op("Relu", x, GENAI_NONE, k);
	n = op("If", x, GENAI_NONE, y);
	genai_builder_attr_graph(b, n, "then_branch", branch("k"));
	genai_builder_output(b, y);
	genai_builder_prune(b);
	ck_assert_str_eq(genai_builder_get_node(b, 0)->op, "Relu");
	genai_builder_remove_output(b, y);
	genai_builder_prune(b);
	g = finish();
	ck_assert_uint_eq(g->n_nodes, 0);
	genai_graph_free(g);
}
END_TEST

START_TEST(copy_is_equal)
{
	static const float data[2] = {1, 2};
	const int64_t dims[1] = {2};
	const char *const symbols[1] = {"n"};
	struct genai_graph *g, *g2 = NULL;
	uint32_t f = genai_builder_file(b, "w.bin", data, 8), x, w, y, n;

	x = genai_builder_value(b, "x", 1, 1, NULL, symbols);
	genai_builder_input(b, x);
	w = genai_builder_stored(b, "w",
				 genai_builder_tensor(b, f, 0, 8, 1, 1, dims));
	y = val("y");
	n = op("If", x, w, y);
	genai_builder_attr_int(b, n, "i", 3);
	genai_builder_attr_float(b, n, "f", 0.5);
	genai_builder_attr_string(b, n, "s", "abc", 3);
	genai_builder_attr_ints(b, n, "is", dims, 1);
	genai_builder_attr_floats(b, n, "fs", data, 2);
	genai_builder_attr_strings(b, n, "ss", symbols, 1);
	genai_builder_attr_tensor(b, n, "t", 0);
	genai_builder_attr_graph(b, n, "g", branch("x"));
	genai_builder_output(b, y);
	g = finish();

	setup();
	genai_builder_copy(b, g);
	g2 = finish();
	ck_assert_uint_eq(g2->n_files, g->n_files);
	ck_assert_uint_eq(g2->n_tensors, g->n_tensors);
	ck_assert_uint_eq(g2->n_values, g->n_values);
	ck_assert_uint_eq(g2->inputs[0], x);
	ck_assert_uint_eq(g2->outputs[0], y);
	ck_assert_uint_eq(genai_graph_value(g2, w)->tensor, 0);
	ck_assert_str_eq(genai_graph_value(g2, x)->symbols[0], "n");
	ck_assert_ptr_eq(genai_graph_file(g2, 0)->data, data);
	ck_assert_int_eq(genai_graph_node(g2, 0)->opset, 21);
	ck_assert_uint_eq(genai_graph_node(g2, 0)->n_attrs, 8);
	for (n = 0; n < 8; n++) {
		const struct genai_attr *p, *q;

		p = genai_node_attr(genai_graph_node(g, 0), n);
		q = genai_node_attr(genai_graph_node(g2, 0), n);
		ck_assert_str_eq(p->name, q->name);
		ck_assert_uint_eq(p->kind, q->kind);
		ck_assert_int_eq(p->i, q->i);
		ck_assert(p->f == q->f);
		ck_assert_uint_eq(p->count, q->count);
		ck_assert_uint_eq(p->tensor, q->tensor);
		ck_assert_ptr_eq(p->graph, q->graph);
	}
	genai_graph_free(g2);
	genai_graph_free(g);
}
END_TEST

START_TEST(copy_appends)
{
	struct genai_graph *g, *g2;
	uint32_t x = in("x"), y = val("y");

	op("A", x, GENAI_NONE, y);
	genai_builder_output(b, y);
	g = finish();
	setup();
	in("other");
	genai_builder_copy(b, g);
	g2 = finish();
	ck_assert_uint_eq(g2->n_inputs, 2);
	ck_assert_uint_eq(g2->inputs[1], 1);
	ck_assert_uint_eq(g2->outputs[0], 2);
	ck_assert_uint_eq(genai_graph_node(g2, 0)->inputs[0], 1);
	genai_graph_free(g2);
	genai_graph_free(g);
}
END_TEST

START_TEST(copy_twice_collides)
{
	struct genai_graph *g;

	in("x");
	g = finish();
	setup();
	genai_builder_copy(b, g);
	genai_builder_copy(b, g);
	genai_graph_free(g);
	refused(GENAI_E_FORMAT, "\"x\" is defined twice");
}
END_TEST

START_TEST(memory_cap)
{
	struct genai_budget budget = {100000, 0};
	struct genai_graph *g = NULL;
	char name[16];
	uint32_t i;

	genai_builder_close(b);
	b = genai_builder_open_capped("g", &budget);
	for (i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "v%u", i);
		ck_assert_uint_eq(val(name), i);
	}
	for (; i < 1000; i++) {
		snprintf(name, sizeof(name), "v%u", i);
		val(name);
	}
	ck_assert_int_eq(genai_builder_finish(b, &g, &err), GENAI_E_LIMIT);
	b = NULL;
	ck_assert_ptr_nonnull(strstr(err.text, "more memory"));
}
END_TEST

START_TEST(arena_alignment)
{
	struct genai_arena a = {NULL, NULL};
	uint32_t i;

	for (i = 0; i < 2000; i++) {
		size_t align = (size_t)1 << (i % 7);
		char *p = genai_arena_alloc(&a, i % 300, align);

		ck_assert_ptr_nonnull(p);
		ck_assert_uint_eq((uintptr_t)p % align, 0);
		memset(p, 0xaa, i % 300);
	}
	ck_assert_ptr_null(genai_arena_alloc(&a, UINT64_MAX, 1));
	ck_assert_ptr_null(genai_arena_alloc(&a, UINT64_MAX - 300, 64));
	genai_arena_free(&a);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("graph_edit");
	TCase *t = tcase_create("graph");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 30);
#define T(name) tcase_add_test(t, name)
	T(sorted_order_is_kept);
	T(unsorted_is_sorted);
	T(long_reverse_chain);
	T(cycle_of_two);
	T(cycle_of_one);
	T(cycle_of_three);
	T(cycle_with_long_names);
	T(capture_orders_nodes);
	T(capture_of_nothing);
	T(capture_cycle);
	T(graph_attr_on_dead_builder);
	T(graph_attr_null);
	T(close_with_subgraph);
	T(removed_node_is_gone);
	T(remove_twice);
	T(removed_but_read);
	T(remove_ends);
	T(replace_value);
	T(replace_nothing);
	T(set_one_input);
	T(set_input_out_of_range);
	T(prune_chain);
	T(prune_keeps_partly_used);
	T(prune_counts_captures);
	T(copy_is_equal);
	T(copy_appends);
	T(copy_twice_collides);
	T(memory_cap);
	T(arena_alignment);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
