// answer.c - from a request to its last byte: submitted, followed by the
// engine's events, given up when its client leaves.
#include "tools/serve/serve.h"

#include <event2/bufferevent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define MAX_UNREAD (4u << 20) // bytes that a client may leave unread

static void cancel(struct answer *a)
{
	for (uint32_t i = 0; i < a->n_parts; i++)
		if (!a->parts[i].is_ended)
			genai_engine_cancel(a->s->engine, a->parts[i].id, NULL);
}

static void leave(void *ctx)
{
	cancel(ctx);
}

// ---- sending ----

static void start_stream(struct answer *a)
{
	struct evkeyvalq *h = evhttp_request_get_output_headers(a->client.req);

	if (a->is_started)
		return;
	a->is_started = true;
	evhttp_add_header(h, "Content-Type", "text/event-stream");
	evhttp_add_header(h, "Cache-Control", "no-cache");
	evhttp_add_header(h, "X-Accel-Buffering", "no");
	evhttp_send_reply_start(a->client.req, 200, "OK");
}

void answer_send(struct answer *a, const char *name, json_t *j)
{
	struct evbuffer *b = evbuffer_new();
	struct bufferevent *bev;
	char *text = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9));

	start_stream(a);
	json_decref(j);
	if (name)
		evbuffer_add_printf(b, "event: %s\n", name);
	evbuffer_add_printf(b, "data: %s\n\n", text);
	free(text);
	bev = evhttp_connection_get_bufferevent(
		evhttp_request_get_connection(a->client.req));
	evhttp_send_reply_chunk(a->client.req, b);
	evbuffer_free(b);
	if (evbuffer_get_length(bufferevent_get_output(bev)) > MAX_UNREAD)
		client_drop(&a->client);
}

static void end_stream(struct answer *a)
{
	struct evbuffer *b = evbuffer_new();
	struct evhttp_request *req = client_let_go(&a->client);

	if (!a->ask->response) {
		evbuffer_add_printf(b, "data: [DONE]\n\n");
		evhttp_send_reply_chunk(req, b);
	}
	evbuffer_free(b);
	http_end(a->s, req);
}

// The request ends with an error, whatever of it still runs.
static void fail(struct answer *a, const struct serve_error *e)
{
	cancel(a);
	if (!a->client.req)
		return;
	if (!a->is_started) {
		http_error(a->s, client_let_go(&a->client), e);
		return;
	}
	if (a->ask->response)
		answer_send(a, "error",
			    json_pack("{s:s, s:s?, s:s, s:n}", "type", "error",
				      "code", e->code, "message", e->text,
				      "param"));
	else
		answer_send(a, NULL, refuse_json(e));
	if (a->client.req)
		end_stream(a);
}

static void succeed(struct answer *a)
{
	json_t *j = NULL;

	histogram_add(&a->s->metrics.whole, cli_now() - a->begun);
	if (a->ask->response)
		j = response_whole(a);
	else if (!a->ask->is_stream)
		j = reply_whole(a);
	else if (a->ask->has_usage)
		answer_send(a, NULL, reply_usage_chunk(a));
	if (!a->ask->is_stream) {
		http_json(a->s, client_let_go(&a->client), 200, j);
		return;
	}
	json_decref(j);
	if (a->client.req)
		end_stream(a);
}

// ---- life ----

static void answer_free(struct answer *a)
{
	client_let_go(&a->client);
	*a->link = a->next;
	if (a->next)
		a->next->link = a->link;
	for (uint32_t i = 0; i < a->n_choices; i++) {
		struct choice *ch = &a->choices[i];

		parse_close(ch->parse);
		free(ch->content.s);
		free(ch->reasoning.s);
		json_decref(ch->calls);
		json_decref(ch->logprobs);
		json_decref(ch->output);
		free(ch->item.s);
	}
	free(a->choices);
	free(a->parts);
	ask_free(a->ask);
	free(a);
}

// In a chat the text may be more than content.
static bool open_choices(struct answer *a)
{
	const json_t *tools = json_object_get(a->ask->body, "tools");
	struct parse_format *f = &a->s->format;
	bool begun = false, plain;

	if (a->ask->is_chat)
		begun = format_in_reasoning(a->s, &a->ask->prompts[0]);
	plain = !a->ask->is_chat ||
		(f->style == PARSE_PLAIN && !f->thinks && !begun);
	for (uint32_t i = 0; i < a->n_choices; i++) {
		struct choice *ch = &a->choices[i];

		ch->a = a;
		if (plain)
			continue;
		ch->parse = parse_open(f, a->ask->has_tools, tools, begun,
				       reply_take, ch);
		if (!ch->parse)
			return false;
	}
	return true;
}

static int submit(struct answer *a, struct serve_error *e)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_request r = a->ask->request;

	if (!open_choices(a))
		return refuse_memory(e);
	for (uint32_t i = 0; i < a->ask->n_prompts; i++) {
		struct part *p = &a->parts[i];

		p->a = a;
		p->first = i * r.n;
		r.ids = a->ask->prompts[i].ids;
		r.n_ids = a->ask->prompts[i].n;
		r.user = p;
		if (r.allow)
			r.allow_ctx = a->ask->constraints[i];
		if (genai_engine_submit(a->s->engine, &r, &p->id, &err))
			return refuse_from(e, &err,
					   a->ask->is_chat ? "messages"
							   : "prompt");
		a->n_parts++;
		a->n_live++;
	}
	return 0;
}

