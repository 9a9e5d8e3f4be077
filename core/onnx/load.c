// load.c - opening a model file: map, scan, unpack, import.
#include "core/onnx/import.h"
#include "core/base/kind.h"
#include "core/onnx/functions.h"
#include "core/onnx/payload.h"
#include "core/onnx/scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// protobuf lengths are 31 bits, and so is everybody's limit of a message.
#define MAX_FILE ((UINT64_C(1) << 31) - 1)
// What a file of n bytes may make us allocate.
#define BUDGET(n) ((UINT64_C(64) << 20) + 8 * (uint64_t)(n))
// The newest that this reader was written against (ONNX 1.23).
#define IR_KNOWN 14
#define ONNX_OPSET_KNOWN 28
#define MICROSOFT_OPSET_KNOWN 1

struct genai_onnx {
	struct genai_graph *graph;
	struct genai_onnx_files files;
	struct genai_onnx **parts; // of a joined one: what it was made of
	uint32_t n_parts;
};

// protobuf-c's memory, charged to the budget.  Each block remembers its size.
#define BLOCK_HEAD 16u

static void *capped_alloc(void *data, size_t bytes)
{
	char *p;

	if (bytes > MAX_FILE * 8 ||
	    !genai_budget_take(data, (uint64_t)bytes + BLOCK_HEAD))
		return NULL;
	p = malloc(bytes + BLOCK_HEAD);
	if (!p) {
		genai_budget_give(data, (uint64_t)bytes + BLOCK_HEAD);
		return NULL;
	}
	memcpy(p, &bytes, sizeof(bytes));
	return p + BLOCK_HEAD;
}

static void capped_free(void *data, void *block)
{
	char *p = block;
	size_t bytes;

	if (!p)
		return;
	p -= BLOCK_HEAD;
	memcpy(&bytes, p, sizeof(bytes));
	genai_budget_give(data, (uint64_t)bytes + BLOCK_HEAD);
	free(p);
}

// Map a file that holds one message and scan it.
static int32_t open_message(const char *path, enum genai_onnx_root root,
			    struct genai_budget *budget,
			    struct genai_mapping **out_m,
			    struct genai_onnx_stripped *out_s,
			    struct genai_error *err)
{
	struct genai_mapping *m;
	int32_t rc = genai_mapping_open(path, &m, err);
	const char *text;
	const void *data;
	uint64_t bytes;

	if (rc)
		return rc;
	data = genai_mapping_data(m);
	bytes = genai_mapping_bytes(m);
	budget->left = BUDGET(bytes);
	budget->exceeded = 0;
	if (!bytes)
		rc = genai_fail(err, GENAI_E_FORMAT, "is empty");
	else if (bytes > MAX_FILE)
		rc = genai_fail(err, GENAI_E_LIMIT,
				"has %llu bytes, at most %llu; store weights "
				"as external data",
				(unsigned long long)bytes,
				(unsigned long long)MAX_FILE);
	else if (genai_is_lfs_pointer(data, bytes))
		rc = genai_fail(err, GENAI_E_FORMAT,
				"Git LFS pointer, not the model; run git lfs "
				"pull");
	else
		rc = genai_onnx_scan(data, (size_t)bytes, root, budget, out_s,
				     err);
	text = rc == GENAI_E_FORMAT && !genai_is_lfs_pointer(data, bytes)
		       ? genai_text_kind(data, bytes)
		       : NULL;
	if (text)
		genai_fail(err, rc, "this is %s, not an ONNX %s", text,
			   root == GENAI_ONNX_ROOT_MODEL ? "model" : "tensor");
	if (rc) {
		genai_error_prefix(err, "%s", path);
		genai_mapping_close(m);
		return rc;
	}
	*out_m = m;
	return GENAI_OK;
}

static int32_t unpack(const ProtobufCMessageDescriptor *type,
		      const struct genai_onnx_stripped *s,
		      struct genai_budget *budget, ProtobufCMessage **out_msg,
		      struct genai_error *err)
{
	static const uint8_t none;
	ProtobufCAllocator a = {capped_alloc, capped_free, budget};

	*out_msg = protobuf_c_message_unpack(type, &a, s->bytes,
					     s->data ? s->data : &none);
	if (*out_msg)
		return GENAI_OK;
	if (budget->exceeded)
		return genai_fail(err, GENAI_E_LIMIT,
				  "the file asks for more memory than one of "
				  "its size may");
	return genai_fail(err, GENAI_E_NOMEM, "out of memory");
}

static void message_free(ProtobufCMessage *msg, struct genai_budget *budget)
{
	ProtobufCAllocator a = {capped_alloc, capped_free, budget};

	protobuf_c_message_free_unpacked(msg, &a);
}

int32_t genai_onnx_check_opset(const char *domain, int64_t version,
			       struct genai_error *err)
{
	int64_t known = INT64_MAX;

