// check_template.c - chat templates: golden renderings, limits, hostile input.
//   check_template --golden DIR   runs all NAME.golden.json of a folder
#include "tests/unit/harness.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/text/template/template.h"
#include "tests/unit/alloc_fail.h"
#include "tests/unit/template_golden.h"

static struct genai_error err;
static char *text;
static size_t bytes;

static int render_n(const char *source, size_t n, json_t *vars)
{
	struct genai_template *t = NULL;
	int rc;

	free(text);
	text = NULL;
	memset(&err, 0, sizeof(err));
	err.size = sizeof(err);
	rc = genai_template_parse("t", source, n, &t, &err);
	ck_assert_int_eq(rc != 0, t == NULL);
	if (!rc)
		rc = template_render(t, vars, 1721999655, 0, &text, &bytes,
				     &err);
	ck_assert_int_eq(rc != 0, text == NULL);
	ck_assert_int_eq(rc, err.code);
	genai_template_close(t);
	return rc;
}

// The rendering of source with variables given as JSON.
static int render(const char *source, const char *vars)
{
	json_t *v = json_loads(vars, 0, NULL);
	int rc;

	ck_assert_ptr_nonnull(v);
	rc = render_n(source, strlen(source), v);
	json_decref(v);
	return rc;
}

#define OK(source, vars, want)                                                 \
	do {                                                                   \
		int rc_ = render(source, vars);                                \
		ck_assert_msg(rc_ == 0, "%s", err.text);                       \
		ck_assert_str_eq(text, want);                                  \
		ck_assert_uint_eq(bytes, strlen(want));                        \
	} while (0)

#define FAILS(source, code, message)                                           \
	do {                                                                   \
		ck_assert_int_eq(render(source, "{}"), code);                  \
		ck_assert_str_eq(err.text, message);                           \
	} while (0)

START_TEST(goldens)
{
	struct golden_count n = {0, 0, 0};

	ck_assert_int_eq(golden_run(GENAI_TESTDATA "/template", NULL, 0, &n),
			 0);
	ck_assert_int_eq(n.failed, 0);
	ck_assert_int_eq(n.skipped, 0);
	ck_assert_int_eq(n.passed, 379);
}
END_TEST

START_TEST(messages_name_the_line)
{
	FAILS("a\n{% if x %}\nb", GENAI_E_FORMAT,
	      "t:3: a tag is not closed at the end");
	FAILS("a\n{{ b c }}", GENAI_E_FORMAT, "t:2: expected '}}', got 'name'");
	FAILS("\n\n{% foo %}", GENAI_E_FORMAT,
	      "t:3: unknown or unsupported tag 'foo'");
	FAILS("{% if 1 %}{% endfor %}", GENAI_E_FORMAT,
	      "t:1: unexpected tag 'endfor'");
	FAILS("{% endif %}", GENAI_E_FORMAT, "t:1: unexpected tag 'endif'");
	FAILS("a\n{{ x.y }}", GENAI_E_FORMAT,
	      "t:2: UndefinedError: 'x' is undefined");
	FAILS("{{- '' -}}\n\n{{ 'a' + 1 }}", GENAI_E_FORMAT,
	      "t:3: TypeError: unsupported operand types for +: 'str' and "
	      "'int'");
	FAILS("{{ [].append(1) }}", GENAI_E_FORMAT,
	      "t:1: SecurityError: access to attribute 'append' of 'list' "
	      "object is unsafe");
	FAILS("{{ 1|frob }}", GENAI_E_FORMAT, "t:1: no filter named 'frob'");
	OK("{{ 1|frob if false }}{{ (1 is frob) if false }}", "{}", "");
}
END_TEST

// What stays out says so; what Python refuses is refused.
START_TEST(refused)
{
	FAILS("{% autoescape true %}x{% endautoescape %}", GENAI_E_FORMAT,
	      "t:1: autoescape true is not supported");
	FAILS("{% block a %}x{% endblock %}", GENAI_E_FORMAT,
	      "t:1: unknown or unsupported tag 'block'");
	FAILS("{{ 'x'|urlize }}", GENAI_E_FORMAT,
	      "t:1: no filter named 'urlize'");
	FAILS("{{ '&Auml;'|striptags }}", GENAI_E_FORMAT,
	      "t:1: striptags: the entity &Auml; is not supported");
	FAILS("{{ ['x' * 90]|pprint }}", GENAI_E_FORMAT,
	      "t:1: pprint: more than one line of 80 bytes is not supported");
	FAILS("{% for x in [1] %}{{ loop(x) }}{% endfor %}", GENAI_E_FORMAT,
	      "t:1: TypeError: The loop must have the 'recursive' marker to be "
	      "called recursively.");
	FAILS("{% macro m(caller) %}{% endmacro %}", GENAI_E_FORMAT,
	      "t:1: a parameter 'caller' needs a default");
	FAILS("{% call 1 %}{% endcall %}", GENAI_E_FORMAT,
	      "t:1: expected call");
	FAILS("{{ f(**a, b=1) }}", GENAI_E_FORMAT, "t:1: unexpected 'b'");
	FAILS("{{ f(*a, *b) }}", GENAI_E_FORMAT, "t:1: unexpected '*'");
	FAILS("{{ '%s' % () }}", GENAI_E_FORMAT,
	      "t:1: TypeError: not enough arguments for format string");
	FAILS("{{ '%d' % 'a' }}", GENAI_E_FORMAT,
	      "t:1: TypeError: %d format: a number is required, not str");
	FAILS("{{ '%q' % 1 }}", GENAI_E_FORMAT,
	      "t:1: ValueError: incomplete or unsupported format character");
	FAILS("{{ '{0.x}'.format(1) }}", GENAI_E_FORMAT,
	      "t:1: UndefinedError: 'int object' has no attribute 'x'");
	FAILS("{{ '{:d}'.format('a') }}", GENAI_E_FORMAT,
	      "t:1: ValueError: unknown format code 'd' for str");
}
END_TEST

