// check_cuda_engine.c - many requests at once on cuda_ep, under the fake
// driver: each gets the tokens that it gets alone, whoever is beside it,
// however the steps run and wherever the weights are.
#include "tests/unit/engine_kit.h"

#include "core/engine/engine.h"
#include "core/modelgen/modelgen.h"

static struct genai_runtime *cuda_runtime(const char *executor,
					  const char *pager, const char *budget)
{
	char set[8][512];
	const char *sets[8];
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_runtime_options o = {.size = sizeof(o),
					  .config_path = GENAI_TESTDATA
					  "/../../conf/cpu.ini",
					  .sets = sets,
					  .log = keep_log};
	struct genai_runtime *rt = NULL;
	uint32_t n = 0;

#define SET(...) snprintf(set[n++], 512, __VA_ARGS__)
	SET("runtime.module_path=%s", GENAI_TESTMODULES);
	SET("runtime.executor=cuda_ep:%s", executor);
	SET("runtime.stream=cuda_ep");
	SET("runtime.barrier=cuda_ep");
	SET("runtime.pager=%s", pager);
	SET("runtime.weight_budget=%s", budget);
	SET("runtime.check=order");
	SET("module.cuda_ep.driver=%s", FAKE_CUDA);
#undef SET
	for (uint32_t i = 0; i < n; i++)
		sets[i] = set[i];
	o.n_sets = n;
	logged.n = 0;
	ck_assert_msg(!genai_open(&o, &rt, &err), "%s", err.text);
	return rt;
}

// The tokens of all templates, each alone in an engine that has room for one.
static void learn_alone(const char *name)
{
	struct genai_engine_options o = {.size = sizeof(o), .max_sequences = 1};
	struct engine_run r;

	if (wants_of && !strcmp(wants_of, name))
		return;
	engine_on(&r, cuda_runtime("eager", "pager_sync", "auto"), name, &o);
	for (int i = 0; i < TEMPLATES; i++) {
		struct genai_request q = GENAI_REQUEST_INIT;
		uint64_t id;

		wants[i] = make_want(i);
		q.max_tokens = wants[i].new_tokens;
		q.flags = GENAI_REQUEST_NO_CACHE;
		id = submit(&r, &wants[i], &q);
		wait_all(&r);
		memcpy(wants[i].ids, got_of(&r, id, 0)->ids,
		       sizeof(wants[i].ids));
		ck_assert_int_eq((int64_t)got_of(&r, id, 0)->n,
				 wants[i].new_tokens);
		wants[i].known = true;
	}
	wants_of = name;
	engine_close(&r);
}

static const char *const models[] = {"llama-cuda-fp16", "qwen2-cpu-int8",
				     "tiny-llama"};
#define N_MODELS 3

// Half precision and four bits, which the folder of models does not have: made
// here.
static const char *model_of(int i)
{
	static char dir[64], path[96];
	struct genai_synth_options o = {.seed = 3, .layers = 1};
	struct genai_error err = GENAI_ERROR_INIT;

	if (i < N_MODELS - 1)
		return models[i];
	if (!*dir) {
		snprintf(dir, sizeof(dir), "/tmp/genai-engine-XXXXXX");
		ck_assert_ptr_nonnull(mkdtemp(dir));
		snprintf(path, sizeof(path), "%s/%s", dir, models[i]);
		ck_assert_msg(!genai_synth(models[i], path, &o, &err), "%s",
			      err.text);
	}
	return path;
}

static void clean_up(const char *name)
{
	char command[256];

	if (*name != '/')
		return;
	snprintf(command, sizeof(command), "rm -r '%.*s'",
		 (int)(strrchr(name, '/') - name), name);
	ck_assert_int_eq(system(command), 0);
}

// Where two tokens are equally good but for rounding, either may be chosen:
// is it so behind the first n tokens of w?
static bool is_tie(const char *name, const struct want *w, int64_t n,
		   int64_t other)
{
	struct genai_runtime *rt = runtime("eager", "pager_sync", "auto", NULL);
	struct genai_model_info info = {.size = sizeof(info)};
	char path[512];
	struct genai_model *m;
	struct genai_session *s;
	float *logits, gap;
	size_t rows;

	kit_path(path, sizeof(path), name);
	m = model(rt, path, 0);
	s = session(m);
	genai_model_get_info(m, &info);
	logits = malloc(info.vocab_size * sizeof(*logits));
	append(s, w->prompt, w->n_prompt);
	if (n)
		append(s, w->ids, (size_t)n);
	ck_assert(!genai_session_logits(s, logits, 1, &rows, NULL));
	gap = logits[w->ids[n]] - logits[other];
	free(logits);
	genai_session_close(s);
	genai_model_close(m);
	genai_close(rt);
	return gap >= 0 && gap < .02f;
}

