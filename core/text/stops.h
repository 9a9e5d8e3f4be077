/* stops.h - texts that end an answer. */
#ifndef GENAI_CORE_TEXT_STOPS_H
#define GENAI_CORE_TEXT_STOPS_H

#include <stddef.h>

/* The one of n texts, none of them empty, that stands first in text (n_text
 * bytes, 0 behind them), and where.  NULL: none; one may have begun in the last
 * *out_held bytes. */
const char *genai_stop_find(const char *const *stops, size_t n,
			    const char *text, size_t n_text, size_t *out_at,
			    size_t *out_held);

#endif
