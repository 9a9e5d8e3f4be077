/* error.h - filling the caller's error record, from inside the core.
 * Modules use the host table's error_set instead. */
#ifndef GENAI_CORE_BASE_ERROR_H
#define GENAI_CORE_BASE_ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <genai/types.h>

/* Fill err (may be NULL) with code and text; returns code, so that
 *     return genai_fail(err, GENAI_E_IO, "%s: cannot open: %s", path, why);
 * reads as one statement.  Text longer than the record is cut at a character
 * boundary and ends in "...".  Control characters in the result (file content
 * quoted in a message) are replaced by '?'.  Threads: any. */
#define genai_fail(err, code, ...)                                             \
	genai_error_fill((err), (code), __FILE__, __LINE__, __VA_ARGS__)

int32_t genai_error_fill(struct genai_error *err, int32_t code,
			 const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
int32_t genai_error_vfill(struct genai_error *err, int32_t code,
			  const char *file, int line, const char *fmt,
			  va_list ap) __attribute__((format(printf, 5, 0)));

/* Put "prefix: " before the text that err already holds. */
void genai_error_prefix(struct genai_error *err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Short fixed name of a code ("GENAI_E_IO"); never NULL. */
const char *genai_status_name(int32_t code);

/* Of an application's struct that begins with its size and may be a later one:
 * is nothing set beyond the bytes that are known here? */
bool genai_options_known(const void *options, size_t known);

#endif
