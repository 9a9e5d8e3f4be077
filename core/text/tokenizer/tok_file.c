// tok_file.c - tokenizer.json as bytes in memory, from a folder or a file,
// decompressed if it is gzip.
#include "core/text/tokenizer/tok.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static int32_t io_fail(struct genai_error *err, const char *name,
		       const char *what)
{
	int32_t code = errno == ENOENT || errno == ENOTDIR ? GENAI_E_NOTFOUND
							   : GENAI_E_IO;

	return genai_fail(err, code, "%s: cannot %s: %s", name, what,
			  strerror(errno));
}

static int32_t too_large(struct genai_error *err, const char *name)
{
	return genai_fail(err, GENAI_E_LIMIT, "%s: more than %u bytes", name,
			  TOK_MAX_FILE);
}

static int32_t read_all(int fd, const char *name, struct tok_buf *out,
			struct genai_error *err)
{
	struct stat st;
	ssize_t got;
	char *to;

	if (fstat(fd, &st) < 0)
		return io_fail(err, name, "stat");
	if (!S_ISREG(st.st_mode))
		return genai_fail(err, GENAI_E_IO, "%s: not a regular file",
				  name);
	if (st.st_size > (off_t)TOK_MAX_FILE)
		return too_large(err, name);
	// One byte more than the size, so that the end shows at once.
	to = tok_buf_room(out, (size_t)st.st_size + 1);
	while (to) {
		got = read(fd, to, out->cap - out->n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return io_fail(err, name, "read");
		if (!got)
			return 0;
		out->n += (size_t)got;
		if (out->n > TOK_MAX_FILE)
			return too_large(err, name);
		to = tok_buf_room(out, 1);
	}
	return tok_nomem(err);
}

static int32_t inflate_all(z_stream *z, const char *name, struct tok_buf *out,
			   struct genai_error *err)
{
	int rc = Z_OK;

	while (rc != Z_STREAM_END) {
		char *to = tok_buf_room(out, 1);

		if (!to)
			return tok_nomem(err);
		z->next_out = (Bytef *)to;
		z->avail_out = (uInt)(out->cap - out->n);
		rc = inflate(z, Z_NO_FLUSH);
		if (rc == Z_MEM_ERROR)
			return tok_nomem(err);
		if (rc != Z_OK && rc != Z_STREAM_END)
			return genai_fail(err, GENAI_E_FORMAT,
					  "%s: bad or truncated gzip data: %s",
					  name,
					  z->msg ? z->msg : "no more input");
		out->n = (size_t)((char *)z->next_out - out->p);
		if (out->n > TOK_MAX_FILE)
			return too_large(err, name);
	}
	return 0;
}

static int32_t gunzip(const char *name, struct tok_buf *b,
		      struct genai_error *err)
{
	struct tok_buf plain = {0};
	z_stream z = {0};
	int32_t rc;

	if (inflateInit2(&z, 15 + 16) != Z_OK)
		return tok_nomem(err);
	z.next_in = (Bytef *)b->p;
	z.avail_in = (uInt)b->n;
	tok_buf_room(&plain, 4 * b->n);
	rc = inflate_all(&z, name, &plain, err);
	inflateEnd(&z);
	if (rc) {
		tok_buf_free(&plain);
		return rc;
	}
	tok_buf_free(b);
	*b = plain;
	return 0;
}

// Open path, or the tokenizer in that folder.
static int open_any(const char *path, char **name)
{
	static const char *const names[] = {"", "/tokenizer.json",
					    "/tokenizer.json.gz"};
	struct stat st;
	size_t i, is_dir;
	int fd = -1;

	is_dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	for (i = is_dir; i < (is_dir ? 3 : 1); i++) {
		free(*name);
		if (asprintf(name, "%s%s", path, names[i]) < 0) {
			*name = NULL;
			errno = ENOMEM;
			return -1;
		}
		// A fifo must not make us wait for its other end.
		fd = open(*name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0 || errno != ENOENT)
			break;
	}
	return fd;
}

int32_t tok_file_read(const char *path, char **out_name, struct tok_buf *out,
		      struct genai_error *err)
{
	static const char lfs[] = "version https://git-lfs.github.com/spec/";
	struct tok_buf b = {0};
	char *name = NULL;
	int32_t rc;
	int fd;

	fd = open_any(path, &name);
	if (fd < 0) {
		if (name && errno == ENOENT && strcmp(name, path))
			rc = genai_fail(err, GENAI_E_NOTFOUND,
					"%s: no tokenizer here: looked for "
					"tokenizer.json and tokenizer.json.gz",
					path);
		else
			rc = name ? io_fail(err, name, "open") : tok_nomem(err);
		goto err_name;
	}
	rc = read_all(fd, name, &b, err);
	close(fd);
	if (!rc && b.n >= 2 && !memcmp(b.p, "\x1f\x8b", 2))
		rc = gunzip(name, &b, err);
	if (!rc && b.n >= sizeof(lfs) - 1 && !memcmp(b.p, lfs, sizeof(lfs) - 1))
		rc = genai_fail(err, GENAI_E_FORMAT,
				"%s: is a Git LFS pointer; run git lfs pull",
				name);
	if (rc)
		goto err_buf;
	*out = b;
	*out_name = name;
	return 0;

err_buf:
	tok_buf_free(&b);
err_name:
	free(name);
	return rc;
}
