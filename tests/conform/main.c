// main.c - genai-conform: does a module keep the contract?
// The list of tests, each run by Check in a process of its own, and the report.
#include "tests/conform/conform.h"
#include "tests/conform/parity.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/elf.h"

struct cf cf;

const struct cf_suite *const cf_suites[] = {
	&cf_suite_handshake,
	&cf_suite_image,
	&cf_suite_memory,
	&cf_suite_stream,
	&cf_suite_graphs,
	&cf_suite_record,
	&cf_suite_barrier,
	&cf_suite_pager,
	&cf_suite_paging,
	&cf_suite_pages,
	&cf_suite_experts,
	&cf_suite_executor,
	&cf_suite_ops,
	&cf_suite_numbers,
	&cf_suite_steps,
	&cf_suite_minor,
	&cf_suite_torture,
	&cf_suite_many,
	&cf_suite_life,
	&cf_suite_failure,
	&cf_suite_keys,
	&cf_suite_guest,
	&cf_suite_sessions,
	&cf_suite_signal,
	&cf_suite_layer,
	NULL,
};

#define MAX_CASES 512
static struct cf_case cases[MAX_CASES];
static uint32_t n_cases;
static struct cf_note *notes; // shared with the tests' processes

static const char usage[] =
	"usage: genai-conform --module FILE|NAME [options]\n"
	"Checks a module against the contract of docs/MODULES.md.\n"
	"  --module M         a shared object, or a name that --config knows\n"
	"  --iface NAME       only this interface of the module\n"
	"  --test ID          only this test; may be given several times\n"
	"  --config FILE      genai.ini for the module and its companions\n"
	"  --set S.KEY=VALUE  a setting that wins over the file\n"
	"  --expect FILE      conform.ini: [unsupported] and [xfail]\n"
	"  --strict           an [xfail] that passes is a failure\n"
	"  --require-device   a missing device is a failure, not a skip\n"
	"  --torture          let every allocation fail in turn; slow\n"
	"  --seed N           other random pages and programs than those of 0\n"
	"  --brief            one in eight of the cases of operators' numbers\n"
	"  --keep-open        beside each test another runtime is open, so that "
	"a\n"
	"                     device whose opening takes long is opened once a "
	"test\n"
	"  --tap              Test Anything Protocol\n"
	"  --list             list the tests: id, interface, requirement\n"
	"  --version\n"
	"or: genai-conform --parity DIR... [--executors LIST] [--pagers LIST]\n"
	"  [--budgets LIST] [--seeds N] [--json FILE]\n"
	"Every configuration gives the same tokens: docs/PARITY.md.\n"
	"or: genai-conform --parity DIR... --reference MODULE [--seeds N]\n"
	"  [--tokens N] [--config FILE] [--set KEY=VALUE]...\n"
	"The configured modules against another's numbers, as near as rounding "
	"lets.\n"
	"or: genai-conform --goldens [--config FILE] [--set KEY=VALUE]...\n"
	"  [--model DIR] DIR...\n"
	"Model folders against what was recorded with them (golden/).\n"
	"Exit status: 0 all passed, 1 a failure, 2 wrong use.\n";

// ---- options ----

static int add_to(const char **list, uint32_t *n, const char *what)
{
	if (*n == 64) {
		fprintf(stderr, "genai-conform: more than 64 of %s\n", what);
		return 2;
	}
	list[(*n)++] = optarg;
	return 0;
}

static const struct option options[] = {
	{"module", 1, NULL, 'm'},  {"iface", 1, NULL, 'i'},
	{"test", 1, NULL, 't'},	   {"config", 1, NULL, 'c'},
	{"set", 1, NULL, 's'},	   {"expect", 1, NULL, 'e'},
	{"strict", 0, NULL, 'S'},  {"require-device", 0, NULL, 'r'},
	{"torture", 0, NULL, 'T'}, {"tap", 0, NULL, 'a'},
	{"brief", 0, NULL, 'b'},   {"list", 0, NULL, 'l'},
	{"version", 0, NULL, 'v'}, {"help", 0, NULL, 'h'},
	{"seed", 1, NULL, 'd'},	   {"keep-open", 0, NULL, 'k'},
	{0},
};

