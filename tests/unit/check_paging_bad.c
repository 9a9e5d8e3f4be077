// check_paging_bad.c - what the grouping of weights makes of bad keys, of an
// executor and of a pager that are wrong.
#include "tests/unit/paging_kit.h"

// ---- keys ----

static const struct {
	const char *text, *why;
} sizes[] = {
	{"50%", "page_bytes = 50%: expected bytes, not a percentage"},
	{"-1", "page_bytes = -1: expected a whole number"},
	{"many", "page_bytes = many: expected a whole number"},
	{"1e9", "unknown unit 'e9'"},
	{"18446744073709551616", "page_bytes = 18446744073709551616: "},
	{"16777216TiB", "more bytes than 64 bits can count"},
	{"1", NULL}, // taken as the least that makes sense
	{"9223372036854775808", NULL},
	{"18446744073709551615", NULL},
};

START_TEST(bad_page_size)
{
	char set[64];

	snprintf(set, sizeof(set), "module.pager_sync.page_bytes=%s",
		 sizes[_i].text);
	if (sizes[_i].why) {
		struct genai_error why = GENAI_ERROR_INIT;

		fails(try_runtime("eager", "pager_sync", "5000", set, &rt,
				  &why),
		      GENAI_E_CONFIG, &why, sizes[_i].why);
		return;
	}
	begin("5000", set);
	rt->pager_ops.plan = fake_plan;
	tensors(40000, 0);
	for (uint32_t i = 0; i < 6; i++)
		visit(i, i, 100)->flags |= GENAI_WEIGHT_ANY_ROWS;
	sealed(UINT64_MAX);
	whole_sweep();
	end();
}
END_TEST

// Plans of ever so many pages are not made: they would take seconds.
START_TEST(pages_too_small_for_the_model)
{
	begin("30MiB", "module.pager_sync.page_bytes=256");
	if (_i)
		rt->pager_ops.plan = fake_plan;
	seen.best = UINT32_MAX;
	tensors(UINT64_C(8) << 20, 0);
	for (uint32_t i = 0; i < 6; i++)
		visit(i, i, 1);
	sealed(UINT64_MAX);
	whole_sweep();
	ck_assert_uint_eq(paging.page_bytes, (48 << 20) / 65536 + 1);
	end();
}
END_TEST

// Pages that are filled are cut where they are full, however large they may be.
START_TEST(pages_larger_than_the_model)
{
	begin("20000", "module.pager_sync.page_bytes=18446744073709551615");
	rt->pager_ops.plan = fake_plan;
	seen.best = 1;
	tensors(40000, 0);
	for (uint32_t i = 0; i < 6; i++)
		visit(i, i, 100)->flags |= GENAI_WEIGHT_ANY_ROWS;
	sealed(UINT64_MAX);
	whole_sweep();
	ck_assert_uint_eq(seen.n_pages, 1);
	ck_assert_uint_eq(seen.n_parts, 6);
	end();
}
END_TEST

// A matrix that nobody could hold: only its size is looked at.
START_TEST(very_many_rows)
{
	const int64_t dims = INT64_C(1) << 34;
	struct genai_builder *b = genai_builder_open("weights");
	uint32_t f = genai_builder_file(b, "w", data, UINT64_C(1) << 40);
	uint32_t in = genai_builder_value(b, "x", GENAI_DT_F32, 1, &dims, NULL);
	uint32_t t = genai_builder_tensor(b, f, 0, UINT64_C(1) << 36,
					  GENAI_DT_F32, 1, &dims);
	uint32_t args[2] = {in, genai_builder_stored(b, "w", t)};
	uint32_t y = genai_builder_value(b, "y", GENAI_DT_F32, 1, &dims, NULL);

	begin("1GiB", "module.pager_sync.page_bytes=8GiB");
	genai_builder_input(b, in);
	genai_builder_node(b, "Add", "", 21, "y", args, 2, &y, 1);
	genai_builder_output(b, y);
	ck_assert_int_eq(genai_builder_finish(b, &graph, &err), 0);
	visit(0, 0, 2)->rows = UINT64_C(1) << 33;
	sealed(UINT64_MAX);
	whole_sweep();
	ck_assert_uint_eq(seen.n_pages, 8);
	end();
}
END_TEST

// ---- an executor that is wrong ----

