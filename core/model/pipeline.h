/* pipeline.h - a decoder's graph, whether it is in one file or several.
 * Owns: joining the stages of a decoder-pipeline.  Does not know: what they do.
 */
#ifndef GENAI_CORE_MODEL_PIPELINE_H
#define GENAI_CORE_MODEL_PIPELINE_H

#include "core/model/genai_config.h"
#include "core/onnx/onnx.h"

/* Load the graph that config names, from folder; file: another one, or "".
 * Several become one: a stage's input is the output of that name before it, or
 * the input that an earlier stage has, too.  Errors: those of genai_onnx_load;
 * GENAI_E_UNSUPPORTED for what cannot be joined. */
int32_t genai_pipeline_load(const char *folder, const char *file,
			    const struct genai_model_config *config,
			    const struct genai_onnx_options *options,
			    struct genai_onnx **out, struct genai_error *err);

#endif
