// check_step.c - a model's graph rewritten into the graph of a step.
#include "core/graph/build.h"
#include "tests/unit/session_kit.h"

// A decoder of one layer, small enough to change anything about it.
struct plan {
	const char *no_input;	 // leave this graph input out
	const char *no_output;	 // and this output
	const char *mask_reader; // a further node that reads the mask
	const char *extra_input; // read by a node whose output is a graph's
	uint32_t kv_dtype, kv_rank;
	uint32_t stored; // the head's type behind a Cast; 0: there is none
	int64_t heads, head_size, logits_rows;
	int64_t limit;		// above which an If has other tables
	const int64_t *section; // of a rotary embedding by three positions
	bool positions, hidden, float_head, no_head_input, no_embedding;
	bool experts;
};

static const struct plan plain = {.kv_dtype = GENAI_DT_F32,
				  .kv_rank = 4,
				  .heads = 2,
				  .head_size = 16,
				  .logits_rows = -1};

static struct genai_model_config config;
static struct genai_builder *b;
static const struct plan *made;

static void setup(void)
{
	ck_assert_int_eq(
		genai_model_config_load("/nonexistent", NULL, &config, NULL),
		GENAI_E_NOTFOUND);
}

static uint32_t value(const char *name, uint32_t dtype, uint32_t rank,
		      int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
	int64_t dims[] = {d0, d1, d2, d3};

	return genai_builder_value(b, name, dtype, rank, dims, NULL);
}

static uint32_t input(const char *name, uint32_t dtype, uint32_t rank,
		      int64_t d0, int64_t d1, int64_t d2, int64_t d3)
{
	uint32_t v = value(name, dtype, rank, d0, d1, d2, d3);

	if (!made->no_input || strcmp(made->no_input, name))
		genai_builder_input(b, v);
	return v;
}

static void output(uint32_t v, const char *name)
{
	if (!made->no_output || strcmp(made->no_output, name))
		genai_builder_output(b, v);
}

static uint32_t op(const char *name, const char *out, uint32_t dtype,
		   uint32_t x, uint32_t y)
{
	uint32_t in[2] = {x, y};
	uint32_t v = genai_builder_value(b, out, dtype, GENAI_NONE, NULL, NULL);

	genai_builder_node(b, name, "", 21, out, in, y == GENAI_NONE ? 1 : 2,
			   &v, 1);
	return v;
}

static uint32_t cast32(uint32_t x, const char *out)
{
	uint32_t v = op("Cast", out, GENAI_DT_I32, x, GENAI_NONE);

	genai_builder_attr_int(b, genai_builder_get_value(b, v)->producer, "to",
			       GENAI_DT_I32);
	return v;
}

static uint32_t constant(const char *name, uint32_t rank, int64_t v)
{
	int64_t one = 1;

	return genai_builder_const(b, name, GENAI_DT_I64, rank, &one, &v);
}

static void lengths(uint32_t mask, uint32_t *seqlens, uint32_t *total)
{
	uint32_t sum = op("ReduceSum", "sum", GENAI_DT_I64, mask,
			  constant("axis", 1, 1));
	uint32_t sub =
		op("Sub", "sub", GENAI_DT_I64, sum, constant("one", 1, 1));
	uint32_t shape = op("Shape", "shape", GENAI_DT_I64, mask, GENAI_NONE);
	uint32_t len =
		op("Gather", "len", GENAI_DT_I64, shape, constant("dim", 0, 1));

	*seqlens = cast32(sub, "seqlens");
	*total = cast32(len, "total");
}

static void tables(uint32_t *in)
{
	static const float table[8 * 8];
	static const int64_t dims[2] = {8, 8};

	in[0] = genai_builder_const(b, "cos", GENAI_DT_F32, 2, dims, table);
	in[1] = genai_builder_const(b, "sin", GENAI_DT_F32, 2, dims, table);
}

