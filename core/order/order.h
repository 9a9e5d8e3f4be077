/* order.h - the happens-before check: an interposer in front of any stream
 * runtime and its barrier.  [runtime] check = order
 * Owns: a vector clock per stream, the accesses so far.  Does not know: time;
 * what it finds does not depend on which order was really taken.
 *
 * Edges: a stream's own order, waits on points, host_read, drain, and a poll
 * that found its point reached.  A replay is checked as its units enqueued
 * anew, its side branches ordered only by what was recorded.  Two accesses to
 * the same bytes, one a write, without a path of edges between them are
 * GENAI_E_ORDER from the call that enqueues the second. */
#ifndef GENAI_CORE_ORDER_ORDER_H
#define GENAI_CORE_ORDER_ORDER_H

#include <genai/barrier.h>

struct genai_order;

/* Put the check in front of the two tables: they and their selfs are replaced;
 * what was there is kept until close.  Errors: GENAI_E_NOMEM. */
int32_t genai_order_open(struct genai_stream_ops *stream, void **stream_self,
			 struct genai_barrier_ops *barrier, void **barrier_self,
			 struct genai_order **out_order,
			 struct genai_error *err);
void genai_order_close(struct genai_order *o); /* NULL is allowed */

#endif
