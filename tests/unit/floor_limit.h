/* floor_limit.h - what no schedule on the simulated clock can beat, for tests:
 * the units of work of a step as they are launched, and the least time that
 * they take within a budget. */
#ifndef GENAI_TESTS_FLOOR_LIMIT_H
#define GENAI_TESTS_FLOOR_LIMIT_H

#include <math.h>

#include "core/model/model.h"
#include "tests/unit/sim_run.h"

/* Of a device.  balance: launches make the resident step this many times what
 * all weights take over the link. */
struct rates {
	const char *name;
	double link, memory, latency, launch, balance;
	double in_place; /* of the link's rate; 0: all of it */
};

/* Units of work of a step: what they take beside their weights, and those. */
#define MAX_UNITS 8192
static struct {
	uint64_t other[MAX_UNITS], weights[MAX_UNITS];
	uint32_t n;
	double own[MAX_UNITS][3], best[MAX_UNITS + 1][3];
} units;

static struct {
	struct sim_run *r;
	int32_t (*launch)(void *self, struct genai_stream *stream,
			  const struct genai_work *work,
			  const struct genai_access *accesses, uint32_t n,
			  struct genai_error *err);
	uint32_t at; /* next entry of the sweep */
} tap;

/* Bytes of stored tensors that the next unit of a node reads: one tile, or
 * all. */
static inline uint64_t weights_of(uint32_t node)
{
	const struct genai_paging *p = &tap.r->model->paging;
	const struct genai_visit *v = NULL;
	const struct genai_sweep_page *first = NULL;
	uint32_t n;
	uint64_t bytes = 0;

	tap.r->rt->exec.plan_visits(tap.r->model->plan, &v, &n, NULL);
	for (; tap.at < p->n_pages; tap.at++) {
		const struct genai_sweep_page *g = &p->pages[tap.at];
		const struct genai_visit *x = &v[g->visit];

		if (x->first_node != node)
			break;
		if (first && x->flags & GENAI_WEIGHT_ROWS &&
		    v[first->visit].flags & GENAI_WEIGHT_ROWS &&
		    g->row_begin != first->row_begin)
			break;
		first = g;
		if (!(x->flags & GENAI_WEIGHT_GATHER))
			bytes += x->device_bytes / x->rows *
				 (g->row_end - g->row_begin);
	}
	return bytes;
}

static inline int32_t note(void *self, struct genai_stream *stream,
			   const struct genai_work *work,
			   const struct genai_access *a, uint32_t n,
			   struct genai_error *err)
{
	uint64_t bytes = 0, weights = weights_of(work->node);

	for (uint32_t i = 0; i < n; i++)
		if (!(a[i].flags & GENAI_SPARSE))
			bytes += a[i].bytes;
	if (units.n == MAX_UNITS)
		abort();
	units.weights[units.n] = weights;
	units.other[units.n++] = bytes - weights;
	return tap.launch(self, stream, work, a, n, err);
}

/* How the last unit of a stretch reads its weights: from the device, held while
 * it runs; the same in pieces, each a unit; or where they lie. */
enum { WHOLE, PIECES, IN_PLACE, N_WAYS };

static inline double bytes_ns(double bytes, double rate)
{
	return rate > 0 ? bytes / rate * 1e9 : 0;
}

/* Of memory read where it lies. */
static inline double in_place_rate(const struct rates *c)
{
	return c->link * (c->in_place ? c->in_place : 1);
}

/* What unit j takes by itself; infinite if the budget cannot hold it. */
static inline double unit_ns(const struct rates *c, uint32_t j, int way,
			     double budget)
{
	double w = (double)units.weights[j];
	double t = c->launch + bytes_ns((double)units.other[j], c->memory);

	if (way == IN_PLACE)
		return t + bytes_ns(w, in_place_rate(c));
	t += bytes_ns(w, c->memory);
	if (way == WHOLE)
		return w > budget ? INFINITY : t;
	if (budget < 1)
		return INFINITY;
	return t + (w > 2 * budget ? ceil(w / budget) - 1 : 1) * c->launch;
}

/* A stretch whose units take base if all of their weights are on the device,
 * and into which come bytes: each copy brings at most the budget, and takes its
 * latency; or they are read where they lie, and units take longer by that. */
static inline double stretch_ns(const struct rates *c, double base,
				double bytes, double budget, double later)
{
	double serial = 1e9 / in_place_rate(c) - 1e9 / c->memory;
	double late = c->latency / fmax(budget, 1);
	double link = bytes_ns(bytes, c->link) + bytes * late + later;

	if (link <= base || bytes <= 0)
		return base;
	if (serial <= 0) /* in place costs nothing more */
		return fmax(base, bytes_ns(bytes, c->link) + later);
	return base + fmin((link - base) / (serial + late), bytes) * serial;
}

/* The first j units, the last of them that way. */
static inline double stretches(const struct rates *c, uint32_t j, int way,
			       double budget)
{
	double inner = 0, bytes = 0, there = 0, most = 0;
	double own = units.own[j - 1][way];
	double later = way == IN_PLACE ? c->launch : own;

	for (uint32_t i = j; i-- > 0;) {
		double held = i ? (double)units.weights[i - 1] : 0;
		double least = INFINITY, w = (double)units.weights[i];

		if (i < j - 1) {
			double dev =
				fmin(units.own[i][WHOLE], units.own[i][PIECES]);

			inner += fmin(dev, units.own[i][IN_PLACE]);
			there += units.own[i][IN_PLACE] < dev ? w : 0;
		} else {
			there = way == IN_PLACE ? w : 0;
		}
		bytes += w;
		for (int f = 0; f < N_WAYS; f++) {
			double come = bytes - budget + (f == WHOLE ? held : 0);
			double t =
				stretch_ns(c, inner + own, come - there, budget,
					   later + bytes_ns(there, c->link));

			least = fmin(least, units.best[i][f] + t);
		}
		most = fmax(most, least);
	}
	return most;
}

/* No schedule in a budget of B bytes takes less.  Of the bytes that a stretch
 * of the step reads, at most B were on the device when it began, less what the
 * unit before it held; and its last unit begins after the rest has come.  The
 * best cut into stretches, whatever way each unit goes. */
static inline double limit(const struct rates *c, double budget)
{
	double best = INFINITY;

	for (uint32_t j = 0; j < units.n; j++)
		for (int s = 0; s < N_WAYS; s++)
			units.own[j][s] = unit_ns(c, j, s, budget);
	for (uint32_t j = 1; j <= units.n; j++)
		for (int s = 0; s < N_WAYS; s++)
			units.best[j][s] = stretches(c, j, s, budget);
	for (int s = 0; s < N_WAYS; s++)
		best = fmin(best, units.best[units.n][s]);
	return best;
}

/* Note the units of the steps from now on, until unnote. */
static inline void note_units(struct sim_run *r)
{
	memset(&units, 0, sizeof(units));
	tap.r = r;
	tap.at = 0;
	tap.launch = r->rt->device.raw.launch;
	r->rt->device.raw.launch = note;
}

static inline void unnote(struct sim_run *r)
{
	r->rt->device.raw.launch = tap.launch;
}

#endif
