// options.c - parsing the values of options, reading files and lines.
#include "tools/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool cli_int(struct cli *c, const char *option, const char *text, int64_t lo,
	     int64_t hi, int64_t *out)
{
	char *end;
	long long v;

	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno || end == text || *end || v < lo || v > hi) {
		cli_usage(c,
			  "%s %s: a whole number from %" PRId64 " to %" PRId64,
			  option, text, lo, hi);
		return false;
	}
	*out = v;
	return true;
}

bool cli_num(struct cli *c, const char *option, const char *text, double lo,
	     double hi, double *out)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || *end || !(v >= lo && v <= hi)) {
		cli_usage(c, "%s %s: a number from %g to %g", option, text, lo,
			  hi);
		return false;
	}
	*out = v;
	return true;
}

static int32_t too_large(struct cli *c, const char *what)
{
	return genai_fail(&c->err, GENAI_E_LIMIT, "%s: more than %u bytes",
			  what, CLI_MAX_TEXT);
}

// Room for n bytes and what ends them.
static bool grow(char **text, size_t *cap, size_t n)
{
	char *more;

	if (n < *cap)
		return true;
	more = realloc(*text, *cap ? 2 * *cap : 1 << 17);
	if (!more)
		return false;
	*text = more;
	*cap = *cap ? 2 * *cap : 1 << 17;
	return true;
}

static int32_t read_all(struct cli *c, FILE *f, const char *name, char **text,
			size_t *out_n)
{
	size_t cap = 0, n = 0, got = 1;

	while (got) {
		if (!grow(text, &cap, n + 65536))
			return genai_fail(&c->err, GENAI_E_NOMEM,
					  "%s: no memory", name);
		got = fread(*text + n, 1, 65536, f);
		n += got;
		if (n > CLI_MAX_TEXT)
			return too_large(c, name);
	}
	if (ferror(f))
		return cli_interrupted
			       ? genai_fail(&c->err, GENAI_E_INTERRUPTED,
					    "interrupted")
			       : genai_fail(&c->err, GENAI_E_IO,
					    "%s: cannot read: %s", name,
					    strerror(errno));
	(*text)[n] = 0;
	*out_n = n;
	return 0;
}

bool cli_slurp(struct cli *c, const char *path, char **out, size_t *out_n)
{
	bool std = !strcmp(path, "-");
	FILE *f = std ? stdin : fopen(path, "re");
	char *text = NULL;
	int32_t rc;

	if (!f) {
		genai_fail(&c->err, GENAI_E_IO, "%s: cannot open: %s", path,
			   strerror(errno));
		return false;
	}
	rc = read_all(c, f, std ? "stdin" : path, &text, out_n);
	if (!std)
		fclose(f);
	if (rc)
		free(text);
	else
		*out = text;
	return !rc;
}

int32_t cli_line(struct cli *c, char **line, size_t *cap, size_t *out_n)
{
	size_t n = 0;
	int ch;

	while ((ch = getc_unlocked(stdin)) != EOF && ch != '\n') {
		if (n == CLI_MAX_TEXT)
			return too_large(c, "stdin: a line");
		if (!grow(line, cap, n + 1))
			return genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
		(*line)[n++] = (char)ch;
	}
	if (ch == EOF && !n)
		return 0;
	if (!grow(line, cap, n + 1))
		return genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
	if (n && (*line)[n - 1] == '\r')
		n--;
	(*line)[n] = 0;
	*out_n = n;
	return 1;
}

// Ids between blanks, commas and brackets.
static bool parse_ids(struct cli *c, const char *s, int64_t **out,
		      size_t *out_n)
{
	size_t cap = 64, n = 0;
	int64_t *ids = malloc(cap * sizeof(*ids));

	while (ids) {
		char *end;
		long long v;

		s += strspn(s, " \t\r\n,[]");
		if (!*s)
			break;
		errno = 0;
		v = strtoll(s, &end, 10);
		if (end == s || errno || (*end && !strchr(" \t\r\n,]", *end))) {
			genai_fail(&c->err, GENAI_E_INVAL,
				   "ids: '%.16s' is not a token id", s);
			free(ids);
			return false;
		}
		if (n == cap) {
			int64_t *more = realloc(ids, 2 * cap * sizeof(*ids));

			if (!more) {
				free(ids);
				ids = NULL;
				break;
			}
			ids = more;
			cap *= 2;
		}
		ids[n++] = v;
		s = end;
	}
	if (!ids) {
		genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
		return false;
	}
	*out = ids;
	*out_n = n;
	return true;
}

bool cli_ids(struct cli *c, const char *text, int64_t **out, size_t *out_n)
{
	char *file;
	size_t n;
	bool ok;

	if (text[0] != '@') {
		ok = parse_ids(c, text, out, out_n);
		if (!ok && c->err.code == GENAI_E_INVAL)
			c->err.code = GENAI_E_CONFIG; // wrong usage
		return ok;
	}
	if (!cli_slurp(c, text + 1, &file, &n))
		return false;
	ok = parse_ids(c, file, out, out_n);
	free(file);
	return ok;
}

void cli_sampling_check(const struct cli *c, const struct cli_sampling *s)
{
	const char *other = s->has_temperature && s->temperature > 0
				    ? "--temperature"
			    : s->has_top_k && s->top_k != 1 ? "--top-k"
			    : s->has_top_p		    ? "--top-p"
			    : s->has_min_p		    ? "--min-p"
							    : NULL;

	if (s->greedy && other)
		cli_log((void *)(uintptr_t)c, GENAI_LOG_WARN,
			"--greedy takes the most probable token each time: "
			"what else says how to draw has no effect");
}
