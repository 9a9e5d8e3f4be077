// import.c - import and synth: making model folders.
#include "tools/cli.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "core/gguf/gguf.h"
#include "core/modelgen/modelgen.h"

struct meter {
	const struct cli *c;
	const char *what;
	double last;
};

static int progress(void *ctx, uint64_t done, uint64_t total)
{
	struct meter *m = ctx;
	double now = cli_now();

	if (!m->c->quiet && !m->c->no_progress && isatty(2) && total &&
	    (now - m->last > 0.2 || done == total)) {
		m->last = now;
		fprintf(stderr, "\r%s %3.0f %%, %.1f of %.1f MiB%s", m->what,
			100.0 * (double)done / (double)total,
			(double)done / 1048576, (double)total / 1048576,
			done == total ? "\n" : "");
	}
	return cli_interrupted;
}

int cmd_import(struct cli *c, int argc, char **argv)
{
	static const struct option opts[] = {
		{"overwrite", no_argument, NULL, 'O'},
		{NULL, 0, NULL, 0}};
	struct meter m = {c, "importing", 0};
	struct genai_import_options o = {.progress = progress,
					 .progress_ctx = &m};
	const char *out = NULL;
	int opt;

	opterr = 0;
	while ((opt = getopt_long(argc, argv, "o:", opts, NULL)) != -1) {
		if (opt == 'o')
			out = optarg;
		else if (opt == 'O')
			o.overwrite = true;
		else
			return cli_usage(c, "unknown option or missing value: "
					    "%s",
					 argv[optind - 1]);
	}
	if (optind + 1 != argc || !out)
		return cli_usage(c, "a .gguf file and -o DIR are needed");
	cli_catch_interrupts();
	if (genai_gguf_import(argv[optind], out, &o, &c->err))
		return cli_fail(c);
	if (!c->quiet)
		fprintf(stderr, "genai: wrote %s\n", out);
	return 0;
}

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

int cmd_synth(struct cli *c, int argc, char **argv)
{
	static const struct option opts[] = {
		{"list", no_argument, NULL, 'l'},
		{"json", no_argument, NULL, 'j'},
		{"seed", required_argument, NULL, 's'},
		{"bits", required_argument, NULL, 'b'},
		{"block", required_argument, NULL, 'B'},
		{"layers", required_argument, NULL, 'L'},
		{"context", required_argument, NULL, 'C'},
		{"dtype", required_argument, NULL, 'd'},
		{"overwrite", no_argument, NULL, 'O'},
		{NULL, 0, NULL, 0}};
	struct meter m = {c, "writing", 0};
	struct genai_synth_options o = {.progress = progress,
					.progress_ctx = &m};
	int64_t seed = 0, bits = 0, block = 0, layers = 0, context = 0;
	const char *out = NULL;
	bool want_list = false, json = false, ok = true;
	int opt;

	opterr = 0;
	while (ok && (opt = getopt_long(argc, argv, "o:", opts, NULL)) != -1) {
		switch (opt) {
		case 'o':
			out = optarg;
			break;
		case 'l':
			want_list = true;
			break;
		case 'j':
			json = true;
			break;
		case 's':
			ok = cli_int(c, "--seed", optarg, 0, INT64_MAX, &seed);
			break;
		case 'b':
			ok = cli_int(c, "--bits", optarg, 4, 8, &bits);
			break;
		case 'B':
			ok = cli_int(c, "--block", optarg, 16, 128, &block);
			break;
		case 'L':
			ok = cli_int(c, "--layers", optarg, 1, 1024, &layers);
			break;
		case 'C':
			ok = cli_int(c, "--context", optarg, 1, 1 << 20,
				     &context);
			break;
		case 'd':
			ok = !strcmp(optarg, "fp16") || !strcmp(optarg, "fp32");
			o.io_dtype = !strcmp(optarg, "fp32") ? GENAI_DT_F32
							     : GENAI_DT_F16;
			if (!ok)
				cli_usage(c, "--dtype %s: fp16 or fp32", optarg);
			break;
		case 'O':
			o.overwrite = true;
			break;
		default:
			ok = false;
			cli_usage(c, "unknown option or missing value: %s",
				  argv[optind - 1]);
		}
	}
	if (!ok)
		return EXIT_USAGE;
	if (want_list)
		return list(json);
	if (optind + 1 != argc || !out)
		return cli_usage(c, "an architecture (--list) and -o DIR are "
				    "needed");
	o.seed = (uint64_t)seed;
	o.bits = (uint32_t)bits;
	o.block = (uint32_t)block;
	o.layers = (uint32_t)layers;
	o.context = (uint32_t)context;
	cli_catch_interrupts();
	if (genai_synth(argv[optind], out, &o, &c->err))
		return cli_fail(c);
	if (!c->quiet)
		fprintf(stderr, "genai: wrote %s\n", out);
	return 0;
}
