// suite_minor.c - a module meets a core or another module of an earlier or
// later minor: structs and tables are shorter or longer than its own
// (docs/ABI.md).
#include "tests/conform/book.h"
#include "tests/conform/rig.h"

#include <stdlib.h>
#include <string.h>

// The bytes of a struct up to the last field that ABI 1.0 has.
#define UP_TO(type, field)                                                     \
	((uint32_t)(offsetof(struct type, field) +                             \
		    sizeof(((struct type *)0)->field)))

// ---- results of any size ----

#define ROOM 4096
#define UNTOUCHED 0xa5

typedef int32_t (*ask_fn)(void *out, struct genai_error *err);

// Ask with a struct of so many bytes; gives how many were written.
static uint32_t ask_with(ask_fn ask, const char *what, uint32_t size,
			 uint32_t *out)
{
	const unsigned char *bytes = (const unsigned char *)out;
	uint32_t got;

	memset(out, UNTOUCHED, ROOM);
	*out = size;
	CF_OK(ask(out, &cf_err));
	got = *out;
	ck_assert_msg(got <= size, "%s: says %u bytes to a caller with %u",
		      what, got, size);
	for (uint32_t i = got; i < ROOM; i++)
		ck_assert_msg(bytes[i] == UNTOUCHED,
			      "%s: byte %u of a struct of %u was written", what,
			      i, size);
	return got;
}

static void any_size(ask_fn ask, const char *what, uint32_t least)
{
	// allocated: of no type but what the module writes
	uint32_t *all = malloc(ROOM), *some = malloc(ROOM);
	uint32_t own = ask_with(ask, what, ROOM / 2, all);
	const uint32_t sizes[] = {8, least - 8, least, own, own + 8};

	ck_assert_msg(own >= least, "%s: %u bytes, ABI 1.0 has %u", what, own,
		      least);
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t n = sizes[i] < 8 ? 8 : sizes[i];
		uint32_t got = ask_with(ask, what, n, some);

		ck_assert_msg(got == (n < own ? n : own),
			      "%s: gives %u bytes to a caller with %u", what,
			      got, n);
		ck_assert_msg(some[1] == all[1],
			      "%s: other contents with %u bytes", what, n);
	}
	free(all);
	free(some);
}

static struct cf_rt r;
static struct book b;
static struct rig g;

static int32_t ask_stream_caps(void *out, struct genai_error *err)
{
	return r.d->raw.caps(r.d->raw_self, out, err);
}

static int32_t ask_stream_stats(void *out, struct genai_error *err)
{
	return r.d->raw.stats(r.d->raw_self, out, err);
}

static void stream_sizes(void)
{
	cf_open(&r, 0, NULL);
	any_size(ask_stream_caps, "caps", UP_TO(genai_stream_caps, granule));
	any_size(ask_stream_stats, "stats",
		 UP_TO(genai_stream_stats, device_used_bytes));
	cf_close(&r);
}

static int32_t ask_pager_caps(void *out, struct genai_error *err)
{
	return b.ops->caps(genai_module_self(b.r.tested), out, err);
}

static int32_t ask_pager_stats(void *out, struct genai_error *err)
{
	return b.ops->stats(b.p, out, err);
}

// A report comes once in the life of a pager.
static int32_t ask_report(void *out, struct genai_error *err)
{
	int32_t rc;

	book_open(&b, NULL);
	rc = b.ops->seal(b.p, b.sweep, b.n_visits, b.total / 2, out, err);
	book_close(&b);
	return rc;
}

static void pager_sizes(void)
{
	book_make(&b, 5, 12);
	any_size(ask_report, "report", UP_TO(genai_pager_report, slot_bytes));
	book_open(&b, NULL);
	any_size(ask_pager_caps, "caps", UP_TO(genai_pager_caps, page_bytes));
	any_size(ask_pager_stats, "stats",
		 UP_TO(genai_pager_stats, copy_bytes));
	book_close(&b);
	book_free(&b);
}

static int32_t ask_exec_caps(void *out, struct genai_error *err)
{
	return g.r.rt->exec.caps(genai_module_self(g.r.rt->executor.module),
				 out, err);
}

static int32_t ask_exec_stats(void *out, struct genai_error *err)
{
	return g.r.rt->exec.stats(g.plan, out, err);
}

// ---- a later core ----

// Tables longer than any module knows; what is new in them leads nowhere.
#define LATER 16
static struct {
	struct genai_stream_ops ops;
	void *later[LATER];
} stream;
static struct {
	struct genai_barrier_ops ops;
	void *later[LATER];
} barrier;
static struct {
	struct genai_pager_ops ops;
	void *later[LATER];
} pager;

#define LENGTHEN(table, from)                                                  \
	do {                                                                   \
		memset(&(table), 0x11, sizeof(table));                         \
		(table).ops = *(from);                                         \
		(table).ops.size = sizeof(table);                              \
	} while (0)

static void pager_later(void)
{
	book_make(&b, 6, 20);
	book_start(&b, NULL);
	LENGTHEN(stream, b.stream.ops);
	LENGTHEN(barrier, b.barrier.ops);
	b.stream.ops = &stream.ops;
	b.barrier.ops = &barrier.ops;
	CF_OK(b.ops->open(genai_module_self(b.r.tested), &b.stream, &b.barrier,
			  &b.p, &cf_err));
	book_add_all(&b);
	CF_OK(book_seal(&b, b.total / 2, &cf_err));
	for (int i = 0; i < 3; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "with longer tables");
	book_close(&b);
	book_free(&b);
}

