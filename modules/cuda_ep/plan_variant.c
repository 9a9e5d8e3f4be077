/* plan_variant.c - the shapes of a graph for one set of input shapes. */
#include "modules/cuda_ep/plan.h"

uint32_t cep_root(const struct cep_variant *v, uint32_t value)
{
	return v->tensors[value].root == CEP_OWN ? value
						 : v->tensors[value].root;
}

bool cep_reads(const struct cep_node *n, uint32_t i)
{
	uint32_t not = n->op->facts.host | n->op->facts.dims_only;

	return n->in[i] && !EXEC_HAS(not, i) && !cep_is_silent(n);
}

bool cep_is_silent(const struct cep_node *n)
{
	if (n->folded || n->absorbed)
		return true;
	for (uint32_t i = 0; i < n->n_out; i++)
		if (n->out[i] && n->out[i]->root == CEP_OWN)
			return false;
	return true;
}

static void set_tensor(struct cep_tensor *t, const char *name)
{
	t->name = name ? name : "";
	t->root = CEP_OWN;
}

static void dense_strides(struct cep_tensor *t)
{
	int64_t stride = 1;

	for (uint32_t d = t->rank; d-- > 0;) {
		t->strides[d] = stride;
		stride *= t->dims[d] ? t->dims[d] : 1;
	}
}

/* Inputs and stored tensors. */
static void set_sources(const struct genai_plan *p, struct cep_variant *v)
{
	const struct genai_graph *g = p->graph;

	for (uint32_t i = 0; i < g->n_values; i++) {
		const struct genai_value *x = genai_graph_value(g, i);
		const struct genai_tensor *s;
		const struct genai_file *f;
		struct cep_tensor *t = &v->tensors[i];

		set_tensor(t, x->name);
		if (x->tensor == GENAI_NONE)
			continue;
		s = genai_graph_tensor(g, x->tensor);
		f = genai_graph_file(g, s->file);
		t->dtype = s->dtype;
		t->rank = s->rank;
		memcpy(t->dims, s->dims, sizeof(t->dims));
		dense_strides(t);
		t->value = (const char *)f->data + s->offset;
	}
	for (uint32_t i = 0; i < g->n_inputs; i++) {
		struct cep_tensor *t = &v->tensors[g->inputs[i]];

		t->dtype = v->key[i].dtype;
		t->rank = v->key[i].rank;
		memcpy(t->dims, v->key[i].dims, sizeof(t->dims));
		memcpy(t->strides, v->key[i].strides, sizeof(t->strides));
	}
}

static int32_t set_node(struct genai_plan *p, struct cep_variant *v, uint32_t i,
			struct genai_error *err)
{
	struct cep_node *n = &v->nodes[i];

	n->node = genai_graph_node(p->graph, i);
	n->self = p->self;
	n->index = i;
	n->op = cep_op_find(n->node);
	if (!n->op)
		return cep_node_fail(
			n, err, GENAI_E_UNSUPPORTED,
			"operator %s of domain \"%s\", opset %lld, "
			"is not carried by cuda_ep",
			n->node->op, n->node->domain,
			(long long)n->node->opset);
	if (n->node->n_inputs > CEP_MAX_IN || n->node->n_outputs > CEP_MAX_OUT)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "%u inputs and %u outputs",
				     n->node->n_inputs, n->node->n_outputs);
	n->n_in = n->node->n_inputs;
	n->n_out = n->node->n_outputs;
	for (uint32_t k = 0; k < n->n_in; k++) {
		n->in_value[k] = n->node->inputs[k];
		n->in[k] = n->in_value[k] == GENAI_NONE
				   ? NULL
				   : &v->tensors[n->in_value[k]];
	}
	for (uint32_t k = 0; k < n->n_out; k++) {
		n->out_value[k] = n->node->outputs[k];
		n->out[k] = n->out_value[k] == GENAI_NONE
				    ? NULL
				    : &v->tensors[n->out_value[k]];
	}
	cep_fuse_apply(p, v, n);
	return 0;
}

static int32_t prepare_node(struct cep_variant *v, struct cep_node *n,
			    struct genai_error *err)
{
	unsigned char *fold = v->folds + (uint64_t)n->index * CEP_FOLD_BYTES;
	int32_t rc = n->op->prepare(n, err);

