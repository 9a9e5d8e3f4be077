// check_tok_bad.c - tokenizer files that must be refused, with the reason, and
// odd ones that must not.
#include "tests/unit/check_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/harness.h"
#include "tests/unit/tok_golden.h"

#define BPE "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"
#define WITH(more) BPE ",\"merges\":[]}," more "}"
#define MERGES(list) BPE ",\"merges\":[" list "]}}"
#define VOCAB(list)                                                            \
	"{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{" list "}}}"
#define ADDED(list) WITH("\"added_tokens\":[" list "]")
#define SPLIT(re)                                                              \
	WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":"   \
	     "\"" re "\"},\"behavior\":\"Isolated\",\"invert\":false}")
#define UNIGRAM(list)                                                          \
	"{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[" list "]}}"

static const struct {
	const char *text;
	int32_t code;
	const char *why; // part of the message
} bad[] = {
	// JSON that is none (B11); the place is named
	{"", GENAI_E_FORMAT, ":1:1: expected '{'"},
	{"[]", GENAI_E_FORMAT, ":1:1: expected '{'"},
	{"{", GENAI_E_FORMAT, ":1:2: expected '\"'"},
	{"{}x", GENAI_E_FORMAT, ":1:3: text after the end"},
	{"{\"a\":true.}", GENAI_E_FORMAT, ":1:"},
	{"{\"a\":1,}", GENAI_E_FORMAT, ":1:8: comma before"},
	{"{\"a\":NaN}", GENAI_E_FORMAT, ":1:"},
	{"{\"a\":1,\n\"a\":2}", GENAI_E_FORMAT, ":2:5: duplicate key"},
	{"{\"a\":{\"b\":1,\"b\":2}}", GENAI_E_FORMAT, "duplicate"},
	{"{\"a\":[1}", GENAI_E_FORMAT, ":1:8: expected ',' or ']'"},
	{"{\"a\":\"x", GENAI_E_FORMAT, "string without end"},
	{"{\"a\\u0000\":1}", GENAI_E_FORMAT, "NUL in a key"},
	{"{\"a\":\"\xff\"}", GENAI_E_FORMAT, ":1:7: not UTF-8"},
	{"{\"a\" 1}", GENAI_E_FORMAT, ":1:6: expected ':'"},
	{"{\"a\":}", GENAI_E_FORMAT, ":1:6: expected a value"},
	{"{}", GENAI_E_FORMAT, "no model"},
	{"{\"model\":null}", GENAI_E_FORMAT, "expected '{'"},
	{"{\"model\":{},\"model\":{}}", GENAI_E_FORMAT, "duplicate key"},
	{"{\"model\":{\"vocab\":{},\"vocab\":{}}}", GENAI_E_FORMAT,
	 "duplicate key"},
	// the vocabulary (E09)
	{"{\"model\":{\"type\":\"BPE\"}}", GENAI_E_FORMAT, "no vocab"},
	{BPE "}}", GENAI_E_FORMAT, "no merges"},
	{VOCAB("\"a\":0,\"b\":0"), GENAI_E_FORMAT, "two tokens have this id"},
	{VOCAB("\"a\":0,\"a\":1"), GENAI_E_FORMAT, "token is there twice"},
	{VOCAB("\"a\":-1"), GENAI_E_FORMAT, "not an id"},
	{VOCAB("\"a\":4194304"), GENAI_E_FORMAT, "not an id below 4194304"},
	{VOCAB("\"a\":99999999999999999999"), GENAI_E_FORMAT, "not an id"},
	{VOCAB("\"a\":01"), GENAI_E_FORMAT, "not an id"},
	{VOCAB("\"a\":1.5"), GENAI_E_FORMAT, "expected ',' or '}'"},
	{VOCAB("\"a\":\"0\""), GENAI_E_FORMAT, "not an id"},
	{VOCAB("\"a\":0,"), GENAI_E_FORMAT, "comma before"},
	{VOCAB("\"\\ud800\":0"), GENAI_E_FORMAT, "lone surrogate"},
	{VOCAB("\"\\ud800\\u0041\":0"), GENAI_E_FORMAT, "lone surrogate"},
	{VOCAB("\"\\udc00\":0"), GENAI_E_FORMAT, "lone surrogate"},
	{VOCAB("\"\\x\":0"), GENAI_E_FORMAT, "bad escape"},
	{VOCAB("\"\\u12g4\":0"), GENAI_E_FORMAT, "bad \\u escape"},
	{VOCAB("\"a\nb\":0"), GENAI_E_FORMAT, "control character"},
	{UNIGRAM("[\"a\",x]"), GENAI_E_FORMAT, "not a number"},
	{UNIGRAM("[\"a\",.5]"), GENAI_E_FORMAT, "not a number"},
	{UNIGRAM("[\"a\",1e999]"), GENAI_E_FORMAT, "out of range"},
	{UNIGRAM("[\"a\",1.]"), GENAI_E_FORMAT, "not a number"},
	{UNIGRAM("[\"a\",00]"), GENAI_E_FORMAT, "not a number"},
	{UNIGRAM("[\"a\"]"), GENAI_E_FORMAT, "expected ','"},
	{UNIGRAM(""), GENAI_E_FORMAT, "unk_id is outside"},
	{"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}", GENAI_E_FORMAT,
	 "no unk_token"},
	// merges (E02): never skipped, since ranks would shift
	{MERGES("\"a\""), GENAI_E_FORMAT, "merge is not of two parts"},
	{MERGES("\"a b c\""), GENAI_E_FORMAT, "merge is not of two parts"},
	{MERGES("[\"a\"]"), GENAI_E_FORMAT, "expected ','"},
	{MERGES("[\"a\",\"b\",\"c\"]"), GENAI_E_FORMAT, "expected ']'"},
	{MERGES("\"a c\""), GENAI_E_FORMAT, "part of merge is not in vocab"},
	{MERGES("\"b a\""), GENAI_E_FORMAT, "result of merge is not in vocab"},
	{MERGES("1"), GENAI_E_FORMAT, "expected '['"},
	// added tokens
	{ADDED("{\"id\":5}"), GENAI_E_FORMAT, "no id or no content"},
	{ADDED("{\"content\":\"x\"}"), GENAI_E_FORMAT, "no id or no content"},
	{ADDED("{\"id\":-1,\"content\":\"x\"}"), GENAI_E_FORMAT, "\"x\""},
	{ADDED("{\"id\":4194304,\"content\":\"x\"}"), GENAI_E_FORMAT, "\"x\""},
	{ADDED("{\"id\":5,\"content\":\"x\"},{\"id\":5,\"content\":\"y\"}"),
	 GENAI_E_FORMAT, "two added tokens have id 5"},
	{WITH("\"added_tokens\":{}"), GENAI_E_FORMAT, "not an array"},
	// pieces that are not carried, by name
	{"{\"model\":{\"type\":\"Nested\",\"vocab\":{}}}", GENAI_E_UNSUPPORTED,
	 "model Nested"},
	{WITH("\"normalizer\":{\"type\":\"Rot13\"}"), GENAI_E_UNSUPPORTED,
	 "normalizer Rot13"},
	{WITH("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":"
	      "[{\"type\":\"Magic\"}]}"),
	 GENAI_E_UNSUPPORTED, "pre_tokenizer Magic"},
	{WITH("\"post_processor\":{\"type\":\"Glue\"}"), GENAI_E_UNSUPPORTED,
	 "post_processor Glue"},
	{WITH("\"decoder\":{\"type\":\"CTC\"}"), GENAI_E_UNSUPPORTED,
	 "decoder CTC"},
	{WITH("\"normalizer\":{\"type\":\"Sequence\"}"), GENAI_E_FORMAT,
	 "no array \"normalizers\""},
	{BPE ",\"merges\":[],\"dropout\":0.1}}", GENAI_E_UNSUPPORTED,
	 "dropout"},
	{WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":"
	      "\"\"},\"behavior\":\"Isolated\"}"),
	 GENAI_E_FORMAT, "empty string"},
	{WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":"
	      "\"a\"},\"behavior\":\"Shred\"}"),
	 GENAI_E_UNSUPPORTED, "split behavior Shred"},
	{WITH("\"normalizer\":{\"type\":\"Precompiled\","
	      "\"precompiled_charsmap\":\"!\"}"),
	 GENAI_E_FORMAT, "not base64"},
	{WITH("\"normalizer\":{\"type\":\"Precompiled\","
	      "\"precompiled_charsmap\":\"/////wAA\"}"),
	 GENAI_E_FORMAT, "malformed"},
	{WITH("\"decoder\":{\"type\":\"Strip\",\"content\":\"ab\","
	      "\"start\":1,\"stop\":0}"),
	 GENAI_E_FORMAT, "\"content\" is not one character"},
	{WITH("\"post_processor\":{\"type\":\"TemplateProcessing\","
	      "\"single\":[],\"special_tokens\":{}}"),
	 GENAI_E_UNSUPPORTED, "without just one $A"},
	// regular expressions
	{SPLIT("("), GENAI_E_FORMAT, "regex:"},
	{SPLIT("["), GENAI_E_UNSUPPORTED, "class without ]"},
	{SPLIT("(*LIMIT_MATCH=1)a"), GENAI_E_UNSUPPORTED, "group"},
	{SPLIT("(?R)"), GENAI_E_UNSUPPORTED, "group"},
	{SPLIT("\\\\C"), GENAI_E_UNSUPPORTED, "escape"},
	{SPLIT("\\\\p{Klingon}"), GENAI_E_FORMAT, "regex:"},
	{SPLIT("[[[[[[[[[a]]]]]]]]]"), GENAI_E_UNSUPPORTED, "nesting"},
	{SPLIT("a{2,3}+"), GENAI_E_UNSUPPORTED, "repeated interval"},
};