static struct genai_graph *branch(int64_t rows, float first)
{
	float table[64] = {first};
	const int64_t dims[2] = {rows, 4};
	struct genai_builder *g = genai_builder_open("branch");
	struct genai_graph *out = NULL;

	for (int i = 0; i < 2; i++)
		genai_builder_output(g, genai_builder_const(g, i ? "s" : "c",
							    GENAI_DT_F32, 2,
							    dims, table));
	ck_assert_int_eq(genai_builder_finish(g, &out, NULL), 0);
	return out;
}

// Eight rows up to limit, twelve above.
static void ropes(uint32_t *out)
{
	uint32_t total = genai_builder_find(b, "len"), cond, node;

	cond = op("Greater", "is_long", GENAI_DT_BOOL, total,
		  constant("limit", 0, made->limit));
	out[0] = value("cos", GENAI_DT_F32, 2, -1, 4, 0, 0);
	out[1] = value("sin", GENAI_DT_F32, 2, -1, 4, 0, 0);
	node = genai_builder_node(b, "If", "", 21, "choose", &cond, 1, out, 2);
	genai_builder_attr_graph(b, node, "then_branch", branch(12, 2));
	genai_builder_attr_graph(b, node, "else_branch", branch(8, 1));
}

static void attention(uint32_t h, uint32_t *out_attn)
{
	uint32_t mask = input("attention_mask", GENAI_DT_I64, 2, -1, -1, 0, 0);
	uint32_t k = input("past_key_values.0.key", made->kv_dtype,
			   made->kv_rank, -1, made->heads, -1, made->head_size);
	uint32_t v = input("past_key_values.0.value", made->kv_dtype,
			   made->kv_rank, -1, made->heads, -1, made->head_size);
	uint32_t in[9] = {h, h, h, k, v}, out[3];

	lengths(mask, &in[5], &in[6]);
	if (made->limit)
		ropes(&in[7]);
	else
		tables(&in[7]);
	out[0] = value("attn", GENAI_DT_F32, 3, -1, -1, 4, 0);
	out[1] = value("present.0.key", made->kv_dtype, 4, -1, made->heads, -1,
		       made->head_size);
	out[2] = value("present.0.value", made->kv_dtype, 4, -1, made->heads,
		       -1, made->head_size);
	genai_builder_node(b, "GroupQueryAttention", "com.microsoft", 1, "gqa",
			   in, 9, out, 3);
	output(out[1], "present.0.key");
	output(out[2], "present.0.value");
	if (made->mask_reader)
		genai_builder_output(b, op(made->mask_reader, "odd",
					   GENAI_DT_I64, mask, mask));
	*out_attn = out[0];
}

// Three positions for each token, and who else reads them.
static uint32_t three(uint32_t h)
{
	static const float table[8 * 4];
	static const int64_t dims[2] = {8, 4};
	uint32_t in[4] = {h}, out, node;

	in[1] = input("position_ids", GENAI_DT_I64, 3, 3, -1, -1, 0);
	in[2] = genai_builder_const(b, "mcos", GENAI_DT_F32, 2, dims, table);
	in[3] = genai_builder_const(b, "msin", GENAI_DT_F32, 2, dims, table);
	out = value("turned", GENAI_DT_F32, 3, -1, -1, 4, 0);
	node = genai_builder_node(b, "MRotaryEmbedding", "com.microsoft", 1,
				  "turn", in, 4, &out, 1);
	genai_builder_attr_ints(b, node, "mrope_section", made->section, 3);
	genai_builder_attr_int(b, node, "mrope_layout", 1);
	genai_builder_attr_int(b, node, "num_heads", 2);
	return made->hidden ? op("Add", "more", GENAI_DT_F32, out, in[1]) : out;
}

static struct genai_graph *graph(const struct plan *p)
{
	static const float emb[8 * 4], head[2 * 4 * 8]; // of any type
	static const int64_t de[] = {8, 4}, dh[] = {4, 8};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_graph *g = NULL;
	uint32_t ids, h, attn, logits, w;
	int32_t rc;

