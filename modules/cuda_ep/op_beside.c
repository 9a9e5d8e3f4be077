// op_beside.c - products some rows of which the host's cores multiply: what a
// plan keeps for that, and the kernels around it.
//
// Where parts of a node lie is learnt in the first step that comes by, which
// multiplies them where they lie; they stay there, so from then on the host is
// asked.  It is for one row of activations: of several, up to what gives a row
// the same bits, the device reads these parts where they lie, too.
#include "modules/cuda_ep/op_beside.h"

#include <sched.h>
#include <unistd.h>

#include "modules/cuda_ep/plan.h"

#define WARPS 8
#define BUSY 2		   // blocks of a multiprocessor
#define ONE_SLOTS 4096u	   // shared memory for sums: of one row
#define EIGHT_SLOTS 16384u // and of up to eight

enum state { CEP_UNKNOWN, CEP_LEARNING, CEP_ASKED };

// What a node needs besides its job: pinned memory, as the host and the device
// see it.
struct place {
	struct cep_job job; // first
	enum state state;
	char *host;
	uint64_t addr, sums_at;
};

struct cep_side {
	struct cep *self;
	struct cep_box box;
	char *bell; // a page of pinned memory
	uint64_t bell_addr;
	uint32_t n;	 // nodes
	uint32_t normed; // node + 1 whose norm was done when the host was asked
	struct place *places[];
};

// ---- a plan ----

static int32_t take_pinned(struct cep *self, uint64_t bytes, char **out_host,
			   uint64_t *out_addr, struct genai_error *err)
{
	CUdeviceptr p = 0;
	void *h = NULL;
	CUresult r;

	cep_enter(self);
	r = CU(self, cuMemHostAlloc)(&h, bytes,
				     CU_MEMHOSTALLOC_DEVICEMAP |
					     CU_MEMHOSTALLOC_PORTABLE);
	if (r)
		return cep_cuda_fail(self, err, r,
				     "cannot take %llu bytes of pinned memory",
				     (unsigned long long)bytes);
	r = CU(self, cuMemHostGetDevicePointer)(&p, h, 0);
	if (r) {
		(void)self->drv.cuMemFreeHost(h);
		return cep_cuda_fail(self, err, r, "cannot map pinned memory");
	}
	memset(h, 0, bytes);
	*out_host = h;
	*out_addr = p;
	return 0;
}

int32_t cep_side_open(struct cep *self, uint32_t n_nodes,
		      struct cep_side **out_side, struct genai_error *err)
{
	uint64_t bytes = sizeof(struct cep_side) +
			 (uint64_t)n_nodes * sizeof(struct place *);
	struct cep_side *s = cep_zalloc(self, bytes);
	int32_t rc;

	if (!s)
		return cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
	s->self = self;
	s->n = n_nodes;
	rc = take_pinned(self, 4096, &s->bell, &s->bell_addr, err);
	if (rc) {
		self->host->free(self->host->ctx, s);
		return rc;
	}
	s->box.bell = (struct cep_bell *)s->bell;
	// a job is the first thing of its place
	s->box.jobs = (struct cep_job **)s->places;
	cep_team_join(self->team, &s->box);
	*out_side = s;
	return 0;
}

void cep_side_close(struct cep_side *s)
{
	struct cep *self;

	if (!s)
		return;
	self = s->self;
	cep_team_leave(self->team, &s->box);
	cep_enter(self);
	for (uint32_t i = 0; i < s->n; i++) {
		if (s->places[i])
			(void)self->drv.cuMemFreeHost(s->places[i]->host);
		self->host->free(self->host->ctx, s->places[i]);
	}
	(void)self->drv.cuMemFreeHost(s->bell);
	self->host->free(self->host->ctx, s);
}

// ---- learning ----

static bool is_recording(struct cep *self)
{
	bool yes;

	pthread_mutex_lock(&self->lock);
	yes = self->recording != NULL;
	pthread_mutex_unlock(&self->lock);
	return yes;
}

