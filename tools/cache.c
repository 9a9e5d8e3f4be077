// cache.c - imports of GGUF files, kept in one folder:
//   NAME-HASH/         an import; HASH is that of the file's content
//   .known-SIZE-CTIME-INODE-DEVICE
//                      the hash of a file that was read before, so that it is
//                      read again only when it was written, moved or touched
//   rates-KEY          what was measured of a device (rates.c)
//   limit              bytes that all imports may have together
#include "tools/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/config/config.h"
#include "core/gguf/gguf.h"
#include "tools/rates.h"

#define HASH_TEXT 33

// ---- the folder ----

static bool is_folder(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return false;
	errno = ENOTDIR;
	return S_ISDIR(st.st_mode);
}

bool cache_make(char *path)
{
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		if (mkdir(path, 0777) && errno != EEXIST) {
			*p = '/';
			return false;
		}
		*p = '/';
	}
	return !mkdir(path, 0777) || (errno == EEXIST && is_folder(path));
}

int32_t cache_folder(struct cli *c, char *out, size_t cap)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n;

	if (cache && cache[0] == '/')
		n = snprintf(out, cap, "%s/genai", cache);
	else if (home && home[0] == '/')
		n = snprintf(out, cap, "%s/.cache/genai", home);
	else
		return genai_fail(&c->err, GENAI_E_CONFIG,
				  "no cache folder for imports: set HOME, or "
				  "use genai import");
	return n < (int)cap - 512 ? 0
				  : genai_fail(&c->err, GENAI_E_INVAL,
					       "%.64s...: path too long", out);
}

// ---- the hash of a file ----

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
	return h ^ h >> 32;
}

// Two lanes of 64 bits over every word; each step can be undone, so any change
// of a word changes its lane.
static void hash_words(const unsigned char *p, size_t n, uint64_t h[2])
{
	size_t i = 0;
	uint64_t v;

	for (; i + 8 <= n; i += 8) {
		memcpy(&v, p + i, 8);
		h[0] = mix(h[0], v);
		h[1] = mix(h[1] + UINT64_C(0xc2b2ae3d27d4eb4f),
			   v << 29 | v >> 35);
	}
	v = 0;
	memcpy(&v, p + i, n - i);
	h[0] = mix(h[0], v ^ (uint64_t)(n - i) << 56);
	h[1] = mix(h[1], v + n);
}

#define PIECE (UINT64_C(64) << 20)

static int32_t hash_file(struct cli *c, const char *path, int fd,
			 uint64_t bytes, char out[HASH_TEXT])
{
	uint64_t h[2] = {bytes, ~bytes};
	unsigned char *buf = malloc(PIECE);
	ssize_t got = 1;
	uint64_t done = 0;
	int32_t rc = 0;

	if (!buf)
		return genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
	while (!rc && got) {
		size_t n = 0;

		while (n < PIECE && (got = read(fd, buf + n, PIECE - n)) > 0)
			n += (size_t)got;
		if (got < 0)
			rc = genai_fail(&c->err, GENAI_E_IO,
					"%s: cannot read: %s", path,
					strerror(errno));
		else if (n)
			hash_words(buf, n, h);
		done += n;
		if (bytes > 8 * PIECE)
			cli_progress(c, "looking at the file %3.0f %%",
				     100.0 * (double)done / (double)bytes);
		if (cli_interrupted)
			rc = genai_fail(&c->err, GENAI_E_INTERRUPTED,
					"interrupted");
	}
	cli_clear_line(c);
	free(buf);
	snprintf(out, HASH_TEXT, "%016" PRIx64 "%016" PRIx64, h[0], h[1]);
	return rc;
}

static bool read_text(const char *path, char *out, size_t cap)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = fd < 0 ? -1 : read(fd, out, cap - 1);

	if (fd >= 0)
		close(fd);
	out[n > 0 ? n : 0] = 0;
	return n > 0;
}