START_TEST(widths_are_bounded)
{
	FAILS("{{ '%99999999d' % 1 }}", GENAI_E_FORMAT,
	      "t:1: format: a width or precision above 10000");
	FAILS("{{ '%*d' % (99999999, 1) }}", GENAI_E_FORMAT,
	      "t:1: format: a width or precision above 10000");
	FAILS("{{ '{:.999f}'.format(1.5) }}", GENAI_E_FORMAT,
	      "t:1: format: a width or precision above 100");
	FAILS("{{ 'x'.center(99999999) }}", GENAI_E_FORMAT,
	      "t:1: a width above 1000000");
	FAILS("{{ [1]|slice(99999999)|list }}", GENAI_E_FORMAT,
	      "t:1: batch, slice: not a number from 1 to 100000");
	FAILS("{% macro m() %}{{ m(*varargs) }}{% endmacro %}{{ m(1) }}",
	      GENAI_E_LIMIT, "t:1: evaluation is nested deeper than 1000");
	FAILS("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
	      GENAI_E_LIMIT, "t:1: evaluation is nested deeper than 1000");
	FAILS("{% macro m() %}{{ caller() }}{% call m() %}{% endcall %}"
	      "{% endmacro %}{% call m() %}x{% endcall %}",
	      GENAI_E_LIMIT, "t:1: evaluation is nested deeper than 1000");
}
END_TEST

START_TEST(raised_message_is_exact)
{
	FAILS("\n{{ raise_exception('Only \"user\" is allowed: ' ~ 5) }}",
	      GENAI_E_INVAL, "Only \"user\" is allowed: 5");
	FAILS("{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}"
	      "{{ [1]|map('string')|join ~ m() }}",
	      GENAI_E_INVAL, "deep");
	FAILS("{{ raise_exception('') }}", GENAI_E_INVAL, "");
}
END_TEST

START_TEST(bad_bytes)
{
	json_t *v = json_object();
	const char cut[] = "ab\xe2\x82", nul[] = "a\0b";
	json_t *list = json_array();

	ck_assert_int_eq(render_n(cut, 4, v), GENAI_E_FORMAT);
	ck_assert_str_eq(err.text, "t: not UTF-8 at byte 2");
	ck_assert_int_eq(render_n(nul, 3, v), 0);
	ck_assert_uint_eq(bytes, 3);
	ck_assert_mem_eq(text, "a\0b", 4);
	ck_assert_int_eq(render_n("", 0, v), 0);
	ck_assert_str_eq(text, "");
	ck_assert_int_eq(render_n("x", 1, list), GENAI_E_INVAL);
	ck_assert_str_eq(err.text, "t: the variables are not an object");
	ck_assert_int_eq(render_n("x", 1, NULL), GENAI_E_INVAL);
	// text that jansson was told not to check: no crash, bytes kept
	json_object_set_new(v, "x",
			    json_stringn_nocheck("\xff"
						 "a\xe2",
						 3));
	ck_assert_int_eq(render_n("{{ x }}{{ x|length }}{{ x[0] }}", 31, v), 0);
	ck_assert_str_eq(text, "\xff"
			       "a\xe2"
			       "3\xff");
	ck_assert_int_eq(render_n("{{ x.strip() }}{{ x|upper }}{{ [x] }}"
				  "{{ x|tojson(true) }}",
				  57, v),
			 0);
	json_decref(list);
	json_decref(v);
}
END_TEST

// n times unit between head and tail
static char *repeated(const char *head, const char *unit, size_t n,
		      const char *tail)
{
	size_t u = strlen(unit), h = strlen(head), i;
	char *s = malloc(h + n * u + strlen(tail) + 1);

	memcpy(s, head, h);
	for (i = 0; i < n; i++)
		memcpy(s + h + i * u, unit, u);
	memcpy(s + h + n * u, tail, strlen(tail) + 1);
	return s;
}

