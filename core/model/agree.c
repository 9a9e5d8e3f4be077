// agree.c - does genai_config.json say what the graph says?
//
// What both say must be the same: a folder that contradicts itself was put
// together from two, and whichever half is believed, the tokens are wrong.
#include "core/model/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"

static int32_t vocabulary(const struct genai_model_config *c,
			  const struct genai_step *s, struct genai_error *err)
{
	if (s->vocab <= 0)
		return 0;
	if (c->vocab_size && c->vocab_size != s->vocab)
		return genai_fail(err, GENAI_E_FORMAT,
				  "model.vocab_size is %" PRId64
				  ", but the logits are %" PRId64 " wide",
				  c->vocab_size, s->vocab);
	for (uint32_t i = 0; i < c->n_eos; i++)
		if (c->eos[i] >= s->vocab)
			return genai_fail(err, GENAI_E_FORMAT,
					  "model.eos_token_id holds %" PRId64
					  ", but the logits are %" PRId64
					  " wide",
					  c->eos[i], s->vocab);
	return 0;
}

// A number of a cache; layers may differ, so it has to be that of one.
static int32_t side(const struct genai_graph *g, const struct genai_states *st,
		    const char *key, int64_t said, uint32_t dim,
		    struct genai_error *err)
{
	const struct genai_value *other = NULL;

	for (uint32_t i = 0; i < st->n && said; i++) {
		const struct genai_value *v =
			genai_graph_value(g, g->inputs[st->v[i].in]);

		// what is stored in few bits has another size
		if (st->v[i].kind == GENAI_STATE_REPLACED || v->rank != 4 ||
		    (v->dtype != GENAI_DT_F32 && v->dtype != GENAI_DT_F16 &&
		     v->dtype != GENAI_DT_BF16))
			continue;
		if (v->dims[dim] <= 0 || v->dims[dim] == said)
			return 0;
		other = v;
	}
	if (!other)
		return 0;
	return genai_fail(err, GENAI_E_FORMAT,
			  "%s is %" PRId64 ", but dimension %u of graph input "
			  "%s is %" PRId64,
			  key, said, dim, other->name, other->dims[dim]);
}

// Layers are counted from 0: a state of a later one is another model's.
static int32_t layers(const struct genai_graph *g,
		      const struct genai_model_config *c,
		      const struct genai_states *st, struct genai_error *err)
{
	for (uint32_t i = 0; i < st->n && c->n_layers; i++)
		if (st->v[i].number >= c->n_layers)
			return genai_fail(
				err, GENAI_E_FORMAT,
				"model.decoder.num_hidden_layers is %" PRId64
				", but the graph has an input %s",
				c->n_layers,
				genai_graph_value(g, g->inputs[st->v[i].in])
					->name);
	return 0;
}

int32_t genai_model_agrees(const struct genai_model_config *c,
			   const struct genai_step *s, struct genai_error *err)
{
	const struct genai_states *st = &s->states;
	int32_t rc = vocabulary(c, s, err);

	if (!rc)
		rc = side(s->graph, st, "model.decoder.num_key_value_heads",
			  c->n_kv_heads, 1, err);
	if (!rc)
		rc = side(s->graph, st, "model.decoder.head_size", c->head_size,
			  3, err);
	if (!rc)
		rc = layers(s->graph, c, st, err);
	return rc;
}
