// check_sampler.c - the sampler against docs/SAMPLING.md, with exact values.
#include "tests/unit/harness.h"

#include <math.h>
#include <string.h>

#include <genai/text.h>

#include "core/text/sampler_math.h"
#include "tests/unit/alloc_fail.h"

static struct genai_error err;

static struct genai_sampler *open_with(const struct genai_sampling *p,
				       uint32_t vocab)
{
	struct genai_sampler *s = NULL;
	int rc = genai_sampler_open(p, vocab, NULL, 0, &s, &err);

	ck_assert_msg(rc == 0, "%s", err.text);
	return s;
}

static int64_t pick(struct genai_sampler *s, const float *logits, size_t n)
{
	float l[128];
	int64_t id = -1;
	int rc;

	memcpy(l, logits, n * sizeof(*l));
	rc = genai_sampler_pick(s, l, &id, &err);
	ck_assert_msg(rc == 0, "%s", err.text);
	return id;
}

#define PICK(s, ...)                                                           \
	pick(s, (const float[]){__VA_ARGS__},                                  \
	     sizeof((const float[]){__VA_ARGS__}) / sizeof(float))

static void accept_ids(struct genai_sampler *s, const int64_t *ids, size_t n)
{
	ck_assert_int_eq(genai_sampler_accept(s, ids, n, &err), 0);
}

