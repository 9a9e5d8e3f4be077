/* serve.h - what the files of genai serve share.
 *
 * One thread, the network's, runs everything here; the engine has its own
 * (genai/engine.h).  Requests go down by genai_engine_submit, events come up
 * when the engine's descriptor is readable. */
#ifndef GENAI_TOOLS_SERVE_H
#define GENAI_TOOLS_SERVE_H

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <genai/engine.h>

#include "tools/cli.h"
#include "tools/constrain/constrain.h"
#include "tools/serve/metrics.h"
#include "tools/serve/options.h"
#include "tools/serve/parse.h"

struct serve {
	struct cli *c;
	const struct serve_options *o;
	char folder[4200], name[256]; /* name: of the model, in the API */
	char text[4200];	      /* folder of tokenizer and template */
	struct genai_runtime *rt;
	struct genai_engine *engine; /* NULL: the model makes vectors, and */
	struct embed *embed;	     /* this does; else NULL */
	struct genai_model_info info;
	struct genai_engine_info limits;
	const struct genai_tokenizer *tok;
	struct genai_template *template; /* NULL: none */
	struct genai_template *with_tools;
	struct parse_format format;  /* of what the model writes */
	struct constrain *constrain; /* NULL: no structured output, because */
	char why_not[512];
	char **keys;
	uint32_t n_keys;

	struct event_base *base;
	struct evhttp *http;
	struct evconnlistener *listener;
	struct event *events, *sweep, *ends[2];
	struct conn *conns;	/* all open ones */
	struct answer *answers; /* all that the engine is not done with */
	uint32_t n_conns;
	uint32_t most;	     /* connections that are served, */
	uint32_t most_files; /* and with those that are refused */
	bool is_draining, is_full;
	bool is_lost; /* the device is, and that is to end the server */

	struct metrics metrics;
	int64_t started; /* seconds since 1970 */
};

/* run.c: the device works, as far as is known. */
bool serve_is_healthy(const struct serve *s);

/* ---- refuse.c: errors of the API ---- */

