// module.c - the handshake of both pagers.  PAGER_NAME and PAGER_ASYNC come
// from the build.
#include "modules/pager_common/pager.h"

#include <string.h>

// 0: experts stay where they are.
static int32_t read_exchange(struct pager_module *m)
{
	const struct genai_host *host = m->host;
	char text[24];

	m->exchange = PAGER_AUTO;
	if (!host->config_get_str(host->ctx, "exchange", text, sizeof(text)) &&
	    !strcmp(text, "auto"))
		return 0;
	if (host->config_get_u64(host->ctx, "exchange", &m->exchange))
		return GENAI_E_CONFIG;
	return m->exchange > PAGER_MOST_SWAPS ? GENAI_E_CONFIG : 0;
}

static int32_t init(const struct genai_host *host,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	struct pager_module *m = host->alloc(host->ctx, sizeof(*m), "pager");
	int32_t rc;

	(void)params;
	if (!m)
		return host->error_set(host->ctx, err, GENAI_E_NOMEM,
				       "no memory for the module");
	memset(m, 0, sizeof(*m));
	m->host = host;
	m->async = PAGER_ASYNC;
	host->config_get_u64(host->ctx, "page_bytes", &m->page_bytes);
	rc = host->config_get_u64(host->ctx, "ring_slots", &m->ring_slots);
	if (!rc && read_exchange(m)) {
		rc = host->error_set(host->ctx, err, GENAI_E_CONFIG,
				     "module " PAGER_NAME
				     ": exchange: 0 to %u, or auto",
				     PAGER_MOST_SWAPS);
		host->free(host->ctx, m);
		return rc;
	}
	if (rc || m->ring_slots == 1 || m->ring_slots > 4096)
		rc = host->error_set(host->ctx, err, GENAI_E_CONFIG,
				     "module " PAGER_NAME
				     ": ring_slots: 2 to 4096, or auto");
	if (rc)
		host->free(host->ctx, m);
	else
		*out_self = m;
	return rc;
}

static void fini(void *self)
{
	struct pager_module *m = self;

	m->host->free(m->host->ctx, m);
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_PAGER, PAGER_NAME, 1, 0, &pager_table},
};

static const struct genai_config_key keys[] = {
	{"page_bytes", "auto", GENAI_KEY_BYTES, 0, NULL,
	 "size of a page, about: auto (at most 16MiB), or bytes; small budgets "
	 "get smaller ones"},
	{"exchange", "auto", GENAI_KEY_STR, 0, NULL,
	 "experts that may take the place of others before a step: auto, or 0 "
	 "to 64"},
	{"ring_slots", "auto", GENAI_KEY_STR, 0, NULL,
	 "slots that streamed pages go through: auto, or 2 to 4096"},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = 1,
	.name = PAGER_NAME,
	.version = GENAI_VERSION_STRING,
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
	.keys = keys,
	.n_keys = sizeof(keys) / sizeof(keys[0]),
};

GENAI_MODULE_QUERY(block)
