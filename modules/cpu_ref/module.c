// module.c - the handshake: what cpu_ref is, its keys, init and fini.
#include "cpu_ref.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int32_t parse_schedule(struct cref_device *dev, const char *s,
			      struct genai_error *err)
{
	if (!strcmp(s, "inorder")) {
		dev->schedule = CREF_INORDER;
	} else if (!strcmp(s, "late")) {
		dev->schedule = CREF_LATE;
	} else if (!strcmp(s, "early")) {
		dev->schedule = CREF_EARLY;
	} else if (!strncmp(s, "random:", 7)) {
		char *end;

		dev->schedule = CREF_RANDOM;
		dev->random = strtoull(s + 7, &end, 10) *
				      UINT64_C(0x9e3779b97f4a7c15) +
			      1;
		if (!s[7] || *end)
			return CREF_FAIL(dev, err, GENAI_E_CONFIG,
					 "schedule %s: the seed is not a number",
					 s);
	} else {
		return CREF_FAIL(dev, err, GENAI_E_CONFIG,
				 "schedule %s is not inorder, late, early or "
				 "random:SEED",
				 s);
	}
	return 0;
}

static int32_t configure(struct cref_device *dev, uint32_t *out_threads,
			 struct genai_error *err)
{
	const struct genai_host *h = dev->host;
	char schedule[64];
	uint64_t threads = 0;
	int32_t rc = h->config_get_str(h->ctx, "schedule", schedule,
				       sizeof(schedule));

	if (!rc)
		rc = h->config_get_u64(h->ctx, "threads", &threads);
	if (rc)
		return CREF_FAIL(dev, err, rc, "cannot read the configuration");
	if (threads > 256)
		return CREF_FAIL(dev, err, GENAI_E_CONFIG,
				 "threads = %llu: at most 256",
				 (unsigned long long)threads);
	if (!threads) {
		long n = sysconf(_SC_NPROCESSORS_ONLN);

		threads = n > 0 ? (uint64_t)n : 1;
	}
	*out_threads = (uint32_t)threads;
	return parse_schedule(dev, schedule, err);
}

static int32_t init(const struct genai_host *host,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	struct cref_device *dev = host->alloc(host->ctx, sizeof(*dev),
					      "device");
	uint32_t threads = 1;
	int32_t rc;

	if (!dev)
		return host->error_set(host->ctx, err, GENAI_E_NOMEM,
				       "no memory for the device");
	memset(dev, 0, sizeof(*dev));
	dev->host = host;
	dev->limit_bytes = params->device_limit;
	dev->stats.size = sizeof(dev->stats);
	rc = configure(dev, &threads, err);
	if (rc)
		goto err_dev;
	dev->pool = cref_pool_create(threads, host->thread_create,
				     host->thread_join, host->ctx);
	if (!dev->pool) {
		rc = CREF_FAIL(dev, err, GENAI_E_NOMEM,
			       "cannot start %u threads", threads);
		goto err_dev;
	}
	pthread_mutex_init(&dev->lock, NULL);
	*out_self = dev;
	return 0;
err_dev:
	host->free(host->ctx, dev);
	return rc;
}

static void fini(void *self)
{
	struct cref_device *dev = self;
	const struct genai_host *host = dev->host;

	cref_pool_destroy(dev->pool);
	cref_device_free_all(dev);
	pthread_mutex_destroy(&dev->lock);
	host->free(host->ctx, dev);
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_STREAM, "cpu_ref", 1, 0, &cref_stream_ops},
	{GENAI_IFACE_BARRIER, "cpu_ref", 1, 0, &cref_barrier_ops},
	{GENAI_IFACE_EXECUTOR, "eager", 1, 0, &cref_eager_ops},
	{GENAI_IFACE_EXECUTOR, "captured", 1, 0, &cref_captured_ops},
};

static const struct genai_config_key keys[] = {
	{"schedule", "inorder", GENAI_KEY_STR, 0,
	 "inorder|late|early|random:*",
	 "order in which queued work of several streams runs"},
	{"threads", "0", GENAI_KEY_U64, 0, NULL,
	 "threads that compute; 0 = one per core"},
};

static const struct genai_module_block block = {
	.magic = GENAI_MODULE_MAGIC,
	.size = sizeof(struct genai_module_block),
	.abi_major = GENAI_ABI_MAJOR,
	.abi_minor = GENAI_ABI_MINOR,
	.min_core_minor = 0,
	.build = GENAI_BUILD,
	.n_ifaces = sizeof(ifaces) / sizeof(ifaces[0]),
	.name = "cpu_ref",
	.version = GENAI_VERSION_STRING,
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
	.keys = keys,
	.n_keys = sizeof(keys) / sizeof(keys[0]),
	.iface_stride = sizeof(struct genai_iface),
	.key_stride = sizeof(struct genai_config_key),
};

GENAI_MODULE_EXPORT const struct genai_module_block *
genai_module_query(uint32_t core_abi, int32_t *out_reason);

const struct genai_module_block *genai_module_query(uint32_t core_abi,
						    int32_t *out_reason)
{
	if (core_abi >> 16 != GENAI_ABI_MAJOR) {
		if (out_reason)
			*out_reason = GENAI_E_ABI;
		return NULL;
	}
	return &block;
}