struct serve_error {
	int status;
	const char *type, *code, *param; /* of static life; may be NULL */
	char text[600];
};
/* Fill it; returns -1. */
int refuse(struct serve_error *e, int status, const char *code,
	   const char *param, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* The same from an error of the library. */
int refuse_from(struct serve_error *e, const struct genai_error *err,
		const char *param);
int refuse_memory(struct serve_error *e);
/* A request ended unanswered: GENAI_FINISH_CANCELLED or _DEADLINE. */
int refuse_end(const struct serve *s, struct serve_error *e, uint32_t finish);
json_t *refuse_json(const struct serve_error *e);
/* What is not UTF-8 in a text, which JSON could not hold, becomes '?'. */
void refuse_mend(char *text);

/* ---- http.c: connections, routes, replies ---- */

int32_t http_open(struct serve *s, struct genai_error *err);
void http_close(struct serve *s);
/* No new connections. */
void http_stop(struct serve *s);
/* Is there something that was sent and has not left yet? */
bool http_has_unsent(const struct serve *s);
/* Look after connections: those that ended, those that take too long. */
void http_sweep(struct serve *s);
/* It came over a connection more than are served; why that is refused. */
bool http_is_over(const struct serve *s, struct evhttp_request *req);
int http_refuse_over(const struct serve *s, struct serve_error *e);
/* A stream that evhttp_send_reply_start began got all of its chunks. */
void http_end(struct serve *s, struct evhttp_request *req);
/* Send a buffer, or a JSON value, which is dropped; that ends the request. */
void http_send(struct serve *s, struct evhttp_request *req, int status,
	       const char *type, struct evbuffer *body);
void http_json(struct serve *s, struct evhttp_request *req, int status,
	       json_t *j);
void http_error(struct serve *s, struct evhttp_request *req,
		const struct serve_error *e);

/* ---- client.c: who waits for an answer, and may leave ---- */

struct client {
	struct evhttp_request *req; /* NULL: gone, or answered */
	struct event *gone;
	void (*leave)(void *ctx);
	void *ctx;
};
/* Watch it; leave is called once if it goes before it is let go. */
void client_open(struct serve *s, struct evhttp_request *req,
		 void (*leave)(void *ctx), void *ctx, struct client *out);
/* It gets the last of its answer now, or is gone: NULL. */
struct evhttp_request *client_let_go(struct client *c);
/* Close its connection. */
void client_drop(struct client *c);

/* ---- routes.c: what the paths do ---- */

/* A whole request came. */
void routes_answer(struct serve *s, struct evhttp_request *req);

/* The object that a body is: 0, or -1 with e filled. */
int routes_body(const char *text, size_t n, json_t **out,
		struct serve_error *e);

/* ---- ask.c: what a body asks for; ask_prompt.c: its prompts ---- */

#define ASK_MAX_STOPS 16
#define ASK_MAX_PROMPTS 128

struct ask {
	json_t *body;	  /* owns what is borrowed below */
	json_t *response; /* what /v1/responses was asked; else NULL */
	bool is_chat, is_stream, has_usage, has_echo, has_tools;
	struct genai_request request; /* but for its prompt */
	struct genai_sampling sampling;
	const char *stops[ASK_MAX_STOPS];
	int64_t stop_ids[ASK_MAX_STOPS];
	struct genai_bias *bias;
	char *grammar; /* what constraints are made of, and its kind */
	const char *grammar_kind, *grammar_param;
	struct constraint **constraints; /* of each prompt */
	struct ask_prompt {
		int64_t *ids;
		size_t n;
	} * prompts;
	uint32_t n_prompts;
};

/* Every key of a body is one of these requests' (null is as if it were not
 * there). */
#define ASK_TEXT 1
#define ASK_CHAT 2
#define ASK_VECTORS 4
int ask_keys(const json_t *body, int where, struct serve_error *e);
/* Read a body, which becomes the ask's: 0, or -1 with e filled. */
int ask_read(struct serve *s, bool is_chat, json_t *body, struct ask **out,
	     struct serve_error *e);
void ask_free(struct ask *a);
/* "model" of a body is this one's, or not said. */
int ask_model(const struct serve *s, const json_t *body, struct serve_error *e);
/* ask_grammar.c: what the text has to be: response_format, structured_outputs.
 */
int ask_grammar(struct serve *s, const json_t *body, struct ask *a,
		struct serve_error *e);
/* ask_vectors.c: what /v1/embeddings is asked for. */
struct ask_vectors {
	const struct genai_embedder_info *info;
	json_t *body;
	struct ask_prompt *texts;
	uint32_t n_texts;
	bool is_base64;
	uint64_t n_tokens;
};
/* body becomes out's, or is dropped. */
int ask_vectors(struct serve *s, const struct genai_embedder_info *info,
		json_t *body, struct ask_vectors *out, struct serve_error *e);
void ask_vectors_free(struct ask_vectors *a);
/* The ids of a conversation: messages, tools and the template's variables. */
int ask_chat(struct serve *s, json_t *body, struct ask_prompt *out,
	     struct serve_error *e);
int ask_text(struct serve *s, const json_t *text, const char *param,
	     bool no_special, struct ask_prompt *out, struct serve_error *e);
int ask_ids(struct serve *s, const json_t *array, const char *param,
	    struct ask_prompt *out, struct serve_error *e);

/* ---- format.c: how the model writes reasoning and calls ---- */

void format_find(struct serve *s);
/* Are special tokens to be kept, because they are the marks? */
bool format_needs_special(const struct serve *s, bool has_tools);
/* Does the prompt end within a reasoning that it has begun? */
bool format_in_reasoning(const struct serve *s, const struct ask_prompt *p);

/* ---- answer.c: from a request to its last byte; reply.c: as JSON ---- */

struct text {
	char *s;
	size_t n, cap;
};
/* What came of a choice: all of it, or in a stream what is not sent yet. */
struct choice {
	struct answer *a;
	struct parse *parse; /* NULL: all is content */
	struct text content, reasoning;
	json_t *calls;	  /* of tools; may be NULL */
	uint32_t n_calls; /* so far */
	bool is_broken;	  /* no memory for a piece */
	size_t offset;	  /* bytes of text so far */
	json_t *logprobs; /* of a whole reply, or the next chunk; may be NULL */
	const char *finish;
	bool is_begun; /* a chunk was sent */
	/* of a response: its items, and the text of the one that is open */
	json_t *output;
	struct text item;
	enum parse_kind item_kind;
	bool has_item;
	uint64_t sequence; /* events so far */
	double last;	   /* when its last token came */
};

/* A prompt of an answer: one request of the engine. */
struct part {
	struct answer *a;
	uint64_t id;
	uint32_t first; /* its first choice */
	bool is_ended;
};

struct answer {
	struct answer *next, **link;
	struct serve *s;
	struct client client;
	struct ask *ask;
	char id[48];
	int64_t created;
	double begun;
	struct part *parts;
	uint32_t n_parts, n_live; /* live: not ended */
	struct choice *choices;
	uint32_t n_choices;
	uint64_t n_prompt, n_cached, n_new;
	bool is_started; /* the head of a stream was sent */
};

/* Submit; answers by itself, also errors.  ask becomes the answer's. */
void answer_begin(struct serve *s, struct evhttp_request *req, struct ask *ask);
/* An event of its stream, with a name or NULL; j is dropped.  The client may be
 * given up: client.req is NULL then. */
void answer_send(struct answer *a, const char *name, json_t *j);
/* What the engine has for us. */
void answer_events(struct serve *s);
/* Cancel all. */
void answer_cancel_all(struct serve *s);
/* Free all, when the engine is gone. */
void answer_free_all(struct serve *s);

/* Take up the log probability of a token. */
void reply_logprob(const struct answer *a, struct choice *ch,
		   const struct genai_event *ev);
/* A piece of the text, as parse.h tells them; ctx is a choice. */
void reply_take(void *ctx, enum parse_kind kind, const char *text, size_t n);
/* Append; false without memory. */
bool reply_add(struct text *t, const char *s, size_t n);
/* What is not sent yet; NULL if there is nothing. */
json_t *reply_chunk(const struct answer *a, struct choice *ch);
json_t *reply_usage_chunk(const struct answer *a);
json_t *reply_whole(const struct answer *a);

/* ---- embed.c: /v1/embeddings, on a thread of its own ---- */

/* Open the model as one that makes vectors; it fills what serve.h has of
 * models. */
int32_t embed_open(struct serve *s, const char *path, struct genai_error *err);
/* After the runtime's last other use, before it is closed. */
void embed_close(struct serve *s);
/* Readable when there is something for embed_events. */
int embed_fd(const struct embed *m);
void embed_events(struct serve *s);
/* Answers by itself, also errors; body is its. */
void embed_begin(struct serve *s, struct evhttp_request *req, json_t *body);
void embed_cancel_all(struct serve *s);
/* Requests not answered yet. */
uint32_t embed_waiting(const struct serve *s);
/* Fill the metrics that are its. */
void embed_note(struct serve *s);
/* The device could not be made usable again. */
bool embed_is_lost(const struct serve *s);

/* ---- response.c: /v1/responses ---- */

/* As ask_read. */
int response_read(struct serve *s, json_t *body, struct ask **out,
		  struct serve_error *e);
/* What came of its choice becomes items; in a stream it is sent. */
void response_take(struct answer *a, struct choice *ch);
/* The end of it: all of it, and in a stream its last events are sent. */
json_t *response_whole(struct answer *a);

#endif
