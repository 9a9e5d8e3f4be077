// plan.c - what a model would take here, how fast it would be, and what to
// write into genai.ini for that.  No weights are read.
#include "tools/cli.h"

#include <genai/engine.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pull/pull.h"
#include "tools/rates.h"

static struct {
	const char *path, *limit, *budget, *context;
	int64_t sequences; // 0: one session
	bool json;
} args;

// One way to run it.
struct way {
	char type[64], executor[64], stream[64], barrier[64], pager[64];
	struct genai_fit fit;
	struct genai_model_info info;
	struct ceilings ceil;
	time_t measured; // the ceilings; 0: the device says them
	double step_s;	// predicted, or the least there can be: a token of each
	double floor_s; // the least, by what bounds it
	bool predicted;
};

static bool runs_from_the_link(const struct way *w)
{
	return w->fit.streamed_bytes || w->fit.read_in_place_bytes ||
	       w->fit.beside_bytes;
}

// The weights that stay away over the link, and the time of the rest.
static double link_s(const struct way *w)
{
	const struct genai_fit *f = &w->fit;
	double s;

	if (!runs_from_the_link(w))
		return 0;
	s = ceilings_away_s(&w->ceil, (double)f->streamed_bytes +
					      (double)f->read_in_place_bytes +
					      (double)f->beside_bytes);
	if (f->streamed_bytes && f->page_bytes)
		s += (double)f->streamed_bytes / (double)f->page_bytes *
		     w->ceil.copy_s;
	return s;
}

static double memory_s(const struct way *w)
{
	// about half of the context, as it is while it fills
	double cache = (double)w->fit.cache_positions / 2 *
		       (double)w->info.kv_bytes_per_position;

	if (w->predicted)
		return (double)w->fit.resident_ns * 1e-9;
	return ((double)w->fit.read_bytes + cache) / w->ceil.memory_bytes_s;
}

// Plans take kernels that read host memory to reach 93 % of the link, as on a
// GPU, and no more than the memory's rate.  The simulated clock charges them
// the link's rate: the difference, for a byte.
static double in_place_loss(const struct way *w)
{
	double link = 1 / w->ceil.link_bytes_s;
	double memory = 1 / w->ceil.memory_bytes_s;

	return fmax(w->fit.async ? link / 0.93 : link, memory) - link;
}

static void predict(struct way *w)
{
	const struct genai_fit *f = &w->fit;
	double in_place = (double)f->read_in_place_bytes;
	double kernels, step;

	w->predicted = f->step_ns && w->ceil.counted;
	w->floor_s = fmax(memory_s(w), link_s(w));
	w->step_s = w->floor_s;
	if (!w->predicted)
		return;
	kernels = (double)f->resident_ns * 1e-9 +
		  in_place * (1 / w->ceil.link_bytes_s -
			      1 / w->ceil.memory_bytes_s);
	w->floor_s = fmax(kernels, link_s(w));
	step = (double)(f->async ? f->step_ns : f->serial_ns) * 1e-9 -
	       in_place * in_place_loss(w);
	w->step_s = fmax(w->floor_s, step) + f->copies * w->ceil.copy_s +
		    (double)f->copy_bytes / w->ceil.link_bytes_s;
}

// ---- one way ----

// max_blocks: of the cache that sequences share; 0: what there is room for.
static int32_t ask(struct cli *c, const char *path, uint32_t max_blocks,
		   struct way *w)
{
	struct genai_engine_options eo = {.size = sizeof(eo),
					  .max_sequences =
						  (uint32_t)args.sequences,
					  .max_blocks = max_blocks};
	struct genai_model_options o = {.size = sizeof(o),
					.flags = GENAI_MODEL_FIT};
	struct genai_runtime *rt = NULL;
	struct genai_model *model = NULL;
	int32_t rc = cli_runtime(c, &rt);

