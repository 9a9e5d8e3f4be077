// corpus.c - see corpus.h: random data, comparing, counting.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conform/one.h"

static uint64_t state = 1;
static char case_name[256];

void rnd_seed(uint64_t s)
{
	state = s * 2 + 1;
}

uint32_t rnd_u32(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) ^ (uint32_t)(state >> 20);
}

float rnd_f(float lo, float hi)
{
	return lo + (hi - lo) * (float)(rnd_u32() >> 8) / 16777216.f;
}

void *rnd_tensor(uint32_t dtype, uint64_t n, float lo, float hi)
{
	void *p = calloc(n + 1, 8);

	for (uint64_t i = 0; i < n; i++)
		op_store(dtype, p, i, rnd_f(lo, hi));
	return p;
}

void *rnd_bytes(uint64_t n)
{
	uint8_t *p = malloc(n + 16);

	for (uint64_t i = 0; i < n; i++)
		p[i] = (uint8_t)rnd_u32();
	return p;
}

double unit_of(uint32_t dtype)
{
	return dtype == GENAI_DT_F16	? 0x1p-11
	       : dtype == GENAI_DT_BF16 ? 0x1p-8
					: 0x1p-24;
}

bool check_begin(struct check *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(case_name, sizeof(case_name), fmt, ap);
	va_end(ap);
	c->refused = false;
	if (c->brief && c->seen++ % 8)
		return false;
	return !c->only || strstr(case_name, c->only);
}

void check_result(struct check *c, bool ok, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (ok) {
		c->passed++;
		return;
	}
	if (c->refused) {
		c->skipped++;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!c->failed++)
		snprintf(c->first, sizeof(c->first), "%s: %s", case_name, text);
	if (!c->print)
		return;
	printf("FAILED %s: %s\n", case_name, text);
	fflush(stdout);
}

void check_close(struct check *c, uint32_t dtype, const void *got,
		 const double *want, const double *tol, uint64_t n)
{
	uint64_t bad = 0, worst = 0;
	double over = -1;

	for (uint64_t i = 0; i < n; i++) {
		double d = fabs((double)op_load(dtype, got, i) - want[i]);

		if (!(d <= tol[i]))
			bad++;
		if (!(d / tol[i] <= over)) {
			over = d / tol[i];
			worst = i;
		}
	}
	check_result(c, !bad,
		     "%llu of %llu wrong; worst at %llu: %.9g, should be %.9g "
		     "+- %.3g",
		     (unsigned long long)bad, (unsigned long long)n,
		     (unsigned long long)worst,
		     n ? (double)op_load(dtype, got, worst) : 0.,
		     n ? want[worst] : 0., n ? tol[worst] : 0.);
}

void check_same(struct check *c, const void *a, const void *b, uint64_t bytes)
{
	const uint8_t *x = a, *y = b;
	uint64_t at = 0;

	while (at < bytes && x[at] == y[at])
		at++;
	check_result(c, at == bytes, "differs from byte %llu",
		     (unsigned long long)at);
}

struct one one;

void one_begin(void)
{
	op_graph_init(&one.g);
	one.n = 0;
	one.err = (struct genai_error)GENAI_ERROR_INIT;
}

void one_in(uint32_t v)
{
	one.in[one.n++] = v;
	one.in[one.n] = OP_END;
}

void one_node(const char *domain, const char *op)
{
	op_node(&one.g, domain, op, one.in);
}

void one_run(struct check *c, uint32_t dtype, uint32_t rank,
	     const int64_t *dims, void *out)
{
	uint32_t outs[2] = {0, OP_END};
	struct op_how how = {0};

	outs[0] = op_output(&one.g, dtype, rank, dims, out);
	op_node_out(&one.g, outs);
	one.rc = c->run(c, &one.g, &how, &one.err);
}

void one_check(struct check *c, uint32_t dtype, const void *out,
	       const double *want, const double *tol, uint64_t n)
{
	if (one.rc)
		check_result(c, false, "%s", one.err.text);
	else
		check_close(c, dtype, out, want, tol, n);
}
