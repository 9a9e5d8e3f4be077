// check_onnx_external.c - external data: what a model may name, and what the
// numbers may say.
#include "core/onnx/external.h"
#include "tests/unit/onnx_writer.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

// The library's call of realpath() comes here.  After the path was resolved,
// `swap` may change the world: what an attacker does between check and open.
static void (*swap)(void);

char *realpath(const char *restrict path, char *restrict resolved)
{
	static char *(*real)(const char *, char *);
	char *result;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "realpath");
	result = real(path, resolved);
	if (swap && result && strstr(path, "w.bin"))
		swap();
	return result;
}

// A graph with one external tensor of 16 floats.
static struct ow external(const char *location, const char *offset,
			  const char *length)
{
	struct ow g = {NULL, 0, 0}, t = ow_tensor1("w", GENAI_DT_F32, 16);

	ow_external(&t, location, offset, length);
	ow_add_init(&g, t);
	return g;
}

static void refused(const char *location, int32_t rc, const char *text)
{
	graph_fails(external(location, NULL, NULL), rc, text);
}

static const uint8_t *accepted(const char *location)
{
	return bytes_of(graph_ok(external(location, NULL, NULL)), "w", 64);
}

static void make_link(const char *target, const char *name)
{
	ck_assert_int_eq(symlink(target, bench_file(name)), 0);
}

static void make_dir(const char *name)
{
	ck_assert_int_eq(mkdir(bench_file(name), 0700), 0);
}

START_TEST(plain)
{
	const struct genai_graph *g;
	const struct genai_file *f;

	bench_data("w.bin", 64, 5);
	ck_assert_uint_eq(accepted("w.bin")[0], 5);
	g = genai_onnx_graph(bench.model);
	f = genai_graph_file(g, genai_graph_tensor(g, 0)->file);
	ck_assert_uint_eq(f->bytes, 64);
	ck_assert_str_eq(f->path, bench_file("w.bin"));
	ck_assert_int_eq(bench.n_warnings, 0);
}
END_TEST

static const char *const good_paths[] = {"w.bin",
					 "./w.bin",
					 "a..b.bin",
					 "sub/w.bin",
					 "sub//w.bin",
					 "./sub/./w.bin",
					 "...x",
					 ".hidden",
					 "weights of 3.bin",
					 "\xe2\x82\xac.bin"};

START_TEST(path_accepted)
{
	make_dir("sub");
	bench_data("w.bin", 64, 0);
	bench_data("a..b.bin", 64, 0);
	bench_data("sub/w.bin", 64, 0);
	bench_data("...x", 64, 0);
	bench_data(".hidden", 64, 0);
	bench_data("weights of 3.bin", 64, 0);
	bench_data("\xe2\x82\xac.bin", 64, 0);
	accepted(good_paths[_i]);
}
END_TEST

static const struct {
	const char *path;
	const char *text;
} bad_paths[] = {
	{"", "is empty"},
	{"../../file.bin", "leads out of the model's folder"},
	{"../test/../file.bin", "leads out"},
	{"sub/../../x", "leads out"},
	{"sub/../w.bin", "leads out"},
	{"..", "leads out"},
	{"/etc/passwd", "is absolute"},
	{"//server/share/f", "is absolute"},
	{"/proc/self/mem", "is absolute"},
	{"..\\..\\file.bin", "holds '\\' or ':'"},
	{"..\\test\\..\\file.bin", "holds '\\'"},
	{"\\file.bin", "holds '\\'"},
	{"\\\\server\\share\\f", "holds '\\'"},
	{"\\\\?\\C:\\f", "holds '\\'"},
	{"C:/file.bin", "holds '\\' or ':'"},
	{"C:file.bin", "holds '\\' or ':'"},
	{"f.bin:stream", "holds '\\' or ':'"},
	{"w.bin.", "ends in a dot or a space"},
	{"w.bin ", "ends in a dot or a space"},
	{"sub /w.bin", "ends in a dot or a space"},
	{" ", "ends in a dot or a space"},
	{"...", "ends in a dot"},
	{"#w.bin", "starts with '#'"},
	{"sub/", "names a folder"},
	{"w\x01.bin", "holds a control character"},
	{"w\x7f.bin", "holds a control character"},
};

