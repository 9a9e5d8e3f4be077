#!/bin/sh
# plan.sh - genai plan: what it says of memory is what is then taken, what it
# says of speed is what genai bench then measures, at the rates of many machines.
. "${top_srcdir:-.}/tests/cli/lib.sh"
# models are closed before it is said what they take: freed memory is no text
MALLOC_PERTURB_=201
export MALLOC_PERTURB_

printf '[module pager_async]\npath = %s/.libs/pager_async.so\n' \
	"$top_builddir" >>genai.ini
"$genai" --quiet synth tiny-qwen3 -o m --layers 4
"$genai" --quiet synth SmolLM2-135M --layers 1 -o s
cp genai.ini modules.ini

# NAME LINK MEMORY COPY LAUNCH: modules.ini with a clock of these rates
machine()
{
	cat modules.ini
	printf '[module cpu_ref]\nclock = simulated\n'
	printf 'link_bytes_per_s = %s\nmemory_bytes_per_s = %s\n' "$2" "$3"
	printf 'copy_latency_ns = %s\nlaunch_ns = %s\n' "$4" "$5"
}

# WHERE: how far p.json is from b1.json, a line each for speed and memory
beside()
{
	awk -v plan="$("$probe" json decode_tok_s <p.json)" \
		-v real="$("$probe" json rows 0 simulated_tok_s median <b1.json)" \
		-v held="$("$probe" json bytes device <p.json)" \
		-v peak="$("$probe" json rows 0 device_peak_bytes <b1.json)" \
		-v at="$1" 'BEGIN {
		e = plan / real - 1
		print (e < 0 ? -e : e), at, plan, real
		m = held / peak - 1
		print (m < 0 ? -m : m), at, held, peak >>"memory"
	}' >>speed
}

# MODEL SHARE: a plan whose limit leaves so many hundredths of the weights, and
# the rows that bench makes of its INI; worst has the largest error, in 1/1000
cell()
{
	limit=$(($least + (4 << 20) + $weights * $2 / 100))
	"$genai" plan "$1" --context 64 --device-limit $limit --json >p.json \
		2>err || { not_ok "a plan" "$(cat err)"; return; }
	cp genai.ini old.ini
	{
		cat old.ini
		"$probe" json ini <p.json
	} >genai.ini
	"$genai" bench "$1" --prompt-tokens 4 --new-tokens 12 --repeat 1 \
		--json b.json >err 2>&1 ||
		not_ok "a bench of its INI" "$(cat err)"
	cp old.ini genai.ini
	{ tr -d '\n' <b.json && echo; } >b1.json
	beside "$machine, $2 %"
}

# MODEL SHARE N: the same of N requests at once.  What bench counts has the
# steps in which they come and go, so there are many of the others.
many()
{
	"$genai" plan "$1" --context 64 --sequences $3 --json >all.json 2>err
	least=$("$probe" json least_bytes <all.json)
	limit=$(($least * 2 + (8 << 20) + $weights * $2 / 100))
	"$genai" plan "$1" --context 64 --device-limit $limit --sequences $3 \
		--json >p.json 2>err ||
		{ not_ok "a plan for $3" "$(cat err)"; return; }
	cp genai.ini old.ini
	{
		cat old.ini
		"$probe" json ini <p.json | sed 's/^speculation.*/speculation = off/'
	} >genai.ini
	for try in 1 2 3 4 5; do
		"$genai" bench "$1" --sequences $3 --prompt-tokens 1 \
			--new-tokens 60 --repeat 1 --json b.json >err 2>&1 ||
			not_ok "a bench of its INI" "$(cat err)"
		{ tr -d '\n' <b.json && echo; } >b1.json
		rows=$("$probe" json rows 0 rows_per_step <b1.json)
		# on a busy machine they may come one after the other
		[ "${rows%.*}" -lt $3 ] || break
	done
	cp old.ini genai.ini
	beside "$machine, $2 %, $3"
}

# ---- speed and memory, machine by machine ----

: >speed
: >memory
while read -r machine link rate copy launch; do
	machine "$machine" "$link" "$rate" "$copy" "$launch" >genai.ini
	"$genai" plan m --context 64 --json >all.json 2>err
	least=$("$probe" json least_bytes <all.json)
	weights=$("$probe" json bytes weights <all.json)
	for share in 100 60 25 0; do
		cell m $share
	done
	many m 25 8