START_TEST(bad_text)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_tokenizer *t = (struct genai_tokenizer *)&err;
	int32_t rc =
		golden_open_text(bad[_i].text, strlen(bad[_i].text), &t, &err);

	ck_assert_msg(rc == bad[_i].code && strstr(err.text, bad[_i].why),
		      "%s: got %d, %s", bad[_i].text, rc, err.text);
	ck_assert_int_eq(err.code, rc);
	ck_assert_ptr_eq(t, (struct genai_tokenizer *)&err);
}
END_TEST

static const char *const good[] = {
	// null is as good as absent (B10), and so are unknown keys (B08)
	WITH("\"normalizer\":null,\"pre_tokenizer\":null,\"decoder\":null,"
	     "\"post_processor\":null,\"added_tokens\":null"),
	WITH("\"new\":{\"x\":[1,2,{}]},\"truncation\":null"),
	"\xef\xbb\xbf" WITH("\"version\":\"1.0\""),
	MERGES("\"a b\""),
	MERGES("[\"a\",\"b\"]"),
	" \t\r\n" WITH("\"x\":0") " \n",
	VOCAB("\"\":3,\"<0x-1>\":0,\"<0xZZ>\":1,\"<0x100>\":2"),
	VOCAB(""),
	UNIGRAM("[\"a\",-0],[\"b\",-1.5e-3],[\"a\",12345678901234567890123]"),
	ADDED("{\"id\":3,\"content\":\"x\"},{\"id\":3,\"content\":\"x\"}"),
	ADDED("{\"id\":0,\"content\":\"over a\"}"),
	ADDED("{\"id\":4194303,\"content\":\"far\"}"),
};

