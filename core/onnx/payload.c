// payload.c - the data of a TensorProto, read straight from the file.
#include "core/onnx/payload.h"

#include "core/base/error.h"
#include "core/graph/build.h"
#include "core/onnx/wire.h"

#include <string.h>

// Fields of TensorProto.
#define SEGMENT 3u
#define FLOAT_DATA 4u
#define INT32_DATA 5u
#define STRING_DATA 6u
#define INT64_DATA 7u
#define RAW_DATA 9u
#define DOUBLE_DATA 10u
#define UINT64_DATA 11u

// How a type is stored in typed data: the field, bytes of a stored entry (for
// small types an entry is a byte, two or four elements), and the range of an
// entry.
struct store {
	uint8_t dtype;
	uint8_t field;
	uint8_t bytes;
	int64_t low;
	int64_t high;
};

static const struct store stores[] = {
	{GENAI_DT_F32, FLOAT_DATA, 4, 0, 0},
	{GENAI_DT_F64, DOUBLE_DATA, 8, 0, 0},
	{GENAI_DT_I64, INT64_DATA, 8, 0, 0},
	{GENAI_DT_U64, UINT64_DATA, 8, 0, 0},
	{GENAI_DT_U32, UINT64_DATA, 4, 0, UINT32_MAX},
	{GENAI_DT_I32, INT32_DATA, 4, INT32_MIN, INT32_MAX},
	{GENAI_DT_U16, INT32_DATA, 2, 0, UINT16_MAX},
	{GENAI_DT_I16, INT32_DATA, 2, INT16_MIN, INT16_MAX},
	{GENAI_DT_F16, INT32_DATA, 2, 0, UINT16_MAX},
	{GENAI_DT_BF16, INT32_DATA, 2, 0, UINT16_MAX},
	{GENAI_DT_U8, INT32_DATA, 1, 0, UINT8_MAX},
	{GENAI_DT_I8, INT32_DATA, 1, INT8_MIN, INT8_MAX},
	{GENAI_DT_BOOL, INT32_DATA, 1, 0, 1},
	{GENAI_DT_U4, INT32_DATA, 1, INT8_MIN, UINT8_MAX},
	{GENAI_DT_I4, INT32_DATA, 1, INT8_MIN, UINT8_MAX},
	{GENAI_DT_F4E2M1, INT32_DATA, 1, INT8_MIN, UINT8_MAX},
	{GENAI_DT_U2, INT32_DATA, 1, INT8_MIN, UINT8_MAX},
	{GENAI_DT_I2, INT32_DATA, 1, INT8_MIN, UINT8_MAX},
	{GENAI_DT_F8E4M3FN, INT32_DATA, 1, 0, UINT8_MAX},
	{GENAI_DT_F8E4M3FNUZ, INT32_DATA, 1, 0, UINT8_MAX},
	{GENAI_DT_F8E5M2, INT32_DATA, 1, 0, UINT8_MAX},
	{GENAI_DT_F8E5M2FNUZ, INT32_DATA, 1, 0, UINT8_MAX},
	{GENAI_DT_F8E8M0, INT32_DATA, 1, 0, UINT8_MAX},
};

static const char *const field_names[] = {
	"no data",    "?",	    "?",	   "?",
	"float_data", "int32_data", "string_data", "int64_data",
	"?",	      "raw_data",   "double_data", "uint64_data"};

static const struct store *store_of(uint32_t dtype)
{
	size_t i;

	for (i = 0; i < sizeof(stores) / sizeof(stores[0]); i++)
		if (stores[i].dtype == dtype)
			return &stores[i];
	return NULL;
}

static uint32_t wire_of(uint32_t field)
{
	switch (field) {
	case FLOAT_DATA:
		return GENAI_WIRE_FIXED32;
	case DOUBLE_DATA:
		return GENAI_WIRE_FIXED64;
	case STRING_DATA:
		return GENAI_WIRE_BYTES;
	default:
		return GENAI_WIRE_VARINT;
	}
}

// Entries in one occurrence of a typed field.
static int count_entries(const struct genai_onnx_field *f, uint64_t *count)
{
	uint32_t wire = wire_of(f->number);
	uint64_t n = 0;
	size_t i;

	if (f->wire == wire) {
		++*count;
		return 1;
	}
	if (f->wire != GENAI_WIRE_BYTES)
		return 0;
	if (wire == GENAI_WIRE_VARINT) {
		for (i = 0; i < f->bytes; i++)
			n += f->data[i] < 0x80;
		*count += n;
		return !f->bytes || f->data[f->bytes - 1] < 0x80;
	}
	n = wire == GENAI_WIRE_FIXED32 ? 4 : 8;
	*count += f->bytes / n;
	return f->bytes % n == 0;
}

static int32_t note_field(struct genai_payload *p,
			  const struct genai_onnx_field *f,
			  struct genai_error *err)
{
	uint64_t before = p->count;

