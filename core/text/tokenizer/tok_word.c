// tok_word.c - the WordLevel and WordPiece models, and the choice of a model.
#include "core/text/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>

enum kind { MODEL_BPE, MODEL_UNIGRAM, MODEL_WORD_LEVEL, MODEL_WORD_PIECE };

struct tok_model {
	enum kind kind;
	struct tok_bpe *bpe;
	struct tok_unigram *unigram;
	// WordLevel, WordPiece
	int64_t unk; // -1: not in the vocabulary
	struct tok_set set;
	char *prefix;
	size_t prefix_n;
	size_t max_chars;
};

void tok_model_free(struct tok_model *m)
{
	if (!m)
		return;
	tok_bpe_free(m->bpe);
	tok_unigram_free(m->unigram);
	tok_set_free(&m->set);
	free(m->prefix);
	free(m);
}

static int32_t read_token(struct tok_json *j, struct tok_vocab *v)
{
	size_t off = v->text.n;
	uint32_t id;
	int32_t rc = tok_json_string(j, &v->text);

	if (!rc)
		rc = tok_json_expect(j, ':');
	if (!rc)
		rc = tok_json_uint(j, TOK_MAX_ID, &id);
	if (rc)
		return rc;
	if (v->text.n - off > TOK_MAX_TOKEN)
		return tok_json_fail(j, "token longer than 4096 bytes");
	rc = tok_names_set(v, &v->model, id, off);
	if (rc == GENAI_E_FORMAT)
		return tok_json_fail(j, "two tokens have this id");
	if (!rc)
		rc = tok_names_put(v, &v->model, id);
	if (rc == GENAI_E_FORMAT)
		return tok_json_fail(j, "token is there twice");
	return rc ? tok_nomem(j->err) : 0;
}

// {"token": id, ...}
static int32_t read_vocab(struct tok_json *j, struct tok_vocab *v)
{
	bool first = true;
	int32_t rc = tok_json_expect(j, '{');

	while (!rc && (rc = tok_json_next(j, '}', &first)) > 0)
		rc = read_token(j, v);
	return rc;
}

static int32_t parse_piece(struct tok_model *m, const struct tok_load *l,
			   json_t *j, const struct tok_vocab *v)
{
	json_t *max = json_object_get(j, "max_input_chars_per_word");
	uint32_t id;
	int32_t rc;

	m->max_chars = 100;
	if (json_is_integer(max) && json_integer_value(max) >= 0)
		m->max_chars = (size_t)json_integer_value(max);
	if (tok_is_null(j, "continuing_subword_prefix")) {
		m->prefix = strdup("##");
		m->prefix_n = 2;
		rc = m->prefix ? 0 : tok_nomem(l->err);
	} else {
		rc = tok_str(l, j, "continuing_subword_prefix", &m->prefix,
			     &m->prefix_n);
	}
	if (rc)
		return rc;
	for (id = 0; id < v->model.n; id++)
		if (v->model.e[id].has)
			tok_set_add(&m->set, v->model.e[id].off,
				    v->model.e[id].len, id, 0);
	return tok_set_seal(&m->set, &v->text) ? tok_nomem(l->err) : 0;
}

// Files of before "type" are told by their members.
static const char *model_type(const struct tok_spans *s)
{
	const char *type = tok_type(s->rest);

	if (*type)
		return type;
	if (s->merges.p)
		return "BPE";
	if (s->vocab.p && *s->vocab.p == '[')
		return "Unigram";
	return json_object_get(s->rest, "max_input_chars_per_word")
		       ? "WordPiece"
		       : "WordLevel";
}

static int32_t find_unk(struct tok_model *m, const struct tok_load *l,
			json_t *j, const struct tok_vocab *v)
{
	json_t *unk = json_object_get(j, "unk_token");

	if (!json_is_string(unk))
		return tok_bad(l, "model: no unk_token");
	m->unk = tok_vocab_find(v, json_string_value(unk),
				json_string_length(unk));
	return 0;
}

int32_t tok_model_parse(const struct tok_load *l, struct tok_spans *s,
			struct tok_vocab *v, struct tok_model **out)
{
	static const char *const types[] = {"BPE", "Unigram", "WordLevel",
					    "WordPiece"};
	struct tok_model *m = calloc(1, sizeof(*m));
	const char *type = model_type(s);
	int32_t rc;
	unsigned i;

	if (!m)
		return tok_nomem(l->err);
	*out = m; // the caller frees it, whatever happens
	for (i = 0; i < 4 && strcmp(type, types[i]); i++)
		;
	if (i == 4)
		return tok_unsupported(l, "model", type);
	m->kind = (enum kind)i;
	if (!s->vocab.p)
		return tok_bad(l, "model: no vocab");
	if (m->kind == MODEL_UNIGRAM)
		return tok_unigram_parse(l, s, v, &m->unigram);
	rc = read_vocab(&s->vocab, v);
	if (rc)
		return rc;
	if (m->kind == MODEL_BPE)
		return tok_bpe_parse(l, s, v, &m->bpe);
	rc = find_unk(m, l, s->rest, v);
	if (!rc && m->kind == MODEL_WORD_PIECE)
		rc = parse_piece(m, l, s->rest, v);
	return rc;
}

static int32_t unknown(const struct tok_model *m, struct tok_work *w)
{
	if (m->unk < 0)
		return genai_fail(w->err, GENAI_E_FORMAT,
				  "unk_token is not in the vocabulary");
	tok_work_id(w, m->unk);
	return 0;
}

// Length of the longest piece at p, and its id; 0 if there is none.
static size_t longest(const struct tok_model *m, const char *p, size_t n,
		      bool first, int64_t *id)
{
	struct tok_walk walk = tok_walk_begin(&m->set);
	size_t i, best = 0;

	for (i = 0; !first && i < m->prefix_n; i++)
		if (!tok_walk_step(&walk, (uint8_t)m->prefix[i]))
			return 0;
	for (i = 0; i < n && tok_walk_step(&walk, (uint8_t)p[i]);) {
		int64_t hit = tok_walk_hit(&walk);

		i++;
		if (hit >= 0) {
			best = i;
			*id = hit;
		}
	}
	return best;
}

static int32_t word_piece(const struct tok_model *m, struct tok_work *w,
			  const char *p, size_t n)
{
	size_t before = w->ids.n, chars = 0, i, k;
	int64_t id = -1;

	for (i = 0; i < n; i++)
		chars += ((uint8_t)p[i] & 0xc0) != 0x80;
	for (i = 0; chars <= m->max_chars && i < n; i += k) {
		k = longest(m, p + i, n - i, !i, &id);
		if (!k)
			break;
		tok_work_id(w, id);
	}
	if (i == n)
		return 0;
	w->ids.n = before;
	return unknown(m, w);
}

int32_t tok_model_word(const struct tok_model *m, const struct tok_vocab *v,
		       struct tok_work *w, const char *p, size_t n)
{
	int64_t id;

	switch (m->kind) {
	case MODEL_BPE:
		return tok_bpe_word(m->bpe, v, w, p, n);
	case MODEL_UNIGRAM:
		return tok_unigram_word(m->unigram, v, w, p, n);
	case MODEL_WORD_PIECE:
		return word_piece(m, w, p, n);
	default:
		id = tok_vocab_find(v, p, n);
		if (id < 0)
			return unknown(m, w);
		tok_work_id(w, id);
		return 0;
	}
}
