// tok_json.c - a cursor over the JSON of tokenizer.json.
// A vocabulary is hundreds of thousands of members: it is read in place, not
// built as a tree.  Small values become jansson values.
#include "core/text/tokenizer/tok.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int32_t tok_json_fail(const struct tok_json *j, const char *what)
{
	const char *p, *line = j->base;
	size_t lines = 1;

	for (p = j->base; p < j->p; p++) {
		if (*p == '\n') {
			lines++;
			line = p + 1;
		}
	}
	return genai_fail(j->err, GENAI_E_FORMAT, "%s:%zu:%zu: %s", j->name,
			  lines, (size_t)(j->p - line) + 1, what);
}

int tok_json_peek(struct tok_json *j)
{
	while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' ||
				 *j->p == '\t' || *j->p == '\r'))
		j->p++;
	return j->p < j->end ? (uint8_t)*j->p : -1;
}

int32_t tok_json_expect(struct tok_json *j, int c)
{
	char what[] = "expected 'x'";

	if (tok_json_peek(j) == c) {
		j->p++;
		return 0;
	}
	what[10] = (char)c;
	return tok_json_fail(j, what);
}

static int hex4(struct tok_json *j, uint32_t *out)
{
	uint32_t v = 0;
	int i;

	if (j->end - j->p < 4)
		return -1;
	for (i = 0; i < 4; i++) {
		char c = j->p[i];

		if (c >= '0' && c <= '9')
			v = v * 16 + (uint32_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v * 16 + (uint32_t)(c - 'a' + 10);
		else if (c >= 'A' && c <= 'F')
			v = v * 16 + (uint32_t)(c - 'A' + 10);
		else
			return -1;
	}
	j->p += 4;
	*out = v;
	return 0;
}

static int32_t unicode_escape(struct tok_json *j, struct tok_buf *out)
{
	uint32_t hi, lo;

	if (hex4(j, &hi))
		return tok_json_fail(j, "bad \\u escape");
	if (hi >= 0xd800 && hi < 0xe000) {
		if (hi >= 0xdc00 || j->end - j->p < 6 || j->p[0] != '\\' ||
		    j->p[1] != 'u')
			return tok_json_fail(j, "lone surrogate");
		j->p += 2;
		if (hex4(j, &lo) || lo < 0xdc00 || lo >= 0xe000)
			return tok_json_fail(j, "lone surrogate");
		hi = 0x10000 + ((hi - 0xd800) << 10) + (lo - 0xdc00);
	}
	tok_buf_char(out, hi);
	return 0;
}

static int32_t escape(struct tok_json *j, struct tok_buf *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at;

	if (j->p == j->end)
		return tok_json_fail(j, "string without end");
	if (*j->p == 'u') {
		j->p++;
		return unicode_escape(j, out);
	}
	at = *j->p ? strchr(from, *j->p) : NULL;
	if (!at)
		return tok_json_fail(j, "bad escape");
	tok_buf_add(out, to + (at - from), 1);
	j->p++;
	return 0;
}

int32_t tok_json_string(struct tok_json *j, struct tok_buf *out)
{
	const char *run;
	int32_t rc = tok_json_expect(j, '"');

	if (rc)
		return rc;
	for (;;) {
		run = j->p;
		while (j->p < j->end && *j->p != '"' && *j->p != '\\' &&
		       (uint8_t)*j->p >= 0x20)
			j->p++;
		if (j->p == j->end)
			return tok_json_fail(j, "string without end");
		tok_buf_add(out, run, (size_t)(j->p - run));
		if (*j->p == '"')
			break;
		if (*j->p != '\\')
			return tok_json_fail(j, "control character in string");
		j->p++;
		rc = escape(j, out);
		if (rc)
			return rc;
	}
	j->p++;
	return out->failed ? tok_nomem(j->err) : 0;
}

int32_t tok_json_uint(struct tok_json *j, uint32_t below, uint32_t *out)
{
	const char *start;
	uint32_t v = 0;

	tok_json_peek(j);
	start = j->p;
	while (j->p < j->end && *j->p >= '0' && *j->p <= '9' && v < below)
		v = v * 10 + (uint32_t)(*j->p++ - '0');
	if (j->p == start || (*start == '0' && j->p - start > 1) || v >= below)
		return tok_json_fail(j, "not an id below 4194304");
	*out = v;
	return 0;
}

// 10^n, exactly rounded; the spelling has no point, so no locale matters.
static double power10(int n)
{
	char text[16];

	snprintf(text, sizeof(text), "1e%d", n);
	return strtod(text, NULL);
}

// As the reference's parser rounds: the digits that fit 64 bits, then one
// division.  A correctly rounded value would break ties between paths of equal
// score the other way.
static double scaled(uint64_t digits, int exponent)
{
	double f = (double)digits;

	while (exponent < -308 && f != 0) {
		f /= 1e308;
		exponent += 308;
	}
	if (exponent < -308)
		return 0;
	return exponent < 0 ? f / power10(-exponent) : f * power10(exponent);
}

static bool is_digit(const struct tok_json *j)
{
	return j->p < j->end && *j->p >= '0' && *j->p <= '9';
}

// A run of digits into *v, as far as it fits; returns how many there were, and
// in *lost how many did not fit.
static int digits(struct tok_json *j, uint64_t *v, int *lost)
{
	int count = 0;

	for (; is_digit(j) && count < 1000000; j->p++, count++) {
		uint64_t next;

		if (*lost || __builtin_mul_overflow(*v, 10, &next) ||
		    __builtin_add_overflow(next, (unsigned)(*j->p - '0'),
					   &next))
			++*lost;
		else
			*v = next;
	}
	return count;
}

int32_t tok_json_double(struct tok_json *j, double *out)
{
	uint64_t v = 0, e = 0;
	int lost = 0, lost_e = 0, exponent, n, sign = 1;
	bool negative = tok_json_peek(j) == '-', zero;

	j->p += negative;
	zero = j->p < j->end && *j->p == '0';
	n = digits(j, &v, &lost);
	if (!n || (zero && n > 1))
		return tok_json_fail(j, "not a number");
	exponent = lost;
	if (j->p < j->end && *j->p == '.') {
		j->p++;
		n = digits(j, &v, &lost);
		if (!n)
			return tok_json_fail(j, "not a number");
		exponent = lost - n;
	}
	if (j->p < j->end && (*j->p == 'e' || *j->p == 'E')) {
		j->p++;
		if (j->p < j->end && (*j->p == '-' || *j->p == '+'))
			sign = *j->p++ == '-' ? -1 : 1;
		if (!digits(j, &e, &lost_e))
			return tok_json_fail(j, "not a number");
		exponent += sign * (int)(e < 100000 ? e : 100000);
	}
	if (exponent > 308 && v)
		return tok_json_fail(j, "number out of range");
	*out = scaled(v, exponent > 308 ? 0 : exponent);
	if (*out > 1.7976931348623157e308)
		return tok_json_fail(j, "number out of range");
	*out = negative ? -*out : *out;
	return 0;
}

int32_t tok_json_next(struct tok_json *j, int close, bool *first)
{
	int c = tok_json_peek(j);

	if (c == close) {
		j->p++;
		return 0;
	}
	if (*first) {
		*first = false;
		return 1;
	}
	if (c != ',')
		return tok_json_fail(j, close == ']' ? "expected ',' or ']'"
						     : "expected ',' or '}'");
	j->p++;
	if (tok_json_peek(j) == close)
		return tok_json_fail(j, "comma before the closing bracket");
	return 1;
}

static int32_t skip_string(struct tok_json *j)
{
	for (j->p++; j->p < j->end && *j->p != '"'; j->p++)
		if (*j->p == '\\')
			j->p++;
	if (j->p >= j->end) {
		j->p = j->end;
		return tok_json_fail(j, "string without end");
	}
	j->p++;
	return 0;
}

// A number or a word: the reader of the value looks inside.
static int32_t skip_scalar(struct tok_json *j)
{
	const char *start = j->p;

	while (j->p < j->end && *j->p && !strchr(" \t\r\n,:]}[{\"", *j->p))
		j->p++;
	return j->p == start ? tok_json_fail(j, "expected a value") : 0;
}

int32_t tok_json_skip(struct tok_json *j)
{
	char open[TOK_MAX_DEPTH];
	size_t depth = 0;
	int32_t rc;
	int c;

	do {
		c = tok_json_peek(j);
		if (c == '{' || c == '[') {
			if (depth == TOK_MAX_DEPTH)
				return tok_json_fail(j,
						     "nested deeper than 64");
			open[depth++] = c == '{' ? '}' : ']';
			j->p++;
		} else if (c == '}' || c == ']') {
			if (!depth || open[--depth] != c)
				return tok_json_fail(j, "unexpected bracket");
			j->p++;
		} else if (c == '"') {
			rc = skip_string(j);
			if (rc)
				return rc;
		} else if (depth && (c == ',' || c == ':')) {
			j->p++;
		} else {
			rc = skip_scalar(j);
			if (rc)
				return rc;
		}
	} while (depth);
	return 0;
}

// true, false, null, or a number.
static int32_t scalar(struct tok_json *j, json_t **out)
{
	static const char *const words[] = {"true", "false", "null"};
	const char *start = j->p;
	int32_t rc = skip_scalar(j);
	size_t n = (size_t)(j->p - start), i;
	double d;

	if (rc)
		return rc;
	for (i = 0; i < 3; i++)
		if (n == strlen(words[i]) && !memcmp(start, words[i], n))
			break;
	if (i < 3) {
		*out = i == 2 ? json_null() : json_boolean(!i);
		return 0;
	}
	j->p = start;
	rc = tok_json_double(j, &d);
	if (rc)
		return rc;
	// Integers of up to 15 digits are exact in a double.
	if (n < 16 && !memchr(start, '.', n) && !memchr(start, 'e', n) &&
	    !memchr(start, 'E', n))
		*out = json_integer((json_int_t)d);
	else
		*out = json_real(d);
	return *out ? 0 : tok_nomem(j->err);
}

static int32_t string_value(struct tok_json *j, json_t **out)
{
	struct tok_buf text = {0};
	int32_t rc = tok_json_string(j, &text);

	if (!rc) {
		*out = json_stringn_nocheck(text.n ? text.p : "", text.n);
		rc = *out ? 0 : tok_nomem(j->err);
	}
	tok_buf_free(&text);
	return rc;
}

static int32_t value(struct tok_json *j, unsigned depth, json_t **out);

static int32_t array_value(struct tok_json *j, unsigned depth, json_t *array)
{
	bool first = true;
	json_t *v;
	int32_t rc;

	j->p++;
	while ((rc = tok_json_next(j, ']', &first)) > 0) {
		rc = value(j, depth, &v);
		if (rc)
			return rc;
		if (json_array_append_new(array, v))
			return tok_nomem(j->err);
	}
	return rc;
}

int32_t tok_json_key(struct tok_json *j, struct tok_buf *key)
{
	int32_t rc;

	key->n = 0;
	rc = tok_json_string(j, key);
	if (!rc && memchr(key->p, 0, key->n))
		rc = tok_json_fail(j, "NUL in a key");
	tok_buf_add(key, "", 1);
	if (!rc && key->failed)
		rc = tok_nomem(j->err);
	return rc ? rc : tok_json_expect(j, ':');
}

static int32_t object_value(struct tok_json *j, unsigned depth, json_t *object)
{
	struct tok_buf key = {0};
	bool first = true;
	json_t *v;
	int32_t rc;

	j->p++;
	while ((rc = tok_json_next(j, '}', &first)) > 0) {
		rc = tok_json_key(j, &key);
		if (!rc && json_object_get(object, key.p))
			rc = tok_json_fail(j, "duplicate key");
		if (!rc)
			rc = value(j, depth, &v);
		if (!rc && json_object_set_new_nocheck(object, key.p, v))
			rc = tok_nomem(j->err);
		if (rc)
			break;
	}
	tok_buf_free(&key);
	return rc;
}

// jansson's own parser is not used: it aborts when memory runs out.
static int32_t value(struct tok_json *j, unsigned depth, json_t **out)
{
	int c = tok_json_peek(j);
	json_t *v;
	int32_t rc;

	if (c == '"')
		return string_value(j, out);
	if (c != '{' && c != '[')
		return scalar(j, out);
	if (depth == TOK_MAX_DEPTH)
		return tok_json_fail(j, "nested deeper than 64");
	v = c == '{' ? json_object() : json_array();
	if (!v)
		return tok_nomem(j->err);
	rc = c == '{' ? object_value(j, depth + 1, v)
		      : array_value(j, depth + 1, v);
	if (rc)
		json_decref(v);
	else
		*out = v;
	return rc;
}

int32_t tok_json_value(struct tok_json *j, json_t **out)
{
	return value(j, 0, out);
}
