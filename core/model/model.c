// model.c - opening a model folder: config, graph, step graph, plan, weights.
#include "core/model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/model/agree.h"
#include "core/model/fit.h"
#include "core/model/folder.h"
#include "core/model/pipeline.h"

// Tokens of a prompt that go through the graph together, where the model does
// not say.  Wide: on devices that compute themselves, whose products need many
// rows to be busy; not where that takes an eighth of device_limit.
#define WIDE_CHUNK 2048
#define DEFAULT_CHUNK 512
#define MAX_CACHE (UINT64_C(1) << 46)

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void warn(void *ctx, const char *text)
{
	struct genai_runtime *rt = ctx;

	genai_log_line(&rt->log, GENAI_LOG_WARN, "%s", text);
}

static int32_t load_files(struct genai_model *m, const char *path,
			  struct genai_error *err)
{
	struct genai_onnx_options o = {0};
	char file[256];
	int32_t rc = genai_graph_folder(path, m->folder, sizeof(m->folder),
					file, sizeof(file), err);

	if (rc)
		return rc;
	rc = genai_model_config_load(m->folder, &m->rt->log, &m->config, err);
	m->no_config = rc == GENAI_E_NOTFOUND;
	if (rc && !m->no_config)
		return rc;
	if (file[0])
		snprintf(m->config.filename, sizeof(m->config.filename), "%s",
			 file);
	o.trusted_roots =
		genai_config_get(m->rt->config, "runtime", "trusted_roots");
	o.warn = warn;
	o.warn_ctx = m->rt;
	return genai_pipeline_load(m->folder, file, &m->config, &o, &m->onnx,
				   err);
}

// ---- sizes ----

static int32_t model_context(struct genai_model *m, struct genai_error *err)
{
	int64_t c = m->config.context_length, rope = m->step.rope_rows;

	if (c <= 0 && rope <= 0)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: genai_config.json does not say "
				  "model.context_length, and the graph has no "
				  "rope table",
				  m->folder);
	if (c <= 0)
		c = rope;
	if (rope > 0 && c > rope)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: model.context_length is %" PRId64
				  ", but the rope table has %" PRId64 " rows",
				  m->folder, c, rope);
	m->model_context = (uint64_t)c;
	return 0;
}

// Bytes that caches may take when nobody said: what the device limit leaves
// beside the weights, or half of the free host memory of a shared device.
static uint64_t kv_room(struct genai_model *m)
{
	struct genai_device *d = &m->rt->device;
	uint64_t pages, weights = 0;

	for (uint32_t i = 0; i < m->step.graph->n_tensors; i++)
		weights += genai_graph_tensor(m->step.graph, i)->bytes;
	if (d->caps.flags & GENAI_STREAM_CAP_SHARED && d->limit == UINT64_MAX) {
		pages = (uint64_t)sysconf(_SC_AVPHYS_PAGES);
		return pages * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
	}
	if (d->limit == UINT64_MAX)
		pages = d->caps.free_bytes / 10 * 9;
	else
		pages = d->limit - (d->used < d->limit ? d->used : d->limit);
	// an eighth for activations, which are planned later
	pages -= pages / 8;
	// at least a quarter, at most what the weights leave
	return pages > weights + pages / 4 ? pages - weights : pages / 4;
}

