// module.c - the module block of cuda_ep, bringing it up and down.
#include "modules/cuda_ep/cep.h"

static void cep_fini(void *p)
{
	struct cep *self = p;
	const struct genai_host *host = self->host;

	if (self->retained) {
		cep_memory_close(self);
		cep_kernels_close(self);
		cep_device_close(self);
		cep_calls_free(self, true);
	}
	cep_ledger_close(self);
	cep_driver_close(self);
	exec_shared_close(&self->exec);
	pthread_mutex_destroy(&self->lock);
	pthread_mutex_destroy(&self->call_lock);
	host->free(host->ctx, self);
}

static int32_t cep_init(const struct genai_host *host,
			const struct genai_init_params *params, void **out_self,
			struct genai_error *err)
{
	struct cep *self = host->alloc(host->ctx, sizeof(*self), "module");
	char path[512] = "";
	int32_t rc, pdl = 1;

	if (!self)
		return host->error_set(host->ctx, err, GENAI_E_NOMEM,
				       "out of memory");
	memset(self, 0, sizeof(*self));
	self->host = host;
	self->device = params->device;
	self->limit = params->device_limit;
	pthread_mutex_init(&self->lock, NULL);
	pthread_mutex_init(&self->call_lock, NULL);
	exec_shared_open(&self->exec, &cep_executors, host);
	rc = host->config_get_str(host->ctx, "driver", path, sizeof(path));
	if (rc && rc != GENAI_E_NOTFOUND) {
		host->error_set(host->ctx, err, rc, "key driver is too long");
		goto err_fini;
	}
	(void)host->config_get_bool(host->ctx, "overlap", &pdl);
	self->pdl = pdl;
	rc = cep_driver_open(self, path, err);
	if (rc)
		goto err_fini;
	self->own_driver = *path;
	rc = cep_device_open(self, err);
	if (rc)
		goto err_fini;
	*out_self = self;
	return 0;

err_fini:
	cep_fini(self);
	return rc;
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_STREAM, "cuda_ep", 1, 0, &cep_stream_ops},
	{GENAI_IFACE_BARRIER, "cuda_ep", 1, 0, &cep_barrier_ops},
	{GENAI_IFACE_EXECUTOR, "eager", 1, 0, &exec_eager_ops},
	{GENAI_IFACE_EXECUTOR, "captured", 1, 0, &exec_captured_ops},
};

static const struct genai_config_key keys[] = {
	{"driver", "", GENAI_KEY_STR, 0, NULL,
	 "path of the CUDA driver library; empty: libcuda.so.1"},
	{"overlap", "on", GENAI_KEY_BOOL, 0, NULL,
	 "start a kernel while the one before it ends (compute capability 9)"},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = sizeof(ifaces) / sizeof(ifaces[0]),
	.name = "cuda_ep",
	.version = GENAI_VERSION_STRING,
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = cep_init,
	.fini = cep_fini,
	.keys = keys,
	.n_keys = sizeof(keys) / sizeof(keys[0]),
};

GENAI_MODULE_QUERY(block)
