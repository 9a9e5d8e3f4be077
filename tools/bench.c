// bench.c - speed: rates beside the floor that they cannot pass.
//
// Protocol: batch 1, greedy, end of text ignored; a warm-up run, then the
// median and the spread of the repeats; the same tokens in every row or a word
// about it.
#include "tools/bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// In the order of the rows: the last changes fastest.
enum { STREAM = 1, PAGER = 3, LIMIT, BUDGET, N_AXES };
static struct bench_axis axes[N_AXES] = {
	{.key = "executor"}, {.key = "stream"},	      {.key = "barrier"},
	{.key = "pager"},    {.key = "device_limit"}, {.key = "weight_budget"},
};

// ---- running ----

// In a runtime of their own: what they take is no row's peak.
static int32_t measure_ceilings(struct bench *b, struct cli *c)
{
	struct genai_runtime *rt;
	int32_t rc = cli_runtime(c, &rt);

	if (rc)
		return rc;
	rc = ceilings_measure(rt, &b->ceil, &c->err);
	if (!rc) {
		snprintf(b->device, sizeof(b->device), "%s",
			 rt->device.caps.device_name);
		b->headed = false;
	}
	genai_close(rt);
	return rc;
}

static int32_t rows_of(struct bench *b, struct cli *c, bool new_device)
{
	struct cli_model m;
	int32_t rc = 0;

	if (new_device)
		rc = measure_ceilings(b, c);
	if (rc)
		return rc;
	rc = cli_open(c, b->path, 0, &m);
	for (size_t p = 0; !rc && p < b->n_prompts; p++)
		for (size_t d = 0; !rc && d < b->n_depths; d++)
			rc = bench_row(b, &m, &c->err, p, d);
	cli_close(&m);
	return rc;
}

static int32_t one_config(struct bench *b, const size_t *turn)
{
	char sets[N_AXES][300];
	struct cli c = *b->c;
	bool new_device = !b->device[0] || turn[STREAM] != b->stream;
	int32_t rc;

	for (size_t i = 0; i < N_AXES; i++) {
		if (!axes[i].n)
			continue;
		if (c.n_sets == MAX_SETS)
			return genai_fail(&b->c->err, GENAI_E_CONFIG,
					  "more than %d --set", MAX_SETS);
		snprintf(sets[i], sizeof(sets[i]), "runtime.%s=%s", axes[i].key,
			 axes[i].values[turn[i]]);
		c.sets[c.n_sets++] = sets[i];
	}
	rc = rows_of(b, &c, new_device);
	b->stream = turn[STREAM];
	b->c->err = c.err;
	b->c->config_failed = c.config_failed;
	return rc;
}

// The next combination of values; false after the last.
static bool next(size_t *turn)
{
	for (size_t i = N_AXES; i-- > 0;) {
		if (++turn[i] < axes[i].n)
			return true;
		turn[i] = 0;
	}
	return false;
}

static int32_t run_all(struct bench *b)
{
	size_t n = b->n_prompts * b->n_depths * (size_t)b->new_tokens;
	size_t turn[N_AXES] = {0};
	int32_t rc;

	b->tokens = malloc(n * sizeof(*b->tokens));
	if (!b->tokens)
		return genai_fail(&b->c->err, GENAI_E_NOMEM, "no memory");
	memset(b->tokens, 0xff, n * sizeof(*b->tokens));
	do {
		rc = one_config(b, turn);
	} while (!rc && next(turn));
	free(b->tokens);
	return rc;
}

static int32_t write_json(struct bench *b, const char *path)
{
	json_t *j = json_pack("{s:s, s:s, s:o, s:o, s:b, s:O}", "model",
			      b->path, "device", b->device, "memory_bytes_s",
			      cli_real(b->ceil.memory_bytes_s), "link_bytes_s",
			      cli_real(b->ceil.link_bytes_s), "tokens_same",
			      !b->differ, "rows", b->rows);
	int rc;

	if (!j)
		return genai_fail(&b->c->err, GENAI_E_FORMAT,
				  "%s: the model's path is not UTF-8", path);
	errno = 0;
	rc = json_dump_file(j, path, JSON_INDENT(1));
	json_decref(j);
	return rc ? genai_fail(&b->c->err, GENAI_E_IO, "%s: cannot write: %s",
			       path, strerror(errno))
		  : 0;
}