static int nested(const char *unit, size_t n, const char *inner,
		  const char *close)
{
	char *a = repeated("", unit, n, inner), *b = repeated(a, close, n, "");
	int rc = render(b, "{}");

	free(a);
	free(b);
	return rc;
}

START_TEST(nesting_is_capped)
{
	ck_assert_int_eq(nested("{% if 1 %}", 98, "x", "{% endif %}"), 0);
	ck_assert_int_eq(nested("{% if 1 %}", 100, "x", "{% endif %}"),
			 GENAI_E_FORMAT);
	ck_assert_str_eq(err.text, "t:1: nested deeper than 100");
	ck_assert_int_eq(nested("{{ ((", 1, "1", ")) }}"), 0);
	ck_assert_int_eq(nested("{{ ", 1, "", ""), GENAI_E_FORMAT);
	ck_assert_int_eq(nested("{{ [", 1, "", "] }}"), 0);
	ck_assert_int_eq(nested("[", 100000, "", "]"), 0); // plain text
	{
		char *s = repeated("{{ ", "(", 48, "1");
		char *t = repeated(s, ")", 48, " }}");

		ck_assert_int_eq(render(t, "{}"), 0);
		free(s);
		free(t);
		s = repeated("{{ ", "[", 60, "1");
		ck_assert_int_eq(render(s, "{}"), GENAI_E_FORMAT);
		free(s);
		s = repeated("{{ ", "(", 100000, "1");
		ck_assert_int_eq(render(s, "{}"), GENAI_E_FORMAT);
		free(s);
		s = repeated("{{ ", "not ", 100000, "1 }}");
		ck_assert_int_eq(render(s, "{}"), GENAI_E_FORMAT);
		free(s);
		s = repeated("{{ ", "-", 100000, "1 }}");
		ck_assert_int_eq(render(s, "{}"), GENAI_E_FORMAT);
		free(s);
		// chains do not nest in the source, but they do when evaluated
		s = repeated("{{ 1", " + 1", 900, " }}");
		ck_assert_int_eq(render(s, "{}"), 0);
		ck_assert_str_eq(text, "901");
		free(s);
		s = repeated("{{ 1", " + 1", 100000, " }}");
		ck_assert_int_eq(render(s, "{}"), GENAI_E_LIMIT);
		free(s);
		s = repeated("{% filter upper", "|upper", 100000,
			     "%}x{% endfilter %}");
		ck_assert_int_eq(render(s, "{}"), GENAI_E_LIMIT);
		free(s);
		s = repeated("{% if 0 %}", "{% elif 0 %}", 50000,
			     "{% else %}z{% endif %}");
		ck_assert_int_eq(render(s, "{}"), 0);
		ck_assert_str_eq(text, "z");
		free(s);
	}
}
END_TEST

START_TEST(work_is_bounded)
{
	static const char *const t[] = {
		"{% for i in range(99999) %}{% for j in range(99999) %}"
		"{{ i }}{% endfor %}{% endfor %}",
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"{% macro f(n) %}{{ f([n]) }}{% endmacro %}{{ f(1) }}",
		"{% set n = namespace(s='x') %}{% for i in range(99) %}"
		"{% set n.s = n.s + n.s %}{% endfor %}",
		"{% set n = namespace(s=[1]) %}{% for i in range(99) %}"
		"{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}",
		"{% set n = namespace(s=[1]) %}{% for i in range(300) %}"
		"{% set n.s = [n.s] %}{% endfor %}{{ n.s|tojson }}",
		"{% set n = namespace(s=[1], t=[1]) %}{% for i in range(300) %}"
		"{% set n.s = [n.s] %}{% set n.t = [n.t] %}{% endfor %}"
		"{{ n.s == n.t }}",
		"{% set n = namespace(s=[1], t=[1]) %}{% for i in range(300) %}"
		"{% set n.s = [n.s] %}{% set n.t = [n.t] %}{% endfor %}"
		"{{ n.s < n.t }}",
		"{{ 'x' * 9999999999 }}",
		"{{ [1] * 9223372036854775807 }}",
		"{{ 'x' * 70000000 }}",
		"{{ range(100001) }}",
		"{{ range(-9223372036854775807, 9223372036854775807) }}",
		"{% set s = 'ab' * 5000000 %}{% for i in range(9999) %}"
		"{{ s.split('z')|length }}{{ s|upper|length }}{% endfor %}",
		"{% set s = 'a' * 5000000 %}{{ s.rfind('a' * 2500000 + 'b') }}",
		"{% set s = range(100000)|list %}{% for i in range(9999) %}"
		"{{ -1 in s }}{{ s|sort|first }}{% endfor %}",
	};
	double start;
	size_t i;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		start = genai_cpu_seconds();
		ck_assert_msg(render(t[i], "{}") == GENAI_E_LIMIT, "%s: %s",
			      t[i], err.text);
		ck_assert_cost(genai_cpu_seconds() - start, 2);
	}
	OK("{{ range(100000)|length }}", "{}", "100000");
	OK("{% set n = namespace(s=[1]) %}{% for i in range(100) %}"
	   "{% set n.s = [n.s] %}{% endfor %}{{ (n.s|string)|length }}",
	   "{}", "203");
	OK("{{ ('x' * 67000000)|length }}", "{}", "67000000");
	OK("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% else %}end{% endif %}"
	   "{% endmacro %}{{ f(64) }}",
	   "{}", "end");
	// a text built piece by piece costs its length
	OK("{% set n = namespace(s='') %}{% for i in range(100000) %}"
	   "{% set n.s = n.s + 'abcdefghij' %}{% endfor %}{{ n.s|length }}",
	   "{}", "1000000");
}
END_TEST

