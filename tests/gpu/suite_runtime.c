// suite_runtime.c - recordings, refusals, late outputs, memory, streams.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/gpu/rig.h"

// x = x + 1 written in place, read by a node after it: captured and eager.
static void in_place_case(struct check *c, int captured)
{
	int64_t d[2] = {1, 1}, none[1] = {1};
	int32_t x = 5, one = 1, y = 0, got = 0;
	struct genai_error err = GENAI_ERROR_INIT;
	struct op_how how = {.captured = captured, .steps = 4};
	static struct op_graph g;
	uint32_t in, k, sum, dbl;

	if (!check_begin(c, "in place, captured %d", captured))
		return;
	op_graph_init(&g);
	in = op_input(&g, GENAI_DT_I32, 2, d, &x);
	k = op_const(&g, GENAI_DT_I32, 1, none, &one);
	op_node(&g, "", "Add", (uint32_t[]){in, k, OP_END});
	sum = op_output(&g, GENAI_DT_I32, 2, d, &got);
	op_node_out(&g, (uint32_t[]){sum, OP_END});
	// reads the old value, after the sum was made
	op_node(&g, "", "Add", (uint32_t[]){in, in, OP_END});
	dbl = op_output(&g, GENAI_DT_I32, 2, d, &y);
	op_node_out(&g, (uint32_t[]){dbl, OP_END});
	op_over(&g, sum, in);
	if (c->run(c, &g, &how, &err))
		check_result(c, false, "%s", err.text);
	else
		check_result(c,
			     got == 9 && y == 16 &&
				     how.stats.captures == (uint64_t)captured &&
				     how.stats.replays ==
					     (captured ? 3u : 0u) &&
				     how.stats.n_fallbacks == 0,
			     "x is %d, twice the last x is %d, %llu captures, "
			     "%llu replays",
			     got, y, (unsigned long long)how.stats.captures,
			     (unsigned long long)how.stats.replays);
}

// A bad index is told with its node, and the device works afterwards.
static void refuse_case(struct check *c, int captured)
{
	int64_t dd[2] = {100, 64}, id[2] = {1, 1}, od[3] = {1, 1, 64};
	int64_t bad = 100, good = 99;
	void *data = rnd_tensor(GENAI_DT_F16, 6400, -1, 1);
	void *out = calloc(64, 4);
	struct genai_error err = GENAI_ERROR_INIT;
	struct op_how how = {.captured = captured, .steps = 3};
	static struct op_graph g;
	int32_t rc, rc2;

	if (check_begin(c, "refusal, captured %d", captured)) {
		op_graph_init(&g);
		op_node(&g, "", "Gather",
			(uint32_t[]){op_const(&g, GENAI_DT_F16, 2, dd, data),
				     op_input(&g, GENAI_DT_I64, 2, id, &bad),
				     OP_END});
		op_node_out(&g, (uint32_t[]){
					op_output(&g, GENAI_DT_F16, 3, od, out),
					OP_END});
		rc = c->run(c, &g, &how, &err);
		check_result(c,
			     rc == GENAI_E_DEVICE &&
				     strstr(err.text, "node node (Gather)") &&
				     strstr(err.text, "index 100 is outside "
						      "[-100, 100)"),
			     "%d: %s", rc, err.text);
		g.host[1] = &good;
		rc2 = c->run(c, &g, &how, &err);
		check_result(c,
			     !rc2 && !memcmp(out, (char *)data + 99 * 128, 128),
			     "afterwards %d: %s", rc2, err.text);
	}
	free(data);
	free(out);
}

static void nan_case(struct check *c)
{
	int64_t xd[2] = {1, 300}, od[2] = {1, 1}, got = 0;
	float x[300] = {0};
	struct genai_error err = GENAI_ERROR_INIT;
	struct op_how how = {0};
	static struct op_graph g;
	int32_t rc;

	if (!check_begin(c, "NaN"))
		return;
	x[17] = 0.f / x[0];
	op_graph_init(&g);
	op_node(&g, "", "ArgMax",
		(uint32_t[]){op_input(&g, GENAI_DT_F32, 2, xd, x), OP_END});
	op_attr_int(&g, "axis", 1);
	op_node_out(&g, (uint32_t[]){op_output(&g, GENAI_DT_I64, 2, od, &got),
				     OP_END});
	rc = c->run(c, &g, &how, &err);
	check_result(c, rc == GENAI_E_DEVICE && strstr(err.text, "element 17"),
		     "%d: %s", rc, err.text);
}

