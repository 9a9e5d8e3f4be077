// embed.c - /v1/embeddings: texts are read here, on the network's thread, and
// computed one after the other on one that has the runtime.
//
// A job goes to the thread with its ids and comes back with its vectors, or the
// error of the first text that failed.  Its client may leave meanwhile: then it
// ends with the text that is going on.
#include "tools/serve/serve.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/model/embed.h"

#define MAX_TRIES 3

struct job {
	struct job *next;
	struct serve *s;
	struct client client;
	struct ask_vectors ask;
	double begun;
	// under the lock
	bool is_cancelled;
	// the thread's until it is done
	float *vectors;
	struct genai_error err;
	int32_t rc;
	uint32_t finish; // GENAI_FINISH_*: with an error, why
	uint32_t n_done;
};

struct embed {
	struct genai_embedder *e;
	struct genai_embedder_info info;
	struct genai_tokenizer *tok;
	double timeout;
	uint32_t n_jobs; // not answered
	int fd;
	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	// under the lock
	struct job *waiting, **last; // in order
	struct job *running, *done;
	bool is_ending, is_lost;
	uint32_t n_errors; // of the device
};

// ---- the thread ----

static bool may_go_on(struct embed *m, struct job *j)
{
	bool stop;

	pthread_mutex_lock(&m->lock);
	stop = j->is_cancelled || m->is_ending;
	pthread_mutex_unlock(&m->lock);
	if (stop)
		j->finish = GENAI_FINISH_CANCELLED;
	else if (cli_now() - j->begun > m->timeout)
		j->finish = GENAI_FINISH_DEADLINE;
	else
		return true;
	return false;
}

// As the engine's steps: what fails on the device is done again, since it was
// reset; where that does not help it is lost.
static int32_t run(struct embed *m, struct job *j, uint32_t i)
{
	float *out = j->vectors + (size_t)i * m->info.dimensions;

	for (int tries = 1;; tries++) {
		int32_t rc =
			genai_embedder_run(m->e, j->ask.texts[i].ids,
					   j->ask.texts[i].n, out, &j->err);
		bool failed = rc && genai_embedder_failed(m->e);

		pthread_mutex_lock(&m->lock);
		m->n_errors += failed;
		m->is_lost = failed && tries == MAX_TRIES;
		pthread_mutex_unlock(&m->lock);
		if (!failed || tries == MAX_TRIES)
			return rc;
		j->err = (struct genai_error)GENAI_ERROR_INIT;
	}
}

static void compute(struct embed *m, struct job *j)
{
	for (uint32_t i = 0; i < j->ask.n_texts && may_go_on(m, j); i++) {
		j->rc = run(m, j, i);
		if (j->rc) {
			j->finish = GENAI_FINISH_ERROR;
			return;
		}
		j->n_done++;
	}
}

