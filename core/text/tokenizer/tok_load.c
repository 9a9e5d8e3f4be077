// tok_load.c - from the text of tokenizer.json to a tokenizer: the top level,
// the added tokens, and what the parsers of the stages share.
#include "core/text/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/json_file.h"

int32_t tok_nomem(struct genai_error *err)
{
	return genai_fail(err, GENAI_E_NOMEM, "tokenizer: out of memory");
}

int32_t tok_unsupported(const struct tok_load *l, const char *stage,
			const char *what)
{
	return genai_fail(l->err, GENAI_E_UNSUPPORTED,
			  "%s: %s %s is not supported", l->name, stage, what);
}

int32_t tok_bad(const struct tok_load *l, const char *what)
{
	return genai_fail(l->err, GENAI_E_FORMAT, "%s: %s", l->name, what);
}

const char *tok_type(json_t *j)
{
	const char *type = json_string_value(json_object_get(j, "type"));

	return type ? type : "";
}

bool tok_bool(json_t *j, const char *key, bool absent)
{
	json_t *v = json_object_get(j, key);

	return json_is_boolean(v) ? json_is_true(v) : absent;
}

bool tok_is_null(json_t *j, const char *key)
{
	json_t *v = json_object_get(j, key);

	return !v || json_is_null(v);
}

int32_t tok_str(const struct tok_load *l, json_t *j, const char *key,
		char **out, size_t *out_n)
{
	json_t *v = json_object_get(j, key);
	size_t n = json_string_length(v);
	char *s;

	if (!json_is_string(v))
		return genai_fail(l->err, GENAI_E_FORMAT,
				  "%s: %s: \"%s\" is not a string", l->name,
				  tok_type(j), key);
	s = malloc(n + 1);
	if (!s)
		return tok_nomem(l->err);
	memcpy(s, json_string_value(v), n + 1);
	*out = s;
	*out_n = n;
	return 0;
}

int32_t tok_one_char(const struct tok_load *l, json_t *j, const char *key,
		     uint32_t *out)
{
	json_t *v = json_object_get(j, key);
	size_t n = json_string_length(v);
	unsigned len = 0;

	if (n)
		*out = tok_utf8_get(json_string_value(v), n, &len);
	if (!n || len != n)
		return genai_fail(l->err, GENAI_E_FORMAT,
				  "%s: %s: \"%s\" is not one character",
				  l->name, tok_type(j), key);
	return 0;
}

int32_t tok_sequence(const struct tok_load *l, json_t *j, const char *list,
		     int32_t (*fn)(const struct tok_load *l, json_t *j,
				   void *user),
		     void *user)
{
	json_t *v = json_object_get(j, list);
	int32_t rc = 0;
	size_t i;

	if (!j || json_is_null(j))
		return 0;
	if (strcmp(tok_type(j), "Sequence"))
		return fn(l, j, user);
	if (!json_is_array(v))
		return genai_fail(l->err, GENAI_E_FORMAT,
				  "%s: Sequence: no array \"%s\"", l->name,
				  list);
	// Sequences may nest; the depth of the JSON bounds the recursion.
	for (i = 0; !rc && i < json_array_size(v); i++)
		rc = tok_sequence(l, json_array_get(v, i), list, fn, user);
	return rc;
}

static int32_t open_object(struct tok_json *j, json_t **out)
{
	*out = json_object();
	if (!*out)
		return tok_nomem(j->err);
	return tok_json_expect(j, '{');
}

// A member of an object into the jansson object `to`.
static int32_t small_member(struct tok_json *j, const struct tok_buf *key,
			    json_t *to)
{
	json_t *value;
	int32_t rc;

	rc = tok_json_value(j, &value);
	if (!rc && json_object_set_new(to, key->p, value))
		rc = tok_nomem(j->err);
	return rc;
}

