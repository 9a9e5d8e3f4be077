// logits.c - the logits of every position, and perplexity.
#include "tools/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int32_t nan_at(struct cli *c, uint64_t position)
{
	return genai_fail(&c->err, GENAI_E_DEVICE,
			  "the model produced NaN at position %" PRIu64,
			  position);
}

// ---- logits ----

struct logits {
	const char *model, *ids, *out;
	int64_t top;
	int64_t *chunks;
	size_t n_chunks;
};
static struct logits logits;

static int set_chunks(struct cli *c, const char *value)
{
	struct logits *o = &logits;

	free(o->chunks);
	o->chunks = NULL;
	if (!cli_ids(c, value, &o->chunks, &o->n_chunks) || !o->n_chunks)
		return cli_usage(c, "--chunks %s: sizes are needed", value);
	for (size_t i = 0; i < o->n_chunks; i++)
		if (o->chunks[i] < 1)
			return cli_usage(c, "--chunks: sizes are 1 or more");
	return 0;
}

static const struct cli_option logits_options[] = {
	{"ids", 0, CLI_TEXT, "LIST|@FILE", "the prompt", &logits.ids},
	{.name = "chunks",
	 .kind = CLI_CALL,
	 .arg = "5,2,1",
	 .help = "feed it in pieces; the last size repeats",
	 .call = set_chunks},
	{NULL, 'o', CLI_TEXT, "FILE.npy", "float32 [n, vocab]", &logits.out},
	{"top", 0, CLI_INT, "K", "print the K best ids and values a row",
	 &logits.top, 1, 1 << 20},
	{0}};

// The header of a .npy file of version 1.0, padded to 64 bytes.
static bool npy_header(FILE *f, uint64_t rows, uint64_t cols)
{
	char head[256];
	int n = snprintf(head, sizeof(head),
			 "{'descr': '<f4', 'fortran_order': False, 'shape': "
			 "(%" PRIu64 ", %" PRIu64 "), }",
			 rows, cols);
	int total = (10 + n + 1 + 63) / 64 * 64;
	uint16_t len = (uint16_t)(total - 10);

	memset(head + n, ' ', (size_t)(total - 10 - n));
	head[total - 11] = '\n';
	return fwrite("\x93NUMPY\x01\x00", 1, 8, f) == 8 &&
	       fwrite(&len, 2, 1, f) == 1 && fwrite(head, 1, len, f) == len;
}

static int32_t print_top(struct cli *c, const float *row, uint32_t vocab,
			 int64_t k, uint64_t position)
{
	int64_t *best = malloc((size_t)k * sizeof(*best));
	int64_t n = 0;

	if (!best)
		return genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
	for (int64_t i = 0; i < vocab; i++) {
		int64_t at = n < k ? n++ : k;

		if (isnan(row[i])) {
			free(best);
			return nan_at(c, position);
		}
		if (at == k && !(row[i] > row[best[k - 1]]))
			continue;
		if (at == k)
			at = k - 1;
		while (at && row[best[at - 1]] < row[i]) {
			best[at] = best[at - 1];
			at--;
		}
		best[at] = i;
	}
	for (int64_t i = 0; i < n; i++)
		printf("%s%" PRId64 ":%.6g", i ? " " : "", best[i],
		       (double)row[best[i]]);
	putchar('\n');
	free(best);
	return 0;
}

// The rows of n positions, of which the last is at end - 1.
static int32_t emit_rows(struct cli *c, struct cli_model *m,
			 const struct logits *o, FILE *f, uint64_t n,
			 uint64_t end)
{
	size_t rows, cap = m->info.all_logits ? n : 1;
	float *buf = malloc(cap * m->info.vocab_size * sizeof(*buf));
	int32_t rc;

	if (!buf)
		return genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
	rc = genai_session_logits(m->session, buf, cap, &rows, &c->err);
	for (size_t i = 0; !rc && o->top && i < rows; i++)
		rc = print_top(c, buf + i * m->info.vocab_size,
			       m->info.vocab_size, o->top, end - rows + i);
	if (!rc && f &&
	    fwrite(buf, sizeof(float) * m->info.vocab_size, rows, f) != rows)
		rc = genai_fail(&c->err, GENAI_E_IO, "%s: cannot write: %s",
				o->out, strerror(errno));
	free(buf);
	return rc;
}