// Whole or not at all; what cannot be kept is found out again.
bool cache_write(const char *path, const char *text)
{
	char tmp[CACHE_PATH + 32];
	size_t n = strlen(text);
	bool ok;
	int fd;

	snprintf(tmp, sizeof(tmp), "%s.%ld", path, (long)getpid());
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	ok = fd >= 0 && write(fd, text, n) == (ssize_t)n;
	if (fd >= 0)
		ok = !close(fd) && ok;
	if (ok)
		ok = !rename(tmp, path);
	if (!ok)
		unlink(tmp);
	return ok;
}

static bool is_hash(const char *s)
{
	return strlen(s) == HASH_TEXT - 1 &&
	       strspn(s, "0123456789abcdef") == HASH_TEXT - 1;
}

static int32_t content(struct cli *c, const char *folder, const char *path,
		       char out[HASH_TEXT])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char known[CACHE_PATH + 128];
	struct stat st;
	int32_t rc;

	if (fd < 0 || fstat(fd, &st)) {
		rc = genai_fail(&c->err,
				errno == ENOENT ? GENAI_E_NOTFOUND : GENAI_E_IO,
				"%s: cannot open: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return rc;
	}
	snprintf(known, sizeof(known),
		 "%s/.known-%" PRIx64 "-%" PRIx64 ".%09ld-%" PRIx64 "-%" PRIx64,
		 folder, (uint64_t)st.st_size, (uint64_t)st.st_ctim.tv_sec,
		 st.st_ctim.tv_nsec, (uint64_t)st.st_ino, (uint64_t)st.st_dev);
	rc = 0;
	if (!read_text(known, out, HASH_TEXT) || !is_hash(out)) {
		rc = hash_file(c, path, fd, (uint64_t)st.st_size, out);
		if (!rc)
			cache_write(known, out);
	}
	close(fd);
	return rc;
}

// The hash of a file, or that of the hashes of its parts.
static int32_t content_of_all(struct cli *c, const char *folder,
			      struct genai_gguf *g, char out[HASH_TEXT])
{
	uint64_t h[2] = {1, 2};
	const char *part;
	int32_t rc = content(c, folder, genai_gguf_path(g), out);

	if (rc || !genai_gguf_part_path(g, 1))
		return rc;
	for (uint64_t i = 0; !rc && (part = genai_gguf_part_path(g, i)); i++) {
		rc = content(c, folder, part, out);
		if (!rc)
			hash_words((unsigned char *)out, HASH_TEXT - 1, h);
	}
	snprintf(out, HASH_TEXT, "%016" PRIx64 "%016" PRIx64, h[0], h[1]);
	return rc;
}

// ---- what is there ----

struct entry {
	char name[256];
	uint64_t bytes;
	time_t used;
	bool partial; // an import that was broken off
	bool rates;   // no import, but what was measured
};

struct list {
	struct entry *v;
	size_t n;
	uint64_t bytes;
};

static uint64_t bytes_in(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	struct stat st;
	uint64_t sum = 0;

	while (d && (e = readdir(d)))
		if (!fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
		    S_ISREG(st.st_mode))
			sum += (uint64_t)st.st_size;
	if (d)
		closedir(d);
	return sum;
}

static int by_use(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->used != y->used ? (x->used < y->used ? -1 : 1)
				  : strcmp(x->name, y->name);
}

// The least recently used first.
static int32_t look(struct cli *c, const char *folder, struct list *l)
{
	DIR *d = opendir(folder);
	char path[CACHE_PATH + 260];
	struct dirent *e;
	struct stat st;
	bool rates;
	int32_t rc = 0;

	memset(l, 0, sizeof(*l));
	while (!rc && d && (e = readdir(d))) {
		struct entry *more;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		if (lstat(path, &st))
			continue;
		rates = S_ISREG(st.st_mode) &&
			!strncmp(e->d_name, RATES_PREFIX, strlen(RATES_PREFIX));
		if (!rates && !S_ISDIR(st.st_mode))
			continue;
		more = realloc(l->v, (l->n + 1) * sizeof(*more));
		if (!more) {
			rc = genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
			break;
		}
		l->v = more;
		more += l->n++;
		snprintf(more->name, sizeof(more->name), "%s", e->d_name);
		more->rates = rates;
		more->bytes = rates ? 0 : bytes_in(path);
		more->used = st.st_mtime;
		more->partial = strstr(e->d_name, ".partial-") != NULL;
		l->bytes += more->bytes;
	}
	if (d)
		closedir(d);
	if (l->n)
		qsort(l->v, l->n, sizeof(*l->v), by_use);
	return rc;
}

