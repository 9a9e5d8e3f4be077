// shapes.c - faults of mutant_device's executors at one shape, in one type, or
// after a call that was refused: the outermost layer.
#include <stdbool.h>
#include <stdlib.h>

#include "tests/mutants/device.h"
#include "tests/mutants/wrap.h"

static struct genai_executor_ops behind[2];
static struct genai_stream_ops stream; // the core's
static void *device;

// Of a plan, by its place among those that there are.
static struct of {
	struct genai_plan *plan;
	struct genai_view in[8], out[8], late[32];
	uint32_t n_in, n_shapes;
	int64_t shapes[32]; // row counts there were
	bool refused, bad_pages;
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
	o->n_in = graph->n_inputs < 8 ? graph->n_inputs : 8;
	return 0;
}

static int32_t destroy(const struct genai_executor_ops *ops,
		       struct genai_plan *p, const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	struct of *o = of(p);
	int32_t rc = ops->plan_destroy(p, ticket, err);

	if (!rc)
		o->plan = NULL;
	return rc;
}

static int32_t set_pages(const struct genai_executor_ops *ops,
			 struct genai_plan *p,
			 const struct genai_sweep_page *pages, uint32_t n,
			 struct genai_error *err)
{
	int32_t rc = ops->plan_set_pages(p, pages, n, err);

	of(p)->bad_pages = rc != 0;
	return rc;
}

static int32_t bind_in(const struct genai_executor_ops *ops,
		       struct genai_plan *p, uint32_t i,
		       const struct genai_view *view, struct genai_error *err)
{
	struct of *o = of(p);
	int32_t rc;

	// an address that came later than the first
	if (is("input-9-stale") && i >= 8 && i < 32) {
		if (o->late[i].size)
			return 0;
		o->late[i] = *view;
	}
	rc = ops->bind_input(p, i, view, err);

	if (rc && is("bind-refused-moves") && i < 8 && o->in[i].size) {
		o->in[i].addr = view->addr;
		ops->bind_input(p, i, &o->in[i], NULL);
	}
	o->refused |= rc != 0;
	if (!rc && i < 8)
		o->in[i] = *view;
	return rc;
}

static int32_t bind_out(const struct genai_executor_ops *ops,
			struct genai_plan *p, uint32_t i,
			const struct genai_view *view, struct genai_error *err)
{
	struct of *o = of(p);
	int32_t rc = ops->bind_output(p, i, view, err);

	if (rc && is("bind-out-refused-moves") && i < 8 && o->out[i].size) {
		o->out[i].addr = view->addr;
		ops->bind_output(p, i, &o->out[i], NULL);
	}
	o->refused |= rc != 0;
	if (!rc && i < 8)
		o->out[i] = *view;
	return rc;
}

static int32_t shape(const struct genai_executor_ops *ops, struct genai_plan *p,
		     uint32_t output, struct genai_view *out,
		     struct genai_error *err)
{
	static struct genai_view first;
	int32_t rc;

	if (is("shape-any-index") && output >= 8)
		output = 0;
	rc = ops->output_shape(p, output, out, err);
	if (rc && is("shape-writes"))
		out->rank = 0;
	if (rc || !is("shape-stale"))
		return rc;
	if (!first.size)
		first = *out;
	*out = first;
	return 0;
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

// The last value is that of the one before.
static void spoil(struct genai_stream *s, const struct genai_view *v)
{
	uint32_t size = bytes_of(v->dtype);
	uint64_t n = 1;

	for (uint32_t d = 0; d < v->rank; d++)
		n *= (uint64_t)v->dims[d];
	if (n > 1)
		stream.copy(device, s, v->addr + (n - 1) * size,
			    v->addr + (n - 2) * size, size, GENAI_COPY_D2D,
			    NULL);
}

static bool wrong(const struct of *o)
{
	static const struct {
		const char *name;
		uint32_t dtype;
	} types[] = {
		{"last-bf16", GENAI_DT_BF16}, {"last-f64", GENAI_DT_F64},
		{"last-i32", GENAI_DT_I32},   {"last-i8", GENAI_DT_I8},
		{"last-u8", GENAI_DT_U8},     {"last-bool", GENAI_DT_BOOL},
		{"last-i16", GENAI_DT_I16},   {"last-u16", GENAI_DT_U16},
		{"last-u32", GENAI_DT_U32},   {"last-u64", GENAI_DT_U64},
		{"last-i64", GENAI_DT_I64},
	};
	const struct genai_view *v = &o->out[0], *x = &o->in[0];
	int64_t rows = x->rank >= 2 ? x->dims[x->rank - 2] : 0;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (is(types[i].name))
			return v->dtype == types[i].dtype;
	return (is("rows-32") && rows == 32) || (is("rows-64") && rows == 64) ||
	       (is("rows-128") && rows == 128) ||
	       (is("rows-129") && rows == 129) ||
	       (is("rows-over-200") && rows > 200) ||
	       (is("batch-of-two") && v->rank == 3 && v->dims[0] == 2) ||
	       (is("rank-5") && v->rank >= 5) ||
	       (is("columns-1") && v->rank && v->dims[v->rank - 1] == 1) ||
	       (is("columns-256") && v->rank && v->dims[v->rank - 1] == 256) ||
	       (is("shapes-16") && o->n_shapes > 16) ||
	       (is("shapes-8") && o->n_shapes > 8);
}

static int32_t submit(const struct genai_executor_ops *ops,
		      struct genai_plan *p, struct genai_stream *s,
		      const struct genai_point *wait, uint32_t n_wait,
		      struct genai_point *out_signal, struct genai_error *err)
{
	const struct genai_view *x = &of(p)->in[0];
	struct genai_point unwanted;
	struct of *o = of(p);
	int64_t rows = x->rank ? x->dims[x->rank > 1 ? x->rank - 2 : 0] : 0;
	uint32_t i = 0;
	int32_t rc;