// Logits of row 1 that choose nobody; what: of the refusal, NULL: none.
static void router_case(struct check *c, const float *row, const char *what)
{
	const int64_t xd[2] = {3, 8}, ld[2] = {3, 4}, wd[3] = {4, 8, 8};
	float x[24], logits[12], w[256], y[24] = {0};
	struct genai_error err = GENAI_ERROR_INIT;
	struct op_how how = {.steps = 1};
	static struct op_graph g;
	bool sound = true;
	int32_t rc;

	if (!check_begin(c, "router: %s", what ? what : "masked experts"))
		return;
	for (int i = 0; i < 256; i++)
		w[i] = (float)(i % 7) - 3;
	for (int i = 0; i < 24; i++)
		x[i] = 1;
	for (int i = 0; i < 12; i++)
		logits[i] = i / 4 == 1 ? row[i % 4] : (float)(i % 4);
	op_graph_init(&g);
	op_node(&g, "com.microsoft", "MoE",
		(uint32_t[]){op_input(&g, GENAI_DT_F32, 2, xd, x),
			     op_input(&g, GENAI_DT_F32, 2, ld, logits),
			     op_const(&g, GENAI_DT_F32, 3, wd, w), GENAI_NONE,
			     op_const(&g, GENAI_DT_F32, 3, wd, w), OP_END});
	op_attr_int(&g, "k", 2);
	op_node_out(&g, (uint32_t[]){op_output(&g, GENAI_DT_F32, 2, xd, y),
				     OP_END});
	rc = c->run(c, &g, &how, &err);
	for (int i = 0; i < 24; i++)
		sound = sound && isfinite(y[i]);
	if (what)
		check_result(c,
			     rc == GENAI_E_DEVICE && strstr(err.text, what) &&
				     strstr(err.text, "in row 1"),
			     "%d: %s", rc, err.text);
	else
		check_result(c, !rc && sound, "%d: %s", rc, err.text);
}

static void router_cases(struct check *c)
{
	const float inf = INFINITY;

	router_case(c, (float[]){0, NAN, 1, 2}, "NaN or infinity");
	router_case(c, (float[]){0, inf, 1, 2}, "NaN or infinity");
	router_case(c, (float[]){-inf, -inf, -inf, -inf}, "no finite value");
	router_case(c, (float[]){-inf, -inf, -inf, 2}, NULL);
	router_case(c, (float[]){3e38f, 3e38f, 3e38f, 3e38f}, NULL);
}

static void unknown_case(struct check *c)
{
	int64_t d[1] = {3};
	float x[3] = {0}, y[3];
	struct genai_error err = GENAI_ERROR_INIT;
	struct op_how how = {0};
	static struct op_graph g;
	int32_t rc;

	if (!check_begin(c, "unknown operator and attribute"))
		return;
	op_graph_init(&g);
	op_node(&g, "", "Nope",
		(uint32_t[]){op_input(&g, GENAI_DT_F32, 1, d, x), OP_END});
	op_node_out(&g,
		    (uint32_t[]){op_output(&g, GENAI_DT_F32, 1, d, y), OP_END});
	rc = c->run(c, &g, &how, &err);
	check_result(c, rc == GENAI_E_UNSUPPORTED && strstr(err.text, "Nope"),
		     "%d: %s", rc, err.text);
	g.nodes[0].op = "Sigmoid";
	op_attr_int(&g, "odd", 1);
	rc = c->run(c, &g, &how, &err);
	check_result(c, rc == GENAI_E_UNSUPPORTED && strstr(err.text, "odd"),
		     "%d: %s", rc, err.text);
}

