// order_kept.c - does a recording keep what its waits asked for?
// The check has written down the calls; the device tells the edges that it has
// made of them.  For every unit both say how far each branch has come when it
// begins; the device may say more, never less.
#include "core/order/order_impl.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

#define BRANCHES 16

// Units of each branch that are done, and the start of the recording.
struct reach {
	uint32_t of[BRANCHES];
	bool started;
};

struct kept {
	uint32_t n_units;
	struct reach *asked;	// before each unit, and before the end
	uint32_t *branch, *nth; // of each unit
	const char **what;
	struct genai_edge *edges; // sorted by where they come from
	uint64_t n_edges, n_nodes;
	struct reach *have; // by node; the end is the last
	uint64_t *missing;  // edges into it that were not followed yet
	uint64_t *ready;
};

static void join(struct reach *a, const struct reach *b)
{
	for (uint32_t i = 0; i < BRANCHES; i++)
		if (a->of[i] < b->of[i])
			a->of[i] = b->of[i];
	a->started |= b->started;
}

// What the calls asked for.
static int32_t ask(const struct order_recording *rec, struct kept *k)
{
	struct reach at[BRANCHES] = {0}, *marks;
	uint32_t unit = 0;

	marks = calloc(rec->n_marks + 1, sizeof(*marks));
	if (!marks)
		return GENAI_E_NOMEM;
	at[0].started = true;
	for (uint32_t i = 0; i < rec->n_ops; i++) {
		const struct order_op *op = &rec->ops[i];

		if (op->kind == ORDER_MARK) {
			marks[op->mark] = at[op->branch];
		} else if (op->kind == ORDER_WAIT) {
			join(&at[op->branch], &marks[op->mark]);
		} else {
			k->asked[unit] = at[op->branch];
			k->branch[unit] = op->branch;
			k->nth[unit] = ++at[op->branch].of[op->branch];
			k->what[unit++] = op->what;
		}
	}
	k->asked[unit] = at[0];
	free(marks);
	return 0;
}

static int by_before(const void *a, const void *b)
{
	const struct genai_edge *x = a, *y = b;

	return x->before < y->before ? -1 : x->before > y->before;
}

static int32_t get_edges(struct genai_order *o, struct order_recording *rec,
			 struct kept *k, struct genai_error *err)
{
	uint64_t n = 0;
	int32_t rc =
		o->raw.graph_edges(o->raw_self, rec->raw, NULL, 0, &n, err);

	if (rc)
		return rc;
	if (n > UINT32_MAX)
		return genai_fail(err, GENAI_E_MODULE,
				  "graph_edges: more than 32 bits can count");
	k->edges = calloc(n + 1, sizeof(*k->edges));
	if (!k->edges)
		return genai_fail(err, GENAI_E_NOMEM,
				  "no memory for the order check");
	rc = o->raw.graph_edges(o->raw_self, rec->raw, k->edges, n, &k->n_edges,
				err);
	if (!rc && k->n_edges != n)
		rc = genai_fail(
			err, GENAI_E_MODULE,
			"graph_edges gives other edges the second time");
	return rc;
}

// The end gets the last number, so that nodes are an array.
static int32_t number_nodes(struct kept *k, struct genai_error *err)
{
	k->n_nodes = k->n_units + UINT64_C(2);
	for (uint64_t i = 0; i < k->n_edges; i++) {
		const struct genai_edge *e = &k->edges[i];

		if (e->before != GENAI_EDGE_END && e->before + 2 > k->n_nodes)
			k->n_nodes = e->before + 2;
		if (e->after != GENAI_EDGE_END && e->after + 2 > k->n_nodes)
			k->n_nodes = e->after + 2;
	}
	if (k->n_nodes > k->n_units + 2 * k->n_edges + 2)
		return genai_fail(err, GENAI_E_MODULE,
				  "graph_edges: the module's own numbers are "
				  "not those after the units'");
	for (uint64_t i = 0; i < k->n_edges; i++) {
		struct genai_edge *e = &k->edges[i];

		if (e->after == GENAI_EDGE_END)
			e->after = k->n_nodes - 1;
		if (e->before == GENAI_EDGE_END || e->after == GENAI_EDGE_START)
			return genai_fail(err, GENAI_E_MODULE,
					  "graph_edges: an edge from the end, "
					  "or to the start");
	}
	qsort(k->edges, k->n_edges, sizeof(*k->edges), by_before);
	return 0;
}

