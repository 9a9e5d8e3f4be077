// config_keys.c - which keys genai_config.json may hold.
#include "core/model/config_keys.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

// A page of warnings helps nobody.
#define MAX_WARNINGS 32

// Objects and what they may hold.  Where an object of the file is not listed
// here, all of it is another runtime's business or another model's.
static const struct {
	const char *where; // as it is written before a key
	const char *known[40];
} objects[] = {
	{"", {"model", "search", "speculative", "engine"}},
	{"model.",
	 {"type",
	  "vocab_size",
	  "context_length",
	  "eos_token_id",
	  "pad_token_id",
	  "bos_token_id",
	  "sep_token_id",
	  "decoder_start_token_id",
	  "bot_token_id",
	  "eot_token_id",
	  "bor_token_id",
	  "eor_token_id",
	  "image_token_id",
	  "audio_token_id",
	  "video_token_id",
	  "vision_start_token_id",
	  "boa_token_id",
	  "tokenizer_dir",
	  "decoder",
	  "encoder",
	  "embedding",
	  "vision",
	  "speech",
	  "joiner",
	  "vad",
	  "draft",
	  "mtp"}},
	{"model.decoder.",
	 {"filename", "head_size", "hidden_size", "inputs", "outputs",
	  "num_attention_heads", "num_key_value_heads", "num_hidden_layers",
	  "session_options", "run_options", "sliding_window", "pipeline",
	  "layer_types", "conv_cache_size", "state_groups"}},
	{"model.decoder.inputs.",
	 {"input_ids",
	  "inputs_embeds",
	  "attention_mask",
	  "position_ids",
	  "past_key_names",
	  "past_value_names",
	  "past_names",
	  "past_conv_names",
	  "past_recurrent_names",
	  "cross_past_key_names",
	  "cross_past_value_names",
	  "past_key_values_length",
	  "past_sequence_length",
	  "current_sequence_length",
	  "total_sequence_length",
	  "cache_indirection",
	  "encoder_hidden_states",
	  "encoder_attention_mask",
	  "rnn_prev_states",
	  "past_sequence_lengths",
	  "cumulative_sequence_lengths",
	  "block_table",
	  "attention_metadata"}},
	{"model.decoder.outputs.",
	 {"logits", "present_key_names", "present_value_names", "present_names",
	  "present_conv_names", "present_recurrent_names",
	  "output_cross_qk_names", "cross_present_key_names",
	  "cross_present_value_names", "hidden_states", "rnn_states"}},
	{"model.decoder.sliding_window.",
	 {"window_size", "pad_value", "alignment", "slide_inputs",
	  "slide_key_value_cache", "layers", "cache_slack"}},
	// how the other runtime executes; names with a dot are its entries
	{"model.decoder.session_options.",
	 {"intra_op_num_threads",
	  "inter_op_num_threads",
	  "enable_cpu_mem_arena",
	  "enable_mem_pattern",
	  "disable_cpu_ep_fallback",
	  "disable_quant_qdq",
	  "enable_quant_qdq_cleanup",
	  "ep_context_enable",
	  "ep_context_embed_mode",
	  "ep_context_file_path",
	  "log_id",
	  "log_severity_level",
	  "log_verbosity_level",
	  "enable_profiling",
	  "graph_optimization_level",
	  "custom_ops_library",
	  "use_env_allocators",
	  "config_entries",
	  "providers",
	  "provider_options"}},
	{"search.",
	 {"do_sample", "min_length", "max_length", "num_beams",
	  "num_return_sequences", "batch_size", "repetition_penalty", "top_k",
	  "top_p", "temperature", "early_stopping", "no_repeat_ngram_size",
	  "length_penalty", "diversity_penalty", "past_present_share_buffer",
	  "random_seed", "chunk_size", "blank_penalty"}},
};

// Known keys that ask for something unless they have this value.
static const struct {
	const char *key;
	double neutral;
	bool of_beams; // means something only where there are several
	const char *instead;
} asking[] = {
	{"search.num_beams", 1, false,
	 "beam search is not carried: one sequence is searched"},
	{"search.num_return_sequences", 1, false, "one sequence is returned"},
	{"search.batch_size", 1, false, "one sequence is computed"},
	{"search.length_penalty", 1, true, "beam search is not carried"},
	{"search.diversity_penalty", 0, true, "beam search is not carried"},
	{"search.random_seed", -1, false, "a seed is given with --seed"},
	{"search.blank_penalty", 0, false, "it is not carried"},
	{"model.decoder.sliding_window.slide_inputs", 0, false,
	 "inputs are not slid: the whole context is computed"},
	{"model.decoder.sliding_window.slide_key_value_cache", 0, false,
	 "the cache is not slid: all positions are kept"},
};

struct warner {
	const struct genai_log *log;
	const char *path;
	uint32_t n;
};

static void unknown(struct warner *w, const char *where, const char *key)
{
	if (w->n++ < MAX_WARNINGS)
		genai_log_line(w->log, GENAI_LOG_WARN,
			       "%s: %s%s is not known and has no effect",
			       w->path, where, key);
}

// The object or value that a path of keys names; NULL where there is none.
static const json_t *at(const json_t *o, const char *path)
{
	char key[64];

	while (o && *path) {
		size_t n = strcspn(path, ".");

		snprintf(key, sizeof(key), "%.*s", (int)n, path);
		o = json_object_get(o, key);
		path += n + (path[n] == '.');
	}
	return o;
}

static void check_object(struct warner *w, const json_t *root, size_t i)
{
	const json_t *o = at(root, objects[i].where);
	const char *key;
	json_t *v;

	if (!json_is_object(o))
		return;
	json_object_foreach((json_t *)(uintptr_t)o, key, v)
	{
		const char *const *known = objects[i].known;

		while (*known && strcmp(*known, key))
			known++;
		if (!*known && !(strstr(objects[i].where, "session_options") &&
				 strchr(key, '.')))
			unknown(w, objects[i].where, key);
	}
}

static double number(const json_t *v, double none)
{
	return json_is_boolean(v)  ? json_is_true(v)
	       : json_is_number(v) ? json_number_value(v)
				   : none;
}

void genai_config_keys_warn(const struct genai_log *log, const char *path,
			    const json_t *root)
{
	struct warner w = {.log = log, .path = path};
	bool beams = number(at(root, "search.num_beams"), 1) > 1;

	for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
		check_object(&w, root, i);
	if (w.n > MAX_WARNINGS)
		genai_log_line(log, GENAI_LOG_WARN,
			       "%s: %u more keys are not known", path,
			       w.n - MAX_WARNINGS);
	for (size_t i = 0; i < sizeof(asking) / sizeof(asking[0]); i++) {
		const json_t *v = at(root, asking[i].key);
		double d = number(v, asking[i].neutral);

		if (d < asking[i].neutral || d > asking[i].neutral)
			if (beams || !asking[i].of_beams)
				genai_log_line(log, GENAI_LOG_WARN,
					       "%s: %s is %g: %s", path,
					       asking[i].key, d,
					       asking[i].instead);
	}
}
