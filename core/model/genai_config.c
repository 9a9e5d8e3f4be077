// genai_config.c - reading genai_config.json.
#include "core/model/genai_config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/model/config_keys.h"
#include "core/model/source_config.h"

#define MAX_JSON (16u << 20)
#define MAX_DEPTH 64

struct reader {
	char path[4200];
	const struct genai_log *log;
	struct genai_error *err;
	int32_t rc;
};

static void bad(struct reader *r, const char *key, const char *what)
{
	if (!r->rc)
		r->rc = genai_fail(r->err, GENAI_E_FORMAT, "%s: %s: %s",
				   r->path, key, what);
}

static const json_t *member(struct reader *r, const json_t *o, const char *key,
			    const char *full)
{
	const json_t *v = o ? json_object_get(o, key) : NULL;

	if (!v || json_is_null(v))
		return NULL;
	if (!json_is_object(v)) {
		bad(r, full, "is not an object");
		return NULL;
	}
	return v;
}

static void get_int(struct reader *r, const json_t *o, const char *full,
		    int64_t lo, int64_t hi, int64_t *out)
{
	const char *key = strrchr(full, '.');
	const json_t *v = json_object_get(o, key ? key + 1 : full);
	double d;

	if (!v || json_is_null(v))
		return;
	if (json_is_real(v)) {
		d = json_real_value(v);
		if (d != floor(d) || fabs(d) > 1e15) {
			bad(r, full, "is not a whole number");
			return;
		}
		*out = (int64_t)d;
	} else if (json_is_integer(v)) {
		*out = json_integer_value(v);
	} else {
		bad(r, full, "is not a number");
		return;
	}
	if (*out < lo || *out > hi)
		bad(r, full, "is out of range");
}

static void get_num(struct reader *r, const json_t *o, const char *full,
		    double lo, double hi, double *out)
{
	const char *key = strrchr(full, '.');
	const json_t *v = json_object_get(o, key ? key + 1 : full);

	if (!v || json_is_null(v))
		return;
	if (!json_is_number(v)) {
		bad(r, full, "is not a number");
		return;
	}
	*out = json_number_value(v);
	if (!(*out >= lo && *out <= hi))
		bad(r, full, "is out of range");
}

static void get_str(struct reader *r, const json_t *o, const char *full,
		    char *out, size_t cap)
{
	const char *key = strrchr(full, '.');
	const json_t *v = o ? json_object_get(o, key ? key + 1 : full) : NULL;

	if (!v || json_is_null(v))
		return;
	if (!json_is_string(v))
		bad(r, full, "is not a string");
	else if (json_string_length(v) >= cap)
		bad(r, full, "is too long");
	else
		snprintf(out, cap, "%s", json_string_value(v));
}

// A name inside the folder: relative, without "..".
static void get_path(struct reader *r, const json_t *o, const char *full,
		     char *out, size_t cap)
{
	const char *p;

	get_str(r, o, full, out, cap);
	if (out[0] == '/')
		bad(r, full, "is an absolute path");
	for (p = out; p && *p; p = strchr(p, '/'), p = p ? p + 1 : NULL)
		if (!strncmp(p, "..", 2) && (!p[2] || p[2] == '/'))
			bad(r, full, "leaves the model folder");
}

// One %d and no other conversion.
static void get_template(struct reader *r, const json_t *o, const char *full,
			 char *out, size_t cap)
{
	const char *p;

	get_str(r, o, full, out, cap);
	p = strchr(out, '%');
	if (!p || p[1] != 'd' || strchr(p + 1, '%'))
		bad(r, full, "is not a name with one %d");
}

static void get_ids(struct reader *r, const json_t *model, const char *full,
		    struct genai_model_config *c)
{
	const json_t *v = json_object_get(model, strrchr(full, '.') + 1);
	size_t n;

	if (!v || json_is_null(v))
		return;
	n = json_is_array(v) ? json_array_size(v) : 1;
	if (n > GENAI_MAX_EOS) {
		bad(r, full, "lists more than 64 ids");
		return;
	}
	c->n_eos = 0;
	for (size_t i = 0; i < n; i++) {
		const json_t *e = json_is_array(v) ? json_array_get(v, i) : v;

		if (!json_is_integer(e) || json_integer_value(e) < 0 ||
		    json_integer_value(e) > INT32_MAX) {
			bad(r, full, "is not a token id or a list of them");
			return;
		}
		c->eos[c->n_eos++] = json_integer_value(e);
	}
}

