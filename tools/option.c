// option.c - the options of a command: one table is what is parsed, what help
// shows and what a shell completes.
#include "tools/cli.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "core/config/spell.h"

#define MAX_OPTIONS 40
#define BY_ROW 256 // what getopt_long returns for row 0

static const char *label(const struct cli_option *o, char *buf, size_t cap)
{
	if (o->name)
		snprintf(buf, cap, "--%s", o->name);
	else
		snprintf(buf, cap, "-%c", o->letter);
	return buf;
}

// What is given to getopt_long.
struct forms {
	struct option longs[MAX_OPTIONS + 1];
	char shorts[2 * MAX_OPTIONS + 2];
	uint32_t n;
};

static void make_forms(const struct cli_option *table, struct forms *f)
{
	char *s = f->shorts;
	struct option *l = f->longs;

	*s++ = ':'; // a missing value is told from an unknown option
	for (f->n = 0; table[f->n].name || table[f->n].letter; f->n++) {
		const struct cli_option *o = &table[f->n];

		if (o->name)
			*l++ = (struct option){o->name,
					       o->arg ? required_argument
						      : no_argument,
					       NULL, BY_ROW + (int)f->n};
		if (o->letter) {
			*s++ = o->letter;
			if (o->arg)
				*s++ = ':';
		}
	}
	*s = 0;
	*l = (struct option){NULL, 0, NULL, 0};
}

static int take(struct cli *c, const struct cli_option *o, const char *value)
{
	char name[64];
	int64_t hi;

	if (o->given)
		*o->given = true;
	switch (o->kind) {
	case CLI_FLAG:
		*(bool *)o->to = true;
		if (o->name && !strcmp(o->name, "json"))
			c->json = true;
		return 0;
	case CLI_TEXT:
		*(const char **)o->to = value;
		return 0;
	case CLI_INT:
		hi = o->hi < 0x1p63 ? (int64_t)o->hi : INT64_MAX;
		return cli_int(c, label(o, name, sizeof(name)), value,
			       (int64_t)o->lo, hi, o->to)
			       ? 0
			       : EXIT_USAGE;
	case CLI_NUM:
		return cli_num(c, label(o, name, sizeof(name)), value, o->lo,
			       o->hi, o->to)
			       ? 0
			       : EXIT_USAGE;
	case CLI_CALL:
		return o->call(c, value);
	}
	return 0;
}

// An option that is none of the table's.  What other programs call it is
// answered with what it is here.
static const struct {
	const char *theirs, *ours;
} known[] = {
	{"-ngl", "--set runtime.weight_budget=50% says how much of "
		 "the weights the device holds"},
	{"--n-gpu-layers", "--set runtime.weight_budget=50% says how "
			   "much of the weights the device holds"},
	{"-t", "--set module.cpu_ref.threads=N"},
	{"--threads", "--set module.cpu_ref.threads=N"},
	{"-c", "--set runtime.context=N"},
	{"--ctx-size", "--set runtime.context=N"},
	{"--temp", "it is --temperature here"},
	{"--n-predict", "it is --max-new-tokens here"},
	{"-f", "it is --prompt-file here"},
	{"-s", "it is --seed here"},
	{"-i", "genai chat holds a conversation"},
	{"-cnv", "genai chat holds a conversation"},
};
#define N_KNOWN (sizeof(known) / sizeof(known[0]))

static int unknown(struct cli *c, const struct cli_option *table,
		   const char *given)
{
	size_t n = strcspn(given, "=");
	char word[64];
	struct genai_spell near = {.word = word};

	for (size_t i = 0; i < N_KNOWN; i++)
		if (!strncmp(given, known[i].theirs, n) && !known[i].theirs[n])
			return cli_usage(c, "unknown option %s: %s",
					 known[i].theirs, known[i].ours);
	snprintf(word, sizeof(word), "%.*s", (int)(n < 60 ? n : 60), given);
	if (word[0] == '-' && word[1] == '-') {
		near.word = word + 2;
		for (; table->name || table->letter; table++)
			if (table->name)
				genai_spell_offer(&near, table->name);
	}
	if (near.best)
		return cli_usage(c, "unknown option %s; did you mean --%s?",
				 word, near.best);
	return cli_usage(c, "unknown option %s", word);
}

int cli_options(struct cli *c, const struct cli_option *table, int argc,
		char **argv)
{
	struct forms f;
	char buf[64];
	int opt;

	make_forms(table, &f);
	// letters run together, which getopt would take one by one
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
		for (size_t k = 0; k < N_KNOWN; k++)
			if (known[k].theirs[1] != '-' && known[k].theirs[2] &&
			    !strcmp(argv[i], known[k].theirs))
				return -unknown(c, table, argv[i]);
	opterr = 0;
	optind = 1;
	while ((opt = getopt_long(argc, argv, f.shorts, f.longs, NULL)) != -1) {
		uint32_t row = (uint32_t)opt - BY_ROW;
		int status;

		if (opt == ':') {
			row = optopt >= BY_ROW ? (uint32_t)optopt - BY_ROW
					       : f.n;
			if (row < f.n)
				label(&table[row], buf, sizeof(buf));
			else
				snprintf(buf, sizeof(buf), "-%c", optopt);
			return -cli_usage(c, "%s needs a value", buf);
		}
		if (opt == '?' && optopt >= BY_ROW)
			return -cli_usage(c, "--%s takes no value",
					  table[optopt - BY_ROW].name);
		if (opt == '?') {
			snprintf(buf, sizeof(buf), "-%c", optopt);
			return -unknown(c, table,
					optopt ? buf : argv[optind - 1]);
		}
		if (opt < BY_ROW)
			for (row = 0; table[row].letter != opt; row++)
				;
		status = take(c, &table[row], optarg);
		if (status)
			return -status;
	}
	return optind;
}

int cli_argument(struct cli *c, const struct cli_option *table, int argc,
		 char **argv, const char *what, const char **out)
{
	int at = cli_options(c, table, argc, argv);

	if (at < 0)
		return -at;
	if (!*out && at < argc)
		*out = argv[at++];
	if (!*out)
		return cli_usage(c, "%s is needed", what);
	if (at < argc)
		return cli_usage(c, "%s is needed, and nothing more: %s", what,
				 argv[at]);
	return 0;
}

void cli_options_help(const struct cli_option *table, FILE *f)
{
	for (; table->name || table->letter; table++) {
		char left[64];
		int n = 0;

		if (table->letter)
			n += snprintf(left + n, sizeof(left) - (size_t)n,
				      "-%c%s", table->letter,
				      table->name ? ", " : "");
		if (table->name)
			n += snprintf(left + n, sizeof(left) - (size_t)n,
				      "--%s", table->name);
		if (table->arg)
			snprintf(left + n, sizeof(left) - (size_t)n, " %s",
				 table->arg);
		fprintf(f, "  %-26s %s\n", left, table->help);
	}
}

void cli_options_words(const struct cli_option *table, FILE *f)
{
	for (; table->name || table->letter; table++) {
		if (table->name)
			fprintf(f, "--%s\n", table->name);
		if (table->letter)
			fprintf(f, "-%c\n", table->letter);
	}
}

int cli_set(struct cli *c, const char *key, const char *value)
{
	char *set;

	if (!value)
		return 0;
	if (c->n_sets == MAX_SETS)
		return cli_usage(c, "more than %d --set", MAX_SETS);
	set = malloc(strlen(key) + strlen(value) + 2);
	if (!set)
		return cli_usage(c, "no memory");
	sprintf(set, "%s=%s", key, value);
	c->sets[c->n_sets++] = set; // kept to the end of the program
	return 0;
}
