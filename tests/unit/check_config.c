// check_config.c - the INI syntax, [runtime]'s keys, --set, units.
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/config/config.h"
#include "core/config/spell.h"
#include "tests/unit/harness.h"

static char dir[64], ini[80];

static void setup(void)
{
	strcpy(dir, "/tmp/genai-config-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(ini, sizeof(ini), "%s/t.ini", dir);
}

static void teardown(void)
{
	unlink(ini);
	rmdir(dir);
}

static void write_bytes(const char *text, size_t n)
{
	FILE *f = fopen(ini, "wb");

	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(text, 1, n, f), n);
	ck_assert_int_eq(fclose(f), 0);
}

// Load text as a file that must be sound.
static struct genai_config *load(const char *text)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *c = NULL;

	write_bytes(text, strlen(text));
	ck_assert_msg(genai_config_load(ini, NULL, 0, &c, &err) == 0, "%s",
		      err.text);
	return c;
}

// Load n bytes that must be refused with "PATH" followed by want.
static void refuse_bytes(const char *text, size_t n, const char *want)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *c = NULL;

	write_bytes(text, n);
	ck_assert_int_eq(genai_config_load(ini, NULL, 0, &c, &err),
			 GENAI_E_CONFIG);
	ck_assert_ptr_null(c);
	ck_assert_int_eq(err.code, GENAI_E_CONFIG);
	ck_assert_msg(strncmp(err.text, ini, strlen(ini)) == 0, "%s", err.text);
	ck_assert_str_eq(err.text + strlen(ini), want);
	ck_assert_int_eq(genai_config_load(ini, NULL, 0, &c, NULL),
			 GENAI_E_CONFIG);
}

static void refuse(const char *text, const char *want)
{
	refuse_bytes(text, strlen(text), want);
}

static void expect(const struct genai_config *c, const char *section,
		   const char *key, const char *value)
{
	const char *found = genai_config_get(c, section, key);

	ck_assert_ptr_nonnull(found);
	ck_assert_str_eq(found, value);
}

START_TEST(defaults)
{
	static const char *const want[][2] = {
		{"executor", "cpu_ref:eager"},
		{"stream", "cpu_ref"},
		{"barrier", "cpu_ref"},
		{"pager", "pager_sync"},
		{"device", "0"},
		{"device_limit", "auto"},
		{"weight_budget", "auto"},
		{"context", "auto"},
		{"speculation", "auto"},
		{"swap", "auto"},
		{"module_path", ""},
		{"trusted_roots", ""},
		{"check", "off"},
	};
	struct genai_config *c = load("");
	size_t i;

	for (i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		expect(c, "runtime", want[i][0], want[i][1]);
		ck_assert_str_eq(genai_config_origin(c, "runtime", want[i][0]),
				 "default");
	}
	ck_assert_ptr_null(genai_config_get(c, "runtime", "no_such"));
	ck_assert_ptr_null(genai_config_get(c, "module cpu_ref", "path"));
	ck_assert_str_eq(genai_config_path(c), ini);
	genai_config_close(c);
	genai_config_close(NULL);
}
END_TEST

// B02 BOM, B03 CRLF and blanks, B04 indentation, B05 comments and quotes, B06
// merged sections.
START_TEST(lines)
{
	struct genai_config *c = load("\xef\xbb\xbf; a comment\r\n# another\r\n"
				      "  [runtime]  ; of the run\r\n"
				      "\tdevice = 3 \t\r\n"
				      "    check=order\t# why not\r\n"
				      "[module  m1 ] #\r\n"
				      "one=/m/a;b\n"
				      "two = /m/a ; b\n"
				      "three=\"a ; b\" ; c\n"
				      "four=#fff\n"
				      "five = # empty\n"
				      "six=\n"
				      "seven = \" padded \"\n"
				      "eight = say \"hi\" twice\n"
				      "nine = a=b\n"
				      "ten = a:b\n"
				      "[runtime]\n"
				      "pager = pager_async");

	expect(c, "runtime", "device", "3");
	expect(c, "runtime", "check", "order");
	expect(c, "runtime", "pager", "pager_async");
	expect(c, "module m1", "one", "/m/a;b");
	expect(c, "module m1", "two", "/m/a");
	expect(c, "module m1", "three", "a ; b");
	expect(c, "module m1", "four", "#fff");
	expect(c, "module m1", "five", "");
	expect(c, "module m1", "six", "");
	expect(c, "module m1", "seven", " padded ");
	expect(c, "module m1", "eight", "say \"hi\" twice");
	expect(c, "module m1", "nine", "a=b");
	expect(c, "module m1", "ten", "a:b");
	genai_config_close(c);
}
END_TEST

