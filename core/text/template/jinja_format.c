// jinja_format.c - Python's formats: "%5.2f" % x, "{:>8}".format(x), and the
// filters that stand on them.
// Owns: both little languages, for text and numbers.
#include "core/text/template/jinja.h"

#include <langinfo.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WIDTH 10000
#define MAX_PRECISION 100
#define NUMBER_BYTES 640 // the largest double, and as many digits behind it

struct spec {
	struct jinja_str fill;
	char align; // < > ^ =, 0: what the type does
	char sign;  // + or blank, 0: of negative ones only
	char group; // , or _
	bool alt, zero;
	int64_t width, precision; // precision -1: not given
	char type;
};

// ---- numbers as text ----

static size_t plain_point(char *s)
{
	const char *point = nl_langinfo(RADIXCHAR);
	char *at = *point ? strstr(s, point) : NULL;
	size_t n = strlen(point);

	if (at && strcmp(point, ".")) {
		*at = '.';
		memmove(at + 1, at + n, strlen(at + n) + 1);
	}
	return strlen(s);
}

// Digits without a sign.
static int real_text(struct jinja_run *r, double f, const struct spec *s,
		     char *out, size_t *out_n)
{
	char format[8], type = s->type == 'n' ? 'g' : s->type;
	int precision = s->precision < 0 ? 6 : (int)s->precision;
	bool percent = type == '%';

	f = fabs(f);
	if (percent) {
		f *= 100;
		type = 'f';
	}
	if (!type && s->precision < 0) {
		*out_n = jinja_float_text(f, out);
		return 0;
	}
	if (!type) {
		// like g, but a whole number keeps a digit behind the point
		snprintf(format, sizeof(format), "%%.*e");
		snprintf(out, NUMBER_BYTES, format,
			 precision ? precision - 1 : 0, f);
		plain_point(out);
		if (!isfinite(f) || !strchr(out, 'e'))
			return jinja_raise(r, "format: not a finite number");
		type = 'g';
		if (atoi(strchr(out, 'e') + 1) == precision - 1)
			type = 'e'; // a point and a digit have no room
	}
	snprintf(format, sizeof(format), s->alt ? "%%#.*%c" : "%%.*%c", type);
	snprintf(out, NUMBER_BYTES, format,
		 !s->type && type == 'e' && precision ? precision - 1
						      : precision,
		 f);
	*out_n = plain_point(out);
	if (!s->type && isfinite(f) && !strpbrk(out, ".e"))
		*out_n += (size_t)sprintf(out + *out_n, ".0");
	if (percent)
		out[(*out_n)++] = '%';
	return 0;
}

// Digits of a magnitude, and what "#" puts in front of them.
static size_t whole_text(uint64_t v, const struct spec *s, char *out,
			 const char **out_prefix)
{
	static const char lower[] = "0123456789abcdef";
	static const char upper[] = "0123456789ABCDEF";
	unsigned base = s->type == 'b'			   ? 2
			: s->type == 'o'		   ? 8
			: s->type == 'x' || s->type == 'X' ? 16
							   : 10;
	char b[72];
	size_t n = 0, k = 0;

	*out_prefix = !s->alt	       ? ""
		      : s->type == 'b' ? "0b"
		      : s->type == 'o' ? "0o"
		      : s->type == 'x' ? "0x"
		      : s->type == 'X' ? "0X"
				       : "";
	do {
		b[n++] = (s->type == 'X' ? upper : lower)[v % base];
		v /= base;
	} while (v);
	while (n)
		out[k++] = b[--n];
	return k;
}

static size_t grouped(const char *in, size_t n, const struct spec *s, char *out)
{
	size_t whole = 0, k = 0;
	size_t each = s->type == 'b' || s->type == 'o' || s->type == 'x' ||
				      s->type == 'X'
			      ? 4
			      : 3;

	while (whole < n && in[whole] >= '0' &&
	       (in[whole] <= '9' || (each == 4 && in[whole] != '.')))
		whole++;
	for (size_t i = 0; i < n; i++) {
		if (i && i < whole && (whole - i) % each == 0)
			out[k++] = s->group;
		out[k++] = in[i];
	}
	return k;
}

// ---- width ----

static int fill(struct jinja_run *r, const struct spec *s, size_t n)
{
	struct jinja_str f = s->fill.n ? s->fill : (struct jinja_str){" ", 1};
	int rc = 0;

	while (!rc && n--)
		rc = jinja_emit(r, f.p, f.n);
	return rc;
}

