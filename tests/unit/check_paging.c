// check_paging.c - grouping weights into pages, against an executor and a pager
// that only write down what they are told.
#include <stdlib.h>
#include <unistd.h>

#include "core/base/mapping.h"
#include "tests/unit/paging_kit.h"

// ---- pages ----

START_TEST(small_ones_share_a_page)
{
	begin("1MiB", NULL);
	tensors(1000, 0);
	for (uint32_t i = 0; i < 6; i++)
		visit(i, i, 1);
	sealed(UINT64_MAX);
	whole_sweep();
	ck_assert_uint_eq(seen.n_pages, 1);
	ck_assert_uint_eq(seen.pages[0].n, 6);
	for (uint32_t i = 0; i < 6; i++) {
		ck_assert_uint_eq(seen.pages[0].e[i].place, i * 1008);
		ck_assert_uint_eq(seen.sweep[i].offset, i * 1008);
		ck_assert_uint_eq(seen.pages[0].e[i].bytes, 1000);
		ck_assert_ptr_eq(seen.pages[0].e[i].src, data + 256 + i * 1000);
	}
	ck_assert_uint_eq(seen.pages[0].bytes, 5 * 1008 + 1000);
	ck_assert_uint_eq(paging.weights_bytes, 6000);
	ck_assert_uint_eq(seen.budget, 1 << 20);
	end();
}
END_TEST

START_TEST(pages_of_a_given_size)
{
	begin("1MiB", "module.pager_sync.page_bytes=8KiB");
	tensors(4096, 0);
	for (uint32_t i = 0; i < 6; i++)
		visit(i, i, 1);
	sealed(UINT64_MAX);
	whole_sweep();
	ck_assert_uint_eq(seen.n_pages, 3);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_uint_eq(seen.pages[i].bytes, 8192);
	end();
}
END_TEST

START_TEST(auto_pages_follow_the_budget)
{
	begin("128KiB", NULL);
	tensors(4096, 0);
	for (uint32_t i = 0; i < 6; i++)
		visit(i, i, 1);
	sealed(UINT64_MAX);
	// a sixteenth of the budget
	for (uint32_t i = 0; i < seen.n_pages; i++)
		ck_assert_uint_le(seen.pages[i].bytes, 8192);
	ck_assert_uint_eq(seen.n_pages, 3);
	end();
}
END_TEST

START_TEST(large_matrices_are_cut)
{
	uint32_t rows = _i ? 20 : 24;

	begin("1MiB", "module.pager_sync.page_bytes=8KiB");
	tensors(40000, 0); // 100 rows of 400 bytes
	visit(0, 0, 100)->flags |= _i ? GENAI_WEIGHT_ANY_ROWS : 0;
	sealed(UINT64_MAX);
	whole_sweep();
	// five tiles of at least 20 rows; cut at multiples of eight, or
	// anywhere
	ck_assert_uint_eq(seen.n_pages, 5);
	for (uint32_t i = 0; i < 5; i++) {
		ck_assert_uint_eq(seen.parts[i].row_begin, i * rows);
		ck_assert_uint_eq(seen.parts[i].row_end,
				  i < 4 ? (i + 1) * rows : 100);
		ck_assert_ptr_eq(seen.pages[i].e[0].src,
				 data + 256 + (size_t)i * rows * 400);
		ck_assert_uint_eq(seen.pages[i].flags, 0);
	}
	end();
}
END_TEST

// A matrix, its scales, its zero points: the same rows in the same page.
START_TEST(groups_are_cut_together)
{
	begin("1MiB", "module.pager_sync.page_bytes=16KiB");
	tensors(32000, 0);
	for (uint32_t i = 0; i < 3; i++)
		visit(i, 0, 80)->group = 7;
	sealed(UINT64_MAX);
	whole_sweep();
	for (uint32_t i = 0; i < seen.n_parts; i += 3) {
		for (uint32_t k = 1; k < 3; k++) {
			ck_assert_uint_eq(seen.parts[i].row_begin,
					  seen.parts[i + k].row_begin);
			ck_assert_uint_eq(seen.parts[i].row_end,
					  seen.parts[i + k].row_end);
			ck_assert_uint_eq(seen.sweep[i].page,
					  seen.sweep[i + k].page);
		}
	}
	ck_assert_uint_eq(seen.pages[0].n, 3);
	end();
}
END_TEST

