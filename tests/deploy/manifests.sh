#!/bin/sh
# manifests.sh - the Kubernetes manifests against its schemas (PyPI's
# kubernetes-validate), and that what they say is what genai serve has.
. "${top_srcdir:-.}/tests/cli/lib.sh"

k=$top_srcdir/packaging/deploy/kubernetes
if command -v kubernetes-validate >/dev/null; then
	kubernetes-validate --strict "$k/deployment.yaml" >out 2>&1
	is "deployment.yaml" "$? $(grep -c passed out)" "0 3"
	sed 's/replicas: 2/replicas: two/' "$k/deployment.yaml" >bad.yaml
	kubernetes-validate --strict bad.yaml >out 2>&1
	is "it would find a mistake" "$(($? != 0))" 1
else
	n=$((n + 1))
	echo "ok $n - # SKIP no kubernetes-validate"
fi
python3 -c 'import yaml' 2>/dev/null && {
	python3 -c 'import sys, yaml
for f in sys.argv[1:]:
    for d in yaml.safe_load_all(open(f)):
        assert d["apiVersion"] and d["kind"] and d["metadata"]["name"], f' \
		"$k"/*.yaml
	is "all of them are YAML, and have a kind and a name" "$?" 0
}
for f in deployment kserve; do
	args=$(sed -n 's/^ *args: \[serve, [^,]*, *\(.*\)\]/\1/p' "$k/$f.yaml" |
		tr ',' '\n' | grep -o -- '--[a-z-]*')
	for flag in $args; do
		"$genai" help serve | grep -q -- "$flag" ||
			not_ok "$f.yaml: $flag is none of genai serve"
	done
	ok "$f.yaml: its flags are those of genai serve"
done
finish
