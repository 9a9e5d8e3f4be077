// record.c - recordings: operations kept instead of queued, and queued again.
#include "modules/cpu_ref/cpu_ref.h"

#include <string.h>

int32_t cref_record_room(struct genai_recording *rec, struct genai_error *err)
{
	struct cref_device *dev = rec->dev;
	uint64_t cap = rec->cap ? 2 * rec->cap : 256;
	void *p = dev->host->realloc(dev->host->ctx, rec->ops,
				     cap * sizeof(*rec->ops), "recording");

	if (!p)
		return CREF_FAIL(dev, err, GENAI_E_NOMEM,
				 "no memory for %llu recorded operations",
				 (unsigned long long)cap);
	rec->ops = p;
	rec->cap = cap;
	return 0;
}

// Remember that a recording names the region.
int32_t cref_record_region(struct genai_recording *rec, genai_addr addr,
			   struct genai_error *err)
{
	struct cref_device *dev = rec->dev;
	uint32_t lo = 0, hi = rec->n_regions;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (rec->regions[mid] < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < rec->n_regions && rec->regions[lo] == addr)
		return 0;
	if (rec->n_regions == rec->cap_regions) {
		uint32_t cap = rec->cap_regions ? 2 * rec->cap_regions : 64;
		void *p = dev->host->realloc(dev->host->ctx, rec->regions,
					     cap * sizeof(*rec->regions),
					     "recording");
		if (!p)
			return CREF_FAIL(dev, err, GENAI_E_NOMEM,
					 "no memory for a recording");
		rec->regions = p;
		rec->cap_regions = cap;
	}
	memmove(&rec->regions[lo + 1], &rec->regions[lo],
		(rec->n_regions - lo) * sizeof(*rec->regions));
	rec->regions[lo] = addr;
	rec->n_regions++;
	return 0;
}

// What a stream was ordered after when it had upto operations; NULL: nothing.
static const struct cref_join *known_at(const struct genai_recording *rec,
					const struct genai_stream *s,
					uint64_t upto)
{
	for (uint64_t i = rec->n_joins; i; i--)
		if (rec->joins[i - 1].stream == s->id &&
		    rec->joins[i - 1].at <= upto)
			return &rec->joins[i - 1];
	return NULL;
}

static uint64_t known_of(const struct genai_recording *rec,
			 const struct genai_stream *s, uint32_t other)
{
	const struct cref_join *k = known_at(rec, s, UINT64_MAX);

	return k ? k->known[other] : 0;
}

static int32_t join_room(struct genai_recording *rec, struct genai_error *err)
{
	struct cref_device *dev = rec->dev;
	uint64_t cap = rec->cap_joins ? 2 * rec->cap_joins : 64;
	void *p;

	if (rec->n_joins < rec->cap_joins)
		return 0;
	p = dev->host->realloc(dev->host->ctx, rec->joins,
			       cap * sizeof(*rec->joins), "recording");
	if (!p)
		return CREF_FAIL(dev, err, GENAI_E_NOMEM,
				 "no memory for a recording");
	rec->joins = p;
	rec->cap_joins = cap;
	return 0;
}

// The stream is now ordered after the first upto operations of another and what
// that one was ordered after then: not what it is ordered after by now.
static void add_join(struct genai_recording *rec, const struct genai_stream *s,
		     const struct genai_stream *from, uint64_t upto)
{
	const struct cref_join *mine = known_at(rec, s, UINT64_MAX);
	const struct cref_join *theirs = known_at(rec, from, upto);
	struct cref_join j = {.stream = s->id, .at = rec->count[s->id]};

	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++) {
		uint64_t a = mine ? mine->known[i] : 0;
		uint64_t b = theirs ? theirs->known[i] : 0;

		j.known[i] = a > b ? a : b;
	}
	if (j.known[from->id] < upto)
		j.known[from->id] = upto;
	rec->joins[rec->n_joins++] = j;
}

