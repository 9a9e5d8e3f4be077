// check_engine.c - many requests at once: each gets the tokens that it gets
// alone.
#include <genai/engine.h>
#include <poll.h>

#include "core/engine/engine.h"
#include "tests/unit/engine_kit.h"

// ---- one request ----

START_TEST(one)
{
	struct engine_run r;
	struct want w;

	engine_open_on(&r, "eager", "pager_sync", "llama-cpu-fp32", NULL);
	w = template_of(0);
	ck_assert_uint_eq(submit(&r, &w, NULL), 1);
	wait_all(&r);
	check_tokens(&r, 1, 0, &w, GENAI_FINISH_LENGTH);
	engine_close(&r);
}
END_TEST

static const char *const models[] = {"llama-cpu-fp32",	"llama-cpu-int4-asym",
				     "llama-cuda-fp16", "mistral-cpu-fp32",
				     "phi3-cpu-int4",	"qwen2-cpu-int8",
				     "qwen3-cpu-int4"};

// All templates at once, on every model and both executors.
START_TEST(many)
{
	struct engine_run r;
	uint64_t id[TEMPLATES];

	engine_open_on(&r, _i & 1 ? "captured" : "eager",
		       _i & 2 ? "pager_async" : "pager_sync", models[_i / 2],
		       NULL);
	for (int i = 0; i < TEMPLATES; i++) {
		struct want w = template_of(i);

		id[i] = submit(&r, &w, NULL);
	}
	wait_all(&r);
	for (int i = 0; i < TEMPLATES; i++) {
		struct want w = template_of(i);

		check_tokens(&r, id[i], 0, &w, GENAI_FINISH_LENGTH);
	}
	if (_i & 1) { // the steps of few rows were recorded, and replayed
		struct genai_stats st = {.size = sizeof(st)};

		ck_assert(!genai_engine_get_model_stats(r.e, &st, NULL));
		ck_assert_uint_gt(st.replays, 0);
		ck_assert_uint_le(st.captures, 5);
		ck_assert_uint_eq(st.n_fallbacks, 0);
	}
	engine_close(&r);
}
END_TEST

// ---- whatever happens beside it ----

#define EPISODES 40 // of an engine

struct asked {
	uint64_t id;
	struct want w;
	uint32_t n;
	bool may_end; // cancelled, or with a deadline
};

// Some requests, at random times, some of which are cancelled.
static void episode(struct engine_run *r, uint64_t *seed)
{
	static const char *const salts[] = {NULL, "a", "b"};
	struct asked a[12];
	uint32_t n = 2 + rnd(seed) % 10;

	for (uint32_t i = 0; i < n; i++) {
		struct genai_request q = GENAI_REQUEST_INIT;
		struct asked *x = &a[i];

		*x = (struct asked){
			.w = template_of((int)(rnd(seed) % TEMPLATES))};
		q.max_tokens = x->w.new_tokens;
		q.priority = (int32_t)(rnd(seed) % 3);
		q.salt = salts[rnd(seed) % 8 % 3];
		q.flags = rnd(seed) % 6 ? 0 : GENAI_REQUEST_NO_CACHE;
		x->n = q.n = x->w.sampling.do_sample ? 1 : 1 + rnd(seed) % 2;
		if (!(rnd(seed) % 12)) {
			q.deadline_ms = 1 + rnd(seed) % 4;
			x->may_end = true;
		}
		x->id = submit(r, &x->w, &q);
		for (uint32_t k = rnd(seed) % 30; k; k--)
			take(r, rnd(seed) % 4 ? 0 : 1);
		if (!(rnd(seed) % 5)) {
			struct asked *y = &a[rnd(seed) % (i + 1)];

			ck_assert(!genai_engine_cancel(r->e, y->id, NULL));
			y->may_end = true;
		}
	}
	wait_all(r);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t c = 0; c < a[i].n; c++) {
			const struct got *g = got_of(r, a[i].id, c);

			if (a[i].may_end && g->finish >= GENAI_FINISH_CANCELLED)
				check_prefix(g, &a[i].w);
			else
				check_tokens(r, a[i].id, c, &a[i].w,
					     GENAI_FINISH_LENGTH);
		}
	forget_all(r);
}

