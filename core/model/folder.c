// folder.c - where a model lies, given what a person has.
//
// A path may be a model's folder, one of its graphs, the root of a hub's cache
// (refs/main names the snapshot), a folder above one or several models, or any
// of these as a file:// address.
#include "core/model/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/error.h"
#include "core/base/kind.h"

#define MAX_DEPTH 3	// of folders above a model
#define MAX_LOOKED 4096 // entries, in all of them
#define PATH_BYTES 4200

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

static bool exists(const char *folder, const char *name)
{
	char path[PATH_BYTES + 300];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return !stat(path, &st);
}

// What a folder holds.
struct found {
	uint32_t n_onnx, n_gguf;
	char onnx[256], gguf[256]; // the first of them by name
	char list[400];		   // graphs, by name
	char foreign[256];	   // weights of a kind that is not read
	bool config, model, tokenizer;
};

static void first_name(char *out, size_t cap, const char *name)
{
	if (!*out || strcmp(name, out) < 0)
		snprintf(out, cap, "%s", name);
}

static void add_to(char *list, size_t cap, const char *name)
{
	size_t n = strlen(list);

	if (n + strlen(name) + 8 < cap)
		snprintf(list + n, cap - n, "%s%s", n ? ", " : "", name);
	else if (!ends_with(list, "..."))
		snprintf(list + n, cap - n, ", ...");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void look(const char *folder, struct found *f)
{
	struct dirent **e;
	int n = scandir(folder, &e, NULL, by_name);

	memset(f, 0, sizeof(*f));
	for (int i = 0; i < n; i++) {
		const char *s = e[i]->d_name;

		f->config |= !strcmp(s, "genai_config.json");
		f->model |= !strcmp(s, "model.onnx");
		f->tokenizer |= !strcmp(s, "tokenizer.json") ||
				!strcmp(s, "tokenizer.json.gz");
		if (ends_with(s, ".onnx")) {
			f->n_onnx++;
			first_name(f->onnx, sizeof(f->onnx), s);
			add_to(f->list, sizeof(f->list), s);
		}
		if (ends_with(s, ".gguf")) {
			f->n_gguf++;
			first_name(f->gguf, sizeof(f->gguf), s);
		}
		if (ends_with(s, ".safetensors") ||
		    !strncmp(s, "pytorch_model", 13))
			first_name(f->foreign, sizeof(f->foreign), s);
		free(e[i]);
	}
	if (n >= 0)
		free(e);
}

// ---- file:// ----

static int hex(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

int32_t genai_path_of(const char *path, char *out, size_t cap,
		      struct genai_error *err)
{
	const char *p = path;
	size_t n = 0;

	if (!p || !*p || strlen(p) >= cap)
		return genai_fail(err, GENAI_E_INVAL,
				  "the model's path is empty or too long");
	if (strncmp(p, "file://", 7)) {
		snprintf(out, cap, "%s", p);
		return 0;
	}
	p += strncmp(p, "file://localhost/", 17) ? 7 : 16;
	if (*p != '/')
		return genai_fail(err, GENAI_E_INVAL,
				  "%s: an address of another machine; only "
				  "file:///PATH is read",
				  path);
	for (; *p; p++) {
		int a = *p == '%' ? hex(p[1]) : -1;
		int b = a >= 0 ? hex(p[2]) : -1;

		out[n++] = b >= 0 && (a || b) ? (char)(a * 16 + b) : *p;
		p += b >= 0 && (a || b) ? 2 : 0;
	}
	out[n] = 0;
	return 0;
}

// ---- the cache of a hub ----

// refs/main holds the revision; or there is but one.
static int32_t snapshot(char *io, size_t cap, struct genai_error *err)
{
	char path[PATH_BYTES + 300], revision[128] = "", list[400] = "";
	struct dirent **e;
	uint32_t count = 0;
	FILE *f;
	int n;

	if (!exists(io, "snapshots"))
		return 0;
	snprintf(path, sizeof(path), "%s/refs/main", io);
	f = fopen(path, "r");
	if (f) {
		if (fscanf(f, "%127[0-9A-Za-z._-]", revision) != 1)
			revision[0] = 0;
		fclose(f);
	}
	snprintf(path, sizeof(path), "%s/snapshots", io);
	if (!*revision || !strcmp(revision, "..") || !exists(path, revision)) {
		n = scandir(path, &e, NULL, by_name);
		for (int i = 0; i < n; i++) {
			if (e[i]->d_name[0] != '.') {
				count++;
				snprintf(revision, sizeof(revision), "%.120s",
					 e[i]->d_name);
				add_to(list, sizeof(list), e[i]->d_name);
			}
			free(e[i]);
		}
		if (n >= 0)
			free(e);
		if (count != 1)
			return genai_fail(err, GENAI_E_NOTFOUND,
					  "%s: %s snapshots in it: name one "
					  "of them: %s",
					  io, count ? "several" : "no", list);
	}
	if (snprintf(path, sizeof(path), "%s/snapshots/%s", io, revision) >=
	    (int)cap)
		return genai_fail(err, GENAI_E_INVAL, "%s: path too long", io);
	snprintf(io, cap, "%s", path);
	return 0;
}

// ---- above a model ----

struct search {
	char first[PATH_BYTES], list[600];
	size_t skip; // bytes of the folder that was named
	uint32_t n, looked;
};

static void search(struct search *s, const char *folder, int depth)
{
	struct dirent **e;
	int n = scandir(folder, &e, NULL, by_name);

	for (int i = 0; i < n; i++) {
		char path[PATH_BYTES];
		struct found f;
		struct stat st;
		int len = snprintf(path, sizeof(path), "%s/%s", folder,
				   e[i]->d_name);

		if (e[i]->d_name[0] != '.' && len < (int)sizeof(path) &&
		    s->looked++ < MAX_LOOKED && !lstat(path, &st) &&
		    S_ISDIR(st.st_mode)) {
			look(path, &f);
			if (f.config || f.n_onnx) {
				if (!s->n++)
					snprintf(s->first, sizeof(s->first),
						 "%s", path);
				add_to(s->list, sizeof(s->list),
				       path + s->skip);
			} else if (depth < MAX_DEPTH) {
				search(s, path, depth + 1);
			}
		}
		free(e[i]);
	}
	if (n >= 0)
		free(e);
}

// The graph of a folder whose configuration does not name it.
static int32_t choose_graph(const char *folder, const struct found *f,
			    char *out_file, size_t cap, struct genai_error *err)
{
	if (f->config || f->model)
		return 0;
	if (f->n_onnx > 1)
		return genai_fail(err, GENAI_E_NOTFOUND,
				  "%s: several graphs and no "
				  "genai_config.json: name one of them: %s",
				  folder, f->list);
	snprintf(out_file, cap, "%s", f->onnx);
	return 0;
}

static int32_t no_graph(const char *folder, const struct found *f,
			struct genai_error *err)
{
	if (f->n_gguf)
		return genai_fail(err, GENAI_E_NOTFOUND,
				  "%s: a folder of GGUF files: name one of "
				  "them, as %s/%s",
				  folder, folder, f->gguf);
	if (f->foreign[0])
		return genai_fail(
			err, GENAI_E_NOTFOUND,
			"%s: weights as %s are not read: an ONNX "
			"export of the model or a GGUF file is needed",
			folder, f->foreign);
	return genai_fail(err, GENAI_E_NOTFOUND,
			  "%s: no model here: looked for genai_config.json, "
			  "*.onnx, tokenizer.json and *.gguf",
			  folder);
}

static int32_t in_folder(char *io, size_t cap, char *out_file, size_t file_cap,
			 struct genai_error *err)
{
	struct search s = {0};
	struct found f;
	int32_t rc = snapshot(io, cap, err);

	if (rc)
		return rc;
	look(io, &f);
	if (f.config || f.n_onnx)
		return choose_graph(io, &f, out_file, file_cap, err);
	s.skip = strlen(io) + 1;
	search(&s, io, 1);
	if (s.n > 1)
		return genai_fail(err, GENAI_E_NOTFOUND,
				  "%s: several models below: name one of "
				  "them: %s",
				  io, s.list);
	if (s.n) {
		snprintf(io, cap, "%s", s.first);
		look(io, &f);
		return choose_graph(io, &f, out_file, file_cap, err);
	}
	// a tokenizer alone is of use for text
	return f.tokenizer ? 0 : no_graph(io, &f, err);
}

// File: to be looked into, NULL for a pipe or a device.
static int32_t no_model(const char *path, const char *file,
			struct genai_error *err)
{
	FILE *f = file ? fopen(file, "r") : NULL;
	const char *text;
	char head[512];

	text = f ? genai_text_kind(head, fread(head, 1, sizeof(head), f))
		 : NULL;
	if (f)
		fclose(f);
	return genai_fail(err, GENAI_E_FORMAT,
			  "%s: %s%sneither a model folder nor a .onnx file",
			  path, text ? text : "", text ? ", " : "");
}

int32_t genai_model_folder(const char *path, char *out, size_t cap,
			   char *out_file, size_t file_cap,
			   struct genai_error *err)
{
	struct stat st;
	char *slash;
	int32_t rc = genai_path_of(path, out, cap, err);

	if (rc)
		return rc;
	if (stat(out, &st))
		return genai_fail(
			err, errno == ENOENT ? GENAI_E_NOTFOUND : GENAI_E_IO,
			"%s: cannot open: %s", path, strerror(errno));
	out_file[0] = 0;
	if (S_ISDIR(st.st_mode))
		return in_folder(out, cap, out_file, file_cap, err);
	if (!ends_with(out, ".onnx"))
		return no_model(path, S_ISREG(st.st_mode) ? out : NULL, err);
	slash = strrchr(out, '/');
	if (snprintf(out_file, file_cap, "%s", slash ? slash + 1 : out) >=
	    (int)file_cap)
		return genai_fail(err, GENAI_E_INVAL, "%s: name too long",
				  path);
	if (slash == out)
		slash[1] = 0;
	else if (slash)
		*slash = 0;
	else
		snprintf(out, cap, ".");
	return 0;
}

int32_t genai_graph_folder(const char *path, char *out, size_t cap,
			   char *out_file, size_t file_cap,
			   struct genai_error *err)
{
	int32_t rc =
		genai_model_folder(path, out, cap, out_file, file_cap, err);
	struct found f;

	if (rc || *out_file)
		return rc;
	look(out, &f);
	return f.config || f.n_onnx ? 0 : no_graph(out, &f, err);
}

void genai_tokenizer_folder(const char *path, char *out, size_t cap)
{
	char file[256], up[PATH_BYTES];
	struct found f;

	look(path, &f);
	if (f.tokenizer) {
		snprintf(out, cap, "%s", path);
		return;
	}
	if (genai_model_folder(path, out, cap, file, sizeof(file), NULL)) {
		snprintf(out, cap, "%s", path);
		return;
	}
	look(out, &f);
	// graphs of several precisions lie in a folder below
	snprintf(up, sizeof(up), "%s/..", out);
	if (f.tokenizer)
		return;
	look(up, &f);
	if (f.tokenizer && strlen(up) < cap)
		snprintf(out, cap, "%s", up);
}
