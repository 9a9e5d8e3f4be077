/* mutant.h - modules that are wrong on purpose, one fault at a time, chosen by
 * the key mutant; genai-conform has to catch each (tests/mutants/list). */
#ifndef GENAI_TESTS_MUTANT_H
#define GENAI_TESTS_MUTANT_H

#include <string.h>

/* The value of the key, read in init. */
extern char mutant[64];

static inline int is(const char *name)
{
	return !strcmp(mutant, name);
}

/* manners.c: be rude if the mutant is called so. */
void mutant_leak(size_t bytes);
void mutant_manners(const char *where);

#endif
