#!/bin/sh
# bench.sh - genai bench: its rows, what they say, its picture.
. "${top_srcdir:-.}/tests/cli/lib.sh"

printf '[module pager_async]\npath = %s/.libs/pager_async.so\n' \
	"$top_builddir" >>genai.ini
"$genai" --quiet synth tiny-qwen2 -o m --bits 8 --layers 3

rows() # of b.json as one line to out, which json reads
{
	tr -d '\n' <b.json >out
	echo >>out
}

same() # description, key, expected values, one of each row
{
	got=
	for i in $(seq 0 $(($(echo "$3" | wc -w) - 1))); do
		got="$got $(json rows "$i" "$2")"
	done
	is "$1" "$got" " $3"
}

# ---- rows ----

runs "bench" bench m --prompt-tokens 4,8 --depth 0,6 --new-tokens 4 \
	--repeat 2 --json b.json
like "the device and its ceilings" "$(head -n 1 out)" \
	"CPU, *; memory * GB/s, link * GB/s"
is "a heading and four rows" "$(wc -l <out | tr -d ' ')" 6
like "of these columns" "$(sed -n 2p out)" \
	"executor*pager*budget*limit*decode/s*link GB/s*peak MB*floor/s*share*"
rows
if json rows 4 >/dev/null; then
	not_ok "as many in the file"
else
	ok "as many in the file"
fi
same "sizes of prompts" prompt_tokens "4 4 8 8"
same "depths" depth "0 6 0 6"
for key in executor stream barrier pager weight_budget device_limit \
	new_tokens weights_bytes weight_budget_bytes device_limit_bytes \
	device_peak_bytes pinned_bytes ring_bytes in_place_bytes \
	streamed_bytes_per_token prefill_tok_s decode_tok_s bytes_per_token \
	link_gb_s floor_tok_s share_of_floor tokens_same; do
	if json rows 3 $key >/dev/null; then
		ok "a row has $key"
	else
		not_ok "a row has $key"
	fi
done
for key in model device memory_bytes_s link_bytes_s tokens_same rows; do
	if json $key >/dev/null; then
		ok "all of them have $key"
	else
		not_ok "all of them have $key"
	fi
done
weights=$(json rows 0 weights_bytes)
if [ "$(json rows 0 device_peak_bytes)" -lt $((16 << 20)) ]; then
	ok "measuring the ceilings is not in the peak"
else
	not_ok "measuring the ceilings is not in the peak"
fi

# ---- combinations ----

runs "--matrix and both lists" bench m --prompt-tokens 4 --new-tokens 4 \
	--repeat 1 --matrix \
	'pager=pager_sync|pager_async,executor=cpu_ref:eager|cpu_ref:captured' \
	--device-limit 64MiB,32MiB --weight-budget 100%,50% --json b.json
is "sixteen rows" "$(sed 1,2d out | wc -l | tr -d ' ')" 16
rows
e=cpu_ref:eager c=cpu_ref:captured s=pager_sync a=pager_async
same "executors" executor "$e $e $e $e $e $e $e $e $c $c $c $c $c $c $c $c"
same "pagers" pager "$s $s $s $s $a $a $a $a $s $s $s $s $a $a $a $a"
l="67108864 67108864 33554432 33554432"
same "limits" device_limit_bytes "$l $l $l $l"
b="100% 50% 100% 50%"
same "budgets" weight_budget "$b $b $b $b"
is "half of the weights" "$(json rows 1 weight_budget_bytes)" \
	$((weights / 2))
is "all gave the same tokens" "$(json tokens_same)" true
if [ "$(json rows 1 streamed_bytes_per_token)" -gt 0 ] &&
	[ "$(json rows 1 link_gb_s)" != 0.0 ]; then
	ok "a paged row uses the link"
else
	not_ok "a paged row uses the link" "$(json rows 1)"
fi
is "one that is not does not" "$(json rows 0 link_gb_s)" 0.0

runs "--set is what rows say" bench m --prompt-tokens 4 --new-tokens 2 \
	--repeat 1 --set runtime.weight_budget=25% --json b.json
rows
is "of the budget" "$(json rows 0 weight_budget)" "25%"

runs "out of the cache" bench m --prompt-tokens 4 --new-tokens 4 --repeat 1 \
	--weight-budget 30%,100% --cold --json b.json
like "it says so" "$(cat out)" "*files out of the cache before each step*"
rows
same "the tokens" tokens_same "true true"
is "and of the row" "$(json rows 0 cold)" true

# ---- where time is counted ----

