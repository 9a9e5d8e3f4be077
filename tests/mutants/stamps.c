// stamps.c - faults of mutant_device in the times that a stream notes.
#include "tests/mutants/device.h"

static struct genai_stream_ops inner;
static uint64_t latest;

static int32_t stamp(void *self, struct genai_stream *s, uint64_t *out,
		     struct genai_error *err)
{
	int32_t rc = inner.stamp(self, s, out, err);

	if (rc == GENAI_E_STATE && is("stamp-recorded")) {
		*out = latest;
		return 0;
	}
	if (rc)
		return rc;
	latest = *out;
	if (is("stamp-twos"))
		*out *= 2;
	return 0;
}

static int32_t elapsed(void *self, uint64_t from, uint64_t to, int64_t *out,
		       struct genai_error *err)
{
	int32_t rc;

	if (is("stamp-forgets") && (from + 4096 < latest || to + 4096 < latest))
		return mutant_fail(err, GENAI_E_NOTFOUND, "that is long ago");
	if (is("stamp-twos")) {
		from /= 2;
		to /= 2;
	}
	rc = inner.elapsed(self, from, to, out, err);
	if ((rc == GENAI_PENDING && is("stamp-early")) ||
	    (rc == GENAI_E_NOTFOUND && is("stamp-unknown"))) {
		*out = 0;
		return 0;
	}
	if (!rc && is("stamp-unsigned") && *out < 0)
		*out = -*out;
	if (!rc && is("stamp-nothing"))
		*out = 0;
	return rc;
}

void mutant_wrap_stamps(struct genai_stream_ops *s)
{
	inner = *s;
	latest = 0;
	s->stamp = stamp;
	s->elapsed = elapsed;
}
