/* npy.h - tensors in files: NumPy's .npy and ONNX TensorProto .pb. */
#ifndef GENAI_TOOLS_NPY_H
#define GENAI_TOOLS_NPY_H

#include <genai/types.h>

struct tensor_file {
	uint32_t dtype, rank;
	int64_t dims[GENAI_MAX_RANK];
	void *data; /* malloc'ed, dense, row-major, little endian */
	uint64_t bytes;
	char name[256]; /* of a TensorProto; else "" */
};

/* By the file's first bytes.  Errors: GENAI_E_IO, _FORMAT, _UNSUPPORTED. */
int32_t tensor_read(const char *path, struct tensor_file *out,
		    struct genai_error *err);
/* As .npy, version 1.0; bf16 is widened to float32. */
int32_t tensor_write(const char *path, const struct tensor_file *t,
		     struct genai_error *err);
void tensor_free(struct tensor_file *t);

#endif