	if (rc)
		return rc;
	if (cep_fold(n, fold, CEP_FOLD_BYTES)) {
		n->folded = true;
		n->out[0]->value = fold;
		n->out[0]->root = CEP_OWN;
		n->out[0]->offset = 0;
		return 0;
	}
	for (uint32_t k = 0; k < n->n_out; k++) {
		struct cep_tensor *t = n->out[k];
		const struct cep_tensor *r;

		if (!t || t->root == CEP_OWN)
			continue;
		r = &v->tensors[t->root];
		if (r->value && cep_is_dense(t))
			t->value = (const char *)r->value + t->offset;
	}
	return 0;
}

int32_t cep_variant_new(struct genai_plan *p, const struct genai_view *inputs,
			struct cep_variant **out_v, struct genai_error *err)
{
	const struct genai_graph *g = p->graph;
	struct cep *self = p->self;
	struct cep_variant *v = cep_zalloc(self, sizeof(*v));
	int32_t rc = 0;

	if (v) {
		v->key = cep_zalloc(self, g->n_inputs * sizeof(*v->key));
		v->tensors =
			cep_zalloc(self, g->n_values * sizeof(*v->tensors));
		v->nodes = cep_zalloc(self, g->n_nodes * sizeof(*v->nodes));
		v->folds =
			cep_zalloc(self, (uint64_t)g->n_nodes * CEP_FOLD_BYTES);
	}
	if (!v || !v->key || !v->tensors || !v->nodes || !v->folds) {
		rc = cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
		goto err_free;
	}
	for (uint32_t i = 0; i < g->n_inputs; i++) {
		v->key[i] = inputs[i];
		v->key[i].addr = 0;
	}
	v->is_step =
		g->n_inputs && inputs[0].rank >= 2 && inputs[0].dims[1] == 1;
	set_sources(p, v);
	for (uint32_t i = 0; i < g->n_nodes && !rc; i++) {
		rc = set_node(p, v, i, err);
		if (!rc)
			rc = prepare_node(v, &v->nodes[i], err);
	}
	if (rc)
		goto err_free;
	*out_v = v;
	return 0;

err_free:
	cep_variant_free(p, v);
	return rc;
}

void cep_variant_free(struct genai_plan *p, struct cep_variant *v)
{
	const struct genai_host *h = p->self->host;

	if (!v)
		return;
	h->free(h->ctx, v->key);
	h->free(h->ctx, v->tensors);
	h->free(h->ctx, v->nodes);
	h->free(h->ctx, v->folds);
	h->free(h->ctx, v);
}

static bool same_shape(const struct genai_view *a, const struct genai_view *b)
{
	return a->dtype == b->dtype && a->rank == b->rank &&
	       !memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) &&
	       !memcmp(a->strides, b->strides, a->rank * sizeof(a->dims[0]));
}

static bool matches(const struct genai_plan *p, const struct cep_variant *v)
{
	for (uint32_t i = 0; i < p->graph->n_inputs; i++)
		if (!same_shape(&v->key[i], &p->inputs[i]))
			return false;
	return true;
}

/* Which slot to give up: a free one, then one without a recording, then the one
 * not used for longest. */
static bool goes_before(const struct cep_variant *a,
			const struct cep_variant *b)
{
	if (!a || !b)
		return !a && b;
	if (!a->recording != !b->recording)
		return !a->recording;
	return a->used < b->used;
}

int32_t cep_variant_get(struct genai_plan *p, struct cep_variant **out_v,
			struct genai_error *err)
{
	uint32_t slot = 0;
	struct cep_variant *v;
	int32_t rc;

	for (uint32_t i = 0; i < CEP_VARIANTS; i++) {
		v = p->variants[i];
		if (v && matches(p, v)) {
			*out_v = v;
			return 0;
		}
		if (goes_before(v, p->variants[slot]))
			slot = i;
	}
	rc = cep_variant_new(p, p->inputs, &v, err);
	if (rc)
		return rc;
	rc = cep_layout_check(p, v, err);
	if (rc) {
		cep_variant_free(p, v);
		return rc;
	}
	cep_variant_free(p, p->variants[slot]);
	p->variants[slot] = v;
	v->region = slot;
	*out_v = v;
	return 0;
}

/* ---- addresses ---- */

static uint64_t end_of(const struct genai_view *view)
{
	struct cep_tensor t = {.dtype = view->dtype, .rank = view->rank};

	memcpy(t.dims, view->dims, sizeof(t.dims));
	memcpy(t.strides, view->strides, sizeof(t.strides));
	return view->addr + cep_span(&t);
}

/* An output that lies over an input which later nodes still read is written
 * to the arena and moved at the end. */
