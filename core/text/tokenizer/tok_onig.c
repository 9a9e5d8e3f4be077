// tok_onig.c - regular expressions of Oniguruma's Ruby syntax, as
// tokenizer.json spells them, rewritten for PCRE2. The differences that matter:
// class set operations ([a&&b], [a[b]]), \s \w \d \h, script names, \uHHHH, and
// {n,m}+ which is no possessive form there.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/text/tokenizer/tok.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CLASS_DEPTH 8
#define MAX_CODE_POINT 0x10ffffu

// \w; the odd numbers below U+0100 are Oniguruma's.
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xb2\\xb3\\xb9\\xbc-\\xbe"

struct onig {
	const struct tok_load *l;
	const char *re, *p, *end;
	struct tok_buf *out;
	// The last class expanded, as it was and as it became: patterns repeat
	// them.
	struct tok_buf seen[2], became[2];
	unsigned next_seen;
};

static void put(struct tok_buf *b, const char *s)
{
	tok_buf_add(b, s, strlen(s));
}

static int32_t refuse(const struct onig *o, const char *what)
{
	return genai_fail(
		o->l->err, GENAI_E_UNSUPPORTED,
		"%s: regex: %s at byte %zu of %.200s is not supported",
		o->l->name, what, (size_t)(o->p - o->re), o->re);
}

// Escapes that mean a set, as the inside of a class.
static const char *set_escape(char c)
{
	switch (c) {
	case 's':
		return "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}"
		       "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
	case 'w':
		return WORD;
	case 'd':
		return "\\p{Nd}";
	case 'h':
		return "0-9A-Fa-f";
	default:
		return NULL;
	}
}

// The long names in use, and those that PCRE2 spells otherwise.
static const char *const properties[][2] = {
	{"letter", "L"},
	{"uppercaseletter", "Lu"},
	{"lowercaseletter", "Ll"},
	{"titlecaseletter", "Lt"},
	{"modifierletter", "Lm"},
	{"otherletter", "Lo"},
	{"mark", "M"},
	{"nonspacingmark", "Mn"},
	{"number", "N"},
	{"decimalnumber", "Nd"},
	{"punctuation", "P"},
	{"symbol", "S"},
	{"separator", "Z"},
	{"spaceseparator", "Zs"},
	{"other", "C"},
	{"control", "Cc"},
	{"any", "Any"},
	{"alphabetic", "Alphabetic"},
	{"alpha", "Alphabetic"},
	{"whitespace", "White_Space"},
	{"space", "White_Space"},
	{"digit", "Nd"},
	{"upper", "Uppercase"},
	{"uppercase", "Uppercase"},
	{"lower", "Lowercase"},
	{"lowercase", "Lowercase"},
	{"emoji", "Emoji"},
	{"ascii", "ASCII"},
};

// \p{name}, \P{name}, \p{^name}; a name of more than two letters is a script
// unless it is in the table.  PCRE2's own \p{Han} means Script_Extensions.
static int32_t property(struct onig *o, struct tok_buf *out)
{
	char name[32];
	bool negated = *o->p++ == 'P';
	size_t n = 0, i;

	if (o->p == o->end || *o->p++ != '{')
		return refuse(o, "\\p without {");
	if (o->p < o->end && *o->p == '^') {
		negated = !negated;
		o->p++;
	}
	for (; o->p < o->end && *o->p != '}'; o->p++) {
		if (*o->p == ' ' || *o->p == '_' || *o->p == '-')
			continue;
		if (n == sizeof(name) - 1 || !isalnum((uint8_t)*o->p))
			return refuse(o, "property name");
		name[n++] = *o->p;
	}
	if (o->p == o->end)
		return refuse(o, "\\p{ without }");
	o->p++;
	name[n] = 0;
	put(out, negated ? "\\P{" : "\\p{");
	for (i = 0; i < sizeof(properties) / sizeof(*properties); i++) {
		if (!strcasecmp(name, properties[i][0])) {
			put(out, properties[i][1]);
			break;
		}
	}
	if (i == sizeof(properties) / sizeof(*properties)) {
		put(out, n > 2 ? "sc:" : "");
		put(out, name);
	}
	put(out, "}");
	return 0;
}