// "model": note where vocab and merges are, read the rest.
static int32_t read_model(struct tok_json *j, struct tok_spans *s)
{
	struct tok_buf key = {0};
	struct tok_json *big;
	bool first = true;
	int32_t rc = open_object(j, &s->rest);

	while (!rc && (rc = tok_json_next(j, '}', &first)) > 0) {
		rc = tok_json_key(j, &key);
		if (rc)
			break;
		big = !strcmp(key.p, "vocab")	 ? &s->vocab
		      : !strcmp(key.p, "merges") ? &s->merges
						 : NULL;
		if (big ? big->p != NULL
			: json_object_get(s->rest, key.p) != NULL) {
			rc = tok_json_fail(j, "duplicate key");
		} else if (big) {
			tok_json_peek(j);
			*big = *j;
			rc = tok_json_skip(j);
		} else {
			rc = small_member(j, &key, s->rest);
		}
	}
	tok_buf_free(&key);
	return rc;
}

static int32_t read_top(struct tok_json *j, struct tok_spans *s, json_t **top)
{
	struct tok_buf key = {0};
	bool first = true;
	int32_t rc = open_object(j, top);

	while (!rc && (rc = tok_json_next(j, '}', &first)) > 0) {
		rc = tok_json_key(j, &key);
		if (rc)
			break;
		if (json_object_get(*top, key.p) ||
		    (!strcmp(key.p, "model") && s->rest))
			rc = tok_json_fail(j, "duplicate key");
		else if (!strcmp(key.p, "model"))
			rc = read_model(j, s);
		else
			rc = small_member(j, &key, *top);
	}
	tok_buf_free(&key);
	if (!rc && tok_json_peek(j) >= 0)
		rc = tok_json_fail(j, "text after the end");
	return rc;
}

// ---- added tokens ----

static unsigned added_flags(json_t *a)
{
	bool special = tok_bool(a, "special", false);

	return (special ? TOK_SPECIAL : 0) |
	       (tok_bool(a, "single_word", false) ? TOK_SINGLE : 0) |
	       (tok_bool(a, "lstrip", false) ? TOK_LSTRIP : 0) |
	       (tok_bool(a, "rstrip", false) ? TOK_RSTRIP : 0) |
	       (tok_bool(a, "normalized", !special) ? TOK_NORMALIZED : 0);
}

static int32_t bad_added(const struct tok_load *l, json_t *a, const char *why)
{
	const char *text = json_string_value(json_object_get(a, "content"));

	return genai_fail(l->err, GENAI_E_FORMAT,
			  "%s: added token \"%.80s\": %s", l->name,
			  text ? text : "", why);
}

// The index of the text in v->added, entered if it is new.
static int64_t enter_added(struct tok_vocab *v, json_t *text)
{
	size_t n = json_string_length(text), off = v->text.n;
	int64_t i = tok_names_find(v, &v->added, json_string_value(text), n);
	struct tok_added a = {0};

	if (i >= 0)
		return i;
	i = v->added.n;
	tok_buf_add(&v->text, json_string_value(text), n);
	tok_buf_add(&v->info, &a, sizeof(a));
	if (v->text.failed || v->info.failed ||
	    tok_names_set(v, &v->added, (uint32_t)i, off) ||
	    tok_names_put(v, &v->added, (uint32_t)i))
		return -1;
	return i;
}

// One that the vocabulary has too keeps the id it has there.
static int32_t add_token(struct tok_vocab *v, const struct tok_load *l,
			 json_t *j)
{
	json_t *text = json_object_get(j, "content");
	json_int_t id = json_integer_value(json_object_get(j, "id"));
	size_t n = json_string_length(text);
	struct tok_added *a;
	int64_t i, known;

	if (!json_is_string(text) || !json_is_integer(json_object_get(j, "id")))
		return bad_added(l, j, "no id or no content");
	if (n > TOK_MAX_TOKEN || id < 0 || id >= (json_int_t)TOK_MAX_ID)
		return bad_added(l, j,
				 "longer than 4096 bytes, or its id is "
				 "not below 4194304");
	if (!n)
		return 0; // as the reference
	known = tok_vocab_find(v, json_string_value(text), n);
	i = enter_added(v, text);
	if (i < 0)
		return tok_nomem(l->err);
	a = tok_added(v, (uint32_t)i);
	a->id = (uint32_t)(known < 0 ? id : known);
	a->flags = (uint16_t)added_flags(j);
	a->show_off = v->added.e[i].off;
	a->show_len = v->added.e[i].len;
	if (a->id >= v->size)
		v->size = a->id + 1;
	return 0;
}

