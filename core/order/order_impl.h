/* order_impl.h - what the parts of the happens-before check share.
 * order.c         the tables, streams, points
 * order_memory.c  memory that comes and goes
 * order_record.c  recordings
 * order_kept.c    does a recording keep what its waits asked for?
 * order_map.c     who touched which bytes last */
#ifndef GENAI_CORE_ORDER_ORDER_IMPL_H
#define GENAI_CORE_ORDER_ORDER_IMPL_H

#include <pthread.h>

#include "core/order/order.h"
#include "core/order/order_map.h"

struct order_mark {
	uint64_t value; /* of the point */
	struct genai_clock clock;
};

struct order_stream {
	struct order_stream *next;
	struct genai_stream *raw;
	const char *name;
	uint32_t line;
	struct genai_clock clock;
	struct order_mark *marks; /* by value */
	uint32_t n_marks, cap_marks;
	struct order_recording *rec; /* open recording it is part of */
	uint32_t branch;
};

/* Memory of the device: copies name a pinned or registered block by its host
 * address, messages by tag and number, which are the same in every run. */
struct order_block {
	uint64_t host, bytes, addr;
	const char *tag;
	uint32_t number;
};

enum order_kind { ORDER_UNIT, ORDER_MARK, ORDER_WAIT };

struct order_op {
	enum order_kind kind;
	uint32_t branch;
	uint32_t node;
	uint32_t mark;	   /* MARK, WAIT */
	uint32_t first, n; /* UNIT: accesses */
	const char *what;
};

struct order_branch {
	const char *name;
	uint32_t line;
	struct genai_clock clock; /* while being replayed */
};

struct order_point {
	struct genai_stream *stream;
	uint64_t value;
};

struct order_recording {
	struct order_recording *next;
	struct genai_recording *raw;
	struct order_op *ops;
	struct genai_access *acc;
	struct order_point *points;	  /* per mark, while recording */
	struct genai_clock *reached;	  /* per mark, while being replayed */
	struct order_branch branches[16]; /* [0]: the origin */
	uint32_t n_ops, cap_ops, n_acc, cap_acc, n_marks, cap_marks, n_reached;
	uint32_t n_branches;
	bool compared; /* with what the device keeps */
};

struct genai_order {
	struct genai_stream_ops raw;
	struct genai_barrier_ops raw_barrier;
	void *raw_self, *barrier_self;
	pthread_mutex_t lock; /* everything below */
	struct order_stream *streams;
	struct order_recording *recordings; /* live, and open ones */
	struct genai_clock host;
	uint64_t epoch[GENAI_ORDER_LINES]; /* units of a line so far */
	bool line_used[GENAI_ORDER_LINES];
	struct genai_order_map map;
	struct order_block *blocks;
	uint32_t n_blocks, cap_blocks, made_blocks;
	const char **names; /* interned; hash table */
	uint32_t n_names, cap_names;
};

/* order.c; the lock is held. */
int32_t order_grow(void **p, uint32_t *cap, uint32_t need, size_t one,
		   struct genai_error *err);
int32_t order_line(struct genai_order *o, uint32_t *out_line,
		   struct genai_error *err);
struct order_stream *order_stream_of(struct genai_order *o,
				     const struct genai_stream *raw);
/* One unit: its place on the line, then each access. */
int32_t order_unit(struct genai_order *o, uint32_t line, const char *stream,
		   struct genai_clock *clock, const char *what, uint32_t node,
		   const struct genai_access *acc, uint32_t n,
		   struct genai_error *err);

/* A name outlives the unit that bears it; "?" when there is no memory. */
const char *order_intern(struct genai_order *o, const char *s);

/* What messages say of a unit: its name, cut if long, and its node. */
struct order_text {
	char v[120];
};
struct order_text order_unit_text(const char *what, uint32_t node);

/* order_memory.c */
void order_put_memory(struct genai_stream_ops *ops);
/* Which memory an address is in; the lock is held. */
struct order_text order_place_text(const struct genai_order *o, uint64_t addr);
/* How units would name a host address.  Takes the lock. */
uint64_t order_device_addr(struct genai_order *o, uint64_t host);

/* order_record.c; the lock is held. */
int32_t order_record_begin(struct genai_order *o, struct order_stream *s,
			   struct genai_error *err);
int32_t order_record_unit(struct genai_order *o, struct order_stream *s,
			  const char *what, uint32_t node,
			  const struct genai_access *acc, uint32_t n,
			  struct genai_error *err);
int32_t order_record_mark(struct order_stream *s, struct genai_point p,
			  struct genai_error *err);
/* True (and the wait is recorded, the stream joined) if p was made inside an
 * open recording. */
int32_t order_record_wait(struct genai_order *o, struct order_stream *s,
			  struct genai_point p, bool *out_inside,
			  struct genai_error *err);
void order_record_end(struct genai_order *o, struct order_stream *s,
		      struct genai_recording *raw);
int32_t order_replay(struct genai_order *o, struct genai_recording *raw,
		     struct order_stream *s, struct genai_error *err);
/* order_kept.c; the lock is held.  GENAI_E_ORDER if the device does not keep an
 * edge of the recording. */
int32_t order_kept(struct genai_order *o, struct order_recording *rec,
		   struct genai_error *err);
void order_record_free(struct genai_order *o, struct order_recording *rec);

#endif
