/* spell.h - the nearest known spelling of a mistyped name. */
#ifndef GENAI_CORE_CONFIG_SPELL_H
#define GENAI_CORE_CONFIG_SPELL_H

#include <stdint.h>

/* Insertions, deletions, replacements and swaps of neighbours from a to b;
 * large for strings of more than 64 bytes. */
uint32_t genai_spell_distance(const char *a, const char *b);

/* Of candidates offered one by one, the one closest to word. */
struct genai_spell {
	const char *word;
	const char *best; /* NULL: nothing near enough */
	uint32_t distance;
};

/* Begin with {.word = word}. */
void genai_spell_offer(struct genai_spell *s, const char *candidate);

#endif
