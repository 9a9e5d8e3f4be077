// use.c - a module at work in small.
#include "tests/conform/use.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BYTES UINT64_C(20000)
#define N_IDS 4

struct device_use {
	struct cf_rt r;
	struct genai_stream *s[3];
	struct genai_mem up, down, dev;
	struct genai_recording *rec;
	atomic_int units;
	int want_units;
	uint64_t seed;
};

struct use {
	const char *iface;
	struct device_use device;
	struct book book;
	struct genai_recording *rec; // of the book
	uint32_t n_begun;
	struct rig rig;
	struct rig_graph made;
	struct genai_graph *graph;
	uint32_t at; // in ids
};

// ---- a device and its barrier ----

static int32_t count(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)mem;
	(void)err;
	atomic_fetch_add((atomic_int *)ctx, 1);
	return 0;
}

// There, on to another place, and back, on three streams.
static void device_work(struct device_use *u)
{
	genai_addr dev = u->dev.range.addr;

	cf_copy(&u->r, u->s[0], dev, (uintptr_t)u->up.host, BYTES,
		GENAI_COPY_H2D);
	cf_wait(&u->r, u->s[1], cf_mark(&u->r, u->s[0]));
	cf_copy(&u->r, u->s[1], dev + BYTES, dev, BYTES, GENAI_COPY_D2D);
	cf_call(&u->r, u->s[1], "count", count, &u->units);
	cf_wait(&u->r, u->s[2], cf_mark(&u->r, u->s[1]));
	cf_copy(&u->r, u->s[2], (uintptr_t)u->down.host, dev + BYTES, BYTES,
		GENAI_COPY_D2H);
	cf_wait(&u->r, u->s[0], cf_mark(&u->r, u->s[2]));
}

static void device_open(struct device_use *u, const char *const *sets)
{
	cf_open(&u->r, 0, sets);
	for (int i = 0; i < 3; i++)
		u->s[i] = cf_stream(&u->r, "use");
	u->up = cf_pinned(&u->r, BYTES);
	u->down = cf_pinned(&u->r, BYTES);
	u->dev = cf_alloc(&u->r, 2 * BYTES);
	u->seed = cf_seed(11);
	if (!(u->r.caps.flags & GENAI_STREAM_CAP_RECORD))
		return;
	CF_OK(u->r.st->capture_begin(u->r.d, u->s[0], &cf_err));
	device_work(u);
	CF_OK(u->r.st->capture_end(u->r.d, u->s[0], &u->rec, &cf_err));
}

static void device_enqueue(struct device_use *u)
{
	device_work(u);
	if (u->rec)
		CF_OK(u->r.st->launch_graph(u->r.d, u->rec, u->s[0], &cf_err));
}

static void device_begin(struct device_use *u)
{
	cf_pattern(u->up.host, BYTES, cf_random(&u->seed));
	memset(u->down.host, 0, BYTES);
	if (u->rec && u->want_units % 2)
		CF_OK(u->r.st->launch_graph(u->r.d, u->rec, u->s[0], &cf_err));
	else
		device_work(u);
	u->want_units++;
}

static void device_end(struct device_use *u)
{
	cf_finish(&u->r, u->s[0]);
	ck_assert_msg(!memcmp(u->up.host, u->down.host, BYTES),
		      "other bytes came back than were sent");
	ck_assert_int_eq(u->units, u->want_units);
}

static void device_close(struct device_use *u)
{
	struct genai_ticket t = cf_drain(&u->r);

	if (u->rec)
		CF_OK(u->r.st->graph_destroy(u->r.d, u->rec, &t, &cf_err));
	cf_free(&u->r, &u->up);
	cf_free(&u->r, &u->down);
	cf_free(&u->r, &u->dev);
	for (int i = 0; i < 3; i++)
		cf_destroy(&u->r, u->s[i]);
	cf_close(&u->r);
}

// ---- a pager ----

static void pager_open(struct use *u, const char *const *sets)
{
	struct book *b = &u->book;

	book_make_even(b, 21, 90, 1);
	book_start(b, sets);
	// not the tap, which is one for all
	b->stream = b->r.d->stream;
	b->barrier = b->r.d->barrier;
	CF_OK(b->ops->open(genai_module_self(b->r.rt->pager.module), &b->stream,
			   &b->barrier, &b->p, &cf_err));
	book_add_all(b);
	CF_OK(book_seal(b, b->total * 9 / 10, &cf_err));
	CF_OK(book_step(b, 0, &cf_err));
	if (!b->stable || !(b->r.caps.flags & GENAI_STREAM_CAP_RECORD))
		return;
	CF_OK(b->ops->replay_begin(b->p, b->s, &cf_err));
	CF_OK(b->r.st->capture_begin(b->r.d, b->s, &cf_err));
	CF_OK(book_step(b, 1, &cf_err));
	CF_OK(b->r.st->capture_end(b->r.d, b->s, &u->rec, &cf_err));
}

