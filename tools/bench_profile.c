// bench_profile.c - where a step's time goes, by stamps of the device between
// its units of work.
// The tables of an open runtime are replaced by ones that have a stamp made
// after each unit, copy and wait; what lies between two stamps of a stream is
// what it did meanwhile.  Units are then timed one by one, so nothing is
// recorded, and none begins while the one before it ends.
#include "tools/bench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROWS 1024u
#define MOST_STREAMS 32u
#define SHOWN 24u

struct row {
	const char *kind; // "unit", "copy", "wait", "idle"
	char name[64], node[96];
	uint64_t count, ns, bytes;
};

struct span {
	uint64_t from, to; // stamps
	uint64_t bytes;
	uint32_t row;
};

struct lane {
	const struct genai_stream *raw;
	char name[32];
	uint64_t last;	// stamp, 0: none in this step
	uint64_t first; // of the step
	uint64_t ns;	// of all steps
};

static struct {
	struct genai_device *device;
	const struct genai_graph *graph;
	struct genai_stream_ops stream; // those that were there
	int32_t (*submit)(struct genai_plan *plan, struct genai_stream *stream,
			  const struct genai_point *wait, uint32_t n_wait,
			  struct genai_point *out_signal,
			  struct genai_error *err);
	struct lane lanes[MOST_STREAMS];
	uint32_t n_lanes;
	struct row rows[MOST_ROWS];
	uint32_t n_rows;
	struct span *spans;
	size_t n_spans, cap_spans;
	uint64_t steps;
	bool native, on;
} p;

// ---- what is timed ----

static struct lane *lane_of(const struct genai_stream *raw)
{
	for (uint32_t i = 0; i < p.n_lanes; i++)
		if (p.lanes[i].raw == raw)
			return &p.lanes[i];
	return NULL;
}

// Layers are alike: "layers.3.mlp" is "layers.*.mlp".
static void without_numbers(char *out, size_t cap, const char *name)
{
	size_t n = 0;

	for (; name && *name && n + 1 < cap; name++) {
		bool digit = *name >= '0' && *name <= '9';

		if (digit && n && out[n - 1] == '*')
			continue;
		out[n++] = digit ? '*' : *name;
	}
	out[n] = 0;
}

static uint32_t row_of(const char *kind, const char *name, uint32_t node)
{
	struct row r = {.kind = kind};
	uint32_t i = 0;

	if (node != GENAI_NONE && node < p.graph->n_nodes) {
		const struct genai_node *n = genai_graph_node(p.graph, node);

		name = n->op;
		without_numbers(r.node, sizeof(r.node), n->name);
	}
	snprintf(r.name, sizeof(r.name), "%s", name ? name : "unit");
	while (i < p.n_rows && (strcmp(p.rows[i].kind, kind) ||
				strcmp(p.rows[i].name, r.name) ||
				strcmp(p.rows[i].node, r.node)))
		i++;
	if (i == MOST_ROWS)
		return i - 1;
	if (i == p.n_rows)
		p.rows[p.n_rows++] = r;
	return i;
}

static int32_t stamp(struct lane *l, struct genai_stream *s, uint64_t *out,
		     struct genai_error *err)
{
	int32_t rc = p.stream.stamp(p.device->raw_self, s, out, err);

	if (rc)
		return rc;
	if (!l->first)
		l->first = *out;
	l->last = *out;
	return 0;
}

static void add_span(uint64_t from, uint64_t to, uint32_t row, uint64_t bytes)
{
	if (p.n_spans == p.cap_spans) {
		size_t cap = p.cap_spans ? 2 * p.cap_spans : 1024;
		struct span *more = realloc(p.spans, cap * sizeof(*more));

		if (!more)
			return;
		p.spans = more;
		p.cap_spans = cap;
	}
	p.spans[p.n_spans++] = (struct span){from, to, bytes, row};
}

// From here on the stream does something: what was before is nothing.
static int32_t begin(struct genai_stream *s, uint64_t *out,
		     struct genai_error *err)
{
	struct lane *l = p.on ? lane_of(s) : NULL;
	uint64_t before;
	int32_t rc;

	*out = 0;
	if (!l)
		return 0;
	before = l->last;
	rc = stamp(l, s, out, err);
	if (!rc && before)
		add_span(before, *out, row_of("idle", l->name, GENAI_NONE), 0);
	return rc;
}

