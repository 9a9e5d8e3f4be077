// runtime.c - from a configuration to four wired tables, and back.
#include "core/runtime.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/config/keys.h"

static struct genai_module *loaded(struct genai_runtime *rt, const char *name)
{
	for (uint32_t i = 0; i < rt->n_modules; i++)
		if (!strcmp(genai_module_name(rt->modules[i]), name))
			return rt->modules[i];
	return NULL;
}

// The module of n characters of v, "MODULE" or "MODULE:NAME"; loaded if it is
// not yet.
static int32_t choose(struct genai_runtime *rt, const char *key, const char *v,
		      size_t n, struct genai_choice *c, struct genai_error *err)
{
	const char *colon = memchr(v, ':', n);
	size_t n_module = colon ? (size_t)(colon - v) : n;
	char module[64];
	int32_t rc;

	if (!n_module || n_module >= sizeof(module) || n >= sizeof(c->label))
		return genai_config_fail(rt->config, "runtime", key, err,
					 "is not MODULE or MODULE:NAME");
	snprintf(module, sizeof(module), "%.*s", (int)n_module, v);
	snprintf(c->label, sizeof(c->label), "%.*s", (int)n, v);
	snprintf(c->name, sizeof(c->name), "%s",
		 colon ? c->label + n_module + 1 : "");
	c->module = loaded(rt, module);
	if (c->module)
		return 0;
	rc = genai_module_load(module, rt->config, &rt->log, &c->module, err);
	if (!rc)
		rt->modules[rt->n_modules++] = c->module;
	return rc;
}

int32_t genai_runtime_choose(struct genai_runtime *rt, const char *key,
			     struct genai_choice *c, struct genai_error *err)
{
	const char *v = genai_config_get(rt->config, "runtime", key);

	return choose(rt, key, v, strlen(v), c, err);
}

// The last one of "LAYER > ... > MODULE" drives the device.
int32_t genai_runtime_choose_stream(struct genai_runtime *rt,
				    struct genai_error *err)
{
	const char *v = genai_config_get(rt->config, "runtime", "stream");
	size_t end = strlen(v), n;
	struct genai_choice *c = &rt->stream;
	const char *name;
	bool more = true;
	int32_t rc;

	if (end >= sizeof(rt->stream.label))
		return genai_config_fail(rt->config, "runtime", "stream", err,
					 "is longer than %zu characters",
					 sizeof(rt->stream.label) - 1);
	while (more) {
		more = genai_stack_last(v, &end, &name, &n);
		rc = choose(rt, "stream", name, n, c, err);
		if (!rc)
			rc = genai_module_has_iface(
				c->module,
				c == &rt->stream ? GENAI_IFACE_STREAM
						 : GENAI_IFACE_STREAM_LAYER,
				c->name, err);
		if (rc)
			return rc;
		for (uint32_t i = 0; i < rt->n_layers; i++)
			if (rt->layers[i].module == c->module &&
			    c != &rt->layers[i])
				return genai_config_fail(
					rt->config, "runtime", "stream", err,
					"has %s twice", c->label);
		if (more && rt->n_layers == GENAI_MAX_LAYERS)
			return genai_config_fail(
				rt->config, "runtime", "stream", err,
				"has more than %d layers", GENAI_MAX_LAYERS);
		if (more)
			c = &rt->layers[rt->n_layers++];
	}
	snprintf(rt->stream.label, sizeof(rt->stream.label), "%s", v);
	return 0;
}

struct counters {
	const char *module;
	void (*fn)(void *ctx, const char *name, int64_t value);
	void *ctx;
};

static void named(void *ctx, const char *name, int64_t value)
{
	const struct counters *c = ctx;
	char full[128];

	snprintf(full, sizeof(full), "%s.%s", c->module, name);
	c->fn(c->ctx, full, value);
}

int32_t genai_get_counters(struct genai_runtime *rt,
			   void (*fn)(void *ctx, const char *name,
				      int64_t value),
			   void *ctx, struct genai_error *err)
{
	struct counters c = {.fn = fn, .ctx = ctx};

	if (!fn)
		return genai_fail(err, GENAI_E_INVAL,
				  "no function for counters");
	for (uint32_t i = 0; i < rt->n_modules; i++) {
		c.module = genai_module_name(rt->modules[i]);
		genai_host_each_counter(genai_module_host(rt->modules[i]),
					named, &c);
	}
	return 0;
}

