#!/bin/sh
# embed.sh - genai embed: lines to vectors, and what it refuses.
. "${top_srcdir:-.}/tests/cli/lib.sh"
data=$top_srcdir/tests/data/embed
bert=$data/bert-mean

# The first numbers of a vector, to four digits.
head3()
{
	tr -d '[]' <"$1" | sed -n "$2p" | cut -d, -f1-3 | tr , '\n' |
		while read -r x; do printf '%.4f ' "$x"; done
}

runs "a text" embed "$bert" --text "The cat sat on the mat."
sed 's/^\[{"text":"The cat sat on the mat.","ids":\[[^]]*\],"own":\[\([^]]*\).*/[\1]/' \
	"$bert/truth.json" >own
is "what transformers has" "$(head3 out 1)" "$(head3 own 1)"
cp out alone
printf 'dogs\r\n\nThe cat sat on the mat.\nriver' >lines
runs "lines of a file" embed "$bert" --file lines
is "a vector a line" "$(wc -l <out | tr -d ' ')" 4
is "among others as alone" "$(sed -n 3p out)" "$(cat alone)"
"$genai" embed "$bert" <lines >piped 2>&1
is "lines of stdin" "$(cat piped)" "$(cat out)"
"$genai" embed "$bert" --json --file lines >json 2>&1
like "one JSON object" "$(tr -d ' \n' <json)" '{"dimensions":16,"tokens":*,"embeddings":\[\[*\]\]}'
runs "the graph's folder" embed "$bert/onnx" --text "The cat sat on the mat."
is "is the same model" "$(cat out)" "$(cat alone)"
runs "the graph" embed "$bert/onnx/model.onnx" --text "The cat sat on the mat."
is "too" "$(cat out)" "$(cat alone)"
runs "--pooling" embed "$bert" --pooling last --text dogs
cp out last
runs "--no-normalize" embed "$bert" --pooling last --no-normalize --text dogs
is "differ" "$(cmp -s out last && echo same)" ""

long=$(printf 'the cat on the mat how many people %.0s' 1 2 3 4 5 6 7)
fails "a text that is too long" 1 \
	"text 1: 58 tokens are more than the 32 that a text may have" embed "$bert" \
	--text "$long"
runs "--truncate" embed "$bert" --truncate --text "$long"
# with one text's 30 tokens between [CLS] and [SEP]
short=$(printf '%s\n' $long | head -30 | tr '\n' ' ')
cp out cut
runs "its beginning" embed "$bert" --text "$short"
is "is what is left" "$(cat out)" "$(cat cut)"
fails "--max-tokens" 1 "text 1: 58 tokens are more than the 8" embed "$bert" \
	--max-tokens 8 --text "$long"

copy() # NAME: the model with another folder of configuration
{
	rm -rf "$1"
	cp -r "$bert" "$1"
	chmod -R u+w "$1"
}
copy none
rm none/modules.json
fails "no modules.json" 1 "no modules.json says how rows become one vector" embed \
	none --text dogs
runs "and --pooling" embed none --pooling mean --normalize --text \
	"The cat sat on the mat."
is "are the same" "$(cat out)" "$(cat alone)"
copy dense
sed 's/models.Normalize/models.Dense/' "$bert/modules.json" >dense/modules.json
fails "a module that is not carried" 1 "modules.json: module Dense is not carried" \
	embed dense --text dogs
copy max
sed 's/max_tokens": false/max_tokens": true/; s/mean_tokens": true/mean_tokens": false/' \
	"$bert/1_Pooling/config.json" >max/1_Pooling/config.json
fails "a pooling that is not carried" 1 "pooling max_tokens is not carried" embed \
	max --text dogs
copy lower
echo '{"max_seq_length": 32, "do_lower_case": true}' >lower/sentence_bert_config.json
fails "do_lower_case" 1 "do_lower_case" embed lower --text dogs
copy broken
echo '[{' >broken/modules.json
fails "broken JSON" 1 "modules.json:" embed broken --text dogs
copy away
sed 's/"1_Pooling"/"..\/1_Pooling"/' "$bert/modules.json" >away/modules.json
fails "a module outside" 1 "module Pooling is not carried" embed away --text dogs
copy newer
echo '{"pooling_mode": "lasttoken"}' >newer/1_Pooling/config.json
runs "the newer form" embed newer --text dogs
is "is the same" "$(cat out)" "$(cat last)"
copy prompt
echo '{"prompts": {"q": "The cat "}, "default_prompt_name": "q"}' \
	>prompt/config_sentence_transformers.json
runs "a default prompt" embed prompt --text "sat on the mat."
is "is in front" "$(cat out)" "$(cat alone)"
echo '{"prompts": {}, "default_prompt_name": "q"}' \
	>prompt/config_sentence_transformers.json
fails "a prompt that is not there" 1 "prompt q is not there" embed prompt --text dogs
fails "a model that generates" 1 "graph input past_key_values.0.key is none" embed \
	"$plain" --text dogs
fails "this one, to generate" 1 "but last_hidden_state: genai embed makes vectors" \
	generate "$bert" --prompt dogs
fails "no folder" 2 "one model folder" embed
fails "another pooling" 2 "one of mean, cls and last" embed "$bert" --pooling max
fails "both" 2 "not both" embed "$bert" --normalize --no-normalize
fails "text and file" 2 "not both" embed "$bert" --text a --file lines
finish
