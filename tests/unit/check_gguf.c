// check_gguf.c - reading GGUF: blocks against recorded values, and files that
// are not what they should be.  With --golden DIR: all of DIR/golden.json.
#include "core/gguf/blocks.h"
#include "core/gguf/gguf.h"
#include "core/base/half.h"
#include "tests/unit/gguf_build.h"
#include "tests/unit/harness.h"

#include <jansson.h>
#include <unistd.h>

static char path[64];

static void setup(void)
{
	snprintf(path, sizeof(path), "check_gguf.%ld.gguf", (long)getpid());
}

static void teardown(void)
{
	unlink(path);
}

// --- blocks

static const struct genai_gguf_type *type_named(const char *name)
{
	const struct genai_gguf_type *t;

	for (uint32_t id = 0; id < 256; id++) {
		t = genai_gguf_type(id);
		if (t && !strcmp(t->name, name))
			return t;
	}
	return NULL;
}

static size_t from_hex(const char *hex, uint8_t *out, size_t cap)
{
	size_t n = strlen(hex) / 2;

	for (size_t i = 0; i < n && i < cap; i++) {
		unsigned v = 0;

		if (sscanf(hex + 2 * i, "%2x", &v) != 1)
			return 0;
		out[i] = (uint8_t)v;
	}
	return n;
}

// Do the bytes stand for exactly these values?
static bool same_values(const struct genai_gguf_type *t, json_t *hex,
			json_t *values)
{
	uint8_t data[4096];
	float got[4096];
	size_t n = from_hex(json_string_value(hex), data, sizeof(data));
	size_t count = json_array_size(values);

	if (!n || n > sizeof(data) || n % t->bytes ||
	    n / t->bytes * t->values != count || count > 4096)
		return false;
	genai_gguf_values(t, data, n / t->bytes, got);
	for (size_t i = 0; i < count; i++) {
		float want =
			(float)json_number_value(json_array_get(values, i));

		if (genai_float_bits(got[i]) != genai_float_bits(want))
			return false;
	}
	return true;
}

static void golden(const char *file, int count[3])
{
	json_t *root = json_load_file(file, 0, NULL), *type, *c, *enc;
	const char *name;
	size_t i;

	count[0] = count[1] = count[2] = 0;
	json_object_foreach(json_object_get(root, "types"), name, type)
	{
		const struct genai_gguf_type *t = type_named(name);

		json_array_foreach(json_object_get(type, "cases"), i, c)
		{
			bool ok =
				t && same_values(t, json_object_get(c, "hex"),
						 json_object_get(c, "values"));

			count[t ? !ok : 2]++;
			if (t && !ok)
				printf("%s: %s differs\n", name,
				       json_string_value(
					       json_object_get(c, "source")));
		}
		enc = json_object_get(type, "encoded");
		if (t && json_is_object(enc))
			count[!same_values(t, json_object_get(enc, "hex"),
					   json_object_get(enc, "decoded"))]++;
	}
	json_decref(root);
}

START_TEST(recorded_blocks)
{
	int count[3];

	golden(GENAI_TESTDATA "/gguf/golden.json", count);
	ck_assert_int_eq(count[0], 50);
	ck_assert_int_eq(count[1], 0);
	ck_assert_int_eq(count[2], 0);
}
END_TEST

START_TEST(halves_round_to_nearest_even)
{
	// every half survives the way to float32 and back
	for (uint32_t h = 0; h < 65536; h++) {
		float f = genai_float_from_half((uint16_t)h);
		uint16_t want = (uint16_t)h;

		if ((h & 0x7c00) == 0x7c00 && h & 0x3ff)
			want |= 0x200; // quiet NaN
		ck_assert_uint_eq(genai_half_from_float(f), want);
	}
	ck_assert_uint_eq(genai_half_from_float(65519.996f), 0x7bff);
	ck_assert_uint_eq(genai_half_from_float(65520.0f), 0x7c00);
	ck_assert_uint_eq(genai_half_from_float(-1e30f), 0xfc00);
	ck_assert_uint_eq(genai_half_from_float(0x1p-25f), 0);
	ck_assert_uint_eq(genai_half_from_float(0x1.8p-24f), 2);
	ck_assert_uint_eq(genai_half_from_float(0x1.002p0f), 0x3c00);
	ck_assert_uint_eq(genai_half_from_float(0x1.006p0f), 0x3c02);
	ck_assert_uint_eq(genai_half_from_float(0x1.ffep-15f), 0x0400);
}
END_TEST