static int32_t end(struct genai_stream *s, uint64_t from, uint32_t row,
		   uint64_t bytes, struct genai_error *err)
{
	struct lane *l = p.on && from ? lane_of(s) : NULL;
	uint64_t to;
	int32_t rc = l ? stamp(l, s, &to, err) : 0;

	if (l && !rc)
		add_span(from, to, row, bytes);
	return rc;
}

// Stored weights: of a budget, or where they lie in the host's memory.
static bool is_weight(genai_addr addr)
{
	const struct genai_device *d = p.device;

	for (uint32_t i = 0; i < d->n_allocs; i++) {
		const char *tag = d->lines[d->allocs[i].tag].tag;

		if (addr - d->allocs[i].addr < d->allocs[i].bytes)
			return d->allocs[i].kind == GENAI_MEM_REGISTERED ||
			       !strcmp(tag, GENAI_TAG_WEIGHTS) ||
			       !strcmp(tag, GENAI_TAG_RING);
	}
	return false;
}

static uint64_t weights_of(const struct genai_access *a, uint32_t n)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		if (a[i].flags == GENAI_READ && is_weight(a[i].addr))
			bytes += a[i].bytes;
	return bytes;
}

// ---- the tables ----

static int32_t p_launch(void *self, struct genai_stream *s,
			const struct genai_work *work,
			const struct genai_access *acc, uint32_t n,
			struct genai_error *err)
{
	struct lane *l = p.on ? lane_of(s) : NULL;
	uint64_t from = l ? l->last : 0; // it is enqueued already
	int32_t rc = p.native ? 0 : begin(s, &from, err);

	if (!rc)
		rc = p.stream.launch(self, s, work, acc, n, err);
	if (rc || !l)
		return rc;
	return end(s, from, row_of("unit", work->name, work->node),
		   weights_of(acc, n), err);
}

static int32_t p_launch_host(void *self, struct genai_stream *s,
			     const struct genai_work *work,
			     const struct genai_access *acc, uint32_t n,
			     struct genai_error *err)
{
	uint64_t from;
	int32_t rc = begin(s, &from, err);

	if (!rc)
		rc = p.stream.launch_host(self, s, work, acc, n, err);
	return rc || !from
		       ? rc
		       : end(s, from, row_of("unit", work->name, work->node), 0,
			     err);
}

static int32_t p_copy(void *self, struct genai_stream *s, uint64_t dst,
		      uint64_t src, uint64_t bytes, uint32_t kind,
		      struct genai_error *err)
{
	static const char *const names[] = {"copy", "to the device",
					    "from the device", "on the device"};
	uint64_t from;
	int32_t rc = begin(s, &from, err);

	if (!rc)
		rc = p.stream.copy(self, s, dst, src, bytes, kind, err);
	return rc || !from ? rc
			   : end(s, from,
				 row_of("copy", names[kind <= 3 ? kind : 0],
					GENAI_NONE),
				 bytes, err);
}

static int32_t p_wait(void *self, struct genai_stream *s, struct genai_point pt,
		      struct genai_error *err)
{
	struct lane *of = pt.stream == s ? NULL : lane_of(pt.stream);
	uint64_t from;
	int32_t rc;

	if (!of) // its own point: nothing is waited for
		return p.stream.wait(self, s, pt, err);
	rc = begin(s, &from, err);
	if (!rc)
		rc = p.stream.wait(self, s, pt, err);
	return rc || !from ? rc
			   : end(s, from, row_of("wait", of->name, GENAI_NONE),
				 0, err);
}

static int32_t p_create(void *self, const char *name, struct genai_stream **out,
			struct genai_error *err)
{
	int32_t rc = p.stream.create(self, name, out, err);
	struct lane *l = lane_of(NULL); // of one that is gone

	if (rc)
		return rc;
	if (!l && p.n_lanes < MOST_STREAMS)
		l = &p.lanes[p.n_lanes++];
	if (l) {
		*l = (struct lane){.raw = *out};
		snprintf(l->name, sizeof(l->name), "%s", name);
	}
	return 0;
}

static int32_t p_destroy(void *self, struct genai_stream *s,
			 struct genai_error *err)
{
	struct lane *l = lane_of(s);
	int32_t rc = p.stream.destroy(self, s, err);

	if (!rc && l)
		l->raw = NULL;
	return rc;
}

