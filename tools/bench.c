// bench.c - speed: rates beside the floor that they cannot pass.
//
// Protocol: batch 1, greedy, end of text ignored; a warm-up run, then the
// median and the spread of the repeats; the same tokens in every row or a word
// about it.
#include "tools/bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/rates.h"

// In the order of the rows: the last changes fastest.
enum { STREAM = 1, PAGER = 3, LIMIT, BUDGET, N_AXES };
static struct bench_axis axes[N_AXES] = {
	{.key = "executor"}, {.key = "stream"},	      {.key = "barrier"},
	{.key = "pager"},    {.key = "device_limit"}, {.key = "weight_budget"},
};

static const char *json_path, *plot_path, *csv_path;
static json_t *csv_rows; // of csv_path

// ---- running ----

// In a runtime of their own: what they take is no row's peak.
static int32_t measure_ceilings(struct bench *b, struct cli *c)
{
	struct genai_runtime *rt;
	time_t measured;
	int32_t rc = cli_runtime(c, &rt);

	if (rc)
		return rc;
	rc = rates_of(c, rt, true, &b->ceil, &measured);
	if (!rc) {
		snprintf(b->device, sizeof(b->device), "%s",
			 rt->device.caps.device_name);
		b->headed = false;
	}
	genai_close(rt);
	return rc;
}

// Of the rows from at on: in a runtime whose units are timed, so that nothing of
// that is in the rates.
static int32_t profiles_of(struct bench *b, struct cli *c, size_t at)
{
	struct cli_model m;
	int32_t rc;

	c->opened = profile_open;
	rc = cli_open(c, b->path, 0, &m);
	for (size_t p = 0; !rc && p < b->n_prompts; p++)
		for (size_t d = 0; !rc && d < b->n_depths; d++)
			rc = bench_profile(b, &m, &c->err, p, d,
					   json_array_get(b->rows, at++));
	cli_close(&m);
	profile_close();
	c->opened = NULL;
	return rc;
}

static int32_t rows_of(struct bench *b, struct cli *c, bool new_device)
{
	struct cli_model m;
	size_t at;
	int32_t rc = 0;

	if (new_device)
		rc = measure_ceilings(b, c);
	if (rc)
		return rc;
	if (b->n_seqs)
		return bench_engine(b, c);
	at = json_array_size(b->rows);
	rc = cli_open(c, b->path, 0, &m);
	for (size_t p = 0; !rc && p < b->n_prompts; p++)
		for (size_t d = 0; !rc && d < b->n_depths; d++)
			rc = bench_row(b, &m, &c->err, p, d);
	cli_close(&m);
	return rc || !b->profile ? rc : profiles_of(b, c, at);
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
	json_t *j = json_pack("{s:s, s:s, s:o, s:o, s:f, s:f, s:b, s:O}",
			      "model", b->path, "device", b->device,
			      "memory_bytes_s",
			      cli_real(b->ceil.memory_bytes_s), "link_bytes_s",
			      cli_real(b->ceil.link_bytes_s), "host_bytes_s",
			      b->ceil.host_bytes_s, "host_link_bytes_s",
			      b->ceil.busy_link_bytes_s, "tokens_same",
			      !b->differ, "rows", b->rows);
	int rc;

	if (!j)
		return genai_fail(&b->c->err, GENAI_E_FORMAT,
				  "%s: the model's path is not UTF-8", path);
	if (csv_rows)
		json_object_set(j, "profiler", csv_rows);
	errno = 0;
	rc = json_dump_file(j, path, JSON_INDENT(1));
	json_decref(j);
	return rc ? genai_fail(&b->c->err, GENAI_E_IO, "%s: cannot write: %s",
			       path, strerror(errno))
		  : 0;
}

// ---- options ----

static struct bench bench = {.prompts = {16},
			     .n_prompts = 1,
			     .n_depths = 1,
			     .new_tokens = 128,
			     .repeat = 5};

static int list_of(struct cli *c, const char *option, const char *arg,
		   int64_t lo, int64_t *out, size_t *out_n)
{
	int64_t *ids;
	size_t n;
	bool ok;

	if (!cli_ids(c, arg, &ids, &n))
		return cli_usage(c, "%s %s: numbers are needed", option, arg);
	ok = n && n <= BENCH_MAX_LIST;
	for (size_t i = 0; ok && i < n; i++) {
		ok = ids[i] >= lo;
		out[i] = ids[i];
	}
	*out_n = n;
	free(ids);
	return ok ? 0
		  : cli_usage(c, "%s %s: 1 to %d numbers from %d", option, arg,
			      BENCH_MAX_LIST, (int)lo);
}

static int set_prompts(struct cli *c, const char *value)
{
	return list_of(c, "--prompt-tokens", value, 1, bench.prompts,
		       &bench.n_prompts);
}

static int set_depths(struct cli *c, const char *value)
{
	return list_of(c, "--depth", value, 0, bench.depths, &bench.n_depths);
}

static int set_sequences(struct cli *c, const char *value)
{
	int rc = list_of(c, "--sequences", value, 1, bench.seqs, &bench.n_seqs);

	for (size_t i = 0; !rc && i < bench.n_seqs; i++)
		if (bench.seqs[i] > GENAI_MAX_SEQS)
			rc = cli_usage(c, "--sequences %s: at most %d", value,
				       GENAI_MAX_SEQS);
	return rc;
}

