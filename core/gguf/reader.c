// reader.c - the GGUF container: header, keys, tensor table.
#include "core/gguf/gguf.h"
#include "core/gguf/blocks.h"
#include "core/base/error.h"
#include "core/base/kind.h"
#include "core/base/mapping.h"
#include "core/base/half.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 65535u
#define TENSOR_NAME_MAX 64u
#define ALIGN_MAX 65536u
#define PARTS_MAX 99999u // as many as their names can number
#define PATH_BYTES 4200

struct genai_gguf {
	struct genai_mapping *map;
	struct genai_gguf_kv *kvs; // sorted by key
	uint64_t n_kvs;
	struct genai_gguf_tensor *tensors; // as in the file
	struct genai_gguf_tensor **by_name;
	uint64_t n_tensors;
	struct genai_gguf **parts; // those after this, the first
	uint64_t n_parts;
};

// Where reading stands.  pos never passes size.
struct cursor {
	const char *path;
	const uint8_t *base;
	uint64_t size, pos;
	struct genai_error *err;
};

static int32_t bad(struct cursor *c, const char *what, const char *name,
		   size_t len)
{
	return genai_fail(c->err, GENAI_E_FORMAT, "%s: byte %llu: %s%s%.*s%s",
			  c->path, (unsigned long long)c->pos, what,
			  name ? " '" : "",
			  name ? (int)(len < 80 ? len : 80) : 0,
			  name ? name : "", name ? "'" : "");
}

static int32_t need(struct cursor *c, uint64_t bytes, const char *what)
{
	uint64_t left = c->size - c->pos;

	if (bytes <= left)
		return GENAI_OK;
	return genai_fail(c->err, GENAI_E_FORMAT,
			  "%s: byte %llu: %s needs %llu bytes, %llu are left",
			  c->path, (unsigned long long)c->pos, what,
			  (unsigned long long)bytes, (unsigned long long)left);
}

