// secure.c - opening files that decide what code runs.
#include "core/base/secure.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"

bool genai_is_privileged(void)
{
	return getauxval(AT_SECURE) != 0;
}

static int32_t check_stat(const char *path, const struct stat *st, int32_t code,
			  struct genai_error *err)
{
	if (!S_ISREG(st->st_mode))
		return genai_fail(err, code, "%s: not a regular file", path);
	if (!genai_is_privileged())
		return 0;
	if (st->st_uid != 0)
		return genai_fail(err, code,
				  "%s: owned by user %u; a privileged process "
				  "takes only files of root",
				  path, (unsigned)st->st_uid);
	if (st->st_mode & (S_IWGRP | S_IWOTH))
		return genai_fail(err, code,
				  "%s: mode %03o; a privileged process takes "
				  "only files that root alone can write",
				  path, (unsigned)st->st_mode & 0777);
	return 0;
}

int32_t genai_secure_open(const char *path, int32_t code_policy, int *out_fd,
			  uint64_t *out_bytes, struct genai_error *err)
{
	struct stat st;
	int32_t rc;
	// O_NONBLOCK: opening a fifo must not wait for its writer.
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return genai_fail(err,
				  errno == ENOENT || errno == ENOTDIR
					  ? GENAI_E_NOTFOUND
					  : GENAI_E_IO,
				  "%s: cannot open: %s", path, strerror(errno));
	if (fstat(fd, &st) != 0) {
		rc = genai_fail(err, GENAI_E_IO, "%s: cannot stat: %s", path,
				strerror(errno));
		goto err_close;
	}
	rc = check_stat(path, &st, code_policy, err);
	if (rc)
		goto err_close;
	*out_fd = fd;
	*out_bytes = (uint64_t)st.st_size;
	return 0;

err_close:
	close(fd);
	return rc;
}
