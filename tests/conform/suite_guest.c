// suite_guest.c - a module is a guest in a process: it prints nothing, leaves
// the process as it was, does not keep it busy while the device is, and is not
// alone there.
#include "tests/conform/use.h"

#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

extern char **environ;

// ---- manners ----

#define N_SIGNALS 65
#define N_FDS 1024

struct process {
	struct {
		void *handler;
		int flags;
	} actions[N_SIGNALS];
	sigset_t mask;
	int rounding, traps;
	unsigned flush; // denormals to zero
	char locale[256], folder[1024];
	mode_t umask;
	uint64_t environment;
	uint64_t timers;
	int priority, policy;
	cpu_set_t cpus;
	struct rlimit limits[RLIM_NLIMITS];
	bool fds[N_FDS];
	int in_flags; // of standard input
	// of the calling thread
	char name[16];
	stack_t signal_stack;
	int slack, dumps;
};

static uint64_t hash(uint64_t h, const char *s)
{
	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
	return h * 31;
}

static unsigned flushes(void)
{
#if defined(__x86_64__)
	return _mm_getcsr() & 0x8040;
#elif defined(__aarch64__)
	uint64_t fpcr;

	__asm__("mrs %0, fpcr" : "=r"(fpcr));
	return (unsigned)(fpcr >> 24 & 1);
#else
	return 0;
#endif
}

static void look_signals(struct process *p)
{
	struct sigaction a;

	for (int i = 1; i < N_SIGNALS; i++) {
		if (sigaction(i, NULL, &a))
			continue;
		p->actions[i].handler = a.sa_flags & SA_SIGINFO
						? (void *)a.sa_sigaction
						: (void *)a.sa_handler;
		p->actions[i].flags = a.sa_flags;
	}
	pthread_sigmask(SIG_SETMASK, NULL, &p->mask);
}

