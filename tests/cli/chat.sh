#!/bin/sh
# chat.sh - genai chat from a pipe: turns, commands, what is computed again.
. "${top_srcdir:-.}/tests/cli/lib.sh"

talk() # turns as printf takes them, arguments...
{
	# shellcheck disable=SC2059 # that is what it is
	printf "$1" >in
	shift
	"$genai" chat "$plain" --greedy --max-new-tokens 8 "$@" <in >out 2>err
	rc=$?
}

talk 'hello\nand again\nonce more\n'
is "three turns: 0" "$rc" 0
talk 'hello\n'
one=$(cat out)
talk 'hello\nand again\n'
two=$(cat out)
talk 'hello\nand again\nonce more\n'
three=$(cat out)
is "an answer does not depend on what follows" "$(echo "$two" | head -n 1)" \
	"$(echo "$one" | head -n 1)"
like "two answers are the beginning of three" "$three" "$two*"
is "nothing on stderr" "$(cat err)" ""

# ---- only the new part of the history is computed ----

talk 'hello\n/stats\nand again\n/stats\nonce more\n/stats\n'
new=$(sed -n 's/^\[.*\] \([0-9]*\) + .*/\1/p' err | tr '\n' ' ')
held=$(sed -n 's/^[0-9]* messages, \([0-9]*\) of.*/\1/p' err | tr '\n' ' ')
# shellcheck disable=SC2086 # numbers
set -- $new
is "three prompts were counted" "$#" 3
if [ "$#" -eq 3 ] && [ "$2" -lt 32 ] && [ "$3" -lt 32 ]; then
	ok "the second and third prompt hold only what is new ($new)"
else
	not_ok "the second and third prompt hold only what is new" "$new"
fi
# shellcheck disable=SC2086 # numbers
set -- $held
if [ "$#" -eq 3 ] && [ "$1" -lt "$2" ] && [ "$2" -lt "$3" ]; then
	ok "the sequence grows ($held)"
else
	not_ok "the sequence grows" "$held"
fi

# The same text as a whole conversation in one go.
talk 'hello\n/save talk.json\n'
is "/save writes messages" "$("$probe" json 1 role <<EOF
$(tr -d '\n' <talk.json)
EOF
)" assistant
talk 'hello\nand again\n'
want=$(cat out)
talk '/load talk.json\nand again\n'
like "/load goes on where it was" "$want" "*$(cat out)"
talk 'other\n/reset\nhello\n'
like "/reset forgets" "$(cat out)" "*
$one"
talk 'hello\n/retry\n/save retried.json\n'
is "/retry answers again" "$(cat out)" "$one
$one"
is "it is one turn" "$(tr -d '\n' <retried.json | grep -o '"role"' | wc -l |
	tr -d ' ')" 2
talk '/retry\nhello\n'
is "/retry of nothing" "$(cat out) $(cat err)" \
	"$one /retry: there is no turn to answer"
talk '/params\n/params max-new-tokens 2\nhello\n/params temperature 0.5\n/params\n/params top-k x\n/params system y\n'
like "/params" "$(tr '\n' ' ' <err)" "max-new-tokens 8 greedy repetition*\
max-new-tokens 2 temperature 0.5 top-k*top-k x: a whole number*there is no system*"
short=$(cat out)
talk 'hello\n' --max-new-tokens 2
is "a shorter answer" "$short" "$(cat out)"
talk 'hello\nother\n/undo\nand again\n'
like "/undo takes the last turn back" "$(cat out)" \
	"*$(echo "$want" | tail -n 1)"
talk '/system be brief\nhello\n'
a=$(cat out)
talk 'hello\n' --system "be brief"
is "/system is --system" "$(cat out)" "$a"
talk '\n   \nhello\n'
is "blank lines are no turns" "$(cat out)" "$one"
talk 'hello'
is "a last line without its end" "$(cat out)" "$one"
talk 'hello\n/exit\nand again\n'
is "/exit ends it" "$rc $(cat out)" "0 $one"
talk '/nonsense\nhello\n'
like "an unknown command shows the commands" "$(cat err)" "*/help*/exit*"
is "and is no turn" "$(cat out)" "$one"
talk '/load gone.json\nhello\n'
like "/load of a missing file says so" "$(cat err)" \
	"genai: error: gone.json*"
is "and nothing changed" "$(cat out)" "$one"
printf '{"a":1}' >bad.json
talk '/load bad.json\nhello\n'
like "/load of something else" "$(cat err)" "*not an array of messages*"
talk ''
is "no turns at all" "$rc $(cat out)$(cat err)" "0 "
talk 'hi <|end|> there\n'
is "a special token in a turn: 0" "$rc" 0

# A turn that does not fit is an error; the program ends with 1 from a pipe.
talk 'a turn that is too long for this\n' --set runtime.context=8
is "more than the context: 1" "$rc" 1
like "with one line" "$(cat err)" "genai: error: *leave no room*may have 8*"

