/* embed.h - what a server asks of an embedder beside genai.h. */
#ifndef GENAI_CORE_MODEL_EMBED_H
#define GENAI_CORE_MODEL_EMBED_H

#include <genai/genai.h>

/* 1 if the last run failed on the device itself, which was reset, or could not
 * be; 0 also where a run made what is not finite.  Threads: the one that
 * runs. */
int genai_embedder_failed(const struct genai_embedder *e);

#endif
