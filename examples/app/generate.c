// generate.c - ids in, ids out: a runtime, a model, a session.
//
//     generate DIR ID...
//
// prints the 16 most probable ids that follow; then the same again from the
// logits, after a rewind; then what the step took.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <genai/genai.h>

#define NEW 16

static struct genai_error err = GENAI_ERROR_INIT;

static int failed(void)
{
	fprintf(stderr, "generate: %s\n", err.text);
	return 1;
}

// The device chooses; it is one step ahead of us, but for the last token.
static int on_device(struct genai_session *s, int64_t *out)
{
	int i;

	for (i = 0; i < NEW; i++)
		if (genai_session_next(s, i < NEW - 1, &out[i], &err))
			return -1;
	return 0;
}

// We choose: the logits of the last position, and append what we took.
static int on_host(struct genai_session *s, uint32_t vocab, int64_t *out)
{
	float *logits = malloc(vocab * sizeof(*logits));
	size_t rows;
	int i, rc = logits ? 0 : -1;

	for (i = 0; !rc && i < NEW; i++) {
		rc = genai_session_logits(s, logits, 1, &rows, &err);
		out[i] = 0;
		for (uint32_t id = 1; !rc && id < vocab; id++)
			if (logits[id] > logits[out[i]])
				out[i] = id;
		if (!rc)
			rc = genai_session_append(s, &out[i], 1, &err);
	}
	free(logits);
	return rc;
}

static void print(const char *what, const int64_t *ids)
{
	printf("%s:", what);
	for (int i = 0; i < NEW; i++)
		printf(" %" PRId64, ids[i]);
	printf("\n");
}

static void show(void *ctx, const char *name, int64_t value)
{
	(void)ctx;
	printf("%s: %" PRId64 "\n", name, value);
}

int main(int argc, char **argv)
{
	struct genai_model_info info = {.size = sizeof(info)};
	struct genai_stats stats = {.size = sizeof(stats)};
	struct genai_runtime *rt = NULL;
	struct genai_model *model = NULL;
	struct genai_session *s = NULL;
	int64_t prompt[64], device[NEW], host[NEW];
	int n = 0, rc;

	if (argc < 3 || argc > 64) {
		fprintf(stderr, "usage: generate DIR ID...\n");
		return 2;
	}
	for (; n < argc - 2; n++)
		prompt[n] = strtoll(argv[n + 2], NULL, 10);

	// NULL: the genai.ini that every program of this user finds
	rc = genai_open(NULL, &rt, &err);
	if (!rc)
		rc = genai_model_open(rt, argv[1], NULL, &model, &err);
	if (!rc)
		rc = genai_model_get_info(model, &info);
	if (!rc)
		rc = genai_session_open(model, &s, &err);
	if (!rc)
		rc = genai_session_append(s, prompt, (size_t)n, &err);
	if (!rc)
		rc = on_device(s, device);
	if (!rc)
		printf("%" PRIu64 " positions\n", genai_session_length(s));
	if (!rc)
		print("device", device);

	// back to the prompt, of which one token is computed again, because
	// its logits are wanted
	if (!rc)
		rc = genai_session_rewind(s, (uint64_t)n - 1, &err);
	if (!rc)
		rc = genai_session_append(s, prompt + n - 1, 1, &err);
	if (!rc)
		rc = on_host(s, info.vocab_size, host);
	if (!rc)
		print("host", host);
	if (!rc)
		rc = genai_model_get_stats(model, &stats, &err);
	if (!rc)
		printf("%s: %" PRIu64 " bytes of weights, %" PRIu64
		       " at most on the device\n",
		       stats.executor, stats.weights_bytes,
		       stats.device_peak_bytes);
	if (!rc) // modules may count what they like
		rc = genai_get_counters(rt, show, NULL, &err);
	if (rc)
		rc = failed();
	genai_session_close(s);
	genai_model_close(model);
	genai_close(rt);
	return rc;
}
