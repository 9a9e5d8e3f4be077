// modfind.c - where a module's file is.
#include "core/module/modfind.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/config/keys.h"
#include "core/config/spell.h"
#include "core/base/secure.h"

#include <genai/version.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define ABI_MAJOR TEXT(GENAI_ABI_MAJOR)

// Where libtool puts the modules of a program that was built but not installed:
// in .libs beside it.  Empty if it has no such folder.
static void build_folder(char *out, size_t cap)
{
	ssize_t n = readlink("/proc/self/exe", out, cap - 8);
	char *slash;

	out[n > 0 ? n : 0] = 0;
	slash = strrchr(out, '/');
	if (slash)
		strcpy(slash, "/.libs");
	if (access(out, X_OK))
		*out = 0;
}

// The module directory of a tree that was moved as a whole: below the folder of
// libgenai, or, where that is in a program, below the lib beside the program's
// folder.  Empty if there is none.
static void moved_folder(char *out, size_t cap)
{
	static const char *const ways[] = {"", "/../lib"};
	char self[4096];
	Dl_info image;
	char *slash;

	*out = 0;
	// an image that is no path is the program, by the name it was called
	if (!dladdr((void *)(uintptr_t)moved_folder, &image) ||
	    !realpath(image.dli_fname[0] == '/' ? image.dli_fname
						: "/proc/self/exe",
		      self))
		return;
	slash = strrchr(self, '/');
	*slash = 0;
	for (int i = 0; i < 2 && !*out; i++)
		if (snprintf(out, cap, "%s%s/genai/modules-" ABI_MAJOR, self,
			     ways[i]) >= (int)cap ||
		    access(out, X_OK))
			*out = 0;
}

// What was meant, perhaps: directories are not looked through, but the names of
// our own modules are known.
static const char *hint(const char *name, char *out, size_t cap)
{
	static const char *const own[] = {"cpu_ref", "cuda_ep", "pager_sync",
					  "pager_async"};
	struct genai_spell spell = {.word = name};

	if (!strcmp(name, "cuda_ep"))
		return " (a build without CUDA has none: docs/CUDA.md)";
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		genai_spell_offer(&spell, own[i]);
	if (!spell.best || !strcmp(spell.best, name))
		return "";
	snprintf(out, cap, " (did you mean %s?)", spell.best);
	return out;
}

// The first NAME.so in dirs ("A:B", may be empty), beside a program that was
// not installed yet, in the tree that we are in, and in our own directory; path
// gets what was opened.
static int32_t search(const char *name, const char *dirs, char *path,
		      size_t cap, int *out_fd, uint64_t *out_bytes,
		      struct genai_error *err)
{
	char tried[400] = "", beside[4096], moved[4096], word[64];
	const char *more[] = {beside, moved, GENAI_MODULEDIR};
	size_t n, len = 0, i = 0;
	int32_t rc;

	build_folder(beside, sizeof(beside));
	moved_folder(moved, sizeof(moved));
	if (!strcmp(moved, GENAI_MODULEDIR))
		*moved = 0;
	while (*dirs || i < 3) {
		bool own = !*dirs;

		if (own)
			dirs = more[i++];
		if (!*dirs)
			continue;
		n = own ? strlen(dirs) : strcspn(dirs, ":");
		snprintf(path, cap, "%.*s/%s.so", (int)n, dirs, name);
		rc = genai_secure_open(path, GENAI_E_MODULE, out_fd, out_bytes,
				       err);
		if (rc != GENAI_E_NOTFOUND)
			return rc;
		if (len < sizeof(tried))
			len += (size_t)snprintf(tried + len,
						sizeof(tried) - len, "%s%s",
						len ? ", " : "", path);
		dirs += n;
		dirs += *dirs == ':';
	}
	return genai_fail(err, GENAI_E_NOTFOUND,
			  "module %s: no such file%s; tried %s", name,
			  hint(name, word, sizeof(word)), tried);
}

int32_t genai_module_find(const char *name, const struct genai_config *config,
			  char **out_path, int *out_fd, uint64_t *out_bytes,
			  struct genai_error *err)
{
	const char *dirs = genai_config_get(config, "runtime", "module_path");
	char section[GENAI_MAX_MODULE_NAME + 8], found[4096 + 64];
	const char *path;
	uint64_t bytes;
	int32_t rc;
	int fd;

	snprintf(section, sizeof(section), "module %s", name);
	path = genai_config_get(config, section, "path");
	if (path && *path) {
		rc = genai_secure_open(path, GENAI_E_MODULE, &fd, &bytes, err);
		if (rc)
			genai_error_prefix(
				err, "%s",
				genai_config_origin(config, section, "path"));
	} else {
		path = found;
		rc = search(name, dirs ? dirs : "", found, sizeof(found), &fd,
			    &bytes, err);
	}
	if (rc)
		return rc;
	*out_path = strdup(path);
	if (!*out_path) {
		close(fd);
		return genai_fail(err, GENAI_E_NOMEM, "%s: out of memory",
				  name);
	}
	*out_fd = fd;
	*out_bytes = bytes;
	return 0;
}
