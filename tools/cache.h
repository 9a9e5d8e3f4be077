/* cache.h - the folder of imports: $XDG_CACHE_HOME/genai.
 * Owns: what an import of a file is called there (its content decides, not its
 * name's date), when it was last used, how large all of it may be. */
#ifndef GENAI_TOOLS_CACHE_H
#define GENAI_TOOLS_CACHE_H

#include "tools/cli.h"

/* The folder where the import of the GGUF file at path is, made first if need
 * be. */
int32_t cache_import(struct cli *c, const char *path, char *out, size_t cap);

#endif
