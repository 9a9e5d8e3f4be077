#!/bin/sh
# bad.sh - bad input of every kind: one line, the right status, nothing else.
. "${top_srcdir:-.}/tests/cli/lib.sh"

copy() # a fresh copy of the model to damage
{
	rm -rf m
	cp -R "$plain" m
	chmod -R u+w m
}

try() # description, text...: generate from the damaged model
{
	fails "$1" "${3:-1}" "$2" generate m --ids 1,2,3 --max-new-tokens 2
}

# ---- files ----

fails "no such folder" 1 "gone: cannot open" generate gone --ids 1
mkdir nothing
fails "an empty folder" 1 "nothing: no model here: looked for genai_config.json" \
	generate nothing --ids 1
copy
rm m/model.onnx
try "no model.onnx" "m/model.onnx: cannot open"
copy
rm m/model.onnx.data
try "no data file" "model.onnx.data"
copy
head -c 5000 "$plain/model.onnx" >m/model.onnx
try "a cut model.onnx" "m/model.onnx"
copy
: >m/model.onnx
try "an empty model.onnx" "m/model.onnx"
copy
head -c 100000 "$plain/model.onnx.data" >m/model.onnx.data
try "a cut data file" "100000"
like "with the bytes wanted" "$(cat err)" "*model.onnx.data*"
for f in model.onnx model.onnx.data; do
	copy
	printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\n%s' \
		'size 591104' >m/$f
	try "an LFS pointer as $f" "LFS"
done
copy
head -c 20000 /dev/zero >m/model.onnx
try "zeros as model.onnx" "m/model.onnx"
copy
rm m/model.onnx
mkdir m/model.onnx
try "a folder as model.onnx" "m/model.onnx"
copy
rm m/model.onnx.data
mkfifo m/model.onnx.data
try "a pipe as data file" "model.onnx.data"
printf '<!DOCTYPE html>\n<title>Not found</title>\n' >page.html
cp page.html page.onnx
cp page.html page.gguf
mkdir page
cp page.html page/model.onnx
for c in "generate --prompt x" "generate --ids 1" chat "score --file page.html" \
	inspect plan; do
	set -- $c
	c=$1
	shift
	fails "$c $*: a page" 1 "page.html: text (HTML), neither a" $c \
		page.html "$@"
	fails "$c $*: as .onnx" 1 "page.onnx: this is text (HTML), not an ONNX" \
		$c page.onnx "$@"
	fails "$c $*: in a folder" 1 \
		"page/model.onnx: this is text (HTML), not an ONNX" $c page "$@"
	fails "$c $*: as .gguf" 1 "page.gguf: this is text (HTML), not a GGUF" \
		$c page.gguf "$@"
done
rm -r page
cp "$plain/model.onnx" whole.onnx
fails "a graph alone misses its tokenizer" 1 "no tokenizer here" \
	generate whole.onnx --prompt x
fails "another file as model" 1 "neither a model folder nor" generate \
	"$plain/genai_config.json" --ids 1
copy
chmod 000 m/model.onnx
if [ "$(id -u)" -ne 0 ]; then
	try "no permission" "m/model.onnx"
fi

# cut while it is mapped: the program says so and ends, it does not crash
"$genai" --quiet synth tiny-llama -o long --context 100000
"$genai" generate long --ids 1,2,3 --ignore-eos --max-new-tokens 99000 \
	>out 2>err </dev/null &
pid=$!
sleep 0.5
: >long/model.onnx.data
wait $pid
is "a data file cut while mapped: 1" "$?" 1
like "it is named" "$(cat err)" "genai: error: *model.onnx.data*"
is "in one line" "$(wc -l <err | tr -d ' ')" 1

# ---- external data ----

"$probe" onnx outside o
printf 'secret_bytes' >secret.bin
fails "data outside the folder" 1 "../secret.bin" inspect o/model.onnx
copy
mkdir far
mv m/model.onnx.data far/
ln -s ../far/model.onnx.data m/model.onnx.data
try "a link out of the folder" "trusted_roots"
runs "with trusted_roots" generate m --ids 1,2,3 --max-new-tokens 2 --set \
	"runtime.trusted_roots=$PWD/far"