static int32_t choose_context(struct genai_model *m, struct genai_error *err)
{
	const char *v = genai_config_get(m->rt->config, "runtime", "context");
	uint64_t row = m->step.states.row_bytes, want, fit, fixed;

	if (strcmp(v, "auto")) {
		if (genai_parse_u64(v, &want, NULL) || !want)
			return genai_config_fail(
				m->rt->config, "runtime", "context", err,
				"is not a number of positions");
		if (want > m->model_context)
			return genai_config_fail(
				m->rt->config, "runtime", "context", err,
				"the model allows %" PRIu64 " positions",
				m->model_context);
		m->context = want;
		return 0;
	}
	m->context = m->model_context;
	if (!row)
		return 0;
	fit = kv_room(m);
	fixed = genai_states_bytes(&m->step.states, 0);
	fit = fit > fixed ? (fit - fixed) / row : 0;
	if (fit >= m->context) {
		genai_log_line(&m->rt->log, GENAI_LOG_INFO,
			       "%s: context = auto: all %" PRIu64
			       " positions of the model, %" PRIu64
			       " bytes of cache for a sequence (set [runtime] "
			       "context for fewer)",
			       m->folder, m->context,
			       genai_states_bytes(&m->step.states, m->context));
		return 0;
	}
	if (!fit)
		return genai_fail(err, GENAI_E_LIMIT,
				  "%s: one position of the key/value cache "
				  "takes %" PRIu64
				  " bytes: no room for any; raise device_limit",
				  m->folder, row);
	m->context = fit;
	genai_log_line(&m->rt->log, GENAI_LOG_WARN,
		       "%s: context limited to %" PRIu64 " of %" PRIu64
		       " positions by memory (set [runtime] context to choose)",
		       m->folder, fit, m->model_context);
	return 0;
}

// No product of the two overflows from here on.
static int32_t check_cache(struct genai_model *m, struct genai_error *err)
{
	uint64_t bytes, row = m->step.states.row_bytes;

	if (!__builtin_mul_overflow(m->context, row, &bytes) &&
	    bytes <= MAX_CACHE && m->step.states.replaced_bytes <= MAX_CACHE)
		return 0;
	return genai_fail(err, GENAI_E_LIMIT,
			  "%s: a key/value cache of %" PRIu64
			  " positions of %" PRIu64 " bytes is too large",
			  m->folder, m->context, row);
}

// Blocks of the pool: what memory has room for, at most all contexts.  Where
// nothing limits it (a device that shares the host's memory), as much as a
// context takes, or MANY_POSITIONS.
#define MANY_POSITIONS 16384

static int32_t choose_blocks(struct genai_model *m, struct genai_error *err)
{
	struct genai_packing *k = &m->packing;
	uint64_t row = m->step.states.row_bytes, most, fit, wish;

	if (m->step.states.replaced_bytes || m->step.states.n_joined || !row)
		return genai_fail(
			err, GENAI_E_UNSUPPORTED,
			"%s: sequences cannot share a step: the model "
			"has a state that every step makes anew, or none",
			m->folder);
	most = k->blocks;
	wish = m->context;
	if (m->rt->device.caps.flags & GENAI_STREAM_CAP_SHARED &&
	    m->rt->device.limit == UINT64_MAX)
		wish = wish > MANY_POSITIONS ? wish : MANY_POSITIONS;
	else
		wish *= k->seqs;
	wish = (wish + k->block - 1) / k->block;
	if (wish > (uint64_t)k->seqs * ((m->context + k->block - 1) / k->block))
		wish = (uint64_t)k->seqs *
		       ((m->context + k->block - 1) / k->block);
	fit = kv_room(m) / row / k->block;
	if (!most || most > wish)
		most = wish;
	if (most > fit)
		most = fit;
	if (!most)
		return genai_fail(
			err, GENAI_E_LIMIT,
			"%s: a block of %u positions of the key/value "
			"cache takes %" PRIu64
			" bytes: no room for any; raise device_limit",
			m->folder, k->block, k->block * row);
	if (most > INT32_MAX / k->block)
		most = INT32_MAX / k->block;
	k->blocks = (uint32_t)most;
	// a sequence alone always has enough
	if (m->context > most * k->block)
		m->context = most * k->block;
	k->per_seq = (uint32_t)((m->context + k->block - 1) / k->block);
	return 0;
}

