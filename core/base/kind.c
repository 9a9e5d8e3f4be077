// kind.c - a page of a server's, or another text, in the place of a model.
#include "core/base/kind.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

// What is made for machines has control characters from the first byte on.
const char *genai_text_kind(const void *data, uint64_t bytes)
{
	uint64_t n = bytes < 512 ? bytes : 512, at = 0;
	const unsigned char *p = data;

	if (n < 16)
		return NULL;
	for (uint64_t i = 0; i < n; i++)
		if (p[i] < 32 && !memchr("\t\n\r\f", p[i], 4))
			return NULL;
	while (at < n && p[at] <= ' ')
		at++;
	if (n - at >= 5 && (!strncasecmp((const char *)p + at, "<html", 5) ||
			    !strncasecmp((const char *)p + at, "<!doc", 5)))
		return "text (HTML)";
	return "text";
}