// The array with longer elements; what is new in them is nonsense.
static void *longer(const void *from, uint32_t *stride, uint32_t n)
{
	uint32_t old = *stride, size;
	char *to;

	*stride += 8 * LATER;
	to = malloc(((size_t)n + 1) * *stride);
	ck_assert_ptr_nonnull(to);
	memset(to, UNTOUCHED, ((size_t)n + 1) * *stride);
	for (uint32_t i = 0; i < n; i++) {
		char *at = to + (size_t)i * *stride;

		memcpy(at, (const char *)from + (size_t)i * old, old);
		memcpy(&size, at, sizeof(size));
		size += 8 * LATER;
		memcpy(at, &size, sizeof(size));
	}
	return to;
}

static struct genai_graph *later_graph(const struct genai_graph *from)
{
	uint32_t bytes = sizeof(*from);
	struct genai_graph *to = longer(from, &bytes, 1);

	to->files = longer(to->files, &to->file_stride, to->n_files);
	to->tensors = longer(to->tensors, &to->tensor_stride, to->n_tensors);
	to->values = longer(to->values, &to->value_stride, to->n_values);
	to->nodes = longer(to->nodes, &to->node_stride, to->n_nodes);
	for (uint32_t i = 0; i < to->n_nodes; i++) {
		struct genai_node *n =
			(struct genai_node *)(uintptr_t)genai_graph_node(to, i);

		n->attrs = longer(n->attrs, &n->attr_stride, n->n_attrs);
	}
	return to;
}

static void later_graph_free(struct genai_graph *graph)
{
	for (uint32_t i = 0; i < graph->n_nodes; i++)
		free((void *)(uintptr_t)genai_graph_node(graph, i)->attrs);
	free((void *)(uintptr_t)graph->files);
	free((void *)(uintptr_t)graph->tensors);
	free((void *)(uintptr_t)graph->values);
	free((void *)(uintptr_t)graph->nodes);
	free(graph);
}

static const int64_t ids[] = {7, 1, 60, 33, 8, 8, 2, 51};
#define N_IDS ((int)(sizeof(ids) / sizeof(ids[0])))

static void run_all(float out[N_IDS][LM_VOCAB])
{
	for (int i = 0; i < N_IDS; i++)
		rig_lm_run(&g, &ids[i], 1, out[i]);
}

static void executor_sizes(void)
{
	struct genai_graph *graph;
	struct rig_graph made;
	struct genai_view max;
	float out[LM_VOCAB];

	rig_open(&g, NULL);
	any_size(ask_exec_caps, "caps", UP_TO(genai_exec_caps, ops));
	rig_need_lm(&g);
	graph = rig_lm(&made);
	rig_lm_view(&max);
	rig_plan(&g, graph, &max, 0);
	rig_lm_run(&g, ids, 1, out);
	any_size(ask_exec_stats, "stats", UP_TO(genai_exec_stats, fallbacks));
	rig_close(&g);
	rig_graph_free(&made, graph);
}

static void executor_later(void)
{
	static float then[N_IDS][LM_VOCAB], now[N_IDS][LM_VOCAB];
	struct {
		struct genai_plan_options o;
		void *later[LATER];
	} options;
	struct genai_graph *graph, *later;
	struct rig_graph made;
	struct genai_view max;

	rig_open(&g, NULL);
	rig_need_lm(&g);
	graph = rig_lm(&made);
	rig_lm_view(&max);
	rig_plan(&g, graph, &max, 24);
	run_all(then);
	rig_unplan(&g);

	later = later_graph(graph);
	memset(&options, 0x11, sizeof(options));
	options.o = rig_options(&g, later, &max);
	options.o.size = sizeof(options);
	LENGTHEN(stream, options.o.stream->ops);
	LENGTHEN(barrier, options.o.barrier->ops);
	LENGTHEN(pager, options.o.pager->ops);
	options.o.stream =
		&(struct genai_stream_api){&stream.ops, options.o.stream->self};
	options.o.barrier = &(struct genai_barrier_api){
		&barrier.ops, options.o.barrier->self};
	options.o.pager = &(struct genai_pager_api){
		&pager.ops, options.o.pager->pager, options.o.pager->self};
	CF_OK(rig_try_plan(&g, &options.o, later, &cf_err));
	rig_adopt(&g, later, &max, 24);
	run_all(now);
	ck_assert_msg(!memcmp(then, now, sizeof(then)),
		      "other numbers with longer structs");
	rig_close(&g);
	later_graph_free(later);
	rig_graph_free(&made, graph);
}

#define S GENAI_IFACE_STREAM
#define P GENAI_IFACE_PAGER
#define E GENAI_IFACE_EXECUTOR
static const struct cf_test tests[] = {
	{"stream/sizes", "GM-11", S, 0, stream_sizes},
	{"pager/sizes", "GM-11", P, 0, pager_sizes},
	{"pager/later-core", "GM-12", P, 0, pager_later},
	{"executor/sizes", "GM-11", E, 0, executor_sizes},
	{"executor/later-core", "GM-12", E, 0, executor_later},
};
const struct cf_suite cf_suite_minor = {tests,
					sizeof(tests) / sizeof(tests[0])};
