// tensor.c - from a TensorProto to a stored tensor: in the model file, in an
// external file, or, for typed data, in a block of memory.
#include "core/onnx/import.h"
#include "core/onnx/payload.h"

#include <stdlib.h>
#include <string.h>

#define EXTERNAL 1
#define DTYPE_MAX 26u // of ONNX; the next ones are not known to this reader

// Where external data says it lies.
struct place {
	const char *location;
	const char *offset;
	const char *length;
};

// The index in s->b of one of the model's files.
static uint32_t scope_file(struct scope *s, uint32_t file)
{
	const struct genai_mapping *m = s->im->files->maps[file];
	uint32_t n = s->n_files, *files;

	if (file >= n) {
		n = s->im->files->n;
		files = realloc(s->files, n * sizeof(*files));
		if (!files)
			return genai_builder_fail(s->b, GENAI_E_NOMEM,
						  "out of memory");
		memset(files + s->n_files, 0xff,
		       (n - s->n_files) * sizeof(*files));
		s->files = files;
		s->n_files = n;
	}
	if (s->files[file] == GENAI_NONE)
		s->files[file] = genai_builder_file(s->b, genai_mapping_path(m),
						    genai_mapping_data(m),
						    genai_mapping_bytes(m));
	return s->files[file];
}

static int32_t read_entry(struct scope *s, const Genai__Onnx__Entry *e,
			  const char *label, struct place *p,
			  struct genai_error *err)
{
	const char *key = e->key ? e->key : "";
	const char **slot;

	if (!strcmp(key, "location"))
		slot = &p->location;
	else if (!strcmp(key, "offset"))
		slot = &p->offset;
	else if (!strcmp(key, "length"))
		slot = &p->length;
	else {
		if (strcmp(key, "checksum") != 0)
			genai_import_warn(s->im,
					  "%s: external_data key \"%s\" is "
					  "ignored",
					  label, key);
		return GENAI_OK;
	}
	if (*slot)
		return genai_fail(err, GENAI_E_FORMAT,
				  "external_data key \"%s\" appears twice",
				  key);
	*slot = e->value ? e->value : "";
	return GENAI_OK;
}

// The index of the mapped file of that location.
static int32_t map_location(struct genai_import *im, const char *location,
			    uint32_t *out_file, struct genai_error *err)
{
	uint32_t at = genai_names_find(&im->locations, location);
	struct genai_onnx_files *files = im->files;
	struct genai_mapping **maps;
	int32_t rc;

	if (at != GENAI_NONE) {
		*out_file = at;
		return GENAI_OK;
	}
	if (files->n >= GENAI_ONNX_MAX_FILES)
		return genai_fail(err, GENAI_E_LIMIT, "more than %u data files",
				  GENAI_ONNX_MAX_FILES - 1);
	if (files->n == files->cap) {
		maps = realloc(files->maps,
			       ((size_t)files->cap + 16) * sizeof(*maps));
		if (!maps)
			return genai_fail(err, GENAI_E_NOMEM, "out of memory");
		files->maps = maps;
		files->cap += 16;
	}
	if (!im->folders) {
		rc = genai_folders_open(im->path,
					im->options ? im->options->trusted_roots
						    : NULL,
					&im->folders, err);
		if (rc)
			return rc;
	}
	rc = genai_folders_map(im->folders, location, &files->maps[files->n],
			       err);
	if (rc)
		return rc;
	*out_file = files->n++;
	if (!genai_names_add(&im->locations, location, *out_file))
		return genai_fail(err, GENAI_E_NOMEM, "out of memory");
	return GENAI_OK;
}

static int32_t find_external(struct scope *s, const Genai__Onnx__Tensor *t,
			     const char *label, uint64_t bytes,
			     uint32_t *out_file, uint64_t *out_offset,
			     struct genai_error *err)
{
	struct place p = {NULL, NULL, NULL};
	uint64_t length = bytes, have;
	uint32_t file = 0;
	int32_t rc = GENAI_OK;
	size_t i;

	*out_offset = 0;
	for (i = 0; i < t->n_external_data && !rc; i++)
		rc = read_entry(s, t->external_data[i], label, &p, err);
	if (rc)
		return rc;
	if (!p.location)
		return genai_fail(err, GENAI_E_FORMAT,
				  "external data without a location");
	if (p.offset && !genai_decimal(p.offset, out_offset))
		return genai_fail(err, GENAI_E_FORMAT,
				  "external offset \"%s\" is no number",
				  p.offset);
	if (p.length && !genai_decimal(p.length, &length))
		return genai_fail(err, GENAI_E_FORMAT,
				  "external length \"%s\" is no number",
				  p.length);
	if (length != bytes)
		return genai_fail(err, GENAI_E_FORMAT,
				  "its shape needs %llu bytes, external length "
				  "is %llu",
				  (unsigned long long)bytes,
				  (unsigned long long)length);
	rc = map_location(s->im, p.location, &file, err);
	if (rc)
		return rc;
	have = genai_mapping_bytes(s->im->files->maps[file]);
	if (bytes > have || *out_offset > have - bytes)
		return genai_fail(
			err, GENAI_E_FORMAT,
			"%s: wants %llu bytes at %llu, the file has %llu",
			genai_mapping_path(s->im->files->maps[file]),
			(unsigned long long)bytes,
			(unsigned long long)*out_offset,
			(unsigned long long)have);
	*out_file = file;
	return GENAI_OK;
}

