// suite_graphs.c - random programs over two to twelve streams, against a model
// of the contract.
// The model knows, for every run of a unit, the runs that have to be done
// before it begins: those before it on its stream, those before the points that
// its stream waited for, those the host waited for.  A recording's units know
// it of each other, and are after what its stream was after when it was
// launched.  Cells of memory are read and written only where that order allows
// it, so every legal order gives what the program says from top to bottom.
#include "tests/conform/conform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STREAMS 12
#define RUNS 1024
#define CELLS 24 // so many in device memory, and as many pinned
#define POINTS 48
#define RECORDINGS 2
#define REC_UNITS 60
#define LAUNCHES 4 // of a recording, a round
#define ROUNDS 3
#define NOBODY UINT32_MAX

static struct cf_rt r;

struct set { // of runs
	uint64_t w[RUNS / 64];
};

struct unit { // a copy, or a function: then ran counts
	uint32_t stream, number, from, to;
	bool is_copy, naps;
	uint64_t inside; // those of its recording that come before it
	uint32_t runs[LAUNCHES], n_runs;
	atomic_uint ran;
};

struct run {
	struct unit *unit;
	struct set before;
	atomic_uint began, ended;
};

struct cell {
	uint64_t value;
	uint32_t writer; // a run
	struct set readers;
};

struct point {
	struct genai_point p;
	struct set before;
};

struct recorded {
	struct genai_recording *rec;
	struct unit units[REC_UNITS];
	uint32_t origin, n, launched;
};

// A recording while it is open.
struct open {
	struct recorded *rec;
	bool joined[STREAMS];
	uint64_t after[STREAMS];
	struct genai_point points[POINTS];
	uint64_t before[POINTS];
	uint32_t n_points;
	uint32_t writer[2 * CELLS];
	uint64_t readers[2 * CELLS];
};

static const char *schedule;
static struct graphs {
	uint64_t seed, rng;
	struct genai_stream *s[STREAMS];
	uint32_t n_streams, n_runs, n_units, n_points;
	struct genai_mem device, pinned, read;
	struct cell cells[2 * CELLS];
	struct set after[STREAMS];
	struct point points[POINTS];
	struct unit units[RUNS]; // eager ones of a round
	struct run runs[RUNS];
	struct recorded recorded[RECORDINGS];
	struct open *open;
	atomic_uint tick;
	const char *wrong; // said by a unit
} g;

// ---- sets ----

static void put(struct set *s, uint32_t run)
{
	s->w[run / 64] |= UINT64_C(1) << run % 64;
}

static bool has(const struct set *s, uint32_t run)
{
	return run == NOBODY || s->w[run / 64] >> run % 64 & 1;
}

static void join(struct set *s, const struct set *other)
{
	for (uint32_t i = 0; i < RUNS / 64; i++)
		s->w[i] |= other->w[i];
}

static bool within(const struct set *s, const struct set *other)
{
	for (uint32_t i = 0; i < RUNS / 64; i++)
		if (s->w[i] & ~other->w[i])
			return false;
	return true;
}

static uint32_t below(uint32_t n)
{
	return cf_below(&g.rng, n);
}

// ---- units ----

static uint64_t mix(uint64_t value, uint32_t number)
{
	value += number + 1;
	return cf_random(&value);
}

static int32_t execute(void *ctx, void *const *mem, struct genai_error *err)
{
	struct unit *u = ctx;
	uint32_t n = atomic_fetch_add(&u->ran, 1);
	struct timespec nap = {0, 20000};
	struct run *run;

	(void)err;
	if (n >= u->n_runs) {
		g.wrong = "a unit ran more often than it was enqueued";
		return 0;
	}
	run = &g.runs[u->runs[n]];
	atomic_store(&run->began, atomic_fetch_add(&g.tick, 1) + 1);
	if (u->naps)
		nanosleep(&nap, NULL);
	if (u->to != NOBODY && mem)
		*(uint64_t *)mem[1] = mix(*(uint64_t *)mem[0], u->number);
	atomic_store(&run->ended, atomic_fetch_add(&g.tick, 1) + 1);
	return 0;
}

static genai_addr cell_addr(uint32_t cell)
{
	return cell < CELLS ? g.device.range.addr + 64 * cell
			    : g.pinned.range.addr + 64 * (cell - CELLS);
}