int32_t genai_runtime_load(const struct genai_runtime_options *o,
			   struct genai_runtime **out_rt,
			   struct genai_error *err)
{
	struct genai_runtime *rt;
	int32_t rc;

	if (o && (!GENAI_HAS(o, log_ctx) ||
		  !genai_options_known(o, sizeof(*o)) || o->flags))
		return genai_fail(err, GENAI_E_INVAL,
				  "runtime options: size %u, flags %#x",
				  o->size, o->flags);
	if (o && o->n_sets && !o->sets)
		return genai_fail(err, GENAI_E_INVAL,
				  "runtime options: %u sets, but no list",
				  o->n_sets);
	rt = calloc(1, sizeof(*rt));
	if (!rt)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	rt->log.level = GENAI_LOG_INFO;
	if (o) {
		rt->log.fn = o->log;
		rt->log.ctx = o->log_ctx;
	}
	rc = genai_config_load(o ? o->config_path : NULL, o ? o->sets : NULL,
			       o ? o->n_sets : 0, &rt->config, err);
	// the device's module first: it has to be up before the others
	if (!rc)
		rc = genai_runtime_choose_stream(rt, err);
	if (!rc)
		rc = genai_runtime_choose(rt, "barrier", &rt->barrier, err);
	if (!rc)
		rc = genai_runtime_choose(rt, "executor", &rt->executor, err);
	if (!rc)
		rc = genai_runtime_choose(rt, "pager", &rt->pager, err);
	if (rc)
		genai_close(rt);
	else
		*out_rt = rt;
	return rc;
}

// ---- start ----

static int32_t device_limit(struct genai_runtime *rt, uint64_t total,
			    uint64_t *out_limit, struct genai_error *err)
{
	const char *v = genai_config_get(rt->config, "runtime", "device_limit");
	struct genai_error why = GENAI_ERROR_INIT;
	double percent;

	*out_limit = UINT64_MAX;
	if (!strcmp(v, "auto"))
		return 0;
	if (genai_parse_bytes(v, out_limit, &percent, &why))
		return genai_config_fail(rt->config, "runtime", "device_limit",
					 err, "%s", why.text);
	if (percent < 0)
		return 0;
	if (total == UINT64_MAX)
		return genai_config_fail(rt->config, "runtime", "device_limit",
					 err,
					 "this device has no size to take a "
					 "percentage of");
	*out_limit = (uint64_t)((double)total * percent / 100);
	return 0;
}

static int32_t init_params(struct genai_runtime *rt,
			   struct genai_init_params *params,
			   struct genai_error *err)
{
	const char *v = genai_config_get(rt->config, "runtime", "device");
	uint64_t device, limit;
	int32_t rc = genai_parse_u64(v, &device, NULL);

	if (rc || device > 1024)
		return genai_config_fail(rt->config, "runtime", "device", err,
					 "is not a device number");
	*params = (struct genai_init_params){.size = sizeof(*params),
					     .device = (uint32_t)device,
					     .device_limit = UINT64_MAX};
	// a percentage is of what the device has, known only when it is up:
	// then the core alone enforces it
	if (!device_limit(rt, UINT64_MAX, &limit, NULL))
		params->device_limit = limit;
	return 0;
}

int32_t genai_runtime_bring_up(struct genai_runtime *rt,
			       struct genai_error *err)
{
	struct genai_init_params params;
	int32_t rc = init_params(rt, &params, err);

	if (!rc)
		rc = genai_module_start(rt->stream.module, &params, err);
	if (!rc)
		rc = genai_device_open(&rt->device, rt->stream.module,
				       rt->stream.name, rt->barrier.module,
				       rt->barrier.name, 1, &rt->log, err);
	if (rc)
		return rc;
	rt->device_open = true;
	for (uint32_t i = 0; i < rt->n_modules; i++)
		genai_device_serve(&rt->device, rt->modules[i]);
	for (uint32_t i = 0; !rc && i < rt->n_layers; i++)
		rc = genai_device_add_layer(&rt->device, rt->layers[i].module,
					    rt->layers[i].name, &params, err);
	for (uint32_t i = 0; !rc && i < rt->n_modules; i++)
		if (!genai_module_self(rt->modules[i]))
			rc = genai_module_start(rt->modules[i], &params, err);
	if (!rc &&
	    !strcmp(genai_config_get(rt->config, "runtime", "check"), "order"))
		rc = genai_device_check_order(&rt->device, err);
	return rc;
}

