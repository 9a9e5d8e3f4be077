// jinja_global.c - the functions every template can call: those of Jinja that
// templates use, and the two that chat rendering adds.
#include "core/text/template/jinja.h"

#include <stdio.h>
#include <string.h>
#include <locale.h>
#include <time.h>

#include "core/base/error.h"

JINJA_FN(range)
{
	int64_t from = 0, to, step = 1, span, i;
	uint64_t n = 0;

	if (!jinja_integer(&a[0], &to) ||
	    (a[1].type != JINJA_MISSING && !jinja_integer(&a[1], &from)) ||
	    (a[2].type != JINJA_MISSING && !jinja_integer(&a[2], &step)))
		return jinja_raise(r, "TypeError: range needs integers");
	if (a[1].type != JINJA_MISSING) {
		i = from;
		from = to;
		to = i;
	}
	if (!step)
		return jinja_raise(r, "ValueError: range: step is zero");
	if (__builtin_sub_overflow(to, from, &span) || step == INT64_MIN)
		return jinja_fail(r, GENAI_E_LIMIT, "range is too long");
	if (span && (span > 0) == (step > 0))
		n = ((uint64_t)(span > 0 ? span : -span) - 1) /
			    (uint64_t)(step > 0 ? step : -step) +
		    1;
	if (n > JINJA_MAX_RANGE)
		return jinja_fail(r, GENAI_E_LIMIT,
				  "range has %llu elements, more than %d",
				  (unsigned long long)n, JINJA_MAX_RANGE);
	return jinja_new_range(r, from, to, step, (size_t)n, out);
}

// Keyword arguments, and those of one dict before them, as a new dict.
static int collect(struct jinja_run *r, const struct jinja_args *args, int type,
		   struct jinja_value *out)
{
	const struct jinja_dict *from;
	struct jinja_dict *d;
	size_t i;
	int rc = jinja_new(r, 1, sizeof(*d), &d);

	if (!rc && (args->n_pos > 1 ||
		    (args->n_pos && args->pos[0].type != JINJA_DICT)))
		rc = jinja_raise(r, "TypeError: expected one dict or keyword "
				    "arguments");
	if (!rc && args->n_pos) {
		from = args->pos[0].dict;
		for (i = 0; !rc && i < from->n; i++)
			rc = jinja_dict_set(r, d, from->kv[2 * i],
					    from->kv[2 * i + 1]);
	}
	for (i = 0; !rc && i < args->n_kw; i++)
		rc = jinja_dict_set(
			r, d,
			jinja_text(args->kw_name[i].p, args->kw_name[i].n),
			args->kw[i]);
	*out = (struct jinja_value){.type = (uint8_t)type, .dict = d};
	return rc;
}

JINJA_FN(namespace)
{
	return collect(r, args, JINJA_NAMESPACE, out);
}

JINJA_FN(dict)
{
	return collect(r, args, JINJA_DICT, out);
}

// The message alone: callers compare and show it as the template's own.
JINJA_FN(raise_exception)
{
	struct jinja_value s;
	int rc = jinja_to_str(r, &a[0], &s);

	if (rc)
		return rc;
	return genai_fail(r->err, GENAI_E_INVAL, "%.*s",
			  (int)(s.s.n > 4096 ? 4096 : s.s.n), s.s.p);
}

#define TIME_TEXT 4096 // bytes that one format may become

// What the clock does not carry is taken out before strftime() sees it:
// Python's datetime, too, is without a zone here, and counts no parts of a
// second.
static size_t plain_format(struct jinja_str f, int64_t now, char *out,
			   size_t cap)
{
	size_t n = 0;

	for (size_t i = 0; i < f.n && n + 32 < cap; i++) {
		char c = i + 1 < f.n && f.p[i] == '%' ? f.p[i + 1] : 0;

		if (c == 'f')
			n += (size_t)snprintf(out + n, cap - n, "000000");
		else if (c == 's')
			n += (size_t)snprintf(out + n, cap - n, "%lld",
					      (long long)now);
		else if (c && c != 'z' && c != 'Z')
			n += (size_t)snprintf(out + n, cap - n, "%%%c", c);
		else if (!c)
			out[n++] = f.p[i];
		i += c != 0;
	}
	out[n] = 0;
	return n;
}

// All directives of the C library, in English.
static int emit_time(struct jinja_run *r, struct jinja_str f,
		     const struct tm *t)
{
	char format[1024], text[TIME_TEXT];
	locale_t english;
	size_t n;

	if (f.n > sizeof(format) / 4 || memchr(f.p, 0, f.n))
		return jinja_raise(r,
				   "strftime_now: a format of %zu bytes, "
				   "or with a zero byte",
				   f.n);
	// behind a mark, so that nothing is told from too much
	n = plain_format(f, r->now, format, sizeof(format) - 1);
	format[n++] = '.';
	format[n] = 0;
	english = newlocale(LC_TIME_MASK, "C", (locale_t)0);
	if (!english)
		return jinja_nomem(r);
	n = strftime_l(text, sizeof(text), format, t, english);
	freelocale(english);
	if (!n)
		return jinja_raise(r, "strftime_now: more than %d bytes",
				   TIME_TEXT);
	return jinja_emit(r, text, n - 1);
}

JINJA_FN(strftime_now)
{
	size_t mark = r->n_out;
	struct tm tm;
	int64_t at;
	time_t t;
	int rc;

	if (a[0].type != JINJA_STR)
		return jinja_raise(r, "TypeError: strftime_now needs a string");
	if (__builtin_add_overflow(r->now, r->utc_offset_s, &at) ||
	    __builtin_add_overflow(at, 0, &t) || !gmtime_r(&t, &tm) ||
	    tm.tm_year < 1 - 1900 || tm.tm_year > 9999 - 1900)
		return jinja_raise(r, "strftime_now: the clock is out of "
				      "range");
	rc = emit_time(r, a[0].s, &tm);
	return rc ? rc : jinja_capture(r, mark, out);
}

static const struct jinja_builtin table[] = {
	{"range", range, "a b step", 1},
	{"namespace", namespace, "*", 0},
	{"dict", dict, "*", 0},
	{"raise_exception", raise_exception, "message", 1},
	{"strftime_now", strftime_now, "format", 1},
	{NULL, NULL, NULL, 0},
};

const struct jinja_builtin *jinja_find_global(struct jinja_str name)
{
	const struct jinja_builtin *f = jinja_find(table, name);

	return f ? f : jinja_find(jinja_object_globals, name);
}