static void look(struct process *p)
{
	static const int timers[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
	struct itimerval t;

	memset(p, 0, sizeof(*p));
	look_signals(p);
	p->rounding = fegetround();
	p->traps = fegetexcept();
	p->flush = flushes();
	snprintf(p->locale, sizeof(p->locale), "%s", setlocale(LC_ALL, NULL));
	if (!getcwd(p->folder, sizeof(p->folder)))
		p->folder[0] = 0;
	p->umask = umask(0);
	umask(p->umask);
	for (char **e = environ; e && *e; e++)
		p->environment = hash(p->environment, *e);
	for (int i = 0; i < 3; i++)
		if (!getitimer(timers[i], &t) &&
		    (t.it_value.tv_sec || t.it_value.tv_usec))
			p->timers |= 1u << i;
	p->priority = getpriority(PRIO_PROCESS, 0);
	p->policy = sched_getscheduler(0);
	sched_getaffinity(0, sizeof(p->cpus), &p->cpus);
	for (int i = 0; i < RLIM_NLIMITS; i++)
		getrlimit((__rlimit_resource_t)i, &p->limits[i]);
	for (int i = 0; i < N_FDS; i++)
		p->fds[i] = fcntl(i, F_GETFD) >= 0;
	p->in_flags = fcntl(0, F_GETFL);
	prctl(PR_GET_NAME, p->name);
	sigaltstack(NULL, &p->signal_stack);
	p->slack = prctl(PR_GET_TIMERSLACK);
	p->dumps = prctl(PR_GET_DUMPABLE);
}

static void same(const struct process *a, const struct process *b,
		 const char *when)
{
	for (int i = 1; i < N_SIGNALS; i++)
		ck_assert_msg(
			a->actions[i].handler == b->actions[i].handler &&
				a->actions[i].flags == b->actions[i].flags,
			"%s: signal %d is handled in another way", when, i);
	ck_assert_msg(!memcmp(&a->mask, &b->mask, sizeof(a->mask)),
		      "%s: other signals are blocked", when);
	ck_assert_msg(a->rounding == b->rounding, "%s: another rounding mode",
		      when);
	ck_assert_msg(a->traps == b->traps, "%s: other floating-point traps",
		      when);
	ck_assert_msg(a->flush == b->flush,
		      "%s: denormals are flushed to zero, or no longer", when);
	ck_assert_msg(!strcmp(a->locale, b->locale),
		      "%s: the locale was %s and is %s", when, a->locale,
		      b->locale);
	ck_assert_msg(!strcmp(a->folder, b->folder),
		      "%s: the working directory was %s and is %s", when,
		      a->folder, b->folder);
	ck_assert_msg(a->umask == b->umask, "%s: the umask was %o and is %o",
		      when, a->umask, b->umask);
	ck_assert_msg(a->environment == b->environment,
		      "%s: another environment", when);
	ck_assert_msg(a->timers == b->timers, "%s: a timer runs, or none does",
		      when);
	ck_assert_msg(a->priority == b->priority,
		      "%s: the priority was %d and is %d", when, a->priority,
		      b->priority);
	ck_assert_msg(a->policy == b->policy, "%s: another scheduling policy",
		      when);
	ck_assert_msg(CPU_EQUAL(&a->cpus, &b->cpus),
		      "%s: other processors are allowed", when);
	ck_assert_msg(!memcmp(a->name, b->name, sizeof(a->name)),
		      "%s: the thread has another name, %.15s", when, b->name);
	ck_assert_msg(a->signal_stack.ss_sp == b->signal_stack.ss_sp &&
			      a->signal_stack.ss_flags ==
				      b->signal_stack.ss_flags,
		      "%s: signals have another stack", when);
	ck_assert_msg(a->slack == b->slack, "%s: timers have another slack",
		      when);
	ck_assert_msg(a->dumps == b->dumps,
		      "%s: the process may be dumped, or no longer", when);
	ck_assert_msg(a->in_flags == b->in_flags, "%s: flags of standard input",
		      when);
	for (int i = 0; i < RLIM_NLIMITS; i++)
		ck_assert_msg(a->limits[i].rlim_cur == b->limits[i].rlim_cur &&
				      a->limits[i].rlim_max ==
					      b->limits[i].rlim_max,
			      "%s: resource limit %d is another", when, i);
}

static void same_fds(const struct process *a, const struct process *b)
{
	for (int i = 0; i < N_FDS; i++)
		ck_assert_msg(a->fds[i] == b->fds[i],
			      "descriptor %d was %s and is %s", i,
			      a->fds[i] ? "open" : "closed",
			      b->fds[i] ? "open" : "closed");
}

// What is printed goes to a file meanwhile.
static int hush(int kept[2])
{
	int fd = memfd_create("printed", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	fflush(NULL);
	for (int i = 0; i < 2; i++) {
		kept[i] = dup(i + 1);
		dup2(fd, i + 1);
	}
	return fd;
}

static void unhush(int fd, const int kept[2], char *text, size_t cap)
{
	ssize_t n;

	fflush(NULL);
	for (int i = 0; i < 2; i++) {
		if (kept[i] < 0)
			close(i + 1);
		else
			dup2(kept[i], i + 1);
		close(kept[i]);
	}
	n = pread(fd, text, cap - 1, 0);
	text[n > 0 ? n : 0] = 0;
	close(fd);
}

static void manners(void)
{
	static struct process at_first, before, now;
	char printed[200];
	struct use *u;
	int kept[2], fd, next;

	srand(5);
	next = rand();
	srand(5);
	look(&at_first);
	// descriptors that a driver or the C library keeps for good
	u = use_open(NULL);
	use_steps(u, 2);
	use_close(u);
	look(&before);
	fd = hush(kept);
	u = use_open(NULL);
	use_steps(u, 5);
	look(&now);
	use_close(u);
	unhush(fd, kept, printed, sizeof(printed));
	same(&at_first, &now, "at work");
	look(&now);
	same(&at_first, &now, "after fini");
	ck_assert_msg(rand() == next, "rand() was called, or srand()");
	ck_assert_msg(!printed[0], "it printed '%.*s'",
		      (int)strcspn(printed, "\n"), printed);
	same_fds(&before, &now);
	for (int i = 0; i < N_FDS; i++)
		ck_assert_msg(now.fds[i] || !at_first.fds[i],
			      "descriptor %d, not the module's, was closed", i);
}

// ---- patience ----

static double ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

#define ENQUEUED 3
#define PATIENCE_MS 30

// The same work behind a closed gate: whoever looks again and again, or sleeps
// a little, whether the device is done, takes longer than with an idle one.
static void no_spinning(void)
{
	double idle = 1e9, closed = 1e9, from;
	struct use *u = use_open(NULL);
	struct cf_gate g;

	use_steps(u, 4);
	for (int trial = 0; trial < 4; trial++) {
		from = ms();
		for (int i = 0; i < ENQUEUED; i++)
			use_enqueue(u);
		if (ms() - from < idle)
			idle = ms() - from;
		cf_finish(use_rt(u), use_stream(u));
	}
	for (int trial = 0; trial < 4; trial++) {
		cf_gate_close(use_rt(u), use_stream(u), &g);
		from = ms();
		for (int i = 0; i < ENQUEUED; i++)
			use_enqueue(u);
		if (ms() - from < closed)
			closed = ms() - from;
		cf_gate_check(&g, "a call that is no barrier");
		cf_gate_open(&g);
		cf_finish(use_rt(u), use_stream(u));
	}
	ck_assert_msg(
		closed < 4 * idle + PATIENCE_MS,
		"%d times the same work take %.1f ms to enqueue while the "
		"device stands still, %.1f ms otherwise: something waits "
		"a while",
		ENQUEUED, closed, idle);
	use_close(u);
}

// ---- others ----

static void two_runtimes(void)
{
	struct use *a = use_open(NULL), *b = use_open(NULL);

	for (int i = 0; i < 4; i++) {
		use_begin(a);
		use_begin(b);
		use_end(a);
		use_end(b);
	}
	use_begin(b);
	use_close(a); // while the other is at work
	use_end(b);
	use_steps(b, 4);
	a = use_open(NULL);
	use_begin(b);
	use_begin(a);
	use_end(b);
	use_end(a);
	use_close(b); // now the one that came first
	use_steps(a, 4);
	use_close(a);
}

// What is open, counted or broken in one device is so in no other.
static void two_devices(void)
{
	struct genai_stream_stats x = {.size = sizeof(x)}, y = x;
	struct genai_stream *sa, *sb;
	struct genai_mem ma, mb, h;
	struct cf_rt a, b;

	cf_open(&a, 0, NULL);
	cf_open(&b, 0, NULL);
	sa = cf_stream(&a, "a");
	sb = cf_stream(&b, "b");
	ma = cf_alloc(&a, 4096);
	h = cf_pinned(&a, 4096);
	CF_OK(b.st->stats(b.d, &x, &cf_err));
	cf_copy(&a, sa, ma.range.addr, (uintptr_t)h.host, 1000, GENAI_COPY_H2D);
	cf_finish(&a, sa);
	CF_OK(b.st->stats(b.d, &y, &cf_err));
	ck_assert_msg(x.copies == y.copies && x.h2d_bytes == y.h2d_bytes,
		      "a copy on one device is counted by another");
	if (a.caps.flags & GENAI_STREAM_CAP_RECORD)
		CF_OK(a.st->capture_begin(a.d, sa, &cf_err));
	mb = cf_alloc(&b, 4096);
	cf_put(&b, mb.range.addr, &x, sizeof(x));
	cf_finish(&b, sb);
	cf_free(&b, &mb);
	if (a.caps.flags & GENAI_STREAM_CAP_RECORD)
		CF_OK(a.st->capture_abort(a.d, sa, &cf_err));
	cf_free(&a, &ma);
	cf_free(&a, &h);
	cf_destroy(&a, sa);
	cf_destroy(&b, sb);
	cf_close(&a);
	cf_close(&b);
}

#define THREADS 3
static void *steps_of(void *arg)
{
	for (int i = 0; i < 25; i++)
		use_steps(arg, 1);
	return NULL;
}

static void two_threads(void)
{
	struct use *u[THREADS];
	pthread_t t[THREADS];

	for (int i = 0; i < THREADS; i++) {
		u[i] = use_open(NULL);
		use_steps(u[i], 4);
	}
	for (int i = 0; i < THREADS; i++)
		ck_assert(!pthread_create(&t[i], NULL, steps_of, u[i]));
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < THREADS; i++)
		use_close(u[i]);
}

// ---- handed over ----

struct other {
	struct cf_rt r;
	struct genai_stream *s;
	struct genai_mem up, dev, down;
	struct cf_gate g;
	struct genai_point p;
	int32_t rc;
};

static void *enqueues(void *arg)
{
	struct other *o = arg;

	cf_gate_close(&o->r, o->s, &o->g);
	cf_copy(&o->r, o->s, o->dev.range.addr, (uintptr_t)o->up.host, 4096,
		GENAI_COPY_H2D);
	cf_copy(&o->r, o->s, (uintptr_t)o->down.host, o->dev.range.addr, 4096,
		GENAI_COPY_D2H);
	return NULL;
}

static void *reads(void *arg)
{
	struct other *o = arg;

	o->rc = o->r.ba->host_read(o->r.d, &o->p, 1, UINT64_MAX, NULL);
	return NULL;
}

// A device is one thread's at a time, and may get another: what the one before
// enqueued is waited for as ever.
static void on_a_thread(void *(*fn)(void *), struct other *o)
{
	pthread_t t;

	ck_assert(!pthread_create(&t, NULL, fn, o));
	pthread_join(t, NULL);
}

static void handed_over(const char *const *sets)
{
	struct genai_stream *behind;
	struct genai_mem copy;
	struct other o = {.rc = 0};

	cf_open(&o.r, 0, sets);
	o.s = cf_stream(&o.r, "theirs");
	behind = cf_stream(&o.r, "ours");
	o.up = cf_pinned(&o.r, 4096);
	o.down = cf_pinned(&o.r, 4096);
	copy = cf_pinned(&o.r, 4096);
	o.dev = cf_alloc(&o.r, 4096);
	for (uint64_t i = 0; i < 6; i++) {
		cf_pattern(o.up.host, 4096, 77 + i);
		memset(o.down.host, 0, 4096);
		on_a_thread(enqueues, &o);
		o.p = cf_mark(&o.r, o.s);
		ck_assert_msg(o.r.st->poll(o.r.d, o.p, NULL) == GENAI_PENDING,
			      "a point after another thread's work is reached "
			      "before the work is done");
		if (i % 3 == 1) {
			cf_wait(&o.r, behind, o.p);
			cf_copy(&o.r, behind, (uintptr_t)copy.host,
				o.dev.range.addr, 4096, GENAI_COPY_D2H);
			o.p = cf_mark(&o.r, behind);
		}
		cf_gate_open(&o.g);
		if (i % 3)
			on_a_thread(reads, &o);
		else
			cf_drain(&o.r);
		ck_assert_int_eq(o.rc, 0);
		ck_assert_msg(
			!memcmp(o.down.host, o.up.host, 4096) &&
				(i % 3 != 1 ||
				 !memcmp(copy.host, o.up.host, 4096)),
			"what another thread enqueued was not waited for");
	}
	cf_drain(&o.r);
	cf_free(&o.r, &o.up);
	cf_free(&o.r, &o.down);
	cf_free(&o.r, &copy);
	cf_free(&o.r, &o.dev);
	cf_destroy(&o.r, behind);
	cf_destroy(&o.r, o.s);
	cf_close(&o.r);
}

static void hands_over(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++)
		handed_over(cf_schedule(i));
}