START_TEST(unsound_visits)
{
	static const struct {
		uint32_t tensor, first, last, flags;
		uint64_t rows, bytes;
		bool fill;
	} bad[] = {
		{6, 3, 3, 0, 1, 1000, false},
		{1, 3, 3, 0, 0, 1000, false},
		{1, 3, 2, 0, 1, 1000, false},
		{1, 3, 6, 0, 1, 1000, false},
		{1, 3, 3, 0, 1, 0, true},
		{1, 3, 3, GENAI_WEIGHT_ROWS, 3, 1000, false},
		{1, 3, 3, GENAI_WEIGHT_ROWS, 8, 1001, true},
		{1, 3, 3, GENAI_WEIGHT_ROWS, UINT64_MAX, 1000, false},
		// more rows than one that nobody may cut
		{1, 3, 3, 0, 8, 1000, false},
		{1, 3, 3, GENAI_WEIGHT_ANY_ROWS, 8, 1000, false},
		// another size and nobody to make it
		{1, 3, 3, 0, 1, 1016, false},
		{1, 3, 3, GENAI_WEIGHT_ROWS, 8, 1016, false},
		{1, 3, 3, GENAI_WEIGHT_ROWS | GENAI_WEIGHT_FILL_PARTS, 8, 1016,
		 true},
		// parts of what cannot be cut, or that nobody fills
		{1, 3, 3, GENAI_WEIGHT_FILL_PARTS, 1, 1000, true},
		{1, 3, 3, GENAI_WEIGHT_ROWS | GENAI_WEIGHT_FILL_PARTS, 8, 1000,
		 false},
		// sizes that sums would overflow with
		{1, 3, 3, 0, 1, UINT64_MAX, true},
		{1, 3, 3, 0, 1, UINT64_C(1) << 63, true},
	};
	struct genai_visit *v;

	begin("1MiB", NULL);
	tensors(1000, 0);
	visit(0, 0, 1);
	v = visit(1, 3, 1);
	if (_i == sizeof(bad) / sizeof(bad[0])) {
		visits[0].first_node = visits[0].last_node = 4;
	} else {
		v->tensor = bad[_i].tensor;
		v->first_node = bad[_i].first;
		v->last_node = bad[_i].last;
		v->flags = bad[_i].flags;
		v->rows = bad[_i].rows;
		v->device_bytes = bad[_i].bytes;
		v->fill = bad[_i].fill ? fill : NULL;
	}
	fails(seal(UINT64_MAX), GENAI_E_MODULE, &err,
	      "module cpu_ref: visit 1");
	end();
}
END_TEST

// What tomorrow's executors may say is not taken for something else today.
START_TEST(unknown_flags)
{
	for (uint32_t bit = 0; bit < 32; bit++) {
		bool known = 1u << bit <= GENAI_WEIGHT_EXPERT;

		if (known)
			continue;
		begin("1MiB", NULL);
		tensors(1000, 0);
		visit(0, 0, 1)->flags |= 1u << bit;
		fails(seal(UINT64_MAX), GENAI_E_UNSUPPORTED, &err,
		      "are not known");
		end();
	}
}
END_TEST

// Work that cannot be: the most there is, not little.
START_TEST(work_beyond_all_measure)
{
	struct genai_visit *v;

	begin("1MiB", NULL);
	tensors(1000, 0);
	v = visit(0, 0, 1);
	v->units_before = UINT32_MAX;
	v->bytes_before = v->work_bytes = UINT64_MAX;
	sealed(UINT64_MAX);
	ck_assert_uint_eq(seen.sweep[0].units, UINT32_MAX);
	ck_assert_uint_eq(seen.sweep[0].work_bytes, UINT64_MAX);
	end();
}
END_TEST

static struct genai_visit *many;
#define MANY 60000

static int32_t many_visits(struct genai_plan *p, const struct genai_visit **out,
			   uint32_t *n, struct genai_error *e)
{
	(void)p;
	(void)e;
	*out = many;
	*n = MANY;
	return 0;
}

static int32_t no_seal(struct genai_pager *p,
		       const struct genai_sweep_visit *sweep, uint32_t n,
		       uint64_t budget, struct genai_pager_report *out,
		       struct genai_error *e)
{
	(void)p;
	(void)sweep;
	(void)budget;
	(void)out;
	ck_assert_uint_eq(n, MANY);
	return genai_fail(e, GENAI_E_STATE, "far enough");
}