START_TEST(origins)
{
	static const char *const sets[] = {
		"runtime.device=7", "module.m1.size=5", "runtime.device=8",
		"module.m1.empty=", "module.m1.text=a = b ; c"};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *c = NULL;
	const char *text = "[runtime]\ndevice=1\n\ncheck=order\n"
			   "[module m1]\nsize=4\n";
	char want[128];

	write_bytes(text, strlen(text));
	ck_assert_int_eq(genai_config_load(ini, sets, 5, &c, &err), 0);
	expect(c, "runtime", "device", "8");
	expect(c, "module m1", "size", "5");
	expect(c, "module m1", "empty", "");
	expect(c, "module m1", "text", "a = b ; c");
	ck_assert_str_eq(genai_config_origin(c, "runtime", "device"), "--set");
	snprintf(want, sizeof(want), "%s:4", ini);
	ck_assert_str_eq(genai_config_origin(c, "runtime", "check"), want);
	ck_assert_str_eq(genai_config_origin(c, "runtime", "none"), "default");
	ck_assert_int_eq(
		genai_config_fail(c, "runtime", "check", &err, "needs %d", 5),
		GENAI_E_CONFIG);
	snprintf(want, sizeof(want), "%s:4: runtime.check = order: needs 5",
		 ini);
	ck_assert_str_eq(err.text, want);
	genai_config_fail(c, "module m1", "size", &err, "no");
	ck_assert_str_eq(err.text, "--set: module.m1.size = 5: no");
	genai_config_close(c);
}
END_TEST

