// embed.c - embedders: a text's tokens to one vector.
//
// A graph that keeps nothing from one run to the next.  Its inputs are filled
// for [1, n] tokens; of what it gives the rows are pooled on the host, in one
// order, so a vector is the same whatever ran before.
#include <genai/genai.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/graph/build.h"
#include "core/model/embed.h"
#include "core/model/embed_config.h"
#include "core/model/folder.h"
#include "core/model/paging.h"
#include "core/model/session.h"
#include "core/onnx/onnx.h"
#include "core/recover.h"

#define LEAST_TOKENS 128 // below that no memory is saved

enum { IN_IDS, IN_MASK, IN_TYPES, IN_POSITIONS, N_IN };
static const char *const in_names[N_IN] = {"input_ids", "attention_mask",
					   "token_type_ids", "position_ids"};

struct genai_embedder {
	struct genai_user user; // first: see reset_pager
	struct genai_runtime *rt;
	char folder[4200];
	struct genai_embed_config config;
	struct genai_onnx *onnx;
	struct genai_graph *graph; // the model's, less outputs not read
	uint32_t in[N_IN];	   // index of the input, or GENAI_NONE
	uint32_t dimensions, dtype;
	bool one_row; // the graph pools
	struct genai_stream *stream;
	struct genai_paging paging;
	struct genai_plan *plan;
	struct genai_mem ids, rows, stage, result; // inputs; outputs
	bool broken, failed;			   // failed: the last run did
};

// ---- the graph ----

static const char *const row_names[] = {"last_hidden_state", "token_embeddings",
					"hidden_states"};
static const char *const vector_names[] = {"sentence_embedding", "text_embeds"};

static uint32_t named_output(const struct genai_graph *g,
			     const char *const *names, size_t n)
{
	for (size_t k = 0; k < n; k++)
		for (uint32_t i = 0; i < g->n_outputs; i++)
			if (!strcmp(genai_graph_value(g, g->outputs[i])->name,
				    names[k]))
				return i;
	return GENAI_NONE;
}

// The rows if they are to be pooled, else the vector that the graph makes.
static uint32_t choose_output(struct genai_embedder *e,
			      const struct genai_graph *g, bool pooling_wanted)
{
	uint32_t rows = named_output(g, row_names, 3);
	uint32_t vector = named_output(g, vector_names, 2);

	e->one_row = vector != GENAI_NONE && !pooling_wanted;
	if (e->one_row)
		return vector;
	return rows != GENAI_NONE ? rows : g->n_outputs == 1 ? 0 : GENAI_NONE;
}

static int32_t find_inputs(struct genai_embedder *e,
			   const struct genai_graph *g, struct genai_error *err)
{
	for (uint32_t k = 0; k < N_IN; k++)
		e->in[k] = GENAI_NONE;
	for (uint32_t i = 0; i < g->n_inputs; i++) {
		const struct genai_value *v =
			genai_graph_value(g, g->inputs[i]);
		uint32_t k = 0;

		while (k < N_IN && strcmp(v->name, in_names[k]))
			k++;
		if (k == N_IN)
			return genai_fail(err, GENAI_E_UNSUPPORTED,
					  "%s: graph input %s is none of an "
					  "embedding model (input_ids, "
					  "attention_mask, token_type_ids, "
					  "position_ids)",
					  e->folder, v->name);
		if ((v->dtype != GENAI_DT_I64 && v->dtype != GENAI_DT_I32) ||
		    v->rank != 2 || v->dims[0] > 1 || v->dims[1] >= 0)
			return genai_fail(
				err, GENAI_E_UNSUPPORTED,
				"%s: graph input %s is not of integers "
				"and of a free shape [batch, length]",
				e->folder, v->name);
		e->in[k] = i;
	}
	return e->in[IN_IDS] == GENAI_NONE
		       ? genai_fail(err, GENAI_E_UNSUPPORTED,
				    "%s: the graph has no input input_ids",
				    e->folder)
		       : 0;
}

static int32_t make_graph(struct genai_embedder *e, bool pooling_wanted,
			  struct genai_error *err)
{
	const struct genai_graph *g = genai_onnx_graph(e->onnx);
	uint32_t out = choose_output(e, g, pooling_wanted);
	struct genai_builder *b;

