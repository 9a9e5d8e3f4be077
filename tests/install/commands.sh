#!/bin/sh
# commands.sh - TAP: every command of genai's in README.md and docs/ that can
# be run is run, with files of the names that the pages use; of the others, which
# are synopses, every flag is one that the command has.  curl is run against a
# server; every command of another program is named in tests/install/others, with
# who runs it or why nobody does.  What errors the page of troubles names, the
# sources say.
# Environment: top_srcdir, top_builddir.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}"
top_srcdir=$(cd "$top_srcdir" && pwd) top_builddir=$(cd "$top_builddir" && pwd)
work=$(mktemp -d) || exit 1
trap 'cd /; chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work" || exit 1
unset XDG_CONFIG_HOME XDG_CACHE_HOME
HOME=$work
export HOME
genai=$top_builddir/genai
n=0

result() # STATUS NAME
{
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		sed 's/^/# /' out | tail -12
		echo "not ok $n - $2"
	fi
}

# What the pages call DIR, FILE.gguf and so on.
{
	printf '[runtime]\ncontext = 64\n'
	for m in cpu_ref pager_sync pager_async; do
		printf '[module %s]\npath = %s/.libs/%s.so\n' \
			$m "$top_builddir" $m
	done
} >genai.ini
ln -s "$top_srcdir/tests/data/models/llama-cpu-fp32" DIR
"$top_builddir/tests/cli/probe" gguf FILE.gguf
cat >FILE.jsonl <<END
{"prompt": "some text", "max_tokens": 2}
END
echo some text >TEXT
echo secret >keys

