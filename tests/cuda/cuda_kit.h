/* cuda_kit.h - the fake driver's controls, and models on cuda_ep under it. */
#ifndef CEP_TESTS_CUDA_KIT_H
#define CEP_TESTS_CUDA_KIT_H

#include <dlfcn.h>
#include <stdbool.h>

#include "tests/cuda/fake_cuda.h"
#include "tests/unit/harness.h"
#include "tests/unit/sim_run.h"

#define OOM 2		/* CUDA_ERROR_OUT_OF_MEMORY */
#define DEINITIALIZED 4 /* CUDA_ERROR_DEINITIALIZED */
#define ILLEGAL 700	/* CUDA_ERROR_ILLEGAL_ADDRESS */

#define FAKE_CONTROLS(X)                                                       \
	X(void, reset, (void))                                                 \
	X(void, fail, (uint64_t n, int code))                                  \
	X(void, fail_on, (uint64_t n, int code))                               \
	X(void, fail_in, (const char *name, uint64_t n, int code))             \
	X(const char *, failed, (void))                                        \
	X(void, break, (uint64_t n, int code))                                 \
	X(void, drop, (int edge, uint64_t n))                                  \
	X(uint64_t, edges, (int edge))                                         \
	X(int, was_redundant, (void))                                          \
	X(void, devices, (int count, int major, int minor))                    \
	X(void, version, (int version))                                        \
	X(void, any_image, (int on))                                           \
	X(uint64_t, overlaps, (void))                                          \
	X(void, total_bytes, (uint64_t bytes))                                 \
	X(void, copy_ns, (uint64_t ns))                                        \
	X(void, seed, (uint64_t seed))                                         \
	X(void, run_kernels, (int on))                                         \
	X(uint64_t, calls, (void))                                             \
	X(uint64_t, count, (const char *name))                                 \
	X(int, inside, (void))                                                 \
	X(uint64_t, peak, (void))                                              \
	X(uint64_t, alive, (void))                                             \
	X(uint64_t, launches, (const char *name))                              \
	X(int, image, (void))                                                  \
	X(uint64_t, races, (void))                                             \
	X(const char *, race, (void))

static struct {
	void *lib;
#define FAKE_SLOT(type, name, args) type(*do_##name) args;
	FAKE_CONTROLS(FAKE_SLOT)
#undef FAKE_SLOT
} fake;

static inline void *fake_symbol(const char *name)
{
	void *p = dlsym(fake.lib, name);

	ck_assert_msg(p != NULL, "%s", name);
	return p;
}

static inline void fake_load(void)
{
	void *p;

	fake.lib = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(fake.lib != NULL, "%s", dlerror());
#define FAKE_FILL(type, name, args)                                            \
	p = fake_symbol("fake_" #name);                                        \
	memcpy(&fake.do_##name, &p, sizeof(p));
	FAKE_CONTROLS(FAKE_FILL)
#undef FAKE_FILL
	/* without a process per test nothing may be left of the last one */
	fake.do_reset();
}

/* A run of cuda_ep; more settings may follow with sim_set. */
static inline void cuda_init(struct sim_run *r, const char *executor,
			     const char *pager)
{
	sim_init(r, executor, pager);
	r->n_sets = 0;
	sim_set(r, "runtime.module_path=%s", GENAI_TESTMODULES);
	sim_set(r, "runtime.executor=cuda_ep:%s", executor);
	sim_set(r, "runtime.pager=%s", pager);
	sim_set(r, "runtime.stream=cuda_ep");
	sim_set(r, "runtime.barrier=cuda_ep");
	sim_set(r, "module.cuda_ep.driver=%s", FAKE_CUDA);
}

/* A model whose weights stream when they do not fit. */
#define CUDA_MODEL "llama-cpu-int4-asym"

/* A short life: a prompt, tokens, a rewind, a prompt, tokens. */
#define CUDA_TALK 6
static inline int32_t cuda_talk(struct sim_run *r, int64_t ids[CUDA_TALK])
{
	static const int64_t a[] = {1, 5, 9}, b[] = {8, 120};
	int32_t rc = genai_session_append(r->session, a, 3, &r->err);

	if (!rc)
		rc = sim_next(r, ids, 4, 1);
	if (!rc)
		rc = genai_session_rewind(r->session, 3, &r->err);
	if (!rc)
		rc = genai_session_append(r->session, b, 2, &r->err);
	return rc ? rc : sim_next(r, ids + 4, 2, 1);
}

/* The smallest ring that streams: most weights move on every step. */
static inline void cuda_paged(struct sim_run *r, const char *pager)
{
	sim_set(r, "runtime.weight_budget=20%%");
	sim_set(r, "module.%s.page_bytes=4KiB", pager);
}

/* What every configuration is tried in. */
static const struct cuda_config {
	const char *executor, *pager;
	bool paged;
} cuda_configs[] = {
	{"eager", "pager_sync", false}, {"captured", "pager_sync", false},
	{"eager", "pager_sync", true},	{"captured", "pager_sync", true},
	{"eager", "pager_async", true}, {"captured", "pager_async", true},
};
#define CUDA_CONFIGS 6

static inline void cuda_config(struct sim_run *r, int i)
{
	cuda_init(r, cuda_configs[i].executor, cuda_configs[i].pager);
	if (cuda_configs[i].paged)
		cuda_paged(r, cuda_configs[i].pager);
}

#endif
