// tokenizer.c - tokenizer files from a GGUF file's metadata.
#include "core/gguf/import.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_MAX 1024u
enum { TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER = 4, TYPE_UNUSED = 5 };

#define GPT2_SPLIT                                                             \
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| "                    \
	"?[^\\\\s\\\\p{L}\\\\p{N}]+|\\\\s+(?!\\\\S)|\\\\s+"
#define WORDS                                                                  \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"          \
	"\\\\p{L}+|\\\\p{N}"
#define REST                                                                   \
	"| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"       \
	"\\\\s+(?!\\\\S)|\\\\s+"
// A word's capitals, then its small letters; either may be missing.
#define O200K_HEAD "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
#define O200K_TAIL "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
#define O200K_UPPER "[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define O200K_LOWER "[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]"
#define O200K_SPLIT                                                            \
	O200K_HEAD O200K_UPPER                                                 \
		"*" O200K_LOWER "+" O200K_TAIL O200K_HEAD O200K_UPPER          \
		"+" O200K_LOWER "*" O200K_TAIL                                 \
		"\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|"     \
		"\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define SPLIT(regex)                                                           \
	"{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex                  \
	"\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define BYTES(use_regex)                                                       \
	"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"                  \
	"\"trim_offsets\":true,\"use_regex\":" use_regex "}"
#define SEQUENCE(list) "{\"type\":\"Sequence\",\"pretokenizers\":[" list "]}"

// How text is cut before byte-pair merging, by tokenizer.ggml.pre.
struct pre {
	const char *names; // separated by spaces
	const char *json;
	bool nfc, ignore_merges, bos;
};

static const struct pre pres[] = {
	{"gpt-2 gpt2 phi-2 mpt olmo", BYTES("true"), false, false, false},
	{"smollm starcoder refact command-r",
	 SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":true}," BYTES(
		 "true")),
	 false, false, false},
	{"llama-bpe llama3 llama-v3 lfm2",
	 SEQUENCE(SPLIT(WORDS "{1,3}" REST) "," BYTES("false")), false, true,
	 true},
	{"dbrx smaug-bpe",
	 SEQUENCE(SPLIT(WORDS "{1,3}" REST) "," BYTES("false")), false, false,
	 false},
	{"gpt-4o", SEQUENCE(SPLIT(O200K_SPLIT) "," BYTES("false")), false, true,
	 false},
	{"qwen2 deepseek-r1-qwen",
	 SEQUENCE(SPLIT(WORDS REST) "," BYTES("false")), true, false, false},
	// What other readers of such files do where the file names nothing.
	{"default",
	 SEQUENCE(
		 SPLIT("[\\\\p{P}\\\\$\\\\+<=>\\\\^~\\\\|]+") "," SPLIT(GPT2_SPLIT) "," SPLIT(
			 "\\\\p{N}+") "," SPLIT("[0-9]{3}") "," BYTES("false")),
	 false, false, false},
};

struct tok {
	struct imp *imp;
	struct genai_error *err;
	const char *path; // of the GGUF file
	bool spm;
	const struct pre *pre;
	struct imp_vocab v;
	bool add_bos, add_eos, prefix;
};

bool imp_put_json(FILE *f, const char *s, uint64_t bytes)
{
	json_t *j = json_stringn(s, bytes);
	bool ok = j && !json_dumpf(j, f, JSON_ENCODE_ANY | JSON_COMPACT);

	json_decref(j);
	return ok;
}

static const struct genai_gguf_kv *key(const struct tok *t, const char *name)
{
	char full[96];

	snprintf(full, sizeof(full), "tokenizer.ggml.%s", name);
	return genai_gguf_find(t->imp->gguf, full);
}

static bool is_word(const char *list, const struct genai_gguf_string *s)
{
	for (const char *p = list; *p; p += strspn(p, " ")) {
		size_t n = strcspn(p, " ");

		if (n == s->bytes && !memcmp(p, s->data, n))
			return true;
		p += n;
	}
	return false;
}