// pad_token_id: a list is a mistake that real folders have; the first counts.
static void get_pad(struct reader *r, const json_t *model,
		    struct genai_model_config *c)
{
	const json_t *v = json_object_get(model, "pad_token_id");

	if (json_is_array(v)) {
		if (r->log)
			genai_log_line(r->log, GENAI_LOG_WARN,
				       "%s: model.pad_token_id is a list: its "
				       "first id "
				       "is used",
				       r->path);
		v = json_array_get(v, 0);
	}
	if (!v || json_is_null(v))
		return;
	if (!json_is_integer(v))
		bad(r, "model.pad_token_id", "is not a token id");
	else
		c->pad = json_integer_value(v);
}

static void read_names(struct reader *r, const json_t *dec,
		       struct genai_model_config *c)
{
	const json_t *in = member(r, dec, "inputs", "model.decoder.inputs");
	const json_t *out = member(r, dec, "outputs", "model.decoder.outputs");

	get_str(r, in, "input_ids", c->input_ids, sizeof(c->input_ids));
	get_str(r, in, "attention_mask", c->attention_mask,
		sizeof(c->attention_mask));
	get_str(r, in, "position_ids", c->position_ids,
		sizeof(c->position_ids));
	get_template(r, in, "past_key_names", c->past_key, sizeof(c->past_key));
	get_template(r, in, "past_value_names", c->past_value,
		     sizeof(c->past_value));
	get_template(r, in, "past_conv_names", c->past_conv,
		     sizeof(c->past_conv));
	get_template(r, in, "past_recurrent_names", c->past_recurrent,
		     sizeof(c->past_recurrent));
	get_str(r, out, "logits", c->logits, sizeof(c->logits));
	get_template(r, out, "present_key_names", c->present_key,
		     sizeof(c->present_key));
	get_template(r, out, "present_value_names", c->present_value,
		     sizeof(c->present_value));
	get_template(r, out, "present_conv_names", c->present_conv,
		     sizeof(c->present_conv));
	get_template(r, out, "present_recurrent_names", c->present_recurrent,
		     sizeof(c->present_recurrent));
}

// A stage that is not for every step has a graph of its own for the others.
static bool always(const json_t *stage)
{
	return !json_is_false(json_object_get(stage, "run_on_prompt")) &&
	       !json_is_false(json_object_get(stage, "run_on_token_gen"));
}

static void pipeline_fails(struct reader *r, const char *stage, const char *why)
{
	if (!r->rc)
		r->rc = genai_fail(r->err, GENAI_E_UNSUPPORTED,
				   "%s: model.decoder.pipeline: stage %.60s %s",
				   r->path, stage, why);
}

static void read_stage(struct reader *r, const char *name, json_t *j,
		       struct genai_model_config *c)
{
	struct genai_stage *s = &c->stages[c->n_stages];
	json_t *to;
	const char *from;

	if (c->n_stages == GENAI_MAX_STAGES || strlen(name) > 60) {
		pipeline_fails(r, name, "is one too many, or has a long name");
		return;
	}
	if (!json_is_object(j) || !always(j)) {
		pipeline_fails(r, name,
			       "is not for prompts and single tokens alike, "
			       "which is not supported");
		return;
	}
	memset(s, 0, sizeof(*s));
	snprintf(s->name, sizeof(s->name), "%.60s", name);
	get_path(r, j, "model.decoder.pipeline.filename", s->filename,
		 sizeof(s->filename));
	if (!s->filename[0])
		pipeline_fails(r, name, "has no filename");
	json_object_foreach(json_object_get(j, "output_names_forwarder"), from,
			    to)
	{
		const char *text = json_string_value(to);

		if (!text || strlen(from) > 127 || strlen(text) > 127 ||
		    s->n_forwards == GENAI_MAX_FORWARDS) {
			pipeline_fails(r, name,
				       "forwards too many outputs, or none by "
				       "that name");
			return;
		}
		strcpy(s->forward[s->n_forwards][0], from);
		strcpy(s->forward[s->n_forwards++][1], text);
	}
	c->n_stages++;
}

// A list of objects, or one, of stages by name; null, [] and {} are how
// exporters say that there are none.
static void read_pipeline(struct reader *r, json_t *list,
			  struct genai_model_config *c)
{
	size_t n = json_is_array(list) ? json_array_size(list)
				       : json_is_object(list);

