// reference.c - genai-conform --parity DIR... --reference MODULE: the numbers
// of the configured modules against those of another module, which need not
// round alike.  The reference continues prompts greedily; the modules under
// test are given its tokens, one by one, and every row of logits has to be as
// near as the arithmetic lets it: bound() says how near that is.
#include "tests/conform/parity.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/subject.h"

#define MAX_PROMPT 24
#define MAX_DIRS 64

struct reference {
	struct subject_where tested, reference;
	const char *sets[64], *dirs[MAX_DIRS];
	uint32_t n_dirs;
	uint64_t seeds, tokens;
	unsigned passed, failed;
};

// How far two right computations of a row of logits may lie apart.  A layer
// rounds its results to the type of the graph some twelve times, in one of them
// to one side and in the other to another: 2 u of the largest each, which add
// up as a walk does; and its sums of some thousand products in fp32 come in
// other orders.  Four times that: what one row in ten thousand exceeds.
static double bound(const struct subject *u, const float *row)
{
	uint32_t dtype = subject_dtype(u);
	double unit = dtype == GENAI_DT_BF16  ? 0x1p-8
		      : dtype == GENAI_DT_F16 ? 0x1p-11
					      : 0x1p-24;
	double most = 1;

	for (uint32_t i = 0; i < u->info.vocab_size; i++)
		most = fmax(most, fabs((double)row[i]));
	return 4 * most * sqrt(12. * (subject_layers(u) + 1)) *
	       (unit + sqrt(1024) * 0x1p-24);
}

// One row of both; false with what differs.
static bool compare(const struct subject *ref, const float *want,
		    const float *got, double *worst, char *why, size_t cap)
{
	double tol = bound(ref, want);

	for (uint32_t i = 0; i < ref->info.vocab_size; i++) {
		double d = fabs((double)want[i] - (double)got[i]);

		if (d / tol > *worst)
			*worst = d / tol;
		if (d <= tol)
			continue;
		snprintf(why, cap,
			 "logit %u is %.7g, the reference has %.7g; rounding "
			 "explains %.2g",
			 i, (double)got[i], (double)want[i], tol);
		return false;
	}
	return true;
}

static int64_t best_of(const float *row, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++)
		if (row[i] > row[best])
			best = i;
	return best;
}

static int32_t feed(struct subject *u, const int64_t *ids, size_t n, float *row,
		    struct genai_error *err)
{
	int32_t rc = genai_session_append(u->s, ids, n, err);
	size_t rows;

	return rc ? rc : genai_session_logits(u->s, row, 1, &rows, err);
}

static uint64_t next(uint64_t *x)
{
	*x = *x * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return *x >> 33;
}

// A prompt in one piece, then the reference's tokens.
static bool run_seed(const struct reference *r, struct subject *ref,
		     struct subject *u, uint64_t seed, double *worst, char *why,
		     size_t cap)
{
	uint32_t vocab = ref->info.vocab_size;
	float *want = malloc(2 * vocab * sizeof(*want)), *got = want + vocab;
	struct genai_error err = GENAI_ERROR_INIT;
	int64_t ids[MAX_PROMPT];
	uint64_t x = seed + 1;
	size_t n = 1 + next(&x) % MAX_PROMPT;
	int32_t rc = want ? genai_session_rewind(ref->s, 0, &err) : -1;
	bool ok = true;

	if (!rc)
		rc = genai_session_rewind(u->s, 0, &err);
	for (size_t i = 0; i < n; i++)
		ids[i] = (int64_t)(next(&x) % vocab);
	for (uint64_t i = 0; !rc && ok && i < r->tokens; i++) {
		rc = feed(ref, ids, n, want, &err);
		if (!rc)
			rc = feed(u, ids, n, got, &err);
		if (rc)
			break;
		ok = compare(ref, want, got, worst, why, cap);
		ids[0] = best_of(want, vocab);
		n = 1;
	}
	free(want);
	if (rc)
		snprintf(why, cap, "%s", err.text);
	return !rc && ok;
}