static int32_t kind(struct tok *t)
{
	struct genai_gguf_string model = {"", 0}, pre = {"default", 7};

	genai_gguf_str(key(t, "model"), &model);
	genai_gguf_str(key(t, "pre"), &pre);
	t->spm = model.bytes == 5 && !memcmp(model.data, "llama", 5);
	if (t->spm)
		return GENAI_OK;
	if (model.bytes != 4 || memcmp(model.data, "gpt2", 4))
		return genai_fail(t->err, GENAI_E_UNSUPPORTED,
				  "%s: tokenizer model '%.*s'; gpt2 and llama "
				  "are carried",
				  t->path,
				  (int)(model.bytes < 40 ? model.bytes : 40),
				  model.data);
	for (size_t i = 0; i < sizeof(pres) / sizeof(pres[0]); i++)
		if (is_word(pres[i].names, &pre))
			t->pre = &pres[i];
	if (!t->pre)
		return genai_fail(t->err, GENAI_E_UNSUPPORTED,
				  "%s: tokenizer.ggml.pre '%.*s' is not "
				  "carried",
				  t->path,
				  (int)(pre.bytes < 40 ? pre.bytes : 40),
				  pre.data);
	return GENAI_OK;
}

static bool flag(const struct tok *t, const char *name, bool fallback)
{
	uint64_t v;

	return genai_gguf_uint(key(t, name), &v) ? v != 0 : fallback;
}

// An array of one number per token, or NULL.
static int32_t per_token(struct tok *t, const char *name, uint32_t elem,
			 const uint8_t **out)
{
	const struct genai_gguf_kv *kv = key(t, name);

	*out = NULL;
	if (!kv)
		return GENAI_OK;
	if (kv->type != GENAI_GGUF_ARRAY || kv->elem != elem ||
	    kv->count != t->v.n)
		return genai_fail(t->err, GENAI_E_FORMAT,
				  "%s: tokenizer.ggml.%s is no array of %llu "
				  "numbers of the right type",
				  t->path, name, (unsigned long long)t->v.n);
	*out = kv->data;
	return GENAI_OK;
}

static int compare_tokens(const void *a, const void *b)
{
	const struct imp_token *x = a, *y = b;
	uint64_t n = x->text.bytes, m = y->text.bytes;
	int d = memcmp(x->text.data, y->text.data, n < m ? n : m);

	return d ? d : (n > m) - (n < m);
}

static int32_t sort_vocab(struct tok *t)
{
	struct imp_vocab *v = &t->v;

	v->sorted = calloc(v->n + 1, sizeof(*v->sorted));
	if (!v->sorted)
		return genai_fail(t->err, GENAI_E_NOMEM,
				  "%s: no memory for %llu tokens", t->path,
				  (unsigned long long)v->n);
	for (uint64_t i = 0; i < v->n; i++) {
		if (v->tokens[i].bytes > TOKEN_MAX)
			return genai_fail(
				t->err, GENAI_E_UNSUPPORTED,
				"%s: token %llu has %llu bytes, over "
				"%u",
				t->path, (unsigned long long)i,
				(unsigned long long)v->tokens[i].bytes,
				TOKEN_MAX);
		v->sorted[i].text = v->tokens[i];
		v->sorted[i].id = (uint32_t)i;
	}
	qsort(v->sorted, v->n, sizeof(*v->sorted), compare_tokens);
	for (uint64_t i = 1; i < v->n; i++)
		if (!compare_tokens(&v->sorted[i - 1], &v->sorted[i]))
			return genai_fail(t->err, GENAI_E_UNSUPPORTED,
					  "%s: tokens %u and %u have the same "
					  "text",
					  t->path, v->sorted[i - 1].id,
					  v->sorted[i].id);
	return GENAI_OK;
}