#define ACCEPT(s, ...)                                                         \
	accept_ids(s, (const int64_t[]){__VA_ARGS__},                          \
		   sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

START_TEST(greedy_takes_the_lowest_of_equals)
{
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	struct genai_sampler *s = open_with(&p, 4);

	ck_assert_int_eq(PICK(s, 1, 3, 3, 2), 1);
	ck_assert_int_eq(PICK(s, 0, 0, 0, 0), 0);
	ck_assert_int_eq(PICK(s, -0.0f, 0, 0, 0), 0);
	ck_assert_int_eq(PICK(s, -INFINITY, -INFINITY, -5, -INFINITY), 2);
	ck_assert_int_eq(PICK(s, 1, INFINITY, INFINITY, 2), 1);
	ck_assert_int_eq(genai_sampler_is_greedy(s), 1);
	genai_sampler_close(s);
	genai_sampler_close(NULL);
}
END_TEST

START_TEST(bad_logits_are_errors)
{
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	float nan[] = {1, 2, NAN, NAN},
	      none[] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
	struct genai_sampler *s;
	int64_t id = 77;

	for (p.do_sample = 0; p.do_sample < 2; p.do_sample++) {
		s = open_with(&p, 4);
		ACCEPT(s, 1, 2);
		ck_assert_int_eq(genai_sampler_pick(s, nan, &id, &err),
				 GENAI_E_DEVICE);
		ck_assert_str_eq(err.text, "the model produced a NaN for "
					   "token 2 at position 2");
		ck_assert_int_eq(genai_sampler_pick(s, none, &id, &err),
				 GENAI_E_DEVICE);
		ck_assert_str_eq(err.text, "no token is left at position 2: "
					   "all logits are -inf");
		ck_assert_int_eq(genai_sampler_pick(s, none, &id, NULL),
				 GENAI_E_DEVICE);
		ck_assert_int_eq(id, 77);
		genai_sampler_close(s);
	}
}
END_TEST

static void expect_open(const struct genai_sampling *p, uint32_t vocab, int rc,
			const char *text)
{
	struct genai_sampler *s = NULL;
	int got = genai_sampler_open(p, vocab, NULL, 0, &s, &err);

	ck_assert_int_eq(got, rc);
	if (rc) {
		ck_assert_ptr_null(s);
		ck_assert_str_eq(err.text, text);
	}
	genai_sampler_close(s);
}

// Both sides of every limit.
#define RANGE(field, good, bad, text)                                          \
	do {                                                                   \
		struct genai_sampling p = GENAI_SAMPLING_INIT;                 \
		p.field = good;                                                \
		expect_open(&p, 8, 0, NULL);                                   \
		p.field = bad;                                                 \
		expect_open(&p, 8, GENAI_E_INVAL, #field " is " text);         \
	} while (0)

START_TEST(ranges)
{
	struct genai_sampling p = GENAI_SAMPLING_INIT;

	RANGE(temperature, 0, -0.5f, "-0.5, not 0...100");
	RANGE(temperature, 100, 100.5f, "100.5, not 0...100");
	RANGE(temperature, 1e-30f, NAN, "nan, not 0...100");
	RANGE(top_k, 0, -1, "-1, not 0 or more");
	RANGE(top_k, INT64_MAX, INT64_MIN, "-9.22337e+18, not 0 or more");
	RANGE(top_p, 0, -0.5f, "-0.5, not 0...1");
	RANGE(top_p, 1, 1.5f, "1.5, not 0...1");
	RANGE(top_p, 1, NAN, "nan, not 0...1");
	RANGE(min_p, 0, -0.5f, "-0.5, not 0...1");
	RANGE(min_p, 1, 1.5f, "1.5, not 0...1");
	RANGE(repetition_penalty, 1e-30f, 0, "0, not above 0 and finite");
	RANGE(repetition_penalty, 1e30f, INFINITY,
	      "inf, not above 0 and finite");
	RANGE(presence_penalty, 2, 2.5f, "2.5, not -2...2");
	RANGE(presence_penalty, -2, -2.5f, "-2.5, not -2...2");
	RANGE(frequency_penalty, 2, 2.5f, "2.5, not -2...2");
	RANGE(frequency_penalty, -2, NAN, "nan, not -2...2");
	RANGE(no_repeat_ngram, 0, -1, "-1, not 0 or more");
	RANGE(min_length, INT64_MAX, -1, "-1, not 0 or more");
	expect_open(&p, 1, 0, NULL);
	expect_open(&p, 1u << 22, 0, NULL);
	expect_open(&p, 0, GENAI_E_INVAL, "vocab is 0, not 1...4194304");
	expect_open(&p, (1u << 22) + 1, GENAI_E_INVAL,
		    "vocab is 4.1943e+06, not 1...4194304");
}
END_TEST

START_TEST(ids_are_checked)
{
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	const int64_t high[] = {3, 4}, low[] = {0, -1};
	struct genai_sampler *s = NULL;

	ck_assert_int_eq(genai_sampler_open(&p, 4, high, 2, &s, &err),
			 GENAI_E_INVAL);
	ck_assert_str_eq(err.text, "eos id 4 is not 0...3");
	ck_assert_int_eq(genai_sampler_open(&p, 4, low, 2, &s, &err),
			 GENAI_E_INVAL);
	ck_assert_int_eq(genai_sampler_open(&p, 4, high, 1, &s, &err), 0);
	ck_assert_int_eq(genai_sampler_accept(s, high, 2, &err), GENAI_E_INVAL);
	ck_assert_str_eq(err.text, "token 1: id 4 is not 0...3");
	ck_assert_int_eq(genai_sampler_accept(s, low, 2, &err), GENAI_E_INVAL);
	ck_assert_int_eq(genai_sampler_accept(s, NULL, 0, &err), 0);
	ck_assert_int_eq(genai_sampler_accept(s, high, 1, &err), 0);
	genai_sampler_close(s);
}
END_TEST

START_TEST(greedy_by_parameters)
{
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	const int64_t eos[] = {0};
	struct genai_sampler *s;
	int i;

	// what makes a sampler pick the best, and what keeps it from being
	// plain argmax
	for (i = 0; i < 9; i++) {
		p = (struct genai_sampling)GENAI_SAMPLING_INIT;
		p.do_sample = i > 5 && i < 8;
		p.repetition_penalty = i == 1 ? 1.5f : 1;
		p.presence_penalty = i == 2;
		p.frequency_penalty = i == 3;
		p.no_repeat_ngram = i == 4;
		p.min_length = i == 5;
		p.temperature = i == 6 ? 0.9e-6f : 1;
		p.top_k = i == 7;
		ck_assert_int_eq(genai_sampler_open(&p, 4, eos, 1, &s, &err),
				 0);
		ck_assert_int_eq(genai_sampler_is_greedy(s), i == 0 || i > 5);
		ck_assert_int_eq(PICK(s, 0, 5, 5, 0), 1);
		genai_sampler_close(s);
	}
	p.do_sample = 1;
	p.temperature = 1.1e-6f;
	s = open_with(&p, 4);
	ck_assert_int_eq(genai_sampler_is_greedy(s), 0);
	ck_assert_int_eq(PICK(s, 0, 5, 4.9f, 0), 1);
	genai_sampler_close(s);
}
END_TEST

START_TEST(min_length_suppresses_eos)
{
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	const int64_t eos[] = {3, 1};
	struct genai_sampler *s = NULL;

	p.min_length = 3;
	ck_assert_int_eq(genai_sampler_open(&p, 4, eos, 2, &s, &err), 0);
	ACCEPT(s, 0);
	ck_assert_int_eq(PICK(s, 1, 8, 2, 9), 2); // length 1
	ck_assert_int_eq(PICK(s, 1, 8, 2, 9), 2); // length 2
	ck_assert_int_eq(PICK(s, 1, 8, 2, 9), 3); // length 3
	genai_sampler_close(s);
	// without eos there is nothing to suppress
	s = open_with(&p, 4);
	ck_assert_int_eq(PICK(s, 1, 8, 2, 9), 3);
	ck_assert_int_eq(genai_sampler_is_greedy(s), 1);
	genai_sampler_close(s);
}
END_TEST

// One pick after the tokens 0 0 1, to see the logits it left.
static void penalized(const struct genai_sampling *p, float l[4])
{
	struct genai_sampler *s = open_with(p, 4);
	int64_t id;

	ACCEPT(s, 0, 0, 1);
	ck_assert_int_eq(genai_sampler_pick(s, l, &id, &err), 0);
	genai_sampler_close(s);
}

START_TEST(penalties)
{
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	float l[] = {3, -2, 5, -1};

	p.repetition_penalty = 2;
	penalized(&p, l); // once per distinct token
	ck_assert(l[0] == 1.5f && l[1] == -4 && l[2] == 5 && l[3] == -1);
	p.presence_penalty = 0.5f;
	memcpy(l, (float[]){3, -2, 5, -1}, sizeof(l));
	penalized(&p, l);
	ck_assert(l[0] == 1 && l[1] == -4.5f && l[2] == 5 && l[3] == -1);
	p.frequency_penalty = 0.25f;
	memcpy(l, (float[]){3, -2, 5, -1}, sizeof(l));
	penalized(&p, l); // times the count: two and one
	ck_assert(l[0] == 0.5f && l[1] == -4.75f && l[2] == 5 && l[3] == -1);
	p.repetition_penalty = 0.5f;
	p.presence_penalty = -1;
	p.frequency_penalty = 0;
	memcpy(l, (float[]){0, -INFINITY, 5, 1}, sizeof(l));
	penalized(&p, l);
	ck_assert(l[0] == 1 && l[1] == -INFINITY && l[2] == 5 && l[3] == 1);
}
END_TEST

START_TEST(own_choices_are_recorded)
{
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	struct genai_sampler *s;

	p.frequency_penalty = 1;
	s = open_with(&p, 3);
	ck_assert_int_eq(PICK(s, 5, 4.5f, 4), 0);
	ck_assert_int_eq(PICK(s, 5, 4.5f, 4), 1); // 4, 4.5, 4
	ck_assert_int_eq(PICK(s, 5, 4.5f, 4), 0); // 4, 3.5, 4
	ck_assert_int_eq(PICK(s, 5, 4.5f, 4), 2); // 3, 3.5, 4
	genai_sampler_rewind(s, 9);
	genai_sampler_rewind(s, 1); // 0
	ck_assert_int_eq(PICK(s, 5, 4.5f, 4), 1);
	genai_sampler_reset(s);
	ck_assert_int_eq(PICK(s, 5, 4.5f, 4), 0);
	ck_assert_int_eq(PICK(s, 5, 4.5f, 4), 1);
	genai_sampler_close(s);
}
END_TEST

START_TEST(ngrams)
{
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	struct genai_sampler *s;
	float none[] = {1, 2};
	int64_t id;

	p.no_repeat_ngram = 3;
	s = open_with(&p, 5);
	ck_assert_int_eq(PICK(s, 0, 0, 0, 9, 0), 3); // too short to repeat
	genai_sampler_reset(s);
	ACCEPT(s, 1, 2, 3, 4, 1, 2);
	ck_assert_int_eq(PICK(s, 0, 0, 1, 9, 8), 4); // not 1 2 3
	genai_sampler_rewind(s, 5);
	ck_assert_int_eq(PICK(s, 0, 0, 1, 9, 8), 3);
	genai_sampler_close(s);

	p.no_repeat_ngram = 1; // no token twice
	s = open_with(&p, 2);
	ck_assert_int_eq(PICK(s, 1, 2), 1);
	ck_assert_int_eq(PICK(s, 1, 2), 0);
	ck_assert_int_eq(genai_sampler_pick(s, none, &id, &err),
			 GENAI_E_DEVICE);
	genai_sampler_close(s);

	p.no_repeat_ngram = INT64_MAX;
	s = open_with(&p, 2);
	ACCEPT(s, 1, 1, 1);
	ck_assert_int_eq(PICK(s, 1, 2), 1);
	genai_sampler_close(s);
}
END_TEST

START_TEST(philox_known_answers)
{
	const struct {
		uint32_t ctr[4], key[2], out[4];
	} t[] = {
		{{0, 0, 0, 0},
		 {0, 0},
		 {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{{~0u, ~0u, ~0u, ~0u},
		 {~0u, ~0u},
		 {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
		 {0xa4093822, 0x299f31d0},
		 {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	};
	uint32_t c[4];
	size_t i;

	for (i = 0; i < 3; i++) {
		memcpy(c, t[i].ctr, sizeof(c));
		genai_philox(c, t[i].key);
		ck_assert_mem_eq(c, t[i].out, sizeof(c));
	}
	ck_assert_uint_eq(genai_sampler_random(42, 0), 8643895580192075859u);
	ck_assert_uint_eq(genai_sampler_random(0, 0), 16242730742183356629u);
	ck_assert_uint_eq(genai_sampler_random(UINT64_MAX, (1ull << 32) + 5),
			  17635579031320983556u);
}
END_TEST

START_TEST(weights)
{
	double x;
	int64_t d;

	ck_assert_uint_eq(genai_sampler_weight(0), 1099511627776u);
	ck_assert_uint_eq(genai_sampler_weight(-0.5), 666887512956u);
	ck_assert_uint_eq(genai_sampler_weight(-1), 404487723187u);
	ck_assert_uint_eq(genai_sampler_weight(-10), 49917750u);
	ck_assert_uint_eq(genai_sampler_weight(-27.7), 1);
	ck_assert_uint_eq(genai_sampler_weight(-27.8), 0);
	ck_assert_uint_eq(genai_sampler_weight(-28), 0);
	ck_assert_uint_eq(genai_sampler_weight(-1e300), 0);
	ck_assert_uint_eq(genai_sampler_weight(-INFINITY), 0);
	for (x = 0; x > -28; x -= 0.00103) {
		d = (int64_t)genai_sampler_weight(x) -
		    (int64_t)(exp(x) * (double)GENAI_WEIGHT_ONE);
		ck_assert_int_le(d, 1);
		ck_assert_int_ge(d, -1);
	}
}
END_TEST

// Picks at positions 0...11 with seed 42, from a second implementation of the
// specification (in Python) over logits that binary32 holds exactly.
START_TEST(draws_by_the_specification)
{
	const struct {
		float t;
		int64_t k;
		float p, min;
		int64_t want[12];
	} c[] = {
		{1, 0, 1, 0, {49, 30, 60, 62, 87, 30, 76, 38, 19, 38, 60, 46}},
		{0.7f,
		 0,
		 1,
		 0,
		 {49, 30, 60, 60, 87, 30, 73, 38, 19, 38, 60, 43}},
		{0.7f,
		 20,
		 1,
		 0,
		 {49, 30, 60, 60, 87, 30, 76, 38, 19, 38, 60, 46}},
		{1.3f,
		 0,
		 0.9f,
		 0,
		 {49, 30, 60, 65, 87, 30, 76, 38, 19, 38, 65, 46}},
		{0.8f,
		 40,
		 0.95f,
		 0,
		 {49, 30, 60, 60, 87, 30, 68, 38, 19, 38, 60, 46}},
		{1,
		 0,
		 1,
		 0.1f,
		 {49, 30, 60, 60, 87, 30, 76, 38, 19, 38, 60, 46}},
		{2.5f,
		 50,
		 0.8f,
		 0.05f,
		 {49, 30, 65, 68, 87, 30, 76, 38, 16, 38, 65, 46}},
	};
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	struct genai_sampler *s;
	float l[101];
	size_t i, k;

	for (i = 0; i < 101; i++)
		l[i] = (float)((i * 37) % 101) / 8 - 6;
	for (i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		p.do_sample = 1;
		p.seed = 42;
		p.temperature = c[i].t;
		p.top_k = c[i].k;
		p.top_p = c[i].p;
		p.min_p = c[i].min;
		s = open_with(&p, 101);
		for (k = 0; k < 12; k++)
			ck_assert_int_eq(pick(s, l, 101), c[i].want[k]);
		genai_sampler_close(s);
	}
}
END_TEST

// The set of ids that ever come, over many positions.
static unsigned seen(const struct genai_sampling *base, const float *l,
		     size_t n)
{
	struct genai_sampling p = *base;
	struct genai_sampler *s;
	unsigned set = 0;
	int i;

	p.do_sample = 1;
	s = open_with(&p, (uint32_t)n);
	for (i = 0; i < 4000; i++)
		set |= 1u << pick(s, l, n);
	genai_sampler_close(s);
	return set;
}

START_TEST(filters_keep_exactly)
{
	// probabilities 0.4 0.3 0.2 0.1, and a tie for the filters to cut
	const float l[] = {logf(0.1f), logf(0.4f), logf(0.2f), logf(0.3f)};
	const float flat[] = {0, 0, 0, 0, 0, 0};
	const float gap[] = {0, -INFINITY, -20, 0};
	struct genai_sampling p = GENAI_SAMPLING_INIT;

	ck_assert_uint_eq(seen(&p, l, 4), 15);
	p.top_k = 2;
	ck_assert_uint_eq(seen(&p, l, 4), 10);
	p.top_k = 3;
	ck_assert_uint_eq(seen(&p, l, 4), 14);
	p.top_k = 3;
	ck_assert_uint_eq(seen(&p, flat, 6), 7);
	p.top_k = 50; // more than there are: all
	ck_assert_uint_eq(seen(&p, l, 4), 15);
	p.top_k = 0;
	p.top_p = 0.39f;
	ck_assert_uint_eq(seen(&p, l, 4), 2);
	p.top_p = 0.41f;
	ck_assert_uint_eq(seen(&p, l, 4), 10);
	p.top_p = 0.71f;
	ck_assert_uint_eq(seen(&p, l, 4), 14);
	p.top_p = 0.91f;
	ck_assert_uint_eq(seen(&p, l, 4), 15);
	p.top_p = 0; // the best one, as just above 0
	ck_assert_uint_eq(seen(&p, l, 4), 2);
	p.top_p = 1;
	ck_assert_uint_eq(seen(&p, l, 4), 15);
	p.top_p = 0.5f; // exactly half of six
	ck_assert_uint_eq(seen(&p, flat, 6), 7);
	p.top_k = 3; // of what top_k left: 0.4 of 0.9 is less than 0.45
	p.top_p = 0.45f;
	ck_assert_uint_eq(seen(&p, l, 4), 10);
	p.top_p = 0.44f;
	ck_assert_uint_eq(seen(&p, l, 4), 2);
	p.top_k = 0;
	p.top_p = 1;
	p.min_p = 0.51f;
	ck_assert_uint_eq(seen(&p, l, 4), 10);
	p.min_p = 0.49f;
	ck_assert_uint_eq(seen(&p, l, 4), 14);
	p.min_p = 1;
	ck_assert_uint_eq(seen(&p, l, 4), 2);
	ck_assert_uint_eq(seen(&p, flat, 6), 63);
	p.min_p = 0;
	ck_assert_uint_eq(seen(&p, gap, 4), 9);
	p.temperature = 100;
	ck_assert_uint_eq(seen(&p, gap, 4), 13);
	p.temperature = 1;
	ck_assert_uint_eq(seen(&p, (const float[]){INFINITY, 0, INFINITY}, 3),
			  5);
}
END_TEST

// Chi-square of 100000 draws with 7 degrees of freedom; the seeds are fixed,
// so that it passes or fails for good.  24.3 is the 0.1 % point.
START_TEST(draws_are_distributed)
{
	static const double share[] = {0.02, 0.05, 0.08, 0.1,
				       0.15, 0.15, 0.2,	 0.25};
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	struct genai_sampler *s;
	int hits[8], i, draws = 100000;
	double chi;
	float l[8];

	p.do_sample = 1;
	for (i = 0; i < 8; i++)
		l[i] = (float)log(share[i]) + 3;
	for (p.seed = 0; p.seed < 4; p.seed++) {
		s = open_with(&p, 8);
		memset(hits, 0, sizeof(hits));
		for (i = 0; i < draws; i++)
			hits[pick(s, l, 8)]++;
		for (chi = 0, i = 0; i < 8; i++)
			chi += pow(hits[i] - share[i] * draws, 2) /
			       (share[i] * draws);
		ck_assert_double_lt(chi, 24.3);
		ck_assert_double_gt(chi, 0.5);
		genai_sampler_close(s);
	}
}
END_TEST

START_TEST(seed_and_position_decide)
{
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	struct genai_sampler *a, *b;
	float l[100] = {0};
	int64_t first[64];
	int i, same = 0;

	p.do_sample = 1;
	p.seed = 1;
	a = open_with(&p, 100);
	b = open_with(&p, 100);
	for (i = 0; i < 64; i++) {
		first[i] = pick(a, l, 100);
		ck_assert_int_eq(pick(b, l, 100), first[i]);
	}
	genai_sampler_rewind(a, 20);
	ck_assert_int_eq(pick(a, l, 100), first[20]);
	// the same position, reached by tokens from elsewhere
	genai_sampler_reset(b);
	for (i = 0; i < 33; i++)
		ACCEPT(b, i);
	ck_assert_int_eq(pick(b, l, 100), first[33]);
	genai_sampler_close(a);
	genai_sampler_close(b);
	p.seed = 2;
	a = open_with(&p, 100);
	for (i = 0; i < 64; i++)
		same += pick(a, l, 100) == first[i];
	ck_assert_int_lt(same, 8);
	genai_sampler_close(a);
}
END_TEST

START_TEST(long_history)
{
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	struct genai_sampler *s;
	int i;

	p.frequency_penalty = 1;
	s = open_with(&p, 2);
	for (i = 0; i < 300000; i++)
		ck_assert_int_eq(PICK(s, 1, 1), i & 1);
	genai_sampler_close(s);
}
END_TEST

START_TEST(out_of_memory)
{
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	static int64_t many[200000];
	struct genai_sampler *s;
	int64_t id;
	float l[2] = {0, 1};
	int i, rc = -1;

	for (i = 0; rc; i++) {
		s = (void *)&s;
		alloc_left = i;
		rc = genai_sampler_open(&p, 100, many, 1, &s, &err);
		alloc_left = -1;
		ck_assert_int_eq(rc, i < 6 ? GENAI_E_NOMEM : 0);
		ck_assert_int_eq(!s, rc != 0);
	}
	alloc_left = 0;
	ck_assert_int_eq(genai_sampler_accept(s, many, 200000, &err),
			 GENAI_E_NOMEM);
	alloc_left = -1;
	genai_sampler_close(s);
	// the history full to its first capacity: the pick must grow it
	s = open_with(&p, 2);
	accept_ids(s, many, 256);
	alloc_left = 0;
	ck_assert_int_eq(genai_sampler_pick(s, l, &id, &err), GENAI_E_NOMEM);
	alloc_left = -1;
	ck_assert_int_eq(genai_sampler_pick(s, l, &id, &err), 0);
	genai_sampler_close(s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sampler");
	TCase *t = tcase_create("sampler");

	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	tcase_add_test(t, greedy_takes_the_lowest_of_equals);
	tcase_add_test(t, bad_logits_are_errors);
	tcase_add_test(t, ranges);
	tcase_add_test(t, ids_are_checked);
	tcase_add_test(t, greedy_by_parameters);
	tcase_add_test(t, min_length_suppresses_eos);
	tcase_add_test(t, penalties);
	tcase_add_test(t, own_choices_are_recorded);
	tcase_add_test(t, ngrams);
	tcase_add_test(t, philox_known_answers);
	tcase_add_test(t, weights);
	tcase_add_test(t, draws_by_the_specification);
	tcase_add_test(t, filters_keep_exactly);
	tcase_add_test(t, draws_are_distributed);
	tcase_add_test(t, seed_and_position_decide);
	tcase_add_test(t, long_history);
	tcase_add_test(t, out_of_memory);
	return genai_check_main(s);
}
