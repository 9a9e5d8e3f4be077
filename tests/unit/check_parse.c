// check_parse.c - what the text of an answer is, in every way that it may be
// cut: each format of calls, reasoning, and what only looks like them.
#include "tools/serve/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/harness.h"

static const char tools_text[] =
	"[{\"type\": \"function\", \"function\": {\"name\": \"f\", "
	"\"parameters\": {\"properties\": {\"s\": {\"type\": \"string\"}}}}}]";

static const struct parse_case {
	const char *name,
		*open; // open: of parse_known; "": bare; "|": channels
	bool thinks, in_reasoning, no_tools;
	const char *text, *want; // want: R(...) C(...) f{...}
} cases[] = {
	{"content", "<tool_call>", 0, 0, 0, "Hello <there>.",
	 "C(Hello <there>.)"},
	{"a call", "<tool_call>", 0, 0, 0,
	 "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
	 "1}}\n</tool_call>",
	 "f{\"a\": 1}"},
	{"two calls behind a text", "<tool_call>", 0, 0, 0,
	 "So:\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n"
	 "<tool_call>{\"name\":\"g\",\"arguments\":{\"x\":[1,2.5,null]}}"
	 "</tool_call>",
	 "C(So:\n)f{}g{\"x\": [1, 2.5, null]}"},
	{"the closing mark in an argument", "<tool_call>", 0, 0, 0,
	 "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"</tool_call>\"}}"
	 "</tool_call>",
	 "f{\"s\": \"</tool_call>\"}"},
	{"no JSON in it", "<tool_call>", 0, 0, 0,
	 "<tool_call>{\"name\":</tool_call>!",
	 "C(<tool_call>{\"name\":</tool_call>!)"},
	{"no name in it", "<tool_call>", 0, 0, 0,
	 "<tool_call>{\"arguments\":{}}</tool_call>",
	 "C(<tool_call>{\"arguments\":{}}</tool_call>)"},
	{"cut off", "<tool_call>", 0, 0, 0,
	 "a <tool_call>{\"name\": \"f\", \"ar",
	 "C(a <tool_call>{\"name\": \"f\", \"ar)"},
	{"cut off behind the object", "<tool_call>", 0, 0, 0,
	 "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "f{}"},
	{"a mark cut off", "<tool_call>", 0, 0, 0, "a <tool_ca",
	 "C(a <tool_ca)"},
	{"no tools were given", "<tool_call>", 0, 0, 1,
	 "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
	 "C(<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>)"},
	{"thinking", "<tool_call>", 1, 0, 0,
	 "<think>\nHm <b>\n\n</think>\n\nYes.", "R(Hm <b>)C(Yes.)"},
	{"begun by the prompt", "<tool_call>", 1, 1, 0,
	 "\nHm\n</think>\n\nYes.", "R(Hm)C(Yes.)"},
	{"thinking, then a call", "<tool_call>", 1, 0, 0,
	 "<think>a</think>\n<tool_call>{\"name\":\"f\",\"arguments\":{}}"
	 "</tool_call>",
	 "R(a)f{}"},
	{"thinking that is cut off", "<tool_call>", 1, 0, 0, "<think>Hm </thi",
	 "R(Hm </thi)"},
	{"not thinking", "<tool_call>", 1, 0, 0, " <thing>", "C( <thing>)"},
	{"a function with parameters", "<tool_call>", 0, 0, 0,
	 "<tool_call>\n<function=f>\n<parameter=s>\n12\n</parameter>\n"
	 "<parameter=n>\n12\n</parameter>\n<parameter=t>\nwords {\n"
	 "</parameter>\n</function>\n</tool_call>",
	 "f{\"s\": \"12\", \"n\": 12, \"t\": \"words {\"}"},
	{"a function without an end", "<tool_call>", 0, 0, 0,
	 "<tool_call><function=f><parameter=s>1</tool_call>",
	 "C(<tool_call><function=f><parameter=s>1</tool_call>)"},
	{"an array", "<TOOLCALL>", 0, 0, 0,
	 "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": {}}}, "
	 "{\"name\": \"g\", \"arguments\": {}}]</TOOLCALL>",
	 "f{\"a\": {}}g{}"},
	{"Mistral's array", "[TOOL_CALLS]", 0, 0, 0,
	 "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
	 "f{\"a\": 1}"},
	{"Mistral's names", "[TOOL_CALLS]", 0, 0, 0,
	 "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]abc[ARGS]{}",
	 "f{\"a\": 1}g{}"},
	{"Python", "<|tool_call_start|>", 0, 0, 0,
	 "<|tool_call_start|>[f(s=\"it's\", n=-1.5, l=[1, 'a\\n'], d={'k': "
	 "True, "
	 "'x': None}), g()]<|tool_call_end|>done",
	 "f{\"s\": \"it's\", \"n\": -1.5, \"l\": [1, \"a\\n\"], \"d\": {\"k\": "
	 "true, "
	 "\"x\": null}}g{}C(done)"},
	{"no Python", "<|tool_call_start|>", 0, 0, 0,
	 "<|tool_call_start|>[f(s=)]<|tool_call_end|>",
	 "C(<|tool_call_start|>[f(s=)]<|tool_call_end|>)"},
	{"bare", "", 0, 0, 0,
	 "\n{\"name\": \"f\", \"parameters\": {\"a\": \"b\"}}",
	 "f{\"a\": \"b\"}"},
	{"bare, two of them", "", 0, 0, 0,
	 "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; "
	 "{\"name\": \"g\", \"parameters\": {}}",
	 "f{}g{}"},
	{"an object that is no call", "", 0, 0, 0, "{\"a\": 1}",
	 "C({\"a\": 1})"},
	{"an object behind a text", "", 0, 0, 0, "It is {\"name\": \"f\"}",
	 "C(It is {\"name\": \"f\"})"},
	{"arguments as a text", "", 0, 0, 0,
	 "{\"name\": \"f\", \"arguments\": \"{\\\"a\\\":1}\"}", "f{\"a\":1}"},
	{"channels", "|", 0, 0, 0,
	 "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>"
	 "final<|message|>Yes <|no|>.<|return|>",
	 "R(Hm.)C(Yes <|no|>.)"},
	{"a call in a channel", "|", 0, 0, 0,
	 "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>"
	 "commentary to=functions.f "
	 "<|constrain|>json<|message|>{\"a\":1}<|call|>",
	 "R(Hm.)f{\"a\":1}"},
	{"the name before the channel", "|", 0, 0, 0,
	 " to=functions.f<|channel|>commentary json<|message|>{}", "f{}"},
	{"a channel cut off", "|", 0, 0, 0,
	 "<|channel|>analysis<|message|>Hm.<|en", "R(Hm.<|en)"},
	{"a header cut off", "|", 0, 0, 0, "<|channel|>ana", ""},
	{"no channel at all", "|", 0, 0, 0, "Hello", "C(Hello)"},
};
#define N_CASES (int)(sizeof(cases) / sizeof(cases[0]))

