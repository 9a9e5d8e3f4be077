#!/bin/sh
# tools.sh - genai inspect, import, synth, modules, config, help; the common
# options.
. "${top_srcdir:-.}/tests/cli/lib.sh"

# ---- inspect ----

runs "inspect" inspect "$plain"
like "operators by count" "$(cat out)" "*MatMul:11*"
like "the weights" "$(cat out)" "*weights: 0.6 MiB*"
runs "inspect --json" inspect "$plain" --json
for key in operators unsupported weight_bytes_by_type executor model_context \
	context kv_bytes_per_position weights_bytes plan memory predicted; do
	if json $key >/dev/null; then
		ok "inspect --json: $key"
	else
		not_ok "inspect --json: $key"
	fi
done
is "nothing is unsupported" "$(json unsupported)" "[]"
is "bytes of a position" "$(json kv_bytes_per_position)" 512
is "bytes of weights" "$(json weights_bytes)" 589824
is "all in place" "$(json plan in_place_bytes)" 589824
runs "--weight-budget" inspect "$models/qwen2-cpu-int8" --weight-budget 30% \
	--json --set module.pager_sync.page_bytes=4KiB
held=$(($(json plan pinned_bytes) + $(json plan ring_bytes)))
if [ "$held" -le $(($(json weights_bytes) * 3 / 10)) ]; then
	ok "pinned and ring are within the budget"
else
	not_ok "pinned and ring are within the budget" "$held"
fi
if [ "$(json plan streamed_bytes)" -gt 0 ]; then
	ok "the rest is streamed"
else
	not_ok "the rest is streamed"
fi
runs "--device-limit" inspect "$plain" --device-limit 64MiB --json
runs "inspect of a .onnx file" inspect "$plain/model.onnx" --json
"$probe" onnx badop bad
runs "inspect of a model that cannot run" inspect bad/model.onnx --json
like "says what and where" "$(json unsupported)" "*NoSuchOp*"
like "by node" "$(json unsupported)" "*strange*"

# ---- import ----

"$probe" gguf tiny.gguf
run import tiny.gguf -o tiny
is "import" "$rc $(cat out)" "0 "
like "says what it made" "$(cat err)" "genai: wrote tiny"
runs "import --quiet --overwrite" import tiny.gguf -o tiny --overwrite --quiet
runs "generate from the import" generate tiny --ids 1,2 --max-new-tokens 6 \
	--ignore-eos --json
a=$(json ids)
fails "import over a folder" 1 "tiny" import tiny.gguf -o tiny
run generate tiny.gguf --ids 1,2 --max-new-tokens 6 --ignore-eos --json
is "a .gguf path is imported to the cache" "$rc $(json ids)" "0 $a"
like "and says so" "$(cat err)" "genai: importing tiny.gguf to $HOME/.cache/*"
runs "once" generate tiny.gguf --ids 1,2 --max-new-tokens 6 --ignore-eos \
	--json
is "with the same result" "$(json ids)" "$a"
head -c 300000 tiny.gguf >cut.gguf
fails "a cut file" 1 "cut.gguf" import cut.gguf -o cut
echo GGUX >odd.gguf
fails "no GGUF" 1 "odd.gguf" import odd.gguf -o odd
fails "a missing file" 1 "gone.gguf: cannot open" import gone.gguf -o gone
if [ ! -e cut ] && [ ! -e odd ] && [ ! -e gone ]; then
	ok "nothing is left of a failed import"
else
	not_ok "nothing is left of a failed import"
fi
run import tiny.gguf --quiet
is "without -o it is where the commands find it" "$rc $(cat out)" \
	"0 $(ls -d "$HOME"/.cache/genai/tiny.gguf-*)"
fails "--overwrite without -o" 2 "goes with -o" import tiny.gguf --overwrite

# ---- synth ----

run synth tiny-llama -o synth
is "synth" "$rc $(cat out)" "0 "
runs "generate from it" generate synth --ids 1,2,3 --max-new-tokens 5 \
	--ignore-eos --json