static int take_seed(struct cf_options *o)
{
	struct genai_error err = GENAI_ERROR_INIT;

	if (!genai_parse_u64(optarg, &o->seed, &err))
		return 0;
	fprintf(stderr, "genai-conform: --seed: %s\n", err.text);
	return 2;
}

static int take_option(struct cf_options *o, int c)
{
	switch (c) {
	case 'm':
		o->module = optarg;
		return 0;
	case 'i':
		o->iface = optarg;
		return 0;
	case 't':
		return add_to(o->tests, &o->n_tests, "--test");
	case 'c':
		o->config = optarg;
		return 0;
	case 's':
		return add_to(o->sets, &o->n_sets, "--set");
	case 'e':
		o->expect = optarg;
		return 0;
	case 'S':
		o->strict = true;
		return 0;
	case 'r':
		o->require_device = true;
		return 0;
	case 'T':
		o->torture = true;
		return 0;
	case 'd':
		return take_seed(o);
	case 'a':
		o->tap = true;
		return 0;
	case 'b':
		o->brief = true;
		return 0;
	case 'k':
		o->keep_open = true;
		return 0;
	case 'l':
		o->list = true;
		return 0;
	case 'v':
		printf("genai-conform " GENAI_VERSION_STRING ", ABI %d.%d\n",
		       GENAI_ABI_MAJOR, GENAI_ABI_MINOR);
		exit(0);
	case 'h':
		fputs(usage, stdout);
		exit(0);
	default:
		return 2;
	}
}

static int parse(int argc, char **argv, struct cf_options *o)
{
	int c, rc = 0;

	while (!rc && (c = getopt_long(argc, argv, "", options, NULL)) != -1)
		rc = take_option(o, c);
	if (!rc && (optind < argc || (!o->module && !o->list))) {
		fputs(usage, stderr);
		rc = 2;
	}
	for (uint32_t i = 0; !rc && i < o->n_tests; i++)
		if (!cf_find_test(o->tests[i])) {
			fprintf(stderr, "genai-conform: no test is called %s\n",
				o->tests[i]);
			rc = 2;
		}
	return rc;
}

// ---- the module ----

// Does what query gave look like a block, and its name like a name?
static bool is_block(const struct link_map *map,
		     const struct genai_module_block *b)
{
	return b && (uintptr_t)b % sizeof(void *) == 0 &&
	       genai_elf_contains(map, b, 64) &&
	       b->magic == GENAI_MODULE_MAGIC &&
	       genai_elf_contains_string(map, b->name, sizeof(cf.name) - 1);
}

