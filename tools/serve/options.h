/* options.h - what genai serve is told. */
#ifndef GENAI_TOOLS_SERVE_OPTIONS_H
#define GENAI_TOOLS_SERVE_OPTIONS_H

#include "tools/cli.h"

struct serve_options {
	const char *model, *name, *host, *socket, *keys;
	bool ends_when_lost;
	int64_t port, sequences, queue, body, connections, timeout, idle;
};

/* Serve until told to stop; the exit status (run.c, where libevent is). */
int serve_run(struct cli *c, const struct serve_options *o);

#endif