static const struct {
	const char *text, *want;
} refused[] = {
	// B08, B06
	{"[runtime]\nexecuter=a\n", ":2: unknown key executer in [runtime], "
				    "did you mean executor?"},
	{"[runtime]\nwieght_budget=1\n",
	 ":2: unknown key wieght_budget in [runtime], did you mean "
	 "weight_budget?"},
	{"[runtime]\nfrequency=1\n", ":2: unknown key frequency in [runtime]"},
	{"[runtime]\nDevice=1\n",
	 ":2: unknown key Device in [runtime], did you mean device?"},
	{"[runtime]\ndevice=1\n;\ndevice=1\n",
	 ":4: key device in [runtime] twice, first on line 2"},
	{"[module a]\nx=1\n[runtime]\n[module a]\nx=2",
	 ":5: key x in [module a] twice, first on line 2"},
	{"[runtme]\n", ":1: unknown section [runtme], did you mean [runtime]?"},
	{"[gpu]\n", ":1: unknown section [gpu], there are [runtime] and "
		    "[module NAME]"},
	{"[modul cpu_ref]\n", ":1: unknown section [modul cpu_ref], did you "
			      "mean [module cpu_ref]?"},
	{"[module]\n",
	 ":1: unknown section [module], did you mean [module NAME]?"},
	{"[module a b]\n",
	 ":1: unknown section [module a b], did you mean [module NAME]?"},
	{"[]\n", ":1: unknown section [], there are [runtime] and [module "
		 "NAME]"},
	{"[module a23456789012345678901234567890x2]\n",
	 ":1: module name of 32 bytes, at most 31"},
	{"device=1\n", ":1: key device before the first [section]"},
	// what is no line at all
	{"[runtime\n", ":1: expected [section] alone on a line"},
	{"[runtime] device=1\n", ":1: expected [section] alone on a line"},
	{"[a.b]\n", ":1: section names have letters, digits, '_' and '-'"},
	{"[runtime]\ndevice\n", ":2: expected key = value"},
	{"[runtime]\n= 4\n",
	 ":2: key '': keys have letters, digits, '_' and '-'"},
	{"[runtime]\nC:\\m=x\n",
	 ":2: key 'C:\\m': keys have letters, digits, '_' and '-'"},
	{"[module a]\nx = \"abc\n", ":2: closing '\"' is missing"},
	{"[module a]\nx = \"a\" b\n", ":2: text after the closing '\"'"},
	{"[module a]\nx = \"a\";b\n", ":2: text after the closing '\"'"},
	// B07
	{"[runtime]\rdevice=1\r", ":1: carriage return without line feed"},
	{"[runtime]\n\ndevice=1\rcheck=off\n",
	 ":3: carriage return without line feed"},
	{"[runtime]\n; caf\xe9\n", ":2: not UTF-8"},
	{"[runtime]\n; \xed\xa0\x80\n", ":2: not UTF-8"},
	{"[runtime]\n; \xc0\x80\n", ":2: not UTF-8"},
	{"[runtime]\n; \xf4\x90\x80\x80\n", ":2: not UTF-8"},
	{"[runtime]\n; \xe2\x82", ":2: not UTF-8"},
	// values of [runtime]
	{"[runtime]\ndevice=-1\n", ":2: runtime.device = -1: expected a whole "
				   "number of at least 0"},
	{"[runtime]\ndevice=\n",
	 ":2: runtime.device = : expected a whole number of at least 0"},
	{"[runtime]\ndevice=1x\n", ":2: runtime.device = 1x: expected a whole "
				   "number, found 'x' behind it"},
	{"[runtime]\ndevice=4294967296\n",
	 ":2: runtime.device = 4294967296: a device number is at most "
	 "4294967295"},
	{"[runtime]\nexecutor=\n",
	 ":2: runtime.executor = : expected MODULE or MODULE:NAME, with module "
	 "names of letters, digits, '_' and '-', at most 31"},
	{"[runtime]\nstream=/tmp/x.so\n",
	 ":2: runtime.stream = /tmp/x.so: expected MODULE or MODULE:NAME, with "
	 "module names of letters, digits, '_' and '-', at most 31"},
	{"[runtime]\npager=a:\n",
	 ":2: runtime.pager = a:: expected MODULE or MODULE:NAME, with module "
	 "names of letters, digits, '_' and '-', at most 31"},
	{"[runtime]\ndevice_limit=0\n",
	 ":2: runtime.device_limit = 0: a device limit must be above 0"},
	{"[runtime]\ndevice_limit=0%\n",
	 ":2: runtime.device_limit = 0%: a device limit must be above 0"},
	{"[runtime]\nspeculation=9\n",
	 ":2: runtime.speculation = 9: expected auto, off or 1 to 8"},
	{"[runtime]\nspeculation=on\n",
	 ":2: runtime.speculation = on: expected auto, off or 1 to 8"},
	{"[runtime]\nswap=10%\n",
	 ":2: runtime.swap = 10%: expected bytes, not a percentage"},
	{"[runtime]\nweight_budget=101%\n",
	 ":2: runtime.weight_budget = 101%: more than 100%"},
	{"[runtime]\nweight_budget=10\n",
	 ":2: runtime.weight_budget = 10: say 10%, 10MiB or, if bytes are "
	 "meant, 10B"},
	{"[runtime]\nweight_budget=Auto\n",
	 ":2: runtime.weight_budget = Auto: expected a whole number of at "
	 "least 0"},
	{"[runtime]\ncontext=0\n",
	 ":2: runtime.context = 0: a context has at least 1 position"},
	{"[runtime]\ncheck=on\n",
	 ":2: runtime.check = on: expected one of: off order"},
	{"[runtime]\nmodule_path=lib\n",
	 ":2: runtime.module_path = lib: 'lib' is not an absolute path"},
	{"[runtime]\nmodule_path=/a::/b\n",
	 ":2: runtime.module_path = /a::/b: '' is not an absolute path"},
	{"[runtime]\ntrusted_roots=/a:/b/../c\n",
	 ":2: runtime.trusted_roots = /a:/b/../c: '..' in a path is refused"},
	{"[module a]\npath=a.so\n",
	 ":2: module.a.path = a.so: 'a.so' is not an absolute path"},
	{"[module a]\npath=/x/..\n",
	 ":2: module.a.path = /x/..: '..' in a path is refused"},
};

