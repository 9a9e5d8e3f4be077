// routes.c - what the paths do; who may ask.
#include "tools/serve/serve.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct route {
	const char *path;
	enum evhttp_cmd_type method;
	bool is_open;			   // without a key
	enum { ANY, TEXT, VECTORS } makes; // what the model has to
	// body: that of a POST, its own reference; else NULL
	void (*run)(struct serve *s, struct evhttp_request *req, json_t *body);
};

static void bad(struct serve *s, struct evhttp_request *req, json_t *body,
		const struct serve_error *e)
{
	json_decref(body);
	http_error(s, req, e);
}

static void models(struct serve *s, struct evhttp_request *req, json_t *body)
{
	(void)body;
	http_json(s, req, 200,
		  json_pack("{s:s, s:[{s:s, s:s, s:I, s:s, s:I}]}", "object",
			    "list", "data", "id", s->name, "object", "model",
			    "created", (json_int_t)s->started, "owned_by",
			    "genai", "max_model_len",
			    (json_int_t)s->limits.context));
}

static void completions(struct serve *s, struct evhttp_request *req,
			json_t *body)
{
	struct serve_error e;
	struct ask *ask;

	if (ask_read(s, false, body, &ask, &e))
		http_error(s, req, &e);
	else
		answer_begin(s, req, ask);
}

static void chat(struct serve *s, struct evhttp_request *req, json_t *body)
{
	struct serve_error e;
	struct ask *ask;

	if (ask_read(s, true, body, &ask, &e))
		http_error(s, req, &e);
	else
		answer_begin(s, req, ask);
}

static void responses(struct serve *s, struct evhttp_request *req, json_t *body)
{
	struct serve_error e;
	struct ask *ask;

	if (response_read(s, body, &ask, &e))
		http_error(s, req, &e);
	else
		answer_begin(s, req, ask);
}

static void embeddings(struct serve *s, struct evhttp_request *req,
		       json_t *body)
{
	embed_begin(s, req, body);
}

static void tokenize(struct serve *s, struct evhttp_request *req, json_t *body)
{
	json_t *text = json_object_get(body, "prompt"), *ids = json_array();
	const json_t *special = json_object_get(body, "add_special_tokens");
	struct ask_prompt p = {0};
	struct serve_error e;
	int rc = ask_model(s, body, &e);

	if (!rc && json_object_get(body, "messages"))
		rc = ask_chat(s, body, &p, &e);
	else if (!rc && !json_is_string(text))
		rc = refuse(&e, 400, "invalid_type", "prompt",
			    "prompt: a string is needed, or messages");
	else if (!rc && json_string_length(text))
		rc = ask_text(s, text, "prompt", json_is_false(special), &p,
			      &e);
	if (rc) {
		json_decref(ids);
		bad(s, req, body, &e);
		return;
	}
	for (size_t i = 0; i < p.n; i++)
		json_array_append_new(ids, json_integer(p.ids[i]));
	genai_free(p.ids);
	json_decref(body);
	http_json(s, req, 200,
		  json_pack("{s:I, s:I, s:o}", "count", (json_int_t)p.n,
			    "max_model_len", (json_int_t)s->limits.context,
			    "tokens", ids));
}

static void detokenize(struct serve *s, struct evhttp_request *req,
		       json_t *body)
{
	const json_t *ids = json_object_get(body, "tokens");
	struct genai_error err = GENAI_ERROR_INIT;
	struct ask_prompt p = {0};
	struct serve_error e;
	char *text = NULL;
	size_t n = 0;
	int rc = ask_model(s, body, &e);

	if (!rc && !s->tok)
		rc = refuse(&e, 400, "invalid_value", "tokens",
			    "tokens: the model has no tokenizer");
	if (!rc && !json_is_array(ids))
		rc = refuse(&e, 400, "invalid_type", "tokens",
			    "tokens: an array of ids is needed");
	if (!rc && json_array_size(ids))
		rc = ask_ids(s, ids, "tokens", &p, &e);
	if (!rc &&
	    genai_tokenizer_decode(s->tok, p.ids, p.n, GENAI_TOK_KEEP_SPECIAL,
				   &text, &n, &err))
		rc = refuse_from(&e, &err, "tokens");
	genai_free(p.ids);
	if (rc) {
		bad(s, req, body, &e);
		return;
	}
	json_decref(body);
	http_json(s, req, 200,
		  json_pack("{s:o}", "prompt", json_stringn(text, n)));
	genai_free(text);
}

static void health(struct serve *s, struct evhttp_request *req, json_t *body)
{
	const char *status = "ok";

	(void)body;
	if (!serve_is_healthy(s))
		status = "device lost";
	else if (s->is_draining)
		status = "draining";
	http_json(s, req, strcmp(status, "ok") ? 503 : 200,
		  json_pack("{s:s}", "status", status));
}

static void metrics(struct serve *s, struct evhttp_request *req, json_t *body)
{
	struct evbuffer *b = evbuffer_new();

	(void)body;
	http_sweep(s);
	if (s->embed)
		embed_note(s);
	metrics_print(&s->metrics, s->engine, s->n_conns, s->name, b);
	http_send(s, req, 200, "text/plain; version=0.0.4; charset=utf-8", b);
	evbuffer_free(b);
}

static const char *const page_lines[] = {
#include "tools/serve/page.inc"
};

static void page(struct serve *s, struct evhttp_request *req, json_t *body)
{
	struct evbuffer *b = evbuffer_new();

	(void)body;
	for (size_t i = 0; i < sizeof(page_lines) / sizeof(page_lines[0]); i++)
		evbuffer_add(b, page_lines[i], strlen(page_lines[i]));
	// it talks to this server, and nothing else gets into it
	evhttp_add_header(evhttp_request_get_output_headers(req),
			  "Content-Security-Policy",
			  "default-src 'none'; style-src 'unsafe-inline'; "
			  "script-src 'unsafe-inline'; connect-src 'self'; "
			  "frame-ancestors 'none'; base-uri 'none'; "
			  "form-action 'none'");
	http_send(s, req, 200, "text/html; charset=utf-8", b);
	evbuffer_free(b);
}