// An import that is being made is held by who makes it.
static bool take_away(const char *folder, const struct entry *e)
{
	char path[CACHE_PATH + 260];
	struct dirent *f;
	bool ok = false;
	DIR *d;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, e->name);
	if (e->rates)
		return !unlink(path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB)) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	d = fdopendir(fd);
	while (d && (f = readdir(d)))
		unlinkat(fd, f->d_name, 0); // no folder is in it
	ok = !rmdir(path);
	if (d)
		closedir(d);
	else
		close(fd);
	return ok;
}

static uint64_t limit_of(const char *folder)
{
	char path[CACHE_PATH + 16], text[32];
	uint64_t bytes;
	double percent;

	snprintf(path, sizeof(path), "%s/limit", folder);
	if (!read_text(path, text, sizeof(text)))
		return UINT64_MAX;
	text[strcspn(text, "\n")] = 0;
	if (genai_parse_bytes(text, &bytes, &percent, NULL) || percent >= 0)
		return UINT64_MAX;
	return bytes;
}

static void tell(const struct cli *c, const char *what, const struct entry *e)
{
	if (!c->quiet)
		fprintf(stderr, "genai: removed %s%s, %.1f MiB\n", what,
			e->name, (double)e->bytes / 1048576);
}

// Down to the limit, but for the import that is about to be used.
static void keep_limit(struct cli *c, const char *folder, const char *but)
{
	uint64_t limit = limit_of(folder);
	struct list l;

	if (limit == UINT64_MAX || look(c, folder, &l))
		return;
	for (size_t i = 0; i < l.n && l.bytes > limit; i++) {
		if (l.v[i].rates || (but && !strcmp(l.v[i].name, but)) ||
		    !take_away(folder, &l.v[i]))
			continue;
		tell(c, "from the cache, to keep its limit: ", &l.v[i]);
		l.bytes -= l.v[i].bytes;
	}
	free(l.v);
}

// ---- importing ----

static int import_progress(void *ctx, uint64_t done, uint64_t total)
{
	if (total)
		cli_progress(ctx, "importing %3.0f %%",
			     100.0 * (double)done / (double)total);
	return cli_interrupted;
}

int32_t cache_import(struct cli *c, const char *path, char *out, size_t cap)
{
	struct genai_import_options o = {.progress = import_progress,
					 .progress_ctx = c};
	struct genai_gguf *g = NULL;
	const char *base;
	char folder[CACHE_PATH], hash[HASH_TEXT], name[200];
	int32_t rc = cache_folder(c, folder, sizeof(folder));

	if (!rc && access(path, F_OK))
		return genai_fail(&c->err, GENAI_E_NOTFOUND,
				  "%s: cannot open: %s", path, strerror(errno));
	if (rc) {
		genai_error_prefix(&c->err, "%s", path);
		return rc;
	}
	if (!cache_make(folder))
		return genai_fail(&c->err, GENAI_E_IO,
				  "%s: cannot make the folder: %s", folder,
				  strerror(errno));
	// any of several parts stands for all
	rc = genai_gguf_open(path, &g, &c->err);
	if (rc)
		return rc;
	rc = content_of_all(c, folder, g, hash);
	base = strrchr(genai_gguf_path(g), '/');
	snprintf(name, sizeof(name), "%.120s-%s",
		 base ? base + 1 : genai_gguf_path(g), hash);
	genai_gguf_close(g);
	if (rc)
		return rc;
	if (snprintf(out, cap, "%s/%s", folder, name) >= (int)cap)
		return genai_fail(&c->err, GENAI_E_INVAL,
				  "%.64s...: path too long", out);
	if (access(out, F_OK)) {
		if (!c->quiet)
			fprintf(stderr, "genai: importing %s to %s\n", path,
				out);
		rc = genai_gguf_import(path, out, &o, &c->err);
	}
	if (rc)
		return rc;
	utimensat(AT_FDCWD, out, NULL, 0); // used just now
	keep_limit(c, folder, name);
	return 0;
}

