// control_loop.c - Loop and Scan: a body run many times.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/graph/build.h"
#include "core/model/control.h"

#define MAX_BYTES (UINT64_C(1) << 30) // of what one output collects

// ---- results of all runs, one behind the other ----

struct stack {
	struct genai_host_tensor
		t;     // dims[axis]: how many there are, or will be
	uint64_t room; // bytes
	int64_t axis;  // of the result; negative from its end
	bool reverse, begun;
	int64_t most; // -1: how many is not known before (and the axis is 0)
};

static int32_t element_bytes(uint32_t dtype, uint64_t *out,
			     struct genai_error *err)
{
	const int64_t one = 1, eight = 8;
	uint64_t all = 0;

	if (!genai_tensor_bytes(dtype, 1, &one, out) &&
	    !genai_tensor_bytes(dtype, 1, &eight, &all) && all == 8 * *out)
		return 0;
	return genai_fail(err, GENAI_E_UNSUPPORTED,
			  "elements of type %s are not stacked",
			  genai_dtype_name(dtype));
}

// The shape of the whole, from that of one.
static int32_t stack_begin(struct stack *k, uint32_t dtype, uint32_t rank,
			   const int64_t *dims, struct genai_error *err)
{
	int64_t axis = k->axis < 0 ? k->axis + rank + 1 : k->axis;
	int32_t rc;

	if (rank + 1 > GENAI_MAX_RANK || axis < 0 || axis > (int64_t)rank)
		return genai_fail(err, GENAI_E_INVAL,
				  "axis %" PRId64 " of results of rank %u",
				  k->axis, rank + 1);
	k->axis = axis;
	k->begun = true;
	k->t.dtype = dtype;
	k->t.rank = rank + 1;
	for (uint32_t d = 0; d < rank; d++)
		k->t.dims[d + (d >= axis)] = dims[d] < 0 ? 0 : dims[d];
	k->t.dims[axis] = k->most < 0 ? 0 : k->most;
	rc = genai_tensor_bytes(dtype, k->t.rank, k->t.dims, &k->t.bytes);
	if (rc || k->t.bytes > MAX_BYTES)
		return genai_fail(err, GENAI_E_LIMIT,
				  "results of more than %" PRIu64 " bytes",
				  MAX_BYTES);
	k->room = k->t.bytes + 1;
	k->t.data = malloc(k->room);
	return k->t.data ? 0 : genai_fail(err, GENAI_E_NOMEM, "no memory");
}

// Room for one more of so many bytes.
static int32_t stack_grow(struct stack *k, uint64_t bytes,
			  struct genai_error *err)
{
	void *p;

	if (k->t.bytes + bytes > MAX_BYTES)
		return genai_fail(err, GENAI_E_LIMIT,
				  "results of more than %" PRIu64 " bytes",
				  MAX_BYTES);
	if (k->t.bytes + bytes > k->room) {
		p = realloc(k->t.data, 2 * (k->t.bytes + bytes));
		if (!p)
			return genai_fail(err, GENAI_E_NOMEM, "no memory");
		k->t.data = p;
		k->room = 2 * (k->t.bytes + bytes);
	}
	k->t.bytes += bytes;
	k->t.dims[0]++;
	return 0;
}

static int32_t stack_add(struct stack *k, const struct genai_host_tensor *t,
			 int64_t at, struct genai_error *err)
{
	uint64_t size, inner, outer = 1, count;
	bool same;
	int32_t rc = element_bytes(t->dtype, &size, err);

	if (!rc && !k->begun)
		rc = stack_begin(k, t->dtype, t->rank, t->dims, err);
	if (rc)
		return rc;
	same = t->dtype == k->t.dtype && t->rank + 1 == k->t.rank;
	for (uint32_t d = 0; same && d < t->rank; d++)
		same = t->dims[d] == k->t.dims[d + (d >= k->axis)];
	if (!same)
		return genai_fail(err, GENAI_E_INVAL,
				  "its body gives results of different shapes "
				  "or types");
	if (k->most < 0)
		rc = stack_grow(k, t->bytes, err);
	if (rc)
		return rc;
	count = (uint64_t)k->t.dims[k->axis];
	for (int64_t d = 0; d < k->axis; d++)
		outer *= (uint64_t)k->t.dims[d];
	inner = outer ? t->bytes / outer : 0;
	if (k->reverse)
		at = (int64_t)count - 1 - at;
	for (uint64_t o = 0; inner && o < outer; o++)
		memcpy((char *)k->t.data + (o * count + (uint64_t)at) * inner,
		       (const char *)t->data + o * inner, inner);
	return 0;
}

