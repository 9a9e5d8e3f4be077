// corpus_text.c - see corpus_text.h.
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conform/corpus_text.h"
#include "tests/conform/one.h"

// As the tables are: an aggregate of struct ops_case each.
#include "tests/conform/cases_math.h"
#include "tests/conform/cases_more.h"
#include "tests/conform/cases_move.h"
#include "tests/conform/cases_state.h"

static const struct {
	const char *name;
	uint32_t dtype;
} dtypes[] = {{"f32", GENAI_DT_F32},
	      {"f16", GENAI_DT_F16},
	      {"bf16", GENAI_DT_BF16},
	      {"f64", GENAI_DT_F64},
	      {"i8", GENAI_DT_I8},
	      {"i16", GENAI_DT_I16},
	      {"i32", GENAI_DT_I32},
	      {"i64", GENAI_DT_I64},
	      {"u8", GENAI_DT_U8},
	      {"u16", GENAI_DT_U16},
	      {"u32", GENAI_DT_U32},
	      {"u64", GENAI_DT_U64},
	      {"bool", GENAI_DT_BOOL},
	      {"i4", GENAI_DT_I4},
	      {"u4", GENAI_DT_U4},
	      {"u2", GENAI_DT_U2},
	      {"i2", GENAI_DT_I2},
	      // as codes
	      {"e4m3fn", GENAI_DT_F8E4M3FN},
	      {"e4m3fnuz", GENAI_DT_F8E4M3FNUZ},
	      {"e5m2", GENAI_DT_F8E5M2},
	      {"e5m2fnuz", GENAI_DT_F8E5M2FNUZ},
	      {"e8m0", GENAI_DT_F8E8M0},
	      {"e2m1", GENAI_DT_F4E2M1}};

static bool is_f32(uint32_t dtype)
{
	return dtype == GENAI_DT_F32 || dtype == GENAI_DT_F16 ||
	       dtype == GENAI_DT_BF16;
}

// Elements of few bits share a byte; 0: they do not.
static unsigned packed_bits(uint32_t dtype)
{
	return dtype == GENAI_DT_I4 || dtype == GENAI_DT_U4 ||
			       dtype == GENAI_DT_F4E2M1
		       ? 4
	       : dtype == GENAI_DT_I2 || dtype == GENAI_DT_U2 ? 2
							      : 0;
}

static unsigned packed_at(const unsigned char *p, uint64_t i, unsigned bits)
{
	return (unsigned)p[i * bits / 8] >> i * bits % 8 & ((1u << bits) - 1);
}

static uint64_t size_of(uint32_t dtype)
{
	return op_bytes(dtype, 0, NULL);
}

// ---- tensors ----

static void put(struct text_tensor *t, uint64_t i, const char *s)
{
	long long v = strtoll(s, NULL, 10);
	unsigned long long u = strtoull(s, NULL, 10);
	double d = strtod(s, NULL);
	unsigned char *p = t->data;
	unsigned bits = packed_bits(t->dtype);

	if (is_f32(t->dtype))
		op_store(t->dtype, p, i, strtof(s, NULL));
	else if (t->dtype == GENAI_DT_F64)
		memcpy(p + i * 8, &d, 8);
	else if (bits)
		p[i * bits / 8] |=
			(unsigned char)(((unsigned)v & ((1u << bits) - 1))
					<< i * bits % 8);
	else if (t->dtype == GENAI_DT_U64)
		memcpy(p + i * 8, &u, 8);
	else // little endian: the low bytes
		memcpy(p + i * size_of(t->dtype), &v, size_of(t->dtype));
}

const char *text_tensor(const char *s, struct text_tensor *t)
{
	char word[64];
	uint64_t i = 0;
	int len;

	memset(t, 0, sizeof(*t));
	s += strspn(s, " #");
	for (; *s == '?' || *s == '~'; s++)
		*(*s == '?' ? &t->hidden : &t->rough) = true;
	if (*s == '-') {
		s = strchr(s, ';');
		return s ? s + 1 : NULL;
	}
	t->present = true;
	len = (int)strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789");
	snprintf(word, sizeof(word), "%.*s", len, s);
	for (size_t k = 0; k < sizeof(dtypes) / sizeof(dtypes[0]); k++)
		if (!strcmp(word, dtypes[k].name))
			t->dtype = dtypes[k].dtype;
	s += len;
	assert(t->dtype && *s == '[');
	for (; *s != ']'; t->rank++) {
		if (*++s == ']')
			break;
		t->dims[t->rank] = strtoll(s, (char **)&s, 10);
	}
	t->count = 1;
	for (uint32_t d = 0; d < t->rank; d++)
		t->count *= (uint64_t)t->dims[d];
	t->bytes = op_bytes(t->dtype, t->rank, t->dims);
	t->data = calloc(1, t->bytes ? t->bytes : 1);
	for (s++; *s && *s != ';'; s += len) {
		s += strspn(s, " ");
		len = (int)strcspn(s, " ;");
		if (!len)
			continue;
		snprintf(word, sizeof(word), "%.*s", len, s);
		assert(i < t->count);
		put(t, i++, word);
	}
	assert(i == t->count);
	return *s ? s + 1 : NULL;
}

