// trace_write.c - a trace as a file for Perfetto and Chrome, a step as a
// picture.
#include "tools/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <genai/version.h>

#include "core/device.h"

static int by_begin(const void *a, const void *b)
{
	const struct trace_event *p = a, *q = b;

	if (p->begin != q->begin)
		return p->begin < q->begin ? -1 : 1;
	// what is around something comes before it
	return (p->end < q->end) - (p->end > q->end);
}

static double micro(uint64_t ns)
{
	return (double)ns * 1e-3;
}

// ---- JSON ----

static void put_string(FILE *f, const char *s)
{
	fputc('"', f);
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			fputc('\\', f);
		fputc(*s >= ' ' && *s <= '~' ? *s : '?', f);
	}
	fputc('"', f);
}

static void put_thread(FILE *f, uint32_t tid, const char *name)
{
	fprintf(f,
		",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,"
		"\"tid\":%u,\"args\":{\"name\":",
		tid);
	put_string(f, name);
	fprintf(f,
		"}},\n{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":1,"
		"\"tid\":%u,\"args\":{\"sort_index\":%u}}",
		tid, tid);
}

static void put_args(FILE *f, const struct trace_what *w)
{
	const char *comma = "";

	if (w->node != GENAI_NONE) {
		fprintf(f, "\"node\":%u", w->node);
		comma = ",";
	}
	if (w->kind == TRACE_COPY)
		fprintf(f, "%s\"bytes\":%" PRIu64, comma, w->bytes);
	if (w->kind == TRACE_STEP)
		fprintf(f, "%s\"replayed\":%s", comma,
			w->replayed ? "true" : "false");
	if (w->kind == TRACE_BARRIER && w->name[0] == 'd') {
		fputs("\"ticket\":", f);
		put_string(f, w->reason[0] ? w->reason : "not used");
	}
}

static void put_event(FILE *f, const struct trace_event *e)
{
	static const char *const names[] = {
		[TRACE_KERNEL] = "kernel",  [TRACE_COPY] = "copy",
		[TRACE_WAIT] = "wait",	    [TRACE_READ] = "read",
		[TRACE_STEP] = "step",	    [TRACE_HOST] = "host",
		[TRACE_BARRIER] = "barrier"};
	const struct trace_what *w = e->what;

	fprintf(f, ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":", names[w->kind]);
	if (w->kind == TRACE_WAIT) {
		char name[64];

		snprintf(name, sizeof(name), "wait for %s", w->name);
		put_string(f, name);
	} else {
		put_string(f, w->name);
	}
	fprintf(f, ",\"pid\":1,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"args\":{",
		w->stream ? w->stream->number : 0, micro(e->begin),
		micro(e->end - e->begin));
	put_args(f, w);
	fputs("}}", f);
}

static void put_counter(FILE *f, const char *name, uint64_t at, const char *key,
			double value)
{
	fprintf(f,
		",\n{\"ph\":\"C\",\"name\":\"%s\",\"pid\":1,\"ts\":%.3f,"
		"\"args\":{\"%s\":%.6g}}",
		name, micro(at), key, value);
}

// What was moved and waited for since the beginning, as it grows.
static void put_counters(FILE *f, const struct trace *t)
{
	double bytes = 0, stall = 0;

	put_counter(f, "copied to the device", 0, "bytes", 0);
	put_counter(f, "stalls", 0, "ms", 0);
	for (size_t i = 0; i < t->n_events; i++) {
		const struct trace_event *e = &t->events[i];

		if (e->what->kind == TRACE_COPY &&
		    e->what->copy_kind == GENAI_COPY_H2D) {
			bytes += (double)e->what->bytes;
			put_counter(f, "copied to the device", e->end, "bytes",
				    bytes);
		} else if (e->what->kind == TRACE_WAIT) {
			stall += micro(e->end - e->begin) * 1e-3;
			put_counter(f, "stalls", e->end, "ms", stall);
		}
	}
	for (size_t i = 0; i < t->n_counts; i++)
		fprintf(f,
			",\n{\"ph\":\"C\",\"name\":\"weights of a step\","
			"\"pid\":1,\"ts\":%.3f,\"args\":{\"hits\":%" PRIu64
			",\"streamed\":%" PRIu64 "}}",
			micro(t->counts[i].at), t->counts[i].hits,
			t->counts[i].streamed);
}

void trace_json(const struct trace *t, FILE *f)
{
	fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"program\":"
	      "\"genai " GENAI_VERSION_STRING "\",\"configuration\":",
	      f);
	put_string(f, t->label);
	fputs("},\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"process_name\","
	      "\"pid\":1,\"args\":{\"name\":\"genai\"}}",
	      f);
	put_thread(f, 0, "host");
	for (const struct trace_stream *s = t->streams; s; s = s->next) {
		char name[64];

		snprintf(name, sizeof(name), "stream %s", s->name);
		put_thread(f, s->number, name);
	}
	qsort(t->events, t->n_events, sizeof(*t->events), by_begin);
	for (size_t i = 0; i < t->n_events; i++)
		put_event(f, &t->events[i]);
	put_counters(f, t);
	fputs("\n]}\n", f);
}