copy
ln -s /etc/passwd m/passwd
rm m/model.onnx.data
ln -s passwd m/model.onnx.data
try "a link to /etc/passwd" "model.onnx.data"
copy
ln m/model.onnx.data hard
chmod o+w m
try "a hard link where anybody may make one" "model.onnx.data"
rm hard
"$probe" onnx missing-data o
fails "data that is missing names the path tried" 1 "o/gone.bin" run \
	o/model.onnx --input X=x

# ---- the graph ----

"$probe" mknpy x.npy 3 1 2 3
"$probe" onnx badop o
fails "an unsupported operator: name, node, domain" 1 \
	"node strange: operator NoSuchOp of domain 'com.example'" run \
	o/model.onnx --input X=x.npy
"$probe" onnx badattr o
fails "an unknown attribute" 1 "mystery" run o/model.onnx --input X=x.npy
"$probe" onnx cycle o
fails "a cycle" 1 "cycle" run o/model.onnx --input X=x.npy
"$probe" onnx short-data o
fails "a payload shorter than its shape" 1 "w" run o/model.onnx --input \
	X=x.npy
"$probe" onnx short-shape o
fails "shapes that do not fit" 1 "" run o/model.onnx --input X=x.npy
fails "a graph that is no decoder" 1 "" generate o --ids 1

# ---- genai_config.json ----

edit() # from, to: in genai_config.json
{
	copy
	sed -i "s|$1|$2|" m/genai_config.json
}
edit '"model": {' '"model": '
try "broken JSON" "genai_config.json"
like "with its line" "$(cat err)" "*genai_config.json:*[0-9]*"
edit '"context_length": 512' '"context_length": 513'
try "a context beyond the rope table" "513, but the rope table has 512 rows"
edit '"context_length": 512' '"context_length": -1'
try "a negative context" "context_length"
edit '"context_length": 512' '"context_length": "many"'
try "a context that is no number" "context_length"
edit '"context_length": 512' '"context_length": 99999999999999999999'
try "a context that overflows" "genai_config.json"
edit '"vocab_size": 512' '"vocab_size": 513'
try "more ids than logits" "513, but the logits are 512 wide"
edit '"filename": "model.onnx"' '"filename": "../model.onnx"'
try "a file name that leaves the folder" "filename"
edit '"filename": "model.onnx"' '"filename": "other.onnx"'
try "a file that is not there" "m/other.onnx: cannot open"
edit 'past_key_values.%d.key' 'past_key_values.%s.key'
try "a name without its number" "past_key_names"
edit 'past_key_values.%d.key' 'p%d%n'
try "a name with a second format" "past_key_names"
edit '"logits": "logits"' '"logits": "result"'
try "an output that is not there" "no output result"
edit '"input_ids": "input_ids"' '"input_ids": "tokens"'
try "an input that is not there" "no input tokens"
edit '"present.%d.value"' '"gone.%d.value"'
try "a cache output that is not there" "gone.0.value is missing"
edit '"attention_mask": "attention_mask"' '"attention_mask": "mask"'
try "an input whose meaning is not known" "attention_mask"
edit '"eos_token_id": 0' '"eos_token_id": [0, "x"]'
try "an end of text that is no id" "eos_token_id"
edit '"model": {' '"model": {"new_thing": {"a": 1},'
"$genai" generate m --ids 1,2 --max-new-tokens 1 >out 2>err
is "an unknown key is no error" "$?" 0
like "but a warning, once" "$(cat err)" "genai: warning: *new_thing*"
copy
rm m/genai_config.json
"$genai" generate m --ids 1,2 --max-new-tokens 1 --set runtime.context=16 \
	>out 2>err
is "no genai_config.json: the heads are not known" "$? $(cat err)" \
	"1 genai: error: m: graph input past_key_values.0.key: neither the graph \
nor genai_config.json says how many heads of what size"

# ---- tokenizer and template ----