static int32_t choose_sizes(struct genai_model *m, struct genai_error *err)
{
	int64_t vocab =
		m->step.vocab > 0 ? m->step.vocab : m->config.vocab_size;
	int32_t rc = model_context(m, err);

	if (rc)
		return rc;
	if (vocab <= 0 || vocab > 1 << 22)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: the width of the logits is not known",
				  m->folder);
	m->vocab = (uint32_t)vocab;
	rc = choose_context(m, err);
	if (!rc)
		rc = check_cache(m, err);
	if (rc)
		return rc;
	m->chunk = m->config.chunk_size > 0 ? (uint64_t)m->config.chunk_size
		   : m->rt->device.caps.flags & GENAI_STREAM_CAP_NATIVE
			   ? WIDE_CHUNK
			   : DEFAULT_CHUNK;
	if (m->chunk > m->context)
		m->chunk = m->context;
	if (!m->packing.seqs)
		return 0;
	rc = choose_blocks(m, err);
	// a prompt does not hold up the others for longer
	if (m->chunk > DEFAULT_CHUNK)
		m->chunk = DEFAULT_CHUNK;
	if (m->chunk < m->packing.seqs)
		m->chunk = m->packing.seqs;
	return rc;
}

uint64_t genai_model_driver_bytes(struct genai_device *d)
{
	struct genai_stream_stats st = {.size = sizeof(st)};

	if (d->stream.ops->stats(d->stream.self, &st, NULL) ||
	    st.device_used_bytes < d->used)
		return 0;
	return st.device_used_bytes - d->used;
}

// What device_limit leaves for weights: states of one session set aside.
static uint64_t weight_room(struct genai_model *m)
{
	struct genai_device *d = &m->rt->device;
	uint64_t positions =
		m->packing.seqs ? (uint64_t)m->packing.blocks * m->packing.block
				: m->context;
	uint64_t aside = genai_states_bytes(&m->step.states, positions) +
			 (UINT64_C(4) << 20),
		 limit = d->limit;

	if (limit == UINT64_MAX) {
		if (d->caps.flags & GENAI_STREAM_CAP_SHARED ||
		    d->caps.free_bytes == UINT64_MAX)
			return UINT64_MAX;
		limit = d->used + d->caps.free_bytes / 100 * 95;
	}
	aside += d->used + genai_model_driver_bytes(d);
	return limit > aside ? limit - aside : 0;
}

static int32_t progress(const struct genai_model_options *o, const char *what,
			uint64_t done, uint64_t total, struct genai_error *err)
{
	if (!o || !o->progress ||
	    !o->progress(o->progress_ctx, what, done, total))
		return 0;
	return genai_fail(err, GENAI_E_INTERRUPTED, "interrupted");
}

// What is wrong with a graph names its node; say whose graph it is.
static int32_t of_model(const struct genai_model *m, int32_t rc,
			struct genai_error *err)
{
	if (rc && err)
		genai_error_prefix(err, "%s", m->folder);
	return rc;
}

// Plan anew with chunks of the usual length.
static int32_t plan_shorter(struct genai_model *m, struct genai_error *err)
{
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	struct genai_plan *plan = m->plan;
	int32_t rc = 0;

	m->plan = NULL;
	if (plan)
		rc = genai_device_drain(&m->rt->device, &ticket, err);
	if (plan && !rc)
		rc = m->rt->exec.plan_destroy(plan, &ticket, err);
	m->chunk = DEFAULT_CHUNK;
	return rc ? rc : genai_model_plan(m, &m->plan, err);
}

static int32_t first_plan(struct genai_model *m, struct genai_error *err)
{
	const struct genai_device *d = &m->rt->device;
	struct genai_error own = GENAI_ERROR_INIT;
	uint64_t before = d->used;
	int32_t rc;

	if (!err)
		err = &own;
	rc = genai_model_plan(m, &m->plan, err);
	if (!m->config.chunk_size && m->chunk > DEFAULT_CHUNK &&
	    (rc == GENAI_E_LIMIT || (!rc && d->used - before > d->limit / 8)))
		rc = plan_shorter(m, err);
	if (rc == GENAI_E_LIMIT && !m->packing.seqs)
		genai_fit_advise(m, err);
	m->plan_bytes = d->used - before;
	return of_model(m, rc, err);
}