struct got {
	char text[4096];
	size_t n;
	int kind; // of what is open
	int calls;
};

static void put(struct got *g, const char *s, size_t n)
{
	ck_assert(g->n + n < sizeof(g->text));
	memcpy(g->text + g->n, s, n);
	g->n += n;
	g->text[g->n] = 0;
}

static void end_piece(struct got *g)
{
	if (g->kind == PARSE_CONTENT || g->kind == PARSE_REASONING)
		put(g, ")", 1);
	g->kind = -1;
}

static void take(void *ctx, enum parse_kind kind, const char *s, size_t n)
{
	struct got *g = ctx;

	g->calls += kind == PARSE_CALL;
	if (kind == PARSE_CALL || (int)kind != g->kind) {
		end_piece(g);
		if (kind == PARSE_CONTENT)
			put(g, "C(", 2);
		if (kind == PARSE_REASONING)
			put(g, "R(", 2);
	}
	g->kind = (int)kind;
	put(g, s, n);
}

static struct parse *open_case(const struct parse_case *k, json_t *tools,
			       struct parse_format *f, struct got *g)
{
	*f = (struct parse_format){.thinks = k->thinks,
				   .style = !*k->open	      ? PARSE_BARE
					    : *k->open == '|' ? PARSE_CHANNELS
							      : PARSE_MARKED};
	for (int i = 0; f->style == PARSE_MARKED && !f->open; i++) {
		ck_assert_ptr_nonnull(parse_known[i].open);
		if (!strcmp(parse_known[i].open, k->open)) {
			f->open = parse_known[i].open;
			f->close = parse_known[i].close;
		}
	}
	*g = (struct got){.kind = -1};
	return parse_open(f, !k->no_tools, tools, k->in_reasoning, take, g);
}

