// template_chat.c - from a model folder and a conversation to a prompt.
// Owns: where a folder keeps its template, and what transformers does around
// the rendering.
#include "core/text/template/template.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/text/template/jinja.h"

#define MAX_FILE (64u << 20)

// Read a whole file of the folder.  GENAI_E_NOTFOUND, err untouched, if there
// is none of that name.
static int read_file(const char *dir, const char *name, char **out_text,
		     size_t *out_bytes, struct genai_error *err)
{
	char path[4096], *text = NULL, *more;
	size_t n = 0, cap = 0, got;
	FILE *f;
	int rc = 0;

	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >=
	    (int)sizeof(path))
		return genai_fail(err, GENAI_E_INVAL, "%.64s...: path too long",
				  dir);
	f = fopen(path, "rbe");
	if (!f && (errno == ENOENT || errno == ENOTDIR))
		return GENAI_E_NOTFOUND;
	if (!f)
		return genai_fail(err, GENAI_E_IO, "%s: %s", path,
				  strerror(errno));
	do {
		cap = cap * 2 + 65536;
		more = realloc(text, cap);
		if (!more) {
			rc = genai_fail(err, GENAI_E_NOMEM,
					"%s: no memory to read", path);
			break;
		}
		text = more;
		got = fread(text + n, 1, cap - n, f);
		n += got;
	} while (n == cap && n <= MAX_FILE);
	if (!rc && ferror(f))
		rc = genai_fail(err, GENAI_E_IO, "%s: %s", path,
				strerror(errno));
	if (!rc && n > MAX_FILE)
		rc = genai_fail(err, GENAI_E_LIMIT, "%s: more than %u bytes",
				path, MAX_FILE);
	fclose(f);
	if (rc) {
		free(text);
		return rc;
	}
	*out_text = text;
	*out_bytes = n;
	return 0;
}

// chat_template of a JSON file: a string, which is "default", or the one of
// that name in a list.
static json_t *pick(json_t *root, const char *want)
{
	json_t *t = json_object_get(root, "chat_template"), *one, *text;
	const char *name;
	size_t i;

	if (json_is_string(t))
		return strcmp(want, "default") ? NULL : t;
	json_array_foreach(t, i, one)
	{
		name = json_string_value(json_object_get(one, "name"));
		text = json_object_get(one, "template");
		if (name && !strcmp(name, want) && json_is_string(text))
			return text;
	}
	return NULL;
}

static int from_json(const char *dir, const char *name, const char *want,
		     struct genai_template **out_t, struct genai_error *err)
{
	json_error_t why;
	json_t *root, *t;
	char *text = NULL;
	size_t bytes = 0;
	int rc = read_file(dir, name, &text, &bytes, err);

	if (rc)
		return rc;
	root = json_loadb(text, bytes, 0, &why);
	free(text);
	if (!root)
		return genai_fail(err, GENAI_E_FORMAT, "%s/%s:%d: %s", dir,
				  name, why.line, why.text);
	t = pick(root, want);
	rc = t ? genai_template_parse(name, json_string_value(t),
				      json_string_length(t), out_t, err)
	       : GENAI_E_NOTFOUND;
	json_decref(root);
	return rc;
}

static int from_file(const char *dir, const char *name,
		     struct genai_template **out_t, struct genai_error *err)
{
	char *text = NULL;
	size_t bytes = 0;
	int rc = read_file(dir, name, &text, &bytes, err);

	if (!rc)
		rc = genai_template_parse(name, text, bytes, out_t, err);
	free(text);
	return rc;
}

static int named(const char *dir, const char *file, const char *want,
		 struct genai_template **out_t, struct genai_error *err)
{
	int rc = from_file(dir, file, out_t, err);

	if (rc == GENAI_E_NOTFOUND)
		rc = from_json(dir, "chat_template.json", want, out_t, err);
	if (rc == GENAI_E_NOTFOUND)
		rc = from_json(dir, "tokenizer_config.json", want, out_t, err);
	return rc;
}

// Add the text of a token, which is a string or an object that holds one.
static int token_of(const json_t *config, const char *key, json_t *vars)
{
	json_t *v = json_object_get(config, key);

	if (json_is_object(v))
		v = json_object_get(v, "content");
	if (!json_is_string(v) || json_object_get(vars, key))
		return 0;
	return json_object_set(vars, key, v);
}

