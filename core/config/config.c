// config.c - sections and keys: which values hold, and where they came from.
#include "core/config/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/config/ini.h"
#include "core/config/keys.h"
#include "core/base/secure.h"
#include "core/config/spell.h"

// Keeps the search for duplicates short.
#define MAX_ENTRIES 4096u

struct entry {
	char *section; // "runtime" or "module NAME"
	char *key;
	char *value;
	char *origin;  // "default", "PATH:LINE" or "--set"
	uint32_t line; // where the file has it; 0: nowhere
};

struct genai_config {
	char *path; // of the file that was read
	struct entry *entries;
	uint32_t n_entries, cap_entries;
};

static struct entry *find(const struct genai_config *c, const char *section,
			  const char *key)
{
	uint32_t i;

	for (i = 0; i < c->n_entries; i++)
		if (strcmp(c->entries[i].key, key) == 0 &&
		    strcmp(c->entries[i].section, section) == 0)
			return &c->entries[i];
	return NULL;
}

static struct entry *grow(struct genai_config *c)
{
	uint32_t cap = c->cap_entries ? 2 * c->cap_entries : 32;
	struct entry *e;

	if (c->n_entries == c->cap_entries) {
		e = realloc(c->entries, cap * sizeof(*e));
		if (!e)
			return NULL;
		c->entries = e;
		c->cap_entries = cap;
	}
	e = &c->entries[c->n_entries];
	memset(e, 0, sizeof(*e));
	return e;
}

static void free_entry(struct entry *e)
{
	free(e->section);
	free(e->key);
	free(e->value);
	free(e->origin);
}

// Give a key a value; the entry is made if need be.
static int32_t put(struct genai_config *c, const char *section, const char *key,
		   const char *value, const char *origin, uint32_t line,
		   struct genai_error *err)
{
	struct entry *e = find(c, section, key), new = {0};

	if (!e && c->n_entries == MAX_ENTRIES)
		return genai_fail(err, GENAI_E_CONFIG, "%s: more than %u keys",
				  origin, MAX_ENTRIES);
	if (!e)
		e = grow(c);
	if (!e)
		goto err_nomem;
	new = (struct entry){strdup(section), strdup(key), strdup(value),
			     strdup(origin), line};
	if (!new.section || !new.key || !new.value || !new.origin)
		goto err_nomem;
	if (e == &c->entries[c->n_entries])
		c->n_entries++;
	else
		free_entry(e);
	*e = new;
	return 0;

err_nomem:
	free_entry(&new);
	return genai_fail(err, GENAI_E_NOMEM, "%s: out of memory", origin);
}

// "[modul x]" and the like.
static int32_t fail_section(const char *origin, const char *section,
			    struct genai_error *err)
{
	const char *rest = strchr(section, ' ');
	struct genai_spell spell = {.word = section};
	char module[GENAI_INI_MAX_NAME + 16] = "module NAME";
	char word[GENAI_INI_MAX_NAME + 1];

	if (rest) {
		snprintf(word, sizeof(word), "%.*s", (int)(rest - section),
			 section);
		if (strcmp(word, "module") != 0)
			snprintf(module, sizeof(module), "module%s", rest);
		if (genai_spell_distance(word, "module") <= 2)
			spell.best = module;
	} else {
		genai_spell_offer(&spell, "runtime");
		if (!spell.best && genai_spell_distance(section, "module") <= 2)
			spell.best = module;
	}
	return genai_fail(err, GENAI_E_CONFIG,
			  "%s: unknown section [%s], %s[%s]%s", origin, section,
			  spell.best ? "did you mean " : "there are ",
			  spell.best ? spell.best : "runtime",
			  spell.best ? "?" : " and [module NAME]");
}

static int32_t check_section(const char *origin, const char *section,
			     struct genai_error *err)
{
	const char *name;

	if (strcmp(section, "runtime") == 0)
		return 0;
	if (strncmp(section, "module ", 7) != 0 || strchr(section + 7, ' '))
		return fail_section(origin, section, err);
	name = section + 7;
	if (strlen(name) > GENAI_MAX_MODULE_NAME)
		return genai_fail(err, GENAI_E_CONFIG,
				  "%s: module name of %zu bytes, at most %u",
				  origin, strlen(name), GENAI_MAX_MODULE_NAME);
	return 0;
}

