#!/bin/sh
# trace.sh - generate --trace and --timeline: what is in them is what happened.
. "${top_srcdir:-.}/tests/cli/lib.sh"

printf '[module pager_async]\npath = %s/.libs/pager_async.so\n' \
	"$top_builddir" >>genai.ini
"$genai" --quiet synth tiny-qwen2 -o m --bits 8 --layers 3

count() # words that an event of t.json has, between bars
{
	awk -v w="$1" 'BEGIN { n = split(w, a, "|") }
		{ all = 1
		  for (i = 1; i <= n; i++) if (!index($0, a[i])) all = 0
		  k += all } END { print k + 0 }' t.json
}

# No event of a stream begins before the one before has ended, steps excepted.
overlaps()
{
	sed -n 's/.*"cat":"\([a-z]*\)".*"tid":\([1-9][0-9]*\),"ts":\([0-9.]*\),"dur":\([0-9.]*\).*/\1 \2 \3 \4/p' \
		t.json | awk '$1 != "step" {
			if ($3 < end[$2] - 0.0015) k++
			if ($3 + $4 > end[$2]) end[$2] = $3 + $4
		} END { print (NR > 20 ? k + 0 : "few events") }'
}

for executor in eager captured; do
	for pager in pager_sync pager_async; do
		set -- --set runtime.executor=cpu_ref:$executor \
			--set runtime.pager=$pager \
			--set runtime.weight_budget=30% \
			--set module.cpu_ref.schedule=threads
		name="$executor, $pager"
		run "$@" generate m --ids 1,2,3 -n 9 --ignore-eos
		plain_text=$(cat out)
		runs "$name" "$@" generate m --ids 1,2,3 -n 9 --ignore-eos \
			--trace t.json --timeline t.svg
		is "$name: the same text" "$(cat out)" "$plain_text"
		tr -d '\n' <t.json >out
		echo >>out
		is "$name: it is JSON" "$(json displayTimeUnit)" ms
		is "$name: a step a token" "$(count '"cat":"step"')" 9
		want=0
		[ $executor = captured ] && want=7 # the first two are run
		is "$name: those that are replayed" \
			"$(count '"replayed":true')" $((want))
		is "$name: a node is there in each" \
			"$(count '"cat":"kernel"|layers.1/attn/GroupQuery')" 9
		is "$name: nothing at once on a stream" "$(overlaps)" 0
		for what in '"name":"load"' '"name":"prompt"' '"name":"close"' \
			'"cat":"barrier"|host_read' '"ticket":"weights' \
			'"ph":"C"|stalls' '"ph":"C"|"streamed":' \
			'"cat":"copy"|"bytes":' \
			'"ph":"C"|copied to the device'; do
			if [ "$(count "$what")" -gt 0 ]; then
				ok "$name: $what"
			else
				not_ok "$name: $what"
			fi
		done
		like "$name: the picture" "$(tr -d '\n' <t.svg)" \
			"<svg *A step of * ms*cpu_ref:$executor, $pager*compute: \
kernels*rect class=\"copy\"*</svg>"
	done
done
# weights stay: no copy to see
runs "all on the device" generate "$plain" --ids 1,2,3 -n 6 --ignore-eos \
	--trace t.json
is "nothing is streamed" "$(count '"ph":"C"|"streamed":0}')" 6

fails "a file that cannot be made" 1 "no/t.json: cannot write: " \
	generate "$plain" --ids 1 -n 2 --trace no/t.json
fails "the other" 1 "no/t.svg: cannot write: " \
	generate "$plain" --ids 1 -n 2 --timeline no/t.svg
fails "time that does not pass" 2 "clock = simulated" \
	generate "$plain" --ids 1 -n 2 --trace t.json \
	--set module.cpu_ref.clock=simulated
if [ -w /dev/full ]; then
	run generate "$plain" --ids 1 -n 2 --trace /dev/full
	like "a full disk" "$rc $(cat err)" \
		"1 genai: error: /dev/full: cannot write: No space left*"
else
	ok "a full disk # SKIP no /dev/full"
fi
run generate gone --ids 1 --trace t.json
is "a model that is not there" "$rc" 1
finish
