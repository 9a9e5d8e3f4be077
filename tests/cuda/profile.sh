#!/bin/sh
# profile.sh - genai bench --profile under the fake driver: times that it gives
# events, of kernels, of copies beside them, and of rows that the host multiplies.
top=$(cd "${top_builddir:-.}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cat >genai.ini <<EOT
[runtime]
module_path = $top/.libs
executor = cuda_ep:captured
stream = cuda_ep
barrier = cuda_ep
pager = pager_async
weight_budget = 20%
[module pager_async]
page_bytes = 4KiB
[module cuda_ep]
driver = $top/tests/cuda/libfakecuda.so
link_bytes_per_s = 1000000
host_bytes_per_s = 1000000
host_patience_ms = 60000
EOT
n=0
check() # NAME, and a command that says whether it holds
{
	n=$((n + 1))
	name=$1
	shift
	if "$@" >/dev/null; then
		echo "ok $n - profile: $name"
	else
		sed 's/^/# /' out
		echo "not ok $n - profile: $name"
	fi
}

"$top/genai" --config genai.ini --quiet synth tiny-llama --layers 2 -o m
for threads in 0 1; do
	"$top/genai" --config genai.ini --quiet \
		--set module.cuda_ep.host_threads=$threads bench m \
		--prompt-tokens 4 --new-tokens 3 --repeat 1 --profile >out 2>&1
	check "$threads threads: it ends well" test $? = 0
	for line in 'MatMulNBits .*layers' GroupQueryAttention \
		'copy to the device' 'wait pager'; do
		check "$threads threads: $line" grep "^$line" out
	done
	check "$threads threads: of a prompt and a token" \
		test "$(grep -c '^where the time of' out)" = 2
done
echo "1..$n"
