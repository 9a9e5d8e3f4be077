// tok_golden.c - see tok_golden.h.
#include "tests/unit/tok_golden.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"

#define SHOWN 5 // failures printed in full, per folder

struct golden {
	const char *dir;
	struct genai_tokenizer *tok;
	struct golden_count n;
};

// ---- SHA-256, by which long results are recorded ----

static uint32_t ror(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

// The first 32 bits of the fractional part of a root of the nth prime.
static uint32_t prime_bits(unsigned nth, bool cube)
{
	unsigned p = 1, found = 0, d;
	uint64_t lo = 0, hi, mid;
	bool prime;

	while (found <= nth) {
		p++;
		prime = true;
		for (d = 2; d * d <= p; d++)
			prime = prime && p % d;
		found += prime;
	}
	hi = 1ull << 40; // the root, with 32 bits of fraction
	while (lo + 1 < hi) {
		__extension__ unsigned __int128 r;

		mid = lo + (hi - lo) / 2;
		r = (unsigned __int128)mid * mid;
		// Compare in 64 (square) or 96 (cube) bits of fraction.
		if (cube ? (r >> 32) * mid >> 32 > 0 &&
				    r * mid > (unsigned __int128)p << 96
			 : r > (unsigned __int128)p << 64)
			hi = mid;
		else
			lo = mid;
	}
	return (uint32_t)lo;
}

static void sha_block(uint32_t *h, const uint8_t *p, const uint32_t *k)
{
	uint32_t w[64], s[8], t1, t2;
	int i;

	for (i = 0; i < 16; i++)
		w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
		       (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
	for (; i < 64; i++)
		w[i] = w[i - 16] + w[i - 7] +
		       (ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^
			w[i - 15] >> 3) +
		       (ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10);
	memcpy(s, h, sizeof(s));
	for (i = 0; i < 64; i++) {
		t1 = s[7] + (ror(s[4], 6) ^ ror(s[4], 11) ^ ror(s[4], 25)) +
		     ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
		t2 = (ror(s[0], 2) ^ ror(s[0], 13) ^ ror(s[0], 22)) +
		     ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
		memmove(s + 1, s, 7 * sizeof(*s));
		s[4] += t1;
		s[0] = t1 + t2;
	}
	for (i = 0; i < 8; i++)
		h[i] += s[i];
}

static void sha256(const void *data, size_t n, char *hex)
{
	static uint32_t k[64];
	uint8_t tail[128] = {0};
	uint32_t h[8];
	size_t i, rest = n % 64, pad = rest < 56 ? 64 : 128;

	for (i = 0; i < 64 && !k[63]; i++)
		k[i] = prime_bits((unsigned)i, true);
	for (i = 0; i < 8; i++)
		h[i] = prime_bits((unsigned)i, false);
	for (i = 0; i + 64 <= n; i += 64)
		sha_block(h, (const uint8_t *)data + i, k);
	memcpy(tail, (const uint8_t *)data + i, rest);
	tail[rest] = 0x80;
	for (i = 0; i < 8; i++)
		tail[pad - 1 - i] = (uint8_t)((uint64_t)n * 8 >> (8 * i));
	for (i = 0; i < pad; i += 64)
		sha_block(h, tail + i, k);
	for (i = 0; i < 8; i++)
		sprintf(hex + 8 * i, "%08x", h[i]);
}

// ---- one case ----

static void fail(struct golden *g, json_t *c, const char *key,
		 const char *detail)
{
	char *text = json_dumps(json_object_get(c, "text"),
				JSON_ENCODE_ANY | JSON_ENSURE_ASCII);

	if (g->n.failed++ < SHOWN)
		printf("%s: %s of %.200s: %.300s\n", g->dir, key,
		       text ? text : "long text", detail);
	free(text);
}

static bool same_ids(json_t *want, const int64_t *ids, size_t n)
{
	size_t i;

	if (json_array_size(want) != n)
		return false;
	for (i = 0; i < n; i++)
		if (json_integer_value(json_array_get(want, i)) != ids[i])
			return false;
	return true;
}

static void check_ids(struct golden *g, json_t *c, const char *key,
		      uint32_t flags)
{
	json_t *want = json_object_get(c, key), *text;
	struct genai_error err = GENAI_ERROR_INIT;
	char got[300] = "";
	int64_t *ids = NULL;
	size_t n = 0, i, len = 0;

	text = json_object_get(c, "text");
	if (!want && !strcmp(key, "ids"))
		want = json_object_get(c, "ids_special");
	if (!want || !text)
		return;
	if (genai_tokenizer_encode(g->tok, json_string_value(text),
				   json_string_length(text), flags, &ids, &n,
				   &err)) {
		fail(g, c, key, err.text);
		return;
	}
	for (i = 0; i < n && len < sizeof(got) - 12; i++)
		len += (size_t)sprintf(got + len, "%d ", (int)ids[i]);
	if (same_ids(want, ids, n))
		g->n.passed++;
	else
		fail(g, c, key, got);
	free(ids);
}

static int64_t *json_ids(json_t *c, size_t *n)
{
	json_t *a = json_object_get(c, "ids_special");
	int64_t *ids;
	size_t i;

	*n = json_array_size(a);
	ids = calloc(*n + 1, sizeof(*ids));
	for (i = 0; ids && i < *n; i++)
		ids[i] = json_integer_value(json_array_get(a, i));
	return ids;
}

static void check_decode(struct golden *g, json_t *c, const char *key,
			 uint32_t flags)
{
	json_t *want = json_object_get(c, key);
	struct genai_error err = GENAI_ERROR_INIT;
	char *text = NULL;
	size_t n, bytes = 0;
	int64_t *ids = json_ids(c, &n);

	if (!want)
		want = json_object_get(c, "decode_skip");
	if (genai_tokenizer_decode(g->tok, ids, n, flags, &text, &bytes, &err))
		fail(g, c, key, err.text);
	else if (bytes != json_string_length(want) ||
		 memcmp(text, json_string_value(want), bytes))
		fail(g, c, key, text);
	else
		g->n.passed++;
	free(text);
	free(ids);
}

// The pieces must concatenate to decode_skip, each of whole characters.
static void check_stream(struct golden *g, json_t *c)
{
	json_t *want = json_object_get(c, "decode_skip");
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_detok *d = NULL;
	size_t n, i, bytes, at = 0, all = json_string_length(want);
	int64_t *ids = json_ids(c, &n);
	const char *text, *why = NULL;
	int32_t rc;

	if (genai_detok_open(g->tok, 0, &d, &err))
		why = err.text;
	for (i = 0; !why && i <= n; i++) {
		rc = i < n ? genai_detok_push(d, ids[i], &text, &bytes, &err)
			   : genai_detok_flush(d, &text, &bytes, &err);
		if (rc)
			why = err.text;
		else if (bytes > all - at ||
			 memcmp(json_string_value(want) + at, text, bytes))
			why = "differs from decode_skip";
		else if (bytes && ((uint8_t)*text & 0xc0) == 0x80)
			why = "cut inside a character";
		else
			at += bytes;
	}
	if (!why && at != all)
		why = "shorter than decode_skip";
	if (why)
		fail(g, c, "stream", why);
	else
		g->n.passed++;
	genai_detok_close(d);
	free(ids);
}

// ---- long texts ----

static char *repeat(const char *s, size_t times, size_t *n)
{
	size_t len = strlen(s), i;
	char *out = malloc(len * times + 1);

	for (i = 0; out && i < times; i++)
		memcpy(out + i * len, s, len);
	*n = len * times;
	return out;
}

static char *long_text(const char *dir, const char *name, size_t *n)
{
	static const struct {
		const char *name, *unit;
		size_t times;
	} made[] = {
		{"a10000", "a", 10000},
		{"space10000", " ", 10000},
		{"newline10000", "\n", 10000},
		{"ab_space", "ab ", 4000},
		{"digits10000", "1234567890", 1000},
		{"emoji2000",
		 "\U0001F469\u200D\U0001F469\u200D\U0001F467\u200D\U0001F466",
		 2000},
		{"cjk10000", "\u4f60\u597d\u4e16\u754c", 2500},
	};
	char path[4096], *text = NULL;
	json_t *j;
	size_t i;

	for (i = 0; i < sizeof(made) / sizeof(*made); i++)
		if (!strcmp(name, made[i].name))
			return repeat(made[i].unit, made[i].times, n);
	snprintf(path, sizeof(path), "%s/../long/%s.json", dir, name);
	j = json_load_file(path, JSON_ALLOW_NUL, NULL);
	if (j) {
		*n = json_string_length(json_object_get(j, "text"));
		text = malloc(*n + 1);
		if (text)
			memcpy(text,
			       json_string_value(json_object_get(j, "text")),
			       *n + 1);
	}
	json_decref(j);
	return text;
}

static bool ids_hash_is(const int64_t *ids, size_t n, const char *want)
{
	uint8_t *raw = malloc(4 * n + 1);
	char hex[72];
	size_t i;

	for (i = 0; i < 4 * n; i++)
		raw[i] = (uint8_t)(ids[i / 4] >> (8 * (i % 4)));
	sha256(raw, 4 * n, hex);
	free(raw);
	return want && !strcmp(hex, want);
}

static void check_long_ids(struct golden *g, json_t *c, const char *text,
			   size_t bytes, bool special)
{
	const char *key = special ? "ids_special_sha256" : "ids_sha256";
	struct genai_error err = GENAI_ERROR_INIT;
	int64_t *ids = NULL;
	char *back = NULL, hex[72];
	size_t n = 0, back_n;

	if (genai_tokenizer_encode(g->tok, text, bytes,
				   special ? 0 : GENAI_TOK_NO_SPECIAL, &ids, &n,
				   &err))
		fail(g, c, key, err.text);
	else if (!ids_hash_is(ids, n,
			      json_string_value(json_object_get(c, key))))
		fail(g, c, key, json_string_value(json_object_get(c, "long")));
	else
		g->n.passed++;
	if (special && ids &&
	    !genai_tokenizer_decode(g->tok, ids, n, 0, &back, &back_n, &err)) {
		key = json_string_value(
			json_object_get(c, "decode_skip_sha256"));
		sha256(back, back_n, hex);
		if (key && !strcmp(key, hex))
			g->n.passed++;
		else
			fail(g, c, "decode_skip_sha256",
			     json_string_value(json_object_get(c, "long")));
	}
	free(back);
	free(ids);
}

static void check_long(struct golden *g, json_t *c)
{
	const char *name = json_string_value(json_object_get(c, "long"));
	size_t n;
	char *text = long_text(g->dir, name ? name : "", &n);

	if (!text) {
		g->n.skipped++;
		return;
	}
	check_long_ids(g, c, text, n, false);
	check_long_ids(g, c, text, n, true);
	free(text);
}

static void run_cases(struct golden *g, json_t *j)
{
	json_t *cases = json_object_get(j, "cases"), *c;
	size_t i;

	json_array_foreach(cases, i, c)
	{
		check_ids(g, c, "ids", GENAI_TOK_NO_SPECIAL);
		check_ids(g, c, "ids_special", 0);
		check_ids(g, c, "ids_specials_as_text",
			  GENAI_TOK_NO_SPECIAL | GENAI_TOK_SPECIALS_AS_TEXT);
		check_decode(g, c, "decode_skip", 0);
		check_decode(g, c, "decode_keep", GENAI_TOK_KEEP_SPECIAL);
		check_stream(g, c);
	}
	json_array_foreach(json_object_get(j, "long"), i, c) check_long(g, c);
}

static void close_run(struct golden *g, struct golden_count *count)
{
	count->passed += g->n.passed;
	count->failed += g->n.failed;
	count->skipped += g->n.skipped;
	genai_tokenizer_close(g->tok);
}

void golden_run(const char *dir, struct golden_count *count)
{
	struct golden g = {.dir = dir};
	struct genai_error err = GENAI_ERROR_INIT;
	char path[4096];
	json_error_t je;
	json_t *j;

	snprintf(path, sizeof(path), "%s/golden.json", dir);
	if (access(path, F_OK)) { // a folder of other things
		printf("%s: nothing recorded\n", dir);
		count->skipped++;
		return;
	}
	j = json_load_file(path, JSON_ALLOW_NUL, &je);
	if (!j) {
		printf("%s: %s\n", path, je.text);
		g.n.failed++;
	} else if (genai_tokenizer_open(dir, &g.tok, &err)) {
		printf("%s\n", err.text);
		g.n.failed++;
	} else {
		run_cases(&g, j);
	}
	printf("%s: %u passed, %u failed, %u skipped\n", dir, g.n.passed,
	       g.n.failed, g.n.skipped);
	close_run(&g, count);
	json_decref(j);
}

int32_t golden_open_text(const char *text, size_t bytes,
			 struct genai_tokenizer **out_tok,
			 struct genai_error *err)
{
	const char *tmp = getenv("TMPDIR");
	char path[4096];
	int32_t rc;
	int fd;

	snprintf(path, sizeof(path), "%s/genai-tok-XXXXXX", tmp ? tmp : "/tmp");
	fd = mkstemp(path);
	if (fd < 0)
		return genai_fail(err, GENAI_E_IO, "%s: cannot create", path);
	if (write(fd, text, bytes) == (ssize_t)bytes)
		rc = genai_tokenizer_open(path, out_tok, err);
	else
		rc = genai_fail(err, GENAI_E_IO, "%s: cannot write", path);
	close(fd);
	unlink(path);
	return rc;
}

static void run_small(json_t *file, json_t *entry, struct golden_count *count)
{
	struct golden g = {
		.dir = json_string_value(json_object_get(entry, "name"))};
	struct genai_error err = GENAI_ERROR_INIT;
	json_t *doc = json_object_get(entry, "tokenizer"), *model;
	char *text;

	model = json_object_get(doc, "model");
	if (json_is_string(model))
		json_object_set(
			doc, "model",
			json_object_get(file, json_string_value(model)));
	text = json_dumps(doc, 0);
	if (golden_open_text(text, strlen(text), &g.tok, &err)) {
		printf("%s: %s\n", g.dir, err.text);
		g.n.failed++;
	} else {
		run_cases(&g, entry);
	}
	free(text);
	close_run(&g, count);
}

void golden_run_mini(const char *path, struct golden_count *count)
{
	json_error_t je;
	json_t *j = json_load_file(path, JSON_ALLOW_NUL, &je), *entry;
	size_t i;

	if (!j) {
		printf("%s: %s\n", path, je.text);
		count->failed++;
	}
	json_array_foreach(json_object_get(j, "tokenizers"), i, entry)
	{
		run_small(j, entry, count);
	}
	json_decref(j);
}
