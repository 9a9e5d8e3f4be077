// host.c - the services that modules get, and the books kept about them.
#include "core/host.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/error.h"
#include "core/config/keys.h"

#define ALIGN 64u
#define MAX_COUNTERS 64u
#define MAX_NAME 48u

// In front of every allocation; as long as the alignment.
struct block {
	struct block *prev, *next;
	uint64_t bytes;
	const char *tag;
	char pad[ALIGN - 4 * 8];
};
_Static_assert(sizeof(struct block) == ALIGN, "keeps the alignment");

struct thread {
	struct thread *prev, *next;
	pthread_t id;
	void (*fn)(void *arg);
	void *arg;
	char name[16]; // all that the kernel keeps
};

struct counter {
	_Atomic uint32_t is_named; // name is complete; pairs with counter_add
	char name[MAX_NAME];
	_Atomic int64_t value;
};

struct genai_host_env {
	struct genai_host table;
	char name[GENAI_MAX_MODULE_NAME + 1];
	char section[GENAI_MAX_MODULE_NAME + 8];
	const struct genai_config *config;
	const struct genai_log *log;
	int32_t (*check_ticket)(void *ctx, const struct genai_ticket *ticket,
				struct genai_range range,
				struct genai_error *err);
	void *check_ticket_ctx;
	int32_t (*find_below)(void *ctx, const char *type, const void **out_ops,
			      void **out_self);
	void *below;

	pthread_mutex_t books; // guards the lists and sums below
	struct block *blocks;
	struct thread *threads;
	uint64_t bytes;
	uint32_t n_blocks, n_threads, n_counters;
	uint64_t fail_in; // allocations until the one that fails; 0: off
	int32_t fail_sticky;
	struct counter counters[MAX_COUNTERS];
};

static void log_text(const struct genai_log *log, int32_t level,
		     const char *text)
{
	if (log && log->fn) {
		if (level <= log->level)
			log->fn(log->ctx, level, text);
	} else if (level <= GENAI_LOG_WARN) {
		fprintf(stderr, "genai: %s: %s\n",
			level <= GENAI_LOG_ERROR ? "error" : "warning", text);
	}
}

