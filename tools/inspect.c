// inspect.c - what a model consists of, and what it needs here.
#include "tools/cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json_file.h"
#include "core/model/folder.h"
#include "core/model/pipeline.h"
#include "core/graph/build.h"
#include "tools/pull/pull.h"
#include "tools/rates.h"

#define MAX_OPS 256

struct op_count {
	const char *domain, *op;
	uint32_t count;
	bool carried;
};

struct inspect {
	struct cli *c;
	struct op_count ops[MAX_OPS];
	uint32_t n_ops, n_unsupported;
	json_t *j; // everything found
};

static bool carried(const struct genai_exec_caps *x, const struct genai_node *n)
{
	for (uint32_t i = 0; i < x->n_ops; i++) {
		const struct genai_exec_op *o =
			(const struct genai_exec_op *)((const char *)x->ops +
						       (size_t)i *
							       x->op_stride);

		if (!strcmp(o->op, n->op) && !strcmp(o->domain, n->domain) &&
		    o->since <= n->opset)
			return true;
	}
	return false;
}

static void count_ops(struct inspect *in, const struct genai_graph *g,
		      const struct genai_exec_caps *x)
{
	json_t *where = json_array(), *ops = json_array();

	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct genai_node *n = genai_graph_node(g, i);
		uint32_t k = 0;

		while (k < in->n_ops && (strcmp(in->ops[k].op, n->op) ||
					 strcmp(in->ops[k].domain, n->domain)))
			k++;
		if (k == in->n_ops && k < MAX_OPS)
			in->ops[in->n_ops++] = (struct op_count){
				n->domain, n->op, 0, carried(x, n)};
		if (k == MAX_OPS)
			continue;
		in->ops[k].count++;
		if (!in->ops[k].carried) {
			in->n_unsupported++;
			json_array_append_new(
				where,
				json_pack("{s:s, s:s, s:s}", "node", n->name,
					  "op", n->op, "domain", n->domain));
		}
	}
	for (uint32_t k = 0; k < in->n_ops; k++)
		json_array_append_new(
			ops, json_pack("{s:s, s:s, s:i, s:b}", "domain",
				       in->ops[k].domain, "op", in->ops[k].op,
				       "count", (int)in->ops[k].count,
				       "carried", in->ops[k].carried));
	json_object_set_new(in->j, "operators", ops);
	json_object_set_new(in->j, "unsupported", where);
}

static void weights_by_type(struct inspect *in, const struct genai_graph *g)
{
	json_t *types = json_object();

	for (uint32_t i = 0; i < g->n_tensors; i++) {
		const struct genai_tensor *t = genai_graph_tensor(g, i);
		const char *name = genai_dtype_name(t->dtype);
		json_int_t sum =
			json_integer_value(json_object_get(types, name));

		json_object_set_new(types, name,
				    json_integer(sum + (json_int_t)t->bytes));
	}
	json_object_set_new(in->j, "weight_bytes_by_type", types);
}

static void ledger(struct inspect *in, const struct genai_device *d)
{
	json_t *m = json_object();

	for (uint32_t i = 0; i < d->n_lines; i++)
		if (d->lines[i].peak)
			json_object_set_new(
				m, d->lines[i].tag,
				json_integer((json_int_t)d->lines[i].now));
	json_object_set_new(m, "device_total",
			    json_integer((json_int_t)d->used));
	json_object_set_new(m, "host_pinned",
			    json_integer((json_int_t)d->pinned));
	json_object_set_new(in->j, "memory", m);
}