START_TEST(refusals)
{
	refuse(refused[_i].text, refused[_i].want);
}
END_TEST

START_TEST(encodings)
{
	refuse_bytes("[runtime]\ndevice=4\0\n", 20, ":2: NUL byte");
	refuse_bytes("\xff\xfe[\0r\0", 6, ":1: UTF-16; save the file as UTF-8");
	refuse_bytes("\xfe\xff\0[\0r", 6, ":1: UTF-16; save the file as UTF-8");
	refuse_bytes("[\0r\0u\0", 6, ":1: NUL byte");
}
END_TEST

// B01: long comments and values are whole up to the limit, refused beyond.
START_TEST(long_lines)
{
	static char text[3 << 16];
	size_t lengths[] = {1,	90, 91, 92,  93,  94,  95,  96,
			    97, 98, 99, 100, 191, 192, 300, 65536 - 6};
	struct genai_config *c;
	size_t i, k;

	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t n = lengths[i];

		strcpy(text, "[module a]\nlong =");
		for (k = 0; k < n; k++)
			text[17 + k] = "ab;#=%x"[k % 7];
		text[17 + n] = 0;
		c = load(text);
		expect(c, "module a", "long", text + 17);
		genai_config_close(c);
	}
	memset(text, 'x', sizeof(text));
	memcpy(text, "[module a]\nlong =", 17);
	text[11 + 65537] = 0;
	refuse(text, ":2: line of 65537 bytes, at most 65536");
	memset(text, '#', 65536);
	strcpy(text + 65536, "\n[runtime]\ndevice=5");
	c = load(text);
	expect(c, "runtime", "device", "5");
	genai_config_close(c);
	memset(text, 'k', 60);
	memcpy(text, "[runtime]\n", 10);
	strcpy(text + 10 + 49, "=1");
	refuse(text, ":2: key name of more than 48 bytes");
}
END_TEST

START_TEST(many_keys)
{
	static char text[1 << 17];
	size_t n = (size_t)sprintf(text, "[module a]\n");
	char want[64];
	int i;

	for (i = 0; i < 4100; i++)
		n += (size_t)sprintf(text + n, "k%d=1\n", i);
	snprintf(want, sizeof(want), ":%d: more than 4096 keys", 2 + 4096 - 13);
	refuse(text, want);
}
END_TEST

START_TEST(units)
{
	static const struct {
		const char *text;
		uint64_t bytes;
		double percent;
	} good[] = {
		{"0", 0, -1},
		{"4096", 4096, -1},
		{"4096B", 4096, -1},
		{"64KiB", 65536, -1},
		{"4GiB", UINT64_C(4) << 30, -1},
		{"4 GiB", UINT64_C(4) << 30, -1},
		{"4gib", UINT64_C(4) << 30, -1},
		{"4GB", UINT64_C(4000000000), -1},
		{"3MB", 3000000, -1},
		{"3kB", 3000, -1},
		{"3MiB", 3 << 20, -1},
		{"2TiB", UINT64_C(2) << 40, -1},
		{"2TB", UINT64_C(2000000000000), -1},
		{"18446744073709551615", UINT64_MAX, -1},
		{"16777215TiB", UINT64_C(16777215) << 40, -1},
		{"75%", 0, 75},
		{"0%", 0, 0},
		{"100%", 0, 100},
		{"12.5%", 0, 12.5},
	};
	static const char *const bad[] = {"",
					  "-1",
					  "+1",
					  " 1",
					  "1e9",
					  "0x10",
					  "4G",
					  "4g",
					  "4 G",
					  "GiB",
					  "4GiBs",
					  "1.5GiB",
					  "100.1%",
					  "101%",
					  "-5%",
					  "5%%",
					  "5.%5",
					  "18446744073709551616",
					  "99999999999GiB",
					  "16777216TiB"};
	uint64_t bytes;
	double percent;
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		bytes = 1;
		percent = 5;
		ck_assert_msg(genai_parse_bytes(good[i].text, &bytes, &percent,
						NULL) == 0,
			      "%s", good[i].text);
		ck_assert_uint_eq(bytes, good[i].bytes);
		ck_assert_double_eq(percent, good[i].percent);
	}
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		bytes = 77;
		percent = 78;
		ck_assert_msg(genai_parse_bytes(bad[i], &bytes, &percent,
						NULL) == GENAI_E_CONFIG,
			      "%s", bad[i]);
		ck_assert_uint_eq(bytes, 77);
		ck_assert_double_eq(percent, 78);
	}
}
END_TEST

