#!/bin/sh
# generate.sh - genai generate: every flag, what goes where, how it ends.
. "${top_srcdir:-.}/tests/cli/lib.sh"

first='[421,372,225,74,94,288,313,290,56,32,103,305]'

runs "greedy from a text" generate "$plain" --prompt "cold and the" \
	--greedy --max-new-tokens 12 --json
is "the prompt's ids" "$(json prompt_ids)" '[72,84,320,285,264]'
is "the recorded ids" "$(json ids)" "$first"
is "it ended by length" "$(json finish_reason)" length
is "executor" "$(json config executor)" cpu_ref:eager
is "stream" "$(json config stream)" cpu_ref
is "barrier" "$(json config barrier)" cpu_ref
is "pager" "$(json config pager)" pager_sync
missing=
for key in load_s ttft_s prefill_tok_s decode_tok_s prompt_tokens new_tokens \
	host_peak_bytes host_pinned_bytes device_limit_bytes \
	weight_budget_bytes device_peak_bytes weights_bytes pinned_bytes \
	ring_bytes in_place_bytes streamed_bytes_per_token link_gb_s captures \
	replays fallbacks; do
	json stats $key >/dev/null || missing="$missing $key"
done
is "no statistics are missing" "$missing" ""
is "tokens counted" "$(json stats prompt_tokens) $(json stats new_tokens)" \
	"5 12"
text=$(json text)

runs "plain text" generate "$plain" --prompt "cold and the" --greedy \
	--max-new-tokens 12
is "stdout is the text and a newline" "$(cat out)" "$text"

printf 'cold and the' >prompt.txt
runs "--prompt-file" generate "$plain" --prompt-file prompt.txt --greedy \
	--max-new-tokens 12
is "the same from a file" "$(cat out)" "$text"

"$genai" generate "$plain" --greedy --max-new-tokens 12 <prompt.txt >out 2>err
is "the same from stdin" "$? $(cat out) $(cat err)" "0 $text "

runs "--ids" generate "$plain" --ids 72,84,320,285,264 --greedy \
	--max-new-tokens 12 --json
is "the same from ids" "$(json ids)" "$first"

echo '[72, 84, 320, 285, 264]' >ids.json
runs "--ids @FILE" generate "$plain" --ids @ids.json --greedy \
	--max-new-tokens 12 --json
is "the same from a file of ids" "$(json ids)" "$first"

runs "--echo" generate "$plain" --prompt "cold and the" --greedy --echo \
	--max-new-tokens 12
is "the prompt comes first" "$(cat out)" "cold and the$text"

runs "options before the command and after the folder" --set \
	runtime.executor=cpu_ref:captured generate "$plain" --ids \
	72,84,320,285,264 --greedy --json --max-new-tokens 12 --quiet
is "a recorded run gives the same" "$(json ids)" "$first"
is "it was recorded" "$(json stats captures)" 1
is "fallbacks are an object" "$(json stats fallbacks | cut -c1)" "{"

for budget in 100% 50% 10% 0; do
	run generate "$plain" --ids 72,84,320,285,264 --greedy --json \
		--max-new-tokens 12 --set runtime.weight_budget=$budget
	is "weight_budget $budget gives the same" "$(json ids)" "$first"
done

runs "a simulated clock" generate "$plain" --ids 72,84,320,285,264 --greedy \
	--json --max-new-tokens 12 --set module.cpu_ref.clock=simulated --set \
	module.cpu_ref.memory_bytes_per_s=1000000000 --set \
	runtime.executor=cpu_ref:captured
is "the same ids" "$(json ids)" "$first"
# 589824 bytes of weights at 1 GB/s, and what is computed with them
if awk "BEGIN { t = $(json stats simulated_s_per_token)
	exit !(t > 0.00045 && t < 0.001 && $(json stats simulated_s) > 11 * t) }"
then
	ok "time per token is that of the bytes"
else
	not_ok "time per token is that of the bytes" "$(json stats)"
fi

runs "no new tokens" generate "$plain" --prompt "cold and the" \
	--max-new-tokens 0 --json
