/* embed_config.h - what a folder says of a model whose rows become vectors.
 * Owns: reading modules.json, its modules' configurations, config.json.  Does
 * not know: graphs. */
#ifndef GENAI_CORE_MODEL_EMBED_CONFIG_H
#define GENAI_CORE_MODEL_EMBED_CONFIG_H

#include <stdbool.h>
#include <genai/types.h>

struct genai_embed_config {
	uint32_t pooling; /* GENAI_POOL_*; 0: not said */
	bool normalize;
	uint64_t max_tokens; /* 0: not said */
	int64_t vocab_size;  /* 0: not said */
	char prompt[1024];   /* in front of every text */
};

/* Of folder, or the one above, where graphs lie in one of their own.  Files
 * that are not there say nothing.  Errors: GENAI_E_FORMAT a file that is none;
 * _UNSUPPORTED a module or a way to pool that is not carried, by name. */
int32_t genai_embed_config_load(const char *folder,
				struct genai_embed_config *out,
				struct genai_error *err);

#endif
