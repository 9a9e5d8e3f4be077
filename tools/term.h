/* term.h - lines from a person at a terminal, in whatever character set the
 * terminal has.
 * Owns: the line editor, its history, pasted blocks.  Texts are UTF-8 on our
 * side. */
#ifndef GENAI_TOOLS_TERM_H
#define GENAI_TOOLS_TERM_H

#include <stdbool.h>
#include <stddef.h>

struct term;

/* words: what Tab completes at the beginning of a line, up to a NULL; borrowed.
 * NULL: no memory, or the terminal cannot be used. */
struct term *term_open(const char *const *words);
void term_close(struct term *t); /* NULL is allowed */

/* One line, or a pasted block of several, without its end; malloc'ed.
 * NULL: the end of the input, or *interrupted by SIGINT. */
char *term_line(struct term *t, const char *prompt, bool *interrupted);

/* Print text as the terminal can show it; what it cannot becomes '?'.  Whole
 * characters only. */
void term_print(struct term *t, const char *text, size_t n);

#endif
