// parse.c - reasoning and calls, told from content as the text comes.
#include "tools/serve/parse.h"

#include <stdlib.h>
#include <string.h>

const struct parse_marks parse_known[] = {
	{"<tool_call>", "</tool_call>"}, // Hermes, Qwen, SmolLM3, Granite
	{"<TOOLCALL>", "</TOOLCALL>"},	 // Nemotron
	{"<|tool_call_start|>", "<|tool_call_end|>"}, // LFM2
	{"<|tool_call|>", "<|/tool_call|>"},	      // Phi-4-mini
	{"[TOOL_CALLS]", ""},			      // Mistral
	{NULL, NULL}};

enum state {
	START,	 // nothing but blanks yet
	THINK,	 // before </think>
	CONTENT, // before a mark that opens a call
	CALL,	 // behind it
	HEADER,	 // of a channel, before <|message|>
	CHANNEL, // its text
};

struct parse {
	const struct parse_format *f;
	bool has_tools, skip_blank;
	const json_t *tools;
	parse_fn fn;
	void *ctx;
	enum state state;
	enum parse_kind kind; // of the channel
	size_t tried;	      // CALL: closing marks before it closed nothing
	char *s;
	size_t n, cap;
};

struct parse *parse_open(const struct parse_format *f, bool has_tools,
			 const json_t *tools, bool in_reasoning, parse_fn fn,
			 void *ctx)
{
	struct parse *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->f = f;
	p->has_tools = has_tools;
	p->tools = tools;
	p->fn = fn;
	p->ctx = ctx;
	if (f->style == PARSE_CHANNELS)
		p->state = HEADER;
	else if (in_reasoning)
		p->state = THINK;
	p->skip_blank = p->state == THINK;
	return p;
}

void parse_close(struct parse *p)
{
	if (p)
		free(p->s);
	free(p);
}

// ---- the text that waits ----

static void drop(struct parse *p, size_t n)
{
	memmove(p->s, p->s + n, p->n - n);
	p->n -= n;
}

static void give(struct parse *p, enum parse_kind kind, size_t n)
{
	size_t at = 0;

	while (p->skip_blank && at < n && p->s[at] == '\n')
		at++;
	if (at < n) {
		p->skip_blank = false;
		p->fn(p->ctx, kind, p->s + at, n - at);
	}
	drop(p, n);
}

static const char *find(const struct parse *p, size_t from, const char *mark)
{
	size_t m = strlen(mark);

	if (p->n < from + m)
		return NULL;
	return memmem(p->s + from, p->n - from, mark, m);
}

// How many of the last bytes may be the beginning of a mark.
static size_t maybe(const struct parse *p, const char *mark)
{
	size_t k = strlen(mark) - 1;

	for (k = k < p->n ? k : p->n; k; k--)
		if (!memcmp(p->s + p->n - k, mark, k))
			return k;
	return 0;
}

static bool begins(const struct parse *p, size_t at, const char *mark)
{
	size_t n = p->n - at, m = strlen(mark);

	return !memcmp(p->s + at, mark, n < m ? n : m);
}

// ---- states: each takes what it can; true: another one is to go on ----

static size_t blanks(const struct parse *p)
{
	size_t at = 0;

	while (at < p->n && strchr(" \t\r\n", p->s[at]))
		at++;
	return at;
}

static bool start(struct parse *p)
{
	size_t at = blanks(p);

	if (at == p->n)
		return false;
	if (p->f->thinks && begins(p, at, "<think>")) {
		if (p->n - at < strlen("<think>"))
			return false;
		drop(p, at + strlen("<think>"));
		p->state = THINK;
		p->skip_blank = true;
		return true;
	}
	if (p->has_tools && p->f->style == PARSE_BARE &&
	    (p->s[at] == '{' || begins(p, at, "<|python_tag|>"))) {
		p->state = CALL;
		return false;
	}
	p->state = CONTENT;
	return true;
}

static bool think(struct parse *p)
{
	const char *end = find(p, 0, "</think>");
	size_t n = end ? (size_t)(end - p->s) : p->n - maybe(p, "</think>");
	size_t keep = n;

	// line ends before the mark are not the reasoning's
	while (keep && p->s[keep - 1] == '\n')
		keep--;
	give(p, PARSE_REASONING, keep);
	if (!end)
		return false;
	drop(p, n - keep + strlen("</think>"));
	p->state = CONTENT;
	p->skip_blank = true;
	if (p->f->style == PARSE_BARE)
		p->state = START;
	return true;
}