static struct genai_engine_stats soaked; // of all engines together

static void soak(uint64_t number, bool faults)
{
	static const uint32_t blocks[] = {1, 3, 4, 7, 16, 32};
	static const uint32_t seqs[] = {1, 2, 3, 8, 16};
	uint64_t seed = number * 7919 + 3;
	struct genai_engine_options o = {.size = sizeof(o)};
	struct genai_engine_stats st = {.size = sizeof(st)};
	struct genai_runtime *rt;
	struct engine_run r;

	learn(models[number % 2]);
	rt = seeded_runtime(number, faults);
	o.block_positions = blocks[rnd(&seed) % 6];
	o.max_sequences = seqs[rnd(&seed) % 5];
	// the longest request takes 95 positions
	o.max_blocks = (96 + rnd(&seed) % 120) / o.block_positions + 1;
	engine_on(&r, rt, models[number % 2], &o);
	for (int i = 0; i < EPISODES; i++)
		episode(&r, &seed);
	ck_assert(!genai_engine_get_stats(r.e, &st));
	ck_assert(st.healthy);
	soaked.preemptions += st.preemptions;
	soaked.cached_tokens += st.cached_tokens;
	soaked.device_errors += st.device_errors;
	soaked.padded_rows += st.padded_rows;
	engine_close(&r);
}

// 2,000 seeds of arrivals, borders of chunks, ends, blocks that run out, known
// beginnings, a device that fails: a request gets the tokens that it gets
// alone, and all blocks are given back.
START_TEST(alone_or_among_others)
{
	for (int i = 0; i < 5; i++)
		soak((uint64_t)(_i * 5 + i), i % 2);
	// it was about something
	ck_assert_uint_gt(soaked.preemptions, 10);
	ck_assert_uint_gt(soaked.cached_tokens, 500);
	ck_assert_uint_gt(soaked.device_errors, 0);
	ck_assert_uint_gt(soaked.padded_rows, 50);
}
END_TEST

// ---- what the above would find ----

enum mutant {
	STALE_TABLE = 1, // that of the step before
	FREED_EARLY,	 // a block that is still used
	SHARED_WRITTEN,	 // a found block is given out for writing
	LENGTH_LATE,	 // one position too few
	PADDING_WRITES	 // at the beginning of the first sequence
};

static struct {
	enum mutant is;
	struct genai_engine *e;
	int32_t table[64 * 1024];
	uint64_t root; // of what was found last
	int64_t ids[4];
	bool shared[64]; // blocks that were given out so
	uint32_t found, calls;
	int32_t (*copy)(void *self, struct genai_stream *stream, genai_addr dst,
			genai_addr src, uint64_t bytes, uint32_t kind,
			struct genai_error *err);
} mutant;

uint32_t __real_eng_blocks_take(struct eng_blocks *p);
uint32_t __real_eng_blocks_find(struct eng_blocks *p, uint64_t root,
				const int64_t *ids, uint32_t n, uint32_t *out,
				uint64_t *out_serial);
uint64_t __real_eng_blocks_keep(struct eng_blocks *p, uint32_t block,
				uint64_t before, const int64_t *ids);

uint32_t __wrap_eng_blocks_take(struct eng_blocks *p);
uint32_t __wrap_eng_blocks_find(struct eng_blocks *p, uint64_t root,
				const int64_t *ids, uint32_t n, uint32_t *out,
				uint64_t *out_serial);
uint64_t __wrap_eng_blocks_keep(struct eng_blocks *p, uint32_t block,
				uint64_t before, const int64_t *ids);

uint32_t __wrap_eng_blocks_take(struct eng_blocks *p)
{
	uint64_t serial;
	uint32_t b;

	if (mutant.is == SHARED_WRITTEN && mutant.found &&
	    !(++mutant.calls % 3) &&
	    __real_eng_blocks_find(p, mutant.root, mutant.ids, 1, &b,
				   &serial)) {
		mutant.shared[b] = true;
		return b;
	}
	return __real_eng_blocks_take(p);
}

