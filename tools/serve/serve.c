// serve.c - the command that answers over HTTP: its options, with or without
// libevent.
#include "tools/serve/options.h"

#include <string.h>

static struct serve_options o = {
	.host = "127.0.0.1",
	.port = 8080,
	.sequences = 16,
	.queue = 256,
	.body = 16 << 20,
	.connections = 1024,
	.timeout = 600,
	.idle = 60,
};

static int device_lost(struct cli *c, const char *value)
{
	o.ends_when_lost = !strcmp(value, "exit");
	return o.ends_when_lost || !strcmp(value, "stay")
		       ? 0
		       : cli_usage(c,
				   "--device-lost: %s is neither stay nor "
				   "exit",
				   value);
}

static const struct cli_option options[] = {
	{"host", 0, CLI_TEXT, "ADDRESS", "listen there (127.0.0.1)", &o.host},
	{"port", 0, CLI_INT, "N", "and there (8080); 0: any free one", &o.port,
	 0, 65535},
	{"socket", 0, CLI_TEXT, "PATH", "a Unix socket instead", &o.socket},
	{"api-keys", 0, CLI_TEXT, "FILE", "a key a line; without: no key",
	 &o.keys},
	{"name", 0, CLI_TEXT, "NAME", "of the model; the folder's", &o.name},
	CLI_TOKENIZER_AT,
	{"sequences", 0, CLI_INT, "N", "computed together (16)", &o.sequences,
	 1, GENAI_MAX_SEQS},
	{"queue", 0, CLI_INT, "N", "requests not answered yet (256)", &o.queue,
	 1, 65536},
	{"max-body", 0, CLI_INT, "BYTES", "of a request (16777216)", &o.body,
	 1024, 1 << 30},
	{"max-connections", 0, CLI_INT, "N", "open at a time (1024)",
	 &o.connections, 1, 65536},
	{"device-lost", 0, CLI_CALL, "stay|exit",
	 "a device that is lost: answer 503 (stay), or end",
	 .call = device_lost},
	{"timeout", 0, CLI_INT, "SECONDS", "of a request in the engine (600)",
	 &o.timeout, 1, 86400},
	{"idle-timeout", 0, CLI_INT, "SECONDS",
	 "of a connection without a whole request (60)", &o.idle, 1, 86400},
	{"model", 'm', CLI_TEXT, "DIR", "the model, where DIR is not given",
	 &o.model},
	{0}};

static int serve(struct cli *c, int argc, char **argv)
{
	int status = cli_argument(c, options, argc, argv, "one model folder",
				  &o.model);

	if (status)
		return status;
#if HAVE_LIBEVENT
	return serve_run(c, &o);
#else
	genai_fail(&c->err, GENAI_E_CONFIG,
		   "this genai was built without libevent, which serve needs: "
		   "install it (Debian: apt-get install libevent-dev), "
		   "configure and build again");
	return cli_fail(c);
#endif
}

const struct command cmd_serve = {"serve",
				  serve,
				  "DIR [--port N | --socket PATH]",
				  "answer over HTTP, as OpenAI's API does",
				  options,
				  "docs/SERVING.md has the paths, parameters "
				  "and errors.  SIGTERM ends it\n"
				  "when what was begun is answered.\n"};