static void pager_begin(struct use *u)
{
	struct book *b = &u->book;

	CF_OK(book_step(b, 0, &cf_err));
	if (!u->rec || u->n_begun++ % 2)
		return;
	CF_OK(b->ops->replay_begin(b->p, b->s, &cf_err));
	CF_OK(b->r.st->launch_graph(b->r.d, u->rec, b->s, &cf_err));
	book_replayed(b);
}

static void pager_close(struct use *u)
{
	struct book *b = &u->book;
	struct genai_ticket t = cf_drain(&b->r);

	if (u->rec)
		CF_OK(b->r.st->graph_destroy(b->r.d, u->rec, &t, &cf_err));
	book_close(b);
	book_free(b);
}

// ---- an executor ----

static const int64_t ids[N_IDS] = {7, 60, 7, 33};
static float want[N_IDS][LM_VOCAB];
static uint32_t n_wanted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of those two

static void exec_open(struct use *u, const char *const *sets)
{
	struct genai_view max;

	rig_open(&u->rig, sets);
	rig_need_lm(&u->rig);
	u->graph = rig_lm(&u->made);
	rig_lm_view(&max);
	rig_plan(&u->rig, u->graph, &max, 24);
}

static void exec_begin(struct use *u)
{
	rig_in(&u->rig, 0, &ids[u->at % N_IDS], 2, (int64_t[]){1, 1});
	rig_outs(&u->rig);
	rig_submit(&u->rig);
}

// Everybody has to get what the first one got.
static void exec_end(struct use *u)
{
	uint32_t k = u->at++ % N_IDS;
	float got[LM_VOCAB];

	rig_read(&u->rig, got, sizeof(got));
	pthread_mutex_lock(&lock);
	if (k == n_wanted) {
		memcpy(want[k], got, sizeof(got));
		n_wanted++;
	}
	pthread_mutex_unlock(&lock);
	ck_assert_msg(!memcmp(want[k], got, sizeof(got)),
		      "step %u gave other numbers", u->at - 1);
}

// ---- all ----

struct use *use_open(const char *const *sets)
{
	struct use *u = calloc(1, sizeof(*u));

	ck_assert_ptr_nonnull(u);
	u->iface = cf.at->test->iface;
	if (!strcmp(u->iface, GENAI_IFACE_PAGER))
		pager_open(u, sets);
	else if (!strcmp(u->iface, GENAI_IFACE_EXECUTOR))
		exec_open(u, sets);
	else
		device_open(&u->device, sets);
	return u;
}

void use_begin(struct use *u)
{
	if (!strcmp(u->iface, GENAI_IFACE_PAGER))
		pager_begin(u);
	else if (!strcmp(u->iface, GENAI_IFACE_EXECUTOR))
		exec_begin(u);
	else
		device_begin(&u->device);
}

void use_end(struct use *u)
{
	if (!strcmp(u->iface, GENAI_IFACE_PAGER)) {
		book_check(&u->book, "at work");
		book_forget(&u->book);
	} else if (!strcmp(u->iface, GENAI_IFACE_EXECUTOR)) {
		exec_end(u);
	} else {
		device_end(&u->device);
	}
}

void use_enqueue(struct use *u)
{
	if (!strcmp(u->iface, GENAI_IFACE_PAGER))
		pager_begin(u);
	else if (!strcmp(u->iface, GENAI_IFACE_EXECUTOR))
		rig_submit(&u->rig);
	else
		device_enqueue(&u->device);
}

void use_steps(struct use *u, int n)
{
	while (n--) {
		use_begin(u);
		use_end(u);
	}
}

struct cf_rt *use_rt(struct use *u)
{
	if (!strcmp(u->iface, GENAI_IFACE_PAGER))
		return &u->book.r;
	if (!strcmp(u->iface, GENAI_IFACE_EXECUTOR))
		return &u->rig.r;
	return &u->device.r;
}

struct genai_stream *use_stream(struct use *u)
{
	if (!strcmp(u->iface, GENAI_IFACE_PAGER))
		return u->book.s;
	if (!strcmp(u->iface, GENAI_IFACE_EXECUTOR))
		return u->rig.s;
	return u->device.s[0];
}

void use_close(struct use *u)
{
	if (!strcmp(u->iface, GENAI_IFACE_PAGER)) {
		pager_close(u);
	} else if (!strcmp(u->iface, GENAI_IFACE_EXECUTOR)) {
		rig_close(&u->rig);
		rig_graph_free(&u->made, u->graph);
	} else {
		device_close(&u->device);
	}
	free(u);
}
