// minor.c - a pager that does nothing, of a chosen ABI: NEEDS is the least
// minor of the core.  When it is brought up it looks whether the core's host
// table is as long as the core's number says.
#include <genai/pager.h>

static int32_t caps(void *self, struct genai_pager_caps *out,
		    struct genai_error *err)
{
	struct genai_pager_caps c = {.size = sizeof(c)};

	(void)self;
	(void)err;
	genai_struct_give(out, &c);
	return 0;
}

static int32_t none(void)
{
	return GENAI_E_NOSYS;
}

// Only caps is ever called.
#define NONE (void *)none
static const struct genai_pager_ops table = {
	.size = sizeof(table),
	.version = 1,
	.caps = caps,
	.open = NONE,
	.close = NONE,
	.add = NONE,
	.seal = NONE,
	.step_begin = NONE,
	.acquire = NONE,
	.release = NONE,
	.step_end = NONE,
	.reset = NONE,
	.stats = NONE,
	.replay_begin = NONE,
	.resident = NONE,
};

static int32_t init(const struct genai_host *host,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	uint32_t core = host->core_abi & 0xffff;

	(void)params;
	if (core < NEEDS || !GENAI_HAS(host, ticket_check))
		return GENAI_E_ABI;
#ifdef LATER
	if (GENAI_HAS(host, later_slot) != (core >= GENAI_ABI_MINOR))
		return host->error_set(host->ctx, err, GENAI_E_ABI,
				       "a host table of %u bytes in a core of "
				       "minor %u",
				       host->size, core);
#endif
	(void)err;
	*out_self = (void *)&table;
	return 0;
}

static void fini(void *self)
{
	(void)self;
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_PAGER, "minor", 1, 0, &table},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.min_core_minor = NEEDS,
	.n_ifaces = 1,
	.name = "minor",
	.version = "1.0",
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
};

GENAI_MODULE_QUERY(block)
