// faults.c - failures by number: fault = oom:N, copy:N, lost:N or slow:N.
#include "modules/cpu_ref/cpu_ref.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLOW_NS 50000000 // of a copy on the real clock

static const struct {
	const char *name;
	enum cref_fault_kind kind;
} kinds[] = {
	{"oom:", CREF_FAULT_OOM},
	{"copy:", CREF_FAULT_COPY},
	{"lost:", CREF_FAULT_LOST},
	{"slow:", CREF_FAULT_SLOW},
};

int32_t cref_fault_parse(struct cref_device *dev, const char *text,
			 struct genai_error *err)
{
	const char *digits = strchr(text, ':');
	char *end;

	if (!strcmp(text, "none"))
		return 0;
	for (uint32_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strncmp(text, kinds[i].name, strlen(kinds[i].name)))
			dev->fault.kind = kinds[i].kind;
	if (digits && digits[1] >= '0' && digits[1] <= '9')
		dev->fault.at = strtoull(digits + 1, &end, 10);
	if (!dev->fault.kind || !dev->fault.at || *end)
		return CREF_FAIL(dev, err, GENAI_E_CONFIG,
				 "fault = %s: none, oom:N, copy:N, lost:N or "
				 "slow:N, from 1",
				 text);
	return 0;
}

int32_t cref_fault_alloc(struct cref_device *dev, uint64_t bytes,
			 struct genai_error *err)
{
	struct cref_fault *f = &dev->fault;

	if (++f->allocs != f->at || f->kind != CREF_FAULT_OOM)
		return 0;
	return CREF_FAIL(dev, err, GENAI_E_LIMIT,
			 "%llu bytes: out of memory (allocation %llu, "
			 "simulated)",
			 (unsigned long long)bytes, (unsigned long long)f->at);
}

static int32_t fail_copy(struct cref_device *dev, const struct cref_queued *op,
			 struct genai_error *err)
{
	struct cref_fault *f = &dev->fault;
	struct timespec nap = {0, SLOW_NS};

	if (++f->copies != f->at)
		return 0;
	if (f->kind == CREF_FAULT_COPY)
		return CREF_FAIL(dev, err, GENAI_E_DEVICE,
				 "copy of %llu bytes failed (copy %llu, "
				 "simulated)",
				 (unsigned long long)op->bytes,
				 (unsigned long long)f->at);
	if (f->kind == CREF_FAULT_SLOW && !dev->clock.on)
		nanosleep(&nap, NULL);
	return 0;
}

int32_t cref_fault_run(struct cref_device *dev, const struct cref_queued *op,
		       struct genai_error *err)
{
	struct cref_fault *f = &dev->fault;

	if (++f->units == f->at && f->kind == CREF_FAULT_LOST)
		f->lost = true;
	if (f->lost)
		return CREF_FAIL(dev, err, GENAI_E_DEVICE,
				 "%s: the device was lost (unit %llu, "
				 "simulated)",
				 op->name, (unsigned long long)f->at);
	return op->kind == CREF_COPY ? fail_copy(dev, op, err) : 0;
}
