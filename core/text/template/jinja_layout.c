// jinja_layout.c - text in columns and words: filters and methods of str.
#include "core/text/template/jinja.h"

#include <string.h>
#include <utf8proc.h>

#define MAX_WIDTH 1000000

static int width_of(struct jinja_run *r, const struct jinja_value *v,
		    int64_t none, int64_t *out)
{
	*out = none;
	if (v->type == JINJA_MISSING || jinja_integer(v, out)) {
		if (*out > MAX_WIDTH)
			return jinja_raise(r, "a width above %d", MAX_WIDTH);
		return 0;
	}
	return jinja_raise(r, "TypeError: an integer is required, not %s",
			   jinja_type_name(v->type));
}

// ---- columns ----

// how: -1 text to the left, 1 to the right, 0 in the middle
static int justify(struct jinja_run *r, struct jinja_str s, int64_t width,
		   struct jinja_str fill, int how, struct jinja_value *out)
{
	size_t n = jinja_text_length(s), mark = r->n_out, left, room = 0, i;
	int rc;

	if (width > (int64_t)n)
		room = (size_t)width - n;
	// as Python splits an odd rest
	left = how < 0	 ? 0
	       : how > 0 ? room
			 : room / 2 + (room & (size_t)width & 1);
	rc = jinja_charge(r, n / 64 + room);
	for (i = 0; !rc && i < left; i++)
		rc = jinja_emit(r, fill.p, fill.n);
	if (!rc)
		rc = jinja_emit(r, s.p, s.n);
	for (i = left; !rc && i < room; i++)
		rc = jinja_emit(r, fill.p, fill.n);
	return rc ? rc : jinja_capture(r, mark, out);
}

static int adjust(struct jinja_run *r, struct jinja_value self,
		  const struct jinja_value *a, int how, struct jinja_value *out)
{
	struct jinja_str fill = {" ", 1};
	int64_t width;
	int rc = width_of(r, &a[0], 0, &width);

	if (!rc && a[1].type != JINJA_MISSING) {
		if (a[1].type != JINJA_STR || jinja_text_length(a[1].s) != 1)
			return jinja_raise(r, "TypeError: the fill character "
					      "must be exactly one character");
		fill = a[1].s;
	}
	return rc ? rc : justify(r, self.s, width, fill, how, out);
}

JINJA_FN(str_ljust)
{
	return adjust(r, self, a, -1, out);
}

JINJA_FN(str_rjust)
{
	return adjust(r, self, a, 1, out);
}

JINJA_FN(str_center)
{
	return adjust(r, self, a, 0, out);
}

JINJA_FN(f_center)
{
	struct jinja_value s;
	int64_t width;
	int rc = jinja_to_str(r, &self, &s);

	if (!rc)
		rc = width_of(r, &a[0], 80, &width);
	return rc ? rc
		  : justify(r, s.s, width, (struct jinja_str){" ", 1}, 0, out);
}

JINJA_FN(str_zfill)
{
	struct jinja_str s = self.s;
	size_t mark = r->n_out;
	struct jinja_value digits;
	int64_t width;
	int rc = width_of(r, &a[0], 0, &width);

	if (!rc && s.n && (*s.p == '+' || *s.p == '-') && width > 0) {
		s.p++;
		s.n--;
		rc = justify(r, s, width - 1, (struct jinja_str){"0", 1}, 1,
			     &digits);
		if (!rc)
			rc = jinja_emit(r, s.p - 1, 1);
		if (!rc)
			rc = jinja_emit(r, digits.s.p, digits.s.n);
		return rc ? rc : jinja_capture(r, mark, out);
	}
	return rc ? rc
		  : justify(r, s, width, (struct jinja_str){"0", 1}, 1, out);
}

JINJA_FN(str_expandtabs)
{
	size_t mark = r->n_out, at = 0, from;
	int64_t size, column = 0, k;
	int rc = width_of(r, &a[0], 8, &size);

	while (!rc && at < self.s.n) {
		from = at;
		int32_t c = jinja_next(self.s.p, self.s.n, &at);

		if (c == '\t') {
			k = size > 0 ? size - column % size : 0;
			column += k;
			rc = jinja_charge(r, (size_t)k);
			for (; !rc && k > 0; k--)
				rc = jinja_emit(r, " ", 1);
			continue;
		}
		column = c == '\n' || c == '\r' ? 0 : column + 1;
		rc = jinja_emit(r, self.s.p + from, at - from);
	}
	return rc ? rc : jinja_capture(r, mark, out);
}

// ---- words ----

JINJA_FN(f_truncate)
{
	struct jinja_value s, end = jinja_text("...", 3);
	int64_t length, leeway, n, tail;
	size_t mark = r->n_out;
	struct jinja_str head;
	int rc = jinja_to_str(r, &self, &s);

	if (!rc)
		rc = width_of(r, &a[0], 255, &length);
	if (!rc && a[2].type != JINJA_MISSING)
		rc = jinja_to_str(r, &a[2], &end);
	if (!rc && a[3].type != JINJA_NONE)
		rc = width_of(r, &a[3], 5, &leeway);
	else
		leeway = 5;
	if (rc)
		return rc;
	n = (int64_t)jinja_text_length(s.s);
	tail = (int64_t)jinja_text_length(end.s);
	if (length < tail || leeway < 0)
		return jinja_raise(r,
				   "AssertionError: truncate: a length of "
				   "at least %lld, a leeway of at least 0",
				   (long long)tail);
	if (n <= length + leeway) {
		*out = s;
		return 0;
	}
	head = jinja_text_at(s.s, 0, (size_t)(length - tail));
	if (!jinja_true(&a[1]))
		for (n = (int64_t)head.n; n-- > 0;)
			if (head.p[n] == ' ') {
				head.n = (size_t)n;
				break;
			}
	rc = jinja_emit(r, head.p, head.n);
	if (!rc)
		rc = jinja_emit(r, end.s.p, end.s.n);
	return rc ? rc : jinja_capture(r, mark, out);
}