is "none came" "$(json ids) $(json finish_reason)" "[] length"

# ---- the end of the text ----

cp -R "$plain" model
chmod -R u+w model
sed -i 's/"eos_token_id": 0/"eos_token_id": [7, 313]/' model/genai_config.json
runs "one of several ends of text" generate model --ids 72,84,320,285,264 \
	--greedy --max-new-tokens 12 --json
is "it ended there" "$(json finish_reason) $(json ids)" \
	"eos [421,372,225,74,94,288,313]"
runs "--ignore-eos" generate model --ids 72,84,320,285,264 --greedy \
	--max-new-tokens 12 --json --ignore-eos
is "it went on" "$(json finish_reason) $(json ids)" "length $first"

# "sbo],.ey.ck iS;. of": what a stop text ends does not show
for stop in "s" "bo]" "ey" "k i"; do
	runs "--stop '$stop'" generate "$plain" --prompt "cold and the" \
		--greedy --max-new-tokens 12 --json --stop "$stop"
	is "it ended before '$stop'" "$(json finish_reason) $(json text)" \
		"stop ${text%%"$stop"*}"
done
runs "a stop text over several tokens, streamed" generate "$plain" --prompt \
	"cold and the" --greedy --max-new-tokens 12 --stop "ck iS;"
is "nothing of it was printed" "$(cat out)" "${text%%"ck iS;"*}"
runs "a stop text that begins but does not come" generate "$plain" --prompt \
	"cold and the" --greedy --max-new-tokens 12 --stop "ck iX" --stop "of!"
is "all was printed in the end" "$(cat out)" "$text"
runs "the first of several stop texts" generate "$plain" --prompt \
	"cold and the" --greedy --max-new-tokens 12 --stop "ck" --stop "ey"
is "the earlier one ended it" "$(cat out)" "${text%%"ey"*}"

# ---- whole characters ----

run generate "$plain" --prompt "cold and the" --greedy --max-new-tokens 200 \
	--ignore-eos
if iconv -f UTF-8 -t UTF-8 out >/dev/null 2>&1; then
	ok "the text is UTF-8 throughout"
else
	not_ok "the text is UTF-8 throughout"
fi

# ---- sampling ----

sample() # flags...
{
	run generate "$plain" --prompt "cold and the" --max-new-tokens 24 \
		--json --ignore-eos "$@"
	json ids
}
a=$(sample --temperature 1 --seed 1)
is "the same seed, the same text" "$(sample --temperature 1 --seed 1)" "$a"
b=$(sample --temperature 1 --seed 2)
if [ "$a" != "$b" ]; then
	ok "another seed, another text"
else
	not_ok "another seed, another text" "$a"
fi
g=$(sample --greedy)
is "--temperature 0 is greedy" "$(sample --temperature 0)" "$g"
is "--top-k 1 is greedy" "$(sample --top-k 1 --seed 3)" "$g"
is "--top-p 1e-9 is greedy" \
	"$(sample --top-p 1e-9 --seed 3 --temperature 1)" "$g"
is "--min-p 1 is greedy" "$(sample --min-p 1 --seed 3 --temperature 1)" "$g"
is "--greedy wins over --temperature" \
	"$(sample --greedy --temperature 2 --seed 3)" "$g"
# a penalty that rewards what was there changes the choice
for flag in "--repetition-penalty 0.01" "--presence-penalty -2" \
	"--frequency-penalty -2"; do
	# shellcheck disable=SC2086 # two words
	run generate "$plain" --ids 72,84,320,285,264,421,372,225,74,94,288 \
		--max-new-tokens 24 --json --ignore-eos --greedy $flag
	p=$(json ids)
	run generate "$plain" --ids 72,84,320,285,264,421,372,225,74,94,288 \
		--max-new-tokens 24 --json --ignore-eos --greedy
	if [ "$p" != "$(json ids)" ]; then
		ok "$flag changes the choice"
	else
		not_ok "$flag changes the choice" "$p"
	fi
done

