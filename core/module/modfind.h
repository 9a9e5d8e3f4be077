/* modfind.h - where a module's file is: never by a scan of a directory, never
 * relative to the current one, never through the environment. */
#ifndef GENAI_CORE_MODULE_MODFIND_H
#define GENAI_CORE_MODULE_MODFIND_H

#include "core/config/config.h"

/* [module NAME] path if there is one, else NAME.so in the directories of
 * [runtime] module_path and in the module directory of the installation.
 * Caller frees *out_path and closes *out_fd.
 * Errors: GENAI_E_NOTFOUND with all that was tried; GENAI_E_MODULE for a file
 * that must not be used. */
int32_t genai_module_find(const char *name, const struct genai_config *config,
			  char **out_path, int *out_fd, uint64_t *out_bytes,
			  struct genai_error *err);

#endif