uint32_t __wrap_eng_blocks_find(struct eng_blocks *p, uint64_t root,
				const int64_t *ids, uint32_t n, uint32_t *out,
				uint64_t *out_serial)
{
	n = __real_eng_blocks_find(p, root, ids, n, out, out_serial);
	mutant.found += n;
	if (n) {
		mutant.root = root;
		memcpy(mutant.ids, ids, sizeof(mutant.ids));
	}
	return n;
}

uint64_t __wrap_eng_blocks_keep(struct eng_blocks *p, uint32_t block,
				uint64_t before, const int64_t *ids)
{
	if (mutant.is == FREED_EARLY && !(++mutant.calls % 3))
		eng_blocks_drop(p, block);
	if (mutant.is == SHARED_WRITTEN && mutant.shared[block])
		return before + 1; // it is in the books already
	return __real_eng_blocks_keep(p, block, before, ids);
}

static void spoil(struct genai_engine *e, char *stage)
{
	const struct eng_step *t = &e->step;
	const struct genai_packing *k = &e->m->packing;
	size_t n = (size_t)k->seqs * k->per_seq;
	int32_t *table = (int32_t *)(void *)(stage + t->table_at);
	int32_t *past = (int32_t *)(void *)(stage + t->past_at);
	int32_t *first = (int32_t *)(void *)(stage + t->first_at);
	uint32_t b = 0;

	if (mutant.is == STALE_TABLE) {
		for (size_t i = 0; i < n; i++) {
			int32_t now = table[i];

			table[i] = mutant.table[i];
			mutant.table[i] = now;
		}
	} else if (mutant.is == LENGTH_LATE) {
		for (; b < k->seqs; b++)
			past[b] -= past[b] > 0;
	} else if (mutant.is == PADDING_WRITES) {
		while (b < k->seqs && first[b] < (int32_t)e->rows)
			b++;
		if (b == k->seqs || t->rows == e->rows)
			return;
		memcpy(table + (size_t)b * k->per_seq, table,
		       k->per_seq * sizeof(*table));
		for (b++; b <= k->seqs; b++)
			first[b] = (int32_t)t->rows;
	}
}

static int32_t spoiling_copy(void *self, struct genai_stream *stream,
			     genai_addr dst, genai_addr src, uint64_t bytes,
			     uint32_t kind, struct genai_error *err)
{
	struct genai_engine *e = mutant.e;

	if (e && src == (uintptr_t)e->step.stage.host)
		spoil(e, e->step.stage.host);
	return mutant.copy(self, stream, dst, src, bytes, kind, err);
}

START_TEST(mutants)
{
	struct genai_engine_options o = {.size = sizeof(o),
					 .block_positions = 4,
					 .max_sequences = 8,
					 .max_blocks = 40};
	struct engine_run r;
	uint64_t seed = 11;

	learn(models[0]);
	engine_on(&r, seeded_runtime(4, false), models[0], &o);
	mutant.copy = r.rt->device.raw.copy;
	r.rt->device.raw.copy = spoiling_copy;
	mutant.e = r.e;
	tolerant = true;
	// nothing is wrong yet
	for (int i = 0; i < 3; i++)
		episode(&r, &seed);
	ck_assert_uint_eq(differs, 0);
	mutant.is = (enum mutant)_i;
	for (int i = 0; i < 20 && !differs; i++)
		episode(&r, &seed);
	ck_assert_uint_gt(differs, 0);
	mutant.is = 0;
	mutant.e = NULL;
	engine_close(&r);
	tolerant = false;
	differs = 0;
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, one);
	tcase_add_loop_test(tc, many, 0, 14);
	tcase_add_loop_test(tc, alone_or_among_others, 0, 10);
	tcase_add_loop_test(tc, mutants, STALE_TABLE, PADDING_WRITES + 1);
	suite_add_tcase(s, tc);
	return genai_check_main(s);
}
