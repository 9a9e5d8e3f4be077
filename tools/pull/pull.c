// pull.c - the command that gets a model from a hub:
//   models--ORG--NAME/blobs/HASH            files by their content
//   models--ORG--NAME/snapshots/COMMIT/...  links to them, by their names
//   models--ORG--NAME/refs/REVISION         the commit; written last
#include "tools/pull/pull.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/pull/choose.h"
#include "tools/pull/fetch.h"

#define MOST_FILES 20000
#define MAX_PATH 4200

struct repo {
	char id[200];	  // ORG/NAME
	const char *what; // after a colon, or NULL
	const char *revision;
	char commit[65];
	char folder[MAX_PATH]; // models--ORG--NAME
	struct hub_file *files;
	size_t n;
};

static const char *set_or_null(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

static bool is_on(const char *name)
{
	const char *v = set_or_null(name);

	return v && strcasecmp(v, "0") && strcasecmp(v, "false") &&
	       strcasecmp(v, "no") && strcasecmp(v, "off");
}

// ---- names and places ----

static bool parse_name(const char *text, struct repo *r)
{
	const char *colon = strchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : strlen(text);
	const char *slash = memchr(text, '/', n);

	if (!slash || slash == text || slash + 1 == text + n ||
	    n >= sizeof(r->id) ||
	    memchr(slash + 1, '/', n - (size_t)(slash + 1 - text)))
		return false;
	for (size_t i = 0; i < n; i++)
		if (text[i] != '/' && !strchr("abcdefghijklmnopqrstuvwxyz"
					      "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
					      "0123456789._-",
					      text[i]))
			return false;
	if (text[0] == '.' || slash[1] == '.' || text[0] == '-')
		return false;
	snprintf(r->id, sizeof(r->id), "%.*s", (int)n, text);
	r->what = colon && colon[1] ? colon + 1 : NULL;
	return !colon || r->what;
}

// Below $HF_HOME, which has a place of its own where it is not set.
static bool hf_home(char *out, size_t cap, const char *rest)
{
	const char *home = set_or_null("HF_HOME"), *more = "";
	int n;

	if (!home) {
		home = set_or_null("XDG_CACHE_HOME");
		more = "/huggingface";
	}
	if (!home) {
		home = set_or_null("HOME");
		more = "/.cache/huggingface";
	}
	n = home ? snprintf(out, cap, "%s%s%s", home, more, rest) : -1;
	return n > 0 && n < (int)cap;
}

static int32_t find_folder(struct cli *c, struct repo *r)
{
	const char *cache = set_or_null("HF_HUB_CACHE");
	char hub[MAX_PATH], name[200];
	int n;

	if (cache)
		snprintf(hub, sizeof(hub), "%s", cache);
	else if (!hf_home(hub, sizeof(hub), "/hub"))
		return genai_fail(&c->err, GENAI_E_CONFIG,
				  "no place for models: HOME is not set");
	n = (int)(strchr(r->id, '/') - r->id);
	snprintf(name, sizeof(name), "%.*s", n, r->id);
	n = snprintf(r->folder, sizeof(r->folder), "%s/models--%s--%s", hub,
		     name, r->id + n + 1);
	return n < (int)sizeof(r->folder) - 1200
		       ? 0
		       : genai_fail(&c->err, GENAI_E_INVAL, "%s: path too long",
				    hub);
}

static void free_files(struct repo *r)
{
	for (size_t i = 0; i < r->n; i++)
		free(r->files[i].name);
	free(r->files);
	r->files = NULL;
	r->n = 0;
}

static int32_t add_file(struct cli *c, struct repo *r, const char *name,
			uint64_t bytes, const char *hash)
{
	struct hub_file *more;

	if (r->n == MOST_FILES)
		return genai_fail(&c->err, GENAI_E_LIMIT,
				  "%s: more than %d files", r->id, MOST_FILES);
	more = realloc(r->files, (r->n + 1) * sizeof(*more));
	if (more)
		r->files = more;
	if (more)
		more[r->n] =
			(struct hub_file){.name = strdup(name), .bytes = bytes};
	if (!more || !more[r->n].name)
		return genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
	snprintf(more[r->n++].hash, sizeof(more->hash), "%s", hash);
	return 0;
}

// ---- what is here ----

static struct {
	struct cli *c;
	struct repo *r;
	size_t skip;
} walk;

static int walked(const char *path, const struct stat *st, int type,
		  struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	if (type != FTW_F && type != FTW_SL)
		return 0;
	return add_file(walk.c, walk.r, path + walk.skip, 0, "");
}

static int32_t read_commit(struct repo *r, const char *revision)
{
	char path[MAX_PATH + 300];
	FILE *f;
	int got = 0;

	snprintf(path, sizeof(path), "%s/refs/%s", r->folder, revision);
	f = fopen(path, "re");
	if (f) {
		got = fscanf(f, "%64[0-9a-f]", r->commit);
		fclose(f);
	}
	return got == 1 ? 0 : GENAI_E_NOTFOUND;
}

// The model of a repository that was pulled.
static int32_t local(struct cli *c, struct repo *r, char *out, size_t cap)
{
	char path[MAX_PATH + 100], inside[1100];
	int32_t rc = read_commit(r, r->revision);

	if (rc)
		return rc;
	snprintf(path, sizeof(path), "%s/snapshots/%s", r->folder, r->commit);
	walk.c = c;
	walk.r = r;
	walk.skip = strlen(path) + 1;
	rc = nftw(path, walked, 16, FTW_PHYS);
	if (rc)
		return rc < -1 ? rc : GENAI_E_NOTFOUND;
	rc = hub_choose(r->files, r->n, r->id, r->what, inside, sizeof(inside),
			&c->err);
	if (!rc)
		snprintf(out, cap, "%s%s%s", path, *inside ? "/" : "", inside);
	return rc;
}

int32_t pull_resolve(struct cli *c, const char **path, char *buf, size_t cap)
{
	struct repo r = {.revision = "main"};
	int32_t rc;

	if (!access(*path, F_OK) || !parse_name(*path, &r))
		return 0;
	rc = find_folder(c, &r);
	if (!rc)
		rc = local(c, &r, buf, cap);
	free_files(&r);
	if (!rc) {
		*path = buf;
		return 0;
	}
	if (rc != GENAI_E_NOTFOUND || c->err.code)
		return rc;
	return genai_fail(&c->err, GENAI_E_NOTFOUND,
			  "%s: cannot open: %s; if it is a model of the hub: "
			  "genai pull %s",
			  *path, strerror(ENOENT), *path);
}

#if HAVE_LIBCURL

// ---- what the hub says ----

static bool is_hash(const char *s, size_t n)
{
	return s && strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

static int32_t strange(struct cli *c, const char *url, const char *what)
{
	return genai_fail(&c->err, GENAI_E_FORMAT,
			  "%s: not what a hub answers: %s", url, what);
}

static int32_t take_list(struct cli *c, struct repo *r, const char *url,
			 const json_t *j)
{
	const json_t *list = json_object_get(j, "siblings"), *f;
	const char *sha = json_string_value(json_object_get(j, "sha"));
	size_t i;
	int32_t rc = 0;

	if (!is_hash(sha, 40) && !is_hash(sha, 64))
		return strange(c, url, "no commit");
	snprintf(r->commit, sizeof(r->commit), "%s", sha);
	if (!json_is_array(list))
		return strange(c, url, "no list of files");
	json_array_foreach(list, i, f)
	{
		const char *name =
			json_string_value(json_object_get(f, "rfilename"));
		const json_t *size = json_object_get(f, "size");
		const char *hash = json_string_value(
			json_object_get(json_object_get(f, "lfs"), "sha256"));

		if (!hash)
			hash = json_string_value(json_object_get(f, "blobId"));
		if (!name || !hub_name_is_safe(name))
			return strange(c, url, "a file's name that is none");
		if (!json_is_integer(size) || json_integer_value(size) < 0)
			return strange(c, url, "a file without a size");
		if (!is_hash(hash, 40) && !is_hash(hash, 64))
			return strange(c, url, "a file without a hash");
		rc = add_file(c, r, name, (uint64_t)json_integer_value(size),
			      hash);
		if (rc)
			return rc;
	}
	return 0;
}

static int32_t ask_list(struct fetch *f, struct repo *r, const char *endpoint)
{
	char url[1200], *text = NULL;
	json_t *j;
	int32_t rc;

	snprintf(url, sizeof(url), "%s/api/models/%s/revision/%s?blobs=true",
		 endpoint, r->id, r->revision);
	rc = fetch_text(f, url, 64u << 20, &text);
	if (rc)
		return rc;
	j = json_loads(text, 0, NULL);
	rc = j ? take_list(f->c, r, url, j) : strange(f->c, url, "no JSON");
	json_decref(j);
	free(text);
	return rc;
}

// ---- the files ----

static int32_t cannot(struct cli *c, const char *path)
{
	return genai_fail(&c->err, GENAI_E_IO, "%s: cannot write: %s", path,
			  strerror(errno));
}

// The folders above what path names.
static int32_t make_above(struct cli *c, char *path)
{
	for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = 0;
		if (mkdir(path, 0777) && errno != EEXIST)
			return cannot(c, path);
		*p = '/';
	}
	return 0;
}

// A name as a part of an address; slashes stay.
static char *escaped(const char *name)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789-._~/";
	char *out = calloc(1, 3 * strlen(name) + 1), *at = out;

	for (; out && *name; name++)
		at += sprintf(at, strchr(plain, *name) ? "%c" : "%%%02X",
			      (unsigned char)*name);
	return out;
}

