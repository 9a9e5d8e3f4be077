/* agree.h - does genai_config.json say what the graph says?
 * Owns: the comparison of both.  Does not know: how either is read. */
#ifndef GENAI_CORE_MODEL_AGREE_H
#define GENAI_CORE_MODEL_AGREE_H

#include "core/model/step.h"

/* Errors: GENAI_E_FORMAT, naming the key, its value and what the graph has. */
int32_t genai_model_agrees(const struct genai_model_config *config,
			   const struct genai_step *step,
			   struct genai_error *err);

#endif
