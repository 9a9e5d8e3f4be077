// folder.c - a model folder that appears complete or not at all.
#include "core/modelgen/gen.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

// All that a folder of ours may hold; nothing else is ever removed.
static const char *const known[] = {
	"model.onnx",
	GEN_DATA_FILE,
	"genai_config.json",
	"tokenizer.json",
	"tokenizer_config.json",
	"chat_template.jinja",
	"import.json",
	"special_tokens_map.json",
};

static void remove_folder(const char *dir)
{
	char path[4096];

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, known[i]);
		unlink(path);
	}
	rmdir(dir);
}

static bool is_known(const char *name)
{
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return true;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(name, known[i]))
			return true;
	return false;
}

// May out_dir be replaced?
static int32_t check_target(const char *out_dir, bool overwrite,
			    struct genai_error *err)
{
	DIR *d = opendir(out_dir);
	struct dirent *e;
	int32_t rc = GENAI_OK;

	if (!d) {
		if (errno == ENOENT)
			return GENAI_OK;
		return genai_fail(err,
				  errno == ENOTDIR ? GENAI_E_INVAL : GENAI_E_IO,
				  "%s: cannot be the model folder: %s", out_dir,
				  strerror(errno));
	}
	while (!rc && (e = readdir(d))) {
		if (!is_known(e->d_name))
			rc = genai_fail(err, GENAI_E_INVAL,
					"%s: exists and holds '%s', which is "
					"no part of a model folder",
					out_dir, e->d_name);
		else if (!overwrite && e->d_name[0] != '.')
			rc = genai_fail(err, GENAI_E_INVAL,
					"%s: exists; it is replaced only when "
					"overwriting is asked for",
					out_dir);
	}
	closedir(d);
	return rc;
}

static int32_t write_model(struct gen *g, const char *dir,
			   struct genai_error *err)
{
	struct genai_wire w = {0};
	char path[4096];
	FILE *f = NULL;
	int32_t rc = GENAI_OK;

	gen_model(g, &w);
	snprintf(path, sizeof(path), "%s/model.onnx", dir);
	if (w.failed) {
		rc = genai_fail(err, GENAI_E_NOMEM, "%s: no memory for a graph",
				path);
		goto out;
	}
	f = fopen(path, "wb");
	if (!f || fwrite(w.data, 1, w.bytes, f) != w.bytes)
		rc = genai_fail(err, GENAI_E_IO, "%s: cannot write: %s", path,
				strerror(errno));
	if (f && fclose(f) && !rc)
		rc = genai_fail(err, GENAI_E_IO, "%s: cannot write: %s", path,
				strerror(errno));
out:
	genai_wire_free(&w);
	return rc;
}

static int32_t write_data(struct gen *g, const char *dir,
			  struct genai_error *err)
{
	struct statvfs fs;
	char path[4096];
	int32_t rc = GENAI_OK;
	int fd, e;

	snprintf(path, sizeof(path), "%s/%s", dir, GEN_DATA_FILE);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return genai_fail(err, GENAI_E_IO, "%s: cannot create: %s",
				  path, strerror(errno));
	// A disk that is too small is found out now, not after minutes.
	e = posix_fallocate(fd, 0, (off_t)g->data_bytes);
	if (e) {
		unsigned long long room = 0;

		if (!fstatvfs(fd, &fs))
			room = (unsigned long long)fs.f_bavail * fs.f_frsize;
		rc = genai_fail(err, GENAI_E_IO,
				"%s: needs %llu bytes, %llu are free: %s", path,
				(unsigned long long)g->data_bytes, room,
				strerror(e));
	}
	if (!rc)
		rc = gen_data_write(g, fd, path, err);
	if (close(fd) && !rc)
		rc = genai_fail(err, GENAI_E_IO, "%s: cannot write: %s", path,
				strerror(errno));
	return rc;
}

static int32_t fill_folder(struct gen *g, const char *dir,
			   struct genai_error *err)
{
	const struct genai_source *s = g->source;
	int32_t rc = s->files(s->self, dir, err);

	if (!rc)
		rc = write_data(g, dir, err);
	if (!rc && s->finish)
		rc = s->finish(s->self, dir, err);
	if (!rc)
		rc = gen_settings_write(g->conf, dir, err);
	if (!rc)
		rc = write_model(g, dir, err);
	return rc;
}

// Put the finished folder tmp where out_dir is to be.
static int32_t publish(const char *tmp, const char *out_dir,
		       struct genai_error *err)
{
	char old[4096];
	bool moved = false;

