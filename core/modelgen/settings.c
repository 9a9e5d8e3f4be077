// settings.c - genai_config.json.
#include "core/modelgen/gen.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static json_t *names(const struct genai_genconf *c, bool outputs)
{
	json_t *n;

	if (outputs)
		n = json_pack("{s:s, s:s, s:s}", "logits", "logits",
			      "present_key_names", "present.%d.key",
			      "present_value_names", "present.%d.value");
	else
		n = json_pack("{s:s, s:s, s:s, s:s}", "input_ids", "input_ids",
			      "attention_mask", "attention_mask",
			      "past_key_names", "past_key_values.%d.key",
			      "past_value_names", "past_key_values.%d.value");
	if (c->mrope[0] && !outputs)
		json_object_set_new(n, "position_ids",
				    json_string("position_ids"));
	if (c->delta_size)
		json_object_set_new(n,
				    outputs ? "present_recurrent_names"
					    : "past_recurrent_names",
				    json_string(outputs ? "present.%d.recurrent"
							: "past.%d.recurrent"));
	if (c->conv_taps)
		json_object_set_new(
			n, outputs ? "present_conv_names" : "past_conv_names",
			json_string(outputs ? "present.%d.conv"
					    : "past.%d.conv"));
	return n;
}

static void add_conv(const struct genai_genconf *c, json_t *dec)
{
	json_t *types = json_array();

	for (uint32_t i = 0; i < c->layers; i++)
		json_array_append_new(
			types, json_string(gen_layer_is(c, i, GENAI_LAYER_CONV)
						   ? "conv"
						   : "full_attention"));
	json_object_set_new(dec, "layer_types", types);
	json_object_set_new(dec, "conv_cache_size",
			    json_integer(c->conv_taps - 1));
}

static json_t *decoder(const struct genai_genconf *c)
{
	json_t *providers = json_array(), *dec;

	if (c->cuda)
		json_array_append_new(providers,
				      json_pack("{s:{s:s}}", "cuda",
						"enable_cuda_graph", "0"));
	dec = json_pack(
		"{s:{s:s, s:o}, s:s, s:i, s:i, s:o, s:o, s:i, s:i, s:i}",
		"session_options", "log_id", "onnxruntime-genai",
		"provider_options", providers, "filename", "model.onnx",
		"head_size", (int)c->head_size, "hidden_size", (int)c->hidden,
		"inputs", names(c, false), "outputs", names(c, true),
		"num_attention_heads", (int)c->heads, "num_hidden_layers",
		(int)c->layers, "num_key_value_heads", (int)c->kv_heads);
	if (c->conv_taps && !c->delta_size)
		add_conv(c, dec);
	return dec;
}

static json_t *model(const struct genai_genconf *c)
{
	json_t *m = json_pack("{s:s, s:i, s:i, s:o}", "type", c->type,
			      "vocab_size", (int)c->vocab, "context_length",
			      (int)c->context, "decoder", decoder(c));
	json_t *eos = json_array();

	for (uint32_t i = 0; i < c->n_eos; i++)
		json_array_append_new(eos, json_integer(c->eos[i]));
	if (c->n_eos == 1)
		json_object_set(m, "eos_token_id", json_array_get(eos, 0));
	else if (c->n_eos)
		json_object_set(m, "eos_token_id", eos);
	json_decref(eos);
	if (c->bos >= 0)
		json_object_set_new(m, "bos_token_id", json_integer(c->bos));
	if (c->pad >= 0)
		json_object_set_new(m, "pad_token_id", json_integer(c->pad));
	return m;
}

static json_t *search(const struct genai_genconf *c)
{
	return json_pack("{s:f, s:b, s:b, s:f, s:i, s:i, s:i, s:i, s:i, s:b, "
			 "s:f, s:f, s:i, s:f}",
			 "diversity_penalty", 0.0, "do_sample", 0,
			 "early_stopping", 1, "length_penalty", 1.0,
			 "max_length", (int)c->context, "min_length", 0,
			 "no_repeat_ngram_size", 0, "num_beams", 1,
			 "num_return_sequences", 1, "past_present_share_buffer",
			 1, "repetition_penalty", 1.0, "temperature", 1.0,
			 "top_k", 50, "top_p", 1.0);
}

int32_t gen_settings_write(const struct genai_genconf *conf, const char *dir,
			   struct genai_error *err)
{
	json_t *root = json_pack("{s:o, s:o}", "model", model(conf), "search",
				 search(conf));
	char path[4096];
	int32_t rc = GENAI_OK;

	if (!root)
		return genai_fail(err, GENAI_E_NOMEM,
				  "genai_config.json: no memory, or a name "
				  "that is not UTF-8");
	snprintf(path, sizeof(path), "%s/genai_config.json", dir);
	if (json_dump_file(root, path, JSON_INDENT(4) | JSON_SORT_KEYS))
		rc = genai_fail(err, GENAI_E_IO, "%s: cannot write: %s", path,
				strerror(errno));
	json_decref(root);
	return rc;
}