// \uHHHH
static int32_t code_point(struct onig *o, struct tok_buf *out)
{
	int i;

	o->p++;
	put(out, "\\x{");
	for (i = 0; i < 4; i++, o->p++) {
		if (o->p == o->end || !isxdigit((uint8_t)*o->p))
			return refuse(o, "\\u without four digits");
		tok_buf_add(out, o->p, 1);
	}
	put(out, "}");
	return 0;
}

// The escape at the cursor (on the letter), in or out of a class.
static int32_t escape(struct onig *o, bool in_class, struct tok_buf *out)
{
	char c = *o->p;
	const char *set = set_escape((char)tolower((uint8_t)c));

	if (c == 'p' || c == 'P')
		return property(o, out);
	if (c == 'u')
		return code_point(o, out);
	if (c == 'x' && o->end - o->p > 1 && o->p[1] == '{') {
		put(out, "\\");
		while (o->p < o->end && *o->p != '}')
			tok_buf_add(out, o->p++, 1);
		return 0; // the brace follows as itself
	}
	if (c == 'v') {
		put(out, "\\x0b");
	} else if (c == 'b' && !in_class) {
		put(out, "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD
			 "])(?=[" WORD "]))");
	} else if (c == 'B' && !in_class) {
		put(out, "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD
			 "])(?![" WORD "]))");
	} else if (set && isupper((uint8_t)c) && in_class) {
		// No way to spell the complement of a list inside a class.
		if (c == 'W' || c == 'H')
			return refuse(o, "\\W or \\H in a class");
		put(out, c == 'S' ? "\\P{White_Space}" : "\\P{Nd}");
	} else if (set) {
		put(out, in_class ? "" : isupper((uint8_t)c) ? "[^" : "[");
		put(out, set);
		put(out, in_class ? "" : "]");
	} else if (isalpha((uint8_t)c) &&
		   !strchr(in_class ? "ntrfaebx" : "ntrfaexAzZGRXkK", c)) {
		return refuse(o, "escape");
	} else {
		char pair[2] = {'\\', c};

		// A byte of a longer character stands for itself.
		tok_buf_add(out, pair + ((uint8_t)c >= 0x80),
			    2 - ((uint8_t)c >= 0x80));
	}
	o->p++;
	return 0;
}

static int32_t class(struct onig *o, unsigned depth, struct tok_buf *out,
		     bool *simple);

// A nested class joins a plain union as it is; else the union becomes an
// alternation of one-character patterns in alts.
static int32_t nested(struct onig *o, unsigned depth, struct tok_buf *items,
		      struct tok_buf *alts)
{
	struct tok_buf sub = {0};
	bool simple;
	int32_t rc = class(o, depth + 1, &sub, &simple);

	items->failed |= sub.failed;
	if (!rc && simple && sub.n > 1 && sub.p[1] != '^') {
		tok_buf_add(items, sub.p + 1, sub.n - 2);
	} else if (!rc) {
		tok_buf_str(alts, &sub);
		put(alts, "|");
	}
	tok_buf_free(&sub);
	return rc;
}

// One operand of &&, up to the next && or the closing bracket.
static int32_t operand(struct onig *o, unsigned depth, struct tok_buf *items,
		       struct tok_buf *alts)
{
	const char *start = o->p;
	int32_t rc = 0;

	while (!rc) {
		if (o->p == o->end)
			return refuse(o, "class without ]");
		if ((*o->p == ']' && o->p > start) ||
		    (o->end - o->p > 1 && !memcmp(o->p, "&&", 2)))
			return 0;
		if (*o->p == '[') {
			if (o->end - o->p > 1 && o->p[1] == ':')
				return refuse(o, "POSIX bracket");
			rc = nested(o, depth, items, alts);
		} else if (*o->p == '\\' && o->end - o->p > 1) {
			o->p++;
			rc = escape(o, true, items);
		} else {
			// "]" can only be the first character here.
			put(items, *o->p == ']' ? "\\" : "");
			tok_buf_add(items, o->p++, 1);
		}
	}
	return rc;
}

