// check_pager.c - both pagers, asked directly: more pages held than slots were
// asked for, pages of absurd sizes or in very many pieces, no memory.
#include "tests/unit/alloc_fail.h"
#include "tests/unit/session_kit.h"

#define PAGES 40
#define BYTES UINT64_C(4096)

static const char *const pagers[] = {"pager_sync", "pager_async"};
static struct genai_runtime *rt;
static struct genai_stream *stream;
static struct genai_pager *pager;
static const struct genai_pager_ops *ops;
static struct genai_pager_report report;
static struct genai_error err;
static char data[PAGES * BYTES] __attribute__((aligned(4096)));

static void begin(const char *name, const char *more)
{
	rt = runtime("eager", name, "0", more);
	ops = &rt->pager_ops;
	err = (struct genai_error)GENAI_ERROR_INIT;
	report = (struct genai_pager_report){.size = sizeof(report)};
	ck_assert_int_eq(rt->device.stream.ops->create(rt->device.stream.self,
						       "step", &stream, &err),
			 0);
	ck_assert_int_eq(ops->open(genai_module_self(rt->pager.module),
				   &rt->device.stream, &rt->device.barrier,
				   &pager, &err),
			 0);
}

static void end_pager(void)
{
	struct genai_ticket t = {.size = sizeof(t)};

	ck_assert_int_eq(genai_device_drain(&rt->device, &t, &err), 0);
	ck_assert_int_eq(ops->close(pager, &t, &err), 0);
}

static void end(void)
{
	end_pager();
	ck_assert_int_eq(rt->device.stream.ops->destroy(rt->device.stream.self,
							stream, &err),
			 0);
	genai_close(rt);
}

static int32_t add(uint64_t bytes, const void *src, uint64_t n)
{
	struct genai_extent e = {
		.size = sizeof(e), .src = src, .src_bytes = n, .bytes = n};

	return ops->add(pager, bytes, 0, &e, 1, &err);
}

// ---- the key ----

static const struct {
	const char *text;
	bool good;
} slots[] = {
	{"auto", true},
	{"0", true},
	{"2", true},
	{"4096", true},
	{"0000000000000000000000000000000000000003", true},
	{"1", false},
	{"4097", false},
	{"18446744073709551616", false},
	{"-1", false},
	{"2.5", false},
	{"", false},
	{"a word that is longer than any number of slots could be", false},
};

START_TEST(slots_as_text)
{
	char set[128];
	int32_t rc;

	err = (struct genai_error)GENAI_ERROR_INIT;
	snprintf(set, sizeof(set), "module.%s.ring_slots=%s", pagers[_i & 1],
		 slots[_i / 2].text);
	rc = try_runtime("eager", pagers[_i & 1], "0", set, &rt, &err);
	if (slots[_i / 2].good) {
		ck_assert_msg(!rc, "%s", err.text);
		genai_close(rt);
		return;
	}
	fails(rc, GENAI_E_CONFIG, &err, pagers[_i & 1]);
	ck_assert_msg(strstr(err.text, "ring_slots: 2 to 4096, or auto"), "%s",
		      err.text);
}
END_TEST

// ---- slots ----

static struct genai_sweep_visit sweep[PAGES];

static void held_at_once(uint32_t pages)
{
	for (uint32_t i = 0; i < PAGES; i++) {
		sweep[i] = (struct genai_sweep_visit){.size = sizeof(sweep[i]),
						      .page = i,
						      .bytes = BYTES,
						      .units = i % pages == 0};
		ck_assert_int_eq(add(BYTES, data + i * BYTES, BYTES), 0);
	}
}

