/* ops_text.h - running a case of the corpus on an operator of cpu_ref alone. */
#ifndef GENAI_TESTS_OPS_TEXT_H
#define GENAI_TESTS_OPS_TEXT_H

#include "tests/unit/kernel_node.h"
#include "tests/conform/corpus_text.h"

/* ---- attributes ---- */

#define TEXT_ATTRS 8

static void text_set_attrs(struct knode *k, struct text_attr *a, const char *s)
{
	uint32_t n = text_attrs(s, a, TEXT_ATTRS);

	for (uint32_t i = 0; i < n; i++) {
		struct genai_attr *x = knode_attr(k, a[i].name, a[i].kind);

		x->i = a[i].i;
		x->f = a[i].f;
		if (a[i].kind == GENAI_ATTR_STRING) {
			x->s = a[i].text;
			x->count = strlen(a[i].text);
		} else if (a[i].kind == GENAI_ATTR_INTS) {
			x->ints = a[i].ints;
			x->count = a[i].n_ints;
		}
	}
}

/* ---- running ---- */

enum text_mode { TEXT_PLAIN, TEXT_UNALIGNED, TEXT_THREADS };

struct text_run {
	struct knode k;
	struct text_attr attrs[TEXT_ATTRS];
	struct text_tensor in[EXEC_MAX_IN], want[EXEC_MAX_OUT];
	uint32_t n_in, n_out;
	void *copies[EXEC_MAX_IN], *results[EXEC_MAX_OUT];
	int32_t rc;
};

static void text_inputs(struct text_run *r, enum text_mode mode)
{
	for (uint32_t i = 0; i < r->n_in; i++) {
		struct text_tensor *t = &r->in[i];
		size_t shift = mode == TEXT_UNALIGNED;
		char *p;

		if (!t->present)
			continue;
		p = malloc(t->bytes + shift + !t->bytes);
		ck_assert_ptr_nonnull(p);
		memcpy(p + shift, t->data, t->bytes);
		r->copies[i] = p;
		exec_set_dense(&r->k.t[i], t->dtype, t->rank, t->dims);
		r->k.t[i].name = "input";
		r->k.t[i].data = p + shift;
		r->k.t[i].value = t->hidden ? NULL : p + shift;
		r->k.n.in[i] = &r->k.t[i];
	}
}

static uint64_t text_out_bytes(const struct exec_tensor *t)
{
	return (exec_count(t) * exec_bits(t->dtype) + 7) / 8;
}

/* Prepare and run; r->rc is what failed first. */
static void text_execute(struct text_run *r, const struct ops_case *c,
			 enum text_mode mode, struct cref_pool *pool)
{
	struct knode *k = &r->k;
	bool ms = !strncmp(c->op, "ms:", 3);
	uint64_t rows = 0;

	knode_init(k, c->op + (ms ? 3 : 0), r->n_in, r->n_out);
	if (!ms)
		k->node.domain = "";
	k->node.opset = c->opset ? c->opset : ms ? 1 : 21;
	text_set_attrs(k, r->attrs, c->attrs);
	text_inputs(r, mode);
	for (uint32_t i = 0; i < r->n_out; i++)
		if (c->out[0] != '!' && !r->want[i].present)
			k->n.out[i] = NULL;
	k->n.op = cref_op_find(&k->node);
	ck_assert_msg(k->n.op != NULL, "no operator %s", c->op);
	r->rc = knode_prepare(k, k->n.op->prepare);
	if (r->rc)
		return;
	for (uint32_t i = 0; i < r->n_out; i++) {
		uint64_t bytes;

		if (!k->n.out[i])
			continue;
		bytes = text_out_bytes(k->n.out[i]);
		r->results[i] = malloc(bytes ? bytes : 1);
		ck_assert_ptr_nonnull(r->results[i]);
		memset(r->results[i], 0xa5, bytes);
		k->n.out[i]->data = r->results[i];
	}
	/* operators whose rows may come in parts are told which: all */
	if (cref_op_cuts(k->n.op) && k->n.out[0]->rank)
		rows = (uint64_t)k->n.out[0]->dims[k->n.out[0]->rank - 1];
	r->rc = knode_run(k, k->n.op->run, pool, 0, rows);
}

static void text_release(struct text_run *r)
{
	for (uint32_t i = 0; i < EXEC_MAX_IN; i++) {
		free(r->in[i].data);
		free(r->copies[i]);
	}
	for (uint32_t i = 0; i < EXEC_MAX_OUT; i++) {
		free(r->want[i].data);
		free(r->results[i]);
	}
	knode_free(&r->k);
}

#endif
