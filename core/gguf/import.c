// import.c - one GGUF file into one ONNX GenAI folder.
#include "core/gguf/import.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *form_name(const struct genai_form *f, char *buf, size_t cap)
{
	static const char *const offsets[] = {
		[GENAI_OFFSET_NONE] = "",
		[GENAI_OFFSET_ZERO] = ", float zero points",
		[GENAI_OFFSET_TERM] = ", offsets as a second term",
	};

	if (!f->bits)
		return f->dtype == GENAI_DT_F16	   ? "float16"
		       : f->dtype == GENAI_DT_BF16 ? "bfloat16"
						   : "float32";
	snprintf(buf, cap, "%u-bit codes, block %u%s", f->bits, f->block,
		 offsets[f->offset]);
	return buf;
}

// import.json: what became of each tensor.
static int32_t write_report(struct imp *imp, const char *dir,
			    struct genai_error *err)
{
	const char *path = genai_gguf_path(imp->gguf);
	const char *slash = strrchr(path, '/');
	json_t *list = json_array(), *root;
	char out[4096], form[64];
	int32_t rc = GENAI_OK;

	for (uint64_t i = 0; i < genai_gguf_n_tensors(imp->gguf); i++) {
		const struct genai_gguf_tensor *t =
			genai_gguf_tensor_at(imp->gguf, i);
		const struct imp_record *r = &imp->records[i];

		json_array_append_new(
			list, json_pack("{s:s, s:s, s:s, s:b, s:f}", "name",
					t->name, "type",
					genai_gguf_type(t->type)->name, "form",
					form_name(&r->form, form, sizeof(form)),
					"exact", !(r->error > 0), "max_error",
					(double)r->error));
	}
	root = json_pack("{s:s, s:s, s:o}", "source", slash ? slash + 1 : path,
			 "architecture", imp->arch, "tensors", list);
	snprintf(out, sizeof(out), "%s/import.json", dir);
	if (!root)
		rc = genai_fail(err, GENAI_E_FORMAT,
				"%s: a name that is not UTF-8", path);
	else if (json_dump_file(root, out, JSON_INDENT(1)))
		rc = genai_fail(err, GENAI_E_IO, "%s: cannot write: %s", out,
				strerror(errno));
	json_decref(root);
	return rc;
}

static int32_t files(void *self, const char *dir, struct genai_error *err)
{
	return imp_tokenizer(self, dir, err);
}

static int32_t finish(void *self, const char *dir, struct genai_error *err)
{
	struct imp *imp = self;

	if (imp->again)
		return genai_fail(err, GENAI_E_STATE,
				  "%s: zero points too coarse",
				  genai_gguf_path(imp->gguf));
	return write_report(imp, dir, err);
}

int32_t genai_gguf_import(const char *gguf_path, const char *out_dir,
			  const struct genai_import_options *options,
			  struct genai_error *err)
{
	struct genai_gen_options gen = {0};
	struct genai_source source;
	struct imp imp;
	int32_t rc;

	memset(&imp, 0, sizeof(imp));
	if (options) {
		gen.overwrite = options->overwrite;
		gen.split_qkv = options->split_qkv;
		gen.progress = options->progress;
		gen.progress_ctx = options->progress_ctx;
	}
	rc = genai_gguf_open(gguf_path, &imp.gguf, err);
	if (rc)
		return rc;
	imp.records = calloc(genai_gguf_n_tensors(imp.gguf) + 1,
			     sizeof(*imp.records));
	if (!imp.records)
		rc = genai_fail(err, GENAI_E_NOMEM, "%s: no memory", gguf_path);
	if (!rc)
		rc = imp_configure(&imp, err);
	if (options && options->for_onnxruntime) {
		imp.terms = true;
		imp.conf.accuracy_level = 4;
	}
	if (!rc) {
		imp_source(&imp, &source);
		source.files = files;
		source.finish = finish;
		rc = genai_modelgen_write(&imp.conf, &source, out_dir, &gen,
					  err);
	}
	if (rc == GENAI_E_STATE && imp.again) {
		// Tensors whose zero points would not do are marked by now.
		imp.again = false;
		rc = genai_modelgen_write(&imp.conf, &source, out_dir, &gen,
					  err);
	}
	free(imp.rope_factors);
	free(imp.layer_flags);
	free(imp.records);
	genai_gguf_close(imp.gguf);
	return rc;
}
