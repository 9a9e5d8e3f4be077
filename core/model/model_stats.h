/* model_stats.h - counts of a model's plans, those that are gone too. */
#ifndef GENAI_CORE_MODEL_MODEL_STATS_H
#define GENAI_CORE_MODEL_MODEL_STATS_H

#include <genai/executor.h>

/* Add a plan's counts to sum. */
void genai_model_add_stats(struct genai_exec_stats *sum,
			   const struct genai_exec_stats *x);

#endif