static int32_t fail_key(const char *origin, const char *section,
			const char *key, const char *near,
			struct genai_error *err)
{
	return genai_fail(err, GENAI_E_CONFIG,
			  "%s: unknown key %s in [%s]%s%s%s", origin, key,
			  section, near ? ", did you mean " : "",
			  near ? near : "", near ? "?" : "");
}

// "module.cpu_ref.threads": a key as --set spells it.
static void dotted(const char *section, const char *key, char *buf, size_t n)
{
	bool is_module = strncmp(section, "module ", 7) == 0;

	snprintf(buf, n, "%s%s.%s", is_module ? "module." : "",
		 is_module ? section + 7 : section, key);
}

static int32_t fail_value(const char *origin, const char *section,
			  const char *key, const char *value,
			  const char *reason, struct genai_error *err)
{
	char name[2 * GENAI_INI_MAX_NAME + 16];

	dotted(section, key, name, sizeof(name));
	return genai_fail(err, GENAI_E_CONFIG, "%s: %s = %.80s%s: %s", origin,
			  name, value, strlen(value) > 80 ? "..." : "", reason);
}

// Check what can be checked before a module is loaded: [runtime], and path.
static int32_t check_value(const char *origin, const char *section,
			   const char *key, const char *value,
			   struct genai_error *err)
{
	struct genai_spell spell = {.word = key};
	struct genai_error why = GENAI_ERROR_INIT;
	int32_t rc = 0;
	uint32_t i;

	if (strcmp(section, "runtime") != 0) {
		if (strcmp(key, "path") == 0)
			rc = genai_check_path(value, &why);
		goto out;
	}
	for (i = 0; i < genai_n_runtime_keys; i++) {
		if (strcmp(genai_runtime_keys[i].name, key) == 0)
			break;
		genai_spell_offer(&spell, genai_runtime_keys[i].name);
	}
	if (i == genai_n_runtime_keys)
		return fail_key(origin, section, key, spell.best, err);
	rc = genai_runtime_keys[i].check(value, &why);
out:
	return rc ? fail_value(origin, section, key, value, why.text, err) : 0;
}

// The reader's callback: a section or a key of the file.
static int32_t take_item(void *ctx, const struct genai_ini_item *item,
			 struct genai_error *err)
{
	struct genai_config *c = ctx;
	const struct entry *e;
	char origin[4096 + 16];
	int32_t rc;

	snprintf(origin, sizeof(origin), "%s:%u", c->path, item->line);
	if (!item->key)
		return check_section(origin, item->section, err);
	if (!*item->section)
		return genai_fail(err, GENAI_E_CONFIG,
				  "%s: key %s before the first [section]",
				  origin, item->key);
	rc = check_value(origin, item->section, item->key, item->value, err);
	if (rc)
		return rc;
	e = find(c, item->section, item->key);
	if (e && e->line)
		return genai_fail(err, GENAI_E_CONFIG,
				  "%s: key %s in [%s] twice, first on line %u",
				  origin, item->key, item->section, e->line);
	return put(c, item->section, item->key, item->value, origin, item->line,
		   err);
}

static int32_t read_file(struct genai_config *c, int fd, uint64_t bytes,
			 struct genai_error *err)
{
	uint64_t have = 0;
	ssize_t n = 1;
	int32_t rc;
	char *text;

	if (bytes > GENAI_INI_MAX_BYTES)
		return genai_fail(err, GENAI_E_CONFIG,
				  "%s: %llu bytes, at most %u", c->path,
				  (unsigned long long)bytes,
				  GENAI_INI_MAX_BYTES);
	text = malloc(bytes + 1);
	if (!text)
		return genai_fail(err, GENAI_E_NOMEM, "%s: out of memory",
				  c->path);
	while (have < bytes && n > 0) {
		n = TEMP_FAILURE_RETRY(read(fd, text + have, bytes - have));
		if (n > 0)
			have += (uint64_t)n;
	}
	if (n < 0)
		rc = genai_fail(err, GENAI_E_CONFIG, "%s: cannot read: %m",
				c->path);
	else
		rc = genai_ini_parse(c->path, text, have, take_item, c, err);
	free(text);
	return rc;
}

