/* kernel_node.h - a cpu_ref node built by hand, for tests of single
 * operators. */
#ifndef GENAI_TESTS_KERNEL_NODE_H
#define GENAI_TESTS_KERNEL_NODE_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/harness.h"
#include "modules/cpu_ref/cpu_ref.h"
#include "modules/cpu_ref/kernels.h"
#include "modules/cpu_ref/ops.h"

/* One operator with its tensors.  data pointers are the test's own. */
struct knode {
	struct genai_attr attrs[16];
	struct genai_node node;
	struct cref_node n;
	struct exec_tensor t[EXEC_MAX_IN + EXEC_MAX_OUT];
	struct genai_error err;
	void *ws;
};

static inline void knode_init(struct knode *k, const char *op, uint32_t n_in,
			      uint32_t n_out)
{
	memset(k, 0, sizeof(*k));
	k->err.size = sizeof(k->err);
	k->node.size = sizeof(k->node);
	k->node.name = "/test/node";
	k->node.op = op;
	k->node.domain = "com.microsoft";
	k->node.opset = 1;
	k->node.attrs = k->attrs;
	k->node.attr_stride = sizeof(k->attrs[0]);
	k->n.node = &k->node;
	k->n.n_in = n_in;
	k->n.n_out = n_out;
	for (uint32_t i = 0; i < n_out; i++)
		k->n.out[i] = &k->t[EXEC_MAX_IN + i];
}

static inline struct genai_attr *knode_attr(struct knode *k, const char *name,
					    uint32_t kind)
{
	struct genai_attr *a = &k->attrs[k->node.n_attrs++];

	a->size = sizeof(*a);
	a->kind = kind;
	a->name = name;
	return a;
}

static inline void knode_int(struct knode *k, const char *name, int64_t v)
{
	knode_attr(k, name, GENAI_ATTR_INT)->i = v;
}

static inline void knode_float(struct knode *k, const char *name, double v)
{
	knode_attr(k, name, GENAI_ATTR_FLOAT)->f = v;
}

/* Input i; dims end with -1. */
static inline void knode_in(struct knode *k, uint32_t i, uint32_t dtype,
			    void *data, const int64_t *dims)
{
	uint32_t rank = 0;

	while (dims[rank] >= 0)
		rank++;
	exec_set_dense(&k->t[i], dtype, rank, dims);
	k->t[i].data = data;
	k->t[i].name = "input";
	k->n.in[i] = &k->t[i];
}
#define DIMS(...)                                                              \
	(const int64_t[])                                                      \
	{                                                                      \
		__VA_ARGS__, -1                                                \
	}

static inline int32_t knode_prepare(struct knode *k,
				    int32_t (*prepare)(struct cref_node *,
						       struct genai_error *))
{
	void *data[EXEC_MAX_IN + EXEC_MAX_OUT];
	int32_t rc;

	/* data is not there while planning */
	for (int i = 0; i < EXEC_MAX_IN + EXEC_MAX_OUT; i++) {
		data[i] = k->t[i].data;
		k->t[i].data = NULL;
	}
	rc = prepare(&k->n, &k->err);
	for (int i = 0; i < EXEC_MAX_IN + EXEC_MAX_OUT; i++)
		k->t[i].data = data[i];
	free(k->ws);
	k->ws = aligned_alloc(64, (k->n.workspace_bytes + 127) / 64 * 64);
	ck_assert_ptr_nonnull(k->ws);
	/* what a kernel reads it must have written */
	memset(k->ws, 0xff, k->n.workspace_bytes);
	return rc;
}

static inline int32_t
knode_run(struct knode *k,
	  int32_t (*run)(struct cref_node *, const struct cref_run *),
	  struct cref_pool *pool, uint64_t row_begin, uint64_t row_end)
{
	struct cref_run r = {pool, k->ws, row_begin, row_end, &k->err};

	return run(&k->n, &r);
}

static inline void knode_free(struct knode *k)
{
	free(k->ws);
	k->ws = NULL;
}

/* ---- threads ---- */

struct kthread {
	pthread_t id;
	void (*fn)(void *);
	void *arg;
};

static inline void *kthread_main(void *p)
{
	struct kthread *t = p;

	t->fn(t->arg);
	return NULL;
}

static inline int32_t kthread_create(void *host, const char *name,
				     void (*fn)(void *), void *arg, void **out)
{
	struct kthread *t = malloc(sizeof(*t));

	(void)host;
	(void)name;
	if (!t)
		return GENAI_E_NOMEM;
	t->fn = fn;
	t->arg = arg;
	if (pthread_create(&t->id, NULL, kthread_main, t)) {
		free(t);
		return GENAI_E_NOMEM;
	}
	*out = t;
	return GENAI_OK;
}

static inline void kthread_join(void *host, void *thread)
{
	struct kthread *t = thread;

	(void)host;
	pthread_join(t->id, NULL);
	free(t);
}

static inline struct cref_pool *kpool(uint32_t threads)
{
	return cref_pool_create(threads, kthread_create, kthread_join, NULL);
}

/* ---- numbers ---- */

static inline uint32_t krand(uint64_t *s)
{
	*s = *s * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*s >> 33);
}

static inline double kuniform(uint64_t *s) /* [-1, 1) */
{
	return (double)krand(s) / 1073741824.0 - 1.0;
}

static inline uint64_t ksize(uint32_t dtype)
{
	return exec_bits(dtype) / 8;
}

/* n random numbers of a float dtype; the caller frees. */
static inline void *kfloats(uint64_t *s, uint32_t dtype, uint64_t n,
			    double scale)
{
	char *p = calloc(n + 1, ksize(dtype));

	for (uint64_t i = 0; i < n; i++)
		cref_store(p, dtype, i, (float)(kuniform(s) * scale));
	return p;
}

#endif