static int32_t read_vocab(struct tok *t)
{
	const struct genai_gguf_kv *kv = key(t, "tokens");
	int32_t rc;

	if (!kv || kv->type != GENAI_GGUF_ARRAY ||
	    kv->elem != GENAI_GGUF_STRING || !kv->count ||
	    kv->count > t->imp->conf.vocab)
		return genai_fail(t->err, GENAI_E_FORMAT,
				  "%s: tokenizer.ggml.tokens is no array of 1 "
				  "to %u strings (rows of the embedding)",
				  t->path, t->imp->conf.vocab);
	t->v.n = kv->count;
	t->v.tokens = genai_gguf_strings(kv);
	if (!t->v.tokens)
		return genai_fail(t->err, GENAI_E_NOMEM,
				  "%s: no memory for %llu tokens", t->path,
				  (unsigned long long)kv->count);
	rc = per_token(t, "token_type", GENAI_GGUF_I32, &t->v.types);
	if (!rc)
		rc = per_token(t, "scores", GENAI_GGUF_F32, &t->v.scores);
	if (!rc && t->spm && !t->v.scores)
		rc = genai_fail(t->err, GENAI_E_FORMAT,
				"%s: no tokenizer.ggml.scores", t->path);
	if (!rc && key(t, "precompiled_charsmap"))
		rc = genai_fail(t->err, GENAI_E_UNSUPPORTED,
				"%s: a character map of the tokenizer is not "
				"carried",
				t->path);
	return rc ? rc : sort_vocab(t);
}

// Id of a special token, -1: none.
static int64_t special(const struct tok *t, const char *name)
{
	uint64_t v;

	return genai_gguf_uint(key(t, name), &v) && v < t->v.n ? (int64_t)v
							       : -1;
}

static int32_t not_utf8(struct tok *t, const char *what, uint64_t index)
{
	return genai_fail(t->err, GENAI_E_FORMAT,
			  "%s: %s %llu is not UTF-8, or cannot be written",
			  t->path, what, (unsigned long long)index);
}

static int32_t put_added(struct tok *t, FILE *f)
{
	bool first = true;

	for (uint64_t i = 0; i < t->v.n; i++) {
		uint32_t type = imp_vocab_type(&t->v, i);

		if (!t->v.tokens[i].bytes ||
		    (type != TYPE_CONTROL && type != TYPE_USER &&
		     (type != TYPE_UNKNOWN || !t->spm)))
			continue;
		fprintf(f, "%s{\"id\":%llu,\"content\":", first ? "" : ",\n",
			(unsigned long long)i);
		first = false;
		if (!imp_put_json(f, t->v.tokens[i].data, t->v.tokens[i].bytes))
			return not_utf8(t, "token", i);
		fprintf(f,
			",\"single_word\":false,\"lstrip\":false,\"rstrip\":"
			"false,\"normalized\":false,\"special\":%s}",
			type == TYPE_USER ? "false" : "true");
	}
	return GENAI_OK;
}

static int32_t put_vocab(struct tok *t, FILE *f)
{
	bool first = true;

	for (uint64_t i = 0; i < t->v.n; i++) {
		if (imp_vocab_type(&t->v, i) == TYPE_UNUSED)
			continue;
		if (!first)
			fputc(',', f);
		first = false;
		if (!imp_put_json(f, t->v.tokens[i].data, t->v.tokens[i].bytes))
			return not_utf8(t, "token", i);
		fprintf(f, ":%llu", (unsigned long long)i);
	}
	return GENAI_OK;
}

