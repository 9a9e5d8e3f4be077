// layer.c - stacks of stream runtimes: each slot of a stack is the layer's if
// it has one, and otherwise the one below, which is called with its own self.
#include "core/layer.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

struct layer {
	struct genai_stack below;
	struct genai_stream_ops stream; // the module's own
	struct genai_barrier_ops barrier;
	void *self;
};

// ---- slots ----

#define ARGS(...) __VA_ARGS__
#define SLOT(table, name, params, args)                                        \
	static int32_t table##_##name(void *self, params,                      \
				      struct genai_error *err)                 \
	{                                                                      \
		const struct layer *l = self;                                  \
                                                                               \
		if (l->table.name)                                             \
			return l->table.name(l->self, args, err);              \
		return l->below.table.name(l->below.table##_self, args, err);  \
	}
#define UNIT(name)                                                             \
	SLOT(stream, name,                                                     \
	     ARGS(struct genai_stream * a, const struct genai_work *b,         \
		  const struct genai_access *c, uint32_t d),                   \
	     ARGS(a, b, c, d))

// clang-format off
SLOT(stream, caps, struct genai_stream_caps *a, a)
SLOT(stream, alloc,
     ARGS(uint32_t a, uint64_t b, const char *c, struct genai_mem *d),
     ARGS(a, b, c, d))
SLOT(stream, free, ARGS(genai_addr a, const struct genai_ticket *b), ARGS(a, b))
SLOT(stream, reserve, ARGS(uint64_t a, struct genai_range *b), ARGS(a, b))
SLOT(stream, unreserve,
     ARGS(struct genai_range a, const struct genai_ticket *b),
     ARGS(a, b))
SLOT(stream, map, ARGS(struct genai_range a, const char *b), ARGS(a, b))
SLOT(stream, unmap,
     ARGS(struct genai_range a, const struct genai_ticket *b),
     ARGS(a, b))
SLOT(stream, host_register,
     ARGS(const void *a, uint64_t b, struct genai_mem *c),
     ARGS(a, b, c))
SLOT(stream, host_unregister,
     ARGS(genai_addr a, const struct genai_ticket *b),
     ARGS(a, b))
SLOT(stream, create, ARGS(const char *a, struct genai_stream **b), ARGS(a, b))
SLOT(stream, destroy, struct genai_stream *a, a)
SLOT(stream, mark,
     ARGS(struct genai_stream *a, struct genai_point *b),
     ARGS(a, b))
SLOT(stream, wait,
     ARGS(struct genai_stream *a, struct genai_point b),
     ARGS(a, b))
SLOT(stream, poll, struct genai_point a, a)
SLOT(stream, copy,
     ARGS(struct genai_stream *a, uint64_t b, uint64_t c, uint64_t d, uint32_t e),
     ARGS(a, b, c, d, e))
UNIT(launch)
UNIT(launch_host)
SLOT(stream, capture_begin, struct genai_stream *a, a)
SLOT(stream, capture_end,
     ARGS(struct genai_stream *a, struct genai_recording **b),
     ARGS(a, b))
SLOT(stream, capture_abort, struct genai_stream *a, a)
SLOT(stream, launch_graph,
     ARGS(struct genai_recording *a, struct genai_stream *b),
     ARGS(a, b))
SLOT(stream, graph_destroy,
     ARGS(struct genai_recording *a, const struct genai_ticket *b),
     ARGS(a, b))
SLOT(stream, reset, const struct genai_ticket *a, a)
SLOT(stream, native, ARGS(struct genai_stream *a, void **b), ARGS(a, b))
SLOT(stream, stats, struct genai_stream_stats *a, a)
SLOT(stream, graph_edges,
     ARGS(struct genai_recording *a, struct genai_edge *b, uint64_t c, uint64_t *d),
     ARGS(a, b, c, d))
UNIT(launch_open)
SLOT(stream, signal,
     ARGS(const void *a, const struct genai_error *b),
     ARGS(a, b))
SLOT(stream, stamp, ARGS(struct genai_stream *a, uint64_t *b), ARGS(a, b))
SLOT(stream, elapsed,
     ARGS(uint64_t a, uint64_t b, int64_t *c),
     ARGS(a, b, c))
SLOT(barrier, host_read,
     ARGS(const struct genai_point *a, uint32_t b, uint64_t c), ARGS(a, b, c))
SLOT(barrier, drain,
     ARGS(struct genai_range a, uint64_t b, struct genai_ticket *c),
     ARGS(a, b, c))
// clang-format on

#define PUT(table, name)                                                       \
	if (l->table.name || l->below.table.name)                              \
	stack->table.name = table##_##name

static void put_slots(const struct layer *l, struct genai_stack *stack)
{
	PUT(stream, caps);
	PUT(stream, alloc);
	PUT(stream, free);
	PUT(stream, reserve);
	PUT(stream, unreserve);
	PUT(stream, map);
	PUT(stream, unmap);
	PUT(stream, host_register);
	PUT(stream, host_unregister);
	PUT(stream, create);
	PUT(stream, destroy);
	PUT(stream, mark);
	PUT(stream, wait);
	PUT(stream, poll);
	PUT(stream, copy);
	PUT(stream, launch);
	PUT(stream, launch_host);
	PUT(stream, capture_begin);
	PUT(stream, capture_end);
	PUT(stream, capture_abort);
	PUT(stream, launch_graph);
	PUT(stream, graph_destroy);
	PUT(stream, reset);
	PUT(stream, native);
	PUT(stream, stats);
	PUT(stream, graph_edges);
	PUT(stream, launch_open);
	PUT(stream, signal);
	PUT(stream, stamp);
	PUT(stream, elapsed);
	PUT(barrier, host_read);
	PUT(barrier, drain);
}

// ---- life ----

static int32_t find_below(void *ctx, const char *type, const void **out_ops,
			  void **out_self)
{
	struct layer *l = ctx;

	if (!strcmp(type, GENAI_IFACE_STREAM)) {
		*out_ops = &l->below.stream;
		*out_self = l->below.stream_self;
	} else if (!strcmp(type, GENAI_IFACE_BARRIER)) {
		*out_ops = &l->below.barrier;
		*out_self = l->below.barrier_self;
	} else {
		return GENAI_E_NOTFOUND;
	}
	return 0;
}

// The barrier layer of the same name, or the only one; none is no error.
static int32_t take_barrier(struct genai_module *m, const char *name,
			    struct layer *l, struct genai_error *err)
{
	const struct genai_iface *f;
	const char *found = NULL;

	for (uint32_t i = 0; (f = genai_module_iface_at(m, i)); i++)
		if (!strcmp(f->type, GENAI_IFACE_BARRIER_LAYER) &&
		    (!found || !strcmp(f->name, name)))
			found = f->name;
	if (!found)
		return 0;
	return genai_module_get_iface(m, GENAI_IFACE_BARRIER_LAYER, found,
				      &l->barrier, sizeof(l->barrier), err);
}

static struct layer *offer(struct genai_module *m,
			   const struct genai_stack *below,
			   struct genai_error *err)
{
	struct layer *l = calloc(1, sizeof(*l));

	if (!l) {
		genai_fail(err, GENAI_E_NOMEM, "no memory for a layer");
		return NULL;
	}
	l->below = *below;
	genai_host_set_below(genai_module_host(m), find_below, l);
	return l;
}

int32_t genai_layer_offer(struct genai_module *m,
			  const struct genai_stack *below,
			  struct genai_error *err)
{
	return offer(m, below, err) ? 0 : GENAI_E_NOMEM;
}

int32_t genai_layer_start(struct genai_module *m, const char *name,
			  const struct genai_init_params *params,
			  struct genai_stack *stack, struct genai_error *err)
{
	struct layer *l = offer(m, stack, err);
	int32_t rc;

	if (!l)
		return GENAI_E_NOMEM;
	rc = genai_module_get_iface(m, GENAI_IFACE_STREAM_LAYER, name,
				    &l->stream, sizeof(l->stream), err);
	if (!rc)
		rc = take_barrier(m, name, l, err);
	if (!rc)
		rc = genai_module_start(m, params, err);
	if (rc)
		return rc;
	l->self = genai_module_self(m);
	put_slots(l, stack);
	stack->stream.size = sizeof(stack->stream);
	stack->barrier.size = sizeof(stack->barrier);
	stack->stream_self = stack->barrier_self = l;
	return 0;
}