START_TEST(path_refused)
{
	make_dir("sub");
	make_dir("sub ");
	bench_data("w.bin", 64, 0);
	bench_data("#w.bin", 64, 0);
	bench_data("sub /w.bin", 64, 0);
	refused(bad_paths[_i].path, GENAI_E_FORMAT, bad_paths[_i].text);
}
END_TEST

START_TEST(path_not_there)
{
	char full[4500];

	snprintf(full, sizeof(full), "%s: cannot open: No such file",
		 bench_file("gone.bin"));
	refused("gone.bin", GENAI_E_NOTFOUND, full);
	refused("gone/w.bin", GENAI_E_NOTFOUND, "gone/w.bin");
	refused("model.onnx/w.bin", GENAI_E_NOTFOUND, "model.onnx/w.bin");
	refused("NUL", GENAI_E_NOTFOUND, "NUL");
	// no marker has a meaning: this is a name like any other
	graph_fails(external("*/_ORT_MEM_ADDR_/*", "140737488355328", "64"),
		    GENAI_E_NOTFOUND, "_ORT_MEM_ADDR_");
}
END_TEST

START_TEST(path_length)
{
	char path[4098];

	memset(path, 'a', sizeof(path));
	path[4097] = 0;
	refused(path, GENAI_E_LIMIT, "4097 bytes, at most 4096");
	path[4096] = 0;
	refused(path, GENAI_E_IO, "aaa");
}
END_TEST

START_TEST(path_with_nul)
{
	struct ow g = {NULL, 0, 0}, t = ow_tensor1("w", GENAI_DT_F32, 16),
		  e = {NULL, 0, 0};

	bench_data("w.bin", 64, 0);
	ow_str(&e, 1, "location");
	ow_bytes(&e, 2, "w.bin\0../../x", 13);
	ow_msg(&t, 13, e);
	ow_int(&t, 14, 1);
	ow_add_init(&g, t);
	graph_fails(g, GENAI_E_FORMAT, "holds a NUL byte");
}
END_TEST

START_TEST(path_not_utf8)
{
	refused("w\xff.bin", GENAI_E_FORMAT, "not valid UTF-8");
}
END_TEST

START_TEST(location_checks)
{
	struct genai_error err = GENAI_ERROR_INIT;
	char path[4098];

	memset(path, 'a', sizeof(path));
	path[4097] = 0;
	ck_assert_int_eq(genai_location_check(path, &err), GENAI_E_FORMAT);
	path[4096] = 0;
	ck_assert_int_eq(genai_location_check(path, &err), 0);
	ck_assert_int_eq(genai_location_check("a/b", NULL), 0);
}
END_TEST

START_TEST(no_location)
{
	graph_fails(external(NULL, NULL, NULL), GENAI_E_FORMAT,
		    "external data without a location");
	graph_fails(external(NULL, "0", "64"), GENAI_E_FORMAT,
		    "external data without a location");
}
END_TEST

START_TEST(twice_the_same_key)
{
	static const char *const keys[3] = {"location", "offset", "length"};
	struct ow g = {NULL, 0, 0}, t = ow_tensor1("w", GENAI_DT_F32, 16);
	char text[64];

	bench_data("w.bin", 64, 0);
	ow_external(&t, "w.bin", "0", "64");
	ow_entry(&t, keys[_i], "../x");
	ow_add_init(&g, t);
	snprintf(text, sizeof(text), "key \"%s\" appears twice", keys[_i]);
	graph_fails(g, GENAI_E_FORMAT, text);
}
END_TEST

START_TEST(unknown_key)
{
	struct ow g = {NULL, 0, 0}, t = ow_tensor1("w", GENAI_DT_F32, 16);

	bench_data("w.bin", 64, 0);
	ow_external(&t, "w.bin", NULL, NULL);
	ow_entry(&t, "__class__", "x");
	ow_entry(&t, "checksum", "0123");
	ow_entry(&t, NULL, NULL);
	ow_add_init(&g, t);
	graph_ok(g);
	ck_assert_int_eq(bench.n_warnings, 2);
	ck_assert_ptr_nonnull(
		strstr(bench.warnings, "\"__class__\" is ignored"));
}
END_TEST

