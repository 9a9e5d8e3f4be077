// corpus_paged.c - PagedAttention: rows of several sequences, one behind the
// other, over a cache in blocks: each sequence against the definition, its
// bits alone and among others, and what of the cache may be written.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conform/corpus_gqa.h"

enum { SEQS = 4 };

struct paged {
	struct gqa t[SEQS];
	struct gqa_data x[SEQS];
	int64_t block, blocks, per; // rows of one; of the pool; of each
	uint64_t bytes;		    // of the pool
	uint64_t e;		    // of an element
	uint32_t longest;
	int32_t *table; // [SEQS, per]
	void *cache[2]; // keys, values: before
	void *after[2];
};

// Where row j of sequence b, head h, lies in the pool: the element.
static uint64_t place(const struct paged *p, uint32_t b, int64_t j, int64_t h)
{
	int64_t at = p->table[b * p->per + j / p->block];

	at = at * p->block + j % p->block;
	return (uint64_t)((at * p->t[b].kv + h) * p->t[b].size);
}

static void fill_past(struct paged *p, uint32_t b)
{
	const struct gqa *t = &p->t[b];
	const uint64_t n = (uint64_t)t->size * p->e;

	for (int64_t j = 0; j < t->past; j++)
		for (int64_t h = 0; h < t->kv; h++) {
			uint64_t to = place(p, b, j, h) * p->e;
			uint64_t from = (uint64_t)(h * p->x[b].rows + j) * n;

			memcpy((char *)p->cache[0] + to,
			       (char *)p->x[b].pk + from, n);
			memcpy((char *)p->cache[1] + to,
			       (char *)p->x[b].pv + from, n);
		}
}

// Blocks in disorder; what a sequence does not need of the table names none.
static void paged_make(struct paged *p)
{
	int64_t next = 0, most = 0;

	p->e = op_bytes(p->t[0].dtype, 0, NULL);
	for (uint32_t b = 0; b < SEQS; b++) {
		int64_t n = p->t[b].past + p->t[b].seq;

		p->longest = n > most ? b : p->longest;
		most = n > most ? n : most;
		p->blocks += (n + p->block - 1) / p->block;
	}
	p->blocks += 2;
	while (p->blocks % 7 == 0)
		p->blocks++;
	p->per = (most + p->block - 1) / p->block + 1;
	p->table = malloc((size_t)(SEQS * p->per) * sizeof(*p->table));
	gqa_make(&p->t[p->longest], &p->x[p->longest], NULL);
	for (uint32_t b = 0; b < SEQS; b++)
		if (b != p->longest)
			gqa_make(&p->t[b], &p->x[b], &p->x[p->longest]);
	for (uint32_t b = 0; b < SEQS; b++)
		for (int64_t i = 0; i < p->per; i++) {
			bool used = i * p->block < p->t[b].past + p->t[b].seq;

			// 7 is prime to their number: each once
			p->table[b * p->per + i] =
				used ? (int32_t)(7 * ++next % p->blocks) : -1;
		}
	p->bytes = (uint64_t)(p->blocks * p->block * p->t[0].kv *
			      p->t[0].size) *
		   p->e;
	for (int i = 0; i < 2; i++) {
		p->cache[i] = rnd_tensor(p->t[0].dtype, p->bytes / p->e, -2, 2);
		p->after[i] = malloc(p->bytes);
	}
	for (uint32_t b = 0; b < SEQS; b++)
		fill_past(p, b);
}

static void paged_unmake(struct paged *p)
{
	for (uint32_t b = 0; b < SEQS; b++)
		gqa_unmake(&p->x[b]);
	for (int i = 0; i < 2; i++) {
		free(p->cache[i]);
		free(p->after[i]);
	}
	free(p->table);
}

// The rows of a step: q, k or v of those of in, and padding.
static void *packed(const struct paged *p, const bool *in, int64_t rows,
		    int what)
{
	const struct gqa *t = p->t;
	uint64_t w = (uint64_t)((what ? t->kv : t->heads) * t->size) * p->e;
	char *to = calloc((size_t)rows + 1, w), *at = to;

	memset(to, 0x3c, (size_t)rows * w);
	for (uint32_t b = 0; b < SEQS; b++) {
		const struct gqa_data *x = &p->x[b];
		uint64_t n = (uint64_t)p->t[b].seq * w;

		if (!in[b])
			continue;
		memcpy(at, what == 0 ? x->q : what == 1 ? x->k : x->v, n);
		at += n;
	}
	return to;
}