	for (size_t i = 0; i < n && !r->rc; i++) {
		json_t *stages =
			json_is_array(list) ? json_array_get(list, i) : list;
		const char *name;
		json_t *j;

		json_object_foreach(stages, name, j) if (!r->rc)
			read_stage(r, name, j, c);
	}
}

// Providers are named as "cuda" or as "CUDAExecutionProvider".
static bool is_not_cuda(const json_t *options)
{
	const json_t *one;
	const char *name;
	json_t *v;
	size_t i, n = 0;

	json_array_foreach(options, i, one)
	{
		json_object_foreach((json_t *)one, name, v)
		{
			if (!strncasecmp(name, "cuda", 4))
				return false;
			n++;
		}
	}
	return n > 0;
}

static void read_decoder(struct reader *r, const json_t *dec,
			 struct genai_model_config *c)
{
	const json_t *so;

	get_path(r, dec, "model.decoder.filename", c->filename,
		 sizeof(c->filename));
	get_int(r, dec, "model.decoder.head_size", 0, 1 << 20, &c->head_size);
	get_int(r, dec, "model.decoder.num_key_value_heads", 0, 1 << 20,
		&c->n_kv_heads);
	get_int(r, dec, "model.decoder.num_hidden_layers", 0, 1 << 20,
		&c->n_layers);
	get_int(r, dec, "model.decoder.conv_cache_size", 0, 1 << 20,
		&c->conv_cache);
	so = member(r, dec, "session_options", "model.decoder.session_options");
	c->not_cuda = is_not_cuda(json_object_get(so, "provider_options"));
	if (so && json_object_get(so, "custom_ops_library") && !r->rc)
		r->rc = genai_fail(r->err, GENAI_E_UNSUPPORTED,
				   "%s: model.decoder.session_options."
				   "custom_ops_library is not supported",
				   r->path);
	read_pipeline(r, json_object_get(dec, "pipeline"), c);
	read_names(r, dec, c);
}

static void read_search(struct reader *r, const json_t *s,
			struct genai_model_config *c)
{
	const json_t *v = json_object_get(s, "do_sample");

	if (v && !json_is_boolean(v))
		bad(r, "search.do_sample", "is not true or false");
	c->do_sample = json_is_true(v);
	get_num(r, s, "search.temperature", 0, 100, &c->temperature);
	get_num(r, s, "search.top_p", 0, 1, &c->top_p);
	get_num(r, s, "search.repetition_penalty", 1e-6, 1e6,
		&c->repetition_penalty);
	get_int(r, s, "search.top_k", 0, INT32_MAX, &c->top_k);
	get_int(r, s, "search.max_length", 0, INT32_MAX, &c->max_length);
	get_int(r, s, "search.min_length", 0, INT32_MAX, &c->min_length);
	get_int(r, s, "search.no_repeat_ngram_size", 0, 1 << 20,
		&c->no_repeat_ngram);
	get_int(r, s, "search.chunk_size", 0, INT32_MAX, &c->chunk_size);
}

static void read_root(struct reader *r, const json_t *root,
		      struct genai_model_config *c)
{
	const json_t *model, *dec, *search;

	if (!json_is_object(root)) {
		bad(r, "the file", "is not a JSON object");
		return;
	}
	model = member(r, root, "model", "model");
	if (!model) {
		bad(r, "model", "is missing");
		return;
	}
	get_str(r, model, "model.type", c->type, sizeof(c->type));
	get_path(r, model, "model.tokenizer_dir", c->tokenizer_dir,
		 sizeof(c->tokenizer_dir));
	get_int(r, model, "model.vocab_size", 1, 1 << 22, &c->vocab_size);
	get_int(r, model, "model.context_length", 1, INT32_MAX,
		&c->context_length);
	get_int(r, model, "model.bos_token_id", -1, INT32_MAX, &c->bos);
	get_pad(r, model, c);
	get_ids(r, model, "model.eos_token_id", c);
	if (!json_object_get(model, "eos_token_id") && c->pad >= 0)
		c->eos[c->n_eos++] = c->pad;
	for (uint32_t i = 0; i < c->n_eos && c->vocab_size; i++)
		if (c->eos[i] >= c->vocab_size)
			bad(r, "model.eos_token_id",
			    "holds an id beyond vocab_size");
	// its decoder reads what an encoder makes of another text, or of sound
	if (json_object_get(model, "encoder") && !r->rc)
		r->rc = genai_fail(
			r->err, GENAI_E_UNSUPPORTED,
			"%s: model.encoder: models of an encoder and "
			"a decoder (%s) are not supported",
			r->path, c->type);
	dec = member(r, model, "decoder", "model.decoder");
	if (dec)
		read_decoder(r, dec, c);
	search = member(r, root, "search", "search");
	if (search)
		read_search(r, search, c);
	if (!r->rc && r->log)
		genai_config_keys_warn(r->log, r->path, root);
}

