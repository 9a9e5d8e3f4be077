// check_cpu_moe.c - what cpu_ref's MoE and QMoE refuse, and levels and threads
// that do not matter.  Numbers: tests/conform/corpus_moe.c, tests/data/nodes.
#include <math.h>
#include <stdio.h>

#include "tests/unit/kernel_node.h"

#define ROWS 5
#define EXPERTS 4
#define WIDTH 64
#define INNER 32

struct moe_node {
	struct knode k;
	float x[ROWS * WIDTH], logits[ROWS * EXPERTS], y[ROWS * WIDTH];
	unsigned char w1[EXPERTS * 2 * INNER * WIDTH / 2];
	unsigned char w2[EXPERTS * WIDTH * INNER / 2];
	float s1[EXPERTS * 2 * INNER * 2], s2[EXPERTS * WIDTH];
};

static void fill(float *p, uint64_t *seed, size_t n, double scale)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (float)(kuniform(seed) * scale);
}

static void make(struct moe_node *m)
{
	uint64_t seed = 3;

	memset(m, 0, sizeof(*m));
	fill(m->x, &seed, ROWS * WIDTH, 1);
	fill(m->logits, &seed, ROWS * EXPERTS, 3);
	fill(m->s1, &seed, EXPERTS * 2 * INNER * 2, 0.1);
	fill(m->s2, &seed, EXPERTS * WIDTH, 0.1);
	for (size_t i = 0; i < sizeof(m->w1); i++)
		m->w1[i] = (unsigned char)krand(&seed);
	for (size_t i = 0; i < sizeof(m->w2); i++)
		m->w2[i] = (unsigned char)krand(&seed);
	knode_init(&m->k, "QMoE", 15, 1);
	m->k.t[EXEC_MAX_IN].data = m->y;
	knode_in(&m->k, 0, GENAI_DT_F32, m->x, DIMS(1, ROWS, WIDTH));
	knode_in(&m->k, 1, GENAI_DT_F32, m->logits, DIMS(ROWS, EXPERTS));
	knode_in(&m->k, 2, GENAI_DT_U8, m->w1,
		 DIMS(EXPERTS, 2 * INNER, WIDTH / 2));
	knode_in(&m->k, 3, GENAI_DT_F32, m->s1, DIMS(EXPERTS, 2 * INNER, 2));
	knode_in(&m->k, 5, GENAI_DT_U8, m->w2, DIMS(EXPERTS, WIDTH, INNER / 2));
	knode_in(&m->k, 6, GENAI_DT_F32, m->s2, DIMS(EXPERTS, WIDTH, 1));
	knode_attr(&m->k, "activation_type", GENAI_ATTR_STRING)->s = "swiglu";
	knode_int(&m->k, "swiglu_fusion", 1);
	knode_int(&m->k, "block_size", 32);
	knode_int(&m->k, "k", 2);
	knode_int(&m->k, "normalize_routing_weights", 1);
}

static int32_t prepare(struct moe_node *m)
{
	return knode_prepare(&m->k, cref_qmoe_prepare);
}

static void run_all(struct moe_node *m, struct cref_pool *pool, float *y)
{
	m->k.t[EXEC_MAX_IN].data = y;
	ck_assert_int_eq(knode_run(&m->k, cref_moe_run, pool, 0, 0), 0);
}

START_TEST(moe_levels)
{
	static struct moe_node m;
	static float y[ROWS * WIDTH];
	struct cref_pool *pool = kpool(3);

	make(&m);
	ck_assert_int_eq(prepare(&m), 0);
	cref_simd_force(CREF_LEVEL_GENERIC);
	run_all(&m, NULL, m.y);
	for (int level = CREF_LEVEL_GENERIC; level <= CREF_LEVEL_AVX512;
	     level++) {
		cref_simd_force(level);
		run_all(&m, pool, y);
		ck_assert_mem_eq(y, m.y, sizeof(y));
	}
	cref_simd_force(-1);
	cref_pool_destroy(pool);
	knode_free(&m.k);
}
END_TEST

// ---- logits that choose nobody ----