// As copies name it.
static uint64_t cell_end(uint32_t cell)
{
	return cell < CELLS ? cell_addr(cell)
			    : (uintptr_t)g.pinned.host + 64 * (cell - CELLS);
}

static void enqueue(struct unit *u)
{
	struct genai_stream *s = g.s[u->stream];
	struct genai_access acc[2];
	struct genai_work w = {sizeof(w), u->number, "unit", execute, u};

	if (u->is_copy) {
		cf_copy(&r, s, cell_end(u->to), cell_end(u->from), 8,
			u->from >= CELLS ? GENAI_COPY_H2D
			: u->to >= CELLS ? GENAI_COPY_D2H
					 : GENAI_COPY_D2D);
	} else if (u->to == NOBODY) {
		CF_OK(r.st->launch_host(r.d, s, &w, NULL, 0, &cf_err));
	} else {
		acc[0] = (struct genai_access){cell_addr(u->from), 8,
					       GENAI_READ, 0};
		acc[1] = (struct genai_access){cell_addr(u->to), 8, GENAI_WRITE,
					       0};
		CF_OK(r.st->launch(r.d, s, &w, acc, 2, &cf_err));
	}
}

// One more run, after before; what it makes of the cells.
static uint32_t add_run(struct unit *u, const struct set *before)
{
	uint32_t n = g.n_runs++;
	struct run *run = &g.runs[n];

	run->unit = u;
	run->before = *before;
	atomic_store(&run->began, 0);
	atomic_store(&run->ended, 0);
	u->runs[u->n_runs++] = n;
	if (u->to == NOBODY)
		return n;
	put(&g.cells[u->from].readers, n);
	g.cells[u->to].value = u->is_copy
				       ? g.cells[u->from].value
				       : mix(g.cells[u->from].value, u->number);
	g.cells[u->to].writer = n;
	memset(&g.cells[u->to].readers, 0, sizeof(struct set));
	return n;
}

static bool may_read(uint32_t cell, uint32_t stream)
{
	const struct open *o = g.open;

	if (o && o->joined[stream])
		return o->writer[cell] == NOBODY ||
		       o->after[stream] >> o->writer[cell] & 1;
	return has(&g.after[stream], g.cells[cell].writer);
}

static bool may_write(uint32_t cell, uint32_t stream)
{
	const struct open *o = g.open;

	if (!may_read(cell, stream))
		return false;
	if (o && o->joined[stream])
		return !(o->readers[cell] & ~o->after[stream]);
	return within(&g.cells[cell].readers, &g.after[stream]);
}

// What the stream may touch now; cells that others touched last are tried more
// often, because then an edge was needed.
static void choose(struct unit *u, uint32_t stream)
{
	uint32_t kind = below(8);

	memset(u, 0, sizeof(*u));
	u->stream = stream;
	u->number = g.n_units++;
	u->to = u->from = NOBODY;
	u->naps = !below(24);
	u->is_copy = kind < 4;
	if (!u->is_copy && (kind < 6 || r.caps.flags & GENAI_STREAM_CAP_NATIVE))
		return;
	for (int i = 0; i < 40; i++) {
		uint32_t from = below(2 * CELLS), to = below(2 * CELLS);

		if (from == to || (from >= CELLS && to >= CELLS) ||
		    !may_read(from, stream) || !may_write(to, stream))
			continue;
		u->from = from;
		u->to = to;
		return;
	}
	u->is_copy = false; // a function that touches nothing
}

static void eager_unit(uint32_t stream)
{
	struct unit *u = &g.units[g.n_runs];
	uint32_t run;

	choose(u, stream);
	run = add_run(u, &g.after[stream]);
	put(&g.after[stream], run);
	enqueue(u);
}

static void recorded_unit(uint32_t stream)
{
	struct open *o = g.open;
	struct recorded *rec = o->rec;
	struct unit *u = &rec->units[rec->n];
	uint64_t bit = UINT64_C(1) << rec->n;

	choose(u, stream);
	u->inside = o->after[stream];
	o->after[stream] |= bit;
	if (u->to != NOBODY) {
		o->readers[u->from] |= bit;
		o->readers[u->to] = 0;
		o->writer[u->to] = rec->n;
	}
	rec->n++;
	enqueue(u);
}

// ---- points ----

static void eager_mark(uint32_t stream)
{
	struct point *p = &g.points[g.n_points++ % POINTS];

	p->p = cf_mark(&r, g.s[stream]);
	p->before = g.after[stream];
}

