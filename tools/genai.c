// genai.c - the command line: common options, the table of commands, help.
#include "tools/cli.h"

#include <ctype.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/config/spell.h"
#include "core/modelgen/modelgen.h"

static const struct command *const commands[] = {
	&cmd_generate,	 &cmd_chat,	&cmd_batch,   &cmd_serve,
	&cmd_embed,	 &cmd_logits,	&cmd_score,   &cmd_tokenize,
	&cmd_detokenize, &cmd_template, &cmd_run,     &cmd_inspect,
	&cmd_plan,	 &cmd_bench,	&cmd_pull,    &cmd_import,
	&cmd_cache,	 &cmd_synth,	&cmd_modules, &cmd_config,
	&cmd_doctor,	 NULL,
};

static const char common[] =
	"Common options (before or after the command):\n"
	"  --config FILE             the INI file\n"
	"  --set section.key=value   win over it (repeatable)\n"
	"  --quiet --verbose --no-progress\n"
	"  --version --help\n";

static void print_help(FILE *f)
{
	fprintf(f, "usage: genai [options] COMMAND ...\n\n");
	for (size_t i = 0; commands[i]; i++)
		fprintf(f, "  %-11s %s\n", commands[i]->name,
			commands[i]->summary);
	fprintf(f, "\n%s\nSee also: genai help COMMAND\n", common);
}

static const struct command *find(const char *name)
{
	for (size_t i = 0; commands[i]; i++)
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	return NULL;
}

static int no_command(struct cli *c, const char *name)
{
	struct genai_spell near = {.word = name};

	for (size_t i = 0; commands[i]; i++)
		genai_spell_offer(&near, commands[i]->name);
	if (near.best)
		return cli_usage(c, "no command %s; did you mean %s?", name,
				 near.best);
	return cli_usage(c, "no command %s", name);
}

static int help(struct cli *c, const char *name)
{
	const struct command *k = find(name);

	if (!k)
		return no_command(c, name);
	printf("usage: genai %s %s\n%c%s.\n\n", k->name, k->args,
	       toupper((unsigned char)k->summary[0]), k->summary + 1);
	cli_options_help(k->options, stdout);
	printf("%s\n%s", k->more ? k->more : "", common);
	return 0;
}

static void print_key(void *ctx, const char *section, const char *key,
		      const char *value, const char *origin)
{
	(void)ctx;
	(void)value;
	(void)origin;
	for (; *section; section++)
		putchar(*section == ' ' ? '.' : *section);
	printf(".%s=\n", key);
}

// What a shell may complete, one a line: commands; a command's options and, of
// synth, architectures; for "keys" those of genai.ini.
static int words(struct cli *c, const char *what)
{
	const struct command *k = what ? find(what) : NULL;
	struct genai_synth_info info;

	if (what && !strcmp(what, "keys"))
		return cli_each_key(c, print_key);
	for (size_t i = 0; !what && commands[i]; i++)
		printf("%s\n", commands[i]->name);
	if (!k)
		return 0;
	cli_options_words(k->options, stdout);
	for (uint32_t i = 0; k == &cmd_synth && genai_synth_list(i, &info); i++)
		printf("%s\n", info.name);
	return 0;
}

// The manual page of a command, or of all.
static int man(struct cli *c, const char *name)
{
	const struct command *k = name ? find(name) : NULL;

	if (name && !k)
		return no_command(c, name);
	if (k)
		manual_command(k);
	else
		manual(commands);
	return 0;
}

static void version(void)
{
	printf("genai %s (ABI %d.%d%s)\n", GENAI_VERSION_STRING,
	       GENAI_ABI_MAJOR, GENAI_ABI_MINOR,
	       GENAI_BUILD_SAN ? ", sanitizer build" : "");
}

int cli_fail(struct cli *c)
{
	int32_t code = c->err.code;

	if (code == GENAI_E_INTERRUPTED) {
		fprintf(stderr, "genai: interrupted\n");
		return EXIT_INTERRUPT;
	}
	cli_clear_line(c);
	fprintf(stderr, "genai: error: %s\n", c->err.text);
	if (c->json)
		cli_print_json(json_pack("{s:s}", "error", c->err.text));
	if (c->config_failed || code == GENAI_E_CONFIG || code == GENAI_E_ABI ||
	    code == GENAI_E_MODULE)
		return EXIT_USAGE;
	return EXIT_REQUEST;
}