	if (!rc)
		rc = genai_model_open(rt, path, &o, &model, &c->err);
	w->fit.size = sizeof(w->fit);
	w->info.size = sizeof(w->info);
	if (!rc)
		rc = genai_model_get_fit(model, &w->fit, &c->err);
	if (!rc)
		rc = genai_model_get_info(model, &w->info);
	// what info points at goes with the model; whose memory an engine has
	snprintf(w->type, sizeof(w->type), "%s",
		 w->info.type ? w->info.type : "");
	w->info.type = NULL;
	w->info.eos = NULL;
	genai_model_close(model);
	if (!rc && args.sequences)
		rc = genai_engine_fit(rt, path, &eo, &w->fit, &c->err);
	if (!rc)
		rc = rates_of(c, rt, false, &w->ceil, &w->measured);
	if (!rc) {
		memcpy(w->executor, rt->executor.label, sizeof(w->executor));
		memcpy(w->stream, rt->stream.label, sizeof(w->stream));
		memcpy(w->barrier, rt->barrier.label, sizeof(w->barrier));
		memcpy(w->pager, rt->pager.label, sizeof(w->pager));
		predict(w);
	}
	genai_close(rt);
	return rc;
}

// The same with another executor or pager; NULL: the configuration's.
static int32_t ask_with(struct cli *c, const char *path, const char *executor,
			const char *pager, struct way *w)
{
	const uint32_t before = c->n_sets;
	int32_t rc;

	if (cli_set(c, "runtime.executor", executor) ||
	    cli_set(c, "runtime.pager", pager))
		return genai_fail(&c->err, GENAI_E_LIMIT, "too many --set");
	rc = ask(c, path, 0, w);
	c->n_sets = before;
	return rc;
}

static bool all_needed(const struct way *w)
{
	return !w->fit.limit_bytes || w->fit.least_bytes <= w->fit.limit_bytes;
}

// Executors and pagers that may be there; those that are not are passed over.
static void find_better(struct cli *c, const char *path, struct way *best)
{
	static const char *const pagers[] = {"pager_async", "pager_sync"};
	const struct genai_error none = GENAI_ERROR_INIT;
	char captured[80];
	bool quiet = c->quiet;

	snprintf(captured, sizeof(captured), "%.*s:captured",
		 (int)strcspn(best->executor, ":"), best->executor);
	c->quiet = true; // the first has told what there is to tell
	for (int i = 0; i < 2; i++) {
		struct way w = {0};

		if (!ask_with(c, path, captured, pagers[i], &w) &&
		    all_needed(&w) && w.step_s <= best->step_s * 1.001)
			*best = w;
		c->err = none;
	}
	c->quiet = quiet;
}

// ---- a limit that does not suffice ----

// Of the cache that sequences share, as much as one of them takes.
static uint32_t least_blocks(void)
{
	return args.context
		       ? (uint32_t)(strtoul(args.context, NULL, 10) / 32) + 1
		       : 1;
}

static int32_t too_small(struct cli *c, const char *path, uint64_t limit)
{
	struct genai_error why = c->err;
	const uint32_t before = c->n_sets;
	struct way w = {0};
	int32_t rc;

	if (cli_set(c, "runtime.device_limit", "auto") ||
	    (!args.context && cli_set(c, "runtime.context", "1")))
		return why.code;
	rc = ask(c, path, least_blocks(), &w);
	c->n_sets = before;
	if (rc || w.fit.least_bytes <= limit) {
		c->err = why;
		return why.code;
	}
	return genai_fail(&c->err, GENAI_E_LIMIT,
			  "%s: a device_limit of %" PRIu64 " bytes is %" PRIu64
			  " short: the least for a context of %" PRIu64
			  " is %" PRIu64,
			  path, limit, w.fit.least_bytes - limit, w.fit.context,
			  w.fit.least_bytes);
}

static uint64_t limit_asked(const char *text)
{
	uint64_t bytes = 0;
	double percent;

	if (!text || genai_parse_bytes(text, &bytes, &percent, NULL))
		return 0;
	return bytes;
}

// ---- what it says ----

static const char *bound_by(const struct way *w)
{
	return link_s(w) > memory_s(w) ? "link" : "memory";
}

// Of all sequences.
static double tok_s(const struct way *w, double step_s)
{
	return w->fit.sequences / step_s;
}

static void ini_text(const struct way *w, char *out, size_t cap)
{
	char limit[32] = "auto";
	int at = 0;

	if (w->fit.limit_bytes)
		snprintf(limit, sizeof(limit), "%" PRIu64, w->fit.limit_bytes);
	if (args.sequences)
		at = snprintf(out, cap, "; batch and serve: --sequences %u\n",
			      w->fit.sequences);
	snprintf(out + at, cap - (size_t)at,
		 "[runtime]\nexecutor = %s\nstream = %s\nbarrier = %s\n"
		 "pager = %s\ndevice_limit = %s\nweight_budget = %s\n"
		 "context = %" PRIu64 "\nspeculation = %s\n",
		 w->executor, w->stream, w->barrier, w->pager, limit,
		 args.budget ? args.budget : "auto", w->fit.context,
		 w->fit.streamed_bytes && link_s(w) > memory_s(w) ? "8"
								  : "off");
}

