/* jinja.h - inside of the template engine: values, syntax tree, one render.
 * Owns: what the jinja_*.c files share.  Does not know: files, chats.
 * All memory of a tree is in its template's arena, all memory of a render in
 * that render's; nothing is freed singly.  Functions that can fail return 0 or
 * a negative code with the error record filled.  Threads: a tree is immutable
 * and may be shared, a run belongs to one thread. */
#ifndef GENAI_CORE_TEXT_JINJA_H
#define GENAI_CORE_TEXT_JINJA_H

#include <jansson.h>
#include <stdbool.h>
#include <genai/types.h>

/* Limits.  Templates come with downloaded models: bounded work, whatever they
 * say. */
#define JINJA_MAX_SOURCE (1u << 20)   /* bytes of one template */
#define JINJA_MAX_NEST 100	      /* nesting of the source */
#define JINJA_MAX_DEPTH 1000	      /* nested evaluations */
#define JINJA_MAX_VALUE_DEPTH 128     /* nesting of one value */
#define JINJA_MAX_STEPS 10000000u     /* evaluations, compares, 64 B copies */
#define JINJA_MAX_OUTPUT (64u << 20)  /* bytes of text */
#define JINJA_MAX_MEMORY (256u << 20) /* bytes of values of one render */
#define JINJA_MAX_RANGE 100000	      /* elements of range(), as the sandbox */
#define JINJA_MAX_PARAMS 6	      /* of a built-in function */

struct jinja_chunk;
struct jinja_arena {
	struct jinja_chunk *chunks;
	char *cur, *end;
	size_t used, limit;
	bool full; /* an allocation went beyond the limit */
};

struct jinja_str {
	const char *p;
	size_t n;
};

enum jinja_type {
	JINJA_MISSING, /* argument not given; never a value of a template */
	JINJA_UNDEF,
	JINJA_NONE,
	JINJA_BOOL,
	JINJA_INT,
	JINJA_FLOAT,
	JINJA_STR,
	JINJA_LIST,
	JINJA_TUPLE,
	JINJA_RANGE, /* also a sequence */
	JINJA_VIEW,  /* d.items() and the like: no subscripts */
	JINJA_GEN,   /* result of map, select, ...: can be read once */
	JINJA_DICT,
	JINJA_NAMESPACE,
	JINJA_MACRO,
	JINJA_FUNC,   /* built-in global */
	JINJA_METHOD, /* built-in method and its object */
	JINJA_LOOP,
	JINJA_CYCLER,
	JINJA_JOINER,
};

/* why a value is undefined */
enum jinja_lack {
	JINJA_LACK_NAME,
	JINJA_LACK_ATTR,
	JINJA_LACK_UNSAFE,
	JINJA_LACK_PARAM,
	JINJA_LACK_OTHER,
};

struct jinja_value {
	uint8_t type;
	uint8_t lack;	/* UNDEF: enum jinja_lack; s is the name */
	uint8_t owner;	/* UNDEF: type that lacks the attribute */
	uint8_t markup; /* STR: marked safe; what is added gets escaped */
	union {
		bool b;
		int64_t i;
		double f;
		struct jinja_str s;
		struct jinja_list *list;
		struct jinja_dict *dict; /* also namespaces */
		const struct jinja_macro *macro;
		const struct jinja_builtin *func;
		struct jinja_method *method;
		struct jinja_loop *loop;
		struct jinja_object *object;
	};
};

/* What a list came from, where that is printed. */
struct jinja_origin {
	const char *name;	/* VIEW: "dict_items"; TUPLE: "group" */
	int64_t from, to, step; /* RANGE */
};

struct jinja_list {
	struct jinja_value *v;
	size_t n;
	const struct jinja_origin *of; /* or NULL */
};

struct jinja_object {
	struct jinja_value *v;
	size_t n, at;
};

/* Insertion order; an index is built when it has grown beyond a few. */
struct jinja_dict {
	struct jinja_value *kv; /* key, value, key, value, ... */
	size_t n, cap;
	uint32_t *index; /* slot -> entry + 1 */
	size_t slots;
};

struct jinja_scope {
	struct jinja_scope *up;
	struct jinja_dict vars;
	bool captured; /* a macro holds it: do not reuse */
};

struct jinja_macro {
	const struct jinja_node *def;
	struct jinja_scope *scope;
};

