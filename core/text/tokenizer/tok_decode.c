// tok_decode.c - decoders: tokens to text, a token at a time.
// A chain of steps, each with a little state; decoding a whole sequence is the
// same chain fed to its end, so that a stream can never differ from it.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/text/tokenizer/tok_dec.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define BAD "\xef\xbf\xbd" // U+FFFD

struct state {
	uint64_t count;	     // tokens seen; Strip in parts: characters cut
	bool done;	     // Strip in parts: past the beginning
	struct tok_buf pend; // bytes not yet passed on
	struct tok_buf out;  // the token being made
};

struct genai_detok {
	const struct genai_tokenizer *tok;
	uint32_t flags;
	struct state *st;
	struct tok_buf text; // what the caller gets
	void *md;
	struct genai_error *err;
};

static int32_t feed(struct genai_detok *d, size_t i, const char *p, size_t n);

// Why a buffer failed.
static int32_t failed(const struct genai_detok *d, const struct tok_buf *b)
{
	return b->full ? genai_fail(d->err, GENAI_E_LIMIT,
				    "the decoded text is longer than %zu bytes",
				    b->max)
		       : tok_nomem(d->err);
}

// Token text with every from replaced by to.
static void replace_all(struct tok_buf *b, const char *from, const char *to,
			struct tok_buf *tmp)
{
	size_t from_n = strlen(from), done = 0;
	struct tok_buf swap;
	const char *hit;

	if (!b->n || !memmem(b->p, b->n, from, from_n))
		return;
	tmp->n = 0;
	while ((hit = memmem(b->p + done, b->n - done, from, from_n))) {
		tok_buf_add(tmp, b->p + done, (size_t)(hit - b->p) - done);
		tok_buf_add(tmp, to, strlen(to));
		done = (size_t)(hit - b->p) + from_n;
	}
	tok_buf_add(tmp, b->p + done, b->n - done);
	swap = *b;
	*b = *tmp;
	*tmp = swap;
}

// WordPiece's clean_up_tokenization_spaces.
static void clean_up(struct tok_buf *b, struct tok_buf *tmp)
{
	static const char *const pairs[][2] = {
		{" .", "."},	 {" ?", "?"},		{" !", "!"},
		{" ,", ","},	 {" ' ", "'"},		{" n't", "n't"},
		{" 'm", "'m"},	 {" do not", " don't"}, {" 's", "'s"},
		{" 've", "'ve"}, {" 're", "'re"},
	};
	size_t i;

	for (i = 0; i < sizeof(pairs) / sizeof(*pairs); i++)
		replace_all(b, pairs[i][0], pairs[i][1], tmp);
}

// A token of the byte alphabet as bytes; any other token as it is.
static void unspell(const char *p, size_t n, struct tok_buf *out)
{
	size_t start = out->n, i;
	unsigned len;

	for (i = 0; i < n; i += len) {
		int b = tok_char_byte(tok_utf8_get(p + i, n - i, &len));
		char byte = (char)b;

		if (b < 0) {
			out->n = start;
			tok_buf_add(out, p, n);
			return;
		}
		tok_buf_add(out, &byte, 1);
	}
}

// Pass on the characters that pend is sure of; what can be none is U+FFFD.
static int32_t pass_bytes(struct genai_detok *d, size_t i, bool at_end)
{
	struct state *s = d->st + i;
	size_t at = 0;
	uint32_t cp;
	int k;

	s->out.n = 0;
	while (at < s->pend.n) {
		k = tok_utf8_step(s->pend.p + at, s->pend.n - at, &cp);
		if (!k && !at_end)
			break;
		if (k > 0)
			tok_buf_add(&s->out, s->pend.p + at, (size_t)k);
		else
			tok_buf_add(&s->out, BAD, 3);
		at += k ? (size_t)abs(k) : s->pend.n - at;
	}
	if (s->out.failed || s->pend.failed)
		return failed(d, s->out.failed ? &s->out : &s->pend);
	if (at) {
		memmove(s->pend.p, s->pend.p + at, s->pend.n - at);
		s->pend.n -= at;
	}
	return s->out.n ? feed(d, i + 1, s->out.p, s->out.n) : 0;
}