// sign and prefix, then text, in the width.
static int pad(struct jinja_run *r, const struct spec *s, char align,
	       const char *head, struct jinja_str text)
{
	size_t n = strlen(head) + jinja_text_length(text);
	size_t room = s->width > (int64_t)n ? (size_t)s->width - n : 0;
	size_t left = align == '>' ? room : align == '^' ? room / 2 : 0;
	int rc = jinja_charge(r, room);

	if (!rc)
		rc = fill(r, s, left);
	if (!rc)
		rc = jinja_emit(r, head, strlen(head));
	if (!rc && align == '=')
		rc = fill(r, s, room);
	if (!rc)
		rc = jinja_emit(r, text.p, text.n);
	if (!rc && align != '=')
		rc = fill(r, s, room - left);
	return rc;
}

static int number(struct jinja_run *r, const struct jinja_value *v,
		  struct spec *s)
{
	char text[NUMBER_BYTES], sep[2 * NUMBER_BYTES], head[8];
	const char *prefix = "";
	size_t n = 0;
	int64_t i = 0;
	double f = 0;
	bool negative, real = v->type == JINJA_FLOAT ||
			      (s->type && strchr("eEfFgG%", s->type));
	int rc = 0;

	jinja_number(v, &f);
	if (real) {
		negative = signbit(f);
		rc = real_text(r, f, s, text, &n);
	} else {
		jinja_integer(v, &i);
		negative = i < 0;
		n = whole_text(negative ? -(uint64_t)i : (uint64_t)i, s, text,
			       &prefix);
		// "%.3d": so many digits at least
		if ((int64_t)n < s->precision) {
			size_t zeros = (size_t)s->precision - n;

			memmove(text + zeros, text, n);
			memset(text, '0', zeros);
			n += zeros;
		}
	}
	if (rc)
		return rc;
	snprintf(head, sizeof(head), "%s%s",
		 negative	  ? "-"
		 : s->sign == '+' ? "+"
		 : s->sign == ' ' ? " "
				  : "",
		 prefix);
	if (s->zero && !s->fill.n)
		s->fill = (struct jinja_str){"0", 1};
	if (s->zero && !s->align)
		s->align = '=';
	if (!s->group)
		return pad(r, s, s->align ? s->align : '>', head,
			   (struct jinja_str){text, n});
	if (s->align == '=' && s->fill.p[0] == '0')
		return jinja_raise(r, "format: groups of digits in a width "
				      "full of zeros are not supported");
	n = grouped(text, n, s, sep);
	return pad(r, s, s->align ? s->align : '>', head,
		   (struct jinja_str){sep, n});
}

// ---- "{:spec}" ----

static int read_int(struct jinja_run *r, struct jinja_str *io, int64_t most,
		    int64_t *out)
{
	*out = 0;
	while (io->n && *io->p >= '0' && *io->p <= '9') {
		*out = *out * 10 + (*io->p - '0');
		if (*out > most)
			return jinja_raise(r,
					   "format: a width or precision above "
					   "%lld",
					   (long long)most);
		io->p++;
		io->n--;
	}
	return 0;
}

static bool take(struct jinja_str *io, const char *any, char *out)
{
	if (!io->n || !*io->p || !strchr(any, *io->p))
		return false;
	*out = *io->p++;
	io->n--;
	return true;
}

static int read_spec(struct jinja_run *r, struct jinja_str t, struct spec *s)
{
	char c;
	size_t one = 0;
	int rc;

	*s = (struct spec){.precision = -1};
	if (t.n) {
		jinja_next(t.p, t.n, &one);
		if (one < t.n && strchr("<>=^", t.p[one])) {
			s->fill = (struct jinja_str){t.p, one};
			t.p += one;
			t.n -= one;
		}
	}
	take(&t, "<>=^", &s->align);
	take(&t, "+- ", &s->sign);
	s->alt = take(&t, "#", &c);
	s->zero = take(&t, "0", &c);
	rc = read_int(r, &t, MAX_WIDTH, &s->width);
	take(&t, ",_", &s->group);
	if (!rc && take(&t, ".", &c)) {
		if (!t.n || *t.p < '0' || *t.p > '9')
			return jinja_raise(r, "ValueError: format: a precision "
					      "is missing");
		rc = read_int(r, &t, MAX_PRECISION, &s->precision);
	}
	take(&t, "bcdeEfFgGnosxX%", &s->type);
	if (!rc && t.n)
		rc = jinja_raise(r, "ValueError: invalid format specifier");
	return rc;
}