// Values between any of sep; they stay in arg.
static bool values_of(struct bench_axis *a, const char *value, const char *sep)
{
	char *arg = (char *)(uintptr_t)value, *save; // argv may be written

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
static bool matrix_of(const char *matrix)
{
	char *arg = (char *)(uintptr_t)matrix, *save;
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

static int set_budgets(struct cli *c, const char *value)
{
	return values_of(&axes[BUDGET], value, ",")
		       ? 0
		       : cli_usage(c, "--weight-budget: 1 to %d values",
				   BENCH_MAX_LIST);
}

static int set_limits(struct cli *c, const char *value)
{
	return values_of(&axes[LIMIT], value, ",")
		       ? 0
		       : cli_usage(c, "--device-limit: 1 to %d values",
				   BENCH_MAX_LIST);
}

static int set_matrix(struct cli *c, const char *value)
{
	return matrix_of(value)
		       ? 0
		       : cli_usage(c, "--matrix: executor=A|B,pager=C|D; also "
				      "stream= and barrier=, each once");
}

static const struct cli_option options[] = {
	{.name = "prompt-tokens",
	 .letter = 'p',
	 .kind = CLI_CALL,
	 .arg = "16,512",
	 .help = "sizes of prompts (16)",
	 .call = set_prompts},
	{"new-tokens", 'n', CLI_INT, "N", "after each (128)", &bench.new_tokens,
	 2, 1 << 20},
	{.name = "depth",
	 .letter = 'd',
	 .kind = CLI_CALL,
	 .arg = "0,2048",
	 .help = "positions before the prompt (0)",
	 .call = set_depths},
	{.name = "sequences",
	 .kind = CLI_CALL,
	 .arg = "1,8,32",
	 .help = "so many requests at once, by the engine",
	 .call = set_sequences},
	{"cold", 0, CLI_FLAG, NULL,
	 "drop the files from the system's cache before each step",
	 &bench.cold},
	{"repeat", 'r', CLI_INT, "N",
	 "measured runs of a row, after one to warm up (5)", &bench.repeat, 1,
	 BENCH_MAX_REPEAT},
	{.name = "weight-budget",
	 .kind = CLI_CALL,
	 .arg = "LIST",
	 .help = "rows for each: bytes, 50%, auto",
	 .call = set_budgets},
	{.name = "device-limit",
	 .kind = CLI_CALL,
	 .arg = "LIST",
	 .help = "rows for each: bytes, 75%, auto",
	 .call = set_limits},
	{.name = "matrix",
	 .kind = CLI_CALL,
	 .arg = "executor=A|B,pager=C|D",
	 .help = "rows for all combinations",
	 .call = set_matrix},
	{"profile", 0, CLI_FLAG, NULL,
	 "where the time of a prompt and of a token goes, too", &bench.profile},
	{"profile-csv", 0, CLI_TEXT, "FILE",
	 "the same of kernels, from the CSV of a profiler (ncu)", &csv_path},
	{"json", 0, CLI_TEXT, "FILE", "the rows, as JSON", &json_path},
	{"plot", 0, CLI_TEXT, "FILE.svg",
	 "decode rate over the budget, and its floor", &plot_path},
	{"model", 'm', CLI_TEXT, "DIR", "the model, where DIR is not given",
	 &bench.path},
	{0}};

// Files that cannot be written are said before anything is measured.
static int32_t check_writable(struct cli *c, const char *path)
{
	bool there;
	FILE *f;

	if (!path)
		return 0;
	there = !access(path, F_OK);
	f = fopen(path, "ae");
	if (!f)
		return genai_fail(&c->err, GENAI_E_IO, "%s: cannot write: %s",
				  path, strerror(errno));
	fclose(f);
	if (!there)
		unlink(path);
	return 0;
}

static int run(struct cli *c, int argc, char **argv)
{
	struct bench *b = &bench;
	int status = cli_argument(c, options, argc, argv, "one model folder",
				  &b->path);

	if (status)
		return status;
	if (b->n_seqs && (plot_path || b->cold || b->profile ||
			  b->n_depths != 1 || b->depths[0]))
		return cli_usage(c, "--sequences: not with --plot, --cold, "
				    "--profile or --depth");
	b->c = c;
	b->rows = json_array();
	cli_catch_interrupts(1);
	if ((csv_path && profile_csv(c, csv_path, &csv_rows)) ||
	    check_writable(c, json_path) || check_writable(c, plot_path) ||
	    run_all(b) || (json_path && write_json(b, json_path)) ||
	    (plot_path && bench_plot(b->rows, b->path, plot_path, &c->err)))
		status = cli_fail(c);
	if (!status && b->differ)
		status = EXIT_REQUEST;
	if (!status && csv_rows)
		profile_print(csv_rows, csv_path);
	json_decref(csv_rows);
	json_decref(b->rows);
	return status;
}

const struct command cmd_bench = {
	"bench",
	run,
	"DIR",
	"measure speed",
	options,
	"A row has the medians and the spread of the repeats, the bytes that "
	"a token\n"
	"reads, those moved over the link and how fast, the peak of device "
	"memory, and\n"
	"the floor: no step takes less than its bytes at the measured rates.\n"
	"With --sequences it has all new tokens over the time from the first request to\n"
	"the last one's end, and when the middle and the last one had its first token.\n"
	"With --profile a table after the rows of a configuration says what the device\n"
	"did how long in a step, each unit by itself, nothing recorded: GB/s of weights\n"
	"that a unit reads, or of bytes that are copied.\n"
	"The status is 1 when two rows give different tokens.\n"};
