// jinja_print.c - values as text: Python's str() and repr().
#include "core/text/template/jinja.h"

#include <langinfo.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

// repr(float): the shortest digits that read back equal.  Only digits are
// taken from the C library's text, whose decimal point is the locale's.
size_t jinja_float_text(double f, char text[40])
{
	char raw[48], d[24];
	int prec, n = 0, exp, i;
	char *p;

	if (isnan(f))
		return (size_t)sprintf(text, "nan");
	if (isinf(f))
		return (size_t)sprintf(text, "%sinf", f < 0 ? "-" : "");
	for (prec = 0; prec < 17; prec++) {
		snprintf(raw, sizeof(raw), "%.*e", prec, f);
		if (strtod(raw, NULL) == f)
			break;
	}
	p = strrchr(raw, 'e');
	exp = atoi(p + 1);
	for (*p = 0, p = raw; *p; p++)
		if (*p >= '0' && *p <= '9')
			d[n++] = *p;
	while (n > 1 && d[n - 1] == '0')
		n--;
	p = text;
	if (signbit(f))
		*p++ = '-';
	if (exp < -4 || exp >= 16) {
		*p++ = d[0];
		if (n > 1)
			p += sprintf(p, ".%.*s", n - 1, d + 1);
		p += sprintf(p, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
		return (size_t)(p - text);
	}
	if (exp < 0)
		p += sprintf(p, "0.%.*s", -exp - 1, "0000");
	for (i = 0; i < n || i <= exp; i++) {
		*p++ = i < n ? d[i] : '0';
		if (i == exp && i + 1 < n)
			*p++ = '.';
	}
	if (exp >= 0 && n <= exp + 1)
		p += sprintf(p, ".0");
	return (size_t)(p - text);
}

bool jinja_read_float(const char *p, size_t n, double *out_f)
{
	const char *point = nl_langinfo(RADIXCHAR);
	char b[160], *end;
	size_t i, k = 0;

	for (i = 0; i < n && k + strlen(point) + 1 < sizeof(b); i++) {
		if (!p[i] || !strchr("0123456789+-.eE", p[i]))
			return false;
		if (p[i] == '.')
			k += (size_t)sprintf(b + k, "%s", point);
		else
			b[k++] = p[i];
	}
	b[k] = 0;
	*out_f = strtod(b, &end);
	return i == n && n && !*end && isfinite(*out_f);
}

bool jinja_printable(int32_t c)
{
	switch (utf8proc_category(c)) {
	case UTF8PROC_CATEGORY_CN:
	case UTF8PROC_CATEGORY_CC:
	case UTF8PROC_CATEGORY_CF:
	case UTF8PROC_CATEGORY_CS:
	case UTF8PROC_CATEGORY_CO:
	case UTF8PROC_CATEGORY_ZL:
	case UTF8PROC_CATEGORY_ZP:
		return false;
	case UTF8PROC_CATEGORY_ZS:
		return c == ' ';
	default:
		return true;
	}
}

static int repr_str(struct jinja_run *r, struct jinja_str s)
{
	bool single = s.n && memchr(s.p, '\'', s.n);
	char quote = single && !memchr(s.p, '"', s.n) ? '"' : '\'';
	size_t at = 0, from;
	char b[16];
	int rc = jinja_emit(r, &quote, 1);

	while (!rc && at < s.n) {
		int32_t c;

		from = at;
		c = jinja_next(s.p, s.n, &at);
		if (c == quote || c == '\\')
			rc = jinja_emit(r, b, (size_t)sprintf(b, "\\%c", c));
		else if (c == '\n' || c == '\r' || c == '\t')
			rc = jinja_emit(r,
					c == '\n'   ? "\\n"
					: c == '\r' ? "\\r"
						    : "\\t",
					2);
		else if (c >= 0 && jinja_printable(c))
			rc = jinja_emit(r, s.p + from, at - from);
		else
			rc = jinja_emit(
				r, b,
				(size_t)sprintf(b,
						c < 0x100     ? "\\x%02x"
						: c < 0x10000 ? "\\u%04x"
							      : "\\U%08x",
						(unsigned)c & 0x1fffffu));
		if (!rc)
			rc = jinja_charge(r, 1);
	}
	return rc ? rc : jinja_emit(r, &quote, 1);
}

// How: depth, and whether keys of dicts are put in order.
struct how {
	int depth;
	bool sorted;
};

static int repr(struct jinja_run *r, const struct jinja_value *v,
		struct how how);

static int repr_list(struct jinja_run *r, const struct jinja_value *v,
		     struct how depth)
{
	bool tuple = v->type == JINJA_TUPLE, view = v->type == JINJA_VIEW;
	size_t i;
	int rc = 0;

	if (view)
		rc = jinja_emit(r, v->list->of->name,
				strlen(v->list->of->name));
	if (!rc)
		rc = jinja_emit(r,
				tuple  ? "("
				: view ? "(["
				       : "[",
				view ? 2 : 1);

	for (i = 0; !rc && i < v->list->n; i++) {
		if (i)
			rc = jinja_emit(r, ", ", 2);
		if (!rc)
			rc = repr(r, &v->list->v[i], depth);
	}
	if (!rc && tuple && v->list->n == 1)
		rc = jinja_emit(r, ",", 1);
	return rc ? rc
		  : jinja_emit(r,
			       tuple  ? ")"
			       : view ? "])"
				      : "]",
			       view ? 2 : 1);
}

static int repr_dict(struct jinja_run *r, const struct jinja_dict *d,
		     struct how depth)
{
	struct jinja_value *kv = d->kv;
	size_t i;
	int rc = jinja_emit(r, "{", 1);

	if (!rc && depth.sorted)
		rc = jinja_sort(r, &kv, d->n, false);
	for (i = 0; !rc && i < d->n; i++) {
		if (i)
			rc = jinja_emit(r, ", ", 2);
		if (!rc)
			rc = repr(r, &kv[2 * i], depth);
		if (!rc)
			rc = jinja_emit(r, ": ", 2);
		if (!rc)
			rc = repr(r, &kv[2 * i + 1], depth);
	}
	return rc ? rc : jinja_emit(r, "}", 1);
}

// <Name text>
static int repr_of(struct jinja_run *r, const char *name, struct jinja_str s)
{
	int rc = jinja_emit(r, "<", 1);

	if (!rc)
		rc = jinja_emit(r, name, strlen(name));
	if (!rc)
		rc = jinja_emit(r, s.p, s.n);
	return rc ? rc : jinja_emit(r, ">", 1);
}

static int repr_range(struct jinja_run *r, const struct jinja_origin *of)
{
	char b[96];
	int n = sprintf(b, "range(%lld, %lld", (long long)of->from,
			(long long)of->to);

	if (of->step != 1)
		n += sprintf(b + n, ", %lld", (long long)of->step);
	n += sprintf(b + n, ")");
	return jinja_emit(r, b, (size_t)n);
}

static int repr_macro(struct jinja_run *r, const struct jinja_macro *m)
{
	bool named = m->def->kind == JN_MACRO;
	int rc = jinja_emit(r, "<Macro ", 7);

	if (!rc)
		rc = named ? repr_str(r, m->def->val.s)
			   : jinja_emit(r, "anonymous", 9);
	return rc ? rc : jinja_emit(r, ">", 1);
}

static int repr(struct jinja_run *r, const struct jinja_value *v,
		struct how depth)
{
	char b[64];
	int rc = jinja_charge(r, 1);

	if (rc)
		return rc;
	depth.depth++;
	if (depth.depth > JINJA_MAX_VALUE_DEPTH)
		return jinja_fail(r, GENAI_E_LIMIT, "values nest too deep");
	switch (v->type) {
	case JINJA_MISSING:
	case JINJA_UNDEF:
		return jinja_emit(r, "Undefined", 9);
	case JINJA_NONE:
		return jinja_emit(r, "None", 4);
	case JINJA_BOOL:
		return jinja_emit(r, v->b ? "True" : "False", v->b ? 4 : 5);
	case JINJA_INT:
		return jinja_emit(r, b,
				  (size_t)sprintf(b, "%lld", (long long)v->i));
	case JINJA_FLOAT:
		return jinja_emit(r, b, jinja_float_text(v->f, b));
	case JINJA_STR:
		return repr_str(r, v->s);
	case JINJA_LIST:
	case JINJA_TUPLE:
	case JINJA_VIEW:
		return repr_list(r, v, depth);
	case JINJA_RANGE:
		return repr_range(r, v->list->of);
	case JINJA_DICT:
		return repr_dict(r, v->dict, depth);
	case JINJA_NAMESPACE:
		rc = jinja_emit(r, "<Namespace ", 11);
		if (!rc)
			rc = repr_dict(r, v->dict, depth);
		return rc ? rc : jinja_emit(r, ">", 1);
	case JINJA_MACRO:
		return repr_macro(r, v->macro);
	case JINJA_LOOP:
		return repr_of(
			r, "LoopContext ",
			(struct jinja_str){b, (size_t)sprintf(b, "%zu/%zu",
							      v->loop->at + 1,
							      v->loop->n)});
	default:
		return jinja_raise(r, "a %s cannot be printed",
				   jinja_type_name(v->type));
	}
}

int jinja_repr(struct jinja_run *r, const struct jinja_value *v)
{
	return repr(r, v, (struct how){0, false});
}

int jinja_repr_sorted(struct jinja_run *r, const struct jinja_value *v)
{
	return repr(r, v, (struct how){0, true});
}

int jinja_print(struct jinja_run *r, const struct jinja_value *v)
{
	if (v->type == JINJA_STR)
		return jinja_emit(r, v->s.p, v->s.n);
	if (v->type == JINJA_UNDEF)
		return 0;
	return jinja_repr(r, v);
}

int jinja_to_str(struct jinja_run *r, const struct jinja_value *v,
		 struct jinja_value *out)
{
	size_t mark = r->n_out;
	int rc;

	if (v->type == JINJA_STR) {
		*out = *v;
		return 0;
	}
	rc = jinja_print(r, v);
	return rc ? rc : jinja_capture(r, mark, out);
}
