// check_onnx_tensor.c - tensor data inside a model file, and tensor files.
#include "tests/unit/onnx_writer.h"

#include <stdarg.h>

#define F32 GENAI_DT_F32

// Fields of TensorProto.
enum { FLOAT_DATA = 4, INT32_DATA, STRING_DATA, INT64_DATA };
enum { RAW_DATA = 9, DOUBLE_DATA, UINT64_DATA };

// A graph with the initialiser t (used up) that nobody reads.
static struct ow one(struct ow t)
{
	struct ow g = {NULL, 0, 0};

	ow_add_init(&g, t);
	return g;
}

static struct ow raw(int dtype, int64_t dim, size_t bytes)
{
	struct ow t = ow_tensor1("w", dtype, dim);
	uint8_t data[4096] = {0};
	size_t i;

	for (i = 0; i < bytes; i++)
		data[i] = (uint8_t)(i + 1);
	ow_bytes(&t, RAW_DATA, data, bytes);
	return t;
}

// n entries, one field each.
static struct ow ints(int dtype, int64_t dim, uint32_t field, int n, ...)
{
	struct ow t = ow_tensor1("w", dtype, dim);
	va_list ap;

	va_start(ap, n);
	while (n--)
		ow_int(&t, field, va_arg(ap, int64_t));
	va_end(ap);
	return t;
}
#define I(x) ((int64_t)(x))

START_TEST(raw_is_in_the_file)
{
	const struct genai_graph *g = graph_ok(one(raw(F32, 4, 16)));
	const struct genai_tensor *t = genai_graph_tensor(g, 0);
	const struct genai_file *f = genai_graph_file(g, t->file);

	ck_assert_str_eq(f->path, bench.path);
	ck_assert_uint_eq(t->dtype, F32);
	ck_assert_uint_eq(t->rank, 1);
	ck_assert_int_eq(t->dims[0], 4);
	ck_assert_uint_eq(t->bytes, 16);
	ck_assert_uint_eq(((const uint8_t *)f->data)[t->offset], 1);
	ck_assert_uint_eq(((const uint8_t *)f->data)[t->offset + 15], 16);
}
END_TEST

START_TEST(scalar_is_not_empty)
{
	struct ow t = ow_tensor("s", F32, 0, NULL);
	const struct genai_graph *g;

	ow_bytes(&t, RAW_DATA, "\0\0\x80\x3f", 4);
	g = graph_ok(one(t));
	ck_assert_uint_eq(value_of(g, "s")->rank, 0);
	ck_assert_mem_eq(bytes_of(g, "s", 4), "\0\0\x80\x3f", 4);
}
END_TEST

START_TEST(empty_is_not_scalar)
{
	const struct genai_graph *g = graph_ok(one(ow_tensor1("s", F32, 0)));

	ck_assert_uint_eq(value_of(g, "s")->rank, 1);
	ck_assert_int_eq(value_of(g, "s")->dims[0], 0);
	bytes_of(g, "s", 0);
	graph_ok(one(raw(F32, 0, 0)));
	graph_fails(one(raw(F32, 0, 4)), GENAI_E_FORMAT,
		    "needs 0 bytes, raw_data has 4");
}
END_TEST

START_TEST(packed_dims)
{
	struct ow t = {NULL, 0, 0};

	ow_bytes(&t, 1, "\x02\x03", 2);
	ow_int(&t, 2, GENAI_DT_U8);
	ow_str(&t, 8, "w");
	ow_bytes(&t, RAW_DATA, "abcdef", 6);
	ck_assert_mem_eq(bytes_of(graph_ok(one(t)), "w", 6), "abcdef", 6);
	ck_assert_int_eq(
		genai_graph_tensor(genai_onnx_graph(bench.model), 0)->dims[1],
		3);
}
END_TEST