static uint64_t little(const uint8_t *p, uint32_t bytes)
{
	uint64_t v = 0;

	for (uint32_t i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << 8 * i;
	return v;
}

static int32_t get(struct cursor *c, uint32_t bytes, const char *what,
		   uint64_t *out)
{
	int32_t rc = need(c, bytes, what);

	if (rc)
		return rc;
	*out = little(c->base + c->pos, bytes);
	c->pos += bytes;
	return GENAI_OK;
}

static int32_t get_string(struct cursor *c, const char *what,
			  struct genai_gguf_string *out)
{
	uint64_t len = 0;
	int32_t rc = get(c, 8, what, &len);

	if (!rc)
		rc = need(c, len, what);
	if (rc)
		return rc;
	out->data = (const char *)c->base + c->pos;
	out->bytes = len;
	c->pos += len;
	return GENAI_OK;
}

// Bytes of a fixed-size value; 0 for strings, arrays and unknown types.
static uint32_t value_bytes(uint64_t type)
{
	static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

	return type < sizeof(bytes) ? bytes[type] : 0;
}

static int32_t get_array(struct cursor *c, struct genai_gguf_kv *kv)
{
	uint64_t elem = 0, bytes;
	struct genai_gguf_string s;
	int32_t rc = get(c, 4, "type of an array's elements", &elem);

	if (!rc)
		rc = get(c, 8, "length of an array", &kv->count);
	if (rc)
		return rc;
	kv->elem = (uint32_t)elem;
	kv->data = c->base + c->pos;
	if (elem == GENAI_GGUF_STRING) {
		for (uint64_t i = 0; i < kv->count && !rc; i++)
			rc = get_string(c, "string in an array", &s);
		return rc;
	}
	if (elem == GENAI_GGUF_ARRAY)
		return bad(c, "array of arrays in key", kv->key.data,
			   kv->key.bytes);
	if (!value_bytes(elem))
		return bad(c, "unknown element type in key", kv->key.data,
			   kv->key.bytes);
	if (__builtin_mul_overflow(kv->count, value_bytes(elem), &bytes))
		bytes = UINT64_MAX;
	rc = need(c, bytes, "array");
	if (!rc)
		c->pos += bytes;
	return rc;
}

static int32_t get_kv(struct cursor *c, struct genai_gguf_kv *kv)
{
	uint64_t type = 0, start;
	struct genai_gguf_string s;
	int32_t rc = get_string(c, "key", &kv->key);

	if (!rc && (!kv->key.bytes || kv->key.bytes > KEY_MAX ||
		    memchr(kv->key.data, 0, kv->key.bytes)))
		rc = bad(c,
			 "key that is empty, holds NUL or is over 65535 "
			 "bytes",
			 NULL, 0);
	if (!rc)
		rc = get(c, 4, "value type", &type);
	if (rc)
		return rc;
	start = c->pos;
	kv->type = (uint32_t)type;
	kv->data = c->base + c->pos;
	if (type == GENAI_GGUF_ARRAY) {
		rc = get_array(c, kv);
	} else if (type == GENAI_GGUF_STRING) {
		rc = get_string(c, "string value", &s);
	} else if (!value_bytes(type)) {
		rc = bad(c, "unknown value type in key", kv->key.data,
			 kv->key.bytes);
	} else {
		rc = need(c, value_bytes(type), "value");
		if (!rc && type == GENAI_GGUF_BOOL && *kv->data > 1)
			rc = bad(c, "boolean that is neither 0 nor 1 in key",
				 kv->key.data, kv->key.bytes);
		if (!rc)
			c->pos += value_bytes(type);
	}
	kv->bytes = c->pos - start;
	return rc;
}

// Elements and bytes of a tensor, from its dimensions and type.
static int32_t tensor_size(struct cursor *c, struct genai_gguf_tensor *t)
{
	const struct genai_gguf_type *type = genai_gguf_type(t->type);
	const char *name = genai_gguf_type_name(t->type);
	uint64_t n = 1;

	if (!type && !name)
		return genai_fail(c->err, GENAI_E_UNSUPPORTED,
				  "%s: tensor %s: a type of number %u is not "
				  "known",
				  c->path, t->name, t->type);
	if (!type)
		return genai_fail(c->err, GENAI_E_UNSUPPORTED,
				  "%s: tensor %s: type %s is not carried",
				  c->path, t->name, name);
	for (uint32_t i = 0; i < t->rank; i++)
		if (!t->dims[i] || __builtin_mul_overflow(n, t->dims[i], &n) ||
		    n > (uint64_t)1 << 44)
			return bad(c, "empty or oversized dimensions of tensor",
				   t->name, strlen(t->name));
	if (t->dims[0] % type->values)
		return genai_fail(c->err, GENAI_E_FORMAT,
				  "%s: tensor %s: rows of %llu are no multiple "
				  "of the %u values in a %s block",
				  c->path, t->name,
				  (unsigned long long)t->dims[0], type->values,
				  type->name);
	t->bytes = n / type->values * type->bytes; // below 2^46
	return GENAI_OK;
}

// Leaves the offset in data until the start of the data is known.
static int32_t get_tensor(struct cursor *c, struct genai_gguf_tensor *t,
			  uint64_t *out_offset)
{
	struct genai_gguf_string name;
	uint64_t v = 0;
	int32_t rc = get_string(c, "tensor name", &name);

	if (!rc && (!name.bytes || name.bytes > TENSOR_NAME_MAX ||
		    memchr(name.data, 0, name.bytes)))
		rc = bad(c,
			 "tensor name that is empty, holds NUL or is over "
			 "64 bytes",
			 NULL, 0);
	if (!rc)
		rc = get(c, 4, "number of dimensions", &v);
	if (rc)
		return rc;
	memcpy(t->name, name.data, name.bytes);
	t->name[name.bytes] = 0;
	if (v < 1 || v > 4)
		return bad(c, "not 1 to 4 dimensions: tensor", t->name,
			   name.bytes);
	t->rank = (uint32_t)v;
	for (uint32_t i = 0; i < 4; i++) {
		t->dims[i] = 1;
		if (i < t->rank && !rc)
			rc = get(c, 8, "dimension", &t->dims[i]);
	}
	if (!rc)
		rc = get(c, 4, "tensor type", &v);
	t->type = (uint32_t)v;
	if (!rc)
		rc = get(c, 8, "tensor offset", out_offset);
	return rc ? rc : tensor_size(c, t);
}

static int compare_strings(const struct genai_gguf_string *a,
			   const struct genai_gguf_string *b)
{
	uint64_t n = a->bytes < b->bytes ? a->bytes : b->bytes;
	int d = memcmp(a->data, b->data, n);

	return d ? d : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int compare_kvs(const void *a, const void *b)
{
	return compare_strings(&((const struct genai_gguf_kv *)a)->key,
			       &((const struct genai_gguf_kv *)b)->key);
}

static int compare_names(const void *a, const void *b)
{
	const struct genai_gguf_tensor *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static int compare_places(const void *a, const void *b)
{
	const struct genai_gguf_tensor *const *x = a, *const *y = b;

	return ((*x)->data > (*y)->data) - ((*x)->data < (*y)->data);
}

static int32_t read_kvs(struct cursor *c, struct genai_gguf *g)
{
	int32_t rc = GENAI_OK;

	// The smallest key takes 14 bytes: a count above that is a lie.
	if (g->n_kvs > (c->size - c->pos) / 14)
		return bad(c, "more keys than the file has room for", NULL, 0);
	g->kvs = calloc(g->n_kvs + 1, sizeof(*g->kvs));
	if (!g->kvs)
		return genai_fail(c->err, GENAI_E_NOMEM,
				  "%s: no memory for %llu keys", c->path,
				  (unsigned long long)g->n_kvs);
	for (uint64_t i = 0; i < g->n_kvs && !rc; i++)
		rc = get_kv(c, &g->kvs[i]);
	if (rc)
		return rc;
	qsort(g->kvs, g->n_kvs, sizeof(*g->kvs), compare_kvs);
	for (uint64_t i = 1; i < g->n_kvs; i++)
		if (!compare_kvs(&g->kvs[i - 1], &g->kvs[i]))
			return bad(c, "two keys named", g->kvs[i].key.data,
				   g->kvs[i].key.bytes);
	return GENAI_OK;
}

static int32_t read_alignment(struct cursor *c, const struct genai_gguf *g,
			      uint64_t *out_align)
{
	const struct genai_gguf_kv *kv =
		genai_gguf_find(g, "general.alignment");
	uint64_t v = 32;

	if (kv && (kv->type != GENAI_GGUF_U32 || !genai_gguf_uint(kv, &v) ||
		   !v || v & (v - 1) || v > ALIGN_MAX))
		return genai_fail(c->err, GENAI_E_FORMAT,
				  "%s: general.alignment must be a u32 power "
				  "of two up to %u",
				  c->path, ALIGN_MAX);
	*out_align = v;
	return GENAI_OK;
}

// Turn offsets into places in the mapping; start is where the data begins.
static int32_t place_tensors(struct cursor *c, struct genai_gguf *g,
			     const uint64_t *offsets, uint64_t align)
{
	uint64_t start = (c->pos + align - 1) & ~(align - 1);

	for (uint64_t i = 0; i < g->n_tensors; i++) {
		struct genai_gguf_tensor *t = &g->tensors[i];
		uint64_t end;

		if (offsets[i] % align)
			return bad(c, "offset that is not aligned: tensor",
				   t->name, strlen(t->name));
		if (start > c->size ||
		    __builtin_add_overflow(offsets[i], t->bytes, &end) ||
		    end > c->size - start)
			return genai_fail(
				c->err, GENAI_E_FORMAT,
				"%s: tensor %s: %llu bytes at offset %llu of "
				"the data, which has %llu: truncated file?",
				c->path, t->name, (unsigned long long)t->bytes,
				(unsigned long long)offsets[i],
				(unsigned long long)(start > c->size
							     ? 0
							     : c->size -
								       start));
		t->data = c->base + start + offsets[i];
	}
	return GENAI_OK;
}

static int32_t check_tensors(struct cursor *c, struct genai_gguf *g)
{
	struct genai_gguf_tensor **p = g->by_name;

	for (uint64_t i = 0; i < g->n_tensors; i++)
		p[i] = &g->tensors[i];
	qsort(p, g->n_tensors, sizeof(*p), compare_places);
	for (uint64_t i = 1; i < g->n_tensors; i++)
		if (p[i - 1]->data + p[i - 1]->bytes > p[i]->data)
			return genai_fail(c->err, GENAI_E_FORMAT,
					  "%s: tensors %s and %s overlap",
					  c->path, p[i - 1]->name, p[i]->name);
	qsort(p, g->n_tensors, sizeof(*p), compare_names);
	for (uint64_t i = 1; i < g->n_tensors; i++)
		if (!strcmp(p[i - 1]->name, p[i]->name))
			return bad(c, "two tensors named", p[i]->name,
				   strlen(p[i]->name));
	return GENAI_OK;
}

static int32_t read_tensors(struct cursor *c, struct genai_gguf *g)
{
	uint64_t *offsets, align = 0;
	int32_t rc;

	// 33 bytes: a name of one byte, one dimension.
	if (g->n_tensors > (c->size - c->pos) / 33)
		return bad(c, "more tensors than the file has room for", NULL,
			   0);
	g->tensors = calloc(g->n_tensors + 1, sizeof(*g->tensors));
	g->by_name = calloc(g->n_tensors + 1, sizeof(*g->by_name));
	offsets = calloc(g->n_tensors + 1, sizeof(*offsets));
	if (!g->tensors || !g->by_name || !offsets) {
		rc = genai_fail(c->err, GENAI_E_NOMEM,
				"%s: no memory for %llu tensors", c->path,
				(unsigned long long)g->n_tensors);
		goto out;
	}
	rc = read_alignment(c, g, &align);
	for (uint64_t i = 0; i < g->n_tensors && !rc; i++)
		rc = get_tensor(c, &g->tensors[i], &offsets[i]);
	if (!rc)
		rc = place_tensors(c, g, offsets, align);
	if (!rc)
		rc = check_tensors(c, g);
out:
	free(offsets);
	return rc;
}

static int32_t read_header(struct cursor *c, struct genai_gguf *g)
{
	static const char lfs[] = "version https://git-lfs";
	uint64_t version = 0;
	const char *text;
	int32_t rc;

	if (c->size >= sizeof(lfs) - 1 &&
	    !memcmp(c->base, lfs, sizeof(lfs) - 1))
		return genai_fail(c->err, GENAI_E_FORMAT,
				  "%s: is a Git LFS pointer, not the file "
				  "itself; run git lfs pull",
				  c->path);
	text = genai_text_kind(c->base, c->size);
	if (text && memcmp(c->base, "GGUF", 4) != 0)
		return genai_fail(c->err, GENAI_E_FORMAT,
				  "%s: this is %s, not a GGUF file", c->path,
				  text);
	rc = need(c, 24, "GGUF header");
	if (rc)
		return rc;
	if (memcmp(c->base, "GGUF", 4))
		return bad(c, "does not begin with GGUF", NULL, 0);
	c->pos = 4;
	get(c, 4, "version", &version);
	if (version & 0xffff0000u && !(version & 0xffff))
		return genai_fail(c->err, GENAI_E_UNSUPPORTED,
				  "%s: big-endian GGUF is not carried",
				  c->path);
	if (version != 2 && version != 3)
		return genai_fail(c->err, GENAI_E_UNSUPPORTED,
				  "%s: GGUF version %llu; 2 and 3 are carried",
				  c->path, (unsigned long long)version);
	get(c, 8, "tensor count", &g->n_tensors);
	return get(c, 8, "key count", &g->n_kvs);
}

static int32_t open_file(const char *path, struct genai_gguf **out_gguf,
			 struct genai_error *err)
{
	struct genai_gguf *g = calloc(1, sizeof(*g));
	struct cursor c = {path, NULL, 0, 0, err};
	int32_t rc;

	*out_gguf = NULL;
	if (!g)
		return genai_fail(err, GENAI_E_NOMEM, "%s: no memory", path);
	rc = genai_mapping_open(path, &g->map, err);
	if (rc)
		goto out;
	c.base = genai_mapping_data(g->map);
	c.size = genai_mapping_bytes(g->map);
	rc = read_header(&c, g);
	if (!rc)
		rc = read_kvs(&c, g);
	if (!rc)
		rc = read_tensors(&c, g);
	if (!rc)
		rc = genai_mapping_check(g->map, err);
out:
	if (rc)
		genai_gguf_close(g);
	else
		*out_gguf = g;
	return rc;
}

// ---- files split into parts ----
//
// NAME-00001-of-00003.gguf has all keys; the others say which part they are.
// The tensors are anywhere.

// A part says nothing but what the first says, too: its number aside, and where
// its own tensors are.
static int32_t check_part(const struct genai_gguf *first,
			  const struct genai_gguf *part, uint64_t no,
			  struct genai_error *err)
{
	const char *path = genai_gguf_path(part);
	uint64_t n = 0;

	if (!genai_gguf_find(part, "split.count") ||
	    !genai_gguf_uint(genai_gguf_find(part, "split.no"), &n) || n != no)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: does not say that it is part %llu: its "
				  "split.count or split.no is another",
				  path, (unsigned long long)no + 1);
	for (uint64_t i = 0; i < part->n_kvs; i++) {
		const struct genai_gguf_kv *kv = &part->kvs[i], *same;
		static const struct genai_gguf_kv own[] = {
			{.key = {"split.no", 8}},
			{.key = {"general.alignment", 17}}};

		if (!compare_kvs(kv, &own[0]) || !compare_kvs(kv, &own[1]))
			continue;
		same = bsearch(kv, first->kvs, first->n_kvs, sizeof(*kv),
			       compare_kvs);
		if (!same || same->type != kv->type ||
		    same->bytes != kv->bytes ||
		    memcmp(same->data, kv->data, kv->bytes))
			return genai_fail(
				err, GENAI_E_FORMAT,
				"%s: key %.*s is not what it is in %s: a part "
				"of another model?",
				path,
				(int)(kv->key.bytes < 90 ? kv->key.bytes : 90),
				kv->key.data, genai_gguf_path(first));
	}
	return GENAI_OK;
}

// The tensors of all parts become those of the first.
static int32_t join_parts(struct genai_gguf *g, struct genai_error *err)
{
	struct genai_gguf_tensor *all, **names;
	uint64_t n = g->n_tensors, want;

	for (uint64_t i = 0; i < g->n_parts; i++)
		n += g->parts[i]->n_tensors;
	if (genai_gguf_uint(genai_gguf_find(g, "split.tensors.count"), &want) &&
	    want != n)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: split.tensors.count is %llu, the parts "
				  "have %llu",
				  genai_gguf_path(g), (unsigned long long)want,
				  (unsigned long long)n);
	all = realloc(g->tensors, (n + 1) * sizeof(*all));
	if (all)
		g->tensors = all;
	names = realloc(g->by_name, (n + 1) * sizeof(*names));
	if (names)
		g->by_name = names;
	if (!all || !names)
		return genai_fail(err, GENAI_E_NOMEM,
				  "%s: no memory for %llu tensors",
				  genai_gguf_path(g), (unsigned long long)n);
	all += g->n_tensors;
	for (uint64_t i = 0; i < g->n_parts; i++) {
		const struct genai_gguf *part = g->parts[i];

		memcpy(all, part->tensors, part->n_tensors * sizeof(*all));
		all += part->n_tensors;
	}
	g->n_tensors = n;
	for (uint64_t i = 0; i < n; i++)
		names[i] = &g->tensors[i];
	qsort(names, n, sizeof(*names), compare_names);
	for (uint64_t i = 1; i < n; i++)
		if (!strcmp(names[i - 1]->name, names[i]->name))
			return genai_fail(err, GENAI_E_FORMAT,
					  "%s: tensor %s is in two parts",
					  genai_gguf_path(g), names[i]->name);
	return GENAI_OK;
}

static int32_t open_part(const char *given, size_t stem, uint64_t no,
			 uint64_t count, struct genai_gguf **out,
			 struct genai_error *err)
{
	char path[PATH_BYTES];
	int32_t rc;

	if (snprintf(path, sizeof(path), "%.*s-%05llu-of-%05llu.gguf",
		     (int)stem, given, (unsigned long long)no + 1,
		     (unsigned long long)count) >= (int)sizeof(path))
		return genai_fail(err, GENAI_E_INVAL, "%.64s...: path too long",
				  given);
	rc = open_file(path, out, err);
	if (rc == GENAI_E_NOTFOUND)
		return genai_fail(err, rc,
				  "%s: is missing: %s is one of %llu parts",
				  path, given, (unsigned long long)count);
	return rc;
}

// All the parts of a file that is one of them, which is consumed.
static int32_t open_parts(const char *path, struct genai_gguf *g,
			  uint64_t count, struct genai_gguf **out_gguf,
			  struct genai_error *err)
{
	uint64_t no = UINT64_MAX;
	char end[64];
	size_t n = strlen(path), m;
	int32_t rc = GENAI_OK;

	genai_gguf_uint(genai_gguf_find(g, "split.no"), &no);
	genai_gguf_close(g);
	if (count > PARTS_MAX || no >= count)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: split.no and split.count are not those "
				  "of one of up to %u parts",
				  path, PARTS_MAX);
	m = (size_t)snprintf(end, sizeof(end), "-%05llu-of-%05llu.gguf",
			     (unsigned long long)no + 1,
			     (unsigned long long)count);
	if (n <= m || strcmp(path + n - m, end) != 0)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: is part %llu of %llu: its name must end "
				  "in %s, so that the others are found",
				  path, (unsigned long long)no + 1,
				  (unsigned long long)count, end);
	rc = open_part(path, n - m, 0, count, &g, err);
	if (rc)
		return rc;
	rc = check_part(g, g, 0, err);
	if (!rc) {
		g->parts = calloc(count, sizeof(*g->parts));
		if (!g->parts)
			rc = genai_fail(err, GENAI_E_NOMEM, "%s: no memory",
					path);
	}
	while (!rc && g->n_parts + 1 < count) {
		struct genai_gguf **part = &g->parts[g->n_parts];

		rc = open_part(path, n - m, g->n_parts + 1, count, part, err);
		if (rc)
			break;
		g->n_parts++;
		rc = check_part(g, *part, g->n_parts, err);
	}
	if (!rc)
		rc = join_parts(g, err);
	if (rc)
		genai_gguf_close(g);
	else
		*out_gguf = g;
	return rc;
}