// Open path and read it.  GENAI_E_NOTFOUND: there is no such file.
static int32_t load_file(struct genai_config *c, const char *path,
			 struct genai_error *err)
{
	uint64_t bytes;
	int fd;
	int32_t rc;

	if (strlen(path) >= 4096)
		return genai_fail(err, GENAI_E_CONFIG,
				  "path of %zu bytes, at most 4095",
				  strlen(path));
	rc = genai_secure_open(path, GENAI_E_CONFIG, &fd, &bytes, err);
	if (rc)
		return rc;
	c->path = strdup(path);
	if (c->path)
		rc = read_file(c, fd, bytes, err);
	else
		rc = genai_fail(err, GENAI_E_NOMEM, "%s: out of memory", path);
	close(fd);
	return rc;
}

// The first of ./genai.ini, the user's and the system's that exists.
static int32_t load_found(struct genai_config *c, struct genai_error *err)
{
	const char *xdg = secure_getenv("XDG_CONFIG_HOME");
	const char *home = secure_getenv("HOME");
	char path[3][4096 + 32] = {"", "", GENAI_SYSCONFDIR "/genai/genai.ini"};
	int32_t rc;
	int i;

	if (!genai_is_privileged())
		strcpy(path[0], "./genai.ini");
	if (xdg && *xdg == '/' && strlen(xdg) < 4096)
		sprintf(path[1], "%s/genai/genai.ini", xdg);
	else if (home && *home == '/' && strlen(home) < 4096)
		sprintf(path[1], "%s/.config/genai/genai.ini", home);
	for (i = 0; i < 3; i++) {
		if (!*path[i])
			continue;
		rc = load_file(c, path[i], err);
		if (rc != GENAI_E_NOTFOUND)
			return rc;
	}
	return 0;
}

// "section.key=value"; the section of module X is "module.X".
static int32_t apply_set(struct genai_config *c, const char *set,
			 struct genai_error *err)
{
	char section[GENAI_INI_MAX_NAME + 8] = "", key[GENAI_INI_MAX_NAME + 1];
	const char *p = set, *eq = strchr(set, '=');
	size_t n = genai_ini_name_length(p);
	int32_t rc;

	if (n == 6 && strncmp(p, "module.", 7) == 0) {
		strcpy(section, "module ");
		p += 7;
		n = genai_ini_name_length(p);
	}
	if (!eq || !n || n > GENAI_INI_MAX_NAME || p[n] != '.')
		goto err_syntax;
	strncat(section, p, n);
	p += n + 1;
	n = genai_ini_name_length(p);
	if (!n || n > GENAI_INI_MAX_NAME || p + n != eq ||
	    strlen(eq + 1) > GENAI_INI_MAX_LINE)
		goto err_syntax;
	memcpy(key, p, n);
	key[n] = 0;
	rc = check_section("--set", section, err);
	if (!rc)
		rc = check_value("--set", section, key, eq + 1, err);
	return rc ? rc : put(c, section, key, eq + 1, "--set", 0, err);

err_syntax:
	return genai_fail(err, GENAI_E_CONFIG,
			  "--set %.100s: expected section.key=value, as in "
			  "runtime.device=1 or module.cpu_ref.threads=2",
			  set);
}

int32_t genai_config_load(const char *path, const char *const *sets,
			  uint32_t n_sets, struct genai_config **out_c,
			  struct genai_error *err)
{
	struct genai_config *c = calloc(1, sizeof(*c));
	int32_t rc = 0;
	uint32_t i;

	if (!c)
		return genai_fail(err, GENAI_E_NOMEM, "out of memory");
	for (i = 0; !rc && i < genai_n_runtime_keys; i++)
		rc = put(c, "runtime", genai_runtime_keys[i].name,
			 genai_runtime_keys[i].default_value, "default", 0,
			 err);
	if (!rc)
		rc = path ? load_file(c, path, err) : load_found(c, err);
	for (i = 0; !rc && i < n_sets; i++)
		rc = apply_set(c, sets[i], err);
	if (!rc) {
		*out_c = c;
		return 0;
	}
	genai_config_close(c);
	// A file that cannot be had is a wrong configuration.
	if (rc == GENAI_E_NOTFOUND || rc == GENAI_E_IO) {
		rc = GENAI_E_CONFIG;
		if (err)
			err->code = rc;
	}
	return rc;
}