// The table of added tokens by id; one may take the id of a vocabulary token.
static int32_t index_ids(struct tok_vocab *v, const struct tok_load *l)
{
	uint32_t i, id;

	if (v->size < v->model.n)
		v->size = v->model.n;
	v->by_id = calloc(v->size + 1u, sizeof(*v->by_id));
	if (!v->by_id)
		return tok_nomem(l->err);
	for (i = 0; i < v->added.n; i++) {
		id = tok_added(v, i)->id;
		if (v->by_id[id])
			return genai_fail(l->err, GENAI_E_FORMAT,
					  "%s: two added tokens have id %u",
					  l->name, id);
		v->by_id[id] = i + 1;
	}
	return 0;
}

// Such a token is looked for, and shown, as the normalizer writes it.
static int32_t normalize_added(struct genai_tokenizer *t, struct tok_work *w,
			       uint32_t i)
{
	struct tok_vocab *v = &t->vocab;
	const struct tok_entry *e = v->added.e + i;
	struct tok_added *a = tok_added(v, i);
	bool start;
	int32_t rc =
		tok_normalize(&t->norms, w, v->text.p + e->off, e->len, &start);

	if (rc)
		return rc;
	if (w->norm[0].n > UINT16_MAX || v->text.n + w->norm[0].n > UINT32_MAX)
		return genai_fail(w->err, GENAI_E_LIMIT,
				  "added token %u is %zu bytes long when "
				  "normalized",
				  a->id, w->norm[0].n);
	a->show_off = (uint32_t)v->text.n;
	a->show_len = (uint16_t)w->norm[0].n;
	tok_buf_str(&v->text, w->norm);
	return v->text.failed ? tok_nomem(w->err) : 0;
}

// Enter the tokens in the sets to search for; of equal ones (normalized) a
// special one comes first, then the one that is first in the file.
static int32_t index_added(struct genai_tokenizer *t, struct tok_work *w)
{
	struct tok_vocab *v = &t->vocab;
	struct tok_added *a;
	int32_t rc = 0;
	int64_t same;
	uint32_t i;

	for (i = 0; i < v->added.n; i++) {
		a = tok_added(v, i);
		if (a->flags & TOK_NORMALIZED)
			rc = normalize_added(t, w, i);
		if (rc)
			return rc;
		tok_set_add(a->flags & TOK_NORMALIZED ? &t->normalized
						      : &t->plain,
			    a->show_off, a->show_len, i,
			    a->flags & TOK_SPECIAL ? i : i + TOK_MAX_ID);
		// The reference asks if what is shown spells a special token.
		same = tok_names_find(v, &v->added, v->text.p + a->show_off,
				      a->show_len);
		if (same >= 0 &&
		    tok_added(v, (uint32_t)same)->flags & TOK_SPECIAL)
			a->flags |= TOK_HIDDEN;
	}
	return 0;
}

// The object in a file beside tokenizer.json; NULL if there is no such file.
static int32_t read_beside(const struct tok_load *l, const char *file,
			   json_t **out)
{
	const char *slash = strrchr(l->name, '/');
	int dir = slash ? (int)(slash + 1 - l->name) : 0;
	char path[4400];

	snprintf(path, sizeof(path), "%.*s%s", dir, l->name, file);
	return genai_json_file("", path, 0, out, l->err);
}

// Is there a token of that text, or another one that has its id?
static bool is_added(const json_t *added, const char *text, json_int_t id)
{
	const json_t *one;
	size_t i;

	json_array_foreach(added, i, one)
	{
		const char *have =
			json_string_value(json_object_get(one, "content"));

		if ((have && !strcmp(have, text)) ||
		    json_integer_value(json_object_get(one, "id")) == id)
			return true;
	}
	return false;
}

