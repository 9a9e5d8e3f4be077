// module.c - the module block of cuda_ep, bringing it up and down.
#include "modules/cuda_ep/beside.h"
#include "modules/cuda_ep/cep.h"
#include "modules/cuda_ep/timeline.h"

static void cep_fini(void *p)
{
	struct cep *self = p;
	const struct genai_host *host = self->host;

	cep_team_stop(self->team);
	if (self->retained) {
		cep_stamps_close(self);
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

#define MOST_THREADS 1024
#define MOST_PATIENCE_MS 3600000

// Threads that multiply rows beside the link, if any are wanted.
static int32_t open_team(struct cep *self, struct genai_error *err)
{
	const struct genai_host *host = self->host;
	uint64_t threads = 0, ms = 10000;
	uint32_t n;
	int32_t rc;

	(void)host->config_get_u64(host->ctx, "host_threads", &threads);
	(void)host->config_get_u64(host->ctx, "host_patience_ms", &ms);
	(void)host->config_get_u64(host->ctx, "link_bytes_per_s",
				   &self->link_rate);
	(void)host->config_get_u64(host->ctx, "host_bytes_per_s",
				   &self->host_rate);
	self->busy_link_rate = self->link_rate;
	if (threads > MOST_THREADS)
		return cep_fail(self, err, GENAI_E_CONFIG,
				"host_threads: at most %d", MOST_THREADS);
	if (!ms || ms > MOST_PATIENCE_MS)
		return cep_fail(self, err, GENAI_E_CONFIG,
				"host_patience_ms: 1 to %d", MOST_PATIENCE_MS);
	self->patience_ns = ms * 1000000;
	if (!threads)
		return 0;
	rc = cep_team_start(host, (uint32_t)threads, &self->team, &n, err);
	if (rc)
		return rc;
	if (n < threads)
		host->log(host->ctx, GENAI_LOG_INFO,
			  "host_threads: %u, not %u: this process may use no "
			  "more cores",
			  n, (uint32_t)threads);
	return self->link_rate && self->host_rate ? 0 : cep_measure(self, err);
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
	if (!rc)
		rc = open_team(self, err);
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
	{"host_threads", "0", GENAI_KEY_U64, 0, NULL,
	 "threads that multiply rows of 4-bit matrices on the host's cores "
	 "while "
	 "the link brings others; 0: none"},
	{"host_bytes_per_s", "0", GENAI_KEY_U64, 0, NULL,
	 "weights that they multiply, beside copies; 0: measured at the start"},
	{"link_bytes_per_s", "0", GENAI_KEY_U64, 0, NULL,
	 "what the link brings, beside them, too; 0: measured at the start"},
	{"host_patience_ms", "10000", GENAI_KEY_U64, 0, NULL,
	 "a step fails if they have not answered for so long"},
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