static void bad_logit(float v, uint32_t first, uint32_t n, const char *what)
{
	static struct moe_node m;

	make(&m);
	for (uint32_t i = 0; i < n; i++)
		m.logits[first + i] = v;
	ck_assert_int_eq(prepare(&m), 0);
	ck_assert_int_eq(knode_run(&m.k, cref_moe_run, NULL, 0, 0),
			 what ? GENAI_E_INVAL : 0);
	if (what)
		ck_assert_ptr_nonnull(strstr(m.k.err.text, what));
	for (uint32_t i = 0; !what && i < ROWS * WIDTH; i++)
		ck_assert(isfinite(m.y[i]));
	knode_free(&m.k);
}

START_TEST(moe_logits)
{
	bad_logit(NAN, 2 * EXPERTS + 1, 1,
		  "/test/node (QMoE): input 1 'input', the router's logits, "
		  "has NaN or infinity in row 2");
	bad_logit(INFINITY, 0, 1, "NaN or infinity in row 0");
	bad_logit(-INFINITY, 4 * EXPERTS, EXPERTS, "no finite value in row 4");
	// an expert that is masked
	bad_logit(-INFINITY, 0, EXPERTS - 1, NULL);
	bad_logit(3e38f, 0, EXPERTS, NULL);
}
END_TEST

// ---- refusals ----

struct refusal {
	const char *attr;
	int64_t i;
	const char *s; // of a text
	int32_t code;
	const char *text;
};