static uint64_t first_edge(const struct kept *k, uint64_t node)
{
	uint64_t lo = 0, hi = k->n_edges;

	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;

		if (k->edges[mid].before < node)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

// A node is done: what follows knows it, and what it knew.
static void follow(struct kept *k, uint64_t node, uint64_t *n_ready)
{
	struct reach r = k->have[node];

	if (node >= 1 && node <= k->n_units)
		r.of[k->branch[node - 1]] = k->nth[node - 1];
	r.started |= node == GENAI_EDGE_START;
	for (uint64_t i = first_edge(k, node);
	     i < k->n_edges && k->edges[i].before == node; i++) {
		uint64_t to = k->edges[i].after;

		join(&k->have[to], &r);
		if (!--k->missing[to])
			k->ready[(*n_ready)++] = to;
	}
}

static int32_t walk(struct kept *k, struct genai_error *err)
{
	uint64_t n_ready = 0;

	k->have = calloc(k->n_nodes, sizeof(*k->have));
	k->missing = calloc(k->n_nodes, sizeof(*k->missing));
	k->ready = calloc(k->n_nodes, sizeof(*k->ready));
	if (!k->have || !k->missing || !k->ready)
		return genai_fail(err, GENAI_E_NOMEM,
				  "no memory for the order check");
	for (uint64_t i = 0; i < k->n_edges; i++)
		k->missing[k->edges[i].after]++;
	for (uint64_t i = 0; i < k->n_nodes; i++)
		if (!k->missing[i])
			k->ready[n_ready++] = i;
	for (uint64_t i = 0; i < n_ready; i++)
		follow(k, k->ready[i], &n_ready);
	if (n_ready < k->n_nodes)
		return genai_fail(err, GENAI_E_MODULE,
				  "graph_edges: some operations wait for each "
				  "other");
	return 0;
}

// The unit that is the nth of its branch.
static const char *name_of(const struct kept *k, uint32_t branch, uint32_t nth)
{
	uint32_t i = 0;

	while (i + 1 < k->n_units &&
	       (k->branch[i] != branch || k->nth[i] != nth))
		i++;
	return k->what[i];
}

static int32_t compare(const struct order_recording *rec, const struct kept *k,
		       uint32_t unit, struct genai_error *err)
{
	bool end = unit == k->n_units;
	const struct reach *want = &k->asked[unit];
	const struct reach *have = &k->have[end ? k->n_nodes - 1 : unit + 1];
	const char *what = end ? "its end" : k->what[unit];
	const char *on = rec->branches[end ? 0 : k->branch[unit]].name;

	for (uint32_t i = 0; i < rec->n_branches; i++)
		if (have->of[i] < want->of[i])
			return genai_fail(
				err, GENAI_E_ORDER,
				"the recording of stream '%.20s' does not keep "
				"a wait: %.60s, unit %u of stream '%.20s', "
				"comes before %.60s, unit %u of stream "
				"'%.20s', and the device does not know it",
				rec->branches[0].name,
				name_of(k, i, want->of[i]), want->of[i],
				rec->branches[i].name, what,
				end ? 0 : k->nth[unit], on);
	if (want->started && !have->started)
		return genai_fail(err, GENAI_E_ORDER,
				  "the recording of stream '%.20s' does not "
				  "keep a wait: %.60s on stream '%.20s' comes "
				  "after its start, and the device does not "
				  "know it",
				  rec->branches[0].name, what, on);
	return 0;
}

int32_t order_kept(struct genai_order *o, struct order_recording *rec,
		   struct genai_error *err)
{
	struct kept k = {0};
	int32_t rc = 0;

	if (!o->raw.graph_edges)
		return 0;
	for (uint32_t i = 0; i < rec->n_ops; i++)
		k.n_units += rec->ops[i].kind == ORDER_UNIT;
	k.asked = calloc(k.n_units + UINT64_C(1), sizeof(*k.asked));
	k.branch = calloc(k.n_units + UINT64_C(1), sizeof(*k.branch));
	k.nth = calloc(k.n_units + UINT64_C(1), sizeof(*k.nth));
	k.what = calloc(k.n_units + UINT64_C(1), sizeof(*k.what));
	if (!k.asked || !k.branch || !k.nth || !k.what || ask(rec, &k))
		rc = genai_fail(err, GENAI_E_NOMEM,
				"no memory for the order check");
	if (!rc)
		rc = get_edges(o, rec, &k, err);
	if (!rc)
		rc = number_nodes(&k, err);
	if (!rc)
		rc = walk(&k, err);
	for (uint32_t i = 0; !rc && i <= k.n_units; i++)
		rc = compare(rec, &k, i, err);
	if (rc == GENAI_E_NOSYS) // it cannot tell
		rc = 0;
	free(k.asked);
	free(k.branch);
	free(k.nth);
	free((void *)k.what);
	free(k.edges);
	free(k.have);
	free(k.missing);
	free(k.ready);
	return rc;
}
