// barrier.c - the barrier of mutant_device: cpu_ref's, with one fault.
#include <stdio.h>

#include "tests/mutants/device.h"

static const struct genai_barrier_ops *barrier;

static int32_t b_read(void *self, const struct genai_point *points, uint32_t n,
		      uint64_t deadline, struct genai_error *err)
{
	int32_t rc;

	if (is("read-none"))
		return 0;
	if (is("read-first") && n > 1)
		n = 1;
	if (is("read-last") && n > 1) {
		points += n - 1;
		n = 1;
	}
	if (is("deadline-relative") && deadline != UINT64_MAX)
		deadline += mutant_host->clock_ns(mutant_host->ctx);
	if (is("read-no-deadline"))
		deadline = UINT64_MAX;
	rc = barrier->host_read(self, points, n, deadline, err);
	if (rc && is("read-err-needed"))
		err->code = rc;
	if (rc == GENAI_E_DEADLINE && is("read-gives-up"))
		return 0;
	if (rc && rc != GENAI_E_STATE && rc != GENAI_E_DEADLINE &&
	    is("poison-once"))
		mutant_forgiven = 1;
	if (rc == GENAI_E_STATE && is("read-recording"))
		return 0;
	if (rc && is("read-no-node") && err) {
		err->node = GENAI_NONE;
		snprintf(err->text, sizeof(err->text), "it failed");
	}
	return rc;
}

static int32_t b_drain(void *self, struct genai_range range, uint64_t deadline,
		       struct genai_ticket *out, struct genai_error *err)
{
	int32_t rc;

	if (is("drain-none") ||
	    (is("drain-range") && range.bytes != GENAI_RANGE_ALL_BYTES))
		return 0;
	if (is("drain-weak"))
		deadline = 0;
	if (is("drain-no-deadline"))
		deadline = UINT64_MAX;
	rc = barrier->drain(self, range, deadline, out, err);
	if (rc == GENAI_E_DEADLINE && is("drain-weak"))
		return 0;
	if (rc == GENAI_E_STATE && is("drain-recording"))
		return 0;
	return rc;
}

struct genai_barrier_ops mutant_barrier = {
	.size = sizeof(struct genai_barrier_ops), .version = 1};

void mutant_wrap_barrier(const struct genai_barrier_ops *real)
{
	barrier = real;
	mutant_barrier.host_read = b_read;
	mutant_barrier.drain = b_drain;
}
