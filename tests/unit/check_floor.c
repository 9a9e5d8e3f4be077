// check_floor.c - what the pagers reach on the simulated clock, everywhere.
//
//     check_floor                     the test
//     check_floor [--full] [--verbose] all|MODEL [RATES]
//
// The second: for every model, table of rates, size of page and budget, the
// times of a decode step with pager_async and pager_sync beside what they
// should be at most; --full: eagerly too.  Some minutes.
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/float_model.h"
#include "tests/unit/floor_limit.h"
#include "tests/unit/harness.h"
#include "tests/unit/model_read.h"
#include "tests/unit/sim_run.h"

// ---- models ----

struct subject {
	const char *name, *arch; // arch NULL: a folder of the test data
	uint32_t layers, bits, context, page[6];
};

#define SMALL                                                                  \
	{                                                                      \
		1024, 2048, 4096, 8192, 16384, 65536                           \
	}
static const struct subject subjects[] = {
	{"qwen3-cpu-int4", NULL, 0, 0, 40, SMALL},
	{"llama-cpu-int4-asym", NULL, 0, 0, 40, SMALL},
	{"phi3-cpu-int4", NULL, 0, 0, 40, SMALL},
	{"qwen2-cpu-int8", NULL, 0, 0, 40, SMALL},
	{"llama-cpu-fp32", NULL, 0, 0, 40, SMALL},
	{"llama-cuda-fp16", NULL, 0, 0, 40, SMALL},
	{"tiny-qwen3-12", "tiny-qwen3", 12, 4, 40, SMALL},
	{"tiny-qwen3-12-long", "tiny-qwen3", 12, 4, 512, SMALL},
	{"tiny-qwen2-12", "tiny-qwen2", 12, 8, 40, SMALL},
	{"tiny-llama-2", "tiny-llama", 2, 4, 40, SMALL},
	{"tiny-llama-1", "tiny-llama", 1, 8, 512, SMALL},
	{"float32-12", "", 12, 32, 40, SMALL},
	{"float16-12", "", 12, 16, 40, SMALL},
	{"smollm2-4",
	 "SmolLM2-135M",
	 4,
	 4,
	 64,
	 {4096, 16384, 65536, 262144, 1 << 20, 4 << 20}},
};
#define N_SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))

static char folder[64], path[512];

static void die(const char *why)
{
	fprintf(stderr, "check_floor: %s: %s\n", path, why);
	exit(2);
}

static void make(const struct subject *s)
{
	struct genai_synth_options o = {.seed = 5,
					.bits = s->bits,
					.layers = s->layers,
					.overwrite = true};
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc = 0;

	if (!s->arch) {
		snprintf(path, sizeof(path), "%s%s", SIM_MODELS, s->name);
		return;
	}
	snprintf(path, sizeof(path), "%s/%s", folder, s->name);
	if (*s->arch)
		rc = genai_synth(s->arch, path, &o, &err);
	else
		rc = float_model(path, s->layers,
				 s->bits == 16 ? GENAI_DT_F16 : GENAI_DT_F32,
				 &err);
	if (rc)
		die(err.text);
}

// ---- rates ----

static const struct rates rates[] = {
	{"h200", 55e6, 4600e6, 2500, 20, 0, 0},
	{"h200-tiny", 55e9, 4600e9, 2600, 3000, 0, 0},
	{"h200-graph", 55e9, 4600e9, 2600, 730, 0, 0},
	{"desktop", 25e9, 900e9, 5000, 1500, 0, 0},
	{"pcie3", 12e6, 300e6, 5000, 200, 0, 0},
	{"pcie3-tiny", 12e9, 300e9, 10000, 5000, 0, 0},
	{"equal", 1e9, 1e9, 0, 0, 0, 0},
	{"equal-late", 1e9, 1e9, 2000, 500, 0, 0},
	{"fast-link", 4e9, 1e9, 0, 0, 0, 0},
	{"fast-late", 4e9, 1e9, 1000, 100, 0, 0},
	{"half", 1e9, 2e9, 0, 200, 0, 0},
	{"half-late", 1e9, 2e9, 1000, 200, 0, 0},
	{"late", 55e6, 4600e6, 200000, 0, 0, 0},
	{"launch", 55e6, 4600e6, 0, 100000, 0, 0},
	{"even", 55e6, 4600e6, 0, 0, 1, 0},
	{"even-late", 55e6, 4600e6, 2500, 0, 1, 0},
	{"third", 55e6, 4600e6, 0, 0, 0.3, 0},
	{"third-late", 55e6, 4600e6, 2500, 0, 0.3, 0},
	// kernels that read host memory where it lies do so at about 93 %
	{"h200-there", 55e6, 4600e6, 2500, 20, 0, 0.93},
	{"pcie3-there", 12e6, 300e6, 5000, 200, 0, 0.93},
	{"equal-there", 1e9, 1e9, 0, 0, 0, 0.93},
};
#define N_RATES (sizeof(rates) / sizeof(rates[0]))

