// probe.c - what the scripts of this folder need besides a shell: looking into
// JSON and .npy files, and making small models, good ones and bad ones.
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/gguf_arch.h"
#include "tests/unit/gguf_model.h"
#include "tests/unit/onnx_writer.h"
#include "tools/npy.h"

static int usage(void)
{
	fprintf(stderr,
		"probe json [KEY|INDEX]...        a value of stdin's JSON\n"
		"probe npy FILE                   type and shape\n"
		"probe npyrow FILE ROW            a row of numbers\n"
		"probe npydiff A B                largest difference\n"
		"probe mknpy FILE DIMS VALUE...   float32\n"
		"probe onnx KIND DIR              DIR/model.onnx and tests\n"
		"probe gguf FILE [ARCH [PARTS]]   a small model; in parts: "
		"FILE-00001-of-...\n"
		"probe pty COMMAND...             run it on a terminal; stdin "
		"says what is\n"
		"   typed: send TEXT (\\r \\e \\xNN), wait TEXT, end; "
		"stdout: the screen\n");
	return 2;
}

// ---- a terminal ----

struct pty {
	int fd;
	char *screen;
	size_t n, seen; // seen: up to where a wait has found its text
};

static size_t unescape(char *s)
{
	size_t n = 0;

	for (char *p = s; *p; p++) {
		unsigned v;

		if (*p != '\\') {
			s[n++] = *p;
		} else if (*++p == 'x' && sscanf(p + 1, "%2x", &v) == 1) {
			s[n++] = (char)v;
			p += 2;
		} else {
			s[n++] = *p == 'r' ? '\r' : *p == 'e' ? '\033' : *p;
		}
	}
	return n;
}

// Take up what the program prints for at most ms; false at its end.
static bool screen_more(struct pty *t, int ms)
{
	struct pollfd p = {t->fd, POLLIN, 0};
	ssize_t n;

	if (poll(&p, 1, ms) <= 0)
		return true;
	t->screen = realloc(t->screen, t->n + 4097);
	n = t->screen ? read(t->fd, t->screen + t->n, 4096) : -1;
	if (n <= 0)
		return false;
	t->n += (size_t)n;
	return true;
}

static bool screen_wait(struct pty *t, const char *text, size_t n)
{
	time_t end = time(NULL) + 60;
	bool alive = true;

	for (;;) {
		char *p = t->n > t->seen ? memmem(t->screen + t->seen,
						  t->n - t->seen, text, n)
					 : NULL;

		if (p) {
			t->seen = (size_t)(p - t->screen) + n;
			return true;
		}
		if (!alive || time(NULL) > end)
			return false;
		alive = screen_more(t, 200);
	}
}

