#!/bin/sh
# logits.sh - genai logits and genai score.
. "${top_srcdir:-.}/tests/cli/lib.sh"

ids=94,332,407,19,447,490,81,496,492,88,350,264,499,349,81,17,285,264,349,321,\
357,332,378,283,346,347,88,264,304,313,88,305,459

small() # value: at most 1e-4
{
	case $1 in
	0 | *e-0[5-9] | *e-1*) echo yes ;;
	*) echo "no: $1" ;;
	esac
}

for m in llama-cpu-fp32 llama-cpu-int4-asym qwen3-cpu-int4 qwen2-cpu-int8 \
	mistral-cpu-fp32 phi3-cpu-int4; do
	list=$("$probe" json prompts 33 <<EOF
$(tr -d '\n' <"$models/$m/golden/prompts.json")
EOF
)
	run logits "$models/$m" --ids "$list" -o out.npy
	is "$m: recorded logits" "$rc $(small "$("$probe" npydiff out.npy \
		"$models/$m/golden/prefill_33.npy" 2>&1)")" "0 yes"
done

runs "all at once" logits "$plain" --ids $ids -o whole.npy
is "a row per position" "$("$probe" npy whole.npy)" "float32 33 512"
is "nothing on stdout" "$(cat out)" ""
for chunks in 1 5,2,1 7 16,17 33 100; do
	runs "--chunks $chunks" logits "$plain" --ids $ids --chunks $chunks \
		-o part.npy
	if cmp -s whole.npy part.npy; then
		ok "--chunks $chunks gives the same bits"
	else
		not_ok "--chunks $chunks gives the same bits" \
			"$("$probe" npydiff whole.npy part.npy)"
	fi
done
runs "recorded" logits "$plain" --ids $ids --chunks 1 -o part.npy --set \
	runtime.executor=cpu_ref:captured
if cmp -s whole.npy part.npy; then
	ok "a recorded run gives the same bits"
else
	not_ok "a recorded run gives the same bits"
fi

runs "--top" logits "$plain" --ids 94,332 --top 3
is "a line per row" "$(wc -l <out | tr -d ' ')" 2
best=$(sed 's/:.*//' out | tail -n 1)
like "id:value pairs" "$(tail -n 1 out)" "[0-9]*:[-0-9]* [0-9]*:* [0-9]*:*"
run generate "$plain" --ids 94,332 --greedy --max-new-tokens 1 --json
is "the best one is the greedy one" "$(json ids)" "[$best]"
runs "both" logits "$plain" --ids 94,332 --top 1000 -o out.npy
is "no more than there are" "$(head -n 1 out | wc -w | tr -d ' ')" 512
runs "a single id" logits "$plain" --ids 5 -o one.npy
is "one row" "$("$probe" npy one.npy)" "float32 1 512"

fails "nothing to do" 2 "-o or --top" logits "$plain" --ids 1
fails "no ids" 2 "--ids" logits "$plain" -o x.npy
fails "chunks of 0" 2 "sizes are 1 or more" logits "$plain" --ids 1 --chunks \
	0 -o x.npy
fails "chunks of nothing" 2 "--chunks" logits "$plain" --ids 1 --chunks "" \
	-o x.npy
fails "an empty prompt" 1 "the prompt is empty" logits "$plain" --ids "" \
	-o x.npy
fails "an id out of range" 1 "ids are 0 to 511" logits "$plain" --ids 9,600 \
	-o x.npy
if [ ! -e x.npy ]; then
	ok "no half-written file"
else
	not_ok "no half-written file"
fi
fails "no such folder to write to" 1 "gone/x.npy: cannot write" logits \
	"$plain" --ids 1,2 -o gone/x.npy
fails "more than the context" 1 "the context of 16" logits "$plain" --ids \
	$ids -o x.npy --set runtime.context=16

# ---- score ----

printf 'cold and the small cat sat on the wall and then it went away' >text
runs "score" score "$plain" --file text
like "a line for people" "$(cat out)" "perplexity * over * tokens*"
runs "score --json" score "$plain" --file text --json
tokens=$(json tokens)
is "all but the first are scored" "$(json scored)" "$((tokens - 1))"
p=$(json perplexity)
nll=$(json nll)
if awk "BEGIN { d = exp($nll / ($tokens - 1)) - $p; d = d < 0 ? -d : d
	exit !(d < 1e-6 * $p && $p > 1) }"; then
	ok "the perplexity is that of the sum"
else
	not_ok "the perplexity is that of the sum" "$p $nll $tokens"
fi
# By hand, from the logits.
run tokenize "$plain" --file text
list=$(cat out)
"$genai" logits "$plain" --ids "$list" -o text.npy
sum=0 i=0
for id in $(echo "$list" | tr -d '[]' | tr , ' ' | cut -d' ' -f2-); do
	one=$("$probe" npyrow text.npy $i | awk -v id="$id" '{
		max = $1
		for (k = 1; k <= NF; k++)
			if ($k > max)
				max = $k
		for (k = 1; k <= NF; k++)
			sum += exp($k - max)
		printf "%.9f", log(sum) + max - $(id + 1)
	}')
	sum=$(awk "BEGIN { printf \"%.9f\", $sum + $one }")
	i=$((i + 1))
done
if awk "BEGIN { d = $sum - $nll; exit !(d < 1e-3 && d > -1e-3) }"; then
	ok "the sum is that of the logits"
else
	not_ok "the sum is that of the logits" "$sum $nll"
fi
for window in 2 4 8 100000; do
	runs "--window $window" score "$plain" --file text --window $window \
		--json
	is "--window $window scores each token once" "$(json scored)" \
		"$((tokens - 1))"
done
is "a large window is the context" "$(json window) $(json nll)" "512 $nll"
runs "--stride" score "$plain" --file text --window 8 --stride 8 --json
fails "one token" 1 "at least 2 are needed" score "$plain" --file /dev/null
fails "no file" 2 "--file" score "$plain"
fails "a missing file" 1 "gone: cannot open" score "$plain" --file gone
fails "--window 0" 2 "--window" score "$plain" --file text --window 0
finish
