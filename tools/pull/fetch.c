// fetch.c - one file over HTTP: resumed, checked, in its place when whole.
//
// libcurl is loaded when it is needed: it takes two dozen libraries along,
// which no other command wants, and knows the certificates of the system that
// it is of.
#include "tools/pull/fetch.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tools/pull/hash.h"

#define TRIES 5 // that bring nothing, one after the other
#define PATIENCE_S 10

// An answer on its way.
struct answer {
	struct fetch *f;
	const char *name;
	// a file
	int fd;
	struct hash hash;
	uint64_t at, bytes; // here; of the whole file
	bool begun;	    // the status was looked at
	int error;	    // of writing
	// a text
	char *text;
	size_t n, most;
	bool too_large;
};

static struct {
	CURLcode (*global_init)(long flags);
	CURL *(*init)(void);
	void (*reset)(CURL *h);
	CURLcode (*setopt)(CURL *h, CURLoption option, ...);
	CURLcode (*perform)(CURL *h);
	CURLcode (*getinfo)(CURL *h, CURLINFO info, ...);
	void (*cleanup)(CURL *h);
	struct curl_slist *(*append)(struct curl_slist *list, const char *s);
	void (*free_all)(struct curl_slist *list);
	const char *(*text)(CURLcode code);
} curl;

static int32_t load(struct cli *c)
{
	static const char *const libs[] = {"libcurl.so.4",
					   "libcurl-gnutls.so.4"};
	static const struct {
		const char *name;
		void *to;
	} functions[] = {
		{"curl_global_init", &curl.global_init},
		{"curl_easy_init", &curl.init},
		{"curl_easy_reset", &curl.reset},
		{"curl_easy_setopt", &curl.setopt},
		{"curl_easy_perform", &curl.perform},
		{"curl_easy_getinfo", &curl.getinfo},
		{"curl_easy_cleanup", &curl.cleanup},
		{"curl_slist_append", &curl.append},
		{"curl_slist_free_all", &curl.free_all},
		{"curl_easy_strerror", &curl.text},
	};
	void *lib = NULL, *f;

	for (size_t i = 0; !lib && i < sizeof(libs) / sizeof(libs[0]); i++)
		lib = dlopen(libs[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!lib)
		return genai_fail(&c->err, GENAI_E_NOTFOUND,
				  "libcurl, which pull needs, is not here "
				  "(Debian: apt-get install libcurl4): %s",
				  dlerror());
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		f = dlsym(lib, functions[i].name);
		if (!f)
			return genai_fail(&c->err, GENAI_E_NOTFOUND,
					  "libcurl is too old: %s", dlerror());
		memcpy(functions[i].to, &f, sizeof(f));
	}
	return 0;
}

int32_t fetch_open(struct cli *c, struct fetch *out)
{
	const char *patience = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
	char *end;

	*out = (struct fetch){.c = c, .patience_s = PATIENCE_S};
	if (patience && *patience) {
		out->patience_s = strtol(patience, &end, 10);
		if (*end || out->patience_s < 1 || out->patience_s > 86400)
			return genai_fail(&c->err, GENAI_E_CONFIG,
					  "HF_HUB_DOWNLOAD_TIMEOUT=%s: "
					  "seconds, 1 to 86400",
					  patience);
	}
	if (load(c))
		return c->err.code;
	if (!curl.global_init(CURL_GLOBAL_DEFAULT))
		out->curl = curl.init();
	return out->curl ? 0 : genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
}

void fetch_close(struct fetch *f)
{
	if (f->curl)
		curl.cleanup(f->curl);
}

static int keep_going(void *ctx, curl_off_t total, curl_off_t now,
		      curl_off_t up_total, curl_off_t up_now)
{
	const struct answer *a = ctx;

	(void)total;
	(void)now;
	(void)up_total;
	(void)up_now;
	if (a->bytes)
		cli_progress(a->f->c, "%s %3.0f %%, %.1f of %.1f MiB", a->name,
			     100.0 * (double)a->at / (double)a->bytes,
			     (double)a->at / 1048576,
			     (double)a->bytes / 1048576);
	return cli_interrupted;
}

static size_t take_text(char *data, size_t one, size_t n, void *ctx)
{
	struct answer *a = ctx;
	char *more;

	(void)one;
	if (n > a->most - a->n) {
		a->too_large = true;
		return 0;
	}
	more = realloc(a->text, a->n + n + 1);
	if (!more)
		return 0;
	a->text = more;
	memcpy(more + a->n, data, n);
	a->n += n;
	more[a->n] = 0;
	return n;
}

static void hash_start(struct answer *a)
{
	char git[32];

	hash_begin(&a->hash, a->hash.wide);
	if (!a->hash.wide) {
		int n = snprintf(git, sizeof(git), "blob %" PRIu64, a->bytes);

		hash_add(&a->hash, git, (size_t)n + 1);
	}
}