// ---- options ----

static bool list_of(struct cli *c, const char *arg, int64_t lo, int64_t *out,
		    size_t *out_n)
{
	int64_t *ids;
	size_t n;
	bool ok;

	if (!cli_ids(c, arg, &ids, &n))
		return false;
	ok = n && n <= BENCH_MAX_LIST;
	for (size_t i = 0; ok && i < n; i++) {
		ok = ids[i] >= lo;
		out[i] = ids[i];
	}
	*out_n = n;
	free(ids);
	return ok;
}

// Values between any of sep; they stay in arg.
static bool values_of(struct bench_axis *a, char *arg, const char *sep)
{
	char *save;

	a->n = 0;
	for (char *t = strtok_r(arg, sep, &save); t;
	     t = strtok_r(NULL, sep, &save)) {
		if (a->n == BENCH_MAX_LIST || strlen(t) > 255)
			return false;
		a->values[a->n++] = t;
	}
	return a->n > 0;
}

// executor=a|b,pager=c|d
static bool matrix_of(char *arg)
{
	char *save;
	bool any = false;

	for (char *t = strtok_r(arg, ",", &save); t;
	     t = strtok_r(NULL, ",", &save)) {
		char *value = strchr(t, '=');
		size_t i = 0;

		if (!value)
			return false;
		*value++ = 0;
		while (i <= PAGER && strcmp(axes[i].key, t))
			i++;
		if (i > PAGER || axes[i].n || !values_of(&axes[i], value, "|"))
			return false;
		any = true;
	}
	return any;
}

static bool option(struct bench *b, int opt, char *arg, const char **json,
		   const char **plot)
{
	struct cli *c = b->c;

	switch (opt) {
	case 'p':
		return list_of(c, arg, 1, b->prompts, &b->n_prompts);
	case 'd':
		return list_of(c, arg, 0, b->depths, &b->n_depths);
	case 'n':
		return cli_int(c, "--new-tokens", arg, 2, 1 << 20,
			       &b->new_tokens);
	case 'r':
		return cli_int(c, "--repeat", arg, 1, BENCH_MAX_REPEAT,
			       &b->repeat);
	case 'w':
		return values_of(&axes[BUDGET], arg, ",");
	case 'l':
		return values_of(&axes[LIMIT], arg, ",");
	case 'm':
		return matrix_of(arg);
	case 'j':
		*json = arg;
		return true;
	case 'P':
		*plot = arg;
		return true;
	default:
		return false;
	}
}

int cmd_bench(struct cli *c, int argc, char **argv)
{
	static const struct option opts[] = {
		{"prompt-tokens", required_argument, NULL, 'p'},
		{"new-tokens", required_argument, NULL, 'n'},
		{"depth", required_argument, NULL, 'd'},
		{"repeat", required_argument, NULL, 'r'},
		{"weight-budget", required_argument, NULL, 'w'},
		{"device-limit", required_argument, NULL, 'l'},
		{"matrix", required_argument, NULL, 'm'},
		{"json", required_argument, NULL, 'j'},
		{"plot", required_argument, NULL, 'P'},
		{NULL, 0, NULL, 0}};
	static struct bench b = {.prompts = {16},
				 .n_prompts = 1,
				 .n_depths = 1,
				 .new_tokens = 128,
				 .repeat = 5};
	const char *json = NULL, *plot = NULL;
	int opt, status = 0;

	b.c = c;
	opterr = 0;
	while ((opt = getopt_long(argc, argv, "", opts, NULL)) != -1)
		if (!option(&b, opt, optarg, &json, &plot))
			return opt == 'n' || opt == 'r' // has been said
				       ? EXIT_USAGE
				       : cli_usage(c, "bad option or value: %s",
						   argv[optind - 1]);
	if (optind + 1 != argc)
		return cli_usage(c, "one model folder is needed");
	b.path = argv[optind];
	b.rows = json_array();
	cli_catch_interrupts();
	if (run_all(&b) || (json && write_json(&b, json)) ||
	    (plot && bench_plot(b.rows, b.path, plot, &c->err)))
		status = cli_fail(c);
	if (!status && b.differ)
		status = EXIT_REQUEST;
	json_decref(b.rows);
	return status;
}
