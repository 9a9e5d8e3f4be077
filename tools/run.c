// run.c - a single graph: with inputs from files, or against recorded results.
#include "tools/cli.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/graph/build.h"
#include "core/model/single.h"
#include "tools/npy.h"

#define MAX_IO 64

// ---- comparing ----

static double half_value(uint16_t h)
{
	int e = h >> 10 & 31;
	double f = h & 0x3ff, v;

	if (e == 31)
		v = f != 0 ? NAN : INFINITY;
	else
		v = e ? ldexp(f + 1024, e - 25) : ldexp(f, -24);
	return h & 0x8000 ? -v : v;
}

// A float of 8 or 4 bits: its code read as a sign, an exponent, a mantissa.
static double code_value(uint32_t dtype, unsigned code)
{
	static const struct {
		int mantissa, bias;
	} formats[] = {[GENAI_DT_F8E4M3FN] = {3, 7},
		       [GENAI_DT_F8E4M3FNUZ] = {3, 8},
		       [GENAI_DT_F8E5M2] = {2, 15},
		       [GENAI_DT_F8E5M2FNUZ] = {2, 16},
		       [GENAI_DT_F4E2M1] = {1, 1}};
	unsigned sign = dtype == GENAI_DT_F4E2M1 ? 8 : 0x80;
	unsigned a = code & (sign - 1), m;
	int mantissa, e;
	double x;

	if (dtype == GENAI_DT_F8E8M0)
		return code == 255 ? NAN : ldexp(1, (int)code - 127);
	if ((dtype == GENAI_DT_F8E4M3FN && a == 0x7f) ||
	    (dtype == GENAI_DT_F8E5M2 && a > 0x7c) ||
	    ((dtype == GENAI_DT_F8E4M3FNUZ || dtype == GENAI_DT_F8E5M2FNUZ) &&
	     code == 0x80))
		return NAN;
	mantissa = formats[dtype].mantissa;
	m = a & ((1u << mantissa) - 1);
	e = (int)(a >> mantissa);
	x = dtype == GENAI_DT_F8E5M2 && a == 0x7c
		    ? INFINITY
		    : ldexp(e ? m + (1u << mantissa) : m,
			    (e ? e : 1) - formats[dtype].bias - mantissa);
	return code & sign ? -x : x;
}

static double element(uint32_t dtype, const void *p, uint64_t i)
{
	uint32_t bits;
	float f;

	switch (dtype) {
	case GENAI_DT_F32:
		return ((const float *)p)[i];
	case GENAI_DT_F64:
		return ((const double *)p)[i];
	case GENAI_DT_F16:
		return half_value(((const uint16_t *)p)[i]);
	case GENAI_DT_BF16:
		bits = (uint32_t)((const uint16_t *)p)[i] << 16;
		memcpy(&f, &bits, 4);
		return f;
	case GENAI_DT_I64:
		return (double)((const int64_t *)p)[i];
	case GENAI_DT_U64:
		return (double)((const uint64_t *)p)[i];
	case GENAI_DT_I32:
		return ((const int32_t *)p)[i];
	case GENAI_DT_U32:
		return ((const uint32_t *)p)[i];
	case GENAI_DT_I16:
		return ((const int16_t *)p)[i];
	case GENAI_DT_U16:
		return ((const uint16_t *)p)[i];
	case GENAI_DT_I8:
		return ((const int8_t *)p)[i];
	case GENAI_DT_F8E4M3FN:
	case GENAI_DT_F8E4M3FNUZ:
	case GENAI_DT_F8E5M2:
	case GENAI_DT_F8E5M2FNUZ:
	case GENAI_DT_F8E8M0:
		return code_value(dtype, ((const uint8_t *)p)[i]);
	case GENAI_DT_F4E2M1:
		return code_value(
			dtype, ((const uint8_t *)p)[i / 2] >> (i % 2 * 4) & 15);
	case GENAI_DT_U2:
		return ((const uint8_t *)p)[i / 4] >> (i % 4 * 2) & 3;
	case GENAI_DT_I2:
		bits = ((const uint8_t *)p)[i / 4] >> (i % 4 * 2) & 3;
		return (double)bits - (bits > 1 ? 4 : 0);
	case GENAI_DT_U4:
		return ((const uint8_t *)p)[i / 2] >> (i % 2 * 4) & 15;
	case GENAI_DT_I4:
		bits = ((const uint8_t *)p)[i / 2] >> (i % 2 * 4) & 15;
		return (double)bits - (bits > 7 ? 16 : 0);
	default:
		return ((const uint8_t *)p)[i];
	}
}

