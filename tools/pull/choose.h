/* choose.h - which files of a repository are one model. */
#ifndef GENAI_TOOLS_PULL_CHOOSE_H
#define GENAI_TOOLS_PULL_CHOOSE_H

#include "core/base/error.h"

struct hub_file {
	char *name; /* within the repository */
	uint64_t bytes;
	char hash[65]; /* SHA-256, or git's SHA-1 */
	bool wanted;
};

/* Mark the files of the one model that there is, or of the one that what, a
 * folder or a part of a GGUF file's name, tells apart.  out: its folder or its
 * GGUF file, "" for all.  Errors name what there is. */
int32_t hub_choose(struct hub_file *files, size_t n, const char *repo,
		   const char *what, char *out, size_t cap,
		   struct genai_error *err);
/* A name that stays inside of a folder. */
bool hub_name_is_safe(const char *name);

#endif
