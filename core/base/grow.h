/* grow.h - arrays that grow. */
#ifndef GENAI_CORE_BASE_GROW_H
#define GENAI_CORE_BASE_GROW_H

#include <stddef.h>
#include <stdint.h>

#include <genai/types.h>

/* Room for need elements of one bytes each at *p, where there is room for *cap.
 * On failure both stay as they are: GENAI_E_NOMEM, "no memory for " what. */
int32_t genai_grow(void **p, uint32_t *cap, uint32_t need, size_t one,
		   const char *what, struct genai_error *err);

#endif
