// hello_module.c - the smallest module, as a third party would build it: with
// the installed headers and pkg-config, without our sources.
#include <genai/module.h>

const struct genai_module_block *
genai_module_query(uint32_t core_abi, int32_t *out_reason) GENAI_MODULE_EXPORT;

struct hello { // of one runtime
	const struct genai_host *host;
};

// A vendor's own interface: a head and one function.
static const struct {
	uint32_t size;
	uint16_t version;
	uint16_t reserved;
	int32_t (*answer)(void *self);
} greeting = {16, 1, 0, 0};

static int32_t init(const struct genai_host *h,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	struct hello *self = h->alloc(h->ctx, sizeof(*self), "hello");

	(void)params;
	if (!self)
		return h->error_set(h->ctx, err, GENAI_E_NOMEM, "no memory");
	self->host = h;
	h->log(h->ctx, GENAI_LOG_INFO, "hello");
	*out_self = self;
	return 0;
}

static void fini(void *p)
{
	struct hello *self = p;

	self->host->free(self->host->ctx, self);
}

static const struct genai_iface ifaces[] = {
	{"example.greeting", "hello_module", 1, 0, &greeting},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = 1,
	.name = "hello_module",
	.version = "1.0",
	.licence = "0BSD",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
};

GENAI_MODULE_QUERY(block)
