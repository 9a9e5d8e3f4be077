/* sampler.h - what of sampling is needed without a sampler. */
#ifndef GENAI_CORE_TEXT_SAMPLER_H
#define GENAI_CORE_TEXT_SAMPLER_H

#include <genai/text.h>

/* The ranges that genai_sampler_open checks, at once: it takes several times
 * the vocabulary's memory.  Errors: as it. */
int32_t genai_sampling_check(const struct genai_sampling *sampling,
			     uint32_t vocab, struct genai_error *err);

#endif
