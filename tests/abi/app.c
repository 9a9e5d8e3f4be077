// app.c - an application for the checks of the binary interface: opens what an
// INI file names and, given a model folder, prints some tokens.  A library that
// writes beyond the structs that it was compiled with is caught by guards.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <genai/genai.h>

#define GUARD 256

static struct {
	struct genai_model_info info;
	unsigned char guard[GUARD];
} info;
static struct {
	struct genai_stats stats;
	unsigned char guard[GUARD];
} stats;
static struct genai_error err = GENAI_ERROR_INIT;

static int failed(const char *what)
{
	printf("%s: %s\n", what, err.text);
	return 1;
}

static int guarded(const unsigned char *guard, const char *what)
{
	for (int i = 0; i < GUARD; i++)
		if (guard[i] != 0xa5) {
			printf("%s: byte %d behind it was written\n", what, i);
			return 0;
		}
	return 1;
}

static int ask(struct genai_model *m)
{
	memset(&info, 0xa5, sizeof(info));
	info.info.size = sizeof(info.info);
	memset(&stats, 0xa5, sizeof(stats));
	stats.stats.size = sizeof(stats.stats);
	if (genai_model_get_info(m, &info.info) ||
	    genai_model_get_stats(m, &stats.stats, &err))
		return failed("info and stats");
	printf("%s of %u, %s, %llu bytes\n", info.info.type,
	       info.info.vocab_size, stats.stats.executor,
	       (unsigned long long)stats.stats.weights_bytes);
	return !guarded(info.guard, "info") || !guarded(stats.guard, "stats");
}

static int32_t progress(void *ctx, const char *what, uint64_t done,
			uint64_t total)
{
	(void)ctx;
	(void)what;
	(void)done;
	(void)total;
	return 0;
}

static int generate(struct genai_runtime *rt, const char *folder)
{
	struct genai_model_options o = {.size = sizeof(o),
					.progress = progress};
	const int64_t prompt[] = {3, 1, 4, 1, 5};
	struct genai_model *m = NULL;
	struct genai_session *s = NULL;
	int64_t id;
	int rc;

	if (genai_model_open(rt, folder, &o, &m, &err))
		return failed("model");
	if (genai_session_open(m, &s, &err) ||
	    genai_session_append(s, prompt, 5, &err))
		return failed("session");
	for (int i = 0; i < 16; i++) {
		if (genai_session_next(s, i < 15, &id, &err))
			return failed("next");
		printf("%lld ", (long long)id);
	}
	rc = ask(m);
	genai_session_close(s);
	genai_model_close(m);
	return rc;
}

int main(int argc, char **argv)
{
	struct genai_runtime_options o = {.size = sizeof(o)};
	struct genai_runtime *rt = NULL;
	int rc = 0;

	o.config_path = argv[1];
	if (genai_open(&o, &rt, &err))
		return failed("open");
	if (argc > 2)
		rc = generate(rt, argv[2]);
	else
		puts("open");
	genai_close(rt);
	return rc;
}