done <<END
h200-slow 55000000 4600000000 2500 20
h200 55000000000 4600000000000 2600 3000
h200-graph 55000000000 4600000000000 2600 730
a100 24000000000 1500000000000 4000 1500
4090 25000000000 1000000000000 4000 2000
desktop 25000000000 900000000000 5000 1500
pcie5 50000000000 1700000000000 3000 1500
pcie3 12000000000 300000000000 10000 5000
pcie3-slow 12000000 300000000 5000 200
laptop 6000000000 250000000000 8000 4000
old 3000000000 120000000000 15000 8000
igpu 20000000000 60000000000 3000 3000
equal 1000000000 1000000000 0 0
equal-late 1000000000 1000000000 2000 500
fast-link 4000000000 1000000000 0 0
fast-late 4000000000 1000000000 1000 100
half 1000000000 2000000000 0 200
half-late 1000000000 2000000000 1000 200
late 55000000 4600000000 200000 0
launch 55000000 4600000000 0 100000
END
cp modules.ini genai.ini
is "cells" "$(wc -l <speed | tr -d ' ')" 100
is "predicted within 10 % of what bench measures" \
	"$(awk '$1 > 0.1' speed)" ""
is "as much memory as is then taken, within 2 %" \
	"$(awk '$1 > 0.02' memory)" ""
: >memory
echo "# worst: $(sort -g speed | tail -1)"

machine pcie3 12000000000 300000000000 5000 2000 >genai.ini
"$genai" plan s --context 64 --json >all.json
least=$("$probe" json least_bytes <all.json)
weights=$("$probe" json bytes weights <all.json)
: >speed
cell s 50
many s 50 16
many s 50 128
is "also of a model of a real width" "$(awk '$1 > 0.1' speed)" ""
is "and its memory" "$(awk '$1 > 0.02' memory)" ""
cp modules.ini genai.ini

# ---- the least limit ----

runs "a plan" plan m --context 64 --json
least=$(json least_bytes)
runs "the least limit" generate m --ids 1,2,3 -n 2 --ignore-eos \
	--set runtime.context=64 --set runtime.device_limit=$least
fails "one byte less" 1 "device_limit" generate m --ids 1,2,3 -n 2 --ignore-eos \
	--set runtime.context=64 --set runtime.device_limit=$(($least - 1))
fails "a limit that does not suffice" 1 \
	"of $(($least - 1000)) bytes is 1000 short: the least for a context of 64" \
	plan m --context 64 \
	--device-limit $(($least - 1000))
fails "nor without a context" 1 "short: the least for a context of 1 is" \
	plan m --device-limit 1000B

fails "nor for many" 1 "short: the least for a context of 64 is" plan m --sequences 8 \
	--context 64 --device-limit 100KiB
fails "more than share steps" 2 "sequences" plan m --sequences 129

# ---- what it says ----

runs "the text" plan m --context 64 --device-limit 8MiB
for line in 'weights that stay' 'cache of a sequence' 'together' \
	'of a device_limit of *8.0 MiB' 'the least device_limit' \
	'tokens/s\|at most' '^context = 64'; do
	if grep -q "$line" out; then
		ok "has: $line"
	else
		not_ok "has: $line" "$(cat out)"
	fi
done
sed -n '/^\[runtime\]/,$p' out >paste.ini
cat modules.ini >>paste.ini
runs "the INI can be pasted" --config paste.ini generate m --ids 1,2 -n 2 \
	--ignore-eos
runs "a budget is kept" plan m --weight-budget 50% --json
like "in the INI" "$(json ini)" "*weight_budget = 50%*"
like "and whether guesses pay" "$(json ini)" "*speculation = [8o]*"
runs "many that have not all of the context" plan m --context 512 \
	--sequences 64 --device-limit 24MiB
like "are told what they have" "$(cat out)" \
	"*64 sequences have * positions each, or * have 512: memory has no*"
fails "nor beside what they take" 1 "64 sequences take" plan m --context 512 \
	--sequences 64 --device-limit 8MiB
"$genai" plan --sequences 8 --json "$models/lfm2-cpu-int4" >out 2>err
is "where they cannot share a step" $? 0
is "it is one" "$(json sequences)" 1
like "and that is said" "$(cat err)" "*requests are computed one by one*"
fails "a context beyond the model's" 2 "the model allows" plan m --context 99999999
fails "no model" 1 nowhere plan nowhere
finish
