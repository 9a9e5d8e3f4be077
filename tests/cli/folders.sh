#!/bin/sh
# folders.sh - model folders as they are found: odd keys, names, tokenizers,
# limits, ends of text, seeds.
. "${top_srcdir:-.}/tests/cli/lib.sh"

want='[421,372,225,74,94,288,313,290]'

copy() # from, to: a copy of the model with that edit in genai_config.json
{
	rm -rf m
	cp -R "$plain" m
	chmod -R u+w m
	sed -i "s|$1|$2|" m/genai_config.json
}

gen() # arguments...: from m; a warning is no failure
{
	"$genai" generate m --ids 72,84,320,285,264 --greedy --json \
		--max-new-tokens 8 "$@" >out 2>err </dev/null
	rc=$?
}

same() # description
{
	gen
	is "$1" "$rc $(json ids)" "0 $want"
}

# ---- keys ----

copy '"pad_token_id": 0' '"pad_token_id": [0, 1]'
same "a list of pad tokens"
like "is a warning" "$(cat err)" "genai: warning: *pad_token_id*"
is "one" "$(wc -l <err | tr -d ' ')" 1
copy '"decoder": {' '"decoder": {"later": [1, {"x": null}],'
same "an unknown key deep down"
warned() # description, texts...: one warning for each, and no other
{
	what=$1
	shift
	is "$what: so many warnings" "$(wc -l <err | tr -d ' ')" $#
	for text; do
		is "$what: $text" "$(grep -c ": $text" err)" 1
	done
}
warned "an unknown key deep down" \
	"model.decoder.later is not known and has no effect"
copy '"search": {' '"search": {"top_q": 0.5, "beams": {"a": 1},'
same "unknown keys of search"
warned "unknown keys of search" "search.top_q is not known" \
	"search.beams is not known"
copy '"inputs": {' '"inputs": {"masks": "m",'
sed -i 's|"model": {|"more": 1, "model": {"less": 2,|' m/genai_config.json
same "unknown keys everywhere"
warned "unknown keys everywhere" "more is not" "model.less is not" \
	"model.decoder.inputs.masks is not"
copy '"num_beams": 1' '"num_beams": 4'
sed -i 's|"num_return_sequences": 1|"num_return_sequences": 3|' m/genai_config.json
same "beams"
warned "beams" "search.num_beams is 4: beam search is not carried" \
	"search.num_return_sequences is 3: one sequence"
copy '"decoder": {' '"decoder": {"sliding_window": {"slide_inputs": true},'
same "sliding inputs"
warned "sliding inputs" "model.decoder.sliding_window.slide_inputs is 1"
for none in null '[]' '{}'; do
	copy '"decoder": {' "\"decoder\": {\"pipeline\": $none,"
	same "pipeline $none"
	warned "pipeline $none"
done
copy '"decoder": {' '"decoder": {"pipeline": [{"a": {}}],'
gen
like "a pipeline" "$rc $(cat err)" "1 genai: error: *model.decoder.pipeline*"

# ---- the configuration against the graph ----

for key in vocab_size num_key_value_heads num_hidden_layers; do
	copy "\"$key\": [0-9]*" "\"$key\": 1"
	for command in "generate m --ids 1" "logits m --ids 1 --top 1" "inspect m" \
		"bench m"; do
		fails "$key, $command" 1 "$key is 1, but" $command
	done
done
copy '"type": "llama"' '"type": "xyz"'
same "an unknown type with a standard graph"
copy '"past_present_share_buffer": true' '"past_present_share_buffer": false'
same "no shared buffers"
copy '"bos_token_id": 1,' ''
same "no first token"
printf '\357\273\277' >bom
cat bom "$plain/genai_config.json" >m/genai_config.json
same "a BOM before the JSON"
copy x x
tr -d '\n' <"$plain/genai_config.json" >m/genai_config.json
same "all in one line"
for bad in '"do_sample": true.' '"do_sample": NaN' '"do_sample": 1,,'; do
	copy '"do_sample": false' "$bad"
	gen
	like "$bad" "$rc $(cat err)" "1 genai: error: m/genai_config.json:*"
	is "$bad: one line" "$(wc -l <err | tr -d ' ')" 1
done
copy '"top_k": 50' '"top_k": 50, "top_k": 40'
gen
like "a key twice" "$rc $(cat err)" "1 genai: error: m/genai_config.json:*"
copy '"model": {' "\"model\": {\"deep\": $(printf '[%.0s' $(seq 3000)),"
gen
like "3000 open brackets" "$rc $(cat err)" "1 genai: error: m/genai_conf*"

# ---- names ----

