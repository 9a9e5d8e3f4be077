/* subject.h - a model under one configuration, opened for comparison. */
#ifndef GENAI_TESTS_SUBJECT_H
#define GENAI_TESTS_SUBJECT_H

#include <genai/genai.h>

#include "tests/golden/golden.h"

struct subject_where {
	const char *device;  /* module of executor, stream and barrier; NULL: as
				configured */
	const char *modules; /* its folder; NULL: as configured */
	const char *config;
	const char *const *sets; /* after all others */
	uint32_t n_sets;
};

/* Where the build tree has the reference. */
#define SUBJECT_CPU                                                            \
	{                                                                      \
		.device = "cpu_ref", .modules = GENAI_TESTMODULES,             \
		.config = GENAI_TESTDATA "/../../conf/cpu.ini"                 \
	}

/* NULL: as configured. */
struct subject_cell {
	const char *executor, *pager, *budget;
};

struct subject {
	struct genai_runtime *rt;
	struct genai_model *model;
	struct genai_session *s;
	struct genai_model_info info;
};

/* all: logits of every row.  On failure nothing stays open. */
int32_t subject_open(struct subject *u, const struct subject_where *where,
		     const char *folder, const struct subject_cell *c, bool all,
		     struct genai_error *err);
void subject_close(struct subject *u);

/* The type that the graph computes in, and how many layers it has. */
uint32_t subject_dtype(const struct subject *u);
uint32_t subject_layers(const struct subject *u);
/* By the type that the graph computes in, which the recorded float32 had. */
struct golden_tolerance subject_tolerance(const struct subject *u);

#endif