static int32_t compare(const struct genai_host_tensor *got,
		       const struct tensor_file *want, double rtol, double atol,
		       struct genai_error *err)
{
	uint64_t n = 1;

	if (got->dtype != want->dtype)
		return genai_fail(err, GENAI_E_FORMAT, "type %s, expected %s",
				  genai_dtype_name(got->dtype),
				  genai_dtype_name(want->dtype));
	if (got->rank != want->rank ||
	    memcmp(got->dims, want->dims, got->rank * sizeof(got->dims[0])))
		return genai_fail(err, GENAI_E_FORMAT, "another shape");
	for (uint32_t d = 0; d < got->rank; d++)
		n *= (uint64_t)got->dims[d];
	for (uint64_t i = 0; i < n; i++) {
		double a = element(got->dtype, got->data, i);
		double b = element(want->dtype, want->data, i);

		if (a == b || (isnan(a) && isnan(b)) ||
		    fabs(a - b) <= atol + rtol * fabs(b))
			continue;
		return genai_fail(err, GENAI_E_FORMAT,
				  "element %" PRIu64 " is %.9g, expected %.9g",
				  i, a, b);
	}
	return 0;
}

// ---- a graph with inputs ----

static void to_host(const struct tensor_file *f, struct genai_host_tensor *t)
{
	t->dtype = f->dtype;
	t->rank = f->rank;
	memcpy(t->dims, f->dims, sizeof(t->dims));
	t->data = f->data;
	t->bytes = f->bytes;
}

static int32_t check_io(const struct genai_graph *g, struct genai_error *err)
{
	for (uint32_t i = 0; i < g->n_inputs; i++) {
		const struct genai_value *v =
			genai_graph_value(g, g->inputs[i]);

		if (!v->dtype || v->dtype == GENAI_DT_STRING)
			return genai_fail(err, GENAI_E_UNSUPPORTED,
					  "graph input %s: its type is not "
					  "carried",
					  v->name);
	}
	if (g->n_inputs <= MAX_IO && g->n_outputs <= MAX_IO)
		return 0;
	return genai_fail(err, GENAI_E_UNSUPPORTED,
			  "%u inputs and %u outputs: at most %d each",
			  g->n_inputs, g->n_outputs, MAX_IO);
}

struct input {
	char name[256];
	const char *path;
};

// A name that is not the graph's is a slip, not something to pass over.
static int32_t check_input(const struct genai_graph *g, const char *path,
			   const char *name, struct genai_error *err)
{
	for (uint32_t i = 0; i < g->n_inputs; i++)
		if (!strcmp(genai_graph_value(g, g->inputs[i])->name, name))
			return 0;
	return genai_fail(err, GENAI_E_INVAL, "%s: the graph has no input %s",
			  path, name);
}

static int32_t write_outputs(const struct genai_graph *g,
			     const struct genai_host_tensor *out,
			     const char *dir, struct genai_error *err)
{
	for (uint32_t i = 0; i < g->n_outputs; i++) {
		const char *name = genai_graph_value(g, g->outputs[i])->name;
		struct tensor_file t = {.dtype = out[i].dtype,
					.rank = out[i].rank,
					.data = out[i].data,
					.bytes = out[i].bytes};
		char path[4600], safe[256];
		int32_t rc;

		memcpy(t.dims, out[i].dims, sizeof(t.dims));
		snprintf(safe, sizeof(safe), "%s", name);
		for (char *p = safe; *p; p++)
			if (*p == '/')
				*p = '_';
		snprintf(path, sizeof(path), "%s/%s.npy", dir ? dir : "", safe);
		rc = dir ? tensor_write(path, &t, err) : 0;
		if (rc)
			return rc;
	}
	// all or nothing is printed
	for (uint32_t i = 0; i < g->n_outputs; i++) {
		printf("%s: %s [", genai_graph_value(g, g->outputs[i])->name,
		       genai_dtype_name(out[i].dtype));
		for (uint32_t d = 0; d < out[i].rank; d++)
			printf("%s%" PRId64, d ? ", " : "", out[i].dims[d]);
		printf("]\n");
	}
	return 0;
}

