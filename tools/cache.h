/* cache.h - the folder of imports: $XDG_CACHE_HOME/genai.
 * Owns: what an import of a file is called there (its content decides, not its
 * name's date), when it was last used, how large all of it may be; and the
 * files of rates.c, which it lists and takes away. */
#ifndef GENAI_TOOLS_CACHE_H
#define GENAI_TOOLS_CACHE_H

#include "tools/cli.h"

#define CACHE_PATH 4200 /* of the folder, and what is below it */

/* Where it is; it need not be there. */
int32_t cache_folder(struct cli *c, char *out, size_t cap);
/* Make it, and what is above it. */
bool cache_make(char *folder);
/* A file of a few bytes: whole or not at all. */
bool cache_write(const char *path, const char *text);
/* The folder where the import of the GGUF file at path is, made first if need
 * be. */
int32_t cache_import(struct cli *c, const char *path, char *out, size_t cap);

#endif