static int32_t bytes(struct genai_detok *d, size_t i, const char *p, size_t n)
{
	unspell(p, n, &d->st[i].pend);
	if (d->tok->decs.v[i].in_parts)
		return pass_bytes(d, i, false);
	return 0;
}

// A run of byte tokens is text, if all of it is; else each byte is U+FFFD.
static int32_t pass_run(struct genai_detok *d, size_t i)
{
	struct state *s = d->st + i;
	size_t n = s->pend.n;
	int32_t rc = 0;

	if (!n)
		return 0;
	s->pend.n = 0;
	if (tok_utf8_check(s->pend.p, n) == n)
		return feed(d, i + 1, s->pend.p, n);
	while (!rc && n--)
		rc = feed(d, i + 1, BAD, 3);
	return rc;
}

static int32_t fallback(struct genai_detok *d, size_t i, const char *p,
			size_t n)
{
	int value = tok_byte_token(p, n);
	char byte = (char)value;
	int32_t rc;

	if (value < 0) {
		rc = pass_run(d, i);
		return rc ? rc : feed(d, i + 1, p, n);
	}
	tok_buf_add(&d->st[i].pend, &byte, 1);
	return d->st[i].pend.failed ? failed(d, &d->st[i].pend) : 0;
}

static int32_t metaspace(struct genai_detok *d, size_t i, const char *p,
			 size_t n)
{
	const struct tok_dec *s = d->tok->decs.v + i;
	struct state *st = d->st + i;
	unsigned len;
	size_t k;

	st->out.n = 0;
	for (k = 0; k < n; k += len) {
		if (tok_utf8_get(p + k, n - k, &len) != s->ch)
			tok_buf_add(&st->out, p + k, len);
		else if (st->count || !s->flag)
			tok_buf_add(&st->out, " ", 1);
	}
	st->count++;
	if (st->out.failed)
		return failed(d, &st->out);
	return feed(d, i + 1, st->out.p, st->out.n);
}

static int32_t word_piece(struct genai_detok *d, size_t i, const char *p,
			  size_t n)
{
	const struct tok_dec *s = d->tok->decs.v + i;
	struct state *st = d->st + i;

	st->out.n = 0;
	if (st->count++) {
		if (n >= s->n && !memcmp(p, s->str, s->n)) {
			p += s->n;
			n -= s->n;
		} else {
			tok_buf_add(&st->out, " ", 1);
		}
	}
	tok_buf_add(&st->out, p, n);
	if (s->flag)
		clean_up(&st->out, &st->pend);
	if (st->out.failed || st->pend.failed)
		return failed(d, st->out.failed ? &st->out : &st->pend);
	return feed(d, i + 1, st->out.p, st->out.n);
}

// BPEDecoder: the suffix is a blank, but nothing in the last token.  A token
// therefore waits for the next, from its first suffix on.
static int32_t pass_suffix(struct genai_detok *d, size_t i, const char *blank)
{
	const struct tok_dec *s = d->tok->decs.v + i;
	struct state *st = d->st + i;
	struct tok_buf tmp = {0};
	int32_t rc;

	tok_buf_add(&st->pend, "", 0);
	replace_all(&st->pend, s->str, blank, &tmp);
	rc = st->pend.failed ? failed(d, &st->pend)
			     : feed(d, i + 1, st->pend.p, st->pend.n);
	tok_buf_free(&tmp);
	st->pend.n = 0;
	return rc;
}

static int32_t suffix(struct genai_detok *d, size_t i, const char *p, size_t n)
{
	const struct tok_dec *s = d->tok->decs.v + i;
	struct state *st = d->st + i;
	const char *hit;
	int32_t rc = st->count++ ? pass_suffix(d, i, " ") : 0;
	size_t sure;

	if (rc)
		return rc;
	hit = s->n ? memmem(p, n, s->str, s->n) : NULL;
	sure = hit ? (size_t)(hit - p) : n;
	// Only the last step's tokens may be passed on in two parts.
	if (i + 1 < d->tok->decs.n)
		sure = 0;
	tok_buf_add(&st->pend, p + sure, n - sure);
	return sure ? feed(d, i + 1, p, sure) : 0;
}