runs "both pagers beside the floor" bench m --prompt-tokens 4 --new-tokens 8 \
	--repeat 1 --weight-budget 0,10%,30%,100% --matrix \
	'executor=cpu_ref:captured,pager=pager_sync|pager_async' \
	--set module.cpu_ref.clock=simulated \
	--set module.cpu_ref.link_bytes_per_s=50000000 \
	--set module.cpu_ref.memory_bytes_per_s=1000000000 \
	--set module.cpu_ref.copy_latency_ns=500 \
	--set module.cpu_ref.launch_ns=2000 --json b.json --plot p.svg
rows
ok=1
for i in 0 1 2 3; do
	sync=$(json rows $i share_of_floor)
	async=$(json rows $((i + 4)) share_of_floor)
	slow=$(json rows $i simulated_tok_s median)
	fast=$(json rows $((i + 4)) simulated_tok_s median)
	awk -v s="$sync" -v a="$async" -v slow="$slow" -v fast="$fast" 'BEGIN {
		exit !(s > 0.3 && s <= 1.0001 && a >= 0.6 && a <= 1.0001 &&
			fast >= slow)
	}' || ok=
done
if [ "$ok" ]; then
	ok "neither passes it, and async is never behind"
else
	not_ok "neither passes it, and async is never behind" "$(cat out)"
fi
is "and so is the link's rate" "$(awk -v a="$(json rows 6 link_gb_s)" \
	-v s="$(json rows 6 streamed_bytes_per_token)" \
	-v t="$(json rows 6 simulated_tok_s median)" \
	'BEGIN { x = a / (s * t * 1e-9); print (x > 0.999 && x < 1.001) }')" 1
heights() # above the axis of all points of the lines of this class
{
	sed -n "s/.*class=\"$1\".*points=\"\(.*\) \".*/\1/p" p.svg |
		tr ' ' '\n' | awk -F, '{ print 370 - $2 }'
}
heights rate >rates
heights floor >floors
is "and what the picture has beside its floor" "$(for i in 0 1 2 3 4 5 6 7; do
	json rows $i share_of_floor
done | paste - rates floors | awk '
	{ d = $1 * $3 - $2; if (d < -0.2 || d > 0.2) bad = 1 }
	END { print NR, bad + 0 }')" "8 0"
is "all of the weights, where the device has no end" \
	"$(json rows 3 weight_budget_bytes)" "$(json rows 3 pinned_bytes)"
is "by the clock's rates" "$(json memory_bytes_s) $(json link_bytes_s)" \
	"1000000000.0 50000000.0"

# The example of the page.
page=$top_srcdir/docs/SIMULATED-DEVICE.md
awk '/^```ini$/ { on = 1; next } /^```$/ && on { exit } on' "$page" >sim.ini
cat genai.ini sim.ini >page.ini
eval "$(sed -n '/^    genai synth/s/^    genai/"$genai" --quiet/p' "$page")"
eval "$(awk '/^    genai --config sim.ini/ { on = 1 } /^$/ { on = 0 } on' \
	"$page" | sed 's/^    genai --config sim.ini/"$genai" --config page.ini/')" \
	>out 2>err
awk '$1 == "cpu_ref:captured" {
	print "| " $2 " | " $3 " | " $8 " | " $15 " | " $16 " |"
}' out >rows.page
is "the page's rows" "$(grep '^| pager_' "$page")" "$(cat rows.page)"

# A rate that is left out costs nothing, and has no bound.
for rates in 'link_bytes_per_s=1000' 'memory_bytes_per_s=1000' \
	'copy_latency_ns=1000' 'copy_latency_ns=18446744073709551615' \
	'launch_ns=18446744073709551615'; do
	runs "a clock of $rates" bench m --prompt-tokens 4 --new-tokens 4 \
		--repeat 1 --weight-budget 30%,100% \
		--set module.cpu_ref.clock=simulated \
		--set "module.cpu_ref.$rates" --json b.json
	rows
	same "its tokens" tokens_same "true true"
	runs "to inspect" inspect m --json \
		--set module.cpu_ref.clock=simulated \
		--set "module.cpu_ref.$rates"
	like "what it says of the floor" \
		"$(json predicted tokens_per_s_at_most)" '[0-9n]*'
done
like "the longest launches have one" \
	"$(json predicted tokens_per_s_at_most)" '[0-9]*'
runs "none at all" bench m --prompt-tokens 4 --new-tokens 4 --repeat 1 \
	--weight-budget 100% --set module.cpu_ref.clock=simulated \
	--set module.cpu_ref.link_bytes_per_s=1000 --json b.json