fails "no folder" 2 "one model folder" chat
fails "--max-new-tokens 0" 2 "--max-new-tokens" chat "$plain" \
	--max-new-tokens 0
cp -R "$plain" bare
chmod -R u+w bare
rm bare/chat_template.jinja
echo hello | "$genai" chat bare >out 2>err
is "no template: 1" "$?" 1
like "it says so" "$(cat err)" "genai: error: *template*"
# ---- a turn that is no text ----

printf 'gr\374n\n' >in
"$genai" chat "$plain" --max-new-tokens 4 <in >out 2>err
is "a turn that is not UTF-8: 1" "$?$(cat out)" 1
like "it says where" "$(cat err)" \
	"genai: error: the turn: not UTF-8 at byte 2 of 4"
printf 'a\0b\n' >in
"$genai" chat "$plain" --max-new-tokens 4 <in >out 2>err
like "a zero byte too" "$?$(cat out) $(cat err)" "1 *a zero byte at 1 of 3"
fails "--system that is not UTF-8" 1 "system turn: not UTF-8 at byte 0" \
	chat "$plain" --system "$(printf '\200x')"
talk '//help\n'
a=$(cat out)
like "// sends a line that begins with /" "$rc $a $(cat err)" "0 ?* "
talk '/sav x\n'
like "a mistyped command" "$(cat err)" "*did you mean /save*"
printf '[{"role":"user"}]' >bad.json
talk '/load bad.json\nhello\n'
like "/load of a message without content" "$(cat err)" \
	"genai: error: bad.json: message 1 has no content"

printf '[{"role":"user","content":[{"type":"text","text":"he"},
{"type":"text","text":"llo"}]}]' >parts.json
talk '/load parts.json\n/retry\n'
is "/load joins content in parts" "$(cat out)$(cat err)" "$one"
printf '[{"role":"user","content":[{"type":"image_url"}]}]' >bad.json
talk '/load bad.json\nhello\n'
is "an image is refused in one line" "$(cat err)" \
	"genai: error: bad.json: message 1 has an image: only text is understood"
: >cat.png
talk "$work/cat.png\nhello\n"
is "so is one that is dropped into it" "$(cat out) $(cat err)" \
	"$one $work/cat.png: files and images cannot be sent, only text"

# ---- a context that fills ----

# Half of it is free then; what is kept is what a conversation of its own gives.
long='hello\nsecond\nthird\nfourth\nfifth\n'
talk "$long/save all.json\n/stats\n" --set runtime.context=96
is "a full context ends nothing" "$rc $(grep -c 'error' err)" "0 0"
like "what is forgotten is told" "$(cat err)" \
	"\[the context's 96 positions are full: the * oldest messages are forgotten]*"
like "/stats has it" "$(cat err)" "*the * oldest messages are forgotten*"
is "/save has all of it" "$(tr -d '\n' <all.json | grep -o '"role"' | wc -l |
	tr -d ' ')" 10
last=$(tail -n 1 out)
gone=$(sed -n 's/^the \([0-9]*\) oldest.*/\1/p' err)
# five turns, of which so many messages are gone
talk "$(printf 'hello\nsecond\nthird\nfourth\nfifth\n' |
	tail -n +$((gone / 2 + 1)))\n" --set runtime.context=96
is "the first that is shown is a turn" "$rc $((gone % 2))" "0 0"
talk "$long/undo\n/undo\n/undo\n/undo\n/undo\nhello\n/stats\n" \
	--set runtime.context=96
is "/undo comes back to before" "$(tail -n 1 out)" "$one"
is "and nothing is forgotten then" "$(grep -c '^the .* forgotten' err)" 0

# ---- another model ----

other=$models/qwen2-cpu-int8
echo hello >in
"$genai" chat "$other" --greedy --max-new-tokens 8 <in >out 2>err
there=$(cat out)
talk "/model $other\nhello\n"
is "/model: another one answers" "$rc $(cat out)$(cat err)" "0 $there"
talk "hello\n/undo\n/model $other\nhello\n/undo\n/model $plain\nhello\n/model\n"
is "and back" "$rc $(cat out) $(cat err)" "0 $one
$there
$one $plain"
talk "/model $work/none\nhello\n"
like "one that is not there: the old one stays" "$rc $(cat out)$(cat err)" \
	"0 ${one}genai: error: *none*"