START_TEST(every_cut)
{
	const struct parse_case *k = &cases[_i];
	json_t *tools = json_loads(tools_text, 0, NULL);
	size_t n = strlen(k->text);
	struct parse_format f;
	struct got g;

	// cut == n + 1: byte by byte
	for (size_t cut = 0; cut <= n + 1; cut++) {
		struct parse *p = open_case(k, tools, &f, &g);

		ck_assert_ptr_nonnull(p);
		for (size_t i = 0; cut > n && i < n; i++)
			ck_assert(parse_push(p, k->text + i, 1));
		if (cut <= n) {
			ck_assert(parse_push(p, k->text, cut));
			ck_assert(parse_push(p, k->text + cut, n - cut));
		}
		parse_end(p);
		end_piece(&g);
		parse_close(p);
		ck_assert_msg(!strcmp(g.text, k->want),
			      "%s, cut at %zu:\n%s\nnot\n%s", k->name, cut,
			      g.text, k->want);
	}
	json_decref(tools);
}
END_TEST

// What comes early is given early: a stream is one.
START_TEST(at_once)
{
	static const struct {
		const char *name, *text, *want;
	} early[] = {
		{"content", "Hello ", "C(Hello "},
		{"two calls behind a text", "So:", "C(So:"},
		{"thinking", "<think>\nHm <", "R(Hm "},
		{"channels", "<|channel|>analysis<|message|>Hm", "R(Hm"},
		{"a call in a channel",
		 "<|channel|>commentary to=functions.f<|message|>{\"a\"",
		 "f{\"a\""},
		{"bare", "It", "C(It"},
	};

	for (size_t i = 0; i < sizeof(early) / sizeof(early[0]); i++) {
		const struct parse_case *k = cases;
		struct parse_format f;
		struct parse *p;
		struct got g;

		while (strcmp(k->name, early[i].name))
			k++;
		p = open_case(k, NULL, &f, &g);
		ck_assert(parse_push(p, early[i].text, strlen(early[i].text)));
		ck_assert_str_eq(g.text, early[i].want);
		parse_close(p);
	}
}
END_TEST

// Any pieces: nothing is lost where no call was found.
START_TEST(garbage)
{
	static const char *const pieces[] = {"<tool_call>",
					     "</tool_call>",
					     "<|channel|>",
					     "<|message|>",
					     "[",
					     "{",
					     "\"name\"",
					     ":",
					     "\"f\"",
					     "}",
					     "]",
					     "(",
					     ")",
					     "f",
					     "=",
					     ",",
					     "<function=",
					     "<parameter=",
					     ">",
					     "</parameter>",
					     "</function>",
					     "[ARGS]",
					     "<think>",
					     "</think>",
					     "\\",
					     "'",
					     "\"",
					     "<|end|>",
					     "1e999",
					     "\n",
					     " "};
	const size_t n_pieces = sizeof(pieces) / sizeof(pieces[0]);
	unsigned seed = 1;

	for (int round = 0; round < 4000; round++) {
		const struct parse_case *k = &cases[round % N_CASES];
		struct parse_format f;
		struct got g;
		struct parse *p = open_case(k, NULL, &f, &g);
		char sent[2048] = "C(";

		for (int i = 0; i < 40; i++) {
			const char *s;

			seed = seed * 1103515245u + 12345u;
			s = pieces[(seed >> 16) % n_pieces];
			strcat(sent, s);
			ck_assert(parse_push(p, s, strlen(s)));
		}
		parse_end(p);
		parse_close(p);
		if (!k->thinks && f.style == PARSE_MARKED && !g.calls)
			ck_assert_str_eq(g.text, sent);
	}
}
END_TEST