START_TEST(numbers)
{
	static const char *const yes[] = {"on", "true", "YES", "1"};
	static const char *const no[] = {"off", "False", "no", "0"};
	static const char *const bad[] = {"", "2", "o", "on ", "y"};
	uint64_t v = 5;
	int32_t b;
	size_t i;

	ck_assert_int_eq(genai_parse_u64("18446744073709551615", &v, NULL), 0);
	ck_assert_uint_eq(v, UINT64_MAX);
	ck_assert_int_eq(genai_parse_u64("18446744073709551616", &v, NULL),
			 GENAI_E_CONFIG);
	ck_assert_int_eq(genai_parse_u64("1 ", &v, NULL), GENAI_E_CONFIG);
	ck_assert_int_eq(genai_parse_u64("", &v, NULL), GENAI_E_CONFIG);
	ck_assert_uint_eq(v, UINT64_MAX);
	for (i = 0; i < 4; i++) {
		ck_assert_int_eq(genai_parse_bool(yes[i], &b, NULL), 0);
		ck_assert_int_eq(b, 1);
		ck_assert_int_eq(genai_parse_bool(no[i], &b, NULL), 0);
		ck_assert_int_eq(b, 0);
	}
	for (i = 0; i < 5; i++)
		ck_assert_int_eq(genai_parse_bool(bad[i], &b, NULL),
				 GENAI_E_CONFIG);
}
END_TEST

static const struct genai_config_key keys[] = {
	{"threads", "0", GENAI_KEY_U64, 0, NULL, ""},
	{"schedule", "inorder", GENAI_KEY_STR, 0, "inorder|late|random:*", ""},
	{"page_bytes", "auto", GENAI_KEY_BYTES, 0, NULL, ""},
	{"trace", "off", GENAI_KEY_BOOL, 0, NULL, ""},
};

static int32_t declare(struct genai_config *c, struct genai_error *err)
{
	return genai_config_declare(c, "m", keys, 4, sizeof(keys[0]), err);
}

START_TEST(declared)
{
	struct genai_config *c = load("[module m]\nthreads=3\n"
				      "schedule=random:77\npage_bytes=2MiB\n"
				      "[module unused]\nwhatever=1\n");

	ck_assert_int_eq(declare(c, NULL), 0);
	ck_assert_int_eq(declare(c, NULL), 0);
	expect(c, "module m", "threads", "3");
	expect(c, "module m", "schedule", "random:77");
	expect(c, "module m", "trace", "off");
	expect(c, "module m", "path", "");
	ck_assert_str_eq(genai_config_origin(c, "module m", "trace"),
			 "default");
	genai_config_close(c);
}
END_TEST

static const struct {
	const char *line, *want;
} undeclared[] = {
	{"thread=3", ":2: unknown key thread in [module m], did you mean "
		     "threads?"},
	{"pth=/x", ":2: unknown key pth in [module m], did you mean path?"},
	{"color=red", ":2: unknown key color in [module m]"},
	{"threads=auto", ":2: module.m.threads = auto: expected a whole number "
			 "of at least 0"},
	{"schedule=lat", ":2: module.m.schedule = lat: expected one of: "
			 "inorder late random:*; did you mean late?"},
	{"schedule=", ":2: module.m.schedule = : expected one of: inorder late "
		      "random:*"},
	{"page_bytes=50%",
	 ":2: module.m.page_bytes = 50%: expected bytes, not a percentage"},
	{"trace=maybe", ":2: module.m.trace = maybe: expected on or off "
			"(true/false, yes/no, 1/0)"},
};

