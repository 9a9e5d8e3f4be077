// teacher.c - a device against the reference on real text, teacher-forced.
//
//     teacher [--device MODULE] [--executor NAME] [--modules FOLDER]
//             [--config FILE] [--tokens N] DIR...
//
// The reference (cpu_ref, eager) continues each of twenty prompts greedily; the
// device is given the reference's tokens, one by one.  After each both must
// have the same best token, unless the reference's two best are closer than
// twice the tolerance; each such place is listed.  A model without a tokenizer
// gets made-up ids.  Closes with "N passed, N failed, N skipped", by prompt.
// Without arguments the captured executor of the reference is the device, on a
// folder of the test data; TAP if GENAI_TAP is set.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <genai/text.h>

#include "tests/golden/subject.h"

#define MAX_PROMPT 64
#define MAX_TOKENS 512

static const char *const prompts[] = {
	"The capital of France is",
	"Once upon a time, in a small village by the sea,",
	"def fibonacci(n):\n    ",
	"Water boils at a temperature of",
	"The three laws of thermodynamics state that",
	"Dear Sir or Madam,\n\nI am writing to",
	"1, 1, 2, 3, 5, 8, 13,",
	"Die Hauptstadt von Deutschland ist",
	"Il \u00e9tait une fois un roi qui",
	"#include <stdio.h>\n\nint main(void)\n{\n",
	"The quick brown fox",
	"SELECT name, price FROM products WHERE",
	"In 1969, the first human being to walk on the Moon",
	"To make a good cup of tea, first",
	"Q: What is the largest planet?\nA:",
	"The mitochondrion is",
	"- apples\n- pears\n- ",
	"He opened the door slowly and saw",
	"The derivative of x squared is",
	"{\"name\": \"Ada\", \"born\": ",
};
#define N_PROMPTS (sizeof(prompts) / sizeof(prompts[0]))

struct talk {
	int64_t ids[MAX_PROMPT];
	size_t n_prompt;
	// after the prompt and after each token but the last
	int64_t best[MAX_TOKENS];
	double margin[MAX_TOKENS], value[MAX_TOKENS];
};

static struct {
	struct subject_where reference, device;
	const char *executor;
	size_t tokens;
	unsigned passed, failed;
} state = {SUBJECT_CPU, SUBJECT_CPU, "captured", 128, 0, 0};

static int32_t prompt_ids(const struct genai_tokenizer *tok, size_t at,
			  uint32_t vocab, struct talk *t,
			  struct genai_error *err)
{
	uint64_t x = at + 1;
	int64_t *ids = NULL;
	size_t n = 0;
	int32_t rc;

	if (!tok) {
		t->n_prompt = 1 + at;
		for (size_t i = 0; i < t->n_prompt; i++) {
			x = x * UINT64_C(6364136223846793005) +
			    1442695040888963407u;
			t->ids[i] = (int64_t)((x >> 33) % vocab);
		}
		return 0;
	}
	rc = genai_tokenizer_encode(tok, prompts[at], strlen(prompts[at]), 0,
				    &ids, &n, err);
	if (rc)
		return rc;
	t->n_prompt = n < MAX_PROMPT ? n : MAX_PROMPT;
	if (ids)
		memcpy(t->ids, ids, t->n_prompt * sizeof(*ids));
	free(ids);
	return 0;
}

// The best token and how far the second is behind.
static void best_of(const float *row, uint32_t vocab, struct talk *t, size_t at)
{
	double second = -INFINITY;
	uint32_t best = 0;

	for (uint32_t i = 1; i < vocab; i++) {
		if (row[i] > row[best]) {
			second = row[best];
			best = i;
		} else if (row[i] > second) {
			second = row[i];
		}
	}
	t->best[at] = best;
	t->value[at] = row[best];
	t->margin[at] = row[best] - second;
}

// The prompt, then the teacher's tokens one at a time.
static int32_t run(struct subject *u, const struct talk *teacher,
		   struct talk *out, float *row, struct genai_error *err)
{
	int32_t rc = genai_session_rewind(u->s, 0, err);
	size_t rows;

	if (!rc)
		rc = genai_session_append(u->s, teacher->ids, teacher->n_prompt,
					  err);
	for (size_t i = 0; !rc && i < state.tokens; i++) {
		if (i)
			rc = genai_session_append(u->s, &teacher->best[i - 1],
						  1, err);
		if (!rc)
			rc = genai_session_logits(u->s, row, 1, &rows, err);
		if (!rc)
			best_of(row, u->info.vocab_size, out, i);
	}
	return rc;
}

