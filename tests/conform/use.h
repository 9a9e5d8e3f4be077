/* use.h - the module under test at work in small, whichever interface is
 * tested: for tests that look at what happens around it.  Several may be open
 * at once, each on a thread of its own. */
#ifndef GENAI_CONFORM_USE_H
#define GENAI_CONFORM_USE_H

#include "tests/conform/book.h"
#include "tests/conform/rig.h"

struct use;

/* A runtime of its own, and in it what the interface makes: a pager with its
 * pages, a plan, streams and memory. */
struct use *use_open(const char *const *sets);
/* Enqueue some work; nothing is waited for. */
void use_begin(struct use *u);
/* Wait for it; the test fails if it did not do what it should. */
void use_end(struct use *u);
/* Enqueue the like, which nobody looks at. */
void use_enqueue(struct use *u);
void use_steps(struct use *u, int n);
void use_close(struct use *u);
/* The stream on which the work begins. */
struct genai_stream *use_stream(struct use *u);
struct cf_rt *use_rt(struct use *u);

#endif