static int32_t plan_of(struct inspect *in, struct cli_model *m)
{
	const struct genai_pager_report *r = &m->model->paging.report;
	struct ceilings c;
	double floor_s;
	time_t measured;
	int32_t rc;

	json_object_set_new(in->j, "model_context",
			    json_integer((json_int_t)m->info.model_context));
	json_object_set_new(in->j, "context",
			    json_integer((json_int_t)m->info.context));
	json_object_set_new(
		in->j, "kv_bytes_per_position",
		json_integer((json_int_t)m->info.kv_bytes_per_position));
	json_object_set_new(in->j, "weights_bytes",
			    json_integer((json_int_t)m->info.weights_bytes));
	json_object_set_new(
		in->j, "plan",
		json_pack("{s:i, s:I, s:I, s:I, s:I, s:i, s:I}", "pages",
			  (int)r->n_pages, "pinned_bytes",
			  (json_int_t)r->pinned_bytes, "ring_bytes",
			  (json_int_t)r->ring_bytes, "in_place_bytes",
			  (json_int_t)r->in_place_bytes, "streamed_bytes",
			  (json_int_t)r->streamed_bytes, "ring_slots",
			  (int)r->ring_slots, "slot_bytes",
			  (json_int_t)r->slot_bytes));
	ledger(in, &m->rt->device);
	rc = rates_of(in->c, m->rt, false, &c, &measured);
	if (rc)
		return rc;
	floor_s = ceilings_floor_s(&c, m->model, 0, 0);
	json_object_set_new(in->j, "predicted",
			    json_pack("{s:o, s:o, s:o}", "tokens_per_s_at_most",
				      cli_real(1 / floor_s), "memory_gb_s",
				      cli_real(c.memory_bytes_s * 1e-9),
				      "link_gb_s",
				      cli_real(c.link_bytes_s * 1e-9)));
	return 0;
}

// What an import wrote about its tensors.
static void import_forms(struct inspect *in, const char *folder)
{
	json_t *j;

	if (!genai_json_file(folder, "import.json", 0, &j, NULL) && j)
		json_object_set_new(in->j, "import", j);
}

static double mib(const json_t *o, const char *key)
{
	return (double)json_integer_value(json_object_get(o, key)) / 1048576;
}

// As cli_real made it.
static double real_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_null(v) ? INFINITY : json_real_value(v);
}

static void print_sizes(json_t *sizes)
{
	const char *key, *comma = "";
	json_t *v;

	json_object_foreach(sizes, key, v)
	{
		printf("%s %s %.1f MiB", comma, key,
		       (double)json_integer_value(v) / 1048576);
		comma = ",";
	}
	printf("\n");
}

static void print_text(const struct inspect *in)
{
	const json_t *j = in->j, *p = json_object_get(j, "plan");
	const json_t *pr = json_object_get(j, "predicted");
	json_t *o;
	size_t i;

	printf("operators:");
	json_array_foreach(json_object_get(j, "operators"), i, o) printf(
		" %s%s:%d%s", json_string_value(json_object_get(o, "op")),
		*json_string_value(json_object_get(o, "domain")) ? "*" : "",
		(int)json_integer_value(json_object_get(o, "count")),
		json_is_true(json_object_get(o, "carried")) ? ""
							    : " (not carried)");
	printf("\n");
	json_array_foreach(json_object_get(j, "unsupported"), i, o)
		printf("not carried: node %s (%s, domain '%s')\n",
		       json_string_value(json_object_get(o, "node")),
		       json_string_value(json_object_get(o, "op")),
		       json_string_value(json_object_get(o, "domain")));
	printf("stored tensors:");
	print_sizes(json_object_get(j, "weight_bytes_by_type"));
	if (json_object_get(j, "error"))
		printf("cannot be run as a decoder: %s\n",
		       json_string_value(json_object_get(j, "error")));
	if (!p)
		return;
	printf("context: %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
	       " positions, %" JSON_INTEGER_FORMAT " cache bytes each\n",
	       json_integer_value(json_object_get(j, "context")),
	       json_integer_value(json_object_get(j, "model_context")),
	       json_integer_value(json_object_get(j, "kv_bytes_per_position")));
	printf("weights: %.1f MiB in %d pages: %.1f pinned, %.1f ring (%d "
	       "slots), %.1f in place, %.1f streamed per token\n",
	       mib(j, "weights_bytes"),
	       (int)json_integer_value(json_object_get(p, "pages")),
	       mib(p, "pinned_bytes"), mib(p, "ring_bytes"),
	       (int)json_integer_value(json_object_get(p, "ring_slots")),
	       mib(p, "in_place_bytes"), mib(p, "streamed_bytes"));
	printf("memory:");
	print_sizes(json_object_get(j, "memory"));
	printf("at most %.0f tokens/s: memory copies at %.1f GB/s, the link "
	       "at %.1f GB/s\n",
	       real_of(pr, "tokens_per_s_at_most"), real_of(pr, "memory_gb_s"),
	       real_of(pr, "link_gb_s"));
}