// --- good files

static void small(struct gguf_build *g)
{
	static const float values[4] = {1, -2, 3, 0.5f};

	kv_str(g, "general.architecture", "llama");
	kv_u32(g, "a.u32", 7);
	kv(g, "a.i8", 1);
	put_le(&g->kvs, 0xff, 1);
	kv_f32(g, "a.f32", 0.25f);
	kv_bool(g, "a.bool", 1);
	kv_array(g, "a.strings", 8, 3);
	put_str(&g->kvs, "x");
	put_str(&g->kvs, "");
	put_str(&g->kvs, "yz");
	kv_array(g, "a.ints", 5, 2);
	put_u32(&g->kvs, 5);
	put_u32(&g->kvs, 6);
	tensor(g, "one", 4, 0, 0, values, sizeof(values));
	tensor(g, "two", 2, 2, 0, values, sizeof(values));
}

static int32_t open_bytes(const struct bytes *b, struct genai_gguf **out,
			  struct genai_error *err)
{
	write_file(path, b->data, b->n);
	return genai_gguf_open(path, out, err);
}

static int32_t open_build(struct gguf_build *g, struct genai_gguf **out,
			  struct genai_error *err)
{
	struct bytes b = {0};
	int32_t rc;

	gguf_join(g, &b);
	rc = open_bytes(&b, out, err);
	free(b.data);
	gguf_free(g);
	return rc;
}

START_TEST(reads_what_is_there)
{
	struct gguf_build b = {0};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_gguf *g = NULL;
	const struct genai_gguf_tensor *t;
	struct genai_gguf_string s, *list;
	uint64_t u = 0;
	double d = 0;

	small(&b);
	ck_assert_int_eq(open_build(&b, &g, &err), GENAI_OK);
	ck_assert(genai_gguf_uint(genai_gguf_find(g, "a.u32"), &u));
	ck_assert_uint_eq(u, 7);
	ck_assert(genai_gguf_uint(genai_gguf_find(g, "a.bool"), &u));
	ck_assert_uint_eq(u, 1);
	ck_assert(!genai_gguf_uint(genai_gguf_find(g, "a.i8"), &u)); // -1
	ck_assert(!genai_gguf_uint(genai_gguf_find(g, "a.f32"), &u));
	ck_assert(!genai_gguf_uint(genai_gguf_find(g, "a.ints"), &u));
	ck_assert(!genai_gguf_uint(genai_gguf_find(g, "none"), &u));
	ck_assert(genai_gguf_float(genai_gguf_find(g, "a.f32"), &d));
	ck_assert_double_eq(d, 0.25);
	ck_assert(
		genai_gguf_str(genai_gguf_find(g, "general.architecture"), &s));
	ck_assert_uint_eq(s.bytes, 5);
	ck_assert_int_eq(memcmp(s.data, "llama", 5), 0);
	list = genai_gguf_strings(genai_gguf_find(g, "a.strings"));
	ck_assert_ptr_nonnull(list);
	ck_assert_uint_eq(list[1].bytes, 0);
	ck_assert_int_eq(memcmp(list[2].data, "yz", 2), 0);
	free(list);
	ck_assert_ptr_null(genai_gguf_strings(genai_gguf_find(g, "a.ints")));
	ck_assert_uint_eq(genai_gguf_n_tensors(g), 2);
	t = genai_gguf_tensor_find(g, "two");
	ck_assert_ptr_eq(t, genai_gguf_tensor_at(g, 1));
	ck_assert_uint_eq(t->dims[1], 2);
	ck_assert_uint_eq(t->bytes, 16);
	ck_assert_uint_eq(t->data[7], 0xc0); // -2.0f
	ck_assert_ptr_null(genai_gguf_tensor_find(g, "three"));
	genai_gguf_close(g);
}
END_TEST

