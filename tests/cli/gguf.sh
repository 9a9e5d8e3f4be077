#!/bin/sh
# gguf.sh - GGUF files of every architecture against the logits that llama.cpp
# computes from them (tests/data/gguf/ARCH.npy; probe writes the files), or,
# lfm2moe, transformers.
. "${top_srcdir:-.}/tests/cli/lib.sh"

ids=1,40,7,200,99,3,150,261,18,77,33,120
for arch in llama gemma gemma2 gemma3 phi3 olmo2 granite smollm3 \
	lfm2 lfm2moe qwen3moe gpt-oss; do
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

# Experts of blocks: what they stand for, as floats.  In a mixture gates, ups and
# downs are of three types, with and without offsets.
experts() # $1 blocks, $2 the same as floats
{
	for arch; do
		"$probe" gguf $arch.gguf $arch
		"$genai" --quiet logits $arch.gguf --ids $ids -o $arch.npy 2>err
		is "$arch: runs" "$?$(cat err)" 0
	done
	is "$1: as $2" \
		"$("$probe" npydiff $1.npy $2.npy | awk '{ print $1 < 2e-4 }')" 1
}
experts qwen3moe-mxfp4 qwen3moe
experts qwen3moe-mixed qwen3moe-floats
experts gpt-oss-mxfp4 gpt-oss

# Floats of 16 bits stay as they are: half as large, and the same logits to the
# bit, by either executor and in pieces.
for arch in llama gemma; do
	for kind in f16 bf16; do
		for form in $kind $kind-floats; do
			"$probe" gguf $arch-$form.gguf $arch-$form
			"$genai" --quiet import $arch-$form.gguf -o $arch-$form
			for how in eager captured; do
				"$genai" --quiet logits $arch-$form --ids $ids \
					-o $form-$how.npy \
					--set runtime.executor=cpu_ref:$how
			done
		done
		is "$arch-$kind: logits as of float32" "$(for how in eager captured; do
			"$probe" npydiff $kind-$how.npy $kind-floats-$how.npy
		done | awk '{ printf "%s ", $1 }')" "0 0 "
		have=$(wc -c <$arch-$kind/model.onnx.data)
		wide=$(wc -c <$arch-$kind-floats/model.onnx.data)
		if [ $((have * 3)) -lt $((wide * 2)) ]; then
			ok "$arch-$kind: $have bytes of $wide"
		else
			not_ok "$arch-$kind: half as large" "$have of $wide"
		fi
	done
done

# A file in parts: one model, whichever is named, imported once.
imports() # how many there are
{
	find "$HOME/.cache/genai" -mindepth 1 -maxdepth 1 -type d | wc -l |
		tr -d ' '
}
"$probe" gguf parts llama 3
had=$(imports)
for i in 1 2 3; do
	"$genai" --quiet logits parts-0000$i-of-00003.gguf --ids $ids \
		-o parts.npy 2>err
	is "part $i: runs" "$?$(cat err)" 0
	is "part $i: as the whole" \
		"$("$probe" npydiff llama.npy parts.npy | awk '{ print $1 == 0 }')" 1
done
is "parts are one import" "$(imports)" $((had + 1))
printf 'x' | dd of=parts-00002-of-00003.gguf bs=1 conv=notrunc 2>/dev/null \
	seek=$(($(wc -c <parts-00002-of-00003.gguf) - 5))
"$genai" --quiet logits parts-00001-of-00003.gguf --ids $ids -o parts.npy
is "another byte in one of them is another" "$(imports)" $((had + 2))
runs "a part to a folder" --quiet import parts-00003-of-00003.gguf -o parts
rm parts-00002-of-00003.gguf
fails "a part is missing" 1 "parts-00002-of-00003.gguf: is missing" \
	logits parts-00001-of-00003.gguf --ids 1 -o parts.npy
"$probe" gguf other qwen3moe 3
mv other-00002-of-00003.gguf parts-00002-of-00003.gguf
fails "a foreign part" 1 "parts-00002-of-00003.gguf: key split.tensors.count" \
	logits parts-00001-of-00003.gguf --ids 1 -o parts.npy

bad() # $1 what is replaced, $2 by what, $3 the error; $4 of which file
{
	LC_ALL=C sed "s/$1/$2/" ${4:-gpt-oss-mxfp4}.gguf >bad.gguf
	fails "$1 is $2" 1 "$3" --quiet import bad.gguf \
		-o bad
}
bad gpt-oss.expert_used_count gpt-oss.expert_used_counx \
	"no key gpt-oss.expert_used_count"
bad blk.1.ffn_up_exps.bias blk.1.ffn_up_expx.bias \
	"no tensor blk.1.ffn_up_exps.bias"
bad blk.2.attn_sinks blk.2.attn_sinkz "no tensor blk.2.attn_sinks.weight"
bad yarn yarm "rope scaling 'yarm' is not carried"

bad exp_probs_b exp_probs_c "no tensor blk.1.exp_probs_b.bias" lfm2moe
bad lfm2moe.expert_gating_func lfm2moe.expert_gating_funk \
	"key lfm2moe.expert_gating_funk is not carried" lfm2moe
bad lfm2moe.leading_dense_block_count lfm2moe.leading_dense_block_counx \
	"leading_dense_block_counx is not carried" lfm2moe
# the number behind a key: its type, 4, and a word
bad 'expert_gating_func\x04\x00\x00\x00\x02' \
	'expert_gating_func\x04\x00\x00\x00\x01' \
	"expert_gating_func is not 2 (sigmoid)" lfm2moe
bad 'leading_dense_block_count\x04\x00\x00\x00\x01' \
	'leading_dense_block_count\x04\x00\x00\x00\x04' \
	"leading_dense_block_count is no number below 4" lfm2moe

finish