START_TEST(declared_refusals)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *c;
	char text[256];

	snprintf(text, sizeof(text), "[module m]\n%s\n", undeclared[_i].line);
	c = load(text);
	ck_assert_int_eq(declare(c, &err), GENAI_E_CONFIG);
	ck_assert_str_eq(err.text + strlen(ini), undeclared[_i].want);
	genai_config_close(c);
}
END_TEST

static const struct {
	const char *set, *want;
} bad_sets[] = {
	{"", "--set : expected section.key=value, as in runtime.device=1 or "
	     "module.cpu_ref.threads=2"},
	{"device=1", "--set device=1: expected section.key=value, as in "
		     "runtime.device=1 or module.cpu_ref.threads=2"},
	{"module.x=1", "--set module.x=1: expected section.key=value, as in "
		       "runtime.device=1 or module.cpu_ref.threads=2"},
	{"runtime.device", "--set runtime.device: expected section.key=value, "
			   "as in runtime.device=1 or "
			   "module.cpu_ref.threads=2"},
	{"runtime.devise=1",
	 "--set: unknown key devise in [runtime], did you mean device?"},
	{"runtim.device=1",
	 "--set: unknown section [runtim], did you mean [runtime]?"},
	{"runtime.device=x", "--set: runtime.device = x: expected a whole "
			     "number of at least 0"},
	{"module.a.path=b.so", "--set: module.a.path = b.so: 'b.so' is not an "
			       "absolute path"},
};

START_TEST(set_refusals)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *c = NULL;

	write_bytes("", 0);
	ck_assert_int_eq(genai_config_load(ini, &bad_sets[_i].set, 1, &c, &err),
			 GENAI_E_CONFIG);
	ck_assert_str_eq(err.text, bad_sets[_i].want);
	ck_assert_ptr_null(c);
}
END_TEST

START_TEST(files)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *c = NULL;
	char want[256], *big;

	ck_assert_int_eq(
		genai_config_load("/nonexistent/x.ini", NULL, 0, &c, &err),
		GENAI_E_CONFIG);
	ck_assert_str_eq(err.text, "/nonexistent/x.ini: cannot open: No such "
				   "file or directory");
	ck_assert_int_eq(genai_config_load(dir, NULL, 0, &c, &err),
			 GENAI_E_CONFIG);
	snprintf(want, sizeof(want), "%s: not a regular file", dir);
	ck_assert_str_eq(err.text, want);
	ck_assert_int_eq(mkfifo(ini, 0600), 0); // must not wait for a writer
	ck_assert_int_eq(genai_config_load(ini, NULL, 0, &c, &err),
			 GENAI_E_CONFIG);
	unlink(ini);
	big = calloc(1, (1 << 20) + 1);
	memset(big, '\n', (1 << 20) + 1);
	refuse_bytes(big, (1 << 20) + 1, ": 1048577 bytes, at most 1048576");
	write_bytes(big, 1 << 20);
	ck_assert_int_eq(genai_config_load(ini, NULL, 0, &c, NULL), 0);
	genai_config_close(c);
	free(big);
}
END_TEST

// The search: ./genai.ini, then $XDG_CONFIG_HOME, then ~/.config.
START_TEST(searched)
{
	char cwd[4096], path[256];
	struct genai_config *c = NULL;
	FILE *f;

	ck_assert_ptr_nonnull(getcwd(cwd, sizeof(cwd)));
	ck_assert_int_eq(chdir(dir), 0);
	snprintf(path, sizeof(path), "%s/.config", dir);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/.config/genai", dir);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/.config/genai/genai.ini", dir);
	f = fopen(path, "w");
	fputs("[runtime]\ndevice=4\n", f);
	fclose(f);

	setenv("HOME", dir, 1);
	unsetenv("XDG_CONFIG_HOME");
	ck_assert_int_eq(genai_config_load(NULL, NULL, 0, &c, NULL), 0);
	ck_assert_str_eq(genai_config_path(c), path);
	expect(c, "runtime", "device", "4");
	genai_config_close(c);

	setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
	setenv("HOME", "/nonexistent", 1);
	ck_assert_int_eq(genai_config_load(NULL, NULL, 0, &c, NULL), 0);
	expect(c, "runtime", "device", "0");
	genai_config_close(c);

	snprintf(path, sizeof(path), "%s/.config", dir);
	setenv("XDG_CONFIG_HOME", path, 1);
	f = fopen("genai.ini", "w");
	fputs("[runtime]\ndevice=5\n", f);
	fclose(f);
	ck_assert_int_eq(genai_config_load(NULL, NULL, 0, &c, NULL), 0);
	ck_assert_str_eq(genai_config_path(c), "./genai.ini");
	expect(c, "runtime", "device", "5");
	genai_config_close(c);

	unlink("genai.ini");
	unlink(".config/genai/genai.ini");
	rmdir(".config/genai");
	rmdir(".config");
	ck_assert_int_eq(chdir(cwd), 0);
}
END_TEST

