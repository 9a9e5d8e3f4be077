// bench_plot.c - a picture of a bench: SVG, by hand.
//
// Across: what weights may hold, as a share of their bytes.  Up: tokens per
// second.  Rows that differ only in that share are one line of one colour, with
// marks of one form, so that it is told apart in black and white, too; its
// floor is the dashed line of that colour, with small marks of that form. Lines
// become thinner and marks smaller: where two lie on each other, both are seen.
#include "tools/bench.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 760
#define LEFT 70 // of the area that has the lines
#define RIGHT 730
#define TOP 50
#define BOTTOM 370
#define LEGEND 440 // its first line
#define LINE 18
#define N_TICKS 5

static const char *const colours[] = {"#1f77b4", "#d62728", "#2ca02c",
				      "#9467bd", "#ff7f0e", "#17becf",
				      "#8c564b", "#7f7f7f"};
#define N_COLOURS (sizeof(colours) / sizeof(colours[0]))

// Forms of marks, from their middle, 2 wide.
static const char *const forms[] = {
	"m-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0z", // a circle
	"m-1-1h2v2h-2z", "m0-1.2l1.2 2.2h-2.4z",
	"m0-1.4l1.4 1.4-1.4 1.4-1.4-1.4z"};
#define N_FORMS (sizeof(forms) / sizeof(forms[0]))

struct point {
	double x, rate, low, high, floor;
	size_t series;
};

struct plot {
	FILE *f;
	struct point *points;
	char (*labels)[400]; // of the series
	size_t n_points, n_series;
	double top; // of the axis
};

// ---- numbers ----

static double number(const json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

static double inner(const json_t *row, const char *key, const char *part)
{
	return number(json_object_get(row, key), part);
}

static const char *text(const json_t *row, const char *key)
{
	return json_string_value(json_object_get(row, key));
}

// A number of one digit, or 1.5 or 2.5, times a power of ten, at least v.
static double round_up(double v)
{
	static const double steps[] = {1, 1.5, 2, 2.5, 3, 4, 5, 6, 8};
	const double unit = pow(10, floor(log10(v)));

	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if (v <= steps[i] * unit)
			return steps[i] * unit;
	return 10 * unit;
}

static size_t series_of(struct plot *p, const json_t *row)
{
	char label[sizeof(p->labels[0])];
	size_t i = 0;

	snprintf(label, sizeof(label), "%.64s, %.64s, prompt %.0f, depth %.0f",
		 text(row, "executor"), text(row, "pager"),
		 number(row, "prompt_tokens"), number(row, "depth"));
	while (i < p->n_series && strcmp(p->labels[i], label))
		i++;
	if (i == p->n_series)
		memcpy(p->labels[p->n_series++], label, sizeof(label));
	return i;
}

static int by_x(const void *a, const void *b)
{
	const struct point *p = a, *q = b;

	return (p->x > q->x) - (p->x < q->x);
}

static int32_t collect(struct plot *p, const json_t *rows)
{
	size_t n = json_array_size(rows);
	double most = 0;

	p->points = calloc(n + 1, sizeof(*p->points));
	p->labels = calloc(n + 1, sizeof(*p->labels));
	if (!p->points || !p->labels)
		return GENAI_E_NOMEM;
	for (size_t i = 0; i < n; i++) {
		const json_t *row = json_array_get(rows, i);
		double x = number(row, "weight_budget_bytes") /
			   number(row, "weights_bytes");
		// the rate that the floor is of
		const char *rate = json_object_get(row, "simulated_tok_s")
					   ? "simulated_tok_s"
					   : "decode_tok_s";

		p->points[i] = (struct point){
			.x = x < 1 ? x : 1, // also if there are no weights
			.rate = inner(row, rate, "median"),
			.low = inner(row, rate, "min"),
			.high = inner(row, rate, "max"),
			.floor = number(row, "floor_tok_s"),
			.series = series_of(p, row)};
		most = fmax(most, fmax(p->points[i].high, p->points[i].floor));
	}
	p->n_points = n;
	p->top = N_TICKS * round_up((most > 0 ? most : 1) / N_TICKS);
	qsort(p->points, n, sizeof(*p->points), by_x);
	return 0;
}

// ---- drawing ----

static double across(double x)
{
	return LEFT + x * (RIGHT - LEFT);
}

static double up(const struct plot *p, double rate)
{
	return BOTTOM - rate / p->top * (BOTTOM - TOP);
}

static void label(FILE *f, double x, double y, const char *anchor,
		  const char *s)
{
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y,
		anchor);
	cli_put_xml(f, s);
	fputs("</text>\n", f);
}