// ---- runs ----

struct result {
	double step, plan; // ns; as the pager said
	struct genai_stats st;
};

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

#define STEPS 5
static struct result run(const struct subject *s, const char *executor,
			 const char *pager, uint64_t budget, uint32_t page,
			 const struct rates *c, bool noted)
{
	static const int64_t prompt[] = {1, 5, 9, 33, 7};
	struct result out = {0};
	double step[STEPS];
	struct sim_run r;
	int64_t id;
	int32_t rc;

	sim_init(&r, executor, pager);
	sim_set(&r, "runtime.context=%u", s->context);
	if (budget == UINT64_MAX)
		sim_set(&r, "runtime.weight_budget=100%%");
	else
		sim_set(&r, "runtime.weight_budget=%lluB",
			(unsigned long long)budget);
	if (page)
		sim_set(&r, "module.%s.page_bytes=%u", pager, page);
	sim_set(&r, "module.cpu_ref.clock=simulated");
	sim_set(&r, "module.cpu_ref.link_bytes_per_s=%.0f", c->link);
	sim_set(&r, "module.cpu_ref.in_place_bytes_per_s=%.0f",
		in_place_rate(c));
	sim_set(&r, "module.cpu_ref.memory_bytes_per_s=%.0f", c->memory);
	sim_set(&r, "module.cpu_ref.copy_latency_ns=%.0f", c->latency);
	sim_set(&r, "module.cpu_ref.launch_ns=%.0f", c->launch);
	rc = sim_open_at(&r, path);
	if (!rc)
		rc = genai_session_append(r.session, prompt, 5, &r.err);
	if (!rc)
		rc = sim_next(&r, &id, 1, 0);
	// the first of these records
	for (int i = -2; !rc && i < STEPS; i++) {
		uint64_t last = sim_stats(&r).simulated_ns;

		if (noted && i == 0)
			note_units(&r);
		if (noted && i == 1)
			unnote(&r);
		rc = sim_next(&r, &id, 1, 0);
		if (i >= 0)
			step[i] = (double)(sim_stats(&r).simulated_ns - last);
	}
	if (rc)
		die(r.err.text);
	qsort(step, STEPS, sizeof(step[0]), by_size);
	out.step = step[STEPS / 2];
	out.plan = (double)r.model->paging.report.step_ns;
	out.st = sim_stats(&r);
	sim_close(&r);
	return out;
}

// ---- a cell ----

struct cell {
	const struct subject *s;
	const struct rates *c;
	const char *executor;
	uint32_t page;
	uint64_t budget;
	double read, resident;
	// results: times, and what they should be at most
	struct result async, sync;
	double floor, least, paper_at_most, async_at_most, sync_at_most;
};

// What the budget leaves out, ring included, over the link in such pages.
static double link_ns(const struct cell *x, const struct genai_stats *st)
{
	double out = x->read - (double)st->weight_budget_bytes +
		     (double)st->ring_bytes;
	double one = x->c->latency + x->page / x->c->link * 1e9;

	return out > 0 ? out / x->page * one : 0;
}

