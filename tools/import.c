// import.c - import and synth: making model folders.
#include "tools/cache.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/config/spell.h"
#include "core/gguf/gguf.h"
#include "core/modelgen/modelgen.h"

struct meter {
	struct cli *c;
	const char *what;
};

static int progress(void *ctx, uint64_t done, uint64_t total)
{
	struct meter *m = ctx;

	if (total)
		cli_progress(m->c, "%s %3.0f %%, %.1f of %.1f MiB", m->what,
			     100.0 * (double)done / (double)total,
			     (double)done / 1048576, (double)total / 1048576);
	return cli_interrupted;
}

static struct {
	const char *file, *out;
	struct genai_import_options o;
} imp;

static const struct cli_option import_options[] = {
	{NULL, 'o', CLI_TEXT, "DIR",
	 "the folder to make; without: the cache, "
	 "and print it",
	 &imp.out},
	{"overwrite", 0, CLI_FLAG, NULL, "replace it", &imp.o.overwrite},
	{"for-onnxruntime", 0, CLI_FLAG, NULL, "in the form that is fast there",
	 &imp.o.for_onnxruntime},
	{0}};

// Where the commands that are given the file find it; the folder is printed.
static int import_to_cache(struct cli *c)
{
	char folder[4200];

	if (imp.o.overwrite || imp.o.for_onnxruntime)
		return cli_usage(c, "--%s goes with -o",
				 imp.o.overwrite ? "overwrite"
						 : "for-onnxruntime");
	if (cache_import(c, imp.file, folder, sizeof(folder)))
		return cli_fail(c);
	cli_clear_line(c);
	printf("%s\n", folder);
	return 0;
}

static int import(struct cli *c, int argc, char **argv)
{
	struct meter m = {c, "importing"};
	int status = cli_argument(c, import_options, argc, argv,
				  "one .gguf file", &imp.file);

	if (status)
		return status;
	imp.o.progress = progress;
	imp.o.progress_ctx = &m;
	cli_catch_interrupts(1);
	if (!imp.out)
		return import_to_cache(c);
	if (genai_gguf_import(imp.file, imp.out, &imp.o, &c->err))
		return cli_fail(c);
	cli_clear_line(c);
	if (!c->quiet)
		fprintf(stderr, "genai: wrote %s\n", imp.out);
	return 0;
}

const struct command cmd_import = {"import",
				   import,
				   "FILE.gguf [-o DIR]",
				   "a GGUF file to a model folder",
				   import_options,
				   NULL};

static int list(bool json)
{
	json_t *a = json_array();
	struct genai_synth_info i;

	for (uint32_t k = 0; genai_synth_list(k, &i); k++) {
		if (json)
			json_array_append_new(
				a,
				json_pack("{s:s, s:i, s:i, s:i, s:I}", "name",
					  i.name, "layers", (int)i.layers,
					  "hidden", (int)i.hidden, "vocab",
					  (int)i.vocab, "weight_bytes",
					  (json_int_t)i.weight_bytes));
		else
			printf("%-16s %2u layers, hidden %u, %.2f GiB\n",
			       i.name, i.layers, i.hidden,
			       (double)i.weight_bytes / 1073741824.0);
	}
	if (json)
		cli_print_json(json_incref(a));
	json_decref(a);
	return 0;
}

static struct {
	const char *out;
	int64_t seed, bits, block, layers, context;
	bool list, json;
	struct genai_synth_options o;
} syn;

static int set_dtype(struct cli *c, const char *value)
{
	bool full = !strcmp(value, "fp32");

	if (!full && strcmp(value, "fp16"))
		return cli_usage(c, "--dtype %s: fp16 or fp32", value);
	syn.o.io_dtype = full ? GENAI_DT_F32 : GENAI_DT_F16;
	return 0;
}

static const struct cli_option synth_options[] = {
	{"list", 0, CLI_FLAG, NULL, "the architectures", &syn.list},
	{"json", 0, CLI_FLAG, NULL, "them as a JSON array", &syn.json},
	{NULL, 'o', CLI_TEXT, "DIR", "the folder to make", &syn.out},
	{"seed", 0, CLI_INT, "N", "of the weights (0)", &syn.seed, 0,
	 INT64_MAX},
	{"bits", 0, CLI_INT, "N", "of a weight: 4 or 8 (4)", &syn.bits, 4, 8},
	{"block", 0, CLI_INT, "N", "weights that share a scale (32)",
	 &syn.block, 16, 128},
	{"layers", 0, CLI_INT, "N", "fewer than the model has", &syn.layers, 1,
	 1024},
	{.name = "dtype",
	 .kind = CLI_CALL,
	 .arg = "fp16|fp32",
	 .help = "of activations",
	 .call = set_dtype},
	{"context", 0, CLI_INT, "N", "positions it allows", &syn.context, 1,
	 1 << 20},
	{"overwrite", 0, CLI_FLAG, NULL, "replace it", &syn.o.overwrite},
	{0}};

// No such architecture: which one was meant, perhaps.
static void near_miss(struct cli *c, const char *name)
{
	struct genai_spell spell = {.word = name};
	struct genai_synth_info i;

	for (uint32_t k = 0; genai_synth_list(k, &i); k++) {
		if (!strcasecmp(i.name, name))
			return; // the error is another one
		genai_spell_offer(&spell, i.name);
	}
	if (spell.best)
		genai_fail(&c->err, GENAI_E_NOTFOUND,
			   "synth: no architecture '%s', did you mean %s? "
			   "(genai synth --list)",
			   name, spell.best);
}

static int synth(struct cli *c, int argc, char **argv)
{
	struct meter m = {c, "writing"};
	struct genai_synth_options *o = &syn.o;
	int at = cli_options(c, synth_options, argc, argv);

	if (at < 0)
		return -at;
	if (syn.list)
		return list(syn.json);
	if (at + 1 != argc || !syn.out)
		return cli_usage(c, "an architecture (--list) and -o DIR are "
				    "needed");
	o->seed = (uint64_t)syn.seed;
	o->bits = (uint32_t)syn.bits;
	o->block = (uint32_t)syn.block;
	o->layers = (uint32_t)syn.layers;
	o->context = (uint32_t)syn.context;
	o->progress = progress;
	o->progress_ctx = &m;
	cli_catch_interrupts(1);
	if (genai_synth(argv[at], syn.out, o, &c->err)) {
		near_miss(c, argv[at]);
		return cli_fail(c);
	}
	cli_clear_line(c);
	if (!c->quiet)
		fprintf(stderr, "genai: wrote %s\n", syn.out);
	return 0;
}

const struct command cmd_synth = {
	"synth",       synth,
	"ARCH -o DIR", "a model of a real size with random weights",
	synth_options, NULL};