static int32_t get_file(struct fetch *f, const struct repo *r,
			const char *endpoint, const struct hub_file *file)
{
	char path[MAX_PATH + 100], *url = NULL, *name = escaped(file->name);
	int32_t rc;

	if (!name || asprintf(&url, "%s/%s/resolve/%s/%s", endpoint, r->id,
			      r->commit, name) < 0) {
		free(name);
		return genai_fail(&f->c->err, GENAI_E_NOMEM, "no memory");
	}
	snprintf(path, sizeof(path), "%s/blobs/%s", r->folder, file->hash);
	rc = make_above(f->c, path);
	if (!rc)
		rc = fetch_file(f, url, file->name, file->bytes, file->hash,
				path);
	free(url);
	free(name);
	return rc;
}

static int32_t link_file(struct cli *c, const struct repo *r,
			 const struct hub_file *file)
{
	char path[MAX_PATH + 1300], to[1200] = "../..", there[1200];
	size_t n = 5;
	ssize_t k;
	int32_t rc;

	snprintf(path, sizeof(path), "%s/snapshots/%s/%s", r->folder, r->commit,
		 file->name);
	for (const char *p = strchr(file->name, '/'); p && n < 1000;
	     p = strchr(p + 1, '/'))
		n += (size_t)snprintf(to + n, sizeof(to) - n, "/..");
	snprintf(to + n, sizeof(to) - n, "/blobs/%s", file->hash);
	rc = make_above(c, path);
	if (rc)
		return rc;
	k = readlink(path, there, sizeof(there) - 1);
	if (k > 0 && (size_t)k == strlen(to) && !memcmp(there, to, (size_t)k))
		return 0;
	if ((unlink(path) && errno != ENOENT) || symlink(to, path))
		return cannot(c, path);
	return 0;
}