// Of no run at all: what the body declares.
static int32_t stack_end(struct stack *k, const struct genai_value *declared,
			 struct genai_error *err)
{
	uint32_t rank = declared->rank == GENAI_NONE ? 0 : declared->rank;
	uint64_t size;
	int32_t rc;

	if (k->begun)
		return 0;
	rc = element_bytes(declared->dtype, &size, err);
	return rc ? rc
		  : stack_begin(k, declared->dtype, rank, declared->dims, err);
}

// ---- what both are ----

struct runs {
	struct scope *s;
	const struct genai_node *n;
	const struct genai_graph *body;
	uint32_t carried, slices, stacked; // values
	uint32_t lead_in, lead_out;	   // before them, of a Loop
	struct genai_host_tensor *in, *out;
	struct stack *stacks;
	bool own; // the carried inputs are ours
};

static int32_t runs_open(struct runs *r, struct genai_error *err)
{
	const struct genai_graph *g = r->body;

	if (!g || g->n_inputs != r->lead_in + r->carried + r->slices ||
	    g->n_outputs < r->lead_out + r->carried ||
	    r->n->n_outputs > g->n_outputs - r->lead_out)
		return control_fail(r->n, err, GENAI_E_FORMAT,
				    "its body is missing, or does not fit its "
				    "inputs and outputs");
	r->stacked = g->n_outputs - r->lead_out - r->carried;
	r->in = calloc(g->n_inputs + 1, sizeof(*r->in));
	r->out = calloc(g->n_outputs + 1, sizeof(*r->out));
	r->stacks = calloc(r->stacked + 1, sizeof(*r->stacks));
	if (!r->in || !r->out || !r->stacks)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	return 0;
}

static int32_t first_values(struct runs *r, uint32_t at,
			    struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < r->carried; i++)
		rc = r->n->inputs[at + i] == GENAI_NONE
			     ? control_fail(r->n, err, GENAI_E_FORMAT,
					    "a value to begin with is missing")
			     : control_get(r->s, r->n->inputs[at + i],
					   &r->in[r->lead_in + i], err);
	return rc;
}

// Run the body for the at'th time; what it carries becomes its input.
static int32_t runs_step(struct runs *r, int64_t at, struct genai_error *err)
{
	const uint32_t stacked = r->lead_out + r->carried;
	int32_t rc = control_run_body(r->s, r->body, r->in, r->out, err);

	for (uint32_t i = 0; !rc && i < r->stacked; i++)
		rc = stack_add(&r->stacks[i], &r->out[stacked + i], at, err);
	if (!rc) {
		struct genai_host_tensor *in = r->in + r->lead_in;

		if (r->own)
			control_drop(in, r->carried);
		memcpy(in, r->out + r->lead_out, r->carried * sizeof(*in));
		memset(r->out + r->lead_out, 0, r->carried * sizeof(*in));
		r->own = true;
	}
	return rc;
}

static int32_t give_results(struct runs *r, struct genai_error *err)
{
	const struct genai_graph *g = r->body;
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < r->stacked; i++)
		rc = stack_end(
			&r->stacks[i],
			genai_graph_value(
				g, g->outputs[r->lead_out + r->carried + i]),
			err);
	for (uint32_t i = 0; !rc && i < r->n->n_outputs; i++) {
		struct genai_host_tensor *t =
			i < r->carried ? &r->in[r->lead_in + i]
				       : &r->stacks[i - r->carried].t;
		struct genai_host_tensor own = *t;

		if (i < r->carried && !r->own)
			rc = control_copy(t, &own, err);
		else
			t->data = NULL;
		if (!rc)
			control_put(r->s, r->n->outputs[i], &own);
	}
	return rc;
}

