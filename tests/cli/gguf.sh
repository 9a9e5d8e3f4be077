#!/bin/sh
# gguf.sh - GGUF files of every architecture against the logits that llama.cpp
# computes from them (tests/data/gguf/ARCH.npy; probe writes the files).
. "${top_srcdir:-.}/tests/cli/lib.sh"

ids=1,40,7,200,99,3,150,261,18,77,33,120
for arch in llama gemma gemma2 gemma3 phi3 olmo2 granite smollm3 lfm2; do
	"$probe" gguf $arch.gguf $arch
	"$genai" --quiet logits $arch.gguf --ids $ids -o $arch.npy 2>err
	is "$arch: runs" "$?$(cat err)" 0
	diff=$("$probe" npydiff $arch.npy "$top_srcdir/tests/data/gguf/$arch.npy")
	# GELU is a table of half floats there
	case $arch in gemma*) most=0.02 ;; *) most=0.0005 ;; esac
	if awk "BEGIN { exit !(\"$diff\" != \"\" && $diff <= $most) }"; then
		ok "$arch: logits differ by $diff"
	else
		not_ok "$arch: logits differ by more than $most" "$diff"
	fi
	"$genai" --quiet logits $arch.gguf --ids $ids --chunks 5,1 -o c.npy
	is "$arch: in pieces" \
		"$("$probe" npydiff $arch.npy c.npy | awk '{ print $1 < 1e-4 }')" 1
done

finish
