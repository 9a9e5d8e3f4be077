/* gguf_build.h - making GGUF files, good ones and bad ones, in tests. */
#ifndef GENAI_TESTS_GGUF_BUILD_H
#define GENAI_TESTS_GGUF_BUILD_H

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
	uint8_t *data;
	size_t n, cap;
};

static inline void put(struct bytes *b, const void *data, size_t n)
{
	if (b->n + n > b->cap) {
		b->cap = (b->n + n) * 2;
		b->data = realloc(b->data, b->cap);
		ck_assert_ptr_nonnull(b->data);
	}
	if (n)
		memcpy(b->data + b->n, data, n);
	b->n += n;
}

static inline void put_le(struct bytes *b, uint64_t v, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		uint8_t byte = (uint8_t)(v >> 8 * i);

		put(b, &byte, 1);
	}
}

static inline void put_u32(struct bytes *b, uint32_t v)
{
	put_le(b, v, 4);
}

static inline void put_u64(struct bytes *b, uint64_t v)
{
	put_le(b, v, 8);
}

static inline void put_f32(struct bytes *b, float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	put_u32(b, bits);
}

static inline void put_str(struct bytes *b, const char *s)
{
	put_u64(b, strlen(s));
	put(b, s, strlen(s));
}

/* A GGUF file in parts: counts are written by gguf_join. */
struct gguf_build {
	struct bytes kvs, infos, data;
	uint64_t n_kvs, n_tensors;
};

static inline void kv(struct gguf_build *g, const char *key, uint32_t type)
{
	put_str(&g->kvs, key);
	put_u32(&g->kvs, type);
	g->n_kvs++;
}

static inline void kv_u32(struct gguf_build *g, const char *key, uint32_t v)
{
	kv(g, key, 4);
	put_u32(&g->kvs, v);
}

static inline void kv_f32(struct gguf_build *g, const char *key, float v)
{
	kv(g, key, 6);
	put_f32(&g->kvs, v);
}

static inline void kv_bool(struct gguf_build *g, const char *key, int v)
{
	kv(g, key, 7);
	put_le(&g->kvs, (uint64_t)v, 1);
}

static inline void kv_str(struct gguf_build *g, const char *key, const char *v)
{
	kv(g, key, 8);
	put_str(&g->kvs, v);
}

static inline void kv_array(struct gguf_build *g, const char *key,
			    uint32_t elem, uint64_t count)
{
	kv(g, key, 9);
	put_u32(&g->kvs, elem);
	put_u64(&g->kvs, count);
}

static inline void info(struct gguf_build *g, const char *name, uint32_t rank,
			const uint64_t *dims, uint32_t type, uint64_t offset)
{
	put_str(&g->infos, name);
	put_u32(&g->infos, rank);
	for (uint32_t i = 0; i < rank; i++)
		put_u64(&g->infos, dims[i]);
	put_u32(&g->infos, type);
	put_u64(&g->infos, offset);
	g->n_tensors++;
}

/* A tensor with its data, at the next multiple of 32. */
static inline void tensor3(struct gguf_build *g, const char *name,
			   uint64_t cols, uint64_t rows, uint64_t depth,
			   uint32_t type, const void *data, size_t bytes)
{
	static const uint8_t zero[32];
	uint64_t dims[3] = {cols, rows, depth};

	put(&g->data, zero, (32 - g->data.n % 32) % 32);
	info(g, name, depth ? 3 : rows ? 2 : 1, dims, type, g->data.n);
	put(&g->data, data, bytes);
}

static inline void tensor(struct gguf_build *g, const char *name, uint64_t cols,
			  uint64_t rows, uint32_t type, const void *data,
			  size_t bytes)
{
	tensor3(g, name, cols, rows, 0, type, data, bytes);
}

static inline void gguf_join(const struct gguf_build *g, struct bytes *out)
{
	static const uint8_t zero[32];

	put(out, "GGUF", 4);
	put_u32(out, 3);
	put_u64(out, g->n_tensors);
	put_u64(out, g->n_kvs);
	put(out, g->kvs.data, g->kvs.n);
	put(out, g->infos.data, g->infos.n);
	put(out, zero, (32 - out->n % 32) % 32);
	put(out, g->data.data, g->data.n);
}

/* Part no of count, as a file is split: the first has the keys, each has some
 * of the tensors, all say which part they are. */
static inline void gguf_part(const struct gguf_build *g, uint32_t no,
			     uint32_t count, struct gguf_build *out)
{
	const uint8_t *p = g->infos.data, *next;
	uint64_t offset, end;

	memset(out, 0, sizeof(*out));
	if (!no) {
		put(&out->kvs, g->kvs.data, g->kvs.n);
		out->n_kvs = g->n_kvs;
	}
	kv(out, "split.no", 2);
	put_le(&out->kvs, no, 2);
	kv(out, "split.count", 2);
	put_le(&out->kvs, count, 2);
	kv(out, "split.tensors.count", 5);
	put_u32(&out->kvs, (uint32_t)g->n_tensors);
	for (uint64_t i = 0; i < g->n_tensors; i++, p = next) {
		/* names are short, numbers little-endian */
		next = p + 8 + p[0];
		next += 4 + 8 * next[0] + 4 + 8;
		memcpy(&offset, next - 8, 8);
		end = g->data.n;
		if (i + 1 < g->n_tensors)
			memcpy(&end,
			       next + 8 + next[0] + 4 + 8 * next[8 + next[0]] +
				       4,
			       8);
		if (i * count / g->n_tensors != no)
			continue;
		while (out->data.n % 32)
			put_le(&out->data, 0, 1);
		put(&out->infos, p, (size_t)(next - p) - 8);
		put_u64(&out->infos, out->data.n);
		out->n_tensors++;
		put(&out->data, g->data.data + offset, end - offset);
	}
}

static inline void gguf_free(struct gguf_build *g)
{
	free(g->kvs.data);
	free(g->infos.data);
	free(g->data.data);
	memset(g, 0, sizeof(*g));
}

static inline void write_file(const char *path, const void *data, size_t n)
{
	FILE *f = fopen(path, "wb");

	ck_assert_ptr_nonnull(f);
	if (n)
		ck_assert_uint_eq(fwrite(data, 1, n, f), n);
	ck_assert_int_eq(fclose(f), 0);
}

#endif
