#!/bin/sh
# kernels.sh - the kernel tests of tests/gpu under the fake driver, where the
# kernels run as host code: one TAP line a suite.
top=${top_builddir:-.}
kernels=$top/tests/gpu/gpu-kernels
module=$top/.libs/cuda_ep.so
fake=$(cd "$top" && pwd)/tests/cuda/libfakecuda.so
suites="runtime general index matmul attention"
set -- $suites
echo "1..$#"
n=0
for s in $suites; do
	n=$((n + 1))
	short=
	[ $s = matmul ] && short=--short # one case in eight: they take long
	if out=$("$kernels" "$module" --driver "$fake" --suite $s \
		--require-device $short 2>&1); then
		echo "ok $n - kernels: $s ($(echo "$out" | tail -n 1))"
	else
		echo "$out" | sed 's/^/# /'
		echo "not ok $n - kernels: $s"
	fi
done