// The folder's bos_token and eos_token; files that cannot be read name none.
static int special_tokens(const char *dir, struct genai_template *t,
			  struct genai_error *err)
{
	static const char *const files[] = {"tokenizer_config.json",
					    "special_tokens_map.json"};
	json_t *vars = json_object(), *root;
	int bad = vars ? 0 : -1;

	for (int i = 0; !bad && i < 2; i++) {
		char *text = NULL;
		size_t bytes = 0;

		if (read_file(dir, files[i], &text, &bytes, NULL))
			continue;
		root = json_loadb(text, bytes, 0, NULL);
		free(text);
		bad = token_of(root, "bos_token", vars) |
		      token_of(root, "eos_token", vars);
		json_decref(root);
	}
	if (bad) {
		json_decref(vars);
		return genai_fail(err, GENAI_E_NOMEM, "%s: no memory to read",
				  dir);
	}
	template_set_defaults(t, vars);
	return 0;
}

int32_t genai_template_open(const char *dir, int32_t has_tools,
			    struct genai_template **out_t,
			    struct genai_error *err)
{
	int rc = GENAI_E_NOTFOUND;

	*out_t = NULL;
	if (has_tools)
		rc = named(dir, "additional_chat_templates/tool_use.jinja",
			   "tool_use", out_t, err);
	if (rc == GENAI_E_NOTFOUND)
		rc = named(dir, "chat_template.jinja", "default", out_t, err);
	if (rc == GENAI_E_NOTFOUND)
		return genai_fail(err, rc, "%s: no chat template", dir);
	if (!rc)
		rc = special_tokens(dir, *out_t, err);
	if (rc) {
		genai_template_close(*out_t);
		*out_t = NULL;
	}
	return rc;
}

// The rest is what transformers does around the rendering.  The mark is put
// behind the text to be continued; a template that strips the text takes the
// mark's own blank off, too.
static const char mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";

// A shallow copy.  jansson's own is silently short when memory is.
static json_t *copy_of(json_t *j)
{
	json_t *copy = json_copy(j);

	if (json_object_size(copy) == json_object_size(j) &&
	    json_array_size(copy) == json_array_size(j))
		return copy;
	json_decref(copy);
	return NULL;
}

// A new reference to text with the mark behind it.
static json_t *marked(const json_t *text)
{
	size_t n = json_string_length(text);
	char *s = text ? malloc(n + sizeof(mark)) : NULL;
	json_t *j;

	if (!s)
		return NULL;
	memcpy(s, json_string_value(text), n);
	memcpy(s + n, mark, sizeof(mark));
	j = json_stringn_nocheck(s, n + sizeof(mark) - 1);
	free(s);
	return j;
}

// Put a copy of object, whose text under key is marked, into list[i].
static int mark_text(json_t *list, size_t i, const char *key)
{
	json_t *copy = copy_of(json_array_get(list, i));
	int rc = json_object_set_new(copy, key,
				     marked(json_object_get(copy, key)));

	if (!rc)
		rc = json_array_set(list, i, copy);
	json_decref(copy);
	return rc;
}

// The index behind the last block of the list that has text; 0: none.
static size_t last_text(const json_t *list)
{
	size_t i = json_array_size(list);

	while (i && !json_is_string(json_object_get(json_array_get(list, i - 1),
						    "text")))
		i--;
	return i;
}

static int mark_final(json_t *messages, struct genai_error *err)
{
	size_t n = json_array_size(messages) - 1, block;
	json_t *content =
		json_object_get(json_array_get(messages, n), "content");
	json_t *list, *last;
	int rc;

	block = last_text(content);
	if (!block && !json_is_string(content))
		return genai_fail(err, GENAI_E_INVAL,
				  "message %zu has no text to continue", n);
	if (!block) {
		rc = mark_text(messages, n, "content");
	} else {
		list = copy_of(content);
		last = copy_of(json_array_get(messages, n));
		rc = list ? mark_text(list, block - 1, "text") : -1;
		if (!rc)
			rc = json_object_set(last, "content", list);
		if (!rc)
			rc = json_array_set(messages, n, last);
		json_decref(list);
		json_decref(last);
	}
	return rc ? genai_fail(err, GENAI_E_NOMEM, "no memory for a message")
		  : 0;
}

