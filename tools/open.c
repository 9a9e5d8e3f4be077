// open.c - models, tokenizers and templates for the commands.
#include "tools/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/gguf/gguf.h"
#include "core/text/tokenizer/tok.h"

int32_t cli_runtime(struct cli *c, struct genai_runtime **out)
{
	struct genai_runtime_options o = {
		.size = sizeof(o),
		.config_path = c->config_path,
		.sets = c->sets,
		.n_sets = c->n_sets,
		.log = cli_log,
		.log_ctx = c,
	};

	int32_t rc = genai_open(&o, out, &c->err);

	// a missing device or memory is no fault of the configuration
	c->config_failed = rc && rc != GENAI_E_NODEVICE &&
			   rc != GENAI_E_NOMEM && rc != GENAI_E_LIMIT &&
			   rc != GENAI_E_DEVICE;
	return rc;
}

// ---- GGUF files ----

static int import_progress(void *ctx, uint64_t done, uint64_t total)
{
	if (total)
		cli_progress(ctx, "importing %3.0f %%",
			     100.0 * (double)done / (double)total);
	return cli_interrupted;
}

static bool make_dirs(char *path)
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
	return !mkdir(path, 0777) || errno == EEXIST;
}

static int32_t cache_folder(struct cli *c, const char *path,
			    const struct stat *st, char *out, size_t cap)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	const char *base = strrchr(path, '/');
	int n;

	base = base ? base + 1 : path;
	if (cache && cache[0] == '/')
		n = snprintf(out, cap, "%s/genai", cache);
	else if (home && home[0] == '/')
		n = snprintf(out, cap, "%s/.cache/genai", home);
	else
		return genai_fail(&c->err, GENAI_E_CONFIG,
				  "%s: no cache folder for the import: set "
				  "HOME, or use genai import",
				  path);
	if (n >= (int)cap || !make_dirs(out))
		return genai_fail(&c->err, GENAI_E_IO,
				  "%s: cannot make the folder: %s", out,
				  strerror(errno));
	n = snprintf(out + n, cap - (size_t)n,
		     "/%.120s-%" PRIx64 "-%" PRIx64 "-%" PRIx64, base,
		     (uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec,
		     (uint64_t)st->st_ino);
	return 0;
}

static int32_t import_cached(struct cli *c, const char *path, char *out,
			     size_t cap)
{
	struct genai_import_options o = {.progress = import_progress,
					 .progress_ctx = c};
	struct stat st;
	int32_t rc;

	if (stat(path, &st))
		return genai_fail(&c->err, GENAI_E_NOTFOUND,
				  "%s: cannot open: %s", path, strerror(errno));
	rc = cache_folder(c, path, &st, out, cap);
	if (rc || !access(out, F_OK))
		return rc;
	if (!c->quiet)
		fprintf(stderr, "genai: importing %s to %s\n", path, out);
	return genai_gguf_import(path, out, &o, &c->err);
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

bool cli_is_gguf(const char *path)
{
	char magic[4] = "";
	struct stat st;
	int fd;

	if (ends_with(path, ".gguf"))
		return true;
	// by another name, or none, as stores of blobs have them
	if (stat(path, &st) || !S_ISREG(st.st_mode))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, magic, 4) != 4)
		magic[0] = 0;
	close(fd);
	return !memcmp(magic, "GGUF", 4);
}

int32_t cli_folder(struct cli *c, const char *path, char *out, size_t cap)
{
	char file[256];

	if (cli_is_gguf(path))
		return import_cached(c, path, out, cap);
	return genai_model_folder(path, out, cap, file, sizeof(file), &c->err);
}

// ---- opening ----

int32_t cli_tokenizer(struct cli *c, const char *folder,
		      struct genai_tokenizer **out)
{
	struct genai_model_config config;
	char path[4600];
	struct stat st;
	int32_t rc;

