/* keys.h - which keys exist and which values they take.
 * Owns: [runtime]'s keys, kinds and choices of declared keys, the key path of
 * every [module NAME].  Does not know: files, lines, where a value came from.
 * All errors: GENAI_E_CONFIG with the reason only. */
#ifndef GENAI_CORE_CONFIG_KEYS_H
#define GENAI_CORE_CONFIG_KEYS_H

#include <stdbool.h>

#include <genai/module.h>

#define GENAI_MAX_MODULE_NAME 31u

struct genai_runtime_key {
	const char *name;
	const char *default_value;
	int32_t (*check)(const char *value, struct genai_error *err);
};

extern const struct genai_runtime_key genai_runtime_keys[];
extern const uint32_t genai_n_runtime_keys;

/* Of the first *io_end characters of "LAYER > ... > MODULE" the last name, n
 * characters without blanks; *io_end becomes what stands in front of its '>'.
 * Is there any? */
bool genai_stack_last(const char *stack, size_t *io_end, const char **out_name,
		      size_t *out_n);
/* An absolute path without "..", or empty. */
int32_t genai_check_path(const char *value, struct genai_error *err);
/* The kind and the choices of a key that a module declares. */
int32_t genai_check_declared(const struct genai_config_key *key,
			     const char *value, struct genai_error *err);

#endif