START_TEST(large_ones_that_cannot_be_cut)
{
	begin("1MiB", "module.pager_sync.page_bytes=8KiB");
	tensors(40000, 0);
	visit(0, 0, 1);
	visit(1, 1, 1);
	sealed(UINT64_MAX);
	// whole: whether there are slots for them is the pager's
	ck_assert_uint_eq(seen.n_pages, 2);
	ck_assert_uint_eq(seen.pages[0].bytes, 40000);
	ck_assert_uint_eq(seen.pages[0].flags, 0);
	ck_assert_uint_eq(seen.pages[1].flags, 0);
	end();
}
END_TEST

START_TEST(gathered_ones_are_never_streamed)
{
	begin("1MiB", NULL);
	tensors(1000, 0);
	visit(0, 0, 1);
	visit(1, 1, 1)->flags = GENAI_WEIGHT_GATHER;
	visit(2, 2, 1);
	sealed(UINT64_MAX);
	whole_sweep();
	ck_assert_uint_eq(seen.n_pages, 3);
	ck_assert_uint_eq(seen.pages[0].flags, 0);
	ck_assert_uint_eq(seen.pages[1].flags, GENAI_PAGE_NO_STREAM);
	ck_assert_uint_eq(seen.pages[2].flags, 0);
	end();
}
END_TEST

// A tensor that two nodes read has one page, visited twice.
START_TEST(shared_tensors)
{
	begin("1MiB", NULL);
	tensors(1000, 0);
	visit(0, 0, 1);
	visit(1, 1, 1);
	visit(0, 5, 1);
	sealed(UINT64_MAX);
	ck_assert_uint_eq(seen.n_pages, 2);
	ck_assert_uint_eq(seen.sweep[0].page, seen.sweep[2].page);
	ck_assert_uint_ne(seen.sweep[0].page, seen.sweep[1].page);
	ck_assert_uint_eq(seen.pages[seen.sweep[0].page].flags,
			  GENAI_PAGE_NO_STREAM);
	ck_assert_uint_eq(paging.weights_bytes, 2000);
	end();
}
END_TEST

// Bytes that no kernel could load where they lie are copied once.
START_TEST(odd_offsets)
{
	begin("1MiB", NULL);
	tensors(1000, 3);
	for (uint32_t i = 0; i < 6; i++)
		visit(i, i, 1);
	sealed(UINT64_MAX);
	for (uint32_t i = 0; i < 6; i++)
		ck_assert_int_eq(seen.pages[0].e[i].fill != NULL, i % 4 != 0);
	end();
}
END_TEST

// What lies in a mapped file can be read there; what does not is of no file.
START_TEST(files)
{
	char path[] = "/tmp/genai-paging-XXXXXX", bytes[16];
	struct genai_mapping *m;
	int fd = mkstemp(path);

	memset(data, 'f', 65536);
	data[256 + 1000] = 'g';
	ck_assert_int_eq(write(fd, data, 65536), 65536);
	ck_assert_int_eq(genai_mapping_from_fd(fd, path, &m, &err), 0);
	close(fd);
	unlink(path);
	begin("1MiB", NULL);
	if (_i)
		tensors(1000, 0);
	else
		tensors_of(genai_mapping_data(m), 65536, 1000, 0);
	for (uint32_t i = 0; i < 6; i++)
		visit(i, i, 1);
	sealed(UINT64_MAX);
	for (uint32_t i = 0; i < 6; i++) {
		const struct genai_extent *e = &seen.pages[0].e[i];

		if (_i) {
			ck_assert_uint_eq(e->file, 0);
			continue;
		}
		ck_assert_uint_eq(e->file_offset, 256 + i * 1000);
		ck_assert_int_eq(
			pread((int)e->file, bytes, 16, (off_t)e->file_offset),
			16);
		ck_assert_mem_eq(bytes, e->src, 16);
	}
	end();
	genai_mapping_close(m);
}
END_TEST