static int32_t write_ref(struct cli *c, const struct repo *r)
{
	char path[MAX_PATH + 300], next[MAX_PATH + 320];
	FILE *f;
	bool failed;
	int32_t rc;

	snprintf(path, sizeof(path), "%s/refs/%s", r->folder, r->revision);
	snprintf(next, sizeof(next), "%s.%ld", path, (long)getpid());
	rc = make_above(c, path);
	if (rc)
		return rc;
	f = fopen(next, "we");
	if (!f)
		return cannot(c, next);
	failed = fputs(r->commit, f) < 0;
	failed |= fclose(f) != 0;
	if (failed || rename(next, path)) {
		rc = cannot(c, path);
		unlink(next);
	}
	return rc;
}

static int32_t pull_all(struct fetch *f, struct repo *r, const char *endpoint,
			char *out, size_t cap)
{
	char inside[1100];
	int32_t rc = ask_list(f, r, endpoint);

	if (!rc)
		rc = hub_choose(r->files, r->n, r->id, r->what, inside,
				sizeof(inside), &f->c->err);
	for (size_t i = 0; !rc && i < r->n; i++)
		if (r->files[i].wanted)
			rc = get_file(f, r, endpoint, &r->files[i]);
	for (size_t i = 0; !rc && i < r->n; i++)
		if (r->files[i].wanted)
			rc = link_file(f->c, r, &r->files[i]);
	if (!rc)
		rc = write_ref(f->c, r);
	if (!rc)
		snprintf(out, cap, "%s/snapshots/%s%s%s", r->folder, r->commit,
			 *inside ? "/" : "", inside);
	return rc;
}

