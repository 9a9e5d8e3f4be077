// jinja_mem.c - memory, output and failure of the template engine.
// Owns: the arena, the work budget, the growing output.
#include "core/text/template/jinja.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

#define CHUNK_BYTES 65536u
#define ALIGN 8u

struct jinja_chunk {
	struct jinja_chunk *next;
	_Alignas(ALIGN) char data[];
};

char *jinja_alloc_text(struct jinja_arena *m, size_t bytes)
{
	struct jinja_chunk *c;
	size_t size = CHUNK_BYTES;
	char *p;

	if (!m->cur || (size_t)(m->end - m->cur) < bytes) {
		// Room to grow in place, see jinja_binary's concatenation.
		if (bytes > CHUNK_BYTES / 4)
			size = bytes + bytes / 2 + CHUNK_BYTES;
		if (bytes > m->limit || m->used > m->limit - bytes) {
			m->full = true;
			return NULL;
		}
		c = malloc(sizeof(*c) + size);
		if (!c)
			return NULL;
		c->next = m->chunks;
		m->chunks = c;
		m->cur = c->data;
		m->end = c->data + size;
		m->used += size;
	}
	p = m->cur;
	m->cur += bytes;
	return p;
}

void *jinja_alloc(struct jinja_arena *m, size_t bytes)
{
	size_t gap = m->cur ? -(uintptr_t)m->cur % ALIGN : 0;
	char *p;

	if (bytes > m->limit) {
		m->full = true;
		return NULL;
	}
	bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
	if ((size_t)(m->end - m->cur) >= bytes + gap)
		m->cur += gap;
	else
		m->cur = m->end;
	if (!bytes)
		bytes = ALIGN;
	p = jinja_alloc_text(m, bytes);
	if (p)
		memset(p, 0, bytes);
	return p;
}

void jinja_arena_free(struct jinja_arena *m)
{
	while (m->chunks) {
		struct jinja_chunk *c = m->chunks;

		m->chunks = c->next;
		free(c);
	}
	m->cur = m->end = NULL;
	m->used = 0;
}

int jinja_fail(struct jinja_run *r, int32_t code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	genai_error_vfill(r->err, code, __FILE__, __LINE__, fmt, ap);
	va_end(ap);
	genai_error_prefix(r->err, "%s:%u", r->name, r->line);
	return code;
}

int jinja_nomem(struct jinja_run *r)
{
	if (r->arena.full)
		return jinja_fail(r, GENAI_E_LIMIT,
				  "values need more than %zu bytes",
				  r->arena.limit);
	return jinja_fail(r, GENAI_E_NOMEM, "no memory to render");
}

int jinja_charge(struct jinja_run *r, size_t work)
{
	if (work > JINJA_MAX_STEPS || r->steps + work > JINJA_MAX_STEPS)
		return jinja_fail(r, GENAI_E_LIMIT,
				  "rendering takes more than %u steps",
				  JINJA_MAX_STEPS);
	r->steps += work;
	return 0;
}

// *out_p (any pointer) gets n zeroed objects.
int jinja_new(struct jinja_run *r, size_t n, size_t size, void *out_p)
{
	size_t bytes;
	void *p;
	int rc;

	if (__builtin_mul_overflow(n, size, &bytes))
		bytes = SIZE_MAX; // more than the charge allows
	rc = jinja_charge(r, bytes / 64);
	if (rc)
		return rc;
	p = jinja_alloc(&r->arena, bytes);
	if (!p)
		return jinja_nomem(r);
	memcpy(out_p, &p, sizeof(p));
	return 0;
}

int jinja_new_list(struct jinja_run *r, enum jinja_type t, size_t n,
		   struct jinja_value *out)
{
	struct jinja_list *l = NULL;
	int rc = jinja_new(r, 1, sizeof(*l), &l);

	if (!rc)
		rc = jinja_new(r, n, sizeof(*l->v), &l->v);
	if (rc)
		return rc;
	l->n = n;
	*out = (struct jinja_value){.type = (uint8_t)t, .list = l};
	return 0;
}

int jinja_new_range(struct jinja_run *r, int64_t from, int64_t to, int64_t step,
		    size_t n, struct jinja_value *out)
{
	struct jinja_origin *of;
	int rc = jinja_new_list(r, JINJA_RANGE, n, out);

	if (!rc)
		rc = jinja_new(r, 1, sizeof(*of), &of);
	if (rc)
		return rc;
	*of = (struct jinja_origin){NULL, from, to, step};
	out->list->of = of;
	for (size_t i = 0; i < n; i++)
		out->list->v[i] = jinja_int(from + (int64_t)i * step);
	return 0;
}

int jinja_new_text(struct jinja_run *r, const char *p, size_t n,
		   struct jinja_value *out)
{
	int rc = jinja_charge(r, n / 64);
	char *t;

	if (rc)
		return rc;
	t = jinja_alloc_text(&r->arena, n);
	if (!t)
		return jinja_nomem(r);
	if (n)
		memcpy(t, p, n);
	*out = jinja_text(t, n);
	return 0;
}

int jinja_emit(struct jinja_run *r, const char *p, size_t n)
{
	int rc = jinja_charge(r, n / 64);

	if (rc || !n)
		return rc;
	if (n > JINJA_MAX_OUTPUT - r->n_out)
		return jinja_fail(r, GENAI_E_LIMIT, "the text exceeds %u bytes",
				  JINJA_MAX_OUTPUT);
	if (n >= r->cap_out - r->n_out) {
		size_t cap = (r->n_out + n) * 2 + 256;
		char *q = realloc(r->out, cap);

		if (!q)
			return jinja_nomem(r);
		r->out = q;
		r->cap_out = cap;
	}
	memcpy(r->out + r->n_out, p, n);
	r->n_out += n;
	return 0;
}

int jinja_capture(struct jinja_run *r, size_t mark, struct jinja_value *out)
{
	size_t n = r->n_out - mark;

	r->n_out = mark;
	if (!n) {
		*out = jinja_text("", 0);
		return 0;
	}
	return jinja_new_text(r, r->out + mark, n, out);
}

bool jinja_same(struct jinja_str s, const char *word)
{
	return s.n == strlen(word) && !memcmp(s.p, word, s.n);
}
