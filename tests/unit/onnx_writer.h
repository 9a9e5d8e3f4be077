/* onnx_writer.h - writing ONNX models, right and wrong ones, for tests.
 * A buffer is a message in the making; every function appends one field.  Also
 * a temporary folder per test, and loading what was written. */
#ifndef GENAI_TESTS_ONNX_WRITER_H
#define GENAI_TESTS_ONNX_WRITER_H

#include "core/onnx/onnx.h"
#include "tests/unit/harness.h"

#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* AttributeProto.AttributeType. */
enum { OW_FLOAT = 1, OW_INT, OW_STRING, OW_TENSOR, OW_GRAPH };

struct ow {
	uint8_t *data;
	size_t n;
	size_t cap;
};

static inline void ow_raw(struct ow *w, const void *data, size_t n)
{
	if (w->cap - w->n < n) {
		w->cap = (w->n + n) * 2 + 64;
		w->data = realloc(w->data, w->cap);
		ck_assert_ptr_nonnull(w->data);
	}
	if (n)
		memcpy(w->data + w->n, data, n);
	w->n += n;
}

static inline void ow_free(struct ow *w)
{
	free(w->data);
	memset(w, 0, sizeof(*w));
}

static inline void ow_varint(struct ow *w, uint64_t v)
{
	uint8_t c;

	do {
		c = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
		ow_raw(w, &c, 1);
		v >>= 7;
	} while (v);
}

static inline void ow_int(struct ow *w, uint32_t field, int64_t v)
{
	ow_varint(w, (uint64_t)field << 3);
	ow_varint(w, (uint64_t)v);
}

static inline void ow_bytes(struct ow *w, uint32_t field, const void *data,
			    size_t n)
{
	ow_varint(w, (uint64_t)field << 3 | 2);
	ow_varint(w, n);
	ow_raw(w, data, n);
}

static inline void ow_str(struct ow *w, uint32_t field, const char *s)
{
	ow_bytes(w, field, s, strlen(s));
}

static inline void ow_f32(struct ow *w, uint32_t field, float v)
{
	ow_varint(w, (uint64_t)field << 3 | 5);
	ow_raw(w, &v, 4);
}

/* A nested message; the child is used up. */
static inline void ow_msg(struct ow *w, uint32_t field, struct ow child)
{
	ow_bytes(w, field, child.data, child.n);
	ow_free(&child);
}

/* A TensorProto without data.  name NULL: none. */
static inline struct ow ow_tensor(const char *name, int dtype, int rank,
				  const int64_t *dims)
{
	struct ow w = {NULL, 0, 0};
	int i;

	for (i = 0; i < rank; i++)
		ow_int(&w, 1, dims[i]);
	ow_int(&w, 2, dtype);
	if (name)
		ow_str(&w, 8, name);
	return w;
}

static inline struct ow ow_scalar(const char *name, float v)
{
	struct ow t = ow_tensor(name, GENAI_DT_F32, 0, NULL);

	ow_bytes(&t, 9, &v, 4);
	return t;
}

static inline struct ow ow_tensor1(const char *name, int dtype, int64_t dim)
{
	return ow_tensor(name, dtype, 1, &dim);
}

static inline void ow_entry(struct ow *tensor, const char *key,
			    const char *value)
{
	struct ow e = {NULL, 0, 0};

	if (key)
		ow_str(&e, 1, key);
	if (value)
		ow_str(&e, 2, value);
	ow_msg(tensor, 13, e);
}

/* External data; NULL entries are left out. */
static inline void ow_external(struct ow *tensor, const char *location,
			       const char *offset, const char *length)
{
	if (location)
		ow_entry(tensor, "location", location);
	if (offset)
		ow_entry(tensor, "offset", offset);
	if (length)
		ow_entry(tensor, "length", length);
	ow_int(tensor, 14, 1);
}

