// check_tok_faults.c - the tokenizer when memory runs out: each allocation of a
// load, an encode, a decode and a stream fails once, alone.
#include "tests/unit/check_tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdbool.h>
#include <unistd.h>
#include <genai/text.h>

#include "tests/unit/alloc_fail.h"

// Of mini.json: every stage and every way to allocate, the slow ones left out.
static const char *const names[] = {
	"merges as pair",
	"prefix and suffix",
	"some byte tokens",
	"added overlap",
	"added normalized",
	"normalizer NFC",
	"normalizer ByteLevel",
	"Prepend",
	"Precompiled",
	"BertNormalizer 15",
	"Punctuation Isolated",
	"ByteLevel True",
	"Metaspace first True",
	"pre {\"type\": \"UnicodeScripts\"}",
	"regex [a-c[x-z]]+",
	"WordPiece",
	"WordLevel",
	"Unigram True",
	"post template",
	"decoder llama",
	"decoder wordpiece",
	"decoder suffix then fuse",
	"decoder bytes then replace",
	"decoder metaspace always",
};
#define NAMES ((int)(sizeof(names) / sizeof(*names)))

static const char text[] = "ab <t> caf\u00e9 e\u0301\u0300 \u4f60FOO, x1 a  b";
static const int64_t ids[] = {1, 0, 5, 97, 0xea, 0xb9, 3, 260, 261, 2};
#define IDS (sizeof(ids) / sizeof(*ids))

// The tokenizer of that name as a file.
static void write_entry(const char *name, char *path)
{
	json_t *j = json_load_file(GENAI_TESTDATA "/tokenizer/mini.json",
				   JSON_ALLOW_NUL, NULL);
	json_t *e, *doc = NULL, *model;
	size_t i;
	int fd;

	json_array_foreach(json_object_get(j, "tokenizers"), i, e)
	{
		if (!strcmp(json_string_value(json_object_get(e, "name")),
			    name))
			doc = json_object_get(e, "tokenizer");
	}
	ck_assert_msg(doc != NULL, "mini.json has no %s", name);
	model = json_object_get(doc, "model");
	if (json_is_string(model))
		json_object_set(doc, "model",
				json_object_get(j, json_string_value(model)));
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(json_dumpfd(doc, fd, 0), 0);
	close(fd);
	json_decref(j);
}

// Fail the nth allocation of the next calls; false when there are fewer.
static bool failing(long n)
{
	static long last = -1;
	bool more = n == 0 || last != n - 1 || alloc_failed;

	last = n;
	alloc_failed = 0;
	alloc_left = more ? n : -1;
	return more;
}

static void open_faults(const char *path)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_tokenizer *t = NULL;
	int32_t rc;
	long n;

	for (n = 0; failing(n); n++) {
		rc = genai_tokenizer_open(path, &t, &err);
		alloc_left = -1;
		if (rc)
			ck_assert_msg(rc == GENAI_E_NOMEM && alloc_failed,
				      "allocation %ld: %s", n, err.text);
		else
			genai_tokenizer_close(t);
	}
	ck_assert_int_ge(n, 20);
}

static void encode_faults(const struct genai_tokenizer *t)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int64_t *want, *got;
	size_t n_want, n_got;
	int32_t rc;
	long n;

	ck_assert_int_eq(genai_tokenizer_encode(t, text, strlen(text), 0, &want,
						&n_want, &err),
			 0);
	for (n = 0; failing(n); n++) {
		rc = genai_tokenizer_encode(t, text, strlen(text), 0, &got,
					    &n_got, &err);
		alloc_left = -1;
		ck_assert(rc == 0 || rc == GENAI_E_NOMEM);
		if (rc)
			continue;
		ck_assert_uint_eq(n_got, n_want);
		ck_assert_mem_eq(got, want, n_want * sizeof(*want));
		free(got);
	}
	free(want);
}

static int32_t stream(const struct genai_tokenizer *t, size_t *bytes)
{
	struct genai_detok *d = NULL;
	const char *part;
	size_t i, n = 0;
	int32_t rc = genai_detok_open(t, 0, &d, NULL);

	*bytes = 0;
	for (i = 0; !rc && i < IDS; i++) {
		rc = genai_detok_push(d, ids[i], &part, &n, NULL);
		*bytes += n;
	}
	if (!rc)
		rc = genai_detok_flush(d, &part, &n, NULL);
	*bytes += n;
	alloc_left = -1;
	genai_detok_close(d);
	return rc;
}

static void decode_faults(const struct genai_tokenizer *t)
{
	size_t bytes, n_got, n_want;
	char *want, *got;
	int32_t rc;
	long n;

	ck_assert_int_eq(
		genai_tokenizer_decode(t, ids, IDS, 0, &want, &n_want, NULL),
		0);
	for (n = 0; failing(n); n++) {
		rc = genai_tokenizer_decode(t, ids, IDS, 0, &got, &n_got, NULL);
		alloc_left = -1;
		ck_assert(rc == 0 || rc == GENAI_E_NOMEM);
		if (rc)
			continue;
		ck_assert_str_eq(got, want);
		free(got);
	}
	free(want);
	for (n = 0; failing(n); n++) {
		rc = stream(t, &bytes);
		ck_assert(rc == 0 || rc == GENAI_E_NOMEM);
		if (!rc)
			ck_assert_uint_eq(bytes, n_want);
	}
}

START_TEST(out_of_memory)
{
	char path[] = "/tmp/genai-tok-XXXXXX";
	struct genai_tokenizer *t = NULL;

	write_entry(names[_i], path);
	json_set_alloc_funcs(__wrap_malloc, free);
	open_faults(path);
	ck_assert_int_eq(genai_tokenizer_open(path, &t, NULL), 0);
	encode_faults(t);
	decode_faults(t);
	genai_tokenizer_close(t);
	unlink(path);
}
END_TEST

TCase *out_of_memory_case(void)
{
	TCase *c = tcase_create("out of memory");

	tcase_set_timeout(c, 120);
	tcase_add_loop_test(c, out_of_memory, 0, NAMES);
	return c;
}
