// spell.c - the nearest known spelling of a mistyped name.
#include "core/config/spell.h"

#include <string.h>

#define MAX_WORD 64

static uint32_t min3(uint32_t a, uint32_t b, uint32_t c)
{
	if (b < a)
		a = b;
	return c < a ? c : a;
}

uint32_t genai_spell_distance(const char *a, const char *b)
{
	uint32_t rows[3][MAX_WORD + 1]; // of the two rows before, and this one
	uint32_t *old2 = rows[0], *old = rows[1], *row = rows[2], *swap;
	size_t na = strlen(a), nb = strlen(b), i, j;

	if (na > MAX_WORD || nb > MAX_WORD)
		return UINT32_MAX;
	for (j = 0; j <= nb; j++)
		old[j] = (uint32_t)j;
	for (i = 1; i <= na; i++) {
		row[0] = (uint32_t)i;
		for (j = 1; j <= nb; j++) {
			row[j] = min3(old[j] + 1, row[j - 1] + 1,
				      old[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
			    a[i - 2] == b[j - 1] && old2[j - 2] + 1 < row[j])
				row[j] = old2[j - 2] + 1;
		}
		swap = old2;
		old2 = old;
		old = row;
		row = swap;
	}
	return old[nb];
}

void genai_spell_offer(struct genai_spell *s, const char *candidate)
{
	uint32_t d = genai_spell_distance(s->word, candidate);

	// More than a third of the letters wrong is another word.
	if (d > 1 && (size_t)d * 3 > strlen(candidate))
		return;
	if (s->best && d >= s->distance)
		return;
	s->best = candidate;
	s->distance = d;
}