// Cut up to start characters in front; the stream remembers how many it was.
static size_t strip_start(const struct tok_dec *s, struct state *st,
			  const char *p, size_t n)
{
	size_t at = 0;
	unsigned len;

	while (at < n && !st->done) {
		if (st->count < s->start &&
		    tok_utf8_get(p + at, n - at, &len) == s->ch) {
			st->count++;
			at += len;
		} else {
			st->done = true;
		}
	}
	return at;
}

static int32_t strip(struct genai_detok *d, size_t i, const char *p, size_t n)
{
	const struct tok_dec *s = d->tok->decs.v + i;
	struct state *st = d->st + i;
	size_t from, stop, prev;
	unsigned len;

	if (!s->fused) {
		st->count = 0;
		st->done = false;
	}
	from = strip_start(s, st, p, n);
	for (stop = s->stop; stop && n > from; stop--) {
		prev = tok_utf8_back(p, n);
		if (tok_utf8_get(p + prev, n - prev, &len) != s->ch)
			break;
		n = prev;
	}
	return feed(d, i + 1, p + from, n - from);
}

static int32_t replace(struct genai_detok *d, size_t i, const char *p, size_t n)
{
	const struct tok_dec *s = d->tok->decs.v + i;
	struct tok_scan scan = {&s->pat, p, n, 0, 0, false};
	struct tok_buf *out = &d->st[i].out;
	size_t from, to, done = 0;
	int32_t rc;

	out->n = 0;
	while ((rc = tok_scan_next(&scan, d->md, &from, &to, d->err)) > 0) {
		tok_buf_add(out, p + done, from - done);
		tok_buf_add(out, s->str, s->n);
		done = to;
	}
	tok_buf_add(out, p + done, n - done);
	if (!rc && out->failed)
		rc = failed(d, out);
	return rc ? rc : feed(d, i + 1, out->p, out->n);
}

// Give a token, or a part of the one token, to step i.
static int32_t feed(struct genai_detok *d, size_t i, const char *p, size_t n)
{
	struct state *st = d->st + i;
	int32_t rc = 0;

	if (i == d->tok->decs.n) {
		tok_buf_add(&d->text, p, n);
		return d->text.failed ? failed(d, &d->text) : 0;
	}
	switch (d->tok->decs.v[i].kind) {
	case DEC_JOIN:
		if (st->count++)
			rc = feed(d, i + 1, " ", 1);
		return rc ? rc : feed(d, i + 1, p, n);
	case DEC_BYTES:
		return bytes(d, i, p, n);
	case DEC_METASPACE:
		return metaspace(d, i, p, n);
	case DEC_WORD_PIECE:
		return word_piece(d, i, p, n);
	case DEC_SUFFIX:
		return suffix(d, i, p, n);
	case DEC_FALLBACK:
		return fallback(d, i, p, n);
	case DEC_FUSE:
		if (d->tok->decs.v[i].in_parts)
			return feed(d, i + 1, p, n);
		tok_buf_add(&st->pend, p, n);
		return st->pend.failed ? failed(d, &st->pend) : 0;
	case DEC_STRIP:
		return strip(d, i, p, n);
	case DEC_REPLACE:
		return replace(d, i, p, n);
	}
	return 0;
}