	made = p;
	b = genai_builder_open("tiny");
	ids = input("input_ids", GENAI_DT_I64, 2, -1, -1, 0, 0);
	h = p->no_embedding
		    ? op("Transpose", "turned", GENAI_DT_F32, GENAI_NONE,
			 GENAI_NONE)
		    : genai_builder_const(b, "emb", GENAI_DT_F32, 2, de, emb);
	h = op("Gather", "hidden", GENAI_DT_F32, h, ids);
	if (p->positions)
		h = op("Add", "placed", GENAI_DT_F32, h,
		       input("position_ids", GENAI_DT_I64, 2, -1, -1, 0, 0));
	if (p->experts)
		h = op("QMoE", "mixed", GENAI_DT_F32, h, GENAI_NONE);
	if (p->section)
		h = three(h);
	attention(h, &attn);
	logits = value("logits", GENAI_DT_F32, 3, -1, p->logits_rows, 8, 0);
	w = genai_builder_const(b, "lm_head",
				p->stored ? p->stored : GENAI_DT_F32, 2, dh,
				head);
	if (p->stored)
		w = op("Cast", "wide", GENAI_DT_F32, w, GENAI_NONE);
	genai_builder_node(
		b, "MatMul", "", 21, "head",
		(uint32_t[]){p->no_head_input ? GENAI_NONE : attn, w}, 2,
		&logits, 1);
	output(logits, "logits");
	if (p->hidden)
		genai_builder_output(b, op("Relu", "hidden_states",
					   GENAI_DT_F32, attn, GENAI_NONE));
	if (p->extra_input)
		genai_builder_set_input(
			b, 0, 0,
			input(p->extra_input, GENAI_DT_F32, 2, -1, -1, 0, 0));
	rc = genai_builder_finish(b, &g, &err);
	ck_assert_msg(!rc, "%s", err.text);
	return g;
}

static struct genai_graph *source;
static struct genai_step step;

static void build(const struct plan *p)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc;

	source = graph(p);
	rc = genai_step_build(source, &config, GENAI_STEP_LAST, false, &step,
			      &err);
	ck_assert_msg(!rc, "%s", err.text);
}

static void drop(void)
{
	genai_step_free(&step);
	genai_graph_free(source);
}

static void refused(const struct plan *p, int32_t code, const char *text)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_step s;

	source = graph(p);
	fails(genai_step_build(source, &config, GENAI_STEP_LAST, false, &s,
			       &err),
	      code, &err, text);
	genai_graph_free(source);
}

static const char *in_name(uint32_t i)
{
	return genai_graph_value(step.graph, step.graph->inputs[i])->name;
}

static const char *out_name(uint32_t i)
{
	return genai_graph_value(step.graph, step.graph->outputs[i])->name;
}

static int has_op(const char *name)
{
	int n = 0;

	for (uint32_t i = 0; i < step.graph->n_nodes; i++)
		n += !strcmp(genai_graph_node(step.graph, i)->op, name);
	return n;
}

static const struct genai_node *node_named(const char *op_name)
{
	for (uint32_t i = 0; i < step.graph->n_nodes; i++)
		if (!strcmp(genai_graph_node(step.graph, i)->op, op_name))
			return genai_graph_node(step.graph, i);
	return NULL;
}