// --- bad files

START_TEST(every_truncation_is_an_error)
{
	struct gguf_build b = {0};
	struct bytes whole = {0}, part;

	small(&b);
	gguf_join(&b, &whole);
	for (size_t n = 0; n < whole.n; n++) {
		struct genai_error err = GENAI_ERROR_INIT;
		struct genai_gguf *g = NULL;

		// a copy of its own: reading past its end is seen
		part = (struct bytes){0};
		put(&part, whole.data, n);
		ck_assert_int_eq(open_bytes(&part, &g, &err), GENAI_E_FORMAT);
		ck_assert_ptr_null(g);
		ck_assert(strstr(err.text, path));
		free(part.data);
	}
	gguf_free(&b);
	free(whole.data);
}
END_TEST

START_TEST(every_flipped_bit_is_survived)
{
	struct gguf_build b = {0};
	struct bytes whole = {0};

	small(&b);
	gguf_join(&b, &whole);
	for (size_t bit = 0; bit < 8 * whole.n; bit++) {
		struct genai_error err = GENAI_ERROR_INIT;
		struct genai_gguf *g = NULL;
		int32_t rc;

		whole.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		rc = open_bytes(&whole, &g, &err);
		ck_assert_int_eq(rc == GENAI_OK, g != NULL);
		ck_assert_int_eq(rc == GENAI_OK, err.text[0] == 0);
		free(genai_gguf_strings(g ? genai_gguf_find(g, "a.strings")
					  : NULL));
		genai_gguf_close(g);
		whole.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	gguf_free(&b);
	free(whole.data);
}
END_TEST

// The file must be refused with this code and these words.
static void refused(struct gguf_build *b, int32_t code, const char *words)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_gguf *g = NULL;
	int32_t rc = open_build(b, &g, &err);

	ck_assert_msg(rc == code && !g && strstr(err.text, words),
		      "want %d '%s', got %d '%s'", code, words, rc, err.text);
}

static void refused_bytes(const void *data, size_t n, int32_t code,
			  const char *words)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_gguf *g = NULL;
	struct bytes b = {0};
	int32_t rc;

	put(&b, data, n);
	rc = open_bytes(&b, &g, &err);
	ck_assert_msg(rc == code && strstr(err.text, words),
		      "want %d '%s', got %d '%s'", code, words, rc, err.text);
	free(b.data);
}

START_TEST(refuses_headers)
{
	static const char lfs[] = "version https://git-lfs.github.com/spec/v1\n"
				  "oid sha256:00\nsize 1\n";
	struct {
		char magic[4];
		uint32_t version;
		uint64_t tensors, keys;
	} h = {{'G', 'G', 'U', 'F'}, 3, 0, 0};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_gguf *g;

	refused_bytes(lfs, sizeof(lfs) - 1, GENAI_E_FORMAT, "Git LFS pointer");
	refused_bytes("", 0, GENAI_E_FORMAT, "needs 24 bytes");
	h.version = 1;
	refused_bytes(&h, sizeof(h), GENAI_E_UNSUPPORTED, "version 1");
	h.version = 0x03000000;
	refused_bytes(&h, sizeof(h), GENAI_E_UNSUPPORTED, "big-endian");
	h.version = 3;
	h.magic[3] = 'X';
	refused_bytes(&h, sizeof(h), GENAI_E_FORMAT, "does not begin with");
	h.magic[3] = 'F';
	h.keys = UINT64_MAX;
	refused_bytes(&h, sizeof(h), GENAI_E_FORMAT, "more keys");
	h.keys = (uint64_t)1 << 61;
	refused_bytes(&h, sizeof(h), GENAI_E_FORMAT, "more keys");
	h.keys = 0;
	h.tensors = UINT64_MAX / 32;
	refused_bytes(&h, sizeof(h), GENAI_E_FORMAT, "more tensors");
	ck_assert_int_eq(genai_gguf_open("/no/such.gguf", &g, &err),
			 GENAI_E_NOTFOUND);
}
END_TEST

