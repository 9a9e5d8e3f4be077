/* scan.h - the first look at an untrusted model file.
 * Owns: every check on the wire format; the copy that is left for the unpacker.
 * Does not know: graphs, tensors' data.
 *
 * protobuf-c has no depth limit, is quadratic on repeated messages, accepts NUL
 * and bad UTF-8 in strings, and copies fields it does not know.  So the file is
 * read once without recursion, checked, and what our schema names is copied;
 * the unpacker sees that copy only.  Tensor data stays in the file: each Tensor
 * gets its own place in the file (fields at, length).  Threads: any. */
#ifndef GENAI_CORE_ONNX_SCAN_H
#define GENAI_CORE_ONNX_SCAN_H

#include <genai/types.h>

#include "core/graph/arena.h"

/* Depth: graphs with the main one; messages with the model (an innermost
 * graph's deepest message is then the hundredth). */
#define GENAI_ONNX_MAX_GRAPHS 32
#define GENAI_ONNX_MAX_MESSAGES 100
#define GENAI_ONNX_MAX_NODES 1000000u
#define GENAI_ONNX_MAX_INITIALIZERS 1000000u
#define GENAI_ONNX_MAX_FIELDS (UINT64_C(1) << 25)
#define GENAI_ONNX_MAX_NAME 4096u

enum genai_onnx_root { GENAI_ONNX_ROOT_MODEL, GENAI_ONNX_ROOT_TENSOR };

struct genai_onnx_stripped {
	uint8_t *data; /* malloc'ed, charged to the budget: capacity bytes */
	size_t bytes;
	size_t capacity;
	int has_training;
};

/* Check the file's bytes and make the copy.  Errors: GENAI_E_FORMAT with the
 * place, _LIMIT, _NOMEM. */
int32_t genai_onnx_scan(const void *data, size_t bytes,
			enum genai_onnx_root root, struct genai_budget *budget,
			struct genai_onnx_stripped *out_s,
			struct genai_error *err);
void genai_onnx_stripped_free(struct genai_onnx_stripped *s,
			      struct genai_budget *budget);

#endif