// No more tokens come: each step passes on what it kept.
static int32_t finish(struct genai_detok *d)
{
	const struct tok_decs *decs = &d->tok->decs;
	int32_t rc = 0;
	size_t i;

	for (i = 0; !rc && i < decs->n; i++) {
		struct state *st = d->st + i;

		if (decs->v[i].kind == DEC_BYTES)
			rc = pass_bytes(d, i, true);
		else if (decs->v[i].kind == DEC_FALLBACK)
			rc = pass_run(d, i);
		else if (decs->v[i].kind == DEC_SUFFIX && st->count)
			rc = pass_suffix(d, i, "");
		else if (decs->v[i].kind == DEC_FUSE && st->pend.n)
			rc = feed(d, i + 1, st->pend.p, st->pend.n);
		st->pend.n = 0;
		st->count = 0;
		st->done = false;
	}
	return rc;
}

static int32_t push(struct genai_detok *d, int64_t id)
{
	const struct tok_vocab *v = &d->tok->vocab;
	const struct tok_added *a = tok_added_of(v, id);
	const struct tok_entry *e;

	if (a && a->flags & TOK_HIDDEN && !(d->flags & GENAI_TOK_KEEP_SPECIAL))
		return 0;
	if (a)
		return feed(d, 0, v->text.p + a->show_off, a->show_len);
	if (id < 0 || id >= (int64_t)v->model.n || !v->model.e[id].has)
		return 0;
	e = v->model.e + id;
	return feed(d, 0, v->text.p + e->off, e->len);
}

int32_t genai_detok_open(const struct genai_tokenizer *tok, uint32_t flags,
			 struct genai_detok **out_d, struct genai_error *err)
{
	struct genai_detok *d = calloc(1, sizeof(*d));

	if (!d)
		return tok_nomem(err);
	d->tok = tok;
	d->flags = flags;
	d->st = calloc(tok->decs.n + 1, sizeof(*d->st));
	d->md = pcre2_match_data_create(1, NULL);
	if (!d->st || !d->md || !tok_buf_room(&d->text, 1)) {
		genai_detok_close(d);
		return tok_nomem(err);
	}
	d->text.max = TOK_MAX_DECODED;
	for (size_t i = 0; i < tok->decs.n; i++)
		d->st[i].pend.max = d->st[i].out.max = TOK_MAX_DECODED;
	*out_d = d;
	return 0;
}

void genai_detok_close(struct genai_detok *d)
{
	size_t i;

	if (!d)
		return;
	for (i = 0; d->st && i < d->tok->decs.n; i++) {
		tok_buf_free(&d->st[i].pend);
		tok_buf_free(&d->st[i].out);
	}
	free(d->st);
	tok_buf_free(&d->text);
	pcre2_match_data_free(d->md);
	free(d);
}

int32_t genai_detok_push(struct genai_detok *d, int64_t id,
			 const char **out_text, size_t *out_bytes,
			 struct genai_error *err)
{
	int32_t rc;

	d->text.n = 0;
	d->err = err;
	rc = push(d, id);
	if (!rc) {
		*out_text = d->text.p;
		*out_bytes = d->text.n;
	}
	return rc;
}

int32_t genai_detok_flush(struct genai_detok *d, const char **out_text,
			  size_t *out_bytes, struct genai_error *err)
{
	int32_t rc;

	d->text.n = 0;
	d->err = err;
	rc = finish(d);
	if (!rc) {
		*out_text = d->text.p;
		*out_bytes = d->text.n;
	}
	return rc;
}

int32_t genai_tokenizer_decode(const struct genai_tokenizer *tok,
			       const int64_t *ids, size_t count, uint32_t flags,
			       char **out_text, size_t *out_bytes,
			       struct genai_error *err)
{
	struct genai_detok *d;
	int32_t rc = genai_detok_open(tok, flags, &d, err);
	size_t i;

	if (rc)
		return rc;
	d->err = err;
	for (i = 0; !rc && i < count; i++)
		rc = push(d, ids[i]);
	if (!rc)
		rc = finish(d);
	if (!rc)
		tok_buf_add(&d->text, "", 1);
	if (!rc && d->text.failed)
		rc = failed(d, &d->text);
	if (!rc) {
		*out_text = d->text.p;
		*out_bytes = d->text.n - 1;
		d->text = (struct tok_buf){0};
	}
	genai_detok_close(d);
	return rc;
}