	if (x->rank == 2)
		rows = x->dims[0] * 1000 + x->dims[1];
	while (i < o->n_shapes && o->shapes[i] != rows)
		i++;
	if (i == o->n_shapes && i < 32)
		o->shapes[o->n_shapes++] = rows;
	if ((is("bind-refused-sticks") && o->refused) ||
	    (is("pages-refused-sticks") && o->bad_pages))
		return mutant_fail(err, GENAI_E_STATE, "it was refused");
	for (i = 0; is("empty-refused") && i < o->n_in; i++)
		for (uint32_t d = 0; d < o->in[i].rank; d++)
			if (!o->in[i].dims[d])
				return mutant_fail(err, GENAI_E_INVAL,
						   "no elements");
	if (!is("signal-on-failure") && !out_signal)
		out_signal = &unwanted;
	if (is("waits-list-4") && n_wait > 4)
		n_wait = 4;
	rc = ops->submit(p, s, wait, n_wait, out_signal, err);
	if (rc && out_signal && is("signal-on-failure"))
		*out_signal = (struct genai_point){NULL, 0};
	if (rc)
		return rc;
	if (wrong(o)) {
		spoil(s, &o->out[0]);
		stream.mark(device, s, out_signal, NULL);
	}
	return 0;
}

static int32_t stats(const struct genai_executor_ops *ops, struct genai_plan *p,
		     struct genai_exec_stats *out, struct genai_error *err)
{
	int32_t rc = ops->stats(p, out, err);

	if (is("fallbacks-none"))
		out->n_fallbacks = 0;
	if (is("fallback-reason") && out->n_fallbacks)
		out->fallbacks[0].reason[0] = 0;
	if (is("fallback-count") && out->n_fallbacks)
		out->fallbacks[0].count = 1;
	if (is("captures-double"))
		out->captures *= 2;
	if (!GENAI_HAS(out, device_bytes))
		return rc;
	if (is("stats-no-bytes"))
		out->device_bytes = 0;
	if (is("stats-all-bytes"))
		out->device_bytes = UINT64_MAX / 2;
	return rc;
}

#define BEHIND(k) (&behind[k])
#define WRAP(k)                                                                \
	WRAP_CREATE(k)                                                         \
	WRAP_DESTROY(k)                                                        \
	WRAP_PAGES(k)                                                          \
	WRAP_BIND_IN(k)                                                        \
	WRAP_BIND_OUT(k)                                                       \
	WRAP_SHAPE(k)                                                          \
	WRAP_SUBMIT(k)                                                         \
	WRAP_STATS(k)

WRAP(0)
WRAP(1)

#define FILL(k)                                                                \
	(behind[k] = executors[k], executors[k].plan_create = create_##k,      \
	 executors[k].plan_destroy = destroy_##k,                              \
	 executors[k].plan_set_pages = pages_##k,                              \
	 executors[k].bind_input = bind_in_##k,                                \
	 executors[k].bind_output = bind_out_##k,                              \
	 executors[k].output_shape = shape_##k,                                \
	 executors[k].submit = submit_##k, executors[k].stats = stats_##k)

void mutant_wrap_shapes(struct genai_executor_ops *executors)
{
	FILL(0);
	FILL(1);
}
