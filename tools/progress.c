// progress.c - a line on the terminal that tells how far something is.
#include "tools/cli.h"

#include <stdarg.h>
#include <unistd.h>

bool cli_watched(const struct cli *c)
{
	return !c->quiet && !c->no_progress && isatty(2);
}

void cli_progress(struct cli *c, const char *fmt, ...)
{
	static double last;
	double now = cli_now();
	va_list ap;

	if (!cli_watched(c) || (c->on_line && now - last < 0.2))
		return;
	last = now;
	c->on_line = true;
	fputs("\r\033[K", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
}

void cli_clear_line(struct cli *c)
{
	if (c->on_line)
		fputs("\r\033[K", stderr);
	c->on_line = false;
}
