#!/bin/sh
# vectors.sh - genai serve of a model that makes vectors; vectors.py asks it.
. "${top_srcdir:-.}/tests/cli/lib.sh"

skip()
{
	echo "1..0 # SKIP $1"
	exit 0
}
command -v python3 >/dev/null || skip "no python3"
if "$genai" serve "$plain" --port 0 --max-body 1 2>&1 | grep -q libevent; then
	skip "built without libevent"
fi
export top_srcdir
genai=$genai model=$top_srcdir/tests/data/embed/bert-mean text=$plain \
	python3 -B "$top_srcdir/tests/cli/vectors.py"