/* A ValueInfoProto.  A dim of -1 has no value; rank -1: no shape. */
static inline struct ow ow_value(const char *name, int dtype, int rank,
				 const int64_t *dims)
{
	struct ow v = {NULL, 0, 0}, type = {NULL, 0, 0}, tensor = {NULL, 0, 0},
		  shape = {NULL, 0, 0};
	int i;

	for (i = 0; i < rank; i++) {
		struct ow d = {NULL, 0, 0};

		if (dims[i] >= 0)
			ow_int(&d, 1, dims[i]);
		ow_msg(&shape, 1, d);
	}
	ow_int(&tensor, 1, dtype);
	if (rank >= 0)
		ow_msg(&tensor, 2, shape);
	ow_msg(&type, 1, tensor);
	ow_str(&v, 1, name);
	ow_msg(&v, 2, type);
	return v;
}

static inline void ow_list(struct ow *w, uint32_t field, const char *list)
{
	while (list) {
		size_t n = strcspn(list, ",");

		ow_bytes(w, field, list, n);
		list = list[n] ? list + n + 1 : NULL;
	}
}

/* A NodeProto; inputs and outputs are "a,b,,c", NULL for none. */
static inline struct ow ow_node(const char *op, const char *inputs,
				const char *outputs)
{
	struct ow w = {NULL, 0, 0};

	ow_list(&w, 1, inputs);
	ow_list(&w, 2, outputs);
	ow_str(&w, 4, op);
	return w;
}

/* The start of an AttributeProto. */
static inline struct ow ow_attr(const char *name, int type)
{
	struct ow w = {NULL, 0, 0};

	ow_str(&w, 1, name);
	if (type)
		ow_int(&w, 20, type);
	return w;
}

static inline void ow_attr_graph(struct ow *node, const char *name,
				 struct ow graph)
{
	struct ow a = ow_attr(name, OW_GRAPH);

	ow_msg(&a, 6, graph);
	ow_msg(node, 5, a);
}

static inline void ow_attr_int(struct ow *node, const char *name, int64_t v)
{
	struct ow a = ow_attr(name, OW_INT);

	ow_int(&a, 3, v);
	ow_msg(node, 5, a);
}

/* Fields of a GraphProto. */
static inline void ow_add_node(struct ow *g, struct ow node)
{
	ow_msg(g, 1, node);
}

static inline void ow_add_op(struct ow *g, const char *op, const char *inputs,
			     const char *outputs)
{
	ow_msg(g, 1, ow_node(op, inputs, outputs));
}

static inline void ow_add_init(struct ow *g, struct ow tensor)
{
	ow_msg(g, 5, tensor);
}

static inline void ow_add_input(struct ow *g, const char *name)
{
	ow_msg(g, 11, ow_value(name, GENAI_DT_F32, -1, NULL));
}

static inline void ow_add_output(struct ow *g, const char *name)
{
	ow_msg(g, 12, ow_value(name, GENAI_DT_F32, -1, NULL));
}

static inline void ow_opset(struct ow *model, const char *domain,
			    int64_t version)
{
	struct ow o = {NULL, 0, 0};

	if (domain)
		ow_str(&o, 1, domain);
	ow_int(&o, 2, version);
	ow_msg(model, 8, o);
}

/* A ModelProto around a graph (used up): IR version 10, opset 21. */
static inline struct ow ow_model(struct ow graph)
{
	struct ow m = {NULL, 0, 0};

	ow_int(&m, 1, 10);
	ow_opset(&m, "", 21);
	ow_msg(&m, 7, graph);
	return m;
}

/* The folder of a test, and what it loaded there. */
struct bench {
	char dir[64];
	char path[256]; /* dir/model.onnx */
	struct genai_onnx *model;
	struct genai_error err;
	char warnings[4096];
	int n_warnings;
	const char *trusted;
};

static struct bench bench;