// Data inside the model file: where it is, or decoded into a new block.
static int32_t find_inside(struct scope *s, const struct genai_payload *p,
			   uint32_t dtype, uint64_t bytes, uint32_t *out_file,
			   uint64_t *out_offset, struct genai_error *err)
{
	const struct genai_mapping *m = s->im->files->maps[0];
	void *block;
	int32_t rc = genai_payload_check(p, dtype, bytes, err);

	if (rc)
		return rc;
	if (p->raw) {
		*out_file = scope_file(s, 0);
		*out_offset =
			(uint64_t)(p->raw -
				   (const uint8_t *)genai_mapping_data(m));
		return GENAI_OK;
	}
	block = genai_builder_block(s->b, bytes, out_file, out_offset);
	if (!block)
		return GENAI_OK; // the failure is the builder's
	return genai_payload_decode(p, dtype, block, bytes, err);
}

// Types not carried load as long as nobody reads them, but a tensor must be
// sane in any case.
static int32_t check_odd(const Genai__Onnx__Tensor *t,
			 const struct genai_payload *p, uint32_t dtype,
			 struct genai_error *err)
{
	if (dtype == GENAI_DT_NONE || dtype > DTYPE_MAX)
		return genai_fail(err, GENAI_E_FORMAT,
				  "element type %u is not known", dtype);
	if (dtype != GENAI_DT_STRING)
		return GENAI_OK;
	if (p->raw)
		return genai_fail(err, GENAI_E_FORMAT, "STRING in raw_data");
	if (t->data_location == EXTERNAL)
		return genai_fail(err, GENAI_E_FORMAT,
				  "STRING in external data");
	return GENAI_OK;
}

static int32_t find_data(struct scope *s, const Genai__Onnx__Tensor *t,
			 const char *label, uint32_t *out_file,
			 uint64_t *out_offset, uint64_t *out_bytes,
			 int *out_odd, struct genai_error *err)
{
	const uint8_t *base = genai_mapping_data(s->im->files->maps[0]);
	uint32_t dtype = (uint32_t)t->data_type, rank = (uint32_t)t->n_dims;
	struct genai_payload p;
	int32_t rc;

	if (t->n_dims > GENAI_MAX_RANK)
		return genai_fail(err, GENAI_E_LIMIT, "rank %zu, at most %d",
				  t->n_dims, GENAI_MAX_RANK);
	rc = genai_payload_find(base + t->at, (size_t)t->length, &p, err);
	if (rc)
		return rc;
	rc = genai_tensor_bytes(dtype, rank, t->dims, out_bytes);
	if (rc == GENAI_E_UNSUPPORTED) {
		rc = check_odd(t, &p, dtype, err);
		*out_odd = !rc;
		return rc;
	}
	if (rc)
		return genai_fail(err, GENAI_E_FORMAT,
				  "a dimension is negative or the element "
				  "count overflows");
	if (t->data_location != EXTERNAL)
		return find_inside(s, &p, dtype, *out_bytes, out_file,
				   out_offset, err);
	if (p.raw || p.field)
		return genai_fail(err, GENAI_E_FORMAT,
				  "both external data and data inside");
	rc = find_external(s, t, label, *out_bytes, out_file, out_offset, err);
	if (!rc)
		*out_file = scope_file(s, *out_file);
	return rc;
}

static uint64_t element_bytes(uint32_t dtype)
{
	uint64_t bytes = 1;

	genai_tensor_bytes(dtype, 0, NULL, &bytes);
	return bytes;
}

uint32_t genai_import_tensor(struct scope *s, const Genai__Onnx__Tensor *t,
			     const char *label, int *out_odd)
{
	uint32_t dtype = (uint32_t)t->data_type, file = GENAI_NONE;
	uint64_t offset = 0, bytes = 0;
	struct genai_error err = GENAI_ERROR_INIT;
	const char *data;
	int32_t rc;

	*out_odd = 0;
	if (s->b->err.code)
		return GENAI_NONE;
	rc = find_data(s, t, label, &file, &offset, &bytes, out_odd, &err);
	if (rc)
		return genai_builder_fail(s->b, rc, "%s: %s", label, err.text);
	if (*out_odd || s->b->err.code)
		return GENAI_NONE;
	data = file_at(s->b, file)->data;
	if (bytes && t->data_location == EXTERNAL &&
	    ((uintptr_t)data + offset) % element_bytes(dtype))
		s->im->misaligned++;
	return genai_builder_tensor(s->b, file, offset, bytes, dtype,
				    (uint32_t)t->n_dims, t->dims);
}
