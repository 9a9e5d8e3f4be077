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

		printf("  %s %s:%s version %u\n", f->type,
		       genai_module_name(m), f->name, f->version);
	}
}

static json_t *device_json(const struct genai_runtime *rt)
{
	const struct genai_stream_caps *s = &rt->device.caps;

	return json_pack(
		"{s:s, s:s, s:b, s:b, s:b, s:b}", "kind", s->device_kind,
		"name", s->device_name, "records",
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

static bool json_flag(struct cli *c, int argc, char **argv, bool *json)
{
	static const struct option opts[] = {{"json", no_argument, NULL, 'j'},
					     {NULL, 0, NULL, 0}};
	int opt;

	opterr = 0;
	while ((opt = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		if (opt != 'j') {
			cli_usage(c, "unknown option: %s", argv[optind - 1]);
			return false;
		}
		*json = true;
	}
	if (optind != argc) {
		cli_usage(c, "unexpected: %s", argv[optind]);
		return false;
	}
	return true;
}

static int32_t load(struct cli *c, struct genai_runtime **out)
{
	struct genai_runtime_options o = {
		.size = sizeof(o),
		.config_path = c->config_path,
		.sets = c->sets,
		.n_sets = c->n_sets,
		.log = cli_log,
		.log_ctx = c,
	};
	int32_t rc = genai_runtime_load(&o, out, &c->err);

	c->config_failed = rc != 0;
	return rc;
}

int cmd_modules(struct cli *c, int argc, char **argv)
{
	struct genai_runtime *rt;
	bool json = false, up;
	json_t *list;

	if (!json_flag(c, argc, argv, &json))
		return EXIT_USAGE;
	if (load(c, &rt))
		return cli_fail(c);
	// a device that is not there does not hide what is installed
	up = !genai_runtime_start(rt, &c->err);
	list = json_array();
	for (uint32_t i = 0; i < rt->n_modules; i++) {
		if (json)
			json_array_append_new(list,
					      module_json(rt->modules[i]));
		else
			print_module(rt->modules[i]);
	}
	if (json) {
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

int cmd_config(struct cli *c, int argc, char **argv)
{
	struct genai_runtime *rt;
	bool json = false;
	json_t *keys;

	if (!json_flag(c, argc, argv, &json))
		return EXIT_USAGE;
	if (load(c, &rt))
		return cli_fail(c);
	if (json) {
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