	switch (f->number) {
	case SEGMENT:
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "segmented data is not supported");
	case RAW_DATA:
		if (f->wire == GENAI_WIRE_BYTES && f->bytes) {
			p->raw = f->data;
			p->raw_bytes = f->bytes;
		}
		return GENAI_OK;
	case FLOAT_DATA:
	case INT32_DATA:
	case STRING_DATA:
	case INT64_DATA:
	case DOUBLE_DATA:
	case UINT64_DATA:
		break;
	default:
		return GENAI_OK;
	}
	if (!count_entries(f, &p->count))
		return genai_fail(err, GENAI_E_FORMAT, "%s is malformed",
				  field_names[f->number]);
	if (p->count == before)
		return GENAI_OK;
	if (p->field && p->field != f->number)
		return genai_fail(err, GENAI_E_FORMAT, "both %s and %s",
				  field_names[p->field],
				  field_names[f->number]);
	p->field = f->number;
	return GENAI_OK;
}

int32_t genai_payload_find(const uint8_t *message, size_t bytes,
			   struct genai_payload *out_p, struct genai_error *err)
{
	const uint8_t *at = message, *end = message + bytes;
	struct genai_onnx_field f;
	struct genai_payload p;

	memset(&p, 0, sizeof(p));
	p.message = message;
	p.message_bytes = bytes;
	while (at < end) {
		const char *why = genai_onnx_next(&at, end, &f);
		int32_t rc;

		if (why)
			return genai_fail(err, GENAI_E_FORMAT, "%s", why);
		rc = note_field(&p, &f, err);
		if (rc)
			return rc;
	}
	if (p.raw && p.field)
		return genai_fail(err, GENAI_E_FORMAT, "both raw_data and %s",
				  field_names[p.field]);
	*out_p = p;
	return GENAI_OK;
}

int32_t genai_payload_check(const struct genai_payload *p, uint32_t dtype,
			    uint64_t bytes, struct genai_error *err)
{
	const struct store *s = store_of(dtype);
	uint64_t entries;

	if (!s)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s is not supported",
				  genai_dtype_name(dtype));
	if (p->raw || (!p->field && bytes)) {
		if (p->raw_bytes == bytes)
			return GENAI_OK;
		return genai_fail(
			err, GENAI_E_FORMAT,
			"its shape needs %llu bytes, raw_data has %llu",
			(unsigned long long)bytes,
			(unsigned long long)p->raw_bytes);
	}
	if (p->field && p->field != s->field)
		return genai_fail(err, GENAI_E_FORMAT, "%s data in %s",
				  genai_dtype_name(dtype),
				  field_names[p->field]);
	entries = bytes / s->bytes;
	if (p->count == entries)
		return GENAI_OK;
	return genai_fail(err, GENAI_E_FORMAT,
			  "its shape needs %llu entries, %s has %llu",
			  (unsigned long long)entries, field_names[s->field],
			  (unsigned long long)p->count);
}

struct sink {
	const struct store *store;
	uint8_t *dst;
	uint64_t i;
	uint64_t n;
};

// Store one entry; 0 if it is out of range or one too many.
static int put(struct sink *k, uint64_t v)
{
	const struct store *s = k->store;

	if (k->i == k->n)
		return 0;
	if (s->field == INT32_DATA) {
		int64_t x = (int32_t)(uint32_t)v; // what a parser makes of it

		if (x < s->low || x > s->high)
			return 0;
		v = (uint64_t)x;
	} else if (s->high && v > (uint64_t)s->high) {
		return 0;
	}
	memcpy(k->dst + k->i * s->bytes, &v, s->bytes);
	k->i++;
	return 1;
}

static int put_block(struct sink *k, const struct genai_onnx_field *f)
{
	uint32_t wire = wire_of(k->store->field);
	const uint8_t *at = f->data, *end = f->data + f->bytes;
	size_t step = wire == GENAI_WIRE_FIXED32 ? 4 : 8;
	uint64_t v;

	while (at < end) {
		if (wire == GENAI_WIRE_VARINT) {
			if (!genai_onnx_varint(&at, end, &v))
				return 0;
		} else {
			if ((size_t)(end - at) < step)
				return 0;
			v = 0;
			memcpy(&v, at, step);
			at += step;
		}
		if (!put(k, v))
			return 0;
	}
	return 1;
}

int32_t genai_payload_decode(const struct genai_payload *p, uint32_t dtype,
			     void *dst, uint64_t bytes, struct genai_error *err)
{
	const uint8_t *at = p->message, *end = p->message + p->message_bytes;
	struct genai_onnx_field f;
	struct sink k = {store_of(dtype), dst, 0, 0};
	int ok = 1;

	if (!k.store)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s is not supported",
				  genai_dtype_name(dtype));
	k.n = bytes / k.store->bytes;
	while (ok && at < end) {
		ok = !genai_onnx_next(&at, end, &f);
		if (ok && f.number == k.store->field)
			ok = f.wire == GENAI_WIRE_BYTES ? put_block(&k, &f)
							: put(&k, f.value);
	}
	if (ok && k.i == k.n)
		return GENAI_OK;
	return genai_fail(err, GENAI_E_FORMAT,
			  "%s entry %llu is out of range for %s",
			  field_names[k.store->field], (unsigned long long)k.i,
			  genai_dtype_name(dtype));
}