START_TEST(inputs_and_outputs)
{
	build(&plain);
	ck_assert_uint_eq(step.graph->n_inputs, 5);
	ck_assert_str_eq(in_name(step.ids), "input_ids");
	ck_assert_str_eq(in_name(step.past), "genai.past");
	ck_assert_str_eq(in_name(step.rows), "genai.rows");
	ck_assert_uint_eq(step.begins, GENAI_NONE);
	ck_assert_str_eq(in_name(step.states.v[0].in), "past_key_values.0.key");
	ck_assert_str_eq(in_name(step.states.v[1].in),
			 "past_key_values.0.value");
	ck_assert_str_eq(out_name(step.states.v[0].out), "present.0.key");
	ck_assert_str_eq(out_name(step.states.v[1].out), "present.0.value");
	ck_assert_str_eq(out_name(step.total), "genai.total");
	ck_assert_str_eq(out_name(step.next), "genai.next");
	ck_assert_str_eq(out_name(step.best), "genai.best");
	ck_assert_uint_eq(step.states.n, 2);
	ck_assert_int_eq(step.states.v[0].dims[1], 2);
	ck_assert_int_eq(step.states.v[0].dims[3], 16);
	ck_assert_int_eq(step.vocab, 8);
	ck_assert_int_eq(step.rope_rows, 8);
	ck_assert_uint_eq(step.logits_dtype, GENAI_DT_F32);
	ck_assert(!step.one_row);
	drop();
}
END_TEST

START_TEST(the_mask_is_gone)
{
	const struct genai_node *gqa;

	build(&plain);
	ck_assert_int_eq(has_op("ReduceSum"), 0);
	gqa = node_named("GroupQueryAttention");
	// past + S - 1 and past + S
	ck_assert_str_eq(genai_graph_value(step.graph, gqa->inputs[5])->name,
			 "genai.last");
	ck_assert_str_eq(genai_graph_value(step.graph, gqa->inputs[6])->name,
			 "genai.total");
	ck_assert_uint_eq(genai_graph_value(step.graph, gqa->inputs[6])->dtype,
			  GENAI_DT_I32);
	drop();
}
END_TEST

// A matrix of 16 bits is multiplied with as it is stored, where that is asked
// for.
START_TEST(stored_in_fewer_bits)
{
	static const uint32_t types[] = {GENAI_DT_F16, GENAI_DT_BF16,
					 GENAI_DT_F64};
	struct genai_error err = GENAI_ERROR_INIT;
	struct plan p = plain;
	bool fewer = types[_i / 2] != GENAI_DT_F64, ask = _i % 2;
	const struct genai_node *head = NULL;

	p.stored = types[_i / 2];
	source = graph(&p);
	ck_assert_int_eq(genai_step_build(source, &config, GENAI_STEP_LAST, ask,
					  &step, &err),
			 0);
	for (uint32_t i = 0; i < step.graph->n_nodes; i++)
		if (!strcmp(genai_graph_node(step.graph, i)->op, "MatMul"))
			head = genai_graph_node(step.graph, i);
	ck_assert_ptr_nonnull(head);
	ck_assert_str_eq(head->domain, ask && fewer ? "genai" : "");
	ck_assert_uint_eq(genai_graph_value(step.graph, head->inputs[1])->dtype,
			  ask && fewer ? p.stored : GENAI_DT_F32);
	ck_assert_int_eq(step.vocab, 8);
	drop();
}
END_TEST

// Of all rows none is chosen from.
START_TEST(all_rows)
{
	struct genai_error err = GENAI_ERROR_INIT;

	source = graph(&plain);
	ck_assert_int_eq(genai_step_build(source, &config, GENAI_STEP_ALL,
					  false, &step, &err),
			 0);
	ck_assert_uint_eq(step.next, GENAI_NONE);
	ck_assert_uint_eq(step.best, GENAI_NONE);
	ck_assert_str_eq(in_name(step.rows), "genai.rows");
	ck_assert_int_eq(has_op("ArgMax"), 0);
	drop();
}
END_TEST

// The head sees the rows that are asked for, unless the graph cuts itself.
START_TEST(rows_for_the_head)
{
	struct plan cut = plain;
	const struct genai_node *rows = NULL;

	build(&plain);
	ck_assert_str_eq(
		genai_graph_value(step.graph, node_named("MatMul")->inputs[0])
			->name,
		"genai.at_rows");
	for (uint32_t i = 0; i < step.graph->n_nodes; i++)
		if (!strcmp(genai_graph_node(step.graph, i)->name,
			    "genai.at_rows"))
			rows = genai_graph_node(step.graph, i);
	ck_assert_ptr_nonnull(rows);
	ck_assert_uint_eq(rows->inputs[1], step.graph->inputs[step.rows]);
	drop();
	cut.logits_rows = 1;
	build(&cut);
	ck_assert(step.one_row);
	ck_assert_uint_eq(step.rows, GENAI_NONE);
	ck_assert_str_eq(
		genai_graph_value(step.graph, node_named("MatMul")->inputs[0])
			->name,
		"attn");
	drop();
}
END_TEST

