#!/bin/sh
# fixtures.sh DIR - compare with the recorded results of other implementations
# below DIR, and close with "N passed, N failed, N skipped" over all of them.
#     make check-fixtures FIXTURES=DIR
# Every program that knows recorded results takes a mode for them and closes
# with such a line of its own.  Environment: top_builddir.
: "${top_builddir:=.}"
dir=$1
if [ ! -d "$dir" ]; then
	echo "fixtures.sh: give a folder: make check-fixtures FIXTURES=DIR" >&2
	exit 2
fi
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT

# Run a program, show its output, keep its closing line.
record() # $1 program, the rest: arguments
{
	program=$top_builddir/$1
	shift
	if [ ! -x "$program" ]; then
		echo "$program: not built"
		echo "0 passed, 1 failed, 0 skipped" >>"$log"
		return
	fi
	echo "== ${program##*/} $1"
	out=$("$program" "$@" 2>&1)
	status=$?
	printf '%s\n' "$out"
	line=$(printf '%s\n' "$out" | tail -n 1)
	case $line in
	*' passed, '*' failed, '*' skipped') ;;
	*)
		echo "${program##*/}: no closing line, exit $status"
		line="0 passed, 1 failed, 0 skipped"
		;;
	esac
	printf '%s\n' "$line" >>"$log"
}

unit=tests/unit
record $unit/check_tokenizer --golden "$dir"/text/tokenizers/*
record $unit/check_template --golden "$dir/text/templates"
record $unit/check_gguf --golden "$dir/text/gguf"
record $unit/check_onnx --load "$dir"/models/*/model.onnx
record tests/golden/golden_models "$dir/models"

awk '{ passed += $1; failed += $3; skipped += $5 }
END {
	printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
	exit failed > 0 || passed == 0
}' "$log"
