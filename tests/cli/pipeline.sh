#!/bin/sh
# pipeline.sh - models whose decoder is in several graphs: what the one graph gives;
# what cannot be joined or is of another kind, in one sentence.
. "${top_srcdir:-.}/tests/cli/lib.sh"
whole=$models/lfm2moe-cpu-int4
stages=$top_srcdir/tests/data/pipeline
ids=5,9,14,23,77,140,31,200

model() # NAME PIPELINE: the model with that in the place of its filename
{
	rm -rf "$1"
	mkdir "$1"
	cp "$whole"/model.onnx.data "$whole"/tokenizer*.json "$stages"/*.onnx "$1"
	chmod -R u+w "$1"
	awk -v list="$2" '/"filename"/ { print "\"pipeline\": " list ","; next }
		{ print }' "$whole/genai_config.json" >"$1/genai_config.json"
}
hidden=/model/embed_tokens/GatherBlockQuantized/output_0
normed=/model/layers.4/final_norm_layernorm/output_0
embed='"embed": {"filename": "embed.onnx", "outputs": ["'$hidden'"]}'
layers='"layers": {"filename": "layers.onnx", "run_on_prompt": true}'
head='"head": {"filename": "head.onnx", "is_lm_head": true}'
"$genai" generate "$whole" --ids $ids -n 24 --greedy --ignore-eos >want 2>&1
"$genai" logits "$whole" --ids $ids --chunks 3,1 --top 4 >wantlogits 2>&1

model list "[{$embed}, {$layers}, {$head}]"
runs "three stages" generate list --ids $ids -n 24 --greedy --ignore-eos
is "give the tokens of one graph" "$(cat out)" "$(cat want)"
runs "in chunks" logits list --ids $ids --chunks 3,1 --top 4
is "give its logits" "$(cat out)" "$(cat wantlogits)"
runs "streamed" generate list --ids $ids -n 24 --greedy --ignore-eos \
	--set runtime.weight_budget=30%
is "give its tokens" "$(cat out)" "$(cat want)"
model object "[{$embed, $layers, $head}]"
runs "stages in one object" generate object --ids $ids -n 24 --greedy --ignore-eos
is "are the same" "$(cat out)" "$(cat want)"
runs "inspect" inspect list --json

# a stage whose input has another name than the output before it
forward='"embed": {"filename": "embed.onnx", "output_names_forwarder": {"'$hidden'": "x"}}'
model forward "[{$forward}, {$layers}, {$head}]"
fails "forwarded to a name that nobody reads" 1 "$hidden" generate forward --ids $ids -n 1
model named "[{$forward}, {\"again\": {\"filename\": \"embed.onnx\", \"output_names_forwarder\": {\"gone\": \"y\"}}}]"
fails "an output that is not there" 1 "stage again forwards gone, which it does not give" \
	generate named --ids $ids -n 1
model prompt "[{$embed}, {\"ctx\": {\"filename\": \"layers.onnx\", \"run_on_token_gen\": false}}, {$head}]"
fails "a stage for prompts only" 1 \
	"model.decoder.pipeline: stage ctx is not for prompts and single tokens alike" \
	generate prompt --ids $ids -n 1
model nameless "[{\"a\": {}}]"
fails "a stage without a file" 1 "stage a has no filename" generate nameless --ids $ids -n 1
model away "[{\"a\": {\"filename\": \"../embed.onnx\"}}]"
fails "a file outside" 1 "filename" generate away --ids $ids -n 1
model gone "[{$embed}, {\"a\": {\"filename\": \"gone.onnx\"}}]"
fails "a file that is not there" 1 "gone/gone.onnx: cannot open" generate gone --ids $ids -n 1
model cut "[{$embed}, {$layers}]"
fails "no logits" 1 "logits" generate cut --ids $ids -n 1
model none "[]"
cp "$whole/model.onnx" none
runs "an empty list is none" generate none --ids $ids -n 24 --greedy --ignore-eos
is "and model.onnx the graph" "$(cat out)" "$(cat want)"

model encoder "[{$embed}, {$layers}, {$head}]"
sed 's/"decoder": {/"encoder": {"filename": "encoder.onnx"}, "decoder": {/; s/lfm2_moe/whisper/' \
	"$whole/genai_config.json" >encoder/genai_config.json
fails "an encoder" 1 \
	"model.encoder: models of an encoder and a decoder (whisper) are not supported" \
	generate encoder --ids $ids -n 1
finish