static int32_t check_fit(struct genai_runtime *rt, struct genai_error *err)
{
	const char *want = rt->exec_caps.device_kind;
	const char *have = rt->device.caps.device_kind;

	if (!memchr(want, 0, sizeof(rt->exec_caps.device_kind)))
		return genai_fail(err, GENAI_E_MODULE,
				  "module %s: device kind is not a string",
				  genai_module_name(rt->executor.module));
	if (strcmp(want, have))
		return genai_config_fail(
			rt->config, "runtime", "executor", err,
			"needs a device of kind '%s', but stream = %s drives "
			"one of kind '%s'",
			want, rt->stream.label, have);
	return 0;
}

int32_t genai_runtime_take_executor(struct genai_runtime *rt,
				    struct genai_error *err)
{
	struct genai_module *m = rt->executor.module;
	int32_t rc = genai_module_get_iface(m, GENAI_IFACE_EXECUTOR,
					    rt->executor.name, &rt->exec,
					    sizeof(rt->exec), err);

	rt->exec_caps.size = sizeof(rt->exec_caps);
	if (!rc)
		rc = rt->exec.caps(genai_module_self(m), &rt->exec_caps, err);
	return rc ? rc : check_fit(rt, err);
}

int32_t genai_runtime_take_pager(struct genai_runtime *rt,
				 struct genai_error *err)
{
	struct genai_module *m = rt->pager.module;
	int32_t rc = genai_module_get_iface(m, GENAI_IFACE_PAGER,
					    rt->pager.name, &rt->pager_ops,
					    sizeof(rt->pager_ops), err);

	rt->pager_caps.size = sizeof(rt->pager_caps);
	return rc ? rc
		  : rt->pager_ops.caps(genai_module_self(m), &rt->pager_caps,
				       err);
}

int32_t genai_runtime_start(struct genai_runtime *rt, struct genai_error *err)
{
	uint64_t limit;
	int32_t rc = genai_runtime_bring_up(rt, err);

	if (!rc)
		rc = device_limit(rt, rt->device.caps.total_bytes, &limit, err);
	if (rc)
		return rc;
	genai_device_set_limit(&rt->device, limit);
	rc = genai_runtime_take_executor(rt, err);
	return rc ? rc : genai_runtime_take_pager(rt, err);
}

int32_t genai_open(const struct genai_runtime_options *options,
		   struct genai_runtime **out_rt, struct genai_error *err)
{
	struct genai_runtime *rt;
	int32_t rc = genai_runtime_load(options, &rt, err);

	if (rc)
		return rc;
	rc = genai_runtime_start(rt, err);
	if (rc)
		genai_close(rt);
	else
		*out_rt = rt;
	return rc;
}

int32_t genai_runtime_submit(struct genai_runtime *rt, struct genai_plan *plan,
			     struct genai_stream *stream,
			     struct genai_error *err)
{
	int32_t rc;

	genai_device_enqueue_begin(&rt->device);
	rc = rt->exec.submit(plan, stream, NULL, 0, NULL, err);
	genai_device_enqueue_end(&rt->device);
	return rc;
}

void genai_runtime_enter(struct genai_runtime *rt, struct genai_user *user)
{
	user->next = rt->users;
	rt->users = user;
}

void genai_runtime_leave(struct genai_runtime *rt, struct genai_user *user)
{
	struct genai_user **at = &rt->users;

	while (*at != user)
		at = &(*at)->next;
	*at = user->next;
}

void genai_close(struct genai_runtime *rt)
{
	if (!rt)
		return;
	if (rt->n_models) {
		genai_log_line(&rt->log, GENAI_LOG_ERROR,
			       "closed with %u models open: leaked",
			       rt->n_models);
		return;
	}
	if (rt->device_open)
		genai_device_close(&rt->device);
	while (rt->n_modules)
		genai_module_close(rt->modules[--rt->n_modules]);
	genai_config_close(rt->config);
	free(rt);
}
