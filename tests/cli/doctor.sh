#!/bin/sh
# doctor.sh - genai doctor: what it looks at, and what it makes of a bad
# configuration.
. "${top_srcdir:-.}/tests/cli/lib.sh"

run doctor "$plain"
for what in configuration device rates driver cuda_ep memory processors \
	'locked memory' model cache; do
	if grep -Eq "^(good|note|bad)  +$what " out; then
		ok "says something of: $what"
	else
		not_ok "says something of: $what" "$(cat out err)"
	fi
done
is "nothing on stderr" "$(cat err)" ""
like "names the configuration" "$(grep configuration out)" \
	"good*genai.ini; cpu_ref:eager with pager_sync"
like "and the place of the model" "$(grep ' model ' out)" "*$plain is on *"
if grep -q '^bad' out; then
	is "bad is status 1" $rc 1
else
	is "all is well" $rc 0
fi
run doctor --json
is "as JSON" "$(json checks 0 what)" configuration
is "without a model" "$(grep -c '"what": *"model"' out)" 0
run --set module.cpu_ref.schedule=lat doctor
is "a bad configuration" "$rc $(grep -c '^bad *configuration.*late' out)" "1 1"
run doctor "$work/nowhere"
is "a model that is not there" "$rc $(grep -c '^bad *model' out)" "1 1"
fails "two models" 2 "one model" doctor a b

# ---- what was meant ----

fails "a module's name" 2 "did you mean pager_sync?" \
	--set runtime.pager=pager_synk modules
fails "an executor's" 2 "did you mean eager?" \
	--set runtime.executor=cpu_ref:eagr generate "$plain" --ids 1
fails "an architecture's" 1 "did you mean tiny-llama?" synth tiny-lama -o x
cat >cuda.ini <<'END'
[runtime]
executor = cuda_ep:captured
stream = cuda_ep
barrier = cuda_ep
[module cuda_ep]
END
# a program that finds no module beside it is one without CUDA
mkdir bin && cp "$(if [ -x "$top_builddir/.libs/genai" ]; then
	echo "$top_builddir/.libs/genai"
else
	echo "$genai"
fi)" bin/genai
bin/genai --config cuda.ini modules >out 2>err
like "a build without CUDA says so" "$? $(cat err)" \
	"*module cuda_ep: no such file (a build without CUDA has none*"
finish