// Numbers.
static const char *const bad_numbers[] = {
	"-1",
	"+1",
	" 1",
	"1 ",
	"1e3",
	"0x10",
	"",
	"18446744073709551616",
	"1.0",
	"36893488147419103233",
	"1000000000000000000000000000000000000000",
	"\xd9\xa1"};

START_TEST(bad_offset)
{
	bench_data("w.bin", 64, 0);
	graph_fails(external("w.bin", bad_numbers[_i], NULL), GENAI_E_FORMAT,
		    "is no number");
	graph_fails(external("w.bin", NULL, bad_numbers[_i]), GENAI_E_FORMAT,
		    "is no number");
}
END_TEST

START_TEST(decimals)
{
	uint64_t v = 5;

	ck_assert_int_eq(genai_decimal("0", &v), 1);
	ck_assert_uint_eq(v, 0);
	ck_assert_int_eq(genai_decimal("0064", &v), 1);
	ck_assert_uint_eq(v, 64);
	ck_assert_int_eq(genai_decimal("18446744073709551615", &v), 1);
	ck_assert_uint_eq(v, UINT64_MAX);
	v = 5;
	ck_assert_int_eq(genai_decimal("18446744073709551616", &v), 0);
	ck_assert_int_eq(genai_decimal("x", &v), 0);
	ck_assert_uint_eq(v, 5);
}
END_TEST

static const struct {
	const char *offset, *length;
	const char *text; // NULL: accepted
} spans[] = {
	{"0", "64", NULL},
	{"36", "64", NULL},
	{"36", NULL, NULL},
	{"37", "64", "wants 64 bytes at 37, the file has 100"},
	{"37", NULL, "wants 64 bytes at 37, the file has 100"},
	{"18446744073709551608", "64",
	 "wants 64 bytes at 18446744073709551608"},
	{"9223372036854775808", "64", "the file has 100"},
	{"18446744073709551615", NULL, "the file has 100"},
	{"0", "63", "needs 64 bytes, external length is 63"},
	{"0", "65", "needs 64 bytes, external length is 65"},
	{"0", "18446744073709551615",
	 "external length is 18446744073709551615"},
	{"0", "0", "external length is 0"},
};

START_TEST(span)
{
	bench_data("w.bin", 100, 0);
	if (spans[_i].text)
		graph_fails(
			external("w.bin", spans[_i].offset, spans[_i].length),
			GENAI_E_FORMAT, spans[_i].text);
	else
		graph_ok(external("w.bin", spans[_i].offset, spans[_i].length));
}
END_TEST

START_TEST(file_too_short)
{
	bench_data("w.bin", 60, 0);
	refused("w.bin", GENAI_E_FORMAT,
		"w.bin: wants 64 bytes at 0, the file has 60");
}
END_TEST

START_TEST(unaligned)
{
	const uint8_t *p;

	bench_data("w.bin", 8192, 0);
	p = bytes_of(graph_ok(external("w.bin", "4097", "64")), "w", 64);
	ck_assert_uint_eq(p[0], 1);
	ck_assert_int_eq(bench.n_warnings, 1);
	ck_assert_ptr_nonnull(
		strstr(bench.warnings, "1 tensors are not aligned"));
	p = bytes_of(graph_ok(external("w.bin", "1", "64")), "w", 64);
	ck_assert_uint_eq(p[0], 1);
	ck_assert_uint_eq(p[63], 64);
}
END_TEST

START_TEST(shared_file_is_mapped_once)
{
	struct ow g = {NULL, 0, 0}, t;
	const struct genai_graph *got;
	char name[32];
	int i;

	bench_data("w.bin", 64, 0);
	for (i = 0; i < 8; i++) {
		snprintf(name, sizeof(name), "w%d", i);
		t = ow_tensor1(name, GENAI_DT_U8, 64);
		ow_external(&t, "w.bin", "0", NULL);
		ow_add_init(&g, t);
	}
	got = graph_ok(g);
	ck_assert_uint_eq(got->n_files, 1);
	ck_assert_uint_eq(got->n_tensors, 8);
}
END_TEST