struct jinja_method {
	struct jinja_value self;
	const struct jinja_builtin *func;
};

struct jinja_loop {
	struct jinja_value *v;
	size_t n, at;
	const struct jinja_node *recursive; /* the for, if it may call itself */
	struct jinja_scope *scope;	    /* around that */
	int64_t depth;			    /* from 0 */
	struct jinja_value changed; /* last argument tuple of changed() */
};

enum jinja_kind {
	/* expressions */
	JN_CONST,
	JN_NAME,
	JN_LIST,
	JN_TUPLE,
	JN_DICT,    /* b: key, value, key, value, ... */
	JN_ATTR,    /* a.name */
	JN_ITEM,    /* a[b] */
	JN_SLICE,   /* a[b:c:d] */
	JN_CALL,    /* a(b...) */
	JN_FILTER,  /* a|name(b...) */
	JN_TEST,    /* a is name(b...) */
	JN_KEYWORD, /* name=a, inside the b list of the three above */
	JN_STAR,    /* *a, in the same place */
	JN_DSTAR,   /* **a */
	JN_NOT,
	JN_NEG,
	JN_POS,
	JN_AND,
	JN_OR,
	JN_BINARY,  /* a op b */
	JN_COMPARE, /* a, then b: list of JN_OPERAND */
	JN_OPERAND, /* op a */
	JN_COND,    /* b if a else c */
	JN_NSREF,   /* name.attribute as a target; attribute is in a */
	/* statements */
	JN_DATA,
	JN_PRINT,
	JN_IF,	      /* if a: b, else c */
	JN_FOR,	      /* for a in b if c: d, else e; op: recursive */
	JN_SET,	      /* a = b */
	JN_SETBLOCK,  /* a = text of d, through filters b */
	JN_MACRO,     /* name(b: JN_NAME with default a): d; op: JINJA_USES_* */
	JN_CALLBLOCK, /* call(b) a: d, as a macro without a name */
	JN_ESCAPE,    /* autoescape a: d */
	JN_BODY,      /* text of d, through filters b; a scope of its own */
	JN_WITH,      /* b: target, value, ...; d */
	JN_BREAK,
	JN_CONTINUE,
};

struct jinja_node {
	uint8_t kind;
	uint8_t op; /* enum jinja_token */
	uint32_t line;
	struct jinja_node *next;
	struct jinja_node *a, *b, *c, *d, *e;
	const struct jinja_builtin *func; /* JN_FILTER, JN_TEST; NULL: none */
	struct jinja_value val;		  /* constant, or the name in s */
};

enum jinja_token {
	JT_EOF,
	JT_DATA,
	JT_BLOCK_BEGIN,
	JT_BLOCK_END,
	JT_VAR_BEGIN,
	JT_VAR_END,
	JT_NAME,
	JT_STRING,
	JT_INT,
	JT_FLOAT,
	JT_ADD,
	JT_SUB,
	JT_MUL,
	JT_DIV,
	JT_FLOORDIV,
	JT_MOD,
	JT_POW,
	JT_TILDE,
	JT_LPAREN,
	JT_RPAREN,
	JT_LBRACKET,
	JT_RBRACKET,
	JT_LBRACE,
	JT_RBRACE,
	JT_EQ,
	JT_NE,
	JT_LT,
	JT_LE,
	JT_GT,
	JT_GE,
	JT_IN,
	JT_NOTIN,
	JT_ASSIGN,
	JT_DOT,
	JT_COLON,
	JT_PIPE,
	JT_COMMA,
	JT_SEMICOLON,
};

struct jinja_lexeme {
	enum jinja_token type;
	uint32_t line;
	struct jinja_value val; /* text, name, or number */
};

/* Names that mean something in a macro. */
#define JINJA_USES_CALLER 1u
#define JINJA_USES_VARARGS 2u
#define JINJA_USES_KWARGS 4u

/* State of one parse. */
struct jinja_parser {
	const char *name;
	struct jinja_arena *arena;
	struct genai_error *err;
	struct jinja_lexeme *tok;
	size_t n_tok, cap_tok, at;
	int depth, loops;
	unsigned uses; /* JINJA_USES_*, of the macro so far */
};