// ---- the command ----

#define MAX_REMOVE 64

static struct {
	const char *remove[MAX_REMOVE];
	uint32_t n_remove;
	int64_t unused;
	bool has_unused, json;
	const char *limit;
} args;

static int add_remove(struct cli *c, const char *value)
{
	if (!*value || args.n_remove == MAX_REMOVE)
		return cli_usage(c, "--remove: 1 to %d names, none empty",
				 MAX_REMOVE);
	args.remove[args.n_remove++] = value;
	return 0;
}

static const struct cli_option options[] = {
	{.name = "remove",
	 .kind = CLI_CALL,
	 .arg = "NAME|all",
	 .help = "take it away; the beginning will do (repeatable)",
	 .call = add_remove},
	{"unused", 0, CLI_INT, "DAYS",
	 "take away what was not used for so long", &args.unused, 0, 36500,
	 &args.has_unused},
	{"limit", 0, CLI_TEXT, "BYTES|none",
	 "from now on, the least recently used go beyond it", &args.limit},
	{"json", 0, CLI_FLAG, NULL, "one JSON object", &args.json},
	{0}};

static int set_limit(struct cli *c, char *folder)
{
	char path[CACHE_PATH + 16];
	uint64_t bytes = 0;
	double percent = -1;

	if (strcmp(args.limit, "none") &&
	    (genai_parse_bytes(args.limit, &bytes, &percent, &c->err) ||
	     percent >= 0))
		return cli_usage(c, "--limit %s: bytes, as 20GiB, or none",
				 args.limit);
	snprintf(path, sizeof(path), "%s/limit", folder);
	if (!strcmp(args.limit, "none")) {
		if (!unlink(path) || errno == ENOENT)
			return 0;
	} else if (cache_make(folder) && cache_write(path, args.limit)) {
		keep_limit(c, folder, NULL);
		return 0;
	}
	genai_fail(&c->err, GENAI_E_IO, "%s: cannot write: %s", path,
		   strerror(errno));
	return cli_fail(c);
}

static bool named(const struct entry *e, bool *found)
{
	bool any = false;

	for (uint32_t i = 0; i < args.n_remove; i++) {
		const char *name = args.remove[i];

		if (strcmp(name, "all") && strncmp(e->name, name, strlen(name)))
			continue;
		found[i] = any = true;
	}
	return any;
}

static bool unwanted(const struct entry *e, bool *found)
{
	bool old =
		args.has_unused && e->used + args.unused * 86400 < time(NULL);

	return named(e, found) || old || e->partial ||
	       (e->rates && rates_old(e->used));
}

static int remove_some(struct cli *c, const char *folder)
{
	bool found[MAX_REMOVE] = {false};
	struct list l;
	int status = 0;

	if (look(c, folder, &l))
		return cli_fail(c);
	for (size_t i = 0; i < l.n; i++) {
		if (!unwanted(&l.v[i], found))
			continue;
		if (take_away(folder, &l.v[i]))
			tell(c, "", &l.v[i]);
		else if (!l.v[i].partial) // one that is being made may stay
			status = genai_fail(&c->err, GENAI_E_IO,
					    "%s/%s: cannot be removed", folder,
					    l.v[i].name);
	}
	free(l.v);
	if (status)
		return cli_fail(c);
	for (uint32_t i = 0; i < args.n_remove; i++)
		if (!found[i] && strcmp(args.remove[i], "all")) {
			genai_fail(&c->err, GENAI_E_NOTFOUND,
				   "%s: no import or rates %s", folder,
				   args.remove[i]);
			return cli_fail(c);
		}
	return 0;
}

