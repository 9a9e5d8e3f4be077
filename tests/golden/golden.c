// golden.c - reading golden/: prompts.json, greedy.json and .npy files.
#include "tests/golden/golden.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/npy.h"

static bool ids_of(const json_t *a, struct golden_ids *out)
{
	out->n = json_array_size(a);
	out->v = calloc(out->n + 1, sizeof(*out->v));
	for (size_t i = 0; out->v && i < out->n; i++) {
		const json_t *v = json_array_get(a, i);

		if (!json_is_integer(v))
			return false;
		out->v[i] = json_integer_value(v);
	}
	return out->v && out->n;
}

// A recorded float32 array of rank 2 or 3 with one batch; absent is fine.
static bool rows_of(const char *folder, const char *kind, const char *name,
		    struct golden_rows *out, char *why, size_t cap)
{
	struct tensor_file t = {0};
	char path[4600];
	FILE *f;

	snprintf(path, sizeof(path), "%s/golden/%s_%s.npy", folder, kind, name);
	f = fopen(path, "re");
	if (!f)
		return true;
	fclose(f);
	if (tensor_read(path, &t, NULL) || t.dtype != GENAI_DT_F32 ||
	    t.rank < 2 || t.rank > 3 || (t.rank == 3 && t.dims[0] != 1)) {
		snprintf(why, cap, "%s: not a float32 array of rows", path);
		tensor_free(&t);
		return false;
	}
	out->v = t.data;
	out->n = (size_t)t.dims[t.rank - 2];
	out->width = (size_t)t.dims[t.rank - 1];
	return true;
}

static bool read_prompts(const char *folder, struct golden *g, char *why,
			 size_t cap)
{
	char path[4600];
	json_t *j, *v;
	const char *name;
	bool ok = true;

	snprintf(path, sizeof(path), "%s/golden/prompts.json", folder);
	j = json_load_file(path, 0, NULL);
	g->last_row_only =
		json_is_true(json_object_get(j, "logits_last_row_only"));
	json_object_foreach(json_object_get(j, "prompts"), name, v)
	{
		struct golden_prompt *p = &g->prompts[g->n_prompts];

		if (!ok || g->n_prompts == GOLDEN_MAX_PROMPTS)
			break;
		g->n_prompts++;
		ok = ids_of(v, &p->ids) &&
		     rows_of(folder, "prefill", name, &p->prefill, why, cap) &&
		     rows_of(folder, "chunked", name, &p->chunked, why, cap);
	}
	json_decref(j);
	if (ok && g->n_prompts)
		return true;
	if (!*why)
		snprintf(why, cap, "%s: no prompts", path);
	return false;
}

static bool read_runs(const char *folder, struct golden *g, char *why,
		      size_t cap)
{
	char path[4600];
	json_t *j, *v;
	bool ok = true;
	size_t i;

	snprintf(path, sizeof(path), "%s/golden/greedy.json", folder);
	j = json_load_file(path, 0, NULL);
	json_array_foreach(json_object_get(j, "runs"), i, v)
	{
		struct golden_run *r = &g->runs[g->n_runs];
		const json_t *margins = json_object_get(v, "margins");

		if (!ok || g->n_runs == GOLDEN_MAX_RUNS)
			break;
		g->n_runs++;
		ok = ids_of(json_object_get(v, "prompt"), &r->prompt) &&
		     ids_of(json_object_get(v, "ids"), &r->ids) &&
		     json_array_size(margins) == r->ids.n;
		r->margins = calloc(r->ids.n + 1, sizeof(double));
		for (size_t k = 0; ok && k < r->ids.n; k++)
			r->margins[k] =
				json_number_value(json_array_get(margins, k));
	}
	json_decref(j);
	if (!ok)
		snprintf(why, cap, "%s: not as expected", path);
	return ok;
}

bool golden_read(const char *folder, struct golden *g, char *why, size_t cap)
{
	memset(g, 0, sizeof(*g));
	*why = 0;
	if (read_prompts(folder, g, why, cap) && read_runs(folder, g, why, cap))
		return true;
	golden_free(g);
	return false;
}

void golden_free(struct golden *g)
{
	for (uint32_t i = 0; i < g->n_prompts; i++) {
		free(g->prompts[i].ids.v);
		free(g->prompts[i].prefill.v);
		free(g->prompts[i].chunked.v);
	}
	for (uint32_t i = 0; i < g->n_runs; i++) {
		free(g->runs[i].prompt.v);
		free(g->runs[i].ids.v);
		free(g->runs[i].margins);
	}
	memset(g, 0, sizeof(*g));
}

bool golden_compare(const float *got, size_t rows, size_t width,
		    const struct golden_rows *want, size_t first,
		    struct golden_tolerance tol, double *worst, char *why,
		    size_t cap)
{
	if (width != want->width || first > want->n || rows > want->n - first) {
		snprintf(why, cap,
			 "rows %zu to %zu, %zu wide; recorded: %zu, %zu wide",
			 first, first + rows, width, want->n, want->width);
		return false;
	}
	for (size_t i = 0; i < rows * width; i++) {
		double b = want->v[first * width + i], a = got[i];
		double d = fabs(a - b);

		if (d > *worst)
			*worst = d;
		if (d <= tol.atol + tol.rtol * fabs(b))
			continue;
		snprintf(why, cap,
			 "row %zu, token %zu: %.7g, recorded %.7g (difference "
			 "%.2g)",
			 first + i / width, i % width, a, b, d);
		return false;
	}
	return true;
}