static int32_t new_place(const struct cep_node *n, struct cep_run *r,
			 const struct cep_product4 *x)
{
	const struct cep_mm *p = &x->m;
	struct cep *self = r->self;
	struct place *at = cep_zalloc(self, sizeof(*at));
	struct cep_job *j;
	uint64_t in, out;
	int32_t rc;

	if (!at)
		return cep_fail(self, r->err, GENAI_E_NOMEM, "out of memory");
	j = &at->job;
	j->form = (struct cep_form4){
		.k = p->k,
		.shift = x->o.shift,
		.row_bytes = (uint32_t)p->ldb,
		.blocks = p->n_blocks,
		.zp_kind = p->zp_kind,
		.zp_row = p->zp_row,
		.bf16 = n->in[0]->dtype == GENAI_DT_BF16,
	};
	j->n_matrices = x->dual ? 2 : 1;
	j->rows = (uint32_t)n->in[x->first]->dims[0];
	in = cep_digit_bytes(p->k);
	out = UINT64_C(4) * j->rows * j->n_matrices;
	rc = take_pinned(self, in + out, &at->host, &at->addr, r->err);
	if (rc) {
		self->host->free(self->host->ctx, at);
		return rc;
	}
	at->sums_at = at->addr + in;
	j->x = (const unsigned char *)at->host;
	j->sums = (float *)(at->host + in);
	r->side->places[n->index] = at;
	return 0;
}

// What the host knows an address of registered or pinned memory by.
static const unsigned char *host_of(struct cep *self, uint64_t addr,
				    uint64_t bytes)
{
	const struct cep_block *b;
	const unsigned char *p = NULL;

	pthread_mutex_lock(&self->lock);
	b = cep_block_find(self, addr, bytes);
	if (b && b->host)
		p = (const unsigned char *)b->host + (addr - b->addr);
	pthread_mutex_unlock(&self->lock);
	return p;
}

static bool find_rows(const struct cep_node *n, struct cep *self,
		      const struct cep_product4 *x, uint32_t first,
		      struct cep_rows4 *out)
{
	const struct cep_mm *p = &x->m;
	uint64_t zp = p->zp_kind == CEP_ZP_PACKED ? p->zp_row
						  : UINT64_C(2) * p->n_blocks;

	out->codes = host_of(self, n->in[first]->addr, p->n * (uint64_t)p->ldb);
	out->scales = host_of(self, n->in[first + 1]->addr,
			      UINT64_C(2) * p->n * p->n_blocks);
	out->zeros = p->zp_kind
			     ? host_of(self, n->in[first + 2]->addr, p->n * zp)
			     : NULL;
	return out->codes && out->scales && (out->zeros || !p->zp_kind);
}

// A part more, unless there is no room for it, or the host cannot reach it:
// then the device goes on reading it where it lies.
static void learn(const struct cep_node *n, struct cep_run *r,
		  const struct cep_product4 *x)
{
	struct cep_job *j = &r->side->places[n->index]->job;
	struct cep_beside_part *part;

	if (j->n_parts == CEP_BESIDE_PARTS)
		return;
	part = &j->parts[j->n_parts];
	part->row = x->m.n0;
	part->n = x->m.n;
	if (find_rows(n, r->self, x, x->first, &part->m[0]) &&
	    (!x->dual || find_rows(n, r->self, x, x->second, &part->m[1])))
		j->n_parts++;
}

static bool is_asked(const struct cep_job *j, uint32_t row)
{
	for (uint32_t i = 0; i < j->n_parts; i++)
		if (j->parts[i].row == row)
			return true;
	return false;
}

bool cep_beside_learn(const struct cep_node *n, struct cep_run *r,
		      const struct cep_product4 *x, int32_t *out_rc)
{
	struct place *at = r->side->places[n->index];

	*out_rc = 0;
	if (r->beside == EXEC_ASK && (!at || at->state != CEP_ASKED)) {
		if (!at && !is_recording(r->self))
			*out_rc = new_place(n, r, x);
		at = r->side->places[n->index];
		if (at) {
			at->state = CEP_LEARNING;
			at->job.n_parts = 0;
		}
	} else if (r->beside == EXEC_LEFT && at && at->state == CEP_LEARNING) {
		learn(n, r, x);
	} else if (r->beside == EXEC_MEET && at && at->state == CEP_LEARNING) {
		cep_job_close(&at->job);
		at->state = at->job.n_parts ? CEP_ASKED : CEP_UNKNOWN;
		r->idle = true;
		return true;
	}
	r->idle = r->beside == EXEC_ASK || r->beside == EXEC_MEET;
	return r->idle;
}

// ---- kernels ----

