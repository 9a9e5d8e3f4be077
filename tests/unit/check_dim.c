// check_dim.c - what a model thinks is dimmed, wherever its text is cut.
#include <string.h>

#include "tests/unit/harness.h"
#include "tools/dim.h"

static char got[400];

static void put(void *ctx, const char *text, size_t n)
{
	(void)ctx;
	strncat(got, text, n);
}

static void shown(enum dim_how how, bool inside, const char *text,
		  const char *want)
{
	// pieces of each size; characters of several bytes stay whole in them
	for (size_t size = 1; size <= strlen(text) + 1; size++) {
		struct dim d = {.how = how, .put = put};

		got[0] = 0;
		dim_begin(&d, inside);
		for (const char *p = text; *p;) {
			size_t k = strlen(p) < size ? strlen(p) : size;

			dim_text(&d, p, k);
			p += k;
		}
		dim_end(&d);
		ck_assert_str_eq(got, want);
	}
}

static void becomes(const char *text, const char *want)
{
	shown(DIM_DIMMED, false, text, want);
}

START_TEST(marks)
{
	becomes("", "");
	becomes("Gr\303\274\303\237e", "Gr\303\274\303\237e");
	becomes("a<b<think", "a<b<think");
	becomes("<think>x</think>y", "\033[2m<think>x</think>\033[22my");
	becomes("a<<think>x<</think>y<",
		"a<\033[2m<think>x<</think>\033[22my<");
	becomes("<think>a<think>b", "\033[2m<think>a<think>b\033[22m");
	becomes("<\303\274<t\303\237", "<\303\274<t\303\237");
	becomes("</think>a", "</think>a");
	becomes("<think></thin</think><think>b</think>",
		"\033[2m<think></thin</think>\033[22m\033[2m<think>b</think>"
		"\033[22m");
}
END_TEST

START_TEST(prompted)
{
	shown(DIM_DIMMED, true, "a</think>b", "\033[2ma</think>\033[22mb");
	shown(DIM_DIMMED, true, "a", "\033[2ma\033[22m");
	shown(DIM_PLAIN, true, "a</think>b", "a</think>b");
	shown(DIM_HIDDEN, true, "a</think>\n\nb\n", "b\n");
}
END_TEST

START_TEST(hidden)
{
	shown(DIM_PLAIN, false, "a<think>b</think>\nc", "a<think>b</think>\nc");
	shown(DIM_HIDDEN, false, "<think>a</thin\n</think>\n\nb", "b");
	shown(DIM_HIDDEN, false, "a\n<think>b</think>\n\n<", "a\n<");
	shown(DIM_HIDDEN, false, "<think></think>\n<think>b", "");
	shown(DIM_HIDDEN, false, "a<b", "a<b");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("dim");
	TCase *t = tcase_create("dim");

	tcase_add_test(t, marks);
	tcase_add_test(t, prompted);
	tcase_add_test(t, hidden);
	suite_add_tcase(s, t);
	return genai_check_main(s);
}
