// embed_ids.c - the ids of a text that becomes a vector.
#include "tools/cli.h"

#include <stdlib.h>
#include <string.h>

// Ids before and behind the text's own stay.
static void cut(int64_t *ids, size_t *n, const int64_t *own, size_t n_own,
		uint64_t most)
{
	size_t extra = *n - n_own, before = 0, behind;

	while (before < extra &&
	       memcmp(ids + before, own, n_own * sizeof(*own)))
		before++;
	behind = extra - before;
	if (behind > most)
		behind = most;
	memmove(ids + most - behind, ids + *n - behind, behind * sizeof(*ids));
	*n = most;
}

int32_t cli_embed_ids(const struct genai_tokenizer *tok,
		      const struct genai_embedder_info *info, const char *text,
		      size_t bytes, bool truncate, int64_t **out_ids,
		      size_t *out_n, struct genai_error *err)
{
	size_t prompt = strlen(info->prompt), n = 0, n_own = 0;
	char *whole = malloc(prompt + bytes + 1);
	int64_t *ids = NULL, *own = NULL;
	int32_t rc;

	if (!whole)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	memcpy(whole, info->prompt, prompt);
	memcpy(whole + prompt, text, bytes);
	bytes += prompt;
	rc = genai_tokenizer_encode(tok, whole, bytes, 0, &ids, &n, err);
	if (!rc && truncate && n > info->max_tokens) {
		rc = genai_tokenizer_encode(tok, whole, bytes,
					    GENAI_TOK_NO_SPECIAL, &own, &n_own,
					    err);
		if (!rc)
			cut(ids, &n, own, n_own, info->max_tokens);
	}
	free(own);
	free(whole);
	if (rc) {
		free(ids);
		return rc;
	}
	*out_ids = ids;
	*out_n = n;
	return 0;
}
