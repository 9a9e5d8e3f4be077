// tok_char.c - growing buffers and the character classes that tokenizers use.
// Does not know: any stage of the pipeline.
#include "core/text/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

char *tok_buf_room(struct tok_buf *b, size_t bytes)
{
	size_t need, cap = b->cap ? b->cap : 64;
	char *p;

	if (b->failed || __builtin_add_overflow(b->n, bytes, &need))
		goto fail;
	b->full = b->max && need > b->max;
	if (b->full)
		goto fail;
	if (need <= b->cap && b->p)
		return b->p + b->n;
	while (cap < need)
		if (__builtin_mul_overflow(cap, 2, &cap))
			goto fail;
	p = realloc(b->p, cap);
	if (!p)
		goto fail;
	b->p = p;
	b->cap = cap;
	return b->p + b->n;
fail:
	b->failed = true;
	return NULL;
}

void tok_buf_add(struct tok_buf *b, const void *data, size_t bytes)
{
	char *to = tok_buf_room(b, bytes);

	if (!to || !bytes)
		return;
	memcpy(to, data, bytes);
	b->n += bytes;
}

void tok_buf_char(struct tok_buf *b, uint32_t cp)
{
	char *to = tok_buf_room(b, 4);

	if (to)
		b->n += (size_t)utf8proc_encode_char((utf8proc_int32_t)cp,
						     (utf8proc_uint8_t *)to);
}

void tok_buf_free(struct tok_buf *b)
{
	free(b->p);
	*b = (struct tok_buf){0};
}

int tok_utf8_step(const char *s, size_t n, uint32_t *cp)
{
	const uint8_t *p = (const uint8_t *)s;
	uint8_t lo = 0x80, hi = 0xbf;
	uint32_t c = p[0];
	int more, i;

	if (c < 0x80) {
		*cp = c;
		return 1;
	}
	if (c < 0xc2 || c > 0xf4)
		return -1;
	more = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
	// The second byte's range excludes overlong forms and surrogates.
	if (c == 0xe0)
		lo = 0xa0;
	else if (c == 0xed)
		hi = 0x9f;
	else if (c == 0xf0)
		lo = 0x90;
	else if (c == 0xf4)
		hi = 0x8f;
	c &= 0x3fu >> more;
	for (i = 1; i <= more; i++) {
		if ((size_t)i >= n)
			return 0;
		if (p[i] < lo || p[i] > hi)
			return -i;
		c = c << 6 | (p[i] & 0x3f);
		lo = 0x80;
		hi = 0xbf;
	}
	*cp = c;
	return more + 1;
}

size_t tok_utf8_check(const char *p, size_t n)
{
	size_t i = 0;
	uint64_t w;
	uint32_t cp;
	int k;

	while (i < n) {
		if (n - i >= 8) {
			memcpy(&w, p + i, 8);
			if (!(w & 0x8080808080808080u)) {
				i += 8;
				continue;
			}
		}
		k = tok_utf8_step(p + i, n - i, &cp);
		if (k <= 0)
			return i;
		i += (size_t)k;
	}
	return n;
}

uint32_t tok_utf8_get(const char *p, size_t n, unsigned *len)
{
	uint32_t cp = 0xfffd;
	int k = tok_utf8_step(p, n, &cp);

	*len = k > 0 ? (unsigned)k : 1;
	return cp;
}

size_t tok_utf8_back(const char *p, size_t n)
{
	while (n && ((uint8_t)p[--n] & 0xc0) == 0x80)
		;
	return n;
}

static utf8proc_category_t category(uint32_t cp)
{
	return utf8proc_category((utf8proc_int32_t)cp);
}

bool tok_is_space(uint32_t cp)
{
	return (cp >= 9 && cp <= 13) || cp == 0x20 || cp == 0x85 ||
	       cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
	       cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f ||
	       cp == 0x3000;
}

bool tok_is_number(uint32_t cp)
{
	utf8proc_category_t c = category(cp);

	return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool tok_is_punct(uint32_t cp)
{
	utf8proc_category_t c = category(cp);

	if (cp < 0x80 && c >= UTF8PROC_CATEGORY_SM && c <= UTF8PROC_CATEGORY_SO)
		return true;
	return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool tok_is_mark(uint32_t cp)
{
	utf8proc_category_t c = category(cp);

	return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool tok_is_word(uint32_t cp)
{
	utf8proc_category_t c = category(cp);

	if ((c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) ||
	    c == UTF8PROC_CATEGORY_PC)
		return true;
	// Join_Control, and the symbols that are Other_Alphabetic.
	return cp == 0x200c || cp == 0x200d || (cp >= 0x24b6 && cp <= 0x24e9) ||
	       (cp >= 0x1f130 && cp <= 0x1f149) ||
	       (cp >= 0x1f150 && cp <= 0x1f169) ||
	       (cp >= 0x1f170 && cp <= 0x1f189);
}

// Bytes that spell themselves; the others follow from U+0100 in order.
static bool is_plain(unsigned b)
{
	return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) ||
	       b >= 0xae;
}

uint32_t tok_byte_char(uint8_t b)
{
	if (is_plain(b))
		return b;
	if (b <= 0x20)
		return 0x100u + b;
	if (b == 0xad)
		return 0x143;
	return 0x121u + (b - 0x7fu);
}

int tok_char_byte(uint32_t cp)
{
	if (cp < 0x100)
		return is_plain(cp) ? (int)cp : -1;
	if (cp <= 0x120)
		return (int)(cp - 0x100);
	if (cp <= 0x142)
		return (int)(cp - 0x121 + 0x7f);
	return cp == 0x143 ? 0xad : -1;
}

void tok_bytes_spell(struct tok_buf *out, const char *p, size_t n)
{
	char *to;
	size_t i;

	if (n > TOK_MAX_FILE * 8ul || !(to = tok_buf_room(out, 2 * n))) {
		out->failed = true;
		return;
	}
	for (i = 0; i < n; i++) {
		uint32_t c = tok_byte_char((uint8_t)p[i]);

		if (c < 0x80) {
			*to++ = (char)c;
			continue;
		}
		*to++ = (char)(0xc0 | c >> 6);
		*to++ = (char)(0x80 | (c & 0x3f));
	}
	out->n = (size_t)(to - out->p);
}

int tok_byte_token(const char *p, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	int value = 0, i;

	if (n != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>')
		return -1;
	for (i = 3; i < 5; i++) {
		char c = p[i];
		const char *at;

		if (c >= 'A' && c <= 'F')
			c = (char)(c - 'A' + 'a');
		at = c ? strchr(digits, c) : NULL;
		if (!at)
			return -1;
		value = value * 16 + (int)(at - digits);
	}
	return value;
}
