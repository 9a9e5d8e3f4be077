/* genai_config.h - a model folder's genai_config.json.
 * Owns: the keys of that file that a decoder needs, their checks and defaults.
 * Unknown keys are a warning each; a missing file gives defaults. */
#ifndef GENAI_CORE_MODEL_GENAI_CONFIG_H
#define GENAI_CORE_MODEL_GENAI_CONFIG_H

#include <stdbool.h>

#include "core/host.h"

#define GENAI_MAX_EOS 64
#define GENAI_MAX_STAGES 8
#define GENAI_MAX_FORWARDS 8

/* A graph of a decoder that has several, in the order of use. */
struct genai_stage {
	char name[64], filename[256];
	/* its output [0] is the next ones' input [1] */
	char forward[GENAI_MAX_FORWARDS][2][128];
	uint32_t n_forwards;
};

struct genai_model_config {
	char type[64];
	char filename[256];
	struct genai_stage stages[GENAI_MAX_STAGES];
	uint32_t n_stages;	 /* 0: filename is the only graph */
	char tokenizer_dir[256]; /* "" = the folder itself */
	int64_t vocab_size;	 /* 0: not said */
	int64_t context_length;
	int64_t head_size, n_kv_heads, n_layers;
	int64_t conv_cache; /* positions of a convolution's state; 0: not said
			     */
	int64_t eos[GENAI_MAX_EOS];
	uint32_t n_eos;
	int64_t bos, pad; /* -1: none */
	char input_ids[128], attention_mask[128], position_ids[128];
	bool not_cuda; /* built for a provider that is named, and is not CUDA */
	char past_key[128], past_value[128]; /* with %d */
	char past_conv[128], past_recurrent[128];
	char logits[128], present_key[128], present_value[128];
	char present_conv[128], present_recurrent[128];
	/* search */
	int32_t do_sample;
	double temperature, top_p, repetition_penalty;
	int64_t top_k, max_length, min_length, no_repeat_ngram, chunk_size;
};

/* Read FOLDER/genai_config.json; without a log, without a warning.
 * GENAI_E_NOTFOUND leaves defaults in *out, and what config.json says
 * (all other failures too, but those are errors).  Errors: GENAI_E_FORMAT with
 * file, line and column or the key's path. */
int32_t genai_model_config_load(const char *folder, const struct genai_log *log,
				struct genai_model_config *out,
				struct genai_error *err);

#endif
