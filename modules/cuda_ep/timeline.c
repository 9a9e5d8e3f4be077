// timeline.c - points, the events behind them, order between streams.
// Owns: when an event is recorded and which one stands for a point.
//
// A point is a stream and a number of units.  Its event is recorded when
// somebody first asks (another stream, a poll), or at once after copies to the
// host, graphs and host functions, whose results are waited for.  An event
// recorded later than the point stands for more than the point: waiting on it
// is correct, only longer.  So the ring may forget old events.
//
// A stream's clock holds, per stream, the units it is known to be ordered
// after; a wait that the clock covers enqueues nothing.
#include "modules/cuda_ep/timeline.h"

// The place of the next event.  It gets the driver's event of the oldest one if
// the host knows that to be reached, so that steps make no new ones.
static struct cep_event *next_event(struct cep_line *l)
{
	struct cep_event *e = &l->events[l->next], *oldest;

	oldest = &l->events[(l->next + CEP_EVENTS - l->n_events) % CEP_EVENTS];
	if (!e->h && l->n_events && oldest->value <= l->reached) {
		e->h = oldest->h;
		oldest->h = NULL;
		l->n_events--;
	}
	return e;
}

int32_t cep_line_record(struct genai_stream *s, struct cep_line *l,
			struct genai_error *err)
{
	struct cep *self = s->self;
	uint32_t newest = (l->next + CEP_EVENTS - 1) % CEP_EVENTS;
	struct cep_event *e;
	CUresult r;

	l->owes_event = false;
	if (l->n_events && l->events[newest].value == l->enqueued)
		return 0;
	e = next_event(l);
	if (!e->h) {
		r = CU(self, cuEventCreate)(&e->h, CU_EVENT_DISABLE_TIMING);
		if (r)
			return cep_cuda_fail(self, err, r,
					     "stream %s: cannot make an event",
					     s->name);
	}
	r = CU(self, cuEventRecord)(e->h, s->h);
	if (r)
		return cep_cuda_fail(self, err, r,
				     "stream %s: cannot record an event",
				     s->name);
	e->value = l->enqueued;
	memcpy(e->clock, l->clock, sizeof(e->clock));
	e->clock[s->id] = l->enqueued;
	l->next = (l->next + 1) % CEP_EVENTS;
	if (l->n_events < CEP_EVENTS)
		l->n_events++;
	return 0;
}

// The oldest event that covers value, recorded now if there is none.
static int32_t event_for(struct genai_stream *s, struct cep_line *l,
			 uint64_t value, struct cep_event **out_e,
			 struct genai_error *err)
{
	int32_t rc = 0;

	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t i = l->n_events; i; i--) {
			uint32_t at = (l->next + CEP_EVENTS - i) % CEP_EVENTS;

			if (l->events[at].value >= value) {
				*out_e = &l->events[at];
				return 0;
			}
		}
		if (pass)
			break;
		rc = cep_line_record(s, l, err);
		if (rc)
			return rc;
	}
	return cep_fail(s->self, err, GENAI_E_INVAL,
			"stream %s: a point from the future", s->name);
}

static void merge_clock(struct cep_line *l, const struct cep_event *e)
{
	for (uint32_t i = 0; i < CEP_STREAMS; i++)
		if (e->clock[i] > l->clock[i])
			l->clock[i] = e->clock[i];
}

// 1 if the stream belongs to this device.
static bool is_ours(struct cep *self, const struct genai_stream *s)
{
	for (uint32_t i = 0; i < CEP_STREAMS; i++)
		if (self->streams[i] == s)
			return true;
	return false;
}

static int32_t check_point(struct cep *self, struct genai_point p,
			   struct genai_error *err)
{
	if (!is_ours(self, p.stream))
		return cep_fail(self, err, GENAI_E_INVAL,
				"a point of a stream that does not exist");
	if (!(p.value & 1)) {
		if (p.value >> 1 <= p.stream->line.enqueued)
			return 0;
		return cep_fail(self, err, GENAI_E_INVAL,
				"stream %s: a point from the future",
				p.stream->name);
	}
	if (self->recording && p.value >> 33 == self->recording->serial &&
	    p.stream->recording)
		return 0;
	return cep_fail(self, err, GENAI_E_STATE,
			"stream %s: a point made while recording, used outside",
			p.stream->name);
}