START_TEST(several_files)
{
	struct ow g = {NULL, 0, 0}, t;
	const struct genai_graph *got;
	char name[32];
	int i;

	for (i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "w%d.bin", i);
		bench_data(name, 4, (uint8_t)i);
		t = ow_tensor1(name, GENAI_DT_U8, 4);
		ow_external(&t, name, NULL, NULL);
		ow_add_init(&g, t);
	}
	got = graph_ok(g);
	ck_assert_uint_eq(got->n_files, 40);
	ck_assert_uint_eq(bytes_of(got, "w39.bin", 4)[0], 39);
}
END_TEST

// One file more than descriptors: an error, and nothing is left open.
START_TEST(out_of_descriptors)
{
	struct ow g = {NULL, 0, 0}, t;
	struct rlimit limit = {64, 64};
	char name[32];
	int i, before;

	for (i = 0; i < 80; i++) {
		snprintf(name, sizeof(name), "w%d.bin", i);
		bench_data(name, 4, 0);
		t = ow_tensor1(name, GENAI_DT_U8, 4);
		ow_external(&t, name, NULL, NULL);
		ow_add_init(&g, t);
	}
	before = dup(0);
	close(before);
	setrlimit(RLIMIT_NOFILE, &limit);
	graph_fails(g, GENAI_E_IO, "Too many open files");
	i = dup(0);
	ck_assert_int_eq(i, before);
	close(i);
}
END_TEST

START_TEST(empty_file_for_no_bytes)
{
	struct ow g = {NULL, 0, 0}, t = ow_tensor1("w", GENAI_DT_F32, 0);

	bench_data("w.bin", 0, 0);
	ow_external(&t, "w.bin", "0", "0");
	ow_add_init(&g, t);
	bytes_of(graph_ok(g), "w", 0);
}
END_TEST

START_TEST(both_inside_and_outside)
{
	struct ow g = {NULL, 0, 0}, t = ow_tensor1("w", GENAI_DT_U8, 4);

	bench_data("w.bin", 4, 0);
	ow_bytes(&t, 9, "abcd", 4);
	ow_external(&t, "w.bin", NULL, NULL);
	ow_add_init(&g, t);
	graph_fails(g, GENAI_E_FORMAT, "both external data and data inside");
}
END_TEST

START_TEST(entries_without_the_flag)
{
	struct ow g = {NULL, 0, 0}, t = ow_tensor1("w", GENAI_DT_U8, 4);

	bench_data("w.bin", 4, 0);
	ow_entry(&t, "location", "w.bin");
	ow_add_init(&g, t);
	graph_fails(g, GENAI_E_FORMAT, "raw_data has 0");
}
END_TEST

START_TEST(constant_node_outside)
{
	struct ow g = {NULL, 0, 0}, n = ow_node("Constant", NULL, "c"),
		  a = ow_attr("value", OW_TENSOR),
		  t = ow_tensor1(NULL, GENAI_DT_U8, 4);

	bench_data("w.bin", 4, 9);
	ow_external(&t, "w.bin", NULL, NULL);
	ow_msg(&a, 5, t);
	ow_msg(&n, 5, a);
	ow_add_node(&g, n);
	ck_assert_uint_eq(bytes_of(graph_ok(g), "c", 4)[0], 9);
}
END_TEST