static void *open_file(struct genai_error *err)
{
	struct stat st = {0};
	void *h = NULL;
	int fd = open(cf.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		genai_fail(err, GENAI_E_IO, "%s: not a file to be read",
			   cf.path);
	} else if (!genai_elf_check_file(fd, (uint64_t)st.st_size, cf.path,
					 err)) {
		h = dlopen(cf.path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
		if (!h)
			genai_fail(err, GENAI_E_MODULE, "%s", dlerror());
	}
	if (fd >= 0)
		close(fd);
	return h;
}

// A file's module has to be asked what it is called before the loader, which
// compares that with the configuration, can be asked to load it.
static int name_of_file(char *name, size_t cap)
{
	struct genai_error err = GENAI_ERROR_INIT;
	const struct genai_module_block *b;
	genai_module_query_fn query;
	struct link_map *map = NULL;
	int32_t reason = 0;
	void *h, *sym;

	if (!realpath(cf.o.module, cf.path)) {
		fprintf(stderr, "genai-conform: %s: %m\n", cf.o.module);
		return 1;
	}
	h = open_file(&err);
	sym = h ? dlsym(h, GENAI_MODULE_QUERY_SYMBOL) : NULL;
	if (!sym || dlinfo(h, RTLD_DI_LINKMAP, &map)) {
		fprintf(stderr, "genai-conform: %s\n",
			h ? dlerror() : err.text);
		return 1;
	}
	memcpy(&query, &sym, sizeof(query));
	b = query(GENAI_ABI, &reason);
	if (!is_block(map, b)) {
		fprintf(stderr,
			"genai-conform: %s: refuses core ABI %d.%d (%s), or "
			"gives no block\n",
			cf.path, GENAI_ABI_MAJOR, GENAI_ABI_MINOR,
			genai_status_name(reason));
		return 1;
	}
	snprintf(name, cap, "%s", b->name);
	return 0;
}

static void add_cases(const struct cf_suite *s, const char *type,
		      const char *name)
{
	for (uint32_t i = 0; i < s->n && n_cases < MAX_CASES; i++) {
		const struct cf_test *t = &s->tests[i];
		bool wanted = !cf.o.n_tests;

		for (uint32_t k = 0; k < cf.o.n_tests; k++)
			wanted |= !strcmp(cf.o.tests[k], t->id);
		if (wanted &&
		    (type ? t->iface && !strcmp(t->iface, type) : !t->iface))
			cases[n_cases++] = (struct cf_case){
				.test = t, .iface = strdup(name)};
	}
}

static bool is_layer(const struct genai_iface *f)
{
	return !strcmp(f->type, GENAI_IFACE_STREAM_LAYER);
}

static int find_cases(void)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *config = NULL;
	struct genai_module *m = NULL;
	const struct genai_iface *f;
	bool found = !cf.o.iface;

	if (cf_load(NULL, &config, &m, &err)) {
		fprintf(stderr, "genai-conform: %s\n", err.text);
		return 1;
	}
	for (uint32_t s = 0; !cf.o.iface && cf_suites[s]; s++)
		add_cases(cf_suites[s], NULL, "");
	for (uint32_t i = 0; (f = genai_module_iface_at(m, i)); i++) {
		if (cf.o.iface && strcmp(cf.o.iface, f->name) &&
		    strcmp(cf.o.iface, f->type))
			continue;
		found = true;
		for (uint32_t s = 0; cf_suites[s]; s++)
			add_cases(cf_suites[s], f->type, f->name);
		// a stack has to be what the device alone is
		for (uint32_t s = 0; is_layer(f) && cf_suites[s]; s++) {
			add_cases(cf_suites[s], GENAI_IFACE_STREAM, f->name);
			add_cases(cf_suites[s], GENAI_IFACE_BARRIER, f->name);
		}
	}
	genai_module_close(m);
	genai_config_close(config);
	if (!found || !n_cases) {
		fprintf(stderr,
			"genai-conform: %s: no test of that name, or no "
			"interface %s\n",
			cf.name, cf.o.iface ? cf.o.iface : "");
		return 2;
	}
	return 0;
}

// ---- running ----

static void run(const struct cf_case *c, struct cf_note *note)
{
	cf.at = c;
	cf.note = note;
	note->state = CF_RAN;
	cf_log_errors();
	if (!setjmp(cf.skip))
		c->test->fn();
}

START_TEST(run_case)
{
	run(&cases[_i], &notes[_i]);
}
END_TEST

// Claimed and listed as unsupported does not fit.
static void check_claim(void)
{
	uint32_t needs = cf.at->test->needs;
	uint32_t with = needs & CF_STABLE ? CF_WITH_PAGER : 0;
	struct cf_rt r;

	if (needs & (CF_RECORDS | CF_ROWS_EXACT))
		with = CF_WITH_EXECUTOR;
	if (needs) {
		cf_open(&r, with, NULL);
		genai_close(r.rt);
		ck_abort_msg("claims what it needs, but conform.ini says it is "
			     "unsupported: %s",
			     cf.at->reason);
	}
	cf_skip("unsupported: %s", cf.at->reason);
}

START_TEST(run_claim)
{
	cf.at = &cases[_i];
	cf.note = &notes[_i];
	if (!setjmp(cf.skip))
		check_claim();
}
END_TEST

// Each in a runner of its own, so that it is reported when it has ended.
static SRunner *run_one(uint32_t i)
{
	Suite *s = suite_create("conform");
	TCase *tc = tcase_create(cases[i].test->id);
	bool claim = cases[i].reason && cases[i].unsupported;
	SRunner *sr;

	tcase_set_timeout(tc, cf.o.torture ? 1200 : 120);
	tcase_add_loop_test(tc, claim ? run_claim : run_case, (int)i,
			    (int)i + 1);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_SILENT);
	return sr;
}

// ---- report ----

enum verdict { PASSED, FAILED, SKIPPED };

