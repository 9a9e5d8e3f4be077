#!/bin/sh
# experts.sh - mixtures of experts that do not fit: the same tokens whatever is
# pinned, and whichever change places; what is told of them.
. "${top_srcdir:-.}/tests/cli/lib.sh"

printf '[module pager_async]\npath = %s/.libs/pager_async.so\n' \
	"$top_builddir" >>genai.ini

# MODEL OPTION...: what it says, or why not
says()
{
	model=$1
	shift
	"$genai" generate "$models/$model" --ids 5,7,11,13 --max-new 40 --greedy \
		--json "$@" 2>&1 </dev/null
}

# What --json says of experts.
told() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" out; }

ids() { sed -n 's/.*"ids":\(\[[^]]*\]\).*/\1/p' "$1"; }

for model in gptoss-cpu-int4 lfm2moe-cpu-int4; do
	says $model >all
	like "$model: ids" "$(ids all)" "\[[0-9]*"
	is "$model: no experts apart where all fit" "$(grep -c '"experts"' all)" 0
	for pager in pager_sync pager_async; do
		for how in eager captured; do
			differ=
			for budget in 60% 35% 20% 8% 0; do
				says $model --set runtime.pager=$pager \
					--set runtime.executor=cpu_ref:$how \
					--set runtime.check=order \
					--set runtime.weight_budget=$budget \
					--set module.$pager.exchange=3 >out
				[ "$(ids out)" = "$(ids all)" ] ||
					differ="$differ $budget: $(head -c 300 out)"
			done
			is "$model, $pager, $how: the same ids in any budget" \
				"$differ" ""
		done
	done
done

says gptoss-cpu-int4 --set runtime.weight_budget=20% >out
like "some are pinned" "$(told pinned_bytes) $(told misses)" "[1-9]* [1-9]*"
like "some change places" "$(told exchanges)" "[1-9]*"
like "what is used is counted" "$(($(told hits) + $(told misses)))" "1[4-6][0-9]"
[ "$(told least_miss_bytes)" -le "$(told miss_bytes)" ] &&
	ok "no choice misses more than the best" ||
	not_ok "no choice misses more than the best" "$(cat out)"
says gptoss-cpu-int4 --set runtime.weight_budget=20% \
	--set module.pager_sync.exchange=0 >out
is "none do where none may" "$(told exchanges)" 0
says gptoss-cpu-int4 --set module.pager_sync.exchange=65 >out
like "as many as may" "$(cat out)" "*exchange: 0 to 64, or auto*"

finish