START_TEST(raw_of_wrong_length)
{
	graph_fails(one(raw(F32, 1000, 4)), GENAI_E_FORMAT,
		    "initialiser \"w\": its shape needs 4000 bytes, raw_data "
		    "has 4");
	graph_fails(one(raw(F32, 1, 8)), GENAI_E_FORMAT,
		    "needs 4 bytes, raw_data has 8");
	graph_fails(one(ow_tensor1("w", GENAI_DT_I8, 128)), GENAI_E_FORMAT,
		    "needs 128 bytes, raw_data has 0");
}
END_TEST

START_TEST(long_name_keeps_the_reason)
{
	char name[4097];
	struct ow t;

	memset(name, 'n', 4096);
	name[4096] = 0;
	memcpy(name + 94, "\xe2\x82\xac", 3); // across the place of the cut
	t = ow_tensor1(name, F32, 1000);
	graph_fails(one(t), GENAI_E_FORMAT, "nnn...\": its shape needs 4000");
}
END_TEST

// 4-bit types alone hold two elements in an entry or byte.
START_TEST(four_bit)
{
	ck_assert_mem_eq(
		bytes_of(graph_ok(one(raw(GENAI_DT_U4, 5, 3))), "w", 3),
		"\1\2\3", 3);
	graph_fails(one(raw(GENAI_DT_I4, 5, 2)), GENAI_E_FORMAT,
		    "needs 3 bytes, raw_data has 2");
	ck_assert_mem_eq(
		bytes_of(graph_ok(one(ints(GENAI_DT_I4, 5, INT32_DATA, 3,
					   I(0x21), I(0xc3), I(5)))),
			 "w", 3),
		"\x21\xc3\x05", 3);
	graph_fails(one(ints(GENAI_DT_U4, 5, INT32_DATA, 5, I(1), I(2), I(3),
			     I(4), I(5))),
		    GENAI_E_FORMAT, "needs 3 entries, int32_data has 5");
	graph_fails(one(ints(GENAI_DT_F16, 32, INT32_DATA, 4, I(1), I(2), I(3),
			     I(4))),
		    GENAI_E_FORMAT, "needs 32 entries, int32_data has 4");
}
END_TEST

START_TEST(half_in_int32_data)
{
	ck_assert_mem_eq(bytes_of(graph_ok(one(ints(GENAI_DT_F16, 2, INT32_DATA,
						    2, I(15360), I(49152)))),
				  "w", 4),
			 "\x00\x3c\x00\xc0", 4);
	ck_assert_mem_eq(
		bytes_of(graph_ok(one(ints(GENAI_DT_BF16, 2, INT32_DATA, 2,
					   I(16256), I(49152)))),
			 "w", 4),
		"\x80\x3f\x00\xc0", 4);
}
END_TEST

START_TEST(bfloat16_raw)
{
	struct ow t = ow_tensor1("w", GENAI_DT_BF16, 2);

	ow_bytes(&t, RAW_DATA, "\x80\x3f\x00\xc0", 4);
	ck_assert_mem_eq(bytes_of(graph_ok(one(t)), "w", 4), "\x80\x3f\x00\xc0",
			 4);
}
END_TEST

START_TEST(float_raw_and_typed_are_equal)
{
	struct ow t = ow_tensor1("w", F32, 1);

	ow_f32(&t, FLOAT_DATA, 1.0f);
	ck_assert_mem_eq(bytes_of(graph_ok(one(t)), "w", 4), "\0\0\x80\x3f", 4);
}
END_TEST

