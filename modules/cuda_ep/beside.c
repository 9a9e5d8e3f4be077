// beside.c - the threads that multiply rows on the host's cores.
// One of them leads: it looks at the bells, opens a job for all, multiplies
// with them, and answers when the last rows are done.  Rows are claimed chunk
// by chunk, so that a thread that was held up holds up no more than its chunk:
// large ones first, as what begins anew is not asked for ahead, then small ones.
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "modules/cuda_ep/beside.h"

#define LARGE_BYTES 262144u // of a matrix's rows, about
#define SMALL_BYTES 32768u  // the last quarter
#define EAGER_NS 50000000u // look hard for so long after the last job
#define NAP_NS 50000	   // then now and then
#define CLOSED UINT32_MAX  // no chunk can be claimed
#define LOOKS 256u	   // between two looks at the clock

struct member {
	struct cep_team *team;
	void *thread;
	int cpu; // -1: any
};

struct cep_team {
	const struct genai_host *host;
	enum cep_level level;
	uint32_t n;
	bool crowded; // as many threads as cores: they give way
	struct member *members;
	struct cep_box *boxes;
	_Atomic bool stop;
	// boxes are changed while the leader stands still
	pthread_mutex_t lock;
	_Atomic uint32_t halts, halted;

	_Alignas(64) _Atomic uint64_t claim; // turn << 32 | next chunk
	const struct cep_job *_Atomic job;   // of that turn
	_Alignas(64) _Atomic uint32_t left;  // chunks
	uint64_t bytes, ns;		     // the leader's: all jobs so far
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void breathe(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

// ---- a job ----

static uint32_t rows_of(const struct cep_job *j, uint32_t bytes)
{
	uint32_t rows = bytes / (j->form.row_bytes * j->n_matrices);

	return rows < 4 ? 4 : rows / 4 * 4;
}

void cep_job_close(struct cep_job *j)
{
	j->large_rows = rows_of(j, LARGE_BYTES);
	j->small_rows = rows_of(j, SMALL_BYTES);
	j->n_chunks = 0;
	for (uint32_t i = 0; i < j->n_parts; i++) {
		struct cep_beside_part *p = &j->parts[i];
		bool last = i + 1 == j->n_parts;
		uint32_t left;

		p->first_chunk = j->n_chunks;
		p->n_large = (last ? p->n / 4 * 3 : p->n) / j->large_rows;
		left = p->n - p->n_large * j->large_rows;
		j->n_chunks +=
			p->n_large + (left + j->small_rows - 1) / j->small_rows;
	}
}

uint64_t cep_job_bytes(const struct cep_job *j)
{
	uint64_t rows = 0;

	for (uint32_t i = 0; i < j->n_parts; i++)
		rows += j->parts[i].n;
	return rows * j->n_matrices *
	       (j->form.row_bytes + 2 * (uint64_t)j->form.blocks);
}

static void multiply(enum cep_level level, const struct cep_job *j,
		     uint32_t chunk)
{
	const struct cep_beside_part *p = &j->parts[j->n_parts - 1];
	uint32_t at, n;

	while (p->first_chunk > chunk)
		p--;
	chunk -= p->first_chunk;
	n = chunk < p->n_large ? j->large_rows : j->small_rows;
	at = chunk < p->n_large
		     ? chunk * n
		     : p->n_large * j->large_rows + (chunk - p->n_large) * n;
	n = p->n - at < n ? p->n - at : n;
	for (uint32_t i = 0; i < j->n_matrices; i++)
		cep_multiply4(level, &j->form, &p->m[i], at, n, j->x,
			      j->sums + (uint64_t)i * j->rows + p->row + at);
}

// Claim chunks and multiply them until there are none; true if there were any.
static bool work(struct cep_team *t)
{
	bool any = false;

	for (;;) {
		uint64_t c =
			atomic_load_explicit(&t->claim, memory_order_acquire);
		const struct cep_job *j;

		if ((uint32_t)c == CLOSED)
			return any;
		// of this turn if the claim succeeds: it was closed meanwhile
		// else
		j = atomic_load_explicit(&t->job, memory_order_relaxed);
		if ((uint32_t)c >= j->n_chunks)
			return any;
		if (!atomic_compare_exchange_weak_explicit(
			    &t->claim, &c, c + 1, memory_order_acquire,
			    memory_order_relaxed))
			continue;
		any = true;
		multiply(t->level, j, (uint32_t)c);
		atomic_fetch_sub_explicit(&t->left, 1, memory_order_release);
	}
}

static void serve(struct cep_team *t, struct cep_box *box, uint64_t rung)
{
	const struct cep_job *j = box->jobs[rung >> 32];
	uint64_t turn =
		(atomic_load_explicit(&t->claim, memory_order_relaxed) >> 32) +
		1;
	uint64_t begin = now_ns();

	atomic_store_explicit(&t->left, j->n_chunks, memory_order_relaxed);
	atomic_store_explicit(&t->job, j, memory_order_relaxed);
	atomic_store_explicit(&t->claim, turn << 32, memory_order_release);
	(void)work(t);
	for (uint32_t i = 1;
	     atomic_load_explicit(&t->left, memory_order_acquire); i++) {
		breathe();
		if (t->crowded || i % LOOKS == 0)
			sched_yield();
	}
	atomic_store_explicit(&t->claim, turn << 32 | CLOSED,
			      memory_order_release);
	atomic_store_explicit(&box->bell->answered, rung, memory_order_release);
	t->bytes += cep_job_bytes(j);
	t->ns += now_ns() - begin;
}

// ---- threads ----

static bool look(struct cep_team *t)
{
	bool any = false;

	for (struct cep_box *b = t->boxes; b; b = b->next) {
		uint64_t rung = atomic_load_explicit(&b->bell->rung,
						     memory_order_acquire);

		if (rung == b->seen)
			continue;
		b->seen = rung;
		serve(t, b, rung);
		any = true;
	}
	return any;
}

// Between two looks that found nothing: at first at once, later with naps.
static void wait_a_little(const struct cep_team *t, uint32_t *looks,
			  uint64_t *since)
{
	const struct timespec nap = {0, NAP_NS};

	breathe();
	if (t->crowded)
		sched_yield();
	if (++*looks % LOOKS)
		return;
	if (now_ns() - *since > EAGER_NS) {
		nanosleep(&nap, NULL);
		*looks = LOOKS - 2; // the next look may be followed by a nap
	}
}

static void lead(struct cep_team *t)
{
	uint64_t since = now_ns();
	uint32_t looks = 0;

	while (!atomic_load_explicit(&t->stop, memory_order_relaxed)) {
		uint32_t halts =
			atomic_load_explicit(&t->halts, memory_order_acquire);

		if (halts & 1) {
			atomic_store_explicit(&t->halted, halts,
					      memory_order_release);
			sched_yield();
			continue;
		}
		if (look(t))
			since = now_ns();
		else
			wait_a_little(t, &looks, &since);
	}
}

static void follow(struct cep_team *t)
{
	uint64_t since = now_ns();
	uint32_t looks = 0;

	while (!atomic_load_explicit(&t->stop, memory_order_relaxed))
		if (work(t))
			since = now_ns();
		else
			wait_a_little(t, &looks, &since);
}

static void run(void *arg)
{
	struct member *m = arg;

	if (m->cpu >= 0) {
		cpu_set_t one;

		CPU_ZERO(&one);
		CPU_SET(m->cpu, &one);
		// where that is refused it runs where it may
		(void)pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
	}
	if (m == m->team->members)
		lead(m->team);
	else
		follow(m->team);
}

// The cores that this process may use, from the last one: the first are where
// others begin.
static uint32_t find_cores(int *cpu, uint32_t most)
{
	cpu_set_t set;
	uint32_t n = 0;

	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set))
		return 0;
	for (int i = CPU_SETSIZE; i-- > 0;)
		if (CPU_ISSET(i, &set) && n++ < most)
			cpu[n - 1] = i;
	return n;
}

