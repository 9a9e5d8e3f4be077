#!/bin/sh
# help.sh - what genai help says is in the manual pages, which are made from it,
# and on the page of the command line; what shells complete is what help says.
. "${top_srcdir:-.}/tests/cli/lib.sh"


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
is "commands" "$(echo $commands)" "generate chat batch serve embed logits score \
tokenize detokenize template run inspect plan bench pull import cache synth modules config \
doctor"
commands_line=$(echo $commands)
# without them the rest could not fail
printf -- '--a-b X | --c=1 -o D, (--d)' >sample
is "flags are found" "$(echo $(flags <sample))" "$(printf -- '%s\n' \
	--a-b --c --d -o | sort | tr '\n' ' ' | sed 's/ $//')"

"$genai" help config | sed -n '/^Common/,$p' | flags >common
is "common ones" "$(echo $(cat common))" \
	"--config --help --no-progress --quiet --set --verbose --version"
sed 's/\\-/-/g' "$top_builddir"/man/genai*.1 | flags >manflags
is "common ones in the manual" "$(missing "$(cat common)" "$(cat manflags)")" ""
flags <"$top_srcdir/docs/CLI.md" >pageflags
is "all of them on the page" "$(missing "$(cat manflags)" "$(cat pageflags)")" \
	""

for c in $commands; do
	"$genai" help "$c" | sed '/^Common/,$d' | sed 1d | flags >want
	page=$top_builddir/man/genai-$c.1
	sed 's/\\-/-/g; s/\\fI//' "$page" | flags >got
	is "$c: its flags are in its manual page" \
		"$(missing "$(cat want)" "$(cat got)")" ""
	is "$c: and no others" "$(missing "$(cat got)" "$(cat want)")" ""
	like "$c: what it is" "$(tr '\n' ' ' <"$page")" \
		"*.SH NAME genai\\\\-$c \\\\- ?*.SH SYNOPSIS .B genai $c*"
	is "$c: completed are the same" \
		"$("$genai" help --words "$c" | grep '^-' | sort -u)" \
		"$(cat want)"
done

is "the program's page names each" "$(sed -n \
	's/^\.BR genai\\-\([a-z]*\) (1)$/\1/p' "$top_builddir/man/genai.1" |
	tr '\n' ' ')" "$commands_line conform "
is "the page of genai.ini has every key" "$("$genai" help --words keys |
	sed 's/.*\.\(.*\)=/\1/' | sort -u | while read -r key; do
		sed 's/\\-/-/g' "$top_builddir/man/genai.ini.5" |
			grep -q "^\.B $key =" || printf ' %s' "$key"
	done)" ""
if command -v groff >/dev/null; then
	for page in "$top_builddir"/man/*.[15] "$top_srcdir"/man/*.1; do
		groff -man -Tascii -ww -z "$page"
	done >warnings 2>&1
	is "groff has no complaint" "$(head -n 3 warnings)" ""
else
	ok "groff has no complaint # SKIP no groff"
fi

is "commands are completed" "$(echo $("$genai" help --words))" \
	"$(echo $commands)"
like "so are keys" "$(echo $("$genai" help --words keys))" \
	"*runtime.executor=*runtime.weight_budget=*module.cpu_ref.threads=*"
like "and architectures" "$(echo $("$genai" help --words synth))" \
	"*Qwen3-0.6B*"

# bash, for real
if command -v bash >/dev/null; then
	complete() # words before the cursor
	{
		bash -c '
			compopt() { :; }
			. "$1"
			shift
			COMP_WORDS=("$@")
			COMP_CWORD=$(($# - 1))
			_genai
			echo "${COMPREPLY[@]}"' bash \
			"$top_srcdir/completions/genai.bash" "$genai" "$@"
	}
	is "bash: a command" "$(complete det)" detokenize
	is "bash: its option" "$(complete generate --ig)" --ignore-eos
	is "bash: behind others" "$(complete --quiet generate x --ech)" --echo
	is "bash: a key" "$(complete --set runtime.weight)" \
		runtime.weight_budget=
	is "bash: a command after help" "$(complete help tem)" template
	like "bash: an architecture" "$(complete synth Qwen3-0)" "*Qwen3-0.6B*"
else
	ok "bash # SKIP no bash"
fi

fails "a mistyped option" 2 "--promt; did you mean --prompt?" \
	generate "$plain" --promt x
fails "a mistyped command" 2 "no command genrate; did you mean generate?" \
	genrate
fails "a missing value" 2 "--prompt needs a value" generate "$plain" --prompt
fails "a missing value of a letter" 2 "-o needs a value" import x.gguf -o
fails "a value too many" 2 "--chat takes no value" generate "$plain" --chat=1
fails "an unknown letter" 2 "unknown option -z" generate "$plain" -z
fails "what others call it" 2 "-ngl: --set runtime.weight_budget=50%" \
	generate "$plain" -ngl 99
fails "an argument too many" 2 "and nothing more: b" generate a b
run generate --ids 1,2 -n 4 -m "$plain" --json
long=$(cat out)
run generate "$plain" --ids 1,2 --max-new-tokens 4 --json
is "-m and -n are --model and --max-new-tokens" "$(json ids)" \
	"$(echo "$long" | "$probe" json ids)"
run generate gone --json
like "with --json an error is an object too" "$rc $(json error)" "1 gone: *"
finish