int cli_usage(struct cli *c, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "genai: error: ");
	if (c->command)
		fprintf(stderr, "%s: ", c->command);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, " (see genai help%s%s)\n", c->command ? " " : "",
		c->command ? c->command : "");
	return EXIT_USAGE;
}

void cli_log(void *ctx, int32_t level, const char *text)
{
	const struct cli *c = ctx;
	int32_t limit = c->quiet     ? GENAI_LOG_ERROR
			: c->verbose ? GENAI_LOG_DEBUG
				     : GENAI_LOG_WARN;

	if (level <= limit)
		fprintf(stderr, "genai: %s%s\n",
			level == GENAI_LOG_ERROR  ? "error: "
			: level == GENAI_LOG_WARN ? "warning: "
						  : "",
			text);
}

double cli_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Options that every command takes are picked out first, wherever they stand;
// the rest keeps its order.  0 go on, 1 wrong.
static int take_common(struct cli *c, int *argc, char **argv)
{
	int n = 1;

	for (int i = 1; i < *argc; i++) {
		const char *a = argv[i], *value = NULL;
		bool config =
			!strncmp(a, "--config", 8) && (!a[8] || a[8] == '=');
		bool set = !strncmp(a, "--set", 5) && (!a[5] || a[5] == '=');

		if (!strcmp(a, "--")) {
			while (i < *argc)
				argv[n++] = argv[i++];
			break;
		}
		if (config || set) {
			value = strchr(a, '=');
			if (value && value == a + (config ? 8 : 5))
				value++;
			else if (++i < *argc)
				value = argv[i];
			else {
				cli_usage(c, "%s needs a value", a);
				return 1;
			}
		}
		if (config) {
			c->config_path = value;
		} else if (set && c->n_sets == MAX_SETS) {
			cli_usage(c, "more than %d --set", MAX_SETS);
			return 1;
		} else if (set) {
			c->sets[c->n_sets++] = value;
		} else if (!strcmp(a, "--quiet")) {
			c->quiet = true;
		} else if (!strcmp(a, "--verbose")) {
			c->verbose = true;
		} else if (!strcmp(a, "--no-progress")) {
			c->no_progress = true;
		} else {
			argv[n++] = argv[i];
		}
	}
	argv[n] = NULL;
	*argc = n;
	return 0;
}

// A result that could not be written is a failure.
static int finish(struct cli *c, int status)
{
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	genai_fail(&c->err, GENAI_E_IO, "cannot write the output");
	return status ? status : cli_fail(c);
}

// A JSON value that memory does not suffice for would be missing from a result
// without a word.
static void *json_alloc(size_t n)
{
	void *p = malloc(n);

	if (p)
		return p;
	fprintf(stderr, "genai: error: no memory for %zu bytes\n", n);
	_exit(EXIT_REQUEST);
}

int main(int argc, char **argv)
{
	static struct cli c = {.err = GENAI_ERROR_INIT};
	const struct command *k;

	signal(SIGXFSZ, SIG_IGN); // a write beyond ulimit -f fails instead
	json_set_alloc_funcs(json_alloc, free);
	if (take_common(&c, &argc, argv))
		return EXIT_USAGE;
	if (argc < 2) {
		print_help(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--version")) {
		version();
		return finish(&c, 0);
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
	    (!strcmp(argv[1], "help") && argc == 2)) {
		print_help(stdout);
		return finish(&c, 0);
	}
	if (!strcmp(argv[1], "help") && !strcmp(argv[2], "--man"))
		return finish(&c, man(&c, argv[3]));
	if (!strcmp(argv[1], "help") && !strcmp(argv[2], "--words"))
		return finish(&c, words(&c, argv[3]));
	if (!strcmp(argv[1], "help"))
		return finish(&c, help(&c, argv[2]));
	k = find(argv[1]);
	if (!k)
		return no_command(&c, argv[1]);
	for (int i = 2; i < argc; i++)
		if (!strcmp(argv[i], "--help"))
			return finish(&c, help(&c, k->name));
	c.command = k->name;
	return finish(&c, k->run(&c, argc - 1, argv + 1));
}