// (?:[items]|alts), or [items] alone.
static void one_of(struct tok_buf *out, const struct tok_buf *items,
		   const struct tok_buf *alts, bool negated)
{
	out->failed |= alts->failed;
	if (alts->n)
		put(out, negated ? "(?!" : "(?:");
	if (items->n || !alts->n) {
		put(out, negated && !alts->n ? "[^" : "[");
		tok_buf_str(out, items);
		put(out, "]");
	}
	if (!alts->n)
		return;
	put(out, items->n ? "|" : "");
	tok_buf_add(out, alts->p, alts->n - 1); // not the last |
	put(out, negated ? ")(?s:.)" : ")");
}

// The class at the cursor as a pattern of exactly one character.
static int32_t class(struct onig *o, unsigned depth, struct tok_buf *out,
		     bool *simple)
{
	struct tok_buf items = {0}, alts = {0}, parts = {0}, last = {0};
	bool negated = false;
	int32_t rc;

	if (depth == MAX_CLASS_DEPTH)
		return refuse(o, "nesting of classes");
	o->p++;
	if (o->p < o->end && *o->p == '^') {
		negated = true;
		o->p++;
	}
	rc = operand(o, depth, &items, &alts);
	while (!rc && *o->p == '&') {
		// Earlier operands become look-aheads before the last one.
		put(&parts, "(?=");
		one_of(&parts, &items, &alts, false);
		put(&parts, ")");
		items.n = alts.n = 0;
		o->p += 2;
		rc = operand(o, depth, &items, &alts);
	}
	if (!rc) {
		o->p++;
		*simple = !parts.n && !alts.n;
		if (!parts.n) {
			one_of(out, &items, &alts, negated);
		} else {
			one_of(&last, &items, &alts, false);
			put(out, negated ? "(?:(?!" : "(?:");
			tok_buf_str(out, &parts);
			tok_buf_str(out, &last);
			put(out, negated ? ")(?s:.))" : ")");
		}
	}
	tok_buf_free(&items);
	tok_buf_free(&alts);
	tok_buf_free(&parts);
	tok_buf_free(&last);
	return rc;
}

static void put_range(struct tok_buf *out, uint32_t from, uint32_t to)
{
	char text[40];
	int n = snprintf(text, sizeof(text), "\\x{%x}-\\x{%x}", from, to);

	tok_buf_add(out, text, (size_t)n);
}

// All characters that the one-character pattern matches, as one class: a group
// with look-aheads would need stack for every character it repeats over.
static int32_t expand(struct onig *o, const struct tok_buf *pattern,
		      struct tok_buf *out)
{
	struct tok_buf all = {0};
	struct tok_work w = {0};
	struct tok_regex *re = NULL;
	uint32_t cp, first = 0, next = 0;
	size_t at = 0, from, to;
	unsigned len;
	int32_t rc;

	for (cp = 0; cp <= MAX_CODE_POINT; cp++)
		if (cp < 0xd800 || cp >= 0xe000)
			tok_buf_char(&all, cp);
	rc = all.failed ? tok_nomem(o->l->err) : tok_work_init(&w, o->l->err);
	if (!rc)
		rc = tok_regex_compile(o->l, pattern->p, pattern->n, &re);
	put(out, "[");
	while (!rc && (rc = tok_regex_find(re, w.md, all.p, all.n, at, &from,
					   &to, o->l->err)) > 0) {
		cp = tok_utf8_get(all.p + from, all.n - from, &len);
		if (cp != next) {
			if (next)
				put_range(out, first, next - 1);
			first = cp;
		}
		next = cp + 1;
		at = to > from ? to : from + 1;
		rc = 0;
	}
	if (!rc && next)
		put_range(out, first, next - 1);
	put(out, next ? "]" : "^\\p{Any}]");
	tok_regex_free(re);
	tok_work_free(&w);
	tok_buf_free(&all);
	return rc;
}