a=$(json ids)
run synth tiny-llama -o synth --overwrite
run generate synth --ids 1,2,3 --max-new-tokens 5 --ignore-eos --json
is "the same seed, the same weights" "$(json ids)" "$a"
run synth tiny-llama -o other --seed 5
if cmp -s synth/model.onnx.data other/model.onnx.data; then
	not_ok "another seed, other weights"
else
	ok "another seed, other weights"
fi
for arch in tiny-qwen2 tiny-qwen3 tiny-lfm2 tiny-lfm2-moe tiny-qwen3.5 tiny-gemma3 \
	tiny-phi3 tiny-glm; do
	run synth $arch -o $arch --bits 8 --layers 3 --quiet
	runs "$arch of 8 bits" generate $arch --ids 1,2,3 --max-new-tokens 5 \
		--ignore-eos --json
done
runs "synth --list" synth --list
like "it knows real ones" "$(cat out)" "*Llama-3.1-8B*"
fails "no such architecture" 1 "no architecture 'tiny'" synth tiny -o x
fails "--bits 5" 1 "bits" synth tiny-llama -o x --bits 5
fails "no -o" 2 "-o DIR" synth tiny-llama

# ---- modules, config ----

runs "modules" modules
like "by name" "$(cat out)" "*cpu_ref *"
runs "modules --json" modules --json
is "the name" "$(json modules 0 name)" cpu_ref
is "the path" "$(json modules 0 path)" "$top_builddir/.libs/cpu_ref.so"
for key in version abi licence state interfaces; do
	if json modules 0 $key >/dev/null; then
		ok "modules --json: $key"
	else
		not_ok "modules --json: $key"
	fi
done
is "the device" "$(json device kind)" sim
runs "config" config
like "a key with its origin" "$(cat out)" "*executor*cpu_ref:eager*default*"
runs "config --json" config --json --set runtime.context=77
is "the file" "$(json file)" ./genai.ini
json keys >keys
like "--set is an origin" "$(cat keys)" \
	'*"key":"context","value":"77","origin":"--set"*'
like "file and line are an origin" "$(cat keys)" \
	'*"key":"path","value":"*cpu_ref.so","origin":"./genai.ini:2"*'
like "default is an origin" "$(cat keys)" \
	'*"key":"check","value":"off","origin":"default"*'
ini >other.ini
printf '[runtime]\ncontext = 88\n' >>other.ini
runs "--config" --config other.ini config --json
like "of that file" "$(json keys)" '*"value":"88","origin":"other.ini:6"*'
runs "--set wins over the file" config --config other.ini --json \
	--set=runtime.context=99
like "it does" "$(json keys)" '*"key":"context","value":"99"*'
mkdir -p .config/genai elsewhere
cp other.ini .config/genai/genai.ini
cd elsewhere || exit 1
runs "the user's own file" config --json
is "it was found" "$(json file)" "$HOME/.config/genai/genai.ini"
cd ..

# ---- help and common options ----

runs "--version" --version
like "version and ABI" "$(cat out)" "genai [0-9]*.[0-9]* (ABI [0-9]*.[0-9]*)*"
runs "--help" --help
for c in generate chat serve logits score tokenize detokenize template run inspect \
	bench import synth modules config; do
	case $(cat out) in
	*"  $c "*) ok "help lists $c" ;;
	*) not_ok "help lists $c" ;;
	esac
done
for c in generate chat serve logits score tokenize detokenize template run inspect \
	bench import synth modules config; do
	run help $c
	like "help $c" "$rc $(cat out)" "0 usage: genai $c*"
done
run generate --help
like "--help after a command" "$rc $(cat out)" "0 usage: genai generate*"
fails "no such command" 2 "no command nonsense" nonsense
fails "help of none" 2 "no command nonsense" help nonsense
run
is "no command at all: 2" "$rc $(cat out)" "2 "
fails "--set without a value" 2 "--set" config --set
fails "--config without a value" 2 "--config" config --config
finish