START_TEST(source_size)
{
	char *s = repeated("", "x", 1 << 20, "");
	json_t *v = json_object();

	ck_assert_int_eq(render_n(s, 1 << 20, v), 0);
	ck_assert_uint_eq(bytes, 1 << 20);
	free(s);
	s = repeated("", "x", (1 << 20) + 1, "");
	ck_assert_int_eq(render_n(s, (1 << 20) + 1, v), GENAI_E_FORMAT);
	ck_assert_str_eq(err.text, "t: 1048577 bytes, more than 1048576");
	free(s);
	json_decref(v);
}
END_TEST

START_TEST(deep_variables)
{
	char *s = repeated("{\"x\":", "[", 126, "1"), *t;

	t = repeated(s, "]", 126, "}");
	OK("{{ x|string|length }}", t, "253");
	free(s);
	free(t);
	s = repeated("{\"x\":", "[", 200, "1");
	t = repeated(s, "]", 200, "}");
	ck_assert_int_eq(render("", t), GENAI_E_LIMIT);
	free(s);
	free(t);
}
END_TEST

START_TEST(large_dicts_and_values)
{
	// beyond the few entries that are searched one by one
	OK("{% set d = {} %}{% set n = namespace() %}{% for i in range(50) %}"
	   "{% set d = dict(d, k=i) %}{% endfor %}"
	   "{% set e = {1:'a',2:'b',3:'c',4:'d',5:'e',6:'f',7:'g',8:'h',9:'i',"
	   "10:'j',(1,2):'k',none:'l',true:'m',2.0:'n'} %}"
	   "{{ e[10] }}{{ e[(1,2)] }}{{ e[none] }}{{ e[1] }}{{ e[2] }}"
	   "{{ e|length }}{{ 11 in e }}",
	   "{}", "jklmn12False");
	OK("{{ x.a12 }}{{ x.a0 }}{{ x.b is defined }}{{ x|dictsort|last }}",
	   "{\"x\":{\"a0\":0,\"a1\":1,\"a2\":2,\"a3\":3,\"a4\":4,\"a5\":5,"
	   "\"a6\":6,\"a7\":7,\"a8\":8,\"a9\":9,\"a12\":12}}",
	   "120False('a9', 9)");
}
END_TEST

START_TEST(the_clock)
{
	struct genai_template *t;
	json_t *v = json_object();
	const char src[] = "{{ strftime_now('%d %b %Y %H:%M') }}";

	ck_assert_int_eq(
		genai_template_parse("t", src, sizeof(src) - 1, &t, NULL), 0);
	ck_assert_int_eq(template_render(t, v, 0, -3600, &text, &bytes, &err),
			 0);
	ck_assert_str_eq(text, "31 Dec 1969 23:00");
	free(text);
	ck_assert_int_eq(
		template_render(t, v, 951782400, 7200, &text, &bytes, &err), 0);
	ck_assert_str_eq(text, "29 Feb 2000 02:00");
	free(text);
	ck_assert_int_eq(
		template_render(t, v, INT64_MAX, 1, &text, &bytes, &err),
		GENAI_E_FORMAT);
	ck_assert_int_eq(
		template_render(t, v, INT64_MAX, -1, &text, &bytes, &err),
		GENAI_E_FORMAT);
	genai_template_close(t);
	json_decref(v);
}
END_TEST

static int chat(const char *source, const char *vars, int continue_final)
{
	json_t *v = json_loads(vars, 0, NULL), *before = json_deep_copy(v);
	struct genai_template *t;
	int rc;

	free(text);
	text = NULL;
	ck_assert_int_eq(
		genai_template_parse("t", source, strlen(source), &t, &err), 0);
	rc = template_chat(t, v, continue_final, 0, 0, &text, &bytes, &err);
	ck_assert_int_eq(rc != 0, text == NULL);
	ck_assert_int_eq(json_equal(v, before), 1);
	genai_template_close(t);
	json_decref(v);
	json_decref(before);
	return rc;
}

#define CHAT(source, vars, cont, want)                                         \
	do {                                                                   \
		int rc_ = chat(source, vars, cont);                            \
		ck_assert_msg(rc_ == 0, "%s", err.text);                       \
		ck_assert_str_eq(text, want);                                  \
		ck_assert_uint_eq(bytes, strlen(want));                        \
	} while (0)