// Entries that the type cannot hold, and the last that it can.
static const struct {
	int dtype;
	uint32_t field;
	int64_t entry;
	int ok;
} ranges[] = {
	{GENAI_DT_U8, INT32_DATA, 255, 1},
	{GENAI_DT_U8, INT32_DATA, 256, 0},
	{GENAI_DT_U8, INT32_DATA, -1, 0},
	{GENAI_DT_I8, INT32_DATA, 127, 1},
	{GENAI_DT_I8, INT32_DATA, -128, 1},
	{GENAI_DT_I8, INT32_DATA, 128, 0},
	{GENAI_DT_I8, INT32_DATA, -129, 0},
	{GENAI_DT_U16, INT32_DATA, 65535, 1},
	{GENAI_DT_U16, INT32_DATA, 65536, 0},
	{GENAI_DT_I16, INT32_DATA, -32768, 1},
	{GENAI_DT_I16, INT32_DATA, 32768, 0},
	{GENAI_DT_F16, INT32_DATA, 65535, 1},
	{GENAI_DT_F16, INT32_DATA, 65536, 0},
	{GENAI_DT_F16, INT32_DATA, -1, 0},
	{GENAI_DT_BF16, INT32_DATA, 65536, 0},
	{GENAI_DT_BOOL, INT32_DATA, 1, 1},
	{GENAI_DT_BOOL, INT32_DATA, 2, 0},
	{GENAI_DT_I32, INT32_DATA, INT32_MAX, 1},
	{GENAI_DT_I32, INT32_DATA, INT32_MIN, 1},
	{GENAI_DT_U4, INT32_DATA, 255, 1},
	{GENAI_DT_U4, INT32_DATA, 256, 0},
	{GENAI_DT_U32, UINT64_DATA, UINT32_MAX, 1},
	{GENAI_DT_U32, UINT64_DATA, INT64_C(1) << 32, 0},
	{GENAI_DT_U64, UINT64_DATA, -1, 1},
	{GENAI_DT_I64, INT64_DATA, INT64_MIN, 1},
	{GENAI_DT_I64, INT64_DATA, INT64_MAX, 1},
};

START_TEST(entry_range)
{
	struct ow g = one(ints(ranges[_i].dtype, 1, ranges[_i].field, 1,
			       ranges[_i].entry));
	static const uint8_t sizes[] = {
		[GENAI_DT_U8] = 1,   [GENAI_DT_I8] = 1,	 [GENAI_DT_U16] = 2,
		[GENAI_DT_I16] = 2,  [GENAI_DT_F16] = 2, [GENAI_DT_BF16] = 2,
		[GENAI_DT_BOOL] = 1, [GENAI_DT_I32] = 4, [GENAI_DT_U4] = 1,
		[GENAI_DT_U32] = 4,  [GENAI_DT_U64] = 8, [GENAI_DT_I64] = 8};
	size_t n = sizes[ranges[_i].dtype];

	if (ranges[_i].ok)
		ck_assert_mem_eq(bytes_of(graph_ok(g), "w", n),
				 &ranges[_i].entry, n);
	else
		graph_fails(g, GENAI_E_FORMAT, "entry 0 is out of range for");
}
END_TEST

START_TEST(typed_in_blocks)
{
	struct ow t = ow_tensor1("w", GENAI_DT_I64, 4);
	static const int64_t want[4] = {1, 300, -1, 7};

	ow_bytes(&t, INT64_DATA, "\x01\xac\x02", 3);
	ow_int(&t, INT64_DATA, -1);
	ow_bytes(&t, INT64_DATA, "", 0);
	ow_bytes(&t, INT64_DATA, "\x07", 1);
	ck_assert_mem_eq(bytes_of(graph_ok(one(t)), "w", 32), want, 32);
	t = ow_tensor1("w", GENAI_DT_F64, 2);
	ow_bytes(&t, DOUBLE_DATA, "\0\0\0\0\0\0\xf0\x3f", 8);
	ow_varint(&t, DOUBLE_DATA << 3 | 1);
	ow_raw(&t, "\0\0\0\0\0\0\0\xc0", 8);
	ck_assert_mem_eq(bytes_of(graph_ok(one(t)), "w", 16),
			 "\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\0\xc0", 16);
	t = ow_tensor1("w", F32, 3);
	ow_bytes(&t, FLOAT_DATA, "\0\0\x80\x3f\0\0\0\x40", 8);
	ow_f32(&t, FLOAT_DATA, 3);
	ck_assert_mem_eq(bytes_of(graph_ok(one(t)), "w", 12),
			 "\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40", 12);
}
END_TEST

