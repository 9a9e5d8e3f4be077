/* parity_impl.h - what the parts of --parity share.
 * parity.c        seeds, conversations, the report
 * parity_setup.c  which executors, pagers and schedules there are */
#ifndef GENAI_CONFORM_PARITY_IMPL_H
#define GENAI_CONFORM_PARITY_IMPL_H

#include <stdbool.h>

#include <genai/genai.h>
#include <genai/module.h>

#define MAX_LIST 32
#define MAX_CELLS 4096
#define MAX_FAILURES 1000 /* that the file of --json has */
#define SEED_S 600	  /* a seed takes no longer */
#define MAX_STEPS 1024
#define MAX_TOKENS 300 /* of a turn */
#define LONG_TOKENS 200 /* of the first turn of one seed in LONG_EVERY */
#define LONG_EVERY 49
#define MAX_PROMPT 20

struct list {
	const char *v[MAX_LIST];
	uint32_t n;
};

/* What a conversation gave: tokens, and digests of logits. */
struct talk {
	int64_t v[MAX_STEPS];
	uint8_t is_logits[MAX_STEPS];
	uint32_t n;
};

struct setup { /* an open configuration */
	struct genai_runtime *rt;
	struct genai_model *model;
	struct genai_session *session;
};

struct cell {
	uint64_t runs, differ, rings; /* rings: pages went through a ring */
};

struct draw { /* what a seed chose */
	uint64_t seed;
	const char *dir, *executor, *pager, *budget;
	char schedule[64];   /* "": the device has none */
	uint64_t page_bytes; /* 0: the pager has no such key */
	bool check;
};

/* What the process that runs the seeds leaves to the one that reports. */
struct tally {
	uint64_t at;   /* the seed that runs */
	bool reported; /* it has failed, and that was said */
	uint64_t failed, rings;
	struct cell cells[MAX_CELLS];
	uint32_t n_failures;
	struct {
		uint64_t seed;
		char text[200];
	} failures[MAX_FAILURES];
};

struct parity {
	struct list dirs, executors, pagers, budgets, schedules, sets;
	const char *config, *json;
	/* "": that of the executor's module, and its barrier */
	char stream[128];
	uint64_t first, seeds, tokens;	      /* tokens: of a turn; 0: drawn */
	struct setup ref[MAX_LIST][MAX_LIST]; /* by dir, by executor */
	bool has_pages[MAX_LIST];    /* by pager: it has the key page_bytes */
	bool has_schedule[MAX_LIST]; /* by executor: its device has the key */
	/* by executor: what it is compared with */
	char resident[MAX_LIST][128];
	struct tally *tally;
	char texts[2 * MAX_LIST][128]; /* that the lists point to */
	uint32_t n_texts;
	int argc;
	char **argv;
};

/* The module that drives the device, of "LAYER > MODULE" the last one. */
const char *parity_device(const char *choice);
/* Fill the lists that no option gave from the configuration, and find out what
 * their modules can be told.  0, or the exit status. */
int parity_lists(struct parity *p);
/* What is run, in one line. */
void parity_say(const struct parity *p);

#endif