START_TEST(chat_variables)
{
	static const char all[] =
		"{{ tools }} {{ documents }} {{ add_generation_prompt }} "
		"{{ bos_token is defined }} {{ messages|length }}";
	static const char think[] =
		"{{ messages[0].thinking }}{{ messages[1].reasoning_content }}";

	CHAT(all, "{\"messages\":[]}", 0, "None None False False 0");
	CHAT(all,
	     "{\"messages\":[{}],\"tools\":[],\"documents\":[1],"
	     "\"add_generation_prompt\":true,\"bos_token\":\"\"}",
	     0, "[] [1] True True 1");
	CHAT(think,
	     "{\"messages\":[{\"reasoning_content\":\"a\"},"
	     "{\"thinking\":\"b\"}]}",
	     0, "ab");
	ck_assert_int_eq(chat("", "{}", 0), GENAI_E_INVAL);
	ck_assert_str_eq(err.text, "messages are not an array");
	ck_assert_int_eq(chat("", "{\"messages\":[{},3]}", 0), GENAI_E_INVAL);
	ck_assert_str_eq(err.text, "message 1 is not an object");
	ck_assert_int_eq(chat("", "[]", 0), GENAI_E_INVAL);
}
END_TEST

START_TEST(chat_continues)
{
	static const char plain[] =
		"{% for m in messages %}<{{ m.content }}>{% endfor %}";
	static const char trimmed[] =
		"{% for m in messages %}<{{ m.content|trim }}>{% endfor %}";
	static const char blocks[] =
		"{% for m in messages %}<{% for b in m.content %}{{ b.text }};"
		"{% endfor %}>{% endfor %}";

	CHAT(plain, "{\"messages\":[{\"content\":\"a\"},{\"content\":\"b \"}]}",
	     1, "<a><b ");
	CHAT(trimmed, "{\"messages\":[{\"content\":\" b \\n\"}]}", 1, "<b");
	CHAT(plain, "{\"messages\":[{\"content\":\"\"}]}", 1, "<");
	CHAT(blocks,
	     "{\"messages\":[{\"content\":[{\"text\":\"a\"},{\"text\":\"b\"},"
	     "{\"image\":1}]}]}",
	     1, "<a;b");
	ck_assert_int_eq(chat("x", "{\"messages\":[{\"content\":\"a\"}]}", 1),
			 GENAI_E_FORMAT);
	ck_assert_int_eq(chat("", "{\"messages\":[{\"content\":\"a\"}]}", 1),
			 GENAI_E_FORMAT);
	ck_assert_int_eq(chat(plain, "{\"messages\":[]}", 1), GENAI_E_INVAL);
	ck_assert_str_eq(err.text, "no message to continue");
	ck_assert_int_eq(chat(plain, "{\"messages\":[{\"content\":null}]}", 1),
			 GENAI_E_INVAL);
	ck_assert_str_eq(err.text, "message 0 has no text to continue");
	ck_assert_int_eq(chat(plain, "{\"messages\":[{\"content\":[1]}]}", 1),
			 GENAI_E_INVAL);
}
END_TEST

static char dir[] = "/tmp/genai_templateXXXXXX";

static void put_file(const char *name, const char *content)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (!content) {
		unlink(path);
		return;
	}
	f = fopen(path, "wb");
	ck_assert_ptr_nonnull(f);
	fputs(content, f);
	fclose(f);
}

static int open_and_render(int has_tools)
{
	struct genai_template *t = NULL;
	json_t *v = json_object();
	int rc = genai_template_open(dir, has_tools, &t, &err);

	free(text);
	text = NULL;
	ck_assert_int_eq(rc != 0, t == NULL);
	if (!rc)
		ck_assert_int_eq(
			template_render(t, v, 0, 0, &text, &bytes, &err), 0);
	json_decref(v);
	genai_template_close(t);
	return rc;
}

#define OPENS(tools, want)                                                     \
	do {                                                                   \
		ck_assert_msg(open_and_render(tools) == 0, "%s", err.text);    \
		ck_assert_str_eq(text, want);                                  \
	} while (0)

START_TEST(template_of_a_folder)
{
	static const char config[] = "tokenizer_config.json";
	static const char named[] =
		"{\"chat_template\":[{\"name\":\"tool_use\",\"template\":"
		"\"tools\"},{\"name\":\"default\",\"template\":\"plain\"},3]}";
	char want[128];

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(want, sizeof(want), "%s: no chat template", dir);
	ck_assert_int_eq(open_and_render(0), GENAI_E_NOTFOUND);
	ck_assert_str_eq(err.text, want);
	put_file(config, "{\"a\":1}");
	ck_assert_int_eq(open_and_render(0), GENAI_E_NOTFOUND);
	put_file(config, "{\"chat_template\":\"{{ 1 + 1 }}\"}");
	OPENS(0, "2");
	put_file(config, named);
	OPENS(0, "plain");
	OPENS(1, "tools");
	put_file(config, "{\"chat_template\":[{\"name\":\"rag\","
			 "\"template\":\"x\"}]}");
	ck_assert_int_eq(open_and_render(0), GENAI_E_NOTFOUND);
	put_file(config, "{\"chat_template\":}");
	ck_assert_int_eq(open_and_render(0), GENAI_E_FORMAT);
	put_file("chat_template.json", "{\"chat_template\":\"json\"}");
	OPENS(0, "json");
	put_file("chat_template.jinja", "jinja\n");
	OPENS(0, "jinja");
	put_file("chat_template.jinja", "{{");
	ck_assert_int_eq(open_and_render(0), GENAI_E_FORMAT);
	ck_assert_str_eq(err.text, "chat_template.jinja:1: unexpected end of "
				   "template in a tag");
	put_file("chat_template.jinja", NULL);
	put_file("chat_template.json", NULL);
	put_file(config, NULL);
	rmdir(dir);
	ck_assert_int_eq(open_and_render(0), GENAI_E_NOTFOUND);
}
END_TEST

