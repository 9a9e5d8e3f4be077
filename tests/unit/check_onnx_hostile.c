// check_onnx_hostile.c - model files made to break readers: the wire format,
// names, sizes, truncation and flipped bits.
#include "core/onnx/scan.h"
#include "tests/unit/onnx_writer.h"

#include <fcntl.h>

#define N(a) ((int)(sizeof(a) / sizeof((a)[0])))

static struct ow relu_model(void)
{
	struct ow g = {NULL, 0, 0};

	ow_str(&g, 2, "g");
	ow_add_input(&g, "x");
	ow_add_op(&g, "Relu", "x", "y");
	ow_add_output(&g, "y");
	return ow_model(g);
}

// Raw bytes.
static const struct {
	const char *bytes;
	size_t n;
	const char *text;
} wires[] = {
	{"\xfa\xff\xff\xff\x7f\x00", 6, "byte 0: bad field number"},
	{"\x3a\xff\xff\xff\xff\x07\x01\x02\x03", 9,
	 "byte 0: a field is longer than what is left"},
	{"\xca\x01\x08\x3a\x00\x5a\x02\x3a\x00\x2a\x00", 11, "has no graph"},
	{"\xca\x01\x08\x3a\x00\x5a\x02\x3a\x00\x28\x00", 11,
	 "function output in a function has wire type 0"},
	{"\x00\x00", 2, "bad field number"},
	{"\x02\x00", 2, "bad field number"},
	{"\x80\x00", 2, "bad field number"},
	{"\x0b", 1, "bad wire type"},
	{"\x0c", 1, "bad wire type"},
	{"\x3b\x3c", 2, "bad wire type"},
	{"\x0e", 1, "bad wire type"},
	{"\x0f", 1, "bad wire type"},
	{"\x08", 1, "bad number"},
	{"\x08\x80", 2, "bad number"},
	{"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11, "bad number"},
	{"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, "bad number"},
	{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, "bad field number"},
	{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "bad field tag"},
	{"\x80", 1, "bad field tag"},
	{"\x3a\x80", 2, "bad length"},
	{"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "longer than"},
	{"\x3a\x01", 2, "longer than"},
	{"\x7d\x00\x00\x00", 4, "longer than"},
	{"\x79\x00\x00\x00\x00\x00\x00\x00", 8, "longer than"},
	{"\x3a\x02\x0a\x05\x00\x00\x00\x00\x00", 9, "byte 2: a field is"},
	{"\x38\x01", 2, "graph in the model has wire type 0"},
	{"\x0a\x00", 2, "ir_version in the model has wire type 2"},
	{"\x0d\x00\x00\x00\x00", 5, "ir_version in the model has wire type 5"},
	{"\x3a\x02\x08\x01", 4, "node in a graph has wire type 0"},
	{"\x08\x0a\x08\x0a", 4, "ir_version appears twice in the model"},
	{"\x3a\x00\x3a\x00", 4, "byte 2: graph appears twice in the model"},
};

START_TEST(wire)
{
	expect_error(bench_load_bytes(wires[_i].bytes, wires[_i].n),
		     GENAI_E_FORMAT, wires[_i].text);
}
END_TEST

START_TEST(long_encodings_are_fine)
{
	struct ow m = {NULL, 0, 0};

	ow_raw(&m, "\x88\x80\x00\x8a\x80\x00", 6); // ir_version, in long
	ow_raw(&m, "\x42\x82\x00\x10\x15", 5);	   // opset_import
	ow_raw(&m, "\xba\x80\x80\x80\x00\x80\x80\x80\x00", 9);
	load_ok(m);
}
END_TEST

START_TEST(unknown_fields_are_skipped)
{
	struct ow m = relu_model();

	ow_raw(&m, "\xfd\x7f\x01\x02\x03\x04", 6);
	ow_raw(&m, "\xf9\x7f\x01\x02\x03\x04\x05\x06\x07\x08", 10);
	ow_int(&m, 536870911, -1);
	ow_str(&m, 6, "doc \xff\xff");
	ow_str(&m, 14, "metadata");
	ck_assert_uint_eq(load_ok(m)->n_nodes, 1);
}
END_TEST

// What the scan tells the unpacker cannot come from the file.
START_TEST(own_fields_cannot_be_forged)
{
	struct ow g = {NULL, 0, 0}, t = ow_tensor1("w", GENAI_DT_U8, 4);

	ow_varint(&t, 1000 << 3 | 1);
	ow_raw(&t, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8);
	ow_varint(&t, 1001 << 3 | 1);
	ow_raw(&t, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8);
	ow_bytes(&t, 9, "abcd", 4);
	ow_int(&t, 1000, 5);
	ow_add_init(&g, t);
	ck_assert_mem_eq(bytes_of(graph_ok(g), "w", 4), "abcd", 4);
}
END_TEST

// A graph with one field given twice somewhere.
static struct ow twice(int where, uint32_t field)
{
	struct ow g = {NULL, 0, 0}, m = {NULL, 0, 0}, up = {NULL, 0, 0},
		  top = {NULL, 0, 0};

	ow_str(&m, field, "");
	ow_str(&m, field, "");
	switch (where) {
	case 0: // a graph
		return m;
	case 1: // a node
		ow_msg(&g, 1, m);
		return g;
	case 2: // an attribute
		ow_msg(&up, 5, m);
		ow_msg(&g, 1, up);
		return g;
	case 3: // a tensor
		ow_msg(&g, 5, m);
		return g;
	case 4: // a value
		ow_msg(&g, 11, m);
		return g;
	case 5: // a type
		ow_msg(&up, 2, m);
		ow_msg(&g, 12, up);
		return g;
	case 6: // a tensor type
		ow_msg(&up, 1, m);
		ow_msg(&top, 2, up);
		ow_msg(&g, 13, top);
		return g;
	default: // a sparse tensor
		ow_msg(&g, 15, m);
		return g;
	}
}

static const struct {
	int where;
	uint32_t field;
	const char *text;
} doubles[] = {
	{0, 2, "graph name appears twice in a graph"},
	{1, 3, "node name appears twice in a node"},
	{1, 4, "op_type appears twice in a node"},
	{1, 7, "domain appears twice in a node"},
	{2, 1, "attribute name appears twice in an attribute"},
	{2, 4, "s appears twice in an attribute"},
	{2, 5, "t appears twice in an attribute"},
	{2, 6, "g appears twice in an attribute"},
	{2, 21, "ref_attr_name appears twice"},
	{3, 8, "tensor name appears twice in a tensor"},
	{3, 9, "raw_data appears twice in a tensor"},
	{4, 1, "value name appears twice in a value"},
	{4, 2, "type appears twice in a value"},
	{5, 1, "tensor_type appears twice in a type"},
	{6, 2, "shape appears twice in a tensor type"},
	{7, 1, "values appears twice in a sparse tensor"},
};

START_TEST(singular_field_twice)
{
	graph_fails(twice(doubles[_i].where, doubles[_i].field), GENAI_E_FORMAT,
		    doubles[_i].text);
}
END_TEST

START_TEST(singular_number_twice)
{
	struct ow g = {NULL, 0, 0}, t = ow_tensor1("w", 1, 0);

	ow_int(&t, 2, 1);
	ow_add_init(&g, t);
	graph_fails(g, GENAI_E_FORMAT, "data_type appears twice in a tensor");
}
END_TEST

// Quadratic in protobuf-c: 40 s.
START_TEST(graph_640000_times)
{
	struct ow m = {NULL, 0, 0};
	double start;
	int i;

	for (i = 0; i < 640000; i++)
		ow_raw(&m, "\x3a\x02\x0a\x00", 4);
	start = genai_cpu_seconds();
	load_fails(m, GENAI_E_FORMAT, "graph appears twice");
	ck_assert_cost(genai_cpu_seconds() - start, 0.5);
}
END_TEST

// Text.
static const struct {
	const char *bytes;
	size_t n;
	const char *text; // NULL: good
} texts[] = {
	{"w", 1, NULL},
	{"\xc3\xa9", 2, NULL},
	{"\xe2\x82\xac", 3, NULL},
	{"\xed\x9f\xbf", 3, NULL},
	{"\xee\x80\x80", 3, NULL},
	{"\xf0\x90\x80\x80", 4, NULL},
	{"\xf4\x8f\xbf\xbf", 4, NULL},
	{"w\0evil", 6, "NUL"},
	{"\0", 1, "NUL"},
	{"\x80", 1, "UTF-8"},
	{"\xc0\x80", 2, "UTF-8"},
	{"\xc1\xbf", 2, "UTF-8"},
	{"\xe0\x80\x80", 3, "UTF-8"},
	{"\xe0\x9f\xbf", 3, "UTF-8"},
	{"\xf0\x80\x80\x80", 4, "UTF-8"},
	{"\xf0\x8f\xbf\xbf", 4, "UTF-8"},
	{"\xed\xa0\x80", 3, "UTF-8"},
	{"\xed\xbf\xbf", 3, "UTF-8"},
	{"\xf4\x90\x80\x80", 4, "UTF-8"},
	{"\xf5\x80\x80\x80", 4, "UTF-8"},
	{"\xff", 1, "UTF-8"},
	{"\xc3", 1, "UTF-8"},
	{"\xe2\x82", 2, "UTF-8"},
	{"\xf0\x90\x80", 3, "UTF-8"},
	{"\xc3\x41", 2, "UTF-8"},
	{"\xe2\x41\xac", 3, "UTF-8"},
	{"\xf0\x90\x41\x80", 4, "UTF-8"},
};

START_TEST(text_bytes)
{
	struct ow g = {NULL, 0, 0}, v = {NULL, 0, 0};

	ow_bytes(&v, 1, texts[_i].bytes, texts[_i].n);
	ow_msg(&g, 11, v);
	if (texts[_i].text)
		graph_fails(g, GENAI_E_FORMAT, texts[_i].text);
	else
		ck_assert_mem_eq(genai_graph_value(graph_ok(g), 0)->name,
				 texts[_i].bytes, texts[_i].n);
}
END_TEST

// A NUL in each place where a name may stand.
START_TEST(nul_in_each_name)
{
	static const char *const names[] = {
		"graph name",	       "node input",	"node output",
		"node name",	       "op_type",	"domain",
		"attribute name",      "ref_attr_name", "tensor name",
		"value name",	       "dim_param",	"external_data key",
		"external_data value", "domain"};
	struct ow g = {NULL, 0, 0}, a = {NULL, 0, 0}, c = {NULL, 0, 0},
		  d = {NULL, 0, 0}, e = {NULL, 0, 0}, m;
	static const char nul[] = "a\0b";
	char text[64];

	switch (_i) {
	case 0:
		ow_bytes(&g, 2, nul, 3);
		break;
	case 1:
	case 2:
	case 3:
	case 4:
		ow_bytes(&a, (uint32_t)_i, nul, 3);
		ow_msg(&g, 1, a);
		break;
	case 5:
		ow_bytes(&a, 7, nul, 3);
		ow_msg(&g, 1, a);
		break;
	case 6:
	case 7:
		ow_bytes(&c, _i == 6 ? 1 : 21, nul, 3);
		ow_msg(&a, 5, c);
		ow_msg(&g, 1, a);
		break;
	case 8:
		ow_bytes(&a, 8, nul, 3);
		ow_msg(&g, 5, a);
		break;
	case 9:
		ow_bytes(&a, 1, nul, 3);
		ow_msg(&g, 13, a);
		break;
	case 10:
		ow_bytes(&a, 2, nul, 3);
		ow_msg(&c, 1, a);
		ow_msg(&d, 2, c);
		ow_msg(&e, 1, d);
		memset(&a, 0, sizeof(a));
		ow_msg(&a, 2, e);
		ow_msg(&g, 11, a);
		break;
	case 11:
	case 12:
		ow_bytes(&c, (uint32_t)_i - 10, nul, 3);
		ow_msg(&a, 13, c);
		ow_msg(&g, 5, a);
		break;
	}
	m = ow_model(g);
	if (_i == 13) {
		ow_bytes(&a, 1, nul, 3);
		ow_msg(&m, 8, a);
	}
	snprintf(text, sizeof(text), "%s holds a NUL byte", names[_i]);
	load_fails(m, GENAI_E_FORMAT, text);
}
END_TEST

START_TEST(name_length)
{
	char name[4098];
	struct ow g = {NULL, 0, 0};

	memset(name, 'a', sizeof(name));
	name[4097] = 0;
	ow_add_input(&g, name);
	graph_fails(g, GENAI_E_LIMIT, "value name of 4097 bytes, at most 4096");
	name[4096] = 0;
	memset(&g, 0, sizeof(g));
	ow_add_input(&g, name);
	ck_assert_str_eq(genai_graph_value(graph_ok(g), 0)->name, name);
}
END_TEST

// Counts.
static struct ow repeat(const char *unit, size_t bytes, size_t count)
{
	struct ow g = {NULL, 0, 0};

	while (count--)
		ow_raw(&g, unit, bytes);
	return g;
}

START_TEST(node_limit)
{
	graph_fails(repeat("\x0a\x00", 2, GENAI_ONNX_MAX_NODES + 1),
		    GENAI_E_LIMIT, "more than 1000000 nodes");
}
END_TEST

START_TEST(initialiser_limit)
{
	graph_fails(repeat("\x2a\x00", 2, GENAI_ONNX_MAX_INITIALIZERS + 1),
		    GENAI_E_LIMIT, "more than 1000000 initialisers");
}
END_TEST

START_TEST(field_limit)
{
	struct genai_onnx_stripped s;
	struct genai_error err = GENAI_ERROR_INIT;
	size_t n = GENAI_ONNX_MAX_FIELDS * 2;
	uint8_t *data = malloc(n + 2);
	size_t i;

	ck_assert_ptr_nonnull(data);
	for (i = 0; i < n + 2; i += 2) {
		data[i] = 0x78;
		data[i + 1] = 0;
	}
	ck_assert_int_eq(
		genai_onnx_scan(data, n, GENAI_ONNX_ROOT_MODEL, NULL, &s, &err),
		0);
	ck_assert_uint_eq(s.bytes, 0);
	genai_onnx_stripped_free(&s, NULL);
	ck_assert_int_eq(genai_onnx_scan(data, n + 2, GENAI_ONNX_ROOT_MODEL,
					 NULL, &s, &err),
			 GENAI_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(err.text, "fields"));
	free(data);
}
END_TEST

// Peak memory of this process in KiB.
static long peak(void)
{
	char line[256];
	long kib = -1;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmHWM: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

// Small messages that take much memory when unpacked: refused in time, within
// 64 MiB + 8 x file.
static const struct {
	const char *unit;
	size_t bytes;
	size_t count;
} swarms[] = {
	{"\x0a\x00", 2, 1000000},		  // nodes
	{"\x2a\x00", 2, 1000000},		  // initialisers
	{"\x5a\x00", 2, 3000000},		  // inputs
	{"\x6a\x00", 2, 3000000},		  // value_info
	{"\x7a\x02\x0a\x00", 4, 1000000},	  // sparse tensors
	{"\xf8\x01\x01", 3, 3000000},		  // unknown
	{"\x0a\x02\x2a\x00", 4, 1000000},	  // nodes with attributes
	{"\x0a\x04\x2a\x02\x32\x00", 6, 1000000}, // with graphs
	{"\x5a\x06\x12\x04\x0a\x02\x12\x00", 8, 500000}, // with types
	{"\x2a\x02\x6a\x00", 4, 1000000},		 // with entries
};

START_TEST(swarm)
{
	struct ow g =
		repeat(swarms[_i].unit, swarms[_i].bytes, swarms[_i].count);
	struct ow m = ow_model(g);
	long before = peak(), limit;
	double start = genai_cpu_seconds();
	int32_t rc = bench_load_bytes(m.data, m.n);

	// the file itself is mapped and counts too
	limit = (long)((64 << 20) + 9 * m.n) / 1024 + 2048;
	ow_free(&m);
	ck_assert_cost(genai_cpu_seconds() - start, 1.0);
	ck_assert(rc == GENAI_E_LIMIT || rc == GENAI_E_FORMAT ||
		  (rc == 0 && _i == 5));
	ck_assert_cost(peak() - before, limit);
}
END_TEST

// One node with very many names, numbers, attributes.
START_TEST(swarm_in_one_node)
{
	static const struct {
		uint32_t field;
		const char *unit;
		size_t bytes;
	} lists[] = {{1, "", 0},
		     {2, "x", 1},
		     {5, "\x0a\x01\x61", 3},
		     {5, "\x40\x01", 2},
		     {5, "\x4a\x00", 2}};
	struct ow g = {NULL, 0, 0}, n = {NULL, 0, 0}, m;
	double start;
	int32_t rc;
	int i;

	ow_str(&n, 4, "Op");
	for (i = 0; i < 1000000; i++)
		ow_bytes(&n, lists[_i].field, lists[_i].unit, lists[_i].bytes);
	ow_add_node(&g, n);
	m = ow_model(g);
	start = genai_cpu_seconds();
	rc = bench_load_bytes(m.data, m.n);
	ow_free(&m);
	ck_assert_cost(genai_cpu_seconds() - start, 2.0);
	ck_assert_msg(rc == GENAI_E_LIMIT || rc == GENAI_E_FORMAT ||
			      (rc == 0 && _i == 0),
		      "%d %s", rc, bench.err.text);
}
END_TEST

// 300,000 values with short names: 288 bytes each in a graph, five in the file.
START_TEST(swarm_of_values)
{
	struct ow g = {NULL, 0, 0}, n = {NULL, 0, 0}, m;
	long before, limit;
	char name[16];
	int32_t rc;
	int i;

	ow_str(&n, 4, "Split");
	for (i = 0; i < 1000000; i++) {
		snprintf(name, sizeof(name), "%x", i);
		ow_str(&n, 2, name);
	}
	ow_add_node(&g, n);
	m = ow_model(g);
	before = peak();
	rc = bench_load_bytes(m.data, m.n);
	limit = (long)((64 << 20) + 9 * m.n) / 1024 + 2048;
	ow_free(&m);
	expect_error(rc, GENAI_E_LIMIT, "memory");
	ck_assert_cost(peak() - before, limit);
}
END_TEST

// A graph of a size that does occur must not meet the cap.
START_TEST(large_honest_graph)
{
	struct ow g = {NULL, 0, 0};
	char in[64], out[64];
	int i;

	ow_add_input(&g, "/model/layers.0/output_0");
	for (i = 0; i < 20000; i++) {
		snprintf(in, sizeof(in), "/model/layers.%d/output_0", i);
		snprintf(out, sizeof(out), "/model/layers.%d/output_0", i + 1);
		ow_add_op(&g, "Relu", in, out);
	}
	ck_assert_uint_eq(graph_ok(g)->n_nodes, 20000);
}
END_TEST

START_TEST(two_gigabytes_and_one)
{
	int fd = open(bench.path, O_RDWR | O_CREAT, 0600);
	double start;

	ck_assert_int_ge(fd, 0);
	if (ftruncate(fd, (INT64_C(1) << 31) + 1)) {
		close(fd);
		return; // no room for holes here
	}
	close(fd);
	start = genai_cpu_seconds();
	expect_error(bench_load_path(bench.path), GENAI_E_LIMIT,
		     "store weights as external data");
	ck_assert_int_eq(truncate(bench.path, INT64_C(1) << 31), 0);
	expect_error(bench_load_path(bench.path), GENAI_E_LIMIT,
		     "2147483648 bytes, at most 2147483647");
	ck_assert_int_eq(truncate(bench.path, (INT64_C(1) << 31) - 1), 0);
	expect_error(bench_load_path(bench.path), GENAI_E_FORMAT,
		     "bad field number");
	ck_assert_cost(genai_cpu_seconds() - start, 0.5);
}
END_TEST

// Five tiny models, each with other features.
static struct ow tiny(int which)
{
	static const int64_t dims[2] = {2, -1};
	struct ow g = {NULL, 0, 0}, n, t, a, sub = {NULL, 0, 0}, m;

	switch (which) {
	case 0:
		return relu_model();
	case 1: // tensors of each storage
		t = ow_tensor1("r", GENAI_DT_F32, 2);
		ow_bytes(&t, 9, "01234567", 8);
		ow_add_init(&g, t);
		t = ow_tensor1("i", GENAI_DT_F16, 2);
		ow_bytes(&t, 5, "\x80\x78\x05", 3);
		ow_add_init(&g, t);
		t = ow_tensor1("f", GENAI_DT_F32, 2);
		ow_f32(&t, 4, 1);
		ow_f32(&t, 4, 2);
		ow_add_init(&g, t);
		t = ow_tensor1("u", GENAI_DT_U64, 1);
		ow_int(&t, 11, -1);
		ow_add_init(&g, t);
		return ow_model(g);
	case 2: // external data
		t = ow_tensor1("w", GENAI_DT_U8, 16);
		ow_external(&t, "w.bin", "16", "16");
		ow_add_init(&g, t);
		ow_add_op(&g, "Identity", "w", "y");
		ow_add_output(&g, "y");
		return ow_model(g);
	case 3: // a subgraph with a constant, and a capture
		n = ow_node("Constant", NULL, "k");
		a = ow_attr("value_ints", 7);
		ow_bytes(&a, 8, "\x01\xac\x02", 3);
		ow_msg(&n, 5, a);
		ow_add_node(&sub, n);
		ow_add_op(&sub, "Add", "k,x", "z");
		ow_add_output(&sub, "z");
		n = ow_node("If", "c", "y");
		ow_attr_graph(&n, "then_branch", sub);
		ow_add_input(&g, "c");
		ow_add_input(&g, "x");
		ow_add_node(&g, n);
		ow_add_output(&g, "y");
		return ow_model(g);
	default: // shapes, attributes, another domain
		ow_msg(&g, 11, ow_value("x", GENAI_DT_I64, 2, dims));
		n = ow_node("Op", "x,,x", ",y");
		ow_str(&n, 3, "node");
		ow_str(&n, 7, "com.microsoft");
		ow_attr_int(&n, "axis", -1);
		a = ow_attr("s", OW_STRING);
		ow_str(&a, 4, "text");
		ow_msg(&n, 5, a);
		a = ow_attr("fs", 6);
		ow_f32(&a, 7, 1);
		ow_msg(&n, 5, a);
		ow_add_node(&g, n);
		ow_msg(&g, 12, ow_value("y", GENAI_DT_F32, 2, dims));
		m = ow_model(g);
		ow_opset(&m, "com.microsoft", 1);
		return m;
	}
}

static uint64_t touch(const struct genai_graph *g)
{
	uint64_t sum = 0;
	uint32_t i, j;

	for (i = 0; i < g->n_tensors; i++) {
		const struct genai_tensor *t = genai_graph_tensor(g, i);
		const uint8_t *p = genai_graph_file(g, t->file)->data;
		uint64_t at;

		for (at = 0; at < t->bytes && at < 65536; at++)
			sum += p[t->offset + at];
	}
	for (i = 0; i < g->n_values; i++)
		sum += strlen(genai_graph_value(g, i)->name);
	for (i = 0; i < g->n_nodes; i++) {
		const struct genai_node *n = genai_graph_node(g, i);

		for (j = 0; j < n->n_inputs; j++)
			ck_assert(n->inputs[j] == GENAI_NONE ||
				  n->inputs[j] < g->n_values);
		for (j = 0; j < n->n_attrs; j++)
			if (genai_node_attr(n, j)->graph)
				sum += touch(genai_node_attr(n, j)->graph);
	}
	return sum;
}

// Any file: an error that names it, or a graph that can be read.
static void survive(const uint8_t *data, size_t n)
{
	int32_t rc = bench_load_bytes(data, n);

	if (rc == 0) {
		touch(genai_onnx_graph(bench.model));
		return;
	}
	ck_assert_int_lt(rc, 0);
	ck_assert_int_ge(rc, GENAI_E_ORDER);
	ck_assert_int_eq(bench.err.code, rc);
	ck_assert_uint_gt(strlen(bench.err.text), strlen(bench.path));
}

START_TEST(every_truncation)
{
	struct ow m = tiny(_i);
	size_t n;

	bench_data("w.bin", 32, 0);
	for (n = 0; n < m.n; n++) {
		survive(m.data, n);
		// the graph comes last in these models: cut, it is malformed
		if (n > 20 && _i < 4)
			ck_assert_ptr_null(bench.model);
	}
	survive(m.data, m.n);
	ck_assert_ptr_nonnull(bench.model);
	ow_free(&m);
}
END_TEST

START_TEST(every_bit_flip)
{
	struct ow m = tiny(_i);
	size_t i;

	bench_data("w.bin", 32, 0);
	for (i = 0; i < m.n * 8; i++) {
		m.data[i / 8] ^= (uint8_t)(1u << (i % 8));
		survive(m.data, m.n);
		m.data[i / 8] ^= (uint8_t)(1u << (i % 8));
	}
	survive(m.data, m.n);
	ck_assert_ptr_nonnull(bench.model);
	ow_free(&m);
}
END_TEST

// Two or more random bytes; the seed is fixed.
START_TEST(random_bytes)
{
	struct ow m = tiny(_i);
	uint8_t *copy = malloc(m.n);
	uint64_t seed = 88172645463325252u + (uint64_t)_i;
	int round, k;

	ck_assert_ptr_nonnull(copy);
	bench_data("w.bin", 32, 0);
	for (round = 0; round < 2000; round++) {
		memcpy(copy, m.data, m.n);
		for (k = 0; k < 2 + round % 3; k++) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			copy[(seed >> 8) % m.n] = (uint8_t)(seed >> 40);
		}
		survive(copy, m.n);
	}
	free(copy);
	ow_free(&m);
}
END_TEST

// After any refusal the process loads a good model.
START_TEST(refused_then_good)
{
	struct ow m;
	int i;

	bench_data("w.bin", 32, 0);
	for (i = 0; i < N(wires); i++) {
		survive((const uint8_t *)wires[i].bytes, wires[i].n);
		m = tiny(i % 5);
		load_ok(m);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("onnx_hostile");
	TCase *t = tcase_create("hostile");

	tcase_add_checked_fixture(t, bench_setup, bench_teardown);
	tcase_set_timeout(t, 60);
#define T(name) tcase_add_test(t, name)
#define LOOP(name, n) tcase_add_loop_test(t, name, 0, n)
	LOOP(wire, N(wires));
	T(long_encodings_are_fine);
	T(unknown_fields_are_skipped);
	T(own_fields_cannot_be_forged);
	LOOP(singular_field_twice, N(doubles));
	T(singular_number_twice);
	T(graph_640000_times);
	LOOP(text_bytes, N(texts));
	LOOP(nul_in_each_name, 14);
	T(name_length);
	T(node_limit);
	T(initialiser_limit);
	T(field_limit);
	LOOP(swarm, N(swarms));
	LOOP(swarm_in_one_node, 5);
	T(swarm_of_values);
	T(large_honest_graph);
	T(two_gigabytes_and_one);
	LOOP(every_truncation, 5);
	LOOP(every_bit_flip, 5);
	LOOP(random_bytes, 5);
	T(refused_then_good);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