	if (out == GENAI_NONE)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: the graph has none of the outputs "
				  "last_hidden_state, token_embeddings and "
				  "sentence_embedding",
				  e->folder);
	b = genai_builder_open("embed");
	genai_builder_copy(b, g);
	for (uint32_t i = 0; i < g->n_outputs; i++)
		if (i != out)
			genai_builder_remove_output(b, g->outputs[i]);
	genai_builder_prune(b);
	return genai_builder_finish(b, &e->graph, err);
}

// ---- plan and memory ----

static void input_view(const struct genai_embedder *e, uint32_t k,
		       uint64_t count, struct genai_view *v)
{
	const struct genai_value *value =
		genai_graph_value(e->graph, e->graph->inputs[e->in[k]]);
	int64_t dims[2] = {1, (int64_t)count};

	genai_view_dense(v, value->dtype,
			 e->ids.range.addr + k * e->config.max_tokens * 8, 2,
			 dims);
}

static int32_t make_plan(struct genai_embedder *e, struct genai_error *err)
{
	struct genai_runtime *rt = e->rt;
	struct genai_view max[N_IN];
	struct genai_plan_options o = {
		.size = sizeof(o),
		.stream = &rt->device.stream,
		.barrier = &rt->device.barrier,
		.pager = &e->paging.api,
		.max_inputs = max,
		.n_max_inputs = e->graph->n_inputs,
	};
	int32_t rc;

	for (;;) {
		for (uint32_t k = 0; k < N_IN; k++)
			if (e->in[k] != GENAI_NONE)
				input_view(e, k, e->config.max_tokens,
					   &max[e->in[k]]);
		rc = rt->exec.plan_create(
			genai_module_self(rt->executor.module), e->graph, &o,
			&e->plan, err);
		if (rc != GENAI_E_LIMIT ||
		    e->config.max_tokens < 2 * LEAST_TOKENS)
			return rc;
		e->config.max_tokens /= 2;
		genai_log_line(&rt->log, GENAI_LOG_WARN,
			       "%s: texts limited to %" PRIu64
			       " tokens by memory",
			       e->folder, e->config.max_tokens);
	}
}

static int32_t take(struct genai_embedder *e, uint32_t kind, uint64_t bytes,
		    struct genai_mem *out, struct genai_error *err)
{
	struct genai_stream_api *a = &e->rt->device.stream;

	return a->ops->alloc(a->self, kind, bytes, GENAI_TAG_ACTIVATIONS, out,
			     err);
}

static int32_t bind(struct genai_embedder *e, uint64_t count,
		    struct genai_error *err)
{
	struct genai_view v;
	int32_t rc = 0;

	for (uint32_t k = 0; !rc && k < N_IN; k++) {
		if (e->in[k] == GENAI_NONE)
			continue;
		input_view(e, k, count, &v);
		rc = e->rt->exec.bind_input(e->plan, e->in[k], &v, err);
	}
	return rc;
}

// What it gives for count tokens: [1, count, dimensions] or [1, dimensions].
static int32_t out_view(struct genai_embedder *e, uint64_t count,
			struct genai_view *v, struct genai_error *err)
{
	uint32_t last = e->one_row ? 1 : 2;
	int32_t rc;

	memset(v, 0, sizeof(*v));
	v->size = sizeof(*v);
	rc = e->rt->exec.output_shape(e->plan, 0, v, err);
	if (rc)
		return rc;
	if (v->rank != last + 1 || v->dims[0] != 1 ||
	    (last == 2 && v->dims[1] != (int64_t)count) || v->dims[last] < 1 ||
	    v->dims[last] > 1 << 20 ||
	    (e->dimensions && v->dims[last] != e->dimensions) ||
	    (v->dtype != GENAI_DT_F32 && v->dtype != GENAI_DT_F16 &&
	     v->dtype != GENAI_DT_BF16))
		return genai_fail(
			err, GENAI_E_UNSUPPORTED,
			"%s: graph output %s is not floating point of shape %s",
			e->folder,
			genai_graph_value(e->graph, e->graph->outputs[0])->name,
			e->one_row ? "[batch, width]"
				   : "[batch, length, width]");
	e->dimensions = (uint32_t)v->dims[last];
	e->dtype = v->dtype;
	return 0;
}

static uint64_t row_bytes(const struct genai_embedder *e)
{
	return (uint64_t)e->dimensions * (e->dtype == GENAI_DT_F32 ? 4 : 2);
}