static uint32_t some_point(uint32_t made)
{
	uint32_t n = made < POINTS ? made : POINTS;

	// one of the latest, or any
	return below(2) ? (made - 1 - below(n < 6 ? n : 6)) % POINTS : below(n);
}

static void eager_wait(uint32_t stream)
{
	const struct point *p = &g.points[some_point(g.n_points)];

	cf_wait(&r, g.s[stream], p->p);
	join(&g.after[stream], &p->before);
}

static void host_wait(void)
{
	const struct point *p = &g.points[some_point(g.n_points)];

	if (below(3))
		CF_OK(r.ba->host_read(r.d, &p->p, 1, UINT64_MAX, &cf_err));
	else if (r.st->poll(r.d, p->p, &cf_err))
		return;
	for (uint32_t i = 0; i < g.n_streams; i++)
		join(&g.after[i], &p->before);
}

static void recorded_mark(uint32_t stream)
{
	struct open *o = g.open;
	uint32_t at = o->n_points++ % POINTS;

	o->points[at] = cf_mark(&r, g.s[stream]);
	o->before[at] = o->after[stream];
}

static void recorded_wait_for(uint32_t stream, uint32_t at)
{
	struct open *o = g.open;

	cf_wait(&r, g.s[stream], o->points[at]);
	o->joined[stream] = true;
	o->after[stream] |= o->before[at];
}

// ---- programs ----

static void eager_step(uint32_t stream)
{
	uint32_t kind = below(10);

	if (kind < 4)
		eager_unit(stream);
	else if (kind < 6 || !g.n_points)
		eager_mark(stream);
	else if (kind < 9)
		eager_wait(stream);
	else if (!below(4) && !g.open)
		host_wait();
}

static void recorded_step(uint32_t stream)
{
	struct open *o = g.open;
	uint32_t kind = below(10);

	if (!o->joined[stream] && below(3))
		eager_step(stream); // beside the recording
	else if (!o->joined[stream] || kind >= 6)
		recorded_wait_for(stream, some_point(o->n_points));
	else if (kind < 4)
		recorded_unit(stream);
	else
		recorded_mark(stream);
}

static void record(struct recorded *rec)
{
	static struct open o;
	uint32_t limit = 8 + below(REC_UNITS - 8);

	memset(&o, 0, sizeof(o));
	memset(o.writer, 0xff, sizeof(o.writer));
	o.rec = rec;
	rec->n = rec->launched = 0;
	rec->origin = below(g.n_streams);
	CF_OK(r.st->capture_begin(r.d, g.s[rec->origin], &cf_err));
	g.open = &o;
	o.joined[rec->origin] = true;
	recorded_mark(rec->origin);
	while (rec->n < limit && g.n_runs < RUNS / 2)
		recorded_step(below(g.n_streams));
	for (uint32_t i = 0; i < g.n_streams; i++) {
		if (!o.joined[i] || i == rec->origin)
			continue;
		recorded_mark(i);
		recorded_wait_for(rec->origin, (o.n_points - 1) % POINTS);
	}
	g.open = NULL;
	CF_OK(r.st->capture_end(r.d, g.s[rec->origin], &rec->rec, &cf_err));
}

// What a replay would touch that its stream is not after: wait for it.
static void launch_needs(const struct recorded *rec, struct set *need)
{
	memset(need, 0, sizeof(*need));
	for (uint32_t i = 0; i < rec->n; i++) {
		const struct unit *u = &rec->units[i];

		if (u->to == NOBODY)
			continue;
		if (g.cells[u->from].writer != NOBODY)
			put(need, g.cells[u->from].writer);
		if (g.cells[u->to].writer != NOBODY)
			put(need, g.cells[u->to].writer);
		join(need, &g.cells[u->to].readers);
	}
}

static void launch(struct recorded *rec)
{
	struct set *after = &g.after[rec->origin], need, begin;
	uint32_t first = g.n_runs;

	launch_needs(rec, &need);
	for (uint32_t i = 0; i < g.n_streams && !within(&need, after); i++) {
		cf_wait(&r, g.s[rec->origin], cf_mark(&r, g.s[i]));
		join(after, &g.after[i]);
	}
	begin = *after;
	for (uint32_t i = 0; i < rec->n; i++) {
		struct set before = begin;

		for (uint32_t k = 0; k < i; k++)
			if (rec->units[i].inside >> k & 1)
				put(&before, first + k);
		put(after, add_run(&rec->units[i], &before));
	}
	rec->launched++;
	CF_OK(r.st->launch_graph(r.d, rec->rec, g.s[rec->origin], &cf_err));
}

