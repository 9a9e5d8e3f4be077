// open.c - models, tokenizers and templates for the commands.
#include "tools/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/model/folder.h"
#include "core/model/pipeline.h"
#include "core/model/genai_config.h"
#include "core/onnx/onnx.h"
#include "core/text/tokenizer/tok.h"
#include "tools/pull/pull.h"
#include "tools/trace.h"

struct genai_runtime_options cli_runtime_options(struct cli *c)
{
	return (struct genai_runtime_options){
		.size = sizeof(struct genai_runtime_options),
		.config_path = c->config_path,
		.sets = c->sets,
		.n_sets = c->n_sets,
		.log = cli_log,
		.log_ctx = c,
	};
}

int32_t cli_runtime(struct cli *c, struct genai_runtime **out)
{
	struct genai_runtime_options o = cli_runtime_options(c);
	int32_t rc = genai_open(&o, out, &c->err);

	// a missing device or memory is no fault of the configuration
	c->config_failed = rc && rc != GENAI_E_NODEVICE &&
			   rc != GENAI_E_NOMEM && rc != GENAI_E_LIMIT &&
			   rc != GENAI_E_DEVICE;
	return rc;
}

// ---- GGUF files ----

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
	char file[256], plain[4200], hub[6000];
	int32_t rc = pull_resolve(c, &path, hub, sizeof(hub));

	if (rc)
		return rc;
	if (cli_is_gguf(path)) {
		rc = genai_path_of(path, plain, sizeof(plain), &c->err);
		return rc ? rc : cache_import(c, plain, out, cap);
	}
	return genai_model_folder(path, out, cap, file, sizeof(file), &c->err);
}

// ---- opening ----

int32_t cli_tokenizer(struct cli *c, const char *folder,
		      struct genai_tokenizer **out)
{
	return genai_tokenizer_open(folder, out, &c->err);
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

int cli_tokenizer_at(struct cli *c, const char *value)
{
	if (!*value)
		return cli_usage(c, "--tokenizer: a folder is needed");
	c->tokenizer = value;
	return 0;
}

int32_t cli_text_folder(struct cli *c, const char *model, char *out, size_t cap)
{
	if (c->tokenizer && cli_is_gguf(c->tokenizer))
		return cli_folder(c, c->tokenizer, out, cap);
	if (c->tokenizer)
		genai_tokenizer_folder(c->tokenizer, out, cap);
	else
		snprintf(out, cap, "%s", model);
	return 0;
}

// A graph that is none is told of before its tokenizer is missed.
static int32_t without_tokenizer(struct cli *c, const char *path, int32_t code)
{
	struct genai_model_config config;
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_onnx *onnx = NULL;
	char folder[4200], file[256];
	int32_t rc = genai_model_folder(path, folder, sizeof(folder), file,
					sizeof(file), NULL);

	if (rc)
		return code;
	rc = genai_model_config_load(folder, NULL, &config, NULL);
	if (rc && rc != GENAI_E_NOTFOUND)
		return code;
	rc = genai_pipeline_load(folder, file, &config, NULL, &onnx, &err);
	genai_onnx_close(onnx);
	if (!rc || rc == GENAI_E_NOTFOUND)
		return code;
	c->err = err;
	return rc;
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
	char hub[6000];
	bool gguf;
	int32_t rc;

	memset(m, 0, sizeof(*m));
	m->start = cli_now();
	rc = pull_resolve(c, &path, hub, sizeof(hub));
	gguf = !rc && cli_is_gguf(path);
	if (!rc)
		rc = cli_folder(c, path, m->folder, sizeof(m->folder));
	if (!rc)
		rc = cli_text_folder(c, m->folder, m->text, sizeof(m->text));
	if (!rc && flags & CLI_TOKENIZER) {
		rc = cli_tokenizer(c, m->text, &m->tok);
		if (rc == GENAI_E_NOTFOUND && !gguf)
			rc = without_tokenizer(c, path, rc);
	}
	if (!rc)
		rc = cli_runtime(c, &m->rt);
	if (!rc)
		rc = trace_start(c, m->rt);
	if (!rc && c->opened)
		rc = c->opened(m->rt, &c->err);
	trace_enter("load");
	if (!rc)
		rc = genai_model_open(m->rt, gguf ? m->folder : path, &o,
				      &m->model, &c->err);
	m->info.size = sizeof(m->info);
	if (!rc)
		rc = genai_model_get_info(m->model, &m->info);
	if (!rc)
		rc = genai_session_open(m->model, &m->session, &c->err);
	trace_leave();
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

bool cli_has_template(const char *folder)
{
	struct genai_template *t = NULL;
	bool has = !genai_template_open(folder, 0, &t, NULL);

	genai_template_close(t);
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

int32_t cli_template_vars(struct cli *c, const json_t *vars, char **out)
{
	*out = json_dumps(vars, JSON_COMPACT);
	return *out ? 0 : genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
}

int32_t cli_render(struct cli *c, const char *folder,
		   const struct genai_tokenizer *tok, json_t *messages,
		   int64_t **out_ids, size_t *out_n)
{
	struct genai_template *t = NULL;
	json_t *vars = json_pack("{s:O}", "messages", messages);
	char *text = NULL;
	int32_t rc = genai_template_open(folder, 0, &t, &c->err);

	if (!rc)
		rc = cli_template_vars(c, vars, &text);
	if (!rc)
		rc = genai_template_encode(t, tok, text, strlen(text), NULL,
					   out_ids, out_n, &c->err);
	free(text);
	json_decref(vars);
	genai_template_close(t);
	return rc;
}