	if (!stat(folder, &st) && !S_ISDIR(st.st_mode))
		return genai_tokenizer_open(folder, out, &c->err);
	rc = genai_model_config_load(folder, NULL, &config, NULL);
	snprintf(path, sizeof(path), "%s%s%s", folder,
		 !rc && config.tokenizer_dir[0] ? "/" : "",
		 rc ? "" : config.tokenizer_dir);
	return genai_tokenizer_open(path, out, &c->err);
}

static int32_t load_progress(void *ctx, const char *what, uint64_t done,
			     uint64_t total)
{
	if (done == total)
		cli_clear_line(ctx);
	else
		cli_progress(ctx, "%s ...", what);
	return cli_interrupted;
}

int32_t cli_open(struct cli *c, const char *path, uint32_t flags,
		 struct cli_model *m)
{
	struct genai_model_options o = {
		.size = sizeof(o),
		.flags = flags & CLI_ALL_LOGITS ? GENAI_MODEL_ALL_LOGITS : 0,
		.progress = load_progress,
		.progress_ctx = c,
	};
	bool gguf = cli_is_gguf(path);
	int32_t rc;

	memset(m, 0, sizeof(*m));
	m->start = cli_now();
	rc = cli_folder(c, path, m->folder, sizeof(m->folder));
	if (!rc && flags & CLI_TOKENIZER)
		rc = cli_tokenizer(c, m->folder, &m->tok);
	if (!rc)
		rc = cli_runtime(c, &m->rt);
	if (!rc)
		rc = genai_model_open(m->rt, gguf ? m->folder : path, &o,
				      &m->model, &c->err);
	m->info.size = sizeof(m->info);
	if (!rc)
		rc = genai_model_get_info(m->model, &m->info);
	if (!rc)
		rc = genai_session_open(m->model, &m->session, &c->err);
	if (rc)
		cli_close(m);
	return rc;
}

void cli_close(struct cli_model *m)
{
	genai_session_close(m->session);
	genai_model_close(m->model);
	genai_close(m->rt);
	genai_tokenizer_close(m->tok);
	memset(m, 0, sizeof(*m));
}

// ---- templates ----

static void token_of(const json_t *config, const char *key, json_t *vars)
{
	const json_t *v = json_object_get(config, key);

	if (json_is_object(v))
		v = json_object_get(v, "content");
	if (json_is_string(v) && !json_object_get(vars, key))
		json_object_set(vars, key, (json_t *)(uintptr_t)v);
}

void cli_special_tokens(const char *folder, json_t *vars)
{
	static const char *const files[] = {"tokenizer_config.json",
					    "special_tokens_map.json"};

	for (int i = 0; i < 2; i++) {
		char path[4600];
		json_t *j;

		snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
		j = json_load_file(path, 0, NULL);
		token_of(j, "bos_token", vars);
		token_of(j, "eos_token", vars);
		json_decref(j);
	}
}

bool cli_has_template(const char *folder)
{
	struct genai_template *t = NULL;
	bool has = !genai_template_open(folder, 0, &t, NULL);

	genai_template_free(t);
	return has;
}

int32_t cli_message(struct cli *c, json_t *messages, const char *where,
		    const char *role, const char *text, size_t n)
{
	size_t bad = tok_utf8_check(text, n);

	if (bad < n)
		return genai_fail(&c->err, GENAI_E_INVAL,
				  "%s: not UTF-8 at byte %zu of %zu", where,
				  bad, n);
	if (memchr(text, 0, n))
		return genai_fail(&c->err, GENAI_E_INVAL,
				  "%s: a zero byte at %zu of %zu", where,
				  strlen(text), n);
	json_array_append_new(messages, json_pack("{s:s, s:s%}", "role", role,
						  "content", text, n));
	return 0;
}

// A character that no text has: it splits the spelling of special tokens in a
// message, and is taken out again before encoding.
#define MARK "\xf4\x8f\xbf\xbe" // U+10FFFE

