/* parity.h - the matrix of configurations as one command. */
#ifndef GENAI_CONFORM_PARITY_H
#define GENAI_CONFORM_PARITY_H

#include <stdbool.h>
#include <stdint.h>

/* genai-conform --parity ...: 0, 1 when a seed differed, 2 for bad options. */
int conform_parity(int argc, char **argv);

/* genai-conform --goldens ...: 0, 1 when a folder differed, 2 for bad options. */
int conform_goldens(int argc, char **argv);
/* genai-conform --parity ... --reference MODULE: the same. */
int conform_reference(int argc, char **argv);

#endif