// ---- the picture ----

#define LEFT 170
#define RIGHT 1090
#define WIDTH 1180
#define TOP 74
#define LANE 34
#define BAR 22
#define N_TICKS 8
#define LETTER 6.6 // its width

static int by_length(const void *a, const void *b)
{
	const struct trace_event *p = *(const struct trace_event *const *)a;
	const struct trace_event *q = *(const struct trace_event *const *)b;
	uint64_t x = p->end - p->begin, y = q->end - q->begin;

	return (x > y) - (x < y);
}

// A step that is like the others: the first ones are prompts and recorded.
static const struct trace_event *choose_step(const struct trace *t)
{
	const struct trace_event **steps =
		calloc(t->n_events + 1, sizeof(*steps));
	const struct trace_event *chosen = NULL;
	size_t n = 0;

	for (size_t i = 0; steps && i < t->n_events; i++)
		if (t->events[i].what->kind == TRACE_STEP)
			steps[n++] = &t->events[i];
	if (n) {
		qsort(steps + n / 2, n - n / 2, sizeof(*steps), by_length);
		chosen = steps[n / 2 + (n - n / 2) / 2];
	}
	free(steps);
	return chosen;
}

struct picture {
	FILE *f;
	const struct trace *t;
	double from, to; // of the time, ns
	int y;
};

static double across(const struct picture *p, double ns)
{
	double x = LEFT + (ns - p->from) / (p->to - p->from) * (RIGHT - LEFT);

	return x < LEFT ? LEFT : x > RIGHT ? RIGHT : x;
}

