#!/bin/sh
# text.sh - genai tokenize, detokenize, template.
. "${top_srcdir:-.}/tests/cli/lib.sh"

# ---- tokenize ----

runs "tokenize --text" tokenize "$plain" --text "cold and the"
is "ids as a JSON array" "$(cat out)" '[72,84,320,285,264]'
printf 'cold and the' >text
runs "tokenize --file" tokenize "$plain" --file text
is "the same from a file" "$(cat out)" '[72,84,320,285,264]'
"$genai" tokenize "$plain" <text >out
is "the same from stdin" "$? $(cat out)" '0 [72,84,320,285,264]'
runs "nothing" tokenize "$plain" --text ""
is "no ids" "$(cat out)" '[]'
run tokenize "$plain" --text "<|end|>"
is "a special token" "$(cat out)" '[2]'
run tokenize "$plain" --text "<|end|>" --specials-as-text
is "--specials-as-text" "$(cat out)" '[33,97,316,73,97,35]'
printf '"cold"\n"a\\nb"\n""\n"\\u0000x"\n' >lines
"$genai" tokenize "$plain" --jsonl <lines >out 2>err
is "--jsonl: a line for a line" "$? $(wc -l <out | tr -d ' ')" "0 4"
is "--jsonl: an empty string" "$(sed -n 3p out)" '[]'
like "--jsonl: NUL is a character" "$(sed -n 4p out)" '\[*,*\]'
printf '"good"\nbad\n' | "$genai" tokenize "$plain" --jsonl >out 2>err
is "a bad line: 1" "$?" 1
like "it names the line" "$(cat err)" "genai: error: stdin: line 2*"
printf '[1]\n' | "$genai" tokenize "$plain" --jsonl >out 2>err
like "not a string" "$(cat err)" "genai: error: stdin: line 1: not a JSON *"
mkdir only
cp "$plain/tokenizer.json" only
runs "a folder with just a tokenizer.json" tokenize only --text "cold and the"
is "gives the same" "$(cat out)" '[72,84,320,285,264]'
runs "the file itself" tokenize only/tokenizer.json --text "cold and the"
gzip -c "$plain/tokenizer.json" >zipped.json.gz
mkdir zip
mv zipped.json.gz zip/tokenizer.json.gz
runs "a tokenizer.json.gz" tokenize zip --text "cold and the"
is "gives the same too" "$(cat out)" '[72,84,320,285,264]'
# the tokenizer's own additions
mkdir adds
sed 's/"single": *\[/"single":[{"SpecialToken":{"id":"<|bos|>","type_id":0}},/
s/"special_tokens": *{}/"special_tokens":{"<|bos|>":{"id":"<|bos|>","ids":[1],\
"tokens":["<|bos|>"]}}/' "$plain/tokenizer.json" | tr -d '\n' \
	>adds/tokenizer.json
run tokenize adds --text "cold and the"
is "the tokenizer's additions" "$(cat out)" '[1,72,84,320,285,264]'
run tokenize adds --text "cold and the" --no-special
is "--no-special" "$(cat out)" '[72,84,320,285,264]'

# ---- detokenize ----

runs "detokenize" detokenize "$plain" --ids 72,84,320,285,264
is "the text" "$(cat out)" "cold and the"
run detokenize "$plain" --ids 1,72,84,2
is "special tokens do not show" "$(cat out)" "co"
run detokenize "$plain" --ids 1,72,84,2 --keep-special
is "--keep-special" "$(cat out)" "<|bos|>co<|end|>"
run tokenize "$plain" --text "äß€𝄞"
list=$(cat out)
run detokenize "$plain" --ids "$list"
is "there and back" "$(cat out)" "äß€𝄞"
runs "--stream" detokenize "$plain" --ids "$list" --stream
is "--stream: whole characters, a piece per token and the rest" \
	"$("$probe" json <out | tr -d '",[]')" "äß€𝄞"
count=$(echo "$list" | tr -cd , | wc -c)
is "--stream: as many pieces" \
	"$(tr -cd , <out | wc -c | tr -d ' ')" "$((count + 1))"
printf '[72,84]\n[]\n[320]\n' | "$genai" detokenize "$plain" --jsonl >out
is "--jsonl" "$(tr '\n' ' ' <out)" '"co" "" "ld" '
printf '[72,84]\n' | "$genai" detokenize "$plain" --jsonl --stream >out
is "--jsonl --stream" "$(cat out)" '["c","o",""]'
fails "an unknown id" 1 "id 1 is 9999: there are 0 to 511" \
	detokenize "$plain" --ids 72,9999
fails "a negative one" 1 "id 0 is -1" detokenize "$plain" --ids -1
fails "nothing to do" 2 "--ids or --jsonl" detokenize "$plain"
printf '[1,"x"]\n' | "$genai" detokenize "$plain" --jsonl >out 2>err
like "not an array of ids" "$(cat err)" "genai: error: stdin: line 1*"

# ---- bad tokenizers ----

mkdir empty
fails "no tokenizer" 1 "empty" tokenize empty --text x
mkdir cut
head -c 5000 "$plain/tokenizer.json" >cut/tokenizer.json
fails "a cut file" 1 "cut/tokenizer.json" tokenize cut --text x
mkdir lfs
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n' \
	>lfs/tokenizer.json
fails "an LFS pointer" 1 "lfs/tokenizer.json" tokenize lfs --text x
fails "no folder" 2 "one folder" tokenize --text x
fails "no such folder" 1 "gone" tokenize gone --text x

# ---- template ----

