// embed_config.c - reading what sentence-transformers writes beside a graph.
//
// modules.json lists the parts of a model in the order of use: a Transformer,
// a Pooling, perhaps a Normalize.  Each has a folder with its own file.
#include "core/model/embed_config.h"

#include <genai/genai.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/error.h"
#include "core/base/json_file.h"

#define PATH_BYTES 4400

static void least(uint64_t *io, int64_t v)
{
	if (v > 0 && v <= INT32_MAX && (!*io || (uint64_t)v < *io))
		*io = (uint64_t)v;
}

static int64_t number(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

// ---- the modules ----

static int32_t pooling_by_name(const char *path, const char *name,
			       struct genai_embed_config *c,
			       struct genai_error *err)
{
	static const char *const names[] = {"", "mean", "cls", "lasttoken"};

	for (uint32_t i = 1; i < 4; i++)
		if (!strcmp(name, names[i]) && !c->pooling) {
			c->pooling = i;
			return 0;
		}
	return genai_fail(err, GENAI_E_UNSUPPORTED,
			  "%s: pooling %s is not carried; one of mean, cls and "
			  "lasttoken is",
			  path, c->pooling ? "of several kinds" : name);
}

static int32_t take_pooling(const char *path, const json_t *j,
			    struct genai_embed_config *c,
			    struct genai_error *err)
{
	static const char prefix[] = "pooling_mode_";
	json_t *mode = json_object_get(j, "pooling_mode"), *v;
	const json_t *with = json_object_get(j, "include_prompt");
	const char *key;
	int32_t rc = 0;

	if (json_is_false(with) && c->prompt[0])
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: include_prompt false is not carried",
				  path);
	if (json_is_string(mode))
		return pooling_by_name(path, json_string_value(mode), c, err);
	json_object_foreach((json_t *)j, key, v)
	{
		const char *name = key + sizeof(prefix) - 1;

		if (rc || strncmp(key, prefix, sizeof(prefix) - 1) ||
		    !json_is_true(v))
			continue;
		// cls_token, mean_tokens, max_tokens, lasttoken, ...
		if (!strcmp(name, "cls_token"))
			name = "cls";
		else if (!strcmp(name, "mean_tokens"))
			name = "mean";
		rc = pooling_by_name(path, name, c, err);
	}
	if (!rc && !c->pooling)
		rc = genai_fail(err, GENAI_E_FORMAT, "%s: says no pooling",
				path);
	return rc;
}

static int32_t take_module(const char *folder, const json_t *m,
			   struct genai_embed_config *c,
			   struct genai_error *err)
{
	const char *type = json_string_value(json_object_get(m, "type"));
	const char *at = json_string_value(json_object_get(m, "path"));
	const char *name = type ? strrchr(type, '.') : NULL;
	char file[600];
	json_t *j;
	int32_t rc;

	name = name ? name + 1 : type ? type : "without a type";
	if (!strcmp(name, "Transformer"))
		return 0;
	if (!strcmp(name, "Normalize")) {
		c->normalize = true;
		return 0;
	}
	if (strcmp(name, "Pooling") || !at || !*at || strstr(at, "..") ||
	    *at == '/' || strlen(at) > 500)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s/modules.json: module %s is not carried",
				  folder, name);
	snprintf(file, sizeof(file), "%s/config.json", at);
	rc = genai_json_file(folder, file, JSON_REJECT_DUPLICATES, &j, err);
	if (!rc && !json_is_object(j))
		rc = genai_fail(err, GENAI_E_FORMAT, "%s/%s: no JSON object",
				folder, file);
	if (!rc)
		rc = take_pooling(file, j, c, err);
	json_decref(j);
	return rc;
}

static int32_t take_modules(const char *folder, struct genai_embed_config *c,
			    struct genai_error *err)
{
	json_t *j;
	int32_t rc = genai_json_file(folder, "modules.json", JSON_REJECT_DUPLICATES, &j, err);

	if (!rc && j && !json_is_array(j))
		rc = genai_fail(err, GENAI_E_FORMAT,
				"%s/modules.json: no JSON array", folder);
	for (size_t i = 0; !rc && i < json_array_size(j); i++)
		rc = take_module(folder, json_array_get(j, i), c, err);
	json_decref(j);
	return rc;
}

// ---- the files beside it ----

static int32_t take_prompt(const char *folder, struct genai_embed_config *c,
			   struct genai_error *err)
{
	const char *name, *text;
	json_t *j;
	int32_t rc = genai_json_file(folder, "config_sentence_transformers.json", JSON_REJECT_DUPLICATES, &j, err);

	name = json_string_value(json_object_get(j, "default_prompt_name"));
	text = name ? json_string_value(json_object_get(
			      json_object_get(j, "prompts"), name))
		    : "";
	if (!rc && (!text || strlen(text) >= sizeof(c->prompt)))
		rc = genai_fail(err, GENAI_E_FORMAT,
				"%s/config_sentence_transformers.json: prompt "
				"%s is not there, or too long",
				folder, name);
	else if (!rc)
		snprintf(c->prompt, sizeof(c->prompt), "%s", text);
	json_decref(j);
	return rc;
}

static int32_t take_lengths(const char *folder, struct genai_embed_config *c,
			    struct genai_error *err)
{
	// whose tables of positions begin behind the padding's number
	static const char *const offset[] = {"roberta", "xlm-roberta",
					     "camembert", "mpnet", "xlm-r"};
	const char *type;
	int64_t positions;
	json_t *j;
	int32_t rc = genai_json_file(folder, "sentence_bert_config.json", JSON_REJECT_DUPLICATES, &j, err);

	if (!rc && json_is_true(json_object_get(j, "do_lower_case")))
		rc = genai_fail(err, GENAI_E_UNSUPPORTED,
				"%s/sentence_bert_config.json: do_lower_case "
				"is not carried",
				folder);
	least(&c->max_tokens, number(j, "max_seq_length"));
	json_decref(j);
	if (rc)
		return rc;
	rc = genai_json_file(folder, "tokenizer_config.json", JSON_REJECT_DUPLICATES, &j, err);
	least(&c->max_tokens, number(j, "model_max_length"));
	json_decref(j);
	if (rc)
		return rc;
	rc = genai_json_file(folder, "config.json", JSON_REJECT_DUPLICATES, &j, err);
	type = json_string_value(json_object_get(j, "model_type"));
	positions = number(j, "max_position_embeddings");
	for (size_t i = 0; type && i < sizeof(offset) / sizeof(offset[0]); i++)
		if (!strcmp(type, offset[i]))
			positions -= number(j, "pad_token_id") + 1;
	least(&c->max_tokens, positions);
	c->vocab_size = number(j, "vocab_size");
	json_decref(j);
	return rc;
}

int32_t genai_embed_config_load(const char *folder,
				struct genai_embed_config *out,
				struct genai_error *err)
{
	char home[PATH_BYTES], path[PATH_BYTES + 20];
	struct stat st;
	int32_t rc;

	memset(out, 0, sizeof(*out));
	snprintf(home, sizeof(home), "%s", folder);
	snprintf(path, sizeof(path), "%s/config.json", home);
	if (stat(path, &st))
		snprintf(home, sizeof(home), "%s/..", folder);
	rc = take_prompt(home, out, err);
	if (!rc)
		rc = take_modules(home, out, err);
	return rc ? rc : take_lengths(home, out, err);
}
