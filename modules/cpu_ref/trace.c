// trace.c - the order in which things ran, a line each: number, stream, what.
// It holds no address and no time, so the same seed gives the same text.
#include "modules/cpu_ref/cpu_ref.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

// A new file only: a key must not be a way to overwrite one.  "%n" is the first
// number that makes it new, for programs that open several devices.
static int new_file(const char *path)
{
	const char *mark = strstr(path, "%n");
	char name[4096];
	int fd = -1;

	if (!mark)
		return open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
			    0666);
	for (int n = 1; fd < 0 && n <= 1000000; n++) {
		if (snprintf(name, sizeof(name), "%.*s%d%s", (int)(mark - path),
			     path, n, mark + 2) >= (int)sizeof(name)) {
			errno = ENAMETOOLONG;
			return -1;
		}
		fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (fd < 0 && errno != EEXIST)
			return -1;
	}
	return fd;
}

int32_t cref_trace_open(struct cref_device *dev, const char *path,
			struct genai_error *err)
{
	int fd;

	if (!strcmp(path, "off"))
		return 0;
	if (getauxval(AT_SECURE))
		return CREF_FAIL(dev, err, GENAI_E_CONFIG,
				 "trace: not in a privileged process");
	fd = new_file(path);
	if (fd >= 0)
		dev->trace = fdopen(fd, "w");
	if (dev->trace)
		return 0;
	if (fd >= 0)
		close(fd);
	return CREF_FAIL(
		dev, err, GENAI_E_IO, "trace = %s: %s%s", path, strerror(errno),
		errno == EEXIST ? " (%n in the name numbers files)" : "");
}

void cref_trace_op(struct cref_device *dev, const struct genai_stream *s,
		   const struct cref_queued *op)
{
	static const char *const kinds[] = {"", "to device", "from device",
					    "on device"};

	fprintf(dev->trace, "%llu %s: ", (unsigned long long)++dev->traced,
		s->name);
	if (op->kind == CREF_WAIT)
		fprintf(dev->trace, "wait for %llu of %s\n",
			(unsigned long long)op->point.value,
			op->point.stream->name);
	else if (op->kind == CREF_COPY)
		fprintf(dev->trace, "copy %llu bytes %s\n",
			(unsigned long long)op->bytes, kinds[op->copy_kind]);
	else if (op->node == GENAI_NONE)
		fprintf(dev->trace, "%s\n", op->name);
	else
		fprintf(dev->trace, "%s (node %u)\n", op->name, op->node);
}

void cref_trace_close(struct cref_device *dev)
{
	if (dev->trace)
		fclose(dev->trace);
	dev->trace = NULL;
}