// Every allocation fails once, the code under test and jansson alike.
START_TEST(out_of_memory)
{
	static const char src[] =
		"{% macro m(a, b=[1]) %}{{ a ~ b }}{% endmacro %}"
		"{% set n = namespace(x='' * 2) %}"
		"{% for k, v in d.items() if v %}{% set n.x = n.x + k %}"
		"{{ m(k)|upper }}{{ loop.index }}{% endfor %}"
		"{{ d|tojson(indent=2) }}{{ d|dictsort }}{{ [2,1]|sort }}"
		"{% for m in messages %}{{ m.content }}{% endfor %}";
	json_t *v = json_loads("{\"d\":{\"a\":1,\"b\":[true]},\"messages\":"
			       "[{\"content\":\"x\",\"thinking\":\"\"}]}",
			       0, NULL);
	struct genai_template *t;
	int i, rc, done = 0, failures = 0;

	json_set_alloc_funcs(__wrap_malloc, free);
	for (i = 0; !done; i++) {
		t = NULL;
		free(text);
		text = NULL;
		alloc_failed = 0;
		alloc_left = i;
		rc = genai_template_parse("t", src, sizeof(src) - 1, &t, &err);
		if (!rc)
			rc = template_chat(t, v, 1, 0, 0, &text, &bytes, &err);
		alloc_left = -1;
		if (rc == GENAI_E_NOMEM)
			ck_assert_int_eq(alloc_failed, 1);
		done = !alloc_failed;
		failures += rc != 0;
		if (!done)
			ck_assert_msg(rc == GENAI_E_NOMEM, "%d: %d %s", i, rc,
				      err.text);
		genai_template_close(t);
	}
	ck_assert_int_eq(rc, 0);
	ck_assert_int_gt(failures, 10);
	ck_assert_ptr_nonnull(strstr(text, "A[1]1B[1]2{\n  \"a\": 1,"));
	json_decref(v);
}
END_TEST

// ---- <genai/text.h> ----

static const char say[] =
	"{% for m in messages %}[{% if m.content is string %}{{ m.content }}"
	"{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}]"
	"{% endfor %}{{ x }}";

static int chat_public(const char *vars, const struct genai_chat_options *o)
{
	struct genai_template *t = NULL;
	int rc;

	free(text);
	text = NULL;
	ck_assert_int_eq(
		genai_template_parse("t", say, sizeof(say) - 1, &t, &err), 0);
	rc = genai_template_chat(t, vars, strlen(vars), o, &text, &bytes, &err);
	ck_assert_int_eq(rc != 0, text == NULL);
	genai_template_close(t);
	return rc;
}

#define REFUSED(vars, options, code, why)                                      \
	do {                                                                   \
		ck_assert_int_eq(chat_public(vars, options), code);            \
		ck_assert_msg(strstr(err.text, why) != NULL, "%s", err.text);  \
	} while (0)

START_TEST(public_variables)
{
	static const char good[] =
		"{\"messages\":[{\"content\":\"a\"}],\"x\":7}";
	struct {
		struct genai_chat_options o;
		uint64_t later;
	} big = {.o = {.size = sizeof(big)}};
	struct genai_chat_options o = {.size = sizeof(o)};

	ck_assert_int_eq(chat_public(good, NULL), 0);
	ck_assert_str_eq(text, "[a]7");
	ck_assert_int_eq(chat_public(good, &big.o), 0);
	big.later = 1;
	REFUSED(good, &big.o, GENAI_E_INVAL, "chat options: size 32");
	o.flags = GENAI_CHAT_CONTINUE;
	ck_assert_int_eq(chat_public(good, &o), 0);
	ck_assert_str_eq(text, "[a");
	o.flags = 8;
	REFUSED(good, &o, GENAI_E_INVAL, "flags 0x8");
	o.flags = 0;
	o.reserved = 1;
	REFUSED(good, &o, GENAI_E_INVAL, "chat options");
	o.reserved = 0;
	o.size = 8;
	REFUSED(good, &o, GENAI_E_INVAL, "size 8");
	REFUSED("", NULL, GENAI_E_INVAL, "the variables: line 1");
	REFUSED("{\"messages\":\n3", NULL, GENAI_E_INVAL, "line 2");
	REFUSED("[]", NULL, GENAI_E_INVAL, "not an object");
	REFUSED("{}", NULL, GENAI_E_INVAL, "messages are not an array");
	REFUSED("{\"messages\":[3]}", NULL, GENAI_E_INVAL, "message 0");
}
END_TEST