static size_t take_file(char *data, size_t one, size_t n, void *ctx)
{
	struct answer *a = ctx;
	long status = 0;

	(void)one;
	if (!a->begun) {
		a->begun = true;
		curl.getinfo(a->f->curl, CURLINFO_RESPONSE_CODE, &status);
		// the whole of it, though a part was asked for
		if (a->at && status == 200) {
			if (ftruncate(a->fd, 0) ||
			    lseek(a->fd, 0, SEEK_SET) < 0) {
				a->error = errno;
				return 0;
			}
			a->at = 0;
			hash_start(a);
		}
	}
	if (n > a->bytes - a->at) {
		a->too_large = true;
		return 0;
	}
	for (size_t done = 0; done < n;) {
		ssize_t k = write(a->fd, data + done, n - done);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0) {
			a->error = errno;
			return 0;
		}
		done += (size_t)k;
	}
	hash_add(&a->hash, data, n);
	a->at += n;
	return n;
}

static CURLcode ask(struct fetch *f, const char *url, struct answer *a,
		    size_t (*take)(char *data, size_t one, size_t n, void *ctx))
{
	struct curl_slist *headers = NULL;
	CURL *h = f->curl;
	char range[40], *auth = NULL;
	CURLcode rc;

	curl.reset(h);
	curl.setopt(h, CURLOPT_URL, url);
	rc = curl.setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
	if (!rc)
		rc = curl.setopt(h, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
	if (rc)
		return rc; // older than 7.85
	curl.setopt(h, CURLOPT_FOLLOWLOCATION, 1L);
	curl.setopt(h, CURLOPT_MAXREDIRS, 5L);
	curl.setopt(h, CURLOPT_FAILONERROR, 1L);
	curl.setopt(h, CURLOPT_NOSIGNAL, 1L);
	curl.setopt(h, CURLOPT_USERAGENT, "genai/" GENAI_VERSION_STRING);
	curl.setopt(h, CURLOPT_CONNECTTIMEOUT, f->patience_s);
	curl.setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl.setopt(h, CURLOPT_LOW_SPEED_TIME, f->patience_s);
	curl.setopt(h, CURLOPT_NOPROGRESS, 0L);
	curl.setopt(h, CURLOPT_XFERINFOFUNCTION, keep_going);
	curl.setopt(h, CURLOPT_XFERINFODATA, a);
	curl.setopt(h, CURLOPT_WRITEFUNCTION, take);
	curl.setopt(h, CURLOPT_WRITEDATA, a);
	if (a->at) {
		snprintf(range, sizeof(range), "%" PRIu64 "-", a->at);
		curl.setopt(h, CURLOPT_RANGE, range);
	}
	// libcurl drops it when another host is where the answer is
	if (f->token &&
	    asprintf(&auth, "Authorization: Bearer %s", f->token) > 0) {
		headers = curl.append(NULL, auth);
		curl.setopt(h, CURLOPT_HTTPHEADER, headers);
	}
	rc = curl.perform(h);
	curl.free_all(headers);
	free(auth);
	return rc;
}

static int32_t fail(struct fetch *f, const char *url, CURLcode rc)
{
	long status = 0;

	curl.getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
	if (cli_interrupted)
		return genai_fail(&f->c->err, GENAI_E_INTERRUPTED,
				  "interrupted");
	if (status == 401 || status == 403)
		return genai_fail(&f->c->err, GENAI_E_IO, "%s: status %ld: %s",
				  url, status,
				  f->token ? "the token does not allow it"
					   : "a token is needed: HF_TOKEN, or "
					     "what hf auth login keeps");
	if (status == 404)
		return genai_fail(&f->c->err, GENAI_E_NOTFOUND,
				  "%s: not there (status 404)", url);
	if (rc == CURLE_HTTP_RETURNED_ERROR)
		return genai_fail(&f->c->err, GENAI_E_IO, "%s: status %ld", url,
				  status);
	return genai_fail(&f->c->err, GENAI_E_IO, "%s: %s", url, curl.text(rc));
}

// May the next try bring more?
static bool broke_off(struct fetch *f, CURLcode rc)
{
	long status = 0;

	curl.getinfo(f->curl, CURLINFO_RESPONSE_CODE, &status);
	return !cli_interrupted &&
	       (rc == CURLE_PARTIAL_FILE || rc == CURLE_RECV_ERROR ||
		rc == CURLE_SEND_ERROR || rc == CURLE_GOT_NOTHING ||
		rc == CURLE_OPERATION_TIMEDOUT || rc == CURLE_COULDNT_CONNECT ||
		(rc == CURLE_HTTP_RETURNED_ERROR &&
		 (status >= 500 || status == 429)));
}

// Longer each time; an interrupt ends it.
static void rest(int tries)
{
	for (int i = 0; i < 2 << tries && !cli_interrupted; i++)
		usleep(50000);
}

int32_t fetch_text(struct fetch *f, const char *url, size_t most, char **out)
{
	struct answer a;
	CURLcode rc;
	int tries = 0;

	do {
		a = (struct answer){.f = f, .most = most};
		rc = ask(f, url, &a, take_text);
		if (!rc && a.text) {
			*out = a.text;
			return 0;
		}
		free(a.text);
		if (a.too_large)
			return genai_fail(&f->c->err, GENAI_E_LIMIT,
					  "%s: an answer of more than %zu "
					  "bytes",
					  url, most);
		rest(tries);
	} while (broke_off(f, rc) && ++tries < TRIES);
	return rc ? fail(f, url, rc)
		  : genai_fail(&f->c->err, GENAI_E_IO, "%s: an empty answer",
			       url);
}

// What is there of a file already.
static int32_t read_begun(struct answer *a, const char *path)
{
	static char buf[1 << 16];
	ssize_t n;

	hash_start(a);
	while ((n = read(a->fd, buf, sizeof(buf))) > 0 && a->at < a->bytes) {
		hash_add(&a->hash, buf, (size_t)n);
		a->at += (size_t)n;
	}
	if (n < 0)
		return genai_fail(&a->f->c->err, GENAI_E_IO,
				  "%s: cannot read: %s", path, strerror(errno));
	if (a->at > a->bytes || n > 0) { // of another file
		if (ftruncate(a->fd, 0) || lseek(a->fd, 0, SEEK_SET) < 0)
			return genai_fail(&a->f->c->err, GENAI_E_IO,
					  "%s: cannot write: %s", path,
					  strerror(errno));
		a->at = 0;
		hash_start(a);
	}
	return 0;
}

static int32_t has_room(struct answer *a, const char *path)
{
	struct statvfs v;
	uint64_t there;

	if (fstatvfs(a->fd, &v))
		return 0;
	there = (uint64_t)v.f_bavail * v.f_frsize;
	if (there >= a->bytes - a->at)
		return 0;
	return genai_fail(&a->f->c->err, GENAI_E_IO,
			  "%s: %" PRIu64 " bytes are needed, %" PRIu64
			  " are free",
			  path, a->bytes - a->at, there);
}

static int32_t get_rest(struct answer *a, const char *url, const char *path)
{
	struct fetch *f = a->f;
	int tries = 0;

	while (a->at < a->bytes) {
		uint64_t before = a->at;
		CURLcode rc;

		a->begun = false;
		rc = ask(f, url, a, take_file);
		if (a->error)
			return genai_fail(&f->c->err, GENAI_E_IO,
					  "%s: cannot write: %s", path,
					  strerror(a->error));
		if (a->too_large)
			return genai_fail(&f->c->err, GENAI_E_FORMAT,
					  "%s: more than the %" PRIu64
					  " bytes that the hub says it has",
					  url, a->bytes);
		if (rc && !broke_off(f, rc))
			return fail(f, url, rc);
		tries = a->at > before ? 0 : tries + 1;
		if (tries == TRIES)
			return rc ? fail(f, url, rc)
				  : genai_fail(&f->c->err, GENAI_E_IO,
					       "%s: ended after %" PRIu64
					       " of %" PRIu64 " bytes",
					       url, a->at, a->bytes);
		if (tries)
			rest(tries);
	}
	return 0;
}

int32_t fetch_file(struct fetch *f, const char *url, const char *name,
		   uint64_t bytes, const char *hash, const char *path)
{
	struct answer a = {.f = f, .name = name, .bytes = bytes};
	struct genai_error *err = &f->c->err;
	char part[4400], is[HASH_HEX];
	int32_t rc = 0;

	if (!access(path, F_OK))
		return 0;
	snprintf(part, sizeof(part), "%s.incomplete", path);
	a.fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (a.fd < 0)
		return genai_fail(err, GENAI_E_IO, "%s: cannot write: %s", part,
				  strerror(errno));
	while (flock(a.fd, LOCK_EX) && errno == EINTR && !cli_interrupted)
		;
	if (!access(path, F_OK)) // somebody else has fetched it meanwhile
		goto out;
	a.hash.wide = strlen(hash) == 64;
	rc = read_begun(&a, part);
	if (!rc)
		rc = has_room(&a, part);
	if (!rc)
		rc = get_rest(&a, url, part);
	cli_clear_line(f->c);
	if (rc)
		goto out;
	hash_end(&a.hash, is);
	if (strcmp(is, hash)) {
		unlink(part);
		rc = genai_fail(err, GENAI_E_FORMAT,
				"%s: its hash is %s, not %s as the hub says; "
				"it is not kept",
				url, is, hash);
	} else if (fsync(a.fd) || rename(part, path)) {
		rc = genai_fail(err, GENAI_E_IO, "%s: cannot write: %s", path,
				strerror(errno));
	}
out:
	close(a.fd);
	return rc;
}
