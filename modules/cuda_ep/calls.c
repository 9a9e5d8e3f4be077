// calls.c - host functions in streams, and those that a thread of the host
// ends.
//
// The latter are two things in the stream: the function, and behind it a wait
// for a word of pinned memory.  Whoever ends the unit writes the word: the
// function, if it returned 0 or an error or was skipped, else the signal.
#include <stdio.h>

#include "modules/cuda_ep/cep.h"

static void set_word(struct cep *self, const struct cep_slot *s, uint32_t v)
{
	__atomic_store_n(&self->words[s - self->slots], v, __ATOMIC_RELEASE);
}

// A unit failed: recorded ones take the device with them, for nobody knows
// which replay it was; the others their stream.
static void call_failed(struct cep_call *c, int32_t code,
			struct genai_error *err)
{
	struct cep *self = c->self;
	struct cep_failure *f = &self->failed[c->stream];
	char text[sizeof(err->text)];

	err->node = c->work.node;
	memcpy(text, err->text, sizeof(text));
	if (c->work.name && !strstr(text, c->work.name))
		snprintf(err->text, sizeof(err->text), "%s: %.400s",
			 c->work.name, text);
	if (c->recording) {
		cep_poison_set(self, code, err);
		return;
	}
	pthread_mutex_lock(&self->call_lock);
	if (!f->code) {
		f->err = *err;
		f->value = c->value;
		f->code = code;
	}
	pthread_mutex_unlock(&self->call_lock);
}

// Whoever waits for the unit goes on; then it may be freed.
static void finish(struct cep_call *c)
{
	struct cep *self = c->self;

	pthread_mutex_lock(&self->call_lock);
	if (c->slot) {
		c->slot->state = CEP_QUEUED;
		set_word(self, c->slot, c->slot->turn);
	}
	c->done = true;
	pthread_mutex_unlock(&self->call_lock);
}

// Is it run, or does it lie behind something that failed?
static bool begins(struct cep_call *c)
{
	struct cep *self = c->self;
	bool skip = ((volatile struct cep_fault *)self->fault)->set;

	pthread_mutex_lock(&self->call_lock);
	skip = skip || self->poison ||
	       cep_failure_before(self, c->stream, c->value, c->clock);
	if (c->slot) {
		c->slot->state = skip ? CEP_QUEUED : CEP_BEGINS;
		set_word(self, c->slot, c->slot->turn - 1);
	}
	pthread_mutex_unlock(&self->call_lock);
	return !skip;
}

// Its function has left it open: is it for a signal to finish?
static bool left_open(struct cep_call *c)
{
	enum cep_slot_state *state = &c->slot->state;
	bool left;

	pthread_mutex_lock(&c->self->call_lock);
	left = *state != CEP_ENDED;
	if (*state == CEP_BEGINS)
		*state = CEP_OPEN;
	else if (*state == CEP_TOLD)
		*state = CEP_LEFT;
	pthread_mutex_unlock(&c->self->call_lock);
	return left;
}

static void CUDA_CB run_call(void *data)
{
	struct cep_call *c = data;
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc = 0;

	if (begins(c))
		rc = c->work.fn(c->work.ctx, c->mem, &err);
	if (c->slot && rc == GENAI_PENDING && left_open(c))
		return;
	if (rc < 0)
		call_failed(c, rc, &err);
	finish(c);
}

int32_t cep_signal(void *ctx, const void *unit, const struct genai_error *why,
		   struct genai_error *err)
{
	struct cep *self = ctx;
	struct cep_slot *s = NULL;
	struct cep_call *c = NULL;
	struct genai_error copy;
	bool ours = false;

	pthread_mutex_lock(&self->call_lock);
	for (uint32_t i = 0; !c && i < CEP_SLOTS; i++) {
		s = &self->slots[i];
		if (s->call && s->call->work.ctx == unit &&
		    (s->state == CEP_BEGINS || s->state == CEP_OPEN))
			c = s->call;
	}
	if (c) {
		ours = s->state == CEP_OPEN;
		s->state = CEP_TOLD;
	}
	pthread_mutex_unlock(&self->call_lock);
	if (!c)
		return cep_fail(self, err, GENAI_E_STATE,
				"signal: no unit of this ctx is open");
	if (why) {
		copy = *why;
		call_failed(c, why->code, &copy);
	}
	// if its function is still inside, that finishes it
	pthread_mutex_lock(&self->call_lock);
	ours = ours || s->state == CEP_LEFT;
	if (!ours)
		s->state = CEP_ENDED;
	pthread_mutex_unlock(&self->call_lock);
	if (ours)
		finish(c);
	return 0;
}

// ---- life ----

void cep_call_free(struct cep_call *c)
{
	if (c->slot) {
		c->slot->state = CEP_FREE;
		c->slot->call = NULL;
	}
	c->self->host->free(c->self->host->ctx, c);
}

void cep_calls_free(struct cep *self, bool all)
{
	struct cep_call **at = &self->calls, *c;

	pthread_mutex_lock(&self->call_lock);
	while ((c = *at)) {
		if (!c->done && !all) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		cep_call_free(c);
	}
	pthread_mutex_unlock(&self->call_lock);
}

