// check_embed.c - embedders: vectors of two exports of transformers models
// against what transformers itself recorded, in every configuration; what is
// refused.
#include <jansson.h>
#include <math.h>

#include "tests/unit/session_kit.h"

#define EMBED(name) GENAI_TESTDATA "/embed/" name
#define MOST 512

static struct genai_embedder *embedder(struct genai_runtime *rt,
				       const char *folder, uint32_t pooling,
				       int32_t normalize)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_embedder_options o = {
		.size = sizeof(o), .pooling = pooling, .normalize = normalize};
	struct genai_embedder *e = NULL;
	int32_t rc = genai_embedder_open(rt, folder, &o, &e, &err);

	ck_assert_msg(!rc, "%s: %s", folder, err.text);
	return e;
}

static json_t *truth(const char *folder)
{
	char path[4400];
	json_t *j;

	snprintf(path, sizeof(path), "%s/truth.json", folder);
	j = json_load_file(path, 0, NULL);
	ck_assert_msg(json_is_array(j) && json_array_size(j) > 3, "%s", path);
	return j;
}

static size_t ids_of(const json_t *row, int64_t *ids)
{
	json_t *list = json_object_get(row, "ids");
	size_t n = json_array_size(list);

	ck_assert_uint_le(n, MOST);
	for (size_t i = 0; i < n; i++)
		ids[i] = json_integer_value(json_array_get(list, i));
	return n;
}

static double farthest(const float *v, const json_t *row, const char *key)
{
	json_t *list = json_object_get(row, key);
	double most = 0;

	ck_assert_uint_gt(json_array_size(list), 0);
	for (size_t i = 0; i < json_array_size(list); i++) {
		double d = fabs((double)v[i] -
				json_real_value(json_array_get(list, i)));

		// a NaN is far, too
		if (!(d <= most))
			most = d;
	}
	return most;
}

static void same_as_recorded(struct genai_runtime *rt, const char *folder)
{
	static const char *const keys[] = {"own", "mean", "cls", "last"};
	struct genai_error err = GENAI_ERROR_INIT;
	json_t *rows = truth(folder);
	int64_t ids[MOST];
	float v[MOST], again[MOST];

	for (uint32_t pooling = 0; pooling < 4; pooling++) {
		struct genai_embedder *e =
			embedder(rt, folder, pooling, pooling ? -1 : 0);
		struct genai_embedder_info info = {.size = sizeof(info)};

		ck_assert_int_eq(genai_embedder_get_info(e, &info), 0);
		for (size_t i = 0; i < json_array_size(rows); i++) {
			json_t *row = json_array_get(rows, i);
			size_t n = ids_of(row, ids);

			ck_assert_uint_eq(
				info.dimensions,
				json_array_size(json_object_get(row, "own")));
			ck_assert_msg(!genai_embedder_run(e, ids, n, v, &err),
				      "%s", err.text);
			ck_assert_double_lt(farthest(v, row, keys[pooling]),
					    1e-5);
			// texts between do not change it
			ck_assert(!genai_embedder_run(e, ids, 1, again, &err));
			ck_assert(!genai_embedder_run(e, ids, n, again, &err));
			ck_assert_mem_eq(v, again,
					 info.dimensions * sizeof(*v));
		}
		genai_embedder_close(e);
	}
	json_decref(rows);
}

START_TEST(recorded)
{
	static const char *const executors[] = {"eager", "captured"};
	static const char *const pagers[] = {"pager_sync", "pager_async"};
	static const char *const budgets[] = {"100%", "50%", "0"};

	for (int e = 0; e < 2; e++)
		for (int p = 0; p < 2; p++)
			for (int b = 0; b < 3; b++) {
				struct genai_runtime *rt =
					runtime(executors[e], pagers[p],
						budgets[b], NULL);

				same_as_recorded(rt, EMBED("bert-mean"));
				same_as_recorded(rt, EMBED("minilm-cls"));
				genai_close(rt);
			}
}
END_TEST