cat >messages.json <<'EOF'
[{"role": "system", "content": "be brief"},
 {"role": "user", "content": "hi"},
 {"role": "assistant", "content": "ho"},
 {"role": "user", "content": "and?"}]
EOF
want='<|system|>
be brief<|end|>
<|user|>
hi<|end|>
<|assistant|>
ho<|end|>
<|user|>
and?<|end|>'
runs "template of a folder" template "$plain" --messages messages.json
is "the prompt" "$(cat out)" "$want
<|assistant|>"
runs "--no-generation-prompt" template "$plain" --messages messages.json \
	--no-generation-prompt
is "without the last line" "$(cat out)" "$want"
runs "a template file" template "$plain/chat_template.jinja" --messages \
	messages.json
is "the same" "$(cat out)" "$want
<|assistant|>"
printf '{{ a }} {{ b.c[1] }} {{ messages|length }} {{ bos_token }}' >t.jinja
runs "--var" template t.jinja --messages messages.json --var a=1.5 \
	--var 'b={"c":[1,"x"]}' --var 'bos_token="<s>"'
is "variables" "$(cat out)" "1.5 x 4 <s>"
printf '{{ strftime_now("%%d %%b %%Y %%H:%%M") }}' >now.jinja
runs "--now" template now.jinja --messages messages.json --now \
	2024-07-26T13:14:15
is "the clock" "$(cat out)" "26 Jul 2024 13:14"
printf '{{ strftime_now("%%-d|%%-I|%%s|%%G-%%V|%%k|%%P|%%C|%%q|%%z%%Z|%%f|%%%%") }}' \
	>now.jinja
runs "--now" template now.jinja --messages messages.json --now \
	2024-07-26T13:14:15
is "all directives of the C library" "$(cat out)" \
	"26|1|1721999655|2024-30|13|pm|20|%q||000000|%"
mkdir -p named/additional_chat_templates
printf 'plain' >named/chat_template.jinja
printf 'with {{ tools|length }}' >named/additional_chat_templates/tool_use.jinja
runs "a folder with named templates" template named --messages messages.json
is "without tools the default" "$(cat out)" plain
printf '{%% for t in tools %%}{{ t.function.name }};{%% endfor %%}' >tools.jinja
echo '[{"type":"function","function":{"name":"f","parameters":{}}}]' >tools.json
runs "--tools" template tools.jinja --messages messages.json --tools tools.json
is "tools are there" "$(cat out)" "f;"
runs "with tools" template named --messages messages.json --tools tools.json
is "the one for tools" "$(cat out)" "with 1"

# ---- tokens that only the settings name ----

mkdir more
cp "$plain/tokenizer.json" more/
next=$("$genai" detokenize more --ids 99999 2>&1 | sed 's/.*there are 0 to //')
next=$((next + 1))
cat >more/tokenizer_config.json <<END
{"added_tokens_decoder": {"$next": {"content": "<|mine|>", "special": true},
 "0": {"content": "<unk>", "special": true}}}
END
runs "a token of tokenizer_config.json" tokenize more --no-special \
	--text "a<|mine|>b"
like "is one token" "$(cat out)" "*,$next,*"
rm more/tokenizer_config.json
printf '{"<|mine|>": %d}' "$next" >more/added_tokens.json
runs "one of added_tokens.json" tokenize more --no-special --text "a<|mine|>b"
like "too" "$(cat out)" "*,$next,*"
echo '{' >more/tokenizer_config.json
fails "settings that are no JSON" 1 "more/tokenizer_config.json: line" \
	tokenize more --text a
rm more/tokenizer_config.json
mkfifo more/tokenizer_config.json # nobody writes: reading would wait
fails "settings that are no file" 1 "not a small file of JSON" \
	tokenize more --text a
cat >last.json <<'EOF'
[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
EOF
runs "--continue" template "$plain" --messages last.json --continue \
	--no-generation-prompt
is "the last message is open" "$(cat out)" "<|user|>
hi<|end|>
<|assistant|>
ho"
cat >lines <<'EOF'
{"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false}
{"messages":[{"role":"user","content":"b"}],"add_generation_prompt":true}
{"messages":[{"role":"user","content":"c"}],"kwargs":{"add_generation_prompt":false}}
EOF
"$genai" template "$plain" --jsonl <lines >out 2>err
is "--jsonl" "$? $(tr '\n' ' ' <out)" \
	'0 {"text":"<|user|>\na<|end|>\n"} '\
'{"text":"<|user|>\nb<|end|>\n<|assistant|>\n"} '\
'{"text":"<|user|>\nc<|end|>\n"} '
printf '{{ raise_exception("no " + messages[0].content) }}' >raise.jinja
head -n 1 lines | "$genai" template raise.jinja --jsonl >out 2>err
is "--jsonl: an error is a line too" "$?" 0
like "with its text" "$(json error)" "*no a*"
fails "an error of the template" 1 "no be brief" template raise.jinja \
	--messages messages.json
printf '{%% if %%}' >broken.jinja
fails "a broken template" 1 "broken.jinja" template broken.jinja --messages \
	messages.json
printf 'x\n{{ ' >open.jinja
fails "an open template" 1 "open.jinja" template open.jinja --messages \
	messages.json
echo '[{' >bad.json
fails "bad messages" 1 "bad.json: line" template "$plain" --messages bad.json
fails "no messages" 2 "--messages or --jsonl" template "$plain"
fails "--var without a value" 2 "name=JSON" template t.jinja --messages \
	messages.json --var a
fails "--var with a bad value" 2 "not JSON" template t.jinja --messages \
	messages.json --var a=b
fails "--now with a bad time" 2 "--now" template now.jinja --messages \
	messages.json --now yesterday
finish
