/* session_kit.h - a runtime with the modules of this build, models of the test
 * data, and a stream runtime whose units can be made to fail. */
#ifndef GENAI_TESTS_SESSION_KIT_H
#define GENAI_TESTS_SESSION_KIT_H

#include <genai/genai.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/model/model.h"
#include "tests/unit/harness.h"

#define MODEL(name) GENAI_TESTDATA "/models/" name

static struct {
	char lines[32][512];
	uint32_t n;
} logged;

static inline void keep_log(void *ctx, int32_t level, const char *text)
{
	(void)ctx;
	if (level > GENAI_LOG_WARN || logged.n == 32)
		return;
	snprintf(logged.lines[logged.n++], 512, "%s", text);
}

static inline int was_logged(const char *part)
{
	for (uint32_t i = 0; i < logged.n; i++)
		if (strstr(logged.lines[i], part))
			return 1;
	return 0;
}

/* executor, pager and budget; more: one further "section.key=value" or NULL. */
static inline int32_t try_runtime(const char *executor, const char *pager,
				  const char *budget, const char *more,
				  struct genai_runtime **out,
				  struct genai_error *err)
{
	char set[6][512];
	const char *sets[7];
	struct genai_runtime_options o = {.size = sizeof(o),
					  .config_path = GENAI_TESTDATA
					  "/../../conf/cpu.ini",
					  .sets = sets,
					  .n_sets = more ? 6 : 5,
					  .log = keep_log};

	logged.n = 0;
	snprintf(set[0], 512, "module.cpu_ref.path=%s/cpu_ref.so",
		 GENAI_TESTMODULES);
	snprintf(set[1], 512, "module.%s.path=%s/%s.so", pager,
		 GENAI_TESTMODULES, pager);
	snprintf(set[2], 512, "runtime.executor=cpu_ref:%s", executor);
	snprintf(set[3], 512, "runtime.pager=%s", pager);
	snprintf(set[4], 512, "runtime.weight_budget=%s", budget);
	for (int i = 0; i < 5; i++)
		sets[i] = set[i];
	sets[5] = more;
	return genai_open(&o, out, err);
}

static inline struct genai_runtime *runtime(const char *executor,
					    const char *pager,
					    const char *budget,
					    const char *more)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_runtime *rt = NULL;
	int32_t rc = try_runtime(executor, pager, budget, more, &rt, &err);

	ck_assert_msg(!rc, "%s", err.text);
	return rt;
}

static inline struct genai_model *model(struct genai_runtime *rt,
					const char *folder, uint32_t flags)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_model_options o = {.size = sizeof(o), .flags = flags};
	struct genai_model *m = NULL;
	int32_t rc = genai_model_open(rt, folder, &o, &m, &err);

	ck_assert_msg(!rc, "%s", err.text);
	return m;
}

static inline struct genai_session *session(struct genai_model *m)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_session *s = NULL;
	int32_t rc = genai_session_open(m, &s, &err);

	ck_assert_msg(!rc, "%s", err.text);
	return s;
}

/* One of each, on the plain model. */
struct kit {
	struct genai_runtime *rt;
	struct genai_model *m;
	struct genai_session *s;
};

static inline struct kit kit_open(const char *executor, const char *pager,
				  const char *budget, uint32_t flags)
{
	struct kit k;

	k.rt = runtime(executor, pager, budget, NULL);
	k.m = model(k.rt, MODEL("llama-cpu-fp32"), flags);
	k.s = session(k.m);
	return k;
}

static inline struct kit kit_plain(uint32_t flags)
{
	return kit_open("eager", "pager_sync", "auto", flags);
}

static inline void kit_close(struct kit *k)
{
	genai_session_close(k->s);
	genai_model_close(k->m);
	genai_close(k->rt);
	ck_assert_msg(!logged.n, "%s", logged.lines[0]);
}

static inline void append(struct genai_session *s, const int64_t *ids, size_t n)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc = genai_session_append(s, ids, n, &err);

	ck_assert_msg(!rc, "%s", err.text);
}

static inline int64_t next(struct genai_session *s, int32_t ahead)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int64_t id = -1;
	int32_t rc = genai_session_next(s, ahead, &id, &err);

	ck_assert_msg(!rc, "%s", err.text);
	return id;
}

static inline void rewind_to(struct genai_session *s, uint64_t length)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc = genai_session_rewind(s, length, &err);

	ck_assert_msg(!rc, "%s", err.text);
}

static inline void fails(int32_t rc, int32_t code, const struct genai_error *e,
			 const char *part)
{
	ck_assert_msg(rc == code, "code %d, expected %d: %s", rc, code,
		      e->text);
	ck_assert_int_eq(e->code, code);
	ck_assert_msg(strstr(e->text, part) != NULL, "'%s' lacks '%s'", e->text,
		      part);
	ck_assert_ptr_null(strchr(e->text, '\n'));
}

/* ---- units that fail ---- */

static struct {
	int32_t (*launch)(void *self, struct genai_stream *stream,
			  const struct genai_work *work,
			  const struct genai_access *accesses, uint32_t n,
			  struct genai_error *err);
	int64_t countdown; /* launches until the one that fails; < 0: never */
	char name[128];	   /* of the unit that failed */
} fault;

static inline int32_t broken_unit(void *ctx, void *const *mem,
				  struct genai_error *err)
{
	(void)ctx;
	(void)mem;
	if (err) {
		err->code = GENAI_E_DEVICE;
		snprintf(err->text, sizeof(err->text), "%s: broken on purpose",
			 fault.name);
	}
	return GENAI_E_DEVICE;
}

static inline int32_t faulty_launch(void *self, struct genai_stream *stream,
				    const struct genai_work *work,
				    const struct genai_access *accesses,
				    uint32_t n, struct genai_error *err)
{
	struct genai_work w = *work;

	if (fault.countdown >= 0 && !fault.countdown--) {
		snprintf(fault.name, sizeof(fault.name), "%s", work->name);
		w.fn = broken_unit;
	}
	return fault.launch(self, stream, &w, accesses, n, err);
}

/* The launch after n more ones fails. */
static inline void break_launch(struct genai_runtime *rt, int64_t n)
{
	if (rt->device.raw.launch != faulty_launch) {
		fault.launch = rt->device.raw.launch;
		rt->device.raw.launch = faulty_launch;
	}
	fault.countdown = n;
}

/* ---- copies of model folders ---- */

static char copied[128];

/* A copy of a model folder in a new one, to be damaged. */
static inline const char *copy_model(const char *folder)
{
	char cmd[700];

	snprintf(copied, sizeof(copied), "/tmp/genai-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(copied));
	snprintf(cmd, sizeof(cmd),
		 "cp %s/*.json %s/model.onnx* %s && chmod -R u+w %s", folder,
		 folder, copied, copied);
	ck_assert_int_eq(system(cmd), 0);
	return copied;
}

static inline void drop_copy(void)
{
	char cmd[200];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", copied);
	ck_assert_int_eq(system(cmd), 0);
}

/* Replace text in a file of the copy. */
static inline void edit_copy(const char *name, const char *from, const char *to)
{
	char path[300], cmd[900];

	snprintf(path, sizeof(path), "%s/%s", copied, name);
	snprintf(cmd, sizeof(cmd), "sed -i 's|%s|%s|' %s", from, to, path);
	ck_assert_int_eq(system(cmd), 0);
}

#endif