static int format_text(struct jinja_run *r, const struct jinja_value *v,
		       const struct spec *s)
{
	struct jinja_str t = v->s;
	struct spec own = *s;

	if (s->type && s->type != 's')
		return jinja_raise(r,
				   "ValueError: unknown format code '%c' for "
				   "str",
				   s->type);
	if (s->sign || s->alt || s->group || s->align == '=')
		return jinja_raise(r, "ValueError: a sign, '#', ',' or '=' in "
				      "the format of a str");
	if (s->precision >= 0)
		t = jinja_text_at(t, 0, (size_t)s->precision);
	if (s->zero && !s->fill.n)
		own.fill = (struct jinja_str){"0", 1};
	return pad(r, &own, s->align ? s->align : '<', "", t);
}

static int format_value(struct jinja_run *r, const struct jinja_value *v,
			struct jinja_str t)
{
	struct spec s;
	char one[4];
	size_t n;
	double f;
	int rc;

	if (!t.n)
		return jinja_print(r, v);
	rc = read_spec(r, t, &s);
	if (rc)
		return rc;
	if (v->type == JINJA_STR)
		return format_text(r, v, &s);
	if (!jinja_number(v, &f))
		return jinja_raise(r,
				   "TypeError: unsupported format string "
				   "passed to %s",
				   jinja_type_name(v->type));
	if (s.type == 'c' && v->type == JINJA_INT && v->i >= 0 &&
	    v->i <= 0x10ffff && s.precision < 0 && !s.sign) {
		n = jinja_put((int32_t)v->i, one);
		s.type = 0;
		return pad(r, &s, s.align ? s.align : '>', "",
			   (struct jinja_str){one, n});
	}
	if (s.type == 'c' || s.type == 's' ||
	    (v->type == JINJA_FLOAT && s.type && strchr("bdoxX", s.type)))
		return jinja_raise(r,
				   "ValueError: unsupported format code '%c' "
				   "for %s",
				   s.type, jinja_type_name(v->type));
	if (v->type != JINJA_FLOAT && s.precision >= 0 &&
	    !(s.type && strchr("eEfFgG%", s.type)))
		return jinja_raise(r, "ValueError: precision not allowed in "
				      "integer format");
	return number(r, v, &s);
}

// ---- "{0.a[b]!r:spec}".format(...) ----

struct fields {
	const struct jinja_args *args;
	size_t next;
};

// The first word of a field: an argument.
static int field_argument(struct jinja_run *r, struct fields *f,
			  struct jinja_str name, struct jinja_value *out)
{
	const struct jinja_args *args = f->args;
	size_t i, at = 0;

	for (i = 0; i < args->n_kw; i++)
		if (args->kw_name[i].n == name.n &&
		    !memcmp(args->kw_name[i].p, name.p, name.n)) {
			*out = args->kw[i];
			return 0;
		}
	for (i = 0; i < name.n && i < 9 && name.p[i] >= '0' && name.p[i] <= '9';
	     i++)
		at = at * 10 + (size_t)(name.p[i] - '0');
	if (!name.n)
		at = f->next++;
	if (i < name.n)
		return jinja_raise(r, "KeyError: '%.*s' in format",
				   (int)(name.n & 0x7f), name.p);
	if (at >= args->n_pos)
		return jinja_raise(r, "IndexError: format has no argument %zu",
				   at);
	*out = args->pos[at];
	return 0;
}

// .name and [key] behind it.
static int field_path(struct jinja_run *r, struct jinja_str s,
		      struct jinja_value *io)
{
	struct jinja_value key;
	size_t n, i;
	int rc = 0;

	while (!rc && s.n) {
		bool item = *s.p == '[';

		s.p++;
		s.n--;
		for (n = 0; n < s.n && (item ? s.p[n] != ']'
					     : s.p[n] != '.' && s.p[n] != '[');)
			n++;
		key = jinja_text(s.p, n);
		if (!n || (item && n == s.n))
			return jinja_raise(r, "ValueError: an empty attribute "
					      "in format");
		for (i = 0;
		     item && i < n && i < 18 && s.p[i] >= '0' && s.p[i] <= '9';)
			i++;
		if (item && i == n) {
			key = jinja_int(0);
			for (i = 0; i < n; i++)
				key.i = key.i * 10 + (s.p[i] - '0');
		}
		rc = item ? jinja_item(r, io, &key, io)
			  : jinja_attr(r, io, key.s, io);
		if (!rc && io->type == JINJA_UNDEF)
			rc = jinja_undefined(r, io);
		s.p += n + item;
		s.n -= n + item;
	}
	return rc;
}