START_TEST(good_text)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_tokenizer *t = NULL;
	int64_t *ids;
	size_t n;

	ck_assert_msg(golden_open_text(good[_i], strlen(good[_i]), &t, &err) ==
			      0,
		      "%s: %s", good[_i], err.text);
	ck_assert_int_eq(genai_tokenizer_encode(t, "ab", 2, 0, &ids, &n, &err),
			 0);
	free(ids);
	genai_tokenizer_close(t);
}
END_TEST

static int32_t open_made(const char *head, const char *part, size_t times,
			 const char *tail, struct genai_error *err)
{
	struct genai_tokenizer *t = NULL;
	size_t h = strlen(head), p = strlen(part), e = strlen(tail), i;
	char *text = malloc(h + p * times + e);
	int32_t rc;

	memcpy(text, head, h);
	for (i = 0; i < times; i++)
		memcpy(text + h + i * p, part, p);
	memcpy(text + h + p * times, tail, e);
	rc = golden_open_text(text, h + p * times + e, &t, err);
	genai_tokenizer_close(t);
	free(text);
	return rc;
}

START_TEST(limits)
{
	struct genai_error err = GENAI_ERROR_INIT;
	static const char head[] = "{\"model\":{\"type\":\"BPE\",\"merges\":[],"
				   "\"vocab\":{\"";

	// A token of 4,096 bytes, and of one more.
	ck_assert_int_eq(open_made(head, "x", 4096, "\":0}}}", &err), 0);
	ck_assert_int_eq(open_made(head, "x", 4097, "\":0}}}", &err),
			 GENAI_E_FORMAT);
	ck_assert_ptr_nonnull(strstr(err.text, "longer than 4096"));
	// 64 levels of nesting in a value, one more, and a million.
	ck_assert_int_eq(open_made("{\"a\":", "[", 64, "", &err),
			 GENAI_E_FORMAT);
	ck_assert_ptr_null(strstr(err.text, "deeper"));
	ck_assert_int_eq(open_made("{\"a\":", "[", 65, "", &err),
			 GENAI_E_FORMAT);
	ck_assert_ptr_nonnull(strstr(err.text, "nested deeper than 64"));
	ck_assert_int_eq(open_made("{\"a\":", "{\"a\":", 1000000, "", &err),
			 GENAI_E_FORMAT);
	ck_assert_ptr_nonnull(strstr(err.text, "nested deeper than 64"));
	ck_assert_int_eq(
		open_made("{\"model\":{\"vocab\":", "[", 1000000, "", &err),
		GENAI_E_FORMAT);
}
END_TEST