copy
echo '{"version":"1.0"' >m/tokenizer.json
fails "a broken tokenizer" 1 "m/tokenizer.json" generate m --prompt x
copy
rm m/tokenizer.json
fails "no tokenizer" 1 "tokenizer.json" generate m --prompt x
run generate m --ids 1,2,3 --max-new-tokens 2 --json
is "ids need none" "$rc" 0
copy
echo '{% if %}' >m/chat_template.jinja
fails "a broken template" 1 "chat_template.jinja" generate m --chat --prompt x
copy
echo '{{ raise_exception("no way") }}' >m/chat_template.jinja
fails "a template that refuses" 1 "no way" generate m --chat --prompt x

# ---- configuration ----

good=$(cat genai.ini)
conf() # description, text in the message, lines...
{
	printf '%s\n' "$good" "$3" >genai.ini
	fails "$1" 2 "$2" config
}
conf "an unknown key" "unknown key executr in [runtime], did you mean executor?" \
	"[runtime]
executr = cpu_ref:eager"
like "with file and line" "$(cat err)" "genai: error: ./genai.ini:6: *"
conf "an unknown section" "runtme" "[runtme]"
conf "a duplicate key" "context" "[runtime]
context = 4
context = 5"
conf "no section" "" "nonsense"
printf 'x = 1\n' >genai.ini
fails "a key before any section" 2 "genai.ini:1" config
printf '[runtime]\r\ncontext = 4\rdevice = 0\r' >genai.ini
run config
is "stray carriage returns: 2" "$rc" 2
printf '\377\376[\000r\000' >genai.ini
fails "UTF-16" 2 "genai.ini" config
printf '[runtime]\ncontext = 4\000\n' >genai.ini
fails "a NUL" 2 "genai.ini" config
printf '[runtime]\ncontext = %070000d\n' 1 >genai.ini
fails "a line beyond 64 KiB" 2 "genai.ini:2" config
printf '\357\273\277[runtime]\r\ncontext = 4\r\n' >genai.ini
printf '%s\n' "$good" >>genai.ini
runs "a BOM and CRLF are fine" config --json
like "and the value is right" "$(json keys)" '*"context","value":"4",*'
printf '%s\n' "$good" >genai.ini
for set in runtime.context=x runtime.context=0 runtime.device_limit=4X \
	runtime.weight_budget=-1 runtime.weight_budget=99999999999GiB \
	module.pager_sync.page_bytes=50% runtime.device=abc; do
	fails "--set $set" 2 "${set%%=*}" generate "$plain" --ids 1 --set "$set"
done
fails "--set of nothing" 2 "" config --set runtime.context
fails "--set of an unknown key" 2 "contxt" config --set runtime.contxt=4
fails "a --config that is not there" 2 "gone.ini: cannot open" --config \
	gone.ini config
fails "a schedule that is none" 2 "schedule" generate "$plain" --ids 1 --set \
	module.cpu_ref.schedule=sometimes
fails "a seed beyond 64 bits" 2 "random:99999999999999999999" generate "$plain" \
	--ids 1 --set module.cpu_ref.schedule=random:99999999999999999999

# ---- modules ----

fails "a module that is not there" 2 "gone.so: cannot open" config --set \
	module.cpu_ref.path=/nonexistent/gone.so
fails "a module of no name" 2 "executor" config --set runtime.executor=
fails "an interface that the module lacks" 2 "nonsense" generate "$plain" \
	--ids 1 --set runtime.executor=cpu_ref:nonsense
fails "a module of another kind" 2 "cpu_ref" generate "$plain" --ids 1 --set \
	runtime.pager=cpu_ref
echo text >text.so
fails "no shared object" 2 "text.so" config --set \
	"module.cpu_ref.path=$PWD/text.so"
head -c 3000 "$top_builddir/.libs/cpu_ref.so" >cut.so
fails "a cut one" 2 "cut.so" config --set "module.cpu_ref.path=$PWD/cut.so"
cp "$top_builddir/.libs/pager_sync.so" stray.so
printf '[module cpu_ref]\npath = %s/.libs/cpu_ref.so\n' "$top_builddir" \
	>genai.ini