static int one_field(struct jinja_run *r, struct fields *f, struct jinja_str s,
		     int depth);

// A specification may hold fields itself.
static int expand_spec(struct jinja_run *r, struct fields *f,
		       struct jinja_str s, int depth, struct jinja_value *out)
{
	size_t mark = r->n_out, n;
	int rc = 0;

	while (!rc && s.n) {
		const char *end;

		n = 1;
		if (*s.p == '{') {
			end = memchr(s.p, '}', s.n);
			if (!end || depth)
				return jinja_raise(r, "ValueError: format: "
						      "fields nest too deep");
			n = (size_t)(end - s.p) + 1;
			rc = one_field(r, f, (struct jinja_str){s.p + 1, n - 2},
				       depth + 1);
		} else {
			rc = jinja_emit(r, s.p, 1);
		}
		s.p += n;
		s.n -= n;
	}
	return rc ? rc : jinja_capture(r, mark, out);
}

static int one_field(struct jinja_run *r, struct fields *f, struct jinja_str s,
		     int depth)
{
	struct jinja_str spec = {"", 0}, name = s, path;
	struct jinja_value v, t = jinja_text("", 0);
	size_t n, mark = r->n_out;
	char conv = 0;
	int rc;

	// a colon or exclamation mark in brackets belongs to the key
	for (n = 0; n < s.n && s.p[n] != ':' && s.p[n] != '!'; n++)
		if (s.p[n] == '[')
			while (n + 1 < s.n && s.p[n + 1] != ']')
				n++;
	name.n = n;
	if (n < s.n && s.p[n] == '!') {
		conv = n + 1 < s.n ? s.p[n + 1] : 0;
		n += 2;
		if ((conv != 'r' && conv != 's') || (n < s.n && s.p[n] != ':'))
			return jinja_raise(r, "ValueError: a conversion of "
					      "format other than !r and !s");
	}
	if (n < s.n)
		spec = (struct jinja_str){s.p + n + 1, s.n - n - 1};
	for (n = 0; n < name.n && name.p[n] != '.' && name.p[n] != '[';)
		n++;
	path = (struct jinja_str){name.p + n, name.n - n};
	name.n = n;
	rc = field_argument(r, f, name, &v);
	if (!rc)
		rc = field_path(r, path, &v);
	if (!rc && conv) {
		rc = conv == 'r' ? jinja_repr(r, &v) : jinja_print(r, &v);
		if (!rc)
			rc = jinja_capture(r, mark, &v);
	}
	if (!rc && spec.n)
		rc = expand_spec(r, f, spec, depth, &t);
	return rc ? rc : format_value(r, &v, t.s);
}

// Bytes of the field at s ("{"...), with those that its specification holds.
static size_t field_bytes(struct jinja_str s)
{
	size_t n, depth = 0;

	for (n = 0; n < s.n; n++) {
		depth += s.p[n] == '{';
		if (s.p[n] == '}' && !--depth)
			return n + 1;
	}
	return 0;
}

int jinja_str_format(struct jinja_run *r, struct jinja_value self,
		     const struct jinja_args *args, const struct jinja_value *a,
		     struct jinja_value *out)
{
	struct fields f = {.args = args};
	struct jinja_str s = self.s;
	size_t n, mark = r->n_out;
	int rc = 0;

	while (!rc && s.n) {
		n = 1;
		if (s.n > 1 && (*s.p == '{' || *s.p == '}') && s.p[1] == *s.p) {
			rc = jinja_emit(r, s.p, 1);
			n = 2;
		} else if (*s.p == '{') {
			n = field_bytes(s);
			rc = n ? one_field(r, &f,
					   (struct jinja_str){s.p + 1, n - 2},
					   0)
			       : jinja_raise(r, "ValueError: expected '}' in "
						"format");
		} else if (*s.p == '}') {
			rc = jinja_raise(r, "ValueError: single '}' in format");
		} else {
			rc = jinja_emit(r, s.p, 1);
		}
		if (!rc)
			rc = jinja_charge(r, 1);
		s.p += n;
		s.n -= n;
	}
	return rc ? rc : jinja_capture(r, mark, out);
}

