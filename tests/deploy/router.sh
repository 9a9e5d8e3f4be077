#!/bin/sh
# router.sh - two servers behind vllm-router (PyPI), as docs/DEPLOYING.md has it.
. "${top_srcdir:-.}/tests/cli/lib.sh"

if ! command -v vllm-router >/dev/null; then
	echo "1..0 # SKIP no vllm-router (pip install vllm-router)"
	exit 0
fi
if "$genai" serve "$plain" --port 0 --max-body 1 2>&1 | grep -q libevent; then
	echo "1..0 # SKIP built without libevent"
	exit 0
fi
missing=$(awk '/^vllm-router / { on = 1 } /^```/ { on = 0 } on' \
	"$top_srcdir/docs/DEPLOYING.md" | grep -o -- '--[a-z-]*' |
	while read -r flag; do
		vllm-router --help | grep -q -- "$flag" || echo "$flag"
	done)
[ -z "$missing" ] || echo "not ok - docs/DEPLOYING.md: no $missing"
export top_srcdir
genai=$genai model=$plain PYTHONPATH=$top_srcdir/tests/cli \
	python3 -B "$top_srcdir/tests/deploy/router.py"