static enum verdict judge(const struct cf_case *c, const struct cf_note *note,
			  bool failed, const char **out_why)
{
	bool xfail = c->reason && !c->unsupported;

	if (!failed && note->state == CF_SKIPPED) {
		*out_why = note->text;
		return SKIPPED;
	}
	if (failed && xfail) {
		*out_why = c->reason;
		return SKIPPED;
	}
	if (!failed && xfail && cf.o.strict) {
		*out_why = "passes, but conform.ini expects it to fail";
		return FAILED;
	}
	return failed ? FAILED : PASSED;
}

// "Assertion 'EXPRESSION' failed: VALUES" is for who has the source.
static const char *plain(const char *why)
{
	static const char mark[] = "' failed: ";
	const char *values =
		strncmp(why, "Assertion '", 11) == 0 ? strstr(why, mark) : NULL;

	return values ? values + sizeof(mark) - 1 : why;
}

static void print_with(const struct cf_note *note, const char *why)
{
	if (*note->with && !strstr(why, note->with))
		printf("; with %s", note->with);
}

static void print_case(uint32_t i, enum verdict v, const char *why)
{
	const struct cf_case *c = &cases[i];
	const char *space = *c->iface ? " " : "";

	if (cf.o.tap) {
		printf("%sok %u - %s%s%s%s%s\n", v == FAILED ? "not " : "",
		       i + 1, c->test->id, space, c->iface,
		       v == SKIPPED ? " # SKIP " : "", v == SKIPPED ? why : "");
		if (v == FAILED) {
			printf("# %s: %s", c->test->gm, plain(why));
			print_with(&notes[i], why);
			printf("\n");
		}
	} else if (v == FAILED) {
		printf("FAIL %s%s%s (%s): %s", c->test->id, space, c->iface,
		       c->test->gm, plain(why));
		print_with(&notes[i], why);
		printf("\n");
	} else if (v == SKIPPED) {
		printf("skip %s%s%s: %s\n", c->test->id, space, c->iface, why);
	}
}

static enum verdict run_and_report(uint32_t i)
{
	SRunner *sr = run_one(i);
	TestResult **results = srunner_results(sr);
	const char *why = tr_msg(results[0]);
	enum verdict v = judge(&cases[i], &notes[i],
			       tr_rtype(results[0]) != CK_PASS, &why);

	print_case(i, v, why ? why : "no message");
	free(results);
	srunner_free(sr);
	return v;
}

static uint32_t run_all(void)
{
	uint32_t count[3] = {0};

	if (cf.o.tap)
		printf("1..%u\n", n_cases);
	for (uint32_t i = 0; i < n_cases; i++)
		count[run_and_report(i)]++;
	printf("%s%u passed, %u failed, %u skipped\n", cf.o.tap ? "# " : "",
	       count[PASSED], count[FAILED], count[SKIPPED]);
	if (count[FAILED] && cf.o.seed)
		printf("%swith --seed %llu\n", cf.o.tap ? "# " : "",
		       (unsigned long long)cf.o.seed);
	return count[FAILED];
}

static void list(void)
{
	for (uint32_t s = 0; cf_suites[s]; s++)
		for (uint32_t i = 0; i < cf_suites[s]->n; i++) {
			const struct cf_test *t = &cf_suites[s]->tests[i];

			printf("%-32s %-16s %s\n", t->id,
			       t->iface ? t->iface : "-", t->gm);
		}
}

int main(int argc, char **argv)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int rc;

	// who is killed has said what came before
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--goldens"))
			return conform_goldens(argc, argv);
		else if (!strcmp(argv[i], "--reference"))
			return conform_reference(argc, argv);
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--parity"))
			return conform_parity(argc, argv);
	rc = parse(argc, argv, &cf.o);
	if (rc)
		return rc;
	if (cf.o.list) {
		list();
		return 0;
	}
	if (strchr(cf.o.module, '/') || strstr(cf.o.module, ".so"))
		rc = name_of_file(cf.name, sizeof(cf.name));
	else
		snprintf(cf.name, sizeof(cf.name), "%s", cf.o.module);
	if (!rc)
		rc = find_cases();
	if (!rc && cf.o.expect &&
	    cf_expect_read(cf.o.expect, cases, n_cases, &err)) {
		fprintf(stderr, "genai-conform: %s\n", err.text);
		rc = 2;
	}
	if (rc)
		return rc;
	notes = mmap(NULL, n_cases * sizeof(*notes), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (notes == MAP_FAILED) {
		perror("genai-conform");
		return 1;
	}
	return run_all() ? 1 : 0;
}