static bool content(struct parse *p)
{
	const char *open = p->f->open;
	const char *at;

	if (!p->has_tools || p->f->style != PARSE_MARKED) {
		give(p, PARSE_CONTENT, p->n);
		return false;
	}
	at = find(p, 0, open);
	give(p, PARSE_CONTENT,
	     at ? (size_t)(at - p->s) : p->n - maybe(p, open));
	if (at) {
		p->state = CALL;
		p->tried = strlen(open);
	}
	return at;
}

static bool call(struct parse *p)
{
	const char *close = p->f->style == PARSE_MARKED ? p->f->close : "";
	size_t open = p->f->style == PARSE_MARKED ? strlen(p->f->open) : 0;
	const char *at;

	while (*close && (at = find(p, p->tried, close))) {
		size_t n = (size_t)(at - p->s);

		p->tried = n + 1;
		// the mark may be part of an argument
		if (!parse_calls(p->s + open, n - open, p->tools, p->fn,
				 p->ctx))
			continue;
		drop(p, n + strlen(close));
		p->state = CONTENT;
		p->skip_blank = true;
		return true;
	}
	if (*close && p->n > p->tried + strlen(close))
		p->tried = p->n - strlen(close);
	return false;
}

static void begin_channel(struct parse *p, size_t n)
{
	static const char to[] = "to=functions.";
	const char *at = memmem(p->s, n, to, strlen(to));

	if (at && p->has_tools) {
		size_t k = 0;

		at += strlen(to);
		while (at + k < p->s + n && !strchr(" <\n", at[k]))
			k++;
		p->kind = PARSE_CALL;
		p->fn(p->ctx, PARSE_CALL, at, k);
		p->kind = PARSE_ARGUMENTS;
	} else if (memmem(p->s, n, "analysis", strlen("analysis"))) {
		p->kind = PARSE_REASONING;
	} else {
		p->kind = PARSE_CONTENT;
	}
}

static bool header(struct parse *p)
{
	const char *at = find(p, 0, "<|message|>");

	if (!at)
		return false;
	begin_channel(p, (size_t)(at - p->s));
	drop(p, (size_t)(at - p->s) + strlen("<|message|>"));
	p->state = CHANNEL;
	return true;
}

static bool channel(struct parse *p)
{
	static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>",
					   "<|start|>", "<|channel|>"};
	const char *first = NULL;
	size_t held = 0;

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		const char *at = find(p, 0, ends[i]);
		size_t k = maybe(p, ends[i]);

		if (at && (!first || at < first))
			first = at;
		if (k > held)
			held = k;
	}
	give(p, p->kind, first ? (size_t)(first - p->s) : p->n - held);
	if (first)
		p->state = HEADER;
	return first;
}

static bool step(struct parse *p)
{
	switch (p->state) {
	case START:
		return start(p);
	case THINK:
		return think(p);
	case CONTENT:
		return content(p);
	case CALL:
		return call(p);
	case HEADER:
		return header(p);
	case CHANNEL:
		return channel(p);
	}
	return false;
}

bool parse_push(struct parse *p, const char *text, size_t n)
{
	if (p->n + n > p->cap) {
		size_t cap = 2 * (p->n + n + 64);
		char *more = realloc(p->s, cap);

		if (!more)
			return false;
		p->s = more;
		p->cap = cap;
	}
	if (n)
		memcpy(p->s + p->n, text, n);
	p->n += n;
	while (p->n && step(p))
		;
	return true;
}

void parse_end(struct parse *p)
{
	size_t open = p->f->style == PARSE_MARKED ? strlen(p->f->open) : 0;

	if (p->state == CALL && p->n > open &&
	    parse_calls(p->s + open, p->n - open, p->tools, p->fn, p->ctx))
		p->n = 0;
	// a header that was cut off is nobody's text
	if (p->state == HEADER && find(p, 0, "<|"))
		p->n = 0;
	if (p->n)
		give(p,
		     p->state == THINK	   ? PARSE_REASONING
		     : p->state == CHANNEL ? p->kind
					   : PARSE_CONTENT,
		     p->n);
}
