#!/bin/sh
# kernels.sh - the kernel tests of tests/gpu under the fake driver, where the
# kernels run as host code: one TAP line a suite.
top=${top_builddir:-.}
kernels=$top/tests/gpu/gpu-kernels
module=$top/.libs/cuda_ep.so
fake=$(cd "$top" && pwd)/tests/cuda/libfakecuda.so
n=0
suite() # NAME [OPTION...]
{
	n=$((n + 1))
	name=$1
	shift
	if out=$("$kernels" "$module" --driver "$fake" --suite $name \
		--require-device "$@" 2>&1); then
		echo "ok $n - kernels: $name$on ($(echo "$out" | tail -n 1))"
	else
		echo "$out" | sed 's/^/# /'
		echo "not ok $n - kernels: $name$on"
	fi
}

echo "1..13"
for s in runtime general index moe chunks attention paged prompt; do
	suite $s
done
# one case in eight: they take long
suite state --short
suite matmul --short
on=" beside the link"
suite matmul --short --host-threads 1
# GPUs with less shared memory launch other kernels and shapes
for cc in 7.5 8.6; do
	on=" on $cc"
	FAKE_CUDA_CC=$cc
	export FAKE_CUDA_CC
	suite matmul --short
done