// A host unit before the point failed.
static int32_t unit_failure(const struct genai_stream *s, uint64_t value,
			    const struct cep_event *e, struct genai_error *err)
{
	struct cep *self = s->self;
	const struct cep_failure *f;
	int32_t rc = 0;

	pthread_mutex_lock(&self->call_lock);
	f = cep_failure_before(self, s->id, value, e->clock);
	if (f) {
		rc = f->code;
		if (err) {
			uint32_t size = err->size;

			*err = f->err;
			err->size = size;
		}
	}
	pthread_mutex_unlock(&self->call_lock);
	return rc;
}

// The event is reached: so is all that it is ordered after.
static void reached(struct cep *self, const struct cep_event *e)
{
	for (uint32_t i = 0; i < CEP_STREAMS; i++) {
		struct genai_stream *s = self->streams[i];

		if (s && e->clock[i] > s->line.reached)
			s->line.reached = e->clock[i];
	}
}

int32_t cep_point_poll(struct cep *self, struct genai_point p,
		       struct genai_error *err)
{
	uint64_t value = p.value >> 1;
	struct cep_event *e = NULL;
	struct cep_line *l;
	CUresult r;
	int32_t rc;

	if (!p.stream)
		return 0;
	rc = check_point(self, p, err);
	if (rc)
		return rc;
	if (p.value & 1)
		return cep_fail(
			self, err, GENAI_E_STATE,
			"a point made while recording is never reached");
	l = &p.stream->line;
	if (l->reached >= value)
		return 0;
	rc = cep_poison_check(self, err);
	if (rc)
		return rc;
	if (p.stream->recording && l->n_events == 0)
		return GENAI_PENDING;
	rc = event_for(p.stream, l, value, &e, err);
	if (rc)
		return rc;
	r = CU(self, cuEventQuery)(e->h);
	if (r == CUDA_ERROR_NOT_READY)
		return GENAI_PENDING;
	if (r) {
		rc = cep_cuda_fail(self, err, r, "stream %s", p.stream->name);
		(void)cep_poison_check(self, err);
		return rc;
	}
	rc = cep_poison_check(self, err);
	if (!rc)
		rc = unit_failure(p.stream, value, e, err);
	if (!rc)
		reached(self, e);
	return rc;
}

static int32_t wait_event(struct genai_stream *s, const struct cep_event *e,
			  struct genai_error *err)
{
	CUresult r = CU(s->self, cuStreamWaitEvent)(s->h, e->h, 0);

	return r ? cep_cuda_fail(s->self, err, r, "stream %s: cannot wait",
				 s->name)
		 : 0;
}

// Order after a point made in the open recording; joins it.
static int32_t wait_inner(struct genai_stream *s, struct genai_point p,
			  struct genai_error *err)
{
	uint64_t value = p.value >> 1 & UINT32_MAX;
	struct cep_event *e = NULL;
	int32_t rc;

	if (s->recording && s->inner.clock[p.stream->id] >= value)
		return 0;
	rc = event_for(p.stream, &p.stream->inner, value, &e, err);
	if (!rc && !s->recording)
		rc = cep_line_record(s, &s->line, err);
	if (!rc)
		rc = wait_event(s, e, err);
	if (rc)
		return rc;
	if (!s->recording) {
		s->recording = true;
		s->inner.enqueued = 0;
		s->inner.n_events = s->inner.next = 0;
		memset(s->inner.clock, 0, sizeof(s->inner.clock));
	}
	merge_clock(&s->inner, e);
	s->inner.enqueued++;
	return 0;
}

static int32_t wait_outer(struct genai_stream *s, struct genai_point p,
			  struct genai_error *err)
{
	uint64_t value = p.value >> 1;
	struct cep_event *e = NULL;
	int32_t rc;

	if (s->line.clock[p.stream->id] >= value ||
	    p.stream->line.reached >= value)
		return 0;
	if (s->recording) {
		rc = cep_point_poll(s->self, p, err);
		if (rc != GENAI_PENDING)
			return rc;
		return cep_fail(s->self, err, GENAI_E_STATE,
				"stream %s is recording and is not ordered "
				"after an earlier point of stream %s",
				s->name, p.stream->name);
	}
	rc = event_for(p.stream, &p.stream->line, value, &e, err);
	if (!rc)
		rc = wait_event(s, e, err);
	if (rc)
		return rc;
	merge_clock(&s->line, e);
	s->line.enqueued++;
	return 0;
}

