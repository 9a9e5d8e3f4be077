#!/bin/sh
# image.sh - the image of packaging/deploy/build-image: small enough, runs as its own
# user with nothing else.  Packages come from Debian, so it is asked for:
# GENAI_TEST_IMAGE=1 tests/deploy/image.sh, as root.
. "${top_srcdir:-.}/tests/cli/lib.sh"

if [ -z "${GENAI_TEST_IMAGE-}" ]; then
	echo "1..0 # SKIP GENAI_TEST_IMAGE is not set"
	exit 0
fi
if ! BUILD=$top_builddir "$top_srcdir/packaging/deploy/build-image" image.tar \
	>log 2>&1; then
	not_ok "an image" "$(tail -n 5 log)"
	finish
	exit
fi
ok "an image: $(tail -n 1 log | sed 's/.*: //')"
is "at most 150 MB" "$(($(wc -c <image.tar) <= 150000000))" 1
mkdir layout
tar xf image.tar -C layout
tag=$(umoci ls --layout layout)
umoci unpack --image "layout:$tag" bundle >log 2>&1
is "it unpacks" "$?" 0
root=bundle/rootfs
like "it begins as a user of its own" "$(tr -d ' \n\t' <bundle/config.json)" \
	'*"uid":10001*"args":\["/usr/bin/genai","serve","/model","--host","0.0.0.0"\]*'
cp "$plain"/* "$root/model" 2>/dev/null
inside() # as the image's user
{
	exec env -i HOME=/tmp PATH=/usr/sbin:/usr/bin chroot --userspec=10001:10001 "$root" /usr/bin/genai "$@"
}
run generate "$plain" --prompt hello --max-new-tokens 8 --greedy
want=$(cat out)
is "the same text" \
	"$(inside generate /model --prompt hello --max-new-tokens 8 --greedy)" \
	"$want"
inside serve /model --port 0 2>line &
server=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do
	grep -q ' at ' line && break
	sleep 1
done
is "it serves" "$(curl -s "$(sed 's/.* at //' line)/health")" '{"status":"ok"}'
kill $server
wait $server
is "and ends when it is told" "$?" 0
finish