uint32_t text_tensors(const char *s, struct text_tensor *t, uint32_t cap)
{
	uint32_t n = 0;

	while (s && *s) {
		assert(n < cap);
		s = text_tensor(s, &t[n++]);
	}
	return n;
}

double text_number(const struct text_tensor *t, const void *data, uint64_t i)
{
	const unsigned char *p = data;
	int64_t v = 0;
	double d;

	if (is_f32(t->dtype))
		return (double)op_load(t->dtype, p, i);
	if (t->dtype == GENAI_DT_F64) {
		memcpy(&d, p + i * 8, 8);
		return d;
	}
	if (packed_bits(t->dtype))
		return packed_at(p, i, packed_bits(t->dtype));
	memcpy(&v, p + i * size_of(t->dtype), size_of(t->dtype));
	return (double)v;
}

bool text_same(const struct text_tensor *t, const void *got, uint64_t i,
	       uint32_t ulps)
{
	double u = t->dtype == GENAI_DT_F64 ? 0x1p-53 : unit_of(t->dtype);
	double rel = t->dtype == GENAI_DT_F16	 ? 1e-3
		     : t->dtype == GENAI_DT_BF16 ? 1e-2
						 : 2e-6;
	double a, b;

	if (!is_f32(t->dtype) && t->dtype != GENAI_DT_F64) {
		const char *p = t->data, *q = got;
		uint64_t at = i * size_of(t->dtype);

		if (packed_bits(t->dtype))
			return text_number(t, p, i) == text_number(t, q, i);
		return !memcmp(p + at, q + at, size_of(t->dtype));
	}
	a = text_number(t, got, i);
	b = text_number(t, t->data, i);
	if (a != a || b != b)
		return a != a && b != b;
	if (t->rough && a != b)
		return fabs(a - b) <= rel * (fabs(b) > 1 ? fabs(b) : 1);
	if (ulps)
		return a == b || fabs(a - b) <= 2.02 * ulps * u * fabs(b);
	return a == b && !signbit(a) == !signbit(b);
}

// ---- attributes ----

static void parse_attr(const char *word, struct text_attr *a)
{
	const char *v = strchr(word, '=');
	char *end;

	assert(v);
	memset(a, 0, sizeof(*a));
	snprintf(a->name, sizeof(a->name), "%.*s", (int)(v - word), word);
	v++;
	if (*v == '[') {
		a->kind = GENAI_ATTR_INTS;
		for (v++; *v && *v != ']'; v = end + (*end == ',')) {
			assert(a->n_ints < 8);
			a->ints[a->n_ints++] = strtoll(v, &end, 10);
		}
	} else if (!isdigit((unsigned char)*v) && *v != '-' &&
		   strcmp(v, "nan")) {
		a->kind = GENAI_ATTR_STRING;
		snprintf(a->text, sizeof(a->text), "%s", v);
	} else if (strpbrk(v, ".ea")) {
		a->kind = GENAI_ATTR_FLOAT;
		a->f = strtod(v, NULL);
	} else {
		a->kind = GENAI_ATTR_INT;
		a->i = strtoll(v, NULL, 10);
	}
}

uint32_t text_attrs(const char *s, struct text_attr *a, uint32_t cap)
{
	char text[256], *save = NULL;
	uint32_t n = 0;

	snprintf(text, sizeof(text), "%s", s ? s : "");
	for (char *w = strtok_r(text, " ", &save); w;
	     w = strtok_r(NULL, " ", &save)) {
		assert(n < cap);
		parse_attr(w, &a[n++]);
	}
	return n;
}

// ---- running ----

#define MOST 16

// Which inputs are stored: none; all but the first, so that shapes and axes are
// known; all.
enum form { BOUND, FIRST_BOUND, STORED };

struct text_run {
	struct text_tensor in[MOST], want[MOST];
	struct text_attr attrs[OP_ATTRS];
	void *out[MOST];
	uint32_t n_in, n_out, n_attrs;
};