// What is held over the tiles of others is found in one go.
START_TEST(many_that_span_all_nodes)
{
	double t0;

	begin("1MiB", "module.pager_sync.page_bytes=256");
	rt->exec.plan_visits = many_visits;
	rt->pager_ops.seal = no_seal;
	tensors(1000, 0);
	visit(0, 0, 10)->last_node = 5;
	many = calloc(MANY, sizeof(*many));
	for (uint32_t i = 0; i < MANY; i++) {
		many[i] = visits[0];
		many[i].group = i;
	}
	t0 = genai_cpu_seconds();
	fails(seal(UINT64_MAX), GENAI_E_STATE, &err, "far enough");
	ck_assert_cost(genai_cpu_seconds() - t0, 1);
	ck_assert_uint_eq(seen.n_pages, 1);
	free(many);
	end();
}
END_TEST

// Visits of a group are cut at the same rows, however few of them are to be
// cut.
START_TEST(parts_of_a_group)
{
	begin("20KiB", "module.pager_sync.page_bytes=8KiB");
	rt->pager_ops.plan = fake_plan;
	tensors(40000, 0);
	for (uint32_t i = 0; i < 6; i++) {
		struct genai_visit *v = visit(i, i / 2, 100);

		v->flags |= GENAI_WEIGHT_FILL_PARTS;
		v->fill = fill;
		v->group = 7 + (_i & 1 ? 0 : i / 2);
	}
	seen.best = (uint32_t)_i / 2;
	sealed(UINT64_MAX);
	whole_sweep();
	for (uint32_t i = 0; i < seen.n_parts; i += 2) {
		ck_assert_uint_eq(seen.parts[i].visit % 2, 0);
		ck_assert_uint_eq(seen.parts[i + 1].visit,
				  seen.parts[i].visit + 1);
		ck_assert_uint_eq(seen.parts[i].row_begin,
				  seen.parts[i + 1].row_begin);
		ck_assert_uint_eq(seen.parts[i].row_end,
				  seen.parts[i + 1].row_end);
	}
	end();
}
END_TEST

// ---- a pager that is wrong ----

static void begin_plans(void)
{
	begin("20KiB", "module.pager_sync.page_bytes=8KiB");
	rt->pager_ops.plan = fake_plan;
	tensors(40000, 0);
	for (uint32_t i = 0; i < 6; i++)
		visit(i, i, 100)->flags |= GENAI_WEIGHT_ANY_ROWS;
}

START_TEST(a_plan_fails)
{
	begin_plans();
	seen.best = (uint32_t)_i % 4;
	seen.plan_rc = -1 - _i;
	fails(seal(UINT64_MAX), -1 - _i, &err, "no plan");
	ck_assert_uint_eq(seen.n_sweep, 0);
	end();
}
END_TEST

// Whatever its numbers are, one grouping is taken.
START_TEST(a_plan_of_nonsense)
{
	static const uint8_t bytes[] = {0xff, 0x7f, 0x80, 0x01};

	begin_plans();
	seen.lie = bytes[_i];
	sealed(UINT64_MAX);
	whole_sweep();
	end();
}
END_TEST

START_TEST(a_plan_that_keeps_the_pages)
{
	begin_plans();
	seen.keeps = true;
	fails(seal(UINT64_MAX), GENAI_E_MODULE, &err,
	      "module pager_sync planned for ");
	end();
}
END_TEST

START_TEST(a_sum_that_overflows)
{
	begin("5000", NULL);
	tensors(1000, 0);
	visit(0, 0, 1);
	seen.hold = UINT64_MAX - 1;
	seen.ring = 2;
	fails(seal(UINT64_MAX), GENAI_E_MODULE, &err,
	      "holds 18446744073709551615 bytes, the budget is 5000");
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("paging_bad");
	TCase *tc = tcase_create("all");

	tcase_add_loop_test(tc, bad_page_size, 0,
			    sizeof(sizes) / sizeof(sizes[0]));
	tcase_add_loop_test(tc, pages_too_small_for_the_model, 0, 2);
	tcase_add_test(tc, pages_larger_than_the_model);
	tcase_add_test(tc, very_many_rows);
	tcase_add_loop_test(tc, unsound_visits, 0, 18);
	tcase_add_test(tc, unknown_flags);
	tcase_add_test(tc, work_beyond_all_measure);
	tcase_add_test(tc, many_that_span_all_nodes);
	tcase_add_loop_test(tc, parts_of_a_group, 0, 24);
	tcase_add_loop_test(tc, a_plan_fails, 0, 20);
	tcase_add_loop_test(tc, a_plan_of_nonsense, 0, 4);
	tcase_add_test(tc, a_plan_that_keeps_the_pages);
	tcase_add_test(tc, a_sum_that_overflows);
	suite_add_tcase(s, tc);
	return genai_check_main(s);
}