START_TEST(moe_attributes)
{
	static const struct refusal all[] = {
		{"k", 0, NULL, GENAI_E_INVAL, "k is 0 of 4 experts"},
		{"k", 5, NULL, GENAI_E_INVAL, "k is 5 of 4 experts"},
		{"swiglu_fusion", 3, NULL, GENAI_E_INVAL, "must be 0, 1 or 2"},
		{"swiglu_fusion", 0, NULL, GENAI_E_INVAL,
		 "swiglu_fusion 0 wants weights of fc3"},
		{"block_size", 24, NULL, GENAI_E_INVAL, "block_size 24"},
		{"block_size", 64, NULL, GENAI_E_INVAL, "shape [4,64,2]"},
		{"block_size", -1, NULL, GENAI_E_INVAL, "block_size -1"},
		{"normalize_routing_weights", 2, NULL, GENAI_E_INVAL,
		 "must be 0 or 1"},
		{"activation_type", 0, "tanh", GENAI_E_UNSUPPORTED,
		 "activation_type is 'tanh'"},
		{"expert_weight_bits", 3, NULL, GENAI_E_UNSUPPORTED,
		 "expert weights of 3 bits, carried: 2, 4, 8"},
		{"expert_weight_bits", 8, NULL, GENAI_E_INVAL,
		 "shape [4,64,32] must have shape [4,64,64]"},
		{"fc2_expert_weight_bits", 8, NULL, GENAI_E_INVAL,
		 "input 5 'input'"},
		{"quant_type", 0, "fp4", GENAI_E_UNSUPPORTED,
		 "quant_type is 'fp4', carried: int"},
		{"use_sparse_mixer", 1, NULL, GENAI_E_UNSUPPORTED,
		 "use_sparse_mixer 1 is not carried"},
		{"weights_prepacked", 1, NULL, GENAI_E_UNSUPPORTED,
		 "weights_prepacked is 1: experts in a CUDA library's own "
		 "layout; export with qmoe_weights_prepacked=0"},
		{"weights_prepacked", 2, NULL, GENAI_E_INVAL,
		 "must be -1, 0 or 1"},
		{"strange", 1, NULL, GENAI_E_UNSUPPORTED,
		 "unknown attribute 'strange'"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		const struct refusal *r = &all[i];
		static struct moe_node m;
		struct genai_attr *a = NULL;

		make(&m);
		for (uint32_t k = 0; k < m.k.node.n_attrs; k++)
			if (!strcmp(m.k.attrs[k].name, r->attr))
				a = &m.k.attrs[k];
		if (!a)
			a = knode_attr(&m.k, r->attr, GENAI_ATTR_INT);
		a->kind = r->s ? GENAI_ATTR_STRING : GENAI_ATTR_INT;
		a->i = r->i;
		a->s = r->s;
		ck_assert_int_eq(prepare(&m), r->code);
		ck_assert_msg(strstr(m.k.err.text, r->text) != NULL, "%s",
			      m.k.err.text);
		knode_free(&m.k);
	}
}
END_TEST

static void refused(struct moe_node *m, int32_t code, const char *text)
{
	ck_assert_int_eq(prepare(m), code);
	ck_assert_msg(strstr(m->k.err.text, text) != NULL, "%s", m->k.err.text);
	knode_free(&m->k);
	make(m);
}

START_TEST(moe_inputs)
{
	static struct moe_node m;

	make(&m);
	ck_assert_int_eq(prepare(&m), 0);
	knode_free(&m.k);
	knode_in(&m.k, 0, GENAI_DT_F32, m.x, DIMS(1, ROWS, WIDTH - 2));
	refused(&m, GENAI_E_INVAL, "");
	knode_in(&m.k, 0, GENAI_DT_F32, m.x, DIMS(ROWS * WIDTH));
	refused(&m, GENAI_E_INVAL, "rank 2 to 3");
	knode_in(&m.k, 1, GENAI_DT_F32, m.logits, DIMS(ROWS - 1, EXPERTS));
	refused(&m, GENAI_E_INVAL, "must have shape [5,4]");
	m.k.n.in[3] = NULL;
	refused(&m, GENAI_E_INVAL, "input 3, the scales, is missing");
	m.k.n.in[5] = NULL;
	refused(&m, GENAI_E_INVAL, "the weights of fc2 are missing");
	knode_in(&m.k, 3, GENAI_DT_F32, m.s1, DIMS(EXPERTS, 4 * INNER));
	refused(&m, GENAI_E_INVAL, "must have shape [4,64,2]");
	knode_in(&m.k, 4, GENAI_DT_F32, m.s1, DIMS(EXPERTS, INNER));
	refused(&m, GENAI_E_INVAL, "must have shape [4,64]");
	knode_in(&m.k, 11, GENAI_DT_U8, m.w1, DIMS(EXPERTS, 2 * INNER, 2));
	refused(&m, GENAI_E_INVAL, "must have shape [4,64,1]");
	knode_in(&m.k, 11, GENAI_DT_F16, m.w1, DIMS(EXPERTS, 2 * INNER, 2));
	refused(&m, GENAI_E_INVAL, "inputs 3 and 11 differ in type");
	knode_in(&m.k, 14, GENAI_DT_F32, m.logits, DIMS(ROWS, EXPERTS + 1));
	refused(&m, GENAI_E_INVAL, "must have shape [5,4]");
	knode_in(&m.k, 8, GENAI_DT_U8, m.w1, DIMS(EXPERTS, INNER, WIDTH / 2));
	refused(&m, GENAI_E_INVAL, "swiglu_fusion 1 and weights of fc3");
	m.k.n.n_in = 16;
	knode_in(&m.k, 15, GENAI_DT_F32, m.s1, DIMS(EXPERTS));
	refused(&m, GENAI_E_UNSUPPORTED, "a scale of another kind");
	// halves without the attribute come from an export for CUDA
	knode_in(&m.k, 0, GENAI_DT_F16, m.x, DIMS(1, ROWS, WIDTH));
	refused(&m, GENAI_E_UNSUPPORTED, "weights_prepacked is not 0");
	knode_in(&m.k, 0, GENAI_DT_F16, m.x, DIMS(1, ROWS, WIDTH));
	knode_int(&m.k, "weights_prepacked", 0);
	ck_assert_int_eq(prepare(&m), 0);
	knode_free(&m.k);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cpu_moe");
	TCase *t = tcase_create("moe");

	tcase_add_test(t, moe_levels);
	tcase_add_test(t, moe_logits);
	tcase_add_test(t, moe_attributes);
	tcase_add_test(t, moe_inputs);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