static void runs_close(struct runs *r)
{
	if (r->in && r->own)
		control_drop(r->in + r->lead_in, r->carried);
	if (r->out)
		control_drop(r->out, r->body->n_outputs);
	for (uint32_t i = 0; r->stacks && i < r->stacked; i++)
		free(r->stacks[i].t.data);
	free(r->in);
	free(r->out);
	free(r->stacks);
}

// ---- Loop ----

static void scalar(const struct genai_graph *g, uint32_t i, uint32_t dtype,
		   void *data, struct genai_host_tensor *t)
{
	memset(t, 0, sizeof(*t));
	t->dtype = dtype;
	t->rank = genai_graph_value(g, g->inputs[i])->rank == 1;
	t->dims[0] = 1;
	t->data = data;
	t->bytes = dtype == GENAI_DT_I64 ? 8 : 1;
}

static int32_t loop(struct runs *r, int64_t most, int64_t go,
		    struct genai_error *err)
{
	unsigned char cond;
	int32_t rc = first_values(r, 2, err);

	for (uint32_t i = 0; i < r->stacked; i++)
		r->stacks[i].most = -1;
	for (int64_t at = 0; !rc && go && at < most; at++) {
		struct genai_host_tensor *c = &r->out[0];

		cond = 1;
		scalar(r->body, 0, GENAI_DT_I64, &at, &r->in[0]);
		scalar(r->body, 1, GENAI_DT_BOOL, &cond, &r->in[1]);
		rc = runs_step(r, at, err);
		if (!rc && (c->dtype != GENAI_DT_BOOL || c->bytes != 1))
			rc = control_fail(r->n, err, GENAI_E_INVAL,
					  "its body's condition is not one "
					  "bool");
		if (!rc)
			go = *(const unsigned char *)c->data != 0;
		control_drop(r->out, r->body->n_outputs);
	}
	return rc ? rc : give_results(r, err);
}

int32_t control_loop(struct scope *s, const struct genai_node *n,
		     struct genai_error *err)
{
	struct runs r = {.s = s,
			 .n = n,
			 .body = control_body(n, "body"),
			 .lead_in = 2,
			 .lead_out = 1};
	int64_t most = INT64_MAX, go = 1;
	int32_t rc;

	if (n->n_inputs < 2)
		return control_fail(n, err, GENAI_E_FORMAT,
				    "less than two inputs");
	r.carried = n->n_inputs - 2;
	rc = control_number(s, n, 0, "the trip count", &most, err);
	if (!rc)
		rc = control_number(s, n, 1, "the condition", &go, err);
	if (!rc)
		rc = runs_open(&r, err);
	if (!rc)
		rc = loop(&r, most, go, err);
	runs_close(&r);
	return rc;
}

// ---- Scan ----

static int64_t of_list(const struct genai_node *n, const char *name, uint32_t i)
{
	const struct genai_attr *a = control_attr(n, name);

	return a && a->kind == GENAI_ATTR_INTS && i < a->count ? a->ints[i] : 0;
}

// One input that is read slice by slice.
struct slices {
	struct genai_host_tensor all;
	uint64_t outer, inner; // bytes of a slice in each
	int64_t axis, count;
	bool reverse;
};

static int32_t slices_open(struct runs *r, uint32_t i, struct slices *k,
			   struct genai_error *err)
{
	struct genai_host_tensor *one = &r->in[r->carried + i];
	uint32_t from = r->n->inputs[r->carried + i];
	uint64_t size;
	int32_t rc;

