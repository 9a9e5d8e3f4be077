// ops_text.h - operator cases written as text, and running one.
//
// A tensor is "f32[2,3] 1 2 3 4 5 6"; tensors are separated by ';', "-" is an
// omitted one, "?" before an input hides its value from planning, "~" before an
// output allows 2e-6 (relative, or absolute below 1; f16 1e-3, bf16 1e-2).  An
// expected failure is "!CODE words of the message".  Attributes are
// "axis=1 alpha=0.5 mode=edge axes=[0,1]".
#ifndef GENAI_TESTS_OPS_TEXT_H
#define GENAI_TESTS_OPS_TEXT_H

#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "kernel_node.h"

struct ops_case {
	const char *op; // "ms:" before it: com.microsoft
	const char *in;
	const char *attrs;
	const char *out;
	int64_t opset; // 0: 21, of com.microsoft 1
};

struct text_tensor {
	bool present, hidden, rough;
	uint32_t dtype, rank;
	int64_t dims[GENAI_MAX_RANK];
	uint64_t count, bytes;
	void *data; // exactly bytes long
};

static const struct {
	const char *name;
	uint32_t dtype;
} text_dtypes[] = {
	{"f32", GENAI_DT_F32},	 {"f16", GENAI_DT_F16}, {"bf16", GENAI_DT_BF16},
	{"f64", GENAI_DT_F64},	 {"i8", GENAI_DT_I8},	{"i16", GENAI_DT_I16},
	{"i32", GENAI_DT_I32},	 {"i64", GENAI_DT_I64}, {"u8", GENAI_DT_U8},
	{"u16", GENAI_DT_U16},	 {"u32", GENAI_DT_U32}, {"u64", GENAI_DT_U64},
	{"bool", GENAI_DT_BOOL}, {"i4", GENAI_DT_I4},	{"u4", GENAI_DT_U4}};

static void text_put(struct text_tensor *t, uint64_t i, const char *s)
{
	long long v = strtoll(s, NULL, 10);
	unsigned long long u = strtoull(s, NULL, 10);
	double d = strtod(s, NULL);
	unsigned char *p = t->data;

	switch (t->dtype) {
	case GENAI_DT_F32:
	case GENAI_DT_F16:
	case GENAI_DT_BF16:
		cref_store(p, t->dtype, i, strtof(s, NULL));
		break;
	case GENAI_DT_F64:
		memcpy(p + i * 8, &d, 8);
		break;
	case GENAI_DT_I4:
	case GENAI_DT_U4:
		p[i / 2] |=
			(unsigned char)((unsigned)(v & 15) << (i % 2 ? 4 : 0));
		break;
	case GENAI_DT_U64:
		memcpy(p + i * 8, &u, 8);
		break;
	default: // little endian: the low bytes
		memcpy(p + i * ksize(t->dtype), &v, ksize(t->dtype));
	}
}

// Parse one tensor; returns where the next one starts, or NULL.
static const char *text_tensor(const char *s, struct text_tensor *t)
{
	char word[64];
	uint64_t i = 0;
	int len;

	memset(t, 0, sizeof(*t));
	s += strspn(s, " ");
	for (; *s == '?' || *s == '~'; s++)
		*(*s == '?' ? &t->hidden : &t->rough) = true;
	if (*s == '-') {
		s = strchr(s, ';');
		return s ? s + 1 : NULL;
	}
	t->present = true;
	len = (int)strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789");
	snprintf(word, sizeof(word), "%.*s", len, s);
	for (size_t k = 0; k < sizeof(text_dtypes) / sizeof(text_dtypes[0]);
	     k++)
		if (!strcmp(word, text_dtypes[k].name))
			t->dtype = text_dtypes[k].dtype;
	ck_assert_msg(t->dtype, "no dtype in '%s'", s);
	s += len;
	t->count = 1;
	for (ck_assert(*s == '['); *s != ']'; t->rank++) {
		if (*++s == ']')
			break;
		t->dims[t->rank] = strtoll(s, (char **)&s, 10);
		t->count *= (uint64_t)t->dims[t->rank];
	}
	t->bytes = (t->count * cref_dtype_bits(t->dtype) + 7) / 8;
	t->data = calloc(1, t->bytes ? t->bytes : 1);
	ck_assert_ptr_nonnull(t->data);
	for (s++; *s && *s != ';'; s += len) {
		s += strspn(s, " ");
		len = (int)strcspn(s, " ;");
		if (!len)
			continue;
		snprintf(word, sizeof(word), "%.*s", len, s);
		ck_assert_msg(i < t->count, "too many numbers at '%s'", s);
		text_put(t, i++, word);
	}
	ck_assert_msg(i == t->count, "too few numbers before '%s'", s);
	return *s ? s + 1 : NULL;
}