static unsigned next(unsigned *seed)
{
	*seed = *seed * 1103515245u + 12345u;
	return *seed >> 16 & 0x7fff;
}

// A text with some bytes gone, doubled, made others, moved.
static size_t bend(char *s, size_t n, unsigned *seed)
{
	static const char bytes[] = "<>|{}[]()\"'\\/:,=_ \n\0\x80\xc3\xff"
				    "0e-fu";

	for (unsigned edits = 1 + next(seed) % 4; edits && n > 1; edits--) {
		size_t at = next(seed) % n, m = 1 + next(seed) % 12;

		m = m < n - at ? m : n - at;
		switch (next(seed) % 4) {
		case 0:
			memmove(s + at, s + at + m, n - at - m);
			n -= m;
			break;
		case 1:
			if (n + m > 700)
				break;
			memmove(s + at + m, s + at, n - at);
			n += m;
			break;
		case 2:
			s[at] = bytes[next(seed) % (sizeof(bytes) - 1)];
			break;
		default:
			memmove(s + at, s + n - m, m);
		}
	}
	return n;
}

static void push_cut(const struct parse_case *k, json_t *tools, const char *s,
		     size_t n, unsigned *seed, struct got *g)
{
	struct parse_format f;
	struct parse *p = open_case(k, tools, &f, g);

	ck_assert_ptr_nonnull(p);
	for (size_t at = 0, m; at < n; at += m) {
		m = seed ? 1 + next(seed) % 24 : n;
		m = m < n - at ? m : n - at;
		ck_assert(parse_push(p, s + at, m));
	}
	parse_end(p);
	end_piece(g);
	parse_close(p);
}

// Bent texts: the same whatever the pieces.  GENAI_ROUNDS: how many.
START_TEST(bent)
{
	const char *more = getenv("GENAI_ROUNDS");
	long rounds = more ? strtol(more, NULL, 10) : 5000;
	json_t *tools = json_loads(tools_text, 0, NULL);
	unsigned seed = 7;

	for (long i = 0; i < rounds; i++) {
		const struct parse_case *k = &cases[next(&seed) % N_CASES];
		const struct parse_case *of = &cases[next(&seed) % N_CASES];
		struct got whole, cut;
		size_t n = strlen(of->text);
		char s[1024];

		memcpy(s, of->text, n);
		n = bend(s, n, &seed);
		push_cut(k, tools, s, n, NULL, &whole);
		push_cut(k, tools, s, n, &seed, &cut);
		ck_assert_msg(whole.n == cut.n &&
				      !memcmp(whole.text, cut.text, cut.n),
			      "round %ld, %s: %.*s\nwhole %s\ncut %s", i,
			      k->name, (int)n, s, whole.text, cut.text);
	}
	json_decref(tools);
}
END_TEST

// Deep and long ones end, in a bounded time.
START_TEST(deep)
{
	const size_t n = 200000;
	static const char *const opens[] = {"[f(a=[", "[", "{\"a\":"};
	char *s = malloc(n);

	ck_assert_ptr_nonnull(s);
	for (size_t i = 0; i < 3; i++) {
		struct got g = {.kind = -1};
		size_t m = strlen(opens[i]);

		for (size_t k = 0; k < n; k++)
			s[k] = k < m ? opens[i][k] : '[';
		ck_assert(!parse_calls(s, n, NULL, take, &g));
		ck_assert_str_eq(g.text, "");
	}
	free(s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("parse");
	TCase *t = tcase_create("parse");

	tcase_add_loop_test(t, every_cut, 0, N_CASES);
	tcase_add_test(t, at_once);
	tcase_add_test(t, garbage);
	tcase_add_test(t, bent);
	tcase_add_test(t, deep);
	suite_add_tcase(s, t);
	return genai_check_main(s);
}