static void *work(void *ctx)
{
	struct embed *m = ctx;
	uint64_t one = 1;

	pthread_mutex_lock(&m->lock);
	for (;;) {
		struct job *j = m->waiting;

		if (m->is_ending)
			break;
		if (!j) {
			pthread_cond_wait(&m->more, &m->lock);
			continue;
		}
		m->waiting = j->next;
		if (!m->waiting)
			m->last = &m->waiting;
		m->running = j;
		pthread_mutex_unlock(&m->lock);
		compute(m, j);
		pthread_mutex_lock(&m->lock);
		m->running = NULL;
		j->next = m->done;
		m->done = j;
		while (write(m->fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

// ---- what is asked for ----

static void job_free(struct job *j)
{
	if (!j)
		return;
	client_let_go(&j->client);
	ask_vectors_free(&j->ask);
	free(j->vectors);
	free(j);
}

static void leave(void *ctx)
{
	struct job *j = ctx;
	struct embed *m = j->s->embed;

	pthread_mutex_lock(&m->lock);
	j->is_cancelled = true;
	pthread_mutex_unlock(&m->lock);
}

// The body becomes the job's, or is dropped.
static int read_job(struct serve *s, struct job *j, json_t *body,
		    struct serve_error *e)
{
	const struct embed *m = s->embed;

	if (m->n_jobs >= s->o->queue) {
		json_decref(body);
		return refuse(e, 429, "queue_full", NULL,
			      "%u requests are not answered yet, which is the "
			      "most",
			      m->n_jobs);
	}
	if (ask_vectors(s, &m->info, body, &j->ask, e))
		return -1;
	j->vectors = malloc((size_t)j->ask.n_texts * m->info.dimensions *
			    sizeof(*j->vectors));
	return j->vectors ? 0 : refuse_memory(e);
}

void embed_begin(struct serve *s, struct evhttp_request *req, json_t *body)
{
	struct embed *m = s->embed;
	struct job *j = calloc(1, sizeof(*j));
	struct serve_error e;

	if (!j) {
		json_decref(body);
		refuse_memory(&e);
		http_error(s, req, &e);
		return;
	}
	j->s = s;
	j->begun = cli_now();
	j->err = (struct genai_error)GENAI_ERROR_INIT;
	if (read_job(s, j, body, &e)) {
		job_free(j);
		http_error(s, req, &e);
		return;
	}
	client_open(s, req, leave, j, &j->client);
	m->n_jobs++;
	pthread_mutex_lock(&m->lock);
	*m->last = j;
	m->last = &j->next;
	pthread_cond_signal(&m->more);
	pthread_mutex_unlock(&m->lock);
}

// ---- what comes back ----

// The numbers as they lie in memory, little-endian.
static json_t *base64(const float *x, uint32_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "abcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t bytes = (size_t)n * 4, at = 0;
	char *out = malloc((bytes + 2) / 3 * 4 + 1);
	json_t *text;

	if (!out)
		return NULL;
	for (size_t i = 0; i < bytes; i += 3) {
		uint32_t three = 0;

		for (size_t k = i; k < i + 3; k++) {
			uint32_t bits = 0;

			if (k < bytes)
				memcpy(&bits, &x[k / 4], 4);
			three = three << 8 | (bits >> k % 4 * 8 & 255);
		}
		for (size_t k = 0; k < 4; k++)
			out[at++] =
				i + k > bytes
					? '='
					: digits[three >> (18 - 6 * k) & 63];
	}
	text = json_stringn(out, at);
	free(out);
	return text;
}

static json_t *numbers(const float *x, uint32_t n)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < n; i++)
		json_array_append_new(list, json_real((double)x[i]));
	return list;
}

static void succeed(struct serve *s, struct job *j)
{
	uint32_t width = s->embed->info.dimensions;
	json_t *list = json_array();

	for (uint32_t i = 0; i < j->ask.n_texts; i++) {
		const float *x = j->vectors + (size_t)i * width;

		json_array_append_new(
			list,
			json_pack("{s:s, s:I, s:o}", "object", "embedding",
				  "index", (json_int_t)i, "embedding",
				  j->ask.is_base64 ? base64(x, width)
						   : numbers(x, width)));
	}
	histogram_add(&s->metrics.whole, cli_now() - j->begun);
	http_json(s, client_let_go(&j->client), 200,
		  json_pack("{s:s, s:o, s:s, s:{s:I, s:I}}", "object", "list",
			    "data", list, "model", s->name, "usage",
			    "prompt_tokens", (json_int_t)j->ask.n_tokens,
			    "total_tokens", (json_int_t)j->ask.n_tokens));
}

static void fail(struct serve *s, struct job *j)
{
	struct serve_error e;

	if (j->finish != GENAI_FINISH_ERROR) {
		refuse_end(s, &e, j->finish);
	} else {
		genai_error_prefix(&j->err, "input: text %u", j->n_done);
		refuse_from(&e, &j->err, "input");
	}
	http_error(s, client_let_go(&j->client), &e);
}

void embed_events(struct serve *s)
{
	struct embed *m = s->embed;
	struct job *done;
	uint64_t n;

	while (read(m->fd, &n, sizeof(n)) < 0 && errno == EINTR)
		;
	pthread_mutex_lock(&m->lock);
	done = m->done;
	m->done = NULL;
	pthread_mutex_unlock(&m->lock);
	while (done) {
		struct job *j = done;

		done = j->next;
		m->n_jobs--;
		s->metrics.vectors += j->n_done;
		for (uint32_t i = 0; i < j->n_done; i++)
			s->metrics.vector_tokens += j->ask.texts[i].n;
		if (j->client.req && !j->finish)
			succeed(s, j);
		else if (j->client.req)
			fail(s, j);
		job_free(j);
	}
}

void embed_cancel_all(struct serve *s)
{
	struct embed *m = s->embed;

	pthread_mutex_lock(&m->lock);
	for (struct job *j = m->waiting; j; j = j->next)
		j->is_cancelled = true;
	if (m->running)
		m->running->is_cancelled = true;
	pthread_mutex_unlock(&m->lock);
}

uint32_t embed_waiting(const struct serve *s)
{
	return s->embed->n_jobs;
}

void embed_note(struct serve *s)
{
	struct embed *m = s->embed;

	pthread_mutex_lock(&m->lock);
	s->metrics.vector_errors = m->n_errors;
	s->metrics.vectors_healthy = !m->is_lost;
	pthread_mutex_unlock(&m->lock);
	s->metrics.n_vector_jobs = m->n_jobs;
}

bool embed_is_lost(const struct serve *s)
{
	struct embed *m = s->embed;
	bool lost;

	pthread_mutex_lock(&m->lock);
	lost = m->is_lost;
	pthread_mutex_unlock(&m->lock);
	return lost;
}

// ---- life ----

int embed_fd(const struct embed *m)
{
	return m->fd;
}

int32_t embed_open(struct serve *s, const char *path, struct genai_error *err)
{
	struct embed *m = calloc(1, sizeof(*m));
	int32_t rc;

	if (!m)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->more, NULL);
	m->last = &m->waiting;
	m->timeout = (double)s->o->timeout;
	m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	m->info.size = sizeof(m->info);
	s->embed = m;
	rc = genai_embedder_open(s->rt, path, NULL, &m->e, err);
	if (!rc)
		rc = genai_embedder_get_info(m->e, &m->info);
	if (!rc)
		rc = cli_tokenizer(s->c, s->text, &m->tok);
	if (rc == GENAI_E_NOTFOUND && m->e) { // then texts are ids
		*err = (struct genai_error)GENAI_ERROR_INIT;
		rc = 0;
	}
	if (!rc && m->fd < 0)
		rc = genai_fail(err, GENAI_E_IO, "eventfd: %s",
				strerror(errno));
	if (!rc && pthread_create(&m->thread, NULL, work, m))
		rc = genai_fail(err, GENAI_E_NOMEM, "no thread");
	m->has_thread = !rc;
	if (rc) {
		embed_close(s);
		return rc;
	}
	s->tok = m->tok;
	s->limits.context = m->info.max_tokens;
	s->info.vocab_size = INT32_MAX; // which ids there are it knows itself
	return 0;
}

void embed_close(struct serve *s)
{
	struct embed *m = s->embed;

	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	m->is_ending = true;
	pthread_cond_signal(&m->more);
	pthread_mutex_unlock(&m->lock);
	if (m->has_thread)
		pthread_join(m->thread, NULL);
	for (struct job *j = m->waiting, *next; j; j = next) {
		next = j->next;
		job_free(j);
	}
	for (struct job *j = m->done, *next; j; j = next) {
		next = j->next;
		job_free(j);
	}
	if (m->fd >= 0)
		close(m->fd);
	genai_tokenizer_close(m->tok);
	genai_embedder_close(m->e);
	pthread_cond_destroy(&m->more);
	pthread_mutex_destroy(&m->lock);
	free(m);
	s->embed = NULL;
}