// The tokens of the reference, for those whose choice is the best one.
START_TEST(as_reference)
{
	const char *name = model_of(_i);
	struct want cuda[TEMPLATES];
	unsigned ties = 0;

	learn_alone(name);
	memcpy(cuda, wants, sizeof(cuda));
	wants_of = NULL;
	learn(name);
	for (int i = 0; i < TEMPLATES; i += 2)
		for (int64_t k = 0; k < wants[i].new_tokens; k++) {
			if (cuda[i].ids[k] == wants[i].ids[k])
				continue;
			ck_assert_msg(
				is_tie(name, &wants[i], k, cuda[i].ids[k]),
				"template %d, token %d: %d, not %d", i, (int)k,
				(int)cuda[i].ids[k], (int)wants[i].ids[k]);
			ties++;
			break;
		}
	ck_assert_uint_le(ties, 1);
	clean_up(name);
}
END_TEST

// All templates at once: eager and recorded, weights that stay and that do not.
static void at_once(const char *name, bool captured, bool paged)
{
	struct engine_run r;
	uint64_t id[TEMPLATES];

	engine_on(&r,
		  cuda_runtime(captured ? "captured" : "eager",
			       paged ? "pager_async" : "pager_sync",
			       paged ? "30%" : "auto"),
		  name, NULL);
	for (int i = 0; i < TEMPLATES; i++)
		id[i] = submit(&r, &wants[i], NULL);
	wait_all(&r);
	for (int i = 0; i < TEMPLATES; i++)
		check_tokens(&r, id[i], 0, &wants[i], GENAI_FINISH_LENGTH);
	if (captured) { // one recording a number of rows
		struct genai_stats st = {.size = sizeof(st)};

		ck_assert(!genai_engine_get_model_stats(r.e, &st, NULL));
		ck_assert_uint_gt(st.replays, 0);
		ck_assert_uint_le(st.captures, 5);
		ck_assert_uint_eq(st.n_fallbacks, 0);
	}
	engine_close(&r);
}

START_TEST(many)
{
	const char *name = model_of(_i);

	learn_alone(name);
	at_once(name, true, true);
	at_once(name, false, false);
	if (_i == N_MODELS - 1)
		at_once(name, true, false);
	clean_up(name);
}
END_TEST

static struct genai_engine_stats soaked; // of all engines together

static void soak(uint64_t number)
{
	static const uint32_t blocks[] = {1, 3, 4, 7, 16, 32};
	static const uint32_t seqs[] = {2, 3, 8, 16};
	static const char *const execs[] = {"eager", "captured"};
	static const char *const pagers[] = {"pager_sync", "pager_async"};
	uint64_t seed = number * 7919 + 3;
	struct genai_engine_options o = {.size = sizeof(o)};
	struct genai_engine_stats st = {.size = sizeof(st)};
	const char *name = model_of(N_MODELS - 1);
	struct engine_run r;

	learn_alone(name);
	o.block_positions = blocks[rnd(&seed) % 6];
	o.max_sequences = seqs[rnd(&seed) % 4];
	o.speculation = number % 3 ? rnd(&seed) % 9 : 0;
	// the longest request takes 95 positions
	o.max_blocks = (96 + rnd(&seed) % 120) / o.block_positions + 1;
	engine_on(&r,
		  cuda_runtime(execs[rnd(&seed) % 2], pagers[rnd(&seed) % 2],
			       rnd(&seed) % 3 ? "auto" : "40%"),
		  name, &o);
	r.e->likeness = 1;
	episode(&r, &seed, 6);
	ck_assert(!genai_engine_get_stats(r.e, &st));
	ck_assert(st.healthy);
	soaked.preemptions += st.preemptions;
	soaked.cached_tokens += st.cached_tokens;
	soaked.padded_rows += st.padded_rows;
	soaked.guessed += st.guessed;
	engine_close(&r);
}

// Seeds of arrivals, ends, blocks that run out, known beginnings: 40 of them,
// or as many as GENAI_SEEDS says.
#define SEEDS 10 // of a process
START_TEST(alone_or_among_others)
{
	for (int i = 0; i < SEEDS; i++)
		soak((uint64_t)(_i * SEEDS + i));
	clean_up(model_of(N_MODELS - 1));
	ck_assert_uint_gt(soaked.cached_tokens, 0);
	ck_assert_uint_gt(soaked.padded_rows, 0);
	ck_assert_uint_gt(soaked.guessed + soaked.preemptions, 0);
}
END_TEST

int main(void)
{
	const char *more = getenv("GENAI_SEEDS");
	int n = more ? atoi(more) : 40;
	Suite *s = suite_create("cuda engine");
	TCase *reference = tcase_create("reference");
	TCase *all = tcase_create("many");
	TCase *seeds = tcase_create("seeds");

	tcase_set_timeout(reference, 900);
	tcase_set_timeout(all, 900);
	tcase_set_timeout(seeds, 900);
	tcase_add_loop_test(reference, as_reference, 0, N_MODELS);
	tcase_add_loop_test(all, many, 0, N_MODELS);
	tcase_add_loop_test(seeds, alone_or_among_others, 0,
			    (n + SEEDS - 1) / SEEDS);
	suite_add_tcase(s, reference);
	suite_add_tcase(s, all);
	suite_add_tcase(s, seeds);
	return genai_check_main(s);
}