static int32_t take_memory(struct genai_embedder *e, struct genai_error *err)
{
	uint64_t in = N_IN * e->config.max_tokens * 8, out;
	struct genai_view v;
	int32_t rc = take(e, GENAI_MEM_DEVICE, in, &e->ids, err);

	if (!rc)
		rc = take(e, GENAI_MEM_HOST_PINNED, in, &e->stage, err);
	if (!rc)
		rc = bind(e, e->config.max_tokens, err);
	if (!rc)
		rc = out_view(e, e->config.max_tokens, &v, err);
	if (rc)
		return rc;
	out = row_bytes(e) * (e->one_row ? 1 : e->config.max_tokens);
	rc = take(e, GENAI_MEM_DEVICE, out, &e->rows, err);
	return rc ? rc : take(e, GENAI_MEM_HOST_PINNED, out, &e->result, err);
}

// ---- opening ----

static int32_t read_options(struct genai_embedder *e,
			    const struct genai_embedder_options *o,
			    struct genai_error *err)
{
	const char *v = genai_config_get(e->rt->config, "runtime", "context");
	uint64_t most;

	if (o && o->pooling)
		e->config.pooling = o->pooling;
	if (o && o->normalize)
		e->config.normalize = o->normalize > 0;
	if (o && o->max_tokens &&
	    (!e->config.max_tokens || o->max_tokens < e->config.max_tokens))
		e->config.max_tokens = o->max_tokens;
	if (strcmp(v, "auto") && !genai_parse_u64(v, &most, NULL) && most &&
	    (!e->config.max_tokens || most < e->config.max_tokens))
		e->config.max_tokens = most;
	if (!e->config.max_tokens)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: no file says how many tokens a text may "
				  "have (sentence_bert_config.json, "
				  "tokenizer_config.json, config.json)",
				  e->folder);
	return 0;
}

static int32_t load_files(struct genai_embedder *e, const char *path,
			  const struct genai_embedder_options *options,
			  struct genai_error *err)
{
	struct genai_onnx_options o = {0};
	char file[256], onnx[4500];
	int32_t rc = genai_graph_folder(path, e->folder, sizeof(e->folder),
					file, sizeof(file), err);

	if (!rc)
		rc = genai_embed_config_load(e->folder, &e->config, err);
	if (rc)
		return rc;
	o.trusted_roots =
		genai_config_get(e->rt->config, "runtime", "trusted_roots");
	snprintf(onnx, sizeof(onnx), "%s/%s", e->folder,
		 file[0] ? file : "model.onnx");
	rc = genai_onnx_load(onnx, &o, &e->onnx, err);
	if (!rc)
		rc = find_inputs(e, genai_onnx_graph(e->onnx), err);
	if (!rc)
		rc = read_options(e, options, err);
	if (!rc)
		rc = make_graph(e, options && options->pooling, err);
	if (!rc && !e->one_row && !e->config.pooling)
		rc = genai_fail(err, GENAI_E_FORMAT,
				"%s: no modules.json says how rows become one "
				"vector: a pooling must be given",
				e->folder);
	return rc;
}

static uint64_t weight_room(const struct genai_embedder *e)
{
	const struct genai_device *d = &e->rt->device;
	uint64_t aside =
		d->used + N_IN * e->config.max_tokens * 8 + (UINT64_C(4) << 20);

	if (d->limit == UINT64_MAX)
		return UINT64_MAX;
	return d->limit > aside ? d->limit - aside : 0;
}

static int32_t open_embedder(struct genai_embedder *e, const char *path,
			     const struct genai_embedder_options *o,
			     struct genai_error *err)
{
	struct genai_stream_api *a = &e->rt->device.stream;
	int32_t rc = load_files(e, path, o, err);

	if (!rc)
		rc = a->ops->create(a->self, "embed", &e->stream, err);
	if (!rc)
		rc = genai_paging_open(e->rt, &e->paging, err);
	if (!rc)
		rc = make_plan(e, err);
	if (!rc)
		rc = take_memory(e, err);
	if (!rc)
		rc = genai_paging_seal(&e->paging, e->plan, e->graph,
				       weight_room(e), err);
	if (!rc)
		rc = genai_onnx_check(e->onnx, err);
	return rc;
}

// After an error of the device: what the pager enqueued is void.
static int32_t reset_pager(struct genai_user *user, struct genai_error *err)
{
	struct genai_embedder *e = (struct genai_embedder *)(void *)user;
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	int32_t rc;

	if (!e->paging.api.pager || !e->result.range.bytes)
		return 0;
	rc = genai_device_drain(&e->rt->device, &ticket, err);
	return rc ? rc
		  : e->paging.api.ops->reset(e->paging.api.pager, &ticket, err);
}

