// suite_experts.c - experts of mixtures: does every step find, by one table,
// the bytes of each of them, wherever it lies, and are uses counted?
#include "tests/conform/conform.h"

#include <stdlib.h>
#include <string.h>

#define BANKS 2
#define PARTS 2 // visits of a bank
#define EXPERTS 12
#define MOST 64

// Experts of a layer: each has its parts one behind the other.
struct bank {
	uint32_t n, visit;
	uint64_t bytes[PARTS], at[PARTS]; // at: in the page
	unsigned char *source;
};

// A unit of a step, as an executor's: it looks at all experts and uses some.
struct use {
	const struct bank *bank;
	uint32_t part, number;
	uint32_t *step; // of those before, to choose by
	bool counts;
	struct genai_experts x;
	genai_addr table[EXPERTS]; // as the first unit of the step found it
	uint64_t used[EXPERTS];
};

static struct rig {
	struct cf_rt r;
	const struct genai_pager_ops *ops;
	struct genai_pager *p;
	struct genai_stream *s;
	struct bank bank[BANKS];
	struct genai_sweep_visit sweep[BANKS * PARTS];
	struct use use[BANKS * PARTS * 2];
	uint32_t step[BANKS * PARTS * 2];
	uint64_t page_bytes[BANKS], total;
} g;

static uint64_t expert_bytes(const struct bank *b)
{
	return b->bytes[0] + b->bytes[1];
}

// ---- what a unit sees ----

static const unsigned char *find(const struct use *u, void *const *mem,
				 genai_addr addr, uint64_t bytes)
{
	const struct genai_range *r[] = {&u->x.device, &u->x.host};

	for (uint32_t i = 0; i < 2; i++)
		if (addr >= r[i]->addr && bytes <= r[i]->bytes &&
		    addr - r[i]->addr <= r[i]->bytes - bytes)
			return (unsigned char *)mem[i] + (addr - r[i]->addr);
	return NULL;
}

static int32_t look(void *ctx, void *const *mem, struct genai_error *err)
{
	struct use *u = ctx;
	const struct bank *b = u->bank;
	const genai_addr *table = mem[2];
	const uint64_t bytes = b->bytes[u->part];
	const uint32_t step = (*u->step)++;

	if (!(u->number & 1))
		memcpy(u->table, table, b->n * sizeof(*table));
	else if (memcmp((u - 1)->table, table, b->n * sizeof(*table)))
		return genai_fail(err, GENAI_E_FORMAT,
				  "the table changed within step %u", step);
	for (uint32_t e = 0; e < b->n; e++) {
		const unsigned char *at = find(u, mem, table[e], bytes);
		const unsigned char *want =
			b->source + b->bytes[0] * b->n * u->part + e * bytes;

		if (!at || memcmp(at, want, bytes))
			return genai_fail(err, GENAI_E_FORMAT,
					  "step %u, part %u of expert %u: %s",
					  step, u->part, e,
					  at ? "wrong bytes" : "nowhere");
	}
	// some often, all now and then
	for (uint32_t e = 0; u->counts && e < b->n; e++) {
		const bool uses = e % 3 == 2 || (step + e) % 7 == 0;

		((uint32_t *)mem[3])[e] += uses;
		u->used[e] += uses;
	}
	return 0;
}

// ---- the rig ----

static void add_bank(uint32_t i, uint32_t n, uint64_t a, uint64_t b)
{
	struct bank *k = &g.bank[i];

	*k = (struct bank){n, i * PARTS, {a, b}, {0, (a + 15) / 16 * 16}, NULL};
	k->source = malloc(n * (a + b));
	ck_assert_ptr_nonnull(k->source);
	cf_pattern(k->source, n * (a + b), 50 + i);
	g.page_bytes[i] = k->at[1] + b;
	g.total += n * ((g.page_bytes[i] + 255) / 256 * 256);
	for (uint32_t e = 0; e < n; e++) {
		struct genai_extent x[PARTS];

		for (uint32_t p = 0; p < PARTS; p++)
			x[p] = (struct genai_extent){
				.size = sizeof(x[p]),
				.src = k->source + a * n * p + e * k->bytes[p],
				.src_bytes = k->bytes[p],
				.place = k->at[p],
				.bytes = k->bytes[p]};
		CF_OK(g.ops->add(g.p, g.page_bytes[i], GENAI_PAGE_NO_STREAM, x,
				 PARTS, &cf_err));
	}
	for (uint32_t p = 0; p < PARTS; p++)
		g.sweep[k->visit + p] =
			(struct genai_sweep_visit){.size = sizeof(g.sweep[0]),
						   .page = i ? g.bank[0].n : 0,
						   .offset = k->at[p],
						   .bytes = k->bytes[p],
						   .flags = GENAI_VISIT_EXPERT,
						   .reserved = n};
}