	if (from == GENAI_NONE)
		return control_fail(r->n, err, GENAI_E_FORMAT,
				    "an input to scan is missing");
	rc = control_get(r->s, from, &k->all, err);
	if (!rc)
		rc = element_bytes(k->all.dtype, &size, err);
	if (rc)
		return rc;
	k->axis = of_list(r->n, "scan_input_axes", i);
	k->axis += k->axis < 0 ? (int64_t)k->all.rank : 0;
	k->reverse = of_list(r->n, "scan_input_directions", i) == 1;
	if (k->axis < 0 || k->axis >= (int64_t)k->all.rank)
		return control_fail(r->n, err, GENAI_E_INVAL,
				    "an axis to scan that its input lacks");
	k->count = k->all.dims[k->axis];
	k->outer = 1;
	k->inner = size;
	*one = k->all;
	one->rank--;
	for (uint32_t d = 0; d < k->all.rank; d++) {
		if (d < k->axis)
			k->outer *= (uint64_t)k->all.dims[d];
		if (d > k->axis)
			k->inner *= (uint64_t)k->all.dims[d];
		if (d != k->axis)
			one->dims[d - (d > k->axis)] = k->all.dims[d];
	}
	one->bytes = k->outer * k->inner;
	one->data = malloc(one->bytes + 1);
	return one->data ? 0 : genai_fail(err, GENAI_E_NOMEM, "no memory");
}

static void slices_get(const struct slices *k, int64_t at, void *to)
{
	const uint64_t count = (uint64_t)k->count;
	const uint64_t from = (uint64_t)(k->reverse ? k->count - 1 - at : at);

	for (uint64_t o = 0; k->inner && o < k->outer; o++)
		memcpy((char *)to + o * k->inner,
		       (const char *)k->all.data +
			       (o * count + from) * k->inner,
		       k->inner);
}

static int32_t scan(struct runs *r, struct slices *k, struct genai_error *err)
{
	int32_t rc = first_values(r, 0, err);

	for (uint32_t i = 0; !rc && i < r->slices; i++) {
		rc = slices_open(r, i, &k[i], err);
		if (!rc && k[i].count != k[0].count)
			rc = control_fail(r->n, err, GENAI_E_INVAL,
					  "inputs to scan of different "
					  "lengths");
	}
	for (uint32_t i = 0; !rc && i < r->stacked; i++) {
		r->stacks[i].most = k[0].count;
		r->stacks[i].axis = of_list(r->n, "scan_output_axes", i);
		r->stacks[i].reverse =
			of_list(r->n, "scan_output_directions", i) == 1;
	}
	for (int64_t at = 0; !rc && at < k[0].count; at++) {
		for (uint32_t i = 0; i < r->slices; i++)
			slices_get(&k[i], at, r->in[r->carried + i].data);
		rc = runs_step(r, at, err);
		control_drop(r->out, r->body->n_outputs);
	}
	return rc ? rc : give_results(r, err);
}

int32_t control_scan(struct scope *s, const struct genai_node *n,
		     struct genai_error *err)
{
	const struct genai_attr *a = control_attr(n, "num_scan_inputs");
	struct runs r = {.s = s, .n = n, .body = control_body(n, "body")};
	struct slices *k;
	int32_t rc;

	if (n->opset < 9)
		return control_fail(n, err, GENAI_E_UNSUPPORTED,
				    "Scan of opset 8, with a batch of its own, "
				    "is not carried");
	if (!a || a->kind != GENAI_ATTR_INT || a->i < 1 ||
	    a->i > (int64_t)n->n_inputs)
		return control_fail(n, err, GENAI_E_FORMAT,
				    "num_scan_inputs is missing or out of "
				    "range");
	r.slices = (uint32_t)a->i;
	r.carried = n->n_inputs - r.slices;
	k = calloc(r.slices, sizeof(*k));
	rc = k ? runs_open(&r, err)
	       : genai_fail(err, GENAI_E_NOMEM, "no memory");
	if (!rc) {
		rc = scan(&r, k, err);
		control_drop(r.in + r.carried, r.slices);
	}
	runs_close(&r);
	free(k);
	return rc;
}