mkdir broken
cp "$other"/*.json "$other"/*.jinja broken
echo nothing >broken/model.onnx
talk "/model broken\nhello\n"
like "one that does not open, too" "$rc $(cat out)$(cat err)" \
	"0 ${one}genai: error: broken*"

# ---- what a model thinks ----

cp -R "$plain" thinker
chmod -R u+w thinker
printf '{%% if add_generation_prompt %%}<think>{%% endif %%}' \
	>>thinker/chat_template.jinja
think() # turns as printf takes them, arguments...
{
	printf "$1" >in
	shift
	"$genai" chat thinker --greedy --max-new-tokens 8 "$@" <in >out 2>err
}
think 'hello\n'
thought=$(cat out)
like "a thought from a pipe is plain" "$thought" "?*"
think 'hello\n' --hide-thinking
is "--hide-thinking leaves it out" "$(cat out)" ""
think '/thinking hide\nhello\n/thinking show\n/retry\n/thinking x\n'
is "/thinking" "$(cat out) $(cat err)" "
$thought /thinking: show or hide"

# ---- at a terminal ----

screen() # what is typed; arguments: environment and command
{
	typed=$1
	shift
	printf '%s\n' "$typed" | env TERM=xterm "$@" >out 2>err
	rc=$?
}
type_and_save='wait > 
send /system Grüße 你好 e\xcc\x81\r
wait is set
send /save talk.json\r
wait saved
send /exit\r'
for l in C C.UTF-8; do
	rm -f talk.json
	screen "$type_and_save" LC_ALL=$l "$probe" pty "$genai" chat "$plain"
	like "$l: letters beyond ASCII are kept" \
		"$rc $(tr -d '\n' <talk.json)" "0 *Grüße 你好 e$(printf '\314\201')*"
done
if command -v localedef >/dev/null &&
	mkdir loc && localedef -i en_US -f ISO-8859-1 loc/xx 2>/dev/null; then
	rm -f talk.json
	screen 'wait > 
send /system Gr\xfc\xdfe\r
wait is set
send /save talk.json\r
wait saved
send /exit\r' LOCPATH="$work/loc" LC_ALL=xx "$probe" pty "$genai" chat "$plain"
	like "Latin-1: what is typed becomes UTF-8" \
		"$rc $(tr -d '\n' <talk.json)" "0 *Grüße*"
else
	n=$((n + 1))
	echo "ok $n # SKIP no localedef or its sources for a Latin-1 locale"
fi
rm -f talk.json
screen 'wait > 
send \e[200~one\rtwo\rthree\e[201~\r
wait > 
send /save talk.json\r
wait saved
send /exit\r' "$probe" pty "$genai" chat "$plain" --greedy -n 4
like "a pasted block is one turn" "$rc $(tr -d '\n' <talk.json)" \
	'0 *"one\\ntwo\\nthree"*'
screen 'wait > 
send one\\\r
wait . 
send two\e\rthree\r
wait > 
send /save talk.json\r
wait saved
send /reset\r
wait begins anew
send /undo\r
wait 0 messages are left
send /exit\r' "$probe" pty "$genai" chat "$plain" --greedy -n 4
like "a line goes on behind a backslash, and after Alt-Enter" \
	"$rc $(tr -d '\n' <talk.json)" '0 *"one\\ntwo\\nthree"*'
hello='wait > 
send hello\r
wait > 
send /exit\r'
screen "$hello" "$probe" pty "$genai" chat thinker --greedy -n 4
esc=$(printf '\033')
like "a thought is dimmed" "$rc $(cat out)" "0 *$esc\[2m*$esc\[22m*"
screen "$hello" NO_COLOR=1 "$probe" pty "$genai" chat thinker --greedy -n 4
is "not with NO_COLOR" "$rc $(grep -c "$esc\[2m" out)" "0 0"
screen 'wait > 
send /sys\x09be brief\r
wait is set
send half a line\x03
wait > 
send /exit\r' "$probe" pty "$genai" chat "$plain"
is "Tab completes; Ctrl-C drops the line only" "$rc" 0
history=.local/state/genai/chat_history
rm -rf .local
screen 'wait > 
send /system be brief and Grüße\r
wait is set
send /exit\r' "$probe" pty "$genai" chat "$plain"
is "what was typed is kept, for nobody else" \
	"$rc $(stat -c %a $history .local/state/genai | tr '\n' ' ')" "0 600 700 "
rm -f talk.json
screen 'wait > 
send \e[A\e[A\r
wait is set
send /save talk.json\r
wait saved
send /exit\r' "$probe" pty "$genai" chat "$plain"
like "another conversation has it" "$rc $(tr -d '\n' <talk.json)" \
	"0 *be brief and Grüße*"
rm -rf .local
mkdir -p .local/state
: >.local/state/genai
screen 'wait > 
send /exit\r' "$probe" pty "$genai" chat "$plain"
is "where it cannot be kept it is not" "$rc" 0
rm -rf .local
screen 'wait > 
send one two three four five six\r
wait context is full
wait > 
send /exit\r' "$probe" pty "$genai" chat "$plain" --set runtime.context=8
is "a full context says what to do, and goes on" "$rc" 0
finish
