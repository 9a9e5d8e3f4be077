// http.c - connections: accepted up to a limit, looked after, written to.
#include "tools/serve/serve.h"

#include <dirent.h>
#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_HEADERS 65536
#define SWEEP_MS 250
#define MAX_OVER 256 // connections at a time that are there to be refused
#define OVER_S 2     // so long, without a request
#define SPARE_FILES 32

// A connection.  evhttp does not say when one ends; we hold its bufferevent,
// which evhttp leaves without callbacks then.
struct conn {
	struct conn *next;
	struct serve *s;
	struct bufferevent *bev;
	struct event *mend; // looks at what evhttp answered by itself
	bool has_page;	    // that is behind page bytes of what is not sent
	size_t page;
	bool is_busy;	// a request is being answered
	bool has_begun; // bytes of the next one came
	bool is_over, is_dismissed;
	double since; // when it was last not busy
};

static bool has_ended(const struct conn *k)
{
	bufferevent_data_cb on_read, on_write;
	bufferevent_event_cb on_event;
	void *ctx;

	bufferevent_getcb(k->bev, &on_read, &on_write, &on_event, &ctx);
	return !on_read && !on_write && !on_event;
}

// ---- answers that are no route's ----

static void say(struct evbuffer *out, const struct serve_error *e)
{
	json_t *j = refuse_json(e);
	char *text = json_dumps(j, JSON_COMPACT);

	evbuffer_add_printf(out,
			    "HTTP/1.1 %d %s\r\nContent-Type: application/json"
			    "\r\nContent-Length: %zu\r\nConnection: close\r\n"
			    "\r\n%s",
			    e->status, e->code, strlen(text), text);
	free(text);
	json_decref(j);
}

int http_refuse_over(const struct serve *s, struct serve_error *e)
{
	return refuse(e, 503, "too_many_connections", NULL,
		      "%u connections are open, which is the most", s->most);
}

// evhttp answers what is no HTTP to it, or too large, with a page of its own
// and closes: a client gets JSON.  The page is all there, and not yet on its
// way.
static void mend_page(evutil_socket_t fd, short what, void *ctx)
{
	struct conn *k = ctx;
	struct evbuffer *out = bufferevent_get_output(k->bev), *before;
	struct serve_error e;
	struct evbuffer_ptr at;
	char start[64] = "";
	long status;

	(void)fd;
	(void)what;
	if (!k->has_page ||
	    evbuffer_ptr_set(out, &at, k->page, EVBUFFER_PTR_SET))
		return;
	k->has_page = false;
	evbuffer_unfreeze(out, 1); // its beginning is evhttp's else
	evbuffer_copyout_from(out, &at, start, sizeof(start) - 1);
	evbuffer_freeze(out, 1);
	// whatever version the client said
	status = strncmp(start, "HTTP/", 5)
			 ? 0
			 : strtol(start + strcspn(start, " "), NULL, 10);
	before = status < 400 ? NULL : evbuffer_new();
	if (!before)
		return;
	if (status == 413)
		refuse(&e, 413, "too_large", NULL,
		       "the body is larger than the %" PRId64 " bytes of "
		       "--max-body, or a chunk of it does not begin with its "
		       "size alone",
		       k->s->o->body);
	else if (status == 501)
		refuse(&e, 501, "method_not_allowed", NULL,
		       "the method is not known here");
	else
		refuse(&e, (int)status, "invalid_http", NULL,
		       "the request is not HTTP as it is understood here, or "
		       "its head is larger than %d bytes",
		       MAX_HEADERS);
	k->s->metrics.refused++;
	evbuffer_unfreeze(out, 1);
	evbuffer_remove_buffer(out, before, k->page);
	evbuffer_drain(out, evbuffer_get_length(out));
	evbuffer_freeze(out, 1);
	evbuffer_add_buffer(out, before);
	evbuffer_free(before);
	say(out, &e);
	k->has_page = false;
}

static void on_output(struct evbuffer *b, const struct evbuffer_cb_info *info,
		      void *ctx)
{
	struct conn *k = ctx;

	(void)b;
	if (k->has_page)
		k->page -=
			info->n_deleted < k->page ? info->n_deleted : k->page;
	if (!info->n_added || k->is_busy || k->has_page)
		return;
	k->has_page = true;
	k->page = info->orig_size;
	event_active(k->mend, 0, 0);
}

