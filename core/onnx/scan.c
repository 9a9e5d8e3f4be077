// scan.c - the first look at an untrusted model file.
#include "core/onnx/scan.h"

#include "core/base/error.h"
#include "core/onnx/wire.h"

#include <stdlib.h>
#include <string.h>

enum message {
	MODEL,
	OPSET,
	GRAPH,
	NODE,
	ATTRIBUTE,
	TENSOR,
	SPARSE,
	ENTRY,
	VALUE,
	TYPE,
	TENSOR_TYPE,
	SHAPE,
	DIM,
	FUNCTION,
	N_MESSAGES
};

#define ONCE 1u	  // a second one is an error
#define KEEP 2u	  // copied
#define TEXT 4u	  // a name: short, UTF-8, no NUL
#define PACKED 8u // a list that may come in one block
#define NESTED 16u

#define VARINT GENAI_WIRE_VARINT
#define FIXED32 GENAI_WIRE_FIXED32
#define BYTES GENAI_WIRE_BYTES

struct rule {
	uint8_t number;
	uint8_t wire;
	uint8_t flags;
	uint8_t child;
	const char *name;
};

#define NAME(n, s)                                                             \
	{                                                                      \
		n, BYTES, ONCE | KEEP | TEXT, 0, s                             \
	}
#define NAMES(n, s)                                                            \
	{                                                                      \
		n, BYTES, KEEP | TEXT, 0, s                                    \
	}
#define INT(n, s)                                                              \
	{                                                                      \
		n, VARINT, ONCE | KEEP, 0, s                                   \
	}
#define ONE(n, s, child)                                                       \
	{                                                                      \
		n, BYTES, ONCE | KEEP | NESTED, child, s                       \
	}
#define MANY(n, s, child)                                                      \
	{                                                                      \
		n, BYTES, KEEP | NESTED, child, s                              \
	}

static const struct rule model_rules[] = {INT(1, "ir_version"),
					  ONE(7, "graph", GRAPH),
					  MANY(8, "opset_import", OPSET),
					  MANY(25, "functions", FUNCTION),
					  {0}};
static const struct rule opset_rules[] = {
	NAME(1, "domain"), INT(2, "version"), {0}};
static const struct rule graph_rules[] = {
	MANY(1, "node", NODE),
	NAME(2, "graph name"),
	MANY(5, "initializer", TENSOR),
	MANY(11, "input", VALUE),
	MANY(12, "output", VALUE),
	MANY(13, "value_info", VALUE),
	MANY(15, "sparse_initializer", SPARSE),
	{0}};
static const struct rule node_rules[] = {NAMES(1, "node input"),
					 NAMES(2, "node output"),
					 NAME(3, "node name"),
					 NAME(4, "op_type"),
					 MANY(5, "attribute", ATTRIBUTE),
					 NAME(7, "domain"),
					 NAME(8, "overload"),
					 {0}};
static const struct rule attribute_rules[] = {
	NAME(1, "attribute name"),
	{2, FIXED32, ONCE | KEEP, 0, "f"},
	INT(3, "i"),
	{4, BYTES, ONCE | KEEP, 0, "s"},
	ONE(5, "t", TENSOR),
	ONE(6, "g", GRAPH),
	{7, FIXED32, KEEP | PACKED, 0, "floats"},
	{8, VARINT, KEEP | PACKED, 0, "ints"},
	{9, BYTES, KEEP, 0, "strings"},
	INT(20, "type"),
	NAME(21, "ref_attr_name"),
	{0}};
static const struct rule tensor_rules[] = {
	{1, VARINT, KEEP | PACKED, 0, "dims"},
	INT(2, "data_type"),
	NAME(8, "tensor name"),
	{9, BYTES, ONCE, 0, "raw_data"},
	MANY(13, "external_data", ENTRY),
	INT(14, "data_location"),
	{0}};
static const struct rule sparse_rules[] = {ONE(1, "values", TENSOR), {0}};
static const struct rule entry_rules[] = {
	NAME(1, "external_data key"), NAME(2, "external_data value"), {0}};
static const struct rule value_rules[] = {
	NAME(1, "value name"), ONE(2, "type", TYPE), {0}};
static const struct rule type_rules[] = {ONE(1, "tensor_type", TENSOR_TYPE),
					 {0}};
static const struct rule tensor_type_rules[] = {
	INT(1, "elem_type"), ONE(2, "shape", SHAPE), {0}};
