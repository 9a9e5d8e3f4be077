#!/bin/sh
# serve.sh - genai serve from end to end; serve.py is its client.
. "${top_srcdir:-.}/tests/cli/lib.sh"

skip()
{
	echo "1..0 # SKIP $1"
	exit 0
}
command -v curl >/dev/null || skip "no curl"
command -v python3 >/dev/null || skip "no python3"
if "$genai" serve "$plain" --port 0 --max-body 1 2>&1 | grep -q libevent; then
	skip "built without libevent"
fi
export top_srcdir
genai=$genai model=$plain python3 -B "$top_srcdir/tests/cli/serve.py"
