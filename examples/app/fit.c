// fit.c - will it fit?  What a model takes of the device, before any of its
// weights are read.
//
//     fit DIR LIMIT [SEQUENCES]
//
// LIMIT as in genai.ini: 6GiB, 75%, auto.  SEQUENCES: that share steps of an
// engine.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <genai/engine.h>

static struct genai_error err = GENAI_ERROR_INIT;

static void line(const char *what, uint64_t bytes)
{
	printf("%-34s %12.1f MiB\n", what, (double)bytes / 1048576);
}

static void print(const struct genai_fit *fit)
{
	line("weights that stay on the device", fit->pinned_bytes);
	line("a ring for those that do not", fit->ring_bytes);
	line("cache", fit->cache_bytes);
	line("activations and logits", fit->plan_bytes + fit->session_bytes);
	line("together", fit->device_bytes);
	line("weights copied by every step", fit->streamed_bytes);
	line("weights read in host memory", fit->in_place_bytes);
	line("the least limit for this context", fit->least_bytes);
}

int main(int argc, char **argv)
{
	struct genai_model_options options = {.size = sizeof(options),
					      .flags = GENAI_MODEL_FIT};
	struct genai_engine_options many = {.size = sizeof(many)};
	struct genai_runtime_options ro = {.size = sizeof(ro)};
	struct genai_fit fit = {.size = sizeof(fit)};
	struct genai_runtime *rt = NULL;
	struct genai_model *model = NULL;
	struct genai_session *none = NULL;
	char limit[128];
	const char *sets[] = {limit};
	int rc;

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: fit DIR LIMIT [SEQUENCES]\n");
		return 2;
	}
	snprintf(limit, sizeof(limit), "runtime.device_limit=%s", argv[2]);
	ro.sets = sets;
	ro.n_sets = 1;
	rc = genai_open(&ro, &rt, &err);
	if (!rc && argc == 4) {
		many.max_sequences = (uint32_t)strtoul(argv[3], NULL, 10);
		rc = genai_engine_fit(rt, argv[1], &many, &fit, &err);
		if (!rc) {
			printf("%u sequences, %" PRIu64 " positions\n",
			       fit.sequences, fit.cache_positions);
			print(&fit);
			fit.size = sizeof(fit);
		}
	}
	if (!rc)
		rc = genai_model_open(rt, argv[1], &options, &model, &err);
	if (!rc)
		rc = genai_model_get_fit(model, &fit, &err);
	if (rc) {
		fprintf(stderr, "fit: %s\n", err.text);
	} else {
		print(&fit);
		// nothing was placed, so nothing can be run
		if (genai_session_open(model, &none, &err))
			printf("%s\n", err.text);
	}
	genai_model_close(model);
	genai_close(rt);
	return rc ? 1 : 0;
}
