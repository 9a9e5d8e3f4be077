#!/bin/sh
# pull.sh - genai pull from a hub on this machine: whole, broken, slow and lying.
. "${top_srcdir:-.}/tests/cli/lib.sh"

run pull
is "a name is needed" "$rc $(cat err)" \
	"2 genai: error: pull: one ORG/NAME is needed (see genai help pull)"
for name in x a/b/c ../x a/.b a/ /b 'a/b:' 'a/b c'; do
	fails "no name: $name" 2 "a name is ORG/NAME" pull "$name"
done
fails "no revision" 2 "--revision" pull o/n --revision ../x
fails "a model that was not pulled" 1 \
	"o/none: cannot open: No such file or directory; if it is a model of the hub: genai pull o/none" \
	generate o/none --ids 1
HF_ENDPOINT=http://127.0.0.1:9 run pull o/n
case $(cat err) in
*"built without libcurl"*)
	ok "pull # SKIP built without libcurl"
	finish
	;;
esac
if ! python3 -c 'import http.server' 2>/dev/null; then
	ok "pull # SKIP no python3"
	finish
fi

for name in good broken slow dead rangeless lies longer private moved html \
	outside hashless commitless busy huge; do
	mkdir -p hub/o/$name
	cp -r "$plain"/*.json "$plain"/*.jinja "$plain"/model.onnx* hub/o/$name/
done
mkdir -p hub/o/two/cpu hub/o/two/cuda hub/o/gguf hub/o/none "hub/o/odd/a b#c"
cp hub/o/good/* hub/o/two/cpu/
cp hub/o/good/* hub/o/two/cuda/
cp hub/o/good/* "hub/o/odd/a b#c/"
echo x >hub/o/none/model.safetensors
"$probe" gguf hub/o/gguf/small-Q4_0.gguf
cp hub/o/gguf/small-Q4_0.gguf hub/o/gguf/small-Q8_0.gguf
python3 "$top_srcdir/tests/cli/hub.py" hub port log &
server=$!
trap 'kill $server; cd /; chmod -R u+w "$work"; rm -rf "$work"' EXIT
for _ in $(seq 100); do
	[ -f port ] && break
	sleep 0.1
done
HF_ENDPOINT=http://127.0.0.1:$(cat port)/
HF_HOME=$work/hf
export HF_ENDPOINT HF_HOME
unset HF_TOKEN HF_TOKEN_PATH HF_HUB_CACHE HF_HUB_OFFLINE XDG_CACHE_HOME
commit=0123456789abcdef0123456789abcdef01234567
asked() # requests for what has this in it
{
	grep -c "$1" log
}
# What was pulled is what is there, by links as huggingface_hub has them.
same()
{
	s=hf/hub/models--o--$1/snapshots/$commit
	if diff -r "hub/o/$1" "$s" >diff 2>&1 &&
		[ "$(cat "hf/hub/models--o--$1/refs/main")" = $commit ] &&
		[ "$(readlink "$s/model.onnx" | cut -c 1-12)" = ../../blobs/ ] &&
		[ -z "$(find "hf/hub/models--o--$1" -name '*.incomplete')" ]; then
		ok "$1: as it is there"
	else
		not_ok "$1: as it is there" "$(head -n 5 diff)" "$(ls -R "hf/hub/models--o--$1")"
	fi
}

runs "a model" pull o/good
is "its folder is printed" "$(cat out)" \
	"$work/hf/hub/models--o--good/snapshots/$commit"
same good
run generate "$plain" --ids 1,2,3 -n 4
want=$(cat out)
runs "it is used by its name" generate o/good --ids 1,2,3 -n 4
is "it is the model" "$(cat out)" "$want"
for c in inspect plan; do
	runs "also by $c" $c o/good
done
runs "also by tokenize" tokenize o/good --text a
run doctor o/good
like "also by doctor" "$(cat out)" "*good  model *models--o--good/snapshots/*"
n_before=$(asked resolve)
runs "again" pull o/good --json
is "nothing is fetched twice" "$(asked resolve)" "$n_before"
is "JSON" "$(json name) $(json commit)" "o/good $commit"
export HF_HUB_OFFLINE=1
runs "offline: what is here" pull o/good
fails "offline: what is not" 1 "HF_HUB_OFFLINE forbids" pull o/busy
unset HF_HUB_OFFLINE

for name in broken rangeless busy; do
	runs "$name" pull o/$name
	same $name
done
like "what broke off goes on" "$(grep 'o/broken.*data' log | tail -n 1)" \
	"* bytes=500000- *"
export HF_HUB_DOWNLOAD_TIMEOUT=1
runs "slow" pull o/slow
same slow
fails "dead" 1 "model.onnx.data: Timeout was reached" pull o/dead
is "dead: no model" "$(ls hf/hub/models--o--dead)" blobs
fails "dead: not found by name" 1 "genai pull o/dead" generate o/dead --ids 1
HF_HUB_DOWNLOAD_TIMEOUT=x fails "a time that is none" 2 \
	"HF_HUB_DOWNLOAD_TIMEOUT=x" pull o/good

fails "another content" 1 "its hash is" pull o/lies
is "it is not kept" "$(find hf/hub/models--o--lies -size +20k)" ""
fails "more than there is" 1 "more than the 591104 bytes" pull o/longer
fails "a page" 1 "not what a hub answers: " pull o/html
fails "names that lead outside" 1 "a file's name that is none" pull o/outside
fails "no hash" 1 "a file without a hash" pull o/hashless
fails "no commit" 1 "no commit" pull o/commitless
fails "nothing there" 1 "not there (status 404)" pull o/gone
fails "nothing of use" 1 "neither a folder with a genai_config.json" pull o/none
fails "no space" 1 "bytes are needed" pull o/huge

fails "private" 1 "a token is needed: HF_TOKEN" pull o/private
HF_TOKEN=wrong fails "a wrong token" 1 "the token does not allow it" \
	pull o/private
HF_TOKEN=secret runs "with its token" pull o/private
same private
mkdir -p hf
echo secret >hf/token
rm -r hf/hub/models--o--private
runs "with the one that was kept" pull o/private
runs "from another host" pull o/moved
same moved
is "which gets no token" "$(grep '^/cdn/' log | grep -c ' token$')" 0
is "the hub does" "$(grep '^/o/moved' log | grep -vc ' token$')" 0

fails "several" 1 "name one by a part of its name, as o/two:PART: cpu/" pull o/two
runs "one of them" pull o/two:cuda
like "its folder" "$(cat out)" "*/snapshots/$commit/cuda"
runs "it is used" generate o/two:cuda --ids 1,2,3 -n 4
runs "and alone" generate o/two --ids 1,2,3 -n 4
runs "names that an address escapes" pull o/odd
runs "a GGUF file" pull o/gguf:q8
like "its name" "$(cat out)" "*/snapshots/$commit/small-Q8_0.gguf"
run generate o/gguf:q8 --ids 1,2 -n 2
is "it is used" "$rc" 0

# stopped in the middle, and on
rm -rf hf/hub/models--o--slow
HF_HUB_DOWNLOAD_TIMEOUT=60 timeout -s INT 1 "$genai" pull o/slow >out 2>err
like "interrupted" "$? $(cat err)" "* genai: interrupted"
is "what came is kept" "$(find hf/hub/models--o--slow -name '*.incomplete' \
	-size +100k | wc -l)" 1
: >log
runs "on" pull o/slow
same slow
like "from there" "$(grep 'o/slow.*data' log | head -n 1)" "* bytes=200000- *"
kill $server
fails "no network" 1 "onnect" pull o/busy2
trap 'cd /; chmod -R u+w "$work"; rm -rf "$work"' EXIT
finish
