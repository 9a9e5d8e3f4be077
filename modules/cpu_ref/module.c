// module.c - the handshake: what cpu_ref is, its keys, init and fini.
#include "modules/cpu_ref/cpu_ref.h"
#include "modules/cpu_ref/simd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int32_t parse_schedule(struct cref_device *dev, const char *s,
			      struct genai_error *err)
{
	static const char *const names[] = {"inorder", "threads", "late",
					    "early"};
	char *end;

	for (uint32_t i = 0; i < 4; i++)
		if (!strcmp(s, names[i])) {
			dev->schedule = (enum cref_schedule)i;
			return 0;
		}
	if (!strncmp(s, "random:", 7) && s[7] >= '0' && s[7] <= '9') {
		dev->schedule = CREF_RANDOM;
		errno = 0;
		dev->random = strtoull(s + 7, &end, 10) *
				      UINT64_C(0x9e3779b97f4a7c15) +
			      1;
		if (!*end && !errno)
			return 0;
	}
	return CREF_FAIL(dev, err, GENAI_E_CONFIG,
			 "schedule = %s: inorder, threads, late, early or "
			 "random:SEED",
			 s);
}

static int32_t get_str(struct cref_device *dev, const char *key, char *buf,
		       uint64_t cap, struct genai_error *err)
{
	const struct genai_host *h = dev->host;
	int32_t rc = h->config_get_str(h->ctx, key, buf, cap);

	if (rc)
		CREF_FAIL(dev, err, rc, "cannot read the key %s", key);
	return rc;
}

static int32_t get_u64(struct cref_device *dev, const char *key, uint64_t *out,
		       struct genai_error *err)
{
	const struct genai_host *h = dev->host;
	int32_t rc = h->config_get_u64(h->ctx, key, out);

	if (rc)
		CREF_FAIL(dev, err, rc, "cannot read the key %s", key);
	return rc;
}

static int32_t configure_clock(struct cref_device *dev, struct genai_error *err)
{
	struct cref_clock *c = &dev->clock;
	char kind[16];
	int32_t rc = get_str(dev, "clock", kind, sizeof(kind), err);

	if (rc || strcmp(kind, "simulated"))
		return rc;
	c->on = true;
	rc = get_u64(dev, "link_bytes_per_s", &c->link_bytes_per_s, err);
	if (!rc)
		rc = get_u64(dev, "in_place_bytes_per_s",
			     &c->in_place_bytes_per_s, err);
	if (!c->in_place_bytes_per_s)
		c->in_place_bytes_per_s = c->link_bytes_per_s;
	if (!rc)
		rc = get_u64(dev, "memory_bytes_per_s", &c->memory_bytes_per_s,
			     err);
	if (!rc)
		rc = get_u64(dev, "copy_latency_ns", &c->copy_latency_ns, err);
	if (!rc)
		rc = get_u64(dev, "launch_ns", &c->launch_ns, err);
	return rc;
}

static int32_t configure_threads(struct cref_device *dev, uint32_t *out,
				 struct genai_error *err)
{
	uint64_t threads = 0;
	int32_t rc = get_u64(dev, "threads", &threads, err);

	if (rc)
		return rc;
	if (threads > 256)
		return CREF_FAIL(dev, err, GENAI_E_CONFIG,
				 "threads = %llu: at most 256",
				 (unsigned long long)threads);
	if (!threads) {
		long n = sysconf(_SC_NPROCESSORS_ONLN);

		threads = n > 0 ? (uint64_t)n : 1;
	}
	*out = (uint32_t)threads;
	return 0;
}

// One level for the process, the one asked for last: all give the same bits.
static int32_t configure_simd(struct cref_device *dev, struct genai_error *err)
{
	static const char *const names[] = {"generic", "avx2", "avx512"};
	char text[16];
	int32_t level = -1, rc = get_str(dev, "simd", text, sizeof(text), err);

	if (rc)
		return rc;
	for (int32_t i = 0; i < 3; i++)
		if (!strcmp(text, names[i]))
			level = i;
	if (cref_simd_force(level) != level && level >= 0)
		return CREF_FAIL(dev, err, GENAI_E_CONFIG,
				 "simd = %s: this machine has %s at most", text,
				 cref_simd_name());
	return 0;
}

static int32_t configure(struct cref_device *dev, uint32_t *out_threads,
			 struct genai_error *err)
{
	char text[4096];
	int32_t rc = configure_threads(dev, out_threads, err);

