# lib.sh - a test script's tools; sourced.  Every check prints a line of TAP.
# Environment: top_srcdir, top_builddir.  Leaves the script in a folder of its
# own with a genai.ini that names the modules of this build.
set -u
case ${top_builddir:=.} in /*) ;; *) top_builddir=$PWD/$top_builddir ;; esac
case ${top_srcdir:=.} in /*) ;; *) top_srcdir=$PWD/$top_srcdir ;; esac
genai=$top_builddir/genai
probe=$top_builddir/tests/cli/probe
models=$top_srcdir/tests/data/models
plain=$models/llama-cpu-fp32
work=$(mktemp -d) || exit 1
trap 'cd /; chmod -R u+w "$work"; rm -rf "$work"' EXIT
cd "$work" || exit 1
unset XDG_CONFIG_HOME XDG_CACHE_HOME
HOME=$work
export HOME
ini() # the configuration that all commands here find
{
	printf '[module %s]\npath = %s/.libs/%s.so\n' \
		cpu_ref "$top_builddir" cpu_ref \
		pager_sync "$top_builddir" pager_sync
}
ini >genai.ini
n=0

ok() # description
{
	n=$((n + 1))
	echo "ok $n - $1"
}

not_ok() # description, why...
{
	n=$((n + 1))
	echo "not ok $n - $1"
	shift
	printf '%s\n' "$@" | sed 's/^/# /'
}

is() # description, got, expected
{
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		not_ok "$1" "got:      $2" "expected: $3"
	fi
}

like() # description, got, pattern of the shell
{
	case $2 in
	$3) ok "$1" ;;
	*) not_ok "$1" "got:     $2" "pattern: $3" ;;
	esac
}

# Run; stdout goes to out, stderr to err, the status to rc.
run()
{
	"$genai" "$@" >out 2>err </dev/null
	rc=$?
}

# A success says nothing on stderr and ends with 0.
runs() # description, arguments...
{
	what=$1
	shift
	run "$@"
	if [ $rc -eq 0 ] && [ ! -s err ]; then
		ok "$what"
	else
		not_ok "$what" "status $rc" "$(cat err)"
	fi
}

# A failure prints nothing but one line "genai: error: ..." that has the text,
# and with --json the same as an object on stdout.
fails() # description, status, text, arguments...
{
	what=$1 status=$2 text=$3
	shift 3
	run "$@"
	line=$(cat err)
	if [ $rc -ne "$status" ]; then
		not_ok "$what" "status $rc, expected $status" "$line"
	elif [ -s out ] && [ "$(head -c 10 out)" != '{"error":"' ]; then
		not_ok "$what" "stdout is not empty: $(head -c 200 out)"
	elif [ "$(wc -l <err)" -ne 1 ]; then
		not_ok "$what" "not one line:" "$line"
	else
		case $line in
		"genai: error: "*"$text"*) ok "$what" ;;
		*) not_ok "$what" "got: $line" "expected in it: $text" ;;
		esac
	fi
}

json() # path...: of out
{
	"$probe" json "$@" <out 2>&1
}

finish()
{
	echo "1..$n"
	exit 0
}
