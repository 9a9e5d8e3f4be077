// http.c - bytes over a connection: whole, in pieces, left in the middle.  What
// comes back is HTTP, and says in JSON what is wrong.
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tools/serve/serve.h"

static const char *path;
static char got[1 << 20];
static size_t n_got;

static const char *open_http(void)
{
	return fuzz_server_listen(&path);
}

// Until nothing happens any more.
static void turn(int fd)
{
	struct serve *s = fuzz_server();

	for (int quiet = 0; quiet < 2;) {
		size_t before = n_got;
		ssize_t n;

		event_base_loop(s->base, EVLOOP_NONBLOCK);
		while (fuzz_engine_live()) {
			answer_events(s);
			quiet = 0;
		}
		while (fd >= 0 && n_got < sizeof(got) &&
		       (n = read(fd, got + n_got, sizeof(got) - n_got)) > 0)
			n_got += (size_t)n;
		quiet = n_got == before ? quiet + 1 : 0;
	}
}

// ---- what came back ----

struct reply {
	const char *s;
	size_t n;
};

static bool take_line(struct reply *r, struct reply *out)
{
	const char *end = memmem(r->s, r->n, "\r\n", 2);

	if (!end)
		return false;
	*out = (struct reply){r->s, (size_t)(end - r->s)};
	r->n -= out->n + 2;
	r->s = end + 2;
	return true;
}

static bool starts(const struct reply *l, const char *with)
{
	return l->n >= strlen(with) && !strncasecmp(l->s, with, strlen(with));
}

static bool is_json(const char *s, size_t n)
{
	json_t *j = json_loadb(s, n, JSON_DECODE_ANY, NULL);

	json_decref(j);
	return j;
}

// The bodies of chunks follow each other: out begins where the first does.
static const char *chunks(struct reply *r, char *out, size_t *out_n)
{
	struct reply line;

	*out_n = 0;
	for (;;) {
		size_t n;

		if (!take_line(r, &line))
			return "a chunk without its size";
		n = strtoul(line.s, NULL, 16);
		if (r->n < n + 2)
			return "a chunk is cut off";
		memmove(out + *out_n, r->s, n);
		*out_n += n;
		r->s += n + 2;
		r->n -= n + 2;
		if (!n)
			return NULL;
	}
}

static const char *events(const char *s, size_t n)
{
	while (n) {
		const char *end = memmem(s, n, "\n\n", 2);
		const char *data = memmem(s, n, "data: ", 6);
		size_t len;

		if (!end || !data || data > end)
			return "an event that is none";
		data += 6;
		len = (size_t)(end - data);
		if ((len != 6 || memcmp(data, "[DONE]", 6)) &&
		    !is_json(data, len))
			return "an event that is no JSON";
		n -= (size_t)(end + 2 - s);
		s = end + 2;
	}
	return NULL;
}

static const char *one_reply(struct reply *r, bool may_be_head)
{
	struct reply line;
	bool json = false, stream = false, chunked = false, whole = true;
	size_t n = 0;
	char *body;
	int status;

	if (!take_line(r, &line) || !starts(&line, "HTTP/1.") || line.n < 12)
		return "what came back is no HTTP";
	status = atoi(line.s + 9);
	while (take_line(r, &line) && line.n) {
		json |= starts(&line, "content-type: application/json");
		stream |= starts(&line, "content-type: text/event-stream");
		chunked |= starts(&line, "transfer-encoding: chunked");
		if (!starts(&line, "content-length: "))
			continue;
		n = strtoul(line.s + 16, NULL, 10);
		whole = false;
	}
	if (status < 200)
		return NULL;
	if (status >= 400 && !json)
		return "an error that is not in JSON";
	if (may_be_head && (!r->n || starts(r, "HTTP/1.")))
		return NULL;
	body = (char *)(uintptr_t)r->s;
	if (chunked) {
		const char *wrong = chunks(r, body, &n);

		return wrong ? wrong : stream ? events(body, n) : NULL;
	}
	if (whole) // HTTP/1.0: until its end
		n = r->n;
	if (r->n < n)
		return "a reply is cut off";
	r->s += n;
	r->n -= n;
	if (json && !is_json(body, n))
		return "a reply that is no JSON";
	if (status >= 400 && !memmem(body, n, "\"error\":", 8) &&
	    !memmem(body, n, "\"status\":", 9))
		return "an error without its object";
	return stream ? events(body, n) : NULL;
}

// ---- an execution ----

static const char *run_http(const char *s, size_t n, uint64_t *seed)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool leaves = !fuzz_draw(seed, 8);
	uint64_t pieces = fuzz_draw(seed, 3) ? 1 : 1 + fuzz_draw(seed, 8);
	struct reply r = {got, 0};
	const char *wrong = NULL;

	n_got = 0;
	fuzz_engine_seed(*seed);
	strcpy(at.sun_path, path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)))
		return "no connection";
	for (size_t from = 0; from < n && pieces; pieces--) {
		size_t len =
			pieces == 1 ? n - from : fuzz_draw(seed, n - from + 1);

		// it may have been closed
		if (send(fd, s + from, len, MSG_NOSIGNAL) < 0)
			break;
		from += len;
		if (leaves && pieces == 1)
			break;
		turn(fd);
	}
	if (!leaves)
		turn(fd);
	close(fd);
	turn(-1);
	http_sweep(fuzz_server());
	if (fuzz_server()->n_conns || fuzz_server()->answers)
		return "who left is still there";
	if (leaves)
		return NULL;
	for (r.n = n_got; !wrong && r.n;)
		wrong = one_reply(&r, memmem(s, n, "HEAD", 4));
	if (wrong && getenv("FUZZ_REPLY"))
		fprintf(stderr, "%.*s\n", (int)n_got, got);
	return wrong;
}

const struct fuzz_target fuzz_http = {
	"http", "http", true, open_http, run_http, fuzz_server_close, 4};