static void measure(struct cell *x)
{
	double one = x->c->latency + x->page / x->c->link * 1e9;

	x->async = run(x->s, x->executor, "pager_async", x->budget, x->page,
		       x->c, false);
	x->sync = run(x->s, x->executor, "pager_sync", x->budget, x->page, x->c,
		      false);
	x->floor = fmax(link_ns(x, &x->async.st), x->resident);
	x->paper_at_most = x->floor / 0.97 + one;
	x->least = x->floor;
	if (x->async.step > x->paper_at_most)
		x->least = fmax(
			x->least,
			limit(x->c, (double)x->async.st.weight_budget_bytes));
	x->async_at_most = x->least / 0.97 + one;
	x->sync_at_most = x->resident + link_ns(x, &x->sync.st) / 0.97 + one;
}

static void describe(const struct cell *x, char *out, size_t n)
{
	const struct genai_stats *st = &x->async.st;

	snprintf(out, n,
		 "%s %s %s launch %.0f page %u budget %llu of %.0f: async %.3f "
		 "(%.0f, planned %.0f) sync %.3f (%.0f) floor %.0f (least "
		 "%.0f) resident %.0f; pinned %llu ring %llu in place %llu "
		 "streamed %llu",
		 x->s->name, x->c->name, x->executor, x->c->launch, x->page,
		 (unsigned long long)x->budget, x->read,
		 x->async.step / x->async_at_most, x->async.step, x->async.plan,
		 x->sync.step / x->sync_at_most, x->sync.step, x->floor,
		 x->least, x->resident, (unsigned long long)st->pinned_bytes,
		 (unsigned long long)st->ring_bytes,
		 (unsigned long long)st->in_place_bytes,
		 (unsigned long long)st->streamed_bytes_per_token);
}

// Weights that a step reads: its bytes on a device where only the link costs.
static double read_bytes(const struct subject *s)
{
	static const struct rates c = {"", 1e9, 0, 0, 0, 0};

	return run(s, "eager", "pager_sync", 0, 4096, &c, false).step;
}

// The resident step, for cells of that page; the units of it are noted.
static void set_page(struct cell *x, struct rates *c, uint32_t page)
{
	static const struct rates only = {"", 1e15, 0, 0, 1000, 0};

	x->page = page;
	if (c->balance) {
		double n = run(x->s, x->executor, "pager_sync", UINT64_MAX,
			       page, &only, false)
				   .step /
			   1000;

		c->launch = floor(x->read / c->link * 1e9 * c->balance / n);
	}
	x->c = c;
	run(x->s, "eager", "pager_sync", UINT64_MAX, page, c, true);
	x->resident =
		run(x->s, x->executor, "pager_sync", UINT64_MAX, page, c, false)
			.step;
}

// ---- the sweep ----

static struct {
	bool full, verbose;
	const char *model, *rates;
} args;

struct worst {
	uint64_t cells, paper, over, serial, slower;
	double async, sync;
};

// Budgets in bytes: shares of the weights, and around what a ring needs.
#define MAX_BUDGETS 64
static uint32_t budgets_of(uint64_t weights, uint64_t page, uint64_t *out)
{
	static const double shares[] = {0,   .01, .02, .05, .1,	 .15, .2,
					.25, .3,  .35, .4,  .5,	 .6,  .7,
					.75, .8,  .9,  .95, .97, .99, 1};
	static const double pages[] = {.3, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 8};
	uint32_t n = 0;

	for (uint32_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++)
		out[n++] = (uint64_t)(shares[i] * (double)weights);
	for (uint32_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		uint64_t b = (uint64_t)(pages[i] * (double)page);

		if (b < weights) {
			out[n++] = b - 1;
			out[n++] = b + 257;
		}
	}
	out[n++] = 1;
	out[n++] = 12345;
	out[n++] = weights - 1;
	if (page < weights)
		out[n++] = weights - page;
	out[n++] = UINT64_MAX;
	return n;
}

static void count(const struct cell *x, struct worst *w)
{
	double a = x->async.step / x->async_at_most;
	double y = x->sync.step / x->sync_at_most;
	char text[512];

	w->cells++;
	w->paper += x->async.step > x->paper_at_most;
	w->over += a > 1;
	w->serial += y > 1;
	w->slower += x->async.step > x->sync.step;
	w->async = fmax(w->async, a);
	w->sync = fmax(w->sync, y);
	if (!args.verbose ||
	    (a <= 1 && y <= 1 && x->async.step <= x->sync.step))
		return;
	describe(x, text, sizeof(text));
	printf("  %s\n", text);
}