static const struct route routes[] = {
	{"/", EVHTTP_REQ_GET, true, TEXT, page},
	{"/v1/models", EVHTTP_REQ_GET, false, ANY, models},
	{"/v1/completions", EVHTTP_REQ_POST, false, TEXT, completions},
	{"/v1/chat/completions", EVHTTP_REQ_POST, false, TEXT, chat},
	{"/v1/responses", EVHTTP_REQ_POST, false, TEXT, responses},
	{"/v1/embeddings", EVHTTP_REQ_POST, false, VECTORS, embeddings},
	{"/tokenize", EVHTTP_REQ_POST, false, ANY, tokenize},
	{"/detokenize", EVHTTP_REQ_POST, false, ANY, detokenize},
	{"/health", EVHTTP_REQ_GET, true, ANY, health},
	{"/metrics", EVHTTP_REQ_GET, false, ANY, metrics},
};
#define N_ROUTES (sizeof(routes) / sizeof(routes[0]))

// ---- before a route ----

// In a time that does not depend on where the first difference is.
static bool same(const char *given, size_t n, const char *key)
{
	size_t m = strlen(key);
	unsigned char diff = n != m;

	for (size_t i = 0; i < n; i++)
		diff |= (unsigned char)(given[i] ^ key[m ? i % m : 0]);
	return !diff;
}

static bool has_key(const struct serve *s, struct evhttp_request *req)
{
	const char *h = evhttp_find_header(
		evhttp_request_get_input_headers(req), "Authorization");
	bool ok = false;
	size_t n;

	if (!s->n_keys)
		return true;
	if (!h || strncasecmp(h, "Bearer ", 7))
		return false;
	h += 7;
	h += strspn(h, " ");
	n = strlen(h);
	for (uint32_t i = 0; i < s->n_keys; i++)
		ok |= same(h, n, s->keys[i]);
	return ok;
}

static bool is_json(struct evhttp_request *req)
{
	const char *h = evhttp_find_header(
		evhttp_request_get_input_headers(req), "Content-Type");

	return h && !strncasecmp(h, "application/json", 16) &&
	       (!h[16] || h[16] == ';' || isspace((unsigned char)h[16]));
}

int routes_body(const char *text, size_t n, json_t **out, struct serve_error *e)
{
	json_error_t err;

	if (!n)
		return refuse(e, 400, "invalid_json", NULL, "there is no body");
	*out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &err);
	if (!*out)
		return refuse(e, 400, "invalid_json", NULL,
			      "the body is no JSON: line %d: %.300s", err.line,
			      err.text);
	if (json_is_object(*out))
		return 0;
	json_decref(*out);
	return refuse(e, 400, "invalid_json", NULL,
		      "the body is no JSON object");
}

static int read_body(struct evhttp_request *req, json_t **out,
		     struct serve_error *e)
{
	struct evbuffer *in = evhttp_request_get_input_buffer(req);

	// what a page of another site can send without asking is no JSON
	if (!is_json(req))
		return refuse(e, 415, "unsupported_media_type", NULL,
			      "Content-Type: application/json is needed");
	return routes_body((const char *)evbuffer_pullup(in, -1),
			   evbuffer_get_length(in), out, e);
}

static const struct route *
find(const struct serve *s, struct evhttp_request *req, struct serve_error *e)
{
	const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(req);
	const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
	enum evhttp_cmd_type method = evhttp_request_get_command(req);
	const struct route *r = NULL;

	if (method == EVHTTP_REQ_HEAD) // a GET but for the body
		method = EVHTTP_REQ_GET;
	for (size_t i = 0; path && i < N_ROUTES && !r; i++)
		if (!strcmp(routes[i].path, path))
			r = &routes[i];
	// who has no key does not learn what there is
	if (!(r && r->is_open) && !has_key(s, req))
		refuse(e, 401, "invalid_api_key", NULL,
		       "Authorization: Bearer and a key of this server are "
		       "needed");
	else if (http_is_over(s, req) && !(r && r->run == health))
		http_refuse_over(s, e);
	else if (!r)
		refuse(e, 404, "not_found", NULL, "%.200s: no such path",
		       path ? path : "");
	else if (r->method != method) {
		evhttp_add_header(
			evhttp_request_get_output_headers(req), "Allow",
			r->method == EVHTTP_REQ_GET ? "GET, HEAD" : "POST");
		refuse(e, 405, "method_not_allowed", NULL, "%s: only %s is",
		       r->path, r->method == EVHTTP_REQ_GET ? "GET" : "POST");
	} else if (s->is_draining && !r->is_open)
		refuse(e, 503, "stopping", NULL, "the server is stopping");
	else if (r->makes == TEXT && s->embed)
		refuse(e, 400, "unsupported_value", "model",
		       "%s makes vectors, not text: POST /v1/embeddings",
		       s->name);
	else if (r->makes == VECTORS && !s->embed)
		refuse(e, 400, "unsupported_value", "model",
		       "%s makes text: it is no model for embeddings", s->name);
	else
		return r;
	return NULL;
}

void routes_answer(struct serve *s, struct evhttp_request *req)
{
	struct serve_error e;
	const struct route *r = find(s, req, &e);
	json_t *body = NULL;

	if (!r || (r->method == EVHTTP_REQ_POST && read_body(req, &body, &e)))
		http_error(s, req, &e);
	else
		r->run(s, req, body);
}
