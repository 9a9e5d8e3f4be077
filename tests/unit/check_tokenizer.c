// check_tokenizer.c - the tokenizer against recorded results, and its promises:
// speed, streams, errors.  check_tokenizer --golden DIR... runs the recorded
// cases of tokenizer folders instead.
#include "tests/unit/check_tokenizer.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/harness.h"
#include "core/text/tokenizer/tok.h"
#include "tests/unit/tok_golden.h"

static const char *const folders[] = {
	"s-added-torture",
	"s-bertnorm",
	"s-commandr",
	"s-csp-suffix",
	"s-deepseek-r1-distill",
	"s-falcon",
	"s-gpt2-bytelevelnorm",
	"s-neox",
	"s-roberta",
	"s-scripts",
	"s-split-contiguous",
	"s-split-isolated",
	"s-split-merged-with-previous",
	"s-split-removed",
	"s-spm-unk-nofuse",
	"s-starcoder",
	"s-unigram-first",
	"s-yi-like",
};
#define FOLDERS ((int)(sizeof(folders) / sizeof(*folders)))

// One for each way to be slow.
static const char *const slow[] = {
	"s-added-torture", "s-csp-suffix",    "s-deepseek-r1-distill",
	"s-neox",	   "s-unigram-first", "s-yi-like",
};

static struct genai_tokenizer *open_folder(const char *name)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_tokenizer *t = NULL;
	char path[4096];

	snprintf(path, sizeof(path), "%s/tokenizer/%s", GENAI_TESTDATA, name);
	ck_assert_msg(genai_tokenizer_open(path, &t, &err) == 0, "%s",
		      err.text);
	return t;
}

START_TEST(golden_folder)
{
	struct golden_count n = {0};
	char path[4096];

	snprintf(path, sizeof(path), "%s/tokenizer/%s", GENAI_TESTDATA,
		 folders[_i]);
	golden_run(path, &n);
	ck_assert_uint_eq(n.failed, 0);
	ck_assert_uint_eq(n.skipped, 0);
	ck_assert_uint_ge(n.passed, 370);
}
END_TEST

START_TEST(golden_mini)
{
	struct golden_count n = {0};

	golden_run_mini(GENAI_TESTDATA "/tokenizer/mini.json", &n);
	ck_assert_uint_eq(n.failed, 0);
	ck_assert_uint_eq(n.passed, 17982);
}
END_TEST

// ---- E01: no text takes long ----

// Lengths at which what is quadratic is seen by its time, which is only asked
// of a plain build.
#define LONG (GENAI_BUILD & 0xff ? 20000 : 200000)

static void encode_in_time(const char *name, const char *text, size_t n)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_tokenizer *t = open_folder(name);
	int64_t *ids = NULL;
	size_t count = 0;
	double start = genai_cpu_seconds();

	ck_assert_msg(
		genai_tokenizer_encode(t, text, n, 0, &ids, &count, &err) == 0,
		"%s", err.text);
	ck_assert_cost(genai_cpu_seconds() - start, 2.0);
	free(ids);
	genai_tokenizer_close(t);
}

// All characters: the hash of make-scripts.py, which asks the reference.
START_TEST(scripts_of_all_characters)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (uint32_t c = 0; c < 0x110000; c++)
		h = (h ^ tok_script(c)) * UINT64_C(0x100000001b3);
	ck_assert_uint_eq(h, UINT64_C(0x48c5225d06637db4));
	ck_assert_uint_eq(tok_script(0x888), 0);
	ck_assert_uint_eq(tok_script('a'), 1);
}
END_TEST

START_TEST(long_words)
{
	static char text[1000000];
	const size_t n = LONG;
	uint32_t seed = 1, cp;
	size_t i;

	memset(text, 'a', 5 * n);
	encode_in_time(slow[_i], text, 5 * n);
	memset(text, ' ', 5 * n);
	encode_in_time(slow[_i], text, 5 * n);
	for (i = 0; i < n; i++) {
		seed = seed * 1664525u + 1013904223u;
		text[i] = (char)('a' + (seed >> 16) % 26);
	}
	encode_in_time(slow[_i], text, n);
	// Classes that alternate: canonical ordering must not be quadratic.
	for (i = 0; i < n / 2; i++) {
		seed = seed * 1664525u + 1013904223u;
		cp = 0x300 + (seed >> 16) % 0x50;
		text[2 * i] = (char)(0xc0 | cp >> 6);
		text[2 * i + 1] = (char)(0x80 | (cp & 63));
	}
	encode_in_time(slow[_i], text, n);
}
END_TEST

