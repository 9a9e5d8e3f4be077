// tok_unigram.c - the Unigram model: of all ways to cut a word into pieces, the
// one with the greatest sum of scores (Viterbi).
#include "core/text/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>

#define UNK_PENALTY 10.0
#define NONE UINT32_MAX

struct tok_unigram {
	struct tok_set set;
	double *score; // by id
	double min_score;
	int64_t unk; // -1: none
	bool byte_fallback;
	int64_t bytes[256];
};

// The best way to reach a position: from where, by which piece.
struct node {
	double score;
	uint32_t from, id, next;
};

void tok_unigram_free(struct tok_unigram *u)
{
	if (!u)
		return;
	tok_set_free(&u->set);
	free(u->score);
	free(u);
}

// ["piece", score]; a piece that is there twice has the later id.
static int32_t read_piece(struct tok_json *j, struct tok_vocab *v, uint32_t id,
			  struct tok_buf *scores)
{
	size_t off = v->text.n;
	double score;
	int32_t rc = tok_json_expect(j, '[');

	if (!rc)
		rc = tok_json_string(j, &v->text);
	if (!rc)
		rc = tok_json_expect(j, ',');
	if (!rc)
		rc = tok_json_double(j, &score);
	if (!rc)
		rc = tok_json_expect(j, ']');
	if (rc)
		return rc;
	if (v->text.n - off > TOK_MAX_TOKEN)
		return tok_json_fail(j, "token longer than 4096 bytes");
	if (id >= TOK_MAX_ID)
		return tok_json_fail(j, "more than 4194304 tokens");
	tok_buf_add(scores, &score, sizeof(score));
	if (scores->failed || tok_names_set(v, &v->model, id, off))
		return tok_nomem(j->err);
	return 0;
}

static int32_t read_pieces(struct tok_json *j, struct tok_vocab *v,
			   struct tok_buf *scores)
{
	bool first = true;
	uint32_t id = 0;
	int32_t rc = tok_json_expect(j, '[');

	while (!rc && (rc = tok_json_next(j, ']', &first)) > 0)
		rc = read_piece(j, v, id++, scores);
	return rc;
}

// Index the pieces; from the last, so that the later of equals stays.
static int32_t index_pieces(struct tok_unigram *u, struct tok_vocab *v)
{
	uint32_t id;
	int32_t rc;

	for (id = v->model.n; id--;) {
		const struct tok_entry *e = v->model.e + id;

		tok_set_add(&u->set, e->off, e->len, id, v->model.n - id);
		if (u->score[id] < u->min_score)
			u->min_score = u->score[id];
		rc = tok_names_put(v, &v->model, id);
		if (rc == GENAI_E_NOMEM)
			return rc;
	}
	return tok_set_seal(&u->set, &v->text);
}

int32_t tok_unigram_parse(const struct tok_load *l, struct tok_spans *s,
			  struct tok_vocab *v, struct tok_unigram **out)
{
	struct tok_unigram *u = calloc(1, sizeof(*u));
	json_t *unk = json_object_get(s->rest, "unk_id");
	struct tok_buf scores = {0};
	int32_t rc;

	if (!u)
		return tok_nomem(l->err);
	*out = u; // the caller frees it, whatever happens
	u->byte_fallback = tok_bool(s->rest, "byte_fallback", false);
	u->min_score = __builtin_inf();
	rc = read_pieces(&s->vocab, v, &scores);
	u->score = (double *)(void *)scores.p;
	if (rc)
		return rc;
	u->unk = json_is_integer(unk) ? json_integer_value(unk) : -1;
	if (u->unk >= (int64_t)v->model.n || u->unk < -1)
		return tok_bad(l, "unk_id is outside the vocabulary");
	if (index_pieces(u, v))
		return tok_nomem(l->err);
	tok_byte_ids(v, u->bytes);
	return 0;
}

static void offer(struct node *n, double score, size_t from, int64_t id)
{
	if (n->from != NONE && !(score > n->score))
		return;
	n->score = score;
	n->from = (uint32_t)from;
	n->id = (uint32_t)id;
}

static int32_t no_unk(struct tok_work *w)
{
	return genai_fail(w->err, GENAI_E_FORMAT,
			  "text is not covered by the vocabulary, and the "
			  "tokenizer has no unk_id");
}

static int32_t viterbi(const struct tok_unigram *u, struct tok_work *w,
		       const char *p, size_t n, struct node *best)
{
	double unk_score = u->min_score - UNK_PENALTY;
	size_t at, k;
	unsigned len;

	for (at = 0; at < n; at += len) {
		struct tok_walk walk = tok_walk_begin(&u->set);
		bool single = false;

		tok_utf8_get(p + at, n - at, &len);
		for (k = at; k < n && tok_walk_step(&walk, (uint8_t)p[k]);) {
			int64_t id = tok_walk_hit(&walk);

			k++;
			if (id < 0)
				continue;
			offer(best + k, u->score[id] + best[at].score, at, id);
			single |= k - at == len;
		}
		if (single)
			continue;
		if (u->unk < 0)
			return no_unk(w);
		offer(best + at + len, unk_score + best[at].score, at, u->unk);
	}
	return 0;
}

// The ids of one piece of the best cut: its own, its bytes', or unknown.
static int32_t emit(const struct tok_unigram *u, const struct tok_vocab *v,
		    struct tok_work *w, const char *p, size_t n)
{
	int64_t id = tok_vocab_find(v, p, n);
	size_t i = 0;

	if (id < 0 && u->byte_fallback) {
		while (i < n && u->bytes[(uint8_t)p[i]] >= 0)
			i++;
		if (i == n) {
			for (i = 0; i < n; i++)
				tok_work_id(w, u->bytes[(uint8_t)p[i]]);
			return 0;
		}
	}
	if (id < 0 && u->unk < 0)
		return no_unk(w);
	tok_work_id(w, id < 0 ? u->unk : id);
	return 0;
}

int32_t tok_unigram_word(const struct tok_unigram *u, const struct tok_vocab *v,
			 struct tok_work *w, const char *p, size_t n)
{
	struct node *best;
	size_t i, end;
	int32_t rc;

	w->nodes.n = 0;
	best = (struct node *)(void *)tok_buf_room(&w->nodes,
						   (n + 1) * sizeof(*best));
	if (!best)
		return tok_nomem(w->err);
	for (i = 0; i <= n; i++)
		best[i] = (struct node){0, NONE, 0, 0};
	rc = viterbi(u, w, p, n, best);
	if (rc)
		return rc;
	// Turn the chain around; neighbouring unknowns become one piece.
	for (end = n; end; end = i) {
		bool unk = (int64_t)best[end].id == u->unk;

		for (i = best[end].from;
		     unk && i && (int64_t)best[i].id == u->unk;)
			i = best[i].from;
		best[i].next = (uint32_t)end;
	}
	for (i = 0; !rc && i < n; i = end) {
		end = best[i].next;
		rc = emit(u, v, w, p + i, end - i);
	}
	return rc;
}