static int32_t run_model(struct cli *c, const char *path,
			 const struct input *in, uint32_t n_in, const char *dir)
{
	struct genai_host_tensor inputs[MAX_IO] = {0}, outputs[MAX_IO] = {0};
	struct tensor_file files[MAX_IO] = {0};
	struct genai_runtime *rt = NULL;
	struct genai_onnx *onnx = NULL;
	const struct genai_graph *g = NULL;
	int32_t rc = genai_onnx_load(path, NULL, &onnx, &c->err);

	if (!rc) {
		g = genai_onnx_graph(onnx);
		rc = check_io(g, &c->err);
	}
	for (uint32_t k = 0; !rc && k < n_in; k++)
		rc = check_input(g, path, in[k].name, &c->err);
	for (uint32_t i = 0; !rc && i < g->n_inputs; i++) {
		const char *name = genai_graph_value(g, g->inputs[i])->name;
		uint32_t k = 0;

		while (k < n_in && strcmp(in[k].name, name))
			k++;
		if (k == n_in)
			rc = genai_fail(&c->err, GENAI_E_INVAL,
					"%s: graph input %s is missing: "
					"--input %s=FILE",
					path, name, name);
		else
			rc = tensor_read(in[k].path, &files[i], &c->err);
		if (!rc)
			to_host(&files[i], &inputs[i]);
	}
	if (!rc)
		rc = cli_runtime(c, &rt);
	if (!rc) {
		rc = genai_single_run(rt, g, inputs, outputs, &c->err);
		if (rc)
			genai_error_prefix(&c->err, "%s", path);
	}
	if (!rc)
		rc = write_outputs(g, outputs, dir, &c->err);
	for (uint32_t i = 0; i < MAX_IO; i++) {
		tensor_free(&files[i]);
		free(outputs[i].data);
	}
	genai_close(rt);
	genai_onnx_close(onnx);
	return rc;
}

// ---- ONNX node tests ----

struct counts {
	uint64_t passed, failed, skipped;
};

struct tests {
	struct cli *c;
	struct genai_runtime *rt;
	double rtol, atol; // of the command line, or below 0
	bool list;
	struct counts n;
};

static int32_t test_set(struct tests *t, const char *dir,
			const struct genai_graph *g, double rtol, double atol,
			struct genai_error *err)
{
	struct genai_host_tensor in[MAX_IO] = {0}, out[MAX_IO] = {0};
	struct tensor_file files[MAX_IO] = {0}, want = {0};
	char path[4600];
	int32_t rc = check_io(g, err);

