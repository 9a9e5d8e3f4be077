/* external.h - the files that a model names.
 * Owns: which paths a model file may name, and opening them.
 * Does not know: tensors, the wire format.
 *
 * A location is relative to the model's folder, not to where the model file
 * itself may be a link to.  It
 * may lead, also through links, to a file inside that folder, inside the
 * "blobs" folder of the Hugging Face cache snapshot that the folder belongs to,
 * or inside a trusted root; nothing else.  A file with several hard links may
 * be one from elsewhere, so it is taken from trusted roots only.
 *
 * The path is resolved once, compared with the allowed folders, and then opened
 * from the allowed folder down, component by component, following no link: what
 * was swapped in between is refused, not followed.  All checks of the file are
 * made on the opened descriptor. */
#ifndef GENAI_CORE_ONNX_EXTERNAL_H
#define GENAI_CORE_ONNX_EXTERNAL_H

#include <genai/types.h>

#include "core/base/mapping.h"

#define GENAI_EXTERNAL_MAX_PATH 4096u

struct genai_folders;

/* The folders allowed for a model; trusted is a ':'-separated list or NULL
 * (folders that do not exist are passed over). */
int32_t genai_folders_open(const char *model_path, const char *trusted,
			   struct genai_folders **out_f,
			   struct genai_error *err);
void genai_folders_close(struct genai_folders *f);

/* Open and map what location names.  Errors name the full path. */
int32_t genai_folders_map(const struct genai_folders *f, const char *location,
			  struct genai_mapping **out_m,
			  struct genai_error *err);

/* GENAI_OK if the string may be a location at all. */
int32_t genai_location_check(const char *location, struct genai_error *err);

/* A decimal number, digits only, that fits 64 bits; 0 if it is not one. */
int genai_decimal(const char *text, uint64_t *out_v);

/* True if the bytes are a Git LFS pointer and not the file itself. */
int genai_is_lfs_pointer(const void *data, uint64_t bytes);

#endif