static void draw_axes(const struct plot *p, const char *title)
{
	char s[64];

	label(p->f, LEFT, 25, "start", title);
	label(p->f, LEFT - 6, TOP - 12, "end", "tokens/s");
	label(p->f, RIGHT, BOTTOM + 36, "end",
	      "weight budget, % of the weights; dashed: the floor");
	for (int i = 0; i <= N_TICKS; i++) {
		double v = p->top * i / N_TICKS, y = up(p, v);
		double x = across((double)i / N_TICKS);

		fprintf(p->f,
			"<path class=\"grid\" d=\"M%d %.1fH%dM%.1f %dV%d\"/>\n",
			LEFT, y, RIGHT, x, TOP, BOTTOM);
		snprintf(s, sizeof(s), "%.6g", v);
		label(p->f, LEFT - 6, y + 4, "end", s);
		snprintf(s, sizeof(s), "%d", 100 * i / N_TICKS);
		label(p->f, x, BOTTOM + 18, "middle", s);
	}
}

static double thickness(size_t series)
{
	return series < 6 ? 4 - 0.4 * (double)series : 1.6;
}

// Of a row, of the key or of the least there is; the last, and the second round
// of forms, are hollow.
static void mark(const struct plot *p, size_t series, double x, double y,
		 double size, const char *class)
{
	const char *colour = colours[series % N_COLOURS];

	fprintf(p->f,
		"<path class=\"%s\" transform=\"translate(%.1f %.1f) "
		"scale(%.1f)\" "
		"d=\"M0 0%s\" stroke=\"%s\" stroke-width=\"%.2f\" "
		"style=\"fill:%s\"/>\n",
		class, x, y, size, forms[series % N_FORMS], colour, 1.3 / size,
		*class == 'l' || series / N_FORMS % 2 ? "#fff" : colour);
}

static void draw_line(const struct plot *p, size_t series, bool is_floor)
{
	fprintf(p->f, "<polyline class=\"%s\" stroke=\"%s\" ",
		is_floor ? "floor" : "rate", colours[series % N_COLOURS]);
	if (!is_floor)
		fprintf(p->f, "stroke-width=\"%.1f\" ", thickness(series));
	fputs("points=\"", p->f);
	for (size_t i = 0; i < p->n_points; i++)
		if (p->points[i].series == series)
			fprintf(p->f, "%.1f,%.1f ", across(p->points[i].x),
				up(p, is_floor ? p->points[i].floor
					       : p->points[i].rate));
	fputs("\"/>\n", p->f);
}

static void draw_series(const struct plot *p, size_t series)
{
	const char *colour = colours[series % N_COLOURS];
	double y = LEGEND + (double)series * LINE;
	double size = 1.5 + thickness(series);

	draw_line(p, series, true);
	draw_line(p, series, false);
	for (size_t i = 0; i < p->n_points; i++) {
		const struct point *q = &p->points[i];

		if (q->series != series)
			continue;
		fprintf(p->f, "<path stroke=\"%s\" d=\"M%.1f %.1fV%.1f\"/>\n",
			colour, across(q->x), up(p, q->low), up(p, q->high));
		if (q->floor > 0)
			mark(p, series, across(q->x), up(p, q->floor), 2.5,
			     "least");
		mark(p, series, across(q->x), up(p, q->rate), size, "row");
	}
	fprintf(p->f,
		"<path stroke=\"%s\" stroke-width=\"%.1f\" "
		"d=\"M%d %.1fh28\"/>\n",
		colour, thickness(series), LEFT, y - 4);
	mark(p, series, LEFT + 14, y - 4, size, "key");
	label(p->f, LEFT + 36, y, "start", p->labels[series]);
}

static void draw(const struct plot *p, const char *title)
{
	int height = LEGEND + (int)p->n_series * LINE;

	fprintf(p->f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
		"height=\"%d\" viewBox=\"0 0 %d %d\">\n"
		"<style>text{font:13px sans-serif}path,polyline{fill:none}"
		".grid{stroke:#ddd}"
		".floor{stroke-dasharray:6 4}</style>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		WIDTH, height, WIDTH, height);
	draw_axes(p, title);
	for (size_t i = 0; i < p->n_series; i++)
		draw_series(p, i);
	fputs("</svg>\n", p->f);
}

int32_t bench_plot(const json_t *rows, const char *title, const char *path,
		   struct genai_error *err)
{
	struct plot p = {0};
	int32_t rc = collect(&p, rows);
	bool failed;

	if (rc) {
		genai_fail(err, rc, "no memory");
		goto out;
	}
	errno = 0;
	p.f = fopen(path, "we");
	failed = !p.f;
	if (p.f) {
		draw(&p, title);
		failed = ferror(p.f);
		failed |= fclose(p.f) != 0;
	}
	if (failed)
		rc = genai_fail(err, GENAI_E_IO, "%s: cannot write: %s", path,
				strerror(errno));
out:
	free(p.points);
	free(p.labels);
	return rc;
}