static int32_t take_slot(struct cep_call *c, struct genai_error *err)
{
	struct cep *self = c->self;
	struct cep_slot *s = self->slots;

	pthread_mutex_lock(&self->call_lock);
	while (s < self->slots + CEP_SLOTS && s->state != CEP_FREE)
		s++;
	if (s < self->slots + CEP_SLOTS) {
		s->state = CEP_QUEUED;
		s->turn = self->words[s - self->slots] + 1;
		s->call = c;
		c->slot = s;
	}
	pthread_mutex_unlock(&self->call_lock);
	return c->slot ? 0
		       : cep_fail(self, err, GENAI_E_LIMIT,
				  "%s: %u units that are signalled are "
				  "enqueued or recorded",
				  c->work.name ? c->work.name : "unit",
				  CEP_SLOTS);
}

static int32_t call_new(struct cep *self, const struct genai_work *work,
			const struct genai_access *a, uint32_t n,
			struct cep_call **out_c, struct genai_error *err)
{
	struct cep_call *c = self->host->alloc(
		self->host->ctx, sizeof(*c) + n * sizeof(void *), "host unit");

	if (!c)
		return cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
	memset(c, 0, sizeof(*c) + n * sizeof(void *));
	c->self = self;
	c->work = *work;
	c->n_mem = n;
	for (uint32_t i = 0; i < n; i++) {
		struct cep_block *b;

		if (!a[i].bytes)
			continue;
		b = cep_block_find(self, a[i].addr, a[i].bytes);
		if (!b || !b->host) {
			self->host->free(self->host->ctx, c);
			return cep_fail(self, err, GENAI_E_INVAL,
					"%s: the host cannot reach 0x%llx",
					work->name ? work->name : "unit",
					(unsigned long long)a[i].addr);
		}
		c->mem[i] = b->host + (a[i].addr - b->addr);
	}
	*out_c = c;
	return 0;
}

// The stream stands until the word says that the unit is done.
static CUresult wait_word(struct genai_stream *s, const struct cep_call *c)
{
	struct cep *self = s->self;
	uint64_t at = (uint64_t)(c->slot - self->slots) * sizeof(uint32_t);

	return CU(self, cuStreamWaitValue32)(s->h, self->words_addr + at,
					     c->slot->turn,
					     CU_STREAM_WAIT_VALUE_GEQ);
}

// In a list before the driver has it: it may have run when that returns.
static void keep(struct genai_stream *s, struct cep_call *c)
{
	struct cep *self = s->self;

	c->stream = s->id;
	c->value = s->line.enqueued + 1;
	memcpy(c->clock, s->line.clock, sizeof(c->clock));
	if (s->recording) {
		c->recording = self->recording;
		c->next = self->recording->calls;
		self->recording->calls = c;
		return;
	}
	pthread_mutex_lock(&self->call_lock);
	c->next = self->calls;
	self->calls = c;
	pthread_mutex_unlock(&self->call_lock);
}

static int32_t enqueue(struct genai_stream *s, struct cep_call *c,
		       struct genai_error *err)
{
	struct cep *self = s->self;
	CUresult r;

	keep(s, c);
	r = CU(self, cuLaunchHostFunc)(s->h, run_call, c);
	if (r) {
		// nobody will run it
		pthread_mutex_lock(&self->call_lock);
		c->done = !c->recording;
		pthread_mutex_unlock(&self->call_lock);
	} else if (c->slot) {
		r = wait_word(s, c);
	}
	if (r)
		return cep_cuda_fail(self, err, r,
				     "stream %s: cannot enqueue %s", s->name,
				     c->work.name ? c->work.name : "unit");
	cep_stats_of(s)->launches++;
	return cep_count(s, true, err);
}

static int32_t launch(struct cep *self, struct genai_stream *s,
		      const struct genai_work *work,
		      const struct genai_access *accesses, uint32_t n_accesses,
		      bool may_stay, struct genai_error *err)
{
	struct cep_call *c = NULL;
	int32_t rc;

	if (!work->fn)
		return cep_fail(self, err, GENAI_E_INVAL,
				"host unit without a function");
	cep_enter(self);
	cep_calls_free(self, false);
	pthread_mutex_lock(&self->lock);
	rc = cep_touch_all(self, accesses, n_accesses, err);
	if (!rc)
		rc = call_new(self, work, accesses, n_accesses, &c, err);
	if (!rc && may_stay) {
		rc = take_slot(c, err);
		if (rc)
			cep_call_free(c);
	}
	if (!rc)
		rc = enqueue(s, c, err);
	if (rc && s->recording)
		self->spoilt = true;
	pthread_mutex_unlock(&self->lock);
	return rc;
}

int32_t cep_launch_host(void *ctx, struct genai_stream *s,
			const struct genai_work *work,
			const struct genai_access *accesses,
			uint32_t n_accesses, struct genai_error *err)
{
	return launch(ctx, s, work, accesses, n_accesses, false, err);
}

int32_t cep_launch_open(void *ctx, struct genai_stream *s,
			const struct genai_work *work,
			const struct genai_access *accesses,
			uint32_t n_accesses, struct genai_error *err)
{
	return launch(ctx, s, work, accesses, n_accesses, true, err);
}
