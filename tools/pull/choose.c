// choose.c - which files of a repository are one model: a folder with a
// genai_config.json, or a GGUF file, in parts perhaps.
#include "tools/pull/choose.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

bool hub_name_is_safe(const char *name)
{
	if (!*name || *name == '/' || strlen(name) > 1000)
		return false;
	for (const char *p = name; *p; p++)
		if ((unsigned char)*p < ' ' || *p == '\\' || *p == 127)
			return false;
	for (const char *p = name; *p;) {
		size_t n = strcspn(p, "/");

		if (!n || (n == 1 && *p == '.') ||
		    (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		p += n;
		if (*p && !p[1])
			return false;
		p += *p == '/';
	}
	return true;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcasecmp(s + n - m, end);
}

static bool has_part(const char *s, const char *part)
{
	size_t n = strlen(part);

	for (; *s; s++)
		if (!strncasecmp(s, part, n))
			return true;
	return false;
}

// Bytes of the folder's name: with its slash, 0 at the top.
static size_t folder_of(const char *name)
{
	const char *slash = strrchr(name, '/');

	return slash ? (size_t)(slash - name) + 1 : 0;
}

// NAME-00002-of-00003.gguf: a part, and not the first.
static bool later_part(const char *name)
{
	size_t n = strlen(name);

	return n > 20 && name[n - 20] == '-' &&
	       isdigit((unsigned char)name[n - 19]) &&
	       !strncmp(name + n - 14, "-of-", 4) &&
	       strncmp(name + n - 19, "00001", 5);
}

static bool same_gguf(const char *first, const char *name)
{
	size_t n = strlen(first);

	if (!strcmp(first, name))
		return true;
	return n > 20 && n == strlen(name) && later_part(name) &&
	       !strncmp(first, name, n - 19) &&
	       !strcmp(first + n - 14, name + n - 14);
}

static bool is_config(const struct hub_file *f)
{
	return !strcmp(f->name + folder_of(f->name), "genai_config.json");
}

static bool is_gguf(const struct hub_file *f)
{
	return ends_with(f->name, ".gguf") && !later_part(f->name) &&
	       !has_part(f->name, "mmproj");
}

// The one that is such and is meant.  A name that is exactly what wins.
static int32_t only(const struct hub_file *files, size_t n,
		    bool (*is)(const struct hub_file *f), const char *what,
		    const struct hub_file **out, char *list, size_t cap)
{
	size_t count = 0, len = 0;

	*out = NULL;
	for (size_t i = 0; i < n; i++) {
		const char *name = files[i].name;
		bool exact = what && *what && is(&files[i]) &&
			     (!strcmp(name, what) ||
			      (strlen(what) + 1 == folder_of(name) &&
			       !strncmp(name, what, strlen(what))));

		if (!is(&files[i]) || (what && !exact && !has_part(name, what)))
			continue;
		*out = &files[i];
		if (exact)
			return 1;
		count++;
		if (len < cap)
			len += (size_t)snprintf(list + len, cap - len, "%s%s",
						len ? ", " : "", name);
	}
	return (int32_t)(count < 1000 ? count : 1000);
}

int32_t hub_choose(struct hub_file *files, size_t n, const char *repo,
		   const char *what, char *out, size_t cap,
		   struct genai_error *err)
{
	const struct hub_file *chosen;
	char list[400] = "";
	bool gguf = false;
	int32_t count =
		only(files, n, is_config, what, &chosen, list, sizeof(list));
	size_t folder;

	if (!count) {
		gguf = true;
		count = only(files, n, is_gguf, what, &chosen, list,
			     sizeof(list));
	}
	if (count > 1)
		return genai_fail(err, GENAI_E_NOTFOUND,
				  "%s: several models: name one by a part of "
				  "its name, as %s:PART: %s",
				  repo, repo, list);
	if (!count && what)
		return genai_fail(err, GENAI_E_NOTFOUND,
				  "%s: no model there has %s in its name", repo,
				  what);
	if (!count)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: neither a folder with a "
				  "genai_config.json nor a GGUF file is "
				  "there",
				  repo);
	folder = folder_of(chosen->name);
	for (size_t i = 0; i < n; i++)
		files[i].wanted =
			gguf ? same_gguf(chosen->name, files[i].name)
			     : !strncmp(files[i].name, chosen->name, folder);
	if (gguf)
		snprintf(out, cap, "%s", chosen->name);
	else
		snprintf(out, cap, "%.*s", folder ? (int)folder - 1 : 0,
			 chosen->name);
	return 0;
}