static void set_attrs(struct text_run *r)
{
	for (uint32_t i = 0; i < r->n_attrs; i++) {
		const struct text_attr *a = &r->attrs[i];

		if (a->kind == GENAI_ATTR_INT)
			op_attr_int(&one.g, a->name, a->i);
		else if (a->kind == GENAI_ATTR_FLOAT)
			op_attr_float(&one.g, a->name, a->f);
		else if (a->kind == GENAI_ATTR_STRING)
			op_attr_string(&one.g, a->name, a->text);
		else
			op_attr_ints(&one.g, a->name, a->ints, a->n_ints);
	}
}

static void build(const struct ops_case *k, struct text_run *r, enum form form)
{
	bool ms = !strncmp(k->op, "ms:", 3), first = true;
	uint32_t outs[MOST + 1];

	one_begin();
	for (uint32_t i = 0; i < r->n_in; i++) {
		struct text_tensor *t = &r->in[i];
		bool bound = t->hidden || form == BOUND ||
			     (form == FIRST_BOUND && first);

		first = first && !t->present;
		one_in(!t->present ? GENAI_NONE
		       : bound ? op_input(&one.g, t->dtype, t->rank, t->dims,
					  t->bytes ? t->data : NULL)
			       : op_const(&one.g, t->dtype, t->rank, t->dims,
					  t->data));
	}
	one_node(ms ? "com.microsoft" : "", k->op + (ms ? 3 : 0));
	if (k->opset)
		one.g.nodes[0].opset = k->opset;
	set_attrs(r);
	for (uint32_t i = 0; i < r->n_out; i++)
		outs[i] = r->want[i].present
				  ? op_output(&one.g, r->want[i].dtype,
					      r->want[i].rank, r->want[i].dims,
					      r->out[i])
				  : GENAI_NONE;
	outs[r->n_out] = OP_END;
	op_node_out(&one.g, outs);
}

static void compare(struct check *c, const struct text_run *r)
{
	for (uint32_t i = 0; i < r->n_out; i++)
		for (uint64_t k = 0; k < r->want[i].count; k++) {
			const struct text_tensor *w = &r->want[i];

			if (text_same(w, r->out[i], k, 1))
				continue;
			check_result(c, false,
				     "output %u [%llu] is %.9g, not "
				     "%.9g",
				     i, (unsigned long long)k,
				     text_number(w, r->out[i], k),
				     text_number(w, w->data, k));
			return;
		}
	check_result(c, true, "%s", "");
}

static void exact_case(struct check *c, const struct ops_case *k)
{
	struct op_how how = {0};
	static struct text_run r;
	bool ran = false;

	if (k->out[0] == '!' || k->in[0] == '#' ||
	    !check_begin(c, "%s(%s) %s", k->op, k->in, k->attrs))
		return;
	memset(&r, 0, sizeof(r));
	r.n_in = text_tensors(k->in, r.in, MOST);
	r.n_out = text_tensors(k->out, r.want, MOST);
	r.n_attrs = text_attrs(k->attrs, r.attrs, OP_ATTRS);
	for (uint32_t i = 0; i < r.n_out; i++)
		r.out[i] = calloc(1, r.want[i].bytes + 8);
	for (enum form form = BOUND; form <= STORED; form++) {
		if ((form == FIRST_BOUND && r.n_in < 2) ||
		    (form == STORED && ran))
			continue;
		build(k, &r, form);
		c->refused = false;
		one.rc = c->run(c, &one.g, &how, &one.err);
		if (one.rc && c->refused)
			continue;
		ran = true;
		if (one.rc)
			check_result(c, false, "%s", one.err.text);
		else
			compare(c, &r);
	}
	if (!ran)
		c->skipped++;
	for (uint32_t i = 0; i < MOST; i++) {
		free(r.in[i].data);
		free(r.want[i].data);
		free(r.out[i]);
	}
}

void corpus_exact(struct check *c)
{
#define TABLE(name)                                                            \
	for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++)            \
		exact_case(c, &name[i]);
	TABLE(arithmetic_cases)
	TABLE(function_cases)
	TABLE(activation_cases)
	TABLE(logic_cases)
	TABLE(cast_cases)
	TABLE(shape_cases)
	TABLE(move_cases)
	TABLE(more_cases)
	TABLE(index_cases)
	TABLE(reduce_cases)
	TABLE(norm_cases)
	TABLE(product_cases)
	TABLE(state_cases)
	TABLE(cache_cases)
}