static int32_t outer_class(struct onig *o)
{
	struct tok_buf pattern = {0}, *seen, *became;
	bool simple = true;
	unsigned i;
	int32_t rc = class(o, 0, &pattern, &simple);

	if (rc || simple || pattern.failed) {
		tok_buf_str(o->out, &pattern);
		goto done;
	}
	for (i = 0; i < 2; i++) {
		seen = o->seen + i;
		if (seen->n == pattern.n &&
		    !memcmp(seen->p, pattern.p, pattern.n)) {
			tok_buf_str(o->out, o->became + i);
			goto done;
		}
	}
	seen = o->seen + o->next_seen;
	became = o->became + o->next_seen;
	o->next_seen ^= 1;
	seen->n = became->n = 0;
	tok_buf_add(&pattern, "", 1); // a NUL for messages, not counted
	pattern.n -= pattern.n > 0;
	rc = pattern.failed ? tok_nomem(o->l->err)
			    : expand(o, &pattern, became);
	if (!rc) {
		tok_buf_str(seen, &pattern);
		tok_buf_str(o->out, became);
	}
done:
	tok_buf_free(&pattern);
	return rc;
}

// What may follow "(?" and be passed on; Ruby's m is PCRE2's s.
static int32_t group(struct onig *o)
{
	static const char *const same[] = {
		"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"};
	size_t i, n;

	for (i = 0; i < sizeof(same) / sizeof(*same); i++) {
		n = strlen(same[i]);
		if ((size_t)(o->end - o->p) >= n && !memcmp(o->p, same[i], n)) {
			tok_buf_add(o->out, o->p, n);
			o->p += n;
			return 0;
		}
	}
	// For the rest of its group only: the same to both at the beginning.
	if (o->p == o->re && o->end - o->p > 4 && !memcmp(o->p, "(?i)", 4)) {
		put(o->out, "(?i)");
		o->p += 4;
		return 0;
	}
	if (o->end - o->p > 1 && (o->p[1] == '?' || o->p[1] == '*'))
		return refuse(o, "group");
	put(o->out, "(");
	o->p++;
	return 0;
}

// {n}, {n,}, {n,m}, {,m}; anything else is a literal brace.
static int32_t interval(struct onig *o)
{
	const char *p = o->p + 1;
	size_t low = 0, high = 0;

	while (p < o->end && isdigit((uint8_t)*p))
		p++, low++;
	if (p < o->end && *p == ',')
		for (p++; p < o->end && isdigit((uint8_t)*p); p++)
			high++;
	if (p >= o->end || *p != '}' || (!low && !high)) {
		put(o->out, "\\{");
		o->p++;
		return 0;
	}
	p++;
	if (p < o->end && *p == '+') {
		// Repeated, not possessive: {1,m}+ is +, {0,m}+ is *.
		if (low > 1 || (low && o->p[1] > '1') || !high)
			return refuse(o, "repeated interval");
		put(o->out, low && o->p[1] == '1' ? "+" : "*");
		o->p = p + 1;
		return 0;
	}
	put(o->out, low ? "{" : "{0");
	tok_buf_add(o->out, o->p + 1, (size_t)(p - o->p) - 1);
	o->p = p;
	return 0;
}

int32_t tok_onig_translate(const struct tok_load *l, const char *re, size_t n,
			   struct tok_buf *out)
{
	struct onig o = {l, re, re, re + n, out, {{0}}, {{0}}, 0};
	int32_t rc = 0;
	size_t i;

	while (!rc && o.p < o.end) {
		if (*o.p == '\\' && o.end - o.p > 1) {
			o.p++;
			rc = escape(&o, false, out);
		} else if (*o.p == '[') {
			rc = outer_class(&o);
		} else if (*o.p == '(') {
			rc = group(&o);
		} else if (*o.p == '{') {
			rc = interval(&o);
		} else {
			tok_buf_add(out, o.p++, 1);
		}
	}
	for (i = 0; i < 2; i++) {
		tok_buf_free(o.seen + i);
		tok_buf_free(o.became + i);
	}
	tok_buf_add(out, "", 1);
	out->n -= out->n > 0;
	if (!rc && out->failed)
		rc = tok_nomem(l->err);
	return rc;
}
