// tok_regex.c - literal and regular patterns over UTF-8, on PCRE2.
// Does not know: the dialect the patterns were written in (tok_onig.c).
#define PCRE2_CODE_UNIT_WIDTH 8
#include "core/text/tokenizer/tok.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct tok_regex {
	pcre2_code *code;
	pcre2_match_context *limits;
};

void tok_regex_free(struct tok_regex *re)
{
	if (!re)
		return;
	pcre2_code_free(re->code);
	pcre2_match_context_free(re->limits);
	free(re);
}

static int32_t compile(struct tok_regex *re, const char *text, size_t n,
		       const struct tok_load *l)
{
	pcre2_compile_context *cc = pcre2_compile_context_create(NULL);
	char why[128];
	size_t at;
	int code;

	re->limits = pcre2_match_context_create(NULL);
	if (!cc || !re->limits) {
		pcre2_compile_context_free(cc);
		return tok_nomem(l->err);
	}
	pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
	// The patterns are Ruby's, where ^ and $ stop at every line.
	re->code = pcre2_compile((PCRE2_SPTR)text, n,
				 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
					 PCRE2_NEVER_BACKSLASH_C,
				 &code, &at, cc);
	pcre2_compile_context_free(cc);
	if (!re->code && code == PCRE2_ERROR_HEAP_FAILED)
		return tok_nomem(l->err);
	if (!re->code) {
		pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof(why));
		return genai_fail(l->err, GENAI_E_FORMAT,
				  "%s: regex: %s at byte %zu of %.200s",
				  l->name, why, at, text);
	}
	// Without JIT (no memory, not built in) matching is slower, not wrong.
	(void)pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE);
	pcre2_set_heap_limit(re->limits, 256u << 10); // KiB
	return 0;
}

int32_t tok_regex_compile(const struct tok_load *l, const char *text, size_t n,
			  struct tok_regex **out)
{
	struct tok_regex *re = calloc(1, sizeof(*re));
	int32_t rc;

	if (!re)
		return tok_nomem(l->err);
	rc = compile(re, text, n, l);
	if (rc) {
		tok_regex_free(re);
		return rc;
	}
	*out = re;
	return 0;
}

int32_t tok_regex_find(const struct tok_regex *re, void *md, const char *text,
		       size_t n, size_t at, size_t *from, size_t *to,
		       struct genai_error *err)
{
	uint32_t opt = PCRE2_NO_UTF_CHECK;
	PCRE2_SPTR s = (PCRE2_SPTR)text;
	char why[128];
	int rc;

	rc = pcre2_match(re->code, s, n, at, opt, md, re->limits);
	if (rc == PCRE2_ERROR_JIT_STACKLIMIT) // the interpreter uses the heap
		rc = pcre2_match(re->code, s, n, at, opt | PCRE2_NO_JIT, md,
				 re->limits);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc < 0) {
		pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof(why));
		return genai_fail(err, GENAI_E_LIMIT,
				  "text of %zu bytes: pre-tokenizer regex: %s "
				  "at byte %zu",
				  n, why, at);
	}
	*from = pcre2_get_ovector_pointer(md)[0];
	*to = pcre2_get_ovector_pointer(md)[1];
	if (*from > *to) // \K inside a look-ahead
		*from = *to;
	return 1;
}

int32_t tok_scan_next(struct tok_scan *s, void *md, size_t *from, size_t *to,
		      struct genai_error *err)
{
	const char *hit;
	unsigned step;
	int32_t rc;

	if (s->pat->re) {
		while (s->at <= s->n) {
			rc = tok_regex_find(s->pat->re, md, s->text, s->n,
					    s->at, from, to, err);
			if (rc <= 0)
				return rc;
			// An empty match right after the last one is not taken.
			if (*from < *to || !s->has_last || s->last_end != *to) {
				s->at = s->last_end = *to;
				s->has_last = true;
				return 1;
			}
			if (s->at == s->n)
				return 0;
			tok_utf8_get(s->text + s->at, s->n - s->at, &step);
			s->at += step;
		}
		return 0;
	}
	hit = memmem(s->text + s->at, s->n - s->at, s->pat->str, s->pat->n);
	if (!hit)
		return 0;
	*from = (size_t)(hit - s->text);
	*to = s->at = *from + s->pat->n;
	return 1;
}

void tok_pattern_free(struct tok_pattern *p)
{
	free(p->str);
	tok_regex_free(p->re);
	*p = (struct tok_pattern){0};
}

int32_t tok_pattern_parse(const struct tok_load *l, json_t *j,
			  struct tok_pattern *out)
{
	json_t *re = json_object_get(j, "Regex");
	struct tok_buf pcre = {0};
	int32_t rc;

	if (!re) {
		if (json_is_string(j))
			return tok_unsupported(l, "pattern", "as bare string");
		rc = tok_str(l, j, "String", &out->str, &out->n);
		if (!rc && !out->n)
			rc = tok_bad(l, "pattern: empty string");
		return rc;
	}
	if (!json_is_string(re))
		return tok_bad(l, "pattern: Regex is not a string");
	rc = tok_onig_translate(l, json_string_value(re),
				json_string_length(re), &pcre);
	if (!rc)
		rc = tok_regex_compile(l, pcre.p, pcre.n, &out->re);
	tok_buf_free(&pcre);
	return rc;
}