static void on_input(struct evbuffer *b, const struct evbuffer_cb_info *info,
		     void *ctx)
{
	struct conn *k = ctx;

	(void)b;
	k->has_begun |= info->n_added && !k->is_busy;
}

// It took too long: why, if it can be told, and the end, which evhttp sees.
static void dismiss(struct conn *k)
{
	struct evbuffer *b = evbuffer_new();
	int fd = bufferevent_getfd(k->bev);
	struct serve_error e;

	if (k->is_over)
		http_refuse_over(k->s, &e);
	else
		refuse(&e, 408, "request_timeout", NULL,
		       "the request was not whole after %" PRId64 " s",
		       k->s->o->idle);
	if (b && (k->is_over || k->has_begun) &&
	    !evbuffer_get_length(bufferevent_get_output(k->bev))) {
		say(b, &e);
		evbuffer_write(b, fd);
		k->s->metrics.refused++;
	}
	if (b)
		evbuffer_free(b);
	shutdown(fd, SHUT_RDWR);
	k->is_dismissed = true;
}

// ---- connections ----

static void free_conn(struct conn *k)
{
	evbuffer_remove_cb(bufferevent_get_input(k->bev), on_input, k);
	evbuffer_remove_cb(bufferevent_get_output(k->bev), on_output, k);
	if (k->mend)
		event_free(k->mend);
	bufferevent_decref(k->bev);
	free(k);
}

void http_sweep(struct serve *s)
{
	double now = cli_now();

	for (struct conn **p = &s->conns; *p;) {
		struct conn *k = *p;
		double limit = (double)s->o->idle;

		if (has_ended(k)) {
			*p = k->next;
			free_conn(k);
			s->n_conns--;
			continue;
		}
		if (k->is_over && limit > OVER_S)
			limit = OVER_S;
		// a request that comes byte by byte, or none
		if (!k->is_busy && !k->is_dismissed && now - k->since > limit)
			dismiss(k);
		p = &k->next;
	}
	if (s->is_full && s->n_conns < s->most_files && !s->is_draining) {
		s->is_full = false;
		evconnlistener_enable(s->listener);
	}
}

// The system lets others wait.
static void be_full(struct serve *s)
{
	s->is_full = true;
	evconnlistener_disable(s->listener);
}

// No file, or no memory, for one more: a sweep tries again.
static void on_accept_error(struct evconnlistener *listener, void *ctx)
{
	(void)listener;
	be_full(ctx);
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
	*k = (struct conn){.s = s, .bev = bev, .since = cli_now()};
	k->mend = event_new(base, -1, 0, mend_page, k);
	if (k->mend) {
		evbuffer_add_cb(bufferevent_get_input(bev), on_input, k);
		evbuffer_add_cb(bufferevent_get_output(bev), on_output, k);
	}
	if (s->n_conns >= s->most)
		http_sweep(s);
	k->is_over = s->n_conns >= s->most;
	k->next = s->conns;
	s->conns = k;
	if (++s->n_conns >= s->most_files)
		be_full(s);
	return bev;
}

static struct conn *find(const struct serve *s, struct evhttp_request *req)
{
	const struct bufferevent *bev = evhttp_connection_get_bufferevent(
		evhttp_request_get_connection(req));
	struct conn *k = s->conns;

	while (k && k->bev != bev)
		k = k->next;
	return k;
}

// Two lengths, or a length and chunks: who passed it on may have believed the
// other one.  Not every libevent asks.
static int check_head(const struct evhttp_request *req, struct serve_error *e)
{
	const struct evkeyval *h;
	int lengths = 0, chunks = 0;

	if (req->major != 1 || req->minor < 0 || req->minor > 1)
		return refuse(e, 505, "http_version", NULL,
			      "HTTP/%d.%d is not known here", req->major,
			      req->minor);
	TAILQ_FOREACH(h, req->input_headers, next)
	{
		lengths += !strcasecmp(h->key, "Content-Length");
		if (strcasecmp(h->key, "Transfer-Encoding"))
			continue;
		if (strcasecmp(h->value, "chunked"))
			return refuse(e, 400, "invalid_http", NULL,
				      "this Transfer-Encoding is not known "
				      "here: chunked is");
		chunks++;
	}
	if (lengths > 1)
		return refuse(e, 400, "invalid_http", NULL,
			      "there are %d Content-Length", lengths);
	if (chunks && lengths + chunks > 1)
		return refuse(e, 400, "invalid_http", NULL,
			      "a body has a Content-Length or a "
			      "Transfer-Encoding, not both");
	return 0;
}