START_TEST(refuses_keys)
{
	struct gguf_build b = {0};

	kv_u32(&b, "twice", 1);
	kv_u32(&b, "twice", 2);
	refused(&b, GENAI_E_FORMAT, "two keys named 'twice'");
	kv_u32(&b, "", 1);
	refused(&b, GENAI_E_FORMAT, "empty");
	kv(&b, "odd", 13);
	put_u64(&b.kvs, 0);
	refused(&b, GENAI_E_FORMAT, "unknown value type in key 'odd'");
	kv_bool(&b, "flag", 2);
	refused(&b, GENAI_E_FORMAT, "boolean");
	kv_array(&b, "nested", 9, 1);
	put_u64(&b.kvs, 0);
	refused(&b, GENAI_E_FORMAT, "array of arrays in key 'nested'");
	kv_array(&b, "elems", 77, 1);
	put_u64(&b.kvs, 0);
	refused(&b, GENAI_E_FORMAT, "unknown element type in key 'elems'");
	kv_array(&b, "big", 10, UINT64_MAX / 8 + 2); // times 8: wraps to 8
	put_u64(&b.kvs, 0);
	put_u64(&b.kvs, 0);
	refused(&b, GENAI_E_FORMAT, "array needs");
	kv_array(&b, "strings", 8, UINT64_MAX);
	put_str(&b.kvs, "a");
	refused(&b, GENAI_E_FORMAT, "string in an array needs");
	kv(&b, "long", 8);
	put_u64(&b.kvs, UINT64_MAX - 3);
	refused(&b, GENAI_E_FORMAT, "string value needs");
	kv_str(&b, "split.count", "3");
	refused(&b, GENAI_E_FORMAT, "split.count is no number");
	kv_u32(&b, "split.count", 3);
	refused(&b, GENAI_E_FORMAT, "split.no and split.count");
	kv_u32(&b, "split.count", 3);
	kv_u32(&b, "split.no", 3);
	refused(&b, GENAI_E_FORMAT, "split.no and split.count");
	kv_u32(&b, "split.count", 3);
	kv_u32(&b, "split.no", 1);
	refused(&b, GENAI_E_FORMAT,
		"is part 2 of 3: its name must end in -00002-of-00003.gguf");
}
END_TEST

static void one_tensor(struct gguf_build *b, uint32_t rank, uint64_t d0,
		       uint64_t d1, uint32_t type, uint64_t offset)
{
	static const uint8_t data[128];
	uint64_t dims[5] = {d0, d1, 1, 1, 1};

	info(b, "t", rank, dims, type, offset);
	put(&b->data, data, sizeof(data));
}

START_TEST(refuses_tensors)
{
	struct gguf_build b = {0};
	uint64_t dims[1] = {8};

	one_tensor(&b, 0, 1, 1, 0, 0);
	refused(&b, GENAI_E_FORMAT, "not 1 to 4 dimensions: tensor 't'");
	one_tensor(&b, 5, 1, 1, 0, 0);
	refused(&b, GENAI_E_FORMAT, "not 1 to 4 dimensions");
	one_tensor(&b, 2, 0, 4, 0, 0);
	refused(&b, GENAI_E_FORMAT, "empty or oversized");
	one_tensor(&b, 2, INT64_MAX, 2, 0, 0);
	refused(&b, GENAI_E_FORMAT, "empty or oversized");
	one_tensor(&b, 2, (uint64_t)1 << 32, (uint64_t)1 << 32, 0, 0);
	refused(&b, GENAI_E_FORMAT, "empty or oversized");
	one_tensor(&b, 1, 33, 1, 2, 0);
	refused(&b, GENAI_E_FORMAT, "no multiple of the 32 values in a Q4_0");
	one_tensor(&b, 1, 8, 1, 16, 0); // IQ2_XXS
	refused(&b, GENAI_E_UNSUPPORTED, "type IQ2_XXS is not carried");
	one_tensor(&b, 1, 8, 1, 0, 31);
	refused(&b, GENAI_E_FORMAT, "not aligned");
	one_tensor(&b, 1, 33, 1, 0, 0); // 132 of 128 bytes
	refused(&b, GENAI_E_FORMAT, "truncated");
	one_tensor(&b, 1, 8, 1, 0, UINT64_MAX - 31);
	refused(&b, GENAI_E_FORMAT, "truncated");
	one_tensor(&b, 1, 8, 1, 0, 0);
	info(&b, "t", 1, dims, 0, 32);
	refused(&b, GENAI_E_FORMAT, "two tensors named 't'");
	one_tensor(&b, 1, 9, 1, 0, 0);
	info(&b, "u", 1, dims, 0, 32);
	refused(&b, GENAI_E_FORMAT, "tensors t and u overlap");
	info(&b,
	     "a name of sixty-five bytes, which is one more than may be, oh "
	     "no!",
	     1, dims, 0, 0);
	refused(&b, GENAI_E_FORMAT, "over 64 bytes");
}
END_TEST