# FILE: its commands, continuations joined, comments cut, one a line.
commands()
{
	awk '
	/^```/ { on = !on; next }
	on || /^    / {
		line = $0
		sub(/^    /, "", line)
		if (hold != "") { line = hold line; hold = "" }
		if (line ~ /\\$/) {
			sub(/\\$/, "", line)
			hold = line
			next
		}
		sub(/  +#.*/, "", line)
		if (line ~ /^(build\/)?genai /)
			print line
	}' "$1"
}

# Is it a synopsis, with choices and places to be filled in?
synopsis()
{
	case $1 in
	*'['* | *'|'* | *...* | *LIST* | *ARCH* | *OUT.npy* | *OPTION*) return 0 ;;
	esac
	return 1
}

# What a page measured on a machine and a model of its own, and what another test
# holds against it.
elsewhere()
{
	case $1 in
	PERFORMANCE.md:* | SIMULATED-DEVICE.md:*) return 0 ;; # tests/cli/bench.sh
	*"build/model/"*) return 0 ;;			      # tools/quickstart
	esac
	return 1
}

ran=0
for page in "$top_srcdir/README.md" "$top_srcdir"/docs/*.md; do
	base=$(basename "$page")
	commands "$page" >list
	while read -r line <&3; do
		elsewhere "$base:$line" && continue
		set -f
		# shellcheck disable=SC2086
		set -- $line
		set +f
		if synopsis "$line"; then
			[ "$2" != '[options]' ] || continue
			"$genai" help "$2" >help 2>out
			for flag in $(printf '%s\n' "$line" |
				grep -o -- '--[a-z][a-z-]*'); do
				grep -q -- "$flag" help || echo "no $flag" >>out
			done
			[ -s help ] && [ ! -s out ]
			result $? "$base: $line"
			continue
		fi
		ran=$((ran + 1))
		case $2 in
		serve) # it goes on until it is told to end
			eval "timeout -s INT 2 \"\$genai\" ${line#genai}" \
				>out 2>&1 </dev/null
			[ $? = 124 ] || grep -Eq 'without libevent|in use' out
			;;
		*)
			eval "\"\$genai\" ${line#genai}" >out 2>&1 </dev/null
			;;
		esac
		result $? "$base: $line"
	done 3<list
done
echo "$ran" >out
[ "$ran" -ge 12 ]
result $? "commands were run"

# ---- other programs ----

# FILE: what is typed in its blocks and is not of genai; a quoted text goes on over
# lines, a block of sh has nothing else.
others()
{
	awk '
	function one(line) {
		sub(/  +#.*/, "", line)
		sub(/^ +/, "", line)
		if (line ~ /^(build\/)?genai / || line == "done")
			return
		if (sh || line ~ /^(\.\.?\/|[A-Z_]+=[^ ]+ )/ ||
		    line ~ /^[a-z]+\/[a-z_\/-]*[a-z_]( [^ =]|$)/ ||
		    line ~ /^(sudo|curl|pip|make|cc|cp|cd|export|mkdir) / ||
		    line ~ /^(podman|kubectl|serve run|vllm-router) / ||
		    line ~ /^(python3|llama-bench|ncu|for . in|genai-conform) /)
			print line
	}
	/^```/ { on = !on; sh = on && /^```sh/; next }
	on || /^    / {
		line = $0
		if (!on)
			sub(/^    /, "", line)
		if (hold != "") {
			sub(/^ +/, " ", line)
			line = hold line
			hold = ""
		}
		quotes = line
		if (line ~ /\\$/ || gsub(/\047/, "", quotes) % 2) {
			sub(/\\$/, "", line)
			hold = line
			next
		}
		if (line != "")
			one(line)
	}' "$1"
}

list=$top_srcdir/tests/install/others
: >used
for page in "$top_srcdir"/*.md "$top_srcdir"/docs/*.md; do
	base=$(basename "$page")
	others "$page" | while IFS= read -r line; do
		case $line in
		"curl "*)
			printf '%s\n' "$line" >>curls
			continue
			;;
		esac
		awk -F'\t' -v page="$base" -v line="$line" '
		$1 == page && index(line, $2) == 1 && $3 != "" {
			print NR >>"used"
			found = 1
		}
		END { exit !found }' "$list" ||
			echo "tests/install/others does not name, of $base: $line"
	done
done >out
grep -vn '^#' "$list" | sed 's/:.*//' | while read -r at; do
	grep -qx "$at" used || echo "no page has line $at of $list"
done >>out
[ "$(sort -u used | wc -l)" -ge 20 ] && [ ! -s out ]
result $? "commands of other programs are run elsewhere, or it is said why not"

# Without text there are no embeddings: those are another model's.
if ! "$genai" help serve >out 2>&1 || ! command -v curl >/dev/null; then
	n=$((n + 1))
	echo "ok $n - curl of the pages # SKIP no curl, or no server"
else
	rm -f s
	"$genai" --quiet serve DIR --socket s >served 2>&1 </dev/null &
	server=$!
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		[ -S s ] && break
		sleep 0.5
	done
	while IFS= read -r line <&3; do
		case $line in
		*/v1/embeddings*) want=400 ;;
		*) want=200 ;;
		esac
		eval "curl -sS -m 60 --unix-socket s -o answer -w '%{http_code}' \
			${line#curl }" >code 2>out </dev/null
		[ "$(cat code)" = $want ]
		result $? "$(printf '%s' "$line" | tr -d '\\' | cut -c 1-70)"
	done 3<curls
	kill -INT $server
	wait $server
fi

# ---- errors ----

sed -n '/^## No error/q; s/^| `\([^`]*\)` |.*/\1/p' \
	"$top_srcdir/docs/TROUBLESHOOTING.md" >errors
: >out
while IFS= read -r text; do
	grep -rqF -- "$text" "$top_srcdir/core" "$top_srcdir/tools" \
		"$top_srcdir/modules" --include='*.c' ||
		echo "nothing says: $text" >>out
done <errors
[ "$(wc -l <errors)" -ge 20 ] && [ ! -s out ]
result $? "the errors that are explained are errors that there are"

# ---- links ----

: >links
for page in "$top_srcdir"/*.md "$top_srcdir"/docs/*.md; do
	grep -o '](\([^)#]*\)' "$page" | sed 's/^](//' | grep -v '^http' |
		while read -r to; do
			echo "$to" >>links
			# one page is made by make
			[ -e "$(dirname "$page")/$to" ] ||
				[ -e "$top_builddir/docs/$to" ] ||
				echo "$(basename "$page") links to $to"
		done
done >out
[ "$(wc -l <links)" -ge 40 ] && [ ! -s out ]
result $? "links of pages lead somewhere"

# FILE: the names that its headings have in links, as GitHub makes them
anchors()
{
	sed -n 's/^##* *//p' "$1" | tr '[:upper:]' '[:lower:]' |
		sed 's/[^a-z0-9_ -]//g; s/ /-/g'
}

: >links
for page in "$top_srcdir"/*.md "$top_srcdir"/docs/*.md; do
	grep -o ']([^)]*#[^)]*)' "$page" | sed 's/^](//; s/)$//' |
		grep -v '^http' | while read -r to; do
			echo "$to" >>links
			at=${to%%#*}
			at=${at:+$(dirname "$page")/$at}
			[ -z "$at" ] || [ -e "$at" ] ||
				at=$top_builddir/docs/${to%%#*}
			anchors "${at:-$page}" 2>/dev/null |
				grep -qxF -- "${to#*#}" ||
				echo "$(basename "$page") links to $to"
		done
done >out
[ -s links ] && [ ! -s out ]
result $? "and to headings that there are"
echo "1..$n"
