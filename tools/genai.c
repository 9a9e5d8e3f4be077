// genai.c - the command line: common options, the table of commands, help.
#include "tools/cli.h"

#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>


#define SAMPLING_HELP                                                          \
	"  --greedy                  the most probable token each time\n"     \
	"  --temperature X           0 to 100; 0 is greedy\n"                 \
	"  --top-k N --top-p X --min-p X\n"                                   \
	"  --repetition-penalty X --presence-penalty X --frequency-penalty X\n" \
	"  --seed N                  same seed, same text\n"

const struct command commands[] = {
	{"generate", cmd_generate,
	 "DIR [--prompt TEXT | --prompt-file F | --ids LIST]",
	 "continue a prompt",
	 "  --prompt TEXT | --prompt-file F | --ids 1,2,3   (else stdin)\n"
	 "  --chat                    the prompt is a user turn\n"
	 "  --system TEXT             a system turn before it\n"
	 "  --max-new-tokens N        at most (256)\n"
	 "  --ignore-eos              do not stop at the end of text\n"
	 "  --stop S                  stop before this text (repeatable)\n"
	 "  --echo                    print the prompt first\n"
	 "  --json                    one JSON object\n" SAMPLING_HELP},
	{"chat", cmd_chat, "DIR [--system TEXT]", "hold a conversation",
	 "  --system TEXT             the system turn\n"
	 "  --max-new-tokens N        at most, per answer\n" SAMPLING_HELP
	 "In the conversation: /help /reset /undo /stats /system TEXT\n"
	 "  /save FILE /load FILE /exit.  Ctrl-C stops an answer.\n"},
	{"logits", cmd_logits, "DIR --ids LIST|@FILE -o OUT.npy",
	 "the logits of every position",
	 "  --ids LIST|@FILE          the prompt\n"
	 "  --chunks 5,2,1            feed it in pieces; the last size "
	 "repeats\n"
	 "  -o FILE.npy               float32 [n, vocab]\n"
	 "  --top K                   print the K best ids and values a row\n"},
	{"score", cmd_score, "DIR --file TEXT [--window N]",
	 "perplexity of a text",
	 "  --file TEXT               the text\n"
	 "  --window N                positions at once (the context)\n"
	 "  --stride N                new positions per window (half of it)\n"
	 "  --json\n"},
	{"tokenize", cmd_tokenize, "DIR [--text T | --file F]",
	 "text to token ids",
	 "  --text T | --file F       (else stdin)\n"
	 "  --no-special              without the tokenizer's own additions\n"
	 "  --specials-as-text        special tokens in the text are text\n"
	 "  --jsonl                   a JSON string a line\n"},
	{"detokenize", cmd_detokenize, "DIR --ids LIST", "token ids to text",
	 "  --ids LIST|@FILE\n"
	 "  --keep-special            show special tokens\n"
	 "  --stream                  the pieces, one per token and the rest\n"
	 "  --jsonl                   a JSON array a line\n"},
	{"template", cmd_template, "DIR|FILE.jinja --messages FILE.json",
	 "render a chat template",
	 "  --messages FILE.json      the conversation\n"
	 "  --tools FILE.json\n"
	 "  --no-generation-prompt --continue\n"
	 "  --var name=JSON           a further variable (repeatable)\n"
	 "  --now 2024-07-26T13:14:15 the clock\n"
	 "  --jsonl                   an object a line\n"},
	{"run", cmd_run, "MODEL.onnx [--input NAME=FILE]...",
	 "run a single graph",
	 "  --input NAME=FILE         .npy or TensorProto .pb\n"
	 "  --output-dir D            write OUTPUT.npy there\n"
	 "  --node-tests PATH...      folders of the ONNX backend tests\n"
	 "  --rtol X --atol X --list  for these\n"},
	{"inspect", cmd_inspect, "DIR|MODEL.onnx", "what a model needs",
	 "  --device-limit BYTES --weight-budget BYTES\n"
	 "  --json\n"},
	{"bench", cmd_bench, "DIR", "measure speed",
	 "  --prompt-tokens 16,512    sizes of prompts (16)\n"
	 "  --new-tokens N            after each (128)\n"
	 "  --depth 0,2048            positions before the prompt (0)\n"
	 "  --repeat N                measured runs of a row, after one to "
	 "warm up (5)\n"
	 "  --weight-budget LIST      rows for each: bytes, 50%, auto\n"
	 "  --device-limit LIST       rows for each: bytes, 75%, auto\n"
	 "  --matrix executor=A|B,pager=C|D   rows for all combinations;\n"
	 "                            also stream= and barrier=\n"
	 "  --json FILE               the rows, as JSON\n"
	 "  --plot FILE.svg           decode rate over the budget, and its "
	 "floor\n"
	 "The status is 1 when two rows give different tokens.\n"},
	{"import", cmd_import, "FILE.gguf -o DIR",
	 "a GGUF file to a model folder",
	 "  -o DIR                    the folder to make\n"
	 "  --overwrite               replace it\n"},
	{"synth", cmd_synth, "ARCH -o DIR",
	 "a model of a real size with random weights",
	 "  --list [--json]           the architectures\n"
	 "  -o DIR  --seed N  --bits 4  --block 32  --layers N  --dtype "
	 "fp16|fp32\n"
	 "  --context N               positions it allows\n"
	 "  --overwrite               replace it\n"},
	{"modules", cmd_modules, "[--json]", "the modules of this configuration",
	 "  --json\n"},
	{"config", cmd_config, "[--json]", "every effective key and its origin",
	 "  --json\n"},
	{NULL, NULL, NULL, NULL, NULL},
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
	for (const struct command *k = commands; k->name; k++)
		fprintf(f, "  %-11s %s\n", k->name, k->summary);
	fprintf(f, "\n%s\nSee also: genai help COMMAND\n", common);
}

static int help(struct cli *c, const char *name)
{
	for (const struct command *k = commands; k->name; k++)
		if (!strcmp(k->name, name)) {
			printf("usage: genai %s %s\n%s.\n\n%s\n%s", k->name,
			       k->args, k->summary, k->help, common);
			return 0;
		}
	return cli_usage(c, "no command %s", name);
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
	fprintf(stderr, "genai: error: %s\n", c->err.text);
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
		bool config = !strncmp(a, "--config", 8) &&
			      (!a[8] || a[8] == '=');
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

int main(int argc, char **argv)
{
	static struct cli c = {.err = GENAI_ERROR_INIT};

	signal(SIGXFSZ, SIG_IGN); // a write beyond ulimit -f fails instead
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
	if (!strcmp(argv[1], "help"))
		return finish(&c, help(&c, argv[2]));
	for (const struct command *k = commands; k->name; k++) {
		if (strcmp(k->name, argv[1]))
			continue;
		for (int i = 2; i < argc; i++)
			if (!strcmp(argv[i], "--help"))
				return finish(&c, help(&c, k->name));
		c.command = k->name;
		return finish(&c, k->run(&c, argc - 1, argv + 1));
	}
	return cli_usage(&c, "no command %s", argv[1]);
}