static int32_t ask(const struct cep_node *n, struct cep_run *r,
		   const struct cep_product4 *x, const struct place *at)
{
	const struct cep_ask k = {
		.x = x->m.a,
		.to = at->addr,
		.bell = r->side->bell_addr + offsetof(struct cep_bell, rung),
		.turn = r->sync,
		.k = x->m.k,
		.job = n->index,
		.vec = x->m.vec_a,
	};

	return cep_run_kernel(
		r, at->job.form.bf16 ? CEP_K_cep_ask_bf16 : CEP_K_cep_ask_f16,
		(struct cep_dim3){1, 1, 1}, 1024, 0, &k);
}

static int32_t meet(const struct cep_node *n, struct cep_run *r,
		    const struct cep_product4 *x, const struct place *at)
{
	struct cep_meet k = {
		.m = x->m,
		.add = x->o.add,
		.bias2 = x->bias2,
		.answered = r->side->bell_addr +
			    offsetof(struct cep_bell, answered),
		.turn = r->sync,
		.sums = at->sums_at,
		.patience_ns = r->self->patience_ns,
		.job = n->index,
		.dual = x->dual,
		.n_parts = at->job.n_parts,
		.blame = cep_blame_of(n, r),
	};
	uint32_t rows = 0;

	k.m.n = at->job.rows;
	for (uint32_t i = 0; i < k.n_parts; i++) {
		k.rows[i][0] = at->job.parts[i].row;
		k.rows[i][1] = at->job.parts[i].n;
		rows += at->job.parts[i].n;
	}
	rows = (rows + 255) / 256;
	return cep_run_kernel(
		r, at->job.form.bf16 ? CEP_K_cep_meet_bf16 : CEP_K_cep_meet_f16,
		(struct cep_dim3){rows < 128 ? rows : 128, 1, 1}, 256, 0, &k);
}

static struct cep_dim3 grid_of(uint32_t x, uint32_t y)
{
	return (struct cep_dim3){x, y, 1};
}

// One row: so many blocks that each takes as many row groups as the others.
static int32_t multiply_one(const struct cep_node *n, struct cep_run *r,
			    struct cep_mv_dual_tiled *q, bool dual)
{
	static const enum cep_kernel k[2][2] = {
		{CEP_K_cep_beside_1_f16, CEP_K_cep_beside_1_bf16},
		{CEP_K_cep_besided_1_f16, CEP_K_cep_besided_1_bf16},
	};
	uint32_t rows = dual ? 8 : 16, groups = (q->m.n + rows - 1) / rows;
	uint32_t most = BUSY * (uint32_t)r->self->n_sms, each;
	uint64_t digits = q->m.part ? 0 : cep_digit_bytes(q->m.k);

	each = (groups + most - 1) / most;
	return cep_run_kernel(r, k[dual][n->in[0]->dtype == GENAI_DT_BF16],
			      grid_of((groups + each - 1) / each, 1),
			      32 * WARPS, (uint32_t)(ONE_SLOTS + digits), q);
}

// Several, up to 64 at a time: their digits first.
static int32_t multiply_many(const struct cep_node *n, struct cep_run *r,
			     struct cep_mv_dual_tiled *q, bool dual)
{
	static const enum cep_kernel k[2][2] = {
		{CEP_K_cep_beside_8_f16, CEP_K_cep_beside_8_bf16},
		{CEP_K_cep_besided_8_f16, CEP_K_cep_besided_8_bf16},
	};
	uint32_t rows = dual ? 8 : 16, all = q->m.m;
	uint64_t size = cep_dtype_bytes(n->in[0]->dtype);
	bool bf = n->in[0]->dtype == GENAI_DT_BF16;
	int32_t rc = 0;

	for (uint32_t at = 0; at < all && !rc; at += CEP_DIGIT_ROWS) {
		q->m.m = all - at < CEP_DIGIT_ROWS ? all - at : CEP_DIGIT_ROWS;
		rc = cep_run_kernel(
			r, bf ? CEP_K_cep_digits_bf16 : CEP_K_cep_digits_f16,
			grid_of(q->m.m, 1), 256, 0, &q->m);
		if (!rc)
			rc = cep_run_kernel(r, k[dual][bf],
					    grid_of((q->m.n + rows - 1) / rows,
						    (q->m.m + 7) / 8),
					    32 * WARPS, EIGHT_SLOTS, q);
		q->m.a += CEP_DIGIT_ROWS * (uint64_t)q->m.lda * size;
		q->m.out += CEP_DIGIT_ROWS * (uint64_t)q->m.ldc * size;
		if (q->o.add)
			q->o.add += CEP_DIGIT_ROWS * (uint64_t)q->m.ldc * size;
	}
	return rc;
}