static void step(uint32_t pages)
{
	const struct genai_stream_ops *so = rt->device.stream.ops;
	void *self = rt->device.stream.self;
	struct genai_place place = {.size = sizeof(place)};
	struct genai_stream *s = stream;
	struct genai_point pt;
	int32_t rc;

	ck_assert_int_eq(ops->step_begin(pager, s, 0, &err), 0);
	for (uint32_t i = 0; i < PAGES; i += pages) {
		for (uint32_t k = i; k < i + pages; k++) {
			rc = ops->acquire(pager, k, s, &place, &pt, &err);
			ck_assert_msg(!rc, "%s", err.text);
			ck_assert_int_eq(so->wait(self, s, pt, &err), 0);
		}
		ck_assert_int_eq(so->mark(self, s, &pt, &err), 0);
		for (uint32_t k = i; k < i + pages; k++)
			ck_assert_int_eq(ops->release(pager, k, pt, &err), 0);
	}
	ck_assert_int_eq(ops->step_end(pager, s, &pt, &err), 0);
	ck_assert_int_eq(so->wait(self, s, pt, &err), 0);
	ck_assert_int_eq(so->mark(self, s, &pt, &err), 0);
	ck_assert_int_eq(
		rt->device.barrier.ops->host_read(rt->device.barrier.self, &pt,
						  1, UINT64_MAX, &err),
		0);
}

// Slots that somebody asked for are more than asked for where a unit of work
// holds more pages than that.
START_TEST(fewer_slots_than_held)
{
	static const uint32_t held[] = {1, 2, 4, 8};
	char set[64];

	snprintf(set, sizeof(set), "module.%s.ring_slots=2", pagers[_i & 1]);
	begin(pagers[_i & 1], set);
	held_at_once(held[_i / 2]);
	ck_assert_int_eq(
		ops->seal(pager, sweep, PAGES, 16 * BYTES, &report, &err), 0);
	ck_assert_uint_ge(report.ring_slots, held[_i / 2]);
	for (int i = 0; i < 3; i++)
		step(held[_i / 2]);
	end();
}
END_TEST

// ---- sizes ----

// All but a few bytes of a page may be holes; nobody could hold such a page.
START_TEST(pages_beyond_all_measure)
{
	static const uint64_t bytes[] = {UINT64_MAX, UINT64_MAX - 255,
					 UINT64_C(1) << 63};
	static const uint64_t budgets[] = {0, 1 << 20, UINT64_C(1) << 62,
					   UINT64_MAX - 1, UINT64_MAX};
	int32_t rc;

	begin(pagers[_i & 1], NULL);
	for (uint32_t i = 0; i < 3; i++) {
		sweep[i] = (struct genai_sweep_visit){.size = sizeof(sweep[i]),
						      .page = i,
						      .bytes = BYTES,
						      .units = 1};
		rc = add(bytes[i], data, BYTES);
		fails(rc, GENAI_E_LIMIT, &err, "page 0");
	}
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(add(UINT64_C(1) << 48, data, BYTES), 0);
	rc = ops->plan(pager, sweep, 3, budgets[_i / 2], &report, &err);
	ck_assert_msg(!rc, "%s", err.text);
	ck_assert_uint_eq(report.total_bytes, UINT64_C(3) << 48);
	ck_assert_uint_le(report.pinned_bytes + report.ring_bytes,
			  budgets[_i / 2]);
	end();
}
END_TEST

// ---- rates ----

static struct genai_stream_caps claimed;
static struct genai_stream_ops claiming;

static int32_t claim(void *self, struct genai_stream_caps *out,
		     struct genai_error *e)
{
	(void)self;
	(void)e;
	genai_struct_give(out, &claimed);
	return 0;
}

// Open the pager anew, on a device that claims such rates, in a struct of size
// bytes.
static void claim_rates(const uint64_t rates[5], size_t size)
{
	struct genai_stream_api api = rt->device.stream;

	end_pager();
	claiming = *api.ops;
	claiming.caps = claim;
	api.ops = &claiming;
	claimed = rt->device.caps;
	claimed.size = (uint32_t)size;
	claimed.flags = GENAI_STREAM_CAP_RATES | GENAI_STREAM_CAP_IN_PLACE;
	claimed.link_bytes_per_s = rates[0];
	claimed.memory_bytes_per_s = rates[1];
	claimed.copy_latency_ns = rates[2];
	claimed.launch_ns = rates[3];
	claimed.in_place_bytes_per_s = rates[4];
	ck_assert_int_eq(ops->open(genai_module_self(rt->pager.module), &api,
				   &rt->device.barrier, &pager, &err),
			 0);
}