#define S GENAI_IFACE_STREAM
#define B GENAI_IFACE_BARRIER
#define P GENAI_IFACE_PAGER
#define E GENAI_IFACE_EXECUTOR
static const struct cf_test tests[] = {
	{"stream/manners", "GM-15", S, 0, manners},
	{"barrier/manners", "GM-15", B, 0, manners},
	{"pager/manners", "GM-15", P, 0, manners},
	{"executor/manners", "GM-15", E, 0, manners},
	{"stream/no-spinning", "GM-19", S, 0, no_spinning},
	{"pager/no-spinning", "GM-19", P, 0, no_spinning},
	{"executor/no-spinning", "GM-19", E, 0, no_spinning},
	{"stream/two-runtimes", "GM-14", S, 0, two_runtimes},
	{"pager/two-runtimes", "GM-14", P, 0, two_runtimes},
	{"executor/two-runtimes", "GM-14", E, 0, two_runtimes},
	{"stream/two-devices", "GM-14", S, 0, two_devices},
	{"stream/threads", "GM-14", S, 0, two_threads},
	{"stream/handed-over", "GM-14", S, 0, hands_over},
	{"pager/threads", "GM-14", P, 0, two_threads},
	{"executor/threads", "GM-14", E, 0, two_threads},
};
const struct cf_suite cf_suite_guest = {tests,
					sizeof(tests) / sizeof(tests[0])};