// ---- groupings that the pager likes better ----

static void begin_choice(uint32_t best)
{
	begin("20KiB", "module.pager_sync.page_bytes=8KiB");
	rt->pager_ops.plan = fake_plan;
	seen.best = best;
}

START_TEST(pages_filled)
{
	begin_choice(1);
	tensors(40000, 0); // 100 rows of 400 bytes
	for (uint32_t i = 0; i < 6; i++)
		visit(i, i, 100)->flags |= GENAI_WEIGHT_ANY_ROWS;
	sealed(UINT64_MAX);
	whole_sweep();
	ck_assert_uint_gt(seen.n_plans, 4);
	ck_assert_uint_eq(seen.n_pages, 30); // 20 rows each: 8000 bytes
	for (uint32_t i = 0; i < 30; i++)
		ck_assert_uint_eq(seen.pages[i].bytes, 8000);
	end();
}
END_TEST

// A head that is the embedding, too: cut apart from it.
START_TEST(tied_ones_apart)
{
	begin_choice(_i ? 2 : 0);
	tensors(40000, 0);
	visit(0, 0, 1)->flags = GENAI_WEIGHT_GATHER;
	visit(1, 1, 100);
	visit(0, 5, 100);
	sealed(UINT64_MAX);
	whole_sweep();
	ck_assert_uint_eq(seen.n_pages, _i ? 11 : 6);
	ck_assert_uint_eq(seen.pages[0].bytes, 40000);
	ck_assert_uint_eq(seen.pages[0].flags, GENAI_PAGE_NO_STREAM);
	for (uint32_t i = 1; i < seen.n_pages; i++)
		ck_assert_uint_eq(seen.pages[i].flags, 0);
	ck_assert_uint_eq(seen.sweep[0].bytes, 0);
	ck_assert_uint_eq(paging.weights_bytes, 80000);
	ck_assert_uint_eq(paging.read_bytes, 80000);
	end();
}
END_TEST

// What is filled only as parts is left alone whole.
START_TEST(cut_if_better)
{
	struct genai_visit *v;

	begin_choice(_i ? 2 : 0);
	tensors(40000, 0);
	v = visit(0, 0, 100);
	v->flags |= GENAI_WEIGHT_FILL_PARTS;
	v->fill = fill;
	visit(1, 1, 1);
	sealed(UINT64_MAX);
	whole_sweep();
	ck_assert_uint_eq(seen.n_pages, _i ? 6 : 2);
	for (uint32_t i = 0; i < seen.n_pages; i++)
		ck_assert_int_eq(seen.pages[i].e[0].fill != NULL,
				 _i && i + 1 < seen.n_pages);
	end();
}
END_TEST

// What a step does between the visits, tile by tile.
START_TEST(work_between_visits)
{
	struct genai_visit *v;

	begin("1MiB", "module.pager_sync.page_bytes=16KiB");
	tensors(32000, 0);
	visit(0, 0, 1)->units_before = 2;
	v = visit(1, 3, 80);
	v->units_before = 3;
	v->bytes_before = 100;
	v->work_bytes = 7;
	v = visit(2, 3, 80);
	v->group = v[-1].group;
	v->units_after = 4;
	sealed(UINT64_MAX);
	whole_sweep();
	ck_assert_uint_eq(seen.n_sweep, 9); // four tiles of two
	ck_assert_uint_eq(seen.sweep[0].units, 3);
	ck_assert_uint_eq(seen.sweep[1].units, 4);
	ck_assert_uint_eq(seen.sweep[1].work_bytes, 107);
	for (uint32_t i = 2; i < 9; i++) {
		ck_assert_uint_eq(seen.sweep[i].units, i % 2);
		ck_assert_uint_eq(seen.sweep[i].work_bytes, i % 2 ? 7 : 0);
	}
	ck_assert_uint_eq(seen.sweep[8].units_after, 4);
	end();
}
END_TEST

