// ini.c - our line reader in front of inih.
// inih (as distributions build it) cuts long lines, swallows indented keys and
// stops at a NUL, all silently.  So it never sees the file: this reader checks
// and cleans every line and hands inih short lines "key=piece", a piece of the
// escaped value each, which the handler joins.
#include "core/config/ini.h"

#include <ini.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

struct reader {
	const char *path;
	const char *pos, *end; // what is left of the file
	uint32_t line;	       // number of the line in work
	char section[GENAI_INI_MAX_NAME + 1];
	char key[GENAI_INI_MAX_NAME + 1];
	const char *value, *value_end; // not yet handed to inih
	bool pending;		       // pieces of the value are left
	char *joined;		       // unescaped value, grows by pieces
	size_t joined_len;
	genai_ini_fn fn;
	void *ctx;
	struct genai_error *err;
	int32_t rc;
};

#define ini_fail(r, ...)                                                       \
	((r)->rc = genai_fail((r)->err, GENAI_E_CONFIG, __VA_ARGS__))

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

size_t genai_ini_name_length(const char *s)
{
	size_t n = 0;

	while ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') ||
	       (s[n] >= '0' && s[n] <= '9') || s[n] == '_' || s[n] == '-')
		n++;
	return n;
}

// Length of the UTF-8 sequence at s (1-4), 0 if it is not one.
static int utf8_length(const unsigned char *s, size_t left)
{
	uint32_t c = s[0];
	int n, i;

	if (c < 0x80)
		return 1;
	n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
	if (c < 0xc2 || c > 0xf4 || left < (size_t)n)
		return 0;
	c &= 0x7fu >> n;
	for (i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if ((n == 3 && c < 0x800) || (c >= 0xd800 && c < 0xe000) ||
	    (n == 4 && (c < 0x10000 || c > 0x10ffff)))
		return 0;
	return n;
}

// Refuse what editors and shells produce by accident, before any line is read.
static int32_t check_encoding(struct reader *r)
{
	const unsigned char *s = (const unsigned char *)r->pos;
	size_t left = (size_t)(r->end - r->pos);
	uint32_t line = 1;
	int n;

	if (left >= 2 &&
	    (memcmp(s, "\xff\xfe", 2) == 0 || memcmp(s, "\xfe\xff", 2) == 0))
		return ini_fail(r, "%s:1: UTF-16; save the file as UTF-8",
				r->path);
	if (left >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0) {
		s += 3;
		left -= 3;
		r->pos += 3;
	}
	for (; left; s += n, left -= (size_t)n) {
		if (!*s)
			return ini_fail(r, "%s:%u: NUL byte", r->path, line);
		if (*s == '\r' && (left < 2 || s[1] != '\n'))
			return ini_fail(r,
					"%s:%u: carriage return without line "
					"feed",
					r->path, line);
		n = utf8_length(s, left);
		if (!n)
			return ini_fail(r, "%s:%u: not UTF-8", r->path, line);
		line += *s == '\n';
	}
	return 0;
}

// True if only blanks and perhaps a comment are in [p, end).
static bool is_rest_empty(const char *p, const char *end)
{
	const char *s = p;

	while (s < end && is_blank(*s))
		s++;
	return s == end || ((*s == ';' || *s == '#') && s > p);
}

static int32_t read_section(struct reader *r, const char *p, const char *end)
{
	const char *close = memchr(p, ']', (size_t)(end - p));
	struct genai_ini_item item = {r->section, NULL, NULL, r->line};
	size_t n = 0;

	if (!close || (close + 1 < end && !is_rest_empty(close + 1, end)))
		return ini_fail(r, "%s:%u: expected [section] alone on a line",
				r->path, r->line);
	// Blanks around and between words count as one or none.
	for (p++; p < close; p++) {
		if (is_blank(*p)) {
			if (n && p + 1 < close && !is_blank(p[1]))
				r->section[n++] = ' ';
		} else if (genai_ini_name_length((char[]){*p, 0})) {
			r->section[n++] = *p;
		} else {
			return ini_fail(r,
					"%s:%u: section names have letters, "
					"digits, '_' and '-'",
					r->path, r->line);
		}
		if (n == GENAI_INI_MAX_NAME)
			return ini_fail(r,
					"%s:%u: section name of %u bytes or "
					"more",
					r->path, r->line, GENAI_INI_MAX_NAME);
	}
	r->section[n] = 0;
	r->rc = r->fn(r->ctx, &item, r->err);
	return r->rc;
}

// Set value and value_end inside [p, end): quotes taken off, or the comment and
// the blanks around.
static int32_t read_value(struct reader *r, const char *p, const char *end)
{
	const char *s;

	while (p < end && is_blank(*p))
		p++;
	if (p < end && *p == '"') {
		s = memchr(p + 1, '"', (size_t)(end - p - 1));
		if (!s)
			return ini_fail(r, "%s:%u: closing '\"' is missing",
					r->path, r->line);
		if (!is_rest_empty(s + 1, end))
			return ini_fail(r, "%s:%u: text after the closing '\"'",
					r->path, r->line);
		r->value = p + 1;
		r->value_end = s;
		return 0;
	}
	// p[-1] is the '=' or a blank.
	for (s = p; s < end; s++)
		if ((*s == ';' || *s == '#') && is_blank(s[-1]))
			break;
	while (s > p && is_blank(s[-1]))
		s--;
	r->value = p;
	r->value_end = s;
	return 0;
}

static int32_t read_key(struct reader *r, const char *p, const char *end)
{
	const char *eq = memchr(p, '=', (size_t)(end - p));
	size_t n = eq ? (size_t)(eq - p) : 0;

	if (!eq)
		return ini_fail(r, "%s:%u: expected key = value", r->path,
				r->line);
	while (n && is_blank(p[n - 1]))
		n--;
	if (n > GENAI_INI_MAX_NAME)
		return ini_fail(r, "%s:%u: key name of more than %u bytes",
				r->path, r->line, GENAI_INI_MAX_NAME);
	memcpy(r->key, p, n);
	r->key[n] = 0;
	if (!n || genai_ini_name_length(r->key) != n)
		return ini_fail(r,
				"%s:%u: key '%s': keys have letters, digits, "
				"'_' and '-'",
				r->path, r->line, r->key);
	r->pending = true;
	r->joined_len = 0;
	return read_value(r, eq + 1, end);
}

// Take the next line of the file.
static int32_t read_line(struct reader *r)
{
	const char *p = r->pos;
	const char *end = memchr(p, '\n', (size_t)(r->end - p));

	r->line++;
	if (!end)
		end = r->end;
	r->pos = end < r->end ? end + 1 : end;
	if (end - p > (ptrdiff_t)GENAI_INI_MAX_LINE)
		return ini_fail(r, "%s:%u: line of %zu bytes, at most %u",
				r->path, r->line, (size_t)(end - p),
				GENAI_INI_MAX_LINE);
	if (end > p && end[-1] == '\r')
		end--;
	while (p < end && is_blank(*p))
		p++;
	while (end > p && is_blank(end[-1]))
		end--;
	if (p == end || *p == ';' || *p == '#')
		return 0;
	return *p == '[' ? read_section(r, p, end) : read_key(r, p, end);
}

// inih's line source.  One "key=piece" line per call; NULL at the end of the
// file and on errors.
static char *next_piece(char *buf, int cap, void *stream)
{
	struct reader *r = stream;
	int n;

	while (!r->pending && !r->rc && r->pos < r->end)
		read_line(r);
	if (!r->pending || r->rc)
		return NULL;
	n = snprintf(buf, (size_t)cap, "%s=", r->key);
	while (r->value < r->value_end && n + 5 < cap) {
		unsigned char c = (unsigned char)*r->value++;

		n += snprintf(buf + n, (size_t)(cap - n), "%02x", c);
	}
	memcpy(buf + n, "\n", 2);
	return buf;
}

static int hex(char c)
{
	return c <= '9' ? c - '0' : c - 'a' + 10;
}

// inih's handler: join the pieces; the last one makes an item.
static int take_piece(void *user, const char *section, const char *name,
		      const char *value)
{
	struct reader *r = user;
	struct genai_ini_item item = {r->section, name, r->joined, r->line};
	size_t n = strlen(value);

	(void)section;
	if (strcmp(name, r->key) != 0 || n % 2 ||
	    r->joined_len + n / 2 > GENAI_INI_MAX_LINE) {
		ini_fail(r, "%s:%u: not understood by inih", r->path, r->line);
		return 0;
	}
	for (; *value; value += 2)
		r->joined[r->joined_len++] =
			(char)(hex(value[0]) << 4 | hex(value[1]));
	if (r->value < r->value_end)
		return 1;
	r->joined[r->joined_len] = 0;
	r->pending = false;
	r->rc = r->fn(r->ctx, &item, r->err);
	return !r->rc;
}

int32_t genai_ini_parse(const char *path, const char *text, size_t bytes,
			genai_ini_fn fn, void *ctx, struct genai_error *err)
{
	struct reader r = {.path = path,
			   .pos = text,
			   .end = text + bytes,
			   .fn = fn,
			   .ctx = ctx,
			   .err = err};
	int rc;

	if (bytes > GENAI_INI_MAX_BYTES)
		return ini_fail(&r, "%s: %zu bytes, at most %u", path, bytes,
				GENAI_INI_MAX_BYTES);
	if (check_encoding(&r))
		return r.rc;
	r.joined = malloc(GENAI_INI_MAX_LINE + 1);
	if (!r.joined)
		return genai_fail(err, GENAI_E_NOMEM, "%s: out of memory",
				  path);
	rc = ini_parse_stream(next_piece, &r, take_piece, &r);
	if (rc && !r.rc)
		ini_fail(&r, "%s:%u: not understood by inih", path, r.line);
	free(r.joined);
	return r.rc;
}
