// jinja_html.c - filters that make or take off HTML and addresses.
#include "core/text/template/jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

JINJA_FN(f_forceescape)
{
	struct jinja_value s;
	int rc = jinja_to_str(r, &self, &s);

	return rc ? rc : jinja_text_escape(r, s.s, out);
}

// ---- addresses ----

static int quote(struct jinja_run *r, const struct jinja_value *v, bool query)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "abcdefghijklmnopqrstuvwxyz0123456789_.-~";
	struct jinja_value s;
	char b[4];
	int rc = jinja_to_str(r, v, &s);

	if (!rc)
		rc = jinja_charge(r, s.s.n / 8);
	for (size_t i = 0; !rc && i < s.s.n; i++) {
		const char c = s.s.p[i];

		if ((c && strchr(plain, c)) || (c == '/' && !query))
			rc = jinja_emit(r, &c, 1);
		else if (c == ' ' && query)
			rc = jinja_emit(r, "+", 1);
		else
			rc = jinja_emit(
				r, b,
				(size_t)sprintf(b, "%%%02X", (unsigned char)c));
	}
	return rc;
}

JINJA_FN(f_urlencode)
{
	struct jinja_value pairs = self;
	size_t mark = r->n_out;
	struct jinja_list l, pair;
	int rc = 0;

	if (self.type != JINJA_DICT && !jinja_is_list(&self)) {
		rc = quote(r, &self, false);
		return rc ? rc : jinja_capture(r, mark, out);
	}
	if (self.type == JINJA_DICT)
		rc = jinja_dict_view(r, self.dict, 2, &pairs);
	if (!rc)
		rc = jinja_items(r, &pairs, &l);
	for (size_t i = 0; !rc && i < l.n; i++) {
		rc = jinja_items(r, &l.v[i], &pair);
		if (!rc && pair.n != 2)
			rc = jinja_raise(r, "ValueError: urlencode needs "
					    "pairs");
		if (!rc && i)
			rc = jinja_emit(r, "&", 1);
		if (!rc)
			rc = quote(r, &pair.v[0], true);
		if (!rc)
			rc = jinja_emit(r, "=", 1);
		if (!rc)
			rc = quote(r, &pair.v[1], true);
	}
	return rc ? rc : jinja_capture(r, mark, out);
}

JINJA_FN(f_xmlattr)
{
	size_t mark = r->n_out, n = 0;
	struct jinja_value s;
	int rc = 0;

	if (self.type != JINJA_DICT)
		return jinja_raise(r, "TypeError: xmlattr needs a mapping");
	for (size_t i = 0; !rc && i < self.dict->n; i++) {
		const struct jinja_value *kv = &self.dict->kv[2 * i];
		bool last = false;

		if (kv[1].type == JINJA_NONE || kv[1].type == JINJA_UNDEF)
			continue;
		rc = jinja_to_str(r, &kv[0], &s);
		for (size_t k = 0; !rc && k < s.s.n; k++)
			if (strchr(" \t\n\f\r/>=", s.s.p[k]))
				return jinja_raise(r, "ValueError: xmlattr: an "
						      "invalid character in a "
						      "key");
		if (!rc &&
		    (n++ || a[0].type == JINJA_MISSING || jinja_true(&a[0])))
			rc = jinja_emit(r, " ", 1);
		for (int k = 0; !rc && k < 2; k++, last = true) {
			struct jinja_value e;

			rc = jinja_to_str(r, &kv[k], &s);
			if (!rc)
				rc = jinja_text_escape(r, s.s, &e);
			if (!rc)
				rc = jinja_emit(r, e.s.p, e.s.n);
			if (!rc)
				rc = jinja_emit(r, last ? "\"" : "=\"",
						last ? 1 : 2);
		}
	}
	return rc ? rc : jinja_capture(r, mark, out);
}

// ---- tags off ----