// Merges of the file: "left right", both and their joint are tokens.
static int32_t put_merges(struct tok *t, FILE *f)
{
	const struct genai_gguf_kv *kv = key(t, "merges");
	struct genai_gguf_string *m = genai_gguf_strings(kv);
	int32_t rc = GENAI_OK;

	if (!m)
		return genai_fail(t->err, GENAI_E_FORMAT,
				  "%s: tokenizer.ggml.merges is no array of "
				  "strings",
				  t->path);
	for (uint64_t i = 0; i < kv->count && !rc; i++) {
		const char *s = m[i].data, *space;
		char joint[2 * TOKEN_MAX];
		uint64_t n = m[i].bytes, left, right;

		space = n > 2 ? memchr(s + 1, ' ', n - 2) : NULL;
		left = space ? (uint64_t)(space - s) : 0;
		right = space ? n - left - 1 : 0;
		if (!space || n > sizeof(joint) ||
		    imp_vocab_find(&t->v, s, left) < 0 ||
		    imp_vocab_find(&t->v, space + 1, right) < 0) {
			rc = genai_fail(t->err, GENAI_E_FORMAT,
					"%s: merge %llu '%.*s' is no pair of "
					"tokens",
					t->path, (unsigned long long)i,
					(int)(n < 60 ? n : 60), s);
			break;
		}
		memcpy(joint, s, left);
		memcpy(joint + left, space + 1, right);
		if (imp_vocab_find(&t->v, joint, left + right) < 0) {
			rc = genai_fail(t->err, GENAI_E_FORMAT,
					"%s: merge %llu '%.*s' makes no token",
					t->path, (unsigned long long)i,
					(int)(n < 60 ? n : 60), s);
			break;
		}
		fputs(i ? ",[" : "[", f);
		if (!imp_put_json(f, s, left) || fputc(',', f) == EOF ||
		    !imp_put_json(f, space + 1, right) || fputc(']', f) == EOF)
			rc = not_utf8(t, "merge", i);
	}
	free(m);
	return rc;
}

static int32_t put_template_part(struct tok *t, FILE *f, int64_t id, bool keys)
{
	const struct genai_gguf_string *s = &t->v.tokens[id];

	if (!keys)
		fputs("{\"SpecialToken\":{\"id\":", f);
	if (!imp_put_json(f, s->data, s->bytes))
		return not_utf8(t, "token", (uint64_t)id);
	if (!keys) {
		fputs(",\"type_id\":0}}", f);
		return GENAI_OK;
	}
	fputs(":{\"id\":", f);
	imp_put_json(f, s->data, s->bytes);
	fprintf(f, ",\"ids\":[%lld],\"tokens\":[", (long long)id);
	imp_put_json(f, s->data, s->bytes);
	fputs("]}", f);
	return GENAI_OK;
}

// What is put around a text: bos and eos as the file says.
static int32_t put_post(struct tok *t, FILE *f)
{
	int64_t bos = t->add_bos ? special(t, "bos_token_id") : -1;
	int64_t eos = t->add_eos ? special(t, "eos_token_id") : -1;
	int32_t rc = GENAI_OK;

	if (bos < 0 && eos < 0) {
		fputs("null", f);
		return GENAI_OK;
	}
	fputs("{\"type\":\"TemplateProcessing\",\"single\":[", f);
	if (bos >= 0) {
		rc = put_template_part(t, f, bos, false);
		fputc(',', f);
	}
	fputs("{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", f);
	if (!rc && eos >= 0) {
		fputc(',', f);
		rc = put_template_part(t, f, eos, false);
	}
	fputs("],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
	      "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],"
	      "\"special_tokens\":{",
	      f);
	if (!rc && bos >= 0)
		rc = put_template_part(t, f, bos, true);
	if (!rc && eos >= 0 && eos != bos) {
		fputs(bos >= 0 ? "," : "", f);
		rc = put_template_part(t, f, eos, true);
	}
	fputs("}}", f);
	return rc;
}

static void put_normalizer(const struct tok *t, FILE *f)
{
	static const char space[] = "{\"type\":\"Replace\",\"pattern\":{"
				    "\"String\":\" \"},\"content\":\"\u2581\"}";

	if (!t->spm)
		fputs(t->pre->nfc ? "{\"type\":\"NFC\"}" : "null", f);
	else if (t->prefix)
		fprintf(f,
			"{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
			"\"Prepend\",\"prepend\":\"\u2581\"},%s]}",
			space);
	else
		fputs(space, f);
}

