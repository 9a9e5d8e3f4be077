/* session.h - one sequence, for the files that run it, each on those below:
 * session.c          its life and its tokens
 * session_recover.c  after an error of the device
 * session_state.c    taking it back
 * session_io.c       what goes to the device and comes back */
#ifndef GENAI_CORE_MODEL_SESSION_H
#define GENAI_CORE_MODEL_SESSION_H

#include "core/model/model.h"

#ifndef SLOTS /* another number only to show that it matters: check_doors.c */
#define SLOTS 4
#endif

#define SESSION_WORD_BYTES 256 /* device memory of the past, of the token */

struct door { /* pinned host memory of one step */
	int64_t id;
	uint32_t best;	/* the logit's bits, in its own type */
	int32_t length; /* staging for genai.past */
};

struct genai_session {
	struct genai_user user; /* of the runtime; first */
	struct genai_model *m;
	struct genai_session *next;
	struct genai_plan *plan;
	struct genai_mem ids, past, numbers, token; /* device */
	struct genai_mem logits, states;		    /* device */
	struct genai_mem doors, stage, host_logits;	    /* pinned host */
	struct genai_point door_at[SLOTS];
	struct genai_point stage_at[2];
	uint32_t stage_turn;
	bool numbered;	   /* numbers: 0 .. chunk - 1; rows of tables */
	uint32_t place;	   /* of the states that are joined: 0 or 1 */
	uint64_t length;   /* positions of all steps enqueued */
	uint64_t computed; /* steps enqueued */
	uint64_t handed;   /* steps whose token was given out, or is void */
	uint64_t rows;	   /* rows of logits of the last step; 0: void */
	bool lost;	   /* its last step was skipped: another failed */
	bool broken;	   /* its recovery failed: void until one does not */
	bool turned;	   /* the tables are those of a long sequence */
	bool stale;	   /* what is cached was computed in part with others,
			    * or by a step that failed */
	/* With states that are replaced or joined, or tables that change
	 * (session_state.c): the tokens so far, and how many of them the copy
	 * of the states has seen. */
	int64_t *known;
	uint64_t kept; /* or SESSION_NOT_KEPT */
};
#define SESSION_NOT_KEPT UINT64_MAX

static inline const struct genai_stream_ops *
session_ops(const struct genai_session *s)
{
	return s->m->rt->device.stream.ops;
}

static inline void *session_self(const struct genai_session *s)
{
	return s->m->rt->device.stream.self;
}

static inline struct door *session_door(const struct genai_session *s,
					uint64_t step)
{
	return (struct door *)s->doors.host + step % SLOTS;
}

static inline int32_t session_host_read(struct genai_session *s,
					const struct genai_point *p,
					struct genai_error *err)
{
	struct genai_barrier_api *b = &s->m->rt->device.barrier;

	return b->ops->host_read(b->self, p, 1, UINT64_MAX, err);
}

static inline uint64_t session_logit_bytes(const struct genai_model *m)
{
	return m->step.logits_dtype == GENAI_DT_F32 ? 4 : 2;
}

/* ---- session_io.c ---- */

/* Bind states, lengths and the token, which are the same in every step. */
int32_t session_bind(struct genai_session *s, struct genai_error *err);
/* Bind what is joined: length positions, and n more. */
int32_t session_bind_joined(struct genai_session *s, uint64_t n,
			    struct genai_error *err);
/* The length on the device, and here; what was computed is void. */
int32_t session_set_past(struct genai_session *s, uint64_t length,
			 struct genai_error *err);
/* Steps from here on have the tables of a sequence of that length; told to the
 * device. */
int32_t session_set_turn(struct genai_session *s, uint64_t length,
			 struct genai_error *err);
/* Enqueue the step for the n ids in the device buffer. */
int32_t session_submit(struct genai_session *s, uint64_t n,
		       struct genai_error *err);
/* Compute n tokens more, at most a chunk: they are enqueued. */
int32_t session_append_chunk(struct genai_session *s, const int64_t *ids,
			     uint64_t n, struct genai_error *err);
/* Positions that are certain: those whose token was read. */
uint64_t session_certain(const struct genai_session *s);
struct genai_point *session_last_door(struct genai_session *s);
/* Wait for the oldest token not handed out.  GENAI_E_DEVICE if it is NaN. */
int32_t session_read_token(struct genai_session *s, int64_t *out_id,
			   struct genai_error *err);
/* Element i at p, as a float. */
float session_widen(uint32_t dtype, const void *p, uint64_t i);

/* ---- session_state.c ---- */

/* Tokens will be appended: keep what the states are now. */
int32_t session_keep(struct genai_session *s, const int64_t *ids, size_t count,
		     struct genai_error *err);
/* Would the tables change with that length? */
bool session_turns(const struct genai_session *s, uint64_t length);
/* There will be so many positions: if the tables change, compute again what was
 * computed with the others.  The last step's token is void then. */
int32_t session_turn(struct genai_session *s, uint64_t length,
		     struct genai_error *err);
/* A token was chosen, and will be the next one. */
void session_note(struct genai_session *s, int64_t id);
/* Be where the sequence was after length positions; what was computed is void.
 * Waits for the device. */
int32_t session_go_back(struct genai_session *s, uint64_t length,
			struct genai_error *err);

/* ---- session_recover.c ---- */

/* It is there for recoveries, whoever begins one. */
void session_enter(struct genai_session *s);
/* After a failure: the device quiet and clear, the sequence back at length; or
 * broken, and of length 0. */
void session_recover(struct genai_session *s, uint64_t length);
/* Before it closes: no failure that nobody saw may stay for the next one. */
void session_leave(struct genai_session *s);
/* Before anything is enqueued: try again what could not be recovered from, by
 * whichever session. */
int32_t session_mend(struct genai_session *s, struct genai_error *err);

#endif
