// batch.c - many prompts at once: an engine, requests, events.
//
//     batch DIR TEXT...
//
// prints each answer when it is done, then what sharing the steps saved.  The
// last prompt is asked twice, and the second time it is cancelled.
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <genai/engine.h>

#define NEW 16
#define MOST 64

static struct genai_error err = GENAI_ERROR_INIT;

struct answer {
	const char *prompt;
	char text[4096];
	size_t n;
};

static int submit(struct genai_engine *e, struct answer *a, int64_t most,
		  uint64_t *out_id)
{
	struct genai_request r = GENAI_REQUEST_INIT;

	r.text = a->prompt;
	r.text_bytes = strlen(a->prompt);
	r.max_tokens = most; // -1: to the end of the context
	r.user = a;	     // comes back with the events
	return genai_engine_submit(e, &r, out_id, &err);
}

// An event: more of an answer, or its end.  1 at the end.
static int take(const struct genai_event *ev)
{
	struct answer *a = ev->user;

	if (a->n + ev->text_bytes < sizeof(a->text)) {
		memcpy(a->text + a->n, ev->text, ev->text_bytes);
		a->n += ev->text_bytes;
	}
	if (ev->kind != GENAI_EVENT_DONE)
		return 0;
	if (ev->error)
		fprintf(stderr, "batch: %s\n", ev->error);
	printf("%s [%.*s] %" PRIu64 "%s\n", a->prompt, (int)a->n, a->text,
	       ev->n_new,
	       ev->finish == GENAI_FINISH_CANCELLED ? " cancelled" : "");
	return 1;
}

static int run(struct genai_engine *e, int left)
{
	struct pollfd fd = {.fd = genai_engine_fd(e), .events = POLLIN};
	struct genai_event ev = {.size = sizeof(ev)};
	int rc = 0;

	while (left && !rc) {
		// a program with other things to do waits for all of them
		if (poll(&fd, 1, -1) < 0)
			return -1;
		ev.size = sizeof(ev);
		rc = genai_engine_next(e, 0, &ev, &err);
		if (rc == GENAI_PENDING)
			rc = 0;
		else if (!rc)
			left -= take(&ev);
	}
	return rc;
}

static int say(struct genai_engine *e)
{
	struct genai_engine_stats st = {.size = sizeof(st)};
	struct genai_engine_info info = {.size = sizeof(info)};
	int rc = genai_engine_get_stats(e, &st);

	if (!rc)
		rc = genai_engine_get_info(e, &info);
	if (!rc)
		printf("%" PRIu64 " requests, %u at a time%s%s\n", st.finished,
		       info.max_sequences, *info.why ? ": " : "", info.why);
	return rc;
}

int main(int argc, char **argv)
{
	static struct answer answers[MOST + 1];
	struct genai_stats stats = {.size = sizeof(stats)};
	struct genai_model_info model = {.size = sizeof(model)};
	const struct genai_tokenizer *tok = NULL;
	struct genai_runtime *rt = NULL;
	struct genai_engine *e = NULL;
	uint64_t id = 0;
	int n = argc - 2, rc;

	if (n < 1 || n > MOST) {
		fprintf(stderr, "usage: batch DIR TEXT...\n");
		return 2;
	}
	rc = genai_open(NULL, &rt, &err);
	if (!rc)
		rc = genai_engine_open(rt, argv[1], NULL, &e, &err);
	if (!rc)
		rc = genai_engine_get_tokenizer(e, &tok);
	if (!rc)
		rc = genai_engine_get_model_info(e, &model);
	if (!rc)
		printf("%u of %u ids have a token\n",
		       tok ? genai_tokenizer_size(tok) : 0, model.vocab_size);
	for (int i = 0; !rc && i <= n; i++) {
		answers[i].prompt = argv[i < n ? i + 2 : i + 1];
		rc = submit(e, &answers[i], i < n ? NEW : -1, &id);
	}
	if (!rc)
		rc = genai_engine_cancel(e, id, &err);
	if (!rc)
		rc = run(e, n + 1);
	if (!rc)
		rc = genai_engine_get_model_stats(e, &stats, &err);
	if (!rc)
		printf("%s\n", stats.executor);
	if (!rc)
		rc = say(e);
	if (rc)
		fprintf(stderr, "batch: %s\n", err.text);
	genai_engine_close(e);
	genai_close(rt);
	return rc ? 1 : 0;
}
