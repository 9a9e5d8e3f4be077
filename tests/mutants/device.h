/* device.h - what the parts of mutant_device share. */
#ifndef GENAI_TESTS_MUTANT_DEVICE_H
#define GENAI_TESTS_MUTANT_DEVICE_H

#include <genai/executor.h>

#include "tests/mutants/mutant.h"

extern const struct genai_host *mutant_host;
extern int mutant_forgiven; /* an error was told once */

int32_t mutant_fail(struct genai_error *err, int32_t code, const char *text);

/* ---- barrier.c ---- */

extern struct genai_barrier_ops mutant_barrier;
void mutant_wrap_barrier(const struct genai_barrier_ops *real);

/* ---- many.c ---- */

/* A second layer: what shows in size, in number, in time. */
void mutant_wrap_many(struct genai_stream_ops *s, struct genai_barrier_ops *b);
void mutant_up(void *self); /* after init */
void mutant_down(void);	    /* before fini */

/* ---- corners.c, shapes.c ---- */

/* The outermost layers: what shows in one corner only: at one size or shape, in
 * one type, after a refusal or a reset, beside another device. */
void mutant_wrap_corners(struct genai_stream_ops *s,
			 struct genai_barrier_ops *b);
void mutant_wrap_shapes(struct genai_executor_ops *executors);

/* ---- odd.c, odd_steps.c ---- */

/* The same, of a history and of odd values. */
void mutant_wrap_odd(struct genai_stream_ops *s, struct genai_barrier_ops *b);
void mutant_wrap_odd_steps(struct genai_executor_ops *executors);

/* ---- sessions.c ---- */

/* A second layer in front of the executors. */
void mutant_wrap_sessions(struct genai_executor_ops *executors, uint32_t n);

/* ---- executor.c ---- */

extern struct genai_executor_ops mutant_executors[2]; /* eager, captured */
void mutant_wrap_executors(const struct genai_executor_ops *eager,
			   const struct genai_executor_ops *captured);

/* ---- graph.c ---- */

/* What is never carried, or 0. */
int32_t mutant_refuse(const struct genai_graph *g, struct genai_error *err);
/* The graph that the executor sees. */
const struct genai_graph *mutant_graph(const struct genai_graph *g);

/* ---- stamps.c ---- */

void mutant_wrap_stamps(struct genai_stream_ops *s);

#endif
