/* onnx.h - reading a .onnx file into an owned graph.
 * Owns: the wire format, external data, every check on untrusted model files.
 * Does not know: execution, genai_config.json.
 *
 * Order: open and map the file, iterative wire pre-scan (depth, counts, sizes,
 * repeated singular fields, UTF-8, NUL), protobuf-c unpack with a capped
 * allocator and our own schema (only the fields we read; raw_data is never
 * copied), then the graph.  Stored tensors stay {file, offset, bytes} of
 * read-only MAP_SHARED mappings. */
#ifndef GENAI_CORE_ONNX_ONNX_H
#define GENAI_CORE_ONNX_ONNX_H

#include <genai/graph.h>

struct genai_onnx;

struct genai_onnx_options {
	const char *trusted_roots; /* ':'-separated folders, or NULL */
	/* called for each warning (may be NULL) */
	void (*warn)(void *ctx, const char *text);
	void *warn_ctx;
};

/* Load path.  Constant nodes become stored tensors, calls of model-local
 * functions the nodes of those.
 * Errors: GENAI_E_IO, _NOTFOUND (with the path tried), _FORMAT, _UNSUPPORTED,
 * _LIMIT, _NOMEM. */
int32_t genai_onnx_load(const char *path,
			const struct genai_onnx_options *options,
			struct genai_onnx **out_model, struct genai_error *err);
void genai_onnx_close(struct genai_onnx *model);
/* A graph that was built of those of several models: it and they are the
 * result's, on success. */
int32_t genai_onnx_join(struct genai_onnx *const *parts, uint32_t n_parts,
			struct genai_graph *graph,
			struct genai_onnx **out_model, struct genai_error *err);
const struct genai_graph *genai_onnx_graph(const struct genai_onnx *model);

/* GENAI_OK while every mapped file still has its length; GENAI_E_IO naming the
 * file that was truncated (see mapping.h for what a read then does). */
int32_t genai_onnx_check(const struct genai_onnx *model,
			 struct genai_error *err);

/* A TensorProto file (.pb), for `genai run`: dtype, dims and a malloc'ed dense
 * copy of its data (caller frees). */
int32_t genai_onnx_read_tensor(const char *path, uint32_t *out_dtype,
			       uint32_t *out_rank, int64_t *out_dims,
			       void **out_data, uint64_t *out_bytes,
			       char *out_name, size_t name_cap,
			       struct genai_error *err);

#endif