static void put_decoder(const struct tok *t, FILE *f)
{
	if (t->spm)
		fprintf(f,
			"{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
			"\"Replace\",\"pattern\":{\"String\":\"\u2581\"},"
			"\"content\":\" \"},{\"type\":\"ByteFallback\"},"
			"{\"type\":\"Fuse\"}%s]}",
			t->prefix ? ",{\"type\":\"Strip\",\"content\":\" \","
				    "\"start\":1,\"stop\":0}"
				  : "");
	else
		fputs("{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
		      "\"trim_offsets\":true,\"use_regex\":true}",
		      f);
}

static int32_t put_model(struct tok *t, FILE *f)
{
	int64_t unk = t->spm ? special(t, "unknown_token_id") : -1;
	int32_t rc;

	if (t->spm && unk < 0 && t->v.n && imp_vocab_type(&t->v, 0) == 2)
		unk = 0;
	fputs("{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":", f);
	if (unk < 0)
		fputs("null", f);
	else if (!imp_put_json(f, t->v.tokens[unk].data,
			       t->v.tokens[unk].bytes))
		return not_utf8(t, "token", (uint64_t)unk);
	fprintf(f,
		",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":"
		"null,\"fuse_unk\":%s,\"byte_fallback\":%s,\"ignore_merges\":"
		"%s,\"vocab\":{",
		t->spm ? "true" : "false", t->spm ? "true" : "false",
		!t->spm && t->pre->ignore_merges ? "true" : "false");
	rc = put_vocab(t, f);
	fputs("},\n\"merges\":[", f);
	if (!rc)
		rc = t->spm ? imp_merges_from_scores(&t->v, f, t->path, t->err)
			    : put_merges(t, f);
	fputs("]}", f);
	return rc;
}

static int32_t put_tokenizer(struct tok *t, const char *path)
{
	FILE *f = fopen(path, "wb");
	int32_t rc;

	if (!f)
		return genai_fail(t->err, GENAI_E_IO, "%s: cannot create: %s",
				  path, strerror(errno));
	fputs("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n"
	      "\"added_tokens\":[",
	      f);
	rc = put_added(t, f);
	fputs("],\n\"normalizer\":", f);
	put_normalizer(t, f);
	fprintf(f, ",\n\"pre_tokenizer\":%s,\n\"post_processor\":",
		t->spm ? "null" : t->pre->json);
	if (!rc)
		rc = put_post(t, f);
	fputs(",\n\"decoder\":", f);
	put_decoder(t, f);
	fputs(",\n\"model\":", f);
	if (!rc)
		rc = put_model(t, f);
	fputs("}\n", f);
	if (!rc && ferror(f))
		rc = genai_fail(t->err, GENAI_E_IO, "%s: cannot write: %s",
				path, strerror(errno));
	if (fclose(f) && !rc)
		rc = genai_fail(t->err, GENAI_E_IO, "%s: cannot write: %s",
				path, strerror(errno));
	return rc;
}

static int32_t add_template(struct tok *t, json_t *list, const char *name,
			    size_t n, const struct genai_gguf_string *s)
{
	if (json_array_append_new(list, json_pack("{s:s%, s:s%}", "name", name,
						  n, "template", s->data,
						  (size_t)s->bytes)))
		return genai_fail(t->err, GENAI_E_FORMAT,
				  "%s: the chat template '%.*s' is not UTF-8",
				  t->path, (int)(n < 40 ? n : 40), name);
	return GENAI_OK;
}

// All templates of the file, by name.
static int32_t read_templates(struct tok *t, json_t *list)
{
	static const char prefix[] = "tokenizer.chat_template";
	const size_t n = sizeof(prefix) - 1;
	const struct genai_gguf_kv *kv;
	int32_t rc = GENAI_OK;

	for (uint64_t i = 0; !rc && (kv = genai_gguf_key_at(t->imp->gguf, i));
	     i++) {
		struct genai_gguf_string s;
		bool named = kv->key.bytes > n + 1 && kv->key.data[n] == '.';

		if (kv->key.bytes < n || memcmp(kv->key.data, prefix, n) ||
		    (kv->key.bytes > n && !named) || !genai_gguf_str(kv, &s))
			continue;
		rc = named ? add_template(t, list, kv->key.data + n + 1,
					  kv->key.bytes - n - 1, &s)
			   : add_template(t, list, "default", 7, &s);
	}
	return rc;
}

// One template is a text, several are a list; the default one is a file too.
static int32_t put_template(struct tok *t, const char *dir, json_t *config)
{
	json_t *list = json_array(), *one, *text = NULL;
	char path[4096];
	size_t i, n;
	int32_t rc = read_templates(t, list);
	FILE *f;
	bool ok;

	json_array_foreach(
		list, i,
		one) if (!strcmp(json_string_value(json_object_get(one,
								   "name")),
				 "default")) text =
		json_object_get(one, "template");
	if (!rc && json_array_size(list) > (text != NULL))
		json_object_set(config, "chat_template", list);
	else if (!rc && text)
		json_object_set(config, "chat_template", text);
	if (!rc && text) {
		n = json_string_length(text);
		snprintf(path, sizeof(path), "%s/chat_template.jinja", dir);
		f = fopen(path, "wb");
		ok = f && fwrite(json_string_value(text), 1, n, f) == n;
		if (f && fclose(f))
			ok = false;
		if (!ok)
			rc = genai_fail(t->err, GENAI_E_IO,
					"%s: cannot write: %s", path,
					strerror(errno));
	}
	json_decref(list);
	return rc;
}

static int32_t put_config(struct tok *t, const char *dir)
{
	static const char *const names[] = {"bos", "eos", "unknown", "padding"};
	static const char *const keys[] = {"bos_token", "eos_token",
					   "unk_token", "pad_token"};
	json_t *c =
		json_pack("{s:s, s:b, s:b, s:b, s:i}", "tokenizer_class",
			  t->spm ? "LlamaTokenizer" : "PreTrainedTokenizerFast",
			  "add_bos_token", t->add_bos, "add_eos_token",
			  t->add_eos, "clean_up_tokenization_spaces", 0,
			  "model_max_length", (int)t->imp->conf.context);
	char path[4096], name[40];
	int32_t rc = put_template(t, dir, c);

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		int64_t id;

		snprintf(name, sizeof(name), "%s_token_id", names[i]);
		id = special(t, name);
		if (id >= 0)
			json_object_set_new(
				c, keys[i],
				json_stringn(t->v.tokens[id].data,
					     t->v.tokens[id].bytes));
	}
	snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
	if (!rc && (!c || json_dump_file(c, path, JSON_INDENT(2))))
		rc = genai_fail(t->err, GENAI_E_IO, "%s: cannot write: %s",
				path, strerror(errno));
	json_decref(c);
	return rc;
}

int32_t imp_tokenizer(struct imp *imp, const char *dir, struct genai_error *err)
{
	struct tok t = {.imp = imp, .err = err};
	char path[4096];
	int32_t rc;

	t.path = genai_gguf_path(imp->gguf);
	rc = kind(&t);
	if (!rc)
		rc = read_vocab(&t);
	if (!rc) {
		t.add_bos = flag(&t, "add_bos_token", t.spm || t.pre->bos);
		t.add_eos = flag(&t, "add_eos_token", false);
		t.prefix = flag(&t, "add_space_prefix", true);
		snprintf(path, sizeof(path), "%s/tokenizer.json", dir);
		rc = put_tokenizer(&t, path);
	}
	if (!rc)
		rc = put_config(&t, dir);
	free(t.v.tokens);
	free(t.v.sorted);
	return rc;
}