// ---- "%(name)05.2f" % x ----

struct percent {
	const struct jinja_value *v; // arguments in turn
	size_t n, at;
	const struct jinja_value *map; // or by name
};

static int next_value(struct jinja_run *r, struct percent *p,
		      const struct jinja_value **out)
{
	if (p->at >= p->n)
		return jinja_raise(r, "TypeError: not enough arguments for "
				      "format string");
	*out = &p->v[p->at++];
	return 0;
}

static int number_or_star(struct jinja_run *r, struct percent *p,
			  struct jinja_str *io, int64_t most, int64_t *out)
{
	const struct jinja_value *v = NULL;
	char c;
	int rc;

	if (!take(io, "*", &c))
		return read_int(r, io, most, out);
	rc = next_value(r, p, &v);
	if (!rc && !jinja_integer(v, out))
		rc = jinja_raise(r, "TypeError: * wants int");
	if (!rc && (*out < -most || *out > most))
		rc = jinja_raise(r, "format: a width or precision above %lld",
				 (long long)most);
	return rc;
}

static int percent_key(struct jinja_run *r, struct percent *p,
		       struct jinja_str *io, const struct jinja_value **out)
{
	const char *end = memchr(io->p, ')', io->n);
	struct jinja_value key;
	size_t n;
	int rc;

	if (!p->map)
		return jinja_raise(r, "TypeError: format requires a mapping");
	if (!end)
		return jinja_raise(r, "ValueError: incomplete format key");
	n = (size_t)(end - io->p) - 1;
	key = jinja_text(io->p + 1, n);
	io->p += n + 2;
	io->n -= n + 2;
	rc = jinja_dict_get(r, p->map->dict, &key, out);
	if (!rc && !*out)
		rc = jinja_raise(r, "KeyError: '%.*s'", (int)(n & 0x7f),
				 key.s.p);
	return rc;
}

static int convert(struct jinja_run *r, char c, const struct jinja_value *v,
		   struct spec *s)
{
	struct jinja_value t, i;
	size_t mark = r->n_out;
	double f;
	char one[4];
	int rc = 0;

	if (c == 's' || c == 'r' || c == 'c') {
		if (c == 'c' && v->type == JINJA_INT && v->i >= 0 &&
		    v->i <= 0x10ffff)
			t = jinja_text(one, jinja_put((int32_t)v->i, one));
		else if (c == 'c' &&
			 (v->type != JINJA_STR || jinja_text_length(v->s) != 1))
			rc = jinja_raise(r, "TypeError: %%c requires an int or "
					    "a char");
		else if (c == 'r')
			rc = jinja_repr(r, v);
		else
			rc = jinja_print(r, v);
		if (!rc && (c != 'c' || v->type != JINJA_INT))
			rc = jinja_capture(r, mark, &t);
		if (!rc && c != 'c' && s->precision >= 0)
			t.s = jinja_text_at(t.s, 0, (size_t)s->precision);
		return rc ? rc : pad(r, s, s->align ? s->align : '>', "", t.s);
	}
	if (!jinja_number(v, &f))
		return jinja_raise(r,
				   "TypeError: %%%c format: a number is "
				   "required, not %s",
				   c, jinja_type_name(v->type));
	s->type = c == 'i' || c == 'u' ? 'd' : c;
	if (!strchr("dxXo", s->type))
		return number(r, v, s);
	i = *v;
	if (v->type == JINJA_FLOAT && s->type == 'd' && fabs(f) < 0x1p63)
		i = jinja_int((int64_t)f);
	else if (v->type == JINJA_FLOAT)
		return jinja_raise(r,
				   "TypeError: %%%c format: an integer is "
				   "required, not float",
				   c);
	return number(r, &i, s);
}

// Behind the "%".
static int directive(struct jinja_run *r, struct percent *p,
		     struct jinja_str *io)
{
	struct spec s = {.precision = -1};
	const struct jinja_value *v = NULL;
	bool left = false;
	char c = 0;
	int rc = 0;