/* Arguments as written at a call. */
struct jinja_args {
	struct jinja_value *pos;
	size_t n_pos;
	struct jinja_str *kw_name;
	struct jinja_value *kw;
	size_t n_kw;
};

/* State of one render. */
struct jinja_run {
	const char *name;
	struct genai_error *err;
	struct jinja_arena arena;
	struct jinja_scope *scope; /* innermost */
	struct jinja_dict *vars;   /* the caller's variables */
	char *out;
	size_t n_out, cap_out;
	uint64_t steps;
	uint32_t line;
	int depth;
	int jump; /* JN_BREAK or JN_CONTINUE on its way to the loop */
	int64_t now;
	int32_t utc_offset_s;
};

/* A filter, test, method or global.  self is the filtered, tested or owning
 * value.  a has one entry per word of params, MISSING where not given (need of
 * them are required); a params of "*" leaves binding to fn. */
struct jinja_builtin {
	const char *name;
	int (*fn)(struct jinja_run *r, struct jinja_value self,
		  const struct jinja_args *args, const struct jinja_value *a,
		  struct jinja_value *out);
	const char *params;
	int need;
};
#define JINJA_FN(name)                                                         \
	static int name(struct jinja_run *r, struct jinja_value self,          \
			const struct jinja_args *args,                         \
			const struct jinja_value *a, struct jinja_value *out)