	if (!*domain)
		known = ONNX_OPSET_KNOWN;
	else if (!strcmp(domain, "com.microsoft"))
		known = MICROSOFT_OPSET_KNOWN;
	if (version < 1)
		return genai_fail(err, GENAI_E_FORMAT,
				  "opset_import of domain \"%s\": version %lld",
				  domain, (long long)version);
	if (version > known)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "opset %lld of domain \"%s\" is newer than "
				  "%lld, the newest known",
				  (long long)version, domain, (long long)known);
	return 0;
}

static int32_t add_opset(struct genai_import *im, const Genai__Onnx__Opset *o,
			 uint32_t index, struct genai_error *err)
{
	const char *domain = o->domain ? o->domain : "";
	uint32_t at;
	int32_t rc;

	if (!strcmp(domain, "ai.onnx"))
		domain = "";
	rc = genai_onnx_check_opset(domain, o->version, err);
	if (rc)
		return rc;
	at = genai_names_find(&im->domains, domain);
	if (at != GENAI_NONE && im->versions[at] != o->version)
		return genai_fail(err, GENAI_E_FORMAT,
				  "opset_import of domain \"%s\" twice: "
				  "versions %lld and %lld",
				  domain, (long long)im->versions[at],
				  (long long)o->version);
	im->versions[index] = o->version;
	if (at == GENAI_NONE && !genai_names_add(&im->domains, domain, index))
		return genai_fail(err, GENAI_E_NOMEM, "out of memory");
	return GENAI_OK;
}

static int32_t add_opsets(struct genai_import *im, const Genai__Onnx__Model *m,
			  struct genai_error *err)
{
	int32_t rc = GENAI_OK;
	size_t i;

	if (!m->n_opset_import)
		return genai_fail(err, GENAI_E_FORMAT, "has no opset_import");
	im->versions = calloc(m->n_opset_import, sizeof(*im->versions));
	if (!im->versions)
		return genai_fail(err, GENAI_E_NOMEM, "out of memory");
	for (i = 0; i < m->n_opset_import && !rc; i++)
		rc = add_opset(im, m->opset_import[i], (uint32_t)i, err);
	return rc;
}

static int32_t import(struct genai_import *im, const Genai__Onnx__Model *m,
		      struct genai_graph **out_graph, struct genai_error *err)
{
	int32_t rc;

	if (!m->graph)
		return genai_fail(err, GENAI_E_FORMAT,
				  "has no graph (not an ONNX model?)");
	if (!m->has_ir_version || m->ir_version < 1)
		return genai_fail(err, GENAI_E_FORMAT, "has no ir_version");
	im->ir_version = m->ir_version;
	if (m->ir_version > IR_KNOWN)
		genai_import_warn(im, "IR version %lld is newer than %d",
				  (long long)m->ir_version, IR_KNOWN);
	rc = add_opsets(im, m, err);
	if (!rc)
		rc = genai_import_graph(im, NULL, m->graph, out_graph, err);
	if (!rc && im->misaligned)
		genai_import_warn(im,
				  "%u tensors are not aligned to their "
				  "elements and cannot be used in place",
				  im->misaligned);
	return rc;
}

// Uses up s.
static int32_t load(struct genai_import *im, struct genai_onnx_stripped *s,
		    struct genai_graph **out_graph, struct genai_error *err)
{
	ProtobufCAllocator a = {capped_alloc, capped_free, im->budget};
	ProtobufCMessage *msg;
	int32_t rc = unpack(&genai__onnx__model__descriptor, s, im->budget,
			    &msg, err);

	genai_onnx_stripped_free(s, im->budget);
	if (rc)
		return rc;
	genai_names_init(&im->locations, im->budget);
	genai_names_init(&im->domains, im->budget);
	if (s->has_training)
		genai_import_warn(im, "its training_info is ignored");
	rc = genai_onnx_inline((Genai__Onnx__Model *)(void *)msg, &a,
			       im->budget, err);
	if (!rc)
		rc = import(im, (const Genai__Onnx__Model *)(const void *)msg,
			    out_graph, err);
	genai_folders_close(im->folders);
	genai_names_free(&im->locations);
	genai_names_free(&im->domains);
	free(im->versions);
	message_free(msg, im->budget);
	return rc;
}

int32_t genai_onnx_load(const char *path,
			const struct genai_onnx_options *options,
			struct genai_onnx **out_model, struct genai_error *err)
{
	struct genai_onnx_stripped s = {NULL, 0, 0, 0};
	struct genai_budget budget = {0, 0};
	struct genai_onnx *model = calloc(1, sizeof(*model));
	struct genai_import im;
	int32_t rc;

	if (!model)
		return genai_fail(err, GENAI_E_NOMEM, "%s: out of memory",
				  path);
	memset(&im, 0, sizeof(im));
	im.options = options;
	im.path = path;
	im.files = &model->files;
	im.budget = &budget;
	model->files.maps = calloc(4, sizeof(*model->files.maps));
	if (!model->files.maps) {
		rc = genai_fail(err, GENAI_E_NOMEM, "%s: out of memory", path);
		goto fail;
	}
	model->files.cap = 4;
	rc = open_message(path, GENAI_ONNX_ROOT_MODEL, &budget,
			  &model->files.maps[0], &s, err);
	if (rc)
		goto fail;
	model->files.n = 1;
	rc = load(&im, &s, &model->graph, err);
	if (rc) {
		genai_error_prefix(err, "%s", path);
		goto fail;
	}
	rc = genai_onnx_check(model, err);
	if (rc)
		goto fail;
	*out_model = model;
	return GENAI_OK;
fail:
	genai_onnx_close(model);
	return rc;
}