// Tokens that only the tokenizer's settings name are added to those of the file
// itself: {"ID": {"content": ...}} of tokenizer_config.json, or, where that has
// none, {"TEXT": ID} of added_tokens.json.
static int32_t more_added(const struct tok_load *l, json_t *added)
{
	json_t *config, *map = NULL, *list, *v, *one;
	const char *key;
	int32_t rc = read_beside(l, "tokenizer_config.json", &config);

	list = json_object_get(config, "added_tokens_decoder");
	if (!rc && !json_is_object(list))
		rc = read_beside(l, "added_tokens.json", &map);
	json_object_foreach(rc ? NULL : list, key, v)
	{
		const char *text =
			json_string_value(json_object_get(v, "content"));

		if (!text || is_added(added, text, atoll(key)))
			continue;
		one = json_copy(v);
		json_object_set_new(one, "id", json_integer(atoll(key)));
		json_array_append_new(added, one);
	}
	json_object_foreach(rc ? NULL : map, key,
			    v) if (json_is_integer(v) &&
				   !is_added(added, key, json_integer_value(v)))
		json_array_append_new(added, json_pack("{s:s, s:O}", "content",
						       key, "id", v));
	json_decref(map);
	json_decref(config);
	return rc;
}

static int32_t load_added(struct genai_tokenizer *t, const struct tok_load *l,
			  json_t *added)
{
	struct tok_work w = {0};
	int32_t rc = 0;
	size_t i;

	if (added && !json_is_null(added) && !json_is_array(added))
		return tok_bad(l, "added_tokens is not an array");
	added = json_is_array(added) ? json_incref(added) : json_array();
	rc = more_added(l, added);
	for (i = 0; !rc && i < json_array_size(added); i++)
		rc = add_token(&t->vocab, l, json_array_get(added, i));
	json_decref(added);
	if (!rc)
		rc = index_ids(&t->vocab, l);
	if (!rc)
		rc = tok_work_init(&w, l->err);
	if (!rc)
		rc = index_added(t, &w);
	tok_work_free(&w);
	if (!rc && (tok_set_seal(&t->plain, &t->vocab.text) ||
		    tok_set_seal(&t->normalized, &t->vocab.text)))
		rc = tok_nomem(l->err);
	return rc;
}

// Every step costs a pass over each text, and the decoder's a frame of the
// stack.
static int32_t few(const struct tok_load *l, const char *stage, size_t n)
{
	return n <= TOK_MAX_STEPS
		       ? 0
		       : genai_fail(l->err, GENAI_E_LIMIT,
				    "%s: %s: %zu steps, at most %u", l->name,
				    stage, n, TOK_MAX_STEPS);
}

static int32_t build(struct genai_tokenizer *t, const struct tok_load *l,
		     struct tok_spans *s, json_t *top)
{
	int32_t rc;

	if (!s->rest)
		return tok_bad(l, "no model");
	rc = tok_model_parse(l, s, &t->vocab, &t->model);
	if (!rc)
		rc = tok_norms_parse(l, json_object_get(top, "normalizer"),
				     &t->norms);
	if (!rc)
		rc = few(l, "normalizer", t->norms.n);
	if (!rc)
		rc = tok_pres_parse(l, json_object_get(top, "pre_tokenizer"),
				    &t->pres);
	if (!rc)
		rc = few(l, "pre_tokenizer", t->pres.n);
	if (!rc)
		rc = tok_post_parse(l, json_object_get(top, "post_processor"),
				    &t->post);
	if (!rc)
		rc = tok_decs_parse(l, json_object_get(top, "decoder"),
				    &t->decs);
	if (!rc)
		rc = few(l, "decoder", t->decs.n);
	if (!rc)
		rc = load_added(t, l, json_object_get(top, "added_tokens"));
	return rc;
}

int32_t tok_load(struct genai_tokenizer *t, const struct tok_load *l,
		 const struct tok_buf *file)
{
	struct tok_json j = {l->name, file->p, file->p, file->p + file->n,
			     l->err};
	struct tok_spans s = {0};
	json_t *top = NULL;
	size_t bad = tok_utf8_check(file->p, file->n);
	int32_t rc;

	if (bad < file->n) {
		j.p += bad;
		return tok_json_fail(&j, "not UTF-8");
	}
	if (file->n >= 3 && !memcmp(file->p, "\xef\xbb\xbf", 3))
		j.p += 3;
	rc = read_top(&j, &s, &top);
	if (!rc)
		rc = build(t, l, &s, top);
	json_decref(top);
	json_decref(s.rest);
	return rc;
}