START_TEST(positions_are_computed)
{
	struct plan p = plain;

	p.positions = true;
	build(&p);
	ck_assert_uint_eq(step.graph->n_inputs, 5);
	ck_assert_str_eq(genai_graph_value(step.graph,
					   node_named("Unsqueeze")->outputs[0])
				 ->name,
			 "genai.position_ids");
	drop();
}
END_TEST

// Of text the three are one, and who turns by them needs no more.
START_TEST(three_positions_are_one)
{
	static const int64_t good[] = {2, 1, 1}, less[] = {2, 1, 0},
			     below[] = {6, -1, -1};
	struct plan p = plain;
	const struct genai_node *n;

	p.section = good;
	for (int more = 0; more < 2; more++) {
		p.hidden = more;
		build(&p);
		n = node_named("RotaryEmbedding");
		ck_assert_ptr_nonnull(n);
		ck_assert_str_eq(n->name, "turn");
		ck_assert_str_eq(
			genai_graph_value(step.graph, n->inputs[1])->name,
			"genai.past64");
		ck_assert_uint_eq(n->n_attrs, 1);
		ck_assert_int_eq(has_op("MRotaryEmbedding"), 0);
		ck_assert_int_eq(has_op("Expand"), more);
		ck_assert_uint_eq(step.graph->n_inputs, 5);
		drop();
	}
	p.section = less;
	refused(&p, GENAI_E_UNSUPPORTED,
		"node turn (MRotaryEmbedding): attribute mrope_section");
	p.section = below;
	refused(&p, GENAI_E_UNSUPPORTED, "mrope_section");
}
END_TEST

// Both tables are one; a step is told the first row of those it turns by.
START_TEST(tables_by_length)
{
	struct plan p = plain;
	const struct genai_tensor *t;
	const struct genai_node *n;
	const float *table;

	p.limit = 7;
	build(&p);
	ck_assert_int_eq(has_op("If") + has_op("Greater"), 0);
	n = node_named("GroupQueryAttention");
	ck_assert_uint_eq(n->n_inputs, 10);
	ck_assert_str_eq(genai_graph_value(step.graph, n->inputs[9])->name,
			 "genai.rope_ids");
	t = genai_graph_tensor(
		step.graph,
		genai_graph_value(step.graph, n->inputs[7])->tensor);
	ck_assert_int_eq(t->dims[0], 20);
	ck_assert_int_eq(t->dims[1], 4);
	table = (const void *)((const char *)genai_graph_file(step.graph,
							      t->file)
				       ->data +
			       t->offset);
	ck_assert(table[0] == 1 && table[8 * 4] == 2);
	ck_assert_int_eq(step.rope_rows, 12);
	ck_assert_int_eq(step.turn_limit, 7);
	ck_assert_int_eq(step.turn_row, 8);
	ck_assert(step.turns_again);
	ck_assert_str_eq(in_name(step.index), "genai.index");
	ck_assert_str_eq(in_name(step.turn), "genai.turn");
	drop();
	p.limit = 9;
	refused(&p, GENAI_E_UNSUPPORTED,
		"node choose (If): rotary tables of 8 rows up to a length of "
		"9");
	p.limit = -1;
	refused(&p, GENAI_E_UNSUPPORTED, "up to a length of -1");
}
END_TEST

START_TEST(further_outputs_are_dropped)
{
	struct plan p = plain;

	p.hidden = true;
	build(&p);
	for (uint32_t i = 0; i < step.graph->n_outputs; i++)
		ck_assert_str_ne(out_name(i), "hidden_states");
	ck_assert_int_eq(has_op("Relu"), 0);
	drop();
}
END_TEST