static void drop(struct recorded *rec)
{
	struct genai_ticket t = cf_drain(&r);

	if (rec->rec)
		CF_OK(r.st->graph_destroy(r.d, rec->rec, &t, &cf_err));
	rec->rec = NULL;
}

// ---- the outcome ----

static void blame(const char *what, const struct unit *u, const struct unit *v)
{
	ck_abort_msg("%s %u of stream s%u %s %u of stream s%u, which comes "
		     "before it; %u streams, schedule %s, program %llu",
		     u->is_copy ? "copy" : "unit", u->number, u->stream, what,
		     v->number, v->stream, g.n_streams, schedule,
		     (unsigned long long)g.seed);
}

static void check_runs(void)
{
	ck_assert_msg(!g.wrong, "%s; schedule %s, program %llu", g.wrong,
		      schedule, (unsigned long long)g.seed);
	for (uint32_t i = 0; i < g.n_runs; i++) {
		const struct run *run = &g.runs[i];
		const struct unit *u = run->unit;

		if (u->is_copy)
			continue;
		ck_assert_msg(atomic_load(&run->ended),
			      "unit %u of stream s%u never ran; schedule %s, "
			      "program %llu",
			      u->number, u->stream, schedule,
			      (unsigned long long)g.seed);
		for (uint32_t k = 0; k < i; k++)
			if (has(&run->before, k) && !g.runs[k].unit->is_copy &&
			    g.runs[k].ended > run->began)
				blame("began before unit", u, g.runs[k].unit);
	}
}

static void check_cells(void)
{
	const uint64_t *got = g.read.host;

	// on a stream of the program: twelve are what a device has to have
	cf_copy(&r, g.s[0], (uintptr_t)g.read.host, g.device.range.addr,
		64 * CELLS, GENAI_COPY_D2H);
	cf_finish(&r, g.s[0]);
	for (uint32_t i = 0; i < 2 * CELLS; i++) {
		const struct cell *c = &g.cells[i];
		uint64_t have =
			i < CELLS
				? got[8 * i]
				: ((uint64_t *)g.pinned.host)[8 * (i - CELLS)];
		const struct unit *u =
			c->writer == NOBODY ? NULL : g.runs[c->writer].unit;

		ck_assert_msg(
			have == c->value,
			"%s cell %u holds %llu, not %llu, last written by "
			"%s %u of stream s%u; %u streams, schedule %s, "
			"program %llu",
			i < CELLS ? "device" : "pinned", i % CELLS,
			(unsigned long long)have, (unsigned long long)c->value,
			u && u->is_copy ? "copy" : "unit", u ? u->number : 0,
			u ? u->stream : 0, g.n_streams, schedule,
			(unsigned long long)g.seed);
	}
}

// Everything is done: nothing has to be waited for any more.
static void end_round(void)
{
	cf_drain(&r);
	check_runs();
	check_cells();
	g.n_runs = 0;
	memset(g.after, 0, sizeof(g.after));
	for (uint32_t i = 0; i < POINTS; i++)
		memset(&g.points[i].before, 0, sizeof(struct set));
	for (uint32_t i = 0; i < 2 * CELLS; i++) {
		g.cells[i].writer = NOBODY;
		memset(&g.cells[i].readers, 0, sizeof(struct set));
	}
	for (uint32_t i = 0; i < RECORDINGS; i++) {
		g.recorded[i].launched = 0;
		for (uint32_t k = 0; k < REC_UNITS; k++) {
			g.recorded[i].units[k].n_runs = 0;
			atomic_store(&g.recorded[i].units[k].ran, 0);
		}
	}
}

static void play_round(bool record_too)
{
	uint32_t limit = 100 + below(200);

	while (g.n_runs < limit) {
		struct recorded *rec = &g.recorded[below(RECORDINGS)];

		if (!record_too || below(30))
			eager_step(below(g.n_streams));
		else if (!rec->rec)
			record(rec);
		else if (rec->launched < LAUNCHES && g.n_runs < RUNS / 2)
			launch(rec);
	}
	end_round();
}