static void print(const char *name, const char *rates, const struct worst *w)
{
	printf("%-20s %-11s %6llu cells; async: worst %.3f, %llu over, %llu "
	       "over the formula; sync: worst %.3f, %llu over; async slower: "
	       "%llu\n",
	       name, rates, (unsigned long long)w->cells, w->async,
	       (unsigned long long)w->over, (unsigned long long)w->paper,
	       w->sync, (unsigned long long)w->serial,
	       (unsigned long long)w->slower);
	fflush(stdout);
}

static void table(const struct subject *s, const struct rates *given,
		  double read, struct worst *all)
{
	struct worst w = {0};

	for (int e = 0; e < (args.full ? 2 : 1); e++) {
		struct rates c = *given;
		struct cell x = {.s = s,
				 .executor = e ? "eager" : "captured",
				 .read = read};

		for (uint32_t i = 0; i < 6; i++) {
			uint64_t budget[MAX_BUDGETS];
			uint32_t n =
				budgets_of((uint64_t)read, s->page[i], budget);

			set_page(&x, &c, s->page[i]);
			for (uint32_t b = 0; b < n; b++) {
				x.budget = budget[b];
				measure(&x);
				count(&x, &w);
			}
		}
	}
	print(s->name, given->name, &w);
	all->cells += w.cells;
	all->paper += w.paper;
	all->over += w.over;
	all->serial += w.serial;
	all->slower += w.slower;
	all->async = fmax(all->async, w.async);
	all->sync = fmax(all->sync, w.sync);
}

static int sweep(void)
{
	struct worst all = {0};

	for (uint32_t i = 0; i < N_SUBJECTS; i++) {
		double read;

		if (args.model && strcmp(args.model, "all") &&
		    strcmp(args.model, subjects[i].name))
			continue;
		make(&subjects[i]);
		read = read_bytes(&subjects[i]);
		for (uint32_t k = 0; k < N_RATES; k++)
			if (!args.rates || !strcmp(args.rates, rates[k].name))
				table(&subjects[i], &rates[k], read, &all);
		if (subjects[i].arch)
			remove_tree(path);
	}
	print("all", "", &all);
	return all.slower != 0;
}

// ---- the test ----

// Where every budget holds, from that share of the weights on; and cells that
// have a ring at least, those that have one today: a plan that gives one up is no
// slower by the model, or the other limits would say so, but then the model is to
// be looked at.  0: none has, for nothing is gained by a copy where reading in
// place takes no longer.
static const struct {
	const char *model, *rates;
	double from;
	int rings;
} held[] = {
	{"qwen3-cpu-int4", "h200", 0, 2},
	{"qwen3-cpu-int4", "pcie3", 0, 16},
	{"qwen3-cpu-int4", "equal-late", 0, 0},
	{"qwen3-cpu-int4", "late", 0, 0},
	{"llama-cpu-fp32", "equal", 0, 0},
	{"llama-cpu-fp32", "fast-late", 0, 0},
	{"tiny-qwen3-12", "h200", 0, 6},
	{"tiny-qwen3-12", "h200-tiny", 0, 9},
	{"tiny-qwen3-12", "pcie3-tiny", 0, 11},
	{"tiny-qwen3-12", "fast-link", 0, 0},
	{"tiny-qwen3-12", "half", 0.05, 12},
	{"tiny-qwen3-12", "third", 0.05, 12},
	{"tiny-qwen3-12", "even-late", 0.1, 12},
	{"tiny-qwen2-12", "pcie3", 0, 16},
	{"tiny-qwen2-12", "late", 0, 0},
	{"float32-12", "pcie3", 0, 17},
	{"float32-12", "half", 0, 18},
	{"qwen3-cpu-int4", "h200-there", 0.1, 4},
	{"llama-cpu-fp32", "equal-there", 0.25, 6},
	{"tiny-qwen3-12", "h200-there", 0.1, 12},
	{"tiny-qwen2-12", "pcie3-there", 0.1, 12},
	{"float32-12", "pcie3-there", 0.1, 12},
};
#define N_HELD (sizeof(held) / sizeof(held[0]))