// Found by fuzzing: the row was taken of the input that is not there.
START_TEST(a_head_without_its_input)
{
	struct plan p = plain;

	p.no_head_input = true;
	build(&p);
	ck_assert_uint_eq(node_named("MatMul")->inputs[0], GENAI_NONE);
	drop();
}
END_TEST

// As a tied head's embedding is, but of nothing.
START_TEST(an_embedding_that_is_not_there)
{
	struct plan p = plain;

	p.no_embedding = true;
	build(&p);
	ck_assert_uint_eq(node_named("Transpose")->inputs[0], GENAI_NONE);
	drop();
}
END_TEST

START_TEST(heads_from_the_configuration)
{
	struct plan p = plain;

	p.heads = p.head_size = -1;
	refused(&p, GENAI_E_FORMAT,
		"past_key_values.0.key: neither the graph nor "
		"genai_config.json says");
	config.n_kv_heads = 3;
	config.head_size = 32;
	build(&p);
	ck_assert_int_eq(step.states.v[0].dims[1], 3);
	ck_assert_int_eq(step.states.v[0].dims[3], 32);
	drop();
}
END_TEST

// What the list of providers says about experts.
static bool not_cuda(const char *list)
{
	struct genai_model_config c;
	char dir[] = "check_step.XXXXXX", path[64];
	FILE *f;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/genai_config.json", dir);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fprintf(f,
		"{\"model\": {\"decoder\": {\"session_options\": "
		"{\"provider_options\": %s}}}}",
		list);
	fclose(f);
	ck_assert_int_eq(genai_model_config_load(dir, NULL, &c, NULL), 0);
	unlink(path);
	rmdir(dir);
	return c.not_cuda;
}

// Experts of exports for other providers than CUDA lie as they are.
START_TEST(experts_as_they_are)
{
	struct plan p = plain;
	uint32_t n;

	p.experts = true;
	build(&p);
	n = node_named("QMoE")->n_attrs;
	drop();
	config.not_cuda = true;
	build(&p);
	ck_assert_uint_eq(node_named("QMoE")->n_attrs, n + 1);
	ck_assert_str_eq(genai_node_attr(node_named("QMoE"), n)->name,
			 "weights_prepacked");
	ck_assert_int_eq(genai_node_attr(node_named("QMoE"), n)->i, 0);
	drop();
	ck_assert(!not_cuda("[]"));
	ck_assert(!not_cuda("[1, {}]"));
	ck_assert(!not_cuda("[{\"cuda\": {}}]"));
	ck_assert(!not_cuda("[{\"CUDAExecutionProvider\": {}}]"));
	ck_assert(not_cuda("[{\"webgpu\": {\"a\": \"0\"}}]"));
	ck_assert(not_cuda("[{\"DML\": {}}]"));
}
END_TEST

static const struct {
	struct plan p;
	int32_t code;
	const char *text;
} bad[] = {
	{{.no_output = "logits"}, GENAI_E_UNSUPPORTED, "no output logits"},
	{{.no_output = "present.0.key"},
	 GENAI_E_FORMAT,
	 "graph output present.0.key is missing"},
	{{.no_output = "present.0.value"},
	 GENAI_E_FORMAT,
	 "graph output present.0.value is missing"},
	{{.kv_dtype = GENAI_DT_I16},
	 GENAI_E_UNSUPPORTED,
	 "past_key_values.0.key: a state of type INT16"},
	{{.kv_dtype = GENAI_DT_I64}, GENAI_E_UNSUPPORTED, "type INT64"},
	{{.kv_rank = 3},
	 GENAI_E_UNSUPPORTED,
	 "past_key_values.0.key: rank 3, expected 4"},
	{{.heads = INT64_C(1) << 40}, GENAI_E_LIMIT, "1099511627776 heads"},
	{{.head_size = INT64_MAX}, GENAI_E_LIMIT, "at most 65536"},
	{{.mask_reader = "Mul"}, GENAI_E_UNSUPPORTED, "odd"},
	{{.mask_reader = "Concat"}, GENAI_E_UNSUPPORTED, "attention mask"},
	{{.extra_input = "inputs_embeds"},
	 GENAI_E_UNSUPPORTED,
	 "inputs_embeds: its meaning is not known"},
};

