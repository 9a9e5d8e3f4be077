// sampling.c - flags of sampling, and those of requests, over the model's own.
#include "tools/cli.h"

#include <sys/random.h>

void cli_sampling_read(const struct cli_sampling *s,
		       const struct genai_model_info *info,
		       struct genai_sampling *out)
{
	struct genai_sampling p = GENAI_SAMPLING_INIT;
	// a flag of sampling is a wish to sample
	bool wish = s->has_temperature || s->has_top_k || s->has_top_p ||
		    s->has_min_p || s->has_seed;

	p.do_sample = (info->do_sample || wish) && !s->greedy;
	p.temperature =
		s->has_temperature ? (float)s->temperature : info->temperature;
	p.top_k = s->has_top_k ? s->top_k : info->top_k;
	// a default above the vocabulary only says "no limit"
	if (!s->has_top_k && p.top_k > info->vocab_size)
		p.top_k = 0;
	p.top_p = s->has_top_p ? (float)s->top_p : info->top_p;
	p.min_p = s->has_min_p ? (float)s->min_p : 0;
	p.repetition_penalty =
		s->has_rep ? (float)s->rep : info->repetition_penalty;
	p.presence_penalty = s->has_pres ? (float)s->pres : 0;
	p.frequency_penalty = s->has_freq ? (float)s->freq : 0;
	p.no_repeat_ngram = info->no_repeat_ngram;
	p.min_length = info->min_length;
	if (s->has_seed)
		p.seed = (uint64_t)s->seed;
	else if (getrandom(&p.seed, sizeof(p.seed), 0) != sizeof(p.seed))
		p.seed = (uint64_t)(cli_now() * 1e9);
	*out = p;
}

int32_t cli_sampler(const struct cli_sampling *s,
		    const struct genai_model_info *info, bool ignore_eos,
		    struct genai_sampler **out, struct genai_error *err)
{
	struct genai_sampling p;

	cli_sampling_read(s, info, &p);
	return genai_sampler_open(&p, info->vocab_size,
				  ignore_eos ? NULL : info->eos,
				  ignore_eos ? 0 : info->n_eos, out, err);
}
