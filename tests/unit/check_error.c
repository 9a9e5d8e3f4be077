// check_error.c - the error record.
#include <string.h>

#include "core/base/error.h"
#include "tests/unit/harness.h"

START_TEST(fills)
{
	struct genai_error err = GENAI_ERROR_INIT;

	strcpy(err.module, "old");
	ck_assert_int_eq(genai_fail(&err, GENAI_E_IO, "%s: %d", "a", 7),
			 GENAI_E_IO);
	ck_assert_int_eq(err.code, GENAI_E_IO);
	ck_assert_str_eq(err.text, "a: 7");
	ck_assert_str_eq(err.file, "check_error.c");
	ck_assert_str_eq(err.module, "");
	ck_assert_uint_eq(err.node, GENAI_NONE);
	ck_assert_uint_gt(err.line, 0);
	ck_assert_int_eq(genai_fail(NULL, GENAI_E_NOMEM, "x"), GENAI_E_NOMEM);
	genai_error_prefix(NULL, "x");
}
END_TEST

START_TEST(cuts)
{
	struct genai_error err = GENAI_ERROR_INIT;
	char text[600];
	size_t i;

	// 511 bytes fit, 512 are cut.
	memset(text, 'x', sizeof(text));
	text[511] = 0;
	genai_fail(&err, GENAI_E_IO, "%s", text);
	ck_assert_str_eq(err.text, text);
	text[511] = 'x';
	text[512] = 0;
	genai_fail(&err, GENAI_E_IO, "%s", text);
	ck_assert_uint_eq(strlen(err.text), 511);
	ck_assert_str_eq(err.text + 508, "...");
	ck_assert_int_eq(err.text[507], 'x');
	// never inside a character
	for (i = 0; i < 3; i++) {
		size_t k;

		memset(text, 'x', sizeof(text));
		for (k = i; k + 2 < 599; k += 2)
			memcpy(text + k, "\xc3\xa9", 2);
		text[599] = 0;
		genai_fail(&err, GENAI_E_IO, "%s", text);
		k = strlen(err.text) - 3;
		ck_assert_str_eq(err.text + k, "...");
		ck_assert_int_ne((unsigned char)err.text[k - 1], 0xc3);
	}
}
END_TEST

START_TEST(one_line)
{
	struct genai_error err = GENAI_ERROR_INIT;

	genai_fail(&err, GENAI_E_FORMAT, "a\nb\033[1m\x7f\xc3\xa9");
	ck_assert_str_eq(err.text, "a?b?[1m?\xc3\xa9");
}
END_TEST

START_TEST(prefixes)
{
	struct genai_error err = GENAI_ERROR_INIT;
	char text[600];

	genai_fail(&err, GENAI_E_FORMAT, "short read");
	genai_error_prefix(&err, "%s:%d", "f", 3);
	ck_assert_str_eq(err.text, "f:3: short read");
	ck_assert_int_eq(err.code, GENAI_E_FORMAT);
	memset(text, 'p', sizeof(text));
	text[599] = 0;
	genai_error_prefix(&err, "%s", text); // too long to help
	ck_assert_str_eq(err.text, "f:3: short read");
	text[480] = 0;
	genai_error_prefix(&err, "%s", text);
	ck_assert_uint_eq(strlen(err.text),
			  480 + 2 + strlen("f:3: short read"));
}
END_TEST

START_TEST(names)
{
	ck_assert_str_eq(genai_status_name(0), "GENAI_OK");
	ck_assert_str_eq(genai_status_name(GENAI_PENDING), "GENAI_PENDING");
	ck_assert_str_eq(genai_status_name(GENAI_E_INVAL), "GENAI_E_INVAL");
	ck_assert_str_eq(genai_status_name(GENAI_E_CONFIG), "GENAI_E_CONFIG");
	ck_assert_str_eq(genai_status_name(GENAI_E_ORDER), "GENAI_E_ORDER");
	ck_assert_str_eq(genai_status_name(GENAI_E_ORDER - 1), "GENAI_E_?");
	ck_assert_str_eq(genai_status_name(2), "GENAI_E_?");
	ck_assert_str_eq(genai_status_name(INT32_MIN), "GENAI_E_?");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("error");
	TCase *t = tcase_create("error");

	tcase_add_test(t, fills);
	tcase_add_test(t, cuts);
	tcase_add_test(t, one_line);
	tcase_add_test(t, prefixes);
	tcase_add_test(t, names);
	suite_add_tcase(s, t);
	return genai_check_main(s);
}