static void open_rig(const char *const *sets)
{
	memset(&g, 0, sizeof(g));
	cf_open(&g.r, CF_WITH_PAGER, sets);
	g.ops = &g.r.rt->pager_ops;
	if (!(g.r.rt->pager_caps.flags & GENAI_PAGER_CAP_EXPERT)) {
		cf_close(&g.r);
		cf_skip("the pager does not claim EXPERT");
	}
	ck_assert_msg(g.ops->experts, "EXPERT is claimed without its slot");
	g.s = cf_stream(&g.r, "steps");
	CF_OK(g.ops->open(genai_module_self(g.r.rt->pager.module),
			  &g.r.d->stream, &g.r.d->barrier, &g.p, &cf_err));
	add_bank(0, EXPERTS, 4000, 496);
	add_bank(1, 5, 1008, 2320);
}

static void close_rig(void)
{
	struct genai_ticket t = cf_drain(&g.r);

	CF_OK(g.ops->close(g.p, &t, &cf_err));
	cf_destroy(&g.r, g.s);
	cf_close(&g.r);
	for (uint32_t i = 0; i < BANKS; i++)
		free(g.bank[i].source);
}

static int32_t seal(uint64_t budget)
{
	struct genai_pager_report report = {.size = sizeof(report)};
	int32_t rc = g.ops->seal(g.p, g.sweep, BANKS * PARTS, budget, &report,
				 &cf_err);

	if (!rc)
		ck_assert_msg(report.pinned_bytes + report.ring_bytes <= budget,
			      "%lu bytes are held of %lu",
			      (unsigned long)report.pinned_bytes,
			      (unsigned long)budget);
	return rc;
}

// Two units for each visit; of a bank one of them counts.
static void ask(void)
{
	for (uint32_t i = 0; i < BANKS * PARTS * 2; i++) {
		struct use *u = &g.use[i];
		uint32_t kind = 0;

		*u = (struct use){.bank = &g.bank[i / PARTS / 2],
				  .part = i / 2 % PARTS,
				  .number = i,
				  .step = &g.step[i],
				  .counts = i % (PARTS * 2) == 0,
				  .x = {.size = sizeof(u->x)}};
		CF_OK(g.ops->resident(g.p, i / 2, &kind, &cf_err));
		ck_assert_uint_eq(kind, GENAI_PLACE_TABLE);
		CF_OK(g.ops->experts(g.p, i / 2, &u->x, &cf_err));
		ck_assert_uint_eq(u->x.n, u->bank->n);
	}
}

static void launch(struct use *u)
{
	struct genai_work w = {sizeof(w), u->number, "look", look, u};
	const uint32_t some = GENAI_READ | GENAI_SPARSE;
	const uint64_t n = u->bank->n;
	struct genai_access a[] = {
		{u->x.device.addr, u->x.device.bytes, some, 0},
		{u->x.host.addr, u->x.host.bytes, some, 0},
		{u->x.table, n * sizeof(genai_addr), GENAI_READ, 0},
		{u->x.uses, n * sizeof(uint32_t), GENAI_READ | GENAI_WRITE, 0},
	};

	CF_OK(g.r.st->launch(g.r.d, g.s, &w, a, 4, &cf_err));
}

// All visits are held until the end, where each table is looked at again.
static void step(int32_t recording)
{
	struct genai_point tail = {0};
	static uint32_t number;

	CF_OK(g.ops->step_begin(g.p, g.s, recording, &cf_err));
	for (uint32_t v = 0; v < BANKS * PARTS; v++) {
		struct genai_place place = {.size = sizeof(place)};
		struct genai_point ready = {0};

		CF_OK(g.ops->acquire(g.p, v, g.s, &place, &ready, &cf_err));
		ck_assert_uint_eq(place.kind, GENAI_PLACE_TABLE);
		ck_assert_msg(place.addr == g.use[v * 2].x.table,
			      "visit %u: the table moved", v);
		cf_wait(&g.r, g.s, ready);
		launch(&g.use[v * 2]);
		if (!recording && !v && number++ % 4 == 0)
			cf_finish(&g.r, g.s);
	}
	for (uint32_t v = 0; v < BANKS * PARTS; v++) {
		launch(&g.use[v * 2 + 1]);
		CF_OK(g.ops->release(g.p, v, cf_mark(&g.r, g.s), &cf_err));
	}
	CF_OK(g.ops->step_end(g.p, g.s, &tail, &cf_err));
	if (recording)
		cf_wait(&g.r, g.s, tail);
}

// ---- tests ----

static uint64_t all_uses(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < BANKS * PARTS * 2; i++)
		for (uint32_t e = 0; e < g.use[i].bank->n; e++)
			n += g.use[i].used[e];
	return n;
}

static struct genai_pager_stats stats_now(void)
{
	struct genai_pager_stats st = {.size = sizeof(st)};

	CF_OK(g.ops->stats(g.p, &st, &cf_err));
	return st;
}

