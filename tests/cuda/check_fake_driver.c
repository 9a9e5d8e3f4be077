// check_fake_driver.c - does the fake driver see what a real one would only
// sometimes show?  Every mistake here is one that cuda_ep must not make: the
// same calls with the edge in place are silent.
#include <cuda.h>

#include "modules/cuda_ep/kernels/params.h"
#include "tests/cuda/cuda_kit.h"

#define BYTES 4096

static struct {
#define CEP_SYM(name) __typeof__(&name) name;
#include "modules/cuda_ep/cuda_syms.h"
#undef CEP_SYM
} cu;

static struct {
	CUcontext ctx;
	CUstream compute, copies;
	CUevent event, other;
	CUdeviceptr dev, out, slot;
	char *pin, *pin2;
	CUmodule module;
} d;

#define STR_(x) #x
#define STR(x) STR_(x)
#define GOOD(call) ck_assert_int_eq(cu.call, CUDA_SUCCESS)

static void setup(void)
{
	void *p;

	fake_load();
#define CEP_SYM(name)                                                          \
	p = fake_symbol(STR(name));                                            \
	memcpy(&cu.name, &p, sizeof(p));
#include "modules/cuda_ep/cuda_syms.h"
#undef CEP_SYM
	memset(&d, 0, sizeof(d));
	fake.do_seed(FAKE_LATE);
	GOOD(cuInit(0));
	GOOD(cuDevicePrimaryCtxRetain(&d.ctx, 0));
	GOOD(cuStreamCreate(&d.compute, CU_STREAM_NON_BLOCKING));
	GOOD(cuStreamCreate(&d.copies, CU_STREAM_NON_BLOCKING));
	GOOD(cuEventCreate(&d.event, CU_EVENT_DISABLE_TIMING));
	GOOD(cuEventCreate(&d.other, CU_EVENT_DISABLE_TIMING));
	GOOD(cuMemAlloc(&d.dev, BYTES));
	GOOD(cuMemAlloc(&d.out, BYTES));
	GOOD(cuMemAlloc(&d.slot, BYTES));
	GOOD(cuMemHostAlloc((void **)&d.pin, BYTES, 0));
	GOOD(cuMemHostAlloc((void **)&d.pin2, BYTES, 0));
	memset(d.pin, 1, BYTES);
}

// Everything done: 0, or 1 if it went wrong.
static int settle(void)
{
	(void)cu.cuStreamSynchronize(d.compute);
	(void)cu.cuStreamSynchronize(d.copies);
	return fake.do_races() != 0;
}

static void teardown(void)
{
	settle();
	(void)cu.cuMemFree(d.out);
	(void)cu.cuMemFree(d.slot);
	(void)cu.cuMemFree(d.dev);
	(void)cu.cuMemFreeHost(d.pin);
	(void)cu.cuMemFreeHost(d.pin2);
	(void)cu.cuEventDestroy(d.event);
	(void)cu.cuEventDestroy(d.other);
	(void)cu.cuStreamDestroy(d.compute);
	(void)cu.cuStreamDestroy(d.copies);
	(void)cu.cuDevicePrimaryCtxRelease(0);
	ck_assert_uint_eq(fake.do_alive(), 0);
}

static void finds(const char *what, const char *other)
{
	ck_assert_int_eq(settle(), 1);
	ck_assert_msg(strstr(fake.do_race(), what) != NULL, "%s",
		      fake.do_race());
	ck_assert_msg(strstr(fake.do_race(), other) != NULL, "%s",
		      fake.do_race());
}

// ---- what is enqueued ----

static CUfunction function(const char *name)
{
	// a fat binary without images: this one asks for none
	union {
		CUfunction f;
		const void *p;
	} u;
	const void *(*find)(const char *);
	void *p = fake_symbol("emu_find");

	memcpy(&find, &p, sizeof(p));
	u.p = find(name);
	ck_assert_ptr_nonnull(u.p);
	return u.f;
}

static int32_t launch(CUstream s, const char *kernel, void *params, int early)
{
	CUlaunchAttribute attr = {
		.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		.value.programmaticStreamSerializationAllowed = 1,
	};
	CUlaunchConfig c = {
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 256,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = s,
		.attrs = &attr,
		.numAttrs = early ? 1 : 0,
	};

	return (int32_t)cu.cuLaunchKernelEx(&c, function(kernel), &params,
					    NULL);
}

