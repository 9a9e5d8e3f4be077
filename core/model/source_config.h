/* source_config.h - the config.json that a model's source has.
 * Owns: the sizes and ids of it that genai_config.json would say, for folders
 * without that.  Does not know: the rest, which the graph holds. */
#ifndef GENAI_CORE_MODEL_SOURCE_CONFIG_H
#define GENAI_CORE_MODEL_SOURCE_CONFIG_H

#include <stdbool.h>

#include "core/model/genai_config.h"

/* From FOLDER or the one above; false if there is none. */
bool genai_source_config(const char *folder, struct genai_model_config *io);

#endif