static json_t *bytes_json(const struct way *w)
{
	const struct genai_fit *f = &w->fit;

	return json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
		"weights", (json_int_t)f->weights_bytes, "pinned",
		(json_int_t)f->pinned_bytes, "ring", (json_int_t)f->ring_bytes,
		"in_place", (json_int_t)f->in_place_bytes, "streamed",
		(json_int_t)f->streamed_bytes, "beside",
		(json_int_t)f->beside_bytes, "cache",
		(json_int_t)f->cache_bytes, "plan", (json_int_t)f->plan_bytes,
		"session", (json_int_t)f->session_bytes, "driver",
		(json_int_t)f->driver_bytes, "device",
		(json_int_t)f->device_bytes, "host", (json_int_t)f->host_bytes);
}

static void print_json(const struct way *w)
{
	const struct genai_fit *f = &w->fit;
	char ini[1024];

	ini_text(w, ini, sizeof(ini));
	cli_print_json(json_pack(
		"{s:s, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:o, s:i, s:b, s:o, "
		"s:o, s:s, s:o, s:o, s:o, s:o, s:f, s:s, s:s, s:s}",
		"type", w->type, "device_limit_bytes",
		(json_int_t)f->limit_bytes, "least_bytes",
		(json_int_t)f->least_bytes, "weight_budget_bytes",
		(json_int_t)f->budget_bytes, "context", (json_int_t)f->context,
		"model_context", (json_int_t)w->info.model_context, "sequences",
		(int)f->sequences, "cache_positions",
		(json_int_t)f->cache_positions, "bytes", bytes_json(w),
		"ring_slots", (int)f->ring_slots, "predicted", w->predicted,
		"decode_tok_s", cli_real(tok_s(w, w->step_s)), "floor_tok_s",
		cli_real(tok_s(w, w->floor_s)), "floor", bound_by(w),
		"prompt_tok_s_at_most", cli_real(f->chunk / w->floor_s),
		"memory_gb_s", cli_real(w->ceil.memory_bytes_s * 1e-9),
		"link_gb_s", cli_real(w->ceil.link_bytes_s * 1e-9),
		"rates_measured",
		w->measured ? json_integer((json_int_t)w->measured)
			    : json_null(),
		"host_gb_s", w->ceil.host_bytes_s * 1e-9, "executor",
		w->executor, "pager", w->pager, "ini", ini));
}

static void line(const char *what, uint64_t bytes)
{
	const char *unit = bytes < UINT64_C(10) << 30 ? "MiB" : "GiB";
	double by = bytes < UINT64_C(10) << 30 ? 1 << 20 : 1 << 30;

	printf("  %-38s %10.1f %s\n", what, (double)bytes / by, unit);
}

