// external.c - the files that a model names.
#include "core/onnx/external.h"

#include "core/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ROOTS 66

struct root {
	char *path;	   // canonical
	int links_allowed; // hard links
};

struct genai_folders {
	const char *folder; // of the model: one of the roots
	struct root roots[MAX_ROOTS];
	unsigned n_roots;
};

// "a/b/model.onnx" -> "a/b"; "model.onnx" -> "."; "/m.onnx" -> "/".
static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return strdup(".");
	if (slash == path)
		return strdup("/");
	return strndup(path, (size_t)(slash - path));
}

// Takes path; the callers leave room for it.
static void add_root(struct genai_folders *f, char *path, int links_allowed)
{
	f->roots[f->n_roots].path = path;
	f->roots[f->n_roots].links_allowed = links_allowed;
	f->n_roots++;
}

static int32_t add_trusted(struct genai_folders *f, const char *list,
			   struct genai_error *err)
{
	while (list && *list) {
		size_t n = strcspn(list, ":");
		char *text, *real;

		if (f->n_roots >= MAX_ROOTS - 2)
			return genai_fail(err, GENAI_E_LIMIT,
					  "more than %d trusted_roots",
					  MAX_ROOTS - 2);
		text = strndup(list, n);
		if (!text)
			return genai_fail(err, GENAI_E_NOMEM, "out of memory");
		real = n ? realpath(text, NULL) : NULL;
		free(text);
		if (real)
			add_root(f, real, 1);
		else if (n && errno == ENOMEM)
			return genai_fail(err, GENAI_E_NOMEM, "out of memory");
		list += n + (list[n] == ':');
	}
	return GENAI_OK;
}

// CACHE/snapshots/REVISION[/...]: also CACHE/blobs.
static int add_blobs(struct genai_folders *f, const char *real)
{
	const char *at, *last = NULL;
	char *path;

	for (at = real + 1; (at = strstr(at, "/snapshots/")) != NULL; at++)
		last = at;
	if (!last)
		return 1;
	if (asprintf(&path, "%.*s/blobs", (int)(last - real), real) < 0)
		return 0;
	add_root(f, path, 0);
	return 1;
}

// The model's folder and, if it is a snapshot, the blobs beside it.
static int32_t add_folder(struct genai_folders *f, const char *model_path,
			  struct genai_error *err)
{
	char *spelled = folder_of(model_path), *real, why[128];
	int32_t rc;

	if (!spelled)
		return genai_fail(err, GENAI_E_NOMEM, "out of memory");
	real = realpath(spelled, NULL);
	if (!real) {
		rc = errno == ENOMEM ? GENAI_E_NOMEM : GENAI_E_IO;
		genai_fail(err, rc, "%s: %s", spelled,
			   strerror_r(errno, why, sizeof(why)));
		free(spelled);
		return rc;
	}
	free(spelled);
	add_root(f, real, 0);
	f->folder = real;
	if (!add_blobs(f, real))
		return genai_fail(err, GENAI_E_NOMEM, "out of memory");
	return GENAI_OK;
}

int32_t genai_folders_open(const char *model_path, const char *trusted,
			   struct genai_folders **out_f,
			   struct genai_error *err)
{
	struct genai_folders *f = calloc(1, sizeof(*f));
	int32_t rc;

	if (!f)
		return genai_fail(err, GENAI_E_NOMEM, "out of memory");
	rc = add_trusted(f, trusted, err);
	if (!rc)
		rc = add_folder(f, model_path, err);
	if (rc) {
		genai_folders_close(f);
		return rc;
	}
	*out_f = f;
	return GENAI_OK;
}

void genai_folders_close(struct genai_folders *f)
{
	unsigned i;

	if (!f)
		return;
	for (i = 0; i < f->n_roots; i++)
		free(f->roots[i].path);
	free(f);
}

// Why a component of a location is not acceptable, or NULL.  What other systems
// read as an absolute path, a drive, a stream or another name is refused here
// too: a folder must mean the same everywhere.
static const char *bad_component(const char *c, size_t n)
{
	size_t i;

	if (n == 2 && c[0] == '.' && c[1] == '.')
		return "leads out of the model's folder";
	if (n > 1 && (c[n - 1] == '.' || c[n - 1] == ' '))
		return "has a part that ends in a dot or a space";
	if (n == 1 && c[0] == ' ')
		return "has a part that ends in a dot or a space";
	for (i = 0; i < n; i++) {
		if (c[i] == '\\' || c[i] == ':')
			return "holds '\\' or ':'";
		if ((unsigned char)c[i] < 0x20 || c[i] == 0x7f)
			return "holds a control character";
	}
	return NULL;
}

int32_t genai_location_check(const char *location, struct genai_error *err)
{
	const char *c = location, *why = NULL;

	if (!*location)
		why = "is empty";
	else if (*location == '/')
		why = "is absolute";
	else if (*location == '#')
		why = "starts with '#'";
	else if (strlen(location) > GENAI_EXTERNAL_MAX_PATH)
		why = "is longer than 4096 bytes";
	while (!why && *c) {
		size_t n = strcspn(c, "/");

		why = bad_component(c, n);
		c += n + (c[n] == '/');
	}
	if (!why && c[-1] == '/')
		why = "names a folder";
	if (why)
		return genai_fail(err, GENAI_E_FORMAT, "location \"%s\" %s",
				  location, why);
	return GENAI_OK;
}

// The part of real below the root, or NULL if it lies elsewhere.
static const char *below(const struct root *root, const char *real)
{
	size_t n = strlen(root->path);

	if (n == 1) // the root folder of the system
		return real + 1;
	if (strncmp(real, root->path, n) != 0 || real[n] != '/')
		return NULL;
	return real + n + 1;
}