	if (!rc)
		rc = configure_simd(dev, err);
	if (!rc)
		rc = get_str(dev, "schedule", text, sizeof(text), err);
	if (!rc)
		rc = parse_schedule(dev, text, err);
	if (!rc)
		rc = get_str(dev, "poison", text, sizeof(text), err);
	if (!rc)
		dev->poison = strcmp(text, "auto")
				      ? !strcmp(text, "on")
				      : dev->schedule != CREF_INORDER;
	if (!rc)
		rc = configure_clock(dev, err);
	if (!rc)
		rc = get_str(dev, "fault", text, sizeof(text), err);
	if (!rc)
		rc = cref_fault_parse(dev, text, err);
	if (!rc)
		rc = get_str(dev, "trace", text, sizeof(text), err);
	if (!rc)
		rc = cref_trace_open(dev, text, err);
	return rc;
}

static void init_locks(struct cref_device *dev)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&dev->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&dev->moved, &attr);
	pthread_condattr_destroy(&attr);
}

static int32_t init(const struct genai_host *host,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	struct cref_device *dev =
		host->alloc(host->ctx, sizeof(*dev), "device");
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
	init_locks(dev);
	exec_shared_open(&dev->exec, &cref_executors, host);
	*out_self = dev;
	return 0;
err_dev:
	cref_trace_close(dev);
	host->free(host->ctx, dev);
	return rc;
}

static void fini(void *self)
{
	struct cref_device *dev = self;
	const struct genai_host *host = dev->host;

	// streams that were not given back must not run any more
	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (dev->streams[i])
			cref_thread_stop(dev->streams[i]);
	cref_pool_destroy(dev->pool);
	cref_device_free_all(dev);
	cref_trace_close(dev);
	exec_shared_close(&dev->exec);
	pthread_cond_destroy(&dev->moved);
	pthread_mutex_destroy(&dev->lock);
	host->free(host->ctx, dev);
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_STREAM, "cpu_ref", 1, 0, &cref_stream_ops},
	{GENAI_IFACE_BARRIER, "cpu_ref", 1, 0, &cref_barrier_ops},
	{GENAI_IFACE_EXECUTOR, "eager", 1, 0, &exec_eager_ops},
	{GENAI_IFACE_EXECUTOR, "captured", 1, 0, &exec_captured_ops},
};

static const struct genai_config_key keys[] = {
	{"schedule", "inorder", GENAI_KEY_STR, 0,
	 "inorder|threads|late|early|random:*",
	 "order in which queued work of several streams runs"},
	{"threads", "0", GENAI_KEY_U64, 0, NULL,
	 "threads that compute; 0 = one per core"},
	{"simd", "auto", GENAI_KEY_STR, 0, "auto|generic|avx2|avx512",
	 "vector instructions; auto: the widest that the machine has"},
	{"clock", "real", GENAI_KEY_STR, 0, "real|simulated",
	 "simulated: time is counted, from the five rates"},
	{"link_bytes_per_s", "0", GENAI_KEY_U64, 0, NULL,
	 "simulated rate of copies; 0 = no cost"},
	{"in_place_bytes_per_s", "0", GENAI_KEY_U64, 0, NULL,
	 "simulated rate of host memory read in place; 0 = as copies"},
	{"memory_bytes_per_s", "0", GENAI_KEY_U64, 0, NULL,
	 "simulated rate of device memory; 0 = no cost"},
	{"copy_latency_ns", "0", GENAI_KEY_U64, 0, NULL,
	 "simulated cost of every copy"},
	{"launch_ns", "0", GENAI_KEY_U64, 0, NULL,
	 "simulated cost of every unit of work"},
	{"poison", "auto", GENAI_KEY_STR, 0, "auto|on|off",
	 "fill new memory with 0xff; auto: unless the schedule is inorder"},
	{"fault", "none", GENAI_KEY_STR, 0, "none|oom:*|copy:*|lost:*|slow:*",
	 "fail the N-th allocation, copy or unit of work"},
	{"trace", "off", GENAI_KEY_STR, 0, NULL,
	 "file for the order in which things ran; off: none"},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = sizeof(ifaces) / sizeof(ifaces[0]),
	.name = "cpu_ref",
	.version = GENAI_VERSION_STRING,
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
	.keys = keys,
	.n_keys = sizeof(keys) / sizeof(keys[0]),
};

GENAI_MODULE_QUERY(block)