static const struct rule shape_rules[] = {MANY(1, "dim", DIM), {0}};
static const struct rule dim_rules[] = {
	INT(1, "dim_value"), NAME(2, "dim_param"), {0}};

static const struct rule function_rules[] = {
	NAME(1, "function name"),
	NAMES(4, "function input"),
	NAMES(5, "function output"),
	NAMES(6, "function attribute"),
	MANY(7, "node", NODE),
	MANY(9, "opset_import", OPSET),
	NAME(10, "domain"),
	MANY(11, "attribute_proto", ATTRIBUTE),
	NAME(13, "overload"),
	{0}};

static const struct {
	const struct rule *rules;
	const char *name;
} messages[N_MESSAGES] = {
	[MODEL] = {model_rules, "the model"},
	[OPSET] = {opset_rules, "an opset_import"},
	[GRAPH] = {graph_rules, "a graph"},
	[NODE] = {node_rules, "a node"},
	[ATTRIBUTE] = {attribute_rules, "an attribute"},
	[TENSOR] = {tensor_rules, "a tensor"},
	[SPARSE] = {sparse_rules, "a sparse tensor"},
	[ENTRY] = {entry_rules, "an external_data entry"},
	[VALUE] = {value_rules, "a value"},
	[TYPE] = {type_rules, "a type"},
	[TENSOR_TYPE] = {tensor_type_rules, "a tensor type"},
	[SHAPE] = {shape_rules, "a shape"},
	[DIM] = {dim_rules, "a dimension"},
	[FUNCTION] = {function_rules, "a function"},
};

struct frame {
	const uint8_t *end;
	size_t length_at; // in the copy; 0 for the root
	uint32_t seen;	  // a bit per rule
	uint8_t message;
};

struct scan {
	const uint8_t *begin;
	const uint8_t *at;
	struct genai_onnx_stripped *out;
	struct genai_budget *budget;
	struct genai_error *err;
	uint32_t depth;
	uint32_t graphs; // on the stack
	uint32_t nodes;
	uint32_t initializers;
	struct frame stack[GENAI_ONNX_MAX_MESSAGES];
};

#define scan_fail(s, place, code, ...)                                         \
	scan_fail_at((s), (place), genai_fail((s)->err, (code), __VA_ARGS__))

static int32_t scan_fail_at(const struct scan *s, const uint8_t *place,
			    int32_t rc)
{
	genai_error_prefix(s->err, "byte %llu",
			   (unsigned long long)(place - s->begin));
	return rc;
}

// Room for n more bytes of the copy.
static int32_t reserve(struct scan *s, size_t n)
{
	struct genai_onnx_stripped *o = s->out;
	size_t cap = o->capacity ? o->capacity : 4096;
	uint8_t *data;

	if (n <= o->capacity - o->bytes)
		return GENAI_OK;
	while (cap - o->bytes < n)
		cap *= 2;
	if (!genai_budget_take(s->budget, cap - o->capacity))
		return genai_fail(s->err, GENAI_E_LIMIT,
				  "the file asks for more memory than one of "
				  "its size may");
	data = realloc(o->data, cap);
	if (!data) {
		genai_budget_give(s->budget, cap - o->capacity);
		return genai_fail(s->err, GENAI_E_NOMEM, "out of memory");
	}
	o->data = data;
	o->capacity = cap;
	return GENAI_OK;
}

static void put_varint(struct scan *s, uint64_t v)
{
	struct genai_onnx_stripped *o = s->out;

	for (; v > 0x7f; v >>= 7)
		o->data[o->bytes++] = (uint8_t)(v | 0x80);
	o->data[o->bytes++] = (uint8_t)v;
}

static void put_fixed64(struct scan *s, uint32_t number, uint64_t v)
{
	put_varint(s, (uint64_t)number << 3 | GENAI_WIRE_FIXED64);
	memcpy(s->out->data + s->out->bytes, &v, sizeof(v));
	s->out->bytes += sizeof(v);
}

// A length in five bytes, so that it can be written before it is known.
static void put_length(struct scan *s, size_t at, size_t length)
{
	int i;

	for (i = 0; i < 5; i++, length >>= 7)
		s->out->data[at + (size_t)i] =
			(uint8_t)((length & 0x7f) | (i < 4 ? 0x80 : 0));
}

