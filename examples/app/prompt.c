// prompt.c - a conversation to a prompt, by the folder's template and by one of
// our own.
//
//     prompt DIR TEXT
//
// prints both, and how many ids the first one has.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <genai/text.h>

static struct genai_error err = GENAI_ERROR_INIT;

static const char own[] = "{% for m in messages %}{{ m.role }}: {{ m.content }}"
			  "\n{% endfor %}";

// TEXT as the content of a message; a real program has a JSON library.
static char *vars_of(const char *text)
{
	static const char head[] =
		"{\"messages\": [{\"role\": \"user\", \"content\": \"";
	char *vars = malloc(sizeof(head) + 6 * strlen(text) + 8), *at;

	if (!vars)
		return NULL;
	at = vars + sprintf(vars, "%s", head);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			*at++ = '\\';
		if ((unsigned char)*text < ' ')
			at += sprintf(at, "\\u%04x", (unsigned char)*text);
		else
			*at++ = *text;
	}
	strcpy(at, "\"}]}");
	return vars;
}

static int render(const struct genai_template *t, const char *vars,
		  const struct genai_chat_options *options)
{
	char *text = NULL;
	size_t bytes = 0;
	int rc = genai_template_chat(t, vars, strlen(vars), options, &text,
				     &bytes, &err);

	if (!rc)
		printf("%.*s\n--\n", (int)bytes, text);
	genai_free(text);
	return rc;
}

int main(int argc, char **argv)
{
	// a clock that stands, so that the prompt is the same tomorrow
	struct genai_chat_options options = {.size = sizeof(options),
					     .flags = GENAI_CHAT_NOW,
					     .now = 1721999655};
	struct genai_template *t = NULL, *mine = NULL;
	struct genai_tokenizer *tok = NULL;
	int64_t *ids = NULL;
	size_t n = 0;
	char *vars;
	int rc;

	if (argc != 3) {
		fprintf(stderr, "usage: prompt DIR TEXT\n");
		return 2;
	}
	vars = vars_of(argv[2]);
	if (!vars)
		return 1;
	rc = genai_template_open(argv[1], 0, &t, &err);
	if (!rc)
		rc = render(t, vars, &options);
	if (!rc)
		rc = genai_tokenizer_open(argv[1], &tok, &err);
	if (!rc)
		rc = genai_template_encode(t, tok, vars, strlen(vars), &options,
					   &ids, &n, &err);
	if (!rc)
		printf("%zu ids\n--\n", n);
	if (!rc)
		rc = genai_template_parse("own", own, sizeof(own) - 1, &mine,
					  &err);
	options.flags |= GENAI_CHAT_NO_ANSWER;
	if (!rc)
		rc = render(mine, vars, &options);
	if (rc)
		fprintf(stderr, "prompt: %s\n", err.text);
	genai_free(ids);
	genai_tokenizer_close(tok);
	genai_template_close(mine);
	genai_template_close(t);
	free(vars);
	return rc ? 1 : 0;
}