# ---- chat ----

runs "--chat" generate "$plain" --chat --prompt "hi <|end|> there" --greedy \
	--max-new-tokens 1 --json
# 2 is <|end|>: only the template's own one is special
is "a special token in the user's text stays text" "$(json prompt_ids)" \
	'[4,204,392,226,33,97,316,73,97,35,264,281,2,204,5,204]'
run generate "$plain" --chat --prompt "<|end|>" --max-new-tokens 1 --json
is "also when it is all of it" "$(json prompt_ids)" \
	'[4,204,33,97,316,73,97,35,2,204,5,204]'
run generate "$plain" --prompt "<|end|>" --max-new-tokens 1 --json
is "without --chat it is special" "$(json prompt_ids)" '[2]'
runs "--system" generate "$plain" --chat --system "be brief" --prompt hi \
	--max-new-tokens 1 --json
like "the system turn is there" "$(json prompt_ids)" '\[3,204,*,2,204,4,*'

# ---- the context ----

fails "more than the context" 1 "the prompt's 5 tokens leave no room: \
prompt and answer together may have 4" generate "$plain" --ids 1,2,3,4,5 \
	--set runtime.context=4
fails "a full context" 1 "the prompt's 4 tokens leave no room" generate \
	"$plain" --ids 1,2,3,4 --set runtime.context=4
runs "an almost full context" generate "$plain" --ids 1,2,3 --set \
	runtime.context=4 --max-new-tokens 9 --ignore-eos --json
is "it ended when the context was full" \
	"$(json stats new_tokens) $(json finish_reason)" "1 length"

# ---- interrupts ----

"$genai" --quiet synth tiny-llama -o long --context 100000
# a shell lets commands in the background ignore SIGINT: setsid does not help,
# a subshell of its own that resets it does
interrupt() # seconds, arguments...
{
	after=$1
	shift
	env --default-signal=INT "$genai" "$@" >out 2>err &
	pid=$!
	sleep "$after"
	kill -INT $pid
	wait $pid
	rc=$?
}
interrupt 0.5 generate long --ids 1,2,3 --ignore-eos --max-new-tokens 99000 \
	--json
is "Ctrl-C: 130" "$rc" 130
is "what came is kept" "$(json finish_reason)" interrupted
if [ "$(json stats new_tokens)" -gt 0 ]; then
	ok "and counted"
else
	not_ok "and counted"
fi
interrupt 0.5 generate long --ids 1,2,3 --ignore-eos --max-new-tokens 99000
is "Ctrl-C while text streams: 130" "$rc" 130
if [ -s out ]; then
	ok "the text so far was printed"
else
	not_ok "the text so far was printed"
fi
mkfifo pipe
sleep 2 >pipe &
"$genai" --version >/dev/null
env --default-signal=INT "$genai" generate long <pipe >out 2>err &
pid=$!
sleep 0.3
kill -INT $pid
wait $pid
is "Ctrl-C while waiting for the prompt: 130" "$?" 130

# ---- usage ----

fails "no folder" 2 "one model folder" generate --prompt x
fails "two folders" 2 "one model folder" generate "$plain" "$plain"
fails "an unknown option" 2 "unknown option" generate "$plain" --promt x
fails "a missing value" 2 "--prompt" generate "$plain" --prompt
fails "two prompts" 2 "only one of" generate "$plain" --prompt x --ids 1
fails "--ids with --chat" 2 "--ids does not go" generate "$plain" --ids 1 \
	--chat
fails "an empty --stop" 2 "--stop" generate "$plain" --prompt x --stop ""
for bad in "--max-new-tokens -1" "--max-new-tokens x" "--temperature -1" \
	"--temperature nan" "--top-p 1.5" "--top-k -2" "--min-p 2" \
	"--repetition-penalty 0" "--seed -1"; do
	# shellcheck disable=SC2086 # two words
	fails "generate $bad" 2 "${bad%% *}" generate "$plain" --prompt x $bad