static void kernel_copy(CUstream s, CUdeviceptr to, CUdeviceptr from)
{
	struct cep_ew p = {
		.out = to, .in = {from}, .n_in = 1, .count = 64, .dense = 1};

	ck_assert_int_eq(launch(s, "cep_copy_4", &p, 0), 0);
}

// Reads gamma before it waits for the kernel in front.
static void kernel_norm(CUstream s, CUdeviceptr gamma, CUdeviceptr x, int early)
{
	struct cep_norm p = {.x = x,
			     .out = d.out,
			     .gamma = gamma,
			     .dim = 64,
			     .rows = 1,
			     .eps = 1e-5f};

	ck_assert_int_eq(launch(s, "cep_norm8_f32", &p, early), 0);
}

static void up(CUstream s, CUdeviceptr to)
{
	GOOD(cuMemcpyHtoDAsync(to, d.pin, 256, s));
}

static void order(CUstream after, CUstream before, CUevent e)
{
	GOOD(cuEventRecord(e, before));
	GOOD(cuStreamWaitEvent(after, e, 0));
}

// ---- between streams ----

START_TEST(copy_then_kernel)
{
	up(d.copies, d.dev);
	if (_i)
		order(d.compute, d.copies, d.event);
	kernel_copy(d.compute, d.out, d.dev);
	if (_i)
		ck_assert_int_eq(settle(), 0);
	else
		finds("cep_copy_4", "copy to the device");
}
END_TEST

// A slot is filled, read, and filled again before its reader is done.
START_TEST(slot_refilled)
{
	up(d.copies, d.slot);
	order(d.compute, d.copies, d.event);
	kernel_copy(d.compute, d.out, d.slot);
	if (_i)
		order(d.copies, d.compute, d.other);
	up(d.copies, d.slot);
	if (_i)
		ck_assert_int_eq(settle(), 0);
	else
		finds("cep_copy_4", "copy to the device");
}
END_TEST

// Neighbours in a slot are no conflict, one common byte is.
START_TEST(bytes_count)
{
	GOOD(cuMemcpyHtoDAsync(d.dev, d.pin, 100, d.copies));
	GOOD(cuMemcpyHtoDAsync(d.dev + 100 - (_i == 0), d.pin, 100, d.compute));
	ck_assert_int_eq(settle(), _i == 0);
}
END_TEST

// Two readers need no order.
START_TEST(readers)
{
	up(d.compute, d.dev);
	order(d.copies, d.compute, d.event);
	kernel_copy(d.compute, d.out, d.dev);
	kernel_copy(d.copies, d.slot, d.dev);
	ck_assert_int_eq(settle(), 0);
}
END_TEST

// A writer must be after both of them.
START_TEST(writer_after_readers)
{
	up(d.compute, d.dev);
	order(d.copies, d.compute, d.event);
	kernel_copy(d.copies, d.slot, d.dev);
	kernel_copy(d.compute, d.out, d.dev);
	if (_i)
		order(d.compute, d.copies, d.other);
	up(d.compute, d.dev);
	if (_i)
		ck_assert_int_eq(settle(), 0);
	else
		finds("copy to the device", "cep_copy_4");
}
END_TEST

// The event of the pool goes to the next user before the first one waited.
START_TEST(event_reused)
{
	up(d.copies, d.dev);
	GOOD(cuEventRecord(d.event, d.copies));
	if (!_i)
		GOOD(cuEventRecord(d.event, d.compute));
	GOOD(cuStreamWaitEvent(d.compute, d.event, 0));
	kernel_copy(d.compute, d.out, d.dev);
	if (_i)
		ck_assert_int_eq(settle(), 0);
	else
		finds("cep_copy_4", "copy to the device");
}
END_TEST

// What the host was told orders what it enqueues then.
START_TEST(through_the_host)
{
	up(d.copies, d.dev);
	GOOD(cuEventRecord(d.event, d.copies));
	if (_i)
		while (cu.cuEventQuery(d.event))
			;
	kernel_copy(d.compute, d.out, d.dev);
	ck_assert_int_eq(settle(), !_i);
}
END_TEST