	if (!rename(tmp, out_dir)) // nothing there, or an empty folder
		return GENAI_OK;
	if (errno == ENOTEMPTY || errno == EEXIST) {
		snprintf(old, sizeof(old), "%s.old", tmp);
		moved = !rename(out_dir, old);
		if (moved && !rename(tmp, out_dir)) {
			remove_folder(old);
			return GENAI_OK;
		}
	}
	genai_fail(err, GENAI_E_IO,
		   "%s: cannot put the finished folder there: "
		   "%s",
		   out_dir, strerror(errno));
	if (moved)
		(void)!rename(old, out_dir);
	return GENAI_E_IO;
}

// The folder being made is held by a lock, so that one which nobody holds is
// known to be left over from a program that was killed.
static int hold(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

// Take away what killed programs left where out_dir is to be.
static void remove_left_over(const char *out_dir, size_t len)
{
	char parent[4096], path[4096 + 300], prefix[300];
	const char *base = out_dir + len;
	struct dirent *e;
	DIR *d;
	int n;

	while (base > out_dir && base[-1] != '/')
		base--;
	snprintf(parent, sizeof(parent), "%.*s",
		 base > out_dir ? (int)(base - out_dir) : 1,
		 base > out_dir ? out_dir : ".");
	n = snprintf(prefix, sizeof(prefix), "%.*s.partial-",
		     (int)(out_dir + len - base), base);
	d = n < (int)sizeof(prefix) ? opendir(parent) : NULL;
	while (d && (e = readdir(d))) {
		int fd;

		if (strncmp(e->d_name, prefix, (size_t)n))
			continue;
		snprintf(path, sizeof(path), "%s/%s", parent, e->d_name);
		fd = hold(path);
		if (fd < 0)
			continue;
		remove_folder(path);
		close(fd);
	}
	if (d)
		closedir(d);
}

static int32_t check_conf(const struct genai_genconf *c,
			  struct genai_error *err)
{
	if (!c->layers || !c->hidden || !c->heads || !c->kv_heads ||
	    !c->head_size || !c->ffn || !c->vocab || !c->context ||
	    c->rotary < 2 || c->rotary % 2 || c->rotary > c->head_size ||
	    c->heads % c->kv_heads || c->n_eos > 8 || !(c->theta > 0) ||
	    !(c->rope_scale > 0) || c->conv_taps == 1)
		return genai_fail(err, GENAI_E_INVAL,
				  "model %s: sizes that do not fit: %u layers, "
				  "%u/%u heads of %u (%u rotated), context %u",
				  c->type, c->layers, c->heads, c->kv_heads,
				  c->head_size, c->rotary, c->context);
	return GENAI_OK;
}

static int32_t make_folder(struct gen *g, const char *out_dir,
			   struct genai_error *err)
{
	char tmp[4096 - 16];
	int32_t rc;
	size_t len = strlen(out_dir);
	int fd;

	while (len > 1 && out_dir[len - 1] == '/')
		len--;
	if (!len || len > sizeof(tmp) - 64)
		return genai_fail(err, GENAI_E_INVAL,
				  "folder name of %zu bytes", len);
	remove_left_over(out_dir, len);
	snprintf(tmp, sizeof(tmp), "%.*s.partial-%ld", (int)len, out_dir,
		 (long)getpid());
	if (mkdir(tmp, 0777))
		return genai_fail(err, GENAI_E_IO, "%s: cannot create: %s", tmp,
				  strerror(errno));
	fd = hold(tmp);
	rc = fill_folder(g, tmp, err);
	if (!rc)
		rc = publish(tmp, out_dir, err);
	if (rc)
		remove_folder(tmp);
	if (fd >= 0)
		close(fd);
	return rc;
}

int32_t genai_modelgen_write(const struct genai_genconf *conf,
			     const struct genai_source *source,
			     const char *out_dir,
			     const struct genai_gen_options *options,
			     struct genai_error *err)
{
	static const struct genai_gen_options none;
	struct gen g;
	int32_t rc;

	memset(&g, 0, sizeof(g));
	g.conf = conf;
	g.source = source;
	g.options = options ? options : &none;
	rc = check_conf(conf, err);
	if (!rc)
		rc = check_target(out_dir, g.options->overwrite, err);
	if (!rc) {
		gen_graph(&g);
		if (g.failed || g.nodes.failed || g.inits.failed)
			rc = genai_fail(err, GENAI_E_NOMEM,
					"%s: no memory for a graph of %u "
					"layers, or sizes that overflow",
					out_dir, conf->layers);
	}
	if (!rc)
		rc = make_folder(&g, out_dir, err);
	free(g.jobs);
	genai_wire_free(&g.nodes);
	genai_wire_free(&g.inits);
	return rc;
}