START_TEST(every_truncation)
{
	static const char whole[] = WITH(
		"\"normalizer\":{\"type\":\"NFC\"},\"added_tokens\":[{\"id\":4,"
		"\"content\":\"\\u00e9\"}],\"decoder\":{\"type\":\"Fuse\"}");
	struct genai_tokenizer *t;
	size_t n;

	for (n = 0; n < sizeof(whole) - 1; n++)
		ck_assert_int_eq(golden_open_text(whole, n, &t, NULL),
				 GENAI_E_FORMAT);
	ck_assert_int_eq(golden_open_text(whole, n, &t, NULL), 0);
	genai_tokenizer_close(t);
}
END_TEST

START_TEST(files)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_tokenizer *t;
	char dir[] = "/tmp/genai-tok-XXXXXX", path[64], gz[300];
	FILE *f;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(genai_tokenizer_open("/nonexistent/x", &t, &err),
			 GENAI_E_NOTFOUND);
	ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/x"));
	ck_assert_int_eq(genai_tokenizer_open(dir, &t, &err), GENAI_E_NOTFOUND);
	ck_assert_ptr_nonnull(strstr(err.text, "tokenizer.json"));
	// A fifo would block; it is no file.
	snprintf(path, sizeof(path), "%s/fifo", dir);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(genai_tokenizer_open(path, &t, &err), GENAI_E_IO);
	unlink(path);
	// The first 300 bytes of a compressed tokenizer.
	snprintf(path, sizeof(path), "%s/tokenizer.json.gz", dir);
	f = fopen(GENAI_TESTDATA "/tokenizer/s-roberta/tokenizer.json.gz",
		  "rb");
	ck_assert_uint_eq(fread(gz, 1, sizeof(gz), f), sizeof(gz));
	fclose(f);
	f = fopen(path, "wb");
	fwrite(gz, 1, sizeof(gz), f);
	fclose(f);
	ck_assert_int_eq(genai_tokenizer_open(dir, &t, &err), GENAI_E_FORMAT);
	ck_assert_ptr_nonnull(strstr(err.text, "gzip"));
	unlink(path);
	rmdir(dir);
}
END_TEST

