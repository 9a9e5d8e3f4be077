// bench_masks.c - what a mask of structured output costs.
// usage: bench_masks FOLDER VOCABULARY END [SEEDS]
// FOLDER has a tokenizer.json, END is the id that ends a text.  Texts of some
// grammars are drawn, each of the allowed ids as likely as the others; every
// mask is timed with what the token before it cost.  Processor time, so that a
// busy machine disturbs less.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/error.h"
#include "tools/constrain/constrain.h"

#define MAX_TOKENS 200

static const struct {
	const char *kind, *data;
} grammars[] = {
	{"json_object", ""},
	{"json_schema", "{\"type\":\"object\",\"properties\":{\"name\":{"
			"\"type\":\"string\"},\"age\":{\"type\":\"integer\","
			"\"minimum\":0,\"maximum\":150},\"tags\":{\"type\":"
			"\"array\",\"items\":{\"type\":\"string\"}}},"
			"\"required\":[\"name\",\"age\",\"tags\"],"
			"\"additionalProperties\":false}"},
	{"json_schema", "{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
			"node\"},\"$defs\":{\"node\":{\"type\":\"object\","
			"\"properties\":{\"v\":{\"type\":\"number\"},\"kids\":"
			"{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
			"node\"}}},\"required\":[\"v\"],"
			"\"additionalProperties\":false}}}"},
	{"json_schema", "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":40},"
			"{\"type\":\"string\",\"format\":\"date-time\"},"
			"{\"type\":\"string\",\"pattern\":\"^[a-z]{3,20}@[a-z]"
			"{3,20}[.](com|org)$\"},{\"enum\":[\"red\",\"green\","
			"1,null]}]}"},
	{"json_schema", "{\"type\":\"string\"}"},
	{"regex", "[0-9]{4}-[0-9]{2}-[0-9]{2}"},
	{"regex", "(.|\\n)*[a-z]+@[a-z]+[.]com"},
	{"lark",
	 "start: sum\nsum: product ((\"+\" | \"-\") product)*\n"
	 "product: atom ((\"*\" | \"/\") atom)*\n"
	 "atom: NUMBER | \"(\" sum \")\"\nNUMBER: /[0-9]+([.][0-9]+)?/"},
};
#define N_GRAMMARS (sizeof(grammars) / sizeof(grammars[0]))

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static uint32_t draw(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) +
		UINT64_C(1442695040888963407);
	return (uint32_t)(*seed >> 33);
}

// One of the ids that are allowed.
static int64_t pick(const uint32_t *bits, size_t words, uint64_t *seed)
{
	uint64_t n = 0, k;

	for (size_t i = 0; i < words; i++)
		n += (uint64_t)__builtin_popcount(bits[i]);
	if (!n)
		return -1;
	k = draw(seed) % n;
	for (size_t i = 0;; i++) {
		uint64_t here = (uint64_t)__builtin_popcount(bits[i]);
		uint32_t w = bits[i];

		if (k >= here) {
			k -= here;
			continue;
		}
		while (k--)
			w &= w - 1;
		return (int64_t)(i * 32 + (size_t)__builtin_ctz(w));
	}
}

static int by_number(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void say(const char *what, double *us, size_t n)
{
	qsort(us, n, sizeof(*us), by_number);
	printf("%-12s %8zu: median %8.1f us, 99 %% below %8.1f, worst %9.1f\n",
	       what, n, us[n / 2], us[n * 99 / 100], us[n - 1]);
}

int main(int argc, char **argv)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct constrain *c;
	uint32_t vocab = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
	int64_t end = argc > 3 ? strtoll(argv[3], NULL, 10) : 0,
		ids[MAX_TOKENS];
	int seeds = argc > 4 ? atoi(argv[4]) : 20;
	size_t words = ((size_t)vocab + 31) / 32, n_all = 0;
	size_t room = N_GRAMMARS * (size_t)seeds * MAX_TOKENS;
	double *all, *one, *made;
	uint32_t *bits = malloc(words * 4 + 4);

	if (argc < 4 || seeds < 1 || !bits) {
		fprintf(stderr,
			"usage: bench_masks FOLDER VOCABULARY END [SEEDS]\n");
		return 2;
	}
	if (constrain_open(argv[1], vocab, &end, 1, &c, &err)) {
		fprintf(stderr, "bench_masks: %s\n", err.text);
		return 1;
	}
	all = malloc(room * sizeof(*all));
	one = malloc(room * sizeof(*one));
	made = malloc((size_t)seeds * sizeof(*made));
	for (size_t g = 0; all && one && made && g < N_GRAMMARS; g++) {
		size_t n_one = 0;

		for (int s = 0; s < seeds; s++) {
			uint64_t seed = (uint64_t)s * 1000 + g;
			struct constraint *k;
			double t = now();

			if (constraint_open(c, grammars[g].kind,
					    grammars[g].data, 1, &k, &err)) {
				fprintf(stderr, "bench_masks: %s\n", err.text);
				return 1;
			}
			made[s] = now() - t;
			for (size_t n = 0; n < MAX_TOKENS; n++) {
				t = now();
				if (constraint_allow(k, 0, ids, n, bits,
						     &err)) {
					fprintf(stderr, "bench_masks: %s\n",
						err.text);
					return 1;
				}
				one[n_one++] = now() - t;
				ids[n] = pick(bits, words, &seed);
				if (ids[n] == end || ids[n] < 0)
					break;
			}
			constraint_close(k);
		}
		memcpy(all + n_all, one, n_one * sizeof(*one));
		n_all += n_one;
		printf("%s %.60s\n", grammars[g].kind, grammars[g].data);
		say("  compiled", made, (size_t)seeds);
		say("  masks", one, n_one);
	}
	say("all masks", all, n_all);
	free(all);
	free(one);
	free(made);
	free(bits);
	constrain_close(c);
	return 0;
}
