// jinja_filter.c - "x|name(y)" for single values; jinja_sequence.c has those
// for sequences.
#include "core/text/template/jinja.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// "need" as in jinja_string.c, for filters that take text only
static int text_arg(struct jinja_run *r, const struct jinja_value *v,
		    const char *none, struct jinja_value *out)
{
	*out = jinja_text(none, strlen(none));
	return v->type == JINJA_MISSING ? 0 : jinja_to_str(r, v, out);
}

JINJA_FN(f_string)
{
	return jinja_to_str(r, &self, out);
}

JINJA_FN(f_safe)
{
	int rc = jinja_to_str(r, &self, out);

	out->markup = 1;
	return rc;
}

JINJA_FN(f_escape)
{
	struct jinja_value s;
	int rc = jinja_to_str(r, &self, &s);

	if (rc)
		return rc;
	*out = s;
	return s.markup ? 0 : jinja_text_escape(r, s.s, out);
}

JINJA_FN(f_default)
{
	*out = self;
	if (self.type == JINJA_UNDEF ||
	    (jinja_true(&a[1]) && !jinja_true(&self)))
		*out = a[0].type == JINJA_MISSING ? jinja_text("", 0) : a[0];
	return 0;
}

JINJA_FN(f_trim)
{
	struct jinja_value s;
	bool any = a[0].type == JINJA_MISSING || a[0].type == JINJA_NONE;
	int rc = jinja_to_str(r, &self, &s);

	if (!rc && !any && a[0].type != JINJA_STR)
		rc = jinja_raise(r, "TypeError: trim needs a string");
	if (!rc)
		rc = jinja_charge(r, s.s.n / 16 * (any ? 1 : 1 + a[0].s.n / 8));
	if (rc)
		return rc;
	*out = s;
	out->s = jinja_text_strip(s.s, any ? NULL : &a[0].s, 1, 1);
	return 0;
}

static int recase(struct jinja_run *r, const struct jinja_value *v, int how,
		  struct jinja_value *out)
{
	struct jinja_value s;
	int rc = jinja_to_str(r, v, &s);

	if (!rc)
		rc = jinja_text_case(r, s.s, how, out);
	if (!rc)
		out->markup = s.markup;
	return rc;
}

JINJA_FN(f_upper)
{
	return recase(r, &self, 'u', out);
}

JINJA_FN(f_lower)
{
	return recase(r, &self, 'l', out);
}

JINJA_FN(f_title)
{
	return recase(r, &self, 't', out);
}

JINJA_FN(f_capitalize)
{
	return recase(r, &self, 'c', out);
}

JINJA_FN(f_replace)
{
	struct jinja_value s, from, to;
	int64_t count = -1;
	int rc = jinja_to_str(r, &self, &s);

	if (!rc)
		rc = text_arg(r, &a[0], "", &from);
	if (!rc)
		rc = text_arg(r, &a[1], "", &to);
	if (!rc && a[2].type > JINJA_NONE && !jinja_integer(&a[2], &count))
		rc = jinja_raise(r, "TypeError: replace: count is no integer");
	return rc ? rc : jinja_text_replace(r, s.s, from.s, to.s, count, out);
}

static int spaces(struct jinja_run *r, const struct jinja_value *v, int64_t n,
		  struct jinja_value *out)
{
	struct jinja_value one = jinja_text(" ", 1);

	if (v->type == JINJA_STR) {
		*out = *v;
		return 0;
	}
	if (v->type != JINJA_MISSING && !jinja_integer(v, &n))
		return jinja_raise(r, "TypeError: indent needs an integer or a "
				      "string");
	return jinja_binary(r, JT_MUL, one, jinja_int(n), out);
}