// Errors that show only when a text is encoded.
START_TEST(bad_encode)
{
	static const char *const texts[] = {
		"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":"
		"[],\"unk_token\":\"?\"}}",
		"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0},"
		"\"unk_token\":\"?\"}}",
		"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},"
		"\"unk_token\":\"?\"}}",
		"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]]}}",
		"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],"
		"\"byte_fallback\":true}}",
	};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_tokenizer *t;
	int64_t *ids;
	size_t n;

	ck_assert_int_eq(
		golden_open_text(texts[_i], strlen(texts[_i]), &t, &err), 0);
	ck_assert_int_eq(genai_tokenizer_encode(t, "a", 1, 0, &ids, &n, &err),
			 0);
	ck_assert_uint_eq(n, 1);
	free(ids);
	ck_assert_int_eq(genai_tokenizer_encode(t, "b", 1, 0, &ids, &n, &err),
			 GENAI_E_FORMAT);
	ck_assert_ptr_nonnull(strstr(err.text, "unk"));
	genai_tokenizer_close(t);
}
END_TEST

// A file cannot make much of little: each step may multiply, and one
// replacement may be a megabyte.
START_TEST(growing_normalizer)
{
	static const char head[] = BPE ",\"merges\":[]},\"normalizer\":{"
				       "\"type\":\"Sequence\","
				       "\"normalizers\":[";
	static char content[1 << 20], a[4096];
	struct genai_error err = GENAI_ERROR_INIT;
	size_t n, cap = 2 * sizeof(content);
	char *text = malloc(cap);
	struct genai_tokenizer *t;
	double start;
	int64_t *ids;

	memset(a, 'a', sizeof(a));
	memset(content, 'a', _i ? sizeof(content) - 1 : 512);
	n = (size_t)snprintf(text, cap, "%s", head);
	for (int i = 0; i < (_i ? 1 : 4); i++)
		n += (size_t)snprintf(
			text + n, cap - n,
			"%s{\"type\":\"Replace\",\"pattern\":{\"String\":"
			"\"a\"},\"content\":\"%s\"}",
			i ? "," : "", content);
	n += (size_t)snprintf(text + n, cap - n, "]}}");
	ck_assert_msg(!golden_open_text(text, n, &t, &err), "%s", err.text);
	start = genai_cpu_seconds();
	ck_assert_int_eq(genai_tokenizer_encode(t, a, _i ? sizeof(a) : 1, 0,
						&ids, &n, &err),
			 GENAI_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(err.text, "normalized text is longer"));
	ck_assert_cost(genai_cpu_seconds() - start, 1.0);
	genai_tokenizer_close(t);
	free(text);
}
END_TEST