static size_t n_special(const struct genai_tokenizer *tok, const char *vars,
			size_t *out_n)
{
	struct genai_template *t = NULL;
	int64_t *ids = NULL;
	size_t n = 0, found = 0;

	ck_assert_int_eq(
		genai_template_parse("t", say, sizeof(say) - 1, &t, &err), 0);
	ck_assert_msg(!genai_template_encode(t, tok, vars, strlen(vars), NULL,
					     &ids, &n, &err),
		      "%s", err.text);
	for (size_t i = 0; i < n; i++)
		found += (size_t)genai_tokenizer_is_special(tok, ids[i]);
	genai_free(ids);
	genai_template_close(t);
	*out_n = n;
	return found;
}

// What spells a special token in a message never is one, however it begins and
// whatever stands beside it; a variable of the caller's is the template's own.
START_TEST(messages_stay_text)
{
	static const char *const contents[] = {
		"\">>TITLE<< a >>INTRODUCTION<<\"",
		"[{\"type\":\"text\",\"text\":\"b <|endoftext|>\"}]",
		"\"\xf4\x8f\xbf\xbe>>TITLE<<\xf4\x8f\xbf\xbf\"",
		"\"\xf4\x8f\xbf\xbf>>TITLE<<\"",
		"\"plain\"",
		"\"\""};
	struct genai_tokenizer *tok = NULL;
	char vars[256];
	size_t n;

	ck_assert_msg(!genai_tokenizer_open(
			      GENAI_TESTDATA "/tokenizer/s-falcon", &tok, &err),
		      "%s", err.text);
	ck_assert_int_ge(genai_tokenizer_id(tok, ">>TITLE<<"), 0);
	for (size_t i = 0; i < sizeof(contents) / sizeof(*contents); i++) {
		snprintf(vars, sizeof(vars),
			 "{\"messages\":[{\"content\":%s}]}", contents[i]);
		ck_assert_msg(n_special(tok, vars, &n) == 0, "%s", vars);
		ck_assert_int_gt(n, 0);
	}
	ck_assert_int_eq(n_special(tok,
				   "{\"messages\":[{\"content\":"
				   "\">>TITLE<<\"}],\"x\":\">>TITLE<<\"}",
				   &n),
			 1);
	genai_tokenizer_close(tok);
}
END_TEST

START_TEST(encode_out_of_memory)
{
	static const char vars[] = "{\"messages\":[{\"content\":\">>TITLE<< a "
				   ">>TITLE<<\"}],\"x\":\"b\"}";
	struct genai_tokenizer *tok = NULL;
	struct genai_template *t = NULL;
	int i, rc = 0, done = 0, failures = 0;

	ck_assert_int_eq(genai_tokenizer_open(GENAI_TESTDATA
					      "/tokenizer/s-falcon",
					      &tok, &err),
			 0);
	ck_assert_int_eq(
		genai_template_parse("t", say, sizeof(say) - 1, &t, &err), 0);
	json_set_alloc_funcs(__wrap_malloc, free);
	for (i = 0; !done; i++) {
		int64_t *ids = NULL;
		size_t n = 0;

		alloc_failed = 0;
		alloc_left = i;
		rc = genai_template_encode(t, tok, vars, sizeof(vars) - 1, NULL,
					   &ids, &n, &err);
		alloc_left = -1;
		done = !alloc_failed;
		failures += rc != 0;
		ck_assert_int_eq(rc != 0, ids == NULL);
		if (!done && rc)
			// jansson takes a string that it has no memory
			// for to be none
			ck_assert_msg(rc == GENAI_E_NOMEM ||
					      strstr(err.text, "the variables"),
				      "%d: %d %s", i, rc, err.text);
		genai_free(ids);
	}
	ck_assert_int_eq(rc, 0);
	ck_assert_int_gt(failures, 10);
	genai_template_close(t);
	genai_tokenizer_close(tok);
}
END_TEST

static uint64_t seed = 20240726;

static size_t rnd(size_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (size_t)((seed >> 11) % n);
}

