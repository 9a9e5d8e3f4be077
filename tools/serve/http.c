// http.c - connections: accepted up to a limit, looked after, written to.
#include "tools/serve/serve.h"

#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_HEADERS 65536
#define SWEEP_MS 250

// A connection.  evhttp does not say when one ends; we hold its bufferevent,
// which evhttp leaves without callbacks then.
struct conn {
	struct conn *next;
	struct bufferevent *bev;
	bool is_busy; // a request is being answered
	double since; // when it was last not
};

static bool has_ended(const struct conn *k)
{
	bufferevent_data_cb on_read, on_write;
	bufferevent_event_cb on_event;
	void *ctx;

	bufferevent_getcb(k->bev, &on_read, &on_write, &on_event, &ctx);
	return !on_read && !on_write && !on_event;
}

void http_sweep(struct serve *s)
{
	double now = cli_now();

	for (struct conn **p = &s->conns; *p;) {
		struct conn *k = *p;

		if (has_ended(k)) {
			*p = k->next;
			bufferevent_decref(k->bev);
			free(k);
			s->n_conns--;
			continue;
		}
		// a request that comes byte by byte, or none: evhttp sees an
		// end of the connection
		if (!k->is_busy && now - k->since > (double)s->o->idle)
			shutdown(bufferevent_getfd(k->bev), SHUT_RDWR);
		p = &k->next;
	}
	if (s->is_full && s->n_conns < s->o->connections && !s->is_draining) {
		s->is_full = false;
		evconnlistener_enable(s->listener);
	}
}

static struct bufferevent *on_connection(struct event_base *base, void *ctx)
{
	struct serve *s = ctx;
	// not closed by evhttp, so that its number stays ours
	struct bufferevent *bev =
		bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
	struct conn *k = calloc(1, sizeof(*k));

	if (!bev || !k) {
		free(k);
		return bev;
	}
	bufferevent_incref(bev);
	*k = (struct conn){.next = s->conns, .bev = bev, .since = cli_now()};
	if (s->n_conns + 1 >= s->o->connections)
		http_sweep(s);
	k->next = s->conns;
	s->conns = k;
	if (++s->n_conns >= s->o->connections) {
		// the system lets the others wait
		s->is_full = true;
		evconnlistener_disable(s->listener);
	}
	return bev;
}

static struct conn *find(struct serve *s, struct evhttp_request *req)
{
	const struct bufferevent *bev = evhttp_connection_get_bufferevent(
		evhttp_request_get_connection(req));
	struct conn *k = s->conns;

	while (k && k->bev != bev)
		k = k->next;
	return k;
}

static void on_request(struct evhttp_request *req, void *ctx)
{
	struct serve *s = ctx;
	struct conn *k = find(s, req);

	if (k)
		k->is_busy = true;
	routes_answer(s, req);
}

// ---- replies ----

void http_done(struct serve *s, struct evhttp_request *req)
{
	struct conn *k = find(s, req);

	if (k)
		k->is_busy = false;
	if (k)
		k->since = cli_now();
	if (s->is_draining)
		evhttp_add_header(evhttp_request_get_output_headers(req),
				  "Connection", "close");
}

void http_send(struct serve *s, struct evhttp_request *req, int status,
	       const char *type, struct evbuffer *body)
{
	struct evkeyvalq *h = evhttp_request_get_output_headers(req);

	evhttp_add_header(h, "Content-Type", type);
	evhttp_add_header(h, "X-Content-Type-Options", "nosniff");
	http_done(s, req);
	evhttp_send_reply(req, status, NULL, body);
}

void http_json(struct serve *s, struct evhttp_request *req, int status,
	       json_t *j)
{
	struct evbuffer *b = evbuffer_new();
	char *text = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9));

	evbuffer_add(b, text, strlen(text));
	free(text);
	json_decref(j);
	http_send(s, req, status, "application/json", b);
	evbuffer_free(b);
}

void http_error(struct serve *s, struct evhttp_request *req,
		const struct serve_error *e)
{
	struct evkeyvalq *h = evhttp_request_get_output_headers(req);

	if (e->status == 401)
		evhttp_add_header(h, "WWW-Authenticate", "Bearer");
	if (e->status == 429)
		evhttp_add_header(h, "Retry-After", "1");
	s->metrics.refused++;
	http_json(s, req, e->status, refuse_json(e));
}

// ---- listening ----