static const struct {
	int dtype;
	uint32_t field;
	const char *bytes;
	size_t n;
	const char *text;
} malformed[] = {
	{F32, FLOAT_DATA, "abc", 3, "float_data is malformed"},
	{GENAI_DT_F64, DOUBLE_DATA, "abcdefg", 7, "double_data is malformed"},
	{GENAI_DT_I64, INT64_DATA, "\x80", 1, "int64_data is malformed"},
	{GENAI_DT_I32, INT32_DATA, "\x01\x80", 2, "int32_data is malformed"},
	{GENAI_DT_I64, INT64_DATA,
	 "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11, "out of range"},
	{GENAI_DT_I64, INT64_DATA, "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",
	 10, "out of range"},
};

START_TEST(typed_malformed)
{
	struct ow t = ow_tensor1("w", malformed[_i].dtype, 1);

	ow_bytes(&t, malformed[_i].field, malformed[_i].bytes, malformed[_i].n);
	graph_fails(one(t), GENAI_E_FORMAT, malformed[_i].text);
}
END_TEST

START_TEST(typed_with_wrong_wire_type)
{
	struct ow t = ow_tensor1("w", F32, 1);

	ow_int(&t, FLOAT_DATA, 1);
	graph_fails(one(t), GENAI_E_FORMAT, "float_data is malformed");
}
END_TEST

START_TEST(data_in_wrong_field)
{
	struct ow t = ow_tensor1("w", GENAI_DT_I32, 1);

	ow_f32(&t, FLOAT_DATA, 1);
	graph_fails(one(t), GENAI_E_FORMAT, "INT32 data in float_data");
	graph_fails(one(ints(F32, 1, INT32_DATA, 1, I(1))), GENAI_E_FORMAT,
		    "FLOAT data in int32_data");
	graph_fails(one(ints(GENAI_DT_I32, 1, INT64_DATA, 1, I(1))),
		    GENAI_E_FORMAT, "INT32 data in int64_data");
	t = ow_tensor1("w", GENAI_DT_I32, 1);
	ow_str(&t, STRING_DATA, "a");
	graph_fails(one(t), GENAI_E_FORMAT, "INT32 data in string_data");
}
END_TEST

START_TEST(data_twice)
{
	struct ow t = raw(F32, 1, 4);

	ow_f32(&t, FLOAT_DATA, 1);
	graph_fails(one(t), GENAI_E_FORMAT, "both raw_data and float_data");
	t = ints(GENAI_DT_I32, 1, INT32_DATA, 1, I(1));
	ow_int(&t, INT64_DATA, 1);
	graph_fails(one(t), GENAI_E_FORMAT, "both int32_data and int64_data");
	t = raw(F32, 1, 4);
	ow_bytes(&t, RAW_DATA, "abcd", 4);
	graph_fails(one(t), GENAI_E_FORMAT, "raw_data appears twice");
}
END_TEST

START_TEST(segmented)
{
	struct ow t = raw(F32, 1, 4);

	ow_str(&t, 3, "");
	graph_fails(one(t), GENAI_E_UNSUPPORTED, "segmented data");
}
END_TEST

// Shapes.
static struct ow shaped(int dtype, int rank, const int64_t *dims)
{
	struct ow t = ow_tensor("w", dtype, rank, dims);

	ow_bytes(&t, RAW_DATA, "0123456789abcdef", 16);
	return one(t);
}

START_TEST(negative_dimension)
{
	static const int64_t dims[2] = {-1, 4};

	graph_fails(shaped(F32, 2, dims), GENAI_E_FORMAT,
		    "a dimension is negative");
}
END_TEST

START_TEST(element_count_overflows)
{
	static const int64_t wraps[2] = {INT64_C(4611686018427387904), 4};
	static const int64_t two[2] = {INT64_MAX, 2};
	static const int64_t big[2] = {INT64_C(1) << 40, 65};
	static const int64_t zero[3] = {INT64_C(1) << 40, INT64_C(1) << 40, 0};

	graph_fails(one(ow_tensor("w", GENAI_DT_I8, 2, wraps)), GENAI_E_FORMAT,
		    "element count overflows");
	graph_fails(one(ow_tensor("w", GENAI_DT_I8, 2, two)), GENAI_E_FORMAT,
		    "element count overflows");
	graph_fails(one(ow_tensor("w", GENAI_DT_I8, 2, big)), GENAI_E_FORMAT,
		    "element count overflows");
	graph_ok(one(ow_tensor("w", GENAI_DT_I8, 3, zero)));
}
END_TEST

START_TEST(rank_limit)
{
	int64_t dims[17];
	int i;

	for (i = 0; i < 17; i++)
		dims[i] = 1;
	dims[0] = 4;
	graph_ok(shaped(F32, 16, dims));
	graph_fails(shaped(F32, 17, dims), GENAI_E_LIMIT,
		    "rank 17, at most 16");
}
END_TEST

// Types not carried: load while unused, are named when read.
START_TEST(string_unused)
{
	struct ow t = ow_tensor1("note", GENAI_DT_STRING, 2);
	const struct genai_graph *g;

	ow_str(&t, STRING_DATA, "a");
	ow_str(&t, STRING_DATA, "");
	g = graph_ok(one(t));
	ck_assert_uint_eq(g->n_tensors, 0);
	ck_assert_uint_eq(g->n_values, 0);
}
END_TEST

START_TEST(odd_type_used)
{
	static const struct {
		int dtype;
		const char *name;
	} types[] = {{8, "STRING"}, {14, "COMPLEX64"}, {15, "COMPLEX128"}};
	struct ow g, t = ow_tensor1("w", types[_i].dtype, 2);
	char text[100];

	if (types[_i].dtype != 8)
		ow_bytes(&t, RAW_DATA, "ab", 2);
	g = one(t);
	ow_add_op(&g, "Identity", "w", "y");
	snprintf(text, sizeof(text),
		 "\"w\" is read, but %s tensors are not supported",
		 types[_i].name);
	graph_fails(g, GENAI_E_UNSUPPORTED, text);
}
END_TEST

START_TEST(string_as_output)
{
	struct ow g = one(ow_tensor1("w", GENAI_DT_STRING, 0));

	ow_add_output(&g, "w");
	graph_fails(g, GENAI_E_UNSUPPORTED, "STRING");
}
END_TEST

START_TEST(string_twice)
{
	struct ow g = one(ow_tensor1("w", GENAI_DT_STRING, 0));

	ow_add_init(&g, ow_tensor1("w", GENAI_DT_STRING, 0));
	graph_fails(g, GENAI_E_FORMAT, "\"w\" is defined twice");
	g = one(ow_tensor1("w", GENAI_DT_STRING, 0));
	ow_add_init(&g, raw(F32, 1, 4));
	graph_fails(g, GENAI_E_FORMAT, "\"w\" is defined twice");
	g = one(raw(F32, 1, 4));
	ow_add_init(&g, ow_tensor1("w", GENAI_DT_STRING, 0));
	graph_fails(g, GENAI_E_FORMAT, "\"w\" is defined twice");
	g = one(ow_tensor1("w", GENAI_DT_STRING, 0));
	ow_add_input(&g, "x");
	ow_add_op(&g, "Relu", "x", "w");
	graph_fails(g, GENAI_E_FORMAT, "\"w\" is defined twice");
}
END_TEST

START_TEST(string_in_raw_data)
{
	graph_fails(one(raw(GENAI_DT_STRING, 1, 3)), GENAI_E_FORMAT,
		    "STRING in raw_data");
}
END_TEST

START_TEST(string_external)
{
	struct ow t = ow_tensor1("w", GENAI_DT_STRING, 1);

	ow_external(&t, "w.bin", NULL, NULL);
	graph_fails(one(t), GENAI_E_FORMAT, "STRING in external data");
}
END_TEST

START_TEST(unknown_type)
{
	graph_fails(one(ow_tensor1("w", 0, 0)), GENAI_E_FORMAT,
		    "element type 0 is not known");
	graph_fails(one(ow_tensor1("w", 27, 0)), GENAI_E_FORMAT,
		    "element type 27 is not known");
	graph_fails(one(ow_tensor1("w", -1, 0)), GENAI_E_FORMAT,
		    "is not known");
}
END_TEST

START_TEST(sparse_initialiser)
{
	struct ow g = {NULL, 0, 0}, sparse = {NULL, 0, 0};

	ow_msg(&sparse, 1, raw(F32, 1, 4));
	ow_msg(&g, 15, sparse);
	graph_ok(g);
	memset(&g, 0, sizeof(g));
	memset(&sparse, 0, sizeof(sparse));
	ow_msg(&sparse, 1, raw(F32, 1, 4));
	ow_msg(&g, 15, sparse);
	ow_add_op(&g, "Identity", "w", "y");
	graph_fails(g, GENAI_E_UNSUPPORTED, "sparse tensors");
	memset(&g, 0, sizeof(g));
	ow_str(&g, 15, "");
	graph_fails(g, GENAI_E_FORMAT, "sparse initialiser 0");
}
END_TEST

// Tensor files.
static int32_t read_pb(const char *path, uint32_t *dtype, uint32_t *rank,
		       int64_t *dims, void **data, uint64_t *bytes, char *name)
{
	return genai_onnx_read_tensor(path, dtype, rank, dims, data, bytes,
				      name, 8, &bench.err);
}

START_TEST(tensor_file_of_the_onnx_package)
{
	static const float want[6] = {-2, -1, 0, 1, 2, 3};
	static const int64_t want_typed[3] = {-1, 0, INT64_C(1) << 40};
	int64_t dims[GENAI_MAX_RANK];
	uint32_t dtype, rank;
	uint64_t bytes;
	char name[8];
	void *data;

	ck_assert_int_eq(read_pb(GENAI_TESTDATA "/onnx/raw.pb", &dtype, &rank,
				 dims, &data, &bytes, name),
			 0);
	ck_assert_uint_eq(dtype, F32);
	ck_assert_uint_eq(rank, 2);
	ck_assert_int_eq(dims[0], 2);
	ck_assert_int_eq(dims[1], 3);
	ck_assert_int_eq(dims[2], 0);
	ck_assert_uint_eq(bytes, sizeof(want));
	ck_assert_mem_eq(data, want, sizeof(want));
	ck_assert_str_eq(name, "raw");
	free(data);
	ck_assert_int_eq(read_pb(GENAI_TESTDATA "/onnx/typed.pb", &dtype, &rank,
				 dims, &data, &bytes, name),
			 0);
	ck_assert_uint_eq(dtype, GENAI_DT_I64);
	ck_assert_uint_eq(bytes, sizeof(want_typed));
	ck_assert_mem_eq(data, want_typed, sizeof(want_typed));
	ck_assert_str_eq(name, "typed");
	free(data);
}
END_TEST

static int32_t read_ow(struct ow t, char *name)
{
	int64_t dims[GENAI_MAX_RANK];
	uint32_t dtype = 77, rank;
	uint64_t bytes;
	void *data;
	int32_t rc;

	bench_write("t.pb", t.data, t.n);
	ow_free(&t);
	rc = read_pb(bench_file("t.pb"), &dtype, &rank, dims, &data, &bytes,
		     name);
	if (!rc)
		free(data);
	else
		ck_assert_uint_eq(dtype, 77);
	return rc;
}

START_TEST(tensor_file_odd)
{
	static const int64_t none[17];
	struct ow t = {NULL, 0, 0};
	char name[8];

	ck_assert_int_eq(read_ow(ow_tensor("w", F32, 16, none), name), 0);
	ck_assert_int_eq(read_ow(ow_tensor("w", F32, 17, none), name),
			 GENAI_E_LIMIT);
	ck_assert_int_eq(read_ow(ow_tensor1("long name", F32, 0), name), 0);
	ck_assert_str_eq(name, "long na");
	ck_assert_int_eq(read_ow(ow_tensor1(NULL, F32, 0), name), 0);
	ck_assert_str_eq(name, "");
	ck_assert_int_eq(read_ow(raw(F32, 2, 4), name), GENAI_E_FORMAT);
	ck_assert_ptr_nonnull(strstr(bench.err.text, "t.pb: its shape needs"));
	ck_assert_int_eq(read_ow(raw(GENAI_DT_STRING, 1, 4), name),
			 GENAI_E_UNSUPPORTED);
	ck_assert_int_eq(read_ow(ow_tensor1(NULL, F32, -1), name),
			 GENAI_E_FORMAT);
	ck_assert_int_eq(
		read_ow(ints(GENAI_DT_U8, 1, INT32_DATA, 1, I(300)), name),
		GENAI_E_FORMAT);
	t = ow_tensor1("w", F32, 1);
	ow_external(&t, "w.bin", NULL, NULL);
	ck_assert_int_eq(read_ow(t, name), GENAI_E_UNSUPPORTED);
	memset(&t, 0, sizeof(t));
	ow_raw(&t, "\x0f", 1);
	ck_assert_int_eq(read_ow(t, name), GENAI_E_FORMAT);
	memset(&t, 0, sizeof(t));
	ck_assert_int_eq(read_ow(t, name), GENAI_E_FORMAT);
	ck_assert_ptr_nonnull(strstr(bench.err.text, "t.pb: is empty"));
}
END_TEST

START_TEST(tensor_file_missing)
{
	int64_t dims[GENAI_MAX_RANK];
	uint32_t dtype, rank;
	uint64_t bytes;
	char name[8];
	void *data;

	ck_assert_int_eq(read_pb(bench_file("no.pb"), &dtype, &rank, dims,
				 &data, &bytes, name),
			 GENAI_E_NOTFOUND);
	ck_assert_ptr_nonnull(strstr(bench.err.text, "no.pb"));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("onnx_tensor");
	TCase *t = tcase_create("tensor");

	tcase_add_checked_fixture(t, bench_setup, bench_teardown);
	tcase_set_timeout(t, 30);
#define T(name) tcase_add_test(t, name)
#define LOOP(name, n) tcase_add_loop_test(t, name, 0, (int)(n))
	T(raw_is_in_the_file);
	T(scalar_is_not_empty);
	T(empty_is_not_scalar);
	T(packed_dims);
	T(raw_of_wrong_length);
	T(long_name_keeps_the_reason);
	T(four_bit);
	T(half_in_int32_data);
	T(bfloat16_raw);
	T(float_raw_and_typed_are_equal);
	LOOP(entry_range, sizeof(ranges) / sizeof(ranges[0]));
	T(typed_in_blocks);
	LOOP(typed_malformed, sizeof(malformed) / sizeof(malformed[0]));
	T(typed_with_wrong_wire_type);
	T(data_in_wrong_field);
	T(data_twice);
	T(segmented);
	T(negative_dimension);
	T(element_count_overflows);
	T(rank_limit);
	T(string_unused);
	LOOP(odd_type_used, 3);
	T(string_as_output);
	T(string_twice);
	T(string_in_raw_data);
	T(string_external);
	T(unknown_type);
	T(sparse_initialiser);
	T(tensor_file_of_the_onnx_package);
	T(tensor_file_odd);
	T(tensor_file_missing);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