static const char *const bits[] = {"{{ ",
				   " }}",
				   "{% ",
				   " %}",
				   "{#",
				   "#}",
				   "-",
				   "(",
				   ")",
				   "[",
				   "]",
				   "{",
				   "}",
				   "'",
				   "\"",
				   "|",
				   ".",
				   ",",
				   ":",
				   "=",
				   "~",
				   "*",
				   "+ 1",
				   " is ",
				   " in ",
				   " not ",
				   " if ",
				   " else ",
				   "for x in ",
				   "{% endfor %}",
				   "{% endif %}",
				   "{% endmacro %}",
				   "set ",
				   "loop.",
				   "messages",
				   "[::-1]",
				   "[-1]",
				   "namespace(a=1)",
				   "raw",
				   "none",
				   "|tojson",
				   "|map('upper')",
				   ".split(",
				   "'' * ",
				   "9223372036854775807",
				   "1e308",
				   "0x",
				   "\\",
				   "\\u12",
				   "\xc3\xa9",
				   "\xff",
				   "range(99999)",
				   "{% break %}",
				   "|list",
				   "|join",
				   "**",
				   "//",
				   "%",
				   "{% set x",
				   "{% endset %}",
				   "|first",
				   ".x"};

// Put a piece of one template into another: a tag, a token, or any bytes.
static size_t mutate(char *s, size_t n, size_t cap, const char *other,
		     size_t other_n)
{
	size_t at = rnd(n + 1), del = rnd(3) ? rnd(8) : rnd(n - at + 1), add;
	const char *from;

	if (rnd(3)) {
		from = bits[rnd(sizeof(bits) / sizeof(bits[0]))];
		add = strlen(from);
	} else {
		add = rnd(60) % (other_n + 1);
		from = other + rnd(other_n - add + 1);
	}
	if (del > n - at || !rnd(3))
		del = 0;
	if (n - del + add > cap)
		return n;
	memmove(s + at + add, s + at + del, n - at - del);
	memcpy(s + at, from, add);
	return n - del + add;
}

START_TEST(mutated_templates)
{
	json_t *root = json_load_file(GENAI_TESTDATA "/template/"
						     "language.golden.json",
				      0, NULL);
	json_t *cases = json_object_get(root, "cases"), *a, *b;
	json_t *vars = json_loads(
		"{\"messages\":[{\"role\":\"user\",\"content\":\"h\xc3\xa9\"},"
		"{\"role\":\"assistant\",\"content\":null,\"tool_calls\":"
		"[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1.5}}}]}],"
		"\"tools\":null,\"x\":{\"items\":[1,2]},\"a\":3,\"n\":2}",
		0, NULL);
	char s[4096];
	size_t n, i, k, good = 0, bad = 0;
	int rc;

	ck_assert_uint_gt(json_array_size(cases), 200);
	for (i = 0; i < 2000; i++) {
		a = json_object_get(
			json_array_get(cases, rnd(json_array_size(cases))),
			"source");
		n = json_string_length(a);
		ck_assert_uint_lt(n, sizeof(s));
		memcpy(s, json_string_value(a), n);
		for (k = rnd(4) + 1; k; k--) {
			b = json_object_get(
				json_array_get(cases,
					       rnd(json_array_size(cases))),
				"source");
			n = mutate(s, n, sizeof(s), json_string_value(b),
				   json_string_length(b));
		}
		rc = render_n(s, n, vars);
		if (rc)
			bad++;
		else
			good++;
		ck_assert(rc == 0 || rc == GENAI_E_FORMAT ||
			  rc == GENAI_E_LIMIT || rc == GENAI_E_INVAL);
	}
	// both ways are well travelled
	ck_assert_uint_gt(good, 200);
	ck_assert_uint_gt(bad, 200);
	json_decref(vars);
	json_decref(root);
}
END_TEST

static int golden_main(const char *path)
{
	struct golden_count n = {0, 0, 0};

	if (golden_run(path, NULL, 1, &n))
		printf("%s: no golden files\n", path);
	printf("%d passed, %d failed, %d skipped\n", n.passed, n.failed,
	       n.skipped);
	return n.failed || !n.passed;
}

static void drop_text(void)
{
	free(text);
	text = NULL;
}

int main(int argc, char **argv)
{
	Suite *s;
	TCase *t;

	if (argc == 3 && !strcmp(argv[1], "--golden"))
		return golden_main(argv[2]);
	s = suite_create("template");
	t = tcase_create("template");
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, NULL, drop_text);
	suite_add_tcase(s, t);
	tcase_add_test(t, goldens);
	tcase_add_test(t, messages_name_the_line);
	tcase_add_test(t, refused);
	tcase_add_test(t, widths_are_bounded);
	tcase_add_test(t, raised_message_is_exact);
	tcase_add_test(t, bad_bytes);
	tcase_add_test(t, nesting_is_capped);
	tcase_add_test(t, work_is_bounded);
	tcase_add_test(t, source_size);
	tcase_add_test(t, deep_variables);
	tcase_add_test(t, large_dicts_and_values);
	tcase_add_test(t, the_clock);
	tcase_add_test(t, chat_variables);
	tcase_add_test(t, chat_continues);
	tcase_add_test(t, template_of_a_folder);
	tcase_add_test(t, out_of_memory);
	tcase_add_test(t, public_variables);
	tcase_add_test(t, messages_stay_text);
	tcase_add_test(t, encode_out_of_memory);
	tcase_add_test(t, mutated_templates);
	return genai_check_main(s);
}