static void plan_within(uint64_t budget)
{
	struct genai_pager_report *r = &report;

	ck_assert_int_eq(ops->plan(pager, sweep, PAGES, budget, r, &err), 0);
	ck_assert_uint_le(r->pinned_bytes + r->ring_bytes, budget);
	// a sum in another order may round otherwise
	ck_assert_double_le((double)r->resident_ns * (1 - 1e-9),
			    (double)r->step_ns);
	ck_assert_double_le((double)r->resident_ns * (1 - 1e-9),
			    (double)r->serial_ns);
}

// Whatever a device claims, and however much work an executor speaks of, the
// budget is kept to and no time is less than that of a step on the device.
START_TEST(rates_beyond_all_measure)
{
	static const uint64_t values[] = {0, 1, 1000000000, UINT64_MAX};
	static const uint32_t budgets[] = {0, 3, 20, 37, 39};

	begin(pagers[_i], NULL);
	for (uint32_t i = 0; i < 256; i++) {
		const uint64_t rates[] = {values[i % 4], values[i / 4 % 4],
					  values[i / 16 % 4], values[i / 64],
					  values[(i + i / 16) % 4]};

		claim_rates(rates, sizeof(claimed));
		for (uint32_t k = 0; k < 10; k++) {
			held_at_once(1 + k % 3);
			if (k >= 5) {
				sweep[7].units = UINT32_MAX;
				sweep[39].units_after = UINT32_MAX;
				sweep[9].work_bytes = UINT64_MAX;
			}
			plan_within(budgets[k % 5] * BYTES);
			if (rates[3] == UINT64_MAX)
				ck_assert_uint_eq(report.resident_ns,
						  UINT64_MAX);
		}
	}
	end();
}
END_TEST

// A device of before there were rates has none, whatever its flags say.
START_TEST(rates_of_an_older_minor)
{
	static const uint64_t rates[] = {1, 1, 1, 1, 1};

	begin(pagers[_i], NULL);
	claim_rates(rates,
		    offsetof(struct genai_stream_caps, link_bytes_per_s));
	held_at_once(1);
	plan_within(20 * BYTES);
	end();
}
END_TEST

// ---- time ----

#define PIECES 100000

// A page in very many pieces, all visited; and as many pages.
START_TEST(many_pieces)
{
	const uint32_t n = GENAI_BUILD & 0xff ? PIECES / 10 : PIECES;
	struct genai_extent *e = calloc(n, sizeof(*e));
	struct genai_sweep_visit *v = calloc(n, sizeof(*v));
	char *bytes = calloc(n, 16);
	double t0;

	begin(pagers[_i & 1], NULL);
	for (uint32_t i = 0; i < n; i++) {
		e[i] = (struct genai_extent){.size = sizeof(e[i]),
					     .src = bytes + i * UINT64_C(16),
					     .src_bytes = 16,
					     .place = i * UINT64_C(16),
					     .bytes = 16};
		v[i] = (struct genai_sweep_visit){.size = sizeof(v[i]),
						  .offset = i * UINT64_C(16),
						  .bytes = 16,
						  .units = 1};
	}
	t0 = genai_cpu_seconds();
	ck_assert_int_eq(ops->add(pager, n * UINT64_C(16), 0, e, n, &err), 0);
	ck_assert_int_eq(ops->seal(pager, v, n, _i & 2 ? 0 : UINT64_MAX - 1,
				   &report, &err),
			 0);
	ck_assert_cost(genai_cpu_seconds() - t0, 1);
	end();
	free(e);
	free(v);
	free(bytes);
}
END_TEST