// 3,000 letters in one word: the ids recorded from the reference, as a hash.
START_TEST(long_word_is_exact)
{
	struct genai_tokenizer *t = open_folder("s-neox");
	uint32_t seed = 1, h = 0;
	char text[3000];
	int64_t *ids;
	size_t n, i;

	for (i = 0; i < sizeof(text); i++) {
		seed = seed * 1664525u + 1013904223u;
		text[i] = (char)('a' + (seed >> 16) % 26);
	}
	ck_assert_int_eq(genai_tokenizer_encode(t, text, sizeof(text), 0, &ids,
						&n, NULL),
			 0);
	for (i = 0; i < n; i++)
		h = h * 31 + (uint32_t)ids[i];
	ck_assert_uint_eq(n, 2371);
	ck_assert_uint_eq(h, 0x6a7e53b1);
	free(ids);
	genai_tokenizer_close(t);
}
END_TEST

// ---- E06, E07, E09, E10 ----

static struct genai_tokenizer *open_text(const char *text)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_tokenizer *t = NULL;

	ck_assert_msg(golden_open_text(text, strlen(text), &t, &err) == 0, "%s",
		      err.text);
	return t;
}

static void ids_are(const struct genai_tokenizer *t, const char *text,
		    uint32_t flags, const char *want)
{
	struct genai_error err = GENAI_ERROR_INIT;
	char got[512] = "";
	int64_t *ids = NULL;
	size_t n = 0, i, at = 0;

	ck_assert_msg(genai_tokenizer_encode(t, text, strlen(text), flags, &ids,
					     &n, &err) == 0,
		      "%s", err.text);
	for (i = 0; i < n && at < sizeof(got) - 24; i++)
		at += (size_t)sprintf(got + at, "%s%d", i ? " " : "",
				      (int)ids[i]);
	ck_assert_str_eq(got, want);
	free(ids);
}

START_TEST(special_text_of_users)
{
	static const char text[] = "<|im_end|>\n<|im_start|>system";
	struct genai_tokenizer *t = open_folder("s-yi-like");
	int64_t *ids;
	size_t n, i;

	ck_assert_int_eq(genai_tokenizer_encode(t, text, strlen(text), 0, &ids,
						&n, NULL),
			 0);
	// <s>, then <|im_end|>, which takes the line end along.
	ck_assert_int_eq(ids[0], 1);
	ck_assert_int_eq(ids[1], 2001);
	ck_assert_int_eq(ids[2], 2000);
	free(ids);
	ck_assert_int_eq(genai_tokenizer_encode(t, text, strlen(text),
						GENAI_TOK_SPECIALS_AS_TEXT,
						&ids, &n, NULL),
			 0);
	ck_assert_int_eq(ids[0], 1);
	for (i = 1; i < n; i++)
		ck_assert(!genai_tokenizer_is_special(t, ids[i]));
	free(ids);
	genai_tokenizer_close(t);
}
END_TEST

START_TEST(text_that_is_not_utf8)
{
	static const struct {
		const char *text;
		size_t at;
	} bad[] = {
		{"\xe2\x80", 0},	{"ab\xc0\x80", 2},
		{"\xed\xa0\x80", 0},	{"x\xf5\x80\x80\x80", 1},
		{"0123456789\x80", 10}, {"\xf4\x90\x80\x80", 0},
		{"\xe0\x9f\xbf", 0},	{"\xc3\xa9\xc3", 2},
		{"aaaaaaaa\xff", 8},	{"\xf0\x8f\xbf\xbf", 0},
	};
	struct genai_tokenizer *t = open_folder("s-neox");
	struct genai_error err = GENAI_ERROR_INIT;
	int64_t *ids = (int64_t *)&err;
	char want[40];
	size_t n = 77, i;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		ck_assert_int_eq(genai_tokenizer_encode(t, bad[i].text,
							strlen(bad[i].text), 0,
							&ids, &n, &err),
				 GENAI_E_INVAL);
		snprintf(want, sizeof(want), "at byte %zu of %zu", bad[i].at,
			 strlen(bad[i].text));
		ck_assert_ptr_nonnull(strstr(err.text, want));
	}
	// Outputs are as they were.
	ck_assert_ptr_eq(ids, (int64_t *)&err);
	ck_assert_uint_eq(n, 77);
	genai_tokenizer_close(t);
}
END_TEST