static bool compare(const char *dir, size_t p, struct golden_tolerance tol,
		    const struct talk *want, const struct talk *got,
		    size_t *equal, size_t *near)
{
	bool ok = true;

	for (size_t i = 0; i < state.tokens; i++) {
		double slack = 2 * (tol.atol + tol.rtol * fabs(want->value[i]));

		if (want->best[i] == got->best[i]) {
			++*equal;
			continue;
		}
		printf("%s %s: prompt %zu, token %zu: %lld, the reference has "
		       "%lld by %.3g\n",
		       want->margin[i] > slack ? "FAIL" : "near", dir, p, i,
		       (long long)got->best[i], (long long)want->best[i],
		       want->margin[i]);
		++*near;
		if (want->margin[i] > slack)
			ok = false;
	}
	return ok;
}

static int32_t teach(const char *dir, struct subject *ref, struct subject *u,
		     struct genai_error *err)
{
	struct genai_tokenizer *tok = NULL;
	static struct talk want, got;
	size_t equal = 0, near = 0;
	float *row = malloc(ref->info.vocab_size * sizeof(*row));
	int32_t rc = row ? 0 : GENAI_E_NOMEM;

	if (genai_tokenizer_open(dir, &tok, NULL))
		tok = NULL;
	for (size_t p = 0; !rc && p < N_PROMPTS; p++) {
		rc = prompt_ids(tok, p, ref->info.vocab_size, &want, err);
		if (!rc)
			rc = run(ref, &want, &want, row, err);
		if (!rc)
			rc = run(u, &want, &got, row, err);
		if (rc)
			break;
		if (compare(dir, p, subject_tolerance(ref), &want, &got, &equal,
			    &near))
			state.passed++;
		else
			state.failed++;
	}
	if (!rc)
		printf("%s: %zu of %zu best tokens equal\n", dir, equal,
		       equal + near);
	genai_tokenizer_close(tok);
	free(row);
	return rc;
}

static void check(const char *dir)
{
	const struct subject_cell eager = {"eager", "pager_sync", "auto"};
	const struct subject_cell cell = {state.executor, "pager_sync", "auto"};
	struct genai_error err = GENAI_ERROR_INIT;
	struct subject ref = {0}, u = {0};
	int32_t rc =
		subject_open(&ref, &state.reference, dir, &eager, false, &err);

	if (!rc)
		rc = subject_open(&u, &state.device, dir, &cell, false, &err);
	if (!rc)
		rc = teach(dir, &ref, &u, &err);
	if (rc) {
		printf("FAIL %s: %s\n", dir, err.text);
		state.failed++;
	}
	subject_close(&u);
	subject_close(&ref);
}

int main(int argc, char **argv)
{
	bool tap = argc == 1 && getenv("GENAI_TAP");

	if (argc == 1) {
		state.tokens = 32;
		check(GENAI_TESTDATA "/models/mistral-cpu-fp32");
	}
	for (int i = 1; i < argc; i++) {
		if (argv[i][0] != '-') {
			check(argv[i]);
		} else if (i + 1 == argc) {
			fprintf(stderr, "teacher: %s needs a value\n", argv[i]);
			return 2;
		} else if (!strcmp(argv[i], "--device")) {
			state.device.device = argv[++i];
		} else if (!strcmp(argv[i], "--executor")) {
			state.executor = argv[++i];
		} else if (!strcmp(argv[i], "--modules")) {
			state.device.modules = argv[++i];
			state.reference.modules = argv[i];
		} else if (!strcmp(argv[i], "--config")) {
			state.device.config = argv[++i];
			state.reference.config = argv[i];
		} else if (!strcmp(argv[i], "--tokens")) {
			state.tokens = (size_t)atoi(argv[++i]);
			if (!state.tokens || state.tokens > MAX_TOKENS)
				state.tokens = MAX_TOKENS;
		} else {
			fprintf(stderr, "teacher: unknown option %s\n",
				argv[i]);
			return 2;
		}
	}
	if (tap)
		printf("1..1\n%s 1 - %u prompts teacher-forced\n",
		       state.failed ? "not ok" : "ok", state.passed);
	else
		printf("%u passed, %u failed, 0 skipped\n", state.passed,
		       state.failed);
	return state.failed > 0;
}