// An executor that cannot record runs its steps unit by unit.
static int32_t p_capture_begin(void *self, struct genai_stream *s,
			       struct genai_error *err)
{
	(void)self;
	(void)s;
	return genai_fail(err, GENAI_E_UNSUPPORTED,
			  "units are timed one by one: nothing is recorded");
}

static int32_t p_submit(struct genai_plan *plan, struct genai_stream *stream,
			const struct genai_point *wait, uint32_t n_wait,
			struct genai_point *out_signal, struct genai_error *err)
{
	uint64_t from;
	int32_t rc = begin(stream, &from, err);

	p.steps += p.on;
	return rc ? rc : p.submit(plan, stream, wait, n_wait, out_signal, err);
}

// ---- life ----

int32_t profile_open(struct genai_runtime *rt, struct genai_error *err)
{
	struct genai_device *d = &rt->device;

	if (!(d->caps.flags & GENAI_STREAM_CAP_STAMPS))
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "--profile: stream = %s makes no stamps",
				  rt->stream.label);
	memset(&p, 0, sizeof(p));
	p.device = d;
	p.native = d->caps.flags & GENAI_STREAM_CAP_NATIVE;
	p.stream = d->raw;
	p.submit = rt->exec.submit;
	d->raw.create = p_create;
	d->raw.destroy = p_destroy;
	d->raw.wait = p_wait;
	d->raw.copy = p_copy;
	d->raw.launch = p_launch;
	d->raw.launch_host = p_launch_host;
	if (d->raw.capture_begin)
		d->raw.capture_begin = p_capture_begin;
	rt->exec.submit = p_submit;
	return 0;
}

static void profile_begin(const struct genai_graph *graph)
{
	p.graph = graph;
	p.n_rows = 0;
	p.n_spans = 0;
	p.steps = 0;
	for (uint32_t i = 0; i < p.n_lanes; i++)
		p.lanes[i].ns = p.lanes[i].first = p.lanes[i].last = 0;
	p.on = true;
}

static int32_t between(uint64_t from, uint64_t to, uint64_t *out_ns,
		       struct genai_error *err)
{
	int64_t ns = 0;
	int32_t rc = p.stream.elapsed(p.device->raw_self, from, to, &ns, err);

	*out_ns = ns > 0 ? (uint64_t)ns : 0;
	if (rc == GENAI_PENDING)
		return genai_fail(err, GENAI_E_STATE,
				  "a stamp is not there after a drain");
	return rc;
}

// All that was enqueued is done: take its times.
static int32_t profile_step(struct genai_error *err)
{
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	int32_t rc = genai_device_drain(p.device, &ticket, err);
	uint64_t ns;

	for (size_t i = 0; !rc && i < p.n_spans; i++) {
		struct row *r = &p.rows[p.spans[i].row];

		rc = between(p.spans[i].from, p.spans[i].to, &ns, err);
		if (rc)
			break;
		r->ns += ns;
		r->bytes += p.spans[i].bytes;
		r->count++;
	}
	for (uint32_t i = 0; !rc && i < p.n_lanes; i++) {
		struct lane *l = &p.lanes[i];

		if (l->last != l->first)
			rc = between(l->first, l->last, &ns, err);
		if (!rc && l->last != l->first)
			l->ns += ns;
		l->first = l->last = 0;
	}
	p.n_spans = 0;
	return rc;
}

static int by_ns(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return (x->ns < y->ns) - (x->ns > y->ns);
}

static json_t *profile_end(void)
{
	json_t *j = json_array();
	double steps = p.steps ? (double)p.steps : 1, longest = 1;

	p.on = false;
	for (uint32_t i = 0; i < p.n_lanes; i++)
		if ((double)p.lanes[i].ns > longest)
			longest = (double)p.lanes[i].ns;
	qsort(p.rows, p.n_rows, sizeof(*p.rows), by_ns);
	for (uint32_t i = 0; i < p.n_rows; i++) {
		const struct row *r = &p.rows[i];
		double ns = (double)r->ns;

		json_array_append_new(
			j, json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f}",
				     "kind", r->kind, "name", r->name, "node",
				     r->node, "count", (double)r->count / steps,
				     "us", ns * 1e-3 / steps, "gb_s",
				     ns > 0 ? (double)r->bytes / ns : 0,
				     "share", ns / longest));
	}
	return j;
}

void profile_close(void)
{
	free(p.spans);
	p.spans = NULL;
	p.on = false;
}

