// stops.c - texts that end an answer.
#include "core/text/stops.h"

#include <string.h>

const char *genai_stop_find(const char *const *stops, size_t n,
			    const char *text, size_t n_text, size_t *out_at,
			    size_t *out_held)
{
	const char *found = NULL, *end = text + n_text;

	*out_held = 0;
	for (size_t i = 0; i < n; i++) {
		const char *p = strstr(text, stops[i]);
		size_t k = strlen(stops[i]) - 1;

		if (p && (!found || (size_t)(p - text) < *out_at)) {
			found = stops[i];
			*out_at = (size_t)(p - text);
		}
		if (k > n_text)
			k = n_text;
		while (k > *out_held && memcmp(end - k, stops[i], k))
			k--;
		if (k > *out_held)
			*out_held = k;
	}
	return found;
}