static void attributes(struct op_graph *g, const struct gqa *t)
{
	op_attr_int(g, "num_heads", t->heads);
	op_attr_int(g, "kv_num_heads", t->kv);
	op_attr_int(g, "do_rotary", t->rot != 0);
	op_attr_int(g, "rotary_interleaved", t->interleaved);
	op_attr_int(g, "local_window_size", t->window ? t->window : -1);
	op_attr_float(g, "softcap", t->softcap);
	op_attr_float(g, "scale", t->scale);
	op_attr_int(g, "smooth_softmax", t->smooth);
}

static uint32_t opt(struct op_graph *g, bool on, uint32_t dtype, uint32_t rank,
		    const int64_t *dims, void *data)
{
	return on ? op_input(g, dtype, rank, dims, data) : GENAI_NONE;
}

// A step of the sequences of in and so many rows of padding; the others have
// no rows in it.
static int32_t step(struct check *c, struct paged *p, const bool *in,
		    int64_t padding, void *out, struct genai_error *err)
{
	const struct gqa *t = &p->t[p->longest];
	int32_t first[SEQS + 1] = {0}, past[SEQS];
	int64_t rows, width = t->heads * t->size, kw = t->kv * t->size;
	int64_t cd[2] = {t->past + t->seq, t->rot / 2};
	int64_t pool[4] = {p->blocks, p->block, t->kv, t->size};
	struct op_how how = {0};
	static struct op_graph g;
	uint32_t io[15], outs[4];
	void *v[3];
	int32_t rc;

	for (uint32_t b = 0; b < SEQS; b++) {
		past[b] = (int32_t)p->t[b].past;
		first[b + 1] = first[b] + (in[b] ? (int32_t)p->t[b].seq : 0);
	}
	rows = first[SEQS] + padding;
	for (int i = 0; i < 3; i++)
		v[i] = packed(p, in, rows, i);
	for (int i = 0; i < 2; i++)
		memcpy(p->after[i], p->cache[i], p->bytes);
	op_graph_init(&g);
	io[0] = op_input(&g, t->dtype, 2, (int64_t[]){rows, width}, v[0]);
	io[1] = op_input(&g, t->dtype, 2, (int64_t[]){rows, kw}, v[1]);
	io[2] = op_input(&g, t->dtype, 2, (int64_t[]){rows, kw}, v[2]);
	io[3] = op_input(&g, t->dtype, 4, pool, p->after[0]);
	io[4] = op_input(&g, t->dtype, 4, pool, p->after[1]);
	io[5] = op_input(&g, GENAI_DT_I32, 1, (int64_t[]){SEQS + 1}, first);
	io[6] = op_input(&g, GENAI_DT_I32, 1, (int64_t[]){SEQS}, past);
	io[7] = op_input(&g, GENAI_DT_I32, 2, (int64_t[]){SEQS, p->per},
			 p->table);
	io[8] = opt(&g, t->rot, t->dtype, 2, cd, p->x[p->longest].cosc);
	io[9] = opt(&g, t->rot, t->dtype, 2, cd, p->x[p->longest].sinc);
	io[10] = opt(&g, t->sink, t->dtype, 1, &t->heads, p->x[0].sink);
	io[11] = opt(&g, t->norm, t->dtype, 1, &t->size, p->x[0].qn);
	io[12] = opt(&g, t->norm, t->dtype, 1, &t->size, p->x[0].kn);
	io[13] = OP_END;
	op_node(&g, "com.microsoft", "PagedAttention", io);
	attributes(&g, t);
	outs[0] = op_output(&g, t->dtype, 2, (int64_t[]){rows, width}, out);
	outs[1] = op_output(&g, t->dtype, 4, pool, p->after[0]);
	outs[2] = op_output(&g, t->dtype, 4, pool, p->after[1]);
	outs[3] = OP_END;
	op_node_out(&g, outs);
	op_over(&g, outs[1], io[3]);
	op_over(&g, outs[2], io[4]);
	rc = c->run(c, &g, &how, err);
	for (int i = 0; i < 3; i++)
		free(v[i]);
	return rc;
}