static const void *by_name(const void *v, size_t n, size_t one,
			   const char *name)
{
	for (size_t i = 0; i < n; i++) {
		const void *x = (const char *)v + i * one;

		if (!strcmp(*(const char *const *)x, name))
			return x;
	}
	ck_abort_msg("no %s", name);
	return NULL;
}

START_TEST(holds)
{
	static const double shares[] = {0,  .004, .01, .03, .1, .25,
					.5, .75,  .9,  .97, 1};
	struct cell x = {.s = by_name(subjects, N_SUBJECTS, sizeof(subjects[0]),
				      held[_i].model),
			 .executor = _i % 2 ? "eager" : "captured"};
	const struct rates *given =
		by_name(rates, N_RATES, sizeof(rates[0]), held[_i].rates);
	struct rates c = *given;
	char text[512];
	int rings = 0;

	make(x.s);
	x.read = read_bytes(x.s);
	for (uint32_t page = 2048; page <= 8192; page *= 4) {
		set_page(&x, &c, page);
		for (uint32_t b = 0; b < 11; b++) {
			if (shares[b] < held[_i].from)
				continue;
			x.budget = (uint64_t)(shares[b] * x.read);
			measure(&x);
			rings += x.async.st.ring_bytes != 0;
			describe(&x, text, sizeof(text));
			ck_assert_msg(x.async.step <= x.async_at_most, "%s",
				      text);
			ck_assert_msg(x.async.step <= x.sync.step, "%s", text);
			ck_assert_msg(x.sync.step <= x.sync_at_most * 1.05,
				      "%s", text);
			// what the plan was chosen by; it leaves out copies of
			// tokens, and does not count on a link faster than
			// memory
			if (c.latency < x.resident / 50 && c.link <= c.memory)
				ck_assert_msg(
					fabs(x.async.plan - x.async.step) <
						0.1 * x.async.step,
					"%s", text);
		}
	}
	ck_assert_msg(held[_i].rings ? rings >= held[_i].rings : !rings,
		      "%s, %s: %d of 22 cells have a ring, not %d",
		      held[_i].model, held[_i].rates, rings, held[_i].rings);
	if (x.s->arch)
		remove_tree(path);
}
END_TEST

// Nothing is known of the device: what a GPU reads in place is slow.
START_TEST(streams_without_rates)
{
	const struct subject *s = by_name(subjects, N_SUBJECTS,
					  sizeof(subjects[0]), "tiny-qwen3-12");
	double read, streamed;
	struct sim_run r;

	make(s);
	read = read_bytes(s);
	sim_init(&r, "captured", _i ? "pager_async" : "pager_sync");
	sim_set(&r, "runtime.context=%u", s->context);
	sim_set(&r, "runtime.weight_budget=%.0fB", read / 2);
	ck_assert_msg(!sim_open_at(&r, path), "%s", r.err.text);
	streamed = (double)sim_stats(&r).streamed_bytes_per_token;
	ck_assert_double_ge(streamed, read * 0.45);
	ck_assert_double_le(streamed, read * 0.6);
	sim_close(&r);
	remove_tree(path);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("floor");
	TCase *t = tcase_create("all");

	tcase_add_loop_test(t, streams_without_rates, 0, 2);
	tcase_add_loop_test(t, holds, 0, N_HELD);
	tcase_set_timeout(t, 120);
	suite_add_tcase(s, t);
	return s;
}

int main(int argc, char **argv)
{
	int rc;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--full"))
			args.full = true;
		else if (!strcmp(argv[i], "--verbose"))
			args.verbose = true;
		else if (!args.model)
			args.model = argv[i];
		else
			args.rates = argv[i];
	}
	snprintf(folder, sizeof(folder), "check_floor.%ld", (long)getpid());
	mkdir(folder, 0700);
	rc = argc > 1 ? sweep() : genai_check_main(suite());
	rmdir(folder);
	return rc;
}