int32_t genai_embedder_open(struct genai_runtime *rt, const char *path,
			    const struct genai_embedder_options *o,
			    struct genai_embedder **out_e,
			    struct genai_error *err)
{
	struct genai_embedder *e;
	int32_t rc;

	if (!rt)
		return genai_fail(err, GENAI_E_INVAL, "there is no runtime");
	if (o &&
	    (!GENAI_HAS(o, max_tokens) || !genai_options_known(o, sizeof(*o)) ||
	     o->pooling > GENAI_POOL_LAST || o->normalize < -1 ||
	     o->normalize > 1 || o->reserved || o->max_tokens > INT32_MAX))
		return genai_fail(err, GENAI_E_INVAL,
				  "embedder options: size %u, pooling %u, "
				  "normalize %d",
				  o->size, o->pooling, o->normalize);
	rc = genai_device_forked(&rt->device, err);
	if (rc)
		return rc;
	e = calloc(1, sizeof(*e));
	if (!e)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	e->rt = rt;
	e->user.reset = reset_pager;
	genai_runtime_enter(rt, &e->user);
	rt->n_models++;
	rc = open_embedder(e, path, o, err);
	if (rc)
		genai_embedder_close(e);
	else
		*out_e = e;
	return rc;
}

// ---- running ----

static void pool(const struct genai_embedder *e, uint64_t count, float *out)
{
	const void *p = e->result.host;
	uint64_t d = e->dimensions, first = 0, n = 1;
	double length = 0;

	if (!e->one_row && e->config.pooling == GENAI_POOL_LAST)
		first = count - 1;
	if (!e->one_row && e->config.pooling == GENAI_POOL_MEAN)
		n = count;
	for (uint64_t i = 0; i < d; i++) {
		double sum = 0;

		for (uint64_t r = first; r < first + n; r++)
			sum += (double)session_widen(e->dtype, p, r * d + i);
		out[i] = (float)(sum / (double)n);
		length += (double)out[i] * (double)out[i];
	}
	length = sqrt(length);
	for (uint64_t i = 0; e->config.normalize && i < d; i++)
		out[i] = (float)((double)out[i] /
				 (length > 1e-12 ? length : 1e-12));
}

static void fill(const struct genai_embedder *e, const int64_t *ids,
		 uint64_t count)
{
	for (uint32_t k = 0; k < N_IN; k++) {
		char *p = (char *)e->stage.host + k * e->config.max_tokens * 8;
		uint32_t dtype;

		if (e->in[k] == GENAI_NONE)
			continue;
		dtype = genai_graph_value(e->graph, e->graph->inputs[e->in[k]])
				->dtype;
		for (uint64_t i = 0; i < count; i++) {
			int64_t v = k == IN_IDS		? ids[i]
				    : k == IN_MASK	? 1
				    : k == IN_POSITIONS ? (int64_t)i
							: 0;

			if (dtype == GENAI_DT_I64)
				((int64_t *)(void *)p)[i] = v;
			else
				((int32_t *)(void *)p)[i] = (int32_t)v;
		}
	}
}

static int32_t run(struct genai_embedder *e, uint64_t count,
		   struct genai_error *err)
{
	struct genai_stream_api *a = &e->rt->device.stream;
	struct genai_barrier_api *b = &e->rt->device.barrier;
	struct genai_point p = {0};
	struct genai_view v;
	uint64_t bytes;
	int32_t rc = a->ops->copy(a->self, e->stream, e->ids.range.addr,
				  (uintptr_t)e->stage.host, e->ids.range.bytes,
				  GENAI_COPY_H2D, err);

	if (!rc)
		rc = bind(e, count, err);
	if (!rc)
		rc = out_view(e, count, &v, err);
	if (rc)
		return rc;
	bytes = row_bytes(e) * (e->one_row ? 1 : count);
	v.addr = e->rows.range.addr;
	rc = e->rt->exec.bind_output(e->plan, 0, &v, err);
	if (!rc)
		rc = genai_runtime_submit(e->rt, e->plan, e->stream, err);
	if (!rc)
		rc = a->ops->copy(a->self, e->stream, (uintptr_t)e->result.host,
				  e->rows.range.addr, bytes, GENAI_COPY_D2H,
				  err);
	if (!rc)
		rc = a->ops->mark(a->self, e->stream, &p, err);
	if (!rc)
		rc = b->ops->host_read(b->self, &p, 1, UINT64_MAX, err);
	return rc ? rc : genai_onnx_check(e->onnx, err);
}

