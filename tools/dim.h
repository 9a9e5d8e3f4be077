/* dim.h - text of a model as it comes, with what it thinks shown dimmed, plain
 * or not at all. */
#ifndef GENAI_TOOLS_DIM_H
#define GENAI_TOOLS_DIM_H

#include <stdbool.h>
#include <stddef.h>

enum dim_how {
	DIM_DIMMED,
	DIM_PLAIN,
	DIM_HIDDEN, /* the marks and the line ends behind them, too */
};

struct dim {
	enum dim_how how;
	bool inside;   /* of <think> and </think> */
	bool behind;   /* a hidden part: line ends are left out */
	char held[16]; /* what may be the beginning of a mark */
	size_t n_held;
	void (*put)(void *ctx, const char *text, size_t n);
	void *ctx;
};

/* A text begins; inside: its <think> was in the prompt. */
void dim_begin(struct dim *d, bool inside);
/* A piece of it, whose marks may be cut anywhere. */
void dim_text(struct dim *d, const char *text, size_t n);
/* The text has ended. */
void dim_end(struct dim *d);

#endif
