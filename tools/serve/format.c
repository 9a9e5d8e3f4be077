// format.c - how the model writes calls: its template, asked to write one,
// shows it; what templates do not show, the vocabulary does.
#include "tools/serve/serve.h"

#include <string.h>

// A conversation whose last message is a call.
static const char probe[] =
	"{\"messages\":[{\"role\":\"user\",\"content\":\"PROBE-TURN\"},"
	"{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":"
	"\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":"
	"\"probe_fn\",\"arguments\":{\"probe_key\":1}}}]}],"
	"\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"probe_fn\","
	"\"description\":\"\",\"parameters\":{\"type\":\"object\","
	"\"properties\":{\"probe_key\":{\"type\":\"integer\"}}}}}]}";

static bool has_token(const struct serve *s, const char *text)
{
	return s->tok && genai_tokenizer_id(s->tok, text) >= 0;
}

static void marks(struct parse_format *f, const struct parse_marks *m)
{
	f->style = PARSE_MARKED;
	f->open = m->open;
	f->close = m->close;
}

static void from_template(struct parse_format *f, const char *text)
{
	const char *at = strstr(text, "PROBE-TURN");

	at = at ? at : text;
	for (const struct parse_marks *m = parse_known; m->open; m++)
		if (strstr(at, m->open))
			marks(f, m);
	if (f->style == PARSE_PLAIN && strstr(at, "{\"name\": \"probe_fn\", "
						  "\"parameters\""))
		f->style = PARSE_BARE;
}

static void from_vocabulary(const struct serve *s, struct parse_format *f)
{
	for (const struct parse_marks *m = parse_known; m->open; m++)
		if (has_token(s, m->open)) {
			marks(f, m);
			return;
		}
}

void format_find(struct serve *s)
{
	struct genai_chat_options o = {.size = sizeof(o),
				       .flags = GENAI_CHAT_NO_ANSWER};
	struct parse_format *f = &s->format;
	char *text = NULL;
	size_t n;

	if (!s->with_tools)
		return;
	f->thinks = has_token(s, "</think>");
	if (has_token(s, "<|channel|>") && has_token(s, "<|message|>")) {
		f->style = PARSE_CHANNELS;
		return;
	}
	if (!genai_template_chat(s->with_tools, probe, strlen(probe), &o, &text,
				 &n, NULL))
		from_template(f, text);
	genai_free(text);
	if (f->style == PARSE_PLAIN)
		from_vocabulary(s, f);
}

static bool is_special(const struct serve *s, const char *text)
{
	int64_t id = s->tok ? genai_tokenizer_id(s->tok, text) : -1;

	return id >= 0 && genai_tokenizer_is_special(s->tok, id);
}

bool format_needs_special(const struct serve *s, bool has_tools)
{
	const struct parse_format *f = &s->format;

	return f->style == PARSE_CHANNELS ||
	       (f->thinks && is_special(s, "</think>")) ||
	       (has_tools &&
		((f->style == PARSE_MARKED && is_special(s, f->open)) ||
		 (f->style == PARSE_BARE && is_special(s, "<|python_tag|>"))));
}

bool format_in_reasoning(const struct serve *s, const struct ask_prompt *p)
{
	static const char mark[] = "<think>";
	const size_t last = p->n < 16 ? p->n : 16, m = strlen(mark);
	char *text = NULL;
	size_t n = 0;
	bool is;

	if (!s->tok || s->format.style == PARSE_CHANNELS ||
	    genai_tokenizer_decode(s->tok, p->ids + p->n - last, last,
				   GENAI_TOK_KEEP_SPECIAL, &text, &n, NULL))
		return false;
	while (n && strchr(" \n", text[n - 1]))
		n--;
	is = n >= m && !memcmp(text + n - m, mark, m);
	genai_free(text);
	return is;
}
