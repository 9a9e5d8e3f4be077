// keys.c - which keys exist and which values they take.
#include "core/config/keys.h"

#include <stdio.h>
#include <string.h>

#include "core/config/config.h"
#include "core/base/error.h"
#include "core/config/ini.h"
#include "core/config/spell.h"

// One absolute path of n bytes that never climbs.  Relative ones would depend
// on where the program was started.
static int32_t check_path_n(const char *s, size_t n, struct genai_error *err)
{
	size_t i;

	if (!n || s[0] != '/')
		return genai_fail(err, GENAI_E_CONFIG,
				  "'%.*s' is not an absolute path",
				  n > 80 ? 80 : (int)n, s);
	for (i = 0; i + 3 <= n; i++)
		if (memcmp(s + i, "/..", 3) == 0 &&
		    (i + 3 == n || s[i + 3] == '/'))
			return genai_fail(err, GENAI_E_CONFIG,
					  "'..' in a path is refused");
	if (n >= 4096)
		return genai_fail(err, GENAI_E_CONFIG,
				  "path of %zu bytes, at most 4095", n);
	return 0;
}

int32_t genai_check_path(const char *value, struct genai_error *err)
{
	return *value ? check_path_n(value, strlen(value), err) : 0;
}

// "DIR:DIR:...", or empty.
static int32_t check_dirs(const char *value, struct genai_error *err)
{
	size_t n;
	int32_t rc;

	if (!*value)
		return 0;
	for (;; value += n + 1) {
		n = strcspn(value, ":");
		rc = check_path_n(value, n, err);
		if (rc || !value[n])
			return rc;
	}
}

// "MODULE" or "MODULE:NAME".
static int32_t check_iface(const char *value, struct genai_error *err)
{
	size_t n = genai_ini_name_length(value);
	const char *rest = value + n;

	if (!n || n > GENAI_MAX_MODULE_NAME ||
	    (*rest && (*rest != ':' || !rest[1] ||
		       rest[1 + genai_ini_name_length(rest + 1)])))
		return genai_fail(err, GENAI_E_CONFIG,
				  "expected MODULE or MODULE:NAME, with module "
				  "names of letters, digits, '_' and '-', at "
				  "most %u",
				  GENAI_MAX_MODULE_NAME);
	return 0;
}

bool genai_stack_last(const char *stack, size_t *io_end, const char **out_name,
		      size_t *out_n)
{
	size_t end = *io_end, at;

	while (end && strchr(" \t", stack[end - 1]))
		end--;
	for (at = end; at && stack[at - 1] != '>';)
		at--;
	*io_end = at ? at - 1 : 0;
	*out_name = stack + at + strspn(stack + at, " \t");
	*out_n =
		*out_name < stack + end ? (size_t)(stack + end - *out_name) : 0;
	return at > 0;
}

// "LAYER > ... > MODULE", each as above.
static int32_t check_stack(const char *value, struct genai_error *err)
{
	char part[GENAI_INI_MAX_NAME * 2 + 2];
	size_t end = strlen(value), n;
	const char *name;
	bool more = true;
	int32_t rc = 0;

	while (!rc && more) {
		more = genai_stack_last(value, &end, &name, &n);
		snprintf(part, sizeof(part), "%.*s", (int)n, name);
		rc = n < sizeof(part)
			     ? check_iface(part, err)
			     : genai_fail(err, GENAI_E_CONFIG,
					  "a name of %zu characters", n);
	}
	return rc;
}

static int32_t check_device(const char *value, struct genai_error *err)
{
	uint64_t v;
	int32_t rc = genai_parse_u64(value, &v, err);

	if (!rc && v > UINT32_MAX)
		return genai_fail(err, GENAI_E_CONFIG,
				  "a device number is at most %u", UINT32_MAX);
	return rc;
}

static int32_t check_budget(const char *value, struct genai_error *err)
{
	uint64_t bytes;
	double percent;

	int32_t rc;

	if (strcmp(value, "auto") == 0)
		return 0;
	rc = genai_parse_bytes(value, &bytes, &percent, err);
	// ten bytes are what nobody means
	if (!rc && bytes && bytes < 1024 && percent < 0 &&
	    !value[strspn(value, "0123456789")])
		return genai_fail(err, GENAI_E_CONFIG,
				  "say %s%%, %sMiB or, if bytes are meant, %sB",
				  value, value, value);
	return rc;
}

static int32_t check_limit(const char *value, struct genai_error *err)
{
	uint64_t bytes = 0;
	double percent = 0;
	int32_t rc;

	if (strcmp(value, "auto") == 0)
		return 0;
	rc = genai_parse_bytes(value, &bytes, &percent, err);
	if (!rc && !bytes && percent <= 0)
		return genai_fail(err, GENAI_E_CONFIG,
				  "a device limit must be above 0");
	return rc;
}