static int32_t check_ids(struct genai_embedder *e, const int64_t *ids,
			 size_t count, struct genai_error *err)
{
	int64_t most = e->config.vocab_size ? e->config.vocab_size : INT32_MAX;

	if (!count)
		return genai_fail(err, GENAI_E_INVAL, "there are no tokens");
	if (count > e->config.max_tokens)
		return genai_fail(err, GENAI_E_LIMIT,
				  "%zu tokens are more than the %" PRIu64
				  " that a text may have",
				  count, e->config.max_tokens);
	for (size_t i = 0; i < count; i++)
		if (ids[i] < 0 || ids[i] >= most)
			return genai_fail(err, GENAI_E_INVAL,
					  "token %zu is %" PRId64
					  ": ids are 0 to %" PRId64,
					  i, ids[i], most - 1);
	return 0;
}

static int32_t mend(struct genai_embedder *e, struct genai_error *err)
{
	int32_t rc = genai_device_forked(&e->rt->device, err);

	if (!rc && (e->broken || e->rt->unclear))
		rc = genai_recover(e->rt, NULL, err);
	e->broken = e->broken && rc;
	return rc;
}

int32_t genai_embedder_run(struct genai_embedder *e, const int64_t *ids,
			   size_t count, float *out, struct genai_error *err)
{
	int32_t rc = mend(e, err);

	e->failed = rc != 0;
	if (!rc)
		rc = check_ids(e, ids, count, err);
	if (rc)
		return rc;
	fill(e, ids, count);
	rc = run(e, count, err);
	e->failed = rc != 0;
	if (rc) {
		e->broken = true;
		mend(e, NULL);
		return rc;
	}
	for (uint64_t i = 0;
	     i < e->dimensions * (e->one_row ? 1 : (uint64_t)count); i++)
		if (!isfinite(session_widen(e->dtype, e->result.host, i)))
			return genai_fail(err, GENAI_E_DEVICE,
					  "the model produced what is not "
					  "finite at position %" PRIu64,
					  i / e->dimensions);
	pool(e, count, out);
	return 0;
}

int genai_embedder_failed(const struct genai_embedder *e)
{
	return e->failed;
}

// ---- the rest ----

int32_t genai_embedder_get_info(const struct genai_embedder *e,
				struct genai_embedder_info *out)
{
	struct genai_embedder_info i = {
		.size = sizeof(i),
		.dimensions = e->dimensions,
		.max_tokens = e->config.max_tokens,
		.pooling = e->one_row ? 0 : e->config.pooling,
		.normalize = e->config.normalize,
		.weights_bytes = e->paging.weights_bytes,
		.prompt = e->config.prompt,
	};

	if (!GENAI_HAS(out, dimensions))
		return GENAI_E_INVAL;
	genai_struct_give(out, &i);
	return 0;
}

void genai_embedder_close(struct genai_embedder *e)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	struct genai_stream_api *a;
	int32_t rc = 0;

	if (!e)
		return;
	a = &e->rt->device.stream;
	if (e->broken)
		mend(e, NULL);
	if (e->plan || e->ids.range.bytes)
		rc = genai_device_drain(&e->rt->device, &ticket, &err);
	if (!rc && e->plan)
		rc = e->rt->exec.plan_destroy(e->plan, &ticket, &err);
	for (int i = 0; !rc && i < 4; i++) {
		struct genai_mem *m[] = {&e->ids, &e->stage, &e->rows,
					 &e->result};

		if (m[i]->range.bytes)
			rc = a->ops->free(a->self, m[i]->range.addr, &ticket,
					  &err);
	}
	if (!rc)
		rc = genai_paging_close(&e->paging, &err);
	if (!rc && e->stream)
		rc = a->ops->destroy(a->self, e->stream, &err);
	if (rc)
		genai_log_line(&e->rt->log, GENAI_LOG_ERROR,
			       "closing an embedder: %s", err.text);
	genai_runtime_leave(e->rt, &e->user);
	e->rt->n_models--;
	genai_graph_free(e->graph);
	genai_onnx_close(e->onnx);
	free(e);
}