// New rows are in their places, within a rounding; the rest is as it was.
static void check_pool(struct check *c, struct paged *p)
{
	double v[256], u = unit_of(p->t[0].dtype);
	int64_t bad = 0;

	for (uint32_t b = 0; b < SEQS; b++) {
		const struct gqa *t = &p->t[b];

		for (int64_t i = 0; i < t->seq * t->kv * 2; i++) {
			int64_t j = t->past + i / 2 / t->kv;
			int64_t h = i / 2 % t->kv;
			uint64_t at = place(p, b, j, h);
			int what = (int)(i % 2);

			gqa_cached(t, &p->x[b], j, h, 1 + what, v);
			for (int64_t d = 0; d < t->size; d++) {
				double got = op_load(t->dtype, p->after[what],
						     at + (uint64_t)d);

				bad += !(fabs(got - v[d]) <=
					 2.1 * u * fabs(v[d]) + 1e-5);
			}
			memcpy((char *)p->after[what] + at * p->e,
			       (char *)p->cache[what] + at * p->e,
			       (uint64_t)t->size * p->e);
		}
	}
	check_result(c, !bad, "%lld elements of new rows are wrong",
		     (long long)bad);
	check_same(c, p->cache[0], p->after[0], p->bytes);
	check_same(c, p->cache[1], p->after[1], p->bytes);
}

static void check_rows(struct check *c, const struct paged *p, const void *out)
{
	uint64_t size = (uint64_t)p->t[0].size, n = 0;
	double *want, *tol;
	int64_t rows = 0;

	for (uint32_t b = 0; b < SEQS; b++)
		rows += p->t[b].seq;
	n = (uint64_t)(rows * p->t[0].heads) * size;
	want = calloc(n + 1, sizeof(*want));
	tol = calloc(n + 1, sizeof(*tol));
	n = 0;
	for (uint32_t b = 0; b < SEQS; b++)
		for (int64_t i = 0; i < p->t[b].seq * p->t[b].heads; i++) {
			gqa_want_row(&p->t[b], &p->x[b], i / p->t[b].heads,
				     i % p->t[b].heads, want + n, tol + n);
			n += size;
		}
	check_close(c, p->t[0].dtype, out, want, tol, n);
	free(want);
	free(tol);
}

// The same rows of one sequence through GroupQueryAttention, over a cache in
// one piece: the same bits, whatever is beside them in a packed step.
static void check_gqa(struct check *c, const struct paged *p, uint32_t b,
		      const void *got)
{
	const struct gqa *t = &p->t[b];
	uint64_t bytes = (uint64_t)(t->seq * t->heads * t->size) * p->e;
	struct genai_error err = GENAI_ERROR_INIT;
	struct gqa one = *t;
	struct gqa_data x;

	one.cap = t->past + t->seq;
	gqa_make(&one, &x, &p->x[b]);
	memcpy(x.q, p->x[b].q, bytes);
	memcpy(x.k, p->x[b].k, (uint64_t)(t->seq * t->kv * t->size) * p->e);
	memcpy(x.v, p->x[b].v, (uint64_t)(t->seq * t->kv * t->size) * p->e);
	memcpy(x.pk, p->x[b].pk,
	       (uint64_t)(t->kv * p->x[b].rows * t->size) * p->e);
	memcpy(x.pv, p->x[b].pv,
	       (uint64_t)(t->kv * p->x[b].rows * t->size) * p->e);
	if (gqa_run(c, &one, &x, &err))
		check_result(c, false, "%s", err.text);
	else
		check_same(c, x.out, got, bytes);
	gqa_unmake(&x);
}

