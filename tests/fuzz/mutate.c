// mutate.c - inputs bent: bytes, pieces, values, words of other inputs.
#include "tests/fuzz/fuzz.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t fuzz_draw(uint64_t *seed, uint64_t n)
{
	uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (z ^ z >> 31) % n;
}

// ---- the corpus ----

static void *grown(void *p, size_t n, size_t size)
{
	if (n & (n - 1))
		return p;
	p = realloc(p, (n ? 2 * n : 1) * size);
	if (!p)
		abort();
	return p;
}

static void add(struct fuzz_text **list, size_t *n, const char *s, size_t len)
{
	struct fuzz_text t = {malloc(len + 1), len};

	if (!t.s)
		abort();
	memcpy(t.s, s, len);
	t.s[len] = 0;
	*list = grown(*list, *n, sizeof(**list));
	(*list)[(*n)++] = t;
}

static size_t unescape(char *s, size_t n)
{
	size_t to = 0;

	for (size_t i = 0; i < n; i++) {
		char hex[3] = "";

		if (s[i] != '\\' || i + 1 == n) {
			s[to++] = s[i];
			continue;
		}
		i++;
		if (s[i] == 'x' && i + 2 < n) {
			memcpy(hex, s + i + 1, 2);
			s[to++] = (char)strtol(hex, NULL, 16);
			i += 2;
		} else {
			s[to++] = s[i] == 'n'	? '\n'
				  : s[i] == 'r' ? '\r'
				  : s[i] == 't' ? '\t'
						: s[i];
		}
	}
	return to;
}

// Runs of letters, and what stands between quotes, with them.
static void add_words(struct fuzz_corpus *c, const char *s, size_t n)
{
	for (size_t i = 0; i < n;) {
		size_t k = i + 1;

		if (s[i] == '"') {
			while (k < n && s[k] != '"')
				k++;
			k += k < n;
		} else if (isalnum((unsigned char)s[i])) {
			while (k < n && (isalnum((unsigned char)s[k]) ||
					 strchr("-_", s[k])))
				k++;
		} else {
			i++;
			continue;
		}
		if (k - i < 64)
			add(&c->words, &c->n_words, s + i, k - i);
		i = s[i] == '"' ? i + 1 : k;
	}
}

void fuzz_corpus_read(const char *name, bool escaped, struct fuzz_corpus *out)
{
	char path[4096], *line = NULL;
	size_t cap = 0;
	ssize_t got;
	FILE *f;

	*out = (struct fuzz_corpus){0};
	snprintf(path, sizeof(path), "%s/%s", FUZZ_CORPUS, name);
	f = fopen(path, "re");
	while (f && (got = getline(&line, &cap, f)) > 0) {
		size_t n = (size_t)got - (line[got - 1] == '\n');

		if (escaped)
			n = unescape(line, n);
		if (n > FUZZ_MOST / 2)
			n = FUZZ_MOST / 2;
		add(&out->items, &out->n_items, line, n);
		add_words(out, line, n);
	}
	if (f)
		fclose(f);
	free(line);
	if (!out->n_items || !out->n_words) {
		fprintf(stderr, "fuzz: %s: there is no input\n", path);
		exit(2);
	}
}

void fuzz_corpus_free(struct fuzz_corpus *c)
{
	for (size_t i = 0; i < c->n_items; i++)
		free(c->items[i].s);
	for (size_t i = 0; i < c->n_words; i++)
		free(c->words[i].s);
	free(c->items);
	free(c->words);
	*c = (struct fuzz_corpus){0};
}

// ---- bending ----

struct bent {
	char *s;
	size_t n;
};

// Replace n bytes at a place.
static void put(struct bent *b, size_t at, size_t n, const char *s, size_t len)
{
	if (len > FUZZ_MOST - (b->n - n))
		len = FUZZ_MOST - (b->n - n);
	memmove(b->s + at + len, b->s + at + n, b->n - at - n);
	memcpy(b->s + at, s, len);
	b->n += len - n;
}

static void repeat(struct bent *b, size_t at, const char *s, size_t n,
		   size_t times)
{
	while (times-- && b->n + n <= FUZZ_MOST)
		put(b, at, 0, s, n);
}

// Values and marks that readers stumble over.
static const char *const odd[] = {
	"null",
	"true",
	"false",
	"0",
	"-0",
	"-1",
	"1e999",
	"-1e999",
	"1e-999",
	"0.1",
	"2147483647",
	"2147483648",
	"4294967296",
	"9223372036854775807",
	"9223372036854775808",
	"-9223372036854775808",
	"18446744073709551616",
	"1e19",
	"\"\"",
	"\"\\u0000\"",
	"\"a\\u0000b\"",
	"\"\\ud800\"",
	"\"\\ud83d\\ude00\"",
	"\"\xc3\xa4\xf0\x9f\x98\x80\"",
	"\"\xff\"",
	"\xed\xa0\x80",
	"\xef\xbf\xbe",
	"[]",
	"{}",
	"[[]]",
	"[\"\"]",
	"[null]",
	"[1]",
	"[-1]",
	"[1,2,3]",
	"{\"a\":1}",
	"{\"\":null}",
	"{\"type\":\"object\"}",
	"{\"$ref\":\"#\"}",
	"\r\n",
	"\r\n\r\n",
	"\n",
	",",
	":",
	"\"",
	"\\",
	"%n%s",
	"{0,1000}",
	"{1000}",
	"(",
	")*",
	"|",
	".*",
	"+",
	"?",
	"[^a]",
	"\xff",
};
#define N_ODD (sizeof(odd) / sizeof(odd[0]))

