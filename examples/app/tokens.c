// tokens.c - text to ids and back; no model is opened.
//
//     tokens DIR TEXT
//
// prints the ids of the text with their pieces, as a stream gives them, and the
// text again.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <genai/text.h>

static struct genai_error err = GENAI_ERROR_INIT;

static int pieces(const struct genai_tokenizer *tok, const int64_t *ids,
		  size_t n)
{
	struct genai_detok *d = NULL;
	const char *piece;
	size_t bytes;
	int rc = genai_detok_open(tok, GENAI_TOK_KEEP_SPECIAL, &d, &err);

	for (size_t i = 0; !rc && i < n; i++) {
		rc = genai_detok_push(d, ids[i], &piece, &bytes, &err);
		if (!rc)
			printf("%" PRId64 " [%.*s]%s\n", ids[i], (int)bytes,
			       piece,
			       genai_tokenizer_is_special(tok, ids[i])
				       ? " special"
				       : "");
	}
	if (!rc)
		rc = genai_detok_flush(d, &piece, &bytes, &err);
	if (!rc && bytes)
		printf("and [%.*s]\n", (int)bytes, piece);
	genai_detok_close(d);
	return rc;
}

int main(int argc, char **argv)
{
	struct genai_tokenizer *tok = NULL;
	int64_t *ids = NULL;
	char *text = NULL;
	size_t n = 0, bytes = 0;
	int rc;

	if (argc != 3) {
		fprintf(stderr, "usage: tokens DIR TEXT\n");
		return 2;
	}
	rc = genai_tokenizer_open(argv[1], &tok, &err);
	if (!rc)
		printf("%" PRIu32 " ids; </s> is %" PRId64 "\n",
		       genai_tokenizer_size(tok),
		       genai_tokenizer_id(tok, "</s>"));
	if (!rc)
		rc = genai_tokenizer_encode(tok, argv[2], strlen(argv[2]),
					    GENAI_TOK_NO_SPECIAL, &ids, &n,
					    &err);
	if (!rc)
		rc = pieces(tok, ids, n);
	if (!rc)
		rc = genai_tokenizer_decode(tok, ids, n, 0, &text, &bytes,
					    &err);
	if (!rc)
		printf("%.*s\n", (int)bytes, text);
	else
		fprintf(stderr, "tokens: %s\n", err.text);
	genai_free(text);
	genai_free(ids);
	genai_tokenizer_close(tok);
	return rc ? 1 : 0;
}