START_TEST(subgraph_uses_the_same_file)
{
	struct ow g = {NULL, 0, 0}, sub = {NULL, 0, 0},
		  n = ow_node("If", "c", "y"),
		  t = ow_tensor1("k", GENAI_DT_U8, 4);
	const struct genai_graph *got;

	bench_data("w.bin", 4, 9);
	ow_external(&t, "w.bin", NULL, NULL);
	ow_add_init(&sub, t);
	ow_add_output(&sub, "k");
	ow_attr_graph(&n, "then_branch", sub);
	t = ow_tensor1("w", GENAI_DT_U8, 2);
	ow_external(&t, "w.bin", "2", NULL);
	ow_add_init(&g, t);
	ow_add_input(&g, "c");
	ow_add_node(&g, n);
	got = graph_ok(g);
	ck_assert_uint_eq(bytes_of(got, "w", 2)[0], 11);
	got = genai_node_attr(genai_graph_node(got, 0), 0)->graph;
	ck_assert_uint_eq(bytes_of(got, "k", 4)[0], 9);
}
END_TEST

// What the path leads to.
START_TEST(not_a_regular_file)
{
	make_dir("dir");
	mkfifo(bench_file("fifo"), 0600);
	refused("dir", GENAI_E_IO, "dir: is a directory");
	refused("fifo", GENAI_E_IO, "fifo: not a regular file");
	make_link("/dev/zero", "zero");
	refused("zero", GENAI_E_IO, "leads to /dev/zero, outside");
	make_link("loop", "loop");
	refused("loop", GENAI_E_IO, "loop: cannot open: Too many levels");
	make_link("/proc/self/mem", "mem");
	refused("mem", GENAI_E_IO, "trusted_roots");
}
END_TEST

START_TEST(lfs_pointer)
{
	static const char text[] =
		"version https://git-lfs.github.com/spec/v1\n"
		"oid sha256:4665\nsize 12345\n";

	bench_write("w.bin", text, sizeof(text) - 1);
	refused("w.bin", GENAI_E_FORMAT,
		"w.bin: Git LFS pointer, not the data; run git lfs pull");
}
END_TEST

START_TEST(links_inside)
{
	make_dir("sub");
	bench_data("real.bin", 64, 7);
	make_link("real.bin", "w.bin");
	make_link("../real.bin", "sub/w.bin");
	make_link("sub", "dirlink");
	make_link(bench_file("real.bin"), "absolute.bin");
	ck_assert_uint_eq(accepted("w.bin")[0], 7);
	ck_assert_uint_eq(accepted("sub/w.bin")[0], 7);
	ck_assert_uint_eq(accepted("dirlink/w.bin")[0], 7);
	ck_assert_uint_eq(accepted("absolute.bin")[0], 7);
}
END_TEST

// model/model.onnx in a folder whose parent holds other things.
static void nest(const char *folder)
{
	make_dir(folder);
	snprintf(bench.path, sizeof(bench.path), "%s/%s/model.onnx", bench.dir,
		 folder);
}

static int32_t load_nested(const char *folder, struct ow graph)
{
	struct ow m = ow_model(graph);
	char name[64];

	snprintf(name, sizeof(name), "%s/model.onnx", folder);
	bench_write(name, m.data, m.n);
	ow_free(&m);
	return bench_load_path(bench.path);
}

START_TEST(link_to_a_sibling)
{
	nest("snap");
	make_dir("blobs");
	bench_data("blobs/bb", 64, 0);
	make_link("../blobs/bb", "snap/w.bin");
	expect_error(load_nested("snap", external("w.bin", NULL, NULL)),
		     GENAI_E_IO, "trusted_roots");
	make_link("../blobs", "snap/dir");
	expect_error(load_nested("snap", external("dir/bb", NULL, NULL)),
		     GENAI_E_IO, "trusted_roots");
}
END_TEST

START_TEST(trusted_root)
{
	char roots[4500];

	nest("snap");
	make_dir("blobs");
	bench_data("blobs/bb", 64, 0);
	make_link("../blobs/bb", "snap/w.bin");
	make_link("/etc/passwd", "snap/passwd");
	snprintf(roots, sizeof(roots), "/nonexistent::%s", bench_file("blobs"));
	bench.trusted = roots;
	ck_assert_int_eq(load_nested("snap", external("w.bin", NULL, NULL)), 0);
	expect_error(load_nested("snap", external("passwd", NULL, NULL)),
		     GENAI_E_IO, "leads to /etc/passwd, outside");
	// a root whose name only starts the same is not it
	make_dir("blobs2");
	bench_data("blobs2/bb", 64, 0);
	make_link("../blobs2/bb", "snap/w2.bin");
	expect_error(load_nested("snap", external("w2.bin", NULL, NULL)),
		     GENAI_E_IO, "trusted_roots");
	bench.trusted = "/";
	ck_assert_int_eq(load_nested("snap", external("w2.bin", NULL, NULL)),
			 0);
}
END_TEST

