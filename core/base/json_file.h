/* json_file.h - small files of JSON that lie beside a model. */
#ifndef GENAI_CORE_BASE_JSON_FILE_H
#define GENAI_CORE_BASE_JSON_FILE_H

#include <jansson.h>

#include <genai/types.h>

/* name in folder ("": name is the path): at most 64 MiB of JSON, which the
 * caller gives back.  *out NULL and 0 where there is no such file.  flags:
 * jansson's.  Errors: GENAI_E_FORMAT, with the path and the line. */
int32_t genai_json_file(const char *folder, const char *name, size_t flags,
			json_t **out, struct genai_error *err);

#endif
