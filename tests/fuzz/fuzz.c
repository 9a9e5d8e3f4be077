// fuzz.c - bent input for what reads requests, and structures.
// usage: fuzz [-n RUNS] [-s SEED] [-o NUMBER] [TARGET]...
//   -n  executions of each target, or as many as its weight leaves of them
//   -s  another seed
//   -o  only this execution, said aloud
// An execution must end within a second, say what is wrong in the form that
// clients are told, and give back all that it took.
#include "tests/fuzz/fuzz.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <genai/module.h>

#define RUNS 20000
#define SHOWN 2000	   // bytes of an input
#define WARM 512	   // executions after which memory is looked at
#define MOST_GROWTH 524288 // bytes, of what libraries keep
#define MOST_S 1	   // of an execution
#define HANGS_S 20	   // processor time, after which it is ended
#define MOST_MEMORY (UINT64_C(6) << 30)

static const struct fuzz_target *const targets[] = {
	&fuzz_http,    &fuzz_text,   &fuzz_chat,  &fuzz_response,
	&fuzz_vectors, &fuzz_schema, &fuzz_regex, &fuzz_grammar,
};
#define N_TARGETS (sizeof(targets) / sizeof(targets[0]))

static const bool is_sanitized = GENAI_BUILD & 0xff;
static char input[FUZZ_MOST + 1];
static size_t n_input;
static const struct fuzz_target *at;
static uint64_t seed = 1, number;

#ifdef __SANITIZE_ADDRESS__
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "abort_on_error=1:handle_abort=0";
}
#endif

// ---- what went wrong ----

static void show(const char *what)
{
	fprintf(stderr,
		"fuzz: %s: %s; again: tests/fuzz/fuzz -s %llu -o %llu %s\n",
		at ? at->name : "start", what, (unsigned long long)seed,
		(unsigned long long)number, at ? at->name : "");
	for (size_t i = 0; i < n_input && i < SHOWN; i++) {
		unsigned char c = (unsigned char)input[i];

		if (c == '\\' || c < 32 || c > 126)
			fprintf(stderr, "\\x%02x", c);
		else
			fputc(c, stderr);
	}
	fputs(n_input > SHOWN ? "...\n" : "\n", stderr);
}

// The program ends: what is printed may be cut off, but not made wrong.
static void on_signal(int sig)
{
	signal(sig, SIG_DFL);
	show(sig == SIGPROF ? "it does not end" : strsignal(sig));
	raise(sig == SIGPROF ? SIGABRT : sig);
}

static void watch(void)
{
	const struct itimerval limit = {
		.it_value = {HANGS_S * (is_sanitized ? 10 : 1), 0}};

	setitimer(ITIMER_PROF, &limit, NULL);
}

static double cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// ---- executions ----

static bool execute(const struct fuzz_corpus *c, uint64_t i, double *slowest)
{
	uint64_t s = seed * UINT64_C(0x100000001b3) + i;
	const char *wrong;
	double t;

	number = i;
	if (i < c->n_items) { // as it is
		n_input = c->items[i].n;
		memcpy(input, c->items[i].s, n_input + 1);
	} else {
		n_input = fuzz_bend(c, &s, input);
	}
	if (i % 16 == 0)
		watch();
	t = cpu();
	wrong = at->run(input, n_input, &s);
	t = cpu() - t;
	if (!wrong && t > MOST_S * (is_sanitized ? 10 : 1))
		wrong = "it takes more than a second";
	if (wrong)
		show(wrong);
	if (t > *slowest)
		*slowest = t;
	return !wrong;
}

// Returns false after the first execution that went wrong.
static bool fuzz(const struct fuzz_target *t, uint64_t runs, int64_t only)
{
	size_t before = 0, after;
	double slowest = 0, begun;
	struct fuzz_corpus c;
	uint64_t i = 0;
	bool ok = true;

	at = t;
	fuzz_corpus_read(t->file, t->escaped, &c);
	begun = cpu();
	if (only >= 0)
		ok = execute(&c, (uint64_t)only, &slowest);
	for (i = 0; ok && only < 0 && i < runs; i++) {
		if (i == WARM)
			before = mallinfo2().uordblks;
		ok = execute(&c, i, &slowest);
	}
	after = mallinfo2().uordblks;
	if (only >= 0)
		show(ok ? "nothing is wrong" : "that was it");
	else
		printf("# %s: %llu executions, %.1f s of processor time, the "
		       "slowest %.1f ms\n",
		       t->name, (unsigned long long)i, cpu() - begun,
		       slowest * 1e3);
	if (ok && i > WARM && after > before + MOST_GROWTH && !is_sanitized) {
		printf("# memory grew by %zu bytes\n", after - before);
		ok = false;
	}
	fuzz_corpus_free(&c);
	return ok;
}

static bool chosen(const struct fuzz_target *t, int argc, char **argv)
{
	for (int i = optind; i < argc; i++)
		if (!strcmp(argv[i], t->name))
			return true;
	return optind >= argc;
}

int main(int argc, char **argv)
{
	static const int sigs[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGPROF};
	const struct rlimit most = {MOST_MEMORY, MOST_MEMORY};
	uint64_t runs = RUNS;
	int64_t only = -1;
	int n = 0, opt;
	bool all = true;

	while ((opt = getopt(argc, argv, "n:s:o:")) != -1)
		if (opt == 'n')
			runs = strtoull(optarg, NULL, 10);
		else if (opt == 's')
			seed = strtoull(optarg, NULL, 10);
		else if (opt == 'o')
			only = strtoll(optarg, NULL, 10);
		else
			return 2;
	signal(SIGPIPE, SIG_IGN);
#ifdef M_PERTURB
	mallopt(M_PERTURB, 165); // what is read after it was freed shows
#endif
	if (!is_sanitized)
		setrlimit(RLIMIT_AS, &most);
	for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++)
		if (!is_sanitized || sigs[i] == SIGABRT || sigs[i] == SIGPROF)
			signal(sigs[i], on_signal);
	for (size_t i = 0; i < N_TARGETS; i++) {
		const struct fuzz_target *t = targets[i];
		const char *why;
		bool ok = true;

		if (!chosen(t, argc, argv))
			continue;
		why = t->open();
		if (!why)
			ok = fuzz(t, runs / t->weight, only);
		printf("%sok %d - %s%s%s\n", ok ? "" : "not ", ++n, t->name,
		       why ? " # SKIP " : "", why ? why : "");
		fflush(stdout);
		t->close();
		all &= ok;
	}
	printf("1..%d\n", n);
	return all || getenv("GENAI_TAP") ? 0 : 1;
}