// Format prefix and text into one line.
static void log_v(const struct genai_log *log, int32_t level,
		  const char *prefix, const char *fmt, va_list ap)
{
	char text[1024];
	size_t n = (size_t)snprintf(text, sizeof(text), "%s", prefix);
	char *p;

	if (log && log->fn && level > log->level)
		return;
	vsnprintf(text + n, sizeof(text) - n, fmt, ap);
	for (p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	log_text(log, level, text);
}

void genai_log_line(const struct genai_log *log, int32_t level, const char *fmt,
		    ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_v(log, level, "", fmt, ap);
	va_end(ap);
}

static void host_log_v(void *ctx, int32_t level, const char *fmt, va_list args)
{
	struct genai_host_env *env = ctx;
	char prefix[GENAI_MAX_MODULE_NAME + 4];

	snprintf(prefix, sizeof(prefix), "%s: ", env->name);
	log_v(env->log, level, prefix, fmt, args);
}

static void host_log(void *ctx, int32_t level, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	host_log_v(ctx, level, fmt, ap);
	va_end(ap);
}

static int32_t host_error_set_v(void *ctx, struct genai_error *err,
				int32_t code, const char *fmt, va_list args)
{
	struct genai_host_env *env = ctx;

	if (!err)
		return code;
	genai_error_vfill(err, code, "", 0, fmt, args);
	snprintf(err->module, sizeof(err->module), "%s", env->name);
	return code;
}

static int32_t host_error_set(void *ctx, struct genai_error *err, int32_t code,
			      const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	code = host_error_set_v(ctx, err, code, fmt, ap);
	va_end(ap);
	return code;
}

// Called with books held: is this the allocation that a test wants to fail?
static int is_refused(struct genai_host_env *env)
{
	if (!env->fail_in)
		return 0;
	if (env->fail_in > 1) {
		env->fail_in--;
		return 0;
	}
	if (!env->fail_sticky)
		env->fail_in = 0;
	return 1;
}

static void *host_alloc(void *ctx, uint64_t bytes, const char *tag)
{
	struct genai_host_env *env = ctx;
	struct block *b = NULL;
	int refused;

	pthread_mutex_lock(&env->books);
	refused = is_refused(env);
	pthread_mutex_unlock(&env->books);
	if (refused || bytes > PTRDIFF_MAX - 2 * ALIGN ||
	    posix_memalign((void **)&b, ALIGN, sizeof(*b) + bytes) != 0)
		return NULL;
	b->bytes = bytes;
	b->tag = tag ? tag : "untagged";
	b->prev = NULL;
	pthread_mutex_lock(&env->books);
	b->next = env->blocks;
	if (b->next)
		b->next->prev = b;
	env->blocks = b;
	env->bytes += bytes;
	env->n_blocks++;
	pthread_mutex_unlock(&env->books);
	return b + 1;
}

static void host_free(void *ctx, void *p)
{
	struct genai_host_env *env = ctx;
	struct block *b;

	if (!p)
		return;
	b = (struct block *)p - 1;
	pthread_mutex_lock(&env->books);
	if (b->prev)
		b->prev->next = b->next;
	else
		env->blocks = b->next;
	if (b->next)
		b->next->prev = b->prev;
	env->bytes -= b->bytes;
	env->n_blocks--;
	pthread_mutex_unlock(&env->books);
	free(b);
}

static void *host_realloc(void *ctx, void *p, uint64_t bytes, const char *tag)
{
	uint64_t old = p ? ((struct block *)p - 1)->bytes : 0;
	void *q = host_alloc(ctx, bytes, tag);

	// The C library's realloc would not keep the alignment.
	if (!q || !p)
		return q;
	memcpy(q, p, old < bytes ? old : bytes);
	host_free(ctx, p);
	return q;
}

static const char *own_key(const struct genai_host_env *env, const char *key)
{
	return genai_config_get(env->config, env->section, key);
}

static int32_t host_config_get_str(void *ctx, const char *key, char *buf,
				   uint64_t cap)
{
	const char *value = own_key(ctx, key);

	if (!value)
		return GENAI_E_NOTFOUND;
	if (strlen(value) >= cap)
		return GENAI_E_LIMIT;
	strcpy(buf, value);
	return 0;
}

static int32_t host_config_get_u64(void *ctx, const char *key, uint64_t *out_v)
{
	const char *value = own_key(ctx, key);
	double percent = -1;
	uint64_t v = 0;
	int32_t rc = 0;

	if (!value)
		return GENAI_E_NOTFOUND;
	if (strcmp(value, "auto") != 0)
		rc = genai_parse_bytes(value, &v, &percent, NULL);
	if (rc || percent >= 0)
		return GENAI_E_CONFIG;
	*out_v = v;
	return 0;
}

static int32_t host_config_get_bool(void *ctx, const char *key, int32_t *out_v)
{
	const char *value = own_key(ctx, key);

	return value ? genai_parse_bool(value, out_v, NULL) : GENAI_E_NOTFOUND;
}

static uint64_t host_clock_ns(void *ctx)
{
	struct timespec t;

	(void)ctx;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *thread_main(void *arg)
{
	struct thread *t = arg;

	pthread_setname_np(pthread_self(), t->name);
	t->fn(t->arg);
	return NULL;
}

static int32_t host_thread_create(void *ctx, const char *name,
				  void (*fn)(void *arg), void *arg,
				  void **out_thread)
{
	struct genai_host_env *env = ctx;
	struct thread *t = calloc(1, sizeof(*t));
	sigset_t mask, old;
	int rc;

	if (!t)
		return GENAI_E_NOMEM;
	t->fn = fn;
	t->arg = arg;
	snprintf(t->name, sizeof(t->name), "%.15s", name ? name : env->name);
	// Signals are for the application's threads; faults stay ours.
	sigfillset(&mask);
	sigdelset(&mask, SIGBUS);
	sigdelset(&mask, SIGSEGV);
	sigdelset(&mask, SIGFPE);
	sigdelset(&mask, SIGILL);
	pthread_sigmask(SIG_SETMASK, &mask, &old);
	rc = pthread_create(&t->id, NULL, thread_main, t);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		free(t);
		return GENAI_E_LIMIT;
	}
	pthread_mutex_lock(&env->books);
	t->next = env->threads;
	if (t->next)
		t->next->prev = t;
	env->threads = t;
	env->n_threads++;
	pthread_mutex_unlock(&env->books);
	*out_thread = t;
	return 0;
}

static void host_thread_join(void *ctx, void *thread)
{
	struct genai_host_env *env = ctx;
	struct thread *t = thread;

	if (!t)
		return;
	pthread_join(t->id, NULL);
	pthread_mutex_lock(&env->books);
	if (t->prev)
		t->prev->next = t->next;
	else
		env->threads = t->next;
	if (t->next)
		t->next->prev = t->prev;
	env->n_threads--;
	pthread_mutex_unlock(&env->books);
	free(t);
}

static struct counter *find_counter(struct genai_host_env *env,
				    const char *name)
{
	struct counter *c;

	for (c = env->counters; c < env->counters + MAX_COUNTERS; c++) {
		if (!atomic_load_explicit(&c->is_named, memory_order_acquire))
			return NULL;
		if (strncmp(c->name, name, MAX_NAME - 1) == 0)
			return c;
	}
	return NULL;
}

// Lock-free once the name is known: counters are for the step path.
static void host_counter_add(void *ctx, const char *name, int64_t n)
{
	struct genai_host_env *env = ctx;
	struct counter *c = find_counter(env, name);

	if (!c) {
		pthread_mutex_lock(&env->books);
		c = find_counter(env, name);
		if (!c && env->n_counters < MAX_COUNTERS) {
			c = &env->counters[env->n_counters++];
			snprintf(c->name, MAX_NAME, "%s", name);
			// Pairs with the acquire in find_counter.
			atomic_store_explicit(&c->is_named, 1,
					      memory_order_release);
		}
		pthread_mutex_unlock(&env->books);
	}
	if (c)
		atomic_fetch_add_explicit(&c->value, n, memory_order_relaxed);
}

static int32_t host_ticket_check(void *ctx, const struct genai_ticket *ticket,
				 struct genai_range range,
				 struct genai_error *err)
{
	struct genai_host_env *env = ctx;

	if (!env->check_ticket)
		return genai_fail(err, GENAI_E_STATE,
				  "%s serves no device: no ticket is valid",
				  env->name);
	return env->check_ticket(env->check_ticket_ctx, ticket, range, err);
}

static int32_t host_below(void *ctx, const char *type, const void **out_ops,
			  void **out_self, struct genai_error *err)
{
	struct genai_host_env *env = ctx;

	if (env->below && !env->find_below(env->below, type, out_ops, out_self))
		return 0;
	return genai_fail(err, GENAI_E_NOTFOUND, "no %.60s is below %s", type,
			  env->name);
}

int32_t genai_host_open(const char *name, const struct genai_config *config,
			const struct genai_log *log,
			struct genai_host_env **out_env,
			struct genai_error *err)
{
	struct genai_host_env *env = calloc(1, sizeof(*env));

	if (!env)
		return genai_fail(err, GENAI_E_NOMEM, "%s: out of memory",
				  name);
	snprintf(env->name, sizeof(env->name), "%s", name);
	snprintf(env->section, sizeof(env->section), "module %s", env->name);
	env->config = config;
	env->log = log;
	pthread_mutex_init(&env->books, NULL);
	env->table = (struct genai_host){
		.size = sizeof(struct genai_host),
		.core_abi = GENAI_ABI,
		.ctx = env,
		.alloc = host_alloc,
		.realloc = host_realloc,
		.free = host_free,
		.log = host_log,
		.error_set = host_error_set,
		.config_get_str = host_config_get_str,
		.config_get_u64 = host_config_get_u64,
		.config_get_bool = host_config_get_bool,
		.clock_ns = host_clock_ns,
		.thread_create = host_thread_create,
		.thread_join = host_thread_join,
		.counter_add = host_counter_add,
		.ticket_check = host_ticket_check,
		.log_v = host_log_v,
		.error_set_v = host_error_set_v,
		.below = host_below,
	};
	*out_env = env;
	return 0;
}

// Say what is left, by tag, and free it.
static void report_blocks(struct genai_host_env *env)
{
	struct block *b, *next, *first;
	uint64_t bytes, count;

	for (first = env->blocks; first; first = first->next) {
		if (!first->tag)
			continue;
		bytes = first->bytes;
		count = 1;
		for (b = first->next; b; b = b->next) {
			if (!b->tag || strcmp(b->tag, first->tag) != 0)
				continue;
			bytes += b->bytes;
			count++;
			b->tag = NULL;
		}
		genai_log_line(env->log, GENAI_LOG_ERROR,
			       "%s: left %llu bytes in %llu allocations "
			       "tagged '%s'",
			       env->name, (unsigned long long)bytes,
			       (unsigned long long)count, first->tag);
	}
	for (b = env->blocks; b; b = next) {
		next = b->next;
		free(b);
	}
}

void genai_host_close(struct genai_host_env *env)
{
	const struct thread *t;

	if (!env)
		return;
	for (t = env->threads; t; t = t->next) {
		genai_log_line(env->log, GENAI_LOG_ERROR,
			       "%s: left thread '%s' running", env->name,
			       t->name);
		pthread_detach(t->id); // nobody will join it now
	}
	// A thread may use the table and its memory yet: leak rather than
	// crash.
	if (env->threads)
		return;
	report_blocks(env);
	free(env->below);
	pthread_mutex_destroy(&env->books);
	free(env);
}

const struct genai_host *genai_host_table(const struct genai_host_env *env)
{
	return &env->table;
}

struct genai_host_live genai_host_live(struct genai_host_env *env)
{
	struct genai_host_live live;

	pthread_mutex_lock(&env->books);
	live = (struct genai_host_live){env->bytes, env->n_blocks,
					env->n_threads};
	pthread_mutex_unlock(&env->books);
	return live;
}

void genai_host_set_ticket_check(
	struct genai_host_env *env,
	int32_t (*fn)(void *ctx, const struct genai_ticket *ticket,
		      struct genai_range range, struct genai_error *err),
	void *ctx)
{
	env->check_ticket = fn;
	env->check_ticket_ctx = ctx;
}

void genai_host_set_below(struct genai_host_env *env,
			  int32_t (*fn)(void *ctx, const char *type,
					const void **out_ops, void **out_self),
			  void *ctx)
{
	free(env->below);
	env->find_below = fn;
	env->below = ctx;
}

void genai_host_fail_alloc(struct genai_host_env *env, uint64_t n,
			   int32_t sticky)
{
	pthread_mutex_lock(&env->books);
	env->fail_in = n;
	env->fail_sticky = sticky;
	pthread_mutex_unlock(&env->books);
}

void genai_host_each_counter(const struct genai_host_env *env,
			     void (*fn)(void *ctx, const char *name,
					int64_t value),
			     void *ctx)
{
	const struct counter *c;

	for (c = env->counters; c < env->counters + MAX_COUNTERS; c++) {
		if (!atomic_load_explicit(&c->is_named, memory_order_acquire))
			break;
		fn(ctx, c->name,
		   atomic_load_explicit(&c->value, memory_order_relaxed));
	}
}