void profile_print(const json_t *rows, const char *of)
{
	double count = 0, us = 0, share = 0;
	size_t n = json_array_size(rows);

	printf("\nwhere the time of %s goes, each unit by itself, of one step\n"
	       "%-24s %-48s %8s %10s %8s %7s\n",
	       of, "unit", "node", "count", "us", "GB/s", "share");
	for (size_t i = 0; i < n; i++) {
		json_t *r = json_array_get(rows, i);
		const char *kind = "unit", *name, *node = "";
		double c = 0, t = 0, rate = 0, s = 0;
		char text[96], gb[24] = "-";

		json_unpack(r, "{s?s, s:s, s?s, s:F, s:F, s:F, s:F}", "kind",
			    &kind, "name", &name, "node", &node, "count", &c,
			    "us", &t, "gb_s", &rate, "share", &s);
		if (i >= SHOWN) {
			count += c;
			us += t;
			share += s;
			continue;
		}
		if (rate > 0)
			snprintf(gb, sizeof(gb), "%.1f", rate);
		snprintf(text, sizeof(text), "%s%s%s",
			 strcmp(kind, "unit") ? kind : "",
			 strcmp(kind, "unit") ? " " : "", name);
		printf("%-24s %-48s %8.1f %10.1f %8s %6.1f%%\n", text, node, c,
		       t, gb, 100 * s);
	}
	if (n > SHOWN)
		printf("%-24s %-48s %8.1f %10.1f %8s %6.1f%%\n", "the rest", "",
		       count, us, "-", 100 * share);
	printf("\n");
}

// ---- one row ----

#define STEPS 16

static int32_t decode(struct genai_session *s, int64_t n,
		      struct genai_error *err)
{
	int32_t rc = 0;
	int64_t id;

	for (int64_t i = 0; !rc && i < n; i++) {
		rc = genai_session_next(s, 0, &id, err);
		if (!rc && p.on)
			rc = profile_step(err);
		if (!rc && cli_interrupted)
			rc = genai_fail(err, GENAI_E_INTERRUPTED,
					"interrupted");
	}
	return rc;
}

// Twice, of which the second time counts; then a few tokens, then those that
// count.
static int32_t run(const struct bench *b, struct cli_model *m,
		   struct genai_error *err, const int64_t *prompt, int64_t n,
		   int64_t depth, json_t *out)
{
	struct genai_session *s = m->session;
	int64_t steps = b->new_tokens < STEPS ? b->new_tokens : STEPS;
	int32_t rc = 0;

	for (int i = 0; !rc && i < 2; i++) {
		rc = genai_session_rewind(s, 0, err);
		if (!rc && depth)
			rc = genai_session_append(s, prompt + n, (size_t)depth,
						  err);
		if (!rc && i) {
			struct genai_ticket t = {.size = sizeof(t)};

			rc = genai_device_drain(p.device, &t, err);
			profile_begin(m->model->step.graph);
		}
		if (!rc)
			rc = genai_session_append(s, prompt, (size_t)n, err);
	}
	if (!rc)
		rc = profile_step(err);
	json_object_set_new(out, "prompt", profile_end());
	if (!rc)
		rc = decode(s, 2, err);
	profile_begin(m->model->step.graph);
	if (!rc)
		rc = decode(s, steps, err);
	json_object_set_new(out, "token", profile_end());
	return rc;
}

int32_t bench_profile(struct bench *b, struct cli_model *m,
		      struct genai_error *err, size_t at, size_t d, json_t *row)
{
	int64_t n = b->prompts[at], depth = b->depths[d];
	int64_t *prompt = malloc((size_t)(n + depth) * sizeof(*prompt));
	json_t *j = json_object();
	int32_t rc =
		prompt && j ? 0 : genai_fail(err, GENAI_E_NOMEM, "no memory");

	if (!rc) {
		bench_prompt(prompt, n + depth, m->info.vocab_size);
		rc = run(b, m, err, prompt, n, depth, j);
	}
	if (!rc) {
		char of[64];

		snprintf(of, sizeof(of), "a prompt of %" PRId64, n);
		profile_print(json_object_get(j, "prompt"), of);
		snprintf(of, sizeof(of), "a token, %" PRId64 " deep",
			 n + depth);
		profile_print(json_object_get(j, "token"), of);
		json_object_set(row, "profile", j);
	}
	json_decref(j);
	free(prompt);
	return rc;
}
