// info.c - modules and config: what this configuration is.
#include "tools/cli.h"

#include <string.h>

static const char *state_of(const struct genai_module *m)
{
	return genai_module_self(m) ? "up" : "loaded";
}

static json_t *module_json(const struct genai_module *m)
{
	json_t *ifaces = json_array();
	uint32_t abi = genai_module_abi(m);

	for (uint32_t i = 0; i < genai_module_n_ifaces(m); i++) {
		const struct genai_iface *f = genai_module_iface_at(m, i);

		json_array_append_new(ifaces,
				      json_pack("{s:s, s:s, s:i}", "type",
						f->type, "name", f->name,
						"version", (int)f->version));
	}
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "name",
			 genai_module_name(m), "path", genai_module_path(m),
			 "version", genai_module_version(m), "abi",
			 abi == GENAI_ABI ? "1.0" : "other", "licence",
			 genai_module_licence(m), "state", state_of(m),
			 "interfaces", ifaces);
}

static void print_module(const struct genai_module *m)
{
	uint32_t abi = genai_module_abi(m);

	printf("%s %s (ABI %u.%u, %s, %s)\n  %s\n", genai_module_name(m),
	       genai_module_version(m), abi >> 16, abi & 0xffff,
	       genai_module_licence(m), state_of(m), genai_module_path(m));
	for (uint32_t i = 0; i < genai_module_n_ifaces(m); i++) {
		const struct genai_iface *f = genai_module_iface_at(m, i);

		printf("  %s %s:%s version %u\n", f->type, genai_module_name(m),
		       f->name, f->version);
	}
}

static json_t *device_json(const struct genai_runtime *rt)
{
	const struct genai_stream_caps *s = &rt->device.caps;

	return json_pack("{s:s, s:s, s:b, s:b, s:b, s:b}", "kind",
			 s->device_kind, "name", s->device_name, "records",
			 !!(s->flags & GENAI_STREAM_CAP_RECORD), "in_place",
			 !!(s->flags & GENAI_STREAM_CAP_IN_PLACE), "reserve",
			 !!(s->flags & GENAI_STREAM_CAP_RESERVE), "shared",
			 !!(s->flags & GENAI_STREAM_CAP_SHARED));
}

static void print_device(const struct genai_runtime *rt)
{
	const struct genai_stream_caps *s = &rt->device.caps;

	printf("device: %s (%s)%s%s%s%s\n", s->device_name, s->device_kind,
	       s->flags & GENAI_STREAM_CAP_RECORD ? ", records" : "",
	       s->flags & GENAI_STREAM_CAP_IN_PLACE ? ", reads in place" : "",
	       s->flags & GENAI_STREAM_CAP_RESERVE ? ", address ranges" : "",
	       s->flags & GENAI_STREAM_CAP_SHARED ? ", shared memory" : "");
	printf("executor %s: %u operators%s\n", rt->executor.label,
	       rt->exec_caps.n_ops,
	       rt->exec_caps.flags & GENAI_EXEC_CAP_RECORDS ? ", records steps"
							    : "");
	printf("pager %s:%s%s%s\n", rt->pager.label,
	       rt->pager_caps.flags & GENAI_PAGER_CAP_STABLE
		       ? " stable addresses"
		       : "",
	       rt->pager_caps.flags & GENAI_PAGER_CAP_IN_PLACE ? ", in place"
							       : "",
	       rt->pager_caps.flags & GENAI_PAGER_CAP_ASYNC ? ", asynchronous"
							    : "");
}

static bool as_json;

static const struct cli_option options[] = {
	{"json", 0, CLI_FLAG, NULL, "one JSON object", &as_json}, {0}};

static int no_arguments(struct cli *c, int argc, char **argv)
{
	int at = cli_options(c, options, argc, argv);

	if (at < 0)
		return -at;
	return at == argc ? 0 : cli_usage(c, "unexpected: %s", argv[at]);
}

static int32_t load(struct cli *c, struct genai_runtime **out)
{
	struct genai_runtime_options o = cli_runtime_options(c);
	int32_t rc = genai_runtime_load(&o, out, &c->err);

	c->config_failed = rc != 0;
	return rc;
}

static int modules(struct cli *c, int argc, char **argv)
{
	int status = no_arguments(c, argc, argv);
	struct genai_runtime *rt;
	json_t *list;
	bool up;

	if (status)
		return status;
	if (load(c, &rt))
		return cli_fail(c);
	// a device that is not there does not hide what is installed
	up = !genai_runtime_start(rt, &c->err);
	list = json_array();
	for (uint32_t i = 0; i < rt->n_modules; i++) {
		if (as_json)
			json_array_append_new(list,
					      module_json(rt->modules[i]));
		else
			print_module(rt->modules[i]);
	}
	if (as_json) {
		json_t *j = json_pack("{s:O}", "modules", list);

		if (up)
			json_object_set_new(j, "device", device_json(rt));
		else
			json_object_set_new(j, "error",
					    json_string(c->err.text));
		cli_print_json(j);
	} else if (up) {
		print_device(rt);
	} else {
		printf("device: %s\n", c->err.text);
	}
	json_decref(list);
	genai_close(rt);
	return 0;
}

static void print_key(void *ctx, const char *section, const char *key,
		      const char *value, const char *origin)
{
	static char last[160];

	(void)ctx;
	if (strcmp(last, section)) {
		printf("%s[%s]\n", last[0] ? "\n" : "", section);
		snprintf(last, sizeof(last), "%s", section);
	}
	printf("%-18s = %-24s ; %s\n", key, value, origin);
}

static void add_key(void *ctx, const char *section, const char *key,
		    const char *value, const char *origin)
{
	json_array_append_new(ctx, json_pack("{s:s, s:s, s:s, s:s}", "section",
					     section, "key", key, "value",
					     value, "origin", origin));
}

const struct command cmd_modules = {
	"modules", modules, "[--json]", "the modules of this configuration",
	options,   NULL};

int cli_each_key(struct cli *c,
		 void (*each)(void *ctx, const char *section, const char *key,
			      const char *value, const char *origin))
{
	struct genai_runtime *rt;

	if (load(c, &rt))
		return cli_fail(c);
	genai_config_each(rt->config, each, NULL);
	genai_close(rt);
	return 0;
}

static int config(struct cli *c, int argc, char **argv)
{
	int status = no_arguments(c, argc, argv);
	struct genai_runtime *rt;
	json_t *keys;

	if (status)
		return status;
	if (load(c, &rt))
		return cli_fail(c);
	if (as_json) {
		keys = json_array();
		genai_config_each(rt->config, add_key, keys);
		cli_print_json(json_pack("{s:s?, s:o}", "file",
					 genai_config_path(rt->config), "keys",
					 keys));
	} else {
		genai_config_each(rt->config, print_key, NULL);
	}
	genai_close(rt);
	return 0;
}

const struct command cmd_config = {
	"config", config, "[--json]", "every effective key and its origin",
	options,  NULL};