// The rows of this run, on the device.
static int32_t multiply(const struct cep_node *n, struct cep_run *r,
			const struct cep_product4 *x,
			struct cep_mv_dual_tiled *q)
{
	int32_t rc = 0;

	q->m = x->m;
	q->o = x->o;
	q->bias2 = x->bias2;
	q->m.part = x->digits;
	if (x->m.m > 1)
		return multiply_many(n, r, q, x->dual);
	if (x->digits)
		rc = cep_run_kernel(r,
				    n->in[0]->dtype == GENAI_DT_BF16
					    ? CEP_K_cep_digits_bf16
					    : CEP_K_cep_digits_f16,
				    grid_of(1, 1), 256, 0, &q->m);
	return rc ? rc : multiply_one(n, r, q, x->dual);
}

uint64_t cep_digit_bytes(uint64_t k)
{
	return (k + 127) / 128 * CEP_BESIDE_DIGITS;
}

uint64_t cep_beside_bytes(const struct cep *self, uint64_t m, uint64_t k)
{
	uint64_t row = cep_digit_bytes(k);

	if (m > 1)
		return row * (m < CEP_DIGIT_ROWS ? m : CEP_DIGIT_ROWS);
	return ONE_SLOTS + row <= (uint64_t)self->max_smem - 20480 ? 0 : row;
}

int32_t cep_run_beside(const struct cep_node *n, struct cep_run *r,
		       const struct cep_product4 *x,
		       struct cep_mv_dual_tiled *q)
{
	const struct place *at = r->side->places[n->index];
	bool host = at && at->state == CEP_ASKED && x->m.m == 1;
	int32_t rc;

	if (r->beside != EXEC_NOT_BESIDE && !host &&
	    cep_beside_learn(n, r, x, &rc))
		return rc;
	if (r->beside == EXEC_ASK)
		return ask(n, r, x, at);
	if (r->beside == EXEC_MEET)
		return meet(n, r, x, at);
	if (r->beside == EXEC_LEFT && host && is_asked(&at->job, x->m.n0)) {
		r->idle = true;
		return 0;
	}
	return multiply(n, r, x, q);
}

bool cep_beside_norms(const struct cep_node *n, struct cep_run *r)
{
	struct cep_side *s = r->side;
	bool done = s->normed == n->index + 1;

	if (r->beside == EXEC_ASK || r->beside == EXEC_MEET) {
		s->normed = r->beside == EXEC_ASK ? n->index + 1 : 0;
		return s->normed;
	}
	return !done && !r->row_begin;
}

// ---- steps of many rows ----

// A matrix, its scales or its zero points.
struct staged {
	struct exec_tensor *t;
	uint64_t row_bytes, from, at;
};

static uint32_t find_staged(const struct cep_node *n,
			    const struct cep_product4 *x, struct staged *out)
{
	const struct cep_mm *p = &x->m;
	const uint64_t zp = p->zp_kind == CEP_ZP_PACKED
				    ? p->zp_row
				    : UINT64_C(2) * p->n_blocks;
	const uint64_t rows[3] = {p->ldb, UINT64_C(2) * p->n_blocks, zp};
	uint32_t count = 0, inputs = p->zp_kind ? 3 : 2;

	for (uint32_t m = 0; m < (x->dual ? 2 : 1); m++)
		for (uint32_t i = 0; i < inputs; i++) {
			uint32_t in = (m ? x->second : x->first) + i;

			out[count++] = (struct staged){n->in[in], rows[i],
						       n->in[in]->addr, 0};
		}
	return count;
}

// So many rows from row on.
static int32_t copy_staged(struct cep_run *r, struct staged *s, uint32_t count,
			   uint64_t stage, uint64_t row, uint64_t rows)
{
	struct cep *self = r->self;
	uint64_t at = stage;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t bytes = rows * s[i].row_bytes;
		const unsigned char *from =
			host_of(self, s[i].from + row * s[i].row_bytes, bytes);
		CUresult e = from ? CU(self, cuMemcpyHtoDAsync)(at, from, bytes,
								r->stream)
				  : CUDA_ERROR_INVALID_VALUE;

		if (e)
			return cep_cuda_fail(self, r->err, e,
					     "cannot copy rows that are left "
					     "to the host");
		s[i].t->addr = at;
		at += (bytes + 255) / 256 * 256;
	}
	r->overlap = false; // no kernel may begin before the copies
	return 0;
}

