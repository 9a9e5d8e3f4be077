#!/bin/sh
# batch.sh - genai batch: a file of requests, the answers in order.
. "${top_srcdir:-.}/tests/cli/lib.sh"

of() # FILE, path...
{
	file=$1
	shift
	"$probe" json "$@" <"$file" 2>&1
}

line() # n, path...: of a line of the output
{
	sed -n "${1}p" out >one
	shift
	"$probe" json "$@" <one 2>&1
}

cat >ask.jsonl <<'END'
{"prompt": "cold and the", "max_tokens": 12, "id": {"a": 7}}
{"ids": [72, 84, 320, 285, 264], "max_tokens": 12, "temperature": 1, "seed": 3, "n": 2}

{"prompt": "x", "max_tokns": 3}
{"prompt": "cold and the", "max_tokens": 3, "logprobs": 2, "echo": true}
nonsense
{"ids": [72, 84], "max_tokens": 4, "logit_bias": {"77": 100}}
{"ids": [72, 84], "max_tokens": 4, "logit_bias": {"x": 100}}
{"ids": [72, 99999]}
{"ids": [72], "prompt": "x"}
[1]
END
"$genai" generate "$plain" --prompt "cold and the" --greedy --json \
	--max-new-tokens 12 >alone 2>err
"$genai" generate "$plain" --ids 72,84,320,285,264 --temperature 1 --seed 4 \
	--max-new-tokens 12 --json >sampled 2>err
"$genai" --verbose batch "$plain" ask.jsonl --greedy >out 2>err
is "a line that failed: status 1" "$?" 1
is "a line for each that is not blank" "$(wc -l <out | tr -d ' ')" 10
is "in order, by number" "$(sed 's/{"line":\([0-9]*\),.*/\1/' out | tr '\n' ' ')" \
	"1 2 4 5 6 7 8 9 10 11 "
is "the tokens of generate" "$(line 1 choices 0 ids)" "$(of alone ids)"
is "its text" "$(line 1 choices 0 text)" "$(of alone text)"
is "the id comes back" "$(line 1 id a)" 7
is "the second choice has the next seed" "$(line 2 choices 1 ids)" \
	"$(of sampled ids)"
is "its end" "$(line 2 choices 1 finish_reason)" \
	"$(of sampled finish_reason)"
like "a mistyped key" "$(line 3 error)" '*max_tokns*did you mean max_tokens*'
is "echo" "$(line 4 choices 0 text | cut -c1-12)" "cold and the"
is "log probabilities of prompt and answer" \
	"$(line 4 choices 0 logprobs 7 top 1 id)" 158
like "what is not JSON" "$(line 5 error)" '*not JSON*'
is "a bias" "$(line 6 choices 0 ids)" '[77,77,77,77]'
like "a bias of no id" "$(line 7 error)" '*logit_bias: x*'
like "an id that is none" "$(line 8 error)" '*ids\[1\] is 99999*'
like "two prompts" "$(line 9 error)" '*one of prompt, ids and messages*'
like "no object" "$(line 10 error)" '*JSON object*'
like "what it cost" "$(cat err)" '*requests*new tokens*rows*'

# the same whatever shares the steps
for i in 1 2 3 4 5 6 7 8; do
	sed -n 1,2p ask.jsonl
done >many.jsonl
for many in 1 3 16; do
	runs "$many at once" batch "$plain" many.jsonl --greedy --sequences $many
	sed 's/"line":[0-9]*,//; s/"cached_tokens":[0-9]*/"cached_tokens":0/' out |
		sort -u >same
	is "every answer is the same" "$(wc -l <same | tr -d ' ')" 2
	cp same "same.$many"
done
is "with 1 and with 16" "$(cat same.1)" "$(cat same.16)"

for say in off 1 8 auto; do
	runs "speculation $say" batch "$plain" many.jsonl --greedy \
		--speculation $say
	sed 's/"line":[0-9]*,//; s/"cached_tokens":[0-9]*/"cached_tokens":0/' out |
		sort -u >same
	is "gives the same answers" "$(cat same)" "$(cat same.1)"
done
# 60 new tokens of a text that repeats, on the simulated clock
printf '{"ids":[5,6,7,8],"max_tokens":60}\n' >again.jsonl
for say in off 8; do
	"$genai" --verbose --set module.cpu_ref.clock=simulated \
		--set module.cpu_ref.link_bytes_per_s=50000000 \
		--set runtime.weight_budget=25% \
		batch "$plain" again.jsonl --greedy --ignore-eos \
		--speculation $say >again.$say 2>err
	like "$say: a rate by the device's clock" "$(tail -n 1 err)" \
		"genai: *[0-9].[0-9] a second by the device's clock"
done
is "the same with guesses" "$(cat again.8)" "$(cat again.off)"
fails "9 guesses" 2 "runtime.speculation = 9" batch "$plain" many.jsonl \
	--speculation 9

# ---- a tokenizer that lies elsewhere ----

mkdir bare text
cp "$plain/genai_config.json" "$plain/model.onnx" "$plain/model.onnx.data" bare
cp "$plain/tokenizer.json" "$plain/tokenizer_config.json" text
echo "{{ messages[0].content }}" >text/chat_template.jinja
cat >texts.jsonl <<END
{"prompt": "cold and the"}
{"messages": [{"role": "user", "content": "cold and the"}]}
END
"$genai" batch bare texts.jsonl --greedy >out 2>err
like "without it" "$(line 2 error)" "*need a tokenizer*"
runs "with it" batch bare texts.jsonl --greedy --tokenizer text -n 12
is "the tokens of generate" "$(line 1 choices 0 ids)" "$(of alone ids)"
is "its text" "$(line 1 choices 0 text)" "$(of alone text)"
is "its template" "$(line 2 prompt_tokens)" "$(line 1 prompt_tokens)"
fails "no such folder" 1 gone batch bare texts.jsonl --tokenizer gone

runs "from stdin" batch "$plain" - </dev/null
is "nothing asked, nothing said" "$(cat out)" ""
fails "no such file" 1 "gone.jsonl: cannot open" batch "$plain" gone.jsonl
fails "no file" 2 "a model folder and a file" batch "$plain"
fails "no such model" 1 "gone" batch gone ask.jsonl

finish