	if (io->n && *io->p == '(')
		rc = percent_key(r, p, io, &v);
	while (!rc && take(io, "-+ #0", &c)) {
		left |= c == '-';
		s.alt |= c == '#';
		s.zero |= c == '0';
		if (c == '+' || (c == ' ' && !s.sign))
			s.sign = c;
	}
	if (!rc)
		rc = number_or_star(r, p, io, MAX_WIDTH, &s.width);
	if (s.width < 0) {
		s.width = -s.width;
		left = true;
	}
	if (!rc && take(io, ".", &c))
		rc = number_or_star(r, p, io, MAX_PRECISION, &s.precision);
	while (!rc && take(io, "hlL", &c))
		;
	if (rc)
		return rc;
	if (take(io, "%", &c))
		return jinja_emit(r, "%", 1);
	if (!take(io, "diouxXeEfFgGcrs", &c))
		return jinja_raise(r, "ValueError: incomplete or unsupported "
				      "format character");
	if (left) {
		s.align = '<';
		s.zero = false;
	}
	if (!v)
		rc = next_value(r, p, &v);
	return rc ? rc : convert(r, c, v, &s);
}

int jinja_percent(struct jinja_run *r, struct jinja_str s,
		  const struct jinja_value *with, struct jinja_value *out)
{
	struct percent p = {.v = with, .n = 1};
	size_t mark = r->n_out;
	int rc = 0;

	if (with->type == JINJA_TUPLE) {
		p.v = with->list->v;
		p.n = with->list->n;
	} else if (with->type == JINJA_DICT) {
		p.map = with;
	}
	while (!rc && s.n) {
		const char *hit = memchr(s.p, '%', s.n);
		size_t n = hit ? (size_t)(hit - s.p) : s.n;

		rc = jinja_emit(r, s.p, n);
		if (!rc)
			rc = jinja_charge(r, 1);
		s.p += n;
		s.n -= n;
		if (!rc && s.n) {
			s.p++;
			s.n--;
			rc = directive(r, &p, &s);
		}
	}
	if (!rc && p.at < p.n && !p.map)
		rc = jinja_raise(r, "TypeError: not all arguments converted "
				    "during string formatting");
	return rc ? rc : jinja_capture(r, mark, out);
}

// ---- filters ----

JINJA_FN(f_format)
{
	struct jinja_value s, with;
	struct jinja_dict *d;
	size_t i;
	int rc = jinja_to_str(r, &self, &s);

	if (!rc && args->n_pos && args->n_kw)
		rc = jinja_raise(r, "can't handle positional and keyword "
				    "arguments at the same time");
	if (!rc && args->n_kw) {
		rc = jinja_new(r, 1, sizeof(*d), &d);
		for (i = 0; !rc && i < args->n_kw; i++)
			rc = jinja_dict_set(r, d,
					    jinja_text(args->kw_name[i].p,
						       args->kw_name[i].n),
					    args->kw[i]);
		with = (struct jinja_value){.type = JINJA_DICT, .dict = d};
	} else if (!rc) {
		rc = jinja_new_list(r, JINJA_TUPLE, args->n_pos, &with);
		if (!rc && args->n_pos)
			memcpy(with.list->v, args->pos,
			       args->n_pos * sizeof(with));
	}
	return rc ? rc : jinja_percent(r, s.s, &with, out);
}

JINJA_FN(f_filesizeformat)
{
	static const char *const names[2][8] = {
		{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
		{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
	bool binary = jinja_true(&a[0]);
	double base = binary ? 1024 : 1000, unit = base, bytes;
	size_t mark = r->n_out;
	char text[400];
	int i, rc;

	if (!jinja_number(&self, &bytes) &&
	    !(self.type == JINJA_STR &&
	      jinja_read_float(self.s.p, self.s.n, &bytes)))
		return jinja_raise(r, "TypeError: filesizeformat needs a "
				      "number");
	if (bytes == 1) {
		snprintf(text, sizeof(text), "1 Byte");
	} else if (bytes < base && bytes > -1e18) {
		snprintf(text, sizeof(text), "%lld Bytes", (long long)bytes);
	} else {
		for (i = 0; i < 7 && bytes >= unit * base; i++)
			unit *= base;
		snprintf(text, sizeof(text), "%.1f", bytes / unit);
		plain_point(text);
		strcat(strcat(text, " "), names[binary][i]);
	}
	rc = jinja_emit(r, text, strlen(text));
	return rc ? rc : jinja_capture(r, mark, out);
}

const struct jinja_builtin jinja_format_filters[] = {
	{"format", f_format, "*", 0},
	{"filesizeformat", f_filesizeformat, "binary", 0},
	{NULL, NULL, NULL, 0},
};
