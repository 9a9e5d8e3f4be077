/* wrap.h - tables of an executor's functions around another's.  A function of a
 * table is given its plan only, so each of two executors has functions of its
 * own: WRAP_*(k) makes that of executor k, which calls the one function of the
 * file that is for both, with BEHIND(k), the table behind. */
#ifndef GENAI_TESTS_MUTANTS_WRAP_H
#define GENAI_TESTS_MUTANTS_WRAP_H

#include <genai/executor.h>

#define WRAP_CREATE(k)                                                         \
	static int32_t create_##k(void *self, const struct genai_graph *g,     \
				  const struct genai_plan_options *o,          \
				  struct genai_plan **out,                     \
				  struct genai_error *err)                     \
	{                                                                      \
		return create(BEHIND(k), self, g, o, out, err);                \
	}
#define WRAP_VISITS(k)                                                         \
	static int32_t visits_##k(struct genai_plan *p,                        \
				  const struct genai_visit **out, uint32_t *n, \
				  struct genai_error *err)                     \
	{                                                                      \
		return visits(BEHIND(k), p, out, n, err);                      \
	}
#define WRAP_PAGES(k)                                                          \
	static int32_t pages_##k(struct genai_plan *p,                         \
				 const struct genai_sweep_page *v, uint32_t n, \
				 struct genai_error *err)                      \
	{                                                                      \
		return set_pages(BEHIND(k), p, v, n, err);                     \
	}
#define WRAP_BIND_IN(k)                                                        \
	static int32_t bind_in_##k(struct genai_plan *p, uint32_t i,           \
				   const struct genai_view *v,                 \
				   struct genai_error *err)                    \
	{                                                                      \
		return bind_in(BEHIND(k), p, i, v, err);                       \
	}
#define WRAP_BIND_OUT(k)                                                       \
	static int32_t bind_out_##k(struct genai_plan *p, uint32_t i,          \
				    const struct genai_view *v,                \
				    struct genai_error *err)                   \
	{                                                                      \
		return bind_out(BEHIND(k), p, i, v, err);                      \
	}
#define WRAP_SHAPE(k)                                                          \
	static int32_t shape_##k(struct genai_plan *p, uint32_t i,             \
				 struct genai_view *out,                       \
				 struct genai_error *err)                      \
	{                                                                      \
		return shape(BEHIND(k), p, i, out, err);                       \
	}
#define WRAP_SUBMIT(k)                                                         \
	static int32_t submit_##k(                                             \
		struct genai_plan *p, struct genai_stream *s,                  \
		const struct genai_point *wait, uint32_t n,                    \
		struct genai_point *out, struct genai_error *err)              \
	{                                                                      \
		return submit(BEHIND(k), p, s, wait, n, out, err);             \
	}
#define WRAP_DESTROY(k)                                                        \
	static int32_t destroy_##k(struct genai_plan *p,                       \
				   const struct genai_ticket *t,               \
				   struct genai_error *err)                    \
	{                                                                      \
		return destroy(BEHIND(k), p, t, err);                          \
	}
#define WRAP_STATS(k)                                                          \
	static int32_t stats_##k(struct genai_plan *p,                         \
				 struct genai_exec_stats *out,                 \
				 struct genai_error *err)                      \
	{                                                                      \
		return stats(BEHIND(k), p, out, err);                          \
	}

#endif
