// tok_dec.c - reading the decoder of a tokenizer.json into a chain of steps.
// Does not know: how a step is carried out (tok_decode.c).
#include "core/text/tokenizer/tok_dec.h"

#include <stdlib.h>
#include <string.h>

static struct tok_dec *append(struct tok_decs *d, enum tok_dec_kind kind)
{
	struct tok_dec *v = realloc(d->v, (d->n + 1) * sizeof(*v));

	if (!v)
		return NULL;
	d->v = v;
	v[d->n] = (struct tok_dec){.kind = kind};
	return v + d->n++;
}

static int32_t parse_strip(const struct tok_load *l, json_t *j,
			   struct tok_dec *s)
{
	json_int_t start = json_integer_value(json_object_get(j, "start"));
	json_int_t stop = json_integer_value(json_object_get(j, "stop"));

	if (start < 0 || stop < 0)
		return tok_bad(l, "decoder Strip: negative count");
	s->start = (size_t)start;
	s->stop = (size_t)stop;
	return tok_one_char(l, j, "content", &s->ch);
}

static int32_t parse_metaspace(const struct tok_load *l, json_t *j,
			       struct tok_dec *s)
{
	const char *name =
		json_string_value(json_object_get(j, "prepend_scheme"));

	s->flag = name ? strcmp(name, "never") != 0
		       : tok_bool(j, "add_prefix_space", true);
	return tok_one_char(l, j, "replacement", &s->ch);
}

static int32_t parse_str(const struct tok_load *l, json_t *j, const char *key,
			 struct tok_dec *s)
{
	int32_t rc = tok_str(l, j, key, &s->str, &s->n);

	// The replacing helper works on C strings.
	if (!rc && strlen(s->str) != s->n)
		rc = tok_bad(l, "decoder: NUL in string");
	if (!rc && s->kind == DEC_SUFFIX && !s->n)
		rc = tok_bad(l, "decoder: empty suffix");
	return rc;
}

static int32_t parse_kind(const struct tok_load *l, json_t *j,
			  struct tok_dec *s)
{
	int32_t rc;

	switch (s->kind) {
	case DEC_METASPACE:
		return parse_metaspace(l, j, s);
	case DEC_WORD_PIECE:
		s->flag = tok_bool(j, "cleanup", true);
		return parse_str(l, j, "prefix", s);
	case DEC_SUFFIX:
		return parse_str(l, j, "suffix", s);
	case DEC_STRIP:
		return parse_strip(l, j, s);
	case DEC_REPLACE:
		rc = tok_str(l, j, "content", &s->str, &s->n);
		return rc ? rc
			  : tok_pattern_parse(l, json_object_get(j, "pattern"),
					      &s->pat);
	default:
		return 0;
	}
}

static int32_t parse_one(const struct tok_load *l, json_t *j, void *user)
{
	static const struct {
		const char *type;
		enum tok_dec_kind kind;
	} kinds[] = {
		{"ByteLevel", DEC_BYTES},	{"Metaspace", DEC_METASPACE},
		{"WordPiece", DEC_WORD_PIECE},	{"BPEDecoder", DEC_SUFFIX},
		{"ByteFallback", DEC_FALLBACK}, {"Fuse", DEC_FUSE},
		{"Strip", DEC_STRIP},		{"Replace", DEC_REPLACE},
	};
	const char *type = tok_type(j);
	struct tok_dec *s;
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(type, kinds[i].type))
			break;
	if (i == sizeof(kinds) / sizeof(*kinds))
		return tok_unsupported(l, "decoder", type);
	s = append(user, kinds[i].kind);
	return s ? parse_kind(l, j, s) : tok_nomem(l->err);
}

static bool makes_one(const struct tok_dec *s)
{
	return s->kind == DEC_BYTES || s->kind == DEC_FUSE;
}

int32_t tok_decs_parse(const struct tok_load *l, json_t *j,
		       struct tok_decs *out)
{
	bool parts = true, fused = false;
	int32_t rc;
	size_t i;

	if (json_is_null(j) || !j)
		return append(out, DEC_JOIN) ? 0 : tok_nomem(l->err);
	rc = tok_sequence(l, j, "decoders", parse_one, out);
	for (i = 0; i < out->n; i++) {
		out->v[i].fused = fused;
		fused |= makes_one(out->v + i);
	}
	while (i--) {
		struct tok_dec *s = out->v + i;

		s->in_parts = parts;
		if (s->kind == DEC_STRIP)
			parts = parts && !s->stop;
		else
			parts = s->kind == DEC_FUSE;
	}
	return rc;
}

void tok_decs_free(struct tok_decs *d)
{
	size_t i;

	for (i = 0; i < d->n; i++) {
		free(d->v[i].str);
		tok_pattern_free(&d->v[i].pat);
	}
	free(d->v);
	*d = (struct tok_decs){0};
}