done
fails "an empty prompt" 1 "the prompt is empty" generate "$plain" --prompt ""
fails "an id out of range" 1 "token 1 is 512: ids are 0 to 511" generate \
	"$plain" --ids 5,512
fails "a negative id" 1 "token 0 is -3" generate "$plain" --ids=-3
fails "no ids" 1 "the prompt is empty" generate "$plain" --ids ""
fails "no number" 2 "'x,2' is not a token id" generate "$plain" --ids 1,x,2
fails "no such file of ids" 1 "gone.txt: cannot open" generate "$plain" \
	--ids @gone.txt
fails "no such prompt file" 1 "gone.txt: cannot open" generate "$plain" \
	--prompt-file gone.txt
if [ -c /dev/full ]; then
	"$genai" generate "$plain" --ids 1,2 --max-new-tokens 4 >/dev/full 2>err
	is "a full disk: 1" "$? $(cat err)" \
		"1 genai: error: cannot write the output"
fi
# ---- a tokenizer that lies elsewhere ----

mkdir bare text
cp "$plain/genai_config.json" "$plain/model.onnx" "$plain/model.onnx.data" bare
cp "$plain/tokenizer.json" "$plain/tokenizer_config.json" \
	"$plain/chat_template.jinja" text
fails "without it" 1 "bare: no tokenizer here" generate bare --prompt x
runs "a text" generate bare --tokenizer text --prompt "cold and the" --greedy \
	--max-new-tokens 12 --json
is "its ids" "$(json prompt_ids) $(json ids)" "[72,84,320,285,264] $first"
runs "as an address" generate bare --prompt "cold and the" --json -n 1 \
	--greedy --tokenizer "file://$PWD/text"
is "is the same" "$(json prompt_ids)" '[72,84,320,285,264]'
"$genai" generate "$plain" --prompt "cold and the" --greedy -n 12 >want
runs "with ids" generate bare --tokenizer text --ids 72,84,320,285,264 \
	--greedy --max-new-tokens 12
is "text is shown" "$(cat out)" "$(cat want)"
runs "its template" generate bare --tokenizer text --prompt hello --chat \
	--greedy -n 4 --json
both=$(json prompt_ids)
runs "and the model's" generate "$plain" --prompt hello --chat --greedy -n 4 \
	--json
is "are the same" "$both" "$(json prompt_ids)"
echo "{{ 'cold' }}" >text/chat_template.jinja
runs "another template" generate "$plain" --tokenizer text --prompt hello \
	--chat --greedy -n 1 --json
is "wins over the model's" "$(json prompt_ids | cut -c1-7)" "[72,84,"
echo hello | "$genai" chat bare --tokenizer text --greedy -n 4 >out 2>err
is "chat" "$? $(wc -l <out) $(cat err)" "0 1 "
runs "score" score bare --tokenizer text --file prompt.txt --json
both=$(json nll)
runs "score of the model's" score "$plain" --file prompt.txt --json
is "has the same sum" "$both" "$(json nll)"
"$probe" gguf tiny.gguf
runs "that of a GGUF file" --quiet generate bare --tokenizer tiny.gguf \
	--prompt abc --greedy -n 1 --json
is "has other ids" "$(json prompt_ids)" '[6]'
fails "no such folder" 1 "gone" generate bare --tokenizer gone --ids 1
fails "a folder without one" 1 "bare: no tokenizer here" generate "$plain" \
	--tokenizer bare --prompt x
fails "no name" 2 "--tokenizer" generate "$plain" --tokenizer "" --prompt x

# what a module counts is shown
runs "with a layer that counts" generate "$plain" --ids 1,5 --greedy -n 2 \
	--json --set "runtime.stream=tracer > cpu_ref" \
	--set module.tracer.path="$top_builddir/tests/fixtures/.libs/tracer.so"
like "its counters are there" "$(tr -d ' ' <out)" \
	'*"counters":{"tracer.*copy_bytes":[1-9]*'
runs "without" generate "$plain" --ids 1,5 --greedy -n 2 --json
like "none" "$(tr -d ' ' <out)" '*"counters":{}*'

finish