void answer_begin(struct serve *s, struct evhttp_request *req, struct ask *ask)
{
	struct answer *a = calloc(1, sizeof(*a));
	struct serve_error e;
	uint64_t name[2] = {0, 0};

	if (a) {
		a->n_choices = ask->n_prompts * ask->request.n;
		a->choices = calloc(a->n_choices, sizeof(*a->choices));
		a->parts = calloc(ask->n_prompts, sizeof(*a->parts));
	}
	if (!a || !a->choices || !a->parts) {
		if (a) {
			free(a->choices);
			free(a->parts);
		}
		free(a);
		ask_free(ask);
		refuse_memory(&e);
		http_error(s, req, &e);
		return;
	}
	a->s = s;
	a->ask = ask;
	a->begun = cli_now();
	a->created = time(NULL);
	if (getrandom(name, sizeof(name), 0) != sizeof(name))
		name[0] = (uint64_t)(uintptr_t)a;
	snprintf(a->id, sizeof(a->id), "%s%016" PRIx64 "%08" PRIx64,
		 ask->response	? "resp_"
		 : ask->is_chat ? "chatcmpl-"
				: "cmpl-",
		 name[0], name[1] & 0xffffffff);
	a->next = s->answers;
	a->link = &s->answers;
	if (a->next)
		a->next->link = &a->next;
	s->answers = a;
	client_open(s, req, leave, a, &a->client);
	if (submit(a, &e)) {
		fail(a, &e);
		if (!a->n_live)
			answer_free(a);
	}
}

// ---- events ----

static void take_text(struct answer *a, struct choice *ch,
		      const struct genai_event *ev)
{
	struct serve_error e;
	json_t *chunk;

	ch->offset += ev->text_bytes;
	if (!ch->parse)
		reply_take(ch, PARSE_CONTENT, ev->text, ev->text_bytes);
	else if (!parse_push(ch->parse, ev->text, ev->text_bytes))
		ch->is_broken = true;
	if (ch->parse && ch->finish)
		parse_end(ch->parse);
	if (ch->finish && ch->n_calls && !strcmp(ch->finish, "stop"))
		ch->finish = "tool_calls";
	if (ch->is_broken) {
		refuse_memory(&e);
		fail(a, &e);
	} else if (a->ask->response) {
		response_take(a, ch);
	} else if (a->ask->is_stream && (chunk = reply_chunk(a, ch))) {
		answer_send(a, NULL, chunk);
	}
}

static void note_time(struct answer *a, struct choice *ch)
{
	double now = cli_now();

	if (ch->last > 0)
		histogram_add(&a->s->metrics.between, now - ch->last);
	else
		histogram_add(&a->s->metrics.first, now - a->begun);
	ch->last = now;
}

static void take_done(struct answer *a, struct part *p, struct choice *ch,
		      const struct genai_event *ev)
{
	struct metrics *m = &a->s->metrics;
	struct serve_error e;

	a->n_new += ev->n_new;
	if (ev->choice == 0) {
		a->n_prompt += ev->n_prompt;
		a->n_cached += ev->n_cached;
	}
	if (ev->last) {
		p->is_ended = true;
		a->n_live--;
	}
	switch (ev->finish) {
	case GENAI_FINISH_EOS:
	case GENAI_FINISH_STOP:
		m->ends[END_STOP]++;
		ch->finish = "stop";
		break;
	case GENAI_FINISH_LENGTH:
		m->ends[END_LENGTH]++;
		ch->finish = "length";
		break;
	case GENAI_FINISH_CANCELLED:
		m->ends[END_CANCELLED]++;
		refuse_end(a->s, &e, ev->finish);
		break;
	case GENAI_FINISH_DEADLINE:
		m->ends[END_DEADLINE]++;
		refuse_end(a->s, &e, ev->finish);
		break;
	default:
		m->ends[END_ERROR]++;
		refuse(&e, ev->code == GENAI_E_DEVICE ? 503 : 500,
		       ev->code == GENAI_E_DEVICE ? "device_lost" : NULL, NULL,
		       "%s", ev->error ? ev->error : "the engine failed");
	}
	if (!a->client.req)
		return;
	if (ch->finish)
		take_text(a, ch, ev);
	else
		fail(a, &e);
}

static void take_event(const struct genai_event *ev)
{
	struct part *p = ev->user;
	struct answer *a = p->a;
	struct choice *ch = &a->choices[p->first + ev->choice];

	if (ev->kind == GENAI_EVENT_DONE) {
		take_done(a, p, ch, ev);
		if (!a->n_live && a->client.req)
			succeed(a);
		if (!a->n_live)
			answer_free(a);
		return;
	}
	if (ev->kind == GENAI_EVENT_TOKEN)
		note_time(a, ch);
	if (!a->client.req)
		return;
	reply_logprob(a, ch, ev);
	take_text(a, ch, ev);
}

void answer_events(struct serve *s)
{
	struct genai_event ev = {.size = sizeof(ev)};

	// so many that the network is looked at now and then
	for (int i = 0; i < 1024; i++) {
		if (genai_engine_next(s->engine, 0, &ev, NULL))
			break;
		take_event(&ev);
		ev.size = sizeof(ev);
	}
}

void answer_cancel_all(struct serve *s)
{
	for (struct answer *a = s->answers; a; a = a->next)
		cancel(a);
}

void answer_free_all(struct serve *s)
{
	while (s->answers)
		answer_free(s->answers);
}