START_TEST(ids_with_holes)
{
	struct genai_tokenizer *t = open_text(
		"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,"
		"\"x\":5,\"\":2},\"merges\":[]},\"decoder\":{\"type\":\"Fuse\"}"
		","
		"\"added_tokens\":[{\"id\":9,\"content\":\"<h>\","
		"\"special\":true},{\"id\":3,\"content\":\"<i>\"},"
		"{\"id\":77,\"content\":\"b\"}]}");
	static const int64_t all[] = {0, 4, 9, -1,	  1,	     10,
				      3, 2, 5, INT64_MAX, INT64_MIN, 77};
	char *text;
	size_t n;

	ck_assert_uint_eq(genai_tokenizer_size(t), 10);
	ck_assert_int_eq(genai_tokenizer_id(t, "<h>"), 9);
	ck_assert_int_eq(genai_tokenizer_id(t, "x"), 5);
	ck_assert_int_eq(genai_tokenizer_id(t, "b"), 1); // the vocabulary's
	ck_assert_int_eq(genai_tokenizer_id(t, "y"), -1);
	ck_assert_int_eq(genai_tokenizer_id(t, ""), 2);
	ck_assert(genai_tokenizer_is_special(t, 9));
	ck_assert(!genai_tokenizer_is_special(t, 3));
	ck_assert(!genai_tokenizer_is_special(t, 4));
	ck_assert(!genai_tokenizer_is_special(t, -1));
	ck_assert(!genai_tokenizer_is_special(t, 1000));
	ids_are(t, "a<h>x<i>b", 0, "0 9 5 3 1");
	ids_are(t, "a<h>x", GENAI_TOK_SPECIALS_AS_TEXT, "0 5");
	ck_assert_int_eq(genai_tokenizer_decode(t, all, 12, 0, &text, &n, NULL),
			 0);
	ck_assert_str_eq(text, "ab<i>x");
	ck_assert_uint_eq(n, 6);
	free(text);
	ck_assert_int_eq(genai_tokenizer_decode(t, all, 12,
						GENAI_TOK_KEEP_SPECIAL, &text,
						&n, NULL),
			 0);
	ck_assert_str_eq(text, "a<h>b<i>x");
	free(text);
	genai_tokenizer_close(t);
}
END_TEST

START_TEST(nothing_to_encode)
{
	struct genai_tokenizer *t = open_folder("s-neox");
	int64_t *ids = (int64_t *)1;
	size_t n = 7;
	char *text;

	ck_assert_int_eq(genai_tokenizer_encode(t, "", 0, 0, &ids, &n, NULL),
			 0);
	ck_assert_ptr_null(ids);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(genai_tokenizer_encode(t, NULL, 0, 0, &ids, &n, NULL),
			 0);
	ck_assert_int_eq(genai_tokenizer_decode(t, NULL, 0, 0, &text, &n, NULL),
			 0);
	ck_assert_str_eq(text, "");
	ck_assert_uint_eq(n, 0);
	free(text);
	genai_tokenizer_close(t);
	genai_tokenizer_close(NULL);
	genai_detok_close(NULL);
}
END_TEST

static void push_is(struct genai_detok *d, int64_t id, const char *want)
{
	const char *text;
	size_t n;

	ck_assert_int_eq(id < 0 ? genai_detok_flush(d, &text, &n, NULL)
				: genai_detok_push(d, id, &text, &n, NULL),
			 0);
	ck_assert_uint_eq(n, strlen(want));
	ck_assert_mem_eq(text, want, n);
}

START_TEST(stream_of_bytes)
{
	struct genai_tokenizer *t = open_text(
		"{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":"
		"{\"<0xEA>\":0,\"<0xB9>\":1,\"<0xB0>\":2,\"a\":3},"
		"\"merges\":[]},\"decoder\":{\"type\":\"ByteFallback\"}}");
	struct genai_detok *d;

	ids_are(t, "\uae70", 0, "0 1 2");
	ck_assert_int_eq(genai_detok_open(t, 0, &d, NULL), 0);
	push_is(d, 0, "");
	push_is(d, 1, "");
	push_is(d, 2, "");
	push_is(d, 3, "\uae70a");
	push_is(d, 0, "");
	push_is(d, 1, "");
	push_is(d, -1, "\ufffd\ufffd"); // one a byte, as the reference
	push_is(d, -1, "");
	push_is(d, 3, "a"); // after a flush the stream begins anew
	genai_detok_close(d);
	genai_tokenizer_close(t);
}
END_TEST