static int32_t listen_unix(struct serve *s, struct genai_error *err)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const char *path = s->o->socket;
	struct stat st;
	mode_t mask;
	int fd;

	if (strlen(path) >= sizeof(at.sun_path))
		return genai_fail(err, GENAI_E_CONFIG,
				  "--socket: %s is longer than %zu bytes", path,
				  sizeof(at.sun_path) - 1);
	strcpy(at.sun_path, path);
	// one that a server before left, if nobody answers
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && !lstat(path, &st) && S_ISSOCK(st.st_mode) &&
	    connect(fd, (struct sockaddr *)&at, sizeof(at)) &&
	    errno == ECONNREFUSED)
		unlink(path);
	if (fd >= 0)
		close(fd);
	mask = umask(0117); // who is in the group may connect
	s->listener = evconnlistener_new_bind(
		s->base, NULL, NULL,
		LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, -1,
		(struct sockaddr *)&at, sizeof(at));
	umask(mask);
	return s->listener ? 0
			   : genai_fail(err, GENAI_E_IO,
					"--socket: cannot listen on %s: %s",
					path, strerror(errno));
}

static int32_t listen_tcp(struct serve *s, struct genai_error *err)
{
	struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
				 .ai_socktype = SOCK_STREAM},
			*all = NULL;
	char port[16];
	int rc;

	snprintf(port, sizeof(port), "%d", (int)s->o->port);
	rc = getaddrinfo(s->o->host, port, &hints, &all);
	if (rc)
		return genai_fail(err, GENAI_E_CONFIG, "--host: %s: %s",
				  s->o->host, gai_strerror(rc));
	s->listener = evconnlistener_new_bind(
		s->base, NULL, NULL,
		LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC |
			LEV_OPT_REUSEABLE,
		-1, all->ai_addr, (int)all->ai_addrlen);
	rc = errno;
	freeaddrinfo(all);
	return s->listener ? 0
			   : genai_fail(err, GENAI_E_IO,
					"cannot listen on %s port %s: %s",
					s->o->host, port, strerror(rc));
}

static void say_where(const struct serve *s)
{
	struct sockaddr_storage at;
	socklen_t n = sizeof(at);
	char host[128], port[16];

	if (s->c->quiet)
		return;
	if (s->o->socket)
		fprintf(stderr, "genai: %s at %s\n", s->name, s->o->socket);
	else if (!getsockname(evconnlistener_get_fd(s->listener),
			      (struct sockaddr *)&at, &n) &&
		 !getnameinfo((struct sockaddr *)&at, n, host, sizeof(host),
			      port, sizeof(port),
			      NI_NUMERICHOST | NI_NUMERICSERV))
		fprintf(stderr,
			strchr(host, ':') ? "genai: %s at http://[%s]:%s\n"
					  : "genai: %s at http://%s:%s\n",
			s->name, host, port);
}

static void on_sweep(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	http_sweep(ctx);
}

int32_t http_open(struct serve *s, struct genai_error *err)
{
	static const struct timeval every = {0, SWEEP_MS * 1000};
	int32_t rc;

	s->http = evhttp_new(s->base);
	s->sweep = event_new(s->base, -1, EV_PERSIST, on_sweep, s);
	if (!s->http || !s->sweep || event_add(s->sweep, &every))
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	evhttp_set_max_headers_size(s->http, MAX_HEADERS);
	evhttp_set_max_body_size(s->http, (ev_ssize_t)s->o->body);
	evhttp_set_timeout(s->http, (int)s->o->idle);
	evhttp_set_allowed_methods(
		s->http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD |
				 EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
				 EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH);
	evhttp_set_bevcb(s->http, on_connection, s);
	evhttp_set_gencb(s->http, on_request, s);
	rc = s->o->socket ? listen_unix(s, err) : listen_tcp(s, err);
	if (rc)
		return rc;
	if (!evhttp_bind_listener(s->http, s->listener)) {
		evconnlistener_free(s->listener);
		s->listener = NULL;
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	}
	say_where(s);
	return 0;
}

void http_stop(struct serve *s)
{
	if (s->listener)
		evconnlistener_disable(s->listener);
}

bool http_has_unsent(const struct serve *s)
{
	for (const struct conn *k = s->conns; k; k = k->next)
		if (!has_ended(k) &&
		    evbuffer_get_length(bufferevent_get_output(k->bev)))
			return true;
	return false;
}

void http_close(struct serve *s)
{
	if (s->sweep)
		event_free(s->sweep);
	if (s->http)
		evhttp_free(s->http); // and the listener, the connections
	http_sweep(s);
	if (s->listener && s->o->socket)
		unlink(s->o->socket);
}