int32_t cep_run_staged(struct cep_node *n, struct cep_run *r,
		       const struct cep_product4 *x, uint64_t stage,
		       int32_t (*run)(struct cep_node *n, struct cep_run *r))
{
	const uint64_t begin = r->row_begin, end = begin + x->m.n;
	const uint64_t row_end = r->row_end;
	struct staged s[6];
	uint32_t count = find_staged(n, x, s);
	uint64_t row_bytes = 0, rows;
	int32_t rc = 0;

	for (uint32_t i = 0; i < count; i++)
		row_bytes += s[i].row_bytes;
	rows = (CEP_STAGE_BYTES - UINT64_C(256) * count) / row_bytes;
	rows = rows > 128 ? rows / 128 * 128 : rows / 8 * 8;
	r->beside = EXEC_NOT_BESIDE;
	for (uint64_t at = begin; !rc && rows && at < end; at += rows) {
		uint64_t some = end - at < rows ? end - at : rows;

		rc = copy_staged(r, s, count, r->workspace + stage, at - begin,
				 some);
		r->row_begin = at;
		r->row_end = at + some;
		if (!rc)
			rc = run(n, r);
	}
	for (uint32_t i = 0; i < count; i++)
		s[i].t->addr = s[i].from;
	r->row_begin = begin;
	r->row_end = row_end;
	// rows longer than the place for them: read where they lie
	if (!rows)
		rc = run(n, r);
	r->beside = EXEC_LEFT;
	return rc;
}

// ---- what plans are made by ----

#define K 4096u	     // columns of a matrix of nothing
#define ROWS 8192u   // of it: a page
#define MATRICES 40u // at most: twice what caches hold
#define COPY_BYTES (32u << 20)
#define COPIES 24u // of a round: long beside a job, after which it is seen
#define ROUNDS 5   // after one to wake everything up

struct trial {
	struct cep *self;
	struct cep_box box;
	struct cep_job job[MATRICES], *jobs[MATRICES];
	CUdeviceptr to;
	char *host;
	uint64_t addr, turn;
	uint32_t n; // jobs, which are done in turn
};

static int32_t copy_all(struct trial *t, struct genai_error *err)
{
	struct cep *self = t->self;
	CUresult r = CUDA_SUCCESS;

	for (uint32_t i = 0; i < COPIES && !r; i++)
		r = CU(self, cuMemcpyHtoDAsync)(t->to, t->host + 4096,
						COPY_BYTES, self->service);
	return r ? cep_cuda_fail(self, err, r, "copies that are timed") : 0;
}

// The next of the jobs, to its end.
static int32_t one_job(struct trial *t, struct genai_error *err)
{
	const struct genai_host *h = t->self->host;
	struct cep_bell *bell = t->box.bell;
	uint64_t begin = h->clock_ns(h->ctx), turn = ++t->turn;

	turn |= t->turn % t->n << 32;
	atomic_store(&bell->rung, turn);
	while (atomic_load(&bell->answered) != turn) {
		if (h->clock_ns(h->ctx) - begin > t->self->patience_ns)
			return cep_fail(t->self, err, GENAI_E_DEVICE,
					"the host's threads do not run");
		sched_yield();
	}
	return 0;
}

// The rates of one round, in bytes a second: of the copies and, where jobs are
// done meanwhile, of these.
static int32_t time_round(struct trial *t, bool both, double *out_link,
			  double *out_host, struct genai_error *err)
{
	const struct genai_host *h = t->self->host;
	uint64_t begin = h->clock_ns(h->ctx), ns, worked = 0, bytes = 0;
	int32_t rc = copy_all(t, err);
	CUresult r = CUDA_ERROR_NOT_READY;

	while (!rc && r == CUDA_ERROR_NOT_READY) {
		uint64_t from = h->clock_ns(h->ctx);

		if (both)
			rc = one_job(t, err);
		worked += h->clock_ns(h->ctx) - from;
		bytes += cep_job_bytes(&t->job[0]);
		r = CU(t->self, cuStreamQuery)(t->self->service);
	}
	ns = h->clock_ns(h->ctx) - begin;
	if (!rc && r)
		rc = cep_cuda_fail(t->self, err, r, "copies that are timed");
	*out_link = (double)COPIES * COPY_BYTES * 1e9 / (double)(ns + 1);
	*out_host = (double)bytes * 1e9 / (double)(worked + 1);
	return rc;
}

