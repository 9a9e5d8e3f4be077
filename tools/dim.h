/* dim.h - text of a model as it comes, with what it thinks shown dimmed. */
#ifndef GENAI_TOOLS_DIM_H
#define GENAI_TOOLS_DIM_H

#include <stdbool.h>
#include <stddef.h>

struct dim {
	bool inside;   /* of <think> and </think> */
	char held[16]; /* what may be the beginning of a mark */
	size_t n_held;
	void (*put)(void *ctx, const char *text, size_t n);
	void *ctx;
};

/* A piece of text, whose marks may be cut anywhere. */
void dim_text(struct dim *d, const char *text, size_t n);
/* The text has ended. */
void dim_end(struct dim *d);

#endif
