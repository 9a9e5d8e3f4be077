/* trace.h - what happens while a model is loaded and run, with its times: for
 * generate --trace and --timeline.  One runtime at a time.
 *
 * The tables of an open runtime are replaced by ones that put a function of the
 * host before and after each unit, copy and wait, in the stream's own order: it
 * notes the time when the stream is there.  Recordings have them, too.  Off,
 * not an instruction is added. */
#ifndef GENAI_TOOLS_TRACE_H
#define GENAI_TOOLS_TRACE_H

#include "tools/cli.h"

enum trace_kind {
	TRACE_KERNEL, /* a unit of work */
	TRACE_COPY,
	TRACE_WAIT,    /* of a stream, for a point */
	TRACE_READ,    /* a function of the host in a stream: a pager's reads */
	TRACE_STEP,    /* on its stream, from its first unit to its last */
	TRACE_HOST,    /* the host does something */
	TRACE_BARRIER, /* the host waits for the device */
};

struct trace_stream {
	struct trace_stream *next;
	const struct genai_stream *raw;
	char name[32];
	uint32_t number; /* 1, 2, ... in the order of their creation */
	uint64_t last;	 /* when it was last at a mark */
};

/* What is enqueued; a recorded one happens many times. */
struct trace_what {
	struct trace_what *next;
	struct trace_stream *stream; /* NULL: the host's */
	enum trace_kind kind;
	uint32_t node, copy_kind;
	uint64_t bytes, begun;
	bool replayed; /* of a step */
	char name[96];
	char reason[80]; /* of a drain: what its ticket was for */
};

struct trace_event {
	uint64_t begin, end; /* ns since the trace began */
	const struct trace_what *what;
};

/* Counts of a step, when it was given to the device. */
struct trace_count {
	uint64_t at, hits, streamed;
};

struct trace {
	struct trace_event *events;
	size_t n_events;
	struct trace_count *counts;
	size_t n_counts;
	uint64_t dropped; /* beyond what is kept */
	struct trace_stream *streams;
	char label[256]; /* executor, pager, device */
};

/* From now on, if c has a file for it: right after rt was opened. */
int32_t trace_start(struct cli *c, struct genai_runtime *rt);
/* Something that the host does begins; ends.  They nest. */
void trace_enter(const char *name);
void trace_leave(void);
/* All is closed: write the files of c, forget the trace.  Without one: 0. */
int32_t trace_finish(struct cli *c);

/* trace_write.c; both sort the events. */
void trace_json(const struct trace *t, FILE *f);
/* A step of the second half, that of median length; false: there is none. */
bool trace_svg(const struct trace *t, FILE *f);

#endif