static void defaults(struct genai_model_config *c)
{
	memset(c, 0, sizeof(*c));
	strcpy(c->type, "decoder");
	strcpy(c->filename, "model.onnx");
	strcpy(c->input_ids, "input_ids");
	strcpy(c->attention_mask, "attention_mask");
	strcpy(c->position_ids, "position_ids");
	strcpy(c->past_key, "past_key_values.%d.key");
	strcpy(c->past_value, "past_key_values.%d.value");
	strcpy(c->logits, "logits");
	strcpy(c->present_key, "present.%d.key");
	strcpy(c->present_value, "present.%d.value");
	strcpy(c->past_conv, "past_conv.%d");
	strcpy(c->present_conv, "present_conv.%d");
	strcpy(c->past_recurrent, "past_recurrent.%d");
	strcpy(c->present_recurrent, "present_recurrent.%d");
	c->bos = c->pad = -1;
	c->temperature = c->repetition_penalty = 1;
	c->top_p = 1;
	c->top_k = 50;
}

// Nesting, before the JSON library sees it.
static bool too_deep(const char *text, size_t n)
{
	int depth = 0;
	bool str = false;

	for (size_t i = 0; i < n; i++) {
		if (str && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			str = !str;
		else if (!str && (text[i] == '[' || text[i] == '{') &&
			 ++depth > MAX_DEPTH)
			return true;
		else if (!str && (text[i] == ']' || text[i] == '}'))
			depth--;
	}
	return false;
}

static int32_t slurp(const char *path, char **out, size_t *out_n,
		     struct genai_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	ssize_t n;
	char *text;

	if (fd < 0)
		return genai_fail(
			err, errno == ENOENT ? GENAI_E_NOTFOUND : GENAI_E_IO,
			"%s: cannot open: %s", path, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > MAX_JSON) {
		close(fd);
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: not a regular file of at most 16 MiB",
				  path);
	}
	text = malloc((size_t)st.st_size + 1);
	n = text ? pread(fd, text, (size_t)st.st_size, 0) : -1;
	close(fd);
	if (n < 0) {
		free(text);
		return genai_fail(err, GENAI_E_IO, "%s: cannot read", path);
	}
	*out = text;
	*out_n = (size_t)n;
	return 0;
}

int32_t genai_model_config_load(const char *folder, const struct genai_log *log,
				struct genai_model_config *out,
				struct genai_error *err)
{
	struct reader r = {.log = log, .err = err};
	json_error_t je;
	json_t *root;
	char *text = NULL, *start;
	size_t n = 0;
	int32_t rc;

	defaults(out);
	if (snprintf(r.path, sizeof(r.path), "%s/genai_config.json", folder) >=
	    (int)sizeof(r.path))
		return genai_fail(err, GENAI_E_INVAL, "%.64s...: path too long",
				  folder);
	rc = slurp(r.path, &text, &n, err);
	if (rc == GENAI_E_NOTFOUND)
		genai_source_config(folder, out);
	if (rc)
		return rc;
	start = text;
	if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3)) {
		start += 3;
		n -= 3;
	}
	if (n >= 42 &&
	    !memcmp(start, "version https://git-lfs.github.com/spec/v1", 42)) {
		free(text);
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: is a Git LFS pointer; run git lfs pull",
				  r.path);
	}
	if (too_deep(start, n)) {
		free(text);
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: nested deeper than %d", r.path,
				  MAX_DEPTH);
	}
	root = json_loadb(start, n, JSON_REJECT_DUPLICATES, &je);
	free(text);
	if (!root)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: line %d, column %d: %s", r.path, je.line,
				  je.column, je.text);
	read_root(&r, root, out);
	json_decref(root);
	return r.rc;
}
