// modfind.c - where a module's file is.
#include "core/modfind.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/config/keys.h"
#include "core/base/secure.h"

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

// The first NAME.so in dirs ("A:B", may be empty), beside a program that was
// not installed yet, and in our own directory; path gets what was opened.
static int32_t search(const char *name, const char *dirs, char *path,
		      size_t cap, int *out_fd, uint64_t *out_bytes,
		      struct genai_error *err)
{
	char tried[400] = "", beside[4096];
	const char *more[] = {beside, GENAI_MODULEDIR};
	size_t n, len = 0, i = 0;
	int32_t rc;

	build_folder(beside, sizeof(beside));
	if (!*beside)
		i = 1;
	while (*dirs || i < 2) {
		bool own = !*dirs;

		if (own)
			dirs = more[i++];
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
			  "module %s: no such file; tried %s", name, tried);
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