// ---- the command ----

// $HF_TOKEN, or the file that logging in leaves.
static char *find_token(void)
{
	const char *token = set_or_null("HF_TOKEN");
	const char *file = set_or_null("HF_TOKEN_PATH");
	char path[MAX_PATH], line[1000] = "";
	FILE *f;

	if (!token) {
		if (!file && hf_home(path, sizeof(path), "/token"))
			file = path;
		f = file ? fopen(file, "re") : NULL;
		if (f && fgets(line, sizeof(line), f))
			token = line;
		if (f)
			fclose(f);
	}
	// nothing that would be more than a header
	return token && *token ? strndup(token, strcspn(token, " \t\r\n"))
			       : NULL;
}

static int32_t from_hub(struct cli *c, struct repo *r, char *out, size_t cap)
{
	const char *endpoint = set_or_null("HF_ENDPOINT");
	char plain[500], *token = find_token();
	struct fetch f;
	int32_t rc = fetch_open(c, &f);

	snprintf(plain, sizeof(plain), "%s",
		 endpoint ? endpoint : "https://huggingface.co");
	while (*plain && plain[strlen(plain) - 1] == '/')
		plain[strlen(plain) - 1] = 0;
	f.token = token;
	if (!rc)
		rc = pull_all(&f, r, plain, out, cap);
	fetch_close(&f);
	free(token);
	return rc;
}
#endif

static struct {
	const char *name, *revision;
	bool json;
} o = {.revision = "main"};

static const struct cli_option options[] = {
	{"revision", 0, CLI_TEXT, "NAME", "a branch, a tag or a commit (main)",
	 &o.revision},
	{"json", 0, CLI_FLAG, NULL, "one JSON object", &o.json},
	{0}};

static int pull(struct cli *c, int argc, char **argv)
{
	struct repo r = {0};
	char path[MAX_PATH + 1300];
	int status =
		cli_argument(c, options, argc, argv, "one ORG/NAME", &o.name);
	int32_t rc;

	if (status)
		return status;
	if (!parse_name(o.name, &r))
		return cli_usage(c, "%s: a name is ORG/NAME, or ORG/NAME:PART",
				 o.name);
	if (!*o.revision || strlen(o.revision) > 200 || o.revision[0] == '.' ||
	    strstr(o.revision, "..") ||
	    strspn(o.revision, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRST"
			       "UVWXYZ0123456789._-/") != strlen(o.revision))
		return cli_usage(c,
				 "--revision %s: letters, digits, ., _, - "
				 "and /",
				 o.revision);
	r.revision = o.revision;
	cli_catch_interrupts(1);
	rc = find_folder(c, &r);
	if (!rc && is_on("HF_HUB_OFFLINE")) {
		rc = local(c, &r, path, sizeof(path));
		if (rc && !c->err.code)
			genai_fail(&c->err, GENAI_E_NOTFOUND,
				   "%s: not here, and HF_HUB_OFFLINE forbids "
				   "to ask for it",
				   r.id);
	} else if (!rc) {
#if HAVE_LIBCURL
		rc = from_hub(c, &r, path, sizeof(path));
#else
		rc = genai_fail(&c->err, GENAI_E_CONFIG,
				"this genai was built without libcurl, which "
				"pull needs: install it (Debian: apt-get "
				"install libcurl4-openssl-dev), configure and "
				"build again");
#endif
	}
	cli_clear_line(c);
	if (rc)
		status = cli_fail(c);
	else if (o.json)
		cli_print_json(json_pack("{s:s, s:s, s:s}", "name", r.id,
					 "commit", r.commit, "path", path));
	else
		printf("%s\n", path);
	free_files(&r);
	return status;
}

const struct command cmd_pull = {
	"pull",
	pull,
	"ORG/NAME[:PART]",
	"get a model from the hub",
	options,
	"It is kept where huggingface_hub keeps it; other commands take "
	"ORG/NAME,\n"
	"too, then.  PART tells several models of a repository apart.\n"
	"HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE are "
	"heard.\n"};