int32_t cep_team_start(const struct genai_host *host, uint32_t threads,
		       struct cep_team **out_team, uint32_t *out_n,
		       struct genai_error *err)
{
	struct cep_team *t = host->alloc(host->ctx, sizeof(*t), "threads");
	int cpu[CPU_SETSIZE];
	uint32_t cores = find_cores(cpu, CPU_SETSIZE);
	int32_t rc = 0;

	if (cores && threads > cores)
		threads = cores;
	if (t) {
		memset(t, 0, sizeof(*t));
		t->members = host->alloc(
			host->ctx, threads * sizeof(*t->members), "threads");
	}
	if (!t || !t->members) {
		host->free(host->ctx, t);
		return host->error_set(host->ctx, err, GENAI_E_NOMEM,
				       "no memory for %u threads", threads);
	}
	t->host = host;
	t->level = cep_beside_level();
	t->crowded = threads >= cores;
	pthread_mutex_init(&t->lock, NULL);
	atomic_store(&t->claim, CLOSED);
	for (; !rc && t->n < threads; t->n++) {
		struct member *m = &t->members[t->n];

		*m = (struct member){t, NULL, cores ? cpu[t->n] : -1};
		rc = host->thread_create(host->ctx, "beside", run, m,
					 &m->thread);
		if (rc)
			break;
	}
	if (rc) {
		cep_team_stop(t);
		return host->error_set(host->ctx, err, rc,
				       "cannot start %u threads", threads);
	}
	*out_team = t;
	*out_n = threads;
	return 0;
}

void cep_team_stop(struct cep_team *t)
{
	if (!t)
		return;
	atomic_store(&t->stop, true);
	for (uint32_t i = 0; i < t->n; i++)
		t->host->thread_join(t->host->ctx, t->members[i].thread);
	if (t->ns)
		t->host->log(t->host->ctx, GENAI_LOG_INFO,
			     "host_threads: %u multiplied %.3f GB at %.1f GB/s",
			     t->n, (double)t->bytes * 1e-9,
			     (double)t->bytes / (double)t->ns);
	pthread_mutex_destroy(&t->lock);
	t->host->free(t->host->ctx, t->members);
	t->host->free(t->host->ctx, t);
}

// ---- boxes ----

// The leader looks at none until resume().
static void halt(struct cep_team *t)
{
	uint32_t halts;

	pthread_mutex_lock(&t->lock);
	halts = atomic_fetch_add(&t->halts, 1) + 1;
	while (atomic_load_explicit(&t->halted, memory_order_acquire) != halts)
		sched_yield();
}

static void resume(struct cep_team *t)
{
	atomic_fetch_add_explicit(&t->halts, 1, memory_order_release);
	pthread_mutex_unlock(&t->lock);
}

void cep_team_join(struct cep_team *t, struct cep_box *box)
{
	halt(t);
	box->seen = atomic_load(&box->bell->rung);
	box->next = t->boxes;
	t->boxes = box;
	resume(t);
}

void cep_team_leave(struct cep_team *t, struct cep_box *box)
{
	struct cep_box **at = &t->boxes;

	halt(t);
	while (*at != box)
		at = &(*at)->next;
	*at = box->next;
	resume(t);
}