int32_t genai_gguf_open(const char *path, struct genai_gguf **out_gguf,
			struct genai_error *err)
{
	const struct genai_gguf_kv *kv;
	struct genai_gguf *g;
	uint64_t count = 0;
	int32_t rc = open_file(path, &g, err);

	*out_gguf = NULL;
	if (rc)
		return rc;
	kv = genai_gguf_find(g, "split.count");
	if (kv && !genai_gguf_uint(kv, &count)) {
		genai_gguf_close(g);
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: split.count is no number", path);
	}
	if (count > 1) // 0 in a file that was merged
		return open_parts(path, g, count, out_gguf, err);
	*out_gguf = g;
	return GENAI_OK;
}

void genai_gguf_close(struct genai_gguf *gguf)
{
	if (!gguf)
		return;
	for (uint64_t i = 0; i < gguf->n_parts; i++)
		genai_gguf_close(gguf->parts[i]);
	if (gguf->map)
		genai_mapping_close(gguf->map);
	free(gguf->parts);
	free(gguf->kvs);
	free(gguf->tensors);
	free(gguf->by_name);
	free(gguf);
}

int32_t genai_gguf_check(const struct genai_gguf *gguf, struct genai_error *err)
{
	int32_t rc = genai_mapping_check(gguf->map, err);

	for (uint64_t i = 0; i < gguf->n_parts && !rc; i++)
		rc = genai_mapping_check(gguf->parts[i]->map, err);
	return rc;
}

