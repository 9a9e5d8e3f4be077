// record.c - recordings: a step's copies and kernels as one CUDA graph.
// Owns: the open recording, what it names, its replays.
#include "modules/cuda_ep/cep.h"

int32_t cep_capture_begin(void *ctx, struct genai_stream *s,
			  struct genai_error *err)
{
	struct cep *self = ctx;
	struct genai_recording *r;
	CUresult cr;
	int32_t rc = 0;

	r = self->host->alloc(self->host->ctx, sizeof(*r), "recording");
	if (!r)
		return cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
	memset(r, 0, sizeof(*r));
	r->self = self;
	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	if (self->origin)
		rc = cep_fail(self, err, GENAI_E_STATE,
			      "stream %s is recording already",
			      self->origin->name);
	if (!rc)
		rc = cep_poison_check(self, err);
	if (!rc)
		rc = cep_line_record(s, &s->line, err);
	if (!rc) {
		// relaxed: what a recording forbids is forbidden here, of this
		// device; the driver would forbid it to every other one, too
		cr = CU(self, cuStreamBeginCapture)(
			s->h, CU_STREAM_CAPTURE_MODE_RELAXED);
		if (cr)
			rc = cep_cuda_fail(self, err, cr,
					   "stream %s: cannot record", s->name);
	}
	if (!rc) {
		r->serial = ++self->serial;
		self->origin = s;
		self->recording = r;
		self->spoilt = false;
		s->recording = true;
		s->inner.enqueued = 0;
		s->inner.n_events = s->inner.next = 0;
		memset(s->inner.clock, 0, sizeof(s->inner.clock));
	}
	pthread_mutex_unlock(&self->lock);
	if (rc)
		self->host->free(self->host->ctx, r);
	return rc;
}

// End the driver's capture whatever became of it; lock held.
static CUresult close_capture(struct cep *self, CUgraph *out_graph)
{
	CUresult r = CU(self, cuStreamEndCapture)(self->origin->h, out_graph);

	for (uint32_t i = 0; i < CEP_STREAMS; i++)
		if (self->streams[i])
			self->streams[i]->recording = false;
	self->origin = NULL;
	self->recording = NULL;
	return r;
}

// Every joined stream must lead back to the origin.
static int32_t check_joined(struct cep *self, struct genai_error *err)
{
	for (uint32_t i = 0; i < CEP_STREAMS; i++) {
		struct genai_stream *s = self->streams[i];

		if (!s || !s->recording || s == self->origin)
			continue;
		if (self->origin->inner.clock[i] < s->inner.enqueued)
			return cep_fail(self, err, GENAI_E_STATE,
					"stream %s was not joined back before "
					"the recording of %s ended",
					s->name, self->origin->name);
	}
	return 0;
}

void cep_recording_free(struct genai_recording *r)
{
	struct cep *self = r->self;

	for (uint32_t i = 0; i < r->n_blocks; i++)
		r->blocks[i]->recordings--;
	while (r->calls) {
		struct cep_call *next = r->calls->next;

		pthread_mutex_lock(&self->call_lock);
		cep_call_free(r->calls);
		pthread_mutex_unlock(&self->call_lock);
		r->calls = next;
	}
	if (r->exec)
		(void)self->drv.cuGraphExecDestroy(r->exec);
	cep_kept_free(r);
	self->host->free(self->host->ctx, r->blocks);
	self->host->free(self->host->ctx, r);
}

int32_t cep_capture_end(void *ctx, struct genai_stream *s,
			struct genai_recording **out_recording,
			struct genai_error *err)
{
	struct cep *self = ctx;
	struct genai_recording *r;
	CUgraph graph = NULL;
	CUresult cr;
	int32_t rc;

	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	r = self->recording;
	if (self->origin != s) {
		rc = cep_fail(self, err, GENAI_E_STATE,
			      "stream %s began no recording", s->name);
		goto out;
	}
	rc = check_joined(self, err);
	if (!rc)
		rc = cep_kept_end(s, err);
	if (!rc && self->spoilt)
		rc = cep_fail(self, err, GENAI_E_STATE,
			      "stream %s: a call failed while it was recorded",
			      s->name);
	cr = close_capture(self, &graph);
	if (!rc && (cr || !graph))
		rc = cep_cuda_fail(self, err, cr ? cr : CUDA_ERROR_UNKNOWN,
				   "stream %s: the recording was spoilt",
				   s->name);
	if (!rc)
		rc = cep_kept_graph(r, graph, err);
	if (!rc) {
		cr = CU(self, cuGraphInstantiate)(&r->exec, graph, 0);
		if (!cr)
			cr = CU(self, cuGraphUpload)(r->exec, s->h);
		if (cr)
			rc = cep_cuda_fail(self, err, cr,
					   "stream %s: cannot make the "
					   "recording executable",
					   s->name);
	}
	if (graph)
		(void)self->drv.cuGraphDestroy(graph);
	if (rc)
		cep_recording_free(r);
	else
		*out_recording = r;
out:
	pthread_mutex_unlock(&self->lock);
	return rc;
}

int32_t cep_capture_abort(void *ctx, struct genai_stream *s,
			  struct genai_error *err)
{
	struct cep *self = ctx;
	struct genai_recording *r;
	CUgraph graph = NULL;
	int32_t rc = 0;

	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	r = self->recording;
	if (self->origin != s) {
		rc = cep_fail(self, err, GENAI_E_STATE,
			      "stream %s began no recording", s->name);
	} else {
		(void)close_capture(self, &graph);
		if (graph)
			(void)self->drv.cuGraphDestroy(graph);
		cep_recording_free(r);
	}
	pthread_mutex_unlock(&self->lock);
	return rc;
}

int32_t cep_launch_graph(void *ctx, struct genai_recording *r,
			 struct genai_stream *s, struct genai_error *err)
{
	struct cep *self = ctx;
	struct genai_stream_stats *st = &self->stats;
	CUresult cr;
	int32_t rc = 0;

	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	if (s->recording) {
		rc = cep_fail(self, err, GENAI_E_STATE,
			      "stream %s: a replay cannot be recorded",
			      s->name);
		goto out;
	}
	if (self->poison)
		goto out;
	cr = CU(self, cuGraphLaunch)(r->exec, s->h);
	if (cr) {
		rc = cep_cuda_fail(self, err, cr, "stream %s: cannot replay",
				   s->name);
		goto out;
	}
	st->graph_launches++;
	st->launches += r->per_replay.launches;
	st->copies += r->per_replay.copies;
	st->h2d_bytes += r->per_replay.h2d_bytes;
	st->d2h_bytes += r->per_replay.d2h_bytes;
	st->d2d_bytes += r->per_replay.d2d_bytes;
	s->line.enqueued++;
	s->line.owes_event = true;
out:
	pthread_mutex_unlock(&self->lock);
	return rc;
}

int32_t cep_graph_destroy(void *ctx, struct genai_recording *r,
			  const struct genai_ticket *ticket,
			  struct genai_error *err)
{
	struct cep *self = ctx;
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	int32_t rc;

	if (!r)
		return 0;
	if (!ticket)
		return cep_fail(self, err, GENAI_E_STATE,
				"graph_destroy needs a ticket of everything");
	rc = self->host->ticket_check(self->host->ctx, ticket, all, err);
	if (rc)
		return rc;
	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	cep_recording_free(r);
	pthread_mutex_unlock(&self->lock);
	return 0;
}