JINJA_FN(f_indent)
{
	struct jinja_value s, width, lines;
	size_t i, mark = r->n_out;
	bool first = jinja_true(&a[1]), blank = jinja_true(&a[2]);
	int rc = jinja_to_str(r, &self, &s);

	if (!rc)
		rc = spaces(r, &a[0], 4, &width);
	// one newline more, so that an empty line at the end is a line
	if (!rc)
		rc = jinja_binary(r, JT_TILDE, s, jinja_text("\n", 1), &s);
	if (!rc)
		rc = jinja_text_lines(r, s.s, false, &lines);
	for (i = 0; !rc && i < lines.list->n; i++) {
		const struct jinja_value *l = &lines.list->v[i];

		if (i)
			rc = jinja_emit(r, "\n", 1);
		if (!rc && (i ? blank || l->s.n : first))
			rc = jinja_emit(r, width.s.p, width.s.n);
		if (!rc)
			rc = jinja_emit(r, l->s.p, l->s.n);
		if (!rc)
			rc = jinja_charge(r, 1);
	}
	return rc ? rc : jinja_capture(r, mark, out);
}

// json.dumps(x, ensure_ascii, indent, separators, sort_keys)
JINJA_FN(f_tojson)
{
	struct jinja_json_style st = {.ascii = jinja_true(&a[0]),
				      .comma = {", ", 2},
				      .colon = {": ", 2},
				      .sort = jinja_true(&a[3])};
	struct jinja_value indent;
	struct jinja_list sep;
	size_t mark = r->n_out;
	int rc = 0;

	if (a[1].type > JINJA_NONE) {
		rc = spaces(r, &a[1], 0, &indent);
		if (rc)
			return rc;
		st.indent = indent.s;
		st.comma.n = 1;
	}
	if (a[2].type > JINJA_NONE) {
		rc = jinja_items(r, &a[2], &sep);
		if (!rc && (sep.n != 2 || sep.v[0].type != JINJA_STR ||
			    sep.v[1].type != JINJA_STR))
			rc = jinja_raise(r, "TypeError: tojson: separators are "
					    "not two strings");
		if (rc)
			return rc;
		st.comma = sep.v[0].s;
		st.colon = sep.v[1].s;
	}
	rc = jinja_to_json(r, &self, &st);
	return rc ? rc : jinja_capture(r, mark, out);
}

// A number written in a string; what int() and float() take, without "_".
static bool parse_number(struct jinja_str s, int64_t base, bool real,
			 struct jinja_value *out)
{
	char b[64], *end;
	int64_t i;
	double f;

	s = jinja_text_strip(s, NULL, 1, 1);
	if (s.n && *s.p == '+' && s.n > 1 && s.p[1] != '-') {
		s.p++;
		s.n--;
	}
	if (!s.n || s.n >= sizeof(b) || memchr(s.p, 0, s.n) ||
	    jinja_is_space(*s.p))
		return false;
	memcpy(b, s.p, s.n);
	b[s.n] = 0;
	if (!real) {
		errno = 0;
		i = strtoll(b, &end, (int)base);
		if (errno || end == b || *end)
			return false;
		*out = jinja_int(i);
		return true;
	}
	if (!jinja_read_float(b, s.n, &f))
		return false;
	*out = jinja_float(f);
	return true;
}

JINJA_FN(f_int)
{
	struct jinja_value f;
	int64_t i, base = 10;

	if (self.type == JINJA_UNDEF)
		return jinja_undefined(r, &self);
	if (a[1].type != JINJA_MISSING &&
	    (!jinja_integer(&a[1], &base) || base < 2 || base > 36))
		return jinja_raise(r, "ValueError: int: base is not 2...36");
	*out = a[0].type == JINJA_MISSING ? jinja_int(0) : a[0];
	if (jinja_integer(&self, &i)) {
		*out = jinja_int(i);
	} else if (self.type == JINJA_FLOAT ||
		   (self.type == JINJA_STR &&
		    !parse_number(self.s, base, false, out) &&
		    parse_number(self.s, 10, true, &f))) {
		if (self.type == JINJA_FLOAT)
			f = self;
		if (fabs(f.f) < 0x1p63)
			*out = jinja_int((int64_t)f.f);
	}
	return 0;
}