fails "the current folder is not searched" 2 "stray: no such file" generate \
	"$plain" --ids 1 --set runtime.module_path=/nonexistent \
	--set runtime.pager=stray
printf '%s\n' "$good" >genai.ini

# ---- limits ----

fails "no room for the cache" 1 "" generate "$plain" --ids 1 --set \
	runtime.device_limit=1KiB
fails "a budget beyond the limit" 2 "weight_budget" generate "$plain" --ids 1 \
	--set runtime.device_limit=8MiB --set runtime.weight_budget=100MiB
fails "a context beyond the model's" 2 "allows 512 positions" generate "$plain" --ids 1 --set \
	runtime.context=513

# ---- output that has no room ----

for command in --version help "help generate" config; do
	# shellcheck disable=SC2086 # words
	"$genai" $command >/dev/full 2>err
	is "$command to a full disk" "$? $(cat err)" \
		"1 genai: error: cannot write the output"
done
# ThreadSanitizer writes a file of 512 KiB at its start; the array has 128 bytes
# more than a shell's larger unit allows
(
	ulimit -f 1024
	"$genai" logits "$plain" --ids "$(seq -s , 0 511)" -o "$work/l.npy" 2>&1
	echo "status $?"
) | cat >out
like "beyond ulimit -f" "$(cat out)" "genai: error: *l.npy: *status 1"

# ---- weights that are no numbers ----

copy
tr '\000-\377' '\377' <"$plain/model.onnx.data" >m/model.onnx.data
echo 'hello hello hello' >text
fails "no perplexity of NaN" 1 "the model produced NaN at position" score m \
	--file text
fails "no best of NaN" 1 "the model produced NaN at position 0" logits m \
	--ids 1,2,3 --top 3

# ---- files without an end ----

large="more than 268435456 bytes"
for file in "generate $plain --prompt-file" "score $plain --file" \
	"tokenize $plain --file" "logits $plain --top 1 --ids"; do
	zero=/dev/zero
	[ "${file##* }" = --ids ] && zero=@/dev/zero
	# shellcheck disable=SC2086 # words
	fails "${file%% *} of an endless file" 1 "/dev/zero: $large" $file $zero
done
for command in "tokenize $plain --jsonl" "detokenize $plain --jsonl" \
	"template $plain --jsonl" "chat $plain"; do
	# shellcheck disable=SC2086 # words
	"$genai" $command </dev/zero >out 2>err
	is "${command%% *} of an endless line" "$? $(cat err out)" \
		"1 genai: error: stdin: a line: $large"
done

# ---- a device that is lost ----

# One line, and nothing about what could not be put right after it.
for executor in eager captured; do
	for at in 1 30 60 90 120; do
		set -- "$plain" --set module.cpu_ref.fault=lost:$at --set \
			runtime.executor=cpu_ref:$executor
		fails "lost at unit $at, $executor: generate" 1 \
			"the device was lost (unit $at" generate "$@" \
			--ids 1,2,3 --max-new-tokens 8 --ignore-eos --json
		fails "lost at unit $at, $executor: bench" 1 \
			"the device was lost (unit $at" bench "$@" \
			--prompt-tokens 4 --new-tokens 8 --repeat 3
		printf 'hello\nhello\n' | "$genai" chat "$@" >out 2>err
		like "lost at unit $at, $executor: chat" "$? $(cat err)" \
			"1 genai: error: *the device was lost (unit $at, simulated)"
	done
done
fails "lost: logits" 1 "the device was lost" logits "$plain" --ids 1,2,3 \
	--top 1 --set module.cpu_ref.fault=lost:20
fails "lost: score" 1 "the device was lost" score "$plain" --file text \
	--set module.cpu_ref.fault=lost:20

# ---- whose fault it is ----

copy
rm m/genai_config.json
"$probe" onnx badop m
fails "a graph that is refused: in which folder" 1 "m: the graph has no input" \
	generate m --ids 1
finish
