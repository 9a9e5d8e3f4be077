/* graph_kit.h - a graph under construction, in few words. */
#ifndef GENAI_TESTS_UNIT_GRAPH_KIT_H
#define GENAI_TESTS_UNIT_GRAPH_KIT_H

#include "core/graph/builder.h"
#include "tests/unit/harness.h"

#include <stdio.h>
#include <string.h>

static struct genai_error err;
static struct genai_builder *b;

static inline void setup(void)
{
	struct genai_error fresh = GENAI_ERROR_INIT;

	err = fresh;
	b = genai_builder_open("g");
	ck_assert_ptr_nonnull(b);
}

static inline void teardown(void)
{
	genai_builder_close(b);
	b = NULL;
}

static inline uint32_t val(const char *name)
{
	return genai_builder_value(b, name, GENAI_DT_F32, GENAI_NONE, NULL,
				   NULL);
}

static inline uint32_t in(const char *name)
{
	uint32_t v = val(name);

	genai_builder_input(b, v);
	return v;
}

/* A node that reads x and y (where not GENAI_NONE) and writes out. */
static inline uint32_t op(const char *name, uint32_t x, uint32_t y, uint32_t out)
{
	uint32_t inputs[2] = {x, y};

	return genai_builder_node(b, name, "", 21, name, inputs,
				  y == GENAI_NONE ? 1 : 2, &out, 1);
}

static inline struct genai_graph *finish(void)
{
	struct genai_graph *g = NULL;
	int32_t rc = genai_builder_finish(b, &g, &err);

	b = NULL;
	ck_assert_msg(rc == 0, "%s", err.text);
	ck_assert_ptr_nonnull(g);
	return g;
}

static inline void refused(int32_t code, const char *text)
{
	struct genai_graph *g = NULL;
	int32_t rc = genai_builder_finish(b, &g, &err);

	b = NULL;
	ck_assert_int_eq(rc, code);
	ck_assert_int_eq(err.code, code);
	ck_assert_ptr_null(g);
	ck_assert_msg(strstr(err.text, text) != NULL, "\"%s\" lacks \"%s\"",
		      err.text, text);
}

static inline const char *node_op(const struct genai_graph *g, uint32_t i)
{
	return genai_graph_node(g, i)->op;
}

#endif
