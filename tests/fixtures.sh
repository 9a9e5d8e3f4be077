#!/bin/sh
# fixtures.sh DIR - compare with the recorded results of other implementations
# below DIR, and close with "N passed, N failed, N skipped" over all of them.
#     make check-fixtures FIXTURES=DIR [SMOLLM2_GGUF=FILE]
# DIR has models/, text/tokenizers/, text/templates/, text/gguf/.  With
# SMOLLM2_GGUF, SmolLM2-135M-Instruct in Q4_1, that file is imported and compared
# with models/smollm2-135m-cpu-fp32-goldens.  With MATRIX=1 the models also run
# under every executor, pager and budget.
# Every program that knows recorded results takes a mode for them and closes
# with such a line of its own.  Environment: top_builddir.
: "${top_builddir:=.}" "${SMOLLM2_GGUF:=}" "${MATRIX:=}"
dir=$1
if [ ! -d "$dir" ]; then
	echo "fixtures.sh: give a folder: make check-fixtures FIXTURES=DIR" >&2
	exit 2
fi
work=$(mktemp -d) || exit 1
log=$work/log
trap 'rm -rf "$work"' EXIT

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
	"$program" "$@" >"$work/out" 2>&1
	status=$?
	cat "$work/out"
	line=$(tail -n 1 "$work/out")
	case $line in
	*' passed, '*' failed, '*' skipped') ;;
	*)
		echo "${program##*/}: no closing line, exit $status"
		line="0 passed, 1 failed, 0 skipped"
		;;
	esac
	printf '%s\n' "$line" >>"$log"
}

# The real model: its own goldens, made from the same file.
smollm2()
{
	goldens=$dir/models/smollm2-135m-cpu-fp32-goldens
	if [ -z "$SMOLLM2_GGUF" ]; then
		echo "skip smollm2: SMOLLM2_GGUF is not set"
		return
	fi
	if ! "$top_builddir/genai" --quiet import "$SMOLLM2_GGUF" \
		-o "$work/smollm2"; then
		echo "0 passed, 1 failed, 0 skipped" >>"$log"
		return
	fi
	# shellcheck disable=SC2086 # a flag or nothing
	record tests/golden/golden_models $matrix --model "$work/smollm2" \
		"$goldens"
}

matrix=
[ -n "$MATRIX" ] && matrix=--matrix
unit=tests/unit
record $unit/check_tokenizer --golden "$dir"/text/tokenizers/*
record $unit/check_template --golden "$dir/text/templates"
record $unit/check_gguf --golden "$dir/text/gguf"
record $unit/check_onnx --load "$dir"/models/*/model.onnx
# shellcheck disable=SC2086 # a flag or nothing
record tests/golden/golden_models $matrix "$dir/models"
smollm2

awk '{ passed += $1; failed += $3; skipped += $5 }
END {
	printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
	exit failed > 0 || passed == 0
}' "$log"