START_TEST(what_is_no_decoder)
{
	struct plan p = bad[_i].p;

	if (!p.kv_dtype)
		p.kv_dtype = plain.kv_dtype;
	if (!p.kv_rank)
		p.kv_rank = plain.kv_rank;
	if (!p.heads)
		p.heads = plain.heads;
	if (!p.head_size)
		p.head_size = plain.head_size;
	p.logits_rows = -1;
	refused(&p, bad[_i].code, bad[_i].text);
}
END_TEST

START_TEST(other_names)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_step s;

	source = graph(&plain);
	strcpy(config.input_ids, "tokens");
	fails(genai_step_build(source, &config, GENAI_STEP_LAST, false, &s,
			       &err),
	      GENAI_E_UNSUPPORTED, &err, "no input tokens");
	strcpy(config.input_ids, "input_ids");
	strcpy(config.past_value, "old_%d_value");
	fails(genai_step_build(source, &config, GENAI_STEP_LAST, false, &s,
			       &err),
	      GENAI_E_FORMAT, &err, "graph input old_0_value is missing");
	// other keys are no cache: then nobody knows what they are
	strcpy(config.past_key, "old_%d_key");
	fails(genai_step_build(source, &config, GENAI_STEP_LAST, false, &s,
			       &err),
	      GENAI_E_UNSUPPORTED, &err, "its meaning is not known");
	genai_graph_free(source);
}
END_TEST

// Of real exports: the graph that is planned has these inputs only.
START_TEST(exports)
{
	static const char *const folders[] = {
		MODEL("llama-cpu-fp32"),   MODEL("llama-cpu-int4-asym"),
		MODEL("llama-cuda-fp16"),  MODEL("mistral-cpu-fp32"),
		MODEL("phi3-cpu-int4"),	   MODEL("qwen2-cpu-int8"),
		MODEL("qwen3-cpu-int4"),   MODEL("gptoss-cpu-int4"),
		MODEL("qwen25vl-cpu-int4")};
	struct genai_runtime *rt = runtime("eager", "pager_sync", "auto", NULL);
	struct genai_model *m = model(rt, folders[_i], 0);

	ck_assert_uint_eq(m->step.states.n, 4);
	ck_assert_uint_eq(m->step.graph->n_inputs, 7);
	ck_assert_uint_eq(m->step.graph->n_outputs, 8);
	ck_assert_int_eq(m->step.vocab, 512);
	genai_model_close(m);
	genai_close(rt);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("step");
	TCase *tc = tcase_create("all");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, inputs_and_outputs);
	tcase_add_test(tc, all_rows);
	tcase_add_loop_test(tc, stored_in_fewer_bits, 0, 6);
	tcase_add_test(tc, the_mask_is_gone);
	tcase_add_test(tc, rows_for_the_head);
	tcase_add_test(tc, positions_are_computed);
	tcase_add_test(tc, three_positions_are_one);
	tcase_add_test(tc, tables_by_length);
	tcase_add_test(tc, further_outputs_are_dropped);
	tcase_add_test(tc, a_head_without_its_input);
	tcase_add_test(tc, an_embedding_that_is_not_there);
	tcase_add_test(tc, heads_from_the_configuration);
	tcase_add_test(tc, experts_as_they_are);
	tcase_add_loop_test(tc, what_is_no_decoder, 0,
			    sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(tc, other_names);
	tcase_add_loop_test(tc, exports, 0, 9);
	suite_add_tcase(s, tc);
	return genai_check_main(s);
}