int32_t cep_mark(void *ctx, struct genai_stream *s,
		 struct genai_point *out_point, struct genai_error *err)
{
	struct cep *self = ctx;
	int32_t rc = 0;

	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	if (s->recording)
		rc = cep_line_record(s, &s->inner, err);
	else if (s->line.owes_event)
		rc = cep_line_record(s, &s->line, err);
	if (!rc) {
		out_point->stream = s;
		out_point->value = s->recording
					   ? (self->recording->serial << 32 |
					      s->inner.enqueued)
							     << 1 |
						     1
					   : s->line.enqueued << 1;
	}
	pthread_mutex_unlock(&self->lock);
	return rc;
}

int32_t cep_wait(void *ctx, struct genai_stream *s, struct genai_point p,
		 struct genai_error *err)
{
	struct cep *self = ctx;
	int32_t rc;

	if (!p.stream)
		return 0;
	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	rc = check_point(self, p, err);
	if (!rc && p.stream != s)
		rc = p.value & 1 ? wait_inner(s, p, err)
				 : wait_outer(s, p, err);
	if (rc && s->recording)
		self->spoilt = true;
	pthread_mutex_unlock(&self->lock);
	return rc;
}

int32_t cep_poll(void *ctx, struct genai_point p, struct genai_error *err)
{
	struct cep *self = ctx;
	int32_t rc;

	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	rc = cep_point_poll(self, p, err);
	pthread_mutex_unlock(&self->lock);
	return rc;
}

// ---- stamps ----

static int32_t room_for_stamps(struct cep *self, struct genai_error *err)
{
	uint64_t bytes = CEP_STAMPS * sizeof(*self->stamps);

	if (self->stamps)
		return 0;
	if (!self->drv.cuEventElapsedTime)
		return cep_fail(self, err, GENAI_E_UNSUPPORTED,
				"this driver does not tell times");
	self->stamps = self->host->alloc(self->host->ctx, bytes, "stamps");
	if (!self->stamps)
		return cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
	memset(self->stamps, 0, bytes);
	return 0;
}

int32_t cep_stamp(void *ctx, struct genai_stream *s, uint64_t *out_stamp,
		  struct genai_error *err)
{
	struct cep *self = ctx;
	CUresult r = CUDA_SUCCESS;
	CUevent *at;
	int32_t rc = 0;

	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	if (s->recording)
		rc = cep_fail(self, err, GENAI_E_STATE,
			      "stream %s is recorded: it has no time", s->name);
	if (!rc)
		rc = room_for_stamps(self, err);
	if (!rc) {
		at = &self->stamps[(self->n_stamps + 1) % CEP_STAMPS];
		if (!*at)
			r = CU(self, cuEventCreate)(at, CU_EVENT_DEFAULT);
		if (!r)
			r = CU(self, cuEventRecord)(*at, s->h);
		if (r)
			rc = cep_cuda_fail(self, err, r,
					   "stream %s: cannot make a stamp",
					   s->name);
	}
	if (!rc) {
		*out_stamp = ++self->n_stamps;
		rc = cep_count(s, false, err); // points come after it
	}
	pthread_mutex_unlock(&self->lock);
	return rc;
}

static bool is_kept(const struct cep *self, uint64_t stamp)
{
	return stamp && stamp <= self->n_stamps &&
	       self->n_stamps - stamp < CEP_STAMPS;
}

int32_t cep_elapsed(void *ctx, uint64_t from, uint64_t to, int64_t *out_ns,
		    struct genai_error *err)
{
	struct cep *self = ctx;
	CUresult r = CUDA_SUCCESS;
	int32_t rc = 0;
	float ms = 0;

	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	if (!is_kept(self, from) || !is_kept(self, to))
		rc = cep_fail(
			self, err, GENAI_E_NOTFOUND, "stamp %llu is not kept",
			(unsigned long long)(is_kept(self, from) ? to : from));
	else
		r = CU(self,
		       cuEventElapsedTime)(&ms, self->stamps[from % CEP_STAMPS],
					   self->stamps[to % CEP_STAMPS]);
	pthread_mutex_unlock(&self->lock);
	if (r == CUDA_ERROR_NOT_READY)
		return GENAI_PENDING;
	if (r)
		return cep_cuda_fail(self, err, r, "cannot ask for a time");
	if (!rc)
		*out_ns = (int64_t)((double)ms * 1e6);
	return rc;
}

void cep_stamps_close(struct cep *self)
{
	for (uint32_t i = 0; self->stamps && i < CEP_STAMPS; i++)
		if (self->stamps[i])
			(void)self->drv.cuEventDestroy(self->stamps[i]);
	self->host->free(self->host->ctx, self->stamps);
}
