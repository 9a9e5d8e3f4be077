/* host.h - the services that modules get, and the books kept about them.
 * Owns: one genai_host per loaded module, tagged host memory, logging, threads,
 * counters.  Does not know: interfaces. */
#ifndef GENAI_CORE_HOST_H
#define GENAI_CORE_HOST_H

#include "core/config/config.h"

struct genai_log {
	void (*fn)(void *ctx, int32_t level, const char *text);
	void *ctx;
	int32_t level; /* lines above it are dropped */
};

/* One line to the log; NULL log or fn: errors and warnings go to stderr. */
void genai_log_line(const struct genai_log *log, int32_t level, const char *fmt,
		    ...) __attribute__((format(printf, 3, 4)));

struct genai_host_env; /* per module */

/* name is the module's; config and log are borrowed until close. */
int32_t genai_host_open(const char *name, const struct genai_config *config,
			const struct genai_log *log,
			struct genai_host_env **out_env,
			struct genai_error *err);
/* Logs (GENAI_LOG_ERROR) live allocations and threads, by tag and name. */
void genai_host_close(struct genai_host_env *env);
const struct genai_host *genai_host_table(const struct genai_host_env *env);
/* What the module has now. */
struct genai_host_live {
	uint64_t bytes;
	uint32_t allocations, threads;
};
struct genai_host_live genai_host_live(struct genai_host_env *env);

/* ticket_check of the table asks this (set by the runtime when the module
 * serves as a stream runtime; before that tickets are refused). */
void genai_host_set_ticket_check(
	struct genai_host_env *env,
	int32_t (*fn)(void *ctx, const struct genai_ticket *ticket,
		      struct genai_range range, struct genai_error *err),
	void *ctx);

/* below of the table asks this, of a layer only; ctx is freed with the host. */
void genai_host_set_below(struct genai_host_env *env,
			  int32_t (*fn)(void *ctx, const char *type,
					const void **out_ops, void **out_self),
			  void *ctx);

/* Tests: the n-th allocation from now on (1 = next) fails; with sticky, all
 * later ones too.  0 switches off. */
void genai_host_fail_alloc(struct genai_host_env *env, uint64_t n,
			   int32_t sticky);

/* Counters, summed per name over all threads. */
void genai_host_each_counter(const struct genai_host_env *env,
			     void (*fn)(void *ctx, const char *name,
					int64_t value),
			     void *ctx);

#endif
