/* sim_device.h - the simulated device without a model, for tests: streams,
 * memory, units that say when they ran. */
#ifndef GENAI_TESTS_SIM_DEVICE_H
#define GENAI_TESTS_SIM_DEVICE_H

#include <inttypes.h>

#include "core/runtime.h"
#include "tests/unit/harness.h"
#include "tests/unit/sim_run.h"

static struct sim_run sim;
static struct genai_device *dev;
static const struct genai_stream_ops *ops; /* the core's */
static const struct genai_barrier_ops *bar;
static struct genai_error err;

static const struct genai_range all_bytes = {0, GENAI_RANGE_ALL_BYTES};

/* Open with further settings, NULL-terminated. */
static inline int32_t try_device(const char *const *sets)
{
	struct genai_runtime_options o = {
		.size = sizeof(o), .log = sim_log, .log_ctx = &sim};
	int32_t rc;

	sim_init(&sim, "eager", "pager_async");
	for (; sets && *sets; sets++)
		sim_set(&sim, "%s", *sets);
	o.sets = sim.sets;
	o.n_sets = sim.n_sets;
	err = (struct genai_error)GENAI_ERROR_INIT;
	rc = genai_open(&o, &sim.rt, &err);
	if (rc)
		return rc;
	dev = &sim.rt->device;
	ops = dev->stream.ops;
	bar = dev->barrier.ops;
	return 0;
}

#define SETS(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline void open_device(const char *const *sets)
{
	int32_t rc = try_device(sets);

	ck_assert_msg(!rc, "%s", err.text);
}

static inline void close_device(void)
{
	genai_close(sim.rt);
	ck_assert_str_eq(sim.log, "");
}

#define OK(call)                                                               \
	do {                                                                   \
		int32_t rc_ = (call);                                          \
		ck_assert_msg(!rc_, "%s: %d %s", #call, rc_, err.text);        \
	} while (0)
#define FAILS(code, call)                                                      \
	do {                                                                   \
		err = (struct genai_error)GENAI_ERROR_INIT;                    \
		ck_assert_int_eq((call), (code));                              \
	} while (0)

static inline struct genai_mem take(uint32_t kind, uint64_t bytes)
{
	struct genai_mem m = {.size = sizeof(m)};

	OK(ops->alloc(dev, kind, bytes, GENAI_TAG_WORKSPACE, &m, &err));
	return m;
}

static inline struct genai_ticket drain_all(void)
{
	struct genai_ticket t = {.size = sizeof(t)};

	OK(bar->drain(dev, all_bytes, UINT64_MAX, &t, &err));
	return t;
}

static inline void give(struct genai_mem *m)
{
	struct genai_ticket t = drain_all();

	OK(ops->free(dev, m->range.addr, &t, &err));
}

static inline struct genai_stream *stream(const char *name)
{
	struct genai_stream *s = NULL;

	OK(ops->create(dev, name, &s, &err));
	return s;
}

static inline void end_stream(struct genai_stream *s)
{
	drain_all();
	OK(ops->destroy(dev, s, &err));
}

static inline struct genai_point mark(struct genai_stream *s)
{
	struct genai_point p;

	OK(ops->mark(dev, s, &p, &err));
	return p;
}

static inline void after(struct genai_stream *s, struct genai_point p)
{
	OK(ops->wait(dev, s, p, &err));
}

static inline void reach(struct genai_point p)
{
	OK(bar->host_read(dev, &p, 1, UINT64_MAX, &err));
}

/* Units write their letters here as they run. */
static struct {
	pthread_mutex_t lock;
	char text[256];
	uint32_t n;
} ran = {.lock = PTHREAD_MUTEX_INITIALIZER};

static inline int32_t say(void *ctx, void *const *mem, struct genai_error *e)
{
	(void)mem;
	(void)e;
	pthread_mutex_lock(&ran.lock);
	if (ran.n + 1 < sizeof(ran.text))
		ran.text[ran.n++] = *(const char *)ctx;
	ran.text[ran.n] = 0;
	pthread_mutex_unlock(&ran.lock);
	return 0;
}

static inline void say_nothing_yet(void)
{
	ran.n = 0;
	ran.text[0] = 0;
}

static inline int32_t try_unit(struct genai_stream *s, const char *name,
			       genai_addr addr, uint64_t bytes, uint32_t flags)
{
	struct genai_work w = {sizeof(w), (uint32_t)*name, name, say,
			       (void *)(uintptr_t)name};
	struct genai_access a = {addr, bytes, flags, 0};

	return ops->launch(dev, s, &w, &a, bytes ? 1 : 0, &err);
}

static inline void unit(struct genai_stream *s, const char *name,
			genai_addr addr, uint64_t bytes, uint32_t flags)
{
	OK(try_unit(s, name, addr, bytes, flags));
}

#endif