	for (uint32_t i = 0; !rc && i < g->n_inputs; i++) {
		snprintf(path, sizeof(path), "%s/input_%u.pb", dir, i);
		rc = tensor_read(path, &files[i], err);
		if (!rc)
			to_host(&files[i], &in[i]);
	}
	if (!rc)
		rc = genai_single_run(t->rt, g, in, out, err);
	for (uint32_t i = 0; !rc && i < g->n_outputs; i++) {
		snprintf(path, sizeof(path), "%s/output_%u.pb", dir, i);
		rc = tensor_read(path, &want, err);
		if (!rc)
			rc = compare(&out[i], &want, rtol, atol, err);
		if (rc)
			genai_error_prefix(err, "output %u", i);
		tensor_free(&want);
	}
	for (uint32_t i = 0; i < MAX_IO; i++) {
		tensor_free(&files[i]);
		free(out[i].data);
	}
	return rc;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

// Names in a folder, sorted; NULL-terminated.
static char **names_in(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char **v = NULL;
	size_t n = 0;

	while (d && (e = readdir(d))) {
		char **more;

		if (e->d_name[0] == '.')
			continue;
		more = realloc(v, (n + 2) * sizeof(*v));
		if (!more)
			break;
		v = more;
		v[n++] = strdup(e->d_name);
		v[n] = NULL;
	}
	if (d)
		closedir(d);
	if (v)
		qsort(v, n, sizeof(*v), by_name);
	return v;
}

static void free_names(char **v)
{
	for (size_t i = 0; v && v[i]; i++)
		free(v[i]);
	free(v);
}

static void tolerance(const char *dir, double *rtol, double *atol)
{
	char path[4300];
	FILE *f;

	snprintf(path, sizeof(path), "%s/tol.txt", dir);
	f = fopen(path, "re");
	if (f && fscanf(f, "%lf %lf", rtol, atol) != 2)
		*rtol = *atol = 0;
	if (f)
		fclose(f);
}

static void test_case(struct tests *t, const char *dir)
{
	struct genai_error err = GENAI_ERROR_INIT;
	double rtol = 1e-3, atol = 1e-7;
	struct genai_onnx *onnx = NULL;
	char **sets, path[4400];
	uint32_t n_sets = 0;
	int32_t rc;

	if (t->list) {
		printf("%s\n", dir);
		return;
	}
	tolerance(dir, &rtol, &atol);
	if (t->rtol >= 0)
		rtol = t->rtol;
	if (t->atol >= 0)
		atol = t->atol;
	snprintf(path, sizeof(path), "%s/model.onnx", dir);
	rc = genai_onnx_load(path, NULL, &onnx, &err);
	sets = names_in(dir);
	for (size_t i = 0; !rc && sets && sets[i]; i++) {
		if (strncmp(sets[i], "test_data_set_", 14))
			continue;
		n_sets++;
		snprintf(path, sizeof(path), "%s/%s", dir, sets[i]);
		rc = test_set(t, path, genai_onnx_graph(onnx), rtol, atol,
			      &err);
	}
	free_names(sets);
	genai_onnx_close(onnx);
	if (!rc && !n_sets)
		rc = genai_fail(&err, GENAI_E_NOTFOUND,
				"no test_data_set_* in it");
	if (!rc) {
		t->n.passed++;
	} else if (rc == GENAI_E_UNSUPPORTED) {
		t->n.skipped++;
		printf("skip %s: %s\n", dir, err.text);
	} else {
		t->n.failed++;
		printf("FAIL %s: %s\n", dir, err.text);
	}
}

// A case's folder, or a folder of them.
static void test_path(struct tests *t, const char *path)
{
	char sub[4300];
	uint32_t cases = 0;
	char **v;
	struct stat st;

	snprintf(sub, sizeof(sub), "%s/model.onnx", path);
	if (!stat(sub, &st)) {
		test_case(t, path);
		return;
	}
	v = names_in(path);
	for (size_t i = 0; v && v[i]; i++) {
		snprintf(sub, sizeof(sub), "%s/%s/model.onnx", path, v[i]);
		if (stat(sub, &st))
			continue;
		snprintf(sub, sizeof(sub), "%s/%s", path, v[i]);
		test_case(t, sub);
		cases++;
	}
	if (!cases) {
		t->n.failed++;
		printf("FAIL %s: %s\n", path,
		       stat(path, &st) ? "no such folder"
				       : "no case in it: looked for "
					 "model.onnx and */model.onnx");
	}
	free_names(v);
}

static int node_tests(struct cli *c, struct tests *t, char **paths)
{
	t->c = c;
	if (!t->list && cli_runtime(c, &t->rt))
		return cli_fail(c);
	for (; *paths; paths++)
		test_path(t, *paths);
	genai_close(t->rt);
	if (!t->list)
		printf("%" PRIu64 " passed, %" PRIu64 " failed, %" PRIu64
		       " skipped\n",
		       t->n.passed, t->n.failed, t->n.skipped);
	return t->n.failed ? EXIT_REQUEST : 0;
}

static struct {
	struct input in[MAX_IO];
	uint32_t n_in;
	const char *dir;
	bool nodes;
	struct tests tests;
} args = {.tests = {.rtol = -1, .atol = -1}};

static int add_input(struct cli *c, const char *value)
{
	const char *eq = strchr(value, '=');
	struct input *in = &args.in[args.n_in];

	if (!eq || args.n_in == MAX_IO ||
	    (size_t)(eq - value) >= sizeof(in->name))
		return cli_usage(c, "--input %s: NAME=FILE is needed", value);
	memcpy(in->name, value, (size_t)(eq - value));
	in->path = eq + 1;
	args.n_in++;
	return 0;
}

static const struct cli_option options[] = {
	{.name = "input",
	 .kind = CLI_CALL,
	 .arg = "NAME=FILE",
	 .help = ".npy or TensorProto .pb (repeatable)",
	 .call = add_input},
	{"output-dir", 0, CLI_TEXT, "DIR", "write OUTPUT.npy there", &args.dir},
	{"node-tests", 0, CLI_FLAG, NULL,
	 "the arguments are folders of the ONNX backend tests", &args.nodes},
	{"rtol", 0, CLI_NUM, "X", "for these: relative tolerance",
	 &args.tests.rtol, 0, 1e9},
	{"atol", 0, CLI_NUM, "X", "absolute tolerance", &args.tests.atol, 0,
	 1e9},
	{"list", 0, CLI_FLAG, NULL, "their names only", &args.tests.list},
	{0}};

static int run(struct cli *c, int argc, char **argv)
{
	int at = cli_options(c, options, argc, argv);

	if (at < 0)
		return -at;
	if (args.nodes) {
		if (at == argc)
			return cli_usage(c, "folders are needed");
		return node_tests(c, &args.tests, argv + at);
	}
	if (at + 1 != argc)
		return cli_usage(c, "one .onnx file is needed");
	return run_model(c, argv[at], args.in, args.n_in, args.dir)
		       ? cli_fail(c)
		       : 0;
}

const struct command cmd_run = {
	"run",	 run, "MODEL.onnx [--input NAME=FILE]...", "run a single graph",
	options, NULL};