static inline int bench_remove(const char *path, const struct stat *st,
			       int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void bench_setup(void)
{
	struct genai_error fresh = GENAI_ERROR_INIT;

	memset(&bench, 0, sizeof(bench));
	bench.err = fresh;
	strcpy(bench.dir, "/tmp/genai-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(bench.dir));
	snprintf(bench.path, sizeof(bench.path), "%s/model.onnx", bench.dir);
}

static inline void bench_teardown(void)
{
	genai_onnx_close(bench.model);
	bench.model = NULL;
	nftw(bench.dir, bench_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void bench_warn(void *ctx, const char *text)
{
	size_t n = strlen(bench.warnings);

	(void)ctx;
	bench.n_warnings++;
	snprintf(bench.warnings + n, sizeof(bench.warnings) - n, "%s\n", text);
}

/* dir/name, in a buffer that the fourth next call reuses. */
static inline const char *bench_file(const char *name)
{
	static char paths[4][4400];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", bench.dir, name);
	return path;
}

static inline void bench_write(const char *name, const void *data, size_t n)
{
	const char *path = bench_file(name);
	FILE *f;

	unlink(path); /* rewriting in place makes some file systems sync */
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	if (n)
		ck_assert_uint_eq(fwrite(data, 1, n, f), n);
	ck_assert_int_eq(fclose(f), 0);
}

/* A file of n bytes counting up from first. */
static inline void bench_data(const char *name, size_t n, uint8_t first)
{
	uint8_t *data = malloc(n + 1);
	size_t i;

	ck_assert_ptr_nonnull(data);
	for (i = 0; i < n; i++)
		data[i] = (uint8_t)(first + i);
	bench_write(name, data, n);
	free(data);
}

static inline int32_t bench_load_path(const char *path)
{
	struct genai_onnx_options o = {bench.trusted, bench_warn, NULL};

	genai_onnx_close(bench.model);
	bench.model = NULL;
	return genai_onnx_load(path, &o, &bench.model, &bench.err);
}

static inline int32_t bench_load_bytes(const void *data, size_t n)
{
	bench_write("model.onnx", data, n);
	return bench_load_path(bench.path);
}

/* The model (used up) must load. */
static inline const struct genai_graph *load_ok(struct ow model)
{
	int32_t rc = bench_load_bytes(model.data, model.n);

	ow_free(&model);
	ck_assert_msg(rc == 0, "%s", bench.err.text);
	ck_assert_ptr_nonnull(bench.model);
	return genai_onnx_graph(bench.model);
}

static inline void expect_error(int32_t rc, int32_t code, const char *text)
{
	ck_assert_msg(rc == code, "%d (%s), not %d", rc, bench.err.text, code);
	ck_assert_int_eq(bench.err.code, code);
	ck_assert_ptr_null(bench.model);
	ck_assert_msg(strstr(bench.err.text, text) != NULL,
		      "\"%s\" lacks \"%s\"", bench.err.text, text);
	ck_assert_msg(strstr(bench.err.text, bench.path) == bench.err.text ||
			      strlen(bench.err.text) > 500,
		      "\"%s\" does not name the model", bench.err.text);
}

/* The model (used up) must be refused. */
static inline void load_fails(struct ow model, int32_t code, const char *text)
{
	int32_t rc = bench_load_bytes(model.data, model.n);

	ow_free(&model);
	expect_error(rc, code, text);
}

/* The same for a graph (used up) in an otherwise good model. */
static inline const struct genai_graph *graph_ok(struct ow graph)
{
	return load_ok(ow_model(graph));
}

static inline void graph_fails(struct ow graph, int32_t code, const char *text)
{
	load_fails(ow_model(graph), code, text);
}

static inline const struct genai_value *value_of(const struct genai_graph *g,
						 const char *name)
{
	uint32_t i;

	for (i = 0; i < g->n_values; i++)
		if (!strcmp(genai_graph_value(g, i)->name, name))
			return genai_graph_value(g, i);
	ck_abort_msg("no value %s", name);
	return NULL;
}

/* The bytes of a stored value. */
static inline const uint8_t *bytes_of(const struct genai_graph *g,
				      const char *name, uint64_t n)
{
	const struct genai_value *v = value_of(g, name);
	const struct genai_tensor *t;

	ck_assert_uint_ne(v->tensor, GENAI_NONE);
	t = genai_graph_tensor(g, v->tensor);
	ck_assert_uint_eq(t->bytes, n);
	return (const uint8_t *)genai_graph_file(g, t->file)->data + t->offset;
}

#endif
