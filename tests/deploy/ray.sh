#!/bin/sh
# ray.sh - two replicas as a Ray Serve application (PyPI's ray[serve]), one of them
# killed under load.
. "${top_srcdir:-.}/tests/cli/lib.sh"

if ! python3 -c 'import ray.serve, aiohttp' 2>/dev/null; then
	echo "1..0 # SKIP no ray (pip install 'ray[serve]')"
	exit 0
fi
if "$genai" serve "$plain" --port 0 --max-body 1 2>&1 | grep -q libevent; then
	echo "1..0 # SKIP built without libevent"
	exit 0
fi
export top_srcdir
mkdir -p .config/genai # replicas run elsewhere
cp genai.ini .config/genai
RAY_USAGE_STATS_ENABLED=0 PYTHONDONTWRITEBYTECODE=1
export RAY_USAGE_STATS_ENABLED PYTHONDONTWRITEBYTECODE
ray_folder=$(mktemp -d /tmp/rayXXXX)
export ray_folder
genai=$genai model=$plain \
	PYTHONPATH=$top_srcdir/tests/cli:$top_srcdir/packaging/deploy \
	python3 -B "$top_srcdir/tests/deploy/ray_serve.py" 2>ray.log ||
	sed 's/^/# /' ray.log
rm -rf "$ray_folder"