// Pieces of the prompt: as asked for, and none longer than a chunk, because
// the rows of only one chunk are kept.
static uint64_t piece(const struct cli_model *m, const struct logits *o,
		      size_t i, uint64_t left)
{
	uint64_t n = left;

	if (o->n_chunks)
		n = (uint64_t)o->chunks[i < o->n_chunks ? i : o->n_chunks - 1];
	if (m->info.all_logits && n > m->model->chunk)
		n = m->model->chunk;
	return n < left ? n : left;
}

static int32_t run_logits(struct cli *c, struct cli_model *m,
			  const struct logits *o, const int64_t *ids, size_t n)
{
	uint64_t rows = 0, done = 0;
	FILE *f = NULL;
	int32_t rc = 0;

	if (!n)
		return genai_fail(&c->err, GENAI_E_INVAL,
				  "the prompt is empty");
	for (size_t i = 0; done < n; i++) {
		uint64_t k = piece(m, o, i, n - done);

		done += k;
		rows += m->info.all_logits ? k : 1;
	}
	if (o->out) {
		f = fopen(o->out, "we");
		if (!f || !npy_header(f, rows, m->info.vocab_size))
			rc = genai_fail(&c->err, GENAI_E_IO,
					"%s: cannot write: %s", o->out,
					strerror(errno));
	}
	done = 0;
	for (size_t i = 0; !rc && done < n; i++) {
		uint64_t k = piece(m, o, i, n - done);

		rc = genai_session_append(m->session, ids + done, k, &c->err);
		if (!rc)
			rc = emit_rows(c, m, o, f, k, done + k);
		done += k;
		if (!rc && cli_interrupted)
			rc = genai_fail(&c->err, GENAI_E_INTERRUPTED,
					"interrupted");
	}
	if (f && fclose(f) && !rc)
		rc = genai_fail(&c->err, GENAI_E_IO, "%s: cannot write: %s",
				o->out, strerror(errno));
	if (rc && f)
		remove(o->out);
	return rc;
}

static int cli_logits(struct cli *c, int argc, char **argv)
{
	struct logits *o = &logits;
	struct cli_model m;
	int64_t *ids = NULL;
	size_t n = 0;
	int status = cli_argument(c, logits_options, argc, argv,
				  "one model folder", &o->model);

	if (!status && (!o->ids || (!o->out && !o->top)))
		status = cli_usage(c, "a folder, --ids, and -o or --top are "
				      "needed");
	if (status)
		goto out;
	cli_catch_interrupts(1);
	if (!cli_ids(c, o->ids, &ids, &n) ||
	    cli_open(c, o->model, CLI_ALL_LOGITS, &m)) {
		status = cli_fail(c);
		goto out;
	}
	if (run_logits(c, &m, o, ids, n))
		status = cli_fail(c);
	cli_close(&m);
out:
	free(ids);
	free(o->chunks);
	return status;
}

const struct command cmd_logits = {"logits",
				   cli_logits,
				   "DIR --ids LIST|@FILE -o OUT.npy",
				   "the logits of every position",
				   logits_options,
				   NULL};

// ---- score ----

static double log_prob(const float *row, uint32_t vocab, int64_t id)
{
	double max = -INFINITY, sum = 0;

	for (uint32_t i = 0; i < vocab; i++)
		if (row[i] > max)
			max = row[i];
	for (uint32_t i = 0; i < vocab; i++)
		sum += exp(row[i] - max);
	return row[id] - max - log(sum);
}

struct score {
	double sum;
	uint64_t count;
};

// One window: compute ids[0..n), count the predictions of those from "from".
static int32_t score_window(struct cli *c, struct cli_model *m,
			    const int64_t *ids, uint64_t n, uint64_t from,
			    struct score *s)
{
	uint32_t vocab = m->info.vocab_size;
	float *buf = malloc((m->info.all_logits ? m->model->chunk : 1) *
			    (size_t)vocab * sizeof(*buf));
	uint64_t done = 0;
	double p;
	int32_t rc = genai_session_rewind(m->session, 0, &c->err);