static double median(double *v)
{
	for (int i = 1; i < ROUNDS; i++)
		for (int k = i; k && v[k] < v[k - 1]; k--) {
			double x = v[k];

			v[k] = v[k - 1];
			v[k - 1] = x;
		}
	return v[ROUNDS / 2];
}

// What was not given.  Rates of single rounds differ by a half: cores wake up,
// others use memory; so the middle of several counts.
static int32_t time_both(struct trial *t, struct genai_error *err)
{
	struct cep *self = t->self;
	double link[ROUNDS], busy[ROUNDS], host[ROUNDS], none;
	int32_t rc = time_round(t, true, link, host, err);

	for (int i = 0; !rc && i < ROUNDS; i++) {
		rc = time_round(t, false, &link[i], &none, err);
		if (!rc)
			rc = time_round(t, true, &busy[i], &host[i], err);
	}
	if (rc)
		return rc;
	if (!self->busy_link_rate) {
		self->link_rate = (uint64_t)median(link);
		self->busy_link_rate = (uint64_t)median(busy);
	}
	if (!self->host_rate)
		self->host_rate = (uint64_t)median(host);
	return 0;
}

// So many matrices that none is left in a cache when its turn comes again.
static uint32_t enough(uint64_t bytes)
{
	long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
	uint64_t n = cache > 0 ? 2 * (uint64_t)cache / bytes + 1 : 1;

	return n < 12 ? 12 : n > MATRICES ? MATRICES : (uint32_t)n;
}

static void make_jobs(struct trial *t, uint64_t codes, uint64_t scales)
{
	char *at = t->host + 4096, *x = at + t->n * (codes + scales);

	t->box.bell = (struct cep_bell *)t->host;
	t->box.jobs = t->jobs;
	for (uint32_t i = 0; i < t->n; i++, at += codes + scales) {
		struct cep_job *j = t->jobs[i] = &t->job[i];

		*j = (struct cep_job){
			.form = {.k = K, .row_bytes = K / 2, .blocks = K / 32},
			.n_parts = 1,
			.n_matrices = 1,
			.rows = ROWS,
			.x = (unsigned char *)x,
			.sums = (float *)(x + cep_digit_bytes(K)),
		};
		j->parts[0] = (struct cep_beside_part){.n = ROWS};
		j->parts[0].m[0] = (struct cep_rows4){
			.codes = (unsigned char *)at,
			.scales = (unsigned char *)at + codes,
		};
		cep_job_close(j);
	}
}

int32_t cep_measure(struct cep *self, struct genai_error *err)
{
	struct trial *t = cep_zalloc(self, sizeof(*t));
	uint64_t codes = UINT64_C(1) * ROWS * K / 2, scales = codes / 8;
	CUresult r;
	int32_t rc;

	if (!t)
		return cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
	t->self = self;
	t->n = enough(codes + scales);
	rc = take_pinned(self,
			 4096 + t->n * (codes + scales) + cep_digit_bytes(K) +
				 4 * ROWS,
			 &t->host, &t->addr, err);
	if (rc)
		goto err_free;
	r = CU(self, cuMemAlloc)(&t->to, COPY_BYTES);
	if (r) {
		rc = cep_cuda_fail(self, err, r,
				   "cannot take %u bytes of device memory",
				   COPY_BYTES);
		goto err_pinned;
	}
	make_jobs(t, codes, scales);
	cep_team_join(self->team, &t->box);
	rc = time_both(t, err);
	cep_team_leave(self->team, &t->box);
	(void)self->drv.cuStreamSynchronize(self->service);
	(void)self->drv.cuMemFree(t->to);
	if (!rc)
		self->host->log(self->host->ctx, GENAI_LOG_INFO,
				"host_threads: the link brings %.1f GB/s; %.1f "
				"GB/s while they multiply %.1f GB/s",
				(double)self->link_rate * 1e-9,
				(double)self->busy_link_rate * 1e-9,
				(double)self->host_rate * 1e-9);
err_pinned:
	(void)self->drv.cuMemFreeHost(t->host);
err_free:
	self->host->free(self->host->ctx, t);
	return rc;
}