// Does a special token begin at s?  Its length, or 0.  Special tokens are
// short; the longest is tried first.
static size_t special_at(const struct genai_tokenizer *tok, const char *s)
{
	char text[129];
	size_t n = strnlen(s, sizeof(text) - 1);

	for (; n > 1; n--) {
		int64_t id;

		memcpy(text, s, n);
		text[n] = 0;
		id = genai_tokenizer_id(tok, text);
		if (id >= 0 && genai_tokenizer_is_special(tok, id))
			return n;
	}
	return 0;
}

static json_t *marked(const struct genai_tokenizer *tok, const char *s,
		      bool *found)
{
	size_t n = strlen(s), cap = n + 1, at = 0;
	char *out = NULL;
	json_t *j;

	for (size_t i = 0; i < n; i++) {
		// cheap tests first: special tokens begin with < or [ or |
		if ((s[i] == '<' || s[i] == '[' || s[i] == '|') &&
		    special_at(tok, s + i))
			cap += sizeof(MARK);
	}
	out = malloc(cap);
	for (size_t i = 0; out && i < n; i++) {
		bool special = (s[i] == '<' || s[i] == '[' || s[i] == '|') &&
			       special_at(tok, s + i);

		out[at++] = s[i];
		if (special) {
			memcpy(out + at, MARK, 4);
			at += 4;
			*found = true;
		}
	}
	j = out ? json_stringn(out, at) : NULL;
	free(out);
	return j;
}

static json_t *mark_messages(const struct genai_tokenizer *tok,
			     json_t *messages, bool *found)
{
	json_t *copy = json_deep_copy(messages);
	json_t *m;
	size_t i;

	json_array_foreach(copy, i, m)
	{
		const char *text =
			json_string_value(json_object_get(m, "content"));

		if (text)
			json_object_set_new(m, "content",
					    marked(tok, text, found));
	}
	return copy;
}

static int32_t append_ids(const struct genai_tokenizer *tok, const char *s,
			  size_t n, int64_t **ids, size_t *count,
			  struct genai_error *err)
{
	int64_t *part, *more;
	size_t n_part;
	int32_t rc = genai_tokenizer_encode(tok, s, n, GENAI_TOK_NO_SPECIAL,
					    &part, &n_part, err);

	if (rc)
		return rc;
	more = realloc(*ids, (*count + n_part + 1) * sizeof(**ids));
	if (!more) {
		free(part);
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	}
	memcpy(more + *count, part, n_part * sizeof(*part));
	*count += n_part;
	*ids = more;
	free(part);
	return 0;
}

static int32_t encode_marked(const struct genai_tokenizer *tok, const char *s,
			     int64_t **out_ids, size_t *out_n,
			     struct genai_error *err)
{
	int64_t *ids = NULL;
	size_t n = 0;
	int32_t rc = 0;

	while (!rc) {
		const char *mark = strstr(s, MARK);

		rc = append_ids(tok, s, mark ? (size_t)(mark - s) : strlen(s),
				&ids, &n, err);
		if (!mark)
			break;
		s = mark + 4;
	}
	if (rc) {
		free(ids);
		return rc;
	}
	*out_ids = ids;
	*out_n = n;
	return 0;
}

int32_t cli_render(struct cli *c, const char *folder,
		   const struct genai_tokenizer *tok, json_t *messages,
		   int64_t **out_ids, size_t *out_n)
{
	struct genai_template *t = NULL;
	json_t *vars = json_object(), *copy;
	bool found = false;
	char *text = NULL;
	size_t n;
	time_t now = time(NULL);
	struct tm local;
	int32_t rc = genai_template_open(folder, 0, &t, &c->err);

	if (rc) {
		json_decref(vars);
		return rc;
	}
	localtime_r(&now, &local);
	copy = mark_messages(tok, messages, &found);
	json_object_set_new(vars, "messages", copy);
	json_object_set_new(vars, "add_generation_prompt", json_true());
	cli_special_tokens(folder, vars);
	rc = genai_template_chat(t, vars, 0, now, (int32_t)local.tm_gmtoff,
				 &text, &n, &c->err);
	if (!rc)
		rc = encode_marked(tok, text, out_ids, out_n, &c->err);
	free(text);
	json_decref(vars);
	genai_template_free(t);
	return rc;
}