// Reserve, map, write, unmap, map again; tickets are needed.
static void range_case(struct check *c)
{
	const struct genai_stream_ops *o = &gpu_of(c)->stream_ops;
	struct genai_ticket t = {.seal = 77};
	struct genai_stream_caps caps = {.size = sizeof(caps)};
	struct genai_range r = {0, 0}, part;
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_mem a = {0};
	struct genai_point p = {NULL, 0};
	int32_t rc, rc2;
	char *host;

	if (!check_begin(c, "address ranges"))
		return;
	rc = o->caps(gpu_of(c)->self, &caps, &err);
	if (!rc)
		rc = o->reserve(gpu_of(c)->self, caps.granule * 3 + 1, &r,
				&err);
	check_result(c, !rc && r.bytes == caps.granule * 4, "reserve: %s",
		     err.text);
	part = (struct genai_range){r.addr + caps.granule, caps.granule * 2};
	rc = o->map(gpu_of(c)->self, part, "kv", &err);
	check_result(c, !rc, "map: %s", err.text);
	rc = o->map(gpu_of(c)->self, part, "kv", &err);
	check_result(c, rc == GENAI_E_INVAL, "map twice: %d", rc);
	rc = o->alloc(gpu_of(c)->self, GENAI_MEM_HOST_PINNED, 65536, "test", &a,
		      &err);
	host = a.host;
	memset(host, 0x5a, 65536);
	rc = o->copy(gpu_of(c)->self, gpu_of(c)->compute,
		     part.addr + part.bytes - 65536, (uint64_t)(uintptr_t)host,
		     65536, GENAI_COPY_H2D, &err);
	rc2 = o->unmap(gpu_of(c)->self, part, NULL, NULL);
	check_result(c, !rc && rc2 == GENAI_E_STATE,
		     "unmap without a ticket %d", rc2);
	memset(host + 32768, 0, 0);
	rc = o->mark(gpu_of(c)->self, gpu_of(c)->compute, &p, &err);
	if (!rc)
		rc = gpu_of(c)->barrier_ops.host_read(gpu_of(c)->self, &p, 1,
						      UINT64_MAX, &err);
	memset(host, 0, 65536);
	if (!rc)
		rc = o->copy(gpu_of(c)->self, gpu_of(c)->compute,
			     (uint64_t)(uintptr_t)host,
			     part.addr + part.bytes - 65536, 65536,
			     GENAI_COPY_D2H, &err);
	if (!rc)
		rc = o->mark(gpu_of(c)->self, gpu_of(c)->compute, &p, &err);
	if (!rc)
		rc = gpu_of(c)->barrier_ops.host_read(gpu_of(c)->self, &p, 1,
						      UINT64_MAX, &err);
	check_result(c, !rc && host[0] == 0x5a && host[65535] == 0x5a,
		     "through the mapping: %s", err.text);
	rc = o->unreserve(gpu_of(c)->self, r, &t, &err);
	check_result(c, rc == GENAI_E_BUSY, "unreserve while mapped %d", rc);
	rc = o->unmap(gpu_of(c)->self, part, &t, &err);
	if (!rc)
		rc = o->unreserve(gpu_of(c)->self, r, &t, &err);
	check_result(c, !rc, "%s", err.text);
	o->free(gpu_of(c)->self, a.range.addr, &t, NULL);
}

// A shared read-only file mapping is registered and read; a private one is
// refused, quickly.
static void register_case(struct check *c)
{
	const struct genai_stream_ops *o = &gpu_of(c)->stream_ops;
	struct genai_ticket t = {.seal = 77};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_mem m = {0}, next = {0};
	char path[] = "/tmp/genai-gpu-XXXXXX", page[4096], got[100];
	int fd = mkstemp(path);
	uint64_t dev;
	char *map, *priv;
	int32_t rc;

	if (fd < 0)
		return;
	unlink(path);
	for (int i = 0; i < 4096; i++)
		page[i] = (char)(i * 7);
	for (int i = 0; i < 64; i++)
		if (write(fd, page, 4096) != 4096)
			break;
	map = mmap(NULL, 64 * 4096, PROT_READ, MAP_SHARED, fd, 0);
	priv = mmap(NULL, 64 * 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	if (check_begin(c, "registered file mapping")) {
		rc = o->host_register(gpu_of(c)->self, priv, 64 * 4096, &m,
				      &err);
		check_result(c, rc == GENAI_E_UNSUPPORTED, "private: %d", rc);
		rc = o->host_register(gpu_of(c)->self, map + 100, 200000, &m,
				      &err);
		if (rc == GENAI_E_UNSUPPORTED) {
			printf("skipped: %s\n", err.text);
			c->skipped++;
			goto out;
		}
		check_result(c, !rc, "shared: %s", err.text);
		rc = o->host_register(gpu_of(c)->self, map + 200100, 5000,
				      &next, &err);
		check_result(c,
			     rc == GENAI_E_UNSUPPORTED || !rc ||
				     rc == GENAI_E_INVAL,
			     "next to it: %d", rc);
		dev = gpu_upload(gpu_of(c), NULL, 100);
		rc = o->copy(gpu_of(c)->self, gpu_of(c)->compute, dev,
			     (uint64_t)(uintptr_t)(map + 4111), 100,
			     GENAI_COPY_H2D, &err);
		gpu_download(gpu_of(c), got, dev, 100);
		check_result(c, !rc && !memcmp(got, map + 4111, 100),
			     "copy from it: %s", err.text);
		gpu_free(gpu_of(c), dev);
		if (next.range.addr)
			o->host_unregister(gpu_of(c)->self, next.range.addr, &t,
					   NULL);
		if (m.range.addr)
			o->host_unregister(gpu_of(c)->self, m.range.addr, &t,
					   NULL);
	}
out:
	munmap(map, 64 * 4096);
	munmap(priv, 64 * 4096);
	close(fd);
}

void suite_runtime(struct check *c)
{
	for (int captured = 0; captured < 2; captured++) {
		in_place_case(c, captured);
		refuse_case(c, captured);
	}
	nan_case(c);
	router_cases(c);
	unknown_case(c);
	range_case(c);
	register_case(c);
}