int32_t cref_record_wait(struct genai_stream *s, struct genai_point p,
			 struct genai_error *err)
{
	struct genai_stream *from = p.stream;
	struct genai_recording *rec = from->rec;
	uint64_t upto = CREF_RECORDED_COUNT(p.value);
	struct cref_queued *op;
	int32_t rc;

	if (!rec || p.value != CREF_RECORDED(rec->serial, upto))
		return CREF_FAIL(s->dev, err, GENAI_E_STATE,
				 "a point of stream '%s' made while recording "
				 "is used outside the recording",
				 from->name);
	if (s->rec && s->rec != rec)
		return CREF_FAIL(s->dev, err, GENAI_E_STATE,
				 "stream '%s' is part of another recording",
				 s->name);
	if (s == from)
		return 0;
	if (s->rec && known_of(rec, s, from->id) >= upto)
		return 0;
	rc = join_room(rec, err);
	if (rc)
		rec->spoilt = rc;
	if (rc)
		return rc;
	// even a join that waits for nothing orders after the start
	s->rec = rec;
	rec->joined[s->id] = true;
	rc = cref_op_next(s, &op, err);
	if (rc)
		return rc;
	op->kind = CREF_WAIT;
	op->point = p;
	cref_op_commit(s, op);
	add_join(rec, s, from, upto);
	return 0;
}

static void free_recording(struct genai_recording *rec)
{
	const struct genai_host *host = rec->dev->host;

	host->free(host->ctx, rec->ops);
	host->free(host->ctx, rec->joins);
	host->free(host->ctx, rec->regions);
	host->free(host->ctx, rec);
}

// A live recording keeps the memory and the streams that it names.
static void name_all(struct genai_recording *rec, uint32_t by)
{
	struct cref_device *dev = rec->dev;

	for (uint32_t i = 0; i < rec->n_regions; i++)
		cref_region_find(dev, rec->regions[i], 1)->recordings += by;
	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (rec->joined[i])
			dev->streams[i]->recordings += by;
}

static void leave_recording(struct genai_recording *rec)
{
	struct cref_device *dev = rec->dev;

	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (dev->streams[i] && dev->streams[i]->rec == rec)
			dev->streams[i]->rec = NULL;
	dev->n_recording--;
}

int32_t cref_capture_begin(void *self, struct genai_stream *s,
			   struct genai_error *err)
{
	struct cref_device *dev = self;
	struct genai_recording *rec;
	int32_t rc = 0;

