// grow.c - arrays that grow.
#include "core/base/grow.h"

#include <stdlib.h>

#include "core/base/error.h"

int32_t genai_grow(void **p, uint32_t *cap, uint32_t need, size_t one,
		   const char *what, struct genai_error *err)
{
	uint64_t n = *cap ? *cap : 16;
	void *more;

	if (need <= *cap)
		return 0;
	while (n < need)
		n *= 2;
	more = n > UINT32_MAX ? NULL : realloc(*p, n * one);
	if (!more)
		return genai_fail(err, GENAI_E_NOMEM, "no memory for %s", what);
	*p = more;
	*cap = (uint32_t)n;
	return 0;
}