static uint32_t text_tensors(const char *s, struct text_tensor *t, uint32_t cap)
{
	uint32_t n = 0;

	while (s && *s) {
		ck_assert_uint_lt(n, cap);
		s = text_tensor(s, &t[n++]);
	}
	return n;
}

// ---- attributes ----

struct text_attrs {
	char text[256];
	int64_t ints[8][8];
};

static void text_attr(struct knode *k, struct text_attrs *a, char *name)
{
	char *v = strchr(name, '=');
	struct genai_attr *x;

	ck_assert_ptr_nonnull(v);
	*v++ = 0;
	x = knode_attr(k, name, GENAI_ATTR_STRING);
	if (*v == '[') {
		x->kind = GENAI_ATTR_INTS;
		x->ints = a->ints[k->node.n_attrs - 1];
		for (v++; *v && *v != ']'; v += *v == ',')
			a->ints[k->node.n_attrs - 1][x->count++] =
				strtoll(v, &v, 10);
	} else if (!isdigit((unsigned char)*v) && *v != '-' &&
		   strcmp(v, "nan")) {
		x->s = v;
		x->count = strlen(v);
	} else if (strpbrk(v, ".ea")) {
		x->kind = GENAI_ATTR_FLOAT;
		x->f = strtod(v, NULL);
	} else {
		x->kind = GENAI_ATTR_INT;
		x->i = strtoll(v, NULL, 10);
	}
}

static void text_all_attrs(struct knode *k, struct text_attrs *a, const char *s)
{
	char *save = NULL;

	snprintf(a->text, sizeof(a->text), "%s", s ? s : "");
	for (char *w = strtok_r(a->text, " ", &save); w;
	     w = strtok_r(NULL, " ", &save))
		text_attr(k, a, w);
}

// ---- running ----

enum text_mode { TEXT_PLAIN, TEXT_UNALIGNED, TEXT_THREADS };

struct text_run {
	struct knode k;
	struct text_attrs attrs;
	struct text_tensor in[CREF_MAX_IN], want[CREF_MAX_OUT];
	uint32_t n_in, n_out;
	void *copies[CREF_MAX_IN], *results[CREF_MAX_OUT];
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
		cref_set_dense(&r->k.t[i], t->dtype, t->rank, t->dims);
		r->k.t[i].name = "input";
		r->k.t[i].data = p + shift;
		r->k.t[i].value = t->hidden ? NULL : p + shift;
		r->k.n.in[i] = &r->k.t[i];
	}
}

static uint64_t text_out_bytes(const struct cref_tensor *t)
{
	return (cref_elements(t) * cref_dtype_bits(t->dtype) + 7) / 8;
}

// Prepare and run; r->rc is what failed first.
static void text_execute(struct text_run *r, const struct ops_case *c,
			 enum text_mode mode, struct cref_pool *pool)
{
	struct knode *k = &r->k;
	bool ms = !strncmp(c->op, "ms:", 3);

	knode_init(k, c->op + (ms ? 3 : 0), r->n_in, r->n_out);
	if (!ms)
		k->node.domain = "";
	k->node.opset = c->opset ? c->opset : ms ? 1 : 21;
	text_all_attrs(k, &r->attrs, c->attrs);
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
	r->rc = knode_run(k, k->n.op->run, pool, 0, 0);
}

static void text_release(struct text_run *r)
{
	for (uint32_t i = 0; i < CREF_MAX_IN; i++) {
		free(r->in[i].data);
		free(r->copies[i]);
	}
	for (uint32_t i = 0; i < CREF_MAX_OUT; i++) {
		free(r->want[i].data);
		free(r->results[i]);
	}
	knode_free(&r->k);
}

#endif