static int pty(char **command)
{
	struct pty t = {.fd = posix_openpt(O_RDWR | O_NOCTTY)};
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;
	int status = 0, rc = 0;
	pid_t pid;

	if (t.fd < 0 || grantpt(t.fd) || unlockpt(t.fd))
		return 2;
	pid = fork();
	if (!pid) {
		int s;

		setsid();
		s = open(ptsname(t.fd), O_RDWR); // becomes the terminal
		for (int i = 0; i < 3; i++)
			dup2(s, i);
		execvp(command[0], command);
		_exit(127);
	}
	while (!rc && (n = getline(&line, &cap, stdin)) > 0) {
		char *text = line + 5;

		line[n - 1] = 0;
		if (!strncmp(line, "send ", 5)) {
			size_t bytes = unescape(text);

			rc = write(t.fd, text, bytes) != (ssize_t)bytes;
		} else if (!strncmp(line, "wait ", 5)) {
			rc = !screen_wait(&t, text, unescape(text));
			if (rc)
				fprintf(stderr, "probe: no %s\n", line);
		}
	}
	if (!rc)
		for (int i = 0; i < 300 && screen_more(&t, 200); i++)
			;
	close(t.fd);
	waitpid(pid, &status, 0);
	fwrite(t.screen, 1, t.n, stdout);
	return rc ? 3 : WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

// One line, one value: what --json promises.
static int json(int n, char **path)
{
	char *text = NULL, *end;
	size_t cap = 0;
	json_t *j, *v;
	int rc = 0;

	if (getdelim(&text, &cap, EOF, stdin) < 0)
		return 1;
	end = strchr(text, '\n');
	j = json_loads(text, JSON_DECODE_ANY, NULL);
	v = j;
	for (int i = 0; v && i < n; i++)
		v = json_is_array(v) ? json_array_get(v, (size_t)atol(path[i]))
				     : json_object_get(v, path[i]);
	if (!v || !end || end[1]) {
		fprintf(stderr,
			"probe: not one line of JSON, or no such key\n");
		rc = 1;
	} else if (json_is_string(v)) {
		printf("%s\n", json_string_value(v));
	} else if (json_is_array(v) && n && !strcmp(path[n - 1], "length")) {
		printf("%zu\n", json_array_size(v));
	} else {
		json_dumpf(v, stdout, JSON_ENCODE_ANY | JSON_COMPACT);
		putchar('\n');
	}
	json_decref(j);
	free(text);
	return rc;
}

static bool read_floats(const char *path, struct tensor_file *t)
{
	struct genai_error err = GENAI_ERROR_INIT;

	if (!tensor_read(path, t, &err) && t->dtype == GENAI_DT_F32)
		return true;
	fprintf(stderr, "probe: %s\n", err.text);
	return false;
}

static int npy(const char *path, long row)
{
	struct tensor_file t;
	uint64_t width;

	if (!read_floats(path, &t))
		return 1;
	width = t.rank ? (uint64_t)t.dims[t.rank - 1] : 1;
	if (row < 0) {
		printf("float32");
		for (uint32_t d = 0; d < t.rank; d++)
			printf(" %lld", (long long)t.dims[d]);
		putchar('\n');
	}
	for (uint64_t i = 0; row >= 0 && i < width; i++)
		printf("%.9g%c", ((float *)t.data)[(uint64_t)row * width + i],
		       i + 1 < width ? ' ' : '\n');
	tensor_free(&t);
	return 0;
}

static int npydiff(const char *a, const char *b)
{
	struct tensor_file x, y;
	double worst = 0;

	if (!read_floats(a, &x))
		return 1;
	if (!read_floats(b, &y) || x.bytes != y.bytes) {
		fprintf(stderr, "probe: other sizes\n");
		return 1;
	}
	for (uint64_t i = 0; i < x.bytes / 4; i++)
		worst = fmax(worst, fabs(((float *)x.data)[i] -
					 (double)((float *)y.data)[i]));
	printf("%.3g\n", worst);
	tensor_free(&x);
	tensor_free(&y);
	return 0;
}

static int mknpy(int n, char **v)
{
	struct tensor_file t = {.dtype = GENAI_DT_F32};
	float data[64];

	for (char *p = strtok(v[1], ","); p; p = strtok(NULL, ","))
		t.dims[t.rank++] = atoll(p);
	for (int i = 2; i < n && i < 66; i++)
		data[i - 2] = strtof(v[i], NULL);
	t.data = data;
	t.bytes = (uint64_t)(n - 2) * 4;
	return tensor_write(v[0], &t, NULL) ? 1 : 0;
}

// ---- ONNX models ----

static void save(const char *folder, const char *name, struct ow w)
{
	char path[4200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "we");
	if (!f || fwrite(w.data, 1, w.n, f) != w.n || fclose(f)) {
		perror(path);
		exit(1);
	}
	ow_free(&w);
}

static struct ow floats(const char *name, const float *v, int64_t n)
{
	struct ow t = ow_tensor1(name, 1, n);

	ow_bytes(&t, 9, v, (size_t)n * 4);
	return t;
}

static void io(struct ow *g, int64_t n)
{
	ow_msg(g, 11, ow_value("X", 1, 1, &n));
	ow_msg(g, 12, ow_value("Y", 1, 1, &n));
}

// X + w -> Y, or what kind says.
static struct ow small_graph(const char *kind)
{
	static const float w[3] = {10, 20, 30};
	struct ow g = {NULL, 0, 0}, t, n;

	io(&g, !strcmp(kind, "short-shape") ? 2 : 3);
	if (!strcmp(kind, "badop") || !strcmp(kind, "nameless")) {
		n = ow_node("NoSuchOp", "X,w", "Y");
		if (*kind == 'b')
			ow_str(&n, 3, "strange");
		ow_str(&n, 7, "com.example");
		ow_add_node(&g, n);
	} else if (!strcmp(kind, "badattr")) {
		n = ow_node("Add", "X,w", "Y");
		ow_attr_int(&n, "mystery", 1);
		ow_add_node(&g, n);
	} else if (!strcmp(kind, "cycle")) {
		ow_add_op(&g, "Add", "X,b", "Y");
		ow_add_op(&g, "Relu", "c", "b");
		ow_add_op(&g, "Relu", "b", "c");
	} else {
		ow_add_op(&g, "Add", "X,w", "Y");
	}
	if (!strcmp(kind, "outside")) {
		t = ow_tensor1("w", 1, 3);
		ow_external(&t, "../secret.bin", "0", "12");
	} else if (!strcmp(kind, "missing-data")) {
		t = ow_tensor1("w", 1, 3);
		ow_external(&t, "gone.bin", "0", "12");
	} else if (!strcmp(kind, "short-data")) {
		t = ow_tensor1("w", 1, 1000000);
		ow_bytes(&t, 9, w, 12);
	} else {
		t = floats("w", w, 3);
	}
	ow_add_init(&g, t);
	return g;
}

static void test_data(const char *dir, const char *kind)
{
	static const float x[3] = {1, 2, 3}, right[3] = {11, 22, 33},
			   wrong[3] = {11, 22, 34};
	char set[4200];

	snprintf(set, sizeof(set), "%s/test_data_set_0", dir);
	mkdir(set, 0777);
	save(set, "input_0.pb", floats("X", x, 3));
	save(set, "output_0.pb",
	     floats("Y", strcmp(kind, "wrong") ? right : wrong, 3));
}

static int onnx(const char *kind, const char *dir_name)
{
	struct ow m = ow_model(small_graph(kind));

	mkdir(dir_name, 0777);
	if (!strcmp(kind, "badop") || !strcmp(kind, "nameless"))
		ow_opset(&m, "com.example", 1);
	save(dir_name, "model.onnx", m);
	test_data(dir_name, kind);
	return 0;
}

static void gguf_write(const char *path, const struct gguf_build *g)
{
	struct bytes b = {0};

	gguf_join(g, &b);
	write_file(path, b.data, b.n);
	free(b.data);
}

static int gguf(const char *path, const char *arch, unsigned n_parts)
{
	struct gguf_build g = {0}, part;
	char name[4096];
	size_t i = 0;

	while (arch && i < N_ARCH_SPECS && strcmp(arch_specs[i].name, arch))
		i++;
	if (i == N_ARCH_SPECS)
		return usage();
	if (arch)
		arch_build(&g, &arch_specs[i]);
	else
		build(&g, &plain);
	if (!n_parts)
		gguf_write(path, &g);
	for (unsigned k = 0; k < n_parts; k++) {
		snprintf(name, sizeof(name), "%s-%05u-of-%05u.gguf", path,
			 k + 1, n_parts);
		gguf_part(&g, k, n_parts, &part);
		gguf_write(name, &part);
		gguf_free(&part);
	}
	gguf_free(&g);
	return 0;
}

static int n_args, status;
static char **args;

static int dispatch(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "json"))
		return json(argc - 2, argv + 2);
	if (!strcmp(what, "npy") && argc == 3)
		return npy(argv[2], -1);
	if (!strcmp(what, "npyrow") && argc == 4)
		return npy(argv[2], atol(argv[3]));
	if (!strcmp(what, "npydiff") && argc == 4)
		return npydiff(argv[2], argv[3]);
	if (!strcmp(what, "mknpy") && argc > 4)
		return mknpy(argc - 2, argv + 2);
	if (!strcmp(what, "onnx") && argc == 4)
		return onnx(argv[2], argv[3]);
	if (!strcmp(what, "gguf") && argc >= 3 && argc <= 5)
		return gguf(argv[2], argc >= 4 ? argv[3] : NULL,
			    argc == 5 ? (unsigned)atoi(argv[4]) : 0);
	if (!strcmp(what, "pty") && argc > 2)
		return pty(argv + 2);
	return usage();
}

// The headers that make files assert as Check does: be a test.
START_TEST(everything)
{
	status = dispatch(n_args, args);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *s = suite_create("probe");
	TCase *tc = tcase_create("probe");
	SRunner *sr = srunner_create(s);

	n_args = argc;
	args = argv;
	tcase_add_test(tc, everything);
	suite_add_tcase(s, tc);
	srunner_set_fork_status(sr, CK_NOFORK);
	srunner_run_all(sr, CK_SILENT);
	if (srunner_ntests_failed(sr))
		status = 1;
	srunner_free(sr);
	return status;
}
