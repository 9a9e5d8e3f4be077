// model_text.c - the tokenizer of a model folder, which may lie beside it.
#include <stdio.h>

#include "core/model/folder.h"
#include "core/model/genai_config.h"
#include "core/text/tokenizer/tok.h"

int32_t genai_tokenizer_open(const char *path, struct genai_tokenizer **out_tok,
			     struct genai_error *err)
{
	struct genai_model_config config;
	char folder[4600], where[4200];

	genai_tokenizer_folder(path, where, sizeof(where));
	path = where;
	// what else is wrong with that file is said by who needs it
	if (genai_model_config_load(path, NULL, &config, NULL) ||
	    !config.tokenizer_dir[0])
		return tok_open(path, out_tok, err);
	if (snprintf(folder, sizeof(folder), "%s/%s", path,
		     config.tokenizer_dir) >= (int)sizeof(folder))
		return genai_fail(err, GENAI_E_INVAL, "%.64s...: path too long",
				  path);
	return tok_open(folder, out_tok, err);
}
