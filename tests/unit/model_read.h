/* model_read.h - looking into a written model folder, in tests: initialisers
 * with their values, and nodes.  Knows no more of protobuf than it needs. */
#ifndef GENAI_TESTS_MODEL_READ_H
#define GENAI_TESTS_MODEL_READ_H

#include <check.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/half.h"

struct blob {
	const uint8_t *p;
	size_t n;
};

struct model {
	uint8_t *onnx, *data;
	size_t onnx_bytes, data_bytes;
	struct blob graph;
};

struct init {
	bool found;
	uint32_t dtype, rank;
	uint64_t dims[4], n; /* n: elements */
	const uint8_t *data;
	uint64_t bytes;
};

static inline uint8_t *read_all(const char *path, size_t *out_n)
{
	FILE *f = fopen(path, "rb");
	uint8_t *p;
	long n;

	ck_assert_msg(f != NULL, "%s is not there", path);
	fseek(f, 0, SEEK_END);
	n = ftell(f);
	rewind(f);
	p = malloc((size_t)n + 1);
	ck_assert_ptr_nonnull(p);
	ck_assert_uint_eq(fread(p, 1, (size_t)n, f), (size_t)n);
	p[n] = 0;
	fclose(f);
	*out_n = (size_t)n;
	return p;
}

static inline uint64_t varint(struct blob *b)
{
	uint64_t v = 0;
	unsigned shift = 0;

	do {
		ck_assert(b->n && shift < 64);
		v |= (uint64_t)(*b->p & 0x7f) << shift;
		shift += 7;
		b->n--;
	} while (*b->p++ & 0x80);
	return v;
}

/* The next field; false at the end.  Numbers land in *out_v, bytes in
 * *out_b. */
static inline bool field(struct blob *b, uint32_t *out_id, uint64_t *out_v,
			 struct blob *out_b)
{
	uint64_t tag;

	if (!b->n)
		return false;
	tag = varint(b);
	*out_id = (uint32_t)(tag >> 3);
	*out_v = 0;
	*out_b = (struct blob){NULL, 0};
	if ((tag & 7) == 0) {
		*out_v = varint(b);
		return true;
	}
	ck_assert((tag & 7) == 2 || (tag & 7) == 5);
	out_b->n = (tag & 7) == 5 ? 4 : varint(b);
	ck_assert_uint_le(out_b->n, b->n);
	out_b->p = b->p;
	b->p += out_b->n;
	b->n -= out_b->n;
	return true;
}

static inline bool is_text(struct blob b, const char *s)
{
	return b.n == strlen(s) && !memcmp(b.p, s, b.n);
}

static inline void model_open(struct model *m, const char *dir)
{
	char path[512];
	struct blob b, v;
	uint32_t id;
	uint64_t n;

	snprintf(path, sizeof(path), "%s/model.onnx", dir);
	m->onnx = read_all(path, &m->onnx_bytes);
	snprintf(path, sizeof(path), "%s/model.onnx.data", dir);
	m->data = read_all(path, &m->data_bytes);
	m->graph = (struct blob){NULL, 0};
	b = (struct blob){m->onnx, m->onnx_bytes};
	while (field(&b, &id, &n, &v))
		if (id == 7)
			m->graph = v;
	ck_assert_ptr_nonnull(m->graph.p);
}

static inline void model_close(struct model *m)
{
	free(m->onnx);
	free(m->data);
}

static inline uint64_t number_text(struct blob b)
{
	uint64_t v = 0;

	for (size_t i = 0; i < b.n; i++)
		v = v * 10 + (b.p[i] - '0');
	return v;
}

static inline void external_entry(struct model *m, struct blob e,
				  struct init *out)
{
	struct blob key = {NULL, 0}, value = {NULL, 0}, v;
	uint32_t id;
	uint64_t n;

	while (field(&e, &id, &n, &v))
		*(id == 1 ? &key : &value) = v;
	if (is_text(key, "offset"))
		out->data = m->data + number_text(value);
	else if (is_text(key, "length"))
		out->bytes = number_text(value);
	else
		ck_assert(is_text(value, "model.onnx.data"));
}

/* The initialiser of that name; all its bytes lie in the data file and are as
 * many as its dimensions say. */
static inline struct init model_init(struct model *m, const char *name)
{
	struct blob g = m->graph, t, v;
	struct init out = {0};
	uint32_t id;
	uint64_t n, size;

	while (!out.found && field(&g, &id, &n, &t)) {
		if (id != 5)
			continue;
		out = (struct init){.n = 1};
		while (field(&t, &id, &n, &v)) {
			if (id == 1) {
				out.dims[out.rank++] = n;
				out.n *= n;
			} else if (id == 2) {
				out.dtype = (uint32_t)n;
			} else if (id == 8) {
				out.found = is_text(v, name);
			} else if (id == 13) {
				external_entry(m, v, &out);
			}
		}
	}
	if (!out.found)
		return out;
	size = out.dtype == 1 ? 4 : out.dtype == 2 ? 1 : 2;
	ck_assert_uint_eq(out.bytes, out.n * size);
	ck_assert_uint_eq((uint64_t)(out.data - m->data) % 256, 0);
	ck_assert_uint_le((uint64_t)(out.data - m->data) + out.bytes,
			  m->data_bytes);
	return out;
}

static inline float init_float(const struct init *t, uint64_t i)
{
	float f;
	uint16_t h;

	if (t->dtype == 10) {
		memcpy(&h, t->data + 2 * i, 2);
		return genai_float_from_half(h);
	}
	if (t->dtype == 16) {
		memcpy(&h, t->data + 2 * i, 2);
		return genai_float_from_bf16(h);
	}
	memcpy(&f, t->data + 4 * i, 4);
	return f;
}

/* Nodes of that type. */
static inline int model_nodes(struct model *m, const char *op)
{
	struct blob g = m->graph, node, v;
	uint32_t id;
	uint64_t n;
	int count = 0;

	while (field(&g, &id, &n, &node))
		while (id == 1 && field(&node, &id, &n, &v)) {
			count += id == 4 && is_text(v, op);
			id = 1;
		}
	return count;
}

/* Element (row, col) of a matrix of blocks.  zero: the zero points, or NULL. */
static inline float block_value(const struct init *codes,
				const struct init *scales,
				const struct init *zero, uint32_t bits,
				uint64_t cols, uint64_t row, uint64_t col)
{
	uint64_t nb = scales->dims[1], block = cols / nb;
	uint64_t b = row * nb + col / block;
	uint8_t code = codes->data[(row * cols + col) * bits / 8];
	float z = bits == 4 ? 8 : 128;

	if (bits == 4)
		code = col % 2 ? code >> 4 : code & 15;
	if (zero && zero->found)
		z = zero->dtype == 2 ? 0 : init_float(zero, b);
	return ((float)code - z) * init_float(scales, b);
}

static inline bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static inline void remove_tree(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char path[512];

	while (d && (e = readdir(d))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		unlink(path);
	}
	if (d)
		closedir(d);
	rmdir(dir);
}

#endif