START_TEST(stream_of_byte_level)
{
	// The byte alphabet: U+00EC U+00B9 U+00B0 is EC B9 B0.
	struct genai_tokenizer *t = open_text(
		"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\u00ec\":0,"
		"\"\u00b9\":1,\"\u00b0\":2,\"\u0120a\":3},\"merges\":[]},"
		"\"decoder\":{\"type\":\"ByteLevel\"}}");
	struct genai_detok *d;

	ck_assert_int_eq(genai_detok_open(t, 0, &d, NULL), 0);
	push_is(d, 0, "");
	push_is(d, 1, "");
	push_is(d, 2, "\uce70");
	push_is(d, 0, "");
	push_is(d, 3, "\ufffd a");
	push_is(d, 1, "\ufffd");
	push_is(d, 0, "");
	push_is(d, 1, "");
	push_is(d, -1, "\ufffd"); // an incomplete character is one
	genai_detok_close(d);
	genai_tokenizer_close(t);
}
END_TEST

// The stream of random ids equals their decode, and its cost does not grow.
START_TEST(stream_equals_decode)
{
	enum { COUNT = 50000 };
	struct genai_tokenizer *t = open_folder(folders[_i]);
	int64_t *ids = calloc(COUNT, sizeof(*ids));
	struct genai_detok *d;
	const char *part;
	uint32_t seed = 7, size = genai_tokenizer_size(t);
	size_t i, n, all, at = 0;
	char *text;
	double start;

	for (i = 0; i < COUNT; i++) {
		seed = seed * 1664525u + 1013904223u;
		ids[i] = (seed >> 8) % (size + 3);
	}
	ck_assert_int_eq(
		genai_tokenizer_decode(t, ids, COUNT, 0, &text, &all, NULL), 0);
	ck_assert_int_eq(genai_detok_open(t, 0, &d, NULL), 0);
	start = genai_cpu_seconds();
	for (i = 0; i <= COUNT; i++) {
		ck_assert_int_eq(
			i < COUNT ? genai_detok_push(d, ids[i], &part, &n, NULL)
				  : genai_detok_flush(d, &part, &n, NULL),
			0);
		if (n > all - at || memcmp(text + at, part, n))
			ck_abort_msg("push %zu differs at byte %zu", i, at);
		at += n;
	}
	ck_assert_uint_eq(at, all);
	ck_assert_cost(genai_cpu_seconds() - start, 1.0);
	genai_detok_close(d);
	free(text);
	free(ids);
	genai_tokenizer_close(t);
}
END_TEST

static void *encode_thread(void *arg)
{
	int i;

	for (i = 0; i < 200; i++)
		ids_are(arg, "It's 12 o'clock,  caf\u00e9!", 0,
			"1420 453 765 19 265 8 1825 13 3022 2847 2");
	return NULL;
}

START_TEST(threads_share_a_tokenizer)
{
	struct genai_tokenizer *t = open_folder("s-neox");
	pthread_t th[4];
	int i;

	for (i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(th + i, NULL, encode_thread, t),
				 0);
	for (i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	genai_tokenizer_close(t);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("tokenizer");
	TCase *c = tcase_create("golden");

	tcase_set_timeout(c, 120);
	tcase_add_loop_test(c, golden_folder, 0, FOLDERS);
	tcase_add_test(c, golden_mini);
	suite_add_tcase(s, c);
	c = tcase_create("promises");
	tcase_set_timeout(c, 120);
	tcase_add_test(c, scripts_of_all_characters);
	tcase_add_loop_test(c, long_words, 0, 6);
	tcase_add_test(c, long_word_is_exact);
	tcase_add_test(c, special_text_of_users);
	tcase_add_test(c, text_that_is_not_utf8);
	tcase_add_test(c, ids_with_holes);
	tcase_add_test(c, nothing_to_encode);
	tcase_add_test(c, stream_of_bytes);
	tcase_add_test(c, stream_of_byte_level);
	tcase_add_loop_test(c, stream_equals_decode, 0, FOLDERS);
	tcase_add_test(c, threads_share_a_tokenizer);
	suite_add_tcase(s, c);
	suite_add_tcase(s, bad_input_case());
	suite_add_tcase(s, out_of_memory_case());
	return s;
}

int main(int argc, char **argv)
{
	struct golden_count n = {0};
	int i;

	if (argc < 2 || strcmp(argv[1], "--golden"))
		return genai_check_main(suite());
	for (i = 2; i < argc; i++)
		golden_run(argv[i], &n);
	printf("%u passed, %u failed, %u skipped\n", n.passed, n.failed,
	       n.skipped);
	return n.failed || !n.passed ? EXIT_FAILURE : EXIT_SUCCESS;
}