static void word(const struct fuzz_corpus *c, uint64_t *seed,
		 struct fuzz_text *out)
{
	if (fuzz_draw(seed, 3)) {
		*out = c->words[fuzz_draw(seed, c->n_words)];
		return;
	}
	out->s = (char *)(uintptr_t)odd[fuzz_draw(seed, N_ODD)];
	out->n = strlen(out->s);
}

// The end of a JSON value that begins there, or of a word.
static size_t value_end(const struct bent *b, size_t at)
{
	int depth = 0;

	for (size_t i = at; i < b->n; i++) {
		char c = b->s[i];

		if (c == '"') {
			for (i++; i < b->n && b->s[i] != '"'; i++)
				i += b->s[i] == '\\';
			if (!depth)
				return i < b->n ? i + 1 : b->n;
		} else if (c == '{' || c == '[' || c == '(') {
			depth++;
		} else if (c == '}' || c == ']' || c == ')') {
			if (--depth <= 0)
				return depth ? i : i + 1;
		} else if (!depth && (c == ',' || c == '\r' || c == '\n')) {
			return i;
		}
	}
	return b->n;
}

// Where a value begins, somewhere.
static size_t value_start(const struct bent *b, uint64_t *seed)
{
	size_t at = fuzz_draw(seed, b->n + 1);

	while (at < b->n && !strchr(":,[{ ", b->s[at]))
		at++;
	return at < b->n ? at + 1 : at;
}

static void bend_once(const struct fuzz_corpus *c, uint64_t *seed,
		      struct bent *b)
{
	static const char *const nests[] = {"[",  "{\"a\":", "(", "(?:", "{",
					    "[[", "a|",	     "%", "/"};
	size_t at = fuzz_draw(seed, b->n + 1), left = b->n - at, n;
	const struct fuzz_text *other = &c->items[fuzz_draw(seed, c->n_items)];
	struct fuzz_text w;
	char byte;

	switch (fuzz_draw(seed, 14)) {
	case 0:
		if (left)
			b->s[at] ^= (char)(1 << fuzz_draw(seed, 8));
		break;
	case 1:
		byte = (char)fuzz_draw(seed, 256);
		put(b, at, fuzz_draw(seed, 2) && left, &byte, 1);
		break;
	case 2:
		put(b, at, left ? fuzz_draw(seed, left < 16 ? left : 16) : 0,
		    "", 0);
		break;
	case 3: // twice
		n = left ? fuzz_draw(seed, left) : 0;
		w = (struct fuzz_text){malloc(n + 1), n};
		if (!w.s)
			abort();
		memcpy(w.s, b->s + at, n);
		put(b, at, 0, w.s, w.n);
		free(w.s);
		break;
	case 4:
	case 5:
		word(c, seed, &w);
		put(b, at, 0, w.s, w.n);
		break;
	case 6: // the rest of another
		n = fuzz_draw(seed, other->n + 1);
		put(b, at, left, other->s + n, other->n - n);
		break;
	case 7: // deep, or long
		n = fuzz_draw(seed, sizeof(nests) / sizeof(nests[0]));
		repeat(b, at, nests[n], strlen(nests[n]),
		       (size_t)1 << fuzz_draw(seed, 13));
		break;
	case 8:
		byte = (char)fuzz_draw(seed, 256);
		repeat(b, at, &byte, 1, (size_t)1 << fuzz_draw(seed, 14));
		break;
	case 9: // a value goes, with what is before it or not
		at = value_start(b, seed);
		put(b, at, value_end(b, at) - at, "", 0);
		break;
	case 10: // another's value
		at = value_start(b, seed);
		n = fuzz_draw(seed, other->n + 1);
		put(b, at, value_end(b, at) - at, other->s + n,
		    fuzz_draw(seed, other->n - n + 1));
		break;
	default: // an odd value
		at = value_start(b, seed);
		word(c, seed, &w);
		put(b, at, value_end(b, at) - at, w.s, w.n);
	}
}

size_t fuzz_bend(const struct fuzz_corpus *c, uint64_t *seed, char *out)
{
	const struct fuzz_text *t = &c->items[fuzz_draw(seed, c->n_items)];
	struct bent b = {out, t->n};
	uint64_t times = fuzz_draw(seed, 6);

	memcpy(out, t->s, t->n);
	while (times--)
		bend_once(c, seed, &b);
	out[b.n] = 0;
	return b.n;
}