// Waited for after each step, or only at the end; counts are at most two steps
// old then.
static void many_steps(const char *const *sets, uint32_t part, bool waits)
{
	struct genai_pager_stats st;
	uint64_t before = 0, n;

	open_rig(sets);
	CF_OK(seal(g.total * part / 100));
	ask();
	for (uint32_t i = 0; i < MOST; i++) {
		if (i + 3 == MOST) {
			cf_finish(&g.r, g.s);
			before = all_uses();
		}
		step(0);
		if (waits)
			cf_finish(&g.r, g.s);
	}
	cf_finish(&g.r, g.s);
	st = stats_now();
	n = st.expert_hits + st.expert_misses;
	ck_assert_msg(n <= all_uses(), "%lu uses are counted of %lu",
		      (unsigned long)n, (unsigned long)all_uses());
	ck_assert_msg(!part || !waits || n >= before,
		      "%lu uses are counted, there were %lu three steps ago",
		      (unsigned long)n, (unsigned long)before);
	ck_assert_msg(st.expert_misses || !st.expert_miss_bytes,
		      "bytes are missed and no expert");
	ck_assert_msg(st.expert_least_bytes <=
			      n * expert_bytes(&g.bank[0]) + 4096,
		      "more is missed than was used");
	close_rig();
}

static void tables(void)
{
	static const uint32_t parts[] = {0, 15, 40, 60, 85, 100};
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < 6; k++)
			many_steps(cf_schedule(i), parts[k], (i + k) % 2);
}

static void uses(void)
{
	for (uint32_t part = 10; part < 100; part += 30)
		many_steps(NULL, part, true);
}

// A replay finds the table as replay_begin left it, whatever it was when the
// step was recorded.
static void replays(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++) {
		struct genai_recording *rec = NULL;
		struct genai_ticket t;

		open_rig(cf_schedule(i));
		CF_OK(seal(g.total / 2));
		ask();
		step(0);
		CF_OK(g.ops->replay_begin(g.p, g.s, &cf_err));
		CF_OK(g.r.st->capture_begin(g.r.d, g.s, &cf_err));
		step(1);
		CF_OK(g.r.st->capture_end(g.r.d, g.s, &rec, &cf_err));
		for (uint32_t k = 0; k < MOST; k++) {
			CF_OK(g.ops->replay_begin(g.p, g.s, &cf_err));
			CF_OK(g.r.st->launch_graph(g.r.d, rec, g.s, &cf_err));
			if (k % 5 == 4)
				step(0);
			if (k % 3)
				cf_finish(&g.r, g.s);
		}
		cf_finish(&g.r, g.s);
		t = cf_drain(&g.r);
		CF_OK(g.r.st->graph_destroy(g.r.d, rec, &t, &cf_err));
		close_rig();
	}
}

static int32_t break_it(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)ctx;
	(void)mem;
	return genai_fail(err, GENAI_E_IO, "broken on purpose");
}

// What the stream skipped after an error is made up for.
static void mends(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t k = 0; k < n; k++) {
		open_rig(cf_schedule(k));
		CF_OK(seal(g.total / 2));
		ask();
		for (uint32_t i = 0; i < MOST; i++) {
			struct genai_ticket t;

			step(0);
			cf_finish(&g.r, g.s);
			if (i % 3)
				continue;
			cf_call(&g.r, g.s, "breaks", break_it, NULL);
			CF_OK(g.ops->step_begin(g.p, g.s, 0, &cf_err));
			t = cf_drain(&g.r);
			CF_OK(g.r.st->reset(g.r.d, &t, &cf_err));
			CF_OK(g.ops->reset(g.p, &t, &cf_err));
		}
		close_rig();
	}
}

static void refuses(void)
{
	struct genai_sweep_visit good[BANKS * PARTS];
	struct genai_experts x = {.size = sizeof(x)};

	open_rig(NULL);
	memcpy(good, g.sweep, sizeof(good));
	CF_FAILS(GENAI_E_STATE, g.ops->experts(g.p, 0, &x, &cf_err));
	for (uint32_t i = 0; i < 6; i++) {
		struct genai_sweep_visit *v = &g.sweep[2];

		memcpy(g.sweep, good, sizeof(good));
		switch (i) {
		case 0: // none
			v->reserved = 0;
			break;
		case 1: // more than there are pages
			v->reserved = 6;
			break;
		case 2: // of other sizes
			v->page = EXPERTS - 1;
			break;
		case 3: // beyond the page
			v->offset = g.page_bytes[1];
			break;
		case 4: // of other visits, too
			v->page = 0;
			break;
		default:
			v->flags = 0;
			v->page = 0;
		}
		CF_FAILS(GENAI_E_INVAL, seal(g.total));
	}
	memcpy(g.sweep, good, sizeof(good));
	CF_OK(seal(g.total));
	CF_FAILS(GENAI_E_INVAL,
		 g.ops->experts(g.p, BANKS * PARTS, &x, &cf_err));
	close_rig();
}

#define P GENAI_IFACE_PAGER
static const struct cf_test tests[] = {
	{"pager/experts", "GM-170", P, CF_UNITS, tables},
	{"pager/experts-replayed", "GM-170", P,
	 CF_UNITS | CF_STABLE | CF_RECORD, replays},
	{"pager/experts-mend", "GM-88 GM-170", P, CF_UNITS, mends},
	{"pager/experts-used", "GM-171", P, CF_UNITS, uses},
	{"pager/experts-refused", "GM-172", P, 0, refuses},
};
const struct cf_suite cf_suite_experts = {tests,
					  sizeof(tests) / sizeof(tests[0])};
