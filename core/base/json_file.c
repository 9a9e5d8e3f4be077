// json_file.c - small files of JSON that lie beside a model.
#include "core/base/json_file.h"

#include <stdio.h>
#include <sys/stat.h>

#include "core/base/error.h"

#define MAX_BYTES (64 << 20)

int32_t genai_json_file(const char *folder, const char *name, size_t flags,
			json_t **out, struct genai_error *err)
{
	char path[5000];
	json_error_t why;
	struct stat st;

	*out = NULL;
	if (snprintf(path, sizeof(path), "%s%s%s", folder, *folder ? "/" : "",
		     name) >= (int)sizeof(path) ||
	    stat(path, &st))
		return 0;
	if (!S_ISREG(st.st_mode) || st.st_size > MAX_BYTES)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: not a small file of JSON", path);
	*out = json_load_file(path, flags, &why);
	if (*out)
		return 0;
	return genai_fail(err, GENAI_E_FORMAT, "%s: line %d: %s", path,
			  why.line, why.text);
}