// A pager that places weights can also say where, or not.
static int32_t dry(struct genai_model *m, struct genai_error *err)
{
	if (!m->rt->pager_ops.plan)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "module %s cannot tell what it would do "
				  "with weights",
				  genai_module_name(m->rt->pager.module));
	m->paging.dry = true;
	return 0;
}

static enum genai_step_rows step_rows(const struct genai_model *m)
{
	if (m->packing.seqs)
		return GENAI_STEP_PACKED;
	return m->all_logits ? GENAI_STEP_ALL : GENAI_STEP_LAST;
}

// Does the executor multiply with matrices of fewer bits?
static bool has_narrow(const struct genai_model *m)
{
	const struct genai_exec_caps *c = &m->rt->exec_caps;

	for (uint32_t i = 0; i < c->n_ops; i++) {
		const struct genai_exec_op *o =
			(const void *)((const char *)c->ops +
				       (size_t)i * c->op_stride);

		if (!strcmp(o->domain, "genai") && !strcmp(o->op, "MatMul"))
			return true;
	}
	return false;
}

static int32_t open_model(struct genai_model *m, const char *path,
			  const struct genai_model_options *o,
			  struct genai_error *err)
{
	struct genai_device *d = &m->rt->device;
	int32_t rc = progress(o, "reading", 0, 4, err);

	if (!rc)
		rc = load_files(m, path, err);
	if (!rc)
		rc = of_model(m,
			      genai_step_build(genai_onnx_graph(m->onnx),
					       &m->config, step_rows(m),
					       has_narrow(m), &m->step, err),
			      err);
	if (!rc)
		rc = of_model(m, genai_model_agrees(&m->config, &m->step, err),
			      err);
	if (!rc)
		rc = choose_sizes(m, err);
	if (!rc)
		rc = progress(o, "planning", 1, 4, err);
	if (!rc)
		rc = d->stream.ops->create(d->stream.self, "compute",
					   &m->stream, err);
	if (!rc)
		rc = genai_paging_open(m->rt, &m->paging, err);
	if (!rc && ((o && o->flags & GENAI_MODEL_FIT) || m->packing.dry))
		rc = dry(m, err);
	if (!rc)
		rc = first_plan(m, err);
	if (!rc)
		rc = progress(o, "placing weights", 2, 4, err);
	if (!rc)
		rc = genai_paging_seal(&m->paging, m->plan, m->step.graph,
				       weight_room(m), err);
	if (!rc)
		rc = genai_onnx_check(m->onnx, err);
	if (!rc)
		rc = progress(o, "ready", 4, 4, err);
	if (!rc && m->no_config)
		genai_log_line(&m->rt->log, GENAI_LOG_WARN,
			       "%s: no genai_config.json: names and sizes are "
			       "those of the graph and config.json",
			       m->folder);
	return rc;
}

// After an error of the device: what the pager enqueued is void.
static int32_t reset_pager(struct genai_user *user, struct genai_error *err)
{
	struct genai_model *m = (struct genai_model *)(void *)user;
	struct genai_pager_api *p = &m->paging.api;
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	int32_t rc;

	if (!p->pager || (!m->sessions && !m->packing.seqs))
		return 0;
	rc = genai_device_drain(&m->rt->device, &ticket, err);
	return rc ? rc : p->ops->reset(p->pager, &ticket, err);
}

static int32_t make_model(struct genai_runtime *rt, const char *path,
			  const struct genai_model_options *o,
			  const struct genai_packing *packing,
			  struct genai_model **out_model,
			  struct genai_error *err)
{
	double start = now_s();
	struct genai_model *m;
	int32_t rc = genai_device_forked(&rt->device, err);