// ---- the host ----

// A token is read before its copy is done: it is no token.  Nor is the one of
// a slot that the next step writes already.
START_TEST(token_slots)
{
	d.pin2[0] = 7;
	GOOD(cuMemcpyDtoHAsync(d.pin2, d.dev, 8, d.copies));
	ck_assert_uint_eq((unsigned char)d.pin2[0], 0xa5);
	GOOD(cuStreamSynchronize(d.copies));
	d.pin2[0] = 7;
	GOOD(cuMemcpyDtoHAsync(d.pin2 + 8, d.dev, 8, d.copies));
	ck_assert_uint_eq((unsigned char)d.pin2[0], 7);
}
END_TEST

// Two steps write one slot from two streams.
START_TEST(token_written_twice)
{
	GOOD(cuMemcpyDtoHAsync(d.pin2, d.dev, 8, d.copies));
	if (_i)
		order(d.compute, d.copies, d.event);
	GOOD(cuMemcpyDtoHAsync(d.pin2, d.dev, 8, d.compute));
	ck_assert_int_eq(settle(), !_i);
}
END_TEST

// The next step writes the token that is still being copied out.
START_TEST(token_overwritten)
{
	GOOD(cuMemcpyDtoHAsync(d.pin2, d.dev, 8, d.copies));
	if (_i)
		order(d.compute, d.copies, d.event);
	kernel_copy(d.compute, d.dev, d.slot);
	if (_i)
		ck_assert_int_eq(settle(), 0);
	else
		finds("cep_copy_4", "copy to the host");
}
END_TEST

// A copy of memory that the driver does not know.
START_TEST(ordinary_memory)
{
	static char ordinary[256];

	GOOD(cuMemcpyHtoDAsync(d.dev, ordinary, 256, d.copies));
	finds("copy to the device", "neither pinned nor registered");
}
END_TEST

static void freed(bool waited, bool ran)
{
	kernel_copy(d.compute, d.out, d.dev);
	GOOD(cuEventRecord(d.event, d.compute));
	if (ran) // done, yet nobody was told
		GOOD(cuStreamWaitEvent(d.copies, d.event, 0));
	if (ran)
		GOOD(cuStreamSynchronize(d.copies));
	if (waited)
		GOOD(cuStreamSynchronize(d.compute));
	(void)cu.cuMemFree(d.dev);
	ck_assert_int_eq(settle(), !waited && !ran);
	d.dev = 0;
}

START_TEST(freed_too_early)
{
	freed(_i == 1, _i == 2);
	if (!_i)
		ck_assert_ptr_nonnull(strstr(fake.do_race(), "given back"));
}
END_TEST

// ---- graphs ----