START_TEST(refuses_alignment)
{
	static const uint32_t bad[] = {0, 3, 48, 1u << 31};
	struct gguf_build b = {0};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		kv_u32(&b, "general.alignment", bad[i]);
		one_tensor(&b, 1, 8, 1, 0, 0);
		refused(&b, GENAI_E_FORMAT, "general.alignment");
	}
	kv_str(&b, "general.alignment", "32");
	refused(&b, GENAI_E_FORMAT, "general.alignment");
}
END_TEST

// --- parts

static char parts[3][64];

// Three parts of a file of two tensors: the last has none.
static void write_parts(const struct gguf_build *whole)
{
	for (uint32_t i = 0; i < 3; i++) {
		struct gguf_build part;
		struct bytes b = {0};

		snprintf(parts[i], sizeof(parts[i]),
			 "check_gguf.%ld-%05u-of-00003.gguf", (long)getpid(),
			 i + 1);
		gguf_part(whole, i, 3, &part);
		gguf_join(&part, &b);
		write_file(parts[i], b.data, b.n);
		free(b.data);
		gguf_free(&part);
	}
}

static void setup_parts(void)
{
	struct gguf_build b = {0};

	small(&b);
	write_parts(&b);
	gguf_free(&b);
}

static void teardown_parts(void)
{
	for (int i = 0; i < 3; i++)
		unlink(parts[i]);
}

START_TEST(any_part_opens_all)
{
	struct genai_gguf *g;
	struct genai_error err = GENAI_ERROR_INIT;
	const struct genai_gguf_tensor *t;
	uint64_t u = 0;

	for (int i = 0; i < 3; i++) {
		ck_assert_msg(!genai_gguf_open(parts[i], &g, &err), "%s",
			      err.text);
		ck_assert_str_eq(genai_gguf_path(g), parts[0]);
		for (uint64_t k = 0; k < 3; k++)
			ck_assert_str_eq(genai_gguf_part_path(g, k), parts[k]);
		ck_assert_ptr_null(genai_gguf_part_path(g, 3));
		ck_assert_uint_eq(genai_gguf_n_tensors(g), 2);
		ck_assert(genai_gguf_uint(genai_gguf_find(g, "a.u32"), &u));
		ck_assert_uint_eq(u, 7);
		ck_assert_ptr_nonnull(genai_gguf_tensor_find(g, "one"));
		t = genai_gguf_tensor_find(g, "two");
		ck_assert_ptr_nonnull(t);
		ck_assert_uint_eq(t->data[7], 0xc0); // -2.0f
		ck_assert_int_eq(genai_gguf_check(g, &err), GENAI_OK);
		ck_assert_int_eq(truncate(parts[1], 8), 0);
		ck_assert_int_eq(genai_gguf_check(g, &err), GENAI_E_IO);
		ck_assert_ptr_nonnull(strstr(err.text, parts[1]));
		genai_gguf_close(g);
		setup_parts();
	}
}
END_TEST

static void refused_part(const char *given, int32_t code, const char *name,
			 const char *words)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_gguf *g;
	int32_t rc = genai_gguf_open(given, &g, &err);

	ck_assert_msg(rc == code && !strncmp(err.text, name, strlen(name)) &&
			      strstr(err.text, words),
		      "want %d '%s: %s', got %d '%s'", code, name, words, rc,
		      err.text);
	ck_assert_ptr_null(g);
}

