#!/bin/sh
# clients.sh - clients.py with the packages that python3 has, or $PYTHON.
. "${top_srcdir:-.}/tests/cli/lib.sh"

skip()
{
	echo "1..0 # SKIP $1"
	exit 0
}
python=${PYTHON:-python3}
command -v "$python" >/dev/null || skip "no python3"
if "$genai" serve "$plain" --port 0 --max-body 1 2>&1 | grep -q libevent; then
	skip "built without libevent"
fi
export top_srcdir
genai=$genai model=$plain vectors=$top_srcdir/tests/data/embed/bert-mean \
	"$python" -B "$top_srcdir/tests/clients/clients.py"