	if (rc)
		return rc;
	m = calloc(1, sizeof(*m));
	if (!m)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	m->rt = rt;
	m->all_logits = o && o->flags & GENAI_MODEL_ALL_LOGITS;
	if (packing)
		m->packing = *packing;
	m->user.reset = reset_pager;
	genai_runtime_enter(rt, &m->user);
	rt->n_models++;
	rc = open_model(m, path, o, err);
	m->load_s = now_s() - start;
	if (rc)
		genai_model_close(m);
	else
		*out_model = m;
	return rc;
}

int32_t genai_model_open(struct genai_runtime *rt, const char *path,
			 const struct genai_model_options *o,
			 struct genai_model **out_model,
			 struct genai_error *err)
{
	if (!rt)
		return genai_fail(err, GENAI_E_INVAL, "there is no runtime");
	if (o && (!GENAI_HAS(o, progress_ctx) ||
		  !genai_options_known(o, sizeof(*o)) ||
		  o->flags & ~(GENAI_MODEL_ALL_LOGITS | GENAI_MODEL_FIT)))
		return genai_fail(err, GENAI_E_INVAL,
				  "model options: size %u, flags %#x", o->size,
				  o->flags);
	return make_model(rt, path, o, NULL, out_model, err);
}

int32_t genai_model_open_packed(struct genai_runtime *rt, const char *path,
				const struct genai_packing *packing,
				struct genai_model **out_model,
				struct genai_error *err)
{
	return make_model(rt, path, NULL, packing, out_model, err);
}

void genai_model_close(struct genai_model *m)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	struct genai_device *d;
	int32_t rc = 0;

	if (!m)
		return;
	d = &m->rt->device;
	if (m->n_sessions) {
		genai_log_line(&m->rt->log, GENAI_LOG_ERROR,
			       "model closed with %u sessions open: leaked",
			       m->n_sessions);
		return;
	}
	if (m->plan && !m->plan_taken) {
		rc = genai_device_drain(d, &ticket, &err);
		if (!rc)
			rc = m->rt->exec.plan_destroy(m->plan, &ticket, &err);
	}
	if (!rc)
		rc = genai_paging_close(&m->paging, &err);
	if (!rc && m->stream)
		rc = d->stream.ops->destroy(d->stream.self, m->stream, &err);
	if (rc)
		genai_log_line(&m->rt->log, GENAI_LOG_ERROR,
			       "closing a model: %s", err.text);
	genai_runtime_leave(m->rt, &m->user);
	m->rt->n_models--;
	genai_step_free(&m->step);
	genai_onnx_close(m->onnx);
	free(m);
}

int32_t genai_model_get_info(const struct genai_model *m,
			     struct genai_model_info *out)
{
	const struct genai_model_config *c = &m->config;
	struct genai_model_info i = {
		.size = sizeof(i),
		.vocab_size = m->vocab,
		.model_context = m->model_context,
		.context = m->context,
		.weights_bytes = m->paging.weights_bytes,
		.kv_bytes_per_position = m->step.states.row_bytes,
		.n_eos = c->n_eos,
		.all_logits = m->all_logits && !m->step.one_row,
		.eos = c->eos,
		.bos = c->bos,
		.pad = c->pad,
		.type = c->type,
		.do_sample = c->do_sample,
		.temperature = (float)c->temperature,
		.top_p = (float)c->top_p,
		.repetition_penalty = (float)c->repetition_penalty,
		.top_k = c->top_k,
		.max_length = c->max_length,
		.min_length = c->min_length,
		.no_repeat_ngram = c->no_repeat_ngram,
		.chunk = m->chunk,
		.any_cut =
			!!(m->rt->exec_caps.flags & GENAI_EXEC_CAP_ROWS_EXACT),
	};

	if (!GENAI_HAS(out, vocab_size))
		return GENAI_E_INVAL;
	genai_struct_give(out, &i);
	return 0;
}