START_TEST(info)
{
	struct genai_runtime *rt = runtime("eager", "pager_sync", "0", NULL);
	struct genai_embedder *e = embedder(rt, EMBED("bert-mean"), 0, 0);
	struct genai_embedder_info i = {.size = sizeof(i)};

	ck_assert_int_eq(genai_embedder_get_info(e, &i), 0);
	ck_assert_uint_eq(i.max_tokens, 32); // not the 64 of config.json
	ck_assert_uint_eq(i.pooling, GENAI_POOL_MEAN);
	ck_assert_uint_eq(i.normalize, 1);
	ck_assert_uint_gt(i.weights_bytes, 0);
	ck_assert_str_eq(i.prompt, "");
	i.size = 4;
	ck_assert_int_eq(genai_embedder_get_info(e, &i), GENAI_E_INVAL);
	genai_embedder_close(e);
	genai_close(rt);
}
END_TEST

static void refuses(struct genai_embedder *e, const int64_t *ids, size_t n,
		    int32_t code, const char *text)
{
	struct genai_error err = GENAI_ERROR_INIT;
	float v[MOST];

	ck_assert_int_eq(genai_embedder_run(e, ids, n, v, &err), code);
	ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
}

START_TEST(bad_ids)
{
	struct genai_runtime *rt = runtime("eager", "pager_sync", "0", NULL);
	struct genai_embedder *e = embedder(rt, EMBED("bert-mean"), 0, 0);
	int64_t ids[33] = {2, 3};
	float v[MOST];

	refuses(e, ids, 0, GENAI_E_INVAL, "no tokens");
	refuses(e, ids, 33, GENAI_E_LIMIT, "33 tokens are more than the 32");
	ids[1] = -1;
	refuses(e, ids, 2, GENAI_E_INVAL, "token 1 is -1");
	ids[1] = 100000;
	refuses(e, ids, 2, GENAI_E_INVAL, "token 1 is 100000");
	ids[1] = 3;
	ck_assert_int_eq(genai_embedder_run(e, ids, 32, v, NULL), 0);
	genai_embedder_close(e);
	genai_close(rt);
}
END_TEST

static int32_t tries(struct genai_runtime *rt, const char *folder,
		     const struct genai_embedder_options *o,
		     struct genai_error *err)
{
	struct genai_embedder *e = NULL;
	int32_t rc = genai_embedder_open(rt, folder, o, &e, err);

	ck_assert(!rc == (e != NULL));
	genai_embedder_close(e);
	return rc;
}

START_TEST(bad_folders)
{
	struct genai_runtime *rt = runtime("eager", "pager_sync", "0", NULL);
	struct genai_embedder_options o = {.size = sizeof(o), .pooling = 4};
	struct genai_error err = GENAI_ERROR_INIT;

	ck_assert_int_eq(tries(rt, EMBED("bert-mean"), &o, &err),
			 GENAI_E_INVAL);
	o = (struct genai_embedder_options){.size = 8};
	ck_assert_int_eq(tries(rt, EMBED("bert-mean"), &o, &err),
			 GENAI_E_INVAL);
	ck_assert_int_eq(tries(NULL, EMBED("bert-mean"), NULL, &err),
			 GENAI_E_INVAL);
	ck_assert_int_eq(tries(rt, EMBED("gone"), NULL, &err),
			 GENAI_E_NOTFOUND);
	// one that generates
	ck_assert_int_eq(tries(rt, MODEL("llama-cpu-fp32"), NULL, &err),
			 GENAI_E_UNSUPPORTED);
	ck_assert_msg(strstr(err.text, "past_key_values.0.key is none") != NULL,
		      "%s", err.text);
	genai_close(rt);
}
END_TEST

// The device's limit holds, and a text that it is too small for is shorter.
START_TEST(little_memory)
{
	struct genai_runtime *rt = runtime("eager", "pager_async", "0",
					   "runtime.device_limit=16KiB");
	struct genai_error err = GENAI_ERROR_INIT;

	ck_assert_int_eq(tries(rt, EMBED("bert-mean"), NULL, &err),
			 GENAI_E_LIMIT);
	genai_close(rt);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("embed");
	TCase *t = tcase_create("embed");

	tcase_set_timeout(t, 120);
	tcase_add_test(t, recorded);
	tcase_add_test(t, info);
	tcase_add_test(t, bad_ids);
	tcase_add_test(t, bad_folders);
	tcase_add_test(t, little_memory);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
