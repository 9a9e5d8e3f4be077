/* kind.h - what a file is that is not what it should be. */
#ifndef GENAI_CORE_BASE_KIND_H
#define GENAI_CORE_BASE_KIND_H

#include <genai/types.h>

/* The first bytes of a file, 512 of them at most: "text (HTML)", "text", or
 * NULL if they may be anything else. */
const char *genai_text_kind(const void *data, uint64_t bytes);

#endif