static void put_text(FILE *f, double x, double y, const char *class,
		     const char *s)
{
	fprintf(f, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
	cli_put_xml(f, s);
	fputs("</text>\n", f);
}

// 1, 2 or 5 times a power of ten, at least v.
static double round_up(double v)
{
	double unit = pow(10, floor(log10(v))), m = v / unit;

	return unit * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}

static void put_axis(const struct picture *p, int bottom)
{
	double ms = (p->to - p->from) * 1e-6, step = round_up(ms / N_TICKS);
	char s[32];

	for (int i = 0; i * step <= ms; i++) {
		double x = LEFT + (RIGHT - LEFT) * i * step / ms;

		fprintf(p->f, "<path class=\"grid\" d=\"M%.1f %dV%d\"/>\n", x,
			TOP - 6, bottom);
		snprintf(s, sizeof(s), "%.6g", i * step);
		put_text(p->f, x, bottom + 16, "tick", s);
	}
	put_text(p->f, (LEFT + RIGHT) / 2.0, bottom + 36, "tick",
		 "milliseconds since the step began");
}

// Is the event of this lane, and inside of the picture?
static bool here(const struct picture *p, const struct trace_event *e,
		 const struct trace_stream *s, enum trace_kind kind)
{
	return e->what->kind == kind && e->what->stream == s &&
	       (double)e->end > p->from && (double)e->begin < p->to &&
	       (kind != TRACE_WAIT || e->end - e->begin >= 1000);
}

static void put_bar(const struct picture *p, const char *class, double x0,
		    double x1, const char *name)
{
	double w = x1 - x0 < 0.4 ? 0.4 : x1 - x0;
	size_t fits = (size_t)((w - 6) / LETTER);

	fprintf(p->f,
		"<rect class=\"%s\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" "
		"height=\"%d\"/>\n",
		class, x0, p->y, w, BAR);
	// the end of a path tells most
	while (name && strlen(name) > fits && strchr(name, '/'))
		name = strchr(name, '/') + 1;
	if (name && w > 12 && strlen(name) <= fits) {
		char style[32];

		snprintf(style, sizeof(style), "in %s", class);
		put_text(p->f, x0 + w / 2, p->y + BAR - 7, style, name);
	}
}

static void put_lane(struct picture *p, const struct trace_stream *s,
		     enum trace_kind kind)
{
	static const struct {
		const char *class, *name;
	} looks[] = {
		[TRACE_KERNEL] = {"kernel", "kernels"},
		[TRACE_COPY] = {"copy", "copies"},
		[TRACE_WAIT] = {"wait", "waits"},
		[TRACE_READ] = {"read", "reads"},
		[TRACE_BARRIER] = {"wait", "waits"},
	};
	double busy = 0, x0 = -1, x1 = -1;
	const char *name = NULL;
	char text[96];

	for (size_t i = 0; i < p->t->n_events; i++) {
		const struct trace_event *e = &p->t->events[i];
		double a, b;

		if (!here(p, e, s, kind))
			continue;
		a = across(p, (double)e->begin);
		b = across(p, (double)e->end);
		busy += b - a;
		// bars too near to be told apart are one
		if (x0 >= 0 && b - x0 < 0.5) {
			x1 = b > x1 ? b : x1;
			name = NULL;
			continue;
		}
		if (x0 >= 0)
			put_bar(p, looks[kind].class, x0, x1, name);
		x0 = a;
		x1 = b;
		name = e->what->name;
	}
	if (x0 < 0)
		return;
	put_bar(p, looks[kind].class, x0, x1, name);
	snprintf(text, sizeof(text), "%s: %s", s ? s->name : "host",
		 looks[kind].name);
	put_text(p->f, LEFT - 10, p->y + BAR - 6, "lane", text);
	snprintf(text, sizeof(text), "%.0f %%", 100 * busy / (RIGHT - LEFT));
	put_text(p->f, RIGHT + 8, p->y + BAR - 6, "share", text);
	p->y += LANE;
}

// The oldest stream, which computes, is above.
static const enum trace_kind kinds[] = {TRACE_KERNEL, TRACE_COPY, TRACE_READ,
					TRACE_WAIT};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static uint32_t n_streams(const struct trace *t)
{
	return t->streams ? t->streams->number : 0;
}

static const struct trace_stream *stream_at(const struct trace *t, uint32_t n)
{
	const struct trace_stream *s = t->streams;

	while (s && s->number != n)
		s = s->next;
	return s;
}

static int has_lane(const struct picture *p, const struct trace_stream *s,
		    enum trace_kind kind)
{
	for (size_t i = 0; i < p->t->n_events; i++)
		if (here(p, &p->t->events[i], s, kind))
			return 1;
	return 0;
}

static int count_lanes(const struct picture *p)
{
	int n = has_lane(p, NULL, TRACE_BARRIER);

	for (uint32_t i = 1; i <= n_streams(p->t); i++)
		for (size_t k = 0; k < N_KINDS; k++)
			n += has_lane(p, stream_at(p->t, i), kinds[k]);
	return n;
}

static void put_style(FILE *f)
{
	fputs("<style>text{font:12px sans-serif;fill:#000}"
	      ".title{font-size:14px}"
	      ".lane{text-anchor:end}.tick,.in{text-anchor:middle}"
	      ".in{font-size:11px}.in.kernel{fill:#fff}"
	      ".grid{stroke:#ccc;fill:none}"
	      ".kernel{stroke:#000;stroke-width:.5}rect.kernel{fill:#444}"
	      "rect.copy{fill:url(#lines);stroke:#000;stroke-width:.8}"
	      "rect.read{fill:#ddd;stroke:#000;stroke-width:.8}"
	      "rect.wait{fill:#fff;stroke:#000;stroke-width:.8;"
	      "stroke-dasharray:3 2}"
	      "text.kernel,text.copy,text.read,text.wait{stroke:none}"
	      "text.copy{paint-order:stroke;stroke:#fff;stroke-width:4}"
	      "</style>\n"
	      "<defs><pattern id=\"lines\" width=\"5\" height=\"5\" "
	      "patternUnits=\"userSpaceOnUse\" "
	      "patternTransform=\"rotate(45)\"><rect width=\"5\" "
	      "height=\"5\" fill=\"#fff\"/><rect width=\"2\" height=\"5\" "
	      "fill=\"#666\"/></pattern></defs>\n",
	      f);
}

bool trace_svg(const struct trace *t, FILE *f)
{
	const struct trace_event *step;
	struct picture p = {.f = f, .t = t, .y = TOP};
	int bottom;
	char s[160];

	qsort(t->events, t->n_events, sizeof(*t->events), by_begin);
	step = choose_step(t);
	if (!step)
		return false;
	p.from = (double)step->begin;
	p.to = (double)(step->end > step->begin ? step->end : step->begin + 1);
	bottom = TOP + count_lanes(&p) * LANE;
	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
		"height=\"%d\" viewBox=\"0 0 %d %d\">\n",
		WIDTH, bottom + 50, WIDTH, bottom + 50);
	put_style(f);
	fputs("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n", f);
	snprintf(s, sizeof(s), "A step of %.4g ms%s", (p.to - p.from) * 1e-6,
		 step->what->replayed ? ", replayed" : "");
	put_text(f, 20, 26, "title", s);
	put_text(f, 20, 46, "title", t->label);
	put_axis(&p, bottom);
	for (uint32_t n = 1; n <= n_streams(t); n++)
		for (size_t k = 0; k < N_KINDS; k++)
			put_lane(&p, stream_at(t, n), kinds[k]);
	put_lane(&p, NULL, TRACE_BARRIER);
	fputs("</svg>\n", f);
	return true;
}
