/* ini.h - the INI syntax of docs/CONFIGURATION.md: text to (section, key,
 * value, line).  Owns: lines, comments, quotes, encodings, limits.
 * Does not know: which sections and keys exist. */
#ifndef GENAI_CORE_CONFIG_INI_H
#define GENAI_CORE_CONFIG_INI_H

#include <genai/types.h>

#define GENAI_INI_MAX_BYTES (1u << 20)
#define GENAI_INI_MAX_LINE (64u << 10)
#define GENAI_INI_MAX_NAME 48u

struct genai_ini_item {
	const char *section; /* "" before the first section */
	const char *key;     /* NULL: the section itself begins here */
	const char *value;
	uint32_t line;
};

/* Called for every item in order; strings are valid for the call.  Non-zero
 * stops, and is what genai_ini_parse returns. */
typedef int32_t (*genai_ini_fn)(void *ctx, const struct genai_ini_item *item,
				struct genai_error *err);

/* text: bytes bytes, not terminated.  path: for messages only.
 * Errors: GENAI_E_CONFIG "PATH:LINE: ...". */
int32_t genai_ini_parse(const char *path, const char *text, size_t bytes,
			genai_ini_fn fn, void *ctx, struct genai_error *err);

/* Section and key names: letters, digits, '_', '-'; length of the name that s
 * starts with. */
size_t genai_ini_name_length(const char *s);

#endif
