// carry_module.c - a toy of what later minors can carry (docs/ABI.md): an
// executor, a pager and a stream runtime that do nothing but say what they were
// asked for.  LATER: built with the headers of the later minor, which have
// slots for two devices and for weights on the host.
#include <genai/executor.h>

static int32_t none(void)
{
	return GENAI_E_NOSYS;
}
#define NONE (void *)none

// ---- executor: does it take weights where the host has them? ----

static int32_t exec_caps(void *self, struct genai_exec_caps *out,
			 struct genai_error *err)
{
	struct genai_exec_caps c = {.size = sizeof(c), .device_kind = "toy"};

	(void)self;
	(void)err;
#ifdef LATER
	c.flags |= GENAI_EXEC_CAP_HOST;
#endif
	genai_struct_give(out, &c);
	return 0;
}

static const struct genai_executor_ops executor = {
	.size = sizeof(executor),
	.version = 1,
	.caps = exec_caps,
	.plan_create = NONE,
	.plan_visits = NONE,
	.plan_set_pages = NONE,
	.plan_destroy = NONE,
	.bind_input = NONE,
	.bind_output = NONE,
	.output_shape = NONE,
	.submit = NONE,
	.stats = NONE,
};

// ---- pager: one page, and where it is ----

static uint32_t place, experts;

static int32_t pager_caps(void *self, struct genai_pager_caps *out,
			  struct genai_error *err)
{
	struct genai_pager_caps c = {.size = sizeof(c)};

	(void)self;
	(void)err;
#ifdef LATER
	c.flags |= GENAI_PAGER_CAP_EXPERT;
#endif
	genai_struct_give(out, &c);
	return 0;
}

static int32_t take_sweep(const struct genai_sweep_visit *v, uint32_t n)
{
	uint32_t known = 0;

#ifdef LATER
	known = GENAI_VISIT_EXPERT;
#endif
	experts = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (v[i].flags & ~known)
			return GENAI_E_UNSUPPORTED;
		// the reserved word has a meaning with the flag, and only then
		if (v[i].flags & GENAI_VISIT_EXPERT)
			experts += v[i].reserved;
	}
	return 0;
}

static int32_t seal(struct genai_pager *p, const struct genai_sweep_visit *v,
		    uint32_t n, uint64_t budget, struct genai_pager_report *out,
		    struct genai_error *err)
{
	(void)p;
	(void)budget;
	(void)out;
	(void)err;
	place = GENAI_PLACE_DEVICE;
	return take_sweep(v, n);
}

#ifdef LATER
static int32_t seal_for(struct genai_pager *p,
			const struct genai_sweep_visit *v, uint32_t n,
			uint64_t budget, uint32_t takes,
			struct genai_pager_report *out, struct genai_error *err)
{
	int32_t rc = seal(p, v, n, budget, out, err);

	if (takes & GENAI_TAKES_HOST)
		place = GENAI_PLACE_HOST;
	return rc;
}
#endif

static int32_t acquire(struct genai_pager *p, uint32_t visit,
		       struct genai_stream *s, struct genai_place *out_place,
		       struct genai_point *out_ready, struct genai_error *err)
{
	(void)p;
	(void)visit;
	(void)s;
	(void)err;
	*out_place = (struct genai_place){sizeof(*out_place), place, experts};
	*out_ready = (struct genai_point){NULL, 0};
	return 0;
}

static const struct genai_pager_ops pager = {
	.size = sizeof(pager),
	.version = 1,
	.caps = pager_caps,
	.open = NONE,
	.close = NONE,
	.add = NONE,
	.seal = seal,
	.step_begin = NONE,
	.acquire = acquire,
	.release = NONE,
	.step_end = NONE,
	.reset = NONE,
	.stats = NONE,
	.replay_begin = NONE,
	.resident = NONE,
#ifdef LATER
	.seal_for = seal_for,
#endif
};

// ---- stream runtime: is there another device? ----

#ifdef LATER
static int32_t peer_copy(void *self, struct genai_stream *s, uint32_t device,
			 uint64_t dst, uint64_t src, uint64_t bytes,
			 struct genai_error *err)
{
	(void)self;
	(void)s;
	(void)dst;
	(void)src;
	(void)err;
	return device && bytes ? 0 : GENAI_E_INVAL;
}
#endif

static const struct genai_stream_ops stream = {
	.size = sizeof(stream),
	.version = 1,
	.caps = NONE,
	.alloc = NONE,
	.free = NONE,
	.host_register = NONE,
	.host_unregister = NONE,
	.create = NONE,
	.destroy = NONE,
	.mark = NONE,
	.wait = NONE,
	.poll = NONE,
	.copy = NONE,
	.launch = NONE,
	.launch_host = NONE,
	.reset = NONE,
	.stats = NONE,
#ifdef LATER
	.peer_copy = peer_copy,
#endif
};

static int32_t init(const struct genai_host *host,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	(void)host;
	(void)params;
	(void)err;
	*out_self = &place;
	return 0;
}

static void fini(void *self)
{
	(void)self;
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_EXECUTOR, "carry", 1, 0, &executor},
	{GENAI_IFACE_PAGER, "carry", 1, 0, &pager},
	{GENAI_IFACE_STREAM, "carry", 1, 0, &stream},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = 3,
	.name = "carry",
	.version = "1.0",
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
};

GENAI_MODULE_QUERY(block)
