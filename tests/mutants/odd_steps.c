// odd_steps.c - faults of mutant_device's executors that need a history: the
// fourth plan, an error before, shapes and addresses that come back, addresses
// that are no multiple.  The outermost layer.
#include <stdbool.h>

#include "tests/mutants/device.h"
#include "tests/mutants/wrap.h"

#define MOST 16u

static struct genai_executor_ops behind[2];
static struct genai_stream_ops stream; // the core's
static void *device;
static uint32_t n_plans, n_errors;

// Of a plan.
static struct of {
	struct genai_plan *plan;
	uint32_t nth, n_in, n_out, steps;
	struct genai_view in[MOST], out[MOST], old_in[MOST], older_in[MOST];
	struct genai_view old_out[MOST], older_out[MOST];
} plans[16];

static struct of *of(const struct genai_plan *p)
{
	uint32_t i = 0;

	while (i < 15 && plans[i].plan != p)
		i++;
	return &plans[i];
}

static int32_t create(const struct genai_executor_ops *ops, void *self,
		      const struct genai_graph *graph,
		      const struct genai_plan_options *options,
		      struct genai_plan **out_plan, struct genai_error *err)
{
	int32_t rc = ops->plan_create(self, graph, options, out_plan, err);
	struct of *o;

	if (rc)
		return rc;
	stream = *options->stream->ops;
	device = options->stream->self;
	o = of(NULL);
	memset(o, 0, sizeof(*o));
	o->plan = *out_plan;
	o->nth = ++n_plans;
	o->n_in = graph->n_inputs < MOST ? graph->n_inputs : MOST;
	o->n_out = graph->n_outputs < MOST ? graph->n_outputs : MOST;
	return 0;
}

static int32_t destroy(const struct genai_executor_ops *ops,
		       struct genai_plan *p, const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	uint32_t newest = 0;
	int32_t rc;

	for (uint32_t i = 0; i < 16; i++)
		if (plans[i].plan && plans[i].nth > newest)
			newest = plans[i].nth;
	if (is("destroy-lifo") && of(p)->nth != newest)
		return mutant_fail(err, GENAI_E_BUSY, "not the last one");
	rc = ops->plan_destroy(p, ticket, err);
	if (!rc)
		of(p)->plan = NULL;
	return rc;
}

static int32_t bind_in(const struct genai_executor_ops *ops,
		       struct genai_plan *p, uint32_t i,
		       const struct genai_view *view, struct genai_error *err)
{
	int32_t rc = ops->bind_input(p, i, view, err);

	if (!rc && i < MOST)
		of(p)->in[i] = *view;
	return rc;
}

static int32_t bind_out(const struct genai_executor_ops *ops,
			struct genai_plan *p, uint32_t i,
			const struct genai_view *view, struct genai_error *err)
{
	int32_t rc = ops->bind_output(p, i, view, err);

	if (!rc && i < MOST)
		of(p)->out[i] = *view;
	return rc;
}

static uint32_t bytes_of(uint32_t dtype)
{
	switch (dtype) {
	case GENAI_DT_F64:
	case GENAI_DT_I64:
	case GENAI_DT_U64:
		return 8;
	case GENAI_DT_F32:
	case GENAI_DT_I32:
	case GENAI_DT_U32:
		return 4;
	case GENAI_DT_F16:
	case GENAI_DT_BF16:
	case GENAI_DT_I16:
	case GENAI_DT_U16:
		return 2;
	default:
		return 1;
	}
}

static uint64_t elements(const struct genai_view *v)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < v->rank; d++)
		n *= (uint64_t)v->dims[d];
	return n;
}

// ---- what goes wrong when ----

// The last value is that of the one before.
static void spoil(struct genai_stream *s, const struct genai_view *v)
{
	uint32_t size = bytes_of(v->dtype);
	uint64_t n = elements(v);

	if (n > 1)
		stream.copy(device, s, v->addr + (n - 1) * size,
			    v->addr + (n - 2) * size, size, GENAI_COPY_D2D,
			    NULL);
}

static bool same_shapes(const struct of *o, const struct genai_view *a,
			const struct genai_view *b)
{
	for (uint32_t i = 0; i < o->n_in; i++)
		if (a[i].rank != b[i].rank ||
		    memcmp(a[i].dims, b[i].dims, sizeof(a[i].dims)))
			return false;
	return true;
}

static bool same_places(uint32_t n, const struct genai_view *a,
			const struct genai_view *b)
{
	for (uint32_t i = 0; i < n; i++)
		if (a[i].addr != b[i].addr)
			return false;
	return true;
}

static bool wrong(const struct of *o)
{
	const struct genai_view *v = &o->out[0];
	uint64_t n = elements(v);
	bool back = o->steps > 2;

	return (is("plan-4th") && o->nth == 4) ||
	       (is("plan-33rd") && o->nth == 33) ||
	       (is("after-error") && n_errors) ||
	       (is("shapes-back") && back &&
		!same_shapes(o, o->in, o->old_in) &&
		same_shapes(o, o->in, o->older_in)) ||
	       (is("shapes-forth") && back && o->steps > 6 &&
		!same_shapes(o, o->in, o->old_in)) ||
	       (is("inputs-back") && back &&
		!same_places(o->n_in, o->in, o->old_in) &&
		same_places(o->n_in, o->in, o->older_in)) ||
	       (is("outputs-back") && back &&
		!same_places(o->n_out, o->out, o->old_out) &&
		same_places(o->n_out, o->out, o->older_out)) ||
	       (is("bind-16") && v->addr % 32) ||
	       (is("bind-64") && v->addr % 128) ||
	       (is("bind-in-16") && o->in[0].addr % 32) ||
	       (is("elements-1024") && n == 1024) ||
	       (is("elements-3") && n == 3) ||
	       (is("elements-20000") && n > 20000);
}

static void remember(struct of *o)
{
	memcpy(o->older_in, o->old_in, sizeof(o->in));
	memcpy(o->old_in, o->in, sizeof(o->in));
	memcpy(o->older_out, o->old_out, sizeof(o->out));
	memcpy(o->old_out, o->out, sizeof(o->out));
}

static int32_t submit(const struct genai_executor_ops *ops,
		      struct genai_plan *p, struct genai_stream *s,
		      const struct genai_point *wait, uint32_t n_wait,
		      struct genai_point *out_signal, struct genai_error *err)
{
	struct genai_point unwanted;
	struct of *o = of(p);
	int32_t rc;

	if (!out_signal)
		out_signal = &unwanted;
	rc = ops->submit(p, s, wait, n_wait, out_signal, err);
	n_errors += rc != 0;
	if (rc)
		return rc;
	o->steps++;
	if (wrong(o)) {
		spoil(s, &o->out[0]);
		stream.mark(device, s, out_signal, NULL);
	}
	remember(o);
	return 0;
}

#define BEHIND(k) (&behind[k])
#define WRAP(k)                                                                \
	WRAP_CREATE(k)                                                         \
	WRAP_DESTROY(k)                                                        \
	WRAP_BIND_IN(k)                                                        \
	WRAP_BIND_OUT(k)                                                       \
	WRAP_SUBMIT(k)

WRAP(0)
WRAP(1)

#define FILL(k)                                                                \
	(behind[k] = executors[k], executors[k].plan_create = create_##k,      \
	 executors[k].plan_destroy = destroy_##k,                              \
	 executors[k].bind_input = bind_in_##k,                                \
	 executors[k].bind_output = bind_out_##k,                              \
	 executors[k].submit = submit_##k)

void mutant_wrap_odd_steps(struct genai_executor_ops *executors)
{
	FILL(0);
	FILL(1);
}
