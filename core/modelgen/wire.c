// wire.c - writing protobuf messages into a growing buffer.
#include "core/modelgen/wire.h"

#include <stdlib.h>
#include <string.h>

#define WIRE_VARINT 0u
#define WIRE_LEN 2u
#define WIRE_FIXED32 5u

void genai_wire_free(struct genai_wire *w)
{
	free(w->data);
	memset(w, 0, sizeof(*w));
}

static bool reserve(struct genai_wire *w, size_t more)
{
	size_t need, cap;
	uint8_t *p;

	if (w->failed)
		return false;
	if (__builtin_add_overflow(w->bytes, more, &need) ||
	    need > SIZE_MAX / 2) {
		w->failed = true;
		return false;
	}
	if (need <= w->capacity)
		return true;
	cap = need * 2 < 4096 ? 4096 : need * 2;
	p = realloc(w->data, cap);
	if (!p) {
		w->failed = true;
		return false;
	}
	w->data = p;
	w->capacity = cap;
	return true;
}

static size_t put_varint(uint8_t *p, uint64_t v)
{
	size_t n = 0;

	while (v >= 0x80) {
		p[n++] = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	p[n++] = (uint8_t)v;
	return n;
}

static void append_varint(struct genai_wire *w, uint64_t v)
{
	if (reserve(w, 10))
		w->bytes += put_varint(w->data + w->bytes, v);
}

static void append(struct genai_wire *w, const void *data, size_t bytes)
{
	if (bytes && reserve(w, bytes)) {
		memcpy(w->data + w->bytes, data, bytes);
		w->bytes += bytes;
	}
}

void genai_wire_int(struct genai_wire *w, uint32_t field, int64_t v)
{
	append_varint(w, (uint64_t)field << 3 | WIRE_VARINT);
	append_varint(w, (uint64_t)v);
}

void genai_wire_float(struct genai_wire *w, uint32_t field, float v)
{
	uint8_t le[4];
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	for (unsigned i = 0; i < 4; i++)
		le[i] = (uint8_t)(bits >> 8 * i);
	append_varint(w, (uint64_t)field << 3 | WIRE_FIXED32);
	append(w, le, sizeof(le));
}

void genai_wire_bytes(struct genai_wire *w, uint32_t field, const void *data,
		      size_t bytes)
{
	append_varint(w, (uint64_t)field << 3 | WIRE_LEN);
	append_varint(w, bytes);
	append(w, data, bytes);
}

void genai_wire_string(struct genai_wire *w, uint32_t field, const char *s)
{
	genai_wire_bytes(w, field, s, strlen(s));
}

void genai_wire_raw(struct genai_wire *w, const struct genai_wire *from)
{
	append(w, from->data, from->bytes);
	w->failed |= from->failed;
}

size_t genai_wire_begin(struct genai_wire *w, uint32_t field)
{
	append_varint(w, (uint64_t)field << 3 | WIRE_LEN);
	return w->bytes;
}

void genai_wire_end(struct genai_wire *w, size_t start)
{
	uint8_t len[10];
	size_t body, n;

	// The length is known only now: the body moves up to make room for it.
	if (w->failed || !reserve(w, sizeof(len)))
		return;
	body = w->bytes - start;
	n = put_varint(len, body);
	memmove(w->data + start + n, w->data + start, body);
	memcpy(w->data + start, len, n);
	w->bytes += n;
}