// t: what the sequences have in common; rows: past and new ones of each.
static void paged_case(struct check *c, const struct gqa *t, int64_t block,
		       int64_t padding, const int64_t rows[SEQS][2])
{
	uint64_t width = (uint64_t)(t->heads * t->size), at = 0;
	struct genai_error err = GENAI_ERROR_INIT;
	bool all[SEQS] = {true, true, true, true};
	struct paged p = {.block = block};
	char *out, *alone, *nothing;
	int64_t n = padding;
	int32_t rc;

	if (!check_begin(c,
			 "paged dtype %u heads %lld/%lld size %lld block %lld "
			 "padding %lld, %lld+%lld %lld+%lld %lld+%lld "
			 "%lld+%lld",
			 t->dtype, (long long)t->heads, (long long)t->kv,
			 (long long)t->size, (long long)block,
			 (long long)padding, (long long)rows[0][0],
			 (long long)rows[0][1], (long long)rows[1][0],
			 (long long)rows[1][1], (long long)rows[2][0],
			 (long long)rows[2][1], (long long)rows[3][0],
			 (long long)rows[3][1]))
		return;
	for (uint32_t b = 0; b < SEQS; b++) {
		p.t[b] = *t;
		p.t[b].past = rows[b][0];
		p.t[b].seq = rows[b][1];
		if (!t->scale)
			p.t[b].scale = 1 / sqrt((double)t->size);
		n += rows[b][1];
	}
	paged_make(&p);
	out = malloc((size_t)n * width * 4);
	alone = malloc((size_t)n * width * 4);
	nothing = calloc((size_t)padding + 1, width * 4);
	rc = step(c, &p, all, padding, out, &err);
	if (rc) {
		check_result(c, false, "%s", err.text);
	} else {
		check_rows(c, &p, out);
		at = (uint64_t)(n - padding) * width * p.e;
		check_same(c, nothing, out + at,
			   (uint64_t)padding * width * p.e);
		check_pool(c, &p);
	}
	at = 0;
	for (uint32_t b = 0; !rc && b < SEQS; b++) {
		bool one[SEQS] = {false};
		uint64_t bytes = (uint64_t)p.t[b].seq * width * p.e;

		one[b] = true;
		rc = step(c, &p, one, 0, alone, &err);
		if (rc)
			check_result(c, false, "%s", err.text);
		else
			check_same(c, alone, out + at, bytes);
		// more rows than these may have another order there
		if (!rc && p.t[b].seq <= 16)
			check_gqa(c, &p, b, out + at);
		at += bytes;
	}
	free(out);
	free(alone);
	free(nothing);
	paged_unmake(&p);
}

void corpus_paged(struct check *c)
{
	static const uint32_t floats[3] = {GENAI_DT_F32, GENAI_DT_F16,
					   GENAI_DT_BF16};
	static const int64_t decode[SEQS][2] = {{0, 1}, {5, 1}, {64, 1},
						{200, 1}};
	static const int64_t mixed[SEQS][2] = {{7, 1}, {64, 1}, {0, 33},
					       {130, 2}};
	static const int64_t prompts[SEQS][2] = {{0, 17}, {31, 16}, {15, 5},
						 {63, 65}};
	static const int64_t blocks[] = {1, 7, 16, 32, 64, 128, 300};

	for (int d = 0; d < 3; d++) {
		const struct gqa plain = {.dtype = floats[d], .heads = 4,
					  .kv = 2, .size = 64, .rot = 64};
		struct gqa t = plain;

		for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++) {
			paged_case(c, &t, blocks[i], (int64_t)i, decode);
			paged_case(c, &t, blocks[i], 3, mixed);
		}
		paged_case(c, &t, 16, 0, prompts);
		t.heads = 7;
		t.kv = 1;
		t.size = 32;
		t.rot = 16;
		t.interleaved = true;
		paged_case(c, &t, 16, 1, mixed);
		t = plain;
		t.window = 20;
		t.sink = true;
		paged_case(c, &t, 16, 2, mixed);
		paged_case(c, &t, 32, 0, decode);
		t = plain;
		t.norm = true;
		t.softcap = 5;
		t.scale = .3;
		paged_case(c, &t, 32, 5, mixed);
		t = plain;
		t.rot = 0;
		t.smooth = true;
		paged_case(c, &t, 16, 1, prompts);
	}
}