/* jinja_mem.c */
void *jinja_alloc(struct jinja_arena *m, size_t bytes); /* NULL: none */
char *jinja_alloc_text(struct jinja_arena *m, size_t bytes);
void jinja_arena_free(struct jinja_arena *m);
int jinja_fail(struct jinja_run *r, int32_t code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* "TypeError" and friends: GENAI_E_FORMAT */
#define jinja_raise(r, ...) jinja_fail((r), GENAI_E_FORMAT, __VA_ARGS__)
int jinja_nomem(struct jinja_run *r); /* no memory, or over the limit */
int jinja_charge(struct jinja_run *r, size_t work);
int jinja_new(struct jinja_run *r, size_t n, size_t size, void *out_p);
int jinja_new_list(struct jinja_run *r, enum jinja_type t, size_t n,
		   struct jinja_value *out);
int jinja_new_text(struct jinja_run *r, const char *p, size_t n,
		   struct jinja_value *out);
/* A range; n is its number of elements. */
int jinja_new_range(struct jinja_run *r, int64_t from, int64_t to, int64_t step,
		    size_t n, struct jinja_value *out);
/* The output grows at its end; a capture takes off what grew since mark. */
int jinja_emit(struct jinja_run *r, const char *p, size_t n);
int jinja_capture(struct jinja_run *r, size_t mark, struct jinja_value *out);

/* jinja_dict.c */
int jinja_dict_get(struct jinja_run *r, const struct jinja_dict *d,
		   const struct jinja_value *key,
		   const struct jinja_value **out_v); /* NULL: not there */
int jinja_dict_set(struct jinja_run *r, struct jinja_dict *d,
		   struct jinja_value key, struct jinja_value v);
int jinja_dict_reserve(struct jinja_run *r, struct jinja_dict *d, size_t n);
void jinja_dict_clear(struct jinja_dict *d);

/* jinja_value.c */
const char *jinja_type_name(int type);
bool jinja_true(const struct jinja_value *v);
int jinja_equal(struct jinja_run *r, const struct jinja_value *x,
		const struct jinja_value *y, bool *out_eq);
int jinja_order(struct jinja_run *r, const struct jinja_value *x,
		const struct jinja_value *y, int *out_cmp);
int jinja_undefined(struct jinja_run *r, const struct jinja_value *v);
int jinja_length(struct jinja_run *r, const struct jinja_value *v,
		 size_t *out_n);
/* All elements that a for over v would see; a GEN is used up by it. */
int jinja_items(struct jinja_run *r, const struct jinja_value *v,
		struct jinja_list *out);
int jinja_contains(struct jinja_run *r, const struct jinja_value *box,
		   const struct jinja_value *v, bool *out_in);
bool jinja_number(const struct jinja_value *v, double *out_f);
bool jinja_integer(const struct jinja_value *v, int64_t *out_i);

/* jinja_print.c */
int jinja_print(struct jinja_run *r, const struct jinja_value *v);
int jinja_repr(struct jinja_run *r, const struct jinja_value *v);
int jinja_repr_sorted(struct jinja_run *r, const struct jinja_value *v);
int jinja_to_str(struct jinja_run *r, const struct jinja_value *v,
		 struct jinja_value *out);
size_t jinja_float_text(double f, char text[40]);
/* Is a character printed as it is by repr? */
bool jinja_printable(int32_t c);
/* Digits with "." and "e" only, in any locale; false: not one, or too large. */
bool jinja_read_float(const char *p, size_t n, double *out_f);

/* jinja_json.c */
int jinja_from_json(struct jinja_run *r, json_t *j, struct jinja_value *out);
struct jinja_json_style {
	struct jinja_str indent; /* p NULL: on one line */
	struct jinja_str comma, colon;
	bool ascii, sort;
};
int jinja_to_json(struct jinja_run *r, const struct jinja_value *v,
		  const struct jinja_json_style *style);

/* jinja_text.c: strings by code points */
bool jinja_is_space(int32_t c);
int32_t jinja_next(const char *p, size_t n, size_t *io_at);
size_t jinja_put(int32_t c, char text[4]);
size_t jinja_text_length(struct jinja_str s);
struct jinja_str jinja_text_at(struct jinja_str s, size_t first, size_t count);
struct jinja_str jinja_text_strip(struct jinja_str s, const struct jinja_str *c,
				  int left, int right);
int jinja_text_replace(struct jinja_run *r, struct jinja_str s,
		       struct jinja_str from, struct jinja_str to,
		       int64_t count, struct jinja_value *out);
int jinja_text_case(struct jinja_run *r, struct jinja_str s, int how,
		    struct jinja_value *out); /* 'u', 'l', 't', 'c' */
int jinja_text_lines(struct jinja_run *r, struct jinja_str s, bool keep,
		     struct jinja_value *out);
int jinja_text_escape(struct jinja_run *r, struct jinja_str s,
		      struct jinja_value *out);
const char *jinja_text_find(struct jinja_str s, struct jinja_str what);

/* jinja_ops.c */
/* Stable sort of n pairs (key, value) by key into a new array. */
int jinja_sort(struct jinja_run *r, struct jinja_value **io_kv, size_t n,
	       bool reverse);
int jinja_binary(struct jinja_run *r, int op, struct jinja_value x,
		 struct jinja_value y, struct jinja_value *out);
int jinja_compare(struct jinja_run *r, int op, const struct jinja_value *x,
		  const struct jinja_value *y, bool *out_yes);
int jinja_attr(struct jinja_run *r, const struct jinja_value *v,
	       struct jinja_str name, struct jinja_value *out);
int jinja_item(struct jinja_run *r, const struct jinja_value *v,
	       const struct jinja_value *key, struct jinja_value *out);
int jinja_slice(struct jinja_run *r, const struct jinja_value *v,
		const struct jinja_value bound[3], struct jinja_value *out);

/* jinja_format.c: "text" % value, and the method format */
int jinja_percent(struct jinja_run *r, struct jinja_str s,
		  const struct jinja_value *with, struct jinja_value *out);
int jinja_str_format(struct jinja_run *r, struct jinja_value self,
		     const struct jinja_args *args, const struct jinja_value *a,
		     struct jinja_value *out);

/* jinja_method.c: keys (what 0), values (1) or items (2) of a dict */
int jinja_dict_view(struct jinja_run *r, const struct jinja_dict *d, int what,
		    struct jinja_value *out);

/* jinja_sequence.c: what a path of attributes ("a.0.b", 3) finds in v */
int jinja_reach(struct jinja_run *r, const struct jinja_value *v,
		const struct jinja_value *path, struct jinja_value *out);

/* jinja_object.c: what calling a joiner gives */
int jinja_join_next(struct jinja_object *o, struct jinja_value *out);

/* jinja_loop.c: the variable "loop" */
int jinja_loop_attr(struct jinja_run *r, const struct jinja_value *v,
		    struct jinja_str name, struct jinja_value *out);

/* jinja_method.c, jinja_string.c, jinja_filter.c, jinja_sequence.c,
 * jinja_test.c, jinja_global.c: tables of built-ins; NULL if there is none of
 * that name */
const struct jinja_builtin *jinja_find(const struct jinja_builtin *table,
				       struct jinja_str name);
const struct jinja_builtin *jinja_find_method(int type, struct jinja_str name,
					      bool *out_unsafe);
const struct jinja_builtin *jinja_find_string(struct jinja_str name);
const struct jinja_builtin *jinja_find_filter(struct jinja_str name);
extern const struct jinja_builtin jinja_sequence_filters[],
	jinja_group_filters[], jinja_layout_filters[], jinja_html_filters[],
	jinja_format_filters[], jinja_layout_methods[], jinja_cycler_methods[],
	jinja_object_globals[];
const struct jinja_builtin *jinja_find_test(struct jinja_str name);
const struct jinja_builtin *jinja_find_global(struct jinja_str name);

/* jinja_eval.c */
int jinja_eval(struct jinja_run *r, const struct jinja_node *n,
	       struct jinja_value *out);
int jinja_invoke(struct jinja_run *r, const struct jinja_builtin *f,
		 const char *what, struct jinja_value self,
		 const struct jinja_args *args, struct jinja_value *out);
int jinja_filters(struct jinja_run *r, const struct jinja_node *n,
		  struct jinja_value in, struct jinja_value *out);

/* The call n, with the body of a call block as its argument caller. */
int jinja_call_with(struct jinja_run *r, const struct jinja_node *n,
		    const struct jinja_value *caller, struct jinja_value *out);

/* jinja_exec.c */
int jinja_exec(struct jinja_run *r, const struct jinja_node *list);
int jinja_call_macro(struct jinja_run *r, const struct jinja_macro *m,
		     const struct jinja_args *args, struct jinja_value *out);
int jinja_call_loop(struct jinja_run *r, struct jinja_loop *loop,
		    const struct jinja_args *args, struct jinja_value *out);

/* jinja_lex.c, jinja_parse.c, jinja_expr.c, jinja_stmt.c */
int jinja_parse_fail(struct jinja_parser *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
int jinja_lex(struct jinja_parser *p, const char *text, size_t bytes);
struct jinja_node *jinja_node_new(struct jinja_parser *p, int kind);
int jinja_unexpected(struct jinja_parser *p);
bool jinja_peek_name(const struct jinja_parser *p, const char *word);
bool jinja_skip_name(struct jinja_parser *p, const char *word);
bool jinja_skip(struct jinja_parser *p, enum jinja_token t);
int jinja_expect(struct jinja_parser *p, enum jinja_token t);
int jinja_expect_name(struct jinja_parser *p, struct jinja_str *out);
/* tuple: a, b, ... without parentheses may follow; cond: "x if y" allowed */
int jinja_parse_expr(struct jinja_parser *p, bool cond,
		     struct jinja_node **out);
int jinja_parse_tuple(struct jinja_parser *p, bool cond,
		      struct jinja_node **out);
int jinja_parse_target(struct jinja_parser *p, bool with_ns,
		       struct jinja_node **out);
int jinja_parse_filters(struct jinja_parser *p, bool bare,
			struct jinja_node **io);
int jinja_parse_body(struct jinja_parser *p, struct jinja_node **out);

static inline enum jinja_token jinja_peek(const struct jinja_parser *p)
{
	return p->tok[p->at].type;
}

static inline struct jinja_value jinja_none(void)
{
	return (struct jinja_value){.type = JINJA_NONE};
}

static inline struct jinja_value jinja_bool(bool b)
{
	return (struct jinja_value){.type = JINJA_BOOL, .b = b};
}

static inline struct jinja_value jinja_int(int64_t i)
{
	return (struct jinja_value){.type = JINJA_INT, .i = i};
}

static inline struct jinja_value jinja_float(double f)
{
	return (struct jinja_value){.type = JINJA_FLOAT, .f = f};
}

static inline struct jinja_value jinja_text(const char *p, size_t n)
{
	return (struct jinja_value){.type = JINJA_STR, .s = {p, n}};
}

static inline struct jinja_value jinja_lack(enum jinja_lack why, int owner,
					    struct jinja_str name)
{
	return (struct jinja_value){.type = JINJA_UNDEF,
				    .lack = (uint8_t)why,
				    .owner = (uint8_t)owner,
				    .s = name};
}

static inline bool jinja_is_list(const struct jinja_value *v)
{
	return v->type >= JINJA_LIST && v->type <= JINJA_GEN;
}

bool jinja_same(struct jinja_str s, const char *word);

#endif
