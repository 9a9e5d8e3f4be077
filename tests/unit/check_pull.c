// check_pull.c - hashes, names and choices of genai pull.
#include <stdlib.h>
#include <string.h>

#include "tests/unit/harness.h"
#include "tools/pull/choose.h"
#include "tools/pull/hash.h"

static void hash_is(int wide, const char *text, size_t times, const char *want)
{
	struct hash h;
	char is[HASH_HEX];

	hash_begin(&h, wide);
	for (size_t i = 0; i < times; i++)
		hash_add(&h, text, strlen(text));
	hash_end(&h, is);
	ck_assert_str_eq(is, want);
}

// The examples of FIPS 180-4.
START_TEST(hashes)
{
	hash_is(0, "abc", 1, "a9993e364706816aba3e25717850c26c9cd0d89d");
	hash_is(0, "", 1, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
	hash_is(0, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
		1, "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
	hash_is(0, "a", 1000000, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
	hash_is(1, "abc", 1,
		"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015"
		"ad");
	hash_is(1, "", 1,
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8"
		"55");
	hash_is(1, "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
		1,
		"248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06"
		"c1");
	hash_is(1, "a", 1000000,
		"cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112c"
		"d0");
	// pieces that do not fit blocks
	hash_is(1, "abcdefg", 20000,
		"5b300049b7b260cab1ee0afed174a609d7435d723639275bd601212ca13d5f"
		"3a");
}
END_TEST

START_TEST(names)
{
	static const char *const good[] = {"a", "a/b", ".gitattributes",
					   "a..b/c", "a b.json"};
	static const char *const bad[] = {"",	  "/a",	  "a/",	    "a//b",
					  "..",	  "../a", "a/../b", "./a",
					  "a\\b", "a\nb", "a/..",   "a/."};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		ck_assert_msg(hub_name_is_safe(good[i]), "%s", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!hub_name_is_safe(bad[i]), "%s", bad[i]);
}
END_TEST

// The files that are wanted, or the error.
static void chooses(const char *const *names, const char *what, const char *out,
		    const char *wanted)
{
	struct hub_file files[16];
	struct genai_error err = GENAI_ERROR_INIT;
	char got[400] = "", list[600] = "";
	size_t n = 0;
	int32_t rc;

	memset(files, 0, sizeof(files));
	for (; names[n]; n++)
		files[n].name = strdup(names[n]);
	rc = hub_choose(files, n, "o/n", what, got, sizeof(got), &err);
	for (size_t i = 0; i < n; i++) {
		if (files[i].wanted) {
			strcat(list, *list ? " " : "");
			strcat(list, files[i].name);
		}
		free(files[i].name);
	}
	if (!out) {
		ck_assert_int_ne(rc, 0);
		ck_assert_msg(strstr(err.text, wanted), "%s", err.text);
		return;
	}
	ck_assert_msg(!rc, "%s", err.text);
	ck_assert_str_eq(got, out);
	ck_assert_str_eq(list, wanted);
}

START_TEST(choices)
{
	static const char *const top[] = {"README.md", "genai_config.json",
					  "model.onnx", NULL};
	static const char *const two[] = {"README.md",
					  "cpu/int4/genai_config.json",
					  "cpu/int4/model.onnx",
					  "cuda/fp16/genai_config.json",
					  "cuda/fp16/model.onnx",
					  NULL};
	static const char *const ggufs[] = {
		"a-Q4_K_M.gguf",	   "a-Q8_0.gguf",
		"big-00001-of-00002.gguf", "big-00002-of-00002.gguf",
		"mmproj-a.gguf",	   NULL};
	static const char *const one[] = {"a.gguf", "mmproj-a-f16.gguf", NULL};
	static const char *const none[] = {"model.safetensors", NULL};

	chooses(top, NULL, "", "README.md genai_config.json model.onnx");
	chooses(two, "cpu", "cpu/int4",
		"cpu/int4/genai_config.json cpu/int4/model.onnx");
	chooses(two, "cuda/fp16", "cuda/fp16",
		"cuda/fp16/genai_config.json cuda/fp16/model.onnx");
	chooses(two, NULL, NULL, "cpu/int4/genai_config.json, cuda/fp16/");
	chooses(two, "int8", NULL, "no model there has int8");
	chooses(ggufs, "q8_0", "a-Q8_0.gguf", "a-Q8_0.gguf");
	chooses(ggufs, "big", "big-00001-of-00002.gguf",
		"big-00001-of-00002.gguf big-00002-of-00002.gguf");
	chooses(ggufs, NULL, NULL, "o/n:PART: a-Q4_K_M.gguf, a-Q8_0.gguf, big");
	chooses(one, NULL, "a.gguf", "a.gguf");
	chooses(none, NULL, NULL, "neither a folder with a genai_config.json");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pull");
	TCase *t = tcase_create("pull");

	tcase_add_test(t, hashes);
	tcase_add_test(t, names);
	tcase_add_test(t, choices);
	suite_add_tcase(s, t);
	return genai_check_main(s);
}