static void note(void *ctx, const char *section, const char *key,
		 const char *value, const char *origin)
{
	char *list = ctx;

	if (strcmp(origin, "default") != 0)
		sprintf(list + strlen(list), "%s/%s=%s ", section, key, value);
	else if (strcmp(key, "check") == 0 || strcmp(key, "trace") == 0)
		sprintf(list + strlen(list), "%s/%s ", section, key);
}

START_TEST(each)
{
	struct genai_config *c = load("[module m]\nthreads=3\n"
				      "[runtime]\ndevice=2\n"
				      "[module n]\na=1\n[module m]\n"
				      "schedule=late\n");
	char list[512] = "";

	ck_assert_int_eq(declare(c, NULL), 0);
	genai_config_each(c, note, list);
	ck_assert_str_eq(list, "runtime/device=2 runtime/check "
			       "module m/threads=3 module m/schedule=late "
			       "module m/trace module n/a=1 ");
	genai_config_close(c);
}
END_TEST

START_TEST(spelling)
{
	struct genai_spell s = {.word = "vrm"};

	ck_assert_uint_eq(genai_spell_distance("", "abc"), 3);
	ck_assert_uint_eq(genai_spell_distance("vrm", "vram"), 1);
	ck_assert_uint_eq(genai_spell_distance("abcd", "abdc"), 1);
	ck_assert_uint_eq(genai_spell_distance("kitten", "sitting"), 3);
	genai_spell_offer(&s, "pager");
	ck_assert_ptr_null(s.best);
	genai_spell_offer(&s, "vrams");
	genai_spell_offer(&s, "vram");
	ck_assert_str_eq(s.best, "vram");
}
END_TEST

// Any change of one byte of a sound file is read or refused, never worse.
START_TEST(mutations)
{
	static const char sound[] = "\xef\xbb\xbf[runtime] ; c\r\n"
				    "device = 3\n[module m]\n"
				    "a = \"b ; c\" # d\n e=f";
	char text[sizeof(sound)];
	struct genai_config *c;
	size_t i, n = sizeof(sound) - 1;
	int bit;

	for (i = 0; i < n; i++)
		for (bit = 0; bit < 8; bit++) {
			memcpy(text, sound, n);
			text[i] = (char)(text[i] ^ (1 << bit));
			write_bytes(text, n);
			if (genai_config_load(ini, NULL, 0, &c, NULL) == 0)
				genai_config_close(c);
		}
	for (i = 0; i < n; i++) {
		write_bytes(sound, i);
		if (genai_config_load(ini, NULL, 0, &c, NULL) == 0)
			genai_config_close(c);
	}
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
	Suite *s = suite_create("config");
	TCase *t = tcase_create("config");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, defaults);
	tcase_add_test(t, lines);
	tcase_add_test(t, origins);
	tcase_add_loop_test(t, refusals, 0, COUNT(refused));
	tcase_add_test(t, encodings);
	tcase_add_test(t, long_lines);
	tcase_add_test(t, many_keys);
	tcase_add_test(t, units);
	tcase_add_test(t, numbers);
	tcase_add_test(t, declared);
	tcase_add_loop_test(t, declared_refusals, 0, COUNT(undeclared));
	tcase_add_loop_test(t, set_refusals, 0, COUNT(bad_sets));
	tcase_add_test(t, files);
	tcase_add_test(t, searched);
	tcase_add_test(t, each);
	tcase_add_test(t, spelling);
	tcase_add_test(t, mutations);
	suite_add_tcase(s, t);
	return genai_check_main(s);
}
