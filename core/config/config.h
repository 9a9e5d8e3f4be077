/* config.h - the INI file and --set: sections to checked keys.
 * Owns: finding and reading the file (docs/CONFIGURATION.md), [runtime]'s keys,
 * origins of values, spelling hints.  Does not know: what a key does.
 *
 * A configuration is read in two steps, because a module's keys are known only
 * when it is loaded: load() checks syntax, duplicates and [runtime];
 * genai_config_declare() then checks a [module NAME] section against the keys
 * that the module declares.  Immutable afterwards; reads are safe on any
 * thread. */
#ifndef GENAI_CORE_CONFIG_CONFIG_H
#define GENAI_CORE_CONFIG_CONFIG_H

#include <genai/module.h>

struct genai_config;

/* path NULL: search ./genai.ini, $XDG_CONFIG_HOME/genai/genai.ini (default
 * ~/.config), SYSCONFDIR/genai/genai.ini; built-in defaults when none exists.
 * In a privileged process (AT_SECURE) the environment and the current directory
 * are not used, and a file not owned by root or writable by others is refused.
 * sets: "section.key=value" ("module.cpu_ref.threads=2" for [module cpu_ref]).
 * Errors: GENAI_E_CONFIG "FILE:LINE: ..." with the nearest known spelling. */
int32_t genai_config_load(const char *path, const char *const *sets,
			  uint32_t n_sets, struct genai_config **out_c,
			  struct genai_error *err);
void genai_config_close(struct genai_config *c);

/* Check section [module name] against its declared keys and remember their
 * defaults.  Errors: GENAI_E_CONFIG. */
int32_t genai_config_declare(struct genai_config *c, const char *module,
			     const struct genai_config_key *keys,
			     uint32_t n_keys, uint32_t key_stride,
			     struct genai_error *err);

/* Effective value: section "runtime" or "module NAME"; NULL if there is no such
 * key.  Owned by c. */
const char *genai_config_get(const struct genai_config *c, const char *section,
			     const char *key);
/* "default", "FILE:LINE" or "--set"; for messages about the key. */
const char *genai_config_origin(const struct genai_config *c,
				const char *section, const char *key);
/* "FILE:LINE: section.key = value", the prefix of an error about a key. */
int32_t genai_config_fail(const struct genai_config *c, const char *section,
			  const char *key, struct genai_error *err,
			  const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* Every effective key in order, for `genai config`. */
void genai_config_each(const struct genai_config *c,
		       void (*fn)(void *ctx, const char *section,
				  const char *key, const char *value,
				  const char *origin),
		       void *ctx);
/* Path of the file that was read, or NULL. */
const char *genai_config_path(const struct genai_config *c);

/* Numbers with units (docs/CONFIGURATION.md): 4096, 64KiB, 6GiB, 6GB, 75%.
 * *out_percent gets 0...100 for a percentage, else -1.
 * "auto" is not handled here.  Errors: GENAI_E_CONFIG with the reason only. */
int32_t genai_parse_bytes(const char *text, uint64_t *out_bytes,
			  double *out_percent, struct genai_error *err);
int32_t genai_parse_u64(const char *text, uint64_t *out_v,
			struct genai_error *err);
int32_t genai_parse_bool(const char *text, int32_t *out_v,
			 struct genai_error *err);

#endif
