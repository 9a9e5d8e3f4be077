/* chat.h - the conversation of genai chat, for its commands. */
#ifndef GENAI_TOOLS_CHAT_H
#define GENAI_TOOLS_CHAT_H

#include "tools/cli.h"
#include "tools/dim.h"
#include "tools/term.h"

struct chat {
	struct cli *c;
	struct cli_model m;
	json_t *messages;
	size_t forgotten; /* of them, after a system turn: not shown any more */
	int64_t *ids;	  /* what the session holds */
	size_t n_ids;
	struct cli_result last;
	size_t last_prompt;
	struct dim dim;	   /* of what is printed at a terminal */
	struct term *term; /* NULL: turns come from a pipe */
	bool interrupted;  /* instead of a line */
	int32_t rc;	   /* of reading a line */
	char *model;	   /* that /model named; NULL: that of the start */
	bool lost;	   /* there is none any more */
};

/* What the command line said, or /params since. */
struct chat_args {
	const char *model, *system;
	int64_t max_new;
	bool hide_thinking;
	struct cli_sampling sampling;
};
extern struct chat_args chat_args;
extern const struct cli_option chat_options[];

/* A line for people at a terminal; nothing where turns come from a pipe. */
void chat_say(const struct chat *ch, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
bool chat_is_role(const struct chat *ch, size_t i, const char *role);
/* The last turn goes, and its answer. */
void chat_undo(struct chat *ch);
/* Answer the last turn. */
int32_t chat_answer(struct chat *ch);
/* "": no system turn any more. */
int32_t chat_set_system(struct chat *ch, const char *text);
/* All turns go but the system's. */
void chat_reset(struct chat *ch);

/* chat_commands.c: the words, for completion; the last is NULL. */
extern const char *const chat_words[];
/* True if the line was a command; *done when it was the last. */
bool chat_command(struct chat *ch, const char *line, bool *done);

#endif