void genai_onnx_close(struct genai_onnx *model)
{
	uint32_t i;

	if (!model)
		return;
	genai_graph_free(model->graph);
	for (i = 0; i < model->files.n; i++)
		genai_mapping_close(model->files.maps[i]);
	free(model->files.maps);
	for (i = 0; i < model->n_parts; i++)
		genai_onnx_close(model->parts[i]);
	free(model->parts);
	free(model);
}

int32_t genai_onnx_join(struct genai_onnx *const *parts, uint32_t n_parts,
			struct genai_graph *graph,
			struct genai_onnx **out_model, struct genai_error *err)
{
	struct genai_onnx *model = calloc(1, sizeof(*model));

	if (model)
		model->parts = calloc(n_parts + 1, sizeof(struct genai_onnx *));
	if (!model || !model->parts) {
		free(model);
		return genai_fail(err, GENAI_E_NOMEM, "out of memory");
	}
	model->graph = graph;
	model->n_parts = n_parts;
	for (uint32_t i = 0; i < n_parts; i++)
		model->parts[i] = parts[i];
	*out_model = model;
	return GENAI_OK;
}

const struct genai_graph *genai_onnx_graph(const struct genai_onnx *model)
{
	return model->graph;
}

int32_t genai_onnx_check(const struct genai_onnx *model,
			 struct genai_error *err)
{
	int32_t rc = GENAI_OK;
	uint32_t i;

	for (i = 0; i < model->files.n && !rc; i++)
		rc = genai_mapping_check(model->files.maps[i], err);
	for (i = 0; i < model->n_parts && !rc; i++)
		rc = genai_onnx_check(model->parts[i], err);
	return rc;
}

// Dense data of a tensor without external data.
static int32_t read_dense(const Genai__Onnx__Tensor *t, const uint8_t *base,
			  void **out_data, uint64_t *out_bytes,
			  struct genai_error *err)
{
	uint32_t dtype = (uint32_t)t->data_type;
	struct genai_payload p;
	uint64_t bytes;
	void *data;
	int32_t rc;

	if (t->n_dims > GENAI_MAX_RANK)
		return genai_fail(err, GENAI_E_LIMIT, "rank %zu, at most %d",
				  t->n_dims, GENAI_MAX_RANK);
	if (t->data_location || t->n_external_data)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "external data is not supported here");
	rc = genai_tensor_bytes(dtype, (uint32_t)t->n_dims, t->dims, &bytes);
	if (rc)
		return genai_fail(err, rc, "%s: no size for this type or shape",
				  genai_dtype_name(dtype));
	rc = genai_payload_find(base + t->at, (size_t)t->length, &p, err);
	if (!rc)
		rc = genai_payload_check(&p, dtype, bytes, err);
	if (rc)
		return rc;
	data = calloc(1, bytes ? (size_t)bytes : 1);
	if (!data)
		return genai_fail(err, GENAI_E_NOMEM, "out of memory");
	if (p.raw)
		memcpy(data, p.raw, (size_t)bytes);
	else
		rc = genai_payload_decode(&p, dtype, data, bytes, err);
	if (rc) {
		free(data);
		return rc;
	}
	*out_data = data;
	*out_bytes = bytes;
	return GENAI_OK;
}

int32_t genai_onnx_read_tensor(const char *path, uint32_t *out_dtype,
			       uint32_t *out_rank, int64_t *out_dims,
			       void **out_data, uint64_t *out_bytes,
			       char *out_name, size_t name_cap,
			       struct genai_error *err)
{
	struct genai_onnx_stripped s;
	struct genai_budget budget;
	struct genai_mapping *m;
	ProtobufCMessage *msg;
	const Genai__Onnx__Tensor *t;
	int32_t rc = open_message(path, GENAI_ONNX_ROOT_TENSOR, &budget, &m, &s,
				  err);

	if (rc)
		return rc;
	rc = unpack(&genai__onnx__tensor__descriptor, &s, &budget, &msg, err);
	if (rc)
		goto out;
	t = (const Genai__Onnx__Tensor *)(const void *)msg;
	rc = read_dense(t, genai_mapping_data(m), out_data, out_bytes, err);
	if (!rc) {
		*out_dtype = (uint32_t)t->data_type;
		*out_rank = (uint32_t)t->n_dims;
		memset(out_dims, 0, GENAI_MAX_RANK * sizeof(*out_dims));
		if (t->n_dims)
			memcpy(out_dims, t->dims, t->n_dims * sizeof(*t->dims));
		if (name_cap)
			snprintf(out_name, name_cap, "%s",
				 t->name ? t->name : "");
	}
	message_free(msg, &budget);
out:
	genai_onnx_stripped_free(&s, &budget);
	genai_mapping_close(m);
	if (rc)
		genai_error_prefix(err, "%s", path);
	return rc;
}