static json_t *import_json(const struct entry *e)
{
	return json_pack("{s:s, s:I, s:I}", "name", e->name, "bytes",
			 (json_int_t)e->bytes, "used", (json_int_t)e->used);
}

static void print_import(const struct entry *e, const char *day)
{
	printf("%10.1f MiB  %s  %s\n", (double)e->bytes / 1048576, day,
	       e->name);
}

// What was measured, with whose it is; NULL: of a file that is broken.
static json_t *rates_json(const char *folder, const struct entry *e)
{
	char path[CACHE_PATH + 260];
	struct ceilings k;
	json_t *j;

	snprintf(path, sizeof(path), "%s/%s", folder, e->name);
	j = rates_read(path, &k);
	if (!j)
		return NULL;
	json_object_set_new(j, "name", json_string(e->name));
	json_object_set_new(j, "measured", json_integer((json_int_t)e->used));
	return j;
}

static void print_rates(const json_t *j, const struct entry *e, const char *day)
{
	const json_t *of = json_object_get(j, "of");
	const char *device = json_string_value(json_object_get(of, "device"));
	const char *at = json_string_value(json_object_get(of, "machine"));
	const double memory =
		json_number_value(json_object_get(j, "memory_bytes_per_s"));
	const double link =
		json_number_value(json_object_get(j, "link_bytes_per_s"));

	printf("%14s  %s  %s: %s at %s, memory %.1f GB/s, link %.1f GB/s\n",
	       "rates", day, e->name, device ? device : "?", at ? at : "?",
	       memory * 1e-9, link * 1e-9);
}

static void print_entries(const char *folder, const struct list *l,
			  json_t *imports, json_t *rates)
{
	char day[32];

	for (size_t i = l->n; i-- > 0;) { // used last comes first
		const struct entry *e = &l->v[i];
		json_t *j = e->rates ? rates_json(folder, e) : import_json(e);
		struct tm t;

		localtime_r(&e->used, &t);
		strftime(day, sizeof(day), "%Y-%m-%d", &t);
		if (args.json && j)
			json_array_append(e->rates ? rates : imports, j);
		else if (!args.json && !e->rates)
			print_import(e, day);
		else if (!args.json && j)
			print_rates(j, e, day);
		json_decref(j);
	}
}

static int print_list(struct cli *c, const char *folder)
{
	uint64_t limit = limit_of(folder);
	json_t *imports, *rates;
	struct list l;

	if (look(c, folder, &l))
		return cli_fail(c);
	imports = json_array();
	rates = json_array();
	print_entries(folder, &l, imports, rates);
	if (args.json)
		cli_print_json(json_pack(
			"{s:s, s:I, s:o, s:O, s:O}", "folder", folder, "bytes",
			(json_int_t)l.bytes, "limit",
			limit == UINT64_MAX ? json_null()
					    : json_integer((json_int_t)limit),
			"imports", imports, "rates", rates));
	else
		printf("%10.1f MiB  in %s%s%s\n", (double)l.bytes / 1048576,
		       folder, limit == UINT64_MAX ? ", no limit" : "",
		       l.n ? "" : ", which is empty");
	json_decref(imports);
	json_decref(rates);
	free(l.v);
	return 0;
}

static int run(struct cli *c, int argc, char **argv)
{
	int status = cli_options(c, options, argc, argv);
	char folder[CACHE_PATH];

	if (status < 0)
		return -status;
	if (status < argc)
		return cli_usage(c, "cache takes no argument: %s",
				 argv[status]);
	if (cache_folder(c, folder, sizeof(folder)))
		return cli_fail(c);
	status = remove_some(c, folder);
	if (!status && args.limit)
		status = set_limit(c, folder);
	return status ? status : print_list(c, folder);
}

const struct command cmd_cache = {
	"cache",
	run,
	"",
	"imports of GGUF files, rates of devices: list, remove, limit",
	options,
	"Imports are kept by the content of their file, rates by machine, "
	"driver\n"
	"and device, for 30 days.\n"};
