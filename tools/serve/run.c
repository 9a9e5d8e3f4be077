// run.c - a server's life: opened, served, drained.
#include "tools/serve/serve.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// ---- keys ----

static int32_t read_keys(struct serve *s, struct genai_error *err)
{
	char *text, *line, *rest, *end;
	bool bad;
	size_t n;

	if (!s->o->keys)
		return 0;
	if (!cli_slurp(s->c, s->o->keys, &text, &n))
		return s->c->err.code;
	s->keys = calloc(n + 1, sizeof(*s->keys));
	bad = memchr(text, 0, n);
	for (line = strtok_r(text, "\r\n", &rest); s->keys && line && !bad;
	     line = strtok_r(NULL, "\r\n", &rest)) {
		line += strspn(line, " \t");
		if (!*line || *line == '#')
			continue;
		end = line + strcspn(line, " \t");
		bad = end[strspn(end, " \t")];
		*end = 0;
		s->keys[s->n_keys] = bad ? NULL : strdup(line);
		if (!s->keys[s->n_keys])
			break;
		s->n_keys++;
	}
	free(text);
	if (bad)
		return genai_fail(err, GENAI_E_CONFIG,
				  "%s: key %u has a blank or a zero byte in it",
				  s->o->keys, s->n_keys);
	if (!s->keys || line)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	return s->n_keys ? 0
			 : genai_fail(err, GENAI_E_CONFIG,
				      "%s: there is no key in it", s->o->keys);
}

// ---- the model ----

static void take_name(struct serve *s)
{
	const char *at = s->o->name;
	size_t n;

	if (at) {
		snprintf(s->name, sizeof(s->name), "%s", at);
		return;
	}
	// of a model from the hub, whose folder is named by a commit
	if (access(s->o->model, F_OK)) {
		at = strchr(s->o->model, '/') + 1;
		snprintf(s->name, sizeof(s->name), "%.*s",
			 (int)strcspn(at, ":"), at);
		return;
	}
	n = strlen(s->folder);
	while (n > 1 && s->folder[n - 1] == '/')
		n--;
	// a folder of graphs in a model's own
	if (n > 5 && !strncmp(s->folder + n - 5, "/onnx", 5))
		n -= 5;
	at = s->folder + n;
	while (at > s->folder && at[-1] != '/')
		at--;
	snprintf(s->name, sizeof(s->name), "%.*s", (int)(s->folder + n - at),
		 at);
}

// Without a template there is no chat; one that is wrong is an error.
static int32_t open_templates(struct serve *s, struct genai_error *err)
{
	int32_t rc = genai_template_open(s->text, 0, &s->template, err);

	if (rc == GENAI_E_NOTFOUND) {
		*err = (struct genai_error)GENAI_ERROR_INIT;
		return 0;
	}
	return rc ? rc : genai_template_open(s->text, 1, &s->with_tools, err);
}

// Neither text nor vectors: why, by what the folder is meant for.
static int32_t open_vectors(struct serve *s, const char *path,
			    struct genai_error *err)
{
	struct genai_error other = GENAI_ERROR_INIT;
	int32_t rc = embed_open(s, path, &other);

	if (!rc)
		*err = (struct genai_error)GENAI_ERROR_INIT;
	else if (rc != GENAI_E_UNSUPPORTED)
		*err = other;
	return rc ? err->code : 0;
}

static int32_t open_model(struct serve *s, struct genai_error *err)
{
	struct genai_engine_options o = {
		.size = sizeof(o),
		.max_sequences = (uint32_t)s->o->sequences,
		.max_requests = (uint32_t)s->o->queue,
	};
	const char *path = s->o->model;
	int32_t rc = cli_folder(s->c, path, s->folder, sizeof(s->folder));

	if (!rc)
		rc = cli_text_folder(s->c, s->folder, s->text, sizeof(s->text));
	if (rc)
		return rc;
	if (s->c->tokenizer)
		o.tokenizer = s->text;
	take_name(s);
	refuse_mend(s->name);
	rc = open_templates(s, err);
	if (!rc)
		rc = cli_runtime(s->c, &s->rt);
	if (!rc)
		rc = genai_engine_open(s->rt,
				       cli_is_gguf(path) ? s->folder : path, &o,
				       &s->engine, err);
	if (rc == GENAI_E_UNSUPPORTED)
		return open_vectors(s, path, err);
	if (rc)
		return rc;
	s->info.size = sizeof(s->info);
	s->limits.size = sizeof(s->limits);
	rc = genai_engine_get_model_info(s->engine, &s->info);
	if (!rc)
		rc = genai_engine_get_info(s->engine, &s->limits);
	if (!rc)
		rc = genai_engine_get_tokenizer(s->engine, &s->tok);
	if (rc)
		return rc;
	format_find(s);
	rc = constrain_open(s->text, s->info.vocab_size, s->info.eos,
			    s->info.n_eos, &s->constrain, err);
	// without it what needs it is refused, with the reason
	if (rc) {
		snprintf(s->why_not, sizeof(s->why_not), "%s", err->text);
		*err = (struct genai_error)GENAI_ERROR_INIT;
		rc = 0;
	}
	return rc;
}