START_TEST(too_many_trusted_roots)
{
	char roots[200] = "";
	int i;

	for (i = 0; i < 65; i++)
		strcat(roots, "/:");
	bench.trusted = roots;
	bench_data("w.bin", 64, 0);
	refused("w.bin", GENAI_E_LIMIT, "more than 64 trusted_roots");
	roots[2 * 64] = 0;
	accepted("w.bin");
}
END_TEST

// CACHE/snapshots/REV/model.onnx -> ../../blobs/...
static void make_cache(const char *rev)
{
	char name[64];

	make_dir("snapshots");
	snprintf(name, sizeof(name), "snapshots/%s", rev);
	nest(name);
	make_dir("blobs");
	bench_data("blobs/bb", 64, 3);
	snprintf(name, sizeof(name), "snapshots/%s/w.bin", rev);
	make_link("../../blobs/bb", name);
}

START_TEST(hugging_face_cache)
{
	struct ow m = ow_model(external("w.bin", NULL, NULL));

	make_cache("0123");
	bench_write("blobs/aa", m.data, m.n);
	ow_free(&m);
	make_link("../../blobs/aa", "snapshots/0123/model.onnx");
	ck_assert_int_eq(bench_load_path(bench.path), 0);
	ck_assert_uint_eq(bytes_of(genai_onnx_graph(bench.model), "w", 64)[0],
			  3);
}
END_TEST

START_TEST(hugging_face_subfolder)
{
	make_cache("0123");
	make_dir("snapshots/0123/onnx");
	make_link("../../../blobs/bb", "snapshots/0123/onnx/w.bin");
	snprintf(bench.path, sizeof(bench.path),
		 "%s/snapshots/0123/onnx/model.onnx", bench.dir);
	ck_assert_int_eq(load_nested("snapshots/0123/onnx",
				     external("w.bin", NULL, NULL)),
			 0);
}
END_TEST

START_TEST(hugging_face_elsewhere)
{
	make_cache("0123");
	make_dir("other");
	bench_data("other/cc", 64, 0);
	make_link("../../other/cc", "snapshots/0123/x.bin");
	expect_error(
		load_nested("snapshots/0123", external("x.bin", NULL, NULL)),
		GENAI_E_IO, "trusted_roots");
	make_link("/etc/passwd", "blobs/evil");
	make_link("../../blobs/evil", "snapshots/0123/evil");
	expect_error(
		load_nested("snapshots/0123", external("evil", NULL, NULL)),
		GENAI_E_IO, "trusted_roots");
	// blobs itself a link to somewhere
	ck_assert_int_eq(rename(bench_file("blobs"), "/dev/null"), -1);
	unlink(bench_file("blobs/evil"));
	unlink(bench_file("blobs/bb"));
	rmdir(bench_file("blobs"));
	make_link("other", "blobs");
	make_link("../../blobs/cc", "snapshots/0123/y.bin");
	expect_error(
		load_nested("snapshots/0123", external("y.bin", NULL, NULL)),
		GENAI_E_IO, "trusted_roots");
}
END_TEST