static int32_t keep(struct scan *s, const struct genai_onnx_field *f)
{
	int32_t rc =
		reserve(s, 20 + (f->wire == GENAI_WIRE_BYTES ? f->bytes : 0));

	if (rc)
		return rc;
	put_varint(s, (uint64_t)f->number << 3 | f->wire);
	if (f->wire == GENAI_WIRE_VARINT) {
		put_varint(s, f->value);
		return GENAI_OK;
	}
	if (f->wire == GENAI_WIRE_BYTES)
		put_varint(s, f->bytes);
	if (f->bytes)
		memcpy(s->out->data + s->out->bytes, f->data, f->bytes);
	s->out->bytes += f->bytes;
	return GENAI_OK;
}

// Bytes of the UTF-8 character at p, 0 if it is not one (overlong forms and
// surrogates are not).
static size_t utf8_char(const uint8_t *p, size_t left)
{
	uint32_t c = p[0], low, i;
	size_t n;

	if (c < 0x80)
		return 1;
	n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
	if (c < 0xc2 || c > 0xf4 || left < n)
		return 0;
	low = n == 2 ? 0x80 : n == 3 ? 0x800 : 0x10000;
	c &= 0xffu >> (n + 1);
	for (i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < low || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	return n;
}

static int32_t check_text(struct scan *s, const char *what,
			  const struct genai_onnx_field *f)
{
	size_t i = 0, n;

	if (f->bytes > GENAI_ONNX_MAX_NAME)
		return scan_fail(s, f->data, GENAI_E_LIMIT,
				 "%s of %zu bytes, at most %u", what, f->bytes,
				 GENAI_ONNX_MAX_NAME);
	while (i < f->bytes) {
		if (!f->data[i])
			return scan_fail(s, f->data + i, GENAI_E_FORMAT,
					 "%s holds a NUL byte", what);
		n = utf8_char(f->data + i, f->bytes - i);
		if (!n)
			return scan_fail(s, f->data + i, GENAI_E_FORMAT,
					 "%s is not valid UTF-8", what);
		i += n;
	}
	return GENAI_OK;
}

// A block of numbers must hold whole ones.
static int32_t check_packed(struct scan *s, const struct rule *r,
			    const struct genai_onnx_field *f)
{
	const uint8_t *p = f->data, *end = f->data + f->bytes;
	uint64_t v;

	if (r->wire == GENAI_WIRE_FIXED32)
		p = f->bytes % 4 ? p : end;
	else
		while (p < end && genai_onnx_varint(&p, end, &v))
			;
	if (p == end)
		return GENAI_OK;
	return scan_fail(s, p, GENAI_E_FORMAT, "%s: bad list of numbers",
			 r->name);
}

static int32_t count_child(struct scan *s, const struct rule *r,
			   const uint8_t *place)
{
	uint8_t parent = s->stack[s->depth - 1].message;

	if (s->depth >= GENAI_ONNX_MAX_MESSAGES)
		return scan_fail(s, place, GENAI_E_LIMIT,
				 "nested deeper than %d messages",
				 GENAI_ONNX_MAX_MESSAGES);
	if (r->child == GRAPH && s->graphs >= GENAI_ONNX_MAX_GRAPHS)
		return scan_fail(s, place, GENAI_E_LIMIT,
				 "nested deeper than %d graphs",
				 GENAI_ONNX_MAX_GRAPHS);
	if (r->child == NODE && s->nodes++ >= GENAI_ONNX_MAX_NODES)
		return scan_fail(s, place, GENAI_E_LIMIT, "more than %u nodes",
				 GENAI_ONNX_MAX_NODES);
	if (r->child == TENSOR && parent == GRAPH &&
	    s->initializers++ >= GENAI_ONNX_MAX_INITIALIZERS)
		return scan_fail(s, place, GENAI_E_LIMIT,
				 "more than %u initialisers",
				 GENAI_ONNX_MAX_INITIALIZERS);
	s->graphs += r->child == GRAPH;
	return GENAI_OK;
}

// Enter a message; a tensor learns where it lies.
static int32_t enter(struct scan *s, uint8_t message, const uint8_t *data,
		     size_t bytes, uint32_t number)
{
	struct frame *f = &s->stack[s->depth++];
	int32_t rc = reserve(s, 40);

	if (rc)
		return rc;
	memset(f, 0, sizeof(*f));
	f->end = data + bytes;
	f->message = message;
	if (number) {
		put_varint(s, (uint64_t)number << 3 | GENAI_WIRE_BYTES);
		f->length_at = s->out->bytes;
		s->out->bytes += 5;
	}
	if (message == TENSOR) {
		put_fixed64(s, 1000, (uint64_t)(data - s->begin));
		put_fixed64(s, 1001, bytes);
	}
	s->at = data;
	return GENAI_OK;
}

static void leave(struct scan *s)
{
	const struct frame *f = &s->stack[--s->depth];

	s->graphs -= f->message == GRAPH;
	if (f->length_at)
		put_length(s, f->length_at, s->out->bytes - f->length_at - 5);
}

static const struct rule *find_rule(uint8_t message, uint32_t number,
				    uint32_t *out_index)
{
	const struct rule *r = messages[message].rules;

	for (*out_index = 0; r->number && r->number != number; r++)
		++*out_index;
	return r->number ? r : NULL;
}

static int32_t one_field(struct scan *s, const uint8_t *place,
			 const struct genai_onnx_field *f)
{
	struct frame *frame = &s->stack[s->depth - 1];
	uint32_t index;
	const struct rule *r = find_rule(frame->message, f->number, &index);
	int32_t rc = GENAI_OK;

	if (!r) {
		s->out->has_training |=
			frame->message == MODEL && f->number == 20;
		return GENAI_OK;
	}
	if (f->wire != r->wire &&
	    !(r->flags & PACKED && f->wire == GENAI_WIRE_BYTES))
		return scan_fail(s, place, GENAI_E_FORMAT,
				 "%s in %s has wire type %u", r->name,
				 messages[frame->message].name, f->wire);
	if (r->flags & ONCE && frame->seen & 1u << index)
		return scan_fail(s, place, GENAI_E_FORMAT,
				 "%s appears twice in %s", r->name,
				 messages[frame->message].name);
	frame->seen |= 1u << index;
	if (r->flags & TEXT)
		rc = check_text(s, r->name, f);
	else if (r->flags & PACKED && f->wire == GENAI_WIRE_BYTES)
		rc = check_packed(s, r, f);
	else if (r->flags & NESTED)
		rc = count_child(s, r, place);
	if (rc || !(r->flags & KEEP))
		return rc;
	if (r->flags & NESTED)
		return enter(s, r->child, f->data, f->bytes, f->number);
	return keep(s, f);
}

static int32_t scan_all(struct scan *s)
{
	struct genai_onnx_field f;
	uint64_t fields = 0;

	while (s->depth) {
		const uint8_t *place = s->at;
		const char *why;
		int32_t rc;

		if (s->at == s->stack[s->depth - 1].end) {
			leave(s);
			continue;
		}
		if (++fields > GENAI_ONNX_MAX_FIELDS)
			return scan_fail(
				s, place, GENAI_E_LIMIT,
				"more than %llu fields",
				(unsigned long long)GENAI_ONNX_MAX_FIELDS);
		why = genai_onnx_next(&s->at, s->stack[s->depth - 1].end, &f);
		if (why)
			return scan_fail(s, place, GENAI_E_FORMAT, "%s", why);
		rc = one_field(s, place, &f);
		if (rc)
			return rc;
	}
	return GENAI_OK;
}

int32_t genai_onnx_scan(const void *data, size_t bytes,
			enum genai_onnx_root root, struct genai_budget *budget,
			struct genai_onnx_stripped *out_s,
			struct genai_error *err)
{
	struct genai_onnx_stripped out;
	struct scan s;
	int32_t rc;

	memset(&out, 0, sizeof(out));
	memset(&s, 0, sizeof(s));
	s.begin = data;
	s.out = &out;
	s.budget = budget;
	s.err = err;
	rc = enter(&s, root == GENAI_ONNX_ROOT_MODEL ? MODEL : TENSOR, data,
		   bytes, 0);
	if (!rc)
		rc = scan_all(&s);
	if (rc) {
		genai_onnx_stripped_free(&out, budget);
		return rc;
	}
	*out_s = out;
	return GENAI_OK;
}

void genai_onnx_stripped_free(struct genai_onnx_stripped *s,
			      struct genai_budget *budget)
{
	genai_budget_give(budget, s->capacity);
	free(s->data);
	s->data = NULL;
	s->capacity = 0;
}
