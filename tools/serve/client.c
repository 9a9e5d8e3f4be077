// client.c - who waits for an answer: watched, because it may leave.
#include "tools/serve/serve.h"

#include <event2/bufferevent.h>

// Nobody is to be told.
static struct evhttp_request *forget(struct client *c)
{
	struct evhttp_request *req = c->req;

	if (c->gone)
		event_free(c->gone);
	c->gone = NULL;
	c->req = NULL;
	return req;
}

struct evhttp_request *client_let_go(struct client *c)
{
	struct evhttp_request *req = forget(c);

	if (req)
		evhttp_connection_set_closecb(
			evhttp_request_get_connection(req), NULL, NULL);
	return req;
}

void client_drop(struct client *c)
{
	struct evhttp_request *req = client_let_go(c);

	c->leave(c->ctx);
	if (req)
		evhttp_connection_free(evhttp_request_get_connection(req));
}

static void on_gone(evutil_socket_t fd, short what, void *ctx)
{
	(void)fd;
	(void)what;
	client_drop(ctx);
}

// evhttp frees the connection after this; the request, which it has taken off
// it, is ours.
static void on_close(struct evhttp_connection *conn, void *ctx)
{
	struct client *c = ctx;
	struct evhttp_request *req = forget(c);

	(void)conn;
	c->leave(c->ctx);
	if (req && !evhttp_request_get_connection(req))
		evhttp_request_free(req);
}

// evhttp does not look at a connection whose request is not answered yet: the
// end of it is watched for apart.
void client_open(struct serve *s, struct evhttp_request *req,
		 void (*leave)(void *ctx), void *ctx, struct client *out)
{
	struct evhttp_connection *conn = evhttp_request_get_connection(req);
	struct bufferevent *bev = evhttp_connection_get_bufferevent(conn);

	*out = (struct client){.req = req, .leave = leave, .ctx = ctx};
	evhttp_connection_set_closecb(conn, on_close, out);
	out->gone = event_new(s->base, bufferevent_getfd(bev), EV_CLOSED,
			      on_gone, out);
	if (out->gone)
		event_add(out->gone, NULL);
}
