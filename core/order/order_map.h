/* order_map.h - who touched which bytes last, and was it ordered?
 * Owns: vector clocks, the map from byte ranges to their last writer and the
 * readers since.  Does not know: streams, points, tables. */
#ifndef GENAI_CORE_ORDER_ORDER_MAP_H
#define GENAI_CORE_ORDER_ORDER_MAP_H

#include <stdbool.h>

#include <genai/stream.h>

/* A line of work that is ordered in itself: a stream, or a recorded branch. */
#define GENAI_ORDER_LINES 64

struct genai_clock {
	uint64_t of[GENAI_ORDER_LINES];
};

/* An access, as a message needs it.  Names are interned by the owner. */
struct genai_touch {
	uint32_t line; /* GENAI_NONE: nobody */
	uint32_t node;
	uint64_t epoch; /* of the line: the n-th unit */
	const char *what;
	const char *stream;
	bool write;
};

struct genai_span { /* [begin, end) */
	uint64_t begin, end;
	struct genai_touch writer;
	struct genai_touch *readers; /* not ordered among each other */
	uint32_t n_readers, cap_readers;
};

struct genai_order_map {
	struct genai_span *spans; /* sorted, disjoint */
	uint32_t n, cap;
};

/* Note an access by a unit whose clock is given; *out_race gets an earlier
 * access that is not ordered before it (then nothing is noted).
 * Errors: GENAI_E_ORDER without text; GENAI_E_NOMEM. */
int32_t genai_order_touch(struct genai_order_map *m, uint64_t begin,
			  uint64_t bytes, const struct genai_touch *t,
			  const struct genai_clock *clock,
			  struct genai_touch *out_race);
/* Forget a range.  clock not NULL: GENAI_E_ORDER if an access is not ordered
 * before it. */
int32_t genai_order_forget(struct genai_order_map *m, uint64_t begin,
			   uint64_t bytes, const struct genai_clock *clock,
			   struct genai_touch *out_race);
void genai_order_clear(struct genai_order_map *m);

static inline void genai_clock_join(struct genai_clock *a,
				    const struct genai_clock *b)
{
	for (uint32_t i = 0; i < GENAI_ORDER_LINES; i++)
		if (a->of[i] < b->of[i])
			a->of[i] = b->of[i];
}

#endif