static int32_t check_context(const char *value, struct genai_error *err)
{
	uint64_t v;
	int32_t rc;

	if (strcmp(value, "auto") == 0)
		return 0;
	rc = genai_parse_u64(value, &v, err);
	if (!rc && !v)
		return genai_fail(err, GENAI_E_CONFIG,
				  "a context has at least 1 position");
	return rc;
}

static int32_t check_speculation(const char *value, struct genai_error *err)
{
	uint64_t v;
	int32_t rc;

	if (strcmp(value, "auto") == 0 || strcmp(value, "off") == 0)
		return 0;
	rc = genai_parse_u64(value, &v, err);
	if (rc || v < 1 || v > 8)
		return genai_fail(err, GENAI_E_CONFIG,
				  "expected auto, off or 1 to 8");
	return 0;
}

static int32_t check_swap(const char *value, struct genai_error *err)
{
	uint64_t bytes;
	double percent = -1;
	int32_t rc;

	if (strcmp(value, "auto") == 0 || strcmp(value, "off") == 0)
		return 0;
	rc = genai_parse_bytes(value, &bytes, &percent, err);
	if (!rc && percent >= 0)
		rc = genai_fail(err, GENAI_E_CONFIG,
				"expected bytes, not a percentage");
	return rc;
}

// Does value match one of "a|b|c:*"?  Remembers the nearest one.
static bool match_choices(const char *choices, const char *value, char *near,
			  size_t near_size)
{
	struct genai_spell spell = {.word = value};
	char word[GENAI_INI_MAX_NAME + 1];
	size_t n;

	*near = 0;
	for (;; choices += n + 1) {
		n = strcspn(choices, "|");
		if (n && choices[n - 1] == '*') {
			if (strncmp(choices, value, n - 1) == 0)
				return true;
		} else if (strlen(value) == n &&
			   memcmp(choices, value, n) == 0) {
			return true;
		}
		if (n && n < sizeof(word)) {
			memcpy(word, choices, n);
			word[n] = 0;
			spell.best = *near ? near : NULL;
			genai_spell_offer(&spell, word);
			if (spell.best == word)
				snprintf(near, near_size, "%s", word);
		}
		if (!choices[n])
			return false;
	}
}

static int32_t check_choices(const char *choices, const char *value,
			     struct genai_error *err)
{
	char near[GENAI_INI_MAX_NAME + 1], list[200];
	char *p;

	if (match_choices(choices, value, near, sizeof(near)))
		return 0;
	snprintf(list, sizeof(list), "%s", choices);
	for (p = list; *p; p++)
		if (*p == '|')
			*p = ' ';
	return genai_fail(err, GENAI_E_CONFIG, "expected one of: %s%s%s%s",
			  list, *near ? "; did you mean " : "", near,
			  *near ? "?" : "");
}

static int32_t check_order(const char *value, struct genai_error *err)
{
	return check_choices("off|order", value, err);
}

int32_t genai_check_declared(const struct genai_config_key *key,
			     const char *value, struct genai_error *err)
{
	uint64_t v;
	double percent = -1;
	int32_t b, rc = 0;

	if (key->choices)
		rc = check_choices(key->choices, value, err);
	if (rc)
		return rc;
	switch (key->kind) {
	case GENAI_KEY_STR:
		return 0;
	case GENAI_KEY_U64:
		return genai_parse_u64(value, &v, err);
	case GENAI_KEY_BOOL:
		return genai_parse_bool(value, &b, err);
	case GENAI_KEY_BYTES:
		if (strcmp(value, "auto") == 0)
			return 0;
		rc = genai_parse_bytes(value, &v, &percent, err);
		if (!rc && percent >= 0)
			rc = genai_fail(err, GENAI_E_CONFIG,
					"expected bytes, not a percentage");
		return rc;
	default:
		return genai_fail(err, GENAI_E_CONFIG, "key kind %u is unknown",
				  key->kind);
	}
}

const struct genai_runtime_key genai_runtime_keys[] = {
	{"executor", "cpu_ref:eager", check_iface},
	{"stream", "cpu_ref", check_stack},
	{"barrier", "cpu_ref", check_iface},
	{"pager", "pager_sync", check_iface},
	{"device", "0", check_device},
	{"device_limit", "auto", check_limit},
	{"weight_budget", "auto", check_budget},
	{"context", "auto", check_context},
	{"speculation", "auto", check_speculation},
	{"swap", "auto", check_swap},
	{"module_path", "", check_dirs},
	{"trusted_roots", "", check_dirs},
	{"check", "off", check_order},
};
const uint32_t genai_n_runtime_keys =
	sizeof(genai_runtime_keys) / sizeof(genai_runtime_keys[0]);