// Cuts what lies between from and to, both of them too, over and over.
static size_t cut(char *s, size_t n, const char *from, const char *to)
{
	size_t at = 0, kept = 0, f = strlen(from), t = strlen(to);

	while (at < n) {
		char *a = memmem(s + at, n - at, from, f), *b = NULL;

		if (a)
			b = memmem(a, n - (size_t)(a - s), to, t);
		if (!b)
			a = s + n;
		memmove(s + kept, s + at, (size_t)(a - s) - at);
		kept += (size_t)(a - s) - at;
		at = b ? (size_t)(b - s) + t : n;
	}
	return kept;
}

// An entity at s ("&"...): its bytes; 0 where it is plain text.
static int entity(struct jinja_run *r, struct jinja_str s, size_t *out_n)
{
	static const struct {
		const char *name, *text;
	} known[] = {{"amp", "&"},   {"lt", "<"},     {"gt", ">"},
		     {"quot", "\""}, {"apos", "'"},   {"nbsp", "\u00a0"},
		     {"copy", "©"},  {"hellip", "…"}, {"ndash", "–"},
		     {"mdash", "—"}};
	const char *end = memchr(s.p, ';', s.n < 34 ? s.n : 34);
	size_t n = end ? (size_t)(end - s.p) - 1 : 0;
	char b[4], name[40];
	unsigned long c;

	*out_n = 0;
	if (n < 1)
		return 0;
	snprintf(name, sizeof(name), "%.*s", (int)n, s.p + 1);
	if (name[strspn(name, "#0123456789abcdefghijklmnopqrstuvwxyz"
			      "ABCDEFGHIJKLMNOPQRSTUVWXYZ")])
		return 0;
	*out_n = n + 2;
	if (*name == '#') {
		bool hex = name[1] == 'x' || name[1] == 'X';

		c = strtoul(name + 1 + hex, NULL, hex ? 16 : 10);
		if (!c || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
			c = 0xfffd;
		return jinja_emit(r, b, jinja_put((int32_t)c, b));
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i].name, name))
			return jinja_emit(r, known[i].text,
					  strlen(known[i].text));
	return jinja_raise(r, "striptags: the entity &%s; is not supported",
			   name);
}

JINJA_FN(f_striptags)
{
	struct jinja_value s, t;
	size_t mark = r->n_out, at = 0, from, n;
	bool space = false, any = false;
	char *p;
	int rc = jinja_to_str(r, &self, &s);

	if (!rc)
		rc = jinja_charge(r, s.s.n / 4);
	if (rc)
		return rc;
	p = jinja_alloc_text(&r->arena, s.s.n);
	if (!p)
		return jinja_nomem(r);
	if (s.s.n)
		memcpy(p, s.s.p, s.s.n);
	n = cut(p, s.s.n, "<!--", "-->");
	n = cut(p, n, "<", ">");
	while (!rc && at < n) {
		from = at;
		if (jinja_is_space(jinja_next(p, n, &at))) {
			space = true;
			continue;
		}
		if (space && any)
			rc = jinja_emit(r, " ", 1);
		space = false;
		any = true;
		if (!rc)
			rc = jinja_emit(r, p + from, at - from);
	}
	if (!rc)
		rc = jinja_capture(r, mark, &t);
	for (at = 0; !rc && at < t.s.n; at += n) {
		n = 0;
		if (t.s.p[at] == '&')
			rc = entity(r,
				    (struct jinja_str){t.s.p + at, t.s.n - at},
				    &n);
		if (!rc && !n) {
			n = 1;
			rc = jinja_emit(r, t.s.p + at, 1);
		}
	}
	return rc ? rc : jinja_capture(r, mark, out);
}

const struct jinja_builtin jinja_html_filters[] = {
	{"forceescape", f_forceescape, "", 0},
	{"urlencode", f_urlencode, "", 0},
	{"xmlattr", f_xmlattr, "autospace", 0},
	{"striptags", f_striptags, "", 0},
	{NULL, NULL, NULL, 0},
};