static void print_text(const struct way *w)
{
	const struct genai_fit *f = &w->fit;
	char ini[1024], text[64];

	printf("%s, context %" PRIu64 " of %" PRIu64 "; on the device:\n",
	       w->type, f->context, w->info.model_context);
	line("weights that stay", f->pinned_bytes);
	snprintf(text, sizeof(text), "ring of %u for the others",
		 f->ring_slots);
	if (f->ring_slots)
		line(text, f->ring_bytes);
	if (f->sequences > 1)
		snprintf(text, sizeof(text),
			 "cache of %u, %" PRIu64 " positions", f->sequences,
			 f->cache_positions);
	line(f->sequences > 1 ? text : "cache of a sequence", f->cache_bytes);
	line("activations, workspace, logits",
	     f->plan_bytes + f->session_bytes);
	if (f->driver_bytes)
		line("the driver's own", f->driver_bytes);
	line("together", f->device_bytes);
	if (f->limit_bytes)
		line("of a device_limit of", f->limit_bytes);
	if (f->sequences == 1)
		line("each more session",
		     f->cache_bytes + f->plan_bytes + f->session_bytes);
	line(f->sequences > 1 ? "all but weights" : "the least device_limit",
	     f->least_bytes);
	if (f->cache_positions / f->sequences < f->context)
		printf("%u sequences have %" PRIu64
		       " positions each, or %" PRIu64 " have %" PRIu64
		       ": memory has no room for more\n",
		       f->sequences, f->cache_positions / f->sequences,
		       f->cache_positions / f->context, f->context);
	printf("in host memory:\n");
	line("copied by every step", f->streamed_bytes);
	line("read where it lies", f->in_place_bytes);
	if (f->beside_bytes)
		line("multiplied by the host's cores", f->beside_bytes);
	printf("memory at %.1f GB/s, the link at %.1f GB/s",
	       w->ceil.memory_bytes_s * 1e-9, w->ceil.link_bytes_s * 1e-9);
	if (w->ceil.host_bytes_s > 0)
		printf(", the host's cores at %.1f beside %.1f",
		       w->ceil.host_bytes_s * 1e-9,
		       w->ceil.busy_link_bytes_s * 1e-9);
	if (w->measured) {
		struct tm t;

		localtime_r(&w->measured, &t);
		strftime(text, sizeof(text), "%Y-%m-%d", &t);
		printf(" (measured %s; genai doctor measures again)", text);
	}
	printf(":\n");
	if (w->predicted)
		printf("  decode  %10.1f tokens/s%s\n", tok_s(w, w->step_s),
		       f->sequences > 1 ? ", all together" : "");
	printf("  at most %10.1f, by the %s; %.1f of a prompt\n",
	       tok_s(w, w->floor_s), bound_by(w), f->chunk / w->floor_s);
	if (!w->predicted)
		printf("  (this device does not say its rates: genai bench "
		       "measures)\n");
	if (!args.context && f->context == w->info.model_context)
		printf("the cache is for all positions that the model allows: "
		       "--context N for fewer\n");
	ini_text(w, ini, sizeof(ini));
	printf("\n%s", ini);
}

// ---- the command ----

static const struct cli_option options[] = {
	{"device-limit", 0, CLI_TEXT, "BYTES", "instead of the configuration's",
	 &args.limit},
	{"weight-budget", 0, CLI_TEXT, "BYTES", "instead of auto",
	 &args.budget},
	{"context", 0, CLI_TEXT, "N",
	 "positions; instead of the configuration's", &args.context},
	{"sequences", 0, CLI_INT, "N",
	 "that share steps, as in batch and serve, which have the same flag",
	 &args.sequences, 1, GENAI_MAX_SEQS},
	{"json", 0, CLI_FLAG, NULL, "one JSON object", &args.json},
	{0}};

static int run(struct cli *c, int argc, char **argv)
{
	int status =
		cli_argument(c, options, argc, argv, "one model", &args.path);
	const char *path;
	char folder[4200], hub[6000];
	struct way w = {0};
	int32_t rc;

	if (!status)
		status = cli_set(c, "runtime.device_limit", args.limit);
	if (!status)
		status = cli_set(c, "runtime.weight_budget",
				 args.budget ? args.budget : "auto");
	if (!status)
		status = cli_set(c, "runtime.context", args.context);
	if (status)
		return status;
	path = args.path;
	if (pull_resolve(c, &path, hub, sizeof(hub)))
		return cli_fail(c);
	if (cli_is_gguf(path)) {
		if (cli_folder(c, path, folder, sizeof(folder)))
			return cli_fail(c);
		path = folder;
	}
	rc = ask(c, path, 0, &w);
	if (!rc && !all_needed(&w))
		rc = genai_fail(&c->err, GENAI_E_LIMIT,
				"%s: device_limit does not suffice: %u "
				"sequences take %" PRIu64
				" bytes beside weights, %" PRIu64
				" are missing",
				path, w.fit.sequences, w.fit.least_bytes,
				w.fit.least_bytes - w.fit.limit_bytes);
	if (rc == GENAI_E_LIMIT && limit_asked(args.limit))
		rc = too_small(c, path, limit_asked(args.limit));
	if (rc)
		return cli_fail(c);
	find_better(c, path, &w);
	if (args.json)
		print_json(&w);
	else
		print_text(&w);
	return 0;
}

const struct command cmd_plan = {
	"plan",	 run,
	"DIR",	 "what a model takes, its speed, its genai.ini",
	options, "No weights are read.\n"};
