#!/bin/sh
# run.sh - genai run: a graph with files, and the ONNX node tests' layout.
. "${top_srcdir:-.}/tests/cli/lib.sh"

"$probe" onnx add add
"$probe" mknpy x.npy 3 1 2 3
mkdir results
runs "run with a .npy file" run add/model.onnx --input X=x.npy --output-dir \
	results
is "the output is named" "$(cat out)" "Y: FLOAT [3]"
is "its shape" "$("$probe" npy results/Y.npy)" "float32 3"
is "its values" "$("$probe" npyrow results/Y.npy 0)" "11 22 33"
runs "run with a TensorProto" run add/model.onnx --input \
	X=add/test_data_set_0/input_0.pb --output-dir results
is "the same values" "$("$probe" npyrow results/Y.npy 0)" "11 22 33"
runs "without --output-dir" run add/model.onnx --input X=x.npy
for budget in 100% 0; do
	runs "weight_budget $budget" run add/model.onnx --input X=x.npy \
		--output-dir results --set runtime.weight_budget=$budget
	is "weight_budget $budget: the same values" \
		"$("$probe" npyrow results/Y.npy 0)" "11 22 33"
done
runs "recorded" run add/model.onnx --input X=x.npy --output-dir results \
	--set runtime.executor=cpu_ref:captured
is "recorded: the same values" "$("$probe" npyrow results/Y.npy 0)" "11 22 33"

"$probe" mknpy two.npy 2 1 2
"$probe" mknpy flat.npy 1,3 1 2 3
fails "an input is missing" 1 "graph input X is missing: --input X=FILE" run \
	add/model.onnx
fails "an input that the graph lacks" 1 "add/model.onnx: the graph has no input Z" \
	run add/model.onnx --input X=x.npy --input Z=x.npy
fails "another shape" 1 "" run add/model.onnx --input X=two.npy
fails "another rank" 1 "" run add/model.onnx --input X=flat.npy
fails "a missing file" 1 "gone.npy: cannot open" run add/model.onnx --input \
	X=gone.npy
head -c 100 x.npy >cut.npy
fails "a cut file" 1 "cut.npy: " run add/model.onnx --input X=cut.npy
head -c 131 x.npy >cut2.npy
fails "cut data" 1 "cut2.npy: truncated" run add/model.onnx --input X=cut2.npy
echo hello >text.npy
fails "no tensor" 1 "text.npy" run add/model.onnx --input X=text.npy
sed 's/<f4/<c8/' x.npy >odd.npy
fails "a type that is not carried" 1 "odd.npy: element type" run \
	add/model.onnx --input X=odd.npy
fails "no folder for the outputs" 1 "gone/Y.npy: cannot write" run \
	add/model.onnx --input X=x.npy --output-dir gone
fails "--input without a file" 2 "NAME=FILE" run add/model.onnx --input X
fails "no model" 2 "one .onnx file" run

# ---- node tests ----

mkdir cases
"$probe" onnx add cases/right
"$probe" onnx wrong cases/wrong
"$probe" onnx badop cases/unknown
run run --node-tests cases
is "one wrong: 1" "$rc" 1
is "the closing line" "$(tail -n 1 out)" "1 passed, 1 failed, 1 skipped"
like "the wrong one is named, with what differs" "$(cat out)" \
	"*FAIL cases/wrong: *33*expected 34*"
like "the skipped one has its reason" "$(cat out)" \
	"*skip cases/unknown: *strange*NoSuchOp*com.example*"
"$probe" onnx nameless nameless
fails "a node without a name goes by what it writes" 1 \
	"nameless/model.onnx: node Y: operator NoSuchOp of domain 'com.example'" \
	run nameless/model.onnx --input X=x.npy
run run --node-tests cases/right cases/unknown
is "none wrong: 0" "$rc $(tail -n 1 out)" "0 1 passed, 0 failed, 1 skipped"
run run --node-tests cases/right cases/wrong --atol 1
is "--atol" "$rc $(tail -n 1 out)" "0 2 passed, 0 failed, 0 skipped"
run run --node-tests cases/wrong --rtol 0.1
is "--rtol" "$rc $(tail -n 1 out)" "0 1 passed, 0 failed, 0 skipped"
echo "0.1 0" >cases/wrong/tol.txt
run run --node-tests cases/wrong
is "tol.txt" "$rc $(tail -n 1 out)" "0 1 passed, 0 failed, 0 skipped"
run run --node-tests cases --list
is "--list" "$rc $(tr '\n' ' ' <out)" \
	"0 cases/right cases/unknown cases/wrong "
run run --node-tests gone
is "no such folder is a failure" "$rc $(tail -n 1 out)" \
	"1 0 passed, 1 failed, 0 skipped"
rm cases/right/test_data_set_0/output_0.pb
run run --node-tests cases/right
is "no recorded output is a failure" "$rc $(tail -n 1 out)" \
	"1 0 passed, 1 failed, 0 skipped"
mkdir nothing
run run --node-tests nothing
is "a folder without a case: 1" "$rc" 1
like "it says what was looked for" "$(cat out)" \
	"FAIL nothing: no case in it: looked for model.onnx*0 passed, 1 failed*"
cp -R cases/right bare
rm -r bare/test_data_set_*
run run --node-tests bare
like "a case without data" "$rc $(cat out)" \
	"1 FAIL bare: no test_data_set_\* in it*"
run run --node-tests "$top_srcdir/tests/data/nodes"
like "those that others recorded" "$rc $(tail -n 1 out)" \
	"0 * passed, 0 failed, 0 skipped"

# ---- If, Loop, Scan ----

control() # NAME ERROR
{
	fails "$1" 1 "$2" run "$top_srcdir/tests/data/control/$1.onnx" --input \
		s0=x.npy
}
control endless "node turn (Loop): more than 16384 runs of subgraphs"
control few "node turn (Loop): its body is missing, or does not fit"
control shapes "node turn (Loop): its body gives results of different shapes"
control condition "node turn (If): the condition is not one number"
control axis "node turn (Scan): an axis to scan that its input lacks"
control deep "node turn4 (If): subgraphs are nested more than 16 deep"
fails "no folders" 2 "folders are needed" run --node-tests
finish
