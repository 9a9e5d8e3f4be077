/* parse.h - what the text of an answer is: reasoning, content, calls of tools.
 * Owns: the formats that chat templates teach models, read as the text comes.
 * Does not know: HTTP, engines.  Whatever is no call in the end is content, as
 * it was written. */
#ifndef GENAI_TOOLS_SERVE_PARSE_H
#define GENAI_TOOLS_SERVE_PARSE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum parse_kind {
	PARSE_CONTENT,
	PARSE_REASONING,
	PARSE_CALL,	 /* a call begins: the name of its function */
	PARSE_ARGUMENTS, /* of the call that began last: JSON, in pieces */
};

enum parse_style {
	PARSE_PLAIN,	/* no format of calls is known */
	PARSE_MARKED,	/* between open and close, which may be "" */
	PARSE_BARE,	/* the whole text is a JSON object */
	PARSE_CHANNELS, /* <|channel|>...<|message|>...: reasoning, too */
};

struct parse_format {
	enum parse_style style;
	const char *open, *close; /* PARSE_MARKED; of static life */
	bool thinks;		  /* there may be <think>...</think> */
};

/* The known formats by their markers; a zero row ends them. */
struct parse_marks {
	const char *open, *close;
};
extern const struct parse_marks parse_known[];

struct parse;
typedef void (*parse_fn)(void *ctx, enum parse_kind kind, const char *text,
			 size_t n);

/* has_tools: calls are looked for; tools (may be NULL, borrowed) tells which
 * arguments are texts.  in_reasoning: the prompt has begun it.  NULL: no
 * memory.
 */
struct parse *parse_open(const struct parse_format *f, bool has_tools,
			 const json_t *tools, bool in_reasoning, parse_fn fn,
			 void *ctx);
void parse_close(struct parse *p);
/* More text; false: no memory. */
bool parse_push(struct parse *p, const char *text, size_t n);
/* That was all. */
void parse_end(struct parse *p);

/* ---- parse_call.c ---- */

/* The calls in a body: fn gets each whole, PARSE_CALL and PARSE_ARGUMENTS.
 * False, and nothing is given, if it is no list of calls. */
bool parse_calls(const char *body, size_t n, const json_t *tools, parse_fn fn,
		 void *ctx);

#endif
