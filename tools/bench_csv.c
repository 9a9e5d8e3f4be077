// bench_csv.c - where time goes by a vendor's profiler: the CSV that
//     ncu --csv --metrics gpu__time_duration.sum,dram__bytes_read.sum
// prints, with a line for each metric, or with --page raw a column for each.
#include "tools/bench.h"

#include <stdlib.h>
#include <string.h>

#define MOST_COLUMNS 256u
#define TIME "gpu__time_duration.sum"
#define READ "dram__bytes_read.sum"

struct kernel {
	char name[128];
	double ns, bytes, count;
};

struct csv {
	struct cli *c;
	const char *path;
	size_t line;
	struct kernel *kernels;
	size_t n, cap;
	// columns, MOST_COLUMNS where there is none
	size_t name, metric, unit, value, time, read;
	const char *time_unit, *read_unit;
};

// The fields of a line, in place; quotes are taken off.
static size_t split(char *s, char **field)
{
	size_t n = 0;

	while (n < MOST_COLUMNS) {
		char *out = s;
		bool quoted = *s == '"';

		field[n++] = out;
		for (s += quoted; *s && (quoted || *s != ','); s++) {
			if (quoted && *s == '"' && s[1] != '"') {
				quoted = false;
				continue;
			}
			s += quoted && *s == '"';
			*out++ = *s;
		}
		if (!*s) {
			*out = 0;
			return n;
		}
		s++;
		*out = 0;
	}
	return n;
}

static size_t column(char **field, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(field[i], name))
			return i;
	return MOST_COLUMNS;
}

// What a unit is of ns, or of bytes; 0: not known.
static double scale_of(const char *unit)
{
	static const struct {
		const char *name;
		double by;
	} units[] = {{"ns", 1},	       {"nsecond", 1},	{"us", 1e3},
		     {"usecond", 1e3}, {"ms", 1e6},	{"msecond", 1e6},
		     {"s", 1e9},       {"second", 1e9}, {"byte", 1},
		     {"Kbyte", 1e3},   {"Mbyte", 1e6},	{"Gbyte", 1e9}};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(units[i].name, unit))
			return units[i].by;
	return 0;
}

// "1,234.5" of a unit.
static int32_t number(struct csv *v, const char *text, const char *unit,
		      double *out)
{
	double by = scale_of(unit);
	char plain[64], *end;
	size_t n = 0;

	for (const char *s = text; *s && n + 1 < sizeof(plain); s++)
		if (*s != ',')
			plain[n++] = *s;
	plain[n] = 0;
	*out = strtod(plain, &end);
	if (n && !*end && *out >= 0 && by > 0) {
		*out *= by;
		return 0;
	}
	return genai_fail(&v->c->err, GENAI_E_FORMAT,
			  "%s: line %zu: '%s' of '%s' is no time or size",
			  v->path, v->line, text, unit);
}

static struct kernel *kernel_of(struct csv *v, const char *name)
{
	char is[sizeof(v->kernels->name)];

	snprintf(is, sizeof(is), "%s", name);
	is[strcspn(is, "(")] = 0; // without its parameters
	for (size_t i = 0; i < v->n; i++)
		if (!strcmp(v->kernels[i].name, is))
			return &v->kernels[i];
	if (v->n == v->cap) {
		size_t cap = v->cap ? 2 * v->cap : 64;
		void *more = realloc(v->kernels, cap * sizeof(*v->kernels));

		if (!more)
			return NULL;
		v->kernels = more;
		v->cap = cap;
	}
	v->kernels[v->n] = (struct kernel){.ns = 0};
	memcpy(v->kernels[v->n].name, is, sizeof(is));
	return &v->kernels[v->n++];
}

static int32_t add(struct csv *v, const char *name, const char *metric,
		   const char *text, const char *unit)
{
	struct kernel *k;
	double x;
	int32_t rc;

	if (strcmp(metric, TIME) && strcmp(metric, READ))
		return 0;
	rc = number(v, text, unit, &x);
	if (rc)
		return rc;
	k = kernel_of(v, name);
	if (!k)
		return genai_fail(&v->c->err, GENAI_E_NOMEM, "no memory");
	if (!strcmp(metric, TIME)) {
		k->ns += x;
		k->count++;
	} else {
		k->bytes += x;
	}
	return 0;
}

static bool is_heading(struct csv *v, char **field, size_t n)
{
	v->name = column(field, n, "Kernel Name");
	v->metric = column(field, n, "Metric Name");
	v->unit = column(field, n, "Metric Unit");
	v->value = column(field, n, "Metric Value");
	v->time = column(field, n, TIME);
	v->read = column(field, n, READ);
	return v->name < n &&
	       (v->time < n || (v->metric < n && v->unit < n && v->value < n));
}

static int32_t take_line(struct csv *v, char **field, size_t n)
{
	int32_t rc;

	if (v->time == MOST_COLUMNS)
		return v->value < n && v->metric < n && v->unit < n &&
				       v->name < n
			       ? add(v, field[v->name], field[v->metric],
				     field[v->value], field[v->unit])
			       : 0;
	if (v->time >= n)
		return 0;
	if (!v->time_unit) { // the line below the heading has the units
		v->time_unit = field[v->time];
		v->read_unit = v->read < n ? field[v->read] : "byte";
		return 0;
	}
	rc = add(v, field[v->name], TIME, field[v->time], v->time_unit);
	return rc || v->read >= n ? rc
				  : add(v, field[v->name], READ, field[v->read],
					v->read_unit);
}

static int by_ns(const void *a, const void *b)
{
	const struct kernel *x = a, *y = b;

	return (x->ns < y->ns) - (x->ns > y->ns);
}

static json_t *rows_of(struct csv *v)
{
	json_t *j = json_array();
	double all = 0;

	qsort(v->kernels, v->n, sizeof(*v->kernels), by_ns);
	for (size_t i = 0; i < v->n; i++)
		all += v->kernels[i].ns;
	for (size_t i = 0; i < v->n; i++) {
		const struct kernel *k = &v->kernels[i];

		json_array_append_new(
			j,
			json_pack("{s:s, s:f, s:f, s:f, s:f}", "name", k->name,
				  "count", k->count, "us", k->ns * 1e-3, "gb_s",
				  k->ns > 0 ? k->bytes / k->ns : 0, "share",
				  all > 0 ? k->ns / all : 0));
	}
	return j;
}

int32_t profile_csv(struct cli *c, const char *path, json_t **out_rows)
{
	struct csv v = {.c = c, .path = path};
	char *text, *save, *field[MOST_COLUMNS];
	bool begun = false;
	int32_t rc = 0;
	size_t n;

	if (!cli_slurp(c, path, &text, &n))
		return c->err.code;
	for (char *s = text; !rc && s && *s; s = save) {
		save = strchr(s, '\n');
		if (save)
			*save++ = 0;
		s[strcspn(s, "\r")] = 0;
		v.line++;
		n = split(s, field);
		if (begun)
			rc = take_line(&v, field, n);
		else
			begun = is_heading(&v, field, n);
	}
	if (!rc && !v.n)
		rc = genai_fail(&c->err, GENAI_E_FORMAT,
				"%s: no kernels with " TIME
				"; write it with ncu --csv --metrics " TIME
				"," READ,
				path);
	if (!rc)
		*out_rows = rows_of(&v);
	free(v.kernels);
	free(text);
	return rc;
}