static void as_it_is(void *ctx, void *dst, uint64_t bytes, const void *src,
		     uint64_t src_bytes)
{
	(void)ctx;
	(void)src_bytes;
	memcpy(dst, src, bytes);
}

#define FILLED UINT64_C(256)

// Pages that are all filled: read in place, pinned, streamed.
START_TEST(many_filled)
{
	const uint32_t n = PIECES;
	struct genai_sweep_visit *v = calloc(n, sizeof(*v));
	struct genai_extent e = {.size = sizeof(e),
				 .src_bytes = FILLED,
				 .bytes = FILLED,
				 .fill = as_it_is};
	double t0;

	begin(pagers[_i & 1], NULL);
	for (uint32_t i = 0; i < n; i++)
		v[i] = (struct genai_sweep_visit){.size = sizeof(v[i]),
						  .page = i,
						  .bytes = FILLED,
						  .units = 1};
	t0 = genai_cpu_seconds();
	for (uint32_t i = 0; i < n; i++) {
		e.src = data + i % PAGES * BYTES;
		ck_assert_int_eq(ops->add(pager, FILLED, 0, &e, 1, &err), 0);
	}
	ck_assert_int_eq(ops->seal(pager, v, n, n / 2 * FILLED * (_i / 2),
				   &report, &err),
			 0);
	ck_assert_cost(genai_cpu_seconds() - t0, 1);
	end();
	free(v);
}
END_TEST

// ---- no memory ----

// A model under a budget, each allocation failing in turn: an error and nothing
// left, or the tokens of a model that found all it wanted.
static int32_t tokens(const char *name, long fail, int64_t ids[4])
{
	static const int64_t prompt[] = {1, 5, 9};
	struct genai_runtime *r = runtime("captured", name, "40%", NULL);
	struct genai_model *m = NULL;
	struct genai_session *s = NULL;
	int32_t rc;

	err = (struct genai_error)GENAI_ERROR_INIT;
	alloc_failed = 0;
	alloc_left = fail;
	rc = genai_model_open(r, MODEL("llama-cpu-fp32"), NULL, &m, &err);
	alloc_left = -1;
	if (!rc)
		rc = genai_session_open(m, &s, &err);
	if (!rc)
		rc = genai_session_append(s, prompt, 3, &err);
	for (int i = 0; !rc && i < 4; i++)
		rc = genai_session_next(s, 0, &ids[i], &err);
	genai_session_close(s);
	genai_model_close(m);
	ck_assert_uint_eq(r->device.used, 0);
	ck_assert_uint_eq(r->device.pinned, 0);
	genai_close(r);
	return rc;
}

START_TEST(no_memory)
{
	int64_t want[4], got[4];
	long n = 0, failures = 0;

	ck_assert_int_eq(tokens(pagers[_i], -1, want), 0);
	for (;; n += 1 + n / 64) {
		int32_t rc = tokens(pagers[_i], n, got);

		if (!alloc_failed)
			break;
		if (rc) {
			ck_assert_msg(err.text[0], "no reason at %ld", n);
			failures++;
		} else {
			ck_assert_mem_eq(want, got, sizeof(want));
		}
	}
	ck_assert_int_gt(failures, 50);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pager");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, slots_as_text, 0,
			    2 * sizeof(slots) / sizeof(slots[0]));
	tcase_add_loop_test(tc, fewer_slots_than_held, 0, 8);
	tcase_add_loop_test(tc, pages_beyond_all_measure, 0, 10);
	tcase_add_loop_test(tc, rates_beyond_all_measure, 0, 2);
	tcase_add_loop_test(tc, rates_of_an_older_minor, 0, 2);
	tcase_add_loop_test(tc, many_pieces, 0, 4);
	tcase_add_loop_test(tc, many_filled, 0, 6);
	tcase_add_loop_test(tc, no_memory, 0, 2);
	suite_add_tcase(s, tc);
	return genai_check_main(s);
}