rows
is "are null" "$(json memory_bytes_s) $(json link_bytes_s) $(json rows 0 \
	floor_tok_s)" "null 1000.0 null"
runs "and inf" inspect m --set module.cpu_ref.clock=simulated \
	--set module.cpu_ref.copy_latency_ns=7
like "in words" "$(cat out)" \
	"*at most inf tokens/s: memory copies at inf GB/s, the link at inf *"

# ---- the picture ----

cp -R m 'a<b&"c'
runs "--plot" bench 'a<b&"c' --prompt-tokens 4 --new-tokens 4 --repeat 1 \
	--weight-budget 0,50%,100% --plot p.svg --matrix \
	'executor=cpu_ref:eager|cpu_ref:captured'
is "it is SVG, to its end" "$(head -c 39 p.svg) $(tail -n 1 p.svg)" \
	'<svg xmlns="http://www.w3.org/2000/svg" </svg>'
like "what XML would read is escaped" "$(grep '>a' p.svg)" \
	'*>a&lt;b&amp;"c</text>'
is "a line for each executor" "$(grep -c 'polyline class="rate"' p.svg)" 2
is "and its floor" "$(grep -c 'polyline class="floor"' p.svg)" 2
is "a mark for each row" "$(grep -c 'class="row"' p.svg)" 6
is "of a form for each executor" \
	"$(sed -n 's/.*class="row".* d="\([^"]*\)".*/\1/p' p.svg | sort -u | wc -l)" 2
is "which the key has" "$(grep -c 'class="key"' p.svg)" 2
is "budgets from left to right" "$(sed -n \
	's/.*class="row" transform="translate(\([0-9.]*\) .*/\1/p' p.svg | head -n 3 | tr '\n' ' ')" \
	"70.0 400.0 730.0 "

# ---- many sequences ----

runs "sequences" bench m --sequences 1,3,16 --prompt-tokens 9 --new-tokens 4 \
	--repeat 2 --matrix 'executor=cpu_ref:eager|cpu_ref:captured' \
	--json b.json
like "where the time went, below each row" "$(sed -n 8p out)" \
	"*3 steps of 4.0 rows: * ms each*"
rows
same "so many at once" sequences "1 3 16 1 3 16"
same "whose tokens are those of the prompt alone" tokens_same \
	"true true true true true true"
captures=$(json rows 5 captures)
if [ "$captures" -ge 2 ] && [ "$captures" -le 5 ]; then
	ok "recorded once for each number of rows ($captures)"
else
	not_ok "recorded once for each number of rows ($captures)"
fi
same "and none that should have been was not" fallbacks "0 0 0 0 0 0"
more=$(json rows 2 rows_per_step)
if [ "${more%.*}" -gt 4 ]; then
	ok "they share steps ($more rows)"
else
	not_ok "they share steps ($more rows)"
fi
# 3 x 9 rows of prompts in one step, then 3 steps of 3, padded to 4
is "steps of prompts" "$(json rows 1 steps 0 prompts) \
$(json rows 1 steps 0 steps) $(json rows 1 steps 0 rows)" "true 1 27"
is "and tokens alone" "$(json rows 1 steps 1 prompts) \
$(json rows 1 steps 1 steps) $(json rows 1 steps 1 rows)" "false 3 12"
fails "too many" 2 "at most 128" bench m --sequences 129
fails "with a depth" 2 "not with" bench m --sequences 2 --depth 4

# ---- where time goes ----

# On the simulated clock, where what is streamed is waited for.
runs "bench --profile" bench m --prompt-tokens 6 --new-tokens 4 --repeat 1 \
	--profile --json b.json --weight-budget 50% \
	--set runtime.pager=pager_async --set module.pager_async.page_bytes=8KiB \
	--set module.cpu_ref.clock=simulated \
	--set module.cpu_ref.link_bytes_per_s=50000000 \
	--set module.cpu_ref.memory_bytes_per_s=5000000000
is "a table for the prompt, one for tokens" \
	"$(grep -c '^where the time of' out)" 2
like "a line for the head" "$(grep '^MatMulNBits.*lm_head' out | tail -n 1)" \
	"MatMulNBits */lm_head/* *%"
like "layers are one line" "$(grep 'qkv_proj' out | tail -n 1)" \
	"*/layers.\*/attn/qkv_proj/* *.0 *%"
if grep -q '^wait ' out && grep -q '^copy to the device' out; then
	ok "copies and what waits for them"
else
	sed 's/^/# /' out
	not_ok "copies and what waits for them"
fi
rows
# a copy takes what the link needs for it
i=0
while name=$(json rows 0 profile token $i name) &&
	[ "$name" != "to the device" ]; do
	i=$((i + 1))
done
like "the same in the file" "$(json rows 0 profile token $i gb_s)" "0.0[45]*"
runs "with an executor that records" bench m --prompt-tokens 6 \
	--new-tokens 4 --repeat 1 --profile \
	--set runtime.executor=cpu_ref:captured
is "unit by unit, too" "$(grep -c '/lm_head/' out)" 2

cat >ncu.csv <<'EOT'
==PROF== Connected to process 7
"ID","Process ID","Kernel Name","Block Size","Metric Name","Metric Unit","Metric Value"
"0","7","cep_dot(cep_mm)","(256, 1, 1)","dram__bytes_read.sum","Mbyte","2.5"
"0","7","cep_dot(cep_mm)","(256, 1, 1)","gpu__time_duration.sum","ns","1,500"
"1","7","cep_dot(cep_mm)","(256, 1, 1)","dram__bytes_read.sum","Kbyte","500"
"1","7","cep_dot(cep_mm)","(256, 1, 1)","gpu__time_duration.sum","us","0.5"
"2","7","say ""no"", twice","(1, 1, 1)","gpu__time_duration.sum","ns","2,000"
EOT
cat >raw.csv <<'EOT'
"ID","Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum"
"","","usecond","Mbyte"
"0","a","3","3"
"1","b","1","0"
EOT
printf '"Kernel Name","Metric Name","Metric Unit","Metric Value"\n"a","gpu__time_duration.sum","ns","x"\n' >bad.csv
printf '"Kernel Name","Metric Name","Metric Unit","Metric Value"\n"a","gpu__time_duration.sum","weeks","1"\n' >unit.csv
runs "--profile-csv" bench m --prompt-tokens 4 --new-tokens 2 --repeat 1 \
	--profile-csv ncu.csv --json b.json
like "a kernel" "$(grep '^cep_dot ' out)" "cep_dot * 2.0 * 2.0 * 1500.0 * 50.0%"
like "a name with everything in it" "$(grep '^say' out)" \
	'say "no", twice * 1.0 * 2.0 * - * 50.0%'
rows
is "in the file" "$(json profiler 0 count)" 2.0
runs "a column for each" bench m --prompt-tokens 4 --new-tokens 2 --repeat 1 \
	--profile-csv raw.csv
like "of it" "$(grep '^a ' out)" "a * 1.0 * 3.0 * 1000.0 * 75.0%"
fails "no number" 1 "bad.csv: line 2: 'x' of 'ns'" bench m --profile-csv bad.csv
fails "no unit" 1 "unit.csv: line 2: '1' of 'weeks'" bench m \
	--profile-csv unit.csv
fails "no kernels" 1 "genai.ini: no kernels" bench m --profile-csv genai.ini
fails "no file" 1 "gone" bench m --profile-csv gone
fails "with many sequences" 2 "not with" bench m --sequences 2 --profile

# ---- failures ----

fails "an empty list" 2 "bench: --" bench m --prompt-tokens ""
fails "a bad list" 2 "0,x" bench m --prompt-tokens 0,x
fails "no budgets" 2 "bench: --" bench m --weight-budget ,
fails "a budget that is none" 2 "weight_budget" bench m --weight-budget 5X
fails "ten of what" 2 "say 10%, 10MiB or" bench m --weight-budget 10
fails "a limit that is none" 2 "device_limit" bench m --device-limit 5X
fails "a limit that is too small" 1 "device_limit 1024" bench m \
	--device-limit 1KiB
for matrix in "" executor executor= =x nonsense=x weight_budget=0 \
	executor=a,executor=b; do
	fails "--matrix '$matrix'" 2 "bench: --" bench m --matrix \
		"$matrix"
done
fails "no such executor" 2 "eagr" bench m --matrix executor=cpu_ref:eagr
fails "no such model" 1 "gone" bench gone
fails "no model" 2 "one model folder" bench
fails "a prompt beyond the context" 1 "context of 512" bench m \
	--prompt-tokens 999999999999999999
fails "both beyond it" 1 "context of 512" bench m --prompt-tokens 300 \
	--depth 300
fails "too few new tokens" 2 "--new-tokens" bench m --new-tokens 1
for option in json plot; do
	run bench m --prompt-tokens 4 --new-tokens 2 --repeat 1 \
		--$option gone/file
	like "--$option to nowhere" "$rc $(cat err)" \
		"1 genai: error: gone/file: cannot write: No such file*"
done
finish
