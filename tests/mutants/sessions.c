// sessions.c - faults of mutant_device's executors that show after thousands of
// steps, with several plans, or when a step is refused: a second layer in front
// of executor.c's tables.
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/mutants/device.h"
#include "tests/mutants/wrap.h"

static struct genai_executor_ops behind[2];
static struct genai_stream_ops stream; // the core's: one for all devices
static void *device;		       // the latest one
static struct genai_pager_ops seen;
static struct genai_pager_api seen_api[16];
static struct genai_pager_ops true_pager;
static uint32_t n_plans, n_steps;
static struct genai_plan *first_plan, *last_plan;
static bool a_plan_went, refused;
static struct genai_view last_out;
static struct genai_point last_signal;

// ---- what it sees of the pager ----

static int32_t acquire(struct genai_pager *p, uint32_t visit,
		       struct genai_stream *s, struct genai_place *out_place,
		       struct genai_point *out_ready, struct genai_error *err)
{
	static struct genai_place last;
	int32_t rc = true_pager.acquire(p, visit, s, out_place, out_ready, err);

	if (!rc)
		last = *out_place;
	if (rc != GENAI_E_LIMIT || !is("refusal-lost"))
		return rc;
	*out_place = last;
	*out_ready = (struct genai_point){NULL, 0};
	return 0;
}

static int32_t release(struct genai_pager *p, uint32_t visit,
		       struct genai_point point, struct genai_error *err)
{
	int32_t rc = true_pager.release(p, visit, point, err);

	return rc && is("refusal-lost") ? 0 : rc;
}

// ---- the tables ----

static void *sleep_for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static int32_t create(const struct genai_executor_ops *ops, void *self,
		      const struct genai_graph *graph,
		      const struct genai_plan_options *options,
		      struct genai_plan **out_plan, struct genai_error *err)
{
	struct genai_plan_options o = *options;
	struct genai_mem mem = {.size = sizeof(mem)};
	uint32_t at = n_plans++ % 16;
	pthread_t t;
	int32_t rc;

	mutant_manners("plan");
	stream = *o.stream->ops;
	device = o.stream->self;
	true_pager = *o.pager->ops;
	seen = *o.pager->ops;
	seen.acquire = acquire;
	seen.release = release;
	seen_api[at] = *o.pager;
	seen_api[at].ops = &seen;
	if (is("refusal-lost"))
		o.pager = &seen_api[at];
	if (is("plan-malloc"))
		mutant_leak(4000);
	if (is("plan-descriptor"))
		(void)open("/dev/null", O_RDONLY);
	if (is("plan-thread"))
		pthread_create(&t, NULL, sleep_for_ever, NULL);
	if (is("plan-host"))
		mutant_host->alloc(mutant_host->ctx, 64, "left");
	if (is("plan-device"))
		stream.alloc(device, GENAI_MEM_DEVICE, 1 << 20, "left", &mem,
			     NULL);
	if (is("plans-8") && n_plans > 8)
		return mutant_fail(err, GENAI_E_LIMIT, "no more plans");
	rc = ops->plan_create(self, graph,
			      options->size < sizeof(o) ? options : &o,
			      out_plan, err);
	if (rc)
		return rc;
	refused = false;
	a_plan_went = false;
	if (!first_plan)
		first_plan = *out_plan;
	return 0;
}

static int32_t destroy(const struct genai_executor_ops *ops,
		       struct genai_plan *p, const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	int32_t rc = ops->plan_destroy(p, ticket, err);

	mutant_manners("destroy");
	if (!rc) {
		a_plan_went = true;
		first_plan = first_plan == p ? NULL : first_plan;
		last_plan = last_plan == p ? NULL : last_plan;
	}
	return rc;
}

static int32_t bind_out(const struct genai_executor_ops *ops,
			struct genai_plan *p, uint32_t i,
			const struct genai_view *view, struct genai_error *err)
{
	last_out = *view;
	return ops->bind_output(p, i, view, err);
}

// A little patience before going on all the same.
static void linger(struct genai_stream *s)
{
	struct timespec pause = {0, 8000000};
	struct genai_point p;

	if (stream.mark(device, s, &p, NULL) ||
	    stream.poll(device, p, NULL) == 0)
		return;
	nanosleep(&pause, NULL);
}

static int32_t submit(const struct genai_executor_ops *ops,
		      struct genai_plan *p, struct genai_stream *s,
		      const struct genai_point *wait, uint32_t n_wait,
		      struct genai_point *out_signal, struct genai_error *err)
{
	struct genai_point unwanted;
	struct genai_plan *to = p;
	int32_t rc;

	if (!out_signal)
		out_signal = &unwanted;
	mutant_manners("submit");
	n_steps++;
	if (is("submit-malloc"))
		mutant_leak(64);
	if (is("submit-descriptor") && n_steps % 100 == 0)
		(void)open("/dev/null", O_RDONLY);
	if (is("submit-lingers"))
		linger(s);
	if ((is("submit-1000") && n_steps > 1000) ||
	    (is("submit-256") && n_steps % 256 == 0) ||
	    (is("session-skips") && last_plan && last_plan != p &&
	     n_steps % 3 == 0)) {
		last_plan = p;
		stream.mark(device, s, out_signal, NULL);
		return 0;
	}
	if ((is("session-last") && last_plan && n_steps % 2) ||
	    (is("session-sticks") && last_plan))
		to = last_plan;
	if (is("session-first") && first_plan)
		to = first_plan;
	if (is("session-binds") && last_out.addr)
		ops->bind_output(p, 0, &last_out, NULL);
	if (is("session-goes") && a_plan_went)
		return mutant_fail(err, GENAI_E_STATE, "it was destroyed");
	if (is("refusal-sticks") && refused)
		return mutant_fail(err, GENAI_E_LIMIT, "it was refused");
	if (is("session-sticks") && !last_plan)
		last_plan = p;
	if (!is("session-sticks"))
		last_plan = p;
	rc = ops->submit(to, s, wait, n_wait, out_signal, err);
	refused |= rc == GENAI_E_LIMIT;
	if (rc == GENAI_E_LIMIT && is("refusal-silent")) {
		*out_signal = last_signal;
		return 0;
	}
	if (rc == GENAI_E_LIMIT && is("refusal-renamed"))
		return mutant_fail(err, GENAI_E_DEVICE, "a step failed");
	if (!rc)
		last_signal = *out_signal;
	return rc;
}

static int32_t stats(const struct genai_executor_ops *ops, struct genai_plan *p,
		     struct genai_exec_stats *out, struct genai_error *err)
{
	int32_t rc = ops->stats(p, out, err);

	if (is("stats-8-bits"))
		out->steps &= 0xff;
	return rc;
}

#define BEHIND(k) (&behind[k])
#define WRAP(k)                                                                \
	WRAP_CREATE(k)                                                         \
	WRAP_DESTROY(k)                                                        \
	WRAP_BIND_OUT(k)                                                       \
	WRAP_SUBMIT(k)                                                         \
	WRAP_STATS(k)

WRAP(0)
WRAP(1)

#define FILL(k)                                                                \
	(behind[k] = executors[k], executors[k].plan_create = create_##k,      \
	 executors[k].plan_destroy = destroy_##k,                              \
	 executors[k].bind_output = bind_out_##k,                              \
	 executors[k].submit = submit_##k, executors[k].stats = stats_##k)

void mutant_wrap_sessions(struct genai_executor_ops *executors, uint32_t n)
{
	if (n != 2)
		abort();
	FILL(0);
	FILL(1);
}