// Nor by its decoder; and a decoder of a million steps has none of our stack.
START_TEST(growing_decoder)
{
	static const char head[] = BPE ",\"merges\":[]},\"decoder\":{"
				       "\"type\":\"Sequence\","
				       "\"decoders\":[";
	struct genai_error err = GENAI_ERROR_INIT;
	int64_t id = 0;
	size_t n, cap = 1 << 18;
	char *text = malloc(cap), *out, content[65537];
	struct genai_tokenizer *t;
	double start;

	memset(content, 'a', sizeof(content) - 1);
	content[sizeof(content) - 1] = 0;
	n = (size_t)snprintf(text, cap, "%s", head);
	for (int i = 0; i < 2; i++)
		n += (size_t)snprintf(
			text + n, cap - n,
			"%s{\"type\":\"Replace\",\"pattern\":{\"String\":"
			"\"a\"},\"content\":\"%s\"}",
			i ? "," : "", content);
	n += (size_t)snprintf(text + n, cap - n, "]}}");
	ck_assert_msg(!golden_open_text(text, n, &t, &err), "%s", err.text);
	start = genai_cpu_seconds();
	ck_assert_int_eq(genai_tokenizer_decode(t, &id, 1, 0, &out, &n, &err),
			 GENAI_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(err.text, "text is longer than"));
	ck_assert_cost(genai_cpu_seconds() - start, 4.0);
	genai_tokenizer_close(t);
	free(text);
}
END_TEST

static const struct {
	const char *stage, *list, *step;
} stages[] = {
	{"normalizer", "normalizers", "{\"type\":\"NFC\"}"},
	{"pre_tokenizer", "pretokenizers", "{\"type\":\"Whitespace\"}"},
	{"decoder", "decoders", "{\"type\":\"Fuse\"}"},
};

START_TEST(many_steps)
{
	struct genai_error err = GENAI_ERROR_INIT;
	size_t n, cap = 64 << 20;
	char *text = malloc(cap), why[64];
	struct genai_tokenizer *t;
	static const int counts[] = {128, 129,
				     GENAI_BUILD & 0xff ? 20000 : 300000};

	for (int k = 0; k < 3; k++) {
		n = (size_t)snprintf(text, cap,
				     BPE ",\"merges\":[]},\"%s\":{\"type\":"
					 "\"Sequence\",\"%s\":[",
				     stages[_i].stage, stages[_i].list);
		for (int i = 0; i < counts[k]; i++)
			n += (size_t)snprintf(text + n, cap - n, "%s%s",
					      i ? "," : "", stages[_i].step);
		n += (size_t)snprintf(text + n, cap - n, "]}}");
		ck_assert_int_eq(golden_open_text(text, n, &t, &err),
				 k ? GENAI_E_LIMIT : 0);
		snprintf(why, sizeof(why), "%s: %d steps, at most 128",
			 stages[_i].stage, counts[k]);
		if (k)
			ck_assert_msg(strstr(err.text, why), "%s", err.text);
		else
			genai_tokenizer_close(t);
	}
	free(text);
}
END_TEST

// A pattern that backtracks without end is stopped.
START_TEST(runaway_regex)
{
	static const char text[] = SPLIT("(?:a+a+)+c");
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_tokenizer *t;
	int64_t *ids;
	char a[64];
	size_t n;

	memset(a, 'a', sizeof(a));
	memcpy(a + sizeof(a) - 2, "bc", 2);
	ck_assert_int_eq(golden_open_text(text, strlen(text), &t, &err), 0);
	ck_assert_int_eq(
		genai_tokenizer_encode(t, a, sizeof(a), 0, &ids, &n, &err),
		GENAI_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(err.text, "regex"));
	genai_tokenizer_close(t);
}
END_TEST

TCase *bad_input_case(void)
{
	TCase *c = tcase_create("bad input");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, bad_text, 0, sizeof(bad) / sizeof(*bad));
	tcase_add_loop_test(c, good_text, 0, sizeof(good) / sizeof(*good));
	tcase_add_test(c, limits);
	tcase_add_test(c, every_truncation);
	tcase_add_test(c, files);
	tcase_add_loop_test(c, bad_encode, 0, 5);
	tcase_add_loop_test(c, growing_normalizer, 0, 2);
	tcase_add_test(c, growing_decoder);
	tcase_add_loop_test(c, many_steps, 0, 3);
	tcase_add_test(c, runaway_regex);
	return c;
}