static bool of_word(int32_t c)
{
	utf8proc_category_t k = utf8proc_category(c);

	return c == '_' ||
	       (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
	       (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

JINJA_FN(f_wordcount)
{
	struct jinja_value s;
	bool in = false, was;
	size_t at = 0;
	int rc = jinja_to_str(r, &self, &s);

	*out = jinja_int(0);
	while (!rc && at < s.s.n) {
		was = in;
		in = of_word(jinja_next(s.s.p, s.s.n, &at));
		out->i += in && !was;
	}
	return rc ? rc : jinja_charge(r, at / 8);
}

// ---- case and kinds ----

static int each(struct jinja_run *r, struct jinja_str s, int32_t (*to)(int32_t),
		struct jinja_value *out)
{
	size_t mark = r->n_out, at = 0, from;
	char b[4];
	int rc = jinja_charge(r, s.n / 8);

	while (!rc && at < s.n) {
		from = at;
		int32_t c = jinja_next(s.p, s.n, &at);

		if (c < 0)
			rc = jinja_emit(r, s.p + from, at - from);
		else if (c == 0xdf)
			rc = jinja_emit(r, to(c) == 's' ? "ss" : "SS", 2);
		else
			rc = jinja_emit(r, b, jinja_put(to(c), b));
	}
	return rc ? rc : jinja_capture(r, mark, out);
}

static int32_t swap(int32_t c)
{
	return utf8proc_isupper(c) ? utf8proc_tolower(c) : utf8proc_toupper(c);
}

static int32_t fold(int32_t c)
{
	// the sharp s alone becomes two
	return c == 0xdf ? 's' : utf8proc_tolower(c);
}

JINJA_FN(str_swapcase)
{
	return each(r, self.s, swap, out);
}

JINJA_FN(str_casefold)
{
	return each(r, self.s, fold, out);
}

// All characters pass, or there is none and none is needed.
static int all(struct jinja_run *r, struct jinja_str s, bool (*is)(int32_t),
	       bool empty, struct jinja_value *out)
{
	bool yes = s.n || empty;
	size_t at = 0;

	while (yes && at < s.n)
		yes = is(jinja_next(s.p, s.n, &at));
	*out = jinja_bool(yes);
	return jinja_charge(r, at / 8);
}

static bool ascii(int32_t c)
{
	return c >= 0 && c < 128;
}

static bool decimal(int32_t c)
{
	return utf8proc_category(c) == UTF8PROC_CATEGORY_ND;
}

static bool numeric(int32_t c)
{
	utf8proc_category_t k = utf8proc_category(c);

	return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

JINJA_FN(str_isascii)
{
	return all(r, self.s, ascii, true, out);
}

JINJA_FN(str_isdecimal)
{
	return all(r, self.s, decimal, false, out);
}

JINJA_FN(str_isnumeric)
{
	return all(r, self.s, numeric, false, out);
}

JINJA_FN(str_isprintable)
{
	return all(r, self.s, jinja_printable, true, out);
}

static int cased(struct jinja_run *r, struct jinja_value self, const char *test,
		 struct jinja_value *out)
{
	const struct jinja_args none = {0};

	return jinja_invoke(
		r, jinja_find_test((struct jinja_str){test, strlen(test)}),
		"test", self, &none, out);
}

JINJA_FN(str_isupper)
{
	return cased(r, self, "upper", out);
}

JINJA_FN(str_islower)
{
	return cased(r, self, "lower", out);
}

JINJA_FN(str_istitle)
{
	bool yes = true, any = false, before = false, up, low;
	size_t at = 0;

	while (yes && at < self.s.n) {
		int32_t c = jinja_next(self.s.p, self.s.n, &at);

		up = utf8proc_category(c) == UTF8PROC_CATEGORY_LU ||
		     utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
		low = utf8proc_islower(c);
		yes = up ? !before : !low || before;
		any |= up || low;
		before = up || low;
	}
	*out = jinja_bool(yes && any);
	return jinja_charge(r, at / 8);
}

const struct jinja_builtin jinja_layout_methods[] = {
	{"ljust", str_ljust, "width fillchar", 1},
	{"rjust", str_rjust, "width fillchar", 1},
	{"center", str_center, "width fillchar", 1},
	{"zfill", str_zfill, "width", 1},
	{"expandtabs", str_expandtabs, "tabsize", 0},
	{"swapcase", str_swapcase, "", 0},
	{"casefold", str_casefold, "", 0},
	{"isascii", str_isascii, "", 0},
	{"isdecimal", str_isdecimal, "", 0},
	{"isnumeric", str_isnumeric, "", 0},
	{"isprintable", str_isprintable, "", 0},
	{"isupper", str_isupper, "", 0},
	{"islower", str_islower, "", 0},
	{"istitle", str_istitle, "", 0},
	{NULL, NULL, NULL, 0},
};

const struct jinja_builtin jinja_layout_filters[] = {
	{"center", f_center, "width", 0},
	{"truncate", f_truncate, "length killwords end leeway", 0},
	{"wordcount", f_wordcount, "", 0},
	{NULL, NULL, NULL, 0},
};
