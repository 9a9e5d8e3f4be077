// engine.c - in the place of the engine: requests are answered at once, with
// pieces of text that readers of answers stumble over.
#include "tests/fuzz/fuzz.h"

#include <genai/engine.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

#define MOST 8 // requests

static const char *const pieces[] = {
	"a",
	" b",
	"<tool_call>",
	"{\"name\": \"f\", ",
	"\"arguments\": {\"a\": 1}}",
	"</tool_call>",
	"<think>",
	"</think>",
	"\n",
	"\xc3\xa4",
	"\"\\\x01",
	"{}",
	"[",
	"",
};
#define N_PIECES (sizeof(pieces) / sizeof(pieces[0]))

static struct live {
	struct genai_request r;
	uint64_t id;
	uint32_t choice, tokens; // next: of this choice, after so many
	bool is_cancelled;
} live[MOST];
static uint32_t n_live;
static uint64_t last_id, seed;
static const struct genai_top tops[20];

void fuzz_engine_seed(uint64_t s)
{
	seed = s;
}

uint32_t fuzz_engine_live(void)
{
	return n_live;
}

int32_t genai_engine_submit(struct genai_engine *engine,
			    const struct genai_request *r, uint64_t *out_id,
			    struct genai_error *err)
{
	(void)engine;
	if (n_live == MOST || !fuzz_draw(&seed, 16))
		return genai_fail(err, GENAI_E_BUSY, "it is full");
	if (!fuzz_draw(&seed, 32))
		return genai_fail(err, GENAI_E_INVAL, "it is not liked");
	live[n_live++] = (struct live){.r = *r, .id = ++last_id};
	*out_id = last_id;
	return 0;
}

int32_t genai_engine_cancel(struct genai_engine *engine, uint64_t id,
			    struct genai_error *err)
{
	(void)engine;
	(void)err;
	for (uint32_t i = 0; i < n_live; i++)
		live[i].is_cancelled |= live[i].id == id;
	return 0;
}

static void token(struct live *l, struct genai_event *ev)
{
	ev->kind = GENAI_EVENT_TOKEN;
	ev->id = (int64_t)fuzz_draw(&seed, 100);
	ev->text = pieces[fuzz_draw(&seed, N_PIECES)];
	ev->text_bytes = strlen(ev->text);
	if (l->r.flags & GENAI_REQUEST_LOGPROBS) {
		ev->logprob = fuzz_draw(&seed, 4) ? -1.5F : -__builtin_inff();
		ev->top = tops;
		ev->n_top = l->r.n_top;
	}
	l->tokens++;
}

static void done(struct live *l, struct genai_event *ev)
{
	ev->kind = GENAI_EVENT_DONE;
	ev->id = -1;
	ev->text = "";
	ev->finish = l->is_cancelled ? GENAI_FINISH_CANCELLED
				     : 1 + (uint32_t)fuzz_draw(&seed, 6);
	if (ev->finish == GENAI_FINISH_ERROR) {
		ev->error = "the device \xff failed";
		ev->code = GENAI_E_DEVICE;
	}
	ev->n_prompt = l->r.n_ids;
	ev->n_new = l->tokens;
	ev->last = ++l->choice == l->r.n;
	l->tokens = 0;
	if (ev->last)
		*l = live[--n_live];
}

int32_t genai_engine_next(struct genai_engine *engine, int32_t timeout_ms,
			  struct genai_event *ev, struct genai_error *err)
{
	struct live *l;

	(void)engine;
	(void)timeout_ms;
	(void)err;
	if (!n_live)
		return GENAI_PENDING;
	l = &live[fuzz_draw(&seed, n_live)];
	*ev = (struct genai_event){.size = sizeof(*ev),
				   .request = l->id,
				   .user = l->r.user,
				   .choice = l->choice};
	if (!l->is_cancelled && l->tokens < 5 && fuzz_draw(&seed, 4))
		token(l, ev);
	else
		done(l, ev);
	return 0;
}

int32_t genai_engine_get_stats(struct genai_engine *engine,
			       struct genai_engine_stats *out)
{
	(void)engine;
	*out = (struct genai_engine_stats){.size = sizeof(*out), .healthy = 1};
	return 0;
}

int32_t genai_engine_get_info(const struct genai_engine *engine,
			      struct genai_engine_info *out)
{
	(void)engine;
	*out = (struct genai_engine_info){.size = sizeof(*out)};
	return 0;
}

int32_t genai_engine_get_model_stats(struct genai_engine *engine,
				     struct genai_stats *out,
				     struct genai_error *err)
{
	(void)engine;
	(void)err;
	*out = (struct genai_stats){.size = sizeof(*out)};
	return 0;
}
