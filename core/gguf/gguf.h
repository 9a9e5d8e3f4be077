/* gguf.h - reading GGUF files and importing them as ONNX GenAI folders.
 * Owns: the GGUF container, its block types, the mapping of a Llama-like
 * model's tensors and tokenizer.  Does not know: the ONNX graph (modelgen).
 *
 * A file is untrusted: every count, length, offset and type is checked when it
 * is opened, before anything is allocated from it. */
#ifndef GENAI_CORE_GGUF_GGUF_H
#define GENAI_CORE_GGUF_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <genai/types.h>

/* Value types of the file format. */
#define GENAI_GGUF_U8 0u
#define GENAI_GGUF_I8 1u
#define GENAI_GGUF_U16 2u
#define GENAI_GGUF_I16 3u
#define GENAI_GGUF_U32 4u
#define GENAI_GGUF_I32 5u
#define GENAI_GGUF_F32 6u
#define GENAI_GGUF_BOOL 7u
#define GENAI_GGUF_STRING 8u
#define GENAI_GGUF_ARRAY 9u
#define GENAI_GGUF_U64 10u
#define GENAI_GGUF_I64 11u
#define GENAI_GGUF_F64 12u

/* Bytes inside the mapped file, not terminated, any content. */
struct genai_gguf_string {
	const char *data;
	uint64_t bytes;
};

/* A key and its value; data points at the value's first byte (of an array: at
 * the first element), unaligned. */
struct genai_gguf_kv {
	struct genai_gguf_string key;
	uint32_t type;
	uint32_t elem;	/* arrays: type of the elements */
	uint64_t count; /* arrays: elements */
	const uint8_t *data;
	uint64_t bytes;
};

struct genai_gguf_tensor {
	char name[72];
	uint32_t type; /* number in the file; see genai_gguf_type() */
	uint32_t rank;
	uint64_t dims[4]; /* fastest first; 1 beyond rank */
	const uint8_t *data;
	uint64_t bytes;
};

struct genai_gguf;

/* Map and check a file of version 2 or 3, little-endian.  One of several parts,
 * NAME-00002-of-00003.gguf, opens them all, as one file with their tensors and
 * the keys and the path of the first. Errors: GENAI_E_NOTFOUND (a part, too),
 * _IO, _FORMAT (what is wrong, and where; a part of another file), _UNSUPPORTED
 * (version, byte order, tensor type), _NOMEM. */
int32_t genai_gguf_open(const char *path, struct genai_gguf **out_gguf,
			struct genai_error *err);
void genai_gguf_close(struct genai_gguf *gguf);

/* GENAI_E_IO if a file was truncated since (see mapping.h). */
int32_t genai_gguf_check(const struct genai_gguf *gguf,
			 struct genai_error *err);

const char *genai_gguf_path(const struct genai_gguf *gguf);
/* The files it is made of; NULL past the last. */
const char *genai_gguf_part_path(const struct genai_gguf *gguf, uint64_t index);

uint64_t genai_gguf_n_tensors(const struct genai_gguf *gguf);
const struct genai_gguf_tensor *
genai_gguf_tensor_at(const struct genai_gguf *gguf, uint64_t index);
/* NULL if there is none of that name. */
const struct genai_gguf_tensor *
genai_gguf_tensor_find(const struct genai_gguf *gguf, const char *name);

/* Keys, sorted; NULL past the last. */
const struct genai_gguf_kv *genai_gguf_key_at(const struct genai_gguf *gguf,
					      uint64_t index);
/* NULL if there is no such key. */
const struct genai_gguf_kv *genai_gguf_find(const struct genai_gguf *gguf,
					    const char *key);
/* Any integer or boolean type that is not negative; false if the value is of
 * another type or kv is NULL. */
bool genai_gguf_uint(const struct genai_gguf_kv *kv, uint64_t *out_value);
bool genai_gguf_float(const struct genai_gguf_kv *kv, double *out_value);
bool genai_gguf_str(const struct genai_gguf_kv *kv,
		    struct genai_gguf_string *out_value);
/* Strings of an array, malloc'ed (caller frees). NULL: not an array of strings,
 * or no memory. */
struct genai_gguf_string *genai_gguf_strings(const struct genai_gguf_kv *kv);

/* Where an import stands and what it may do. */
struct genai_import_options {
	bool overwrite; /* replace a model folder that is there */
	bool split_qkv; /* one matrix each for q, k and v, even if alike */
	/* offsets as second terms and accuracy_level 4, for which ONNX Runtime
	 * has fast kernels; the values are the same */
	bool for_onnxruntime;
	/* called with bytes written; non-zero stops (GENAI_E_INTERRUPTED) */
	int (*progress)(void *ctx, uint64_t done, uint64_t total);
	void *progress_ctx;
};

/* Write the model of a GGUF file as an ONNX GenAI folder (see modelgen.h how
 * it appears).  Architectures: docs/IMPORT.md; everything that cannot be
 * carried is refused by name.  The folder's import.json lists each tensor with
 * its type, the form it got, whether its values are exact and, if not, the
 * largest error relative to the largest value of its block.
 * Errors: those of genai_gguf_open and genai_modelgen_write. */
int32_t genai_gguf_import(const char *gguf_path, const char *out_dir,
			  const struct genai_import_options *options,
			  struct genai_error *err);

#endif
