// npy.c - reading and writing tensors in files.
#include "tools/npy.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/graph/build.h"
#include "core/onnx/onnx.h"

static const struct {
	const char *descr;
	uint32_t dtype;
} types[] = {
	{"<f4", GENAI_DT_F32}, {"<f2", GENAI_DT_F16}, {"<f8", GENAI_DT_F64},
	{"<i8", GENAI_DT_I64}, {"<i4", GENAI_DT_I32}, {"<i2", GENAI_DT_I16},
	{"|i1", GENAI_DT_I8},  {"|u1", GENAI_DT_U8},  {"<u2", GENAI_DT_U16},
	{"<u4", GENAI_DT_U32}, {"<u8", GENAI_DT_U64}, {"|b1", GENAI_DT_BOOL}};
#define N_TYPES (sizeof(types) / sizeof(types[0]))

static int32_t parse_shape(const char *s, struct tensor_file *t)
{
	s = strstr(s, "'shape'");
	s = s ? strchr(s, '(') : NULL;
	if (!s)
		return GENAI_E_FORMAT;
	s++;
	t->rank = 0;
	for (;;) {
		char *end;
		long long v;

		s += strspn(s, " ,");
		if (*s == ')')
			return 0;
		v = strtoll(s, &end, 10);
		if (end == s || v < 0 || t->rank == GENAI_MAX_RANK)
			return GENAI_E_FORMAT;
		t->dims[t->rank++] = v;
		s = end;
	}
}

static int32_t parse_header(const char *path, const char *head,
			    struct tensor_file *t, struct genai_error *err)
{
	size_t i = 0;

	while (i < N_TYPES && !strstr(head, types[i].descr))
		i++;
	if (i == N_TYPES || strstr(head, "'fortran_order': True"))
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: element type or order of this .npy file "
				  "is not carried",
				  path);
	t->dtype = types[i].dtype;
	if (parse_shape(head, t))
		return genai_fail(err, GENAI_E_FORMAT, "%s: bad shape", path);
	return genai_tensor_bytes(t->dtype, t->rank, t->dims, &t->bytes);
}

static int32_t read_npy(const char *path, FILE *f, struct tensor_file *t,
			struct genai_error *err)
{
	unsigned char fixed[12];
	char head[4096];
	size_t n, at = 10;
	int32_t rc;

	if (fread(fixed, 1, 10, f) != 10)
		return genai_fail(err, GENAI_E_FORMAT, "%s: truncated", path);
	n = fixed[8] | (size_t)fixed[9] << 8;
	if (fixed[6] == 2 && fread(fixed + 10, 1, 2, f) == 2) {
		n |= (size_t)fixed[10] << 16 | (size_t)fixed[11] << 24;
		at = 12;
	}
	(void)at;
	if (n >= sizeof(head) || fread(head, 1, n, f) != n)
		return genai_fail(err, GENAI_E_FORMAT, "%s: bad header", path);
	head[n] = 0;
	rc = parse_header(path, head, t, err);
	if (rc)
		return rc;
	t->data = malloc(t->bytes + 1);
	if (!t->data)
		return genai_fail(err, GENAI_E_NOMEM, "%s: no memory", path);
	if (fread(t->data, 1, t->bytes, f) != t->bytes) {
		free(t->data);
		t->data = NULL;
		return genai_fail(err, GENAI_E_FORMAT, "%s: truncated", path);
	}
	return 0;
}

int32_t tensor_read(const char *path, struct tensor_file *t,
		    struct genai_error *err)
{
	FILE *f = fopen(path, "re");
	char magic[6] = {0};
	int32_t rc;

	memset(t, 0, sizeof(*t));
	if (!f)
		return genai_fail(
			err, errno == ENOENT ? GENAI_E_NOTFOUND : GENAI_E_IO,
			"%s: cannot open: %s", path, strerror(errno));
	if (fread(magic, 1, 6, f) == 6 && !memcmp(magic, "\x93NUMPY", 6)) {
		rewind(f);
		rc = read_npy(path, f, t, err);
		fclose(f);
		return rc;
	}
	fclose(f);
	return genai_onnx_read_tensor(path, &t->dtype, &t->rank, t->dims,
				      &t->data, &t->bytes, t->name,
				      sizeof(t->name), err);
}

static int32_t widen_bf16(const struct tensor_file *t, struct tensor_file *out,
			  struct genai_error *err)
{
	const uint16_t *src = t->data;
	uint64_t n = t->bytes / 2;
	uint32_t *dst = malloc(n * 4 + 1);

	if (!dst)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	for (uint64_t i = 0; i < n; i++)
		dst[i] = (uint32_t)src[i] << 16;
	*out = *t;
	out->dtype = GENAI_DT_F32;
	out->data = dst;
	out->bytes = n * 4;
	return 0;
}

int32_t tensor_write(const char *path, const struct tensor_file *t,
		     struct genai_error *err)
{
	char shape[512] = "", head[1024];
	struct tensor_file wide;
	size_t i = 0, at = 0;
	int n, total;
	uint16_t len;
	FILE *f;
	bool ok;

	if (t->dtype == GENAI_DT_BF16) {
		int32_t rc = widen_bf16(t, &wide, err);

		if (rc)
			return rc;
		rc = tensor_write(path, &wide, err);
		free(wide.data);
		return rc;
	}
	while (i < N_TYPES && types[i].dtype != t->dtype)
		i++;
	if (i == N_TYPES)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: a .npy file has no type %s", path,
				  genai_dtype_name(t->dtype));
	for (uint32_t d = 0; d < t->rank; d++)
		at += (size_t)snprintf(shape + at, sizeof(shape) - at, "%lld, ",
				       (long long)t->dims[d]);
	n = snprintf(head, sizeof(head),
		     "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
		     types[i].descr, shape);
	total = (10 + n + 1 + 63) / 64 * 64;
	memset(head + n, ' ', (size_t)(total - 10 - n));
	head[total - 11] = '\n';
	len = (uint16_t)(total - 10);
	f = fopen(path, "we");
	ok = f && fwrite("\x93NUMPY\x01\x00", 1, 8, f) == 8 &&
	     fwrite(&len, 2, 1, f) == 1 && fwrite(head, 1, len, f) == len &&
	     fwrite(t->data, 1, t->bytes, f) == t->bytes;
	if (f && fclose(f))
		ok = false;
	return ok ? 0
		  : genai_fail(err, GENAI_E_IO, "%s: cannot write: %s", path,
			       strerror(errno));
}

void tensor_free(struct tensor_file *t)
{
	free(t->data);
	t->data = NULL;
}