static void run_dir(struct reference *r, const char *dir)
{
	static const struct subject_cell plain = {"eager", "pager_sync",
						  "100%"};
	static const struct subject_cell configured;
	struct genai_error err = GENAI_ERROR_INIT;
	struct subject ref, u = {0};
	unsigned failed = r->failed;
	char why[512] = "";
	double worst = 0;
	int32_t rc =
		subject_open(&ref, &r->reference, dir, &plain, false, &err);

	if (!rc)
		rc = subject_open(&u, &r->tested, dir, &configured, false,
				  &err);
	if (rc) {
		printf("FAIL %s: %s\n", dir, err.text);
		r->failed++;
	}
	for (uint64_t i = 0; !rc && i < r->seeds; i++) {
		if (run_seed(r, &ref, &u, i, &worst, why, sizeof(why))) {
			r->passed++;
			continue;
		}
		r->failed++;
		printf("FAIL %s: seed %llu: %s\n", dir, (unsigned long long)i,
		       why);
	}
	if (!rc)
		printf("%s %s: at most %.2g of what rounding explains\n",
		       failed == r->failed ? "ok" : "FAIL", dir, worst);
	fflush(stdout);
	subject_close(&u);
	subject_close(&ref);
}

static const struct option options[] = {
	{"parity", 0, NULL, 'p'},
	{"reference", 1, NULL, 'r'},
	{"config", 1, NULL, 'c'},
	{"set", 1, NULL, 's'},
	{"seeds", 1, NULL, 'n'},
	{"tokens", 1, NULL, 't'},
	{0},
};

static bool number(const char *s, uint64_t *out)
{
	char *end;

	*out = strtoull(s, &end, 10);
	return *s >= '0' && *s <= '9' && !*end && *out;
}

static int take(struct reference *r, int c)
{
	switch (c) {
	case 'p':
		return 0;
	case 'r':
		r->reference.device = optarg;
		return 0;
	case 'c':
		r->tested.config = r->reference.config = optarg;
		return 0;
	case 's':
		if (r->tested.n_sets == 64)
			return 2;
		r->sets[r->tested.n_sets++] = optarg;
		return 0;
	case 'n':
		return number(optarg, &r->seeds) ? 0 : 2;
	case 't':
		return number(optarg, &r->tokens) ? 0 : 2;
	default:
		return 2;
	}
}

int conform_reference(int argc, char **argv)
{
	static struct reference r = {.seeds = 8, .tokens = 24};
	int c, rc = 0;

	r.tested.sets = r.sets;
	while (!rc && (c = getopt_long(argc, argv, "", options, NULL)) != -1)
		rc = take(&r, c);
	for (; !rc && optind < argc; optind++) {
		if (r.n_dirs == MAX_DIRS)
			rc = 2;
		else
			r.dirs[r.n_dirs++] = argv[optind];
	}
	// the reference finds its module where the others are
	r.reference.sets = r.sets;
	for (uint32_t i = 0; i < r.tested.n_sets; i++)
		if (!strncmp(r.sets[i], "runtime.module_path=", 20))
			r.reference.sets = &r.sets[i], r.reference.n_sets = 1;
	if (!rc && !r.n_dirs) {
		fprintf(stderr, "genai-conform: --reference wants model "
				"folders\n");
		rc = 2;
	}
	if (rc)
		return rc;
	printf("reference: %s, eager, resident; %llu seeds of %llu tokens\n",
	       r.reference.device, (unsigned long long)r.seeds,
	       (unsigned long long)r.tokens);
	for (uint32_t i = 0; i < r.n_dirs; i++)
		run_dir(&r, r.dirs[i]);
	printf("%u passed, %u failed\n", r.passed, r.failed);
	return r.failed > 0;
}