// "thinking" and "reasoning_content" are two names of one thing.
static int alias(json_t *messages, size_t i, const char *from, const char *to)
{
	json_t *m = json_array_get(messages, i), *copy;
	json_t *v = json_object_get(m, from);
	int rc;

	if (!v || json_object_get(m, to))
		return 0;
	copy = copy_of(m);
	rc = json_object_set(copy, to, v);
	if (!rc)
		rc = json_array_set(messages, i, copy);
	json_decref(copy);
	return rc;
}

// The variables as the template shall see them: a new reference.
static int prepare(const struct genai_template *t, json_t *vars,
		   int continue_final, json_t **out_vars,
		   struct genai_error *err)
{
	json_t *list = json_object_get(vars, "messages"), *all = NULL, *m;
	size_t i;
	int rc = 0, bad = 0;

	if (!json_is_array(list))
		return genai_fail(err, GENAI_E_INVAL,
				  "messages are not an array");
	json_array_foreach(
		list, i,
		m) if (!json_is_object(m)) return genai_fail(err, GENAI_E_INVAL,
							     "message %zu is "
							     "not an object",
							     i);
	if (continue_final && !json_array_size(list))
		return genai_fail(err, GENAI_E_INVAL, "no message to continue");
	list = copy_of(list);
	all = copy_of(vars);
	if (!list || !all)
		bad = -1;
	for (i = 0; !bad && i < json_array_size(list); i++) {
		bad = alias(list, i, "reasoning_content", "thinking");
		if (!bad)
			bad = alias(list, i, "thinking", "reasoning_content");
	}
	if (!bad && continue_final)
		rc = mark_final(list, err);
	if (!bad && !rc) {
		bad = json_object_set(all, "messages", list);
		if (!json_object_get(all, "tools"))
			bad |= json_object_set_new(all, "tools", json_null());
		if (!json_object_get(all, "documents"))
			bad |= json_object_set_new(all, "documents",
						   json_null());
		if (!json_object_get(all, "add_generation_prompt"))
			bad |= json_object_set_new(all, "add_generation_prompt",
						   json_false());
		bad |= json_object_update_missing(all, template_defaults(t)) &&
		       template_defaults(t);
	}
	if (bad)
		rc = genai_fail(err, GENAI_E_NOMEM, "no memory to render");
	json_decref(list);
	if (rc)
		json_decref(all);
	else
		*out_vars = all;
	return rc;
}

// Cut the text at the last mark.
static int cut(char *text, size_t *io_bytes, struct genai_error *err)
{
	const size_t len = sizeof(mark) - 2; // the mark without its blank
	size_t at = *io_bytes;

	for (;; at--) {
		if (*io_bytes - at >= len && !memcmp(text + at, mark, len))
			break;
		if (!at)
			return genai_fail(err, GENAI_E_FORMAT,
					  "the final message does not appear "
					  "in the text, it cannot be "
					  "continued");
	}
	if (at + len == *io_bytes || text[at + len] != ' ')
		at = jinja_text_strip((struct jinja_str){text, at}, NULL, 0, 1)
			     .n;
	text[at] = 0;
	*io_bytes = at;
	return 0;
}

int32_t template_chat(const struct genai_template *t, json_t *vars,
		      int continue_final, int64_t now, int32_t utc_offset_s,
		      char **out_text, size_t *out_bytes,
		      struct genai_error *err)
{
	json_t *all = NULL;
	int rc;

	*out_text = NULL;
	*out_bytes = 0;
	rc = prepare(t, vars, continue_final, &all, err);
	if (rc)
		return rc;
	rc = template_render(t, all, now, utc_offset_s, out_text, out_bytes,
			     err);
	json_decref(all);
	if (!rc && continue_final)
		rc = cut(*out_text, out_bytes, err);
	if (rc) {
		free(*out_text);
		*out_text = NULL;
		*out_bytes = 0;
	}
	return rc;
}