	if (!buf) {
		free(buf);
		return genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
	}
	while (!rc && done < n) {
		uint64_t k = m->info.all_logits ? m->model->chunk : 1;
		size_t rows;

		if (k > n - done)
			k = n - done;
		rc = genai_session_append(m->session, ids + done, k, &c->err);
		if (!rc)
			rc = genai_session_logits(m->session, buf, k, &rows,
						  &c->err);
		for (uint64_t i = 0; !rc && i < k; i++) {
			uint64_t next = done + i + 1;

			if (next >= n || next < from)
				continue;
			p = log_prob(buf + i * vocab, vocab, ids[next]);
			if (isnan(p))
				rc = nan_at(c, done + i);
			s->sum -= p;
			s->count++;
		}
		done += k;
		if (!rc && cli_interrupted)
			rc = genai_fail(&c->err, GENAI_E_INTERRUPTED,
					"interrupted");
	}
	free(buf);
	return rc;
}

static int32_t score(struct cli *c, struct cli_model *m, const int64_t *ids,
		     size_t n, uint64_t window, uint64_t stride,
		     struct score *s)
{
	uint64_t scored = 0;
	int32_t rc = 0;

	if (n < 2)
		return genai_fail(&c->err, GENAI_E_INVAL,
				  "the text has %zu tokens: at least 2 are "
				  "needed",
				  n);
	for (uint64_t begin = 0; !rc; begin += stride) {
		uint64_t end = begin + window < n ? begin + window : n;

		rc = score_window(c, m, ids + begin, end - begin,
				  scored > begin ? scored - begin : 1, s);
		scored = end;
		if (end == n)
			break;
	}
	return rc;
}

static struct {
	const char *model, *file;
	int64_t window, stride;
	bool json;
} scoring;

static const struct cli_option score_options[] = {
	{"file", 0, CLI_TEXT, "TEXT", "the text", &scoring.file},
	{"window", 0, CLI_INT, "N", "positions at once (the context)",
	 &scoring.window, 1, INT32_MAX},
	{"stride", 0, CLI_INT, "N", "new positions per window (half of it)",
	 &scoring.stride, 1, INT32_MAX},
	CLI_TOKENIZER_AT,
	{"json", 0, CLI_FLAG, NULL, "one JSON object", &scoring.json},
	{0}};

static void print_score(const struct score *s, size_t n, int64_t window)
{
	double perplexity = exp(s->sum / (double)s->count);

	if (scoring.json)
		cli_print_json(json_pack(
			"{s:f, s:f, s:I, s:I, s:I}", "perplexity", perplexity,
			"nll", s->sum, "tokens", (json_int_t)n, "scored",
			(json_int_t)s->count, "window", (json_int_t)window));
	else
		printf("perplexity %.4f over %" PRIu64
		       " tokens (window %" PRId64 ")\n",
		       perplexity, s->count, window);
}

static int cli_score(struct cli *c, int argc, char **argv)
{
	int64_t window, stride, *ids = NULL;
	struct score s = {0};
	struct cli_model m;
	size_t n, bytes;
	char *text;
	int32_t rc;
	int status = cli_argument(c, score_options, argc, argv,
				  "one model folder", &scoring.model);

	if (!status && !scoring.file)
		status = cli_usage(c, "a folder and --file are needed");
	if (status)
		return status;
	cli_catch_interrupts(1);
	if (!cli_slurp(c, scoring.file, &text, &bytes))
		return cli_fail(c);
	if (cli_open(c, scoring.model, CLI_ALL_LOGITS | CLI_TOKENIZER, &m)) {
		free(text);
		return cli_fail(c);
	}
	window = scoring.window;
	stride = scoring.stride;
	if (!window || window > (int64_t)m.info.context)
		window = (int64_t)m.info.context;
	if (!stride || stride > window)
		stride = window > 1 ? window / 2 : 1;
	rc = genai_tokenizer_encode(m.tok, text, bytes, 0, &ids, &n, &c->err);
	if (!rc)
		rc = score(c, &m, ids, n, (uint64_t)window, (uint64_t)stride,
			   &s);
	if (!rc)
		print_score(&s, n, window);
	free(ids);
	free(text);
	cli_close(&m);
	return rc ? cli_fail(c) : 0;
}

const struct command cmd_score = {"score",
				  cli_score,
				  "DIR --file TEXT [--window N]",
				  "perplexity of a text",
				  score_options,
				  NULL};
