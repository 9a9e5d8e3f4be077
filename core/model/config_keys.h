/* config_keys.h - which keys genai_config.json may hold.
 * Owns: the list of keys that are known, and of those that are read past with
 * a value that asks for something.  Does not know: what the others mean. */
#ifndef GENAI_CORE_MODEL_CONFIG_KEYS_H
#define GENAI_CORE_MODEL_CONFIG_KEYS_H

#include <jansson.h>

#include "core/host.h"

/* One warning for each key of root that is not known, or whose value asks for
 * what is not carried; path is the file's. */
void genai_config_keys_warn(const struct genai_log *log, const char *path,
			    const json_t *root);

#endif