	pthread_mutex_lock(&dev->lock);
	if (s->rec)
		rc = CREF_FAIL(dev, err, GENAI_E_STATE,
			       "stream '%s' is being recorded already",
			       s->name);
	else if (s->poisoned) {
		// what went wrong before is what the caller has to know
		rc = s->error.code;
		if (err)
			*err = s->error;
	}
	if (!rc) {
		rec = dev->host->alloc(dev->host->ctx, sizeof(*rec),
				       "recording");
		if (!rec)
			rc = CREF_FAIL(dev, err, GENAI_E_NOMEM,
				       "no memory for a recording");
	}
	if (!rc) {
		memset(rec, 0, sizeof(*rec));
		rec->dev = dev;
		rec->origin = s;
		rec->serial = dev->serial++ % CREF_SERIALS;
		rec->joined[s->id] = true;
		s->rec = rec;
		dev->n_recording++;
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

static int32_t not_joined(struct genai_recording *rec, struct genai_error *err)
{
	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (i != rec->origin->id && rec->joined[i] &&
		    known_of(rec, rec->origin, i) < rec->count[i])
			return CREF_FAIL(rec->dev, err, GENAI_E_STATE,
					 "stream '%s' was not joined back into "
					 "the recording of '%s'",
					 rec->dev->streams[i]->name,
					 rec->origin->name);
	return 0;
}

int32_t cref_capture_end(void *self, struct genai_stream *s,
			 struct genai_recording **out_recording,
			 struct genai_error *err)
{
	struct cref_device *dev = self;
	struct genai_recording *rec;
	int32_t rc = 0;

	pthread_mutex_lock(&dev->lock);
	rec = s->rec;
	if (!rec || rec->origin != s) {
		pthread_mutex_unlock(&dev->lock);
		return CREF_FAIL(dev, err, GENAI_E_STATE,
				 "no recording was begun on stream '%s'",
				 s->name);
	}
	rc = rec->spoilt;
	if (rc)
		CREF_FAIL(dev, err, rc,
			  "the recording of '%s' was spoilt by an earlier "
			  "error",
			  s->name);
	else
		rc = not_joined(rec, err);
	leave_recording(rec);
	if (rc) {
		free_recording(rec);
	} else {
		name_all(rec, 1);
		*out_recording = rec;
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

int32_t cref_capture_abort(void *self, struct genai_stream *s,
			   struct genai_error *err)
{
	struct cref_device *dev = self;
	struct genai_recording *rec;

	pthread_mutex_lock(&dev->lock);
	rec = s->rec;
	if (rec) {
		leave_recording(rec);
		free_recording(rec);
	}
	pthread_mutex_unlock(&dev->lock);
	return rec ? 0
		   : CREF_FAIL(dev, err, GENAI_E_STATE,
			       "stream '%s' is not being recorded", s->name);
}

// Enqueue the recorded operations on their streams, points made absolute.
static int32_t expand(struct genai_recording *rec, struct genai_stream *origin,
		      struct genai_error *err)
{
	uint64_t base[CREF_MAX_STREAMS] = {0};
	struct cref_device *dev = rec->dev;
	struct cref_queued *op;
	int32_t rc = 0;

	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (rec->joined[i])
			base[i] = dev->streams[i]->tail;
	for (uint64_t i = 0; !rc && i < rec->n_ops; i++) {
		const struct cref_queued *r = &rec->ops[i];

		rc = cref_op_next(r->on, &op, err);
		if (rc)
			break;
		*op = *r;
		if (r->kind == CREF_WAIT)
			op->point.value = base[r->point.stream->id] +
					  CREF_RECORDED_COUNT(r->point.value);
		cref_op_commit(r->on, op);
	}
	for (uint32_t i = 0; !rc && i < CREF_MAX_STREAMS; i++)
		if (rec->joined[i])
			origin->known[i] = dev->streams[i]->tail;
	return rc;
}

static bool one_stream(const struct genai_recording *rec)
{
	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (rec->joined[i] && i != rec->origin->id)
			return false;
	return true;
}

static bool in_recording(const struct genai_recording *rec)
{
	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++)
		if (rec->joined[i] && rec->dev->streams[i]->rec)
			return true;
	return false;
}

int32_t cref_launch_graph(void *self, struct genai_recording *rec,
			  struct genai_stream *s, struct genai_error *err)
{
	struct cref_device *dev = self;
	struct cref_queued *op;
	int32_t rc = 0;

	pthread_mutex_lock(&dev->lock);
	if (s->rec)
		rc = CREF_FAIL(dev, err, GENAI_E_STATE,
			       "a recording cannot be launched into one");
	else if (rec->origin != s)
		rc = CREF_FAIL(dev, err, GENAI_E_INVAL,
			       "a recording is launched on the stream it was "
			       "made on");
	else if (in_recording(rec))
		rc = CREF_FAIL(dev, err, GENAI_E_STATE,
			       "a stream of the recording is being recorded");
	else if (!one_stream(rec))
		rc = expand(rec, s, err);
	else
		rc = cref_op_next(s, &op, err);
	if (!rc && one_stream(rec)) {
		op->kind = CREF_GRAPH;
		op->graph = rec;
		op->name = "graph";
		rec->queued++;
		cref_op_commit(s, op);
	}
	if (!rc)
		dev->stats.graph_launches++;
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

// ---- what was kept ----

struct edges {
	struct genai_edge *out;
	uint64_t cap, n;
};

static void add_edge(struct edges *e, uint64_t before, uint64_t after)
{
	if (e->n < e->cap)
		e->out[e->n] = (struct genai_edge){before, after};
	e->n++;
}

// Operations are numbered as the caller does, waits after them.  at: the number
// of each, by stream and place on it.
static void number_ops(const struct genai_recording *rec, uint64_t *at,
		       const uint64_t *first)
{
	uint64_t placed[CREF_MAX_STREAMS] = {0}, units = 0, waits = 0;

	for (uint64_t i = 0; i < rec->n_ops; i++)
		units += rec->ops[i].kind != CREF_WAIT;
	waits = units;
	units = 0;
	for (uint64_t i = 0; i < rec->n_ops; i++) {
		const struct cref_queued *op = &rec->ops[i];
		uint32_t s = op->on->id;

		at[first[s] + placed[s]++] =
			op->kind == CREF_WAIT ? ++waits : ++units;
	}
}

static void list_edges(const struct genai_recording *rec, struct edges *e,
		       const uint64_t *at, const uint64_t *first)
{
	uint64_t placed[CREF_MAX_STREAMS] = {0}, last;
	uint32_t o = rec->origin->id;

	for (uint64_t i = 0; i < rec->n_ops; i++) {
		const struct cref_queued *op = &rec->ops[i];
		uint32_t s = op->on->id, from;
		uint64_t me = at[first[s] + placed[s]], upto;

		if (placed[s])
			add_edge(e, at[first[s] + placed[s] - 1], me);
		else if (s == o)
			add_edge(e, GENAI_EDGE_START, me);
		placed[s]++;
		if (op->kind != CREF_WAIT)
			continue;
		from = op->point.stream->id;
		upto = CREF_RECORDED_COUNT(op->point.value);
		if (upto)
			add_edge(e, at[first[from] + upto - 1], me);
		else if (from == o)
			add_edge(e, GENAI_EDGE_START, me);
	}
	last = rec->count[o] ? at[first[o] + rec->count[o] - 1]
			     : GENAI_EDGE_START;
	add_edge(e, last, GENAI_EDGE_END);
}

int32_t cref_graph_edges(void *self, struct genai_recording *rec,
			 struct genai_edge *out_edges, uint64_t cap,
			 uint64_t *out_n, struct genai_error *err)
{
	struct cref_device *dev = self;
	struct edges e = {out_edges, cap, 0};
	uint64_t first[CREF_MAX_STREAMS] = {0}, *at;

	at = dev->host->alloc(dev->host->ctx, rec->n_ops * sizeof(*at),
			      "recording");
	if (!at)
		return CREF_FAIL(dev, err, GENAI_E_NOMEM,
				 "no memory for the edges of a recording");
	for (uint32_t i = 1; i < CREF_MAX_STREAMS; i++)
		first[i] = first[i - 1] + rec->count[i - 1];
	number_ops(rec, at, first);
	list_edges(rec, &e, at, first);
	dev->host->free(dev->host->ctx, at);
	*out_n = e.n;
	return 0;
}

int32_t cref_graph_destroy(void *self, struct genai_recording *rec,
			   const struct genai_ticket *ticket,
			   struct genai_error *err)
{
	struct cref_device *dev = self;
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	int32_t rc = dev->host->ticket_check(dev->host->ctx, ticket, all, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&dev->lock);
	if (rec->queued)
		rc = CREF_FAIL(dev, err, GENAI_E_BUSY,
			       "the recording is still queued");
	else
		name_all(rec, UINT32_MAX);
	pthread_mutex_unlock(&dev->lock);
	if (!rc)
		free_recording(rec);
	return rc;
}