const char *genai_gguf_part_path(const struct genai_gguf *gguf, uint64_t index)
{
	return !index ? genai_gguf_path(gguf)
	       : index <= gguf->n_parts
		       ? genai_gguf_path(gguf->parts[index - 1])
		       : NULL;
}

const char *genai_gguf_path(const struct genai_gguf *gguf)
{
	return genai_mapping_path(gguf->map);
}

uint64_t genai_gguf_n_tensors(const struct genai_gguf *gguf)
{
	return gguf->n_tensors;
}

const struct genai_gguf_tensor *
genai_gguf_tensor_at(const struct genai_gguf *gguf, uint64_t index)
{
	return index < gguf->n_tensors ? &gguf->tensors[index] : NULL;
}

const struct genai_gguf_tensor *
genai_gguf_tensor_find(const struct genai_gguf *gguf, const char *name)
{
	uint64_t lo = 0, hi = gguf->n_tensors;

	while (lo < hi) {
		uint64_t mid = lo + (hi - lo) / 2;
		int d = strcmp(name, gguf->by_name[mid]->name);

		if (!d)
			return gguf->by_name[mid];
		if (d < 0)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

const struct genai_gguf_kv *genai_gguf_key_at(const struct genai_gguf *gguf,
					      uint64_t index)
{
	return index < gguf->n_kvs ? &gguf->kvs[index] : NULL;
}

const struct genai_gguf_kv *genai_gguf_find(const struct genai_gguf *gguf,
					    const char *key)
{
	struct genai_gguf_kv k = {.key = {key, strlen(key)}};

	return bsearch(&k, gguf->kvs, gguf->n_kvs, sizeof(k), compare_kvs);
}

bool genai_gguf_uint(const struct genai_gguf_kv *kv, uint64_t *out_value)
{
	uint64_t v;
	uint32_t bytes;
	bool is_signed;

	if (!kv || kv->type == GENAI_GGUF_F32 || kv->type == GENAI_GGUF_F64)
		return false;
	bytes = value_bytes(kv->type);
	if (!bytes)
		return false;
	is_signed = kv->type == GENAI_GGUF_I8 || kv->type == GENAI_GGUF_I16 ||
		    kv->type == GENAI_GGUF_I32 || kv->type == GENAI_GGUF_I64;
	v = little(kv->data, bytes);
	if (is_signed && v >> (8 * bytes - 1))
		return false;
	*out_value = v;
	return true;
}

bool genai_gguf_float(const struct genai_gguf_kv *kv, double *out_value)
{
	uint64_t v;

	if (kv && kv->type == GENAI_GGUF_F32) {
		*out_value = (double)genai_float_from_bits(
			(uint32_t)little(kv->data, 4));
		return true;
	}
	if (kv && kv->type == GENAI_GGUF_F64) {
		v = little(kv->data, 8);
		memcpy(out_value, &v, sizeof(v));
		return true;
	}
	return false;
}

bool genai_gguf_str(const struct genai_gguf_kv *kv,
		    struct genai_gguf_string *out_value)
{
	if (!kv || kv->type != GENAI_GGUF_STRING)
		return false;
	out_value->data = (const char *)kv->data + 8;
	out_value->bytes = kv->bytes - 8;
	return true;
}

struct genai_gguf_string *genai_gguf_strings(const struct genai_gguf_kv *kv)
{
	struct genai_gguf_string *list;
	const uint8_t *p, *end;

	if (!kv || kv->type != GENAI_GGUF_ARRAY ||
	    kv->elem != GENAI_GGUF_STRING)
		return NULL;
	list = calloc(kv->count + 1, sizeof(*list));
	p = kv->data;
	end = p + kv->bytes - 12;
	for (uint64_t i = 0; list && i < kv->count; i++) {
		// Checked once more: the file may have changed under us.
		uint64_t left = (uint64_t)(end - p);
		uint64_t len = left < 8 ? UINT64_MAX : little(p, 8);

		if (len > left - 8) {
			free(list);
			return NULL;
		}
		list[i].bytes = len;
		list[i].data = (const char *)p + 8;
		p += 8 + len;
	}
	return list;
}