JINJA_FN(f_float)
{
	double f;

	if (self.type == JINJA_UNDEF)
		return jinja_undefined(r, &self);
	*out = a[0].type == JINJA_MISSING ? jinja_float(0) : a[0];
	if (jinja_number(&self, &f))
		*out = jinja_float(f);
	else if (self.type == JINJA_STR)
		parse_number(self.s, 10, true, out);
	return 0;
}

JINJA_FN(f_abs)
{
	if (self.type == JINJA_FLOAT) {
		*out = jinja_float(fabs(self.f));
		return 0;
	}
	if (!jinja_integer(&self, &self.i))
		return jinja_raise(r, "TypeError: abs needs a number");
	self.type = JINJA_INT;
	if (self.i >= 0) {
		*out = self;
		return 0;
	}
	return jinja_binary(r, JT_SUB, jinja_int(0), self, out);
}

JINJA_FN(f_round)
{
	int64_t digits = 0;
	double f, scale, v;

	if (!jinja_number(&self, &f))
		return jinja_raise(r, "TypeError: round needs a number");
	if (a[0].type != JINJA_MISSING && !jinja_integer(&a[0], &digits))
		return jinja_raise(r, "TypeError: round: precision is no "
				      "integer");
	if (digits < -15 || digits > 15)
		return jinja_raise(r, "round: precision is not -15...15");
	scale = pow(10, (double)digits);
	v = f * scale;
	if (a[1].type == JINJA_MISSING ||
	    (a[1].type == JINJA_STR && jinja_same(a[1].s, "common")))
		v = nearbyint(v);
	else if (a[1].type == JINJA_STR && jinja_same(a[1].s, "ceil"))
		v = ceil(v);
	else if (a[1].type == JINJA_STR && jinja_same(a[1].s, "floor"))
		v = floor(v);
	else
		return jinja_raise(r, "round: method must be common, ceil or "
				      "floor");
	*out = jinja_float(v / scale);
	return 0;
}

// As repr, keys of dicts in order; what is longer than a line is broken there.
JINJA_FN(f_pprint)
{
	size_t mark = r->n_out;
	int rc = jinja_repr_sorted(r, &self);

	if (!rc && r->n_out - mark > 80)
		return jinja_raise(r, "pprint: more than one line of 80 bytes "
				      "is not supported");
	return rc ? rc : jinja_capture(r, mark, out);
}

static const struct jinja_builtin table[] = {
	{"pprint", f_pprint, "verbose", 0},
	{"string", f_string, "", 0},
	{"safe", f_safe, "", 0},
	{"escape", f_escape, "", 0},
	{"e", f_escape, "", 0},
	{"default", f_default, "default_value boolean", 0},
	{"d", f_default, "default_value boolean", 0},
	{"trim", f_trim, "chars", 0},
	{"upper", f_upper, "", 0},
	{"lower", f_lower, "", 0},
	{"title", f_title, "", 0},
	{"capitalize", f_capitalize, "", 0},
	{"replace", f_replace, "old new count", 2},
	{"indent", f_indent, "width first blank", 0},
	{"tojson", f_tojson, "ensure_ascii indent separators sort_keys", 0},
	{"int", f_int, "default base", 0},
	{"float", f_float, "default", 0},
	{"abs", f_abs, "", 0},
	{"round", f_round, "precision method", 0},
	{NULL, NULL, NULL, 0},
};

const struct jinja_builtin *jinja_find_filter(struct jinja_str name)
{
	static const struct jinja_builtin *const tables[] = {
		table,
		jinja_sequence_filters,
		jinja_group_filters,
		jinja_layout_filters,
		jinja_html_filters,
		jinja_format_filters,
	};
	const struct jinja_builtin *f = NULL;

	for (size_t i = 0; !f && i < sizeof(tables) / sizeof(*tables); i++)
		f = jinja_find(tables[i], name);
	return f;
}