START_TEST(another_layout_on_the_device)
{
	struct genai_visit *v;

	begin("1MiB", "module.pager_sync.page_bytes=16KiB");
	tensors(40000, 0);
	v = visit(0, 0, 100);
	v->device_bytes = 51200; // 512 a row instead of 400
	v->fill = fill;
	v->fill_ctx = &seen;
	sealed(UINT64_MAX);
	whole_sweep();
	for (uint32_t i = 0; i < seen.n_pages; i++) {
		const struct genai_extent *e = &seen.pages[i].e[0];
		uint64_t rows = seen.parts[i].row_end - seen.parts[i].row_begin;

		ck_assert_ptr_eq((void *)(uintptr_t)e->fill,
				 (void *)(uintptr_t)fill);
		ck_assert_ptr_eq(e->ctx, &seen);
		ck_assert_uint_eq(e->src_bytes, rows * 400);
		ck_assert_uint_eq(e->bytes, rows * 512);
	}
	ck_assert_uint_eq(paging.weights_bytes, 51200);
	end();
}
END_TEST

// Shared memory and no budget: every tensor stays where it is.
START_TEST(in_place_each_apart)
{
	begin("auto", NULL);
	tensors(1000, 0);
	for (uint32_t i = 0; i < 6; i++)
		visit(i, i, 1);
	sealed(UINT64_MAX);
	ck_assert_uint_eq(seen.n_pages, 6);
	ck_assert_uint_eq(seen.budget, UINT64_MAX);
	end();
}
END_TEST

// ---- budgets ----

static const struct {
	const char *text;
	uint64_t room, bytes;
} budgets[] = {
	{"0", UINT64_MAX, 0},	    {"5000", UINT64_MAX, 5000},
	{"4KiB", UINT64_MAX, 4096}, {"50%", UINT64_MAX, 3000},
	{"0.1%", UINT64_MAX, 6},    {"100%", UINT64_MAX, UINT64_MAX - 1},
	{"auto", 777, 777},	    {"777B", 777, 777},
};

START_TEST(budget)
{
	begin(budgets[_i].text, NULL);
	tensors(1000, 0);
	for (uint32_t i = 0; i < 6; i++)
		visit(i, i, 1);
	sealed(budgets[_i].room);
	ck_assert_uint_eq(seen.budget, budgets[_i].bytes);
	end();
}
END_TEST

START_TEST(more_than_there_is_room_for)
{
	begin("5000", NULL);
	tensors(1000, 0);
	visit(0, 0, 1);
	fails(seal(4999), GENAI_E_CONFIG, &err,
	      "is 5000 bytes, but device_limit leaves 4999 for weights");
	end();
}
END_TEST

START_TEST(the_pager_keeps_to_it)
{
	begin("5000", NULL);
	tensors(1000, 0);
	visit(0, 0, 1);
	seen.hold = 5001;
	fails(seal(UINT64_MAX), GENAI_E_MODULE, &err,
	      "holds 5001 bytes, the budget is 5000");
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("paging");
	TCase *tc = tcase_create("all");

	tcase_add_test(tc, small_ones_share_a_page);
	tcase_add_test(tc, pages_of_a_given_size);
	tcase_add_test(tc, auto_pages_follow_the_budget);
	tcase_add_loop_test(tc, large_matrices_are_cut, 0, 2);
	tcase_add_test(tc, groups_are_cut_together);
	tcase_add_test(tc, large_ones_that_cannot_be_cut);
	tcase_add_test(tc, gathered_ones_are_never_streamed);
	tcase_add_test(tc, shared_tensors);
	tcase_add_test(tc, pages_filled);
	tcase_add_loop_test(tc, tied_ones_apart, 0, 2);
	tcase_add_loop_test(tc, cut_if_better, 0, 2);
	tcase_add_test(tc, work_between_visits);
	tcase_add_test(tc, odd_offsets);
	tcase_add_loop_test(tc, files, 0, 2);
	tcase_add_test(tc, another_layout_on_the_device);
	tcase_add_test(tc, in_place_each_apart);
	tcase_add_loop_test(tc, budget, 0,
			    sizeof(budgets) / sizeof(budgets[0]));
	tcase_add_test(tc, more_than_there_is_room_for);
	tcase_add_test(tc, the_pager_keeps_to_it);
	suite_add_tcase(s, tc);
	return genai_check_main(s);
}
