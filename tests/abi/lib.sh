# lib.sh - what the checks of the binary interface share; sourced.  Every check
# prints a line of TAP.  Environment: top_srcdir, top_builddir, CC.
set -u
: "${CC:=cc}"
top_srcdir=$(cd "${top_srcdir:=.}" && pwd)
top_builddir=$(cd "${top_builddir:=.}" && pwd)
abi=$top_srcdir/tests/abi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
n=0

# WHAT STATUS: ok if STATUS is 0; else what $work/out says
result()
{
	n=$((n + 1))
	if [ "$2" = 0 ]; then
		echo "ok $n - $1"
	else
		sed 's/^/# /' "$work/out" | head -12
		echo "not ok $n - $1"
	fi
}

skip() # WHAT REASON
{
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

# DIR: the ABI of the headers in DIR/genai, as "MAJOR.MINOR"
abi_of()
{
	sed -n 's/^#define GENAI_ABI_M[AI][A-Z]* \([0-9]*\)$/\1/p' \
		"$1/genai/version.h" | paste -sd.
}

# The structs that may grow, as docs/ABI.md lists them.
growing()
{
	sed -n '/^### Structs that may grow/,/^##* [^S]/p' \
		"$top_srcdir/docs/ABI.md" | grep -o '`genai_[a-z_]*`' |
		tr -d '`' | LC_ALL=C sort -u
}

# DIR: all structs of the headers in DIR/genai
structs()
{
	sed -n 's/^struct \(genai_[a-z_]*\) {.*/\1/p' "$1"/genai/*.h |
		LC_ALL=C sort -u
}

# FILE...: without comments, spaces and empty lines; they are no interface
bare()
{
	awk '{
		line = line $0 "\n"
	}
	END {
		while ((i = index(line, "/*"))) {
			j = index(substr(line, i + 2), "*/")
			line = substr(line, 1, i - 1) substr(line, i + j + 3)
		}
		gsub(/[ \t]+/, " ", line)
		gsub(/ *\n[ \n]*/, "\n", line)
		printf "%s", line
	}' "$@"
}
