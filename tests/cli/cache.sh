#!/bin/sh
# cache.sh - imports are kept by the content of their file; genai cache lists
# them, takes them away, keeps a limit.
. "${top_srcdir:-.}/tests/cli/lib.sh"

folder=$HOME/.cache/genai
imports() # how many there are
{
	find "$folder" -mindepth 1 -maxdepth 1 -type d 2>/dev/null |
		wc -l | tr -d ' '
}
use() # FILE: does it generate?
{
	"$genai" --quiet generate "$1" --ids 1,2 -n 2 --ignore-eos >out 2>err ||
		not_ok "generate $1" "$(cat err)"
}

runs "nothing yet" cache
like "is said" "$(cat out)" "*0.0 MiB*in $folder, no limit, which is empty"

# ---- content ----

"$probe" gguf a.gguf
use a.gguf
is "an import" "$(imports)" 1
use a.gguf
touch -d '2001-02-03 04:05:06' a.gguf
runs "a touched file" generate a.gguf --ids 1,2 -n 2 --ignore-eos
is "is not imported again" "$(imports)" 1
cp a.gguf copy.gguf
mv copy.gguf other
mv a.gguf b.tmp && mv b.tmp a.gguf
use a.gguf
is "nor a moved one" "$(imports)" 1
size=$(wc -c <a.gguf)
printf 'x' | dd of=a.gguf bs=1 seek=$(($size - 5)) conv=notrunc 2>/dev/null
touch -d '2001-02-03 04:05:06' a.gguf
use a.gguf
is "a file with another byte is" "$(imports)" 2
echo nonsense >"$(ls "$folder"/.known-* | head -n 1)"
use a.gguf
is "a hash that is none is found out again" "$(imports)" 2

# ---- list ----

runs "the list" cache --json
is "has both" "$(json imports 1 name | cut -c1-7)" "a.gguf-"
is "and their size" "$(json bytes)" \
	"$(find "$folder" -mindepth 2 -type f -printf '%s\n' |
		awk '{ n += $1 } END { print n }')"
is "no limit" "$(json limit)" null
use other
runs "as text" cache
like "the last one used first" "$(head -n 1 out)" "*MiB  20??-??-??  other-*"
is "and a sum" "$(wc -l <out | tr -d ' ')" 4

# ---- removing ----

fails "no such import" 1 "no import or rates zebra" cache --remove zebra
fails "an empty name" 2 "--remove" cache --remove ""
fails "an argument" 2 "takes no argument" cache other
run cache --remove other
is "by the beginning of its name" "$rc $(imports) $(grep -c 'removed other-' err)" \
	"0 2 1"
touch -d '3 days ago' "$folder"/a.gguf-*
set -- "$folder"/a.gguf-*
touch "$1"
run cache --unused 2 --quiet
is "what was not used for so long" "$rc $(imports)" "0 1"
mkdir "$folder/a.gguf-0.partial-1"
echo >"$folder/a.gguf-0.partial-1/model.onnx"
run cache
is "what a killed import left" "$rc $(imports)" "0 1"
mkdir "$folder/a.gguf-0.partial-2"
(
	flock 9
	run cache --quiet
	[ $rc = 0 ] && [ -d "$folder/a.gguf-0.partial-2" ]
) 9<"$folder/a.gguf-0.partial-2"
is "but not one that is being made" $? 0
rmdir "$folder/a.gguf-0.partial-2"

# ---- the limit ----

use other
bytes=$(find "$folder"/other-* -type f -printf '%s\n' |
	awk '{ n += $1 } END { print n }')
touch -d '1 day ago' "$folder"/a.gguf-*
run cache --limit $(($bytes + 1000))
is "a limit takes the least recently used away" \
	"$rc $(imports) $(ls "$folder" | grep -c '^other-')" "0 1 1"
run generate a.gguf --ids 1,2 -n 2 --ignore-eos
is "and holds from then on" "$rc $(imports) $(ls "$folder" | grep -c '^a.gguf-')" \
	"0 1 1"
like "saying so" "$(cat err)" "*to keep its limit: other-*"
runs "it is told" cache --json
is "as a number" "$(json limit)" $(($bytes + 1000))
runs "no limit again" cache --limit none
use other
is "keeps both" "$(imports)" 2
fails "a limit that is none" 2 "--limit" cache --limit 50%
run cache --remove all --quiet
is "all" "$rc $(imports)" "0 0"

# ---- bad folders ----

chmod 500 "$folder"
if [ "$(id -u)" != 0 ]; then
	fails "no room for a limit" 1 "cannot write" cache --limit 1GiB
else
	ok "no room for a limit # SKIP root writes everywhere"
fi
chmod 700 "$folder"
rm -r "$folder"
echo >"$folder"
fails "a file in its place" 1 "cannot make the folder" generate a.gguf --ids 1
runs "is an empty cache" cache
rm "$folder"

# ---- rates ----

kept=$folder/rates
"$genai" --quiet synth tiny-qwen2 -o m
runs "a plan measures" plan m --json
is "once, for all that it asks" "$(ls "$kept"-* | wc -l | tr -d ' ')" 1
sed -i 's/\("memory_bytes_per_s": \)[0-9.e+]*/\15e9/' "$kept"-*
touch -d '3 days ago' "$kept"-*
runs "the next plan" plan m --json
is "believes what is kept" "$(json memory_gb_s)" 5.0
is "and says since when" "$(($(date +%s) - $(json rates_measured) < 259300))" 1
runs "inspect" inspect m --json
is "does, too" "$(json predicted memory_gb_s)" 5.0
runs "as text" plan m
like "with the day" "$(cat out)" "*(measured 20??-??-??; genai doctor *"
runs "another device" --set module.cpu_ref.threads=3 plan m --json
is "has others" "$(ls "$kept"-* | wc -l | tr -d ' ')" 2
runs "the list" cache --json
like "says whose they are" \
	"$(json rates 0 of device) $(json rates 1 of device)" "*CPU, 3 threads, *"
is "beside the imports" "$(json imports)" "[]"
runs "as text" cache
like "with what was measured" "$(cat out)" \
	"*rates  20*: CPU, * memory * GB/s, link * GB/s*"
for f in "$kept"-*; do echo '{}' >"$f"; done
runs "a broken file" cache
runs "is no hindrance" plan m
touch -d '40 days ago' "$kept"-*
runs "the list after a month" --quiet cache
is "has none" "$(find "$folder" -name 'rates-*')" ""
run doctor
run cache --json
is "doctor measures again" "$(($(date +%s) - $(json rates 0 measured) < 60))" 1
run cache --remove rates --quiet
is "they are taken away by name" "$rc $(find "$folder" -name 'rates-*')" "0 "
runs "a device that says its rates" --set module.cpu_ref.clock=simulated \
	--set module.cpu_ref.link_bytes_per_s=1000000000 \
	--set module.cpu_ref.memory_bytes_per_s=9000000000 plan m --json
is "is not measured" "$(json rates_measured) $(find "$folder" -name 'rates-*')" \
	"null "
chmod 500 "$folder"
runs "where nothing can be kept" plan m
chmod 700 "$folder"

HOME=relative
runs "nor without a home" plan m
fails "no home" 2 "set HOME" cache
finish