static void program(uint64_t seed, bool record_too)
{
	char name[16];

	memset(&g, 0, sizeof(g));
	g.seed = g.rng = seed;
	g.n_streams = 2 + below(STREAMS - 1);
	for (uint32_t i = 0; i < g.n_streams; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		g.s[i] = cf_stream(&r, name);
	}
	g.device = cf_alloc(&r, 64 * CELLS);
	g.pinned = cf_pinned(&r, 64 * CELLS);
	g.read = cf_pinned(&r, 64 * CELLS);
	memset(g.pinned.host, 0, 64 * CELLS);
	cf_copy(&r, g.s[0], g.device.range.addr, (uintptr_t)g.pinned.host,
		64 * CELLS, GENAI_COPY_H2D);
	cf_finish(&r, g.s[0]);
	for (uint32_t i = 0; i < 2 * CELLS; i++)
		g.cells[i].writer = NOBODY;
	for (uint32_t i = 0; i < ROUNDS; i++) {
		play_round(record_too);
		if (!below(3))
			drop(&g.recorded[below(RECORDINGS)]);
	}
	for (uint32_t i = 0; i < RECORDINGS; i++)
		drop(&g.recorded[i]);
	cf_free(&r, &g.device);
	cf_free(&r, &g.pinned);
	cf_free(&r, &g.read);
	for (uint32_t i = 0; i < g.n_streams; i++)
		cf_destroy(&r, g.s[i]);
}

static void programs(bool record_too)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++) {
		const char *const *sets = cf_schedule(i);

		cf_open(&r, 0, sets);
		for (uint64_t seed = 1; seed <= 16; seed++) {
			schedule = *sets ? *sets : "of its own";
			program(100 * i + seed, record_too);
		}
		cf_close(&r);
	}
}

static void eager(void)
{
	programs(false);
}

static void recorded(void)
{
	programs(true);
}

// What a recording keeps is told in any number of pieces, and the same again.
static void edges(void)
{
	struct genai_edge all[64], some[64];
	struct genai_recording *rec = NULL;
	struct genai_ticket t;
	struct genai_stream *s, *side;
	uint64_t n = 0, again = 0;
	int32_t rc;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	side = cf_stream(&r, "side");
	memset(&g, 0, sizeof(g));
	CF_OK(r.st->capture_begin(r.d, s, &cf_err));
	cf_wait(&r, side, cf_mark(&r, s));
	cf_call(&r, side, "one", execute, &g.units[0]);
	cf_wait(&r, s, cf_mark(&r, side));
	cf_call(&r, s, "two", execute, &g.units[1]);
	CF_OK(r.st->capture_end(r.d, s, &rec, &cf_err));
	rc = r.st->graph_edges(r.d, rec, NULL, 0, &n, &cf_err);
	for (uint64_t cap = 0; !rc && cap <= n && n <= 64; cap++) {
		memset(some, 0xee, sizeof(some));
		CF_OK(r.st->graph_edges(r.d, rec, some, cap, &again, &cf_err));
		ck_assert_msg(again == n, "%llu edges, then %llu",
			      (unsigned long long)n, (unsigned long long)again);
		ck_assert_msg(cap == 64 || some[cap].before ==
						   UINT64_C(0xeeeeeeeeeeeeeeee),
			      "more edges than asked for were written");
		ck_assert_msg(!cap || cap == 1 ||
				      !memcmp(all, some, (cap - 1) * 16),
			      "the same edges are not told the second time");
		memcpy(all, some, sizeof(all));
	}
	t = cf_drain(&r);
	CF_OK(r.st->graph_destroy(r.d, rec, &t, &cf_err));
	cf_destroy(&r, s);
	cf_destroy(&r, side);
	cf_close(&r);
	if (rc)
		cf_skip("does not tell what a recording keeps");
	ck_assert_msg(n >= 3 && n <= 64,
		      "%llu edges: at least from the start to two units, one "
		      "after the other, and the end",
		      (unsigned long long)n);
}

static const struct cf_test tests[] = {
	{"stream/graphs", "GM-29 GM-30", GENAI_IFACE_STREAM, 0, eager},
	{"stream/graphs-recorded", "GM-40 GM-41 GM-49", GENAI_IFACE_STREAM,
	 CF_RECORD, recorded},
	{"stream/graph-edges", "GM-49", GENAI_IFACE_STREAM, CF_RECORD, edges},
};

const struct cf_suite cf_suite_graphs = {tests,
					 sizeof(tests) / sizeof(tests[0])};
