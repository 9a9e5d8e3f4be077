// source_config.c - reading the config.json of a model's source.
#include "core/model/source_config.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "core/base/json_file.h"

static int64_t number(const json_t *o, const char *key, int64_t most)
{
	const json_t *v = json_object_get(o, key);
	int64_t i = json_is_integer(v) ? json_integer_value(v) : 0;

	return i > 0 && i <= most ? i : 0;
}

static void ids(const json_t *v, struct genai_model_config *c)
{
	size_t n = json_is_array(v) ? json_array_size(v) : v != NULL;

	for (size_t i = 0; i < n && c->n_eos < GENAI_MAX_EOS; i++) {
		const json_t *e = json_is_array(v) ? json_array_get(v, i) : v;

		if (json_is_integer(e) && json_integer_value(e) >= 0 &&
		    json_integer_value(e) <= INT32_MAX)
			c->eos[c->n_eos++] = json_integer_value(e);
	}
}

static void take(const json_t *o, struct genai_model_config *c)
{
	int64_t heads = number(o, "num_attention_heads", 1 << 20);
	int64_t width = number(o, "hidden_size", 1 << 24);
	const json_t *type = json_object_get(o, "model_type");

	c->context_length = number(o, "max_position_embeddings", INT32_MAX);
	c->head_size = number(o, "head_dim", 1 << 20);
	if (!c->head_size && heads)
		c->head_size = width / heads;
	c->n_kv_heads = number(o, "num_key_value_heads", 1 << 20);
	if (!c->n_kv_heads)
		c->n_kv_heads = heads;
	c->n_layers = number(o, "num_hidden_layers", 1 << 20);
	if (json_is_string(type))
		snprintf(c->type, sizeof(c->type), "%.60s",
			 json_string_value(type));
	if (json_is_integer(json_object_get(o, "bos_token_id")))
		c->bos = json_integer_value(json_object_get(o, "bos_token_id"));
	ids(json_object_get(o, "eos_token_id"), c);
}

bool genai_source_config(const char *folder, struct genai_model_config *io)
{
	static const char *const names[] = {"config.json", "../config.json"};
	const json_t *text;
	json_t *j = NULL;

	for (int i = 0; !j && i < 2; i++)
		genai_json_file(folder, names[i], JSON_REJECT_DUPLICATES, &j,
				NULL);
	if (!json_is_object(j)) {
		json_decref(j);
		return false;
	}
	// of a model that sees, too, the part for text
	text = json_object_get(j, "text_config");
	take(json_is_object(text) ? text : j, io);
	json_decref(j);
	return true;
}
