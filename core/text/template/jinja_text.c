// jinja_text.c - UTF-8 strings as Python sees them, by code point.
// Owns: stepping, stripping, case, replacing, lines, HTML escapes.
#include "core/text/template/jinja.h"

#include <string.h>
#include <utf8proc.h>

// The code point at *io_at, which moves on; a byte that is none counts alone.
int32_t jinja_next(const char *p, size_t n, size_t *io_at)
{
	utf8proc_int32_t c = (unsigned char)p[*io_at];
	utf8proc_ssize_t len;

	if (c < 0x80) {
		++*io_at;
		return c;
	}
	len = utf8proc_iterate((const utf8proc_uint8_t *)p + *io_at,
			       (utf8proc_ssize_t)(n - *io_at), &c);
	*io_at += len > 0 ? (size_t)len : 1;
	return len > 0 ? c : -1;
}

size_t jinja_put(int32_t c, char text[4])
{
	return (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)text);
}

bool jinja_is_space(int32_t c)
{
	return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 ||
	       c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
	       c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
	       c == 0x3000;
}

size_t jinja_text_length(struct jinja_str s)
{
	size_t at = 0, n = 0;

	for (; at < s.n; n++)
		jinja_next(s.p, s.n, &at);
	return n;
}

// count code points from code point first on, as far as there are any
struct jinja_str jinja_text_at(struct jinja_str s, size_t first, size_t count)
{
	size_t at = 0, from;

	for (; first && at < s.n; first--)
		jinja_next(s.p, s.n, &at);
	for (from = at; count && at < s.n; count--)
		jinja_next(s.p, s.n, &at);
	return (struct jinja_str){s.p + from, at - from};
}

static bool strips(struct jinja_str ch, int32_t c, const struct jinja_str *set)
{
	size_t at = 0, from;

	if (!set)
		return jinja_is_space(c);
	while (at < set->n) {
		from = at;
		jinja_next(set->p, set->n, &at);
		if (at - from == ch.n && !memcmp(set->p + from, ch.p, ch.n))
			return true;
	}
	return false;
}

// c: the characters to strip, NULL for white space.
struct jinja_str jinja_text_strip(struct jinja_str s, const struct jinja_str *c,
				  int left, int right)
{
	size_t at;
	int32_t ch;

	while (left && s.n) {
		at = 0;
		ch = jinja_next(s.p, s.n, &at);
		if (!strips((struct jinja_str){s.p, at}, ch, c))
			break;
		s.p += at;
		s.n -= at;
	}
	while (right && s.n) {
		size_t from = s.n - 1;

		while (from && s.n - from < 4 &&
		       ((unsigned char)s.p[from] & 0xc0) == 0x80)
			from--;
		at = from;
		ch = jinja_next(s.p, s.n, &at);
		if (at != s.n) {
			from = s.n - 1;
			ch = -1;
		}
		if (!strips((struct jinja_str){s.p + from, s.n - from}, ch, c))
			break;
		s.n = from;
	}
	return s;
}

const char *jinja_text_find(struct jinja_str s, struct jinja_str what)
{
	return what.n ? memmem(s.p, s.n, what.p, what.n) : s.p;
}

// count < 0: all.  An empty from matches between all characters.
int jinja_text_replace(struct jinja_run *r, struct jinja_str s,
		       struct jinja_str from, struct jinja_str to,
		       int64_t count, struct jinja_value *out)
{
	size_t mark = r->n_out, len, skip;
	const char *hit;
	int rc = 0;

	for (; !rc && count; count -= count > 0) {
		hit = jinja_text_find(s, from);
		if (!hit)
			break;
		len = (size_t)(hit - s.p);
		skip = from.n;
		rc = jinja_emit(r, s.p, len);
		if (!rc)
			rc = jinja_emit(r, to.p, to.n);
		if (!rc)
			rc = jinja_charge(r, 1 + len / 64);
		if (!rc && !from.n) {
			if (!s.n)
				return jinja_capture(r, mark, out);
			jinja_next(s.p, s.n, &skip);
			rc = jinja_emit(r, s.p, skip);
		}
		s.p += len + skip;
		s.n -= len + skip;
	}
	if (!rc)
		rc = jinja_emit(r, s.p, s.n);
	return rc ? rc : jinja_capture(r, mark, out);
}

// how: 'u'pper, 'l'ower, 't'itle, 'c'apitalize; one code point for one, but
// for the sharp s.
int jinja_text_case(struct jinja_run *r, struct jinja_str s, int how,
		    struct jinja_value *out)
{
	size_t mark = r->n_out, at = 0;
	bool up, first = true;
	char b[4];
	int32_t c;
	int rc = jinja_charge(r, s.n / 8);

	while (!rc && at < s.n) {
		size_t from = at;

		c = jinja_next(s.p, s.n, &at);
		up = how == 'u' || (first && (how == 't' || how == 'c'));
		first = how == 't' && utf8proc_toupper(c) == c &&
			utf8proc_tolower(c) == c;
		if (c < 0)
			rc = jinja_emit(r, s.p + from, at - from);
		else if (c == 0xdf && up)
			rc = jinja_emit(r, how == 'u' ? "SS" : "Ss", 2);
		else if (up && how != 'u')
			rc = jinja_emit(r, b,
					jinja_put(utf8proc_totitle(c), b));
		else
			rc = jinja_emit(r, b,
					jinja_put(up ? utf8proc_toupper(c)
						     : utf8proc_tolower(c),
						  b));
	}
	return rc ? rc : jinja_capture(r, mark, out);
}

// str.splitlines
int jinja_text_lines(struct jinja_run *r, struct jinja_str s, bool keep,
		     struct jinja_value *out)
{
	size_t pass, n = 0, at, from, end;
	int32_t c;
	int rc = jinja_charge(r, s.n / 32);

	for (pass = 0; !rc && pass < 2; pass++) {
		if (pass)
			rc = jinja_new_list(r, JINJA_LIST, n, out);
		for (n = at = 0; !rc && at < s.n; n++) {
			for (from = end = at; at < s.n;) {
				end = at;
				c = jinja_next(s.p, s.n, &at);
				if ((c >= 10 && c <= 13) ||
				    (c >= 28 && c <= 30) || c == 0x85 ||
				    c == 0x2028 || c == 0x2029) {
					if (c == 13 && at < s.n &&
					    s.p[at] == '\n')
						at++;
					break;
				}
				end = at;
			}
			if (pass)
				out->list->v[n] = jinja_text(
					s.p + from, (keep ? at : end) - from);
		}
	}
	return rc;
}

int jinja_text_escape(struct jinja_run *r, struct jinja_str s,
		      struct jinja_value *out)
{
	static const char from[] = "&<>'\"";
	static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;",
					 "&#34;"};
	size_t i, mark = r->n_out;
	const char *hit;
	int rc = jinja_charge(r, s.n / 8);

	for (i = 0; !rc && i < s.n; i++) {
		hit = s.p[i] ? strchr(from, s.p[i]) : NULL;
		rc = hit ? jinja_emit(r, to[hit - from], strlen(to[hit - from]))
			 : jinja_emit(r, s.p + i, 1);
	}
	if (!rc)
		rc = jinja_capture(r, mark, out);
	out->markup = 1;
	return rc;
}