static void on_request(struct evhttp_request *req, void *ctx)
{
	struct serve *s = ctx;
	struct conn *k = find(s, req);
	struct serve_error e;

	if (k)
		k->is_busy = true;
	if (!check_head(req, &e)) {
		routes_answer(s, req);
		return;
	}
	req->major = req->minor = 1; // evhttp would say the client's
	evhttp_add_header(evhttp_request_get_output_headers(req), "Connection",
			  "close");
	http_error(s, req, &e);
}

bool http_is_over(const struct serve *s, struct evhttp_request *req)
{
	const struct conn *k = find(s, req);

	return k && k->is_over;
}

// ---- replies ----

// The last of an answer: what says so is added before it is sent.
static struct conn *last(struct serve *s, struct evhttp_request *req)
{
	struct conn *k = find(s, req);

	if (s->is_draining || (k && k->is_over))
		evhttp_add_header(evhttp_request_get_output_headers(req),
				  "Connection", "close");
	return k;
}

static void sent(struct conn *k)
{
	if (!k)
		return;
	k->is_busy = k->has_begun = false;
	k->since = cli_now();
}

void http_send(struct serve *s, struct evhttp_request *req, int status,
	       const char *type, struct evbuffer *body)
{
	struct evkeyvalq *h = evhttp_request_get_output_headers(req);
	struct conn *k = last(s, req);
	char length[24];

	evhttp_add_header(h, "Content-Type", type);
	evhttp_add_header(h, "X-Content-Type-Options", "nosniff");
	if (evhttp_request_get_command(req) == EVHTTP_REQ_HEAD) {
		// as long as it would be
		snprintf(length, sizeof(length), "%zu",
			 evbuffer_get_length(body));
		evhttp_add_header(h, "Content-Length", length);
		body = NULL;
	}
	evhttp_send_reply(req, status, NULL, body);
	sent(k);
}

void http_end(struct serve *s, struct evhttp_request *req)
{
	struct conn *k = last(s, req);

	evhttp_send_reply_end(req);
	sent(k);
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
	if (e->status == 429 || http_is_over(s, req))
		evhttp_add_header(h, "Retry-After", "1");
	s->metrics.refused++;
	http_json(s, req, e->status, refuse_json(e));
}

// ---- listening ----

// Files that are open now, with one of this function.
static uint32_t open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	uint32_t n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return d ? n : 64;
}

// Every connection is a file: as many as asked for, or as the system allows.
static void count_files(struct serve *s)
{
	uint64_t used = open_files() + SPARE_FILES, all, room;
	struct rlimit r;

	s->most = (uint32_t)s->o->connections;
	s->most_files = s->most + MAX_OVER;
	all = used + s->most_files;
	if (getrlimit(RLIMIT_NOFILE, &r))
		return;
	if (r.rlim_cur < all && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max < all ? r.rlim_max : all;
		if (setrlimit(RLIMIT_NOFILE, &r))
			getrlimit(RLIMIT_NOFILE, &r);
	}
	if (r.rlim_cur >= all)
		return;
	room = r.rlim_cur > used + 2 ? r.rlim_cur - used : 2;
	s->most_files = (uint32_t)room;
	if (s->most > room - room / 8 - 1)
		s->most = (uint32_t)(room - room / 8 - 1);
	if (s->most < s->o->connections && !s->c->quiet)
		fprintf(stderr,
			"genai: warning: --max-connections: %u, not %" PRId64
			": a process may have %" PRIu64
			" files open (ulimit -n)\n",
			s->most, s->o->connections, (uint64_t)r.rlim_cur);
}

static int32_t listen_unix(struct serve *s, struct genai_error *err)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const char *path = s->o->socket;
	struct stat st;
	mode_t mask;
	int fd;

	if (!*path)
		return genai_fail(err, GENAI_E_CONFIG,
				  "--socket: a path is needed");
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
		LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, SOMAXCONN,
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
		SOMAXCONN, all->ai_addr, (int)all->ai_addrlen);
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
	count_files(s);
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
	evconnlistener_set_error_cb(s->listener, on_accept_error);
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