START_TEST(hard_link)
{
	char roots[128];

	nest("model");
	bench_data("outside.bin", 64, 0);
	ck_assert_int_eq(
		link(bench_file("outside.bin"), bench_file("model/w.bin")), 0);
	// ordinary, unless somebody else could have made it
	ck_assert_int_eq(load_nested("model", external("w.bin", NULL, NULL)),
			 0);
	ck_assert_int_eq(chmod(bench_file("model"), 0777), 0);
	expect_error(load_nested("model", external("w.bin", NULL, NULL)),
		     GENAI_E_IO,
		     "has 2 hard links and anybody may write to its folder");
	ck_assert_ptr_nonnull(strstr(bench.err.text, "trusted_roots"));
	ck_assert_int_eq(chmod(bench_file("model"), 0700), 0);
	if (!geteuid()) {
		ck_assert_int_eq(chown(bench_file("outside.bin"), 1, 1), 0);
		expect_error(
			load_nested("model", external("w.bin", NULL, NULL)),
			GENAI_E_IO, "belongs to another user");
		ck_assert_int_eq(chown(bench_file("model"), 1, 2), 0);
		ck_assert_int_eq(chmod(bench_file("model"), 0770), 0);
		expect_error(
			load_nested("model", external("w.bin", NULL, NULL)),
			GENAI_E_IO, "a group may write to its folder");
	}
	snprintf(roots, sizeof(roots), "%s/model", bench.dir);
	bench.trusted = roots;
	ck_assert_int_eq(load_nested("model", external("w.bin", NULL, NULL)),
			 0);
}
END_TEST

// Swapped between check and open.
static void swap_for_link(void)
{
	const char *path = bench_file("w.bin");

	unlink(path);
	ck_assert_int_eq(symlink("/etc/passwd", path), 0);
	swap = NULL;
}

static void swap_folder_for_link(void)
{
	const char *path = bench_file("sub");

	unlink(bench_file("sub/w.bin"));
	rmdir(path);
	ck_assert_int_eq(symlink("/etc", path), 0);
	swap = NULL;
}

static void swap_for_nothing(void)
{
	unlink(bench_file("w.bin"));
	swap = NULL;
}

static void swap_for_fifo(void)
{
	const char *path = bench_file("w.bin");

	unlink(path);
	mkfifo(path, 0600);
	swap = NULL;
}

START_TEST(swapped_for_link)
{
	bench_data("w.bin", 64, 0);
	swap = swap_for_link;
	refused("w.bin", GENAI_E_IO, "w.bin: cannot open: Too many levels");
	ck_assert_ptr_null(*(void **)&swap);
}
END_TEST

START_TEST(swapped_folder)
{
	make_dir("sub");
	bench_data("sub/w.bin", 64, 0);
	swap = swap_folder_for_link;
	refused("sub/w.bin", GENAI_E_IO, "sub/w.bin: cannot open: Not a dir");
}
END_TEST

START_TEST(swapped_for_nothing)
{
	bench_data("w.bin", 64, 0);
	swap = swap_for_nothing;
	refused("w.bin", GENAI_E_IO, "w.bin: cannot open: No such file");
}
END_TEST

START_TEST(swapped_for_fifo)
{
	bench_data("w.bin", 64, 0);
	swap = swap_for_fifo;
	refused("w.bin", GENAI_E_IO, "w.bin: not a regular file");
}
END_TEST

START_TEST(relative_to_the_model)
{
	char cwd[512];
	int32_t rc;

	ck_assert_ptr_nonnull(getcwd(cwd, sizeof(cwd)));
	nest("model");
	bench_data("model/w.bin", 64, 8);
	ck_assert_int_eq(load_nested("model", external("w.bin", NULL, NULL)),
			 0);
	ck_assert_int_eq(chdir(bench.dir), 0);
	rc = bench_load_path("model/model.onnx");
	ck_assert_msg(rc == 0, "%s", bench.err.text);
	ck_assert_int_eq(chdir("model"), 0);
	rc = bench_load_path("model.onnx");
	ck_assert_msg(rc == 0, "%s", bench.err.text);
	ck_assert_int_eq(chdir(cwd), 0);
	ck_assert_uint_eq(bytes_of(genai_onnx_graph(bench.model), "w", 64)[0],
			  8);
}
END_TEST

START_TEST(model_is_a_link)
{
	nest("model");
	bench_data("w.bin", 64, 1);
	bench_data("model/w.bin", 64, 2);
	ck_assert_int_eq(load_nested("model", external("w.bin", NULL, NULL)),
			 0);
	// data lies beside the link, not beside what it leads to
	make_link("model/model.onnx", "link.onnx");
	ck_assert_int_eq(bench_load_path(bench_file("link.onnx")), 0);
	ck_assert_uint_eq(bytes_of(genai_onnx_graph(bench.model), "w", 64)[0],
			  1);
}
END_TEST

