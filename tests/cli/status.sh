#!/bin/sh
# status.sh - the exit status of every command: 1 the request failed, 2 wrong
# usage or configuration.  Details are where the command is tested.
. "${top_srcdir:-.}/tests/cli/lib.sh"

for c in generate chat logits score tokenize detokenize template run inspect \
	bench import synth; do
	fails "$c of nothing" 2 "$c" $c
	fails "$c with an option that is none" 2 "$c" $c "$plain" --nonsense
done
for c in modules config; do
	fails "$c with an option that is none" 2 "$c" $c --nonsense
	fails "$c of something" 2 "$c" $c "$plain"
done

echo '[]' >messages.json
gone() # arguments...: what they name is not there
{
	fails "$1 of what is not there" 1 gone "$@"
}
gone generate gone --ids 1
gone chat gone
gone logits gone --ids 1 -o x.npy
gone score gone --file messages.json
gone tokenize gone --text x
gone detokenize gone --ids 1
gone template gone --messages messages.json
gone run gone.onnx
gone inspect gone
gone bench gone
gone import gone.gguf -o x
gone synth gone -o x

wrong() # arguments...: with a configuration that is none
{
	fails "$1 with an unknown key" 2 "nokey" "$@" --set runtime.nokey=1
	fails "$1 without its file" 2 "gone.ini" "$@" --config gone.ini
	fails "$1 with an unknown module" 2 "zzz" "$@" --set \
		runtime.executor=zzz
}
wrong generate "$plain" --ids 1
wrong chat "$plain"
wrong logits "$plain" --ids 1 -o x.npy
wrong score "$plain" --file messages.json
wrong inspect "$plain"
wrong bench "$plain"
wrong modules
wrong config

# what was built but not installed finds its own modules
mkdir -p elsewhere
(cd elsewhere && "$genai" modules >../out 2>../err)
like "modules beside the program" "$? $(cat out)" \
	"0 cpu_ref*/.libs/cpu_ref.so*"

fails "ids that are none" 2 "'x' is not a token id" generate "$plain" --ids x
echo 1,x >ids
fails "a file of those" 1 "'x" generate "$plain" --ids @ids
fails "a file that is not there" 1 "gone" generate "$plain" --ids @gone
fails "an id the model does not have" 1 "99999" generate "$plain" --ids 99999
fails "a number that is none" 2 "--temperature" generate "$plain" --ids 1 \
	--temperature x
fails "nowhere to write" 1 "/nonexistent/x.npy" logits "$plain" --ids 1 -o \
	/nonexistent/x.npy

# ended by the user: what there is stays
"$genai" --quiet synth tiny-llama -o long --context 100000
for c in "generate long --ids 1,2 --ignore-eos --max-new-tokens 90000" \
	"bench long --new-tokens 90000"; do
	"$genai" $c >out 2>err </dev/null &
	pid=$!
	sleep 0.5
	kill -INT $pid
	wait $pid
	is "${c%% *} interrupted: 130" "$?" 130
done
finish
