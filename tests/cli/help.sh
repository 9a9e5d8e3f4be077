#!/bin/sh
# help.sh - what genai help says is in the manual page and the completions.
. "${top_srcdir:-.}/tests/cli/lib.sh"

sed 's/\\-/-/g' "$top_srcdir/man/genai.1" >man
bash=$top_srcdir/completions/genai.bash
zsh=$top_srcdir/completions/_genai
fish=$top_srcdir/completions/genai.fish

# The flags in a text: one a line, once.
flags()
{
	tr -cs 'A-Za-z0-9-' '\n' | grep -xE -- '--[a-z][a-z-]*|-[a-z]' |
		sort -u
}

missing() # flags of $1 that are not among those of $2
{
	for f in $1; do
		case " $(echo $2) " in
		*" $f "*) ;;
		*) printf ' %s' "$f" ;;
		esac
	done
}

commands=$("$genai" --help | sed -n 's/^  \([a-z]*\)  *[a-zA-Z].*/\1/p')
is "commands" "$(echo $commands)" "generate chat logits score tokenize \
detokenize template run inspect bench import synth modules config"
# without them the rest could not fail
printf -- '--a-b X | --c=1 -o D, (--d)' >sample
is "flags are found" "$(echo $(flags <sample))" "$(printf -- '%s\n' \
	--a-b --c --d -o | sort | tr '\n' ' ' | sed 's/ $//')"

"$genai" help config | sed -n '/^Common/,$p' | flags >common
is "common ones" "$(echo $(cat common))" \
	"--config --help --no-progress --quiet --set --verbose --version"
flags <man >manflags
is "common ones in the manual" "$(missing "$(cat common)" "$(cat manflags)")" ""
flags <"$bash" >bashflags
flags <"$top_srcdir/docs/CLI.md" >pageflags
is "all of them on the page" "$(missing "$(cat manflags)" "$(cat pageflags)")" \
	""
is "and in bash" "$(missing "$(cat common)" "$(cat bashflags)")" ""

# what the sources read, somewhere in the help
for c in $commands; do
	"$genai" help "$c" | flags
done | sort -u >helped
sed -n 's/.*{"\([a-z-]*\)", [a-z]*_argument, NULL,.*/--\1/p' \
	"$top_srcdir"/tools/*.c "$top_srcdir"/tools/*.h | sort -u >read
is "the sources' flags are in the help" \
	"$(missing "$(cat read)" "$(cat helped)")" ""
is "there are some" "$(grep -c -- '--prompt-file' read)" 1

for c in $commands; do
	"$genai" help "$c" | sed '/^Common/,$d' | flags >want
	is "$c has a section in the manual" "$(grep -c "^\.SS genai $c" man)" 1
	awk -v c="$c" '/^\.S[SH] / { on = $2 == "genai" && $3 == c } on' man |
		flags >got
	is "$c: its flags are in it" "$(missing "$(cat want)" "$(cat got)")" ""
	sed -n "s/^	$c) opts=//p" "$bash" | flags >got
	is "$c: and in bash" "$(missing "$(cat want)" "$(cat got)")" ""
	is "$c: with none that help lacks" \
		"$(missing "$(cat got)" "$(cat want)")" ""
	sed -n "s/^	$c) _values//p" "$zsh" | flags >got
	is "$c: and in zsh" "$(missing "$(cat want)" "$(cat got)")" ""
	grep "seen_subcommand_from $c'" "$fish" |
		sed 's/.* -l \([a-z-]*\).*/--\1/;s/.* -s \([a-z]\) .*/-\1/' |
		sort -u >got
	is "$c: and in fish" "$(missing "$(cat want)" "$(cat got)")" ""
done
finish
