// check_cuda_steps.c - what the host does between two tokens: one replay, the
// token's copies, one event, and nothing that allocates or waits for the device
// but reading the token.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/model/model.h"
#include "tests/cuda/cuda_kit.h"

// The sanitizers have allocators of their own, which cannot be stood in for.
#if defined(__GLIBC__) && !GENAI_BUILD_SAN
#define COUNTS_ALLOCATIONS 1

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

static struct {
	bool on;
	uint64_t n;
} allocations;

static void count_allocation(void)
{
	if (allocations.on && !fake.do_inside())
		allocations.n++;
}

void *malloc(size_t n)
{
	count_allocation();
	return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	count_allocation();
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	count_allocation();
	return __libc_realloc(p, n);
}
#endif

#define OK(call)                                                               \
	do {                                                                   \
		int32_t rc_ = (call);                                          \
		ck_assert_msg(!rc_, "%s: %d %s", #call, rc_, r.err.text);      \
	} while (0)

#define TOKENS 40

static const int64_t prompt[] = {1, 5, 9};

static void setup(void)
{
	fake_load();
	fake.do_seed(FAKE_LATE);
}

static struct sim_run begin(int config, const char *model)
{
	struct sim_run r;
	int64_t id;

	cuda_config(&r, config);
	OK(sim_open(&r, model));
	OK(genai_session_append(r.session, prompt, 3, &r.err));
	// warm: the first step of one token is eager, the second recorded
	for (int i = 0; i < 4; i++)
		OK(genai_session_next(r.session, 1, &id, &r.err));
	return r;
}

// Calls of a captured step, whichever pager is under it.
START_TEST(calls_of_a_token)
{
	static const struct {
		const char *name;
		uint64_t n;
	} per_token[] = {
		{"cuGraphLaunch", 1},
		{"cuMemcpyDtoHAsync", 2}, // the token, and its logit
		{"cuEventRecord", 1},
		{"cuEventQuery", 1},
	};
	int configs[] = {1, 3, 5};
	struct sim_run r = begin(configs[_i], CUDA_MODEL);
	struct genai_stats st;
	uint64_t before[4], all, sum = 0;
	int32_t rc = 0;
	int64_t id;

	all = fake.do_calls();
	for (int i = 0; i < 4; i++)
		before[i] = fake.do_count(per_token[i].name);
#ifdef COUNTS_ALLOCATIONS
	allocations.n = 0;
	allocations.on = true;
#endif
	// the test's own assertions allocate
	for (int i = 0; i < TOKENS && !rc; i++)
		rc = genai_session_next(r.session, 1, &id, &r.err);
#ifdef COUNTS_ALLOCATIONS
	allocations.on = false;
	ck_assert_uint_eq(allocations.n, 0);
#endif
	OK(rc);
	for (int i = 0; i < 4; i++) {
		ck_assert_msg(fake.do_count(per_token[i].name) - before[i] ==
				      TOKENS * per_token[i].n,
			      "%s: %lu", per_token[i].name,
			      (unsigned long)(fake.do_count(per_token[i].name) -
					      before[i]));
		sum += TOKENS * per_token[i].n;
	}
	ck_assert_uint_eq(fake.do_calls() - all, sum);
	st = sim_stats(&r);
	ck_assert_uint_eq(st.captures, 1);
	ck_assert_uint_eq(st.n_fallbacks, 0);
	sim_close(&r);
	ck_assert_msg(!fake.do_races(), "%s", fake.do_race());
	ck_assert_uint_eq(fake.do_alive(), 0);
}
END_TEST

// A step that is not recorded waits for nothing either, and takes nothing.
START_TEST(calls_of_an_eager_token)
{
	static const char *const never[] = {
		"cuStreamSynchronize", "cuStreamQuery",
		"cuMemAlloc",	       "cuMemFree",
		"cuMemHostAlloc",      "cuMemFreeHost",
		"cuMemHostRegister",   "cuMemHostUnregister",
		"cuMemCreate",	       "cuMemMap",
		"cuStreamCreate",      "cuEventCreate",
		"cuGraphLaunch",       "cuStreamBeginCapture",
	};
	int configs[] = {0, 2, 4};
	struct sim_run r = begin(configs[_i], CUDA_MODEL);
	uint64_t n = sizeof(never) / sizeof(never[0]), before[16], reads, asks;
	int64_t id;

	for (uint64_t i = 0; i < n; i++)
		before[i] = fake.do_count(never[i]);
	reads = fake.do_count("cuMemcpyDtoHAsync");
	asks = fake.do_count("cuEventQuery");
	for (int i = 0; i < 10; i++)
		OK(genai_session_next(r.session, 1, &id, &r.err));
	for (uint64_t i = 0; i < n; i++)
		ck_assert_msg(fake.do_count(never[i]) == before[i], "%s",
			      never[i]);
	ck_assert_uint_eq(fake.do_count("cuMemcpyDtoHAsync") - reads, 20);
	ck_assert_uint_eq(fake.do_count("cuEventQuery") - asks, 10);
	sim_close(&r);
}
END_TEST

// One recording and no fallback, for every model; where a state is replaced, no
// step runs ahead.
START_TEST(recorded_once)
{
	static const struct {
		const char *model;
		uint64_t replays;
	} c[] = {
		{"llama-cpu-fp32", 10},		{"llama-cpu-int4-asym", 10},
		{"llama-cuda-fp16", 10},	{"mistral-cpu-fp32", 10},
		{"phi3-cpu-int4", 10},		{"qwen2-cpu-int8", 10},
		{"qwen3-cpu-int4", 10},		{"qwen25vl-cpu-int4", 10},
		{"phi3-longrope-cpu-int4", 10}, {"llama-cpu-fp32-kvint4", 10},
		{"gptoss-cpu-int4", 10},	{"lfm2moe-cpu-int4", 9},
		{"lfm2-cpu-int4", 9},		{"qwen35-cpu-int4", 9},
	};
	struct sim_run r = begin(5, c[_i].model);
	struct genai_stats st;
	int64_t id;

	for (int i = 0; i < 4; i++)
		OK(genai_session_next(r.session, 1, &id, &r.err));
	OK(genai_session_append(r.session, prompt, 2, &r.err));
	for (int i = 0; i < 4; i++)
		OK(genai_session_next(r.session, 1, &id, &r.err));
	st = sim_stats(&r);
	ck_assert_uint_eq(st.captures, 1);
	ck_assert_uint_eq(st.n_fallbacks, 0);
	ck_assert_uint_ge(st.replays, c[_i].replays);
	sim_close(&r);
}
END_TEST

// A folder like that of the test data, but for a word of its graph.
static void other_word(const char *model, const char *was, const char *is,
		       const char *dir)
{
	static const char *const files[] = {"model.onnx", "model.onnx.data",
					    "genai_config.json"};
	const size_t n = strlen(was);

	for (int i = 0; i < 3; i++) {
		char path[1024], to[64], *bytes = malloc(1 << 22);
		size_t len;
		FILE *f;

		snprintf(path, sizeof(path), "%s%s/%s", SIM_MODELS, model,
			 files[i]);
		snprintf(to, sizeof(to), "%s/%s", dir, files[i]);
		f = fopen(path, "rb");
		ck_assert(bytes && f);
		len = fread(bytes, 1, 1 << 22, f);
		fclose(f);
		for (size_t k = 0; i == 0 && k + n <= len; k++)
			if (!memcmp(bytes + k, was, n))
				memcpy(bytes + k, is, n);
		f = fopen(to, "wb");
		ck_assert(f && fwrite(bytes, 1, len, f) == len);
		fclose(f);
		free(bytes);
	}
}

static void remove_folder(const char *dir)
{
	static const char *const files[] = {"model.onnx", "model.onnx.data",
					    "genai_config.json"};

	for (int i = 0; i < 3; i++) {
		char path[64];

		snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		unlink(path);
	}
	rmdir(dir);
}

// What it has no kernel for is named before it takes any memory.
START_TEST(refused_by_name)
{
	static const char *const text[] = {
		"cannot open", "k_quant_type PER_ELEMENT beside a quantised"};
	char dir[] = "/tmp/genai-steps-XXXXXX";
	uint64_t taken[2] = {0};

	ck_assert(mkdtemp(dir) != NULL);
	other_word("llama-cpu-fp32-kvint4", "PER_CHANNEL", "PER_ELEMENT", dir);
	for (int i = 0; i < 2; i++) {
		uint64_t before = fake.do_count("cuMemAlloc_v2") +
				  fake.do_count("cuMemCreate");
		struct sim_run r;

		cuda_config(&r, 5);
		ck_assert_int_ne(sim_open_at(&r, i ? dir : "/none-of-them"), 0);
		ck_assert_msg(strstr(r.err.text, text[i]) != NULL, "%s",
			      r.err.text);
		taken[i] = fake.do_count("cuMemAlloc_v2") +
			   fake.do_count("cuMemCreate") - before;
		sim_close(&r);
	}
	ck_assert_uint_eq(taken[0], taken[1]);
	remove_folder(dir);
}
END_TEST

struct launched {
	uint64_t kernels, overlaps;
};

// Kernels of a token, without those that bring constants, and how many of them
// begin while the one before ends.
static struct launched one_token(struct sim_run r)
{
	struct launched n = {fake.do_count("cuLaunchKernelEx") -
				     fake.do_launches("cep_poke_k"),
			     fake.do_overlaps()};
	int64_t id;

	OK(genai_session_next(r.session, 1, &id, &r.err));
	n.kernels = fake.do_count("cuLaunchKernelEx") -
		    fake.do_launches("cep_poke_k") - n.kernels;
	n.overlaps = fake.do_overlaps() - n.overlaps;
	return n;
}

// Launches that nodes in parts take beyond one each, by the sweep: those of
// nodes that have a part which is streamed, and of the others.
struct parts {
	uint64_t streamed, stay;
};

static struct parts parts_of(struct sim_run *r)
{
	const struct genai_paging *p = &r->model->paging;
	const struct genai_visit *v = NULL;
	struct parts n = {0};
	uint32_t n_visits, kind;
	int32_t rc =
		r->rt->exec.plan_visits(r->model->plan, &v, &n_visits, NULL);

	for (uint32_t i = 0, to; !rc && i < p->n_pages; i = to) {
		uint32_t ranges = 0;
		bool stays = true;

		for (to = i;
		     to < p->n_pages && v[p->pages[to].visit].first_node ==
						v[p->pages[i].visit].first_node;
		     to++) {
			ranges +=
				v[p->pages[to].visit].flags &
					GENAI_WEIGHT_ROWS &&
				(to == i || p->pages[to].row_begin !=
						    p->pages[to - 1].row_begin);
			rc = r->rt->pager_ops.resident(p->api.pager, to, &kind,
						       NULL);
			stays = stays && !rc && kind;
		}
		*(stays ? &n.stay : &n.streamed) += ranges ? ranges - 1 : 0;
	}
	ck_assert_int_eq(rc, 0);
	return n;
}

static struct launched later_token(const char *model, const char *budget,
				   struct launched *first, struct parts *parts)
{
	static const int64_t id = 5;
	struct launched n;
	struct sim_run r;

	cuda_init(&r, "eager", "pager_async");
	sim_set(&r, "runtime.weight_budget=%s", budget);
	sim_set(&r, "module.pager_async.page_bytes=4KiB");
	OK(sim_open(&r, model));
	OK(genai_session_append(r.session, &id, 1, &r.err));
	*first = one_token(r);
	one_token(r);
	n = one_token(r);
	*parts = parts_of(&r);
	sim_close(&r);
	return n;
}

// What stays on the device runs at once and without a pause from the first step
// on, whatever else streams.
START_TEST(what_stays_is_fast)
{
	struct launched all, most, few, some, first;
	struct parts p;

	all = later_token(CUDA_MODEL, "100%", &first, &p);
	ck_assert_uint_eq(first.kernels, all.kernels);
	ck_assert_uint_le(all.kernels, all.overlaps + 2);
	most = later_token(CUDA_MODEL, "80%", &first, &p);
	ck_assert_uint_eq(first.kernels, most.kernels);
	few = later_token(CUDA_MODEL, "20%", &first, &p);
	ck_assert_uint_lt(most.kernels, few.kernels);
	ck_assert_uint_le(most.kernels, most.overlaps + 2);
	ck_assert_uint_lt(few.kernels, 2 * few.overlaps);
	// a node whose parts all stay is one launch though parts of others
	// come: a model whose products take parts, and a budget at which both
	// are there
	all = later_token("qwen2-cpu-int8", "100%", &first, &p);
	some = later_token("qwen2-cpu-int8", "42%", &first, &p);
	ck_assert_uint_eq(first.kernels, some.kernels);
	ck_assert_uint_gt(p.stay, 8);
	ck_assert_uint_gt(p.streamed, 0);
	ck_assert_uint_le(some.kernels, all.kernels + p.streamed);
}
END_TEST

// A recording that fails is ended, counted by its reason, and the step runs
// eagerly; once, and every time.
START_TEST(recording_fails)
{
	static const struct {
		const char *call;
		int code;
	} cases[] = {
		{"cuStreamBeginCapture", 2}, {"cuStreamEndCapture", 901},
		{"cuStreamEndCapture", 2},   {"cuGraphInstantiate", 2},
		{"cuGraphInstantiate", 900}, {"cuGraphUpload", 2},
	};
	bool always = _i >= 6;
	int64_t want[CUDA_TALK], got[CUDA_TALK];
	struct genai_stats st;
	struct sim_run r;

	cuda_config(&r, 0);
	OK(sim_open(&r, CUDA_MODEL));
	OK(cuda_talk(&r, want));
	sim_close(&r);
	fake.do_fail_in(cases[_i % 6].call, always ? FAKE_ALWAYS : 1,
			cases[_i % 6].code);
	cuda_config(&r, 5);
	OK(sim_open(&r, CUDA_MODEL));
	OK(cuda_talk(&r, got));
	ck_assert_mem_eq(want, got, sizeof(want));
	st = sim_stats(&r);
	ck_assert_uint_eq(st.captures, always ? 0 : 1);
	ck_assert_uint_eq(st.n_fallbacks, 1);
	ck_assert_str_eq(st.fallbacks[0].reason, "the recording failed");
	ck_assert_uint_ge(st.fallbacks[0].count, always ? 2 : 1);
	sim_close(&r);
	ck_assert_msg(!fake.do_races(), "%s", fake.do_race());
	ck_assert_uint_eq(fake.do_alive(), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cuda_ep steps");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 300);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, calls_of_a_token, 0, 3);
	tcase_add_loop_test(tc, calls_of_an_eager_token, 0, 3);
	tcase_add_loop_test(tc, recorded_once, 0, 14);
	tcase_add_test(tc, refused_by_name);
	tcase_add_test(tc, what_stays_is_fast);
	tcase_add_loop_test(tc, recording_fails, 0, 12);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
