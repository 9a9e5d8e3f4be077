/* folder.h - where a model lies, given what a person has.
 * Owns: finding the folder and the graph.  Does not know: what they hold. */
#ifndef GENAI_CORE_MODEL_FOLDER_H
#define GENAI_CORE_MODEL_FOLDER_H

#include <stddef.h>
#include <genai/types.h>

/* A path, which may be written as file:///PATH.  Errors: GENAI_E_INVAL. */
int32_t genai_path_of(const char *path, char *out, size_t cap,
		      struct genai_error *err);

/* The folder of a model and, where its configuration does not say it, the name
 * of its graph, else "".  path: that folder, a .onnx file, the root of a hub's
 * cache, a folder above one model, or one of these as file:///PATH.  Errors:
 * GENAI_E_NOTFOUND, which lists what could have been meant; _INVAL, _FORMAT,
 * _IO. */
int32_t genai_model_folder(const char *path, char *out_folder, size_t cap,
			   char *out_file, size_t file_cap,
			   struct genai_error *err);

/* The same, where a tokenizer alone is not enough. */
int32_t genai_graph_folder(const char *path, char *out_folder, size_t cap,
			   char *out_file, size_t file_cap,
			   struct genai_error *err);

/* The folder of that model's tokenizer: its own, or the one above; path itself
 * where there is no model. */
void genai_tokenizer_folder(const char *path, char *out, size_t cap);

#endif
