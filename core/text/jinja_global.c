/* jinja_global.c - the functions every template can call: those of Jinja that
 * templates use, and the two that chat rendering adds. */
#include "core/text/jinja.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/error.h"

JINJA_FN(range)
{
	int64_t from = 0, to, step = 1, span, i;
	uint64_t n = 0;
	int rc;

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
	rc = jinja_new_list(r, JINJA_LIST, (size_t)n, out);
	for (i = 0; !rc && i < (int64_t)n; i++)
		out->list->v[i] = jinja_int(from + i * step);
	return rc;
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

static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
				   "Thursday", "Friday", "Saturday"};
static const char *const months[] = {
	"January", "February", "March",	    "April",   "May",	   "June",
	"July",	   "August",   "September", "October", "November", "December"};

// Numbers: the value, with its width and padding as printf's format.
static int number(char c, const struct tm *t, const char **out_format)
{
	int hour = t->tm_hour % 12;

	*out_format = "%02d";
	switch (c) {
	case 'd':
		return t->tm_mday;
	case 'e':
		*out_format = "%2d";
		return t->tm_mday;
	case 'H':
		return t->tm_hour;
	case 'I':
		return hour ? hour : 12;
	case 'j':
		*out_format = "%03d";
		return t->tm_yday + 1;
	case 'm':
		return t->tm_mon + 1;
	case 'M':
		return t->tm_min;
	case 'S':
		return t->tm_sec;
	case 'u':
		*out_format = "%d";
		return t->tm_wday ? t->tm_wday : 7;
	case 'U':
		return (t->tm_yday + 7 - t->tm_wday) / 7;
	case 'w':
		*out_format = "%d";
		return t->tm_wday;
	case 'W':
		return (t->tm_yday + 7 - (t->tm_wday + 6) % 7) / 7;
	case 'y':
		return (t->tm_year + 1900) % 100;
	case 'Y':
		*out_format = "%d";
		return t->tm_year + 1900;
	case 'f':
		*out_format = "%06d"; // the clock counts seconds
		return 0;
	default:
		return -1;
	}
}

// Names in English, whatever the locale; and what stands for several others.
static const char *word(char c, const struct tm *t)
{
	switch (c) {
	case 'a':
	case 'A':
		return days[t->tm_wday];
	case 'b':
	case 'B':
	case 'h':
		return months[t->tm_mon];
	case 'p':
		return t->tm_hour < 12 ? "AM" : "PM";
	case 'c':
		return "%a %b %e %H:%M:%S %Y";
	case 'D':
	case 'x':
		return "%m/%d/%y";
	case 'F':
		return "%Y-%m-%d";
	case 'R':
		return "%H:%M";
	case 'T':
	case 'X':
		return "%H:%M:%S";
	case 'z':
	case 'Z':
		return ""; // the clock carries no zone
	default:
		return NULL;
	}
}

static int emit_time(struct jinja_run *r, struct jinja_str f,
		     const struct tm *t)
{
	const char *format, *w;
	char b[32];
	size_t i, n;
	int rc = jinja_charge(r, f.n / 4), v;

	for (i = 0; !rc && i < f.n; i++) {
		if (f.p[i] != '%' || i + 1 == f.n || f.p[i + 1] == '%') {
			rc = jinja_emit(r, f.p + i, 1);
			i += f.p[i] == '%';
			continue;
		}
		v = number(f.p[++i], t, &format);
		w = word(f.p[i], t);
		n = w ? strlen(w) : 0;
		if (v >= 0)
			rc = jinja_emit(
				r, b,
				(size_t)snprintf(b, sizeof(b), format, v));
		else if (!w)
			rc = jinja_raise(r, "strftime_now: unsupported '%%%c'",
					 f.p[i]);
		else if (*w == '%')
			rc = emit_time(r, (struct jinja_str){w, n}, t);
		else
			rc = jinja_emit(r, w, strchr("abh", f.p[i]) ? 3 : n);
	}
	return rc;
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
	return jinja_find(table, name);
}