void genai_config_close(struct genai_config *c)
{
	uint32_t i;

	if (!c)
		return;
	for (i = 0; i < c->n_entries; i++)
		free_entry(&c->entries[i]);
	free(c->entries);
	free(c->path);
	free(c);
}

static const struct genai_config_key *
key_at(const struct genai_config_key *keys, uint32_t stride, uint32_t i)
{
	return (const void *)((const char *)keys + (size_t)stride * i);
}

// Check an entry of the module's section against its declared keys.
static int32_t check_entry(const struct entry *e,
			   const struct genai_config_key *keys, uint32_t n_keys,
			   uint32_t stride, struct genai_error *err)
{
	struct genai_spell spell = {.word = e->key};
	struct genai_error why = GENAI_ERROR_INIT;
	const struct genai_config_key *k;
	uint32_t i;

	if (strcmp(e->key, "path") == 0)
		return 0;
	for (i = 0; i < n_keys; i++) {
		k = key_at(keys, stride, i);
		if (strcmp(k->name, e->key) == 0)
			break;
		genai_spell_offer(&spell, k->name);
	}
	if (i == n_keys) {
		genai_spell_offer(&spell, "path");
		return fail_key(e->origin, e->section, e->key, spell.best, err);
	}
	if (genai_check_declared(k, e->value, &why))
		return fail_value(e->origin, e->section, e->key, e->value,
				  why.text, err);
	return 0;
}

int32_t genai_config_declare(struct genai_config *c, const char *module,
			     const struct genai_config_key *keys,
			     uint32_t n_keys, uint32_t key_stride,
			     struct genai_error *err)
{
	char section[GENAI_MAX_MODULE_NAME + 8];
	const struct genai_config_key *k;
	int32_t rc = 0;
	uint32_t i;

	snprintf(section, sizeof(section), "module %s", module);
	for (i = 0; !rc && i < c->n_entries; i++)
		if (strcmp(c->entries[i].section, section) == 0)
			rc = check_entry(&c->entries[i], keys, n_keys,
					 key_stride, err);
	if (!rc && !find(c, section, "path"))
		rc = put(c, section, "path", "", "default", 0, err);
	for (i = 0; !rc && i < n_keys; i++) {
		k = key_at(keys, key_stride, i);
		if (!find(c, section, k->name))
			rc = put(c, section, k->name,
				 k->default_value ? k->default_value : "",
				 "default", 0, err);
	}
	return rc;
}

const char *genai_config_get(const struct genai_config *c, const char *section,
			     const char *key)
{
	const struct entry *e = find(c, section, key);

	return e ? e->value : NULL;
}

const char *genai_config_origin(const struct genai_config *c,
				const char *section, const char *key)
{
	const struct entry *e = find(c, section, key);

	return e ? e->origin : "default";
}

int32_t genai_config_fail(const struct genai_config *c, const char *section,
			  const char *key, struct genai_error *err,
			  const char *fmt, ...)
{
	const struct entry *e = find(c, section, key);
	char reason[sizeof(err->text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof(reason), fmt, ap);
	va_end(ap);
	return fail_value(e ? e->origin : "default", section, key,
			  e ? e->value : "", reason, err);
}

void genai_config_each(const struct genai_config *c,
		       void (*fn)(void *ctx, const char *section,
				  const char *key, const char *value,
				  const char *origin),
		       void *ctx)
{
	const struct entry *e = c->entries;
	uint32_t i, j;

	// Section by section, in the order of their first keys.
	for (i = 0; i < c->n_entries; i++) {
		for (j = 0; j < i; j++)
			if (strcmp(e[i].section, e[j].section) == 0)
				break;
		if (j < i)
			continue;
		for (; j < c->n_entries; j++)
			if (strcmp(e[i].section, e[j].section) == 0)
				fn(ctx, e[j].section, e[j].key, e[j].value,
				   e[j].origin);
	}
}

const char *genai_config_path(const struct genai_config *c)
{
	return c->path;
}
