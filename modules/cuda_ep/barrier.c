// barrier.c - the only code that waits for the device, and the failure that
// such a wait brings to light.
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "modules/cuda_ep/cep.h"

#define SPIN_NS UINT64_C(200000) // poll hard for so long, then nap

static void fault_text(struct cep *self, const struct cep_fault *f,
		       struct genai_error *out)
{
	char node[200];
	long long v = f->value, n = f->limit;

	cep_node_text(self, f->plan, f->node, node, sizeof(node));
	switch (f->kind) {
	case CEP_FAULT_INDEX:
		cep_fail(self, out, GENAI_E_DEVICE,
			 "%s: index %lld is outside [%lld, %lld)", node, v, -n,
			 n);
		break;
	case CEP_FAULT_LENGTH:
		cep_fail(self, out, GENAI_E_DEVICE,
			 "%s: total length %lld does not fit: at most %lld "
			 "rows, and not less than the step's",
			 node, v, n);
		break;
	case CEP_FAULT_ROTARY:
		cep_fail(self, out, GENAI_E_DEVICE,
			 "%s: position %lld is outside the %lld rows of the "
			 "rotary tables",
			 node, v, n);
		break;
	case CEP_FAULT_NAN:
		cep_fail(self, out, GENAI_E_DEVICE,
			 "%s: element %lld of %lld is NaN", node, v, n);
		break;
	case CEP_FAULT_ROUTER:
		cep_fail(self, out, GENAI_E_DEVICE,
			 "%s: the router's logits have %s in row %lld", node,
			 n ? "NaN or infinity" : "no finite value", v);
		break;
	case CEP_FAULT_SCALE:
		cep_fail(self, out, GENAI_E_DEVICE,
			 "%s: %s_scale[%lld] is not positive", node,
			 n ? "v" : "k", v);
		break;
	case CEP_FAULT_BLOCK:
		cep_fail(self, out, GENAI_E_DEVICE,
			 "%s: block %lld of a block table: there are %lld",
			 node, v, n);
		break;
	case CEP_FAULT_HOST:
		cep_fail(self, out, GENAI_E_DEVICE,
			 "%s: the host's threads did not multiply their rows "
			 "within %lld ms",
			 node, v / 1000000);
		break;
	default:
		cep_fail(self, out, GENAI_E_DEVICE,
			 "%s: integer division by zero", node);
	}
	out->node = f->node;
}

void cep_poison_set(struct cep *self, int32_t code,
		    const struct genai_error *cause)
{
	pthread_mutex_lock(&self->call_lock);
	if (!self->poison) {
		self->poison_err = *cause;
		self->poison = code;
	}
	pthread_mutex_unlock(&self->call_lock);
}

int32_t cep_poison_check(struct cep *self, struct genai_error *err)
{
	volatile struct cep_fault *f = self->fault;
	struct genai_error cause = GENAI_ERROR_INIT;
	int32_t rc;

	if (f->set) {
		struct cep_fault copy = {
			1, f->kind, f->plan, f->node, f->value, f->limit,
		};

		fault_text(self, &copy, &cause);
		cep_poison_set(self, GENAI_E_DEVICE, &cause);
	}
	pthread_mutex_lock(&self->call_lock);
	rc = self->poison;
	if (rc && err) {
		uint32_t size = err->size;

		*err = self->poison_err;
		err->size = size;
	}
	pthread_mutex_unlock(&self->call_lock);
	return rc;
}

const struct cep_failure *cep_failure_before(const struct cep *self,
					     uint32_t id, uint64_t value,
					     const uint64_t *clock)
{
	for (uint32_t i = 0; i < CEP_STREAMS; i++) {
		const struct cep_failure *f = &self->failed[i];

		if (f->code && f->value <= (i == id ? value : clock[i]))
			return f;
	}
	return NULL;
}

static void nap(uint64_t waited_ns)
{
	struct timespec ts = {0, 20000};

	if (waited_ns < SPIN_NS)
		sched_yield();
	else
		nanosleep(&ts, NULL);
}

static int32_t wait_point(struct cep *self, struct genai_point p,
			  uint64_t deadline_ns, struct genai_error *err)
{
	uint64_t start = self->host->clock_ns(self->host->ctx), now;
	int32_t rc;

	for (;;) {
		pthread_mutex_lock(&self->lock);
		rc = cep_point_poll(self, p, err);
		pthread_mutex_unlock(&self->lock);
		if (rc != GENAI_PENDING)
			return rc;
		now = self->host->clock_ns(self->host->ctx);
		if (now >= deadline_ns)
			return cep_fail(self, err, GENAI_E_DEADLINE,
					"stream %s did not get there in time",
					p.stream->name);
		nap(now - start);
	}
}

static int32_t not_recording(struct cep *self, struct genai_error *err)
{
	int32_t rc = 0;

	pthread_mutex_lock(&self->lock);
	if (self->origin)
		rc = cep_fail(self, err, GENAI_E_STATE,
			      "a barrier while stream %s is recording",
			      self->origin->name);
	pthread_mutex_unlock(&self->lock);
	return rc;
}

static int32_t cep_host_read(void *ctx, const struct genai_point *points,
			     uint32_t n_points, uint64_t deadline_ns,
			     struct genai_error *err)
{
	struct cep *self = ctx;
	int32_t rc = not_recording(self, err);

	cep_enter(self);
	for (uint32_t i = 0; !rc && i < n_points; i++)
		rc = wait_point(self, points[i], deadline_ns, err);
	cep_calls_free(self, false);
	return rc;
}

int32_t cep_stream_idle(struct genai_stream *s, struct genai_error *err)
{
	struct cep *self = s->self;
	CUresult r = CU(self, cuStreamQuery)(s->h);

	if (r == CUDA_ERROR_NOT_READY)
		return GENAI_PENDING;
	// memory is given back on our word: ask again, and wait this time
	if (r && !cep_is_fatal(r))
		r = CU(self, cuStreamSynchronize)(s->h);
	if (!r)
		return 0;
	(void)cep_cuda_fail(self, cep_is_fatal(r) ? NULL : err, r, "stream %s",
			    s->name);
	return cep_is_fatal(r) ? 0 : GENAI_E_DEVICE;
}

// The same of all streams.
static int32_t is_idle(struct cep *self, struct genai_error *err)
{
	int32_t rc = 0;

	pthread_mutex_lock(&self->lock);
	for (uint32_t i = 0; i < CEP_STREAMS && !rc; i++)
		if (self->streams[i])
			rc = cep_stream_idle(self->streams[i], err);
	pthread_mutex_unlock(&self->lock);
	return rc;
}

static int32_t cep_drain(void *ctx, struct genai_range range,
			 uint64_t deadline_ns, struct genai_ticket *out_ticket,
			 struct genai_error *err)
{
	struct cep *self = ctx;
	uint64_t start, now;
	int32_t rc = not_recording(self, err);

	(void)range; // in-order queues: all of them is the honest answer
	(void)out_ticket;
	if (rc)
		return rc;
	cep_enter(self);
	start = self->host->clock_ns(self->host->ctx);
	while ((rc = is_idle(self, err)) == GENAI_PENDING) {
		now = self->host->clock_ns(self->host->ctx);
		if (now >= deadline_ns)
			return cep_fail(self, err, GENAI_E_DEADLINE,
					"the device is still busy");
		nap(now - start);
	}
	cep_calls_free(self, false);
	return rc;
}

const struct genai_barrier_ops cep_barrier_ops = {
	.size = sizeof(struct genai_barrier_ops),
	.version = 1,
	.host_read = cep_host_read,
	.drain = cep_drain,
};
