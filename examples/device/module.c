// module.c - the handshake: three interfaces of one module share its self.
#include "small.h"

#include <string.h>

static int32_t init(const struct genai_host *host,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	struct device *d = host->alloc(host->ctx, sizeof(*d), "device");

	if (!d)
		return host->error_set(host->ctx, err, GENAI_E_NOMEM,
				       "no memory for the device");
	memset(d, 0, sizeof(*d));
	d->host = host;
	d->limit = params->device_limit;
	d->stats.size = sizeof(d->stats);
	pthread_mutex_init(&d->lock, NULL);
	exec_shared_open(&d->exec, &executor, host);
	*out_self = d;
	return 0;
}

static void fini(void *self)
{
	struct device *d = self;
	const struct genai_host *host = d->host;

	exec_shared_close(&d->exec);
	pthread_mutex_destroy(&d->lock);
	host->free(host->ctx, d->queue);
	host->free(host->ctx, d->regions);
	host->free(host->ctx, d);
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_STREAM, "small_device", 1, 0, &stream_table},
	{GENAI_IFACE_BARRIER, "small_device", 1, 0, &barrier_table},
	{GENAI_IFACE_EXECUTOR, "small_device", 1, 0, &exec_eager_ops},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = sizeof(ifaces) / sizeof(ifaces[0]),
	.name = "small_device",
	.version = "1.0",
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
};

GENAI_MODULE_QUERY(block)
