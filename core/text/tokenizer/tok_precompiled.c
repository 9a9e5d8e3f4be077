// tok_precompiled.c - SentencePiece's precompiled character map: a double-array
// trie from byte strings to replacements.
// Applied as the tokenizers library does, by grapheme and then by character.
#include "core/text/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct tok_charsmap {
	uint32_t *trie;
	size_t units;
	char *text; // replacements, each ended by NUL
	size_t text_n;
};

static int base64_value(char c)
{
	static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				       "abcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(alphabet, c) : NULL;

	return at ? (int)(at - alphabet) : -1;
}

static int32_t base64(const struct tok_load *l, const char *p, size_t n,
		      struct tok_buf *out)
{
	uint32_t bits = 0;
	size_t i, have = 0;

	while (n && p[n - 1] == '=')
		n--;
	for (i = 0; i < n; i++) {
		int v = base64_value(p[i]);
		char byte;

		if (v < 0)
			return tok_bad(l, "precompiled_charsmap: not base64");
		bits = bits << 6 | (uint32_t)v;
		have += 6;
		if (have >= 8) {
			have -= 8;
			byte = (char)(bits >> have);
			tok_buf_add(out, &byte, 1);
		}
	}
	return out->failed ? tok_nomem(l->err) : 0;
}

static uint32_t le32(const char *p)
{
	const uint8_t *u = (const uint8_t *)p;

	return u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 |
	       (uint32_t)u[3] << 24;
}

int32_t tok_charsmap_parse(const struct tok_load *l, json_t *j,
			   struct tok_charsmap **out)
{
	json_t *s = json_object_get(j, "precompiled_charsmap");
	struct tok_charsmap *c;
	struct tok_buf raw = {0};
	int32_t rc;
	size_t i, bytes;

	if (!json_is_string(s))
		return tok_bad(l, "precompiled_charsmap: not a string");
	rc = base64(l, json_string_value(s), json_string_length(s), &raw);
	if (rc)
		goto done;
	bytes = raw.n >= 4 ? le32(raw.p) : 0;
	if (raw.n < 8 || bytes < 4 || bytes % 4 || bytes > raw.n - 4 ||
	    tok_utf8_check(raw.p + 4 + bytes, raw.n - 4 - bytes) !=
		    raw.n - 4 - bytes) {
		rc = tok_bad(l, "precompiled_charsmap: malformed");
		goto done;
	}
	rc = tok_nomem(l->err);
	c = calloc(1, sizeof(*c));
	if (!c)
		goto done;
	*out = c;
	c->units = bytes / 4;
	c->text_n = raw.n - 4 - bytes;
	c->trie = malloc(bytes);
	c->text = malloc(c->text_n + 1);
	if (!c->trie || !c->text)
		goto done; // the owner frees *out
	for (i = 0; i < c->units; i++)
		c->trie[i] = le32(raw.p + 4 + 4 * i);
	memcpy(c->text, raw.p + 4 + bytes, c->text_n);
	c->text[c->text_n] = 0;
	rc = 0;
done:
	tok_buf_free(&raw);
	return rc;
}

void tok_charsmap_free(struct tok_charsmap *c)
{
	if (!c)
		return;
	free(c->trie);
	free(c->text);
	free(c);
}

static size_t unit_offset(uint32_t unit)
{
	return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

// The replacement of the shortest prefix of p that has one, or NULL.  That it
// stands for all of p, not for the prefix, is the reference's doing.
static const char *find(const struct tok_charsmap *c, const char *p, size_t n)
{
	size_t at = unit_offset(c->trie[0]), i;
	uint32_t unit;

	for (i = 0; i < n && p[i]; i++) {
		at ^= (uint8_t)p[i];
		if (at >= c->units)
			return NULL;
		unit = c->trie[at];
		if ((unit & (1u << 31 | 0xff)) != (uint8_t)p[i])
			return NULL;
		at ^= unit_offset(unit);
		if (!(unit >> 8 & 1))
			continue;
		if (at >= c->units)
			return NULL;
		unit = c->trie[at] & 0x7fffffff;
		return unit <= c->text_n ? c->text + unit : NULL;
	}
	return NULL;
}

static void put(const struct tok_charsmap *c, const char *p, size_t n,
		struct tok_buf *out)
{
	const char *to = find(c, p, n);

	if (to)
		tok_buf_add(out, to, strlen(to));
	else
		tok_buf_add(out, p, n);
}

static void put_grapheme(const struct tok_charsmap *c, const char *p, size_t n,
			 struct tok_buf *out)
{
	const char *to = n < 6 ? find(c, p, n) : NULL;
	unsigned len;
	size_t i;

	if (to) {
		tok_buf_add(out, to, strlen(to));
		return;
	}
	for (i = 0; i < n; i += len) {
		tok_utf8_get(p + i, n - i, &len);
		put(c, p + i, len, out);
	}
}

void tok_charsmap_apply(const struct tok_charsmap *c, const char *p, size_t n,
			struct tok_buf *out)
{
	utf8proc_int32_t state = 0, prev = 0;
	size_t i, start = 0;
	unsigned len;

	for (i = 0; i < n; i += len) {
		utf8proc_int32_t cp =
			(utf8proc_int32_t)tok_utf8_get(p + i, n - i, &len);

		if (i && utf8proc_grapheme_break_stateful(prev, cp, &state)) {
			put_grapheme(c, p + start, i - start, out);
			start = i;
		}
		prev = cp;
	}
	if (n)
		put_grapheme(c, p + start, n - start, out);
}
