/* runtime.h - an open runtime: the four tables of a configuration, wired.
 * The only part that knows all four kinds of interface. */
#ifndef GENAI_CORE_RUNTIME_H
#define GENAI_CORE_RUNTIME_H

#include <genai/executor.h>
#include <genai/genai.h>

#include "core/device.h"

#define GENAI_MAX_LAYERS 4
#define GENAI_MAX_MODULES (4 + GENAI_MAX_LAYERS)

struct genai_choice { /* [runtime] executor = MODULE:NAME */
	struct genai_module *module;
	char name[64];	/* interface name; "" = the only one */
	char label[64]; /* as configured, for statistics */
};

/* Whatever uses the device, for recover.c.  Each may be NULL. */
struct genai_user {
	struct genai_user *next;
	/* Did work of it fail, or was it skipped?  It cannot be told later. */
	void (*look)(struct genai_user *user);
	/* The device is clear: what was enqueued is void. */
	int32_t (*reset)(struct genai_user *user, struct genai_error *err);
	/* All is reset: be again where it was, if it lost work. */
	int32_t (*back)(struct genai_user *user, struct genai_error *err);
};

struct genai_runtime {
	struct genai_config *config;
	struct genai_log log;
	struct genai_module *modules[GENAI_MAX_MODULES];
	uint32_t n_modules;
	struct genai_choice executor, stream, barrier, pager;
	struct genai_choice layers[GENAI_MAX_LAYERS]; /* from below */
	uint32_t n_layers;
	struct genai_executor_ops exec;
	struct genai_pager_ops pager_ops;
	struct genai_exec_caps exec_caps;
	struct genai_pager_caps pager_caps;
	struct genai_device device;
	bool device_open;
	struct genai_user *users; /* list of those that are open */
	uint32_t n_models;
	bool unclear; /* an error of the device was not recovered from */
};

/* Without bringing the device up: configuration read, modules found, checked
 * and their keys declared.  For `genai modules` and `genai config`. */
int32_t genai_runtime_load(const struct genai_runtime_options *options,
			   struct genai_runtime **out_rt,
			   struct genai_error *err);
/* Bring it up (genai_open = load + start). */
int32_t genai_runtime_start(struct genai_runtime *rt, struct genai_error *err);
/* Its parts.  A place that the configuration names: the module loaded, also for
 * the stream runtime and the layers in front of it. */
int32_t genai_runtime_choose(struct genai_runtime *rt, const char *key,
			     struct genai_choice *c, struct genai_error *err);
int32_t genai_runtime_choose_stream(struct genai_runtime *rt,
				    struct genai_error *err);
/* Every module started, the device's first and what stands in front of it next;
 * the device open, its order checked if the configuration says so. */
int32_t genai_runtime_bring_up(struct genai_runtime *rt,
			       struct genai_error *err);
/* Of the modules chosen, which are up, the table and the caps; the executor has
 * to be one for the device. */
int32_t genai_runtime_take_executor(struct genai_runtime *rt,
				    struct genai_error *err);
int32_t genai_runtime_take_pager(struct genai_runtime *rt,
				 struct genai_error *err);
void genai_runtime_enter(struct genai_runtime *rt, struct genai_user *user);
void genai_runtime_leave(struct genai_runtime *rt, struct genai_user *user);
/* Submit a step.  All of it is one enqueue for tickets: an executor may go past
 * the core's tables. */
int32_t genai_runtime_submit(struct genai_runtime *rt, struct genai_plan *plan,
			     struct genai_stream *stream,
			     struct genai_error *err);

#endif