static int open_retry(int dir, const char *name, int flags)
{
	int fd;

	do {
		fd = openat(dir, name, flags | O_CLOEXEC);
	} while (fd < 0 && errno == EINTR);
	return fd;
}

// Open root/rest, where rest has neither links nor "..": as
// openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS), which older kernels and some
// sandboxes refuse.  Never blocks on a fifo or device.
// *out_dir is the folder that holds the file.
static int open_below(const char *root, char *rest, struct stat *out_dir)
{
	int dir = open_retry(AT_FDCWD, root, O_PATH | O_DIRECTORY), fd;
	char *slash;

	while (dir >= 0 && (slash = strchr(rest, '/')) != NULL) {
		*slash = 0;
		fd = open_retry(dir, rest, O_PATH | O_DIRECTORY | O_NOFOLLOW);
		close(dir);
		dir = fd;
		rest = slash + 1;
	}
	if (dir < 0)
		return -1;
	if (fstat(dir, out_dir)) {
		close(dir);
		return -1;
	}
	fd = open_retry(dir, rest,
			O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
	close(dir);
	return fd;
}

// Map the opened file if it is one that may be used.
// Why a file with several links may have been put there by somebody else; NULL:
// it was not.  Stores that keep equal files once, and cp -l, make such links.
static const char *planted(const struct stat *file, const struct stat *dir)
{
	if (file->st_uid != dir->st_uid)
		return "it belongs to another user than its folder";
	if (dir->st_mode & S_IWOTH)
		return "anybody may write to its folder";
	// groups of one user are named after that user
	if (dir->st_mode & S_IWGRP && dir->st_gid != dir->st_uid)
		return "a group may write to its folder";
	return NULL;
}

static int32_t map_fd(int fd, const char *path, const struct stat *dir,
		      int links_allowed, struct genai_mapping **out_m,
		      struct genai_error *err)
{
	struct genai_mapping *m;
	const char *rule;
	struct stat st;
	char why[128];
	int32_t rc;

	if (fstat(fd, &st))
		return genai_fail(err, GENAI_E_IO, "%s: cannot stat: %s", path,
				  strerror_r(errno, why, sizeof(why)));
	rule = planted(&st, dir);
	if (S_ISREG(st.st_mode) && st.st_nlink > 1 && !links_allowed && rule)
		return genai_fail(
			err, GENAI_E_IO,
			"%s: has %llu hard links and %s, so it may be a file "
			"from elsewhere; copy it, or name its folder in "
			"trusted_roots",
			path, (unsigned long long)st.st_nlink, rule);
	rc = genai_mapping_from_fd(fd, path, &m, err);
	if (rc)
		return rc;
	if (genai_is_lfs_pointer(genai_mapping_data(m),
				 genai_mapping_bytes(m))) {
		genai_mapping_close(m);
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: Git LFS pointer, not the data; run git "
				  "lfs pull",
				  path);
	}
	*out_m = m;
	return GENAI_OK;
}

static int32_t map_real(const struct genai_folders *f, const char *path,
			char *real, struct genai_mapping **out_m,
			struct genai_error *err)
{
	const char *rest = NULL;
	struct stat dir;
	char why[128];
	unsigned i;
	int32_t rc;
	int fd;

	for (i = 0; i < f->n_roots && !rest; i++)
		rest = below(&f->roots[i], real);
	if (!rest)
		return genai_fail(err, GENAI_E_IO,
				  "%s: leads to %s, outside the model's "
				  "folder; if that is meant, name its folder "
				  "in trusted_roots",
				  path, real);
	i--;
	fd = open_below(f->roots[i].path, real + (rest - real), &dir);
	if (fd < 0)
		return genai_fail(err, GENAI_E_IO, "%s: cannot open: %s", path,
				  strerror_r(errno, why, sizeof(why)));
	rc = map_fd(fd, path, &dir, f->roots[i].links_allowed, out_m, err);
	close(fd);
	return rc;
}

int32_t genai_folders_map(const struct genai_folders *f, const char *location,
			  struct genai_mapping **out_m, struct genai_error *err)
{
	int32_t rc = genai_location_check(location, err);
	char why[128], *path, *real;

	if (rc)
		return rc;
	if (asprintf(&path, "%s%s%s", f->folder,
		     strcmp(f->folder, "/") ? "/" : "", location) < 0)
		return genai_fail(err, GENAI_E_NOMEM, "out of memory");
	real = realpath(path, NULL);
	if (real)
		rc = map_real(f, path, real, out_m, err);
	else
		rc = genai_fail(err,
				errno == ENOENT || errno == ENOTDIR
					? GENAI_E_NOTFOUND
				: errno == ENOMEM ? GENAI_E_NOMEM
						  : GENAI_E_IO,
				"%s: cannot open: %s", path,
				strerror_r(errno, why, sizeof(why)));
	free(real);
	free(path);
	return rc;
}

int genai_decimal(const char *text, uint64_t *out_v)
{
	uint64_t v = 0;

	if (!*text)
		return 0;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' ||
		    __builtin_mul_overflow(v, 10u, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
			return 0;
	}
	*out_v = v;
	return 1;
}

int genai_is_lfs_pointer(const void *data, uint64_t bytes)
{
	static const char head[] = "version https://git-lfs.github.com/spec/";

	return bytes >= sizeof(head) - 1 && bytes <= 1024 &&
	       !memcmp(data, head, sizeof(head) - 1);
}