static CUgraphExec record(bool with_edge)
{
	CUgraphExec exec;
	CUgraph g;

	GOOD(cuStreamBeginCapture(d.compute,
				  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	kernel_copy(d.compute, d.slot, d.dev);
	order(d.copies, d.compute, d.event);
	up(d.copies, d.dev);
	if (with_edge)
		order(d.compute, d.copies, d.other);
	kernel_copy(d.compute, d.out, d.dev);
	order(d.compute, d.copies, d.other);
	GOOD(cuStreamEndCapture(d.compute, &g));
	GOOD(cuGraphInstantiate(&exec, g, 0));
	GOOD(cuGraphDestroy(g));
	return exec;
}

// Recorded one after the other, yet no edge of the graph says so.
START_TEST(edges_of_a_graph)
{
	CUgraphExec exec = record(_i);

	ck_assert_int_eq(settle(), 0); // recording is no work
	for (int i = 0; i < 3; i++)
		(void)cu.cuGraphLaunch(exec, d.compute);
	ck_assert_int_eq(settle(), !_i);
	(void)cu.cuGraphExecDestroy(exec);
}
END_TEST

// A replay against what is enqueued beside it.
START_TEST(beside_a_graph)
{
	CUgraphExec exec = record(true);

	GOOD(cuGraphLaunch(exec, d.compute));
	if (_i)
		order(d.copies, d.compute, d.event);
	up(d.copies, d.slot);
	ck_assert_int_eq(settle(), !_i);
	(void)cu.cuGraphExecDestroy(exec);
}
END_TEST

// A graph names memory that went.
START_TEST(stale_graph)
{
	CUgraphExec exec = record(true);

	GOOD(cuGraphLaunch(exec, d.compute));
	ck_assert_int_eq(settle(), 0);
	GOOD(cuMemFree(d.dev));
	d.dev = 0;
	GOOD(cuGraphLaunch(exec, d.compute));
	finds("uses 4096 bytes", "given back");
	(void)cu.cuGraphExecDestroy(exec);
}
END_TEST

START_TEST(graph_destroyed_in_flight)
{
	CUgraphExec exec = record(true);

	GOOD(cuGraphLaunch(exec, d.compute));
	if (_i)
		ck_assert_int_eq(settle(), 0);
	(void)cu.cuGraphExecDestroy(exec);
	ck_assert_int_eq(settle(), !_i);
}
END_TEST

// ---- kernels that begin early ----

START_TEST(early_kernels)
{
	up(d.compute, d.dev);
	kernel_copy(d.compute, d.slot, d.dev);
	// x after the wait: in order.  gamma before it: not
	kernel_norm(d.compute, _i ? d.dev : d.slot, d.slot, 1);
	if (_i)
		ck_assert_int_eq(settle(), 0);
	else
		finds("cep_norm8_f32", "cep_copy_4");
}
END_TEST

// A chain of early kernels: the first one may still run under the third.
START_TEST(early_chain)
{
	up(d.compute, d.dev);
	kernel_copy(d.compute, d.slot, d.dev);
	kernel_norm(d.compute, d.dev, d.dev, 1);
	if (_i)
		kernel_norm(d.compute, d.dev, d.dev, 0);
	kernel_norm(d.compute, d.slot, d.dev, 1);
	ck_assert_int_eq(settle(), !_i);
}
END_TEST

// In a recording too.
START_TEST(early_nodes)
{
	CUgraphExec exec;
	CUgraph g;

	GOOD(cuStreamBeginCapture(d.compute,
				  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	kernel_copy(d.compute, d.slot, d.dev);
	kernel_norm(d.compute, _i ? d.dev : d.slot, d.slot, 1);
	GOOD(cuStreamEndCapture(d.compute, &g));
	GOOD(cuGraphInstantiate(&exec, g, 0));
	GOOD(cuGraphDestroy(g));
	(void)cu.cuGraphLaunch(exec, d.compute);
	ck_assert_int_eq(settle(), !_i);
	(void)cu.cuGraphExecDestroy(exec);
}
END_TEST

START_TEST(early_needs_capability_9)
{
	struct cep_norm p = {
		.x = d.dev, .out = d.out, .gamma = d.dev, .dim = 64, .rows = 1};

	fake.do_devices(1, 8, 9);
	ck_assert_int_eq(launch(d.compute, "cep_norm8_f32", &p, 1),
			 CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(launch(d.compute, "cep_norm8_f32", &p, 0), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("fake driver");
	TCase *tc = tcase_create("all");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, copy_then_kernel, 0, 2);
	tcase_add_loop_test(tc, slot_refilled, 0, 2);
	tcase_add_loop_test(tc, bytes_count, 0, 2);
	tcase_add_test(tc, readers);
	tcase_add_loop_test(tc, writer_after_readers, 0, 2);
	tcase_add_loop_test(tc, event_reused, 0, 2);
	tcase_add_loop_test(tc, through_the_host, 0, 2);
	tcase_add_test(tc, token_slots);
	tcase_add_loop_test(tc, token_written_twice, 0, 2);
	tcase_add_loop_test(tc, token_overwritten, 0, 2);
	tcase_add_test(tc, ordinary_memory);
	tcase_add_loop_test(tc, freed_too_early, 0, 3);
	tcase_add_loop_test(tc, edges_of_a_graph, 0, 2);
	tcase_add_loop_test(tc, beside_a_graph, 0, 2);
	tcase_add_test(tc, stale_graph);
	tcase_add_loop_test(tc, graph_destroyed_in_flight, 0, 2);
	tcase_add_loop_test(tc, early_kernels, 0, 2);
	tcase_add_loop_test(tc, early_chain, 0, 2);
	tcase_add_loop_test(tc, early_nodes, 0, 2);
	tcase_add_test(tc, early_needs_capability_9);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