static int32_t set_late(struct genai_plan *p, struct genai_error *err)
{
	const struct genai_graph *g = p->graph;

	for (uint32_t o = 0; o < g->n_outputs; o++) {
		const struct genai_view *out = &p->outputs[o];
		const struct cep_value *x = &p->values[g->outputs[o]];

		p->late[o] = false;
		if (x->storage != CEP_ST_OUTPUT)
			continue;
		for (uint32_t i = 0; i < g->n_inputs; i++) {
			const struct genai_view *in = &p->inputs[i];

			if (in->addr < end_of(out) && out->addr < end_of(in) &&
			    p->values[g->inputs[i]].last != GENAI_NONE &&
			    p->values[g->inputs[i]].last > x->first)
				p->late[o] = true;
		}
		if (p->late[o] && !x->has_room)
			return cep_fail(
				p->self, err, GENAI_E_INVAL,
				"output %s lies over an input that is "
				"read after it is written",
				genai_graph_value(g, g->outputs[o])->name);
	}
	return 0;
}

/* A state: its length is the buffer's, not what the graph says. */
static bool is_state(const struct genai_plan *p, const struct cep_variant *v,
		     uint32_t value)
{
	uint32_t producer = genai_graph_value(p->graph, value)->producer;
	const struct cep_node *n;

	if (producer == GENAI_NONE)
		return false;
	n = &v->nodes[producer];
	for (uint32_t i = 0; i < n->n_out; i++)
		if (n->out_value[i] == value)
			return EXEC_HAS(n->op->facts.state_out, i);
	return false;
}

static int32_t check_output(const struct genai_plan *p, struct cep_variant *v,
			    uint32_t o, struct genai_error *err)
{
	const struct genai_view *b = &p->outputs[o];
	uint32_t value = p->graph->outputs[o];
	struct cep_tensor *t = &v->tensors[value];
	bool state = is_state(p, v, value);

	if (b->dtype != t->dtype || b->rank != t->rank)
		goto err_shape;
	for (uint32_t d = 0; d < t->rank; d++)
		if (b->dims[d] != t->dims[d] && !(state && d == 2))
			goto err_shape;
	if (state) {
		memcpy(t->dims, b->dims, sizeof(t->dims));
		memcpy(t->strides, b->strides, sizeof(t->strides));
		return 0;
	}
	for (uint32_t d = 0; d < t->rank; d++)
		if (b->dims[d] > 1 && b->strides[d] != t->strides[d] &&
		    t->root == CEP_OWN)
			return cep_fail(p->self, err, GENAI_E_UNSUPPORTED,
					"output %s is bound with gaps",
					t->name);
	return 0;

err_shape:
	return cep_fail(p->self, err, GENAI_E_INVAL,
			"output %s is bound with dtype %u, rank %u, last "
			"dimension %lld: the graph makes dtype %u, rank %u, "
			"last dimension %lld",
			t->name, b->dtype, b->rank,
			(long long)(b->rank ? b->dims[b->rank - 1] : 0),
			t->dtype, t->rank,
			(long long)(t->rank ? t->dims[t->rank - 1] : 0));
}

static uint64_t own_address(const struct genai_plan *p,
			    const struct cep_variant *v, uint32_t value)
{
	const struct cep_value *x = &p->values[value];

	switch (x->storage) {
	case CEP_ST_INPUT:
		return p->inputs[x->index].addr;
	case CEP_ST_OUTPUT:
		return p->late[x->index] ? p->mem.range.addr + x->offset
					 : p->outputs[x->index].addr;
	case CEP_ST_CONST:
		return p->mem.range.addr + p->const_at +
		       v->region * p->const_bytes + x->offset;
	case CEP_ST_ARENA:
		return p->mem.range.addr + x->offset;
	default:
		return 0;
	}
}

int32_t cep_variant_resolve(struct genai_plan *p, struct cep_variant *v,
			    struct genai_error *err)
{
	const struct genai_graph *g = p->graph;
	int32_t rc;

	if (v->resolved == p->generation)
		return 0;
	rc = set_late(p, err);
	for (uint32_t o = 0; o < g->n_outputs && !rc; o++)
		rc = check_output(p, v, o, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < g->n_values; i++) {
		struct cep_tensor *t = &v->tensors[i];
		uint32_t root = cep_root(v, i);

		t->addr = own_address(p, v, root) + t->offset;
	}
	v->resolved = p->generation;
	return 0;
}