mv m old
mkdir 'modèle-日本 x'
cp "$plain"/*.* 'modèle-日本 x/'
run generate 'modèle-日本 x' --ids 72,84,320,285,264 --greedy --json \
	--max-new-tokens 8
is "a folder of any name" "$rc $(json ids)" "0 $want"
run generate "$plain/model.onnx" --ids 72,84,320,285,264 --greedy --json \
	--max-new-tokens 8
is "the .onnx file instead of the folder" "$rc $(json ids)" "0 $want"
run generate "$plain///" --ids 72,84,320,285,264 --greedy --json \
	--max-new-tokens 8
is "slashes at the end" "$rc $(json ids)" "0 $want"
mkdir sub
cd sub || exit 1
cp ../genai.ini .
run generate ../tests --ids 1
is "no such relative folder: 1" "$rc" 1
cp -R "$plain" rel
run generate rel --ids 72,84,320,285,264 --greedy --json --max-new-tokens 8
is "a relative folder" "$rc $(json ids)" "0 $want"
cd rel || exit 1
run --config ../genai.ini generate . --ids 72,84,320,285,264 --greedy --json \
	--max-new-tokens 8
is "this folder" "$rc $(json ids)" "0 $want"
run --config ../genai.ini generate model.onnx --ids 72,84,320,285,264 \
	--greedy --json --max-new-tokens 8
is "a file in this folder" "$rc $(json ids)" "0 $want"
cd "$work" || exit 1

# ---- a folder as people have it ----

found() # description, path: the same tokens from there
{
	run generate "$2" --ids 72,84,320,285,264 --greedy --json \
		--max-new-tokens 8
	is "$1" "$rc $(json ids)" "0 $want"
}

hub=hub/models--org--name
mkdir -p $hub/refs $hub/blobs $hub/snapshots/0a1b $hub/snapshots/2c3d
cp "$plain"/* $hub/blobs/
for f in "$plain"/*; do
	ln -s "../../blobs/$(basename "$f")" $hub/snapshots/2c3d/
done
printf 2c3d >$hub/refs/main
found "the root of a hub's cache" $hub
found "and its snapshot" $hub/snapshots/2c3d
runs "its tokenizer" tokenize $hub --text x
rm $hub/refs/main
fails "two snapshots and no name of one" 1 \
	"several snapshots in it: name one of them: 0a1b, 2c3d" \
	generate $hub --ids 1
rmdir $hub/snapshots/0a1b
found "one snapshot" $hub
rm -r $hub/snapshots/2c3d
fails "no snapshot" 1 "no snapshots in it" generate $hub --ids 1

mkdir -p many/cpu/int4 many/cuda
cp -R "$plain" many/cpu/int4/a
found "a folder above a model" many
cp -R "$plain" many/cuda/b
fails "a folder above two" 1 \
	"many: several models below: name one of them: cpu/int4/a, cuda/b" \
	generate many --ids 1

mkdir -p torch/deep
cp "$plain"/tokenizer.json torch/
echo x >torch/model-00001-of-00002.safetensors
for c in "plan torch" "generate torch --ids 1" "generate torch --prompt x" \
	"chat torch" "inspect torch" "embed torch --text x" "bench torch"; do
	# shellcheck disable=SC2086
	fails "weights of another kind: $c" 1 \
		"torch: weights as model-00001-of-00002.safetensors are not read" $c
done
runs "its tokenizer is read" tokenize torch --text x
rm torch/*.safetensors
fails "a tokenizer without a model" 1 "torch: no model here" plan torch

mkdir -p web/onnx
cp "$plain/model.onnx" web/onnx/model_q4.onnx
cp "$plain"/model.onnx.data web/onnx/
cp "$plain"/tokenizer* web/
cat >web/config.json <<-'END'
	{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4,
	 "num_key_value_heads": 2, "num_hidden_layers": 2, "eos_token_id": 0,
	 "max_position_embeddings": 512}
END
found "onnx/ below a tokenizer" web
found "its graph by name" web/onnx/model_q4.onnx
runs "the tokenizer above it" tokenize web/onnx/model_q4.onnx --text x
cp web/onnx/model_q4.onnx web/onnx/model_fp16.onnx
fails "two graphs" 1 \
	"several graphs and no genai_config.json: name one of them: \
model_fp16.onnx, model_q4.onnx" generate web --ids 1

found "an address" "file://$plain"
found "an address of this machine" "file://localhost$plain"
mkdir 'a b'
cp "$plain"/* 'a b/'
found "an address with escapes" "file://$work/a%20b"
fails "of another machine" 1 "only file:///PATH is read" generate \
	"file://host/x" --ids 1

cp -Rl "$plain" linked 2>/dev/null || cp -R "$plain" linked
chmod -R u+w linked
rm -f linked/model.onnx.data
cp "$plain/model.onnx.data" one.data
ln one.data linked/model.onnx.data
found "a data file with two links" linked
rm -f linked/tokenizer*
fails "no tokenizer" 1 \
	"linked: no tokenizer here: looked for tokenizer.json and" \
	generate linked --prompt x

# ---- LFS pointers name the way out ----

for f in model.onnx model.onnx.data tokenizer.json; do
	copy x x
	printf 'version https://git-lfs.github.com/spec/v1\n%s\nsize 9\n' \
		'oid sha256:1234' >m/$f
	fails "an LFS pointer as $f" 1 "git lfs pull" generate m --prompt x
	like "it is named" "$(cat err)" "*m/$f*"
done

# ---- fewer tokens than logits ----

"$probe" gguf tiny.gguf
"$genai" --quiet import tiny.gguf -o tiny
copy x x
cp tiny/tokenizer.json m/
gen
is "ids without a token" "$rc $(json ids)" "0 $want"
is "have no text" "$(json text)" ""
run detokenize m --ids 3,400,4
is "nor elsewhere" "$rc" 0

# ---- lengths ----

for max in 3 5; do
	copy '"max_length": 512' "\"max_length\": $max"
	gen
	is "a prompt of 5 and max_length $max" "$rc $(cat err)" \
		"1 genai: error: the prompt's 5 tokens leave no room: prompt \
and answer together may have $max"
done
copy '"max_length": 512' '"max_length": 6'
gen
is "a prompt of 5 and max_length 6" \
	"$rc $(json ids) $(json finish_reason)" "0 [421] length"
gen --max-new-tokens 0
is "no new tokens wanted" "$rc $(json ids)" "0 []"
copy '"max_length": 512' '"max_length": -1'
gen
like "a negative max_length" "$rc $(cat err)" "1 genai: error: *max_length*"
copy '"max_length": 512' '"max_length": 100000'
gen --set runtime.context=10 --max-new-tokens 100 --ignore-eos
is "the context ends it" "$rc $(json stats new_tokens) \
$(json finish_reason)" "0 5 length"

# ---- ends of text ----

copy '"eos_token_id": 0' '"eos_token_id": 225'
gen
is "one id" "$(json finish_reason) $(json ids)" "eos [421,372,225]"
copy '"eos_token_id": 0' '"eos_token_id": [9, 372, 225]'
gen
is "any of several" "$(json finish_reason) $(json ids)" "eos [421,372]"
copy '"eos_token_id": 0' '"eos_token_id": []'
gen
is "none" "$(json finish_reason) $(json ids)" "length $want"
copy '"eos_token_id": 0,' ''
gen
is "not said" "$rc $(json ids)" "0 $want"
copy '"eos_token_id": 0' '"eos_token_id": 99999'
gen
like "beyond the vocabulary" "$rc $(cat err)" "1 genai: error: *an id beyond vocab_size"

# ---- sampling ----

copy '"do_sample": false' '"do_sample": true'
draw() # flags...
{
	"$genai" generate m --ids 72,84,320 --max-new-tokens 24 --json \
		--ignore-eos "$@" >out 2>err </dev/null
	json ids
}
a=$(draw --seed 1)
is "a seed twice" "$(draw --seed 1)" "$a"
if [ "$a" != "$(draw --seed 2)" ]; then
	ok "another seed"
else
	not_ok "another seed"
fi
if [ "$(draw)" != "$(draw)" ]; then
	ok "no seed twice"
else
	not_ok "no seed twice"
fi
is "top_k above the vocabulary" "$(draw --seed 1 --top-k 100000)" \
	"$(draw --seed 1 --top-k 512)"
is "top_k 0 is all of it" "$(draw --seed 1 --top-k 0)" \
	"$(draw --seed 1 --top-k 512)"
g=$(draw --greedy)
is "a tiny temperature is greedy" "$(draw --temperature 1e-30 --seed 3)" "$g"
run generate tiny --ids 1,2 --temperature 1 --seed 1 --max-new-tokens 8 \
	--ignore-eos --json
is "top_k 50 of 9 tokens" "$rc" 0

# ---- NaN ----

copy x x
i=0
while [ $i -lt 1180 ]; do # 147456 floats of NaN in the weights
	printf '%0500d' 0
	i=$((i + 1))
done | tr 0 '\377' >m/nan
head -c 589824 m/nan >m/model.onnx.data
head -c 1280 /dev/zero >>m/model.onnx.data
rm m/nan
fails "NaN, greedy" 1 "NaN at position" generate m --ids 1,2,3
fails "NaN, sampled" 1 "NaN" generate m --ids 1,2,3 --temperature 1
finish