START_TEST(parts_that_are_missing_or_foreign)
{
	struct gguf_build b = {0};
	char third[64];

	strcpy(third, parts[2]);
	for (int i = 0; i < 3; i++) {
		unlink(parts[i]);
		refused_part(parts[(i + 1) % 3], GENAI_E_NOTFOUND, parts[i],
			     "is missing");
		setup_parts();
	}
	// the third where the second should be, then a copy of the second
	ck_assert_int_eq(rename(parts[2], parts[1]), 0);
	refused_part(parts[0], GENAI_E_FORMAT, parts[1],
		     "does not say that it is part 2");
	setup_parts();
	ck_assert_int_eq(rename(parts[0], parts[2]), 0);
	refused_part(parts[2], GENAI_E_FORMAT, parts[2], "its name must end");
	setup_parts();
	// of a model with more tensors
	small(&b);
	one_tensor(&b, 1, 8, 1, 0, b.data.n);
	write_parts(&b);
	ck_assert_int_eq(rename(parts[2], path), 0);
	setup_parts();
	ck_assert_int_eq(rename(path, parts[2]), 0);
	refused_part(parts[0], GENAI_E_FORMAT, third,
		     "key split.tensors.count is not what it is in");
	gguf_free(&b);
}
END_TEST

START_TEST(parts_with_the_same_tensor_or_too_few)
{
	struct gguf_build b = {0}, part;
	struct bytes out = {0};

	small(&b);
	gguf_part(&b, 1, 3, &part); // the tensor "two", and now "one"
	info(&part, "one", 1, (uint64_t[]){4}, 0, 32);
	put(&part.data, (uint8_t[48]){0}, 48);
	gguf_join(&part, &out);
	write_file(parts[1], out.data, out.n);
	refused_part(parts[0], GENAI_E_FORMAT, parts[0],
		     "split.tensors.count is 2, the parts have 3");
	gguf_free(&part);
	out.n = 0;
	gguf_part(&b, 1, 3, &part);
	part.n_tensors = 0;
	part.infos.n = 0;
	info(&part, "one", 1, (uint64_t[]){4}, 0, 0);
	gguf_join(&part, &out);
	write_file(parts[1], out.data, out.n);
	refused_part(parts[2], GENAI_E_FORMAT, parts[0],
		     "tensor one is in two parts");
	gguf_free(&part);
	gguf_free(&b);
	free(out.data);
}
END_TEST

static int run_golden(const char *dir)
{
	char file[4096];
	int count[3];

	snprintf(file, sizeof(file), "%s/golden.json", dir);
	golden(file, count);
	printf("%d passed, %d failed, %d skipped\n", count[0], count[1],
	       count[2]);
	return count[1] || !count[0];
}

int main(int argc, char **argv)
{
	Suite *s;
	TCase *c;

	if (argc > 2 && !strcmp(argv[1], "--golden"))
		return run_golden(argv[2]);
	s = suite_create("gguf");
	c = tcase_create("gguf");
	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, recorded_blocks);
	tcase_add_test(c, halves_round_to_nearest_even);
	tcase_add_test(c, reads_what_is_there);
	tcase_add_test(c, every_truncation_is_an_error);
	tcase_add_test(c, every_flipped_bit_is_survived);
	tcase_add_test(c, refuses_headers);
	tcase_add_test(c, refuses_keys);
	tcase_add_test(c, refuses_tensors);
	tcase_add_test(c, refuses_alignment);
	suite_add_tcase(s, c);
	c = tcase_create("parts");
	tcase_set_timeout(c, 60);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_checked_fixture(c, setup_parts, teardown_parts);
	tcase_add_test(c, any_part_opens_all);
	tcase_add_test(c, parts_that_are_missing_or_foreign);
	tcase_add_test(c, parts_with_the_same_tensor_or_too_few);
	suite_add_tcase(s, c);
	return genai_check_main(s);
}
