// suite_keys.c - the numeric keys of a module: what init takes, it works with,
// at the least, the greatest, and between.
#include "tests/conform/use.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char set[300];
static const char *const sets[] = {set, NULL};

static void say(const char *key, uint64_t value)
{
	snprintf(set, sizeof(set), "module.%s.%s=%llu", cf.name, key,
		 (unsigned long long)value);
}

static int32_t init_with(void)
{
	struct genai_init_params params = {.size = sizeof(params),
					   .device_limit = UINT64_MAX};
	struct genai_config *config = NULL;
	struct genai_module *m = NULL;
	int32_t rc = cf_load(sets, &config, &m, NULL);

	if (rc)
		return rc;
	rc = genai_module_start(m, &params, NULL);
	genai_module_close(m);
	genai_config_close(config);
	return rc;
}

static bool is_taken(const char *key, uint64_t value)
{
	say(key, value);
	return !init_with();
}

// A number, or one of its words; a key that takes any text is none.
static bool is_number(const struct genai_config_key *k)
{
	uint64_t unused;

	if (k->kind == GENAI_KEY_U64 || k->kind == GENAI_KEY_BYTES)
		return true;
	if (k->kind != GENAI_KEY_STR || k->choices)
		return false;
	return !strcmp(k->default_value, "auto") ||
	       !genai_parse_u64(k->default_value, &unused, NULL);
}

// The limit between a value that is taken and one that is not.
static uint64_t edge(const char *key, uint64_t taken, uint64_t refused)
{
	while (taken > refused ? taken - refused > 1 : refused - taken > 1) {
		uint64_t mid = taken > refused ? refused + (taken - refused) / 2
					       : taken + (refused - taken) / 2;

		if (is_taken(key, mid))
			taken = mid;
		else
			refused = mid;
	}
	return taken;
}

static void use_it(const char *key, uint64_t value)
{
	struct use *u;

	if (!is_taken(key, value))
		return; // there may be holes
	u = use_open(sets);
	use_steps(u, 3);
	use_close(u);
}

static void try_key(const char *key)
{
	static const uint64_t some[] = {3, 16, 64, 256, 4096, 1u << 20};
	uint64_t least, most, seed = cf_seed(3), in = 0;

	for (uint32_t i = 0; !in && i < sizeof(some) / sizeof(some[0]); i++)
		if (is_taken(key, some[i]))
			in = some[i];
	if (!in)
		return;
	least = is_taken(key, 1) ? 1 : edge(key, in, 1);
	most = is_taken(key, UINT64_MAX) ? UINT64_MAX
					 : edge(key, in, UINT64_MAX);
	use_it(key, 0); // often: of its own choice
	use_it(key, least);
	use_it(key, most);
	if (most > least) {
		use_it(key, least + 1);
		use_it(key, most - 1);
		use_it(key, (least | 1) + 2);
	}
	for (int i = 0; i < 2 && most - least > 2; i++) {
		uint64_t v = cf_random(&seed) >> cf_below(&seed, 60);

		use_it(key, least + v % (most - least));
	}
}

static void keys(void)
{
	const struct genai_module_block *b =
		cf_query()(GENAI_ABI, &(int32_t){0});
	uint32_t n = 0;

	for (uint32_t i = 0; i < b->n_keys; i++) {
		const struct genai_config_key *k =
			(const void *)((const char *)b->keys +
				       (size_t)i * b->key_stride);

		if (!is_number(k))
			continue;
		n++;
		try_key(k->name);
	}
	if (!n)
		cf_skip("has no numeric key");
}

static const struct cf_test tests[] = {
	{"stream/keys", "GM-16", GENAI_IFACE_STREAM, 0, keys},
	{"pager/keys", "GM-16", GENAI_IFACE_PAGER, 0, keys},
	{"executor/keys", "GM-16", GENAI_IFACE_EXECUTOR, 0, keys},
};
const struct cf_suite cf_suite_keys = {tests, sizeof(tests) / sizeof(tests[0])};