// ---- the loop ----

static bool is_busy(const struct serve *s)
{
	return s->answers || (s->embed && embed_waiting(s));
}

bool serve_is_healthy(const struct serve *s)
{
	struct genai_engine_stats st = {.size = sizeof(st)};

	if (s->embed)
		return !embed_is_lost(s);
	return !genai_engine_get_stats(s->engine, &st) && st.healthy;
}

// A device that is lost stays so until it is opened anew: whoever looks after
// the process does that best.
static void look_after_device(struct serve *s)
{
	if (!s->o->ends_when_lost || s->is_lost || serve_is_healthy(s))
		return;
	s->is_lost = s->is_draining = true;
	http_stop(s);
}

static void on_events(evutil_socket_t fd, short what, void *ctx)
{
	struct serve *s = ctx;

	(void)fd;
	(void)what;
	if (s->embed)
		embed_events(s);
	else
		answer_events(s);
	look_after_device(s);
	if (s->is_draining && !is_busy(s))
		event_base_loopexit(s->base, NULL);
}

// The first: what is asked for is still answered.  The second: it is not.
static void on_end(evutil_socket_t sig, short what, void *ctx)
{
	struct serve *s = ctx;

	(void)sig;
	(void)what;
	if (s->is_draining && s->embed)
		embed_cancel_all(s);
	else if (s->is_draining)
		answer_cancel_all(s);
	s->is_draining = true;
	http_stop(s);
	if (!is_busy(s))
		event_base_loopexit(s->base, NULL);
}

static void on_log(int severity, const char *text)
{
	// what clients do wrong is no business of who runs the server
	if (severity >= EVENT_LOG_ERR)
		fprintf(stderr, "genai: error: %s\n", text);
}

static int32_t open_loop(struct serve *s, struct genai_error *err)
{
	static const int sigs[2] = {SIGTERM, SIGINT};
	bool ok;

	signal(SIGPIPE, SIG_IGN);
	event_set_log_callback(on_log);
	s->base = event_base_new();
	if (!s->base)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	s->events = event_new(s->base,
			      s->embed ? embed_fd(s->embed)
				       : genai_engine_fd(s->engine),
			      EV_READ | EV_PERSIST, on_events, s);
	ok = s->events && !event_add(s->events, NULL);
	for (int i = 0; i < 2 && ok; i++) {
		s->ends[i] = evsignal_new(s->base, sigs[i], on_end, s);
		ok = s->ends[i] && !event_add(s->ends[i], NULL);
	}
	return ok ? http_open(s, err)
		  : genai_fail(err, GENAI_E_NOMEM, "no memory");
}

// Replies may still be on their way: so long, but not longer.
static void write_out(struct serve *s)
{
	static const struct timeval slice = {0, 50000};

	for (int i = 0; i < 40 && http_has_unsent(s); i++) {
		event_base_loopexit(s->base, &slice);
		event_base_dispatch(s->base);
	}
}

static void close_all(struct serve *s)
{
	genai_engine_close(s->engine);
	answer_free_all(s);
	embed_close(s);
	constrain_close(s->constrain);
	if (s->base)
		http_close(s);
	for (int i = 0; i < 2; i++)
		if (s->ends[i])
			event_free(s->ends[i]);
	if (s->events)
		event_free(s->events);
	if (s->base)
		event_base_free(s->base);
	genai_close(s->rt);
	genai_template_close(s->template);
	genai_template_close(s->with_tools);
	for (uint32_t i = 0; i < s->n_keys; i++)
		free(s->keys[i]);
	free(s->keys);
	libevent_global_shutdown();
}

int serve_run(struct cli *c, const struct serve_options *o)
{
	struct serve s = {.c = c, .o = o, .started = time(NULL)};
	int32_t rc;

#ifdef M_ARENA_MAX
	// what the engine's thread takes, this one gives back: with a heap
	// each, both grow for hours
	mallopt(M_ARENA_MAX, 1);
	// what a sequence takes for a vocabulary goes back to the system, and
	// leaves no holes
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
	rc = read_keys(&s, &c->err);
	if (!rc)
		rc = open_model(&s, &c->err);
	if (!rc)
		rc = open_loop(&s, &c->err);
	if (!rc) {
		event_base_dispatch(s.base);
		write_out(&s);
	}
	if (s.is_lost)
		rc = genai_fail(&c->err, GENAI_E_DEVICE,
				"%s: the device was lost", o->model);
	close_all(&s);
	return rc ? cli_fail(c) : 0;
}