static void print_forms(const struct inspect *in)
{
	const json_t *list =
		json_object_get(json_object_get(in->j, "import"), "tensors");
	json_t *o;
	size_t i;

	json_array_foreach(list, i, o)
		printf("imported %s: %s as %s%s\n",
		       json_string_value(json_object_get(o, "name")),
		       json_string_value(json_object_get(o, "type")),
		       json_string_value(json_object_get(o, "form")),
		       json_is_true(json_object_get(o, "exact"))
			       ? ""
			       : " (within fp32 rounding)");
}

static int inspect(struct inspect *in, const char *path, bool json)
{
	struct genai_runtime *rt = NULL;
	struct genai_model_config config;
	struct genai_onnx *onnx = NULL;
	char folder[4200], file[256], hub[6000];
	struct cli_model m = {0};
	struct cli *c = in->c;
	int status = 0;
	int32_t rc = pull_resolve(c, &path, hub, sizeof(hub));

	if (!rc)
		rc = genai_graph_folder(path, folder, sizeof(folder), file,
					sizeof(file), &c->err);
	if (cli_is_gguf(path))
		rc = cli_folder(c, path, folder, sizeof(folder));
	if (!rc) {
		// what is wrong with it is said when it is opened
		if (genai_model_config_load(folder, NULL, &config, NULL))
			config.n_stages = 0;
		if (!config.n_stages && !file[0] && !config.filename[0])
			strcpy(file, "model.onnx");
		rc = genai_pipeline_load(folder, file, &config, NULL, &onnx,
					 &c->err);
	}
	if (!rc)
		rc = cli_runtime(c, &rt);
	if (rc) {
		genai_onnx_close(onnx);
		return cli_fail(c);
	}
	count_ops(in, genai_onnx_graph(onnx), &rt->exec_caps);
	weights_by_type(in, genai_onnx_graph(onnx));
	import_forms(in, folder);
	json_object_set_new(in->j, "executor", json_string(rt->executor.label));
	genai_close(rt);
	genai_onnx_close(onnx);
	rc = cli_open(c, cli_is_gguf(path) ? folder : path, 0, &m);
	if (!rc)
		rc = plan_of(in, &m);
	// what cannot run can be looked at all the same
	if (rc == GENAI_E_UNSUPPORTED) {
		json_object_set_new(in->j, "error", json_string(c->err.text));
		rc = 0;
	}
	if (rc) {
		status = cli_fail(c);
		cli_close(&m);
		return status;
	}
	if (json) {
		cli_print_json(json_incref(in->j));
	} else {
		print_text(in);
		if (c->verbose)
			print_forms(in);
	}
	cli_close(&m);
	return status;
}

static struct {
	const char *path, *limit, *budget;
	bool json;
} args;

static const struct cli_option options[] = {
	{"device-limit", 0, CLI_TEXT, "BYTES", "instead of the configuration's",
	 &args.limit},
	{"weight-budget", 0, CLI_TEXT, "BYTES", "the same", &args.budget},
	{"json", 0, CLI_FLAG, NULL, "one JSON object", &args.json},
	{0}};

static int run(struct cli *c, int argc, char **argv)
{
	struct inspect in = {.c = c};
	int status =
		cli_argument(c, options, argc, argv, "one model", &args.path);

	if (!status)
		status = cli_set(c, "runtime.device_limit", args.limit);
	if (!status)
		status = cli_set(c, "runtime.weight_budget", args.budget);
	if (status)
		return status;
	in.j = json_object();
	status = inspect(&in, args.path, args.json);
	json_decref(in.j);
	return status;
}

const struct command cmd_inspect = {
	"inspect", run, "DIR|MODEL.onnx", "what a model needs", options, NULL};
