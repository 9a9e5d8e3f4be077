// manners.c - what a module must not do to the process that it is a guest of.
// A mutant is called WHAT-WHERE: "locale-init" changes the locale in init.
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "tests/mutants/mutant.h"

static void print_out(void)
{
	if (printf("mutant: hello\n") > 0)
		fflush(stdout);
}

static void print_err(void)
{
	fprintf(stderr, "mutant: hello\n");
}

static void on_signal(int number)
{
	(void)number;
}

static void handler(void)
{
	signal(SIGUSR1, on_signal);
}

static void ignore(void)
{
	signal(SIGPIPE, SIG_IGN);
}

static void mask(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void rounding(void)
{
	fesetround(FE_TOWARDZERO);
}

static void flush(void)
{
#if defined(__x86_64__)
	_mm_setcsr(_mm_getcsr() | 0x8040);
#else
	fesetround(FE_UPWARD);
#endif
}

static void traps(void)
{
	feenableexcept(FE_DIVBYZERO);
}

static void locale(void)
{
	setlocale(LC_ALL, "C.UTF-8");
}

static void folder(void)
{
	if (chdir("/"))
		abort();
}

static void umask_0(void)
{
	umask(0);
}

static void environment(void)
{
	setenv("GENAI_MUTANT_WAS_HERE", "1", 1);
}

static void closes(void)
{
	close(0);
}

static void opens(void)
{
	if (open("/dev/null", O_RDONLY) < 0)
		abort();
}

static void timer(void)
{
	struct itimerval v = {.it_value = {.tv_sec = 3600}};

	setitimer(ITIMER_REAL, &v, NULL);
}

static void priority(void)
{
	const struct sched_param none = {0};
	int now = getpriority(PRIO_PROCESS, 0);

	if (now < 19)
		setpriority(PRIO_PROCESS, 0, now + 1);
	else // there is nothing below
		sched_setscheduler(0, SCHED_BATCH, &none);
}

static void affinity(void)
{
	cpu_set_t set;
	int first = 0;

	sched_getaffinity(0, sizeof(set), &set);
	while (!CPU_ISSET(first, &set))
		first++;
	CPU_CLR(first, &set);
	if (CPU_COUNT(&set))
		sched_setaffinity(0, sizeof(set), &set);
	else
		priority();
}

static void limit(void)
{
	struct rlimit l;

	getrlimit(RLIMIT_NOFILE, &l);
	l.rlim_cur--;
	setrlimit(RLIMIT_NOFILE, &l);
}

static void numbers(void)
{
	srand(1);
}

static void name(void)
{
	prctl(PR_SET_NAME, "mutant");
}

static void reads(void)
{
	fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
}

static void dumps(void)
{
	prctl(PR_SET_DUMPABLE, 0);
}

static void stack(void)
{
	static char some[1 << 16];
	stack_t s = {.ss_sp = some, .ss_size = sizeof(some)};

	sigaltstack(&s, NULL);
}

static void slack(void)
{
	prctl(PR_SET_TIMERSLACK, 1);
}

static const struct {
	const char *what;
	void (*fn)(void);
} all[] = {
	{"stdout", print_out},	{"stderr", print_err},
	{"handler", handler},	{"ignore", ignore},
	{"mask", mask},		{"rounding", rounding},
	{"flush", flush},	{"traps", traps},
	{"locale", locale},	{"folder", folder},
	{"umask", umask_0},	{"environment", environment},
	{"closes", closes},	{"opens", opens},
	{"timer", timer},	{"priority", priority},
	{"affinity", affinity}, {"limit", limit},
	{"numbers", numbers},	{"name", name},
	{"nonblock", reads},	{"dumps", dumps},
	{"stack", stack},	{"slack", slack},
};

void mutant_leak(size_t bytes)
{
	static void *volatile last;

	last = malloc(bytes);
	if (last)
		memset(last, 1, bytes);
}

void mutant_manners(const char *where)
{
	const char *dash = strrchr(mutant, '-');

	if (!dash || strcmp(dash + 1, where))
		return;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!strncmp(all[i].what, mutant, (size_t)(dash - mutant)) &&
		    !all[i].what[dash - mutant])
			all[i].fn();
}
