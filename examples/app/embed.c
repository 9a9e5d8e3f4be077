// embed.c - how near two texts are: a vector of each, and their cosine.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <genai/genai.h>
#include <genai/text.h>

static int fail(const struct genai_error *err)
{
	fprintf(stderr, "embed: %s\n", err->text);
	return 1;
}

// The vector of a text.
static int32_t vector(struct genai_embedder *e,
		      const struct genai_tokenizer *tok, const char *text,
		      float *out, struct genai_error *err)
{
	int64_t *ids = NULL;
	size_t n = 0;
	int32_t rc = genai_tokenizer_encode(tok, text, strlen(text), 0, &ids,
					    &n, err);

	if (!rc)
		rc = genai_embedder_run(e, ids, n, out, err);
	genai_free(ids);
	return rc;
}

static double cosine(const float *a, const float *b, uint32_t n)
{
	double ab = 0, aa = 0, bb = 0;

	for (uint32_t i = 0; i < n; i++) {
		ab += (double)a[i] * (double)b[i];
		aa += (double)a[i] * (double)a[i];
		bb += (double)b[i] * (double)b[i];
	}
	return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

int main(int argc, char **argv)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_runtime_options ro = {.size = sizeof(ro)};
	struct genai_embedder_options eo = {.size = sizeof(eo)};
	struct genai_embedder_info info = {.size = sizeof(info)};
	struct genai_runtime *rt = NULL;
	struct genai_embedder *e = NULL;
	struct genai_tokenizer *tok = NULL;
	float *a = NULL, *b = NULL;
	int32_t rc;

	if (argc != 4) {
		fprintf(stderr, "usage: embed DIR TEXT TEXT\n");
		return 2;
	}
	rc = genai_open(&ro, &rt, &err);
	if (!rc)
		rc = genai_embedder_open(rt, argv[1], &eo, &e, &err);
	if (!rc)
		rc = genai_tokenizer_open(argv[1], &tok, &err);
	if (!rc) {
		genai_embedder_get_info(e, &info);
		a = malloc(info.dimensions * sizeof(*a));
		b = malloc(info.dimensions * sizeof(*b));
	}
	if (!rc && (!a || !b)) {
		fprintf(stderr, "embed: no memory\n");
		return 1;
	}
	if (!rc)
		rc = vector(e, tok, argv[2], a, &err);
	if (!rc)
		rc = vector(e, tok, argv[3], b, &err);
	if (!rc)
		printf("%.6f in %u dimensions\n", cosine(a, b, info.dimensions),
		       info.dimensions);
	free(a);
	free(b);
	genai_tokenizer_close(tok);
	genai_embedder_close(e);
	genai_close(rt);
	return rc ? fail(&err) : 0;
}