START_TEST(no_permission)
{
	if (!geteuid())
		return; // root may read anything
	bench_data("w.bin", 64, 0);
	chmod(bench_file("w.bin"), 0);
	refused("w.bin", GENAI_E_IO, "Permission denied");
}
END_TEST

// 5 GiB of zeros: offsets are 64 bits all the way.
START_TEST(five_gigabytes)
{
	const int64_t half = (INT64_C(5) << 30) / 2;
	struct ow g = {NULL, 0, 0}, t;
	const struct genai_graph *got;
	int fd = open(bench_file("w.bin"), O_RDWR | O_CREAT, 0600);

	ck_assert_int_ge(fd, 0);
	if (ftruncate(fd, half * 2)) {
		close(fd);
		return; // no room for holes here
	}
	ck_assert_int_eq(pwrite(fd, "end", 3, half * 2 - 3), 3);
	close(fd);
	t = ow_tensor1("low", GENAI_DT_U8, half);
	ow_external(&t, "w.bin", "0", "2684354560");
	ow_add_init(&g, t);
	t = ow_tensor1("high", GENAI_DT_U8, half);
	ow_external(&t, "w.bin", "2684354560", NULL);
	ow_add_init(&g, t);
	got = graph_ok(g);
	ck_assert_uint_eq(bytes_of(got, "low", (uint64_t)half)[half - 1], 0);
	ck_assert_mem_eq(bytes_of(got, "high", (uint64_t)half) + half - 3,
			 "end", 3);
}
END_TEST

START_TEST(truncated_while_in_use)
{
	const uint8_t *p;

	bench_data("w.bin", 64, 1);
	p = accepted("w.bin");
	ck_assert_uint_eq(p[0], 1);
	ck_assert_int_eq(genai_onnx_check(bench.model, &bench.err), 0);
	ck_assert_int_eq(truncate(bench_file("w.bin"), 10), 0);
	ck_assert_int_eq(genai_onnx_check(bench.model, &bench.err), GENAI_E_IO);
	ck_assert_ptr_nonnull(
		strstr(bench.err.text,
		       "w.bin: truncated while in use: was 64 bytes, is 10"));
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("onnx_external");
	TCase *t = tcase_create("external");

	tcase_add_checked_fixture(t, bench_setup, bench_teardown);
	tcase_set_timeout(t, 30);
#define T(name) tcase_add_test(t, name)
#define LOOP(name, table)                                                      \
	tcase_add_loop_test(t, name, 0, sizeof(table) / sizeof(table[0]))
	T(plain);
	LOOP(path_accepted, good_paths);
	LOOP(path_refused, bad_paths);
	T(path_not_there);
	T(path_length);
	T(path_with_nul);
	T(path_not_utf8);
	T(location_checks);
	T(no_location);
	tcase_add_loop_test(t, twice_the_same_key, 0, 3);
	T(unknown_key);
	LOOP(bad_offset, bad_numbers);
	T(decimals);
	LOOP(span, spans);
	T(file_too_short);
	T(unaligned);
	T(shared_file_is_mapped_once);
	T(several_files);
	T(out_of_descriptors);
	T(empty_file_for_no_bytes);
	T(both_inside_and_outside);
	T(entries_without_the_flag);
	T(constant_node_outside);
	T(subgraph_uses_the_same_file);
	T(not_a_regular_file);
	T(lfs_pointer);
	T(links_inside);
	T(link_to_a_sibling);
	T(trusted_root);
	T(too_many_trusted_roots);
	T(hugging_face_cache);
	T(hugging_face_subfolder);
	T(hugging_face_elsewhere);
	T(hard_link);
	T(swapped_for_link);
	T(swapped_folder);
	T(swapped_for_nothing);
	T(swapped_for_fifo);
	T(relative_to_the_model);
	T(model_is_a_link);
	T(no_permission);
	T(five_gigabytes);
	T(truncated_while_in_use);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
